/* test_reformer.c - Reformer: reversible layers have the gradients of layers that are kept, and need the same
 * memory however many there are; parts of the feed-forward block and padding inside a model change no value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "banyan/model.h"
#include "banyan/pass.h"
#include "graph_case.h"
#include "models/reformer.h"

enum { BATCH = 2, WIDTH = 32, MOST = 24 };

static const arch_reformer_config usual = {.width = WIDTH,
                                           .layers = 4,
                                           .heads = 2,
                                           .head_dim = 8,
                                           .inner = 64,
                                           .context = 4096,
                                           .lsh_chunk = 8,
                                           .lsh_before = 1,
                                           .local_chunk = 4,
                                           .local_before = 1,
                                           .hashes = 2,
                                           .lsh = {false, true, true, false},
                                           .causal = true,
                                           .eps = 1e-5f,
                                           .std = 0.2f,
                                           .act = BY_RELU};

/* A stack of layers between an input and a loss. */
typedef struct stack {
    arch_reformer_config config;
    by_params *params;
    by_program *program;
    by_tensor *x, *mask, *loss;
    int length;
} stack;

static void stack_open(stack *s, const arch_reformer_config *config, int length, bool kept, bool training)
{
    *s = (stack){.config = *config, .params = new_params(), .length = length};
    by_graph *g = new_graph(s->params, training);
    s->x = f32_input(g, "x", SHAPE(BATCH, length, WIDTH));
    s->mask = by_input(g, "mask", BY_I32, SHAPE(BATCH, length));
    by_tensor *w = by_param(g, "embed", SHAPE(WIDTH, WIDTH), (by_init){BY_INIT_NORMAL, 0.3f});
    by_tensor *streams[2];
    streams[0] = streams[1] = by_linear(g, s->x, w, NULL, NULL);
    for (int i = 0; i < config->layers; i++) {
        arch_reformer_layer *l = base_arena_alloc(g->arena, sizeof *l);
        assert_non_null(l);
        *l = (arch_reformer_layer){.config = &s->config,
                                   .index = i,
                                   .type = BY_F32,
                                   .length = arch_reformer_length(config, length),
                                   .mask = s->mask,
                                   .kept = kept};
        arch_reformer_step(g, l, streams);
    }
    by_tensor *all = by_mul(g, by_add(g, streams[0], streams[1]), streams[1]);
    s->loss = by_output(g, "loss", by_mean(g, by_reshape(g, all, SHAPE(BATCH * length * WIDTH)), 0));
    assert_int_equal(by_params_freeze(s->params, true), BY_OK);
    assert_int_equal(by_params_init(s->params, 3), BY_OK);
    s->program = by_compile(g, &(by_compile_spec){.loss = training ? s->loss : NULL,
                                                  .grads = training ? BY_GRAD_STORE : BY_GRAD_NONE});
    if (!s->program)
        fail_msg("%s", by_error_message());
}

static void stack_close(stack *s)
{
    by_program_free(s->program);
    by_params_free(s->params);
}

/* The last fifth of the second text is padding. */
static float stack_run(stack *s)
{
    static float x[BATCH * 4096 * WIDTH];
    static int32_t mask[BATCH * 4096];
    float loss;
    for (int i = 0; i < BATCH * s->length * WIDTH; i++)
        x[i] = sinf(1.7f * (float)i);
    for (int i = 0; i < BATCH * s->length; i++)
        mask[i] = i < BATCH * s->length - s->length / 5;
    by_program_seed(s->program, 8, 1);
    assert_int_equal(by_write(s->program, s->x, x, sizeof *x * (size_t)by_elements(s->x)), BY_OK);
    assert_int_equal(by_write(s->program, s->mask, mask, sizeof *mask * (size_t)by_elements(s->mask)), BY_OK);
    if (by_run(s->program) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_read_f32(s->program, s->loss, &loss), BY_OK);
    return loss;
}

static double gradient_error(const stack *a, const stack *b)
{
    static float here[64 * WIDTH], there[64 * WIDTH];
    double error = 0, size = 0;
    for (int i = 0; i < by_params_count(a->params); i++) {
        const int64_t count = a->params->list[i].count;
        const int j = by_params_find(b->params, by_params_name(a->params, i));
        assert_true(count <= BY_COUNT(here) && j >= 0);
        assert_int_equal(by_params_get(a->params, i, BY_SLOT_GRAD, here), BY_OK);
        assert_int_equal(by_params_get(b->params, j, BY_SLOT_GRAD, there), BY_OK);
        for (int64_t k = 0; k < count; k++) {
            error += pow((double)here[k] - (double)there[k], 2);
            size += pow((double)there[k], 2);
        }
    }
    assert_true(size > 1e-6);
    return sqrt(error / size);
}

