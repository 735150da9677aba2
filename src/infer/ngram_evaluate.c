/* ngram_evaluate.c - perplexity of an n-gram model (banyan/evaluate.h), in the terms of neural models. */
#include <math.h>

#include "banyan/evaluate.h"
#include "base/file.h"
#include "base/input.h"
#include "data/tokens.h"
#include "text/tokenizer.h"

typedef struct reading {
    const by_ngram *model;
    const by_tokenizer *tokenizer;
    const by_perplexity_spec *spec;
    by_ngram_sentence_fn *sentence;
    by_perplexity_result *out;
    by_ngram_sum *sum;
    double begin;
    by_ids ids;
} reading;

static by_status report(reading *r, int64_t total)
{
    const by_perplexity_spec *s = r->spec;
    r->out->seconds = base_seconds() - r->begin;
    if (s->cancelled && s->cancelled(s->user))
        return base_fail(BY_ERR_CANCELLED, "interrupted after %lld tokens", (long long)r->out->tokens);
    if (s->progress && r->out->tokens)
        s->progress(s->user, r->out, total);
    return BY_OK;
}

/* ---- lines ------------------------------------------------------------------------------------------- */

/* A line of tokens from the start of a text, without an end token. */
static by_status score_tokens(reading *r, const base_lines *l, by_ngram_sum *sum)
{
    by_ngram_state state = by_ngram_begin(r->model);
    r->ids.count = 0;
    BY_TRY(tok_encode(r->tokenizer, l->text, l->size, &r->ids));
    for (size_t i = 0; i < r->ids.count; i++)
        sum->log10 += by_ngram_token_score(r->model, &state, r->ids.data[i], &state) / M_LN10;
    sum->log10_known = sum->log10;
    sum->words = (int64_t)r->ids.count;
    sum->sentences = 1;
    return BY_OK;
}

static by_status read_line(reading *r, const base_lines *l)
{
    by_ngram_sum one = {0};
    BY_TRY(r->tokenizer ? score_tokens(r, l, &one) : by_ngram_sentence(r->model, l->text, l->size, &one));
    if (r->sentence)
        r->sentence(r->spec->user, l->text, l->size, &one);
    r->sum->log10 += one.log10;
    r->sum->log10_known += one.log10_known;
    r->sum->words += one.words;
    r->sum->unknown += one.unknown;
    r->sum->sentences++;
    r->out->nats -= one.log10 * M_LN10;
    r->out->tokens += one.words;
    r->out->bytes += (int64_t)l->size + !r->tokenizer; /* </s> is the line end */
    return BY_OK;
}

static by_status read_file(reading *r, const char *path)
{
    base_lines l;
    bool more = true;
    BY_TRY(base_lines_open(&l, path));
    by_status s = base_lines_next(&l, &more);
    while (s == BY_OK && more) {
        s = read_line(r, &l);
        if (s == BY_OK && l.number % 16384 == 0)
            s = report(r, 0);
        if (s == BY_OK)
            s = base_lines_next(&l, &more);
    }
    base_lines_close(&l);
    return s;
}

static by_status read_lines(reading *r, const char *const *files, int count)
{
    for (int i = 0; i < count; i++) {
        char **paths = NULL;
        int n = 0;
        const bool standard = strcmp(files[i], "-") == 0;
        by_status s = standard ? read_file(r, files[i]) : base_glob(files[i], &paths, &n);
        for (int k = 0; k < n && s == BY_OK; k++)
            s = read_file(r, paths[k]);
        base_paths_free(paths, n);
        BY_TRY(s);
    }
    if (r->sum->unknown)
        r->out->bytes = 0;
    return r->out->tokens ? BY_OK : base_fail(BY_ERR_ARGUMENT, "the data has no words");
}

/* ---- streams of tokens ------------------------------------------------------------------------------- */

