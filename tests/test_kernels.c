/* test_kernels.c - the CPU kernels that move, map, reduce and normalise, one node at a time, against plain
 * loops in double. Every element type, every instruction set of this machine, odd sizes, outputs over inputs,
 * one to three threads. */
#include "kernel_case.h"

#define BY_ISA       test
#define BY_ISA_LEVEL 0
#include "cpu/kernels/kernel.h"

static const int64_t sizes[][2] = {{1, 1}, {3, 7}, {5, 64}, {2, 1025}, {37, 1003}};

/* ---- the functions of kernel.h -------------------------------------------------------------- */

static void check_function(float (*f)(float), double (*exact)(double))
{
    for (uint64_t u = 0; u < 0x100000000u; u += 2039) { /* a prime: all exponents, many fractions */
        const float x = cpu_float((uint32_t)u), got = f(x);
        const double want = exact((double)x);
        if (want != want || isinf((float)want)) {
            assert_true(want != want ? got != got : got == (float)want);
            continue;
        }
        if (fabs(got - want) > 2e-7 * fabs(want) + 0x1p-149)
            fail_msg("f(%.9g) is %.9g, expected %.9g", (double)x, (double)got, want);
    }
}

static void test_functions(void **state)
{
    (void)state;
    check_function(cpu_expf, exp);
    check_function(cpu_tanhf, tanh);
    check_function(cpu_erff, erf);
}

static void test_16_bits(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++)
        assert_int_equal(cpu_bits(cpu_f16_load((uint16_t)h)), cpu_bits(base_f16_to_f32((uint16_t)h)));
    for (uint64_t u = 0; u < 0x100000000u; u += 1021) {
        const float f = cpu_float((uint32_t)u);
        assert_int_equal(cpu_f16_store(f), base_f32_to_f16(f));
        assert_int_equal(cpu_bf16_store(f), base_f32_to_bf16(f));
    }
}

static void test_random_span(void **state)
{
    (void)state;
    const gr_exec e = {.seed = TEST_SEED, .step = TEST_STEP};
    const gr_node n = {.rng = 9};
    for (uint64_t first = 0x3fffffff0u; first < 0x3fffffff6u; first++) { /* across a carry of the counter */
        uint32_t buffer[BY_RANDOM_PLACES];
        const uint32_t *w = cpu_random_span(&e, &n, first, BY_RANDOM_SPAN, buffer);
        for (uint64_t i = 0; i < BY_RANDOM_SPAN; i++)
            assert_int_equal(w[i], cpu_random4(&e, &n, (first + i) / 4).v[(first + i) % 4]);
    }
}

/* ---- moved data ----------------------------------------------------------------------------- */

/* The element of x that belongs at flat position i of the output of a permutation. */
static int64_t permuted(const by_tensor *x, const by_tensor *y, const int *order, int64_t i)
{
    int64_t index[BY_MAX_RANK], from = 0;
    for (int a = y->rank - 1; a >= 0; a--) {
        index[order[a]] = i % y->dim[a];
        i /= y->dim[a];
    }
    for (int a = 0; a < x->rank; a++)
        from = from * x->dim[a] + index[a];
    return from;
}

