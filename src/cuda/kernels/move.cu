/* move.cu - ops that only move data: fill, copy, reshape, permute, slice, pad, concat. Elements are treated
 * as bytes, moved in the longest words that fit. */
#include "cuda/kernels/each.cuh"

enum { THREADS = 256, UNROLL = 4 };

/* Returns the product of dim[from .. to - 1]. */
static int64_t product(const by_tensor *t, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++)
        p *= t->dim[i];
    return p;
}

static int64_t size_of(const by_tensor *t)
{
    return (int64_t)by_dtype_size(t->type);
}

/* The largest of 16, 8, 4, 2, 1 that divides all of these byte counts. Tensors themselves start at multiples
 * of 16. */
static int word_of(int64_t a, int64_t b, int64_t c)
{
    const int64_t all = a | b | c | 16;
    return (int)(all & -all);
}

/* f<uint4> ... f<uint8_t> for a word of that many bytes. */
#define BY_WORDS(word, f, ...)           \
    switch (word) {                      \
    case 16:                             \
        return f<uint4>(__VA_ARGS__);    \
    case 8:                              \
        return f<uint64_t>(__VA_ARGS__); \
    case 4:                              \
        return f<uint32_t>(__VA_ARGS__); \
    case 2:                              \
        return f<uint16_t>(__VA_ARGS__); \
    default:                             \
        return f<uint8_t>(__VA_ARGS__);  \
    }

/* ---- fill ------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(THREADS) fill_bytes(char *y, uint4 pattern, int64_t bytes)
{
    const int64_t at = 16 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    if (at + 16 <= bytes)
        *(uint4 *)(y + at) = pattern;
    else
        for (int64_t i = at; i < bytes; i++)
            y[i] = ((const char *)&pattern)[i - at];
}

extern "C" by_status cuda_fill(gr_exec *e, gr_node *n)
{
    const by_tensor *y = n->out[0];
    const int64_t size = size_of(y), bytes = elements_of(y) * size;
    char element[8], bytes16[16];
    uint4 pattern;
    base_convert(element, y->type, &((const gr_fill_attr *)n->attr)->value, BY_F64, 1);
    for (int i = 0; i < 16; i++)
        bytes16[i] = element[i % size];
    memcpy(&pattern, bytes16, 16);
    BY_BRANCH("fill");
    return cuda_launch(cuda_exec_of(e), fill_bytes, blocks_for(bytes, 16 * THREADS), THREADS, 0,
                       (char *)y->data, pattern, bytes);
}

/* ---- blocks of words: copy, slice, pad, concat ----------------------------------------------- */

/* to and from have blocks of `length` words at their own strides; `total` words altogether. In `to` they are
 * preceded by `before` words; with PAD, the rest of the strides of `to` becomes zero, and total counts it. */
struct blocks {
    int64_t length, to_stride, from_stride, before, total;
};

template <class W, bool PAD>
static __global__ void __launch_bounds__(THREADS) move_words(W *to, const W *from, blocks b)
{
    const int64_t first = (int64_t)blockIdx.x * THREADS * UNROLL
    +threadIdx.x;
    W word[UNROLL];
    int64_t place[UNROLL];
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++) {
        const int64_t i = first + u * THREADS;
        int64_t at, block = divide(i, PAD ? b.to_stride : b.length, &at);
        if (PAD)
            at -= b.before;
        word[u] = W{};
        place[u] = block * b.to_stride + b.before + at;
        if (i < b.total && at >= 0 && at < b.length)
            word[u] = from[block * b.from_stride + at];
    }
    BY_UNROLL
    for (int u = 0; u < UNROLL; u++)
        if (first + u * THREADS < b.total)
            to[place[u]] = word[u];
}

template <class W> static by_status launch_words(cuda_exec *x, bool pad, void *to, const void *from, blocks b)
{
    return cuda_launch(x, pad ? move_words<W, true> : move_words<W, false>,
                       blocks_for(b.total, THREADS * UNROLL), THREADS, 0, (W *)to, (const W *)from, b);
}

static by_status move_typed(cuda_exec *x, int word, bool pad, void *to, const void *from, blocks b)
{
    BY_WORDS(word, launch_words, x, pad, to, from, b)
}

/* Everything in bytes; `count` blocks. */
static by_status move_blocks(cuda_exec *x, bool pad, char *to, int64_t to_stride, int64_t before,
                             const char *from, int64_t from_stride, int64_t from_first, int64_t length,
                             int64_t count)
{
    if (!pad && to_stride == length && from_stride == length) { /* one block, whatever its length */
        to_stride = from_stride = length *= count;
        count = 1;
    }
    const int word = word_of(to_stride | before, from_stride | from_first, length);
    const int64_t covered = pad ? to_stride : length;
    if (covered == 0)
        return BY_OK;
    return move_typed(
        x, word, pad, to, from + from_first,
        blocks{length / word, to_stride / word, from_stride / word, before / word, covered / word * count});
}

