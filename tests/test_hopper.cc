/* test_hopper.cc - Hopper's attention kernels, emulated: who brings and who reads the tiles never wait for
 * each other in vain, and the answers are right, however the tiles are dealt out.
 *
 * test_hopper_emulated [--all]: a few shapes, or all of them. */
#include "hopper_check.cuh"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

/* Heads of 64: rows before, at and beyond the borders of tiles and of warpgroups, groups of heads, and more
 * or fewer thread blocks than there is work for. */
static bool all;

static void test_tiles(void **)
{
    const int heads[][2] = {{1, 1}, {3, 1}, {4, 2}};
    int number = 0;
    for (int sms : {1, 2, 5})
        for (const int *h : heads)
            for (int t : {60, 128, 330})
                if (all || number++ % 4 == 0) /* each number of blocks, each grouping, each length */
                    assert_true(check(shape{1, h[0], h[1], t, t, 64, true, true, BY_BF16, sms, 1}, false));
}

static void test_shapes(void **)
{
    const shape list[] = {
        {1, 1, 1, 1, 1, 64, true, true, BY_BF16, 1, 1},
        {2, 2, 1, 65, 129, 64, true, false, BY_F16, 3, 1},
        {1, 4, 1, 70, 200, 64, false, false, BY_BF16, 2, 1},
        {1, 3, 1, 200, 200, 128, true, true, BY_BF16, 2, 1},
        {1, 1, 1, 63, 150, 128, false, false, BY_F16, 4, 1},
        {1, 1, 1, 600, 600, 64, true, true, BY_BF16, 1, 1},
        {1, 2, 2, 300, 400, 64, true, false, BY_BF16, 2, 6},
        {1, 1, 1, 200, 300, 128, false, false, BY_F16, 2, 6},
        {1, 2, 1, 450, 140, 64, false, false, BY_BF16, 1, 1}, /* one warpgroup has no keys, for many blocks */
    };
    for (const shape &s : list)
        assert_true(check(s, false));
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const CMUnitTest tests[] = {cmocka_unit_test(test_tiles), cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
