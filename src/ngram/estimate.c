/* estimate.c - estimates a model from text and writes it (by_ngram_train). */
#include <stdlib.h>

#include "ngram/ngram.h"

enum { USUAL_ORDER = 3 };

static by_status check(const by_ngram_spec *s)
{
    if (s->order < 0 || s->order > BY_NGRAM_MAX_ORDER)
        return base_fail(BY_ERR_ARGUMENT, "order %d is not possible; the highest is %d", s->order,
                         BY_NGRAM_MAX_ORDER);
    if (s->smoothing < BY_SMOOTHING_KNESER_NEY || s->smoothing > BY_SMOOTHING_MLE)
        return base_fail(BY_ERR_ARGUMENT, "smoothing %d is not known", (int)s->smoothing);
    if (s->prune_count < 0 || (s->prune_count && !s->prune))
        return base_fail_missing("list of pruning thresholds");
    for (int i = 0; i < s->prune_count; i++) {
        if (s->prune[i] < 0 || (i && s->prune[i] < s->prune[i - 1]))
            return base_fail(BY_ERR_ARGUMENT, "pruning thresholds must not fall from order to order");
        if (i == 0 && s->prune[0] != 0)
            return base_fail(BY_ERR_ARGUMENT, "unigrams are never pruned; the first threshold is 0");
    }
    if (s->prune_count && s->smoothing != BY_SMOOTHING_KNESER_NEY)
        return base_fail(BY_ERR_UNSUPPORTED, "pruning is for Kneser-Ney models");
    if (!(s->k >= 0 && s->k < 1e9))
        return base_fail(BY_ERR_ARGUMENT, "k = %g is not possible", s->k);
    for (int i = 0; i < 3; i++)
        if (!(s->fallback[i] >= 0 && s->fallback[i] <= i + 1))
            return base_fail(BY_ERR_ARGUMENT, "a discount of %g for counts of %d is not possible",
                             s->fallback[i], i + 1);
    return BY_OK;
}

static by_status fill(ngram_job *j, ngram_image *m)
{
    const void *record;
    for (int n = 1; n <= j->order; n++) {
        BY_TRY(ngram_spool_rewind(&j->entries[n - 1]));
        for (;;) {
            BY_TRY(ngram_spool_next(&j->entries[n - 1], &record));
            if (!record)
                break;
            const ngram_entry *e = record;
            BY_TRY(ngram_image_put(m, n, e->words, e->probability, e->backoff));
        }
    }
    return BY_OK;
}

static by_status write_binary(ngram_job *j, const char *path)
{
    ngram_image m;
    int64_t counts[BY_NGRAM_MAX_ORDER] = {0};
    for (int n = 0; n < j->order; n++)
        counts[n] = j->entries[n].count;
    const ngram_traits traits = {.smoothing = j->spec->smoothing,
                                 .tokens = j->tokenizer ? by_tokenizer_vocab_size(j->tokenizer) : 0,
                                 .eos = j->tokenizer ? by_tokenizer_eos(j->tokenizer) : -1};
    by_status s = ngram_image_make(&m, path, j->vocabulary, j->order, counts, traits);
    if (s == BY_OK)
        s = fill(j, &m);
    if (s == BY_OK)
        s = ngram_image_finish(&m);
    ngram_image_abort(&m);
    return s;
}

static by_status begin_order(void *user, int n)
{
    return ngram_spool_rewind(&((ngram_job *)user)->entries[n - 1]);
}

static by_status next_entry(void *user, int n, const ngram_entry **out)
{
    const void *record;
    BY_TRY(ngram_spool_next(&((ngram_job *)user)->entries[n - 1], &record));
    *out = record;
    return BY_OK;
}

static by_status write_arpa(ngram_job *j, const char *path)
{
    ngram_listing l = {.order = j->order,
                       .text = j->vocabulary->text,
                       .starts = j->vocabulary->starts,
                       .begin = begin_order,
                       .next = next_entry,
                       .user = j};
    for (int n = 0; n < j->order; n++)
        l.counts[n] = j->entries[n].count;
    return ngram_arpa_write(path, &l);
}

static void say(const ngram_job *j, const char *stage)
{
    if (j->spec->progress)
        j->spec->progress(j->spec->user, stage, j->result->tokens);
}

static by_status run(ngram_job *j, const char *const *files, int count, const char *binary, const char *arpa)
{
    say(j, "counting");
    BY_TRY(ngram_count(j, files, count));
    say(j, "adjusting");
    BY_TRY(ngram_adjust(j));
    say(j, "estimating");
    BY_TRY(ngram_interpolate(j));
    j->result->words = (int)j->vocabulary->count;
    for (int n = 0; n < j->order; n++)
        j->result->ngrams[n] = j->entries[n].count;
    say(j, "writing");
    if (arpa)
        BY_TRY(write_arpa(j, arpa));
    return binary ? write_binary(j, binary) : BY_OK;
}

static void close_job(ngram_job *j)
{
    ngram_sorter_free(j->counts);
    for (int n = 0; n < BY_NGRAM_MAX_ORDER; n++) {
        ngram_sorter_free(j->contexts[n]);
        ngram_sorter_free(j->suffixes[n]);
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
    static const char *const names[] = {"kneser-ney", "add-k", "stupid", "mle", "unknown"};
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
        return base_fail(BY_ERR_UNSUPPORTED,
                         "a model of tokens gives a share to those that do not occur: its "
                         "unigrams are interpolated");
    by_ngram_spec known = *spec;
    if (spec->smoothing == BY_SMOOTHING_MLE)
        known.k = 0;
    ngram_job j = {.spec = &known,
                   .tokenizer = t,
                   .dir = temporary_of(spec),
                   .result = result ? result : &unused,
                   .order = spec->order ? spec->order : USUAL_ORDER,
                   .budget = spec->memory ? BY_MAX(spec->memory, (size_t)1 << 20) : (size_t)1 << 30,
                   .threads = spec->threads > 0 ? spec->threads : base_cores(),
                   .vocabulary = &words};
    const double begin = base_seconds();
    *j.result = (by_ngram_result){0};
    by_status s = ngram_words_make(&words);
    if (s == BY_OK)
        s = run(&j, files, count, binary, arpa);
    j.result->seconds = base_seconds() - begin;
    close_job(&j);
    ngram_words_free(&words);
    return s;
}
