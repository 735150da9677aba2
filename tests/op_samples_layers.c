/* op_samples_layers.c - samples of look-ups, products, norms and rotary positions. */
#include "op_sample_build.h"

#include "graph/frequencies.h"

/* ---- layers ---------------------------------------------------------------------------------- */

/* The last: long runs of the same index. */
static const struct {
    int64_t rows, cols, batch, positions;
} lookups[] = {{11, 6, 2, 5}, {300, 131, 3, 70}, {5, 1, 1, 9}, {1000, 64, 4, 100}, {2, 4, 2, 1100}};

static const by_dtype stored_types[] = {BY_Q8_0, BY_Q4_0, BY_F16, BY_BF16};

/* Tables of other types. */
static bool stored_lookup(by_op_sample *s, int which)
{
    if (which >= 2 * BY_COUNT(stored_types))
        return false;
    const int64_t rows = which % 2 ? 300 : 7, cols = which % 2 ? 1056 : 32;
    tag(s, "%s ", by_dtype_name(stored_types[which / 2]));
    by_tensor *table = stored(s, stored_types[which / 2], SHAPE(rows, cols));
    out(s, by_gather(s->graph, table, indices(s, rows, SHAPE(3, 11))));
    return true;
}

/* Rows by their place in tables of their own. */
static const struct {
    int64_t batch[2], rows, cols, positions;
} takes[] = {{{2, 3}, 5, 4, 7}, {{1, 5}, 40, 3, 70}, {{3, 1}, 2, 16, 300}};

bool op_sample_gather(by_op_sample *s, int which)
{
    const int more = which - BY_COUNT(lookups);
    if (more >= BY_COUNT(takes))
        return stored_lookup(s, more - BY_COUNT(takes));
    if (more >= 0) {
        const int64_t *b = takes[more].batch;
        by_tensor *x = operand(s, SHAPE(b[0], b[1], takes[more].rows, takes[more].cols));
        out(s, by_take(s->graph, x, indices(s, takes[more].rows, SHAPE(b[0], b[1], takes[more].positions))));
        return true;
    }
    by_tensor *table = operand(s, SHAPE(lookups[which].rows, lookups[which].cols));
    by_tensor *ids = indices(s, lookups[which].rows, SHAPE(lookups[which].batch, lookups[which].positions));
    out(s, which == 1 ? by_gather_padded(s->graph, table, ids, 1) : by_gather(s->graph, table, ids));
    s->forward_only = which == 1; /* what it leaves out is part of the derivative */
    return true;
}

bool op_sample_gather_grad(by_op_sample *s, int which)
{
    const int more = which - 2 * BY_COUNT(lookups);
    if (more >= BY_COUNT(takes))
        return false;
    if (more >= 0) {
        const int64_t *b = takes[more].batch;
        by_tensor *y = operand(s, SHAPE(b[0], b[1], takes[more].positions, takes[more].cols));
        by_tensor *ids = indices(s, takes[more].rows, SHAPE(b[0], b[1], takes[more].positions));
        out(s, by_scatter_add(s->graph, y, ids, takes[more].rows));
        return true;
    }
    const int64_t rows = lookups[which / 2].rows, cols = lookups[which / 2].cols;
    const int64_t b = lookups[which / 2].batch, t = lookups[which / 2].positions;
    const bool added = which % 2;
    gr_gather_attr a = {.rows = rows, .still = which % 3 - 1}; /* no padding row, the first, the second */
    tag(s, "padding row %lld ", (long long)a.still);
    tag_if(s, added, "added");
    by_tensor *ids = indices(s, rows, SHAPE(b, t)), *dy = operand(s, SHAPE(b, t, cols));
    shown_of(s, NODE(GATHER_GRAD, &a, ids, dy, base(s, added, SHAPE(rows, cols))), 0);
    return true;
}

/* rows, depth, columns. The first are few rows, which have code of their own (up to 16), the later ones cross
 * the blocks of the packed product: 4 to 14 rows, 8 to 32 columns to a tile, 256 deep, 1024 wide, 896 high.
 * The last are for the GPU, which has code of its own for 9 to 64 rows of whole vectors: K shared by
 * clusters, by warps, by nobody over several tiles, by clusters over several tiles; and for one row. */
