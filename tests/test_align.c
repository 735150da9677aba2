/* test_align.c - the losses of alignment where no reference records them: picked positions, extreme values, a reference without its
 * adapter, a teacher in the same program, advantages, and batches that lack something. test_parity.c has the recorded values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>

#include "banyan/adapter.h"
#include "banyan/align.h"
#include "base/base.h"
#include "child.h"
#include "align/terms.h"

enum { ROWS = 4, SEQ = 7, VOCAB = 33 };

static by_device *device;
static int32_t tokens[ROWS * SEQ], targets[ROWS * SEQ];

static void expect(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

static by_model *make(const char *family, by_task task, int labels, uint64_t seed, bool training)
{
    by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 16, .context = 16, .vocab = VOCAB, .dropout = 0};
    by_model *m =
        by_model_new(device, family, &shape,
                     &(by_model_spec){.task = task, .labels = labels, .seed = seed, .training = training});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* Two pairs of answers: positions 3, 4 and 5 predict their tokens, in the last row 3 alone. */
static by_batch batch(void)
{
    for (int i = 0; i < ROWS * SEQ; i++) {
        const int t = i % SEQ;
        tokens[i] = (i * 5 + 3) % VOCAB;
        targets[i] = t >= 3 && t <= (i / SEQ == ROWS - 1 ? 3 : 5) ? (i * 11 + 2) % VOCAB : -100;
    }
    by_batch b = by_batch_of(ROWS, SEQ, tokens);
    by_batch_put_tokens(&b, "targets", targets);
    return b;
}

static by_pass *run(by_model *m, const by_batch *b, by_loss_fn loss, void *spec, bool gradients)
{
    by_pass *p = by_pass_new(
        m, b,
        &(by_pass_spec){.grads = gradients ? BY_GRAD_STORE : BY_GRAD_NONE, .loss = loss, .loss_user = spec});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, b));
    return p;
}

static float loss_of(by_pass *p)
{
    float v;
    expect(by_pass_read(p, by_pass_loss(p), &v));
    return v;
}

static void take(by_pass *p, const char *name, float *out)
{
    const by_tensor *t = by_io_output(by_pass_io(p), name);
    assert_non_null(t);
    expect(by_pass_read(p, t, out));
}

static double gradient_norm(const by_model *m)
{
    const by_params *p = by_model_trained(m);
    double sum = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        float *v = base_alloc_zero(1 << 16, sizeof *v);
        size_t n = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= (size_t)by_params_shape(p, i)[k];
        expect(by_params_get(p, i, BY_SLOT_GRAD, v));
        for (size_t k = 0; k < n; k++)
            sum += (double)v[k] * (double)v[k];
        base_free(v);
    }
    return sqrt(sum);
}

/* ---- picked positions ------------------------------------------------------------------------- */

/* Logits of the answers alone: the same loss, rewards and gradients as with those of all positions. */
static void test_picked(void **state)
{
    (void)state;
    by_model *m = make("gpt2", BY_TASK_LM, 0, 3, true);
    const float ref[ROWS] = {-9, -11, -10, -3};
    const int64_t rows = ROWS;
    by_dpo_spec spec = {.kind = BY_DPO_IPO, .beta = 0.3};
    by_batch b = batch();
    by_batch_put(&b, "ref_logps", BY_F32, 1, &rows, ref);
    by_pass *p = run(m, &b, by_dpo_loss, &spec, true);
    const double loss = (double)loss_of(p), norm = gradient_norm(m);
    float rewards[ROWS], again[ROWS];
    take(p, "rewards", rewards);
    by_pass_free(p);

    int32_t pick[ROWS * SEQ], own[ROWS * SEQ], sequences[ROWS * SEQ];
    int n = 0;
    for (int i = 0; i < ROWS * SEQ; i++)
        if (targets[i] >= 0) {
            pick[n] = i;
            own[n] = targets[i];
            sequences[n++] = i / SEQ;
        }
    by_batch_put_ids(&b, "pick", n, pick);
    by_batch_put_ids(&b, "targets", n, own);
    by_batch_put_ids(&b, "sequences", n, sequences);
    p = run(m, &b, by_dpo_loss, &spec, true);
    take(p, "rewards", again);
    assert_true(fabs((double)loss_of(p) - loss) < 1e-5 * fabs(loss));
    assert_true(fabs(gradient_norm(m) - norm) < 1e-4 * norm);
    for (int i = 0; i < ROWS; i++)
        assert_true(fabs((double)again[i] - (double)rewards[i]) < 1e-5);
    by_pass_free(p);
    by_model_free(m);
}

/* ---- extreme values --------------------------------------------------------------------------- */

