/* op_samples_sequence.c - samples of hashing, chunked attention, recurrent layers and additive scores. */
#include "op_sample_build.h"

/* ---- hashing and attention within chunks ------------------------------------------------------ */

bool op_sample_hash(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch, rows, heads, dim, rounds;
        int count, factors[2];
        bool masked;
    } cases[] = {
        {2, 7, 3, 5, 2, 1, {4}, false},
        {1, 70, 2, 8, 1, 2, {6, 2}, true},
        {2, 140, 2, 64, 3, 2, {8, 16}, false},
        {1, 33, 1, 24, 2, 1, {160}, false}, /* more columns than a block has threads */
    };
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t b = cases[which].batch, t = cases[which].rows, h = cases[which].heads;
    int64_t columns = 0;
    for (int i = 0; i < cases[which].count; i++)
        columns += cases[which].factors[i] / 2;
    by_tensor *x = operand(s, SHAPE(b, t, h * cases[which].dim));
    by_tensor *r = input(s, gr_acc_type(s->type), SHAPE(h, cases[which].dim, cases[which].rounds, columns));
    by_tensor *mask = cases[which].masked ? indices(s, 3, SHAPE(b, t)) : NULL;
    shown(s, by_hash(s->graph, x, r, mask, cases[which].count, cases[which].factors));
    return true;
}

typedef struct chunked_case {
    int64_t batch, rows, rounds; /* rounds 0: no order */
    int heads, dim, chunk, before, after;
    int64_t length;
    bool causal, avoid, masked, weights;
    float dropout;
} chunked_case;

static const chunked_case chunked_cases[] = {
    {2, 12, 2, 3, 5, 4, 1, 0, 0, .causal = true, .avoid = true, .weights = true},
    {1, 12, 0, 2, 8, 4, 1, 1, 0, .weights = true}, /* around the end, in both directions */
    {1, 11, 1, 2, 4, 4, 2, 0, 0, .avoid = true},   /* every chunk is seen, one of them partial */
    {2, 10, 3, 2, 16, 4, 1, 0, 16, .causal = true, .avoid = true,
     .masked = true},                                            /* a whole chunk is missing */
    {1, 7, 0, 2, 24, 7, 0, 0, 0, .causal = true, .avoid = true}, /* one chunk: plain attention */
    {2, 19, 2, 1, 6, 8, 1, 1, 0, .avoid = true, .dropout = 0.2f, .weights = true},
    {1, 150, 1, 1, 64, 64, 1, 0, 0, .causal = true, .avoid = true},                  /* as in real models */
    {1, 140, 2, 1, 72, 70, 1, 0, 0, .avoid = true, .masked = true, .dropout = 0.1f}, /* chunks of two tiles */
    {1, 33, 0, 2, 40, 16, 1, 0, 0, .causal = true, .dropout = 0.3f},
    {1, 20, 2, 1, 136, 8, 0, 1, 0, .avoid = true},
};

static bool chunked_sample(by_op_sample *s, int which, bool backward)
{
    if (which >= BY_COUNT(chunked_cases))
        return false;
    const chunked_case c = chunked_cases[which];
    const int64_t width = (int64_t)c.heads * c.dim;
    tag(s, "%d heads, %lld rounds, chunk %d ", c.heads, (long long)c.rounds, c.chunk);
    tag_if(s, c.causal, "causal");
    tag_if(s, c.avoid, "avoid_self");
    tag_if(s, c.weights, "weights");
    by_tensor *in[8] = {operand(s, SHAPE(c.batch, c.rows, width)), operand(s, SHAPE(c.batch, c.rows, width)),
                        operand(s, SHAPE(c.batch, c.rows, width))};
    by_tensor *order =
        c.rounds ? by_argsort(s->graph, indices(s, 5, SHAPE(c.batch, c.heads, c.rounds, c.rows)), false)
                 : NULL;
    by_tensor *mask = c.masked ? indices(s, 4, SHAPE(c.batch, c.rows)) : NULL, *weights = NULL;
    const by_chunked_spec spec = {.heads = c.heads,
                                  .chunk = c.chunk,
                                  .before = c.before,
                                  .after = c.after,
                                  .length = c.length,
                                  .causal = c.causal,
                                  .avoid_self = c.avoid,
                                  .dropout = c.dropout,
                                  .order = order,
                                  .key_mask = mask,
                                  .weights = c.weights ? &weights : NULL};
    by_tensor *y = by_chunked_attention(s->graph, in[0], in[1], in[2], &spec);
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    gr_node *n = y->node;
    if (!backward) {
        out(s, y);
        shown_of(s, n, 1);
        if (weights)
            shown(s, weights);
        return true;
    }
    by_tensor *more[] = {order, mask, y, n->out[1], operand(s, SHAPE(c.batch, c.rows, width))};
    memcpy(in + 3, more, sizeof more);
    gr_node *d =
        gr_node_make(s->graph, GR_OP_CHUNKED_ATTENTION_GRAD, in, 8, n->attr, sizeof(gr_chunked_attr));
    if (d)
        d->rng = n->rng;
    for (int i = 0; i < 3; i++)
        shown_of(s, d, i);
    return true;
}

bool op_sample_chunked_attention(by_op_sample *s, int which)
{
    return chunked_sample(s, which, false);
}

bool op_sample_chunked_attention_grad(by_op_sample *s, int which)
{
    return chunked_sample(s, which, true);
}

typedef struct recurrent_case {
    by_cell cell;
    int64_t batch, length, width;
    bool reverse, masked, states, no_bias;
} recurrent_case;

