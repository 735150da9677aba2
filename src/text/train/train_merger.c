/* train_merger.c - merges a pair of symbols in many words (see train_merger.h). */
#include <pthread.h>

#include "text/train/train_merger.h"

#define NONE       UINT32_MAX /* after the last symbol of a word that has become shorter */
#define WORTHWHILE 2048       /* words that justify waking a thread */
#define AHEAD      8          /* words prefetched */

typedef struct event {
    uint32_t neighbour, word; /* the word has a new pair with that neighbour */
} event;

/* The result of one thread. */
typedef struct scan {
    tok_change *sides[2]; /* left and right neighbours, by token */
    uint32_t *touched;
    size_t touched_count;
    event *events;
    size_t event_count, event_capacity;
    by_status status;
} scan;

struct tok_merger {
    const tok_words *words;
    tok_spelling *spelling;
    const uint32_t *lengths;
    scan *scans;             /* one per thread; the first receives the sums */
    int scan_count, threads; /* threads: number that could be started */
    /* the current job */
    const tok_merge *merge;
    const uint32_t *list;
    size_t count;
    int parts; /* threads that take part */
    /* helper threads, which wait for the next job */
    pthread_t *helpers;
    int helper_count; /* number started */
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    uint64_t job;
    int busy;
    bool quit;
};

/* ---- one word -------------------------------------------------------------------------------- */

static inline tok_change *change_of(scan *s, uint32_t neighbour)
{
    return &s->sides[neighbour & TOK_RIGHT ? 1 : 0][neighbour & ~TOK_RIGHT];
}

static inline tok_change *touch(scan *s, uint32_t neighbour)
{
    tok_change *c = change_of(s, neighbour);
    if (!c->touched) {
        c->touched = true;
        s->touched[s->touched_count++] = neighbour;
    }
    return c;
}

/* Records that the neighbour has a new pair in this word. */
static inline void note_gain(scan *s, uint32_t neighbour, uint32_t word, int64_t count)
{
    tok_change *c = touch(s, neighbour);
    c->gained += count;
    if (c->last == word + 1)
        return;
    c->last = word + 1;
    c->n++;
    s->events[s->event_count++] = (event){neighbour, word};
}

static by_status reserve_events(scan *s, size_t extra)
{
    if (s->event_count + extra <= s->event_capacity)
        return BY_OK;
    size_t capacity = BY_MAX(s->event_capacity * 2, s->event_count + extra);
    event *events = base_resize(s->events, capacity, sizeof(*events));
    if (!events)
        return BY_ERR_MEMORY;
    s->events = events;
    s->event_capacity = capacity;
    return BY_OK;
}

static by_status merge_word(const tok_merger *m, scan *s, uint32_t word)
{
    const tok_merge g = *m->merge;
    uint32_t *first = m->spelling->symbols + m->spelling->starts[word],
             *end = m->spelling->symbols + m->spelling->starts[word + 1];
    uint32_t *in = first, *out = first;
    int64_t count = (int64_t)m->words->items[word].count;
    BY_TRY(reserve_events(s, 2 * (size_t)(end - first)));
    while (in < end && *in != NONE) {
        if (*in != g.left || in + 1 >= end || in[1] != g.right) {
            *out++ = *in++;
            continue;
        }
        if (out > first) {
            touch(s, out[-1])->lost += count;
            if (m->lengths[out[-1]] < g.longest)
                note_gain(s, out[-1], word, count);
        }
        *out++ = g.merged;
        in += 2;
        if (in < end && *in != NONE) {
            touch(s, *in | TOK_RIGHT)->lost += count;
            if (m->lengths[*in] < g.longest)
                note_gain(s, *in == g.merged ? *in : *in | TOK_RIGHT, word, count);
        }
    }
    if (out < end)
        *out = NONE;
    return BY_OK;
}

/* ---- many words ------------------------------------------------------------------------------ */

/* Processes the part of the list that belongs to this thread. */
static void merge_part(tok_merger *m, int thread)
{
    scan *s = &m->scans[thread];
    size_t first = m->count * (size_t)thread / (size_t)m->parts,
           end = m->count * ((size_t)thread + 1) / (size_t)m->parts;
    s->status = BY_OK;
    for (size_t i = first; i < end && s->status == BY_OK; i++) {
        if (i + AHEAD < end)
            __builtin_prefetch(&m->spelling->symbols[m->spelling->starts[m->list[i + AHEAD]]]);
        s->status = merge_word(m, s, m->list[i]);
    }
}

