/* recurrent_packed.h - a recurrent layer by one team of threads. Each thread owns some units, packs their weights once, and
 * keeps them in its cache for all positions; the threads meet once at each position. For the typed part of recurrent.c. */

/* Panels of packed weights: `vecs` vectors for each of k rows. */
typedef struct FN(panels) {
    int vecs;
    int64_t units, count, k; /* units of a panel, panels, rows of one */
    R *memory, *bias;        /* (count, k, vecs LANES), (count, vecs LANES) */
} FN(panels);

static int64_t FN(panel_size)(const FN(panels) * p)
{
    return p->k * p->vecs * LANES;
}

/* Calls that distribute rows over tiles evenly. */
static int FN(tile_rows)(int64_t batch, int vecs)
{
    const int64_t most = TILE(rec_most_rows)(vecs), tiles = (batch + most - 1) / most;
    return (int)((batch + tiles - 1) / tiles);
}

/* ---- forward --------------------------------------------------------------------------------- */

static FN(panels) FN(forward_panels)(const sequence *s)
{
    const int64_t gates = s->wide / s->width;
    const int vecs = gates == 3 ? 3 : 4;
    const int64_t units = vecs * LANES / gates;
    return (FN(panels)){.vecs = vecs, .units = units, .count = (s->width + units - 1) / units, .k = s->width};
}

/* Column g units + j of a panel is gate g of unit j. */
static void FN(pack_forward)(const gr_node *n, const sequence *s, const FN(panels) * p, int64_t i)
{
    const int64_t columns = p->vecs * LANES;
    const T *w = n->in[GR_REC_W]->data, *b = n->in[GR_REC_B] ? n->in[GR_REC_B]->data : NULL;
    R *to = p->memory + i * FN(panel_size)(p), *bias = p->bias + i * columns;
    for (int64_t c = 0; c < columns; c++) {
        const int64_t unit = i * p->units + c % p->units, row = c / p->units * s->width + unit;
        const bool there = unit < s->width;
        bias[c] = b && there ? LD(b[row]) : 0;
        for (int64_t k = 0; k < p->k; k++)
            to[k * columns + c] = there ? LD(w[row * s->width + k]) : 0;
    }
}

/* The units of a panel, for rows [row, row + rows) at one position. h (2, B, H): before and after. */
static void FN(forward_tile)(const gr_node *n, const sequence *s, const FN(panels) * p, const FN(states) * m,
                             int64_t i, int64_t row, int rows, int64_t step)
{
    R sums[REC_ROWS_2 * 2 * LANES];
    const int64_t columns = p->vecs * LANES, unit = i * p->units, t = position(s, step), w = s->width;
    const R *before = m->h + (step & 1) * s->batch * w;
    R *after = m->h + (~step & 1) * s->batch * w;
    const bool first = step == 0 && !n->in[GR_REC_H]; /* all states are 0 */
    TILE(rec_tile)
    (p->vecs, rows, first ? 0 : p->k, before + row * w, w, p->memory + i * FN(panel_size)(p),
     p->bias + i * columns, sums);
    for (int r = 0; r < rows; r++) {
        FN(units) u = FN(row_units)(n, s, m, row + r, t);
        u.count = BY_MIN(p->units, w - unit);
        u.apart = p->units;
        u.x += unit;
        u.hidden = sums + r * columns;
        u.before = before + (row + r) * w + unit;
        u.h = after + (row + r) * w + unit;
        u.c += unit;
        u.y = u.y ? u.y + unit : NULL;
        u.saved = u.saved ? u.saved + unit : NULL;
        u.cells = u.cells ? u.cells + unit : NULL;
        if (is_masked(s, row + r, t))
            FN(no_cell)(s->cell, &u);
        else
            FN(cell)(s->cell, &u);
    }
}

