/* clang-format off */
/* patterns_cuda.cu - attention with sparse patterns on Hopper, forward and backward, beside dense attention: time, share of
 * the pairs that are kept, ratio of the time to dense time x share, and the exponent of the time over lengths.
 *
 *   F="-O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Isrc -Iinclude -Itests -D_GNU_SOURCE -DBY_CUDA_HOPPER"
 *   cc -c -Isrc -Iinclude -D_GNU_SOURCE src/base/dtype.c
 *   nvcc $F bench/patterns_cuda.cu src/cuda/kernels/attention{,_few,_bias,_grad,_grad_plain,_views}.cu dtype.o -o patterns_cuda
 *   ./patterns_cuda [check | time | general | kernels] [DIM [HEADS [BATCH]]]
 *
 * `check` compares with the kernels of every card, `general` times these at 16k, `kernels` times every kernel of a pass by
 * itself at 2k and 16k, beside the time that its memory traffic needs. Exit 1 when something is wrong. */
/* clang-format on */
#include "graph/reach.h"
#include "hopper_check.cuh"

#include <algorithm>
#include <cxxabi.h>
#include <string>

extern "C" by_status cuda_attention(gr_exec *e, gr_node *n);
extern "C" by_status cuda_attention_grad(gr_exec *e, gr_node *n);

struct timing {
    double forward, backward;
};

/* As a program runs it: a captured graph. */
template <class F> static double median_seconds(tensors &m, F f)
{
    std::vector<float> times;
    cudaEvent_t from, to;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    must(cudaEventCreate(&from), "event");
    must(cudaEventCreate(&to), "event");
    must(cudaStreamCreate(&m.exec.stream), "stream");
    run(m, f);
    must(cudaStreamBeginCapture(m.exec.stream, cudaStreamCaptureModeGlobal), "capture");
    if (f() != BY_OK)
        exit(1);
    must(cudaStreamEndCapture(m.exec.stream, &graph), "capture");
    must(cudaGraphInstantiate(&ready, graph, 0), "graph");
    for (int i = 0; i < 8; i++) {
        float ms;
        cudaEventRecord(from, m.exec.stream);
        must(cudaGraphLaunch(ready, m.exec.stream), "graph");
        cudaEventRecord(to, m.exec.stream);
        must(cudaEventSynchronize(to), "timed run");
        cudaEventElapsedTime(&ms, from, to);
        if (i > 0)
            times.push_back(ms);
    }
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(m.exec.stream);
    m.exec.stream = NULL;
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e-3;
}

static by_status forward_of(tensors &m)
{
    return cuda_attention((gr_exec *)&m.exec, &m.forward);
}
static by_status backward_of(tensors &m)
{
    return cuda_attention_grad((gr_exec *)&m.exec, &m.backward);
}

static timing time_pattern(const shape &s, const by_pattern &p, int arch)
{
    tensors m;
    make(m, s);
    m.attr.spec.pattern = p;
    m.cuda.arch = arch;
    timing t;
    t.forward = median_seconds(m, [&] { return forward_of(m); });
    t.backward = median_seconds(m, [&] { return backward_of(m); });
    free_tensors(m);
    return t;
}

/* Pairs per query, in the mean. */
static double pairs_of(const by_pattern &p, int n)
{
    const gr_reach r = gr_reach_of(&p);
    double sum = 0;
    for (int t = 0; t < n; t++)
        sum += r.on ? (double)gr_reach_count(&r, t, t + 1) : t + 1;
    return sum / n;
}

static by_pattern window_of(int w)
{
    return by_pattern{BY_PATTERN_WINDOW, 0, w - 1, 0, 0};
}
static by_pattern blocks_of(int l)
{
    return by_pattern{BY_PATTERN_BLOCKS, l, 1, 0, 0};
}
static by_pattern strided_of(int l)
{
    return by_pattern{BY_PATTERN_STRIDED, l, 0, 0, 0};
}
static by_pattern fixed_of(int l)
{
    return by_pattern{BY_PATTERN_FIXED, l, 0, 8, 0};
}

typedef by_pattern (*pattern_fn)(int);
static const struct {
    const char *name;
    pattern_fn of;
} kinds[] = {{"window", window_of}, {"blocks", blocks_of}, {"strided", strided_of}, {"fixed", fixed_of}};

static timing line(const shape &s, const char *name, const by_pattern &p, int l, timing dense, int arch)
{
    const timing t = time_pattern(s, p, arch);
    const double share = pairs_of(p, s.queries) / pairs_of(by_pattern{}, s.queries);
    printf("%6d %-8s %5d  forward %8.3f  backward %8.3f  both %8.3f ms", s.queries, name, l, t.forward * 1e3,
           t.backward * 1e3, (t.forward + t.backward) * 1e3);
    if (dense.forward > 0)
        printf("  share %.4f  x dense %.3f  / (dense x share): %.2f, %.2f, both %.2f", share,
               (t.forward + t.backward) / (dense.forward + dense.backward), t.forward / dense.forward / share,
               t.backward / dense.backward / share,
               (t.forward + t.backward) / (dense.forward + dense.backward) / share);
    printf("\n");
    fflush(stdout);
    return t;
}

