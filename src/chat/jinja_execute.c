/* jinja_execute.c - executes statements. Scopes are those of Jinja2: loops, macros, with, and blocks that
 * capture text have their own scope; if does not. */
#include "chat/jinja_run.h"

/* ---- assignment --------------------------------------------------------------------------------------- */

static by_status assign_attribute(chat_run *r, const chat_node *target, chat_value v)
{
    const chat_value space = chat_lookup(r, &target->left->name);
    r->at = target->at;
    if (space.type != CHAT_NAMESPACE)
        return chat_fail(r, "an attribute can be assigned to a namespace only");
    return chat_put(&r->heap, space.dict, target->name, v);
}

static by_status assign_tuple(chat_run *r, const chat_node *target, const chat_value *v)
{
    chat_iterator i;
    chat_value item;
    bool more;
    r->at = target->at;
    BY_TRY(chat_iterate(r, v, &i));
    for (const chat_node *t = target->items; t; t = t->next) {
        BY_TRY(chat_next(r, &i, &item, &more));
        if (!more)
            return chat_fail(r, "not enough values to unpack");
        BY_TRY(chat_assign(r, t, item));
    }
    BY_TRY(chat_next(r, &i, &item, &more));
    return more ? chat_fail(r, "too many values to unpack") : BY_OK;
}

by_status chat_assign(chat_run *r, const chat_node *target, chat_value v)
{
    if (target->kind == CHAT_NODE_NAME)
        return chat_set(r, r->frame, target->name, v);
    if (target->kind == CHAT_NODE_ATTRIBUTE)
        return assign_attribute(r, target, v);
    return assign_tuple(r, target, &v);
}

/* ---- output ------------------------------------------------------------------------------------------- */

static by_status execute_output(chat_run *r, const chat_node *n)
{
    chat_value v = n->value;
    if (n->left)
        BY_TRY(chat_evaluate(r, n->left, &v));
    r->at = n->at;
    BY_TRY(chat_put_text(r, &v));
    if (!r->captures)
        r->written = r->out.size;
    return BY_OK;
}

/* Executes the body of a block in its own scope and captures its output. A break or continue discards the
 * output. */
static by_status capture(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_frame *before = r->frame;
    const size_t mark = r->out.size;
    if (!(r->frame = chat_push_frame(r, before, n->hidden)))
        return base_error_status();
    r->captures++;
    BY_TRY(chat_execute(r, n->body));
    r->captures--;
    r->frame = before;
    return chat_take_text(r, mark, out);
}

static by_status execute_set_block(chat_run *r, const chat_node *n)
{
    chat_value text, v;
    BY_TRY(capture(r, n, &text));
    if (r->jump)
        return BY_OK;
    v = text;
    if (n->right)
        BY_TRY(chat_evaluate_filters(r, n->right, &text, &v));
    return chat_assign(r, n->left, v);
}

static by_status execute_filter_block(chat_run *r, const chat_node *n)
{
    chat_value text, v;
    BY_TRY(capture(r, n, &text));
    if (r->jump)
        return BY_OK;
    BY_TRY(chat_evaluate_filters(r, n->right, &text, &v));
    BY_TRY(chat_put_text(r, &v));
    if (!r->captures)
        r->written = r->out.size;
    return BY_OK;
}

static by_status add_span(chat_run *r, size_t start, size_t end)
{
    if (r->span_count == r->span_capacity) {
        const size_t room = r->span_capacity ? r->span_capacity * 2 : 16;
        by_chat_span *spans = base_resize(r->spans, room, sizeof *spans);
        if (!spans)
            return base_error_status();
        r->spans = spans;
        r->span_capacity = room;
    }
    r->spans[r->span_count++] = (by_chat_span){start, end};
    return BY_OK;
}

/* Characters written to the final text so far. */
static size_t written_characters(chat_run *r)
{
    if (r->written > r->counted)
        r->characters += (size_t)chat_characters(r->out.data + r->counted, r->written - r->counted);
    r->counted = r->written;
    return r->characters;
}

/* As in the reference, a block inside a macro starts at the character where the text outside the macro
 * ends. */
static by_status execute_generation(chat_run *r, const chat_node *n)
{
    chat_frame *before = r->frame;
    const size_t mark = r->out.size;
    if (!(r->frame = chat_push_frame(r, before, n->hidden)))
        return base_error_status();
    r->captures++;
    BY_TRY(chat_execute(r, n->body));
    r->captures--;
    r->frame = before;
    const size_t start = written_characters(r), size = r->out.size - mark;
    BY_TRY(add_span(r, start, start + (size ? (size_t)chat_characters(r->out.data + mark, size) : 0)));
    if (!r->captures)
        r->written = r->out.size;
    return BY_OK;
}

/* ---- macros ----------------------------------------------------------------------------------------------- */

static by_status make_macro(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_macro *m = chat_alloc(&r->heap, 1, sizeof *m);
    if (!m)
        return base_error_status();
    *m = (chat_macro){n, r->frame};
    *out = (chat_value){.type = CHAT_MACRO, .macro = m};
    return BY_OK;
}

static by_status execute_macro(chat_run *r, const chat_node *n)
{
    chat_value macro;
    BY_TRY(make_macro(r, n, &macro));
    return chat_set(r, r->frame, n->name, macro);
}

