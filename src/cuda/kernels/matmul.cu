/* matmul.cu - linear layers, their gradients and batched products. Large products are cuBLASLt's; those with
 * a few rows, which are a reading of the weights, are ours, and so are the few that the library has no kernel
 * for. Which way a node goes is decided once, when the program is compiled, and kept in n->plan. */
#include "cuda/gemm.cuh"
#include "cuda/kernels/kernel.cuh"

enum { FEW_ROWS = 8 };

/* n->plan of the four ops. */
typedef struct linear_plan {
    void (*forget)(void *);
    by_product p;
    by_lt_plan *lt;   /* NULL: ours */
    bool few, inside; /* few rows; bias and activation (or the column sums) are part of the product */
    int splits;       /* few rows, w (K, N): parts that K is cut into */
    int *arrived;     /* few rows, w (K, N): blocks that have finished, per tile of columns; device memory */
} linear_plan;

static void forget_plan(void *p)
{
    linear_plan *plan = (linear_plan *)p;
    by_lt_plan_free(plan->lt);
    if (plan->arrived)
        cudaFree(plan->arrived);
    by_free(plan);
}

/* ---- few rows: w (N, K) ---------------------------------------------------------------------- */

typedef struct few_args {
    const void *x, *w, *bias;
    void *y;
    int64_t ldx, ldw, ldy;
    int n, k;
    by_act act;
} few_args;

template <class T> static __device__ __forceinline__ float finish(const few_args &a, int n, float sum)
{
    if (a.bias)
        sum += to_float(((const T *)a.bias)[n]);
    return activate(a.act, sum);
}

