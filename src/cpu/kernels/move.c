/* move.c - ops that only move or convert data: fill, copy, cast, reshape, permute, slice, pad, concat. All
 * except cast treat elements as 1, 2, 4 or 8 bytes. */
#include "cpu/kernels/kernel.h"

#define COPY_BYTES 65536 /* bytes per task */

/* dst and src have `count` blocks of `bytes` bytes, at their own strides. Short blocks of element size are
 * copied by a loop of fixed size, others by memcpy; a few long ones are split over the threads. */
static void copy_blocks(const gr_exec *e, char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                        int64_t bytes, int64_t count)
{
    if (bytes == dst_stride && bytes == src_stride) { /* one block */
        bytes *= count;
        count = 1;
    }
    const int64_t cuts = count > 1 ? 1 : (bytes + COPY_BYTES - 1) / COPY_BYTES;
    const int64_t piece = count > 1 ? bytes : COPY_BYTES, tasks = count * cuts;
    const bool fork = bytes * count >= 4 * BY_FORK_ELEMENTS;
#define FIXED(size)                                                                                         \
    case size:                                                                                              \
        _Pragma("omp parallel for schedule(static) num_threads(e->threads) if (fork)") for (int64_t i = 0;  \
                                                                                            i < tasks; i++) \
            memcpy(dst + i * dst_stride, src + i * src_stride, size);                                       \
        return

    if (count > 1) {
        switch (bytes) {
            FIXED(1);
            FIXED(2);
            FIXED(4);
            FIXED(8);
            FIXED(16);
        default:
            break;
        }
    }
#undef FIXED
#pragma omp parallel for schedule(static) num_threads(e->threads) if (fork)
    for (int64_t i = 0; i < tasks; i++) {
        int64_t block = i / cuts, at = i % cuts * piece;
        memcpy(dst + block * dst_stride + at, src + block * src_stride + at,
               (size_t)BY_MIN(piece, bytes - at));
    }
}

/* Returns the product of dim[from .. to - 1]. */
static int64_t product(const by_tensor *t, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++)
        p *= t->dim[i];
    return p;
}

static int64_t elements(const by_tensor *t)
{
    return product(t, 0, t->rank);
}

by_status KERNEL(fill)(gr_exec *e, gr_node *n)
{
    by_tensor *y = n->out[0];
    const double value = ((const gr_fill_attr *)n->attr)->value;
    const int64_t size = (int64_t)by_dtype_size(y->type), count = elements(y);
    char element[8], pattern[512];
    base_convert(element, y->type, &value, BY_F64, 1);
    for (int i = 0; i < (int)sizeof pattern; i++)
        pattern[i] = element[i % size];
    const int64_t bytes = count * size, tasks = (bytes + COPY_BYTES - 1) / COPY_BYTES;
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t end = BY_MIN((i + 1) * COPY_BYTES, bytes);
        for (int64_t at = i * COPY_BYTES; at < end; at += (int64_t)sizeof pattern)
            memcpy((char *)y->data + at, pattern, (size_t)BY_MIN((int64_t)sizeof pattern, end - at));
    }
    return BY_OK;
}

static by_status copy_all(gr_exec *e, const by_tensor *from, by_tensor *to)
{
    const int64_t bytes = elements(from) * (int64_t)by_dtype_size(from->type);
    copy_blocks(e, to->data, bytes, from->data, bytes, bytes, 1);
    return BY_OK;
}

by_status KERNEL(copy)(gr_exec *e, gr_node *n)
{
    return copy_all(e, n->in[0], n->out[0]);
}

by_status KERNEL(store)(gr_exec *e, gr_node *n)
{
    return copy_all(e, n->in[0], n->in[1]);
}

by_status KERNEL(reshape)(gr_exec *e, gr_node *n)
{
    (void)e;
    (void)n;
    return BY_OK;
}

/* ---- cast ----------------------------------------------------------------------------------- */

typedef void (*convert_fn)(void *y, const void *x, int64_t count);

#define CONVERT(name, D, S, expr)                                                  \
    static void name(void *y_, const void *x_, int64_t count)                      \
    {                                                                              \
        D *restrict y = y_;                                                        \
        const S *restrict x = x_;                                                  \
        _Pragma("omp simd") for (int64_t i = 0; i < count; i++) y[i] = expr(x[i]); \
    }
CONVERT(f32_to_bf16, uint16_t, float, cpu_bf16_store)
CONVERT(f32_to_f16, uint16_t, float, cpu_f16_store)
CONVERT(bf16_to_f32, float, uint16_t, base_bf16_to_f32)
CONVERT(f16_to_f32, float, uint16_t, cpu_f16_load)

