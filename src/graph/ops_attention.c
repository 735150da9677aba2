/* ops_attention.c - shape rules and costs of attention, of its cache and of hashing. */
#include "graph/graph.h"
#include "graph/op_rules.h"
#include "graph/reach.h"

static by_status infer_pattern(const by_pattern *x)
{
    const bool cut = x->kind == BY_PATTERN_STRIDED || x->kind == BY_PATTERN_FIXED;
    const bool sinks = x->kind == BY_PATTERN_SINKS;
    const bool near = x->kind == BY_PATTERN_WINDOW || x->kind == BY_PATTERN_BLOCKS || sinks;
    const int numbers[] = {x->length, x->before, x->after};
    if (x->kind < BY_PATTERN_FULL || x->kind > BY_PATTERN_MEMORY)
        return base_fail(BY_ERR_ARGUMENT, "unknown pattern kind %d", (int)x->kind);
    for (int i = 0; i < BY_COUNT(numbers); i++)
        if (numbers[i] >= GR_REACH_LIMIT || numbers[i] <= -GR_REACH_LIMIT)
            return base_fail(BY_ERR_ARGUMENT, "%d in the pattern is too large", numbers[i]);
    if (x->part < 0 || x->part > 3 || (x->part && !cut))
        return base_fail(BY_ERR_ARGUMENT, "invalid part %d of the pattern", x->part);
    const bool blocks = x->kind == BY_PATTERN_BLOCKS || x->kind == BY_PATTERN_MEMORY;
    if ((cut || sinks || blocks) && x->length < 1)
        return base_fail(BY_ERR_ARGUMENT, "the pattern has the length %d", x->length);
    if (x->kind == BY_PATTERN_MEMORY && x->before < 0)
        return base_fail(BY_ERR_ARGUMENT, "the pattern has a memory of %d keys", x->before);
    if (near && x->before < -x->after)
        return base_fail(BY_ERR_ARGUMENT, "a pattern from %d before to %d after is empty", x->before,
                         x->after);
    if (x->kind == BY_PATTERN_FIXED && x->part != 1 && (x->after < 1 || x->after > x->length))
        return base_fail(BY_ERR_ARGUMENT, "%d of %d columns of the pattern are summaries", x->after,
                         x->length);
    return BY_OK;
}

/* Whether x has the shape (B or 1, H or 1, T or 1, last) for the queries of the node. */
static bool is_by_score(const gr_node *n, const by_tensor *x, int64_t last)
{
    const by_attention_spec *a = &((const gr_attention_attr *)n->attr)->spec;
    const by_tensor *q = n->in[GR_ATT_Q];
    return x->rank == 4 && (x->dim[0] == q->dim[0] || x->dim[0] == 1) &&
           (x->dim[1] == a->heads || x->dim[1] == 1) && (x->dim[2] == q->dim[1] || x->dim[2] == 1) &&
           x->dim[3] == last;
}

/* Whether the pair mask has an entry for every pair of a query and a key, or of their blocks. */
static bool fits_pairs(const gr_node *n, const by_tensor *x, int64_t s)
{
    const by_attention_spec *a = &((const gr_attention_attr *)n->attr)->spec;
    const by_tensor *q = n->in[GR_ATT_Q];
    const int64_t block = BY_MAX(a->pair_block, 1), rows = (q->dim[1] + block - 1) / block;
    return a->pair_block >= 0 && a->pair_block < GR_REACH_LIMIT && x->rank == 4 &&
           (x->dim[0] == q->dim[0] || x->dim[0] == 1) && (x->dim[1] == a->heads || x->dim[1] == 1) &&
           (x->dim[2] == rows || x->dim[2] == 1) && x->dim[3] == (s + block - 1) / block;
}

