/* test_distill.c - distillation: layers taken out of a model, every term of the loss against the host's arithmetic and against itself,
 * gradients by differences, layer maps, and what is missing. tests/scripts/distill.sh has the runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "banyan/banyan.h"
#include "banyan/distill.h"
#include "base/base.h"

enum { ROWS = 3, SEQ = 6, VOCAB = 23, HEADS = 2, WIDE = 16 };

static by_device *device;
static int32_t tokens[ROWS * SEQ], mask[ROWS * SEQ], targets[ROWS * SEQ];
static float weights[ROWS * SEQ];

static void expect(by_status s)
{
    if (s != BY_OK)
        fail_msg("%s", by_error_message());
}

static by_model *make(const char *family, int layers, int width, uint64_t seed, bool training)
{
    by_model_shape shape = {
        .layers = layers, .heads = HEADS, .width = width, .context = 16, .vocab = VOCAB, .dropout = 0};
    const by_model_spec spec = {.dtype = BY_F64, .seed = seed, .training = training};
    by_model *m = by_model_new(device, family, &shape, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

static by_model *make_mlm(int layers, int width, uint64_t seed, bool training)
{
    by_model_shape shape = {
        .layers = layers, .heads = HEADS, .width = width, .context = 16, .vocab = VOCAB, .dropout = 0};
    const by_model_spec spec = {.dtype = BY_F64, .seed = seed, .training = training, .task = BY_TASK_MLM};
    by_model *m = by_model_new(device, "bert", &shape, &spec);
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* Rows of 6, 5 and 4 tokens; the targets of the second and fourth count. */
static by_batch batch(void)
{
    for (int i = 0; i < ROWS * SEQ; i++) {
        const int row = i / SEQ, t = i % SEQ;
        tokens[i] = (i * 7 + 3) % VOCAB;
        mask[i] = t < SEQ - row;
        targets[i] = t == 1 || t == 3 ? (i * 5 + 2) % VOCAB : -100;
        weights[i] = mask[i] ? 1.0F / (float)(SEQ - row) : 0;
    }
    by_batch b = by_batch_of(ROWS, SEQ, tokens);
    by_batch_put_tokens(&b, "mask", mask);
    by_batch_put_tokens(&b, "targets", targets);
    by_batch_put(&b, "pool_weights", BY_F32, 2, (int64_t[]){ROWS, SEQ}, weights);
    return b;
}

static by_pass *run(by_model *m, const by_batch *b, by_distill_spec *spec, bool gradients)
{
    by_pass *p = by_pass_new(m, b,
                             &(by_pass_spec){.grads = gradients ? BY_GRAD_STORE : BY_GRAD_NONE,
                                             .hidden = true,
                                             .scores = true,
                                             .loss = by_distill_loss,
                                             .loss_user = spec});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, b));
    return p;
}

static double loss_of(by_pass *p)
{
    double v;
    expect(by_read(by_pass_program(p), by_pass_loss(p), &v, sizeof v));
    return v;
}

static double term(by_model *m, by_distill_spec *spec)
{
    const by_batch b = batch();
    spec->student = m;
    by_pass *p = run(m, &b, spec, false);
    const double v = loss_of(p);
    by_pass_free(p);
    return v;
}

/* ---- layers ------------------------------------------------------------------------------------ */

static float *values_of(const by_model *m, const char *name, size_t *count)
{
    const by_params *p = by_model_params(m);
    const int i = by_params_find(p, name);
    if (i < 0)
        fail_msg("there is no parameter %s", name);
    *count = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        *count *= (size_t)by_params_shape(p, i)[k];
    float *v = malloc(*count * sizeof *v);
    assert_non_null(v);
    expect(by_params_get(p, i, BY_SLOT_VALUE, v));
    return v;
}

static void same_values(const by_model *a, const char *one, const by_model *b, const char *other)
{
    size_t n, m;
    float *x = values_of(a, one, &n), *y = values_of(b, other, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n * sizeof *x);
    free(x);
    free(y);
}

