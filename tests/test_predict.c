/* test_predict.c - banyan/predict.h: texts of many lengths in batches give the scores that each gives alone,
 * in their order; masks, entities and answers are found; NaN and a cancelled call are reported. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>

#include <cmocka.h>

#include "banyan/pass.h"
#include "banyan/predict.h"
#include "tiny_world.h"

static const char *const texts[] = {
    "ab c", "the cat sat on a mat", "x", "it is so very long a text as this", "who", "b b b b b"};
static const char *const pairs[] = {NULL, "and a dog", "y", NULL, "a", NULL};
enum { TEXTS = 6 };

static int set_up(void **state)
{
    (void)state;
    return tiny_open("predict");
}

static by_predictor *open_predictor(by_model *m, by_task task)
{
    by_predictor *p = by_predictor_new(m, tokenizer, &(by_predictor_spec){.task = task, .batch = 3});
    if (!p)
        fail_msg("%s", by_error_message());
    return p;
}

/* A parameter whose every value becomes x; those of `only` at its place alone, 0 elsewhere. */
static void set_values(by_model *m, const char *name, float x, int only)
{
    by_params *params = by_model_params(m);
    const int i = by_params_find(params, name);
    assert_true(i >= 0);
    float values[1024] = {0};
    int64_t n = 1;
    for (int k = 0; k < by_params_rank(params, i); k++)
        n *= by_params_shape(params, i)[k];
    assert_true(n <= BY_COUNT(values));
    for (int64_t k = 0; k < n; k++)
        values[k] = only < 0 || only == k ? x : 0;
    assert_int_equal(by_params_set(params, i, BY_SLOT_VALUE, values), BY_OK);
}

/* The logits of one text by itself, without padding or mask. */
static void logits_alone(by_model *m, const char *text, const char *pair, float *out)
{
    by_encoding e = {0};
    const by_encode_spec spec = {.special = true, .pair = pair, .pair_size = pair ? strlen(pair) : 0};
    assert_int_equal(by_tokenizer_encode_with(tokenizer, text, strlen(text), &spec, &e), BY_OK);
    int32_t segments[64];
    assert_true(e.ids.count <= BY_COUNT(segments));
    for (size_t i = 0; i < e.ids.count; i++)
        segments[i] = e.types[i];
    by_batch b = by_batch_of(1, (int)e.ids.count, e.ids.data);
    by_batch_put_tokens(&b, "segments", segments);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){0});
    assert_non_null(p);
    assert_int_equal(by_pass_run(p, &b), BY_OK);
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), out), BY_OK);
    by_pass_free(p);
    by_encoding_free(&e);
}

static void test_labels(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 3, 64);
    by_predictor *p = open_predictor(m, BY_TASK_CLASSIFY);
    float scores[TEXTS][3], alone[3];
    assert_int_equal(by_predictor_classify(p, texts, pairs, TEXTS, scores[0]), BY_OK);
    for (int i = 0; i < TEXTS; i++) {
        double sum = 0;
        logits_alone(m, texts[i], pairs[i], alone);
        for (int k = 0; k < 3; k++)
            sum += exp((double)alone[k]);
        for (int k = 0; k < 3; k++)
            assert_true(fabs((double)scores[i][k] - exp((double)alone[k]) / sum) < 1e-5);
    }
    assert_int_equal(by_predictor_classify(p, NULL, NULL, 0, NULL), BY_OK);
    by_predictor_free(p);
    by_model_free(m);
}

static void test_masks(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_MLM, 0, 64);
    by_predictor *p = open_predictor(m, BY_TASK_MLM);
    const char *const masked[] = {"a ___ b [MASK] c", "no mask _ at __ all", "_____"};
    by_guesses g;
    assert_int_equal(by_predictor_fill(p, masked, 3, TINY_VOCAB + 2, &g), BY_OK);
    assert_int_equal(g.count, 3);
    assert_int_equal(g.first[1], 2);
    assert_int_equal(g.first[2], 2);
    assert_int_equal(g.first[3], 3);
    static float alone[64 * TINY_VOCAB];
    logits_alone(m, "a [MASK] b [MASK] c", NULL, alone);
    const float *x = alone + 4 * TINY_VOCAB; /* the second mask: [CLS] a [MASK] b [MASK] */
    const by_guess *list = g.list + (size_t)g.top;
    double sum = 0, all = 0;
    for (int k = 0; k < TINY_VOCAB; k++)
        sum += exp((double)x[k]);
    for (int k = 0; k < TINY_VOCAB; k++) {
        assert_true(fabs((double)list[k].score - exp((double)x[list[k].token]) / sum) < 1e-5);
        assert_true(k == 0 || list[k].score <= list[k - 1].score);
        all += (double)list[k].score;
    }
    assert_true(fabs(all - 1) < 1e-5);
    assert_int_equal(list[TINY_VOCAB].token, -1); /* there are no more tokens */
    by_guesses_free(&g);
    assert_int_equal(by_predictor_fill(p, masked, 3, 0, &g), BY_ERR_ARGUMENT);
    by_predictor_free(p);
    by_model_free(m);
}

