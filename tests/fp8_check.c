/* fp8_check.c - products in FP8 (src/cuda/kernels/fp8.cu) against e4m3 as its definition has it: the numbers
 * are listed, and the nearest is looked for. Included by test_cuda.c. */

/* A device "cuda+fp8" that takes every product it can in FP8, however small; NULL where there is none. */
static by_device *fp8;

/* As in src/cuda/kernels/fp8.cuh. */
enum { NOTHING_BEHIND, ACTIVATION_BEHIND, SLOPE_BEHIND };
bool cuda_fp8_pays(int64_t m, int64_t n, int64_t k, bool turned, int behind) __attribute__((weak));

/* ---- the format ------------------------------------------------------------------------------- */

enum { E4M3_COUNT = 127 };

/* The numbers that are finite and not negative, by their bits: 4 of exponent, 3 of mantissa. */
static double e4m3[E4M3_COUNT];

static void list_e4m3(void)
{
    for (int i = 0; i < E4M3_COUNT; i++)
        e4m3[i] = i < 8 ? ldexp(i, -9) : ldexp(8 + i % 8, i / 8 - 10);
}

/* The nearest; the even one of two that are equally near. */
static double nearest_e4m3(double x)
{
    int best = 0;
    for (int i = 1; i < E4M3_COUNT; i++) {
        const double closer = fabs(fabs(x) - e4m3[best]) - fabs(fabs(x) - e4m3[i]);
        if (closer > 0 || (closer == 0 && i % 2 == 0))
            best = i;
    }
    return x < 0 ? -e4m3[best] : e4m3[best];
}

/* What is left of `count` numbers, `step` apart, when the largest of them becomes 448. */
static void as_e4m3(const double *x, int64_t count, int64_t step, double *out)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf((float)x[i * step]));
    const float scale = fmaxf(most / 448, 0x1p-126f), factor = 1 / scale;
    for (int64_t i = 0; i < count; i++)
        out[i * step] = nearest_e4m3((float)x[i * step] * factor) * (double)scale;
}

/* ---- a layer on the device -------------------------------------------------------------------- */

/* y (m, n) = x (m, k) w, and dx (m, k) = dy (m, n) w^T; w is stored (k, n) or (n, k). */
typedef struct layer {
    int64_t m, k, n;
    bool kn, gelu;
    by_dtype type;
    double *x, *w, *b, *dy, *y, *dx;
} layer;

static double *fp8_numbers(int64_t count)
{
    double *v = base_alloc_zero((size_t)count, sizeof *v);
    assert_non_null(v);
    return v;
}

static layer layer_new(int64_t m, int64_t k, int64_t n, bool kn, by_dtype type)
{
    return (layer){.m = m,
                   .k = k,
                   .n = n,
                   .kn = kn,
                   .type = type,
                   .x = fp8_numbers(m * k),
                   .w = fp8_numbers(n * k),
                   .b = fp8_numbers(n),
                   .dy = fp8_numbers(m * n),
                   .y = fp8_numbers(m * n),
                   .dx = fp8_numbers(m * k)};
}

static void layer_free(layer *l)
{
    double *all[] = {l->x, l->w, l->b, l->dy, l->y, l->dx};
    for (int i = 0; i < BY_COUNT(all); i++)
        base_free(all[i]);
}

static void fill_noise(const layer *l, double *v, int64_t count, double scale, uint64_t seed)
{
    for (int64_t i = 0; i < count; i++)
        v[i] = op_sample_noise(&seed) * scale;
    round_to(l->type, v, count);
}

static void noisy(layer *l, uint64_t seed)
{
    fill_noise(l, l->x, l->m * l->k, 3, seed);
    fill_noise(l, l->w, l->n * l->k, 0.05, seed + 1);
    fill_noise(l, l->b, l->n, 1, seed + 2);
    fill_noise(l, l->dy, l->m * l->n, 1e-3, seed + 3);
}

static void write_numbers(by_program *p, by_tensor *t, const double *values)
{
    const size_t bytes = gr_tensor_bytes(t);
    void *typed = base_alloc(bytes);
    assert_non_null(typed);
    base_convert(typed, t->type, values, BY_F64, (size_t)by_elements(t));
    assert_int_equal(by_write(p, t, typed, bytes), BY_OK);
    base_free(typed);
}