static void test_cut(void **state)
{
    (void)state;
    static const struct {
        const char *family, *from, *to, *shared;
    } all[] = {
        {"bert", "bert.encoder.layer.3.output.dense.weight", "bert.encoder.layer.1.output.dense.weight",
         "bert.embeddings.word_embeddings.weight"},
        {"gpt2", "transformer.h.3.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.weight",
         "transformer.ln_f.weight"},
        {"xlm", "transformer.attentions.3.q_lin.weight", "transformer.attentions.1.q_lin.weight",
         "transformer.embeddings.weight"},
        {"t5", "decoder.block.3.layer.2.DenseReluDense.wo.weight",
         "decoder.block.1.layer.2.DenseReluDense.wo.weight",
         "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
        {"albert", "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight",
         "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight",
         "albert.embeddings.word_embeddings.weight"},
    };
    for (int i = 0; i < BY_COUNT(all); i++) {
        by_model *m = make(all[i].family, 4, WIDE, 3, false);
        by_model *cut =
            by_model_cut(m, (const int[]){1, 3}, 2, &(by_model_spec){.dtype = BY_F64, .training = true});
        if (!cut)
            fail_msg("%s: %s", all[i].family, by_error_message());
        assert_int_equal(by_model_layers(cut), 2);
        assert_int_equal(by_model_task(cut), by_model_task(m));
        same_values(m, all[i].from, cut, all[i].to);
        same_values(m, all[i].shared, cut, all[i].shared);
        by_model_free(cut);
        by_model_free(m);
    }
}

static void test_cut_refuses(void **state)
{
    (void)state;
    by_model *m = make("bert", 2, WIDE, 3, false), *lstm = make("lstm", 2, WIDE, 3, false);
    const by_model_spec spec = {.dtype = BY_F64};
    const int layers[] = {0, 2};
    assert_null(by_model_cut(NULL, layers, 1, &spec));
    assert_null(by_model_cut(m, NULL, 1, &spec));
    assert_null(by_model_cut(m, layers, 1, NULL));
    assert_null(by_model_cut(m, layers, 0, &spec));
    assert_null(by_model_cut(m, layers, 2, &spec));
    assert_non_null(strstr(by_error_message(), "layer 2: the model has the layers 0 to 1"));
    by_model_free(lstm);
    by_model_free(m);
}

static void test_even(void **state)
{
    (void)state;
    static const int six[] = {0, 2, 4, 7, 9, 11}, three[] = {0, 3, 5}, all[] = {0, 1, 2};
    int out[6];
    by_layers_even(12, 6, out); /* DistilBERT's */
    assert_memory_equal(out, six, sizeof six);
    by_layers_even(6, 3, out);
    assert_memory_equal(out, three, sizeof three);
    by_layers_even(3, 3, out);
    assert_memory_equal(out, all, sizeof all);
    by_layers_even(4, 1, out);
    assert_int_equal(out[0], 3);
}

/* ---- terms ------------------------------------------------------------------------------------- */

enum { TERMS = 9 };
static const char *const names[TERMS] = {"soft",          "cosine",       "hidden",
                                         "layers",        "attention",    "relations",
                                         "vector cosine", "vector error", "vector similarity"};

/* The spec with one term alone. */
static by_distill_spec only(int k, const by_model *teacher)
{
    by_distill_spec s = {.teacher = teacher};
    double *all[TERMS] = {&s.soft,      &s.cosine,        &s.hidden,       &s.layers,           &s.attention,
                          &s.relations, &s.vector_cosine, &s.vector_error, &s.vector_similarity};
    *all[k] = 1;
    return s;
}

/* A student that is its teacher has nothing to learn; another has, in every term. */
static void test_own_teacher(void **state)
{
    (void)state;
    by_model *teacher = make_mlm(2, WIDE, 5, false), *other = make_mlm(2, WIDE, 6, false);
    by_model *same = by_model_cut(teacher, (const int[]){0, 1}, 2, &(by_model_spec){.dtype = BY_F64});
    for (int k = 0; k < TERMS; k++) {
        by_distill_spec spec = only(k, teacher);
        const double zero = term(same, &spec), more = term(other, &spec);
        if (!(fabs(zero) < 1e-12) || !(more > 1e-6))
            fail_msg("%s: %g for the same model, %g for another", names[k], zero, more);
    }
    by_model_free(same);
    by_model_free(other);
    by_model_free(teacher);
}

/* y = x w^T + b of BERT's layer `layer`, for a position. */
static void project(const by_model *m, int layer, const char *what, const double *x, double *y)
{
    char name[120];
    size_t n;
    snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.self.%s.weight", layer, what);
    float *w = values_of(m, name, &n);
    snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.self.%s.bias", layer, what);
    float *b = values_of(m, name, &n);
    for (int o = 0; o < WIDE; o++) {
        y[o] = (double)b[o];
        for (int i = 0; i < WIDE; i++)
            y[o] += (double)w[o * WIDE + i] * x[i];
    }
    free(w);
    free(b);
}

/* What the host makes of a model's hidden states. */
typedef struct inside {
    double states[3][ROWS * SEQ * WIDE]; /* embeddings, layer 1, layer 2 */
    double scores[2][ROWS][HEADS][SEQ][SEQ],
        values[ROWS][HEADS][SEQ][SEQ]; /* values: products of the last layer */
} inside;

static double dot_heads(const double *a, const double *b, int h)
{
    double sum = 0;
    for (int i = 0; i < WIDE / HEADS; i++)
        sum += a[h * WIDE / HEADS + i] * b[h * WIDE / HEADS + i];
    return sum / sqrt((double)WIDE / HEADS);
}

static void look_inside(by_model *m, inside *out)
{
    const by_batch b = batch();
    static double q[SEQ][WIDE], k[SEQ][WIDE], v[SEQ][WIDE];
    by_distill_spec spec = only(1, m);
    spec.student = m;
    by_pass *p = run(m, &b, &spec, false);
    for (int l = 0; l < 3; l++)
        expect(by_read(by_pass_program(p), by_io_output_at(by_pass_io(p), "hidden", l), out->states[l],
                       sizeof out->states[l]));
    by_pass_free(p);
    for (int l = 0; l < 2; l++)
        for (int r = 0; r < ROWS; r++) {
            for (int t = 0; t < SEQ; t++) {
                const double *x = out->states[l] + (r * SEQ + t) * WIDE;
                project(m, l, "query", x, q[t]);
                project(m, l, "key", x, k[t]);
                project(m, l, "value", x, v[t]);
            }
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < SEQ; i++)
                    for (int j = 0; j < SEQ; j++) {
                        out->scores[l][r][h][i][j] = dot_heads(q[i], k[j], h);
                        out->values[r][h][i][j] = dot_heads(v[i], v[j], h);
                    }
        }
}

