/* test_objective_runs.c - rows as functions of seed, step and number, the loss of masked tokens, runs, bad input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>

#include "objective_case.h"

/* ---- rows are functions of seed, step and number --------------------------------------------------- */

static void assert_same(const data_samples *a, const data_samples *b, int from, int to, int rows)
{
    const size_t cells = (size_t)(rows * a->seq), picks = (size_t)(rows * a->picks);
    assert_memory_equal(a->tokens + from * a->seq, b->tokens + to * a->seq, cells * 4);
    assert_memory_equal(a->mask + from * a->seq, b->mask + to * a->seq, cells * 4);
    assert_memory_equal(a->segments + from * a->seq, b->segments + to * a->seq, cells * 4);
    assert_memory_equal(a->targets + from * a->picks, b->targets + to * a->picks, picks * 4);
    assert_memory_equal(a->second + from, b->second + to, (size_t)rows * 4);
}

static void test_seeking(void **state)
{
    (void)state;
    bench a;
    open_bench(&a, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 32, 6));
    data_objective_spec wide = spec_of(DATA_OBJECTIVE_NSP, 32, 12),
                        other = spec_of(DATA_OBJECTIVE_NSP, 32, 6);
    other.seed = 8;
    data_objective *twice = data_objective_new(&a.train, words, &wide);
    data_objective *foreign = data_objective_new(&a.train, words, &other);
    data_samples walk = samples_of(a.o, 6, 6), jump = samples_of(a.o, 6, 2), big = samples_of(twice, 12, 12),
                 else_ = samples_of(foreign, 6, 6);
    for (int64_t step = 0; step < 40; step++)
        get(a.o, step, &walk);
    get(a.o, 39, &jump);
    assert_same(&walk, &jump, 0, 0, 6); /* however a step is cut */
    for (int i = 0; i < 6 * walk.picks; i++)
        assert_int_equal(walk.pick[i] - i / walk.picks * 32, jump.pick[i] - i / walk.picks % 2 * 32);
    get(twice, 19, &big); /* rows 228 to 239: the second half is step 39 of 6 */
    assert_same(&walk, &big, 0, 6, 6);
    get(foreign, 39, &else_);
    assert_memory_not_equal(walk.tokens, else_.tokens, 6 * 32 * 4);
    data_samples micro = samples_of(a.o, 6, 2);
    get(a.o, 39, &micro);
    by_batch second = data_samples_batch(&micro, 1);
    assert_int_equal(second.batch, 2);
    const int32_t *pick = by_batch_ids(&second, "pick");
    assert_int_equal(by_batch_find(&second, "pick")->shape[0], 2 * micro.picks);
    assert_ptr_equal(by_batch_ids(&second, "tokens"), micro.tokens + 2 * 32);
    assert_ptr_equal(by_batch_ids(&second, "second_targets"), micro.second + 2);
    for (int i = 0; i < 2 * micro.picks; i++)
        assert_true(pick[i] >= 0 && pick[i] < 64);
    assert_int_equal(data_objective_get(a.o, -1, &walk), BY_ERR_ARGUMENT);
    assert_int_equal(data_objective_get(a.o, INT64_MAX, &walk), BY_ERR_ARGUMENT);
    data_samples *all[] = {&walk, &jump, &big, &else_, &micro};
    for (int i = 0; i < BY_COUNT(all); i++)
        data_samples_free(all[i]);
    data_objective_free(twice);
    data_objective_free(foreign);
    close_bench(&a);
}

typedef struct worker {
    const data_objective *o;
    data_samples rows[50];
    int first;
    by_status status;
} worker;

