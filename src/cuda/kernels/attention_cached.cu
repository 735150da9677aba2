/* attention_cached.cu - attention of new positions over a cache of keys and values. With few queries, the
 * time is that of reading every key and value once. If the cache is small or there are many heads, one block
 * has all positions of a key head; otherwise they are divided among blocks, whose results (the highest score,
 * the sum, the weighted values) are combined in order. Their number is fixed by the capacity of the cache;
 * those past its contents end at once. One or a few queries read rows of several pages in place; otherwise
 * rows are first copied to contiguous memory. */
#include "cuda/kernels/attention_decode.cuh"

enum { FEW_QUERIES = 8 }; /* up to here, tiles would be mostly padding */

/* Checks `past`, the number of positions in the caches of batch row b; reports an invalid value. */
static __device__ __forceinline__ bool check_past(const cache_call &c, int b, int past)
{
    const int limit = c.a.keys - c.a.queries + 1;
    const head_rows &k = c.a.k;
    if (k.rows && (k.rows[b] < 0 || k.rows[b] >= k.count)) {
        report_fault(c.fault, c.node, GR_ATT_PAGES, k.rows[b], b, k.count);
        return false;
    }
    if (past >= 0 && past < limit)
        return true;
    report_fault(c.fault, c.node, GR_ATT_PAST, past, b, limit);
    return false;
}

/* Position s of key head kv of a cache. */
template <class T, bool PAGED>
static __device__ __forceinline__ T *cell_at(const cache_call &c, const head_rows &r, int b, int kv, int s)
{
    if constexpr (PAGED)
        return paged_at<T>(c.a, r, c.pages, b, kv, s);
    return head_at<T>(c.a, r, b, kv) + (int64_t)s * r.row;
}

/* The next pieces of keys or values (take), wherever they are. */
template <bool WHOLE, bool PAGED, class T>
static __device__ __forceinline__ void take_next(const cache_call &c, const attention &a,
                                                 const head_rows &cache, const head_rows &fresh,
                                                 lane_rows<T> &rows, const seat &me, int n, int end,
                                                 pieces<T> &x)
{
    if constexpr (PAGED)
        take_paged<WHOLE>(a, cache, fresh, c.pages, me, n, end, x);
    else
        take<WHOLE>(rows, me, n, end, x);
}

/* ---- few queries ----------------------------------------------------------------------------- */

/* One share of the positions of one key head, for all queries that look there, ROWS at a time. Keys and
 * values are requested as soon as there is space for them, the next ones when the previous ones are used up.
 * (At the ends of the loop: compilers move the use of what was loaded before over later loads.) */
