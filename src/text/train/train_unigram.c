/* train_unigram.c - the unigram language model (Kudo 2018): starts with many pieces, fits their probabilities
 * to the words by expectation maximisation, removes the quarter that matters least, and repeats until few
 * enough are left.
 *
 * Expected counts are summed as integers, in units of a small fraction, so that the sums, and hence the
 * vocabulary, do not depend on the number of threads or the order of the words. */
#include <math.h>
#include <stdlib.h>

#include "text/train/train.h"
#include "text/trie.h"

#define UNKNOWN_PENALTY 10.0
#define LEAST_EXPECTED  0.5            /* pieces with a lower expected count are removed */
#define STRETCH         ((size_t)4096) /* bytes of a word at a time; words without spaces can be long */
#define BATCH           512            /* words that a thread takes at a time */

typedef struct unigram {
    const by_vocab_spec *spec;
    const tok_words *words;
    tok_candidate *pieces;
    size_t count;
    bool *gone; /* by piece: removed since the trie was built */
    tok_trie trie;
    double unknown; /* score of a character that no piece covers */
    double unit;    /* expected counts are multiples of 1 / unit */
    _Atomic size_t next;
    int64_t **sums; /* by thread and piece */
    double all;     /* tokens of the text, when losses are measured */
    struct loss *losses;
} unigram;

/* One way to cover bytes [start, end) of a word. */
typedef struct edge {
    uint32_t start, end;
    int32_t id; /* -1: unknown */
    double score;
} edge;

/* A sum of exponentials, stored as highest + log(rest). */
typedef struct log_sum {
    double highest, rest;
} log_sum;

typedef struct lattice {
    edge *edges;
    size_t count, capacity;
    log_sum *forward, *backward; /* by position */
    uint32_t *best;              /* by position: the edge that ends there, plus 1 */
    size_t room;                 /* capacity, in positions */
} lattice;

/* ---- the lattice of a word ------------------------------------------------------------------- */

static void lattice_free(lattice *l)
{
    base_free(l->edges);
    base_free(l->forward);
    base_free(l->backward);
    base_free(l->best);
}

static by_status lattice_reserve(lattice *l, size_t positions, size_t edges)
{
    if (positions > l->room) {
        l->room = positions * 2;
        base_free(l->forward);
        base_free(l->backward);
        base_free(l->best);
        l->forward = base_alloc(l->room * sizeof(*l->forward));
        l->backward = base_alloc(l->room * sizeof(*l->backward));
        l->best = base_alloc(l->room * sizeof(*l->best));
        if (!l->forward || !l->backward || !l->best)
            return BY_ERR_MEMORY;
    }
    if (l->count + edges > l->capacity) {
        size_t capacity = (l->count + edges) * 2;
        edge *more = base_resize(l->edges, capacity, sizeof(*more));
        if (!more)
            return BY_ERR_MEMORY;
        l->edges = more;
        l->capacity = capacity;
    }
    return BY_OK;
}

/* Builds all edges, in the order of their starts; `without` is a piece that must not be used, or -1. */
static by_status lattice_build(const unigram *u, lattice *l, const char *text, size_t size, int32_t without)
{
    l->count = 0;
    for (size_t i = 0; i < size;) {
        uint32_t c;
        size_t n = (size_t)BY_MAX(tok_utf8_decode((const uint8_t *)text + i, size - i, &c), 1);
        bool single = false;
        int32_t node = 0;
        BY_TRY(lattice_reserve(l, size + 1, (size_t)u->spec->max_token_length + 1));
        for (size_t k = i; k < size && (node = tok_trie_step(&u->trie, node, (uint8_t)text[k])) >= 0; k++) {
            int32_t id = u->trie.nodes[node].id;
            if (id < 0 || u->gone[id] || id == without)
                continue;
            l->edges[l->count++] = (edge){(uint32_t)i, (uint32_t)k + 1, id, u->pieces[id].score};
            single = single || k + 1 == i + n;
        }
        if (!single)
            l->edges[l->count++] = (edge){(uint32_t)i, (uint32_t)(i + n), -1, u->unknown};
        i += n;
    }
    return BY_OK;
}

