/* jinja_access.c - attributes and items, with the rules of Jinja2's sandbox: x.name is the attribute of the
 * Python object, otherwise x['name']; x['name'] is the item, otherwise the attribute. */
#include "chat/jinja_run.h"

/* Names of public attributes, each between spaces. All are methods, except numbers of int and float. */
static const char string_names[] = " capitalize casefold center count encode endswith expandtabs find format "
                                   "format_map index isalnum isalpha isascii "
                                   "isdecimal isdigit isidentifier islower isnumeric isprintable isspace "
                                   "istitle isupper join ljust lower lstrip maketrans "
                                   "partition removeprefix removesuffix replace rfind rindex rjust "
                                   "rpartition rsplit rstrip split splitlines startswith strip "
                                   "swapcase title translate upper zfill ";
static const char markup_names[] = " escape striptags unescape ";
static const char list_names[] = " append clear copy count extend index insert pop remove reverse sort ";
static const char list_unsafe[] = " append clear extend insert pop remove reverse sort ";
static const char tuple_names[] = " count index ";
static const char dict_names[] = " clear copy fromkeys get items keys pop popitem setdefault update values ";
static const char dict_unsafe[] = " clear pop popitem setdefault update ";
static const char int_names[] =
    " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real "
    "to_bytes ";
static const char float_names[] = " as_integer_ratio conjugate fromhex hex imag is_integer real ";
static const char range_names[] = " count index start step stop ";
static const char items_names[] = " isdisjoint mapping ";
static const char values_names[] = " mapping ";
static const char generator_names[] = " close send throw ";

/* Returns the name within the list, where a space ends it, or NULL. */
static const char *find_name(const char *names, const chat_value *name)
{
    char key[24];
    if (name->size + 3 > sizeof key || name->size == 0 || memchr(name->text, ' ', name->size) ||
        memchr(name->text, 0, name->size))
        return NULL;
    base_format(key, sizeof key, " %.*s ", (int)name->size, name->text);
    const char *at = strstr(names, key);
    return at ? at + 1 : NULL;
}

static const char *names_of(const chat_value *v)
{
    switch (v->type) {
    case CHAT_STRING:
        return string_names;
    case CHAT_LIST:
        return list_names;
    case CHAT_TUPLE:
        return tuple_names;
    case CHAT_DICT:
        return dict_names;
    case CHAT_BOOL:
    case CHAT_INT:
    case CHAT_BIG:
        return int_names;
    case CHAT_FLOAT:
        return float_names;
    case CHAT_RANGE:
        return range_names;
    case CHAT_VIEW:
        return v->view->kind == CHAT_VALUES ? values_names : items_names;
    case CHAT_GENERATOR:
        return generator_names;
    default:
        return "";
    }
}

static by_status bind_method(chat_run *r, const chat_value *v, const char *name, chat_value *out)
{
    chat_method *m = chat_alloc(&r->heap, 1, sizeof *m);
    if (!m)
        return base_error_status();
    *m = (chat_method){*v, name};
    *out = (chat_value){.type = CHAT_METHOD, .method = m};
    return BY_OK;
}

/* Attributes of numbers and ranges that are values rather than methods. */
static bool value_attribute(const chat_value *v, const chat_value *name, chat_value *out)
{
    int64_t i;
    if (v->type == CHAT_RANGE &&
        (chat_is_text(name, "start") || chat_is_text(name, "stop") || chat_is_text(name, "step")))
        *out = chat_int(name->size == 5        ? v->range->start
                        : name->text[2] == 'o' ? v->range->stop
                                               : v->range->step);
    else if (chat_as_int(v, &i) && (chat_is_text(name, "real") || chat_is_text(name, "numerator")))
        *out = chat_int(i);
    else if (chat_as_int(v, &i) && (chat_is_text(name, "imag") || chat_is_text(name, "denominator")))
        *out = chat_int(name->size > 4);
    else if (v->type == CHAT_FLOAT && (chat_is_text(name, "real") || chat_is_text(name, "imag")))
        *out = chat_float(name->text[0] == 'r' ? v->real : 0);
    else
        return false;
    return true;
}

static bool macro_attribute(const chat_value *v, const chat_value *name, chat_value *out)
{
    if (!chat_is_text(name, "name"))
        return false;
    *out = v->macro->node->name.type == CHAT_STRING ? v->macro->node->name : chat_none();
    return true;
}

