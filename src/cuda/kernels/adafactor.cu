/* adafactor.cu - Adafactor over the flat buffers, without momentum, the step size given.
 *
 *   b = 1 - t^-0.8
 *   matrix:  r_i = b r_i + (1 - b) (mean over j of g_ij^2 + 1e-30),  c_j likewise over i
 *            u_ij = g_ij / sqrt(r_i c_j / mean(r))
 *   vector:  v_i = b v_i + (1 - b) (g_i^2 + 1e-30)
 *            u_i = g_i / sqrt(v_i)
 *   w = w (1 - lr wd) - lr max(1e-3, rms(w)) u / max(1, rms(u))
 * r is in the first `rows` elements of the segment's stretch of m, c in the first `cols` of its stretch of
 * v; a vector has all of v. From the statistics on, a vector is a matrix of one row whose r is 1.
 *
 * One kernel for each step, over all segments at once: grid (pieces, segments). */
#include "cuda/kernels/optim.cuh"

enum { CHUNKS = 16 }; /* maximum number of partial sums of the columns of a matrix */

/* A segment that is not frozen. */
struct factored {
    int64_t offset, rows, cols;
    int64_t columns; /* its offset in scratch: (chunks, cols) */
    int chunks;
    float lr_scale;
    bool decay;
};

template <class T> struct factored_args {
    buffers<T> b;
    const factored *table;
    float *columns;     /* partial sums of columns, then 1 / sqrt(c) in the first row */
    double *squares;    /* (segments, pieces, 2): sums of u^2, of w^2 */
    float *mean, *rate; /* (segments): mean(r); factor of u */
    float weight_decay;
};

static __device__ __forceinline__ float decay_of(const float *hyper)
{
    return 1 - powf(hyper[GR_HYPER_STEP], -0.8f);
}

/* sqrt(mean(r) / r_i), 1 for a vector */
template <class T>
static __device__ __forceinline__ float row_factor(const factored_args<T> &a, const factored &f, int64_t row)
{
    return f.rows > 1 ? sqrtf(a.mean[blockIdx.y] / a.b.m[f.offset + row]) : 1;
}

/* r of matrices: a block a row */
template <class T> static __global__ void __launch_bounds__(THREADS) factor_rows(factored_args<T> a)
{
    __shared__ float space[32];
    const factored f = a.table[blockIdx.y];
    const float b = decay_of(a.b.hyper);
    float clip;
    if (!clip_factor(a.b.norm, a.b.hyper, &clip) || f.rows == 1)
        return;
    for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
        const float *grad = a.b.grad + f.offset + r * f.cols;
        float sum = 0;
        for (int64_t j = threadIdx.x; j < f.cols; j += THREADS)
            sum += grad[j] * clip * (grad[j] * clip);
        sum = block_sum(sum, space);
        float *m = a.b.m + f.offset + r;
        if (threadIdx.x == 0)
            *m = b * *m + (1 - b) * (sum / (float)f.cols + 1e-30f);
    }
}

/* Partial sums of the columns of matrices: a thread a column of a chunk of rows */
template <class T> static __global__ void __launch_bounds__(THREADS) factor_columns(factored_args<T> a)
{
    const factored f = a.table[blockIdx.y];
    float clip;
    if (!clip_factor(a.b.norm, a.b.hyper, &clip) || f.rows == 1)
        return;
    const int64_t across = (f.cols + THREADS - 1) / THREADS, step = (f.rows + f.chunks - 1) / f.chunks;
    for (int64_t p = blockIdx.x; p < across * f.chunks; p += gridDim.x) {
        const int64_t j = p % across * THREADS + threadIdx.x, chunk = p / across;
        float sum = 0;
        if (j >= f.cols)
            continue;
        for (int64_t r = chunk * step; r < min((chunk + 1) * step, f.rows); r++) {
            const float g = a.b.grad[f.offset + r * f.cols + j] * clip;
            sum += g * g;
        }
        a.columns[f.columns + chunk * f.cols + j] = sum;
    }
}