static inline void add_exp(log_sum *s, double x)
{
    if (x <= s->highest) {
        s->rest += exp(x - s->highest);
    } else {
        s->rest = s->rest * exp(s->highest - x) + 1;
        s->highest = x;
    }
}

/* Call once everything is added: highest becomes the sum itself. */
static inline void close_sum(log_sum *s)
{
    s->highest += log(s->rest);
}

/* Adds the expected count of each piece in `count` such words. */
static void lattice_expect(lattice *l, size_t size, double count, int64_t *sums)
{
    for (size_t i = 0; i <= size; i++)
        l->forward[i] = l->backward[i] = (log_sum){-HUGE_VAL, 0};
    l->forward[0] = (log_sum){0, 1};
    for (size_t k = 0; k < l->count; k++) {
        const edge *e = &l->edges[k];
        if (k == 0 || e->start != e[-1].start)
            close_sum(&l->forward[e->start]);
        add_exp(&l->forward[e->end], l->forward[e->start].highest + e->score);
    }
    close_sum(&l->forward[size]);
    double whole = l->forward[size].highest;
    l->backward[size] = (log_sum){0, 1};
    for (size_t k = l->count; k-- > 0;) {
        const edge *e = &l->edges[k];
        double after = l->backward[e->end].highest + e->score;
        add_exp(&l->backward[e->start], after);
        if (k == 0 || e[-1].start != e->start)
            close_sum(&l->backward[e->start]);
        if (e->id >= 0)
            sums[e->id] += llrint(exp(l->forward[e->start].highest + after - whole) * count);
    }
}

/* Finds the most probable path, as links from the end. Returns its score. */
static double lattice_best(lattice *l, size_t size)
{
    for (size_t i = 0; i <= size; i++)
        l->best[i] = 0;
    l->forward[0].highest = 0;
    for (size_t k = 0; k < l->count; k++) {
        const edge *e = &l->edges[k];
        double score = l->forward[e->start].highest + e->score;
        if (!l->best[e->end] || score > l->forward[e->end].highest) {
            l->best[e->end] = (uint32_t)k + 1;
            l->forward[e->end].highest = score;
        }
    }
    return l->forward[size].highest;
}

/* ---- over all words, on all threads ---------------------------------------------------------- */

typedef void stretch_fn(unigram *u, lattice *l, size_t size, uint64_t count, int64_t *sums);

static void expect_stretch(unigram *u, lattice *l, size_t size, uint64_t count, int64_t *sums)
{
    lattice_expect(l, size, (double)count * u->unit, sums);
}

static void spell_stretch(unigram *u, lattice *l, size_t size, uint64_t count, int64_t *sums)
{
    (void)u;
    lattice_best(l, size);
    for (size_t at = size; at > 0; at = l->edges[l->best[at] - 1].start) {
        int32_t id = l->edges[l->best[at] - 1].id;
        if (id >= 0)
            sums[id] += (int64_t)count;
    }
}

static by_status take_words(unigram *u, int thread, stretch_fn *fn)
{
    lattice l = {0};
    by_status s = BY_OK;
    for (size_t first; s == BY_OK && (first = atomic_fetch_add(&u->next, BATCH)) < u->words->count;)
        for (size_t w = first; w < BY_MIN(first + BATCH, u->words->count) && s == BY_OK; w++) {
            const tok_word *word = &u->words->items[w];
            for (size_t i = 0, n; i < word->size && s == BY_OK; i += n) {
                n = word->size - i;
                if (n > STRETCH)
                    n = tok_utf8_cut((const uint8_t *)word->text + i, STRETCH);
                s = lattice_build(u, &l, word->text + i, n, -1);
                if (s == BY_OK)
                    fn(u, &l, n, word->count, u->sums[thread]);
            }
        }
    lattice_free(&l);
    return s;
}

