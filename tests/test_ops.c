/* test_ops.c - the test of the op table. Every sample of every op (op_samples.c) is differentiated against
 * finite differences in f64, and run in every element type on every instruction set of this processor, with
 * one thread and two, in memory that is guarded on all sides; at the end, every branch of every kernel must
 * have been taken. */
#include "op_trial.c"

#include "cpu/cpu.h"

static const char *const isas[BY_ISA_COUNT] = {"generic", "avx2", "avx512", "avx512bf16"};
static int best; /* the highest of them that this processor has */

/* [isa][threads], with matrix products of our own; NULL for those that this processor does not have. */
static by_device *devices[BY_ISA_COUNT][3];
/* [threads], the best instruction set, with products by the best library there is. */
static by_device *with_library[3];

/* ---- the tests ------------------------------------------------------------------------------- */

static void test_table(void **state)
{
    (void)state;
    const cpu_kernel *tables[BY_ISA_COUNT] = {cpu_table_generic};
#ifdef BY_HAVE_ISA_AVX2
    tables[BY_ISA_AVX2] = cpu_table_avx2;
#endif
#ifdef BY_HAVE_ISA_AVX512
    tables[BY_ISA_AVX512] = cpu_table_avx512;
#endif
#ifdef BY_HAVE_ISA_AVX512BF16
    tables[BY_ISA_AVX512BF16] = cpu_table_avx512bf16;
#endif
    for (int op = 0; op < GR_OP_COUNT; op++) {
        const gr_op_info *row = &gr_ops[op];
        assert_non_null(row->name);
        assert_true(row->inputs <= GR_MAX_INPUTS && row->outputs <= GR_MAX_OUTPUTS);
        assert_true((row->optional | row->over | row->writes | row->padded) >> row->inputs == 0);
        assert_true(row->base + row->bases <= row->inputs && row->from + row->bases <= row->outputs);
        assert_true(row->outputs > 0 || row->writes != 0);
        assert_non_null(row->infer);
        assert_non_null(row->cost);
        if ((row->grad != NULL) == (row->no_gradient != NULL))
            complain("%s must have either a gradient or a reason why not", row->name);
        for (int isa = 0; isa < BY_ISA_COUNT; isa++)
            if (tables[isa] && !tables[isa][op])
                complain("%s has no kernel for %s", row->name, isas[isa]);
    }
    no_complaints();
}

/* The loss as a function of the parameters, summed here in double. */
static double loss_of(trial *t)
{
    run_once(t);
    double loss = 0;
    for (int i = 0; i < t->sample->n_outs; i++) {
        const double *x = t->sample->out[i].tensor->data;
        for (int64_t k = 0; t->cotangent[i].values && k < by_elements(t->sample->out[i].tensor); k++)
            loss += x[k] * t->cotangent[i].values[k];
    }
    return loss;
}

/* (loss(x + h u) - loss(x - h u)) / 2h, where u is one element of the leaf (element >= 0) or a random
 * direction, left in u. */
static double slope(trial *t, const op_sample_leaf *l, int64_t element, uint64_t *seed, double *u)
{
    const int64_t n = by_elements(l->tensor);
    const double h = 1e-5;
    double *x = l->tensor->data, side[2];
    for (int64_t i = 0; i < n; i++)
        u[i] = element < 0 ? op_sample_noise(seed) : i == element;
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < n; i++)
            x[i] = l->values[i] + (k ? -h : h) * u[i];
        side[k] = loss_of(t);
    }
    memcpy(x, l->values, (size_t)n * sizeof *x);
    return (side[0] - side[1]) / (2 * h);
}

/* The gradient of one operand along every axis when it is small, along random directions when it is not. */
static void check_slopes(trial *t, const op_sample_leaf *l, const double *gradient)
{
    enum { SMALL = 12, DIRECTIONS = 4 };
    const int64_t n = by_elements(l->tensor), probes = n <= SMALL ? n : DIRECTIONS;
    double *u = base_alloc((size_t)n * sizeof *u), error = 0, size = 0;
    assert_non_null(u);
    uint64_t seed = 99;
    for (int64_t p = 0; p < probes; p++) {
        double measured = slope(t, l, n <= SMALL ? p : -1, &seed, u), computed = 0;
        for (int64_t i = 0; i < n; i++)
            computed += gradient[i] * u[i];
        error += (measured - computed) * (measured - computed);
        size += measured * measured;
    }
    base_free(u);
    if (!(sqrt(error) <= 1e-6 * sqrt(size)))
        complain("%s: gradient of %s is off by %.2g of %.2g", t->title, gr_tensor_label(l->tensor),
                 sqrt(error), sqrt(size));
}