/* Mixed-precision pairs have their own loops; base_convert does the others. */
static convert_fn direct(by_dtype to, by_dtype from)
{
    if (from == BY_F32)
        return to == BY_BF16 ? f32_to_bf16 : to == BY_F16 ? f32_to_f16 : NULL;
    if (to == BY_F32)
        return from == BY_BF16 ? bf16_to_f32 : from == BY_F16 ? f16_to_f32 : NULL;
    return NULL;
}

by_status KERNEL(cast)(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    by_tensor *y = n->out[0];
    const int64_t count = elements(x), chunk = 8192, tasks = (count + chunk - 1) / chunk;
    const int64_t x_size = (int64_t)by_dtype_size(x->type), y_size = (int64_t)by_dtype_size(y->type);
    const convert_fn convert = direct(y->type, x->type);
    if (convert)
        BY_BRANCH("cast between f32 and 16 bits");
    else
        BY_BRANCH("cast of other types");
#pragma omp parallel for schedule(static) num_threads(e->threads) if (count >= BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t part = BY_MIN(chunk, count - i * chunk);
        const char *from = (const char *)x->data + i * chunk * x_size;
        char *to = (char *)y->data + i * chunk * y_size;
        if (convert)
            convert(to, from, part);
        else
            base_convert(to, y->type, from, x->type, (size_t)part);
    }
    return BY_OK;
}

/* ---- permute -------------------------------------------------------------------------------- */

/* A permutation with as few axes as possible: output axis i has dim[i] elements, which are stride[i] elements
 * apart in the input. The rank is at least 1. */
typedef struct moves {
    int rank;
    int64_t dim[BY_MAX_RANK], stride[BY_MAX_RANK];
} moves;

/* Removes axes of one element, and merges adjacent axes that are adjacent in the input as well. */
static moves collapse(const by_tensor *x, const int *order)
{
    moves m = {0};
    for (int i = 0; i < x->rank; i++) {
        const int64_t dim = x->dim[order[i]], stride = product(x, order[i] + 1, x->rank);
        const int last = m.rank - 1;
        if (dim == 1)
            continue;
        if (m.rank > 0 && m.stride[last] == dim * stride) {
            m.dim[last] *= dim;
            m.stride[last] = stride;
        } else {
            m.dim[m.rank] = dim;
            m.stride[m.rank++] = stride;
        }
    }
    if (m.rank == 0)
        m = (moves){.rank = 1, .dim = {1}, .stride = {1}};
    return m;
}

/* Returns where output index `i`, counted over axes [0, axes) except `skip`, starts in the input, and sets
 * *out to where it starts in the output. */
static int64_t source_of(const moves *m, int axes, int skip, int64_t i, int64_t *out)
{
    int64_t from = 0, to = 0, step = 1;
    for (int a = m->rank - 1; a >= 0; a--) {
        if (a < axes && a != skip) {
            from += i % m->dim[a] * m->stride[a];
            to += i % m->dim[a] * step;
            i /= m->dim[a];
        }
        step *= m->dim[a];
    }
    *out = to;
    return from;
}

#define TILE 32

/* dst[j * dst_stride + i] = src[i * src_stride + j], i < rows, j < cols: one tile, through a copy. Strides
 * are often powers of two, whose rows would evict each other from the cache; with the copy, every line is
 * touched once. */
#define TRANSPOSE(name, type)                                                                            \
    static void name(char *dst_, int64_t dst_stride, const char *src_, int64_t src_stride, int64_t rows, \
                     int64_t cols)                                                                       \
    {                                                                                                    \
        type *restrict dst = (type *)(void *)dst_;                                                       \
        const type *restrict src = (const type *)(const void *)src_;                                     \
        type tile[TILE][TILE + 1];                                                                       \
        for (int64_t i = 0; i < rows; i++)                                                               \
            for (int64_t j = 0; j < cols; j++)                                                           \
                tile[j][i] = src[i * src_stride + j];                                                    \
        for (int64_t j = 0; j < cols; j++)                                                               \
            memcpy(dst + j * dst_stride, tile[j], (size_t)rows * sizeof *dst);                           \
    }
TRANSPOSE(transpose_1, uint8_t)
TRANSPOSE(transpose_2, uint16_t)
TRANSPOSE(transpose_4, uint32_t)
TRANSPOSE(transpose_8, uint64_t)

/* The last axis of the output differs from that of the input: transposes planes of (axis `fast`, last axis)
 * tile by tile, where `fast` is the axis along which the input is contiguous. */
