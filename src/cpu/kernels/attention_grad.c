/* attention_grad.c - the gradient of attention by the same tiles: the weights are computed again from the
 * scores and the log-sum-exp that the forward pass kept. With P the weights, P' = dropout(P) and delta =
 * rowsum(dy * y):
 *   dv = P'^T dy     dP = dropout(dy v^T)     dS = P * (dP - delta)     dq = scale dS k     dk = scale dS^T q
 * and the gradient of an entry of the bias is the sum of dS over all that it was added to. A query that sees
 * no key has equal weights on every key, and its scores have their gradients like any other: its masks were
 * added to them and made them equal by rounding. */
#ifndef T_NAME
#include "cpu/kernels/tile.h"

/* attention, and the destinations of the gradients; at = NULL: not wanted. a.lse is read. */
typedef struct attention_back {
    attention a;
    const gr_view *view; /* whose gradients are added to dq, dk and dv, which are then of the accumulation */
                         /* type; NULL: all is one group */
    head_rows dy, dq, dk, dv;
    struct bias_back {       /* for each bias: */
        const by_tensor *to; /* its gradient; NULL: not wanted */
        void *sums;          /* (batch, heads, rows, count) acc: per head, before they are added */
        int64_t rows;        /* queries; 1 if they share one row of the bias */
    } dbias[BIASES];
} attention_back;

static bool wants_bias(const attention_back *g)
{
    return g->dbias[0].to || g->dbias[1].to;
}

/* Query heads [head0, head1) of a view, and groups of it. */
static int groups_of(const attention_back *g)
{
    return g->view ? g->view->groups : 1;
}
static int64_t most_keys(const attention_back *g)
{
    return g->view ? g->view->most_keys : g->a.keys;
}
static int64_t tiles_of_queries(const attention_back *g)
{
    return ((g->view ? g->view->most_queries : g->a.queries) + TILE - 1) / TILE;
}
static int64_t tiles_of_keys(const attention_back *g)
{
    return (most_keys(g) + TILE - 1) / TILE;
}

/* Group i as a problem of its own. */
static attention_back group_back(const attention_back *g, int i)
{
    attention_back y = *g;
    const gr_group x = gr_group_of(g->view, i);
    y.a = attention_of_group(&g->a, &x);
    map_rows(&y.dy, x.query_at, x.query_step, 1);
    map_rows(&y.dq, x.query_at, x.query_step, 1);
    map_rows(&y.dk, x.key_at, x.key_step, x.run);
    map_rows(&y.dv, x.key_at, x.key_step, x.run);
    return y;
}

/* A part of the work of batch row b: heads [h0, h1), which share one key head, and of groups [g0, g1) queries
 * [t0, t1) and keys [s0, s1), both in whole tiles. Several groups have their keys in common. */
typedef struct back_part {
    int64_t b, t0, t1, s0, s1;
    int h0, h1, g0, g1;
    bool queries, keys; /* which gradients to compute: dq and dbias, or dk and dv */
} back_part;

/* Ways to split the work. By key heads, everything of a tile is done at once: 5 products. If there are too
 * few heads to keep the threads busy, dk and dv are computed by tiles of keys, and dq by tiles of queries or,
 * with the gradient of a bias, by heads: 7 products. Both take every sum in the same order, so the results
 * are bitwise equal. */
static back_part cut_heads(const attention_back *g, int64_t i)
{
    const attention *a = &g->a;
    const int h = (int)(i % a->kv_heads) * a->group;
    return (back_part){.b = i / a->kv_heads,
                       .t1 = a->queries,
                       .s1 = most_keys(g),
                       .h0 = g->view ? BY_MAX(h, g->view->head0) : h,
                       .h1 = g->view ? BY_MIN(h + a->group, g->view->head1) : h + a->group,
                       .g1 = groups_of(g),
                       .queries = g->dq.at || wants_bias(g),
                       .keys = g->dk.at || g->dv.at};
}

