/* clang-format off */
/* linear_cuda.cu - products of 9 to 64 rows by themselves: against a plain computation, and by the clock beside cuBLASLt.
 *
 *   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Isrc -Iinclude -D_GNU_SOURCE \
 *        bench/linear_cuda.cu -lcublasLt -o linear_cuda && ./linear_cuda
 *
 * Options: `check`, `time` (both when none is given), `ways` (every way to share out each product). Exit 1 when something
 * is wrong. Times are of many products in a row, as one captured graph, each with weights that no cache holds. */
/* clang-format on */
#include "cuda/kernels/gemm_skinny.cu"

#include <algorithm>
#include <cublasLt.h>
#include <stdarg.h>
#include <stdio.h>
#include <vector>

/* ---- what the library would offer ------------------------------------------------------------ */

extern "C" by_status base_fail(by_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}

by_status cuda_check(cudaError_t error, const char *what)
{
    return error == cudaSuccess ? BY_OK : base_fail(BY_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
}

static void must(cudaError_t error, const char *what)
{
    if (cuda_check(error, what) != BY_OK)
        exit(1);
}
static void must(cublasStatus_t status, const char *what)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        fprintf(stderr, "%s: status %d\n", what, (int)status);
        exit(1);
    }
}
static void must(by_status status)
{
    if (status != BY_OK)
        exit(1);
}

static cuda_context card;
static cuda_exec run;

static void open_card()
{
    cudaDeviceProp about;
    must(cudaGetDeviceProperties(&about, 0), "device");
    card.arch = about.major * 10 + about.minor;
    card.sms = about.multiProcessorCount;
    card.shared_limit = (int)about.sharedMemPerBlockOptin;
    must(cudaStreamCreate(&card.stream), "stream");
    run.cuda = &card;
    run.stream = card.stream;
    printf("%s, %d multiprocessors\n", about.name, card.sms);
}

/* ---- data ------------------------------------------------------------------------------------ */

static __device__ float noise(uint64_t i)
{
    i = (i + 1) * 0x9e3779b97f4a7c15u;
    i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9u;
    i ^= i >> 27;
    return (float)(int32_t)(uint32_t)i * (1.0f / 2147483648.0f);
}
template <class T> __global__ void fill(T *to, int64_t count, uint64_t seed)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = from_float<T>(noise(seed * 1000000007u + (uint64_t)i));
}
template <class T> static void *random_matrix(int64_t count, uint64_t seed)
{
    void *p;
    must(cudaMalloc(&p, (size_t)count * sizeof(T)), "memory");
    fill<T><<<1024, 256>>>((T *)p, count, seed);
    must(cudaDeviceSynchronize(), "fill");
    return p;
}

template <class T> __global__ void plain(cuda_product p, by_act act, float *y)
{
    const int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    const T *a = (const T *)p.a + m * p.lda, *b = (const T *)p.b;
    if (n >= p.n)
        return;
    float sum = p.bias ? to_float(((const T *)p.bias)[n]) : 0.0f;
    for (int64_t k = 0; k < p.k; k++)
        sum += to_float(a[k]) * to_float(b[p.tb ? n * p.ldb + k : k * p.ldb + n]);
    y[m * p.n + n] = activate(act, sum);
}

template <class T> __global__ void as_floats(const T *from, int64_t ld, int64_t n, float *to)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    if (i < n)
        to[m * n + i] = to_float(from[m * ld + i]);
}

struct problem {
    cuda_product p;
    int64_t weights; /* elements of one copy */
};

/* `gap`: elements behind every row of x, w and y. */
template <class T>
static problem make(by_dtype type, int m, int k, int n, bool nk, bool bias, int gap, int copies)
{
    problem q = {};
    cuda_product &p = q.p;
    p.m = m, p.n = n, p.k = k, p.tb = nk;
    p.lda = k + gap, p.ldb = (nk ? k : n) + gap, p.ldc = n + gap;
    p.ab_type = p.c_type = p.bias_type = type;
    q.weights = (nk ? n : k) * p.ldb;
    p.a = random_matrix<T>(m * p.lda, 1);
    p.b = random_matrix<T>(q.weights * copies, 2);
    p.c = random_matrix<T>(m * p.ldc, 3);
    p.bias = bias ? random_matrix<T>(n, 4) : NULL;
    return q;
}

static void free_problem(problem &q)
{
    for (const void *p : {q.p.a, q.p.b, (const void *)q.p.c, (const void *)q.p.bias})
        cudaFree((void *)p);
}

/* ---- is it right ----------------------------------------------------------------------------- */

