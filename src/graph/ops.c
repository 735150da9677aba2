/* ops.c - the op table and, for most ops, the shape rule and the cost. Those of attention, recurrent layers
 * and log-probabilities are in ops_*.c. Gradients are in gradients.c, builders in builders.c. */
#include "graph/graph.h"
#include "graph/mixture_layout.h"
#include "graph/op_rules.h"
#include "graph/spread.h"

/* A shape error: expected shapes and actual shapes. */
by_status gr_mismatch(const gr_node *n, const char *wanted)
{
    base_buf text = {0};
    char shape[96];
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i])
            base_buf_printf(&text, "%s%s %s", text.size ? ", " : "", gr_tensor_label(n->in[i]),
                            gr_shape_text(n->in[i], shape, sizeof shape));
    base_fail(BY_ERR_ARGUMENT, "expected %s; got %s", wanted, text.data ? text.data : "nothing");
    base_buf_free(&text);
    return BY_ERR_ARGUMENT;
}
#define mismatch gr_mismatch

/* The axes of b are the last axes of a, or b has one element. */
static bool repeats_into(const by_tensor *a, const by_tensor *b)
{
    if (by_elements(b) == 1)
        return true;
    if (b->rank > a->rank)
        return false;
    return memcmp(a->dim + a->rank - b->rank, b->dim, (size_t)b->rank * sizeof a->dim[0]) == 0;
}

gr_cost gr_cost_of_bytes(const gr_node *n, double flops)
{
    gr_cost c = {flops, 0};
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i])
            c.bytes += (double)gr_tensor_bytes(n->in[i]);
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i])
            c.bytes += (double)gr_tensor_bytes(n->out[i]);
    return c;
}
#define cost_of_bytes gr_cost_of_bytes

static double out_elements(const gr_node *n)
{
    return n->out[0] ? (double)by_elements(n->out[0]) : 0;
}

/* Rules that only move data. */
#define MOVES(name)                                 \
    static gr_cost gr_cost_##name(const gr_node *n) \
    {                                               \
        return cost_of_bytes(n, 0);                 \
    }
/* Costs of about k operations per element of output 0. */
#define PER_ELEMENT(name, k)                          \
    static gr_cost gr_cost_##name(const gr_node *n)   \
    {                                                 \
        return cost_of_bytes(n, (k)*out_elements(n)); \
    }

/* ---- moved data ------------------------------------------------------------------------------ */

static by_status gr_infer_fill(gr_node *n)
{
    const gr_fill_attr *a = n->attr;
    return gr_set_output(n, 0, a->type, a->rank, a->dim);
}
MOVES(fill)
#define gr_infer_range gr_infer_fill
#define gr_cost_range  gr_cost_fill

static by_status gr_infer_random(gr_node *n)
{
    const gr_fill_attr *a = n->attr;
    return by_dtype_is_float(a->type) ? gr_infer_fill(n) : mismatch(n, "a floating-point type");
}
PER_ELEMENT(random, 20)

static by_status gr_infer_buckets(gr_node *n)
{
    const gr_buckets_attr *a = n->attr;
    return gr_set_output(n, 0, BY_I32, 1, &a->length);
}
MOVES(buckets)

static by_status gr_infer_interpolation(gr_node *n)
{
    const gr_interpolation_attr *a = n->attr;
    if (!by_dtype_has_fraction(a->type))
        return mismatch(n, "a floating-point type");
    return gr_set_output(n, 0, a->type, 2, (int64_t[]){a->out, a->in});
}
PER_ELEMENT(interpolation, 20)

static by_status gr_infer_sines(gr_node *n)
{
    const gr_sines_attr *a = n->attr;
    const by_tensor *p = n->in[0];
    int64_t dim[BY_MAX_RANK];
    if (p->type != BY_I32 || p->rank >= BY_MAX_RANK || a->width < 2)
        return mismatch(n, "positions of i32 and a width of 2 or more");
    memcpy(dim, p->dim, sizeof dim);
    dim[p->rank] = a->width;
    return gr_set_output(n, 0, a->type, p->rank + 1, dim);
}
PER_ELEMENT(sines, 20)