static by_status execute_call_block(chat_run *r, const chat_node *n)
{
    chat_value f, caller, text;
    chat_args a;
    BY_TRY(make_macro(r, n, &caller));
    BY_TRY(chat_evaluate(r, n->left->left, &f));
    BY_TRY(chat_evaluate_args(r, n->left->items, &a));
    chat_pair *named = chat_alloc(&r->heap, a.named_count + 1, sizeof *named);
    if (!named)
        return base_error_status();
    if (a.named_count)
        memcpy(named, a.named, a.named_count * sizeof *named);
    named[a.named_count++] = (chat_pair){chat_literal("caller"), caller};
    a.named = named;
    r->at = n->at;
    BY_TRY(chat_call(r, &f, &a, &text));
    BY_TRY(chat_put_text(r, &text));
    if (!r->captures)
        r->written = r->out.size;
    return BY_OK;
}

/* ---- control ------------------------------------------------------------------------------------------------ */

static by_status execute_if(chat_run *r, const chat_node *n)
{
    chat_value test;
    for (;;) {
        BY_TRY(chat_evaluate(r, n->test, &test));
        if (chat_truth(&test))
            return chat_execute(r, n->body);
        if (!n->other || n->other->kind != CHAT_NODE_IF || n->other->op != CHAT_ELIF)
            return chat_execute(r, n->other);
        n = n->other;
    }
}

static by_status execute_else(chat_run *r, const chat_node *n)
{
    chat_frame *before = r->frame;
    if (!n->other)
        return BY_OK;
    if (!(r->frame = chat_push_frame(r, before, n->hidden_else)))
        return base_error_status();
    BY_TRY(chat_execute(r, n->other));
    r->frame = before;
    return BY_OK;
}

/* Variables set in a round are gone in the next. *whole: at least one round ended without break or
 * continue. */
static by_status execute_rounds(chat_run *r, const chat_node *n, chat_loop *l, bool *whole)
{
    const chat_value self = {.type = CHAT_LOOP, .loop = l};
    for (bool more;;) {
        r->at = n->at;
        BY_TRY(chat_loop_next(r, l, &more));
        if (!more)
            return BY_OK;
        r->frame->count = 0;
        BY_TRY(chat_hide(r, r->frame, n->hidden));
        BY_TRY(chat_set(r, r->frame, chat_literal("loop"), self));
        BY_TRY(chat_assign(r, n->left, l->current));
        BY_TRY(chat_execute(r, n->body));
        const bool stop = r->jump == CHAT_BREAK;
        *whole = *whole || !r->jump;
        r->jump = CHAT_GO_ON;
        if (stop)
            return BY_OK;
    }
}

static by_status execute_for(chat_run *r, const chat_node *n)
{
    chat_frame *before = r->frame;
    chat_value over;
    bool whole = false;
    chat_loop *l = chat_alloc(&r->heap, 1, sizeof *l);
    if (!l)
        return base_error_status();
    BY_TRY(chat_evaluate(r, n->right, &over));
    r->at = n->right->at;
    *l = (chat_loop){.node = n, .index0 = -1, .length = -1};
    BY_TRY(chat_iterate(r, &over, &l->from));
    if ((n->test && !(l->test_frame = chat_push_frame(r, before, n->hidden))) ||
        !(r->frame = chat_push_frame(r, before, n->hidden)))
        return base_error_status();
    BY_TRY(execute_rounds(r, n, l, &whole));
    r->frame = before;
    return whole ? BY_OK : execute_else(r, n); /* Jinja2 also runs else if every round was cut short */
}

static by_status execute_with(chat_run *r, const chat_node *n)
{
    chat_frame *before = r->frame, *inner = chat_push_frame(r, before, n->hidden);
    chat_value v;
    if (!inner)
        return base_error_status();
    for (const chat_node *i = n->items; i; i = i->next) {
        BY_TRY(chat_evaluate(r, i->right, &v)); /* evaluated outside the new scope */
        r->frame = inner;
        BY_TRY(chat_assign(r, i->left, v));
        r->frame = before;
    }
    r->frame = inner;
    BY_TRY(chat_execute(r, n->body));
    r->frame = before;
    return BY_OK;
}

static by_status execute_set(chat_run *r, const chat_node *n)
{
    chat_value v;
    BY_TRY(chat_evaluate(r, n->right, &v));
    return chat_assign(r, n->left, v);
}

static by_status execute_one(chat_run *r, const chat_node *n)
{
    switch (n->kind) {
    case CHAT_NODE_OUTPUT:
        return execute_output(r, n);
    case CHAT_NODE_IF:
        return execute_if(r, n);
    case CHAT_NODE_FOR:
        return execute_for(r, n);
    case CHAT_NODE_SET:
        return execute_set(r, n);
    case CHAT_NODE_SET_BLOCK:
        return execute_set_block(r, n);
    case CHAT_NODE_MACRO:
        return execute_macro(r, n);
    case CHAT_NODE_CALL_BLOCK:
        return execute_call_block(r, n);
    case CHAT_NODE_FILTER_BLOCK:
        return execute_filter_block(r, n);
    case CHAT_NODE_WITH:
        return execute_with(r, n);
    case CHAT_NODE_GENERATION:
        return execute_generation(r, n);
    default:
        r->jump = n->kind == CHAT_NODE_BREAK ? CHAT_BREAK : CHAT_CONTINUE;
        return BY_OK;
    }
}

by_status chat_execute(chat_run *r, const chat_node *body)
{
    BY_TRY(chat_descend(r));
    for (const chat_node *n = body; n && !r->jump; n = n->next) {
        BY_TRY(chat_spend(r, 1));
        r->at = n->at;
        BY_TRY(execute_one(r, n));
    }
    r->depth--;
    return BY_OK;
}