static by_status FN(forward_packed)(gr_exec *e, gr_node *n, const sequence *s)
{
    FN(panels) p = FN(forward_panels)(s);
    const int64_t state = s->batch * s->width, columns = p.vecs * LANES;
    const int64_t all = 3 * state + p.count * (columns + FN(panel_size)(&p)) + 64;
    R *memory = cpu_scratch_take(e->device, (size_t)all * sizeof(R));
    if (!memory)
        return BY_ERR_MEMORY;
    BY_BRANCH("recurrent, packed weights " BY_STRING(T_NAME));
    p.memory = memory;
    p.bias = memory + p.count * FN(panel_size)(&p);
    const FN(states) m = {.h = p.bias + p.count * columns, .c = p.bias + p.count * columns + 2 * state};
    const int rows = FN(tile_rows)(s->batch, p.vecs), threads = team_threads(e, s);
    FN(load_state)(n->in[GR_REC_H], state, m.h);
    FN(load_state)(n->in[GR_REC_C], state, m.c);
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t id = cpu_team_thread(), team = cpu_team_size();
        const int64_t from = p.count * id / team, to = p.count * (id + 1) / team;
        for (int64_t i = from; i < to; i++)
            FN(pack_forward)(n, s, &p, i);
        for (int64_t step = 0; step < s->length; step++) {
            for (int64_t i = from; i < to; i++)
                for (int64_t row = 0; row < s->batch; row += rows)
                    FN(forward_tile)(n, s, &p, &m, i, row, (int)BY_MIN(rows, s->batch - row), step);
            cpu_team_wait(team);
        }
    }
    FN(store_state)(m.h + (s->length & 1) * state, state, n->out[GR_REC_LAST_H]);
    FN(store_state)(m.c, state, n->out[GR_REC_LAST_C]);
    cpu_scratch_give(e->device, memory);
    return BY_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

static FN(panels) FN(backward_panels)(const sequence *s)
{
    const int64_t units = 2 * LANES;
    return (FN(panels)){.vecs = 2, .units = units, .count = (s->width + units - 1) / units, .k = s->wide};
}

static void FN(pack_backward)(const gr_node *n, const sequence *s, const FN(panels) * p, int64_t i)
{
    const T *w = n->in[GR_REC_GRAD_W]->data;
    R *to = p->memory + i * FN(panel_size)(p);
    const int64_t unit = i * p->units, count = BY_MIN(p->units, s->width - unit);
    for (int64_t k = 0; k < p->k; k++) {
        for (int64_t j = 0; j < count; j++)
            to[k * p->units + j] = LD(w[k * s->width + unit + j]);
        for (int64_t j = count; j < p->units; j++)
            to[k * p->units + j] = 0;
    }
}

/* What W_hh is multiplied with at the position before, in R. */
static void FN(widen)(const sequence *s, const T *from, int64_t count, R *to)
{
    for (int64_t g = 0; g < s->wide / s->width; g++)
        for (int64_t j = 0; j < count; j++)
            to[g * s->width + j] = LD(from[g * s->width + j]);
}

/* One row of a tile: dh (units of the panel) has what came through W_hh from the position after. */
static void FN(row_of_tile)(const gr_node *n, const sequence *s, const FN(grads) * m, int64_t unit,
                            int64_t count, int64_t row, int64_t t, const R *sums, R *wide)
{
    const int64_t at = row * s->length + t, w = s->width;
    const T *dy = FN(at)(n->in[GR_REC_GRAD_DY], at * w + unit);
    FN(grad_units) u = FN(row_grads)(n, s, m, row, t);
    T *before = FN(at)(n->out[GR_REC_BEFORE], at * w + unit),
      *dhidden = FN(at)(n->out[GR_REC_DHIDDEN], at * s->wide + unit);
    u.count = count;
    u.y += unit;
    u.saved = u.saved ? u.saved + unit : NULL;
    u.before = u.before ? u.before + unit : NULL;
    u.cells = u.cells ? u.cells + unit : NULL;
    u.c0 = u.c0 ? u.c0 + unit : NULL;
    u.c_before = u.c_before ? u.c_before + unit : NULL;
    u.dh += unit;
    u.dc += unit;
    u.dgates += unit;
    u.dhidden = dhidden;
    for (int64_t j = 0; j < count; j++)
        u.dh[j] += sums[j];
    if (is_masked(s, row, t)) {
        for (int64_t g = 0; g < s->wide / w; g++) {
            memset(u.dgates + g * w, 0, (size_t)count * sizeof(T));
            if (dhidden)
                memset(dhidden + g * w, 0, (size_t)count * sizeof(T));
        }
    } else {
        for (int64_t j = 0; dy && j < count; j++)
            u.dh[j] += LD(dy[j]);
        FN(cell_grad)(s->cell, &u);
    }
    FN(widen)(s, dhidden ? dhidden : u.dgates, count, wide + row * s->wide + unit);
    if (before && u.before)
        memcpy(before, u.before, (size_t)count * sizeof(T));
    else if (before)
        memset(before, 0, (size_t)count * sizeof(T));
}

