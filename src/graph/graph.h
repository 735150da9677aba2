/* graph.h - internals of a graph: tensors, nodes, the op table, devices. Included by graph/ and by the
 * backends; models and the rooms above use only banyan/graph.h. */
#ifndef BY_GRAPH_GRAPH_H
#define BY_GRAPH_GRAPH_H

#include "banyan/graph.h"
#include "base/base.h"

#define GR_MAX_INPUTS  12
#define GR_MAX_OUTPUTS 5

typedef enum gr_op {
#define GR_OP(ID, name, in, out, traits, gradient) GR_OP_##ID,
#include "graph/ops.def"
#undef GR_OP
    GR_OP_COUNT
} gr_op;

typedef struct gr_node gr_node;

/* The kind of memory of a tensor. */
typedef enum gr_place {
    GR_PLACE_PLANNED, /* an offset in the program's activation buffer */
    GR_PLACE_INPUT,   /* the same, but live during the whole run and writable by the host */
    GR_PLACE_PARAM,   /* the parameter list's value buffer */
    GR_PLACE_GRAD,    /* the parameter list's gradient buffer */
    GR_PLACE_STATE    /* memory of the caller's */
} gr_place;

struct by_tensor {
    by_graph *graph;
    gr_node *node; /* producer, NULL for leaves */
    int index;     /* which output of it */
    by_dtype type;
    int rank;
    int64_t dim[BY_MAX_RANK];
    int64_t pitch; /* elements from one row to the next in memory; usually 0: the last axis, without a gap */
    char *name;    /* arena, may be NULL */
    gr_place place;
    int param;         /* index in a list of parameters, -1 otherwise */
    by_params *params; /* that list; NULL if param is -1 */
    bool is_output;    /* readable after the run */
    bool needs_grad;   /* depends on a trainable parameter */
    by_tensor *root;   /* the tensor whose memory this one shares, usually itself (set by the planner) */
    size_t offset;     /* of a root in the activation buffer */
    void *data;        /* device address, fixed by the planner */
    by_memory *memory; /* of a state */
    int first, last;   /* liveness: indices of nodes */
    by_tensor *grad;   /* during differentiation: the gradient accumulated so far */
    by_tensor *again;  /* likewise: the copy that a block's backward pass recomputes */
    /* Versions of a state: every node that writes to it ends one version and begins the next. The oldest is
     * the leaf itself; the others are leaves with the same memory. */
    by_tensor *newer;  /* the value after the next write; NULL: this is the newest */
    by_tensor *oldest; /* the first version; NULL: this is the first */
    gr_node *ended;    /* in gr_preserve_states: the node that has overwritten it */
    by_tensor *saved;  /* likewise: the copy made before */
};

struct gr_node {
    by_graph *graph;
    gr_op op;
    int index; /* position in the order of execution */
    int n_in, n_out;
    by_tensor *in[GR_MAX_INPUTS];   /* NULL: optional input not given */
    by_tensor *out[GR_MAX_OUTPUTS]; /* NULL: unused output */
    void *attr;                     /* gr_<op>_attr, below; NULL if the op has none */
    int block;                      /* block of the forward pass (by_block_push); 0: outside of blocks */
    bool backward;                  /* made by differentiation */
    uint32_t rng;                   /* identity for random numbers, kept when a node is recomputed */
    const char *scope;              /* for names in traces and errors */
    struct gr_custom *custom;       /* the custom block that it belongs to, or NULL */
    gr_node *partner;               /* the node that a GPU may fuse with it (JOINS in ops.def), or NULL */
    bool absorbed;                  /* set by the backend: its partner does the work of both */
    void *plan;                     /* owned by the backend; its type depends on the op */
};

/* ---- attributes, one struct per op that has attributes ---------------------------------------- */