/* y (M, N) = act(x (M, K) w^T + b). A warp takes ROWS rows of w; VEC elements at a time. */
template <class T, int M, int VEC> __global__ void few_rows_nk(few_args a)
{
    enum { ROWS = 2 };
    const int lane = threadIdx.x & 31,
              first = (int)(blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * ROWS;
    const T *x = (const T *)a.x, *w = (const T *)a.w;
    float sum[ROWS][M] = {};
    if (first >= a.n) /* the whole warp */
        return;
    const int rows = min(a.n - first, (int)ROWS);
    for (int k = lane * VEC; k < a.k; k += 32 * VEC) {
        vec<T, VEC> part[ROWS];
        for (int r = 0; r < ROWS; r++)
            part[r] = load<T, VEC>(w + (int64_t)(first + (r < rows ? r : 0)) * a.ldw + k);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const vec<T, VEC> v = load<T, VEC>(x + m * a.ldx + k);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    sum[r][m] += to_float(part[r].at[i]) * to_float(v.at[i]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float s = warp_sum(sum[r][m]);
            if (lane == 0 && r < rows)
                ((T *)a.y)[m * a.ldy + first + r] = from_float<T>(finish<T>(a, first + r, s));
        }
}

/* ---- few rows: w (K, N) ---------------------------------------------------------------------- */

enum { TILE_COLUMNS = 64, TILE_THREADS = 256 };

/* The same with w (K, N). A block takes TILE_COLUMNS columns and a part of K; the block that is the last of
 * its columns adds the parts up, always in the same order. */
template <class T, int M, int VEC>
__global__ void few_rows_kn(few_args a, int per_split, float *parts, int *arrived)
{
    enum { ACROSS = TILE_COLUMNS / VEC, DOWN = TILE_THREADS / ACROSS };
    __shared__ float sums[DOWN][TILE_COLUMNS + 1];
    __shared__ int last;
    const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
    const int col = (int)blockIdx.x * TILE_COLUMNS + across * VEC;
    const int from = (int)blockIdx.y * per_split, to = min(a.k, from + per_split);
    const T *x = (const T *)a.x, *w = (const T *)a.w;
    float sum[M][VEC] = {};
    if (col < a.n) {
#pragma unroll 4
        for (int k = from + down; k < to; k += DOWN) {
            const vec<T, VEC> part = load<T, VEC>(w + k * a.ldw + col);
#pragma unroll
            for (int m = 0; m < M; m++) {
                const float v = to_float(x[m * a.ldx + k]);
#pragma unroll
                for (int i = 0; i < VEC; i++)
                    sum[m][i] += v * to_float(part.at[i]);
            }
        }
    }
    for (int m = 0; m < M; m++) {
        for (int i = 0; i < VEC; i++)
            sums[down][across * VEC + i] = sum[m][i];
        __syncthreads();
        if (threadIdx.x < TILE_COLUMNS) {
            float total = 0;
            for (int d = 0; d < DOWN; d++)
                total += sums[d][threadIdx.x];
            parts[((int64_t)(blockIdx.x * gridDim.y + blockIdx.y) * M + m) * TILE_COLUMNS + threadIdx.x] =
                total;
        }
        __syncthreads();
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(&arrived[blockIdx.x], 1) == (int)gridDim.y - 1;
        if (last)
            arrived[blockIdx.x] = 0; /* for the next run */
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    const float *mine = parts + (int64_t)blockIdx.x * gridDim.y * M * TILE_COLUMNS;
    for (int i = threadIdx.x; i < M * TILE_COLUMNS; i += blockDim.x) {
        const int m = i / TILE_COLUMNS, n = (int)blockIdx.x * TILE_COLUMNS + i % TILE_COLUMNS;
        float total = 0;
        for (int s = 0; s < (int)gridDim.y; s++)
            total += __ldcg(mine + (int64_t)s * M * TILE_COLUMNS + i);
        if (n < a.n)
            ((T *)a.y)[m * a.ldy + n] = from_float<T>(finish<T>(a, n, total));
    }
}

template <class T, int M, int VEC>
static by_status launch_few(by_cuda_exec *x, const linear_plan *plan, const few_args &a)
{
    if (plan->p.tb)
        return by_launch(x, few_rows_nk<T, M, VEC>, dim3(blocks_for(a.n, 16)), dim3(256), 0, a);
    const unsigned tiles = blocks_for(a.n, TILE_COLUMNS);
    const size_t bytes = sizeof(float) * tiles * (size_t)plan->splits * M * TILE_COLUMNS;
    float *parts = (float *)by_cuda_scratch(x, bytes);
    const int per_split = (int)blocks_for(a.k, plan->splits);
    return by_launch(x, few_rows_kn<T, M, VEC>, dim3(tiles, (unsigned)plan->splits), dim3(TILE_THREADS), 0, a,
                     per_split, parts, plan->arrived);
}

template <class T, int VEC> static by_status few_of(by_cuda_exec *x, const linear_plan *plan, by_act act)
{
    const by_product *p = &plan->p;
    for (int64_t row = 0; row < p->m;) { /* 8, 4, 2, 1: every count is some of these */
        const int64_t left = p->m - row;
        few_args a = {(const T *)p->a + row * p->lda,
                      p->b,
                      p->bias,
                      (T *)p->c + row * p->ldc,
                      p->lda,
                      p->ldb,
                      p->ldc,
                      (int)p->n,
                      (int)p->k,
                      act};
        by_status status = left >= 8   ? launch_few<T, 8, VEC>(x, plan, a)
                           : left >= 4 ? launch_few<T, 4, VEC>(x, plan, a)
                           : left >= 2 ? launch_few<T, 2, VEC>(x, plan, a)
                                       : launch_few<T, 1, VEC>(x, plan, a);
        BY_TRY(status);
        row += left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    }
    return BY_OK;
}

template <class T> static by_status few_rows(by_cuda_exec *x, const linear_plan *plan, by_act act)
{
    enum { N = wide<T>::N };
    const by_product *p = &plan->p;
    /* vectors along K for w (N, K), along N for w (K, N); a vector is inside the matrix, or outside */
    const bool whole = p->ldb % N == 0 && (p->tb ? p->k % N == 0 && p->lda % N == 0 : p->n % N == 0);
    return whole ? few_of<T, N>(x, plan, act) : few_of<T, 1>(x, plan, act);
}

/* ---- any product: for what the library refuses ------------------------------------------------- */

enum { SIDE = 16 };

template <class T, class C> __global__ void any_product(by_product p)
{
    __shared__ float a[SIDE][SIDE + 1], b[SIDE][SIDE + 1];
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    const int64_t i = (int64_t)blockIdx.y * SIDE + ty, j = (int64_t)blockIdx.x * SIDE + tx;
    const T *pa = (const T *)p.a + blockIdx.z * p.stride_a, *pb = (const T *)p.b + blockIdx.z * p.stride_b;
    float sum = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += SIDE) {
        const int64_t ka = k0 + tx, kb = k0 + ty;
        a[ty][tx] = i < p.m && ka < p.k ? to_float(pa[p.ta ? ka * p.lda + i : i * p.lda + ka]) : 0.0f;
        b[ty][tx] = j < p.n && kb < p.k ? to_float(pb[p.tb ? j * p.ldb + kb : kb * p.ldb + j]) : 0.0f;
        __syncthreads();
        for (int k = 0; k < SIDE; k++)
            sum += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    if (i >= p.m || j >= p.n)
        return;
    C *c = (C *)p.c + blockIdx.z * p.stride_c + i * p.ldc + j;
    if (p.epilogue == BY_EPILOGUE_BIAS)
        sum += to_float(((const T *)p.bias)[j]);
    *c = from_float<C>(p.accumulate ? to_float(*c) + sum : sum);
}

template <class T> static by_status any(by_cuda_exec *x, const by_product *p)
{
    const dim3 grid(blocks_for(p->n, SIDE), blocks_for(p->m, SIDE), (unsigned)BY_MAX(p->batch, 1));
    if (p->c_type == BY_F32)
        return by_launch(x, any_product<T, float>, grid, dim3(SIDE * SIDE), 0, *p);
    return by_launch(x, any_product<T, T>, grid, dim3(SIDE * SIDE), 0, *p);
}

/* ---- what goes around -------------------------------------------------------------------------- */

/* y = act(x), four elements a thread; y may be x. */
template <class T> __global__ void activation_after(const T *x, T *y, int64_t count, by_act act)
{
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= count) {
        vec<T, 4> v = load<T, 4>(x + i);
        for (int k = 0; k < 4; k++)
            v.at[k] = from_float<T>(activate(act, to_float(v.at[k])));
        store(y + i, v);
        return;
    }
    for (int64_t k = i; k < count; k++)
        y[k] = from_float<T>(activate(act, to_float(x[k])));
}

template <class T>
static by_status activate_all(by_cuda_exec *x, const by_tensor *from, by_tensor *to, by_act act)
{
    const int64_t count = by_elements(from);
    return by_launch(x, activation_after<T>, dim3(blocks_for(count, 4 * 256)), dim3(256), 0,
                     (const T *)from->data, (T *)to->data, count, act);
}

enum { SUM_COLUMNS = 32, SUM_ROWS = 8 }; /* threads of a block, across and down */

/* parts (chunks, cols) = sums of `per` rows each of x (rows, cols). */
template <class T, int VEC>
__global__ void column_sums(const T *x, int64_t rows, int cols, int64_t pitch, int64_t per, float *parts)
{
    __shared__ float sums[SUM_ROWS][SUM_COLUMNS * VEC + 1];
    const int across = threadIdx.x % SUM_COLUMNS, down = threadIdx.x / SUM_COLUMNS;
    const int col = ((int)blockIdx.x * SUM_COLUMNS + across) * VEC;
    const int64_t from = blockIdx.y * per, to = min(rows, from + per);
    float sum[VEC] = {};
    if (col < cols) {
#pragma unroll 4
        for (int64_t r = from + down; r < to; r += SUM_ROWS) {
            const vec<T, VEC> v = load<T, VEC>(x + r * pitch + col);
            for (int i = 0; i < VEC; i++)
                sum[i] += to_float(v.at[i]);
        }
    }
    for (int i = 0; i < VEC; i++)
        sums[down][across * VEC + i] = sum[i];
    __syncthreads();
    for (int c = threadIdx.x; c < SUM_COLUMNS * VEC; c += blockDim.x) {
        float total = 0;
        for (int d = 0; d < SUM_ROWS; d++)
            total += sums[d][c];
        const int at = (int)blockIdx.x * SUM_COLUMNS * VEC + c;
        if (at < cols)
            parts[(int64_t)blockIdx.y * cols + at] = total;
    }
}

/* out (cols) [+]= the sum of the parts, in order. */
__global__ void add_parts(const float *parts, int chunks, int cols, float *out, bool add)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= cols)
        return;
    float total = add ? out[c] : 0.0f;
    for (int i = 0; i < chunks; i++)
        total += parts[(int64_t)i * cols + c];
    out[c] = total;
}

