/* jinja_call.c - calls: macros, the global functions, methods of lists, dictionaries and loops. */
#include <stdlib.h>

#include "chat/jinja_run.h"

enum { DEEPEST_CALLS = 150, RANGE_LIMIT = 100000 };
#define RANGE_BOUND ((int64_t)1 << 53)

/* ---- arguments ---------------------------------------------------------------------------------------- */

static chat_value *find_named(const chat_args *a, const char *name, size_t size)
{
    for (size_t i = 0; i < a->named_count; i++)
        if (a->named[i].key.size == size && memcmp(a->named[i].key.text, name, size) == 0)
            return &a->named[i].value;
    return NULL;
}

by_status chat_bind(chat_run *r, const char *what, const char *params, const chat_args *a, chat_value *out)
{
    size_t i = 0, used = 0;
    for (const char *s = params; *s; i++) {
        const size_t size = strcspn(s, " ?");
        const bool optional = s[size] == '?';
        const chat_value *named = *s >= '0' && *s <= '9' ? NULL : find_named(a, s, size);
        if (named && i < a->count)
            return chat_fail(r, "%s: two values for %.*s", what, (int)size, s);
        out[i] = i < a->count ? a->list[i] : named ? *named : (chat_value){.type = CHAT_MISSING};
        used += named != NULL;
        if (out[i].type == CHAT_MISSING && !optional)
            return chat_fail(r, "%s: an argument is missing", what);
        s += size + optional;
        s += *s == ' ';
    }
    if (a->count > i || used < a->named_count)
        return chat_fail(r, "%s: unknown argument", what);
    return BY_OK;
}

by_status chat_param_int(chat_run *r, const chat_value *p, int64_t fallback, int64_t *out)
{
    *out = fallback;
    if (p->type == CHAT_MISSING || chat_as_int(p, out))
        return BY_OK;
    return chat_fail(r, "expected an integer, not '%s'", chat_type_name(p));
}

by_status chat_param_text(chat_run *r, const chat_value *p, const char *fallback, chat_value *out)
{
    *out = *p;
    if (p->type == CHAT_MISSING && fallback)
        *out = chat_literal(fallback);
    else if (p->type != CHAT_STRING)
        return chat_fail(r, "expected a string, not '%s'", chat_type_name(p));
    return BY_OK;
}

/* ---- macros --------------------------------------------------------------------------------------------- */

static by_status set_text(chat_run *r, const char *name, chat_value v)
{
    return chat_set(r, r->frame, chat_literal(name), v);
}

/* kwargs: the named arguments that match no parameter. */
static by_status rest_named(chat_run *r, const chat_node *n, const chat_args *a, bool caller, chat_value *out)
{
    BY_TRY(chat_new_dict(&r->heap, CHAT_DICT, out));
    for (size_t i = 0; i < a->named_count; i++) {
        const chat_node *p = n->items;
        while (p && !chat_same_bytes(&p->name, &a->named[i].key))
            p = p->next;
        if (!p && !(caller && chat_is_text(&a->named[i].key, "caller")))
            BY_TRY(chat_put(&r->heap, out->dict, a->named[i].key, a->named[i].value));
    }
    return BY_OK;
}

static by_status bind_special(chat_run *r, const chat_node *n, const chat_args *a, size_t params)
{
    chat_value named, rest;
    const bool caller = n->flags & CHAT_USES_CALLER;
    BY_TRY(rest_named(r, n, a, caller, &named));
    if (caller) {
        const chat_value *given = find_named(a, "caller", 6);
        BY_TRY(set_text(r, "caller", given ? *given : chat_absent("no caller is defined")));
    }
    if (n->flags & CHAT_USES_KWARGS)
        BY_TRY(set_text(r, "kwargs", named));
    else if (named.dict->count)
        return chat_fail(r, "the macro has no parameter %.*s", (int)BY_MIN(named.dict->pairs[0].key.size, 40),
                         named.dict->pairs[0].key.text);
    if (n->flags & CHAT_USES_VARARGS) {
        BY_TRY(chat_new_list(&r->heap, CHAT_TUPLE, 0, &rest));
        for (size_t i = params; i < a->count; i++)
            BY_TRY(chat_push(&r->heap, rest.list, a->list[i]));
        return set_text(r, "varargs", rest);
    }
    return a->count > params ? chat_fail(r, "the macro takes at most %zu arguments", params) : BY_OK;
}

