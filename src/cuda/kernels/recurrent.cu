/* recurrent.cu - recurrent layers over whole sequences and their gradients. One kernel goes through all positions, if W_hh
 * fits into the shared memory of all multiprocessors (recurrent_resident.cuh). Otherwise, and for a single position, there is
 * a kernel for each, which multiplies the states with W_hh and applies the cell. */
#include "cuda/kernels/recurrent_resident.cuh"

enum { SIDE = 16, MOST_GATES = 4 }; /* rows and units of a block */

static inline size_t whole(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

template <class T> static const T *data_of(const by_tensor *t)
{
    return t ? (const T *)t->data : NULL;
}
template <class T> static T *room_of(by_tensor *t)
{
    return t ? (T *)t->data : NULL;
}

/* ---- forward ------------------------------------------------------------------------------------ */

/* The gaps after rows are zeros. */
template <class T> static __global__ void begin_states(recurrent_args<T> a)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (int64_t)a.batch * a.pitch)
        return;
    const int64_t row = i / a.pitch, unit = i % a.pitch, at = row * a.width + unit;
    a.state[0][i] = unit < a.width && a.h0 ? a.h0[at] : from_float<T>(0);
    a.state[1][i] = from_float<T>(0);
    if (unit < a.width)
        a.c[at] = a.c0 ? to_float(a.c0[at]) : 0.0f;
}

/* A block has SIDE rows and SIDE units with all their gates. */
template <class T> static __global__ void forward_step(recurrent_args<T> a, int step)
{
    __shared__ float h[SIDE][SIDE + 1], w[MOST_GATES][SIDE][SIDE + 1];
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE, gates = a.wide / a.width;
    const int row = (int)blockIdx.y * SIDE + ty, unit = (int)blockIdx.x * SIDE + tx;
    const int mine = (int)blockIdx.x * SIDE + ty; /* the unit whose weights this thread loads */
    const T *state = a.state[step & 1];
    float sum[MOST_GATES] = {0, 0, 0, 0};
    for (int k0 = 0; k0 < a.width; k0 += SIDE) {
        const int k = k0 + tx;
        h[ty][tx] = row < a.batch && k < a.width ? to_float(state[(int64_t)row * a.pitch + k]) : 0.0f;
        for (int g = 0; g < gates; g++)
            w[g][ty][tx] = mine < a.width && k < a.width
                               ? to_float(a.w[((int64_t)g * a.width + mine) * a.width + k])
                               : 0.0f;
        __syncthreads();
        for (int i = 0; i < SIDE; i++)
            for (int g = 0; g < gates; g++)
                sum[g] += h[ty][i] * w[g][tx][i];
        __syncthreads();
    }
    if (row < a.batch && unit < a.width)
        unit_step(a, step, row, unit, sum);
}

template <class T> static recurrent_args<T> forward_args(const gr_node *n)
{
    const gr_recurrent_attr *attr = (const gr_recurrent_attr *)n->attr;
    recurrent_args<T> a = {};
    a.cell = attr->cell;
    a.reverse = attr->reverse;
    a.batch = (int)n->in[GR_REC_GATES]->dim[0];
    a.length = (int)n->in[GR_REC_GATES]->dim[1];
    a.width = (int)n->in[GR_REC_W]->dim[1];
    a.wide = (int)n->in[GR_REC_W]->dim[0];
    a.x = data_of<T>(n->in[GR_REC_GATES]);
    a.w = data_of<T>(n->in[GR_REC_W]);
    a.b = data_of<T>(n->in[GR_REC_B]);
    a.mask = data_of<int32_t>(n->in[GR_REC_MASK]);
    a.h0 = data_of<T>(n->in[GR_REC_H]);
    a.c0 = data_of<T>(n->in[GR_REC_C]);
    a.y = room_of<T>(n->out[GR_REC_Y]);
    a.last_h = room_of<T>(n->out[GR_REC_LAST_H]);
    a.last_c = room_of<T>(n->out[GR_REC_LAST_C]);
    a.saved = room_of<T>(n->out[GR_REC_SAVED]);
    a.cells = room_of<float>(n->out[GR_REC_CELLS]);
    return a;
}

