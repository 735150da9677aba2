/* attention_case.h - attention kernels of every instruction set of this machine and every element type, against three nested
 * loops in double. Included after cmocka.h. */
#ifndef BY_TESTS_ATTENTION_CASE_H
#define BY_TESTS_ATTENTION_CASE_H

#include <math.h>
#include <stdio.h>

#include "cpu/cpu.h"
#include "graph/reach.h"

/* ---- the kernels of each instruction set ----------------------------------------------------- */

#define DECLARE(isa)                                            \
    by_status cpu_attention_##isa(gr_exec *e, gr_node *n);      \
    by_status cpu_attention_grad_##isa(gr_exec *e, gr_node *n); \
    by_status cpu_attention_cached_##isa(gr_exec *e, gr_node *n);

#define ROW(isa, supported) \
    {#isa, supported, cpu_attention_##isa, cpu_attention_grad_##isa, cpu_attention_cached_##isa},

typedef struct kernels {
    const char *name;
    bool (*supported)(void);
    cpu_kernel forward, backward, cached;
} kernels;

static inline bool always(void)
{
    return true;
}

DECLARE(generic)
#ifdef BY_HAVE_ISA_AVX2
DECLARE(avx2)
static inline bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#endif
#ifdef BY_HAVE_ISA_AVX512
DECLARE(avx512)
static inline bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
#ifdef BY_HAVE_ISA_AVX512BF16
DECLARE(avx512bf16)
static inline bool has_avx512bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

static const kernels all_kernels[] = {ROW(generic, always)
#ifdef BY_HAVE_ISA_AVX2
                                          ROW(avx2, has_avx2)
#endif
#ifdef BY_HAVE_ISA_AVX512
                                              ROW(avx512, has_avx512)
#endif
#ifdef BY_HAVE_ISA_AVX512BF16
                                                  ROW(avx512bf16, has_avx512bf16)
#endif
};

static by_device *device;
static uint64_t stream; /* of random numbers; rises from tensor to tensor */

/* Bounds on NMSE. f32: the design's. bf16: about four times what rounding the result costs, ulp^2 / 12, on average 2.3e-6 of its
 * square. f16 has three more bits, so its ulp is 8 times smaller. */
static inline double bound(by_dtype type)
{
    return type == BY_F64 ? 1e-24 : type == BY_F32 ? 1e-10 : type == BY_F16 ? 1e-5 / 64 : 1e-5;
}

/* For a tensor in which one number may outweigh all others: that may be off by half a unit in the last place.
 */
static inline double bound_of_one(by_dtype type)
{
    return type == BY_F16 ? 0x1p-22 : type == BY_BF16 ? 0x1p-16 : bound(type);
}

/* ---- tensors made by hand, with a guard behind them ------------------------------------------ */

enum { GUARD = 64 };

static inline by_tensor *tensor(by_dtype type, int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
    by_tensor *t = base_alloc_zero(1, sizeof *t);
    assert_non_null(t);
    *t = (by_tensor){.type = type, .rank = rank, .dim = {d0, d1, d2, d3}};
    size_t bytes = by_dtype_size(type) * (size_t)(d0 * d1 * d2 * d3);
    t->data = base_alloc_aligned(bytes + GUARD);
    assert_non_null(t->data);
    memset(t->data, 0xff, bytes); /* NaN in every type: what is not written shows */
    memset((char *)t->data + bytes, 0x5a, GUARD);
    return t;
}

static inline size_t elements(const by_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < 4; i++)
        n *= (size_t)t->dim[i];
    return n;
}

static inline void drop(by_tensor *t)
{
    if (!t)
        return;
    const unsigned char *guard = (const unsigned char *)t->data + by_dtype_size(t->type) * elements(t);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(guard[i], 0x5a);
    base_free(t->data);
    base_free(t);
}

static inline void fill_normal(by_tensor *t)
{
    size_t n = elements(t);
    float *f = base_alloc(n * sizeof *f);
    assert_non_null(f);
    base_rng_fill_normal(f, n, 11, stream++, 0, 1);
    base_convert(t->data, t->type, f, BY_F32, n);
    base_free(f);
}

