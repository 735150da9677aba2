/* generator_loop.c - decoding on the device. Each step prepares the inputs of the next, so that many steps
 * run before the host reads the tokens. The next token is the most likely one, or sampled. */
#include <math.h>

#include "infer/generator.h"

enum { RUN = 32 }; /* steps between two read-backs */

enum { DRAW = 5 }; /* integers per row of `draws`: see by_draw */

/* Allocates `count` elements of 4 bytes, unless present. */
static bool have(by_generator *g, by_memory **memory, size_t count)
{
    *memory = *memory ? *memory : by_memory_new(by_model_device(g->model), count * sizeof(int32_t));
    return *memory != NULL;
}

static by_status make_loop(by_generator *g, bool drawn)
{
    gen_loop *l = &g->loop;
    const size_t rows = (size_t)g->batch;
    l->out = l->out ? l->out : base_alloc_zero(RUN * rows, sizeof *l->out);
    return l->out && have(g, &l->tokens, rows) && have(g, &l->positions, rows) && have(g, &l->past, rows) &&
                   have(g, &l->log, 1 + RUN * rows) &&
                   (!drawn || (have(g, &l->draws, DRAW * rows) && have(g, &l->temperature, rows)))
               ? BY_OK
               : base_error_status();
}

/* (B, 1) */
static by_tensor *next_token(by_generator *g, by_graph *graph, const gen_pass *p, by_tensor *logits)
{
    const gen_loop *l = &g->loop;
    const int64_t shape[] = {p->rows, DRAW};
    return p->width == GEN_GREEDY
               ? by_argmax(graph, logits)
               : by_draw(graph, logits, by_state(graph, "temperature", BY_F32, 1, shape, l->temperature),
                         by_state(graph, "draws", BY_I32, 2, shape, l->draws));
}

static by_status compile_loop(by_generator *g, gen_pass *p)
{
    const gen_loop *l = &g->loop;
    BY_TRY(make_loop(g, p->width == GEN_DRAWN));
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    int64_t shape[] = {p->rows, 1}, log[] = {1 + (int64_t)RUN * p->rows};
    by_tensor *tokens = by_state(graph, "tokens", BY_I32, 2, shape, l->tokens);
    by_tensor *positions = by_state(graph, "positions", BY_I32, 2, shape, l->positions);
    by_tensor *past = by_state(graph, "past", BY_I32, 1, shape, l->past);
    by_cache view = gen_view(g, graph, p, past);
    by_model_io io = {.part = gen_has_sources(g) ? BY_PART_DECODER : BY_PART_WHOLE, .cache = &view};
    by_io_feed(&io, "tokens", tokens);
    by_io_feed(&io, "positions", gen_positions(g, graph, tokens, positions));
    gen_build(g, graph, &io);
    by_advance(graph, next_token(g, graph, p, by_io_output(&io, "logits")), tokens, positions, past,
               by_state(graph, "log", BY_I32, 1, log, l->log),
               by_model_first_position(g->model) + g->prefix + gen_last_place(g));
    p->program = by_compile(graph, &(by_compile_spec){0});
    return p->program ? BY_OK : base_error_status();
}

/* The step for the groups that act, compiled; kind: GEN_GREEDY or GEN_DRAWN. */
static by_status choose_loop(by_generator *g, int kind, gen_pass **out)
{
    gen_pass *p = *out = gen_find_pass(g, gen_choose_rows(g, g->beams), kind, false);
    if (!p)
        return BY_ERR_MEMORY;
    return p->program ? BY_OK : compile_loop(g, p);
}

by_status by_generator_time(by_generator *g, by_trace_fn fn, void *user)
{
    gen_pass *p;
    BY_TRY(gen_check_stage(g));
    if (g->whole)
        return base_fail(BY_ERR_UNSUPPORTED, "the model has no decoding step to time");
    for (int i = 0; i < g->batch / g->beams; i++)
        g->in.acts[i] = true;
    BY_TRY(choose_loop(g, GEN_GREEDY, &p));
    by_program_time(p->program, fn, user);
    return BY_OK;
}

static by_status check_loop(by_generator *g, const int32_t *tokens, const bool *active, int steps)
{
    if (steps < 1 || steps > RUN)
        return base_fail(BY_ERR_ARGUMENT, "%d steps at once: not between 1 and %d", steps, RUN);
    for (int b = 0; b < g->batch; b++) {
        if (g->rows[b].from != b)
            return base_fail(BY_ERR_ARGUMENT, "rows were reordered since the last feed");
        if (active[b] && (steps > g->capacity - g->rows[b].past || tokens[b] < 0 || tokens[b] >= g->vocab))
            return base_fail(BY_ERR_ARGUMENT, "row %d cannot continue from token %d for %d steps", b,
                             (int)tokens[b], steps);
    }
    return BY_OK;
}

