/* graph.h - build a computation, differentiate it, compile it, run it.
 *
 * A model is a C function that runs top to bottom and *builds*: every by_* call below appends one node and
 * returns a tensor. Nothing is computed until by_compile() and by_run(). Errors are sticky: a call with bad
 * shapes, or with NULL for a required tensor, returns a poisoned tensor; later calls propagate it, and
 * by_compile() reports the first error with names and shapes.
 *
 * Shapes are PyTorch's: row-major, outermost first. Letters used in comments, here and in every model:
 *   B batch, T query positions, S key positions, C model width, H heads, D width of a head, V vocabulary */
#ifndef BANYAN_GRAPH_H
#define BANYAN_GRAPH_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_MAX_RANK 6

typedef struct by_device by_device;   /* where memory lives and kernels run */
typedef struct by_params by_params;   /* the flat list of named parameters with its flat buffers */
typedef struct by_graph by_graph;     /* a computation being built */
typedef struct by_tensor by_tensor;   /* a value in a graph; owned by the graph */
typedef struct by_program by_program; /* a compiled graph */

/* ---- devices --------------------------------------------------------------------------------- */

/* Opens a device by name: "cpu" (with `threads` threads, 0: all cores), "cpu:avx2" or another
 * instruction set, "cuda" or "cuda:1" for an NVIDIA GPU, or "auto" for a working GPU if there is one,
 * otherwise the CPU. "cuda+tf32" computes f32 products in TF32, "cuda+fp8" wide 16-bit linear layers in FP8.
 * A device must outlive the parameters and programs made on it. Returns NULL on failure. Freeing NULL is a
 * no-op, here and in the rest of the API. */
BY_API by_device *by_device_open(const char *name, int threads);
BY_API void by_device_free(by_device *d);
BY_API const char *by_device_name(const by_device *d);
BY_API const char *by_device_description(const by_device *d); /* "cpu: avx512bf16, oneDNN 2.6.3, 2 threads" */
BY_API int by_device_threads(const by_device *d);
/* Waits until the device has finished its work, and reports asynchronous errors. A GPU runs asynchronously;
 * by_read() waits for it too. */
BY_API by_status by_device_wait(by_device *d);
BY_API bool by_device_runs_ahead(const by_device *d); /* true if the device runs asynchronously */
/* Measures the FLOP/s of a 1000 x 1000 x 1000 matrix product, which takes a fraction of a second. NaN if it
 * cannot be measured. On a busy machine the result is below the peak. */
BY_API double by_device_peak(by_device *d, by_dtype type);
/* Measures the bytes per second, read plus written, of a large copy on the device. NaN if it cannot be
 * measured. */
BY_API double by_device_bandwidth(by_device *d);

/* ---- parameters ------------------------------------------------------------------------------ */

/* Initial values of a parameter. They depend only on (seed, name). */
typedef enum by_init_kind {
    BY_INIT_NORMAL,
    BY_INIT_ZERO,
    BY_INIT_ONE,
    BY_INIT_UNIFORM,
    BY_INIT_SINES,
    BY_INIT_CONSTANT
} by_init_kind;
typedef struct by_init {
    by_init_kind kind;
    /* standard deviation (for BY_INIT_ONE, around 1), half the width of the uniform interval, or the
     * constant */
    float scale;
} by_init;

/* Creates an empty list whose values will be stored as dtype (f32, bf16, f16 or f64) on the device. */
BY_API by_params *by_params_new(by_device *d, by_dtype dtype);
BY_API void by_params_free(by_params *p);

/* Graphs declare parameters as they are built. by_params_freeze() ends the declarations, lays out the flat
 * buffers and fixes every address; programs can be compiled only after it. with_training adds gradient,
 * moment and master buffers for the parameters that are not frozen at this point (by_params_set_rate). */
BY_API by_status by_params_freeze(by_params *p, bool with_training);
/* Before by_params_freeze(): trains bf16 values without f32 masters, which saves 4 bytes per element. Updates
 * are computed in f32 and rounded stochastically, so that they are unbiased. Other types are
 * BY_ERR_UNSUPPORTED. */
BY_API by_status by_params_without_masters(by_params *p);
/* Before by_params_freeze(): stores a declared parameter in another float type or in a block type. The row
 * length must be a multiple of the block (otherwise BY_ERR_UNSUPPORTED). Only weights of matrix products and
 * tables of by_gather() can be read from such storage, and in training the parameter must be frozen. */
BY_API by_status by_params_set_type(by_params *p, int i, by_dtype type);
BY_API by_status by_params_init(by_params *p, uint64_t seed); /* sets all initial values */

