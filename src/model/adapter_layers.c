/* adapter_layers.c - applies an adapter to the layers of a model while it is built into a graph.
 *
 *      LoRA:  y = x W^T + b + s (dropout(x) A^T) B^T
 *      DoRA:  y = c (x W^T + s (x A^T) B^T) + b,   c = m / |W + s B A|, the norm of each output, without a gradient
 *      IA3:   y = l * (x W^T + b), or with scaled inputs y = (l * x) W^T + b
 *
 * For embeddings, row t of the table replaces x W^T, and column t of A replaces x A^T. */
#include <math.h>

#include "model/adapter.h"

/* ---- the parameters of a layer ---------------------------------------------------------------- */

/* The name of a parameter in the adapter's file: path and part joined by a dot. NULL on failure. */
static char *tensor_name(by_graph *g, const by_adapter *a, const char *path, const char *part)
{
    base_buf module = {0};
    char *name =
        model_adapter_path(a->model, path, &module)
            ? base_arena_sprintf(g->arena, MODEL_ADAPTER_PREFIX "%s%s%s", module.data, *part ? "." : "", part)
            : NULL;
    base_buf_free(&module);
    return name;
}

by_tensor *model_adapter_own(by_graph *g, const by_adapter *a, const char *module, const char *part, int rank,
                             const int64_t *shape, by_init init)
{
    const char *name = tensor_name(g, a, module, part);
    return name ? gr_param_leaf(g, a->params, name, rank, shape, init) : gr_poison(g);
}

by_tensor *model_adapter_declared(by_graph *g, by_params *p, int i)
{
    const gr_param_info *info = &p->list[i];
    return gr_param_leaf(g, p, info->name, info->rank, info->dim, info->init);
}

void model_adapter_fix(by_adapter *a, by_tensor *t)
{
    gr_param_info *info = &a->params->list[t->param];
    info->fixed = true;
    info->trainable = false;
    info->type = t->type = gr_acc_type(a->params->type);
}

static int64_t inputs_of(const model_target *t, const by_tensor *w)
{
    return by_dim(w, t->embedding || t->w_is_kn ? 0 : 1);
}

static int64_t outputs_of(const model_target *t, const by_tensor *w)
{
    return by_dim(w, t->embedding || t->w_is_kn ? 1 : 0);
}

/* A starts as PyTorch initialises a linear layer and B as zeros. For embeddings, A starts as zeros and B
 * normally distributed. */
static void declare(by_graph *g, by_adapter *a, model_target *t, const char *module, const by_tensor *w)
{
    const int64_t in = inputs_of(t, w), out = outputs_of(t, w), r = t->rank;
    const by_init zero = {BY_INIT_ZERO, 0}, uniform = {BY_INIT_UNIFORM, 1 / sqrtf((float)in)},
                  normal = {BY_INIT_NORMAL, 1};
    const by_tensor *low =
        model_adapter_own(g, a, module, t->embedding ? "lora_embedding_A" : "lora_A.weight", 2,
                          (int64_t[]){r, in}, t->embedding ? zero : uniform);
    const by_tensor *high =
        model_adapter_own(g, a, module, t->embedding ? "lora_embedding_B" : "lora_B.weight", 2,
                          (int64_t[]){out, r}, t->embedding ? normal : zero);
    by_tensor *magnitude = NULL, *norms = NULL;
    const by_tensor *shift =
        a->config.shifts ? model_adapter_own(g, a, module, "lora_B.bias", 1, &out, zero) : NULL;
    if (a->config.dora) {
        magnitude = model_adapter_own(g, a, module, "lora_magnitude_vector", 1, &out, zero);
        norms = model_adapter_own(g, a, module, "norms", 1, &out, zero);
    }
    if (gr_is_bad(g))
        return;
    t->a = low->param;
    t->b = high->param;
    t->shift = shift ? shift->param : -1;
    t->magnitude = magnitude ? magnitude->param : -1;
    t->norms = norms ? norms->param : -1;
    if (norms)
        model_adapter_fix(a, norms);
}

