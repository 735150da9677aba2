/* test_metrics.c - metrics against figures of the reference implementations. Data come from a linear
 * congruential generator (x = (1103515245 x + 12345) mod 2^31, of which (x >> 16) mod n is used), so that
 * both sides have the same; the figures are scikit-learn's accuracy_score, f1_score and matthews_corrcoef,
 * scipy's pearsonr and spearmanr, seqeval's scores, and transformers 4.40's copy of SQuAD's official script
 * (data/metrics/squad_metrics.py). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "score/task_metrics.h"

enum { MOST = 600 };

static void draw(int *out, int count, int below, uint32_t seed)
{
    uint64_t x = seed;
    for (int i = 0; i < count; i++) {
        x = (x * 1103515245 + 12345) % 2147483648u;
        out[i] = (int)((x >> 16) % (uint64_t)below);
    }
}

static void expect(const score_metrics *m, const by_metric *want, int count)
{
    by_metric got[BY_METRICS_MAX];
    assert_int_equal(score_metrics_read(m, got), count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(got[i].name, want[i].name);
        if (fabs(got[i].value - want[i].value) > 1e-9)
            fail_msg("%s is %.12g, not %.12g", got[i].name, got[i].value, want[i].value);
    }
}

static void check_classes(int labels, const by_metric *want, int count)
{
    int actual[MOST], other[MOST], keep[MOST];
    score_metrics *m = score_metrics_new(SCORE_METRICS_CLASSES, NULL, labels);
    draw(actual, 200, labels, 1);
    draw(other, 200, labels, 2);
    draw(keep, 200, 10, 3);
    for (int i = 0; i < 200; i++)
        score_metrics_class(m, keep[i] < 6 ? actual[i] : other[i], actual[i]);
    assert_int_equal(score_metrics_count(m), 200);
    expect(m, want, count);
    score_metrics_free(m);
}

static void test_classes(void **state)
{
    (void)state;
    check_classes(2,
                  (by_metric[]){{"accuracy", 0.815},
                                {"f1", 0.8340807174887892},
                                {"macro_f1", 0.8125205847330952},
                                {"matthews", 0.628417548636269}},
                  4);
    check_classes(5,
                  (by_metric[]){{"accuracy", 0.685},
                                {"macro_f1", 0.6853522804089094},
                                {"matthews", 0.6074560851409201}},
                  3);
}

/* A label that the model has and the data do not; one label only; nothing at all. */
static void test_rare_classes(void **state)
{
    (void)state;
    static const int actual[] = {0, 0, 1, 2, 2}, predicted[] = {0, 1, 1, 2, 0};
    score_metrics *m = score_metrics_new(SCORE_METRICS_CLASSES, NULL, 4);
    for (int i = 0; i < 5; i++)
        score_metrics_class(m, predicted[i], actual[i]);
    expect(m, (by_metric[]){{"accuracy", 0.6}, {"macro_f1", 0.611111111111111}, {"matthews", 0.4375}}, 3);
    score_metrics_free(m);
    m = score_metrics_new(SCORE_METRICS_CLASSES, NULL, 3);
    for (int i = 0; i < 3; i++)
        score_metrics_class(m, 1, 1);
    expect(m, (by_metric[]){{"accuracy", 1}, {"macro_f1", 1}, {"matthews", 0}}, 3);
    score_metrics_free(m);
    by_metric none[BY_METRICS_MAX];
    m = score_metrics_new(SCORE_METRICS_CLASSES, NULL, 3);
    assert_int_equal(score_metrics_read(m, none), 3);
    assert_true(isnan(none[0].value));
    score_metrics_free(m);
}

static void test_many_labels(void **state)
{
    (void)state;
    int actual[MOST], other[MOST], keep[MOST];
    score_metrics *m = score_metrics_new(SCORE_METRICS_EACH, NULL, 5);
    draw(actual, 300, 2, 4);
    draw(other, 300, 2, 5);
    draw(keep, 300, 10, 6);
    for (int i = 0; i < 300; i += 5) {
        uint8_t p[5], a[5];
        for (int k = 0; k < 5; k++) {
            a[k] = (uint8_t)(k < 4 ? actual[i + k] : 0);
            p[k] = (uint8_t)(k < 4 ? keep[i + k] < 7 ? actual[i + k] : other[i + k] : 0);
        }
        score_metrics_each(m, p, a);
    }
    expect(m,
           (by_metric[]){{"micro_f1", 0.8605577689243028},
                         {"macro_f1", 0.6848484848484848},
                         {"accuracy", 0.48333333333333334}},
           3);
    score_metrics_free(m);
}

static void test_numbers(void **state)
{
    (void)state;
    int x[MOST], y[MOST];
    score_metrics *m = score_metrics_new(SCORE_METRICS_NUMBERS, NULL, 1);
    draw(x, 150, 40, 7);
    draw(y, 150, 40, 8);
    for (int i = 0; i < 150; i++) /* many ties */
        assert_int_equal(score_metrics_number(m, x[i] / 8.0, x[i] / 8.0 + y[i] / 8.0), BY_OK);
    expect(m,
           (by_metric[]){
               {"pearson", 0.6942932106494626}, {"spearman", 0.6899168173561118}, {"mse", 8.835104166666667}},
           3);
    score_metrics_free(m);
}

