/* hopper_check.cuh - Hopper's attention kernels by themselves, on the GPU or emulated, against a plain
 * computation. For one source file: it stands in for the rest of the library. */
#ifndef BY_TESTS_HOPPER_CHECK_CUH
#define BY_TESTS_HOPPER_CHECK_CUH

#include "cuda/kernels/attention_hopper.cu"
#include "cuda/kernels/attention_hopper_grad.cu"
#include "cuda/kernels/attention_hopper_ordered.cu"
#include "cuda/kernels/attention_hopper_whole.cu"
#include "cuda/kernels/attention_summaries.cu"
#include "hopper_plain.cuh"

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
#ifndef BY_CUDA_EMULATE
    if (error != cudaSuccess)
        return base_fail(BY_ERR_DEVICE, "%s: %s", what, cudaGetErrorString(error));
#endif
    (void)what;
    return error == cudaSuccess ? BY_OK : BY_ERR_DEVICE;
}

[[maybe_unused]] static void must(cudaError_t error, const char *what)
{
    if (cuda_check(error, what) != BY_OK)
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

static void *scratch;
static size_t scratch_size;

void *cuda_scratch(cuda_exec *, size_t bytes)
{
    if (bytes > scratch_size) {
        if (scratch)
            device_free(scratch);
        scratch = device_memory(bytes);
        scratch_size = bytes;
    }
    return scratch;
}

/* ---- a node by hand -------------------------------------------------------------------------- */

struct shape {
    int batch, heads, kv_heads, queries, keys, dim;
    bool causal, packed;
    by_dtype type;
    int sms;     /* how many multiprocessors to use; 0: all there are */
    float sharp; /* times the usual scale of the scores */
};

struct tensors {
    shape s;
    gr_attention_attr attr;
    by_tensor q, k, v, y, lse, dy, dq, dk, dv;
    gr_node forward, backward;
    cuda_context cuda;
    cuda_exec exec;
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
        return base_f32_to_bf16(x);
#ifdef BY_CUDA_EMULATE
    return base_f32_to_f16(x);
#else
    return __half_as_ushort(__float2half_rn(x));
#endif
}
static float from_16(by_dtype type, uint16_t x)
{
    if (type == BY_BF16)
        return base_bf16_to_f32(x);
#ifdef BY_CUDA_EMULATE
    return base_f16_to_f32(x);
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
    m.attr.spec.heads = s.heads;
    m.attr.spec.kv_heads = s.kv_heads;
    m.attr.head_dim = s.dim;
    m.attr.spec.mask = s.causal ? BY_MASK_CAUSAL : BY_MASK_NONE;
    m.attr.spec.scale = s.sharp / sqrtf((float)s.dim);
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
    gr_node &f = m.forward, &g = m.backward;
    f.attr = g.attr = &m.attr;
    f.n_in = GR_ATT_SHARED, f.n_out = 3;
    g.n_in = GR_ATT_SHARED + 3, g.n_out = 5;
    f.in[0] = g.in[0] = &m.q;
    g.out[0] = &m.dq;
    if (!s.packed) {
        f.in[1] = g.in[1] = &m.k;
        f.in[2] = g.in[2] = &m.v;
        g.out[1] = &m.dk;
        g.out[2] = &m.dv;
    }
    f.out[0] = g.in[GR_ATT_Y] = &m.y;
    f.out[1] = g.in[GR_ATT_LSE] = &m.lse;
    g.in[GR_ATT_DY] = &m.dy;
    m.cuda.arch = 90;
    m.cuda.sms = s.sms ? s.sms : 4;
#ifndef BY_CUDA_EMULATE
    if (!s.sms)
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

/* |got - want| / |want| of heads [first, first + heads) of rows, against (batch, heads, rows, dim). The
 * inputs are of size 1: where the right answer is nothing, or nearly, so is what counts as an error. */
static double distance(const by_tensor &got, int first, int heads, int dim, const float *want_at)
{
    const int64_t batch = got.dim[0], rows = got.dim[1], cols = got.dim[2];
    std::vector<uint16_t> bits(elements(got));
    std::vector<float> want((size_t)(batch * heads * rows * dim));
    from_device(bits.data(), got.data, bits.size() * 2);
    from_device(want.data(), want_at, want.size() * 4);
    double apart = 0, size = 0;
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
    return sqrt(apart / fmax(size, 1e-6 * (double)want.size()));
}

/* The right answers, in one piece of device memory that starts at y. */
static plain_args plain_answers(tensors &m)
{
    const shape &s = m.s;
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
    a.scale = m.attr.spec.scale;
    const size_t rows = (size_t)s.batch * s.heads * s.queries, others = (size_t)s.batch * s.kv_heads * s.keys;
    a.y = (float *)device_memory((2 * rows * s.dim + 2 * others * s.dim + 2 * rows) * 4);
    a.dq = a.y + rows * s.dim;
    a.dk = a.dq + rows * s.dim;
    a.dv = a.dk + others * s.dim;
    a.lse = a.dv + others * s.dim;
    a.delta = a.lse + rows;
    cuda_launch(&m.exec, plain_queries, blocks_for((int64_t)rows, 32), 32, 0, a);
    cuda_launch(&m.exec, plain_keys, blocks_for((int64_t)others, 32), 32, 0, a);
    finish("plain computation");
    return a;
}

static double lse_error(const tensors &m, const plain_args &a)
{
    std::vector<float> got(elements(m.lse)), want(got.size());
    from_device(got.data(), m.lse.data, got.size() * 4);
    from_device(want.data(), a.lse, want.size() * 4);
    double worst = 0;
    for (size_t i = 0; i < got.size(); i++)
        worst = fmax(worst, fabs(got[i] - want[i]) <= 1e3 ? fabs(got[i] - want[i]) : 1e9);
    return worst;
}

typedef by_status (*grad_fn)(cuda_exec *, gr_node *);

/* The gradient by one of the ways there are, against the right answers, and whether it comes to the same bits
 * again. error: of dq, dk, dv. */
static bool grad_is_right(tensors &m, const plain_args &a, grad_fn grad, double most, double (&error)[3])
{
    const shape &s = m.s;
    const by_tensor &k = s.packed ? m.dq : m.dk, &v = s.packed ? m.dq : m.dv;
    std::vector<uint16_t> first(elements(m.dq)), second(elements(m.dq));
    run(m, [&] { return grad(&m.exec, &m.backward); });
    finish("attention_grad");
    error[0] = distance(m.dq, 0, s.heads, s.dim, a.dq);
    error[1] = distance(k, s.packed ? s.heads : 0, s.kv_heads, s.dim, a.dk);
    error[2] = distance(v, s.packed ? s.heads + s.kv_heads : 0, s.kv_heads, s.dim, a.dv);
    from_device(first.data(), m.dq.data, first.size() * 2);
    run(m, [&] { return grad(&m.exec, &m.backward); });
    finish("attention_grad, again");
    from_device(second.data(), m.dq.data, first.size() * 2);
    if (first != second)
        printf("DIFFERS FROM RUN TO RUN\n");
    return first == second && error[0] < most && error[1] < most && error[2] < most;
}

/* Prints a line when something is wrong, or when it is to `say` so anyway. */
static bool check(const shape &s, bool say)
{
    tensors m;
    make(m, s);
    if (!cuda_hopper_attention_takes(&m.cuda, &m.forward) ||
        !cuda_hopper_attention_grad_takes(&m.cuda, &m.backward)) {
        printf("not taken\n");
        return false;
    }
    run(m, [&] { return cuda_hopper_attention(&m.exec, &m.forward); });
    finish("attention");
    const plain_args a = plain_answers(m);
    const double lse = lse_error(m, a), most = s.type == BY_BF16 ? 1.2e-2 : 2e-3;
    const double y = distance(m.y, 0, s.heads, s.dim, a.y);
    const bool forward_good = lse < 1e-3 && y < most;
    bool all_good = forward_good;
    const struct {
        const char *name;
        grad_fn grad;
        bool used;
    } ways[] = {{"two jobs", cuda_hopper_attention_grad, true},
                {"whole heads", cuda_hopper_whole_grad, s.dim == 64},
                {"in order", cuda_hopper_ordered_grad, s.causal}};
    for (const auto &way : ways) {
        double error[3];
        if (!way.used)
            continue;
        const bool good = grad_is_right(m, a, way.grad, most, error);
        all_good = all_good && good;
        if (say || !good || !forward_good)
            printf("%-4s B %d H %d/%d T %4d S %4d D %3d %-6s %-6s %3d SMs x%g: y %.1e lse %.1e %s dq %.1e "
                   "dk %.1e dv %.1e  %s\n",
                   s.type == BY_BF16 ? "bf16" : "f16", s.batch, s.heads, s.kv_heads, s.queries, s.keys, s.dim,
                   s.causal ? "causal" : "", s.packed ? "packed" : "", m.cuda.sms, s.sharp, y, lse, way.name,
                   error[0], error[1], error[2], good && forward_good ? "ok" : "WRONG");
        fflush(stdout);
    }
    device_free(a.y);
    free_tensors(m);
    return all_good;
}

#endif
