/* noise.c - uniform noise on the embeddings of tokens in training (NEFTune, Jain et al. 2023): a hook around that of the adapter. */
#include <math.h>

#include "graph/graph.h"
#include "model/model.h"

/* Lives as long as the graph. */
typedef struct noise {
    gr_hook hook;
    const gr_hook *inner; /* NULL: none */
    const by_tensor *tokens;
    double alpha;
    bool met;
} noise;

static by_tensor *param(void *user, by_graph *g, by_tensor *t)
{
    const gr_hook *h = ((const noise *)user)->inner;
    return h && h->param ? h->param(h->user, g, t) : NULL;
}

static by_tensor *linear(void *user, by_graph *g, by_tensor *x, by_tensor *w, by_tensor *b,
                         const by_linear_spec *spec)
{
    const gr_hook *h = ((const noise *)user)->inner;
    return h && h->linear ? h->linear(h->user, g, x, w, b, spec) : NULL;
}

static by_tensor *tied(void *user, by_graph *g, const char *name, by_tensor *table)
{
    const gr_hook *h = ((const noise *)user)->inner;
    return h && h->tied ? h->tied(h->user, g, name, table) : table;
}

static void extend(void *user, by_graph *g, int layer, by_tensor *past, const by_attention_spec *spec,
                   by_tensor **k, by_tensor **v)
{
    const gr_hook *h = ((const noise *)user)->inner;
    h->extend(h->user, g, layer, past, spec, k, v);
}

/* From -alpha / sqrt(T C) to alpha / sqrt(T C) on (B, T, C). */
static by_tensor *gather(void *user, by_graph *g, by_tensor *table, by_tensor *ids, int padding)
{
    noise *n = user;
    const gr_hook *h = n->inner;
    by_tensor *y = h && h->gather ? h->gather(h->user, g, table, ids, padding) : NULL;
    if (ids != n->tokens)
        return y;
    y = y ? y : gr_gather_plain(g, table, ids, padding);
    if (gr_is_bad(g) || by_rank(y) != 3)
        return y;
    const int64_t shape[] = {by_dim(y, 0), by_dim(y, 1), by_dim(y, 2)};
    n->met = true;
    return by_add(g, y,
                  by_random(g, BY_RANDOM_UNIFORM, by_type(y), 3, shape,
                            n->alpha / sqrt((double)shape[1] * (double)shape[2])));
}

void *model_noise_begin(const by_model *m, by_graph *g, const by_model_io *io)
{
    if (!(m->noise > 0) || !g->training || io->cache || gr_is_bad(g))
        return NULL;
    noise *n = base_arena_alloc(g->arena, sizeof *n);
    if (!n) {
        gr_poison(g);
        return NULL;
    }
    *n = (noise){.inner = g->hook, .tokens = by_io_input(io, "tokens"), .alpha = m->noise};
    n->hook = (gr_hook){.param = param, .linear = linear, .gather = gather, .tied = tied, .user = n};
    n->hook.extend = n->inner && n->inner->extend ? extend : NULL;
    g->hook = &n->hook;
    return n;
}

void model_noise_end(void *begun, by_graph *g)
{
    noise *n = begun;
    if (!n)
        return;
    g->hook = n->inner;
    if (!n->met && !gr_is_bad(g))
        by_graph_fail(g, "the model looks up no embeddings of tokens that noise could be added to");
}
