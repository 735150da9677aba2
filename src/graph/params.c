/* params.c - the flat list of named parameters, on which loading, saving, initialising, counting, freezing
 * and printing are based. Values, gradients, two moments and masters are five flat buffers in one order; only
 * the value buffer also holds frozen parameters, after the trained ones. */
#include <math.h>

#include "graph/graph.h"

#define ALIGN_ELEMENTS 64 /* 256 bytes of f32: the best alignment for GPUs, and no shared cache lines */

by_params *by_params_new(by_device *d, by_dtype dtype)
{
    if (!d) {
        base_fail_missing("device");
        return NULL;
    }
    if (!by_dtype_is_float(dtype)) {
        base_fail(BY_ERR_ARGUMENT, "parameters cannot be stored as %s", by_dtype_name(dtype));
        return NULL;
    }
    by_params *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->device = d;
    p->type = dtype;
    p->names = base_names_new();
    if (!p->names) {
        by_params_free(p);
        return NULL;
    }
    return p;
}

void by_params_free(by_params *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->count; i++)
        base_free(p->list[i].name);
    void *buffers[] = {p->value, p->grad, p->moment1, p->moment2, p->master};
    for (int i = 0; i < BY_COUNT(buffers); i++)
        if (buffers[i])
            p->device->backend->release(p->device, buffers[i]);
    base_names_free(p->names);
    base_free(p->list);
    base_free(p->segments);
    base_free(p);
}

/* ---- declaring ------------------------------------------------------------------------------- */

int gr_params_declare(by_params *p, const char *name, int rank, const int64_t *shape, by_init init)
{
    int found = base_names_find(p->names, name);
    if (found >= 0) {
        const gr_param_info *old = &p->list[found];
        if (old->rank == rank && (rank == 0 || memcmp(old->dim, shape, (size_t)rank * sizeof *shape) == 0))
            return found;
        base_fail(BY_ERR_ARGUMENT, "parameter %s is declared with two different shapes", name);
        return -1;
    }
    if (p->frozen) {
        base_fail(BY_ERR_ARGUMENT, "parameter %s is not in the model", name);
        return -1;
    }
    if (rank < 0 || rank > BY_MAX_RANK) {
        base_fail(BY_ERR_ARGUMENT, "parameter %s has %d axes; the maximum is %d", name, rank, BY_MAX_RANK);
        return -1;
    }
    if (p->count == p->capacity) {
        int grown = p->capacity ? p->capacity * 2 : 64;
        gr_param_info *more = base_resize(p->list, (size_t)grown, sizeof *more);
        if (!more)
            return -1;
        p->list = more;
        p->capacity = grown;
    }
    gr_param_info *info = &p->list[p->count];
    memset(info, 0, sizeof *info);
    info->count = 1;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 1 || shape[i] > (INT64_C(1) << 40) / info->count) {
            base_fail(BY_ERR_ARGUMENT, "parameter %s: axis %d has the invalid size %lld", name, i,
                      (long long)shape[i]);
            return -1;
        }
        info->dim[i] = shape[i];
        info->count *= shape[i];
    }
    info->rank = rank;
    info->type = p->type;
    info->init = init;
    info->lr_scale = 1;
    info->decay = rank >= 2;
    info->trainable = true;
    info->name = base_strdup(name);
    if (!info->name || base_names_put(p->names, name, p->count) != BY_OK) {
        base_free(info->name);
        return -1;
    }
    return p->count++;
}

/* Matrices are padded with rows of zeros, because matrix units work on whole tiles
 * (src/cuda/kernels/matmul.cu). */