/* KL(softmax(y) || softmax(x)) over the first n. */
static double divergence(const double *x, const double *y, int n)
{
    double zx = 0, zy = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        zx += exp(x[i]);
        zy += exp(y[i]);
    }
    for (int i = 0; i < n; i++)
        sum += exp(y[i]) / zy * (y[i] - log(zy) - x[i] + log(zx));
    return sum;
}

static void test_host(void **state)
{
    (void)state;
    by_model *teacher = make_mlm(2, WIDE, 5, false), *student = make_mlm(2, WIDE, 6, false);
    static inside x, y;
    double layers = 0, attention = 0, relations = 0;
    int positions = 0, pairs = 0;
    look_inside(student, &x);
    look_inside(teacher, &y);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0, n = SEQ - r; i < n; i++, positions++) {
            for (int l = 0; l < 3; l++)
                for (int c = 0; c < WIDE; c++)
                    layers +=
                        pow(x.states[l][(r * SEQ + i) * WIDE + c] - y.states[l][(r * SEQ + i) * WIDE + c],
                            2) /
                        WIDE / 3;
            pairs += n;
            for (int h = 0; h < HEADS; h++) {
                relations += divergence(x.scores[1][r][h][i], y.scores[1][r][h][i], n) / HEADS;
                relations += divergence(x.values[r][h][i], y.values[r][h][i], n) / HEADS;
                for (int l = 0; l < 2; l++)
                    for (int j = 0; j < n; j++)
                        attention += pow(x.scores[l][r][h][i][j] - y.scores[l][r][h][i][j], 2) / HEADS / 2;
            }
        }
    by_distill_spec of_layers = only(3, teacher), of_scores = only(4, teacher),
                    of_relations = only(5, teacher);
    assert_true(fabs(term(student, &of_layers) - layers / positions) < 1e-6 * layers / positions);
    assert_true(fabs(term(student, &of_scores) - attention / pairs) < 1e-5 * attention / pairs);
    assert_true(fabs(term(student, &of_relations) - relations / positions) < 1e-5 * relations / positions);
    by_model_free(student);
    by_model_free(teacher);
}

