/* test_base.c - errors, memory, buffers, names, random numbers and element types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "child.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_error_message(void **state)
{
    (void)state;
    base_error_clear();
    assert_string_equal(by_error_message(), "");
    assert_int_equal(base_error_status(), BY_OK);
    assert_int_equal(base_fail(BY_ERR_FORMAT, "tensor %s: %d of %d bytes", "wte", 3, 4), BY_ERR_FORMAT);
    assert_string_equal(by_error_message(), "tensor wte: 3 of 4 bytes");
    assert_int_equal(base_error_status(), BY_ERR_FORMAT);

    /* the present message may be an argument of the next */
    base_fail(BY_ERR_IO, "again: %s", by_error_message());
    assert_string_equal(by_error_message(), "again: tensor wte: 3 of 4 bytes");

    base_fail(BY_ERR_IO, "a\nb\x1b[31m");
    assert_string_equal(by_error_message(), "a b [31m");
    assert_string_equal(by_version(), BY_VERSION);
}

static void test_error_context(void **state)
{
    (void)state;
    base_fail(BY_ERR_FORMAT, "truncated");
    assert_int_equal(base_fail_context("model-%d.safetensors", 2), BY_ERR_FORMAT);
    assert_string_equal(by_error_message(), "model-2.safetensors: truncated");
    assert_int_equal(base_fail_context("loading"), BY_ERR_FORMAT);
    assert_string_equal(by_error_message(), "loading: model-2.safetensors: truncated");
    base_error_clear();
    assert_int_equal(base_fail_context("bare"), BY_ERR_ARGUMENT);
    assert_string_equal(by_error_message(), "bare");
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
}

/* Texts around and far above the size of the store, in two-byte characters at both parities. */
static void test_error_truncation(void **state)
{
    (void)state;
    static char text[5001];
    for (size_t n = 1000; n < 1040; n++) {
        size_t at = n % 2;
        memset(text, 'x', sizeof(text));
        for (size_t i = at; i + 1 < n; i += 2)
            memcpy(text + i, "\xc3\xa9", 2);
        text[n] = '\0';
        base_fail(BY_ERR_IO, "%s", text);
        const char *m = by_error_message();
        size_t length = strlen(m);
        if (length == n) {
            assert_string_equal(m, text);
            continue;
        }
        assert_true(n >= 1024 && length < 1024 && length >= 1020);
        assert_string_equal(m + length - 3, "...");
        assert_memory_equal(m, text, length - 3);
        assert_int_equal((length - 3 - at) % 2, 0); /* no half character */
    }
    memset(text, 'y', 5000);
    text[5000] = '\0';
    base_fail(BY_ERR_FORMAT, "%s", text);
    assert_int_equal(base_fail_context("%s", text), BY_ERR_FORMAT);
    assert_int_equal(strlen(by_error_message()), 1023);
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    bool clean = base_error_status() == BY_OK && !*by_error_message();
    base_fail(BY_ERR_NUMERIC, "elsewhere");
    return clean ? NULL : "the other thread saw this thread's error";
}

