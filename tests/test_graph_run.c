/* test_graph_run.c - the memory plan, states, traces and texts of compiled graphs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "decoder_case.h"

/* ---- memory ---------------------------------------------------------------------------------- */

/* The nodes a tensor's memory is in use for: everything that shares it. */
static void extent(const by_graph *g, const by_tensor *root, int *first, int *last)
{
    *first = root->node ? g->n_nodes : -1;
    *last = root->node ? -1 : g->n_nodes;
    for (int i = 0; i < g->n_nodes; i++) {
        const gr_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out; k++)
            if (n->out[k] && n->out[k]->root == root) {
                *first = BY_MIN(*first, i);
                *last = BY_MAX(*last, n->out[k]->is_output ? g->n_nodes : i);
            }
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] && n->in[k]->root == root)
                *last = BY_MAX(*last, i);
    }
}

/* Roots that are alive at the same time do not overlap, and nothing lies outside; found out here from the
 * nodes alone. */
static void check_plan(const by_program *p, bool reuses)
{
    enum { MOST = 2000 };
    const by_graph *g = p->graph;
    static const by_tensor *roots[MOST];
    static int first[MOST], last[MOST];
    int count = 0, taken_over = 0;
    for (int i = 0; i < g->n_leaves; i++)
        if (g->leaves[i]->place == GR_PLACE_INPUT)
            roots[count++] = g->leaves[i];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            const by_tensor *t = g->nodes[i]->out[k];
            taken_over += t && t->root != t && gr_ops[g->nodes[i]->op].over != 0;
            if (t && t->root == t && t->place == GR_PLACE_PLANNED)
                roots[count++] = t;
        }
    assert_true(count < MOST);
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        size_t begin = roots[i]->offset, end = begin + gr_tensor_bytes(roots[i]);
        extent(g, roots[i], &first[i], &last[i]);
        sum += gr_tensor_bytes(roots[i]);
        assert_true(begin % 64 == 0 && end <= p->bytes);
        assert_ptr_equal(roots[i]->data, (char *)p->memory + begin);
        for (int j = 0; j < i; j++) {
            size_t other = roots[j]->offset;
            if (first[i] <= last[j] && first[j] <= last[i] && begin < other + gr_tensor_bytes(roots[j]) &&
                other < end)
                fail_msg("%s (nodes %d to %d) and %s (nodes %d to %d) overlap", gr_tensor_label(roots[i]),
                         first[i], last[i], gr_tensor_label(roots[j]), first[j], last[j]);
        }
    }
    if (reuses) {
        assert_true(taken_over > 0);
        assert_true(p->bytes < sum);
    }
}

static void test_plan(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    for (int k = 0; k < 8; k++) {
        decoder d;
        by_compile_spec spec = {
            .grads = k & 1 ? BY_GRAD_ADD : BY_GRAD_STORE, .recompute = k & 2, .no_fusion = k & 4};
        by_program *p = decoder_program(params, 0.1f, spec, &d);
        check_plan(p, true);
        by_program_free(p);
    }
    by_params_free(params);
}

