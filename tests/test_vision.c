/* test_vision.c - models of pictures: patches, stochastic depth, probabilities as targets, distillation, pictures of other
 * sizes, and batches that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "banyan/pass.h"
#include "base/base.h"
#include "nn/nn.h"

static by_device *device;

enum { BATCH = 3, SIDE = 12, PATCH = 4, CHANNELS = 2, LABELS = 5, PIXELS = BATCH * CHANNELS * SIDE * SIDE };

static void must(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

static void assert_near(double a, double b, double bound)
{
    if (!(fabs(a - b) <= bound * BY_MAX(1, fabs(b))))
        fail_msg("%.9g is not near %.9g", a, b);
}

static by_model *new_model(const char *family, const char *preset, by_task task, by_dtype type)
{
    const by_model_shape shape = {.preset = preset,
                                  .layers = 2,
                                  .heads = 2,
                                  .width = 16,
                                  .inner = 24,
                                  .image = SIDE,
                                  .patch = PATCH,
                                  .channels = CHANNELS,
                                  .dropout = -1};
    by_model *m = by_model_new(
        device, family, &shape,
        &(by_model_spec){.dtype = type, .training = true, .seed = 3, .task = task, .labels = LABELS});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static void fill(float *x, int count, uint64_t seed)
{
    base_rng r = base_rng_make(seed, 0);
    for (int i = 0; i < count; i++)
        x[i] = (float)(base_rng_uniform(&r) * 2 - 1);
}

/* ---- probabilities as targets ---------------------------------------------------------------- */

/* Runs a batch with gradients; returns the loss and leaves the gradient of the first parameter in g. */
static double run(by_model *m, const by_batch *b, float smoothing, float *g, int room)
{
    by_pass *p = by_pass_new(m, b, &(by_pass_spec){.grads = BY_GRAD_STORE, .label_smoothing = smoothing});
    float loss;
    if (!p)
        fail_msg("%s", by_error_message());
    must(by_pass_run(p, b));
    must(by_pass_read(p, by_pass_loss(p), &loss));
    const int last = by_params_count(by_model_params(m)) - 2; /* weight of the head */
    assert_true(by_params_shape(by_model_params(m), last)[0] == LABELS && room >= LABELS * 16);
    must(by_params_get(by_model_params(m), last, BY_SLOT_GRAD, g));
    by_pass_free(p);
    return (double)loss;
}

/* Rows with one certain class are classes; in between, loss and gradient are linear in the probabilities. */
static void test_probabilities(void **state)
{
    (void)state;
    static const int32_t classes[2][BATCH] = {{0, 4, 2}, {1, 3, 2}};
    static const float shares[] = {1, 0, 0.3f};
    static float pixels[PIXELS];
    fill(pixels, PIXELS, 1);
    for (int smooth = 0; smooth < 2; smooth++) {
        const float s = smooth ? 0.1f : 0;
        by_model *m = new_model("vit", NULL, BY_TASK_CLASSIFY, BY_F32);
        by_batch b = by_batch_of_pictures(m, BATCH, SIDE, SIDE, pixels);
        float hard[2][LABELS * 16], soft[LABELS * 16], p[BATCH * LABELS];
        double losses[2];
        for (int k = 0; k < 2; k++) {
            by_batch_put_ids(&b, "targets", BATCH, classes[k]);
            losses[k] = run(m, &b, s, hard[k], LABELS * 16);
        }
        assert_true(fabs(losses[0] - losses[1]) > 1e-3);
        for (int k = 0; k < BY_COUNT(shares); k++) {
            const float a = shares[k];
            memset(p, 0, sizeof p);
            for (int r = 0; r < BATCH; r++) {
                p[r * LABELS + classes[0][r]] += a;
                p[r * LABELS + classes[1][r]] += 1 - a;
            }
            by_batch_put(&b, "targets", BY_F32, 2, (int64_t[]){BATCH, LABELS}, p);
            assert_near(run(m, &b, s, soft, LABELS * 16), (double)a * losses[0] + (double)(1 - a) * losses[1],
                        1e-6);
            for (int i = 0; i < LABELS * 16; i++)
                assert_near((double)soft[i], (double)(a * hard[0][i] + (1 - a) * hard[1][i]), 1e-6);
        }
        by_model_free(m);
    }
}