/* The vector of IA3 starts as ones. It has no weight decay, because it is not a matrix despite its shape in
 * PEFT. */
static void declare_vector(by_graph *g, by_adapter *a, model_target *t, const char *module,
                           const by_tensor *w)
{
    const int64_t row[] = {1, inputs_of(t, w)}, column[] = {outputs_of(t, w), 1};
    const by_tensor *l =
        model_adapter_own(g, a, module, "ia3_l", 2, t->inputs ? row : column, (by_init){BY_INIT_ONE, 0});
    t->b = t->shift = t->magnitude = t->norms = -1;
    if (gr_is_bad(g))
        return;
    t->a = l->param;
    a->params->list[l->param].decay = false;
}

/* ---- finding layers --------------------------------------------------------------------------- */

/* A product that reads a table belongs to the head that is tied to the table. */
static const char *weight_name(const by_adapter *a, const char *name, bool embedding)
{
    const arch_family *f = a->model->arch;
    const bool table =
        (f->table && strcmp(name, f->table) == 0) || (f->target_table && strcmp(name, f->target_table) == 0);
    return table && !embedding && f->head ? f->head : name;
}

static bool is_head(const by_adapter *a, const char *name)
{
    return a->model->arch->head && strcmp(name, a->model->arch->head) == 0;
}

bool model_adapter_is_shared(const by_adapter *a, const char *name)
{
    for (const arch_alias *c = a->model->arch->copies; c && c->key; c++)
        if (strcmp(c->field, name) == 0 && strstr(c->key, "embed"))
            return true;
    return false;
}

static by_status is_adapted(by_adapter *a, const char *name, const char *module, bool embedding, bool *out)
{
    const bool all = model_adapter_takes_all(a);
    bool saved = false;
    if (all)
        BY_TRY(model_adapter_saves(a, name, &saved));
    *out = !embedding && !saved && !is_head(a, name);
    if (!all)
        BY_TRY(model_adapter_matches(a, module, out));
    if (*out && embedding && a->config.shifts)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "adapter: lora_bias is for linear layers, and %s is an embedding", name);
    if (*out && embedding && a->config.ia3)
        return base_fail(BY_ERR_UNSUPPORTED, "adapter: IA3 scales linear layers, and %s is an embedding",
                         name);
    if (*out && embedding && model_adapter_is_shared(a, name))
        return base_fail(
            BY_ERR_UNSUPPORTED,
            "adapter: several modules share the table %s, which cannot be adapted; store it whole", name);
    return BY_OK;
}

static model_target *add_target(by_adapter *a)
{
    model_target *more = base_resize(a->targets, (size_t)a->n_targets + 1, sizeof *more);
    if (!more)
        return NULL;
    a->targets = more;
    return &more[a->n_targets];
}

static by_status declare_layer(by_graph *g, by_adapter *a, model_target *t, const char *module,
                               const by_tensor *w)
{
    if (a->config.ia3)
        BY_TRY(model_adapter_scales_inputs(a, module, &t->inputs));
    else
        BY_TRY(model_adapter_scale(a, module, t));
    (a->config.ia3 ? declare_vector : declare)(g, a, t, module, w);
    return BY_OK;
}

/* Declares the adapter of a layer when it is first seen, if the configuration names the layer. */
static by_status meet(by_graph *g, by_adapter *a, const by_tensor *w, const by_tensor *b, bool embedding,
                      bool w_is_kn)
{
    const char *name = weight_name(a, w->params->list[w->param].name, embedding);
    base_buf module = {0};
    bool adapted = false;
    by_status s = model_adapter_module(name, "weight", &module)
                      ? is_adapted(a, name, module.data, embedding, &adapted)
                      : BY_OK;
    model_target *t = s == BY_OK && adapted ? add_target(a) : NULL;
    if (adapted && s == BY_OK && !t)
        s = BY_ERR_MEMORY;
    if (t) {
        *t = (model_target){.weight = w->param, .embedding = embedding, .w_is_kn = w_is_kn};
        t->bias = b && b->params == a->model->params ? b->param : -1;
        s = declare_layer(g, a, t, module.data, w);
        a->n_targets += s == BY_OK && !gr_is_bad(g);
    }
    base_buf_free(&module);
    return s;
}