/* Number of parameters, of elements, and of elements with training buffers; element type. */
BY_API int by_params_count(const by_params *p);
BY_API int64_t by_params_elements(const by_params *p);
BY_API int64_t by_params_trained(const by_params *p);
BY_API by_dtype by_params_dtype(const by_params *p);
/* Bytes of all buffers, and of the values only. Alignment padding is not counted. */
BY_API size_t by_params_bytes(const by_params *p);
BY_API size_t by_params_value_bytes(const by_params *p);
BY_API int by_params_find(const by_params *p, const char *name); /* index or -1 */
/* Parameter i: storage type, name, rank and shape. */
BY_API by_dtype by_params_type(const by_params *p, int i);
BY_API const char *by_params_name(const by_params *p, int i);
BY_API int by_params_rank(const by_params *p, int i);
BY_API const int64_t *by_params_shape(const by_params *p, int i);

/* Copies a parameter, its gradient or an optimiser moment to or from host memory, as floats. */
typedef enum by_slot { BY_SLOT_VALUE, BY_SLOT_GRAD, BY_SLOT_MOMENT1, BY_SLOT_MOMENT2 } by_slot;
BY_API by_status by_params_get(const by_params *p, int i, by_slot slot, float *out);
BY_API by_status by_params_set(by_params *p, int i, by_slot slot, const float *values);
/* Sets the factor on the learning rate of a parameter. 0 freezes it, and its gradient is not computed. Call
 * this before the first update or pass is made. A parameter frozen before by_params_freeze() has no gradient,
 * moment or master and cannot be trained later (BY_ERR_ARGUMENT); by_model_spec.freeze does this for a model.
 * No effect on parameters declared with by_param_fixed(). */
BY_API by_status by_params_set_rate(by_params *p, int i, double scale);

/* ---- graphs ---------------------------------------------------------------------------------- */

typedef struct by_graph_spec {
    by_params *params; /* borrowed */
    bool training;     /* gradients can be computed, and dropout is active */
    bool no_dropout;   /* disables dropout in training */
} by_graph_spec;
/* Returns NULL if out of memory or if spec has no parameters. Building on a NULL graph is legal: every call
 * returns NULL, and by_compile() reports the first error. */
BY_API by_graph *by_graph_new(const by_graph_spec *spec);
BY_API void by_graph_free(by_graph *g);

/* Returns the first error so far, or BY_OK. The message is in by_error_message(). */
BY_API by_status by_graph_status(const by_graph *g);
/* Reports an error from model code and poisons the graph. Returns a poisoned tensor. */
BY_API by_tensor *by_graph_fail(by_graph *g, const char *fmt, ...) BY_PRINTF(2, 3);

/* Scopes prefix the names of parameters: push "h.%d" and "attn", then declare by_param "c_attn.weight". */
BY_API void by_scope_push(by_graph *g, const char *fmt, ...) BY_PRINTF(2, 3);
BY_API void by_scope_pop(by_graph *g);
/* A scope whose nodes form one block: recomputation drops and recomputes activations block by block. */
BY_API void by_block_push(by_graph *g, const char *fmt, ...) BY_PRINTF(2, 3);
BY_API void by_block_pop(by_graph *g);

/* Rank, size of an axis, number of elements, element type. */
BY_API int by_rank(const by_tensor *t);
BY_API int64_t by_dim(const by_tensor *t, int axis); /* negative: from the end; 0 if there is no such axis */
BY_API int64_t by_elements(const by_tensor *t);
BY_API by_dtype by_type(const by_tensor *t);
BY_API by_tensor *by_name(by_tensor *t, const char *fmt, ...) BY_PRINTF(2, 3); /* name in traces; returns t */

/* Leaves. shape holds rank entries. */
BY_API by_tensor *by_input(by_graph *g, const char *name, by_dtype type, int rank, const int64_t *shape);
BY_API by_tensor *by_param(by_graph *g, const char *name, int rank, const int64_t *shape, by_init init);
/* A parameter that is loaded and saved but never trained. */
BY_API by_tensor *by_param_fixed(by_graph *g, const char *name, int rank, const int64_t *shape, by_init init);
/* State persists across runs in the caller's memory (by_memory_new), so that several programs can share it. A
 * tensor built from a state sees the value at that point of the graph: the old value before a by_store(), the
 * new value after it, also in the backward pass. No gradient flows through a state. */
