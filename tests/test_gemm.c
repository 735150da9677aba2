/* test_gemm.c - matrix products of every provider and instruction set of this machine against sums in double,
 * the linear ops around them, and the CPU device. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu/gemm_select.h"

static const char *const isa_names[BY_ISA_COUNT] = {"generic", "avx2", "avx512", "avx512bf16"};
static const char *const provider_names[BY_GEMM_COUNT] = {"own", "openblas", "onednn"};
static const by_dtype float_types[] = {BY_F32, BY_BF16, BY_F16, BY_F64};

/* A device of one instruction set and provider, NULL when the machine or the build lacks it. */
static by_device *open_cpu(int isa, int provider, int threads)
{
    char name[32];
    snprintf(name, sizeof name, "cpu:%s", isa_names[isa]);
    setenv("BANYAN_GEMM", provider_names[provider], 1);
    by_device *d = by_device_open(name, threads);
    unsetenv("BANYAN_GEMM");
    if (!d)
        assert_int_equal(base_error_status(), BY_ERR_UNSUPPORTED);
    return d;
}

/* ---- random matrices and the reference ------------------------------------------------------- */

/* Values in [-1, 1) rounded to a type: what both sides compute from. */
static void *random_array(by_dtype type, int64_t n, uint64_t stream)
{
    uint64_t x = 0x9e3779b97f4a7c15u * (stream + 1);
    float chunk[256];
    char *out = base_alloc_aligned((size_t)(n + 1) * by_dtype_size(type));
    assert_non_null(out);
    for (int64_t i = 0; i < n; i += BY_COUNT(chunk)) {
        for (int j = 0; j < BY_COUNT(chunk); j++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            chunk[j] = (float)(int32_t)(x >> 32) * 0x1p-31f;
        }
        base_convert(out + i * (int64_t)by_dtype_size(type), type, chunk, BY_F32,
                     (size_t)BY_MIN(BY_COUNT(chunk), n - i));
    }
    return out;
}

static double get(const void *p, by_dtype type, int64_t i)
{
    switch (type) {
    case BY_F32:
        return ((const float *)p)[i];
    case BY_BF16:
        return base_bf16_to_f32(((const uint16_t *)p)[i]);
    case BY_F16:
        return base_f16_to_f32(((const uint16_t *)p)[i]);
    default:
        return ((const double *)p)[i];
    }
}

static double activation(by_act act, double x)
{
    switch (act) {
    case BY_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case BY_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case BY_RELU:
        return x > 0 ? x : 0;
    case BY_SILU:
        return x / (1 + exp(-x));
    case BY_TANH:
        return tanh(x);
    case BY_SIGMOID:
        return 1 / (1 + exp(-x));
    default:
        return x;
    }
}

/* Half the spacing of a type at 1. */
static double unit(by_dtype type)
{
    return type == BY_F64 ? 0x1p-53 : type == BY_F32 ? 0x1p-24 : type == BY_F16 ? 0x1p-11 : 0x1p-8;
}

/* The largest error that k rounded additions of products, in whatever order, and one rounding of the result
 * can make; activations are at most 1.13 steep, and good to a few units of float themselves. */
static double bound(const cpu_gemm_desc *d, double magnitude, double value)
{
    double acc = unit(gr_acc_type(d->ab_type)), error = (double)(d->k + 4) * acc * magnitude;
    if (d->act != BY_ACT_NONE)
        error = 1.13 * error + 32 * acc * (1 + fabs(value));
    return error + 1.01 * unit(d->c_type) * fabs(value) + (d->c_type == BY_F16 ? 0x1p-24 : 0);
}

typedef struct problem {
    cpu_gemm_desc d; /* complete */
    void *a, *b, *bias, *before, *c;
    int64_t size_c;
} problem;

