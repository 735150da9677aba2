/* test_attention.c - attention, its gradient and attention over a cache, of every instruction set of this
 * machine and every element type, against three nested loops in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

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

static bool always(void)
{
    return true;
}

DECLARE(generic)
#ifdef BY_HAVE_ISA_AVX2
DECLARE(avx2)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#endif
#ifdef BY_HAVE_ISA_AVX512
DECLARE(avx512)
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif
#ifdef BY_HAVE_ISA_AVX512BF16
DECLARE(avx512bf16)
static bool has_avx512bf16(void)
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
static double bound(by_dtype type)
{
    return type == BY_F64 ? 1e-24 : type == BY_F32 ? 1e-10 : type == BY_F16 ? 1e-5 / 64 : 1e-5;
}

/* For a tensor in which one number may outweigh all others: that may be off by half a unit in the last place.
 */
static double bound_of_one(by_dtype type)
{
    return type == BY_F16 ? 0x1p-22 : type == BY_BF16 ? 0x1p-16 : bound(type);
}

/* ---- tensors made by hand, with a guard behind them ------------------------------------------ */

enum { GUARD = 64 };

static by_tensor *tensor(by_dtype type, int rank, int64_t d0, int64_t d1, int64_t d2, int64_t d3)
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

static size_t elements(const by_tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < 4; i++)
        n *= (size_t)t->dim[i];
    return n;
}

static void drop(by_tensor *t)
{
    if (!t)
        return;
    const unsigned char *guard = (const unsigned char *)t->data + by_dtype_size(t->type) * elements(t);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(guard[i], 0x5a);
    base_free(t->data);
    base_free(t);
}

static void fill_normal(by_tensor *t)
{
    size_t n = elements(t);
    float *f = base_alloc(n * sizeof *f);
    assert_non_null(f);
    base_rng_fill_normal(f, n, 11, stream++, 0, 1);
    base_convert(t->data, t->type, f, BY_F32, n);
    base_free(f);
}

static double *as_double(const by_tensor *t)
{
    double *d = base_alloc((elements(t) + 1) * sizeof *d);
    assert_non_null(d);
    base_convert(d, BY_F64, t->data, t->type, elements(t));
    return d;
}

/* Mean square error over mean square of what is expected, or of `sizes`. Inputs are of size 1, so a tensor
 * whose exact values happen to be tiny is not held to more than a hundredth of that. */
static void assert_within(const char *what, const by_tensor *t, const double *expected, const double *sizes,
                          double allowed)
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

static void assert_close(const char *what, const by_tensor *t, const double *expected)
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
static int axes_of(const problem *p, int which)
{
    return which ? (p->entries ? p->bias : 0) : p->entries ? p->second : p->bias;
}

static const gr_attention_attr *attributes(const problem *p)
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

static gr_exec execution(int threads)
{
    return (gr_exec){.device = device, .seed = 0x123456789abcull, .step = 7, .threads = threads};
}

/* 0 or 1 / (1 - p) for weight (b, h, t, s), as tile.h says. */
static double kept(const problem *p, int64_t b, int64_t h, int64_t t, int64_t s)
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

static void reference_free(reference *r)
{
    double *all[] = {
        r->q,       r->k,       r->v,    r->dy,       r->y,        r->lse,           r->w,
        r->dq,      r->dk,      r->dv,   r->dbias[0], r->dbias[1], r->dbias_size[0], r->dbias_size[1],
        r->bias[0], r->bias[1], r->pairs};
    for (int i = 0; i < BY_COUNT(all); i++)
        base_free(all[i]);
}

static double *zeros(int64_t n)
{
    double *d = base_alloc_zero((size_t)n, sizeof *d);
    assert_non_null(d);
    return d;
}

/* Whether the pattern lets the query at position p see key s: banyan/graph.h, word by word. */
static bool in_pattern(const by_pattern *x, double p, double s)
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
static int64_t row_in(const problem *p, int axes, int64_t b, int64_t h, int64_t t, int64_t rows)
{
    int64_t row = axes & BIAS_BATCH ? b : 0;
    row = axes & BIAS_HEAD ? row * p->h + h : row;
    return axes & BIAS_ROW ? row * rows + t : row;
}

static int64_t row_of(const problem *p, int axes, int64_t b, int64_t h, int64_t t)
{
    return row_in(p, axes, b, h, t, p->t);
}

/* Blocks of n queries or keys. */
static int64_t blocks_of(const problem *p, int64_t n)
{
    const int64_t block = p->block ? p->block : 1;
    return (n + block - 1) / block;
}

