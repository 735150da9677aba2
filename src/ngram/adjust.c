/* adjust.c - counts of all orders from those of the highest, and discounts (Chen and Goodman 1998, section
 * 3).
 *
 * The adjusted count of an n-gram below the highest order is the number of different words before it. N-grams
 * that begin with <s> have nothing before them and keep their raw counts. In suffix order all n-grams that
 * end alike follow one another, so a single pass with one counter for each order gives them all. */
#include <math.h>

#include "ngram/ngram.h"

typedef struct level {
    uint64_t adjusted, raw;
} level;

typedef struct adjusting {
    ngram_job *job;
    uint32_t words[BY_NGRAM_MAX_ORDER]; /* the present n-gram of the highest order, last word first */
    level levels[BY_NGRAM_MAX_ORDER];   /* of its suffixes: levels[n - 1] is that of n words */
    int prune[BY_NGRAM_MAX_ORDER];
    bool any, raw; /* raw: counts are not adjusted */
} adjusting;

static int pruned_at(const by_ngram_spec *s, int n)
{
    return n == 1 || s->prune_count == 0 ? 0 : s->prune[BY_MIN(n, s->prune_count) - 1];
}

/* A record by context: the context from its last word to its first, then the word, then the count. Records
 * come in the order of the last word, which sorting by the others keeps. */
static by_status put(const adjusting *a, int n, const level *l)
{
    ngram_job *j = a->job;
    const bool pruned = n > 1 && l->raw <= (uint64_t)a->prune[n - 1];
    const uint64_t count = (a->raw ? l->raw : l->adjusted) | (pruned ? NGRAM_PRUNED : 0);
    void *place;
    BY_TRY(ngram_sorter_place(j->contexts[n - 1], &place));
    uint32_t *record = place;
    for (int i = 0; i + 1 < n; i++)
        record[i] = a->words[i + 1];
    record[n - 1] = a->words[0];
    memcpy(record + n, &count, sizeof count);
    if (l->adjusted <= 4)
        j->with_count[n - 1][l->adjusted]++;
    j->result->unpruned[n - 1]++;
    return BY_OK;
}

/* Several <s> in front are only there to fill a context. */
static bool is_filler(const adjusting *a, int n)
{
    return !a->raw && n > 1 && a->words[n - 1] == NGRAM_BOS && a->words[n - 2] == NGRAM_BOS;
}

/* Ends the suffixes longer than `common` words. */
static by_status close_levels(adjusting *a, int common)
{
    for (int n = a->job->order; n > common && a->any; n--) {
        if (!is_filler(a, n))
            BY_TRY(put(a, n, &a->levels[n - 1]));
        a->levels[n - 1] = (level){0};
    }
    return BY_OK;
}

/* The highest order and what begins with <s> keep raw counts; the others count the longer ones that begin
 * here. */
static void open_levels(adjusting *a, int common, uint64_t count)
{
    const int order = a->job->order;
    for (int n = 1; n <= order; n++) {
        level *l = &a->levels[n - 1];
        l->raw += count;
        if (n == order || a->words[n - 1] == NGRAM_BOS)
            l->adjusted += count;
        else if (n >= common)
            l->adjusted++;
    }
}

static by_status adjust_all(adjusting *a)
{
    const int order = a->job->order;
    const void *record;
    for (int64_t i = 0;; i++) {
        BY_TRY(ngram_poll(a->job, i));
        BY_TRY(ngram_sorter_next(a->job->counts, &record));
        if (!record)
            return close_levels(a, 0);
        const uint32_t *words = record;
        uint64_t count;
        int common = 0;
        memcpy(&count, words + order, sizeof count);
        while (a->any && common < order && words[common] == a->words[common])
            common++;
        BY_TRY(close_levels(a, common));
        memcpy(a->words, words, (size_t)order * sizeof *words);
        a->any = true;
        open_levels(a, common, count);
    }
}

/* ---- discounts ------------------------------------------------------------------------------------- */

static by_status find_discounts(ngram_job *j, int n)
{
    static const double usual[3] = {0.5, 1, 1.5};
    const int64_t *t = j->with_count[n - 1];
    double *d = j->result->discounts[n - 1];
    bool good = t[1] > 0 && t[2] > 0 && t[3] > 0;
    const double y = good ? (double)t[1] / (double)(t[1] + 2 * t[2]) : 0;
    for (int i = 1; i <= 3 && good; i++) {
        d[i - 1] = i - (i + 1) * y * (double)t[i + 1] / (double)t[i];
        good = d[i - 1] >= 0 && d[i - 1] <= i;
    }
    if (good)
        return BY_OK;
    if (!j->spec->discount_fallback)
        return base_fail(BY_ERR_FORMAT,
                         "the discounts of order %d cannot be estimated: %lld, %lld, %lld and %lld n-grams "
                         "have counts of 1 to 4. The text is too small or artificial; use fallback discounts",
                         n, (long long)t[1], (long long)t[2], (long long)t[3], (long long)t[4]);
    const bool given = j->spec->fallback[0] > 0 || j->spec->fallback[1] > 0 || j->spec->fallback[2] > 0;
    for (int i = 0; i < 3; i++)
        d[i] = given ? j->spec->fallback[i] : usual[i];
    j->result->fell_back[n - 1] = true;
    return BY_OK;
}

static by_status make_sorters(ngram_job *j)
{
    for (int n = 1; n <= j->order; n++) {
        j->contexts[n - 1] = ngram_sorter_new(&(ngram_sorter_spec){.words = n - 1,
                                                                   .record = 4 * (size_t)n + 8,
                                                                   .budget = ngram_share(j, 0.8, n),
                                                                   .threads = j->threads,
                                                                   .dir = j->dir});
        if (!j->contexts[n - 1])
            return base_error_status();
    }
    return BY_OK;
}

by_status ngram_adjust(ngram_job *j)
{
    adjusting a = {.job = j, .raw = j->spec->smoothing != BY_SMOOTHING_KNESER_NEY};
    for (int n = 1; n <= j->order; n++)
        a.prune[n - 1] = pruned_at(j->spec, n);
    BY_TRY(make_sorters(j));
    BY_TRY(adjust_all(&a));
    ngram_sorter_free(j->counts);
    j->counts = NULL;
    for (int n = 1; n <= j->order; n++) {
        BY_TRY(ngram_sorter_finish(j->contexts[n - 1]));
        if (j->spec->smoothing == BY_SMOOTHING_KNESER_NEY)
            BY_TRY(find_discounts(j, n));
    }
    return BY_OK;
}
