/* reader.c - incremental reading (banyan/reader.h). */
#include "banyan/reader.h"

#include <math.h>
#include <string.h>

#include "banyan/pass.h"
#include "base/base.h"

struct by_reader {
    by_model *model;
    by_stream *stream;
    by_passes *passes;
    int batch, segment, vocab;
    bool begun;
    int32_t *tokens; /* (batch, segment) */
    float *logits;   /* (batch, segment, V) */
    float *next;     /* (batch, V) */
};

by_reader *by_reader_new(by_model *m, int batch, int segment)
{
    if (m && (by_model_task(m) != BY_TASK_LM || by_model_rereads(m))) {
        base_fail(BY_ERR_UNSUPPORTED, "%s does not predict text from left to right",
                  base_a(by_model_class(m)).text);
        return NULL;
    }
    by_stream *stream = by_stream_new(m, batch);
    by_reader *r = stream ? base_alloc_zero(1, sizeof *r) : NULL;
    if (!r) {
        by_stream_free(stream);
        return NULL;
    }
    *r = (by_reader){.model = m,
                     .stream = stream,
                     .batch = batch,
                     .segment = segment > 0 ? segment : by_model_context(m),
                     .vocab = by_model_vocab(m)};
    const size_t rows = (size_t)batch * (size_t)r->segment, vocab = (size_t)r->vocab;
    r->passes = by_passes_new(m, &(by_pass_spec){0}, 32);
    r->tokens = base_alloc_zero(rows, sizeof *r->tokens);
    r->logits = base_alloc_zero(rows * vocab, sizeof *r->logits);
    r->next = base_alloc_zero((size_t)batch * vocab, sizeof *r->next);
    if (r->passes && r->tokens && r->logits && r->next)
        return r;
    by_reader_free(r);
    return NULL;
}

void by_reader_free(by_reader *r)
{
    if (!r)
        return;
    by_passes_free(r->passes);
    by_stream_free(r->stream);
    base_free(r->tokens);
    base_free(r->logits);
    base_free(r->next);
    base_free(r);
}

/* Converts logits to log-probabilities. */
static void normalize(float *x, int count)
{
    double most = x[0], sum = 0;
    for (int i = 1; i < count; i++)
        most = fmax(most, x[i]);
    for (int i = 0; i < count; i++)
        sum += exp(x[i] - most);
    const double lse = most + log(sum);
    for (int i = 0; i < count; i++)
        x[i] = (float)(x[i] - lse);
}

/* The logits (length, V) of row b: the probability of each token is in the row before it. */
static void take_row(by_reader *r, int b, int length, float *log_p)
{
    const size_t vocab = (size_t)r->vocab;
    const int32_t *tokens = r->tokens + (ptrdiff_t)b * length;
    float *logits = r->logits + (size_t)b * (size_t)length * vocab, *next = r->next + (size_t)b * vocab;
    for (int t = 0; t < length; t++) {
        const float *before = t > 0 ? logits + (size_t)(t - 1) * vocab : next;
        if (log_p)
            log_p[t] = t == 0 && !r->begun ? NAN : before[tokens[t]];
        normalize(logits + (size_t)t * vocab, r->vocab);
    }
    memcpy(next, logits + (size_t)(length - 1) * vocab, vocab * sizeof *next);
}

static by_status read_segment(by_reader *r, const int32_t *tokens, int count, int at, int length,
                              float *log_p)
{
    for (int b = 0; b < r->batch; b++)
        memcpy(r->tokens + (ptrdiff_t)b * length, tokens + (ptrdiff_t)b * count + at,
               (size_t)length * sizeof *tokens);
    by_batch batch = by_batch_of(r->batch, length, r->tokens);
    batch.stream = r->stream;
    by_pass *p = by_passes_get(r->passes, &batch);
    if (!p)
        return base_error_status();
    BY_TRY(by_pass_run(p, &batch));
    BY_TRY(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), r->logits));
    for (int b = 0; b < r->batch; b++)
        take_row(r, b, length, log_p ? log_p + (ptrdiff_t)b * count + at : NULL);
    r->begun = true;
    return BY_OK;
}

by_status by_reader_feed(by_reader *r, const int32_t *tokens, int count, float *log_p)
{
    if (!r || !tokens)
        return base_fail_missing(r ? "tokens" : "reader");
    for (ptrdiff_t i = 0; i < (ptrdiff_t)r->batch * count; i++)
        if (tokens[i] < 0 || tokens[i] >= r->vocab)
            return base_fail(BY_ERR_ARGUMENT, "token %d is outside the vocabulary of %d", tokens[i],
                             r->vocab);
    for (int at = 0; at < count;) {
        int length = r->segment; /* then halves of it, so that few shapes are compiled */
        while (length > count - at)
            length = (length + 1) / 2;
        BY_TRY(read_segment(r, tokens, count, at, length, log_p));
        at += length;
    }
    return BY_OK;
}

const float *by_reader_next(const by_reader *r)
{
    return r && r->begun ? r->next : NULL;
}

by_status by_reader_reset(by_reader *r)
{
    if (!r)
        return base_fail_missing("reader");
    r->begun = false;
    return by_stream_reset(r->stream);
}

by_stream *by_reader_stream(const by_reader *r)
{
    return r ? r->stream : NULL;
}