static void test_gradients(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        arch_reformer_config c = usual;
        c.ff_chunk = which & 1 ? 7 : 0;
        c.drop = c.lsh_drop = c.local_drop = which & 2 ? 0.2f : 0;
        stack own, kept;
        stack_open(&own, &c, 45, false, true);
        stack_open(&kept, &c, 45, true, true);
        const float loss = stack_run(&own), right = stack_run(&kept);
        assert_true(fabsf(loss - right) < 1e-6f * fabsf(right));
        const double error = gradient_error(&own, &kept);
        if (!(error < 1e-5))
            fail_msg("gradients differ by %.3g (case %d)", error, which);
        stack_close(&own);
        stack_close(&kept);
    }
}

static size_t bytes_of(const arch_reformer_config *c, int length, bool kept)
{
    stack s;
    stack_open(&s, c, length, kept, true);
    const size_t bytes = by_program_bytes(s.program);
    stack_close(&s);
    return bytes;
}

static void test_depth(void **state)
{
    (void)state;
    size_t own[2], kept[2];
    for (int k = 0; k < 2; k++) {
        arch_reformer_config c = usual;
        c.layers = k ? MOST : 6;
        c.hashes = 1;
        for (int i = 0; i < MOST; i++)
            c.lsh[i] = i % 2;
        own[k] = bytes_of(&c, 512, false);
        kept[k] = bytes_of(&c, 512, true);
    }
    print_message("6 and 24 layers: %zu and %zu bytes; kept %zu and %zu\n", own[0], own[1], kept[0], kept[1]);
    assert_true((double)own[1] < 1.1 * (double)own[0]);
    assert_true(kept[1] > 3 * kept[0]);
}

/* The feed-forward block in parts: the same values, in less memory. */
static void test_parts(void **state)
{
    (void)state;
    arch_reformer_config c = usual;
    c.inner = 16 * WIDTH;
    memset(c.lsh, 0, sizeof c.lsh);
    c.lsh[0] = true; /* layers after it would draw other rotations, by the number of their node */
    const size_t whole = bytes_of(&c, 512, false);
    stack a, b;
    stack_open(&a, &c, 512, false, true);
    c.ff_chunk = 32;
    const size_t parts = bytes_of(&c, 512, false);
    stack_open(&b, &c, 512, false, true);
    print_message("feed-forward block of 512 positions: %zu bytes, in parts of 32: %zu\n", whole, parts);
    assert_true(2 * parts < whole);
    const float one = stack_run(&a), two = stack_run(&b);
    assert_true(fabsf(one - two) < 1e-6f * fabsf(one));
    stack_close(&a);
    stack_close(&b);
}

/* ---- the op, as the paper has it --------------------------------------------------------------- */

enum { ROWS = 19, CHUNK = 4, CHUNKS = 5, ROUNDS = 2, DIM = 6, SLOTS = ROUNDS * CHUNKS * CHUNK };

typedef struct meeting {
    float q[ROWS][DIM], k[ROWS][DIM], v[ROWS][DIM];
    int32_t order[ROUNDS][ROWS], mask[ROWS];
    bool sorted, causal, avoid;
    int before, after;
} meeting;

/* The row in a slot of all rounds, one after the other; -1: padding. */
static int row_in(const meeting *m, int slot)
{
    const int round = slot / (CHUNKS * CHUNK), at = slot % (CHUNKS * CHUNK);
    return at >= ROWS ? -1 : m->sorted ? m->order[round][at] : at;
}

/* One round's softmax of the row in a slot: its output and log-sum-exp. */
static double attend_in_slot(const meeting *m, int slots, int slot, double *y)
{
    const int row = row_in(m, slot), width = (m->before + 1 + m->after) * CHUNK;
    double score[64], sum = 0, most = -INFINITY;
    int key[64];
    for (int j = 0; j < width; j++) {
        const int chunk = slot / CHUNK + j / CHUNK - m->before;
        key[j] = row_in(m, (chunk + slots / CHUNK) % (slots / CHUNK) * CHUNK + j % CHUNK);
        score[j] = -1e9;
        if (key[j] < 0)
            continue;
        double dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += (double)m->q[row][d] * (double)m->k[key[j]][d];
        if (m->mask[key[j]] && !(m->causal && key[j] > row))
            score[j] = dot / sqrt(DIM);
        if (m->avoid && key[j] == row)
            score[j] = -1e5;
    }
    for (int j = 0; j < width; j++)
        most = fmax(most, score[j]);
    for (int j = 0; j < width; j++)
        sum += exp(score[j] - most);
    for (int d = 0; d < DIM; d++) {
        y[d] = 0;
        for (int j = 0; j < width; j++)
            y[d] += key[j] < 0 ? 0 : exp(score[j] - most) / sum * (double)m->v[key[j]][d];
    }
    return most + log(sum);
}