/* By groups with keys of their own; of a group, all heads. */
static back_part cut_groups(const attention_back *g, int64_t i)
{
    const int heads = g->a.kv_heads, groups = groups_of(g);
    back_part p = cut_heads(g, i / heads / groups * heads + i % heads);
    p.g0 = (int)(i / heads % groups);
    p.g1 = p.g0 + 1;
    return p;
}

static back_part cut_keys(const attention_back *g, int64_t i)
{
    const int64_t tiles = tiles_of_keys(g);
    back_part p = cut_heads(g, i / tiles);
    p.s0 = i % tiles * TILE;
    p.s1 = BY_MIN(p.s0 + TILE, most_keys(g));
    p.queries = false;
    return p;
}

static back_part cut_query_heads(const attention_back *g, int64_t i)
{
    back_part p = cut_heads(g, i / g->a.group);
    const int h = (int)(i % g->a.heads);
    p.h1 = h >= p.h0 && h < p.h1 ? h + 1 : h;
    p.h0 = h;
    p.keys = false;
    return p;
}

static back_part cut_queries(const attention_back *g, int64_t i)
{
    const int64_t tiles = tiles_of_queries(g);
    back_part p = cut_query_heads(g, i / tiles / groups_of(g));
    p.g0 = (int)(i / tiles % groups_of(g));
    p.g1 = p.g0 + 1;
    p.t0 = i % tiles * TILE;
    p.t1 = BY_MIN(p.t0 + TILE, g->a.queries);
    return p;
}

#define BY_TEMPLATE "cpu/kernels/attention_grad.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(attention_grad)(gr_exec *e, gr_node *n)
{
    attention_back g = {.a = attention_of(e, n), .dy = rows_of(n->in[GR_ATT_DY], 0)};
    g.a.y = rows_of(n->in[GR_ATT_Y], 0);
    g.a.lse = n->in[GR_ATT_LSE]->data;
    for (int i = 0; i < BIASES; i++) {
        g.dbias[i].to = n->out[3 + i];
        g.dbias[i].rows = n->out[3 + i] && n->out[3 + i]->dim[2] == 1 ? 1 : g.a.queries;
    }
    rows_of_qkv(n->attr, n->out, &g.dq, &g.dk, &g.dv);
    BY_DISPATCH(n->in[0]->type, attention_backward, &g);
}

#else
#include "cpu/kernels/tile.h"

typedef struct FN(back_space) {
    R *q, *qt, *dy, *dyt; /* (TILE, ld) of the current queries: scaled q, dy, and both transposed */
    R *k, *v, *dq;        /* (TILE, ld) */
    R *p, *ds, *keep;     /* (TILE, TILE), keys by queries */
    R *dk, *dv;           /* (s1 - s0, ld) of the part */
    R lse[TILE], even[TILE], delta[TILE];
    int64_t ld;
} FN(back_space);

static int64_t FN(back_floats)(int64_t ld, int64_t keys)
{
    return 7 * TILE * ld + 3 * TILE * TILE + 2 * ROUND_UP(keys, MR) * ld;
}

static FN(back_space) FN(back_space_at)(R *at, int64_t ld, int64_t keys)
{
    FN(back_space) w = {.ld = ld};
    R **tiles[] = {&w.q, &w.qt, &w.dy, &w.dyt, &w.k, &w.v, &w.dq}, **squares[] = {&w.p, &w.ds, &w.keep};
    for (int i = 0; i < BY_COUNT(tiles); i++, at += TILE * ld)
        *tiles[i] = at;
    for (int i = 0; i < BY_COUNT(squares); i++, at += TILE * TILE)
        *squares[i] = at;
    w.dk = at;
    w.dv = at + ROUND_UP(keys, MR) * ld;
    return w;
}

/* Loads the log-sum-exps of n queries as scores_to_weights expects them. Returns true if a query attends to
 * nothing and so has weights on every key. */
static bool FN(load_lse)(const attention *a, int64_t b, int h, int64_t t0, int n, FN(back_space) * w)
{
    bool any = false;
    for (int t = 0; t < TILE; t++) {
        const R lse = t < n ? ((const R *)a->lse)[lse_row(a, b, h, t0 + t)] : 0;
        const bool nothing = lse == SEES_NOTHING;
        w->lse[t] = nothing ? (R)INFINITY : lse;
        w->even[t] = nothing ? (R)empty_weight(a, a->keys) : 0;
        any |= nothing && !a->empty_zero;
    }
    return any;
}