static void check_permute(const kernel_set *set, by_dtype type)
{
    static const struct {
        int rank;
        int64_t dim[5];
        int order[5];
    } c[] = {
        {1, {9}, {0}},
        {2, {131, 517}, {1, 0}},
        {2, {1, 5}, {1, 0}},
        {3, {3, 33, 65}, {0, 2, 1}},
        {3, {7, 40, 70}, {1, 0, 2}},
        {4, {2, 5, 3, 16}, {0, 2, 1, 3}},
        {4, {2, 33, 3, 40}, {3, 1, 0, 2}},
        {4, {2, 3, 4, 5}, {2, 3, 0, 1}},
        {5, {2, 3, 2, 3, 4}, {4, 3, 2, 1, 0}},
        {5, {3, 1, 4, 2, 6}, {2, 0, 1, 4, 3}},
        {5, {3, 2, 4, 2, 6}, {3, 1, 2, 0, 4}},
        {2, {0, 4}, {1, 0}},
    };
    for (int k = 0; k < BY_COUNT(c); k++) {
        pool p = {.rng = base_rng_make(1, (uint64_t)k)};
        gr_permute_attr a;
        int64_t dim[5];
        for (int i = 0; i < c[k].rank; i++) {
            a.order[i] = c[k].order[i];
            dim[i] = c[k].dim[c[k].order[i]];
        }
        by_tensor *x = tensor_of(&p, type, c[k].rank, c[k].dim), *y = tensor_of(&p, type, c[k].rank, dim);
        const size_t size = by_dtype_size(type);
        for (size_t i = 0; i < (size_t)count_of(x) * size; i++)
            ((unsigned char *)x->data)[i] = (unsigned char)base_rng_u32(&p.rng);
        gr_node n = {.op = GR_OP_PERMUTE, .in = {x}, .out = {y}, .attr = &a};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        for (int64_t i = 0; i < count_of(y); i++)
            assert_memory_equal((char *)y->data + (size_t)i * size,
                                (char *)x->data + (size_t)permuted(x, y, a.order, i) * size, size);
        pool_free(&p);
    }
}

static void test_permute(void **state)
{
    (void)state;
    for_each_kernel(check_permute);
    kernel_set sets[BY_ISA_COUNT];
    kernel_sets(sets);
    check_permute(&sets[0], BY_U8);
    check_permute(&sets[0], BY_I64);
}

/* concat of three parts, slice of each out of it again, pad of a slice: all along each axis of (4, 5, 6)
 * blown up by `big`. */
static void check_blocks(const kernel_set *set, by_dtype type)
{
    for (int axis = 0; axis < 3; axis++) {
        for (int64_t big = 1; big <= 40; big += 39) {
            pool p = {.rng = base_rng_make(2, (uint64_t)axis)};
            const size_t size = by_dtype_size(type);
            int64_t dim[3] = {4, 5, 6 * big}, parts[3] = {1, 3, 2}, at = 0;
            by_tensor *part[3], *whole;
            gr_slice_attr a = {.axis = axis};
            for (int i = 0; i < 3; i++) {
                dim[axis] = parts[i];
                part[i] = tensor_of(&p, type, 3, dim);
                randomise(&p, part[i], 1);
            }
            dim[axis] = 6;
            whole = tensor_of(&p, type, 3, dim);
            gr_node join = {
                .op = GR_OP_CONCAT, .in = {part[0], part[1], part[2]}, .out = {whole}, .attr = &a};
            assert_int_equal(run_node(&p, set, &join), BY_OK);
            for (int i = 0; i < 3; at += parts[i++]) {
                dim[axis] = parts[i];
                by_tensor *got = tensor_of(&p, type, 3, dim);
                a = (gr_slice_attr){.axis = axis, .start = at, .count = parts[i]};
                gr_node cut = {.op = GR_OP_SLICE, .in = {whole}, .out = {got}, .attr = &a};
                assert_int_equal(run_node(&p, set, &cut), BY_OK);
                assert_memory_equal(got->data, part[i]->data, (size_t)count_of(got) * size);
            }
            dim[axis] = 6;
            by_tensor *padded = tensor_of(&p, type, 3, dim);
            a = (gr_slice_attr){.axis = axis, .start = 1, .count = 6};
            gr_node pad = {.op = GR_OP_PAD, .in = {part[1]}, .out = {padded}, .attr = &a};
            assert_int_equal(run_node(&p, set, &pad), BY_OK);
            int64_t inner = 1;
            for (int i = axis + 1; i < 3; i++)
                inner *= dim[i];
            static const char zero[8];
            for (int64_t i = 0; i < count_of(padded); i++) {
                const bool inside = i / inner % 6 >= 1 && i / inner % 6 < 4;
                assert_memory_equal((char *)padded->data + (size_t)i * size,
                                    inside ? (char *)whole->data + (size_t)i * size : zero, size);
            }
            pool_free(&p);
        }
    }
}

