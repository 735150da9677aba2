/* op_samples.c - the samples of every op. Shapes are chosen for the seams of the kernels: vectors and their
 * remainders, blocks and their remainders, one thread and several, every optional input there and not there.
 */
#include <math.h>
#include <stdio.h>

#include "op_samples.h"

#include "graph/frequencies.h"
#include "graph/mixture_layout.h"

/* clang-format off */
#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}
/* clang-format on */
#define NODE(ID, attr, ...)                                          \
    gr_node_make(s->graph, GR_OP_##ID, (by_tensor *[]){__VA_ARGS__}, \
                 BY_COUNT(((by_tensor *[]){__VA_ARGS__})), attr, sizeof *(attr))
#define BARE_NODE(ID, ...)                                           \
    gr_node_make(s->graph, GR_OP_##ID, (by_tensor *[]){__VA_ARGS__}, \
                 BY_COUNT(((by_tensor *[]){__VA_ARGS__})), NULL, 0)

/* ---- noise ----------------------------------------------------------------------------------- */

/* splitmix64 (Steele et al. 2014): samples are many, and need nothing of what the library's generator can do.
 */
static uint64_t next(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Close to normal: the sum of four uniform numbers, scaled to variance 1. */
double op_sample_noise(uint64_t *seed)
{
    uint64_t z = next(seed);
    double sum =
        (double)(z & 0xffff) + (double)(z >> 16 & 0xffff) + (double)(z >> 32 & 0xffff) + (double)(z >> 48);
    return (sum - 2 * 65535.0) / 65536 * sqrt(3);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Enter a leaf with independent normal values. */
static by_tensor *leaf(by_op_sample *s, by_tensor *t)
{
    if (s->n_leaves == BY_SAMPLE_LEAVES)
        return by_graph_fail(s->graph, "a sample has more than %d leaves", BY_SAMPLE_LEAVES);
    if (by_graph_status(s->graph) != BY_OK)
        return t;
    size_t n = (size_t)by_elements(t);
    double *values = base_alloc_zero(n + 1, sizeof *values);
    if (!values)
        return by_graph_fail(s->graph, "no memory for the values of a sample");
    for (size_t i = 0; i < n; i++)
        values[i] = op_sample_noise(&s->seed);
    s->leaf[s->n_leaves++] = (op_sample_leaf){.tensor = t, .seen = t, .values = values};
    return t;
}

/* A float operand that gets a gradient. */
static by_tensor *operand(by_op_sample *s, int rank, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", s->n_leaves);
    by_tensor *t = leaf(s, by_param(s->graph, name, rank, shape, (by_init){BY_INIT_ZERO, 0}));
    if (!s->copied || by_graph_status(s->graph) != BY_OK)
        return t;
    return s->leaf[s->n_leaves - 1].seen = gr_node_add(s->graph, GR_OP_COPY, &t, 1, NULL, 0);
}

/* A frozen parameter of a type of its own, with values that the type holds. 16-bit types stand under wider
 * ones only: a list of 16 bits keeps its own. */
static by_tensor *stored(by_op_sample *s, by_dtype type, int rank, const int64_t *shape)
{
    by_params *p = s->graph->params;
    char name[16];
    snprintf(name, sizeof name, "p%d", s->n_leaves);
    const int i = gr_params_declare(p, name, rank, shape, (by_init){BY_INIT_ZERO, 0});
    if (i < 0 || by_params_set_rate(p, i, 0) != BY_OK)
        return gr_poison(s->graph);
    if ((by_dtype_block(type) > 1 || by_dtype_size(s->type) > 2) && by_params_set_type(p, i, type) != BY_OK)
        return gr_poison(s->graph);
    by_tensor *t = leaf(s, by_param(s->graph, name, rank, shape, (by_init){BY_INIT_ZERO, 0}));
    if (by_graph_status(s->graph) != BY_OK)
        return t;
    const size_t n = (size_t)by_elements(t);
    double *values = s->leaf[s->n_leaves - 1].values;
    void *small = base_alloc(by_dtype_bytes(type, n) + 1);
    if (!small)
        return by_graph_fail(s->graph, "no memory for the values of a sample");
    base_convert(small, type, values, BY_F64, n);
    base_convert(values, BY_F64, small, type, n);
    base_free(small);
    return t;
}

/* An input of any type. */
static by_tensor *input(by_op_sample *s, by_dtype type, int rank, const int64_t *shape)
{
    char name[16];
    snprintf(name, sizeof name, "i%d", s->n_leaves);
    return leaf(s, by_input(s->graph, name, type, rank, shape));
}

static double *values_of(by_op_sample *s, const by_tensor *t)
{
    for (int i = 0; i < s->n_leaves; i++)
        if (s->leaf[i].seen == t)
            return s->leaf[i].values;
    return NULL;
}

/* Whole numbers below a limit. */
static by_tensor *numbers(by_op_sample *s, by_dtype type, int64_t limit, int rank, const int64_t *shape)
{
    by_tensor *t = input(s, type, rank, shape);
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = floor((double)limit * ((double)(next(&s->seed) >> 11) * 0x1p-53));
    return t;
}

static by_tensor *indices(by_op_sample *s, int64_t limit, int rank, const int64_t *shape)
{
    return numbers(s, BY_I32, limit, rank, shape);
}

/* Make a leaf's values small steps away from 1, for what must be positive. */
static by_tensor *positive(by_op_sample *s, by_tensor *t)
{
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = 0.25 + fabs(v[i]);
    return t;
}

static by_tensor *changes(by_op_sample *s, by_tensor *t)
{
    for (int i = 0; i < s->n_leaves; i++)
        if (s->leaf[i].seen == t)
            s->leaf[i].changes = true;
    return t;
}

/* An input in the accumulation type that an op adds its output into. */
static by_tensor *base(by_op_sample *s, bool wanted, int rank, const int64_t *shape)
{
    return wanted ? changes(s, input(s, gr_acc_type(s->type), rank, shape)) : NULL;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static void put(by_op_sample *s, by_tensor *t, bool in_loss)
{
    if (by_graph_status(s->graph) != BY_OK)
        return;
    if (s->n_outs == BY_SAMPLE_OUTPUTS) {
        by_graph_fail(s->graph, "a sample has more than %d outputs", BY_SAMPLE_OUTPUTS);
        return;
    }
    by_output(s->graph, NULL, t);
    s->out[s->n_outs].tensor = t;
    s->out[s->n_outs++].in_loss = in_loss;
}

/* An output that is part of the loss, and one that is only looked at. */
static void out(by_op_sample *s, by_tensor *t)
{
    put(s, t, true);
}

static void shown(by_op_sample *s, by_tensor *t)
{
    put(s, t, false);
}

static void out_of(by_op_sample *s, gr_node *n, int k)
{
    if (n)
        out(s, n->out[k]);
}

static void shown_of(by_op_sample *s, gr_node *n, int k)
{
    if (n)
        shown(s, n->out[k]);
}

/* ---- moved data ------------------------------------------------------------------------------ */

bool op_sample_fill(by_op_sample *s, int which)
{
    switch (which) {
    case 0:
        shown(s, by_fill(s->graph, s->type, SHAPE(2, 3), -0.75));
        return true;
    case 1:
        shown(s, by_fill(s->graph, BY_I32, 0, NULL, 42));
        return true;
    case 2: /* several threads, a size that is no multiple of the pattern */
        shown(s, by_fill(s->graph, s->type, SHAPE(3, 21001), 1.5));
        return true;
    default:
        return false;
    }
}

bool op_sample_range(by_op_sample *s, int which)
{
    if (which > 1)
        return false;
    shown(s, which ? by_range_from(s->graph, SHAPE(9), 7) : by_range(s->graph, SHAPE(2, 3, 130)));
    return true;
}

bool op_sample_buckets(by_op_sample *s, int which)
{
    static const int first[] = {0, 1, 2, 3, 5, 9};
    if (which > 1)
        return false;
    shown(s, by_buckets(s->graph, 300, which ? 299 : 140, which == 0, BY_COUNT(first), first));
    return true;
}

bool op_sample_interpolation(by_op_sample *s, int which)
{
    static const int64_t sizes[][2] = {
        {5, 5}, {24, 14}, {3, 7}, {9, 1}}; /* as it is, longer, shorter, from one element */
    if (which >= BY_COUNT(sizes))
        return false;
    shown(s, by_interpolation(s->graph, sizes[which][0], sizes[which][1], s->type));
    return true;
}

bool op_sample_sines(by_op_sample *s, int which)
{
    if (which > 1) /* an odd width, and several threads */
        return false;
    by_tensor *p = which ? indices(s, 1000, SHAPE(2, 30)) : indices(s, 600, SHAPE(7));
    shown(s, by_sines(s->graph, p, which ? 256 : 9, s->type));
    return true;
}

bool op_sample_random(by_op_sample *s, int which)
{
    static const int64_t counts[] = {13, 4003};
    if (which >= 2 * BY_COUNT(counts))
        return false;
    const by_random_kind kind = which % 2 ? BY_RANDOM_UNIFORM : BY_RANDOM_NORMAL;
    shown(s, by_random(s->graph, kind, s->type, SHAPE(2, counts[which / 2]), 1.5));
    return true;
}

bool op_sample_store(by_op_sample *s, int which)
{
    static const int64_t counts[] = {13, 33001};
    if (which >= BY_COUNT(counts))
        return false;
    by_tensor *x = operand(s, SHAPE(counts[which])),
              *state = changes(s, operand(s, SHAPE(counts[which] + 5)));
    BARE_NODE(STORE, x, state);
    shown(s, state);
    return true;
}

bool op_sample_copy(by_op_sample *s, int which)
{
    static const int64_t counts[] = {13, 33001};
    if (which >= BY_COUNT(counts))
        return false;
    out_of(s, BARE_NODE(COPY, operand(s, SHAPE(counts[which]))), 0);
    return true;
}

bool op_sample_cast(by_op_sample *s, int which)
{
    switch (which) {
    case 0: /* 16 bits to f32; the others stay as they are */
        out_of(s, NODE(CAST, (&(gr_cast_attr){gr_acc_type(s->type)}), operand(s, SHAPE(7, 11))), 0);
        return true;
    case 1: /* large, and back */
    {
        gr_node *up = NODE(CAST, (&(gr_cast_attr){gr_acc_type(s->type)}), operand(s, SHAPE(3, 7001)));
        if (up)
            out_of(s, NODE(CAST, (&(gr_cast_attr){s->type}), up->out[0]), 0);
        return true;
    }
    case 2:
        shown_of(s, NODE(CAST, (&(gr_cast_attr){s->type}), indices(s, 200, SHAPE(50))), 0);
        return true;
    case 3:
        shown_of(s, NODE(CAST, (&(gr_cast_attr){BY_I32}), operand(s, SHAPE(33))), 0);
        return true;
    case 4:
        shown_of(s, NODE(CAST, (&(gr_cast_attr){BY_F64}), operand(s, SHAPE(33))), 0);
        return true;
    case 5: /* each pair of float types on the way */
    case 6:
    case 7: {
        static const by_dtype via[] = {BY_BF16, BY_F16, BY_F32};
        gr_node *there = NODE(CAST, (&(gr_cast_attr){via[which - 5]}), operand(s, SHAPE(65)));
        if (there)
            shown_of(s, NODE(CAST, (&(gr_cast_attr){BY_F32}), there->out[0]), 0);
        return true;
    }
    default:
        return false;
    }
}

bool op_sample_reshape(by_op_sample *s, int which)
{
    by_tensor *x;
    switch (which) {
    case 0: /* of a parameter, through an addition so that the view has readers and a gradient of its own */
        x = by_reshape(s->graph, operand(s, SHAPE(2, 3, 4)), SHAPE(6, 4));
        out(s, by_add(s->graph, x, operand(s, SHAPE(6, 4))));
        return true;
    case 1: /* of a computed tensor, which is used itself as well */
        x = by_scale(s->graph, operand(s, SHAPE(3, 8)), 2);
        out(s, by_reshape(s->graph, x, SHAPE(2, -1, 3)));
        out(s, by_mul(s->graph, x, x));
        return true;
    case 2: /* a view of a view */
        x = by_reshape(s->graph, operand(s, SHAPE(30)), SHAPE(5, 6));
        out(s, by_scale(s->graph, by_reshape(s->graph, x, SHAPE(2, 3, 5)), -1));
        return true;
    default:
        return false;
    }
}

bool op_sample_permute(by_op_sample *s, int which)
{
    static const struct {
        int rank;
        int64_t shape[6];
        int order[6];
    } cases[] = {
        {2, {5, 7}, {1, 0}},
        {2, {130, 71}, {1, 0}},            /* tiles and their remainders */
        {4, {2, 3, 4, 5}, {0, 2, 1, 3}},   /* heads: the last axis stays */
        {4, {3, 44, 4, 33}, {0, 2, 1, 3}}, /* the same on several threads */
        {3, {4, 5, 6}, {2, 0, 1}},
        {3, {33, 20, 40}, {1, 2, 0}},
        {3, {40, 30, 20}, {2, 1, 0}},
        {3, {3, 1, 4}, {1, 0, 2}}, /* moves only an axis of one element */
        {6, {2, 3, 2, 2, 3, 2}, {5, 1, 3, 0, 4, 2}},
        {6, {2, 3, 2, 2, 3, 2}, {3, 1, 4, 0, 2, 5}},
        {1, {9}, {0}},
        {2, {90, 70}, {0, 1}},
    };
    if (which < BY_COUNT(cases)) {
        by_tensor *x = operand(s, cases[which].rank, cases[which].shape);
        out(s, by_permute_axes(s->graph, x, cases[which].order));
        return true;
    }
    static const by_dtype others[] = {BY_U8, BY_I32, BY_I64};
    which -= BY_COUNT(cases);
    if (which >= BY_COUNT(others))
        return false;
    by_tensor *x = input(s, others[which], SHAPE(3, 35, 6));
    double *v = values_of(s, x);
    for (int64_t i = 0; v && i < by_elements(x); i++)
        v[i] = (double)(i % 251);
    shown(s, by_permute_axes(s->graph, x, (int[]){2, 1, 0}));
    return true;
}

static const struct {
    int64_t shape[3];
    int axis;
    int64_t start, count;
} parts[] = {
    {{4, 3, 5}, 0, 1, 2},     {{4, 3, 5}, 1, 2, 1},     {{4, 3, 5}, 2, 0, 1},    {{4, 3, 5}, 2, 1, 2},
    {{4, 3, 5}, 2, 1, 4},     {{4, 3, 16}, 2, 3, 8},    {{4, 3, 5}, 1, 0, 3},    {{300, 2, 40}, 2, 3, 33},
    {{2, 60, 200}, 1, 7, 50}, {{17000, 1, 2}, 2, 1, 1}, {{9000, 1, 3}, 2, 1, 2}, {{4500, 1, 5}, 2, 1, 4},
};

bool op_sample_slice(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(parts))
        return false;
    by_tensor *x = operand(s, 3, parts[which].shape);
    out(s, by_slice(s->graph, x, parts[which].axis, parts[which].start, parts[which].count));
    return true;
}

bool op_sample_pad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(parts))
        return false;
    int64_t small[3];
    memcpy(small, parts[which].shape, sizeof small);
    const int axis = parts[which].axis;
    small[axis] = parts[which].count;
    gr_slice_attr a = {axis, parts[which].start, parts[which].shape[axis]};
    out_of(s, NODE(PAD, &a, operand(s, 3, small)), 0);
    return true;
}