static void FN(load_queries)(const attention_back *g, int64_t b, int h, int64_t t0, int n, FN(back_space) * w)
{
    const attention *a = &g->a;
    const int whole = ROUND_UP(n, VL);
    FN(load_rows)(a, &a->q, b, t0, h, n, whole, (R)a->scale, w->ld, w->q);
    FN(transpose)(whole, w->ld, w->q, w->qt);
    FN(load_rows)(a, &g->dy, b, t0, h, n, whole, 1, w->ld, w->dy);
    FN(transpose)(whole, w->ld, w->dy, w->dyt);
    memset(w->delta, 0, sizeof w->delta);
    for (int t = 0; t < n; t++) {
        const T *restrict y = FN(head_at)(a, &a->y, b, t0 + t, h);
        const R *restrict dy = w->dy + t * w->ld;
        R sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int d = 0; d < a->dim; d++)
            sum += LD(y[d]) * dy[d];
        w->delta[t] = sum;
    }
}

/* p: weights to weights after dropout. ds: gradient of those to gradient of the scores. */
static void FN(through_softmax)(const attention *a, const tile *x, FN(back_space) * w)
{
    const R *restrict delta = w->delta;
    if (a->dropout > 0)
        FN(draw_dropout)(a, x, w->keep);
    for (int s = 0; s < x->keys; s++) {
        R *restrict p = w->p + s * TILE, *restrict ds = w->ds + s * TILE;
        const R *restrict keep = w->keep + s * TILE;
        const int first = FN(first_query)(x, s), last = FN(last_query)(x, s);
        if (a->dropout > 0) {
#pragma omp simd
            for (int t = first; t < last; t++) {
                ds[t] = p[t] * (ds[t] * keep[t] - delta[t]);
                p[t] *= keep[t];
            }
        } else {
#pragma omp simd
            for (int t = first; t < last; t++)
                ds[t] = p[t] * (ds[t] - delta[t]);
        }
    }
}

/* Adds consecutive entries, `step` apart, to the sums of a row of the bias. */
static void FN(add_entries)(const bias_rows *bias, int n, int64_t first, int step, const R *line, R *to)
{
    for (int i = 0; i < n; i++)
        to[clamp_entry(bias, first + (int64_t)step * i)] += line[i];
}

/* Adds the score gradients of a tile to the sums of its head; compare add_bias. */
static void FN(add_to_bias)(const attention_back *g, int i, const tile *x, const R *restrict ds)
{
    const bias_rows *bias = &g->a.bias[i];
    const int64_t first = bias_entry(bias, x->position, x->s0), rows = g->dbias[i].rows;
    R *to = (R *)g->dbias[i].sums + (x->b * g->a.heads + x->h) * rows * bias->count, line[2 * TILE] = {0};
    if (rows > 1) {
        for (int t = 0; t < x->queries; t++) {
            for (int s = 0; s < x->keys; s++)
                line[s] = t < FN(first_query)(x, s) ? 0 : ds[s * TILE + t];
            FN(add_entries)
            (bias, x->keys, first - (bias->relative ? t : 0), 1, line, to + (x->t0 + t) * bias->count);
        }
        return;
    }
    for (int s = 0; s < x->keys; s++) {
        R *restrict along = line + TILE - 1 - s, sum = 0;
        const int from = FN(first_query)(x, s);
        if (bias->relative)
            for (int t = from; t < x->queries; t++)
                along[t] += ds[s * TILE + t];
        for (int t = from; t < x->queries && !bias->relative; t++)
            sum += ds[s * TILE + t];
        if (!bias->relative)
            line[s] = sum;
    }
    if (bias->relative)
        FN(add_entries)(bias, 2 * TILE - 1, first + TILE - 1, -1, line, to);
    else
        FN(add_entries)(bias, x->keys, first, 1, line, to);
}

