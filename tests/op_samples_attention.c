/* op_samples_attention.c - samples of attention, its gradient, and attention over a cache. */
#include "op_sample_build.h"

/* Which keys are hidden. */
enum { ALL_SEEN, SOME_HIDDEN, ROW_HIDDEN, END_HIDDEN };
/* Axes of a bias that do not repeat. */
enum { BIAS = 1, BIAS_BATCH = 2, BIAS_HEAD = 4, BIAS_ROW = 8, BIAS_ALL = 15 };

typedef struct attention_case {
    int64_t batch, queries, keys; /* keys 0: packed */
    int heads, kv_heads, dim;
    by_mask mask;
    int hidden;
    float dropout;
    bool weights;
    by_pattern pattern;
    int bias;        /* its axes, of those above; 0: none */
    int64_t entries; /* by distance: of a row of it; 0: by key */
    int zero;
    int second;      /* axes of a bias by key besides one by distance; 0: none */
    int pairs;       /* axes of a pair mask; 0: none */
    bool bytes;      /* which is u8 */
    int block;       /* and has an entry for this many queries and keys; 0: one */
    bool empty_zero; /* queries that see nothing give zeros */
} attention_case;

#define WINDOW  .kind = BY_PATTERN_WINDOW
#define BLOCKS  .kind = BY_PATTERN_BLOCKS
#define STRIDED .kind = BY_PATTERN_STRIDED
#define FIXED   .kind = BY_PATTERN_FIXED
#define SINKS   .kind = BY_PATTERN_SINKS
#define MEMORY  .kind = BY_PATTERN_MEMORY

