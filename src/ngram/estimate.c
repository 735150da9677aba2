/* estimate.c - estimates a model from text and writes it (by_ngram_train). */
#include <stdlib.h>

#include "ngram/ngram.h"

enum { USUAL_ORDER = 3 };

static int order_of(const by_ngram_spec *s)
{
    return s->order ? s->order : USUAL_ORDER;
}

static by_status check(const by_ngram_spec *s)
{
    if (s->order < 0 || s->order > BY_NGRAM_MAX_ORDER)
        return base_fail(BY_ERR_ARGUMENT, "invalid order %d; the maximum is %d", s->order,
                         BY_NGRAM_MAX_ORDER);
    if (s->smoothing < BY_SMOOTHING_KNESER_NEY || s->smoothing > BY_SMOOTHING_MLE)
        return base_fail(BY_ERR_ARGUMENT, "unknown smoothing %d", (int)s->smoothing);
    if (s->prune_count < 0 || (s->prune_count && !s->prune))
        return base_fail_missing("list of pruning thresholds");
    if (s->prune_count > order_of(s))
        return base_fail(BY_ERR_ARGUMENT, "%d pruning thresholds; the order is %d", s->prune_count,
                         order_of(s));
    for (int i = 0; i < s->prune_count; i++) {
        if (s->prune[i] < 0 || (i && s->prune[i] < s->prune[i - 1]))
            return base_fail(BY_ERR_ARGUMENT, "pruning thresholds must not decrease from order to order");
        if (i == 0 && s->prune[0] != 0)
            return base_fail(BY_ERR_ARGUMENT, "unigrams are never pruned: the first threshold must be 0");
    }
    if (s->prune_count && s->smoothing != BY_SMOOTHING_KNESER_NEY)
        return base_fail(BY_ERR_UNSUPPORTED, "pruning is for Kneser-Ney models");
    if (!(s->k >= 0 && s->k < 1e9))
        return base_fail(BY_ERR_ARGUMENT, "invalid k: %g", s->k);
    for (int i = 0; i < 3; i++)
        if (!(s->fallback[i] >= 0 && s->fallback[i] <= i + 1))
            return base_fail(BY_ERR_ARGUMENT, "invalid discount %g for counts of %d", s->fallback[i], i + 1);
    return BY_OK;
}

static by_status begin_order(void *user, int n)
{
    return ngram_spool_rewind(&((ngram_job *)user)->entries[n - 1]);
}

static by_status next_entries(void *user, int n, const void **entries, size_t *count)
{
    return ngram_spool_next(&((ngram_job *)user)->entries[n - 1], entries, count);
}

static by_status write_arpa(ngram_job *j, const char *path)
{
    ngram_listing l = {.order = j->order,
                       .threads = j->threads,
                       .text = j->vocabulary->text,
                       .starts = j->vocabulary->starts,
                       .text_bytes = j->vocabulary->size,
                       .words = j->vocabulary->count,
                       .begin = begin_order,
                       .next = next_entries,
                       .user = j};
    memcpy(l.counts, j->result->ngrams, sizeof l.counts);
    return ngram_arpa_write(path, &l);
}

/* The shares of a stage leave room for the sorter that is being sorted, which takes its memory twice. */
size_t ngram_share(const ngram_job *j, double share, int n)
{
    const size_t words = ngram_words_bytes(j->vocabulary);
    const double left =
        (double)(j->budget > words ? BY_MAX(j->budget - words, j->budget / 4) : j->budget / 4);
    double all = 0, own = 0;
    for (int i = 1; i <= j->order; i++) {
        const double bytes = (double)(j->result->unpruned[i - 1] + 1) * (i + 2);
        all += bytes;
        own = i == n ? bytes : own;
    }
    return (size_t)(left * share * own / all);
}

by_status ngram_report(const ngram_job *j, int64_t done)
{
    const by_ngram_spec *s = j->spec;
    if (s->progress)
        s->progress(s->user, j->stage, done);
    return s->cancelled && s->cancelled(s->user)
               ? base_fail(BY_ERR_CANCELLED, "interrupted while %s", j->stage)
               : BY_OK;
}

static by_status begin_stage(ngram_job *j, const char *stage)
{
    j->stage = stage;
    return ngram_report(j, 0);
}

static by_status run(ngram_job *j, const char *const *files, int count, const char *binary, const char *arpa)
{
    BY_TRY(begin_stage(j, "counting words"));
    BY_TRY(ngram_count(j, files, count));
    BY_TRY(begin_stage(j, "adjusting counts"));
    BY_TRY(ngram_adjust(j));
    BY_TRY(begin_stage(j, "estimating"));
    BY_TRY(ngram_interpolate(j));
    j->result->words = (int)j->vocabulary->count;
    BY_TRY(begin_stage(j, "writing"));
    if (arpa)
        BY_TRY(write_arpa(j, arpa));
    return binary ? ngram_image_write(j, binary) : BY_OK;
}

static void close_job(ngram_job *j)
{
    ngram_sorter_free(j->counts);
    for (int n = 0; n < BY_NGRAM_MAX_ORDER; n++) {
        ngram_sorter_free(j->contexts[n]);
        ngram_sorter_free(j->suffixes[n]);
        ngram_sorter_free(j->hashed[n]);
        ngram_spool_free(&j->backoffs[n]);
        ngram_spool_free(&j->entries[n]);
    }
}

static const char *temporary_of(const by_ngram_spec *s)
{
    const char *place = s->temporary ? s->temporary : getenv("TMPDIR");
    return place && *place ? place : "/tmp";
}

const char *by_smoothing_name(by_smoothing s)
{
    static const char *const names[] = {"kneser-ney", "add-k", "stupid-backoff", "mle", "unknown"};
    return names[(unsigned)s < BY_COUNT(names) ? s : BY_SMOOTHING_UNKNOWN];
}

by_status by_ngram_train(const char *const *files, int count, const by_tokenizer *t,
                         const by_ngram_spec *spec, const char *binary, const char *arpa,
                         by_ngram_result *result)
{
    by_ngram_result unused;
    ngram_words words;
    if (!files || !spec)
        return base_fail_missing(files ? "by_ngram_spec" : "list of files");
    for (int i = 0; i < count; i++)
        if (!files[i])
            return base_fail_missing("file");
    BY_TRY(check(spec));
    if (t && spec->plain_unigrams)
        return base_fail(BY_ERR_UNSUPPORTED, "a model of tokens requires interpolated unigrams");
    by_ngram_spec known = *spec;
    if (spec->smoothing == BY_SMOOTHING_MLE)
        known.k = 0;
    ngram_job j = {.spec = &known,
                   .tokenizer = t,
                   .dir = temporary_of(spec),
                   .result = result ? result : &unused,
                   .order = order_of(spec),
                   .budget = spec->memory ? BY_MAX(spec->memory, (size_t)1 << 20) : (size_t)1 << 30,
                   .threads = spec->threads > 0 ? spec->threads : base_cores(),
                   .lists = arpa != NULL,
                   .hashes = binary != NULL,
                   .vocabulary = &words};
    const double begin = base_seconds();
    *j.result = (by_ngram_result){.order = j.order};
    for (int i = 0; i < 2; i++)
        if (i ? arpa : binary)
            base_file_remove_leftovers(i ? arpa : binary);
    by_status s = ngram_words_make(&words);
    if (s == BY_OK)
        s = run(&j, files, count, binary, arpa);
    j.result->seconds = base_seconds() - begin;
    close_job(&j);
    ngram_words_free(&words);
    return s;
}