/* A query that sees no key has equal weights whatever its scores are, and its gradient is the reference's,
 * which is not the slope: masks are added to scores there, and rounding makes them equal. Such queries are
 * left out of the loss; test_attention.c has them. They are those that do not change with q. */
static void leave_out_unseen(trial *t)
{
    by_tensor *y = t->sample->out[0].tensor;
    const op_sample_leaf *l = &t->sample->leaf[0];
    if (!y->node || y->node->op != GR_OP_ATTENTION)
        return;
    const gr_attention_attr *a = y->node->attr;
    const int64_t rows = gr_tensor_rows(y), heads = a->spec.heads, dim = a->head_dim,
                  columns = gr_tensor_cols(l->tensor);
    double *q = l->tensor->data, *cotangent = t->cotangent[0].values;
    double *before = base_alloc((size_t)by_elements(y) * sizeof *before);
    uint64_t seed = 7;
    assert_non_null(before);
    run_once(t);
    memcpy(before, y->data, (size_t)by_elements(y) * sizeof *before);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < heads * dim; c++)
            q[r * columns + c] += op_sample_noise(&seed);
    run_once(t);
    for (int64_t i = 0; i < rows * heads; i++)
        if (memcmp((const double *)y->data + i * dim, before + i * dim, (size_t)dim * sizeof *before) == 0)
            memset(cotangent + i * dim, 0, (size_t)dim * sizeof *cotangent);
    base_free(before);
    fill_leaves(t);
}

static void test_gradients(void **state)
{
    (void)state;
    setup how = {.device = devices[BY_ISA_GENERIC][2], .type = BY_F64, .exact = BY_F64, .gradients = true};
    for (int op = 0; op < GR_OP_COUNT; op++) {
        int checked = 0;
        trial *t;
        for (int which = 0; gr_ops[op].grad && (t = trial_new(how, (gr_op)op, which)); which++) {
            if (t->how.gradients) {
                leave_out_unseen(t);
                run_once(t);
                result *r = collect_result(t);
                for (int i = 0, k = 0; i < t->sample->n_leaves; i++) {
                    const by_tensor *leaf = t->sample->leaf[i].tensor;
                    if (leaf->place != GR_PLACE_PARAM || !leaf->needs_grad)
                        continue;
                    check_slopes(t, &t->sample->leaf[i], r->part[t->sample->n_outs + k++].values);
                    checked++;
                }
                result_free(r);
            }
            trial_free(t);
        }
        if (gr_ops[op].grad && !checked)
            complain("%s: no sample of its gradient", gr_ops[op].name);
    }
    no_complaints();
}

/* One sample in one type on one pair of devices (one thread, two threads) against the generic set in f64.
 * With `bits`, the threads must not matter at all. */
static void check_on(by_device *const *pair, const char *where, setup how, const result *expected, gr_op op,
                     int which, bool bits)
{
    how.device = pair[2];
    how.guarded = true;
    result *two = outcome(how, op, which);
    compare(two, expected, op, how.type, where);
    if (bits) {
        how.device = pair[1];
        how.guarded = false;
        result *one = outcome(how, op, which);
        same_bits(two, one, how.type, where);
        result_free(one);
    }
    result_free(two);
}

/* On every instruction set as it is; on the best one also without the backward pass, and with operands that
 * may be written over. Of libraries only the result is looked at: the order of their sums is their own. */
static bool check_sample(gr_op op, int which, by_dtype type)
{
    enum { AS_IT_IS, FORWARD, COPIED, VARIANTS };
    for (int variant = 0; variant < VARIANTS; variant++) {
        setup how = {
            .type = type, .exact = type, .gradients = variant != FORWARD, .copied = variant == COPIED};
        setup right = how;
        right.type = BY_F64;
        right.device = devices[BY_ISA_GENERIC][2];
        result *expected = outcome(right, op, which);
        if (!expected)
            return false;
        for (int isa = variant == AS_IT_IS ? 0 : best; isa <= best; isa++)
            if (devices[isa][1])
                check_on(devices[isa], isas[isa], how, expected, op, which, type == BY_F32 || isa == best);
        if (gr_ops[op].product && variant != COPIED)
            check_on(with_library, by_device_description(with_library[2]), how, expected, op, which, false);
        result_free(expected);
    }
    return true;
}