static const attention_case attentions[] = {
    {2, 5, 0, 3, 3, 4, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},
    {2, 7, 0, 2, 2, 5, BY_MASK_NONE, ALL_SEEN, 0, .weights = false},
    {1, 3, 6, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},  /* fewer queries than keys */
    {2, 4, 9, 4, 2, 3, BY_MASK_NONE, SOME_HIDDEN, 0, .weights = false}, /* grouped heads */
    {2, 6, 0, 4, 1, 16, BY_MASK_CAUSAL, SOME_HIDDEN, 0, .weights = false},
    {2, 2, 130, 2, 1, 20, BY_MASK_NONE, SOME_HIDDEN, 0,
     .weights = false}, /* few queries, several chunks of keys */
    {2, 9, 11, 2, 2, 7, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {2, 3, 5, 2, 1, 6, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {2, 9, 0, 2, 2, 6, BY_MASK_CAUSAL, ALL_SEEN, 0.25f, .weights = false},
    {2, 9, 12, 4, 2, 6, BY_MASK_CAUSAL, SOME_HIDDEN, 0.1f, .weights = true},
    {1, 70, 0, 2, 2, 17, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = true}, /* several tiles, the last not full */
    {1, 100, 0, 1, 1, 32, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false}, /* one head for two threads */
    {1, 90, 140, 1, 1, 16, BY_MASK_NONE, SOME_HIDDEN, 0.2f, .weights = false},
    {1, 66, 131, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},
    {1, 70, 0, 2, 2, 64, BY_MASK_NONE, ALL_SEEN, 0, .weights = false}, /* heads as in real models */
    {1, 9, 131, 4, 4, 64, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .weights = false}, /* a head for every small GPU's block */
    {2, 70, 0, 2, 2, 64, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false}, /* large heads, keys masked */
    {1, 9, 131, 4, 4, 64, BY_MASK_NONE, SOME_HIDDEN, 0, .weights = false},
    {2, 66, 140, 1, 1, 64, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {2, 9, 150, 2, 1, 128, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {1, 9, 200, 2, 2, 64, BY_MASK_NONE, END_HIDDEN, 0, .weights = false},
    {1, 9, 300, 1, 1, 128, BY_MASK_NONE, END_HIDDEN, 0, .weights = false},
    {1, 65, 65, 2, 2, 12, BY_MASK_CAUSAL, ROW_HIDDEN, 0, .weights = true},
    {1, 3, 7, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0.5f, .weights = false}, /* few queries, with dropout */
    {1, 5, 0, 1, 1, 72, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},   /* large heads */
    {1, 5, 6, 2, 1, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false},
    {1, 5, 0, 1, 1, 136, BY_MASK_NONE, SOME_HIDDEN, 0.2f, .weights = false},
    {1, 4, 3, 1, 1, 130, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false}, /* the first query sees nothing */
    /* prefixes */
    {2, 9, 12, 2, 1, 8, BY_MASK_PREFIX, ALL_SEEN, 0, .weights = true},
    {1, 70, 140, 2, 1, 16, BY_MASK_PREFIX, SOME_HIDDEN, 0.2f, .weights = false},
    {2, 2, 70, 2, 2, 8, BY_MASK_PREFIX, ROW_HIDDEN, 0, .weights = false},
    /* patterns, with tiles that nobody sees */
    {2, 20, 0, 2, 2, 8, BY_MASK_NONE, ALL_SEEN, 0.1f, .weights = true,
     .pattern = {WINDOW, .before = 3, .after = 2}},
    {1, 150, 0, 1, 1, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {WINDOW, .before = 20}},
    {1, 20, 11, 2, 1, 64, BY_MASK_NONE, ALL_SEEN, 0, .weights = true,
     .pattern = {WINDOW, .before = 3, .after = -1}},
    {1, 130, 200, 1, 1, 16, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {BLOCKS, .length = 32, .before = 1}},
    {1, 70, 90, 1, 1, 40, BY_MASK_CAUSAL, SOME_HIDDEN, 0, .pattern = {BLOCKS, .length = 7, .after = 3}},
    {1, 150, 0, 1, 1, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 70}},
    {1, 67, 140, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {STRIDED, .length = 100, .part = 2}},
    {1, 130, 0, 1, 1, 24, BY_MASK_PREFIX, ALL_SEEN, 0, .pattern = {FIXED, .length = 48, .after = 4}},
    {1, 70, 0, 1, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 80, .after = 3, .part = 2}},
    {1, 70, 140, 1, 1, 17, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 24, .after = 24, .part = 1}},
    {2, 150, 157, 2, 2, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .empty_zero = true,
     .pattern = {SINKS, .length = 7, .before = 9, .after = 9}},
    {1, 140, 240, 2, 1, 24, BY_MASK_NONE, ALL_SEEN, 0.1f, .weights = true,
     .pattern = {SINKS, .length = 70, .before = 3, .after = 2}},
    {1, 150, 0, 1, 1, 64, BY_MASK_NONE, ALL_SEEN, 0,
     .pattern = {SINKS, .length = 7, .before = 9, .after = 9}},
    {1, 3, 300, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {SINKS, .length = 4, .before = 20}},
    {1, 150, 0, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {MEMORY, .length = 48, .before = 33}},
    {2, 70, 90, 2, 2, 24, BY_MASK_CAUSAL, SOME_HIDDEN, 0.1f, .pattern = {MEMORY, .length = 7, .before = 20}},
    {1, 2, 300, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {MEMORY, .length = 64, .before = 20}},
    /* patterns of as many queries as keys, in heads of 64 and 128: each kind of view, lengths that divide
     * nothing, columns of two lengths, several tiles, groups of heads, queries that see nothing */
    {2, 300, 0, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {WINDOW, .before = 70}},
    {1, 200, 200, 3, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {WINDOW, .before = 5, .after = 66}},
    {1, 140, 140, 1, 1, 64, BY_MASK_NONE, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {WINDOW, .before = 130, .after = -60}},
    {2, 150, 150, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {BLOCKS, .length = 40, .before = 1}},
    {1, 300, 0, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {BLOCKS, .length = 100}},
    {2, 210, 0, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 20}},
    {2, 200, 200, 2, 2, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 50}},
    {1, 290, 290, 1, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 2}},
    {2, 150, 0, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 40, .part = 2}},
    {1, 150, 0, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {STRIDED, .length = 4, .part = 2}},
    {1, 150, 0, 1, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 200}},
    {2, 210, 0, 4, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {FIXED, .length = 50, .after = 7}},
    {1, 300, 300, 2, 1, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {FIXED, .length = 9, .after = 3}},
    {2, 150, 150, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 40, .after = 33, .part = 2}},
    {1, 150, 0, 1, 1, 128, BY_MASK_NONE, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 24, .after = 4, .part = 2}},
    {1, 150, 150, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 80, .after = 3, .part = 1}},
    {2, 133, 0, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 9}},
    {1, 150, 150, 2, 2, 17, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 30, .part = 2}},
    {1, 140, 0, 2, 2, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 30, .part = 3}},
    {1, 140, 140, 4, 2, 128, BY_MASK_CAUSAL, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 30, .after = 5, .part = 3}},
    {1, 140, 140, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 30, .part = 3}},
    /* biases, by key and by distance, and all of it together */
    {2, 9, 0, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = true, .bias = BIAS_ALL},
    {2, 70, 67, 1, 1, 5, BY_MASK_NONE, SOME_HIDDEN, 0, .bias = BIAS},
    {2, 66, 70, 2, 2, 16, BY_MASK_CAUSAL, ROW_HIDDEN, 0, .bias = BIAS | BIAS_ROW},
    {2, 70, 0, 2, 1, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .bias = BIAS | BIAS_HEAD, .entries = 33, .zero = 32},
    {2, 20, 0, 2, 2, 8, BY_MASK_NONE, ALL_SEEN, 0, .bias = BIAS_ALL, .entries = 39, .zero = 19},
    {1, 67, 70, 1, 1, 72, BY_MASK_NONE, ALL_SEEN, 0, .bias = BIAS_ALL, .entries = 9, .zero = 5},
    {1, 140, 0, 1, 1, 9, BY_MASK_NONE, ALL_SEEN, 0.3f, .weights = true, .bias = BIAS, .entries = 300,
     .zero = 150},
    {1, 9, 20, 2, 1, 136, BY_MASK_CAUSAL, ALL_SEEN, 0, .bias = BIAS | BIAS_BATCH | BIAS_HEAD, .entries = 12,
     .zero = 7},
    {1, 70, 131, 2, 1, 24, BY_MASK_PREFIX, SOME_HIDDEN, 0.1f, .weights = true,
     .pattern = {FIXED, .length = 20, .after = 2}, .bias = BIAS | BIAS_HEAD, .entries = 40, .zero = 20},
    /* few queries, as in decoding */
    {2, 1, 300, 4, 4, 32, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {WINDOW, .before = 40}},
    {2, 3, 130, 2, 1, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .bias = BIAS | BIAS_HEAD | BIAS_ROW},
    {1, 4, 600, 2, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .bias = BIAS | BIAS_HEAD, .entries = 33, .zero = 32},
    {2, 2, 150, 2, 1, 10, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 200, .after = 7, .part = 2}},
    {1, 1, 400, 1, 1, 136, BY_MASK_NONE, SOME_HIDDEN, 0, .pattern = {STRIDED, .length = 64}},
    {2, 1, 70, 1, 1, 128, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = false},
    {1, 4, 5, 40, 4, 8, BY_MASK_NONE, ALL_SEEN, 0, .bias = BIAS | BIAS_HEAD},
    /* two biases, pair masks, zeros for queries without keys */
    {2, 9, 0, 2, 1, 8, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = true, .bias = BIAS_ALL, .entries = 9,
     .zero = 8, .second = BIAS_ALL},
    {2, 70, 67, 2, 2, 16, BY_MASK_NONE, SOME_HIDDEN, 0.1f, .bias = BIAS | BIAS_HEAD, .entries = 40,
     .zero = 20, .second = BIAS | BIAS_BATCH, .pairs = BIAS | BIAS_BATCH | BIAS_ROW},
    {2, 20, 0, 2, 2, 64, BY_MASK_NONE, ALL_SEEN, 0, .weights = true, .pairs = BIAS_ALL, .bytes = true},
    {1, 66, 70, 2, 1, 72, BY_MASK_CAUSAL, ALL_SEEN, 0, .pairs = BIAS | BIAS_HEAD, .empty_zero = true},
    {2, 9, 11, 2, 2, 7, BY_MASK_NONE, ROW_HIDDEN, 0, .weights = true, .empty_zero = true},
    {1, 70, 0, 2, 2, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .empty_zero = true,
     .pattern = {FIXED, .length = 80, .after = 3, .part = 2}, .bias = BIAS | BIAS_HEAD, .entries = 12,
     .zero = 11},
    {2, 3, 130, 2, 1, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .bias = BIAS | BIAS_HEAD, .entries = 40, .zero = 20,
     .second = BIAS | BIAS_ROW, .pairs = BIAS_ALL, .bytes = true, .empty_zero = true},
    /* pair masks by blocks, of which none, some or all are in a tile */
    {2, 150, 0, 2, 2, 16, BY_MASK_NONE, SOME_HIDDEN, 0, .weights = true, .pairs = BIAS_ALL, .block = 64,
     .empty_zero = true},
    {1, 70, 140, 2, 1, 24, BY_MASK_NONE, ALL_SEEN, 0.1f, .pairs = BIAS | BIAS_HEAD | BIAS_ROW, .block = 10},
    {1, 200, 0, 2, 1, 64, BY_MASK_NONE, ALL_SEEN, 0, .pairs = BIAS | BIAS_ROW, .bytes = true, .block = 128,
     .empty_zero = true},
    {2, 3, 130, 2, 1, 16, BY_MASK_NONE, ALL_SEEN, 0, .pairs = BIAS_ALL, .block = 16},
    {1, 90, 0, 4, 2, 16, BY_MASK_CAUSAL, ALL_SEEN, 0, .pattern = {STRIDED, .length = 9, .part = 3}},
    {2, 70, 100, 3, 1, 12, BY_MASK_CAUSAL, SOME_HIDDEN, 0.2f,
     .pattern = {FIXED, .length = 16, .after = 3, .part = 3}, .empty_zero = true},
    {1, 80, 0, 2, 2, 8, BY_MASK_CAUSAL, ALL_SEEN, 0.2f, .pattern = {STRIDED, .length = 11}},
    {1, 70, 90, 2, 2, 8, BY_MASK_NONE, ALL_SEEN, 0, .pattern = {STRIDED, .length = 11, .part = 3}},
    {1, 2, 90, 4, 2, 16, BY_MASK_CAUSAL, ALL_SEEN, 0,
     .pattern = {FIXED, .length = 11, .after = 2, .part = 3}},
    {2, 70, 130, 2, 2, 16, BY_MASK_CAUSAL, SOME_HIDDEN, 0, .bias = BIAS_ALL, .entries = 130,
     .zero = 129}, /* distances of a segment and its memory */
    {11, 130, 0, 8, 1, 64, BY_MASK_CAUSAL, ALL_SEEN, 0, .weights = false}, /* many heads and long groups */
    {1, 1, 1, 2, 2, 4, BY_MASK_NONE, ALL_SEEN, 0,
     .weights = false}, /* the weight is 1, its gradient 0: last, see below */
};

