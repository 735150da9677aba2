/* pickle.h - reading Python's pickles without executing anything. A pickle is a program for a stack machine;
 * its CALL takes any function by name. Here a call only makes a node that says what would have been called
 * with what, and only names from the caller's list are let through. */
#ifndef BY_IO_PICKLE_H
#define BY_IO_PICKLE_H

#include "base/base.h"

typedef enum by_pickle_kind {
    BY_PICKLE_NONE,
    BY_PICKLE_BOOL,       /* number */
    BY_PICKLE_INT,        /* number */
    BY_PICKLE_LONG,       /* text: an integer of more than 64 bits, little-endian two's complement */
    BY_PICKLE_FLOAT,      /* real */
    BY_PICKLE_TEXT,       /* text: strings and bytes, NUL-terminated, may hold NULs */
    BY_PICKLE_TUPLE,      /* items */
    BY_PICKLE_LIST,       /* items */
    BY_PICKLE_DICT,       /* items: key, value, key, value, ...; an OrderedDict too */
    BY_PICKLE_GLOBAL,     /* number: its place in the caller's list */
    BY_PICKLE_CALL,       /* items: the global, the tuple of arguments */
    BY_PICKLE_PERSISTENT, /* items: the id, something that lies outside the pickle */
} by_pickle_kind;

typedef struct by_pickled by_pickled;
struct by_pickled {
    by_pickle_kind kind;
    union {
        int64_t number;
        double real;
        struct {
            const char *text;
            size_t size;
        };
        struct {
            by_pickled **items;
            uint32_t count, room;
        };
    };
};

/* Run the pickle at *at, which ends before `end`, and move *at behind it. Values live in the arena and form
 * no tree: they may be shared, and lists may hold themselves. globals: "module name" strings, NULL at the
 * end; the first must be "collections OrderedDict", whose calls become dictionaries. *outside, unless
 * NULL, receives a list of everything persistent that was met. NULL on failure. */
const by_pickled *by_pickle_read(by_arena *arena, const uint8_t **at, const uint8_t *end,
                                 const char *const *globals, const char *what, const by_pickled **outside);

/* What a value is, in a word for messages. */
const char *by_pickle_kind_name(by_pickle_kind kind);

#endif
