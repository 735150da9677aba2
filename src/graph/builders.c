/* builders.c - the public operations. Each checks what the shape rules cannot, fills an attribute and appends
 * a node. */
#include <math.h>

#include "graph/graph.h"

#define ADD_NODE(g, op, attr, ...)                                                                       \
    gr_node_add(g, op, (by_tensor *const[]){__VA_ARGS__}, BY_COUNT(((by_tensor *const[]){__VA_ARGS__})), \
                attr, sizeof *(attr))

/* A required argument other than a tensor is NULL. */
static by_tensor *no_shape(by_graph *g, const char *what)
{
    return by_graph_fail(g, "%s: the shape is NULL", what);
}

/* The same for an operand that a builder inspects before the node is appended. */
static by_tensor *no_operand(by_graph *g, const char *op)
{
    return by_graph_fail(g, "%s: input 1 is missing", op);
}

static by_tensor *constant(by_graph *g, gr_op op, by_dtype type, int rank, const int64_t *shape, double value)
{
    gr_fill_attr a = {.value = value, .type = type, .rank = rank};
    if (rank > 0 && !shape)
        return no_shape(g, "a constant");
    if (rank < 0 || rank > BY_MAX_RANK)
        return by_graph_fail(g, "a constant has %d axes; the maximum is %d", rank, BY_MAX_RANK);
    for (int i = 0; i < rank; i++)
        a.dim[i] = shape[i];
    return gr_node_add(g, op, NULL, 0, &a, sizeof a);
}

by_tensor *by_fill(by_graph *g, by_dtype type, int rank, const int64_t *shape, double value)
{
    return constant(g, GR_OP_FILL, type, rank, shape, value);
}

by_tensor *by_range(by_graph *g, int rank, const int64_t *shape)
{
    return by_range_from(g, rank, shape, 0);
}

by_tensor *by_range_from(by_graph *g, int rank, const int64_t *shape, int first)
{
    return constant(g, GR_OP_RANGE, BY_I32, rank, shape, first);
}

by_tensor *by_interpolation(by_graph *g, int64_t out, int64_t in, by_dtype type)
{
    gr_interpolation_attr a = {out, in, type};
    if (out < 1 || in < 1 || out > INT32_MAX || in > INT32_MAX)
        return by_graph_fail(g, "interpolation: cannot make %lld elements from %lld", (long long)out,
                             (long long)in);
    return gr_node_add(g, GR_OP_INTERPOLATION, NULL, 0, &a, sizeof a);
}

by_tensor *by_buckets(by_graph *g, int64_t length, int64_t zero, bool both, int count, const int *first)
{
    gr_buckets_attr a = {.length = length, .zero = zero, .both = both, .count = count};
    if (!first || count < 1 || count > BY_MAX_BUCKETS || length < 1)
        return by_graph_fail(g, "buckets: %d buckets for %lld distances; expected 1 to %d buckets", count,
                             (long long)length, BY_MAX_BUCKETS);
    memcpy(a.first, first, (size_t)count * sizeof *first);
    return gr_node_add(g, GR_OP_BUCKETS, NULL, 0, &a, sizeof a);
}

by_tensor *by_sines(by_graph *g, by_tensor *positions, int64_t width, by_dtype type)
{
    gr_sines_attr a = {width, type};
    return ADD_NODE(g, GR_OP_SINES, &a, positions);
}

void by_store(by_graph *g, by_tensor *x, by_tensor *state)
{
    gr_node_make(g, GR_OP_STORE, (by_tensor *[]){x, state}, 2, NULL, 0);
}

by_tensor *by_gather(by_graph *g, by_tensor *table, by_tensor *ids)
{
    return by_gather_padded(g, table, ids, -1);
}

by_tensor *by_gather_padded(by_graph *g, by_tensor *table, by_tensor *ids, int padding)
{
    const gr_hook *h = !gr_is_bad(g) && table ? g->hook : NULL;
    by_tensor *y = h && h->gather ? h->gather(h->user, g, table, ids, padding) : NULL;
    return y ? y : gr_gather_plain(g, table, ids, padding);
}

