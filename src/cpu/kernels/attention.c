/* attention.c - softmax(q k^T * scale + bias, masked) v in tiles of 64 queries and 64 keys with a running
 * softmax (Dao et al. 2022): the scores of a tile stay in the cache and are never stored, unless the weights
 * are requested. */
#ifndef T_NAME
#include "cpu/kernels/tile.h"

#define BY_TEMPLATE "cpu/kernels/attention.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(attention)(gr_exec *e, gr_node *n)
{
    attention a = attention_of(e, n);
    a.y = rows_of(n->out[0], 0);
    a.lse = n->out[1] ? n->out[1]->data : NULL;
    a.weights = n->out[2] ? n->out[2]->data : NULL;
    BY_DISPATCH(n->in[0]->type, attention_forward, &a);
}

#else
#include "cpu/kernels/tile.h"

/* Working memory of one thread, and the state of the tile's queries. */
typedef struct FN(forward_space) {
    R *q, *qt;    /* (TILE, ld) scaled queries, and transposed */
    R *kv;        /* (TILE, ld) keys, then values */
    R *o;         /* (TILE, ld) the unnormalised output */
    R *st, *keep; /* (TILE, TILE) scores, then weights; dropout */
    R top[TILE];  /* largest score seen */
    R sum[TILE];  /* of e^(score - top) */
    R even[TILE]; /* weight on every key of a query that attends to nothing; 0 for the others */
} FN(forward_space);

static int64_t FN(forward_floats)(int64_t ld)
{
    return 4 * TILE * ld + 2 * TILE * TILE;
}

/* Scores to e^(score - top); updates top and sum. fix: the factor by which earlier sums shrink. */
static void FN(running_softmax)(const tile *x, R *restrict st, R *restrict top, R *restrict sum,
                                R *restrict fix)
{
    R now[TILE];
    memcpy(now, top, sizeof now);
    for (int s = 0; s < x->keys; s++) {
        const R *restrict p = st + s * TILE;
#pragma omp simd
        for (int t = FN(first_query)(x, s); t < FN(last_query)(x, s); t++)
            now[t] = p[t] > now[t] ? p[t] : now[t];
    }
#pragma omp simd
    for (int t = 0; t < x->width; t++) {
        fix[t] = top[t] == now[t] ? 1 : R_EXP(top[t] - now[t]); /* no key yet: both are -infinity */
        sum[t] *= fix[t];
        top[t] = now[t];
    }
    for (int s = 0; s < x->keys; s++) {
        R *restrict p = st + s * TILE;
#pragma omp simd
        for (int t = FN(first_query)(x, s); t < FN(last_query)(x, s); t++) {
            p[t] = R_EXP(p[t] - now[t]);
            sum[t] += p[t];
        }
    }
}

static void FN(scale_rows)(int n, int64_t ld, const R *restrict factor, R *restrict o)
{
    for (int t = 0; t < n; t++, o += ld) {
        const R f = factor[t];
        if (f == 1)
            continue;
#pragma omp simd
        for (int64_t d = 0; d < ld; d++)
            o[d] *= f;
    }
}

/* Computes the masked scores of one tile into w->st. */
static void FN(scores)(const attention *a, const tile *x, int64_t ld, FN(forward_space) * w)
{
    FN(load_rows)(a, &a->k, x->b, x->s0, x->h / a->group, x->keys, ROUND_UP(x->keys, MR), 1, ld, w->kv);
    FN(times_queries)(x, a->dim, ld, w->kv, w->qt, w->st);
    FN(finish_scores)(a, x, w->st);
}

/* o [+]= dropout(weights in w->st) v */
static void FN(add_values)(const attention *a, const tile *x, int64_t ld, FN(forward_space) * w, bool add)
{
    if (a->dropout > 0) {
        FN(draw_dropout)(a, x, w->keep);
        for (int s = 0; s < x->keys; s++)
            for (int t = FN(first_query)(x, s); t < FN(last_query)(x, s); t++)
                w->st[s * TILE + t] *= w->keep[s * TILE + t];
    }
    FN(load_rows)(a, &a->v, x->b, x->s0, x->h / a->group, x->keys, x->keys, 1, ld, w->kv);
    FN(sum_over_keys)(x, ld, w->st, w->kv, w->o, add);
}

