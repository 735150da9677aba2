/* test_loop.c - the training loop with a client of the test's own: two students of different widths learn from one teacher, with a loss
 * that the test builds. The loop has never heard of distillation; checkpoints, logs, evaluation, cancelling and resuming are its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/banyan.h"
#include "folder.h"
#include "train/loop.h"

enum { V = 17, T = 12, B = 4, STUDENTS = 2, STEPS = 60, EVAL_EVERY = 20 };
static const double SHARE = 0.3; /* of the cross-entropy with the targets; the rest is the teacher's */

static by_device *device;

typedef struct distillation {
    by_model *teacher, *students[STUDENTS];
    by_trainer *trainers[STUDENTS];
    by_pass *pass; /* the teacher's */
    train_loop loop;
    int32_t tokens[B * T], targets[B * T];
    float logits[B * T * V], gap[B * T * V], entropy;
    int polls, stop_at; /* cancel at this poll; 0: never */
    double first_loss;  /* expected of the first step, by the host */
} distillation;

static by_model *make(int width, uint64_t seed, bool training)
{
    by_model_shape shape = {.layers = 1, .heads = 2, .width = width, .context = T, .vocab = V};
    by_model *m = by_model_new(device, "gpt2", &shape, &(by_model_spec){.training = training, .seed = seed});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* ---- the loss ---------------------------------------------------------------------------------- */

/* SHARE * cross-entropy + (1 - SHARE) * KL(teacher || student). For logits z, targets y and the teacher's probabilities p,
 * KL = CE(z, y) + mean over rows of sum((onehot(y) - p) z) - H(p): "gap" is onehot(y) - p, "entropy" the mean of H(p). */
static by_tensor *loss(void *user, by_graph *g, by_model_io *io)
{
    (void)user;
    by_tensor *logits = by_io_output(io, "logits");
    by_tensor *ce = by_cross_entropy(g, logits, by_io_input(io, "targets"), &(by_loss_spec){0});
    by_tensor *flat = by_reshape(g, by_mul(g, logits, by_io_input(io, "gap")), 1, (int64_t[]){-1});
    by_tensor *soft = by_sub(g, by_scale(g, by_sum(g, flat, 0), 1.0 / (B * T)), by_io_input(io, "entropy"));
    return by_add(g, ce, by_scale(g, soft, 1 - SHARE));
}

/* x -> 3 x + 1 mod V; each row and step starts elsewhere. */
static void lesson(distillation *d, int64_t step)
{
    for (int r = 0; r < B; r++)
        for (int t = 0, x = (int)((step + 5 * r) % V); t < T; t++) {
            d->tokens[r * T + t] = x;
            d->targets[r * T + t] = x = (3 * x + 1) % V;
        }
}

static double log_sum(const float *z)
{
    double sum = 0;
    for (int v = 0; v < V; v++)
        sum += exp((double)z[v]);
    return log(sum);
}

/* The teacher's soft targets as inputs of the loss. */
static by_status teach(distillation *d, by_batch *b)
{
    const by_batch plain = by_batch_of(B, T, d->tokens);
    double entropy = 0;
    BY_TRY(by_pass_run(d->pass, &plain));
    BY_TRY(by_pass_read(d->pass, by_io_output(by_pass_io(d->pass), "logits"), d->logits));
    for (int r = 0; r < B * T; r++) {
        const double lse = log_sum(d->logits + r * V);
        for (int v = 0; v < V; v++) {
            const double log_p = (double)d->logits[r * V + v] - lse;
            entropy -= exp(log_p) * log_p / (B * T);
            d->gap[r * V + v] = (float)((v == d->targets[r]) - exp(log_p));
        }
    }
    d->entropy = (float)entropy;
    *b = by_batch_of(B, T, d->tokens);
    by_batch_put_tokens(b, "targets", d->targets);
    by_batch_put(b, "gap", BY_F32, 3, (int64_t[]){B, T, V}, d->gap);
    by_batch_put(b, "entropy", BY_F32, 0, NULL, &d->entropy);
    return BY_OK;
}

/* What the loss of a student should be, from its logits. */
static double expected(distillation *d, int k)
{
    by_batch b = by_batch_of(B, T, d->tokens);
    by_pass *p = by_pass_new(d->students[k], &b, &(by_pass_spec){.grads = BY_GRAD_NONE});
    static float z[B * T * V];
    double sum = 0;
    assert_non_null(p);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), z), BY_OK);
    for (int r = 0; r < B * T; r++) {
        const double lse = log_sum(z + r * V), teacher = log_sum(d->logits + r * V);
        sum += SHARE * (lse - (double)z[r * V + d->targets[r]]);
        for (int v = 0; v < V; v++) {
            const double log_p = (double)d->logits[r * V + v] - teacher, log_q = (double)z[r * V + v] - lse;
            sum += (1 - SHARE) * exp(log_p) * (log_p - log_q);
        }
    }
    by_pass_free(p);
    return sum / (B * T);
}