static bool visible(const problem *p, const reference *r, int64_t b, int64_t h, int64_t t, int64_t s)
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
static int64_t bias_place(const problem *p, const reference *r, int which, int64_t b, int64_t h, int64_t t,
                          int64_t s)
{
    int64_t i = s;
    if (which) {
        i = s - (p->s - p->t + t) + p->zero;
        i = i < 0 ? 0 : i >= p->entries ? p->entries - 1 : i;
    }
    return row_of(p, axes_of(p, which), b, h, t) * r->entries[which] + i;
}

/* Weights of one query in w (S), its log-sum-exp, -infinity when it sees nothing. */
static double weigh(const problem *p, const reference *r, int64_t b, int64_t h, int64_t t, const double *q,
                    const double *k, double *w)
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
static void compute(const problem *p, reference *r)
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
static void differentiate(const problem *p, const double *y, reference *r)
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
static double *columns(const by_tensor *t, int64_t first, int64_t count)
{
    double *all = as_double(t), *d = zeros(t->dim[0] * t->dim[1] * count);
    for (int64_t r = 0; r < t->dim[0] * t->dim[1]; r++)
        memcpy(d + r * count, all + r * t->dim[2] + first, sizeof *d * (size_t)count);
    base_free(all);
    return d;
}

static by_tensor *bias_tensor(const problem *p, int axes, by_dtype type, int64_t entries)
{
    return tensor(type, 4, axes & BIAS_BATCH ? p->b : 1, axes & BIAS_HEAD ? p->h : 1,
                  axes & BIAS_ROW ? p->t : 1, entries);
}

/* Two pairs in three are seen; the first row sees nothing. */
static by_tensor *pair_tensor(const problem *p, int64_t keys)
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
static operands make_operands(const problem *p, by_dtype type, int64_t keys)
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
static void give_sight(const operands *o, reference *r)
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

static void drop_operands(operands *o)
{
    by_tensor *all[] = {o->q,       o->k,     o->v,  o->mask,     o->prefix,  o->bias[0],
                        o->bias[1], o->pairs, o->dy, o->y,        o->lse,     o->weights,
                        o->dq,      o->dk,    o->dv, o->dbias[0], o->dbias[1]};
    for (int i = 0; i < BY_COUNT(all); i++)
        drop(all[i]);
}

static void forward(const kernels *k, const problem *p, const operands *o, int threads, bool weights)
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

static void backward(const kernels *k, const problem *p, const operands *o, int threads)
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

static void check_lse(const operands *o, const reference *r)
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

static void check_gradients(const problem *p, const operands *o, const reference *r)
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

static void same_bits(const by_tensor *a, const void *b)
{
    assert_memory_equal(a->data, b, by_dtype_size(a->type) * elements(a));
}

static void *copy_of(const by_tensor *t)
{
    size_t bytes = by_dtype_size(t->type) * elements(t);
    void *c = base_alloc(bytes);
    assert_non_null(c);
    memcpy(c, t->data, bytes);
    return c;
}

/* Forward with and without weights, backward; then all of it with other numbers of threads, which change no
 * bit. */
static void check(const kernels *k, by_dtype type, const problem *p)
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
static void check_everywhere(const problem *p)
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
static void check_in_turn(const problem *p)
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

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_shapes(void **state)
{
    (void)state;
    static const problem problems[] = {
        {1, 1, 1, 1, 1, 8, .causal = true},
        {2, 1, 70, 3, 3, 16, .dropout = 0},
        {1, 2, 130, 2, 1, 64, .dropout = 0},
        {2, 4, 9, 4, 2, 33, .causal = true},
        {1, 5, 5, 2, 2, 12, .packed = true, .causal = true},
        {2, 16, 16, 2, 1, 20, .packed = true},
        {1, 17, 64, 2, 2, 48, .causal = true},
        {1, 63, 65, 1, 1, 24, .dropout = 0},
        {2, 64, 64, 3, 3, 64, .packed = true, .causal = true},
        {1, 65, 65, 4, 2, 40, .packed = true, .causal = true},
        {1, 65, 129, 2, 2, 9, .causal = true},
        {1, 130, 130, 2, 1, 31, .causal = true},
        {1, 77, 130, 1, 1, 256, .dropout = 0},
        {1, 128, 128, 6, 1, 16, .packed = true, .causal = true},
        {1, 100, 37, 1, 1, 128, .causal = true}, /* the first 63 queries see nothing */
        {1, 3, 2, 1, 1, 10, .causal = true},
    };
    for (int i = 0; i < BY_COUNT(problems); i++)
        check_everywhere(&problems[i]);
}