by_tensor *gr_gather_plain(by_graph *g, by_tensor *table, by_tensor *ids, int padding)
{
    gr_gather_attr a = {.rows = by_dim(table, 0), .still = padding};
    return gr_node_add(g, GR_OP_GATHER, (by_tensor *[]){table, ids}, 2, &a, sizeof a);
}

by_tensor *by_linear(by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b, const by_linear_spec *spec)
{
    const gr_hook *h = !gr_is_bad(g) && x && w ? g->hook : NULL;
    by_tensor *y = h && h->linear ? h->linear(h->user, g, x, w, b, spec) : NULL;
    return y ? y : gr_linear_plain(g, x, w, b, spec);
}

by_tensor *gr_linear_plain(by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b, const by_linear_spec *spec)
{
    gr_linear_attr a = {0};
    if (spec) {
        a.w_is_kn = spec->w_is_kn;
        a.act = spec->act <= BY_ACT_FUSED ? spec->act : BY_ACT_NONE;
    }
    by_tensor *y = ADD_NODE(g, GR_OP_LINEAR, &a, x, w, b);
    return spec && spec->act != a.act ? by_activation(g, y, spec->act) : y;
}

/* Broadcasts the leading axes of x to those of `shape`, of rank `rank`. The last two axes stay. */
static by_tensor *expand(by_graph *g, by_tensor *x, int rank, const int64_t *shape)
{
    int64_t dim[BY_MAX_RANK] = {0};
    const int missing = rank + 2 - x->rank;
    for (int i = 0; i < rank + 2; i++)
        dim[i] = i < missing ? 1 : x->dim[i - missing];
    x = missing ? by_reshape(g, x, rank + 2, dim) : x;
    for (int i = 0; i < rank; i++) {
        if (dim[i] == shape[i])
            continue;
        gr_reduce_attr a = {.outer = 1, .count = shape[i], .inner = 1, .scale = 1, .rank = rank + 2};
        dim[i] = shape[i];
        for (int k = 0; k < rank + 2; k++) {
            a.outer *= k < i ? dim[k] : 1;
            a.inner *= k > i ? dim[k] : 1;
            a.dim[k] = dim[k];
        }
        x = ADD_NODE(g, GR_OP_BROADCAST, &a, x);
    }
    return x;
}

/* The broadcast leading axes of a and b, or -1 if they do not match. */
static int leading_axes(const by_tensor *a, const by_tensor *b, int64_t *shape)
{
    const int rank = BY_MAX(a->rank, b->rank) - 2;
    for (int i = 0; i < rank; i++) {
        const int ia = i - (rank + 2 - a->rank), ib = i - (rank + 2 - b->rank);
        const int64_t da = ia < 0 ? 1 : a->dim[ia], db = ib < 0 ? 1 : b->dim[ib];
        if (da != db && da != 1 && db != 1)
            return -1;
        shape[i] = da == 1 ? db : da;
    }
    return rank;
}

by_tensor *by_matmul(by_graph *g, by_tensor *a, by_tensor *b, bool a_transposed, bool b_transposed)
{
    gr_matmul_attr t = {a_transposed, b_transposed};
    int64_t shape[BY_MAX_RANK];
    if (!gr_is_bad(g) && a && b && a->rank >= 2 && b->rank >= 2 && by_dtype_is_float(a->type) &&
        by_dtype_is_float(b->type)) {
        const int rank = leading_axes(a, b, shape);
        a = rank < 0 ? a : expand(g, a, rank, shape);
        b = rank < 0 ? b : expand(g, b, rank, shape);
    }
    return ADD_NODE(g, GR_OP_MATMUL, &t, a, b);
}

by_tensor *by_activation(by_graph *g, by_tensor *x, by_act act)
{
    gr_activation_attr a = {act};
    return act == BY_ACT_NONE ? x : ADD_NODE(g, GR_OP_ACTIVATION, &a, x);
}

by_tensor *by_dropout(by_graph *g, by_tensor *x, float p)
{
    gr_dropout_attr a = {p};
    if (gr_is_bad(g) || !x)
        return no_operand(g, "dropout");
    if (!g->drops || p == 0)
        return x;
    if (!(p > 0 && p < 1))
        return by_graph_fail(g, "dropout: probability %g is not in [0, 1)", (double)p);
    return ADD_NODE(g, GR_OP_DROPOUT, &a, x);
}

