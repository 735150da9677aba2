/* test_align_run.c - runs of alignment through the library: names and defaults, NULL, and that the first step of each method of
 * preferences measures what the test computes by itself from both models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/align_run.h"
#include "banyan/banyan.h"
#include "folder.h"
#include "text/tokenizer.h"

static by_device *device;
static by_tokenizer *bytes;
enum { PAIRS = 4, CONTEXT = 64 };
static const char *const prompts[PAIRS] = {"one ", "what is two? ", "3 ", "say four "};
static const char *const chosen[PAIRS] = {"yes", "two", "three, I think", "4"};
static const char *const rejected[PAIRS] = {"no no no", "go away", "3", "five"};

static void make_model(const char *name, uint64_t seed)
{
    const by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 16, .inner = 32, .context = CONTEXT, .vocab = 257};
    by_model *m = by_model_new(device, "gpt2", &shape, &(by_model_spec){.task = BY_TASK_LM, .seed = seed});
    assert_non_null(m);
    by_model_set_eos(m, by_tokenizer_eos(bytes));
    assert_int_equal(by_model_save(m, in_root(name), BY_F32), BY_OK);
    assert_int_equal(by_tokenizer_save(bytes, in_root(name)), BY_OK);
    by_model_free(m);
}

static int open_all(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    bytes = tok_new_bytes();
    if (!device || !bytes || !make_root("align-run"))
        return -1;
    make_model("policy", 1);
    make_model("reference", 2);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    by_tokenizer_free(bytes);
    by_device_free(device);
    return base_dir_remove(root) == BY_OK ? 0 : -1;
}

/* ---- what the test computes by itself ------------------------------------------------------------- */

/* log p of an answer and its end token after a prompt, from the logits. */
static double logp(by_model *m, const char *prompt, const char *answer)
{
    int32_t tokens[CONTEXT];
    const int from = (int)strlen(prompt), n = from + (int)strlen(answer) + 1;
    double sum = 0;
    for (int t = 0; t < n; t++)
        tokens[t] = t < from    ? (unsigned char)prompt[t]
                    : t < n - 1 ? (unsigned char)answer[t - from]
                                : by_tokenizer_eos(bytes);
    const by_batch b = by_batch_of(1, n, tokens);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_NONE});
    assert_non_null(p);
    float *z = malloc(sizeof *z * (size_t)n * 257);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), z), BY_OK);
    for (int t = from - 1; t < n - 1; t++) {
        double all = 0;
        for (int v = 0; v < 257; v++)
            all += exp((double)z[t * 257 + v]);
        sum += (double)z[t * 257 + tokens[t + 1]] - log(all);
    }
    by_pass_free(p);
    free(z);
    return sum;
}

/* Of chosen and rejected answers; and of mismatched ones: the rejected answer of the example before. */
typedef struct answers {
    double good[PAIRS], bad[PAIRS], other[PAIRS];
} answers;

static answers answers_of(const char *model)
{
    answers a;
    by_model *m = by_model_open(device, in_root(model), &(by_model_spec){0});
    assert_non_null(m);
    for (int i = 0; i < PAIRS; i++) {
        a.good[i] = logp(m, prompts[i], chosen[i]);
        a.bad[i] = logp(m, prompts[i], rejected[i]);
        a.other[i] = logp(m, prompts[i], rejected[(i + PAIRS - 1) % PAIRS]);
    }
    by_model_free(m);
    return a;
}

/* ---- one step of a run ------------------------------------------------------------------------------ */

typedef struct step_seen {
    double loss;
    by_metric list[BY_METRICS_MAX];
    int count;
} step_seen;

static void take_step(void *user, const by_report *r)
{
    step_seen *s = user;
    if (r->note || r->warning)
        return;
    s->loss = r->loss;
    s->count = r->n_measures;
    for (int i = 0; i < r->n_measures; i++)
        s->list[i] = r->measures[i];
}

static double seen_of(const step_seen *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->list[i].name, name) == 0)
            return s->list[i].value;
    fail_msg("the step measures no \"%s\"", name);
    return NAN;
}

static const char *write_pairs(void)
{
    base_buf text = {0};
    for (int i = 0; i < PAIRS; i++)
        base_buf_printf(&text, "{\"prompt\": \"%s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n", prompts[i],
                        chosen[i], rejected[i]);
    const char *path = write_text("pairs.jsonl", text.data);
    base_buf_free(&text);
    return path;
}