/* Step -1 leaves the gradient of the initial state in dh. wide (2, B, G*H): of the step after, and of this one. */
static void FN(backward_tile)(const gr_node *n, const sequence *s, const FN(panels) * p, const FN(grads) * m,
                              R *wide, int64_t i, int64_t row, int rows, int64_t step)
{
    R sums[REC_ROWS_2 * 2 * LANES];
    const int64_t unit = i * p->units, count = BY_MIN(p->units, s->width - unit), all = s->batch * s->wide;
    const R *after = wide + ((step + 1) & 1) * all;
    TILE(rec_tile)
    (p->vecs, rows, step + 1 < s->length ? p->k : 0, after + row * s->wide, s->wide,
     p->memory + i * FN(panel_size)(p), p->bias, sums);
    for (int r = 0; r < rows && step >= 0; r++)
        FN(row_of_tile)
    (n, s, m, unit, count, row + r, position(s, step), sums + r * p->units, wide + (step & 1) * all);
    for (int r = 0; r < rows && step < 0; r++)
        for (int64_t j = 0; j < count; j++)
            m->dh[(row + r) * s->width + unit + j] += sums[r * p->units + j];
}

static by_status FN(backward_packed)(gr_exec *e, gr_node *n, const sequence *s)
{
    FN(panels) p = FN(backward_panels)(s);
    const int64_t state = s->batch * s->width, all = s->batch * s->wide;
    const int64_t numbers = p.count * FN(panel_size)(&p) + p.units + 2 * state + 2 * all;
    char *memory = cpu_scratch_take(e->device, (size_t)numbers * sizeof(R) +
                                                   (size_t)(s->batch * s->length) * sizeof(int32_t));
    if (!memory)
        return BY_ERR_MEMORY;
    BY_BRANCH("recurrent_grad, packed weights " BY_STRING(T_NAME));
    p.memory = (R *)memory;
    p.bias = p.memory + p.count * FN(panel_size)(&p);
    R *wide = p.bias + p.units + 2 * state;
    const FN(grads) m = {.dh = p.bias + p.units,
                         .dc = p.bias + p.units + state,
                         .before = (int32_t *)(memory + (size_t)numbers * sizeof(R))};
    const int rows = FN(tile_rows)(s->batch, p.vecs), threads = team_threads(e, s);
    const int64_t last = n->out[GR_REC_DH] ? -1 : 0;
    memset(p.bias, 0, (size_t)p.units * sizeof(R));
    FN(find_before)(s, m.before);
    FN(load_state)(n->in[GR_REC_GRAD_DH], state, m.dh);
    FN(load_state)(n->in[GR_REC_GRAD_DC], state, m.dc);
    (void)threads; /* without OpenMP */
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t id = cpu_team_thread(), team = cpu_team_size();
        const int64_t from = p.count * id / team, to = p.count * (id + 1) / team;
        for (int64_t i = from; i < to; i++)
            FN(pack_backward)(n, s, &p, i);
        for (int64_t step = s->length - 1; step >= last; step--) {
            for (int64_t i = from; i < to; i++)
                for (int64_t row = 0; row < s->batch; row += rows)
                    FN(backward_tile)(n, s, &p, &m, wide, i, row, (int)BY_MIN(rows, s->batch - row), step);
            cpu_team_wait(team);
        }
    }
    FN(store_state)(m.dh, state, n->out[GR_REC_DH]);
    FN(store_state)(m.dc, state, n->out[GR_REC_DC]);
    cpu_scratch_give(e->device, memory);
    return BY_OK;
}