typedef struct gr_fill_attr { /* fill, range */
    double value;
    by_dtype type;
    int rank;
    int64_t dim[BY_MAX_RANK];
} gr_fill_attr;
typedef struct gr_buckets_attr {
    int64_t length, zero;      /* element i stands for distance i - zero */
    bool both;                 /* positive distances have separate buckets, after the others */
    int count;                 /* of buckets on one side */
    int first[BY_MAX_BUCKETS]; /* the smallest distance of each bucket, increasing from 0 */
} gr_buckets_attr;
typedef struct gr_interpolation_attr {
    int64_t out, in; /* output elements, input elements */
    by_dtype type;
} gr_interpolation_attr;
typedef struct gr_sines_attr {
    int64_t width;
    by_dtype type;
} gr_sines_attr;
typedef struct gr_cast_attr {
    by_dtype type;
} gr_cast_attr;
typedef struct gr_reshape_attr {
    int rank;
    int64_t dim[BY_MAX_RANK];
} gr_reshape_attr;
typedef struct gr_gather_attr { /* gather, gather_grad */
    int64_t rows;               /* gather_grad: of the table */
    int64_t still;              /* the row without a gradient; -1: none */
    int64_t batch;              /* number of tables, each with its own ids; 0: a single table */
} gr_gather_attr;
typedef struct gr_permute_attr {
    int order[BY_MAX_RANK]; /* output axis i is input axis order[i] */
} gr_permute_attr;
typedef struct gr_slice_attr { /* slice, pad (the inverse: zeros around), concat (axis only) */
    int axis;
    int64_t start, count; /* slice: of the input. pad: where the input lies in an axis of `count` */
} gr_slice_attr;
typedef struct gr_reduce_attr { /* REDUCE: x viewed as (outer, count, inner), summed over the middle, times scale.  */
    int64_t outer, count,
        inner; /* BROADCAST: (outer, inner) repeated to (outer, count, inner), times scale.          */
    double scale;
    bool acc; /* REDUCE: the result has the accumulation type */
    int rank; /* shape of the result */
    int64_t dim[BY_MAX_RANK];
} gr_reduce_attr;
/* The elementwise functions of two inputs. The last two give 1 or 0. */
typedef enum gr_binary {
    GR_ADD,
    GR_SUB,
    GR_MUL,
    GR_DIV,
    GR_MAXIMUM,
    GR_MINIMUM,
    GR_NOT_LESS,
    GR_LESS
} gr_binary;
typedef struct gr_binary_attr {
    gr_binary kind; /* GR_DIV and later */
} gr_binary_attr;
typedef struct gr_random_attr {
    gr_fill_attr fill; /* value: the scale */
    by_random_kind kind;
} gr_random_attr;
typedef struct gr_argsort_attr {
    bool descending;
} gr_argsort_attr;
typedef struct gr_scale_attr {
    double factor;
} gr_scale_attr;
typedef struct gr_activation_attr {
    by_act act;
} gr_activation_attr;
typedef struct gr_dropout_attr {
    float p; /* element i is kept if its random number is >= p, and then divided by 1 - p */
} gr_dropout_attr;
typedef struct gr_linear_attr { /* linear, linear_dx, linear_dw */
    bool w_is_kn;
    by_act act; /* linear only */
} gr_linear_attr;
typedef struct gr_matmul_attr {
    bool ta, tb;
} gr_matmul_attr;
typedef struct gr_norm_attr {
    bool rms;
    float eps;
    float p; /* dropout on the residual input h */
} gr_norm_attr;
typedef struct gr_rotary_attr {
    int head_dim, width;
    bool interleaved, inverse; /* inverse: rotate by the negative angles, for gradients */
    float factor;
    int trained; /* 0: constant frequencies */
    float theta, stretch;
    float frequency[BY_MAX_ROTARY / 2];
} gr_rotary_attr;
typedef struct gr_attention_attr { /* attention, attention_grad, attention_cached */
    /* with defaults of kv_heads, scale and dropout filled in; its tensors are inputs */
    by_attention_spec spec;
    int head_dim;
    bool packed;
} gr_attention_attr;
/* Inputs that the three attention ops share; then those of attention_grad and of attention_cached. */
enum {
    GR_ATT_Q,
    GR_ATT_K,
    GR_ATT_V,
    GR_ATT_KEY_MASK,
    GR_ATT_PREFIX,
    GR_ATT_BIAS,
    GR_ATT_RELATIVE,
    GR_ATT_PAIR_MASK,
    GR_ATT_SHARED,
    GR_ATT_Y = GR_ATT_SHARED,
    GR_ATT_LSE,
    GR_ATT_DY,
    GR_ATT_K_CACHE = GR_ATT_SHARED,
    GR_ATT_V_CACHE,
    GR_ATT_PAST,
    GR_ATT_PAGES
};
typedef struct gr_hash_attr {
    int rounds, count; /* of factors */
    int factor[BY_MAX_FACTORS];
} gr_hash_attr;
typedef struct gr_chunked_attr { /* chunked_attention, chunked_attention_grad */
    /* with defaults of length, scale and dropout filled in; its tensors are inputs */
    by_chunked_spec spec;
    int head_dim;
} gr_chunked_attr;
enum { GR_CHUNKED_ORDER = 3, GR_CHUNKED_MASK, GR_CHUNKED_Y, GR_CHUNKED_LSE, GR_CHUNKED_DY };
typedef struct gr_recurrent_attr { /* recurrent, recurrent_grad */
    by_cell cell;
    bool reverse;
} gr_recurrent_attr;
enum { GR_REC_GATES, GR_REC_W, GR_REC_B, GR_REC_MASK, GR_REC_H, GR_REC_C };
/* The inputs of recurrent_grad; its y, saved and cells are outputs of recurrent. */
enum {
    GR_REC_GRAD_W,
    GR_REC_GRAD_MASK,
    GR_REC_GRAD_H,
    GR_REC_GRAD_C,
    GR_REC_GRAD_Y,
    GR_REC_GRAD_SAVED,
    GR_REC_GRAD_CELLS,
    GR_REC_GRAD_DY,
    GR_REC_GRAD_DH,
    GR_REC_GRAD_DC
};
enum { GR_REC_Y, GR_REC_LAST_H, GR_REC_LAST_C, GR_REC_SAVED, GR_REC_CELLS };
enum { GR_REC_DGATES, GR_REC_DHIDDEN, GR_REC_BEFORE, GR_REC_DH, GR_REC_DC };
static inline int gr_cell_gates(by_cell cell) /* rows of W_hh / width of the state */
{
    return cell == BY_CELL_LSTM ? 4 : cell == BY_CELL_GRU ? 3 : 1;
}
typedef struct gr_advance_attr {
    int last; /* the highest position */
} gr_advance_attr;
typedef struct gr_top_attr {
    int k; /* k, at most BY_TOP_MAX */
} gr_top_attr;
typedef struct gr_reorder_attr {
    int beams; /* rows of a group, at most BY_BEAMS_MAX */
} gr_reorder_attr;
typedef struct gr_loss_attr {
    int ignore_index;
    float label_smoothing;
} gr_loss_attr;
typedef struct gr_mixture_attr {
    int channels; /* of a pixel: 1 or 3 */
    int ignore_index;
} gr_mixture_attr;

