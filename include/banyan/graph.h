/* graph.h - build a computation, differentiate it, compile it, run it.
 *
 * A model is a C function that runs top to bottom and *builds*: every by_* call below appends one node and
 * returns a tensor. Nothing is computed until by_compile() and by_run(). Errors are sticky: a call with bad
 * shapes, or with NULL where a tensor must be, returns a poisoned tensor, later calls pass it on, and
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

/* Open "cpu" (threads > 0, or 0 for every core), "cpu:avx2" and so on for a given instruction set, "cuda"
 * or "cuda:1" for an NVIDIA GPU ("cuda+tf32": products of f32 in TF32; "cuda+fp8": wide linear layers of 16
 * bits in FP8), or "auto": a GPU where there is one that works. Devices outlive the parameters and programs
 * made on them. NULL on failure; free(NULL) is legal here and everywhere below. */
BY_API by_device *by_device_open(const char *name, int threads);
BY_API void by_device_free(by_device *d);
BY_API const char *by_device_name(const by_device *d);
BY_API const char *by_device_description(const by_device *d); /* "cpu: avx512bf16, oneDNN 2.6.3, 2 threads" */
BY_API int by_device_threads(const by_device *d);
/* A GPU works while the host goes on; by_read() waits for it. This waits too, and reports what went wrong. */
BY_API by_status by_device_wait(by_device *d);
BY_API bool by_device_runs_ahead(const by_device *d); /* whether it does work on while the host goes on */
/* FLOP/s of a matrix product of a thousand cubed, measured now (a fraction of a second); NaN when it cannot
 * be measured. A machine that is busy with something else shows less than it can do. */
BY_API double by_device_peak(by_device *d, by_dtype type);
/* Bytes per second, read and written, of a large copy on the device; NaN when it cannot be measured. */
BY_API double by_device_bandwidth(by_device *d);

/* ---- parameters ------------------------------------------------------------------------------ */

/* How a parameter starts its life. Values depend on (seed, name) alone. */
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
    float scale; /* standard deviation (of BY_INIT_ONE: around 1), half the width of the uniform interval, or the constant */
} by_init;

/* An empty list whose values will be stored as dtype (f32, bf16, f16, f64) on the device. */
BY_API by_params *by_params_new(by_device *d, by_dtype dtype);
BY_API void by_params_free(by_params *p);

/* Graphs declare parameters as they are built; freeze() ends that, lays the flat buffers out and fixes every
 * address. Programs can be compiled only after it. with_training adds the gradient, moment and master
 * buffers: for what is trained by then, by_params_set_rate. */
BY_API by_status by_params_freeze(by_params *p, bool with_training);
/* Before that: train bf16 values without f32 masters, 4 bytes less for each. Updates are computed in f32 and
 * rounded up or down stochastically, so that they are right in the mean. Other types are BY_ERR_UNSUPPORTED. */
BY_API by_status by_params_without_masters(by_params *p);
/* Before that: store a declared parameter as another float type or as a type of blocks, of which its rows
 * must be multiples (else BY_ERR_UNSUPPORTED). Only weights of products and tables of gather can be read so,
 * and the parameter must be frozen where there is training. */
BY_API by_status by_params_set_type(by_params *p, int i, by_dtype type);
BY_API by_status by_params_init(by_params *p, uint64_t seed); /* initial values for all */

/* Number of parameters, of their elements, of the elements that have training buffers, and their type. */
BY_API int by_params_count(const by_params *p);
BY_API int64_t by_params_elements(const by_params *p);
BY_API int64_t by_params_trained(const by_params *p);
BY_API by_dtype by_params_dtype(const by_params *p);
/* Bytes of all buffers and of the values alone. What lies between parameters does not count. */
BY_API size_t by_params_bytes(const by_params *p);
BY_API size_t by_params_value_bytes(const by_params *p);
BY_API int by_params_find(const by_params *p, const char *name); /* index or -1 */
/* Parameter i: how it is stored, its name, number of axes, and sizes. */
BY_API by_dtype by_params_type(const by_params *p, int i);
BY_API const char *by_params_name(const by_params *p, int i);
BY_API int by_params_rank(const by_params *p, int i);
BY_API const int64_t *by_params_shape(const by_params *p, int i);

/* Copy a parameter, its gradient or an optimiser moment to or from host memory, converting from or to float.
 * which: */
