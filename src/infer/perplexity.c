/* perplexity.c - the loss of a language model on a stream of tokens, window by window (banyan/evaluate.h). */
#include <math.h>

#include "banyan/evaluate.h"
#include "banyan/pass.h"
#include "base/file.h"
#include "data/tokens.h"
#include "infer/windows.h"

typedef struct windows {
    by_perplexity_spec spec; /* defaults filled in */
    by_model *model;
    const by_tokenizer *tokenizer; /* or NULL */
    data_tokens *tokens;
    char *scratch; /* folder of a tokenised text, or NULL */
    int64_t count; /* tokens that take part */
    by_pass *pass;
    by_stream *stream;      /* segments are consecutive; NULL: windows are independent */
    int32_t *rows, *wanted; /* (batch, seq) */
    gen_listener listener;
    bool each;               /* read the loss of each token; otherwise only the mean of a batch */
    int32_t *ids;            /* (batch, seq): targets, with arbitrary tokens where none is wanted */
    by_tensor *token_losses; /* (batch, seq) */
    by_tensor *features;     /* (batch, seq, C), if states are wanted */
    float *losses, *states;  /* of a batch: (batch, seq), (batch, seq, C) */
    by_perplexity_result *result;
} windows;

/* ---- data ------------------------------------------------------------------------------------ */

/* Tokenises text into a temporary shard, so that texts of any size need little memory. */
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

/* The length of the predicted text, that of tokens [1, count), without end-of-text tokens. */
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
    const bool remembers = by_model_carries(w->model);
    if (s->bins < 0 || (s->bins && (!s->bin_nats || !s->bin_tokens)))
        return base_fail_missing("place for the losses by position");
    if (by_model_task(w->model) != BY_TASK_LM)
        return base_fail(BY_ERR_UNSUPPORTED, "%s is not a language model",
                         base_a(by_model_class(w->model)).text);
    if (by_model_rereads(w->model))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s predicts tokens in any order and has no left-to-right perplexity; 'banyan "
                         "train' reports the loss of its objective",
                         by_model_class(w->model));
    if (s->seq > context && !remembers)
        return base_fail(BY_ERR_ARGUMENT, "windows of %d tokens: the model's context is %d", s->seq, context);
    s->seq = s->seq > 0 ? s->seq : context;
    w->result->carried = remembers && !s->apart && s->stride == 0;
    w->result->memory = w->result->carried ? by_model_memory(w->model) : 0;
    s->stride = s->stride > 0 ? s->stride : s->seq;
    s->batch = s->batch > 0 ? s->batch : w->result->carried ? 1 : 8;
    if (s->stride > s->seq)
        return base_fail(BY_ERR_ARGUMENT,
                         "a stride of %d exceeds the window of %d tokens and would skip some", s->stride,
                         s->seq);
    return BY_OK;
}

/* -log p of each target, (batch, seq) f32. */
static by_tensor *token_losses(by_graph *g, by_tensor *logits, by_tensor *targets)
{
    const int64_t n = by_elements(targets), vocab = by_dim(logits, -1);
    by_tensor *lse, *rows = by_reshape(g, logits, 2, (int64_t[]){n, vocab});
    by_top(g, rows, 1, NULL, &lse);
    rows = by_reshape(g, rows, 3, (int64_t[]){n, vocab, 1});
    by_tensor *scores = by_take(g, rows, by_reshape(g, targets, 2, (int64_t[]){n, 1}));
    return by_sub(g, lse, by_cast(g, by_reshape(g, scores, 1, &n), BY_F32));
}

/* The loss of the batch, and of each token if requested. */
static by_tensor *build_losses(void *user, by_graph *g, by_model_io *io)
{
    windows *w = user;
    if (w->each) {
        by_tensor *losses = token_losses(g, by_io_output(io, "logits"), by_io_input(io, "next"));
        w->token_losses = by_output(g, "token_losses", losses);
    }
    if (w->listener.states)
        w->features = by_output(g, "features", by_io_output(io, "features"));
    return by_model_loss(w->model, g, io, by_io_input(io, "wanted"), NULL);
}

static by_batch batch_of(const windows *w)
{
    by_batch b = by_batch_of(w->spec.batch, w->spec.seq, w->rows);
    /* Not named "targets", from which row lists of adaptive softmax tails would be derived; one pass serves
     * all batches. */
    by_batch_put_tokens(&b, "wanted", w->wanted);
    by_batch_put_tokens(&b, "next", w->ids);
    b.stream = w->stream;
    return b;
}

static by_status make_rows(windows *w)
{
    const size_t n = (size_t)w->spec.batch * (size_t)w->spec.seq;
    w->rows = base_alloc_zero(n, sizeof *w->rows);
    w->wanted = base_alloc_zero(n, sizeof *w->wanted);
    if (w->each) {
        w->ids = base_alloc_zero(n, sizeof *w->ids);
        w->losses = base_alloc_zero(n, sizeof *w->losses);
    }
    return w->rows && w->wanted && (!w->each || (w->ids && w->losses)) ? BY_OK : BY_ERR_MEMORY;
}

