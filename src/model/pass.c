/* pass.c - runs batches through compiled programs (banyan/pass.h). */
#include "banyan/pass.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "model/derive.h"

/* ---- batches --------------------------------------------------------------------------------- */

by_batch by_batch_of(int batch, int seq, const int32_t *tokens)
{
    by_batch b = {.batch = batch, .seq = seq};
    by_batch_put_tokens(&b, "tokens", tokens);
    return b;
}

by_batch by_batch_of_pictures(const by_model *m, int batch, int height, int width, const float *pixels)
{
    by_pictures p;
    by_batch b = {.batch = batch};
    if (by_model_pictures(m, &p))
        b.seq = by_pictures_positions(&p, height, width);
    by_batch_put(&b, "pixel_values", BY_F32, 4, (int64_t[]){batch, p.channels, height, width}, pixels);
    return b;
}

static int find(const by_batch *b, const char *name)
{
    for (int i = 0; i < b->count && i < BY_BATCH_ARRAYS; i++)
        if (strcmp(b->arrays[i].name, name) == 0)
            return i;
    return -1;
}

void by_batch_put(by_batch *b, const char *name, by_dtype type, int rank, const int64_t *shape,
                  const void *data)
{
    int i = find(b, name);
    if (!data) {
        for (; i >= 0 && i + 1 < b->count; i++)
            b->arrays[i] = b->arrays[i + 1];
        b->count -= i >= 0;
        return;
    }
    if (i < 0)
        i = b->count++;
    if (i >= BY_BATCH_ARRAYS)
        return; /* by_pass_new checks the count */
    b->arrays[i] = (by_array){.name = name, .type = type, .rank = rank, .data = data};
    for (int k = 0; k < rank; k++)
        b->arrays[i].shape[k] = shape[k];
}

void by_batch_put_tokens(by_batch *b, const char *name, const int32_t *data)
{
    by_batch_put(b, name, BY_I32, 2, (int64_t[]){b->batch, b->seq}, data);
}

void by_batch_put_ids(by_batch *b, const char *name, int64_t count, const int32_t *data)
{
    by_batch_put(b, name, BY_I32, 1, &count, data);
}

void by_batch_put_source(by_batch *b, int seq, const int32_t *source, const int32_t *mask)
{
    const int64_t shape[] = {b->batch, seq};
    by_batch_put(b, "source", BY_I32, 2, shape, source);
    by_batch_put(b, "source_mask", BY_I32, 2, shape, mask);
}

const by_array *by_batch_find(const by_batch *b, const char *name)
{
    const int i = find(b, name);
    return i < 0 ? NULL : &b->arrays[i];
}

const int32_t *by_batch_ids(const by_batch *b, const char *name)
{
    const by_array *a = by_batch_find(b, name);
    return a && a->type == BY_I32 ? a->data : NULL;
}

static int64_t elements(const by_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++)
        n *= a->shape[i];
    return n;
}