/* Some, then none, then more than there are. */
static by_tensor *prefixes(by_op_sample *s, int64_t batch, int64_t keys)
{
    by_tensor *t = indices(s, 1, SHAPE(batch));
    double *p = values_of(s, t);
    for (int64_t b = 0; p && b < batch; b++)
        p[b] = (double)(b % 3 == 0 ? keys / 2 + 1 : b % 3 == 1 ? 0 : keys + 3);
    return t;
}

static by_tensor *bias_for(by_op_sample *s, int axes, int64_t batch, int64_t heads, int64_t queries,
                           int64_t entries)
{
    return operand(s, SHAPE(axes & BIAS_BATCH ? batch : 1, axes & BIAS_HEAD ? heads : 1,
                            axes & BIAS_ROW ? queries : 1, entries));
}

/* Half of the pairs are seen, and of the first row none. */
static by_tensor *pairs_for(by_op_sample *s, int axes, bool bytes, int64_t batch, int64_t heads,
                            int64_t queries, int64_t keys)
{
    by_tensor *t = input(s, bytes ? BY_U8 : BY_I32,
                         SHAPE(axes & BIAS_BATCH ? batch : 1, axes & BIAS_HEAD ? heads : 1,
                               axes & BIAS_ROW ? queries : 1, keys));
    double *v = values_of(s, t);
    for (int64_t i = 0; v && i < by_elements(t); i++)
        v[i] = i >= keys && v[i] > 0;
    return t;
}

