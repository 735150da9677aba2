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

/* A part of the work of batch row b: heads [h0, h1), which share one key head, queries [t0, t1) and keys [s0,
 * s1), both in whole tiles. */
typedef struct back_part {
    int64_t b, t0, t1, s0, s1;
    int h0, h1;
    bool queries, keys; /* which gradients to compute: dq and dbias, or dk and dv */
} back_part;

/* Ways to split the work. By key heads, everything of a tile is done at once: 5 products. If there are too
 * few heads to keep the threads busy, dk and dv are computed by tiles of keys, and dq by tiles of queries or,
 * with the gradient of a bias, by heads: 7 products. Both take every sum in the same order, so the results
 * are bitwise equal. */
static back_part cut_heads(const attention_back *g, int64_t i)
{
    const attention *a = &g->a;
    int h = (int)(i % a->kv_heads) * a->group;
    return (back_part){.b = i / a->kv_heads,
                       .t1 = a->queries,
                       .s1 = a->keys,
                       .h0 = h,
                       .h1 = h + a->group,
                       .queries = g->dq.at || wants_bias(g),
                       .keys = g->dk.at || g->dv.at};
}

static back_part cut_keys(const attention_back *g, int64_t i)
{
    const int64_t tiles = (g->a.keys + TILE - 1) / TILE;
    back_part p = cut_heads(g, i / tiles);
    p.s0 = i % tiles * TILE;
    p.s1 = BY_MIN(p.s0 + TILE, g->a.keys);
    p.queries = false;
    return p;
}

static back_part cut_query_heads(const attention_back *g, int64_t i)
{
    back_part p = cut_heads(g, i / g->a.group);
    p.h0 += (int)(i % g->a.group);
    p.h1 = p.h0 + 1;
    p.keys = false;
    return p;
}

static back_part cut_queries(const attention_back *g, int64_t i)
{
    const int64_t tiles = (g->a.queries + TILE - 1) / TILE;
    back_part p = cut_query_heads(g, i / tiles);
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
    const R *from = (const R *)a->lse + (b * a->heads + h) * a->queries + t0;
    bool any = false;
    for (int t = 0; t < TILE; t++) {
        bool nothing = t < n && from[t] == SEES_NOTHING;
        w->lse[t] = nothing ? (R)INFINITY : t < n ? from[t] : 0;
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
        const int first = FN(first_query)(x, s);
        if (a->dropout > 0) {
#pragma omp simd
            for (int t = first; t < x->width; t++) {
                ds[t] = p[t] * (ds[t] * keep[t] - delta[t]);
                p[t] *= keep[t];
            }
        } else {
#pragma omp simd
            for (int t = first; t < x->width; t++)
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

static void FN(store_rows)(const attention *a, const head_rows *r, int64_t b, int64_t t0, int h, int64_t n,
                           R factor, int64_t ld, const R *from)
{
    for (int64_t i = 0; i < n && r->at; i++)
        FN(store_row)(FN(head_at)(a, r, b, t0 + i, h), from + i * ld, a->dim, factor);
}

static void FN(back_part)(const attention_back *g, const back_part *part, R *space)
{
    const attention *a = &g->a;
    const int64_t ld = ROUND_UP(a->dim, VL), keys = part->s1 - part->s0;
    FN(back_space) w = FN(back_space_at)(space, ld, keys);
    if (part->keys)
        memset(w.dk, 0, sizeof(R) * (size_t)(2 * ROUND_UP(keys, MR) * ld));
    for (int h = part->h0; h < part->h1; h++) {
        for (int64_t t0 = part->t0; t0 < part->t1; t0 += TILE) {
            const int n = (int)BY_MIN(a->queries - t0, TILE);
            bool nothing = FN(load_lse)(a, part->b, h, t0, n, &w);
            const gr_stretch seen = keys_seen(a, part->b, t0, n);
            const int64_t end = nothing ? part->s1 : BY_MIN(seen.to, part->s1);
            int64_t first = nothing ? part->s0 : BY_MAX(seen.from / TILE * TILE, part->s0);
            first = next_keys(a, part->b, h, t0, n, first, end, nothing);
            if (first >= end && !part->queries)
                continue;
            if (first >= end) /* none of them attends to anything, and their weights are 0 */
                memset(w.dq, 0, sizeof(R) * (size_t)(TILE * ld));
            FN(load_queries)(g, part->b, h, t0, n, &w);
            for (int64_t s0 = first; s0 < end;
                 s0 = next_keys(a, part->b, h, t0, n, s0 + TILE, end, nothing)) {
                tile x = tile_at(a, part->b, h, t0, s0, VL, s0 == first, nothing);
                FN(back_tile)(g, part, &x, s0 == first, &w);
            }
            if (part->queries)
                FN(store_rows)(a, &g->dq, part->b, t0, h, n, (R)a->scale, ld, w.dq);
        }
    }
    if (part->keys) {
        const int kv = part->h0 / a->group;
        FN(store_rows)(a, &g->dk, part->b, part->s0, kv, keys, 1, ld, w.dk);
        FN(store_rows)(a, &g->dv, part->b, part->s0, kv, keys, 1, ld, w.dv);
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
        FN(back_part)(g, &part, space + thread_index() * floats);
    }
    cpu_scratch_give(g->a.e->device, space);
    return BY_OK;
}

/* Computes dk and dv, then dq and dbias. */
static by_status FN(back_apart)(const attention_back *g, int threads)
{
    const attention *a = &g->a;
    const int64_t key_tiles = (a->keys + TILE - 1) / TILE, query_tiles = (a->queries + TILE - 1) / TILE;
    const int64_t heads = a->batch * a->heads;
    if (g->dk.at || g->dv.at)
        BY_TRY(FN(back_parts)(g, a->batch * a->kv_heads * key_tiles, TILE, threads, cut_keys));
    if (wants_bias(g))
        return FN(back_parts)(g, heads, TILE, threads, cut_query_heads);
    return g->dq.at ? FN(back_parts)(g, heads * query_tiles, TILE, threads, cut_queries) : BY_OK;
}

static by_status FN(back_all)(const attention_back *g)
{
    const attention *a = &g->a;
    const int64_t heads = a->batch * a->kv_heads;
    const int64_t arch_key = heads * ((a->keys + TILE - 1) / TILE);
    const int64_t cpu_query = a->batch * a->heads * ((a->queries + TILE - 1) / TILE);
    const double work = 2.5 * (double)a->batch * a->heads * (double)a->queries * (double)a->keys * a->dim;
    const int threads = threads_for(a, BY_MAX(arch_key, cpu_query), work);
    if (5 * ROUND_UP(heads, threads) <= 7 * heads) {
        BY_BRANCH("all gradients of a key head together");
        return FN(back_parts)(g, heads, a->keys, BY_MIN(threads, (int)heads), cut_heads);
    }
    BY_BRANCH("keys and queries apart");
    return FN(back_apart)(g, threads);
}

static by_status FN(attention_backward)(attention_back *g)
{
    const attention *a = &g->a;
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
