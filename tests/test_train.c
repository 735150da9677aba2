/* test_train.c - whole runs of training, and their defaults. Resuming is tested by tests/scripts/resume.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train_case.h"

double __wrap_by_device_peak(by_device *d, by_dtype type);

/* In place of the real one (test_train.link), which takes longer than all the rest here. */
double __wrap_by_device_peak(by_device *d, by_dtype type)
{
    (void)d, (void)type;
    return 1e15;
}

typedef struct watch {
    int64_t last, steps, evaluations, saved, notes, nodes;
    double eval_loss;
} watch;

static void on_report(void *user, const by_report *r)
{
    watch *w = user;
    if (r->note) {
        w->notes++;
        return;
    }
    assert_int_equal(r->step, w->last + 1);
    w->last = r->step;
    w->steps++;
    w->saved += r->saved;
    assert_true(isfinite(r->loss) && isfinite(r->grad_norm) && r->ms > 0 && r->tokens_per_s > 0);
    assert_true(r->peak_share > 0 && r->peak_share <= 1);
    assert_true(r->evaluated == isfinite(r->eval_loss));
    w->evaluations += r->evaluated;
    if (r->evaluated)
        w->eval_loss = r->eval_loss;
}

static void on_node(void *user, const by_trace_entry *entry)
{
    assert_int_equal(entry->first_bad, -1);
    ((watch *)user)->nodes++;
}

static const char *text_file(void)
{
    const char *path = in_root("text");
    if (!base_file_exists(path)) {
        base_buf b = {0};
        for (int i = 0; i < 120; i++)
            base_buf_printf(&b, "%d times %d is %d; ", i, i + 1, i * (i + 1));
        assert_int_equal(base_file_write(path, b.data, b.size), BY_OK);
        base_buf_free(&b);
    }
    return path;
}

static by_run_spec run_spec(const char *out, const char **data, watch *w)
{
    *data = text_file();
    return (by_run_spec){.family = "gpt2",
                         .shape = {.layers = 1, .heads = 2, .width = 16, .context = T},
                         .data = data,
                         .data_count = 1,
                         .eval_fraction = 0.1,
                         .batch = B,
                         .steps = 20,
                         .schedule = {.kind = BY_SCHEDULE_CONSTANT, .rate = 1e-2},
                         .eval_every = 10,
                         .save_every = 20,
                         .seed = 6,
                         .out = out,
                         .report = on_report,
                         .user = w};
}