bool op_sample_concat(by_op_sample *s, int which)
{
    static const struct {
        int count, axis;
        int64_t rest[2], along[GR_MAX_INPUTS];
    } cases[] = {
        {1, 0, {3, 4}, {2}},
        {2, 0, {3, 4}, {2, 5}},
        {3, 1, {3, 4}, {2, 5, 1}},
        {2, 2, {3, 4}, {1, 1}},
        {8, 2, {5, 3}, {1, 2, 3, 4, 5, 6, 7, 8}},
        {2, 1, {90, 70}, {3, 2}},
        {3, -1, {40, 20}, {30, 2, 33}},
    };
    if (which >= BY_COUNT(cases))
        return false;
    by_tensor *part[GR_MAX_INPUTS];
    for (int i = 0; i < cases[which].count; i++) {
        int64_t shape[3];
        int axis = (cases[which].axis + 3) % 3;
        for (int k = 0, r = 0; k < 3; k++)
            shape[k] = k == axis ? cases[which].along[i] : cases[which].rest[r++];
        part[i] = operand(s, 3, shape);
    }
    out(s, by_concat(s->graph, part, cases[which].count, cases[which].axis));
    return true;
}

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
    static const gr_binary compare[] = {GR_NOT_LESS, GR_LESS};
    if (which % 4 == 0)
        return pair(s, which / 4, quotient);
    if (which % 4 < 3) {
        const bool there = pair(s, which / 4, which % 4 == 1 ? by_maximum : by_minimum);
        /* of many elements, some are so close that finite differences see both */
        s->forward_only = there && by_graph_status(s->graph) == BY_OK && by_elements(s->out[0].tensor) > 200;
        return there;
    }
    if (which / 4 >= PAIRS)
        return false;
    if (which / 4 < 2) { /* has no gradient */
        gr_binary_attr a = {compare[which / 4]};
        shown_of(s, NODE(BINARY, &a, operand(s, SHAPE(9, 5)), operand(s, SHAPE(5))), 0);
        return true;
    }
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
    const int n = BY_COUNT(cases), c = which < 2 * n ? which % n : 0;
    if (which >= 2 * n + 2)
        return false;
    by_tensor *mask = numbers(s, which < n ? BY_I32 : BY_U8, 2, cases[c].rank[0], cases[c].mask);
    if (which >= 2 * n) { /* other sizes of elements */
        const by_dtype type = which == 2 * n ? BY_U8 : BY_I64;
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
    by_tensor *x = operand(s, 2, row_shapes[which / 2]);
    double *v = values_of(s, x);
    for (int64_t i = 0; v && which % 2 && i < by_elements(x); i++)
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
    by_tensor *x = operand(s, 2, shapes[which / 2]), *temperature = input(s, BY_F32, SHAPE(rows)),
              *draws = changes(s, indices(s, 1 << 20, SHAPE(rows, 5)));
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    for (int64_t i = 0; i < rows; i++)
        values_of(s, temperature)[i] = 0.5 + (double)i / (double)rows;
    for (int64_t i = 0; which % 2 && i < rows * cols; i += 2)
        values_of(s, x)[i] = i < cols ? -INFINITY : i < 2 * cols && i > cols ? (double)NAN : -INFINITY;
    shown(s, by_draw(s->graph, x, temperature, draws));
    shown(s, draws);
    return true;
}