static by_status copy_all(gr_exec *e, const by_tensor *x, by_tensor *y)
{
    const int64_t bytes = elements_of(x) * size_of(x);
    /* A length that is not a multiple of 16 would make every word short: the remainder is moved
     * separately. */
    const int64_t whole = bytes / 16 * 16;
    char *to = (char *)y->data;
    const char *from = (const char *)x->data;
    BY_TRY(move_blocks(cuda_exec_of(e), false, to, whole, 0, from, whole, 0, whole, 1));
    return move_blocks(cuda_exec_of(e), false, to + whole, bytes - whole, 0, from + whole, bytes - whole, 0,
                       bytes - whole, 1);
}

extern "C" by_status cuda_copy(gr_exec *e, gr_node *n)
{
    BY_BRANCH("copy");
    return copy_all(e, n->in[0], n->out[0]);
}

extern "C" by_status cuda_store(gr_exec *e, gr_node *n)
{
    BY_BRANCH("store");
    return copy_all(e, n->in[0], n->in[1]);
}

extern "C" by_status cuda_reshape(gr_exec *, gr_node *)
{
    return BY_OK;
}

/* A tensor is seen as (outer, axis, inner). */
extern "C" by_status cuda_slice(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const gr_slice_attr *a = (const gr_slice_attr *)n->attr;
    const int64_t inner = product(x, a->axis + 1, x->rank) * size_of(x), taken = a->count * inner;
    BY_BRANCH("slice");
    return move_blocks(cuda_exec_of(e), false, (char *)n->out[0]->data, taken, 0, (const char *)x->data,
                       x->dim[a->axis] * inner, a->start * inner, taken, product(x, 0, a->axis));
}

extern "C" by_status cuda_pad(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const gr_slice_attr *a = (const gr_slice_attr *)n->attr;
    const int64_t inner = product(x, a->axis + 1, x->rank) * size_of(x), filled = x->dim[a->axis] * inner;
    BY_BRANCH("pad");
    return move_blocks(cuda_exec_of(e), true, (char *)n->out[0]->data, a->count * inner, a->start * inner,
                       (const char *)x->data, filled, 0, filled, product(x, 0, a->axis));
}

extern "C" by_status cuda_concat(gr_exec *e, gr_node *n)
{
    const by_tensor *y = n->out[0];
    const int axis = ((const gr_slice_attr *)n->attr)->axis;
    const int64_t inner = product(y, axis + 1, y->rank) * size_of(y);
    int64_t before = 0;
    BY_BRANCH("concat");
    for (int i = 0; i < n->n_in; i++) {
        const by_tensor *x = n->in[i];
        if (!x)
            continue;
        const int64_t part = x->dim[axis] * inner;
        BY_TRY(move_blocks(cuda_exec_of(e), false, (char *)y->data, y->dim[axis] * inner, before,
                           (const char *)x->data, part, 0, part, product(y, 0, axis)));
        before += part;
    }
    return BY_OK;
}

/* ---- permute --------------------------------------------------------------------------------- */

/* A permutation with as few axes as possible: output axis i has dim[i] words, which are from[i] words apart
 * in the input and to[i] apart in the output. The rank is at least 1. */
struct moves {
    int rank;
    int64_t dim[BY_MAX_RANK], from[BY_MAX_RANK], to[BY_MAX_RANK];
};

/* Removes axes of one element, and merges adjacent axes that are adjacent in the input as well. */
static moves collapse(const by_tensor *x, const int *order)
{
    moves m = {};
    for (int i = 0; i < x->rank; i++) {
        const int64_t dim = x->dim[order[i]], stride = product(x, order[i] + 1, x->rank);
        const int last = m.rank - 1;
        if (dim == 1)
            continue;
        if (m.rank > 0 && m.from[last] == dim * stride) {
            m.dim[last] *= dim;
            m.from[last] = stride;
        } else {
            m.dim[m.rank] = dim;
            m.from[m.rank++] = stride;
        }
    }
    if (m.rank == 0) {
        m.rank = 1;
        m.dim[0] = m.from[0] = 1;
    }
    for (int64_t a = m.rank - 1, step = 1; a >= 0; a--) {
        m.to[a] = step;
        step *= m.dim[a];
    }
    return m;
}

