/* test_cases.c - models against values that the reference library computed, recorded in tests/data/cases: as
 * they are, and once they have been opened and saved here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <dirent.h>

#include "banyan/verify.h"
#include "folder.h"
#include "model/model.h"

#define CASES BY_SOURCE_DIR "/tests/data/cases"

static by_device *device;

static void on_line(void *user, const by_verify_line *l)
{
    if (l->verdict != BY_VERDICT_OK)
        fail_msg("%s: %s: %g of at most %g%s%s", (const char *)user, l->name, l->error, l->bound,
                 l->note ? ": " : "", l->note ? l->note : "");
}

static void verify(char *name, const char *dir, by_dtype type)
{
    by_verify_result result;
    const by_verify_spec spec = {.dtype = type, .line = on_line, .user = name};
    if (by_verify(device, dir, &spec, &result) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_true(result.tensors > 0);
    assert_int_equal(result.failed + result.not_run, 0);
}

static void copy_file(const char *from, const char *to)
{
    size_t size;
    char *text = base_file_read(from, 1 << 24, &size);
    assert_non_null(text);
    assert_int_equal(base_file_write(to, text, size), BY_OK);
    base_free(text);
}

/* The case with the model as it is saved here. */
static void save_again(const char *dir)
{
    static const char *const others[] = {"case.json", "reference.safetensors"};
    char from[800], to[800];
    base_dir_remove(in_root("again"));
    by_model *m = by_model_open(device, dir, &(by_model_spec){.training = true, .exact = true});
    if (!m)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_model_save(m, in_root("again"), BY_F32), BY_OK);
    by_model_free(m);
    for (int i = 0; i < BY_COUNT(others); i++) {
        snprintf(from, sizeof from, "%s/%s", dir, others[i]);
        snprintf(to, sizeof to, "%s/%s", in_root("again"), others[i]);
        copy_file(from, to);
    }
}

static void test_cases(void **state)
{
    (void)state;
    int count = 0;
    DIR *list = opendir(CASES);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));) {
        char dir[500];
        if (e->d_name[0] == '.' || strchr(e->d_name, '.'))
            continue;
        snprintf(dir, sizeof dir, "%s/%s", CASES, e->d_name);
        verify(e->d_name, dir, BY_F32);
        verify(e->d_name, dir, BY_F64);
        save_again(dir);
        verify(e->d_name, in_root("again"), BY_F32);
        count++;
    }
    closedir(list);
    assert_true(count >= 20);
}

/* A case without expected results shows nothing, of whatever kind it is. */
static void test_empty_cases(void **state)
{
    (void)state;
    static const char nothing[] = "\x08\0\0\0\0\0\0\0{}      "; /* safetensors without tensors */
    static const char *const kinds[] = {"\"kind\": \"ngram\"", "\"kind\": \"chat\"", "\"kind\": \"images\""};
    assert_int_equal(base_dir_make(in_root("empty/expected")), BY_OK);
    assert_int_equal(base_dir_make(in_root("empty/templates")), BY_OK);
    assert_int_equal(base_file_write(in_root("empty/reference.safetensors"), nothing, sizeof nothing - 1),
                     BY_OK);
    write_text("empty/scores.json", "{\"models\": {}}");
    write_text("empty/counting.json", "{\"models\": {}}");
    write_text("empty/conversations.json", "{}");
    write_text("empty/expected/none.json", "{\"rendered\": {}}");
    write_text("empty/templates/none.jinja", "");
    for (int i = 0; i < BY_COUNT(kinds); i++) {
        by_verify_result result;
        char text[80];
        snprintf(text, sizeof text, "{%s}", kinds[i]);
        write_text("empty/case.json", text);
        assert_int_not_equal(by_verify(device, in_root("empty"), &(by_verify_spec){.dtype = BY_F32}, &result),
                             BY_OK);
        assert_int_equal(result.tensors, 0);
        if (!strstr(by_error_message(), "nothing to compare"))
            fail_msg("%s: %s", kinds[i], by_error_message());
    }
}

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device && make_root("cases") ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_empty_cases)};
    return cmocka_run_group_tests_name("cases", tests, set_up, tear_down);
}
