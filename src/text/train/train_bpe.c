/* train_bpe.c - byte-pair encoding (Sennrich et al. 2016): repeatedly merges the most frequent adjacent pair.
 * Merges and ids equal those of the reference trainer: of equally frequent pairs the one with the lowest ids
 * comes first, and pairs wait in a queue with the words in which they were seen, their counts corrected only
 * when they reach the front. */
#include "text/train/train_merger.h"

#define BLOCK     ((size_t)1 << 18) /* words per block of lists */
#define LONG_LIST 4096              /* in words; a longer list is freed as soon as its merge is done */

typedef struct pair_slot {
    uint64_t key; /* left << 32 | right; UINT64_MAX: free */
    int64_t count;
} pair_slot;

/* A pair waiting to be merged in the words of its list. */
typedef struct entry {
    uint64_t count;
    uint32_t left, right;
    uint32_t *words;
    uint32_t n, step; /* step: when it was queued */
} entry;

typedef struct list_block {
    struct list_block *next;
    uint32_t words[];
} list_block;

typedef struct bpe {
    const by_vocab_spec *spec;
    const tok_words *words;
    tok_trained *out;
    tok_spelling spelling;
    uint32_t *lengths; /* length of each token, in characters */
    pair_slot *pairs;
    size_t pair_count, mask;
    entry *heap;
    size_t heap_count, heap_capacity;
    list_block *blocks;
    size_t block_used;
    tok_merger *merger;
    uint32_t step;
    int merge_capacity;
} bpe;

/* ---- counts of pairs ------------------------------------------------------------------------- */

static inline uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

static inline size_t pair_place(const bpe *b, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    return (size_t)((h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u >> 20) & b->mask;
}

/* Returns the slot of a pair, which is created if new. There must be room for it. */
static pair_slot *pair_at(bpe *b, uint32_t left, uint32_t right)
{
    uint64_t key = pair_key(left, right);
    size_t at = pair_place(b, key);
    while (b->pairs[at].key != key && b->pairs[at].key != UINT64_MAX)
        at = (at + 1) & b->mask;
    if (b->pairs[at].key != key) {
        b->pairs[at] = (pair_slot){key, 0};
        b->pair_count++;
    }
    return &b->pairs[at];
}

static by_status reserve_pairs(bpe *b, size_t extra)
{
    size_t size = b->pairs ? b->mask + 1 : 1 << 16;
    while ((b->pair_count + extra) * 8 > size * 7)
        size *= 2;
    if (b->pairs && size == b->mask + 1)
        return BY_OK;
    pair_slot *old = b->pairs, *pairs = base_alloc(size * sizeof(*pairs));
    size_t old_size = old ? b->mask + 1 : 0;
    if (!pairs)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < size; i++)
        pairs[i].key = UINT64_MAX;
    b->pairs = pairs;
    b->mask = size - 1;
    b->pair_count = 0;
    for (size_t i = 0; i < old_size; i++)
        if (old[i].key != UINT64_MAX)
            pair_at(b, (uint32_t)(old[i].key >> 32), (uint32_t)old[i].key)->count = old[i].count;
    base_free(old);
    return BY_OK;
}

/* ---- the queue: a binary heap ---------------------------------------------------------------- */

/* Frequent pairs first, then low ids. A pair can be queued twice, with different words: the older comes
 * first. */
static inline bool before(const entry *x, const entry *y)
{
    if (x->count != y->count)
        return x->count > y->count;
    uint64_t a = pair_key(x->left, x->right), b = pair_key(y->left, y->right);
    return a != b ? a < b : x->step < y->step;
}