static problem problem_new(cpu_gemm_desc d, int pad)
{
    problem p = {0};
    d.batch = d.batch ? d.batch : 1;
    d.lda = (d.ta ? d.m : d.k) + pad;
    d.ldb = (d.tb ? d.k : d.n) + pad;
    d.ldc = d.n + pad;
    d.stride_a = d.lda * (d.ta ? d.k : d.m) + pad;
    d.stride_b = d.ldb * (d.tb ? d.n : d.k) + pad;
    d.stride_c = d.ldc * d.m + pad;
    p.d = d;
    p.size_c = d.stride_c * d.batch;
    p.a = random_array(d.ab_type, d.stride_a * d.batch, 1);
    p.b = random_array(d.ab_type, d.stride_b * d.batch, 2);
    p.bias = random_array(d.bias_type, d.n, 3);
    p.before = random_array(d.c_type, p.size_c, 4);
    p.c = random_array(d.c_type, p.size_c, 4);
    return p;
}

static void problem_free(problem *p)
{
    base_free(p->a);
    base_free(p->b);
    base_free(p->bias);
    base_free(p->before);
    base_free(p->c);
}

static void check_element(const problem *p, const char *what, int64_t batch, int64_t i, int64_t j)
{
    const cpu_gemm_desc *d = &p->d;
    int64_t at = batch * d->stride_c + i * d->ldc + j;
    double sum = 0, magnitude = 0;
    for (int64_t q = 0; q < d->k; q++) {
        double a = get(p->a, d->ab_type, batch * d->stride_a + (d->ta ? q * d->lda + i : i * d->lda + q));
        double b = get(p->b, d->ab_type, batch * d->stride_b + (d->tb ? j * d->ldb + q : q * d->ldb + j));
        sum += a * b;
        magnitude += fabs(a * b);
    }
    double bias = d->bias ? get(p->bias, d->bias_type, j) : 0,
           before = d->accumulate ? get(p->before, d->c_type, at) : 0;
    double want = activation(d->act, sum + bias + before), found = get(p->c, d->c_type, at);
    double limit = bound(d, magnitude + fabs(bias) + fabs(before), want);
    if (!(fabs(found - want) <= limit))
        fail_msg("%s: m %d n %d k %d ta %d tb %d bias %d accumulate %d act %d batch %d, %s to %s: "
                 "c[%d][%d][%d] is %.9g, not %.9g "
                 "(bound %.3g)",
                 what, (int)d->m, (int)d->n, (int)d->k, d->ta, d->tb, d->bias, d->accumulate, (int)d->act,
                 (int)d->batch, by_dtype_name(d->ab_type), by_dtype_name(d->c_type), (int)batch, (int)i,
                 (int)j, found, want, limit);
}

/* Run and compare: every element of small products, a sample and the far edges of large ones; nothing between
 * the rows may change. */
static void check_problem(by_device *device, problem *p, const char *what)
{
    const cpu_gemm_desc *d = &p->d;
    cpu_gemm *g = cpu_gemm_new(device, d);
    if (!g)
        fail_msg("%s: %s", what, by_error_message());
    memcpy(p->c, p->before, (size_t)p->size_c * by_dtype_size(d->c_type));
    assert_int_equal(cpu_gemm_run(g, p->a, p->b, d->bias ? p->bias : NULL, p->c), BY_OK);
    cpu_gemm_free(g);
    int64_t total = d->m * d->n * d->batch,
            step = total * (d->k + 1) > 100000 ? total / (100000 / (d->k + 1) + 1) | 1 : 1;
    for (int64_t e = 0; e < total; e += step)
        check_element(p, what, e / (d->m * d->n), e / d->n % d->m, e % d->n);
    if (total)
        check_element(p, what, d->batch - 1, d->m - 1, d->n - 1);
    size_t size = by_dtype_size(d->c_type);
    for (int64_t e = 0; e < p->size_c; e++) {
        int64_t inside = e % d->stride_c;
        if (inside >= d->m * d->ldc || inside % d->ldc >= d->n)
            assert_memory_equal((char *)p->c + e * (int64_t)size, (char *)p->before + e * (int64_t)size,
                                size);
    }
}