static void test_blocks(void **state)
{
    (void)state;
    for_each_kernel(check_blocks);
    kernel_set sets[BY_ISA_COUNT];
    kernel_sets(sets);
    check_blocks(&sets[0], BY_U8);
    check_blocks(&sets[0], BY_I32);
}

static void check_fill_copy_cast(const kernel_set *set, by_dtype type)
{
    static const by_dtype to[] = {BY_F32, BY_BF16, BY_F16, BY_F64, BY_I32, BY_BOOL};
    for (int k = 0; k < BY_COUNT(sizes); k++) {
        pool p = {.rng = base_rng_make(3, (uint64_t)k)};
        by_tensor *x = TENSOR(&p, type, sizes[k][0], sizes[k][1]),
                  *y = TENSOR(&p, type, sizes[k][0], sizes[k][1]);
        const size_t bytes = (size_t)count_of(x) * by_dtype_size(type);
        randomise(&p, x, 3);
        gr_node copy = {.op = GR_OP_COPY, .in = {x}, .out = {y}};
        assert_int_equal(run_node(&p, set, &copy), BY_OK);
        assert_memory_equal(x->data, y->data, bytes);
        gr_fill_attr value = {.value = -1.5};
        gr_node fill = {.op = GR_OP_FILL, .out = {y}, .attr = &value};
        assert_int_equal(run_node(&p, set, &fill), BY_OK);
        const double *got = values_of(&p, y);
        for (int64_t i = 0; i < count_of(y); i++)
            assert_true(got[i] == -1.5);
        for (int t = 0; t < BY_COUNT(to); t++) {
            by_tensor *z = TENSOR(&p, to[t], sizes[k][0], sizes[k][1]),
                      *want = TENSOR(&p, to[t], sizes[k][0], sizes[k][1]);
            gr_node cast = {.op = GR_OP_CAST, .in = {x}, .out = {z}};
            assert_int_equal(run_node(&p, set, &cast), BY_OK);
            base_convert(want->data, to[t], x->data, type, (size_t)count_of(x));
            assert_memory_equal(z->data, want->data, (size_t)count_of(z) * by_dtype_size(to[t]));
        }
        pool_free(&p);
    }
}

static void test_fill_copy_cast(void **state)
{
    (void)state;
    for_each_kernel(check_fill_copy_cast);
}

/* ---- elementwise ---------------------------------------------------------------------------- */

static void check_binary(const kernel_set *set, by_dtype type)
{
    static const gr_op ops[] = {GR_OP_ADD, GR_OP_SUB, GR_OP_MUL};
    for (int k = 0; k < BY_COUNT(sizes) * 3 * 3 * 2; k++) {
        pool p = {.rng = base_rng_make(4, (uint64_t)k)};
        const int64_t rows = sizes[k / 18][0], cols = sizes[k / 18][1];
        const gr_op op = ops[k % 3];
        const bool over = k / 9 % 2;
        const int64_t b_rows = k / 3 % 3 == 0 ? rows : 1, b_cols = k / 3 % 3 == 2 ? 1 : cols;
        by_tensor *a = TENSOR(&p, type, rows, cols), *b = TENSOR(&p, type, b_rows, b_cols);
        by_tensor *y = TENSOR(&p, type, rows, cols);
        double *u = randomise(&p, a, 1), *v = randomise(&p, b, 1);
        double *want = pool_alloc(&p, (size_t)count_of(y) * sizeof *want);
        for (int64_t i = 0; i < count_of(y); i++) {
            const double w = v[i % count_of(b)];
            want[i] = op == GR_OP_ADD ? u[i] + w : op == GR_OP_SUB ? u[i] - w : u[i] * w;
        }
        if (over)
            y->data = a->data;
        gr_node n = {.op = op, .in = {a, b}, .out = {y}};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        expect(set, "binary", y, want, 8, 1);
        pool_free(&p);
    }
}