static void test_error_is_per_thread(void **state)
{
    (void)state;
    base_fail(BY_ERR_IO, "here");
    pthread_t thread;
    void *complaint;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    assert_null(complaint);
    assert_string_equal(by_error_message(), "here");
    assert_int_equal(base_error_status(), BY_ERR_IO);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void test_memory(void **state)
{
    (void)state;
    size_t out = 7;
    assert_false(base_mul_size(SIZE_MAX / 2 + 1, 2, &out));
    assert_false(base_add_size(SIZE_MAX, 1, &out));
    assert_int_equal(out, 7);
    assert_true(base_mul_size(SIZE_MAX, 1, &out) && out == SIZE_MAX);
    assert_true(base_mul_size(5, 0, &out) && out == 0);
    assert_true(base_add_size(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);

    base_error_clear();
    assert_null(base_alloc_zero(SIZE_MAX / 4, 8));
    assert_int_equal(base_error_status(), BY_ERR_MEMORY);

    char *a = base_alloc(0), *b = base_alloc(0);
    assert_true(a && b && a != b);
    a = base_resize(a, 3, 4);
    memcpy(a, "hello world", 12);
    base_error_clear();
    assert_null(base_resize(a, SIZE_MAX, 2));
    assert_int_equal(base_error_status(), BY_ERR_MEMORY);
    assert_string_equal(a, "hello world");
    base_free(a);
    base_free(b);
    base_free(NULL);

    unsigned char *z = base_alloc_zero(100, 3);
    for (int i = 0; i < 300; i++)
        assert_int_equal(z[i], 0);
    base_free(z);
    for (size_t n = 0; n < 200; n += 33) {
        void *p = base_alloc_aligned(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        base_free(p);
    }
    char *s = base_sprintf("%s-%05d", "layer", 12), *t = base_strdup(s);
    assert_string_equal(t, "layer-00012");
    base_free(s);
    base_free(t);
}

#ifndef SANITIZED /* whose allocators end the program on sizes no machine has */
static void test_memory_impossible_size(void **state)
{
    (void)state;
    volatile size_t size = SIZE_MAX / 2;
    base_error_clear();
    assert_null(base_alloc(size));
    assert_int_equal(base_error_status(), BY_ERR_MEMORY);
    assert_contains(by_error_message(), "9223372036854775807 bytes");
    assert_null(base_alloc_aligned(size));
    assert_null(base_alloc_zero(1, size));
    base_arena *a = base_arena_new();
    assert_null(base_arena_alloc(a, size));
    assert_non_null(base_arena_alloc(a, 1));
    base_arena_free(a);
}
#endif

static void test_arena(void **state)
{
    (void)state;
    base_arena *a = base_arena_new();
    static unsigned char *p[4000];
    size_t size[4000];
    base_rng r = base_rng_make(1, 1);
    for (int i = 0; i < 4000; i++) {
        size[i] = i % 500 == 7 ? 100000 : base_rng_below(&r, 200); /* some are larger than a block */
        p[i] = base_arena_alloc(a, size[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t j = 0; j < size[i]; j++)
            assert_int_equal(p[i][j], 0);
        memset(p[i], i & 0xff, size[i]);
    }
    for (int i = 0; i < 4000; i++)
        for (size_t j = 0; j < size[i]; j++)
            assert_int_equal(p[i][j], i & 0xff);
    assert_string_equal(base_arena_sprintf(a, "h.%d.%s", 3, base_arena_strdup(a, "attn")), "h.3.attn");
    base_error_clear();
    assert_null(base_arena_alloc(a, SIZE_MAX));
    assert_int_equal(base_error_status(), BY_ERR_MEMORY);
    assert_non_null(base_arena_alloc(a, 0));
    base_arena_free(a);
    base_arena_free(NULL);
}

static void test_buf(void **state)
{
    (void)state;
    base_buf b = {0};
    base_buf_put(&b, NULL, 0);
    assert_string_equal(b.data, "");
    for (int i = 0; i < 1000; i++) {
        base_buf_printf(&b, "%d", i % 10);
        base_buf_puts(&b, ",");
    }
    assert_int_equal(b.size, 2000);
    for (int i = 0; i < 1000; i++)
        assert_true(b.data[2 * i] == '0' + i % 10 && b.data[2 * i + 1] == ',');
    base_buf_put(&b, "\0x", 2);
    assert_int_equal(b.size, 2002);
    assert_memory_equal(b.data + 2000, "\0x", 3);

    base_error_clear();
    volatile size_t huge = SIZE_MAX - 1;
    base_buf_put(&b, "x", huge);
    assert_true(b.failed);
    assert_int_equal(base_error_status(), BY_ERR_MEMORY);
    base_buf_puts(&b, "more");
    base_buf_printf(&b, "more");
    assert_int_equal(b.size, 2002);
    base_buf_free(&b);
    assert_true(!b.data && !b.size && !b.failed);
    base_buf_puts(&b, "anew");
    assert_string_equal(b.data, "anew");
    base_buf_free(&b);
    base_buf_free(&b);
}

static void test_names(void **state)
{
    (void)state;
    base_names *t = base_names_new();
    char key[32];
    assert_int_equal(base_names_find(t, "x"), -1);
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof(key), "h.%d.weight", i);
        assert_int_equal(base_names_put(t, key, i), BY_OK);
    }
    assert_int_equal(base_names_put(t, "", 5), BY_OK);
    assert_int_equal(base_names_put(t, "h.17.weight", 99), BY_OK);
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof(key), "h.%d.weight", i);
        assert_int_equal(base_names_find(t, key), i == 17 ? 99 : i);
    }
    assert_int_equal(base_names_find(t, ""), 5);
    assert_int_equal(base_names_find(t, "h.20000.weight"), -1);
    assert_int_equal(base_names_find(t, "h.1"), -1);
    assert_int_equal(base_names_put(t, "negative", -1), BY_ERR_ARGUMENT);
    assert_int_equal(base_names_find(t, "negative"), -1);
    base_names_free(t);
    base_names_free(NULL);
}

/* Vectors from the FNV specification. */
static void test_hash(void **state)
{
    (void)state;
    assert_true(base_hash("", 0, 0) == 0xcbf29ce484222325u);
    assert_true(base_hash("a", 1, 0) == 0xaf63dc4c8601ec8cu);
    assert_true(base_hash("foobar", 6, 0) == 0x85944171f73967e8u);
    assert_true(base_hash("a", 1, 1) != base_hash("a", 1, 0));
}