static void check_desc(by_device *device, cpu_gemm_desc d, int pad, const char *what)
{
    problem p = problem_new(d, pad);
    check_problem(device, &p, what);
    problem_free(&p);
}

/* ---- products -------------------------------------------------------------------------------- */

/* A random description: sizes on both sides of every block of the kernels, every combination of the options
 * over time. */
static cpu_gemm_desc random_desc(base_rng *r, by_dtype type)
{
    static const int64_t sizes[] = {1,  2,  3,  4,  5,   8,   13,  14,  15,  16,  17,  28,
                                    31, 33, 64, 65, 100, 255, 256, 257, 300, 513, 1030};
    cpu_gemm_desc d;
    do {
        d = (cpu_gemm_desc){.m = sizes[base_rng_below(r, BY_COUNT(sizes))],
                            .n = sizes[base_rng_below(r, BY_COUNT(sizes))],
                            .k = sizes[base_rng_below(r, BY_COUNT(sizes))]};
    } while (d.m * d.n * d.k > 4000000);
    uint32_t bits = base_rng_u32(r);
    d.ta = bits & 1;
    d.tb = bits & 2;
    d.accumulate = bits & 4;
    d.bias = bits & 8;
    d.ab_type = type;
    d.c_type = bits & 16 ? type : gr_acc_type(type);
    d.bias_type = bits & 32 ? type : gr_acc_type(type);
    d.act = d.accumulate                            ? BY_ACT_NONE
            : (by_act)(bits >> 6 & 15) > BY_SIGMOID ? BY_ACT_NONE
                                                    : (by_act)(bits >> 6 & 15);
    d.batch = (bits >> 10 & 7) == 0 && d.m * d.n * d.k < 400000 ? 3 : 1;
    return d;
}

static void each_device(void (*test)(by_device *, int isa, int provider, const char *what))
{
    for (int isa = 0; isa < BY_ISA_COUNT; isa++)
        for (int provider = 0; provider < BY_GEMM_COUNT; provider++) {
            if (provider == BY_GEMM_OPENBLAS && isa != BY_ISA_GENERIC)
                continue; /* the instruction set makes no difference to it */
            by_device *d = open_cpu(isa, provider, 2);
            char what[64];
            if (!d)
                continue;
            snprintf(what, sizeof what, "%s, %s", isa_names[isa], provider_names[provider]);
            test(d, isa, provider, what);
            by_device_free(d);
        }
}

static void random_products(by_device *d, int isa, int provider, const char *what)
{
    (void)provider;
    base_rng rng = base_rng_make(11, (uint64_t)isa);
    for (int i = 0; i < 4 * 60; i++) {
        cpu_gemm_desc desc = random_desc(&rng, float_types[i % 4]);
        check_desc(d, desc, i % 3 ? 0 : 3, what);
    }
}

static void test_random(void **state)
{
    (void)state;
    each_device(random_products);
}

/* Few rows, both layouts, every type: the path of decoding. */
static void skinny_products(by_device *d, int isa, int provider, const char *what)
{
    (void)isa;
    (void)provider;
    for (int64_t m = 1; m <= BY_GEMM_SKINNY_ROWS + 1; m++)
        for (int t = 0; t < 4; t++)
            for (int bits = 0; bits < 4; bits++)
                check_desc(d,
                           (cpu_gemm_desc){.m = m,
                                           .n = bits & 1 ? 195 : 66,
                                           .k = bits & 2 ? 37 : 128,
                                           .tb = bits & 1,
                                           .ab_type = float_types[t],
                                           .c_type = float_types[t],
                                           .bias = true,
                                           .bias_type = float_types[t],
                                           .act = bits & 2 ? BY_GELU_TANH : BY_ACT_NONE},
                           bits & 1, what);
}

static void test_skinny(void **state)
{
    (void)state;
    each_device(skinny_products);
}

