/* attention_cached.c - attention of new positions over a cache of keys and values, and the method for few
 * queries: only reading every key and value once, in memory order, matters there. */
#ifndef T_NAME
#include "cpu/kernels/tile.h"

enum { CHUNK = 64 }; /* keys per piece of work; independent of the number of threads */
enum { STAGE = 4 };  /* keys processed together; divides CHUNK */

/* Returns true if any query of batch row b attends to any key of chunk c. */
static bool chunk_seen(const attention *a, int64_t b, int64_t c)
{
    const int64_t s0 = c * CHUNK, keys = keys_of(a, b);
    return s0 < keys && any_seen(a, b, 0, a->queries, s0, BY_MIN(keys - s0, CHUNK));
}

#define BY_TEMPLATE "cpu/kernels/attention_cached.c"
#include "cpu/kernels/each_type.h"

/* Append the new rows (B, T, C) to the cache, both of elements of `element` bytes. */
static void append(const attention *a, const head_rows *from, const head_rows *cache, size_t element)
{
    const size_t bytes = element * (size_t)a->kv_heads * (size_t)a->dim;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t t = 0; t < a->queries; t++)
            memcpy((char *)cache->at + (int64_t)element * row_at(cache, b, a->past[b] + t),
                   (const char *)from->at + (int64_t)element * row_at(from, b, t), bytes);
}

/* Whether the pages of what every row holds afterwards are pages of the cache. */
static by_status check_pages(const attention *a, const gr_node *n, const head_rows *cache)
{
    const int64_t count = n->in[GR_ATT_K_CACHE]->dim[0];
    for (int64_t b = 0; cache->pages && b < a->batch; b++)
        for (int64_t i = 0; i <= (keys_of(a, b) - 1) >> cache->shift; i++) {
            const int32_t page = cache->pages[b * cache->columns + i];
            if (page < 0 || page >= count)
                return base_fail(BY_ERR_ARGUMENT, "%s: page %d of batch row %lld is not in [0, %lld)",
                                 gr_tensor_label(n->in[GR_ATT_PAGES]), (int)page, (long long)b,
                                 (long long)count);
        }
    return BY_OK;
}

by_status KERNEL(attention_cached)(gr_exec *e, gr_node *n)
{
    attention a = attention_of(e, n);
    const int64_t room = gr_cache_room(n->in[GR_ATT_K_CACHE], n->in[GR_ATT_PAGES]);
    const head_rows keys = rows_in_pages(n->in[GR_ATT_K_CACHE], n->in[GR_ATT_PAGES]),
                    values = rows_in_pages(n->in[GR_ATT_V_CACHE], n->in[GR_ATT_PAGES]);
    a.past = n->in[GR_ATT_PAST] ? n->in[GR_ATT_PAST]->data : NULL;
    a.causal = a.causal || a.past;
    a.keys = a.past ? 0 : room;
    for (int64_t b = 0; a.past && b < a.batch; b++) {
        if (a.past[b] < 0 || a.past[b] > room - a.queries)
            return base_fail(
                BY_ERR_ARGUMENT,
                "%s: %d positions of batch row %lld in the cache and %lld new ones, with room for %lld",
                gr_tensor_label(n->in[GR_ATT_PAST]), a.past[b], (long long)b, (long long)a.queries,
                (long long)room);
        a.keys = BY_MAX(a.keys, keys_of(&a, b));
    }
    BY_TRY(check_pages(&a, n, &keys));
    if (a.past) {
        append(&a, &a.k, &keys, by_dtype_size(n->in[GR_ATT_K_CACHE]->type));
        append(&a, &a.v, &values, by_dtype_size(n->in[GR_ATT_K_CACHE]->type));
    }
    a.k = keys;
    a.v = values;
    a.y = rows_of(n->out[0], 0);
    BY_DISPATCH(n->in[0]->type, attention_over_cache, &a);
}

#else
#include "cpu/kernels/tile.h"

/* STAGE rows of all key heads from position s, a multiple of STAGE and so in one page, as R: where they are when they are of that type, else in
 * stage. Of fewer than STAGE rows, n, the last is repeated, so that nothing foreign is read. */
static inline const R *FN(rows_at)(const attention *a, const head_rows *r, int64_t b, int64_t s, int n,
                                   R *restrict stage, int64_t *ld)
{
    const T *from = FN(head_at)(a, r, b, s, 0);
    const int64_t width = (int64_t)a->kv_heads * a->dim;
    if (sizeof(T) == sizeof(R) && n == STAGE) {
        *ld = r->row;
        return (const R *)(const void *)from;
    }
    for (int i = 0; i < STAGE; i++, from += i < n ? r->row : 0)
        FN(load_row)(width, from, 1, stage + i * width);
    *ld = width;
    return stage;
}