typedef struct gr_log_probs_attr { /* log_probs, log_probs_grad */
    int ignore_index;
    float scale; /* of the logits, above 0 */
} gr_log_probs_attr;
typedef struct gr_kl_attr { /* kl_divergence, kl_divergence_grad */
    float scale;            /* of both, above 0 */
} gr_kl_attr;

/* A range of the flat buffers: one parameter. */
typedef struct gr_segment {
    int64_t offset, count;
    int64_t rows, cols; /* the parameter as a matrix (rows = 1 for vectors), for Adafactor */
    float lr_scale;     /* 0: frozen */
    bool decay;
} gr_segment;
typedef struct gr_optim_attr {  /* adamw, sgd, adafactor */
    const gr_segment *segments; /* borrowed from the parameter list */
    int n_segments;
    float beta1, beta2, eps, weight_decay;
    /* bf16 values without masters: stochastic rounding by the 32-bit random number of (seed, step, node->rng,
     * index in the buffer) */
    bool gr_stochastic;
} gr_optim_attr;

/* clang-format off */
/* ---- the contract of each op: inputs -> outputs ----------------------------------------------- R rows
 * means the product of all axes but the last. "acc" is the accumulation type: f32 for f32, bf16, f16; f64 for
 * f64.
 *
 * A "base" input, when given, has the same memory as its output: the kernel adds to what is there; when NULL
 * it overwrites. Outputs that are NULL are not wanted. All tensors are dense and row-major; addresses of
 * parameters may be unaligned.
 *
 *  fill             () -> y
 *  range            () -> y i32                      y[i] = value + i % (last axis)
 *  buckets          () -> y (length) i32             d = i - zero; y = bucket of |d| where both, plus count if d > 0;
 *                                                    else of max(-d, 0). A bucket begins at first[bucket]
 *  interpolation    () -> y (out, in)                y x resizes x (in) by cubic convolution: gr_cubic_weight
 *  sines            positions i32 -> y (..., width)  y[i] = sin(p w_i), y[width - width/2 + i] = cos(p w_i),
 *                                                    w_i = 10000^(-2i / width); in f64
 *  store            x, y -> nothing: y, a state, becomes x in its first elements
 *  copy, cast       x -> y
 *  reshape          x -> y                           y shares x's memory; the kernel does nothing
 *  permute, slice, pad, concat                       see attributes
 *  random           () -> y                          a function of (seed, step, node->rng, element index)
 *  add, sub, mul, binary  a, b -> y                  axes of 1, and missing leading ones, repeat (spread.h)
 *  where            mask i32 or u8, a, b -> y        a where the mask is not 0, else b; repeating likewise
 *  scale            x -> y
 *  reduce, broadcast x -> y                          see attributes; y of reduce is of x's type or acc
 *  activation       x -> y;  activation_grad: x, dy -> dx
 *  dropout          x -> y                           the mask depends on (seed, step, node->rng, element index)
 *  softmax          x -> y;  softmax_grad: y, dy -> dx
 *  argmax           x (R, N) -> y i32
 *  draw             x (R, N), temperature (R) f32, draws (R, 5) i32 -> y (R) i32: a draw from softmax(x / temperature), the
 *                   first place where the running sum of the weights passes u times their total. u is a function of the row
 *                   of draws: two words of a seed, two of a stream, low ones first, and a place, which grows by one. A row
 *                   with a NaN or +infinity, or with -infinity alone, gives -1
 *  argsort          x (R, N) -> y (R, N) i32         places in rising or falling order, equals in their own; NaN is
 *                                                    the largest
 *  top              x (R, V) -> y (R, k) acc: the highest in falling order, the first of equals first; ids (R, k) i32;
 *                   lse (R) acc. A row with a NaN or +infinity has an lse that is not finite, and any y and ids
 *  gather           table (V, C), ids i32 -> y       with a batch: table (B.., V, C), ids (B.., K) -> y (B.., K, C)
 *  gather_grad      ids, dy, [base (V, C)] -> dtable acc, deterministic
 *  linear           x (R, K), w, [b (N)] -> y (R, N), pre (R, N) before the activation. w may be of blocks, or of a
 *                   narrower type than x that converts to it exactly; so in gather and linear_dx
 *  linear_dx        dy (R, N), w -> dx (R, K)
 *  linear_dw        x (R, K), dy (R, N), [base dw], [base db] -> dw acc in w's layout, db (N) acc
 *  matmul           a, b -> y
 *  norm             x (R, C), gamma (C), [beta (C)], [h (R, C)] -> y (R, C), stats (R, 2) acc
 *                   {mean, 1/std}, [sum (R, C)]
 *                   with h: sum = x + dropout(h) with node->rng, y = norm(sum). rms: mean 0, 1/std is 1/rms
 *  norm_grad        dy, x (or sum), stats, gamma, [dsum (R, C)], [base dgamma], [base dbeta]
 *                   -> dx (R, C) with dsum added, dgamma (C) acc, dbeta (C) acc
 *  rotary           x (B, T, H*D), positions (T) or (B, T) i32 -> y        pairs of elements times factor and turned by
 *                   position * frequency, both in f32; elements of a head after `width` are copied. by_rotary_spec
 *  attention        q or packed, [k], [v], [key_mask (B, S) i32], [prefix (B) i32], [bias (B|1, H|1, T|1, S)],
 *                   [relative (B|1, H|1, T|1, L)], [pair_mask (B|1, H|1, T|1, S) i32 or u8]
 *                   -> y, lse (B, H, T) acc, [weights (B, H, T, S)]
 *                   p = t + S - T: where query t stands. Key s is seen if key_mask and pair_mask are not 0, and s <= p
 *                   (causal) or s <= p or s < prefix[b] (prefix), and the pattern says so (reach.h). Score: scale q.k +
 *                   bias[..., s] + relative[..., clamp(s - p + relative_zero, 0, L - 1)]. A query that sees nothing has
 *                   lse -infinity and weight 1 / S on every key, or 0 with empty_zero
 *  attention_grad   the eight inputs of attention, y, lse, dy -> dq or dpacked, [dk], [dv], [dbias], [drelative]
 *                   dbias like bias: dS summed in acc over the axes that repeat and over all keys that share an entry
 *  attention_cached the eight inputs of attention with M for S, k_cache (pages, P, Hkv*D), v_cache, [past (B) i32],
 *                   [pages (B, n) i32] -> y
 *                   M = n P. Position s of row b lies in page pages[b][s / P] at s % P; without pages, n is 1 and the
 *                   page b. p = past[b] + t; causal or prefix; S is past[b] + T. Without past nothing is written:
 *                   attention over all M positions, mask none
 *  hash             x (B, T, H*D), rotations (H, D, R, S) acc, [mask (B, T) i32] -> y (B, H, R, T) i32
 *                   S is half the sum of the factors. Digit f of the bucket is the argmax over [xr, -xr] of its own
 *                   columns, the first digit counts least; where the mask is 0, the product of the factors
 *  chunked_attention q, k, v (B, T, H*D), [order (B, H, R, T) i32], [key_mask (B, T) i32]
 *                   -> y (B, T, H*D), lse (B, H, T, 2) acc {largest score, log of the sum of e^(score - largest)},
 *                   [weights (B, H, R N, C, W)]. chunks.h says which rows meet
 *  chunked_attention_grad the five inputs, y, lse, dy -> dq, dk, dv
 *  recurrent        gates (B, T, G*H), w (G*H, H), [b (G*H)], [mask (B, T) i32], [h (B, H)], [c (B, H)] -> y (B, T, H),
 *                   last_h (B, H), [last_c (B, H)], [saved (B, T, 4*H)], [cells (B, T, H) acc]
 *                   saved: i f g o of an LSTM, r z n and W_hn h + b_hn of a GRU; nothing where the mask is 0. cells: the
 *                   state c of an LSTM after each position that is not masked
 *  recurrent_grad   w, [mask], [h], [c], y, [saved], [cells], [dy], [dlast_h], [dlast_c]
 *                   -> dgates (B, T, G*H), [dhidden (B, T, 3*H): of W_hh h + b_hh, GRU], before (B, T, H): the state h
 *                   before each position, dh (B, H), [dc (B, H)]
 *  additive_scores  q (B, T, A), k (B, S, A), v (A) -> y (B, T, S): sum over a of v tanh(q + k)
 *  additive_scores_grad q, k, v, dy, [dv base] -> dq, dk, dv acc
 *  reorder          k_cache (pages, M, C), v_cache, from (B) i32, past (B) i32, [pages (B, 1) i32] -> nothing: row b's
 *                   first past[b] positions become those of row from[b], which is of its group
 *  advance          next (B), tokens (B), positions (B), past (B), log (1 + M B), all i32 -> nothing: tokens = next (0 for -1),
 *                   positions + 1 up to the last, past + 1, next appended to log, whose first element counts the runs
 *                   (beyond M nothing is appended)
 *  cross_entropy    logits (R, V), targets (R) i32, [weights (V) acc] -> loss () acc, lse (R + 1) acc:
 *                   log-sum-exp of each row, then the number of rows that count, or the sum of their weights
 *  cross_entropy_grad logits, targets, lse, dloss () acc, [weights] -> dlogits
 *  logistic_mixture logits (R, N), targets (R, C) i32 -> loss () acc, each (R + 1) acc: nats of each row, 0 where a target is
 *                   ignored, then the number of rows that count. N is K (1 + 2) for C = 1, K (1 + 3 * 3) for C = 3
 *  logistic_mixture_grad logits, targets, each, dloss () acc -> dlogits
 *  log_probs        x (R, V), targets (R) i32 -> y (R) acc: s x[target] - lse, 0 where it is ignored; lse (R) acc of s x;
 *                   [entropy (R) acc]: of softmax(s x), in every row
 *  log_probs_grad   x, targets, lse, dy (R) acc -> dx = s (onehot - softmax(s x)) dy, 0 where the target is ignored
 *  kl_divergence    x (R, V), z (R, V) -> y (R) acc: KL of softmax(s z) from softmax(s x); lse (2, R) acc: of s x, of s z
 *  kl_divergence_grad x, z, lse, dy (R) acc -> dx = s (softmax(s x) - softmax(s z)) dy
 *  norm2            x -> y () acc: sqrt(sum(x^2)), summed in a fixed order
 *  adamw            value, grad, m, v, [master], norm (), hyper (8) f32 -> nothing: changes value, m, v, master
 *  sgd              value, grad, m, [master], norm (), hyper (8)
 *  adafactor        value, grad, m (row statistics), v (column statistics), [master], norm (), hyper (8)
 *    hyper = {learning rate, max_norm (0: no clipping), 1 - beta1^t, 1 - beta2^t, step t, momentum, 0, 0} */
