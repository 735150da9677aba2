/* nn.h - blocks that models share. Graph code only: each function declares its parameters under a scope and
 * returns what it computes. Spec structs are filled with designated initialisers; zero means default. */
#ifndef BY_NN_NN_H
#define BY_NN_NN_H

#include "banyan/graph.h"

typedef struct by_cache by_cache;         /* the keys and values that a decoding graph sees: cache.h */
int64_t nn_cache_room(const by_cache *c); /* M: positions that a row has room for */

/* How a weight matrix is stored, begun and followed. */
typedef struct nn_linear_spec {
    int64_t out;
    bool conv1d; /* stored (in, out), as GPT and GPT-2 do */
    bool no_bias;
    by_act act;
    float std; /* of the initial normal distribution; 0: Glorot's, by the matrix's sides */
} nn_linear_spec;

by_tensor *nn_embedding(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                        float std);
/* The same where one row belongs to padding and learns nothing from being looked up. */
by_tensor *nn_embedding_padded(by_graph *g, const char *name, by_tensor *ids, int64_t rows, int64_t width,
                               float std, int padding);
/* A table of positions that begins with random numbers or with sines and cosines (2017). */
by_tensor *nn_positions(by_graph *g, const char *name, by_tensor *positions, int64_t rows, int64_t width,
                        float std, bool sines);
/* Segments (B, T) -> (B, T, C); of NULL, which is all zeros, the first row (C) alone. */
by_tensor *nn_segments(by_graph *g, const char *name, by_tensor *segments, int64_t rows, int64_t width,
                       float std);
by_tensor *nn_linear(by_graph *g, const char *name, by_tensor *x, const nn_linear_spec *spec);
by_tensor *nn_layernorm(by_graph *g, const char *name, by_tensor *x, float eps);
by_tensor *nn_rmsnorm(by_graph *g, const char *name, by_tensor *x, float eps);

/* Rotary positions (Su et al. 2021) and the published ways to stretch them over longer texts. */
typedef enum nn_rope_kind {
    NN_ROPE_DEFAULT,
    NN_ROPE_LINEAR,  /* positions divided by the factor */
    NN_ROPE_DYNAMIC, /* theta grows with the text once it is longer than the trained length */
    NN_ROPE_YARN,
    NN_ROPE_LLAMA3
} nn_rope_kind;
typedef struct nn_rope {
    nn_rope_kind kind;
    double theta, factor;
    double partial;    /* share of a head that turns; 0: all of it */
    int trained;       /* length, in positions; all kinds but the first two */
    double attention;  /* YaRN's factor of sines and cosines; 0: 1 */
    double fast, slow; /* YaRN: rotations within the trained length at the ends of the ramp */
    bool exact_range;  /* YaRN: the ends of the ramp are not rounded to whole pairs */
    double low, high;  /* Llama 3: trained length by wavelength at the ends of the mixed band */
    bool interleaved;  /* pairs are 2i and 2i + 1; otherwise i and i + half */
} nn_rope;
/* x (B, T, H*D), positions (B, T) i32 -> the same shape. */
by_tensor *nn_rotary(by_graph *g, by_tensor *x, by_tensor *positions, int head_dim, const nn_rope *rope);

/* Attention with its projections: self-, cross- and cached attention. `op` has the properties of the op
 * itself (banyan/graph.h): heads, key/value heads, masks, patterns, biases, dropout, weights. Names are
 * relative to the scope `name`. */
typedef struct nn_attention_spec nn_attention_spec;
/* What stands between the projections: q (B, T, H*D), k and v (B, S, Hkv*D) -> (B, T, H*D). x is what q was
 * projected from. */
typedef by_tensor *(*nn_attend)(by_graph *g, const nn_attention_spec *spec, by_tensor *x, by_tensor *q,
                                by_tensor *k, by_tensor *v);
struct nn_attention_spec {
    by_attention_spec op;
    const char *qkv;                       /* one projection for queries, keys and values; NULL: one each */
    const char *query, *key, *value, *out; /* projections; `out` is of the result */
    int64_t inner;                         /* heads times the width of one; 0: the width of x */
    bool conv1d, no_bias, no_out_bias;     /* of the first three, and of the result */
    float std, query_std, out_std;         /* initial values; 0: as std says */
    by_cache *cache;                       /* decoding, or NULL */
    int layer;                             /* which pair of the cache */
    const nn_rope *rope;                   /* rotary positions of queries and keys, or NULL */
    by_tensor *positions;                  /* (B, T) i32, for them */
    nn_attend attend;                      /* NULL: the op; else there is one projection each, and no cache */
    const void *user;                      /* for attend */
};
/* from: the source of keys and values: x itself, or the output of an encoder. NULL: they are in the cache,
 * where nn_attention_keep has put them. name NULL: the present scope. */
by_tensor *nn_attention(by_graph *g, const char *name, by_tensor *x, by_tensor *from,
                        const nn_attention_spec *spec);
void nn_attention_keep(by_graph *g, const char *name, by_tensor *memory, const nn_attention_spec *spec);

/* Attention by content and distance (Dai et al. 2019). For the query at position p and the key at s:
 *
 *      score = scale ((q + u).k + (q + v).r[s - p])
 *
 * q (B, T, H*D), k and v (B, S, H*D) are projected. Row i of `distances` is r of s - p = i - zero; farther distances
 * share the row at that end. The second term is a tensor (B, H, T, L) of q's type. */
typedef struct nn_relative_spec {
    by_attention_spec op;          /* its members relative and relative_zero are set here */
    by_tensor *content, *position; /* u and v, (H, D) or (H*D); NULL: 0 */
    by_tensor *distances;          /* (L, H*D), projected */
    int zero;
    by_cache *cache; /* decoding, or NULL */
    int layer;
} nn_relative_spec;
by_tensor *nn_relative_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                 const nn_relative_spec *spec);
/* (length, width): row i has the sines, then the cosines, of the distance p - s = zero - i. */
by_tensor *nn_distances(by_graph *g, int64_t length, int zero, int64_t width, by_dtype type);

/* Two matrices with an activation between them: x -> act(x W1 + b1) W2 + b2. With a gate (Shazeer 2020) the
 * activation is the gate's: x -> (act(x Wg + bg) * (x W1 + b1)) W2 + b2. name NULL: the present scope. */
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

/* A block of the encoders: self-attention and feed-forward, each followed by the sum with its input and a
 * norm (post-norm, as in 2017). Names are relative to the present scope. */
typedef struct nn_encoder_spec {
    nn_attention_spec attention;
    const char *norm1, *wide, *narrow, *norm2; /* after attention; the feed-forward block, and after it */
    int64_t inner;                             /* of the feed-forward block */
    by_act act;
    float eps, std;
    float drop1, drop2; /* before the sums */
} nn_encoder_spec;
by_tensor *nn_encoder_block(by_graph *g, by_tensor *x, const nn_encoder_spec *spec);

/* x (B, T, C) with zeros where mask (B, T) is 0. */
by_tensor *nn_hide(by_graph *g, by_tensor *x, by_tensor *mask);

/* The first position: (B, T, C) -> (B, C). */
by_tensor *nn_first(by_graph *g, by_tensor *x);

/* Rows of (B, T, C) by flat index b*T + t: (B) i32 -> (B, C). */
by_tensor *nn_pick(by_graph *g, by_tensor *x, by_tensor *rows);

#endif