/* A student of one layer learns from the last layer of two, unless the map says the first. */
static void test_map(void **state)
{
    (void)state;
    by_model *teacher = make_mlm(2, WIDE, 5, false), *student = make_mlm(1, WIDE, 6, false);
    static const int first[] = {1}, last[] = {2};
    by_distill_spec spec = only(3, teacher);
    const double usual = term(student, &spec);
    spec.map = last;
    const double second = term(student, &spec);
    spec.map = first;
    assert_true(usual == second);
    assert_true(fabs(term(student, &spec) - usual) > 1e-9);
    by_model_free(student);
    by_model_free(teacher);
}

/* by_distill_loss, with the scores of the student readable. */
static by_tensor *loss_and_scores(void *spec, by_graph *g, by_model_io *io)
{
    by_output(g, NULL, by_io_output(io, "scores"));
    return by_distill_loss(spec, g, io);
}

enum { PAIRS = ROWS * HEADS * SEQ * SEQ };

static double read_scores(by_model *m, by_distill_spec *spec, double *scores)
{
    const by_batch b = by_batch_of(ROWS, SEQ, tokens);
    by_pass *p =
        by_pass_new(m, &b, &(by_pass_spec){.scores = true, .loss = loss_and_scores, .loss_user = spec});
    if (!p)
        fail_msg("%s", by_error_message());
    expect(by_pass_run(p, &b));
    expect(
        by_read(by_pass_program(p), by_io_output(by_pass_io(p), "scores"), scores, PAIRS * sizeof *scores));
    const double loss = loss_of(p);
    by_pass_free(p);
    return loss;
}

/* Scores of keys that a causal model does not see count for nothing. GPT-2 has packed projections. */
static void test_causal(void **state)
{
    (void)state;
    by_model *teacher = make("gpt2", 1, WIDE, 5, false), *student = make("gpt2", 1, WIDE, 6, false);
    by_distill_spec spec = {.teacher = teacher, .attention = 1};
    static double x[PAIRS], y[PAIRS];
    double sum = 0;
    batch();
    read_scores(teacher, &spec, y);
    const double loss = read_scores(student, &spec, x);
    for (int i = 0; i < PAIRS; i++)
        if (i % SEQ <= i / SEQ % SEQ)
            sum += pow(x[i] - y[i], 2);
    const double mean = sum / (ROWS * HEADS * SEQ * (SEQ + 1) / 2.0);
    assert_true(fabs(loss - mean) < 1e-9 * mean);
    by_model_free(student);
    by_model_free(teacher);
}

/* ---- gradients --------------------------------------------------------------------------------- */

/* The gradient of an element of a parameter, and the difference of losses around it. */
static void compare_gradient(by_model *m, by_distill_spec *spec, by_params *list, int i, int at,
                             const char *what)
{
    const by_batch b = batch();
    float value[4096], gradient[4096];
    double side[2];
    by_pass *p = run(m, &b, spec, true);
    expect(by_params_get(list, i, BY_SLOT_GRAD, gradient));
    expect(by_params_get(list, i, BY_SLOT_VALUE, value));
    const float old = value[at];
    for (int k = 0; k < 2; k++) {
        value[at] = old + (k ? 1e-3F : -1e-3F);
        expect(by_params_set(list, i, BY_SLOT_VALUE, value));
        expect(by_pass_run(p, &b));
        side[k] = loss_of(p);
    }
    const double step = (double)(old + 1e-3F) - (double)(old - 1e-3F), slope = (side[1] - side[0]) / step;
    value[at] = old;
    expect(by_params_set(list, i, BY_SLOT_VALUE, value));
    by_pass_free(p);
    if (!(fabs(slope - (double)gradient[at]) < 1e-3 * fabs(slope) + 1e-7))
        fail_msg("%s: the gradient is %g, the slope %g", what, (double)gradient[at], slope);
}

