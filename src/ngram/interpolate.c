/* interpolate.c - interpolated modified Kneser-Ney: from adjusted counts to probabilities and back-off weights.
 *
 *   u(w | h) = (c(h w) - D(c(h w))) / c(h .)            gamma(h) = (sum over w of D(c(h w)) + pruned counts) / c(h .)
 *   p(w | h) = u(w | h) + gamma(h) p(w | h')            h' is h without its first word
 *
 * Pruned n-grams count in c(h .) and give their whole count to gamma. Two passes over each order: by context for u and
 * gamma, in suffix order for p, where the n-gram of h' w comes right before those of h w. The weights gamma come out of the
 * first pass in the suffix order of the contexts, which is that of the order below. */
#include <math.h>

#include "ngram/ngram.h"

/* ---- by context: u and gamma ------------------------------------------------------------------------- */

typedef struct follower {
    uint32_t word;
    bool pruned;
    uint64_t count;
} follower;

typedef struct group {
    ngram_job *job;
    int n;                                /* order */
    uint32_t context[BY_NGRAM_MAX_ORDER]; /* n - 1 words, the last first */
    follower *list;
    size_t count, room;
    double left, unknown; /* of the last context: gamma, and the probability of a word that was not seen */
} group;

static double discount(const group *g, uint64_t count)
{
    return count ? g->job->result->discounts[g->n - 1][BY_MIN(count, 3) - 1] : 0;
}

/* Records come in the order of contexts: sorting them by the word brings them into suffix order. */
static by_status put_suffix(const group *g, uint32_t word, double u, double gamma)
{
    const float values[2] = {(float)u, (float)gamma};
    void *place;
    BY_TRY(ngram_sorter_place(g->job->suffixes[g->n - 1], &place));
    uint32_t *record = place;
    record[0] = word;
    for (int i = 1; i < g->n; i++)
        record[i] = g->context[i - 1];
    memcpy(record + g->n, values, sizeof values);
    return BY_OK;
}

static float log_of(double p)
{
    return p > 0 ? (float)log10(p) : NGRAM_NEVER;
}

/* The lowest bit of the weight says whether a longer n-gram begins with the context, as in the binary. */
static by_status put_backoff(const group *g, double gamma, bool longer)
{
    uint32_t record[BY_NGRAM_MAX_ORDER + 1], bits;
    const float value = log_of(gamma);
    memcpy(&bits, &value, sizeof bits);
    memcpy(record, g->context, (size_t)(g->n - 1) * sizeof *record);
    record[g->n - 1] = (bits & ~1u) | longer;
    return ngram_spool_put(&g->job->backoffs[g->n - 2], record);
}

/* Words of the vocabulary that do not occur have the share of <unk>. The followers of the empty context are in the
 * order of their ids. */
static by_status put_unseen(const group *g, double unknown, double left)
{
    size_t at = 0;
    for (uint32_t word = NGRAM_EOS; word < g->job->vocabulary->count; word++) {
        while (at < g->count && g->list[at].word < word)
            at++;
        if (at == g->count || g->list[at].word != word)
            BY_TRY(put_suffix(g, word, unknown, left));
    }
    return BY_OK;
}

/* The two words that follow nothing, and contexts at the beginning of a sentence, which have words of their own only
 * where every context has order - 1 words. */
static by_status put_others(group *g, double unknown, double left)
{
    const bool whole = g->job->spec->smoothing != BY_SMOOTHING_KNESER_NEY && g->job->order > 1;
    if (g->n == 1)
        BY_TRY(put_suffix(g, NGRAM_UNK, unknown, left));
    if (g->n > 1 && (!whole || g->n == g->job->order))
        return BY_OK;
    for (int i = 0; i < g->n; i++)
        g->context[i] = NGRAM_BOS;
    return put_suffix(g, NGRAM_BOS, 1, 0);
}

static by_status close_relative(group *g)
{
    double total = 0;
    for (size_t i = 0; i < g->count; i++)
        total += (double)g->list[i].count;
    for (size_t i = 0; i < g->count; i++)
        BY_TRY(put_suffix(g, g->list[i].word,
                          ngram_relative_probability(g->job, g->n, (double)g->list[i].count, total), 0));
    g->unknown = ngram_relative_probability(g->job, g->n, 0, total);
    if (g->n == 1)
        BY_TRY(put_unseen(g, g->unknown, 0));
    g->count = 0;
    return g->n > 1 ? put_backoff(g, ngram_relative_weight(g->job, g->n - 1, total), true) : BY_OK;
}