static void test_bad_batches(void **state)
{
    (void)state;
    static float pixels[PIXELS * 4], p[BATCH * LABELS];
    by_model *m = new_model("vit", NULL, BY_TASK_CLASSIFY, BY_F32);
    const by_pass_spec spec = {0};
    by_batch b = by_batch_of_pictures(m, BATCH, SIDE, SIDE + 1, pixels);
    assert_int_equal(b.seq, 0);
    assert_null(by_pass_new(m, &b, &spec));
    assert_non_null(strstr(by_error_message(), "whole numbers of patches"));
    b = by_batch_of_pictures(m, BATCH, SIDE, SIDE, pixels);
    by_batch_put(&b, "targets", BY_F32, 2, (int64_t[]){BATCH, LABELS - 1}, p);
    assert_null(by_pass_new(m, &b, &spec));
    assert_non_null(strstr(by_error_message(), "targets"));
    b = by_batch_of_pictures(m, BATCH, SIDE, SIDE, pixels);
    by_batch_put(&b, "pixel_values", BY_F32, 4, (int64_t[]){BATCH, CHANNELS + 1, SIDE, SIDE}, pixels);
    assert_null(by_pass_new(m, &b, &spec));
    b = by_batch_of(BATCH, 4, (const int32_t *)pixels);
    assert_null(by_pass_new(m, &b, &spec));
    assert_non_null(strstr(by_error_message(), "tokens"));
    by_model_free(m);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void features(by_model *m, int batch, int height, int width, const float *pixels, float *out)
{
    by_batch b = by_batch_of_pictures(m, batch, height, width, pixels);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    if (!p)
        fail_msg("%s", by_error_message());
    must(by_pass_run(p, &b));
    const by_tensor *t = by_io_output(by_pass_io(p), "features");
    assert_int_equal(by_dim(t, 1), b.seq);
    must(by_pass_read(p, t, out));
    by_pass_free(p);
}

/* A batch gives what its rows give alone, also where the positions are interpolated. */
static void test_rows_alone(void **state)
{
    (void)state;
    static const int sizes[][2] = {{SIDE, SIDE}, {SIDE + PATCH, SIDE}, {PATCH, 2 * PATCH}};
    static const char *const families[] = {"vit", "deit"};
    enum { MOST = (SIDE + PATCH) * SIDE, ROOM = (2 + 4 * 3) * 16 };
    static float pixels[BATCH * CHANNELS * MOST], all[BATCH * ROOM], one[ROOM];
    fill(pixels, BATCH * CHANNELS * MOST, 2);
    for (int f = 0; f < BY_COUNT(families); f++) {
        by_model *m = new_model(families[f], NULL, BY_TASK_FEATURES, BY_F32);
        for (int k = 0; k < BY_COUNT(sizes); k++) {
            const int h = sizes[k][0], w = sizes[k][1], length = 1 + f + (h / PATCH) * (w / PATCH);
            features(m, BATCH, h, w, pixels, all);
            for (int r = 0; r < BATCH; r++) {
                features(m, 1, h, w, pixels + r * CHANNELS * h * w, one);
                for (int i = 0; i < length * 16; i++)
                    assert_near((double)one[i], (double)all[r * length * 16 + i], 1e-5);
            }
        }
        by_model_free(m);
    }
}

/* The loss of two heads: the class token learns the targets, the distillation token those of the teacher. */
static void test_distillation(void **state)
{
    (void)state;
    static const int32_t own[BATCH] = {0, 4, 2}, taught[BATCH] = {1, 4, 3};
    static float pixels[PIXELS];
    float logits[2][BATCH * LABELS], loss;
    double want = 0;
    fill(pixels, PIXELS, 4);
    by_model *m = new_model("deit", "tiny-distilled", BY_TASK_CLASSIFY, BY_F32);
    assert_string_equal(by_model_class(m), "DeiTForImageClassificationWithTeacher");
    by_batch b = by_batch_of_pictures(m, BATCH, SIDE, SIDE, pixels);
    by_batch_put_ids(&b, "targets", BATCH, own);
    by_batch_put_ids(&b, "second_targets", BATCH, taught);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    if (!p)
        fail_msg("%s", by_error_message());
    must(by_pass_run(p, &b));
    must(by_pass_read(p, by_pass_loss(p), &loss));
    must(by_pass_read(p, by_io_output(by_pass_io(p), "cls_logits"), logits[0]));
    must(by_pass_read(p, by_io_output(by_pass_io(p), "distillation_logits"), logits[1]));
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < BATCH; r++) {
            double sum = 0;
            for (int i = 0; i < LABELS; i++)
                sum += exp((double)logits[k][r * LABELS + i]);
            want += (log(sum) - (double)logits[k][r * LABELS + (k ? taught : own)[r]]) / (2.0 * BATCH);
        }
    assert_near((double)loss, want, 1e-5);
    by_pass_free(p);
    by_model_free(m);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Each patch is the product of the weights and its pixels, by channel, row and column. */
static void test_patches(void **state)
{
    (void)state;
    enum { H = 4, W = 6, P = 2, C = 3, OUT = 2, N = (H / P) * (W / P) };
    static float pixels[2 * C * H * W], w[OUT * C * P * P], bias[OUT] = {0.5f, -2}, y[2 * N * OUT];
    fill(pixels, BY_COUNT(pixels), 5);
    fill(w, BY_COUNT(w), 6);
    by_params *params = by_params_new(device, BY_F32);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params});
    by_tensor *x = by_input(g, "pixels", BY_F32, 4, (int64_t[]){2, C, H, W});
    by_tensor *t = by_output(g, NULL, nn_patches(g, "cut", x, &(nn_patch_spec){.width = OUT, .patch = P}));
    must(by_params_freeze(params, false));
    must(by_params_set(params, by_params_find(params, "cut.weight"), BY_SLOT_VALUE, w));
    must(by_params_set(params, by_params_find(params, "cut.bias"), BY_SLOT_VALUE, bias));
    by_program *p = by_compile(g, NULL);
    assert_non_null(p);
    must(by_write(p, x, pixels, sizeof pixels));
    must(by_run(p));
    must(by_read_f32(p, t, y));
    for (int i = 0; i < 2 * N * OUT; i++) {
        const int o = i % OUT, n = i / OUT % N, b = i / OUT / N, top = n / (W / P) * P,
                  left = n % (W / P) * P;
        double want = (double)bias[o];
        for (int k = 0; k < C * P * P; k++) {
            const int c = k / (P * P), row = top + k / P % P, col = left + k % P;
            want += (double)w[o * C * P * P + k] * (double)pixels[((b * C + c) * H + row) * W + col];
        }
        assert_near((double)y[i], want, 1e-5);
    }
    by_program_free(p);
    by_params_free(params);
}