static void test_entities(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_TAG, 3, 16); /* the longest text needs windows */
    assert_int_equal(by_model_name_labels(m, (const char *const[]){"O", "B-X", "I-X"}, 3), BY_OK);
    by_predictor *p = open_predictor(m, BY_TASK_TAG);
    by_tags t;
    set_values(m, "classifier.weight", 0, -1);
    set_values(m, "classifier.bias", 20, 1); /* every token begins an entity: one for each word */
    assert_int_equal(by_predictor_tag(p, texts, TEXTS, &t), BY_OK);
    assert_int_equal(t.count, TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        size_t words = 1, letters = 0;
        for (const char *c = texts[i]; *c; c++) {
            words += *c == ' ';
            letters += *c != ' ';
        }
        assert_int_equal(t.first_entity[i + 1] - t.first_entity[i], words);
        assert_int_equal(t.first_token[i + 1] - t.first_token[i], letters); /* this tokenizer's tokens */
        for (size_t k = t.first_token[i]; k < t.first_token[i + 1]; k++)
            assert_int_equal(t.tokens[k].label, 1);
    }
    assert_string_equal(t.entities[0].name, "X");
    assert_int_equal(t.entities[0].at.end, 2); /* "ab" */
    assert_true(t.entities[0].score > 0.99f);
    by_tags_free(&t);
    set_values(m, "classifier.bias", 20, 2); /* every token goes on: one for each text */
    assert_int_equal(by_predictor_tag(p, texts, TEXTS, &t), BY_OK);
    assert_int_equal(t.first_entity[TEXTS], TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(t.entities[i].at.start, 0);
        assert_int_equal(t.entities[i].at.end, strlen(texts[i]));
    }
    by_tags_free(&t);
    set_values(m, "classifier.bias", 20, 0);
    assert_int_equal(by_predictor_tag(p, texts, TEXTS, &t), BY_OK);
    assert_int_equal(t.first_entity[TEXTS], 0);
    by_tags_free(&t);
    by_predictor_free(p);
    by_model_free(m);
}

static void test_answers(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_ANSWER, 0, 32);
    by_predictor *p = open_predictor(m, BY_TASK_ANSWER);
    const char *const questions[] = {"who", "what is it", "x"};
    by_answer_found a[3];
    by_answer_spec spec = {.longest = 2};
    assert_int_equal(by_predictor_answer(p, questions, texts, 3, &spec, a), BY_OK);
    for (int i = 0; i < 3; i++) {
        assert_true(a[i].found && isfinite(a[i].score) && isfinite(a[i].none));
        assert_true(a[i].at.start < a[i].at.end && a[i].at.end <= strlen(texts[i]));
        assert_true(a[i].at.end - a[i].at.start <= 3); /* two letters and a space between them */
    }
    spec = (by_answer_spec){.may_have_none = true, .null_threshold = -1e9};
    assert_int_equal(by_predictor_answer(p, questions, texts, 3, &spec, a), BY_OK);
    assert_false(a[0].found);
    by_predictor_free(p);
    by_model_free(m);
}

static void test_nan(void **state)
{
    (void)state;
    static const struct {
        by_task task;
        const char *bias;
    } heads[] = {{BY_TASK_CLASSIFY, "classifier.bias"},
                 {BY_TASK_TAG, "classifier.bias"},
                 {BY_TASK_MLM, "cls.predictions.bias"},
                 {BY_TASK_ANSWER, "qa_outputs.bias"}};
    for (int i = 0; i < BY_COUNT(heads); i++) {
        by_model *m = tiny_model(device, "bert", heads[i].task, 2, 64);
        set_values(m, heads[i].bias, NAN, 1);
        by_predictor *p = open_predictor(m, heads[i].task);
        float scores[2];
        by_guesses guesses;
        by_tags tags;
        by_answer_found found;
        const char *text = "a [MASK] b";
        by_status s = heads[i].task == BY_TASK_CLASSIFY ? by_predictor_classify(p, &text, NULL, 1, scores)
                      : heads[i].task == BY_TASK_TAG    ? by_predictor_tag(p, &text, 1, &tags)
                      : heads[i].task == BY_TASK_MLM
                          ? by_predictor_fill(p, &text, 1, 2, &guesses)
                          : by_predictor_answer(p, &text, &text, 1, &(by_answer_spec){0}, &found);
        assert_int_equal(s, BY_ERR_NUMERIC);
        by_predictor_free(p);
        by_model_free(m);
    }
}

static bool always(void *user)
{
    ++*(int *)user;
    return true;
}

static void test_cancelled_and_wrong_head(void **state)
{
    (void)state;
    by_model *m = tiny_model(device, "bert", BY_TASK_CLASSIFY, 2, 64);
    int polled = 0;
    float scores[2 * TEXTS];
    by_predictor *p =
        by_predictor_new(m, tokenizer, &(by_predictor_spec){.cancelled = always, .user = &polled});
    assert_int_equal(by_predictor_classify(p, texts, NULL, TEXTS, scores), BY_ERR_CANCELLED);
    assert_int_equal(polled, 1);
    by_tags t;
    assert_int_equal(by_predictor_tag(p, texts, TEXTS, &t), BY_ERR_ARGUMENT);
    assert_non_null(strstr(by_error_message(), "has a head for \"classify\", not for \"tag\""));
    by_predictor_free(p);
    assert_null(by_predictor_new(m, tokenizer, &(by_predictor_spec){.task = BY_TASK_ANSWER}));
    assert_int_equal(base_error_status(), BY_ERR_ARGUMENT);
    by_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),   cmocka_unit_test(test_masks),
        cmocka_unit_test(test_entities), cmocka_unit_test(test_answers),
        cmocka_unit_test(test_nan),      cmocka_unit_test(test_cancelled_and_wrong_head),
    };
    return cmocka_run_group_tests(tests, set_up, tiny_close);
}
