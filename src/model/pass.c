/* pass.c - batches go through compiled programs (banyan/pass.h). */
#include "banyan/pass.h"

#include <math.h>

#include "base/base.h"

struct by_pass {
    by_model *model;
    by_batch like; /* shape and presence; its pointers are only compared with NULL */
    by_model_io io;
    by_program *program;
    by_tensor *targets, *second, *loss, *scale;
    by_tensor *weights, *summary;
    double loss_scale;
    int32_t *scratch; /* (B, T): positions, or the tokens that labels are read off */
    bool ends;        /* the tokens that labels are read off are found here */
    bool twice;       /* an encoder-decoder that classifies: its decoder reads the source, shifted */
    by_tensor *positions;
    by_extra extra[BY_EXTRA_MAX]; /* of the caller's loss; its data are not used */
    by_tensor *fed[BY_EXTRA_MAX];
};

/* Labels of a decoder are read off the last token of a row that is no padding; those of an encoder-decoder
 * off the last end token. */
static bool reads_ends(const by_model *m, const by_batch *b)
{
    return by_model_task(m) == BY_TASK_CLASSIFY && (by_model_reads_last(m) || by_model_is_pair(m)) &&
           !b->pick;
}

/* Whether positions have to be counted from the tokens, among which may be padding. */
static bool counts_positions(const by_pass *p)
{
    return p->like.mask || (by_model_first_position(p->model) > 0 && !by_model_is_pair(p->model));
}

static int64_t token_rows(const by_batch *b)
{
    return b->pick ? b->picks : (int64_t)b->batch * b->seq;
}

int64_t by_batch_targets(const by_model *m, const by_batch *b)
{
    switch (by_model_task(m)) {
    case BY_TASK_LM:
    case BY_TASK_SEQ2SEQ:
    case BY_TASK_MLM:
    case BY_TASK_PRETRAIN:
        return token_rows(b);
    case BY_TASK_TAG:
        return (int64_t)b->batch * b->seq;
    case BY_TASK_CHOICE:
        return b->batch / BY_MAX(b->choices, 1);
    case BY_TASK_CLASSIFY:
        return by_model_problem(m) == BY_PROBLEM_ONE_LABEL ? b->batch
                                                           : (int64_t)b->batch * by_model_labels(m);
    default:
        return b->batch;
    }
}

static by_tensor *input(by_graph *g, const char *name, const void *there, int rank, const int64_t *shape)
{
    return there ? by_input(g, name, BY_I32, rank, shape) : NULL;
}

static void make_inputs(by_pass *p, by_graph *g)
{
    const by_batch *b = &p->like;
    const int64_t all[2] = {b->batch, b->seq}, rows = p->ends ? b->batch : b->picks;
    p->io.choices = b->choices;
    p->io.tokens = by_input(g, "tokens", BY_I32, 2, all);
    p->io.segments = input(g, "segments", b->segments, 2, all);
    p->io.mask = p->twice ? NULL : input(g, "mask", b->mask, 2, all);
    const bool counted = b->positions || counts_positions(p);
    p->io.positions = p->positions = input(g, "positions", counted && !p->twice ? b->tokens : NULL, 2, all);
    p->io.pick = input(g, "pick", p->ends ? b->tokens : b->pick, 1, &rows);
    const int64_t source[2] = {b->batch, b->source_seq};
    p->io.source = input(g, "source", p->twice ? b->tokens : b->source, 2, p->twice ? all : source);
    p->io.source_mask =
        input(g, "source mask", p->twice ? b->mask : b->source_mask, 2, p->twice ? all : source);
}

/* Whether there is a target for each token. */
static bool tok_token(by_task t)
{
    return t == BY_TASK_LM || t == BY_TASK_MLM || t == BY_TASK_PRETRAIN || t == BY_TASK_TAG ||
           t == BY_TASK_SEQ2SEQ;
}

