/* adapter_tokens.c - trained token embeddings beside LoRA (trainable_token_indices of PEFT): the adapter
 * replaces rows of a table, for look-ups and for a head that is tied to the table. */
#include "model/adapter.h"

/* ---- configuration ---------------------------------------------------------------------------- */

static bool is_table(const by_adapter *a, const char *name)
{
    const arch_family *f = a->model->arch;
    return (f->table && strcmp(name, f->table) == 0) ||
           (f->target_table && strcmp(name, f->target_table) == 0);
}

/* The token ids for a table, or NULL. A list is for the model's main table, an object has one list per
 * name. */
static const cJSON *list_of(const by_adapter *a, const char *name, const char *module)
{
    const cJSON *tokens = a->config.tokens;
    if (cJSON_IsArray(tokens))
        return is_table(a, name) ? tokens : NULL;
    for (const cJSON *e = tokens ? tokens->child : NULL; e; e = e->next)
        if (model_adapter_is_named(module, e->string))
            return e;
    return NULL;
}

static by_status check_list(const cJSON *list, const char *table, int64_t vocab)
{
    for (const cJSON *e = list->child; e; e = e->next) {
        if (e->valuedouble < 0 || e->valuedouble >= (double)vocab)
            return base_fail(BY_ERR_ARGUMENT, "adapter: %s has no token %.0f: it has %lld", table,
                             e->valuedouble, (long long)vocab);
        for (const cJSON *other = e->next; other; other = other->next)
            if (other->valuedouble == e->valuedouble)
                return base_fail(BY_ERR_ARGUMENT, "adapter: the token %.0f is named twice", e->valuedouble);
    }
    return BY_OK;
}

/* ---- the parameters ----------------------------------------------------------------------------- */

