/* attention_views.cu - a causal strided pattern (Child et al. 2019) by the kernels for every card: the window
 * p - l < s <= p, then the columns r, r + l, r + 2 l, ... as l sequences of their own, each query with the keys
 * before it. The time follows the pairs that are seen. Results of the two are combined: y and the log-sum-exp in
 * the forward pass; in the backward pass both use the final log-sum-exp, and gradients are added. If l does not
 * divide T, the columns before T % l have one position more than the others: two launches. */
#include "cuda/kernels/attention_views.cuh"

enum { THREADS = 256, LANES = 8 };

/* Numbers of the queries by column: (B, columns, H, rows), first for the longer columns, then for the others. */
struct column_numbers {
    int batch, heads, total, length;
};
static inline int64_t numbers_in(const column_numbers &x)
{
    return (int64_t)x.batch * x.heads * x.total;
}
static __host__ __device__ __forceinline__ int64_t place_in(const column_numbers &x, int b, int h, int t)
{
    const int rows = x.total / x.length, rest = x.total % x.length, r = t % x.length, i = t / x.length;
    if (r < rest)
        return (((int64_t)b * rest + r) * x.heads + h) * (rows + 1) + i;
    const int64_t longer = (int64_t)x.batch * rest * x.heads * (rows + 1);
    return longer + (((int64_t)b * (x.length - rest) + r - rest) * x.heads + h) * rows + i;
}

/* The query that LANES threads have. */
struct query_at {
    int b, h, t, lane;
};
static __device__ __forceinline__ bool find_query(const column_numbers &x, query_at &q)
{
    const int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    q = query_at{(int)(i / x.heads / x.total), (int)(i % x.heads), (int)(i / x.heads % x.total),
                 (int)(threadIdx.x % LANES)};
    return q.b < x.batch;
}

/* y and lse of the window, if there is one, become those of both sets of keys. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    combine(const attention a, column_numbers x, head_rows far_y, const float *far_lse, bool window)
{
    query_at q;
    const bool real = find_query(x, q);
    float *lse = a.lse + ((int64_t)q.b * a.heads + q.h) * a.queries + q.t;
    const float near = real && window ? *lse : -INFINITY;
    const float far = real ? far_lse[place_in(x, q.b, q.h, q.t)] : -INFINITY;
    __syncwarp(); /* all lanes of a query have read what one of them overwrites */
    if (!real)
        return;
    const float most = fmaxf(near, far), base = most == -INFINITY ? 0 : most;
    const float sum = expf(near - base) + expf(far - base), all = sum == 0 ? 1 : sum;
    const float near_share = expf(near - base) / all, far_share = expf(far - base) / all;
    T *y = head_at<T>(a, a.y, q.b, q.h) + q.t * a.y.row;
    const T *other = head_at<T>(a, far_y, q.b, q.h) + q.t * far_y.row;
    for (int d = q.lane; d < a.dim && a.y.at; d += LANES)
        y[d] = from_float<T>((window ? to_float(y[d]) * near_share : 0) + to_float(other[d]) * far_share);
    if (q.lane == 0)
        *lse = base + logf(sum);
}

/* The final log-sum-exp, by column. */
static __global__ void __launch_bounds__(THREADS) spread(const float *lse, column_numbers x, float *to)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < (int64_t)x.batch * x.heads * x.total) {
        const int64_t head = i / x.total;
        to[place_in(x, (int)(head / x.heads), (int)(head % x.heads), (int)(i % x.total))] = lse[i];
    }
}

/* Adds contiguous rows (batch, rows, width) to rows; add = false: writes them. */
template <class T>
static __global__ void __launch_bounds__(THREADS)
    add_rows(head_rows to, const T *from, int64_t rows, int64_t width, int64_t count, bool add)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / width;
    if (i >= count)
        return;
    T *at = (T *)to.at + row / rows * to.batch + row % rows * to.row + i % width;
    *at = add ? from_float<T>(to_float(*at) + to_float(from[i])) : from[i];
}

/* ---- host ------------------------------------------------------------------------------------ */

bool cuda_has_columns(const attention &a)
{
    const int64_t sequences = (int64_t)a.batch * a.reach.cycle;
    return a.reach.on && a.reach.cycle > 0 && a.reach.tail == 0 && !a.reach.split && a.queries == a.keys &&
           a.mask == BY_MASK_CAUSAL && !a.prefix && !a.key_mask && !a.past && !a.pairs.at && !has_bias(a) &&
           !a.dropout && !a.weights && a.queries >= 2 * a.reach.cycle && a.queries >= 128 &&
           sequences <= 65535; /* of a grid */
}

static bool has_window(const attention &a)
{
    return a.reach.before >= 0;
}
static column_numbers columns_of(const attention &a)
{
    return column_numbers{a.batch, a.heads, a.queries, a.reach.cycle};
}
static attention window_of(attention a)
{
    a.reach.cycle = 0;
    return a;
}

/* The rows of columns [first, ...) of x.length. */
static head_rows column_rows(head_rows r, const column_numbers &x, int first, by_dtype type)
{
    if (r.at)
        r.at = (char *)r.at + first * r.row * (int64_t)by_dtype_size(type);
    r.column = r.row;
    r.row *= x.length;
    return r;
}
/* Contiguous rows (batch, total, heads * dim). */
static head_rows rows_at(void *at, const attention &a, int heads)
{
    head_rows r = {};
    r.at = at;
    r.row = (int64_t)heads * a.dim;
    r.batch = r.row * a.queries;
    return r;
}