typedef by_tensor *(*function)(by_graph *g, by_tensor *x);

/* Values and derivatives of a function at the given numbers, against double precision. */
static void check_function(function f, double (*want)(double), double (*slope)(double), const float *x, int n)
{
    const int64_t shape = n;
    by_params *params = by_params_new(device, BY_F32);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params, .training = true});
    by_tensor *t = by_param(g, "x", 1, &shape, (by_init){BY_INIT_ZERO, 0});
    by_tensor *y = by_output(g, "y", f(g, t)), *loss = by_sum(g, y, 0);
    expect(by_params_freeze(params, true));
    expect(by_params_set(params, 0, BY_SLOT_VALUE, x));
    by_program *p = by_compile(g, &(by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_run(p));
    float values[16], slopes[16];
    expect(by_read_f32(p, y, values));
    expect(by_params_get(params, 0, BY_SLOT_GRAD, slopes));
    for (int i = 0; i < n; i++) {
        const double v = want((double)x[i]), d = slope((double)x[i]);
        if (!(fabs((double)values[i] - v) <= 2e-6 * BY_MAX(1, fabs(v)) &&
              fabs((double)slopes[i] - d) <= 1e-5 * BY_MAX(1, fabs(d))))
            fail_msg("at %g: %g, not %g; slope %g, not %g", (double)x[i], (double)values[i], v,
                     (double)slopes[i], d);
    }
    by_program_free(p);
    by_params_free(params);
}

static double log_sigmoid(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}
static double log_sigmoid_slope(double x)
{
    return 1 / (1 + exp(x));
}
static double log1mexp(double x)
{
    return log(-expm1(x));
}
static double log1mexp_slope(double x)
{
    return -exp(x) / -expm1(x);
}

static void test_functions(void **state)
{
    (void)state;
    const float x[] = {-200, -88, -20, -3, -1e-3f, 0.5f, 20, 90, 300};
    check_function(train_log_sigmoid, log_sigmoid, log_sigmoid_slope, x, BY_COUNT(x));
    const float y[] = {-1e-6f, -1e-3f, -0.1f, -0.7f, -3, -30, -100};
    check_function(train_log1mexp, log1mexp, log1mexp_slope, y, BY_COUNT(y));
}

/* Ratios and divergences far from 1 stay finite, and a row without an answer changes nothing. */
static void test_policy_edges(void **state)
{
    (void)state;
    by_model *m = make("gpt2", BY_TASK_LM, 0, 5, true);
    by_batch b = batch();
    float old[ROWS * SEQ], advantages[ROWS] = {1, -1, 0.5f, 2};
    for (int i = 0; i < ROWS * SEQ; i++)
        old[i] = targets[i] >= 0 ? -30 + (float)(i % 60) : 1000; /* what is masked may hold anything */
    const int64_t rows = ROWS, all[] = {ROWS, SEQ};
    for (int t = 0; t < SEQ; t++)
        targets[SEQ + t] = -100; /* no answer */
    by_batch_put(&b, "advantages", BY_F32, 1, &rows, advantages);
    by_batch_put(&b, "old_logps", BY_F32, 2, all, old);
    static const by_policy_spec specs[] = {{.mean = BY_MEAN_SEQUENCE},
                                           {.mean = BY_MEAN_TOKEN, .by_sequence = true},
                                           {.mean = BY_MEAN_GIVEN, .divisor = 10},
                                           {.whole_sequence = true}};
    for (int i = 0; i < BY_COUNT(specs); i++) {
        by_policy_spec spec = specs[i];
        by_pass *p = run(m, &b, by_policy_loss, &spec, true);
        const float loss = loss_of(p);
        assert_true(isfinite(loss) && isfinite(gradient_norm(m)));
        advantages[1] = advantages[1] > 0 ? -1 : 1000;
        expect(by_pass_run(p, &b));
        if (!specs[i].whole_sequence) /* its ratio is 1 there, and counts */
            assert_true(loss_of(p) == loss);
        by_pass_free(p);
    }
    by_model_free(m);
}

/* ---- several models in one program ------------------------------------------------------------ */

/* The policy with an adapter, and the same model without it as the reference. */
static by_tensor *against_itself(void *user, by_graph *g, by_model_io *io)
{
    by_model_io own = {0};
    by_io_feed(&own, "tokens", by_io_input(io, "tokens"));
    by_model_build_frozen(user, g, &own);
    by_io_return(io, "reference", by_output(g, NULL, by_io_output(&own, "logits")));
    by_tensor *kl = by_kl_divergence(g, by_io_output(io, "logits"), by_io_output(&own, "logits"), 1);
    return by_mean(g, by_reshape(g, kl, 1, (int64_t[]){-1}), 0);
}