static void test_types(void **state)
{
    (void)state;
    static const by_dtype types[] = {BY_F32, BY_BF16, BY_F16};
    for (int op = 0; op < GR_OP_COUNT; op++)
        for (int k = 0; k < BY_COUNT(types); k++)
            for (int which = 0; check_sample((gr_op)op, which, types[k]); which++)
                continue;
    no_complaints();
}

/* The reference itself: the same bits with one thread in planned memory and with two in guarded. */
static void test_f64(void **state)
{
    (void)state;
    setup two = {.device = devices[BY_ISA_GENERIC][2],
                 .type = BY_F64,
                 .exact = BY_F64,
                 .gradients = true,
                 .guarded = true};
    setup one = {.device = devices[BY_ISA_GENERIC][1], .type = BY_F64, .exact = BY_F64, .gradients = true};
    for (int op = 0; op < GR_OP_COUNT; op++) {
        result *r;
        for (int which = 0; (r = outcome(two, (gr_op)op, which)); which++) {
            result *s = outcome(one, (gr_op)op, which);
            same_bits(r, s, BY_F64, "generic");
            result_free(r);
            result_free(s);
        }
    }
    no_complaints();
}

/* ---- against plain loops --------------------------------------------------------------------- */

static void test_argmax(void **state)
{
    (void)state;
    setup how = {.device = devices[BY_ISA_GENERIC][2], .type = BY_F64, .exact = BY_F64};
    trial *t;
    for (int which = 0; (t = trial_new(how, GR_OP_ARGMAX, which)); which++) {
        run_once(t);
        const by_tensor *x = t->sample->leaf[0].tensor;
        const double *v = t->sample->leaf[0].values;
        const int32_t *y = t->sample->out[0].tensor->data;
        for (int64_t r = 0, n = x->dim[1]; r < x->dim[0]; r++)
            for (int64_t i = 0; i < n; i++) {
                assert_true(v[r * n + i] <= v[r * n + y[r]]);
                if (i < y[r])
                    assert_true(v[r * n + i] < v[r * n + y[r]]);
            }
        trial_free(t);
    }
}

/* Shares of many draws approach the probabilities; nothing without a weight is drawn, and places advance. */
static void test_draw(void **state)
{
    (void)state;
    enum { ROWS = 20000, COLS = 5 };
    static const double logits[COLS] = {0.3, -INFINITY, 1.5, -0.7, 0};
    double weight[COLS], total = 0, count[COLS] = {0};
    float *x = base_alloc_zero(ROWS * COLS, sizeof *x),
          *temperature = base_alloc_zero(ROWS, sizeof *temperature);
    int32_t *draws = base_alloc_zero(ROWS * 5, sizeof *draws), *y = base_alloc_zero(ROWS, sizeof *y);
    by_params *params = by_params_new(devices[BY_ISA_GENERIC][2], BY_F32);
    assert_int_equal(by_params_freeze(params, false), BY_OK);
    by_graph *g = by_graph_new(&(by_graph_spec){.params = params});
    by_memory *memory = by_memory_new(devices[BY_ISA_GENERIC][2], ROWS * 5 * sizeof *draws);
    by_tensor *in = by_input(g, "x", BY_F32, 2, (int64_t[]){ROWS, COLS}),
              *at = by_input(g, "temperature", BY_F32, 1, (int64_t[]){ROWS}),
              *from = by_state(g, "draws", BY_I32, 2, (int64_t[]){ROWS, 5}, memory),
              *out = by_output(g, "y", by_draw(g, in, at, from));
    by_program *p = by_compile(g, &(by_compile_spec){0});
    assert_non_null(p);
    for (int c = 0; c < COLS; c++)
        total += weight[c] = exp(logits[c] / 0.7);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++)
            x[r * COLS + c] = (float)logits[c];
        temperature[r] = 0.7f;
        draws[r * 5] = 42;
        draws[r * 5 + 2] = r / 4;
        draws[r * 5 + 4] = r % 4;
    }
    assert_int_equal(by_memory_write(memory, 0, draws, ROWS * 5 * sizeof *draws), BY_OK);
    assert_int_equal(by_write(p, in, x, ROWS * COLS * sizeof *x), BY_OK);
    assert_int_equal(by_write(p, at, temperature, ROWS * sizeof *temperature), BY_OK);
    assert_int_equal(by_run(p), BY_OK);
    assert_int_equal(by_read(p, out, y, ROWS * sizeof *y), BY_OK);
    for (int r = 0; r < ROWS; r++) {
        assert_in_range(y[r], 0, COLS - 1);
        count[y[r]]++;
    }
    for (int c = 0; c < COLS; c++) {
        const double share = weight[c] / total;
        assert_true(fabs(count[c] - share * ROWS) <= 4 * sqrt(share * (1 - share) * ROWS));
    }
    assert_int_equal(by_memory_read(memory, 0, draws, ROWS * 5 * sizeof *draws), BY_OK);
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(draws[r * 5 + 4], r % 4 + 1);
    by_program_free(p);
    by_memory_free(memory);
    by_params_free(params);
    base_free(x);
    base_free(temperature);
    base_free(draws);
    base_free(y);
}