static void *fill(void *user)
{
    worker *w = user;
    for (int i = 0; i < 50 && w->status == BY_OK; i++)
        w->status = data_objective_get(w->o, w->first + i, &w->rows[i]);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 32, 8));
    static worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        workers[i] = (worker){.o = b.o, .first = i * 25};
        for (int k = 0; k < 50; k++)
            workers[i].rows[k] = samples_of(b.o, 8, 8);
        assert_int_equal(pthread_create(&threads[i], NULL, fill, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    data_samples s = samples_of(b.o, 8, 8);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(workers[i].status, BY_OK);
        for (int k = 0; k < 50; k++) {
            get(b.o, i * 25 + k, &s);
            assert_same(&s, &workers[i].rows[k], 0, 0, 8);
            data_samples_free(&workers[i].rows[k]);
        }
    }
    data_samples_free(&s);
    close_bench(&b);
}

static void test_held_rows(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 32, 4));
    int64_t rows = data_objective_held_rows(b.o);
    data_samples one = samples_of(b.o, 4, 4), two = samples_of(b.o, 4, 4);
    assert_true(rows > 8);
    assert_int_equal(data_objective_held(b.o, rows - 2, &one), BY_OK);
    assert_int_equal(data_objective_held(b.o, 0, &two), BY_OK);
    assert_int_equal(data_objective_held(b.o, rows - 2, &two), BY_OK);
    assert_same(&one, &two, 0, 0, 4);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(one.second[r] == -100, r >= 2);
        assert_int_equal(one.mask[r * 32], 1); /* somebody to look at */
        for (int k = 0; k < one.picks && r >= 2; k++)
            assert_int_equal(one.targets[r * one.picks + k], -100);
    }
    data_samples_free(&one);
    data_samples_free(&two);
    close_bench(&b);
}

/* ---- the loss over hidden tokens alone ------------------------------------------------------------- */

static double loss_of(by_model *m, const by_batch *b)
{
    float loss = 0;
    by_pass *p = by_pass_new(m, b, &(by_pass_spec){.grads = BY_GRAD_STORE});
    if (!p || by_pass_run(p, b) != BY_OK || by_pass_read(p, by_pass_loss(p), &loss) != BY_OK)
        fail_msg("%s", by_error_message());
    by_pass_free(p);
    return loss;
}

static float *gradients(const by_model *m, int64_t *n)
{
    by_params *p = by_model_params(m);
    int64_t at = 0;
    float *out = base_alloc_zero((size_t)by_params_elements(p), sizeof *out);
    for (int i = 0; i < by_params_count(p); i++) {
        assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, out + at), BY_OK);
        int64_t size = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            size *= by_params_shape(p, i)[k];
        at += size;
    }
    *n = at;
    return out;
}

static void test_picks_equal_all(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_NSP, 24, 5));
    data_samples s = samples_of(b.o, 5, 5);
    by_model_shape shape = {
        .layers = 2, .heads = 2, .width = 16, .context = 24, .vocab = VOCAB, .dropout = 0};
    by_model *m =
        by_model_new(d, "bert", &shape, &(by_model_spec){.dtype = BY_F64, .training = true, .seed = 1});
    assert_non_null(m);
    by_model_set_pad(m, PAD);
    get(b.o, 3, &s);
    by_batch few = data_samples_batch(&s, 0), all = few;
    const int32_t *pick = by_batch_ids(&few, "pick"), *picked = by_batch_ids(&few, "targets");
    int32_t targets[5 * 24];
    for (int i = 0; i < 5 * 24; i++)
        targets[i] = -100;
    for (int i = 0; i < by_batch_find(&few, "pick")->shape[0]; i++)
        if (picked[i] >= 0)
            targets[pick[i]] = picked[i];
    by_batch_put_ids(&all, "pick", 0, NULL);
    by_batch_put_tokens(&all, "targets", targets);
    int64_t n;
    double loss[2];
    loss[0] = loss_of(m, &few);
    float *x = gradients(m, &n);
    loss[1] = loss_of(m, &all);
    float *y = gradients(m, &n);
    double above = 0, below = 0;
    for (int64_t i = 0; i < n; i++) {
        above += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        below += (double)y[i] * y[i];
    }
    assert_true(loss[0] > 1 && fabs(loss[0] - loss[1]) < 1e-6 * loss[1]);
    assert_true(below > 0 && sqrt(above / below) < 1e-6);
    base_free(x);
    base_free(y);
    by_model_free(m);
    data_samples_free(&s);
    close_bench(&b);
    by_device_free(d);
}