/* The first batch row sees nothing at all; in the others, queries before the first seen key. */
static void test_key_mask(void **state)
{
    (void)state;
    static const problem problems[] = {
        {3, 1, 40, 2, 2, 16, .masked = true},
        {2, 3, 90, 2, 1, 19, .masked = true, .causal = true},
        {2, 70, 70, 2, 2, 32, .masked = true, .packed = true},
        {3, 80, 80, 4, 2, 16, .masked = true, .packed = true, .causal = true},
        {2, 40, 130, 2, 2, 13, .masked = true, .causal = true},
    };
    for (int i = 0; i < BY_COUNT(problems); i++)
        check_everywhere(&problems[i]);
}

static void test_dropout(void **state)
{
    (void)state;
    static const problem problems[] = {
        {1, 1, 30, 2, 2, 16, .dropout = 0.25f},
        {2, 67, 67, 2, 1, 24, .dropout = 0.1f, .packed = true, .causal = true},
        {2, 50, 90, 2, 2, 16, .dropout = 0.5f, .masked = true},
    };
    for (int i = 0; i < BY_COUNT(problems); i++)
        check_everywhere(&problems[i]);
}

static const by_pattern patterns[] = {
    {BY_PATTERN_WINDOW, .before = 5, .after = 3},
    {BY_PATTERN_WINDOW, .before = 70, .after = -2}, /* not its own position */
    {BY_PATTERN_WINDOW, .before = -3, .after = 40},
    {BY_PATTERN_WINDOW, .before = 1000000, .after = 1000000},
    {BY_PATTERN_BLOCKS, .length = 13},
    {BY_PATTERN_BLOCKS, .length = 64, .before = 1},
    {BY_PATTERN_BLOCKS, .length = 7, .before = 2, .after = 1},
    {BY_PATTERN_STRIDED, .length = 1},
    {BY_PATTERN_STRIDED, .length = 9},
    {BY_PATTERN_STRIDED, .length = 70},
    {BY_PATTERN_STRIDED, .length = 9, .part = 1},
    {BY_PATTERN_STRIDED, .length = 100, .part = 2},
    {BY_PATTERN_FIXED, .length = 8, .after = 2},
    {BY_PATTERN_FIXED, .length = 90, .after = 90},
    {BY_PATTERN_FIXED, .length = 20, .part = 1},
    {BY_PATTERN_FIXED, .length = 75, .after = 3, .part = 2},
    {BY_PATTERN_SINKS, .length = 1, .before = 5, .after = 5},
    {BY_PATTERN_SINKS, .length = 67, .before = 20, .after = 3},
    {BY_PATTERN_SINKS, .length = 3, .before = 2, .after = -1},
    {BY_PATTERN_SINKS, .length = 1000, .before = 2, .after = 2},
    {BY_PATTERN_MEMORY, .length = 8, .before = 5},
    {BY_PATTERN_MEMORY, .length = 70, .before = 0},
    {BY_PATTERN_MEMORY, .length = 13, .before = 40},
    {BY_PATTERN_MEMORY, .length = 1, .before = 9},
};

/* The sets shared among heads. */
static const by_pattern shared[] = {
    {BY_PATTERN_STRIDED, .length = 20, .part = 3},
    {BY_PATTERN_FIXED, .length = 30, .after = 4, .part = 3},
};

/* Each pattern under each mask, among them queries that see nothing; T = S, T < S, T > S, and few queries. */
static void test_patterns(void **state)
{
    (void)state;
    static const problem problems[] = {
        {1, 150, 150, 2, 1, 8, .packed = true},  {2, 70, 70, 2, 2, 16, .packed = true, .causal = true},
        {1, 66, 200, 2, 1, 12, .causal = true},  {2, 90, 70, 1, 1, 8, .masked = true},
        {3, 67, 140, 2, 2, 9, .prefixed = true}, {2, 3, 210, 4, 2, 16, .masked = true, .causal = true},
        {2, 1, 210, 2, 2, 16, .prefixed = true}, {2, 4, 3, 2, 2, 8, .causal = true},
    };
    for (int i = 0; i < BY_COUNT(problems); i++) {
        check_everywhere(&problems[i]);
        for (int j = 0; j < BY_COUNT(patterns); j++) {
            problem p = problems[i];
            p.pattern = patterns[j];
            check_in_turn(&p);
        }
        for (int j = 0; j < BY_COUNT(shared); j++) {
            problem p = problems[i];
            p.pattern = shared[j];
            check_in_turn(&p);
        }
    }
}

