/* test_relative.c - attention by content and distance in chunks of the queries: results, weights and gradients are those of
 * all queries at once, dropout has the same masks in both passes, and memory does not grow with the pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/pass.h"
#include "graph/graph.h"
#include "model/model.h"
#include "models/xlnet.h"
#include "tiny.h"

enum { B = 2, T = 13, MEMORY = 6, WIDTH = 16, TARGETS = 4, LAYERS = 2 };

static by_device *device;

static void set_chunk(int size)
{
    char text[16];
    snprintf(text, sizeof text, "%d", size);
    setenv("BANYAN_RELATIVE_CHUNK", text, 1);
}

/* What is seen of a model's pass: a row of the table of variants. */
typedef struct variant {
    const char *name, *family;
    int memory; /* two segments, the second of which is looked at */
    int clamp, same_length;
    bool causal;   /* XLNet: uni */
    bool order;    /* two streams by `order` and `pick`, */
    bool mapping;  /* or by `perm_mask` and `target_mapping` */
    bool segments; /* relative segments */
    bool mask;     /* padding at the left */
    bool reversed; /* the second row is a reversed text */
    bool recompute, bf16;
} variant;

static const variant variants[] = {
    {.name = "plain", .family = "transfo-xl"},
    {"memory", "transfo-xl", .memory = MEMORY},
    {"clamp", "transfo-xl", .memory = MEMORY, .clamp = 4},
    {"same length", "transfo-xl", .memory = MEMORY, .same_length = 1},
    {"same length, clamp", "transfo-xl", .memory = MEMORY, .same_length = 1, .clamp = 3},
    {"mask", "transfo-xl", .memory = MEMORY, .mask = true},
    {"recomputed", "transfo-xl", .memory = MEMORY, .recompute = true},
    {"bf16", "transfo-xl", .memory = MEMORY, .bf16 = true},
    {.name = "plain", .family = "xlnet"},
    {"segments, mask", "xlnet", .segments = true, .mask = true},
    {"clamp, reversed", "xlnet", .clamp = 5, .reversed = true, .segments = true},
    {"order", "xlnet", .memory = MEMORY, .order = true, .segments = true, .reversed = true},
    {"order, mask", "xlnet", .memory = MEMORY, .order = true, .segments = true, .mask = true},
    {"mapping", "xlnet", .memory = MEMORY, .mapping = true, .segments = true},
    {"uni", "xlnet", .memory = MEMORY, .causal = true, .segments = true, .mask = true},
    {"uni, same length", "xlnet", .memory = MEMORY, .causal = true, .same_length = 1, .clamp = 9},
    {"uni, order", "xlnet", .memory = MEMORY, .causal = true, .same_length = 1, .order = true,
     .segments = true},
    {"uni, mapping", "xlnet", .memory = MEMORY, .causal = true, .mapping = true},
    {"order, recomputed", "xlnet", .memory = MEMORY, .order = true, .segments = true, .recompute = true},
};

/* ---- a model and its batches ------------------------------------------------------------------ */

static void set_field(by_model *m, const char *key, int value)
{
    const arch_family *a = m->arch;
    for (int i = 0; i < a->n_fields; i++) {
        char *at = (char *)m->config + a->fields[i].offset;
        if (strcmp(a->fields[i].key, key) != 0)
            continue;
        if (a->fields[i].kind == ARCH_FIELD_BOOL)
            *(bool *)at = value != 0;
        else
            *(int *)at = value;
        return;
    }
    fail_msg("no field %s", key);
}

static by_model *model_of(const variant *v, double dropout)
{
    const by_model_shape shape = {
        .layers = LAYERS, .heads = 2, .width = WIDTH, .inner = 24, .context = T, .vocab = TINY_VOCAB};
    by_model *m =
        by_model_new(device, v->family, &shape,
                     &(by_model_spec){.seed = 7, .training = true, .dtype = v->bf16 ? BY_BF16 : BY_F32});
    if (!m)
        fail_msg("%s", by_error_message());
    by_model_set_dropout(m, dropout);
    assert_int_equal(by_model_set_memory(m, v->memory), BY_OK);
    set_field(m, "clamp_len", v->clamp ? v->clamp : -1);
    set_field(m, "same_length", v->same_length);
    if (v->causal)
        ((arch_xlnet_config *)m->config)->causal = true;
    return m;
}

typedef struct rows {
    int32_t tokens[B * T], targets[B * T], segments[B * T], mask[B * T], order[B * T];
    int32_t reversed[B], pick[B * TARGETS];
    float hidden[B * T * T], map[B * TARGETS * T];
} rows;