/* Sets the parameters in the frame of the call. Defaults may refer to earlier parameters. */
static by_status bind_macro(chat_run *r, const chat_node *n, const chat_args *a)
{
    size_t i = 0;
    for (const chat_node *p = n->items; p; p = p->next, i++) {
        const chat_value *named = i < a->count ? NULL : find_named(a, p->name.text, p->name.size);
        if (i < a->count || named)
            BY_TRY(chat_set(r, r->frame, p->name, i < a->count ? a->list[i] : *named));
    }
    BY_TRY(bind_special(r, n, a, i));
    i = 0;
    for (const chat_node *p = n->items; p; p = p->next, i++) {
        chat_value v = chat_absent("the parameter was not provided");
        if (i < a->count || find_named(a, p->name.text, p->name.size))
            continue;
        if (p->right)
            BY_TRY(chat_evaluate(r, p->right, &v));
        BY_TRY(chat_set(r, r->frame, p->name, v));
    }
    return BY_OK;
}

static by_status call_macro(chat_run *r, const chat_macro *m, const chat_args *a, chat_value *out)
{
    chat_frame *before = r->frame;
    if (++r->calls > DEEPEST_CALLS)
        return chat_fail(r, "macros call each other more than %d deep", DEEPEST_CALLS);
    if (!(r->frame = chat_push_frame(r, m->frame, m->node->hidden)))
        return base_error_status();
    const size_t mark = r->out.size;
    r->captures++;
    BY_TRY(bind_macro(r, m->node, a));
    BY_TRY(chat_execute(r, m->node->body));
    r->captures--;
    r->calls--;
    r->frame = before;
    return chat_take_text(r, mark, out);
}

/* ---- global functions ------------------------------------------------------------------------------------- */

static by_status do_range(chat_run *r, const chat_args *a, const chat_value *p, chat_value *out)
{
    int64_t v[3] = {0, 0, 1};
    for (size_t i = 0; i < a->count; i++) {
        BY_TRY(chat_param_int(r, &p[i], 0, &v[i]));
        if (v[i] > RANGE_BOUND || v[i] < -RANGE_BOUND)
            return chat_fail(r, "range: %lld is too large", (long long)v[i]);
    }
    if (a->count == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return chat_fail(r, "range: the step is zero");
    const int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1], step = v[2] > 0 ? v[2] : -v[2];
    chat_range *range = chat_alloc(&r->heap, 1, sizeof *range);
    if (!range)
        return base_error_status();
    *range = (chat_range){v[0], v[1], v[2], span > 0 ? (span - 1) / step + 1 : 0};
    if (range->count > RANGE_LIMIT)
        return chat_fail(r, "a range may have at most %d items", RANGE_LIMIT);
    *out = (chat_value){.type = CHAT_RANGE, .range = range};
    return BY_OK;
}

/* Copies a dictionary, or a list of pairs. */
static by_status put_all(chat_run *r, const chat_value *from, chat_dict *to)
{
    chat_iterator i;
    chat_value pair;
    if (from->type == CHAT_DICT) {
        for (size_t k = 0; k < from->dict->count; k++)
            BY_TRY(chat_put(&r->heap, to, from->dict->pairs[k].key, from->dict->pairs[k].value));
        return BY_OK;
    }
    BY_TRY(chat_iterate(r, from, &i));
    for (bool more;;) {
        BY_TRY(chat_next(r, &i, &pair, &more));
        if (!more)
            return BY_OK;
        if ((pair.type != CHAT_LIST && pair.type != CHAT_TUPLE) || pair.list->count != 2 ||
            !chat_is_hashable(&pair.list->items[0]))
            return chat_fail(r, "a dictionary is made from pairs of key and value");
        BY_TRY(chat_put(&r->heap, to, pair.list->items[0], pair.list->items[1]));
    }
}