/* Whole examples are dropped, as many as the probability says; the others grow so that the mean stays. */
static void test_drop_path(void **state)
{
    (void)state;
    enum { B = 4000, T = 2, C = 3 };
    static float y[2][B * T * C];
    const float rate = 0.3f;
    by_params *params = by_params_new(device, BY_F32);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
    by_tensor *x = by_fill(g, BY_F32, 3, (int64_t[]){B, T, C}, 2);
    by_tensor *t = by_output(g, NULL, nn_drop_path(g, x, rate));
    must(by_params_freeze(params, false));
    by_program *p = by_compile(g, NULL);
    assert_non_null(p);
    for (int k = 0; k < 2; k++) {
        by_program_seed(p, 7, (uint64_t)k);
        must(by_run(p));
        must(by_read_f32(p, t, y[k]));
    }
    int dropped = 0, changed = 0;
    for (int b = 0; b < B; b++) {
        const float *row = y[0] + b * T * C;
        for (int i = 1; i < T * C; i++)
            assert_true(row[i] == row[0]);
        assert_true(row[0] == 0 || fabsf(row[0] - 2 / (1 - rate)) < 1e-5f);
        dropped += row[0] == 0;
        changed += row[0] != y[1][b * T * C];
    }
    assert_near(dropped, B * (double)rate, 0.1);  /* four standard deviations */
    assert_near(changed, B * 2 * 0.3 * 0.7, 0.1); /* another step draws others */
    by_program_free(p);
    by_params_free(params);
}

/* ---- the runner ------------------------------------------------------------------------------ */

static int set_up(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities), cmocka_unit_test(test_bad_batches),
        cmocka_unit_test(test_rows_alone),    cmocka_unit_test(test_distillation),
        cmocka_unit_test(test_patches),       cmocka_unit_test(test_drop_path),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
