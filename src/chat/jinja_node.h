/* jinja_node.h - the syntax tree of a template: tokens (jinja_lexer.c), expressions (jinja_expressions.c) and
 * statements (jinja_parser.c). The grammar is Jinja2's with trim_blocks, lstrip_blocks, break, continue and
 * {% generation %}. */
#ifndef BY_CHAT_JINJA_NODE_H
#define BY_CHAT_JINJA_NODE_H

#include "chat/jinja_value.h"

/* ---- tokens --------------------------------------------------------------------------------------- */

/* Single-character operators are their own character code. */
typedef enum chat_token_type {
    CHAT_TOKEN_END = 0,
    CHAT_TOKEN_DATA = 128,
    CHAT_TOKEN_OUTPUT_BEGIN, /* {{ */
    CHAT_TOKEN_OUTPUT_END,
    CHAT_TOKEN_BLOCK_BEGIN, /* {% */
    CHAT_TOKEN_BLOCK_END,
    CHAT_TOKEN_NAME,
    CHAT_TOKEN_STRING,
    CHAT_TOKEN_NUMBER,
    CHAT_TOKEN_EQUAL, /* == and so on */
    CHAT_TOKEN_DIFFERENT,
    CHAT_TOKEN_LESS_EQUAL,
    CHAT_TOKEN_GREATER_EQUAL,
    CHAT_TOKEN_FLOOR, /* // */
    CHAT_TOKEN_POWER  /* ** */
} chat_token_type;

typedef struct chat_token {
    uint8_t type;
    uint32_t at;      /* byte offset in the source */
    chat_value value; /* a string for data, names and literals; a number */
} chat_token;

/* ---- nodes ------------------------------------------------------------------------------------------ */

typedef enum chat_node_kind {
    CHAT_NODE_CONST,     /* value */
    CHAT_NODE_NAME,      /* name */
    CHAT_NODE_TUPLE,     /* items: list of nodes */
    CHAT_NODE_LIST,      /* items */
    CHAT_NODE_DICT,      /* items: key, value, key, value, ... */
    CHAT_NODE_ATTRIBUTE, /* left . name; as a target: of a namespace */
    CHAT_NODE_ITEM,      /* left [right] */
    CHAT_NODE_SLICE,     /* left [right : test : other], each of them may be NULL */
    CHAT_NODE_CALL,      /* left (items: CHAT_NODE_ARGUMENT) */
    CHAT_NODE_ARGUMENT,  /* left; name: keyword, or none; op: '*', CHAT_TOKEN_POWER or 0 */
    CHAT_NODE_FILTER,    /* left | name (items); left is NULL in a filter block */
    CHAT_NODE_TEST,      /* left is name (items) */
    CHAT_NODE_BINARY,    /* left op right: + - * / // % ** */
    CHAT_NODE_CONCAT,    /* items joined by ~ */
    CHAT_NODE_UNARY,     /* op right: + - */
    CHAT_NODE_NOT,       /* right */
    CHAT_NODE_AND,
    CHAT_NODE_OR,
    CHAT_NODE_COMPARE,   /* left, items: CHAT_NODE_OPERAND */
    CHAT_NODE_OPERAND,   /* op right: a token type, 'i' for in, 'n' for not in */
    CHAT_NODE_CONDITION, /* left if test else right; right may be NULL */
    /* statements */
    CHAT_NODE_OUTPUT,       /* left */
    CHAT_NODE_IF,           /* test, body, other: statements (else), or an IF whose op is CHAT_ELIF */
    CHAT_NODE_FOR,          /* left (target) in right if test: body; other: else */
    CHAT_NODE_SET,          /* left = right */
    CHAT_NODE_SET_BLOCK,    /* left; right: chain of filters, or NULL; body */
    CHAT_NODE_MACRO,        /* name, items: PARAMETER, body; flags */
    CHAT_NODE_PARAMETER,    /* name; right: default, or NULL */
    CHAT_NODE_CALL_BLOCK,   /* left: the call; items, body: of the caller */
    CHAT_NODE_FILTER_BLOCK, /* right: chain of filters; body */
    CHAT_NODE_WITH,         /* items: SET; body */
    CHAT_NODE_GENERATION,   /* body */
    CHAT_NODE_BREAK,
    CHAT_NODE_CONTINUE
} chat_node_kind;