#ifndef SANITIZED /* sanitizers reserve more address space than any limit would leave */
static int exhaust_memory(const char *dir)
{
    (void)dir;
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){64 << 20, 64 << 20}) == 0);

    base_arena *a = base_arena_new();
    CHECK(a);
    while (base_arena_alloc(a, 3000))
        ;
    CHECK(base_error_status() == BY_ERR_MEMORY);
    base_arena_free(a);

    base_buf b = {0};
    static char part[100000];
    memset(part, 'p', sizeof(part));
    while (!b.failed)
        base_buf_put(&b, part, sizeof(part));
    CHECK(b.size > sizeof(part) && b.size % sizeof(part) == 0 && b.data[b.size - 1] == 'p' &&
          !b.data[b.size]);
    base_buf_free(&b);

    base_names *t = base_names_new();
    CHECK(t);
    char key[32] = "k0";
    int n = 0;
    for (; base_names_put(t, key, n) == BY_OK; snprintf(key, sizeof(key), "k%d", ++n))
        ;
    CHECK(n > 1000 && base_error_status() == BY_ERR_MEMORY);
    CHECK(base_names_find(t, key) == -1);
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        CHECK(base_names_find(t, key) == i);
    }
    base_names_free(t);
    return 0;
}

static void test_memory_exhausted(void **state)
{
    (void)state;
    assert_true(in_child(exhaust_memory, NULL));
}
#endif

/* ---- random numbers -------------------------------------------------------------------------- */

/* The published known-answer vectors of Philox4x32-10: counter, key, result. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
         0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
         0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < BY_COUNT(kat); i++) {
        const uint32_t *k = kat[i];
        base_philox p = base_philox_at((uint64_t)k[5] << 32 | k[4], (uint64_t)k[3] << 32 | k[2],
                                       (uint64_t)k[1] << 32 | k[0]);
        assert_memory_equal(p.v, k + 6, 16);
    }
}

static void test_rng_stream(void **state)
{
    (void)state;
    base_rng r = base_rng_make(42, 7), saved = r;
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(base_rng_u32(&r), base_philox_at(42, 7, i / 4).v[i % 4]);
    assert_true(r.counter == 40);
    for (int i = 0; i < 13; i++)
        base_rng_u32(&saved);
    base_rng again = saved;
    double u = base_rng_uniform(&saved), z = base_rng_normal(&saved);
    assert_true(u == base_rng_uniform(&again) && z == base_rng_normal(&again));
    assert_true(saved.counter == 13 + 2 + 4);

    for (size_t n = 0; n < 150; n++) { /* from every place in a block */
        float values[150];
        base_rng one = {.key = 42, .stream = 7, .counter = n}, all = one;
        base_rng_normals(&all, values, n);
        for (size_t i = 0; i < n; i++)
            assert_true(values[i] == (float)base_rng_normal(&one));
        assert_true(one.counter == all.counter);
    }

    base_rng other = base_rng_make(42, 8), seed = base_rng_make(43, 7);
    r = base_rng_make(42, 7);
    uint64_t x = base_rng_u64(&r);
    assert_true(x != base_rng_u64(&other) && x != base_rng_u64(&seed));
}