static by_status expect_work(void *user, int thread)
{
    return take_words(user, thread, expect_stretch);
}

static by_status spell_work(void *user, int thread)
{
    return take_words(user, thread, spell_stretch);
}

/* Runs work on all threads; u->sums[0] then has the sums of all. */
static by_status sum_words(unigram *u, by_status (*work)(void *, int))
{
    for (int t = 0; t < u->spec->threads; t++)
        memset(u->sums[t], 0, u->count * sizeof(int64_t));
    atomic_store(&u->next, 0);
    BY_TRY(base_parallel(u->spec->threads, work, u));
    for (int t = 1; t < u->spec->threads; t++)
        for (size_t i = 0; i < u->count; i++)
            u->sums[0][i] += u->sums[t][i];
    return BY_OK;
}

/* ---- one round ------------------------------------------------------------------------------- */

/* Removes the pieces that are gone and indexes the others. */
static by_status index_pieces(unigram *u)
{
    size_t n = 0;
    for (size_t i = 0; i < u->count; i++)
        if (!u->gone[i])
            u->pieces[n++] = u->pieces[i];
    u->count = n;
    memset(u->gone, 0, n * sizeof(*u->gone));
    tok_token *tokens = base_alloc((n + 1) * sizeof(*tokens));
    if (!tokens)
        return BY_ERR_MEMORY;
    double least = 0;
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (tok_token){u->pieces[i].text, u->pieces[i].size};
        least = BY_MIN(least, u->pieces[i].score);
    }
    u->unknown = least - UNKNOWN_PENALTY;
    tok_trie_free(&u->trie);
    by_status s = tok_trie_build(&u->trie, &(tok_vocab){.tokens = tokens, .count = (int)n}, NULL);
    base_free(tokens);
    return s;
}

/* The derivative of log gamma: recurrence up to 7, then the asymptotic series. */
static double digamma(double x)
{
    double sum = 0;
    for (; x < 7; x++)
        sum -= 1 / x;
    double y = 1 / (x - 0.5), y2 = y * y, y4 = y2 * y2;
    return sum + log(x - 0.5) + y2 / 24 - 7 * y4 / 960 + 31 * y4 * y2 / 8064 - 127 * y4 * y4 / 30720;
}

/* Single characters are always kept, so that every word can be spelled. */
static bool is_letter(const tok_candidate *p)
{
    uint32_t c;
    return tok_utf8_decode((const uint8_t *)p->text, p->size, &c) == (int)p->size;
}

/* Fits the probabilities once. Using digamma instead of the logarithm gives rare pieces even less (Liang and
 * Klein 2007). */
static by_status fit(unigram *u)
{
    BY_TRY(sum_words(u, expect_work));
    double all = 0, least = 0;
    for (size_t i = 0; i < u->count; i++) {
        double expected = (double)u->sums[0][i] / u->unit;
        u->gone[i] = u->gone[i] || (expected < LEAST_EXPECTED && !is_letter(&u->pieces[i]));
        all += u->gone[i] ? 0 : expected;
    }
    double total = digamma(all);
    for (size_t i = 0; i < u->count; i++) {
        if (u->gone[i])
            continue;
        u->pieces[i].score = digamma(BY_MAX((double)u->sums[0][i] / u->unit, LEAST_EXPECTED)) - total;
        least = BY_MIN(least, u->pieces[i].score);
    }
    u->unknown = least - UNKNOWN_PENALTY;
    return BY_OK;
}

typedef struct loss {
    double value;
    size_t piece;
} loss;

