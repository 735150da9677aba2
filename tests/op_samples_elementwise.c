/* op_samples_elementwise.c - samples of elementwise ops, reductions, and ops over rows. */
#include "op_sample_build.h"

/* ---- elementwise and reductions -------------------------------------------------------------- */

/* a op b in every way b may repeat; the last one has a tensor on both sides that both may take over. */
enum { PAIRS = 17 };

static bool pair(by_op_sample *s, int which, by_tensor *(*build)(by_graph *, by_tensor *, by_tensor *))
{
    static const struct {
        int rank_a, rank_b;
        int64_t a[3], b[3];
    } cases[PAIRS - 1] = {
        {2, 2, {3, 5}, {3, 5}},
        {3, 3, {3, 67, 83}, {3, 67, 83}}, /* several threads */
        {3, 1, {4, 3, 5}, {5}},           /* b shorter than a vector */
        {3, 2, {4, 3, 5}, {3, 5}},
        {2, 1, {40, 513}, {513}},  /* b too long to be repeated up front */
        {2, 1, {9, 2100}, {2100}}, /* b longer than a thread's share */
        {2, 0, {7, 9}, {0}},       /* one element */
        {2, 1, {70, 301}, {1}},
        {2, 1, {1, 6}, {6}},          /* as many elements, other shapes */
        {2, 1, {5, 16}, {16}},        /* b of whole vectors */
        {3, 3, {4, 1, 5}, {1, 3, 5}}, /* both repeat */
        {3, 3, {7, 3, 1}, {7, 1, 9}},
        {3, 3, {2, 3, 40}, {2, 1, 40}},
        {1, 3, {6}, {3, 2, 6}},
        {3, 3, {40, 1, 600}, {1, 2, 600}},
        {3, 3, {60, 1, 1}, {1, 50, 9}},
    };
    if (which >= PAIRS)
        return false;
    if (which < BY_COUNT(cases)) {
        by_tensor *a = operand(s, cases[which].rank_a, cases[which].a);
        out(s, build(s->graph, a, operand(s, cases[which].rank_b, cases[which].b)));
    } else {
        by_tensor *a = by_scale(s->graph, operand(s, SHAPE(4, 9)), 3);
        out(s, build(s->graph, a, by_scale(s->graph, a, 0.5)));
    }
    return true;
}

bool op_sample_add(by_op_sample *s, int which)
{
    return pair(s, which, by_add);
}

bool op_sample_sub(by_op_sample *s, int which)
{
    return pair(s, which, by_sub);
}

bool op_sample_mul(by_op_sample *s, int which)
{
    if (which != PAIRS)
        return pair(s, which, by_mul);
    by_tensor *x = operand(s, SHAPE(5, 3));
    out(s, by_mul(s->graph, x, x));
    return true;
}

static by_tensor *quotient(by_graph *g, by_tensor *a, by_tensor *b)
{
    return by_div(g, a, by_activation(g, b, BY_EXP)); /* nowhere near 0 */
}

bool op_sample_binary(by_op_sample *s, int which)
{
    enum { QUOTIENT, MAXIMUM, MINIMUM, OTHER, KINDS };
    static const gr_binary comparisons[] = {GR_NOT_LESS, GR_LESS};
    const int kind = which % KINDS, number = which / KINDS; /* the kinds take turns */
    if (number >= PAIRS)
        return false;
    if (kind == QUOTIENT) {
        tag(s, "quotient ");
        return pair(s, number, quotient);
    }
    if (kind == MAXIMUM || kind == MINIMUM) {
        tag(s, kind == MAXIMUM ? "maximum " : "minimum ");
        const bool built = pair(s, number, kind == MAXIMUM ? by_maximum : by_minimum);
        /* of many elements, some are so close that finite differences see both */
        s->forward_only = built && by_graph_status(s->graph) == BY_OK && by_elements(s->out[0].tensor) > 200;
        return built;
    }
    if (number < BY_COUNT(comparisons)) { /* these have no gradient */
        gr_binary_attr a = {comparisons[number]};
        tag(s, "comparison %d ", number);
        shown_of(s, NODE(BINARY, &a, operand(s, SHAPE(9, 5)), operand(s, SHAPE(5))), 0);
        return true;
    }
    tag(s, "clamp ");
    out(s, by_clamp(s->graph, operand(s, SHAPE(3 + which, 7)), -0.5, 0.75));
    return true;
}