typedef struct by_memory by_memory;
BY_API by_memory *by_memory_new(by_device *d, size_t bytes); /* zeroed */
BY_API void by_memory_free(by_memory *m);
BY_API size_t by_memory_bytes(const by_memory *m); /* 0 for NULL */
/* Copies from the host or to the host; reading waits for a GPU. */
BY_API by_status by_memory_write(by_memory *m, size_t offset, const void *from, size_t bytes);
BY_API by_status by_memory_read(const by_memory *m, size_t offset, void *to, size_t bytes);
BY_API by_tensor *by_state(by_graph *g, const char *name, by_dtype type, int rank, const int64_t *shape,
                           by_memory *m);
BY_API by_tensor *by_fill(by_graph *g, by_dtype type, int rank, const int64_t *shape, double value);
/* i32: 0, 1, ... along the last axis, or first, first + 1, ... */
BY_API by_tensor *by_range(by_graph *g, int rank, const int64_t *shape);
BY_API by_tensor *by_range_from(by_graph *g, int rank, const int64_t *shape, int first);

/* Random numbers, normal with standard deviation `scale` or uniform in (-scale, scale). They are a function
 * of (seed, step, node, element): see by_program_seed(). */
typedef enum by_random_kind { BY_RANDOM_NORMAL, BY_RANDOM_UNIFORM } by_random_kind;
BY_API by_tensor *by_random(by_graph *g, by_random_kind kind, by_dtype type, int rank, const int64_t *shape,
                            double scale);

/* Relative position buckets, (length) i32: element i is the bucket of the distance i - zero. Bucket k holds
 * the distances from first[k] up to first[k + 1] of keys before the query. With `both`, keys after the query
 * have another `count` buckets of the same kind; otherwise they share bucket 0. */
enum { BY_MAX_BUCKETS = 128 };
BY_API by_tensor *by_buckets(by_graph *g, int64_t length, int64_t zero, bool both, int count,
                             const int *first);
/* Interpolation matrix (out, in): its product with a table of `in` rows gives `out` rows by cubic convolution
 * with a = -0.75 and repeated end rows, as in PyTorch's bicubic interpolation without aligned corners. */
BY_API by_tensor *by_interpolation(by_graph *g, int64_t out, int64_t in, by_dtype type);
/* Sinusoidal positions (Vaswani et al. 2017): positions (...) i32 -> (..., width), the sines of width/2
 * decreasing frequencies, then the cosines. */
BY_API by_tensor *by_sines(by_graph *g, by_tensor *positions, int64_t width, by_dtype type);
/* Copies x over the first elements of a state. Tensors built from the state afterwards read x. */
BY_API void by_store(by_graph *g, by_tensor *x, by_tensor *state);

/* ---- coarse operations ----------------------------------------------------------------------- */

typedef enum by_act {
    BY_ACT_NONE,
    BY_GELU,
    BY_GELU_TANH,
    BY_RELU,
    BY_SILU,
    BY_TANH,
    BY_SIGMOID,
    BY_ACT_FUSED = BY_SIGMOID, /* those up to here can be fused into a linear op */
    BY_QUICK_GELU,             /* x sigmoid(1.702 x) */
    BY_GELU_10,                /* GELU, clamped to [-10, 10] */
    BY_RELU2,                  /* the square of ReLU */
    BY_RELU6,                  /* min(ReLU, 6) */
    BY_LEAKY_RELU,             /* x, or x / 100 below zero */
    BY_HARD_SWISH,             /* x min(max(x + 3, 0), 6) / 6 */
    BY_MISH,                   /* x tanh(softplus(x)) */
    BY_LAPLACE,                /* normal distribution function, mean 0.707107, deviation 0.282095 */
    BY_SQRT_SOFTPLUS,
    BY_EXP,
    BY_LOG,
    BY_SQRT,
    BY_ACT_COUNT
} by_act;

/* Table lookup: table (V, C), ids (...) i32 -> (..., C). Ids outside [0, V) fail the run. */
BY_API by_tensor *by_gather(by_graph *g, by_tensor *table, by_tensor *ids);
/* As by_gather(), but the row of the padding token gets no gradient from this lookup. */
BY_API by_tensor *by_gather_padded(by_graph *g, by_tensor *table, by_tensor *ids, int padding);

/* Selects rows by index, separately for each batch entry: x (B.., N, C), ids (B.., K) i32 -> (B.., K, C). */
BY_API by_tensor *by_take(by_graph *g, by_tensor *x, by_tensor *ids);
/* The transpose of by_take(): adds rows y (B.., K, C) at indices ids (B.., K) of a zero tensor (B.., rows,
 * C). Every sum is taken in the order of K, on all devices. */