static const char *const names[] = {"O", "B-PER", "I-PER", "B-LOC", "I-LOC", "S-ORG", "E-PER"};

static void test_entities(void **state)
{
    (void)state;
    int actual[MOST], predicted[MOST], keep[MOST];
    assert_int_equal(score_metrics_of_tags(names, 7), SCORE_METRICS_ENTITIES);
    assert_int_equal(score_metrics_of_tags(names, 1), SCORE_METRICS_TAGS);
    score_metrics *m = score_metrics_new(SCORE_METRICS_ENTITIES, names, 7);
    draw(actual, 600, 7, 9);
    draw(predicted, 600, 7, 10);
    draw(keep, 600, 10, 11);
    for (int i = 0; i < 600; i++)
        predicted[i] = keep[i] < 7 ? actual[i] : predicted[i];
    for (int i = 0; i < 600; i += 12)
        score_metrics_tags(m, predicted + i, actual + i, 12);
    expect(m,
           (by_metric[]){{"f1", 0.7196367763904655},
                         {"precision", 0.723744292237443},
                         {"recall", 0.7155756207674944},
                         {"accuracy", 0.735}},
           4);
    score_metrics_free(m);
    static const struct {
        int actual[3], predicted[3];
        double f1;
    } cases[] = {{{1, 2, 0}, {1, 0, 0}, 0},   /* too short */
                 {{2, 2, 0}, {1, 2, 0}, 1},   /* an I that begins */
                 {{1, 1, 0}, {1, 2, 0}, 0},   /* two in one */
                 {{1, 4, 0}, {1, 4, 4}, 0.5}, /* the second is longer */
                 {{0, 0, 0}, {0, 0, 0}, 0}};
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_metric got[BY_METRICS_MAX];
        m = score_metrics_new(SCORE_METRICS_ENTITIES, names, 7);
        score_metrics_tags(m, cases[i].predicted, cases[i].actual, 3);
        score_metrics_read(m, got);
        assert_true(fabs(got[0].value - cases[i].f1) < 1e-12);
        score_metrics_free(m);
    }
}

static void test_answers(void **state)
{
    (void)state;
    static const struct {
        const char *predicted, *actual[3];
        double exact, f1;
    } cases[] = {
        {"the Cat sat.", {"cat sat", NULL}, 1, 1.0},
        {"A man, a plan", {"man plan canal", "Plan man", NULL}, 0, 1.0},
        {"308", {"308", "three hundred", NULL}, 1, 1.0},
        {"", {NULL}, 1, 1.0},
        {"something", {NULL}, 0, 0.0},
        {"", {"x", NULL}, 0, 0.0},
        {"the\342\200\223end of \303\211", {"end of \303\251", "the end", NULL}, 0, 0.6666666666666666},
        {"an-other the", {"another", NULL}, 1, 1.0},
        {"red red blue", {"red blue blue", NULL}, 0, 0.6666666666666666},
        {"The", {"a", NULL}, 1, 1.0},
        {"  spaced\302\240out\011text ", {"spaced out text", NULL}, 1, 1.0},
        {"U.S. Army's", {"us armys", NULL}, 1, 1.0},
        {"theatre", {"the atre", NULL}, 0, 0.0},
        {"10th (of May)", {"10th of may", "May 10th", NULL}, 1, 1.0},
        {"\303\200\303\207 the2 a_b", {"\303\240\303\247 the2 a b", NULL}, 0, 0.6666666666666666},
    };
    score_metrics *all = score_metrics_new(SCORE_METRICS_ANSWERS, NULL, 0);
    double exact = 0, f1 = 0;
    for (int i = 0; i < BY_COUNT(cases); i++) {
        int count = 0;
        while (count < 3 && cases[i].actual[count])
            count++;
        score_metrics *m = score_metrics_new(SCORE_METRICS_ANSWERS, NULL, 0);
        assert_int_equal(score_metrics_answer(m, cases[i].predicted, cases[i].actual, count), BY_OK);
        assert_int_equal(score_metrics_answer(all, cases[i].predicted, cases[i].actual, count), BY_OK);
        expect(m, (by_metric[]){{"f1", 100 * cases[i].f1}, {"exact_match", 100 * cases[i].exact}}, 2);
        score_metrics_free(m);
        exact += cases[i].exact;
        f1 += cases[i].f1;
    }
    expect(all,
           (by_metric[]){{"f1", 100 * f1 / BY_COUNT(cases)}, {"exact_match", 100 * exact / BY_COUNT(cases)}},
           2);
    score_metrics_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),     cmocka_unit_test(test_rare_classes),
        cmocka_unit_test(test_many_labels), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_entities),    cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
