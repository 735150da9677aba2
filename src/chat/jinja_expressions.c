/* jinja_expressions.c - parses expressions by recursive descent with one function per level of precedence, as
 * in Jinja2's parser. */
#include "chat/jinja_node.h"

static by_status parse_or(chat_parser *p, chat_node **out);
static by_status parse_unary(chat_parser *p, bool filters, chat_node **out);
static by_status parse_primary(chat_parser *p, bool attributes, chat_node **out);

/* ---- helpers ------------------------------------------------------------------------------------ */

static int height_of(const chat_node *n)
{
    return n ? n->height : 0;
}

/* Sets the height of an expression whose children are complete. */
static by_status close_node(chat_parser *p, chat_node *n)
{
    int height = BY_MAX(BY_MAX(height_of(n->left), height_of(n->right)),
                        BY_MAX(height_of(n->test), height_of(n->other)));
    for (const chat_node *i = n->items; i; i = i->next)
        height = BY_MAX(height, height_of(i));
    if (height >= 10 * CHAT_PARSE_DEEPEST)
        return chat_fail_at(p->tree, n->at, BY_ERR_FORMAT, "the expression is too long");
    n->height = (uint16_t)(height + 1);
    return BY_OK;
}

/* Combines *left and another operand in a new node, which becomes *left. */
static by_status join(chat_parser *p, chat_node_kind kind, int op, uint32_t at, chat_node **left,
                      chat_node *right)
{
    chat_node *n = chat_new_node(p, kind, at);
    if (!n)
        return base_error_status();
    n->op = (uint8_t)op;
    n->left = *left;
    n->right = right;
    *left = n;
    return close_node(p, n);
}

static by_status enter(chat_parser *p)
{
    if (++p->depth > CHAT_PARSE_DEEPEST)
        return chat_fail_at(p->tree, chat_peek(p)->at, BY_ERR_FORMAT, "expressions nest too deeply");
    return BY_OK;
}

/* ---- operators, loosest first ------------------------------------------------------------------- */

by_status chat_parse_expression(chat_parser *p, chat_node **out)
{
    BY_TRY(enter(p));
    BY_TRY(parse_or(p, out));
    while (chat_at_name(p, "if")) {
        chat_node *n = chat_new_node(p, CHAT_NODE_CONDITION, chat_peek(p)->at);
        if (!n)
            return base_error_status();
        chat_skip(p);
        n->left = *out;
        BY_TRY(parse_or(p, &n->test));
        if (chat_take_name(p, "else"))
            BY_TRY(chat_parse_expression(p, &n->right));
        BY_TRY(close_node(p, n));
        *out = n;
    }
    p->depth--;
    return BY_OK;
}

static by_status parse_compare(chat_parser *p, chat_node **out);

static by_status parse_not(chat_parser *p, chat_node **out)
{
    const uint32_t at = chat_peek(p)->at;
    chat_node *none = NULL;
    if (!chat_take_name(p, "not"))
        return parse_compare(p, out);
    BY_TRY(enter(p));
    BY_TRY(parse_not(p, out));
    p->depth--;
    BY_TRY(join(p, CHAT_NODE_NOT, 0, at, &none, *out));
    *out = none;
    return BY_OK;
}

static by_status parse_and(chat_parser *p, chat_node **out)
{
    chat_node *right;
    BY_TRY(parse_not(p, out));
    while (chat_at_name(p, "and")) {
        const uint32_t at = chat_peek(p)->at;
        chat_skip(p);
        BY_TRY(parse_not(p, &right));
        BY_TRY(join(p, CHAT_NODE_AND, 0, at, out, right));
    }
    return BY_OK;
}

static by_status parse_or(chat_parser *p, chat_node **out)
{
    chat_node *right;
    BY_TRY(parse_and(p, out));
    while (chat_at_name(p, "or")) {
        const uint32_t at = chat_peek(p)->at;
        chat_skip(p);
        BY_TRY(parse_and(p, &right));
        BY_TRY(join(p, CHAT_NODE_OR, 0, at, out, right));
    }
    return BY_OK;
}

