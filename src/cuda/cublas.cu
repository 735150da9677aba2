/* cublas.cu - matrix products by cuBLASLt. The library is loaded when a GPU is opened, so that the program
 * starts without it. Matrices are row-major here and column-major there: c^T = b^T a^T, so a and b are
 * swapped. */
#include "cuda/cublas.cuh"

#ifndef BY_CUDA_EMULATE

#include <cublasLt.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

#include "cuda/tune.cuh"

/* ---- the library ----------------------------------------------------------------------------- */

#define LT_FUNCTIONS(X)                 \
    X(cublasLtCreate)                   \
    X(cublasLtDestroy)                  \
    X(cublasLtGetVersion)               \
    X(cublasLtMatmul)                   \
    X(cublasLtMatmulAlgoCheck)          \
    X(cublasLtMatmulAlgoGetHeuristic)   \
    X(cublasLtMatmulDescCreate)         \
    X(cublasLtMatmulDescDestroy)        \
    X(cublasLtMatmulDescSetAttribute)   \
    X(cublasLtMatrixLayoutCreate)       \
    X(cublasLtMatrixLayoutDestroy)      \
    X(cublasLtMatrixLayoutSetAttribute) \
    X(cublasLtMatmulPreferenceCreate)   \
    X(cublasLtMatmulPreferenceDestroy)  \
    X(cublasLtMatmulPreferenceSetAttribute)

static struct {
    void *library;
#define X(name) decltype(&name) p_##name;
    LT_FUNCTIONS(X)
#undef X
} lt;

#define CUBLAS_STRING_(x) #x
#define CUBLAS_STRING(x)  CUBLAS_STRING_(x)
#define LT_NAME           "libcublasLt.so." CUBLAS_STRING(CUBLAS_VER_MAJOR)

/* Loads it once per process; it stays loaded. */
static by_status load_library()
{
    if (lt.library)
        return BY_OK;
    static const char *const places[] = {LT_NAME, "/usr/local/cuda/lib64/" LT_NAME,
                                         "/usr/lib/x86_64-linux-gnu/" LT_NAME};
    void *library = NULL;
    for (const char *place : places)
        if (!library)
            library = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return base_fail(BY_ERR_DEVICE,
                         "the GPU requires NVIDIA's cuBLAS, but %s was not found: install the libraries of "
                         "CUDA %d, or put its folder on LD_LIBRARY_PATH",
                         LT_NAME, CUBLAS_VER_MAJOR);
#define X(name)                                                                                           \
    lt.p_##name = (decltype(&name))dlsym(library, #name);                                                 \
    if (!lt.p_##name) {                                                                                   \
        dlclose(library);                                                                                 \
        return base_fail(BY_ERR_DEVICE, "%s has no %s: it is not the library of CUDA %d", LT_NAME, #name, \
                         CUBLAS_VER_MAJOR);                                                               \
    }
    LT_FUNCTIONS(X)
#undef X
    lt.library = library;
    return BY_OK;
}

by_status cuda_lt_open(cuda_context *c)
{
    BY_TRY(load_library());
    cublasLtHandle_t handle;
    if (lt.p_cublasLtCreate(&handle) != CUBLAS_STATUS_SUCCESS)
        return base_fail(BY_ERR_DEVICE, "cuBLASLt does not start on this GPU");
    c->lt = handle;
    return BY_OK;
}

void cuda_lt_close(cuda_context *c)
{
    if (c->lt)
        lt.p_cublasLtDestroy((cublasLtHandle_t)c->lt);
    c->lt = NULL;
}

int cuda_lt_version(void)
{
    return lt.library ? (int)lt.p_cublasLtGetVersion() : 0;
}

/* ---- plans ----------------------------------------------------------------------------------- */

struct cuda_lt_plan {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    float beta;
    const void *pa, *pb;
    void *pc;
    size_t bytes; /* size of c */
};

