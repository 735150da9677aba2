/* hopper_node.cuh - turns a node of the graph into a launch of one of Hopper's attention jobs. */
#ifndef BY_CUDA_KERNELS_HOPPER_NODE_CUH
#define BY_CUDA_KERNELS_HOPPER_NODE_CUH

#include "cuda/kernels/hopper_products.cuh"

namespace
{

static head_rows rows_of(const by_tensor *t, int64_t first)
{
    head_rows r = {};
    if (t) {
        r.at = (char *)t->data + first * 2;
        r.row = t->dim[2];
        r.batch = t->dim[1] * t->dim[2];
    }
    return r;
}

/* q, k and v from three tensors, or packed side by side in one. */
static void rows_of_qkv(const gr_attention_attr *at, by_tensor *const *from, head_rows (&r)[3])
{
    const int64_t d = at->head_dim;
    r[0] = rows_of(from[0], 0);
    r[1] = at->packed ? rows_of(from[0], at->spec.heads * d) : rows_of(from[1], 0);
    r[2] = at->packed ? rows_of(from[0], (at->spec.heads + at->spec.kv_heads) * d) : rows_of(from[2], 0);
}

/* The tensors of a node. */
struct attention_node {
    const gr_attention_attr *attr;
    const int32_t *mask; /* (batch, keys), or NULL */
    uint64_t *seen;      /* derived from it: see hopper_args */
    int words;
    int batch, queries, keys, heads, kv_heads;
    head_rows in[3], y, dy, grad[3];
    float *lse;
    float2 *stats;
    float4 *sums;
    struct band band; /* BANDED: see hopper_args */
    band_layout layout;
};

static int round_up(int n, int to)
{
    return (n + to - 1) / to * to;
}

static attention_node node_of(const gr_node *n)
{
    attention_node m = {};
    m.attr = (const gr_attention_attr *)n->attr;
    m.batch = (int)n->in[0]->dim[0];
    m.queries = (int)n->in[0]->dim[1];
    m.keys = (int)(m.attr->packed ? n->in[0] : n->in[1])->dim[1];
    m.heads = m.attr->spec.heads;
    m.kv_heads = m.attr->spec.kv_heads;
    rows_of_qkv(m.attr, n->in, m.in);
    m.mask = n->in[GR_ATT_KEY_MASK] ? (const int32_t *)n->in[GR_ATT_KEY_MASK]->data : NULL;
    m.words = round_up(m.keys, 128) / 64;
    return m;
}

/* One bit per key, from the mask of its batch row: one warp for every 64. Beyond the last key they are 1,
 * because there is nothing to mask. */
static __global__ void __launch_bounds__(256)
    mask_bits(const int32_t *mask, int keys, int words, int all, uint64_t *seen)
{
    const int at = (int)((blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (at >= all)
        return;
    const int first = at % words * 64 + lane;
    const int32_t *row = mask + (int64_t)(at / words) * keys;
    const uint32_t low = __ballot_sync(0xffffffffu, first >= keys || row[first]);
    const uint32_t high = __ballot_sync(0xffffffffu, first + 32 >= keys || row[first + 32]);
    if (lane == 0)
        seen[at] = (uint64_t)high << 32 | low;
}
static inline size_t mask_bytes(const attention_node &m)
{
    return m.mask ? (size_t)m.batch * (size_t)m.words * sizeof(uint64_t) : 0;
}
static inline by_status make_bits(cuda_exec *x, const attention_node &m)
{
    if (!m.mask)
        return BY_OK;
    const int all = m.batch * m.words;
    return cuda_launch(x, mask_bits, dim3(blocks_for(all, 8)), dim3(256), 0, m.mask, m.keys, m.words, all,
                       m.seen);
}

/* For a gradient, with room for the statistics of each query, for the bits of a mask, and for `more` bytes
 * after that. */
static inline attention_node grad_node_of(cuda_exec *x, const gr_node *n, size_t more)
{
    attention_node m = node_of(n);
    m.y = rows_of(n->in[GR_ATT_Y], 0);
    m.lse = (float *)n->in[GR_ATT_LSE]->data;
    m.dy = rows_of(n->in[GR_ATT_DY], 0);
    rows_of_qkv(m.attr, n->out, m.grad);
    const size_t stats = (size_t)m.batch * (size_t)m.attr->spec.heads * (size_t)round_up(m.queries, 128);
    m.stats = (float2 *)cuda_scratch(x, stats * sizeof(float2) + mask_bytes(m) + more);
    m.seen = (uint64_t *)(m.stats + stats);
    m.sums = (float4 *)((char *)m.seen + mask_bytes(m));
    return m;
}

template <class J>
static by_status map_rows(tile_map *map, const attention_node &m, const head_rows &r, int rows, int heads,
                          int box)
{
    const int d = m.attr->head_dim;
    const band_layout &x = m.layout;
    if (J::BANDED) /* see load_rows */
        return tile_map_make(map, r.at, d * heads, rows / x.pack, x.columns, m.batch / x.packs, r.row * 2,
                             r.column * 2, r.batch * 2, box, x.pack);
    return tile_map_make(map, r.at, d, rows, heads, m.batch, r.row * 2, d * 2, r.batch * 2, box);
}

/* Pairs, unless there are so few that the last round would leave many thread blocks idle. */
static inline void deal_tiles(hopper_args &a, int heads, int tiles, int sms)
{
    const int64_t pairs = (int64_t)heads * ((tiles + 1) / 2), rounds = (pairs + sms - 1) / sms;
    a.deal = !a.causal ? PLAIN : rounds * sms <= pairs + pairs / 8 ? PAIRED : SORTED;
    a.all_heads = heads;
    a.tiles = tiles;
    a.per_head = a.deal == PAIRED ? (tiles + 1) / 2 : tiles;
    a.units = heads * a.per_head;
}

template <class J> static by_status run_job(cuda_exec *x, const attention_node &m)
{
    const gr_attention_attr *at = m.attr;
    const int h = m.heads, hk = m.kv_heads;
    hopper_args a = {};
    if (J::TURNED) {
        BY_TRY(map_rows<J>(&a.fixed[0], m, m.in[1], m.keys, hk, J::ROWS));
        BY_TRY(map_rows<J>(&a.fixed[1], m, m.in[2], m.keys, hk, J::ROWS));
        BY_TRY(map_rows<J>(&a.moving[0], m, m.in[0], m.queries, h, J::BLOCK));
        BY_TRY(map_rows<J>(&a.moving[1], m, m.dy, m.queries, h, J::BLOCK));
        a.out[0] = m.grad[1];
        a.out[1] = m.grad[2];
        a.out[2] = m.grad[0];
    } else {
        BY_TRY(map_rows<J>(&a.fixed[0], m, m.in[0], m.queries, h, J::ROWS));
        if (J::KIND == QUERY_GRAD) {
            BY_TRY(map_rows<J>(&a.fixed[1], m, m.dy, m.queries, h, J::ROWS));
            BY_TRY(map_rows<J>(&a.fixed[2], m, m.y, m.queries, h, J::ROWS));
        }
        BY_TRY(map_rows<J>(&a.moving[0], m, m.in[1], m.keys, hk, J::BLOCK));
        BY_TRY(map_rows<J>(&a.moving[1], m, m.in[2], m.keys, hk, J::BLOCK));
        a.out[0] = J::KIND == FORWARD ? m.y : m.grad[0];
    }
    a.seen = m.seen;
    a.words = m.words;
    a.equal = 1.0f / (float)m.keys;
    a.lse = m.lse;
    a.stats = m.stats;
    a.pad = round_up(m.queries, J::BANDED ? 64 : 128);
    a.queries = m.queries;
    a.keys = m.keys;
    a.heads = h;
    a.kv_heads = hk;
    a.group = h / hk;
    a.band = m.band;
    a.layout = m.layout;
    a.causal = J::BANDED ? m.band.rising : at->spec.mask == BY_MASK_CAUSAL;
    a.scale = at->spec.scale;
    a.scale_log2 = (float)(at->spec.scale * 1.4426950408889634);
    const int heads = m.batch * (J::TURNED ? hk : h);
    const int tiles = ((J::TURNED ? m.keys : m.queries) + J::ROWS - 1) / J::ROWS;
    deal_tiles(a, heads, tiles, x->cuda->sms);
    if (J::KIND == WHOLE_GRAD)
        a.units = heads;
    a.sums = m.sums;
    return cuda_launch(x, hopper_attention<J>, (unsigned)BY_MIN(a.units, x->cuda->sms), J::THREADS, J::SHARED,
                       a);
}

/* Returns true if the build contains a kernel: for other targets the bodies are empty. known: what an earlier
 * call found, or 0. */
static bool compiled(const void *kernel, int *known)
{
#ifdef BY_CUDA_EMULATE
    (void)kernel;
    *known = 1;
#else
    cudaFuncAttributes f;
    if (!*known)
        *known = cudaFuncGetAttributes(&f, kernel) == cudaSuccess && f.numRegs > 64 ? 1 : -1;
#endif
    return *known > 0;
}

static bool aligned(const by_tensor *t)
{
    return !t || (uintptr_t)t->data % 16 == 0;
}

/* Returns true if the jobs support a node without a pattern; hopper_views.cuh decides about patterns. */
static bool covers(const cuda_context *c, const gr_node *n, bool pattern)
{
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    const by_tensor *q = n->in[0];
    const int64_t t = q->dim[1], s = at->packed ? t : n->in[1]->dim[1];
    const int64_t most = INT32_MAX / 2 / BY_MAX(1, at->spec.heads); /* places are 32-bit integers */
    if (c->arch != 90 || (q->type != BY_BF16 && q->type != BY_F16) ||
        (at->head_dim != 64 && at->head_dim != 128) || at->spec.dropout > 0 || !(at->spec.scale > 0))
        return false;
    if (n->in[GR_ATT_PREFIX] || n->in[GR_ATT_BIAS] || n->in[GR_ATT_RELATIVE] || n->in[GR_ATT_PAIR_MASK] ||
        (!pattern && (at->spec.pattern.kind != BY_PATTERN_FULL || at->spec.empty_zero)))
        return false;
    /* With two masks, a query that attends to nothing would need the keys that the other mask excludes. */
    if (n->in[GR_ATT_KEY_MASK] && at->spec.mask == BY_MASK_CAUSAL)
        return false;
    /* Some queries would attend to nothing. */
    if (q->dim[0] < 1 || t < 1 || s < 1 || q->dim[0] > most || t > INT32_MAX / 2 || s > INT32_MAX / 2 ||
        (at->spec.mask == BY_MASK_CAUSAL && t > s))
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (!aligned(n->in[i]))
            return false;
    for (int i = 0; i < n->n_out; i++)
        if (!aligned(n->out[i]))
            return false;
    return true;
}
template <class J> static bool takes(const cuda_context *c, const gr_node *n, bool pattern = false)
{
    static int known;
    return covers(c, n, pattern) && compiled((const void *)hopper_attention<J>, &known);
}

} // namespace

#endif