template <class T, int LANES, int ROWS, bool WHOLE, bool PAGED>
static __global__ void __launch_bounds__(ROWS == 1 ? RESIDENT * DECODERS : DECODERS)
    decode(const cache_call c)
{
    enum { WARPS = most_threads<ROWS>::COUNT / 32, PLACES = LANES * PIECE + 2 };
    __shared__ float space[ROWS * WARPS * PLACES];
    const attention a = of_rows<ROWS>(c.a);
    const int warps = (int)(blockDim.x / 32), d = (int)(threadIdx.x % LANES * PIECE);
    const seat me = {
        (int)blockIdx.z, (int)blockIdx.y, (int)(threadIdx.x / LANES), (int)(blockDim.x / LANES), d,
        a.dim - d};
    const int from = (int)blockIdx.x * c.share, step = me.groups * pieces<T>::COUNT;
    const int rows = a.group * a.queries;
    const bool guess = !PAGED && c.guess && from == 0;
    lane_rows<T> k_rows = rows_from<T>(a, a.k, c.new_k, me, from);
    lane_rows<T> v_rows = rows_from<T>(a, a.v, c.new_v, me, from);
    piece<T> q[ROWS];
    pieces<T> k, v;
    let_next_start();
    wait_for_previous();
    const int told = a.past[me.b];
    if (guess)
        take<WHOLE>(k_rows, me, me.group, min(c.share, a.keys), k);
    load_queries<WHOLE>(a, me, 0, q);
    const bool right = check_past(c, me.b, told);
    const int past = right ? told : 0, keys = past + a.queries, to = min(from + c.share, keys);
    if (from >= keys)
        return;
    if (!guess)
        take_next<WHOLE, PAGED>(c, a, a.k, c.new_k, k_rows, me, from + me.group, to, k);
    take_next<WHOLE, PAGED>(c, a, a.v, c.new_v, v_rows, me, from + me.group, to, v);
    for (int r0 = 0; r0 < rows; r0 += ROWS) {
        running<ROWS> w;
        start(w, q, a.scale * LOG2_E);
        for (int n = from + me.group, s = from; s < to; s += step, n += step) {
            const bool keep = right && r0 == 0 && n < a.queries; /* new: must be stored in the cache */
            const bool more = s + step < to;
            float p[ROWS][pieces<T>::COUNT];
            score<T, LANES>(w, k, a, r0, n, me.groups, to, p);
            if (keep)
                store_piece(cell_at<T, PAGED>(c, a.k, me.b, me.kv, past + n) + d, me.left, WHOLE, k.at[0]);
            if (more)
                take_next<WHOLE, PAGED>(c, a, a.k, c.new_k, k_rows, me, n + step, to, k);
            weigh<LANES>(w, p);
            add_values(w, v, p);
            if (keep)
                store_piece(cell_at<T, PAGED>(c, a.v, me.b, me.kv, past + n) + d, me.left, WHOLE, v.at[0]);
            if (more)
                take_next<WHOLE, PAGED>(c, a, a.v, c.new_v, v_rows, me, n + step, to, v);
        }
        if (r0 + ROWS < rows) {
            k_rows = rows_from<T>(a, a.k, c.new_k, me, from);
            v_rows = rows_from<T>(a, a.v, c.new_v, me, from);
            load_queries<WHOLE>(a, me, r0 + ROWS, q);
            take_next<WHOLE, PAGED>(c, a, a.k, c.new_k, k_rows, me, from + me.group, to, k);
            take_next<WHOLE, PAGED>(c, a, a.v, c.new_v, v_rows, me, from + me.group, to, v);
        }
        if (r0 > 0)
            __syncthreads(); /* space is still being read */
        UNROLL
        for (int r = 0; r < ROWS; r++)
            leave<LANES>(w, r, d, space + (r * warps + (int)(threadIdx.x / 32)) * PLACES);
        __syncthreads();
        finish<T, ROWS, EASY>(c, a, me, r0, space, PLACES);
    }
    if (!c.parts || !c.arrived)
        return;
    const int shares = (keys + c.share - 1) / c.share;
    if (is_last(c.arrived + me.b * a.kv_heads + me.kv, shares))
        combine_parts<T, EASY>(c, me.b, me.kv, shares, (int)gridDim.x);
}

template <class T>
static __global__ void __launch_bounds__(DECODERS) combine_shares(const cache_call c, int most)
{
    const int kv = blockIdx.x, b = blockIdx.y, keys = past_of(c.a, b) + c.a.queries;
    combine_parts<T, EASY>(c, b, kv, (keys + c.share - 1) / c.share, most);
}

/* Sets the positions of a block, by shapes alone; `step`: positions that a block of DECODERS threads
 * processes at a time. Returns the threads of a block, up to `most`. */
static int share_out(const cuda_exec *x, cache_call &c, int step, int most)
{
    const attention &a = c.a;
    const int heads = a.batch * a.kv_heads, sms = x->cuda->sms, steps = (a.keys + step - 1) / step;
    const int wanted = BY_MAX(1, RESIDENT * sms / heads); /* enough blocks to keep the memory busy */
    const bool alone = heads <= sms;                      /* a block has a multiprocessor to itself */
    c.guess = alone;
    if (steps > FEW_STEPS && wanted > 1) {
        BY_BRANCH("cache, shared out");
        c.share = (steps + wanted - 1) / wanted * step;
        return DECODERS;
    }
    c.share = steps * step;
    if (alone && steps > 1 && most > DECODERS) {
        BY_BRANCH("cache, large blocks");
        return most;
    }
    BY_BRANCH("cache, a block per head");
    return DECODERS;
}

template <class T, int LANES, int ROWS, bool WHOLE, bool PAGED>
static by_status launch_decode(cuda_exec *x, cache_call &c)
{
    const attention &a = c.a;
    const int threads = share_out(x, c, step_of<T, LANES>::COUNT, most_threads<ROWS>::COUNT);
    const int most = (a.keys + c.share - 1) / c.share;
    if (most > 1)
        c.parts = (float *)cuda_scratch(x, sizeof(float) * (size_t)a.batch * (size_t)a.kv_heads *
                                               (size_t)most * (size_t)(a.group * a.queries * (a.dim + 2)));
    const dim3 grid((unsigned)most, (unsigned)a.kv_heads, (unsigned)a.batch);
    BY_TRY(cuda_launch_early(x, decode<T, LANES, ROWS, WHOLE, PAGED>, grid, dim3((unsigned)threads), 0, c));
    if (most == 1 || c.arrived)
        return BY_OK;
    return cuda_launch(x, combine_shares<T>, dim3((unsigned)a.kv_heads, (unsigned)a.batch), dim3(DECODERS), 0,
                       c, most);
}