/* Moments of n values against those of the standard normal: five standard errors on each. */
static void check_normal(const double sum[4], double n)
{
    assert_true(fabs(sum[0] / n) < 5 * sqrt(1 / n));
    assert_true(fabs(sum[1] / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(sum[2] / n) < 5 * sqrt(15 / n));
    assert_true(fabs(sum[3] / n - 3) < 5 * sqrt(96 / n));
}

static void test_rng_distributions(void **state)
{
    (void)state;
    enum { N = 200000 };
    base_rng r = base_rng_make(3, 0);
    double mean = 0, sum[4] = {0};
    for (int i = 0; i < N; i++) {
        double u = base_rng_uniform(&r);
        assert_true(u >= 0 && u < 1);
        mean += u / N;
    }
    assert_true(fabs(mean - 0.5) < 5 * sqrt(1.0 / 12 / N));
    for (int i = 0; i < N; i++) {
        double z = base_rng_normal(&r), power = 1;
        for (int k = 0; k < 4; k++)
            sum[k] += power *= z;
    }
    check_normal(sum, N);

    int seen[6] = {0};
    for (int i = 0; i < 60000; i++)
        seen[base_rng_below(&r, 6)]++;
    double chi2 = 0;
    for (int i = 0; i < 6; i++)
        chi2 += (seen[i] - 10000.0) * (seen[i] - 10000.0) / 10000;
    assert_true(chi2 < 5 + 5 * sqrt(2 * 5));
    assert_true(base_rng_below(&r, 0) == 0 && base_rng_below(&r, 1) == 0);

    /* a range just above half of all values is where folding would show: the top quarter would be drawn half
     * as often */
    const uint64_t n = ((uint64_t)3 << 62);
    int high = 0;
    for (int i = 0; i < 30000; i++) {
        uint64_t x = base_rng_below(&r, n);
        assert_true(x < n);
        high += x >= (uint64_t)1 << 62;
    }
    assert_true(fabs(high - 20000.0) < 5 * sqrt(30000 * 2.0 / 9));
}

static void test_fill_normal(void **state)
{
    (void)state;
    enum { N = 200001 };
    float *x = base_alloc(N * sizeof(float)), part[23];
    base_rng_fill_normal(x, N, 5, 6, 0, 1);
    for (size_t n = 0; n <= 22; n++) {
        part[n] = 123;
        base_rng_fill_normal(part, n, 5, 6, 0, 1);
        assert_memory_equal(part, x, n * sizeof(float));
        assert_true(part[n] == 123);
    }
    for (size_t first = 0; first < 9; first++) /* any part on its own */
        for (size_t n = 0; n < 9; n++) {
            part[n] = 123;
            base_rng_fill_normal_from(part, N - 20 + first, n, 5, 6, 0, 1);
            assert_memory_equal(part, x + N - 20 + first, n * sizeof(float));
            assert_true(part[n] == 123);
        }
    double sum[4] = {0}, lag = 0;
    for (int i = 0; i < N; i++) {
        double power = 1;
        for (int k = 0; k < 4; k++)
            sum[k] += power *= x[i];
        lag += i ? x[i] * x[i - 1] : 0;
    }
    check_normal(sum, N);
    assert_true(fabs(lag / N) < 5 / sqrt(N));
    base_rng_fill_normal(part, 22, 5, 6, 3, 0.02f);
    for (int i = 0; i < 22; i++)
        assert_true(fabs(part[i] - (3 + 0.02 * x[i])) < 1e-6);
    base_rng_fill_normal(part, 22, 5, 7, 0, 1);
    for (int i = 0; i < 22; i++)
        assert_true(part[i] != x[i]);
    base_free(x);
}

static void test_permute_is_a_permutation(void **state)
{
    (void)state;
    static bool seen[70000];
    static const uint64_t sizes[] = {1,  2,  3,   4,   5,   15,   16,    17,    63,
                                     64, 65, 255, 256, 257, 1000, 65535, 65536, 65537};
    for (int s = 0; s < BY_COUNT(sizes); s++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            memset(seen, 0, sizeof(seen));
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t j = base_permute(i, sizes[s], seed);
                assert_true(j < sizes[s] && !seen[j]);
                seen[j] = true;
            }
        }
    }
    /* ranges too large for a table: in range, and not the identity */
    static const uint64_t large[] = {((uint64_t)1 << 40) + 7, (uint64_t)1 << 62, ((uint64_t)1 << 62) + 1,
                                     UINT64_MAX};
    for (int s = 0; s < BY_COUNT(large); s++) {
        int fixed = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t j = base_permute(i, large[s], 9);
            assert_true(j < large[s]);
            fixed += j == i;
        }
        assert_true(fixed <= 1);
    }
    assert_true(base_permute(5, 5, 1) == 5 && base_permute(0, 0, 1) == 0);
}

/* Over many seeds every ordered pair of places is equally likely for the first two indices; small ranges are
 * the hard case for a Feistel network. */
static void test_permute_is_uniform(void **state)
{
    (void)state;
    static const int sizes[] = {3, 5, 10, 16};
    for (int s = 0; s < BY_COUNT(sizes); s++) {
        int n = sizes[s], pair[16][16] = {{0}};
        const double expected = 1000, pairs = n * (n - 1), freedom = pairs - 1;
        for (uint64_t seed = 0; seed < (uint64_t)(expected * pairs); seed++)
            pair[base_permute(0, (uint64_t)n, seed)][base_permute(1, (uint64_t)n, seed)]++;
        double chi2 = 0;
        for (int a = 0; a < n; a++)
            for (int b = 0; b < n; b++)
                chi2 += a == b ? 0 : (pair[a][b] - expected) * (pair[a][b] - expected) / expected;
        assert_true(chi2 < freedom + 5 * sqrt(2 * freedom));
    }
}

static void test_clock(void **state)
{
    (void)state;
    double a = base_seconds();
    usleep(20000);
    double b = base_seconds();
    assert_true(b - a >= 0.02 && b - a < 20);
}

/* ---- element types --------------------------------------------------------------------------- */