/* Sorted, chosen, and the places alone; equals, -0 and infinities too. */
bool op_sample_argsort(by_op_sample *s, int which)
{
    static const int64_t cols[] = {1, 7, 64, 300, 5000};
    const int64_t n = cols[which / 3 % BY_COUNT(cols)];
    by_tensor *x, *order;
    if (which >= 3 * BY_COUNT(cols) + 1)
        return false;
    if (which == 3 * BY_COUNT(cols)) {
        shown(s, by_argsort(s->graph, indices(s, 9, SHAPE(3, 50)), true));
        return true;
    }
    if (which % 3 == 0) {
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
    if (which % 3 == 1)
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

/* ---- layers ---------------------------------------------------------------------------------- */

/* The last: long runs of the same index. */
static const struct {
    int64_t rows, cols, batch, positions;
} lookups[] = {{11, 6, 2, 5}, {300, 131, 3, 70}, {5, 1, 1, 9}, {1000, 64, 4, 100}, {2, 4, 2, 1100}};

static const by_dtype stored_types[] = {BY_Q8_0, BY_Q4_0, BY_F16, BY_BF16};

/* Tables of other types. */
static bool stored_lookup(by_op_sample *s, int which)
{
    if (which >= 2 * BY_COUNT(stored_types))
        return false;
    const int64_t rows = which % 2 ? 300 : 7, cols = which % 2 ? 1056 : 32;
    by_tensor *table = stored(s, stored_types[which / 2], SHAPE(rows, cols));
    out(s, by_gather(s->graph, table, indices(s, rows, SHAPE(3, 11))));
    return true;
}

/* Rows by their place in tables of their own. */
static const struct {
    int64_t batch[2], rows, cols, positions;
} takes[] = {{{2, 3}, 5, 4, 7}, {{1, 5}, 40, 3, 70}, {{3, 1}, 2, 16, 300}};

bool op_sample_gather(by_op_sample *s, int which)
{
    const int more = which - BY_COUNT(lookups);
    if (more >= BY_COUNT(takes))
        return stored_lookup(s, more - BY_COUNT(takes));
    if (more >= 0) {
        const int64_t *b = takes[more].batch;
        by_tensor *x = operand(s, SHAPE(b[0], b[1], takes[more].rows, takes[more].cols));
        out(s, by_take(s->graph, x, indices(s, takes[more].rows, SHAPE(b[0], b[1], takes[more].positions))));
        return true;
    }
    by_tensor *table = operand(s, SHAPE(lookups[which].rows, lookups[which].cols));
    by_tensor *ids = indices(s, lookups[which].rows, SHAPE(lookups[which].batch, lookups[which].positions));
    out(s, which == 1 ? by_gather_padded(s->graph, table, ids, 1) : by_gather(s->graph, table, ids));
    s->forward_only = which == 1; /* what it leaves out is part of the derivative */
    return true;
}

bool op_sample_gather_grad(by_op_sample *s, int which)
{
    const int more = which - 2 * BY_COUNT(lookups);
    if (more >= BY_COUNT(takes))
        return false;
    if (more >= 0) {
        const int64_t *b = takes[more].batch;
        by_tensor *y = operand(s, SHAPE(b[0], b[1], takes[more].positions, takes[more].cols));
        by_tensor *ids = indices(s, takes[more].rows, SHAPE(b[0], b[1], takes[more].positions));
        out(s, by_scatter_add(s->graph, y, ids, takes[more].rows));
        return true;
    }
    const int64_t rows = lookups[which / 2].rows, cols = lookups[which / 2].cols;
    const int64_t b = lookups[which / 2].batch, t = lookups[which / 2].positions;
    gr_gather_attr a = {.rows = rows, .still = which % 3 - 1};
    by_tensor *ids = indices(s, rows, SHAPE(b, t)), *dy = operand(s, SHAPE(b, t, cols));
    shown_of(s, NODE(GATHER_GRAD, &a, ids, dy, base(s, which % 2, SHAPE(rows, cols))), 0);
    return true;
}

/* rows, depth, columns. The first are few rows, which have code of their own (up to 16), the later ones cross
 * the blocks of the packed product: 4 to 14 rows, 8 to 32 columns to a tile, 256 deep, 1024 wide, 896 high.
 * The last are for the GPU, which has code of its own for 9 to 64 rows of whole vectors: K shared by
 * clusters, by warps, by nobody over several tiles, by clusters over several tiles; and for one row. */
static const int64_t products[][3] = {
    {1, 5, 3},    {2, 9, 70},    {3, 40, 131},   {4, 64, 64},    {5, 7, 9},      {16, 33, 17},
    {17, 20, 35}, {29, 300, 33}, {64, 64, 64},   {70, 90, 129},  {20, 12, 1100}, {920, 6, 18},
    {9, 336, 24}, {19, 112, 40}, {33, 16, 1160}, {17, 720, 264}, {1, 700, 72},
};

/* Two layers with an activation between them, as in the feed-forward part of a block: going back, the product
 * and the slope behind it can be one. Widths that a GPU's library takes. */
static void two_layers(by_op_sample *s, bool kn)
{
    gr_linear_attr first = {.w_is_kn = kn, .act = BY_GELU_TANH}, second = {.w_is_kn = kn};
    by_tensor *x = operand(s, SHAPE(9, 16)), *b = operand(s, SHAPE(24));
    by_tensor *w = kn ? operand(s, SHAPE(16, 24)) : operand(s, SHAPE(24, 16));
    by_tensor *w2 = kn ? operand(s, SHAPE(24, 8)) : operand(s, SHAPE(8, 24));
    gr_node *n = NODE(LINEAR, &first, x, w, b);
    if (n)
        out_of(s, NODE(LINEAR, &second, n->out[0], w2, NULL), 0);
}

/* A layer behind a norm, with few rows as in decoding, where one kernel can do both. */
static void normed_layer(by_op_sample *s, int which)
{
    static const struct {
        int64_t rows, depth, cols;
        bool kn, rms, h;
    } cases[] = {
        {1, 16, 24, false, false, false},
        {3, 40, 72, true, true, true},
        {7, 33, 19, false, false, true},
        {8, 24, 131, true, false, false},
    };
    const int64_t r = cases[which].rows, k = cases[which].depth, n = cases[which].cols;
    gr_norm_attr norm = {.rms = cases[which].rms, .eps = 1e-5f};
    gr_linear_attr a = {.w_is_kn = cases[which].kn, .act = which == 1 ? BY_SILU : BY_ACT_NONE};
    by_tensor *x = operand(s, SHAPE(r, k)), *gamma = operand(s, SHAPE(k));
    by_tensor *beta = norm.rms ? NULL : operand(s, SHAPE(k));
    by_tensor *w = a.w_is_kn ? operand(s, SHAPE(k, n)) : operand(s, SHAPE(n, k)), *b = operand(s, SHAPE(n));
    gr_node *y = NODE(NORM, &norm, x, gamma, beta, cases[which].h ? operand(s, SHAPE(r, k)) : NULL);
    if (!y)
        return;
    out_of(s, NODE(LINEAR, &a, y->out[0], w, b), 0);
    if (cases[which].h)
        out_of(s, y, 2);
}

/* rows, depth, columns of products with weights of other types, whose rows are whole blocks: one row, a few,
 * many; the last is converted in two parts on the CPU. */
static const int64_t stored_products[][3] = {{1, 96, 160}, {3, 64, 96},   {5, 32, 32},    {8, 416, 64},
                                             {9, 64, 96},  {33, 96, 160}, {9, 1056, 1024}};

/* The last takes long where a GPU is emulated: once is enough. */
static const int64_t *stored_product(int which)
{
    const int n = BY_COUNT(stored_products);
    return stored_products[which >= 2 * n && which % n == n - 1 ? 0 : which % n];
}

static by_tensor *stored_weight(by_op_sample *s, by_dtype type, bool kn, const int64_t *p)
{
    return kn ? stored(s, type, SHAPE(p[1], p[2])) : stored(s, type, SHAPE(p[2], p[1]));
}

static bool stored_layer(by_op_sample *s, int which)
{
    const int n = BY_COUNT(stored_products), types = BY_COUNT(stored_types);
    if (which >= 2 * n * types)
        return false;
    const int64_t *p = stored_product(which);
    gr_linear_attr a = {.w_is_kn = which / n % 2, .act = which % 3 == 0 ? BY_GELU_TANH : BY_ACT_NONE};
    by_tensor *x = operand(s, SHAPE(p[0], p[1]));
    by_tensor *w = stored_weight(s, stored_types[which / n / 2], a.w_is_kn, p);
    out_of(s, NODE(LINEAR, &a, x, w, which % 2 ? operand(s, SHAPE(p[2])) : NULL), 0);
    return true;
}

bool op_sample_linear(by_op_sample *s, int which)
{
    const int n = BY_COUNT(products), more = which - (4 * n + 2 * (BY_ACT_FUSED + 1));
    if (more >= 6)
        return stored_layer(s, more - 6);
    if (more >= 0) {
        if (more < 2)
            two_layers(s, more == 1);
        else
            normed_layer(s, more - 2);
        return true;
    }
    const int64_t *p = products[which < 4 * n ? which % n : which % 2 ? 6 : 2];
    gr_linear_attr a = {.w_is_kn = which / n % 2};
    bool bias = which / (2 * n) % 2;
    if (which >= 4 * n) { /* each activation, few rows and many */
        a.act = (by_act)((which - 4 * n) / 2);
        bias = true;
    } else if (which % 5 == 0) {
        a.act = BY_GELU;
    }
    by_tensor *x = p[0] == 64 ? operand(s, SHAPE(4, 16, p[1])) : operand(s, SHAPE(p[0], p[1]));
    by_tensor *w = a.w_is_kn ? operand(s, SHAPE(p[1], p[2])) : operand(s, SHAPE(p[2], p[1]));
    out_of(s, NODE(LINEAR, &a, x, w, bias ? operand(s, SHAPE(p[2])) : NULL), 0);
    return true;
}

static bool stored_layer_dx(by_op_sample *s, int which)
{
    const int n = BY_COUNT(stored_products), types = BY_COUNT(stored_types);
    if (which >= 2 * n * types)
        return false;
    const int64_t *p = stored_product(which);
    gr_linear_attr a = {.w_is_kn = which / n % 2};
    by_tensor *w = stored_weight(s, stored_types[which / n / 2], a.w_is_kn, p);
    shown_of(s, NODE(LINEAR_DX, &a, operand(s, SHAPE(p[0], p[2])), w), 0);
    return true;
}

bool op_sample_linear_dx(by_op_sample *s, int which)
{
    const int n = BY_COUNT(products);
    if (which >= 2 * n)
        return stored_layer_dx(s, which - 2 * n);
    const int64_t *p = products[which % n];
    gr_linear_attr a = {.w_is_kn = which >= n};
    by_tensor *w = a.w_is_kn ? operand(s, SHAPE(p[1], p[2])) : operand(s, SHAPE(p[2], p[1]));
    shown_of(s, NODE(LINEAR_DX, &a, operand(s, SHAPE(p[0], p[2])), w), 0);
    return true;
}

bool op_sample_linear_dw(by_op_sample *s, int which)
{
    const int n = BY_COUNT(products);
    if (which >= 4 * n)
        return false;
    const int64_t *p = products[which % n];
    const bool added = which >= 2 * n;
    gr_linear_attr a = {.w_is_kn = which / n % 2};
    by_tensor *x = operand(s, SHAPE(p[0], p[1])), *dy = operand(s, SHAPE(p[0], p[2]));
    by_tensor *dw = a.w_is_kn ? base(s, added, SHAPE(p[1], p[2])) : base(s, added, SHAPE(p[2], p[1]));
    gr_node *d = NODE(LINEAR_DW, &a, x, dy, dw, base(s, added && which % 2, SHAPE(p[2])));
    shown_of(s, d, 0);
    if (which % 3)
        shown_of(s, d, 1);
    return true;
}

bool op_sample_matmul(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch[2], m, k, n;
    } cases[] = {
        {{1, 1}, 3, 4, 5}, {{2, 3}, 5, 7, 9}, {{1, 1}, 40, 70, 33}, {{2, 1}, 33, 270, 20}, {{3, 2}, 1, 9, 70}};
    if (which >= 4 * BY_COUNT(cases) + 2)
        return false;
    if (which >= 4 * BY_COUNT(cases)) { /* leading axes repeat */
        const bool both = which % 2;
        by_tensor *a = both ? operand(s, SHAPE(2, 1, 3, 4)) : operand(s, SHAPE(3, 2, 3, 4));
        out(s,
            by_matmul(s->graph, a, both ? operand(s, SHAPE(5, 6, 4)) : operand(s, SHAPE(6, 4)), false, true));
        return true;
    }
    const bool ta = which & 1, tb = which & 2;
    const int64_t m = cases[which / 4].m, k = cases[which / 4].k, n = cases[which / 4].n;
    const int64_t *b = cases[which / 4].batch;
    by_tensor *x, *y;
    if (b[0] == 1) {
        x = ta ? operand(s, SHAPE(k, m)) : operand(s, SHAPE(m, k));
        y = tb ? operand(s, SHAPE(n, k)) : operand(s, SHAPE(k, n));
    } else {
        x = ta ? operand(s, SHAPE(b[0], b[1], k, m)) : operand(s, SHAPE(b[0], b[1], m, k));
        y = tb ? operand(s, SHAPE(b[0], b[1], n, k)) : operand(s, SHAPE(b[0], b[1], k, n));
    }
    out(s, by_matmul(s->graph, x, y, ta, tb));
    return true;
}

static const int64_t norm_shapes[][2] = {{3, 5},   {1, 33},  {70, 67}, {40, 513}, {2, 16},
                                         {9, 264}, {3, 392}, {3, 520}, {2, 1032}};

bool op_sample_norm(by_op_sample *s, int which)
{
    enum { KINDS = 6 };
    static const struct {
        bool rms, beta, h, sum;
        float p;
    } kinds[KINDS] = {
        {false, true, false, false, 0},   {true, false, false, false, 0},  {false, false, true, true, 0},
        {false, true, true, false, 0.2f}, {true, false, true, true, 0.4f}, {false, true, true, true, 0.1f},
    };
    if (which >= KINDS * BY_COUNT(norm_shapes))
        return false;
    const int64_t r = norm_shapes[which / KINDS][0], c = norm_shapes[which / KINDS][1];
    const int k = which % KINDS;
    gr_norm_attr a = {.rms = kinds[k].rms, .eps = 1e-5f, .p = kinds[k].p};
    by_tensor *x = operand(s, SHAPE(r, c)), *gamma = operand(s, SHAPE(c));
    by_tensor *beta = kinds[k].beta ? operand(s, SHAPE(c)) : NULL;
    gr_node *n = NODE(NORM, &a, x, gamma, beta, kinds[k].h ? operand(s, SHAPE(r, c)) : NULL);
    out_of(s, n, 0);
    if (kinds[k].sum)
        out_of(s, n, 2);
    return true;
}

bool op_sample_norm_grad(by_op_sample *s, int which)
{
    enum { KINDS = 6 };
    static const struct {
        bool rms, dsum, dgamma, dbeta, added;
    } kinds[KINDS] = {
        {false, false, true, true, false}, {true, false, true, false, false},
        {false, true, true, true, true},   {true, true, false, false, false},
        {false, false, false, true, true}, {false, true, true, false, true},
    };
    if (which >= KINDS * BY_COUNT(norm_shapes))
        return false;
    const int64_t r = norm_shapes[which / KINDS][0], c = norm_shapes[which / KINDS][1];
    const int k = which % KINDS;
    gr_norm_attr a = {.rms = kinds[k].rms, .eps = 1e-5f};
    by_tensor *x = operand(s, SHAPE(r, c)), *gamma = operand(s, SHAPE(c));
    gr_node *fore = NODE(NORM, &a, x, gamma, NULL, NULL);
    by_tensor *dy = operand(s, SHAPE(r, c)), *dsum = kinds[k].dsum ? operand(s, SHAPE(r, c)) : NULL;
    by_tensor *dgamma = base(s, kinds[k].added && kinds[k].dgamma, SHAPE(c));
    by_tensor *dbeta = base(s, kinds[k].added && kinds[k].dbeta, SHAPE(c));
    if (!fore)
        return true;
    gr_node *n = NODE(NORM_GRAD, &a, dy, x, fore->out[1], gamma, dsum, dgamma, dbeta);
    shown_of(s, n, 0);
    if (kinds[k].dgamma)
        shown_of(s, n, 1);
    if (kinds[k].dbeta)
        shown_of(s, n, 2);
    return true;
}

bool op_sample_rotary(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch, length;
        int heads, dim, width;
        bool interleaved, shared, dynamic; /* shared: positions (T) */
        float factor;
    } cases[] = {
        {2, 5, 3, 8, 0, .interleaved = false, .factor = 0},
        {2, 5, 2, 10, 6, .interleaved = true, .factor = 1.25f},
        {1, 70, 9, 17, 16, .shared = true, .factor = 0.5f},
        {3, 4, 1, 64, 0, .dynamic = true, .factor = 0},
        {1, 300, 3, 32, 20, .interleaved = true, .dynamic = true, .factor = 0},
    };
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t b = cases[which].batch, t = cases[which].length, d = cases[which].dim;
    const int width = cases[which].width ? cases[which].width : cases[which].dim;
    float frequencies[BY_MAX_ROTARY / 2];
    for (int i = 0; i < width / 2; i++)
        frequencies[i] = gr_rotary_frequency(100, i, width);
    by_tensor *x = operand(s, SHAPE(b, t, cases[which].heads * d));
    by_tensor *p = cases[which].shared ? indices(s, 50, SHAPE(t)) : indices(s, 50, SHAPE(b, t));
    const by_rotary_spec spec = {.head_dim = (int)d,
                                 .width = cases[which].width,
                                 .interleaved = cases[which].interleaved,
                                 .frequencies = frequencies,
                                 .factor = cases[which].factor,
                                 .trained = cases[which].dynamic ? which == 3 ? 100 : 20 : 0,
                                 .theta = 100,
                                 .stretch = 3};
    out(s, by_rotary(s->graph, x, p, &spec));
    return true;
}