static void test_binary(void **state)
{
    (void)state;
    for_each_kernel(check_binary);
}

static double act_value(by_act act, double x)
{
    const double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    switch (act) {
    case BY_GELU:
        return x * 0.5 * erfc(-x * M_SQRT1_2);
    case BY_GELU_TANH:
        return 0.5 * x * (1 + tanh(u));
    case BY_RELU:
        return x > 0 ? x : 0;
    case BY_SILU:
        return x / (1 + exp(-x));
    case BY_TANH:
        return tanh(x);
    case BY_SIGMOID:
        return 1 / (1 + exp(-x));
    case BY_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case BY_GELU_10:
        return fmax(fmin(x * 0.5 * erfc(-x * M_SQRT1_2), 10), -10);
    case BY_RELU2:
        return x > 0 ? x * x : 0;
    case BY_RELU6:
        return fmax(fmin(x, 6), 0);
    case BY_LEAKY_RELU:
        return x > 0 ? x : 0.01 * x;
    case BY_HARD_SWISH:
        return x * fmax(fmin(x + 3, 6), 0) / 6;
    case BY_MISH:
        return x * tanh(log1p(exp(x)));
    case BY_LAPLACE:
        return 0.5 * erfc(-(x - 0.707107) / (0.282095 * sqrt(2)));
    case BY_SQRT_SOFTPLUS:
        return sqrt(log1p(exp(x)));
    default:
        return x;
    }
}

/* Central difference of the function above, exact to about 1e-9; by hand where a function has corners. */
static double act_slope(by_act act, double x)
{
    const double h = 1e-4, a = act_value(act, x + h) - act_value(act, x - h);
    const double b = act_value(act, x + 2 * h) - act_value(act, x - 2 * h);
    switch (act) {
    case BY_RELU:
        return x > 0;
    case BY_GELU_10:
        return x > 10 ? 0 : act_slope(BY_GELU, x);
    case BY_RELU2:
        return x > 0 ? 2 * x : 0;
    case BY_RELU6:
        return x > 0 && x < 6;
    case BY_LEAKY_RELU:
        return x > 0 ? 1 : 0.01;
    case BY_HARD_SWISH:
        return x < -3 ? 0 : x <= 3 ? x / 3 + 0.5 : 1;
    default:
        return (8 * a - b) / (12 * h);
    }
}

enum { ACTS = BY_EXP }; /* the later ones want positive numbers, which the samples of test_ops have */

static void check_activation(const kernel_set *set, by_dtype type)
{
    for (int k = 0; k < BY_COUNT(sizes) * ACTS; k++) {
        pool p = {.rng = base_rng_make(5, (uint64_t)k)};
        gr_activation_attr a = {.act = (by_act)(k % ACTS)};
        const int64_t rows = sizes[k / ACTS][0], cols = sizes[k / ACTS][1];
        by_tensor *x = TENSOR(&p, type, rows, cols), *y = TENSOR(&p, type, rows, cols);
        by_tensor *dy = TENSOR(&p, type, rows, cols), *dx = TENSOR(&p, type, rows, cols);
        double *u = randomise(&p, x, 3), *v = randomise(&p, dy, 1);
        double *want = pool_alloc(&p, (size_t)count_of(y) * sizeof *want);
        double *slope = pool_alloc(&p, (size_t)count_of(y) * sizeof *want);
        for (int64_t i = 0; i < count_of(y); i++) {
            want[i] = act_value(a.act, u[i]);
            slope[i] = v[i] * act_slope(a.act, u[i]);
        }
        gr_node n = {.op = GR_OP_ACTIVATION, .in = {x}, .out = {y}, .attr = &a};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        expect(set, "activation", y, want, 10, 4);
        gr_node over = {.op = GR_OP_ACTIVATION, .in = {x}, .out = {x}, .attr = &a};
        gr_node grad = {.op = GR_OP_ACTIVATION_GRAD, .in = {x, dy}, .out = {dx}, .attr = &a};
        gr_node grad_over = {.op = GR_OP_ACTIVATION_GRAD, .in = {x, dy}, .out = {dy}, .attr = &a};
        assert_int_equal(run_node(&p, set, &grad), BY_OK);
        expect(set, "activation_grad", dx, slope, type == BY_F64 ? 1e5 : 5,
               8); /* f64: that of the difference */
        assert_int_equal(run_node(&p, set, &grad_over), BY_OK);
        assert_int_equal(run_node(&p, set, &over), BY_OK);
        assert_memory_equal(x->data, y->data, (size_t)count_of(x) * by_dtype_size(type));
        assert_memory_equal(dy->data, dx->data, (size_t)count_of(x) * by_dtype_size(type));
        pool_free(&p);
    }
}

