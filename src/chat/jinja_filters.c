/* jinja_filters.c - filters on single values: text, numbers, JSON. List filters are in
 * jinja_filter_lists.c. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "chat/jinja_run.h"
#include "text/unicode.h"

#define FILTER(name)                                                                                 \
    static by_status name(chat_run *r, const chat_value *v, const chat_args *a, const chat_value *p, \
                          chat_value *out)
#define UNUSED (void)r, (void)a, (void)p

/* ---- text --------------------------------------------------------------------------------------------- */

static by_status change_case(chat_run *r, const chat_value *v, chat_case how, chat_value *out)
{
    chat_value text;
    BY_TRY(chat_soft_text(r, v, &text));
    const size_t mark = r->out.size;
    BY_TRY(chat_spend(r, text.size / 4));
    BY_TRY(chat_change_case(text.text, text.size, how, &r->out));
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = text.markup;
    return BY_OK;
}

FILTER(filter_upper)
{
    UNUSED;
    return change_case(r, v, CHAT_UPPER, out);
}

FILTER(filter_lower)
{
    UNUSED;
    return change_case(r, v, CHAT_LOWER, out);
}

FILTER(filter_capitalize)
{
    UNUSED;
    return change_case(r, v, CHAT_CAPITALIZE, out);
}

/* Words start after white space and -([{<. The first character becomes upper case, the others lower case. */
FILTER(filter_title)
{
    chat_value text;
    UNUSED;
    BY_TRY(chat_soft_text(r, v, &text));
    const size_t mark = r->out.size;
    for (size_t at = 0; at < text.size;) {
        size_t end = at;
        uint32_t c;
        bool breaks = false;
        for (int k; end < text.size; end += (size_t)k) {
            k = tok_utf8_next(text.text + end, text.size - end, &c);
            const bool now = chat_is_space(c) || (c < 0x80 && strchr("-({[<", (int)c) && c);
            if (end > at && now != breaks)
                break;
            breaks = now;
        }
        const size_t first = chat_offset(text.text + at, end - at, 1);
        BY_TRY(chat_spend(r, (end - at) / 4 + 1));
        BY_TRY(chat_change_case(text.text + at, first, CHAT_UPPER, &r->out));
        BY_TRY(chat_change_case(text.text + at + first, end - at - first, CHAT_LOWER, &r->out));
        at = end;
    }
    return chat_take_text(r, mark, out);
}

FILTER(filter_trim)
{
    chat_value text;
    UNUSED;
    BY_TRY(chat_soft_text(r, v, &text));
    return chat_strip(r, &text, &p[0], 3, out);
}

FILTER(filter_string)
{
    UNUSED;
    return chat_soft_text(r, v, out);
}

FILTER(filter_safe)
{
    UNUSED;
    BY_TRY(chat_to_text(r, v, out));
    out->markup = true;
    return BY_OK;
}

static by_status escape(chat_run *r, const chat_value *v, bool force, chat_value *out)
{
    chat_value text;
    if (v->type == CHAT_STRING && v->markup && !force) {
        *out = *v;
        return BY_OK;
    }
    BY_TRY(chat_to_text(r, v, &text));
    const size_t mark = r->out.size;
    chat_put_escaped(&r->out, text.text, text.size);
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = true;
    return BY_OK;
}

FILTER(filter_escape)
{
    UNUSED;
    return escape(r, v, false, out);
}

FILTER(filter_force_escape)
{
    UNUSED;
    return escape(r, v, true, out);
}

FILTER(filter_replace)
{
    chat_value s, old, with;
    int64_t count = -1;
    UNUSED;
    BY_TRY(chat_to_text(r, v, &s));
    BY_TRY(chat_to_text(r, &p[0], &old));
    BY_TRY(chat_to_text(r, &p[1], &with));
    if (p[2].type != CHAT_NONE)
        BY_TRY(chat_param_int(r, &p[2], -1, &count));
    return chat_replace(r, &s, &old, &with, count, out);
}

FILTER(filter_format)
{
    chat_value text, values;
    UNUSED;
    BY_TRY(chat_soft_text(r, v, &text));
    if (a->count && a->named_count)
        return chat_fail(r, "format takes positional or keyword arguments, not both");
    if (a->named_count) {
        BY_TRY(chat_new_dict(&r->heap, CHAT_DICT, &values));
        for (size_t i = 0; i < a->named_count; i++)
            BY_TRY(chat_put(&r->heap, values.dict, a->named[i].key, a->named[i].value));
    } else {
        BY_TRY(chat_new_list(&r->heap, CHAT_TUPLE, a->count, &values));
        for (size_t i = 0; i < a->count; i++)
            BY_TRY(chat_push(&r->heap, values.list, a->list[i]));
    }
    return chat_format_percent(r, &text, &values, out);
}

