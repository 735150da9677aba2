/* resident.cu - finds runs of nodes for the resident kernel: norms, products of one row, and attention of one
 * query over a cache, each of which reads the result of the previous one. They are matched by op and shape
 * and become a table of phases. A norm is part of the product after it: every block computes it. */
#include <string.h>

#include "cuda/kernels/resident.cuh"
#include "cuda/kernels/attention.cuh"
#include "cuda/kernels/resident_phases.cuh"

#ifdef BY_CUDA_EMULATE
enum { MIN_ARCH = 80, MAX_ARCH = 90 };
#elif defined(BY_CUDA_HOPPER)
enum { MIN_ARCH = 90, MAX_ARCH = 90 };
#else /* its code is not compiled */
enum { MIN_ARCH = 1, MAX_ARCH = 0 };
#endif
enum { WARPS = 7, FLIGHT = 8, ALIGN = 256, FEWEST_PHASES = 8 };

/* Slots of the ring: as many as fit into shared memory besides x. */
template <class T> struct slots {
    enum { COUNT = sizeof(T) == 2 ? 48 : 44 };
};

/* Memory for the results of a phase. Unwritten elements stay 0, so it is used for one shape only. */
typedef struct left_buffer {
    int rows, cols;  /* parts and n of a product; heads times splits, and dim + 4, of an attention */
    int units, used; /* of a product; the last phase that used it */
    size_t at;
} left_buffer;

/* cuda_resident.own */
typedef struct resident_run {
    by_dtype type;
    int count;
    size_t shared;
    resident_args args;
    void *memory; /* on the card: counters, table, maps, results of phases */
} resident_run;

/* A table under construction. */
typedef struct builder {
    const cuda_exec *x;
    const by_graph *graph;
    by_dtype type;
    int blocks, columns; /* of a strip */
    size_t room;         /* bytes for x */
    int first;           /* node of the run */
    resident_phase *table;
    const by_tensor **weight; /* of each phase, NULL: not a product */
    const gr_node **norms;    /* that each phase computes, NULL: none */
    int *left;                /* of each phase: its buffer */
    int count;
    left_buffer *buffers;
    int n_buffers;
    size_t left_bytes;
    const gr_node *norm;     /* pending: the next phase computes it; NULL: none */
    const by_tensor *result; /* results of the last phase; NULL: none */
    const int *past;
    int64_t weight_bytes;
} builder;

/* ---- conditions -------------------------------------------------------------------------------- */

static bool is_row(const builder *b, const by_tensor *t)
{
    return t && t->type == b->type && gr_tensor_rows(t) == 1 && (uintptr_t)t->data % 16 == 0;
}
/* A parameter of n elements, or none. */
static bool is_vector(const builder *b, const by_tensor *t, int64_t n)
{
    return !t || (t->type == b->type && by_elements(t) == n && (uintptr_t)t->data % 16 == 0);
}

static int readers_of(const by_graph *g, const by_tensor *t)
{
    int count = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            count += g->nodes[i]->in[k] == t;
    return count;
}
/* Does anybody but the next phase want to see it? */
static bool is_shown(const builder *b, const by_tensor *t)
{
    return t->is_output || t->place != GR_PLACE_PLANNED || readers_of(b->graph, t) != 1;
}

/* The phase of the run that stores a tensor; -1: it was there before; count: none does. */
static int stored_by(const builder *b, const by_tensor *t)
{
    if (!t->node || t->node->index < b->first)
        return -1;
    for (int i = 0; i < b->count; i++)
        if (b->norms[i] == t->node && (t->index == 2 || b->table[i].y))
            return i;
    return b->count;
}

/* ---- phases ------------------------------------------------------------------------------------ */