template <class T> static by_status sum_columns(by_cuda_exec *x, const by_tensor *dy, float *db, bool add)
{
    const int64_t rows = by_tensor_rows(dy), pitch = by_tensor_pitch(dy);
    const int cols = (int)by_tensor_cols(dy);
    enum { N = wide<T>::N };
    const bool whole = pitch % N == 0 && cols % N == 0;
    const unsigned across = blocks_for(cols, SUM_COLUMNS * (whole ? (int)N : 1));
    const int64_t want = BY_MAX(1, 4 * x->cuda->sms / (int64_t)across);
    const int64_t per = BY_MAX((rows + want - 1) / want, 64);
    const unsigned chunks = blocks_for(rows, per);
    float *parts = (float *)by_cuda_scratch(x, sizeof(float) * chunks * (size_t)cols);
    by_status status =
        by_launch(x, whole ? column_sums<T, N> : column_sums<T, 1>, dim3(across, chunks),
                  dim3(SUM_COLUMNS * SUM_ROWS), 0, (const T *)dy->data, rows, cols, pitch, per, parts);
    BY_TRY(status);
    return by_launch(x, add_parts, dim3(blocks_for(cols, 128)), dim3(128), 0, (const float *)parts,
                     (int)chunks, cols, db, add);
}

/* ---- plans ------------------------------------------------------------------------------------- */

