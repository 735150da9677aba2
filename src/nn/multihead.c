/* multihead.c - attention with its projections (see nn.h); over a cache when decoding (see cache.h). */
#include <math.h>

#include "graph/graph.h"
#include "nn/cache.h"

/* ---- projections ----------------------------------------------------------------------------- */

static int64_t inner_of(const nn_attention_spec *s, const by_tensor *x)
{
    return s->inner ? s->inner : by_dim(x, -1);
}

/* Width of all keys, and of all values. */
static int64_t key_width(const nn_attention_spec *s, const by_tensor *x)
{
    const int kv = s->op.kv_heads ? s->op.kv_heads : s->op.heads;
    return s->op.heads > 0 ? inner_of(s, x) / s->op.heads * kv : 0;
}

static by_tensor *project(by_graph *g, const nn_attention_spec *s, const char *name, by_tensor *x,
                          int64_t width, float std)
{
    return nn_linear(
        g, name, x,
        &(nn_linear_spec){
            .out = width, .conv1d = s->conv1d, .no_bias = s->no_bias, .std = std ? std : s->std});
}

/* The keys and values of `from`: (B, S, Hkv*D) each. */
static void project_pair(by_graph *g, const nn_attention_spec *s, by_tensor *from, int64_t width,
                         by_tensor **k, by_tensor **v)
{
    if (s->kv) {
        by_tensor *both = project(g, s, s->kv, from, 2 * width, 0);
        *k = by_slice(g, both, 2, 0, width);
        *v = by_slice(g, both, 2, width, width);
        return;
    }
    *k = project(g, s, s->key, from, width, 0);
    *v = project(g, s, s->value, from, width, 0);
}

void nn_attention_keep(by_graph *g, const char *name, by_tensor *memory, const nn_attention_spec *s)
{
    by_tensor *k, *v;
    if (name)
        by_scope_push(g, "%s", name);
    project_pair(g, s, memory, key_width(s, memory), &k, &v);
    nn_cache_keep_source(g, k, v, s->cache, s->layer);
    if (name)
        by_scope_pop(g);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static _Thread_local nn_scores *keeper; /* of the model that is being built in this thread; NULL: nobody asks */

void nn_scores_begin(nn_scores *s)
{
    *s = (nn_scores){0};
    keeper = s;
}

void nn_scores_end(void)
{
    keeper = NULL;
}

/* (B, T, n D) -> (B, n, T, D) */
static by_tensor *split_heads(by_graph *g, by_tensor *x, int64_t n)
{
    const int64_t b = by_dim(x, 0), t = by_dim(x, 1);
    x = by_reshape(g, x, 4, (int64_t[]){b, t, n, by_dim(x, 2) / n});
    return by_permute_axes(g, x, (int[]){0, 2, 1, 3});
}

/* Heads that share keys stand side by side. */
static by_tensor *scores_of(by_graph *g, const nn_attention_spec *s, by_tensor *q, by_tensor *k)
{
    const int64_t heads = s->op.heads, kv = s->op.kv_heads ? s->op.kv_heads : heads, d = by_dim(q, 2) / heads;
    const int64_t b = by_dim(q, 0), t = by_dim(q, 1);
    q = by_reshape(g, split_heads(g, q, heads), 5, (int64_t[]){b, kv, heads / kv, t, d});
    k = by_reshape(g, split_heads(g, k, kv), 5, (int64_t[]){b, kv, 1, t, d});
    by_tensor *scores = by_scale(g, by_matmul(g, q, k, false, true),
                                 s->op.scale > 0 ? (double)s->op.scale : 1 / sqrt((double)d));
    return by_reshape(g, scores, 4, (int64_t[]){b, heads, t, t});
}

/* Nodes that nobody reads are dropped when the graph is compiled. */
static void keep_scores(by_graph *g, const nn_attention_spec *s, by_tensor *q, by_tensor *k, by_tensor *v,
                        int64_t width)
{
    nn_scores *to = keeper;
    if (!k) { /* packed */
        const int64_t inner = by_dim(q, 2) - 2 * width;
        k = by_slice(g, q, 2, inner, width);
        v = by_slice(g, q, 2, inner + width, width);
        q = by_slice(g, q, 2, 0, inner);
    }
    if (to->count == NN_SCORES_MAX)
        return;
    to->scores[to->count] = scores_of(g, s, q, k);
    to->values[to->count++] = split_heads(g, v, s->op.kv_heads ? s->op.kv_heads : s->op.heads);
}

/* ---- attention ------------------------------------------------------------------------------- */

by_tensor *nn_attention(by_graph *g, const char *name, by_tensor *x, by_tensor *from,
                        const nn_attention_spec *s)
{
    const int64_t inner = inner_of(s, x), width = key_width(s, x);
    by_tensor *k = NULL, *v = NULL;
    if (name)
        by_scope_push(g, "%s", name);
    by_tensor *q = s->qkv ? project(g, s, s->qkv, x, inner + 2 * width, 0)
                          : project(g, s, s->query, x, inner, s->query_std); /* (B, T, H*D) */
    if (from && !s->qkv)
        project_pair(g, s, from, width, &k, &v);
    if (s->rope && from) {
        const int dim = s->op.heads > 0 ? (int)(inner / s->op.heads) : 0;
        if (s->qkv) { /* take the packed projection apart */
            by_tensor *all = q;
            q = by_slice(g, all, 2, 0, inner);
            k = by_slice(g, all, 2, inner, width);
            v = by_slice(g, all, 2, inner + width, width);
        }
        q = nn_rotary(g, q, s->positions, dim, s->rope);
        k = nn_rotary(g, k, s->positions, dim, s->rope);
    }
    if (!gr_is_bad(g) && keeper && from == x && !s->cache && !s->attend)
        keep_scores(g, s, q, k, v, width);
    by_tensor *y = s->attend ? s->attend(g, s, x, q, k, v)
                   : from    ? nn_attend_over(g, q, k, v, s->cache, s->layer, &s->op)
                             : nn_attend_source(g, q, s->cache, s->layer, &s->op);
    y = nn_linear(g, s->out, y,
                  &(nn_linear_spec){.out = by_dim(x, -1),
                                    .conv1d = s->conv1d,
                                    .no_bias = s->no_out_bias,
                                    .std = s->out_std ? s->out_std : s->std});
    if (name)
        by_scope_pop(g);
    return y;
}