/* The i-th has i better ones before it: higher, or equal and earlier. */
static void test_top(void **state)
{
    (void)state;
    setup how = {.device = devices[BY_ISA_GENERIC][2], .type = BY_F64, .exact = BY_F64};
    trial *t;
    for (int which = 0; (t = trial_new(how, GR_OP_TOP, which)); which++) {
        run_once(t);
        const bool alone = !t->sample->out[1].tensor; /* of the outputs, the last is read */
        const double *v = t->sample->leaf[0].values, *y = t->sample->out[0].tensor->data;
        const int32_t *ids = alone ? NULL : t->sample->out[1].tensor->data;
        const double *lse = t->sample->out[alone ? 0 : 2].tensor->data;
        const int64_t n = t->sample->leaf[0].tensor->dim[1], k = alone ? 0 : t->sample->out[0].tensor->dim[1];
        for (int64_t r = 0; r < t->sample->leaf[0].tensor->dim[0]; r++, v += n) {
            double sum = 0;
            for (int64_t i = 0; i < n; i++)
                sum += exp(v[i]);
            assert_true(fabs(lse[r] - log(sum)) < 1e-9);
            for (int64_t i = 0; i < k; i++) {
                const int32_t id = ids[r * k + i];
                int64_t better = 0;
                for (int64_t j = 0; j < n; j++)
                    better += v[j] > v[id] || (v[j] == v[id] && j < id);
                assert_int_equal(better, i);
                assert_true(y[r * k + i] == v[id]);
            }
        }
        trial_free(t);
    }
}

static void test_reorder(void **state)
{
    (void)state;
    setup how = {.device = devices[BY_ISA_GENERIC][2], .type = BY_F64, .exact = BY_F64};
    trial *t;
    for (int which = 0; (t = trial_new(how, GR_OP_REORDER, which)); which++) {
        run_once(t);
        const op_sample_leaf *leaf = t->sample->leaf;
        const int64_t room = leaf[0].tensor->dim[1], c = leaf[0].tensor->dim[2];
        const double *pages = leaf[0].tensor->dim[0] > 6 ? leaf[4].values : NULL;
        for (int64_t i = 0; i < 2 * 6 * room * c; i++) {
            const int64_t cache = i / (6 * room * c), b = i / (room * c) % 6, rest = i % (room * c);
            const bool moved = rest / c < (int64_t)leaf[3].values[b];
            const int64_t from = moved ? (int64_t)leaf[2].values[b] : b;
            const double *now = leaf[cache].tensor->data;
            const int64_t here = pages ? (int64_t)pages[b] : b, there = pages ? (int64_t)pages[from] : from;
            assert_true(now[here * room * c + rest] == leaf[cache].values[there * room * c + rest]);
        }
        trial_free(t);
    }
}

/* One query over `keys` keys of one head: y (dim) and weights (keys). Rows of k and v are `row` apart. */
static void attend_naively(const double *q, const double *k, const double *v, int64_t row, int64_t keys,
                           int dim, double scale, const double *seen, int64_t limit, double *y,
                           double *weights)
{
    double sum = 0, top = -INFINITY;
    for (int64_t s = 0; s < keys; s++) {
        weights[s] = -INFINITY;
        if (s > limit || (seen && seen[s] == 0))
            continue;
        weights[s] = 0;
        for (int d = 0; d < dim; d++)
            weights[s] += q[d] * k[s * row + d] * scale;
        top = fmax(top, weights[s]);
    }
    for (int64_t s = 0; s < keys; s++)
        sum += weights[s] = isinf(top) ? 1 : exp(weights[s] - top);
    memset(y, 0, (size_t)dim * sizeof *y);
    for (int64_t s = 0; s < keys; s++)
        for (int d = 0; d < dim; d++)
            y[d] += (weights[s] /= d ? 1 : sum) * v[s * row + d];
}

