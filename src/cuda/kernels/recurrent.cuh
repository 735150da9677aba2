/* recurrent.cuh - a node of recurrent or recurrent_grad, and the cells, one unit of one row at a time. */
#ifndef BY_CUDA_KERNELS_RECURRENT_CUH
#define BY_CUDA_KERNELS_RECURRENT_CUH

#include "cuda/kernels/act.cuh"

/* Shapes as in src/graph/graph.h; pointers of missing tensors are NULL. */
template <class T> struct recurrent_args {
    by_cell cell;
    bool reverse;
    int batch, length, width, wide; /* wide: of all gates */
    const T *x, *w, *b, *h0, *c0;
    const int32_t *mask;
    T *y, *last_h, *last_c, *saved;
    float *cells;
    /* working memory */
    T *state[2]; /* (B, H) each: h before a step and after it */
    int pitch;   /* elements from one of its rows to the next */
    float *c;    /* (B, H) */
};

/* The gradients: T *state are those of the hidden product, (B, G*H) each, read and written. */
template <class T> struct recurrent_grad_args {
    by_cell cell;
    bool reverse;
    int batch, length, width, wide;
    const T *w, *h0, *c0, *y, *saved, *dy, *dlast_h, *dlast_c;
    const float *cells;
    const int32_t *mask;
    T *dgates, *dhidden, *before, *dh0, *dc0;
    /* working memory */
    T *state[2];
    int pitch;
    float *dh, *dc; /* (B, H): the part of dh that does not go through W_hh */
    int32_t *last;  /* (B, T): the position whose state is that before a position, -1: the initial one */
};

template <class A> static __device__ __forceinline__ int position(const A &a, int step)
{
    return a.reverse ? a.length - 1 - step : step;
}

/* One unit at position t of a row. sum: of W_hh h for each gate. Returns h. */
template <class T>
static __device__ __forceinline__ float cell_step(const recurrent_args<T> &a, int row, int t, int unit,
                                                  const float *sum, float before)
{
    const int w = a.width;
    const int64_t at = (int64_t)row * a.length + t;
    const T *x = a.x + at * a.wide + unit;
    float v[4], own[4];
    const int gates = a.cell == BY_CELL_LSTM ? 4 : a.cell == BY_CELL_GRU ? 3 : 1;
    for (int g = 0; g < gates; g++) {
        own[g] = sum[g] + (a.b ? to_float(a.b[g * w + unit]) : 0.0f);
        v[g] = to_float(x[(int64_t)g * w]);
    }
    float h;
    if (a.cell == BY_CELL_LSTM) {
        float *c = a.c + (int64_t)row * w + unit;
        for (int g = 0; g < 4; g++)
            v[g] = g == 2 ? tanhf(v[g] + own[g]) : activate_as<T>(BY_SIGMOID, v[g] + own[g]);
        *c = v[1] * *c + v[0] * v[2];
        if (a.cells)
            a.cells[at * w + unit] = *c;
        h = v[3] * tanhf(*c);
    } else if (a.cell == BY_CELL_GRU) {
        v[0] = activate_as<T>(BY_SIGMOID, v[0] + own[0]);
        v[1] = activate_as<T>(BY_SIGMOID, v[1] + own[1]);
        v[2] = tanhf(v[2] + v[0] * own[2]);
        v[3] = own[2];
        h = (1 - v[1]) * v[2] + v[1] * before;
    } else {
        h = v[0] + own[0];
        h = a.cell == BY_CELL_RELU ? (h < 0 ? 0 : h) : tanhf(h);
    }
    for (int g = 0; a.saved && gates > 1 && g < 4; g++)
        a.saved[(at * 4 + g) * w + unit] = from_float<T>(v[g]);
    return h;
}

