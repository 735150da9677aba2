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
/* Self-attention before its softmax, for losses that compare it with that of another model: what nn_attention() builds in this thread
 * between begin and end, the first layer first. */
enum { NN_SCORES_MAX = 256 };
typedef struct nn_scores {
    int count;
    by_tensor *scores[NN_SCORES_MAX]; /* (B, H, T, T), without masks and biases */
    by_tensor *values[NN_SCORES_MAX]; /* (B, H, T, D) */
} nn_scores;
void nn_scores_begin(nn_scores *s);
void nn_scores_end(void);

/* What stands between the projections: q (B, T, H*D), k and v (B, S, Hkv*D) -> (B, T, H*D). x is what q was
 * projected from. */
typedef by_tensor *(*nn_attend)(by_graph *g, const nn_attention_spec *spec, by_tensor *x, by_tensor *q,
                                by_tensor *k, by_tensor *v);
struct nn_attention_spec {
    by_attention_spec op;
    const char *qkv;                       /* one projection for queries, keys and values; NULL: one each */
    const char *kv;                        /* one for keys and values; NULL: one each */
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
 * where nn_attention_keep has put them. name NULL: the present scope; of both. */
by_tensor *nn_attention(by_graph *g, const char *name, by_tensor *x, by_tensor *from,
                        const nn_attention_spec *spec);
void nn_attention_keep(by_graph *g, const char *name, by_tensor *memory, const nn_attention_spec *spec);

/* Attention by content and distance (Dai et al. 2019). For the query at position p and the key at s:
 *
 *      score = scale ((q + u).k + (q + v).r[s - p])
 *
 * q (B, T, H*D), k and v (B, S, H*D) are projected. Row i of `distances` is r of s - p = i - zero; farther distances
 * share the row at that end. The second term is a tensor (B, H, T, L) of q's type. With `chunk` it exists for that
 * many queries at a time, and the backward pass computes it once more. */
typedef struct nn_chunk {
    int64_t query, queries; /* the first query and their number, */
    int64_t key, keys;      /* the same of the keys */
} nn_chunk;
typedef struct nn_relative_spec {
    by_attention_spec op;          /* its members relative and relative_zero are set here */
    by_tensor *content, *position; /* u and v, (H, D) or (H*D); NULL: 0 */
    by_tensor *distances;          /* (L, H*D) or (B, L, H*D), projected */
    int zero;
    int64_t chunk; /* queries at a time; 0: all */
    /* Adds to op what belongs to pairs of these queries, q (B, queries, H*D), and keys: pair_mask and bias. NULL: none */
    void (*pairs)(by_graph *g, const void *user, const nn_chunk *at, by_tensor *q, by_attention_spec *op);
    const void *user; /* for pairs; until by_compile() returns */
    by_cache *cache;  /* decoding, or NULL */
    int layer;
} nn_relative_spec;
by_tensor *nn_relative_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                 const nn_relative_spec *spec);
/* The chunk for B * H heads, T queries and L distances: all queries up to 2^22 pairs, which keeps usual lengths in one
 * piece; else the 16th part, and less where a term of one chunk would have more than 2^30 entries. The environment
 * variable BANYAN_RELATIVE_CHUNK overrides it, for tests with short texts. */
int64_t nn_relative_chunk(int64_t heads, int64_t queries, int64_t distances);
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
 * norm (post-norm, as in 2017). A decoder's block attends to an encoder's output between the two, with a norm after the sum
 * again. Names are relative to the present scope. */
typedef struct nn_encoder_spec {
    nn_attention_spec attention;
    const char *norm1, *wide, *narrow, *norm2; /* after attention; the feed-forward block, and after it */
    int64_t inner;                             /* of the feed-forward block */
    by_act act;
    float eps, std;
    float drop1, drop2; /* before the sums */
    nn_attention_spec cross;
    const char *cross_norm; /* NULL: there is no cross-attention */
    by_tensor *memory;      /* for it; NULL: it is in the cache */
} nn_encoder_spec;
by_tensor *nn_encoder_block(by_graph *g, by_tensor *x, const nn_encoder_spec *spec);

/* A linear map of the patches of pictures: pixels (B, Ch, H, W) -> (B, N, C), N = H/patch * W/patch, row by row. The weight is that
 * of a convolution, (C, Ch, patch, patch). */
typedef struct nn_patch_spec {
    int64_t width; /* C */
    int patch;
    bool no_bias;
    float std;
} nn_patch_spec;
by_tensor *nn_patches(by_graph *g, const char *name, by_tensor *pixels, const nn_patch_spec *spec);
/* `count` tokens, up to 4 of C elements each, before the positions of x: (B, N, C) -> (B, count + N, C). */
by_tensor *nn_prepend(by_graph *g, by_tensor *x, by_tensor *const *tokens, int count);
/* Positions for another grid of patches. table (K + rows cols, C), of K tokens and a grid -> (K + to_rows to_cols, C): bicubic
 * interpolation of the grid; the tokens stay as they are. */
by_tensor *nn_stretch(by_graph *g, by_tensor *table, int64_t tokens, int64_t rows, int64_t cols,
                      int64_t to_rows, int64_t to_cols);
/* Stochastic depth (Huang et al. 2016): in training, x of a whole example (B, T, C) is 0 with probability p and divided by
 * 1 - p otherwise. */
by_tensor *nn_drop_path(by_graph *g, by_tensor *x, float p);

/* x (B, T, C) with zeros where mask (B, T) is 0. */
by_tensor *nn_hide(by_graph *g, by_tensor *x, by_tensor *mask);

/* The first position: (B, T, C) -> (B, C). */
by_tensor *nn_first(by_graph *g, by_tensor *x);

/* Rows of (B, T, C) by flat index b*T + t: (B) i32 -> (B, C). */
by_tensor *nn_pick(by_graph *g, by_tensor *x, by_tensor *rows);

/* Any number of tensors one after the other. Overwrites the list. */
by_tensor *nn_concat(by_graph *g, by_tensor **parts, int count, int axis);

#endif
