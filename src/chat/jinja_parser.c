/* jinja_parser.c - parses a template: statements, and helpers shared by the parser. */
#include "base/json.h"
#include "chat/jinja_node.h"

#define SOURCE_LIMIT ((size_t)16 << 20)
#define TREE_LIMIT   ((size_t)1 << 30)

static by_status parse_body(chat_parser *p, const char *const *ends, chat_node **out);

/* ---- helpers ------------------------------------------------------------------------------------ */

by_status chat_fail_at(const chat_tree *t, uint32_t at, by_status status, const char *fmt, ...)
{
    char text[600];
    size_t line = 1, start = 0;
    va_list args;
    va_start(args, fmt);
    base_vformat(text, sizeof text, fmt, args);
    va_end(args);
    for (size_t i = 0; i < at && i < t->size; i++)
        if (t->source[i] == '\n') {
            line++;
            start = i + 1;
        }
    const long long column = chat_characters(t->source + start, at - start) + 1;
    return base_fail(status, "%s, line %zu, column %lld: %s", t->name, line, column, text);
}

chat_node *chat_new_node(chat_parser *p, chat_node_kind kind, uint32_t at)
{
    chat_node *n = chat_alloc(&p->tree->heap, 1, sizeof *n);
    if (n) {
        n->kind = (uint8_t)kind;
        n->at = at;
    }
    return n;
}

bool chat_take(chat_parser *p, int type)
{
    const bool there = chat_at(p, type);
    if (there)
        chat_skip(p);
    return there;
}

bool chat_take_name(chat_parser *p, const char *name)
{
    const bool there = chat_at_name(p, name);
    if (there)
        chat_skip(p);
    return there;
}

by_status chat_unexpected(const chat_parser *p, const char *wanted)
{
    const chat_token *t = chat_peek(p);
    const char *next = t->type == CHAT_TOKEN_END    ? "the end of the template"
                       : t->type == CHAT_TOKEN_DATA ? "text"
                       : t->type >= CHAT_TOKEN_OUTPUT_BEGIN && t->type <= CHAT_TOKEN_BLOCK_END
                           ? "a tag's mark"
                           : NULL;
    if (next)
        return chat_fail_at(p->tree, t->at, BY_ERR_FORMAT, "expected %s, found %s", wanted, next);
    const size_t n = BY_MIN(p->tree->size - t->at, 12);
    return chat_fail_at(p->tree, t->at, BY_ERR_FORMAT, "expected %s, found \"%.*s\"", wanted,
                        (int)chat_offset(p->tree->source + t->at, n, 8), p->tree->source + t->at);
}

by_status chat_expect(chat_parser *p, int type, const char *what)
{
    return chat_take(p, type) ? BY_OK : chat_unexpected(p, what);
}

static by_status end_block(chat_parser *p)
{
    return chat_expect(p, CHAT_TOKEN_BLOCK_END, "%}");
}

/* Parses the rest of the tag, then statements up to a tag whose name is one of `ends`. */
static by_status parse_until(chat_parser *p, const char *const *ends, chat_node **out)
{
    chat_take(p, ':');
    BY_TRY(end_block(p));
    return parse_body(p, ends, out);
}

/* The same for a single end. */
static by_status parse_to(chat_parser *p, const char *end, chat_node **out)
{
    const char *const ends[] = {end, NULL};
    BY_TRY(parse_until(p, ends, out));
    chat_skip(p);
    return BY_OK;
}

/* ---- targets and parameters --------------------------------------------------------------------------- */

/* Checks that this can be assigned to. */
static by_status check_target(const chat_parser *p, const chat_node *n, bool attributes)
{
    if (n->kind == CHAT_NODE_NAME && chat_is_text(&n->name, "loop") && p->all_loops)
        return chat_fail_at(p->tree, n->at, BY_ERR_FORMAT, "loop cannot be assigned to");
    if (n->kind == CHAT_NODE_NAME || (n->kind == CHAT_NODE_ATTRIBUTE && attributes))
        return BY_OK;
    if (n->kind != CHAT_NODE_TUPLE)
        return chat_fail_at(p->tree, n->at, BY_ERR_FORMAT, "this cannot be assigned to");
    for (const chat_node *i = n->items; i; i = i->next)
        BY_TRY(check_target(p, i, attributes));
    return BY_OK;
}

