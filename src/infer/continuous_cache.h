/* continuous_cache.h - the continuous cache of Grave, Joulin and Usunier, "Improving Neural Language Models
 * with a Continuous Cache" (2016). The cache holds pairs (h_i, x_(i+1)) of a hidden state and the token that
 * followed it:
 *
 *   p_cache(w | t) = sum over i of softmax_i(theta h_t.h_i) [x_(i+1) = w]
 *   p(w | t)       = (1 - lambda) p_model(w | t) + lambda p_cache(w | t)
 *
 * While the cache is empty, p is p_model. This file has the graph, which verification, evaluation
 * (cache_evaluate.c) and generation (generate_cache.c) share. */
#ifndef BY_INFER_CONTINUOUS_CACHE_H
#define BY_INFER_CONTINUOUS_CACHE_H

#include "banyan/generate.h"
#include "base/base.h"

/* The weights of the cached states: states (T, C), keys (S, C), seen (T, S) i32 or u8, theta a scalar or (K,
 * 1, 1) -> (T, S) or (K, T, S). A query that sees no key has equal weights. */
by_tensor *gen_cache_weights(by_graph *g, by_tensor *states, by_tensor *keys, by_tensor *seen,
                             by_tensor *theta);

typedef struct gen_cache_mixture {
    by_tensor *states, *logits; /* (T, C), (T, V) */
    by_tensor *keys, *next;     /* (S, C), (S) i32 */
    by_tensor *seen;            /* (T, S) */
    by_tensor *share;           /* (T, 1): lambda, or 0 for a query that sees no key */
    double theta;
} gen_cache_mixture;
/* Log-probabilities of the mixture, (T, V). */
by_tensor *gen_cache_mix(by_graph *g, const gen_cache_mixture *m);

/* Returns BY_ERR_ARGUMENT for values out of range. */
by_status gen_cache_check(const by_continuous_cache *c);

/* ---- generation (generate_cache.c) ------------------------------------------------------------ */

/* The caches of the rows of a generator. */
typedef struct gen_recall gen_recall;
gen_recall *gen_recall_new(by_generator *g, const by_continuous_cache *spec);
void gen_recall_free(gen_recall *r);
/* The next `count` tokens fed to the row are already in its cache, because its context is being
 * recomputed. */
void gen_recall_skip(gen_recall *r, int row, int count);
/* Log-probabilities (V) of the next token, from the model's logits. Valid until the next call. NULL on
 * failure. */
const float *gen_recall_mix(gen_recall *r, int row, const float *logits);

#endif