/* Causal patterns by views, of random shapes: several tiles, groups of less than a tile and of several,
 * fewer queries than keys, heads that share keys, key masks, dropout, queries that see nothing. */
static void test_views(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 150; i++) {
        const base_philox x = base_philox_at(17, 0, i), y = base_philox_at(17, 1, i);
        const int64_t keys = 5 + x.v[0] % 300, length = 1 + x.v[1] % (i % 3 ? 40 : 350);
        const int kv = 1 + (int)(y.v[0] % 2);
        problem p = {.b = 1 + x.v[2] % 2,
                     .t = i % 4 ? keys : 1 + x.v[3] % keys,
                     .s = keys,
                     .h = kv * (1 + (int)(y.v[1] % 3)),
                     .kv = kv,
                     .d = 4 + (int)(y.v[2] % 40),
                     .causal = true,
                     .masked = i % 5 == 0,
                     .dropout = i % 6 == 0 ? 0.25f : 0,
                     .empty_zero = true,
                     .pattern = {i % 2 ? BY_PATTERN_STRIDED : BY_PATTERN_FIXED, .length = (int)length,
                                 .after = 1 + (int)(y.v[3] % length), .part = (int)(i / 2 % 4)}};
        if (i % 13 == 0)
            p.pattern = (by_pattern){BY_PATTERN_WINDOW, .before = (int)length};
        p.packed = p.t == p.s && i % 7 < 3;
        check_in_turn(&p);
    }
}

/* Every combination of axes, by key and by distance, with all distances there and with some beyond the ends.
 */
static void test_biases(void **state)
{
    (void)state;
    static const problem problems[] = {
        {2, 70, 70, 2, 1, 8, .packed = true, .causal = true},
        {2, 66, 140, 2, 2, 12, .masked = true},
        {2, 9, 9, 4, 2, 16, .prefixed = true},
        {2, 3, 90, 2, 1, 16, .causal = true},
        {3, 1, 70, 4, 2, 16, .dropout = 0},
        {2, 80, 30, 1, 1, 8, .causal = true, .pattern = {BY_PATTERN_WINDOW, .before = 20}},
        {1, 80, 80, 2, 2, 8, .pattern = {BY_PATTERN_STRIDED, .length = 30}, .dropout = 0.2f},
    };
    static const struct {
        int64_t entries;
        int zero;
    } kinds[] = {{0, 0}, {300, 150}, {21, 20}, {7, 3}, {1, 0}, {12, -5}};
    for (int i = 0; i < BY_COUNT(problems); i++)
        for (int axes = BIAS; axes <= BIAS_ALL; axes += 2)
            for (int k = 0; k < BY_COUNT(kinds); k++) {
                problem p = problems[i];
                p.bias = axes;
                p.entries = kinds[k].entries;
                p.zero = kinds[k].zero;
                check_in_turn(&p);
            }
}

/* A mask by pairs, with other masks and patterns; queries that see nothing give the mean or zeros. */
static void test_pair_masks(void **state)
{
    (void)state;
    static const problem problems[] = {
        {2, 70, 70, 2, 1, 8, .packed = true, .causal = true},
        {2, 66, 140, 2, 2, 12, .masked = true, .empty_zero = true},
        {2, 9, 9, 4, 2, 16, .prefixed = true},
        {2, 3, 90, 2, 1, 16, .causal = true, .empty_zero = true},
        {3, 1, 70, 4, 2, 16, .masked = true},
        {2, 80, 30, 1, 1, 8, .causal = true, .empty_zero = true,
         .pattern = {BY_PATTERN_WINDOW, .before = 20}},
        {1, 80, 80, 2, 2, 8, .pattern = {BY_PATTERN_STRIDED, .length = 30}, .dropout = 0.2f},
        {2, 70, 67, 2, 2, 64, .dropout = 0.1f, .empty_zero = true},
    };
    for (int i = 0; i < BY_COUNT(problems); i++)
        for (int axes = BIAS; axes <= BIAS_ALL; axes += 2) {
            problem p = problems[i];
            p.pairs = axes;
            p.bytes = axes & BIAS_HEAD;
            check_in_turn(&p);
            p.bias = axes, p.entries = 31, p.zero = 20, p.second = BIAS_ALL - axes + 1;
            check_in_turn(&p);
            p.bias = 0, p.entries = 0, p.second = 0;
            for (p.block = 5; p.block <= 64; p.block += 59)
                check_in_turn(&p);
        }
}