static int64_t token_rows(const by_batch *b)
{
    const by_array *pick = by_batch_find(b, "pick"), *map = by_batch_find(b, "target_mapping");
    return pick ? pick->shape[0] : map ? map->shape[0] * map->shape[1] : (int64_t)b->batch * b->seq;
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

/* ---- compilation ----------------------------------------------------------------------------- */

struct by_pass {
    by_model *model;
    const by_adapter *adapter; /* the model's adapter when the pass was compiled */
    by_batch like;             /* names, types and shapes; its data is never read */
    by_model_io io;
    by_program *program;
    by_tensor *loss, *scale, *summary;
    double loss_scale;
    int32_t *scratch; /* (B, T): positions, shifted tokens, or the rows from which labels are predicted */
    bool finds_last;  /* finds the last token of each row, from which labels are predicted */
    bool shifts;      /* encoder-decoder classifier: the decoder input is the source, shifted */
    bool positions;   /* computes the positions */
    model_derived derived[MODEL_DERIVED]; /* what the family computes */
    int n_derived;
};

/* Returns true if the label of each row is predicted from one of its tokens: the last one that is not padding
 * in decoders, the last end token in encoder-decoders. */
static bool reads_last(const by_model *m, const by_batch *b)
{
    return by_model_task(m) == BY_TASK_CLASSIFY && (by_model_reads_last(m) || by_model_is_pair(m)) &&
           !by_batch_find(b, "pick");
}

/* Returns true if the family numbers positions from the tokens, not counting padding. */
static bool counts_positions(const by_model *m, const by_batch *b)
{
    return !by_batch_find(b, "positions") &&
           (by_batch_find(b, "mask") || (by_model_first_position(m) > 0 && !by_model_is_pair(m)));
}

/* Returns true if there is a target for each token. */
static bool has_token_targets(by_task t)
{
    return t == BY_TASK_LM || t == BY_TASK_MLM || t == BY_TASK_PRETRAIN || t == BY_TASK_TAG ||
           t == BY_TASK_SEQ2SEQ;
}

/* Declares an input for every array of the batch. Token logits are (B, T, V), so token targets are (B, T)
 * unless rows are picked. */
static void declare_arrays(by_pass *p, by_graph *g)
{
    const by_batch *b = &p->like;
    const bool flat = by_batch_find(b, "pick") || !has_token_targets(by_model_task(p->model));
    const int64_t all[2] = {b->batch, token_rows(b) / b->batch};
    for (int i = 0; i < b->count; i++) {
        const by_array *a = &b->arrays[i];
        const bool targets = strcmp(a->name, "targets") == 0 && !flat;
        if (model_derives_from(p->model, a->name))
            continue;
        by_io_feed(&p->io, a->name,
                   by_input(g, a->name, a->type, targets ? 2 : a->rank, targets ? all : a->shape));
    }
}

/* Declares the inputs that the pass computes from others. */
static void declare_computed(by_pass *p, by_graph *g)
{
    const int64_t rows = p->like.batch, all[2] = {rows, p->like.seq};
    if (p->positions)
        by_io_feed(&p->io, "positions", by_input(g, "positions", BY_I32, 2, all));
    if (p->finds_last)
        by_io_feed(&p->io, "pick", by_input(g, "pick", BY_I32, 1, &rows));
    if (p->shifts) {
        by_io_feed(&p->io, "source", by_input(g, "source", BY_I32, 2, all));
        by_io_feed(&p->io, "source_mask", by_io_input(&p->io, "mask"));
    }
    for (int i = 0; i < p->n_derived; i++) {
        const model_derived *d = &p->derived[i];
        by_io_feed(&p->io, d->how->name, by_input(g, d->how->name, BY_I32, d->rank, d->dim));
    }
}

static void summarize(by_pass *p, by_graph *g, by_tensor *weights)
{
    by_tensor *features = by_io_output(&p->io, "features");
    const int64_t b = p->like.batch, t = p->like.seq, c = by_dim(features, -1);
    by_tensor *w = by_cast(g, by_reshape(g, weights, 3, (int64_t[]){b, 1, t}), by_type(features));
    by_tensor *sum = by_matmul(g, w, features, false, false); /* (B, 1, C) */
    p->summary = by_output(g, "summary", by_reshape(g, sum, 2, (int64_t[]){b, c}));
}

/* Pairs of texts and pictures need no targets: text i belongs to picture i. */
static bool has_own_targets(const by_model *m, const by_batch *b)
{
    return by_model_task(m) == BY_TASK_CONTRAST && by_batch_find(b, "tokens") &&
           by_batch_find(b, "pixel_values");
}

/* Marks the outputs of a forward pass as readable. */
static void keep_outputs(by_pass *p, by_graph *g, bool pooled)
{
    static const char *const names[] = {"logits", "second", "features", "pooled"};
    const by_task task = by_model_task(p->model);
    const bool bare = task == BY_TASK_FEATURES || task == BY_TASK_ENCODER;
    for (int i = 0; i < (bare && !pooled ? 4 : 2); i++) {
        by_tensor *t = by_io_output(&p->io, names[i]);
        if (t)
            by_output(g, NULL, t);
    }
}

static by_model_io with_tokens(const by_model_io *io, by_tensor *tokens)
{
    by_model_io other = *io;
    other.inputs = (by_ports){NULL, NULL};
    for (const by_port *q = io->inputs.first; q; q = q->next)
        by_io_feed(&other, q->name, q->tensor);
    by_io_feed(&other, "tokens", tokens);
    return other;
}

/* Scheduled sampling in parallel: the model is built twice. The first copy reads the given tokens; the second
 * reads, at the sampled positions, the predictions of the first. No gradient flows through the
 * predictions. */
static void build_sampled(by_pass *p, by_graph *g, by_tensor *sampled)
{
    by_tensor *tokens = by_io_input(&p->io, "tokens"); /* (B, T) */
    by_model_io first = with_tokens(&p->io, tokens);
    first.want_hidden = first.want_attention = false;
    by_model_build(p->model, g, &first);
    /* (B, T): predictions for the next positions */
    by_tensor *next = by_argmax(g, by_io_output(&first, "logits"));
    by_tensor *own = by_concat(
        g, (by_tensor *[]){by_slice(g, tokens, 1, 0, 1), by_slice(g, next, 1, 0, p->like.seq - 1)}, 2, 1);
    by_model_io second = with_tokens(&p->io, by_where(g, sampled, own, tokens));
    by_model_build(p->model, g, &second);
    p->io.outputs = second.outputs;
}

static void build(by_pass *p, by_graph *g)
{
    by_tensor *sampled = by_io_input(&p->io, "sampled");
    if (sampled && p->like.seq > 1)
        build_sampled(p, g, sampled);
    else
        by_model_build(p->model, g, &p->io);
}

static by_status compile(by_pass *p, const by_pass_spec *spec)
{
    const bool training = spec->grads != BY_GRAD_NONE;
    by_graph *g = by_graph_new(&(by_graph_spec){
        .params = by_model_params(p->model), .training = training, .no_dropout = spec->no_dropout});
    if (!g)
        return BY_ERR_MEMORY;
    by_model_io *io = &p->io;
    io->want_hidden = spec->hidden;
    io->want_attention = spec->attention;
    io->want_scores = spec->scores;
    io->label_smoothing = spec->label_smoothing;
    io->choices = p->like.choices;
    io->stream = p->like.stream;
    declare_arrays(p, g);
    declare_computed(p, g);
    p->scale = training ? by_input(g, "loss scale", BY_F32, 0, NULL) : NULL;
    build(p, g);
    by_tensor *weights = by_io_input(io, "pool_weights"), *targets = by_io_input(io, "targets");
    if (!training && !spec->loss_alone)
        keep_outputs(p, g, weights != NULL);
    if (spec->features && by_io_output(io, "features"))
        by_output(g, NULL, by_io_output(io, "features"));
    if (weights)
        summarize(p, g, weights);
    if (spec->loss)
        p->loss = spec->loss(spec->loss_user, g, io);
    else if (targets || has_own_targets(p->model, &p->like))
        p->loss = by_model_loss(p->model, g, io, targets, by_io_input(io, "second_targets"));
    if (spec->loss && !p->loss)
        by_graph_fail(g, "the caller's loss is NULL");
    p->program = by_compile(g, &(by_compile_spec){.loss = p->loss,
                                                  .grads = spec->grads,
                                                  .loss_scale = p->scale,
                                                  .recompute = spec->recompute && training,
                                                  .memory = spec->memory});
    return p->program ? BY_OK : base_error_status();
}

/* Reports whether the model, or the loss of its task, reads the array of this name. */
static bool is_read(const by_model *m, const char *name)
{
    /* "mask" is also read by encoder-decoders that classify and by encoders opened alone. */
    static const char *const others[] = {"targets", "second_targets", "class_weights", "pool_weights",
                                         "mask"};
    if (model_array_name(m, name) || (strcmp(name, "sampled") == 0 && by_model_task(m) == BY_TASK_SEQ2SEQ))
        return true;
    for (int i = 0; i < BY_COUNT(others); i++)
        if (strcmp(others[i], name) == 0)
            return true;
    return false;
}

/* Elements per target: one, or the number of classes. */
static int64_t wanted_targets(const by_model *m, const by_batch *b, const by_array *targets)
{
    const bool shares = by_model_task(m) == BY_TASK_CLASSIFY && targets->type != BY_I32 &&
                        by_model_problem(m) == BY_PROBLEM_ONE_LABEL;
    return shares ? (int64_t)b->batch * by_model_labels(m) : by_batch_targets(m, b);
}

/* Derived inputs are computed on the host from these arrays, which must have an id for every token. */
static by_status check_derived_from(const by_model *m, const by_batch *b)
{
    for (int i = 0; i < b->count && m->arch->derived; i++) {
        const by_array *a = &b->arrays[i];
        const bool read =
            strcmp(a->name, "tokens") == 0 || strcmp(a->name, "mask") == 0 || model_derives_from(m, a->name);
        if (read && (a->type != BY_I32 || elements(a) != (int64_t)b->batch * b->seq))
            return base_fail(BY_ERR_ARGUMENT, "the array \"%s\" must have %d rows of %d i32", a->name,
                             b->batch, b->seq);
    }
    return BY_OK;
}

/* Checks that the arrays form a valid batch. */
static by_status check_batch(const by_model *m, const by_batch *b, const by_pass_spec *spec)
{
    const by_array *source = by_batch_find(b, "source"), *targets = by_batch_find(b, "targets");
    const int64_t s = source ? source->shape[1] : 1;
    if (b->batch < 1 || b->seq < 1 || s < 1 || b->batch > INT32_MAX / b->seq || s > INT32_MAX / b->batch)
        return base_fail(BY_ERR_ARGUMENT, "invalid batch: %d rows of %d tokens%s", b->batch, b->seq,
                         by_batch_find(b, "pixel_values") ? "; pictures must be whole numbers of patches"
                                                          : "");
    if (b->count > BY_BATCH_ARRAYS)
        return base_fail(BY_ERR_ARGUMENT, "a batch has at most %d arrays", BY_BATCH_ARRAYS);
    for (int i = 0; i < b->count && !spec->loss; i++)
        if (!is_read(m, b->arrays[i].name))
            return base_fail(BY_ERR_ARGUMENT, "%s does not read an array called \"%s\"",
                             base_a(by_model_class(m)).text, b->arrays[i].name);
    if (!targets && !has_own_targets(m, b) && !spec->loss && spec->grads != BY_GRAD_NONE)
        return base_fail(BY_ERR_ARGUMENT, "the batch has no targets, which training needs");
    if (targets && !spec->loss && elements(targets) != wanted_targets(m, b, targets))
        return base_fail(BY_ERR_ARGUMENT, "the batch has %lld targets, but its task requires %lld",
                         (long long)elements(targets), (long long)wanted_targets(m, b, targets));
    return check_derived_from(m, b);
}

by_pass *by_pass_new(by_model *m, const by_batch *like, const by_pass_spec *spec)
{
    if (!m || !like || !spec) {
        base_fail_missing(m ? "batch" : "model");
        return NULL;
    }
    if (check_batch(m, like, spec) != BY_OK)
        return NULL;
    by_pass *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->model = m;
    p->adapter = m->adapter;
    p->like = *like;
    p->loss_scale = 1;
    p->finds_last = reads_last(m, like);
    p->shifts = p->finds_last && by_model_is_pair(m);
    p->positions = counts_positions(m, like) && !p->shifts;
    p->n_derived = model_derive(m, like, p->derived);
    p->scratch = base_alloc_zero((size_t)like->batch * (size_t)like->seq, sizeof *p->scratch);
    if (!p->scratch || model_derive_room(p->derived, p->n_derived) != BY_OK || compile(p, spec) != BY_OK) {
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
    model_derive_free(p->derived, p->n_derived);
    base_free(p->scratch);
    base_free(p);
}

static bool same_shape(const by_array *a, const by_array *b)
{
    bool same = a->type == b->type && a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

bool by_pass_fits(const by_pass *p, const by_batch *b)
{
    const by_batch *a = &p->like;
    bool fits = p->adapter == p->model->adapter && a->batch == b->batch && a->seq == b->seq &&
                a->choices == b->choices && a->stream == b->stream && a->count == b->count;
    for (int i = 0; fits && i < a->count; i++) {
        const by_array *other = by_batch_find(b, a->arrays[i].name);
        fits = other && same_shape(&a->arrays[i], other);
    }
    model_derived derived[MODEL_DERIVED];
    fits = fits && model_derive(p->model, b, derived) == p->n_derived;
    for (int i = 0; fits && i < p->n_derived; i++)
        fits = model_derived_alike(&p->derived[i], &derived[i]);
    return fits;
}

/* ---- running --------------------------------------------------------------------------------- */

static by_status feed(by_pass *p, const char *name, const void *values)
{
    by_tensor *t = by_io_input(&p->io, name);
    return by_write(p->program, t, values, (size_t)by_elements(t) * by_dtype_size(by_type(t)));
}

static by_status feed_last_tokens(by_pass *p, const int32_t *tokens)
{
    const int rows = p->like.batch, seq = p->like.seq, pad = by_model_pad(p->model);
    for (int r = 0; r < rows; r++) {
        int last = seq - 1;
        while (pad >= 0 && last > 0 && tokens[r * seq + last] == pad)
            last--;
        p->scratch[r] = r * seq + last;
    }
    return feed(p, "pick", p->scratch);
}

/* Finds the last end token of each row. Only a row that is all padding may lack one. */
static by_status feed_last_ends(by_pass *p, const int32_t *tokens)
{
    const int rows = p->like.batch, seq = p->like.seq;
    const int eos = by_model_eos(p->model), pad = by_model_pad(p->model);
    for (int r = 0; r < rows; r++) {
        const int32_t *row = tokens + (size_t)r * (size_t)seq;
        int last = seq - 1, other = 0;
        for (int t = 0; t < seq; t++)
            other += row[t] != pad;
        while (last >= 0 && row[last] != eos)
            last--;
        if (last < 0 && other > 0)
            return base_fail(BY_ERR_ARGUMENT,
                             "row %d has no end token (%d), which its label is predicted from", r, eos);
        p->scratch[r] = r * seq + BY_MAX(last, 0);
    }
    return feed(p, "pick", p->scratch);
}

/* Feeds the tokens to the encoder and, shifted, to the decoder. */
static by_status feed_shifted(by_pass *p, const int32_t *tokens)
{
    BY_TRY(by_model_shift(p->model, tokens, p->like.batch, p->like.seq, p->scratch));
    BY_TRY(feed(p, "tokens", p->scratch));
    BY_TRY(feed(p, "source", tokens));
    return feed_last_ends(p, tokens);
}

static by_status feed_computed(by_pass *p, const int32_t *tokens)
{
    if (p->shifts)
        return feed_shifted(p, tokens);
    if (p->positions) {
        by_model_positions(p->model, tokens, p->like.batch, p->like.seq, p->scratch);
        BY_TRY(feed(p, "positions", p->scratch));
    }
    return p->finds_last ? feed_last_tokens(p, tokens) : BY_OK;
}

static by_status feed_derived(by_pass *p, const by_batch *b)
{
    for (int i = 0; i < p->n_derived; i++) {
        model_derive_fill(p->model, b, &p->derived[i]);
        BY_TRY(feed(p, p->derived[i].how->name, p->derived[i].values));
    }
    return BY_OK;
}

by_status by_pass_run(by_pass *p, const by_batch *b)
{
    if (!p || !b)
        return base_fail_missing(p ? "batch" : "pass");
    if (p->adapter != p->model->adapter)
        return base_fail(BY_ERR_ARGUMENT, "the pass was compiled for another adapter than the model uses");
    if (!by_pass_fits(p, b))
        return base_fail(BY_ERR_ARGUMENT, "the batch is (%d, %d), but the pass was compiled for (%d, %d)",
                         b->batch, b->seq, p->like.batch, p->like.seq);
    BY_TRY(by_model_check_mask(p->model, by_batch_ids(b, "mask"), b->batch, b->seq));
    for (int i = 0; i < b->count; i++)
        if (!model_derives_from(p->model, b->arrays[i].name))
            BY_TRY(feed(p, b->arrays[i].name, b->arrays[i].data));
    BY_TRY(feed_computed(p, by_batch_ids(b, "tokens")));
    BY_TRY(feed_derived(p, b));
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
            return base_fail(BY_ERR_NUMERIC,
                             "the output is not finite: weights of the %s contain NaN or infinity, or "
                             "overflow in its precision",
                             by_model_class(m));
    return BY_OK;
}

/* ---- passes by shape ------------------------------------------------------------------------- */

enum { PASSES = 16 };

struct by_passes {
    by_model *model;
    by_pass_spec spec;
    by_pass **list; /* least recently used first */
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
        base_fail_missing(s ? "batch" : "by_passes");
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