/* Where queries, keys and values of a sample lie: leaves of their own, or side by side. */
typedef struct heads {
    const double *q, *k, *v;
    int64_t q_row, kv_row;
} heads;

static heads heads_of(const trial *t, const gr_attention_attr *a)
{
    const op_sample_leaf *l = t->sample->leaf;
    const int64_t wide = (int64_t)a->spec.heads * a->head_dim, kv = (int64_t)a->spec.kv_heads * a->head_dim;
    if (!a->packed)
        return (heads){l[0].values, l[1].values, l[2].values, wide, kv};
    return (heads){l[0].values, l[0].values + wide, l[0].values + wide + kv, wide + 2 * kv, wide + 2 * kv};
}

static const gr_node *node_of(const trial *t, gr_op op)
{
    const by_graph *g = t->program->graph;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op == op)
            return g->nodes[i];
    fail_msg("no %s node", gr_ops[op].name);
    return NULL;
}

/* Largest difference between a naive attention and what the node computed. k, v (B, keys, kv_row); past as in
 * the op, NULL: none. */
static double attention_error(const gr_node *n, heads h, int64_t keys, const double *seen, const double *past)
{
    const gr_attention_attr *a = n->attr;
    const int64_t batch = n->out[0]->dim[0], queries = n->out[0]->dim[1];
    const double *y = n->out[0]->data, *weights = !past && n->out[2] ? n->out[2]->data : NULL;
    double *out = base_alloc((size_t)a->head_dim * sizeof *out), *w = base_alloc((size_t)keys * sizeof *w),
           worst = 0;
    assert_true(out && w);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = 0; t < queries; t++)
            for (int k = 0; k < a->spec.heads; k++) {
                int64_t at =
                    (int64_t)(k / (a->spec.heads / a->spec.kv_heads)) * a->head_dim + b * keys * h.kv_row;
                int64_t limit = past                             ? (int64_t)past[b] + t
                                : a->spec.mask == BY_MASK_CAUSAL ? keys - queries + t
                                                                 : keys;
                attend_naively(h.q + (b * queries + t) * h.q_row + (int64_t)k * a->head_dim, h.k + at,
                               h.v + at, h.kv_row, keys, a->head_dim, a->spec.scale,
                               seen ? seen + b * keys : NULL, limit, out, w);
                const double *row = y + ((b * queries + t) * a->spec.heads + k) * a->head_dim;
                for (int d = 0; d < a->head_dim; d++)
                    worst = fmax(worst, fabs(row[d] - out[d]));
                for (int64_t s = 0; weights && s < keys; s++)
                    worst =
                        fmax(worst, fabs(weights[((b * a->spec.heads + k) * queries + t) * keys + s] - w[s]));
            }
    base_free(out);
    base_free(w);
    return worst;
}

/* Prefixes, patterns, biases and pair masks are compared with plain loops in test_attention.c. */
static bool is_simple(const gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    return a->spec.pattern.kind == BY_PATTERN_FULL && !n->in[GR_ATT_PREFIX] && !n->in[GR_ATT_BIAS] &&
           !n->in[GR_ATT_RELATIVE] && !n->in[GR_ATT_PAIR_MASK] && !a->spec.empty_zero;
}

static void test_attention(void **state)
{
    (void)state;
    setup how = {.device = devices[BY_ISA_GENERIC][2], .type = BY_F64, .exact = BY_F64};
    trial *t;
    for (int which = 0; (t = trial_new(how, GR_OP_ATTENTION, which)); which++) {
        const gr_node *n = node_of(t, GR_OP_ATTENTION);
        const gr_attention_attr *a = n->attr;
        run_once(t);
        if (a->spec.dropout == 0 && is_simple(n)) {
            int64_t keys = a->packed ? n->in[0]->dim[1] : n->in[1]->dim[1];
            double error = attention_error(n, heads_of(t, a), keys,
                                           n->in[3] ? t->sample->leaf[a->packed ? 1 : 3].values : NULL, NULL);
            if (!(error < 1e-12))
                complain("%s: differs from plain loops by %.2g", t->title, error);
        }
        trial_free(t);
    }
    no_complaints();
}