static by_status make_dict(chat_run *r, const chat_args *a, chat_type type, chat_value *out)
{
    BY_TRY(chat_new_dict(&r->heap, type, out));
    if (a->count > 1)
        return chat_fail(r, "expected at most one argument");
    if (a->count)
        BY_TRY(put_all(r, &a->list[0], out->dict));
    for (size_t i = 0; i < a->named_count; i++)
        BY_TRY(chat_put(&r->heap, out->dict, a->named[i].key, a->named[i].value));
    return BY_OK;
}

static by_status do_dict(chat_run *r, const chat_args *a, const chat_value *p, chat_value *out)
{
    (void)p;
    return make_dict(r, a, CHAT_DICT, out);
}

static by_status do_namespace(chat_run *r, const chat_args *a, const chat_value *p, chat_value *out)
{
    (void)p;
    return make_dict(r, a, CHAT_NAMESPACE, out);
}

static by_status do_raise(chat_run *r, const chat_args *a, const chat_value *p, chat_value *out)
{
    (void)a;
    BY_TRY(chat_to_text(r, &p[0], out));
    r->exception = *out;
    return chat_fail(r, "the template refuses the conversation: %.*s", (int)BY_MIN(out->size, 400),
                     out->text);
}

/* Directives that Python substitutes before it calls C's strftime: %f and time zones, which a local time
 * lacks. */
static size_t put_directive(const chat_run *r, char c, char *out, size_t room)
{
    if (c == 'f')
        return (size_t)base_format(out, room, "%06d", r->microseconds);
    if (c == 'z' || c == 'Z')
        return 0;
    return (size_t)base_format(out, room, "%%%c", c);
}

static by_status do_strftime(chat_run *r, const chat_args *a, const chat_value *p, chat_value *out)
{
    char format[1024], text[2048];
    size_t n = 0;
    (void)a;
    if (p[0].type != CHAT_STRING || p[0].size > 200 || memchr(p[0].text, 0, p[0].size))
        return chat_fail(r, "strftime_now: the format must be a string of at most 200 bytes");
    for (size_t i = 0; i < p[0].size; i++) {
        if (p[0].text[i] == '%' && i + 1 < p[0].size)
            n += put_directive(r, p[0].text[++i], format + n, sizeof format - n);
        else
            format[n++] = p[0].text[i];
    }
    format[n] = '\0';
    base_locale before = base_locale_enter();
    const size_t size = strftime(text, sizeof text, format, &r->now);
    base_locale_leave(before);
    if (!size && n)
        return chat_fail(r, "strftime_now: the result is empty or too long");
    return chat_copy_bytes(&r->heap, text, size, out);
}

static const chat_function functions[] = {
    {"range", "0 1? 2?", do_range},
    {"dict", NULL, do_dict},
    {"namespace", NULL, do_namespace},
    {"raise_exception", "message", do_raise},
    {"strftime_now", "format", do_strftime},
    {"lipsum", NULL, NULL},
    {"cycler", NULL, NULL},
    {"joiner", NULL, NULL},
};

const chat_function *chat_find_function(const chat_value *name)
{
    for (int i = 0; i < BY_COUNT(functions); i++)
        if (chat_is_text(name, functions[i].name))
            return &functions[i];
    return NULL;
}

static by_status call_function(chat_run *r, const chat_function *f, const chat_args *a, chat_value *out)
{
    chat_value p[CHAT_MOST_PARAMS];
    if (!f->call)
        return chat_fail(r, "the function %s is not supported", f->name);
    if (f->params)
        BY_TRY(chat_bind(r, f->name, f->params, a, p));
    return f->call(r, a, p, out);
}

/* ---- methods of dictionaries and lists ----------------------------------------------------------------------- */

static by_status make_view(chat_run *r, const chat_value *self, chat_view_kind kind, chat_value *out)
{
    chat_view *v = chat_alloc(&r->heap, 1, sizeof *v);
    if (!v)
        return base_error_status();
    *v = (chat_view){kind, self->dict};
    *out = (chat_value){.type = CHAT_VIEW, .view = v};
    return BY_OK;
}

static by_status dict_items(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                            chat_value *out)
{
    (void)a, (void)p;
    return make_view(r, self, CHAT_ITEMS, out);
}