/* Every term, of a student of another width where it can be. */
static void test_gradients(void **state)
{
    (void)state;
    by_model *teacher = make_mlm(2, WIDE, 5, false), *student = make_mlm(1, 2 * WIDE, 6, true);
    by_params *projection = by_distill_projection(student, teacher, 1), *own = by_model_params(student);
    assert_non_null(projection);
    const int value = by_params_find(own, "bert.encoder.layer.0.attention.self.value.weight");
    const int query = by_params_find(own, "bert.encoder.layer.0.attention.self.query.weight");
    for (int k = 0; k < TERMS; k++) {
        by_distill_spec spec = only(k, teacher);
        spec.student = student;
        spec.projection = projection;
        compare_gradient(student, &spec, own, value, 37,
                         names[k]); /* of the attention scores of a single layer it is 0 */
        compare_gradient(student, &spec, own, query, 5, names[k]);
        if (k == 3)
            compare_gradient(student, &spec, projection, by_params_find(projection, "projection.weight"), 9,
                             "projection");
    }
    by_params_free(projection);
    by_model_free(student);
    by_model_free(teacher);
}

/* ---- what is missing --------------------------------------------------------------------------- */

static void fails(by_model *m, by_distill_spec *spec, const char *text)
{
    const by_batch b = batch();
    spec->student = m;
    assert_null(by_pass_new(
        m, &b, &(by_pass_spec){.hidden = true, .scores = true, .loss = by_distill_loss, .loss_user = spec}));
    if (!strstr(by_error_message(), text))
        fail_msg("the message is \"%s\"", by_error_message());
}

static void test_missing(void **state)
{
    (void)state;
    by_model *teacher = make_mlm(2, WIDE, 5, false), *wide = make_mlm(1, 2 * WIDE, 6, false);
    by_distill_spec spec = only(2, teacher);
    fails(wide, &spec, "without a projection");
    spec = (by_distill_spec){.teacher = teacher};
    fails(wide, &spec, "no term of the distillation has a weight");
    spec = (by_distill_spec){.soft = 1};
    fails(wide, &spec, "the batch no such array");
    by_distill_spec terms = {0};
    by_distill_result result;
    by_distill_run_spec run_spec = by_distill_defaults();
    assert_int_equal(by_distill_recipe("none", BY_DISTILL_TEXT, &terms), BY_ERR_ARGUMENT);
    assert_int_equal(by_distill_recipe(NULL, BY_DISTILL_TEXT, &terms), BY_ERR_ARGUMENT);
    assert_int_equal(by_distill_recipe("minilm", BY_DISTILL_TEXT, NULL), BY_ERR_ARGUMENT);
    assert_int_equal(by_distill_run(NULL, &run_spec, &result), BY_ERR_ARGUMENT);
    assert_int_equal(by_distill_run(device, NULL, &result), BY_ERR_ARGUMENT);
    assert_int_equal(by_distill_run(device, &run_spec, NULL), BY_ERR_ARGUMENT);
    assert_int_equal(by_distill_run(device, &run_spec, &result), BY_ERR_ARGUMENT);
    assert_null(by_distill_projection(NULL, teacher, 1));
    by_model_free(wide);
    by_model_free(teacher);
}

static void test_recipes(void **state)
{
    (void)state;
    by_distill_spec t = {.cosine = -1, .task = 3};
    expect(by_distill_recipe("distilbert", BY_DISTILL_TEXT, &t));
    assert_true(t.soft == 5 && t.task == 3 && t.cosine == 0 && t.temperature == 2);
    t = (by_distill_spec){0};
    expect(by_distill_recipe("minilm", BY_DISTILL_TEXT, &t));
    assert_true(t.relations == 1 && t.soft == 0 && t.task == 0);
    by_distill_kind kind;
    assert_true(by_distill_find("vectors", &kind) && kind == BY_DISTILL_VECTORS);
    assert_string_equal(by_distill_name(BY_DISTILL_TRANSLATE), "translate");
    assert_false(by_distill_find("nothing", &kind));
}

static int open_device(void **state)
{
    (void)state;
    device = by_device_open("cpu", 1);
    return device ? 0 : -1;
}

static int close_device(void **state)
{
    (void)state;
    by_device_free(device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),     cmocka_unit_test(test_cut_refuses),
        cmocka_unit_test(test_even),    cmocka_unit_test(test_own_teacher),
        cmocka_unit_test(test_host),    cmocka_unit_test(test_map),
        cmocka_unit_test(test_causal),  cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_recipes),
    };
    return cmocka_run_group_tests_name("distill", tests, open_device, close_device);
}
