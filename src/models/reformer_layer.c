/* reformer_layer.c - the reversible layer of Reformer (Kitaev et al. 2020; Gomez et al. 2017):
 *   y1 = x1 + attention(x2)     y2 = x2 + feed_forward(y1)
 * The backward pass computes x2 = y2 - feed_forward(y1) and x1 = y1 - attention(x2), so that a stack of
 * layers keeps nothing except the sort order of each layer: recomputed from values with other roundings, a
 * row could change its bucket. */
#include "graph/graph.h"
#include "models/reformer.h"

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        const int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

int64_t arch_reformer_length(const arch_reformer_config *c, int64_t tokens)
{
    int64_t multiple = 1, least = INT64_MAX;
    for (int i = 0; i < c->layers; i++) {
        const int chunk = c->lsh[i] ? c->lsh_chunk : c->local_chunk;
        multiple = common_multiple(multiple, chunk);
        least = BY_MIN(least, chunk);
    }
    return tokens <= least ? tokens : (tokens + multiple - 1) / multiple * multiple;
}

/* ---- attention ------------------------------------------------------------------------------- */

/* About twice as many buckets as chunks, a power of two; in two factors if the rotations would be large. */
static int bucket_factors(const arch_reformer_config *c, int64_t length, int *factors)
{
    int power = 0, root = 0;
    for (int64_t n = 2 * (length / c->lsh_chunk); n > 1; n /= 2)
        power++;
    while ((int64_t)(root + 1) * (root + 1) <= c->context / c->lsh_chunk)
        root++;
    if (c->n_factors) {
        memcpy(factors, c->factors, sizeof c->factors);
        return c->n_factors;
    }
    const bool split = (int64_t)1 << power > 2 * (int64_t)BY_MAX(root, c->lsh_chunk);
    factors[0] = 1 << (split ? power / 2 : power);
    factors[1] = 1 << (power - power / 2);
    return split ? 2 : 1;
}

/* The rows of each head by bucket, then by position, in every round: (B, H, R, T). */
static by_tensor *sorted_rows(by_graph *g, const arch_reformer_layer *l, by_tensor *qk)
{
    const arch_reformer_config *c = l->config;
    int factors[BY_MAX_FACTORS] = {0};
    const int count = bucket_factors(c, l->length, factors);
    int64_t columns = 0;
    for (int i = 0; i < count; i++)
        columns += factors[i] / 2;
    by_tensor *rotations = l->rotations ? by_cast(g, l->rotations, gr_acc_type(l->type)) : NULL;
    if (!rotations)
        rotations = by_random(g, BY_RANDOM_NORMAL, gr_acc_type(l->type), 4,
                              (int64_t[]){c->heads, c->head_dim, c->hashes, columns}, 1);
    return by_argsort(g, by_hash(g, qk, rotations, l->mask, count, factors), false);
}

static by_tensor *project(by_graph *g, const arch_reformer_config *c, const char *name, by_tensor *x)
{
    return nn_linear(
        g, name, x,
        &(nn_linear_spec){.out = (int64_t)c->heads * c->head_dim, .no_bias = true, .std = c->std});
}

/* Keys are the queries, scaled to length sqrt(D): (B, T, H*D) -> the same. */
static by_tensor *unit_keys(by_graph *g, const arch_reformer_config *c, by_tensor *qk)
{
    const int64_t d = c->head_dim, b = by_dim(qk, 0), t = by_dim(qk, 1);
    by_tensor *rows = by_reshape(g, qk, 4, (int64_t[]){b, t, c->heads, d});
    rows = by_rmsnorm(g, rows, by_fill(g, by_type(qk), 1, &d, 1), 1e-6f);
    return by_reshape(g, rows, 3, (int64_t[]){b, t, c->heads * d});
}

/* A text that fits into one chunk uses plain attention. */
static by_tensor *attend(by_graph *g, arch_reformer_layer *l, by_tensor *h) /* (B, T, C) -> (B, T, H*D) */
{
    const arch_reformer_config *c = l->config;
    const bool lsh = c->lsh[l->index];
    const int chunk = lsh ? c->lsh_chunk : c->local_chunk;
    const bool whole = l->length <= chunk;
    by_chunked_spec spec = {.heads = c->heads,
                            .chunk = whole ? (int)l->length : chunk,
                            .length = l->length,
                            .before = whole ? 0
                                      : lsh ? c->lsh_before
                                            : c->local_before,
                            .after = whole ? 0
                                     : lsh ? c->lsh_after
                                           : c->local_after,
                            .causal = c->causal,
                            .avoid_self = lsh,
                            .dropout = lsh ? c->lsh_drop : c->local_drop,
                            .key_mask = l->mask,
                            .weights = l->weights};
    by_tensor *q = project(g, c, lsh ? "query_key" : "query", h);
    by_tensor *k = lsh ? unit_keys(g, c, q) : project(g, c, "key", h);
    by_tensor *v = project(g, c, "value", h);
    if (lsh && !whole && !l->order)
        l->order = sorted_rows(g, l, q);
    spec.order = l->order;
    by_tensor *y = by_chunked_attention(g, q, k, v, &spec);
    if (whole && l->weights)
        *l->weights =
            by_reshape(g, *l->weights, 4, (int64_t[]){by_dim(h, 0), c->heads, l->length, l->length});
    return y;
}