static void test_dtype_table(void **state)
{
    (void)state;
    static const char *names[] = {"f32", "bf16", "f16", "f64", "i32",     "i64",     "u8",   "bool", "i8",
                                  "i16", "u16",  "u32", "u64", "f8_e4m3", "f8_e5m2", "q8_0", "q4_0"};
    static const size_t sizes[] = {4, 2, 2, 8, 4, 8, 1, 1, 1, 2, 2, 4, 8, 1, 1, 0, 0};
    by_dtype t;
    for (int i = 0; i < BY_DTYPE_COUNT; i++) {
        assert_string_equal(by_dtype_name((by_dtype)i), names[i]);
        assert_int_equal(by_dtype_size((by_dtype)i), sizes[i]);
        assert_int_equal(by_dtype_block((by_dtype)i), i < BY_Q8_0 ? 1 : 32);
        assert_int_equal(by_dtype_bytes((by_dtype)i, 64), i == BY_Q8_0   ? 68
                                                          : i == BY_Q4_0 ? 36
                                                                         : 64 * sizes[i]);
        assert_true(by_dtype_is_float((by_dtype)i) == (i < 4));
        assert_true(by_dtype_has_fraction((by_dtype)i) == (i < 4 || i >= BY_F8_E4M3));
        assert_true(by_dtype_parse(names[i], &t) && t == (by_dtype)i);
    }
    assert_true(by_dtype_parse("float32", &t) && t == BY_F32);
    assert_true(by_dtype_parse("bfloat16", &t) && t == BY_BF16);
    assert_true(by_dtype_parse("float16", &t) && t == BY_F16);
    assert_true(by_dtype_parse("int64", &t) && t == BY_I64);
    assert_true(by_dtype_parse("BF16", &t) && t == BY_BF16);
    assert_false(by_dtype_parse("", &t) || by_dtype_parse("f3", &t) || by_dtype_parse("f321", &t));
    assert_int_equal(by_dtype_size(BY_DTYPE_COUNT), 0);
    assert_string_equal(by_dtype_name((by_dtype)-1), "?");
    assert_false(by_dtype_is_float((by_dtype)99));
}

/* The value of a 16-bit float straight from its definition: 1 sign bit, e exponent bits, the rest fraction.
 */
static double half_value(uint16_t h, int e)
{
    int fraction_bits = 15 - e, bias = (1 << (e - 1)) - 1;
    int exponent = h >> fraction_bits & ((1 << e) - 1), fraction = h & ((1 << fraction_bits) - 1);
    double magnitude = exponent == (1 << e) - 1 ? (fraction ? NAN : INFINITY)
                       : exponent == 0
                           ? ldexp(fraction, 1 - bias - fraction_bits)
                           : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return h & 0x8000 ? -magnitude : magnitude;
}

static float to_f32(uint16_t h, by_dtype type)
{
    return type == BY_F16 ? base_f16_to_f32(h) : base_bf16_to_f32(h);
}

static uint16_t from_f32(float f, by_dtype type)
{
    return type == BY_F16 ? base_f32_to_f16(f) : base_f32_to_bf16(f);
}

/* What base_convert makes of one value, through the wide intermediate. */
static uint16_t from_f64(double d, by_dtype type)
{
    uint16_t h;
    base_convert(&h, type, &d, BY_F64, 1);
    return h;
}

/* All 65,536 values there and back, and every boundary between two neighbours: the midpoint goes to the even
 * one, the next f32 and the next f64 on either side of it to the nearer one. */
static void check_half(by_dtype type, int exponent_bits)
{
    const uint16_t infinity = type == BY_F16 ? 0x7c00 : 0x7f80;
    for (unsigned u = 0; u <= 0xffff; u++) {
        uint16_t h = (uint16_t)u;
        double value = half_value(h, exponent_bits);
        if (isnan(value)) {
            assert_true(isnan(to_f32(h, type)) && isnan(to_f32(from_f32(to_f32(h, type), type), type)));
            continue;
        }
        assert_true((double)to_f32(h, type) == value && !signbit(to_f32(h, type)) == !(h & 0x8000));
        assert_int_equal(from_f32(to_f32(h, type), type), h);
        assert_int_equal(from_f64(value, type), h);
    }
    for (uint16_t h = 0; h < infinity; h++) {
        uint16_t above = (uint16_t)(h + 1), even = h & 1 ? above : h;
        /* infinity stands where the next finite value would be */
        double low = half_value(h, exponent_bits);
        double high = above == infinity ? 2 * low - half_value((uint16_t)(h - 1), exponent_bits)
                                        : half_value(above, exponent_bits);
        double middle = (low + high) / 2;
        for (int s = 0; s < 2; s++) {
            double sign = s ? -1 : 1;
            uint16_t bit = s ? 0x8000 : 0;
            assert_int_equal(from_f64(sign * middle, type), even | bit);
            assert_int_equal(from_f64(sign * nextafter(middle, 0), type), h | bit);
            assert_int_equal(from_f64(sign * nextafter(middle, INFINITY), type), above | bit);
            if ((double)(float)middle != middle)
                continue; /* between two bf16 subnormals of f32 there may be no f32 */
            assert_int_equal(from_f32((float)(sign * middle), type), even | bit);
            assert_int_equal(from_f32((float)sign * nextafterf((float)middle, 0), type), h | bit);
            assert_int_equal(from_f32((float)sign * nextafterf((float)middle, INFINITY), type), above | bit);
        }
    }
    assert_int_equal(from_f64(1e300, type), infinity);
    assert_int_equal(from_f64(-1e300, type), infinity | 0x8000);
    assert_int_equal(from_f64(1e-300, type), 0);
    assert_true(isnan(to_f32(from_f64(NAN, type), type)));
}

