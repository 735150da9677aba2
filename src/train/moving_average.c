/* moving_average.c - see moving_average.h. Three small programs over the flat buffers of the parameters. */
#include "train/moving_average.h"

#include "base/file.h"
#include "graph/graph.h"
#include "io/weights.h"
#include "train/checkpoint.h"

struct train_average {
    by_params *params;
    double decay;
    by_dtype type; /* type of the averaged buffer: masters, or values if there are no masters */
    /* views of the list's buffers: the averaged one, and the one that products read */
    by_memory trained, values;
    by_memory *average, *kept; /* f32 or f64; holds the parameters while they are swapped */
    by_program *update, *enter, *leave;
    by_tensor *rate;
};

/* ---- programs ------------------------------------------------------------------------------------ */

static by_tensor *flat(by_graph *g, const train_average *a, const char *name, by_dtype type, by_memory *m)
{
    return by_state(g, name, type, 1, &a->params->trained, m);
}

static by_tensor *trained(by_graph *g, train_average *a)
{
    return flat(g, a, "trained", a->type, &a->trained);
}

/* average += (x - average) * rate */
static void build_update(by_graph *g, train_average *a)
{
    const by_dtype acc = gr_acc_type(a->params->type);
    by_tensor *x = by_cast(g, trained(g, a), acc);
    by_tensor *average = flat(g, a, "average", acc, a->average);
    a->rate = by_input(g, "rate", acc, 1, (int64_t[]){1});
    by_store(g, by_add(g, by_mul(g, by_sub(g, x, average), a->rate), average), average);
}

/* Writes to the trained buffer, and to the one that products read if different. */
static void put(by_graph *g, train_average *a, by_tensor *from, by_tensor *to)
{
    by_store(g, by_cast(g, from, a->type), to);
    if (a->params->master)
        by_store(g, by_cast(g, from, a->params->type), flat(g, a, "values", a->params->type, &a->values));
}

static void build_enter(by_graph *g, train_average *a)
{
    by_tensor *x = trained(g, a);
    by_store(g, x, flat(g, a, "kept", a->type, a->kept));
    put(g, a, flat(g, a, "average", gr_acc_type(a->params->type), a->average), x);
}

static void build_leave(by_graph *g, train_average *a)
{
    put(g, a, flat(g, a, "kept", a->type, a->kept), trained(g, a));
}

static by_program *compile(train_average *a, void (*build)(by_graph *g, train_average *a))
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = a->params});
    if (!g)
        return NULL;
    build(g, a);
    return by_compile(g, &(by_compile_spec){0});
}

/* ---- making ---------------------------------------------------------------------------------------- */

static by_status make(train_average *a)
{
    by_params *p = a->params;
    const size_t n = (size_t)p->trained;
    a->type = p->master ? BY_F32 : p->type;
    a->trained = (by_memory){p->device, p->master ? p->master : p->value, n * by_dtype_size(a->type)};
    a->values = (by_memory){p->device, p->value, n * by_dtype_size(p->type)};
    a->average = by_memory_new(p->device, n * by_dtype_size(gr_acc_type(p->type)));
    a->kept = by_memory_new(p->device, n * by_dtype_size(a->type));
    if (!a->average || !a->kept)
        return base_error_status();
    a->update = compile(a, build_update);
    a->enter = a->update ? compile(a, build_enter) : NULL;
    a->leave = a->enter ? compile(a, build_leave) : NULL;
    return a->leave ? BY_OK : base_error_status();
}

static by_status run_update(train_average *a, double rate)
{
    const bool doubles = gr_acc_type(a->params->type) == BY_F64;
    const float single = (float)rate;
    BY_TRY(by_write(a->update, a->rate, doubles ? (const void *)&rate : &single,
                    doubles ? sizeof rate : sizeof single));
    return by_run(a->update);
}

train_average *train_average_new(by_params *p, double decay)
{
    train_average *a = base_alloc_zero(1, sizeof *a);
    if (!a)
        return NULL;
    a->params = p;
    a->decay = decay;
    if (make(a) == BY_OK && run_update(a, 1) == BY_OK)
        return a;
    train_average_free(a);
    return NULL;
}