/* Which keys are hidden. */
enum { ALL_SEEN, SOME_HIDDEN, ROW_HIDDEN, END_HIDDEN };
/* Axes of a bias that do not repeat. */
enum { BIAS = 1, BIAS_BATCH = 2, BIAS_HEAD = 4, BIAS_ROW = 8, BIAS_ALL = 15 };

typedef struct attention_case {
    int64_t batch, queries, keys; /* keys 0: packed */
    int heads, kv_heads, dim;
    by_mask mask;
    int hidden;
    float dropout;
    bool weights;
    by_pattern pattern;
    int bias;        /* its axes, of those above; 0: none */
    int64_t entries; /* by distance: of a row of it; 0: by key */
    int zero;
    int second;      /* axes of a bias by key besides one by distance; 0: none */
    int pairs;       /* axes of a pair mask; 0: none */
    bool bytes;      /* which is u8 */
    int block;       /* and has an entry for this many queries and keys; 0: one */
    bool empty_zero; /* queries that see nothing give zeros */
} attention_case;

#define WINDOW  .kind = BY_PATTERN_WINDOW
#define BLOCKS  .kind = BY_PATTERN_BLOCKS
#define STRIDED .kind = BY_PATTERN_STRIDED
#define FIXED   .kind = BY_PATTERN_FIXED
#define SINKS   .kind = BY_PATTERN_SINKS
#define MEMORY  .kind = BY_PATTERN_MEMORY