const int64_t op_sample_products[OP_SAMPLE_PRODUCTS][3] = {
    {1, 5, 3},    {2, 9, 70},    {3, 40, 131},   {4, 64, 64},    {5, 7, 9},      {16, 33, 17},
    {17, 20, 35}, {29, 300, 33}, {64, 64, 64},   {70, 90, 129},  {20, 12, 1100}, {920, 6, 18},
    {9, 336, 24}, {19, 112, 40}, {33, 16, 1160}, {17, 720, 264}, {1, 700, 72},
};

/* Two layers with an activation between them, as in the feed-forward part of a block: going back, the product
 * and the slope behind it can be one. Widths that a GPU's library takes. */
static void two_layers(by_op_sample *s, bool kn)
{
    tag(s, "two layers %s ", kn ? "kn" : "nk");
    gr_linear_attr first = {.w_is_kn = kn, .act = BY_GELU_TANH}, second = {.w_is_kn = kn};
    by_tensor *x = operand(s, SHAPE(9, 16)), *b = operand(s, SHAPE(24));
    by_tensor *w = kn ? operand(s, SHAPE(16, 24)) : operand(s, SHAPE(24, 16));
    by_tensor *w2 = kn ? operand(s, SHAPE(24, 8)) : operand(s, SHAPE(8, 24));
    gr_node *n = NODE(LINEAR, &first, x, w, b);
    if (n)
        out_of(s, NODE(LINEAR, &second, n->out[0], w2, NULL), 0);
}

/* A layer behind a norm, with few rows as in decoding, where one kernel can do both. */
static void normed_layer(by_op_sample *s, int which)
{
    static const struct {
        int64_t rows, depth, cols;
        bool kn, rms, h;
    } cases[] = {
        {1, 16, 24, false, false, false},
        {3, 40, 72, true, true, true},
        {7, 33, 19, false, false, true},
        {8, 24, 131, true, false, false},
    };
    const int64_t r = cases[which].rows, k = cases[which].depth, n = cases[which].cols;
    tag(s, "after %s%s, %s ", cases[which].rms ? "rmsnorm" : "layernorm", cases[which].h ? " of a sum" : "",
        cases[which].kn ? "kn" : "nk");
    gr_norm_attr norm = {.rms = cases[which].rms, .eps = 1e-5f};
    gr_linear_attr a = {.w_is_kn = cases[which].kn, .act = which == 1 ? BY_SILU : BY_ACT_NONE};
    by_tensor *x = operand(s, SHAPE(r, k)), *gamma = operand(s, SHAPE(k));
    by_tensor *beta = norm.rms ? NULL : operand(s, SHAPE(k));
    by_tensor *w = a.w_is_kn ? operand(s, SHAPE(k, n)) : operand(s, SHAPE(n, k)), *b = operand(s, SHAPE(n));
    gr_node *y = NODE(NORM, &norm, x, gamma, beta, cases[which].h ? operand(s, SHAPE(r, k)) : NULL);
    if (!y)
        return;
    out_of(s, NODE(LINEAR, &a, y->out[0], w, b), 0);
    if (cases[which].h)
        out_of(s, y, 2);
}

/* rows, depth, columns of products with weights of other types, whose rows are whole blocks: one row, a few,
 * many; the last is converted in two parts on the CPU. */
static const int64_t stored_products[][3] = {{1, 96, 160}, {3, 64, 96},   {5, 32, 32},    {8, 416, 64},
                                             {9, 64, 96},  {33, 96, 160}, {9, 1056, 1024}};

/* The last takes long where a GPU is emulated: once is enough. */
static const int64_t *stored_product(int which)
{
    const int n = BY_COUNT(stored_products);
    return stored_products[which >= 2 * n && which % n == n - 1 ? 0 : which % n];
}

static by_tensor *stored_weight(by_op_sample *s, by_dtype type, bool kn, const int64_t *p)
{
    return kn ? stored(s, type, SHAPE(p[1], p[2])) : stored(s, type, SHAPE(p[2], p[1]));
}