/* Larger than every block in every direction. */
static void large_products(by_device *d, int isa, int provider, const char *what)
{
    (void)isa;
    (void)provider;
    for (int t = 0; t < 4; t++) {
        cpu_gemm_desc desc = {.m = 901,
                              .n = 1030,
                              .k = 300,
                              .ta = t & 1,
                              .tb = t & 2,
                              .ab_type = float_types[t],
                              .c_type = float_types[t],
                              .bias = true,
                              .bias_type = float_types[t]};
        check_desc(d, desc, 0, what);
    }
    for (int t = 0; t < 4; t++) /* a strip of columns wider than the accumulators of a skinny product */
        check_desc(d,
                   (cpu_gemm_desc){.m = 5,
                                   .n = 5000,
                                   .k = 70,
                                   .ab_type = float_types[t],
                                   .c_type = float_types[t],
                                   .bias_type = BY_F32},
                   0, what);
}

static void test_large(void **state)
{
    (void)state;
    each_device(large_products);
}

static void empty_products(by_device *d, int isa, int provider, const char *what)
{
    (void)isa;
    (void)provider;
    for (int64_t m = 0; m <= 20; m += 20)
        for (int64_t n = 0; n <= 20; n += 20)
            for (int64_t k = 0; k <= 20; k += 20)
                for (int t = 0; t < 4; t++)
                    check_desc(d,
                               (cpu_gemm_desc){.m = m,
                                               .n = n,
                                               .k = k,
                                               .ab_type = float_types[t],
                                               .c_type = float_types[t],
                                               .bias = true,
                                               .bias_type = BY_F32},
                               0, what);
}

static void test_empty(void **state)
{
    (void)state;
    each_device(empty_products);
}

/* Our own products are the same, bit for bit, on any number of threads. */
static void test_threads(void **state)
{
    (void)state;
    for (int isa = 0; isa < BY_ISA_COUNT; isa++)
        for (int t = 0; t < 4; t++)
            for (int shape = 0; shape < 3; shape++) {
                cpu_gemm_desc desc = {.m = shape ? 70 : 3,
                                      .n = 333,
                                      .k = 301,
                                      .tb = shape == 1,
                                      .batch = shape == 2 ? 5 : 1,
                                      .ab_type = float_types[t],
                                      .c_type = float_types[t],
                                      .bias_type = BY_F32};
                problem p = problem_new(desc, 0);
                void *first = random_array(desc.c_type, p.size_c, 4);
                for (int threads = 1; threads <= 3; threads++) {
                    by_device *d = open_cpu(isa, BY_GEMM_OWN, threads);
                    if (!d)
                        break;
                    check_problem(d, &p, isa_names[isa]);
                    if (threads == 1)
                        memcpy(first, p.c, (size_t)p.size_c * by_dtype_size(desc.c_type));
                    assert_memory_equal(first, p.c, (size_t)p.size_c * by_dtype_size(desc.c_type));
                    by_device_free(d);
                }
                base_free(first);
                problem_free(&p);
            }
}

static void run_and_check(cpu_gemm *g, problem *p, const char *what)
{
    memcpy(p->c, p->before, (size_t)p->size_c * by_dtype_size(p->d.c_type));
    assert_int_equal(cpu_gemm_run(g, p->a, p->b, p->d.bias ? p->bias : NULL, p->c), BY_OK);
    for (int64_t i = 0; i < p->d.m; i++)
        for (int64_t j = 0; j < p->d.n; j++)
            check_element(p, what, 0, i, j);
}

/* A matrix that stays the same is packed after a few runs, for all products that share it, and again when it
 * has changed. */
