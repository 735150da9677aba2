/* clang-format off */
/* attention_cuda.cu - the attention kernels of Hopper by themselves: against a plain computation, and by the clock.
 *
 *   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Isrc -Iinclude -D_GNU_SOURCE \
 *        bench/attention_cuda.cu -o attention_cuda && ./attention_cuda
 *
 * The checks alone, on any machine, slowly (smaller shapes):
 *
 *   g++ -x c++ -std=c++17 -O2 -DBY_CUDA_EMULATE -Isrc -Iinclude -D_GNU_SOURCE bench/attention_cuda.cu \
 *       src/cuda/emulate.cc -x c src/base/dtype.c -lm -o attention_cuda && ./attention_cuda
 *
 * Options: `check`, `time` (both when none is given). Exit 1 when something is wrong. */
/* clang-format on */
#include "../src/cuda/kernels/attention_hopper.cu"
#include "../src/cuda/kernels/attention_hopper_grad.cu"

#include <algorithm>
#include <stdio.h>
#include <vector>

/* ---- what the library would offer ------------------------------------------------------------ */

static void *scratch;
static size_t scratch_size;

extern "C" by_status by_fail(by_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    return status;
}

by_status by_cuda_check(cudaError_t error, const char *what)
{
#ifndef BY_CUDA_EMULATE
    if (error != cudaSuccess)
        return by_fail(BY_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
#endif
    (void)what;
    return error == cudaSuccess ? BY_OK : BY_ERR_DEVICE;
}

[[maybe_unused]] static void must(cudaError_t error, const char *what)
{
    if (by_cuda_check(error, what) != BY_OK)
        exit(1);
}

/* Device memory, filled with NaNs. */
static void *device_memory(size_t bytes)
{
    void *p = NULL;
#ifdef BY_CUDA_EMULATE
    p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(p, 0xff, bytes);
#else
    must(cudaMalloc(&p, bytes), "cudaMalloc");
    must(cudaMemset(p, 0xff, bytes), "cudaMemset");
#endif
    return p;
}
static void device_free(void *p)
{
#ifdef BY_CUDA_EMULATE
    free(p);
#else
    must(cudaFree(p), "cudaFree");
#endif
}
static void to_device(void *to, const void *from, size_t bytes)
{
#ifdef BY_CUDA_EMULATE
    memcpy(to, from, bytes);
#else
    must(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
#endif
}
static void from_device(void *to, const void *from, size_t bytes)
{
#ifdef BY_CUDA_EMULATE
    memcpy(to, from, bytes);
#else
    must(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy from the device");
#endif
}

void *by_cuda_scratch(by_cuda_exec *, size_t bytes)
{
    if (bytes > scratch_size) {
        if (scratch)
            device_free(scratch);
        scratch = device_memory(bytes);
        scratch_size = bytes;
    }
    return scratch;
}

/* ---- the plain computation: a thread for each row, in f32 ------------------------------------ */

struct plain_args {
    const uint16_t *q, *k, *v, *dy;        /* rows of heads */
    int64_t q_row, kv_row, y_row;          /* elements from one row to the next */
    float *y, *lse, *delta, *dq, *dk, *dv; /* (B, H, T, D) and (B, H, T); dk, dv (B, Hk, S, D) */
    int batch, heads, kv_heads, queries, keys, dim;
    bool causal, is_bf16;
    float scale;
};

static __device__ float plain_value(const plain_args &a, uint16_t bits)
{
    return a.is_bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
}
static __device__ float plain_dot(const plain_args &a, const uint16_t *x, const uint16_t *y)
{
    float sum = 0;
    for (int d = 0; d < a.dim; d++)
        sum += plain_value(a, x[d]) * plain_value(a, y[d]);
    return sum;
}

static __global__ void plain_queries(plain_args a)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= (int64_t)a.batch * a.heads * a.queries)
        return;
    const int t = (int)(row % a.queries), h = (int)(row / a.queries % a.heads),
              b = (int)(row / a.queries / a.heads);
    const int seen = a.causal ? a.keys - a.queries + t + 1 : a.keys, hk = h / (a.heads / a.kv_heads);
    const uint16_t *q = a.q + ((int64_t)b * a.queries + t) * a.q_row + h * a.dim;
    const uint16_t *k = a.k + (int64_t)b * a.keys * a.kv_row + hk * a.dim, *v = a.v + (k - a.k);
    const uint16_t *dy = a.dy + ((int64_t)b * a.queries + t) * a.y_row + h * a.dim;
    float *y = a.y + row * a.dim, *dq = a.dq + row * a.dim;
    float top = -INFINITY, sum = 0, delta = 0;
    for (int s = 0; s < seen; s++)
        top = fmaxf(top, plain_dot(a, q, k + s * a.kv_row) * a.scale);
    for (int d = 0; d < a.dim; d++)
        y[d] = dq[d] = 0;
    for (int s = 0; s < seen; s++) {
        const float p = expf(plain_dot(a, q, k + s * a.kv_row) * a.scale - top);
        sum += p;
        for (int d = 0; d < a.dim; d++)
            y[d] += p * plain_value(a, v[s * a.kv_row + d]);
    }
    for (int d = 0; d < a.dim; d++) {
        y[d] /= sum;
        delta += y[d] * plain_value(a, dy[d]);
    }
    a.lse[row] = top + logf(sum);
    a.delta[row] = delta;
    for (int s = 0; s < seen; s++) {
        const float p = expf(plain_dot(a, q, k + s * a.kv_row) * a.scale - a.lse[row]);
        const float ds = p * (plain_dot(a, dy, v + s * a.kv_row) - delta) * a.scale;
        for (int d = 0; d < a.dim; d++)
            dq[d] += ds * plain_value(a, k[s * a.kv_row + d]);
    }
}

static __global__ void plain_keys(plain_args a)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= (int64_t)a.batch * a.kv_heads * a.keys)
        return;
    const int s = (int)(row % a.keys), hk = (int)(row / a.keys % a.kv_heads),
              b = (int)(row / a.keys / a.kv_heads);
    const int group = a.heads / a.kv_heads;
    const uint16_t *k = a.k + ((int64_t)b * a.keys + s) * a.kv_row + hk * a.dim, *v = a.v + (k - a.k);
    float *dk = a.dk + row * a.dim, *dv = a.dv + row * a.dim;
    for (int d = 0; d < a.dim; d++)
        dk[d] = dv[d] = 0;
    for (int h = hk * group; h < (hk + 1) * group; h++)
        for (int t = a.causal ? max(0, s - (a.keys - a.queries)) : 0; t < a.queries; t++) {
            const int64_t at = ((int64_t)b * a.heads + h) * a.queries + t;
            const uint16_t *q = a.q + ((int64_t)b * a.queries + t) * a.q_row + h * a.dim;
            const uint16_t *dy = a.dy + ((int64_t)b * a.queries + t) * a.y_row + h * a.dim;
            const float p = expf(plain_dot(a, q, k) * a.scale - a.lse[at]);
            const float ds = p * (plain_dot(a, dy, v) - a.delta[at]) * a.scale;
            for (int d = 0; d < a.dim; d++) {
                dk[d] += ds * plain_value(a, q[d]);
                dv[d] += p * plain_value(a, dy[d]);
            }
        }
}