/* Reduces the sums of all heads to the gradient of bias `which`, in order along the broadcast axes. */
static void FN(finish_bias)(const attention_back *g, int which)
{
    const by_tensor *out = g->dbias[which].to;
    const int64_t heads = g->a.heads, rows = g->dbias[which].rows, count = g->a.bias[which].count;
    const int64_t step = rows * count;
    const int64_t h_times = heads / out->dim[1], b_times = g->a.batch / out->dim[0];
#pragma omp parallel for num_threads(g->a.e->threads) if (by_elements(out) >= BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < out->dim[0] * out->dim[1] * rows; i++) {
        const int64_t b0 = i / rows / out->dim[1] * b_times, h0 = i / rows % out->dim[1] * h_times;
        T *to = (T *)out->data + i * count;
        for (int64_t j = 0; j < count; j++) {
            const R *from = (const R *)g->dbias[which].sums + i % rows * count + j;
            R sum = 0;
            for (int64_t b = b0; b < b0 + b_times; b++)
                for (int64_t h = h0; h < h0 + h_times; h++)
                    sum += from[(b * heads + h) * step];
            to[j] = ST(sum);
        }
    }
}

/* Processes one tile of queries, already loaded, against one tile of keys. */
static void FN(back_tile)(const attention_back *g, const back_part *part, const tile *x, bool first,
                          FN(back_space) * w)
{
    const attention *a = &g->a;
    const int64_t ld = w->ld, row = (x->s0 - part->s0) * ld;
    const int kv = x->h / a->group, whole = ROUND_UP(x->keys, MR);
    FN(load_rows)(a, &a->k, x->b, x->s0, kv, x->keys, whole, 1, ld, w->k);
    FN(times_queries)(x, a->dim, ld, w->k, w->qt, w->p);
    FN(finish_scores)(a, x, w->p);
    FN(scores_to_weights)(x, w->lse, w->even, w->p);
    FN(load_rows)(a, &a->v, x->b, x->s0, kv, x->keys, whole, 1, ld, w->v);
    FN(times_queries)(x, a->dim, ld, w->v, w->dyt, w->ds);
    FN(through_softmax)(a, x, w);
    if (part->keys) {
        FN(sum_over_queries)(x, ld, w->p, w->dy, w->dv + row);
        FN(sum_over_queries)(x, ld, w->ds, w->q, w->dk + row);
    }
    for (int i = 0; i < BIASES; i++)
        if (part->queries && g->dbias[i].to)
            FN(add_to_bias)(g, i, x, w->ds);
    if (part->queries)
        FN(sum_over_keys)(x, ld, w->ds, w->k, w->dq, !first);
}

/* Stores n rows from t0 on times factor; those of a view are added. */
static void FN(store_rows)(const attention_back *g, const head_rows *r, int64_t b, int64_t t0, int h,
                           int64_t n, R factor, int64_t ld, const R *from)
{
    const int dim = g->a.dim;
    for (int64_t i = 0; i < n && r->at; i++, from += ld) {
        if (!g->view) {
            FN(store_row)(FN(head_at)(&g->a, r, b, t0 + i, h), from, dim, factor);
            continue;
        }
        R *restrict to = (R *)r->at + row_at(r, b, t0 + i) + (int64_t)h * dim;
#pragma omp simd
        for (int d = 0; d < dim; d++)
            to[d] += from[d] * factor;
    }
}

/* Processes queries [t0, t0 + TILE) of head h of a group against the keys of the part. */
static void FN(back_queries)(const attention_back *g, const back_part *part, int h, int64_t t0,
                             FN(back_space) * w)
{
    const attention *a = &g->a;
    const int n = (int)BY_MIN(a->queries - t0, TILE);
    const bool nothing = FN(load_lse)(a, part->b, h, t0, n, w);
    const gr_stretch seen = keys_seen(a, part->b, t0, n);
    const int64_t end = nothing ? part->s1 : BY_MIN(seen.to, part->s1);
    int64_t first = nothing ? part->s0 : BY_MAX(seen.from / TILE * TILE, part->s0);
    first = next_keys(a, part->b, h, t0, n, first, end, nothing);
    if (first >= end && !part->queries)
        return;
    if (first >= end) /* none of them attends to anything, and their weights are 0 */
        memset(w->dq, 0, sizeof(R) * (size_t)(TILE * w->ld));
    FN(load_queries)(g, part->b, h, t0, n, w);
    for (int64_t s0 = first; s0 < end; s0 = next_keys(a, part->b, h, t0, n, s0 + TILE, end, nothing)) {
        tile x = tile_at(a, part->b, h, t0, s0, VL, s0 == first, nothing);
        FN(back_tile)(g, part, &x, s0 == first, w);
    }
    if (part->queries)
        FN(store_rows)(g, &g->dq, part->b, t0, h, n, (R)a->scale, w->ld, w->dq);
}

