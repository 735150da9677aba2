/* optim.cu - the gradient norm, AdamW, SGD and Adafactor over the flat buffers. Every parameter is a segment
 * with its own share of the learning rate; values of 16 bits have a float master, which is what is updated.
 *
 * What is computed is what src/cpu/kernels/optim.c says, with one difference: when the norm of the gradients
 * is not finite nothing is changed, and it is the host that finds out, from the norm. */
#include "cuda/kernels/rows.cuh"

enum { THREADS = 256 };

/* ---- norm2 ----------------------------------------------------------------------------------- */

enum { AT_ONCE = 4 }; /* loads of 16 bytes that a thread has under way */

template <class T>
static __device__ __forceinline__ void add_squares(double &sum, const packed<T, wide<T>::N> &p)
{
    const auto v = unpack(p);
    for (float e : v.at)
        sum += (double)e * (double)e;
}

/* In double, in which squares of floats cannot overflow. A block leaves one sum; who adds what depends on the
 * count and the number of blocks alone. */
template <class T>
static __global__ void __launch_bounds__(THREADS) square_parts(double *part, const T *x, int64_t count)
{
    enum { N = wide<T>::N };
    __shared__ double space[32];
    const int64_t pieces = count / N, threads = (int64_t)gridDim.x * THREADS;
    const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum[2] = {0, 0};
    int64_t i = thread;
    for (; i + (AT_ONCE - 1) * threads < pieces; i += AT_ONCE * threads) {
        packed<T, N> p[AT_ONCE];
        BY_UNROLL
        for (int k = 0; k < AT_ONCE; k++)
            p[k] = get_packed<N>(x + (i + k * threads) * N);
        BY_UNROLL
        for (int k = 0; k < AT_ONCE; k++)
            add_squares<T>(sum[k % 2], p[k]);
    }
    for (; i < pieces; i += threads)
        add_squares<T>(sum[0], get_packed<N>(x + i * N));
    for (i = pieces * N + thread; i < count; i += threads)
        sum[1] += (double)to_float(x[i]) * (double)to_float(x[i]);
    const double all = block_sum_double(sum[0] + sum[1], space);
    if (threadIdx.x == 0)
        part[blockIdx.x] = all;
}

static __global__ void __launch_bounds__(THREADS) square_root(float *y, const double *part, int parts)
{
    __shared__ double space[32];
    double sum = 0;
    for (int i = (int)threadIdx.x; i < parts; i += THREADS)
        sum += part[i];
    sum = block_sum_double(sum, space);
    if (threadIdx.x == 0)
        *y = (float)sqrt(sum);
}

template <class T> static by_status norm2(by_cuda_exec *x, by_node *n)
{
    const int64_t count = by_elements(n->in[0]);
    const int parts =
        (int)BY_MIN((int64_t)8 * x->cuda->sms, (int64_t)blocks_for(count, THREADS * AT_ONCE * wide<T>::N));
    double *part = (double *)by_cuda_scratch(x, (size_t)parts * sizeof *part);
    BY_TRY(by_launch(x, square_parts<T>, parts, THREADS, 0, part, (const T *)n->in[0]->data, count));
    return by_launch(x, square_root, 1, THREADS, 0, (float *)n->out[0]->data, part, parts);
}

extern "C" by_status by_cuda_norm2(by_exec *e, by_node *n)
{
    BY_BRANCH("norm2");
    BY_CUDA_DISPATCH(n->in[0]->type, norm2, by_cuda_of(e), n)
}

/* ---- what the optimisers share --------------------------------------------------------------- */

/* The plan of a node: a table in device memory, made from the segments in the dry run, since captured
 * launches cannot read the host's. */
struct table_plan {
    void (*forget)(void *);
    void *table; /* device memory */
    int count;
    int64_t floats, pieces; /* Adafactor: scratch for columns; blocks for a segment */
};

static void forget_table(void *plan)
{
    cudaFree(((table_plan *)plan)->table);
    by_free(plan);
}

static by_status keep_table(by_node *n, const void *table, int count, size_t size, table_plan **out)
{
    table_plan *p = (table_plan *)by_alloc_zero(1, sizeof *p);
    if (!p)
        return BY_ERR_MEMORY;
    p->forget = forget_table;
    p->count = count;
    const size_t bytes = (size_t)count * size;
    by_status status = by_cuda_check(cudaMalloc(&p->table, bytes ? bytes : 1), "a table of parameters");
    if (status == BY_OK && bytes)
        status = by_cuda_check(cudaMemcpy(p->table, table, bytes, cudaMemcpyHostToDevice),
                               "a table of parameters");
    if (status != BY_OK) {
        forget_table(p);
        return status;
    }
    n->plan = *out = p;
    return BY_OK;
}

