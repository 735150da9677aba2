/* recurrent.c - recurrent layers over whole sequences, and their gradients. Over few positions: at each a
 * product of all states with W_hh, then the cell, row by row. Over more, see recurrent_packed.h. */
#ifndef T_NAME
#include "cpu/kernels/kernel.h"
#include "cpu/kernels/team.h"
#include "cpu/gemm_select.h"

/* A node of either op. */
typedef struct sequence {
    by_cell cell;
    bool reverse;
    int64_t batch, length, width, wide; /* wide: of all gates */
    const int32_t *mask;                /* NULL: none */
} sequence;

static sequence sequence_of(const gr_node *n, const by_tensor *y_like, const by_tensor *mask)
{
    const gr_recurrent_attr *a = n->attr;
    const by_tensor *w = n->in[n->op == GR_OP_RECURRENT ? GR_REC_W : GR_REC_GRAD_W];
    return (sequence){.cell = a->cell,
                      .reverse = a->reverse,
                      .batch = y_like->dim[0],
                      .length = y_like->dim[1],
                      .width = w->dim[1],
                      .wide = w->dim[0],
                      .mask = mask ? mask->data : NULL};
}

/* The position of step i. */
static int64_t position(const sequence *s, int64_t i)
{
    return s->reverse ? s->length - 1 - i : i;
}

static bool is_masked(const sequence *s, int64_t row, int64_t t)
{
    return s->mask && s->mask[row * s->length + t] == 0;
}

/* Packing reads and writes the weights once more, which pays only from this number of positions on. */
enum { PACK_LENGTH = 4 };

static bool is_packed(const sequence *s)
{
    return s->length >= PACK_LENGTH;
}

/* Minimum work between the barriers of two positions. */
static inline int team_threads(const gr_exec *e, const sequence *s)
{
    return s->batch * s->wide * s->width < 65536 ? 1 : e->threads;
}

/* Rows of a tile with 2, 3 and 4 vectors of columns: as many accumulators as fit in registers. */
#define TWO(v)    ROWS_CASE(1, v) ROWS_CASE(2, v)
#define THREE(v)  TWO(v) ROWS_CASE(3, v)
#define SIX(v)    THREE(v) ROWS_CASE(4, v) ROWS_CASE(5, v) ROWS_CASE(6, v)
#define EIGHT(v)  SIX(v) ROWS_CASE(7, v) ROWS_CASE(8, v)
#define TWELVE(v) EIGHT(v) ROWS_CASE(9, v) ROWS_CASE(10, v) ROWS_CASE(11, v) ROWS_CASE(12, v)
#if BY_ISA_LEVEL >= 2
enum { REC_ROWS_2 = 12, REC_ROWS_3 = 8, REC_ROWS_4 = 6 };
#define REC_CASES_2 TWELVE(2)
#define REC_CASES_3 EIGHT(3)
#define REC_CASES_4 SIX(4)
#else
enum { REC_ROWS_2 = 6, REC_ROWS_3 = 3, REC_ROWS_4 = 2 };
#define REC_CASES_2 SIX(2)
#define REC_CASES_3 THREE(3)
#define REC_CASES_4 TWO(4)
#endif

typedef float rec_vec_float __attribute__((vector_size(BY_VECTOR_BYTES), aligned(4), may_alias));
#define R float
#include "cpu/kernels/recurrent_tile.h"
#undef R
#if BY_ISA_LEVEL == 0
typedef double rec_vec_double __attribute__((vector_size(BY_VECTOR_BYTES), aligned(8), may_alias));
#define R double
#include "cpu/kernels/recurrent_tile.h"
#undef R
#endif

#define ROUND64(bytes) (((size_t)(bytes) + 63) / 64 * 64)

#define BY_TEMPLATE "cpu/kernels/recurrent.c"
#include "cpu/kernels/each_type.h"

static by_status plan_forward(gr_exec *e, gr_node *n)
{
    const by_tensor *x = n->in[GR_REC_GATES], *w = n->in[GR_REC_W], *b = n->in[GR_REC_B];
    const cpu_gemm_desc d = {.m = x->dim[0],
                             .n = w->dim[0],
                             .k = w->dim[1],
                             .tb = true,
                             .ab_type = x->type,
                             .c_type = gr_acc_type(x->type),
                             .bias = b != NULL,
                             .bias_type = b ? b->type : x->type};
    n->plan = cpu_gemm_new(e->device, &d);
    return n->plan ? BY_OK : base_error_status();
}