static int buffer_for(builder *b, int units, int rows, int cols)
{
    for (int i = 0; i < b->n_buffers; i++) {
        left_buffer *l = &b->buffers[i];
        if (l->units == units && l->rows == rows && l->cols == cols && l->used + 2 <= b->count) {
            l->used = b->count;
            return i;
        }
    }
    b->buffers[b->n_buffers] = left_buffer{rows, cols, units, b->count, b->left_bytes};
    b->left_bytes += ((size_t)rows * (size_t)cols * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
    return b->n_buffers++;
}

static void add_phase(builder *b, const resident_phase &p, const by_tensor *weight, int left)
{
    b->table[b->count] = p;
    b->weight[b->count] = weight;
    b->norms[b->count] = p.kind != PHASE_ATTENTION && p.source == SOURCE_NORM ? b->norm : NULL;
    b->norm = NULL;
    b->left[b->count] = left;
    b->count++;
}

/* x of a phase is the pending norm. */
static void use_norm(const builder *b, resident_phase *p)
{
    const gr_node *n = b->norm;
    const gr_norm_attr *attr = (const gr_norm_attr *)n->attr;
    p->source = SOURCE_NORM;
    p->back = n->in[3] && n->in[3] == b->result;
    p->k = (int)gr_tensor_cols(n->in[0]);
    p->x = n->in[0]->data;
    p->h = n->in[3] && !p->back ? n->in[3]->data : NULL;
    p->gamma = n->in[1]->data;
    p->beta = n->in[2] ? n->in[2]->data : NULL;
    p->sum = n->out[2] ? n->out[2]->data : NULL;
    p->y = is_shown(b, n->out[0]) ? n->out[0]->data : NULL;
    p->eps = attr->eps;
    p->rms = attr->rms;
    p->over_k = 1.0f / (float)p->k;
}

static bool take_norm_node(builder *b, const gr_node *n)
{
    const int64_t k = gr_tensor_cols(n->in[0]);
    const by_tensor *h = n->in[3];
    if (b->norm || (b->result && h != b->result) || !is_row(b, n->in[0]) || !is_row(b, n->out[0]) ||
        n->out[1] || (h && !is_row(b, h)) || (h && ((const gr_norm_attr *)n->attr)->p > 0))
        return false;
    if (k % UNIT_ROWS || k > MOST_QUADS * WARPS * 32 * 4 || !n->in[1] || !is_vector(b, n->in[1], k) ||
        !is_vector(b, n->in[2], k))
        return false;
    const int stored = stored_by(b, n->in[0]);
    if (stored >= 0 && stored > b->count - 2)
        return false; /* it is read before the barrier after the last phase */
    if (h && h != b->result && stored_by(b, h) >= 0)
        return false;
    if (h && h == b->result && b->table[b->count - 1].kind != PHASE_PRODUCT)
        return false;
    b->norm = n;
    return true;
}

static bool take_linear_node(builder *b, const gr_node *n)
{
    const gr_linear_attr *attr = (const gr_linear_attr *)n->attr;
    const by_tensor *x = n->in[0], *w = n->in[1], *y = n->out[0];
    const by_tensor *now = b->norm ? b->norm->out[0] : b->result;
    if (!attr->w_is_kn || n->out[1] || !y || x != now || !is_row(b, x) || !is_row(b, y) || is_shown(b, y))
        return false;
    const int64_t k = gr_tensor_cols(x), cols = gr_tensor_cols(y), size = (int64_t)by_dtype_size(b->type);
    if (w->type != b->type || (uintptr_t)w->data % 16 || gr_tensor_pitch(w) != cols || cols % b->columns ||
        cols * k > INT32_MAX || k % UNIT_ROWS || k < 2 * UNIT_ROWS || k * size > (int64_t)b->room ||
        !is_vector(b, n->in[2], cols))
        return false;
    resident_phase p = {};
    p.kind = PHASE_PRODUCT;
    p.n = (int)cols;
    p.k = (int)k;
    p.per_strip = (int)(k / UNIT_ROWS);
    p.units = p.per_strip * (p.n / b->columns);
    p.over_strip = over(p.per_strip);
    if ((p.units + b->blocks - 1) / b->blocks > (MOST_STRIPS - 1) * p.per_strip ||
        (uint64_t)p.units * (unsigned)b->blocks * (unsigned)BY_MAX(b->blocks, p.per_strip) >> 32)
        return false;
#ifdef BY_CUDA_EMULATE /* where nobody waits for a slot */
    if (p.units / b->blocks >= slots<float>::COUNT)
        return false;
#endif
    for (int s = 0; s < p.n / b->columns; s++)
        p.parts = BY_MAX(p.parts, block_of(p.units, (s + 1) * p.per_strip - 1, b->blocks) -
                                      block_of(p.units, s * p.per_strip, b->blocks) + 1);
    p.parts = (p.parts + PARTS - 1) / PARTS * PARTS;
    p.act = attr->act;
    p.bias = n->in[2] ? n->in[2]->data : NULL;
    if (b->norm) {
        use_norm(b, &p);
    } else {
        p.source = b->table[b->count - 1].kind == PHASE_PRODUCT ? SOURCE_SUMS : SOURCE_HEADS;
        p.back = 1;
    }
    add_phase(b, p, w, buffer_for(b, p.units, p.parts, p.n));
    b->result = y;
    b->weight_bytes += cols * k * size;
    return true;
}

static bool take_attention_node(builder *b, const gr_node *n)
{
    const gr_attention_attr *attr = (const gr_attention_attr *)n->attr;
    attention a = attention_of(b->x, n);
    const by_tensor *keys = n->in[GR_ATT_K_CACHE], *past = n->in[GR_ATT_PAST];
    const int dim = a.dim, lanes = dim / HEAD_PIECE;
    if (!past || n->in[GR_ATT_PAGES])
        return false;
    a.keys = (int)keys->dim[1];
    a.past = (const int32_t *)past->data;
    a.mask = BY_MASK_CAUSAL;
    a.dropout = false;
    if (!attr->packed || b->norm || n->in[0] != b->result || b->table[b->count - 1].kind != PHASE_PRODUCT ||
        a.batch != 1 || a.queries != 1 || level_of(a) != EASY || keys->type != b->type ||
        !is_row(b, n->out[0]) || is_shown(b, n->out[0]))
        return false;
    if (dim % HEAD_PIECE || lanes > 32 || lanes & (lanes - 1) || dim > 128 || (b->past && b->past != a.past))
        return false;
    b->past = a.past;
    resident_phase p = {};
    p.kind = PHASE_ATTENTION;
    p.back = 1;
    p.keys = keys->data;
    p.values = n->in[GR_ATT_V_CACHE]->data;
    p.heads = a.heads;
    p.group = a.group;
    p.dim = dim;
    p.over_dim = over(dim);
    p.splits = BY_MAX(1, BY_MIN((int)MOST_PARTS, b->blocks / a.heads));
    p.capacity = a.keys;
    p.k_at = a.heads * dim;
    p.v_at = (a.heads + a.kv_heads) * dim;
    p.scale = a.scale * LOG2_E;
    p.node = cuda_number(b->x, n);
    add_phase(b, p, NULL, buffer_for(b, 0, p.heads * p.splits, dim + 4));
    b->result = n->out[0];
    return true;
}

static bool take_node(builder *b, const gr_node *n)
{
    switch (n->op) {
    case GR_OP_NORM:
        return take_norm_node(b, n);
    case GR_OP_LINEAR:
        return take_linear_node(b, n);
    case GR_OP_ATTENTION_CACHED:
        return take_attention_node(b, n);
    default:
        return false;
    }
}

/* The run that begins with node `first`; it ends with a norm, whose result is stored. Returns its end. */
static int build_from(builder *b, int first)
{
    int to = first, count = 0;
    const gr_node *last = NULL;
    const by_tensor *result = NULL;
    b->first = first;
    b->count = b->n_buffers = 0;
    b->left_bytes = 0;
    b->weight_bytes = 0;
    b->norm = NULL;
    b->result = NULL;
    b->past = NULL;
    b->type = b->graph->nodes[first]->in[0]->type;
    for (int i = first; i < b->graph->n_nodes && take_node(b, b->graph->nodes[i]); i++)
        if (b->norm) {
            to = i + 1;
            count = b->count;
            last = b->norm;
            result = b->result;
        }
    if (!last)
        return first;
    b->count = count;
    b->norm = last;
    b->result = result;
    resident_phase p = {};
    p.kind = PHASE_NORM;
    use_norm(b, &p);
    p.y = last->out[0]->data;
    add_phase(b, p, NULL, -1);
    return to;
}

/* ---- on the card ------------------------------------------------------------------------------- */

static size_t whole(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static by_status make_maps(const builder *b, tile_map *maps)
{
    const int64_t size = (int64_t)by_dtype_size(b->type);
    for (int i = 0; i < b->count; i++) {
        const resident_phase *p = &b->table[i];
        const int64_t row = p->n * size; /* bytes; the engine sees pairs of them */
        tile_map map;                    /* aligned as the driver requires */
        if (!b->weight[i])
            continue;
        BY_TRY(tile_map_make(&map, b->weight[i]->data, row / 2, p->k, 1, 1, row, row, row * p->k, UNIT_ROWS));
        memcpy(&maps[i], &map, sizeof map);
    }
    return BY_OK;
}

static by_status send_table(by_device *d, builder *b, tile_map *maps, resident_run *run)
{
    const size_t counters = ALIGN, table = whole((size_t)b->count * sizeof *b->table);
    const size_t of_maps = whole((size_t)b->count * sizeof *maps);
    BY_TRY(d->backend->alloc(d, counters + table + of_maps + b->left_bytes, &run->memory));
    char *memory = (char *)run->memory, *maps_at = memory + counters + table;
    for (int i = 0; i < b->count; i++) {
        resident_phase *p = &b->table[i];
        p->map = b->weight[i] ? (const tile_map *)maps_at + i : NULL;
        p->left = b->left[i] >= 0 ? (float *)(maps_at + of_maps + b->buffers[b->left[i]].at) : NULL;
    }
    BY_TRY(make_maps(b, maps));
    BY_TRY(d->backend->upload(d, memory + counters, b->table, (size_t)b->count * sizeof *b->table));
    BY_TRY(d->backend->upload(d, maps_at, maps, (size_t)b->count * sizeof *maps));
    run->args.arrived = (unsigned *)memory;
    run->args.table = (const resident_phase *)(memory + counters);
    return BY_OK;
}

template <class T> static size_t shared_before_x()
{
    return resident_layout<T, WARPS, slots<T>::COUNT>::X;
}
static size_t shared_for(by_dtype type)
{
    return type == BY_F32 ? shared_before_x<float>() : shared_before_x<bf16>();
}

/* All blocks must be on the card at the same time. */
template <class T> static by_status launch(cuda_exec *x, const resident_run *run)
{
    const dim3 grid((unsigned)x->cuda->sms), block((WARPS + 1) * 32);
    resident_args a = run->args;
    a.count = run->count;
#ifdef BY_CUDA_EMULATE /* where blocks run one after the other */
    for (a.from = 0; a.from < run->count; a.from++) {
        a.to = a.from + 1;
        BY_TRY(cuda_launch(x, resident<T, WARPS, slots<T>::COUNT>, grid, block, run->shared, a));
    }
    return BY_OK;
#else
    const void *kernel = (const void *)resident<T, WARPS, slots<T>::COUNT>;
    if (x->dry) {
        int fit = 0;
        cuda_plan_kernel(x, kernel, grid);
        BY_TRY(cuda_allow_shared(kernel, run->shared));
        BY_TRY(cuda_check(
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, (WARPS + 1) * 32, run->shared),
            "occupancy"));
        return fit >= 1 ? BY_OK : base_fail(BY_ERR_UNSUPPORTED, "the resident kernel does not fit");
    }
    a.from = 0;
    a.to = run->count;
    void *list[] = {&a};
    return cuda_check(cudaLaunchCooperativeKernel(kernel, grid, block, list, run->shared, x->stream),
                      "launch");
#endif
}

static by_status start(cuda_exec *x, const resident_run *run)
{
    BY_CUDA_DISPATCH(run->type, launch, x, run);
}

by_status cuda_resident_run(cuda_exec *x, const cuda_resident *r)
{
    return start(x, (const resident_run *)r->own);
}

void cuda_resident_forget(by_program *p, cuda_resident *r)
{
    resident_run *run = (resident_run *)r->own;
    if (run)
        p->device->backend->release(p->device, run->memory);
    base_free(run);
    *r = cuda_resident{};
}

/* The table is on the card when this returns BY_OK. */
static by_status keep(by_program *p, const cuda_exec *x, builder *b, tile_map *maps, cuda_resident *r)
{
    resident_run *run = (resident_run *)base_alloc_zero(1, sizeof *run);
    if (!run)
        return BY_ERR_MEMORY;
    r->own = run;
    run->type = b->type;
    run->count = b->count;
    run->shared = shared_for(b->type);
    size_t longest = 0;
    for (int i = 0; i < b->count; i++)
        longest = BY_MAX(longest, (size_t)b->table[i].k * by_dtype_size(b->type));
    run->shared += whole(longest);
    run->args.over_blocks = over(b->blocks);
    run->args.fault = x->cuda->device_fault;
    run->args.past = b->past;
    run->args.flight = FLIGHT;
    BY_TRY(send_table(p->device, b, maps, run));
    cuda_exec dry = *x;
    dry.dry = true;
    return start(&dry, run);
}

/* ---- finding ----------------------------------------------------------------------------------- */

static bool begins_run(const builder *b, const gr_node *n)
{
    const by_dtype type = n->op == GR_OP_NORM ? n->in[0]->type : BY_I32;
    return (type == BY_F32 || type == BY_BF16 || type == BY_F16) && gr_tensor_rows(n->in[0]) == 1 &&
           b->x->cuda->shared_limit > (int)shared_for(type);
}

/* As measured on an H200: with less, the barriers take longer than single kernels do. */
static int64_t least_bytes(const builder *b)
{
    return b->x->cuda->resident_least * (b->type == BY_F32 ? 4 : 1);
}

static void find_run(builder *b, cuda_resident *r)
{
    for (int i = 0; i < b->graph->n_nodes; i++) {
        const gr_node *n = b->graph->nodes[i];
        if (!begins_run(b, n))
            continue;
        b->columns = STRIP_BYTES / (int)by_dtype_size(n->in[0]->type);
        b->room = ((size_t)b->x->cuda->shared_limit - shared_for(n->in[0]->type)) / ALIGN * ALIGN;
        const int to = build_from(b, i);
        if (b->count >= FEWEST_PHASES && b->weight_bytes >= least_bytes(b)) {
            r->from = i;
            r->to = to;
            return;
        }
    }
}

by_status cuda_resident_find(by_program *p, const cuda_exec *x, cuda_resident *r)
{
    const size_t nodes = (size_t)p->graph->n_nodes + 1;
    const cuda_context *c = x->cuda;
    *r = cuda_resident{};
    if (c->arch < MIN_ARCH || c->arch > MAX_ARCH || c->fp8 || c->resident_least < 0 || c->sms < 2)
        return BY_OK;
    builder b = {};
    b.x = x;
    b.graph = p->graph;
    b.blocks = c->sms;
    b.table = (resident_phase *)base_alloc_zero(nodes, sizeof *b.table);
    b.weight = (const by_tensor **)base_alloc_zero(nodes, sizeof *b.weight);
    b.norms = (const gr_node **)base_alloc_zero(nodes, sizeof *b.norms);
    b.left = (int *)base_alloc_zero(nodes, sizeof *b.left);
    b.buffers = (left_buffer *)base_alloc_zero(nodes, sizeof *b.buffers);
    tile_map *maps = (tile_map *)base_alloc_zero(nodes, sizeof *maps);
    by_status s = b.table && b.weight && b.norms && b.left && b.buffers && maps ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK)
        find_run(&b, r);
    if (s == BY_OK && r->to > r->from)
        s = keep(p, x, &b, maps, r);
    if (s == BY_ERR_UNSUPPORTED) { /* node by node, then */
        base_error_clear();
        cuda_resident_forget(p, r);
        s = BY_OK;
    }
    base_free(b.table);
    base_free((void *)b.weight);
    base_free((void *)b.norms);
    base_free(b.left);
    base_free(b.buffers);
    base_free(maps);
    return s;
}