by_tensor *by_layernorm(by_graph *g, by_tensor *x, by_tensor *gamma, by_tensor *beta, float eps)
{
    gr_norm_attr a = {.eps = eps};
    return ADD_NODE(g, GR_OP_NORM, &a, x, gamma, beta, NULL);
}

by_tensor *by_rmsnorm(by_graph *g, by_tensor *x, by_tensor *gamma, float eps)
{
    gr_norm_attr a = {.rms = true, .eps = eps};
    return ADD_NODE(g, GR_OP_NORM, &a, x, gamma, NULL, NULL);
}

by_tensor *by_softmax(by_graph *g, by_tensor *x)
{
    return gr_node_add(g, GR_OP_SOFTMAX, &x, 1, NULL, 0);
}

by_tensor *by_rotary(by_graph *g, by_tensor *x, by_tensor *positions, const by_rotary_spec *s)
{
    if (!s || !s->frequencies)
        return by_graph_fail(g, "rotary: frequencies is NULL");
    gr_rotary_attr a = {.head_dim = s->head_dim,
                        .width = s->width ? s->width : s->head_dim,
                        .interleaved = s->interleaved,
                        .factor = s->factor != 0 ? s->factor : 1,
                        .trained = s->trained,
                        .theta = s->theta,
                        .stretch = s->stretch};
    if (a.width < 2 || a.width > BY_MAX_ROTARY || a.width % 2)
        return by_graph_fail(g, "rotary: width %d is not an even number up to %d", a.width, BY_MAX_ROTARY);
    memcpy(a.frequency, s->frequencies, sizeof *a.frequency * (size_t)(a.width / 2));
    return ADD_NODE(g, GR_OP_ROTARY, &a, x, positions);
}

static gr_attention_attr attention_attr(const by_graph *g, const by_tensor *q, bool packed,
                                        const by_attention_spec *s)
{
    gr_attention_attr a = {.spec = *s, .packed = packed};
    if (!s->kv_heads)
        a.spec.kv_heads = s->heads;
    const int all = packed ? s->heads + 2 * a.spec.kv_heads : s->heads;
    a.head_dim = all > 0 ? (int)(by_dim(q, -1) / all) : 0;
    if (s->scale == 0)
        a.spec.scale = a.head_dim > 0 ? 1.0f / sqrtf((float)a.head_dim) : 1.0f;
    if (!g || !g->drops)
        a.spec.dropout = 0;
    return a;
}

/* Moves the inputs that all attention ops share to in[], in the order of graph.h. Tensors must not stay in
 * attributes, because passes may replace them. */
static void attention_inputs(gr_attention_attr *a, by_tensor *q, by_tensor *k, by_tensor *v, by_tensor **in)
{
    by_attention_spec *s = &a->spec;
    by_tensor *all[GR_ATT_SHARED] = {q, k, v, s->key_mask, s->prefix, s->bias, s->relative, s->pair_mask};
    memcpy(in, all, sizeof all);
    s->key_mask = s->prefix = s->bias = s->relative = s->pair_mask = NULL;
    s->weights = NULL;
}

by_tensor *by_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, const by_attention_spec *spec)
{
    if (!spec)
        return by_graph_fail(g, "attention: the spec is NULL");
    gr_attention_attr a = attention_attr(g, q, !k && !v, spec);
    if (!(a.spec.dropout >= 0 && a.spec.dropout < 1))
        return by_graph_fail(g, "attention: dropout probability %g is not in [0, 1)", (double)a.spec.dropout);
    by_tensor *in[GR_ATT_SHARED];
    attention_inputs(&a, q, k, v, in);
    gr_node *n = gr_node_make(g, GR_OP_ATTENTION, in, BY_COUNT(in), &a, sizeof a);
    if (spec->weights)
        *spec->weights = n ? n->out[2] : gr_poison_of(g);
    return n ? n->out[0] : gr_poison_of(g);
}