static void stir(by_adapter *a)
{
    by_params *p = by_adapter_params(a);
    for (int i = 0; i < by_params_count(p); i++) {
        float *v = base_alloc_zero(1 << 14, sizeof *v);
        base_rng_fill_normal(v, 1 << 14, 5, (uint64_t)i, 0, 0.3f);
        expect(by_params_set(p, i, BY_SLOT_VALUE, v));
        base_free(v);
    }
}

static void test_reference_without_adapter(void **state)
{
    (void)state;
    static float base[ROWS * SEQ * VOCAB], seen[ROWS * SEQ * VOCAB];
    by_model *m = make("gpt2", BY_TASK_LM, 0, 7, false);
    by_batch b = by_batch_of(ROWS, SEQ, tokens);
    batch();
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    expect(by_pass_run(p, &b));
    take(p, "logits", base);
    by_pass_free(p);
    by_adapter *a = by_adapter_new(m, &(by_adapter_spec){.rank = 4, .targets = "all-linear"}, true);
    assert_non_null(a);
    stir(a);
    p = run(m, &b, against_itself, m, true);
    take(p, "reference", seen);
    for (int i = 0; i < ROWS * SEQ * VOCAB; i++)
        assert_true(fabs((double)base[i] - (double)seen[i]) < 1e-5);
    assert_true(loss_of(p) > 1e-3f && gradient_norm(m) > 1e-3);
    by_pass_free(p);
    by_model_free(m);
}

/* A teacher that is the student itself leaves nothing to learn; another one does, and keeps its values. */
static void test_teacher(void **state)
{
    (void)state;
    by_model *student = make("distilbert", BY_TASK_MLM, 0, 3, true),
             *same = make("distilbert", BY_TASK_MLM, 0, 3, false),
             *other = make("bert", BY_TASK_MLM, 0, 4, false);
    by_batch b = by_batch_of(ROWS, SEQ, tokens);
    batch();
    by_distill_spec spec = {.teacher = same, .student = student, .soft = 5, .cosine = 1, .hidden = 1};
    by_pass *p = run(student, &b, by_distill_loss, &spec, true);
    assert_true(fabs((double)loss_of(p)) < 1e-5 && gradient_norm(student) < 1e-4);
    by_pass_free(p);
    spec.teacher = other;
    p = run(student, &b, by_distill_loss, &spec, true);
    float soft;
    take(p, "soft_loss", &soft);
    assert_true(soft > 0 && loss_of(p) > 5 * soft && gradient_norm(student) > 1e-2);
    by_pass_free(p);
    by_model_free(student);
    by_model_free(same);
    by_model_free(other);
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static void test_advantages(void **state)
{
    (void)state;
    const float rewards[] = {1, 2, 3, 6, 5, 5, 5, 5};
    float out[8];
    by_group_advantages(rewards, 8, 4, BY_SCALE_NONE, out);
    assert_true(out[0] == -2 && out[3] == 3 && out[4] == 0);
    by_group_advantages(rewards, 8, 4, BY_SCALE_GROUP, out);
    assert_true(fabs((double)out[3] - 3 / (sqrt(14.0 / 3) + 1e-4)) < 1e-6 && out[5] == 0);
    by_leave_one_out(rewards, 8, 4, false, out);
    assert_true(fabs((double)out[0] - (1 - 11.0 / 3)) < 1e-6 && out[7] == 0);
    by_group_advantages(rewards, 1, 1, BY_SCALE_GROUP, out);
    assert_true(out[0] == 0);
    by_leave_one_out(rewards, 1, 1, false, out);
    assert_true(out[0] == 0);
    const float a[] = {-1, -2}, r[] = {0, 0};
    assert_true(by_kto_kl(a, r, 2) == 0 && by_kto_kl(r, a, 2) == 1.5f);
}

/* With gamma and lambda 1 and no penalty, an advantage is the score minus the value. */
static void test_gae(void **state)
{
    (void)state;
    const int32_t last[] = {2, 0};
    const float zeros[6] = {0}, values[] = {1, 2, 3, 4, 0, 0}, scores[] = {10, 20};
    float advantages[6], raw[6], returns[6];
    const by_rollout r = {.rows = 2,
                          .cols = 3,
                          .last = last,
                          .logps = zeros,
                          .ref_logps = zeros,
                          .values = values,
                          .scores = scores};
    const by_gae out = {.advantages = advantages, .advantages_raw = raw, .returns = returns};
    expect(by_gae_compute(&r, &(by_gae_spec){.lambda = 1}, &out));
    for (int t = 0; t < 3; t++)
        assert_true(fabs((double)raw[t] - (10 - (double)values[t])) < 1e-5);
    assert_true(fabs((double)raw[3] - 16) < 1e-5 && advantages[4] == 0);
    const int32_t wrong[] = {3, 0};
    by_rollout bad = r;
    bad.last = wrong;
    assert_int_equal(by_gae_compute(&bad, &(by_gae_spec){0}, &out), BY_ERR_ARGUMENT);
}

/* ---- noise on embeddings ---------------------------------------------------------------------- */

enum { EMBEDDED = ROWS * SEQ * 16 };

/* What the first layer reads. */
static void embed(by_model *m, by_grad_mode grads, float *out)
{
    by_batch b = batch();
    by_pass *p =
        by_pass_new(m, &b, &(by_pass_spec){.grads = grads, .hidden = true, .loss = by_likelihood_loss});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, &b));
    expect(by_pass_read(p, by_io_output_at(by_pass_io(p), "hidden", 0), out));
    by_pass_free(p);
}