static by_status close_group(group *g)
{
    if (g->job->spec->smoothing != BY_SMOOTHING_KNESER_NEY)
        return close_relative(g);
    double total = 0, left = 0;
    bool kept = false;
    for (size_t i = 0; i < g->count; i++) {
        total += (double)g->list[i].count;
        left += g->list[i].pruned ? (double)g->list[i].count : discount(g, g->list[i].count);
        kept = kept || !g->list[i].pruned;
    }
    for (size_t i = 0; i < g->count; i++)
        if (!g->list[i].pruned)
            BY_TRY(put_suffix(g, g->list[i].word,
                              ((double)g->list[i].count - discount(g, g->list[i].count)) / total,
                              left / total));
    g->left = left / total;
    if (g->n == 1)
        BY_TRY(put_unseen(g, 0, g->left));
    g->count = 0;
    return g->n > 1 ? put_backoff(g, g->left, kept) : BY_OK;
}

static by_status add_follower(group *g, const uint32_t *record)
{
    if (g->count == g->room) {
        const size_t room = BY_MAX(g->room * 2, (size_t)256);
        follower *list = base_resize(g->list, room, sizeof *list);
        if (!list)
            return BY_ERR_MEMORY;
        g->list = list;
        g->room = room;
    }
    follower *f = &g->list[g->count++];
    f->word = record[g->n - 1];
    memcpy(&f->count, record + g->n, sizeof f->count);
    f->pruned = (f->count & NGRAM_PRUNED) != 0;
    f->count &= ~NGRAM_PRUNED;
    return BY_OK;
}

static by_status group_all(group *g)
{
    const size_t bytes = (size_t)(g->n - 1) * sizeof *g->context;
    const void *record;
    for (int64_t i = 0;; i++) {
        BY_TRY(ngram_poll(g->job, i));
        BY_TRY(ngram_sorter_next(g->job->contexts[g->n - 1], &record));
        if (g->count && (!record || memcmp(g->context, record, bytes) != 0))
            BY_TRY(close_group(g));
        if (!record)
            return put_others(g, g->unknown, g->left);
        memcpy(g->context, record, bytes);
        BY_TRY(add_follower(g, record));
    }
}

static by_status contexts_of_order(ngram_job *j, int n)
{
    group g = {.job = j, .n = n};
    j->suffixes[n - 1] = ngram_sorter_new(&(ngram_sorter_spec){.words = 1,
                                                               .record = 4 * (size_t)n + 8,
                                                               .budget = ngram_share(j, 0.8, n),
                                                               .threads = j->threads,
                                                               .dir = j->dir});
    if (!j->suffixes[n - 1])
        return base_error_status();
    BY_TRY(ngram_spool_make(&j->backoffs[n - 1], 4 * (size_t)n + 4, ngram_share(j, 0.1, n), j->dir));
    by_status s = group_all(&g);
    base_free(g.list);
    ngram_sorter_free(j->contexts[n - 1]);
    j->contexts[n - 1] = NULL;
    return s == BY_OK ? ngram_sorter_finish(j->suffixes[n - 1]) : s;
}

/* ---- in suffix order: p ------------------------------------------------------------------------------- */

/* Weights of the contexts of one order, as they come out of their spool. */
typedef struct weights {
    const uint32_t *at, *end; /* words, log10 gamma */
} weights;

typedef struct walk {
    ngram_job *job;
    const uint32_t *next[BY_NGRAM_MAX_ORDER + 1]; /* records to come, NULL at the end: words, u, gamma */
    weights weights[BY_NGRAM_MAX_ORDER];
    uint32_t words[BY_NGRAM_MAX_ORDER]; /* the present n-gram, last word first */
    int64_t count;
} walk;

static by_status advance(walk *w, int n)
{
    const void *record;
    BY_TRY(ngram_sorter_next(w->job->suffixes[n - 1], &record));
    w->next[n - 1] = record;
    return BY_OK;
}

