/* test_ahead.c - steps that are started before the ones before them have been looked at: the course of a run,
 * what is written of it and how it ends do not depend on how many. The CPU runs nothing ahead by itself, but
 * can be told to look as late as a GPU would; tests/scripts/emulated.sh does it with an emulated GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/banyan.h"
#include "base/file.h"
#include "base/json.h"
#include "child.h"

enum { V = 17, T = 12, B = 4 };

static by_device *device;
static char root[300];

double __wrap_by_device_peak(by_device *d, by_dtype type);

static double peaks[8] = {1e15}; /* what is measured, one after the other; the last that is not 0 for ever */
static int measured;

/* In place of the real one (test_ahead.link), which takes longer than all the rest here. */
double __wrap_by_device_peak(by_device *d, by_dtype type)
{
    (void)d, (void)type;
    int i = BY_MIN(measured, BY_COUNT(peaks) - 1);
    while (i > 0 && peaks[i] == 0)
        i--;
    measured++;
    return peaks[i];
}

static const char *in_root(const char *name, const char *file)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s%s%s", root, name, file ? "/" : "", file ? file : "");
    return path;
}

/* ---- the trainer ------------------------------------------------------------------------------- */

/* What is read of many steps at once is what each of them told by itself. */
static void test_read(void **state)
{
    (void)state;
    enum { STEPS = 150, MICRO = 3 };
    by_model_shape shape = {.layers = 1, .heads = 2, .width = 16, .context = T, .vocab = V, .dropout = 0.1};
    by_model *m = by_model_new(device, "gpt2", &shape, &(by_model_spec){.training = true, .seed = 3});
    assert_non_null(m);
    by_trainer *t = by_trainer_new(m, &(by_trainer_spec){.accumulate = MICRO});
    assert_non_null(t);
    double loss[STEPS], norm[STEPS], losses[BY_TRAINER_KEPT], norms[BY_TRAINER_KEPT];
    base_rng rng = base_rng_make(5, 0);
    for (int i = 0; i < STEPS; i++) {
        int32_t tokens[B * T];
        double each, mean = 0;
        const int micro = i % 10 == 9 ? 1 : MICRO; /* a step may have fewer */
        for (int k = 0; k < micro; k++) {
            for (int j = 0; j < B * T; j++)
                tokens[j] = (int32_t)base_rng_below(&rng, V);
            by_batch batch = by_batch_of(B, T, tokens);
            by_batch_put_tokens(&batch, "targets", tokens);
            assert_int_equal(by_trainer_backward(t, &batch, k == 0, &each), BY_OK);
            mean += each / micro;
        }
        assert_int_equal(by_trainer_update(t, 1e-3, &norm[i]), BY_OK);
        assert_int_equal(by_trainer_loss(t, &loss[i]), BY_OK);
        assert_true(fabs(loss[i] - mean) < 1e-6 * mean);
        if (i % 40 != 0 && i + 1 < STEPS)
            continue;
        const int n = BY_MIN(i + 1, BY_TRAINER_KEPT);
        assert_int_equal(by_trainer_read(t, n, losses, norms), BY_OK);
        assert_memory_equal(losses, loss + i + 1 - n, (size_t)n * sizeof *loss);
        assert_memory_equal(norms, norm + i + 1 - n, (size_t)n * sizeof *norm);
    }
    assert_int_equal(by_trainer_read(t, BY_TRAINER_KEPT + 1, losses, norms), BY_ERR_ARGUMENT);
    assert_int_equal(by_trainer_read(t, -1, losses, norms), BY_ERR_ARGUMENT);
    by_trainer_set_steps(t, 9); /* as if resumed: those before are not here */
    assert_int_equal(by_trainer_read(t, 1, losses, norms), BY_ERR_ARGUMENT);
    assert_int_equal(by_trainer_loss(t, losses), BY_ERR_ARGUMENT);
    by_trainer_free(t);
    by_model_free(m);
}

/* ---- runs -------------------------------------------------------------------------------------- */

typedef struct watch {
    int64_t last, bursts; /* reports, and how often the last of several came */
    double share;         /* of the peak, the last */
    int polls, stop_at;   /* be cancelled when it has been asked so often; 0: never */
} watch;

static void on_report(void *user, const by_report *r)
{
    watch *w = user;
    if (r->note) {
        w->last = r->step;
        return;
    }
    assert_int_equal(r->step, w->last + 1); /* every one, in order */
    assert_true(isfinite(r->loss) && isfinite(r->grad_norm) && r->ms > 0 && r->tokens_per_s > 0);
    assert_true(!r->more || (!r->evaluated && !r->saved));
    w->last = r->step;
    w->bursts += !r->more;
    w->share = r->peak_share;
}

static bool on_poll(void *user)
{
    watch *w = user;
    return ++w->polls == w->stop_at;
}

static const char *text_file(void)
{
    const char *path = in_root("text", NULL);
    if (!base_file_exists(path)) {
        base_buf b = {0};
        for (int i = 0; i < 200; i++)
            base_buf_printf(&b, "%d times %d is %d; ", i, i + 1, i * (i + 1));
        assert_int_equal(base_file_write(path, b.data, b.size), BY_OK);
        base_buf_free(&b);
    }
    return path;
}

