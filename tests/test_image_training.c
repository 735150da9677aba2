/* test_image_training.c - training on pictures with captions through the library: pairs for CLIP learn which colour is meant, a run that is
 * cancelled continues bit by bit, and what does not go together is said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/finetune.h"
#include "folder.h"

enum { COLOURS = 4, EACH = 12 };

static bool writes_png(void)
{
    return strstr(by_image_formats(), "png") != NULL;
}

/* Pictures of one colour with a little noise, and a list with a sentence about each. */
static void make_data(void)
{
    static const struct {
        const char *caption;
        uint8_t rgb[3];
    } colours[COLOURS] = {{"a red square", {230, 30, 30}},
                          {"a green square", {30, 200, 40}},
                          {"something that is blue", {20, 40, 220}},
                          {"white", {250, 250, 250}}};
    base_rng r = base_rng_make(1, 1);
    base_buf list = {0};
    base_buf_puts(&list, "file\tcaption\n");
    for (int i = 0; i < COLOURS * EACH; i++) {
        char name[32];
        by_image *m = by_image_new(8, 8, BY_PIXELS_RGB);
        for (int k = 0; k < 8 * 8 * 3; k++)
            ((uint8_t *)m->pixels)[k] =
                (uint8_t)(BY_MAX(colours[i % COLOURS].rgb[k % 3] - 5, 0) + (int)base_rng_below(&r, 5));
        snprintf(name, sizeof name, "%02d.png", i);
        assert_int_equal(by_image_write_png(m, in_root(name)), BY_OK);
        base_buf_printf(&list, "%s\t%s\n", name, colours[i % COLOURS].caption);
        by_image_free(m);
    }
    write_text("pairs.tsv", list.data);
    base_buf_free(&list);
}

typedef struct course {
    int64_t stop; /* cancel after this step; 0: never */
    int64_t step;
} course;

static void on_report(void *user, const by_report *r)
{
    ((course *)user)->step = r->step;
}

static bool is_over(void *user)
{
    const course *c = user;
    return c->stop && c->step >= c->stop;
}

static by_status train(by_device *d, const char *out, int workers, course *c, by_run_result *result)
{
    const char *data = in_root("pairs.tsv");
    by_run_spec s = by_run_defaults("clip", NULL, NULL);
    s.shape = (by_model_shape){.preset = "tiny",
                               .layers = 1,
                               .decoder_layers = 1,
                               .width = 32,
                               .heads = 2,
                               .context = 16,
                               .dropout = -1};
    s.images.size = 8;
    s.shape.patch = 4;
    s.images.augment.flip = 0.5;
    s.images.augment.crop_padding = 1;
    s.images.average = 0.8;
    s.images.data.workers = workers;
    s.data = &data;
    s.data_count = 1;
    s.eval_fraction = 0.25;
    s.batch = 8;
    s.steps = 40;
    s.eval_every = 20;
    s.save_every = 10;
    s.schedule.rate = 5e-3;
    s.out = in_root(out);
    s.no_peak = true;
    s.report = on_report;
    s.cancelled = is_over;
    s.user = c;
    return by_train_run(d, &s, result);
}

static char *model_of(const char *out, size_t *size)
{
    char name[64];
    snprintf(name, sizeof name, "%s/last/model.safetensors", out);
    char *bytes = base_file_read(in_root(name), 1 << 24, size);
    assert_non_null(bytes);
    return bytes;
}

static void test_pairs(void **state)
{
    (void)state;
    if (!writes_png())
        skip();
    by_device *d = by_device_open("cpu", 1);
    by_run_result whole, torn;
    by_image_result r;
    size_t n, k;
    make_data();
    if (train(d, "whole", 2, &(course){0}, &whole) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_string_equal(whole.metrics[0].name, "accuracy");
    assert_true(whole.metrics[0].value > 0.95);
    assert_true(whole.data_wait >= 0 && whole.data_wait <= 1);
    /* cancelled in the middle, continued with other threads */
    assert_int_equal(train(d, "torn", 1, &(course){.stop = 13}, &torn), BY_ERR_CANCELLED);
    assert_int_equal(train(d, "torn", 4, &(course){0}, &torn), BY_OK);
    assert_true(torn.resumed_from >= 13);
    char *a = model_of("whole", &n), *b = model_of("torn", &k);
    assert_int_equal(n, k);
    assert_memory_equal(a, b, n);
    base_free(a);
    base_free(b);
    const char *data = in_root("pairs.tsv");
    assert_int_equal(by_image_evaluate(d, in_root("whole/best"), BY_F32, &data, 1,
                                       &(by_image_evaluate_spec){.batch = 16}, &r),
                     BY_OK);
    assert_true(r.top1 > 0.95 && isnan(r.exact) && r.classes == 0);
    assert_int_equal(r.pictures, COLOURS * EACH);
    by_image_result_free(&r);
    by_device_free(d);
}

static void test_conflicts(void **state)
{
    (void)state;
    if (!writes_png())
        skip();
    by_device *d = by_device_open("cpu", 1);
    make_data();
    const char *data = in_root("pairs.tsv");
    by_run_result result;
    by_run_spec s = by_run_defaults("clip", NULL, NULL);
    s.shape = (by_model_shape){.preset = "tiny", .layers = 1, .width = 32, .heads = 2, .dropout = -1};
    s.data = &data;
    s.data_count = 1;
    s.out = in_root("none");
    s.images.augment.mixup = 0.8;
    assert_int_equal(by_train_run(d, &s, &result), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "captions cannot be mixed"));
    assert_false(base_dir_exists(in_root("none")));
    s.images.augment.mixup = 0;
    s.tokenizer = "char";
    assert_int_not_equal(by_train_run(d, &s, &result), BY_OK);
    assert_non_null(strstr(by_error_message(), "tokenizer char"));
    s.tokenizer = NULL;
    s.images.size = 10; /* patches of 4 */
    s.shape.patch = 4;
    assert_int_not_equal(by_train_run(d, &s, &result), BY_OK);
    assert_non_null(strstr(by_error_message(), "whole number of patches"));
    by_device_free(d);
}

static int make_folder(void **state)
{
    (void)state;
    return make_root("image-training") ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_conflicts)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