by_tensor *by_attention_cached(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v, by_tensor *k_cache,
                               by_tensor *v_cache, by_tensor *past, const by_attention_spec *spec)
{
    if (!spec)
        return by_graph_fail(g, "attention_cached: the spec is NULL");
    gr_attention_attr a = attention_attr(g, q, !k && !v && past, spec);
    a.spec.mask = !past ? BY_MASK_NONE : spec->mask == BY_MASK_PREFIX ? BY_MASK_PREFIX : BY_MASK_CAUSAL;
    a.spec.dropout = 0;
    by_tensor *in[GR_ATT_SHARED + 4];
    attention_inputs(&a, q, k, v, in);
    in[GR_ATT_K_CACHE] = k_cache;
    in[GR_ATT_V_CACHE] = v_cache;
    in[GR_ATT_PAST] = past;
    in[GR_ATT_PAGES] = spec->pages;
    return gr_node_add(g, GR_OP_ATTENTION_CACHED, in, BY_COUNT(in), &a, sizeof a);
}

by_tensor *by_hash(by_graph *g, by_tensor *x, by_tensor *rotations, by_tensor *mask, int count,
                   const int *factors)
{
    gr_hash_attr a = {.rounds = (int)by_dim(rotations, 2), .count = count};
    if (count < 1 || count > BY_MAX_FACTORS || !factors)
        return by_graph_fail(g, "hash: the number of buckets must have 1 to %d factors", BY_MAX_FACTORS);
    memcpy(a.factor, factors, sizeof *factors * (size_t)count);
    return ADD_NODE(g, GR_OP_HASH, &a, x, rotations, mask);
}

by_tensor *by_chunked_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                const by_chunked_spec *spec)
{
    if (!spec || spec->heads < 1 || spec->chunk < 1)
        return by_graph_fail(g, "chunked_attention: the spec needs heads and a chunk");
    gr_chunked_attr a = {.spec = *spec, .head_dim = (int)(by_dim(q, -1) / spec->heads)};
    by_chunked_spec *s = &a.spec;
    if (!s->length)
        s->length = (by_dim(q, 1) + s->chunk - 1) / s->chunk * s->chunk;
    if (s->scale == 0)
        s->scale = a.head_dim > 0 ? 1.0f / sqrtf((float)a.head_dim) : 1.0f;
    if (!g || !g->drops)
        s->dropout = 0;
    s->order = s->key_mask = NULL;
    s->weights = NULL;
    gr_node *n = gr_node_make(g, GR_OP_CHUNKED_ATTENTION,
                              (by_tensor *[]){q, k, v, spec->order, spec->key_mask}, 5, &a, sizeof a);
    if (spec->weights)
        *spec->weights = n ? n->out[2] : gr_poison_of(g);
    return n ? n->out[0] : gr_poison_of(g);
}

by_tensor *by_recurrent(by_graph *g, by_tensor *gates, by_tensor *w, by_tensor *b,
                        const by_recurrent_spec *spec)
{
    if (!spec || spec->cell < BY_CELL_TANH || spec->cell > BY_CELL_GRU)
        return by_graph_fail(g, "recurrent: the spec needs a cell");
    const bool lstm = spec->cell == BY_CELL_LSTM;
    if ((spec->c || spec->last_c) && !lstm)
        return by_graph_fail(g, "recurrent: only an LSTM has a state c");
    gr_recurrent_attr a = {spec->cell, spec->reverse};
    by_tensor *in[] = {gates, w, b, spec->mask, spec->h, spec->c};
    gr_node *n = gr_node_make(g, GR_OP_RECURRENT, in, BY_COUNT(in), &a, sizeof a);
    if (spec->last_h)
        *spec->last_h = n ? n->out[GR_REC_LAST_H] : gr_poison_of(g);
    if (spec->last_c)
        *spec->last_c = n ? n->out[GR_REC_LAST_C] : gr_poison_of(g);
    return n ? n->out[GR_REC_Y] : gr_poison_of(g);
}

by_tensor *by_additive_scores(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v)
{
    return gr_node_add(g, GR_OP_ADDITIVE_SCORES, (by_tensor *[]){q, k, v}, 3, NULL, 0);
}