enum { CHAT_ELIF = 1 };
/* Flags of a macro's body. */
enum { CHAT_USES_CALLER = 1, CHAT_USES_KWARGS = 2, CHAT_USES_VARARGS = 4 };

/* Names that are undefined at the start of a scope, even if outer scopes define them (jinja_symbols.c). */
typedef struct chat_name {
    chat_value name;
    const struct chat_name *next;
} chat_name;

typedef struct chat_node chat_node;
struct chat_node {
    uint8_t kind, op, flags;
    uint16_t height; /* height of the tree below an expression */
    uint32_t at;
    chat_value name; /* a string; CHAT_MISSING: none */
    chat_value value;
    chat_node *left, *right, *test;
    chat_node *items, *body, *other;       /* linked by `next` */
    const chat_name *hidden, *hidden_else; /* hidden names of the scopes of body and, for a for, of other */
    chat_node *next;
};

/* A parsed template. */
typedef struct chat_tree {
    chat_heap heap;
    const char *name;   /* for error messages */
    const char *source; /* with \n line ends, without the last one */
    size_t size;
    chat_node *body;
    const chat_name *hidden;
    bool generation; /* contains {% generation %} */
} chat_tree;

/* Parses a template. name: for error messages. The text is copied. Returns NULL after base_fail. */
chat_tree *chat_parse(const char *text, size_t size, const char *name);
void chat_tree_free(chat_tree *t);

/* Fails at "name, line 3, column 7", an offset in the source. */
by_status chat_fail_at(const chat_tree *t, uint32_t at, by_status status, const char *fmt, ...)
    BY_PRINTF(4, 5);

/* ---- parser --------------------------------------------------------------------------------------- */

enum {
    CHAT_PARSE_DEEPEST = 100
}; /* maximum nesting of statements and brackets; expressions may be ten times as high */

typedef struct chat_parser {
    chat_tree *tree;
    chat_token *tokens;
    size_t count, capacity, at;
    int depth;         /* current nesting of expressions and statements */
    int loops;         /* enclosing loops, up to the nearest function */
    int all_loops;     /* all enclosing loops */
    uint8_t *uses[16]; /* flags of the enclosing macros */
    int macros;
} chat_parser;

by_status chat_tokenize(chat_parser *p);
by_status chat_find_hidden(chat_tree *t); /* completes a parsed tree */

static inline const chat_token *chat_peek(const chat_parser *p)
{
    return &p->tokens[p->at];
}
static inline bool chat_at(const chat_parser *p, int type)
{
    return p->tokens[p->at].type == type;
}
static inline bool chat_at_name(const chat_parser *p, const char *name)
{
    return chat_at(p, CHAT_TOKEN_NAME) && chat_is_text(&p->tokens[p->at].value, name);
}
static inline void chat_skip(chat_parser *p) /* never past the end */
{
    p->at += p->tokens[p->at].type != CHAT_TOKEN_END;
}
bool chat_take(chat_parser *p, int type);
bool chat_take_name(chat_parser *p, const char *name);
by_status chat_expect(chat_parser *p, int type, const char *what);
by_status chat_unexpected(const chat_parser *p, const char *wanted);
chat_node *chat_new_node(chat_parser *p, chat_node_kind kind, uint32_t at); /* NULL after base_fail */

typedef enum chat_tuple_mode {
    CHAT_TUPLE_ANY,
    CHAT_TUPLE_PLAIN,      /* without "x if y else z", which would take the if of a for statement */
    CHAT_TUPLE_TARGET,     /* assignment targets */
    CHAT_TUPLE_PARENTHESES /* may be empty */
} chat_tuple_mode;
by_status chat_parse_expression(chat_parser *p, chat_node **out);
by_status chat_parse_tuple(chat_parser *p, chat_tuple_mode mode, const char *end, chat_node **out);
by_status chat_parse_filters(chat_parser *p, chat_node *left, bool inline_first, chat_node **out);

#endif