static const attention_case attentions[] = {
    {2, 5, 0, 3, 3, 4, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},
    {2, 7, 0, 2, 2, 5, BY_MASK_NONE, ALL_SEEN, 0, .weights = false},
    {1, 3, 6, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},  /* fewer queries than keys */
    {2, 4, 9, 4, 2, 3, BY_MASK_NONE, SOME_HIDDEN, 0, .weights = false}, /* grouped heads */
    {2, 6, 0, 4, 1, 16, BY_MASK_CAUSAL, SOME_HIDDEN, 0, .weights = false},
    {2, 2, 130, 2, 1, 20, BY_MASK_NONE, SOME_HIDDEN, 0,
     .weights = false}, /* few queries, several chunks of keys */
    {2, 9, 11, 2, 2, 7, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {2, 3, 5, 2, 1, 6, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {2, 9, 0, 2, 2, 6, BY_MASK_CAUSAL, ALL_SEEN, 0.25f, .weights = false},
    {2, 9, 12, 4, 2, 6, BY_MASK_CAUSAL, SOME_HIDDEN, 0.1f, .weights = true},
    {1, 70, 0, 2, 2, 17, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = true}, /* several tiles, the last not full */
    {1, 100, 0, 1, 1, 32, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false}, /* one head for two threads */
    {1, 90, 140, 1, 1, 16, BY_MASK_NONE, SOME_HIDDEN, 0.2f, .weights = false},
    {1, 66, 131, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},
    {1, 70, 0, 2, 2, 64, BY_MASK_NONE, ALL_SEEN, 0, .weights = false}, /* heads as in real models */
    {1, 9, 131, 4, 4, 64, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .weights = false}, /* a head for every small GPU's block */
    {2, 70, 0, 2, 2, 64, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false}, /* large heads, keys masked */
    {1, 9, 131, 4, 4, 64, BY_MASK_NONE, SOME_HIDDEN, 0, .weights = false},
    {2, 66, 140, 1, 1, 64, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {2, 9, 150, 2, 1, 128, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {1, 9, 200, 2, 2, 64, BY_MASK_NONE, END_HIDDEN, 0, .weights = false},
    {1, 9, 300, 1, 1, 128, BY_MASK_NONE, END_HIDDEN, 0, .weights = false},
    {1, 65, 65, 2, 2, 12, BY_MASK_CAUSAL, ROW_HIDDEN, 0, .weights = true},
    {1, 3, 7, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0.5f, .weights = false}, /* few queries, with dropout */
    {1, 5, 0, 1, 1, 72, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},   /* large heads */
    {1, 5, 6, 2, 1, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},
    {1, 5, 0, 1, 1, 136, BY_MASK_NONE, SOME_HIDDEN, 0.2f, .weights = false},
    {1, 4, 3, 1, 1, 130, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false}, /* the first query sees nothing */
    /* prefixes */
    {2, 9, 12, 2, 1, 8, BY_MASK_PREFIX, ALL_SEEN, 0, .weights = true},
    {1, 70, 140, 2, 1, 16, BY_MASK_PREFIX, SOME_HIDDEN, 0.2f, .weights = false},
    {2, 2, 70, 2, 2, 8, BY_MASK_PREFIX, ROW_HIDDEN, 0, .weights = false},
    /* patterns, with tiles that nobody sees */
    {2, 20, 0, 2, 2, 8, BY_MASK_NONE, ALL_SEEN, 0.1f, .weights = true,
     .pattern = {WINDOW, .before = 3, .after = 2}},
    {1, 150, 0, 1, 1, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {WINDOW, .before = 20}},
    {1, 20, 11, 2, 1, 64, BY_MASK_NONE, ALL_SEEN, 0, .weights = true,
     .pattern = {WINDOW, .before = 3, .after = -1}},
    {1, 130, 200, 1, 1, 16, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {BLOCKS, .length = 32, .before = 1}},
    {1, 70, 90, 1, 1, 40, BY_MASK_CAUSAL, SOME_HIDDEN, 0, .pattern = {BLOCKS, .length = 7, .after = 3}},
    {1, 150, 0, 1, 1, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 70}},
    {1, 67, 140, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {STRIDED, .length = 100, .part = 2}},
    {1, 130, 0, 1, 1, 24, BY_MASK_PREFIX, ALL_SEEN, 0, .pattern = {FIXED, .length = 48, .after = 4}},
    {1, 70, 0, 1, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 80, .after = 3, .part = 2}},
    {1, 70, 140, 1, 1, 17, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 24, .after = 24, .part = 1}},
    {2, 150, 157, 2, 2, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .empty_zero = true,
     .pattern = {SINKS, .length = 7, .before = 9, .after = 9}},
    {1, 140, 240, 2, 1, 24, BY_MASK_NONE, ALL_SEEN, 0.1f, .weights = true,
     .pattern = {SINKS, .length = 70, .before = 3, .after = 2}},
    {1, 150, 0, 1, 1, 64, BY_MASK_NONE, ALL_SEEN, 0,
     .pattern = {SINKS, .length = 7, .before = 9, .after = 9}},
    {1, 3, 300, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {SINKS, .length = 4, .before = 20}},
    {1, 150, 0, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {MEMORY, .length = 48, .before = 33}},
    {2, 70, 90, 2, 2, 24, BY_MASK_CAUSAL, SOME_HIDDEN, 0.1f, .pattern = {MEMORY, .length = 7, .before = 20}},
    {1, 2, 300, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {MEMORY, .length = 64, .before = 20}},
    /* patterns of as many queries as keys, in heads of 64 and 128: each kind of view, lengths that divide
     * nothing, columns of two lengths, several tiles, groups of heads, queries that see nothing */
    {2, 300, 0, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {WINDOW, .before = 70}},
    {1, 200, 200, 3, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {WINDOW, .before = 5, .after = 66}},
    {1, 140, 140, 1, 1, 64, BY_MASK_NONE, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {WINDOW, .before = 130, .after = -60}},
    {2, 150, 150, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {BLOCKS, .length = 40, .before = 1}},
    {1, 300, 0, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {BLOCKS, .length = 100}},
    {2, 210, 0, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 20}},
    {2, 200, 200, 2, 2, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 50}},
    {1, 290, 290, 1, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 2}},
    {2, 150, 0, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 40, .part = 2}},
    {1, 150, 0, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {STRIDED, .length = 4, .part = 2}},
    {1, 150, 0, 1, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 200}},
    {2, 210, 0, 4, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {FIXED, .length = 50, .after = 7}},
    {1, 300, 300, 2, 1, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {FIXED, .length = 9, .after = 3}},
    {2, 150, 150, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 40, .after = 33, .part = 2}},
    {1, 150, 0, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 24, .after = 4, .part = 2}},
    {1, 150, 150, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 80, .after = 3, .part = 1}},
    {2, 133, 0, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 9}},
    {1, 150, 150, 2, 2, 17, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 30, .part = 2}},
    {1, 140, 0, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 30, .part = 3}},
    {1, 140, 140, 4, 2, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 30, .after = 5, .part = 3}},
    {1, 140, 140, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 30, .part = 3}},
    /* biases, by key and by distance, and all of it together */
    {2, 9, 0, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = true, .bias = BIAS_ALL},
    {2, 70, 67, 1, 1, 5, BY_MASK_NONE, SOME_HIDDEN, 0, .bias = BIAS},
    {2, 66, 70, 2, 2, 16, BY_MASK_CAUSAL, ROW_HIDDEN, 0, .bias = BIAS | BIAS_ROW},
    {2, 70, 0, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .bias = BIAS | BIAS_HEAD, .entries = 33, .zero = 32},
    {2, 20, 0, 2, 2, 8, BY_MASK_NONE, ALL_SEEN, 0, .bias = BIAS_ALL, .entries = 39, .zero = 19},
    {1, 67, 70, 1, 1, 72, BY_MASK_NONE, ALL_SEEN, 0, .bias = BIAS_ALL, .entries = 9, .zero = 5},
    {1, 140, 0, 1, 1, 9, BY_MASK_NONE, ALL_SEEN, 0.3f, .weights = true, .bias = BIAS, .entries = 300,
     .zero = 150},
    {1, 9, 20, 2, 1, 136, BY_MASK_CAUSAL, ALL_SEEN, 0, .bias = BIAS | BIAS_BATCH | BIAS_HEAD, .entries = 12,
     .zero = 7},
    {1, 70, 131, 2, 1, 24, BY_MASK_PREFIX, SOME_HIDDEN, 0.1f, .weights = true,
     .pattern = {FIXED, .length = 20, .after = 2}, .bias = BIAS | BIAS_HEAD, .entries = 40, .zero = 20},
    /* few queries, as in decoding */
    {2, 1, 300, 4, 4, 32, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {WINDOW, .before = 40}},
    {2, 3, 130, 2, 1, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .bias = BIAS | BIAS_HEAD | BIAS_ROW},
    {1, 4, 600, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .bias = BIAS | BIAS_HEAD, .entries = 33, .zero = 32},
    {2, 2, 150, 2, 1, 10, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 200, .after = 7, .part = 2}},
    {1, 1, 400, 1, 1, 136, BY_MASK_NONE, SOME_HIDDEN, 0, .pattern = {STRIDED, .length = 64}},
    {2, 1, 70, 1, 1, 128, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {1, 4, 5, 40, 4, 8, BY_MASK_NONE, ALL_SEEN, 0, .bias = BIAS | BIAS_HEAD},
    /* two biases, pair masks, zeros for queries without keys */
    {2, 9, 0, 2, 1, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = true, .bias = BIAS_ALL, .entries = 9,
     .zero = 8, .second = BIAS_ALL},
    {2, 70, 67, 2, 2, 16, BY_MASK_NONE, SOME_HIDDEN, 0.1f, .bias = BIAS | BIAS_HEAD, .entries = 40,
     .zero = 20, .second = BIAS | BIAS_BATCH, .pairs = BIAS | BIAS_BATCH | BIAS_ROW},
    {2, 20, 0, 2, 2, 64, BY_MASK_NONE, ALL_SEEN, 0, .weights = true, .pairs = BIAS_ALL, .bytes = true},
    {1, 66, 70, 2, 1, 72, BY_MASK_CAUSAL, ALL_SEEN, 0, .pairs = BIAS | BIAS_HEAD, .empty_zero = true},
    {2, 9, 11, 2, 2, 7, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = true, .empty_zero = true},
    {1, 70, 0, 2, 2, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 80, .after = 3, .part = 2}, .bias = BIAS | BIAS_HEAD, .entries = 12,
     .zero = 11},
    {2, 3, 130, 2, 1, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .bias = BIAS | BIAS_HEAD, .entries = 40, .zero = 20,
     .second = BIAS | BIAS_ROW, .pairs = BIAS_ALL, .bytes = true, .empty_zero = true},
    /* pair masks by blocks, of which none, some or all are in a tile */
    {2, 150, 0, 2, 2, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .weights = true, .pairs = BIAS_ALL, .block = 64,
     .empty_zero = true},
    {1, 70, 140, 2, 1, 24, BY_MASK_NONE, ALL_SEEN, 0.1f, .pairs = BIAS | BIAS_HEAD | BIAS_ROW, .block = 10},
    {1, 200, 0, 2, 1, 64, BY_MASK_NONE, ALL_SEEN, 0, .pairs = BIAS | BIAS_ROW, .bytes = true, .block = 128,
     .empty_zero = true},
    {2, 3, 130, 2, 1, 16, BY_MASK_NONE, ALL_SEEN, 0, .pairs = BIAS_ALL, .block = 16},
    {1, 90, 0, 4, 2, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 9, .part = 3}},
    {2, 70, 100, 3, 1, 12, BY_MASK_CAUSAL, SOME_HIDDEN, 0.2f,
     .pattern = {FIXED, .length = 16, .after = 3, .part = 3}, .empty_zero = true},
    {1, 80, 0, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0.2f, .pattern = {STRIDED, .length = 11}},
    {1, 70, 90, 2, 2, 8, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {STRIDED, .length = 11, .part = 3}},
    {1, 2, 90, 4, 2, 16, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 11, .after = 2, .part = 3}},
    {2, 70, 130, 2, 2, 16, BY_MASK_CAUSAL, SOME_HIDDEN, 0, .bias = BIAS_ALL, .entries = 130,
     .zero = 129}, /* distances of a segment and its memory */
    {11, 130, 0, 8, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false}, /* many heads and long groups */
    {1, 1, 1, 2, 2, 4, BY_MASK_NONE, ALL_SEEN, 0,
     .weights = false}, /* the weight is 1, its gradient 0: last, see below */
};

