/* chunked_attention.c - attention within chunks of rows (Kitaev et al. 2020), and its gradient. A head is one
 * task: it goes through the chunks of all rounds in order, gathers the rows that meet, and adds to sums by
 * row. The scores of a row in all rounds form one softmax, so that P = e^(score - lse) with the lse of all
 * rounds, and the gradient is that of plain attention: with P' = dropout(P) and delta = dy . y,
 *   dv = P'^T dy     dS = P (dropout(dy v^T) - delta)     dq = scale dS k     dk = scale dS^T q */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "graph/chunks.h"

typedef struct chunked {
    const gr_exec *e;
    const gr_node *n;
    gr_chunks c;
    int64_t tasks, heads, dim, window; /* tasks: heads of the whole batch; window: keys that a row meets */
    double scale;
    float dropout;
    const int32_t *order, *mask;
} chunked;

static chunked chunked_of(const gr_exec *e, const gr_node *n)
{
    const gr_chunked_attr *a = n->attr;
    const by_tensor *order = n->in[GR_CHUNKED_ORDER], *mask = n->in[GR_CHUNKED_MASK];
    chunked x = {.e = e,
                 .n = n,
                 .c = gr_chunks_of(n),
                 .tasks = n->in[0]->dim[0] * a->spec.heads,
                 .heads = a->spec.heads,
                 .dim = a->head_dim,
                 .scale = (double)a->spec.scale,
                 .dropout = a->spec.dropout,
                 .order = order ? order->data : NULL,
                 .mask = mask ? mask->data : NULL};
    x.window = (int64_t)x.c.seen * x.c.chunk;
    return x;
}

static by_status check_order(const chunked *x)
{
    const by_tensor *order = x->n->in[GR_CHUNKED_ORDER];
    for (int64_t i = 0; order && i < by_elements(order); i++)
        if (x->order[i] < 0 || x->order[i] >= x->c.rows)
            return base_fail(BY_ERR_ARGUMENT, "%s: row %d is not in [0, %d)", gr_tensor_label(order),
                             (int)x->order[i], x->c.rows);
    return BY_OK;
}

static const int32_t *order_of(const chunked *x, int64_t head)
{
    return x->order ? x->order + head * (x->c.total / x->c.chunks) * x->c.rows : NULL;
}

#define BY_TEMPLATE "cpu/kernels/chunked_attention.c"
#include "cpu/kernels/each_type.h"

static void show_branches(const chunked *x)
{
    if (x->order)
        BY_BRANCH("chunks, sorted");
    if (x->mask)
        BY_BRANCH("chunks, key mask");
    if (x->dropout > 0)
        BY_BRANCH("chunks, dropout");
}

by_status KERNEL(chunked_attention)(gr_exec *e, gr_node *n)
{
    const chunked x = chunked_of(e, n);
    BY_TRY(check_order(&x));
    show_branches(&x);
    BY_DISPATCH(n->in[0]->type, chunked_forward, &x, n)
}

by_status KERNEL(chunked_attention_grad)(gr_exec *e, gr_node *n)
{
    const chunked x = chunked_of(e, n);
    BY_TRY(check_order(&x));
    show_branches(&x);
    BY_DISPATCH(n->in[0]->type, chunked_backward, &x, n)
}

#else /* ---- once per element type ---- */

/* Working memory of a task, cut from one block. */
typedef struct FN(chunk_space) {
    R *q, *dy;                     /* (C, D) */
    R *k, *v, *kt, *vt;            /* (W, D), and transposed */
    R *p, *dp;                     /* (C, W) */
    R *keep;                       /* (C, W) dropout */
    R *sums[3];                    /* (T, D) y, or dq, dk, dv */
    R *top, *sum;                  /* (T) */
    int32_t *query, *key, *masked; /* rows of the queries (C), rows and masks of the keys (W) */
} FN(chunk_space);

static size_t FN(cut_space)(const chunked *x, int sums, R *at, FN(chunk_space) * w)
{
    const size_t c = (size_t)x->c.chunk, d = (size_t)x->dim, m = (size_t)x->window, t = (size_t)x->c.rows;
    R *const start = at;
#define CUT(member, count) (w->member = at, at += (count))
    CUT(q, c * d), CUT(dy, c * d), CUT(k, m * d), CUT(v, m * d), CUT(kt, m * d), CUT(vt, m * d);
    CUT(p, c * m), CUT(dp, c * m), CUT(keep, c * m), CUT(top, t), CUT(sum, t);
    for (int i = 0; i < sums; i++)
        CUT(sums[i], t * d);
#undef CUT
    w->query = (int32_t *)at;
    w->key = w->query + c;
    w->masked = w->key + m;
    return (size_t)(at - start) + c + 2 * m;
}