/* c of matrices and v of vectors, then 1 / sqrt of either */
template <class T> static __global__ void __launch_bounds__(THREADS) factor_join(factored_args<T> a)
{
    const factored f = a.table[blockIdx.y];
    const float b = decay_of(a.b.hyper);
    float clip;
    if (!clip_factor(a.b.norm, a.b.hyper, &clip))
        return;
    for (int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x; j < f.cols;
         j += (int64_t)gridDim.x * THREADS) {
        float sum = 0, *column = a.columns + f.columns + j, *v = a.b.v + f.offset + j;
        const float g = a.b.grad[f.offset + j] * clip;
        for (int chunk = 0; f.rows > 1 && chunk < f.chunks; chunk++)
            sum += column[chunk * f.cols];
        *v = b * *v + (1 - b) * ((f.rows > 1 ? sum / (float)f.rows : g * g) + 1e-30f);
        *column = 1 / sqrtf(*v);
    }
}

/* mean(r): a block a segment */
template <class T> static __global__ void __launch_bounds__(THREADS) factor_mean(factored_args<T> a)
{
    __shared__ double space[32];
    const factored f = a.table[blockIdx.y];
    double sum = 0;
    for (int64_t r = threadIdx.x; f.rows > 1 && r < f.rows; r += THREADS)
        sum += a.b.m[f.offset + r];
    sum = block_sum_double(sum, space);
    if (threadIdx.x == 0)
        a.mean[blockIdx.y] = (float)(sum / (double)f.rows);
}

/* Sums of u^2 and w^2: a block a row, one pair for all rows of a block */
template <class T> static __global__ void __launch_bounds__(THREADS) factor_squares(factored_args<T> a)
{
    __shared__ double space[32];
    const factored f = a.table[blockIdx.y];
    const float *column = a.columns + f.columns;
    double u2 = 0, w2 = 0;
    float clip;
    clip_factor(a.b.norm, a.b.hyper, &clip);
    for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
        const float factor = clip * row_factor(a, f, r);
        const int64_t at = f.offset + r * f.cols;
        for (int64_t j = threadIdx.x; j < f.cols; j += THREADS) {
            const double u = a.b.grad[at + j] * factor * column[j], w = get_weight<1>(a.b, at + j).at[0];
            u2 += u * u;
            w2 += w * w;
        }
    }
    u2 = block_sum_double(u2, space);
    w2 = block_sum_double(w2, space);
    double *out = a.squares + 2 * ((int64_t)blockIdx.y * gridDim.x + blockIdx.x);
    if (threadIdx.x == 0) {
        out[0] = u2;
        out[1] = w2;
    }
}

/* lr max(1e-3, rms(w)) / max(1, rms(u)): a block a segment */
template <class T>
static __global__ void __launch_bounds__(THREADS) factor_rate(factored_args<T> a, int pieces)
{
    __shared__ double space[32];
    const factored f = a.table[blockIdx.y];
    const double *squares = a.squares + 2 * (int64_t)blockIdx.y * pieces;
    double u2 = 0, w2 = 0;
    for (int p = (int)threadIdx.x; p < pieces; p += THREADS) {
        u2 += squares[2 * p];
        w2 += squares[2 * p + 1];
    }
    const double count = (double)f.rows * (double)f.cols;
    const float rms_u = (float)sqrt(block_sum_double(u2, space) / count);
    const float rms_w = (float)sqrt(block_sum_double(w2, space) / count);
    if (threadIdx.x == 0)
        a.rate[blockIdx.y] = a.b.hyper[GR_HYPER_LR] * f.lr_scale * fmaxf(1e-3f, rms_w) / fmaxf(1, rms_u);
}

