/* jinja_evaluate.c - evaluates expressions. */
#include "chat/jinja_run.h"

enum { DEEPEST = 3000 }; /* maximum nesting of evaluations, each of which takes some hundred bytes of stack */

by_status chat_fail(const chat_run *r, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    base_vformat(text, sizeof text, fmt, args);
    va_end(args);
    return chat_fail_at(r->tree, r->at, BY_ERR_ARGUMENT, "%s", text);
}

by_status chat_fail_undefined(const chat_run *r, const chat_value *v)
{
    const int size = (int)BY_MIN(v->size, 60);
    if (v->parent == CHAT_MISSING)
        return chat_fail(r, "an undefined value is used: %.*s", size, v->text);
    if (v->parent == CHAT_UNDEFINED)
        return chat_fail(r, "'%.*s' is undefined", size, v->text);
    const chat_value parent = {.type = v->parent};
    return chat_fail(r, "'%s object' has no attribute '%.*s'", chat_type_name(&parent), size, v->text);
}

by_status chat_spend(chat_run *r, size_t work)
{
    if ((int64_t)work < r->steps) {
        r->steps -= (int64_t)work;
        return BY_OK;
    }
    return chat_fail_at(r->tree, r->at, BY_ERR_FORMAT, "the template takes too many steps");
}

by_status chat_descend(chat_run *r)
{
    return ++r->depth > DEEPEST ? chat_fail(r, "the template nests too deeply") : BY_OK;
}

/* ---- variables -------------------------------------------------------------------------------------- */

static chat_value *find_in(const chat_frame *f, const chat_value *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (chat_same_bytes(&f->list[i].name, name))
            return &f->list[i].value;
    return NULL;
}

by_status chat_set(chat_run *r, chat_frame *f, chat_value name, chat_value v)
{
    chat_value *there = find_in(f, &name);
    if (there) {
        *there = v;
        return BY_OK;
    }
    if (f->count == f->capacity) {
        const size_t room = f->capacity ? f->capacity * 2 : 4;
        chat_variable *list = chat_alloc(&r->heap, room, sizeof *list);
        if (!list)
            return base_error_status();
        if (f->count)
            memcpy(list, f->list, f->count * sizeof *list);
        f->list = list;
        f->capacity = room;
    }
    f->list[f->count++] = (chat_variable){name, v};
    return BY_OK;
}

by_status chat_hide(chat_run *r, chat_frame *f, const chat_name *hidden)
{
    for (; hidden; hidden = hidden->next)
        BY_TRY(chat_set(r, f, hidden->name, (chat_value){.type = CHAT_MISSING}));
    return BY_OK;
}

chat_frame *chat_push_frame(chat_run *r, chat_frame *parent, const chat_name *hidden)
{
    chat_frame *f = chat_alloc(&r->heap, 1, sizeof *f);
    if (!f || chat_hide(r, f, hidden) != BY_OK)
        return NULL;
    f->parent = parent;
    return f;
}

chat_value chat_lookup(const chat_run *r, const chat_value *name)
{
    for (const chat_frame *f = r->frame; f; f = f->parent) {
        const chat_value *v = find_in(f, name);
        if (v && v->type == CHAT_MISSING)
            return chat_undefined(CHAT_UNDEFINED, name->text, name->size);
        if (v)
            return *v;
    }
    const chat_function *function = chat_find_function(name);
    if (function)
        return (chat_value){.type = CHAT_FUNCTION, .function = function};
    return chat_undefined(CHAT_UNDEFINED, name->text, name->size);
}

/* ---- containers ---------------------------------------------------------------------------------------- */

static by_status evaluate_items(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value v;
    BY_TRY(chat_new_list(&r->heap, n->kind == CHAT_NODE_TUPLE ? CHAT_TUPLE : CHAT_LIST, 0, out));
    for (const chat_node *i = n->items; i; i = i->next) {
        BY_TRY(chat_evaluate(r, i, &v));
        BY_TRY(chat_push(&r->heap, out->list, v));
    }
    return BY_OK;
}

static by_status evaluate_dict(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value key, v;
    BY_TRY(chat_new_dict(&r->heap, CHAT_DICT, out));
    for (const chat_node *i = n->items; i; i = i->next->next) {
        BY_TRY(chat_evaluate(r, i, &key));
        BY_TRY(chat_evaluate(r, i->next, &v));
        r->at = i->at;
        if (!chat_is_hashable(&key))
            return chat_fail(r, "unhashable type: '%s'", chat_type_name(&key));
        BY_TRY(chat_put(&r->heap, out->dict, key, v));
    }
    return BY_OK;
}