static void test_f16(void **state)
{
    (void)state;
    check_half(BY_F16, 5);
}

static void test_bf16(void **state)
{
    (void)state;
    check_half(BY_BF16, 8);
}

/* The values of 8-bit floats from their definition, and what lies between two neighbours, as for f16. */
static double small_value(uint8_t h, int fraction_bits, int bias)
{
    int exponent = (h & 0x7f) >> fraction_bits, fraction = h & ((1 << fraction_bits) - 1);
    double magnitude = exponent ? ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                                : ldexp(fraction, 1 - bias - fraction_bits);
    return h & 0x80 ? -magnitude : magnitude;
}

static void check_small(by_dtype type, int fraction_bits, int bias, uint8_t highest)
{
    for (int s = 0; s < 2; s++) {
        uint8_t sign = s ? 0x80 : 0, h, back;
        for (int code = 0; code <= highest; code++) {
            double low = small_value((uint8_t)code, fraction_bits, bias), d;
            double high = small_value((uint8_t)(code + 1), fraction_bits, bias); /* as if the range went on */
            double middle = (low + high) / 2;
            double at[] = {low, middle, nextafter(middle, 0), nextafter(middle, INFINITY)};
            int want[] = {code, code & 1 ? code + 1 : code, code, code + 1};
            for (int k = 0; k < 4; k++) {
                d = s ? -at[k] : at[k];
                base_convert(&h, type, &d, BY_F64, 1);
                assert_int_equal(h, want[k] | sign);
            }
            back = (uint8_t)code | sign;
            base_convert(&d, BY_F64, &back, type, 1);
            assert_true(d == (s ? -low : low));
        }
        double far = s ? -1e300 : 1e300;
        base_convert(&h, type, &far, BY_F64, 1);
        assert_int_equal(h, (highest + 1) | sign);
    }
    float f;
    uint8_t nan = 0x7f;
    base_convert(&f, BY_F32, &nan, type, 1);
    assert_true(isnan(f));
    base_convert(&nan, type, &f, BY_F32, 1);
    assert_int_equal(nan, 0x7f);
}

static void test_f8(void **state)
{
    (void)state;
    check_small(BY_F8_E4M3, 3, 7, 0x7e);
    check_small(BY_F8_E5M2, 2, 15, 0x7b);
    uint8_t infinity = 0x7c;
    float f;
    base_convert(&f, BY_F32, &infinity, BY_F8_E5M2, 1);
    assert_true(isinf(f));
    uint64_t u = UINT64_MAX;
    double d;
    int32_t i;
    base_convert(&d, BY_F64, &u, BY_U64, 1);
    assert_true(d == 0x1p64);
    base_convert(&i, BY_I32, &u, BY_U64, 1);
    assert_int_equal(i, INT32_MAX);
    d = -1;
    base_convert(&u, BY_U64, &d, BY_F64, 1);
    assert_true(u == 0);
    d = 0x1p63;
    base_convert(&u, BY_U64, &d, BY_F64, 1);
    assert_true(u == UINT64_C(1) << 63);
}

/* The code of a value in an 8-bit float: the nearest, by looking at all of them. */
static uint8_t small_code(int value, int fraction_bits, int bias)
{
    int best = 0;
    for (int code = 0; code < 0x7c; code++) {
        double d = fabs(small_value((uint8_t)code, fraction_bits, bias) - value);
        double b = fabs(small_value((uint8_t)best, fraction_bits, bias) - value);
        if (d < b || (d == b && code % 2 == 0))
            best = code;
    }
    return (uint8_t)best;
}