/* x (R, K), w, [b] -> y (R, N), [pre] */
static by_product linear_product(const by_node *n)
{
    const by_linear_attr *attr = (const by_linear_attr *)n->attr;
    const by_tensor *x = n->in[0], *w = n->in[1], *bias = n->in[2], *to = n->out[1] ? n->out[1] : n->out[0];
    by_product p = {};
    p.m = by_tensor_rows(x);
    p.n = by_tensor_cols(to);
    p.k = by_tensor_cols(x);
    p.tb = !attr->w_is_kn;
    p.lda = p.k;
    p.ldb = p.tb ? p.k : p.n;
    p.ldc = by_tensor_pitch(to);
    p.ab_type = x->type;
    p.c_type = to->type;
    p.a = x->data;
    p.b = w->data;
    p.c = to->data;
    p.epilogue = bias ? BY_EPILOGUE_BIAS : BY_EPILOGUE_NONE;
    p.bias = bias ? bias->data : NULL;
    p.bias_type = bias ? bias->type : x->type;
    return p;
}

/* dy (R, N), w -> dx (R, K) */
static by_product linear_dx_product(const by_node *n)
{
    const by_tensor *dy = n->in[0], *w = n->in[1], *dx = n->out[0];
    by_product p = {};
    p.m = by_tensor_rows(dy);
    p.n = by_tensor_cols(dx);
    p.k = by_tensor_cols(dy);
    p.tb = ((const by_linear_attr *)n->attr)->w_is_kn;
    p.lda = by_tensor_pitch(dy);
    p.ldb = p.tb ? p.k : p.n;
    p.ldc = p.n;
    p.ab_type = dy->type;
    p.c_type = dx->type;
    p.a = dy->data;
    p.b = w->data;
    p.c = dx->data;
    return p;
}

/* x (R, K), dy (R, N) -> dw: x^T dy (K, N), or dy^T x (N, K) */
static by_product linear_dw_product(const by_node *n)
{
    const by_tensor *x = n->in[0], *dy = n->in[1];
    const bool kn = ((const by_linear_attr *)n->attr)->w_is_kn;
    const by_tensor *a = kn ? x : dy, *b = kn ? dy : x;
    by_product p = {};
    p.m = by_tensor_cols(a);
    p.n = by_tensor_cols(b);
    p.k = by_tensor_rows(x);
    p.ta = true;
    p.lda = by_tensor_pitch(a);
    p.ldb = by_tensor_pitch(b);
    p.ldc = p.n;
    p.ab_type = x->type;
    p.c_type = n->out[0]->type;
    p.accumulate = n->in[2] != NULL;
    p.a = a->data;
    p.b = b->data;
    p.c = n->out[0]->data;
    return p;
}

