/* test_rows.c - texts to rows to batches: cutting, windows, order, padding, and that padding changes nothing.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "data/rows.h"
#include "tiny_world.h"

static int set_up(void **state)
{
    (void)state;
    return tiny_open("rows");
}

/* A row as letters, with ^ $ _ for [CLS] [SEP] [PAD]. */
static const char *spell(const int32_t *ids, int n)
{
    static char text[256];
    int k = 0;
    for (; k < n; k++)
        text[k] = ids[k] == 0 ? '_' : ids[k] == 2 ? '^' : ids[k] == 3 ? '$' : (char)('a' + (ids[k] - 5) % 26);
    text[k] = '\0';
    return text;
}

static const char *row_text(const data_rows *r, int i)
{
    return spell(r->tokens.data + r->list[i].first, r->list[i].count);
}

static data_rows make(by_model *m, data_rows_spec spec)
{
    data_rows r;
    assert_int_equal(data_rows_init(&r, m, tokenizer, &spec), BY_OK);
    return r;
}

/* What the reference tokenizer gives with truncation=True, max_length=9 for pairs of so many letters. */
static void test_cut(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 2, 32);
    data_rows r = make(m, (data_rows_spec){.limit = 9});
    static const struct {
        const char *a, *b, *row;
    } cases[] = {
        {"abc", NULL, "^abc$"},          {"abcdefghij", NULL, "^abcdefg$"},
        {"abc", "xyz", "^abc$xyz$"},     {"abcdef", "x", "^abcde$x$"},
        {"a", "uvwxyz", "^a$uvwxy$"},    {"abcdef", "uvwxyz", "^abc$uvw$"},
        {"abcdefg", "xyz", "^abc$xyz$"}, {"", "xyz", "^$xyz$"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        assert_int_equal(data_rows_add(&r, cases[i].a, cases[i].b), BY_OK);
        assert_string_equal(row_text(&r, i), cases[i].row);
        assert_int_equal(r.list[i].example, i);
    }
    data_rows_clear(&r);
    assert_int_equal(data_rows_add(&r, "ab", "cd"), BY_OK);
    assert_int_equal(r.count, 1);
    static const uint8_t segments[] = {0, 0, 0, 0, 1, 1, 1}, parts[] = {2, 0, 0, 2, 1, 1, 2};
    assert_memory_equal(r.segments, segments, sizeof segments);
    assert_memory_equal(r.parts, parts, sizeof parts);
    data_rows_free(&r);
    data_rows none;
    assert_int_equal(data_rows_init(&none, m, tokenizer, &(data_rows_spec){.limit = 33}), BY_ERR_ARGUMENT);
    data_rows small = make(m, (data_rows_spec){.limit = 2});
    assert_int_equal(data_rows_add(&small, "a", NULL), BY_ERR_ARGUMENT);
    data_rows_free(&small);
    by_model_free(m);
}

static void test_windows(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_ANSWER, 0, 32);
    data_rows r = make(m, (data_rows_spec){.limit = 10, .windows = true, .overlap = 2, .offsets = true});
    assert_int_equal(data_rows_add(&r, "ab", "c d e f g h i j k l m"), BY_OK);
    static const char *const rows[] = {"^ab$cdefg$", "^ab$fghij$", "^ab$ijklm$"};
    assert_int_equal(r.count, 3);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(row_text(&r, i), rows[i]);
        assert_int_equal(r.list[i].window, i);
        assert_int_equal(r.list[i].repeated, i ? 2 : 0);
        assert_int_equal(r.list[i].example, 0);
        assert_int_equal(r.offsets[r.list[i].first + 4].start, i * 6); /* letters and spaces */
    }
    assert_int_equal(data_rows_add(&r, "abcdefghijk", NULL), BY_OK); /* a text by itself */
    assert_int_equal(r.count, 5);
    assert_string_equal(row_text(&r, 3), "^abcdefgh$");
    assert_string_equal(row_text(&r, 4), "^ghijk$");
    assert_int_equal(data_rows_add(&r, "abcdefghijklmnop", "xyzxyz"),
                     BY_OK); /* a question that fills it all */
    assert_string_equal(row_text(&r, 5), "^abc$xyzx$");
    assert_string_equal(row_text(&r, 6), "^abc$zxyz$");
    assert_int_equal(r.count, 7);
    data_rows_free(&r);
    by_model_free(m);
}

static void add_lengths(data_rows *r, int count)
{
    char text[64];
    for (int i = 0; i < count; i++) {
        int n = 1 + i * 7 % 23;
        memset(text, 'a' + i % 26, (size_t)n);
        text[n] = '\0';
        assert_int_equal(data_rows_add(r, text, NULL), BY_OK);
    }
}

/* Every row once, `together` kept side by side, no group too high. */
static void check_groups(const data_rows *r, const data_row_groups *g, int batch)
{
    int seen[256] = {0}, each = r->spec.together;
    assert_int_equal(g->first[g->count], r->count);
    assert_int_equal(g->count, (r->count + batch - 1) / batch);
    for (int i = 0; i < r->count; i++) {
        seen[g->rows[i]]++;
        if (i % each)
            assert_int_equal(g->rows[i], g->rows[i - 1] + 1);
        else
            assert_int_equal(g->rows[i] % each, 0);
    }
    for (int i = 0; i < r->count; i++)
        assert_int_equal(seen[i], 1);
    for (int i = 0; i < g->count; i++)
        assert_in_range(g->first[i + 1] - g->first[i], 1, batch);
}