/* to (width) += sum over m < count of by[m step] rows[m], rows (count, width) */
static void FN(add_rows)(R *restrict to, int64_t width, const R *by, int64_t step, const R *restrict rows,
                         int64_t count)
{
    int64_t m = 0;
    for (; m + 4 <= count; m += 4, rows += 4 * width) {
        const R a = by[m * step], b = by[(m + 1) * step], c = by[(m + 2) * step], d = by[(m + 3) * step];
        R_SIMD
        for (int64_t i = 0; i < width; i++)
            to[i] += a * rows[i] + b * rows[width + i] + (c * rows[2 * width + i] + d * rows[3 * width + i]);
    }
    for (; m < count; m++, rows += width) {
        const R a = by[m * step];
        R_SIMD
        for (int64_t i = 0; i < width; i++)
            to[i] += a * rows[i];
    }
}

/* Rows of a head of x (B, T, H*D), zeros where they are missing. */
static void FN(gather_rows)(const chunked *x, const void *from, int64_t head, const int32_t *rows,
                            int64_t count, R *to)
{
    const int64_t d = x->dim, width = x->heads * d;
    const T *base = (const T *)from + head / x->heads * x->c.rows * width + head % x->heads * d;
    for (int64_t i = 0; i < count; i++, to += d)
        for (int64_t k = 0; k < d; k++)
            to[k] = rows[i] < 0 ? 0 : LD(base[rows[i] * width + k]);
}

static void FN(turn_rows)(const R *from, int64_t count, int64_t d, R *to)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < d; k++)
            to[k * count + i] = from[i * d + k];
}

/* Finds the rows that meet in chunk g, and loads queries, keys and values. */
static void FN(meet)(const chunked *x, int64_t head, int g, const FN(chunk_space) * w)
{
    const gr_chunks *c = &x->c;
    const int32_t *order = order_of(x, head);
    const int32_t *mask = x->mask ? x->mask + head / x->heads * c->rows : NULL;
    for (int i = 0; i < c->chunk; i++)
        w->query[i] = gr_chunks_row(c, order, g, i);
    for (int j = 0; j < x->window; j++) {
        w->key[j] = gr_chunks_row(c, order, gr_chunks_seen(c, g, j / c->chunk), j % c->chunk);
        w->masked[j] = mask && w->key[j] >= 0 && !mask[w->key[j]];
    }
    FN(gather_rows)(x, x->n->in[0]->data, head, w->query, c->chunk, w->q);
    FN(gather_rows)(x, x->n->in[1]->data, head, w->key, x->window, w->k);
    FN(gather_rows)(x, x->n->in[2]->data, head, w->key, x->window, w->v);
    FN(turn_rows)(w->k, x->window, x->dim, w->kt);
}

static void FN(chunk_scores)(const chunked *x, const FN(chunk_space) * w)
{
    const int64_t m = x->window;
    static const float instead[] = {0, GR_CHUNKS_MASKED, GR_CHUNKS_SELF, -INFINITY};
    memset(w->p, 0, sizeof(R) * (size_t)(x->c.chunk * m));
    for (int i = 0; i < x->c.chunk; i++) {
        R *s = w->p + i * m;
        FN(add_rows)(s, m, w->q + i * x->dim, 1, w->kt, x->dim);
        for (int64_t j = 0; j < m; j++) {
            const gr_meeting how = gr_chunks_meet(&x->c, w->query[i], w->key[j], w->masked[j]);
            s[j] = how == GR_MEETS ? s[j] * (R)x->scale : (R)instead[how];
        }
    }
}