/* The slope of log time over log length. */
static double exponent(const std::vector<int> &n, const std::vector<double> &t)
{
    double x = 0, y = 0, xx = 0, xy = 0;
    for (size_t i = 0; i < n.size(); i++) {
        const double u = log(n[i]), v = log(t[i]);
        x += u, y += v, xx += u * u, xy += u * v;
    }
    const double k = (double)n.size();
    return (k * xy - x * y) / (k * xx - x * x);
}

static void time_lengths(shape s, const std::vector<int> &lengths)
{
    std::vector<int> fitted;
    std::vector<double> all[5];
    for (int n : lengths) {
        s.queries = s.keys = n;
        const timing dense = line(s, "dense", by_pattern{}, 0, timing{}, 90);
        int root = 32;
        while (root * root < n)
            root *= 2;
        for (int k = 0; k < 4; k++)
            for (int l : {64, 128, 256, 512, 1024, 2048}) {
                const bool usual = l == (k < 2 ? 512 : root);
                if (!usual && (n != 16384 || l == 64))
                    continue;
                const timing t = line(s, kinds[k].name, kinds[k].of(l), l, dense, 90);
                if (usual && n >= 8192)
                    all[k].push_back(t.forward + t.backward);
            }
        if (n >= 8192) {
            fitted.push_back(n);
            all[4].push_back(dense.forward + dense.backward);
        }
    }
    for (int k = 0; k < 5; k++)
        if (all[k].size() == fitted.size())
            printf("exponent of %s: %.2f\n", k < 4 ? kinds[k].name : "dense", exponent(fitted, all[k]));
}

/* ---- every kernel by itself ----------------------------------------------------------------------- */

/* "hopper_attention<forward_work 64 4 64 8>": the kernel, the part of the warpgroups and the first numbers. */
static std::string short_name(const char *mangled)
{
    int status = 0;
    char *full = abi::__cxa_demangle(mangled, NULL, NULL, &status);
    std::string text = status == 0 && full ? full : mangled, out;
    free(full);
    for (const char *drop : {"void ", "(anonymous namespace)::", "static "})
        for (size_t at; (at = text.find(drop)) != std::string::npos;)
            text.erase(at, strlen(drop));
    out = text.substr(0, text.find_first_of("<("));
    for (const char *work : {"forward_work", "query_work", "key_work", "whole_work"})
        if (text.find(work) != std::string::npos)
            out += std::string(" ") + work;
    return out;
}

struct kernel_time {
    cudaKernelNodeParams launch;
    cudaEvent_t begin, end;
    std::vector<float> times;
};

/* The kernels of a pass, in the order of launching. */
static std::vector<kernel_time> kernels_in(tensors &m, by_status (*f)(tensors &), cudaGraph_t *graph)
{
    std::vector<kernel_time> list;
    must(cudaStreamBeginCapture(m.exec.stream, cudaStreamCaptureModeGlobal), "capture");
    if (f(m) != BY_OK)
        exit(1);
    must(cudaStreamEndCapture(m.exec.stream, graph), "capture");
    size_t count = 0;
    must(cudaGraphGetNodes(*graph, NULL, &count), "nodes");
    std::vector<cudaGraphNode_t> nodes(count);
    must(cudaGraphGetNodes(*graph, nodes.data(), &count), "nodes");
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        kernel_time k = {};
        must(cudaGraphNodeGetType(node, &type), "node");
        if (type != cudaGraphNodeTypeKernel)
            continue;
        must(cudaGraphKernelNodeGetParams(node, &k.launch), "kernel");
        must(cudaEventCreate(&k.begin), "event");
        must(cudaEventCreate(&k.end), "event");
        list.push_back(k);
    }
    return list;
}

static void time_kernels(tensors &m, const char *pass, by_status (*f)(tensors &))
{
    cudaGraph_t graph;
    must(cudaStreamCreate(&m.exec.stream), "stream");
    run(m, [&] { return f(m); });
    std::vector<kernel_time> list = kernels_in(m, f, &graph);
    for (int i = 0; i < 12; i++) {
        for (kernel_time &k : list) {
            cudaEventRecord(k.begin, m.exec.stream);
            must(cudaLaunchKernel(k.launch.func, k.launch.gridDim, k.launch.blockDim, k.launch.kernelParams,
                                  k.launch.sharedMemBytes, m.exec.stream),
                 "kernel");
            cudaEventRecord(k.end, m.exec.stream);
        }
        must(cudaStreamSynchronize(m.exec.stream), "timed kernels");
        for (kernel_time &k : list) {
            float ms;
            cudaEventElapsedTime(&ms, k.begin, k.end);
            if (i > 1)
                k.times.push_back(ms);
        }
    }
    for (kernel_time &k : list) {
        const char *name = "?";
        must(cudaFuncGetName(&name, k.launch.func), "name");
        std::sort(k.times.begin(), k.times.end());
        printf("    %-8s %-34s %5u blocks of %4u, %3u KiB: %8.1f us\n", pass, short_name(name).c_str(),
               k.launch.gridDim.x, k.launch.blockDim.x, k.launch.sharedMemBytes / 1024,
               k.times[k.times.size() / 2] * 1e3);
    }
    cudaGraphDestroy(graph);
    cudaStreamDestroy(m.exec.stream);
    m.exec.stream = NULL;
}

