/* jinja_print.c - values as text: Python's str, repr and json.dumps. */
#include <math.h>
#include <stdlib.h>

#include "chat/jinja_run.h"
#include "text/utf8.h"

by_status chat_check_output(chat_run *r)
{
    if (r->out.failed)
        return base_error_status();
    if (r->out.size > r->out_limit)
        return chat_fail(r, "the text is longer than %zu bytes", r->out_limit);
    return BY_OK;
}

by_status chat_put_bytes(chat_run *r, const char *text, size_t size)
{
    BY_TRY(chat_spend(r, size / 16));
    base_buf_put(&r->out, text, size);
    return chat_check_output(r);
}

by_status chat_take_text(chat_run *r, size_t mark, chat_value *out)
{
    BY_TRY(chat_check_output(r));
    const size_t size = r->out.size - mark;
    BY_TRY(chat_spend(r, size / 16));
    BY_TRY(chat_copy_bytes(&r->heap, r->out.data ? r->out.data + mark : "", size, out));
    r->out.size = mark;
    return BY_OK;
}

/* ---- repr and str --------------------------------------------------------------------------------- */

static by_status put_items(chat_run *r, const chat_value *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i)
            BY_TRY(chat_put_bytes(r, ", ", 2));
        BY_TRY(chat_put_repr(r, &items[i]));
    }
    return BY_OK;
}

static by_status put_pairs(chat_run *r, const chat_dict *d)
{
    BY_TRY(chat_put_bytes(r, "{", 1));
    for (size_t i = 0; i < d->count; i++) {
        if (i)
            BY_TRY(chat_put_bytes(r, ", ", 2));
        BY_TRY(chat_put_repr(r, &d->pairs[i].key));
        BY_TRY(chat_put_bytes(r, ": ", 2));
        BY_TRY(chat_put_repr(r, &d->pairs[i].value));
    }
    return chat_put_bytes(r, "}", 1);
}

static by_status put_view(chat_run *r, const chat_view *v)
{
    static const char *const names[] = {"dict_keys([", "dict_values([", "dict_items(["};
    base_buf_puts(&r->out, names[v->kind]);
    for (size_t i = 0; i < v->dict->count; i++) {
        const chat_pair *p = &v->dict->pairs[i];
        if (i)
            base_buf_puts(&r->out, ", ");
        if (v->kind == CHAT_ITEMS) {
            base_buf_puts(&r->out, "(");
            BY_TRY(put_items(r, &p->key, 2)); /* a pair is an array of two */
            base_buf_puts(&r->out, ")");
        } else {
            BY_TRY(chat_put_repr(r, v->kind == CHAT_KEYS ? &p->key : &p->value));
        }
    }
    return chat_put_bytes(r, "])", 2);
}

static by_status put_sequence(chat_run *r, const chat_value *v)
{
    const bool tuple = v->type == CHAT_TUPLE;
    BY_TRY(chat_put_bytes(r, tuple ? "(" : "[", 1));
    BY_TRY(put_items(r, v->list->items, v->list->count));
    if (tuple && v->list->count == 1)
        BY_TRY(chat_put_bytes(r, ",", 1));
    return chat_put_bytes(r, tuple ? ")" : "]", 1);
}

static by_status put_range(chat_run *r, const chat_range *range)
{
    base_buf_printf(&r->out, "range(%lld, %lld", (long long)range->start, (long long)range->stop);
    if (range->step != 1)
        base_buf_printf(&r->out, ", %lld", (long long)range->step);
    return chat_put_bytes(r, ")", 1);
}

/* A namespace may contain itself. */
static by_status put_namespace(chat_run *r, const chat_value *v)
{
    BY_TRY(chat_descend(r));
    BY_TRY(chat_put_bytes(r, "<Namespace ", 11));
    BY_TRY(put_pairs(r, v->dict));
    r->depth--;
    return chat_put_bytes(r, ">", 1);
}

static by_status put_loop(chat_run *r, chat_loop *l)
{
    const chat_value name = chat_literal("length");
    chat_value length;
    BY_TRY(chat_loop_attribute(r, l, &name, &length));
    base_buf_printf(&r->out, "<LoopContext %lld/%lld>", (long long)l->index0 + 1, (long long)length.integer);
    return chat_check_output(r);
}