static step_seen first_step(by_align_spec spec)
{
    step_seen seen = {0};
    by_align_result result;
    spec.model = in_root("policy");
    spec.reference = in_root("reference");
    spec.data = write_pairs();
    spec.out = in_root("run");
    spec.overwrite = true;
    spec.batch = 8;
    spec.steps = 1;
    spec.report = take_step;
    spec.user = &seen;
    if (by_align_run(device, &spec, &result) != BY_OK)
        fail_msg("%s: %s", by_align_name(spec.method), by_error_message());
    assert_int_equal(result.steps, 1);
    assert_true(fabs(result.loss - seen.loss) < 1e-12);
    return seen;
}

static void expect_near(const char *what, double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-4 * fmax(1, fabs(expected))))
        fail_msg("%s is %.9g instead of %.9g", what, value, expected);
}

static double log_sigmoid(double x)
{
    return -log1p(exp(-x));
}

static void test_dpo(void **state)
{
    (void)state;
    const answers p = answers_of("policy"), r = answers_of("reference");
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        by_align_spec spec = by_align_defaults(BY_ALIGN_DPO);
        spec.no_cache = no_cache;
        const step_seen s = first_step(spec);
        double loss = 0, good = 0, bad = 0, right = 0, logps = 0;
        for (int i = 0; i < PAIRS; i++) {
            const double w = 0.1 * (p.good[i] - r.good[i]), l = 0.1 * (p.bad[i] - r.bad[i]);
            loss -= log_sigmoid(w - l) / PAIRS;
            good += w / PAIRS;
            bad += l / PAIRS;
            right += (w > l) / (double)PAIRS;
            logps += p.bad[i] / PAIRS;
        }
        expect_near("the loss", s.loss, loss);
        expect_near("rewards/chosen", seen_of(&s, "rewards/chosen"), good);
        expect_near("rewards/rejected", seen_of(&s, "rewards/rejected"), bad);
        expect_near("rewards/margins", seen_of(&s, "rewards/margins"), good - bad);
        expect_near("rewards/accuracies", seen_of(&s, "rewards/accuracies"), right);
        expect_near("logps/rejected", seen_of(&s, "logps/rejected"), logps);
    }
}

static void test_kto(void **state)
{
    (void)state;
    const answers p = answers_of("policy"), r = answers_of("reference");
    for (int no_cache = 0; no_cache < 2; no_cache++) {
        by_align_spec spec = by_align_defaults(BY_ALIGN_KTO);
        spec.no_cache = no_cache;
        spec.undesirable_weight = 0.5;
        const step_seen s = first_step(spec);
        double kl = 0, loss = 0;
        for (int i = 0; i < PAIRS; i++) /* both answers of a prompt have the same mismatched one */
            kl += (p.other[i] - r.other[i]) / PAIRS;
        kl = fmax(kl, 0);
        for (int i = 0; i < PAIRS; i++) {
            const double w = 0.1 * (p.good[i] - r.good[i] - kl), l = 0.1 * (p.bad[i] - r.bad[i] - kl);
            loss += (1 - exp(log_sigmoid(w)) + 0.5 * (1 - exp(log_sigmoid(-l)))) / (2 * PAIRS);
        }
        expect_near("kl", seen_of(&s, "kl"), kl);
        expect_near("the loss", s.loss, loss);
    }
}

static void test_orpo(void **state)
{
    (void)state;
    const answers p = answers_of("policy");
    by_model *m = by_model_open(device, in_root("policy"), &(by_model_spec){0});
    const step_seen s = first_step(by_align_defaults(BY_ALIGN_ORPO));
    double odds = 0, loss = 0, nll = 0, tokens = 0;
    for (int i = 0; i < PAIRS; i++) {
        const double w = p.good[i] / (double)(strlen(chosen[i]) + 1),
                     l = p.bad[i] / (double)(strlen(rejected[i]) + 1);
        const double d = w - l - (log1p(-exp(w)) - log1p(-exp(l)));
        char first[2] = {prompts[i][0], 0}, rest[64];
        snprintf(rest, sizeof rest, "%s%s", prompts[i] + 1, chosen[i]);
        nll -= logp(m, first, rest); /* of the prompt, too */
        tokens += (double)strlen(rest) + 1;
        odds += d / PAIRS;
        loss -= 0.1 * log_sigmoid(d) / PAIRS;
    }
    expect_near("log_odds_chosen", seen_of(&s, "log_odds_chosen"), odds);
    expect_near("nll_loss", seen_of(&s, "nll_loss"), nll / tokens);
    expect_near("the loss", s.loss, loss + nll / tokens);
    by_model_free(m);
}