/* The buffers; inputs that are not given are NULL. */
template <class T> struct buffers {
    T *value;
    const float *grad;
    float *m, *v, *master;
    const float *norm, *hyper;
};

template <class V> static V *data_of(const by_tensor *t)
{
    return t ? (V *)t->data : NULL;
}

/* What the gradients are multiplied by; false: their norm is not a number to work with. */
static __device__ __forceinline__ bool clip_factor(const float *norm, const float *hyper, float *factor)
{
    const float max_norm = hyper[BY_HYPER_MAX_NORM], x = norm ? *norm : 0;
    *factor = norm && max_norm > 0 ? fminf(1, max_norm / (x + 1e-6f)) : 1;
    return fabsf(x) < INFINITY;
}

/* 1 - lr weight_decay, rounded once */
static __device__ __forceinline__ float keep_of(float lr, float weight_decay, bool decay)
{
    return decay ? fmaf(-lr, weight_decay, 1) : 1;
}

template <int N, class T>
static __device__ __forceinline__ vec<float, N> get_weight(const buffers<T> &b, int64_t at)
{
    return b.master ? get<N>(b.master + at) : get<N>(b.value + at);
}
template <class T, int N>
static __device__ __forceinline__ void put_weight(const buffers<T> &b, int64_t at, const vec<float, N> &w)
{
    if (b.master)
        put(b.master + at, w);
    put(b.value + at, w);
}

/* ---- AdamW and SGD: element by element --------------------------------------------------------- */

enum { STRETCH = 4096 }; /* most elements of a block */

/* A part of a segment that is not frozen; offsets are multiples of 16. */
struct stretch {
    int64_t offset;
    int32_t count;
    float lr_scale;
    bool decay;
};

static by_status stretches_of(by_node *n, table_plan **out)
{
    const by_optim_attr *a = (const by_optim_attr *)n->attr;
    if (n->plan) {
        *out = (table_plan *)n->plan;
        return BY_OK;
    }
    int64_t count = 0;
    for (int s = 0; s < a->n_segments; s++)
        if (a->segments[s].lr_scale != 0)
            count += (a->segments[s].count + STRETCH - 1) / STRETCH;
    stretch *table = (stretch *)by_alloc_zero((size_t)count + 1, sizeof *table), *next = table;
    if (!table)
        return BY_ERR_MEMORY;
    for (int s = 0; s < a->n_segments; s++) {
        const by_segment *g = &a->segments[s];
        for (int64_t at = 0; g->lr_scale != 0 && at < g->count; at += STRETCH)
            *next++ = stretch{g->offset + at, (int32_t)BY_MIN(STRETCH, g->count - at), g->lr_scale, g->decay};
    }
    const by_status status = keep_table(n, table, (int)count, sizeof *table, out);
    by_free(table);
    return status;
}

/* f(at, count as a type) for this thread's share of a stretch: four elements at once, the rest one by one. */
template <int N> struct many {
    enum { COUNT = N };
};
template <class F> static __device__ __forceinline__ void each_of(const stretch &s, F f)
{
    const int whole = s.count & ~3;
    for (int i = (int)threadIdx.x * 4; i < whole; i += THREADS * 4)
        f(s.offset + i, many<4>{});
    for (int i = whole + (int)threadIdx.x; i < s.count; i += THREADS)
        f(s.offset + i, many<1>{});
}

struct adamw_numbers {
    float clip, beta1, beta2, eps, keep, rate, root; /* rate: lr / corr1; root: 1 / sqrt(corr2) */
};