static by_status parse_power(chat_parser *p, chat_node **out)
{
    chat_node *right;
    BY_TRY(parse_unary(p, true, out));
    while (chat_at(p, CHAT_TOKEN_POWER)) {
        const uint32_t at = chat_peek(p)->at;
        chat_skip(p);
        BY_TRY(parse_unary(p, true, &right));
        BY_TRY(join(p, CHAT_NODE_BINARY, CHAT_TOKEN_POWER, at, out, right));
    }
    return BY_OK;
}

static by_status parse_product(chat_parser *p, chat_node **out)
{
    chat_node *right;
    BY_TRY(parse_power(p, out));
    while (chat_at(p, '*') || chat_at(p, '/') || chat_at(p, '%') || chat_at(p, CHAT_TOKEN_FLOOR)) {
        const chat_token *t = chat_peek(p);
        chat_skip(p);
        BY_TRY(parse_power(p, &right));
        BY_TRY(join(p, CHAT_NODE_BINARY, t->type, t->at, out, right));
    }
    return BY_OK;
}

static by_status parse_concat(chat_parser *p, chat_node **out)
{
    BY_TRY(parse_product(p, out));
    if (!chat_at(p, '~'))
        return BY_OK;
    chat_node *n = chat_new_node(p, CHAT_NODE_CONCAT, chat_peek(p)->at), *last = *out;
    if (!n)
        return base_error_status();
    n->items = last;
    while (chat_take(p, '~')) {
        BY_TRY(parse_product(p, &last->next));
        last = last->next;
    }
    *out = n;
    return close_node(p, n);
}

static by_status parse_sum(chat_parser *p, chat_node **out)
{
    chat_node *right;
    BY_TRY(parse_concat(p, out));
    while (chat_at(p, '+') || chat_at(p, '-')) {
        const chat_token *t = chat_peek(p);
        chat_skip(p);
        BY_TRY(parse_concat(p, &right));
        BY_TRY(join(p, CHAT_NODE_BINARY, t->type, t->at, out, right));
    }
    return BY_OK;
}

/* Takes a comparison operator and returns its token type, 'i' for in, 'n' for not in; 0: none. */
static int take_comparison(chat_parser *p)
{
    const int type = chat_peek(p)->type;
    if (type == '<' || type == '>' || type == CHAT_TOKEN_EQUAL || type == CHAT_TOKEN_DIFFERENT ||
        type == CHAT_TOKEN_LESS_EQUAL || type == CHAT_TOKEN_GREATER_EQUAL) {
        chat_skip(p);
        return type;
    }
    if (chat_take_name(p, "in"))
        return 'i';
    const chat_token *next = &p->tokens[p->at + (type != CHAT_TOKEN_END)];
    if (!chat_at_name(p, "not") || next->type != CHAT_TOKEN_NAME || !chat_is_text(&next->value, "in"))
        return 0;
    p->at += 2;
    return 'n';
}

static by_status parse_compare(chat_parser *p, chat_node **out)
{
    chat_node *all = NULL, **last = NULL;
    BY_TRY(parse_sum(p, out));
    for (;;) {
        const uint32_t at = chat_peek(p)->at;
        const int op = take_comparison(p);
        if (!op)
            break;
        if (!all) {
            if (!(all = chat_new_node(p, CHAT_NODE_COMPARE, at)))
                return base_error_status();
            all->left = *out;
            last = &all->items;
        }
        chat_node *operand = chat_new_node(p, CHAT_NODE_OPERAND, at);
        if (!operand)
            return base_error_status();
        operand->op = (uint8_t)op;
        BY_TRY(parse_sum(p, &operand->right));
        BY_TRY(close_node(p, operand));
        *last = operand;
        last = &operand->next;
    }
    if (!all)
        return BY_OK;
    *out = all;
    return close_node(p, all);
}

/* ---- calls, attributes, filters, tests ---------------------------------------------------------- */

static by_status parse_argument(chat_parser *p, bool named, chat_node **out)
{
    chat_node *n = chat_new_node(p, CHAT_NODE_ARGUMENT, chat_peek(p)->at);
    if (!n)
        return base_error_status();
    if (chat_at(p, '*') || chat_at(p, CHAT_TOKEN_POWER)) {
        n->op = chat_peek(p)->type;
        chat_skip(p);
    } else if (chat_at(p, CHAT_TOKEN_NAME) && p->tokens[p->at + 1].type == '=') {
        n->name = chat_peek(p)->value;
        p->at += 2;
    } else if (named) {
        return chat_unexpected(p, "a keyword argument");
    }
    BY_TRY(chat_parse_expression(p, &n->left));
    *out = n;
    return close_node(p, n);
}