/* clang-format on */
#define GR_HYPER_COUNT 8
enum { GR_HYPER_LR, GR_HYPER_MAX_NORM, GR_HYPER_CORR1, GR_HYPER_CORR2, GR_HYPER_STEP, GR_HYPER_MOMENTUM };

typedef struct gr_cost {
    double flops, bytes;
} gr_cost;

typedef struct gr_op_info {
    const char *name;
    int inputs, outputs;
    unsigned optional, over, writes, padded, stored; /* sets of inputs, see ops.def */
    int base, bases, from; /* inputs [base, base + bases) belong to the outputs starting at `from` */
    bool list, view, pads, pads_alike, product;
    bool joins, swallows;
    int join_input;
    gr_op join_op, fuses[2];
    bool (*fuse)(by_graph *g, gr_node *n, bool across_blocks); /* true: the graph has changed */
    void (*show)(const void *attr, base_buf *b);
    by_status (*infer)(gr_node *n); /* fills type, rank, dim of every output */
    gr_cost (*cost)(const gr_node *n);
    /* Appends nodes that compute the gradients of the inputs from those of the outputs. dout[i] is NULL if
     * output i has no gradient. din[i] stays NULL if there is none, and is only needed where
     * gr_wants_grad(n->in[i]). */
    void (*grad)(by_graph *g, gr_node *n, by_tensor **dout, by_tensor **din);
    const char *no_gradient; /* the reason, if grad is NULL */
} gr_op_info;
extern const gr_op_info gr_ops[GR_OP_COUNT];