static by_status parse_target(chat_parser *p, const char *end, bool attributes, chat_node **out)
{
    BY_TRY(chat_parse_tuple(p, CHAT_TUPLE_TARGET, end, out));
    return check_target(p, *out, attributes);
}

static by_status parse_parameters(chat_parser *p, chat_node **out)
{
    bool defaults = false;
    BY_TRY(chat_expect(p, '(', "("));
    while (!chat_at(p, ')')) {
        chat_node *n = chat_new_node(p, CHAT_NODE_PARAMETER, chat_peek(p)->at);
        if (!n)
            return base_error_status();
        n->name = chat_peek(p)->value;
        BY_TRY(chat_expect(p, CHAT_TOKEN_NAME, "the name of a parameter"));
        if (chat_take(p, '=')) {
            defaults = true;
            BY_TRY(chat_parse_expression(p, &n->right));
        } else if (defaults) {
            return chat_fail_at(p->tree, n->at, BY_ERR_FORMAT,
                                "a parameter without default follows one with");
        }
        *out = n;
        out = &n->next;
        if (!chat_at(p, ')'))
            BY_TRY(chat_expect(p, ',', ","));
    }
    return chat_expect(p, ')', ")");
}

/* ---- functions have their own loops and output ---------------------------------------------------- */

static by_status parse_function_body(chat_parser *p, const char *end, chat_node *n)
{
    const int loops = p->loops;
    if (p->macros == BY_COUNT(p->uses))
        return chat_fail_at(p->tree, n->at, BY_ERR_FORMAT, "macros nest too deeply");
    p->uses[p->macros++] = &n->flags;
    p->loops = 0;
    BY_TRY(parse_to(p, end, &n->body));
    p->loops = loops;
    p->macros--;
    return BY_OK;
}

static by_status parse_macro(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_MACRO;
    n->name = chat_peek(p)->value;
    BY_TRY(chat_expect(p, CHAT_TOKEN_NAME, "the name of the macro"));
    BY_TRY(parse_parameters(p, &n->items));
    return parse_function_body(p, "endmacro", n);
}

static by_status parse_call_block(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_CALL_BLOCK;
    if (chat_at(p, '('))
        BY_TRY(parse_parameters(p, &n->items));
    BY_TRY(chat_parse_expression(p, &n->left));
    if (n->left->kind != CHAT_NODE_CALL)
        return chat_fail_at(p->tree, n->left->at, BY_ERR_FORMAT, "expected a call");
    return parse_function_body(p, "endcall", n);
}

static by_status parse_generation(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_GENERATION;
    p->tree->generation = true;
    return parse_function_body(p, "endgeneration", n);
}

/* ---- other statements ----------------------------------------------------------------------------- */

static by_status parse_if(chat_parser *p, chat_node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        n->kind = CHAT_NODE_IF;
        BY_TRY(chat_parse_tuple(p, CHAT_TUPLE_PLAIN, NULL, &n->test));
        BY_TRY(parse_until(p, ends, &n->body));
        const uint32_t at = chat_peek(p)->at;
        if (chat_take_name(p, "endif"))
            return BY_OK;
        if (chat_take_name(p, "else"))
            return parse_to(p, "endif", &n->other);
        chat_skip(p);
        if (!(n->other = chat_new_node(p, CHAT_NODE_IF, at)))
            return base_error_status();
        n = n->other;
        n->op = CHAT_ELIF;
    }
}

