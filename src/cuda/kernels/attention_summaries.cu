/* attention_summaries.cu - copies the rows of summary positions to memory of their own, and back. */
#include "cuda/kernels/attention_summaries.cuh"
#include "cuda/kernels/kernel.cuh"

enum { THREADS = 256, PIECE = 8 };

/* The thread's row of `rows` in a batch row, its batch row, and its piece of the row; false: none. */
struct spot {
    int64_t b, row;
    int piece;
};
static __device__ __forceinline__ bool spot_of(const summaries &s, int64_t rows, spot &x)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, pieces = s.width / PIECE;
    x = spot{at / pieces / rows, at / pieces % rows, (int)(at % pieces) * PIECE};
    return x.b < s.batch;
}

template <class T>
static __global__ void __launch_bounds__(THREADS)
    take_summaries(summaries s, int rows, summary_rows to, summary_rows from)
{
    spot x;
    if (!spot_of(s, rows, x))
        return;
    const int64_t t = x.row / s.count * s.length + s.length - s.count + x.row % s.count;
    store<T, PIECE>((T *)to.at + x.b * to.batch + x.row * to.row + x.piece,
                    load<T, PIECE>((const T *)from.at + x.b * from.batch + t * from.row + x.piece));
}

/* Each thread has a summary, or each has a position. */
template <class T, bool ADD>
static __global__ void __launch_bounds__(THREADS)
    give_summaries(summaries s, int rows, summary_rows to, summary_rows from)
{
    spot x;
    if (!spot_of(s, rows, x))
        return;
    const int64_t block = x.row / (ADD ? s.count : s.length), rest = x.row % (ADD ? s.count : s.length);
    const int64_t place = ADD ? rest : rest - (s.length - s.count);
    const int64_t t = ADD ? block * s.length + s.length - s.count + place : x.row;
    T *at = (T *)to.at + x.b * to.batch + t * to.row + x.piece;
    vec<T, PIECE> v = {};
    if (place >= 0)
        v = load<T, PIECE>((const T *)from.at + x.b * from.batch + (block * s.count + place) * from.row +
                           x.piece);
    if (ADD) {
        const vec<T, PIECE> old = load<T, PIECE>(at);
        for (int i = 0; i < PIECE; i++)
            v.at[i] = from_float<T>(to_float(v.at[i]) + to_float(old.at[i]));
    }
    store<T, PIECE>(at, v);
}

template <class T>
static by_status give(cuda_exec *x, const summaries &s, summary_rows to, summary_rows from, bool add)
{
    const int rows = add ? summaries_in(&s) : s.total;
    const unsigned blocks = blocks_for((int64_t)s.batch * rows * (s.width / PIECE), THREADS);
    return cuda_launch(x, add ? give_summaries<T, true> : give_summaries<T, false>, dim3(blocks),
                       dim3(THREADS), 0, s, rows, to, from);
}

by_status cuda_take_summaries(cuda_exec *x, const summaries &s, summary_rows to, summary_rows from)
{
    const int rows = summaries_in(&s);
    const unsigned blocks = blocks_for((int64_t)s.batch * rows * (s.width / PIECE), THREADS);
    return cuda_launch(x, take_summaries<bf16>, dim3(blocks), dim3(THREADS), 0, s, rows, to, from);
}

by_status cuda_give_summaries(cuda_exec *x, const summaries &s, summary_rows to, summary_rows from, bool add,
                              by_dtype type)
{
    return type == BY_BF16 ? give<bf16>(x, s, to, from, add) : give<f16>(x, s, to, from, add);
}
