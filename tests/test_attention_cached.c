/* test_attention_cached.c - attention over a cache against the definition (attention_case.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attention_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_cache_is_full),
    };
    return cmocka_run_group_tests_name("attention cached", tests, open_device, close_device);
}