/* Planned memory gives what memory that is never used twice gives. */
static void test_reuse(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    float loss[2];
    float *grads[2];
    for (int keep = 0; keep < 2; keep++) {
        by_graph *g = new_graph(params, true);
        decoder d = build_decoder(g, 0.1f);
        for (int i = 0; keep && i < g->n_nodes; i++)
            for (int k = 0; k < g->nodes[i]->n_out; k++)
                if (g->nodes[i]->out[k])
                    by_output(g, NULL, g->nodes[i]->out[k]);
        if (!params->frozen)
            freeze(params);
        by_program *p =
            compile(g, (by_compile_spec){.loss = d.loss, .grads = BY_GRAD_STORE, .no_fusion = true});
        check_plan(p, !keep);
        int32_t ids[B * T];
        for (int i = 0; i < B * T; i++)
            ids[i] = i % V;
        write_i32(p, d.ids, ids);
        write_i32(p, d.targets, ids);
        run(p);
        run(p);
        by_read_f32(p, d.loss, &loss[keep]);
        grads[keep] = all_gradients(params);
        by_program_free(p);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(grads[0], grads[1], (size_t)params->trained * sizeof(float));
    base_free(grads[0]);
    base_free(grads[1]);
    by_params_free(params);
}

/* Views share memory, also with parameters and inputs, and keep it alive. */
static void test_views(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, false);
    by_tensor *x = f32_input(g, "x", SHAPE(2, 6)), *w = by_param(g, "w", SHAPE(12), normal);
    by_tensor *in_x = by_output(g, "in_x", by_reshape(g, x, SHAPE(3, -1)));
    by_tensor *in_w = by_output(g, "in_w", by_reshape(g, w, SHAPE(2, 2, 3)));
    by_tensor *y = by_scale(g, x, 2), *view = by_reshape(g, y, SHAPE(12));
    by_tensor *z = by_scale(g, y, 3); /* must not take over what the view still needs */
    by_tensor *both = by_output(g, "both", by_add(g, view, by_reshape(g, z, SHAPE(12))));
    assert_int_equal(by_dim(in_x, 1), 4);
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    check_plan(p, false);
    assert_ptr_equal(in_x->data, x->data);
    assert_ptr_equal(in_w->data, w->data);
    float v[12], out[12];
    for (int i = 0; i < 12; i++)
        v[i] = (float)i;
    by_write(p, x, v, sizeof v);
    run(p);
    assert_int_equal(by_read_f32(p, in_x, out), BY_OK);
    assert_memory_equal(out, v, sizeof v);
    assert_int_equal(by_read_f32(p, both, out), BY_OK);
    for (int i = 0; i < 12; i++)
        assert_true(out[i] == 8 * v[i]);
    by_params_get(params, 0, BY_SLOT_VALUE, v);
    assert_int_equal(by_read_f32(p, in_w, out), BY_OK);
    assert_memory_equal(out, v, sizeof v);
    by_program_free(p);
    by_params_free(params);
}

/* Axes of size 0 are legal where a batch may be empty. */
static void test_empty(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *x = f32_input(g, "x", SHAPE(0, 3, 8)), *gamma = by_param(g, "gamma", SHAPE(8), normal);
    by_tensor *ids = by_input(g, "ids", BY_I32, SHAPE(0, 3)),
              *table = by_param(g, "table", SHAPE(5, 8), normal);
    by_tensor *h = by_add(g, x, by_gather(g, table, ids));
    h = by_layernorm(g, by_add(g, by_mul(g, h, gamma), x), gamma, gamma, 1e-5f);
    h = by_linear(g, h, by_param(g, "w", SHAPE(24, 8), normal), by_param(g, "b", SHAPE(24), normal),
                  &(by_linear_spec){.act = BY_GELU});
    h = by_attention(g, h, NULL, NULL, &(by_attention_spec){.heads = 2, .mask = BY_MASK_CAUSAL});
    h = by_concat(g, (by_tensor *[]){h, by_slice(g, h, 2, 1, 2)}, 2, 2);
    h = by_permute_axes(g, by_softmax(g, by_dropout(g, h, 0.5f)), (int[]){1, 0, 2});
    by_output(g, "argmax", by_argmax(g, h));
    by_output(g, "sum", by_sum(g, h, 0));
    h = by_reshape(g, by_permute_axes(g, h, (int[]){1, 0, 2}), SHAPE(0, 10));
    by_tensor *loss = by_cross_entropy(g, h, by_reshape(g, ids, SHAPE(0)), NULL);
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){.loss = loss, .grads = BY_GRAD_STORE});
    run(p);
    float out = 1;
    assert_int_equal(by_read_f32(p, loss, &out), BY_OK);
    assert_true(out == 0);
    for (int i = 0; i < params->count; i++) {
        float *d = gradient(params, by_params_name(params, i));
        for (int64_t k = 0; k < params->list[i].count; k++)
            assert_true(d[k] == 0);
        base_free(d);
    }
    by_program_free(p);
    by_params_free(params);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* Attention over a cache, two programs sharing it: three positions at once, then one, against all four
 * without a cache. */
