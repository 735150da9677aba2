/* pickle.h - reads Python pickles without executing anything. A pickle is a program for a stack machine that
 * can call any function by name. Here a call only creates a node that records the function and its arguments,
 * and only names from the caller's list are accepted. */
#ifndef BY_IO_PICKLE_H
#define BY_IO_PICKLE_H

#include "base/base.h"

typedef enum io_pickle_kind {
    IO_PICKLE_NONE,
    IO_PICKLE_BOOL,       /* number */
    IO_PICKLE_INT,        /* number */
    IO_PICKLE_LONG,       /* text: an integer of more than 64 bits, little-endian two's complement */
    IO_PICKLE_FLOAT,      /* real */
    IO_PICKLE_TEXT,       /* text: strings and bytes, NUL-terminated, may contain NULs */
    IO_PICKLE_TUPLE,      /* items */
    IO_PICKLE_LIST,       /* items */
    IO_PICKLE_DICT,       /* items: key, value, key, value, ...; also OrderedDict */
    IO_PICKLE_GLOBAL,     /* number: index in the caller's list */
    IO_PICKLE_CALL,       /* items: the global, the tuple of arguments */
    IO_PICKLE_PERSISTENT, /* items: the id of an object outside the pickle */
} io_pickle_kind;

typedef struct io_pickled io_pickled;
struct io_pickled {
    io_pickle_kind kind;
    union {
        int64_t number;
        double real;
        struct {
            const char *text;
            size_t size;
        };
        struct {
            io_pickled **items;
            uint32_t count, room;
        };
    };
};

/* Runs the pickle at *at, which ends before `end`, and advances *at past it. Values live in the arena and may
 * not form a tree: they may be shared, and lists may contain themselves. globals is a NULL-terminated list of
 * "module name" strings; the first must be "collections OrderedDict", whose calls become dictionaries.
 * *outside, unless NULL, receives a list of all persistent objects. Returns NULL on failure. */
const io_pickled *io_pickle_read(base_arena *arena, const uint8_t **at, const uint8_t *end,
                                 const char *const *globals, const char *what, const io_pickled **outside);

/* The name of a kind, for messages. */
const char *io_pickle_kind_name(io_pickle_kind kind);

#endif