/* ---- the client -------------------------------------------------------------------------------- */

static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    distillation *d = self;
    by_batch b;
    lesson(d, step);
    BY_TRY(teach(d, &b));
    for (int k = 0; k < STUDENTS && step == 0; k++)
        d->first_loss += expected(d, k) / STUDENTS;
    for (int k = 0; k < STUDENTS; k++) {
        BY_TRY(by_trainer_backward(d->trainers[k], &b, true, NULL));
        BY_TRY(train_update(d->trainers[k], rate));
        work->tokens += B * T;
    }
    return BY_OK;
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    distillation *d = self;
    double loss[BY_TRAINER_KEPT], norm[BY_TRAINER_KEPT];
    for (int k = 0; k < STUDENTS; k++) {
        BY_TRY(by_trainer_read(d->trainers[k], count, loss, norm));
        for (int i = 0; i < count; i++) {
            losses[i] = (k ? losses[i] : 0) + loss[i] / STUDENTS;
            norms[i] = (k ? norms[i] : 0) + norm[i] / STUDENTS;
        }
    }
    return BY_OK;
}

/* Of the first student, by the model's own loss. */
static by_status evaluate(void *self, by_report *r, double *score)
{
    (void)score;
    distillation *d = self;
    double sum = 0;
    int64_t count = 0;
    lesson(d, 1000);
    by_batch b = by_batch_of(B, T, d->tokens);
    by_batch_put_tokens(&b, "targets", d->targets);
    BY_TRY(by_trainer_evaluate(d->trainers[0], &b, &sum, &count));
    r->eval_loss = sum / (double)count;
    return BY_OK;
}

static const char *place(const char *dir, int k)
{
    static char path[600];
    snprintf(path, sizeof path, "%s%s", dir, k ? "/second" : "");
    return path;
}

static by_status save(void *self, const char *dir)
{
    distillation *d = self;
    for (int k = 0; k < STUDENTS; k++) {
        BY_TRY(base_dir_make(place(dir, k)));
        BY_TRY(train_model_save(d->students[k], NULL, place(dir, k)));
    }
    return BY_OK;
}

static by_status load(void *self, const char *dir)
{
    distillation *d = self;
    for (int k = 0; k < STUDENTS; k++) {
        d->students[k] = by_model_open(device, place(dir, k), &(by_model_spec){.training = true});
        BY_TRY(d->students[k] ? train_model_load(d->students[k], place(dir, k)) : base_error_status());
    }
    return BY_OK;
}

static by_status record(void *self, train_record *out)
{
    const distillation *d = self;
    train_record_number(out, "steps", STEPS, TRAIN_SAME);
    train_record_number(out, "first_steps", (double)d->loop.first_steps, TRAIN_FREE);
    return BY_OK;
}

static void title(void *self, base_buf *out)
{
    (void)self;
    base_buf_puts(out, "distillation");
}

static const train_client client = {step, read_losses, evaluate, save, load, record, title, NULL};

static bool cancelled(void *user)
{
    distillation *d = user;
    return d->stop_at && ++d->polls == d->stop_at;
}

/* ---- runs -------------------------------------------------------------------------------------- */

static by_status set_up(distillation *d, const char *out, int ahead)
{
    const by_batch like = by_batch_of(B, T, d->tokens);
    d->teacher = make(32, 11, false);
    d->pass = by_pass_new(d->teacher, &like, &(by_pass_spec){.grads = BY_GRAD_NONE});
    BY_TRY(train_loop_open(&d->loop, &client, d, &(train_folder_use){.out = out}));
    BY_TRY(d->loop.last ? train_loop_load(&d->loop) : BY_OK);
    BY_TRY(train_loop_plan(&d->loop, STEPS));
    BY_TRY(train_loop_check(&d->loop));
    for (int k = 0; k < STUDENTS; k++) {
        if (!d->loop.last)
            d->students[k] = make(16 - 8 * k, 3 + (uint64_t)k, true);
        d->trainers[k] = by_trainer_new(d->students[k], &(by_trainer_spec){.loss = loss});
        if (!d->trainers[k])
            return base_error_status();
        by_trainer_set_steps(d->trainers[k], d->loop.state.step);
    }
    return train_loop_begin(
        &d->loop, &(train_loop_spec){.steps = STEPS,
                                     .eval_every = EVAL_EVERY,
                                     .log_every = 1,
                                     .save_every = EVAL_EVERY,
                                     .schedule = {.kind = BY_SCHEDULE_COSINE, .rate = 1e-2, .steps = STEPS},
                                     .keep = 1,
                                     .ahead = ahead,
                                     .evaluates = true,
                                     .device = device,
                                     .loss_unit = "nats",
                                     .cancelled = cancelled,
                                     .user = d});
}