bool op_sample_where(by_op_sample *s, int which)
{
    static const struct {
        int rank[3];
        int64_t mask[3], a[3], b[3];
    } cases[] = {
        {{2, 2, 2}, {5, 7}, {5, 7}, {5, 7}},
        {{2, 3, 1}, {3, 1}, {2, 3, 9}, {9}},
        {{3, 3, 0}, {2, 130, 67}, {2, 130, 67}, {0}},
        {{1, 2, 2}, {11}, {1, 11}, {4, 1}},
    };
    enum { N = BY_COUNT(cases) };
    static const by_dtype others[] = {BY_U8, BY_I64}; /* other sizes of elements */
    const int c = which < 2 * N ? which % N : 0;      /* each case with masks of i32, then of u8 */
    if (which >= 2 * N + BY_COUNT(others))
        return false;
    const by_dtype mask_type = which < N ? BY_I32 : BY_U8;
    tag(s, "mask %s ", by_dtype_name(mask_type));
    by_tensor *mask = numbers(s, mask_type, 2, cases[c].rank[0], cases[c].mask);
    if (which >= 2 * N) {
        const by_dtype type = others[which - 2 * N];
        by_tensor *b = numbers(s, type, 100, SHAPE(7));
        shown(s, by_where(s->graph, mask, numbers(s, type, 100, SHAPE(5, 7)), b));
        return true;
    }
    by_tensor *a = operand(s, cases[c].rank[1], cases[c].a);
    out(s, by_where(s->graph, mask, a, operand(s, cases[c].rank[2], cases[c].b)));
    return true;
}

bool op_sample_scale(by_op_sample *s, int which)
{
    static const int64_t counts[] = {11, 20011};
    if (which >= BY_COUNT(counts))
        return false;
    out(s, by_scale(s->graph, operand(s, SHAPE(counts[which])), which ? -0.125 : 3.5));
    return true;
}

static const gr_reduce_attr extents[] = {
    {.outer = 3, .count = 5, .inner = 1, .scale = 1},
    {.outer = 3, .count = 5, .inner = 4, .scale = 0.5},
    {.outer = 1, .count = 7, .inner = 6, .scale = 1},
    {.outer = 1, .count = 1, .inner = 6, .scale = 2},
    {.outer = 2, .count = 9001, .inner = 1, .scale = 1},
    {.outer = 1, .count = 300, .inner = 131, .scale = 1},
    {.outer = 70, .count = 301, .inner = 1, .scale = 0.25},
    {.outer = 5, .count = 40, .inner = 129, .scale = 1},
    {.outer = 1, .count = 20000, .inner = 1, .scale = 1e-2},
    {.outer = 300, .count = 70, .inner = 2, .scale = 1},
    {.outer = 2, .count = 150, .inner = 16, .scale = 1},
    {.outer = 2, .count = 1300, .inner = 1, .scale = 1},
};

bool op_sample_reduce(by_op_sample *s, int which)
{
    const int n = BY_COUNT(extents);
    if (which < 2 * n) { /* into the tensor's own type, then into that of sums */
        gr_reduce_attr a = extents[which % n];
        a.acc = which >= n;
        tag(s, a.acc ? "to the accumulation type " : "to the same type ");
        a.rank = 2;
        a.dim[0] = a.outer;
        a.dim[1] = a.inner;
        by_tensor *x = operand(s, SHAPE(a.outer, a.count, a.inner));
        double *v = values_of(s, x);
        for (int64_t i = 0; v && i < by_elements(x); i++) /* sums far from 0: the bound is relative */
            v[i] += 0.5;
        out_of(s, NODE(REDUCE, &a, x), 0);
        return true;
    }
    switch (which - 2 * n) { /* by the builders */
    case 0:
        out(s, by_sum(s->graph, operand(s, SHAPE(3, 4, 5)), 1));
        return true;
    case 1:
        out(s, by_mean(s->graph, operand(s, SHAPE(3, 4, 5)), -1));
        return true;
    default:
        return false;
    }
}

