/* clang-format off */
/* attention_cuda.cu - the attention kernels of Hopper by themselves: against a plain computation, and by the clock.
 *
 *   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -Isrc -Iinclude -Itests -D_GNU_SOURCE \
 *        bench/attention_cuda.cu -o attention_cuda && ./attention_cuda
 *
 * Options: `check`, `time` (both when none is given). Exit 1 when something is wrong. */
/* clang-format on */
#include "hopper_check.cuh"

#include <algorithm>

static bool check_all()
{
    bool good = true;
    for (int dim = 64; dim <= 128; dim += 64)
        for (int causal = 0; causal < 2; causal++) {
            const bool cut = causal != 0;
            for (int t : {1, 63, 64, 65, 127, 128, 200, 1024})
                good &= check(shape{2, 3, 3, t, t, dim, cut, true, BY_BF16, 0, 1}, true);
            good &= check(shape{2, 4, 4, 65, 200, dim, cut, false, BY_BF16, 0, 1}, true);
            good &= check(shape{2, 4, 2, 1, 333, dim, cut, false, BY_BF16, 0, 1}, true);
            good &= check(shape{1, 6, 2, 700, 900, dim, cut, false, BY_F16, 0, 1}, true);
            good &= check(shape{3, 8, 2, 511, 511, dim, cut, true, BY_F16, 0, 1}, true);
            good &= check(shape{40, 12, 12, 384, 384, dim, cut, true, BY_BF16, 0, 1}, true);
            good &= check(shape{2, 3, 3, 1024, 1024, dim, cut, true, BY_BF16, 0, 6}, true);
            for (int sms : {1, 5, 7, 50}) /* many rounds, in all ways to deal out the tiles */
                good &= check(shape{2, 8, 2, 1111, 1111, dim, cut, true, BY_BF16, sms, 1}, true);
        }
    return good;
}

/* ---- time ------------------------------------------------------------------------------------ */

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

/* Another way to do one of the jobs: whether it comes to the same. */
template <class J> static bool time_job(tensors &m, const char *name, double products)
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
    const bool same = apart <= 1e-4 * size;
    if (!same)
        printf("    BUT THIS DIFFERS: %.2e\n", sqrt(apart / size));
    return same;
}

static bool time_all()
{
    const shape list[] = {{64, 12, 12, 1024, 1024, 64, true, true, BY_BF16, 0, 1},
                          {16, 16, 16, 1024, 1024, 64, true, true, BY_BF16, 0, 1},
                          {8, 12, 12, 1024, 1024, 64, true, true, BY_BF16, 0, 1},
                          {4, 16, 16, 4096, 4096, 64, true, true, BY_BF16, 0, 1},
                          {16, 16, 16, 1024, 1024, 64, false, true, BY_BF16, 0, 1},
                          {16, 8, 8, 1024, 1024, 128, true, true, BY_BF16, 0, 1},
                          {4, 12, 12, 16384, 16384, 64, true, true, BY_BF16, 0, 1},
                          {4, 12, 12, 16384, 16384, 128, true, true, BY_BF16, 0, 1},
                          {16, 12, 12, 4096, 4096, 128, true, true, BY_BF16, 0, 1}};
    bool good = true;
    for (const shape &s : list) {
        tensors m;
        make(m, s);
        printf("B %d H %d T %d D %d%s\n", s.batch, s.heads, s.queries, s.dim, s.causal ? " causal" : "");
        time_one(m, "forward", 2, [&] { return cuda_hopper_attention(&m.exec, &m.forward); });
        time_one(m, "backward, two jobs", 5,
                 [&] { return cuda_hopper_attention_grad(&m.exec, &m.backward); });
        if (s.causal)
            time_one(m, "backward, in order", 5,
                     [&] { return cuda_hopper_ordered_grad(&m.exec, &m.backward); });
        if (s.dim == 64) {
            time_one(m, "backward, whole heads", 5,
                     [&] { return cuda_hopper_whole_grad(&m.exec, &m.backward); });
            good &= time_job<job<bf16, forward_work, 64, 4, 64, 6, false>>(
                m, "forward 4x64 rows, 6 stages, 1 slot", 2);
            good &=
                time_job<job<bf16, forward_work, 64, 4, 64, 6, false, 2>>(m, "forward 4x64, 6, 2 slots", 2);
            good &= time_job<forward_of_64<bf16, false>>(m, "forward 4x64, 8, 2 slots", 2);
            good &= time_job<job<bf16, query_work, 64, 2, 64, 4, true>>(m, "query side 2x64, 4", 3);
            good &= time_job<query_of_64<bf16, false>>(m, "query side 2x64, 6", 3);
            good &=
                time_job<job<bf16, query_work, 64, 3, 64, 4, false, 2>>(m, "query side 3x64, 4, 2 slots", 3);
            good &= time_job<job<bf16, key_work, 64, 2, 64, 4, true>>(m, "key side 2x64, 4", 4);
            good &= time_job<key_of_64<bf16, false>>(m, "key side 2x64, 6", 4);
        } else {
            good &= time_job<job<bf16, forward_work, 128, 2, 64, 5, false, 2>>(
                m, "forward 2x64, 64, 5, 2 slots", 2);
            good &= time_job<job<bf16, forward_work, 128, 3, 64, 4, false, 2>>(
                m, "forward 3x64, 64, 4, 2 slots", 2);
        }
        free_tensors(m);
    }
    return good;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool good = true;
    if (strcmp(what, "time") != 0)
        good = check_all();
    if (strcmp(what, "check") != 0)
        good = time_all() && good;
    printf(good ? "all right\n" : "SOMETHING IS WRONG\n");
    return good ? 0 : 1;
}