by_tensor *by_cross_entropy(by_graph *g, by_tensor *logits, by_tensor *targets, const by_loss_spec *spec)
{
    gr_loss_attr a = {.ignore_index = -100};
    if (spec && spec->ignore_index)
        a.ignore_index = spec->ignore_index;
    if (spec)
        a.label_smoothing = spec->label_smoothing;
    by_tensor *weights = spec ? spec->weights : NULL;
    return ADD_NODE(g, GR_OP_CROSS_ENTROPY, &a, logits, targets, weights);
}

by_tensor *by_logistic_mixture(by_graph *g, by_tensor *logits, by_tensor *targets, int channels,
                               by_tensor **each)
{
    gr_mixture_attr a = {.channels = channels, .ignore_index = -100};
    if (channels != 1 && channels != 3)
        return by_graph_fail(g, "logistic_mixture: %d channels; expected 1 or 3", channels);
    by_tensor *in[] = {logits, targets};
    gr_node *n = gr_node_make(g, GR_OP_LOGISTIC_MIXTURE, in, BY_COUNT(in), &a, sizeof a);
    if (each)
        *each = n ? by_slice(g, n->out[1], 0, 0, by_dim(n->out[1], 0) - 1) : gr_poison_of(g);
    return n ? n->out[0] : gr_poison_of(g);
}

by_tensor *by_log_probs(by_graph *g, by_tensor *logits, by_tensor *targets, double scale, by_tensor **entropy)
{
    gr_log_probs_attr a = {.ignore_index = -100, .scale = scale == 0 ? 1 : (float)scale};
    if (entropy)
        *entropy = gr_poison_of(g);
    if (!(a.scale > 0))
        return by_graph_fail(g, "log_probs: a scale of %g is not positive", scale);
    gr_node *n = gr_node_make(g, GR_OP_LOG_PROBS, (by_tensor *[]){logits, targets}, 2, &a, sizeof a);
    if (!n)
        return gr_poison_of(g);
    if (entropy)
        *entropy = n->out[2];
    return n->out[0];
}

by_tensor *by_kl_divergence(by_graph *g, by_tensor *logits, by_tensor *teacher, double scale)
{
    gr_kl_attr a = {scale == 0 ? 1 : (float)scale};
    if (!(a.scale > 0))
        return by_graph_fail(g, "kl_divergence: a scale of %g is not positive", scale);
    return ADD_NODE(g, GR_OP_KL_DIVERGENCE, &a, logits, teacher);
}

/* ---- rows by index --------------------------------------------------------------------------- */

/* The number of batches of rows (B.., N, C); 0 without leading axes. */
static int64_t batches(const by_tensor *rows)
{
    int64_t n = by_rank(rows) > 2;
    for (int i = 0; i + 2 < by_rank(rows); i++)
        n *= rows->dim[i];
    return n;
}

by_tensor *by_take(by_graph *g, by_tensor *x, by_tensor *ids)
{
    gr_gather_attr a = {.rows = by_dim(x, -2), .still = -1, .batch = batches(x)};
    return ADD_NODE(g, GR_OP_GATHER, &a, x, ids);
}

by_tensor *by_scatter_add(by_graph *g, by_tensor *y, by_tensor *ids, int64_t rows)
{
    gr_gather_attr a = {.rows = rows, .still = -1, .batch = batches(y)};
    return by_cast(g, ADD_NODE(g, GR_OP_GATHER_GRAD, &a, ids, y), by_type(y));
}

by_tensor *by_argsort(by_graph *g, by_tensor *x, bool descending)
{
    gr_argsort_attr a = {descending};
    return ADD_NODE(g, GR_OP_ARGSORT, &a, x);
}

/* x (..., N), indices (..., K) -> (..., K) */
static by_tensor *take_elements(by_graph *g, by_tensor *x, by_tensor *places)
{
    int64_t dim[BY_MAX_RANK];
    if (gr_is_bad(g))
        return gr_poison_of(g);
    if (x->rank >= BY_MAX_RANK)
        return by_graph_fail(g, "sort: %d axes; expected fewer than %d", x->rank, BY_MAX_RANK);
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank] = 1;
    by_tensor *y = by_take(g, by_reshape(g, x, x->rank + 1, dim), places); /* (..., K, 1) */
    return gr_is_bad(g) ? gr_poison_of(g) : by_reshape(g, y, places->rank, places->dim);
}