typedef enum by_slot { BY_SLOT_VALUE, BY_SLOT_GRAD, BY_SLOT_MOMENT1, BY_SLOT_MOMENT2 } by_slot;
BY_API by_status by_params_get(const by_params *p, int i, by_slot slot, float *out);
BY_API by_status by_params_set(by_params *p, int i, by_slot slot, const float *values);
/* How fast a parameter learns, as a multiple of the learning rate; 0: it is frozen, and its gradient is not
 * computed. Set it before the first update or pass is made. What is frozen before by_params_freeze() gets no
 * gradient, moment or master, and cannot be trained later: BY_ERR_ARGUMENT. by_model_spec.freeze does so for
 * a model. Parameters that training always leaves as they are ignore it. */
BY_API by_status by_params_set_rate(by_params *p, int i, double scale);

/* ---- graphs ---------------------------------------------------------------------------------- */

typedef struct by_graph_spec {
    by_params *params; /* borrowed */
    bool training;     /* gradients may be asked for, and dropout is live */
    bool no_dropout;   /* it is not, whatever the model has */
} by_graph_spec;
/* NULL when memory is out or there are no parameters. Building on NULL is legal: it gives NULL, and
 * by_compile() reports that first error. */
BY_API by_graph *by_graph_new(const by_graph_spec *spec);
BY_API void by_graph_free(by_graph *g);

/* The first error so far, BY_OK when there is none; the message is in by_error_message(). */
BY_API by_status by_graph_status(const by_graph *g);
/* Report an error from model code; the graph is poisoned from here on. Returns a poisoned tensor. */
BY_API by_tensor *by_graph_fail(by_graph *g, const char *fmt, ...) BY_PRINTF(2, 3);

/* Names of parameters are joined from the scopes around them: push "h.%d" and "attn", then by_param
 * "c_attn.weight". */
BY_API void by_scope_push(by_graph *g, const char *fmt, ...) BY_PRINTF(2, 3);
BY_API void by_scope_pop(by_graph *g);
/* The same, and the nodes inside form one block: what recomputation may drop and compute again. */
BY_API void by_block_push(by_graph *g, const char *fmt, ...) BY_PRINTF(2, 3);
BY_API void by_block_pop(by_graph *g);

/* Number of axes, of elements, and the type. */
BY_API int by_rank(const by_tensor *t);
BY_API int64_t by_dim(const by_tensor *t,
                      int axis); /* negative counts from the end; 0 when there is no such axis */
BY_API int64_t by_elements(const by_tensor *t);
BY_API by_dtype by_type(const by_tensor *t);
BY_API by_tensor *by_name(by_tensor *t, const char *fmt, ...) BY_PRINTF(2, 3); /* for traces; returns t */

/* Leaves. shape holds rank entries. */
BY_API by_tensor *by_input(by_graph *g, const char *name, by_dtype type, int rank, const int64_t *shape);
BY_API by_tensor *by_param(by_graph *g, const char *name, int rank, const int64_t *shape, by_init init);
/* One that is kept with the others, but that training leaves as it is. */
BY_API by_tensor *by_param_fixed(by_graph *g, const char *name, int rank, const int64_t *shape, by_init init);
/* State lives across runs in memory of the caller's (by_memory_new), so that several programs can share it.
 * A tensor that is built from a state sees the value that the state has at that place of the graph: before
 * a by_store() the old one, after it the new one, also in the backward pass. No gradient goes through it. */
typedef struct by_memory by_memory;
BY_API by_memory *by_memory_new(by_device *d, size_t bytes); /* zeroed */
BY_API void by_memory_free(by_memory *m);
BY_API size_t by_memory_bytes(const by_memory *m); /* 0 for NULL */
/* Copy from the host, or to it (which waits for a GPU). */
BY_API by_status by_memory_write(by_memory *m, size_t offset, const void *from, size_t bytes);
BY_API by_status by_memory_read(const by_memory *m, size_t offset, void *to, size_t bytes);
BY_API by_tensor *by_state(by_graph *g, const char *name, by_dtype type, int rank, const int64_t *shape,
                           by_memory *m);
BY_API by_tensor *by_fill(by_graph *g, by_dtype type, int rank, const int64_t *shape, double value);
/* i32: 0, 1, ... along the last axis, or first, first + 1, ... */
BY_API by_tensor *by_range(by_graph *g, int rank, const int64_t *shape);
BY_API by_tensor *by_range_from(by_graph *g, int rank, const int64_t *shape, int first);