/* Checks masks, prefix and pattern for keys 0 ... s - 1. */
static by_status infer_masks(gr_node *n, int64_t s)
{
    const by_attention_spec *a = &((const gr_attention_attr *)n->attr)->spec;
    const by_tensor *mask = n->in[GR_ATT_KEY_MASK], *prefix = n->in[GR_ATT_PREFIX];
    const by_tensor *pairs = n->in[GR_ATT_PAIR_MASK];
    const int64_t b = n->in[GR_ATT_Q]->dim[0], t = n->in[GR_ATT_Q]->dim[1];
    if (mask && (mask->type != BY_I32 || mask->rank != 2 || mask->dim[0] != b || mask->dim[1] != s))
        return gr_mismatch(n, "a key mask (B, S) of i32");
    if (pairs && ((pairs->type != BY_I32 && pairs->type != BY_U8) || !fits_pairs(n, pairs, s)))
        return gr_mismatch(n, a->pair_block
                                  ? "a pair mask by blocks, (B or 1, H or 1, T / n or 1, S / n) of i32 or u8"
                                  : "a pair mask (B or 1, H or 1, T or 1, S) of i32 or u8");
    if (a->mask < BY_MASK_NONE || a->mask > BY_MASK_PREFIX)
        return base_fail(BY_ERR_ARGUMENT, "unknown mask %d", (int)a->mask);
    if ((a->mask == BY_MASK_PREFIX) != (prefix != NULL))
        return base_fail(BY_ERR_ARGUMENT, "%s",
                         prefix ? "a prefix tensor requires BY_MASK_PREFIX"
                                : "BY_MASK_PREFIX requires a prefix tensor");
    if (prefix && (prefix->type != BY_I32 || by_elements(prefix) != b))
        return gr_mismatch(n, "a prefix (B) of i32");
    if (t >= GR_REACH_LIMIT || s >= GR_REACH_LIMIT)
        return gr_mismatch(n, "fewer positions");
    return infer_pattern(&a->pattern);
}

static by_status infer_sight(gr_node *n, int64_t s)
{
    const by_attention_spec *a = &((const gr_attention_attr *)n->attr)->spec;
    const by_tensor *q = n->in[GR_ATT_Q], *bias = n->in[GR_ATT_BIAS], *relative = n->in[GR_ATT_RELATIVE];
    BY_TRY(infer_masks(n, s));
    if (bias && (bias->type != q->type || !is_by_score(n, bias, s)))
        return gr_mismatch(n, "a bias (B or 1, H or 1, T or 1, S) of q's type");
    if (!relative)
        return BY_OK;
    const int64_t l = by_dim(relative, 3);
    if (relative->type != q->type || l < 1 || l >= GR_REACH_LIMIT || !is_by_score(n, relative, l))
        return gr_mismatch(n, "a relative bias (B or 1, H or 1, T or 1, L) of q's type");
    if (a->relative_zero >= GR_REACH_LIMIT || a->relative_zero <= -GR_REACH_LIMIT)
        return base_fail(BY_ERR_ARGUMENT, "relative_zero %d is too large", a->relative_zero);
    return BY_OK;
}

/* Only queries: the keys and values are in a cache. */
static by_status infer_attention_queries(gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    const by_tensor *q = n->in[0];
    if (n->in[1] || n->in[2] || q->rank != 3 || !by_dtype_is_float(q->type) || a->head_dim < 1 ||
        a->spec.kv_heads < 1 || a->spec.heads % a->spec.kv_heads ||
        q->dim[2] != (int64_t)a->spec.heads * a->head_dim)
        return gr_mismatch(n, "q (B, T, H*D) alone, as there is no past");
    return BY_OK;
}

static by_status infer_attention_heads(gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    const by_tensor *q = n->in[0], *k = n->in[1], *v = n->in[2];
    if (q->rank != 3 || !by_dtype_is_float(q->type))
        return gr_mismatch(n, "q (B, T, H*D)");
    const int heads = a->spec.heads, kv_heads = a->spec.kv_heads;
    if (heads < 1 || kv_heads < 1 || heads % kv_heads)
        return base_fail(BY_ERR_ARGUMENT, "%d heads are not a multiple of %d key/value heads", heads,
                         kv_heads);
    int64_t width = (int64_t)(a->packed ? heads + 2 * kv_heads : heads) * a->head_dim;
    if (a->head_dim < 1 || q->dim[2] != width)
        return gr_mismatch(n, "a width that divides evenly by the number of heads");
    if (!a->packed &&
        (!k || !v || !gr_same_shape(k, v) || k->rank != 3 || k->dim[0] != q->dim[0] || k->type != q->type ||
         v->type != q->type || k->dim[2] != (int64_t)kv_heads * a->head_dim))
        return gr_mismatch(n, "q (B, T, H*D), k and v (B, S, Hkv*D), of one type");
    return BY_OK;
}