static by_status parse_for(chat_parser *p, chat_node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    n->kind = CHAT_NODE_FOR;
    p->all_loops++;
    BY_TRY(parse_target(p, "in", false, &n->left));
    if (!chat_take_name(p, "in"))
        return chat_unexpected(p, "in");
    BY_TRY(chat_parse_tuple(p, CHAT_TUPLE_PLAIN, "recursive", &n->right));
    if (chat_take_name(p, "if"))
        BY_TRY(chat_parse_expression(p, &n->test));
    if (chat_at_name(p, "recursive"))
        return chat_fail_at(p->tree, chat_peek(p)->at, BY_ERR_UNSUPPORTED,
                            "recursive loops are not supported");
    p->loops++;
    BY_TRY(parse_until(p, ends, &n->body));
    p->loops--;
    if (chat_take_name(p, "else"))
        BY_TRY(parse_to(p, "endfor", &n->other));
    else
        chat_skip(p);
    p->all_loops--;
    return BY_OK;
}

static by_status parse_set(chat_parser *p, chat_node *n)
{
    BY_TRY(parse_target(p, NULL, true, &n->left));
    if (chat_take(p, '=')) {
        n->kind = CHAT_NODE_SET;
        return chat_parse_tuple(p, CHAT_TUPLE_ANY, NULL, &n->right);
    }
    n->kind = CHAT_NODE_SET_BLOCK;
    BY_TRY(chat_parse_filters(p, NULL, false, &n->right));
    return parse_to(p, "endset", &n->body);
}

static by_status parse_with(chat_parser *p, chat_node *n)
{
    chat_node **last = &n->items;
    n->kind = CHAT_NODE_WITH;
    while (!chat_at(p, CHAT_TOKEN_BLOCK_END)) {
        if (n->items)
            BY_TRY(chat_expect(p, ',', ","));
        chat_node *set = chat_new_node(p, CHAT_NODE_SET, chat_peek(p)->at);
        if (!set)
            return base_error_status();
        BY_TRY(parse_target(p, NULL, false, &set->left));
        BY_TRY(chat_expect(p, '=', "="));
        BY_TRY(chat_parse_expression(p, &set->right));
        *last = set;
        last = &set->next;
    }
    return parse_to(p, "endwith", &n->body);
}

static by_status parse_filter_block(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_FILTER_BLOCK;
    BY_TRY(chat_parse_filters(p, NULL, true, &n->right));
    return parse_to(p, "endfilter", &n->body);
}

static by_status parse_jump(chat_parser *p, chat_node *n)
{
    if (!p->loops)
        return chat_fail_at(p->tree, n->at, BY_ERR_FORMAT, "%s outside of a loop",
                            n->kind == CHAT_NODE_BREAK ? "break" : "continue");
    return BY_OK;
}

static by_status parse_break(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_BREAK;
    return parse_jump(p, n);
}

static by_status parse_continue(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_CONTINUE;
    return parse_jump(p, n);
}

static by_status parse_print(chat_parser *p, chat_node *n)
{
    n->kind = CHAT_NODE_OUTPUT;
    return chat_parse_expression(p, &n->left);
}

static const struct {
    const char *tag;
    by_status (*parse)(chat_parser *p, chat_node *n);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"break", parse_break},
    {"continue", parse_continue},
    {"print", parse_print},
    {"generation", parse_generation},
};

static by_status parse_statement(chat_parser *p, chat_node **out)
{
    static const char *const others[] = {"block", "extends", "include", "import", "from", "autoescape"};
    const chat_token *t = chat_peek(p);
    chat_node *n = chat_new_node(p, CHAT_NODE_OUTPUT, t->at);
    if (!n)
        return base_error_status();
    *out = n;
    if (t->type != CHAT_TOKEN_NAME)
        return chat_unexpected(p, "a tag");
    for (int i = 0; i < BY_COUNT(statements); i++)
        if (chat_take_name(p, statements[i].tag))
            return statements[i].parse(p, n);
    for (int i = 0; i < BY_COUNT(others); i++)
        if (chat_at_name(p, others[i]))
            return chat_fail_at(p->tree, t->at, BY_ERR_UNSUPPORTED, "the tag %s is not supported", others[i]);
    return chat_fail_at(p->tree, t->at, BY_ERR_FORMAT, "unknown tag %.*s", (int)BY_MIN(t->value.size, 40),
                        t->value.text);
}

/* ---- bodies --------------------------------------------------------------------------------------- */

