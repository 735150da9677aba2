/* pixels.c - generation with pixel models (banyan/pixels.h). One compiled program processes one position of a
 * batch of pictures and runs once per position. The family derives its inputs from the picture so far. */
#include "banyan/pixels.h"

#include <math.h>

#include "infer/sample.h"
#include "model/derive.h"
#include "nn/cache.h"

typedef struct canvas {
    by_model *model;
    const by_pixel_spec *spec;
    by_canvas size;
    int tokens, per;  /* of a picture, and of a position */
    int batch, width; /* pictures per batch, and logits per position */
    nn_store *store;
    by_program *program, *encoder; /* encoder of the input pictures, or NULL */
    int low;                       /* values of one of them */
    by_tensor *small, *token, *position, *past, *logits;
    model_derived derived[MODEL_DERIVED];
    by_tensor *inputs[MODEL_DERIVED];
    int n_derived;
    int32_t *numbers; /* (B) */
    float *values;    /* (B, width) */
    gen_sampler sampler;
} canvas;

/* ---- the program ----------------------------------------------------------------------------- */

static arch_rows rows_of(const canvas *c, const int32_t *tokens, int t)
{
    return (arch_rows){.task = by_model_task(c->model),
                       .batch = c->batch,
                       .seq = c->tokens,
                       .tokens = tokens,
                       .first = t,
                       .steps = 1,
                       .room = c->size.positions};
}

static void declare_derived(canvas *c, by_graph *g, by_model_io *io)
{
    const arch_derived *how = c->model->arch->derived;
    const arch_rows rows = rows_of(c, NULL, 0);
    for (; how && how->name && c->n_derived < MODEL_DERIVED; how++) {
        model_derived *d = &c->derived[c->n_derived];
        *d = (model_derived){.how = how};
        d->rank = how->shape(c->model->config, &rows, d->dim);
        if (d->rank == 0)
            continue;
        c->inputs[c->n_derived++] = by_input(g, how->name, BY_I32, d->rank, d->dim);
        by_io_feed(io, how->name, c->inputs[c->n_derived - 1]);
    }
}

/* Positions that the encoder writes to the store. */
static int seen(const canvas *c)
{
    return c->low / c->per;
}

static by_status compile_encoder(canvas *c)
{
    const int channels = c->size.channels;
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(c->model)});
    if (!g)
        return BY_ERR_MEMORY;
    c->small = by_input(g, "low", BY_I32, 3, (int64_t[]){c->batch, c->low / channels, channels});
    by_cache cache = {.store = c->store, .source_length = seen(c)};
    by_model_io io = {.part = BY_PART_ENCODER, .cache = &cache};
    by_io_feed(&io, "low", c->small);
    by_model_build(c->model, g, &io);
    c->encoder = by_compile(g, &(by_compile_spec){0});
    return c->encoder ? BY_OK : base_error_status();
}

static by_status compile(canvas *c)
{
    const int64_t shape[] = {c->batch, 1};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(c->model)});
    if (!g)
        return BY_ERR_MEMORY;
    c->token = by_input(g, "tokens", BY_I32, 2, shape);
    c->position = by_input(g, "positions", BY_I32, 2, shape);
    c->past = by_input(g, "past", BY_I32, 1, shape);
    by_cache cache = {.store = c->store, .past = c->past, .beams = 1, .source_length = seen(c)};
    by_model_io io = {.part = c->low ? BY_PART_DECODER : BY_PART_WHOLE, .cache = &cache};
    by_io_feed(&io, "tokens", c->token);
    by_io_feed(&io, "positions", c->position);
    declare_derived(c, g, &io);
    by_model_build(c->model, g, &io);
    c->logits = by_output(g, "logits", by_io_output(&io, "logits"));
    c->width = c->logits ? (int)by_dim(c->logits, -1) : 0;
    c->program = by_compile(g, &(by_compile_spec){0});
    return c->program ? BY_OK : base_error_status();
}