int64_t gr_param_reserved(const gr_param_info *info)
{
    int64_t count = info->count, cols = info->rank == 2 ? info->dim[1] : 1;
    count = (count / cols + GR_PARAM_ROWS - 1) / GR_PARAM_ROWS * GR_PARAM_ROWS * cols;
    return (count + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

/* Trained parameters come first, so that the optimiser sees one range; the others have only values. */
static by_status lay_out(by_params *p, bool with_training, size_t *value_bytes)
{
    const size_t size = by_dtype_size(p->type);
    base_free(p->segments); /* of an attempt that failed */
    p->n_segments = 0;
    p->segments = base_alloc_zero((size_t)p->count + 1, sizeof *p->segments);
    if (!p->segments)
        return BY_ERR_MEMORY;
    p->trained = 0;
    for (int i = 0; i < p->count; i++) {
        gr_param_info *info = &p->list[i];
        info->offset = -1;
        if (!with_training || !info->trainable)
            continue;
        if (info->type != p->type)
            return base_fail(BY_ERR_ARGUMENT, "parameter %s is stored as %s and cannot be trained: freeze it",
                             info->name, by_dtype_name(info->type));
        info->offset = p->trained;
        info->at = (size_t)info->offset * size;
        p->trained += gr_param_reserved(info);
        int64_t cols = info->rank ? info->dim[info->rank - 1] : 1;
        p->segments[p->n_segments++] = (gr_segment){.offset = info->offset,
                                                    .count = info->count,
                                                    .rows = info->rank >= 2 ? info->count / cols : 1,
                                                    .cols = info->rank >= 2 ? cols : info->count,
                                                    .lr_scale = info->lr_scale,
                                                    .decay = info->decay};
    }
    *value_bytes = (size_t)p->trained * size;
    for (int i = 0; i < p->count; i++) {
        gr_param_info *info = &p->list[i];
        if (info->offset >= 0 || info->mapped)
            continue;
        info->at = *value_bytes;
        *value_bytes += (by_dtype_bytes(info->type, (size_t)gr_param_reserved(info)) + 255) / 256 * 256;
    }
    return BY_OK;
}

/* f16 is not supported: below 6e-8, its only neighbour is 0. */
by_status by_params_without_masters(by_params *p)
{
    if (!p)
        return base_fail_missing("list of parameters");
    if (p->frozen)
        return base_fail(BY_ERR_ARGUMENT, "the parameters are already frozen");
    if (p->type != BY_BF16)
        return base_fail(BY_ERR_UNSUPPORTED, "stochastic rounding is for parameters of bf16, not of %s: %s",
                         by_dtype_name(p->type),
                         p->type == BY_F16 ? "those of f16 have too small a range and need their f32 masters"
                                           : "these have no masters that could be left out");
    p->without_masters = true;
    return BY_OK;
}

/* Allocates a buffer unless an earlier attempt did. */
static by_status get_buffer(by_device *d, size_t bytes, void **buffer)
{
    return *buffer ? BY_OK : d->backend->alloc(d, bytes, buffer);
}

by_status by_params_freeze(by_params *p, bool with_training)
{
    if (!p)
        return base_fail_missing("list of parameters");
    if (p->frozen)
        return BY_OK;
    by_device *d = p->device;
    size_t values = 0;
    BY_TRY(lay_out(p, with_training, &values));
    const size_t state = (size_t)p->trained * by_dtype_size(gr_acc_type(p->type));
    if (values || p->count == 0)
        BY_TRY(get_buffer(d, values, &p->value));
    if (with_training) {
        BY_TRY(get_buffer(d, state, &p->grad));
        BY_TRY(get_buffer(d, state, &p->moment1));
        BY_TRY(get_buffer(d, state, &p->moment2));
        if (by_dtype_size(p->type) < 4 && !p->without_masters)
            BY_TRY(get_buffer(d, state, &p->master));
    }
    p->training = with_training;
    p->frozen = true;
    return BY_OK;
}

static bool has_param(const by_params *p, int i)
{
    return p && i >= 0 && i < p->count;
}

by_status by_params_set_type(by_params *p, int i, by_dtype type)
{
    if (!has_param(p, i))
        return base_fail(BY_ERR_ARGUMENT, "no parameter %d", i);
    gr_param_info *info = &p->list[i];
    const int64_t cols = info->rank ? info->dim[info->rank - 1] : 1;
    if (p->frozen)
        return base_fail(BY_ERR_ARGUMENT, "the parameters are already frozen");
    if (!by_dtype_is_float(type) && by_dtype_block(type) < 2)
        return base_fail(BY_ERR_ARGUMENT, "parameters cannot be stored as %s", by_dtype_name(type));
    if (cols % (int64_t)by_dtype_block(type) != 0)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "parameter %s has rows of %lld values; %s requires multiples of %zu", info->name,
                         (long long)cols, by_dtype_name(type), by_dtype_block(type));
    info->type = type;
    return BY_OK;
}

void gr_params_find_weights(by_params *p, const by_graph *g)
{
    for (int pass = 0; pass < 2; pass++) /* products say yes, then everything else says no */
        for (int i = 0; i < g->n_nodes; i++)
            for (int k = 0; k < g->nodes[i]->n_in; k++) {
                const by_tensor *t = g->nodes[i]->in[k];
                const gr_op op = g->nodes[i]->op;
                if (!t || t->place != GR_PLACE_PARAM || t->params != p)
                    continue;
                if (pass == 0 && gr_ops[op].product && gr_in_set(gr_ops[op].stored, k))
                    p->list[t->param].weight = true;
                else if (pass == 1 && !gr_in_set(gr_ops[op].stored, k))
                    p->list[t->param].weight = false;
            }
}

by_status by_params_set_rate(by_params *p, int i, double scale)
{
    if (!has_param(p, i))
        return base_fail(BY_ERR_ARGUMENT, "no parameter %d", i);
    gr_param_info *info = &p->list[i];
    if (info->fixed)
        return BY_OK;
    if (p->training && info->offset < 0 && scale != 0)
        return base_fail(BY_ERR_ARGUMENT, "parameter %s was frozen when the training buffers were made",
                         info->name);
    info->lr_scale = (float)scale;
    info->trainable = scale != 0;
    for (int k = 0; k < p->n_segments; k++)
        if (p->segments[k].offset == info->offset)
            p->segments[k].lr_scale = (float)scale;
    return BY_OK;
}

/* ---- reading and writing --------------------------------------------------------------------- */

int by_params_count(const by_params *p)
{
    return p ? p->count : 0;
}

int64_t by_params_elements(const by_params *p)
{
    int64_t n = 0;
    for (int i = 0; i < by_params_count(p); i++)
        n += p->list[i].count;
    return n;
}

int64_t by_params_trained(const by_params *p)
{
    int64_t n = 0;
    for (int i = 0; i < by_params_count(p); i++)
        n += p->list[i].offset >= 0 && p->frozen ? p->list[i].count : 0;
    return n;
}

by_dtype by_params_dtype(const by_params *p)
{
    return p ? p->type : BY_F32;
}

size_t by_params_value_bytes(const by_params *p)
{
    size_t bytes = 0;
    for (int i = 0; i < by_params_count(p); i++)
        bytes += by_dtype_bytes(p->list[i].type, (size_t)p->list[i].count);
    return bytes;
}

size_t by_params_bytes(const by_params *p)
{
    if (!p)
        return 0;
    const size_t acc = by_dtype_size(gr_acc_type(p->type));
    const size_t others = p->training ? 3 + (p->master != NULL) : 0;
    return by_params_value_bytes(p) + (size_t)by_params_trained(p) * others * acc;
}

int by_params_find(const by_params *p, const char *name)
{
    return p && name ? base_names_find(p->names, name) : -1;
}

by_dtype by_params_type(const by_params *p, int i)
{
    return has_param(p, i) ? p->list[i].type : BY_F32;
}

const char *by_params_name(const by_params *p, int i)
{
    return has_param(p, i) ? p->list[i].name : NULL;
}

int by_params_rank(const by_params *p, int i)
{
    return has_param(p, i) ? p->list[i].rank : 0;
}

const int64_t *by_params_shape(const by_params *p, int i)
{
    return has_param(p, i) ? p->list[i].dim : NULL;
}

/* Device address of a parameter in one of the buffers, or NULL. */
void *gr_params_address(const by_params *p, int i, by_slot slot)
{
    void *base[] = {p->value, p->grad, p->moment1, p->moment2};
    const gr_param_info *info = &p->list[i];
    if (slot == BY_SLOT_VALUE)
        return info->mapped ? info->mapped : p->value ? (char *)p->value + info->at : NULL;
    if (!base[slot] || info->offset < 0)
        return NULL;
    return (char *)base[slot] + (size_t)info->offset * by_dtype_size(gr_acc_type(p->type));
}

static float *master_address(const by_params *p, int i)
{
    return p->master && p->list[i].offset >= 0 ? (float *)p->master + p->list[i].offset : NULL;
}

static by_status check_param(const by_params *p, int i, by_slot slot, const void *host)
{
    if (!p || !host)
        return base_fail_missing(p ? "memory for the values" : "list of parameters");
    if (!has_param(p, i) || (unsigned)slot > BY_SLOT_MOMENT2)
        return base_fail(BY_ERR_ARGUMENT, "no parameter %d with a slot %d: the list has %d parameters", i,
                         (int)slot, p->count);
    return BY_OK;
}

static by_status no_buffer(const by_params *p, int i)
{
    return base_fail(BY_ERR_ARGUMENT, "parameter %s has no such buffer: %s", p->list[i].name,
                     p->training ? "it is not trained" : "the parameters were not frozen for training");
}

by_status by_params_get(const by_params *p, int i, by_slot slot, float *out)
{
    BY_TRY(check_param(p, i, slot, out));
    return gr_params_get_range(p, i, slot, 0, (size_t)p->list[i].count, out);
}

by_status gr_params_get_range(const by_params *p, int i, by_slot slot, size_t begin, size_t n, float *out)
{
    by_device *d = p->device;
    char *from = gr_params_address(p, i, slot), *master = (char *)master_address(p, i);
    by_dtype type = slot == BY_SLOT_VALUE && !master ? p->list[i].type : gr_acc_type(p->type);
    if (slot == BY_SLOT_VALUE && master)
        from = master;
    if (!from)
        return no_buffer(p, i);
    from += by_dtype_bytes(type, begin);
    if (type == BY_F32)
        return d->backend->download(d, out, from, n * 4);
    void *host = base_alloc(by_dtype_bytes(type, n));
    if (!host)
        return BY_ERR_MEMORY;
    by_status s = d->backend->download(d, host, from, by_dtype_bytes(type, n));
    if (s == BY_OK)
        base_convert(out, BY_F32, host, type, n);
    base_free(host);
    return s;
}

/* CPU threads: a device with its own memory leaves the CPU idle meanwhile. */
static int host_threads(const by_params *p)
{
    return p->device->on_host ? p->device->threads : base_cores();
}

typedef struct conversion {
    char *to;
    const char *from;
    by_dtype to_type, from_type;
    size_t unit; /* values of a whole block */
} conversion;

static void convert_range(void *user, size_t begin, size_t end)
{
    const conversion *c = user;
    base_convert(c->to + by_dtype_bytes(c->to_type, begin * c->unit), c->to_type,
                 c->from + by_dtype_bytes(c->from_type, begin * c->unit), c->from_type,
                 (end - begin) * c->unit);
}

/* Stores n values of any type at an address on the device. */
static by_status store(const by_params *p, void *to, by_dtype to_type, const void *values, by_dtype type,
                       size_t n)
{
    by_device *d = p->device;
    const bool direct = d->on_host, convert = direct || to_type != type;
    void *host = convert && !direct ? base_alloc(by_dtype_bytes(to_type, n)) : NULL;
    if (convert && !direct && !host)
        return BY_ERR_MEMORY;
    conversion c = {direct ? to : host, values, to_type, type,
                    BY_MAX(by_dtype_block(to_type), by_dtype_block(type))};
    if (convert)
        base_parallel_ranges(host_threads(p), n / c.unit, convert_range, &c);
    by_status s =
        direct ? BY_OK : d->backend->upload(d, to, host ? host : values, by_dtype_bytes(to_type, n));
    base_free(host);
    return s;
}

by_status gr_params_set_typed(by_params *p, int i, by_slot slot, const void *values, by_dtype type)
{
    BY_TRY(check_param(p, i, slot, values));
    size_t n = (size_t)p->list[i].count;
    void *to = gr_params_address(p, i, slot);
    if (!to || p->list[i].mapped)
        return no_buffer(p, i);
    p->device->changes++;
    if (slot == BY_SLOT_VALUE && master_address(p, i))
        BY_TRY(store(p, master_address(p, i), BY_F32, values, type, n));
    return store(p, to, slot == BY_SLOT_VALUE ? p->list[i].type : gr_acc_type(p->type), values, type, n);
}

by_status by_params_set(by_params *p, int i, by_slot slot, const float *values)
{
    return gr_params_set_typed(p, i, slot, values, BY_F32);
}

/* ---- initial values -------------------------------------------------------------------------- */

typedef struct filling {
    float *values; /* of the whole parameter */
    const gr_param_info *info;
    uint64_t seed, stream;
} filling;

static void fill_uniform(const filling *f, size_t begin, size_t end)
{
    base_rng r = base_rng_make(f->seed, f->stream);
    r.counter = 2 * begin; /* a normal number takes two draws */
    for (size_t k = begin; k < end; k++)
        f->values[k] = (float)((2 * base_rng_uniform(&r) - 1) * f->info->init.scale);
}

/* Sinusoidal positions (Vaswani et al. 2017): sines in even columns, cosines in odd columns. */
static void fill_sines(const filling *f, size_t begin, size_t end)
{
    const size_t width = (size_t)f->info->dim[1];
    for (size_t k = begin; k < end; k++) {
        const size_t t = k / width, c = k % width;
        double angle = (double)t / pow(10000, (double)(c / 2 * 2) / (double)width);
        f->values[k] = (float)(c % 2 ? cos(angle) : sin(angle));
    }
}

static void fill_range(void *user, size_t begin, size_t end)
{
    const filling *f = user;
    const by_init *init = &f->info->init;
    switch (init->kind) {
    case BY_INIT_NORMAL:
        base_rng_fill_normal_from(f->values + begin, begin, end - begin, f->seed, f->stream, 0, init->scale);
        break;
    case BY_INIT_UNIFORM:
        fill_uniform(f, begin, end);
        break;
    case BY_INIT_SINES:
        fill_sines(f, begin, end);
        break;
    case BY_INIT_ONE:
        base_rng_fill_normal_from(f->values + begin, begin, end - begin, f->seed, f->stream, 0, init->scale);
        for (size_t k = begin; k < end; k++)
            f->values[k] += 1.0f;
        break;
    case BY_INIT_CONSTANT:
        for (size_t k = begin; k < end; k++)
            f->values[k] = init->scale;
        break;
    case BY_INIT_ZERO:
        memset(f->values + begin, 0, (end - begin) * sizeof *f->values);
        break;
    }
}

by_status by_params_init(by_params *p, uint64_t seed)
{
    if (!p)
        return base_fail_missing("list of parameters");
    for (int i = 0; i < p->count; i++) {
        const gr_param_info *info = &p->list[i];
        filling f = {base_alloc((size_t)info->count * sizeof(float)), info, seed,
                     base_hash(info->name, strlen(info->name), 0)};
        if (!f.values)
            return BY_ERR_MEMORY;
        base_parallel_ranges(host_threads(p), (size_t)info->count, fill_range, &f);
        by_status s = by_params_set(p, i, BY_SLOT_VALUE, f.values);
        base_free(f.values);
        BY_TRY(s);
    }
    return BY_OK;
}