static void test_simpo(void **state)
{
    (void)state;
    const answers p = answers_of("policy");
    const step_seen s = first_step(by_align_defaults(BY_ALIGN_SIMPO));
    double loss = 0;
    for (int i = 0; i < PAIRS; i++) {
        const double w = p.good[i] / (double)(strlen(chosen[i]) + 1),
                     l = p.bad[i] / (double)(strlen(rejected[i]) + 1);
        loss -= log_sigmoid(2 * (w - l) - 1) / PAIRS;
    }
    expect_near("the loss", s.loss, loss);
}

/* Supervised tuning: the mean over all learned tokens, however a step is divided. */
static void test_sft(void **state)
{
    (void)state;
    const answers p = answers_of("policy");
    base_buf text = {0};
    double sum = 0, tokens = 0;
    for (int i = 0; i < PAIRS; i++) {
        base_buf_printf(&text, "{\"prompt\": \"%s\", \"completion\": \"%s\"}\n", prompts[i], chosen[i]);
        sum -= p.good[i];
        tokens += (double)strlen(chosen[i]) + 1;
    }
    const char *path = write_text("answers.jsonl", text.data);
    base_buf_free(&text);
    for (int batch = 1; batch <= PAIRS; batch++) {
        by_align_result result;
        by_align_spec spec = by_align_defaults(BY_ALIGN_SFT);
        spec.model = in_root("policy");
        spec.data = spec.eval_data = path;
        spec.out = in_root("run");
        spec.overwrite = true;
        spec.dropout = 0;
        spec.batch = batch;
        spec.accumulate = (PAIRS + batch - 1) / batch;
        spec.steps = 1;
        spec.schedule.rate = 0; /* nothing is learnt */
        spec.pack = batch == PAIRS;
        if (by_align_run(device, &spec, &result) != BY_OK)
            fail_msg("%s", by_error_message());
        expect_near("the loss", result.loss, sum / tokens);
        expect_near("the held-out loss", result.eval_loss, sum / tokens);
        assert_string_equal(result.metrics[0].name, "perplexity");
        expect_near("the perplexity", result.metrics[0].value, exp(sum / tokens));
    }
}

/* ---- what is wrong ---------------------------------------------------------------------------------- */

static void test_names(void **state)
{
    (void)state;
    by_align_method method;
    for (int i = 0; i < BY_ALIGN_METHODS; i++) {
        assert_true(by_align_find(by_align_name((by_align_method)i), &method));
        assert_true(method == (by_align_method)i && by_align_loss_unit(method));
        const by_align_spec s = by_align_defaults(method);
        assert_true(s.method == method && s.batch > 0);
    }
    assert_false(by_align_find("rlhf", &method));
    assert_false(by_align_find(NULL, &method));
    assert_false(by_align_find("dpo", NULL));
    assert_string_equal(by_align_name(BY_ALIGN_METHODS), "?");
}

static void expect_refused(const by_align_spec *spec, const char *message)
{
    by_align_result result;
    assert_int_not_equal(by_align_run(device, spec, &result), BY_OK);
    if (!strstr(by_error_message(), message))
        fail_msg("\"%s\" instead of \"%s\"", by_error_message(), message);
    assert_false(base_dir_exists(in_root("none")));
}

static void test_errors(void **state)
{
    (void)state;
    by_align_result result;
    by_align_spec spec = by_align_defaults(BY_ALIGN_DPO);
    assert_int_equal(by_align_run(NULL, &spec, &result), BY_ERR_ARGUMENT);
    assert_int_equal(by_align_run(device, NULL, &result), BY_ERR_ARGUMENT);
    assert_int_equal(by_align_run(device, &spec, NULL), BY_ERR_ARGUMENT);
    expect_refused(&spec, "model directory");
    spec.model = in_root("policy");
    expect_refused(&spec, "data");
    spec.data = write_pairs();
    expect_refused(&spec, "output directory");
    spec.out = in_root("none");
    spec.method = BY_ALIGN_METHODS;
    expect_refused(&spec, "no alignment method");
    spec.method = BY_ALIGN_DPO;
    spec.pack = true;
    expect_refused(&spec, "only for supervised tuning");
    spec.pack = false;
    spec.eval_fraction = 1;
    expect_refused(&spec, "the held-out share is");
    spec.eval_fraction = 0;
    spec.label_smoothing = 0.7;
    expect_refused(&spec, "label smoothing");
    spec.label_smoothing = 0;
    spec.model = in_root("nowhere");
    expect_refused(&spec, "nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_sft),   cmocka_unit_test(test_dpo),
                                       cmocka_unit_test(test_kto),   cmocka_unit_test(test_orpo),
                                       cmocka_unit_test(test_simpo)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