/* Both biases at once, with every combination of axes of the first. */
static void test_two_biases(void **state)
{
    (void)state;
    static const problem problems[] = {
        {2, 70, 70, 2, 1, 8, .packed = true, .causal = true},
        {2, 66, 140, 2, 2, 12, .masked = true},
        {2, 3, 90, 2, 1, 16, .causal = true},
        {1, 80, 80, 2, 2, 8, .pattern = {BY_PATTERN_STRIDED, .length = 30}, .dropout = 0.2f},
    };
    for (int i = 0; i < BY_COUNT(problems); i++)
        for (int axes = BIAS; axes <= BIAS_ALL; axes += 2)
            for (int second = BIAS; second <= BIAS_ALL; second += 6) {
                problem p = problems[i];
                p.bias = axes, p.entries = 21, p.zero = 20, p.second = second;
                check_in_turn(&p);
            }
}

/* Reach: what is left out of the counts and of the tiles is what nobody sees. */
static void test_reach(void **state)
{
    (void)state;
    enum { KEYS = 130, FROM = -20, TO = 200, SIDE = 16 };
    for (int j = 0; j < BY_COUNT(patterns); j++) {
        const gr_reach r = gr_reach_of(&patterns[j]);
        for (int p = FROM; p < TO; p++) {
            int64_t count = 0;
            for (int s = 0; s < KEYS; s++) {
                const bool seen = in_pattern(&patterns[j], p, s);
                const gr_stretch keys = gr_reach_keys(&r, p, p, KEYS),
                                 queries = gr_reach_queries(&r, s, s, FROM, TO);
                count += seen;
                assert_int_equal(seen, gr_reaches(&r, gr_spot_of(&r, p), gr_key_spot_of(&r, s)));
                assert_true(!seen || (s >= keys.from && s < keys.to && p >= queries.from && p < queries.to));
                assert_true(seen || s != p || !gr_reaches_itself(&r));
            }
            assert_int_equal(count, gr_reach_count(&r, p, KEYS));
        }
        for (int p = FROM; p < TO; p += 3)
            for (int s = 0; s + SIDE <= KEYS; s += 5) {
                int seen = 0;
                for (int i = 0; i < SIDE * SIDE; i++)
                    seen += in_pattern(&patterns[j], p + i / SIDE, s + i % SIDE);
                assert_int_equal(gr_reach_meets(&r, p, p + SIDE - 1, s, s + SIDE - 1), seen > 0);
                for (int k = s; k < gr_reach_skip(&r, p, s, SIDE); k++)
                    for (int i = 0; i < SIDE; i++)
                        assert_false(in_pattern(&patterns[j], p + i, k));
                assert_true(seen == SIDE * SIDE || !gr_reach_covers(&r, p, p + SIDE - 1, s, s + SIDE - 1));
            }
    }
}

/* With all values 1, y of a query is the sum of its kept weights: on average 1. */
static void test_dropout_statistics(void **state)
{
    (void)state;
    const problem p = {2, 128, 128, 4, 4, 8, .dropout = 0.3f};
    operands o = make_operands(&p, BY_F32, p.s);
    memset(o.q->data, 0, sizeof(float) * elements(o.q)); /* equal weights */
    for (size_t i = 0; i < elements(o.v); i++)
        ((float *)o.v->data)[i] = 1;
    forward(&all_kernels[0], &p, &o, 2, false);
    const float *y = o.y->data;
    const double n = (double)(p.b * p.h * p.t * p.s);
    double mean = 0, square = 0;
    for (int64_t i = 0; i < p.b * p.t * p.h; i++) {
        mean += y[i * p.d] / (double)(p.b * p.t * p.h);
        square += (y[i * p.d] - 1) * (y[i * p.d] - 1) / (double)(p.b * p.t * p.h);
    }
    const double variance = 0.3 / 0.7;
    assert_true(fabs(mean - 1) < 5 * sqrt(variance / n));
    assert_true(fabs(square - variance / (double)p.s) < 0.2 * variance / (double)p.s);
    drop_operands(&o);
}