template <class T, int ROWS, bool WHOLE> static by_status few_queries(cuda_exec *x, cache_call &c)
{
    return c.a.dim <= 32    ? launch_decode<T, 4, ROWS, WHOLE, false>(x, c)
           : c.a.dim <= 64  ? launch_decode<T, 8, ROWS, WHOLE, false>(x, c)
           : c.a.dim <= 128 ? launch_decode<T, 16, ROWS, WHOLE, false>(x, c)
                            : launch_decode<T, 32, ROWS, WHOLE, false>(x, c);
}

template <class T, int ROWS> static by_status few_in_pages(cuda_exec *x, cache_call &c)
{
    return c.a.dim <= 64    ? launch_decode<T, 8, ROWS, true, true>(x, c)
           : c.a.dim <= 128 ? launch_decode<T, 16, ROWS, true, true>(x, c)
                            : launch_decode<T, 32, ROWS, true, true>(x, c);
}

template <class T> static by_status one_row(cuda_exec *x, cache_call &c)
{
    return few_queries<T, 1, true>(x, c);
}
template <class T> static by_status some_rows(cuda_exec *x, cache_call &c)
{
    return few_queries<T, 4, true>(x, c);
}
template <class T> static by_status paged_rows(cuda_exec *x, cache_call &c)
{
    return c.a.group * c.a.queries == 1 ? few_in_pages<T, 1>(x, c) : few_in_pages<T, 4>(x, c);
}
template <class T> static by_status ragged_rows(cuda_exec *x, cache_call &c)
{
    return few_queries<T, 4, false>(x, c);
}

/* ---- many queries ---------------------------------------------------------------------------- */

/* Appends the new rows to the caches; one block per row. */
template <class T> static __global__ void __launch_bounds__(DECODERS) append(const cache_call c)
{
    const attention &a = c.a;
    const int t = blockIdx.x, b = blockIdx.y, width = a.kv_heads * a.dim;
    const int past = a.past[b];
    if (!check_past(c, b, past))
        return;
    const bool paged = c.pages.at;
    T *k = paged ? cell_at<T, true>(c, a.k, b, 0, past + t) : cell_at<T, false>(c, a.k, b, 0, past + t);
    T *v = paged ? cell_at<T, true>(c, a.v, b, 0, past + t) : cell_at<T, false>(c, a.v, b, 0, past + t);
    const T *new_k = head_at<T>(a, c.new_k, b, 0) + t * c.new_k.row;
    const T *new_v = head_at<T>(a, c.new_v, b, 0) + t * c.new_v.row;
    for (int i = threadIdx.x * PIECE; i < width; i += DECODERS * PIECE) {
        store_piece(k + i, width - i, c.whole, load_piece(new_k + i, width - i, c.whole));
        store_piece(v + i, width - i, c.whole, load_piece(new_v + i, width - i, c.whole));
    }
}

template <class T> static by_status append_rows(cuda_exec *x, const cache_call &c)
{
    return cuda_launch(x, append<T>, dim3((unsigned)c.a.queries, (unsigned)c.a.batch), dim3(DECODERS), 0, c);
}

/* What is held of rows in pages, one position to a block, to k and v (B, M, C). */
template <class T> static __global__ void __launch_bounds__(DECODERS) lay_out(const cache_call c, T *k, T *v)
{
    const attention &a = c.a;
    const int s = blockIdx.x, b = blockIdx.y, width = a.kv_heads * a.dim;
    if (a.past && s >= past_of(a, b) + a.queries)
        return;
    const T *from_k = paged_at<T>(a, a.k, c.pages, b, 0, s), *from_v = paged_at<T>(a, a.v, c.pages, b, 0, s);
    const int64_t to = ((int64_t)b * a.keys + s) * width;
    for (int i = threadIdx.x; i < width; i += DECODERS) {
        k[to + i] = from_k[i];
        v[to + i] = from_v[i];
    }
}

