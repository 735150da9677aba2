/* perplexity.c - the loss of a language model on a stream of tokens, window by window (banyan/evaluate.h). */
#include <math.h>

#include "banyan/evaluate.h"
#include "base/file.h"
#include "data/tokens.h"

typedef struct windows {
    by_perplexity_spec spec; /* with every default filled in */
    by_model *model;
    const by_tokenizer *tokenizer; /* or NULL */
    data_tokens *tokens;
    char *scratch; /* folder of a tokenised text, or NULL */
    int64_t count; /* tokens that take part */
    by_program *program;
    by_tensor *input, *targets, *loss;
    int32_t *rows, *wanted; /* (batch, seq) */
    by_perplexity_result *result;
} windows;

/* ---- data ------------------------------------------------------------------------------------ */

/* Tokenise text into a shard of its own, so that a text of any size needs little memory. */
static by_status open_text(windows *w, const char *const *files, int count)
{
    w->scratch = base_dir_temporary("eval");
    if (!w->scratch)
        return base_error_status();
    char *path = base_path_join(w->scratch, "text.bin");
    by_status s = path ? data_tokens_build(w->tokenizer, files, count, path, NULL, NULL) : BY_ERR_MEMORY;
    if (s == BY_OK)
        w->tokens = data_tokens_open((const char *const[]){path}, 1, by_model_vocab(w->model));
    base_free(path);
    return s == BY_OK && !w->tokens ? base_error_status() : s;
}

static by_status open_data(windows *w, const char *const *files, int count)
{
    int shards = 0;
    for (int i = 0; i < count; i++)
        shards += data_tokens_is_shard(files[i]);
    if (shards && shards != count)
        return base_fail(BY_ERR_ARGUMENT, "text files and .bin shards cannot be mixed");
    if (!w->tokenizer && !shards)
        return base_fail(BY_ERR_ARGUMENT, "text needs a tokenizer");
    if (shards)
        w->tokens = data_tokens_open(files, count, by_model_vocab(w->model));
    else
        BY_TRY(open_text(w, files, count));
    if (!w->tokens)
        return base_error_status();
    w->count = data_tokens_count(w->tokens);
    if (w->spec.max_tokens > 0)
        w->count = BY_MIN(w->count, w->spec.max_tokens);
    if (w->count < 2)
        return base_fail(BY_ERR_ARGUMENT, "the data has %lld token%s; at least two are needed to predict one",
                         (long long)w->count, w->count == 1 ? "" : "s");
    return BY_OK;
}

/* The length of the text that tokens [1, count) stand for: what is predicted. End-of-text tokens are no text. */
static by_status count_bytes(windows *w)
{
    int32_t ids[4096], eos = by_tokenizer_eos(w->tokenizer);
    base_buf text = {0};
    by_status s = BY_OK;
    for (int64_t at = 1; at < w->count && s == BY_OK; at += BY_COUNT(ids)) {
        int64_t n = BY_MIN(w->count - at, BY_COUNT(ids));
        size_t kept = 0;
        s = data_tokens_read(w->tokens, at, n, ids);
        for (int64_t i = 0; i < n && s == BY_OK; i++)
            if (ids[i] != eos)
                ids[kept++] = ids[i];
        text.size = 0;
        if (s == BY_OK)
            s = tok_decode(w->tokenizer, ids, kept, &text);
        if (s == BY_OK)
            w->result->bytes += (int64_t)text.size;
    }
    base_buf_free(&text);
    return s;
}

/* ---- windows --------------------------------------------------------------------------------- */

static by_status check(windows *w)
{
    by_perplexity_spec *s = &w->spec;
    const int context = by_model_context(w->model);
    if (by_model_task(w->model) != BY_TASK_LM)
        return base_fail(BY_ERR_UNSUPPORTED, "a %s is no language model", by_model_class(w->model));
    if (s->seq > context)
        return base_fail(BY_ERR_ARGUMENT, "windows of %d tokens: the model's context is %d", s->seq, context);
    s->seq = s->seq > 0 ? s->seq : context;
    s->stride = s->stride > 0 ? s->stride : s->seq;
    s->batch = s->batch > 0 ? s->batch : 8;
    if (s->stride > s->seq)
        return base_fail(BY_ERR_ARGUMENT,
                         "a stride of %d, more than a window of %d tokens, would leave some out", s->stride,
                         s->seq);
    return BY_OK;
}