void train_average_free(train_average *a)
{
    if (!a)
        return;
    by_program_free(a->update);
    by_program_free(a->enter);
    by_program_free(a->leave);
    by_memory_free(a->average);
    by_memory_free(a->kept);
    base_free(a);
}

by_status train_average_update(train_average *a, int64_t step)
{
    const double most = (1 + (double)step) / (10 + (double)step);
    return run_update(a, 1 - BY_MIN(a->decay, most));
}

by_status train_average_enter(train_average *a)
{
    a->params->device->changes++;
    return by_run(a->enter);
}

by_status train_average_leave(train_average *a)
{
    a->params->device->changes++;
    return by_run(a->leave);
}

/* ---- checkpoints ----------------------------------------------------------------------------------- */

/* The parameters themselves, and their average. */
static const char *const prefixes[] = {"value", "average"};

static by_status describe(const train_average *a, int param, int k, by_weight *e)
{
    const gr_param_info *info = &a->params->list[param];
    const by_memory *m = k ? a->average : &a->trained;
    e->name = base_sprintf("%s.%s", prefixes[k], info->name);
    e->dtype = k ? gr_acc_type(a->params->type) : a->type;
    e->data = (const char *)m->data + (size_t)info->offset * by_dtype_size(e->dtype);
    e->bytes = (size_t)info->count * by_dtype_size(e->dtype);
    e->rank = info->rank;
    memcpy(e->dim, info->dim, sizeof(int64_t) * (size_t)e->rank);
    return e->name ? BY_OK : BY_ERR_MEMORY;
}

static void forget_name(by_weight *e)
{
    union { /* owned here, though by_weight only borrows */
        const char *from;
        char *to;
    } name = {e->name};
    base_free(name.to);
}

by_status train_average_save(const train_average *a, const char *dir)
{
    const by_params *p = a->params;
    by_weight *entries = base_alloc_zero((size_t)p->count * 2 + 1, sizeof *entries);
    char *path = base_path_join(dir, "averaging.safetensors");
    by_status s = entries && path ? BY_OK : BY_ERR_MEMORY;
    int n = 0;
    for (int i = 0; i < 2 * p->count && s == BY_OK; i++)
        if (p->list[i / 2].offset >= 0)
            s = describe(a, i / 2, i % 2, &entries[n++]);
    if (s == BY_OK)
        s = io_safetensors_write(path, entries, n, NULL, train_put_from, p->device);
    for (int i = 0; entries && i < n; i++)
        forget_name(&entries[i]);
    base_free(entries);
    base_free(path);
    return s;
}

static by_status load_one(train_average *a, int param, int k, const by_weights *file)
{
    by_weight e = {0};
    by_status s = describe(a, param, k, &e);
    const by_weight *found = s == BY_OK ? by_weights_find(file, e.name) : NULL;
    if (s == BY_OK && (!found || found->dtype != e.dtype || found->bytes != e.bytes))
        s = base_fail(BY_ERR_FORMAT, "averaging.safetensors: %s is missing or has another shape", e.name);
    forget_name(&e);
    BY_TRY(s);
    if (k == 0)
        return gr_params_set_typed(a->params, param, BY_SLOT_VALUE, found->data, found->dtype);
    return by_memory_write(a->average, (size_t)a->params->list[param].offset * by_dtype_size(found->dtype),
                           found->data, found->bytes);
}

by_status train_average_load(train_average *a, const char *dir)
{
    char *path = base_path_join(dir, "averaging.safetensors");
    by_weights *file = path ? by_weights_open(path) : NULL;
    by_status s = file ? BY_OK : base_error_status();
    for (int i = 0; i < 2 * a->params->count && s == BY_OK; i++)
        if (a->params->list[i / 2].offset >= 0)
            s = load_one(a, i / 2, i % 2, file);
    by_weights_free(file);
    base_free(path);
    return s;
}