BY_API by_tensor *by_scatter_add(by_graph *g, by_tensor *y, by_tensor *ids, int64_t rows);

/* act(x w^T + b): x (..., K), w (N, K) -> (..., N); with w_is_kn, w is (K, N), the layout of GPT-2's Conv1D.
 * b (N) or NULL. */
typedef struct by_linear_spec {
    bool w_is_kn;
    by_act act;
} by_linear_spec;
BY_API by_tensor *by_linear(by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b,
                            const by_linear_spec *spec);

/* Batched matrix product: a (..., M, K) or transposed, b (..., K, N) or transposed -> (..., M, N). Leading
 * axes broadcast as in by_add(). */
BY_API by_tensor *by_matmul(by_graph *g, by_tensor *a, by_tensor *b, bool a_transposed, bool b_transposed);

/* Applies an activation function elementwise. */
BY_API by_tensor *by_activation(by_graph *g, by_tensor *x, by_act act);
BY_API by_tensor *by_dropout(by_graph *g, by_tensor *x, float p); /* the identity outside of training */

/* Over the last axis: (x - mean) / sqrt(var + eps) * gamma + beta. */
BY_API by_tensor *by_layernorm(by_graph *g, by_tensor *x, by_tensor *gamma, by_tensor *beta, float eps);
/* Over the last axis: x / sqrt(mean(x^2) + eps) * gamma. */
BY_API by_tensor *by_rmsnorm(by_graph *g, by_tensor *x, by_tensor *gamma, float eps);
BY_API by_tensor *by_softmax(by_graph *g, by_tensor *x); /* over the last axis */

/* Rotary position embedding (Su et al. 2021): in every head of x (B, T, H*D), pairs of elements are rotated
 * by the angle position * frequency. positions (T) or (B, T) i32. The result has the shape of x. */
enum { BY_MAX_ROTARY = 512 };
typedef struct by_rotary_spec {
    int head_dim;             /* D */
    int width;                /* rotate the first `width` elements of a head, an even number; 0: all */
    bool interleaved;         /* pairs are elements 2i and 2i + 1; otherwise i and i + width/2 */
    const float *frequencies; /* (width / 2), radians per position; copied */
    float factor;             /* on sines and cosines; 0: 1 */
    /* Dynamic NTK: if any position reaches `trained`, all frequencies become theta'^(-2i / width) with theta'
     * = theta (stretch S / trained - stretch + 1)^(width / (width - 2)), where S is the highest position plus
     * 1. 0: off */
    int trained;
    float theta, stretch;
} by_rotary_spec;
BY_API by_tensor *by_rotary(by_graph *g, by_tensor *x, by_tensor *positions, const by_rotary_spec *spec);

/* The keys s that the query at position p sees. First condition: all; s <= p; s <= p or s < prefix[b]. */
typedef enum by_mask { BY_MASK_NONE, BY_MASK_CAUSAL, BY_MASK_PREFIX } by_mask;

/* Second condition. Divisions round down. */
typedef enum by_pattern_kind {
    BY_PATTERN_FULL,
    BY_PATTERN_WINDOW,  /* -before <= s - p <= after */
    BY_PATTERN_BLOCKS,  /* -before <= s / length - p / length <= after */
    BY_PATTERN_STRIDED, /* |p - s| < length, or p - s is a multiple of length */
    BY_PATTERN_FIXED,   /* s / length == p / length, or s % length >= length - after */
    BY_PATTERN_SINKS,   /* -before <= s - p <= after, or s < length: a window plus sinks that all see */
    BY_PATTERN_MEMORY   /* s >= p / length * length - before: queries of a block share the keys before it */
} by_pattern_kind;
typedef struct by_pattern {
    by_pattern_kind kind;
    int length, before, after;
    /* STRIDED and FIXED. 0: both sets of keys, 1: only the first, 2: only the second, 3: the first for heads
     * below H / 2, the second for the others */
    int part;
} by_pattern;

/* softmax(q k^T * scale + biases, where a key is seen) v, per head. q (B, T, H*D), k and v (B, S, Hkv*D) ->
 * (B, T, H*D). With k = v = NULL, q is the packed projection (B, T, (H + 2 Hkv)*D): queries, keys, values
 * side by side. Query t has position p = t + S - T, so that the last query is at the last key. A key is seen
 * if mask, pattern, key mask and pair mask all allow it. docs/ATTENTION.md lists which models use which. */
