/* distill_terms.c - see distill_terms.h: hidden states of layers, attention scores, value relations. */
#include "align/distill_terms.h"

#include <math.h>

#include "base/base.h"
#include "graph/graph.h"

/* ---- hidden states ----------------------------------------------------------------------------- */

by_tensor *distill_taught(by_graph *g, by_tensor *x, by_dtype type)
{
    return x ? by_detach(g, by_cast(g, x, type))
             : by_graph_fail(g, "the teacher has no such output, and the batch no such array");
}

by_tensor *distill_angle(by_graph *g, by_tensor *x, by_tensor *y)
{
    const int axis = by_rank(x) - 1;
    by_tensor *dot = by_sum(g, by_mul(g, x, y), axis);
    by_tensor *squares = by_mul(g, by_sum(g, by_mul(g, x, x), axis), by_sum(g, by_mul(g, y, y), axis));
    by_tensor *cos = by_div(g, dot, by_activation(g, by_clamp(g, squares, 1e-16, 1e30), BY_SQRT));
    return train_shift(g, by_scale(g, cos, -1), 1);
}

static by_tensor *projection_of(by_graph *g, const distill_pair *p, int64_t from, int64_t to, bool bias)
{
    const int64_t shape[] = {to, from};
    return gr_param_leaf(g, p->spec->projection, bias ? "projection.bias" : "projection.weight", bias ? 1 : 2,
                         shape, bias ? (by_init){BY_INIT_ZERO, 0} : (by_init){BY_INIT_NORMAL, 0.02F});
}

by_tensor *distill_projected(by_graph *g, const distill_pair *p, by_tensor *x, const by_tensor *teacher)
{
    const int64_t from = by_dim(x, -1), to = by_dim(teacher, -1);
    if (from == to || gr_is_bad(g))
        return by_cast(g, x, p->type);
    if (!p->spec->projection)
        return by_graph_fail(
            g, "hidden states of width %lld cannot learn from those of width %lld without a projection",
            (long long)from, (long long)to);
    x = gr_linear_plain(g, x, projection_of(g, p, from, to, false), projection_of(g, p, from, to, true),
                        &(by_linear_spec){0});
    return by_cast(g, x, p->type);
}

by_params *by_distill_projection(const by_model *student, const by_model *teacher, uint64_t seed)
{
    if (!student || !teacher) {
        base_fail_missing("model");
        return NULL;
    }
    by_params *list = by_params_new(by_model_device(student), by_params_dtype(by_model_params(student)));
    by_graph *g = list ? by_graph_new(&(by_graph_spec){.params = list}) : NULL;
    const distill_pair p = {.spec = &(by_distill_spec){.projection = list}};
    const int64_t from = by_model_width(student), to = by_model_width(teacher);
    by_status s = g ? BY_OK : BY_ERR_MEMORY;
    if (g) {
        projection_of(g, &p, from, to, false);
        projection_of(g, &p, from, to, true);
        s = by_graph_status(g);
    }
    by_graph_free(g);
    if (s == BY_OK)
        s = by_params_freeze(list, true);
    if (s == BY_OK)
        s = by_params_init(list, seed);
    if (s == BY_OK)
        return list;
    by_params_free(list);
    return NULL;
}

/* The layer of the teacher for the student's layer i of n, from 1. */
static int mapped(const distill_pair *p, int i, int n, int layers)
{
    return p->spec->map ? p->spec->map[i - 1] : (2 * i * layers + n) / (2 * n);
}

/* Mean over positions of the mean squared error of (B, T, C). */
static by_tensor *state_error(by_graph *g, const distill_pair *p, by_tensor *x, by_tensor *y)
{
    by_tensor *d = by_sub(g, distill_projected(g, p, x, y), distill_taught(g, y, p->type));
    return train_masked_mean(g, by_mean(g, by_mul(g, d, d), 2), p->mask);
}

by_tensor *distill_layers(by_graph *g, const distill_pair *p)
{
    const int n = by_io_output_count(p->student, "hidden") - 1,
              layers = by_io_output_count(&p->teacher, "hidden") - 1;
    by_tensor *sum = NULL;
    if (n < 1 || layers < 1)
        return by_graph_fail(g, "the hidden states of the layers are not returned");
    for (int i = 0; i <= n; i++) {
        const int k = i ? mapped(p, i, n, layers) : 0;
        by_tensor *e = state_error(g, p, by_io_output_at(p->student, "hidden", i),
                                   by_io_output_at(&p->teacher, "hidden", k));
        sum = sum ? by_add(g, sum, e) : e;
    }
    return by_scale(g, sum, 1.0 / (n + 1));
}