by_status gr_infer_attention(gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    const by_tensor *q = n->in[0];
    BY_TRY(infer_attention_heads(n));
    int64_t b = q->dim[0], t = q->dim[1], s = a->packed ? t : n->in[1]->dim[1], h = a->spec.heads;
    BY_TRY(infer_sight(n, s));
    BY_TRY(gr_set_output(n, 0, q->type, 3, (int64_t[]){b, t, h * a->head_dim}));
    BY_TRY(gr_set_output(n, 1, gr_acc_type(q->type), 3, (int64_t[]){b, h, t}));
    return gr_set_output(n, 2, q->type, 4, (int64_t[]){b, h, t, s});
}

/* Total number of pairs of queries at positions [first, first + t) and visible keys of s, over all heads.
 * Prefixes and key masks are not known yet and are not counted. */
static double keys_seen(const gr_attention_attr *a, int64_t first, int64_t t, int64_t s)
{
    const int heads = a->spec.heads, half = a->spec.pattern.part == 3 ? heads / 2 : 0;
    const gr_reach r = gr_reach_of(&a->spec.pattern);
    const gr_reach low = gr_reach_of_head(r, 0, heads), high = gr_reach_of_head(r, heads - 1, heads);
    double sum = 0;
    for (int64_t p = first; p < first + t; p++) {
        const int keys = (int)(a->spec.mask == BY_MASK_NONE ? s : p < 0 ? 0 : BY_MIN(p + 1, s));
        sum += half ? (double)half * (double)gr_reach_count(&low, (int)p, keys) : 0;
        sum += (heads - half) * (double)(high.on ? gr_reach_count(&high, (int)p, keys) : keys);
    }
    return sum;
}

gr_cost gr_cost_attention(const gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    const int64_t t = by_dim(n->in[0], 1), s = a->packed ? t : by_dim(n->in[1], 1);
    const double batch = (double)by_dim(n->in[0], 0);
    return gr_cost_of_bytes(n, 4.0 * batch * keys_seen(a, s - t, t, s) * a->head_dim);
}

by_status gr_infer_attention_grad(gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    for (int i = 0; i < (a->packed ? 1 : 3); i++)
        BY_TRY(gr_set_output_like(n, i, n->in[i]));
    for (int i = 0; i < 2; i++)
        if (n->in[GR_ATT_BIAS + i])
            BY_TRY(gr_set_output_like(n, 3 + i, n->in[GR_ATT_BIAS + i]));
    return BY_OK;
}
gr_cost gr_cost_attention_grad(const gr_node *n)
{
    gr_cost c = gr_cost_attention(n);
    c.flops *= 2.5;
    return c;
}

int64_t gr_cache_room(const by_tensor *cache, const by_tensor *pages)
{
    return cache->dim[1] * (pages ? pages->dim[1] : 1);
}

/* Checks the pages of `rows` rows in a cache (pages, P, C). */
static by_status infer_pages(gr_node *n, const by_tensor *pages, const by_tensor *cache, int64_t rows)
{
    const int64_t size = cache->dim[1];
    if (!pages)
        return BY_OK;
    if (pages->type != BY_I32 || pages->rank != 2 || pages->dim[0] != rows || pages->dim[1] < 1)
        return gr_mismatch(n, "pages (B, n) of i32");
    if (pages->dim[1] > 1 && (size < 16 || size > 256 || (size & (size - 1))))
        return gr_mismatch(n, "pages whose size is a power of two from 16 to 256");
    return BY_OK;
}

