/* op_samples.c - the table of sample generators, and samples of ops that make or move data. */
#include "op_sample_build.h"

/* ---- noise ----------------------------------------------------------------------------------- */

/* splitmix64 (Steele et al. 2014): samples are many, and need nothing of what the library's generator can do.
 */
uint64_t op_sample_next(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Close to normal: the sum of four uniform numbers, scaled to variance 1. */
double op_sample_noise(uint64_t *seed)
{
    uint64_t z = op_sample_next(seed);
    double sum =
        (double)(z & 0xffff) + (double)(z >> 16 & 0xffff) + (double)(z >> 32 & 0xffff) + (double)(z >> 48);
    return (sum - 2 * 65535.0) / 65536 * sqrt(3);
}

/* ---- data ------------------------------------------------------------------------------ */

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
    tag(s, which ? "keys before the query" : "keys on both sides");
    shown(s, by_buckets(s->graph, 300, which ? 299 : 140, which == 0, BY_COUNT(first), first));
    return true;
}

bool op_sample_interpolation(by_op_sample *s, int which)
{
    static const int64_t sizes[][2] = {
        {5, 5}, {24, 14}, {3, 7}, {9, 1}}; /* as it is, longer, shorter, from one element */
    if (which >= BY_COUNT(sizes))
        return false;
    tag(s, "%lld from %lld", (long long)sizes[which][0], (long long)sizes[which][1]);
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
    const int64_t count = counts[which / 2];
    tag(s, "%s (2, %lld)", kind == BY_RANDOM_UNIFORM ? "uniform" : "normal", (long long)count);
    shown(s, by_random(s->graph, kind, s->type, SHAPE(2, count), 1.5));
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
        for (int i = 0; i < cases[which].rank; i++)
            tag(s, "%d", cases[which].order[i]);
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
    tag(s, "%s", by_dtype_name(others[which]));
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
    tag(s, "axis %d from %lld, %lld", parts[which].axis, (long long)parts[which].start,
        (long long)parts[which].count);
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
    tag(s, "axis %d at %lld of %lld ", axis, (long long)a.start, (long long)a.count);
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
    tag(s, "axis %d ", cases[which].axis);
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