/* The same at any position: a masked position keeps the state, and its saved values are 0. */
template <class T>
static __device__ __forceinline__ void unit_step(const recurrent_args<T> &a, int step, int row, int unit,
                                                 const float *sum)
{
    const int t = position(a, step), w = a.width;
    const int64_t at = (int64_t)row * a.length + t, place = (int64_t)row * w + unit;
    const int64_t here = (int64_t)row * a.pitch + unit;
    const T before = a.state[step & 1][here];
    T h = before;
    const bool masked = a.mask && a.mask[at] == 0;
    if (!masked)
        h = from_float<T>(cell_step(a, row, t, unit, sum, to_float(before)));
    for (int g = 0; masked && a.saved && a.cell >= BY_CELL_LSTM && g < 4; g++)
        a.saved[(at * 4 + g) * w + unit] = from_float<T>(0);
    if (masked && a.cells)
        a.cells[at * w + unit] = 0;
    if (a.y)
        a.y[at * w + unit] = masked ? from_float<T>(0) : h;
    a.state[~step & 1][here] = h;
    if (step + 1 == a.length && a.last_h)
        a.last_h[place] = h;
    if (step + 1 == a.length && a.last_c)
        a.last_c[place] = from_float<T>(a.c[place]);
}

/* d: the gradients of the gates of one unit. dh: of h after the position; the part of that before it that
 * does not go through W_hh is returned. own: the gradient of the hidden product of gate n of a GRU. */
template <class T>
static __device__ __forceinline__ float cell_back(const recurrent_grad_args<T> &a, int row, int64_t at,
                                                  int unit, float dh, float before, float *d, float *own)
{
    const int w = a.width;
    float s[4];
    for (int g = 0; a.cell >= BY_CELL_LSTM && g < 4; g++)
        s[g] = to_float(a.saved[(at * 4 + g) * w + unit]);
    if (a.cell == BY_CELL_LSTM) {
        float *dc_at = a.dc + (int64_t)row * w + unit;
        const int last = a.last[at];
        const float c = last >= 0 ? a.cells[((int64_t)row * a.length + last) * w + unit]
                        : a.c0    ? to_float(a.c0[(int64_t)row * w + unit])
                                  : 0.0f;
        const float t = tanhf(a.cells[at * w + unit]), dc = *dc_at + dh * s[3] * (1 - t * t);
        d[0] = dc * s[2] * s[0] * (1 - s[0]);
        d[1] = dc * c * s[1] * (1 - s[1]);
        d[2] = dc * s[0] * (1 - s[2] * s[2]);
        d[3] = dh * t * s[3] * (1 - s[3]);
        *dc_at = dc * s[1];
        return 0;
    }
    if (a.cell == BY_CELL_GRU) {
        d[1] = dh * (before - s[2]) * s[1] * (1 - s[1]);
        d[2] = dh * (1 - s[1]) * (1 - s[2] * s[2]);
        d[0] = d[2] * s[3] * s[0] * (1 - s[0]);
        *own = d[2] * s[0];
        return dh * s[1];
    }
    const float y = to_float(a.y[at * w + unit]);
    d[0] = dh * (a.cell == BY_CELL_RELU ? (y > 0 ? 1.0f : 0.0f) : 1 - y * y);
    return 0;
}

/* The same at any position. sum: the gradient of h through W_hh from the next step. */
template <class T>
static __device__ __forceinline__ void unit_back(const recurrent_grad_args<T> &a, int step, int row, int unit,
                                                 float sum)
{
    const int t = position(a, step), w = a.width, gates = a.wide / w;
    const int64_t at = (int64_t)row * a.length + t, place = (int64_t)row * w + unit;
    const int last = a.last[at];
    const T zero = from_float<T>(0);
    const T before = last >= 0 ? a.y[((int64_t)row * a.length + last) * w + unit] : a.h0 ? a.h0[place] : zero;
    const bool masked = a.mask && a.mask[at] == 0;
    float d[4] = {0, 0, 0, 0}, own = 0, dh = a.dh[place] + sum;
    if (!masked) {
        dh += a.dy ? to_float(a.dy[at * w + unit]) : 0.0f;
        dh = cell_back(a, row, at, unit, dh, to_float(before), d, &own);
    }
    a.dh[place] = dh;
    for (int g = 0; g < gates; g++) {
        const T v = from_float<T>(d[g]), hidden = a.cell == BY_CELL_GRU && g == 2 ? from_float<T>(own) : v;
        a.state[step & 1][(int64_t)row * a.pitch + g * w + unit] = hidden;
        if (a.dgates)
            a.dgates[(at * gates + g) * w + unit] = v;
        if (a.dhidden)
            a.dhidden[(at * gates + g) * w + unit] = hidden;
    }
    if (a.before)
        a.before[at * w + unit] = before;
}

#endif