/* Random numbers, a function of (seed, step, node, element): see by_program_seed(). Normal with standard
 * deviation `scale`, or uniform in (-scale, scale). */
typedef enum by_random_kind { BY_RANDOM_NORMAL, BY_RANDOM_UNIFORM } by_random_kind;
BY_API by_tensor *by_random(by_graph *g, by_random_kind kind, by_dtype type, int rank, const int64_t *shape,
                            double scale);

/* (length) i32: element i is the bucket of the distance i - zero. Bucket k holds the distances from first[k]
 * up to first[k + 1], of keys before the query; with `both` those after it have `count` buckets more of the
 * same kind, else they share bucket 0. */
enum { BY_MAX_BUCKETS = 128 };
BY_API by_tensor *by_buckets(by_graph *g, int64_t length, int64_t zero, bool both, int count,
                             const int *first);
/* (out, in): times a table of `in` rows, it gives `out` rows between them by cubic convolution with a = -0.75, the end rows
 * repeated, as PyTorch's bicubic interpolation without aligned corners. */
BY_API by_tensor *by_interpolation(by_graph *g, int64_t out, int64_t in, by_dtype type);
/* Positions (...) i32 -> (..., width): sines of width/2 falling frequencies (2017), then the cosines. */
BY_API by_tensor *by_sines(by_graph *g, by_tensor *positions, int64_t width, by_dtype type);
/* Copy x over the first elements of a state. What is built from the state afterwards reads x. */
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
    BY_ACT_FUSED = BY_SIGMOID, /* up to here they are part of a linear op; the others are ops of their own */
    BY_QUICK_GELU,             /* x sigmoid(1.702 x) */
    BY_GELU_10,                /* GELU, no less than -10 and no more than 10 */
    BY_RELU2,                  /* the square of ReLU */
    BY_RELU6,                  /* ReLU, no more than 6 */
    BY_LEAKY_RELU,             /* x, below zero x / 100 */
    BY_HARD_SWISH,             /* x min(max(x + 3, 0), 6) / 6 */
    BY_MISH,                   /* x tanh(softplus(x)) */
    BY_LAPLACE, /* distribution function of a normal variable: mean 0.707107, deviation 0.282095 */
    BY_SQRT_SOFTPLUS,
    BY_EXP,
    BY_LOG,
    BY_SQRT,
    BY_ACT_COUNT
} by_act;

/* Rows of a table: table (V, C), ids (...) i32 -> (..., C). Ids outside [0, V) fail the run. */
BY_API by_tensor *by_gather(by_graph *g, by_tensor *table, by_tensor *ids);
/* The same, and one row, that of padding, gets no gradient this way. */
BY_API by_tensor *by_gather_padded(by_graph *g, by_tensor *table, by_tensor *ids, int padding);

/* Rows by their place, a set of its own for each batch: x (B.., N, C), ids (B.., K) i32 -> (B.., K, C). */
BY_API by_tensor *by_take(by_graph *g, by_tensor *x, by_tensor *ids);
/* The transpose: rows y (B.., K, C) are added up at their places ids (B.., K) in zeros (B.., rows, C). The order of
 * every sum is that of the places, on all devices. */
BY_API by_tensor *by_scatter_add(by_graph *g, by_tensor *y, by_tensor *ids, int64_t rows);

/* act(x w^T + b): x (..., K), w (N, K) -> (..., N); with w_is_kn, w is (K, N), the layout of GPT-2's Conv1D.
 * b (N) or NULL. */
typedef struct by_linear_spec {
    bool w_is_kn;
    by_act act;
} by_linear_spec;
BY_API by_tensor *by_linear(by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b,
                            const by_linear_spec *spec);

/* Batched product: a (..., M, K) or transposed, b (..., K, N) or transposed -> (..., M, N). Leading axes repeat as
 * those of by_add() do. */
BY_API by_tensor *by_matmul(by_graph *g, by_tensor *a, by_tensor *b, bool a_transposed, bool b_transposed);

/* An activation function by element. */
BY_API by_tensor *by_activation(by_graph *g, by_tensor *x, by_act act);
BY_API by_tensor *by_dropout(by_graph *g, by_tensor *x,
                             float p); /* the identity unless the graph is for training */