static by_status heap_push(bpe *b, entry e)
{
    if (b->heap_count == b->heap_capacity) {
        size_t capacity = BY_MAX(b->heap_capacity + b->heap_capacity / 2, (size_t)1024);
        entry *heap = base_resize(b->heap, capacity, sizeof(*heap));
        if (!heap)
            return BY_ERR_MEMORY;
        b->heap = heap;
        b->heap_capacity = capacity;
    }
    size_t at = b->heap_count++;
    while (at > 0 && before(&e, &b->heap[(at - 1) / 2])) {
        b->heap[at] = b->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    b->heap[at] = e;
    return BY_OK;
}

/* Moves e, which is no longer the first, to its position. */
static void heap_sink(bpe *b, entry e)
{
    size_t at = 0, child;
    while ((child = 2 * at + 1) < b->heap_count) {
        child += child + 1 < b->heap_count && before(&b->heap[child + 1], &b->heap[child]);
        if (!before(&b->heap[child], &e))
            break;
        b->heap[at] = b->heap[child];
        at = child;
    }
    b->heap[at] = e;
}

static entry heap_pop(bpe *b)
{
    entry top = b->heap[0];
    if (--b->heap_count)
        heap_sink(b, b->heap[b->heap_count]);
    return top;
}

/* ---- lists of words -------------------------------------------------------------------------- */

/* Long lists are separate allocations; short ones share blocks that live until the end. */
static uint32_t *list_new(bpe *b, size_t n)
{
    if (n >= LONG_LIST)
        return base_alloc(n * sizeof(uint32_t));
    if (!b->blocks || b->block_used + n > BLOCK) {
        list_block *block = base_alloc(sizeof(*block) + BLOCK * sizeof(uint32_t));
        if (!block)
            return NULL;
        block->next = b->blocks;
        b->blocks = block;
        b->block_used = 0;
    }
    uint32_t *list = b->blocks->words + b->block_used;
    b->block_used += n;
    return list;
}

static void list_free(entry *e)
{
    if (e->n >= LONG_LIST)
        base_free(e->words);
    e->words = NULL;
}

/* ---- one merge ------------------------------------------------------------------------------- */

/* The pairs of a neighbour before and after a merge. */
static pair_slot *lost_pair(bpe *b, const tok_merge *m, uint32_t t)
{
    return t & TOK_RIGHT ? pair_at(b, m->right, t & ~TOK_RIGHT) : pair_at(b, t, m->left);
}

static pair_slot *gained_pair(bpe *b, const tok_merge *m, uint32_t t)
{
    return t & TOK_RIGHT ? pair_at(b, m->merged, t & ~TOK_RIGHT) : pair_at(b, t, m->merged);
}

/* Queues a pair that appeared in c->n words. Pairs below the limit are only counted. */
static by_status queue_pair(bpe *b, const pair_slot *p, tok_change *c)
{
    if (p->count < b->spec->min_frequency)
        return BY_OK;
    c->words = list_new(b, c->n);
    if (!c->words)
        return BY_ERR_MEMORY;
    return heap_push(
        b, (entry){(uint64_t)p->count, (uint32_t)(p->key >> 32), (uint32_t)p->key, c->words, c->n, b->step});
}

/* Merges a pair in its words and applies the changes to the counts, then to the queue. */
static by_status merge_words(bpe *b, const entry *e, uint32_t merged)
{
    size_t most = b->spec->max_token_length > 0 ? (size_t)b->spec->max_token_length : UINT32_MAX;
    size_t length = b->lengths[merged], count;
    tok_merge m = {e->left, e->right, merged, (uint32_t)(most > length ? most - length : 0)};
    const uint32_t *touched;
    BY_TRY(tok_merger_run(b->merger, &m, e->words, e->n, &touched, &count));
    BY_TRY(reserve_pairs(b, 2 * count));
    b->step++;
    for (size_t i = 0; i < count; i++) {
        const tok_change *c = tok_merger_change(b->merger, touched[i]);
        if (c->lost)
            lost_pair(b, &m, touched[i])->count -= c->lost;
        if (c->n)
            gained_pair(b, &m, touched[i])->count += c->gained;
    }
    for (size_t i = 0; i < count; i++) {
        tok_change *c = tok_merger_change(b->merger, touched[i]);
        if (c->n)
            BY_TRY(queue_pair(b, gained_pair(b, &m, touched[i]), c));
    }
    tok_merger_list(b->merger);
    return BY_OK;
}

/* ---- the first pairs ------------------------------------------------------------------------- */

typedef by_status pair_fn(bpe *b, pair_slot *p, uint32_t word);

/* Calls fn for each adjacent pair in each word. */
static by_status each_pair(bpe *b, pair_fn *fn)
{
    const tok_spelling *s = &b->spelling;
    for (size_t w = 0; w < b->words->count; w++)
        for (size_t i = s->starts[w]; i + 1 < s->starts[w + 1]; i++)
            BY_TRY(fn(b, pair_at(b, s->symbols[i], s->symbols[i + 1]), (uint32_t)w));
    return BY_OK;
}

static by_status count_pair(bpe *b, pair_slot *p, uint32_t word)
{
    p->count += (int64_t)b->words->items[word].count;
    return reserve_pairs(b, 1);
}

/* While lists are built, a slot holds the index of its entry instead of the count, or -1. entry.step is the
 * last word, plus 1. */
static by_status count_word(bpe *b, pair_slot *p, uint32_t word)
{
    entry *e = p->count >= 0 ? &b->heap[p->count] : NULL;
    if (e && e->step != word + 1) {
        e->step = word + 1;
        e->n++;
    }
    return BY_OK;
}

static by_status list_word(bpe *b, pair_slot *p, uint32_t word)
{
    entry *e = p->count >= 0 ? &b->heap[p->count] : NULL;
    if (e && e->step != word + 1) {
        e->step = word + 1;
        *e->words++ = word;
    }
    return BY_OK;
}

/* Makes an unordered entry for each pair that is frequent enough. */
static void make_entries(bpe *b, int64_t *rare)
{
    for (size_t i = 0; i <= b->mask; i++) {
        pair_slot *p = &b->pairs[i];
        if (p->key == UINT64_MAX)
            continue;
        if (p->count < b->spec->min_frequency) {
            *rare++ = p->count;
            p->count = -1;
            continue;
        }
        size_t at = b->heap_count++;
        b->heap[at] = (entry){(uint64_t)p->count, (uint32_t)(p->key >> 32), (uint32_t)p->key, NULL, 0, 0};
        p->count = (int64_t)at;
    }
}

/* Restores the counts to their slots, in the same order, and orders the entries as a heap. */
static void order_entries(bpe *b, const int64_t *rare)
{
    for (size_t i = 0; i <= b->mask; i++)
        if (b->pairs[i].key != UINT64_MAX)
            b->pairs[i].count = b->pairs[i].count < 0 ? *rare++ : (int64_t)b->heap[b->pairs[i].count].count;
    size_t count = b->heap_count;
    b->heap_count = 0;
    for (size_t i = 0; i < count; i++) {
        entry e = b->heap[i];
        e.words -= e.n;
        e.step = 0;
        heap_push(b, e); /* there is room */
    }
}

static by_status first_pairs(bpe *b)
{
    BY_TRY(reserve_pairs(b, 1));
    BY_TRY(each_pair(b, count_pair));
    int64_t *rare = base_alloc((b->pair_count + 1) * sizeof(*rare));
    b->heap = base_alloc((b->pair_count + 1) * sizeof(*b->heap));
    b->heap_capacity = b->pair_count + 1;
    by_status s = rare && b->heap ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK) {
        make_entries(b, rare);
        s = each_pair(b, count_word);
    }
    for (size_t i = 0; i < b->heap_count && s == BY_OK; i++) {
        b->heap[i].step = 0;
        b->heap[i].words = list_new(b, b->heap[i].n);
        s = b->heap[i].words ? BY_OK : BY_ERR_MEMORY;
    }
    if (s == BY_OK)
        s = each_pair(b, list_word);
    if (s == BY_OK)
        order_entries(b, rare);
    else
        b->heap_count = 0; /* their lists are incomplete */
    base_free(rare);
    return s;
}