static by_run_result train(const by_run_spec *spec)
{
    by_run_result r;
    if (by_train_run(device, spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    return r;
}

static void test_run(void **state)
{
    (void)state;
    watch w = {0};
    const char *data, *out = in_root("run");
    by_run_spec spec = run_spec(out, &data, &w);
    spec.trace = on_node;
    by_run_result r = train(&spec);
    assert_int_equal(r.steps, 20);
    assert_int_equal(r.resumed_from, 0);
    assert_int_equal(w.steps, 20);
    assert_int_equal(w.notes, 1);
    assert_int_equal(w.evaluations, 2);
    assert_true(w.saved >= 1);
    assert_true(w.nodes > 10 && w.nodes < 200); /* of the first step alone */
    assert_true(r.eval_loss == w.eval_loss && r.best_eval_loss <= r.eval_loss);
    assert_true(r.best_step == 10 || r.best_step == 20);
    assert_true(r.state_bytes > 0 && r.activation_bytes > 0 && r.parameters > 1000);
    static const char *const files[] = {"run/metrics.jsonl",
                                        "run/run.json",
                                        "run/loss.svg",
                                        "run/last/config.json",
                                        "run/last/tokenizer.json",
                                        "run/best/model.safetensors"};
    for (int i = 0; i < BY_COUNT(files); i++)
        assert_true(base_file_exists(in_root(files[i])));
    w = (watch){.last = 20};
    r = train(&spec); /* nothing is left to do */
    assert_int_equal(r.resumed_from, 20);
    assert_int_equal(w.steps, 0);

    watch other = {0}; /* from those weights on: the first loss is not that of a model that knows nothing */
    by_run_spec tuned = run_spec(in_root("tuned"), &data, &other);
    tuned.init_from = in_root("run/last");
    tuned.steps = 1;
    assert_true(train(&tuned).loss < 0.9 * log(20));

    spec.eval_every = 0; /* epochs: 2250 of the 2500 characters or so, 48 a step */
    spec.steps = 0;
    spec.epochs = 2;
    spec.out = in_root("epochs");
    w = (watch){0};
    size_t size;
    base_free(base_file_read(text_file(), 1 << 20, &size));
    int64_t kept = (int64_t)floor((double)size * 0.9);
    assert_int_equal(train(&spec).steps, (int64_t)(2.0 * (double)kept / (B * T)));
}

/* Tokens of a run's own shard are the same run. */
static void test_shards(void **state)
{
    (void)state;
    const char *data, *shard = in_root("text-run/data/train.bin");
    watch w = {0};
    by_run_spec spec = run_spec(in_root("text-run"), &data, &w);
    double loss = train(&spec).loss;
    w = (watch){0};
    spec.data = &shard;
    spec.tokenizer = in_root("text-run/last");
    spec.out = in_root("shard-run");
    assert_true(train(&spec).loss == loss);
    w = (watch){0};
    spec.tokenizer = NULL; /* without one, the vocabulary must be given */
    spec.out = in_root("bare-run");
    spec.shape.vocab = 100;
    assert_true(isfinite(train(&spec).loss));
    spec.shape.vocab = 5;
    spec.out = in_root("small-vocab");
    by_run_result r;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_FORMAT);
    assert_contains(by_error_message(), "outside the vocabulary of 5");
}

/* At a rate too small to change a number nothing gets better: the first evaluation is the best, and patience
 * runs out. */
static void test_early_stop(void **state)
{
    (void)state;
    watch w = {0};
    const char *data;
    by_run_spec spec = run_spec(in_root("patient"), &data, &w);
    spec.schedule.rate = 1e-30;
    spec.eval_every = 2;
    spec.steps = 100;
    spec.patience = 3;
    by_run_result r = train(&spec);
    assert_true(r.stopped_early);
    assert_int_equal(r.steps, 2 * (1 + 3));
    assert_int_equal(r.best_step, 2);
    w = (watch){.last = 8};
    r = train(&spec); /* it has not become more patient */
    assert_int_equal(r.steps, 8);
    assert_int_equal(w.steps, 0);
    spec.patience = 5;
    r = train(&spec);
    assert_int_equal(r.steps, 12);
}

/* -log softmax(logits)[target], in double. */
static double surprise(const float *logits, int n, int32_t target)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = BY_MAX(top, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[target];
}

/* The held-out loss is the mean over every token but the first, each predicted once from what its window
 * holds before it. Computed here one window at a time from the saved model. */
static void test_eval_loss(void **state)
{
    (void)state;
    watch w = {0};
    const char *data;
    by_run_spec spec = run_spec(in_root("eval"), &data, &w);
    spec.eval_fraction = 0.14;
    spec.shape.dropout = 0.3; /* off in evaluation */
    double eval = train(&spec).eval_loss;
    by_model *m = by_model_open(device, in_root("eval/last"), &(by_model_spec){0});
    const char *bin = in_root("eval/data/train.bin");
    data_tokens *tokens = data_tokens_open(&bin, 1, 0);
    assert_true(m && tokens);
    int64_t n = data_tokens_count(tokens), begin = (int64_t)floor((double)n * (1 - 0.14)), windows = 0,
            count = 0;
    int vocab = by_model_vocab(m);
    float *logits = base_alloc(sizeof *logits * T * (size_t)vocab);
    double sum = 0;
    for (int64_t at = begin; at < n - 1; at += T, windows++) {
        int32_t ids[T + 1];
        int length = (int)BY_MIN(T, n - 1 - at);
        assert_int_equal(data_tokens_read(tokens, at, length + 1, ids), BY_OK);
        by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(m)});
        by_model_io io = {0};
        by_io_feed(&io, "tokens", by_input(g, "tokens", BY_I32, 2, (int64_t[]){1, length}));
        by_model_build(m, g, &io);
        by_output(g, "logits", by_io_output(&io, "logits"));
        by_program *p = by_compile(g, &(by_compile_spec){0});
        assert_non_null(p);
        assert_int_equal(by_write(p, by_io_input(&io, "tokens"), ids, sizeof *ids * (size_t)length), BY_OK);
        assert_int_equal(by_run(p), BY_OK);
        assert_int_equal(by_read_f32(p, by_io_output(&io, "logits"), logits), BY_OK);
        for (int t = 0; t < length; t++, count++)
            sum += surprise(logits + t * vocab, vocab, ids[t + 1]);
        by_program_free(p);
    }
    assert_true(windows % B != 0 &&
                (n - 1 - begin) % T != 0); /* the last batch and the last window are not full */
    assert_int_equal(count, n - 1 - begin);
    if (!(fabs(sum / (double)count - eval) < 1e-5 * eval))
        fail_msg("the run says %.9g, by hand it is %.9g", eval, sum / (double)count);
    base_free(logits);
    data_tokens_free(tokens);
    by_model_free(m);
}