/* Gradients that nobody wants are not made, and the others stay what they were. */
static void test_some_gradients(void **state)
{
    (void)state;
    const problem p = {1, 70, 70, 2, 1, 16, .causal = true, .bias = BIAS, .entries = 9, .zero = 8};
    for (int i = 0; i < BY_COUNT(all_kernels); i++) {
        if (!all_kernels[i].supported())
            continue;
        operands o = make_operands(&p, BY_F32, p.s);
        forward(&all_kernels[i], &p, &o, 1, false);
        backward(&all_kernels[i], &p, &o, 1);
        by_tensor *all[4] = {o.dq, o.dk, o.dv, o.dbias[1]};
        void *copies[4] = {copy_of(o.dq), copy_of(o.dk), copy_of(o.dv), copy_of(o.dbias[1])};
        for (int wanted = 0; wanted < 16; wanted++) {
            for (int threads = 1; threads <= 4; threads += 3) {
                operands some = o;
                some.dq = wanted & 1 ? o.dq : NULL, some.dk = wanted & 2 ? o.dk : NULL;
                some.dv = wanted & 4 ? o.dv : NULL, some.dbias[1] = wanted & 8 ? o.dbias[1] : NULL;
                for (int j = 0; j < 4; j++)
                    memset(all[j]->data, 0xff, sizeof(float) * elements(all[j]));
                backward(&all_kernels[i], &p, &some, threads);
                for (int j = 0; j < 4; j++) {
                    if (wanted >> j & 1)
                        same_bits(all[j], copies[j]);
                    else
                        assert_int_equal(((uint32_t *)all[j]->data)[0], 0xffffffffu);
                }
            }
        }
        for (int j = 0; j < 4; j++)
            base_free(copies[j]);
        drop_operands(&o);
    }
}

/* An infinity in a query must not come out as a number. */
static void test_infinity_shows(void **state)
{
    (void)state;
    for (int64_t t = 1; t <= 20; t += 19) {
        const problem p = {1, t, 20, 1, 1, 16, .dropout = 0};
        for (int i = 0; i < BY_COUNT(all_kernels); i++) {
            if (!all_kernels[i].supported())
                continue;
            operands o = make_operands(&p, BY_F32, p.s);
            ((float *)o.q->data)[0] = INFINITY;
            for (size_t j = 0; j < elements(o.k); j++)
                ((float *)o.k->data)[j] = -1; /* every score of the first query is -infinity */
            forward(&all_kernels[i], &p, &o, 1, false);
            assert_true(isnan(((float *)o.y->data)[0]));
            drop_operands(&o);
        }
    }
}

/* ---- the cache ------------------------------------------------------------------------------- */

typedef struct cache {
    by_tensor *k, *v, *past;
} cache;

static by_status cached(const kernels *k, const problem *p, const operands *o, const cache *c, int threads)
{
    gr_exec e = execution(threads);
    gr_attention_attr a = *attributes(p);
    gr_node n = {
        .op = GR_OP_ATTENTION_CACHED,
        .n_in = GR_ATT_SHARED + 3,
        .n_out = 1,
        .in = {o->q, o->k, o->v, o->mask, o->prefix, o->bias[0], o->bias[1], o->pairs, c->k, c->v, c->past},
        .out = {o->y},
        .attr = &a};
    return k->cached(&e, &n);
}

/* Expected y: causal attention of each batch row over what its cache holds after the call. */
static double *expected_over_cache(const problem *p, const operands *o, const cache *c)
{
    const int64_t qs = p->h * p->d, ks = p->kv * p->d, room = c->k->dim[1];
    const int32_t *past = c->past->data;
    double *all = zeros(p->b * p->t * qs), *q = columns(o->q, 0, qs), *k = as_double(c->k),
           *v = as_double(c->v);
    reference whole = {0};
    give_sight(o, &whole);
    for (int64_t b = 0; b < p->b; b++) {
        problem one = *p;
        one.b = 1, one.s = past[b] + p->t, one.causal = true, one.packed = false;
        reference r = {zeros(p->t * qs), zeros(one.s * ks), zeros(one.s * ks), zeros(p->t * qs),
                       .keys = whole.keys};
        r.mask = whole.mask ? whole.mask + b * room : NULL;
        r.prefix = whole.prefix ? whole.prefix + b : NULL;
        for (int i = 0; i < 3; i++) { /* the rows of this batch row */
            const int axes = i < 2 ? axes_of(p, i) : p->pairs;
            const by_tensor *t = i < 2 ? o->bias[i] : o->pairs;
            const size_t count = axes ? elements(t) / (size_t)(axes & BIAS_BATCH ? p->b : 1) : 0;
            double **to = i < 2 ? &r.bias[i] : &r.pairs, *from = i < 2 ? whole.bias[i] : whole.pairs;
            if (!axes)
                continue;
            *to = zeros((int64_t)count);
            memcpy(*to, from + (axes & BIAS_BATCH ? (size_t)b * count : 0), sizeof **to * count);
            if (i < 2)
                r.entries[i] = whole.entries[i];
        }
        memcpy(r.q, q + b * p->t * qs, sizeof *q * (size_t)(p->t * qs));
        memcpy(r.k, k + b * room * ks, sizeof *k * (size_t)(one.s * ks));
        memcpy(r.v, v + b * room * ks, sizeof *v * (size_t)(one.s * ks));
        compute(&one, &r);
        memcpy(all + b * p->t * qs, r.y, sizeof *q * (size_t)(p->t * qs));
        reference_free(&r);
    }
    reference_free(&whole);
    base_free(q);
    base_free(k);
    base_free(v);
    return all;
}