/* ---- merging --------------------------------------------------------------------------------- */

/* Returns the token made of left and right, which may already exist. */
static by_status add_merged(bpe *b, const entry *e, base_buf *text, int32_t *id)
{
    tok_vocab *v = &b->out->vocab;
    tok_token left = v->tokens[e->left], right = v->tokens[e->right];
    size_t skip = b->spec->prefix ? strlen(b->spec->prefix) : 0;
    if (skip > right.size || memcmp(right.text, b->spec->prefix ? b->spec->prefix : "", skip) != 0)
        skip = 0;
    text->size = 0;
    base_buf_put(text, left.text, left.size);
    base_buf_put(text, right.text + skip, right.size - skip);
    if (text->failed)
        return base_fail(BY_ERR_MEMORY, "out of memory while creating a token");
    *id = tok_vocab_find(v, text->data, text->size);
    if (*id >= 0)
        return BY_OK;
    *id = v->count;
    b->lengths[*id] = b->lengths[e->left] + b->lengths[e->right];
    return tok_vocab_put(v, text->data, text->size, *id);
}

static by_status add_merge(bpe *b, const entry *e)
{
    tok_trained *t = b->out;
    if (t->merge_count == b->merge_capacity) {
        int capacity = b->merge_capacity * 2 + 1024;
        tok_merge_pair *merges = base_resize(t->merges, (size_t)capacity, sizeof(*merges));
        if (!merges)
            return BY_ERR_MEMORY;
        t->merges = merges;
        b->merge_capacity = capacity;
    }
    t->merges[t->merge_count++] = (tok_merge_pair){(int32_t)e->left, (int32_t)e->right};
    return BY_OK;
}