static void fixed_products(by_device *d, int isa, int provider, const char *what)
{
    (void)isa;
    (void)provider;
    for (int k = 0; k < 4; k++) {
        problem p = problem_new((cpu_gemm_desc){.m = 40,
                                                .n = 70,
                                                .k = 50,
                                                .tb = k % 2 == 0,
                                                .batch = 1,
                                                .ab_type = float_types[k / 2],
                                                .c_type = float_types[k / 2],
                                                .bias_type = float_types[k / 2],
                                                .bias = true,
                                                .act = BY_RELU,
                                                .fixed = true},
                                0);
        cpu_gemm *one = cpu_gemm_new(d, &p.d), *two = cpu_gemm_new(d, &p.d);
        assert_non_null(one);
        assert_non_null(two);
        for (int i = 0; i < 6; i++) {
            run_and_check(one, &p, what);
            run_and_check(two, &p, what);
        }
        void *other = random_array(p.d.ab_type, p.d.n * p.d.k, 99);
        memcpy(p.b, other, (size_t)(p.d.n * p.d.k) * by_dtype_size(p.d.ab_type));
        d->changes++;
        run_and_check(one, &p, what);
        cpu_gemm_free(one);
        run_and_check(two, &p, what);
        cpu_gemm_free(two);
        base_free(other);
        problem_free(&p);
    }
}

static void test_fixed(void **state)
{
    (void)state;
    each_device(fixed_products);
}

static void test_bad_descriptions(void **state)
{
    (void)state;
    const cpu_gemm_desc bad[] = {{.m = -1, .n = 2, .k = 2},
                                 {.m = 2, .n = 2, .k = 2, .lda = 1},
                                 {.m = 2, .n = 3, .k = 2, .ldc = 2},
                                 {.m = 2, .n = 2, .k = 2, .ab_type = BY_I32, .c_type = BY_I32},
                                 {.m = 2, .n = 2, .k = 2, .ab_type = BY_F32, .c_type = BY_BF16},
                                 {.m = 2, .n = 2, .k = 2, .accumulate = true, .act = BY_RELU}};
    by_device *d = by_device_open("cpu", 1);
    assert_non_null(d);
    for (int i = 0; i < BY_COUNT(bad); i++) {
        base_error_clear();
        assert_null(cpu_gemm_new(d, &bad[i]));
        assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    }
    cpu_gemm_free(NULL);
    by_device_free(d);
}

/* One device, plans of each host thread's own, at once. */
static void *worker(void *device)
{
    for (int i = 0; i < 20; i++) {
        by_dtype type = float_types[i % 2 * 2]; /* the library's path and our own */
        check_desc(device,
                   (cpu_gemm_desc){
                       .m = 40 + i, .n = 70, .k = 50, .ab_type = type, .c_type = type, .bias_type = BY_F32},
                   0, "two host threads");
    }
    return NULL;
}

static void test_concurrent(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 2);
    pthread_t other;
    assert_non_null(d);
    assert_int_equal(pthread_create(&other, NULL, worker, d), 0);
    worker(d);
    assert_int_equal(pthread_join(other, NULL), 0);
    by_device_free(d);
}

/* ---- the ops around the products ------------------------------------------------------------- */

typedef struct one_node { /* a program of a single node, made by hand */
    by_graph graph;
    by_program program;
    gr_node node, *nodes[1];
    by_tensor tensor[6];
    int used;
} one_node;

static by_tensor *tensor(one_node *o, by_dtype type, int64_t rows, int64_t cols, uint64_t stream)
{
    by_tensor *t = &o->tensor[o->used++];
    *t = (by_tensor){
        .type = type, .rank = rows ? 2 : 1, .dim = {rows ? rows : cols, cols}, .name = "t", .param = -1};
    t->data = random_array(type, (rows ? rows : 1) * cols, stream);
    return t;
}

static void run_node(one_node *o, by_device *d, gr_op op, void *attr)
{
    o->node.op = op;
    o->node.attr = attr;
    o->node.n_in = 4;
    o->node.n_out = 2;
    o->node.graph = &o->graph;
    o->nodes[0] = &o->node;
    o->graph.nodes = o->nodes;
    o->graph.n_nodes = 1;
    o->program.graph = &o->graph;
    o->program.device = d;
    for (int again = 0; again < 2; again++) { /* prepare after forget must do */
        assert_int_equal(d->backend->prepare(&o->program), BY_OK);
        if (again)
            assert_int_equal(d->backend->run(&o->program), BY_OK);
        d->backend->forget(&o->program);
        assert_null(o->node.plan);
    }
}