/* The gradients of gates and of the hidden product lie where the packed weights meet them: in the outputs. */
static bool is_packed_back(const gr_node *n, const sequence *s)
{
    return is_packed(s) && n->out[GR_REC_DGATES] && (s->cell != BY_CELL_GRU || n->out[GR_REC_DHIDDEN]);
}

static by_status plan_backward(gr_exec *e, gr_node *n)
{
    const by_tensor *y = n->in[GR_REC_GRAD_Y], *w = n->in[GR_REC_GRAD_W];
    const cpu_gemm_desc d = {.m = y->dim[0],
                             .n = w->dim[1],
                             .k = w->dim[0],
                             .ab_type = y->type,
                             .c_type = gr_acc_type(y->type),
                             .accumulate = true};
    n->plan = cpu_gemm_new(e->device, &d);
    return n->plan ? BY_OK : base_error_status();
}

by_status KERNEL(recurrent)(gr_exec *e, gr_node *n)
{
    const sequence s = sequence_of(n, n->in[GR_REC_GATES], n->in[GR_REC_MASK]);
    if (e->planning)
        return is_packed(&s) ? BY_OK : plan_forward(e, n);
    if (is_packed(&s))
        BY_DISPATCH(n->in[GR_REC_GATES]->type, forward_packed, e, n, &s);
    BY_DISPATCH(n->in[GR_REC_GATES]->type, forward, e, n, &s)
}

by_status KERNEL(recurrent_grad)(gr_exec *e, gr_node *n)
{
    const sequence s = sequence_of(n, n->in[GR_REC_GRAD_Y], n->in[GR_REC_GRAD_MASK]);
    if (e->planning)
        return is_packed_back(n, &s) ? BY_OK : plan_backward(e, n);
    if (is_packed_back(n, &s))
        BY_DISPATCH(n->in[GR_REC_GRAD_Y]->type, backward_packed, e, n, &s);
    BY_DISPATCH(n->in[GR_REC_GRAD_Y]->type, backward, e, n, &s)
}

#else /* ---- typed ----------------------------------------------------------------------------------- */

#include "cpu/kernels/recurrent_cells.h"

static void FN(load_state)(const by_tensor *from, int64_t count, R *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from ? LD(((const T *)from->data)[i]) : 0;
}

static void FN(store_state)(const R *from, int64_t count, by_tensor *to)
{
    for (int64_t i = 0; to && i < count; i++)
        ((T *)to->data)[i] = ST(from[i]);
}

