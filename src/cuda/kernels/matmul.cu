/* matmul.cu - linear layers, their gradients and batched products. cuBLASLt does large products; those with
 * up to 64 rows, which are bound by reading the weights, are ours, and so are the few that the library has no
 * kernel for. The path of a node is chosen once, when the program is compiled, and stored in n->plan. */
#include "cuda/cublas.cuh"
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/columns.cuh"
#include "cuda/kernels/gemv_rows.cuh"
#include "cuda/kernels/gemv.cuh"
#include "cuda/kernels/fp8.cuh"
#include "cuda/kernels/gemm_skinny.cuh"
#include "cuda/kernels/stored.cuh"

/* n->plan of the four ops. */
typedef struct linear_plan {
    void (*forget)(void *);
    cuda_product p;
    cuda_lt_plan *lt;             /* NULL: ours */
    bool gemv, few, some, inside; /* one row and a large matrix; few rows; some; the activation, or its slope,
                                     is part of the product */
    const by_tensor *fp8;         /* its left side, when the product is taken in FP8 */
    const by_tensor *stored;      /* its weight, when that is of another type */
    bool row;                     /* which one row reads as it is */
} linear_plan;

static void forget_plan(void *p)
{
    linear_plan *plan = (linear_plan *)p;
    cuda_lt_plan_free(plan->lt);
    base_free(plan);
}

/* ---- any product: for what the library rejects ------------------------------------------------- */

enum { SIDE = 16 };

template <class T, class C> __global__ void any_product(cuda_product p)
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

template <class T> static by_status any(cuda_exec *x, const cuda_product *p)
{
    const dim3 grid(blocks_for(p->n, SIDE), blocks_for(p->m, SIDE), (unsigned)BY_MAX(p->batch, 1));
    if (p->c_type == BY_F32)
        return cuda_launch(x, any_product<T, float>, grid, dim3(SIDE * SIDE), 0, *p);
    return cuda_launch(x, any_product<T, T>, grid, dim3(SIDE * SIDE), 0, *p);
}

/* ---- before and after the product -------------------------------------------------------------- */

/* y = act(x), four elements per thread; y may be x. */
template <class T> __global__ void activation_after(const T *x, T *y, int64_t count, by_act act)
{
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= count) {
        vec<T, 4> v = load<T, 4>(x + i);
        for (int k = 0; k < 4; k++)
            v.at[k] = from_float<T>(activate_as<T>(act, to_float(v.at[k])));
        store(y + i, v);
        return;
    }
    for (int64_t k = i; k < count; k++)
        y[k] = from_float<T>(activate_as<T>(act, to_float(x[k])));
}

template <class T>
static by_status activate_all(cuda_exec *x, const by_tensor *from, by_tensor *to, by_act act)
{
    const int64_t count = by_elements(from);
    return cuda_launch(x, activation_after<T>, dim3(blocks_for(count, 4 * 256)), dim3(256), 0,
                       (const T *)from->data, (T *)to->data, count, act);
}

template <class T> static by_status sum_rows(cuda_exec *x, const by_tensor *dy, float *db, bool add)
{
    const columns s =
        columns_of(x->cuda, dy->type, 1, gr_tensor_rows(dy), gr_tensor_cols(dy), gr_tensor_pitch(dy));
    return sum_columns<1>(x, db, (const T *)dy->data, s, 1.0f, add);
}

/* ---- plans ------------------------------------------------------------------------------------- */

/* Matrix units prefer whole multiples of rows and columns: 50257 columns take eight times as long as 50304.
 * Logits and their gradients have gaps after their rows (zeros for gradients), and parameters have zeros
 * after their last row: with both, the product may include the gap. */