template <class T> static by_status forward(cuda_exec *x, gr_node *n)
{
    recurrent_args<T> a = forward_args<T>(n);
    layer_shape s = {};
    const bool resident =
        a.length > 1 && layer_shape_of(x->cuda, sizeof(T), a.cell, a.batch, a.width, false, &s);
    a.pitch = resident ? s.pitch : a.width;
    const int64_t count = (int64_t)a.batch * a.pitch;
    const size_t state = whole((size_t)count * sizeof(T));
    char *memory = (char *)cuda_scratch(x, 2 * state + (size_t)count * sizeof(float));
    a.state[0] = (T *)memory;
    a.state[1] = (T *)(memory + state);
    a.c = (float *)(memory + 2 * state);
    BY_TRY(cuda_launch(x, begin_states<T>, blocks_for(count, 256), 256, 0, a));
    if (resident) {
        BY_BRANCH("recurrent, one kernel");
        return run_layer<T, false>(x, a, s, a.length);
    }
    BY_BRANCH("recurrent, position by position");
    for (int step = 0; step < a.length; step++)
        BY_TRY(cuda_launch(x, forward_step<T>, dim3(blocks_for(a.width, SIDE), blocks_for(a.batch, SIDE)),
                           SIDE * SIDE, 0, a, step));
    return BY_OK;
}

/* ---- backward ----------------------------------------------------------------------------------- */

template <class T> static __global__ void begin_grads(recurrent_grad_args<T> a)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (int64_t)a.batch * a.pitch)
        a.state[0][i] = a.state[1][i] = from_float<T>(0);
    if (i < (int64_t)a.batch * a.width) {
        a.dh[i] = a.dlast_h ? to_float(a.dlast_h[i]) : 0.0f;
        a.dc[i] = a.dlast_c ? to_float(a.dlast_c[i]) : 0.0f;
    }
    if (i >= a.batch)
        return;
    int last = -1;
    for (int step = 0; step < a.length; step++) {
        const int64_t at = i * a.length + position(a, step);
        a.last[at] = last;
        if (!a.mask || a.mask[at] != 0)
            last = position(a, step);
    }
}

/* One position, after that the gradient of the initial state: step -1. */
template <class T> static __global__ void backward_step(recurrent_grad_args<T> a, int step)
{
    __shared__ float d[SIDE][SIDE + 1], w[SIDE][SIDE + 1];
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    const int row = (int)blockIdx.y * SIDE + ty, unit = (int)blockIdx.x * SIDE + tx;
    const T *state = a.state[(step + 1) & 1];
    const int depth = step + 1 < a.length ? a.wide : 0; /* nothing comes after the last */
    float sum = 0;
    for (int k0 = 0; k0 < depth; k0 += SIDE) {
        const int k = k0 + tx, down = k0 + ty;
        d[ty][tx] = row < a.batch && k < a.wide ? to_float(state[(int64_t)row * a.pitch + k]) : 0.0f;
        w[ty][tx] = down < a.wide && unit < a.width ? to_float(a.w[(int64_t)down * a.width + unit]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < SIDE; i++)
            sum += d[ty][i] * w[i][tx];
        __syncthreads();
    }
    if (row >= a.batch || unit >= a.width)
        return;
    if (step >= 0)
        unit_back(a, step, row, unit, sum);
    else
        a.dh0[(int64_t)row * a.width + unit] = from_float<T>(a.dh[(int64_t)row * a.width + unit] + sum);
}

template <class T> static __global__ void end_grads(recurrent_grad_args<T> a)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < (int64_t)a.batch * a.width)
        a.dc0[i] = from_float<T>(a.dc[i]);
}