static inline double *as_double(const by_tensor *t)
{
    double *d = base_alloc((elements(t) + 1) * sizeof *d);
    assert_non_null(d);
    base_convert(d, BY_F64, t->data, t->type, elements(t));
    return d;
}

/* Mean square error over mean square of what is expected, or of `sizes`. Inputs are of size 1, so a tensor
 * whose exact values happen to be tiny is not held to more than a hundredth of that. */
static inline void assert_within(const char *what, const by_tensor *t, const double *expected,
                                 const double *sizes, double allowed)
{
    double *got = as_double(t), error = 0, size = 0;
    size_t n = elements(t);
    for (size_t i = 0; i < n; i++) {
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
        size += sizes[i] * sizes[i];
    }
    size = size > 0.01 * (double)n ? size : 0.01 * (double)n;
    base_free(got);
    if (!(error <= allowed * size))
        fail_msg("%s: NMSE %g (%s)", what, error / size, by_dtype_name(t->type));
}

static inline void assert_close(const char *what, const by_tensor *t, const double *expected)
{
    assert_within(what, t, expected, expected, bound(t->type));
}

/* ---- the reference --------------------------------------------------------------------------- */

typedef struct problem {
    int64_t b, t, s;
    int h, kv, d;
    bool packed, causal, masked;
    float dropout;
    bool prefixed; /* causal, but for a prefix */
    by_pattern pattern;
    int bias;        /* its axes, of those below; 0: none */
    int64_t entries; /* by distance: of a row of it; 0: a bias by key */
    int zero;
    int second; /* axes of a bias by key besides one by distance */
    int pairs;  /* axes of a pair mask */
    bool bytes; /* which is u8 */
    int block;  /* and has an entry for this many queries and keys; 0: one */
    bool empty_zero;
} problem;

enum { BIAS = 1, BIAS_BATCH = 2, BIAS_HEAD = 4, BIAS_ROW = 8, BIAS_ALL = 15 }; /* axes that do not repeat */

/* Axes of the bias by key (0) and of the one by distance (1). */
static inline int axes_of(const problem *p, int which)
{
    return which ? (p->entries ? p->bias : 0) : p->entries ? p->second : p->bias;
}

static inline const gr_attention_attr *attributes(const problem *p)
{
    static gr_attention_attr a;
    a = (gr_attention_attr){.spec = {.heads = p->h,
                                     .kv_heads = p->kv,
                                     .mask = p->prefixed ? BY_MASK_PREFIX
                                             : p->causal ? BY_MASK_CAUSAL
                                                         : BY_MASK_NONE,
                                     .pattern = p->pattern,
                                     .relative_zero = p->zero,
                                     .pair_block = p->block,
                                     .empty_zero = p->empty_zero,
                                     .scale = 0.75f / sqrtf((float)p->d),
                                     .dropout = p->dropout},
                            .head_dim = p->d,
                            .packed = p->packed};
    return &a;
}

static inline gr_exec execution(int threads)
{
    return (gr_exec){.device = device, .seed = 0x123456789abcull, .step = 7, .threads = threads};
}

/* 0 or 1 / (1 - p) for weight (b, h, t, s), as tile.h says. */
static inline double kept(const problem *p, int64_t b, int64_t h, int64_t t, int64_t s)
{
    if (p->dropout == 0)
        return 1;
    gr_exec e = execution(1);
    uint64_t i = (uint64_t)(((b * p->h + h) * p->s + s) * ((p->t + 3) / 4 * 4) + t);
    uint32_t u = base_philox_at(e.seed, e.step << 32 | 5u, i / 4).v[i % 4];
    return (double)u >= floor((double)p->dropout * 4294967296.0) ? 1 / (1 - (double)p->dropout) : 0;
}

