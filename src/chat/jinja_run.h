/* jinja_run.h - the rendering of a template. Functions return BY_OK or fail with a message that names line
 * and column. Text is built at the end of the output (chat_run.out) and taken from there (chat_take_text), so
 * only the arena and the output need freeing. */
#ifndef BY_CHAT_JINJA_RUN_H
#define BY_CHAT_JINJA_RUN_H

#include <time.h>

#include "banyan/chat.h"
#include "chat/jinja_node.h"

typedef struct chat_variable {
    chat_value name, value;
} chat_variable;

/* A scope. The parent of a macro's scope is the scope of its definition. */
typedef struct chat_frame {
    struct chat_frame *parent;
    chat_variable *list;
    size_t count, capacity;
} chat_frame;

/* Arguments of a call. */
typedef struct chat_args {
    chat_value *list;
    size_t count;
    chat_pair *named; /* keys are strings */
    size_t named_count;
} chat_args;

typedef enum chat_jump { CHAT_GO_ON, CHAT_BREAK, CHAT_CONTINUE } chat_jump;

typedef struct chat_run {
    const chat_tree *tree;
    chat_heap heap;
    int64_t steps; /* steps that remain */
    uint32_t at;   /* position in the source, for errors */
    int depth, calls;
    chat_jump jump;
    chat_frame *frame;
    base_buf out;
    /* size of the final text at the start of out; text under construction or captured follows */
    size_t written;
    size_t out_limit;
    int captures;               /* number of macros and blocks whose output is being captured */
    size_t counted, characters; /* bytes of the final text whose characters have been counted */
    by_chat_span *spans;        /* in characters */
    size_t span_count, span_capacity;
    chat_value exception; /* message of raise_exception; CHAT_MISSING: none */
    struct tm now;
    int microseconds;
} chat_run;

by_status chat_fail(const chat_run *r, const char *fmt, ...) BY_PRINTF(2, 3);
by_status chat_fail_undefined(const chat_run *r,
                              const chat_value *v); /* fails because an undefined value was used */
by_status chat_spend(chat_run *r, size_t work);     /* fails if the limit of steps is reached */
by_status chat_descend(chat_run *r); /* enters a nesting level; decrement r->depth afterwards */

/* ---- evaluation (jinja_evaluate.c, jinja_execute.c) ------------------------------------------------- */

by_status chat_evaluate(chat_run *r, const chat_node *n, chat_value *out);
by_status chat_evaluate_args(chat_run *r, const chat_node *arguments, chat_args *out);
/* Applies the filters of a block to its text. */
by_status chat_evaluate_filters(chat_run *r, const chat_node *chain, const chat_value *text, chat_value *out);
by_status chat_execute(chat_run *r, const chat_node *body);
by_status chat_assign(chat_run *r, const chat_node *target, chat_value v);
by_status chat_set(chat_run *r, chat_frame *f, chat_value name, chat_value v);
chat_value chat_lookup(const chat_run *r, const chat_value *name);
/* Enters a new scope, in which the names of `hidden` (may be NULL) are undefined. NULL after base_fail. */
chat_frame *chat_push_frame(chat_run *r, chat_frame *parent, const chat_name *hidden);
by_status chat_hide(chat_run *r, chat_frame *f, const chat_name *hidden);

/* ---- text at the end of the output (jinja_print.c) ----------------------------------------------------- */

by_status chat_put_text(chat_run *r, const chat_value *v); /* str(v) */
by_status chat_put_repr(chat_run *r, const chat_value *v); /* repr(v) */
by_status chat_put_bytes(chat_run *r, const char *text, size_t size);
typedef struct chat_json_style {
    bool ascii, sorted;
    const char *indent; /* indentation per level; NULL: a single line */
    size_t indent_size;
    chat_value between, after_key; /* separators */
} chat_json_style;
by_status chat_put_json(chat_run *r, const chat_value *v, const chat_json_style *style);
/* Checks the limits, takes the text after the first `mark` bytes of the output, and removes it from there. */
by_status chat_take_text(chat_run *r, size_t mark, chat_value *out);
by_status chat_check_output(chat_run *r);
by_status chat_to_text(chat_run *r, const chat_value *v,
                       chat_value *out); /* str(v); strings stay, without the safe mark */
by_status chat_soft_text(chat_run *r, const chat_value *v, chat_value *out); /* strings stay as they are */

/* ---- iteration (jinja_iterate.c) ------------------------------------------------------------------------ */

typedef struct chat_iterator {
    chat_value source;
    size_t at;
} chat_iterator;
by_status chat_iterate(chat_run *r, const chat_value *v, chat_iterator *out); /* fails unless v is iterable */
bool chat_is_iterable(const chat_value *v);
by_status chat_next(chat_run *r, chat_iterator *i, chat_value *out, bool *more);
by_status chat_to_list(chat_run *r, const chat_value *v, chat_value *out); /* a new list */