/* getattr(v, name). *found: whether the attribute exists. */
static by_status python_attribute(chat_run *r, const chat_value *v, const chat_value *name, chat_value *out,
                                  bool *found)
{
    const chat_value *there = NULL;
    *found = true;
    if (name->size > 2 && memcmp(name->text, "__", 2) == 0) {
        *out = chat_absent("attributes that begin with __ are not accessible");
        *found = v->type == CHAT_UNDEFINED;
        return BY_OK;
    }
    if (v->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, v);
    if (v->type == CHAT_LOOP) {
        BY_TRY(chat_loop_attribute(r, v->loop, name, out));
        *found = out->type != CHAT_UNDEFINED || out->parent == CHAT_MISSING;
        return BY_OK;
    }
    if (v->type == CHAT_NAMESPACE && (there = chat_find(v->dict, name)))
        *out = *there;
    if (there || value_attribute(v, name, out) || (v->type == CHAT_MACRO && macro_attribute(v, name, out)))
        return BY_OK;
    const char *method = find_name(names_of(v), name);
    if (!method && v->markup)
        method = find_name(markup_names, name);
    if (!(*found = method != NULL))
        return BY_OK;
    if ((v->type == CHAT_LIST && find_name(list_unsafe, name)) ||
        (v->type == CHAT_DICT && find_name(dict_unsafe, name)))
        *out = chat_absent("this method would change its object, which templates may not do");
    else
        return bind_method(r, v, method, out);
    return BY_OK;
}

/* v[key], for values with items. *found: whether the item exists. */
static by_status python_item(chat_run *r, const chat_value *v, const chat_value *key, chat_value *out,
                             bool *found)
{
    int64_t i, count;
    *found = false;
    if (v->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, v);
    if (v->type == CHAT_DICT) {
        const chat_value *there = chat_is_hashable(key) ? chat_find(v->dict, key) : NULL;
        if ((*found = there != NULL))
            *out = *there;
        return BY_OK;
    }
    if (v->type != CHAT_STRING && v->type != CHAT_LIST && v->type != CHAT_TUPLE && v->type != CHAT_RANGE)
        return BY_OK;
    if (!chat_as_int(key, &i))
        return BY_OK;
    chat_length(v, &count);
    i += i < 0 ? count : 0;
    if (!(*found = i >= 0 && i < count))
        return BY_OK;
    if (v->type == CHAT_STRING) {
        BY_TRY(chat_spend(r, v->size / 16));
        const size_t at = chat_offset(v->text, v->size, i);
        *out = chat_bytes(v->text + at, chat_offset(v->text + at, v->size - at, 1));
        out->markup = v->markup;
    } else {
        *out = v->type == CHAT_RANGE ? chat_int(v->range->start + i * v->range->step) : v->list->items[i];
    }
    return BY_OK;
}

by_status chat_attribute(chat_run *r, const chat_value *v, const chat_value *name, chat_value *out)
{
    bool found;
    BY_TRY(python_attribute(r, v, name, out, &found));
    if (!found)
        BY_TRY(python_item(r, v, name, out, &found));
    if (!found)
        *out = chat_undefined(v->type, name->text, name->size);
    return BY_OK;
}

by_status chat_item(chat_run *r, const chat_value *v, const chat_value *key, chat_value *out)
{
    bool found;
    BY_TRY(python_item(r, v, key, out, &found));
    if (!found && key->type == CHAT_STRING)
        BY_TRY(python_attribute(r, v, key, out, &found));
    if (found)
        return BY_OK;
    *out = key->type == CHAT_STRING ? chat_undefined(v->type, key->text, key->size)
                                    : chat_absent("no such element");
    return BY_OK;
}

/* A path component of digits is an index. */
static bool as_index(const chat_value *key, chat_value *out)
{
    int64_t index = 0;
    for (size_t i = 0; i < key->size; i++) {
        if (key->text[i] < '0' || key->text[i] > '9' || i == 18)
            return false;
        index = index * 10 + (key->text[i] - '0');
    }
    *out = chat_int(index);
    return key->size > 0;
}

by_status chat_path(chat_run *r, const chat_value *v, const chat_value *path, chat_value *out)
{
    *out = *v;
    if (path->type == CHAT_NONE)
        return BY_OK;
    if (path->type != CHAT_STRING)
        return chat_item(r, v, path, out);
    for (size_t at = 0; at <= path->size;) {
        const size_t dot = chat_find_bytes(path->text, path->size, ".", 1, at);
        const size_t end = dot == SIZE_MAX ? path->size : dot;
        const chat_value key = chat_bytes(path->text + at, end - at), from = *out;
        chat_value index;
        BY_TRY(chat_item(r, &from, as_index(&key, &index) ? &index : &key, out));
        at = end + 1;
    }
    return BY_OK;
}