typedef struct reference {
    double *q, *k, *v, *dy; /* (B, T, H, D), (B, S, Hkv, D) */
    double *y, *lse, *w, *dq, *dk, *dv, *dbias[2];
    double *dbias_size[2]; /* sums of what dbias is summed of, without signs: much of it cancels out */
    double *bias[2];       /* by key and by distance: rows of `entries`; NULL: none */
    double *pairs;         /* rows of keys; NULL: none */
    int64_t entries[2], keys;
    /* borrowed, NULL: none */
    const int32_t *mask, *prefix;
} reference;

static inline void reference_free(reference *r)
{
    double *all[] = {
        r->q,       r->k,       r->v,    r->dy,       r->y,        r->lse,           r->w,
        r->dq,      r->dk,      r->dv,   r->dbias[0], r->dbias[1], r->dbias_size[0], r->dbias_size[1],
        r->bias[0], r->bias[1], r->pairs};
    for (int i = 0; i < BY_COUNT(all); i++)
        base_free(all[i]);
}

static inline double *zeros(int64_t n)
{
    double *d = base_alloc_zero((size_t)n, sizeof *d);
    assert_non_null(d);
    return d;
}

/* Whether the pattern lets the query at position p see key s: banyan/graph.h, word by word. */
static inline bool in_pattern(const by_pattern *x, double p, double s)
{
    const double l = x->length, ps = floor(p / l), ss = floor(s / l);
    bool first, second;
    switch (x->kind) {
    case BY_PATTERN_WINDOW:
        return -x->before <= s - p && s - p <= x->after;
    case BY_PATTERN_SINKS:
        return (-x->before <= s - p && s - p <= x->after) || s < l;
    case BY_PATTERN_BLOCKS:
        return -x->before <= ss - ps && ss - ps <= x->after;
    case BY_PATTERN_MEMORY:
        return s >= ps * l - x->before;
    case BY_PATTERN_STRIDED:
        first = fabs(p - s) < l;
        second = fmod(p - s, l) == 0;
        break;
    case BY_PATTERN_FIXED:
        first = ps == ss;
        second = fmod(s, l) >= l - x->after;
        break;
    default:
        return true;
    }
    return x->part == 0 ? first || second : x->part == 1 ? first : second;
}

/* The row of (b, h, t) in a tensor with these axes and `rows` for every head. */
static inline int64_t row_in(const problem *p, int axes, int64_t b, int64_t h, int64_t t, int64_t rows)
{
    int64_t row = axes & BIAS_BATCH ? b : 0;
    row = axes & BIAS_HEAD ? row * p->h + h : row;
    return axes & BIAS_ROW ? row * rows + t : row;
}

static inline int64_t row_of(const problem *p, int axes, int64_t b, int64_t h, int64_t t)
{
    return row_in(p, axes, b, h, t, p->t);
}

/* Blocks of n queries or keys. */
static inline int64_t blocks_of(const problem *p, int64_t n)
{
    const int64_t block = p->block ? p->block : 1;
    return (n + block - 1) / block;
}

static inline bool visible(const problem *p, const reference *r, int64_t b, int64_t h, int64_t t, int64_t s)
{
    const int64_t block = p->block ? p->block : 1, rows = blocks_of(p, p->t);
    if (r->pairs && r->pairs[row_in(p, p->pairs, b, h, t / block, rows) * r->keys + s / block] == 0)
        return false;

    const int64_t at = p->s - p->t + t;
    if ((p->causal || p->prefixed) && s > at && !(p->prefixed && s < r->prefix[b]))
        return false;
    by_pattern own = p->pattern;
    if (own.part == 3)
        own.part = h < p->h / 2 ? 1 : 2;
    return in_pattern(&own, (double)at, (double)s) && (!r->mask || r->mask[b * p->s + s]);
}

/* Where bias `which` of a score lies. */
static inline int64_t bias_place(const problem *p, const reference *r, int which, int64_t b, int64_t h,
                                 int64_t t, int64_t s)
{
    int64_t i = s;
    if (which) {
        i = s - (p->s - p->t + t) + p->zero;
        i = i < 0 ? 0 : i >= p->entries ? p->entries - 1 : i;
    }
    return row_of(p, axes_of(p, which), b, h, t) * r->entries[which] + i;
}