/* Logits of tokens are (B, T, V) against targets (B, T), so are those of labels of tokens. */
static void make_targets(by_pass *p, by_graph *g)
{
    const by_batch *b = &p->like;
    const int64_t n = by_batch_targets(p->model, b), rows = b->batch;
    const bool apart = !b->pick && tok_token(by_model_task(p->model));
    if (b->numbers)
        p->targets = by_input(g, "targets", BY_F32, 1, &n);
    else if (b->targets)
        p->targets =
            by_input(g, "targets", BY_I32, apart ? 2 : 1, apart ? (int64_t[]){b->batch, b->seq} : &n);
    p->second = input(g, "second targets", b->second, 1, &rows);
    const int64_t labels = by_model_labels(p->model);
    p->io.class_weights = b->class_weights ? by_input(g, "class weights", BY_F32, 1, &labels) : NULL;
    for (int i = 0; i < b->extras; i++)
        p->fed[i] = by_input(g, p->extra[i].name, p->extra[i].type, p->extra[i].rank, p->extra[i].shape);
}

static void summarize(by_pass *p, by_graph *g)
{
    const int64_t b = p->like.batch, t = p->like.seq, c = by_dim(p->io.features, -1);
    p->weights = by_input(g, "weights", BY_F32, 3, (int64_t[]){b, 1, t});
    by_tensor *w = by_cast(g, p->weights, by_type(p->io.features));
    by_tensor *sum = by_matmul(g, w, p->io.features, false, false); /* (B, 1, C) */
    p->summary = by_output(g, "summary", by_reshape(g, sum, 2, (int64_t[]){b, c}));
}

static bool is_bare(by_task t)
{
    return t == BY_TASK_FEATURES || t == BY_TASK_ENCODER;
}

static by_status compile(by_pass *p, const by_pass_spec *spec)
{
    const bool training = spec->grads != BY_GRAD_NONE;
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(p->model), .training = training});
    if (!g)
        return BY_ERR_MEMORY;
    p->io.want_hidden = spec->hidden;
    p->io.want_attention = spec->attention;
    p->io.label_smoothing = spec->label_smoothing;
    make_inputs(p, g);
    make_targets(p, g);
    p->scale = training ? by_input(g, "loss scale", BY_F32, 0, NULL) : NULL;
    by_model_build(p->model, g, &p->io);
    if (!training) {
        by_tensor *kept[] = {p->io.logits, p->io.second, p->io.features, p->io.pooled};
        for (int i = 0; i < BY_COUNT(kept); i++)
            if (kept[i] && (i < 2 || (is_bare(by_model_task(p->model)) && !p->like.weights)))
                by_output(g, NULL, kept[i]);
    }
    if (p->like.weights)
        summarize(p, g);
    if (spec->loss)
        p->loss = spec->loss(spec->loss_user, g, &p->io, p->targets, p->fed);
    else if (p->targets)
        p->loss = by_model_loss(p->model, g, &p->io, p->targets, p->second);
    p->program = by_compile(g, &(by_compile_spec){.loss = p->loss,
                                                  .grads = spec->grads,
                                                  .loss_scale = p->scale,
                                                  .recompute = spec->recompute && training,
                                                  .memory = spec->memory});
    return p->program ? BY_OK : base_error_status();
}

by_pass *by_pass_new(by_model *m, const by_batch *like, const by_pass_spec *spec)
{
    if (!m || !like || !spec) {
        base_fail_missing(m ? "batch" : "model");
        return NULL;
    }
    if (like->batch < 1 || like->seq < 1 || like->batch > INT32_MAX / like->seq || like->source_seq < 0 ||
        like->batch > INT32_MAX / BY_MAX(like->source_seq, 1) || !like->source != !like->source_seq) {
        base_fail(BY_ERR_ARGUMENT, "a batch of %d rows of %d tokens is not possible", like->batch, like->seq);
        return NULL;
    }
    if (like->extras < 0 || like->extras > BY_EXTRA_MAX || (like->extras && !like->extra)) {
        base_fail(BY_ERR_ARGUMENT, "a batch has up to %d extra inputs, not %d", BY_EXTRA_MAX, like->extras);
        return NULL;
    }
    by_pass *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->model = m;
    p->like = *like;
    if (like->extras)
        memcpy(p->extra, like->extra, (size_t)like->extras * sizeof *p->extra);
    p->loss_scale = 1;
    p->ends = reads_ends(m, like);
    p->twice = p->ends && by_model_is_pair(m);
    p->scratch = base_alloc_zero((size_t)like->batch * (size_t)like->seq, sizeof *p->scratch);
    if (!p->scratch || compile(p, spec) != BY_OK) {
        by_pass_free(p);
        return NULL;
    }
    return p;
}

