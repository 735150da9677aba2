/* prefetch.h - threads that prepare numbered items ahead of their use, in a ring of slots. The parts of an item are shared among the
 * threads. What is prepared depends on the number of the item alone, never on the thread. */
#ifndef BY_BASE_PREFETCH_H
#define BY_BASE_PREFETCH_H

#include "base/base.h"

typedef struct base_prefetch base_prefetch;

typedef struct base_prefetch_spec {
    int threads; /* 0: the caller prepares items itself, when it asks for them */
    int slots;   /* items that exist at once: the one in use and those ahead; at least 2 with threads */
    int parts;   /* of an item; at least 1 */
    int64_t first, end; /* items from `first` to before `end` */
    void *user;
    /* Prepares part k of an item in a slot, on any thread. */
    by_status (*part)(void *user, int64_t item, int slot, int k);
    /* Called in the same way after all parts of an item: what needs the others. Or NULL. */
    by_status (*finish)(void *user, int64_t item, int slot, int k);
} base_prefetch_spec;

/* Starts the threads. Where the system gives fewer than asked for, those do the work. Returns NULL on failure. */
base_prefetch *base_prefetch_new(const base_prefetch_spec *spec);
/* Stops the threads and waits for them. NULL is a no-op. */
void base_prefetch_free(base_prefetch *p);

/* Waits for the next item; its slot is the caller's until the next call. Adds the seconds of waiting to *waited. An item that could not
 * be prepared is its error here. */
by_status base_prefetch_next(base_prefetch *p, int *slot, double *waited);

#endif