static void FN(back_part)(const attention_back *all, const back_part *part, R *space)
{
    const int64_t ld = ROUND_UP(all->a.dim, VL), keys = part->s1 - part->s0;
    FN(back_space) w = FN(back_space_at)(space, ld, keys);
    attention_back g = *all;
    if (part->keys)
        memset(w.dk, 0, sizeof(R) * (size_t)(2 * ROUND_UP(keys, MR) * ld));
    for (int i = part->g0; i < part->g1; i++) {
        g = all->view ? group_back(all, i) : *all;
        for (int h = part->h0; h < part->h1; h++)
            for (int64_t t0 = part->t0; t0 < BY_MIN(part->t1, g.a.queries); t0 += TILE)
                FN(back_queries)(&g, part, h, t0, &w);
    }
    if (part->keys && part->h0 < part->h1) {
        const int kv = part->h0 / g.a.group; /* the last group has all keys */
        const int64_t n = BY_MIN(g.a.keys, part->s1) - part->s0;
        FN(store_rows)(&g, &g.dk, part->b, part->s0, kv, n, 1, ld, w.dk);
        FN(store_rows)(&g, &g.dv, part->b, part->s0, kv, n, 1, ld, w.dv);
    }
}

/* Runs the parts that `cut` makes of indices [0, tasks). They write to disjoint memory. */
static by_status FN(back_parts)(const attention_back *g, int64_t tasks, int64_t keys, int threads,
                                back_part (*cut)(const attention_back *g, int64_t i))
{
    const int64_t floats = FN(back_floats)(ROUND_UP(g->a.dim, VL), keys);
    R *space = cpu_scratch_take(g->a.e->device, (size_t)(threads * floats) * sizeof(R));
    if (!space)
        return BY_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < tasks; i++) {
        back_part part = cut(g, i);
        FN(back_part)(g, &part, space + cpu_team_thread() * floats);
    }
    cpu_scratch_give(g->a.e->device, space);
    return BY_OK;
}

/* Computes dk and dv, then dq and dbias. */
static by_status FN(back_apart)(const attention_back *g, int threads)
{
    const attention *a = &g->a;
    const int64_t query_tiles = groups_of(g) * tiles_of_queries(g), heads = a->batch * a->heads;
    if (g->dk.at || g->dv.at)
        BY_TRY(FN(back_parts)(g, a->batch * a->kv_heads * tiles_of_keys(g), TILE, threads, cut_keys));
    if (wants_bias(g))
        return FN(back_parts)(g, heads, TILE, threads, cut_query_heads);
    return g->dq.at ? FN(back_parts)(g, heads * query_tiles, TILE, threads, cut_queries) : BY_OK;
}

static by_status FN(back_all)(const attention_back *g)
{
    const attention *a = &g->a;
    const int64_t heads = a->batch * a->kv_heads;
    const int64_t key_parts = heads * tiles_of_keys(g);
    const int64_t query_parts = a->batch * a->heads * groups_of(g) * tiles_of_queries(g);
    const double work =
        2.5 * (double)a->batch * a->heads * (double)a->queries * (double)most_keys(g) * a->dim;
    const int threads = threads_for(a, BY_MAX(key_parts, query_parts), work);
    if (g->view && !g->view->shared) {
        BY_BRANCH("groups with keys of their own");
        return FN(back_parts)(g, heads * groups_of(g), most_keys(g), threads, cut_groups);
    }
    if (5 * ROUND_UP(heads, threads) <= 7 * heads) {
        BY_BRANCH("all gradients of a key head together");
        return FN(back_parts)(g, heads, most_keys(g), BY_MIN(threads, (int)heads), cut_heads);
    }
    BY_BRANCH("keys and queries apart");
    return FN(back_apart)(g, threads);
}