/* Columns [first, first + count) of `rows` positions each as sequences. numbers: log-sum-exp by column. */
static attention some_columns(const attention &a, int first, int count, int rows, float *numbers,
                              by_dtype type)
{
    const column_numbers x = columns_of(a);
    attention f = a;
    f.columns = count;
    f.batch = a.batch * count;
    f.queries = f.keys = rows;
    f.lag = has_window(a);
    f.reach = gr_reach{};
    f.empty_zero = false; /* which the kernel of the simplest level does anyway */
    f.lse = numbers;
    f.q = column_rows(a.q, x, first, type);
    f.k = column_rows(a.k, x, first, type);
    f.v = column_rows(a.v, x, first, type);
    f.y = column_rows(a.y, x, first, type);
    return f;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 31) / 32 * 32;
}

template <class T>
static by_status combine_views(cuda_exec *x, const attention &a, const head_rows &y, const float *lse)
{
    const column_numbers c = columns_of(a);
    return cuda_launch(x, combine<T>, dim3(blocks_for(numbers_in(c) * LANES, THREADS)), dim3(THREADS), 0, a,
                       c, y, lse, has_window(a));
}
static by_status combine_type(cuda_exec *x, const attention &a, const head_rows &y, const float *lse,
                              by_dtype type)
{
    BY_CUDA_DISPATCH(type, combine_views, x, a, y, lse);
}

by_status cuda_attend_columns(cuda_exec *x, const attention &given, by_dtype type)
{
    attention a = given;
    const column_numbers c = columns_of(a);
    const int rows = a.queries / c.length, rest = a.queries % c.length;
    const size_t numbers = rounded(sizeof(float) * (size_t)numbers_in(c));
    const size_t y = (size_t)numbers_in(c) * (size_t)a.dim * by_dtype_size(type);
    char *space = (char *)cuda_scratch(x, 2 * numbers + y);
    float *far = (float *)space;
    if (!a.lse)
        a.lse = (float *)(space + numbers);
    if (has_window(a))
        BY_TRY(cuda_attend(x, window_of(a), type));
    attention other = a;
    other.y = rows_at(space + 2 * numbers, a, a.heads);
    if (rest > 0)
        BY_TRY(cuda_attend(x, some_columns(other, 0, rest, rows + 1, far, type), type));
    float *shorter = far + (int64_t)a.batch * rest * a.heads * (rows + 1);
    BY_TRY(cuda_attend(x, some_columns(other, rest, c.length - rest, rows, shorter, type), type));
    return combine_type(x, a, other.y, far, type);
}

template <class T>
static by_status add_to(cuda_exec *x, const head_rows &to, const head_rows &from, const attention &a,
                        bool add)
{
    const int64_t count = from.batch * a.batch;
    if (!to.at)
        return BY_OK;
    return cuda_launch(x, add_rows<T>, dim3(blocks_for(count, THREADS)), dim3(THREADS), 0, to,
                       (const T *)from.at, (int64_t)a.queries, from.row, count, add);
}
static by_status add_type(cuda_exec *x, const head_rows &to, const head_rows &from, const attention &a,
                          bool add, by_dtype type)
{
    BY_CUDA_DISPATCH(type, add_to, x, to, from, a, add);
}

/* The gradients of some columns; numbers: log-sum-exp by column, deltas: room for as many. */
static by_status back_columns(cuda_exec *x, const attention_back &g, int first, int count, int rows,
                              float *numbers, float *deltas, by_dtype type)
{
    const column_numbers c = columns_of(g.a);
    attention_back f = g;
    if (count == 0)
        return BY_OK;
    f.a = some_columns(g.a, first, count, rows, numbers, type);
    f.delta = deltas;
    f.dy = column_rows(g.dy, c, first, type);
    f.dq = column_rows(g.dq, c, first, type);
    f.dk = column_rows(g.dk, c, first, type);
    f.dv = column_rows(g.dv, c, first, type);
    return cuda_attend_back(x, f, type);
}

by_status cuda_attend_back_columns(cuda_exec *x, const attention_back &given, by_dtype type)
{
    attention_back g = given, far = given;
    const attention &a = g.a;
    const column_numbers c = columns_of(a);
    const int rows = a.queries / c.length, rest = a.queries % c.length;
    const size_t numbers = rounded(sizeof(float) * (size_t)numbers_in(c));
    const size_t one = (size_t)a.batch * (size_t)a.queries * (size_t)a.dim * by_dtype_size(type);
    const size_t wide = rounded(one * (size_t)a.heads), narrow = rounded(one * (size_t)a.kv_heads);
    char *space = (char *)cuda_scratch(x, 3 * numbers + wide + 2 * narrow);
    float *lse = (float *)space;
    g.delta = (float *)(space + numbers);
    far.delta = (float *)(space + 2 * numbers);
    char *sums = space + 3 * numbers;
    far.dq = g.dq.at ? rows_at(sums, a, a.heads) : head_rows{};
    far.dk = g.dk.at ? rows_at(sums + wide, a, a.kv_heads) : head_rows{};
    far.dv = g.dv.at ? rows_at(sums + wide + narrow, a, a.kv_heads) : head_rows{};
    BY_TRY(cuda_launch(x, spread, dim3(blocks_for(numbers_in(c), THREADS)), dim3(THREADS), 0,
                       (const float *)a.lse, c, lse));
    const int64_t longer = (int64_t)a.batch * rest * a.heads * (rows + 1);
    BY_TRY(back_columns(x, far, 0, rest, rows + 1, lse, far.delta, type));
    BY_TRY(back_columns(x, far, rest, c.length - rest, rows, lse + longer, far.delta + longer, type));
    const bool window = has_window(a);
    if (window) {
        g.a = window_of(a);
        BY_TRY(cuda_attend_back(x, g, type));
    }
    BY_TRY(add_type(x, g.dq, far.dq, a, window, type));
    BY_TRY(add_type(x, g.dk, far.dk, a, window, type));
    return add_type(x, g.dv, far.dv, a, window, type);
}