static by_status gr_infer_store(gr_node *n)
{
    return n->in[0]->type == n->in[1]->type && by_elements(n->in[0]) <= by_elements(n->in[1])
               ? BY_OK
               : mismatch(n, "values, and a state of their type that holds as many");
}
MOVES(store)

static by_status gr_infer_copy(gr_node *n)
{
    return gr_set_output_like(n, 0, n->in[0]);
}
MOVES(copy)

static by_status gr_infer_cast(gr_node *n)
{
    const gr_cast_attr *a = n->attr;
    return gr_set_output(n, 0, a->type, n->in[0]->rank, n->in[0]->dim);
}
MOVES(cast)

static by_status gr_infer_reshape(gr_node *n)
{
    const gr_reshape_attr *a = n->attr;
    int64_t dim[BY_MAX_RANK], known = 1;
    int open = -1;
    for (int i = 0; i < a->rank; i++) {
        dim[i] = a->dim[i];
        if (dim[i] == -1 && open < 0)
            open = i;
        else if (dim[i] < 0 || (dim[i] > 0 && known > INT64_MAX / dim[i]))
            return mismatch(n, "sizes that are possible, at most one of them -1");
        else
            known *= dim[i];
    }
    if (open >= 0)
        dim[open] = known > 0 ? by_elements(n->in[0]) / known : 0;
    int64_t total = open >= 0 ? known * dim[open] : known;
    if (total != by_elements(n->in[0]))
        return mismatch(n, "as many elements after as before");
    return gr_set_output(n, 0, n->in[0]->type, a->rank, dim);
}
static gr_cost gr_cost_reshape(const gr_node *n)
{
    (void)n;
    return (gr_cost){0, 0};
}

static by_status gr_infer_permute(gr_node *n)
{
    const gr_permute_attr *a = n->attr;
    const by_tensor *x = n->in[0];
    int64_t dim[BY_MAX_RANK];
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        if (a->order[i] < 0 || a->order[i] >= x->rank || (seen >> a->order[i] & 1u))
            return mismatch(n, "each axis once");
        seen |= 1u << a->order[i];
        dim[i] = x->dim[a->order[i]];
    }
    return gr_set_output(n, 0, x->type, x->rank, dim);
}
MOVES(permute)