/* Write a small whole number in the given type, independently of base_convert. */
static void encode(unsigned char *at, by_dtype t, int value)
{
    union {
        float f32;
        double f64;
        uint16_t u16;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
        uint32_t u32;
    } v;
    memset(&v, 0, sizeof(v));
    switch (t) {
    case BY_F32:
        v.f32 = (float)value;
        break;
    case BY_BF16:
        v.u16 = base_f32_to_bf16((float)value);
        break;
    case BY_F16:
        v.u16 = base_f32_to_f16((float)value);
        break;
    case BY_F64:
        v.f64 = value;
        break;
    case BY_I32:
        v.i32 = value;
        break;
    case BY_I64:
    case BY_U64:
        v.i64 = value;
        break;
    case BY_I16:
    case BY_U16:
        v.u16 = (uint16_t)value;
        break;
    case BY_U32:
        v.u32 = (uint32_t)value;
        break;
    case BY_F8_E4M3:
        v.u8 = small_code(value, 3, 7);
        break;
    case BY_F8_E5M2:
        v.u8 = small_code(value, 2, 15);
        break;
    default:
        v.u8 = (uint8_t)(t == BY_BOOL ? value != 0 : value);
    }
    memcpy(at, &v, by_dtype_size(t));
}

/* All pairs, odd addresses, lengths on both sides of the internal block, the byte behind the end
 * untouched. */
static void test_convert_all_pairs(void **state)
{
    (void)state;
    enum { N = 600 };
    static unsigned char src[8 * N + 1], dst[8 * N + 2], expected[8 * N];
    static const size_t lengths[] = {0, 1, 255, 256, 257, N};
    for (int s = 0; s < BY_Q8_0; s++) {
        for (int d = 0; d < BY_Q8_0; d++) {
            size_t from = by_dtype_size((by_dtype)s), to = by_dtype_size((by_dtype)d);
            for (int i = 0; i < N; i++) {
                int most = s == BY_F8_E4M3   ? 16
                           : s == BY_F8_E5M2 ? 8
                                             : 101; /* whole numbers up to it are exact */
                int value = s == BY_BOOL ? i % 3 == 0 : i % most;
                encode(src + 1 + (size_t)i * from, (by_dtype)s, value);
                encode(expected + (size_t)i * to, (by_dtype)d, value);
            }
            for (int k = 0; k < BY_COUNT(lengths); k++) {
                size_t bytes = lengths[k] * to;
                dst[1 + bytes] = 0xa5;
                base_convert(dst + 1, (by_dtype)d, src + 1, (by_dtype)s, lengths[k]);
                assert_memory_equal(dst + 1, expected, bytes);
                assert_int_equal(dst[1 + bytes], 0xa5);
            }
        }
    }
    base_convert(dst, BY_DTYPE_COUNT, src, BY_F32, N);
    base_convert(dst, BY_F32, src, (by_dtype)-1, N);
}

/* Blocks, byte by byte: an f16 scale, then 8 or 4 bits a value; of 4 bits, the second half of the values in
 * the high halves of the bytes. */
static void test_convert_blocks(void **state)
{
    (void)state;
    float x[64] = {0}, back[64];
    unsigned char q8[68], q4[36], again[68];
    for (int i = 0; i < 32; i++)
        x[i] = 0.25f * (float)(i == 5 ? -127 : i);
    for (int i = 0; i < 32; i++)
        x[32 + i] = 0.5f * (float)(i == 9 ? -8 : i % 8);
    base_convert(q8, BY_Q8_0, x, BY_F32, 64);
    assert_true(q8[0] == 0 && q8[1] == 0x34); /* 0.25 */
    for (int i = 0; i < 32; i++)
        assert_int_equal((int8_t)q8[2 + i], i == 5 ? -127 : i);
    base_convert(q4, BY_Q4_0, x, BY_F32, 64);
    assert_true(q4[18] == 0 && q4[19] == 0x38); /* 0.5 */
    for (int i = 0; i < 16; i++)
        assert_int_equal(q4[20 + i], (i == 9 ? 0 : i % 8 + 8) | (i % 8 + 8) << 4);
    base_convert(back, BY_F32, q8, BY_Q8_0, 32);
    assert_memory_equal(back, x, sizeof x / 2);
    base_convert(back, BY_F32, q4 + 18, BY_Q4_0, 32);
    assert_memory_equal(back, x + 32, sizeof x / 2);
    static const by_dtype types[] = {BY_Q8_0, BY_Q4_0};
    base_rng r = base_rng_make(3, 4);
    for (int n = 0; n < 400; n++) {
        const by_dtype t = types[n % 2];
        float most[2] = {0};
        for (int i = 0; i < 64; i++) {
            x[i] = n < 4 ? 0 : (float)(base_rng_uniform(&r) - 0.5) * powf(10, (float)(n % 5) - 1);
            most[i / 32] = fmaxf(most[i / 32], fabsf(x[i]));
        }
        base_convert(q8, t, x, BY_F32, 64);
        base_convert(back, BY_F32, q8, t, 64);
        for (int i = 0; i < 64;
             i++) /* half a step, a whole one at the far end of 4 bits, and the scale's rounding */
            assert_true(fabsf(back[i] - x[i]) <=
                        most[i / 32] * (t == BY_Q8_0 ? 0.57f / 127 : 1.01f / 8) + 1e-7f);
        base_convert(again, t, back, BY_F32, 64);
        assert_memory_equal(again, q8, by_dtype_bytes(t, 64));
    }
}