typedef struct by_attention_spec {
    int heads;
    int kv_heads; /* 0: as many as heads; otherwise heads must be a multiple */
    by_mask mask;
    by_tensor *prefix; /* (B) i32, only with BY_MASK_PREFIX */
    by_pattern pattern;
    float scale;   /* 0: 1/sqrt(D) */
    float dropout; /* on the weights, in training */
    /* Optional tensors. Axes of 1 broadcast. */
    by_tensor *key_mask;  /* (B, S) i32, 0 masks a key for every query */
    by_tensor *pair_mask; /* (B or 1, H or 1, T or 1, S) i32 or u8, 0 masks a key for that query */
    /* n: entry (t / n, s / n) of the pair mask holds for query t and key s; T and S in its shape are divided
     * by n, rounded up. 0: 1 */
    int pair_block;
    by_tensor *bias;     /* (B or 1, H or 1, T or 1, S) of q's type: entry s is added to the score of key s */
    by_tensor *relative; /* (B or 1, H or 1, T or 1, L) of q's type: entry clamp(s - p + relative_zero, 0, */
    int relative_zero;   /* L - 1) is added to the score of key s for the query at position p */
    bool empty_zero;     /* a query that sees no key gives zeros; otherwise the mean of v */
    by_tensor **weights; /* if not NULL, receives the weights after softmax, (B, H, T, S) */
    /* only by_attention_cached: (B, n) i32, the pages of every row; NULL: page b. With n > 1, the page size
     * is a power of two from 16 to 256 */
    by_tensor *pages;
} by_attention_spec;
BY_API by_tensor *by_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                               const by_attention_spec *spec);

/* Causal attention of T new positions over a cache. Writes the new keys and values into k_cache, v_cache
 * (states of shape (pages, P, Hkv*D)) from position past[b] on; then each query attends to every position up
 * to its own. Position s of row b lies in page spec.pages[b][s / P], at s % P; without spec.pages, in page b,
 * at s. A row has room for M positions: P times the columns of spec.pages. past (B) i32; past + T must not
 * exceed M. Query t has position p = past[b] + t. The mask is causal, or BY_MASK_PREFIX, which also lets a
 * query see new keys after it. In the shapes of masks and bias, S is M. With past = NULL nothing is written:
 * q (B, T, H*D) attends to all M positions without a causal mask, as in by_attention(). No dropout, no
 * weights; inference only. */
BY_API by_tensor *by_attention_cached(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                      by_tensor *k_cache, by_tensor *v_cache, by_tensor *past,
                                      const by_attention_spec *spec);

/* Buckets of vectors by random rotations (Andoni et al. 2015): x (B, T, H*D), rotations (H, D, R, S) of x's
 * accumulation type -> (B, H, R, T) i32, one bucket per round. The number of buckets is the product of
 * `count` even factors, S half their sum: each factor is an argmax over [x r, -x r] of its own columns. Where
 * mask (B, T) i32 is 0, the bucket is the number of buckets, one past the last. mask may be NULL. */
enum { BY_MAX_FACTORS = 4 };
BY_API by_tensor *by_hash(by_graph *g, by_tensor *x, by_tensor *rotations, by_tensor *mask, int count,
                          const int *factors);

/* Attention within chunks of rows (Kitaev et al. 2020). Each of R rounds sorts the T rows of a head by
 * `order` and cuts them into N chunks of C. A row attends to its own chunk and to neighbouring chunks; the
 * chunks of all rounds form one ring. One softmax covers the scores of all rounds, so a key that a row meets
 * twice counts twice. q, k, v (B, T, H*D) -> (B, T, H*D). */
typedef struct by_chunked_spec {
    int heads;
    int chunk;         /* C, rows of a chunk */
    int before, after; /* neighbouring chunks that a row sees */
    /* rows of a round including the padding at its end: N C, at least T; 0: T, rounded up */
    int64_t length;
    bool causal;     /* mask keys of later rows than the query's */
    bool avoid_self; /* mask the query's own row unless everything else is masked */
    float scale;     /* 0: 1/sqrt(D) */
    float dropout;   /* on the weights, in training */
    /* Optional tensors. */
    by_tensor *order; /* (B, H, R, T) i32, a permutation of the rows per round; NULL: one round, unsorted */
    by_tensor *key_mask; /* (B, T) i32, 0 masks a key. A row that sees no key gives the mean of its chunks */
    /* if not NULL, receives the weights of each round in sorted order, (B, H, R N, C, (before + 1 + after)
     * C); 0 for padding rows */
    by_tensor **weights;
} by_chunked_spec;
BY_API by_tensor *by_chunked_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                       const by_chunked_spec *spec);