static void tear_down(distillation *d, by_status s)
{
    train_loop_close(&d->loop, s);
    by_pass_free(d->pass);
    by_model_free(d->teacher);
    for (int k = 0; k < STUDENTS; k++) {
        by_trainer_free(d->trainers[k]);
        by_model_free(d->students[k]);
    }
}

static by_status distil(distillation *d, const char *out, int ahead, int stop_at)
{
    *d = (distillation){.stop_at = stop_at};
    by_status s = set_up(d, out, ahead);
    return s == BY_OK ? train_loop_run(&d->loop) : s;
}

/* The losses of metrics.jsonl, one for each step. */
static void read_log(const char *out, double *losses)
{
    char path[400], line[1000];
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i < STEPS; i++) {
        assert_non_null(fgets(line, sizeof line, f));
        assert_int_equal(sscanf(line, "{\"step\": %*d, \"loss\": %lf", &losses[i]), 1);
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
}

static void same_values(const by_model *a, const by_model *b)
{
    static float x[4096], y[4096];
    const by_params *p = by_model_params(a), *q = by_model_params(b);
    assert_int_equal(by_params_count(p), by_params_count(q));
    for (int i = 0; i < by_params_count(p); i++)
        for (int slot = 0; slot < 2; slot++) {
            const by_slot which = slot ? BY_SLOT_MOMENT2 : BY_SLOT_VALUE;
            assert_int_equal(by_params_get(p, i, which, x), BY_OK);
            assert_int_equal(by_params_get(q, i, which, y), BY_OK);
            int64_t n = 1;
            for (int k = 0; k < by_params_rank(p, i); k++)
                n *= by_params_shape(p, i)[k];
            assert_memory_equal(x, y, (size_t)n * sizeof *x);
        }
}

static void test_distillation(void **state)
{
    (void)state;
    const char *plain = in_root("plain"), *broken = in_root("broken");
    static distillation whole, part;
    double losses[2][STEPS];
    if (distil(&whole, plain, 0, 0) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(distil(&part, broken, 7, 34),
                     BY_ERR_CANCELLED); /* after 33 steps, read back in sevens */
    assert_int_equal(part.loop.state.step, 33);
    tear_down(&part, BY_ERR_CANCELLED);
    if (distil(&part, broken, 5, 0) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_non_null(part.loop.last);
    for (int k = 0; k < STUDENTS; k++)
        same_values(whole.students[k], part.students[k]);
    assert_int_equal(part.loop.state.best_step, whole.loop.state.best_step);
    assert_memory_equal(&part.loop.state.best_eval, &whole.loop.state.best_eval, sizeof(double));
    read_log(plain, losses[0]);
    read_log(broken, losses[1]);
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_true(fabs(losses[0][0] - whole.first_loss) < 1e-5 * whole.first_loss);
    assert_true(losses[0][STEPS - 1] < 0.8 * losses[0][0]);
    tear_down(&whole, BY_OK);
    tear_down(&part, BY_OK);
}

/* A record that has no room left says so and writes nothing beyond its end. */
static void test_full_record(void **state)
{
    (void)state;
    train_record r = {0};
    for (int i = 0; i <= TRAIN_FACTS_MAX; i++)
        train_record_number(&r, "value", i, TRAIN_SAME);
    assert_int_equal(r.count, TRAIN_FACTS_MAX);
    assert_int_equal(train_record_write(in_root("."), &r), BY_ERR_UNSUPPORTED);
    assert_non_null(strstr(by_error_message(), "run.json: more than"));
}

/* Damage to the second model of a checkpoint is found, as is a record that asks for something else. */
static void test_checkpoint_of_two(void **state)
{
    (void)state;
    const char *out = in_root("damaged");
    static distillation d;
    assert_int_equal(distil(&d, out, 0, 0), BY_OK);
    tear_down(&d, BY_OK);
    FILE *f = fopen(in_root("damaged/last/second/model.safetensors"), "r+b");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    fputc(77, f);
    fclose(f);
    d = (distillation){0};
    assert_int_equal(set_up(&d, out, 0), BY_ERR_FORMAT);
    assert_non_null(strstr(by_error_message(), "second/model.safetensors"));
    tear_down(&d, BY_ERR_FORMAT);
}

static int open_root(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return make_root("loop") && device ? 0 : -1;
}

static int close_root(void **state)
{
    (void)state;
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distillation),
        cmocka_unit_test(test_full_record),
        cmocka_unit_test(test_checkpoint_of_two),
    };
    return cmocka_run_group_tests_name("loop", tests, open_root, close_root);
}