/* Attention over paged rows by kernels without paging. */
template <class T> static by_status copied_rows(cuda_exec *x, cache_call &c)
{
    attention &a = c.a;
    const int64_t width = (int64_t)a.kv_heads * a.dim, row = (int64_t)a.keys * width;
    T *k = (T *)cuda_scratch(x, 2 * (size_t)(a.batch * row) * sizeof(T)), *v = k + a.batch * row;
    BY_TRY(cuda_launch(x, lay_out<T>, dim3((unsigned)a.keys, (unsigned)a.batch), dim3(DECODERS), 0, c, k, v));
    a.k = head_rows{k, width, row, nullptr, 0, 0};
    a.v = head_rows{v, width, row, nullptr, 0, 0};
    return BY_OK;
}

/* ---- host ------------------------------------------------------------------------------------ */

static by_status decode_paged(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, paged_rows, x, c);
}

static by_status copy_rows(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, copied_rows, x, c);
}

static by_status decode_one(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, one_row, x, c);
}

static by_status decode_some(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, some_rows, x, c);
}

static by_status decode_ragged(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, ragged_rows, x, c);
}

static by_status append_all(cuda_exec *x, cache_call &c, by_dtype type)
{
    BY_CUDA_DISPATCH(type, append_rows, x, c);
}

/* Addresses of the rows of the caches. */
static void find_rows(cuda_exec *x, const gr_node *n, cache_call &c)
{
    const by_tensor *pages = n->in[GR_ATT_PAGES], *cache = n->in[GR_ATT_K_CACHE];
    c.a.keys = (int)gr_cache_room(cache, pages);
    if (!pages)
        return;
    const int32_t *at = (const int32_t *)pages->data;
    const int count = (int)cache->dim[0];
    if (pages->dim[1] == 1) {
        BY_BRANCH("cache, named rows");
        c.a.k.rows = c.a.v.rows = at;
        c.a.k.count = c.a.v.count = count;
        return;
    }
    c.pages = cache_pages{at, (int)pages->dim[1], count, 0, x->cuda->device_fault, cuda_number(x, n)};
    while (cache->dim[1] >> c.pages.shift > 1)
        c.pages.shift++;
}

/* By kernels that any attention uses. */
static by_status attend_as_usual(cuda_exec *x, cache_call &c, by_dtype type)
{
    if (c.a.past)
        BY_TRY(append_all(x, c, type));
    if (c.pages.at) {
        BY_BRANCH("cache, pages copied");
        BY_TRY(copy_rows(x, c, type));
        return cuda_attend(x, c.a, type); /* the other one needs working memory too */
    }
    return cuda_takes_few(c.a) ? cuda_attend_few(x, c.a, type) : cuda_attend(x, c.a, type);
}

extern "C" by_status cuda_attention_cached(gr_exec *e, gr_node *n)
{
    cuda_exec *x = cuda_exec_of(e);
    const by_dtype type = n->in[0]->type;
    cache_call c = {};
    c.a = attention_of(x, n);
    c.new_k = c.a.k;
    c.new_v = c.a.v;
    c.a.k = rows_of(n->in[GR_ATT_K_CACHE], 0);
    c.a.v = rows_of(n->in[GR_ATT_V_CACHE], 0);
    c.a.y = rows_of(n->out[0], 0);
    find_rows(x, n, c);
    c.a.past = n->in[GR_ATT_PAST] ? (const int32_t *)n->in[GR_ATT_PAST]->data : NULL;
    c.a.mask = c.a.past ? BY_MASK_CAUSAL : BY_MASK_NONE;
    c.a.dropout = false;
    c.whole = c.a.dim % PIECE == 0;
    c.fault = x->cuda->device_fault;
    c.node = cuda_number(x, n);
    const int rows = c.a.group * c.a.queries;
    if (!c.a.past) {
        BY_BRANCH("cache, nothing new");
        return attend_as_usual(x, c, type);
    }
    if (level_of(c.a) != EASY) {
        BY_BRANCH("cache, some hidden or a bias");
        return attend_as_usual(x, c, type);
    }
    if (c.a.queries > FEW_QUERIES || rows > FEW_ROWS || c.a.dim > 256 || (c.pages.at && !c.whole)) {
        BY_BRANCH("cache, many queries");
        return attend_as_usual(x, c, type);
    }
    if (c.a.batch * c.a.kv_heads <= BY_CUDA_COUNTERS)
        c.arrived = x->cuda->counters;
    if (c.pages.at) {
        BY_BRANCH("cache, pages");
        return decode_paged(x, c, type);
    }
    if (!c.whole) {
        BY_BRANCH("cache, ragged rows");
        return decode_ragged(x, c, type);
    }
    if (rows == 1) {
        BY_BRANCH("cache, one query");
        return decode_one(x, c, type);
    }
    BY_BRANCH("cache, few queries");
    return decode_some(x, c, type);
}