/* The reference prints an address for functions and generators. This does not. */
static by_status put_object(chat_run *r, const chat_value *v)
{
    if (v->type == CHAT_NAMESPACE)
        return put_namespace(r, v);
    if (v->type == CHAT_LOOP)
        return put_loop(r, v->loop);
    if (v->type == CHAT_MACRO && v->macro->node->name.type == CHAT_STRING) {
        base_buf_puts(&r->out, "<Macro ");
        chat_put_quoted(&r->out, v->macro->node->name.text, v->macro->node->name.size);
        return chat_put_bytes(r, ">", 1);
    }
    base_buf_printf(&r->out, "<%s>", v->type == CHAT_MACRO ? "Macro anonymous" : chat_type_name(v));
    return chat_check_output(r);
}

by_status chat_put_repr(chat_run *r, const chat_value *v)
{
    BY_TRY(chat_spend(r, 1));
    if (v->type == CHAT_STRING) {
        BY_TRY(chat_spend(r, v->size / 16));
        base_buf_puts(&r->out, v->markup ? "Markup(" : "");
        chat_put_quoted(&r->out, v->text, v->size);
        base_buf_puts(&r->out, v->markup ? ")" : "");
        return chat_check_output(r);
    }
    if (v->type == CHAT_UNDEFINED)
        return chat_put_bytes(r, "Undefined", 9);
    return chat_put_text(r, v);
}

by_status chat_put_text(chat_run *r, const chat_value *v)
{
    switch (v->type) {
    case CHAT_MISSING:
    case CHAT_UNDEFINED:
        return BY_OK;
    case CHAT_NONE:
        return chat_put_bytes(r, "None", 4);
    case CHAT_BOOL:
        return chat_put_bytes(r, v->truth ? "True" : "False", v->truth ? 4 : 5);
    case CHAT_INT:
        base_buf_printf(&r->out, "%lld", (long long)v->integer);
        return chat_check_output(r);
    case CHAT_FLOAT:
        chat_put_float(&r->out, v->real);
        return chat_check_output(r);
    case CHAT_BIG:
    case CHAT_STRING:
        return chat_put_bytes(r, v->text, v->size);
    case CHAT_LIST:
    case CHAT_TUPLE:
        return put_sequence(r, v);
    case CHAT_DICT:
        return put_pairs(r, v->dict);
    case CHAT_VIEW:
        return put_view(r, v->view);
    case CHAT_RANGE:
        return put_range(r, v->range);
    default:
        return put_object(r, v);
    }
}

by_status chat_to_text(chat_run *r, const chat_value *v, chat_value *out)
{
    if (v->type == CHAT_STRING) {
        *out = chat_bytes(v->text, v->size);
        return BY_OK;
    }
    const size_t mark = r->out.size;
    BY_TRY(chat_put_text(r, v));
    return chat_take_text(r, mark, out);
}

by_status chat_soft_text(chat_run *r, const chat_value *v, chat_value *out)
{
    if (v->type != CHAT_STRING)
        return chat_to_text(r, v, out);
    *out = *v;
    return BY_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void put_json_string(base_buf *out, const chat_value *v, bool ascii)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    base_buf_puts(out, "\"");
    for (size_t i = 0; i < v->size;) {
        uint32_t c = 0;
        const int k = BY_MAX(tok_utf8_decode((const uint8_t *)v->text + i, v->size - i, &c), 1);
        const char *hit = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        if (hit)
            base_buf_printf(out, "\\%c", to[hit - from]);
        else if (c < 0x20)
            base_buf_printf(out, "\\u%04x", (unsigned)c);
        else if (!ascii || c < 0x7f)
            base_buf_put(out, v->text + i, (size_t)k);
        else if (c < 0x10000)
            base_buf_printf(out, "\\u%04x", (unsigned)c);
        else
            base_buf_printf(out, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((c - 0x10000) >> 10)),
                            (unsigned)(0xdc00 + ((c - 0x10000) & 0x3ff)));
        i += (size_t)k;
    }
    base_buf_puts(out, "\"");
}

static void put_json_float(base_buf *out, double d)
{
    if (isfinite(d))
        chat_put_float(out, d);
    else
        base_buf_puts(out, isnan(d) ? "NaN" : d < 0 ? "-Infinity" : "Infinity");
}

static by_status put_json(chat_run *r, const chat_value *v, const chat_json_style *style, int depth);

