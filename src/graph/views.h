/* views.h - the pairs of a causal pattern as dense parts, for both backends. A view is a set of groups; a
 * group is an ordinary attention problem over a subset of queries and keys in its own order: "columns become
 * rows". The views of a head cover every pair of the pattern exactly once, so kernels process only pairs that
 * are seen.
 *
 *   strided l      window: p - l < s <= p; columns: positions r, r + l, r + 2 l, ... of each r < l, causal
 *   fixed l, c     blocks: the own block of l, causal; summaries: the last c positions of all earlier blocks,
 *                  for every query of a block; tails: those of the own block, causal
 *
 * The forward pass processes the views of a head in order. The first contains every query once, some possibly
 * without keys. A view with `more` continues from the y and lse of the earlier ones. In the backward pass, P
 * = e^(score - lse) with the final lse, and the gradients of all views are summed. */
#ifndef BY_GRAPH_VIEWS_H
#define BY_GRAPH_VIEWS_H

#include "graph/graph.h"
#include "graph/reach.h"

typedef enum gr_view_kind {
    GR_VIEW_WINDOW,
    GR_VIEW_COLUMNS, /* with the own position */
    GR_VIEW_EARLIER, /* columns without it */
    GR_VIEW_BLOCKS,
    GR_VIEW_SUMMARIES,
    GR_VIEW_TAILS
} gr_view_kind;

enum { GR_MAX_VIEWS = 3 };

typedef struct gr_view {
    gr_view_kind kind;
    int length, summaries;       /* l and c */
    int queries, keys;           /* of the whole problem: T <= S */
    int head0, head1;            /* applies to heads [head0, head1) */
    bool more;                   /* continues an earlier view of these heads */
    bool shared;                 /* all groups have the same keys; otherwise their keys are disjoint */
    int groups;                  /* some may have no queries or no keys */
    int most_queries, most_keys; /* of a group, at most */
} gr_view;

/* Query i of a group is row query_at + i * query_step of the queries; key j is row
 * key_at + (j / run) * key_step + j % run of the keys. */
typedef struct gr_group {
    int queries, keys;
    int query_at, query_step;
    int key_at, key_step, run;
    bool causal; /* queries <= keys, and query i sees j <= i + keys - queries; otherwise every key */
    int window;  /* if not 0, it sees no more than the last `window` of these */
} gr_group;

GR_REACH int gr_least(int a, int b)
{
    return a < b ? a : b;
}
GR_REACH int gr_most(int a, int b)
{
    return a > b ? a : b;
}

/* Positions lo, lo + 1, ..., hi - 1 as keys, and those of them that are queries as queries. */
GR_REACH gr_group gr_group_between(const gr_view *v, int lo, int hi)
{
    const int shift = v->keys - v->queries, first = gr_most(lo, shift);
    gr_group x = {gr_most(hi - first, 0), gr_most(hi - lo, 0), first - shift, 1, lo, 1, 1, true, 0};
    return x;
}

/* Column r: positions r, r + l, ... From query `first` of the column on, each sees the keys up to its own, or
 * up to the previous one if first is 1. */
GR_REACH gr_group gr_group_column(const gr_view *v, int r, int first)
{
    const int l = v->length, shift = v->keys - v->queries;
    const int keys = r < v->keys ? (v->keys - r + l - 1) / l : 0;
    const int query = gr_most(first, r < shift ? (shift - r + l - 1) / l : 0);
    gr_group x = {
        gr_most(keys - query, 0), gr_most(keys - first, 0), r + query * l - shift, l, r, l, 1, true, 0};
    return x;
}

/* Group g of the view. */
GR_REACH gr_group gr_group_of(const gr_view *v, int g)
{
    const int l = v->length, block = (v->keys - v->queries) / l + g, end = gr_least(block * l + l, v->keys);
    gr_group x = gr_group_between(v, 0, v->keys);
    switch (v->kind) {
    case GR_VIEW_WINDOW:
        x.window = l;
        return x;
    case GR_VIEW_COLUMNS:
        return gr_group_column(v, g, 0);
    case GR_VIEW_EARLIER:
        return gr_group_column(v, g, 1);
    case GR_VIEW_BLOCKS:
        return gr_group_between(v, block * l, end);
    case GR_VIEW_TAILS:
        return gr_group_between(v, block * l + l - v->summaries, end);
    case GR_VIEW_SUMMARIES:
        x = gr_group_between(v, block * l, end);
        x.keys = block * v->summaries;
        x.key_at = l - v->summaries;
        x.key_step = l;
        x.run = v->summaries;
        x.causal = false;
        return x;
    }
    return x;
}