static void fill_rows(rows *r, int seed)
{
    static const int places[TARGETS] = {2, 5, 6, 11};
    *r = (rows){.reversed = {0, 1}};
    for (int i = 0; i < B * T; i++) {
        r->tokens[i] = (i * 31 + seed * 17 + i * i * 7) % TINY_VOCAB;
        r->targets[i] = (i * 13 + seed * 5 + 1) % TINY_VOCAB;
        r->segments[i] = i % T > 7;
        r->mask[i] = i % T >= i / T * 3; /* three cells of the second row */
    }
    for (int b = 0; b < B; b++)
        for (int k = 0; k < TARGETS; k++) {
            r->pick[b * TARGETS + k] = b * T + places[k];
            r->order[b * T + places[k]] = 1 + (k * 3 + b + seed) % TARGETS;
            r->map[(b * TARGETS + k) * T + places[k]] = 1;
        }
    for (int i = 0; i < B * T * T; i++) {
        const int b = i / (T * T), q = i / T % T, s = i % T;
        r->hidden[i] = r->order[b * T + s] > r->order[b * T + q] || (q == s && r->order[b * T + q]);
    }
}

static by_batch batch_of(const variant *v, const rows *r, by_stream *stream)
{
    by_batch b = by_batch_of(B, T, r->tokens);
    if (v->segments)
        by_batch_put_tokens(&b, "segments", r->segments);
    if (v->mask)
        by_batch_put_tokens(&b, "mask", r->mask);
    if (v->reversed)
        by_batch_put_ids(&b, "reversed", B, r->reversed);
    if (v->order) {
        by_batch_put_tokens(&b, "order", r->order);
        by_batch_put_ids(&b, "pick", B * TARGETS, r->pick);
    }
    if (v->mapping) {
        by_batch_put(&b, "perm_mask", BY_F32, 3, (int64_t[]){B, T, T}, r->hidden);
        by_batch_put(&b, "target_mapping", BY_F32, 3, (int64_t[]){B, TARGETS, T}, r->map);
    }
    if (v->order || v->mapping)
        by_batch_put_ids(&b, "targets", B * TARGETS, r->targets);
    else
        by_batch_put_tokens(&b, "targets", r->targets);
    b.stream = stream;
    return b;
}

/* ---- whole and in chunks ---------------------------------------------------------------------- */

enum { MOST = 1 << 16 };
typedef struct seen {
    float loss, hidden[2 * B * T * WIDTH], weights[LAYERS * B * 2 * T * (T + MEMORY)], grads[MOST];
    int n_hidden, n_weights, n_grads;
} seen;

static void run_pass(by_pass *p, const by_batch *b)
{
    if (!p || by_pass_run(p, b) != BY_OK)
        fail_msg("%s", by_error_message());
}

static void read_grads(const by_params *p, seen *out)
{
    for (int i = 0; i < by_params_count(p); i++) {
        assert_true(out->n_grads + p->list[i].count <= MOST);
        assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, out->grads + out->n_grads), BY_OK);
        out->n_grads += (int)p->list[i].count;
    }
}

static void look(const variant *v, int chunk, seen *out)
{
    by_model *m = model_of(v, 0);
    by_stream *s = v->memory ? by_stream_new(m, B) : NULL;
    rows first, second;
    fill_rows(&first, 1);
    fill_rows(&second, 2);
    const by_batch one = batch_of(v, &first, s), two = batch_of(v, &second, s);
    set_chunk(chunk);
    by_pass *p = by_pass_new(
        m, &two,
        &(by_pass_spec){
            .grads = BY_GRAD_STORE, .hidden = true, .attention = true, .recompute = v->recompute});
    if (s)
        run_pass(p, &one);
    run_pass(p, &two);
    *out = (seen){0};
    assert_int_equal(by_pass_read(p, by_pass_loss(p), &out->loss), BY_OK);
    const by_tensor *t, *last = NULL;
    for (int i = 0; (t = by_io_output_at(by_pass_io(p), "hidden", i)); i++)
        last = t;
    assert_non_null(last);
    out->n_hidden = (int)by_elements(last);
    assert_int_equal(by_pass_read(p, last, out->hidden), BY_OK);
    for (int i = 0; (t = by_io_output_at(by_pass_io(p), "attention", i)); i++) {
        assert_int_equal(by_pass_read(p, t, out->weights + out->n_weights), BY_OK);
        out->n_weights += (int)by_elements(t);
    }
    assert_int_equal(out->n_weights, LAYERS * B * 2 * T * (T + (s ? v->memory : 0)));
    read_grads(by_model_params(m), out);
    by_pass_free(p);
    by_stream_free(s);
    by_model_free(m);
}

