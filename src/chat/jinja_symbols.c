/* jinja_symbols.c - finds the names that a scope hides. Jinja2 decides at compile time which scope a name
 * belongs to. If a scope assigns to a name, outside of any if, before it reads the name, then the name
 * belongs to that scope from its start. Until the assignment it is undefined in that scope, including the
 * loops, macros and blocks before the assignment, even if a variable of the rendering or a function has the
 * same name. */
#include "chat/jinja_node.h"

/* Names used in a scope. */
typedef struct scope {
    const struct scope *parent;
    chat_heap *heap;
    chat_value *names;
    size_t count, capacity;
    const chat_name **hidden; /* where to add the next hidden name */
} scope;

static by_status visit_frame(const scope *parent, chat_heap *h, const chat_node *owner, chat_node *body,
                             const chat_name **hidden);

static bool mentions(const scope *s, const chat_value *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (chat_same_bytes(&s->names[i], name))
            return true;
    return false;
}

static bool is_known(const scope *s, const chat_value *name)
{
    for (; s; s = s->parent)
        if (mentions(s, name))
            return true;
    return false;
}

static by_status mention(scope *s, const chat_value *name)
{
    if (mentions(s, name))
        return BY_OK;
    if (s->count == s->capacity) {
        const size_t room = s->capacity ? s->capacity * 2 : 8;
        chat_value *names = chat_alloc(s->heap, room, sizeof *names);
        if (!names)
            return base_error_status();
        if (s->count)
            memcpy(names, s->names, s->count * sizeof *names);
        s->names = names;
        s->capacity = room;
    }
    s->names[s->count++] = *name;
    return BY_OK;
}

static by_status hide(scope *s, const chat_value *name)
{
    chat_name *n = chat_alloc(s->heap, 1, sizeof *n);
    if (!n)
        return base_error_status();
    n->name = *name;
    *s->hidden = n;
    s->hidden = &n->next;
    return BY_OK;
}

static by_status store(scope *s, const chat_value *name, bool always)
{
    if (always && !is_known(s, name))
        BY_TRY(hide(s, name));
    return mention(s, name);
}

/* ---- expressions ----------------------------------------------------------------------------------------- */

static by_status visit(scope *s, const chat_node *n)
{
    const chat_node *children[] = {n->left, n->right, n->test, n->kind == CHAT_NODE_SLICE ? n->other : NULL};
    if (n->kind == CHAT_NODE_NAME && !is_known(s, &n->name))
        BY_TRY(mention(s, &n->name));
    for (int i = 0; i < BY_COUNT(children); i++)
        if (children[i])
            BY_TRY(visit(s, children[i]));
    for (const chat_node *i = n->items; i; i = i->next)
        BY_TRY(visit(s, i));
    return BY_OK;
}

/* Names of an assignment target. An attribute of a namespace only reads the namespace. */
static by_status visit_target(scope *s, const chat_node *n, bool always)
{
    if (n->kind == CHAT_NODE_NAME)
        return store(s, &n->name, always);
    if (n->kind == CHAT_NODE_ATTRIBUTE)
        return visit(s, n->left);
    for (const chat_node *i = n->items; i; i = i->next)
        BY_TRY(visit_target(s, i, always));
    return BY_OK;
}

/* ---- statements ------------------------------------------------------------------------------------------ */

/* Records the names that a statement uses in its own scope. Inner scopes are visited once this one is
 * complete. */
static by_status visit_statement(scope *s, const chat_node *n, bool always)
{
    switch (n->kind) {
    case CHAT_NODE_IF:
        BY_TRY(visit(s, n->test));
        for (const chat_node *i = n->body; i; i = i->next)
            BY_TRY(visit_statement(s, i, false));
        for (const chat_node *i = n->other; i; i = i->next)
            BY_TRY(visit_statement(s, i, false));
        return BY_OK;
    case CHAT_NODE_FOR:
        return visit(s, n->right);
    case CHAT_NODE_SET:
        BY_TRY(visit(s, n->right));
        return visit_target(s, n->left, always);
    case CHAT_NODE_SET_BLOCK:
        return visit_target(s, n->left, always);
    case CHAT_NODE_MACRO:
        return store(s, &n->name, always);
    case CHAT_NODE_WITH:
        for (const chat_node *i = n->items; i; i = i->next)
            BY_TRY(visit(s, i->right));
        return BY_OK;
    case CHAT_NODE_FILTER_BLOCK:
        return visit(s, n->right);
    case CHAT_NODE_OUTPUT:
    case CHAT_NODE_CALL_BLOCK:
        return n->left ? visit(s, n->left) : BY_OK;
    default:
        return BY_OK;
    }
}

/* Visits the inner scopes. */
static by_status visit_inner(const scope *s, chat_node *body)
{
    for (chat_node *n = body; n; n = n->next) {
        if (n->kind == CHAT_NODE_IF) {
            BY_TRY(visit_inner(s, n->body));
            BY_TRY(visit_inner(s, n->other));
        } else if (n->body) {
            BY_TRY(visit_frame(s, s->heap, n, n->body, &n->hidden));
        }
        if (n->kind == CHAT_NODE_FOR && n->other)
            BY_TRY(visit_frame(s, s->heap, NULL, n->other, &n->hidden_else));
    }
    return BY_OK;
}

/* Parameters and targets belong to the scope of the body from the start. */
static by_status visit_owner(scope *s, const chat_node *owner)
{
    static const char *const special[] = {"caller", "kwargs", "varargs"};
    const chat_value loop = chat_literal("loop");
    if (owner->kind == CHAT_NODE_FOR) {
        BY_TRY(mention(s, &loop));
        return visit_target(s, owner->left, false);
    }
    if (owner->kind == CHAT_NODE_WITH) {
        for (const chat_node *i = owner->items; i; i = i->next)
            BY_TRY(visit_target(s, i->left, false));
        return BY_OK;
    }
    for (int i = 0; i < 3; i++) {
        const chat_value name = chat_literal(special[i]);
        if (owner->flags & 1 << i)
            BY_TRY(mention(s, &name));
    }
    for (const chat_node *p = owner->items; p; p = p->next)
        if (p->kind == CHAT_NODE_PARAMETER)
            BY_TRY(mention(s, &p->name));
    for (const chat_node *p = owner->items; p; p = p->next)
        if (p->kind == CHAT_NODE_PARAMETER && p->right)
            BY_TRY(visit(s, p->right));
    return BY_OK;
}

static by_status visit_frame(const scope *parent, chat_heap *h, const chat_node *owner, chat_node *body,
                             const chat_name **hidden)
{
    scope s = {.parent = parent, .heap = h, .hidden = hidden};
    if (owner)
        BY_TRY(visit_owner(&s, owner));
    for (const chat_node *n = body; n; n = n->next)
        BY_TRY(visit_statement(&s, n, true));
    return visit_inner(&s, body);
}

by_status chat_find_hidden(chat_tree *t)
{
    return visit_frame(NULL, &t->heap, NULL, t->body, &t->hidden);
}