/* A recurrent layer over whole sequences. gates (B, T, G*H) is x W_ih^T + b_ih, computed for all positions at
 * once; w (G*H, H) and b (G*H) are W_hh and b_hh; b may be NULL -> y (B, T, H), the state h after each
 * position. Cells and order of gates are PyTorch's:
 *
 *   tanh, relu   G 1   h' = act(x + W h + b)
 *   LSTM         G 4   i f g o: c' = f c + i g, h' = o tanh(c')
 *   GRU          G 3   r z n: n = tanh(x_n + r (W_n h + b_n)), h' = (1 - z) n + z h
 *
 * Gradients flow from y and the last states to gates, w, b, h and c. */
typedef enum by_cell { BY_CELL_TANH, BY_CELL_RELU, BY_CELL_LSTM, BY_CELL_GRU } by_cell;
typedef struct by_recurrent_spec {
    by_cell cell;
    bool reverse; /* from the last position to the first */
    /* Optional tensors. */
    by_tensor *mask;              /* (B, T) i32: where 0, the state is unchanged and the output is 0 */
    by_tensor *h, *c;             /* (B, H): initial state (c: LSTM only); NULL: zeros */
    by_tensor **last_h, **last_c; /* (B, H): receive the state after the last position */
} by_recurrent_spec;
BY_API by_tensor *by_recurrent(by_graph *g, by_tensor *gates, by_tensor *w, by_tensor *b,
                               const by_recurrent_spec *spec);

/* Scores of additive attention (Bahdanau et al. 2015), v . tanh(q + k): q (B, T, A), k (B, S, A), v (A) ->
 * (B, T, S). Does not materialise (B, T, S, A). */
BY_API by_tensor *by_additive_scores(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v);

enum { BY_BEAMS_MAX = 64, BY_TOP_MAX = 128 }; /* limits of by_reorder's beams and by_top's k */

/* Reorders caches before a step of beam search: row b becomes a copy of the first past[b] positions of row
 * from[b]; both are (B) i32. Row b is stored in page pages[b] of the caches, states of shape (pages, M, C);
 * pages is (B, 1) i32 or NULL, which means page b. Rows form groups of `beams` (1 to BY_BEAMS_MAX) and copy
 * only within their group. */
BY_API void by_reorder(by_graph *g, by_tensor *k_cache, by_tensor *v_cache, by_tensor *from, by_tensor *past,
                       by_tensor *pages, int beams);

/* Ends a decoding step so that the program can be run again at once: copies next (B) i32 to tokens (with 0
 * for -1), increments positions (up to `last`) and past, and appends next to log (1 + M B), whose first
 * element counts the steps. All arguments except next are states. */
BY_API void by_advance(by_graph *g, by_tensor *next, by_tensor *tokens, by_tensor *positions, by_tensor *past,
                       by_tensor *log, int last);

/* Mean over rows of -log softmax(logits)[target], without the rows whose target is ignore_index (if none
 * remain, the loss is 0). logits (..., V), targets (...) i32 -> scalar f32 (f64 for f64). The gradient
 * overwrites the logits' memory. */
typedef struct by_loss_spec {
    int ignore_index; /* 0 means -100 */
    float label_smoothing;
    /* class weights, (V) f32 (f64 for f64), or NULL: the loss becomes the mean weighted by the class of the
     * target. Not with label smoothing */
    by_tensor *weights;
} by_loss_spec;
BY_API by_tensor *by_cross_entropy(by_graph *g, by_tensor *logits, by_tensor *targets,
                                   const by_loss_spec *spec);

/* Mean over the channels of pixels of -ln p(value) under a discretised mixture of K logistics (Salimans et
 * al. 2017). Values are 0 ... 255. targets (..., C) i32; pixels with a target of -100 do not count. logits
 * (..., N), C = 1: N = 3 K: K mixture logits, K means, K log scales. C = 3: N = 10 K: K mixture logits, then
 * for each channel K means, K log scales and K coefficients r, g, b: with values scaled to [-1, 1], tanh(r)
 * x_0 is added to the mean of the second channel and tanh(g) x_0 + tanh(b) x_1 to that of the third. ->
 * scalar f32 (f64 for f64). each, unless NULL, receives the nats of each pixel, without a gradient. */
BY_API by_tensor *by_logistic_mixture(by_graph *g, by_tensor *logits, by_tensor *targets, int channels,
                                      by_tensor **each);

/* Log-probabilities of tokens: logits (..., V), targets (...) i32 -> (...) f32 (f64 for f64), the logarithm
 * of softmax(scale logits)[target]; 0 where the target is -100. scale is 1 / temperature; 0: 1. Probabilities
 * are not materialised, and the gradient overwrites the logits' memory. entropy, unless NULL, receives the
 * entropy of every row, (...), without a gradient. */