static const model_target *find(const by_adapter *a, int weight, bool embedding)
{
    for (int i = 0; i < a->n_targets; i++)
        if (a->targets[i].weight == weight && a->targets[i].embedding == embedding)
            return &a->targets[i];
    return NULL;
}

/* The adapter of the layer with this weight, or NULL. */
static const model_target *target_of(by_graph *g, by_adapter *a, const by_tensor *w, const by_tensor *b,
                                     bool embedding, bool w_is_kn)
{
    if (w->place != GR_PLACE_PARAM || w->params != a->model->params || w->rank != 2)
        return NULL;
    if (a->declaring && !find(a, w->param, embedding) && meet(g, a, w, b, embedding, w_is_kn) != BY_OK)
        gr_poison(g);
    return gr_is_bad(g) ? NULL : find(a, w->param, embedding);
}

/* ---- layers ----------------------------------------------------------------------------------- */

/* |W + s B A|^2 for each output, from |W|^2 and small products, without a matrix of the size of W. */
static by_tensor *squared_norms(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *w)
{
    const by_dtype acc = gr_acc_type(a->params->type);
    const bool w_is_kn = t->w_is_kn || t->embedding;
    by_tensor *low =
        by_cast(g, by_detach(g, model_adapter_declared(g, a->params, t->a)), acc); /* (r, inputs) */
    by_tensor *high =
        by_cast(g, by_detach(g, model_adapter_declared(g, a->params, t->b)), acc); /* (outputs, r) */
    by_tensor *cross =
        gr_linear_plain(g, low, w, NULL, &(by_linear_spec){.w_is_kn = w_is_kn}); /* (r, outputs) */
    cross = by_sum(g, by_mul(g, by_permute_axes(g, cross, (int[]){1, 0}), high), 1);
    by_tensor *square = gr_linear_plain(g, low, low, NULL, NULL); /* (r, r) */
    square = by_sum(g, by_mul(g, gr_linear_plain(g, high, square, NULL, NULL), high), 1);
    by_tensor *sum = by_add(g, by_scale(g, cross, 2 * t->scale), by_scale(g, square, t->scale * t->scale));
    return by_add(g, sum, model_adapter_declared(g, a->params, t->norms));
}

/* The factor of every output: (outputs), in the type of activations. */
static by_tensor *factors(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *w)
{
    if (!a->training)
        return by_cast(g, model_adapter_declared(g, a->params, t->norms), a->params->type);
    by_tensor *norm = by_activation(g, squared_norms(g, a, t, w), BY_SQRT);
    by_tensor *magnitude = by_cast(g, model_adapter_declared(g, a->params, t->magnitude), by_type(norm));
    return by_cast(g, by_div(g, magnitude, norm), a->params->type);
}

/* s low B^T, where low is x A^T; with a bias of B, s (low B^T + bias). */
static by_tensor *raise(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *low)
{
    by_tensor *y = gr_linear_plain(g, by_scale(g, low, t->scale), model_adapter_declared(g, a->params, t->b),
                                   NULL, NULL);
    return t->shift < 0 ? y
                        : by_add(g, y, by_scale(g, model_adapter_declared(g, a->params, t->shift), t->scale));
}

/* With dropout, the reference scales only the product of the remaining inputs, and adds it to the product of
 * x. */