static by_status parse_arguments(chat_parser *p, chat_node **out)
{
    bool named = false;
    BY_TRY(chat_expect(p, '(', "("));
    while (!chat_at(p, ')')) {
        BY_TRY(parse_argument(p, named, out));
        const chat_node *last = *out;
        named = named || last->op || last->name.type == CHAT_STRING;
        out = &(*out)->next;
        if (!chat_take(p, ',') || last->op == CHAT_TOKEN_POWER) /* a ** argument must be the last */
            break;
    }
    return chat_expect(p, ')', ")");
}

static by_status parse_call(chat_parser *p, chat_node **node)
{
    const uint32_t at = chat_peek(p)->at;
    BY_TRY(join(p, CHAT_NODE_CALL, 0, at, node, NULL));
    BY_TRY(parse_arguments(p, &(*node)->items));
    return close_node(p, *node);
}

/* A bound of a slice, which may be absent. */
static by_status parse_bound(chat_parser *p, chat_node **out)
{
    *out = NULL;
    if (chat_at(p, ':') || chat_at(p, ']'))
        return BY_OK;
    return chat_parse_expression(p, out);
}

static by_status parse_subscript(chat_parser *p, chat_node **node)
{
    chat_node *index, *all;
    BY_TRY(join(p, CHAT_NODE_ITEM, 0, chat_peek(p)->at, node, NULL));
    all = *node;
    chat_skip(p);
    if (chat_at(p, ']'))
        return chat_unexpected(p, "an index");
    BY_TRY(parse_bound(p, &index));
    all->right = index;
    if (chat_take(p, ':')) {
        all->kind = CHAT_NODE_SLICE;
        BY_TRY(parse_bound(p, &all->test));
        if (chat_take(p, ':'))
            BY_TRY(parse_bound(p, &all->other));
    }
    if (chat_at(p, ','))
        return chat_fail_at(p->tree, chat_peek(p)->at, BY_ERR_UNSUPPORTED,
                            "several indices are not supported");
    BY_TRY(chat_expect(p, ']', "]"));
    return close_node(p, all);
}

static by_status parse_attribute(chat_parser *p, chat_node **node)
{
    const uint32_t at = chat_peek(p)->at;
    chat_skip(p);
    const chat_token *t = chat_peek(p);
    if (t->type == CHAT_TOKEN_NAME) {
        BY_TRY(join(p, CHAT_NODE_ATTRIBUTE, 0, at, node, NULL));
        (*node)->name = t->value;
    } else if (t->type == CHAT_TOKEN_NUMBER && t->value.type == CHAT_INT) {
        chat_node *index = chat_new_node(p, CHAT_NODE_CONST, t->at);
        if (!index)
            return base_error_status();
        index->value = t->value;
        BY_TRY(join(p, CHAT_NODE_ITEM, 0, at, node, index));
    } else {
        return chat_unexpected(p, "a name or number after the dot");
    }
    chat_skip(p);
    return BY_OK;
}

static by_status parse_postfix(chat_parser *p, chat_node **node)
{
    for (;;) {
        if (chat_at(p, '.'))
            BY_TRY(parse_attribute(p, node));
        else if (chat_at(p, '['))
            BY_TRY(parse_subscript(p, node));
        else if (chat_at(p, '('))
            BY_TRY(parse_call(p, node));
        else
            return BY_OK;
    }
}

/* The name of a filter or test. Dotted names are not supported. */
static by_status take_function_name(chat_parser *p, chat_node *n)
{
    n->name = chat_peek(p)->value;
    return chat_expect(p, CHAT_TOKEN_NAME, "a name");
}

by_status chat_parse_filters(chat_parser *p, chat_node *left, bool inline_first, chat_node **out)
{
    while (inline_first || chat_take(p, '|')) {
        inline_first = false;
        BY_TRY(join(p, CHAT_NODE_FILTER, 0, chat_peek(p)->at, &left, NULL));
        BY_TRY(take_function_name(p, left));
        if (chat_at(p, '('))
            BY_TRY(parse_arguments(p, &left->items));
        BY_TRY(close_node(p, left));
    }
    *out = left;
    return BY_OK;
}