static by_status declare(by_graph *g, by_adapter *a, const by_tensor *table, const char *module,
                         const cJSON *list)
{
    const int n = cJSON_GetArraySize(list);
    const int64_t shape[] = {n, by_dim(table, 1)};
    model_tokens *more = base_resize(a->tokens, (size_t)a->n_tokens + 1, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    a->tokens = more;
    const by_tensor *rows = model_adapter_own(g, a, module, "token_adapter.trainable_tokens_delta", 2, shape,
                                              (by_init){BY_INIT_ZERO, 0});
    by_tensor *ids =
        model_adapter_own(g, a, module, "token_adapter.indices", 1, shape, (by_init){BY_INIT_ZERO, 0});
    if (gr_is_bad(g))
        return by_graph_status(g);
    model_adapter_fix(a, ids);
    more[a->n_tokens++] =
        (model_tokens){.table = table->param, .rows = rows->param, .ids = ids->param, .list = list};
    return BY_OK;
}

static by_status meet(by_graph *g, by_adapter *a, const by_tensor *table)
{
    const char *name = table->params->list[table->param].name;
    base_buf module = {0};
    const bool weight = model_adapter_module(name, "weight", &module);
    const cJSON *list = weight ? list_of(a, name, module.data) : NULL;
    by_status s = BY_OK;
    if (list && model_adapter_is_shared(a, name))
        s = base_fail(BY_ERR_UNSUPPORTED,
                      "adapter: several modules share the table %s, whose tokens cannot be trained", name);
    if (list && s == BY_OK)
        s = check_list(list, name, by_dim(table, 0));
    if (list && s == BY_OK)
        s = declare(g, a, table, module.data, list);
    base_buf_free(&module);
    return s;
}

const model_tokens *model_tokens_of(by_graph *g, by_adapter *a, const by_tensor *table)
{
    const model_tokens *found = NULL;
    if (!a->config.tokens || table->place != GR_PLACE_PARAM || table->params != a->model->params ||
        table->rank != 2)
        return NULL;
    for (int round = 0; round < 2 && !found && !gr_is_bad(g); round++) {
        for (int i = 0; i < a->n_tokens && !found; i++)
            found = a->tokens[i].table == table->param ? &a->tokens[i] : NULL;
        if (!found && (!a->declaring || round || meet(g, a, table) != BY_OK))
            return a->declaring && !round ? (gr_poison(g), NULL) : NULL;
    }
    return gr_is_bad(g) ? NULL : found;
}

static bool was_found(const by_adapter *a, const cJSON *list)
{
    for (int i = 0; i < a->n_tokens; i++)
        if (a->tokens[i].list == list)
            return true;
    return false;
}

/* A head that is tied to a table has the table's trained tokens, whether it is named or not. */
static bool is_tied_head(const by_adapter *a, const char *name)
{
    base_buf module = {0};
    const char *head = a->model->arch->head;
    const bool tied = head && !model_head(a->model)->own && model_adapter_module(head, "weight", &module) &&
                      model_adapter_is_named(module.data, name);
    base_buf_free(&module);
    return tied;
}

by_status model_tokens_check(const by_adapter *a)
{
    const cJSON *tokens = a->config.tokens;
    if (!tokens || (cJSON_IsArray(tokens) && a->n_tokens))
        return BY_OK;
    if (cJSON_IsArray(tokens))
        return base_fail(BY_ERR_UNSUPPORTED, "adapter: %s has no token embeddings to train",
                         a->model->arch->title);
    for (const cJSON *e = tokens->child; e; e = e->next)
        if (!was_found(a, e) && !(a->n_tokens && is_tied_head(a, e->string)))
            return base_fail(BY_ERR_UNSUPPORTED,
                             "adapter: trainable_token_indices: no embedding of %s is called \"%s\"",
                             a->model->arch->title, io_show(e->string).text);
    return BY_OK;
}

/* ---- graphs --------------------------------------------------------------------------------------- */

static by_tensor *less(by_graph *g, by_tensor *x)
{
    return by_add(g, by_scale(g, x, -1), by_fill(g, by_type(x), 0, NULL, 1));
}

/* Multiplies a one-hot matrix of the trained tokens by their rows, and masks the rows of the table. */
by_tensor *model_tokens_look_up(by_graph *g, const by_adapter *a, const model_tokens *t, by_tensor *y,
                                by_tensor *ids)
{
    by_tensor *own = model_adapter_declared(g, a->params, t->ids),
              *rows = model_adapter_declared(g, a->params, t->rows);
    int64_t shape[BY_MAX_RANK];
    const int rank = by_rank(ids);
    for (int i = 0; i < rank; i++)
        shape[i] = by_dim(ids, i);
    shape[rank] = 1;
    by_tensor *off =
        by_sub(g, by_reshape(g, by_cast(g, ids, by_type(own)), rank + 1, shape), own); /* (..., n) */
    by_tensor *hits = by_cast(g, less(g, by_clamp(g, by_mul(g, off, off), 0, 1)), by_type(y));
    by_tensor *others = less(g, by_reshape(g, by_sum(g, hits, rank), rank + 1, shape));
    return by_add(g, by_mul(g, y, others),
                  gr_linear_plain(g, hits, rows, NULL, &(by_linear_spec){.w_is_kn = true}));
}

/* The table with the trained rows in place. */
by_tensor *model_tokens_table(by_graph *g, const by_adapter *a, const model_tokens *t, by_tensor *table)
{
    if (!by_dtype_is_float(by_type(table)))
        return by_graph_fail(
            g, "adapter: a head is tied to the table of the trained tokens, which is stored as %s",
            by_dtype_name(by_type(table)));
    by_tensor *ids = by_cast(g, model_adapter_declared(g, a->params, t->ids), BY_I32);
    by_tensor *rows = model_adapter_declared(g, a->params, t->rows);
    const int64_t vocab = by_dim(table, 0), column[] = {by_dim(rows, 0), 1};
    by_tensor *hits = by_scatter_add(g, by_fill(g, by_type(table), 2, column, 1), ids, vocab);
    return by_add(g, by_mul(g, table, less(g, hits)),
                  by_scatter_add(g, by_cast(g, rows, by_type(table)), ids, vocab));
}

/* ---- values ---------------------------------------------------------------------------------------- */

by_status model_tokens_derive(by_adapter *a)
{
    for (int i = 0; i < a->n_tokens; i++) {
        const model_tokens *t = &a->tokens[i];
        float *ids = base_alloc((size_t)a->params->list[t->ids].count * sizeof *ids);
        if (!ids)
            return BY_ERR_MEMORY;
        int n = 0;
        for (const cJSON *e = t->list->child; e; e = e->next)
            ids[n++] = (float)e->valuedouble;
        by_status s = by_params_set(a->params, t->ids, BY_SLOT_VALUE, ids);
        base_free(ids);
        BY_TRY(s);
    }
    return BY_OK;
}

void model_tokens_copy(const model_tokens *t, int64_t width, float *table, float *rows, bool into_table)
{
    for (const cJSON *e = t->list->child; e; e = e->next, rows += width) {
        float *row = table + (int64_t)e->valuedouble * width;
        memcpy(into_table ? row : rows, into_table ? rows : row, (size_t)width * sizeof *row);
    }
}