static by_tensor *dora(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *x, by_tensor *w,
                       by_tensor *b, const by_linear_spec *plain)
{
    const bool drops = g->drops && a->config.dropout > 0;
    by_tensor *dropped = by_dropout(g, x, (float)a->config.dropout);
    by_tensor *base = gr_linear_plain(g, dropped, w, NULL, plain);
    by_tensor *low = gr_linear_plain(g, dropped, model_adapter_declared(g, a->params, t->a), NULL, NULL);
    by_tensor *y = by_mul(g, by_add(g, base, raise(g, a, t, low)), factors(g, a, t, w));
    if (drops)
        return by_add(g, y, by_sub(g, gr_linear_plain(g, x, w, b, plain), base));
    return b ? by_add(g, y, b) : y;
}

static by_tensor *lora(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *x, by_tensor *w,
                       by_tensor *b, const by_linear_spec *plain)
{
    by_tensor *y = gr_linear_plain(g, x, w, b, plain);
    by_tensor *low = gr_linear_plain(g, by_dropout(g, x, (float)a->config.dropout),
                                     model_adapter_declared(g, a->params, t->a), NULL, NULL); /* (..., r) */
    return by_add(g, y, raise(g, a, t, low));
}

static by_tensor *ia3(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *x, by_tensor *w,
                      by_tensor *b, const by_linear_spec *plain)
{
    by_tensor *l = by_reshape(g, model_adapter_declared(g, a->params, t->a), 1, (int64_t[]){-1});
    return t->inputs ? gr_linear_plain(g, by_mul(g, x, l), w, b, plain)
                     : by_mul(g, gr_linear_plain(g, x, w, b, plain), l);
}

static by_tensor *adapt_linear(void *user, by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b,
                               const by_linear_spec *spec)
{
    by_adapter *a = user;
    const by_linear_spec plain = {.w_is_kn = spec && spec->w_is_kn};
    const model_target *t = target_of(g, a, w, b, false, plain.w_is_kn);
    if (!t)
        return NULL;
    by_tensor *y = (a->config.ia3 ? ia3 : a->config.dora ? dora : lora)(g, a, t, x, w, b, &plain);
    return spec && spec->act != BY_ACT_NONE ? by_activation(g, y, spec->act) : y;
}

static by_tensor *look_up(by_graph *g, const by_adapter *a, const model_target *t, by_tensor *table,
                          by_tensor *ids, int padding)
{
    by_tensor *columns =
        by_permute_axes(g, model_adapter_declared(g, a->params, t->a), (int[]){1, 0}); /* (inputs, r) */
    by_tensor *low = gr_gather_plain(g, columns, ids, padding);
    by_tensor *y = by_add(g, gr_gather_plain(g, table, ids, padding), raise(g, a, t, low));
    return a->config.dora ? by_mul(g, y, factors(g, a, t, table)) : y;
}

static by_tensor *adapt_gather(void *user, by_graph *g, by_tensor *table, by_tensor *ids, int padding)
{
    by_adapter *a = user;
    const model_target *t = target_of(g, a, table, NULL, true, false);
    const model_tokens *tokens = model_tokens_of(g, a, table);
    if (t && tokens)
        return by_graph_fail(g, "adapter: the table %s is adapted and has trained tokens; choose one",
                             table->params->list[table->param].name);
    if (tokens)
        return model_tokens_look_up(g, a, tokens, gr_gather_plain(g, table, ids, padding), ids);
    return t ? look_up(g, a, t, table, ids, padding) : NULL;
}

/* ---- replaced parameters ---------------------------------------------------------------------- */

static const model_replaced *find_replaced(const by_adapter *a, int body, bool tied)
{
    for (int i = 0; i < a->n_replaced; i++)
        if (a->replaced[i].body == body && a->replaced[i].tied == tied)
            return &a->replaced[i];
    return NULL;
}

/* Whether a bias belongs to an adapted module; *module gets its name. Files may store a bias that several
 * modules share under each of their names. If all biases are trained, a shared bias keeps its own name. */