static void read_numbers(by_program *p, const by_tensor *t, double *values)
{
    const size_t bytes = gr_tensor_bytes(t);
    void *typed = base_alloc(bytes);
    assert_non_null(typed);
    assert_int_equal(by_read(p, t, typed, bytes), BY_OK);
    base_convert(values, BY_F64, typed, t->type, (size_t)by_elements(t));
    base_free(typed);
}

/* Run twice. The layer is there three times: the second finds x in FP8 already, before the third something
 * else has been made there. All have to be the same bits, every time. */
static void run_layer(layer *l)
{
    by_params *none = by_params_new(fp8, l->type);
    assert_non_null(none);
    assert_int_equal(by_params_freeze(none, false), BY_OK);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = none});
    assert_non_null(g);
    const gr_linear_attr plain = {.w_is_kn = l->kn};
    const by_linear_spec spec = {.w_is_kn = l->kn, .act = l->gelu ? BY_GELU_TANH : BY_ACT_NONE};
    by_tensor *x = by_input(g, "x", l->type, SHAPE(l->m, l->k)), *b = by_input(g, "b", l->type, SHAPE(l->n));
    by_tensor *w =
        l->kn ? by_input(g, "w", l->type, SHAPE(l->k, l->n)) : by_input(g, "w", l->type, SHAPE(l->n, l->k));
    by_tensor *dy = by_input(g, "dy", l->type, SHAPE(l->m, l->n)), *y[3];
    y[0] = by_linear(g, x, w, b, &spec);
    y[1] = by_linear(g, x, w, b, &spec);
    gr_node *sums =
        gr_node_make(g, GR_OP_LINEAR_DW, (by_tensor *[]){x, dy, NULL, NULL}, 4, &plain, sizeof plain);
    y[2] = by_linear(g, x, w, b, &spec);
    gr_node *back = gr_node_make(g, GR_OP_LINEAR_DX, (by_tensor *[]){dy, w}, 2, &plain, sizeof plain);
    assert_true(sums && back);
    for (int i = 0; i < 3; i++)
        by_output(g, "y", y[i]);
    by_output(g, "db", sums->out[1]);
    by_output(g, "dx", back->out[0]);
    by_program *p = by_compile(g, &(by_compile_spec){0});
    if (!p)
        fail_msg("%s", by_error_message());
    write_numbers(p, x, l->x);
    write_numbers(p, w, l->w);
    write_numbers(p, b, l->b);
    write_numbers(p, dy, l->dy);
    double *same = fp8_numbers(l->m * BY_MAX(l->n, l->k));
    const size_t y_bytes = (size_t)(l->m * l->n) * sizeof *same,
                 dx_bytes = (size_t)(l->m * l->k) * sizeof *same;
    for (int run = 0; run < 3; run++) {
        assert_int_equal(by_run(p), BY_OK);
        for (int i = 0; i < 3; i++) {
            read_numbers(p, y[i], run == 0 && i == 0 ? l->y : same);
            if ((run || i) && memcmp(same, l->y, y_bytes) != 0)
                complain("FP8, run %d: layer %d has other bits", run, i);
        }
        read_numbers(p, back->out[0], run == 0 ? l->dx : same);
        if (run && memcmp(same, l->dx, dx_bytes) != 0)
            complain("FP8, run %d: dx has other bits", run);
    }
    base_free(same);
    by_program_free(p);
    by_params_free(none);
}

/* ---- what is right ---------------------------------------------------------------------------- */