static void test_activation(void **state)
{
    (void)state;
    for_each_kernel(check_activation);
}

/* Whether element i of a node is kept. */
static bool kept(uint32_t rng, int64_t i, float p)
{
    const base_philox r = base_philox_at(TEST_SEED, (uint64_t)TEST_STEP << 32 | rng, (uint64_t)i / 4);
    return r.v[i % 4] >= (double)p * 0x1p32;
}

static void check_scale_dropout(const kernel_set *set, by_dtype type)
{
    for (int k = 0; k < BY_COUNT(sizes); k++) {
        pool p = {.rng = base_rng_make(6, (uint64_t)k)};
        by_tensor *x = TENSOR(&p, type, sizes[k][0], sizes[k][1]),
                  *y = TENSOR(&p, type, sizes[k][0], sizes[k][1]);
        double *u = randomise(&p, x, 1), *want = pool_alloc(&p, (size_t)count_of(x) * sizeof *want);
        gr_scale_attr scale = {.factor = -0.75};
        gr_node n = {.op = GR_OP_SCALE, .in = {x}, .out = {y}, .attr = &scale};
        for (int64_t i = 0; i < count_of(x); i++)
            want[i] = u[i] * -0.75;
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        expect(set, "scale", y, want, 4, 1);
        gr_dropout_attr drop = {.p = 0.25f};
        gr_node d = {.op = GR_OP_DROPOUT, .in = {x}, .out = {x}, .attr = &drop, .rng = 42};
        int64_t count = 0;
        for (int64_t i = 0; i < count_of(x); i++) {
            want[i] = kept(42, i, 0.25f) ? u[i] / 0.75 : 0;
            count += kept(42, i, 0.25f);
        }
        assert_int_equal(run_node(&p, set, &d), BY_OK);
        expect(set, "dropout", x, want, 4, 2);
        if (count_of(x) > 10000)
            assert_true(fabs((double)count / (double)count_of(x) - 0.75) < 0.02);
        drop.p = 1;
        assert_int_equal(run_node(&p, set, &d), BY_OK);
        memset(want, 0, (size_t)count_of(x) * sizeof *want);
        expect(set, "dropout of all", x, want, 0, 0);
        pool_free(&p);
    }
}

static void test_scale_dropout(void **state)
{
    (void)state;
    for_each_kernel(check_scale_dropout);
}

/* ---- reductions ----------------------------------------------------------------------------- */