/* Weights of one query in w (S), its log-sum-exp, -infinity when it sees nothing. */
static inline double weigh(const problem *p, const reference *r, int64_t b, int64_t h, int64_t t,
                           const double *q, const double *k, double *w)
{
    double top = -INFINITY, sum = 0;
    for (int64_t s = 0; s < p->s; s++) {
        w[s] = 0;
        for (int d = 0; d < p->d; d++)
            w[s] += q[d] * k[s * p->kv * p->d + d] * (double)attributes(p)->spec.scale;
        for (int i = 0; i < 2; i++)
            w[s] += r->bias[i] ? r->bias[i][bias_place(p, r, i, b, h, t, s)] : 0;
        w[s] = visible(p, r, b, h, t, s) ? w[s] : -INFINITY;
        top = fmax(top, w[s]);
    }
    for (int64_t s = 0; s < p->s; s++)
        sum += w[s] = top == -INFINITY ? 1 : exp(w[s] - top);
    for (int64_t s = 0; s < p->s; s++)
        w[s] = top == -INFINITY && p->empty_zero ? 0 : w[s] / sum;
    return top + log(sum);
}

/* y, lse and the weights from q, k and v. */
static inline void compute(const problem *p, reference *r)
{
    const int64_t qs = p->h * p->d, ks = p->kv * p->d;
    r->y = zeros(p->b * p->t * qs);
    r->lse = zeros(p->b * p->h * p->t);
    r->w = zeros(p->b * p->h * p->t * p->s);
    for (int64_t i = 0; i < p->b * p->h * p->t; i++) {
        const int64_t b = i / (p->h * p->t), h = i / p->t % p->h, t = i % p->t;
        const int64_t at = (b * p->t + t) * qs + h * p->d, kv = b * p->s * ks + h / (p->h / p->kv) * p->d;
        double *w = r->w + i * p->s;
        r->lse[i] = weigh(p, r, b, h, t, r->q + at, r->k + kv, w);
        for (int64_t s = 0; s < p->s; s++)
            for (int d = 0; d < p->d; d++)
                r->y[at + d] += kept(p, b, h, t, s) * w[s] * r->v[kv + s * ks + d];
    }
}

/* dq, dk, dv and dbias; y is the one given to the kernel, rounded to its type. */
static inline void differentiate(const problem *p, const double *y, reference *r)
{
    const int64_t qs = p->h * p->d, ks = p->kv * p->d;
    r->dq = zeros(p->b * p->t * qs), r->dk = zeros(p->b * p->s * ks), r->dv = zeros(p->b * p->s * ks);
    for (int i = 0; i < 2; i++) {
        r->dbias[i] = zeros(p->b * p->h * p->t * r->entries[i]); /* of their largest size */
        r->dbias_size[i] = zeros(p->b * p->h * p->t * r->entries[i]);
    }
    for (int64_t i = 0; i < p->b * p->h * p->t; i++) {
        const int64_t b = i / (p->h * p->t), h = i / p->t % p->h, t = i % p->t;
        const int64_t at = (b * p->t + t) * qs + h * p->d, kv = b * p->s * ks + h / (p->h / p->kv) * p->d;
        const double *w = r->w + i * p->s, *dy = r->dy + at;
        double delta = 0;
        for (int d = 0; d < p->d; d++)
            delta += dy[d] * y[at + d];
        for (int64_t s = 0; s < p->s; s++) {
            const int64_t key = kv + s * ks;
            double keep = kept(p, b, h, t, s), dp = 0;
            for (int d = 0; d < p->d; d++) {
                r->dv[key + d] += keep * w[s] * dy[d];
                dp += keep * r->v[key + d] * dy[d];
            }
            double ds = w[s] * (dp - delta);
            for (int j = 0; j < 2; j++)
                if (r->bias[j]) {
                    r->dbias[j][bias_place(p, r, j, b, h, t, s)] += ds;
                    r->dbias_size[j][bias_place(p, r, j, b, h, t, s)] += fabs(ds);
                }
            ds *= (double)attributes(p)->spec.scale;
            for (int d = 0; d < p->d; d++) {
                r->dq[at + d] += ds * r->k[key + d];
                r->dk[key + d] += ds * r->q[at + d];
            }
        }
    }
}