/* What the shapes of a case do not show. */
static void tag_attention(by_op_sample *s, const by_attention_spec *a, bool packed)
{
    static const char *const masks[] = {"", "causal ", "prefix "};
    static const char *const patterns[] = {"",       "window ", "blocks ", "strided ",
                                           "fixed ", "sinks ",  "memory "};
    tag(s, "%d/%d heads %s%s", a->heads, a->kv_heads, masks[a->mask], patterns[a->pattern.kind]);
    tag_if(s, packed, "packed");
    tag_if(s, a->dropout > 0, "dropout");
    tag_if(s, a->empty_zero, "empty_zero");
}

static gr_node *attend(by_op_sample *s, const attention_case *c)
{
    gr_attention_attr a = {.spec = {.heads = c->heads,
                                    .kv_heads = c->kv_heads,
                                    .mask = c->mask,
                                    .pattern = c->pattern,
                                    .scale = 1 / sqrtf((float)c->dim),
                                    .dropout = c->dropout,
                                    .relative_zero = c->zero,
                                    .pair_block = c->block,
                                    .empty_zero = c->empty_zero},
                           .head_dim = c->dim,
                           .packed = c->keys == 0};
    const int64_t keys = a.packed ? c->queries : c->keys, width = (int64_t)c->heads * c->dim;
    const int64_t kv_width = (int64_t)c->kv_heads * c->dim, block = c->block ? c->block : 1;
    tag_attention(s, &a.spec, a.packed);
    tag_if(s, c->weights, "weights");
    by_tensor *q = operand(s, SHAPE(c->batch, c->queries, a.packed ? width + 2 * kv_width : width));
    by_tensor *k = a.packed ? NULL : operand(s, SHAPE(c->batch, keys, kv_width));
    by_tensor *v = a.packed ? NULL : operand(s, SHAPE(c->batch, keys, kv_width));
    by_tensor *mask = c->hidden ? indices(s, 2, SHAPE(c->batch, keys)) : NULL;
    double *seen = mask ? values_of(s, mask) : NULL;
    for (int64_t i = 0; seen && i < keys; i++) /* batch row 0 */
        seen[i] = c->hidden == ROW_HIDDEN ? 0 : i == 0 ? 1 : seen[i];
    for (int64_t b = 1; seen && b < c->batch; b++)
        seen[b * keys] = 1;
    for (int64_t i = 0; seen && c->hidden == END_HIDDEN && i < c->batch * keys; i++)
        seen[i] = i % keys <= keys / 3; /* as padding does: whole tiles */
    by_tensor *prefix = c->mask == BY_MASK_PREFIX ? prefixes(s, c->batch, keys) : NULL;
    by_tensor *bias =
        c->bias ? bias_for(s, c->bias, c->batch, c->heads, c->queries, c->entries ? c->entries : keys) : NULL;
    by_tensor *second = c->second ? bias_for(s, c->second, c->batch, c->heads, c->queries, keys) : NULL;
    by_tensor *pairs = c->pairs ? pairs_for(s, c->pairs, c->bytes, c->batch, c->heads,
                                            (c->queries + block - 1) / block, (keys + block - 1) / block)
                                : NULL;
    return NODE(ATTENTION, &a, q, k, v, mask, prefix, c->entries ? second : bias, c->entries ? bias : NULL,
                pairs);
}