/* Indents lines. The first line and blank lines are indented only on request. */
FILTER(filter_indent)
{
    chat_value width = chat_literal("    "), lines;
    int64_t count = 4;
    UNUSED;
    if (v->type != CHAT_STRING)
        return v->type == CHAT_UNDEFINED
                   ? chat_fail_undefined(r, v)
                   : chat_fail(r, "indent requires a string, not '%s'", chat_type_name(v));
    if (p[0].type == CHAT_STRING)
        width = p[0];
    else
        BY_TRY(chat_param_int(r, &p[0], 4, &count));
    if (p[0].type != CHAT_STRING && p[0].type != CHAT_MISSING) {
        const chat_value space = chat_literal(" "), times = chat_int(count);
        BY_TRY(chat_binary(r, '*', &space, &times, &width));
    }
    const chat_value newline = chat_literal("\n");
    const bool markup = v->markup, first = chat_truth(&p[1]), blank = chat_truth(&p[2]);
    chat_value text = chat_bytes(v->text, v->size);
    BY_TRY(chat_join_strings(r, &text, &newline, &text));
    BY_TRY(chat_split_lines(r, &text, false, &lines));
    const size_t mark = r->out.size;
    for (size_t i = 0; i < lines.list->count; i++) {
        const chat_value *line = &lines.list->items[i];
        base_buf_puts(&r->out, i ? "\n" : "");
        if (i ? blank || line->size : first)
            BY_TRY(chat_put_bytes(r, width.text, width.size));
        BY_TRY(chat_put_bytes(r, line->text, line->size));
    }
    BY_TRY(chat_take_text(r, mark, out));
    out->markup = markup;
    return BY_OK;
}

FILTER(filter_truncate)
{
    int64_t length, leeway = 5, all;
    chat_value end;
    UNUSED;
    BY_TRY(chat_param_int(r, &p[0], 255, &length));
    BY_TRY(chat_param_text(r, &p[2], "...", &end));
    if (p[3].type != CHAT_NONE)
        BY_TRY(chat_param_int(r, &p[3], 5, &leeway));
    const int64_t kept = length - chat_characters(end.text, end.size);
    if (kept < 0 || leeway < 0)
        return chat_fail(r, "truncate: the length is too small");
    if (!chat_length(v, &all))
        return chat_fail(r, "object of type '%s' has no length", chat_type_name(v));
    *out = *v;
    if (all - leeway <= length)
        return BY_OK;
    BY_TRY(chat_param_text(r, v, NULL, out));
    chat_value cut = chat_bytes(v->text, chat_offset(v->text, v->size, kept));
    const size_t space = chat_truth(&p[1]) ? SIZE_MAX : chat_find_last(cut.text, cut.size, " ", 1);
    cut.size = space == SIZE_MAX ? cut.size : space;
    cut.markup = v->markup;
    return chat_join_strings(r, &cut, &end, out);
}

FILTER(filter_center)
{
    const chat_method m = {.name = "center"};
    chat_method bound = m;
    chat_value width = p[0].type == CHAT_MISSING ? chat_int(80) : p[0];
    UNUSED;
    BY_TRY(chat_soft_text(r, v, &bound.self));
    return chat_call_method(r, &bound, &(chat_args){.list = &width, .count = 1}, out);
}