/* Whether the input is in one of the sets above. */
static inline bool gr_in_set(unsigned set, int input)
{
    return set >> input & 1;
}
/* The base input that output `out` is added into, or -1. */
static inline int gr_base_of(const gr_op_info *op, int out)
{
    return out >= op->from && out < op->from + op->bases ? op->base + out - op->from : -1;
}
/* Fusion rules and text of rows of the table. */
bool gr_fuse_residual_norm(by_graph *g, gr_node *norm, bool across_blocks); /* passes.c */
void gr_show_attention(const void *attr, base_buf *b);                      /* text.c */

static inline bool gr_wants_grad(const by_tensor *t)
{
    return t && t->needs_grad;
}

/* The accumulation type: that of sums and statistics. */
static inline by_dtype gr_acc_type(by_dtype t)
{
    return t == BY_F64 ? BY_F64 : BY_F32;
}

size_t gr_tensor_bytes(const by_tensor *t);
int64_t gr_tensor_rows(const by_tensor *t); /* product of all axes but the last; 1 for rank 0 and 1 */
int64_t gr_tensor_cols(const by_tensor *t); /* last axis; 1 for rank 0 */
/* Elements from one row to the next in memory. Only logits may have gaps between rows (gr_pitch). Only
 * linear, linear_dx, linear_dw, cross_entropy, log_probs, kl_divergence, the gradients of these three, argmax
 * and top read or write them, and must use this function. */