/* Uniform within alpha / sqrt(T C), in passes with gradients alone. */
static void test_noise(void **state)
{
    (void)state;
    by_model *m = make("gpt2", BY_TASK_LM, 0, 3, true);
    static float plain[EMBEDDED], noisy[EMBEDDED], read[EMBEDDED];
    const double bound = 5 / sqrt(SEQ * 16.0);
    double most = 0, squares = 0;
    embed(m, BY_GRAD_STORE, plain);
    by_model_set_noise(m, 5);
    embed(m, BY_GRAD_STORE, noisy);
    embed(m, BY_GRAD_NONE, read);
    for (int i = 0; i < EMBEDDED; i++) {
        const double d = (double)noisy[i] - (double)plain[i];
        most = BY_MAX(most, fabs(d));
        squares += d * d / EMBEDDED;
        assert_true(read[i] == plain[i]);
    }
    assert_true(most <= bound * 1.0001 && most > 0.95 * bound);
    assert_true(fabs(squares / (bound * bound / 3) - 1) < 0.2); /* the variance of a uniform variable */
    by_model_free(m);
}

/* ---- what is missing -------------------------------------------------------------------------- */

static void refuse(by_model *m, const by_batch *b, by_loss_fn loss, void *spec, const char *why)
{
    by_pass *p = by_pass_new(m, b, &(by_pass_spec){.grads = BY_GRAD_STORE, .loss = loss, .loss_user = spec});
    assert_null(p);
    assert_contains(by_error_message(), why);
}

static void test_missing(void **state)
{
    (void)state;
    by_model *m = make("gpt2", BY_TASK_LM, 0, 3, true), *judge = make("gpt2", BY_TASK_CLASSIFY, 2, 3, true);
    by_dpo_spec dpo = {0};
    by_kto_spec kto = {0};
    by_cpo_spec orpo = {.kind = BY_CPO_ORPO};
    by_policy_spec policy = {.mean = BY_MEAN_GIVEN};
    by_reward_spec reward = {0};
    by_distill_spec nothing = {0};
    by_batch b = batch(), odd = by_batch_of(3, SEQ, tokens), bare = by_batch_of(ROWS, SEQ, tokens);
    const float advantages[ROWS] = {0};
    refuse(m, &b, by_dpo_loss, &dpo, "ref_logps");
    refuse(m, &b, by_kto_loss, &kto, "ref_logps");
    refuse(m, &b, by_cpo_loss, &orpo, "all_targets");
    refuse(m, &b, by_policy_loss, &policy, "advantages");
    by_batch_put(&b, "advantages", BY_F32, 1, (int64_t[]){ROWS}, advantages);
    refuse(m, &b, by_policy_loss, &policy, "needs that number");
    refuse(m, &bare, by_likelihood_loss, NULL, "targets");
    refuse(m, &bare, by_distill_loss, &nothing, "no term");
    by_batch_put_tokens(&odd, "targets", targets);
    refuse(m, &odd, by_dpo_loss, &dpo, "pairs");
    refuse(judge, &bare, by_reward_loss, &reward, "one label");
    by_model_free(m);
    by_model_free(judge);
}

static int open_all(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device ? 0 : 1;
}

static int close_all(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picked),       cmocka_unit_test(test_functions),
        cmocka_unit_test(test_policy_edges), cmocka_unit_test(test_reference_without_adapter),
        cmocka_unit_test(test_teacher),      cmocka_unit_test(test_advantages),
        cmocka_unit_test(test_gae),          cmocka_unit_test(test_missing),
        cmocka_unit_test(test_noise),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