static void test_groups(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 2, 32);
    for (int each = 1; each <= 3; each += 2) {
        data_rows r = make(m, (data_rows_spec){.together = each});
        add_lengths(&r, 99);
        data_row_groups g, h, again;
        assert_int_equal(data_rows_by_length(&r, 6, &g), BY_OK);
        check_groups(&r, &g, 6);
        for (int i = 1; i < r.count && each == 1; i++)
            assert_true(r.list[g.rows[i - 1]].count >= r.list[g.rows[i]].count);
        assert_int_equal(data_rows_shuffled(&r, 6, 5, &h), BY_OK);
        assert_int_equal(data_rows_shuffled(&r, 6, 5, &again), BY_OK);
        check_groups(&r, &h, 6);
        assert_memory_equal(h.rows, again.rows, (size_t)r.count * sizeof *h.rows);
        data_row_groups_free(&again);
        assert_int_equal(data_rows_shuffled(&r, 6, 6, &again), BY_OK);
        assert_memory_not_equal(h.rows, again.rows, (size_t)r.count * sizeof *h.rows);
        data_row_groups_free(&g);
        data_row_groups_free(&h);
        data_row_groups_free(&again);
        data_rows_free(&r);
    }
    data_rows r = make(m, (data_rows_spec){.together = 2});
    add_lengths(&r, 3);
    data_row_groups g;
    assert_int_equal(data_rows_by_length(&r, 4, &g), BY_ERR_ARGUMENT);
    data_row_groups_free(&g);
    data_rows_free(&r);
    by_model_free(m);
}

static void test_buckets(void **state)
{
    (void)state;
    static const int cases[][3] = {{1, 512, 8},     {8, 512, 8},     {9, 512, 16},    {64, 512, 64},
                                   {65, 512, 80},   {129, 512, 160}, {257, 512, 320}, {500, 512, 512},
                                   {500, 501, 501}, {3, 4, 4}};
    for (int i = 0; i < BY_COUNT(cases); i++)
        assert_int_equal(data_rows_bucket(cases[i][0], cases[i][1]), cases[i][2]);
    int shapes = 0;
    for (int n = 1, last = 0; n <= 512; n++) {
        shapes += data_rows_bucket(n, 512) != last;
        last = data_rows_bucket(n, 512);
        assert_true(last >= n && last < n + 64 && (n < 64 || last <= n * 5 / 4));
    }
    assert_int_equal(shapes, 20);
}

/* A padded batch of every family gives each row what it gets alone. */
static void test_padding_is_not_seen(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        bool masked, segmented;
    } cases[] = {{"bert", true, true},   {"roberta", true, false}, {"distilbert", true, false},
                 {"albert", true, true}, {"xlm", true, false},     {"gpt2", false, false}};
    for (int k = 0; k < BY_COUNT(cases); k++) {
        by_model *m = tiny_model(device, cases[k].family, BY_TASK_CLASSIFY, 3, 40);
        assert_non_null(m);
        by_model_set_pad(m, 0);
        data_rows r = make(m, (data_rows_spec){0});
        add_lengths(&r, 5);
        assert_int_equal(data_rows_add(&r, "abc", "def"), BY_OK);
        data_row_groups g;
        data_row_batch all = {0}, one = {0};
        assert_int_equal(data_rows_by_length(&r, 8, &g), BY_OK);
        assert_int_equal(data_rows_group(&r, &g, 0, 8, &all), BY_OK);
        assert_int_equal(all.batch.batch, 8);
        assert_int_equal(all.rows, 6);
        assert_int_equal(all.batch.seq, 24);
        assert_int_equal(by_batch_find(&all.batch, "mask") != NULL, cases[k].masked);
        assert_int_equal(by_batch_find(&all.batch, "segments") != NULL, cases[k].segmented);
        by_passes *passes = by_passes_new(m, &(by_pass_spec){0}, 0);
        float together[8 * 3], alone[3];
        by_pass *p = by_passes_get(passes, &all.batch);
        assert_non_null(p);
        assert_int_equal(by_pass_run(p, &all.batch), BY_OK);
        assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), together), BY_OK);
        for (int i = 0; i < 6; i++) {
            assert_int_equal(data_rows_batch(&r, &g.rows[i], 1, 1, &one), BY_OK);
            p = by_passes_get(passes, &one.batch);
            assert_int_equal(by_pass_run(p, &one.batch), BY_OK);
            assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), alone), BY_OK);
            for (int c = 0; c < 3; c++)
                assert_true(fabsf(alone[c] - together[i * 3 + c]) < 1e-5f);
        }
        by_passes_free(passes);
        data_row_batch_free(&all);
        data_row_batch_free(&one);
        data_row_groups_free(&g);
        data_rows_free(&r);
        by_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_padding_is_not_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tiny_close);
}