/* The square of the difference over the square of what is expected. */
template <class T> static double apart(const cuda_product &p, const float *want)
{
    const int64_t count = p.m * p.n;
    float *got;
    std::vector<float> a((size_t)count), b((size_t)count);
    must(cudaMalloc(&got, (size_t)count * 4), "memory");
    as_floats<T><<<dim3(blocks_for(p.n, 256), (unsigned)p.m), 256>>>((const T *)p.c, p.ldc, p.n, got);
    must(cudaMemcpy(a.data(), got, (size_t)count * 4, cudaMemcpyDeviceToHost), "copy");
    must(cudaMemcpy(b.data(), want, (size_t)count * 4, cudaMemcpyDeviceToHost), "copy");
    cudaFree(got);
    double off = 0, size = 0;
    for (size_t i = 0; i < a.size(); i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return off / size;
}

/* All ways to share a product out, or the one that is chosen. */
static std::vector<some_shape> ways(const cuda_product &p, bool all)
{
    std::vector<some_shape> list;
    some_shape s = {};
    if (!all) {
        if (cuda_gemm_skinny_take(&card, &p) && shape_for(&card, &p, &s))
            list.push_back(s);
        return list;
    }
    for (s.size = 1; s.size <= (card.arch >= 90 ? MAX_CLUSTER : 1); s.size *= 2)
        for (s.across = 1; s.across <= MAX_WARPS; s.across++)
            for (s.down = 1; s.down <= MAX_WARPS; s.down++)
                if (complete(&card, &p, &s))
                    list.push_back(s);
    return list;
}

static void start(const cuda_product &p, by_act act, const some_shape &s)
{
    must(run_as(&run, &p, act, s));
}
static void prepare(const cuda_product &p, by_act act, const some_shape &s)
{
    run.dry = true;
    start(p, act, s);
    run.dry = false;
}

template <class T>
static bool check(by_dtype type, int m, int k, int n, bool nk, bool bias, by_act act, int gap)
{
    problem q = make<T>(type, m, k, n, nk, bias, gap, 1);
    float *want;
    bool good = true;
    must(cudaMalloc(&want, (size_t)(m * n) * 4), "memory");
    plain<T><<<dim3(blocks_for(n, 128), (unsigned)m), 128>>>(q.p, act, want);
    const std::vector<some_shape> list = ways(q.p, (int64_t)m * k * n < 30000000);
    for (const some_shape &s : list) {
        must(cudaMemset(q.p.c, 0xff, (size_t)(m * q.p.ldc) * 2), "memset");
        prepare(q.p, act, s);
        must(cudaDeviceSynchronize(), "before");
        start(q.p, act, s);
        must(cudaStreamSynchronize(card.stream), "our product");
        const double nmse = apart<T>(q.p, want);
        if (!(nmse < 1e-5)) {
            printf("WRONG: %d x %d x %d %s size %d across %d down %d rounds %d: %.2e\n", m, k, n,
                   nk ? "(N, K)" : "(K, N)", s.size, s.across, s.down, s.rounds, nmse);
            good = false;
        }
    }
    if (list.empty()) {
        printf("REFUSED: %d x %d x %d\n", m, k, n);
        good = false;
    }
    cudaFree(want);
    free_problem(q);
    return good;
}

static bool check_all()
{
    bool good = true;
    for (int m : {9, 16, 17, 32, 33, 48, 64})
        for (int nk = 0; nk < 2; nk++) {
            good &= check<bf16>(BY_BF16, m, 16, 8, nk, true, BY_ACT_NONE, 0);
            good &= check<bf16>(BY_BF16, m, 336, 1160, nk, true, BY_GELU_TANH, 8);
            good &= check<f16>(BY_F16, m, 768, 264, nk, false, BY_SILU, 16);
            good &= check<f16>(BY_F16, m, 2048, 40, nk, true, BY_ACT_NONE, 0);
            good &= check<bf16>(BY_BF16, m, 768, 2304, nk, true, BY_ACT_NONE, 0);
            good &= check<bf16>(BY_BF16, m, 3072, 768, nk, true, BY_ACT_NONE, 0);
            good &= check<bf16>(BY_BF16, m, 768, 50304, nk, false, BY_ACT_NONE, 0);
            good &= check<bf16>(BY_BF16, m, 4096, 14336, nk, true, BY_GELU, 0); /* clusters, several tiles */
        }
    return good;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Seconds for one of `count` products in a row; f starts the i-th. */
template <class F> static double seconds(int count, F f)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    std::vector<float> times;
    must(cudaStreamBeginCapture(card.stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < count; i++)
        f(i);
    must(cudaStreamEndCapture(card.stream, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    for (int i = 0; i < 9; i++) {
        float ms;
        cudaEventRecord(from, card.stream);
        must(cudaGraphLaunch(exec, card.stream), "graph");
        cudaEventRecord(to, card.stream);
        must(cudaEventSynchronize(to), "timed run");
        cudaEventElapsedTime(&ms, from, to);
        if (i >= 2)
            times.push_back(ms);
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3 / count;
}

static const void *copy_of(const problem &q, int i)
{
    return (const uint16_t *)q.p.b + i * q.weights;
}

static double our_seconds(const problem &q, int count, int copies, const some_shape &s)
{
    prepare(q.p, BY_ACT_NONE, s);
    return seconds(count, [&](int i) {
        cuda_product p = q.p;
        p.b = copy_of(q, i % copies);
        start(p, BY_ACT_NONE, s);
    });
}

/* The best of what cuBLASLt offers. */
static double their_seconds(const problem &q, int count, int copies)
{
    enum { MOST = 8 };
    const cuda_product &p = q.p;
    static cublasLtHandle_t handle;
    static void *workspace;
    size_t bytes = 32 << 20;
    if (!handle) {
        must(cublasLtCreate(&handle), "cuBLASLt");
        must(cudaMalloc(&workspace, bytes), "memory");
    }
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t wish;
    cublasLtMatmulHeuristicResult_t list[MOST];
    int found = 0;
    const cudaDataType_t type = p.ab_type == BY_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    const cublasOperation_t across = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    must(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "desc");
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &across, sizeof across);
    if (p.bias) {
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias, sizeof with_bias);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias);
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    /* column-major there: the transposes, in the other order */
    must(cublasLtMatrixLayoutCreate(&b, type, p.tb ? p.k : p.n, p.tb ? p.n : p.k, p.ldb), "layout");
    must(cublasLtMatrixLayoutCreate(&a, type, p.k, p.m, p.lda), "layout");
    must(cublasLtMatrixLayoutCreate(&c, type, p.n, p.m, p.ldc), "layout");
    must(cublasLtMatmulPreferenceCreate(&wish), "preference");
    cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                         sizeof bytes);
    must(cublasLtMatmulAlgoGetHeuristic(handle, desc, b, a, c, c, wish, MOST, list, &found), "heuristic");
    double best = 1e9;
    for (int i = 0; i < found; i++)
        best = std::min(best, seconds(count, [&](int at) {
                            const float one = 1, zero = 0;
                            must(cublasLtMatmul(handle, desc, &one, copy_of(q, at % copies), b, p.a, a, &zero,
                                                p.c, c, p.c, c, &list[i].algo, workspace,
                                                list[i].workspaceSize, card.stream),
                                 "product");
                        }));
    cublasLtMatmulPreferenceDestroy(wish);
    cublasLtMatrixLayoutDestroy(a);
    cublasLtMatrixLayoutDestroy(b);
    cublasLtMatrixLayoutDestroy(c);
    cublasLtMatmulDescDestroy(desc);
    return best;
}

static void time_one(int m, int k, int n, bool nk, bool bias, bool all)
{
    const double bytes = 2.0 * k * n;
    const int copies = (int)(256e6 / bytes) + 2, count = BY_MAX(copies, 16);
    problem q = make<bf16>(BY_BF16, m, k, n, nk, bias, 0, copies);
    std::vector<std::pair<double, some_shape>> times;
    for (const some_shape &s : ways(q.p, all))
        times.push_back({our_seconds(q, count, copies, s), s});
    std::sort(times.begin(), times.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    const double theirs = their_seconds(q, count, copies);
    printf("%2d x %4d x %5d %s  cuBLASLt %6.2f us %5.0f GB/s |", m, k, n, nk ? "(N, K)" : "(K, N)",
           theirs * 1e6, bytes / theirs * 1e-9);
    for (size_t i = 0; i < times.size() && i < 6; i++) {
        const some_shape &s = times[i].second;
        printf("%s ours %6.2f us %5.0f GB/s (%d blocks, %d x %d warps, %d rounds of %u)\n",
               i ? "                                                    |" : "", times[i].first * 1e6,
               bytes / times[i].first * 1e-9, s.size, s.across, s.down, s.rounds, s.clusters);
    }
    if (times.empty())
        printf(" refused\n");
    fflush(stdout);
    free_problem(q);
}

static void time_all(bool all)
{
    static const int shapes[][2] = {{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50304}};
    for (int m : {16, 32, 64})
        for (const auto &s : shapes)
            for (int nk = 0; nk < 2; nk++)
                if (nk || s[1] < 50304)
                    time_one(m, s[0], s[1], nk, s[1] < 50304, all);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool good = true;
    open_card();
    if (strcmp(what, "ways") == 0) {
        time_all(true);
        return 0;
    }
    if (strcmp(what, "time") != 0)
        good = check_all();
    if (strcmp(what, "check") != 0)
        time_all(false);
    printf(good ? "all right\n" : "SOMETHING IS WRONG\n");
    return good ? 0 : 1;
}