static by_tensor *attention(by_graph *g, void *user, by_tensor *x) /* (B, T, C) -> (B, T, C) */
{
    arch_reformer_layer *l = user;
    const arch_reformer_config *c = l->config;
    by_scope_push(g, "attention");
    by_tensor *h = nn_layernorm(g, "layer_norm", by_cast(g, x, l->type), c->eps);
    by_scope_push(g, "self_attention");
    h = attend(g, l, h);
    by_scope_pop(g);
    h = nn_linear(g, "output.dense", h, &(nn_linear_spec){.out = c->width, .no_bias = true, .std = c->std});
    h = by_dropout(g, h, c->drop);
    by_scope_pop(g);
    return by_cast(g, h, by_type(x));
}

/* ---- feed-forward in chunks of positions -------------------------------------------------------- */

/* Dropout precedes the activation, which makes no difference for ReLU. */
static by_tensor *feed_forward(by_graph *g, void *user, by_tensor *x) /* (B, n, C) -> (B, n, C) */
{
    const arch_reformer_layer *l = user;
    const arch_reformer_config *c = l->config;
    const bool fused = c->act == BY_RELU;
    by_scope_push(g, "feed_forward");
    by_tensor *h = nn_layernorm(g, "layer_norm", by_cast(g, x, l->type), c->eps);
    h = nn_linear(g, "dense.dense", h,
                  &(nn_linear_spec){.out = c->inner, .act = fused ? c->act : BY_ACT_NONE, .std = c->std});
    h = by_dropout(g, h, c->drop);
    h = fused ? h : by_activation(g, h, c->act);
    h = nn_linear(g, "output.dense", h, &(nn_linear_spec){.out = c->width, .std = c->std});
    h = by_dropout(g, h, c->drop);
    by_scope_pop(g);
    return by_cast(g, h, by_type(x));
}

enum { MOST_PIECES = 12 * 12 * 12 };

/* y = feed_forward(x) and, with dy, the gradient of x. */
static by_tensor *pieces(by_graph *g, arch_reformer_layer *l, by_tensor *x, by_tensor *dy, by_tensor **dx)
{
    const int64_t all = by_dim(x, 1);
    int64_t size = l->config->ff_chunk > 0 ? l->config->ff_chunk : all;
    size = BY_MAX(size, (all + MOST_PIECES - 1) / MOST_PIECES);
    by_tensor *y[MOST_PIECES], *d[MOST_PIECES];
    int count = 0;
    for (int64_t at = 0; at < all; at += size, count++) {
        const int64_t n = BY_MIN(size, all - at);
        by_tensor *part = n < all ? by_slice(g, x, 1, at, n) : x;
        by_tensor *slope = dy && n < all ? by_slice(g, dy, 1, at, n) : dy;
        y[count] = dy ? by_vjp(g, feed_forward, l, part, slope, &d[count]) : feed_forward(g, l, part);
    }
    if (dy)
        *dx = nn_concat(g, d, count, 1);
    return nn_concat(g, y, count, 1);
}

/* ---- the layer ------------------------------------------------------------------------------- */

static void forward(by_graph *g, void *user, by_tensor *const *in, by_tensor **out)
{
    arch_reformer_layer *l = user;
    out[0] = by_add(g, in[0], attention(g, l, in[1]));
    out[1] = by_add(g, in[1], pieces(g, l, out[0], NULL, NULL));
    if (l->order)
        out[2] = l->order;
}

static void backward(by_graph *g, void *user, by_tensor *const *out, by_tensor *const *dout, by_tensor **din,
                     by_tensor **again)
{
    arch_reformer_layer *l = user;
    by_tensor *d = NULL;
    l->weights = NULL;
    by_tensor *h = pieces(g, l, out[0], dout[1], &d);
    again[1] = by_sub(g, out[1], h);
    din[0] = by_add(g, dout[0], d);
    by_tensor *f = by_vjp(g, attention, l, again[1], din[0], &d);
    again[0] = by_sub(g, out[0], f);
    din[1] = by_add(g, dout[1], d);
}

void arch_reformer_step(by_graph *g, arch_reformer_layer *l, by_tensor **streams)
{
    const arch_reformer_config *c = l->config;
    const bool sorts = c->lsh[l->index] && l->length > c->lsh_chunk;
    by_tensor *out[3] = {0};
    by_block_push(g, "layers.%d", l->index);
    if (l->kept)
        forward(g, l, streams, out);
    else
        by_block_custom(g, &(by_custom_spec){.forward = forward, .backward = backward, .user = l}, streams, 2,
                        out, sorts ? 3 : 2);
    by_block_pop(g);
    streams[0] = out[0];
    streams[1] = out[1];
}
