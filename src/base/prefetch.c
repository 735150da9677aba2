/* prefetch.c - see prefetch.h. */
#include "base/prefetch.h"

#include <pthread.h>

typedef struct slot {
    int next, left; /* parts that are handed out, and those that are not done */
    bool finishes;  /* the parts are those of `finish` */
    bool ready;
    by_status status;
    char *message; /* a thread's message is lost when it ends */
} slot;

struct base_prefetch {
    base_prefetch_spec spec;
    pthread_mutex_t lock;
    pthread_cond_t work, ready;
    pthread_t *threads;
    int count;
    bool stops;
    slot *slots;
    int64_t item; /* the first of which parts are to be handed out, apart from those of `finish` */
    int64_t used; /* the item that the caller has, or will get first; those before it are free */
    bool has;     /* the caller has it */
};

static slot *slot_of(const base_prefetch *p, int64_t item)
{
    return &p->slots[item % p->spec.slots];
}

/* Keeps the first error of an item. */
static void note(slot *s, by_status status)
{
    if (status == BY_OK || s->status != BY_OK)
        return;
    s->status = status;
    s->message = base_strdup(by_error_message());
}

static void begin(const base_prefetch *p, slot *s)
{
    base_free(s->message);
    *s = (slot){.left = p->spec.parts};
}

/* ---- threads ------------------------------------------------------------------------------------ */

/* The item that has a part to hand out: an older one that is to be finished, or the one that is prepared; -1: none. */
static int64_t find_work(const base_prefetch *p)
{
    for (int64_t i = p->used; i < p->item; i++)
        if (slot_of(p, i)->finishes && slot_of(p, i)->next < p->spec.parts)
            return i;
    return p->item < p->spec.end && p->item < p->used + p->spec.slots ? p->item : -1;
}

/* All parts of an item are done: its second phase begins, or the caller gets it. */
static void end_phase(base_prefetch *p, slot *s)
{
    if (p->spec.finish && !s->finishes && s->status == BY_OK) {
        s->finishes = true;
        s->next = 0;
        s->left = p->spec.parts;
        pthread_cond_broadcast(&p->work);
    } else {
        s->ready = true;
        pthread_cond_broadcast(&p->ready);
    }
}

/* One part of an item, handed out under the lock. */
static void do_part(base_prefetch *p, int64_t item)
{
    slot *s = slot_of(p, item);
    if (item == p->item && s->left == 0)
        begin(p, s);
    const int k = s->next++, at = (int)(item % p->spec.slots);
    if (item == p->item && s->next == p->spec.parts)
        p->item++;
    by_status (*work)(void *, int64_t, int, int) = s->finishes ? p->spec.finish : p->spec.part;
    pthread_mutex_unlock(&p->lock);
    by_status status = work(p->spec.user, item, at, k);
    pthread_mutex_lock(&p->lock);
    note(s, status);
    if (--s->left == 0)
        end_phase(p, s);
}

static void *run(void *argument)
{
    base_prefetch *p = argument;
    pthread_mutex_lock(&p->lock);
    while (!p->stops) {
        const int64_t item = find_work(p);
        if (item >= 0)
            do_part(p, item);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

base_prefetch *base_prefetch_new(const base_prefetch_spec *spec)
{
    base_prefetch *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->spec = *spec;
    p->spec.parts = BY_MAX(spec->parts, 1);
    p->spec.slots = BY_MAX(spec->slots, spec->threads > 0 ? 2 : 1);
    p->item = spec->first;
    p->used = spec->first;
    p->slots = base_alloc_zero((size_t)p->spec.slots, sizeof *p->slots);
    p->threads = base_alloc_zero((size_t)BY_MAX(spec->threads, 1), sizeof *p->threads);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->ready, NULL);
    if (!p->slots || !p->threads) {
        base_prefetch_free(p);
        return NULL;
    }
    while (p->count < spec->threads && pthread_create(&p->threads[p->count], NULL, run, p) == 0)
        p->count++;
    return p;
}

void base_prefetch_free(base_prefetch *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stops = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->count; i++)
        pthread_join(p->threads[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->ready);
    for (int i = 0; p->slots && i < p->spec.slots; i++)
        base_free(p->slots[i].message);
    base_free(p->slots);
    base_free(p->threads);
    base_free(p);
}

/* ---- the caller ---------------------------------------------------------------------------------- */

by_status base_prefetch_next(base_prefetch *p, int *out, double *waited)
{
    const double started = base_seconds();
    pthread_mutex_lock(&p->lock);
    if (p->has) {
        slot_of(p, p->used)->ready = false;
        p->used++;
        pthread_cond_broadcast(&p->work);
    }
    p->has = true;
    const int64_t item = p->used;
    slot *s = slot_of(p, item);
    while (!s->ready && item < p->spec.end) {
        if (p->count == 0)
            do_part(p, find_work(p)); /* no threads: in sequence */
        else
            pthread_cond_wait(&p->ready, &p->lock);
    }
    by_status status =
        item < p->spec.end ? s->status : base_fail(BY_ERR_ARGUMENT, "there is no item %lld", (long long)item);
    if (status != BY_OK && s->message)
        status = base_fail(s->status, "%s", s->message);
    *out = (int)(item % p->spec.slots);
    pthread_mutex_unlock(&p->lock);
    *waited += base_seconds() - started;
    return status;
}