static by_status merge_top(bpe *b, entry *top, base_buf *text)
{
    int32_t merged = -1;
    BY_TRY(add_merged(b, top, text, &merged));
    BY_TRY(add_merge(b, top));
    return merge_words(b, top, (uint32_t)merged);
}

/* Takes pairs from the queue until the vocabulary is full or no pair is frequent enough. */
static by_status merge_all(bpe *b, base_buf *text)
{
    double shown = base_seconds();
    const tok_vocab *v = &b->out->vocab;
    while (v->count < b->spec->size && b->heap_count) {
        entry top = heap_pop(b);
        int64_t count = pair_at(b, top.left, top.right)->count;
        by_status s = BY_OK;
        if (count < b->spec->min_frequency) {
            list_free(&top);
        } else if (top.count != (uint64_t)count) { /* changed since it was queued: queue it again */
            top.count = (uint64_t)count;
            s = heap_push(b, top);
        } else {
            s = merge_top(b, &top, text);
            list_free(&top);
        }
        if (s == BY_OK && b->step % 64 == 0 && base_seconds() - shown > 0.05) {
            shown = base_seconds();
            s = tok_train_progress(b->spec, "merge", v->count, b->spec->size, (int64_t)b->words->count);
        }
        BY_TRY(s);
    }
    return BY_OK;
}

/* A pair that was merged twice counts only the second time, because merges are looked up by pair. */
static void drop_repeated(bpe *b)
{
    tok_trained *t = b->out;
    int kept = t->merge_count;
    for (int i = t->merge_count; i-- > 0;) {
        pair_slot *p = pair_at(b, (uint32_t)t->merges[i].left, (uint32_t)t->merges[i].right);
        if (p->count != INT64_MIN)
            t->merges[--kept] = t->merges[i];
        p->count = INT64_MIN; /* counts are no longer needed */
    }
    t->merge_count -= kept;
    if (t->merge_count)
        memmove(t->merges, t->merges + kept, (size_t)t->merge_count * sizeof(*t->merges));
}

static by_status train(bpe *b)
{
    BY_TRY(tok_spell_words(b->spec, b->words, b->out, &b->spelling));
    size_t room = (size_t)BY_MAX(b->spec->size, b->out->vocab.count) + 1;
    b->lengths = base_alloc(room * sizeof(*b->lengths));
    b->merger = tok_merger_new(b->words, &b->spelling, b->lengths, room, b->spec->threads);
    if (!b->lengths || !b->merger)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < room; i++)
        b->lengths[i] = 1;
    BY_TRY(first_pairs(b));
    base_buf text = {0};
    by_status s = merge_all(b, &text);
    base_buf_free(&text);
    if (s == BY_OK)
        drop_repeated(b);
    return s;
}

static void free_lists(bpe *b)
{
    for (size_t i = 0; i < b->heap_count; i++)
        list_free(&b->heap[i]);
    for (list_block *block = b->blocks, *next; block; block = next) {
        next = block->next;
        base_free(block);
    }
}

by_status tok_bpe_train(const by_vocab_spec *spec, const tok_words *words, tok_trained *out)
{
    bpe b = {.spec = spec, .words = words, .out = out};
    by_status s =
        words->count < UINT32_MAX - 1 ? train(&b) : base_fail(BY_ERR_MEMORY, "too many distinct words");
    tok_merger_free(b.merger);
    free_lists(&b);
    tok_spelling_free(&b.spelling);
    base_free(b.lengths);
    base_free(b.pairs);
    base_free(b.heap);
    return s;
}