static by_product matmul_product(const by_node *n)
{
    const by_matmul_attr *attr = (const by_matmul_attr *)n->attr;
    const by_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
    by_product p = {};
    p.batch = 1;
    for (int i = 0; i < y->rank - 2; i++)
        p.batch *= y->dim[i];
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (attr->ta ? 2 : 1)];
    p.ta = attr->ta;
    p.tb = attr->tb;
    p.lda = p.ta ? p.m : p.k;
    p.ldb = p.tb ? p.k : p.n;
    p.ldc = p.n;
    p.stride_a = p.m * p.k;
    p.stride_b = p.k * p.n;
    p.stride_c = p.m * p.n;
    p.ab_type = a->type;
    p.c_type = y->type;
    p.a = a->data;
    p.b = b->data;
    p.c = y->data;
    return p;
}

static linear_plan *new_plan(by_node *n, by_product p)
{
    linear_plan *plan = (linear_plan *)by_alloc_zero(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->forget = forget_plan;
    plan->p = p;
    n->plan = plan;
    return plan;
}

/* A plan of the library's with this epilogue; false when it has none, which is no error. */
static bool try_library(by_cuda *c, linear_plan *plan, const by_product *p)
{
    plan->lt = by_lt_plan_new(c, p);
    if (!plan->lt)
        by_error_clear();
    return plan->lt != NULL;
}

static by_status plan_few(by_cuda_exec *x, linear_plan *plan)
{
    plan->few = true;
    if (plan->p.tb)
        return BY_OK;
    const size_t tiles = blocks_for(plan->p.n, TILE_COLUMNS);
    plan->splits = (int)BY_MAX(1, BY_MIN((2 * x->cuda->sms + (int)tiles - 1) / (int)tiles, plan->p.k / 32));
    BY_TRY(by_cuda_check(cudaMalloc((void **)&plan->arrived, tiles * sizeof(int)), "memory for a product"));
    return by_cuda_check(cudaMemset(plan->arrived, 0, tiles * sizeof(int)), "memory for a product");
}

static bool is_16_bit(by_dtype t)
{
    return t == BY_BF16 || t == BY_F16;
}

/* The library's GELU is the tanh form, and good enough for 16 bits. */
static bool library_gelu(by_act act, by_dtype type)
{
    return act == BY_GELU_TANH && is_16_bit(type);
}

static by_status plan_linear(by_cuda_exec *x, by_node *n)
{
    const by_act act = ((const by_linear_attr *)n->attr)->act;
    linear_plan *plan = new_plan(n, linear_product(n));
    if (!plan)
        return BY_ERR_MEMORY;
    if (plan->p.m <= FEW_ROWS && !n->out[1] && plan->p.c_type == plan->p.ab_type)
        return plan_few(x, plan);
    if (library_gelu(act, plan->p.ab_type) && n->out[0] && plan->p.n % 8 == 0) {
        by_product p = plan->p;
        p.epilogue = BY_EPILOGUE_GELU;
        p.c = n->out[0]->data;
        p.extra = n->out[1] ? n->out[1]->data : NULL;
        p.extra_ld = p.ldc;
        plan->inside = try_library(x->cuda, plan, &p);
    }
    if (!plan->inside)
        try_library(x->cuda, plan, &plan->p);
    return BY_OK;
}

static by_status run_product(by_cuda_exec *x, const linear_plan *plan)
{
    if (plan->lt) {
        return by_lt_run(x, plan->lt);
    }
    BY_CUDA_DISPATCH(plan->p.ab_type, any, x, &plan->p);
}

static by_status activation_pass(by_cuda_exec *x, const by_tensor *from, by_tensor *to, by_act act)
{
    BY_CUDA_DISPATCH(from->type, activate_all, x, from, to, act);
}

static by_status few_pass(by_cuda_exec *x, const linear_plan *plan, by_act act)
{
    BY_CUDA_DISPATCH(plan->p.ab_type, few_rows, x, plan, act);
}

static by_status bias_pass(by_cuda_exec *x, const by_node *n)
{
    const by_tensor *dy = n->in[1];
    BY_CUDA_DISPATCH(dy->type, sum_columns, x, dy, (float *)n->out[1]->data, n->in[3] != NULL);
}

/* ---- the ops ------------------------------------------------------------------------------------ */

extern "C" by_status by_cuda_linear(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    const by_act act = ((const by_linear_attr *)n->attr)->act;
    if (!n->plan)
        BY_TRY(plan_linear(x, n));
    const linear_plan *plan = (const linear_plan *)n->plan;
    if (plan->few) {
        BY_BRANCH("linear, few rows");
        return few_pass(x, plan, act);
    }
    BY_TRY(run_product(x, plan));
    if (plan->inside) {
        BY_BRANCH("linear, activation inside");
        return BY_OK;
    }
    if (act == BY_ACT_NONE && !n->out[1]) {
        BY_BRANCH("linear, no activation");
        return BY_OK;
    }
    BY_BRANCH("linear, activation after");
    return n->out[0] ? activation_pass(x, n->out[1] ? n->out[1] : n->out[0], n->out[0], act) : BY_OK;
}

/* When nothing but the gradient of a GELU reads the result, the backend hands that node over (x->after): the
 * product then writes its output. True when that has been done. */
static bool plan_with_slope(by_cuda_exec *x, linear_plan *plan, const by_node *after)
{
    by_product p = plan->p;
    if (!after || !library_gelu(((const by_activation_attr *)after->attr)->act, p.ab_type) || p.n % 8 != 0)
        return false;
    p.epilogue = BY_EPILOGUE_DGELU;
    p.c = after->out[0]->data;
    p.extra = after->in[0]->data;
    p.extra_ld = p.n;
    return try_library(x->cuda, plan, &p);
}

extern "C" by_status by_cuda_linear_dx(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    if (!n->plan) {
        linear_plan *plan = new_plan(n, linear_dx_product(n));
        if (!plan)
            return BY_ERR_MEMORY;
        plan->inside = plan_with_slope(x, plan, x->after);
        if (!plan->inside)
            try_library(x->cuda, plan, &plan->p);
    }
    const linear_plan *plan = (const linear_plan *)n->plan;
    if (plan->inside) {
        BY_BRANCH("linear_dx, through the activation");
        x->after_done = true;
    } else
        BY_BRANCH("linear_dx");
    return run_product(x, plan);
}

extern "C" by_status by_cuda_linear_dw(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    if (!n->plan && n->out[0]) {
        linear_plan *plan = new_plan(n, linear_dw_product(n));
        if (!plan)
            return BY_ERR_MEMORY;
        if (n->out[1] && !n->in[3] && is_16_bit(plan->p.ab_type)) {
            by_product p = plan->p;
            const bool kn = ((const by_linear_attr *)n->attr)->w_is_kn;
            p.epilogue = kn ? BY_EPILOGUE_SUM_OF_B : BY_EPILOGUE_SUM_OF_A;
            p.bias = n->out[1]->data;
            p.bias_type = n->out[1]->type;
            plan->inside = try_library(x->cuda, plan, &p);
        }
        if (!plan->inside)
            try_library(x->cuda, plan, &plan->p);
    }
    const linear_plan *plan = (const linear_plan *)n->plan;
    if (plan) {
        BY_BRANCH("linear_dw, weight");
        BY_TRY(run_product(x, plan));
        if (plan->inside) {
            BY_BRANCH("linear_dw, bias inside");
            return BY_OK;
        }
    }
    if (!n->out[1])
        return BY_OK;
    BY_BRANCH("linear_dw, bias after");
    return bias_pass(x, n);
}

extern "C" by_status by_cuda_matmul(by_exec *e, by_node *n)
{
    by_cuda_exec *x = by_cuda_of(e);
    if (!n->plan) {
        linear_plan *plan = new_plan(n, matmul_product(n));
        if (!plan)
            return BY_ERR_MEMORY;
        try_library(x->cuda, plan, &plan->p);
    }
    BY_BRANCH("matmul");
    return run_product(x, (const linear_plan *)n->plan);
}