static bool stored_layer(by_op_sample *s, int which)
{
    const int n = BY_COUNT(stored_products), types = BY_COUNT(stored_types);
    if (which >= 2 * n * types)
        return false;
    const int64_t *p = stored_product(which);
    const by_dtype type = stored_types[which / n / 2];
    gr_linear_attr a = {.w_is_kn = which / n % 2, .act = which % 3 == 0 ? BY_GELU_TANH : BY_ACT_NONE};
    tag(s, "%s %s act %d ", by_dtype_name(type), a.w_is_kn ? "kn" : "nk", a.act);
    by_tensor *x = operand(s, SHAPE(p[0], p[1]));
    by_tensor *w = stored_weight(s, type, a.w_is_kn, p);
    out_of(s, NODE(LINEAR, &a, x, w, which % 2 ? operand(s, SHAPE(p[2])) : NULL), 0);
    return true;
}

bool op_sample_linear(by_op_sample *s, int which)
{
    enum { N = OP_SAMPLE_PRODUCTS, ACTS = 2 * (BY_ACT_FUSED + 1), PLAIN = 4 * N, PAIRS = 2, NORMED = 4 };
    int rest = which - PLAIN - ACTS;
    if (rest >= PAIRS + NORMED)
        return stored_layer(s, rest - PAIRS - NORMED);
    if (rest >= PAIRS) {
        normed_layer(s, rest - PAIRS);
        return true;
    }
    if (rest >= 0) {
        two_layers(s, rest == 1);
        return true;
    }
    const int64_t *p;
    gr_linear_attr a = {.w_is_kn = which / N % 2};
    bool bias;
    if (which < PLAIN) { /* each product in both layouts, without and with a bias */
        p = op_sample_products[which % N];
        bias = which >= 2 * N;
        a.act = which % 5 == 0 ? BY_GELU : BY_ACT_NONE;
    } else { /* each activation, with few rows and with many */
        p = op_sample_products[which % 2 ? 6 : 2];
        bias = true;
        a.act = (by_act)((which - PLAIN) / 2);
    }
    tag(s, "%s act %d ", a.w_is_kn ? "kn" : "nk", a.act);
    tag_if(s, bias, "bias");
    by_tensor *x = p[0] == 64 ? operand(s, SHAPE(4, 16, p[1])) : operand(s, SHAPE(p[0], p[1]));
    by_tensor *w = a.w_is_kn ? operand(s, SHAPE(p[1], p[2])) : operand(s, SHAPE(p[2], p[1]));
    out_of(s, NODE(LINEAR, &a, x, w, bias ? operand(s, SHAPE(p[2])) : NULL), 0);
    return true;
}

static bool stored_layer_dx(by_op_sample *s, int which)
{
    const int n = BY_COUNT(stored_products), types = BY_COUNT(stored_types);
    if (which >= 2 * n * types)
        return false;
    const int64_t *p = stored_product(which);
    const by_dtype type = stored_types[which / n / 2];
    gr_linear_attr a = {.w_is_kn = which / n % 2};
    tag(s, "%s %s ", by_dtype_name(type), a.w_is_kn ? "kn" : "nk");
    by_tensor *w = stored_weight(s, type, a.w_is_kn, p);
    shown_of(s, NODE(LINEAR_DX, &a, operand(s, SHAPE(p[0], p[2])), w), 0);
    return true;
}

bool op_sample_linear_dx(by_op_sample *s, int which)
{
    const int n = OP_SAMPLE_PRODUCTS;
    if (which >= 2 * n)
        return stored_layer_dx(s, which - 2 * n);
    const int64_t *p = op_sample_products[which % n];
    gr_linear_attr a = {.w_is_kn = which >= n};
    tag(s, "%s ", a.w_is_kn ? "kn" : "nk");
    by_tensor *w = a.w_is_kn ? operand(s, SHAPE(p[1], p[2])) : operand(s, SHAPE(p[2], p[1]));
    shown_of(s, NODE(LINEAR_DX, &a, operand(s, SHAPE(p[0], p[2])), w), 0);
    return true;
}

