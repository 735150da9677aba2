/* trie.c - builds the double array: tokens are sorted, and the children of each node are placed where all of
 * them fit. */
#include <stdlib.h>

#include "text/trie.h"

#define MAX_NODES (1 << 26)
#define TRIES     64 /* positions tried for the children of one node */

typedef struct entry {
    const uint8_t *text;
    uint32_t size;
    int32_t id;
} entry;

/* A node whose children are still to be placed: entries [first, last) share `depth` bytes. */
typedef struct job {
    int32_t node;
    uint32_t first, last, depth;
} job;

typedef struct builder {
    tok_trie *trie;
    int32_t capacity;
    int32_t *jump; /* a free position points to itself, an occupied one to some position after it */
    entry *entries;
    uint32_t count;
    job *jobs;
    size_t job_count, job_capacity;
} builder;

static int compare(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int c = memcmp(x->text, y->text, BY_MIN(x->size, y->size));
    if (c == 0)
        c = (x->size > y->size) - (x->size < y->size);
    return c ? c : (x->id > y->id) - (x->id < y->id);
}

static by_status reserve(builder *b, int32_t count)
{
    if (count > MAX_NODES)
        return base_fail(BY_ERR_FORMAT, "a vocabulary is too large for its trie");
    if (count > b->capacity) {
        int32_t capacity = BY_MAX(count, b->capacity * 2);
        tok_trie_node *nodes = base_resize(b->trie->nodes, (size_t)capacity, sizeof(*nodes));
        if (!nodes)
            return BY_ERR_MEMORY;
        b->trie->nodes = nodes;
        int32_t *jump = base_resize(b->jump, (size_t)capacity, sizeof(*jump));
        if (!jump)
            return BY_ERR_MEMORY;
        b->jump = jump;
        for (int32_t i = b->capacity; i < capacity; i++) {
            nodes[i] = (tok_trie_node){0, -1, -1};
            jump[i] = i;
        }
        b->capacity = capacity;
    }
    b->trie->count = BY_MAX(b->trie->count, count);
    return BY_OK;
}

static by_status push_job(builder *b, job j)
{
    if (b->job_count == b->job_capacity) {
        size_t capacity = BY_MAX(b->job_capacity * 2, (size_t)256);
        job *jobs = base_resize(b->jobs, capacity, sizeof(*jobs));
        if (!jobs)
            return BY_ERR_MEMORY;
        b->jobs = jobs;
        b->job_capacity = capacity;
    }
    b->jobs[b->job_count++] = j;
    return BY_OK;
}

/* Returns the first free position from `at` on, one past the end if all are occupied. Halves paths on the
 * way. */
static int32_t next_free(builder *b, int32_t at)
{
    while (at < b->capacity && b->jump[at] != at) {
        if (b->jump[at] < b->capacity)
            b->jump[at] = b->jump[b->jump[at]];
        at = b->jump[at];
    }
    return at;
}

/* Finds a base where every label falls on a free position: among the first few free ones, otherwise after all
 * nodes. */
static by_status find_base(builder *b, const uint8_t *labels, int n, int32_t *base)
{
    int32_t at = next_free(b, labels[0] + 1);
    for (int tries = 0;; tries++, at = next_free(b, at + 1)) {
        if (tries == TRIES)
            at = BY_MAX(b->trie->count, labels[0] + 1);
        BY_TRY(reserve(b, at - labels[0] + 256));
        int32_t start = at - labels[0];
        int k = 0;
        while (k < n && b->trie->nodes[start + labels[k]].check < 0)
            k++;
        if (k == n) {
            *base = start;
            return BY_OK;
        }
    }
}

static by_status place(builder *b, job j)
{
    uint8_t labels[256];
    uint32_t firsts[257];
    int n = 0;
    uint32_t i = j.first;
    for (; i < j.last && b->entries[i].size == j.depth; i++)
        b->trie->nodes[j.node].id = b->entries[i].id;
    for (; i < j.last; i++) {
        uint8_t c = b->entries[i].text[j.depth];
        if (n == 0 || labels[n - 1] != c) {
            labels[n] = c;
            firsts[n++] = i;
        }
    }
    firsts[n] = j.last;
    if (n == 0)
        return BY_OK;
    int32_t base = 0;
    BY_TRY(find_base(b, labels, n, &base));
    b->trie->nodes[j.node].base = base;
    for (int k = 0; k < n; k++) {
        b->trie->nodes[base + labels[k]].check = j.node;
        b->jump[base + labels[k]] = base + labels[k] + 1;
    }
    for (int k = 0; k < n; k++)
        BY_TRY(push_job(b, (job){base + labels[k], firsts[k], firsts[k + 1], j.depth + 1}));
    return BY_OK;
}

by_status tok_trie_build(tok_trie *t, const tok_vocab *v, const bool *keep)
{
    builder b = {.trie = t};
    *t = (tok_trie){0};
    b.entries = base_alloc_zero((size_t)v->count + 1, sizeof(*b.entries));
    by_status status = b.entries ? reserve(&b, 512) : BY_ERR_MEMORY;
    if (status == BY_OK) {
        t->nodes[0].check = 0;
        b.jump[0] = 1;
        for (int id = 0; id < v->count; id++)
            if (v->tokens[id].text && v->tokens[id].size && (!keep || keep[id]))
                b.entries[b.count++] = (entry){(const uint8_t *)v->tokens[id].text, v->tokens[id].size, id};
        qsort(b.entries, b.count, sizeof(*b.entries), compare);
        status = push_job(&b, (job){0, 0, b.count, 0});
    }
    while (status == BY_OK && b.job_count)
        status = place(&b, b.jobs[--b.job_count]);
    if (status == BY_OK) /* a step from any node must stay inside */
        status = reserve(&b, t->count + 256);
    base_free(b.entries);
    base_free(b.jobs);
    base_free(b.jump);
    if (status != BY_OK)
        tok_trie_free(t);
    return status;
}

void tok_trie_free(tok_trie *t)
{
    base_free(t->nodes);
    *t = (tok_trie){0};
}