template <class T> static __global__ void __launch_bounds__(THREADS) factor_update(factored_args<T> a)
{
    const factored f = a.table[blockIdx.y];
    const float *column = a.columns + f.columns;
    const float keep = keep_of(a.b.hyper[GR_HYPER_LR] * f.lr_scale, a.weight_decay, f.decay);
    float clip;
    if (!clip_factor(a.b.norm, a.b.hyper, &clip))
        return;
    for (int64_t r = blockIdx.x; r < f.rows; r += gridDim.x) {
        const float factor = clip * row_factor(a, f, r) * a.rate[blockIdx.y];
        const int64_t at = f.offset + r * f.cols;
        for (int64_t j = threadIdx.x; j < f.cols; j += THREADS) {
            vec<float, 1> w = get_weight<1>(a.b, at + j);
            w.at[0] = w.at[0] * keep - a.b.grad[at + j] * factor * column[j];
            put_weight(a.b, at + j, w);
        }
    }
}

static by_status factored_of(gr_node *n, table_plan **out)
{
    const gr_optim_attr *a = (const gr_optim_attr *)n->attr;
    if (n->plan) {
        *out = (table_plan *)n->plan;
        return BY_OK;
    }
    factored *table = (factored *)base_alloc_zero((size_t)a->n_segments + 1, sizeof *table);
    if (!table)
        return BY_ERR_MEMORY;
    int count = 0;
    int64_t floats = 0, pieces = 1;
    for (int s = 0; s < a->n_segments; s++) {
        const gr_segment *g = &a->segments[s];
        if (g->lr_scale == 0 || g->count == 0)
            continue;
        const int chunks = (int)BY_MIN((int64_t)CHUNKS, g->rows);
        table[count++] = factored{g->offset, g->rows, g->cols, floats, chunks, g->lr_scale, g->decay};
        floats += chunks * g->cols;
        pieces = BY_MAX(pieces, g->rows);
    }
    const by_status status = keep_table(n, table, count, sizeof *table, out);
    base_free(table);
    if (status != BY_OK)
        return status;
    (*out)->floats = floats;
    (*out)->pieces = pieces;
    return BY_OK;
}

template <class T> static by_status adafactor(cuda_exec *x, gr_node *n)
{
    table_plan *p;
    BY_TRY(factored_of(n, &p));
    const int pieces = (int)BY_MIN(p->pieces, (int64_t)2 * x->cuda->sms);
    const size_t squares = (size_t)p->count * (size_t)pieces * 2;
    factored_args<T> a = {};
    a.b = buffers_of<T>(x, n);
    a.table = (const factored *)p->table;
    a.squares = (double *)cuda_scratch(x, squares * sizeof(double) +
                                              ((size_t)p->floats + 2 * (size_t)p->count) * sizeof(float));
    a.columns = (float *)(a.squares + squares);
    a.mean = a.columns + p->floats;
    a.rate = a.mean + p->count;
    a.weight_decay = ((const gr_optim_attr *)n->attr)->weight_decay;
    const dim3 all((unsigned)pieces, (unsigned)p->count), one(1, (unsigned)p->count);
    BY_TRY(cuda_launch(x, factor_rows<T>, all, THREADS, 0, a));
    BY_TRY(cuda_launch(x, factor_columns<T>, all, THREADS, 0, a));
    BY_TRY(cuda_launch(x, factor_join<T>, all, THREADS, 0, a));
    BY_TRY(cuda_launch(x, factor_mean<T>, one, THREADS, 0, a));
    BY_TRY(cuda_launch(x, factor_squares<T>, all, THREADS, 0, a));
    BY_TRY(cuda_launch(x, factor_rate<T>, one, THREADS, 0, a, pieces));
    return cuda_launch(x, factor_update<T>, all, THREADS, 0, a);
}

extern "C" by_status cuda_adafactor(gr_exec *e, gr_node *n)
{
    if (rounds_by_chance(n, n->in[4]))
        BY_BRANCH("adafactor, stochastic rounding");
    else
        BY_BRANCH("adafactor");
    BY_CUDA_DISPATCH(n->in[0]->type, adafactor, cuda_exec_of(e), n)
}