static void kernels_of(const shape &s, const char *name, const by_pattern &p, int l, timing dense)
{
    tensors m;
    line(s, name, p, l, dense, 90);
    make(m, s);
    m.attr.spec.pattern = p;
    m.cuda.arch = 90;
    time_kernels(m, "forward", forward_of);
    time_kernels(m, "backward", backward_of);
    free_tensors(m);
    fflush(stdout);
}

static void all_kernels(shape s)
{
    for (int n : {2048, 16384}) {
        s.queries = s.keys = n;
        const timing dense = time_pattern(s, by_pattern{}, 90);
        const double tensor = 2.0 * s.batch * s.heads * s.dim * n;
        printf("%d positions: 4 tensors forward and 8 backward, at 4.3 TB/s %.1f and %.1f us\n", n,
               4 * tensor / 4.3e6, 8 * tensor / 4.3e6);
        kernels_of(s, "dense", by_pattern{}, 0, timing{});
        for (int l : {64, 128, 512, 1024, 2048})
            if (l < n)
                kernels_of(s, "window", window_of(l), l, dense);
        for (int l : {64, 128, 512, 1024})
            for (int k = 2; k < 4; k++)
                kernels_of(s, kinds[k].name, kinds[k].of(l), l, dense);
    }
}

/* ---- the general kernels come to the same --------------------------------------------------------- */

static std::vector<float> values_of(const by_tensor &t)
{
    std::vector<uint16_t> bits(elements(t));
    std::vector<float> values(bits.size());
    from_device(bits.data(), t.data, bits.size() * 2);
    for (size_t i = 0; i < bits.size(); i++)
        values[i] = from_16(t.type, bits[i]);
    return values;
}

static double apart(const std::vector<float> &a, const std::vector<float> &b)
{
    double sum = 0, size = 0;
    for (size_t i = 0; i < a.size(); i++) {
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(sum / size);
}

static bool same(const shape &s, const by_pattern &p, const char *name, int l)
{
    std::vector<float> y[2], dq[2], dk[2], dv[2];
    tensors m;
    make(m, s);
    m.attr.spec.pattern = p;
    for (int i = 0; i < 2; i++) {
        m.cuda.arch = i ? 80 : 90;
        run(m, [&] { return forward_of(m); });
        run(m, [&] { return backward_of(m); });
        finish("pattern");
        y[i] = values_of(m.y);
        dq[i] = values_of(m.dq);
        if (!s.packed)
            dk[i] = values_of(m.dk), dv[i] = values_of(m.dv);
    }
    free_tensors(m);
    const double e[4] = {apart(y[0], y[1]), apart(dq[0], dq[1]), s.packed ? 0 : apart(dk[0], dk[1]),
                         s.packed ? 0 : apart(dv[0], dv[1])};
    const double most = s.type == BY_BF16 ? 1.2e-2 : 2e-3;
    const bool good = e[0] < most && e[1] < most && e[2] < most && e[3] < most;
    printf("B %d H %d/%d T %5d D %3d %-8s %4d: y %.1e dq %.1e dk %.1e dv %.1e %s\n", s.batch, s.heads,
           s.kv_heads, s.queries, s.dim, name, l, e[0], e[1], e[2], e[3], good ? "ok" : "WRONG");
    fflush(stdout);
    return good;
}

static bool check_patterns()
{
    bool good = true;
    for (int dim = 64; dim <= 128; dim += 64)
        for (int k = 0; k < 4; k++)
            for (int l : {33, 64, 100, 500})
                for (int n : {777, 2048}) { /* on all multiprocessors, and on few with many tiles each */
                    good &= same(shape{2, 4, 2, n, n, dim, true, false, BY_BF16, 0, 1}, kinds[k].of(l),
                                 kinds[k].name, l);
                    good &= same(shape{1, 2, 2, n, n, dim, true, true, BY_F16, 5, 1}, kinds[k].of(l),
                                 kinds[k].name, l);
                }
    return good;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int dim = argc > 2 ? atoi(argv[2]) : 64, heads = argc > 3 ? atoi(argv[3]) : 16;
    const int batch = argc > 4 ? atoi(argv[4]) : 1;
    const shape s = {batch, heads, heads, 16384, 16384, dim, true, true, BY_BF16, 0, 1};
    bool good = true;
    if (!strcmp(what, "check") || !*what)
        good = check_patterns();
    if (!strcmp(what, "kernels"))
        all_kernels(s);
    if (!strcmp(what, "general"))
        for (int k = 0; k < 4; k++)
            for (int l : {128, 512, 2048})
                line(s, kinds[k].name, kinds[k].of(l), l, timing{}, 80);
    if (!strcmp(what, "time") || !*what)
        time_lengths(s, {2048, 4096, 8192, 16384, 32768, 65536});
    printf(good ? "all right\n" : "SOMETHING IS WRONG\n");
    return good ? 0 : 1;
}