static void free_node(one_node *o)
{
    for (int i = 0; i < o->used; i++)
        base_free(o->tensor[i].data);
}

static void assert_near(double found, double want, double limit, const char *what)
{
    if (!(fabs(found - want) <= limit))
        fail_msg("%s: %.9g, not %.9g (bound %.3g)", what, found, want, limit);
}

enum { R_ = 37, K_ = 41, N_ = 600 };

/* linear: with `pre` wanted y is the activation of what was stored there. */
static void linear_node(by_device *d, by_dtype type, bool w_is_kn, bool with_pre)
{
    one_node o = {0};
    gr_linear_attr attr = {.w_is_kn = w_is_kn, .act = BY_GELU_TANH};
    by_tensor *x = tensor(&o, type, R_, K_, 1),
              *w = tensor(&o, type, w_is_kn ? K_ : N_, w_is_kn ? N_ : K_, 2);
    by_tensor *b = tensor(&o, type, 0, N_, 3), *y = tensor(&o, type, R_, N_, 4),
              *pre = tensor(&o, type, R_, N_, 5);
    memcpy(o.node.in, (by_tensor *[]){x, w, b}, 3 * sizeof(by_tensor *));
    o.node.out[0] = y;
    o.node.out[1] = with_pre ? pre : NULL;
    run_node(&o, d, GR_OP_LINEAR, &attr);
    cpu_gemm_desc desc = {.k = K_, .ab_type = type, .c_type = type};
    for (int64_t e = 0; e < R_ * N_; e++) {
        int64_t i = e / N_, j = e % N_;
        double sum = get(b->data, type, j), magnitude = fabs(sum);
        for (int64_t q = 0; q < K_; q++) {
            double p = get(x->data, type, i * K_ + q) * get(w->data, type, w_is_kn ? q * N_ + j : j * K_ + q);
            sum += p;
            magnitude += fabs(p);
        }
        desc.act = BY_ACT_NONE;
        if (with_pre) {
            assert_near(get(pre->data, type, e), sum, bound(&desc, magnitude, sum), "linear, pre");
            sum = get(pre->data, type, e);
            magnitude = 0;
        }
        desc.act = BY_GELU_TANH;
        double want = activation(BY_GELU_TANH, sum);
        assert_near(get(y->data, type, e), want, bound(&desc, magnitude, want), "linear, y");
    }
    free_node(&o);
}