by_status gr_infer_attention_cached(gr_node *n)
{
    const gr_attention_attr *a = n->attr;
    const by_tensor *q = n->in[0], *kc = n->in[GR_ATT_K_CACHE], *vc = n->in[GR_ATT_V_CACHE],
                    *past = n->in[GR_ATT_PAST], *pages = n->in[GR_ATT_PAGES];
    BY_TRY(past ? infer_attention_heads(n) : infer_attention_queries(n));
    if (!kc || !vc || kc->rank != 3 || !gr_same_shape(kc, vc) || (!pages && kc->dim[0] != q->dim[0]) ||
        kc->dim[2] != (int64_t)a->spec.kv_heads * a->head_dim || kc->type != q->type || vc->type != q->type ||
        (past && (past->type != BY_I32 || by_elements(past) != q->dim[0])))
        return gr_mismatch(n, "caches (B, M, Hkv*D) of q's type and past (B) of i32");
    BY_TRY(infer_pages(n, pages, kc, q->dim[0]));
    BY_TRY(infer_sight(n, gr_cache_room(kc, pages)));
    return gr_set_output(n, 0, q->type, 3,
                         (int64_t[]){q->dim[0], q->dim[1], (int64_t)a->spec.heads * a->head_dim});
}
gr_cost gr_cost_attention_cached(const gr_node *n) /* upper bound: a full cache */
{
    const gr_attention_attr *a = n->attr;
    const int64_t t = by_dim(n->in[0], 1), room = gr_cache_room(n->in[GR_ATT_K_CACHE], n->in[GR_ATT_PAGES]);
    const double batch = (double)by_dim(n->in[0], 0);
    return gr_cost_of_bytes(n, 4.0 * batch * keys_seen(a, room - t, t, room) * a->head_dim);
}

by_status gr_infer_hash(gr_node *n)
{
    const gr_hash_attr *a = n->attr;
    const by_tensor *x = n->in[0], *r = n->in[1], *mask = n->in[2];
    int64_t columns = 0, buckets = 1;
    for (int i = 0; i < a->count; i++) {
        if (a->factor[i] < 2 || a->factor[i] % 2 || buckets > INT32_MAX / 2 / a->factor[i])
            return base_fail(BY_ERR_ARGUMENT,
                             "%d is not a valid factor of the number of buckets; factors are even",
                             a->factor[i]);
        columns += a->factor[i] / 2;
        buckets *= a->factor[i];
    }
    if (x->rank != 3 || !by_dtype_is_float(x->type) || r->type != gr_acc_type(x->type) || r->rank != 4 ||
        r->dim[0] * r->dim[1] != x->dim[2] || r->dim[2] < 1 || r->dim[3] != columns)
        return gr_mismatch(n, "x (B, T, H*D), rotations (H, D, R, half the sum of the factors)");
    if (mask &&
        (mask->type != BY_I32 || mask->rank != 2 || mask->dim[0] != x->dim[0] || mask->dim[1] != x->dim[1]))
        return gr_mismatch(n, "a mask (B, T) of i32");
    return gr_set_output(n, 0, BY_I32, 4, (int64_t[]){x->dim[0], r->dim[0], r->dim[2], x->dim[1]});
}
gr_cost gr_cost_hash(const gr_node *n)
{
    const by_tensor *r = n->in[1];
    return gr_cost_of_bytes(n,
                            2 * (double)by_elements(n->out[0]) * (double)by_dim(r, 1) * (double)by_dim(r, 3));
}

static by_status check_chunks(const gr_node *n)
{
    const gr_chunked_attr *a = n->attr;
    const by_chunked_spec *s = &a->spec;
    if (s->before < 0 || s->after < 0 || s->before > 1024 || s->after > 1024)
        return base_fail(BY_ERR_ARGUMENT, "%d chunks before and %d after cannot be seen", s->before,
                         s->after);
    if (!(s->dropout >= 0 && s->dropout < 1))
        return base_fail(BY_ERR_ARGUMENT, "dropout probability %g is not in [0, 1)", (double)s->dropout);
    if (s->length % s->chunk || s->length < n->in[0]->dim[1] || s->length >= GR_REACH_LIMIT)
        return base_fail(BY_ERR_ARGUMENT,
                         "length %lld must be a multiple of the chunk, %d, and hold %lld rows",
                         (long long)s->length, s->chunk, (long long)n->in[0]->dim[1]);
    return BY_OK;
}