/* ---- a node by hand -------------------------------------------------------------------------- */

struct shape {
    int batch, heads, kv_heads, queries, keys, dim;
    bool causal, packed;
    by_dtype type;
};

struct tensors {
    shape s;
    by_attention_attr attr;
    by_tensor q, k, v, y, lse, dy, dq, dk, dv;
    by_node forward, backward;
    by_cuda cuda;
    by_cuda_exec exec;
};

static size_t elements(const by_tensor &t)
{
    return (size_t)(t.dim[0] * t.dim[1] * t.dim[2]);
}
static void make_tensor(by_tensor &t, by_dtype type, int64_t a, int64_t b, int64_t c)
{
    t.type = type;
    t.rank = 3;
    t.dim[0] = a, t.dim[1] = b, t.dim[2] = c;
    t.data = device_memory(elements(t) * (type == BY_F32 ? 4 : 2));
}

static uint64_t random_state = 1;
static float random_normal()
{
    float sum = 0;
    for (int i = 0; i < 4; i++) {
        random_state = random_state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(random_state >> 40) / 16777216.0f - 0.5f;
    }
    return sum * 1.7320508f;
}
static uint16_t to_16(by_dtype type, float x)
{
    if (type == BY_BF16)
        return by_f32_to_bf16(x);
#ifdef BY_CUDA_EMULATE
    return by_f32_to_f16(x);
#else
    return __half_as_ushort(__float2half_rn(x));
#endif
}
static float from_16(by_dtype type, uint16_t x)
{
    if (type == BY_BF16)
        return by_bf16_to_f32(x);
#ifdef BY_CUDA_EMULATE
    return by_f16_to_f32(x);
#else
    return __half2float(__ushort_as_half(x));
#endif
}
static void fill(by_tensor &t)
{
    std::vector<uint16_t> values(elements(t));
    const size_t drawn = 1000003; /* of a large tensor, again and again */
    for (size_t i = 0; i < values.size(); i++)
        values[i] = i < drawn ? to_16(t.type, random_normal()) : values[i - drawn];
    to_device(t.data, values.data(), values.size() * 2);
}

