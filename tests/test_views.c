/* test_views.c - views.h: the views of a pattern have every pair that a head sees exactly once, and no other;
 * what is promised about groups holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "graph/views.h"

enum { LONGEST = 40, HEADS = 3 };

/* banyan/graph.h, word by word, under a causal mask. */
static bool seen(const by_pattern *x, int h, int p, int s)
{
    const int l = x->length, part = x->part == 3 ? (h < HEADS / 2 ? 1 : 2) : x->part;
    if (s > p)
        return false;
    if (x->kind == BY_PATTERN_WINDOW)
        return s - p >= -x->before;
    if (x->kind == BY_PATTERN_BLOCKS)
        return s / l == p / l;
    const bool first = x->kind == BY_PATTERN_STRIDED ? p - s < l : s / l == p / l;
    const bool second = x->kind == BY_PATTERN_STRIDED ? (p - s) % l == 0 : s % l >= l - x->after;
    return part == 0 ? first || second : part == 1 ? first : second;
}

/* Counts the pairs of one group of head h, and its queries. */
static void count_group(const gr_view *v, const gr_group *x, int (*pairs)[LONGEST], int *queries)
{
    assert_true(x->queries <= v->most_queries && x->keys <= v->most_keys);
    assert_true(!x->causal || x->queries <= x->keys || x->queries == 0);
    for (int i = 0; i < x->queries; i++) {
        const int t = x->query_at + i * x->query_step, own = i + x->keys - x->queries;
        assert_in_range(t, 0, v->queries - 1);
        queries[t]++;
        for (int j = 0; j < x->keys; j++) {
            if (x->causal && (j > own || (x->window && j <= own - x->window)))
                continue;
            assert_in_range(gr_group_key(x, j), 0, v->keys - 1);
            pairs[t][gr_group_key(x, j)]++;
        }
    }
}

/* Keys of different groups are at the same places, or at disjoint ones. */
static void check_keys(const gr_view *v)
{
    int owner[LONGEST];
    memset(owner, -1, sizeof owner);
    for (int g = 0; g < v->groups; g++) {
        const gr_group x = gr_group_of(v, g);
        for (int j = 0; j < x.keys && x.queries; j++) {
            const int s = gr_group_key(&x, j), who = v->shared ? j : g;
            assert_true(owner[s] == -1 || owner[s] == who);
            owner[s] = who;
        }
    }
}

static void check_views(const by_pattern *p, int queries, int keys)
{
    gr_view views[GR_MAX_VIEWS];
    const int n = gr_views_of(p, queries, keys, HEADS, views);
    assert_in_range(n, 1, GR_MAX_VIEWS);
    for (int h = 0; h < HEADS; h++) {
        int pairs[LONGEST][LONGEST] = {{0}};
        bool taken = false;
        for (int i = 0; i < n; i++) {
            const gr_view *v = &views[i];
            int rows[LONGEST] = {0};
            if (h < v->head0 || h >= v->head1)
                continue;
            for (int g = 0; g < v->groups; g++) {
                const gr_group x = gr_group_of(v, g);
                count_group(v, &x, pairs, rows);
            }
            assert_int_equal(v->more, taken);
            for (int t = 0; t < queries; t++)
                assert_true(v->more ? rows[t] <= 1 : rows[t] == 1);
            check_keys(v);
            taken = true;
        }
        for (int t = 0; t < queries; t++)
            for (int s = 0; s < keys; s++)
                if (pairs[t][s] != seen(p, h, t + keys - queries, s))
                    fail_msg("kind %d of %d to %d, part %d, %d queries of %d keys: head %d has pair %d, %d "
                             "%d times",
                             (int)p->kind, p->length, p->after, p->part, queries, keys, h, t, s, pairs[t][s]);
    }
}

static void test_pairs(void **state)
{
    (void)state;
    static const int all_keys[] = {1, 2, 7, 16, 24, 33, LONGEST};
    static const int lengths[] = {1, 2, 3, 4, 7, 8, 16, 39, 40, 41, 100};
    for (int k = 0; k < BY_COUNT(all_keys); k++)
        for (int queries = 1; queries <= all_keys[k]; queries++)
            for (int i = 0; i < BY_COUNT(lengths); i++) {
                const int l = lengths[i];
                for (int part = 0; part <= 3; part++) {
                    check_views(&(by_pattern){BY_PATTERN_STRIDED, .length = l, .part = part}, queries,
                                all_keys[k]);
                    for (int c = 1; c <= l; c = 2 * c > l && c < l ? l : 2 * c)
                        check_views(&(by_pattern){BY_PATTERN_FIXED, .length = l, .after = c, .part = part},
                                    queries, all_keys[k]);
                }
                check_views(&(by_pattern){BY_PATTERN_WINDOW, .before = l - 1, .after = i % 2}, queries,
                            all_keys[k]);
                check_views(&(by_pattern){BY_PATTERN_BLOCKS, .length = l, .after = i % 2}, queries,
                            all_keys[k]);
            }
}

static void test_none(void **state)
{
    (void)state;
    gr_view views[GR_MAX_VIEWS];
    const by_pattern strided = {BY_PATTERN_STRIDED, .length = 4}, full = {BY_PATTERN_FULL, .part = 0};
    const by_pattern wide = {BY_PATTERN_BLOCKS, .length = 4, .before = 1};
    const by_pattern past = {BY_PATTERN_WINDOW, .before = 4, .after = -1};
    assert_int_equal(gr_views_of(&strided, 9, 8, 1, views), 0);
    assert_int_equal(gr_views_of(&full, 8, 8, 1, views), 0);
    assert_int_equal(gr_views_of(&wide, 8, 8, 1, views), 0);
    assert_int_equal(gr_views_of(&past, 8, 8, 1, views), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests_name("views", tests, NULL, NULL);
}
