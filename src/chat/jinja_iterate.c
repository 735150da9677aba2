/* jinja_iterate.c - iteration over values, and the generators that filters such as map and selectattr return.
 * Generators are lazy: they compute one item at a time. */
#include "chat/jinja_run.h"

bool chat_is_iterable(const chat_value *v)
{
    switch (v->type) {
    case CHAT_UNDEFINED:
    case CHAT_STRING:
    case CHAT_LIST:
    case CHAT_TUPLE:
    case CHAT_DICT:
    case CHAT_VIEW:
    case CHAT_RANGE:
    case CHAT_GENERATOR:
        return true;
    default:
        return false;
    }
}

by_status chat_iterate(chat_run *r, const chat_value *v, chat_iterator *out)
{
    if (!chat_is_iterable(v))
        return chat_fail(r, "'%s' object is not iterable", chat_type_name(v));
    *out = (chat_iterator){.source = *v};
    return BY_OK;
}

/* ---- generators ------------------------------------------------------------------------------------- */

by_status chat_new_generator(chat_run *r, chat_lazy kind, const chat_value *source, const chat_args *args,
                             chat_value *out)
{
    chat_generator *g = chat_alloc(&r->heap, 1, sizeof *g);
    if (!g)
        return base_error_status();
    g->kind = kind;
    g->source = *source;
    if (args)
        g->args = *args;
    *out = (chat_value){.type = CHAT_GENERATOR, .generator = g};
    return BY_OK;
}

static by_status open_generator(chat_run *r, chat_generator *g)
{
    g->opened = true;
    if (g->kind == CHAT_LAZY_ITEMS) {
        chat_view *view = chat_alloc(&r->heap, 1, sizeof *view);
        if (g->source.type != CHAT_DICT && g->source.type != CHAT_UNDEFINED)
            return chat_fail(r, "only a mapping has items, not %s", chat_type_name(&g->source));
        if (!view)
            return base_error_status();
        g->done = g->source.type == CHAT_UNDEFINED;
        *view = (chat_view){CHAT_ITEMS, g->done ? NULL : g->source.dict};
        if (!g->done)
            g->source = (chat_value){.type = CHAT_VIEW, .view = view};
    } else if (g->kind != CHAT_LAZY_LIST) {
        g->done = !chat_truth(&g->source); /* an empty source skips the checks */
    }
    return g->done ? BY_OK : chat_iterate(r, &g->source, &g->from);
}

/* map('upper'), map(attribute='name', default=''). */
static by_status map_item(chat_run *r, const chat_generator *g, const chat_value *item, chat_value *out)
{
    chat_value p[2];
    if (g->args.count) {
        const chat_args rest = {g->args.list + 1, g->args.count - 1, g->args.named, g->args.named_count};
        return chat_filter(r, &g->args.list[0], item, &rest, out);
    }
    BY_TRY(chat_bind(r, "map", "attribute default?", &g->args, p));
    BY_TRY(chat_path(r, item, &p[0], out));
    if (out->type == CHAT_UNDEFINED && p[1].type != CHAT_MISSING && p[1].type != CHAT_NONE)
        *out = p[1];
    return BY_OK;
}

/* select('odd'), selectattr('role', 'equalto', 'user'). */
static by_status select_item(chat_run *r, const chat_generator *g, const chat_value *item, bool *out)
{
    const size_t skip = g->attribute;
    chat_value v = *item;
    if (g->attribute && !g->args.count)
        return chat_fail(r, "the name of the attribute is missing");
    if (g->attribute)
        BY_TRY(chat_path(r, item, &g->args.list[0], &v));
    *out = chat_truth(&v);
    if (g->args.count > skip) {
        const chat_args rest = {g->args.list + skip + 1, g->args.count - skip - 1, g->args.named,
                                g->args.named_count};
        BY_TRY(chat_test(r, &g->args.list[skip], &v, &rest, out));
    }
    *out = *out != g->negate;
    return BY_OK;
}