static double w_at(const layer *l, const double *w, int64_t k, int64_t n)
{
    return w[l->kn ? k * l->n + n : n * l->k + k];
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* y and dx of numbers that are used as they are, or rounded to e4m3 first. */
static void right_layer(const layer *l, bool rounded, double *y, double *dx)
{
    double *x = fp8_numbers(l->m * l->k), *dy = fp8_numbers(l->m * l->n), *w = fp8_numbers(l->n * l->k),
           *back = fp8_numbers(l->n * l->k);
    memcpy(x, l->x, (size_t)(l->m * l->k) * sizeof *x);
    memcpy(dy, l->dy, (size_t)(l->m * l->n) * sizeof *x);
    memcpy(w, l->w, (size_t)(l->n * l->k) * sizeof *x);
    memcpy(back, l->w, (size_t)(l->n * l->k) * sizeof *x);
    for (int64_t i = 0; i < l->m && rounded; i++) {
        as_e4m3(l->x + i * l->k, l->k, 1, x + i * l->k);
        as_e4m3(l->dy + i * l->n, l->n, 1, dy + i * l->n);
    }
    for (int64_t n = 0; n < l->n && rounded; n++) { /* contracted over k: a scale for each n */
        const int64_t at = l->kn ? n : n * l->k;
        as_e4m3(l->w + at, l->k, l->kn ? l->n : 1, w + at);
    }
    for (int64_t k = 0; k < l->k && rounded; k++) {
        const int64_t at = l->kn ? k * l->n : k;
        as_e4m3(l->w + at, l->n, l->kn ? 1 : l->k, back + at);
    }
    for (int64_t i = 0; i < l->m; i++) {
        for (int64_t n = 0; n < l->n; n++) {
            double sum = l->b[n];
            for (int64_t k = 0; k < l->k; k++)
                sum += x[i * l->k + k] * w_at(l, w, k, n);
            y[i * l->n + n] = l->gelu ? gelu_tanh(sum) : sum;
        }
        for (int64_t k = 0; k < l->k; k++) {
            double sum = 0;
            for (int64_t n = 0; n < l->n; n++)
                sum += dy[i * l->n + n] * w_at(l, back, k, n);
            dx[i * l->k + k] = sum;
        }
    }
    base_free(x);
    base_free(dy);
    base_free(w);
    base_free(back);
}

static bool no_fp8(void)
{
    if (!fp8)
        print_message("not run: products in FP8, which this card or its library does not have\n");
    return !fp8 || (only && strcmp(only, "fp8") != 0);
}

/* ---- the tests -------------------------------------------------------------------------------- */

/* Every 16-bit number up to 448 in size becomes the nearest of e4m3. The weight is 448 / 1024 times one,
 * which is e4m3 itself: what comes out shows what x and dy have become, and is exact in 16 bits. */
static void round_all(by_dtype type, bool kn)
{
    enum { WIDE = 64, PER = WIDE - 1 };
    const double unit = 448.0 / 1024;
    const uint16_t last = type == BY_BF16 ? base_f32_to_bf16(448) : base_f32_to_f16(448);
    const int64_t count = 2 * ((int64_t)last + 1), rows = ((count + PER - 1) / PER + 15) / 16 * 16;
    layer l = layer_new(rows, WIDE, WIDE, kn, type);
    for (int64_t i = 0; i < WIDE; i++)
        l.w[i * WIDE + i] = unit;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < WIDE; c++) {
            const int64_t i = r * PER + c - 1;
            const uint16_t bits = (uint16_t)((i / 2 > last ? 0 : i / 2) | i % 2 << 15);
            const float v = type == BY_BF16 ? base_bf16_to_f32(bits) : base_f16_to_f32(bits);
            l.x[r * WIDE + c] = c == 0 ? 448 : v;
            l.dy[r * WIDE + c] = c == 0 ? -448 : v;
        }
    run_layer(&l);
    for (int64_t i = 0; i < rows * WIDE; i++)
        if (l.y[i] != nearest_e4m3(l.x[i]) * unit || l.dx[i] != nearest_e4m3(l.dy[i]) * unit)
            complain("FP8, %s: %.9g became %.9g and %.9g, and not %.9g", by_dtype_name(type), l.x[i],
                     l.y[i] / unit, l.dx[i] / unit, nearest_e4m3(l.x[i]));
    layer_free(&l);
}

static void test_fp8_rounding(void **state)
{
    (void)state;
    if (no_fp8())
        skip();
    for (int i = 0; i < 4; i++)
        round_all(i / 2 ? BY_F16 : BY_BF16, i % 2);
    no_complaints();
}

