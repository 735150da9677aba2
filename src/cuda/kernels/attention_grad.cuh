/* attention_grad.cuh - shared by the kernels of the gradient of attention. */
#ifndef BY_CUDA_KERNELS_ATTENTION_GRAD_CUH
#define BY_CUDA_KERNELS_ATTENTION_GRAD_CUH

#include "cuda/kernels/attention.cuh"

/* The destination of the gradient of a bias: sums of floats (batch, heads, queries or tiles of them, count),
 * which another kernel reduces, or the gradient itself if no two scores share an entry. */
struct bias_sums {
    void *at;  /* NULL: not wanted */
    bool last; /* the gradient itself */
    int tile;  /* queries that share a row of sums; 0: every query has its own */
    int rows;  /* rows of sums per head */
};

/* attention, and the destinations of the gradients; at = NULL: not wanted. a.lse is read. */
struct attention_back {
    attention a;
    head_rows dy, dq, dk, dv;
    bias_sums dbias[BIASES];
    float *delta; /* (batch, heads, queries) */
};

static __host__ __device__ __forceinline__ bool wants_bias(const attention_back &g)
{
    return g.dbias[0].at || g.dbias[1].at;
}

/* attention_bias.cu, for bias `which`: the kind of its sums, for tiles of `tile` queries; their number; and
 * their reduction to the gradient. */
bias_sums cuda_bias_sums(const attention &a, int which, const by_tensor *dbias, int tile);
size_t cuda_bias_sum_count(const attention_back &g, int which);
by_status cuda_add_bias_sums(cuda_exec *x, const attention_back &g, int which, const by_tensor *dbias);

/* delta, dq, dk and dv, without those of biases (attention_grad.cu). */
by_status cuda_attend_back(cuda_exec *x, const attention_back &g, by_dtype type);
/* dq, dk and dv without matrix instructions, once delta is computed (attention_grad_plain.cu). */
by_status cuda_attend_back_plain(cuda_exec *x, const attention_back &g, by_dtype type);

/* The log-sum-exp of a query to base 2, as an exponent to subtract: infinite where all weights must be 0,
 * also if there is no query. (The equal weights of a query that attends to nothing are added separately.) */
static __device__ __forceinline__ float exponent_of(const attention &a, int64_t head, int t)
{
    const float lse = t < a.queries ? a.lse[head * a.queries + t] : -INFINITY;
    return lse == -INFINITY ? INFINITY : lse * LOG2_E;
}
static __device__ __forceinline__ float delta_of(const attention_back &g, int64_t head, int t)
{
    return t < g.a.queries ? g.delta[head * g.a.queries + t] : 0;
}

/* ---- the tiles of queries that a tile of keys meets ------------------------------------------ */

struct query_tile {
    int h, t0;
};

/* Returns true if one of queries [t0, t0 + n), n <= 64, attends to nothing and so contributes to every key.
 * All lanes agree. */
static __device__ __forceinline__ bool gives_to_all(const attention &a, int64_t head, int t0, int n)
{
    bool any = false;
    for (int t = t0 + (threadIdx.x & 31); t < t0 + n && t < a.queries; t += 32)
        any |= a.lse[head * a.queries + t] == -INFINITY;
    return __any_sync(0xffffffffu, any);
}

/* The tile of n queries after x, of the heads before `end` that share a key head, that meets keys [s0, s0 +
 * m); x.t0 < 0: the first of its head. If there is none, h = end. */
template <int LEVEL>
static __device__ __forceinline__ query_tile next_tile(const attention &a, const sight<LEVEL> &see,
                                                       const span &seeing, int b, int end, int n, int s0,
                                                       int m, query_tile x)
{
    const bool some_give = may_see_nothing<LEVEL>(a);
    const int first = some_give ? 0 : seeing.from / n * n;
    x.t0 = x.t0 < 0 ? first : x.t0 + n;
    while (x.h < end) {
        if (x.t0 >= (some_give ? a.queries : seeing.to)) {
            x.h++;
            x.t0 = first;
            if (first >= seeing.to && !some_give)
                x.h = end;
            continue;
        }
        if (has_pair_blocks(see) && !some_give) { /* 32 tiles at once */
            const int t = x.t0 + (int)(threadIdx.x & 31) * n;
            const uint32_t found =
                __ballot_sync(0xffffffffu, t < seeing.to && meets(as_head(see, a, b, x.h), t, n, s0, m));
            x.t0 += (found ? __ffs((int)found) - 1 : 32) * n;
            if (found)
                break;
            continue;
        }
        if (x.t0 + n > seeing.from && x.t0 < seeing.to && head_meets(see, a, b, x.h, x.t0, n, s0, m))
            break;
        if ((LEVEL < ANY || some_give) && gives_to_all(a, (int64_t)b * a.heads + x.h, x.t0, n))
            break;
        x.t0 += n;
    }
    return x;
}

#endif