static by_status advance_weight(walk *w, int n)
{
    weights *x = &w->weights[n - 1];
    const void *records;
    size_t count;
    if (x->at != x->end)
        x->at += n + 1;
    if (x->at != x->end)
        return BY_OK;
    BY_TRY(ngram_spool_next(&w->job->backoffs[n - 1], &records, &count));
    x->at = count ? records : NULL;
    x->end = count ? x->at + count * ((size_t)n + 1) : NULL;
    return BY_OK;
}

static int compare(const uint32_t *a, const uint32_t *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

/* Weights of contexts that were pruned themselves are passed over. */
static by_status find_weight(walk *w, int n, uint32_t *bits)
{
    weights *x = &w->weights[n - 1];
    *bits = 0;
    if (n == w->job->order)
        return BY_OK;
    while (x->at && compare(x->at, w->words, n) < 0)
        BY_TRY(advance_weight(w, n));
    if (x->at && compare(x->at, w->words, n) == 0)
        *bits = x->at[n];
    return BY_OK;
}

static double lowest(const ngram_job *j, double gamma, uint32_t word)
{
    if (word == NGRAM_BOS)
        return 0;
    const double words = j->vocabulary->count - 1; /* <s> is not predicted */
    if (!j->spec->plain_unigrams)
        return gamma / words;
    return word == NGRAM_UNK ? gamma : 0;
}

static by_status emit(walk *w, int n, double p)
{
    ngram_job *j = w->job;
    uint32_t entry[BY_NGRAM_MAX_ORDER + 2]; /* an ngram_entry */
    const float probability = log_of(BY_MIN(p, 1));
    const bool extends = n < j->order && w->next[n] && compare(w->next[n], w->words, n) == 0;
    BY_TRY(ngram_poll(j, w->count++));
    memcpy(&entry[0], &probability, sizeof probability);
    entry[0] = (entry[0] & ~NGRAM_EXTENDS) | (extends ? NGRAM_EXTENDS : 0);
    BY_TRY(find_weight(w, n, &entry[1]));
    j->result->ngrams[n - 1]++;
    if (j->hashes && n > 1)
        BY_TRY(ngram_hash_put(j, n, w->words, (ngram_value){entry[0], entry[1]}));
    if (!j->lists && n > 1)
        return BY_OK;
    for (int i = 0; i < n; i++)
        entry[2 + i] = w->words[n - 1 - i];
    return ngram_spool_put(&j->entries[n - 1], entry);
}

/* All n-grams that end with the present one, which has n - 1 words and probability p. */
static by_status walk_longer(walk *w, int n, double lower)
{
    while (w->next[n - 1] && compare(w->next[n - 1], w->words, n - 1) == 0) {
        float values[2];
        memcpy(w->words, w->next[n - 1], (size_t)n * sizeof *w->words);
        memcpy(values, w->next[n - 1] + n, sizeof values);
        const double p = (double)values[0] + (n == 1 ? lowest(w->job, (double)values[1], w->words[0])
                                                     : (double)values[1] * lower);
        BY_TRY(emit(w, n, p));
        BY_TRY(advance(w, n));
        if (n < w->job->order)
            BY_TRY(walk_longer(w, n + 1, p));
    }
    return BY_OK;
}

static by_status make_entries(ngram_job *j)
{
    for (int n = 1; n <= j->order; n++)
        BY_TRY(ngram_spool_make(&j->entries[n - 1], 4 * (size_t)n + 8, ngram_share(j, 0.15, n), j->dir));
    for (int n = 2; n <= j->order && j->hashes; n++)
        BY_TRY(ngram_hash_make(j, n, ngram_share(j, 0.3, n)));
    return BY_OK;
}

by_status ngram_interpolate(ngram_job *j)
{
    walk w = {.job = j};
    for (int n = 1; n <= j->order; n++)
        BY_TRY(contexts_of_order(j, n));
    BY_TRY(make_entries(j));
    for (int n = 1; n <= j->order; n++) {
        BY_TRY(ngram_spool_rewind(&j->backoffs[n - 1]));
        BY_TRY(advance(&w, n));
        BY_TRY(advance_weight(&w, n));
    }
    BY_TRY(walk_longer(&w, 1, 0));
    for (int n = 1; n <= j->order; n++) {
        ngram_sorter_free(j->suffixes[n - 1]);
        j->suffixes[n - 1] = NULL;
        ngram_spool_free(&j->backoffs[n - 1]);
    }
    return BY_OK;
}