static inline int64_t gr_tensor_pitch(const by_tensor *t)
{
    return t->pitch ? t->pitch : t->rank ? t->dim[t->rank - 1] : 1;
}
/* Capacity in positions of a row of a cache (pages, P, C): in pages (B, n), or with NULL in one page. */
int64_t gr_cache_room(const by_tensor *cache, const by_tensor *pages);
const char *gr_tensor_label(const by_tensor *t); /* name or "op#index", never NULL, for messages */

/* ---- building (build.c) ---------------------------------------------------------------------- */

/* Replaces parameters, products and look-ups while a graph is built: adapters are attached to every layer of
 * every family here. A NULL result or member changes nothing. `user` must outlive by_compile(), which
 * rebuilds some blocks. */
typedef struct gr_hook {
    by_tensor *(*param)(void *user, by_graph *g, by_tensor *param);
    by_tensor *(*linear)(void *user, by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b,
                         const by_linear_spec *spec);
    by_tensor *(*gather)(void *user, by_graph *g, by_tensor *table, by_tensor *ids, int padding);
    /* The weights, with the full name `name`, of a head that is tied to a table. */
    by_tensor *(*tied)(void *user, by_graph *g, const char *name, by_tensor *table);
    /* The keys and values (B, T, C) of a layer's self-attention. past (B): positions already in the cache;
     * NULL: there is no cache, and the hook may prepend others. */
    void (*extend)(void *user, by_graph *g, int layer, by_tensor *past, const by_attention_spec *spec,
                   by_tensor **k, by_tensor **v);
    void *user;
} gr_hook;

struct by_graph {
    base_arena *arena;
    by_params *params;
    by_device *device;
    bool training, drops; /* drops: dropout is live */
    by_status status;
    char *message; /* of the first error, arena */
    by_tensor *poison;
    gr_node **nodes;
    int n_nodes, cap_nodes;
    by_tensor **leaves; /* inputs, parameters, states */
    int n_leaves, cap_leaves;
    char *scope;
    int scope_cuts[16], scope_depth;
    int block, n_blocks;
    const gr_hook *hook;                 /* NULL: none */
    bool backward;                       /* new nodes belong to the backward pass */
    struct gr_custom *custom, *replayed; /* the custom block being built, or rebuilt for its gradient */
};