FILTER(filter_wordcount)
{
    chat_value text;
    int64_t count = 0;
    bool inside = false;
    uint32_t c;
    UNUSED;
    BY_TRY(chat_soft_text(r, v, &text));
    for (size_t at = 0; at < text.size;) {
        at += (size_t)tok_utf8_next(text.text + at, text.size - at, &c);
        const bool now = tok_is_word(c);
        count += now && !inside;
        inside = now;
    }
    *out = chat_int(count);
    return BY_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------ */

static by_status json_indent(chat_run *r, const chat_value *p, chat_json_style *style)
{
    int64_t count = 0;
    chat_value text;
    if (p->type == CHAT_MISSING || p->type == CHAT_NONE)
        return BY_OK;
    if (p->type == CHAT_STRING) {
        text = *p;
    } else {
        const chat_value space = chat_literal(" ");
        BY_TRY(chat_param_int(r, p, 0, &count));
        const chat_value times = chat_int(count);
        BY_TRY(chat_binary(r, '*', &space, &times, &text));
    }
    style->indent = text.text;
    style->indent_size = text.size;
    style->between = chat_literal(",");
    return BY_OK;
}

FILTER(filter_tojson)
{
    chat_json_style style = {.ascii = chat_truth(&p[0]),
                             .sorted = chat_truth(&p[3]),
                             .between = chat_literal(", "),
                             .after_key = chat_literal(": ")};
    const size_t mark = r->out.size;
    UNUSED;
    BY_TRY(json_indent(r, &p[1], &style));
    if (p[2].type != CHAT_MISSING && p[2].type != CHAT_NONE) {
        if ((p[2].type != CHAT_TUPLE && p[2].type != CHAT_LIST) || p[2].list->count != 2 ||
            p[2].list->items[0].type != CHAT_STRING || p[2].list->items[1].type != CHAT_STRING)
            return chat_fail(r, "tojson: separators must be two strings");
        style.between = p[2].list->items[0];
        style.after_key = p[2].list->items[1];
    }
    BY_TRY(chat_put_json(r, v, &style));
    return chat_take_text(r, mark, out);
}

/* ---- numbers ----------------------------------------------------------------------------------------------- */

/* The text of a number without surrounding white space and underscores. Returns false if it is too long. */
static bool number_text(const chat_value *v, char *out, size_t room)
{
    const size_t skip = chat_strip_left(v->text, v->size), end = chat_strip_right(v->text, v->size);
    size_t n = 0;
    for (size_t i = skip; i < end; i++) {
        const bool gap = v->text[i] == '_' && i > skip && i + 1 < end && v->text[i - 1] != '_';
        if (n + 1 >= room || !v->text[i])
            return false;
        if (!gap)
            out[n++] = v->text[i];
    }
    out[n] = '\0';
    return n > 0;
}

static bool parse_float(const chat_value *v, double *out)
{
    char text[320], *end;
    if (v->type != CHAT_STRING)
        return chat_as_double(v, out);
    if (!number_text(v, text, sizeof text) || strpbrk(text, "xXpP(_"))
        return false;
    *out = base_strtod(text, &end);
    return *end == '\0';
}

static bool parse_int(const chat_value *v, int base, int64_t *out)
{
    char text[320], *end;
    if (v->type != CHAT_STRING)
        return chat_as_int(v, out);
    if (!number_text(v, text, sizeof text) ||
        !strchr("+-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", text[0]))
        return false;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    const char mark = digits[0] == '0' ? (char)(digits[1] | 0x20) : '\0';
    if (base == 10 && (mark == 'x' || mark == 'o' || mark == 'b'))
        return false;
    errno = 0;
    *out = strtoll(text, &end, base);
    return *end == '\0' && errno == 0;
}

FILTER(filter_int)
{
    int64_t i, base;
    double d;
    UNUSED;
    if (v->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, v);
    BY_TRY(chat_param_int(r, &p[1], 10, &base));
    if (base != 0 && (base < 2 || base > 36))
        return chat_fail(r, "int: the base must be from 2 to 36");
    *out = p[0].type == CHAT_MISSING ? chat_int(0) : p[0];
    if (v->type == CHAT_BIG)
        *out = *v;
    else if (parse_int(v, (int)base, &i))
        *out = chat_int(i);
    else if (parse_float(v, &d) && fabs(d) < 9e18)
        *out = chat_int((int64_t)d);
    return BY_OK;
}

FILTER(filter_float)
{
    double d;
    UNUSED;
    if (v->type == CHAT_UNDEFINED)
        return chat_fail_undefined(r, v);
    *out = p[0].type == CHAT_MISSING ? chat_float(0) : p[0];
    if (parse_float(v, &d))
        *out = chat_float(d);
    return BY_OK;
}

FILTER(filter_abs)
{
    int64_t i;
    UNUSED;
    if (v->type == CHAT_FLOAT)
        *out = chat_float(fabs(v->real));
    else if (chat_as_int(v, &i) && i != INT64_MIN)
        *out = chat_int(i < 0 ? -i : i);
    else
        return chat_fail(r, "bad operand type for abs: '%s'", chat_type_name(v));
    return BY_OK;
}

/* The method "common" rounds half to even in decimal, as printf does. */
FILTER(filter_round)
{
    char text[400];
    int64_t precision;
    double d;
    chat_value method;
    UNUSED;
    BY_TRY(chat_param_int(r, &p[0], 0, &precision));
    BY_TRY(chat_param_text(r, &p[1], "common", &method));
    if (!chat_as_double(v, &d) || precision < 0 || precision > 40)
        return chat_fail(r, "round requires a number and a precision from 0 to 40");
    if (chat_is_text(&method, "common")) {
        if (v->type == CHAT_FLOAT && isfinite(d)) {
            base_format(text, sizeof text, "%.*f", (int)precision, d);
            d = base_strtod(text, NULL);
        }
        *out = v->type == CHAT_FLOAT ? chat_float(d) : chat_int((int64_t)d);
        if (v->type == CHAT_INT)
            *out = *v;
        return BY_OK;
    }
    const double scale = pow(10, (double)precision);
    if (chat_is_text(&method, "ceil"))
        *out = chat_float(ceil(d * scale) / scale);
    else if (chat_is_text(&method, "floor"))
        *out = chat_float(floor(d * scale) / scale);
    else
        return chat_fail(r, "round: the method must be common, ceil or floor");
    return BY_OK;
}

/* ---- any value ------------------------------------------------------------------------------------------------ */

FILTER(filter_default)
{
    UNUSED;
    const bool replace = v->type == CHAT_UNDEFINED || (chat_truth(&p[1]) && !chat_truth(v));
    *out = !replace ? *v : p[0].type == CHAT_MISSING ? chat_literal("") : p[0];
    return BY_OK;
}

FILTER(filter_length)
{
    int64_t n;
    UNUSED;
    BY_TRY(chat_spend(r, v->type == CHAT_STRING ? v->size / 16 : 0));
    if (!chat_length(v, &n))
        return chat_fail(r, "object of type '%s' has no length", chat_type_name(v));
    *out = chat_int(n);
    return BY_OK;
}

FILTER(filter_attr)
{
    UNUSED;
    if (p[0].type != CHAT_STRING)
        return chat_fail(r, "attr requires a name");
    if (v->type == CHAT_DICT || v->type == CHAT_NONE) /* does not fall back to items */
        *out = chat_undefined(v->type, p[0].text, p[0].size);
    else
        return chat_attribute(r, v, &p[0], out);
    return BY_OK;
}

const chat_filter_row chat_text_filters[] = {
    {"abs", "", filter_abs},
    {"attr", "name", filter_attr},
    {"capitalize", "", filter_capitalize},
    {"center", "width?", filter_center},
    {"count", "", filter_length},
    {"d", "default_value? boolean?", filter_default},
    {"default", "default_value? boolean?", filter_default},
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"float", "default?", filter_float},
    {"forceescape", "", filter_force_escape},
    {"format", NULL, filter_format},
    {"indent", "width? first? blank?", filter_indent},
    {"int", "default? base?", filter_int},
    {"length", "", filter_length},
    {"lower", "", filter_lower},
    {"replace", "old new count?", filter_replace},
    {"round", "precision? method?", filter_round},
    {"safe", "", filter_safe},
    {"string", "", filter_string},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"trim", "chars?", filter_trim},
    {"truncate", "length? killwords? end? leeway?", filter_truncate},
    {"upper", "", filter_upper},
    {"wordcount", "", filter_wordcount},
    {NULL, NULL, NULL},
};