/* Some, then none, then more than there are. */
static by_tensor *prefixes(by_op_sample *s, int64_t batch, int64_t keys)
{
    by_tensor *t = indices(s, 1, SHAPE(batch));
    double *p = values_of(s, t);
    for (int64_t b = 0; p && b < batch; b++)
        p[b] = (double)(b % 3 == 0 ? keys / 2 + 1 : b % 3 == 1 ? 0 : keys + 3);
    return t;
}

static by_tensor *bias_for(by_op_sample *s, int axes, int64_t batch, int64_t heads, int64_t queries,
                           int64_t entries)
{
    return operand(s, SHAPE(axes & BIAS_BATCH ? batch : 1, axes & BIAS_HEAD ? heads : 1,
                            axes & BIAS_ROW ? queries : 1, entries));
}

/* Half of the pairs are seen, and of the first row none. */
static by_tensor *pairs_for(by_op_sample *s, int axes, bool bytes, int64_t batch, int64_t heads,
                            int64_t queries, int64_t keys)
{
    by_tensor *t = input(s, bytes ? BY_U8 : BY_I32,
                         SHAPE(axes & BIAS_BATCH ? batch : 1, axes & BIAS_HEAD ? heads : 1,
                               axes & BIAS_ROW ? queries : 1, keys));
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = i >= keys && v[i] > 0;
    return t;
}

static gr_node *attend(by_op_sample *s, const attention_case *c)
{
    gr_attention_attr a = {.spec = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .mask = c->mask,
                                    .pattern = c->pattern,
                                    .scale = 1 / sqrtf((float)c->dim),
                                    .dropout = c->dropout,
                                    .relative_zero = c->zero,
                                    .pair_block = c->block,
                                    .empty_zero = c->empty_zero},
                           .head_dim = c->dim,
                           .packed = c->keys == 0};
    const int64_t keys = a.packed ? c->queries : c->keys, width = (int64_t)c->heads * c->dim;
    const int64_t kv_width = (int64_t)c->kv_heads * c->dim, block = c->block ? c->block : 1;
    by_tensor *q = operand(s, SHAPE(c->batch, c->queries, a.packed ? width + 2 * kv_width : width));
    by_tensor *k = a.packed ? NULL : operand(s, SHAPE(c->batch, keys, kv_width));
    by_tensor *v = a.packed ? NULL : operand(s, SHAPE(c->batch, keys, kv_width));
    by_tensor *mask = c->hidden ? indices(s, 2, SHAPE(c->batch, keys)) : NULL;
    double *seen = mask ? values_of(s, mask) : NULL;
    for (int64_t i = 0; seen && i < keys; i++) /* batch row 0 */
        seen[i] = c->hidden == ROW_HIDDEN ? 0 : i == 0 ? 1 : seen[i];
    for (int64_t b = 1; seen && b < c->batch; b++)
        seen[b * keys] = 1;
    for (int64_t i = 0; seen && c->hidden == END_HIDDEN && i < c->batch * keys; i++)
        seen[i] = i % keys <= keys / 3; /* as padding does: whole tiles */
    by_tensor *prefix = c->mask == BY_MASK_PREFIX ? prefixes(s, c->batch, keys) : NULL;
    by_tensor *bias =
        c->bias ? bias_for(s, c->bias, c->batch, c->heads, c->queries, c->entries ? c->entries : keys) : NULL;
    by_tensor *second = c->second ? bias_for(s, c->second, c->batch, c->heads, c->queries, keys) : NULL;
    by_tensor *pairs = c->pairs ? pairs_for(s, c->pairs, c->bytes, c->batch, c->heads,
                                            (c->queries + block - 1) / block, (keys + block - 1) / block)
                                : NULL;
    return NODE(ATTENTION, &a, q, k, v, mask, prefix, c->entries ? second : bias, c->entries ? bias : NULL,
                pairs);
}

bool op_sample_attention(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(attentions))
        return false;
    gr_node *n = attend(s, &attentions[which]);
    out_of(s, n, 0);
    if (attentions[which].weights)
        shown_of(s, n, 2);
    s->forward_only = which == BY_COUNT(attentions) - 1;
    return true;
}

bool op_sample_attention_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(attentions) - 1)
        return false;
    const attention_case *c = &attentions[which];
    gr_node *n = attend(s, c);
    if (!n)
        return true;
    by_tensor *dy = operand(s, n->out[0]->rank, n->out[0]->dim);
    gr_node *d = NODE(ATTENTION_GRAD, (const gr_attention_attr *)n->attr, n->in[0], n->in[1], n->in[2],
                      n->in[3], n->in[4], n->in[5], n->in[6], n->in[7], n->out[0], n->out[1], dy);
    if (d)
        d->rng = n->rng;
    for (int k = 0; d && k < d->n_out; k++)
        if (d->out[k]) /* packed: no second and third */
            shown(s, d->out[k]);
    return true;
}