bool op_sample_linear_dw(by_op_sample *s, int which)
{
    const int n = OP_SAMPLE_PRODUCTS;
    if (which >= 4 * n)
        return false;
    const int64_t *p = op_sample_products[which % n];
    const bool added = which >= 2 * n, bias_added = added && which % 2, bias = which % 3;
    gr_linear_attr a = {.w_is_kn = which / n % 2};
    tag(s, "%s ", a.w_is_kn ? "kn" : "nk");
    tag_if(s, added, "added");
    tag_if(s, bias, "bias");
    tag_if(s, bias_added, "bias added");
    by_tensor *x = operand(s, SHAPE(p[0], p[1])), *dy = operand(s, SHAPE(p[0], p[2]));
    by_tensor *dw = a.w_is_kn ? base(s, added, SHAPE(p[1], p[2])) : base(s, added, SHAPE(p[2], p[1]));
    gr_node *d = NODE(LINEAR_DW, &a, x, dy, dw, base(s, bias_added, SHAPE(p[2])));
    shown_of(s, d, 0);
    if (bias)
        shown_of(s, d, 1);
    return true;
}

bool op_sample_matmul(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch[2], m, k, n;
    } cases[] = {
        {{1, 1}, 3, 4, 5}, {{2, 3}, 5, 7, 9}, {{1, 1}, 40, 70, 33}, {{2, 1}, 33, 270, 20}, {{3, 2}, 1, 9, 70}};
    if (which >= 4 * BY_COUNT(cases) + 2)
        return false;
    if (which >= 4 * BY_COUNT(cases)) { /* leading axes repeat */
        const bool both = which % 2;
        by_tensor *a = both ? operand(s, SHAPE(2, 1, 3, 4)) : operand(s, SHAPE(3, 2, 3, 4));
        out(s,
            by_matmul(s->graph, a, both ? operand(s, SHAPE(5, 6, 4)) : operand(s, SHAPE(6, 4)), false, true));
        return true;
    }
    const bool ta = which & 1, tb = which & 2; /* each case in the four layouts */
    tag_if(s, ta, "a^T");
    tag_if(s, tb, "b^T");
    const int64_t m = cases[which / 4].m, k = cases[which / 4].k, n = cases[which / 4].n;
    const int64_t *b = cases[which / 4].batch;
    by_tensor *x, *y;
    if (b[0] == 1) {
        x = ta ? operand(s, SHAPE(k, m)) : operand(s, SHAPE(m, k));
        y = tb ? operand(s, SHAPE(n, k)) : operand(s, SHAPE(k, n));
    } else {
        x = ta ? operand(s, SHAPE(b[0], b[1], k, m)) : operand(s, SHAPE(b[0], b[1], m, k));
        y = tb ? operand(s, SHAPE(b[0], b[1], n, k)) : operand(s, SHAPE(b[0], b[1], k, n));
    }
    out(s, by_matmul(s->graph, x, y, ta, tb));
    return true;
}

static const int64_t norm_shapes[][2] = {{3, 5},   {1, 33},  {70, 67}, {40, 513}, {2, 16},
                                         {9, 264}, {3, 392}, {3, 520}, {2, 1032}};

bool op_sample_norm(by_op_sample *s, int which)
{
    enum { KINDS = 6 };
    static const struct {
        bool rms, beta, h, sum;
        float p;
    } kinds[KINDS] = {
        {false, true, false, false, 0},   {true, false, false, false, 0},  {false, false, true, true, 0},
        {false, true, true, false, 0.2f}, {true, false, true, true, 0.4f}, {false, true, true, true, 0.1f},
    };
    if (which >= KINDS * BY_COUNT(norm_shapes))
        return false;
    const int64_t r = norm_shapes[which / KINDS][0], c = norm_shapes[which / KINDS][1];
    const int k = which % KINDS;
    gr_norm_attr a = {.rms = kinds[k].rms, .eps = 1e-5f, .p = kinds[k].p};
    tag(s, "%s p %g ", a.rms ? "rms" : "layer", (double)a.p);
    tag_if(s, kinds[k].beta, "beta");
    tag_if(s, kinds[k].h, "h");
    by_tensor *x = operand(s, SHAPE(r, c)), *gamma = operand(s, SHAPE(c));
    by_tensor *beta = kinds[k].beta ? operand(s, SHAPE(c)) : NULL;
    gr_node *n = NODE(NORM, &a, x, gamma, beta, kinds[k].h ? operand(s, SHAPE(r, c)) : NULL);
    out_of(s, n, 0);
    if (kinds[k].sum)
        out_of(s, n, 2);
    return true;
}