by_tensor *by_sort(by_graph *g, by_tensor *x, bool descending, by_tensor **order)
{
    by_tensor *places = by_argsort(g, x, descending);
    if (order)
        *order = places;
    return take_elements(g, x, places);
}

by_tensor *by_top_k(by_graph *g, by_tensor *x, int64_t k, by_tensor **ids)
{
    by_tensor *places = by_slice(g, by_argsort(g, x, true), -1, 0, k);
    if (ids)
        *ids = places;
    return take_elements(g, x, places);
}

by_tensor *by_random(by_graph *g, by_random_kind kind, by_dtype type, int rank, const int64_t *shape,
                     double scale)
{
    gr_random_attr a = {.fill = {.value = scale, .type = type, .rank = rank}, .kind = kind};
    if (rank > 0 && !shape)
        return no_shape(g, "random");
    if (rank < 0 || rank > BY_MAX_RANK)
        return by_graph_fail(g, "random: %d axes; the maximum is %d", rank, BY_MAX_RANK);
    for (int i = 0; i < rank; i++)
        a.fill.dim[i] = shape[i];
    return gr_node_add(g, GR_OP_RANDOM, NULL, 0, &a, sizeof a);
}

/* ---- small ones ------------------------------------------------------------------------------ */

by_tensor *by_add(by_graph *g, by_tensor *a, by_tensor *b)
{
    return gr_node_add(g, GR_OP_ADD, (by_tensor *[]){a, b}, 2, NULL, 0);
}

by_tensor *by_sub(by_graph *g, by_tensor *a, by_tensor *b)
{
    return gr_node_add(g, GR_OP_SUB, (by_tensor *[]){a, b}, 2, NULL, 0);
}

by_tensor *by_mul(by_graph *g, by_tensor *a, by_tensor *b)
{
    return gr_node_add(g, GR_OP_MUL, (by_tensor *[]){a, b}, 2, NULL, 0);
}

static by_tensor *binary(by_graph *g, by_tensor *a, by_tensor *b, gr_binary kind)
{
    gr_binary_attr attr = {kind};
    return ADD_NODE(g, GR_OP_BINARY, &attr, a, b);
}

by_tensor *by_div(by_graph *g, by_tensor *a, by_tensor *b)
{
    return binary(g, a, b, GR_DIV);
}

by_tensor *by_maximum(by_graph *g, by_tensor *a, by_tensor *b)
{
    return binary(g, a, b, GR_MAXIMUM);
}

by_tensor *by_minimum(by_graph *g, by_tensor *a, by_tensor *b)
{
    return binary(g, a, b, GR_MINIMUM);
}

by_tensor *by_clamp(by_graph *g, by_tensor *x, double low, double high)
{
    x = by_maximum(g, x, by_fill(g, by_type(x), 0, NULL, low));
    return by_minimum(g, x, by_fill(g, by_type(x), 0, NULL, high));
}

by_tensor *by_where(by_graph *g, by_tensor *mask, by_tensor *a, by_tensor *b)
{
    return gr_node_add(g, GR_OP_WHERE, (by_tensor *[]){mask, a, b}, 3, NULL, 0);
}

by_tensor *by_scale(by_graph *g, by_tensor *x, double factor)
{
    gr_scale_attr a = {factor};
    return ADD_NODE(g, GR_OP_SCALE, &a, x);
}

static by_tensor *reduce_axis(by_graph *g, by_tensor *x, int axis, bool mean)
{
    if (gr_is_bad(g) || !x)
        return no_operand(g, mean ? "mean" : "sum");
    if (axis < 0)
        axis += x->rank;
    if (axis < 0 || axis >= x->rank)
        return by_graph_fail(g, "%s: no such axis in a tensor of rank %d", mean ? "mean" : "sum", x->rank);
    gr_reduce_attr a = {.outer = 1, .count = x->dim[axis], .inner = 1, .scale = 1};
    for (int i = 0; i < x->rank; i++) {
        if (i < axis)
            a.outer *= x->dim[i];
        if (i > axis)
            a.inner *= x->dim[i];
        if (i != axis)
            a.dim[a.rank++] = x->dim[i];
    }
    if (mean)
        a.scale = a.count ? 1.0 / (double)a.count : 0;
    return ADD_NODE(g, GR_OP_REDUCE, &a, x);
}