static void check_reduce(const kernel_set *set, by_dtype type)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {3, 7, 1}, {1, 9000, 1}, {37, 1003, 1},
                                        {1, 700, 300}, {3, 5, 7}, {2, 600, 33}};
    for (int k = 0; k < BY_COUNT(shapes) * 2; k++) {
        pool p = {.rng = base_rng_make(7, (uint64_t)k)};
        const int64_t outer = shapes[k / 2][0], count = shapes[k / 2][1], inner = shapes[k / 2][2];
        gr_reduce_attr a = {.outer = outer, .count = count, .inner = inner, .scale = 0.5};
        by_tensor *x = TENSOR(&p, type, outer, count, inner);
        by_tensor *y = TENSOR(&p, k % 2 ? gr_acc_type(type) : type, outer, inner);
        double *u = randomise(&p, x, 1), *want = pool_alloc(&p, (size_t)(outer * inner) * sizeof *want);
        for (int64_t i = 0; i < count_of(x); i++)
            want[i / (count * inner) * inner + i % inner] += u[i] * 0.5;
        gr_node n = {.op = GR_OP_REDUCE, .in = {x}, .out = {y}, .attr = &a};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        expect(set, "reduce", y, want, sqrt((double)count) * 4, 16);
        double *v = values_of(&p, y), *wide = pool_alloc(&p, (size_t)count_of(x) * sizeof *wide);
        for (int64_t i = 0; i < count_of(x); i++)
            wide[i] = v[i / (count * inner) * inner + i % inner] * 0.5;
        gr_node back = {.op = GR_OP_BROADCAST, .in = {y}, .out = {x}, .attr = &a};
        assert_int_equal(run_node(&p, set, &back), BY_OK);
        expect(set, "broadcast", x, wide, 0, 0);
        pool_free(&p);
    }
}

static void check_argmax(const kernel_set *set, by_dtype type)
{
    for (int k = 0; k < BY_COUNT(sizes) * 3; k++) { /* as it is; with the largest twice; with two NaNs */
        pool p = {.rng = base_rng_make(8, (uint64_t)k)};
        const int64_t rows = sizes[k / 3][0], cols = sizes[k / 3][1];
        by_tensor *x = TENSOR(&p, type, rows, cols), *y = TENSOR(&p, BY_I32, rows);
        double *u = randomise(&p, x, 1);
        for (int64_t r = 0; k % 3 && r < rows; r++)
            for (int64_t j = 0; j < 2; j++)
                u[r * cols + (r * 31 + j * 400) % cols] = k % 3 == 1 ? 100 : (double)NAN;
        base_convert(x->data, type, u, BY_F64, (size_t)count_of(x));
        gr_node n = {.op = GR_OP_ARGMAX, .in = {x}, .out = {y}};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        for (int64_t r = 0; r < rows; r++) {
            int64_t best = 0;
            for (int64_t j = 1; j < cols; j++)
                if (!isnan(u[r * cols + best]) && !(u[r * cols + j] <= u[r * cols + best]))
                    best = j;
            assert_int_equal(((int32_t *)y->data)[r], best);
        }
        pool_free(&p);
    }
}

static void check_norm2(const kernel_set *set, by_dtype type)
{
    static const int64_t counts[] = {1, 2, 77, 65536, 200001};
    for (int k = 0; k < BY_COUNT(counts); k++) {
        pool p = {.rng = base_rng_make(9, (uint64_t)k)};
        by_tensor *x = TENSOR(&p, type, counts[k]), *y = tensor_of(&p, gr_acc_type(type), 0, NULL);
        const double *u = randomise(&p, x, 1);
        double sum = 0;
        for (int64_t i = 0; i < counts[k]; i++)
            sum += u[i] * u[i];
        sum = sqrt(sum);
        gr_node n = {.op = GR_OP_NORM2, .in = {x}, .out = {y}};
        assert_int_equal(run_node(&p, set, &n), BY_OK);
        expect(set, "norm2", y, &sum, sum, type == BY_F64 ? 16 : 0);
        pool_free(&p);
    }
}

static void test_reductions(void **state)
{
    (void)state;
    for_each_kernel(check_reduce);
    for_each_kernel(check_argmax);
    for_each_kernel(check_norm2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),     cmocka_unit_test(test_16_bits),
        cmocka_unit_test(test_random_span),   cmocka_unit_test(test_permute),
        cmocka_unit_test(test_blocks),        cmocka_unit_test(test_fill_copy_cast),
        cmocka_unit_test(test_binary),        cmocka_unit_test(test_activation),
        cmocka_unit_test(test_scale_dropout), cmocka_unit_test(test_reductions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