static by_status generate(chat_run *r, chat_generator *g, chat_value *out, bool *more)
{
    chat_value item;
    if (!g->opened)
        BY_TRY(open_generator(r, g));
    for (bool chosen = false; !g->done && !chosen;) {
        BY_TRY(chat_next(r, &g->from, &item, more));
        g->done = !*more;
        chosen = true;
        if (g->done)
            break;
        *out = item;
        if (g->kind == CHAT_LAZY_MAP)
            BY_TRY(map_item(r, g, &item, out));
        else if (g->kind == CHAT_LAZY_SELECT)
            BY_TRY(select_item(r, g, &item, &chosen));
    }
    *more = !g->done;
    return BY_OK;
}

/* ---- the next item ------------------------------------------------------------------------------------ */

static by_status next_pair(chat_run *r, const chat_view *view, size_t at, chat_value *out)
{
    const chat_pair *p = &view->dict->pairs[at];
    if (view->kind != CHAT_ITEMS) {
        *out = view->kind == CHAT_KEYS ? p->key : p->value;
        return BY_OK;
    }
    BY_TRY(chat_new_list(&r->heap, CHAT_TUPLE, 2, out));
    BY_TRY(chat_push(&r->heap, out->list, p->key));
    return chat_push(&r->heap, out->list, p->value);
}

static void next_character(chat_iterator *i, chat_value *out)
{
    const size_t rest = i->source.size - i->at;
    *out = chat_bytes(i->source.text + i->at, chat_offset(i->source.text + i->at, rest, 1));
    i->at += out->size - 1; /* the caller adds 1 */
}

by_status chat_next(chat_run *r, chat_iterator *i, chat_value *out, bool *more)
{
    const chat_value *v = &i->source;
    int64_t count;
    BY_TRY(chat_spend(r, 1));
    if (v->type == CHAT_GENERATOR)
        return generate(r, v->generator, out, more);
    if (v->type == CHAT_STRING)
        count = (int64_t)v->size;
    else
        chat_length(v, &count);
    *more = i->at < (size_t)count;
    if (!*more)
        return BY_OK;
    switch (v->type) {
    case CHAT_STRING:
        next_character(i, out);
        break;
    case CHAT_DICT:
        *out = v->dict->pairs[i->at].key;
        break;
    case CHAT_VIEW:
        BY_TRY(next_pair(r, v->view, i->at, out));
        break;
    case CHAT_RANGE:
        *out = chat_int(v->range->start + (int64_t)i->at * v->range->step);
        break;
    default:
        *out = v->list->items[i->at];
    }
    i->at++;
    return BY_OK;
}

by_status chat_to_list(chat_run *r, const chat_value *v, chat_value *out)
{
    chat_iterator i;
    chat_value item;
    BY_TRY(chat_iterate(r, v, &i));
    BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, out));
    for (bool more;;) {
        BY_TRY(chat_next(r, &i, &item, &more));
        if (!more)
            return BY_OK;
        BY_TRY(chat_push(&r->heap, out->list, item));
    }
}

/* ---- the variable loop ---------------------------------------------------------------------------------- */

/* The next item that satisfies the condition of the loop. */
static by_status fetch(chat_run *r, chat_loop *l, chat_value *out, bool *more)
{
    for (;;) {
        BY_TRY(chat_next(r, &l->from, out, more));
        if (!*more || !l->test_frame)
            return BY_OK;
        chat_frame *before = r->frame;
        chat_value chosen;
        r->frame = l->test_frame;
        BY_TRY(chat_assign(r, l->node->left, *out));
        BY_TRY(chat_evaluate(r, l->node->test, &chosen));
        r->frame = before;
        if (chat_truth(&chosen))
            return BY_OK;
    }
}

static by_status peek(chat_run *r, chat_loop *l)
{
    bool more;
    if (l->peeked || l->ended)
        return BY_OK;
    BY_TRY(fetch(r, l, &l->after, &more));
    l->peeked = more;
    l->ended = !more;
    return BY_OK;
}