by_status gr_infer_chunked_attention(gr_node *n)
{
    const gr_chunked_attr *a = n->attr;
    const by_chunked_spec *s = &a->spec;
    const by_tensor *q = n->in[0], *order = n->in[GR_CHUNKED_ORDER], *mask = n->in[GR_CHUNKED_MASK];
    for (int i = 0; i < 3; i++)
        if (n->in[i]->rank != 3 || !by_dtype_is_float(q->type) || n->in[i]->type != q->type ||
            !gr_same_shape(n->in[i], q) || a->head_dim < 1 || q->dim[2] != (int64_t)s->heads * a->head_dim)
            return gr_mismatch(n, "q, k and v (B, T, H*D) of one type");
    const int64_t b = q->dim[0], t = q->dim[1], h = s->heads, rounds = order ? by_dim(order, 2) : 1;
    if (order && (order->type != BY_I32 || order->rank != 4 || order->dim[0] != b || order->dim[1] != h ||
                  rounds < 1 || order->dim[3] != t))
        return gr_mismatch(n, "an order (B, H, R, T) of i32");
    if (mask && (mask->type != BY_I32 || mask->rank != 2 || mask->dim[0] != b || mask->dim[1] != t))
        return gr_mismatch(n, "a key mask (B, T) of i32");
    BY_TRY(check_chunks(n));
    const int64_t window = (int64_t)(s->before + 1 + s->after) * s->chunk;
    BY_TRY(gr_set_output_like(n, 0, q));
    BY_TRY(gr_set_output(n, 1, gr_acc_type(q->type), 4, (int64_t[]){b, h, t, 2}));
    return gr_set_output(n, 2, q->type, 5,
                         (int64_t[]){b, h, rounds * (s->length / s->chunk), s->chunk, window});
}

gr_cost gr_cost_chunked_attention(const gr_node *n)
{
    const gr_chunked_attr *a = n->attr;
    const by_tensor *order = n->in[GR_CHUNKED_ORDER];
    const double rounds = order ? (double)by_dim(order, 2) : 1;
    const double window = (double)(a->spec.before + 1 + a->spec.after) * a->spec.chunk;
    return gr_cost_of_bytes(n, 4 * (double)by_elements(n->in[0]) * rounds * window);
}

by_status gr_infer_chunked_attention_grad(gr_node *n)
{
    for (int i = 0; i < 3; i++)
        BY_TRY(gr_set_output_like(n, i, n->in[i]));
    return BY_OK;
}
gr_cost gr_cost_chunked_attention_grad(const gr_node *n)
{
    gr_cost c = gr_cost_chunked_attention(n);
    c.flops *= 2.5;
    return c;
}

by_status gr_infer_reorder(gr_node *n)
{
    const by_tensor *keys = n->in[0], *from = n->in[2], *past = n->in[3], *pages = n->in[4];
    const int beams = ((const gr_reorder_attr *)n->attr)->beams;
    const int64_t rows = pages ? by_elements(pages) : by_dim(keys, 0);
    if (keys->rank != 3 || !gr_same_shape(keys, n->in[1]) || keys->type != n->in[1]->type ||
        from->type != BY_I32 || past->type != BY_I32 || !gr_is_vector(from, rows) ||
        !gr_is_vector(past, rows))
        return gr_mismatch(n, "two caches (B, M, C) of one type, from (B) and past (B) of i32");
    if (pages && (pages->type != BY_I32 || pages->rank != 2 || pages->dim[1] != 1))
        return gr_mismatch(n, "one page for every row, (B, 1) of i32");
    if (beams < 1 || beams > BY_BEAMS_MAX || rows % beams != 0)
        return base_fail(BY_ERR_ARGUMENT, "%lld rows do not form groups of %d (at most %d)", (long long)rows,
                         beams, BY_BEAMS_MAX);
    return BY_OK;
}
gr_cost gr_cost_reorder(const gr_node *n) /* upper bound: every row is copied and full */
{
    gr_cost c = gr_cost_of_bytes(n, 0);
    c.bytes *= 2;
    return c;
}

by_status gr_infer_advance(gr_node *n)
{
    const int64_t rows = by_elements(n->in[0]);
    for (int i = 0; i < 5; i++)
        if (n->in[i]->type != BY_I32 || (i < 4 && by_elements(n->in[i]) != rows))
            return gr_mismatch(n, "next, tokens, positions and past (B), and a log, all of i32");
    return (by_elements(n->in[4]) - 1) % rows == 0 ? BY_OK : gr_mismatch(n, "a log of 1 + M B elements");
}
gr_cost gr_cost_advance(const gr_node *n)
{
    return gr_cost_of_bytes(n, 0);
}
