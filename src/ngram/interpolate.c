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

static by_status put_suffix(const group *g, uint32_t word, double u, double gamma)
{
    uint32_t record[BY_NGRAM_MAX_ORDER + 2];
    const float values[2] = {(float)u, (float)gamma};
    record[0] = word;
    memcpy(record + 1, g->context, (size_t)(g->n - 1) * sizeof *record);
    memcpy(record + g->n, values, sizeof values);
    return ngram_sorter_add(g->job->suffixes[g->n - 1], record);
}

static float log_of(double p)
{
    return p > 0 ? (float)log10(p) : NGRAM_NEVER;
}

static by_status put_backoff(const group *g, double gamma)
{
    uint32_t record[BY_NGRAM_MAX_ORDER + 1];
    const float value = log_of(gamma);
    memcpy(record, g->context, (size_t)(g->n - 1) * sizeof *record);
    memcpy(record + g->n - 1, &value, sizeof value);
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
    return g->n > 1 ? put_backoff(g, ngram_relative_weight(g->job, g->n - 1, total)) : BY_OK;
}

static by_status close_group(group *g)
{
    if (g->job->spec->smoothing != BY_SMOOTHING_KNESER_NEY)
        return close_relative(g);
    double total = 0, left = 0;
    for (size_t i = 0; i < g->count; i++) {
        total += (double)g->list[i].count;
        left += g->list[i].pruned ? (double)g->list[i].count : discount(g, g->list[i].count);
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
    return g->n > 1 ? put_backoff(g, g->left) : BY_OK;
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
    f->pruned = record[g->n + 2] != 0;
    memcpy(&f->count, record + g->n, sizeof f->count);
    return BY_OK;
}

static by_status group_all(group *g)
{
    const size_t bytes = (size_t)(g->n - 1) * sizeof *g->context;
    const void *record;
    for (;;) {
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
    j->suffixes[n - 1] = ngram_sorter_new(&(ngram_sorter_spec){.words = n,
                                                               .record = 4 * (size_t)n + 8,
                                                               .budget = j->budget / 2 / (size_t)j->order,
                                                               .threads = j->threads,
                                                               .dir = j->dir});
    if (!j->suffixes[n - 1])
        return base_error_status();
    BY_TRY(
        ngram_spool_make(&j->backoffs[n - 1], 4 * (size_t)n + 4, j->budget / 8 / (size_t)j->order, j->dir));
    by_status s = group_all(&g);
    base_free(g.list);
    ngram_sorter_free(j->contexts[n - 1]);
    j->contexts[n - 1] = NULL;
    return s == BY_OK ? ngram_sorter_finish(j->suffixes[n - 1]) : s;
}

/* ---- in suffix order: p ------------------------------------------------------------------------------- */

typedef struct walk {
    ngram_job *job;
    const uint32_t *next[BY_NGRAM_MAX_ORDER];   /* records to come, NULL at the end: words, u, gamma */
    const uint32_t *weight[BY_NGRAM_MAX_ORDER]; /* words, log10 gamma */
    uint32_t words[BY_NGRAM_MAX_ORDER];         /* the present n-gram, last word first */
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
    const void *record;
    BY_TRY(ngram_spool_next(&w->job->backoffs[n - 1], &record));
    w->weight[n - 1] = record;
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
static by_status find_weight(walk *w, int n, float *out)
{
    *out = 0;
    while (w->weight[n - 1] && compare(w->weight[n - 1], w->words, n) < 0)
        BY_TRY(advance_weight(w, n));
    if (w->weight[n - 1] && compare(w->weight[n - 1], w->words, n) == 0)
        memcpy(out, w->weight[n - 1] + n, sizeof *out);
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
    union {
        ngram_entry entry;
        uint32_t space[BY_NGRAM_MAX_ORDER + 2];
    } e;
    e.entry.probability = log_of(BY_MIN(p, 1));
    BY_TRY(find_weight(w, n, &e.entry.backoff));
    e.space[1] &= ~1u; /* as the binary stores it: all files of a model have the same numbers */
    for (int i = 0; i < n; i++)
        e.space[2 + i] = w->words[n - 1 - i];
    return ngram_spool_put(&w->job->entries[n - 1], &e);
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
        BY_TRY(ngram_spool_make(&j->entries[n - 1], 4 * (size_t)n + 8, j->budget / 4 / (size_t)j->order,
                                j->dir));
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
    return walk_longer(&w, 1, 0);
}