static by_program *cached(by_params *params, by_memory *const *memory, int64_t count, by_tensor **x,
                          by_tensor **past, by_tensor **y)
{
    by_graph *g = new_graph(params, false);
    by_tensor *k = by_state(g, "k", BY_F32, SHAPE(1, 5, 4), memory[0]),
              *v = by_state(g, "v", BY_F32, SHAPE(1, 5, 4), memory[1]);
    *x = f32_input(g, "x", SHAPE(1, count, 12));
    *past = by_input(g, "past", BY_I32, SHAPE(1));
    by_tensor *out = by_attention_cached(g, *x, NULL, NULL, k, v, *past, &(by_attention_spec){.heads = 2});
    if (y)
        *y = by_output(g, "y", out);
    return compile(g, (by_compile_spec){0});
}

static void test_states(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    freeze(params);
    by_memory *memory[2] = {by_memory_new(device, 80), by_memory_new(device, 80)};
    assert_true(memory[0] && memory[1]);
    float x[4 * 12], full[16], last[4];
    base_rng_fill_normal(x, BY_COUNT(x), 1, 2, 0, 1);
    by_tensor *in[3], *past[2], *out[2];
    by_program *fill =
        cached(params, memory, 3, &in[0], &past[0], NULL); /* its result interests nobody, its caches do */
    by_program *step = cached(params, memory, 1, &in[1], &past[1], &out[1]);
    by_write(fill, in[0], x, 3 * 12 * sizeof *x);
    write_i32(fill, past[0], (int32_t[]){0});
    run(fill);
    by_program_free(fill);
    by_write(step, in[1], x + 36, 12 * sizeof *x);
    write_i32(step, past[1], (int32_t[]){3});
    run(step);
    assert_int_equal(by_read_f32(step, out[1], last), BY_OK);
    write_i32(step, past[1], (int32_t[]){5}); /* the cache is full */
    assert_int_equal(by_run(step), BY_ERR_ARGUMENT);
    assert_contains(by_error_message(), "past");
    by_program_free(step);

    by_graph *g = new_graph(params, false);
    in[2] = f32_input(g, "x", SHAPE(1, 4, 12));
    by_attention_spec spec = {.heads = 2, .mask = BY_MASK_CAUSAL};
    out[0] = by_output(g, "y", by_attention(g, in[2], NULL, NULL, &spec));
    by_program *p = compile(g, (by_compile_spec){0});
    by_write(p, in[2], x, sizeof x);
    run(p);
    by_read_f32(p, out[0], full);
    close_to(last, full + 12, 4, 1e-6);
    by_program_free(p);
    by_memory_free(memory[0]);
    by_memory_free(memory[1]);
    by_params_free(params);
}

/* ---- looking inside -------------------------------------------------------------------------- */

typedef struct seen {
    int count, bad_at;
    int64_t first_bad;
    double norm, flops;
    char op[32], name[32], shape[32];
} seen;

static void look(void *user, const by_trace_entry *e)
{
    seen *s = user;
    assert_int_equal(e->index, s->count++);
    assert_true(e->op && e->name && e->shape && e->seconds >= 0 && e->bytes >= 0);
    s->flops += e->flops;
    if (e->first_bad >= 0 && s->bad_at < 0) {
        s->bad_at = e->index;
        s->first_bad = e->first_bad;
        snprintf(s->op, sizeof s->op, "%s", e->op);
        snprintf(s->name, sizeof s->name, "%s", e->name);
        snprintf(s->shape, sizeof s->shape, "%s", e->shape);
    }
    if (strcmp(e->name, "product") == 0)
        s->norm = e->norm;
}