/* Over the last axis: (x - mean) / sqrt(var + eps) * gamma + beta. */
BY_API by_tensor *by_layernorm(by_graph *g, by_tensor *x, by_tensor *gamma, by_tensor *beta, float eps);
/* Over the last axis: x / sqrt(mean(x^2) + eps) * gamma. */
BY_API by_tensor *by_rmsnorm(by_graph *g, by_tensor *x, by_tensor *gamma, float eps);
BY_API by_tensor *by_softmax(by_graph *g, by_tensor *x); /* over the last axis */

/* Rotary positions (Su et al. 2021): in every head of x (B, T, H*D), pairs of elements turn by the angle
 * position * frequency. positions (T) or (B, T) i32 -> the shape of x. */
enum { BY_MAX_ROTARY = 512 };
typedef struct by_rotary_spec {
    int head_dim;             /* D */
    int width;                /* elements of a head that turn, the first ones, an even number; 0: all */
    bool interleaved;         /* pairs are elements 2i and 2i + 1; otherwise i and i + width/2 */
    const float *frequencies; /* (width / 2) radians by position; copied */
    float factor;             /* of sines and cosines; 0: 1 */
    /* Dynamic NTK: with a position at or after `trained`, all frequencies are theta'^(-2i / width), theta' =
     * theta (stretch S / trained - stretch + 1)^(width / (width - 2)), S the highest position plus 1. 0:
     * never */
    int trained;
    float theta, stretch;
} by_rotary_spec;
BY_API by_tensor *by_rotary(by_graph *g, by_tensor *x, by_tensor *positions, const by_rotary_spec *spec);

/* Which keys s the query at position p sees, first condition: all of them; s <= p; s <= p or s < prefix[b].
 */
typedef enum by_mask { BY_MASK_NONE, BY_MASK_CAUSAL, BY_MASK_PREFIX } by_mask;

/* Second condition. Divisions round down. */
typedef enum by_pattern_kind {
    BY_PATTERN_FULL,
    BY_PATTERN_WINDOW,  /* -before <= s - p <= after */
    BY_PATTERN_BLOCKS,  /* -before <= s / length - p / length <= after */
    BY_PATTERN_STRIDED, /* |p - s| < length, or p - s is a multiple of length */
    BY_PATTERN_FIXED,   /* s / length == p / length, or s % length >= length - after */
    BY_PATTERN_SINKS,   /* -before <= s - p <= after, or s < length: a window, and keys that all see */
    BY_PATTERN_MEMORY   /* s >= p / length * length - before: queries of a block share the keys before it */
} by_pattern_kind;
typedef struct by_pattern {
    by_pattern_kind kind;
    int length, before, after;
    int part; /* of STRIDED and FIXED: 0: both sets of keys, 1: the first alone, 2: the second alone, 3: the
                 first for heads below H / 2, the second for the others */
} by_pattern;

/* softmax(q k^T * scale + biases, where a key is seen) v, per head. q (B, T, H*D), k and v (B, S, Hkv*D) ->
 * (B, T, H*D). With k = v = NULL, q is the packed projection (B, T, (H + 2 Hkv)*D): queries, keys, values
 * side by side. Query t stands at position p = t + S - T: the last query at the last key. A key is seen if
 * mask, pattern, key mask and pair mask all let it. docs/ATTENTION.md has the table of who uses what. */
typedef struct by_attention_spec {
    int heads;
    int kv_heads; /* 0: as many as heads; otherwise heads must be a multiple */
    by_mask mask;
    by_tensor *prefix; /* (B) i32, with BY_MASK_PREFIX alone */
    by_pattern pattern;
    float scale;   /* 0: 1/sqrt(D) */
    float dropout; /* on the weights, in training */
    /* Tensors, each NULL for none. Axes of 1 repeat. */
    by_tensor *key_mask;  /* (B, S) i32, 0 masks a key for every query */
    by_tensor *pair_mask; /* (B or 1, H or 1, T or 1, S) i32 or u8, 0 masks a key for that query */
    int pair_block; /* entry (t / n, s / n) of the pair mask is that of query t and key s, where n is this; T and
                       S of its shape are divided by n, rounded up. 0: 1 */
    by_tensor *bias;     /* (B or 1, H or 1, T or 1, S) of q's type: entry s is added to the score of key s */
    by_tensor *relative; /* (B or 1, H or 1, T or 1, L) of q's type: entry clamp(s - p + relative_zero, 0, */
    int relative_zero;   /* L - 1) is added to the score of key s for the query at position p */
    bool empty_zero;     /* a query that sees no key gives zeros; otherwise the mean of v */
    by_tensor **weights; /* when not NULL: also return the weights after softmax, (B, H, T, S) */
    by_tensor *pages;    /* by_attention_cached alone: (B, n) i32, the pages of every row; NULL: page b. With
                            n > 1, the size of a page is a power of two from 16 to 256 */
} by_attention_spec;
BY_API by_tensor *by_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                               const by_attention_spec *spec);

