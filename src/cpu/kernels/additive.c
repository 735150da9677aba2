/* additive.c - scores of additive attention, v . tanh(q + k), and their gradients. The sum q + k of a pair is
 * never stored; the backward pass computes its tanh once more. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"

enum { COLUMNS = 64 }; /* of the width A that a task of the backward pass has */

/* (B, T, S, A) */
typedef struct pairs {
    int64_t batch, queries, keys, width;
} pairs;

static pairs pairs_of(const gr_node *n)
{
    const by_tensor *q = n->in[0], *k = n->in[1];
    return (pairs){q->dim[0], q->dim[1], k->dim[1], q->dim[2]};
}

#define BY_TEMPLATE "cpu/kernels/additive.c"
#include "cpu/kernels/each_type.h"

by_status KERNEL(additive_scores)(gr_exec *e, gr_node *n){BY_DISPATCH(n->in[0]->type, scores, e, n)}

by_status KERNEL(additive_scores_grad)(gr_exec *e, gr_node *n)
{
    BY_DISPATCH(n->in[0]->type, scores_grad, e, n)
}

#else /* ---- typed ----------------------------------------------------------------------------------- */

static R FN(score)(int64_t width, const T *q, const T *k, const T *v)
{
    R sum = 0;
    R_SIMD_SUM(sum)
    for (int64_t a = 0; a < width; a++)
        sum += LD(v[a]) * R_TANH(LD(q[a]) + LD(k[a]));
    return sum;
}

static by_status FN(scores)(gr_exec *e, gr_node *n)
{
    const pairs p = pairs_of(n);
    const T *q = n->in[0]->data, *k = n->in[1]->data, *v = n->in[2]->data;
    T *y = n->out[0]->data;
    const int64_t count = p.batch * p.queries * p.keys;
    (void)e; /* without OpenMP */
    BY_BRANCH("additive_scores " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count * p.width > BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = i / p.keys, b = row / p.queries, s = i % p.keys;
        y[i] = ST(FN(score)(p.width, q + row * p.width, k + (b * p.keys + s) * p.width, v));
    }
    return BY_OK;
}

/* One query and one key: adds to dq, dk and dv, `count` columns each. */
static inline void FN(pair_grad)(int64_t count, const T *q, const T *k, const T *v, R dy, R *dq, R *dk, R *dv)
{
    R_SIMD
    for (int64_t a = 0; a < count; a++) {
        const R t = R_TANH(LD(q[a]) + LD(k[a])), d = dy * LD(v[a]) * (1 - t * t);
        dq[a] += d;
        dk[a] += d;
        dv[a] += dy * t;
    }
}

/* Some columns of one batch element. dk (S, COLUMNS) is working memory; dv (COLUMNS) its sum over all pairs. */
static void FN(columns_grad)(const gr_node *n, const pairs *p, int64_t b, int64_t from, int64_t count, R *dk,
                             R *dv)
{
    const T *q = (const T *)n->in[0]->data + b * p->queries * p->width + from;
    const T *k = (const T *)n->in[1]->data + b * p->keys * p->width + from;
    const T *v = (const T *)n->in[2]->data + from;
    const T *dy = (const T *)n->in[3]->data + b * p->queries * p->keys;
    memset(dk, 0, (size_t)(p->keys * COLUMNS) * sizeof(R));
    memset(dv, 0, COLUMNS * sizeof(R));
    for (int64_t t = 0; t < p->queries; t++) {
        R dq[COLUMNS] = {0}, part[COLUMNS] = {0};
        for (int64_t s = 0; s < p->keys; s++)
            FN(pair_grad)
        (count, q + t * p->width, k + s * p->width, v, LD(dy[t * p->keys + s]), dq, dk + s * COLUMNS, part);
        for (int64_t a = 0; a < count; a++)
            dv[a] += part[a];
        T *to = n->out[0] ? (T *)n->out[0]->data + (b * p->queries + t) * p->width + from : NULL;
        for (int64_t a = 0; to && a < count; a++)
            to[a] = ST(dq[a]);
    }
    T *to = n->out[1] ? (T *)n->out[1]->data + b * p->keys * p->width + from : NULL;
    for (int64_t s = 0; to && s < p->keys; s++)
        for (int64_t a = 0; a < count; a++)
            to[s * p->width + a] = ST(dk[s * COLUMNS + a]);
}

/* dv over the batch, in order. */
static void FN(sum_dv)(gr_node *n, const pairs *p, const R *parts, int64_t stride)
{
    R *dv = n->out[2] ? n->out[2]->data : NULL;
    for (int64_t a = 0; dv && a < p->width; a++) {
        R sum = n->in[4] ? dv[a] : 0;
        for (int64_t b = 0; b < p->batch; b++)
            sum += parts[b * stride + a];
        dv[a] = sum;
    }
}

static by_status FN(scores_grad)(gr_exec *e, gr_node *n)
{
    const pairs p = pairs_of(n);
    const int64_t chunks = (p.width + COLUMNS - 1) / COLUMNS, tasks = p.batch * chunks;
    const int64_t work = (p.keys + 1) * COLUMNS; /* dk and dv of a task */
    R *memory = cpu_scratch_take(e->device, (size_t)(tasks * work) * sizeof(R));
    if (!memory)
        return BY_ERR_MEMORY;
    R *dv = memory + tasks * p.keys * COLUMNS;
    BY_BRANCH("additive_scores_grad " BY_STRING(T_NAME));
#pragma omp parallel for schedule(static) num_threads(e->threads) if (tasks > 1)
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t from = i % chunks * COLUMNS;
        FN(columns_grad)
        (n, &p, i / chunks, from, BY_MIN(COLUMNS, p.width - from), memory + i * p.keys * COLUMNS,
         dv + i * COLUMNS);
    }
    FN(sum_dv)(n, &p, dv, chunks * COLUMNS);
    cpu_scratch_give(e->device, memory);
    return BY_OK;
}

#endif