static void test_trace(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, false);
    by_tensor *x = f32_input(g, "x", SHAPE(2, 3)), *y = f32_input(g, "y", SHAPE(2, 3));
    by_tensor *product = by_name(by_mul(g, x, y), "%s", "product");
    by_tensor *w = by_fill(g, BY_F32, SHAPE(4, 3), 1);
    by_output(g, "out", by_linear(g, product, w, NULL, NULL));
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    assert_true(by_program_flops(p) >= 2 * 2 * 3 * 4);
    float v[6] = {1, 2, 3, 4, 5, 6}, ones[6] = {1, 1, 1, 1, 1, 1};
    by_write(p, x, v, sizeof v);
    by_write(p, y, ones, sizeof ones);
    seen s = {.bad_at = -1};
    by_program_trace(p, look, &s);
    run(p);
    assert_int_equal(s.count, 3);
    assert_int_equal(s.bad_at, -1);
    assert_true(fabs(s.norm - sqrt(91)) < 1e-6);
    assert_true(s.flops == by_program_flops(p));

    ones[4] = NAN;
    by_write(p, y, ones, sizeof ones);
    s = (seen){.bad_at = -1};
    run(p);
    assert_string_equal(s.op, "mul");
    assert_string_equal(s.name, "product");
    assert_string_equal(s.shape, "(2, 3) f32");
    assert_int_equal(s.first_bad, 4);

    by_program_trace(p, NULL, NULL);
    s.count = 0;
    run(p);
    assert_int_equal(s.count, 0);
    by_program_free(p);
    by_params_free(params);
}

static void test_text(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    decoder d;
    by_program *p = decoder_program(params, 0.1f, (by_compile_spec){.grads = BY_GRAD_STORE}, &d);
    char *text = by_program_text(p, false), *dot = by_program_text(p, true);
    assert_true(text && dot);
    int lines = 0;
    for (char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, p->graph->n_nodes);
    assert_contains(text, "h.1.");
    assert_contains(text, "attention_grad");
    assert_contains(text, "(2, 12, 16) f32");
    assert_contains(text, "h.0.c_attn.weight");
    assert_memory_equal(dot, "digraph", 7);
    assert_contains(dot, "->");
    assert_contains(dot, "wte");
    assert_string_equal(dot + strlen(dot) - 2, "}\n");
    by_string_free(text);
    by_string_free(dot);
    by_program_free(p);

    by_program *nothing = compile(new_graph(params, false), (by_compile_spec){0});
    text = by_program_text(nothing, false);
    assert_string_equal(text, "");
    by_string_free(text);
    run(nothing);
    by_program_free(nothing);
    by_params_free(params);
}

/* What attention costs is what is seen: 2 products of head size 6 for each of so many keys, in 2 rows and 3
 * heads. And the text says what that is. */
static void test_attention_cost(void **state)
{
    (void)state;
    static const struct {
        by_mask mask;
        by_pattern pattern;
        double seen; /* by 8 queries of 8 keys */
        const char *text;
    } cases[] = {
        {BY_MASK_NONE, {.kind = BY_PATTERN_FULL}, 64, "x\n"},
        {BY_MASK_CAUSAL, {.kind = BY_PATTERN_FULL}, 36, "x causal\n"},
        {BY_MASK_CAUSAL, {.kind = BY_PATTERN_WINDOW, .before = 2}, 21, "x causal window -2 +0\n"},
        {BY_MASK_NONE, {.kind = BY_PATTERN_BLOCKS, .length = 3, .before = 1}, 37, "x blocks of 3 -1 +0\n"},
        {BY_MASK_CAUSAL, {.kind = BY_PATTERN_STRIDED, .length = 3}, 28, "x causal strided of 3\n"},
        {BY_MASK_CAUSAL,
         {.kind = BY_PATTERN_MEMORY, .length = 3, .before = 2},
         25,
         "x causal memory of 3 -2\n"},
        {BY_MASK_CAUSAL,
         {.kind = BY_PATTERN_FIXED, .length = 4, .after = 1, .part = 2},
         6,
         "x causal fixed of 4 to 1 part 2\n"},
    };
    for (int i = 0; i < BY_COUNT(cases); i++) {
        by_params *params = new_params(BY_F32);
        by_graph *g = new_graph(params, false);
        by_attention_spec spec = {.heads = 3, .mask = cases[i].mask, .pattern = cases[i].pattern};
        by_output(g, "y", by_attention(g, by_input(g, "x", BY_F32, SHAPE(2, 8, 54)), NULL, NULL, &spec));
        freeze(params);
        by_program *p = compile(g, (by_compile_spec){0});
        char *text = by_program_text(p, false);
        assert_true(by_program_flops(p) == cases[i].seen * 4 * 6 * 2 * 3);
        assert_contains(text, cases[i].text);
        by_string_free(text);
        by_program_free(p);
        by_params_free(params);
    }
}