static void *FN(at)(const by_tensor *t, int64_t offset)
{
    return t ? (T *)t->data + offset : NULL;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Working memory: states in R, h in T for the product, and what the product makes of it. */
typedef struct FN(states) {
    R *h, *c, *hidden;
    T *narrow;
} FN(states);

/* All units of a row at one position. */
static FN(units)
    FN(row_units)(const gr_node *n, const sequence *s, const FN(states) * m, int64_t row, int64_t t)
{
    const int64_t at = row * s->length + t, w = s->width;
    const by_tensor *cells = n->out[GR_REC_CELLS];
    return (FN(units)){.count = w,
                       .width = w,
                       .apart = w,
                       .x = (const T *)n->in[GR_REC_GATES]->data + at * s->wide,
                       .hidden = m->hidden + row * s->wide,
                       .before = m->h + row * w,
                       .h = m->h + row * w,
                       .c = m->c + row * w,
                       .y = FN(at)(n->out[GR_REC_Y], at * w),
                       .saved = FN(at)(n->out[GR_REC_SAVED], at * 4 * w),
                       .cells = cells ? (R *)cells->data + at * w : NULL};
}

static void FN(step)(gr_exec *e, const gr_node *n, const sequence *s, const FN(states) * m, int64_t t)
{
    (void)e; /* without OpenMP */
#pragma omp parallel for schedule(static) num_threads(e->threads) if (s->batch * s->wide > BY_FORK_ELEMENTS)
    for (int64_t row = 0; row < s->batch; row++) {
        const FN(units) u = FN(row_units)(n, s, m, row, t);
        if (is_masked(s, row, t))
            FN(no_cell)(s->cell, &u);
        else
            FN(cell)(s->cell, &u);
        for (int64_t j = 0; j < s->width; j++)
            m->narrow[row * s->width + j] = ST(u.h[j]);
    }
}

/* The product for zero states. */
static void FN(only_bias)(const by_tensor *b, const sequence *s, R *hidden)
{
    for (int64_t row = 0; row < s->batch; row++)
        FN(load_state)(b, s->wide, hidden + row * s->wide);
}

static by_status FN(forward_steps)(gr_exec *e, gr_node *n, const sequence *s, const FN(states) * m)
{
    const by_tensor *b = n->in[GR_REC_B];
    const int64_t count = s->batch * s->width;
    FN(load_state)(n->in[GR_REC_H], count, m->h);
    FN(load_state)(n->in[GR_REC_C], count, m->c);
    for (int64_t i = 0; i < count; i++)
        m->narrow[i] = ST(m->h[i]);
    for (int64_t i = 0; i < s->length; i++) {
        if (i == 0 && !n->in[GR_REC_H])
            FN(only_bias)(b, s, m->hidden);
        else
            BY_TRY(cpu_gemm_run(n->plan, m->narrow, n->in[GR_REC_W]->data, b ? b->data : NULL, m->hidden));
        FN(step)(e, n, s, m, position(s, i));
    }
    FN(store_state)(m->h, count, n->out[GR_REC_LAST_H]);
    FN(store_state)(m->c, count, n->out[GR_REC_LAST_C]);
    return BY_OK;
}

static by_status FN(forward)(gr_exec *e, gr_node *n, const sequence *s)
{
    const size_t state = ROUND64((size_t)(s->batch * s->width) * sizeof(R));
    char *memory = cpu_scratch_take(e->device, 3 * state + (size_t)(s->batch * s->wide) * sizeof(R));
    if (!memory)
        return BY_ERR_MEMORY;
    BY_BRANCH("recurrent, position by position " BY_STRING(T_NAME));
    const FN(states) m = {.h = (R *)memory,
                          .c = (R *)(memory + state),
                          .narrow = (T *)(memory + 2 * state),
                          .hidden = (R *)(memory + 3 * state)};
    by_status status = FN(forward_steps)(e, n, s, &m);
    cpu_scratch_give(e->device, memory);
    return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Working memory: gradients of the states, and of the hidden product in one piece. */
typedef struct FN(grads) {
    R *dh, *dc;
    T *dhidden;
    int32_t *before; /* (B, T): the position whose state is that before a position, -1: the initial one */
} FN(grads);

static void FN(find_before)(const sequence *s, int32_t *before)
{
    for (int64_t row = 0; row < s->batch; row++) {
        int32_t last = -1;
        for (int64_t i = 0; i < s->length; i++) {
            const int64_t t = position(s, i);
            before[row * s->length + t] = last;
            last = is_masked(s, row, t) ? last : (int32_t)t;
        }
    }
}

/* h before a position; NULL: zeros. */
static const T *FN(state_before)(const gr_node *n, const sequence *s, int64_t row, int32_t before)
{
    if (before >= 0)
        return (const T *)n->in[GR_REC_GRAD_Y]->data + (row * s->length + before) * s->width;
    return FN(at)(n->in[GR_REC_GRAD_H], row * s->width);
}

static FN(grad_units)
    FN(row_grads)(const gr_node *n, const sequence *s, const FN(grads) * m, int64_t row, int64_t t)
{
    const int64_t at = row * s->length + t, w = s->width;
    const int32_t before = m->before[at];
    const by_tensor *cells = n->in[GR_REC_GRAD_CELLS];
    const R *c = cells ? (const R *)cells->data : NULL;
    return (FN(grad_units)){.count = w,
                            .width = w,
                            .y = FN(at)(n->in[GR_REC_GRAD_Y], at * w),
                            .saved = FN(at)(n->in[GR_REC_GRAD_SAVED], at * 4 * w),
                            .before = FN(state_before)(n, s, row, before),
                            .cells = c ? c + at * w : NULL,
                            .c0 = before < 0 ? FN(at)(n->in[GR_REC_GRAD_C], row * w) : NULL,
                            .c_before = c && before >= 0 ? c + (row * s->length + before) * w : NULL,
                            .dh = m->dh + row * w,
                            .dc = m->dc + row * w,
                            .dgates = FN(at)(n->out[GR_REC_DGATES], at * s->wide),
                            .dhidden = m->dhidden + row * s->wide};
}

/* Operands of the gradient of W_hh: h before each position, and the gradient of the product. */
static void FN(keep_row)(const gr_node *n, const sequence *s, const FN(grad_units) * u, int64_t at)
{
    T *before = FN(at)(n->out[GR_REC_BEFORE], at * s->width),
      *dhidden = FN(at)(n->out[GR_REC_DHIDDEN], at * s->wide);
    if (before && u->before)
        memcpy(before, u->before, (size_t)s->width * sizeof(T));
    else if (before)
        memset(before, 0, (size_t)s->width * sizeof(T));
    if (dhidden)
        memcpy(dhidden, u->dhidden, (size_t)s->wide * sizeof(T));
}

static void FN(row_back)(const gr_node *n, const sequence *s, const FN(grads) * m, int64_t row, int64_t t)
{
    const int64_t at = row * s->length + t;
    const T *dy = FN(at)(n->in[GR_REC_GRAD_DY], at * s->width);
    const size_t bytes = (size_t)s->wide * sizeof(T);
    FN(grad_units) u = FN(row_grads)(n, s, m, row, t);
    if (!u.dgates)
        u.dgates = u.dhidden;
    if (is_masked(s, row, t)) {
        memset(u.dgates, 0, bytes);
        memset(u.dhidden, 0, bytes);
    } else {
        for (int64_t j = 0; dy && j < s->width; j++)
            u.dh[j] += LD(dy[j]);
        FN(cell_grad)(s->cell, &u);
        if (s->cell != BY_CELL_GRU && u.dgates != u.dhidden)
            memcpy(u.dhidden, u.dgates, bytes);
    }
    FN(keep_row)(n, s, &u, at);
}

static by_status FN(backward_steps)(gr_exec *e, gr_node *n, const sequence *s, const FN(grads) * m)
{
    const int64_t count = s->batch * s->width;
    FN(find_before)(s, m->before);
    FN(load_state)(n->in[GR_REC_GRAD_DH], count, m->dh);
    FN(load_state)(n->in[GR_REC_GRAD_DC], count, m->dc);
    for (int64_t i = s->length - 1; i >= 0; i--) {
        const int64_t t = position(s, i);
#pragma omp parallel for schedule(static) num_threads(e->threads) if (s->batch * s->wide > BY_FORK_ELEMENTS)
        for (int64_t row = 0; row < s->batch; row++)
            FN(row_back)(n, s, m, row, t);
        if (i > 0 || n->out[GR_REC_DH])
            BY_TRY(cpu_gemm_run(n->plan, m->dhidden, n->in[GR_REC_GRAD_W]->data, NULL, m->dh));
    }
    FN(store_state)(m->dh, count, n->out[GR_REC_DH]);
    FN(store_state)(m->dc, count, n->out[GR_REC_DC]);
    return BY_OK;
}

static by_status FN(backward)(gr_exec *e, gr_node *n, const sequence *s)
{
    const size_t state = ROUND64((size_t)(s->batch * s->width) * sizeof(R));
    const size_t hidden = ROUND64((size_t)(s->batch * s->wide) * sizeof(T));
    const size_t places = (size_t)(s->batch * s->length) * sizeof(int32_t);
    char *memory = cpu_scratch_take(e->device, 2 * state + hidden + places);
    if (!memory)
        return BY_ERR_MEMORY;
    BY_BRANCH("recurrent_grad, position by position " BY_STRING(T_NAME));
    const FN(grads) m = {.dh = (R *)memory,
                         .dc = (R *)(memory + state),
                         .dhidden = (T *)(memory + 2 * state),
                         .before = (int32_t *)(memory + 2 * state + hidden)};
    by_status status = FN(backward_steps)(e, n, s, &m);
    cpu_scratch_give(e->device, memory);
    return status;
}

#include "cpu/kernels/recurrent_packed.h"

#endif