static by_status write_draws(by_generator *g, const gen_pass *p, const by_draw_spec *draws)
{
    const size_t rows = (size_t)p->rows;
    int32_t *words = base_alloc_zero(rows, DRAW * sizeof *words);
    float *temperature = base_alloc_zero(rows, sizeof *temperature);
    by_status s = words && temperature ? BY_OK : BY_ERR_MEMORY;
    for (size_t i = 0; s == BY_OK && i < rows; i++) {
        const by_draw_spec *d = &draws[g->in.rows[i]];
        memcpy(words + DRAW * i,
               (int32_t[DRAW]){(int32_t)d->seed, (int32_t)(d->seed >> 32), (int32_t)d->sample,
                               (int32_t)(d->sample >> 32), d->place},
               DRAW * sizeof *words);
        temperature[i] = d->temperature;
    }
    if (s == BY_OK)
        s = by_memory_write(g->loop.draws, 0, words, rows * DRAW * sizeof *words);
    if (s == BY_OK)
        s = by_memory_write(g->loop.temperature, 0, temperature, rows * sizeof *temperature);
    base_free(words);
    base_free(temperature);
    return s;
}

/* Runs the loop over the rows of p; the tokens are in loop.out (steps, rows). */
static by_status run_loop(by_generator *g, gen_pass *p, const int32_t *tokens, const bool *active, int steps)
{
    const gen_loop *l = &g->loop;
    const size_t bytes = (size_t)p->rows * sizeof(int32_t);
    const int32_t none = 0, first = by_model_first_position(g->model) + g->prefix, last = gen_last_place(g);
    for (int i = 0; i < p->rows; i++) {
        const int b = g->in.rows[i];
        g->in.tokens[i] = active[b] ? tokens[b] : 0;
        g->in.valid[i] = active[b];
        g->in.past[i] = g->rows[b].past + g->prefix;
        g->in.positions[i] = first + BY_MIN(g->rows[b].past, last);
    }
    BY_TRY(by_memory_write(l->tokens, 0, g->in.tokens, bytes));
    BY_TRY(by_memory_write(l->positions, 0, g->in.positions, bytes));
    BY_TRY(by_memory_write(l->past, 0, g->in.past, bytes));
    BY_TRY(by_memory_write(l->log, 0, &none, sizeof none));
    BY_TRY(gen_write_view(g, p));
    for (int s = 0; s < steps; s++)
        BY_TRY(by_run(p->program));
    return by_memory_read(l->log, sizeof none, l->out, (size_t)steps * bytes);
}

/* draws NULL: greedy. */
static by_status run_steps(by_generator *g, const int32_t *tokens, const bool *active,
                           const by_draw_spec *draws, int steps, int32_t *out)
{
    gen_pass *p;
    for (int b = 0; b < g->batch; b++)
        g->in.pick[b] = active[b] ? steps : 0;
    BY_TRY(gen_reserve(g, g->in.pick));
    if (g->prefix)
        BY_TRY(gen_feed_prefix(g, NULL, active));
    memset(g->in.acts, 0, sizeof *g->in.acts * (size_t)(g->batch / g->beams));
    for (int b = 0; b < g->batch; b++) {
        g->in.acts[b / g->beams] |= active[b];
        g->rows[b].known = false;
    }
    BY_TRY(choose_loop(g, draws ? GEN_DRAWN : GEN_GREEDY, &p));
    if (draws)
        BY_TRY(write_draws(g, p, draws));
    BY_TRY(run_loop(g, p, tokens, active, steps));
    for (int b = 0; b < g->batch; b++) {
        if (!active[b])
            continue;
        for (int s = 0; s < steps; s++)
            out[s * g->batch + b] = g->loop.out[s * p->rows + g->rows[b].slot];
        g->rows[b].past += steps;
    }
    return BY_OK;
}

by_status by_generator_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                              int32_t *out)
{
    BY_TRY(gen_check_stage(g));
    BY_TRY(check_loop(g, tokens, active, steps));
    return g->whole ? gen_greedy_whole(g, tokens, active, steps, out)
                    : run_steps(g, tokens, active, NULL, steps, out);
}

by_status by_generator_draw(by_generator *g, const int32_t *tokens, const bool *active,
                            const by_draw_spec *draws, int steps, int32_t *out)
{
    BY_TRY(gen_check_stage(g));
    BY_TRY(check_loop(g, tokens, active, steps));
    if (g->whole)
        return base_fail(BY_ERR_UNSUPPORTED, "the model has no sampling step");
    for (int b = 0; b < g->batch; b++)
        if (active[b] && !(draws[b].temperature > 0 && isfinite(draws[b].temperature) && draws[b].place >= 0))
            return base_fail(BY_ERR_ARGUMENT,
                             "row %d: sampling requires a finite positive temperature and a place", b);
    return run_steps(g, tokens, active, draws, steps, out);
}