static by_status evaluate_slice(chat_run *r, const chat_node *n, chat_value *out)
{
    const chat_node *nodes[3] = {n->right, n->test, n->other};
    chat_value v, bounds[3];
    BY_TRY(chat_evaluate(r, n->left, &v));
    for (int i = 0; i < 3; i++) {
        bounds[i] = chat_none();
        if (nodes[i])
            BY_TRY(chat_evaluate(r, nodes[i], &bounds[i]));
    }
    r->at = n->at;
    return chat_slice(r, &v, bounds, out);
}

/* ---- calls, filters, tests ------------------------------------------------------------------------------- */

static by_status add_positional(chat_run *r, const chat_value *from, chat_args *out, size_t *room)
{
    chat_iterator i;
    chat_value v;
    BY_TRY(chat_iterate(r, from, &i));
    for (bool more;;) {
        BY_TRY(chat_next(r, &i, &v, &more));
        if (!more)
            return BY_OK;
        if (out->count == *room) {
            chat_value *list = chat_alloc(&r->heap, *room * 2 + 4, sizeof *list);
            if (!list)
                return base_error_status();
            if (out->count)
                memcpy(list, out->list, out->count * sizeof *list);
            out->list = list;
            *room = *room * 2 + 4;
        }
        out->list[out->count++] = v;
    }
}

static by_status add_named(chat_run *r, const chat_value *from, chat_args *out)
{
    if (from->type != CHAT_DICT)
        return chat_fail(r, "the argument after ** must be a mapping, not '%s'", chat_type_name(from));
    chat_pair *named = chat_alloc(&r->heap, out->named_count + from->dict->count + 1, sizeof *named);
    if (!named)
        return base_error_status();
    if (out->named_count)
        memcpy(named, out->named, out->named_count * sizeof *named);
    out->named = named;
    for (size_t i = 0; i < from->dict->count; i++) {
        if (from->dict->pairs[i].key.type != CHAT_STRING)
            return chat_fail(r, "keywords must be strings");
        named[out->named_count++] = from->dict->pairs[i];
    }
    return BY_OK;
}

by_status chat_evaluate_args(chat_run *r, const chat_node *arguments, chat_args *out)
{
    size_t count = 1, room;
    chat_value v;
    for (const chat_node *n = arguments; n; n = n->next)
        count++;
    *out = (chat_args){.list = chat_alloc(&r->heap, count, sizeof *out->list),
                       .named = chat_alloc(&r->heap, count, sizeof *out->named)};
    if (!out->list || !out->named)
        return base_error_status();
    room = count;
    for (const chat_node *n = arguments; n; n = n->next) {
        BY_TRY(chat_evaluate(r, n->left, &v));
        r->at = n->at;
        if (n->op == '*') {
            BY_TRY(add_positional(r, &v, out, &room));
        } else if (n->op) {
            BY_TRY(add_named(r, &v, out)); /* the last argument */
        } else if (n->name.type == CHAT_STRING) {
            out->named[out->named_count++] = (chat_pair){n->name, v};
        } else {
            out->list[out->count++] = v;
        }
    }
    return BY_OK;
}

static by_status evaluate_call(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value f;
    chat_args a;
    BY_TRY(chat_evaluate(r, n->left, &f));
    BY_TRY(chat_evaluate_args(r, n->items, &a));
    r->at = n->at;
    return chat_call(r, &f, &a, out);
}

by_status chat_evaluate_filters(chat_run *r, const chat_node *chain, const chat_value *text, chat_value *out)
{
    chat_value v = *text;
    chat_args a;
    if (chain->left)
        BY_TRY(chat_evaluate_filters(r, chain->left, text, &v));
    BY_TRY(chat_evaluate_args(r, chain->items, &a));
    r->at = chain->at;
    return chat_filter(r, &chain->name, &v, &a, out);
}

static by_status evaluate_filter(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value v;
    chat_args a;
    BY_TRY(chat_evaluate(r, n->left, &v));
    BY_TRY(chat_evaluate_args(r, n->items, &a));
    r->at = n->at;
    return chat_filter(r, &n->name, &v, &a, out);
}

static by_status evaluate_test(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value v;
    chat_args a;
    bool result;
    BY_TRY(chat_evaluate(r, n->left, &v));
    BY_TRY(chat_evaluate_args(r, n->items, &a));
    r->at = n->at;
    BY_TRY(chat_test(r, &n->name, &v, &a, &result));
    *out = chat_bool(result);
    return BY_OK;
}

/* ---- operators --------------------------------------------------------------------------------------------- */

static by_status evaluate_binary(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value a, b;
    BY_TRY(chat_evaluate(r, n->left, &a));
    BY_TRY(chat_evaluate(r, n->right, &b));
    r->at = n->at;
    return chat_binary(r, n->op, &a, &b, out);
}