static by_status count_bytes(reading *r, const int32_t *ids, int64_t n)
{
    const int32_t eos = by_tokenizer_eos(r->tokenizer);
    for (int64_t i = 0, from = 0; i <= n; i++) {
        if (i < n && ids[i] != eos)
            continue;
        size_t size = 0;
        char *text = by_decode(r->tokenizer, ids + from, (size_t)(i - from), &size);
        if (!text)
            return base_error_status();
        by_release(text);
        r->out->bytes += (int64_t)size;
        from = i + 1;
    }
    return BY_OK;
}

static by_status read_stream(reading *r, const data_tokens *tokens)
{
    int32_t ids[4096];
    const int64_t all = data_tokens_count(tokens);
    const int64_t count = r->spec->max_tokens > 0 ? BY_MIN(all, r->spec->max_tokens) : all;
    by_ngram_state state = by_ngram_begin(r->model);
    if (count < 2)
        return base_fail(BY_ERR_ARGUMENT, "the data has %lld tokens; at least two are needed to predict one",
                         (long long)count);
    for (int64_t at = 0; at < count; at += BY_COUNT(ids)) {
        const int64_t n = BY_MIN(count - at, BY_COUNT(ids)), first = at == 0;
        BY_TRY(data_tokens_read(tokens, at, n, ids));
        for (int64_t i = 0; i < n; i++) {
            const double p = by_ngram_token_score(r->model, &state, ids[i], &state);
            r->out->nats -= at + i ? p : 0;
        }
        r->out->tokens += n - first;
        BY_TRY(count_bytes(r, ids + first, n - first));
        BY_TRY(report(r, count - 1));
    }
    r->sum->log10 = r->sum->log10_known = -r->out->nats / M_LN10;
    r->sum->words = r->out->tokens;
    return BY_OK;
}

static by_status read_tokens(reading *r, const char *const *files, int count)
{
    const int vocab = by_ngram_tokens(r->model);
    const bool shards = count && data_tokens_is_shard(files[0]);
    char *dir = shards ? NULL : base_dir_temporary("eval");
    char *path = dir ? base_path_join(dir, "text.bin") : NULL;
    data_tokens *t = NULL;
    if (shards)
        t = data_tokens_open(files, count, vocab);
    else if (path && data_tokens_build(r->tokenizer, files, count, path, NULL, NULL) == BY_OK)
        t = data_tokens_open((const char *const[]){path}, 1, vocab);
    if (dir)
        base_dir_remove(dir);
    by_status s = t ? read_stream(r, t) : base_error_status();
    data_tokens_free(t);
    base_free(path);
    base_free(dir);
    return s;
}

by_status by_ngram_evaluate(const by_ngram *m, const by_tokenizer *t, const char *const *files, int count,
                            const by_perplexity_spec *spec, by_ngram_sentence_fn *sentence,
                            by_perplexity_result *out, by_ngram_sum *sum)
{
    by_ngram_sum unused;
    if (!m || !files || !spec || !out)
        return base_fail_missing(m ? "files, by_perplexity_spec or by_perplexity_result" : "model");
    *out = (by_perplexity_result){.seq = by_ngram_order(m), .stride = 1};
    reading r = {.model = m,
                 .tokenizer = by_ngram_tokens(m) ? t : NULL,
                 .spec = spec,
                 .sentence = sentence,
                 .out = out,
                 .sum = sum ? sum : &unused,
                 .begin = base_seconds()};
    *r.sum = (by_ngram_sum){0};
    if (by_ngram_tokens(m) && (!t || by_tokenizer_vocab_size(t) != by_ngram_tokens(m)))
        return base_fail(BY_ERR_ARGUMENT, "a model of %d tokens requires its tokenizer", by_ngram_tokens(m));
    by_status s = r.tokenizer && !sentence ? read_tokens(&r, files, count) : read_lines(&r, files, count);
    tok_ids_free(&r.ids);
    out->windows = r.sum->sentences;
    out->plain_nats = out->nats;
    out->seconds = base_seconds() - r.begin;
    return s;
}