template <int N, class T>
static __device__ __forceinline__ void adamw_at(const buffers<T> &b, int64_t at, const adamw_numbers &k)
{
    vec<float, N> g = get<N>(b.grad + at), m = get<N>(b.m + at), v = get<N>(b.v + at);
    vec<float, N> w = get_weight<N>(b, at);
    for (int j = 0; j < N; j++) {
        g.at[j] *= k.clip;
        m.at[j] = k.beta1 * m.at[j] + (1 - k.beta1) * g.at[j];
        v.at[j] = k.beta2 * v.at[j] + (1 - k.beta2) * (g.at[j] * g.at[j]);
        w.at[j] = w.at[j] * k.keep - k.rate * m.at[j] / (sqrtf(v.at[j]) * k.root + k.eps);
    }
    put(b.m + at, m);
    put(b.v + at, v);
    put_weight(b, at, w);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    adamw_stretch(buffers<T> b, const stretch *table, float beta1, float beta2, float eps, float weight_decay)
{
    const stretch s = table[blockIdx.x];
    adamw_numbers k;
    if (!clip_factor(b.norm, b.hyper, &k.clip))
        return;
    const float lr = b.hyper[BY_HYPER_LR] * s.lr_scale;
    k.beta1 = beta1;
    k.beta2 = beta2;
    k.eps = eps;
    k.keep = keep_of(lr, weight_decay, s.decay);
    k.rate = lr / b.hyper[BY_HYPER_CORR1];
    k.root = 1 / sqrtf(b.hyper[BY_HYPER_CORR2]);
    each_of(s, [&](int64_t at, auto n) { adamw_at<decltype(n)::COUNT>(b, at, k); });
}

/* g += wd w;  m = mu m + g;  w -= lr m. Without m, or with mu 0: w -= lr g. */
template <int N, class T>
static __device__ __forceinline__ void sgd_at(const buffers<T> &b, int64_t at, float clip, float mu,
                                              float decay, float lr)
{
    vec<float, N> g = get<N>(b.grad + at), w = get_weight<N>(b, at);
    for (int j = 0; j < N; j++)
        g.at[j] = g.at[j] * clip + decay * w.at[j];
    if (b.m && mu > 0) {
        const vec<float, N> m = get<N>(b.m + at);
        for (int j = 0; j < N; j++)
            g.at[j] += mu * m.at[j];
        put(b.m + at, g);
    }
    for (int j = 0; j < N; j++)
        w.at[j] -= lr * g.at[j];
    put_weight(b, at, w);
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    sgd_stretch(buffers<T> b, const stretch *table, float weight_decay)
{
    const stretch s = table[blockIdx.x];
    float clip;
    if (!clip_factor(b.norm, b.hyper, &clip))
        return;
    const float lr = b.hyper[BY_HYPER_LR] * s.lr_scale, mu = b.hyper[BY_HYPER_MOMENTUM];
    const float decay = s.decay ? weight_decay : 0;
    each_of(s, [&](int64_t at, auto n) { sgd_at<decltype(n)::COUNT>(b, at, clip, mu, decay, lr); });
}

template <class T> static by_status adamw(by_cuda_exec *x, by_node *n)
{
    const by_optim_attr *a = (const by_optim_attr *)n->attr;
    const buffers<T> b = {data_of<T>(n->in[0]),     data_of<float>(n->in[1]), data_of<float>(n->in[2]),
                          data_of<float>(n->in[3]), data_of<float>(n->in[4]), data_of<float>(n->in[5]),
                          data_of<float>(n->in[6])};
    table_plan *p;
    BY_TRY(stretches_of(n, &p));
    return by_launch(x, adamw_stretch<T>, p->count, THREADS, 0, b, (const stretch *)p->table, a->beta1,
                     a->beta2, a->eps, a->weight_decay);
}

template <class T> static by_status sgd(by_cuda_exec *x, by_node *n)
{
    const by_optim_attr *a = (const by_optim_attr *)n->attr;
    const buffers<T> b = {data_of<T>(n->in[0]),     data_of<float>(n->in[1]), data_of<float>(n->in[2]), NULL,
                          data_of<float>(n->in[3]), data_of<float>(n->in[4]), data_of<float>(n->in[5])};
    table_plan *p;
    BY_TRY(stretches_of(n, &p));
    return by_launch(x, sgd_stretch<T>, p->count, THREADS, 0, b, (const stretch *)p->table, a->weight_decay);
}

extern "C" by_status by_cuda_adamw(by_exec *e, by_node *n)
{
    BY_BRANCH("adamw");
    BY_CUDA_DISPATCH(n->in[0]->type, adamw, by_cuda_of(e), n)
}

extern "C" by_status by_cuda_sgd(by_exec *e, by_node *n)
{
    BY_BRANCH("sgd");
    BY_CUDA_DISPATCH(n->in[0]->type, sgd, by_cuda_of(e), n)
}

/* ---- Adafactor -------------------------------------------------------------------------------
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

enum { CHUNKS = 16 }; /* most partial sums of the columns of a matrix */

/* A segment that is not frozen. */
struct factored {
    int64_t offset, rows, cols;
    int64_t columns; /* its place in scratch: (chunks, cols) */
    int chunks;
    float lr_scale;
    bool decay;
};

template <class T> struct factored_args {
    buffers<T> b;
    const factored *table;
    float *columns;     /* partial sums of columns, then 1 / sqrt(c) in the first row */
    double *squares;    /* (segments, pieces, 2): sums of u^2, of w^2 */
    float *mean, *rate; /* (segments): mean(r); what u is multiplied by */
    float weight_decay;
};

static __device__ __forceinline__ float decay_of(const float *hyper)
{
    return 1 - powf(hyper[BY_HYPER_STEP], -0.8f);
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
        a.rate[blockIdx.y] = a.b.hyper[BY_HYPER_LR] * f.lr_scale * fmaxf(1e-3f, rms_w) / fmaxf(1, rms_u);
}

template <class T> static __global__ void __launch_bounds__(THREADS) factor_update(factored_args<T> a)
{
    const factored f = a.table[blockIdx.y];
    const float *column = a.columns + f.columns;
    const float keep = keep_of(a.b.hyper[BY_HYPER_LR] * f.lr_scale, a.weight_decay, f.decay);
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

static by_status factored_of(by_node *n, table_plan **out)
{
    const by_optim_attr *a = (const by_optim_attr *)n->attr;
    if (n->plan) {
        *out = (table_plan *)n->plan;
        return BY_OK;
    }
    factored *table = (factored *)by_alloc_zero((size_t)a->n_segments + 1, sizeof *table);
    if (!table)
        return BY_ERR_MEMORY;
    int count = 0;
    int64_t floats = 0, pieces = 1;
    for (int s = 0; s < a->n_segments; s++) {
        const by_segment *g = &a->segments[s];
        if (g->lr_scale == 0 || g->count == 0)
            continue;
        const int chunks = (int)BY_MIN(CHUNKS, g->rows);
        table[count++] = factored{g->offset, g->rows, g->cols, floats, chunks, g->lr_scale, g->decay};
        floats += chunks * g->cols;
        pieces = BY_MAX(pieces, g->rows);
    }
    const by_status status = keep_table(n, table, count, sizeof *table, out);
    by_free(table);
    if (status != BY_OK)
        return status;
    (*out)->floats = floats;
    (*out)->pieces = pieces;
    return BY_OK;
}

template <class T> static by_status adafactor(by_cuda_exec *x, by_node *n)
{
    table_plan *p;
    BY_TRY(factored_of(n, &p));
    const int pieces = (int)BY_MIN(p->pieces, (int64_t)2 * x->cuda->sms);
    const size_t squares = (size_t)p->count * (size_t)pieces * 2;
    factored_args<T> a = {};
    a.b = {data_of<T>(n->in[0]),     data_of<float>(n->in[1]), data_of<float>(n->in[2]),
           data_of<float>(n->in[3]), data_of<float>(n->in[4]), data_of<float>(n->in[5]),
           data_of<float>(n->in[6])};
    a.table = (const factored *)p->table;
    a.squares = (double *)by_cuda_scratch(x, squares * sizeof(double) +
                                                 ((size_t)p->floats + 2 * (size_t)p->count) * sizeof(float));
    a.columns = (float *)(a.squares + squares);
    a.mean = a.columns + p->floats;
    a.rate = a.mean + p->count;
    a.weight_decay = ((const by_optim_attr *)n->attr)->weight_decay;
    const dim3 all((unsigned)pieces, (unsigned)p->count), one(1, (unsigned)p->count);
    BY_TRY(by_launch(x, factor_rows<T>, all, THREADS, 0, a));
    BY_TRY(by_launch(x, factor_columns<T>, all, THREADS, 0, a));
    BY_TRY(by_launch(x, factor_join<T>, all, THREADS, 0, a));
    BY_TRY(by_launch(x, factor_mean<T>, one, THREADS, 0, a));
    BY_TRY(by_launch(x, factor_squares<T>, all, THREADS, 0, a));
    BY_TRY(by_launch(x, factor_rate<T>, one, THREADS, 0, a, pieces));
    return by_launch(x, factor_update<T>, all, THREADS, 0, a);
}

extern "C" by_status by_cuda_adafactor(by_exec *e, by_node *n)
{
    BY_BRANCH("adafactor");
    BY_CUDA_DISPATCH(n->in[0]->type, adafactor, by_cuda_of(e), n)
}