typedef enum chat_lazy { CHAT_LAZY_LIST, CHAT_LAZY_ITEMS, CHAT_LAZY_MAP, CHAT_LAZY_SELECT } chat_lazy;
typedef struct chat_generator {
    chat_lazy kind;
    bool opened, done;
    bool negate, attribute; /* select: reject; selectattr and rejectattr */
    chat_value source;
    chat_iterator from;
    chat_args args;
} chat_generator;
by_status chat_new_generator(chat_run *r, chat_lazy kind, const chat_value *source, const chat_args *args,
                             chat_value *out);

/* ---- operators (jinja_operators.c) ------------------------------------------------------------------------ */

by_status chat_binary(chat_run *r, int op, const chat_value *a, const chat_value *b, chat_value *out);
by_status chat_unary(chat_run *r, int op, const chat_value *a, chat_value *out);
by_status chat_equal(chat_run *r, const chat_value *a, const chat_value *b, bool *out);
/* op: < > and the token types of <= and >=. */
by_status chat_compare(chat_run *r, int op, const chat_value *a, const chat_value *b, bool *out);
by_status chat_contains(chat_run *r, const chat_value *item, const chat_value *in, bool *out);
by_status chat_slice(chat_run *r, const chat_value *v, const chat_value bounds[3], chat_value *out);
by_status chat_join_strings(chat_run *r, const chat_value *a, const chat_value *b,
                            chat_value *out); /* a + b */

/* ---- attributes and calls (jinja_access.c, jinja_call.c) ------------------------------------------------------ */

by_status chat_attribute(chat_run *r, const chat_value *v, const chat_value *name, chat_value *out);
by_status chat_item(chat_run *r, const chat_value *v, const chat_value *key, chat_value *out);
/* An attribute by a path such as "function.name" or "0.x", or an item by an index. */
by_status chat_path(chat_run *r, const chat_value *v, const chat_value *path, chat_value *out);

typedef struct chat_macro {
    const chat_node *node; /* CHAT_NODE_MACRO or CHAT_NODE_CALL_BLOCK */
    chat_frame *frame;
} chat_macro;
typedef struct chat_function {
    const char *name, *params; /* see chat_bind */
    by_status (*call)(chat_run *r, const chat_args *a, const chat_value *p, chat_value *out);
} chat_function;
const chat_function *chat_find_function(const chat_value *name); /* a global function, or NULL */

by_status chat_call(chat_run *r, const chat_value *f, const chat_args *a, chat_value *out);

/* Matches arguments to parameters. params: names separated by spaces. A trailing ? makes one optional, and
 * names of digits are positional-only. Absent ones become CHAT_MISSING. */
enum { CHAT_MOST_PARAMS = 6 };
by_status chat_bind(chat_run *r, const char *what, const char *params, const chat_args *a, chat_value *out);
by_status chat_call_method(chat_run *r, const chat_method *m, const chat_args *a, chat_value *out);

/* Reads a typed parameter. If it is absent, *out becomes the fallback. */
by_status chat_param_int(chat_run *r, const chat_value *p, int64_t fallback, int64_t *out);
by_status chat_param_text(chat_run *r, const chat_value *p, const char *fallback, chat_value *out);

typedef struct chat_loop {
    const chat_node *node;
    chat_iterator from;
    chat_frame *test_frame; /* frame for the condition of the loop; NULL: no condition */
    chat_value before, current, after;
    bool peeked, ended;
    int64_t index0, length; /* length: -1 if unknown */
    chat_value changed;
} chat_loop;
by_status chat_loop_next(chat_run *r, chat_loop *l, bool *more);
by_status chat_loop_attribute(chat_run *r, chat_loop *l, const chat_value *name, chat_value *out);
by_status chat_loop_call(chat_run *r, chat_loop *l, const char *method, const chat_args *a, chat_value *out);

/* ---- filters, tests, methods -------------------------------------------------------------------------------- */

typedef struct chat_filter_row {
    const char *name, *params; /* params NULL: the function reads the arguments itself */
    by_status (*apply)(chat_run *r, const chat_value *v, const chat_args *a, const chat_value *p,
                       chat_value *out);
} chat_filter_row;
extern const chat_filter_row chat_text_filters[], chat_list_filters[]; /* ends with a row without a name */
by_status chat_filter(chat_run *r, const chat_value *name, const chat_value *v, const chat_args *a,
                      chat_value *out);
by_status chat_test(chat_run *r, const chat_value *name, const chat_value *v, const chat_args *a, bool *out);
bool chat_has_filter(const chat_value *name);
/* Methods of strings. */
typedef struct chat_method_row {
    const char *name, *params;
    by_status (*call)(chat_run *r, const chat_value *self, const chat_args *a, const chat_value *p,
                      chat_value *out);
} chat_method_row;
extern const chat_method_row chat_string_methods[], chat_string_shapes[];
by_status chat_strip(chat_run *r, const chat_value *self, const chat_value *chars, int sides,
                     chat_value *out);
by_status chat_replace(chat_run *r, const chat_value *s, const chat_value *old, const chat_value *with,
                       int64_t count, chat_value *out);
by_status chat_split_lines(chat_run *r, const chat_value *s, bool keep_ends, chat_value *out);
by_status chat_format_percent(chat_run *r, const chat_value *format, const chat_value *values,
                              chat_value *out);
by_status chat_format_braces(chat_run *r, const chat_value *format, const chat_args *a, chat_value *out);

#endif