static by_status open_canvas(canvas *c, by_model *m, const by_pixel_spec *spec, int count)
{
    if (by_model_task(m) != BY_TASK_LM || !by_model_canvas(m, &c->size))
        return base_fail(BY_ERR_ARGUMENT, "%s does not generate pictures", base_a(by_model_class(m)).text);
    BY_TRY(gen_sampling_check(&spec->sampling, c->size.values));
    c->model = m;
    c->spec = spec;
    c->tokens = c->size.height * c->size.width * c->size.channels;
    c->per = c->tokens / c->size.positions;
    c->batch = BY_MIN(spec->batch > 0 ? spec->batch : 16, count);
    c->low = by_canvas_low(&c->size);
    if (!c->low != !spec->low)
        return base_fail(
            BY_ERR_ARGUMENT,
            c->low ? "the model requires input pictures of %d x %d pixels"
                   : "the model generates pictures of %d x %d pixels and takes no input pictures",
            c->size.width / BY_MAX(c->size.upscale, 1), c->size.height / BY_MAX(c->size.upscale, 1));
    c->store = nn_store_new(by_model_device(m), c->batch, c->size.positions);
    if (!c->store)
        return BY_ERR_MEMORY;
    c->store->sources = c->low ? c->batch : 0;
    c->store->source_room = seen(c);
    BY_TRY(c->low ? compile_encoder(c) : BY_OK);
    BY_TRY(compile(c));
    BY_TRY(model_derive_room(c->derived, c->n_derived));
    BY_TRY(gen_sampler_open(&c->sampler, c->size.values));
    c->numbers = base_alloc_zero((size_t)c->batch, sizeof *c->numbers);
    c->values = base_alloc_zero((size_t)c->batch * (size_t)c->width, sizeof *c->values);
    return c->numbers && c->values ? BY_OK : BY_ERR_MEMORY;
}

static void close_canvas(canvas *c)
{
    by_program_free(c->program);
    by_program_free(c->encoder);
    nn_store_free(c->store);
    model_derive_free(c->derived, c->n_derived);
    gen_sampler_close(&c->sampler);
    base_free(c->numbers);
    base_free(c->values);
}

/* ---- one position ---------------------------------------------------------------------------- */

/* Raster index of the tokens of position t. */
static int place_of(const canvas *c, int t)
{
    const arch_family *a = c->model->arch;
    return (a->place ? a->place(c->model->config, t) : t) * c->per;
}

static by_status write_number(canvas *c, by_tensor *to, int32_t value)
{
    for (int b = 0; b < c->batch; b++)
        c->numbers[b] = value;
    return by_write(c->program, to, c->numbers, (size_t)c->batch * sizeof *c->numbers);
}

/* The logits of position t of all pictures of the batch; tokens (B, N). */
static by_status look(canvas *c, const int32_t *tokens, int t)
{
    for (int b = 0; b < c->batch; b++) /* the previous token: with a palette, initially the start token */
        c->numbers[b] = t > 0 ? tokens[(size_t)b * (size_t)c->tokens + (size_t)place_of(c, t - 1)]
                              : by_model_source_vocab(c->model) - 1;
    BY_TRY(by_write(c->program, c->token, c->numbers, (size_t)c->batch * sizeof *c->numbers));
    BY_TRY(write_number(c, c->position, t));
    BY_TRY(write_number(c, c->past, t));
    const arch_rows rows = rows_of(c, tokens, t);
    for (int i = 0; i < c->n_derived; i++) {
        const model_derived *d = &c->derived[i];
        d->how->fill(c->model->config, &rows, d->dim, d->values);
        BY_TRY(by_write(c->program, c->inputs[i], d->values,
                        (size_t)by_elements(c->inputs[i]) * sizeof *d->values));
    }
    BY_TRY(by_run(c->program));
    return by_read_f32(c->program, c->logits, c->values);
}

/* Samples token i of a position for picture `picture`; row: its tokens, at: the raster index of the
 * position. */
static by_status choose(canvas *c, const float *logits, int32_t *row, int at, int i, int t, int64_t picture,
                        double *nats)
{
    float own[256], logprob;
    double log_p[256];
    const gen_sample_at now = {
        .tokens = row, .count = t * c->per + i, .prompt = 0, .sample = (uint64_t)picture};
    if (c->size.mixture) {
        by_mixture_log_probs(logits, c->width, c->size.channels, i, row + at, log_p);
        for (int v = 0; v < 256; v++)
            own[v] = (float)log_p[v];
        logits = own;
    }
    BY_TRY(gen_sample(&c->sampler, &c->spec->sampling, &now, logits, &row[at + i], &logprob, NULL));
    if (nats)
        *nats -= (double)logprob;
    return BY_OK;
}