/* A number that is not finite spoils its row and no other; zeros stay; the smallest numbers count. */
static void test_fp8_extremes(void **state)
{
    (void)state;
    if (no_fp8())
        skip();
    layer l = layer_new(80, 32, 32, true, BY_BF16);
    fill_noise(&l, l.x, l.m * l.k, 1, 5);
    fill_noise(&l, l.dy, l.m * l.n, 1, 6);
    fill_noise(&l, l.w, l.n * l.k, 0x1p60, 7);
    for (int64_t i = 0; i < 32; i++) {
        l.x[2 * 32 + i] = l.dy[2 * 32 + i] = 0;
        l.x[3 * 32 + i] = ldexp((double)i - 16, -133); /* subnormal in bf16 */
        l.dy[3 * 32 + i] = ldexp((double)i - 13, -130);
    }
    double *y = fp8_numbers(l.m * l.n), *dx = fp8_numbers(l.m * l.k);
    right_layer(&l, true, y, dx);
    l.x[7] = l.dy[9] = NAN;
    l.x[32 + 5] = INFINITY;
    l.dy[32 + 6] = -INFINITY;
    run_layer(&l);
    for (int i = 0; i < 2 * 32; i++)
        if (isfinite(l.y[i]) || isfinite(l.dx[i]))
            complain("FP8: column %d of row %d is finite beside what is not", i % 32, i / 32);
    for (int i = 2 * 32; i < 3 * 32; i++)
        if (l.y[i] != 0 || l.dx[i] != 0)
            complain("FP8: a row of zeros became %g, %g", l.y[i], l.dx[i]);
    for (int r = 3; r < 80; r++) {
        const double y_off = nmse(l.y + r * 32, y + r * 32, 32),
                     dx_off = nmse(l.dx + r * 32, dx + r * 32, 32);
        if (!(y_off <= bound(BY_BF16, false)) || !(dx_off <= bound(BY_BF16, false)))
            complain("FP8: row %d has NMSE %.2g, %.2g", r, y_off, dx_off);
    }
    base_free(y);
    base_free(dx);
    layer_free(&l);
    no_complaints();
}

/* FP8 units take 32 numbers at a time and cut their sum off 13 bits below its largest part (fast
 * accumulation). */
static double cut_off(int64_t terms)
{
    const double each = emulated() ? 0 : 0x1p-13;
    return each * each * (double)(terms * terms) / (32 * 32);
}

/* The product of what has been rounded is right to 16 bits. Against the product of what has not: a number
 * whose mantissa is in [1, 2) is off by anything up to half of 1/8, which is 1/768 when squared and averaged,
 * and 1/768 or less of its own square. Errors of both sides add up, and sums of many keep the proportion. */
static void check_layer(int64_t m, int64_t k, int64_t n, bool kn, bool gelu, by_dtype type)
{
    layer l = layer_new(m, k, n, kn, type);
    double *y = fp8_numbers(m * n), *dx = fp8_numbers(m * k);
    double allowed = bound(type, false) + cut_off(BY_MAX(k, n));
    l.gelu = gelu;
    noisy(&l, (uint64_t)(m + k + n));
    run_layer(&l);
    for (int rounded = 1; rounded >= 0; rounded--) {
        right_layer(&l, rounded, y, dx);
        if (!rounded)
            allowed += 2.0 / 768;
        const double y_off = nmse(l.y, y, m * n), dx_off = nmse(l.dx, dx, m * k);
        if (!(y_off <= allowed) || !(dx_off <= allowed))
            complain("FP8, %lld x %lld x %lld %s, %s, against %s numbers: NMSE %.2g, %.2g, more than %.2g",
                     (long long)m, (long long)k, (long long)n, kn ? "kn" : "nk", by_dtype_name(type),
                     rounded ? "rounded" : "exact", y_off, dx_off, allowed);
    }
    base_free(y);
    base_free(dx);
    layer_free(&l);
}

static void test_fp8_products(void **state)
{
    (void)state;
    if (no_fp8())
        skip();
    static const int64_t sizes[][3] = {
        {80, 48, 32}, {96, 144, 80}, {80, 272, 320}, {80, 2064, 16}, {80, 16, 2080}};
    for (int i = 0; i < 4 * BY_COUNT(sizes); i++) {
        const int64_t *s = sizes[i / 4];
        check_layer(s[0], s[1], s[2], i % 2, i / 2 % 2, (i + i / 4) % 3 ? BY_BF16 : BY_F16);
    }
    no_complaints();
}

