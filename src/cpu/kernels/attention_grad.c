/* attention_grad.c - the gradient of attention by the same tiles: the weights are computed again from the
 * scores and the log-sum-exp that the forward pass kept. With P the weights, P' = dropout(P) and delta =
 * rowsum(dy * y): dv = P'^T dy     dP = dropout(dy v^T)     dS = P * (dP - delta)     dq = scale dS k     dk
 * = scale dS^T q A query that sees no key has constant weights: it gives to dv, and nothing to dq and dk. */
#ifndef T_NAME
#include "cpu/kernels/tile.h"

/* attention, and where the gradients go; at = NULL: not wanted. a.lse is read. */
typedef struct attention_back {
    attention a;
    head_rows dy, dq, dk, dv;
} attention_back;

/* A part of the work of batch row b: heads [h0, h1), which share one key head, queries from [t0, t1) and keys
 * from [s0, s1), both whole tiles. */
typedef struct back_part {
    int64_t b, t0, t1, s0, s1;
    int h0, h1;
    bool queries, keys; /* which gradients to make: dq, or dk and dv */
} back_part;

/* Three ways to cut the work up. By key heads, everything of a tile is done at once: 5 products. When there
 * are too few heads to keep the threads busy, dk and dv are made by tiles of keys and dq by tiles of queries,
 * with 7 products. Every sum is taken in the same order in both, so the results are the same bits. */
static back_part cut_heads(const attention_back *g, int64_t i)
{
    const attention *a = &g->a;
    int h = (int)(i % a->kv_heads) * a->group;
    return (back_part){.b = i / a->kv_heads,
                       .t1 = a->queries,
                       .s1 = a->keys,
                       .h0 = h,
                       .h1 = h + a->group,
                       .queries = g->dq.at != NULL,
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

static back_part cut_queries(const attention_back *g, int64_t i)
{
    const int64_t tiles = (g->a.queries + TILE - 1) / TILE, head = i / tiles;
    back_part p = cut_heads(g, head / g->a.group);
    p.h0 += (int)(head % g->a.group);
    p.h1 = p.h0 + 1;
    p.t0 = i % tiles * TILE;
    p.t1 = BY_MIN(p.t0 + TILE, g->a.queries);
    p.keys = false;
    return p;
}

#define BY_TEMPLATE "cpu/kernels/attention_grad.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(attention_grad)(by_exec *e, by_node *n)
{
    attention_back g = {.a = attention_of(e, n), .dy = rows_of(n->in[6], 0)};
    g.a.key_mask = n->in[3] ? n->in[3]->data : NULL;
    g.a.y = rows_of(n->in[4], 0);
    g.a.lse = n->in[5]->data;
    rows_of_qkv(n->attr, n->out, &g.dq, &g.dk, &g.dv);
    BY_DISPATCH(n->in[0]->type, attention_backward, &g);
}

#else
#include "cpu/kernels/tile.h"

typedef struct FN(back_space) {
    R *q, *qt, *dy, *dyt; /* (TILE, ld) of the present queries: scaled q, dy, and both transposed */
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

/* Log-sum-exps of n queries as scores_to_weights wants them. True when one of the queries sees nothing. */
static bool FN(load_lse)(const attention *a, int64_t b, int h, int64_t t0, int n, FN(back_space) * w)
{
    const R *from = (const R *)a->lse + (b * a->heads + h) * a->queries + t0;
    bool any = false;
    for (int t = 0; t < TILE; t++) {
        bool nothing = t < n && from[t] == SEES_NOTHING;
        w->lse[t] = nothing ? (R)INFINITY : t < n ? from[t] : 0;
        w->even[t] = nothing ? (R)(1.0 / (double)a->keys) : 0;
        any |= nothing;
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
    const R *restrict even = w->even, *restrict delta = w->delta;
    if (a->dropout > 0)
        FN(draw_dropout)(a, x, w->keep);
    for (int s = 0; s < x->keys; s++) {
        R *restrict p = w->p + s * TILE, *restrict ds = w->ds + s * TILE;
        const R *restrict keep = w->keep + s * TILE;
        const int first = FN(first_query)(x, s);
        if (a->dropout > 0) {
#pragma omp simd
            for (int t = first; t < x->width; t++) {
                ds[t] = (p[t] - even[t]) * (ds[t] * keep[t] - delta[t]);
                p[t] *= keep[t];
            }
        } else {
#pragma omp simd
            for (int t = first; t < x->width; t++)
                ds[t] = (p[t] - even[t]) * (ds[t] - delta[t]);
        }
    }
}

/* One tile of queries, already loaded, against one tile of keys. */
static void FN(back_tile)(const attention *a, const back_part *part, const tile *x, FN(back_space) * w)
{
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
    if (part->queries)
        FN(sum_over_keys)(x, ld, w->ds, w->k, w->dq, x->s0 > 0);
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
            int64_t end = BY_MIN(nothing ? a->keys : keys_seen(a, part->b, t0, n), part->s1);
            if (end <= part->s0)
                continue;
            FN(load_queries)(g, part->b, h, t0, n, &w);
            for (int64_t s0 = part->s0; s0 < end; s0 += TILE) {
                tile x = tile_at(a, part->b, h, t0, s0, VL, nothing);
                FN(back_tile)(a, part, &x, &w);
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

/* Run the parts that `cut` makes of indices [0, tasks). They write to different places. */
static by_status FN(back_parts)(const attention_back *g, int64_t tasks, int64_t keys, int threads,
                                back_part (*cut)(const attention_back *g, int64_t i))
{
    const int64_t floats = FN(back_floats)(ROUND_UP(g->a.dim, VL), keys);
    R *space = by_scratch_take(g->a.e->device, (size_t)(threads * floats) * sizeof(R));
    if (!space)
        return BY_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < tasks; i++) {
        back_part part = cut(g, i);
        FN(back_part)(g, &part, space + thread_index() * floats);
    }
    by_scratch_give(g->a.e->device, space);
    return BY_OK;
}

static by_status FN(attention_backward)(const attention_back *g)
{
    const attention *a = &g->a;
    const int64_t heads = a->batch * a->kv_heads;
    const int64_t by_key = heads * ((a->keys + TILE - 1) / TILE);
    const int64_t by_query = a->batch * a->heads * ((a->queries + TILE - 1) / TILE);
    const double work = 2.5 * (double)a->batch * a->heads * (double)a->queries * (double)a->keys * a->dim;
    const int threads = threads_for(a, BY_MAX(by_key, by_query), work);
    if (a->dropout > 0)
        BY_BRANCH("dropout");
    if (a->key_mask)
        BY_BRANCH("key mask");
    if (5 * ROUND_UP(heads, threads) <= 7 * heads) {
        BY_BRANCH("all gradients of a key head together");
        return FN(back_parts)(g, heads, a->keys, BY_MIN(threads, (int)heads), cut_heads);
    }
    BY_BRANCH("keys and queries apart");
    if (g->dk.at || g->dv.at)
        BY_TRY(FN(back_parts)(g, by_key, TILE, threads, cut_keys));
    return g->dq.at ? FN(back_parts)(g, by_query, TILE, threads, cut_queries) : BY_OK;
}

#endif