static const recurrent_case recurrent_cases[] = {
    {BY_CELL_LSTM, 3, 5, 6, .reverse = false},
    {BY_CELL_LSTM, 2, 4, 19, .states = true, .masked = true},
    {BY_CELL_LSTM, 2, 3, 8, .reverse = true, .states = true, .masked = true},
    {BY_CELL_LSTM, 2, 1, 7, .states = true}, /* one position: a decoder */
    {BY_CELL_GRU, 3, 5, 6, .reverse = false},
    {BY_CELL_GRU, 2, 4, 19, .states = true, .masked = true},
    {BY_CELL_GRU, 2, 4, 5, .reverse = true, .states = true, .no_bias = true},
    {BY_CELL_TANH, 3, 4, 17, .states = true, .masked = true},
    {BY_CELL_TANH, 1, 4, 9, .reverse = true, .no_bias = true},
    {BY_CELL_RELU, 2, 3, 5, .states = true},
    {BY_CELL_LSTM, 17, 6, 70, .states = true, .masked = true}, /* several threads and tiles */
    {BY_CELL_GRU, 21, 5, 83, .masked = true},
    {BY_CELL_TANH, 19, 6, 150, .reverse = true},
    {BY_CELL_LSTM, 33, 2, 180, .states = true}, /* more rows and longer ones than a block of a GPU holds */
};

/* Small weights: with large ones the states saturate. */
static by_tensor *small(by_op_sample *s, by_tensor *t, double by)
{
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] *= by;
    return t;
}

static bool recurrent_sample(by_op_sample *s, int which, bool backward)
{
    if (which >= BY_COUNT(recurrent_cases))
        return false;
    const recurrent_case c = recurrent_cases[which];
    const int64_t wide = gr_cell_gates(c.cell) * c.width;
    const bool lstm = c.cell == BY_CELL_LSTM;
    static const char *const cells[] = {"tanh ", "relu ", "lstm ", "gru "};
    tag(s, "%s", cells[c.cell]);
    tag_if(s, c.reverse, "reverse");
    by_tensor *gates = operand(s, SHAPE(c.batch, c.length, wide));
    by_tensor *w = small(s, operand(s, SHAPE(wide, c.width)), 1 / sqrt((double)c.width));
    by_tensor *b = c.no_bias ? NULL : operand(s, SHAPE(wide));
    by_tensor *last_h = NULL, *last_c = NULL;
    by_recurrent_spec spec = {.cell = c.cell, .reverse = c.reverse};
    spec.mask = c.masked ? indices(s, 3, SHAPE(c.batch, c.length)) : NULL;
    spec.h = c.states ? operand(s, SHAPE(c.batch, c.width)) : NULL;
    spec.c = c.states && lstm ? operand(s, SHAPE(c.batch, c.width)) : NULL;
    spec.last_h = &last_h;
    spec.last_c = lstm ? &last_c : NULL;
    by_tensor *y = by_recurrent(s->graph, gates, w, b, &spec);
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    gr_node *n = y->node;
    if (!backward) {
        const bool last = which % 2; /* also differentiate through the last states */
        out(s, y);
        if (last)
            out(s, last_h);
        if (last && lstm)
            out(s, last_c);
        return true;
    }
    /* gradients of the outputs, of the last states, or of both */
    const bool dlast = which % 3, dy = which % 3 != 2;
    by_tensor *in[] = {w,
                       spec.mask,
                       spec.h,
                       spec.c,
                       y,
                       n->out[GR_REC_SAVED],
                       n->out[GR_REC_CELLS],
                       dy ? operand(s, SHAPE(c.batch, c.length, c.width)) : NULL,
                       dlast ? operand(s, SHAPE(c.batch, c.width)) : NULL,
                       dlast && lstm ? operand(s, SHAPE(c.batch, c.width)) : NULL};
    gr_node *d =
        gr_node_make(s->graph, GR_OP_RECURRENT_GRAD, in, BY_COUNT(in), n->attr, sizeof(gr_recurrent_attr));
    for (int i = 0; d && i < d->n_out; i++)
        if (d->out[i])
            shown(s, d->out[i]);
    return true;
}

bool op_sample_recurrent(by_op_sample *s, int which)
{
    return recurrent_sample(s, which, false);
}

bool op_sample_recurrent_grad(by_op_sample *s, int which)
{
    return recurrent_sample(s, which, true);
}

/* {B, T, S, A} */
static const int64_t additive_cases[][4] = {{2, 3, 5, 7}, {1, 1, 9, 70}, {3, 4, 6, 130}};

bool op_sample_additive_scores(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(additive_cases))
        return false;
    const int64_t *c = additive_cases[which];
    by_tensor *q = operand(s, SHAPE(c[0], c[1], c[3])), *k = operand(s, SHAPE(c[0], c[2], c[3]));
    out(s, by_additive_scores(s->graph, q, k, operand(s, SHAPE(c[3]))));
    return true;
}

bool op_sample_additive_scores_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(additive_cases))
        return false;
    const int64_t *c = additive_cases[which];
    gr_node *n = BARE_NODE(ADDITIVE_SCORES_GRAD, operand(s, SHAPE(c[0], c[1], c[3])),
                           operand(s, SHAPE(c[0], c[2], c[3])), operand(s, SHAPE(c[3])),
                           operand(s, SHAPE(c[0], c[1], c[2])), base(s, which == 1, SHAPE(c[3])));
    for (int i = 0; i < 3; i++)
        shown_of(s, n, i);
    return true;
}