/* Rounds are merged by the softmax over their log-sum-exps. */
static void attend_all(const meeting *m, double (*y)[DIM])
{
    const int slots = m->sorted ? SLOTS : CHUNKS * CHUNK;
    static double part[SLOTS][DIM], lse[SLOTS];
    for (int s = 0; s < slots; s++)
        if (row_in(m, s) >= 0)
            lse[s] = attend_in_slot(m, slots, s, part[s]);
    for (int t = 0; t < ROWS; t++) {
        double sum = 0, most = -INFINITY;
        for (int d = 0; d < DIM; d++)
            y[t][d] = 0;
        for (int s = 0; s < slots; s++)
            most = row_in(m, s) == t ? fmax(most, lse[s]) : most;
        for (int s = 0; s < slots; s++)
            if (row_in(m, s) == t) {
                sum += exp(lse[s] - most);
                for (int d = 0; d < DIM; d++)
                    y[t][d] += exp(lse[s] - most) * part[s][d];
            }
        for (int d = 0; d < DIM; d++)
            y[t][d] /= sum;
    }
}

static void make_meeting(meeting *m, int which)
{
    *m = (meeting){.sorted = which & 1, .causal = which & 2, .avoid = which & 1, .before = 1 + which / 4 % 2};
    m->after = m->causal ? 0 : 1;
    float *all[] = {m->q[0], m->k[0], m->v[0]};
    for (int i = 0; i < 3 * ROWS * DIM; i++)
        all[i / (ROWS * DIM)][i % (ROWS * DIM)] = 2 * sinf(1.3f * (float)(i + 1) * (float)(which + 1));
    for (int t = 0; t < ROWS; t++) {
        m->mask[t] = t % 7 != 3 || which < 4;
        m->order[0][t] = t * 7 % ROWS;
        m->order[1][t] = (t * 5 + 3) % ROWS;
    }
}

/* Rows that see something besides themselves: the others have the roundings of the reference. */
static bool sees_others(const meeting *m, int row)
{
    return m->mask[row] && !(m->causal && row < ROWS / 2);
}