/* Where position s of row b of a cache begins. */
static size_t place_of(const gr_node *n, const double *pages, int64_t b, int64_t s)
{
    const int64_t page = n->in[GR_ATT_K_CACHE]->dim[1],
                  columns = n->in[GR_ATT_PAGES] ? n->in[GR_ATT_PAGES]->dim[1] : 1;
    const int64_t at = pages ? (int64_t)pages[b * columns + s / page] : b;
    return (size_t)((at * page + s % page) * n->in[GR_ATT_K_CACHE]->dim[2]);
}

/* A cache in its pages to (B, M, C). */
static double *in_order(const gr_node *n, const double *pages, const double *cache, int64_t batch,
                        int64_t room)
{
    const size_t wide = (size_t)n->in[GR_ATT_K_CACHE]->dim[2];
    double *to = base_alloc_zero((size_t)(batch * room) * wide, sizeof *to);
    for (int64_t i = 0; i < batch * room; i++)
        memcpy(to + (size_t)i * wide, cache + place_of(n, pages, i / room, i % room), wide * sizeof *to);
    return to;
}

/* Put the new rows into the caches by hand, attend, and compare caches and results. */
static void test_attention_cached(void **state)
{
    (void)state;
    setup how = {.device = devices[BY_ISA_GENERIC][2], .type = BY_F64, .exact = BY_F64};
    trial *t;
    for (int which = 0; (t = trial_new(how, GR_OP_ATTENTION_CACHED, which)); which++) {
        const gr_node *n = node_of(t, GR_OP_ATTENTION_CACHED);
        const gr_attention_attr *a = n->attr;
        const bool still = !n->in[GR_ATT_PAST];
        const op_sample_leaf *l = t->sample->leaf + (a->packed || still ? 1 : 3);
        const int64_t batch = n->in[0]->dim[0],
                      room = gr_cache_room(n->in[GR_ATT_K_CACHE], n->in[GR_ATT_PAGES]),
                      wide = n->in[GR_ATT_K_CACHE]->dim[2], queries = n->in[0]->dim[1];
        const double *pages = n->in[GR_ATT_PAGES] ? l[still ? 2 : 3].values : NULL,
                     *past = still ? NULL : l[2].values;
        heads h = heads_of(t, a);
        run_once(t);
        for (int64_t b = 0; b < batch && !still; b++)
            for (int64_t q = 0; q < queries; q++) {
                size_t to = place_of(n, pages, b, (int64_t)past[b] + q),
                       from = (size_t)((b * queries + q) * h.kv_row);
                memcpy(l[0].values + to, h.k + from, (size_t)wide * sizeof(double));
                memcpy(l[1].values + to, h.v + from, (size_t)wide * sizeof(double));
            }
        assert_memory_equal(n->in[GR_ATT_K_CACHE]->data, l[0].values, gr_tensor_bytes(n->in[GR_ATT_K_CACHE]));
        assert_memory_equal(n->in[GR_ATT_V_CACHE]->data, l[1].values, gr_tensor_bytes(n->in[GR_ATT_V_CACHE]));
        double *k = in_order(n, pages, l[0].values, batch, room),
               *v = in_order(n, pages, l[1].values, batch, room);
        heads cached = {h.q, k, v, h.q_row, wide};
        double error = is_simple(n) && !n->in[3] ? attention_error(n, cached, room, NULL, past) : 0;
        if (!(error < 1e-12))
            complain("%s: differs from plain loops by %.2g", t->title, error);
        base_free(k);
        base_free(v);
        trial_free(t);
    }
    no_complaints();
}

/* ---- bad indices ----------------------------------------------------------------------------- */

