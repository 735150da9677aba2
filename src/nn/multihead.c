/* multihead.c - attention with its projections (see nn.h); over a cache when decoding (see cache.h). */
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
    by_scope_push(g, "%s", name);
    project_pair(g, s, memory, key_width(s, memory), &k, &v);
    nn_cache_keep_source(g, k, v, s->cache, s->layer);
    by_scope_pop(g);
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