static void test_meaning(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        static meeting m;
        static double right[ROWS][DIM];
        static float here[ROWS][DIM];
        make_meeting(&m, which);
        attend_all(&m, right);
        by_params *params = new_params();
        by_graph *g = new_graph(params, false);
        by_tensor *in[3];
        for (int i = 0; i < 3; i++)
            in[i] = f32_input(g, i == 0 ? "q" : i == 1 ? "k" : "v", SHAPE(1, ROWS, DIM));
        by_tensor *order = m.sorted ? by_input(g, "order", BY_I32, SHAPE(1, 1, ROUNDS, ROWS)) : NULL;
        by_tensor *mask = by_input(g, "mask", BY_I32, SHAPE(1, ROWS));
        by_tensor *y = by_output(g, "y",
                                 by_chunked_attention(g, in[0], in[1], in[2],
                                                      &(by_chunked_spec){.heads = 1,
                                                                         .chunk = CHUNK,
                                                                         .before = m.before,
                                                                         .after = m.after,
                                                                         .causal = m.causal,
                                                                         .avoid_self = m.avoid,
                                                                         .order = order,
                                                                         .key_mask = mask}));
        assert_int_equal(by_params_freeze(params, false), BY_OK);
        by_program *p = by_compile(g, NULL);
        if (!p)
            fail_msg("%s", by_error_message());
        const void *const values[] = {m.q, m.k, m.v};
        for (int i = 0; i < 3; i++)
            assert_int_equal(by_write(p, in[i], values[i], sizeof m.q), BY_OK);
        if (order)
            assert_int_equal(by_write(p, order, m.order, sizeof m.order), BY_OK);
        assert_int_equal(by_write(p, mask, m.mask, sizeof m.mask), BY_OK);
        assert_int_equal(by_run(p), BY_OK);
        assert_int_equal(by_read_f32(p, y, here[0]), BY_OK);
        for (int t = 0; t < ROWS; t++)
            for (int d = 0; d < DIM && sees_others(&m, t); d++)
                if (!(fabs((double)here[t][d] - right[t][d]) < 1e-5))
                    fail_msg("case %d, row %d: %g is not %g", which, t, (double)here[t][d], right[t][d]);
        by_program_free(p);
        by_params_free(params);
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

enum { VOCAB = 50, CONTEXT = 128, HEADS = 2, HEAD_DIM = 16 };

static by_model *small_model(void)
{
    by_model *m = by_model_new(device, "reformer",
                               &(by_model_shape){.preset = "tiny",
                                                 .layers = 2,
                                                 .heads = HEADS,
                                                 .width = HEADS * HEAD_DIM,
                                                 .context = CONTEXT,
                                                 .vocab = VOCAB,
                                                 .dropout = 0},
                               &(by_model_spec){.seed = 5, .task = BY_TASK_LM, .training = true});
    if (!m)
        fail_msg("%s", by_error_message());
    return m;
}

/* Logits of the first `keep` positions of one text, padded with masked tokens to `length`. */
static void logits_of(by_model *m, int keep, int length, bool masked, float *out)
{
    static int32_t tokens[CONTEXT], mask[CONTEXT];
    static float all[CONTEXT * VOCAB], rotations[HEADS * HEAD_DIM * 64];
    for (int t = 0; t < length; t++) {
        tokens[t] = t < keep ? (t * t + 3) % VOCAB : 0;
        mask[t] = t < keep;
    }
    for (int i = 0; i < BY_COUNT(rotations); i++)
        rotations[i] = cosf(2.3f * (float)i);
    by_batch b = by_batch_of(1, length, tokens);
    by_batch_put_tokens(&b, "mask", masked ? mask : NULL);
    /* chunks of 32: 2 * 128 / 32 buckets at most, found from the length with its padding */
    const int64_t buckets = 2 * ((keep + 31) / 32) >= 8 ? 8 : 4;
    by_batch_put(&b, "rotations.0", BY_F32, 4, (int64_t[]){HEADS, HEAD_DIM, 1, buckets / 2}, rotations);
    by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_NONE});
    if (!p || by_pass_run(p, &b) != BY_OK)
        fail_msg("%s", by_error_message());
    assert_int_equal(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), all), BY_OK);
    memcpy(out, all, sizeof *out * (size_t)(keep * VOCAB));
    by_pass_free(p);
}

/* A text of any length is what it is with padding up to whole chunks. */
static void test_lengths(void **state)
{
    (void)state;
    static float a[CONTEXT * VOCAB], b[CONTEXT * VOCAB];
    static const int lengths[][2] = {{33, 64}, {61, 64}, {100, 128}, {127, 128}};
    by_model *m = small_model();
    for (int i = 0; i < BY_COUNT(lengths); i++) {
        logits_of(m, lengths[i][0], lengths[i][0], false, a);
        logits_of(m, lengths[i][0], lengths[i][1], true, b);
        for (int k = 0; k < lengths[i][0] * VOCAB; k++)
            if (!(fabsf(a[k] - b[k]) < 1e-5f))
                fail_msg("length %d: logit %d is %g, padded %g", lengths[i][0], k, (double)a[k],
                         (double)b[k]);
    }
    by_model_free(m);
}

/* Every length trains, with and without a mask. */
static void test_training(void **state)
{
    (void)state;
    static int32_t tokens[CONTEXT], mask[CONTEXT];
    by_model *m = small_model();
    for (int length = 1; length <= CONTEXT; length += 21)
        for (int masked = 0; masked < 2; masked++) {
            float loss;
            for (int t = 0; t < length; t++) {
                tokens[t] = t % VOCAB;
                mask[t] = t < length - length / 4;
            }
            const int64_t count = length;
            by_batch b = by_batch_of(1, length, tokens);
            by_batch_put_tokens(&b, "mask", masked ? mask : NULL);
            by_batch_put(&b, "targets", BY_I32, 1, &count, tokens);
            by_pass *p = by_pass_new(m, &b, &(by_pass_spec){.grads = BY_GRAD_STORE});
            if (!p || by_pass_run(p, &b) != BY_OK)
                fail_msg("length %d: %s", length, by_error_message());
            assert_int_equal(by_pass_read(p, by_pass_loss(p), &loss), BY_OK);
            assert_true(isfinite(loss) && loss > 0.1f);
            by_pass_free(p);
        }
    by_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meaning), cmocka_unit_test(test_gradients), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_lengths),   cmocka_unit_test(test_training),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
