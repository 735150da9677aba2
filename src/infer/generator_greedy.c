/* generator_greedy.c - decoding on the device: a step ends where the next begins, so that many of them run
 * without the host, which looks at what was written afterwards. */
#include "infer/generator.h"

enum { RUN = 32 }; /* steps without a look at them */

static by_memory *ints(by_generator *g, size_t count)
{
    return by_memory_new(by_model_device(g->model), count * sizeof(int32_t));
}

static by_status make_loop(by_generator *g)
{
    gen_loop *l = &g->greedy;
    const size_t rows = (size_t)g->batch;
    l->tokens = l->tokens ? l->tokens : ints(g, rows);
    l->positions = l->positions ? l->positions : ints(g, rows);
    l->past = l->past ? l->past : ints(g, rows);
    l->log = l->log ? l->log : ints(g, 1 + RUN * rows);
    l->out = l->out ? l->out : base_alloc_zero(RUN * rows, sizeof *l->out);
    return l->tokens && l->positions && l->past && l->log && l->out ? BY_OK : base_error_status();
}

static by_status compile_loop(by_generator *g, gen_pass *p)
{
    const gen_loop *l = &g->greedy;
    BY_TRY(make_loop(g));
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
    by_io_feed(&io, "positions", positions);
    gen_build(g, graph, &io);
    by_tensor *next = by_argmax(graph, by_io_output(&io, "logits")); /* (B, 1) */
    by_advance(graph, next, tokens, positions, past, by_state(graph, "log", BY_I32, 1, log, l->log),
               by_model_first_position(g->model) + gen_last_place(g));
    p->program = by_compile(graph, &(by_compile_spec){0});
    return p->program ? BY_OK : base_error_status();
}

/* The step for the groups that act, compiled. */
static by_status choose_loop(by_generator *g, gen_pass **out)
{
    gen_pass *p = *out = gen_find_pass(g, gen_choose_rows(g, g->beams), 0, false);
    if (!p)
        return BY_ERR_MEMORY;
    return p->program ? BY_OK : compile_loop(g, p);
}

by_status by_generator_time(by_generator *g, by_trace_fn fn, void *user)
{
    gen_pass *p;
    BY_TRY(gen_check_stage(g));
    if (g->whole)
        return base_fail(BY_ERR_UNSUPPORTED, "the model has no decoding step to measure");
    for (int i = 0; i < g->batch / g->beams; i++)
        g->in.acts[i] = true;
    BY_TRY(choose_loop(g, &p));
    by_program_time(p->program, fn, user);
    return BY_OK;
}

static by_status check_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps)
{
    if (steps < 1 || steps > RUN)
        return base_fail(BY_ERR_ARGUMENT, "%d steps at once: not between 1 and %d", steps, RUN);
    for (int b = 0; b < g->batch; b++) {
        if (g->rows[b].from != b)
            return base_fail(BY_ERR_ARGUMENT, "rows were reordered, and nothing was fed since");
        if (active[b] && (steps > g->capacity - g->rows[b].past || tokens[b] < 0 || tokens[b] >= g->vocab))
            return base_fail(BY_ERR_ARGUMENT, "row %d cannot go on from token %d for %d steps", b,
                             (int)tokens[b], steps);
    }
    return BY_OK;
}

/* Run the loop over the rows of p, and leave what they came to in greedy.out (steps, rows). */
static by_status run_loop(by_generator *g, gen_pass *p, const int32_t *tokens, const bool *active, int steps)
{
    const gen_loop *l = &g->greedy;
    const size_t bytes = (size_t)p->rows * sizeof(int32_t);
    const int32_t none = 0, first = by_model_first_position(g->model), last = gen_last_place(g);
    for (int i = 0; i < p->rows; i++) {
        const int b = g->in.rows[i];
        g->in.tokens[i] = active[b] ? tokens[b] : 0;
        g->in.valid[i] = active[b];
        g->in.past[i] = g->rows[b].past;
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

by_status by_generator_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                              int32_t *out)
{
    gen_pass *p;
    BY_TRY(gen_check_stage(g));
    BY_TRY(check_greedy(g, tokens, active, steps));
    if (g->whole)
        return gen_greedy_whole(g, tokens, active, steps, out);
    memset(g->in.acts, 0, sizeof *g->in.acts * (size_t)(g->batch / g->beams));
    for (int b = 0; b < g->batch; b++) {
        g->in.pick[b] = active[b] ? steps : 0;
        g->in.acts[b / g->beams] |= active[b];
        g->rows[b].known = false;
    }
    BY_TRY(gen_reserve(g, g->in.pick));
    BY_TRY(choose_loop(g, &p));
    BY_TRY(run_loop(g, p, tokens, active, steps));
    for (int b = 0; b < g->batch; b++) {
        if (!active[b])
            continue;
        for (int s = 0; s < steps; s++)
            out[s * g->batch + b] = g->greedy.out[s * p->rows + g->rows[b].slot];
        g->rows[b].past += steps;
    }
    return BY_OK;
}
