/* test_locale.c - the library in a program with a decimal comma: everything it writes has the same bytes as
 * in the "C" locale, and it reads all of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <locale.h>
#include <math.h>

#include "banyan/banyan.h"
#include "banyan/train_tokenizer.h"
#include "base/json.h"
#include "data/labelled.h"
#include "folder.h"

static bool comma; /* a locale with a decimal comma could be made and set */

static int set_up(void **state)
{
    (void)state;
    char command[700];
    if (!make_root("locale"))
        return -1;
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", root);
    if (system(command) == 0 && setenv("LOCPATH", root, 1) == 0 && setlocale(LC_ALL, "de_DE.UTF-8")) {
        char text[16];
        snprintf(text, sizeof text, "%.1f", 0.5);
        comma = strcmp(text, "0,5") == 0;
    }
    if (!comma)
        print_message("not run: localedef cannot make de_DE.UTF-8 here\n");
    setlocale(LC_ALL, "C");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

static void enter(bool german)
{
    assert_non_null(setlocale(LC_ALL, german ? "de_DE.UTF-8" : "C"));
    assert_string_equal(localeconv()->decimal_point, german ? "," : ".");
}

static void same_file(const char *a, const char *b, const char *name)
{
    char path[2][800];
    size_t size[2];
    char *text[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", i ? b : a, name);
        text[i] = base_file_read(path[i], (size_t)1 << 24, &size[i]);
        if (!text[i])
            fail_msg("%s", by_error_message());
    }
    if (size[0] != size[1] || memcmp(text[0], text[1], size[0]) != 0)
        fail_msg("%s differs:\n%.600s\n---\n%.600s", name, text[0], text[1]);
    base_free(text[0]);
    base_free(text[1]);
}

/* ---- the pieces ------------------------------------------------------------------------------ */

static void numbers_have_a_point(void **state)
{
    (void)state;
    if (!comma)
        skip();
    enter(true);
    char text[32], *end;
    base_format(text, sizeof text, "%.2f %g", 0.25, 1.5);
    assert_string_equal(text, "0.25 1.5");
    assert_true(base_strtod("0.25x", &end) == 0.25 && *end == 'x');
    assert_true(base_strtof("1.5", NULL) == 1.5f);
    base_buf b = {0};
    base_buf_printf(&b, "%a %e", 1.5, 2.5);
    assert_string_equal(b.data, "0x1.8p+0 2.500000e+00");
    base_buf_free(&b);
    cJSON *json = base_json_parse("{\"x\": 1.25e-1}", 14, "text");
    assert_non_null(json);
    assert_true(cJSON_GetObjectItem(json, "x")->valuedouble == 0.125);
    base_json_print(&b, json, false);
    assert_null(strchr(b.data, ','));
    base_buf_free(&b);
    cJSON_Delete(json);
    assert_string_equal(localeconv()->decimal_point, ","); /* the program's own is as it was */
    base_fail(BY_ERR_ARGUMENT, "%.1f", 0.5);
    assert_string_equal(by_error_message(), "0.5");
}

static void tables_are_read(void **state)
{
    (void)state;
    if (!comma)
        skip();
    enter(true);
    const char *path = write_text("scores.tsv", "score\ttext\n0.5\tone\n-2.25\ttwo\n");
    data_examples c = {0};
    const by_examples_spec data = {.kind = BY_EXAMPLE_REGRESS, .label = "score", .text = "text"};
    assert_int_equal(data_examples_open(&c, path, &data), BY_OK);
    const float wanted[] = {0.5f, -2.25f};
    for (int i = 0; i < 2; i++) {
        float value;
        assert_int_equal(data_example_number(&c, &c.list[i], 0, &value), BY_OK);
        assert_true(value == wanted[i]);
    }
    data_examples_close(&c);
}

/* ---- whole runs ------------------------------------------------------------------------------ */

static void train(const char *out, int64_t steps)
{
    by_device *d = by_device_open("cpu", 1);
    by_run_result result;
    const by_run_spec spec = {.family = "gpt2",
                              .shape = {.layers = 1, .heads = 2, .width = 8, .context = 8, .dropout = 0.1},
                              .data = &(const char *){in_root("text")},
                              .data_count = 1,
                              .eval_fraction = 0.25,
                              .tokenizer = "char",
                              .batch = 2,
                              .steps = steps,
                              .schedule = {.kind = BY_SCHEDULE_CONSTANT, .rate = 1.5e-3, .warmup = 1},
                              .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1},
                              .eval_every = 2,
                              .save_every = 2,
                              .seed = 7,
                              .out = out};
    if (by_train_run(d, &spec, &result) != BY_OK)
        fail_msg("%s", by_error_message());
    by_device_free(d);
}