template <class T> static recurrent_grad_args<T> backward_args(const gr_node *n)
{
    const gr_recurrent_attr *attr = (const gr_recurrent_attr *)n->attr;
    recurrent_grad_args<T> a = {};
    a.cell = attr->cell;
    a.reverse = attr->reverse;
    a.batch = (int)n->in[GR_REC_GRAD_Y]->dim[0];
    a.length = (int)n->in[GR_REC_GRAD_Y]->dim[1];
    a.width = (int)n->in[GR_REC_GRAD_W]->dim[1];
    a.wide = (int)n->in[GR_REC_GRAD_W]->dim[0];
    a.w = data_of<T>(n->in[GR_REC_GRAD_W]);
    a.mask = data_of<int32_t>(n->in[GR_REC_GRAD_MASK]);
    a.h0 = data_of<T>(n->in[GR_REC_GRAD_H]);
    a.c0 = data_of<T>(n->in[GR_REC_GRAD_C]);
    a.y = data_of<T>(n->in[GR_REC_GRAD_Y]);
    a.saved = data_of<T>(n->in[GR_REC_GRAD_SAVED]);
    a.cells = data_of<float>(n->in[GR_REC_GRAD_CELLS]);
    a.dy = data_of<T>(n->in[GR_REC_GRAD_DY]);
    a.dlast_h = data_of<T>(n->in[GR_REC_GRAD_DH]);
    a.dlast_c = data_of<T>(n->in[GR_REC_GRAD_DC]);
    a.dgates = room_of<T>(n->out[GR_REC_DGATES]);
    a.dhidden = room_of<T>(n->out[GR_REC_DHIDDEN]);
    a.before = room_of<T>(n->out[GR_REC_BEFORE]);
    a.dh0 = room_of<T>(n->out[GR_REC_DH]);
    a.dc0 = room_of<T>(n->out[GR_REC_DC]);
    return a;
}

template <class T> static by_status backward(cuda_exec *x, gr_node *n)
{
    recurrent_grad_args<T> a = backward_args<T>(n);
    layer_shape s = {};
    const bool resident =
        a.length > 1 && layer_shape_of(x->cuda, sizeof(T), a.cell, a.batch, a.width, true, &s);
    a.pitch = resident ? s.pitch : a.wide;
    const int64_t count = (int64_t)a.batch * a.width, all = (int64_t)a.batch * a.pitch;
    const size_t hidden = whole((size_t)all * sizeof(T)), state = whole((size_t)count * sizeof(float)),
                 places = (size_t)a.batch * (size_t)a.length * sizeof(int32_t);
    char *memory = (char *)cuda_scratch(x, 2 * hidden + 2 * state + places);
    a.state[0] = (T *)memory;
    a.state[1] = (T *)(memory + hidden);
    a.dh = (float *)(memory + 2 * hidden);
    a.dc = (float *)(memory + 2 * hidden + state);
    a.last = (int32_t *)(memory + 2 * hidden + 2 * state);
    BY_TRY(cuda_launch(x, begin_grads<T>, blocks_for(all, 256), 256, 0, a));
    if (resident) {
        BY_BRANCH("recurrent_grad, one kernel");
        BY_TRY((run_layer<T, true>(x, a, s, a.length + (a.dh0 != NULL))));
    } else {
        BY_BRANCH("recurrent_grad, position by position");
    }
    for (int step = a.length - 1; !resident && step >= (a.dh0 ? -1 : 0); step--)
        BY_TRY(cuda_launch(x, backward_step<T>, dim3(blocks_for(a.width, SIDE), blocks_for(a.batch, SIDE)),
                           SIDE * SIDE, 0, a, step));
    return a.dc0 ? cuda_launch(x, end_grads<T>, blocks_for(count, 256), 256, 0, a) : BY_OK;
}

extern "C" by_status cuda_recurrent(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->in[GR_REC_GATES]->type, forward, cuda_exec_of(e), n)
}

extern "C" by_status cuda_recurrent_grad(gr_exec *e, gr_node *n)
{
    BY_CUDA_DISPATCH(n->in[GR_REC_GRAD_Y]->type, backward, cuda_exec_of(e), n)
}