static by_status evaluate_concat(chat_run *r, const chat_node *n, chat_value *out)
{
    const size_t mark = r->out.size;
    chat_value all;
    BY_TRY(evaluate_items(r, n, &all));
    r->at = n->at;
    for (size_t i = 0; i < all.list->count; i++)
        BY_TRY(chat_put_text(r, &all.list->items[i]));
    return chat_take_text(r, mark, out);
}

static by_status compare_once(chat_run *r, const chat_node *n, const chat_value *a, const chat_value *b,
                              bool *out)
{
    r->at = n->at;
    switch (n->op) {
    case 'i':
    case 'n':
        BY_TRY(chat_contains(r, a, b, out));
        *out = *out == (n->op == 'i');
        return BY_OK;
    case CHAT_TOKEN_EQUAL:
    case CHAT_TOKEN_DIFFERENT:
        BY_TRY(chat_equal(r, a, b, out));
        *out = *out == (n->op == CHAT_TOKEN_EQUAL);
        return BY_OK;
    default:
        return chat_compare(r, n->op, a, b, out);
    }
}

static by_status evaluate_compare(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value a, b;
    bool result = true;
    BY_TRY(chat_evaluate(r, n->left, &a));
    for (const chat_node *i = n->items; i && result; i = i->next, a = b) {
        BY_TRY(chat_evaluate(r, i->right, &b));
        BY_TRY(compare_once(r, i, &a, &b, &result));
    }
    *out = chat_bool(result);
    return BY_OK;
}

static by_status evaluate_condition(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value test;
    BY_TRY(chat_evaluate(r, n->test, &test));
    if (chat_truth(&test))
        return chat_evaluate(r, n->left, out);
    if (n->right)
        return chat_evaluate(r, n->right, out);
    *out = chat_absent("an if-expression without else is false");
    return BY_OK;
}

static by_status evaluate_logic(chat_run *r, const chat_node *n, chat_value *out)
{
    BY_TRY(chat_evaluate(r, n->left, out));
    return chat_truth(out) == (n->kind == CHAT_NODE_AND) ? chat_evaluate(r, n->right, out) : BY_OK;
}

static by_status evaluate_access(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value v, key;
    BY_TRY(chat_evaluate(r, n->left, &v));
    if (n->kind == CHAT_NODE_ITEM)
        BY_TRY(chat_evaluate(r, n->right, &key));
    r->at = n->at;
    return n->kind == CHAT_NODE_ITEM ? chat_item(r, &v, &key, out) : chat_attribute(r, &v, &n->name, out);
}

static by_status evaluate_unary(chat_run *r, const chat_node *n, chat_value *out)
{
    chat_value v;
    BY_TRY(chat_evaluate(r, n->right, &v));
    r->at = n->at;
    if (n->kind == CHAT_NODE_UNARY)
        return chat_unary(r, n->op, &v, out);
    *out = chat_bool(!chat_truth(&v));
    return BY_OK;
}

static by_status evaluate_node(chat_run *r, const chat_node *n, chat_value *out)
{
    switch (n->kind) {
    case CHAT_NODE_CONST:
        *out = n->value;
        return BY_OK;
    case CHAT_NODE_NAME:
        *out = chat_lookup(r, &n->name);
        return BY_OK;
    case CHAT_NODE_TUPLE:
    case CHAT_NODE_LIST:
        return evaluate_items(r, n, out);
    case CHAT_NODE_DICT:
        return evaluate_dict(r, n, out);
    case CHAT_NODE_ATTRIBUTE:
    case CHAT_NODE_ITEM:
        return evaluate_access(r, n, out);
    case CHAT_NODE_SLICE:
        return evaluate_slice(r, n, out);
    case CHAT_NODE_CALL:
        return evaluate_call(r, n, out);
    case CHAT_NODE_FILTER:
        return evaluate_filter(r, n, out);
    case CHAT_NODE_TEST:
        return evaluate_test(r, n, out);
    case CHAT_NODE_BINARY:
        return evaluate_binary(r, n, out);
    case CHAT_NODE_CONCAT:
        return evaluate_concat(r, n, out);
    case CHAT_NODE_UNARY:
    case CHAT_NODE_NOT:
        return evaluate_unary(r, n, out);
    case CHAT_NODE_AND:
    case CHAT_NODE_OR:
        return evaluate_logic(r, n, out);
    case CHAT_NODE_COMPARE:
        return evaluate_compare(r, n, out);
    default:
        return evaluate_condition(r, n, out);
    }
}

by_status chat_evaluate(chat_run *r, const chat_node *n, chat_value *out)
{
    BY_TRY(chat_spend(r, 1));
    r->at = n->at;
    BY_TRY(chat_descend(r));
    BY_TRY(evaluate_node(r, n, out));
    r->depth--;
    return BY_OK;
}