/* Queries that attend to nothing: equal weights on every key, including masked ones; or zero weights. */
static void FN(even_rows)(const attention *a, int64_t b, int h, int64_t t0, int64_t ld, FN(forward_space) * w)
{
    R live[TILE];
    for (int t = 0; t < TILE; t++) {
        live[t] = w->top[t] != HIDDEN;
        w->sum[t] = w->top[t] != HIDDEN ? w->sum[t] : 1;
    }
    FN(scale_rows)((int)BY_MIN(a->queries - t0, TILE), ld, live, w->o);
    for (int64_t s0 = 0; s0 < keys_of(a, b) && !a->empty_zero; s0 += TILE) {
        tile x = tile_at(a, b, h, t0, s0, VL, false, true);
        for (int s = 0; s < x.keys; s++)
            memcpy(w->st + s * TILE, w->even, sizeof w->even);
        FN(add_values)(a, &x, ld, w, true);
    }
}

/* Writes the weights before dropout: computes the scores a second time, now that their sum is known. */
static void FN(write_weights)(const attention *a, int64_t b, int h, int64_t t0, int64_t ld, const R *lse,
                              FN(forward_space) * w)
{
    for (int64_t s0 = 0; s0 < a->keys; s0 += TILE) {
        tile x = tile_at(a, b, h, t0, s0, VL, false, true);
        FN(scores)(a, &x, ld, w);
        FN(scores_to_weights)(&x, lse, w->even, w->st);
        T *to = (T *)a->weights + ((b * a->heads + h) * a->queries + t0) * a->keys + s0;
        for (int t = 0; t < x.queries; t++, to += a->keys)
            for (int s = 0; s < x.keys; s++)
                to[s] = ST(w->st[s * TILE + t]);
    }
}

/* Continues from y and lse: an output whose sum is 1 at the scale of its log-sum-exp. */
static void FN(resume)(const attention *a, int64_t b, int h, int64_t t0, int n, int64_t ld,
                       FN(forward_space) * w)
{
    FN(load_rows)(a, &a->y, b, t0, h, n, n, 1, ld, w->o);
    for (int t = 0; t < n; t++) {
        w->top[t] = ((const R *)a->lse)[lse_row(a, b, h, t0 + t)];
        w->sum[t] = w->top[t] != SEES_NOTHING;
    }
}

/* Does everything for queries [t0, t0 + TILE) of head (b, h). */
static void FN(forward_tile)(const attention *a, R *space, int64_t b, int h, int64_t t0)
{
    const int64_t ld = ROUND_UP(a->dim, VL), part = TILE * ld;
    const int n = (int)BY_MIN(a->queries - t0, TILE);
    const gr_stretch seen = keys_seen(a, b, t0, n);
    const int64_t first = next_keys(a, b, h, t0, n, seen.from / TILE * TILE, seen.to, false);
    FN(forward_space) w = {.q = space, .qt = space + part, .kv = space + 2 * part, .o = space + 3 * part};
    w.st = space + 4 * part;
    w.keep = w.st + TILE * TILE;
    for (int t = 0; t < TILE; t++)
        w.top[t] = (R)-INFINITY;
    FN(load_rows)(a, &a->q, b, t0, h, n, ROUND_UP(n, VL), (R)a->scale, ld, w.q);
    FN(transpose)(ROUND_UP(n, VL), ld, w.q, w.qt);
    if (a->more)
        FN(resume)(a, b, h, t0, n, ld, &w);
    for (int64_t s0 = first; s0 < seen.to; s0 = next_keys(a, b, h, t0, n, s0 + TILE, seen.to, false)) {
        tile x = tile_at(a, b, h, t0, s0, VL, s0 == first, false);
        R fix[TILE];
        FN(scores)(a, &x, ld, &w);
        FN(running_softmax)(&x, w.st, w.top, w.sum, fix);
        if (s0 > first || a->more)
            FN(scale_rows)(n, ld, fix, w.o);
        FN(add_values)(a, &x, ld, &w, s0 > first || a->more);
    }
    if (first >= seen.to) { /* none of them attends to anything */
        memset(w.o, 0, sizeof(R) * (size_t)part);
        for (int t = 0; t < n; t++)
            w.top[t] = HIDDEN;
    }

    R lse[TILE];
    bool any_nothing = false;
    for (int t = 0; t < TILE; t++) {
        bool nothing = t < n && w.top[t] == HIDDEN;
        any_nothing |= nothing;
        w.even[t] = nothing ? (R)empty_weight(a, keys_of(a, b)) : 0;
        lse[t] = nothing ? (R)INFINITY : w.top[t] + R_LOG(w.sum[t]);
        if (a->lse && t < n)
            ((R *)a->lse)[lse_row(a, b, h, t0 + t)] = nothing ? SEES_NOTHING : lse[t];
    }
    if (any_nothing)
        FN(even_rows)(a, b, h, t0, ld, &w);
    for (int t = 0; t < n && a->y.at; t++)
        FN(store_row)(FN(head_at)(a, &a->y, b, t0 + t, h), w.o + t * ld, a->dim, 1 / w.sum[t]);
    if (a->weights)
        FN(write_weights)(a, b, h, t0, ld, lse, &w);
}