/* keep (C, W): 0 for a dropped weight, 1 / (1 - p) for a kept one. */
static void FN(draw_chunk)(const chunked *x, int64_t head, int g, R *keep)
{
    const uint32_t threshold = cpu_drop_threshold(x->dropout);
    const R factor = (R)cpu_drop_factor(x->dropout);
    for (int i = 0; i < x->c.chunk; i += 4)
        for (int j = 0; j < x->window; j++) {
            const base_philox r = cpu_random4(x->e, x->n, gr_chunks_random(&x->c, head, g, i, j));
            for (int k = 0; k < 4 && i + k < x->c.chunk; k++)
                keep[(i + k) * x->window + j] = r.v[k] >= threshold ? factor : 0;
        }
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Scores of one row to e^(score - largest); returns their sum. */
static R FN(exponents)(R *restrict s, int64_t count, R *largest)
{
    R top = s[0], sum = 0;
    for (int64_t j = 1; j < count; j++)
        top = s[j] > top ? s[j] : top;
    R_SIMD_SUM(sum)
    for (int64_t j = 0; j < count; j++) {
        s[j] = R_EXP(s[j] - top);
        sum += s[j];
    }
    *largest = top;
    return gr_chunks_rounds((double)top) ? R_EXP((R)gr_chunks_log((double)top, (double)R_LOG(sum))) : sum;
}

/* Adds a round's part of row t: exponents p against `top`, with their sum. */
static void FN(merge_round)(const chunked *x, const FN(chunk_space) * w, int t, const R *p, R top, R sum)
{
    const int64_t d = x->dim;
    R *y = w->sums[0] + t * d, *mine = w->dy;
    const R now = top > w->top[t] ? top : w->top[t], old = R_EXP(w->top[t] - now), fresh = R_EXP(top - now);
    memset(mine, 0, sizeof(R) * (size_t)d);
    FN(add_rows)(mine, d, p, 1, w->v, x->window);
    for (int64_t k = 0; k < d; k++)
        y[k] = y[k] * old + mine[k] * fresh;
    w->sum[t] = w->sum[t] * old + sum * fresh;
    w->top[t] = now;
}

static void FN(forward_chunk)(const chunked *x, const gr_node *n, int64_t head, int g,
                              const FN(chunk_space) * w)
{
    const int64_t m = x->window;
    T *weights = n->out[2] ? (T *)n->out[2]->data + (head * x->c.total + g) * x->c.chunk * m : NULL;
    FN(meet)(x, head, g, w);
    FN(chunk_scores)(x, w);
    if (x->dropout > 0)
        FN(draw_chunk)(x, head, g, w->keep);
    for (int i = 0; i < x->c.chunk; i++) {
        R *p = w->p + i * m, top = 0, sum = 1;
        if (w->query[i] >= 0)
            sum = FN(exponents)(p, m, &top);
        for (int64_t j = 0; weights && j < m; j++)
            weights[i * m + j] = ST(w->query[i] < 0 ? 0 : p[j] / sum);
        for (int64_t j = 0; x->dropout > 0 && j < m; j++)
            p[j] *= w->keep[i * m + j];
        if (w->query[i] >= 0)
            FN(merge_round)(x, w, w->query[i], p, top, sum);
    }
}

static void FN(forward_head)(const chunked *x, const gr_node *n, int64_t head, const FN(chunk_space) * w)
{
    const int64_t d = x->dim, width = x->heads * d;
    memset(w->sums[0], 0, sizeof(R) * (size_t)(x->c.rows * d));
    for (int t = 0; t < x->c.rows; t++) {
        w->top[t] = (R)-INFINITY;
        w->sum[t] = 0;
    }
    for (int g = 0; g < x->c.total; g++)
        FN(forward_chunk)(x, n, head, g, w);
    for (int64_t t = 0; t < x->c.rows; t++) {
        const int64_t at = (head / x->heads * x->c.rows + t) * width + head % x->heads * d;
        const R log_sum = (R)gr_chunks_log((double)w->top[t], (double)R_LOG(w->sum[t]));
        const R sum = gr_chunks_rounds((double)w->top[t]) ? R_EXP(log_sum) : w->sum[t];
        for (int64_t k = 0; n->out[0] && k < d; k++)
            ((T *)n->out[0]->data)[at + k] = ST(w->sums[0][t * d + k] / sum);
        if (n->out[1]) {
            R *lse = (R *)n->out[1]->data + 2 * (head * x->c.rows + t);
            lse[0] = w->top[t];
            lse[1] = log_sum;
        }
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Scores to weights, and w->dp = dy v^T to the gradients of the scores that were not replaced; w->keep
 * becomes the weights after dropout. */
static void FN(chunk_slopes)(const chunked *x, const R *lse, const R *delta, const FN(chunk_space) * w)
{
    const int64_t m = x->window;
    for (int i = 0; i < x->c.chunk; i++) {
        R *p = w->p + i * m, *dp = w->dp + i * m, *keep = w->keep + i * m;
        const int t = w->query[i];
        for (int64_t j = 0; j < m; j++) {
            const bool counts = t >= 0 && w->key[j] >= 0;
            const R weight = counts ? R_EXP(p[j] - lse[2 * BY_MAX(t, 0)] - lse[2 * BY_MAX(t, 0) + 1]) : 0;
            const R kept = x->dropout > 0 ? keep[j] : 1;
            const bool live = counts && gr_chunks_meet(&x->c, t, w->key[j], w->masked[j]) == GR_MEETS;
            dp[j] = live ? weight * (dp[j] * kept - delta[t]) * (R)x->scale : 0;
            keep[j] = weight * kept;
        }
    }
}

static void FN(backward_chunk)(const chunked *x, int64_t head, int g, const R *lse, const FN(chunk_space) * w)
{
    const int64_t m = x->window, d = x->dim, c = x->c.chunk;
    FN(meet)(x, head, g, w);
    FN(gather_rows)(x, x->n->in[GR_CHUNKED_DY]->data, head, w->query, c, w->dy);
    FN(turn_rows)(w->v, m, d, w->vt);
    FN(chunk_scores)(x, w);
    if (x->dropout > 0)
        FN(draw_chunk)(x, head, g, w->keep);
    memset(w->dp, 0, sizeof(R) * (size_t)(c * m));
    for (int64_t i = 0; i < c; i++)
        FN(add_rows)(w->dp + i * m, m, w->dy + i * d, 1, w->vt, d);
    FN(chunk_slopes)(x, lse, w->top, w);
    for (int64_t i = 0; i < c; i++)
        if (w->query[i] >= 0)
            FN(add_rows)(w->sums[0] + w->query[i] * d, d, w->dp + i * m, 1, w->k, m);
    for (int64_t j = 0; j < m; j++)
        if (w->key[j] >= 0) {
            FN(add_rows)(w->sums[1] + w->key[j] * d, d, w->dp + j, m, w->q, c);
            FN(add_rows)(w->sums[2] + w->key[j] * d, d, w->keep + j, m, w->dy, c);
        }
}

static void FN(backward_head)(const chunked *x, const gr_node *n, int64_t head, const FN(chunk_space) * w)
{
    const int64_t d = x->dim, width = x->heads * d,
                  base = head / x->heads * x->c.rows * width + head % x->heads * d;
    const T *y = n->in[GR_CHUNKED_Y]->data, *dy = n->in[GR_CHUNKED_DY]->data;
    for (int64_t t = 0; t < x->c.rows; t++) {
        R sum = 0;
        for (int64_t k = 0; k < d; k++)
            sum += LD(y[base + t * width + k]) * LD(dy[base + t * width + k]);
        w->top[t] = sum; /* delta */
    }
    for (int i = 0; i < 3; i++)
        memset(w->sums[i], 0, sizeof(R) * (size_t)(x->c.rows * d));
    for (int g = 0; g < x->c.total; g++)
        FN(backward_chunk)(x, head, g, (const R *)n->in[GR_CHUNKED_LSE]->data + 2 * head * x->c.rows, w);
    for (int i = 0; i < 3; i++)
        for (int64_t t = 0; n->out[i] && t < x->c.rows; t++)
            for (int64_t k = 0; k < d; k++)
                ((T *)n->out[i]->data)[base + t * width + k] = ST(w->sums[i][t * d + k]);
}

/* ---- heads, each a task ---------------------------------------------------------------------- */

static by_status FN(each_head)(const chunked *x, const gr_node *n, int sums,
                               void (*run)(const chunked *, const gr_node *, int64_t,
                                           const FN(chunk_space) *))
{
    FN(chunk_space) w = {0};
    const size_t floats = FN(cut_space)(x, sums, NULL, &w);
    const int64_t bands = BY_MIN(x->tasks, x->e->threads);
    R *space = cpu_scratch_take(x->e->device, (size_t)bands * floats * sizeof(R));
    if (!space)
        return BY_ERR_MEMORY;
#pragma omp parallel for schedule(static) num_threads(x->e->threads) if (bands > 1)
    for (int64_t band = 0; band < bands; band++) {
        FN(chunk_space) own = {0};
        FN(cut_space)(x, sums, space + (size_t)band * floats, &own);
        for (int64_t head = x->tasks * band / bands; head < x->tasks * (band + 1) / bands; head++)
            run(x, n, head, &own);
    }
    cpu_scratch_give(x->e->device, space);
    return BY_OK;
}

static by_status FN(chunked_forward)(const chunked *x, const gr_node *n)
{
    BY_BRANCH("chunks " BY_STRING(T_NAME));
    return FN(each_head)(x, n, 1, FN(forward_head));
}

static by_status FN(chunked_backward)(const chunked *x, const gr_node *n)
{
    BY_BRANCH("chunks, gradient " BY_STRING(T_NAME));
    return FN(each_head)(x, n, 3, FN(backward_head));
}

#endif
