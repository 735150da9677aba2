/* test_failing.c - models, training, generation and tokenizers with every allocation made to fail in turn.
 * The C allocation functions are wrapped at link time (test_failing.link): they count what is alive and fail
 * on request. Of the libraries only cJSON comes in, by its hooks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocations.h"
#include "banyan/banyan.h"
#include "base/file.h"
#include "train/folder.h"

#ifndef BY_SOURCE_DIR
#define BY_SOURCE_DIR "."
#endif

double __wrap_by_device_peak(by_device *d, by_dtype type);
int __wrap_fsync(int fd);

/* What takes longer than all the rest here and is none of this test's business: measuring the machine, and
 * waiting for its disk. */
double __wrap_by_device_peak(by_device *d, by_dtype type)
{
    (void)d, (void)type;
    return NAN;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

/* ---- scenarios ------------------------------------------------------------------------------- */

static char root[300]; /* a folder for all of them */

static by_device *open_device(void)
{
    return by_device_open("cpu:generic", 1);
}

static const by_model_shape tiny = {
    .layers = 1, .heads = 2, .width = 8, .context = 8, .vocab = 11, .dropout = 0.1};

/* Run body with a model of its own on a device of its own. */
static by_status with_model(bool training, by_dtype type, by_status (*body)(by_model *m))
{
    by_device *d = open_device();
    by_model_spec spec = {.dtype = type, .training = training, .seed = 1};
    by_model *m = d ? by_model_new(d, "gpt2", &tiny, &spec) : NULL;
    by_status s = m ? body(m) : base_error_status();
    by_model_free(m);
    by_device_free(d);
    return s;
}

static by_status save_and_open(by_model *m)
{
    char dir[320];
    snprintf(dir, sizeof dir, "%s/model", root);
    by_status s = by_model_save(m, dir, BY_F32);
    by_model_spec specs[] = {{.dtype = BY_F32},
                             {.dtype = BY_BF16, .training = true},
                             {.dtype = BY_F32, .new_head = true, .task = BY_TASK_CLASSIFY, .labels = 3}};
    for (int i = 0; i < BY_COUNT(specs) && s == BY_OK; i++) {
        by_model *again = by_model_open(by_model_device(m), dir, &specs[i]);
        s = again ? BY_OK : base_error_status();
        if (again && i == 2)
            s = by_model_save(again, dir, BY_BF16);
        by_model_free(again);
    }
    return s;
}

static by_status open_body(void)
{
    return with_model(false, BY_F32, save_and_open);
}

static by_status take_steps(by_model *m, bool recompute, by_optimizer kind)
{
    int32_t inputs[16], targets[16];
    for (int i = 0; i < 16; i++) {
        inputs[i] = i % 11;
        targets[i] = (i + 1) % 11;
    }
    by_batch batch = by_batch_of(2, 8, inputs);
    by_batch_put_tokens(&batch, "targets", targets);
    by_trainer_spec spec = {.accumulate = 2, .recompute = recompute, .optimizer.kind = kind};
    by_trainer *t = by_trainer_new(m, &spec);
    if (!t)
        return base_error_status();
    double loss, norm, sum = 0;
    int64_t count = 0;
    by_status s = by_trainer_backward(t, &batch, true, &loss);
    if (s == BY_OK)
        s = by_trainer_backward(t, &batch, false, &loss);
    if (s == BY_OK)
        s = by_trainer_update(t, 1e-3, &norm);
    if (s == BY_OK)
        s = by_trainer_evaluate(t, &batch, &sum, &count);
    by_trainer_free(t);
    return s;
}

static by_status steps_plain(by_model *m)
{
    return take_steps(m, false, BY_ADAMW);
}

static by_status steps_recomputed(by_model *m)
{
    return take_steps(m, true, BY_ADAFACTOR);
}

static by_status step_body(void)
{
    return with_model(true, BY_F32, steps_plain);
}

static by_status recompute_body(void)
{
    return with_model(true, BY_BF16, steps_recomputed);
}

static by_status write_text(by_model *m)
{
    by_generator *g = by_generator_new(m, &(by_generator_spec){.batch = 2});
    if (!g)
        return base_error_status();
    const int32_t prompt[] = {1, 2, 3};
    by_generate_spec spec = {
        .max_new_tokens = 9,
        .slide = true,
        .sampling = {.temperature = 1, .top_k = 5, .top_p = 0.9, .repetition_penalty = 1.1}};
    by_generate_result result;
    by_status s =
        by_generate(g, (const int32_t *const[]){prompt, prompt}, (const int[]){3, 2}, &spec, &result);
    by_generate_result_free(&result);
    by_generator_free(g);
    return s;
}

static by_status generate_body(void)
{
    return with_model(false, BY_F32, write_text);
}

/* PyTorch files of both kinds into shards of another type. */
static by_status convert_body(void)
{
    static const char *const names[] = {"zip.bin", "stream.bin"};
    by_convert_spec spec = {.set_dtype = true, .dtype = BY_F16, .shard_bytes = 100};
    by_status s = BY_OK;
    for (int i = 0; i < BY_COUNT(names) && s == BY_OK; i++) {
        char in[600], out[320];
        snprintf(in, sizeof in, "%s/tests/data/torch/%s", BY_SOURCE_DIR, names[i]);
        snprintf(out, sizeof out, "%s/converted", root);
        s = by_weights_convert(in, out, &spec, NULL);
        by_weights *w = s == BY_OK ? by_weights_open(out) : NULL;
        if (s == BY_OK && !w)
            s = base_error_status();
        by_weights_free(w);
        if (base_dir_exists(out))
            base_dir_remove(out);
    }
    return s;
}

/* ---- whole runs ------------------------------------------------------------------------------ */

typedef struct patience {
    int polls; /* of cancelled() until it says yes */
} patience;

static bool enough(void *user)
{
    return ((patience *)user)->polls-- == 0;
}

static by_run_spec run_spec(const char *out, const char *const *data, int64_t steps)
{
    return (by_run_spec){.family = "gpt2",
                         .shape = {.layers = 1, .heads = 2, .width = 8, .context = 8, .dropout = 0.1},
                         .data = data,
                         .data_count = 1,
                         .eval_fraction = 0.2,
                         .batch = 2,
                         .accumulate = 2,
                         .steps = steps,
                         .schedule = {.kind = BY_SCHEDULE_CONSTANT, .rate = 1e-2},
                         .optimizer = {.max_grad_norm = 1},
                         .out = out,
                         .eval_every = 2,
                         .eval_batches = 1,
                         .save_every = 1,
                         .seed = 5};
}

/* Up to `steps` in all, at most this_time of them now. */
static by_status train(const char *name, int64_t steps, int this_time, int log_every, bool afresh)
{
    char out[320], text[320];
    snprintf(out, sizeof out, "%s/%s", root, name);
    snprintf(text, sizeof text, "%s/text", root);
    const char *data[] = {text};
    patience p = {this_time};
    by_run_spec spec = run_spec(out, data, steps);
    spec.log_every = log_every;
    if (afresh) {
        spec.overwrite = true;
        spec.tokenizer = "byte";
        spec.eval_data = data;
        spec.eval_count = 1;
    }
    spec.cancelled = enough;
    spec.user = &p;
    by_run_result result;
    by_device *d = open_device();
    by_status s = d ? by_train_run(d, &spec, &result) : base_error_status();
    by_device_free(d);
    return s;
}

static by_status fresh_body(void)
{
    return train("fresh", 2, 100, 1, true);
}

/* Goes on for one step. Few steps are logged and the files of events removed, for the number of
 * allocations grows with both.
 */
static by_status resume_body(void)
{
    char pattern[320], **found;
    int count;
    long left = until_failure;
    until_failure = -1;
    snprintf(pattern, sizeof pattern, "%s/resumed/events.*", root);
    if (base_glob(pattern, &found, &count) == BY_OK) {
        for (int i = 0; i < count; i++)
            unlink(found[i]);
        base_paths_free(found, count);
    }
    base_error_clear();
    until_failure = left;
    by_status s = train("resumed", 100000, 1, 100000, false);
    return s == BY_ERR_CANCELLED ? BY_OK : s;
}

/* A folder of a version that kept no list of its files gets a whole one, or none. */
static by_status adopt_body(void)
{
    static int whole;
    char out[320], list[340];
    snprintf(out, sizeof out, "%s/adopted", root);
    snprintf(list, sizeof list, "%s/owned.json", out);
    unlink(list);
    train_folder f;
    by_status s = train_folder_open(&f, out);
    if (s == BY_OK && whole && f.count != whole)
        s = base_fail(BY_ERR_FORMAT, "%d of %d files were listed", f.count, whole);
    else if (s == BY_OK)
        whole = f.count;
    train_folder_close(&f);
    return s;
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static by_status learn(const char *like)
{
    char text[320], out[320];
    snprintf(text, sizeof text, "%s/text", root);
    snprintf(out, sizeof out, "%s/tokenizer", root);
    const char *files[] = {text};
    by_tokenizer *t =
        by_tokenizer_train(&(by_vocab_spec){.like = like, .size = 300, .threads = 1}, files, 1, NULL);
    by_status s = t ? by_tokenizer_save(t, out) : base_error_status();
    by_tokenizer_free(t);
    return s;
}

static by_status bpe_body(void)
{
    return learn("gpt2");
}

static by_status suffix_body(void)
{
    return learn("gpt");
}

static by_status unigram_body(void)
{
    return learn("t5");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

enum { AT_MOST = 5000 }; /* allocations of a body */

/* Run body with its first, second, third ... allocation failing, until it gets through. Every failure must
 * come out as BY_ERR_MEMORY with a message, or not matter; nothing may stay allocated or open. */
static void fail_each(by_status (*body)(void), long at_least)
{
    assert_int_equal(body(), BY_OK);
    long before = alive, failures = 0;
    int files = open_files();
    for (long n = 0;; n++) {
        if (n > AT_MOST)
            fail_msg("more than %d allocations: their number grows with every repetition", AT_MOST);
        base_error_clear();
        until_failure = n;
        by_status status = body();
        bool through = until_failure >= 0;
        until_failure = -1;
        if (alive != before || open_files() != files)
            fail_msg("allocation %ld failing: %ld blocks and %d files were left (%s)", n, alive - before,
                     open_files() - files, by_error_message());
        if (through) {
            assert_int_equal(status, BY_OK);
            assert_true(n >= at_least);    /* the body does allocate */
            assert_true(failures * 2 > n); /* and cares */
            return;
        }
        if (status == BY_OK)
            continue;
        failures++;
        if (status != BY_ERR_MEMORY || base_error_status() != BY_ERR_MEMORY ||
            !strstr(by_error_message(), "memory"))
            fail_msg("allocation %ld failing: status %d, message \"%s\" of status %d", n, (int)status,
                     by_error_message(), (int)base_error_status());
    }
}

static void test_open(void **state)
{
    (void)state;
    fail_each(open_body, 300);
}

static void test_convert(void **state)
{
    (void)state;
    fail_each(convert_body, 100);
}

static void test_step(void **state)
{
    (void)state;
    fail_each(step_body, 100);
}

static void test_recompute(void **state)
{
    (void)state;
    fail_each(recompute_body, 100);
}

static void test_generate(void **state)
{
    (void)state;
    fail_each(generate_body, 100);
}

static void test_fresh(void **state)
{
    (void)state;
    fail_each(fresh_body, 800);
}

/* Whatever failed in between, the run ends where one ends that had no trouble. */
static void test_resume(void **state)
{
    (void)state;
    assert_int_equal(train("resumed", 3, 100, 1, false), BY_OK);
    fail_each(resume_body, 500);
    char *text[2];
    size_t size[2];
    char path[400];
    snprintf(path, sizeof path, "%s/resumed/last", root);
    char target[64] = "";
    assert_true(readlink(path, target, sizeof target - 1) > 11);
    int64_t steps = atoll(target + 11);
    assert_int_equal(train("alone", steps, 1000000, 100000, false), BY_OK);
    const char *const runs[] = {"resumed", "alone"}, *const files[] = {"model.safetensors",
                                                                       "optimizer.safetensors"};
    for (int f = 0; f < 2; f++) {
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s/last/%s", root, runs[i], files[f]);
            text[i] = base_file_read(path, 1 << 24, &size[i]);
            assert_non_null(text[i]);
        }
        assert_int_equal(size[0], size[1]);
        assert_memory_equal(text[0], text[1], size[0]);
        base_free(text[0]);
        base_free(text[1]);
    }
}

static void test_adopt(void **state)
{
    (void)state;
    assert_int_equal(train("adopted", 3, 100, 1, false), BY_OK);
    fail_each(adopt_body, 100);
}

static void test_tokenizers(void **state)
{
    (void)state;
    fail_each(bpe_body, 100);
    fail_each(suffix_body, 100);
    fail_each(unigram_body, 100);
}

static int set_up(void **state)
{
    (void)state;
    setenv("BANYAN_GEMM", "own", 1);
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = malloc, .free_fn = free});
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-failing-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(root))
        return -1;
    char path[320];
    base_buf text = {0};
    for (int i = 0; i < 40; i++)
        base_buf_printf(&text, "line %d of %d; ", i, i * i);
    snprintf(path, sizeof path, "%s/text", root);
    by_status s = base_file_write(path, text.data, text.size);
    base_buf_free(&text);
    return s == BY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),      cmocka_unit_test(test_convert),  cmocka_unit_test(test_step),
        cmocka_unit_test(test_recompute), cmocka_unit_test(test_generate), cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_fresh),     cmocka_unit_test(test_resume),   cmocka_unit_test(test_adopt),
    };
    return cmocka_run_group_tests_name("failing", tests, set_up, tear_down);
}
