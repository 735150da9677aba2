/* pickle.h - reading Python's pickles without executing anything. A pickle is a program for a stack machine;
 * its CALL takes any function by name. Here a call only makes a node that says what would have been called
 * with what, and only names from the caller's list are let through. */
#ifndef BY_IO_PICKLE_H
#define BY_IO_PICKLE_H

#include "base/base.h"

typedef enum io_pickle_kind {
    IO_PICKLE_NONE,
    IO_PICKLE_BOOL,       /* number */
    IO_PICKLE_INT,        /* number */
    IO_PICKLE_LONG,       /* text: an integer of more than 64 bits, little-endian two's complement */
    IO_PICKLE_FLOAT,      /* real */
    IO_PICKLE_TEXT,       /* text: strings and bytes, NUL-terminated, may hold NULs */
    IO_PICKLE_TUPLE,      /* items */
    IO_PICKLE_LIST,       /* items */
    IO_PICKLE_DICT,       /* items: key, value, key, value, ...; an OrderedDict too */
    IO_PICKLE_GLOBAL,     /* number: its place in the caller's list */
    IO_PICKLE_CALL,       /* items: the global, the tuple of arguments */
    IO_PICKLE_PERSISTENT, /* items: the id, something that lies outside the pickle */
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

/* Run the pickle at *at, which ends before `end`, and move *at behind it. Values live in the arena and form
 * no tree: they may be shared, and lists may hold themselves. globals: "module name" strings, NULL at the
 * end; the first must be "collections OrderedDict", whose calls become dictionaries. *outside, unless
 * NULL, receives a list of everything persistent that was met. NULL on failure. */
const io_pickled *io_pickle_read(base_arena *arena, const uint8_t **at, const uint8_t *end,
                                 const char *const *globals, const char *what, const io_pickled **outside);

/* What a value is, in a word for messages. */
const char *io_pickle_kind_name(io_pickle_kind kind);

#endif