/* ---- runs ------------------------------------------------------------------------------------------ */

static int stop_after = -1; /* polls */

static bool cancelled(void *user)
{
    (void)user;
    return stop_after >= 0 && stop_after-- == 0;
}

static by_run_spec run_of(const char *out, const char *const *data, int count)
{
    return (by_run_spec){.family = "bert",
                         .shape = {.layers = 1, .heads = 2, .width = 16, .context = 32, .dropout = 0.1},
                         .data = data,
                         .data_count = count,
                         .eval_fraction = 0.2,
                         .tokenizer = in_root("words"),
                         .batch = 3,
                         .accumulate = 2,
                         .steps = 8,
                         .eval_every = 4,
                         .save_every = 4,
                         .schedule = {.kind = BY_SCHEDULE_COSINE, .rate = -1, .warmup = -1, .min_rate = -1},
                         .optimizer = {.weight_decay = 0.1, .max_grad_norm = 1},
                         .seed = 5,
                         .out = in_root(out),
                         .cancelled = cancelled};
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[2][500];
    char *bytes[2];
    size_t size[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s/%s", root, i ? b : a, name);
        bytes[i] = base_file_read(path[i], (size_t)1 << 30, &size[i]);
        assert_non_null(bytes[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(bytes[0], bytes[1], size[0]);
    base_free(bytes[0]);
    base_free(bytes[1]);
}

/* Interrupted or not, a run ends with the same bytes: nothing is remembered but the step. */
static void test_resume(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    static const struct {
        const char *family, *objective;
    } cases[] = {{"bert", NULL}, {"albert", NULL}, {"roberta", NULL}, {"xlm", "clm"}};
    const char *data[] = {in_root("docs.txt")};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_run_result whole, parts;
        char names[2][32];
        for (int k = 0; k < 2; k++)
            snprintf(names[k], sizeof names[k], "run-%d-%d", i, k);
        by_run_spec spec = run_of(names[0], data, 1);
        spec.family = cases[i].family;
        spec.objective.name = cases[i].objective;
        if (by_train_run(d, &spec, &whole) != BY_OK)
            fail_msg("%s: %s", cases[i].family, by_error_message());
        spec.out = in_root(names[1]);
        stop_after = 3;
        assert_int_equal(by_train_run(d, &spec, &parts), BY_ERR_CANCELLED);
        stop_after = -1;
        if (by_train_run(d, &spec, &parts) != BY_OK)
            fail_msg("%s: %s", cases[i].family, by_error_message());
        assert_int_equal(parts.resumed_from, 3);
        assert_same_file(names[0], names[1], "last/model.safetensors");
        assert_same_file(names[0], names[1], "last/optimizer.safetensors");
        assert_true(whole.eval_loss == parts.eval_loss);
        assert_int_equal(isfinite(whole.next_accuracy), i < 2);
        if (i < 2)
            assert_true(whole.next_accuracy == parts.next_accuracy && whole.next_accuracy <= 1);
        spec.objective.whole_words = true; /* a run goes on only as it began */
        assert_int_equal(by_train_run(d, &spec, &parts) == BY_ERR_ARGUMENT, i < 3);
        if (i < 3)
            assert_contains(by_error_message(), "whole_words");
    }
    by_device_free(d);
}

/* Learning: few documents, each with a word of its own, make hidden tokens and strange texts easy to find. */
static void test_learns(void **state)
{
    (void)state;
    by_device *d = by_device_open("cpu", 1);
    const char *data[] = {in_root("few.txt")};
    write_documents("few.txt", 8, 4);
    by_run_spec spec = run_of("learns", data, 1);
    by_run_result r;
    spec.shape = (by_model_shape){.layers = 1, .heads = 2, .width = 32, .context = 32, .dropout = 0};
    spec.eval_data = data;
    spec.eval_count = 1;
    spec.eval_fraction = 0;
    spec.objective.mask_copies = -1;
    spec.schedule = (by_schedule_spec){.kind = BY_SCHEDULE_CONSTANT, .rate = 3e-3, .warmup = 50};
    spec.batch = 16;
    spec.accumulate = 1;
    spec.steps = spec.eval_every = spec.save_every = 1000;
    if (by_train_run(d, &spec, &r) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_true(r.eval_loss < 1.5); /* frequencies alone: log 8 or log 12 or so for the hidden word */
    assert_true(r.next_accuracy > 0.7);
    by_device_free(d);
}

/* ---- bad input ------------------------------------------------------------------------------------- */

static void refuse(by_run_spec spec, by_status status, const char *part)
{
    by_device *d = by_device_open("cpu", 1);
    by_run_result r;
    base_dir_remove(spec.out);
    assert_int_equal(by_train_run(d, &spec, &r), status);
    assert_contains(by_error_message(), part);
    by_device_free(d);
}

static void test_bad_runs(void **state)
{
    (void)state;
    write_text("one.txt", "D1 S1\nD1 S2\nD1 S3\n\n");
    write_text("two-blank.txt", "\n\n\nD1 S1\nD1 S2\n\n\n\n\n");
    write_text("lines.txt", "D1 S1\nD2 S2\nD3 S3\n");
    write_text("empty.txt", "");
    write_text("blank.txt", " \n\t\n\r\n\n");
    write_lines("en.txt", 'E', LINES, -1);
    write_lines("short.txt", 'G', LINES - 1, -1);
    write_text("t.bin", "ab");
    const char *one[] = {in_root("one.txt")}, *blank2[] = {in_root("two-blank.txt")},
               *lines[] = {in_root("lines.txt")}, *empty[] = {in_root("empty.txt")},
               *blank[] = {in_root("blank.txt")}, *docs[] = {in_root("docs.txt")};
    by_run_spec s;
    s = run_of("bad", one, 1);
    s.eval_fraction = 0;
    refuse(s, BY_ERR_FORMAT, "every line is a document"); /* no blank line between others */
    write_text("one.txt", "D1 S1\nD1 S2\nD1 S3\n\nD2 S1\n");
    refuse(s, BY_ERR_FORMAT, "at least two documents"); /* the other has one sentence */
    s.eval_fraction = 0;
    s.data = lines;
    refuse(s, BY_ERR_FORMAT, "two or more sentences");
    s.data = blank2;
    refuse(s, BY_ERR_FORMAT, "two or more sentences");
    s.data = empty;
    refuse(s, BY_ERR_FORMAT, "empty.txt: no text");
    s.data = blank;
    refuse(s, BY_ERR_FORMAT, "blank.txt: no text");
    s.data = docs;
    s.tokenizer = "byte";
    refuse(s, BY_ERR_UNSUPPORTED, "(byte) has no first");
    s.tokenizer = in_root("words");
    s.objective.name = "guess";
    refuse(s, BY_ERR_ARGUMENT, "unknown objective \"guess\"; available: lm, mlm");
    s.objective.name = "spans";
    refuse(s, BY_ERR_UNSUPPORTED, "has no head for the objective \"spans\"");
    s.objective.name = NULL;
    s.shape.context = 7;
    refuse(s, BY_ERR_ARGUMENT, "7 tokens are too short");
    s.shape.context = 32;
    s.objective.languages = (const char *const[]){"en", "de"};
    s.objective.language_count = 2;
    s.family = "xlm";
    refuse(s, BY_ERR_ARGUMENT, "2 languages require as many items of data");
    const char *both[] = {in_root("en.txt"), in_root("short.txt")};
    s.data = both;
    s.data_count = 2;
    s.objective.parallel = true;
    refuse(s, BY_ERR_FORMAT, "short.txt has 19");
    s.objective.name = "mlm";
    refuse(s, BY_ERR_ARGUMENT, "parallel text is for the objective \"tlm\"");
    s = run_of("bad", docs, 1);
    s.data = (const char *const[]){in_root("t.bin")};
    refuse(s, BY_ERR_ARGUMENT, "token shards have no sentence boundaries");
}

/* A tokenizer that has everything but a mask token. */
static void test_no_mask_token(void **state)
{
    (void)state;
    size_t size;
    char *json = base_file_read(in_root("words/tokenizer.json"), 1 << 20, &size), *at;
    for (int i = 0; i < 2 && (at = strstr(json, "[MASK]")); i++)
        memcpy(at, "[HIDE]", 6);
    assert_int_equal(base_dir_make(in_root("maskless")), BY_OK);
    write_text("maskless/tokenizer.json", json);
    base_free(json);
    const char *docs[] = {in_root("docs.txt")};
    by_run_spec s = run_of("bad", docs, 1);
    s.tokenizer = in_root("maskless");
    refuse(s, BY_ERR_UNSUPPORTED, "has no mask ([MASK], <mask>) token");
    /* which another file may name */
    write_text("maskless/tokenizer_config.json", "{\"mask_token\": {\"content\": \"[HIDE]\"}}");
    by_tokenizer *t = by_tokenizer_load(in_root("maskless"));
    assert_non_null(t);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_MASK), MASK);
    assert_int_equal(by_tokenizer_save(t, in_root("again")), BY_OK);
    by_tokenizer_free(t);
    t = by_tokenizer_load(in_root("again"));
    assert_non_null(t);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_MASK), MASK);
    assert_int_equal(by_tokenizer_special(t, BY_SPECIAL_SEP), SEP);
    by_tokenizer_free(t);
}