static void *help(void *argument)
{
    tok_merger *m = argument;
    pthread_mutex_lock(&m->lock);
    int thread = ++m->helper_count; /* numbered in order of arrival */
    for (uint64_t seen = 0;;) {
        while (m->job == seen && !m->quit)
            pthread_cond_wait(&m->start, &m->lock);
        if (m->quit)
            break;
        seen = m->job;
        if (thread >= m->parts)
            continue;
        pthread_mutex_unlock(&m->lock);
        merge_part(m, thread);
        pthread_mutex_lock(&m->lock);
        if (--m->busy == 0)
            pthread_cond_signal(&m->done);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* Adds the changes of all threads to the first scan. */
static void add_up(tok_merger *m)
{
    scan *sum = &m->scans[0];
    for (int t = 1; t < m->parts; t++)
        for (size_t i = 0; i < m->scans[t].touched_count; i++) {
            uint32_t neighbour = m->scans[t].touched[i];
            tok_change *from = change_of(&m->scans[t], neighbour), *to = touch(sum, neighbour);
            to->lost += from->lost;
            to->gained += from->gained;
            to->n += from->n;
            *from = (tok_change){0};
        }
}

by_status tok_merger_run(tok_merger *m, const tok_merge *merge, const uint32_t *words, size_t count,
                         const uint32_t **touched, size_t *touched_count)
{
    size_t worth = count / WORTHWHILE;
    pthread_mutex_lock(&m->lock);
    m->merge = merge;
    m->list = words;
    m->count = count;
    m->parts = worth < 2 ? 1 : (int)BY_MIN(worth, (size_t)m->threads);
    m->busy = m->parts - 1;
    if (m->busy) {
        m->job++;
        pthread_cond_broadcast(&m->start);
    }
    pthread_mutex_unlock(&m->lock);
    merge_part(m, 0);
    pthread_mutex_lock(&m->lock);
    while (m->busy)
        pthread_cond_wait(&m->done, &m->lock);
    pthread_mutex_unlock(&m->lock);
    for (int t = 0; t < m->parts; t++)
        if (m->scans[t].status != BY_OK)
            return base_fail(m->scans[t].status, "out of memory while merging a pair in %zu words", count);
    add_up(m);
    *touched = m->scans[0].touched;
    *touched_count = m->scans[0].touched_count;
    return BY_OK;
}

tok_change *tok_merger_change(tok_merger *m, uint32_t neighbour)
{
    return change_of(&m->scans[0], neighbour);
}

void tok_merger_list(tok_merger *m)
{
    scan *sum = &m->scans[0];
    for (int t = 0; t < m->parts; t++) {
        scan *s = &m->scans[t];
        for (size_t i = 0; i < s->event_count; i++) {
            tok_change *c = change_of(sum, s->events[i].neighbour);
            if (c->words)
                *c->words++ = s->events[i].word;
        }
        s->event_count = 0;
    }
    for (size_t i = 0; i < sum->touched_count; i++)
        *change_of(sum, sum->touched[i]) = (tok_change){0};
    for (int t = 0; t < m->parts; t++)
        m->scans[t].touched_count = 0;
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static by_status open_scan(scan *s, size_t room)
{
    s->sides[0] = base_alloc_zero(room, sizeof(*s->sides[0]));
    s->sides[1] = base_alloc_zero(room, sizeof(*s->sides[1]));
    s->touched = base_alloc(2 * room * sizeof(*s->touched));
    return s->sides[0] && s->sides[1] && s->touched ? BY_OK : BY_ERR_MEMORY;
}

/* Threads that cannot be started are not an error. */
static by_status open_threads(tok_merger *m, size_t room, int threads)
{
    m->scans = base_alloc_zero((size_t)threads, sizeof(*m->scans));
    m->scan_count = m->scans ? threads : 0;
    m->helpers = base_alloc((size_t)threads * sizeof(*m->helpers));
    if (!m->scans || !m->helpers)
        return BY_ERR_MEMORY;
    m->threads = 1;
    for (int t = 0; t < threads; t++) {
        BY_TRY(open_scan(&m->scans[t], room));
        if (t > 0 && pthread_create(&m->helpers[t - 1], NULL, help, m) != 0)
            break;
        m->threads = t + 1;
    }
    return BY_OK;
}

tok_merger *tok_merger_new(const tok_words *words, tok_spelling *spelling, const uint32_t *lengths,
                           size_t room, int threads)
{
    tok_merger *m = base_alloc_zero(1, sizeof(*m));
    if (!m)
        return NULL;
    m->words = words;
    m->spelling = spelling;
    m->lengths = lengths;
    m->parts = 1;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->start, NULL);
    pthread_cond_init(&m->done, NULL);
    if (open_threads(m, room, BY_MAX(threads, 1)) == BY_OK)
        return m;
    tok_merger_free(m);
    return NULL;
}

void tok_merger_free(tok_merger *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->quit = true;
    pthread_cond_broadcast(&m->start);
    pthread_mutex_unlock(&m->lock);
    for (int t = 1; t < m->threads; t++)
        pthread_join(m->helpers[t - 1], NULL);
    for (int t = 0; t < m->scan_count; t++) {
        base_free(m->scans[t].sides[0]);
        base_free(m->scans[t].sides[1]);
        base_free(m->scans[t].touched);
        base_free(m->scans[t].events);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->start);
    pthread_cond_destroy(&m->done);
    base_free(m->scans);
    base_free(m->helpers);
    base_free(m);
}
