/* test_prefetch.c - items prepared ahead: their order, their parts, errors, and ends with work in flight. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/prefetch.h"

enum { SLOTS = 3, PARTS = 7 };

typedef struct work {
    int64_t values[SLOTS][PARTS], sums[SLOTS][PARTS];
    _Atomic int parts, finished;
    int64_t bad; /* an item that fails in its first phase, two before one that fails in its second; -3: none */
} work;

static by_status part(void *user, int64_t item, int slot, int k)
{
    work *w = user;
    if ((item + k) % 5 == 0)
        usleep(200); /* parts do not finish in order */
    w->values[slot][k] = item * 100 + k;
    atomic_fetch_add(&w->parts, 1);
    return item == w->bad && k == 3 ? base_fail(BY_ERR_FORMAT, "item %d is damaged", (int)item) : BY_OK;
}

/* Every part of the second phase reads all parts of the first. */
static by_status finish(void *user, int64_t item, int slot, int part)
{
    work *w = user;
    if ((item + part) % 3 == 0)
        usleep(100);
    w->sums[slot][part] = part;
    for (int k = 0; k < PARTS; k++)
        w->sums[slot][part] += w->values[slot][k];
    atomic_fetch_add(&w->finished, 1);
    return item == w->bad + 2 && part == 2 ? base_fail(BY_ERR_FORMAT, "item %d is odd", (int)item) : BY_OK;
}

static base_prefetch *start(work *w, int threads, int64_t first, int64_t end)
{
    base_prefetch *p = base_prefetch_new(&(base_prefetch_spec){.threads = threads,
                                                               .slots = SLOTS,
                                                               .parts = PARTS,
                                                               .first = first,
                                                               .end = end,
                                                               .user = w,
                                                               .part = part,
                                                               .finish = finish});
    assert_non_null(p);
    return p;
}

static void test_order(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 8; threads += 2) {
        work w = {.bad = -3};
        double waited = 0;
        int slot;
        base_prefetch *p = start(&w, threads, 5, 105);
        for (int64_t item = 5; item < 105; item++) {
            if (item == 7)
                usleep(20000); /* the threads come to the end of their slots */
            assert_int_equal(base_prefetch_next(p, &slot, &waited), BY_OK);
            for (int k = 0; k < PARTS; k++)
                assert_int_equal(w.sums[slot][k], PARTS * item * 100 + PARTS * (PARTS - 1) / 2 + k);
        }
        assert_int_equal(w.parts, 100 * PARTS); /* nothing after the end */
        assert_int_equal(w.finished, 100 * PARTS);
        assert_true(waited > 0);
        assert_int_equal(base_prefetch_next(p, &slot, &waited), BY_ERR_ARGUMENT);
        base_prefetch_free(p);
    }
}

/* An error comes out at its item, with its message, and later items are in order. */
static void test_error(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 4; threads += 4) {
        work w = {.bad = 4};
        double waited = 0;
        int slot;
        base_prefetch *p = start(&w, threads, 0, 20);
        for (int64_t item = 0; item < 20; item++) {
            by_status s = base_prefetch_next(p, &slot, &waited);
            assert_int_equal(s, item == 4 || item == 6 ? BY_ERR_FORMAT : BY_OK);
            if (s != BY_OK)
                assert_non_null(
                    strstr(by_error_message(), item == 4 ? "item 4 is damaged" : "item 6 is odd"));
        }
        assert_int_equal(w.finished, 19 * PARTS); /* what is damaged is not finished */
        base_prefetch_free(p);
    }
}

static void test_early_end(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        work w = {.bad = -3};
        double waited = 0;
        int slot;
        base_prefetch *p = start(&w, 4, 0, 1000);
        for (int k = 0; k < i % 3; k++)
            assert_int_equal(base_prefetch_next(p, &slot, &waited), BY_OK);
        base_prefetch_free(p);
    }
    base_prefetch_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_error),
        cmocka_unit_test(test_early_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
