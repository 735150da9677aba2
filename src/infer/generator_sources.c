/* generator_sources.c - sources of encoder-decoders. Sources are padded to one of a few lengths, each with an
 * encoder and a set of passes; the encoder writes the keys and values of every decoder block to the store. */
#include "infer/generator.h"

bool gen_has_sources(const by_generator *g)
{
    return by_model_task(g->model) == BY_TASK_SEQ2SEQ;
}

/* Sources are padded to one of a few lengths. */
static int padded_length(int n)
{
    int step = 8;
    while (n > 4 * step)
        step *= 2;
    return (n + step - 1) / step * step;
}

by_status gen_enter_stage(by_generator *g, int length, int height)
{
    for (int i = 0; i < g->n_stages; i++)
        if (g->stages[i]->length == length && g->stages[i]->height == height) {
            g->now = g->stages[i];
            return BY_OK;
        }
    gen_stage **more = base_resize(g->stages, (size_t)g->n_stages + 1, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    g->stages = more;
    gen_stage *fresh = base_alloc_zero(1, sizeof *fresh);
    if (!fresh)
        return BY_ERR_MEMORY;
    fresh->length = length;
    fresh->height = height;
    g->now = g->stages[g->n_stages++] = fresh;
    return BY_OK;
}

by_status gen_make_sources(by_generator *g, int capacity)
{
    gen_sources *x = &g->sources;
    by_pictures p;
    const bool pictures = by_model_pictures(g->model, &p);
    const int own = pictures ? by_pictures_positions(&p, p.height, p.width) : by_model_context(g->model);
    x->capacity = capacity ? capacity : own;
    g->store->sources = g->batch / g->beams;
    g->store->source_room = pictures ? x->capacity : padded_length(x->capacity);
    const size_t room = (size_t)(g->store->sources * g->store->source_room);
    x->tokens = base_alloc_zero(room, sizeof *x->tokens);
    x->mask = base_alloc_zero(room, sizeof *x->mask);
    x->seen = by_memory_new(by_model_device(g->model), room * sizeof(int32_t));
    return x->tokens && x->mask && x->seen ? BY_OK : base_error_status();
}

void gen_free_stage(gen_stage *s)
{
    for (int i = 0; i < s->n_passes; i++) {
        by_program_free(s->passes[i]->program);
        base_free(s->passes[i]);
    }
    base_free(s->passes);
    by_program_free(s->encoder);
    base_free(s);
}

/* ---- the encoder ------------------------------------------------------------------------------ */

static by_status compile_encoder(by_generator *g, gen_stage *s)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    const int64_t shape[] = {g->batch / g->beams, s->length};
    s->source = by_input(graph, "source", BY_I32, 2, shape);
    s->source_mask = by_input(graph, "source mask", BY_I32, 2, shape);
    by_cache view = {.store = g->store, .source_length = s->length};
    by_model_io io = {.part = BY_PART_ENCODER, .cache = &view};
    by_io_feed(&io, "source", s->source);
    by_io_feed(&io, "source_mask", s->source_mask);
    gen_build(g, graph, &io);
    s->encoder = by_compile(graph, &(by_compile_spec){0});
    return s->encoder ? BY_OK : base_error_status();
}

static by_status compile_viewer(by_generator *g, gen_stage *s, int channels, int width)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    const int64_t shape[] = {g->batch / g->beams, channels, s->height, width};
    s->source = by_input(graph, "pixel_values", BY_F32, 4, shape);
    by_cache view = {.store = g->store, .source_length = s->length};
    by_model_io io = {.part = BY_PART_ENCODER, .cache = &view};
    by_io_feed(&io, "pixel_values", s->source);
    by_model_build(g->model, graph, &io);
    s->encoder = by_compile(graph, &(by_compile_spec){0});
    return s->encoder ? BY_OK : base_error_status();
}

/* All rows are empty. */
static void forget_rows(by_generator *g)
{
    for (int b = 0; b < g->batch; b++) {
        by_generator_rewind(g, b, 0);
        g->rows[b].known = false;
        g->rows[b].from = b;
    }
}

static by_status check_source(const by_generator *g, int i, const int32_t *tokens, int length)
{
    const int vocab = by_model_source_vocab(g->model);
    if (length < 1)
        return base_fail(BY_ERR_ARGUMENT, "source %d is empty", i);
    if (length > g->sources.capacity)
        return base_fail(BY_ERR_ARGUMENT, "source %d has %d tokens; the capacity is %d", i, length,
                         g->sources.capacity);
    for (int t = 0; t < length; t++)
        if (tokens[t] < 0 || tokens[t] >= vocab)
            return base_fail(BY_ERR_ARGUMENT,
                             "token %d (source %d, place %d) is outside the vocabulary of %d", (int)tokens[t],
                             i, t, vocab);
    return BY_OK;
}