/* linear_dx, and linear_dw with and without something to add to. */
static void gradient_nodes(by_device *d, by_dtype type, bool w_is_kn, bool add)
{
    one_node o = {0};
    gr_linear_attr attr = {.w_is_kn = w_is_kn};
    by_dtype acc = gr_acc_type(type);
    int64_t w_rows = w_is_kn ? K_ : N_, w_cols = w_is_kn ? N_ : K_;
    by_tensor *x = tensor(&o, type, R_, K_, 1), *dy = tensor(&o, type, R_, N_, 2);
    by_tensor *dw = tensor(&o, acc, w_rows, w_cols, 3), *db = tensor(&o, acc, 0, N_, 4);
    void *dw_before = random_array(acc, K_ * N_, 3), *db_before = random_array(acc, N_, 4);
    memcpy(o.node.in, (by_tensor *[]){x, dy, add ? dw : NULL, add ? db : NULL}, 4 * sizeof(by_tensor *));
    o.node.out[0] = dw;
    o.node.out[1] = db;
    run_node(&o, d, GR_OP_LINEAR_DW, &attr);
    cpu_gemm_desc desc = {.k = R_, .ab_type = type, .c_type = acc};
    for (int64_t e = 0; e < K_ * N_; e++) {
        int64_t k = w_is_kn ? e / N_ : e % K_, j = w_is_kn ? e % N_ : e / K_;
        double sum = add ? get(dw_before, acc, e) : 0, magnitude = fabs(sum);
        for (int64_t r = 0; r < R_; r++) {
            double p = get(x->data, type, r * K_ + k) * get(dy->data, type, r * N_ + j);
            sum += p;
            magnitude += fabs(p);
        }
        assert_near(get(dw->data, acc, e), sum, bound(&desc, magnitude, sum), "linear_dw, dw");
    }
    for (int64_t j = 0; j < N_; j++) {
        double sum = add ? get(db_before, acc, j) : 0, magnitude = fabs(sum);
        for (int64_t r = 0; r < R_; r++) {
            sum += get(dy->data, type, r * N_ + j);
            magnitude += fabs(get(dy->data, type, r * N_ + j));
        }
        assert_near(get(db->data, acc, j), sum, bound(&desc, magnitude, sum), "linear_dw, db");
    }
    by_tensor *w = dw, *dx = x; /* dx over x; a weight of the right type */
    if (acc == type) {
        memset(o.node.in, 0, sizeof o.node.in);
        o.node.in[0] = dy;
        o.node.in[1] = w;
        o.node.out[0] = dx;
        o.node.out[1] = NULL;
        run_node(&o, d, GR_OP_LINEAR_DX, &attr);
        desc = (cpu_gemm_desc){.k = N_, .ab_type = type, .c_type = type};
        for (int64_t e = 0; e < R_ * K_; e++) {
            double sum = 0, magnitude = 0;
            for (int64_t j = 0; j < N_; j++) {
                double p = get(dy->data, type, e / K_ * N_ + j) *
                           get(w->data, type, w_is_kn ? e % K_ * N_ + j : j * K_ + e % K_);
                sum += p;
                magnitude += fabs(p);
            }
            assert_near(get(dx->data, type, e), sum, bound(&desc, magnitude, sum), "linear_dx");
        }
    }
    base_free(dw_before);
    base_free(db_before);
    free_node(&o);
}

static void linear_nodes(by_device *d, int isa, int provider, const char *what)
{
    (void)isa;
    (void)provider;
    (void)what;
    for (int t = 0; t < 4; t++)
        for (int bits = 0; bits < 4; bits++) {
            linear_node(d, float_types[t], bits & 1, bits & 2);
            gradient_nodes(d, float_types[t], bits & 1, bits & 2);
        }
}

static void test_linear(void **state)
{
    (void)state;
    each_device(linear_nodes);
}

/* ---- the device ------------------------------------------------------------------------------ */

static void test_device(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu:generic", 3);
    assert_non_null(d);
    assert_int_equal(d->threads, 3);
    assert_non_null(strstr(d->description, "cpu: generic, "));
    assert_non_null(strstr(d->description, ", 3 threads"));
    for (size_t bytes = 0; bytes < 50000000; bytes = bytes * 7 + 1) {
        unsigned char *memory;
        assert_int_equal(d->backend->alloc(d, bytes, (void **)&memory), BY_OK);
        assert_int_equal((uintptr_t)memory % 64, 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(memory[i], 0);
        if (bytes)
            memory[0] = memory[bytes - 1] = 1;
        d->backend->release(d, memory);
    }
    void *none;
    assert_int_equal(d->backend->alloc(d, SIZE_MAX - 8, &none), BY_ERR_MEMORY);
    d->backend->release(d, NULL);
    by_device_free(d);

    d = by_device_open("cpu", 0);
    assert_non_null(d);
    assert_true(d->threads >= 1);
    by_device_free(d);
    base_error_clear();
    assert_null(by_device_open("cpu:avx9000", 1));
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    setenv("BANYAN_GEMM", "fortran", 1);
    assert_null(by_device_open("cpu", 1));
    unsetenv("BANYAN_GEMM");
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    setenv("BANYAN_ISA", "generic", 1);
    d = by_device_open("cpu", 1);
    unsetenv("BANYAN_ISA");
    assert_non_null(d);
    assert_non_null(strstr(d->description, "generic"));
    by_device_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device),  cmocka_unit_test(test_random),
        cmocka_unit_test(test_skinny),  cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_large),   cmocka_unit_test(test_empty),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_bad_descriptions),
        cmocka_unit_test(test_linear),  cmocka_unit_test(test_concurrent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