/* to[i] = q . k[i] for STAGE keys */
static inline void FN(dot_rows)(int dim, const R *restrict q, const R *restrict k, int64_t ld, R *restrict to)
{
    VEC sum[STAGE] = {{0}};
    int d = 0;
    for (; d + VL <= dim; d += VL)
        for (int i = 0; i < STAGE; i++)
            sum[i] += *(const VEC *)(q + d) * *(const VEC *)(k + i * ld + d);
    FN(add_lanes)(sum, to);
    for (; d < dim; d++)
        for (int i = 0; i < STAGE; i++)
            to[i] += q[d] * k[i * ld + d];
}

/* o += sum of p[i] v[i] over STAGE keys */
static inline void FN(add_rows)(int dim, const R *restrict p, const R *restrict v, int64_t ld, R *restrict o)
{
    int d = 0;
    for (; d + VL <= dim; d += VL) {
        VEC sum = *(const VEC *)(o + d);
        for (int i = 0; i < STAGE; i++)
            sum += p[i] * *(const VEC *)(v + i * ld + d);
        *(VEC *)(o + d) = sum;
    }
    for (; d < dim; d++)
        for (int i = 0; i < STAGE; i++)
            o[d] += p[i] * v[i * ld + d];
}

/* Converts scores, without bias, of query t of head h over keys [s0, s0 + n) to e^(score - top), 0 for masked
 * ones; stats: {top, sum}. */
static inline void FN(chunk_softmax)(const attention *a, int64_t b, int h, int64_t t, int64_t s0, int n,
                                     R *restrict p, R *restrict stats)
{
    R top = (R)-INFINITY, sum = 0;
    for (int i = 0; i < BIASES; i++) {
        const bias_rows *bias = &a->bias[i];
        const T *row = FN(bias_at)(bias, b, h, t);
        const int64_t first = bias_entry(bias, position_of(a, b, t), s0);
        for (int s = 0; s < n && bias->at; s++)
            p[s] += LD(row[clamp_entry(bias, first + s)]);
    }
    for (int s = 0; s < n; s++) {
        p[s] = sees(a, b, h, t, s0 + s) ? p[s] : HIDDEN;
        top = p[s] > top ? p[s] : top;
    }
#pragma omp simd reduction(+ : sum)
    for (int s = 0; s < n; s++) {
        p[s] = R_EXP(p[s] - top);
        sum += p[s];
    }
    for (int s = n; s < CHUNK; s++)
        p[s] = 0; /* add_rows takes whole stages */
    stats[0] = top;
    stats[1] = sum;
}

/* Processes all heads and queries of batch row b over one chunk of keys. parts (H*T, D + 2) receives, for
 * each, the largest score, the sum of e^(score - largest), and the values weighted by it. */
static void FN(chunk)(const attention *a, int64_t b, int64_t s0, R *space, R *parts)
{
    const int dim = a->dim, rows = (int)(a->heads * a->queries), shared = (int)(a->group * a->queries);
    const int n = (int)BY_MIN(keys_of(a, b) - s0, CHUNK);
    R *q = space, *p = q + rows * dim, *stage = p + rows * CHUNK;
    int64_t ld;
    for (int r = 0; r < rows; r++) {
        const T *from = FN(head_at)(a, &a->q, b, r % a->queries, (int)(r / a->queries));
        FN(load_row)(dim, from, (R)a->scale, q + r * dim);
    }
    for (int s = 0; s < n; s += STAGE) {
        const R *k = FN(rows_at)(a, &a->k, b, s0 + s, BY_MIN(n - s, STAGE), stage, &ld);
        for (int r = 0; r < rows; r++)
            FN(dot_rows)(dim, q + r * dim, k + (int64_t)(r / shared) * dim, ld, p + r * CHUNK + s);
    }
    for (int r = 0; r < rows; r++) {
        R *part = parts + (int64_t)r * (dim + 2);
        FN(chunk_softmax)(a, b, (int)(r / a->queries), r % a->queries, s0, n, p + r * CHUNK, part);
        memset(part + 2, 0, sizeof(R) * (size_t)dim);
    }
    for (int s = 0; s < n; s += STAGE) {
        const R *v = FN(rows_at)(a, &a->v, b, s0 + s, BY_MIN(n - s, STAGE), stage, &ld);
        for (int r = 0; r < rows; r++) {
            R *part = parts + (int64_t)r * (dim + 2);
            FN(add_rows)(dim, p + r * CHUNK + s, v + (int64_t)(r / shared) * dim, ld, part + 2);
        }
    }
}