/* Pads the sources; a group without one gets a single token. */
static void lay_out(by_generator *g, const int32_t *const *sources, const int *lengths)
{
    const int length = g->now->length, pad = BY_MAX(by_model_pad(g->model), 0);
    for (int i = 0; i < g->batch / g->beams; i++)
        for (int t = 0; t < length; t++) {
            const bool there = sources[i] && t < lengths[i];
            g->sources.tokens[i * length + t] = there ? sources[i][t] : pad;
            g->sources.mask[i * length + t] = there || (!sources[i] && t == 0);
        }
}

by_status by_generator_encode(by_generator *g, const int32_t *const *sources, const int *lengths)
{
    if (!g || !sources || !lengths)
        return base_fail_missing(g ? "source" : "generator");
    const int n = g->batch / g->beams;
    int longest = 1;
    by_pictures pictures;
    if (!gen_has_sources(g) || by_model_pictures(g->model, &pictures))
        return base_fail(BY_ERR_ARGUMENT, "%s has no encoder of texts",
                         base_a(by_model_class(g->model)).text);
    for (int i = 0; i < n; i++)
        if (sources[i]) {
            BY_TRY(check_source(g, i, sources[i], lengths[i]));
            longest = BY_MAX(longest, lengths[i]);
        }
    int padded = padded_length(longest); /* within the context, which padding may exceed */
    if (by_model_is_limited(g->model))
        padded = BY_MIN(padded, by_model_context(g->model));
    BY_TRY(gen_enter_stage(g, padded, 0));
    gen_stage *s = g->now;
    if (!s->encoder)
        BY_TRY(compile_encoder(g, s));
    lay_out(g, sources, lengths);
    const size_t bytes = (size_t)n * (size_t)s->length * sizeof(int32_t);
    BY_TRY(by_write(s->encoder, s->source, g->sources.tokens, bytes));
    BY_TRY(by_write(s->encoder, s->source_mask, g->sources.mask, bytes));
    BY_TRY(by_memory_write(g->sources.seen, 0, g->sources.mask, bytes));
    forget_rows(g);
    return by_run(s->encoder);
}

static by_status check_pictures(const by_generator *g, const by_picture_batch *x, int length)
{
    const int n = g->batch / g->beams;
    if (x->count < 1 || x->count > n)
        return base_fail(BY_ERR_ARGUMENT, "%d pictures are too %s for %d groups of rows", x->count,
                         x->count < 1 ? "few" : "many", n);
    if (length < 1)
        return base_fail(BY_ERR_ARGUMENT, "a picture of %d x %d pixels is not a whole number of patches",
                         x->height, x->width);
    if (length > g->sources.capacity)
        return base_fail(BY_ERR_ARGUMENT, "a picture of %d x %d pixels has %d positions; the capacity is %d",
                         x->height, x->width, length, g->sources.capacity);
    return BY_OK;
}

/* Groups without a picture get a black one. */
static by_status write_pixels(by_generator *g, const by_picture_batch *x, size_t one)
{
    const size_t n = (size_t)(g->batch / g->beams), given = (size_t)x->count;
    if (given == n)
        return by_write(g->now->encoder, g->now->source, x->values, n * one * sizeof(float));
    float *all = base_alloc_zero(n * one, sizeof *all);
    if (!all)
        return BY_ERR_MEMORY;
    memcpy(all, x->values, given * one * sizeof *all);
    by_status s = by_write(g->now->encoder, g->now->source, all, n * one * sizeof *all);
    base_free(all);
    return s;
}

by_status by_generator_see(by_generator *g, const by_picture_batch *x)
{
    by_pictures p;
    if (!g || !x || !x->values)
        return base_fail_missing(g ? "picture" : "generator");
    if (!gen_has_sources(g) || !by_model_pictures(g->model, &p))
        return base_fail(BY_ERR_ARGUMENT, "%s does not read pictures", base_a(by_model_class(g->model)).text);
    const int length = by_pictures_positions(&p, x->height, x->width);
    BY_TRY(check_pictures(g, x, length));
    BY_TRY(gen_enter_stage(g, length, x->height));
    if (!g->now->encoder)
        BY_TRY(compile_viewer(g, g->now, p.channels, x->width));
    const int cells = g->batch / g->beams * length;
    for (int i = 0; i < cells; i++)
        g->sources.mask[i] = 1;
    BY_TRY(write_pixels(g, x, (size_t)p.channels * (size_t)x->height * (size_t)x->width));
    BY_TRY(by_memory_write(g->sources.seen, 0, g->sources.mask, (size_t)cells * sizeof(int32_t)));
    forget_rows(g);
    return by_run(g->now->encoder);
}

by_status gen_check_stage(const by_generator *g)
{
    return g->now
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "no source: call by_generator_encode or by_generator_see first");
}