/* The pieces write disjoint results, so the assignment to threads does not matter. Pieces of one head are
 * consecutive, because its keys and values are then in the cache; the long ones under a causal mask come
 * first. */
by_status FN(cpu_attention_tiles)(const attention *a)
{
    const int64_t tiles = (a->queries + TILE - 1) / TILE, tasks = a->batch * a->heads * tiles;
    const int64_t floats = FN(forward_floats)(ROUND_UP(a->dim, VL));
    const int threads =
        threads_for(a, tasks, (double)a->batch * a->heads * (double)a->queries * (double)a->keys * a->dim);
    R *space = cpu_scratch_take(a->e->device, (size_t)(threads * floats) * sizeof(R));
    if (!space)
        return BY_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < tasks; i++) {
        int64_t head = i / tiles, t0 = (tiles - 1 - i % tiles) * TILE;
        FN(forward_tile)(a, space + cpu_team_thread() * floats, head / a->heads, (int)(head % a->heads), t0);
    }
    cpu_scratch_give(a->e->device, space);
    return BY_OK;
}

/* The tiles of queries of all groups of a view, for batch rows [b0, b1). Groups that share their keys are
 * taken head by head; of others, all heads of a group: their rows lie side by side. */
static by_status FN(forward_view)(const attention *a, const gr_view *v, int64_t b0, int64_t b1)
{
    const int64_t tiles = (v->most_queries + TILE - 1) / TILE, heads = v->head1 - v->head0;
    const int64_t per_row = heads * v->groups * tiles, tasks = (b1 - b0) * per_row;
    const int64_t floats = FN(forward_floats)(ROUND_UP(a->dim, VL));
    const int threads = threads_for(a, tasks, (double)tasks * TILE * v->most_keys * a->dim);
    R *space = cpu_scratch_take(a->e->device, (size_t)(threads * floats) * sizeof(R));
    if (!space)
        return BY_ERR_MEMORY;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t j = i % per_row / tiles, t0 = (tiles - 1 - i % tiles) * TILE;
        const int64_t h = v->shared ? j / v->groups : j % heads, g = v->shared ? j % v->groups : j / heads;
        const gr_group x = gr_group_of(v, v->groups - 1 - (int)g);
        attention part = attention_of_group(a, &x);
        part.more = v->more;
        if (t0 < x.queries && (x.keys > 0 || !v->more))
            FN(forward_tile)
        (&part, space + cpu_team_thread() * floats, b0 + i / per_row, v->head0 + (int)h, t0);
    }
    cpu_scratch_give(a->e->device, space);
    return BY_OK;
}

/* One view after the other; rows of a cache, which have different numbers of keys, one by one. */
by_status FN(cpu_attention_views)(const attention *a)
{
    attention x = *a;
    by_status status = BY_OK;
    if (!a->lse)
        x.lse = cpu_scratch_take(a->e->device, sizeof(R) * (size_t)(a->batch * a->heads * a->queries));
    if (!x.lse)
        return BY_ERR_MEMORY;
    for (int64_t b = 0; b < (a->past ? a->batch : 1) && status == BY_OK; b++) {
        gr_view views[GR_MAX_VIEWS];
        const int n = gr_node_views(a->n, a->causal, a->queries, keys_of(a, b), views);
        for (int i = 0; i < n && status == BY_OK; i++)
            status = FN(forward_view)(&x, &views[i], b, a->past ? b + 1 : a->batch);
    }
    if (!a->lse)
        cpu_scratch_give(a->e->device, x.lse);
    return status;
}

static by_status FN(attention_forward)(const attention *a)
{
    if (a->queries <= FEW_QUERIES && a->dropout == 0 && !a->weights && !takes_views(a)) {
        BY_BRANCH("few queries");
        return FN(cpu_attention_rows)(a);
    }
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
    if (a->weights)
        BY_BRANCH("weights");
    if (takes_views(a)) {
        BY_BRANCH("views");
        return FN(cpu_attention_views)(a);
    }
    BY_BRANCH("tiles");
    return FN(cpu_attention_tiles)(a);
}

#endif
