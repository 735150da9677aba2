/* hopper_views.cuh - a sparse pattern as bands (hopper_band.cuh), for the jobs of Hopper. All have as many
 * queries as keys:
 *
 *   window, blocks   one band
 *   strided l        columns r, r + l, r + 2 l, ... as sequences, then the window p - l < s <= p. If l does
 *                    not divide T, the columns are of two lengths, and each length is a view. Columns of up to
 *                    32 positions are packed, to fill tiles.
 *   fixed l, c       the last c positions of each block, copied to rows of their own, then the own block
 *
 * Near and far keys are disjoint: with both parts, columns end before the own position and summaries before
 * the own block. The last view then combines its results with those of the views before. With part 3, the far
 * views have the second half of the heads, and the near one the first. */
#ifndef BY_CUDA_KERNELS_HOPPER_VIEWS_CUH
#define BY_CUDA_KERNELS_HOPPER_VIEWS_CUH

#include "cuda/kernels/attention_summaries.cuh"
#include "cuda/kernels/hopper_node.cuh"
#include "graph/reach.h"

namespace
{

enum { MOST_VIEWS = 3 };

enum view_kind { NEAR, COLUMNS, SUMMARIES };

/* Some of the pairs of a node. Of COLUMNS, [first, first + count) with `rows` positions each; `pack` of them
 * are one sequence. */
struct view {
    view_kind kind;
    struct band band;
    int first, count, rows, pack;
    int head, heads; /* [head, head + heads) */
    bool add;        /* an earlier view has other keys of the same heads */
};
static inline int packs_of(const view &v)
{
    return (v.count + v.pack - 1) / v.pack;
}
struct view_list {
    int count, head, heads; /* heads of the views that are added next */
    bool add;
    view at[MOST_VIEWS];
};

static inline summaries summaries_of(const attention_node &m)
{
    const by_pattern &p = m.attr->spec.pattern;
    return summaries{m.batch, m.queries, p.length, p.after, m.kv_heads * m.attr->head_dim};
}

static inline void add_view(view_list &v, view_kind kind, band b, int first, int count, int rows)
{
    int pack = 1;
    while (kind == COLUMNS && 2 * pack * rows <= 64 && pack < count)
        pack *= 2;
    b.lag *= pack;
    b.before *= pack;
    b.after *= pack;
    if (count > 0 && rows > 0)
        v.at[v.count++] = view{kind, b, first, count, rows, pack, v.head, v.heads, v.add};
}

/* before and after, limited to `most`, which is more units than there are. */
static inline band band_of(int unit, int before, int after, bool causal, int most)
{
    const int back = BY_MAX(BY_MIN(before, most), -most), on = BY_MAX(BY_MIN(after, most), -most);
    return band{unit, unit, back, on, 0, causal, causal && back == most};
}

static inline void add_columns(view_list &v, int total, int length, bool causal, int lag)
{
    const int rows = total / length, rest = total % length, most = rows + 1;
    band b = band_of(1, most, most, causal, most);
    b.lag = lag;
    add_view(v, COLUMNS, b, 0, rest, rows + 1);
    add_view(v, COLUMNS, b, rest, length - rest, rows);
}

/* Summaries of blocks before the own one, or of all, up to the own position if `causal`. */
static inline void add_summaries(view_list &v, const attention_node &m, bool causal, bool before)
{
    const summaries s = summaries_of(m);
    const int most = s.total / s.length + 1;
    if (summaries_in(&s) > 0)
        add_view(v, SUMMARIES,
                 band{s.length, s.count, most, before ? -1 : most, 0, causal && !before, causal}, 0, 1,
                 m.queries);
}

/* In the order in which they are computed. */
static inline view_list views_of(const attention_node &m)
{
    const by_pattern &p = m.attr->spec.pattern;
    const bool causal = m.attr->spec.mask == BY_MASK_CAUSAL, strided = p.kind == BY_PATTERN_STRIDED;
    const bool parts = strided || p.kind == BY_PATTERN_FIXED, both = parts && p.part == 0;
    const bool split = parts && p.part == 3;
    const gr_reach r = gr_reach_of(&p);
    const int most = m.keys / r.unit + 1, half = split ? m.heads / 2 : 0;
    view_list v = {};
    v.head = half;
    v.heads = m.heads - half;
    if (parts && p.part != 1 && strided && !(both && p.length >= m.queries))
        add_columns(v, m.queries, p.length, causal, both);
    if (parts && p.part != 1 && !strided)
        add_summaries(v, m, causal, both);
    v.head = 0;
    v.heads = split ? half : m.heads;
    v.add = both && v.count > 0;
    if ((!parts || p.part != 2) && v.heads > 0)
        add_view(v, NEAR, band_of(r.unit, r.before, r.after, causal, most), 0, 1, m.queries);
    return v;
}

/* Returns true if a node with a pattern has views: near and far keys are disjoint, and every query sees a
 * key or gives zeros. */
static inline bool has_views(const gr_node *n)
{
    const gr_attention_attr *at = (const gr_attention_attr *)n->attr;
    const by_pattern &p = at->spec.pattern;
    const gr_reach r = gr_reach_of(&p);
    const attention_node m = node_of(n);
    const bool far = p.kind == BY_PATTERN_STRIDED || p.kind == BY_PATTERN_FIXED;
    const bool near = p.kind == BY_PATTERN_WINDOW || p.kind == BY_PATTERN_BLOCKS;
    if (!(near || far) || m.queries != m.keys || n->in[GR_ATT_KEY_MASK])
        return false;
    /* A key head that both halves of the heads read would get two gradients. */
    if (far && p.part == 3 && m.heads / 2 % (m.heads / m.kv_heads) != 0)
        return false;
    /* Without summaries, some heads have no view. */
    const summaries s = summaries_of(m);
    if (p.kind == BY_PATTERN_FIXED && p.part > 1 && summaries_in(&s) == 0)
        return false;
    if (far && p.part == 0 && at->spec.mask != BY_MASK_CAUSAL)
        return false;
    return (at->spec.empty_zero || gr_reaches_itself(&r)) && views_of(m).count > 0;
}

/* ---- one view as a node ---------------------------------------------------------------------- */

static inline void as_column(head_rows &r, const view &v, int step)
{
    if (r.at)
        r.at = (char *)r.at + v.first * r.row * 2;
    r.column = r.row;
    r.row *= step;
}

/* From head `head` on. */
static inline void as_heads(head_rows &r, int head, int dim)
{
    if (r.at)
        r.at = (char *)r.at + (int64_t)head * dim * 2;
}

/* Of all heads of a view. */
static inline head_rows summary_copy(const summaries &s, void *at)
{
    return head_rows{at, s.width, (int64_t)s.width * summaries_in(&s), s.width};
}

/* Bytes of a copy of the summaries of keys or values, or of their gradients. */
static inline size_t summary_bytes(const attention_node &m)
{
    const summaries s = summaries_of(m);
    return (size_t)s.batch * (size_t)summaries_in(&s) * (size_t)s.width * 2;
}

/* The heads of m that a view has, with all keys. */
static inline attention_node node_of_heads(const attention_node &m, const view &v)
{
    attention_node x = m;
    const int group = m.heads / m.kv_heads, dim = m.attr->head_dim;
    x.heads = v.heads;
    x.kv_heads = v.heads / group;
    for (head_rows *r : {&x.in[0], &x.y, &x.dy, &x.grad[0]})
        as_heads(*r, v.head, dim);
    for (head_rows *r : {&x.in[1], &x.in[2], &x.grad[1], &x.grad[2]})
        as_heads(*r, v.head / group, dim);
    x.lse = m.lse ? m.lse + (int64_t)v.head * m.queries : NULL;
    return x;
}

/* The node of one view; m: of its heads. copies: of the summaries of k, v, dk and dv. */
static inline attention_node node_of_view(const attention_node &m, const view &v, char *copies)
{
    attention_node x = m;
    const int step = v.kind == COLUMNS ? m.attr->spec.pattern.length : 1;
    x.band = v.band;
    x.layout = band_layout{v.count, packs_of(v), v.pack, step, m.queries, m.attr->spec.heads, v.add};
    x.batch = m.batch * packs_of(v);
    x.queries = x.keys = v.rows * v.pack;
    for (head_rows *r : {&x.in[0], &x.in[1], &x.in[2], &x.y, &x.dy, &x.grad[0], &x.grad[1], &x.grad[2]})
        as_column(*r, v, step);
    x.lse = m.lse ? m.lse + v.first : NULL;
    if (v.kind == SUMMARIES) {
        const summaries s = summaries_of(m);
        x.keys = summaries_in(&s);
        for (int i = 0; i < 2; i++) {
            x.in[1 + i] = summary_copy(s, copies + (size_t)i * summary_bytes(m));
            if (m.grad[1 + i].at)
                x.grad[1 + i] = summary_copy(s, copies + (size_t)(2 + i) * summary_bytes(m));
        }
    }
    return x;
}

static inline summary_rows plain_rows(const head_rows &r)
{
    return summary_rows{r.at, r.row, r.batch};
}

/* Before the view of the summaries of heads m: copies k and v. */
static inline by_status copy_summaries(cuda_exec *x, const attention_node &m, const attention_node &view)
{
    const summaries s = summaries_of(m);
    BY_TRY(cuda_take_summaries(x, s, plain_rows(view.in[1]), plain_rows(m.in[1])));
    return cuda_take_summaries(x, s, plain_rows(view.in[2]), plain_rows(m.in[2]));
}

} // namespace

#endif
