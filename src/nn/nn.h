/* nn.h - blocks that models share. Each function declares its parameters under a scope and returns its
 * result. Specs are meant for designated initialisers; zero means default. */
#ifndef BY_NN_NN_H
#define BY_NN_NN_H

#include "banyan/graph.h"

typedef struct by_cache by_cache;         /* keys and values of a decoding graph: cache.h */
int64_t nn_cache_room(const by_cache *c); /* M: capacity of a row in positions */

/* Layout, initial values and bias of a weight matrix, and the activation after it. */
typedef struct nn_linear_spec {
    int64_t out;
    bool conv1d; /* stored (in, out), as GPT and GPT-2 do */
    bool no_bias;
    by_act act;
    float std; /* standard deviation of initial values; 0: Glorot's */
} nn_linear_spec;

by_tensor *nn_embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                        float std);
/* The same with a padding row, which gets no gradient from look-ups. */
by_tensor *nn_embedding_padded(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                               float std, int padding);
/* A position table, initialised with random numbers or with sines and cosines (Vaswani et al. 2017). */
by_tensor *nn_positions(by_graph *g, const char *name, by_tensor *positions, int64_t rows, int64_t width,
                        float std, bool sines);
/* Segments (B, T) -> (B, T, C). NULL means all zeros and gives only the first row (C). */
by_tensor *nn_segments(by_graph *g, const char *name, by_tensor *segments, int64_t rows, int64_t width,
                       float std);
by_tensor *nn_linear(by_graph *g, const char *name, by_tensor *x, const nn_linear_spec *spec);
by_tensor *nn_layernorm(by_graph *g, const char *name, by_tensor *x, float eps);
by_tensor *nn_rmsnorm(by_graph *g, const char *name, by_tensor *x, float eps);

/* Rotary positions (Su et al. 2021) and their published extensions to longer texts. */
typedef enum nn_rope_kind {
    NN_ROPE_DEFAULT,
    NN_ROPE_LINEAR,  /* positions divided by the factor */
    NN_ROPE_DYNAMIC, /* theta grows with texts longer than the trained length */
    NN_ROPE_YARN,
    NN_ROPE_LLAMA3
} nn_rope_kind;
typedef struct nn_rope {
    nn_rope_kind kind;
    double theta, factor;
    double partial;    /* fraction of a head that is rotated; 0: all */
    int trained;       /* trained length in positions; all kinds except the first two */
    double attention;  /* YaRN: factor on sines and cosines; 0: 1 */
    double fast, slow; /* YaRN: rotations within the trained length at the ends of the ramp */
    bool exact_range;  /* YaRN: the ends of the ramp are not rounded to whole pairs */
    double low, high;  /* Llama 3: trained length / wavelength at the ends of the mixed band */
    bool interleaved;  /* pairs are 2i and 2i + 1; otherwise i and i + half */
} nn_rope;
/* x (B, T, H*D), positions (B, T) i32 -> the same shape. */
by_tensor *nn_rotary(by_graph *g, by_tensor *x, by_tensor *positions, int head_dim, const nn_rope *rope);

/* Attention with its projections: self-, cross- and cached attention. `op` is the spec of the op itself
 * (banyan/graph.h): heads, key/value heads, masks, patterns, biases, dropout, weights. Names are relative to
 * the scope `name`. */
typedef struct nn_attention_spec nn_attention_spec;
/* Records the scores of self-attention, for losses that compare them with those of another model: of all
 * nn_attention() calls in this thread between begin and end, first layer first. */
enum { NN_SCORES_MAX = 256 };
typedef struct nn_scores {
    int count;
    by_tensor *scores[NN_SCORES_MAX]; /* (B, H, T, T), without masks and biases */
    by_tensor *values[NN_SCORES_MAX]; /* (B, H, T, D) */
} nn_scores;
void nn_scores_begin(nn_scores *s);
void nn_scores_end(void);

/* The computation between the projections: q (B, T, H*D), k and v (B, S, Hkv*D) -> (B, T, H*D). x is the
 * input of the projection of q. */
typedef by_tensor *(*nn_attend)(by_graph *g, const nn_attention_spec *spec, by_tensor *x, by_tensor *q,
                                by_tensor *k, by_tensor *v);
struct nn_attention_spec {
    by_attention_spec op;
    /* packed projection of queries, keys and values; NULL: separate projections */
    const char *qkv;
    /* packed projection of keys and values; NULL: separate projections */
    const char *kv;
    const char *query, *key, *value, *out; /* separate projections; `out` is that of the result */
    int64_t inner;                         /* heads * head width; 0: the width of x */
    bool conv1d, no_bias, no_out_bias;     /* standard deviation of the first three, and of `out` */
    float std, query_std, out_std;         /* initial values; 0: as std says */
    by_cache *cache;                       /* decoding, or NULL */
    int layer;                             /* index of the layer in the cache */
    const nn_rope *rope;                   /* rotary positions of queries and keys, or NULL */
    by_tensor *positions;                  /* (B, T) i32, for `rope` */
    /* NULL: the op. Otherwise projections are separate and there is no cache */
    nn_attend attend;
    const void *user; /* for attend */
};
/* from: the source of keys and values, x itself or the output of an encoder. NULL: nn_attention_keep has
 * stored them in the cache. name NULL (in both functions): the current scope. */
by_tensor *nn_attention(by_graph *g, const char *name, by_tensor *x, by_tensor *from,
                        const nn_attention_spec *spec);
void nn_attention_keep(by_graph *g, const char *name, by_tensor *memory, const nn_attention_spec *spec);