/* For a query that attends to nothing: the mean of the values, or zeros. Sums into o and returns the
 * divisor. */
static R FN(sum_values)(const attention *a, int64_t b, int h, R *restrict o)
{
    const int64_t keys = keys_of(a, b);
    memset(o, 0, sizeof(R) * (size_t)a->dim);
    for (int64_t s = 0; s < keys && !a->empty_zero; s++) {
        const T *v = FN(head_at)(a, &a->v, b, s, h / a->group);
        for (int d = 0; d < a->dim; d++)
            o[d] += LD(v[d]);
    }
    return (R)keys;
}

/* Combines the attended chunks of one head and query, in order, into the first of them; writes y and lse. */
static void FN(combine)(const attention *a, int64_t b, int r, int64_t chunks, R *parts)
{
    const int dim = a->dim, h = (int)(r / a->queries);
    const int64_t t = r % a->queries, step = a->heads * a->queries * (dim + 2);
    R top = (R)-INFINITY, sum = 0, *o = parts + 2;
    int64_t first = -1;
    for (int64_t c = 0; c < chunks; c++)
        if (chunk_seen(a, b, c)) {
            first = first < 0 ? c : first;
            top = parts[c * step] > top ? parts[c * step] : top;
        }
    for (int64_t c = first; c >= 0 && c < chunks; c++) {
        if (!chunk_seen(a, b, c))
            continue;
        const R *part = parts + c * step;
        const R f = R_EXP(part[0] - top);
        sum += f * part[1];
        for (int d = 0; d < dim; d++)
            o[d] = (c > first ? o[d] : 0) + f * part[2 + d];
    }
    const bool nothing = first < 0 || top == HIDDEN;
    if (a->lse)
        ((R *)a->lse)[lse_row(a, b, h, t)] = nothing ? SEES_NOTHING : top + R_LOG(sum);
    if (nothing)
        sum = FN(sum_values)(a, b, h, o);
    if (a->y.at)
        FN(store_row)(FN(head_at)(a, &a->y, b, t, h), o, dim, 1 / sum);
}

by_status FN(cpu_attention_rows)(const attention *a)
{
    const int64_t rows = a->heads * a->queries, width = (int64_t)a->kv_heads * a->dim;
    const int64_t chunks = (a->keys + CHUNK - 1) / CHUNK, tasks = a->batch * chunks;
    const int64_t part = rows * (a->dim + 2), own = rows * (a->dim + CHUNK) + STAGE * width;
    const bool fork = a->batch * a->keys * width >= BY_FORK_ELEMENTS;
    const int threads = fork ? (int)BY_MAX(BY_MIN(a->e->threads, tasks), 1) : 1;
    R *parts = cpu_scratch_take(a->e->device, (size_t)(tasks * part + threads * own) * sizeof(R));
    if (!parts)
        return BY_ERR_MEMORY;
    R *space = parts + tasks * part;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < tasks; i++)
            if (chunk_seen(a, i / chunks, i % chunks))
                FN(chunk)
        (a, i / chunks, i % chunks * CHUNK, space + cpu_team_thread() * own, parts + i * part);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < a->batch * rows; i++) {
            int64_t b = i / rows, r = i % rows;
            R *first = parts + b * chunks * part + r * (a->dim + 2);
            FN(combine)(a, b, (int)r, (keys_of(a, b) + CHUNK - 1) / CHUNK, first);
        }
    }
    cpu_scratch_give(a->e->device, parts);
    return BY_OK;
}

static by_status FN(attention_over_cache)(const attention *a)
{
    if (a->key_mask || a->pairs.at || a->prefix || a->reach.on)
        BY_BRANCH("cache, some masked");
    if (a->bias[0].at || a->bias[1].at)
        BY_BRANCH("cache, bias");
    if (a->k.pages)
        BY_BRANCH("cache, pages");
    if (a->past && takes_views(a)) {
        BY_BRANCH("cache, views");
        return FN(cpu_attention_views)(a);
    }
    if (a->queries <= FEW_QUERIES) {
        BY_BRANCH("cache, few queries");
        return FN(cpu_attention_rows)(a);
    }
    BY_BRANCH("cache, many queries");
    return FN(cpu_attention_tiles)(a);
}

#endif