/* An argument without parentheses: x is divisibleby 3. */
static bool at_bare_argument(const chat_parser *p)
{
    const int type = chat_peek(p)->type;
    if (type == CHAT_TOKEN_NAME)
        return !chat_at_name(p, "else") && !chat_at_name(p, "or") && !chat_at_name(p, "and");
    return type == CHAT_TOKEN_STRING || type == CHAT_TOKEN_NUMBER || type == '[' || type == '{';
}

static by_status parse_test(chat_parser *p, chat_node **node)
{
    const uint32_t at = chat_peek(p)->at;
    chat_node *none = NULL;
    chat_skip(p);
    const bool negated = chat_take_name(p, "not");
    BY_TRY(join(p, CHAT_NODE_TEST, 0, at, node, NULL));
    chat_node *test = *node;
    BY_TRY(take_function_name(p, test));
    if (chat_at(p, '(')) {
        BY_TRY(parse_arguments(p, &test->items));
    } else if (at_bare_argument(p)) {
        if (chat_at_name(p, "is"))
            return chat_fail_at(p->tree, chat_peek(p)->at, BY_ERR_FORMAT, "tests cannot be chained with is");
        if (!(test->items = chat_new_node(p, CHAT_NODE_ARGUMENT, chat_peek(p)->at)))
            return base_error_status();
        BY_TRY(parse_primary(p, false, &test->items->left));
        BY_TRY(parse_postfix(p, &test->items->left));
        BY_TRY(close_node(p, test->items));
    }
    BY_TRY(close_node(p, test));
    if (!negated)
        return BY_OK;
    BY_TRY(join(p, CHAT_NODE_NOT, 0, at, &none, test));
    *node = none;
    return BY_OK;
}

static by_status parse_filter_expression(chat_parser *p, chat_node **node)
{
    for (;;) {
        if (chat_at(p, '|'))
            BY_TRY(chat_parse_filters(p, *node, false, node));
        else if (chat_at_name(p, "is"))
            BY_TRY(parse_test(p, node));
        else if (chat_at(p, '('))
            BY_TRY(parse_call(p, node));
        else
            return BY_OK;
    }
}

static by_status parse_unary(chat_parser *p, bool filters, chat_node **out)
{
    const chat_token *t = chat_peek(p);
    if (t->type == '-' || t->type == '+') {
        chat_node *none = NULL, *right;
        BY_TRY(enter(p));
        chat_skip(p);
        BY_TRY(parse_unary(p, false, &right));
        p->depth--;
        BY_TRY(join(p, CHAT_NODE_UNARY, t->type, t->at, &none, right));
        *out = none;
    } else {
        BY_TRY(parse_primary(p, false, out));
    }
    BY_TRY(parse_postfix(p, out));
    return filters ? parse_filter_expression(p, out) : BY_OK;
}

/* ---- primaries ---------------------------------------------------------------------------------- */

static by_status parse_items(chat_parser *p, int close, chat_node *n)
{
    chat_node **last = &n->items;
    chat_skip(p);
    while (!chat_at(p, close)) {
        BY_TRY(chat_parse_expression(p, last));
        last = &(*last)->next;
        if (close == '}') {
            BY_TRY(chat_expect(p, ':', ":"));
            BY_TRY(chat_parse_expression(p, last));
            last = &(*last)->next;
        }
        if (!chat_take(p, ','))
            break;
    }
    BY_TRY(chat_expect(p, close, close == '}' ? "}" : "]"));
    return close_node(p, n);
}

/* Adjacent string literals are concatenated. */
static by_status parse_string(chat_parser *p, chat_node *n)
{
    size_t size = 0, count = 0;
    for (; p->tokens[p->at + count].type == CHAT_TOKEN_STRING; count++)
        size += p->tokens[p->at + count].value.size;
    n->value = chat_peek(p)->value;
    if (count > 1) {
        char *all = chat_alloc(&p->tree->heap, size + 1, 1), *to = all;
        if (!all)
            return base_error_status();
        for (size_t i = 0; i < count; i++) {
            const chat_value *v = &p->tokens[p->at + i].value;
            memcpy(to, v->text, v->size);
            to += v->size;
        }
        n->value = chat_bytes(all, size);
    }
    p->at += count;
    return BY_OK;
}