/* The op table's samples where a product of the sort is taken: within their memory, and the same bits. */
static void fp8_sample(gr_op op, int which)
{
    setup how = {.device = fp8, .type = BY_BF16, .exact = BY_BF16, .gradients = true, .guarded = true};
    result *guarded = outcome(how, op, which);
    how.guarded = false;
    result *planned = outcome(how, op, which);
    same_bits(guarded, planned, BY_BF16, "the GPU in FP8");
    result_free(guarded);
    result_free(planned);
}

static void test_fp8_samples(void **state)
{
    (void)state;
    enum { SQUARE = 8 }; /* {64, 64, 64} */
    const int64_t *p = op_sample_products[SQUARE];
    if (no_fp8())
        skip();
    assert_true(p[0] == 64 && p[1] == 64 && p[2] == 64);
    for (int i = 0; i < 4; i++)
        fp8_sample(GR_OP_LINEAR, SQUARE + i * OP_SAMPLE_PRODUCTS);
    for (int i = 0; i < 2; i++)
        fp8_sample(GR_OP_LINEAR_DX, SQUARE + i * OP_SAMPLE_PRODUCTS);
    no_complaints();
}

/* Which products of a GPT-2 are taken: none at a width of 768, where making FP8 takes what it saves; all at
 * 4096. */
static int paying(int64_t rows, int64_t width)
{
    const int64_t wide = 4 * width;
    int count = 0;
    for (int back = 0; back < 2; back++) { /* w (k, n): turned over going forward */
        count +=
            cuda_fp8_pays(rows, back ? width : 3 * width, back ? 3 * width : width, !back, NOTHING_BEHIND);
        count += cuda_fp8_pays(rows, width, width, !back, NOTHING_BEHIND);
        count += cuda_fp8_pays(rows, wide, width, !back, back ? SLOPE_BEHIND : ACTIVATION_BEHIND);
        count += cuda_fp8_pays(rows, width, wide, !back, NOTHING_BEHIND);
    }
    return count;
}

static void test_fp8_pays(void **state)
{
    (void)state;
    if (!cuda_fp8_pays)
        skip();
    assert_int_equal(paying(65536, 768), 1);  /* q, k and v forward */
    assert_int_equal(paying(16384, 1024), 5); /* not the square ones, nor that with GELU's slope */
    assert_int_equal(paying(8192, 1600), 8);
    assert_int_equal(paying(8192, 2048), 8);
    assert_int_equal(paying(8192, 4096), 8);
    assert_int_equal(paying(128, 4096), 0); /* mostly the making of the weights */
}

static void refuse_name(const char *name, const char *why)
{
    by_device *d = by_device_open(name, 0);
    if (d || !strstr(by_error_message(), why))
        complain("%s: \"%s\" says nothing of %s", name, d ? "" : by_error_message(), why);
    by_device_free(d);
}

static void test_fp8_names(void **state)
{
    (void)state;
    refuse_name("cuda+fp9", "cuda+fp9: only");
    refuse_name("cuda:x", "cuda:x: only");
    refuse_name("cuda+fp8+fp8", "+fp8");
    refuse_name("cuda:0+fp8x", "+fp8");
    refuse_name("cuda+tf32+fp8+tf32", "+fp8");
    refuse_name("cuda:4294967296", "there is no GPU");
    static const char *const both[] = {"cuda:0+tf32+fp8", "cuda:0+fp8+tf32"};
    for (int i = 0; i < BY_COUNT(both); i++) {
        if (emulated() && !getenv("BANYAN_CUDA_ARCH"))
            refuse_name(both[i], "8.9"); /* the emulated card is an 8.0 */
        by_device *d = fp8 && !emulated() ? by_device_open(both[i], 0) : NULL;
        if (fp8 && !emulated() && (!d || !strstr(by_device_description(d), "TF32, FP8")))
            complain("%s: %s", both[i], d ? by_device_description(d) : by_error_message());
        by_device_free(d);
    }
    no_complaints();
}

/* Emulated as a Hopper. */
static void open_fp8(void)
{
    const bool pretend = emulated() && !getenv("BANYAN_CUDA_ARCH");
    list_e4m3();
    if (pretend)
        setenv("BANYAN_CUDA_ARCH", "90", 1);
    setenv("BANYAN_FP8", "all", 1);
    fp8 = by_device_open("cuda+fp8", 0);
    unsetenv("BANYAN_FP8");
    if (pretend)
        unsetenv("BANYAN_CUDA_ARCH");
}