BY_API by_tensor *by_log_probs(by_graph *g, by_tensor *logits, by_tensor *targets, double scale,
                               by_tensor **entropy);
/* Kullback-Leibler divergence KL(softmax(scale teacher) || softmax(scale logits)): both (..., V) and of one
 * type -> (...) f32. The gradient flows to the logits; the teacher must not require one (by_detach). */
BY_API by_tensor *by_kl_divergence(by_graph *g, by_tensor *logits, by_tensor *teacher, double scale);

/* ---- small operations ------------------------------------------------------------------------ */

/* Elementwise, with broadcasting as in NumPy: shapes are aligned at the last axis, and axes that are 1 or
 * missing repeat. (B, T, 1, C) and (B, 1, S, C) give (B, T, S, C). Gradients are summed over broadcast
 * axes. */
BY_API by_tensor *by_add(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_sub(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_mul(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_div(by_graph *g, by_tensor *a, by_tensor *b);
/* The larger, the smaller of two; NaN if either is NaN. The gradient flows to the selected one, a if they are
 * equal. */
BY_API by_tensor *by_maximum(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_minimum(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_clamp(by_graph *g, by_tensor *x, double low, double high);
/* a where the mask (i32, u8 or bool) is not 0, otherwise b. All three broadcast. */
BY_API by_tensor *by_where(by_graph *g, by_tensor *mask, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_scale(by_graph *g, by_tensor *x, double factor);
BY_API by_tensor *by_sum(by_graph *g, by_tensor *x, int axis); /* the axis disappears */
BY_API by_tensor *by_mean(by_graph *g, by_tensor *x, int axis);
BY_API by_tensor *by_reshape(by_graph *g, by_tensor *x, int rank,
                             const int64_t *shape); /* a view; one -1 allowed */
/* A view through which no gradient flows. */
BY_API by_tensor *by_detach(by_graph *g, by_tensor *x);
BY_API by_tensor *by_permute_axes(by_graph *g, by_tensor *x, const int *order);
BY_API by_tensor *by_slice(by_graph *g, by_tensor *x, int axis, int64_t start, int64_t count);
BY_API by_tensor *by_concat(by_graph *g, by_tensor *const *parts, int count, int axis);
BY_API by_tensor *by_cast(by_graph *g, by_tensor *x, by_dtype type);
/* Indices that sort the last axis in ascending or descending order, i32. Stable. NaN compares greater than
 * any number. Takes floats and i32. */
BY_API by_tensor *by_argsort(by_graph *g, by_tensor *x, bool descending);
/* The sorted elements. order, unless NULL, receives the indices. The gradient follows the elements. */
BY_API by_tensor *by_sort(by_graph *g, by_tensor *x, bool descending, by_tensor **order);
/* The k largest elements of the last axis in descending order, (..., k). ids, unless NULL, receives their
 * indices, i32. The gradient flows to the selected elements. */
BY_API by_tensor *by_top_k(by_graph *g, by_tensor *x, int64_t k, by_tensor **ids);
BY_API by_tensor *by_argmax(by_graph *g, by_tensor *x); /* over the last axis, i32; the first of equals */
/* Samples an index of the last axis of logits (R, N), i32, with probabilities softmax(logits / temperature).
 * temperature (R) is f32 and positive. draws (R, 5) i32 is a state: low and high word of a seed, low and high
 * word of a stream number, and a counter that each run increments. On one device the result depends only on
 * these and on the logits; another device may round a sum differently. The result is -1 if a logit is NaN or
 * +infinity or all are -infinity. */
BY_API by_tensor *by_draw(by_graph *g, by_tensor *logits, by_tensor *temperature, by_tensor *draws);
/* The k (1 to BY_TOP_MAX) highest logits of every row of (B, V) in descending order, ties in order of id: (B,
 * k) f32, with their ids (B, k) i32 and the log-sum-exp of the whole row, lse (B) f32. */
BY_API by_tensor *by_top(by_graph *g, by_tensor *logits, int k, by_tensor **ids, by_tensor **lse);

/* ---- custom gradients ------------------------------------------------------------------------- */

/* A block whose gradient the caller builds. forward builds the outputs from the inputs. backward receives the
 * outputs and their gradients and builds the gradients of the inputs (NULL: none), using by_vjp() for
 * derivatives. No activation inside the block is kept for it. It may also return the inputs in `again`,
 * recomputed from the outputs: the preceding block then starts from these, and not even the outputs of blocks
 * are kept. Reversible layers use this. */
typedef struct by_custom_spec {
    void (*forward)(by_graph *g, void *user, by_tensor *const *in, by_tensor **out);
    void (*backward)(by_graph *g, void *user, by_tensor *const *out, by_tensor *const *dout, by_tensor **din,
                     by_tensor **again);
    void *user; /* must stay valid until by_compile() returns */
} by_custom_spec;
/* Stores n_out tensors in out. Besides inputs and parameters, the block may read only tensors built before
 * it. */
BY_API void by_block_custom(by_graph *g, const by_custom_spec *spec, by_tensor *const *in, int n_in,
                            by_tensor **out, int n_out);
/* For use in backward: builds y = fn(x) again and, from dy, the gradient of x, stored in *dx (NULL: none).
 * Gradients of the parameters that fn uses are accumulated. Dropout has the same masks as in the forward pass
 * if fn builds the same nodes under the same scopes. Returns y. */
typedef by_tensor *(*by_function)(by_graph *g, void *user, by_tensor *x);
BY_API by_tensor *by_vjp(by_graph *g, by_function fn, void *user, by_tensor *x, by_tensor *dy,
                         by_tensor **dx);

/* ---- compile and run ------------------------------------------------------------------------- */

/* Keeps a tensor readable after the run. Returns t. */
BY_API by_tensor *by_output(by_graph *g, const char *name, by_tensor *t);

typedef enum by_grad_mode { BY_GRAD_NONE, BY_GRAD_STORE, BY_GRAD_ADD } by_grad_mode;
typedef struct by_compile_spec {
    by_tensor *loss;       /* scalar to differentiate, or NULL */
    by_grad_mode grads;    /* overwrite the flat gradient buffer, or add to it */
    by_tensor *loss_scale; /* scalar tensor the loss is multiplied by before differentiation, NULL for 1 */
    bool recompute; /* keep only the inputs of each block and recompute the rest in the backward pass */
    bool no_fusion; /* for tests */
    /* activation memory to share with programs that never run at the same time. The first program allocates
     * it, later ones that fit use it. The caller frees it after the programs. NULL: the program has its own
     */
    by_memory **memory;
} by_compile_spec;

/* Differentiates, fuses, recomputes, orders, plans memory and prepares kernels. Takes ownership of the graph,
 * also on failure (NULL): do not free it. A NULL spec means all zeros. */
BY_API by_program *by_compile(by_graph *g, const by_compile_spec *spec);
BY_API void by_program_free(by_program *p);

BY_API size_t by_program_bytes(const by_program *p); /* planned peak of activation memory */
BY_API double by_program_flops(const by_program *p); /* of one run; a multiply-add counts as two */

/* Copies host memory into an input, or an input, output or state to the host. bytes must be the tensor's
 * size. */
BY_API by_status by_write(by_program *p, by_tensor *t, const void *data, size_t bytes);
BY_API by_status by_read(by_program *p, const by_tensor *t, void *data, size_t bytes);
/* Reads a tensor of any type as floats. */
BY_API by_status by_read_f32(by_program *p, const by_tensor *t, float *out);
/* Reads one row (the last axis) as floats. */
BY_API by_status by_read_row(by_program *p, const by_tensor *t, int64_t row, float *out);

/* Copies a readable tensor into memory on the device, without waiting. */
BY_API by_status by_keep(by_program *p, const by_tensor *t, by_memory *m, size_t offset);

/* Sets the key (seed, step) of the next run's random numbers. */
BY_API void by_program_seed(by_program *p, uint64_t seed, uint64_t step);
BY_API by_status by_run(by_program *p);

/* Returns the compiled graph as text, one line per node, or as Graphviz DOT. Free it with
 * by_string_free(). */
BY_API char *by_program_text(const by_program *p, bool dot);
BY_API void by_string_free(char *s);

/* Called after every node of a run, in order. */
typedef struct by_trace_entry {
    int index;
    const char *op, *name, *shape; /* of the first output */
    double norm;                   /* of the first output, 2-norm */
    int64_t first_bad;             /* index of the first NaN or infinity, or -1 */
    double seconds, flops, bytes;
} by_trace_entry;
typedef void (*by_trace_fn)(void *user, const by_trace_entry *entry);
BY_API void by_program_trace(by_program *p, by_trace_fn fn, void *user);
/* As by_program_trace(), for times only: nothing is read, norm is NaN, and a GPU is not synchronised between
 * nodes. */
BY_API void by_program_time(by_program *p, by_trace_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