static by_status gr_infer_slice(gr_node *n)
{
    const gr_slice_attr *a = n->attr;
    const by_tensor *x = n->in[0];
    if (a->axis < 0 || a->axis >= x->rank || a->start < 0 || a->count < 0 ||
        a->count > x->dim[a->axis] - a->start)
        return mismatch(n, "a part that lies inside the axis");
    int64_t dim[BY_MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[a->axis] = a->count;
    return gr_set_output(n, 0, x->type, x->rank, dim);
}
MOVES(slice)

static by_status gr_infer_pad(gr_node *n)
{
    const gr_slice_attr *a = n->attr;
    const by_tensor *x = n->in[0];
    if (a->axis < 0 || a->axis >= x->rank || a->start < 0 || a->start > a->count - x->dim[a->axis])
        return mismatch(n, "an axis that holds the input");
    int64_t dim[BY_MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    dim[a->axis] = a->count;
    return gr_set_output(n, 0, x->type, x->rank, dim);
}
MOVES(pad)

static by_status gr_infer_concat(gr_node *n)
{
    const gr_slice_attr *a = n->attr;
    const by_tensor *x = n->in[0];
    if (a->axis < 0 || a->axis >= x->rank)
        return mismatch(n, "an axis of its parts");
    int64_t dim[BY_MAX_RANK];
    memcpy(dim, x->dim, sizeof dim);
    for (int k = 1; k < n->n_in; k++) {
        const by_tensor *y = n->in[k];
        bool fits = y->rank == x->rank && y->type == x->type;
        for (int i = 0; fits && i < x->rank; i++)
            fits = i == a->axis || y->dim[i] == x->dim[i];
        if (!fits)
            return mismatch(n, "parts that agree in type and in every other axis");
        dim[a->axis] += y->dim[a->axis];
    }
    return gr_set_output(n, 0, x->type, x->rank, dim);
}
MOVES(concat)

/* ---- elementwise, reductions ----------------------------------------------------------------- */

/* The common shape of operands [from, n_in), as in NumPy. */
static by_status infer_spread(gr_node *n, int from)
{
    int64_t dim[BY_MAX_RANK];
    int rank = 0;
    for (int k = from; k < n->n_in; k++)
        rank = BY_MAX(rank, n->in[k]->rank);
    for (int i = 0; i < rank; i++) {
        dim[i] = 1;
        for (int k = from; k < n->n_in; k++) {
            const by_tensor *x = n->in[k];
            const int axis = i - rank + x->rank;
            const int64_t d = axis < 0 ? 1 : x->dim[axis];
            if (d != 1 && dim[i] != 1 && d != dim[i])
                return mismatch(n, "shapes that agree from the last axis on, or have 1 where they do not");
            dim[i] = d != 1 ? d : dim[i];
        }
    }
    return gr_set_output(n, 0, n->in[n->n_in - 1]->type, rank, dim);
}

static by_status infer_pair(gr_node *n)
{
    if (n->in[0]->type != n->in[1]->type || !by_dtype_is_float(n->in[0]->type))
        return mismatch(n, "two floating-point tensors of one type");
    return repeats_into(n->in[0], n->in[1]) ? gr_set_output_like(n, 0, n->in[0]) : infer_spread(n, 0);
}
#define gr_infer_binary infer_pair
PER_ELEMENT(binary, 1)

static by_status gr_infer_where(gr_node *n)
{
    const by_tensor *mask = n->in[0];
    if (n->in[1]->type != n->in[2]->type ||
        (mask->type != BY_I32 && mask->type != BY_U8 && mask->type != BY_BOOL))
        return mismatch(n, "a mask of i32, u8 or bool, and two tensors of one type");
    return infer_spread(n, 0);
}
PER_ELEMENT(where, 1)
#define gr_infer_add infer_pair
#define gr_infer_sub infer_pair
#define gr_infer_mul infer_pair
PER_ELEMENT(add, 1)
PER_ELEMENT(sub, 1)
PER_ELEMENT(mul, 1)

static by_status infer_float_like(gr_node *n)
{
    if (!by_dtype_is_float(n->in[0]->type))
        return mismatch(n, "a floating-point tensor");
    return gr_set_output_like(n, 0, n->in[0]);
}
#define gr_infer_scale      infer_float_like
#define gr_infer_activation infer_float_like
#define gr_infer_dropout    infer_float_like
PER_ELEMENT(scale, 1)
PER_ELEMENT(activation, 10)
PER_ELEMENT(dropout, 2)

static by_status gr_infer_softmax(gr_node *n)
{
    if (n->in[0]->rank < 1)
        return mismatch(n, "at least one axis");
    return infer_float_like(n);
}
PER_ELEMENT(softmax, 5)

static by_status infer_two_alike(gr_node *n)
{
    if (!gr_same_shape(n->in[0], n->in[1]) || n->in[0]->type != n->in[1]->type)
        return mismatch(n, "two tensors of one shape and type");
    return gr_set_output_like(n, 0, n->in[0]);
}
#define gr_infer_activation_grad infer_two_alike
#define gr_infer_softmax_grad    infer_two_alike
PER_ELEMENT(activation_grad, 15)
PER_ELEMENT(softmax_grad, 4)

static by_status gr_infer_reduce(gr_node *n)
{
    const gr_reduce_attr *a = n->attr;
    const by_tensor *x = n->in[0];
    if (a->outer * a->count * a->inner != by_elements(x) || !by_dtype_is_float(x->type))
        return mismatch(n, "a floating-point tensor of outer x count x inner elements");
    return gr_set_output(n, 0, a->acc ? gr_acc_type(x->type) : x->type, a->rank, a->dim);
}
static gr_cost gr_cost_reduce(const gr_node *n)
{
    return cost_of_bytes(n, (double)by_elements(n->in[0]));
}

static by_status gr_infer_broadcast(gr_node *n)
{
    const gr_reduce_attr *a = n->attr;
    if (a->outer * a->inner != by_elements(n->in[0]) || !by_dtype_is_float(n->in[0]->type))
        return mismatch(n, "a floating-point tensor of outer x inner elements");
    return gr_set_output(n, 0, n->in[0]->type, a->rank, a->dim);
}
PER_ELEMENT(broadcast, 1)

static by_status gr_infer_argmax(gr_node *n)
{
    if (n->in[0]->rank < 1 || gr_tensor_cols(n->in[0]) < 1 || !by_dtype_is_float(n->in[0]->type))
        return mismatch(n, "a floating-point tensor with a last axis that is not empty");
    return gr_set_output(n, 0, BY_I32, n->in[0]->rank - 1, n->in[0]->dim);
}
MOVES(argmax)

static by_status gr_infer_draw(gr_node *n)
{
    const by_tensor *x = n->in[0];
    const int64_t rows = x->rank < 1 ? 0 : gr_tensor_rows(x);
    if (x->rank < 1 || gr_tensor_cols(x) < 1 || gr_tensor_cols(x) > INT32_MAX ||
        !by_dtype_is_float(x->type) || n->in[1]->type != BY_F32 || by_elements(n->in[1]) != rows ||
        n->in[2]->type != BY_I32 || by_elements(n->in[2]) != 5 * rows)
        return mismatch(n, "logits (R, N), temperatures (R) in f32 and draws (R, 5) in i32");
    return gr_set_output(n, 0, BY_I32, x->rank - 1, x->dim);
}
static gr_cost gr_cost_draw(const gr_node *n)
{
    return cost_of_bytes(n, 10.0 * (double)by_elements(n->in[0]));
}

static by_status gr_infer_argsort(gr_node *n)
{
    const by_tensor *x = n->in[0];
    if (x->rank < 1 || (!by_dtype_is_float(x->type) && x->type != BY_I32) || gr_tensor_cols(x) > INT32_MAX)
        return mismatch(n, "floats or i32 with at least one axis");
    return gr_set_output(n, 0, BY_I32, x->rank, x->dim);
}
static gr_cost gr_cost_argsort(const gr_node *n)
{
    double levels = 1;
    for (int64_t c = gr_tensor_cols(n->in[0]); c > 1; c /= 2)
        levels++;
    return cost_of_bytes(n, levels * out_elements(n));
}

static by_status gr_infer_top(gr_node *n)
{
    const by_tensor *x = n->in[0];
    const int64_t k = ((const gr_top_attr *)n->attr)->k;
    if (x->rank != 2 || !by_dtype_is_float(x->type) || k < 1 || k > BY_TOP_MAX || k > x->dim[1] ||
        x->dim[1] > INT32_MAX)
        return mismatch(n, "logits (R, V) and a k from 1 to 128, at most V");
    BY_TRY(gr_set_output(n, 0, gr_acc_type(x->type), 2, (int64_t[]){x->dim[0], k}));
    BY_TRY(gr_set_output(n, 1, BY_I32, 2, (int64_t[]){x->dim[0], k}));
    return gr_set_output(n, 2, gr_acc_type(x->type), 1, x->dim);
}
static gr_cost gr_cost_top(const gr_node *n)
{
    return cost_of_bytes(n, 10.0 * (double)by_elements(n->in[0]));
}

/* ---- layers ---------------------------------------------------------------------------------- */

static by_status gr_infer_gather(gr_node *n)
{
    const by_tensor *table = n->in[0], *ids = n->in[1];
    const bool batched = ((const gr_gather_attr *)n->attr)->batch != 0;
    if ((!batched && table->rank != 2) || ids->type != BY_I32 || ids->rank >= BY_MAX_RANK)
        return mismatch(n, "a table (V, C) and i32 ids");
    if (batched && (table->rank < 3 || ids->rank != table->rank - 1 ||
                    memcmp(table->dim, ids->dim, (size_t)(ids->rank - 1) * sizeof ids->dim[0]) != 0))
        return mismatch(n, "rows (B.., N, C) and i32 ids (B.., K)");
    int64_t dim[BY_MAX_RANK];
    memcpy(dim, ids->dim, sizeof dim);
    dim[ids->rank] = gr_tensor_cols(table);
    const bool stored = table->place == GR_PLACE_PARAM || by_dtype_block(table->type) > 1;
    return gr_set_output(n, 0, stored ? n->graph->params->type : table->type, ids->rank + 1, dim);
}
static gr_cost gr_cost_gather(const gr_node *n) /* reads only the selected rows of the table */
{
    return (gr_cost){0, 2.0 * (double)gr_tensor_bytes(n->out[0]) + (double)gr_tensor_bytes(n->in[1])};
}

static by_status gr_infer_gather_grad(gr_node *n)
{
    const gr_gather_attr *a = n->attr;
    const by_tensor *ids = n->in[0], *dy = n->in[1];
    if (by_elements(ids) * gr_tensor_cols(dy) != by_elements(dy))
        return mismatch(n, "ids and one row for each");
    int64_t dim[BY_MAX_RANK] = {0};
    const int rank = a->batch ? ids->rank + 1 : 2;
    if (ids->type != BY_I32 || rank > BY_MAX_RANK || (a->batch && rank != dy->rank))
        return mismatch(n, "rows (B.., K, C) and i32 ids (B.., K)");
    memcpy(dim, ids->dim, (size_t)(rank - 2) * sizeof dim[0]);
    dim[rank - 2] = a->rows;
    dim[rank - 1] = gr_tensor_cols(dy);
    return gr_set_output(n, 0, gr_acc_type(dy->type), rank, dim);
}
static gr_cost gr_cost_gather_grad(const gr_node *n)
{
    double dy = (double)gr_tensor_bytes(n->in[1]), table = (double)gr_tensor_bytes(n->out[0]);
    return (gr_cost){(double)by_elements(n->in[1]), n->in[2] ? 3 * dy : 3 * dy + table};
}

/* K and N of a weight in its layout. */
static void weight_shape(const by_tensor *w, bool w_is_kn, int64_t *k, int64_t *n)
{
    *k = w->dim[w_is_kn ? 0 : 1];
    *n = w->dim[w_is_kn ? 1 : 0];
}

/* Whether products with x can read a weight of another type: a block type, or a float type that converts to
 * x's type exactly. */
static bool reads(by_dtype x, by_dtype w)
{
    if (!by_dtype_is_float(x))
        return false;
    return x == w || by_dtype_block(w) > 1 || ((w == BY_BF16 || w == BY_F16) && by_dtype_size(x) > 2);
}

static by_status gr_infer_linear(gr_node *n)
{
    const gr_linear_attr *a = n->attr;
    const by_tensor *x = n->in[0], *w = n->in[1], *b = n->in[2];
    const char *wanted =
        "x (..., K), w (N, K) or (K, N), b (N), all of one type, or w of a type that x's can read";
    if (x->rank < 1 || w->rank != 2 || !reads(x->type, w->type))
        return mismatch(n, wanted);
    if (a->act > BY_ACT_FUSED)
        return mismatch(n, "an activation that the product's kernels have");
    int64_t k, cols, dim[BY_MAX_RANK];
    weight_shape(w, a->w_is_kn, &k, &cols);
    if (gr_tensor_cols(x) != k || (b && (!gr_is_vector(b, cols) || b->type != x->type)))
        return mismatch(n, wanted);
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank - 1] = cols;
    BY_TRY(gr_set_output(n, 0, x->type, x->rank, dim));
    return a->act == BY_ACT_NONE ? BY_OK : gr_set_output(n, 1, x->type, x->rank, dim);
}
static gr_cost gr_cost_linear(const gr_node *n)
{
    return cost_of_bytes(n, 2.0 * (double)gr_tensor_rows(n->in[0]) * (double)by_elements(n->in[1]));
}

static by_status gr_infer_linear_dx(gr_node *n)
{
    const gr_linear_attr *a = n->attr;
    const by_tensor *dy = n->in[0], *w = n->in[1];
    int64_t k, cols, dim[BY_MAX_RANK];
    weight_shape(w, a->w_is_kn, &k, &cols);
    if (gr_tensor_cols(dy) != cols || !reads(dy->type, w->type))
        return mismatch(n, "dy (..., N) and w, of one type, or w of a type that dy's can read");
    memcpy(dim, dy->dim, sizeof dim);
    dim[dy->rank - 1] = k;
    return gr_set_output(n, 0, dy->type, dy->rank, dim);
}
static gr_cost gr_cost_linear_dx(const gr_node *n)
{
    return cost_of_bytes(n, 2.0 * (double)gr_tensor_rows(n->in[0]) * (double)by_elements(n->in[1]));
}

static by_status gr_infer_linear_dw(gr_node *n)
{
    const gr_linear_attr *a = n->attr;
    const by_tensor *x = n->in[0], *dy = n->in[1];
    if (gr_tensor_rows(x) != gr_tensor_rows(dy) || x->type != dy->type)
        return mismatch(n, "x (R, K) and dy (R, N), of one type");
    int64_t k = gr_tensor_cols(x), cols = gr_tensor_cols(dy);
    by_dtype acc = gr_acc_type(x->type);
    BY_TRY(gr_set_output(n, 0, acc, 2, a->w_is_kn ? (int64_t[]){k, cols} : (int64_t[]){cols, k}));
    return gr_set_output(n, 1, acc, 1, &cols);
}
static gr_cost gr_cost_linear_dw(const gr_node *n)
{
    return cost_of_bytes(n, 2.0 * (double)by_elements(n->in[0]) * (double)gr_tensor_cols(n->in[1]));
}

static by_status gr_infer_matmul(gr_node *n)
{
    const gr_matmul_attr *t = n->attr;
    const by_tensor *a = n->in[0], *b = n->in[1];
    const char *wanted = "a (..., M, K) and b (..., K, N) with the same leading axes and type";
    if (a->rank < 2 || a->rank != b->rank || a->type != b->type || !by_dtype_is_float(a->type) ||
        memcmp(a->dim, b->dim, (size_t)(a->rank - 2) * sizeof a->dim[0]) != 0)
        return mismatch(n, wanted);
    int r = a->rank;
    int64_t m = a->dim[r - (t->ta ? 1 : 2)], ka = a->dim[r - (t->ta ? 2 : 1)];
    int64_t kb = b->dim[r - (t->tb ? 1 : 2)], cols = b->dim[r - (t->tb ? 2 : 1)];
    if (ka != kb)
        return mismatch(n, wanted);
    int64_t dim[BY_MAX_RANK];
    memcpy(dim, a->dim, sizeof dim);
    dim[r - 2] = m;
    dim[r - 1] = cols;
    return gr_set_output(n, 0, a->type, r, dim);
}
static gr_cost gr_cost_matmul(const gr_node *n)
{
    const gr_matmul_attr *t = n->attr;
    return cost_of_bytes(n, 2.0 * out_elements(n) * (double)by_dim(n->in[0], t->ta ? -2 : -1));
}

static by_status gr_infer_norm(gr_node *n)
{
    const by_tensor *x = n->in[0], *gamma = n->in[1], *beta = n->in[2], *h = n->in[3];
    int64_t c = gr_tensor_cols(x);
    if (x->rank < 1 || c < 1 || !by_dtype_is_float(x->type) || !gr_is_vector(gamma, c) ||
        gamma->type != x->type || (beta && (!gr_is_vector(beta, c) || beta->type != x->type)) ||
        (h && (!gr_same_shape(x, h) || h->type != x->type)))
        return mismatch(n, "x (..., C), gamma (C), beta (C) of one type");
    BY_TRY(gr_set_output_like(n, 0, x));
    BY_TRY(gr_set_output(n, 1, gr_acc_type(x->type), 2, (int64_t[]){gr_tensor_rows(x), 2}));
    return h ? gr_set_output_like(n, 2, x) : BY_OK;
}
PER_ELEMENT(norm, 8)

static by_status gr_infer_norm_grad(gr_node *n)
{
    const by_tensor *dy = n->in[0], *x = n->in[1];
    if (!gr_same_shape(dy, x))
        return mismatch(n, "dy and x of one shape");
    int64_t c = gr_tensor_cols(x);
    BY_TRY(gr_set_output_like(n, 0, x));
    BY_TRY(gr_set_output(n, 1, gr_acc_type(x->type), 1, &c));
    return gr_set_output(n, 2, gr_acc_type(x->type), 1, &c);
}
PER_ELEMENT(norm_grad, 16)

static by_status gr_infer_rotary(gr_node *n)
{
    const gr_rotary_attr *a = n->attr;
    const by_tensor *x = n->in[0], *p = n->in[1];
    if (x->rank != 3 || !by_dtype_is_float(x->type) || a->head_dim < 1 || x->dim[2] % a->head_dim)
        return mismatch(n, "x (B, T, H*D)");
    if (p->type != BY_I32 || (by_elements(p) != x->dim[1] && by_elements(p) != x->dim[0] * x->dim[1]))
        return mismatch(n, "positions (T) or (B, T) of i32");
    if (a->width > a->head_dim)
        return base_fail(BY_ERR_ARGUMENT, "cannot rotate %d elements of a head of %d", a->width, a->head_dim);
    if (a->trained > 0 && (a->width < 4 || !(a->theta > 0) || !(a->stretch >= 1)))
        return base_fail(
            BY_ERR_ARGUMENT,
            "dynamic frequencies need a theta, a stretch of at least 1 and a width of at least 4");
    return gr_set_output_like(n, 0, x);
}
PER_ELEMENT(rotary, 3)

static by_status gr_infer_cross_entropy(gr_node *n)
{
    const by_tensor *x = n->in[0], *targets = n->in[1];
    if (x->rank < 1 || !by_dtype_is_float(x->type) || targets->type != BY_I32 ||
        by_elements(targets) != gr_tensor_rows(x))
        return mismatch(n, "logits (..., V) and one i32 target for each row");
    const by_tensor *weights = n->in[2];
    if (weights && (weights->type != gr_acc_type(x->type) || by_elements(weights) != gr_tensor_cols(x) ||
                    ((const gr_loss_attr *)n->attr)->label_smoothing > 0))
        return mismatch(n, "a weight for each class, of the loss's type, and no label smoothing with them");
    BY_TRY(gr_set_output(n, 0, gr_acc_type(x->type), 0, NULL));
    return gr_set_output(n, 1, gr_acc_type(x->type), 1, (int64_t[]){gr_tensor_rows(x) + 1});
}
static gr_cost gr_cost_cross_entropy(const gr_node *n)
{
    return cost_of_bytes(n, 5.0 * (double)by_elements(n->in[0]));
}

static by_status gr_infer_cross_entropy_grad(gr_node *n)
{
    return gr_set_output_like(n, 0, n->in[0]);
}
PER_ELEMENT(cross_entropy_grad, 5)

static by_status gr_infer_logistic_mixture(gr_node *n)
{
    const by_tensor *x = n->in[0], *targets = n->in[1];
    const int channels = ((const gr_mixture_attr *)n->attr)->channels, parts = gr_mixture_parts(channels);
    const int64_t rows = x->rank > 0 ? gr_tensor_rows(x) : 0, cols = rows > 0 ? gr_tensor_cols(x) : 0;
    if (rows < 1 || !by_dtype_is_float(x->type) || targets->type != BY_I32 ||
        by_elements(targets) != rows * channels)
        return mismatch(n, "logits (..., N) and an i32 target for each row and channel");
    if (cols % parts || cols / parts < 1 || cols / parts > GR_MIXTURE_MOST)
        return mismatch(n, channels == 1 ? "3 logits for each of 1 to 64 components"
                                         : "10 logits for each of 1 to 64 components");
    BY_TRY(gr_set_output(n, 0, gr_acc_type(x->type), 0, NULL));
    return gr_set_output(n, 1, gr_acc_type(x->type), 1, (int64_t[]){rows + 1});
}
static gr_cost gr_cost_logistic_mixture(const gr_node *n)
{
    return cost_of_bytes(n, 30.0 * (double)by_elements(n->in[0]));
}

static by_status gr_infer_logistic_mixture_grad(gr_node *n)
{
    return gr_set_output_like(n, 0, n->in[0]);
}
PER_ELEMENT(logistic_mixture_grad, 40)

/* ---- the flat buffers ------------------------------------------------------------------------ */

static by_status gr_infer_norm2(gr_node *n)
{
    return gr_set_output(n, 0, gr_acc_type(n->in[0]->type), 0, NULL);
}
static gr_cost gr_cost_norm2(const gr_node *n)
{
    return cost_of_bytes(n, 2.0 * (double)by_elements(n->in[0]));
}

static by_status infer_nothing(gr_node *n)
{
    (void)n;
    return BY_OK;
}
static gr_cost cost_optimiser(const gr_node *n) /* reads and writes every buffer but the gradient */
{
    gr_cost c = cost_of_bytes(n, 12.0 * (double)by_elements(n->in[0]));
    c.bytes = 2 * c.bytes - (double)gr_tensor_bytes(n->in[1]);
    return c;
}
#define gr_infer_adamw     infer_nothing
#define gr_infer_sgd       infer_nothing
#define gr_infer_adafactor infer_nothing
#define gr_cost_adamw      cost_optimiser
#define gr_cost_sgd        cost_optimiser
#define gr_cost_adafactor  cost_optimiser

/* ---- the table ------------------------------------------------------------------------------- */

#define GRADIENT(name) void gr_grad_##name(by_graph *g, gr_node *n, by_tensor **dout, by_tensor **din);
#define NO_GRADIENT(reason)
#define GR_OP(ID, name, in, out, traits, gradient) gradient
#include "graph/ops.def"
#undef GR_OP
#undef GRADIENT
#undef NO_GRADIENT

#define GRADIENT(name)          .grad = gr_grad_##name
#define NO_GRADIENT(reason)     .no_gradient = reason
#define PLAIN                   .optional = 0
#define WITH(...)               __VA_ARGS__
#define INS(first, last)        ((1u << ((last) + 1)) - (1u << (first)))
#define IN(k)                   INS(k, k)
#define OPTIONAL(set)           .optional = set
#define LIST                    .list = true
#define OVER(set)               .over = set
#define BASES(input, n, output) .base = input, .bases = n, .from = output
#define VIEW                    .view = true
#define WRITES(set)             .writes = set
#define PADDED(set)             .padded = set
#define STORED(set)             .stored = set
#define PADS                    .pads = true
#define PADS_ALIKE              .pads_alike = true
#define PRODUCT                 .product = true
#define FUSES(rule, A, B)       .fuse = gr_fuse_##rule, .fuses = {GR_OP_##A, GR_OP_##B}
#define JOINS(input, A)         .joins = true, .join_input = input, .join_op = GR_OP_##A
#define SWALLOWS(input, A)      JOINS(input, A), .swallows = true
#define SHOWS(rule)             .show = gr_show_##rule
#define GR_OP(ID, name, in, out, traits, gradient) \
    [GR_OP_##ID] = {#name, in, out, .infer = gr_infer_##name, .cost = gr_cost_##name, traits, gradient},
const gr_op_info gr_ops[GR_OP_COUNT] = {
#include "graph/ops.def"
};