static void test_damaged_index(void **state)
{
    (void)state;
    bench b;
    open_bench(&b, "docs.txt", spec_of(DATA_OBJECTIVE_MLM, 32, 1));
    close_bench(&b);
    size_t size;
    char *good = base_file_read(in_root("t.docs"), 1 << 24, &size);
    assert_non_null(good);
    for (size_t n = 0; n < size; n += size / 50 + 1) { /* cut off */
        data_docs d;
        assert_int_equal(base_file_write(in_root("t.docs"), good, n), BY_OK);
        assert_int_equal(data_docs_open(&d, in_root("t.bin"), in_root("t.docs"), VOCAB), BY_ERR_FORMAT);
        assert_contains(by_error_message(), "t.docs");
    }
    base_rng random = base_rng_make(1, 2);
    for (int i = 0; i < 300; i++) { /* changed: refused, or as harmless as it looks */
        data_docs d;
        char *bad = base_alloc(size);
        memcpy(bad, good, size);
        bad[base_rng_below(&random, size)] ^= (char)(1 << base_rng_below(&random, 8));
        assert_int_equal(base_file_write(in_root("t.docs"), bad, size), BY_OK);
        if (data_docs_open(&d, in_root("t.bin"), in_root("t.docs"), VOCAB) == BY_OK) {
            for (int64_t s = 0; s < d.sentences; s++)
                assert_true(data_sentence_size(&d, s) >= 0);
            data_docs_close(&d);
        }
        base_free(bad);
    }
    base_free(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeking),       cmocka_unit_test(test_threads),
        cmocka_unit_test(test_held_rows),     cmocka_unit_test(test_picks_equal_all),
        cmocka_unit_test(test_resume),        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_bad_runs),      cmocka_unit_test(test_no_mask_token),
        cmocka_unit_test(test_damaged_index),
    };
    return cmocka_run_group_tests_name("objective runs", tests, set_up, tear_down);
}