static void test_convert_limits(void **state)
{
    (void)state;
    static const double f64[] = {2.5, 3.5, -2.5, -0.4, 0.5, 254.6, 1e30, -1e30, NAN, INFINITY, -INFINITY, -1};
    static const int32_t want_i32[] = {2,         4,         -2, 0,         0,         255,
                                       INT32_MAX, INT32_MIN, 0,  INT32_MAX, INT32_MIN, -1};
    static const int64_t want_i64[] = {2,         4,         -2, 0,         0,         255,
                                       INT64_MAX, INT64_MIN, 0,  INT64_MAX, INT64_MIN, -1};
    static const uint8_t want_u8[] = {2, 4, 0, 0, 0, 255, 255, 0, 0, 255, 0, 0};
    static const uint8_t want_bool[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    enum { N = BY_COUNT(f64) };
    int32_t i32[N];
    int64_t i64[N];
    uint8_t u8[N];
    base_convert(i32, BY_I32, f64, BY_F64, N);
    assert_memory_equal(i32, want_i32, sizeof(i32));
    base_convert(i64, BY_I64, f64, BY_F64, N);
    assert_memory_equal(i64, want_i64, sizeof(i64));
    base_convert(u8, BY_U8, f64, BY_F64, N);
    assert_memory_equal(u8, want_u8, sizeof(u8));
    base_convert(u8, BY_BOOL, f64, BY_F64, N);
    assert_memory_equal(u8, want_bool, sizeof(u8));

    static const int64_t big[] = {(int64_t)1 << 40, -((int64_t)1 << 40), 0x10000, -1, ((int64_t)1 << 53) + 1};
    static const int32_t big_i32[] = {INT32_MAX, INT32_MIN, 0x10000, -1, INT32_MAX};
    static const uint8_t big_u8[] = {255, 0, 255, 0, 255}, big_bool[] = {1, 1, 1, 1, 1};
    base_convert(i32, BY_I32, big, BY_I64, 5);
    assert_memory_equal(i32, big_i32, sizeof(big_i32));
    base_convert(u8, BY_U8, big, BY_I64, 5);
    assert_memory_equal(u8, big_u8, 5);
    base_convert(u8, BY_BOOL, big, BY_I64, 5);
    assert_memory_equal(u8, big_bool, 5);

    /* 2^54 + 2^30 + 1 lies just above a tie of f32 that f64 in between would have to round down onto */
    int64_t tie = ((int64_t)1 << 54) + ((int64_t)1 << 30) + 1;
    float f;
    base_convert(&f, BY_F32, &tie, BY_I64, 1);
    assert_true((double)f == 0x1p54 + 0x1p31);

    float zero = -0.0f;
    uint16_t h;
    base_convert(&h, BY_F16, &zero, BY_F32, 1);
    assert_int_equal(h, 0x8000);
    uint8_t odd = 200, truth;
    base_convert(&truth, BY_U8, &odd, BY_BOOL, 1);
    assert_int_equal(truth, 1);
}

static void test_articles(void **state)
{
    (void)state;
    static const char *const an[] = {"ImageGPTModel", "OpenAIGPTModel", "AlbertModel", "encoder",
                                     "XLNetModel",    "XLMModel",       "RNN",         "LSTM (1997)",
                                     "MT5Model",      "n-gram model"};
    static const char *const a[] = {"BertModel", "T5Model",       "UMT5Model",
                                    "GRUModel",  "MarianMTModel", "ViTModel"};
    char text[100];
    for (int i = 0; i < BY_COUNT(an); i++) {
        snprintf(text, sizeof text, "an %s", an[i]);
        assert_string_equal(base_a(an[i]).text, text);
    }
    for (int i = 0; i < BY_COUNT(a); i++) {
        snprintf(text, sizeof text, "a %s", a[i]);
        assert_string_equal(base_a(a[i]).text, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_message),
        cmocka_unit_test(test_error_context),
        cmocka_unit_test(test_error_truncation),
        cmocka_unit_test(test_error_is_per_thread),
        cmocka_unit_test(test_memory),
#ifndef SANITIZED
        cmocka_unit_test(test_memory_impossible_size),
        cmocka_unit_test(test_memory_exhausted),
#endif
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_articles),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_rng_stream),
        cmocka_unit_test(test_rng_distributions),
        cmocka_unit_test(test_fill_normal),
        cmocka_unit_test(test_permute_is_a_permutation),
        cmocka_unit_test(test_permute_is_uniform),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_dtype_table),
        cmocka_unit_test(test_f16),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f8),
        cmocka_unit_test(test_convert_all_pairs),
        cmocka_unit_test(test_convert_limits),
        cmocka_unit_test(test_convert_blocks),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