/* Causal attention of T new positions over a cache: writes the new keys and values into k_cache, v_cache
 * (pages, P, Hkv*D; states) from position past[b] on, then attends to everything up to each query. Position s
 * of row b lies in page spec.pages[b][s / P], at s % P; without spec.pages, in page b, at s. A row has room
 * for M positions: P times the columns of spec.pages. past (B) i32; past + T must not exceed M. Query t stands
 * at p = past[b] + t; the mask is causal, or BY_MASK_PREFIX, which also lets a query see new keys after it. M
 * takes the place of S in the shapes of masks and bias. With past = NULL nothing is written: q (B, T, H*D)
 * attends to all M positions, without a causal mask, as by_attention does. No dropout, no weights. For
 * inference. */
BY_API by_tensor *by_attention_cached(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                      by_tensor *k_cache, by_tensor *v_cache, by_tensor *past,
                                      const by_attention_spec *spec);

/* Buckets of vectors by random rotations (Andoni et al. 2015): x (B, T, H*D), rotations (H, D, R, S) of x's
 * accumulation type -> (B, H, R, T) i32, one bucket for each of R rounds. The number of buckets is the product
 * of `count` even factors, S half their sum: each factor is an argmax over [x r, -x r] of its own columns.
 * Where mask (B, T) i32 is 0, the bucket is that number itself, one more than any other; NULL: nowhere. */
enum { BY_MAX_FACTORS = 4 };
BY_API by_tensor *by_hash(by_graph *g, by_tensor *x, by_tensor *rotations, by_tensor *mask, int count,
                          const int *factors);

/* Attention within chunks of rows (Kitaev et al. 2020). Each of R rounds puts the T rows of a head into the
 * order it is given and cuts them into N chunks of C. A row attends to the rows of its own chunk and of those
 * around it; after the last chunk of all rounds comes the first. All scores of a row, those of all rounds, form
 * one softmax: a key that a row meets twice counts twice. q, k, v (B, T, H*D) -> (B, T, H*D). */
typedef struct by_chunked_spec {
    int heads;
    int chunk;         /* C, rows of a chunk */
    int before, after; /* chunks that a row sees besides its own */
    int64_t
        length; /* rows of a round with those that are missing at its end: N C, T or more; 0: T, rounded up */
    bool causal;     /* keys at later rows than the query's are masked, */
    bool avoid_self; /* and the query's own row unless everything else is */
    float scale;     /* 0: 1/sqrt(D) */
    float dropout;   /* on the weights, in training */
    /* Tensors, each NULL for none. */
    by_tensor *order;    /* (B, H, R, T) i32: the rows, each once in a round; NULL: one round, as they are */
    by_tensor *key_mask; /* (B, T) i32, 0 masks a key. A row that sees nothing gives the mean of its chunks */
    /* when not NULL: also the weights of each round, (B, H, R N, C, (before + 1 + after) C), in sorted order, 0 for rows that are missing */
    by_tensor **weights;
} by_chunked_spec;
BY_API by_tensor *by_chunked_attention(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v,
                                       const by_chunked_spec *spec);

/* A recurrent layer over whole sequences. gates (B, T, G*H) is x W_ih^T + b_ih, computed for all positions at
 * once; w (G*H, H) and b (G*H) are W_hh and b_hh; b may be NULL -> y (B, T, H), the state h after each
 * position. PyTorch's cells and order of gates:
 *
 *   tanh, relu   G 1   h' = act(x + W h + b)
 *   LSTM         G 4   i f g o: c' = f c + i g, h' = o tanh(c')
 *   GRU          G 3   r z n: n = tanh(x_n + r (W_n h + b_n)), h' = (1 - z) n + z h
 *
 * Gradients reach gates, w, b, h and c, from y and the last states. */