bool op_sample_broadcast(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(extents))
        return false;
    gr_reduce_attr a = extents[which];
    a.rank = 3;
    a.dim[0] = a.outer;
    a.dim[1] = a.count;
    a.dim[2] = a.inner;
    out_of(s, NODE(BROADCAST, &a, operand(s, SHAPE(a.outer, a.inner))), 0);
    return true;
}

enum { ACTS = BY_ACT_COUNT };

static const int64_t act_counts[] = {37, 20021};

/* Large arguments too, where the functions are flat, and none at 0, where ReLU has no slope. */
static by_tensor *spread_out(by_op_sample *s, by_tensor *t)
{
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = (v[i] + copysign(0.01, v[i])) * (i % 5 == 0 ? 5 : 1);
    return t;
}

bool op_sample_activation(by_op_sample *s, int which)
{
    if (which >= ACTS * BY_COUNT(act_counts))
        return false;
    gr_activation_attr a = {(by_act)(which % ACTS)};
    tag(s, "act %d ", a.act);
    by_tensor *x = operand(s, SHAPE(act_counts[which / ACTS]));
    out_of(s, NODE(ACTIVATION, &a, a.act >= BY_EXP ? positive(s, x) : spread_out(s, x)), 0);
    return true;
}

bool op_sample_activation_grad(by_op_sample *s, int which)
{
    if (which >= ACTS * BY_COUNT(act_counts))
        return false;
    const int64_t count = act_counts[which / ACTS];
    gr_activation_attr a = {(by_act)(which % ACTS)};
    tag(s, "act %d ", a.act);
    by_tensor *x = operand(s, SHAPE(count));
    x = a.act >= BY_EXP ? positive(s, x) : spread_out(s, x);
    shown_of(s, NODE(ACTIVATION_GRAD, &a, x, operand(s, SHAPE(count))), 0);
    return true;
}

bool op_sample_dropout(by_op_sample *s, int which)
{
    static const int64_t counts[] = {7, 515, 30011};
    if (which >= BY_COUNT(counts))
        return false;
    gr_dropout_attr a = {which == 1 ? 0.75f : 0.3f};
    out_of(s, NODE(DROPOUT, &a, operand(s, SHAPE(counts[which]))), 0);
    return true;
}

static const int64_t row_shapes[][2] = {{3, 5}, {1, 33}, {2, 1100}, {130, 67}, {40, 513}, {3, 72}};

bool op_sample_softmax(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(row_shapes))
        return false;
    out(s, by_softmax(s->graph, operand(s, 2, row_shapes[which])));
    return true;
}

bool op_sample_softmax_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(row_shapes))
        return false;
    by_tensor *y = by_softmax(s->graph, operand(s, 2, row_shapes[which]));
    shown_of(s, BARE_NODE(SOFTMAX_GRAD, y, operand(s, 2, row_shapes[which])), 0);
    return true;
}

bool op_sample_argmax(by_op_sample *s, int which)
{
    if (which >= 2 * BY_COUNT(row_shapes))
        return false;
    const bool ties = which % 2;
    tag_if(s, ties, "ties");
    by_tensor *x = operand(s, 2, row_shapes[which / 2]);
    double *v = values_of(s, x);
    for (int64_t i = 0; v && ties && i < by_elements(x); i++)
        v[i] = floor(v[i]); /* many equals, of which the first counts */
    shown(s, by_argmax(s->graph, x));
    return true;
}