static int tok_loss(const void *a, const void *b)
{
    const loss *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? 1 : -1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

/* Measures how much less likely the text is if the piece is spelled with others. */
static by_status measure_loss(const unigram *u, lattice *l, size_t i, loss *out)
{
    const tok_candidate *p = &u->pieces[i];
    double own = (double)u->sums[0][i];
    *out = (loss){HUGE_VAL, i};
    if (is_letter(p))
        return BY_OK; /* nothing can replace it */
    BY_TRY(lattice_build(u, l, p->text, p->size, (int32_t)i));
    out->value = -HUGE_VAL;
    if (own == 0 || lattice_best(l, p->size) > p->score)
        return BY_OK; /* it is not used */
    int used = 0;
    for (size_t at = p->size; at > 0; at = l->edges[l->best[at] - 1].start)
        used++;
    double whole = log(u->all + own * (used - 1)), others = 0;
    for (size_t at = p->size; at > 0; at = l->edges[l->best[at] - 1].start)
        others += log((double)u->sums[0][l->edges[l->best[at] - 1].id] + own) - whole;
    out->value = own * (log(own) - log(u->all) - others);
    return BY_OK;
}

static by_status judge_work(void *user, int thread)
{
    unigram *u = user;
    lattice l = {0};
    by_status s = BY_OK;
    (void)thread;
    for (size_t first; s == BY_OK && (first = atomic_fetch_add(&u->next, BATCH)) < u->count;)
        for (size_t i = first; i < BY_MIN(first + BATCH, u->count) && s == BY_OK; i++)
            s = measure_loss(u, &l, i, &u->losses[i]);
    lattice_free(&l);
    return s;
}

/* Keeps the pieces whose loss is largest, in that order. */
static by_status prune(unigram *u, size_t least)
{
    BY_TRY(index_pieces(u));
    BY_TRY(sum_words(u, spell_work));
    u->all = 0;
    for (size_t i = 0; i < u->count; i++)
        u->all += (double)u->sums[0][i];
    u->losses = base_alloc((u->count + 1) * sizeof(*u->losses));
    tok_candidate *kept = base_alloc((u->count + 1) * sizeof(*kept));
    atomic_store(&u->next, 0);
    by_status s = u->losses && kept ? base_parallel(u->spec->threads, judge_work, u) : BY_ERR_MEMORY;
    if (s == BY_OK) {
        size_t limit = BY_MAX(least, (size_t)((double)u->count * u->spec->shrinking_factor)), n = 0;
        qsort(u->losses, u->count, sizeof(*u->losses), tok_loss);
        while (n < u->count && n < limit && u->losses[n].value > -HUGE_VAL) {
            kept[n] = u->pieces[u->losses[n].piece];
            n++;
        }
        memcpy(u->pieces, kept, n * sizeof(*kept));
        u->count = n;
    }
    base_free(kept);
    base_free(u->losses);
    u->losses = NULL;
    return s == BY_OK ? index_pieces(u) : s;
}

static size_t count_live(const unigram *u)
{
    size_t n = 0;
    for (size_t i = 0; i < u->count; i++)
        n += !u->gone[i];
    return n;
}

/* Fits and prunes until 10 % more pieces are left than requested. */
static by_status shrink(unigram *u)
{
    size_t least = (size_t)u->spec->size + (size_t)u->spec->size / 10;
    double rounds = log((double)least / (double)u->count) / log(u->spec->shrinking_factor);
    int64_t total = ((int64_t)BY_MAX(rounds, 0.0) + 1) * u->spec->sub_iterations, done = 0;
    for (;;) {
        for (int i = 0; i < u->spec->sub_iterations; i++) {
            total = BY_MAX(total, done + 1);
            BY_TRY(tok_train_progress(u->spec, "fit", done++, total, (int64_t)u->words->count));
            BY_TRY(fit(u));
        }
        if (count_live(u) <= least)
            return index_pieces(u);
        BY_TRY(prune(u, least));
    }
}

/* ---- training -------------------------------------------------------------------------------- */

static int tok_piece_score(const void *a, const void *b)
{
    const tok_candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    int order = memcmp(x->text, y->text, BY_MIN(x->size, y->size));
    return order ? order : x->size < y->size ? -1 : x->size > y->size;
}

/* Selects all characters and as many of the others as fit, most likely first. */
static by_status choose(unigram *u, const uint32_t *points, int point_count, tok_trained *out)
{
    size_t room = (size_t)(u->spec->size - u->spec->special_count), n = 0,
           others = room - (size_t)point_count;
    for (size_t i = 0; i < u->count; i++) {
        bool letter = is_letter(&u->pieces[i]);
        if (letter || others > 0)
            u->pieces[n++] = u->pieces[i];
        others -= !letter && others > 0;
    }
    qsort(u->pieces, n, sizeof(*u->pieces), tok_piece_score);
    out->scores = base_alloc_zero((size_t)u->spec->size + 1, sizeof(*out->scores));
    if (!out->scores)
        return BY_ERR_MEMORY;
    tok_vocab *v = &out->vocab;
    for (int i = 0; i < u->spec->special_count; i++)
        BY_TRY(tok_vocab_put(v, u->spec->special[i], strlen(u->spec->special[i]), v->count));
    double least = 0;
    for (size_t i = 0; i < n; i++) {
        const tok_candidate *p = &u->pieces[i];
        if (tok_vocab_find(v, p->text, p->size) >= 0)
            continue;
        out->scores[v->count] = least = p->score;
        BY_TRY(tok_vocab_put(v, p->text, p->size, v->count));
    }
    for (int i = 0; i < point_count; i++) { /* characters of the initial alphabet that are not in the text */
        char text[4];
        size_t size = (size_t)tok_utf8_encode(points[i], text);
        if (tok_vocab_find(v, text, size) >= 0)
            continue;
        out->scores[v->count] = least;
        BY_TRY(tok_vocab_put(v, text, size, v->count));
    }
    return BY_OK;
}

/* Sums must not overflow: the unit is as small as the text allows. */
static double unit_for(const tok_words *words)
{
    double bytes = 1;
    for (size_t i = 0; i < words->count; i++)
        bytes += (double)words->items[i].count * words->items[i].size;
    return ldexp(1, BY_MIN(30, BY_MAX(0, 61 - (int)ceil(log2(bytes)))));
}

static by_status open_memory(unigram *u)
{
    u->gone = base_alloc_zero(u->count + 1, sizeof(*u->gone));
    u->sums = base_alloc_zero((size_t)u->spec->threads, sizeof(*u->sums));
    if (!u->gone || !u->sums)
        return BY_ERR_MEMORY;
    for (int t = 0; t < u->spec->threads; t++)
        if (!(u->sums[t] = base_alloc((u->count + 1) * sizeof(int64_t))))
            return BY_ERR_MEMORY;
    u->unit = unit_for(u->words);
    return BY_OK;
}

static by_status train(unigram *u, const uint32_t *points, int point_count, base_arena *keep,
                       tok_trained *out)
{
    if (point_count + u->spec->special_count > u->spec->size)
        return base_fail(BY_ERR_ARGUMENT,
                         "a vocabulary of %d is too small; special tokens and characters alone need %d",
                         u->spec->size, point_count + u->spec->special_count);
    BY_TRY(tok_train_progress(u->spec, "find pieces", 0, 0, (int64_t)u->words->count));
    BY_TRY(tok_unigram_seeds(u->spec, u->words, points, point_count, keep, &u->pieces, &u->count));
    BY_TRY(open_memory(u));
    if (u->count) {
        BY_TRY(index_pieces(u));
        BY_TRY(shrink(u));
    }
    return choose(u, points, point_count, out);
}

by_status tok_unigram_train(const by_vocab_spec *spec, const tok_words *words, tok_trained *out)
{
    unigram u = {.spec = spec, .words = words};
    base_arena *keep = base_arena_new();
    uint32_t *points = tok_alphabet(spec, words, &out->alphabet);
    by_status s = keep && points ? train(&u, points, out->alphabet, keep, out) : base_error_status();
    for (int t = 0; u.sums && t < spec->threads; t++)
        base_free(u.sums[t]);
    base_free(u.sums);
    base_free(u.gone);
    base_free(u.pieces);
    tok_trie_free(&u.trie);
    base_free(points);
    base_arena_free(keep);
    return s;
}