/* ---- one problem on the kernels -------------------------------------------------------------- */

typedef struct operands {
    by_tensor *q, *k, *v, *mask, *prefix, *bias[2], *pairs, *dy; /* k and v are NULL when packed */
    by_tensor *y, *lse, *weights, *dq, *dk, *dv, *dbias[2];
} operands;

/* A part of the last axis, [first, first + count), of a tensor as double. */
static inline double *columns(const by_tensor *t, int64_t first, int64_t count)
{
    double *all = as_double(t), *d = zeros(t->dim[0] * t->dim[1] * count);
    for (int64_t r = 0; r < t->dim[0] * t->dim[1]; r++)
        memcpy(d + r * count, all + r * t->dim[2] + first, sizeof *d * (size_t)count);
    base_free(all);
    return d;
}

static inline by_tensor *bias_tensor(const problem *p, int axes, by_dtype type, int64_t entries)
{
    return tensor(type, 4, axes & BIAS_BATCH ? p->b : 1, axes & BIAS_HEAD ? p->h : 1,
                  axes & BIAS_ROW ? p->t : 1, entries);
}

/* Two pairs in three are seen; the first row sees nothing. */
static inline by_tensor *pair_tensor(const problem *p, int64_t keys)
{
    problem blocks = *p;
    blocks.t = blocks_of(p, p->t);
    keys = blocks_of(p, keys);
    by_tensor *t = bias_tensor(&blocks, p->pairs, p->bytes ? BY_U8 : BY_I32, keys);
    for (size_t i = 0; i < elements(t); i++) {
        const int seen = (int64_t)i >= keys && base_philox_at(4, 0, i).v[0] % 3 != 0;
        if (p->bytes)
            ((uint8_t *)t->data)[i] = (uint8_t)seen;
        else
            ((int32_t *)t->data)[i] = seen;
    }
    return t;
}

/* For `keys` keys, those of the problem or those that a cache has room for. */
static inline operands make_operands(const problem *p, by_dtype type, int64_t keys)
{
    const int64_t qs = p->h * p->d, ks = p->kv * p->d;
    operands o = {.q = tensor(type, 3, p->b, p->t, p->packed ? qs + 2 * ks : qs, 1),
                  .dy = tensor(type, 3, p->b, p->t, qs, 1),
                  .y = tensor(type, 3, p->b, p->t, qs, 1),
                  .lse = tensor(gr_acc_type(type), 3, p->b, p->h, p->t, 1),
                  .weights = tensor(type, 4, p->b, p->h, p->t, p->s),
                  .dq = tensor(type, 3, p->b, p->t, p->packed ? qs + 2 * ks : qs, 1)};
    fill_normal(o.q);
    fill_normal(o.dy);
    if (!p->packed) {
        by_tensor **four[] = {&o.k, &o.v, &o.dk, &o.dv};
        for (int i = 0; i < 4; i++)
            *four[i] = tensor(type, 3, p->b, p->s, ks, 1);
        fill_normal(o.k);
        fill_normal(o.v);
    }
    if (p->masked) {
        o.mask = tensor(BY_I32, 2, p->b, keys, 1, 1);
        int32_t *m = o.mask->data;
        for (int64_t i = 0; i < p->b * keys;
             i++) /* the first batch row sees nothing; of others, 2 keys in 3 */
            m[i] = i < keys ? 0 : base_philox_at(3, 0, (uint64_t)i).v[0] % 3 != 0;
    }
    if (p->prefixed) {
        o.prefix = tensor(BY_I32, 1, p->b, 1, 1, 1);
        for (int64_t b = 0; b < p->b; b++) /* some, none, all of it and more */
            ((int32_t *)o.prefix->data)[b] = (int32_t)(b % 3 == 0   ? keys / 2 + 1
                                                       : b % 3 == 1 ? -1
                                                                    : keys + 7);
    }
    for (int i = 0; i < 2; i++)
        if (axes_of(p, i)) {
            o.bias[i] = bias_tensor(p, axes_of(p, i), type, i ? p->entries : keys);
            o.dbias[i] = bias_tensor(p, axes_of(p, i), type, i ? p->entries : keys);
            fill_normal(o.bias[i]);
        }
    if (p->pairs)
        o.pairs = pair_tensor(p, keys);
    return o;
}