/* Relative attention (Dai et al. 2019). For the query at position p and the key at s:
 *
 *      score = scale ((q + u).k + (q + v).r[s - p])
 *
 * q (B, T, H*D), k and v (B, S, H*D) are already projected. Row i of `distances` is r of s - p = i - zero;
 * larger distances use the row at that end. The second term is a tensor (B, H, T, L) of q's type. With
 * `chunk` it exists for that many queries at a time, and the backward pass recomputes it. */
typedef struct nn_chunk {
    int64_t query, queries; /* the first query and their number, */
    int64_t key, keys;      /* the same of the keys */
} nn_chunk;
typedef struct nn_relative_spec {
    by_attention_spec op;          /* relative and relative_zero are set by this function */
    by_tensor *content, *position; /* u and v, (H, D) or (H*D); NULL: 0 */
    by_tensor *distances;          /* (L, H*D) or (B, L, H*D), projected */
    int zero;
    int64_t chunk; /* queries at a time; 0: all */
    /* Sets pair_mask and bias of op for these queries, q (B, queries, H*D), and keys. NULL: none */
    void (*pairs)(by_graph *g, const void *user, const nn_chunk *at, by_tensor *q, by_attention_spec *op);
    const void *user; /* argument of `pairs`; must stay valid until by_compile() returns */
    by_cache *cache;  /* decoding, or NULL */
    int layer;
} nn_relative_spec;
by_tensor *nn_relative_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                 const nn_relative_spec *spec);
/* The chunk size for B * H heads, T queries and L distances: all queries up to 2^22 pairs, so that usual
 * lengths are not split; otherwise a 16th, or less if a term of one chunk would have more than 2^30 entries.
 * The environment variable BANYAN_RELATIVE_CHUNK overrides it, for tests with short texts. */
int64_t nn_relative_chunk(int64_t heads, int64_t queries, int64_t distances);
/* (length, width): row i has the sines, then the cosines, of the distance p - s = zero - i. */
by_tensor *nn_distances(by_graph *g, int64_t length, int zero, int64_t width, by_dtype type);

/* Feed-forward block: x -> act(x W1 + b1) W2 + b2. With a gate (Shazeer 2020): x -> (act(x Wg + bg) * (x W1 +
 * b1)) W2 + b2. name NULL: the current scope. */
typedef struct nn_mlp_spec {
    const char *in, *out;
    const char *gate; /* NULL: none */
    int64_t inner;
    by_act act;
    bool conv1d, no_bias;
    float dropout; /* before the second matrix */
    float std, out_std;
} nn_mlp_spec;
by_tensor *nn_mlp(by_graph *g, const char *name, by_tensor *x, const nn_mlp_spec *spec);

/* A post-norm encoder layer: self-attention and feed-forward, each with a residual sum followed by a norm
 * (Vaswani et al. 2017). A decoder layer has cross-attention between the two, also followed by a residual sum
 * and a norm. Names are relative to the current scope. */
typedef struct nn_encoder_spec {
    nn_attention_spec attention;
    const char *norm1, *wide, *narrow, *norm2; /* after attention; the feed-forward block, and after it */
    int64_t inner;                             /* of the feed-forward block */
    by_act act;
    float eps, std;
    float drop1, drop2; /* before the sums */
    nn_attention_spec cross;
    const char *cross_norm; /* NULL: no cross-attention */
    by_tensor *memory;      /* encoder output; NULL: it is in the cache */
} nn_encoder_spec;
by_tensor *nn_encoder_block(by_graph *g, by_tensor *x, const nn_encoder_spec *spec);

/* Patch embedding: pixels (B, Ch, H, W) -> (B, N, C), N = H/patch * W/patch in row-major order. The weight
 * has the layout of a convolution, (C, Ch, patch, patch). */
typedef struct nn_patch_spec {
    int64_t width; /* C */
    int patch;
    bool no_bias;
    float std;
} nn_patch_spec;
by_tensor *nn_patches(by_graph *g, const char *name, by_tensor *pixels, const nn_patch_spec *spec);
/* Prepends `count` tokens of C elements, at most 4: (B, N, C) -> (B, count + N, C). */
by_tensor *nn_prepend(by_graph *g, by_tensor *x, by_tensor *const *tokens, int count);
/* Interpolates positions to another grid of patches: table (K + rows cols, C), of K tokens and a grid -> (K +
 * to_rows to_cols, C). The grid is resized bicubically; the tokens are unchanged. */
by_tensor *nn_stretch(by_graph *g, by_tensor *table, int64_t tokens, int64_t rows, int64_t cols,
                      int64_t to_rows, int64_t to_cols);
/* Stochastic depth (Huang et al. 2016): in training, x of a whole example (B, T, C) is 0 with probability p
 * and divided by 1 - p otherwise. */
by_tensor *nn_drop_path(by_graph *g, by_tensor *x, float p);

/* x (B, T, C) with zeros where mask (B, T) is 0. */
by_tensor *nn_hide(by_graph *g, by_tensor *x, by_tensor *mask);

/* The first position: (B, T, C) -> (B, C). */
by_tensor *nn_first(by_graph *g, by_tensor *x);

/* Rows of (B, T, C) by flat index b*T + t: (B) i32 -> (B, C). */
by_tensor *nn_pick(by_graph *g, by_tensor *x, by_tensor *rows);

/* Concatenates any number of tensors. Overwrites the list. */
by_tensor *nn_concat(by_graph *g, by_tensor **parts, int count, int axis);

#endif