typedef enum by_cell { BY_CELL_TANH, BY_CELL_RELU, BY_CELL_LSTM, BY_CELL_GRU } by_cell;
typedef struct by_recurrent_spec {
    by_cell cell;
    bool reverse; /* from the last position to the first */
    /* Tensors, each NULL for none. */
    by_tensor *mask;              /* (B, T) i32: where 0, the state stays as it is and the output is 0 */
    by_tensor *h, *c;             /* (B, H): initial state (c: LSTM only); NULL: zeros */
    by_tensor **last_h, **last_c; /* (B, H): receive the state after the last position */
} by_recurrent_spec;
BY_API by_tensor *by_recurrent(by_graph *g, by_tensor *gates, by_tensor *w, by_tensor *b,
                               const by_recurrent_spec *spec);

/* Scores of additive attention (Bahdanau et al. 2015), v . tanh(q + k): q (B, T, A), k (B, S, A), v (A) ->
 * (B, T, S). Never stores (B, T, S, A). */
BY_API by_tensor *by_additive_scores(by_graph *g, by_tensor *q, by_tensor *k, by_tensor *v);

enum { BY_BEAMS_MAX = 64, BY_TOP_MAX = 128 }; /* beams of a group; k of by_top */

/* Before a step of beam search: row b takes over the first past[b] positions of row from[b]; both (B) i32.
 * Row b lies in page pages[b] of the caches (pages, M, C; states), pages (B, 1) i32, or without it in page b.
 * Rows stand in groups of `beams` (1 to BY_BEAMS_MAX) and take from rows of their own group. */
BY_API void by_reorder(by_graph *g, by_tensor *k_cache, by_tensor *v_cache, by_tensor *from, by_tensor *past,
                       by_tensor *pages, int beams);

/* The end of a decoding step that is to be run again at once: next (B) i32 becomes tokens (0 in place of -1), positions (up to
 * `last`) and past grow by one, and next is appended to log (1 + M B), whose first element counts the steps.
 * All of them but next are states. */
BY_API void by_advance(by_graph *g, by_tensor *next, by_tensor *tokens, by_tensor *positions, by_tensor *past,
                       by_tensor *log, int last);

/* Mean over rows of -log softmax(logits)[target]; rows whose target is ignore_index do not count (0 rows:
 * loss 0). logits (..., V), targets (...) i32 -> scalar f32 (f64 for f64). The gradient is written over the
 * logits' memory. */
typedef struct by_loss_spec {
    int ignore_index; /* 0 means -100 */
    float label_smoothing;
    by_tensor *weights; /* (V) f32 (f64 for f64), or NULL. A row counts as much as its target's class: the sum
                           of weight and loss is divided by that of the weights. Without label smoothing */
} by_loss_spec;
BY_API by_tensor *by_cross_entropy(by_graph *g, by_tensor *logits, by_tensor *targets,
                                   const by_loss_spec *spec);

/* Mean over the channels of pixels of -ln p(value) under a discretised mixture of K logistics (Salimans et al. 2017).
 * Values are 0 ... 255. targets (..., C) i32; pixels with a target of -100 do not count. logits (..., N), C = 1: N = 3 K:
 * K mixture logits, K means, K log scales. C = 3: N = 10 K: K mixture logits, then for each channel K means, K log
 * scales and K coefficients r, g, b: with the values scaled to [-1, 1], the mean of the second channel grows by
 * tanh(r) x_0, that of the third by tanh(g) x_0 + tanh(b) x_1. -> scalar f32 (f64 for f64). each, unless NULL, receives
 * the nats of each pixel, for reading alone. */
BY_API by_tensor *by_logistic_mixture(by_graph *g, by_tensor *logits, by_tensor *targets, int channels,
                                      by_tensor **each);

/* Log-probabilities of tokens: logits (..., V), targets (...) i32 -> (...) f32 (f64 for f64), the logarithm of
 * softmax(scale logits)[target]; 0 where the target is -100. scale is 1 over the temperature; 0: 1. Probabilities are never stored;
 * the gradient is written over the logits' memory. entropy, unless NULL, gets that of every row, (...), without a gradient. */
BY_API by_tensor *by_log_probs(by_graph *g, by_tensor *logits, by_tensor *targets, double scale,
                               by_tensor **entropy);
/* The Kullback-Leibler divergence of softmax(scale teacher) from softmax(scale logits), both (..., V) of one type -> (...) f32.
 * The gradient goes to the logits; the teacher must need none (by_detach). */