static by_status put_line(chat_run *r, const chat_json_style *style, int depth)
{
    if (!style->indent)
        return BY_OK;
    base_buf_puts(&r->out, "\n");
    for (int i = 0; i < depth; i++)
        BY_TRY(chat_put_bytes(r, style->indent, style->indent_size));
    return chat_check_output(r);
}

/* Numbers, booleans and None become strings. */
static by_status put_json_key(chat_run *r, const chat_value *key, const chat_json_style *style)
{
    const bool quote = key->type != CHAT_STRING;
    if (quote && !chat_is_number(key) && key->type != CHAT_NONE && key->type != CHAT_BIG)
        return chat_fail(r, "keys of JSON must be str, int, float, bool or None, not %s",
                         chat_type_name(key));
    base_buf_puts(&r->out, quote ? "\"" : "");
    BY_TRY(put_json(r, key, style, 0));
    base_buf_puts(&r->out, quote ? "\"" : "");
    BY_TRY(chat_put_bytes(r, style->after_key.text, style->after_key.size));
    return BY_OK;
}

/* The pairs of a dictionary, sorted by key. The keys must be comparable. */
static by_status sort_pairs(chat_run *r, const chat_dict *d, chat_pair **out)
{
    chat_pair *p = chat_alloc(&r->heap, d->count + 1, sizeof *p);
    if (!p)
        return base_error_status();
    for (size_t i = 0; i < d->count; i++) {
        size_t at = i;
        int order;
        for (; at > 0; at--) {
            BY_TRY(chat_spend(r, 1));
            if (!chat_order_scalars(&p[at - 1].key, &d->pairs[i].key, &order))
                return chat_fail(r, "the keys of the dictionary cannot be sorted");
            if (order <= 0)
                break;
            p[at] = p[at - 1];
        }
        p[at] = d->pairs[i];
    }
    *out = p;
    return BY_OK;
}

static by_status put_json_dict(chat_run *r, const chat_dict *d, const chat_json_style *style, int depth)
{
    chat_pair *pairs = d->pairs;
    if (d->count == 0)
        return chat_put_bytes(r, "{}", 2);
    if (style->sorted)
        BY_TRY(sort_pairs(r, d, &pairs));
    base_buf_puts(&r->out, "{");
    for (size_t i = 0; i < d->count; i++) {
        if (i)
            BY_TRY(chat_put_bytes(r, style->between.text, style->between.size));
        BY_TRY(put_line(r, style, depth + 1));
        BY_TRY(put_json_key(r, &pairs[i].key, style));
        BY_TRY(put_json(r, &pairs[i].value, style, depth + 1));
    }
    BY_TRY(put_line(r, style, depth));
    return chat_put_bytes(r, "}", 1);
}

static by_status put_json_list(chat_run *r, const chat_list *l, const chat_json_style *style, int depth)
{
    if (l->count == 0)
        return chat_put_bytes(r, "[]", 2);
    base_buf_puts(&r->out, "[");
    for (size_t i = 0; i < l->count; i++) {
        if (i)
            BY_TRY(chat_put_bytes(r, style->between.text, style->between.size));
        BY_TRY(put_line(r, style, depth + 1));
        BY_TRY(put_json(r, &l->items[i], style, depth + 1));
    }
    BY_TRY(put_line(r, style, depth));
    return chat_put_bytes(r, "]", 1);
}

static by_status put_json(chat_run *r, const chat_value *v, const chat_json_style *style, int depth)
{
    BY_TRY(chat_spend(r, 1));
    switch (v->type) {
    case CHAT_NONE:
        return chat_put_bytes(r, "null", 4);
    case CHAT_BOOL:
        return chat_put_bytes(r, v->truth ? "true" : "false", v->truth ? 4 : 5);
    case CHAT_INT:
    case CHAT_BIG:
        return chat_put_text(r, v);
    case CHAT_FLOAT:
        put_json_float(&r->out, v->real);
        return chat_check_output(r);
    case CHAT_STRING:
        BY_TRY(chat_spend(r, v->size / 16));
        put_json_string(&r->out, v, style->ascii);
        return chat_check_output(r);
    case CHAT_LIST:
    case CHAT_TUPLE:
        return put_json_list(r, v->list, style, depth);
    case CHAT_DICT:
        return put_json_dict(r, v->dict, style, depth);
    default:
        return chat_fail(r, "an object of type %s is not JSON", chat_type_name(v));
    }
}

by_status chat_put_json(chat_run *r, const chat_value *v, const chat_json_style *style)
{
    return put_json(r, v, style, 0);
}
