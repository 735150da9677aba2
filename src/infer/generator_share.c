/* generator_share.c - shared prompts: tokens common to several rows are fed once, and the other rows copy the
 * keys and values. */
#include "infer/generator.h"

/* Rows can only copy rows of their window (by_reorder), the largest that divides the batch. */
static int window_of(const by_generator *g)
{
    int window = BY_MIN(g->batch, BY_BEAMS_MAX);
    while (g->batch % window)
        window--;
    return window;
}

static bool can_share(const by_generator *g)
{
    return g->beams == 1 && g->columns == 1 && !g->watch.fed && !gen_has_sources(g) &&
           !by_model_is_recurrent(g->model);
}

static bool are_alike(const by_generator *g, int a, int b, const int32_t *const *tokens, const int *counts)
{
    return g->rows[a].past == 0 && g->rows[b].past == 0 && counts[a] == counts[b] &&
           (tokens[a] == tokens[b] ||
            memcmp(tokens[a], tokens[b], (size_t)counts[a] * sizeof *tokens[a]) == 0);
}

bool gen_find_alike(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    const int window = window_of(g);
    bool any = false;
    for (int b = 0; b < g->batch; b++) {
        gen_row *r = &g->rows[b];
        r->leader = b;
        if (b % window == 0 || counts[b] < 2 || !can_share(g))
            continue;
        const int leader = g->rows[b - 1].leader;
        if (are_alike(g, leader, b, tokens, counts)) {
            r->leader = leader;
            r->fed = counts[b];
            any = true;
        }
    }
    return any;
}

static by_status compile(by_generator *g)
{
    const int64_t rows = g->batch;
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    g->share.from = by_input(graph, "from", BY_I32, 1, &rows);
    g->share.past = by_input(graph, "past", BY_I32, 1, &rows);
    nn_store_move(graph, g->store, g->share.from, g->share.past, window_of(g));
    g->share.program = by_compile(graph, &(by_compile_spec){0});
    return g->share.program ? BY_OK : base_error_status();
}

/* The row shares the logits of the leader's last position. */
static void take_logits(by_generator *g, int b)
{
    gen_row *r = &g->rows[b];
    const gen_row *leader = &g->rows[r->leader];
    gen_output *o = &g->out;
    const size_t to = (size_t)b, from = (size_t)r->leader, vocab = (size_t)g->vocab, k = (size_t)o->top;
    r->past = leader->past;
    r->known = leader->known;
    r->where = leader->where;
    r->there = leader->there;
    if (r->known && !r->where)
        memcpy(o->logits + to * vocab, o->logits + from * vocab, vocab * sizeof *o->logits);
    if (!r->known || !k)
        return;
    memcpy(o->best + to * k, o->best + from * k, k * sizeof *o->best);
    memcpy(o->ids + to * k, o->ids + from * k, k * sizeof *o->ids);
    r->top = leader->top;
    r->top.logits = o->best + to * k;
    r->top.ids = o->ids + to * k;
}

by_status gen_take_over(by_generator *g)
{
    const size_t bytes = (size_t)g->batch * sizeof(int32_t);
    if (!g->share.program)
        BY_TRY(compile(g));
    for (int b = 0; b < g->batch; b++) {
        g->in.from[b] = g->rows[b].leader;
        g->in.past[b] = g->rows[g->rows[b].leader].past + g->prefix;
    }
    BY_TRY(by_write(g->share.program, g->share.from, g->in.from, bytes));
    BY_TRY(by_write(g->share.program, g->share.past, g->in.past, bytes));
    BY_TRY(by_run(g->share.program));
    for (int b = 0; b < g->batch; b++)
        if (g->rows[b].leader != b)
            take_logits(g, b);
    return BY_OK;
}