BY_API by_tensor *by_kl_divergence(by_graph *g, by_tensor *logits, by_tensor *teacher, double scale);

/* ---- small operations ------------------------------------------------------------------------ */

/* Elementwise. Shapes are matched from the last axis on, as in NumPy: an axis of 1 repeats, and so do axes that
 * are missing in front. (B, T, 1, C) and (B, 1, S, C) give (B, T, S, C). Gradients are summed over repetitions. */
BY_API by_tensor *by_add(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_sub(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_mul(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_div(by_graph *g, by_tensor *a, by_tensor *b);
/* The larger, the smaller of two; NaN where either is. The gradient goes to the one chosen, the first of equals. */
BY_API by_tensor *by_maximum(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_minimum(by_graph *g, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_clamp(by_graph *g, by_tensor *x, double low, double high);
/* a where the mask (i32, u8 or bool) is not 0, b elsewhere; the three repeat as above. */
BY_API by_tensor *by_where(by_graph *g, by_tensor *mask, by_tensor *a, by_tensor *b);
BY_API by_tensor *by_scale(by_graph *g, by_tensor *x, double factor);
BY_API by_tensor *by_sum(by_graph *g, by_tensor *x, int axis); /* the axis disappears */
BY_API by_tensor *by_mean(by_graph *g, by_tensor *x, int axis);
BY_API by_tensor *by_reshape(by_graph *g, by_tensor *x, int rank,
                             const int64_t *shape); /* a view; one -1 allowed */
/* The same values, through which no gradient goes. A view. */
BY_API by_tensor *by_detach(by_graph *g, by_tensor *x);
BY_API by_tensor *by_permute_axes(by_graph *g, by_tensor *x, const int *order);
BY_API by_tensor *by_slice(by_graph *g, by_tensor *x, int axis, int64_t start, int64_t count);
BY_API by_tensor *by_concat(by_graph *g, by_tensor *const *parts, int count, int axis);
BY_API by_tensor *by_cast(by_graph *g, by_tensor *x, by_dtype type);
/* Over the last axis: the places of the elements in rising or falling order, i32. Stable: equals keep their
 * order. NaN counts as larger than any number. Floats and i32. */
BY_API by_tensor *by_argsort(by_graph *g, by_tensor *x, bool descending);
/* The elements in that order. order, unless NULL, gets the places. The gradient follows the elements. */
BY_API by_tensor *by_sort(by_graph *g, by_tensor *x, bool descending, by_tensor **order);
/* The k largest of the last axis in falling order, (..., k), and unless NULL their places, i32. The gradient goes
 * to those chosen. */
BY_API by_tensor *by_top_k(by_graph *g, by_tensor *x, int64_t k, by_tensor **ids);
BY_API by_tensor *by_argmax(by_graph *g, by_tensor *x); /* over the last axis, i32, the first of equals */
/* A random place of the last axis of logits (R, N): i32, with the probabilities softmax(logits / temperature). temperature (R) is f32 and
 * positive. draws (R, 5) i32 is a state: the low and the high word of a seed, the same of a stream, and a place, which grows
 * by one in each run. On one device a result depends on these and on the logits alone; another one may round a sum differently. It
 * is -1 where a logit is NaN or +infinity, or all of them are -infinity. */
BY_API by_tensor *by_draw(by_graph *g, by_tensor *logits, by_tensor *temperature, by_tensor *draws);
/* The k (1 to BY_TOP_MAX) highest of every row of logits (B, V) in falling order, the first of equals first: (B, k)
 * f32, with their ids (B, k) i32 and the logarithm of the sum of e^logit of the whole row, (B) f32. */
BY_API by_tensor *by_top(by_graph *g, by_tensor *logits, int k, by_tensor **ids, by_tensor **lse);

/* ---- gradients of one's own ------------------------------------------------------------------ */

/* A block whose gradient the caller builds. forward makes the outputs from the inputs. backward gets the outputs and
 * their gradients and makes those of the inputs (NULL: none), with by_vjp() where it needs derivatives. Nothing
 * from inside the block is kept for it. It may also give the inputs back in `again`, computed from the outputs: a
 * block before this one then starts from these, and not even the outputs of blocks are kept. That is what
 * reversible layers need. */
typedef struct by_custom_spec {
    void (*forward)(by_graph *g, void *user, by_tensor *const *in, by_tensor **out);
    void (*backward)(by_graph *g, void *user, by_tensor *const *out, by_tensor *const *dout, by_tensor **din,
                     by_tensor **again);
    void *user; /* must be there until by_compile() returns */
} by_custom_spec;
/* Leaves n_out tensors in out. What the block reads besides its inputs and parameters must come from before it. */
BY_API void by_block_custom(by_graph *g, const by_custom_spec *spec, by_tensor *const *in, int n_in,
                            by_tensor **out, int n_out);
/* For backward: builds y = fn(x) once more and, from dy, the gradient of x, left in *dx (NULL: none). Gradients of
 * the parameters that fn uses are added to theirs. Dropout has the masks of the forward pass as long as fn builds
 * the same nodes under the same scopes. Returns y. */
typedef by_tensor *(*by_function)(by_graph *g, void *user, by_tensor *x);
BY_API by_tensor *by_vjp(by_graph *g, by_function fn, void *user, by_tensor *x, by_tensor *dy,
                         by_tensor **dx);

/* ---- compile and run ------------------------------------------------------------------------- */

/* Keep a tensor readable after the run. Returns t. */
BY_API by_tensor *by_output(by_graph *g, const char *name, by_tensor *t);

typedef enum by_grad_mode { BY_GRAD_NONE, BY_GRAD_STORE, BY_GRAD_ADD } by_grad_mode;
typedef struct by_compile_spec {
    by_tensor *loss;       /* scalar to differentiate, or NULL */
    by_grad_mode grads;    /* write the parameters' gradients over the flat buffer, or add to it */
    by_tensor *loss_scale; /* scalar tensor the loss is multiplied by before differentiation, NULL for 1 */
    bool recompute;     /* keep only what enters each block; compute the inside again for the backward pass */
    bool no_fusion;     /* for tests */
    by_memory **memory; /* of programs that never run at the same time, and each overwrites what another left:
                         * the first makes it, those that fit use it. The caller's to free, after them. NULL:
                         * the program has its own */
} by_compile_spec;

/* Differentiate, fuse, recompute, order, plan memory and prepare kernels. The program takes the graph over,
 * also on failure (NULL): do not free it. A spec of NULL is one of zeros. */
BY_API by_program *by_compile(by_graph *g, const by_compile_spec *spec);
BY_API void by_program_free(by_program *p);

BY_API size_t by_program_bytes(const by_program *p); /* planned activations: the peak, known before the run */
BY_API double by_program_flops(const by_program *p); /* of one run, multiply and add counted as two */

/* Copy host memory into an input, or a tensor (input, output, state) out to the host; bytes must be the
 * tensor's size. */
BY_API by_status by_write(by_program *p, by_tensor *t, const void *data, size_t bytes);
BY_API by_status by_read(by_program *p, const by_tensor *t, void *data, size_t bytes);
/* As floats, whatever the tensor's type. */
BY_API by_status by_read_f32(by_program *p, const by_tensor *t, float *out);
/* One row of it, of as many elements as the last axis has, as floats. */
BY_API by_status by_read_row(by_program *p, const by_tensor *t, int64_t row, float *out);

/* Copy a tensor that can be read into memory on the device, without waiting. */
BY_API by_status by_keep(by_program *p, const by_tensor *t, by_memory *m, size_t offset);

/* Random numbers of the next run come from (seed, step). */
BY_API void by_program_seed(by_program *p, uint64_t seed, uint64_t step);
BY_API by_status by_run(by_program *p);

/* The graph after compilation: one line per node, or Graphviz DOT. Heap string, release with by_string_free.
 */
BY_API char *by_program_text(const by_program *p, bool dot);
BY_API void by_string_free(char *s);

/* Called after every node of a run, in order. */
typedef struct by_trace_entry {
    int index;
    const char *op, *name, *shape; /* of the first output */
    double norm;                   /* of the first output, 2-norm */
    int64_t first_bad;             /* index of the first NaN or infinity, -1 when there is none */
    double seconds, flops, bytes;
} by_trace_entry;
typedef void (*by_trace_fn)(void *user, const by_trace_entry *entry);
BY_API void by_program_trace(by_program *p, by_trace_fn fn, void *user);
/* The same for the times alone: nothing is read, norm is NaN, and a GPU does not stop between nodes. */
BY_API void by_program_time(by_program *p, by_trace_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