static cudaDataType_t type_of(by_dtype t)
{
    return t == BY_BF16 ? CUDA_R_16BF : t == BY_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static cudaDataType_t type_of_sides(const cuda_product *p)
{
    return p->fp8 ? CUDA_R_8F_E4M3 : type_of(p->ab_type);
}

template <class V> static bool set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, V value)
{
    return lt.p_cublasLtMatmulDescSetAttribute(desc, which, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

/* A row-major matrix of `rows` stored rows is a column-major matrix of as many columns. */
static bool layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                   int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    if (lt.p_cublasLtMatrixLayoutCreate(out, type, (uint64_t)cols, (uint64_t)rows, ld) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    if (batch <= 1)
        return true;
    return lt.p_cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                 sizeof count) == CUBLAS_STATUS_SUCCESS &&
           lt.p_cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                 sizeof stride) == CUBLAS_STATUS_SUCCESS;
}

static bool set_epilogue(cublasLtMatmulDesc_t desc, const cuda_product *p)
{
    cublasLtEpilogue_t e = CUBLASLT_EPILOGUE_DEFAULT;
    switch (p->epilogue) {
    case BY_EPILOGUE_NONE:
        break;
    case BY_EPILOGUE_BIAS:
        e = CUBLASLT_EPILOGUE_BIAS;
        break;
    case BY_EPILOGUE_GELU:
        e = p->extra ? (p->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX)
                     : (p->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
        break;
    case BY_EPILOGUE_DGELU:
        e = CUBLASLT_EPILOGUE_DGELU;
        break;
    }
    bool ok = set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, e);
    if (p->bias)
        ok = ok && set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias) &&
             set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, (int32_t)type_of(p->bias_type));
    if (p->extra)
        ok = ok && set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->extra) &&
             set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p->extra_ld);
    return ok;
}

/* A scale for each row of a and b in f32 is available since CUDA 12.9. Not accumulating repeatedly in f32 is
 * what makes FP8 fast on Hopper. The addresses of the scales are not known yet, but must not be NULL. */
static bool set_fp8(cublasLtMatmulDesc_t desc, const cuda_context *c)
{
#if CUBLAS_VER_MAJOR * 100 + CUBLAS_VER_MINOR >= 1209
    const int32_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    return set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, rows) &&
           set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, rows) &&
           set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, (const void *)c->workspace) &&
           set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, (const void *)c->workspace) &&
           set(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, (int8_t)1);
#else
    (void)desc, (void)c;
    return false;
#endif
}

static uint32_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return low == 0 || low > 256 ? 256 : (uint32_t)low;
}

/* Lists candidates as predicted by the library, best first. Returns their number. */
static int candidates(cuda_context *c, const cuda_lt_plan *plan, int most,
                      cublasLtMatmulHeuristicResult_t *list)
{
    cublasLtMatmulPreference_t wish;
    int count = 0;
    if (lt.p_cublasLtMatmulPreferenceCreate(&wish) != CUBLAS_STATUS_SUCCESS)
        return 0;
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        const void *at;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plan->pb},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plan->pa},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plan->pc},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plan->pc}};
    for (const auto &side : aligned) {
        uint32_t bytes = alignment(side.at);
        lt.p_cublasLtMatmulPreferenceSetAttribute(wish, side.which, &bytes, sizeof bytes);
    }
    lt.p_cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &c->workspace_bytes, sizeof c->workspace_bytes);
    if (lt.p_cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)c->lt, plan->desc, plan->b, plan->a, plan->c,
                                            plan->c, wish, most, list, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    lt.p_cublasLtMatmulPreferenceDestroy(wish);
    int good = 0;
    for (int i = 0; i < count; i++)
        if (list[i].state == CUBLAS_STATUS_SUCCESS)
            list[good++] = list[i];
    return good;
}

static cublasStatus_t multiply(cuda_context *c, const cuda_lt_plan *plan, const cublasLtMatmulAlgo_t *algo,
                               size_t workspace, void *to, cudaStream_t stream)
{
    const float one = 1;
    return lt.p_cublasLtMatmul((cublasLtHandle_t)c->lt, plan->desc, &one, plan->pb, plan->b, plan->pa,
                               plan->a, &plan->beta, to, plan->c, to, plan->c, algo, c->workspace, workspace,
                               stream);
}

