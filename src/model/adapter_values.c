/* adapter_values.c - adapter values on the host: initial values, derived values, merging and unmerging. */
#include <math.h>

#include "graph/null_device.h"
#include "model/adapter.h"

/* ---- a weight with its adapter ---------------------------------------------------------------- */

/* The values of a parameter, on the heap. NULL on failure. */
static float *values_of(const by_params *p, int i)
{
    float *v = base_alloc((size_t)p->list[i].count * sizeof *v);
    if (v && by_params_get(p, i, BY_SLOT_VALUE, v) == BY_OK)
        return v;
    base_free(v);
    return NULL;
}

static float *transposed(float *x, int64_t rows, int64_t cols)
{
    float *y = x ? base_alloc((size_t)(rows * cols) * sizeof *y) : NULL;
    for (int64_t r = 0; y && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[c * rows + r] = x[r * cols + c];
    base_free(x);
    return y;
}

/* w (rows, cols) += scale left (rows, rank) right (rank, cols). */
typedef struct product {
    float *w, *left, *right;
    int64_t rows, cols, rank;
    float scale;
} product;

static void add_rows(void *user, size_t begin, size_t end)
{
    const product *p = user;
    for (size_t r = begin; r < end; r++)
        for (int64_t k = 0; k < p->rank; k++) {
            const float f = p->scale * p->left[(int64_t)r * p->rank + k];
            const float *from = p->right + k * p->cols;
            float *to = p->w + (int64_t)r * p->cols;
            for (int64_t c = 0; c < p->cols; c++)
                to[c] += f * from[c];
        }
}

static bool is_by_column(const model_target *t)
{
    return t->embedding || t->w_is_kn;
}

/* W + scale B A in the layout of the file, on the heap. NULL on failure. */
static float *updated(const by_adapter *a, const model_target *t, double scale)
{
    const gr_param_info *w = &a->model->params->list[t->weight];
    product p = {.rows = w->dim[0], .cols = w->dim[1], .rank = t->rank, .scale = (float)scale};
    p.w = values_of(a->model->params, t->weight);
    if (scale == 0 || !p.w)
        return p.w;
    p.left = values_of(a->params, is_by_column(t) ? t->a : t->b);
    p.right = values_of(a->params, is_by_column(t) ? t->b : t->a);
    if (is_by_column(t)) {
        p.left = transposed(p.left, t->rank, p.rows);
        p.right = transposed(p.right, p.cols, t->rank);
    }
    const bool ok = p.left && p.right;
    if (ok)
        base_parallel_ranges(base_cores(), (size_t)p.rows, add_rows, &p);
    else
        base_free(p.w);
    base_free(p.left);
    base_free(p.right);
    return ok ? p.w : NULL;
}

/* The squared norm of the weights of each output. */
static float *squared_norms(const float *w, const model_target *t, const gr_param_info *info)
{
    const int64_t rows = info->dim[0], cols = info->dim[1], outputs = is_by_column(t) ? cols : rows;
    double *sum = base_alloc_zero((size_t)outputs, sizeof *sum);
    float *norms = base_alloc((size_t)outputs * sizeof *norms);
    for (int64_t r = 0; sum && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            sum[is_by_column(t) ? c : r] += (double)w[r * cols + c] * (double)w[r * cols + c];
    for (int64_t i = 0; sum && norms && i < outputs; i++)
        norms[i] = (float)sum[i];
    if (!sum) {
        base_free(norms);
        norms = NULL;
    }
    base_free(sum);
    return norms;
}

/* ---- magnitudes ------------------------------------------------------------------------------- */

/* DoRA: the squared norms of a layer with the adapter (scale 0: without it). */
static float *layer_norms(const by_adapter *a, const model_target *t, double scale)
{
    float *w = updated(a, t, scale);
    float *norms = w ? squared_norms(w, t, &a->model->params->list[t->weight]) : NULL;
    base_free(w);
    return norms;
}

/* m / |W + s B A| */
static float *layer_factors(const by_adapter *a, const model_target *t)
{
    float *norms = layer_norms(a, t, t->scale), *m = norms ? values_of(a->params, t->magnitude) : NULL;
    for (int64_t i = 0; m && i < a->params->list[t->magnitude].count; i++)
        m[i] /= sqrtf(norms[i]);
    base_free(norms);
    return m;
}

by_status model_adapter_derive(by_adapter *a)
{
    BY_TRY(model_tokens_derive(a));
    const bool shape_alone = a->model->device->backend == &gr_null_backend;
    for (int i = 0; i < a->n_targets && !shape_alone; i++) {
        const model_target *t = &a->targets[i];
        if (t->norms < 0)
            continue;
        float *v = a->training ? layer_norms(a, t, 0) : layer_factors(a, t);
        by_status s = v ? by_params_set(a->params, t->norms, BY_SLOT_VALUE, v) : base_error_status();
        base_free(v);
        BY_TRY(s);
    }
    return BY_OK;
}

static by_status copy_from_body(by_adapter *a, const model_replaced *r)
{
    float *v = values_of(a->model->params, r->body);
    by_status s = v ? by_params_set(a->params, r->own, BY_SLOT_VALUE, v) : base_error_status();
    base_free(v);
    return s;
}

/* A prompt starts as the embeddings of random tokens. */
static by_status draw_prompt(by_adapter *a, uint64_t seed)
{
    const model_target *t = &a->targets[0];
    const by_params *p = a->model->params;
    float *table = values_of(p, t->weight), *rows = values_of(a->params, t->a);
    base_rng rng = base_rng_make(seed, 0);
    for (int64_t i = 0; table && rows && i < a->config.prefix; i++)
        memcpy(rows + i * t->width,
               table + (int64_t)base_rng_below(&rng, (uint64_t)p->list[t->weight].dim[0]) * t->width,
               (size_t)t->width * sizeof *rows);
    by_status s = table && rows ? by_params_set(a->params, t->a, BY_SLOT_VALUE, rows) : base_error_status();
    base_free(table);
    base_free(rows);
    return s;
}

static by_status copy_tokens(by_adapter *a, const model_tokens *t)
{
    float *table = values_of(a->model->params, t->table),
          *rows = table ? values_of(a->params, t->rows) : NULL;
    if (rows)
        model_tokens_copy(t, a->params->list[t->rows].dim[1], table, rows, false);
    by_status s = rows ? by_params_set(a->params, t->rows, BY_SLOT_VALUE, rows) : base_error_status();
    base_free(table);
    base_free(rows);
    return s;
}

/* A new adapter is the identity: magnitudes are the norms of the weights, B is zero. */
by_status model_adapter_init(by_adapter *a, uint64_t seed)
{
    BY_TRY(by_params_init(a->params, seed));
    if (a->config.prompt)
        return draw_prompt(a, seed);
    for (int i = 0; i < a->n_replaced; i++)
        BY_TRY(copy_from_body(a, &a->replaced[i]));
    for (int i = 0; i < a->n_tokens; i++)
        BY_TRY(copy_tokens(a, &a->tokens[i]));
    for (int i = 0; i < a->n_targets && a->config.dora; i++) {
        const model_target *t = &a->targets[i];
        float *m = layer_norms(a, t, 0);
        for (int64_t k = 0; m && k < a->params->list[t->magnitude].count; k++)
            m[k] = sqrtf(m[k]);
        by_status s = m ? by_params_set(a->params, t->magnitude, BY_SLOT_VALUE, m) : base_error_status();
        base_free(m);
        BY_TRY(s);
    }
    return BY_OK;
}

/* ---- merging ---------------------------------------------------------------------------------- */

/* Whether a parameter of the body is a table that is tied to a head. */
static bool is_tied_table(const by_model *m, int param)
{
    const char *name = m->params->list[param].name;
    const bool table = (m->arch->table && strcmp(name, m->arch->table) == 0) ||
                       (m->arch->target_table && strcmp(name, m->arch->target_table) == 0);
    const bool writes = m->task == BY_TASK_LM || m->task == BY_TASK_MLM || m->task == BY_TASK_PRETRAIN ||
                        m->task == BY_TASK_SEQ2SEQ;
    return table && writes && m->arch->head && !model_head(m)->own;
}

static by_status check_stored(const by_adapter *a, int param)
{
    const gr_param_info *info = &a->model->params->list[param];
    if (info->mapped)
        return base_fail(BY_ERR_ARGUMENT,
                         "the weights are mapped from a file: open the model with a copy of them");
    if (!by_dtype_is_float(info->type))
        return base_fail(BY_ERR_UNSUPPORTED, "%s is stored as %s, which loses what an adapter adds",
                         info->name, by_dtype_name(info->type));
    return BY_OK;
}

static by_status check_merge(const by_adapter *a, int param)
{
    BY_TRY(check_stored(a, param));
    return is_tied_table(a->model, param)
               ? base_fail(
                     BY_ERR_UNSUPPORTED,
                     "%s is the table of embeddings and the weight of the output head; the adapter changes "
                     "one of them alone and cannot be merged",
                     a->model->params->list[param].name)
               : BY_OK;
}

/* Saves the current values of a parameter of the body. */
static by_status keep(by_adapter *a, int param)
{
    if (!a->before[param])
        a->before[param] = values_of(a->model->params, param);
    return a->before[param] ? BY_OK : base_error_status();
}

/* Adds the bias of B to that of the layer. */
static by_status merge_shift(by_adapter *a, const model_target *t)
{
    BY_TRY(keep(a, t->bias));
    float *bias = values_of(a->model->params, t->bias), *shift = bias ? values_of(a->params, t->shift) : NULL;
    for (int64_t i = 0; shift && i < a->params->list[t->shift].count; i++)
        bias[i] += (float)t->scale * shift[i];
    by_status s = shift ? by_params_set(a->model->params, t->bias, BY_SLOT_VALUE, bias) : base_error_status();
    base_free(bias);
    base_free(shift);
    return s;
}

static by_status merge_layer(by_adapter *a, const model_target *t)
{
    const gr_param_info *info = &a->model->params->list[t->weight];
    const int64_t rows = info->dim[0], cols = info->dim[1];
    BY_TRY(keep(a, t->weight));
    float *f = t->magnitude >= 0 ? layer_factors(a, t) : NULL, *w = updated(a, t, t->scale);
    by_status s = w && (f || t->magnitude < 0) ? BY_OK : base_error_status();
    for (int64_t i = 0; s == BY_OK && f && i < rows * cols; i++)
        w[i] *= f[is_by_column(t) ? i % cols : i / cols];
    if (s == BY_OK)
        s = by_params_set(a->model->params, t->weight, BY_SLOT_VALUE, w);
    base_free(f);
    base_free(w);
    return s == BY_OK && t->shift >= 0 ? merge_shift(a, t) : s;
}

/* Multiplies a parameter of the body by n factors in a cycle, each factor for `run` consecutive values. */
static by_status multiply(by_adapter *a, int param, const float *factors, int64_t n, int64_t run)
{
    const int64_t count = a->model->params->list[param].count;
    BY_TRY(keep(a, param));
    float *v = values_of(a->model->params, param);
    for (int64_t i = 0; v && i < count; i++)
        v[i] *= factors[i / run % n];
    by_status s = v ? by_params_set(a->model->params, param, BY_SLOT_VALUE, v) : base_error_status();
    base_free(v);
    return s;
}

/* IA3: factors of outputs also scale the bias. */
static by_status merge_vector(by_adapter *a, const model_target *t)
{
    const gr_param_info *w = &a->model->params->list[t->weight];
    const bool along_rows = t->inputs != t->w_is_kn;
    const int64_t n = a->params->list[t->a].count;
    float *l = values_of(a->params, t->a);
    by_status s = l ? multiply(a, t->weight, l, n, along_rows ? 1 : w->dim[1]) : base_error_status();
    if (s == BY_OK && !t->inputs && t->bias >= 0)
        s = multiply(a, t->bias, l, n, 1);
    base_free(l);
    return s;
}

static by_status merge_value(by_adapter *a, const model_replaced *r)
{
    BY_TRY(keep(a, r->body));
    float *v = values_of(a->params, r->own);
    by_status s = v ? by_params_set(a->model->params, r->body, BY_SLOT_VALUE, v) : base_error_status();
    base_free(v);
    return s;
}

/* A head that is tied to the table gets the tokens as well. */
static by_status merge_tokens(by_adapter *a, const model_tokens *t)
{
    BY_TRY(keep(a, t->table));
    float *table = values_of(a->model->params, t->table),
          *rows = table ? values_of(a->params, t->rows) : NULL;
    if (rows)
        model_tokens_copy(t, a->params->list[t->rows].dim[1], table, rows, true);
    by_status s =
        rows ? by_params_set(a->model->params, t->table, BY_SLOT_VALUE, table) : base_error_status();
    base_free(table);
    base_free(rows);
    return s;
}

static by_status check_all(const by_adapter *a)
{
    for (int i = 0; i < a->n_targets; i++) {
        const model_target *t = &a->targets[i];
        BY_TRY(check_merge(a, t->weight));
        if (t->bias >= 0 && (t->shift >= 0 || (a->config.ia3 && !t->inputs)))
            BY_TRY(check_merge(a, t->bias));
        if (t->bias < 0 && t->shift >= 0)
            return base_fail(BY_ERR_UNSUPPORTED,
                             "the adapter adds a bias to %s, which has none: it cannot be merged",
                             a->model->params->list[t->weight].name);
    }
    for (int i = 0; i < a->n_replaced; i++)
        BY_TRY(check_merge(a, a->replaced[i].body));
    for (int i = 0; i < a->n_tokens; i++)
        BY_TRY(check_stored(a, a->tokens[i].table));
    return BY_OK;
}

by_status by_adapter_merge(by_adapter *a)
{
    if (!a)
        return base_fail_missing("adapter");
    if (a->config.prefix)
        return base_fail(BY_ERR_UNSUPPORTED, "a %s is put before the text and cannot be merged into weights",
                         a->config.prompt ? "prompt" : "prefix");
    for (const by_adapter *o = a->model->adapters; o; o = o->next)
        if (o->before)
            return base_fail(BY_ERR_ARGUMENT, "an adapter is merged already");
    BY_TRY(check_all(a));
    a->before = base_alloc_zero((size_t)a->model->params->count, sizeof *a->before);
    by_status s = a->before ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < a->n_targets && s == BY_OK; i++)
        s = (a->config.ia3 ? merge_vector : merge_layer)(a, &a->targets[i]);
    for (int i = 0; i < a->n_replaced && s == BY_OK; i++)
        s = merge_value(a, &a->replaced[i]);
    for (int i = 0; i < a->n_tokens && s == BY_OK; i++)
        s = merge_tokens(a, &a->tokens[i]);
    if (s != BY_OK && a->before)
        by_adapter_unmerge(a);
    return s;
}

by_status by_adapter_unmerge(by_adapter *a)
{
    if (!a || !a->before)
        return a ? base_fail(BY_ERR_ARGUMENT, "the adapter is not merged") : base_fail_missing("adapter");
    by_status s = BY_OK;
    for (int i = 0; i < a->model->params->count; i++) {
        if (a->before[i] && s == BY_OK)
            s = by_params_set(a->model->params, i, BY_SLOT_VALUE, a->before[i]);
        base_free(a->before[i]);
    }
    base_free(a->before);
    a->before = NULL;
    return s;
}
