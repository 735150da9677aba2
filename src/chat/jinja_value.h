/* jinja_value.h - the values of a template, with the semantics of Python's types. Values are in the arena of
 * a rendering (chat_heap) and are never freed individually. Lists and dictionaries are immutable once another
 * value holds them. */
#ifndef BY_CHAT_JINJA_VALUE_H
#define BY_CHAT_JINJA_VALUE_H

#include "base/base.h"

/* Memory with a limit. */
typedef struct chat_heap {
    base_arena *arena;
    size_t left;                  /* bytes that may still be allocated */
    const struct chat_tree *tree; /* the rendering that it serves, for errors; may be NULL */
    const uint32_t *at;           /* the source position there */
} chat_heap;
void *chat_alloc(chat_heap *h, size_t count, size_t size); /* zeroed; NULL after base_fail */

typedef enum chat_type {
    CHAT_MISSING, /* an absent argument; never a value of a template */
    CHAT_UNDEFINED,
    CHAT_NONE,
    CHAT_BOOL,
    CHAT_INT,
    CHAT_BIG, /* an integer beyond 64 bits as decimal digits; supports printing and comparison but no arithmetic */
    CHAT_FLOAT,
    CHAT_STRING,
    CHAT_LIST,
    CHAT_TUPLE,
    CHAT_DICT,
    CHAT_VIEW, /* keys(), values() or items() of a dictionary */
    CHAT_RANGE,
    CHAT_GENERATOR, /* returned by filters such as map; can be consumed once */
    CHAT_NAMESPACE,
    CHAT_MACRO,
    CHAT_METHOD,
    CHAT_FUNCTION,
    CHAT_LOOP
} chat_type;

typedef struct chat_value {
    uint8_t type; /* chat_type */
    bool markup;  /* a string marked by the filter safe: addition to it escapes HTML, as in the reference */
    /* CHAT_UNDEFINED: the type of the value without the attribute `text`, or CHAT_UNDEFINED for a variable of
     * that name, or CHAT_MISSING if `text` is the whole message */
    uint8_t parent;
    union {
        bool truth;
        int64_t integer;
        double real;
        /* CHAT_STRING, CHAT_BIG, CHAT_UNDEFINED: `size` bytes of UTF-8, without a final NUL */
        const char *text;
        struct chat_list *list; /* CHAT_LIST, CHAT_TUPLE */
        struct chat_dict *dict; /* CHAT_DICT, CHAT_NAMESPACE */
        const struct chat_view *view;
        const struct chat_range *range;
        struct chat_generator *generator;
        const struct chat_macro *macro;
        const struct chat_method *method;
        const struct chat_function *function;
        struct chat_loop *loop;
    };
    size_t size;
} chat_value;

/* Maximum nesting of lists and dictionaries, which functions may walk recursively. */
enum { CHAT_DEEPEST = 200 };

typedef struct chat_list {
    chat_value *items;
    size_t count, capacity;
    int height; /* 1 + the height of its highest item; 0: empty, or only scalars */
} chat_list;

typedef struct chat_pair {
    chat_value key, value;
} chat_pair;

/* A dictionary in insertion order. Large ones have an index. */
typedef struct chat_dict {
    chat_pair *pairs;
    size_t count, capacity;
    uint32_t *index; /* 1 + position in pairs, by hash; NULL for small dictionaries */
    size_t slots;    /* a power of two */
    int height;
} chat_dict;

typedef enum chat_view_kind { CHAT_KEYS, CHAT_VALUES, CHAT_ITEMS } chat_view_kind;
typedef struct chat_view {
    chat_view_kind kind;
    const chat_dict *dict;
} chat_view;

typedef struct chat_range {
    int64_t start, stop, step;
    int64_t count;
} chat_range;

typedef struct chat_method {
    chat_value self;
    const char *name;
} chat_method;

/* ---- making values (jinja_value.c) ------------------------------------------------------------- */

