/* adaptive.c - adaptive input representations (Baevski and Auli 2019) and adaptive softmax (Grave et al.
 * 2017), as used by Transformer-XL. The vocabulary is sorted by frequency and split into clusters. Cluster 0,
 * the head, is predicted together with one extra column per tail cluster; a tail token is predicted in two
 * steps:
 *
 *      log p(w) = log p(tail i) + log p(w | tail i)
 *
 * Each cluster's table may be narrower than the previous one by the factor div, and is projected to the
 * model's width. */
#include "models/models.h"

#include "base/base.h"
#include "graph/graph.h"
#include <math.h>

#define COPIES(i)                                                                       \
    {"crit.out_layers." #i ".weight", "transformer.word_emb.emb_layers." #i ".weight"}, \
    {                                                                                   \
        "crit.out_projs." #i, "transformer.word_emb.emb_projs." #i                      \
    }
const arch_alias arch_adaptive_copies[] = {{"crit.out_projs.0", "transformer.word_emb.emb_projs.0"},
                                           COPIES(1),
                                           COPIES(2),
                                           COPIES(3),
                                           COPIES(4),
                                           {.key = NULL}};

int arch_adaptive_tails(const arch_adaptive *a)
{
    int n = 0;
    while (n < a->count && a->cutoffs[n] < a->vocab)
        n++;
    return n;
}

/* The first token of cluster i; for i past the last cluster, the size of the vocabulary. */
static int64_t begin_of(const arch_adaptive *a, int i)
{
    return i == 0 ? 0 : i <= arch_adaptive_tails(a) ? a->cutoffs[i - 1] : a->vocab;
}

static int64_t size_of(const arch_adaptive *a, int i)
{
    return begin_of(a, i + 1) - begin_of(a, i);
}

/* With div 1, one table has the rows of all clusters. */
static bool shares_table(const arch_adaptive *a)
{
    return a->div == 1;
}

static int64_t width_of(const arch_adaptive *a, int i)
{
    int64_t width = a->embed;
    for (int k = 0; k < i; k++)
        width /= a->div;
    return width;
}

static bool is_projected(const arch_adaptive *a)
{
    return a->div > 1 || a->embed != a->width;
}

static by_tensor *table_of(by_graph *g, const arch_adaptive *a, const char *name, int i)
{
    char full[96];
    const int at = shares_table(a) ? 0 : i;
    base_format(full, sizeof full, name, at);
    return by_param(g, full, 2, (int64_t[]){shares_table(a) ? a->vocab : size_of(a, i), width_of(a, at)},
                    (by_init){BY_INIT_NORMAL, a->std});
}

static by_tensor *projection_of(by_graph *g, const arch_adaptive *a, const char *name, int i)
{
    char full[96];
    base_format(full, sizeof full, name, i);
    return by_param(g, full, 2, (int64_t[]){a->width, width_of(a, i)},
                    (by_init){BY_INIT_NORMAL, a->projection_std});
}

/* ---- clusters of tokens ---------------------------------------------------------------------- */

/* Ids as f32, which represents every id exactly. */
static by_tensor *shifted(by_graph *g, by_tensor *ids, double by, double low, double high)
{
    by_tensor *x = by_add(g, by_cast(g, ids, BY_F32), by_fill(g, BY_F32, 0, NULL, by));
    return by_clamp(g, x, low, high);
}

/* 1 where an id is in cluster i, 0 elsewhere, f32. */
static by_tensor *inside(by_graph *g, const arch_adaptive *a, by_tensor *ids, int i)
{
    by_tensor *low = shifted(g, ids, 1.0 - (double)begin_of(a, i), 0, 1);
    by_tensor *past = shifted(g, ids, 1.0 - (double)begin_of(a, i + 1), 0, 1);
    return by_sub(g, low, past);
}

/* Ids relative to the first of cluster i; for ids of other clusters, an arbitrary valid one. */
static by_tensor *local(by_graph *g, const arch_adaptive *a, by_tensor *ids, int i)
{
    by_tensor *x = shifted(g, ids, -(double)begin_of(a, i), 0, (double)(size_of(a, i) - 1));
    return by_cast(g, x, BY_I32);
}

/* ---- embedding ------------------------------------------------------------------------------- */

by_tensor *arch_adaptive_embedding(by_graph *g, by_tensor *ids, const arch_adaptive *a)
{
    by_tensor *sum = NULL;
    for (int i = 0; i <= (shares_table(a) ? 0 : arch_adaptive_tails(a)); i++) {
        by_tensor *table = table_of(g, a, "word_emb.emb_layers.%d.weight", i);
        by_tensor *x = by_gather(g, table, shares_table(a) ? ids : local(g, a, ids, i)); /* (B, T, C_i) */
        if (is_projected(a))
            x = by_linear(g, x, projection_of(g, a, "word_emb.emb_projs.%d", i), NULL, NULL); /* (B, T, C) */
        if (!sum) {
            sum = x;
            continue;
        }
        by_tensor *mask = by_cast(g, inside(g, a, ids, i), BY_I32);
        mask = by_reshape(g, mask, 3, (int64_t[]){by_dim(ids, 0), by_dim(ids, 1), 1});
        sum = by_where(g, mask, x, sum);
    }
    return by_scale(g, sum, sqrt((double)a->width));
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* The projection before the logits of cluster i, or NULL. */
static by_tensor *out_projection(by_graph *g, const arch_adaptive *a, int i)
{
    const int at = shares_table(a) ? 0 : i;
    char full[96];
    if (!is_projected(a))
        return NULL;
    if (a->ties[i])
        return projection_of(g, a, "transformer.word_emb.emb_projs.%d", at);
    base_format(full, sizeof full, "crit.out_projs.%d", i);
    return by_param(g, full, 2, (int64_t[]){a->width, width_of(a, at)},
                    (by_init){BY_INIT_NORMAL, a->projection_std});
}

/* Rows of a shared table, or all of a cluster's own. */
static by_tensor *rows_of(by_graph *g, const arch_adaptive *a, by_tensor *all, int i)
{
    const bool part = shares_table(a) && arch_adaptive_tails(a) > 0;
    return part ? by_slice(g, all, 0, begin_of(a, i), size_of(a, i)) : all;
}

static by_tensor *weights_of(by_graph *g, const arch_adaptive *a, bool own, int i)
{
    return rows_of(
        g, a,
        table_of(g, a, own ? "crit.out_layers.%d.weight" : "transformer.word_emb.emb_layers.%d.weight", i),
        i);
}

static by_tensor *bias_of(by_graph *g, const arch_adaptive *a, int i)
{
    char full[64];
    const int64_t size = shares_table(a) ? a->vocab : size_of(a, i);
    base_format(full, sizeof full, "crit.out_layers.%d.bias", shares_table(a) ? 0 : i);
    return rows_of(g, a, by_param(g, full, 1, &size, (by_init){BY_INIT_ZERO, 0}), i);
}

/* h (N, C) -> logits of cluster i; in the head, followed by the columns of the tails. */
static by_tensor *logits_of(by_graph *g, const arch_adaptive *a, bool own, by_tensor *h, int i)
{
    const int64_t tails = arch_adaptive_tails(a);
    by_tensor *w = weights_of(g, a, own, i), *b = bias_of(g, a, i), *p = out_projection(g, a, i);
    if (p)
        h = by_linear(g, h, p, NULL, &(by_linear_spec){.w_is_kn = true}); /* (N, C_i) */
    if (i == 0 && tails > 0) {
        by_tensor *more = by_param(g, "crit.cluster_weight", 2, (int64_t[]){tails, by_dim(w, 1)},
                                   (by_init){BY_INIT_NORMAL, a->std});
        by_tensor *bias = by_param(g, "crit.cluster_bias", 1, &tails, (by_init){BY_INIT_ZERO, 0});
        w = by_concat(g, (by_tensor *[]){w, more}, 2, 0);
        b = by_concat(g, (by_tensor *[]){b, bias}, 2, 0);
    }
    return by_linear(g, h, w, b, NULL);
}

/* The column of the head for tail i. */
static int64_t column_of(const arch_adaptive *a, int i)
{
    const int tails = arch_adaptive_tails(a);
    return begin_of(a, 1) + (a->reversed ? tails - i : i - 1);
}

static by_tensor *normalized(by_graph *g, by_tensor *logits) /* (N, V) -> logarithms of probabilities */
{
    by_tensor *lse = NULL;
    by_top(g, logits, 1, NULL, &lse);
    logits = by_cast(g, logits, by_type(lse));
    return by_sub(g, logits, by_reshape(g, lse, 2, (int64_t[]){by_dim(logits, 0), 1}));
}

/* h (N, C) -> (N, V). */
static by_tensor *all_logits(by_graph *g, const arch_adaptive *a, bool own, by_tensor *h)
{
    by_tensor *parts[ARCH_CUTOFFS + 1];
    const int tails = arch_adaptive_tails(a);
    by_tensor *head = logits_of(g, a, own, h, 0);
    if (tails == 0)
        return head;
    head = normalized(g, head);
    parts[0] = by_slice(g, head, 1, 0, begin_of(a, 1));
    for (int i = 1; i <= tails; i++) {
        by_tensor *tail = normalized(g, logits_of(g, a, own, h, i));
        parts[i] = by_add(g, tail, by_slice(g, head, 1, column_of(a, i), 1));
    }
    return by_cast(g, by_concat(g, parts, tails + 1, 1), by_type(h));
}

void arch_adaptive_head(by_graph *g, by_model_io *io, const arch_adaptive *a, bool own)
{
    by_tensor *h = by_io_output(io, "features"), *pick = by_io_input(io, "pick");
    const int64_t b = by_dim(h, 0), t = by_dim(h, 1);
    by_tensor *rows = pick ? nn_pick(g, h, pick) : by_reshape(g, h, 2, (int64_t[]){b * t, by_dim(h, 2)});
    by_tensor *logits = all_logits(g, a, own, rows);
    by_io_return(io, "rows", rows);
    by_io_return(io, "logits", pick ? logits : by_reshape(g, logits, 3, (int64_t[]){b, t, a->vocab}));
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* Targets (N) of the head: a tail token maps to the column of its tail. */
static by_tensor *head_targets(by_graph *g, const arch_adaptive *a, by_tensor *targets)
{
    for (int i = 1; i <= arch_adaptive_tails(a); i++) {
        by_tensor *column = by_fill(g, BY_I32, 0, NULL, (double)column_of(a, i));
        targets = by_where(g, by_cast(g, inside(g, a, targets, i), BY_I32), column, targets);
    }
    return targets;
}

/* The mean loss of the rows whose target is in tail i. If the batch lists them, only these rows are
 * computed. */
static by_tensor *tail_loss(by_graph *g, const by_model_io *io, const arch_adaptive *a, bool own,
                            by_tensor *targets, by_tensor *mask, int i)
{
    by_tensor *h = by_io_output(io, "rows"), *list = by_io_input(io, arch_adaptive_derived[i - 1].name), *to;
    if (list) {
        const int64_t count = by_dim(list, 1);
        h = by_gather(g, h, by_reshape(g, by_slice(g, list, 0, 0, 1), 1, &count)); /* (K, C) */
        to = by_reshape(g, by_slice(g, list, 0, 1, 1), 1, &count);
    } else {
        to =
            by_where(g, by_cast(g, mask, BY_I32), local(g, a, targets, i), by_fill(g, BY_I32, 0, NULL, -100));
    }
    return by_cross_entropy(g, logits_of(g, a, own, h, i), to, NULL);
}

by_tensor *arch_adaptive_loss(by_graph *g, const by_model_io *io, by_tensor *targets, const arch_adaptive *a,
                              bool own)
{
    if (io->label_smoothing > 0)
        return by_graph_fail(g, "an adaptive softmax has no label smoothing");
    targets = by_reshape(g, targets, 1, (int64_t[]){-1});
    by_tensor *counted = by_sum(g, shifted(g, targets, 1, 0, 1), 0);
    by_tensor *all = by_maximum(g, counted, by_fill(g, BY_F32, 0, NULL, 1));
    by_tensor *loss = by_cross_entropy(g, logits_of(g, a, own, by_io_output(io, "rows"), 0),
                                       head_targets(g, a, targets), NULL);
    for (int i = 1; i <= arch_adaptive_tails(a); i++) {
        by_tensor *mask = inside(g, a, targets, i);
        by_tensor *tail = tail_loss(g, io, a, own, targets, mask, i);
        by_tensor *count = by_cast(g, by_sum(g, mask, 0), by_type(tail));
        loss = by_add(g, loss, by_mul(g, tail, by_div(g, count, by_cast(g, all, by_type(tail)))));
    }
    return loss;
}

/* ---- rows of a tail --------------------------------------------------------------------------- */

static bool is_in(const arch_adaptive *a, int32_t target, int i)
{
    return target >= begin_of(a, i) && target < begin_of(a, i + 1);
}

/* (2, K): K is a sixteenth of the rows times a power of two, so that few shapes are compiled. */
static int tail_shape(const arch_adaptive *a, const arch_rows *rows, int64_t *dim, int i)
{
    int64_t count = 0, room = BY_MAX(rows->count / 16, 1);
    if (rows->task != BY_TASK_LM || !rows->given || i > arch_adaptive_tails(a))
        return 0;
    for (int64_t k = 0; k < rows->count; k++)
        count += is_in(a, rows->given[k], i);
    while (room < count)
        room *= 2;
    dim[0] = 2;
    dim[1] = BY_MIN(room, rows->count);
    return 2;
}

static void tail_fill(const arch_adaptive *a, const arch_rows *rows, const int64_t *dim, int32_t *out, int i)
{
    int64_t n = 0;
    for (int64_t k = 0; k < rows->count && n < dim[1]; k++)
        if (is_in(a, rows->given[k], i)) {
            out[n] = (int32_t)k;
            out[dim[1] + n++] = rows->given[k] - (int32_t)begin_of(a, i);
        }
    for (; n < dim[1]; n++) {
        out[n] = 0;
        out[dim[1] + n] = -100;
    }
}

#define TAIL(i)                                                                                       \
    static int shape_##i(const void *config, const arch_rows *rows, int64_t *dim)                     \
    {                                                                                                 \
        return tail_shape(config, rows, dim, i);                                                      \
    }                                                                                                 \
    static void fill_##i(const void *config, const arch_rows *rows, const int64_t *dim, int32_t *out) \
    {                                                                                                 \
        tail_fill(config, rows, dim, out, i);                                                         \
    }
TAIL(1)
TAIL(2)
TAIL(3)
TAIL(4)
#define TAIL_ROW(i)                                                                 \
    {                                                                               \
        .name = "tail." #i, .from = "targets", .shape = shape_##i, .fill = fill_##i \
    }
const arch_derived arch_adaptive_derived[] = {
    TAIL_ROW(1), TAIL_ROW(2), TAIL_ROW(3), TAIL_ROW(4), {.name = NULL}};