static bool at_once(void *user)
{
    (void)user;
    return true;
}

static void test_bad_runs(void **state)
{
    (void)state;
    watch w = {0};
    const char *data;
    by_run_result r;
    const by_run_spec good = run_spec(in_root("bad"), &data, &w);
    by_run_spec spec = good;
    spec.data_count = 0;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "no data");
    spec = good;
    const char *missing = in_root("no such text"), *mixed[] = {text_file(), in_root("run/data/train.bin")};
    spec.data = &missing;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_IO);
    assert_contains(by_error_message(), "no such text");
    spec.data = mixed;
    spec.data_count = 2;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "mixed");
    spec = good;
    spec.family = "gpt-17";
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_UNSUPPORTED);
    assert_contains(by_error_message(), "gpt-17");
    spec = good;
    spec.seq = T + 1;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "13 tokens exceed the model's context of 12");
    spec = good;
    spec.shape.context = 4000;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "too few for one window of 4000");
    spec = good;
    spec.tokenizer = in_root("no tokenizer");
    assert_int_not_equal(by_train_run(device, &spec, &r), BY_OK);
    assert_contains(by_error_message(), "no tokenizer");
    spec = good;
    spec.cancelled = at_once;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_CANCELLED);
    assert_contains(by_error_message(), "stopped at step 0");
    spec = good;
    spec.schedule.rate = 1e30;
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_NUMERIC);
    assert_contains(by_error_message(), "at step");
    assert_false(base_file_exists(in_root("bad/last/config.json")));
    base_free(base_file_read(in_root("bad/run.json"), 1 << 20, NULL));
    spec = good;
    spec.out = text_file(); /* not a folder */
    assert_int_equal(by_train_run(device, &spec, &r), BY_ERR_IO);
    assert_contains(by_error_message(), text_file());
}

/* What a family is trained with is in its record: a user of the library gets what the program takes. */
static void test_defaults(void **state)
{
    (void)state;
    const by_run_spec gpt2 = by_run_defaults("gpt2", NULL, NULL), t5 = by_run_defaults("t5", NULL, NULL),
                      pairs = by_run_defaults("transformer", NULL, NULL),
                      other = by_run_defaults("t5", "translate", NULL),
                      old = by_run_defaults("t5", NULL, root);
    assert_int_equal(gpt2.optimizer.kind, BY_ADAMW);
    assert_true(gpt2.shape.dropout == 0 && gpt2.optimizer.weight_decay == 0.1 && gpt2.label_smoothing == 0);
    assert_int_equal(t5.optimizer.kind, BY_ADAFACTOR);
    assert_true(t5.shape.dropout < 0 && !t5.shape.pre_norm && t5.label_smoothing == 0);
    assert_true(pairs.shape.pre_norm && pairs.label_smoothing == 0.1 && pairs.optimizer.beta2 == 0.98);
    assert_true(other.optimizer.kind == BY_ADAFACTOR && other.label_smoothing == 0.1);
    assert_true(old.optimizer.kind == BY_ADAMW && old.shape.dropout < 0 && old.init_from == root);
    assert_true(by_finetune_defaults().schedule.rate < 0);
    assert_true(train_default_tuning_rate(768) == 3e-5 && train_default_tuning_rate(1024) == 3e-5);
    assert_true(fabs(train_default_tuning_rate(128) - 1.8e-4) < 1e-9 &&
                train_default_tuning_rate(16) == 3e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_run),       cmocka_unit_test(test_shards),
        cmocka_unit_test(test_early_stop), cmocka_unit_test(test_eval_loss), cmocka_unit_test(test_bad_runs),
    };
    return cmocka_run_group_tests_name("train", tests, set_up, tear_down);
}