/* Milliseconds of a product into unused memory; infinite if it fails. */
static float time_of(cuda_context *c, const cuda_lt_plan *plan, const cublasLtMatmulHeuristicResult_t *how,
                     void *to, cudaEvent_t begin, cudaEvent_t end)
{
    enum { WARM = 2, TIMES = 6 };
    float ms = 0;
    for (int i = 0; i < WARM + TIMES; i++) {
        if (i == WARM)
            cudaEventRecord(begin, c->stream);
        if (multiply(c, plan, &how->algo, how->workspaceSize, to, c->stream) != CUBLAS_STATUS_SUCCESS)
            return INFINITY;
    }
    cudaEventRecord(end, c->stream);
    if (cudaEventSynchronize(end) != cudaSuccess || cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
        return INFINITY;
    return ms;
}

/* Returns the fastest of a list. The first is kept unless another is clearly faster. */
static int fastest(cuda_context *c, const cuda_lt_plan *plan, const cublasLtMatmulHeuristicResult_t *list,
                   int count)
{
    void *to = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    int best = 0;
    if (cudaMalloc(&to, plan->bytes) == cudaSuccess && cudaEventCreate(&begin) == cudaSuccess &&
        cudaEventCreate(&end) == cudaSuccess) {
        float least = 0.98f * time_of(c, plan, &list[0], to, begin, end);
        for (int i = 1; i < count; i++) {
            const float ms = time_of(c, plan, &list[i], to, begin, end);
            if (ms < least) {
                least = ms;
                best = i;
            }
        }
    }
    if (begin)
        cudaEventDestroy(begin);
    if (end)
        cudaEventDestroy(end);
    cudaFree(to);
    (void)cudaGetLastError();
    return best;
}

/* Uses a remembered kernel if the library still accepts it. */
static bool recall(cuda_context *c, cuda_lt_plan *plan, const char *key)
{
    const cuda_tuned *known = cuda_tuner_find(c->tuner, key);
    cublasLtMatmulHeuristicResult_t checked;
    cublasLtMatmulAlgo_t algo;
    static_assert(sizeof algo == sizeof known->algo, "an algorithm is eight words");
    if (!known)
        return false;
    memcpy(&algo, known->algo, sizeof algo);
    if (lt.p_cublasLtMatmulAlgoCheck((cublasLtHandle_t)c->lt, plan->desc, plan->b, plan->a, plan->c, plan->c,
                                     &algo, &checked) != CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > c->workspace_bytes)
        return false;
    plan->algo = algo;
    plan->workspace = checked.workspaceSize;
    return true;
}

static void describe_key(const cuda_context *c, const cuda_product *p, char key[BY_TUNE_KEY])
{
    snprintf(key, BY_TUNE_KEY, "%s%s-%s,%lldx%lldx%lld,%d%d,%lld:%lld:%lld,b%lld,e%d%d%d,%d%d,a%u:%u:%u",
             by_dtype_name(p->ab_type), c->tf32 ? "t" : "", by_dtype_name(p->c_type), (long long)p->m,
             (long long)p->n, (long long)p->k, p->ta, p->tb, (long long)p->lda, (long long)p->ldb,
             (long long)p->ldc, (long long)p->batch, (int)p->epilogue, p->bias != NULL, p->extra != NULL,
             p->accumulate, (int)p->bias_type, alignment(p->a), alignment(p->b), alignment(p->c));
}

/* In FP8 the library has a single kernel for a product, so nothing is timed or stored. Nothing can be timed
 * either while b does not exist yet. */
static by_status choose(cuda_context *c, cuda_lt_plan *plan, const cuda_product *p)
{
    enum { MOST = 24 }; /* see EDITION in tune.cu */
    cublasLtMatmulHeuristicResult_t list[MOST];
    cuda_tuner *tuner = p->fp8 || p->b_later ? NULL : c->tuner;
    cuda_tuned found;
    describe_key(c, p, found.key);
    if (tuner && recall(c, plan, found.key))
        return BY_OK;
    const int count = candidates(c, plan, tuner ? MOST : 1, list);
    if (count == 0)
        return base_fail(BY_ERR_UNSUPPORTED, "cuBLASLt has no kernel for this product");
    const int best = count > 1 ? fastest(c, plan, list, count) : 0;
    plan->algo = list[best].algo;
    plan->workspace = list[best].workspaceSize;
    if (!tuner)
        return BY_OK;
    memcpy(found.algo, &plan->algo, sizeof found.algo);
    found.workspace = plan->workspace;
    return cuda_tuner_add(tuner, &found);
}

static by_status describe(cuda_context *c, cuda_lt_plan *plan, const cuda_product *p)
{
    cublasComputeType_t compute =
        p->ab_type == BY_F32 && c->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int64_t batch = BY_MAX(p->batch, 1);
    bool ok = lt.p_cublasLtMatmulDescCreate(&plan->desc, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
              set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, p->tb ? CUBLAS_OP_T : CUBLAS_OP_N) &&
              set(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, p->ta ? CUBLAS_OP_T : CUBLAS_OP_N) &&
              set_epilogue(plan->desc, p) && (!p->fp8 || set_fp8(plan->desc, c)) &&
              layout(&plan->a, type_of_sides(p), p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda, batch,
                     p->stride_a) &&
              layout(&plan->b, type_of_sides(p), p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb, batch,
                     p->stride_b) &&
              layout(&plan->c, type_of(p->c_type), p->m, p->n, p->ldc, batch, p->stride_c);
    return ok ? choose(c, plan, p) : base_fail(BY_ERR_UNSUPPORTED, "cuBLASLt rejects this product");
}

cuda_lt_plan *cuda_lt_plan_new(cuda_context *c, const cuda_product *p)
{
    cuda_lt_plan *plan = (cuda_lt_plan *)base_alloc_zero(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->beta = p->accumulate ? 1.0f : 0.0f;
    plan->pa = p->a;
    plan->pb = p->b;
    plan->pc = p->c;
    plan->bytes =
        (size_t)((BY_MAX(p->batch, 1) - 1) * p->stride_c + p->m * p->ldc) * by_dtype_size(p->c_type);
    if (describe(c, plan, p) != BY_OK) {
        cuda_lt_plan_free(plan);
        return NULL;
    }
    return plan;
}

void cuda_lt_plan_free(cuda_lt_plan *plan)
{
    if (!plan)
        return;
    if (plan->desc)
        lt.p_cublasLtMatmulDescDestroy(plan->desc);
    for (cublasLtMatrixLayout_t side : {plan->a, plan->b, plan->c})
        if (side)
            lt.p_cublasLtMatrixLayoutDestroy(side);
    base_free(plan);
}

by_status cuda_lt_run(cuda_exec *x, cuda_lt_plan *plan)
{
    if (x->dry)
        return BY_OK;
    cublasStatus_t s = multiply(x->cuda, plan, &plan->algo, plan->workspace, plan->pc, x->stream);
    return s == CUBLAS_STATUS_SUCCESS ? BY_OK
                                      : base_fail(BY_ERR_DEVICE, "cuBLASLt failed with status %d", (int)s);
}

by_status cuda_lt_run_with(cuda_exec *x, cuda_lt_plan *plan, const void *b)
{
    plan->pb = b;
    return cuda_lt_run(x, plan);
}

by_status cuda_lt_run_fp8(cuda_exec *x, cuda_lt_plan *plan, const uint8_t *a, const float *a_scale,
                          const uint8_t *b, const float *b_scale)
{
    plan->pa = a;
    plan->pb = b;
    if (!set(plan->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b_scale) ||
        !set(plan->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a_scale))
        return base_fail(BY_ERR_DEVICE, "cuBLASLt rejects the scales of a product");
    return cuda_lt_run(x, plan);
}

#else /* ---- emulated: plain loops ---------------------------------------------------------- */

#include "cuda/kernels/e4m3.cuh"

struct cuda_lt_plan {
    cuda_product p;
    const float *a_scale, *b_scale; /* in FP8 */
};

static float element(const void *at, by_dtype type, int64_t i)
{
    return type == BY_F32    ? ((const float *)at)[i]
           : type == BY_BF16 ? to_float(((const bf16 *)at)[i])
                             : to_float(((const f16 *)at)[i]);
}

static void set_element(void *at, by_dtype type, int64_t i, float v)
{
    if (type == BY_F32)
        ((float *)at)[i] = v;
    else if (type == BY_BF16)
        ((bf16 *)at)[i] = from_float<bf16>(v);
    else
        ((f16 *)at)[i] = from_float<f16>(v);
}

by_status cuda_lt_open(cuda_context *)
{
    return BY_OK;
}
void cuda_lt_close(cuda_context *)
{
}
int cuda_lt_version(void)
{
    return 0;
}

cuda_lt_plan *cuda_lt_plan_new(cuda_context *, const cuda_product *p)
{
    cuda_lt_plan *plan = (cuda_lt_plan *)base_alloc_zero(1, sizeof *plan);
    if (plan)
        plan->p = *p;
    return plan;
}

void cuda_lt_plan_free(cuda_lt_plan *plan)
{
    base_free(plan);
}

static double a_at(const cuda_product *p, int64_t z, int64_t i, int64_t k)
{
    if (p->fp8)
        return from_e4m3(((const uint8_t *)p->a)[i * p->lda + k]);
    return element(p->a, p->ab_type, z * p->stride_a + (p->ta ? k * p->lda + i : i * p->lda + k));
}
static double b_at(const cuda_product *p, int64_t z, int64_t k, int64_t j)
{
    if (p->fp8)
        return from_e4m3(((const uint8_t *)p->b)[j * p->ldb + k]);
    return element(p->b, p->ab_type, z * p->stride_b + (p->tb ? j * p->ldb + k : k * p->ldb + j));
}

by_status cuda_lt_run(cuda_exec *x, cuda_lt_plan *plan)
{
    const cuda_product *p = &plan->p;
    if (x->dry)
        return BY_OK;
    for (int64_t z = 0; z < BY_MAX(p->batch, 1); z++)
        for (int64_t i = 0; i < p->m; i++)
            for (int64_t j = 0; j < p->n; j++) {
                int64_t at = z * p->stride_c + i * p->ldc + j, other = i * p->extra_ld + j;
                double sum = p->accumulate ? element(p->c, p->c_type, at) : 0;
                for (int64_t k = 0; k < p->k; k++)
                    sum += a_at(p, z, i, k) * b_at(p, z, k, j);
                if (p->fp8)
                    sum *= (double)plan->a_scale[i] * plan->b_scale[j];
                float v = (float)sum;
                if (p->bias && (p->epilogue == BY_EPILOGUE_BIAS || p->epilogue == BY_EPILOGUE_GELU))
                    v += element(p->bias, p->bias_type, j);
                if (p->epilogue == BY_EPILOGUE_GELU) {
                    if (p->extra)
                        set_element(p->extra, p->c_type, other, v);
                    v = activate(BY_GELU_TANH, v);
                }
                if (p->epilogue == BY_EPILOGUE_DGELU)
                    v *= activate_slope(BY_GELU_TANH, element(p->extra, p->c_type, other));
                set_element(p->c, p->c_type, at, v);
            }
    return BY_OK;
}

by_status cuda_lt_run_with(cuda_exec *x, cuda_lt_plan *plan, const void *b)
{
    plan->p.b = b;
    return cuda_lt_run(x, plan);
}

by_status cuda_lt_run_fp8(cuda_exec *x, cuda_lt_plan *plan, const uint8_t *a, const float *a_scale,
                          const uint8_t *b, const float *b_scale)
{
    plan->p.a = a;
    plan->p.b = b;
    plan->a_scale = a_scale;
    plan->b_scale = b_scale;
    return cuda_lt_run(x, plan);
}
#endif