static void make(tensors &m, const shape &s)
{
    m = tensors();
    m.s = s;
    m.attr.heads = s.heads;
    m.attr.kv_heads = s.kv_heads;
    m.attr.head_dim = s.dim;
    m.attr.mask = s.causal ? BY_MASK_CAUSAL : BY_MASK_NONE;
    m.attr.scale = 1 / sqrtf((float)s.dim);
    m.attr.packed = s.packed;
    const int64_t wide = (int64_t)s.heads * s.dim, narrow = (int64_t)s.kv_heads * s.dim;
    make_tensor(m.q, s.type, s.batch, s.queries, s.packed ? wide + 2 * narrow : wide);
    make_tensor(m.dq, s.type, s.batch, s.queries, s.packed ? wide + 2 * narrow : wide);
    if (!s.packed) {
        make_tensor(m.k, s.type, s.batch, s.keys, narrow);
        make_tensor(m.v, s.type, s.batch, s.keys, narrow);
        make_tensor(m.dk, s.type, s.batch, s.keys, narrow);
        make_tensor(m.dv, s.type, s.batch, s.keys, narrow);
        fill(m.k);
        fill(m.v);
    }
    make_tensor(m.y, s.type, s.batch, s.queries, wide);
    make_tensor(m.dy, s.type, s.batch, s.queries, wide);
    make_tensor(m.lse, BY_F32, s.batch, s.heads, s.queries);
    fill(m.q);
    fill(m.dy);
    by_node &f = m.forward, &g = m.backward;
    f.attr = g.attr = &m.attr;
    f.n_in = 4, f.n_out = 3;
    g.n_in = 7, g.n_out = 3;
    f.in[0] = g.in[0] = &m.q;
    g.out[0] = &m.dq;
    if (!s.packed) {
        f.in[1] = g.in[1] = &m.k;
        f.in[2] = g.in[2] = &m.v;
        g.out[1] = &m.dk;
        g.out[2] = &m.dv;
    }
    f.out[0] = g.in[4] = &m.y;
    f.out[1] = g.in[5] = &m.lse;
    g.in[6] = &m.dy;
    m.cuda.arch = 90;
    m.cuda.sms = 4;
#ifndef BY_CUDA_EMULATE
    must(cudaDeviceGetAttribute(&m.cuda.sms, cudaDevAttrMultiProcessorCount, 0), "multiprocessors");
#endif
    m.exec.cuda = &m.cuda;
}
static void free_tensors(tensors &m)
{
    for (by_tensor *t : {&m.q, &m.k, &m.v, &m.y, &m.lse, &m.dy, &m.dq, &m.dk, &m.dv})
        if (t->data)
            device_free(t->data);
}