/* What the reference reads of the operands besides queries, keys and values. */
static inline void give_sight(const operands *o, reference *r)
{
    r->mask = o->mask ? o->mask->data : NULL;
    r->prefix = o->prefix ? o->prefix->data : NULL;
    r->pairs = o->pairs ? as_double(o->pairs) : NULL;
    r->keys = o->pairs ? o->pairs->dim[3] : 0;
    for (int i = 0; i < 2; i++) {
        r->bias[i] = o->bias[i] ? as_double(o->bias[i]) : NULL;
        r->entries[i] = o->bias[i] ? o->bias[i]->dim[3] : 0;
    }
}

static inline void drop_operands(operands *o)
{
    by_tensor *all[] = {o->q,       o->k,     o->v,  o->mask,     o->prefix,  o->bias[0],
                        o->bias[1], o->pairs, o->dy, o->y,        o->lse,     o->weights,
                        o->dq,      o->dk,    o->dv, o->dbias[0], o->dbias[1]};
    for (int i = 0; i < BY_COUNT(all); i++)
        drop(all[i]);
}

static inline void forward(const kernels *k, const problem *p, const operands *o, int threads, bool weights)
{
    gr_exec e = execution(threads);
    gr_attention_attr a = *attributes(p);
    gr_node n = {.op = GR_OP_ATTENTION,
                 .n_in = GR_ATT_SHARED,
                 .n_out = 3,
                 .in = {o->q, o->k, o->v, o->mask, o->prefix, o->bias[0], o->bias[1], o->pairs},
                 .out = {o->y, o->lse, weights ? o->weights : NULL},
                 .attr = &a,
                 .rng = 5};
    assert_int_equal(k->forward(&e, &n), BY_OK);
}

static inline void backward(const kernels *k, const problem *p, const operands *o, int threads)
{
    gr_exec e = execution(threads);
    gr_attention_attr a = *attributes(p);
    gr_node n = {
        .op = GR_OP_ATTENTION_GRAD,
        .n_in = GR_ATT_SHARED + 3,
        .n_out = 5,
        .in = {o->q, o->k, o->v, o->mask, o->prefix, o->bias[0], o->bias[1], o->pairs, o->y, o->lse, o->dy},
        .out = {o->dq, o->dk, o->dv, o->dbias[0], o->dbias[1]},
        .attr = &a,
        .rng = 5};
    assert_int_equal(k->backward(&e, &n), BY_OK);
}

static inline void check_lse(const operands *o, const reference *r)
{
    double *got = as_double(o->lse);
    for (size_t i = 0; i < elements(o->lse); i++) {
        if (r->lse[i] == -INFINITY)
            assert_true(got[i] == -INFINITY);
        else if (!(fabs(got[i] - r->lse[i]) <= (o->lse->type == BY_F64 ? 1e-12 : 1e-5)))
            fail_msg("log-sum-exp %zu: %g, not %g", i, got[i], r->lse[i]);
    }
    base_free(got);
}

