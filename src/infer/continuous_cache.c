/* continuous_cache.c - the continuous cache as a graph (see continuous_cache.h). */
#include "infer/continuous_cache.h"

by_status gen_cache_check(const by_continuous_cache *c)
{
    if (c->size < 0 || c->size > 1 << 24)
        return base_fail(BY_ERR_ARGUMENT, "a cache of %d states: not between 0 and %d", c->size, 1 << 24);
    if (!(c->lambda >= 0 && c->lambda < 1))
        return base_fail(BY_ERR_ARGUMENT, "lambda of the cache is %g: not at least 0 and below 1", c->lambda);
    return c->theta >= 0 && c->theta < 1e30
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "theta of the cache is %g: not at least 0", c->theta);
}

static by_tensor *scalar(by_graph *g, by_dtype type, double value)
{
    return by_fill(g, type, 1, (int64_t[]){1}, value);
}

by_tensor *gen_cache_weights(by_graph *g, by_tensor *states, by_tensor *keys, by_tensor *seen,
                             by_tensor *theta)
{
    const by_dtype type = by_type(states);
    by_tensor *scores = by_matmul(g, states, keys, false, true); /* (T, S) */
    scores = by_mul(g, scores, theta);
    return by_softmax(g, by_where(g, seen, scores, scalar(g, type, type == BY_F16 ? -65504 : -1e30)));
}

by_tensor *gen_cache_mix(by_graph *g, const gen_cache_mixture *m)
{
    const by_dtype type = by_type(m->states);
    by_tensor *weights = gen_cache_weights(g, m->states, m->keys, m->seen, scalar(g, type, m->theta));
    by_tensor *cached = by_permute_axes(g, weights, (int[]){1, 0}); /* (S, T) */
    cached = by_scatter_add(g, cached, m->next, by_dim(m->logits, -1));
    cached = by_permute_axes(g, cached, (int[]){1, 0}); /* (T, V) */
    by_tensor *model = by_mul(g, by_softmax(g, m->logits), by_sub(g, scalar(g, type, 1), m->share));
    return by_activation(g, by_add(g, model, by_mul(g, cached, m->share)), BY_LOG);
}