/* ---- attention --------------------------------------------------------------------------------- */

/* (B or 1, 1, T or 1, T): 1 where a query may attend to a key. */
static by_tensor *seen_keys(by_graph *g, const distill_pair *p)
{
    const int64_t b = by_dim(p->mask, 0), t = by_dim(p->mask, 1);
    by_tensor *keys = by_reshape(g, p->mask, 4, (int64_t[]){b, 1, 1, t});
    if (!p->causal)
        return keys;
    by_tensor *at = by_cast(g, by_range(g, 1, &t), p->type);
    by_tensor *ahead = by_sub(g, by_reshape(g, at, 4, (int64_t[]){1, 1, t, 1}),
                              by_reshape(g, at, 4, (int64_t[]){1, 1, 1, t}));
    return by_mul(g, keys, by_clamp(g, train_shift(g, ahead, 1), 0, 1));
}

/* Attention scores or values of the student and the teacher: (B, H, T, any). */
typedef struct heads_pair {
    by_tensor *own, *taught;
} heads_pair;

static heads_pair heads_of(by_graph *g, const distill_pair *p, const char *name, int i, int k)
{
    by_tensor *x = by_io_output_at(p->student, name, i), *y = by_io_output_at(&p->teacher, name, k);
    if (!x || !y)
        by_graph_fail(g,
                      "%s has no attention that can be compared: its layers have their own kind of attention",
                      x ? "the teacher" : "the student");
    else if (by_dim(x, 1) != by_dim(y, 1))
        by_graph_fail(
            g,
            "the student has %lld attention heads and the teacher %lld; attention terms need equal numbers",
            (long long)by_dim(x, 1), (long long)by_dim(y, 1));
    return (heads_pair){by_cast(g, x, p->type), distill_taught(g, y, p->type)};
}

by_tensor *distill_attention(by_graph *g, const distill_pair *p)
{
    const int n = by_io_output_count(p->student, "scores"),
              layers = by_io_output_count(&p->teacher, "scores");
    const int64_t b = by_dim(p->mask, 0), t = by_dim(p->mask, 1);
    by_tensor *pairs = by_mul(g, seen_keys(g, p), by_reshape(g, p->mask, 4, (int64_t[]){b, 1, t, 1})),
              *sum = NULL;
    for (int i = 1; i <= BY_MAX(n, 1); i++) {
        const heads_pair s = heads_of(g, p, "scores", i - 1, mapped(p, i, BY_MAX(n, 1), layers) - 1);
        by_tensor *d = by_sub(g, s.own, s.taught);
        by_tensor *e = train_masked_mean(g, by_mean(g, by_mul(g, d, d), 1),
                                         by_reshape(g, pairs, 3, (int64_t[]){b, t, t}));
        sum = sum ? by_add(g, sum, e) : e;
    }
    return by_scale(g, sum, 1.0 / BY_MAX(n, 1));
}

/* The divergence of two attention distributions, from scores (B, H, T, T); a mean over heads and queries. */
static by_tensor *attention_divergence(by_graph *g, const distill_pair *p, by_tensor *own, by_tensor *taught)
{
    by_tensor *hide = by_scale(g, train_shift(g, seen_keys(g, p), -1), 1e4);
    by_tensor *kl = by_kl_divergence(g, by_add(g, own, hide), by_detach(g, by_add(g, taught, hide)), 1);
    return train_masked_mean(g, by_mean(g, kl, 1), p->mask);
}

/* v v^T / sqrt(D) */
static by_tensor *products(by_graph *g, by_tensor *v)
{
    return by_scale(g, by_matmul(g, v, v, false, true), 1 / sqrt((double)BY_MAX(by_dim(v, 3), 1)));
}

by_tensor *distill_relations(by_graph *g, const distill_pair *p)
{
    const int own = by_io_output_count(p->student, "scores") - 1,
              taught = by_io_output_count(&p->teacher, "scores") - 1;
    const heads_pair s = heads_of(g, p, "scores", own, taught), v = heads_of(g, p, "values", own, taught);
    return by_add(g, attention_divergence(g, p, s.own, s.taught),
                  attention_divergence(g, p, products(g, v.own), products(g, v.taught)));
}