void by_pass_free(by_pass *p)
{
    if (!p)
        return;
    by_program_free(p->program);
    base_free(p->scratch);
    base_free(p);
}

static bool same_extras(const by_pass *p, const by_batch *b)
{
    bool same = p->like.extras == b->extras;
    for (int i = 0; i < b->extras && same; i++) {
        const by_extra *x = &p->extra[i], *y = &b->extra[i];
        same = strcmp(x->name, y->name) == 0 && x->type == y->type && x->rank == y->rank;
        for (int k = 0; k < x->rank && same; k++)
            same = x->shape[k] == y->shape[k];
    }
    return same;
}

bool by_pass_fits(const by_pass *p, const by_batch *b)
{
    const by_batch *a = &p->like;
    return a->batch == b->batch && a->seq == b->seq && a->choices == b->choices && a->picks == b->picks &&
           !a->segments == !b->segments && !a->positions == !b->positions && !a->mask == !b->mask &&
           !a->pick == !b->pick && !a->targets == !b->targets && !a->numbers == !b->numbers &&
           !a->second == !b->second && !a->weights == !b->weights && !a->class_weights == !b->class_weights &&
           a->source_seq == b->source_seq && !a->source == !b->source && !a->source_mask == !b->source_mask &&
           same_extras(p, b);
}

static by_status feed(by_pass *p, by_tensor *t, const void *values)
{
    return t ? by_write(p->program, t, values, (size_t)by_elements(t) * sizeof(int32_t)) : BY_OK;
}

static by_status feed_ends(by_pass *p, const int32_t *tokens)
{
    const int rows = p->like.batch, seq = p->like.seq, pad = by_model_pad(p->model);
    for (int r = 0; r < rows; r++) {
        int last = seq - 1;
        while (pad >= 0 && last > 0 && tokens[r * seq + last] == pad)
            last--;
        p->scratch[r] = r * seq + last;
    }
    return feed(p, p->io.pick, p->scratch);
}

/* The rows of an encoder-decoder that classifies. Only a row that is all padding may lack an end token. */
static by_status feed_twice(by_pass *p, const by_batch *b)
{
    const int rows = b->batch, seq = b->seq, eos = by_model_eos(p->model), pad = by_model_pad(p->model);
    BY_TRY(by_model_shift(p->model, b->tokens, rows, seq, p->scratch));
    BY_TRY(feed(p, p->io.tokens, p->scratch));
    BY_TRY(feed(p, p->io.source, b->tokens));
    BY_TRY(feed(p, p->io.source_mask, b->mask));
    for (int r = 0; r < rows; r++) {
        const int32_t *row = b->tokens + (size_t)r * (size_t)seq;
        int last = seq - 1, other = 0;
        for (int t = 0; t < seq; t++)
            other += row[t] != pad;
        while (last >= 0 && row[last] != eos)
            last--;
        if (last < 0 && other > 0)
            return base_fail(BY_ERR_ARGUMENT, "row %d has no end token (%d), off which labels are read", r,
                             eos);
        p->scratch[r] = r * seq + BY_MAX(last, 0);
    }
    return feed(p, p->io.pick, p->scratch);
}

static by_status feed_positions(by_pass *p, const by_batch *b)
{
    if (b->positions || !p->positions)
        return feed(p, p->positions, b->positions);
    by_model_positions(p->model, b->tokens, b->batch, b->seq, p->scratch);
    return feed(p, p->positions, p->scratch);
}