/* The new rows are in the cache at past, and nothing else of it changed. */
static void check_cache(const problem *p, const by_tensor *after, const double *before, const double *rows,
                        const int32_t *past)
{
    const int64_t ks = p->kv * p->d, room = after->dim[1];
    double *now = as_double(after);
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t s = 0; s < room; s++) {
            bool fresh = s >= past[b] && s < past[b] + p->t;
            const double *want = fresh ? rows + (b * p->t + s - past[b]) * ks : before + (b * room + s) * ks;
            assert_memory_equal(now + (b * room + s) * ks, want, sizeof *want * (size_t)ks);
        }
    base_free(now);
}

static void check_cached(const kernels *k, by_dtype type, const problem *p, int64_t room, const int32_t *past)
{
    const int64_t qs = p->h * p->d, ks = p->kv * p->d;
    operands o = make_operands(p, type, room);
    cache c = {tensor(type, 3, p->b, room, ks, 1), tensor(type, 3, p->b, room, ks, 1),
               tensor(BY_I32, 1, p->b, 1, 1, 1)};
    fill_normal(c.k);
    fill_normal(c.v);
    memcpy(c.past->data, past, sizeof *past * (size_t)p->b);
    double *k_before = as_double(c.k), *v_before = as_double(c.v);
    double *k_rows = p->packed ? columns(o.q, qs, ks) : as_double(o.k);
    double *v_rows = p->packed ? columns(o.q, qs + ks, ks) : as_double(o.v);

    assert_int_equal(cached(k, p, &o, &c, 1), BY_OK);
    check_cache(p, c.k, k_before, k_rows, past);
    check_cache(p, c.v, v_before, v_rows, past);
    double *expected = expected_over_cache(p, &o, &c);
    assert_close("y over a cache", o.y, expected);
    void *y = copy_of(o.y);
    assert_int_equal(cached(k, p, &o, &c, 8), BY_OK);
    same_bits(o.y, y);

    void *frees[] = {k_before, v_before, k_rows, v_rows, expected, y};
    for (int i = 0; i < BY_COUNT(frees); i++)
        base_free(frees[i]);
    drop(c.k);
    drop(c.v);
    drop(c.past);
    drop_operands(&o);
}

