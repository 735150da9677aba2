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
    return l->tokens && l->positions && l->past && l->log ? BY_OK : base_error_status();
}

static by_status compile_loop(by_generator *g)
{
    const gen_loop *l = &g->greedy;
    BY_TRY(make_loop(g));
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    int64_t shape[] = {g->batch, 1}, log[] = {1 + (int64_t)RUN * g->batch};
    by_tensor *tokens = by_state(graph, "tokens", BY_I32, 2, shape, l->tokens);
    by_tensor *positions = by_state(graph, "positions", BY_I32, 2, shape, l->positions);
    by_tensor *past = by_state(graph, "past", BY_I32, 1, shape, l->past);
    g->cache->past = past;
    g->cache->from = g->cache->source_from = NULL;
    gen_use_sources(g, graph, g->batch);
    by_model_io io = {.part = gen_has_sources(g) ? BY_PART_DECODER : BY_PART_WHOLE, .cache = g->cache};
    by_io_feed(&io, "tokens", tokens);
    by_io_feed(&io, "positions", positions);
    by_model_build(g->model, graph, &io);
    by_tensor *next = by_argmax(graph, by_io_output(&io, "logits")); /* (B, 1) */
    by_advance(graph, next, tokens, positions, past, by_state(graph, "log", BY_I32, 1, log, l->log),
               by_model_first_position(g->model) + gen_last_place(g));
    g->now->greedy = by_compile(graph, &(by_compile_spec){0});
    return g->now->greedy ? BY_OK : base_error_status();
}

by_status by_generator_time(by_generator *g, by_trace_fn fn, void *user)
{
    BY_TRY(gen_check_stage(g));
    if (!g->now->greedy)
        BY_TRY(compile_loop(g));
    by_program_time(g->now->greedy, fn, user);
    return BY_OK;
}

by_status by_generator_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                              int32_t *out)
{
    gen_loop *l = &g->greedy;
    const size_t rows = (size_t)g->batch, bytes = rows * sizeof(int32_t);
    const int32_t none = 0, first = by_model_first_position(g->model);
    BY_TRY(gen_check_stage(g));
    if (steps < 1 || steps > RUN)
        return base_fail(BY_ERR_ARGUMENT, "%d steps at once: not between 1 and %d", steps, RUN);
    for (int b = 0; b < g->batch; b++) {
        if (g->from[b] != b)
            return base_fail(BY_ERR_ARGUMENT, "rows were reordered, and nothing was fed since");
        if (active[b] && (steps > g->capacity - g->past[b] || tokens[b] < 0 || tokens[b] >= g->vocab))
            return base_fail(BY_ERR_ARGUMENT, "row %d cannot go on from token %d for %d steps", b,
                             (int)tokens[b], steps);
        g->tokens[b] = active[b] ? tokens[b] : 0;
        g->past[b] = active[b] ? g->past[b] : 0;
        g->positions[b] = first + g->past[b]; /* within the context, as the capacity is */
        g->known[b] = false;
    }
    if (!g->now->greedy)
        BY_TRY(compile_loop(g));
    BY_TRY(by_memory_write(l->tokens, 0, g->tokens, bytes));
    BY_TRY(by_memory_write(l->positions, 0, g->positions, bytes));
    BY_TRY(by_memory_write(l->past, 0, g->past, bytes));
    BY_TRY(by_memory_write(l->log, 0, &none, sizeof none));
    for (int s = 0; s < steps; s++)
        BY_TRY(by_run(g->now->greedy));
    BY_TRY(by_memory_read(l->log, sizeof none, out, (size_t)steps * bytes));
    for (int b = 0; b < g->batch; b++)
        g->past[b] = active[b] ? g->past[b] + steps : 0;
    return BY_OK;
}