by_status by_pass_run(by_pass *p, const by_batch *b)
{
    if (!p || !b)
        return base_fail_missing(p ? "batch" : "pass");
    if (!by_pass_fits(p, b))
        return base_fail(BY_ERR_ARGUMENT, "a batch of %d by %d is not like that of this pass, %d by %d",
                         b->batch, b->seq, p->like.batch, p->like.seq);
    BY_TRY(by_model_check_mask(p->model, b->mask, b->batch, b->seq));
    if (!p->twice) {
        BY_TRY(feed(p, p->io.tokens, b->tokens));
        if (b->source) {
            BY_TRY(feed(p, p->io.source, b->source));
            BY_TRY(feed(p, p->io.source_mask, b->source_mask));
        }
        BY_TRY(feed(p, p->io.mask, b->mask));
    }
    BY_TRY(feed(p, p->io.segments, b->segments));
    BY_TRY(feed_positions(p, b));
    BY_TRY(feed(p, p->targets, b->numbers ? (const void *)b->numbers : b->targets));
    BY_TRY(feed(p, p->second, b->second));
    BY_TRY(feed(p, p->weights, b->weights));
    BY_TRY(feed(p, p->io.class_weights, b->class_weights));
    BY_TRY(p->twice ? feed_twice(p, b) : p->ends ? feed_ends(p, b->tokens) : feed(p, p->io.pick, b->pick));
    for (int i = 0; i < b->extras; i++)
        BY_TRY(by_write(p->program, p->fed[i], b->extra[i].data,
                        (size_t)by_elements(p->fed[i]) * by_dtype_size(p->extra[i].type)));
    if (p->scale) {
        float scale = (float)p->loss_scale;
        BY_TRY(by_write(p->program, p->scale, &scale, sizeof scale));
    }
    return by_run(p->program);
}

void by_pass_scale(by_pass *p, double loss_scale)
{
    p->loss_scale = loss_scale;
}

by_program *by_pass_program(const by_pass *p)
{
    return p->program;
}

const by_model_io *by_pass_io(const by_pass *p)
{
    return &p->io;
}

by_tensor *by_pass_loss(const by_pass *p)
{
    return p->loss;
}

by_tensor *by_pass_summary(const by_pass *p)
{
    return p->summary;
}

by_status by_pass_read(by_pass *p, const by_tensor *t, float *out)
{
    return p ? by_read_f32(p->program, t, out) : base_fail_missing("pass");
}

by_status by_pass_finite(const by_model *m, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return base_fail(
                BY_ERR_NUMERIC,
                "the output is not finite: weights of the %s hold NaN or infinity, or overflow in "
                "its precision",
                by_model_class(m));
    return BY_OK;
}

/* ---- passes by shape ------------------------------------------------------------------------- */

enum { PASSES = 16 };

struct by_passes {
    by_model *model;
    by_pass_spec spec;
    by_pass **list; /* the one used last is the last */
    int count, limit;
};

by_passes *by_passes_new(by_model *m, const by_pass_spec *spec, int limit)
{
    if (!m || !spec) {
        base_fail_missing(m ? "by_pass_spec" : "model");
        return NULL;
    }
    by_passes *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->model = m;
    s->spec = *spec;
    s->limit = limit > 0 ? limit : PASSES;
    s->list = base_alloc_zero((size_t)s->limit, sizeof *s->list);
    if (!s->list) {
        base_free(s);
        return NULL;
    }
    return s;
}

void by_passes_free(by_passes *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->count; i++)
        by_pass_free(s->list[i]);
    base_free(s->list);
    base_free(s);
}

by_pass *by_passes_get(by_passes *s, const by_batch *like)
{
    if (!s || !like) {
        base_fail_missing(s ? "batch" : "set of passes");
        return NULL;
    }
    int at = s->count - 1;
    while (at >= 0 && !by_pass_fits(s->list[at], like))
        at--;
    if (at < 0 && s->count == s->limit) {
        by_pass_free(s->list[0]);
        memmove(s->list, s->list + 1, (size_t)--s->count * sizeof *s->list);
    }
    by_pass *p = at >= 0 ? s->list[at] : by_pass_new(s->model, like, &s->spec);
    if (!p)
        return NULL;
    if (at >= 0)
        memmove(s->list + at, s->list + at + 1, (size_t)(s->count-- - at - 1) * sizeof *s->list);
    return s->list[s->count++] = p;
}

by_pass *by_passes_last(const by_passes *s)
{
    return s->count ? s->list[s->count - 1] : NULL;
}

size_t by_passes_bytes(const by_passes *s)
{
    size_t bytes = 0;
    for (int i = 0; i < s->count; i++)
        bytes += by_program_bytes(s->list[i]->program);
    return bytes;
}