/* Rows of a few logits, with some ruled out, and of more than a block reads at once; a row without a choice, and one with a NaN. */
bool op_sample_draw(by_op_sample *s, int which)
{
    static const int64_t shapes[][2] = {{40, 3}, {7, 1}, {5, 33}, {3, 3000}, {2, 20011}};
    if (which >= 2 * BY_COUNT(shapes))
        return false;
    const int64_t rows = shapes[which / 2][0], cols = shapes[which / 2][1];
    const bool special = which % 2; /* with infinities and NaN */
    tag_if(s, special, "infinities and NaN");
    by_tensor *x = operand(s, 2, shapes[which / 2]), *temperature = input(s, BY_F32, SHAPE(rows)),
              *draws = changes(s, indices(s, 1 << 20, SHAPE(rows, 5)));
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    for (int64_t i = 0; i < rows; i++)
        values_of(s, temperature)[i] = 0.5 + (double)i / (double)rows;
    for (int64_t i = 0; special && i < rows * cols; i += 2)
        values_of(s, x)[i] = i < cols ? -INFINITY : i < 2 * cols && i > cols ? (double)NAN : -INFINITY;
    shown(s, by_draw(s->graph, x, temperature, draws));
    shown(s, draws);
    return true;
}

/* Sorted, chosen, and the places alone; equals, -0 and infinities too. */
bool op_sample_argsort(by_op_sample *s, int which)
{
    static const int64_t cols[] = {1, 7, 64, 300, 5000};
    enum { TIES, SORT, TOP_K, KINDS, INTEGERS = KINDS * BY_COUNT(cols) };
    if (which > INTEGERS)
        return false;
    by_tensor *x, *order;
    if (which == INTEGERS) {
        tag(s, "integers ");
        shown(s, by_argsort(s->graph, indices(s, 9, SHAPE(3, 50)), true));
        return true;
    }
    const int kind = which % KINDS;
    const int64_t n = cols[which / KINDS];
    tag(s, kind == TIES ? "ties and infinities " : kind == SORT ? "sort " : "top k ");
    if (kind == TIES) {
        x = operand(s, SHAPE(2, 3, n));
        double *v = values_of(s, x);
        for (int64_t i = 0; v && i < by_elements(x); i++)
            v[i] = i % 11 == 3 ? INFINITY : i % 13 == 5 ? -INFINITY : i % 7 == 2 ? -0.0 : round(4 * v[i]) / 4;
        shown(s, by_argsort(s->graph, x, n % 2));
        return true;
    }
    x = operand(s, SHAPE(2, n)); /* far enough apart for finite differences and for rounding */
    double *v = values_of(s, x);
    for (int64_t i = 0; v && i < by_elements(x); i++)
        v[i] = n > 64 ? (double)(i * 7919 % n) / 256 : (double)(i * 5 % n) / 8 - 1;
    if (kind == SORT)
        out(s, by_sort(s->graph, x, n % 2 == 0, &order));
    else
        out(s, by_top_k(s->graph, x, (n + 2) / 3, &order));
    if (s->type != BY_BF16 || n <= 64)
        shown(s, order);
    return true;
}

bool op_sample_top(by_op_sample *s, int which)
{
    static const struct {
        int64_t rows, cols;
        int k,
            way; /* way 1: many equals; 2: the highest lie where few threads of a GPU look; 3: the sum alone */
    } cases[] = {{1, 1, 1, 0},      {3, 7, 7, 0},       {5, 300, 8, 0},
                 {2, 1030, 128, 1}, {4, 5003, 12, 0},   {2, 5000, 100, 1},
                 {1, 59000, 20, 0}, {1, 80000, 100, 2}, {3, 33, 1, 3}};
    if (which >= BY_COUNT(cases))
        return false;
    tag(s, "k %d way %d ", cases[which].k, cases[which].way);
    by_tensor *x = operand(s, SHAPE(cases[which].rows, cases[which].cols)), *ids, *lse;
    double *v = values_of(s, x);
    for (int64_t i = 0; v && i < by_elements(x); i++)
        v[i] = cases[which].way == 1   ? floor(v[i])
               : cases[which].way == 2 ? v[i] + (i / 8 % 512 < 8 ? 9 : 0)
                                       : v[i];
    by_tensor *best = by_top(s->graph, x, cases[which].k, &ids, &lse);
    if (cases[which].way != 3) {
        shown(s, best);
        shown(s, ids);
    }
    shown(s, lse);
    return true;
}