static int64_t over_the_gap(const by_tensor *logits, const by_tensor *w, by_slot slot)
{
    const by_tensor *root = w->root;
    const gr_place place = slot == BY_SLOT_VALUE ? GR_PLACE_PARAM : GR_PLACE_GRAD;
    const int64_t cols = gr_tensor_cols(logits), pitch = gr_tensor_pitch(logits);
    if (pitch == cols || root->place != place || w->rank != 2 || w->dim[0] != cols)
        return cols;
    const by_params *params = root->params;
    const bool there = w->data == gr_params_address(params, root->param, slot) &&
                       gr_param_reserved(&params->list[root->param]) >= pitch * w->dim[1];
    return there ? pitch : cols;
}

/* x (R, K), w, [b] -> y (R, N), [pre] */
static cuda_product linear_product(const gr_node *n)
{
    const gr_linear_attr *attr = (const gr_linear_attr *)n->attr;
    const by_tensor *x = n->in[0], *w = n->in[1], *bias = n->in[2], *to = n->out[1] ? n->out[1] : n->out[0];
    cuda_product p = {};
    p.m = gr_tensor_rows(x);
    p.n = attr->w_is_kn || bias ? gr_tensor_cols(to) : over_the_gap(to, w, BY_SLOT_VALUE);
    p.k = gr_tensor_cols(x);
    p.tb = !attr->w_is_kn;
    p.lda = p.k;
    p.ldb = p.tb ? p.k : p.n;
    p.ldc = gr_tensor_pitch(to);
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
static cuda_product linear_dx_product(const gr_node *n)
{
    const by_tensor *dy = n->in[0], *w = n->in[1], *dx = n->out[0];
    cuda_product p = {};
    p.m = gr_tensor_rows(dy);
    p.n = gr_tensor_cols(dx);
    p.tb = ((const gr_linear_attr *)n->attr)->w_is_kn;
    p.k = p.tb ? gr_tensor_cols(dy) : over_the_gap(dy, w, BY_SLOT_VALUE);
    p.lda = gr_tensor_pitch(dy);
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
static cuda_product linear_dw_product(const gr_node *n)
{
    const by_tensor *x = n->in[0], *dy = n->in[1];
    const bool kn = ((const gr_linear_attr *)n->attr)->w_is_kn;
    const by_tensor *a = kn ? x : dy, *b = kn ? dy : x;
    cuda_product p = {};
    p.m = kn ? gr_tensor_cols(a) : over_the_gap(dy, n->out[0], BY_SLOT_GRAD);
    p.n = gr_tensor_cols(b);
    p.k = gr_tensor_rows(x);
    p.ta = true;
    p.lda = gr_tensor_pitch(a);
    p.ldb = gr_tensor_pitch(b);
    p.ldc = p.n;
    p.ab_type = x->type;
    p.c_type = n->out[0]->type;
    p.accumulate = n->in[2] != NULL;
    p.a = a->data;
    p.b = b->data;
    p.c = n->out[0]->data;
    return p;
}

static cuda_product matmul_product(const gr_node *n)
{
    const gr_matmul_attr *attr = (const gr_matmul_attr *)n->attr;
    const by_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
    cuda_product p = {};
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

static linear_plan *new_plan(gr_node *n, cuda_product p)
{
    linear_plan *plan = (linear_plan *)base_alloc_zero(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->forget = forget_plan;
    plan->p = p;
    n->plan = plan;
    return plan;
}

/* Makes a plan of the library with this epilogue. Returns false if it has none, which is not an error. */
static bool try_library(cuda_context *c, linear_plan *plan, const cuda_product *p)
{
    plan->lt = cuda_lt_plan_new(c, p);
    if (!plan->lt)
        base_error_clear();
    return plan->lt != NULL;
}

static bool is_16_bit(by_dtype t)
{
    return t == BY_BF16 || t == BY_F16;
}

/* The library's GELU is the tanh form, and accurate enough for 16 bits. */
static bool library_gelu(by_act act, by_dtype type)
{
    return act == BY_GELU_TANH && is_16_bit(type);
}

static bool try_fp8(cuda_context *c, linear_plan *plan, const by_tensor *left, cuda_fp8_behind behind)
{
    plan->lt = cuda_fp8_plan(c, &plan->p, behind);
    plan->fp8 = plan->lt ? left : NULL;
    return plan->lt != NULL;
}

/* Our products of few rows read weights and biases before the kernel before them has ended. Whether no kernel that lets the next one
 * start early writes to this one: parameters are written by optimisers alone, which do not, and inputs by copies. */
static bool is_ready(const by_tensor *t)
{
    return !t || t->root->place == GR_PLACE_PARAM || t->root->place == GR_PLACE_INPUT;
}

/* Few rows are ours, as measured on an H200: one row of a small matrix is fastest without matrix units, and
 * with very many columns the library is as fast as memory. */
static void choose_ours(cuda_exec *x, linear_plan *plan, bool with_pre)
{
    enum { SMALL = 1 << 23, MOST_COLUMNS = 16384 };
    const cuda_product *p = &plan->p;
    const bool wide = p->n > MOST_COLUMNS && is_16_bit(p->ab_type), one = p->m == 1 && p->n * p->k < SMALL;
    if (with_pre || wide)
        return;
    plan->gemv = cuda_gemv_takes(x->cuda, p);
    if (plan->gemv)
        return;
    plan->some = !one && cuda_gemm_skinny_take(x->cuda, p);
    plan->few = !plan->some && cuda_gemv_rows_take(p);
}

/* A weight of another type is read by one row as it is, or converted first. */
static void choose_stored(linear_plan *plan, const by_tensor *w)
{
    if (w->type == plan->p.ab_type)
        return;
    plan->stored = w;
    plan->p.b_later = true;
    plan->p.b = NULL;
}

static by_status plan_linear(cuda_exec *x, gr_node *n)
{
    const by_act act = ((const gr_linear_attr *)n->attr)->act;
    linear_plan *plan = new_plan(n, linear_product(n));
    if (!plan)
        return BY_ERR_MEMORY;
    plan->row = !n->out[1] && cuda_stored_row_takes(&plan->p, n->in[1]->type);
    if (plan->row)
        return BY_OK;
    choose_stored(plan, n->in[1]);
    if (!plan->stored && is_ready(n->in[1]) && is_ready(n->in[2]))
        choose_ours(x, plan, n->out[1] != NULL);
    if (plan->gemv || plan->some || plan->few)
        return BY_OK;
    const bool gelu = library_gelu(act, plan->p.ab_type) && n->out[0] && plan->p.n % 8 == 0;
    if (!plan->stored && try_fp8(x->cuda, plan, n->in[0], gelu ? BY_FP8_ACTIVATION : BY_FP8_NOTHING))
        return BY_OK;
    if (gelu) {
        cuda_product p = plan->p;
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

static by_status run_stored(cuda_exec *x, const linear_plan *plan)
{
    cuda_product p = plan->p;
    const int64_t count = p.n * p.k;
    void *dense = cuda_scratch(x, (size_t)count * by_dtype_size(p.ab_type));
    BY_BRANCH("a product with a weight that is converted");
    BY_TRY(cuda_stored_unpack(x, plan->stored->data, plan->stored->type, dense, p.ab_type, count));
    if (plan->lt)
        return cuda_lt_run_with(x, plan->lt, dense);
    p.b = dense;
    BY_CUDA_DISPATCH(p.ab_type, any, x, &p);
}

static by_status run_product(cuda_exec *x, const linear_plan *plan)
{
    if (plan->stored)
        return run_stored(x, plan);
    if (plan->fp8)
        return cuda_fp8_product(x, &plan->p, plan->fp8, plan->lt);
    if (plan->lt)
        return cuda_lt_run(x, plan->lt);
    BY_CUDA_DISPATCH(plan->p.ab_type, any, x, &plan->p);
}

static by_status activation_pass(cuda_exec *x, const by_tensor *from, by_tensor *to, by_act act)
{
    BY_CUDA_DISPATCH(from->type, activate_all, x, from, to, act);
}

static by_status bias_pass(cuda_exec *x, const gr_node *n)
{
    const by_tensor *dy = n->in[1];
    BY_CUDA_DISPATCH(dy->type, sum_rows, x, dy, (float *)n->out[1]->data, n->in[3] != NULL);
}

/* ---- the ops ------------------------------------------------------------------------------------ */

extern "C" by_status cuda_linear(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const by_act act = ((const gr_linear_attr *)n->attr)->act;
    if (!n->plan)
        BY_TRY(plan_linear(x, n));
    const linear_plan *plan = (const linear_plan *)n->plan;
    if (plan->row) {
        BY_BRANCH("linear, one row and a weight as it is stored");
        return cuda_stored_row(x, &plan->p, n->in[1]->type, act);
    }
    if (plan->gemv) {
        BY_BRANCH("linear, one row and a large matrix");
        return cuda_gemv(x, &plan->p, act);
    }
    if (plan->few) {
        BY_BRANCH("linear, few rows");
        return cuda_gemv_rows(x, &plan->p, act);
    }
    if (plan->some) {
        BY_BRANCH("linear, some rows");
        return cuda_gemm_skinny(x, &plan->p, act);
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

/* If only the gradient of a GELU reads the result, that node is the partner: the product can then write its
 * output. */
static bool can_do_slope(const cuda_product *p, const gr_node *after)
{
    return after && library_gelu(((const gr_activation_attr *)after->attr)->act, p->ab_type) && p->n % 8 == 0;
}

static bool plan_with_slope(cuda_exec *x, linear_plan *plan, const gr_node *after)
{
    cuda_product p = plan->p;
    p.epilogue = BY_EPILOGUE_DGELU;
    p.c = after->out[0]->data;
    p.extra = after->in[0]->data;
    p.extra_ld = p.n;
    return try_library(x->cuda, plan, &p);
}

static by_status plan_linear_dx(cuda_exec *x, gr_node *n)
{
    linear_plan *plan = new_plan(n, linear_dx_product(n));
    if (!plan)
        return BY_ERR_MEMORY;
    const bool slope = can_do_slope(&plan->p, n->partner);
    choose_stored(plan, n->in[1]);
    if (!plan->stored && try_fp8(x->cuda, plan, n->in[0], slope ? BY_FP8_SLOPE : BY_FP8_NOTHING))
        return BY_OK;
    plan->inside = slope && plan_with_slope(x, plan, n->partner);
    if (!plan->inside)
        try_library(x->cuda, plan, &plan->p);
    return BY_OK;
}

extern "C" by_status cuda_linear_dx(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    if (!n->plan)
        BY_TRY(plan_linear_dx(x, n));
    const linear_plan *plan = (const linear_plan *)n->plan;
    if (plan->inside) {
        BY_BRANCH("linear_dx, through the activation");
        n->partner->absorbed = true;
    } else
        BY_BRANCH("linear_dx");
    return run_product(x, plan);
}

extern "C" by_status cuda_linear_dw(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    if (!n->plan && n->out[0]) {
        linear_plan *plan = new_plan(n, linear_dw_product(n));
        if (!plan)
            return BY_ERR_MEMORY;
        try_library(x->cuda, plan, &plan->p);
    }
    const linear_plan *plan = (const linear_plan *)n->plan;
    if (plan) {
        BY_BRANCH("linear_dw, weight");
        BY_TRY(run_product(x, plan));
    }
    if (!n->out[1])
        return BY_OK;
    BY_BRANCH("linear_dw, bias"); /* the library can fuse it, which takes longer than both passes */
    return bias_pass(x, n);
}

extern "C" by_status cuda_matmul(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    if (!n->plan) {
        linear_plan *plan = new_plan(n, matmul_product(n));
        if (!plan)
            return BY_ERR_MEMORY;
        try_library(x->cuda, plan, &plan->p);
    }
    BY_BRANCH("matmul");
    return run_product(x, (const linear_plan *)n->plan);
}
