/* picture_passes.c - see picture_passes.h. */
#include "infer/picture_passes.h"

#include <string.h>

#include "base/file.h"
#include "base/prefetch.h"
#include "image/picture.h"
#include "model/adapter.h"

enum { SLOTS = 2 };

typedef struct reading {
    const gen_pictures_spec *spec;
    const by_picture_set *set;
    int64_t first;
    int count;
    by_status (*take)(void *user, const gen_picture_pack *pack);
    void *user;
    by_prepared *prepared[SLOTS]; /* (batch) each */
    void *values;                 /* data of a batch: pixels or colour ids, both of 4 bytes */
    size_t room;
} reading;

by_processor *gen_processor_open(const by_model *m, const char *dir, const char *adapter)
{
    by_pictures reads;
    char *base = model_adapter_is_folder(dir) ? by_adapter_base(dir) : NULL;
    const char *const dirs[] = {adapter, dir, base};
    for (int i = 0; i < BY_COUNT(dirs); i++)
        if (dirs[i] && image_processor_exists(dirs[i])) {
            by_processor *p = by_processor_open(dirs[i]);
            base_free(base);
            return p;
        }
    base_free(base);
    if (by_model_pictures(m, &reads))
        return by_processor_new(&(by_processor_spec){.channels = reads.channels,
                                                     .height = reads.height,
                                                     .width = reads.width,
                                                     .type = m->arch->processor});
    base_fail(BY_ERR_FORMAT, "%s: no preprocessor_config.json", dir);
    return NULL;
}

bool gen_reads_pictures(const by_model *m, by_pictures *out)
{
    by_canvas canvas;
    if (by_model_pictures(m, out))
        return true;
    if (!by_model_canvas(m, &canvas) || !canvas.palette)
        return false;
    *out = (by_pictures){.height = canvas.height, .width = canvas.width, .patch = 1};
    return true;
}

/* ---- preparing, on any thread ------------------------------------------------------------------- */

static by_status prepare(void *user, int64_t item, int slot, int k)
{
    const reading *r = user;
    const int64_t i = item * r->spec->batch + k;
    by_prepared *x = &r->prepared[slot][k];
    by_prepared_free(x);
    if (i >= r->count)
        return BY_OK;
    by_image *m = by_picture_set_get(r->set, r->first + i);
    if (!m)
        return base_error_status();
    by_status s = by_processor_apply(r->spec->processor, m, x);
    by_image_free(m);
    if (s == BY_OK)
        return s;
    char name[512];
    by_picture_set_name(r->set, r->first + i, name, sizeof name);
    return base_fail_context("%s", name);
}

/* ---- batches ------------------------------------------------------------------------------------ */

/* n consecutive preprocessed pictures of one size. */
static by_status take_run(reading *r, const by_prepared *list, int first, int n)
{
    const by_prepared *x = &list[0];
    const size_t one = (size_t)x->height * (size_t)x->width * (x->ids ? 1 : (size_t)x->channels),
                 bytes = 4 * one;
    const gen_pictures_spec *s = r->spec;
    by_pictures p;
    if (s->cancelled && s->cancelled(s->cancel_user))
        return base_fail(BY_ERR_CANCELLED, "interrupted");
    if (by_model_pictures(s->model, &p) && !x->ids && p.channels != x->channels)
        return base_fail(BY_ERR_ARGUMENT,
                         "the processor gives %d channels, but %s of this configuration reads %d",
                         x->channels, base_a(by_model_class(s->model)).text, p.channels);
    if (r->room < one * (size_t)n) {
        void *more = base_resize(r->values, one * (size_t)n, 4);
        if (!more)
            return BY_ERR_MEMORY;
        r->values = more;
        r->room = one * (size_t)n;
    }
    for (int i = 0; i < n; i++)
        memcpy((char *)r->values + (size_t)i * bytes, x->ids ? (const void *)list[i].ids : list[i].values,
               bytes);
    return r->take(r->user, &(gen_picture_pack){.first = first,
                                                .count = n,
                                                .channels = x->channels,
                                                .height = x->height,
                                                .width = x->width,
                                                .values = x->ids ? NULL : r->values,
                                                .ids = x->ids ? r->values : NULL});
}

/* The pictures of a slot, in runs of one size. */
static by_status take_slot(reading *r, const by_prepared *list, int first, int n)
{
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && list[end].height == list[i].height && list[end].width == list[i].width;)
            end++;
        BY_TRY(take_run(r, list + i, first + i, end - i));
    }
    return BY_OK;
}

static by_status read_all(reading *r)
{
    const int batch = r->spec->batch;
    const bool own = by_device_runs_ahead(by_model_device(r->spec->model));
    double waited = 0;
    base_prefetch *ahead = base_prefetch_new(&(base_prefetch_spec){.threads = own ? base_cores() : 1,
                                                                   .slots = SLOTS,
                                                                   .parts = batch,
                                                                   .end = (r->count + batch - 1) / batch,
                                                                   .user = r,
                                                                   .part = prepare});
    by_status s = ahead ? BY_OK : base_error_status();
    for (int i = 0; i < r->count && s == BY_OK; i += batch) {
        int slot;
        s = base_prefetch_next(ahead, &slot, &waited);
        if (s == BY_OK)
            s = take_slot(r, r->prepared[slot], i, BY_MIN(batch, r->count - i));
    }
    base_prefetch_free(ahead);
    return s;
}

by_status gen_pictures_read(const gen_pictures_spec *spec, const by_picture_set *set, int64_t first,
                            int count, by_status (*take)(void *user, const gen_picture_pack *pack),
                            void *user)
{
    gen_pictures_spec some = *spec;
    reading r = {.spec = &some, .set = set, .first = first, .count = count, .take = take, .user = user};
    by_status s = BY_OK;
    if (count < 1)
        return BY_OK;
    some.batch = BY_MIN(some.batch, count);
    for (int k = 0; k < SLOTS; k++) {
        r.prepared[k] = base_alloc_zero((size_t)some.batch, sizeof *r.prepared[k]);
        s = r.prepared[k] ? s : BY_ERR_MEMORY;
    }
    if (s == BY_OK)
        s = read_all(&r);
    for (int k = 0; k < SLOTS; k++) {
        for (int i = 0; r.prepared[k] && i < some.batch; i++)
            by_prepared_free(&r.prepared[k][i]);
        base_free(r.prepared[k]);
    }
    base_free(r.values);
    return s;
}

/* ---- through a model ------------------------------------------------------------------------------ */

typedef struct passing {
    const by_model *model;
    const gen_picture_passes *passes;
} passing;

static by_status pass(void *user, const gen_picture_pack *x)
{
    const passing *g = user;
    const gen_picture_passes *s = g->passes;
    by_batch b = x->ids ? by_batch_of(x->count, x->height * x->width, x->ids)
                        : by_batch_of_pictures(g->model, x->count, x->height, x->width, x->values);
    if (s->prepare)
        BY_TRY(s->prepare(s->user, &b));
    by_pass *p = by_passes_get(s->passes, &b);
    if (!p)
        return base_error_status();
    BY_TRY(by_pass_run(p, &b));
    return s->take(s->user, p, x->first, x->count);
}

by_status gen_pictures_run(const gen_pictures_spec *spec, const gen_picture_passes *passes,
                           const by_picture_set *set, int64_t first, int count)
{
    passing g = {spec->model, passes};
    return gen_pictures_read(spec, set, first, count, pass, &g);
}