bool op_sample_attention_cached(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch, queries, room;
        int heads, kv_heads, dim;
        bool packed, prefix, hidden;
        by_pattern pattern;
        int bias;
        int64_t entries;
        int zero;
        int second, pairs;
        bool bytes, empty_zero;
        int64_t page; /* positions of a page; 0: one page per row, in order */
        bool still;   /* nothing new: no past */
    } cases[] = {
        {2, 1, 8, 2, 2, 4, .packed = true},
        {3, 1, 9, 4, 2, 5, .packed = false},
        {2, 3, 8, 2, 1, 4, .packed = true},
        {2, 6, 20, 2, 2, 8, .packed = false},
        {2, 9, 20, 4, 2, 6, .packed = true},
        {2, 1, 300, 4, 4, 32, .packed = true},
        {1, 70, 80, 2, 2, 16, .packed = true},
        {2, 1, 20, 2, 1, 72, .packed = true},
        {1, 1, 40, 1, 1, 136, .packed = false},
        {1, 9, 12, 1, 1, 128, .packed = true},
        {1, 2, 300, 3, 1, 136, .packed = true},
        {2, 1, 270, 1, 1, 136, .packed = true},
        {2, 1, 20, 2, 2, 8, .packed = true, .hidden = true},
        {3, 4, 20, 2, 1, 8, .prefix = true},
        {2, 1, 300, 2, 2, 16, .packed = true, .pattern = {WINDOW, .before = 40}},
        {2, 2, 300, 2, 1, 12, .pattern = {FIXED, .length = 150, .after = 5, .part = 2}},
        {2, 1, 300, 2, 1, 16, .pattern = {MEMORY, .length = 64, .before = 100}},
        {2, 1, 300, 4, 4, 32, .packed = true, .bias = BIAS | BIAS_HEAD, .entries = 20, .zero = 19},
        {2, 3, 40, 2, 1, 8, .bias = BIAS_ALL},
        {2, 20, 90, 2, 1, 16, .prefix = true, .hidden = true, .pattern = {STRIDED, .length = 20}},
        {2, 30, 80, 2, 2, 8, .packed = true, .bias = BIAS | BIAS_ROW | BIAS_HEAD, .entries = 30, .zero = 25},
        {2, 1, 300, 2, 2, 16, .packed = true, .bias = BIAS | BIAS_HEAD, .entries = 20, .zero = 19,
         .second = BIAS | BIAS_BATCH, .pairs = BIAS | BIAS_HEAD, .bytes = true},
        {2, 20, 90, 2, 1, 64, .pairs = BIAS_ALL, .empty_zero = true},
        {2, 1, 30, 4, 4, 32, .packed = true, .page = 30},
        {3, 20, 50, 2, 1, 16, .page = 50},
        {2, 1, 40, 2, 2, 8, .bias = BIAS | BIAS_HEAD, .entries = 20, .zero = 19, .page = 40},
        {2, 1, 90, 4, 2, 16, .pattern = {STRIDED, .length = 7, .part = 3}},
        {2, 1, 1100, 2, 1, 8, .packed = true, .pattern = {STRIDED, .length = 33}},
        {2, 20, 90, 4, 2, 16, .pattern = {FIXED, .length = 12, .after = 3, .part = 3}, .empty_zero = true},
        {2, 20, 96, 2, 2, 16, .packed = true, .pattern = {STRIDED, .length = 10}, .page = 32},
        {2, 1, 320, 4, 4, 32, .packed = true, .page = 16},
        {2, 3, 96, 4, 2, 72, .packed = false, .page = 32},
        {2, 20, 128, 2, 2, 16, .packed = true, .page = 64},
        {2, 2, 64, 3, 1, 136, .packed = true, .page = 16},
        {3, 4, 64, 2, 1, 8, .prefix = true, .hidden = true, .page = 32},
        {2, 1, 64, 2, 2, 5, .packed = true, .page = 16},
        {2, 1, 12, 2, 2, 8, .hidden = true, .page = 12, .still = true},
        {2, 9, 70, 2, 1, 16, .hidden = true, .page = 70, .still = true},
        {2, 3, 64, 2, 2, 8, .page = 16, .still = true},
        {2, 2, 20, 2, 2, 8, .hidden = true, .still = true},
    };
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t b = cases[which].batch, t = cases[which].queries, room = cases[which].room;
    const int64_t entries = cases[which].entries ? cases[which].entries : room;
    const int h = cases[which].heads, hkv = cases[which].kv_heads, d = cases[which].dim;
    by_attention_spec spec = {.heads = h,
                              .kv_heads = hkv,
                              .pattern = cases[which].pattern,
                              .relative_zero = cases[which].zero,
                              .empty_zero = cases[which].empty_zero};
    const bool packed = cases[which].packed, still = cases[which].still;
    const int64_t page = cases[which].page ? cases[which].page : room, columns = room / page;
    const int64_t pages = b * columns + (cases[which].page > 0);
    by_tensor *q = operand(s, SHAPE(b, t, (int64_t)(packed ? h + 2 * hkv : h) * d));
    by_tensor *k = packed || still ? NULL : operand(s, SHAPE(b, t, (int64_t)hkv * d));
    by_tensor *v = packed || still ? NULL : operand(s, SHAPE(b, t, (int64_t)hkv * d));
    by_tensor *k_cache = changes(s, input(s, s->type, SHAPE(pages, page, (int64_t)hkv * d)));
    by_tensor *v_cache = changes(s, input(s, s->type, SHAPE(pages, page, (int64_t)hkv * d)));
    by_tensor *past = still ? NULL : indices(s, room - t + 1, SHAPE(b));
    double *p = past ? values_of(s, past) : NULL;
    if (p)
        p[b - 1] = (double)(which % 2 ? 0 : room - t); /* empty; filled to the last place */
    if (cases[which].page) {                           /* backwards; page 0 belongs to nobody */
        spec.pages = indices(s, pages, SHAPE(b, columns));
        double *at = values_of(s, spec.pages);
        for (int64_t i = 0; at && i < b * columns; i++)
            at[i] = (double)(pages - 1 - i);
    }
    if (cases[which].hidden)
        spec.key_mask = indices(s, 2, SHAPE(b, room));
    if (cases[which].prefix) {
        spec.mask = BY_MASK_PREFIX;
        spec.prefix = prefixes(s, b, room);
    }
    if (cases[which].bias)
        *(cases[which].entries ? &spec.relative : &spec.bias) =
            bias_for(s, cases[which].bias, b, h, t, entries);
    if (cases[which].second)
        spec.bias = bias_for(s, cases[which].second, b, h, t, room);
    if (cases[which].pairs)
        spec.pair_mask = pairs_for(s, cases[which].pairs, cases[which].bytes, b, h, t, room);
    shown(s, by_attention_cached(s->graph, q, k, v, k_cache, v_cache, past, &spec));
    shown(s, k_cache);
    shown(s, v_cache);
    return true;
}

static const struct {
    int64_t rows, classes;
    float smoothing;
    bool ignore, nothing, weighted;
} losses[] = {
    {4, 7, 0, false, false, false},    {5, 11, 0.1f, true, false, false},     {3, 4, 0, true, true, false},
    {130, 90, 0, true, false, false},  {20, 1030, 0.2f, false, false, false}, {1, 50, 0, false, false, false},
    {5, 72, 0.1f, true, false, false}, {1, 59000, 0, false, false, false},    {5, 7, 0, true, false, true},
    {9, 72, 0, true, false, true},
};

static gr_node *lose(by_op_sample *s, int which)
{
    const int64_t r = losses[which].rows, v = losses[which].classes;
    gr_loss_attr a = {.ignore_index = -100, .label_smoothing = losses[which].smoothing};
    by_tensor *x = operand(s, SHAPE(r, v)), *targets = indices(s, v, SHAPE(r));
    double *t = values_of(s, targets);
    for (int64_t i = 0; t && i < r; i++)
        if (losses[which].nothing || (losses[which].ignore && i % 3 == 1))
            t[i] = -100;
    by_tensor *weights = losses[which].weighted ? input(s, gr_acc_type(s->type), SHAPE(v)) : NULL;
    double *w = weights ? values_of(s, weights) : NULL;
    for (int64_t i = 0; w && i < v; i++)
        w[i] = 0.25 * (double)(i % 5);
    s->loss_scale = (double)r; /* or else 16 bits could not hold the gradients */
    s->forward_only = losses[which].nothing;
    return NODE(CROSS_ENTROPY, &a, x, targets, weights);
}

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
        out(s, y);
        if (which % 2)
            out(s, last_h);
        if (which % 2 && lstm)
            out(s, last_c);
        return true;
    }
    by_tensor *in[] = {w,
                       spec.mask,
                       spec.h,
                       spec.c,
                       y,
                       n->out[GR_REC_SAVED],
                       n->out[GR_REC_CELLS],
                       which % 3 == 2 ? NULL : operand(s, SHAPE(c.batch, c.length, c.width)),
                       which % 3 ? operand(s, SHAPE(c.batch, c.width)) : NULL,
                       which % 3 && lstm ? operand(s, SHAPE(c.batch, c.width)) : NULL};
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

bool op_sample_cross_entropy(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(losses))
        return false;
    out_of(s, lose(s, which), 0);
    return true;
}

bool op_sample_cross_entropy_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(losses))
        return false;
    gr_node *n = lose(s, which);
    by_tensor *dloss = input(s, gr_acc_type(s->type), 0, NULL);
    double *scale = values_of(s, dloss);
    if (!n || !scale)
        return true;
    *scale = (double)losses[which].rows;
    shown_of(s,
             NODE(CROSS_ENTROPY_GRAD, (const gr_loss_attr *)n->attr, n->in[0], n->in[1], n->out[1], dloss,
                  n->in[2]),
             0);
    return true;
}

/* Wide logistics, whose bins have about the same probability; narrow ones, whose tails are taken by density; scales
 * below the least, with means outside of the values, where ln p is a straight line. */
static const struct {
    int64_t rows;
    int components, channels;
    bool narrow, least, ignore;
} mixtures[] = {{5, 1, 1, false, false, false},
                {9, 10, 3, false, false, true},
                {7, 3, 3, true, false, false},
                {6, 1, 1, false, true, false},
                {130, 40, 1, true, false, true}};

static gr_node *mix(by_op_sample *s, int which)
{
    const int channels = mixtures[which].channels, k = mixtures[which].components;
    const int64_t rows = mixtures[which].rows, cols = (int64_t)k * gr_mixture_parts(channels);
    gr_mixture_attr a = {.channels = channels, .ignore_index = -100};
    by_tensor *x = operand(s, SHAPE(rows, cols)), *targets = indices(s, 256, SHAPE(rows, channels));
    double *v = values_of(s, x), *t = values_of(s, targets);
    for (int64_t i = 0; v && t && i < rows; i++) {
        if (i % 3 != 2)
            t[i * channels] = i % 3 ? 255 : 0;
        if (mixtures[which].ignore && i % 4 == 1)
            t[i * channels + channels - 1] = -100;
        for (int j = 0; mixtures[which].narrow && j < channels * k; j++)
            v[i * cols + (gr_mixture_at(j / k, channels) + 1) * k + j % k] = -3 - 0.5 * (j % 4);
        if (mixtures[which].least) {
            v[i * cols + 1] = i % 2 ? 1.5 : -1.5;
            v[i * cols + 2] = -8;
        }
    }
    s->loss_scale = (double)rows;
    return NODE(LOGISTIC_MIXTURE, &a, x, targets);
}

bool op_sample_logistic_mixture(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(mixtures))
        return false;
    gr_node *n = mix(s, which);
    out_of(s, n, 0);
    return true;
}

bool op_sample_logistic_mixture_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(mixtures))
        return false;
    gr_node *n = mix(s, which);
    by_tensor *dloss = input(s, gr_acc_type(s->type), 0, NULL);
    double *scale = values_of(s, dloss);
    if (!n || !scale)
        return true;
    *scale = (double)mixtures[which].rows;
    shown_of(
        s,
        NODE(LOGISTIC_MIXTURE_GRAD, (const gr_mixture_attr *)n->attr, n->in[0], n->in[1], n->out[1], dloss),
        0);
    return true;
}

/* Less than a vector, rows that are not whole pieces, several threads, more columns than a block has threads. */
static const struct {
    int64_t rows, classes;
    float scale;
    bool entropy;
} policies[] = {
    {4, 7, 1, true}, {5, 11, 0.7f, false}, {130, 90, 1.4f, true}, {6, 72, 1, true}, {2, 5000, 0.5f, false}};