static void permute_planes(const gr_exec *e, const moves *m, char *y, const char *x, int64_t size)
{
    const int last = m->rank - 1;
    int fast = 0;
    while (m->stride[fast] != 1)
        fast++;
    int64_t planes = 1, dst_stride = 1;
    for (int a = 0; a < last; a++) {
        planes *= a == fast ? 1 : m->dim[a];
        dst_stride *= a >= fast ? m->dim[a + 1] : 1;
    }
    const int64_t rows = m->dim[last], cols = m->dim[fast], src_stride = m->stride[last];
    const int64_t bands = (cols + TILE - 1) / TILE, tasks = planes * bands;
    void (*transpose)(char *, int64_t, const char *, int64_t, int64_t, int64_t) = size == 8   ? transpose_8
                                                                                  : size == 4 ? transpose_4
                                                                                  : size == 2 ? transpose_2
                                                                                              : transpose_1;
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (planes * rows * cols >= BY_FORK_ELEMENTS)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t to, from = source_of(m, last, fast, t / bands, &to);
        const int64_t j = t % bands * TILE, width = BY_MIN(TILE, cols - j);
        for (int64_t i = 0; i < rows; i += TILE)
            transpose(y + (to + j * dst_stride + i) * size, dst_stride,
                      x + (from + i * src_stride + j) * size, src_stride, BY_MIN(TILE, rows - i), width);
    }
}

/* The last axis is contiguous on both sides: copies runs of it, all those of the second last axis at a
 * time. */
static void permute_runs(const gr_exec *e, const moves *m, char *y, const char *x, int64_t size)
{
    const int last = m->rank - 1;
    const int64_t run = m->dim[last] * size;
    if (m->rank < 3) {
        copy_blocks(e, y, run, x, m->rank == 2 ? m->stride[0] * size : run, run,
                    m->rank == 2 ? m->dim[0] : 1);
        return;
    }
    const gr_exec alone = {.threads = 1};
    const int64_t inner = m->dim[last - 1], stride = m->stride[last - 1] * size;
    int64_t outer = 1;
    for (int a = 0; a < last - 1; a++)
        outer *= m->dim[a];
#pragma omp parallel for schedule(static) \
    num_threads(e->threads) if (outer * inner * run >= 4 * BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < outer; i++) {
        int64_t to, from = source_of(m, last - 1, -1, i, &to);
        copy_blocks(&alone, y + to * size, run, x + from * size, stride, run, inner);
    }
}

by_status KERNEL(permute)(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const moves m = collapse(x, ((const gr_permute_attr *)n->attr)->order);
    const int64_t size = (int64_t)by_dtype_size(x->type);
    if (elements(x) == 0)
        return BY_OK;
    if (m.stride[m.rank - 1] == 1) {
        BY_BRANCH("permute, last axis in place");
        permute_runs(e, &m, n->out[0]->data, x->data, size);
    } else {
        BY_BRANCH("permute, last axis moved");
        permute_planes(e, &m, n->out[0]->data, x->data, size);
    }
    return BY_OK;
}

/* ---- slice, pad, concat: a tensor is seen as (outer, axis, inner) --------------------------- */

by_status KERNEL(slice)(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const gr_slice_attr *a = n->attr;
    const int64_t inner = product(x, a->axis + 1, x->rank) * (int64_t)by_dtype_size(x->type);
    const int64_t taken = a->count * inner;
    copy_blocks(e, n->out[0]->data, taken, (const char *)x->data + a->start * inner, x->dim[a->axis] * inner,
                taken, product(x, 0, a->axis));
    return BY_OK;
}

by_status KERNEL(pad)(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[0];
    const gr_slice_attr *a = n->attr;
    const int64_t inner = product(x, a->axis + 1, x->rank) * (int64_t)by_dtype_size(x->type);
    const int64_t filled = x->dim[a->axis] * inner, before = a->start * inner, whole = a->count * inner;
    const int64_t outer = product(x, 0, a->axis);
    char *y = n->out[0]->data;
    copy_blocks(e, y + before, whole, x->data, filled, filled, outer);
#pragma omp parallel for schedule(static) num_threads(e->threads) if (outer * whole >= 4 * BY_FORK_ELEMENTS)
    for (int64_t i = 0; i < outer; i++) {
        memset(y + i * whole, 0, (size_t)before);
        memset(y + i * whole + before + filled, 0, (size_t)(whole - before - filled));
    }
    return BY_OK;
}

by_status KERNEL(concat)(gr_exec *e, gr_node *n)
{
    const by_tensor *y = n->out[0];
    const int axis = ((const gr_slice_attr *)n->attr)->axis;
    const int64_t inner = product(y, axis + 1, y->rank) * (int64_t)by_dtype_size(y->type);
    char *at = y->data;
    for (int i = 0; i < n->n_in; i++) {
        const by_tensor *x = n->in[i];
        if (!x)
            continue;
        const int64_t part = x->dim[axis] * inner;
        copy_blocks(e, at, y->dim[axis] * inner, x->data, part, part, product(y, 0, axis));
        at += part;
    }
    return BY_OK;
}