static by_status is_adapted_bias(by_adapter *a, const char *name, base_buf *module, bool *out)
{
    BY_TRY(model_adapter_matches(a, module->data, out));
    const arch_alias *c = a->config.bias == MODEL_BIAS_ADAPTED ? a->model->arch->copies : NULL;
    for (; c && c->key && !*out; c++)
        if (strcmp(c->field, name) == 0 && by_params_find(a->model->params, c->key) < 0 &&
            model_adapter_module(c->key, "bias", module))
            BY_TRY(model_adapter_matches(a, module->data, out));
    return BY_OK;
}

/* Whether the adapter replaces a parameter; *own_name gets its name in the adapter's file. */
static by_status is_replaced(by_graph *g, by_adapter *a, const char *name, bool *out, char **own_name)
{
    base_buf module = {0};
    by_status s = model_adapter_saves(a, name, out);
    bool adapted = false;
    if (s == BY_OK && !*out && a->config.bias != MODEL_BIAS_NONE &&
        model_adapter_module(name, "bias", &module)) {
        s = is_adapted_bias(a, name, &module, &adapted);
        *out = adapted || a->config.bias == MODEL_BIAS_ALL;
    }
    if (s == BY_OK && *out) {
        *own_name = adapted ? tensor_name(g, a, module.data, "base_layer.bias") : tensor_name(g, a, name, "");
        s = *own_name ? BY_OK : BY_ERR_MEMORY;
    }
    base_buf_free(&module);
    return s;
}

static by_status meet_parameter(by_graph *g, by_adapter *a, const char *name, const by_tensor *t, bool tied)
{
    bool replaced;
    char *own_name = NULL;
    BY_TRY(is_replaced(g, a, name, &replaced, &own_name));
    if (!replaced)
        return BY_OK;
    model_replaced *more = base_resize(a->replaced, (size_t)a->n_replaced + 1, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    a->replaced = more;
    const by_tensor *value =
        gr_param_leaf(g, a->params, own_name, t->rank, t->dim, (by_init){BY_INIT_ZERO, 0});
    if (!gr_is_bad(g))
        more[a->n_replaced++] = (model_replaced){.body = t->param, .own = value->param, .tied = tied};
    return by_graph_status(g);
}

static by_tensor *value_of(by_graph *g, by_adapter *a, const char *name, const by_tensor *t, bool tied)
{
    if (a->declaring && !find_replaced(a, t->param, tied) && meet_parameter(g, a, name, t, tied) != BY_OK)
        return gr_poison(g);
    const model_replaced *r = find_replaced(a, t->param, tied);
    return r ? model_adapter_declared(g, a->params, r->own) : NULL;
}

static by_tensor *adapt_param(void *user, by_graph *g, by_tensor *t)
{
    by_adapter *a = user;
    return t->params == a->model->params ? value_of(g, a, t->params->list[t->param].name, t, false) : NULL;
}

/* A head that is tied to a table reads the body's table, even if the adapter changes that. */
static by_tensor *adapt_tied(void *user, by_graph *g, const char *name, by_tensor *table)
{
    by_adapter *a = user;
    for (int i = 0; i < a->n_replaced && table->params == a->params; i++)
        if (!a->replaced[i].tied && a->replaced[i].own == table->param)
            table = model_adapter_declared(g, a->model->params, a->replaced[i].body);
    by_tensor *other =
        table->params == a->model->params && table->param >= 0 ? value_of(g, a, name, table, true) : NULL;
    if (other)
        return other;
    const model_tokens *tokens = model_tokens_of(g, a, table);
    return tokens ? model_tokens_table(g, a, tokens, table) : table;
}

gr_hook model_adapter_hook(by_adapter *a)
{
    return (gr_hook){
        .param = adapt_param, .linear = adapt_linear, .gather = adapt_gather, .tied = adapt_tied, .user = a};
}