/* Plan, then do. */
template <class F> static void run(tensors &m, F f)
{
    for (int dry = 1; dry >= 0; dry--) {
        m.exec.dry = dry;
        if (f() != BY_OK)
            exit(1);
    }
}
static void finish(const char *what)
{
#ifndef BY_CUDA_EMULATE
    must(cudaGetLastError(), what);
    must(cudaDeviceSynchronize(), what);
#endif
    (void)what;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* |got - want| / |want| of heads [first, first + heads) of rows, against (batch, heads, rows, dim). */
static double distance(const by_tensor &got, int first, int heads, int dim, const float *want_at)
{
    const int64_t batch = got.dim[0], rows = got.dim[1], cols = got.dim[2];
    std::vector<uint16_t> bits(elements(got));
    std::vector<float> want((size_t)(batch * heads * rows * dim));
    from_device(bits.data(), got.data, bits.size() * 2);
    from_device(want.data(), want_at, want.size() * 4);
    double apart = 0, size = 1e-30;
    for (int64_t b = 0; b < batch; b++)
        for (int h = 0; h < heads; h++)
            for (int64_t t = 0; t < rows; t++)
                for (int d = 0; d < dim; d++) {
                    double x =
                        from_16(got.type, bits[(size_t)((b * rows + t) * cols + (first + h) * dim + d)]);
                    double y = want[(size_t)(((b * heads + h) * rows + t) * dim + d)];
                    apart += (x - y) * (x - y);
                    size += y * y;
                }
    return sqrt(apart / size);
}

static bool check(const shape &s)
{
    tensors m;
    make(m, s);
    if (!by_hopper_attention_takes(&m.cuda, &m.forward) ||
        !by_hopper_attention_grad_takes(&m.cuda, &m.backward)) {
        printf("not taken\n");
        return false;
    }
    run(m, [&] { return by_hopper_attention(&m.exec, &m.forward); });
    finish("attention");
    run(m, [&] { return by_hopper_attention_grad(&m.exec, &m.backward); });
    finish("attention_grad");

    plain_args a = {};
    const int64_t wide = (int64_t)s.heads * s.dim;
    a.q = (const uint16_t *)m.q.data;
    a.k = s.packed ? a.q + wide : (const uint16_t *)m.k.data;
    a.v = s.packed ? a.q + wide + s.kv_heads * s.dim : (const uint16_t *)m.v.data;
    a.dy = (const uint16_t *)m.dy.data;
    a.q_row = m.q.dim[2];
    a.kv_row = s.packed ? m.q.dim[2] : m.k.dim[2];
    a.y_row = wide;
    a.batch = s.batch, a.heads = s.heads, a.kv_heads = s.kv_heads;
    a.queries = s.queries, a.keys = s.keys, a.dim = s.dim;
    a.causal = s.causal, a.is_bf16 = s.type == BY_BF16;
    a.scale = m.attr.scale;
    const size_t rows = (size_t)s.batch * s.heads * s.queries, others = (size_t)s.batch * s.kv_heads * s.keys;
    float *at = (float *)device_memory((2 * rows * s.dim + 2 * others * s.dim + 2 * rows) * 4);
    a.y = at;
    a.dq = a.y + rows * s.dim;
    a.dk = a.dq + rows * s.dim;
    a.dv = a.dk + others * s.dim;
    a.lse = a.dv + others * s.dim;
    a.delta = a.lse + rows;
    by_launch(&m.exec, plain_queries, blocks_for((int64_t)rows, 32), 32, 0, a);
    by_launch(&m.exec, plain_keys, blocks_for((int64_t)others, 32), 32, 0, a);
    finish("reference");

    std::vector<float> lse(rows), want(rows);
    from_device(lse.data(), m.lse.data, rows * 4);
    from_device(want.data(), a.lse, rows * 4);
    double worst = 0;
    for (size_t i = 0; i < rows; i++)
        worst = !(fabs(lse[i] - want[i]) <= 1e3) ? 1e9 : fmax(worst, fabs(lse[i] - want[i]));
    const by_tensor &k = s.packed ? m.dq : m.dk, &v = s.packed ? m.dq : m.dv;
    const double error[4] = {distance(m.y, 0, s.heads, s.dim, a.y), distance(m.dq, 0, s.heads, s.dim, a.dq),
                             distance(k, s.packed ? s.heads : 0, s.kv_heads, s.dim, a.dk),
                             distance(v, s.packed ? s.heads + s.kv_heads : 0, s.kv_heads, s.dim, a.dv)};

    /* the same bits a second time */
    std::vector<uint16_t> first(elements(m.dq)), second(elements(m.dq));
    from_device(first.data(), m.dq.data, first.size() * 2);
    run(m, [&] { return by_hopper_attention_grad(&m.exec, &m.backward); });
    finish("attention_grad, again");
    from_device(second.data(), m.dq.data, first.size() * 2);
    const bool same = first == second;

    const double most = s.type == BY_BF16 ? 1.2e-2 : 2e-3;
    bool good = same && worst < 1e-3;
    for (double e : error)
        good = good && e < most;
    printf("%-4s B %d H %d/%d T %4d S %4d D %3d %-6s %-8s y %.2e lse %.1e dq %.2e dk %.2e dv %.2e%s  %s\n",
           s.type == BY_BF16 ? "bf16" : "f16", s.batch, s.heads, s.kv_heads, s.queries, s.keys, s.dim,
           s.causal ? "causal" : "", s.packed ? "packed" : "", error[0], worst, error[1], error[2], error[3],
           same ? "" : " DIFFERS FROM RUN TO RUN", good ? "ok" : "WRONG");
    fflush(stdout);
    device_free(at);
    free_tensors(m);
    return good;
}

static bool check_all()
{
    bool good = true;
#ifdef BY_CUDA_EMULATE
    const shape list[] = {
        {1, 1, 1, 64, 64, 64, false, false, BY_BF16},  {1, 2, 2, 200, 200, 64, true, true, BY_BF16},
        {2, 1, 1, 65, 129, 64, true, false, BY_BF16},  {1, 2, 1, 130, 130, 64, true, true, BY_F16},
        {1, 1, 1, 200, 200, 128, true, true, BY_BF16}, {1, 1, 1, 63, 300, 128, false, false, BY_F16},
        {1, 4, 2, 400, 400, 64, true, true, BY_BF16}};
    for (const shape &s : list)
        good &= check(s);
#else
    for (int dim = 64; dim <= 128; dim += 64)
        for (int causal = 0; causal < 2; causal++)
            for (int t : {1, 63, 64, 65, 127, 128, 200, 1024})
                good &= check(shape{2, 3, 3, t, t, dim, causal != 0, true, BY_BF16});
    for (int dim = 64; dim <= 128; dim += 64)
        for (int causal = 0; causal < 2; causal++) {
            good &= check(shape{2, 4, 4, 65, 200, dim, causal != 0, false, BY_BF16});
            good &= check(shape{2, 4, 2, 1, 333, dim, causal != 0, false, BY_BF16});
            good &= check(shape{1, 6, 2, 700, 900, dim, causal != 0, false, BY_F16});
            good &= check(shape{3, 8, 2, 511, 511, dim, causal != 0, true, BY_F16});
            good &= check(shape{40, 12, 12, 384, 384, dim, causal != 0, true, BY_BF16});
        }
#endif
    return good;
}

/* ---- time ------------------------------------------------------------------------------------ */

#ifndef BY_CUDA_EMULATE
template <class F> static double median_seconds(tensors &m, F f)
{
    std::vector<float> times;
    cudaEvent_t from, to;
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    run(m, f);
    for (int i = 0; i < 23; i++) {
        float ms;
        cudaEventRecord(from);
        if (f() != BY_OK)
            exit(1);
        cudaEventRecord(to);
        must(cudaEventSynchronize(to), "timed run");
        cudaEventElapsedTime(&ms, from, to);
        if (i >= 3)
            times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3;
}

/* products: how many of (T, S, D) each score takes; real: how many of them count */
template <class F> static void time_one(tensors &m, const char *name, double products, F f)
{
    const shape &s = m.s;
    const double one = 2.0 * s.batch * s.heads * (double)s.queries * s.keys * s.dim * (s.causal ? 0.5 : 1);
    const double t = median_seconds(m, f);
    printf("  %-34s %8.3f ms %7.1f TFLOP/s\n", name, t * 1e3, products * one / t * 1e-12);
    fflush(stdout);
}

/* The first million numbers of a result. */
static std::vector<float> sample(const by_tensor &t)
{
    std::vector<uint16_t> bits(std::min(elements(t), (size_t)1 << 20));
    std::vector<float> values(bits.size());
    from_device(bits.data(), t.data, bits.size() * 2);
    for (size_t i = 0; i < bits.size(); i++)
        values[i] = from_16(t.type, bits[i]);
    return values;
}

/* Another way to do one of the jobs: it must come to the same. */
template <class J> static void time_job(tensors &m, const char *name, double products)
{
    const by_tensor &result = J::KIND == FORWARD ? m.y : m.dq;
    const std::vector<float> want = sample(result);
    attention_node n = node_of(J::KIND == FORWARD ? &m.forward : &m.backward);
    n.y = rows_of(&m.y, 0);
    n.lse = (float *)m.lse.data;
    n.dy = rows_of(&m.dy, 0);
    rows_of_qkv(n.attr, m.backward.out, n.grad);
    n.stats = (float2 *)scratch;
    time_one(m, name, products, [&] { return run_job<J>(&m.exec, n); });
    const std::vector<float> got = sample(result);
    double apart = 0, size = 0;
    for (size_t i = 0; i < got.size(); i++) {
        apart += (double)(got[i] - want[i]) * (got[i] - want[i]);
        size += (double)want[i] * want[i];
    }
    if (!(apart <= 1e-4 * size))
        printf("    BUT THIS DIFFERS: %.2e\n", sqrt(apart / size));
}

static void time_all()
{
    const shape list[] = {{64, 12, 12, 1024, 1024, 64, true, true, BY_BF16},
                          {16, 16, 16, 1024, 1024, 64, true, true, BY_BF16},
                          {4, 16, 16, 4096, 4096, 64, true, true, BY_BF16},
                          {16, 16, 16, 1024, 1024, 64, false, true, BY_BF16},
                          {16, 8, 8, 1024, 1024, 128, true, true, BY_BF16}};
    for (const shape &s : list) {
        tensors m;
        make(m, s);
        printf("B %d H %d T %d D %d%s\n", s.batch, s.heads, s.queries, s.dim, s.causal ? " causal" : "");
        time_one(m, "forward", 2, [&] { return by_hopper_attention(&m.exec, &m.forward); });
        time_one(m, "backward", 5, [&] { return by_hopper_attention_grad(&m.exec, &m.backward); });
        if (s.dim == 64) {
            time_job<job<bf16, forward_work, 64, 2, 128, 4>>(m, "forward 2x64 rows, 128, 4 stages", 2);
            time_job<job<bf16, forward_work, 64, 2, 128, 4, true, true, true>>(
                m, "forward 2x64, 128, 4, turns", 2);
            time_job<job<bf16, forward_work, 64, 2, 128, 6>>(m, "forward 2x64, 128, 6", 2);
            time_job<job<bf16, forward_work, 64, 2, 128, 4, false>>(m, "forward 2x64, 128, 4, q shared", 2);
            time_job<job<bf16, forward_work, 64, 2, 64, 4>>(m, "forward 2x64, 64, 4", 2);
            time_job<job<bf16, forward_work, 64, 3, 128, 4, false>>(m, "forward 3x64, 128, 4, q shared", 2);
            time_job<job<bf16, forward_work, 64, 3, 64, 6>>(m, "forward 3x64, 64, 6", 2);
            time_job<job<bf16, forward_work, 64, 3, 64, 6, true, true, true>>(m, "forward 3x64, 64, 6, turns",
                                                                              2);
            time_job<job<bf16, forward_work, 64, 4, 64, 6, false>>(m, "forward 4x64, 64, 6, q shared", 2);
            time_job<job<bf16, query_work, 64, 2, 64, 4>>(m, "query side 2x64, 64, 4", 3);
            time_job<job<bf16, query_work, 64, 2, 64, 4, true, true, true>>(
                m, "query side 2x64, 64, 4, turns", 3);
            time_job<job<bf16, query_work, 64, 2, 64, 4, false>>(m, "query side 2x64, 64, 4, shared", 3);
            time_job<job<bf16, query_work, 64, 2, 128, 3, false>>(m, "query side 2x64, 128, 3, shared", 3);
            time_job<job<bf16, query_work, 64, 3, 64, 4, false>>(m, "query side 3x64, 64, 4, shared", 3);
            time_job<job<bf16, key_work, 64, 2, 64, 4>>(m, "key side 2x64, 64, 4", 4);
            time_job<job<bf16, key_work, 64, 2, 64, 4, true, true, true>>(m, "key side 2x64, 64, 4, turns",
                                                                          4);
            time_job<job<bf16, key_work, 64, 2, 64, 4, false>>(m, "key side 2x64, 64, 4, shared", 4);
            time_job<job<bf16, key_work, 64, 2, 64, 4, true, false>>(m, "key side 2x64, 64, 4, apart", 4);
            time_job<job<bf16, key_work, 64, 2, 128, 3, false, false>>(
                m, "key side 2x64, 128, 3, shared, apart", 4);
            time_job<job<bf16, key_work, 64, 3, 64, 4, false, false>>(
                m, "key side 3x64, 64, 4, shared, apart", 4);
        }
        free_tensors(m);
    }
}
#endif

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool good = true;
    if (strcmp(what, "time") != 0)
        good = check_all();
#ifndef BY_CUDA_EMULATE
    if (strcmp(what, "check") != 0)
        time_all();
#endif
    printf(good ? "all right\n" : "SOMETHING IS WRONG\n");
    return good ? 0 : 1;
}
