/* attention_bias.cu - the gradient of a bias: reduces the sums of attention_grad*.cu, in order. */
#include "cuda/kernels/attention_grad.cuh"

/* Reduces terms (batch, heads, rows, count) to (out_batch, out_heads, out_rows, count), over axes that are 1
 * there. */
struct bias_total {
    const float *terms;
    int batch, heads, rows, count;
    int out_batch, out_heads, out_rows;
};

enum { ENTRIES = 32, STRANDS = 8 }; /* per block: entries, and parts into which each sum is split */

template <class T>
static __global__ void __launch_bounds__(ENTRIES *STRANDS) total_bias(const bias_total c, T *to)
{
    __shared__ float parts[STRANDS][ENTRIES];
    const int e = (int)(blockIdx.y * ENTRIES + threadIdx.x % ENTRIES), strand = (int)threadIdx.x / ENTRIES;
    const int row = (int)blockIdx.x % c.out_rows, head = (int)blockIdx.x / c.out_rows;
    const int b_times = c.batch / c.out_batch, h_times = c.heads / c.out_heads, times = c.rows / c.out_rows;
    const int b0 = head / c.out_heads * b_times, h0 = head % c.out_heads * h_times;
    const int64_t all = (int64_t)b_times * h_times * times, share = (all + STRANDS - 1) / STRANDS;
    const int64_t end = all < (strand + 1) * share ? all : (strand + 1) * share;
    float sum = 0;
    for (int64_t i = strand * share; i < end && e < c.count; i++) {
        const int64_t b = b0 + i / times / h_times, h = h0 + i / times % h_times, r = row * times + i % times;
        sum += c.terms[((b * c.heads + h) * c.rows + r) * c.count + e];
    }
    parts[strand][threadIdx.x % ENTRIES] = sum;
    __syncthreads();
    if (strand > 0 || e >= c.count)
        return;
    for (int i = 1; i < STRANDS; i++)
        sum += parts[i][threadIdx.x];
    to[(int64_t)blockIdx.x * c.count + e] = from_float<T>(sum);
}

template <class T> static by_status add_up(cuda_exec *x, const bias_total &c, void *to)
{
    const dim3 grid((unsigned)(c.out_batch * c.out_heads * c.out_rows), blocks_for(c.count, ENTRIES));
    return cuda_launch(x, total_bias<T>, grid, dim3(ENTRIES * STRANDS), 0, c, (T *)to);
}

static by_status add_up_typed(cuda_exec *x, const bias_total &c, void *to, by_dtype type)
{
    BY_CUDA_DISPATCH(type, add_up, x, c, to);
}

/* Whether a query may give weight to keys that share an entry at an end of the table: those farther than the first entry,
 * or later than the last. One that sees nothing gives weight to all. */
static bool shares_ends(const attention &a, const bias_rows &bias)
{
    const bool window = a.reach.on && a.reach.unit == 1 && !a.reach.cycle && !a.reach.sinks;
    const bool far = bias.zero < a.keys - 1 && !(window && a.reach.before <= bias.zero);
    const bool later = bias.zero + a.queries > bias.count && (a.mask != BY_MASK_CAUSAL || a.prefix);
    const bool ends = bias.zero < a.keys - 1 || bias.zero + a.queries > bias.count;
    return bias.relative && (far || later || (ends && may_see_nothing<ANY>(a)));
}

bias_sums cuda_bias_sums(const attention &a, int which, const by_tensor *dbias, int tile)
{
    const bias_rows &bias = a.bias[which];
    bias_sums s = {};
    if (!dbias)
        return s;
    const bool own_rows = dbias->dim[2] == a.queries;
    s.last = own_rows && dbias->dim[0] == a.batch && dbias->dim[1] == a.heads && !shares_ends(a, bias);
    s.tile = own_rows ? 0 : tile;
    s.rows = own_rows ? a.queries : (a.queries + tile - 1) / tile;
    s.at = dbias->data;
    return s;
}

size_t cuda_bias_sum_count(const attention_back &g, int which)
{
    const bias_sums &sums = g.dbias[which];
    if (!sums.at || sums.last)
        return 0;
    return (size_t)g.a.batch * (size_t)g.a.heads * (size_t)sums.rows * (size_t)g.a.bias[which].count;
}

by_status cuda_add_bias_sums(cuda_exec *x, const attention_back &g, int which, const by_tensor *dbias)
{
    const bias_sums &sums = g.dbias[which];
    if (!dbias || sums.last)
        return BY_OK;
    bias_total c = {(const float *)sums.at, g.a.batch, g.a.heads, sums.rows, g.a.bias[which].count, 0, 0, 0};
    c.out_batch = (int)dbias->dim[0];
    c.out_heads = (int)dbias->dim[1];
    c.out_rows = (int)dbias->dim[2];
    return add_up_typed(x, c, dbias->data, dbias->type);
}