static by_status make_position(canvas *c, int32_t *tokens, int t, int64_t first, int rows, double *nats)
{
    const int at = place_of(c, t);
    BY_TRY(look(c, tokens, t));
    for (int b = 0; b < rows; b++)
        for (int i = 0; i < c->per; i++)
            if (!c->spec->given || !c->spec->given[at + i])
                BY_TRY(choose(c, c->values + (ptrdiff_t)b * c->width, tokens + (ptrdiff_t)b * c->tokens, at,
                              i, t, first + b, nats ? nats + b : NULL));
    return BY_OK;
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Runs the encoder on the input pictures of a batch; rows past the last one repeat the first. */
static by_status read_low(canvas *c, int64_t first, int rows)
{
    const size_t row = (size_t)c->low * sizeof *c->spec->low;
    int32_t *values = base_alloc_zero((size_t)c->batch, row);
    if (!values)
        return BY_ERR_MEMORY;
    for (int b = 0; b < c->batch; b++)
        memcpy(values + (ptrdiff_t)b * c->low, c->spec->low + (first + (b < rows ? b : 0)) * c->low, row);
    by_status s = by_write(c->encoder, c->small, values, (size_t)c->batch * row);
    base_free(values);
    return s == BY_OK ? by_run(c->encoder) : s;
}

/* A whole batch: the rows past the last picture repeat the first one. */
static by_status make_batch(canvas *c, int32_t *tokens, int64_t first, int64_t count, double *nats)
{
    const size_t row = (size_t)c->tokens * sizeof *tokens;
    const int rows = (int)BY_MIN(count - first, (int64_t)c->batch);
    int32_t *work = base_alloc_zero((size_t)c->batch, row);
    by_status s = !work ? BY_ERR_MEMORY : c->low ? read_low(c, first, rows) : BY_OK;
    for (int b = 0; b < c->batch && s == BY_OK; b++)
        memcpy(work + (ptrdiff_t)b * c->tokens, tokens + (first + (b < rows ? b : 0)) * c->tokens, row);
    for (int t = 0; t < c->size.positions && s == BY_OK; t++) {
        s = make_position(c, work, t, first, rows, nats ? nats + first : NULL);
        if (s == BY_OK && c->spec->cancelled && c->spec->cancelled(c->spec->user))
            s = base_fail(BY_ERR_CANCELLED, "stopped after %d of %d positions", t + 1, c->size.positions);
        if (c->spec->progress)
            c->spec->progress(c->spec->user, first * c->size.positions + (int64_t)(t + 1) * rows,
                              count * c->size.positions);
    }
    if (s == BY_OK)
        memcpy(tokens + first * c->tokens, work, (size_t)rows * row);
    base_free(work);
    return s;
}

static by_status check_given(const canvas *c, const int32_t *tokens, int count)
{
    for (int64_t i = 0; c->spec->given && i < (int64_t)count * c->tokens; i++)
        if (c->spec->given[i % c->tokens] && (tokens[i] < 0 || tokens[i] >= c->size.values))
            return base_fail(BY_ERR_ARGUMENT, "token %d of picture %lld is not in [0, %d)", (int)tokens[i],
                             (long long)(i / c->tokens), c->size.values);
    for (int64_t i = 0; c->spec->given && i < c->tokens; i++)
        if (c->spec->given[i] != c->spec->given[i - i % c->per])
            return base_fail(BY_ERR_ARGUMENT, "some channels of a pixel are given and others are not");
    for (int64_t i = 0; i < (int64_t)count * c->low; i++)
        if (c->spec->low[i] < 0 || c->spec->low[i] >= c->size.values)
            return base_fail(BY_ERR_ARGUMENT, "value %d of picture %lld is not in [0, %d)",
                             (int)c->spec->low[i], (long long)(i / c->low), c->size.values);
    return BY_OK;
}

by_status by_pixels_sample(by_model *m, const by_pixel_spec *spec, int32_t *tokens, int count, double *nats)
{
    canvas c = {0};
    if (!m || !spec || !tokens)
        return base_fail_missing(!m ? "model" : !spec ? "by_pixel_spec" : "memory for the tokens");
    if (count < 1)
        return base_fail(BY_ERR_ARGUMENT, "invalid number of pictures: %d", count);
    by_status s = open_canvas(&c, m, spec, count);
    if (s == BY_OK)
        s = check_given(&c, tokens, count);
    for (int64_t i = 0; i < (int64_t)count * c.tokens && s == BY_OK; i++)
        if (!spec->given || !spec->given[i % c.tokens])
            tokens[i] = 0;
    for (int i = 0; nats && i < count; i++)
        nats[i] = 0;
    for (int64_t first = 0; first < count && s == BY_OK; first += c.batch)
        s = make_batch(&c, tokens, first, count, nats);
    close_canvas(&c);
    return s;
}