/* Records that the enclosing macros read one of their special variables. */
static void note_use(chat_parser *p, const chat_value *name)
{
    const int flag = chat_is_text(name, "caller")    ? CHAT_USES_CALLER
                     : chat_is_text(name, "kwargs")  ? CHAT_USES_KWARGS
                     : chat_is_text(name, "varargs") ? CHAT_USES_VARARGS
                                                     : 0;
    for (int i = 0; flag && i < p->macros; i++)
        *p->uses[i] |= (uint8_t)flag;
}

static by_status parse_name(chat_parser *p, bool attributes, chat_node *n)
{
    const chat_value name = chat_peek(p)->value;
    chat_skip(p);
    n->kind = CHAT_NODE_CONST;
    if (chat_is_text(&name, "true") || chat_is_text(&name, "True")) {
        n->value = chat_bool(true);
    } else if (chat_is_text(&name, "false") || chat_is_text(&name, "False")) {
        n->value = chat_bool(false);
    } else if (chat_is_text(&name, "none") || chat_is_text(&name, "None")) {
        n->value = chat_none();
    } else {
        n->kind = CHAT_NODE_NAME;
        n->name = name;
        note_use(p, &name);
    }
    if (n->kind != CHAT_NODE_NAME || !attributes || !chat_take(p, '.'))
        return BY_OK;
    chat_node *left = chat_new_node(p, CHAT_NODE_NAME, n->at);
    if (!left)
        return base_error_status();
    left->name = name;
    n->kind = CHAT_NODE_ATTRIBUTE;
    n->left = left;
    n->name = chat_peek(p)->value;
    return chat_expect(p, CHAT_TOKEN_NAME, "an attribute");
}

static by_status parse_primary(chat_parser *p, bool attributes, chat_node **out)
{
    const chat_token *t = chat_peek(p);
    chat_node *n = chat_new_node(p, CHAT_NODE_CONST, t->at);
    if (!n)
        return base_error_status();
    n->height = 1;
    *out = n;
    switch (t->type) {
    case CHAT_TOKEN_NAME:
        return parse_name(p, attributes, n);
    case CHAT_TOKEN_STRING:
        return parse_string(p, n);
    case CHAT_TOKEN_NUMBER:
        n->value = t->value;
        chat_skip(p);
        return BY_OK;
    case '(':
        chat_skip(p);
        BY_TRY(chat_parse_tuple(p, CHAT_TUPLE_PARENTHESES, NULL, out));
        return chat_expect(p, ')', ")");
    case '[':
        n->kind = CHAT_NODE_LIST;
        return parse_items(p, ']', n);
    case '{':
        n->kind = CHAT_NODE_DICT;
        return parse_items(p, '}', n);
    default:
        return chat_unexpected(p, "an expression");
    }
}

/* ---- tuples ------------------------------------------------------------------------- */

static bool at_tuple_end(const chat_parser *p, const char *end)
{
    return chat_at(p, CHAT_TOKEN_OUTPUT_END) || chat_at(p, CHAT_TOKEN_BLOCK_END) || chat_at(p, ')') ||
           (end && chat_at_name(p, end));
}

by_status chat_parse_tuple(chat_parser *p, chat_tuple_mode mode, const char *end, chat_node **out)
{
    chat_node *first = NULL, **last = &first, *n;
    const uint32_t at = chat_peek(p)->at;
    bool comma = false;
    while (!at_tuple_end(p, end)) {
        BY_TRY(mode == CHAT_TUPLE_TARGET  ? parse_primary(p, true, last)
               : mode == CHAT_TUPLE_PLAIN ? parse_or(p, last)
                                          : chat_parse_expression(p, last));
        last = &(*last)->next;
        if (!chat_take(p, ','))
            break;
        comma = true;
    }
    if (!comma && first) {
        *out = first;
        return BY_OK;
    }
    if (!comma && mode != CHAT_TUPLE_PARENTHESES)
        return chat_unexpected(p, "an expression");
    if (!(n = chat_new_node(p, CHAT_NODE_TUPLE, at)))
        return base_error_status();
    n->items = first;
    *out = n;
    return close_node(p, n);
}