/* The mask depends on seed and step alone. */
static void test_seed(void **state)
{
    (void)state;
    by_params *params = new_params(BY_F32);
    by_graph *g = new_graph(params, true);
    by_tensor *x = by_fill(g, BY_F32, SHAPE(400), 1);
    by_tensor *y = by_output(g, "y", by_dropout(g, x, 0.25f)),
              *z = by_output(g, "z", by_dropout(g, x, 0.25f));
    freeze(params);
    by_program *p = compile(g, (by_compile_spec){0});
    static const uint64_t seeds[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 1}};
    float v[4][400], other[400];
    for (int k = 0; k < 4; k++) {
        by_program_seed(p, seeds[k][0], seeds[k][1]);
        run(p);
        by_read_f32(p, y, v[k]);
    }
    by_read_f32(p, z, other);
    assert_memory_equal(v[0], v[3], sizeof other);
    assert_memory_not_equal(v[0], v[1], sizeof other);
    assert_memory_not_equal(v[0], v[2], sizeof other);
    assert_memory_not_equal(v[0], other, sizeof other); /* two nodes, two masks */
    int zeros = 0;
    for (int i = 0; i < 400; i++) {
        zeros += v[0][i] == 0;
        assert_true(v[0][i] == 0 || fabsf(v[0][i] - 4.0f / 3) < 1e-6f);
    }
    assert_true(zeros > 60 && zeros < 140); /* 100 expected, standard deviation 8.7 */
    by_program_free(p);
    by_params_free(params);
}

static void test_frees(void **state)
{
    (void)state;
    by_device_free(NULL);
    by_params_free(NULL);
    by_graph_free(NULL);
    by_program_free(NULL);
    by_memory_free(NULL);
    by_string_free(NULL);

    by_device *d = by_device_open("cpu", 1); /* programs, then parameters, then the device */
    assert_non_null(d);
    assert_int_equal(by_device_threads(d), 1);
    assert_string_equal(by_device_name(d), "cpu");
    assert_contains(by_device_description(d), "1 thread");
    by_params *params = by_params_new(d, BY_BF16);
    by_graph *unused = new_graph(params, true), *g = new_graph(params, true);
    by_output(g, "y", by_scale(g, by_param(g, "w", SHAPE(3), normal), 2));
    by_param(unused, "v", SHAPE(3), normal);
    freeze(params);
    by_program *one = compile(g, (by_compile_spec){0});
    g = new_graph(params, true);
    by_tensor *w = by_param(g, "w", SHAPE(3), normal);
    by_program *two = compile(g, (by_compile_spec){.loss = by_sum(g, w, 0), .grads = BY_GRAD_STORE});
    run(two);
    by_program_free(one);
    run(two);
    by_graph_free(unused);
    by_program_free(two);
    by_params_free(params);
    by_device_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan),  cmocka_unit_test(test_reuse),          cmocka_unit_test(test_views),
        cmocka_unit_test(test_empty), cmocka_unit_test(test_states),         cmocka_unit_test(test_trace),
        cmocka_unit_test(test_text),  cmocka_unit_test(test_attention_cost), cmocka_unit_test(test_seed),
        cmocka_unit_test(test_frees),
    };
    return cmocka_run_group_tests_name("graph run", tests, open_device, close_device);
}