static bool at_end_tag(const chat_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (chat_at_name(p, *ends))
            return true;
    return false;
}

static by_status parse_output(chat_parser *p, chat_node **out)
{
    chat_node *n = chat_new_node(p, CHAT_NODE_OUTPUT, chat_peek(p)->at);
    if (!n)
        return base_error_status();
    *out = n;
    if (chat_at(p, CHAT_TOKEN_DATA)) {
        n->value = chat_peek(p)->value;
        chat_skip(p);
        return BY_OK;
    }
    chat_skip(p);
    BY_TRY(chat_parse_tuple(p, CHAT_TUPLE_ANY, NULL, &n->left));
    return chat_expect(p, CHAT_TOKEN_OUTPUT_END, "}}");
}

/* Leaves the name of the end tag as the next token. */
static by_status parse_body(chat_parser *p, const char *const *ends, chat_node **out)
{
    if (++p->depth > CHAT_PARSE_DEEPEST)
        return chat_fail_at(p->tree, chat_peek(p)->at, BY_ERR_FORMAT, "statements nest too deeply");
    for (; !chat_at(p, CHAT_TOKEN_END); out = &(*out)->next) {
        if (!chat_at(p, CHAT_TOKEN_BLOCK_BEGIN)) {
            BY_TRY(parse_output(p, out));
            continue;
        }
        chat_skip(p);
        if (at_end_tag(p, ends)) {
            p->depth--;
            return BY_OK;
        }
        BY_TRY(parse_statement(p, out));
        BY_TRY(end_block(p));
    }
    p->depth--;
    int last = 0; /* the closing tag comes after those that continue the statement */
    while (ends && ends[last + 1])
        last++;
    return ends ? chat_fail_at(p->tree, chat_peek(p)->at, BY_ERR_FORMAT,
                               "the template ends before {%% %s %%}", ends[last])
                : BY_OK;
}

/* ---- the template ----------------------------------------------------------------------------------- */

/* Copies the text, replacing \r\n and \r by \n and removing a final newline. */
static by_status copy_source(chat_tree *t, const char *text, size_t size)
{
    char *source = chat_alloc(&t->heap, size + 1, 1), *to = source;
    if (!source)
        return base_error_status();
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n')
            continue;
        *to++ = text[i] == '\r' ? '\n' : text[i];
    }
    if (to > source && to[-1] == '\n')
        to--;
    t->source = source;
    t->size = (size_t)(to - source);
    return BY_OK;
}

static by_status check_utf8(const chat_tree *t)
{
    for (size_t i = 0, n; i < t->size; i += n)
        if (!(n = base_json_utf8(t->source + i, t->size - i)))
            return chat_fail_at(t, (uint32_t)i, BY_ERR_FORMAT, "the template is not UTF-8");
    return BY_OK;
}

static by_status parse_tree(chat_tree *t, const char *text, size_t size, const char *name)
{
    chat_parser p = {.tree = t};
    if (!(t->name = base_arena_strdup(t->heap.arena, name)))
        return BY_ERR_MEMORY;
    if (size > SOURCE_LIMIT)
        return base_fail(BY_ERR_FORMAT, "%s: a chat template of %zu bytes is too large", name, size);
    BY_TRY(copy_source(t, text, size));
    BY_TRY(check_utf8(t));
    BY_TRY(chat_tokenize(&p));
    BY_TRY(parse_body(&p, NULL, &t->body));
    return chat_find_hidden(t);
}

chat_tree *chat_parse(const char *text, size_t size, const char *name)
{
    chat_tree *t = base_alloc_zero(1, sizeof *t);
    if (!t)
        return NULL;
    t->heap = (chat_heap){.arena = base_arena_new(), .left = TREE_LIMIT};
    if (!t->heap.arena || parse_tree(t, text, size, name) != BY_OK) {
        chat_tree_free(t);
        return NULL;
    }
    return t;
}

void chat_tree_free(chat_tree *t)
{
    if (!t)
        return;
    base_arena_free(t->heap.arena);
    base_free(t);
}