/* The row of key j of a group. */
GR_REACH int gr_group_key(const gr_group *x, int j)
{
    return x->run == 1 ? x->key_at + j * x->key_step : x->key_at + j / x->run * x->key_step + j % x->run;
}

static inline void gr_add_view(gr_view *to, int *n, gr_view_kind kind, gr_view like, bool more)
{
    gr_view *v = &to[*n];
    const int l = like.length, s = like.keys, blocks = (s - 1) / l - (s - like.queries) / l + 1;
    *v = like;
    v->kind = kind;
    v->more = more;
    v->shared = kind == GR_VIEW_WINDOW || kind == GR_VIEW_SUMMARIES;
    v->groups = kind == GR_VIEW_WINDOW    ? 1
                : kind == GR_VIEW_COLUMNS ? gr_least(l, s)
                : kind == GR_VIEW_EARLIER ? gr_most(gr_least(l, s - l), 0)
                                          : blocks;
    v->most_queries = v->most_keys = gr_least(kind == GR_VIEW_TAILS ? v->summaries : l, s);
    if (kind == GR_VIEW_WINDOW || kind == GR_VIEW_COLUMNS || kind == GR_VIEW_EARLIER)
        v->most_queries = v->most_keys = kind == GR_VIEW_WINDOW ? s : (s + l - 1) / l;
    if (kind == GR_VIEW_SUMMARIES)
        v->most_keys = (s - 1) / l * v->summaries;
    v->most_queries = gr_least(v->most_queries, like.queries);
    *n += v->head0 < v->head1 && v->groups > 0 && (v->most_keys > 0 || !more);
}

/* Writes the views of a causal pattern for T queries, the last of which is at the last of S keys, and returns
 * their number, 0 if the pattern has no views. */
static inline int gr_views_of(const by_pattern *p, int64_t queries, int64_t keys, int heads,
                              gr_view to[GR_MAX_VIEWS])
{
    const bool window = p->kind == BY_PATTERN_WINDOW, strided = p->kind == BY_PATTERN_STRIDED;
    const bool blocks = p->kind == BY_PATTERN_BLOCKS, fixed = p->kind == BY_PATTERN_FIXED;
    gr_view like = {
        GR_VIEW_WINDOW, p->length, p->after, (int)queries, (int)keys, 0, heads, false, false, 0, 0, 0};
    int n = 0;
    if (queries < 1 || queries > keys || !(window || strided || blocks || fixed))
        return 0;
    if ((window || blocks) && (p->before < 0 || p->after < 0 || (blocks && p->before > 0)))
        return 0;
    like.length = window ? p->before + 1 : p->length;
    if (window || blocks || p->part != 2) {
        if (p->part == 3)
            like.head1 = heads / 2;
        gr_add_view(to, &n, window || strided ? GR_VIEW_WINDOW : GR_VIEW_BLOCKS, like, false);
    }
    if (window || blocks || p->part == 1)
        return n;
    like.head0 = p->part == 3 ? heads / 2 : 0;
    like.head1 = heads;
    if (p->part == 0)
        gr_add_view(to, &n, strided ? GR_VIEW_EARLIER : GR_VIEW_SUMMARIES, like, true);
    else
        gr_add_view(to, &n, strided ? GR_VIEW_COLUMNS : GR_VIEW_SUMMARIES, like, false);
    if (fixed && p->part != 0)
        gr_add_view(to, &n, GR_VIEW_TAILS, like, true);
    return n;
}

/* The same for an attention, attention_grad or attention_cached node without weights. Returns 0 if the node
 * needs features that views lack: other masks, biases, or the mean for queries that see no key. */
static inline int gr_node_views(const gr_node *n, bool causal, int64_t queries, int64_t keys,
                                gr_view to[GR_MAX_VIEWS])
{
    const by_attention_spec *a = &((const gr_attention_attr *)n->attr)->spec;
    const gr_reach r = gr_reach_of(&a->pattern);
    if (!causal || n->in[GR_ATT_PREFIX] || n->in[GR_ATT_BIAS] || n->in[GR_ATT_RELATIVE] ||
        n->in[GR_ATT_PAIR_MASK])
        return 0;
    if (!a->empty_zero && (n->in[GR_ATT_KEY_MASK] || !gr_reaches_itself(&r)))
        return 0;
    return gr_views_of(&a->pattern, queries, keys, a->heads, to);
}

#endif
