/* test_memory.c - every allocation of the base made to fail in turn. The C allocation functions are wrapped
 * at link time (test_memory.link): they count what is alive and fail on request. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "allocations.h"
#include "base/file.h"

/* Run body with its first, second, third ... allocation failing, until it gets through. Each failure must
 * come out as BY_ERR_MEMORY with a message, and leave nothing allocated. */
static void fail_each(by_status (*body)(void), long at_least)
{
    long before = alive;
    for (long n = 0;; n++) {
        base_error_clear();
        until_failure = n;
        by_status status = body();
        bool through = until_failure >= 0;
        until_failure = -1;
        assert_int_equal(alive, before);
        if (through) {
            assert_int_equal(status, BY_OK);
            assert_true(n >= at_least); /* the body does allocate */
            return;
        }
        assert_int_equal(status, BY_ERR_MEMORY);
        assert_int_equal(base_error_status(), BY_ERR_MEMORY);
        assert_true(strlen(by_error_message()) > 0);
    }
}

static by_status use_heap(void)
{
    void *p[5] = {base_alloc(10), NULL};
    if (p[0])
        p[1] = base_alloc_zero(3, 4);
    if (p[1])
        p[2] = base_alloc_aligned(100);
    if (p[2])
        p[3] = base_strdup("text");
    if (p[3])
        p[4] = base_sprintf("%s %d", "text", 1);
    void *grown = p[4] ? base_resize(p[0], 100, 100) : NULL;
    if (grown)
        p[0] = grown;
    for (int i = 0; i < 5; i++)
        base_free(p[i]);
    return grown ? BY_OK : base_error_status();
}

static by_status use_arena(void)
{
    base_arena *a = base_arena_new();
    bool ok = a != NULL;
    for (int i = 0; ok && i < 100; i++)
        ok = base_arena_alloc(a, i % 10 ? 2000 : 30000) && base_arena_sprintf(a, "%d", i);
    base_arena_free(a);
    return ok ? BY_OK : base_error_status();
}

static by_status use_buf(void)
{
    base_buf b = {0};
    for (int i = 0; i < 1000; i++) {
        base_buf_puts(&b, "word ");
        base_buf_printf(&b, "%d", i);
    }
    by_status status = b.failed ? base_error_status() : BY_OK;
    base_buf_free(&b);
    return status;
}

static by_status use_names(void)
{
    base_names *t = base_names_new();
    if (!t)
        return base_error_status();
    by_status status = BY_OK;
    for (int i = 0; i < 5000 && status == BY_OK; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        status = base_names_put(t, key, i);
    }
    base_names_free(t);
    return status;
}

static char dir[300];

static by_status use_files(void)
{
    char a[320], b[320], pattern[320], deep[320];
    snprintf(a, sizeof(a), "%s/a", dir);
    snprintf(b, sizeof(b), "%s/b", dir);
    snprintf(pattern, sizeof(pattern), "%s/*", dir);
    snprintf(deep, sizeof(deep), "%s/x/y", dir);
    BY_TRY(base_dir_make(deep));
    BY_TRY(base_file_write(a, "text", 4));
    BY_TRY(base_file_write(b, "text", 4));
    BY_TRY(base_rename(b, a));
    BY_TRY(base_file_write(b, "text", 4));
    char **found, *text = base_file_read(a, 100, NULL), *joined = text ? base_path_join(dir, "a") : NULL;
    base_free(joined);
    base_free(text);
    if (!joined)
        return base_error_status();
    int count;
    BY_TRY(base_glob(pattern, &found, &count));
    base_paths_free(found, count);
    return BY_OK;
}

static void test_heap(void **state)
{
    (void)state;
    fail_each(use_heap, 6);
}

static void test_arena(void **state)
{
    (void)state;
    fail_each(use_arena, 5);
}

static void test_buf(void **state)
{
    (void)state;
    fail_each(use_buf, 5);
}

static void test_names(void **state)
{
    (void)state;
    fail_each(use_names, 8);
}

/* Whatever allocation failed, no temporary is left in the folder. */
static void test_files(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/banyan-memory-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(dir));
    fail_each(use_files, 10);
    char pattern[320], **found;
    int count;
    snprintf(pattern, sizeof(pattern), "%s/*.tmp-*", dir);
    assert_int_equal(base_glob(pattern, &found, &count), BY_ERR_IO);
    assert_int_equal(base_dir_remove(dir), BY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heap),  cmocka_unit_test(test_arena), cmocka_unit_test(test_buf),
        cmocka_unit_test(test_names), cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