static by_status dict_keys(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                           chat_value *out)
{
    (void)a, (void)p;
    return make_view(r, self, CHAT_KEYS, out);
}

static by_status dict_values(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                             chat_value *out)
{
    (void)a, (void)p;
    return make_view(r, self, CHAT_VALUES, out);
}

static by_status dict_get(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                          chat_value *out)
{
    (void)a;
    if (!chat_is_hashable(&p[0]))
        return chat_fail(r, "unhashable type: '%s'", chat_type_name(&p[0]));
    const chat_value *there = chat_find(self->dict, &p[0]);
    *out = there ? *there : p[1].type == CHAT_MISSING ? chat_none() : p[1];
    return BY_OK;
}

/* Values are immutable, so a copy is the value itself. */
static by_status copy_self(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                           chat_value *out)
{
    (void)r, (void)a, (void)p;
    *out = *self;
    return BY_OK;
}

static by_status list_index(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                            chat_value *out)
{
    (void)a;
    for (size_t i = 0; i < self->list->count; i++) {
        bool same;
        BY_TRY(chat_equal(r, &self->list->items[i], &p[0], &same));
        if (same) {
            *out = chat_int((int64_t)i);
            return BY_OK;
        }
    }
    return chat_fail(r, "the value is not in the list");
}

static by_status list_count(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                            chat_value *out)
{
    int64_t count = 0;
    (void)a;
    for (size_t i = 0; i < self->list->count; i++) {
        bool same;
        BY_TRY(chat_equal(r, &self->list->items[i], &p[0], &same));
        count += same;
    }
    *out = chat_int(count);
    return BY_OK;
}

static const chat_method_row dict_methods[] = {
    {"items", "", dict_items}, {"keys", "", dict_keys}, {"values", "", dict_values},
    {"get", "0 1?", dict_get}, {"copy", "", copy_self}, {NULL, NULL, NULL},
};
static const chat_method_row list_methods[] = {
    {"index", "0", list_index},
    {"count", "0", list_count},
    {"copy", "", copy_self},
    {NULL, NULL, NULL},
};

/* The name of a bound method ends with a space or the end of the string. */
static const chat_method_row *find_method(const chat_method_row *rows, const char *name)
{
    const size_t n = strcspn(name, " ");
    for (; rows->name; rows++)
        if (strlen(rows->name) == n && memcmp(rows->name, name, n) == 0)
            return rows;
    return NULL;
}

by_status chat_call_method(chat_run *r, const chat_method *m, const chat_args *a, chat_value *out)
{
    const chat_method_row *row = NULL;
    chat_value p[CHAT_MOST_PARAMS];
    const int n = (int)strcspn(m->name, " ");
    if (m->self.type == CHAT_LOOP)
        return chat_loop_call(r, m->self.loop, m->name, a, out);
    if (m->self.type == CHAT_STRING && !(row = find_method(chat_string_methods, m->name)))
        row = find_method(chat_string_shapes, m->name);
    else if (m->self.type == CHAT_DICT)
        row = find_method(dict_methods, m->name);
    else if (m->self.type == CHAT_LIST || m->self.type == CHAT_TUPLE)
        row = find_method(list_methods, m->name);
    if (!row)
        return chat_fail(r, "the method %.*s of '%s' is not supported", n, m->name, chat_type_name(&m->self));
    if (row->params)
        BY_TRY(chat_bind(r, row->name, row->params, a, p));
    return row->call(r, &m->self, a, p, out);
}

/* ---- calls -------------------------------------------------------------------------------------------------- */

by_status chat_call(chat_run *r, const chat_value *f, const chat_args *a, chat_value *out)
{
    BY_TRY(chat_spend(r, 1));
    switch (f->type) {
    case CHAT_MACRO:
        return call_macro(r, f->macro, a, out);
    case CHAT_FUNCTION:
        return call_function(r, f->function, a, out);
    case CHAT_METHOD:
        return chat_call_method(r, f->method, a, out);
    case CHAT_UNDEFINED:
        return chat_fail_undefined(r, f);
    default:
        return chat_fail(r, "'%s' object is not callable", chat_type_name(f));
    }
}