bool op_sample_attention(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(attentions))
        return false;
    gr_node *n = attend(s, &attentions[which]);
    out_of(s, n, 0);
    if (attentions[which].weights)
        shown_of(s, n, 2);
    s->forward_only = which == BY_COUNT(attentions) - 1;
    return true;
}

bool op_sample_attention_grad(by_op_sample *s, int which)
{
    if (which >= BY_COUNT(attentions) - 1)
        return false;
    const attention_case *c = &attentions[which];
    gr_node *n = attend(s, c);
    if (!n)
        return true;
    by_tensor *dy = operand(s, n->out[0]->rank, n->out[0]->dim);
    gr_node *d = NODE(ATTENTION_GRAD, (const gr_attention_attr *)n->attr, n->in[0], n->in[1], n->in[2],
                      n->in[3], n->in[4], n->in[5], n->in[6], n->in[7], n->out[0], n->out[1], dy);
    if (d)
        d->rng = n->rng;
    for (int k = 0; d && k < d->n_out; k++)
        if (d->out[k]) /* packed: no second and third */
            shown(s, d->out[k]);
    return true;
}

bool op_sample_attention_cached(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch, queries, room;
        int heads, kv_heads, dim;
        bool packed, prefix, hidden;
        by_pattern pattern;
        int bias;
        int64_t entries;
        int zero;
        int second, pairs;
        bool bytes, empty_zero;
        int64_t page; /* positions of a page; 0: one page per row, in order */
        bool still;   /* nothing new: no past */
    } cases[] = {
        {2, 1, 8, 2, 2, 4, .packed = true},
        {3, 1, 9, 4, 2, 5, .packed = false},
        {2, 3, 8, 2, 1, 4, .packed = true},
        {2, 6, 20, 2, 2, 8, .packed = false},
        {2, 9, 20, 4, 2, 6, .packed = true},
        {2, 1, 300, 4, 4, 32, .packed = true},
        {1, 70, 80, 2, 2, 16, .packed = true},
        {2, 1, 20, 2, 1, 72, .packed = true},
        {1, 1, 40, 1, 1, 136, .packed = false},
        {1, 9, 12, 1, 1, 128, .packed = true},
        {1, 2, 300, 3, 1, 136, .packed = true},
        {2, 1, 270, 1, 1, 136, .packed = true},
        {2, 1, 20, 2, 2, 8, .packed = true, .hidden = true},
        {3, 4, 20, 2, 1, 8, .prefix = true},
        {2, 1, 300, 2, 2, 16, .packed = true, .pattern = {WINDOW, .before = 40}},
        {2, 2, 300, 2, 1, 12, .pattern = {FIXED, .length = 150, .after = 5, .part = 2}},
        {2, 1, 300, 2, 1, 16, .pattern = {MEMORY, .length = 64, .before = 100}},
        {2, 1, 300, 4, 4, 32, .packed = true, .bias = BIAS | BIAS_HEAD, .entries = 20, .zero = 19},
        {2, 3, 40, 2, 1, 8, .bias = BIAS_ALL},
        {2, 20, 90, 2, 1, 16, .prefix = true, .hidden = true, .pattern = {STRIDED, .length = 20}},
        {2, 30, 80, 2, 2, 8, .packed = true, .bias = BIAS | BIAS_ROW | BIAS_HEAD, .entries = 30, .zero = 25},
        {2, 1, 300, 2, 2, 16, .packed = true, .bias = BIAS | BIAS_HEAD, .entries = 20, .zero = 19,
         .second = BIAS | BIAS_BATCH, .pairs = BIAS | BIAS_HEAD, .bytes = true},
        {2, 20, 90, 2, 1, 64, .pairs = BIAS_ALL, .empty_zero = true},
        {2, 1, 30, 4, 4, 32, .packed = true, .page = 30},
        {3, 20, 50, 2, 1, 16, .page = 50},
        {2, 1, 40, 2, 2, 8, .bias = BIAS | BIAS_HEAD, .entries = 20, .zero = 19, .page = 40},
        {2, 1, 90, 4, 2, 16, .pattern = {STRIDED, .length = 7, .part = 3}},
        {2, 1, 1100, 2, 1, 8, .packed = true, .pattern = {STRIDED, .length = 33}},
        {2, 20, 90, 4, 2, 16, .pattern = {FIXED, .length = 12, .after = 3, .part = 3}, .empty_zero = true},
        {2, 20, 96, 2, 2, 16, .packed = true, .pattern = {STRIDED, .length = 10}, .page = 32},
        {2, 1, 320, 4, 4, 32, .packed = true, .page = 16},
        {2, 3, 96, 4, 2, 72, .packed = false, .page = 32},
        {2, 20, 128, 2, 2, 16, .packed = true, .page = 64},
        {2, 2, 64, 3, 1, 136, .packed = true, .page = 16},
        {3, 4, 64, 2, 1, 8, .prefix = true, .hidden = true, .page = 32},
        {2, 1, 64, 2, 2, 5, .packed = true, .page = 16},
        {2, 1, 12, 2, 2, 8, .hidden = true, .page = 12, .still = true},
        {2, 9, 70, 2, 1, 16, .hidden = true, .page = 70, .still = true},
        {2, 3, 64, 2, 2, 8, .page = 16, .still = true},
        {2, 2, 20, 2, 2, 8, .hidden = true, .still = true},
    };
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t b = cases[which].batch, t = cases[which].queries, room = cases[which].room;
    const int64_t entries = cases[which].entries ? cases[which].entries : room;
    const int h = cases[which].heads, hkv = cases[which].kv_heads, d = cases[which].dim;
    by_attention_spec spec = {.heads = h,
                              .kv_heads = hkv,
                              .pattern = cases[which].pattern,
                              .relative_zero = cases[which].zero,
                              .empty_zero = cases[which].empty_zero};
    const bool packed = cases[which].packed, still = cases[which].still;
    const int64_t page = cases[which].page ? cases[which].page : room, columns = room / page;
    const int64_t pages = b * columns + (cases[which].page > 0);
    tag_attention(s, &spec, packed);
    tag_if(s, cases[which].page, "pages");
    tag_if(s, still, "still");
    by_tensor *q = operand(s, SHAPE(b, t, (int64_t)(packed ? h + 2 * hkv : h) * d));
    by_tensor *k = packed || still ? NULL : operand(s, SHAPE(b, t, (int64_t)hkv * d));
    by_tensor *v = packed || still ? NULL : operand(s, SHAPE(b, t, (int64_t)hkv * d));
    by_tensor *k_cache = changes(s, input(s, s->type, SHAPE(pages, page, (int64_t)hkv * d)));
    by_tensor *v_cache = changes(s, input(s, s->type, SHAPE(pages, page, (int64_t)hkv * d)));
    by_tensor *past = still ? NULL : indices(s, room - t + 1, SHAPE(b));
    double *p = past ? values_of(s, past) : NULL;
    if (p)
        p[b - 1] = (double)(which % 2 ? 0 : room - t); /* empty; filled to the last place */
    if (cases[which].page) {                           /* backwards; page 0 belongs to nobody */
        spec.pages = indices(s, pages, SHAPE(b, columns));
        double *at = values_of(s, spec.pages);
        for (int64_t i = 0; at && i < b * columns; i++)
            at[i] = (double)(pages - 1 - i);
    }
    if (cases[which].hidden)
        spec.key_mask = indices(s, 2, SHAPE(b, room));
    if (cases[which].prefix) {
        spec.mask = BY_MASK_PREFIX;
        spec.prefix = prefixes(s, b, room);
    }
    if (cases[which].bias)
        *(cases[which].entries ? &spec.relative : &spec.bias) =
            bias_for(s, cases[which].bias, b, h, t, entries);
    if (cases[which].second)
        spec.bias = bias_for(s, cases[which].second, b, h, t, room);
    if (cases[which].pairs)
        spec.pair_mask = pairs_for(s, cases[which].pairs, cases[which].bytes, b, h, t, room);
    shown(s, by_attention_cached(s->graph, q, k, v, k_cache, v_cache, past, &spec));
    shown(s, k_cache);
    shown(s, v_cache);
    return true;
}