/* ---- table
 * -------------------------------------------------------------------------------------------------------- */

static const char *const not_supported[] = {"filesizeformat", "groupby", "pprint",   "random", "striptags",
                                            "urlencode",      "urlize",  "wordwrap", "xmlattr"};

static const chat_filter_row *find_filter(const chat_value *name)
{
    const chat_filter_row *tables[] = {chat_text_filters, chat_list_filters};
    for (int i = 0; i < 2; i++)
        for (const chat_filter_row *f = tables[i]; f->name; f++)
            if (chat_is_text(name, f->name))
                return f;
    return NULL;
}

bool chat_has_filter(const chat_value *name)
{
    return find_filter(name) != NULL;
}

by_status chat_filter(chat_run *r, const chat_value *name, const chat_value *v, const chat_args *a,
                      chat_value *out)
{
    const chat_filter_row *f = find_filter(name);
    chat_value p[CHAT_MOST_PARAMS];
    BY_TRY(chat_spend(r, 1));
    for (int i = 0; !f && i < BY_COUNT(not_supported); i++)
        if (chat_is_text(name, not_supported[i]))
            return chat_fail(r, "the filter %s is not supported", not_supported[i]);
    if (!f && name->type != CHAT_STRING)
        return chat_fail(r, "the name of a filter must be a string");
    if (!f)
        return chat_fail(r, "no filter named '%.*s'", (int)BY_MIN(name->size, 40), name->text);
    if (f->params)
        BY_TRY(chat_bind(r, f->name, f->params, a, p));
    return f->apply(r, v, a, p, out);
}