static inline void check_gradients(const problem *p, const operands *o, const reference *r)
{
    for (int i = 0; i < 2; i++)
        if (o->dbias[i])
            assert_within("dbias", o->dbias[i], r->dbias[i], r->dbias_size[i],
                          bound_of_one(o->dbias[i]->type));
    if (!p->packed) {
        assert_close("dq", o->dq, r->dq);
        assert_close("dk", o->dk, r->dk);
        assert_close("dv", o->dv, r->dv);
        return;
    }
    const int64_t qs = p->h * p->d, ks = p->kv * p->d;
    double *all = zeros((int64_t)elements(o->dq));
    for (int64_t row = 0; row < p->b * p->t; row++) {
        double *to = all + row * (qs + 2 * ks);
        memcpy(to, r->dq + row * qs, sizeof *to * (size_t)qs);
        memcpy(to + qs, r->dk + row * ks, sizeof *to * (size_t)ks);
        memcpy(to + qs + ks, r->dv + row * ks, sizeof *to * (size_t)ks);
    }
    assert_close("packed gradient", o->dq, all);
    base_free(all);
}

static inline void same_bits(const by_tensor *a, const void *b)
{
    assert_memory_equal(a->data, b, by_dtype_size(a->type) * elements(a));
}

static inline void *copy_of(const by_tensor *t)
{
    size_t bytes = by_dtype_size(t->type) * elements(t);
    void *c = base_alloc(bytes);
    assert_non_null(c);
    memcpy(c, t->data, bytes);
    return c;
}

/* Forward with and without weights, backward; then all of it with other numbers of threads, which change no
 * bit. */
static inline void check(const kernels *k, by_dtype type, const problem *p)
{
    operands o = make_operands(p, type, p->s);
    const int64_t qs = p->h * p->d, ks = p->kv * p->d;
    reference r = {.q = columns(o.q, 0, qs), .dy = as_double(o.dy)};
    r.k = p->packed ? columns(o.q, qs, ks) : as_double(o.k);
    r.v = p->packed ? columns(o.q, qs + ks, ks) : as_double(o.v);
    give_sight(&o, &r);
    compute(p, &r);

    forward(k, p, &o, 1, true);
    assert_close("y, with weights", o.y, r.y);
    assert_close("weights", o.weights, r.w);
    check_lse(&o, &r);
    forward(k, p, &o, 1, false);
    assert_close("y", o.y, r.y);
    check_lse(&o, &r);
    double *y = as_double(o.y);
    differentiate(p, y, &r);
    base_free(y);
    backward(k, p, &o, 1);
    check_gradients(p, &o, &r);

    by_tensor *results[] = {o.y, o.lse, o.dq, o.dk, o.dv, o.dbias[0], o.dbias[1]};
    void *copies[BY_COUNT(results)];
    for (int i = 0; i < BY_COUNT(results); i++)
        copies[i] = results[i] ? copy_of(results[i]) : NULL;
    for (int threads = 2; threads <= 32; threads *= 4) {
        forward(k, p, &o, threads, false);
        backward(k, p, &o, threads);
        for (int i = 0; i < BY_COUNT(results); i++)
            if (results[i])
                same_bits(results[i], copies[i]);
    }
    for (int i = 0; i < BY_COUNT(results); i++)
        base_free(copies[i]);
    reference_free(&r);
    drop_operands(&o);
}

/* check() on every instruction set and type. */
static inline void check_everywhere(const problem *p)
{
    for (int i = 0; i < BY_COUNT(all_kernels); i++) {
        if (!all_kernels[i].supported())
            continue;
        for (int type = BY_F32; type <= BY_F64; type++)
            if (type != BY_F64 || i == 0)
                check(&all_kernels[i], (by_dtype)type, p);
    }
}

/* check() in f64, and on the next of all instruction sets and types, for problems that are many. */
static inline void check_in_turn(const problem *p)
{
    static int turn;
    check(&all_kernels[0], BY_F64, p);
    for (int tries = 0; tries < BY_COUNT(all_kernels); tries++, turn++) {
        const int i = turn / 3 % BY_COUNT(all_kernels);
        if (!all_kernels[i].supported())
            continue;
        check(&all_kernels[i], (by_dtype)(BY_F32 + turn++ % 3), p);
        return;
    }
}

static inline int open_device(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device ? 0 : -1;
}

static inline int close_device(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

#endif