static by_status compile(windows *w)
{
    by_perplexity_spec *s = &w->spec;
    const int64_t left = w->count - 1 - s->seq;
    w->result->windows = left > 0 ? 1 + (left + s->stride - 1) / s->stride : 1;
    s->batch = (int)BY_MIN(s->batch, w->result->windows);
    w->result->seq = s->seq = (int)BY_MIN(s->seq, w->count - 1);
    w->result->stride = s->stride = BY_MIN(s->stride, s->seq);
    w->each = w->listener.token || s->bins > 0;
    BY_TRY(make_rows(w));
    if (w->result->carried && !(w->stream = by_stream_new(w->model, s->batch)))
        return base_error_status();
    const by_batch like = batch_of(w);
    w->pass = by_pass_new(w->model, &like,
                          &(by_pass_spec){.loss_alone = true, .loss = build_losses, .loss_user = w});
    if (w->pass && w->listener.states)
        w->states = base_alloc_zero((size_t)by_elements(w->features), sizeof *w->states);
    return w->pass && (!w->listener.states || w->states) ? BY_OK : base_error_status();
}

/* Window i reads tokens [i * stride, i * stride + seq) and predicts their successors. Successors already
 * predicted by the previous window are not counted. */
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

/* Segment `number` of every column. */
static by_status fill_segments(windows *w, int64_t number, int64_t *counted)
{
    const data_lm_batches columns = {
        .tokens = w->tokens, .end = w->count, .batch = w->spec.batch, .seq = w->spec.seq, .columns = true};
    BY_TRY(data_lm_eval_columns(&columns, number, w->spec.batch, w->rows, w->wanted));
    for (int i = 0; i < w->spec.batch * w->spec.seq; i++)
        *counted += w->wanted[i] != -100;
    return BY_OK;
}

/* Windows first, first + 1, ...; or segment first / batch of every column. */
static by_status fill_batch(windows *w, int64_t first, int64_t *counted)
{
    const size_t seq = (size_t)w->spec.seq;
    if (w->stream)
        BY_TRY(fill_segments(w, first / w->spec.batch, counted));
    for (int b = 0; b < w->spec.batch && !w->stream; b++)
        BY_TRY(fill_window(w, first + b, w->rows + (size_t)b * seq, w->wanted + (size_t)b * seq, counted));
    for (size_t i = 0; w->ids && i < (size_t)w->spec.batch * seq; i++)
        w->ids[i] = BY_MAX(w->wanted[i], 0);
    return BY_OK;
}

static by_status check_loss(double loss, int64_t window)
{
    return isfinite(loss)
               ? BY_OK
               : base_fail(BY_ERR_NUMERIC, "the loss is %g in window %lld", loss, (long long)window);
}

/* Sums the losses of tokens, also by their position in the window, and calls the observer. */
static by_status read_tokens(windows *w, int64_t first)
{
    const by_perplexity_spec *s = &w->spec;
    const int width =
        w->states ? (int)by_dim(w->features, -1) : 0; /* Reformer's states are twice its width */
    BY_TRY(by_pass_read(w->pass, w->token_losses, w->losses));
    if (w->states)
        BY_TRY(by_pass_read(w->pass, w->features, w->states));
    for (int64_t i = 0; i < (int64_t)s->batch * s->seq; i++) {
        const double loss = (double)w->losses[i];
        const int bin = s->bins ? (int)(i % s->seq * s->bins / s->seq) : 0;
        if (w->wanted[i] < 0)
            continue;
        BY_TRY(check_loss(loss, first + i / s->seq));
        w->result->nats += loss;
        if (s->bins) {
            s->bin_nats[bin] += loss;
            s->bin_tokens[bin]++;
        }
        if (w->listener.token)
            BY_TRY(w->listener.token(w->listener.user, w->rows[i], w->wanted[i], loss,
                                     w->states ? w->states + i * width : NULL, width));
    }
    return BY_OK;
}

static by_status run_batch(windows *w, int64_t first)
{
    int64_t counted = 0;
    float loss;
    BY_TRY(fill_batch(w, first, &counted));
    const by_batch batch = batch_of(w);
    BY_TRY(by_pass_run(w->pass, &batch));
    w->result->tokens += counted;
    if (w->each)
        return read_tokens(w, first);
    BY_TRY(by_pass_read(w->pass, by_pass_loss(w->pass), &loss));
    w->result->nats += (double)loss * (double)counted;
    return check_loss((double)loss, first);
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

by_status gen_read_windows(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                           const by_perplexity_spec *spec, gen_listener listener, by_perplexity_result *out)
{
    windows w = {.spec = *spec, .model = m, .tokenizer = t, .result = out, .listener = listener};
    *out = (by_perplexity_result){0};
    by_status s = run(&w, files, count);
    out->plain_nats = out->nats;
    by_pass_free(w.pass);
    by_stream_free(w.stream);
    data_tokens_free(w.tokens);
    if (w.scratch)
        base_dir_remove(w.scratch);
    void *const host[] = {w.scratch, w.rows, w.wanted, w.ids, w.losses, w.states};
    for (int i = 0; i < BY_COUNT(host); i++)
        base_free(host[i]);
    return s;
}

by_perplexity_spec gen_in_order(const by_model *m, const by_perplexity_spec *spec)
{
    by_perplexity_spec s = *spec;
    if (by_model_carries(m) && !s.apart && s.stride == 0)
        s.batch = 1;
    return s;
}

by_status by_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                        const by_perplexity_spec *spec, by_perplexity_result *out)
{
    if (!m || !files || !spec || !out)
        return base_fail_missing(m ? "files, by_perplexity_spec or by_perplexity_result" : "model");
    if (spec->ngram.model)
        return gen_ngram_perplexity(m, t, files, count, spec, out);
    return spec->cache.size ? gen_cache_perplexity(m, t, files, count, spec, out)
                            : gen_read_windows(m, t, files, count, spec, (gen_listener){0}, out);
}