/* Returns where index `i` over all the axes starts in the input, and sets where it starts in the output. */
static __device__ __forceinline__ int64_t source_of(const moves &m, int64_t i, int64_t *to)
{
    int64_t from = 0;
    *to = 0;
    BY_UNROLL
    for (int a = BY_MAX_RANK - 1; a >= 0; a--) {
        int64_t at;
        if (a >= m.rank)
            continue;
        i = divide(i, m.dim[a], &at);
        from += at * m.from[a];
        *to += at * m.to[a];
    }
    return from;
}

/* The last axis is contiguous on both sides. */
template <class W>
static __global__ void __launch_bounds__(THREADS) permute_runs(W *y, const W *x, moves m, int64_t count)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t to;
    if (i < count)
        y[i] = x[source_of(m, i, &to)];
}

template <class W>
static by_status launch_runs(cuda_exec *x, void *y, const void *from, const moves &m, int64_t count)
{
    return cuda_launch(x, permute_runs<W>, blocks_for(count, THREADS), THREADS, 0, (W *)y, (const W *)from, m,
                       count);
}

static by_status runs(cuda_exec *x, gr_node *n, moves m, int64_t size)
{
    int64_t run = m.dim[m.rank - 1] * size, all = run | 16, count = run;
    for (int a = 0; a < m.rank - 1; a++) {
        all |= m.from[a] * size;
        count *= m.dim[a];
    }
    const int word = (int)(all & -all);
    for (int a = 0; a < m.rank - 1; a++)
        m.from[a] = m.from[a] * size / word;
    m.dim[m.rank - 1] = run / word;
    BY_WORDS(word, launch_runs, x, n->out[0]->data, n->in[0]->data, m, count / word)
}

enum { TILE = 32 };

/* y[to + j * to_stride + i] = x[from + i * from_stride + j], i < rows, j < cols, for every plane of the other
 * axes, tile by tile: blocks of (TILE, TILE / 4) threads. */
template <class W>
static __global__ void __launch_bounds__(TILE *TILE / 4)
    permute_planes(W *y, const W *x, moves planes, int64_t rows, int64_t cols, int64_t to_stride,
                   int64_t from_stride, int64_t bands)
{
    __shared__ W tile[TILE][TILE + 1];
    int64_t band, to, i0, j0;
    const int64_t plane_row = divide(blockIdx.x, bands, &band);
    const int64_t plane = divide(plane_row, (rows + TILE - 1) / TILE, &i0);
    const int64_t from = source_of(planes, plane, &to);
    i0 *= TILE;
    j0 = band * TILE;
    for (int k = threadIdx.y; k < TILE; k += TILE / 4)
        if (i0 + k < rows && j0 + threadIdx.x < cols)
            tile[k][threadIdx.x] = x[from + (i0 + k) * from_stride + j0 + threadIdx.x];
    __syncthreads();
    for (int k = threadIdx.y; k < TILE; k += TILE / 4)
        if (j0 + k < cols && i0 + threadIdx.x < rows)
            y[to + (j0 + k) * to_stride + i0 + threadIdx.x] = tile[threadIdx.x][k];
}

/* The last axis of the output differs from that of the input: transposes planes of (axis `fast`, last axis),
 * where `fast` is the axis along which the input is contiguous. */
template <class W> static by_status planes_of(cuda_exec *x, gr_node *n, const moves &m)
{
    const int last = m.rank - 1;
    int fast = 0;
    while (m.from[fast] != 1)
        fast++;
    moves others = {};
    int64_t planes = 1;
    for (int a = 0; a < last; a++) {
        if (a == fast)
            continue;
        others.dim[others.rank] = m.dim[a];
        others.from[others.rank] = m.from[a];
        others.to[others.rank++] = m.to[a];
        planes *= m.dim[a];
    }
    const int64_t rows = m.dim[last], cols = m.dim[fast], bands = blocks_for(cols, TILE);
    return cuda_launch(x, permute_planes<W>, (unsigned)(planes * bands * blocks_for(rows, TILE)),
                       dim3(TILE, TILE / 4), 0, (W *)n->out[0]->data, (const W *)n->in[0]->data, others, rows,
                       cols, m.to[fast], m.from[last], bands);
}

extern "C" by_status cuda_permute(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const moves m = collapse(x, ((const gr_permute_attr *)n->attr)->order);
    if (elements_of(x) == 0)
        return BY_OK;
    if (m.from[m.rank - 1] == 1) {
        BY_BRANCH("permute, last axis in place");
        return runs(cuda_exec_of(e), n, m, size_of(x));
    }
    BY_BRANCH("permute, last axis moved");
    BY_WORDS((int)size_of(x), planes_of, cuda_exec_of(e), n, m)
}