/* A custom block (by_block_custom). */
typedef struct gr_custom {
    by_custom_spec spec;
    by_tensor **in, **out; /* arena */
    int n_in, n_out;
    gr_node **nodes; /* nodes of its forward pass, including those fused since; NULL: rebuilt */
    int n_nodes, cap_nodes;
    const char *scope;
    bool done; /* differentiated */
} gr_custom;

/* Appends a node: copies attr (attr_size bytes, may be 0) into the arena and infers its outputs. Returns
 * output 0, or the poison tensor. Optional inputs may be NULL; n_in may omit trailing ones. Returns NULL for
 * ops without an output; by_graph_status() reports errors. */
by_tensor *gr_node_add(by_graph *g, gr_op op, by_tensor *const *in, int n_in, const void *attr,
                       size_t attr_size);
/* The same, but returns the node itself (NULL if poisoned), for callers that need other outputs. */
gr_node *gr_node_make(by_graph *g, gr_op op, by_tensor *const *in, int n_in, const void *attr,
                      size_t attr_size);
by_tensor *gr_tensor_new(by_graph *g, by_dtype type, int rank, const int64_t *dim);
by_tensor *gr_grad_leaf(by_graph *g, by_tensor *param);
/* A parameter of any list by its full name, a product and a look-up, all bypassing the hook. */
by_tensor *gr_param_leaf(by_graph *g, by_params *list, const char *name, int rank, const int64_t *shape,
                         by_init init);
by_tensor *gr_linear_plain(by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b, const by_linear_spec *spec);
by_tensor *gr_gather_plain(by_graph *g, by_tensor *table, by_tensor *ids, int padding);
/* The weights of a head that is tied to a table, under their name relative to the scope. */
by_tensor *gr_tied_weights(by_graph *g, const char *name, by_tensor *table);
/* Whether the graph has an error, or is NULL because by_graph_new() failed. */
static inline bool gr_is_bad(const by_graph *g)
{
    return !g || g->status != BY_OK;
}
static inline by_tensor *gr_poison_of(const by_graph *g)
{
    return g ? g->poison : NULL;
}
by_tensor *gr_poison(by_graph *g); /* by_graph_fail with the current error of the thread */
by_status gr_set_output(gr_node *n, int i, by_dtype type, int rank, const int64_t *dim); /* for infer rules */
by_status gr_set_output_like(gr_node *n, int i, const by_tensor *t);
char *gr_shape_text(const by_tensor *t, char *buffer, size_t size); /* "(2, 3, 4) f32" */

/* ---- parameters (params.c) ------------------------------------------------------------------- */

typedef struct gr_param_info {
    char *name;
    int rank;
    int64_t dim[BY_MAX_RANK];
    int64_t count;
    by_dtype type;  /* storage type of the values: that of the list, or another if frozen */
    int64_t offset; /* offset in the training buffers in elements, a multiple of 64; -1: not in them */
    size_t at;      /* offset in the value buffer in bytes, a multiple of 256 */
    by_init init;
    float lr_scale;
    bool weight;                  /* read only by products and tables, so it may have its own storage type */
    bool decay, trainable, fixed; /* fixed: by_param_fixed, which ignores rates */
    void *mapped;                 /* value outside of the flat buffer (in a mapped file), usually NULL */
} gr_param_info;

struct by_params {
    by_device *device;
    by_dtype type;
    gr_param_info *list;
    int count, capacity;
    base_names *names;
    int64_t trained; /* elements of the training buffers, including padding */
    bool frozen, training;
    /* The five flat buffers in device memory. Values begin with the trained parameters, in the order of the
     * other four buffers; frozen parameters follow and exist only there. */
    void *value;                    /* type, trained parameters only */
    void *grad, *moment1, *moment2; /* acc type */
    void *master;                   /* f32; NULL if values are f32 or f64, or without_masters */
    bool without_masters;           /* only bf16 values are kept; updates are rounded stochastically */
    gr_segment *segments;
    int n_segments;
};
/* Elements of a parameter in a flat buffer, including zeros up to a multiple of GR_PARAM_ROWS rows. */
#define GR_PARAM_ROWS 64
int64_t gr_param_reserved(const gr_param_info *info);
/* Finds or adds a parameter. A new name in a frozen list, or a different shape under the same name, is an
 * error (-1). */