by_tensor *by_sum(by_graph *g, by_tensor *x, int axis)
{
    return reduce_axis(g, x, axis, false);
}

by_tensor *by_mean(by_graph *g, by_tensor *x, int axis)
{
    return reduce_axis(g, x, axis, true);
}

by_tensor *by_reshape(by_graph *g, by_tensor *x, int rank, const int64_t *shape)
{
    gr_reshape_attr a = {.rank = rank};
    if (rank > 0 && !shape)
        return no_shape(g, "reshape");
    if (rank < 0 || rank > BY_MAX_RANK)
        return by_graph_fail(g, "reshape: %d axes; the maximum is %d", rank, BY_MAX_RANK);
    for (int i = 0; i < rank; i++)
        a.dim[i] = shape[i];
    return ADD_NODE(g, GR_OP_RESHAPE, &a, x);
}

by_tensor *by_detach(by_graph *g, by_tensor *x)
{
    by_tensor *y = x ? by_reshape(g, x, x->rank, x->dim) : no_operand(g, "detach");
    if (!gr_is_bad(g))
        y->needs_grad = false;
    return y;
}

by_tensor *by_permute_axes(by_graph *g, by_tensor *x, const int *order)
{
    gr_permute_attr a = {0};
    if (!order)
        return by_graph_fail(g, "permute: the order is NULL");
    for (int i = 0; i < by_rank(x); i++)
        a.order[i] = order[i];
    return ADD_NODE(g, GR_OP_PERMUTE, &a, x);
}

by_tensor *by_slice(by_graph *g, by_tensor *x, int axis, int64_t start, int64_t count)
{
    gr_slice_attr a = {axis < 0 ? axis + by_rank(x) : axis, start, count};
    return ADD_NODE(g, GR_OP_SLICE, &a, x);
}

by_tensor *by_concat(by_graph *g, by_tensor *const *parts, int count, int axis)
{
    if (!parts && count > 0)
        return by_graph_fail(g, "concat: parts is NULL or empty");
    gr_slice_attr a = {axis < 0 && count > 0 ? axis + by_rank(parts[0]) : axis, 0, 0};
    return gr_node_add(g, GR_OP_CONCAT, parts, count, &a, sizeof a);
}

by_tensor *by_cast(by_graph *g, by_tensor *x, by_dtype type)
{
    gr_cast_attr a = {type};
    return x && x->type == type ? x : ADD_NODE(g, GR_OP_CAST, &a, x);
}

void by_advance(by_graph *g, by_tensor *next, by_tensor *tokens, by_tensor *positions, by_tensor *past,
                by_tensor *log, int last)
{
    gr_advance_attr a = {last};
    gr_node_make(g, GR_OP_ADVANCE, (by_tensor *[]){next, tokens, positions, past, log}, 5, &a, sizeof a);
}

by_tensor *by_top(by_graph *g, by_tensor *logits, int k, by_tensor **ids, by_tensor **lse)
{
    gr_top_attr a = {k};
    gr_node *n = gr_node_make(g, GR_OP_TOP, &logits, 1, &a, sizeof a);
    by_tensor *poison = gr_poison_of(g);
    if (ids)
        *ids = n ? n->out[1] : poison;
    if (lse)
        *lse = n ? n->out[2] : poison;
    return n ? n->out[0] : poison;
}

void by_reorder(by_graph *g, by_tensor *k_cache, by_tensor *v_cache, by_tensor *from, by_tensor *past,
                by_tensor *pages, int beams)
{
    gr_reorder_attr a = {beams};
    gr_node_make(g, GR_OP_REORDER, (by_tensor *[]){k_cache, v_cache, from, past, pages}, 5, &a, sizeof a);
}

by_tensor *by_argmax(by_graph *g, by_tensor *x)
{
    return gr_node_add(g, GR_OP_ARGMAX, &x, 1, NULL, 0);
}

by_tensor *by_draw(by_graph *g, by_tensor *logits, by_tensor *temperature, by_tensor *draws)
{
    return gr_node_add(g, GR_OP_DRAW, (by_tensor *[]){logits, temperature, draws}, 3, NULL, 0);
}