static gr_node *log_probs(by_op_sample *s, int which)
{
    const int64_t r = policies[which].rows, v = policies[which].classes;
    gr_log_probs_attr a = {.ignore_index = -100, .scale = policies[which].scale};
    by_tensor *x = operand(s, SHAPE(r, v)), *targets = indices(s, v, SHAPE(r));
    double *t = values_of(s, targets);
    for (int64_t i = 0; t && i < r; i++)
        t[i] = i % 3 == 1 ? -100 : t[i];
    return NODE(LOG_PROBS, &a, x, targets);
}

bool op_sample_log_probs(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = log_probs(s, which);
    out_of(s, n, 0);
    shown_of(s, n, 1);
    if (policies[which].entropy)
        shown_of(s, n, 2);
    return true;
}

bool op_sample_log_probs_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = log_probs(s, which);
    by_tensor *dy = input(s, gr_acc_type(s->type), SHAPE(policies[which].rows));
    if (n)
        shown_of(s,
                 NODE(LOG_PROBS_GRAD, (const gr_log_probs_attr *)n->attr, n->in[0], n->in[1], n->out[1], dy),
                 0);
    return true;
}

static gr_node *diverge(by_op_sample *s, int which)
{
    const int64_t r = policies[which].rows, v = policies[which].classes;
    gr_kl_attr a = {policies[which].scale};
    by_tensor *x = operand(s, SHAPE(r, v));
    return NODE(KL_DIVERGENCE, &a, x, input(s, s->type, SHAPE(r, v)));
}

bool op_sample_kl_divergence(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = diverge(s, which);
    out_of(s, n, 0);
    shown_of(s, n, 1);
    return true;
}

bool op_sample_kl_divergence_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(policies))
        return false;
    gr_node *n = diverge(s, which);
    by_tensor *dy = input(s, gr_acc_type(s->type), SHAPE(policies[which].rows));
    if (n)
        shown_of(s, NODE(KL_DIVERGENCE_GRAD, (const gr_kl_attr *)n->attr, n->in[0], n->in[1], n->out[1], dy),
                 0);
    return true;
}

/* ---- the flat buffers ------------------------------------------------------------------------ */

bool op_sample_norm2(by_op_sample *s, int which)
{
    static const int64_t counts[] = {1, 10, 4099, 70001};
    if (which >= BY_COUNT(counts))
        return false;
    shown_of(s, BARE_NODE(NORM2, operand(s, SHAPE(counts[which]))), 0);
    return true;
}

/* A matrix, a vector, one that is frozen and a long one, with gaps between them. */
static const gr_segment segments[] = {
    {.offset = 0, .count = 35, .rows = 5, .cols = 7, .lr_scale = 1, .decay = true},
    {.offset = 48, .count = 19, .rows = 1, .cols = 19, .lr_scale = 0.5f},
    {.offset = 80, .count = 16, .rows = 4, .cols = 4, .lr_scale = 0, .decay = true},
    {.offset = 96, .count = 33 * 700, .rows = 33, .cols = 700, .lr_scale = 1, .decay = true},
};
enum { FLAT = 96 + 33 * 700 };

/* The steps are as large as the values, so that a wrong one is seen. Step 0: the gradient is clipped; 1: it
 * is not; 2: the very first step. */
static by_tensor *hyper(by_op_sample *s, int which)
{
    by_tensor *t = input(s, BY_F32, SHAPE(GR_HYPER_COUNT));
    double *v = values_of(s, t);
    if (!v)
        return t;
    const double step = which == 2 ? 1 : 10;
    memset(v, 0, GR_HYPER_COUNT * sizeof *v);
    v[GR_HYPER_LR] = 0.5;
    v[GR_HYPER_MAX_NORM] = which == 0 ? 1.5 : 0;
    v[GR_HYPER_CORR1] = 1 - pow(0.9, step);
    v[GR_HYPER_CORR2] = 1 - pow(0.99, step);
    v[GR_HYPER_STEP] = step;
    v[GR_HYPER_MOMENTUM] = which == 2 ? 0 : 0.75;
    return t;
}

/* Samples 0 to 2 without masters, 3 to 5 with them, 6 to 8 without and rounded by chance. */
static bool optimiser(by_op_sample *s, gr_op op, int which)
{
    if (which >= 9)
        return false;
    const gr_optim_attr a = {.segments = segments,
                             .n_segments = BY_COUNT(segments),
                             .beta1 = 0.9f,
                             .beta2 = 0.99f,
                             .eps = 1e-8f,
                             .weight_decay = which ? 0.25f : 0,
                             .gr_stochastic = which >= 6};
    const by_dtype acc = gr_acc_type(s->type);
    by_tensor *value = changes(s, input(s, s->type, SHAPE(FLAT)));
    by_tensor *grad = input(s, acc, SHAPE(FLAT));
    by_tensor *m = changes(s, positive(s, input(s, acc, SHAPE(FLAT))));
    by_tensor *v = changes(s, positive(s, input(s, acc, SHAPE(FLAT))));
    by_tensor *master = which / 3 == 1 ? changes(s, input(s, acc, SHAPE(FLAT))) : NULL;
    by_tensor *norm = input(s, acc, 0, NULL), *h = hyper(s, which % 3);
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    values_of(s, norm)[0] = 3; /* twice what is allowed */
    if (master)
        memcpy(values_of(s, master), values_of(s, value), FLAT * sizeof(double));
    by_tensor *in[] = {value, grad, m, v, master, norm, h}, *in_sgd[] = {value, grad, m, master, norm, h};
    gr_node_make(s->graph, op, op == GR_OP_SGD ? in_sgd : in, op == GR_OP_SGD ? 6 : 7, &a, sizeof a);
    shown(s, value);
    shown(s, m);
    shown(s, v);
    if (master)
        shown(s, master);
    return true;
}

bool op_sample_adamw(by_op_sample *s, int which)
{
    return optimiser(s, GR_OP_ADAMW, which);
}

bool op_sample_sgd(by_op_sample *s, int which)
{
    return optimiser(s, GR_OP_SGD, which);
}

bool op_sample_adafactor(by_op_sample *s, int which)
{
    return optimiser(s, GR_OP_ADAFACTOR, which);
}

/* A step in the middle, one whose positions are at their end, and one whose log is full. */
bool op_sample_reorder(by_op_sample *s, int which)
{
    /* nothing moves; some do; all do; one by one; large groups; rows that are named */
    static const double rows[][6] = {{0, 1, 2, 3, 4, 5}, {1, 0, 2, 2, 5, 4}, {1, 0, 3, 2, 5, 4},
                                     {1, 1, 2, 3, 4, 4}, {0, 1, 2, 4, 4, 4}, {1, 0, 3, 3, 4, 5}};
    static const struct {
        int beams;
        int64_t room, width;
        bool named;
    } cases[] = {{2, 6, 8, false},  {2, 9, 5, false},   {2, 300, 64, false},
                 {2, 7, 12, false}, {3, 40, 16, false}, {2, 20, 8, true}};
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t room = cases[which].room, c = cases[which].width;
    const int64_t all = cases[which].named ? 9 : 6;
    by_tensor *keys = changes(s, input(s, s->type, SHAPE(all, room, c)));
    by_tensor *values = changes(s, input(s, s->type, SHAPE(all, room, c)));
    by_tensor *from = indices(s, 6, SHAPE(6)), *past = indices(s, room + 1, SHAPE(6));
    by_tensor *pages = cases[which].named ? indices(s, all, SHAPE(6, 1)) : NULL;
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    for (int b = 0; b < 6; b++)
        values_of(s, from)[b] = rows[which][b];
    values_of(s, past)[0] = (double)room;
    values_of(s, past)[3] = 0;
    for (int b = 0; pages && b < 6; b++)
        values_of(s, pages)[b] = (double)((b * 4 + 7) % 9);
    by_reorder(s->graph, keys, values, from, past, pages, cases[which].beams);
    shown(s, keys);
    shown(s, values);
    return true;
}

bool op_sample_advance(by_op_sample *s, int which)
{
    if (which >= 3)
        return false;
    const gr_advance_attr a = {.last = which == 1 ? 3 : 100};
    by_tensor *next = indices(s, 50, SHAPE(3)), *tokens = changes(s, indices(s, 50, SHAPE(3, 1)));
    by_tensor *positions = changes(s, indices(s, 4, SHAPE(3, 1))),
              *past = changes(s, indices(s, 9, SHAPE(3)));
    by_tensor *log = changes(s, indices(s, 50, SHAPE(1 + 4 * 3)));
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    values_of(s, log)[0] = which == 2 ? 4 : 2;
    NODE(ADVANCE, &a, next, tokens, positions, past, log);
    shown(s, tokens);
    shown(s, positions);
    shown(s, past);
    shown(s, log);
    return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

#define GR_OP(ID, name, in, out, traits, gradient) [GR_OP_##ID] = op_sample_##name,
static const op_sample_fn generators[GR_OP_COUNT] = {
#include "graph/ops.def"
};
#undef GR_OP

by_op_sample *op_sample_new(by_graph *g, gr_op op, int which, bool copied)
{
    by_op_sample *s = base_alloc_zero(1, sizeof *s);
    if (!s)
        return NULL;
    s->graph = g;
    s->type = by_params_dtype(g->params);
    s->copied = copied;
    s->seed =
        base_hash(gr_ops[op].name, strlen(gr_ops[op].name), (uint64_t)which); /* whatever row it is in */
    s->loss_scale = 1;
    if (!generators[op](s, which)) {
        op_sample_free(s);
        base_error_clear();
        return NULL;
    }
    return s;
}

void op_sample_free(by_op_sample *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_leaves; i++)
        base_free(s->leaf[i].values);
    base_free(s);
}