static void test_cache(void **state)
{
    (void)state;
    static const struct {
        problem p; /* s is t: the rows that are new */
        int64_t room;
        int32_t past[3];
    } cases[] = {
        {{3, 1, 1, 4, 4, 16, .packed = true}, 200, {0, 63, 199}},
        {{2, 1, 1, 8, 2, 64, .dropout = 0}, 150, {128, 17}},
        {{1, 1, 1, 3, 1, 35, .dropout = 0}, 600, {560}},
        {{2, 3, 3, 4, 2, 24, .packed = true}, 70, {67, 0}},
        {{3, 30, 30, 2, 1, 20, .dropout = 0}, 130, {0, 100, 41}},
        {{2, 70, 70, 2, 2, 64, .packed = true}, 140, {0, 65}},
        {{2, 1, 1, 2, 1, 16, .masked = true}, 90, {0, 70}},
        {{3, 3, 3, 2, 2, 12, .prefixed = true}, 150, {0, 70, 147}},
        {{2, 1, 1, 4, 2, 16, .packed = true, .pattern = {BY_PATTERN_WINDOW, .before = 20}}, 300, {299, 3}},
        {{2, 2, 2, 2, 2, 9, .pattern = {BY_PATTERN_BLOCKS, .length = 16, .before = 1}}, 200, {150, 0}},
        {{2, 2, 2, 2, 2, 9, .pattern = {BY_PATTERN_MEMORY, .length = 30, .before = 50}}, 200, {150, 0}},
        {{2, 1, 1, 2, 2, 16, .pattern = {BY_PATTERN_STRIDED, .length = 70}, .masked = true}, 300, {290, 71}},
        {{2, 1, 1, 2, 2, 16, .pattern = {BY_PATTERN_FIXED, .length = 100, .after = 5, .part = 2}},
         300,
         {290, 17}},
        {{2, 3, 3, 4, 2, 16, .bias = BIAS | BIAS_HEAD, .entries = 31, .zero = 30}, 130, {100, 0}},
        {{2, 2, 2, 2, 1, 16, .bias = BIAS_ALL}, 130, {128, 7}},
        {{2, 1, 1, 4, 2, 16, .pairs = BIAS | BIAS_HEAD, .bytes = true}, 130, {100, 0}},
        {{2, 20, 20, 2, 1, 16, .pairs = BIAS_ALL, .empty_zero = true}, 130, {100, 0}},
        {{2, 3, 3, 4, 2, 16, .bias = BIAS | BIAS_HEAD, .entries = 31, .zero = 30, .second = BIAS_ALL},
         130,
         {100, 0}},
        {{3, 30, 30, 2, 1, 20, .prefixed = true, .bias = BIAS_ALL, .entries = 40, .zero = 25},
         130,
         {0, 100, 41}},
        {{2, 70, 70, 2, 2, 16, .packed = true, .masked = true,
          .pattern = {BY_PATTERN_FIXED, .length = 24, .after = 3}},
         200,
         {0, 100}},
        {{2, 9, 9, 2, 2, 16, .pattern = {BY_PATTERN_STRIDED, .length = 16, .part = 2}, .bias = BIAS},
         200,
         {190, 64}},
        {{2, 1, 1, 4, 2, 16, .pattern = {BY_PATTERN_STRIDED, .length = 16, .part = 3}}, 200, {190, 64}},
        {{2, 1, 1, 4, 2, 16, .pattern = {BY_PATTERN_STRIDED, .length = 32}}, 1500, {1200, 64}},
        {{2, 3, 3, 4, 2, 16, .pattern = {BY_PATTERN_FIXED, .length = 40, .after = 2, .part = 3},
          .empty_zero = true},
         1500,
         {1318, 38}},
        {{2, 90, 90, 4, 2, 16, .pattern = {BY_PATTERN_STRIDED, .length = 16}}, 200, {100, 0}},
        {{2, 90, 90, 4, 2, 16, .pattern = {BY_PATTERN_FIXED, .length = 24, .after = 5, .part = 3},
          .empty_zero = true},
         200,
         {100, 0}},
    };
    for (int j = 0; j < BY_COUNT(cases); j++)
        for (int i = 0; i < BY_COUNT(all_kernels); i++)
            for (int type = BY_F32; type <= BY_F64 && all_kernels[i].supported(); type++)
                if (type != BY_F64 || i == 0)
                    check_cached(&all_kernels[i], (by_dtype)type, &cases[j].p, cases[j].room, cases[j].past);
}

static void test_cache_is_full(void **state)
{
    (void)state;
    const problem p = {2, 3, 3, 2, 2, 16, .dropout = 0};
    const int32_t wrong[] = {-1, 8, INT32_MAX, INT32_MIN};
    for (int i = 0; i < BY_COUNT(wrong); i++) {
        operands o = make_operands(&p, BY_F32, p.s);
        cache c = {tensor(BY_F32, 3, 2, 10, 32, 1), tensor(BY_F32, 3, 2, 10, 32, 1),
                   tensor(BY_I32, 1, 2, 1, 1, 1)};
        ((int32_t *)c.past->data)[0] = 0;
        ((int32_t *)c.past->data)[1] = wrong[i];
        assert_int_equal(cached(&all_kernels[0], &p, &o, &c, 1), BY_ERR_ARGUMENT);
        assert_non_null(strstr(by_error_message(), "room for 10"));
        for (size_t j = 0; j < elements(c.k); j++) /* as tensor() left it */
            assert_int_equal(((uint32_t *)c.k->data)[j], 0xffffffffu);
        drop(c.k);
        drop(c.v);
        drop(c.past);
        drop_operands(&o);
    }
}

static int open_device(void **state)
{
    (void)state;
    device = by_device_open("cpu", 2);
    return device ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_key_mask),
        cmocka_unit_test(test_dropout),        cmocka_unit_test(test_dropout_statistics),
        cmocka_unit_test(test_patterns),       cmocka_unit_test(test_views),
        cmocka_unit_test(test_biases),         cmocka_unit_test(test_two_biases),
        cmocka_unit_test(test_pair_masks),     cmocka_unit_test(test_reach),
        cmocka_unit_test(test_some_gradients), cmocka_unit_test(test_infinity_shows),
        cmocka_unit_test(test_cache),          cmocka_unit_test(test_cache_is_full),
    };
    return cmocka_run_group_tests_name("attention", tests, open_device, close_device);
}