static inline chat_value chat_none(void)
{
    return (chat_value){.type = CHAT_NONE};
}
static inline chat_value chat_bool(bool b)
{
    return (chat_value){.type = CHAT_BOOL, .truth = b};
}
static inline chat_value chat_int(int64_t i)
{
    return (chat_value){.type = CHAT_INT, .integer = i};
}
static inline chat_value chat_float(double d)
{
    return (chat_value){.type = CHAT_FLOAT, .real = d};
}
static inline chat_value chat_bytes(const char *text, size_t size)
{
    return (chat_value){.type = CHAT_STRING, .text = text, .size = size};
}
static inline chat_value chat_literal(const char *text) /* the text must outlive the value */
{
    return chat_bytes(text, strlen(text));
}
/* parent: see chat_value. */
static inline chat_value chat_undefined(chat_type parent, const char *text, size_t size)
{
    return (chat_value){.type = CHAT_UNDEFINED, .parent = (uint8_t)parent, .text = text, .size = size};
}
static inline chat_value chat_absent(const char *reason)
{
    return chat_undefined(CHAT_MISSING, reason, strlen(reason));
}
static inline bool chat_is_text(const chat_value *v, const char *text)
{
    return v->type == CHAT_STRING && v->size == strlen(text) && memcmp(v->text, text, v->size) == 0;
}
static inline bool chat_same_bytes(const chat_value *a, const chat_value *b)
{
    return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

by_status chat_copy_bytes(chat_heap *h, const char *text, size_t size, chat_value *out);
by_status chat_new_list(chat_heap *h, chat_type type, size_t capacity, chat_value *out);
by_status chat_push(chat_heap *h, chat_list *l, chat_value v);
by_status chat_new_dict(chat_heap *h, chat_type type, chat_value *out);

/* Keys compare as in Python: 1, 1.0 and True are one key. Keys must be hashable. */
bool chat_is_hashable(const chat_value *v);
const chat_value *chat_find(const chat_dict *d, const chat_value *key); /* NULL: not found */
const chat_value *chat_find_text(const chat_dict *d, const char *key);
by_status chat_put(chat_heap *h, chat_dict *d, chat_value key,
                   chat_value value); /* replaces an existing key in place */

/* ---- properties --------------------------------------------------------------------------------- */

bool chat_truth(const chat_value *v);
bool chat_is_number(const chat_value *v);              /* bool, int or float */
bool chat_as_int(const chat_value *v, int64_t *out);   /* bool or int */
bool chat_as_double(const chat_value *v, double *out); /* bool, int or float */
bool chat_length(const chat_value *v, int64_t *out);   /* len(v); false: v has no length */
const char *chat_type_name(const chat_value *v);       /* Python's name: "str", "NoneType" */
bool chat_same_scalar(const chat_value *a,
                      const chat_value *b); /* equality of values that are not containers */
/* Compares numbers, or strings by code points: < 0, 0, > 0. Returns false if they have no order. NaN is
 * unordered: *out is then 2. */
bool chat_order_scalars(const chat_value *a, const chat_value *b, int *out);

/* ---- characters (jinja_string.c) ---------------------------------------------------------------- */

int64_t chat_characters(const char *text, size_t size);
/* The byte offset of character n, at most the size. */
size_t chat_offset(const char *text, size_t size, int64_t n);
bool chat_is_space(uint32_t c);                         /* str.isspace */
size_t chat_strip_left(const char *text, size_t size);  /* bytes of white space at the start */
size_t chat_strip_right(const char *text, size_t size); /* size without white space at the end */
/* The first occurrence at or after from, or SIZE_MAX. */
size_t chat_find_bytes(const char *text, size_t size, const char *what, size_t what_size, size_t from);
size_t chat_find_last(const char *text, size_t size, const char *what, size_t what_size);

/* Upper, lower and title case with Unicode's full mappings (jinja_case.c). */
typedef enum chat_case { CHAT_UPPER, CHAT_LOWER, CHAT_TITLE, CHAT_CAPITALIZE, CHAT_SWAP } chat_case;
by_status chat_change_case(const char *text, size_t size, chat_case how, base_buf *out);

/* ---- as text (jinja_text.c) ----------------------------------------------------------------------- */

void chat_put_float(base_buf *out, double d);                        /* repr of a float */
void chat_put_quoted(base_buf *out, const char *text, size_t size);  /* repr of a str */
void chat_put_escaped(base_buf *out, const char *text, size_t size); /* HTML */
void chat_put_point(base_buf *out, uint32_t point);                  /* UTF-8 */

/* ---- JSON (jinja_json.c) ---------------------------------------------------------------------------- */

/* Reads one JSON value as Python's json.loads does; strings may contain NUL. Errors name `what`, line and
 * column. The text must outlive the value. */
by_status chat_read_json(chat_heap *h, const char *text, size_t size, const char *what, chat_value *out);
/* The same for the value at or after text[*at]; *at becomes the position after it. */
by_status chat_read_json_next(chat_heap *h, const char *text, size_t size, size_t *at, const char *what,
                              chat_value *out);

#endif