bool op_sample_norm_grad(by_op_sample *s, int which)
{
    enum { KINDS = 6 };
    static const struct {
        bool rms, dsum, dgamma, dbeta, added;
    } kinds[KINDS] = {
        {false, false, true, true, false}, {true, false, true, false, false},
        {false, true, true, true, true},   {true, true, false, false, false},
        {false, false, false, true, true}, {false, true, true, false, true},
    };
    if (which >= KINDS * BY_COUNT(norm_shapes))
        return false;
    const int64_t r = norm_shapes[which / KINDS][0], c = norm_shapes[which / KINDS][1];
    const int k = which % KINDS;
    gr_norm_attr a = {.rms = kinds[k].rms, .eps = 1e-5f};
    tag(s, "%s ", a.rms ? "rms" : "layer");
    tag_if(s, kinds[k].dsum, "dsum");
    tag_if(s, kinds[k].dgamma, "dgamma");
    tag_if(s, kinds[k].dbeta, "dbeta");
    tag_if(s, kinds[k].added, "added");
    by_tensor *x = operand(s, SHAPE(r, c)), *gamma = operand(s, SHAPE(c));
    gr_node *fore = NODE(NORM, &a, x, gamma, NULL, NULL);
    by_tensor *dy = operand(s, SHAPE(r, c)), *dsum = kinds[k].dsum ? operand(s, SHAPE(r, c)) : NULL;
    by_tensor *dgamma = base(s, kinds[k].added && kinds[k].dgamma, SHAPE(c));
    by_tensor *dbeta = base(s, kinds[k].added && kinds[k].dbeta, SHAPE(c));
    if (!fore)
        return true;
    gr_node *n = NODE(NORM_GRAD, &a, dy, x, fore->out[1], gamma, dsum, dgamma, dbeta);
    shown_of(s, n, 0);
    if (kinds[k].dgamma)
        shown_of(s, n, 1);
    if (kinds[k].dbeta)
        shown_of(s, n, 2);
    return true;
}

bool op_sample_rotary(by_op_sample *s, int which)
{
    static const struct {
        int64_t batch, length;
        int heads, dim, width;
        bool interleaved, shared, dynamic; /* shared: positions (T) */
        float factor;
    } cases[] = {
        {2, 5, 3, 8, 0, .interleaved = false, .factor = 0},
        {2, 5, 2, 10, 6, .interleaved = true, .factor = 1.25f},
        {1, 70, 9, 17, 16, .shared = true, .factor = 0.5f},
        {3, 4, 1, 64, 0, .dynamic = true, .factor = 0},
        {1, 300, 3, 32, 20, .interleaved = true, .dynamic = true, .factor = 0},
    };
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t b = cases[which].batch, t = cases[which].length, d = cases[which].dim;
    const int width = cases[which].width ? cases[which].width : cases[which].dim;
    tag(s, "heads of %lld, %d rotated ", (long long)d, width);
    tag_if(s, cases[which].interleaved, "interleaved");
    tag_if(s, cases[which].dynamic, "dynamic");
    float frequencies[BY_MAX_ROTARY / 2];
    for (int i = 0; i < width / 2; i++)
        frequencies[i] = gr_rotary_frequency(100, i, width);
    by_tensor *x = operand(s, SHAPE(b, t, cases[which].heads * d));
    by_tensor *p = cases[which].shared ? indices(s, 50, SHAPE(t)) : indices(s, 50, SHAPE(b, t));
    const by_rotary_spec spec = {.head_dim = (int)d,
                                 .width = cases[which].width,
                                 .interleaved = cases[which].interleaved,
                                 .frequencies = frequencies,
                                 .factor = cases[which].factor,
                                 .trained = cases[which].dynamic ? which == 3 ? 100 : 20 : 0,
                                 .theta = 100,
                                 .stretch = 3};
    out(s, by_rotary(s->graph, x, p, &spec));
    return true;
}
