/* adapter_prompt.c - prompt tuning: trained embeddings of N positions before every text.
 *
 * Without a cache, the body is first built over the prompt alone, once for all rows. A decoder's prompt does
 * not attend to the text, so the text needs only the keys and values of its layers, which are put before
 * those of the text as with a prefix. A cache has room for them before the first token: the generator feeds
 * that many placeholder tokens, and the prompt replaces their embeddings. */
#include "model/adapter.h"
#include "nn/cache.h"

static by_status declare(by_graph *g, by_adapter *a, const by_tensor *table)
{
    const int64_t width = by_dim(table, 1), shape[] = {a->config.prefix, width};
    by_tensor **kept = base_alloc_zero((size_t)by_model_layers(a->model) * 2, sizeof *kept);
    model_target *one = base_alloc_zero(1, sizeof *one);
    base_free(a->prompt.keys_values);
    base_free(a->targets);
    a->prompt.keys_values = kept;
    a->targets = one;
    a->n_targets = one ? 1 : 0;
    if (!kept || !one)
        return BY_ERR_MEMORY;
    const by_tensor *rows =
        gr_param_leaf(g, a->params, MODEL_ADAPTER_PROMPT, 2, shape, (by_init){BY_INIT_NORMAL, 0.02f});
    *one = (model_target){.weight = table->param,
                          .bias = -1,
                          .a = rows->param,
                          .b = -1,
                          .magnitude = -1,
                          .norms = -1,
                          .width = width};
    a->heads = by_model_heads(a->model);
    return by_graph_status(g);
}

/* The embeddings of the prompt's placeholder tokens. */
static by_tensor *embed(void *user, by_graph *g, by_tensor *table, by_tensor *ids, int padding)
{
    by_adapter *a = user;
    if (ids != a->prompt.ids || gr_is_bad(g))
        return NULL;
    if (a->declaring && declare(g, a, table) != BY_OK)
        return gr_poison(g);
    const gr_param_info *info = &a->params->list[a->targets[0].a];
    by_tensor *rows = gr_param_leaf(g, a->params, info->name, info->rank, info->dim, info->init);
    return a->prompt.past
               ? model_prefix_over(g, rows, a->prompt.past, gr_gather_plain(g, table, ids, padding))
               : by_reshape(g, rows, 3, (int64_t[]){1, info->dim[0], info->dim[1]});
}

/* Stores the keys and values of the prompt, or puts them before those of the text. */
static void extend(void *user, by_graph *g, int layer, by_tensor *past, const by_attention_spec *spec,
                   by_tensor **k, by_tensor **v)
{
    by_adapter *a = user;
    by_tensor **kept = a->prompt.keys_values, **both[] = {k, v};
    if (past || !model_prefix_fits(g, a, spec))
        return;
    if (!kept || layer >= by_model_layers(a->model))
        return;
    for (int i = 0; i < 2; i++) {
        by_tensor **own = &kept[2 * layer + i];
        if (a->prompt.keeps)
            *own = *both[i];
        else
            *both[i] = model_prefix_before(
                g, by_reshape(g, *own, 2, (int64_t[]){by_dim(*own, 1), by_dim(*own, 2)}), *both[i]);
    }
}

gr_hook model_prompt_hook(by_adapter *a)
{
    return (gr_hook){.gather = embed, .extend = extend, .user = a};
}

void model_prompt_begin(by_adapter *a, by_graph *g, const by_model_io *io)
{
    if (!a || !a->config.prompt || gr_is_bad(g))
        return;
    const by_model *m = a->model;
    const int64_t shape[] = {1, a->config.prefix};
    a->prompt.ids = by_io_input(io, "tokens");
    a->prompt.past = io->cache ? io->cache->past : NULL;
    if (io->cache)
        return;
    by_model_io own = {.task = io->task, .labels = io->labels, .problem = io->problem};
    by_tensor *ids = by_fill(g, BY_I32, 2, shape, 0);
    by_io_feed(&own, "tokens", ids);
    by_io_feed(&own, "positions", by_range_from(g, 2, shape, by_model_first_position(m)));
    const int layers = by_model_layers(m);
    by_tensor **kept = a->prompt.keys_values;
    for (int i = 0; kept && i < 2 * layers; i++)
        kept[i] = NULL;
    a->prompt.ids = ids;
    a->prompt.keeps = true;
    m->arch->build(g, m->config, &own);
    a->prompt.keeps = false;
    a->prompt.ids = NULL;
    kept = a->prompt.keys_values; /* allocated while the model declares its parameters */
    for (int i = 0; !gr_is_bad(g) && i < 2 * layers; i++)
        if (!kept || !kept[i])
            by_graph_fail(g, "adapter: the attention of %s takes no prefix", m->arch->title);
}