/* A run with one index out of range must fail, name tensor and value, and write nothing. */
static void refuse(by_device *d, gr_op op, double bad)
{
    setup how = {.device = d, .type = BY_F32, .exact = BY_F32, .guarded = true};
    trial *t = trial_new(how, op, 0);
    assert_non_null(t);
    const op_sample_leaf *l = NULL;
    for (int i = 0; i < t->sample->n_leaves; i++)
        if (t->sample->leaf[i].tensor->type == BY_I32)
            l = &t->sample->leaf[i];
    assert_non_null(l);
    l->values[by_elements(l->tensor) - 1] = bad;
    fill_leaves(t);
    by_status status = by_run(t->program);
    char value[24];
    snprintf(value, sizeof value, "%d", (int)bad);
    const char *message = by_error_message();
    if (status != BY_ERR_ARGUMENT || !strstr(message, value) || !strstr(message, gr_tensor_label(l->tensor)))
        complain("%s with index %s: status %d, \"%s\"", gr_ops[op].name, value, (int)status,
                 status ? message : "");
    const by_tensor *y = t->sample->out[0].tensor;
    for (size_t i = 0; i < gr_tensor_bytes(y) && node_of(t, op)->out[0] == y; i++)
        if (((const unsigned char *)y->data)[i] != JUNK_BYTE) {
            complain("%s with index %s: wrote its output all the same", gr_ops[op].name, value);
            break;
        }
    check_guards(t);
    trial_free(t);
}

static void test_bad_indices(void **state)
{
    (void)state;
    for (int isa = 0; isa < BY_ISA_COUNT; isa++) {
        by_device *d = devices[isa][2];
        if (!d)
            continue;
        refuse(d, GR_OP_GATHER, 11);
        refuse(d, GR_OP_GATHER, -1);
        refuse(d, GR_OP_GATHER_GRAD, 11);
        refuse(d, GR_OP_GATHER_GRAD, -1);
        refuse(d, GR_OP_CROSS_ENTROPY, 7);
        refuse(d, GR_OP_CROSS_ENTROPY, -1);
        refuse(d, GR_OP_ATTENTION_CACHED, 8);
        refuse(d, GR_OP_ATTENTION_CACHED, -1);
    }
    no_complaints();
}

/* ---- every branch ---------------------------------------------------------------------------- */

extern cpu_branch __start_by_branches[] __attribute__((weak));
extern cpu_branch __stop_by_branches[] __attribute__((weak));

static void test_branches(void **state)
{
    (void)state;
    int taken = 0;
    for (cpu_branch *b = __start_by_branches; b < __stop_by_branches; b++) {
        bool here = false;
        for (int isa = 0; isa < BY_ISA_COUNT; isa++)
            here |= devices[isa][1] && strcmp(isas[isa], b->isa) == 0;
        taken += b->hit;
        if (here && !b->hit)
            complain("%s, %s: no sample takes \"%s\"", b->file, b->isa, b->label);
    }
    assert_true(taken > 0);
    no_complaints();
}

/* ---- setting up ------------------------------------------------------------------------------ */

static int open_devices(void **state)
{
    (void)state;
    for (int isa = 0; isa < BY_ISA_COUNT; isa++)
        for (int threads = 1; threads <= 2; threads++) {
            char name[32];
            snprintf(name, sizeof name, "cpu:%s", isas[isa]);
            by_device *d = devices[isa][threads] = by_device_open(name, threads);
            if (d) {
                ((cpu_context *)d->impl)->gemm = BY_GEMM_OWN;
                best = isa;
            } else if (threads == 1)
                printf("not tested: %s (%s)\n", name, by_error_message());
        }
    with_library[1] = by_device_open("cpu", 1);
    with_library[2] = by_device_open("cpu", 2);
    return devices[BY_ISA_GENERIC][1] && devices[BY_ISA_GENERIC][2] && with_library[1] && with_library[2]
               ? 0
               : -1;
}

static int close_devices(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        for (int isa = 0; isa < BY_ISA_COUNT; isa++)
            by_device_free(devices[isa][threads]);
        by_device_free(with_library[threads]);
    }
    return 0;
}

/* Threads of OpenMP that wait for work spin; beside other tests on the same cores that costs minutes. The
 * library reads this when it is loaded, so the program starts itself again. */
static void wait_quietly(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
        return;
    execv("/proc/self/exe", argv); /* where there is no such file, it just takes longer */
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_quietly(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),       cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_types),       cmocka_unit_test(test_f64),
        cmocka_unit_test(test_argmax),      cmocka_unit_test(test_draw),
        cmocka_unit_test(test_top),         cmocka_unit_test(test_reorder),
        cmocka_unit_test(test_attention),   cmocka_unit_test(test_attention_cached),
        cmocka_unit_test(test_bad_indices), cmocka_unit_test(test_branches),
    };
    return cmocka_run_group_tests_name("ops", tests, open_devices, close_devices);
}
