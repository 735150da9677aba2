/* test_attention.c - attention and its gradient against the definition (attention_case.h): shapes, masks, dropout, patterns,
 * biases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "attention_case.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),         cmocka_unit_test(test_key_mask),
        cmocka_unit_test(test_dropout),        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_views),          cmocka_unit_test(test_biases),
        cmocka_unit_test(test_pair_masks),     cmocka_unit_test(test_two_biases),
        cmocka_unit_test(test_reach),          cmocka_unit_test(test_dropout_statistics),
        cmocka_unit_test(test_some_gradients), cmocka_unit_test(test_infinity_shows),
    };
    return cmocka_run_group_tests_name("attention", tests, open_device, close_device);
}