static by_status train(const char *out, int ahead, double rate, watch *w, by_run_result *result)
{
    const char *data = text_file();
    by_run_spec spec = {.family = "gpt2",
                        .shape = {.layers = 1, .heads = 2, .width = 16, .context = T, .dropout = 0.1},
                        .data = &data,
                        .data_count = 1,
                        .eval_fraction = 0.1,
                        .batch = B,
                        .steps = 40,
                        .schedule = {.kind = BY_SCHEDULE_CONSTANT, .rate = rate},
                        .eval_every = 15,
                        .save_every = 20,
                        .log_every = 1,
                        .seed = 6,
                        .ahead = ahead,
                        .out = in_root(out, NULL),
                        .report = on_report,
                        .cancelled = on_poll,
                        .user = w};
    return by_train_run(device, &spec, result);
}

/* metrics.jsonl without what the clock decides. */
static char *course(const char *out)
{
    size_t size;
    char *text = base_file_read(in_root(out, "metrics.jsonl"), 1 << 20, &size);
    assert_non_null(text);
    base_buf kept = {0};
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        cJSON *json = cJSON_Parse(line);
        assert_non_null(json);
        cJSON_DeleteItemFromObject(json, "ms");
        cJSON_DeleteItemFromObject(json, "tokens_per_s");
        char *plain = cJSON_PrintUnformatted(json);
        base_buf_printf(&kept, "%s\n", plain);
        cJSON_free(plain);
        cJSON_Delete(json);
    }
    base_free(text);
    return kept.data;
}

static void same_file(const char *a, const char *b, const char *file)
{
    size_t n, m;
    char *x = base_file_read(in_root(a, file), 1 << 24, &n),
         *y = base_file_read(in_root(b, file), 1 << 24, &m);
    assert_true(x && y);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    base_free(x);
    base_free(y);
}

static void same_run(const char *a, const char *b)
{
    char *x = course(a), *y = course(b);
    assert_string_equal(x, y);
    base_free(x);
    base_free(y);
    same_file(a, b, "last/model.safetensors");
    same_file(a, b, "last/optimizer.safetensors");
    same_file(a, b, "best/model.safetensors");
}

static void test_course(void **state)
{
    (void)state;
    static const int ahead[] = {1, 7, 64, 1000};
    static const int64_t bursts[] = {40, 8, 4, 4}; /* 7 14 15 20 27 30 37 40; due anyway: 15 20 30 40 */
    char out[16];
    for (int i = 0; i < BY_COUNT(ahead); i++) {
        watch w = {0};
        by_run_result r;
        snprintf(out, sizeof out, "ahead%d", i);
        assert_int_equal(train(out, ahead[i], 1e-2, &w, &r), BY_OK);
        assert_int_equal(w.last, 40);
        assert_int_equal(w.bursts, bursts[i]);
        same_run("ahead0", out);
    }
}

/* A machine that was busy when its peak was measured: the share never goes above 1. It is measured again, a
 * few times, and unknown when that does not help. */
static void test_peak(void **state)
{
    (void)state;
    watch w = {0};
    by_run_result r;
    peaks[0] = 1;
    peaks[1] = 2;
    peaks[2] = 1e15;
    measured = 0;
    assert_int_equal(train("busy", 1, 1e-2, &w, &r), BY_OK);
    assert_int_equal(measured, 3);
    assert_true(w.share > 0 && w.share <= 1);
    memset(peaks, 0, sizeof peaks);
    peaks[0] = 1;
    measured = 0;
    w = (watch){0};
    assert_int_equal(train("wrong", 1, 1e-2, &w, &r), BY_OK);
    assert_int_equal(measured, 4);
    assert_true(isnan(w.share));
    peaks[0] = 1e15;
}

/* Ctrl-C between two looks: what has been started is saved, and goes on as if nothing had been. */
static void test_cancelled(void **state)
{
    (void)state;
    watch w = {.stop_at = 12};
    by_run_result r;
    assert_int_equal(train("whole", 0, 1e-2, &(watch){0}, &r), BY_OK);
    assert_int_equal(train("parts", 64, 1e-2, &w, &r), BY_ERR_CANCELLED);
    assert_contains(by_error_message(), "stopped at step 11;");
    assert_int_equal(w.last, 11);
    w = (watch){0};
    assert_int_equal(train("parts", 64, 1e-2, &w, &r), BY_OK);
    assert_int_equal(r.resumed_from, 11);
    assert_int_equal(w.last, 40);
    same_run("whole", "parts");
}

/* The step whose loss is not finite is named, and those before it are on record. */
static void test_not_finite(void **state)
{
    (void)state;
    char first[200];
    by_run_result r;
    assert_int_equal(train("bad1", 1, 1e30, &(watch){0}, &r), BY_ERR_NUMERIC);
    snprintf(first, sizeof first, "%s", by_error_message());
    assert_contains(first, "the loss is");
    assert_int_equal(train("bad64", 64, 1e30, &(watch){0}, &r), BY_ERR_NUMERIC);
    assert_string_equal(by_error_message(), first);
    char *x = course("bad1"), *y = course("bad64");
    assert_string_equal(x, y);
    int lines = 0;
    for (const char *at = x; (at = strchr(at, '\n')); at++)
        lines++;
    base_free(x);
    base_free(y);
    char step[32];
    snprintf(step, sizeof step, "at step %d", lines + 1);
    assert_contains(first, step);
    assert_false(base_file_exists(in_root("bad64", "last")));
}

static int set_up(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/banyan-ahead-XXXXXX", base && *base ? base : "/tmp");
    device = by_device_open("cpu", 1);
    return mkdtemp(root) && device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),      cmocka_unit_test(test_course),     cmocka_unit_test(test_peak),
        cmocka_unit_test(test_cancelled), cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("ahead", tests, set_up, tear_down);
}