int gr_params_declare(by_params *p, const char *name, int rank, const int64_t *shape, by_init init);
/* Determines which of a graph's parameters are weights (gr_param_info.weight). */
void gr_params_find_weights(by_params *p, const by_graph *g);
/* Set from values of any type. */
by_status gr_params_set_typed(by_params *p, int i, by_slot slot, const void *values, by_dtype type);
void *gr_params_address(const by_params *p, int i, by_slot slot);
/* by_params_get for n values from `begin` on, which must exist. */
by_status gr_params_get_range(const by_params *p, int i, by_slot slot, size_t begin, size_t n, float *out);

/* ---- programs (program.c), differentiation (differentiate.c), passes (passes.c), memory plan (plan.c) -- */

by_status gr_differentiate(by_graph *g, by_tensor *loss, by_tensor *loss_scale, by_grad_mode mode);
/* Lets the rules of nodes [first, end) append the nodes of their gradients, the last node first. */
void gr_walk_back(by_graph *g, int first, int end);
/* t->grad += part, which is computed by nodes from `made` on. */
void gr_collect_grad(by_graph *g, by_tensor *t, by_tensor *part, int made);
by_status gr_custom_note(by_graph *g, gr_node *n); /* custom.c */
void gr_custom_replay(gr_custom *c, gr_node *n);
void gr_custom_differentiate(by_graph *g, gr_custom *c);
by_status gr_fuse(by_graph *g, bool across_blocks);
by_status gr_recompute(by_graph *g);
by_status gr_prune(by_graph *g);           /* drop unused nodes and outputs, number the rest */
void gr_pitch(by_graph *g, int row_bytes); /* pad rows of logits to a multiple of row_bytes */
by_status gr_preserve_states(by_graph *g); /* copy states that are read after they have been overwritten */
by_status gr_plan(by_graph *g, size_t *bytes); /* roots, offsets, peak */
void gr_join_pairs(by_graph *g);               /* find the partners of nodes; runs after the plan */

struct by_program {
    by_graph *graph;
    by_device *device;
    void *memory;  /* activations */
    bool borrowed; /* it is by_compile_spec.memory */
    size_t bytes;
    double flops;
    uint64_t seed, step;
    by_trace_fn trace;
    void *trace_user;
    bool only_times; /* do not read the results of the nodes */
    void *plan;      /* the backend's */
};

/* ---- devices --------------------------------------------------------------------------------- */

typedef struct gr_backend {
    const char *name;
    by_status (*alloc)(by_device *d, size_t bytes, void **out); /* zeroed, 64-byte aligned */
    void (*release)(by_device *d, void *memory);
    by_status (*upload)(by_device *d, void *to, const void *from, size_t bytes);
    by_status (*download)(by_device *d, void *to, const void *from, size_t bytes);
    by_status (*copy)(by_device *d, void *to, const void *from, size_t bytes); /* both on the device */
    by_status (*prepare)(by_program *p); /* per-node plans, once, at compile */
    by_status (*run)(by_program *p);
    void (*forget)(by_program *p); /* undo prepare */
    void (*close)(by_device *d);
    by_status (*wait)(by_device *d); /* wait until all started work is done; NULL: runs are synchronous */
    int row_bytes;                   /* pad rows of logits to a multiple of this many bytes; 0: no padding */
    bool joins;                      /* has kernels for pairs of nodes */
    int probe;                       /* side of the matrix product that measures the peak; 0: 1024 */
} gr_backend;

struct by_device {
    const gr_backend *backend;
    int threads;
    bool on_host; /* its memory is host memory: values stored there need no copy */
    char description[160];
    uint64_t changes; /* number of times parameter values were set from outside */
    void *impl;
};

struct by_memory {
    by_device *device;
    void *data;
    size_t bytes;
};

/* isa: "generic", "avx2", "avx512", "avx512bf16", NULL for the best available (src/cpu/backend.c). */
by_status gr_cpu_open(by_device *d, const char *isa, int threads);
/* An NVIDIA GPU (src/cuda/backend.cu): which = "", "1", "+tf32", "1+fp8". NULL in a build without CUDA. */
typedef by_status (*gr_opener)(by_device *d, const char *which, int threads);
extern gr_opener gr_cuda_opener;

/* ---- arguments of a kernel ------------------------------------------------------------------- */

typedef struct gr_exec {
    by_device *device;
    uint64_t seed, step;
    int threads;
    bool planning; /* CPU products: create n->plan, compute nothing */
} gr_exec;
typedef by_status (*cpu_kernel)(gr_exec *e, gr_node *n);

#endif