/* Of every line: that it is JSON, and its losses. */
static void same_losses(const char *a, const char *b)
{
    char path[2][800];
    char *text[2], *at[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/metrics.jsonl", i ? b : a);
        at[i] = text[i] = base_file_read(path[i], (size_t)1 << 20, NULL);
        assert_non_null(text[i]);
    }
    for (int lines = 0; lines < 4; lines++) {
        double loss[2] = {NAN, NAN};
        for (int i = 0; i < 2; i++) {
            char *end = strchr(at[i], '\n');
            assert_non_null(end);
            cJSON *json = base_json_parse(at[i], (size_t)(end - at[i]), path[i]);
            assert_non_null(json);
            loss[i] = cJSON_GetObjectItem(json, "loss")->valuedouble;
            assert_non_null(cJSON_GetObjectItem(json, "ms"));
            cJSON_Delete(json);
            at[i] = end + 1;
        }
        assert_true(loss[0] == loss[1] && loss[0] != floor(loss[0]));
    }
    base_free(text[0]);
    base_free(text[1]);
}

static void runs_are_the_same(void **state)
{
    (void)state;
    if (!comma)
        skip();
    base_buf text = {0};
    for (int i = 0; i < 40; i++)
        base_buf_puts(&text, "a stitch in time saves nine. ");
    write_text("text", text.data);
    base_buf_free(&text);
    enter(false);
    train(in_root("plain"), 4);
    enter(true);
    train(in_root("german"), 2);
    train(in_root("german"), 4); /* goes on: state and configuration are read again */
    const char *const files[] = {
        "last/config.json", "last/trainer_state.json", "last/model.safetensors", "last/optimizer.safetensors",
        "loss.svg",         "data/tokenizer.json"};
    for (int i = 0; i < BY_COUNT(files); i++)
        same_file(in_root("plain"), in_root("german"), files[i]);
    same_losses(in_root("plain"), in_root("german"));
    enter(false);
    train(in_root("german"), 4); /* and so does a program with a point */
}

static void tokenizers_are_the_same(void **state)
{
    (void)state;
    if (!comma)
        skip();
    write_text("words", "the cat sat on the mat and the dog sat on the log\nthat is that and this is this\n");
    for (int german = 0; german < 2; german++) {
        enter(german);
        by_vocab_result result;
        const by_vocab_spec spec = {.kind = BY_VOCAB_UNIGRAM, .size = 40, .threads = 1};
        by_tokenizer *t = by_tokenizer_train(&spec, &(const char *){in_root("words")}, 1, &result);
        if (!t)
            fail_msg("%s", by_error_message());
        const char *dir = in_root(german ? "u-german" : "u-plain");
        assert_int_equal(by_tokenizer_save(t, dir), BY_OK);
        by_tokenizer_free(t);
        t = by_tokenizer_load(dir);
        assert_non_null(t);
        by_tokenizer_free(t);
    }
    same_file(in_root("u-plain"), in_root("u-german"), "tokenizer.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_a_point),
        cmocka_unit_test(tables_are_read),
        cmocka_unit_test(runs_are_the_same),
        cmocka_unit_test(tokenizers_are_the_same),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