by_status chat_loop_next(chat_run *r, chat_loop *l, bool *more)
{
    BY_TRY(peek(r, l));
    *more = l->peeked;
    if (!*more)
        return BY_OK;
    l->before = l->current;
    l->current = l->after;
    l->peeked = false;
    l->index0++;
    return BY_OK;
}

/* The length of a sequence is known. Other iterables are fetched completely now. */
static by_status loop_length(chat_run *r, chat_loop *l, int64_t *out)
{
    if (l->length < 0 && (l->test_frame || !chat_length(&l->from.source, &l->length))) {
        chat_value rest, item;
        BY_TRY(chat_new_list(&r->heap, CHAT_LIST, 0, &rest));
        for (bool more = true; more;) {
            BY_TRY(fetch(r, l, &item, &more));
            if (more)
                BY_TRY(chat_push(&r->heap, rest.list, item));
        }
        l->length = (int64_t)rest.list->count + l->index0 + 1 + l->peeked;
        l->from = (chat_iterator){.source = rest};
        l->test_frame = NULL;
    }
    *out = l->length;
    return BY_OK;
}

static by_status number_attribute(chat_run *r, chat_loop *l, const chat_value *name, chat_value *out)
{
    int64_t length;
    BY_TRY(loop_length(r, l, &length));
    *out = chat_int(chat_is_text(name, "length")     ? length
                    : chat_is_text(name, "revindex") ? length - l->index0
                                                     : length - l->index0 - 1);
    return BY_OK;
}

static by_status bound_method(chat_run *r, chat_loop *l, const char *name, chat_value *out)
{
    chat_method *m = chat_alloc(&r->heap, 1, sizeof *m);
    if (!m)
        return base_error_status();
    *m = (chat_method){{.type = CHAT_LOOP, .loop = l}, name};
    *out = (chat_value){.type = CHAT_METHOD, .method = m};
    return BY_OK;
}

by_status chat_loop_attribute(chat_run *r, chat_loop *l, const chat_value *name, chat_value *out)
{
    if (chat_is_text(name, "index") || chat_is_text(name, "index0")) {
        *out = chat_int(l->index0 + (name->size == 5));
    } else if (chat_is_text(name, "first")) {
        *out = chat_bool(l->index0 == 0);
    } else if (chat_is_text(name, "last")) {
        BY_TRY(peek(r, l));
        *out = chat_bool(!l->peeked);
    } else if (chat_is_text(name, "previtem")) {
        *out = l->index0 > 0 ? l->before : chat_absent("no previous item");
    } else if (chat_is_text(name, "nextitem")) {
        BY_TRY(peek(r, l));
        *out = l->peeked ? l->after : chat_absent("no next item");
    } else if (chat_is_text(name, "length") || chat_is_text(name, "revindex") ||
               chat_is_text(name, "revindex0")) {
        return number_attribute(r, l, name, out);
    } else if (chat_is_text(name, "depth") || chat_is_text(name, "depth0")) {
        *out = chat_int(name->size == 5);
    } else if (chat_is_text(name, "cycle") || chat_is_text(name, "changed")) {
        return bound_method(r, l, name->text[1] == 'y' ? "cycle" : "changed", out);
    } else {
        *out = chat_undefined(CHAT_LOOP, name->text, name->size);
    }
    return BY_OK;
}

by_status chat_loop_call(chat_run *r, chat_loop *l, const char *method, const chat_args *a, chat_value *out)
{
    bool same = false;
    chat_value all;
    if (a->named_count || (method[1] == 'y' && !a->count))
        return chat_fail(r, "loop.%s takes values", method);
    if (method[1] == 'y') {
        *out = a->list[(size_t)l->index0 % a->count];
        return BY_OK;
    }
    BY_TRY(chat_new_list(&r->heap, CHAT_TUPLE, a->count, &all));
    for (size_t i = 0; i < a->count; i++)
        BY_TRY(chat_push(&r->heap, all.list, a->list[i]));
    if (l->changed.type != CHAT_MISSING)
        BY_TRY(chat_equal(r, &l->changed, &all, &same));
    l->changed = all;
    *out = chat_bool(!same);
    return BY_OK;
}