/* |a - b| / |a|. */
static double apart(const float *a, const float *b, int count)
{
    double error = 0, size = 0;
    for (int i = 0; i < count; i++) {
        error += (double)(a[i] - b[i]) * (a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    assert_true(size > 0);
    return sqrt(error / size);
}

static void compare(const variant *v, int chunk, const seen *a, const seen *b)
{
    const double bound = v->bf16 ? 2e-2 : 1e-6;
    const double x = apart(a->hidden, b->hidden, a->n_hidden),
                 w = apart(a->weights, b->weights, a->n_weights), d = apart(a->grads, b->grads, a->n_grads);
    if (!(fabs((double)(a->loss - b->loss)) < bound * fabs((double)a->loss) && x < bound && w < bound &&
          d < 5 * bound))
        fail_msg("%s, %s, chunks of %d: loss %g and %g, hidden states differ by %.2g, weights %.2g, "
                 "gradients %.2g",
                 v->family, v->name, chunk, (double)a->loss, (double)b->loss, x, w, d);
}

static void test_chunks(void **state)
{
    (void)state;
    static seen whole, parts;
    for (int i = 0; i < BY_COUNT(variants); i++) {
        look(&variants[i], T, &whole);
        for (int chunk = 1; chunk < T; chunk += 3) {
            look(&variants[i], chunk, &parts);
            compare(&variants[i], chunk, &whole, &parts);
        }
    }
}

/* ---- dropout ---------------------------------------------------------------------------------- */

/* Adds `step` times its gradient to every parameter. */
static void move(by_params *p, double step)
{
    static float value[MOST], grad[MOST];
    for (int i = 0; i < by_params_count(p); i++) {
        assert_int_equal(by_params_get(p, i, BY_SLOT_VALUE, value), BY_OK);
        assert_int_equal(by_params_get(p, i, BY_SLOT_GRAD, grad), BY_OK);
        for (int64_t k = 0; k < (int64_t)p->list[i].count; k++)
            value[k] += (float)(step * (double)grad[k]);
        assert_int_equal(by_params_set(p, i, BY_SLOT_VALUE, value), BY_OK);
    }
}

static double loss_of(by_pass *p, const by_batch *b)
{
    float loss;
    by_program_seed(by_pass_program(p), 5, 3);
    run_pass(p, b);
    assert_int_equal(by_pass_read(p, by_pass_loss(p), &loss), BY_OK);
    return (double)loss;
}

/* Along the gradient the loss rises as its square says: the second pass must draw the masks of the first. */
static void check_dropout(const variant *v)
{
    by_model *m = model_of(v, 0.3);
    by_params *params = by_model_params(m);
    rows r;
    static seen s;
    double square = 0;
    fill_rows(&r, 4);
    const by_batch b = batch_of(v, &r, NULL);
    set_chunk(4);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_STORE});
    loss_of(p, &b);
    s = (seen){0};
    read_grads(params, &s);
    for (int i = 0; i < s.n_grads; i++)
        square += (double)s.grads[i] * (double)s.grads[i];
    const double step = 0.004 / square;
    static float grads[MOST]; /* those of the first pass serve for both sides */
    memcpy(grads, s.grads, sizeof grads);
    move(params, step);
    const double high = loss_of(p, &b);
    for (int i = 0, at = 0; i < by_params_count(params); at += (int)params->list[i].count, i++)
        assert_int_equal(by_params_set(params, i, BY_SLOT_GRAD, grads + at), BY_OK);
    move(params, -2 * step);
    const double low = loss_of(p, &b), slope = (high - low) / (2 * step);
    if (fabs(slope - square) > 0.01 * square)
        fail_msg("%s: the slope is %g, the gradient says %g", v->family, slope, square);
    by_pass_free(p);
    by_model_free(m);
}

static void test_dropout(void **state)
{
    (void)state;
    check_dropout(&(variant){.name = "dropout", .family = "transfo-xl"});
    check_dropout(&(variant){"dropout", "xlnet", .order = true, .segments = true});
}

/* ---- memory ----------------------------------------------------------------------------------- */

static size_t bytes_of(const variant *v, int length, int chunk)
{
    by_model *m = model_of(v, 0);
    int32_t *zeros = calloc((size_t)length, sizeof *zeros);
    assert_non_null(zeros);
    by_batch b = by_batch_of(1, length, zeros);
    by_batch_put_tokens(&b, "targets", zeros);
    set_chunk(chunk);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_STORE});
    if (!p)
        fail_msg("%s", by_error_message());
    const size_t bytes = by_program_bytes(by_pass_program(p));
    by_pass_free(p);
    by_model_free(m);
    free(zeros);
    return bytes;
}

/* By itself the limit leaves texts of 2,048 tokens whole and cuts longer ones. */
static void test_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const variant v = {"memory", i ? "xlnet" : "transfo-xl", .causal = i};
        const size_t whole = bytes_of(&v, 2049, 2049), parts = bytes_of(&v, 2049, 0);
        const size_t usual = bytes_of(&v, 1024, 0), all = bytes_of(&v, 1024, 1024);
        print_message("%s, 2,049 tokens: %zu bytes, %zu in chunks\n", v.family, whole, parts);
        assert_true(parts < whole / 4);
        assert_int_equal(usual, all);
    }
}

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
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
