/* recurrent_cells.h - the cells of recurrent layers, forward and backward, over some units of one row. For the
 * typed part of a kernel file. No include guard: included once per element type. */

/* Units [0, count) of one row at one position. Gates lie apart by `width` in x, saved and what is made of
 * them, and by `apart` in hidden. */
typedef struct FN(units) {
    int64_t count, width, apart;
    const T *x;      /* x W_ih^T + b_ih */
    const R *hidden; /* W_hh h + b_hh */
    const R *before; /* h before the position */
    R *h, *c;        /* h after it, rounded to T; c, overwritten */
    T *y, *saved;    /* NULL: not wanted */
    R *cells;        /* likewise */
} FN(units);

static inline R FN(sigmoid)(R v)
{
    return 1 / (1 + R_EXP(-v));
}

static void FN(plain_cell)(const FN(units) * u, bool relu)
{
    R_SIMD
    for (int64_t j = 0; j < u->count; j++) {
        const R v = LD(u->x[j]) + u->hidden[j], h = relu ? (v < 0 ? 0 : v) : R_TANH(v);
        u->h[j] = LD(ST(h));
    }
}

static void FN(lstm_cell)(const FN(units) * u)
{
    const int64_t w = u->width, a = u->apart;
    R_SIMD
    for (int64_t j = 0; j < u->count; j++) {
        const R i = FN(sigmoid)(LD(u->x[j]) + u->hidden[j]);
        const R f = FN(sigmoid)(LD(u->x[w + j]) + u->hidden[a + j]);
        const R g = R_TANH(LD(u->x[2 * w + j]) + u->hidden[2 * a + j]);
        const R o = FN(sigmoid)(LD(u->x[3 * w + j]) + u->hidden[3 * a + j]);
        const R c = f * u->c[j] + i * g;
        u->c[j] = c;
        u->h[j] = LD(ST(o * R_TANH(c)));
        if (u->saved) {
            u->saved[j] = ST(i);
            u->saved[w + j] = ST(f);
            u->saved[2 * w + j] = ST(g);
            u->saved[3 * w + j] = ST(o);
        }
    }
}

static void FN(gru_cell)(const FN(units) * u)
{
    const int64_t w = u->width, a = u->apart;
    R_SIMD
    for (int64_t j = 0; j < u->count; j++) {
        const R r = FN(sigmoid)(LD(u->x[j]) + u->hidden[j]);
        const R z = FN(sigmoid)(LD(u->x[w + j]) + u->hidden[a + j]), own = u->hidden[2 * a + j];
        const R n = R_TANH(LD(u->x[2 * w + j]) + r * own);
        u->h[j] = LD(ST((1 - z) * n + z * u->before[j]));
        if (u->saved) {
            u->saved[j] = ST(r);
            u->saved[w + j] = ST(z);
            u->saved[2 * w + j] = ST(n);
            u->saved[3 * w + j] = ST(own);
        }
    }
}

static void FN(cell)(by_cell cell, const FN(units) * u)
{
    if (cell == BY_CELL_LSTM)
        FN(lstm_cell)(u);
    else if (cell == BY_CELL_GRU)
        FN(gru_cell)(u);
    else
        FN(plain_cell)(u, cell == BY_CELL_RELU);
    for (int64_t j = 0; u->y && j < u->count; j++)
        u->y[j] = ST(u->h[j]);
    if (u->cells)
        memcpy(u->cells, u->c, (size_t)u->count * sizeof(R));
}

/* A masked position: the state stays, and everything that is kept of it is 0. */
static void FN(no_cell)(by_cell cell, const FN(units) * u)
{
    const int kept = cell == BY_CELL_LSTM || cell == BY_CELL_GRU ? 4 : 0;
    memmove(u->h, u->before, (size_t)u->count * sizeof(R));
    if (u->y)
        memset(u->y, 0, (size_t)u->count * sizeof(T));
    for (int g = 0; u->saved && g < kept; g++)
        memset(u->saved + g * u->width, 0, (size_t)u->count * sizeof(T));
    if (u->cells)
        memset(u->cells, 0, (size_t)u->count * sizeof(R));
}

/* The same units backward. dh is the gradient of h after the position, and becomes the part of that before it
 * that does not go through W_hh; likewise dc. */
typedef struct FN(grad_units) {
    int64_t count, width;
    const T *y, *saved, *before; /* before: h before the position, NULL: zeros */
    const R *cells;              /* c after it */
    const T *c0; /* c before it, where the position is the first; NULL: `c_before`, or zeros */
    const R *c_before;
    R *dh, *dc;
    T *dgates, *dhidden; /* dhidden: GRU only */
} FN(grad_units);

static void FN(plain_cell_grad)(const FN(grad_units) * u, bool relu)
{
    R_SIMD
    for (int64_t j = 0; j < u->count; j++) {
        const R y = LD(u->y[j]), slope = relu ? (y > 0 ? 1 : 0) : 1 - y * y;
        u->dgates[j] = ST(u->dh[j] * slope);
        u->dh[j] = 0;
    }
}

static void FN(lstm_cell_grad)(const FN(grad_units) * u)
{
    const int64_t w = u->width;
    R_SIMD
    for (int64_t j = 0; j < u->count; j++) {
        const R i = LD(u->saved[j]), f = LD(u->saved[w + j]), g = LD(u->saved[2 * w + j]),
                o = LD(u->saved[3 * w + j]);
        const R before = u->c0 ? LD(u->c0[j]) : u->c_before ? u->c_before[j] : 0;
        const R t = R_TANH(u->cells[j]), dh = u->dh[j], dc = u->dc[j] + dh * o * (1 - t * t);
        u->dgates[j] = ST(dc * g * i * (1 - i));
        u->dgates[w + j] = ST(dc * before * f * (1 - f));
        u->dgates[2 * w + j] = ST(dc * i * (1 - g * g));
        u->dgates[3 * w + j] = ST(dh * t * o * (1 - o));
        u->dc[j] = dc * f;
        u->dh[j] = 0;
    }
}

static void FN(gru_cell_grad)(const FN(grad_units) * u)
{
    const int64_t w = u->width;
    R_SIMD
    for (int64_t j = 0; j < u->count; j++) {
        const R r = LD(u->saved[j]), z = LD(u->saved[w + j]), n = LD(u->saved[2 * w + j]),
                own = LD(u->saved[3 * w + j]);
        const R before = u->before ? LD(u->before[j]) : 0, dh = u->dh[j];
        const R dz = dh * (before - n) * z * (1 - z), dn = dh * (1 - z) * (1 - n * n);
        const R dr = dn * own * r * (1 - r);
        u->dgates[j] = u->dhidden[j] = ST(dr);
        u->dgates[w + j] = u->dhidden[w + j] = ST(dz);
        u->dgates[2 * w + j] = ST(dn);
        u->dhidden[2 * w + j] = ST(dn * r);
        u->dh[j] = dh * z;
    }
}

static void FN(cell_grad)(by_cell cell, const FN(grad_units) * u)
{
    if (cell == BY_CELL_LSTM)
        FN(lstm_cell_grad)(u);
    else if (cell == BY_CELL_GRU)
        FN(gru_cell_grad)(u);
    else
        FN(plain_cell_grad)(u, cell == BY_CELL_RELU);
}