/* The gradients of all views, added up: in place, or in `sums` where the outputs are of a shorter type. */
static by_status FN(back_views)(attention_back *g, const gr_view *views, int count, R *sums)
{
    const gr_node *n = g->a.n;
    by_tensor wide[3], *to[3];
    for (int i = 0; i < 3; i++) {
        to[i] = n->out[i] ? &wide[i] : NULL;
        if (!to[i])
            continue;
        wide[i] = *n->out[i];
        wide[i].type = gr_acc_type(n->out[i]->type);
        if (sums)
            wide[i].data = sums;
        sums = sums ? sums + by_elements(to[i]) : NULL;
        memset(wide[i].data, 0, sizeof(R) * (size_t)by_elements(to[i]));
    }
    rows_of_qkv(n->attr, to, &g->dq, &g->dk, &g->dv);
    for (int i = 0; i < count; i++) {
        g->view = &views[i];
        BY_TRY(FN(back_all)(g));
    }
    for (int i = 0; i < 3; i++)
        for (int64_t j = 0, end = sums && to[i] ? by_elements(to[i]) : 0; j < end; j++)
            ((T *)n->out[i]->data)[j] = ST(((const R *)to[i]->data)[j]);
    return BY_OK;
}

static by_status FN(back_by_views)(attention_back *g, const gr_view *views, int count)
{
    size_t elements = 0;
    for (int i = 0; i < 3; i++)
        elements += g->a.n->out[i] ? (size_t)by_elements(g->a.n->out[i]) : 0;
    if (sizeof(T) == sizeof(R) || elements == 0)
        return FN(back_views)(g, views, count, NULL);
    R *sums = cpu_scratch_take(g->a.e->device, elements * sizeof(R));
    if (!sums)
        return BY_ERR_MEMORY;
    const by_status status = FN(back_views)(g, views, count, sums);
    cpu_scratch_give(g->a.e->device, sums);
    return status;
}

static by_status FN(attention_backward)(attention_back *g)
{
    const attention *a = &g->a;
    gr_view views[GR_MAX_VIEWS];
    const int n_views = gr_node_views(a->n, a->causal, a->queries, a->keys, views);
    if (a->dropout > 0)
        BY_BRANCH("dropout");
    if (a->key_mask)
        BY_BRANCH("key mask");
    if (a->prefix)
        BY_BRANCH("prefix");
    if (a->reach.on)
        BY_BRANCH("pattern");
    if (a->bias[0].at)
        BY_BRANCH("bias");
    if (a->bias[1].at)
        BY_BRANCH("relative bias");
    if (a->pairs.at)
        BY_BRANCH("pair mask");
    if (a->empty_zero)
        BY_BRANCH("zeros for queries without keys");
    if (n_views) {
        BY_BRANCH("views");
        return FN(back_by_views)(g, views, n_views);
    }
    if (!wants_bias(g))
        return FN(back_all)(g);
    BY_BRANCH("gradient of the bias");
    size_t count[BIASES];
    for (int i = 0; i < BIASES; i++)
        count[i] = g->dbias[i].to ? (size_t)(a->batch * a->heads * g->dbias[i].rows * a->bias[i].count) : 0;
    R *sums = cpu_scratch_take(a->e->device, sizeof(R) * (count[0] + count[1]));
    if (!sums)
        return BY_ERR_MEMORY;
    memset(sums, 0, sizeof(R) * (count[0] + count[1]));
    g->dbias[0].sums = sums;
    g->dbias[1].sums = sums + count[0];
    by_status status = FN(back_all)(g);
    for (int i = 0; i < BIASES && status == BY_OK; i++)
        if (g->dbias[i].to)
            FN(finish_bias)(g, i);
    cpu_scratch_give(a->e->device, sums);
    return status;
}

#endif