static by_status compile(windows *w)
{
    by_perplexity_spec *s = &w->spec;
    const int64_t left = w->count - 1 - s->seq;
    w->result->windows = left > 0 ? 1 + (left + s->stride - 1) / s->stride : 1;
    s->batch = (int)BY_MIN(s->batch, w->result->windows);
    w->result->seq = s->seq = (int)BY_MIN(s->seq, w->count - 1);
    w->result->stride = s->stride = BY_MIN(s->stride, s->seq);
    const int64_t shape[2] = {s->batch, s->seq};
    w->rows = base_alloc_zero((size_t)s->batch * (size_t)s->seq, sizeof *w->rows);
    w->wanted = base_alloc_zero((size_t)s->batch * (size_t)s->seq, sizeof *w->wanted);
    by_graph *g =
        w->rows && w->wanted ? by_graph_new(&(by_graph_spec){.params = by_model_params(w->model)}) : NULL;
    if (!g)
        return BY_ERR_MEMORY;
    w->input = by_input(g, "tokens", BY_I32, 2, shape);
    w->targets = by_input(g, "targets", BY_I32, 2, shape);
    by_model_io io = {0};
    by_io_feed(&io, "tokens", w->input);
    by_model_build(w->model, g, &io);
    w->loss = by_model_loss(w->model, g, &io, w->targets, NULL);
    w->program = by_compile(g, &(by_compile_spec){.loss = w->loss});
    return w->program ? BY_OK : base_error_status();
}

/* Window i reads tokens [i * stride, i * stride + seq) and predicts their successors. Those that the window before has predicted do
 * not count, nor does what follows the last window. */
static by_status fill_window(windows *w, int64_t i, int32_t *row, int32_t *wanted, int64_t *counted)
{
    const int64_t begin = i * w->spec.stride, seq = w->spec.seq, n = BY_MIN(seq, w->count - 1 - begin);
    const int64_t known = i > 0 ? seq - w->spec.stride : 0;
    for (int64_t t = 0; t < seq; t++) {
        row[t] = 0;
        wanted[t] = -100;
    }
    if (i >= w->result->windows)
        return BY_OK;
    BY_TRY(data_tokens_read(w->tokens, begin, n, row));
    BY_TRY(data_tokens_read(w->tokens, begin + 1 + known, n - known, wanted + known));
    *counted += n - known;
    return BY_OK;
}

static by_status run_batch(windows *w, int64_t first)
{
    const size_t seq = (size_t)w->spec.seq, bytes = (size_t)w->spec.batch * seq * sizeof *w->rows;
    int64_t counted = 0;
    float loss;
    for (int b = 0; b < w->spec.batch; b++)
        BY_TRY(fill_window(w, first + b, w->rows + (size_t)b * seq, w->wanted + (size_t)b * seq, &counted));
    BY_TRY(by_write(w->program, w->input, w->rows, bytes));
    BY_TRY(by_write(w->program, w->targets, w->wanted, bytes));
    BY_TRY(by_run(w->program));
    BY_TRY(by_read_f32(w->program, w->loss, &loss));
    w->result->nats += (double)loss * (double)counted;
    w->result->tokens += counted;
    return isfinite(loss)
               ? BY_OK
               : base_fail(BY_ERR_NUMERIC, "the loss is %g in window %lld", (double)loss, (long long)first);
}

static by_status run(windows *w, const char *const *files, int count)
{
    const by_perplexity_spec *s = &w->spec;
    BY_TRY(check(w));
    BY_TRY(open_data(w, files, count));
    if (w->tokenizer)
        BY_TRY(count_bytes(w));
    BY_TRY(compile(w));
    const double begin = base_seconds();
    for (int64_t i = 0; i < w->result->windows; i += s->batch) {
        if (s->cancelled && s->cancelled(s->user))
            return base_fail(BY_ERR_CANCELLED, "interrupted after %lld tokens", (long long)w->result->tokens);
        BY_TRY(run_batch(w, i));
        w->result->seconds = base_seconds() - begin;
        if (s->progress)
            s->progress(s->user, w->result, w->count - 1);
    }
    return BY_OK;
}

by_status by_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                        const by_perplexity_spec *spec, by_perplexity_result *out)
{
    if (!m || !files || !spec || !out)
        return base_fail_missing(m ? "files, by_perplexity_spec or by_perplexity_result" : "model");
    windows w = {.spec = *spec, .model = m, .tokenizer = t, .result = out};
    *out = (by_perplexity_result){0};
    by_status s = run(&w, files, count);
    by_program_free(w.program);
    data_tokens_free(w.tokens);
    if (w.scratch)
        base_dir_remove(w.scratch);
    base_free(w.scratch);
    base_free(w.rows);
    base_free(w.wanted);
    return s;
}
