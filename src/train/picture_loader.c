/* picture_loader.c - see picture_loader.h. */
#include "train/picture_loader.h"

enum { IGNORED = -100 };

int64_t train_pictures_batches(const train_picture_source *s)
{
    return (s->part.count + s->batch - 1) / s->batch;
}

int train_picture_workers(const by_device *d, int asked)
{
    return asked > 0 ? asked : by_device_runs_ahead(d) ? base_cores() : 1;
}

/* ---- one picture ----------------------------------------------------------------------------- */

/* The example of row `i` of the whole sequence, and its epoch. */
static int64_t example_at(const train_picture_source *s, int64_t i, uint64_t *epoch)
{
    const int64_t n = s->part.count;
    *epoch = (uint64_t)(i / n);
    if (!s->trains)
        return data_picture_part_at(&s->part, i % n);
    const uint64_t keys[] = {s->seed, *epoch};
    const uint64_t order = base_hash(keys, sizeof keys, 0);
    return data_picture_part_at(&s->part, (int64_t)base_permute((uint64_t)(i % n), (uint64_t)n, order));
}

/* Augments a picture. Resized crops are taken from the picture at its original size. */
static by_image *augment(const train_picture_source *s, const by_image *m, const by_augment_key *key)
{
    uint8_t fill[3];
    by_processor_fill(s->processor, fill);
    by_image *shaped = s->augment.crop_scale[1] > 0 ? NULL : by_processor_shape(s->processor, m);
    if (!shaped && !(s->augment.crop_scale[1] > 0))
        return NULL;
    by_image *out = by_augment_image(&s->augment, shaped ? shaped : m, s->width, s->height,
                                     by_processor_filter(s->processor), fill, key);
    by_image_free(shaped);
    return out;
}

/* Writes the values of a preprocessed picture, or its colours with a palette. */
static by_status prepare(const train_picture_source *s, int64_t example, uint64_t epoch, float *out,
                         int32_t *colours)
{
    const by_picture_set *set = s->part.pictures;
    const by_augment_key key = {s->seed, epoch, (uint64_t)example};
    by_image *m = by_picture_set_get(set, example);
    by_image *ready = !m ? NULL : s->trains ? augment(s, m, &key) : by_processor_shape(s->processor, m);
    by_image_free(m);
    if (!ready) {
        char name[512];
        by_picture_set_name(set, example, name, sizeof name);
        return m ? base_fail_context("%s", name) : base_error_status(); /* the error names the file already */
    }
    by_status status = colours ? by_processor_encode(s->processor, ready, colours)
                               : by_processor_values(s->processor, ready, out);
    if (status == BY_OK && s->trains && !colours)
        by_augment_erase(&s->augment, out, by_processor_channels(s->processor), s->height, s->width, &key);
    by_image_free(ready);
    return status;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Writes row r of the labels or caption tokens. example -1: padding of the last batch. */
static void put_targets(train_pictures *p, int slot, int r, int64_t example)
{
    const train_picture_source *s = &p->source;
    if (s->task == BY_TASK_CLASSIFY) {
        p->labels[slot][r] = example < 0 ? IGNORED : by_picture_set_label(s->part.pictures, example);
        return;
    }
    const bool decodes = s->task == BY_TASK_SEQ2SEQ;
    const int64_t first = example < 0 ? 0 : s->captions->first[example];
    const int64_t n = example < 0 ? 0 : s->captions->first[example + 1] - first;
    int32_t *row = (decodes ? p->labels[slot] : p->tokens[slot]) + (size_t)r * (size_t)s->length;
    const int32_t pad = decodes ? IGNORED : (int32_t)BY_MAX(by_model_pad(s->model), 0);
    for (int t = 0; t < s->length; t++)
        row[t] = t < n ? s->captions->ids[first + t] : pad;
}

/* Decoder inputs: the targets, shifted right by one. */
static by_status shift(train_pictures *p, int slot, int first, int rows)
{
    const train_picture_source *s = &p->source;
    const size_t at = (size_t)first * (size_t)s->length;
    return by_model_shift(s->model, p->labels[slot] + at, rows, s->length, p->tokens[slot] + at);
}

static by_status prepare_part(void *user, int64_t item, int slot, int k)
{
    train_pictures *p = user;
    const train_picture_source *s = &p->source;
    const int begin = s->batch * k / p->parts, end = s->batch * (k + 1) / p->parts;
    for (int r = begin; r < end; r++) {
        const int64_t i = item * s->batch + r;
        float *out = p->pixels[slot] + (size_t)r * p->plane;
        int32_t *colours =
            p->colours ? p->tokens[slot] + (size_t)r * (size_t)s->height * (size_t)s->width : NULL;
        uint64_t epoch;
        if (!s->trains && i >= s->part.count) { /* padding of the last batch */
            memset(out, 0, p->plane * sizeof *out);
            if (colours)
                memset(colours, 0, (size_t)s->height * (size_t)s->width * sizeof *colours);
            put_targets(p, slot, r, -1);
            continue;
        }
        const int64_t example = example_at(s, i, &epoch);
        put_targets(p, slot, r, example);
        BY_TRY(prepare(s, example, epoch, out, colours));
    }
    return s->task == BY_TASK_SEQ2SEQ ? shift(p, slot, begin, end - begin) : BY_OK;
}

/* Steps that need the whole batch. */
static by_status finish(void *user, int64_t item, int slot, int k)
{
    train_pictures *p = user;
    const train_picture_source *s = &p->source;
    const by_augment_batch batch = {.values = p->pixels[slot],
                                    .batch = s->batch,
                                    .channels = by_processor_channels(s->processor),
                                    .height = s->height,
                                    .width = s->width,
                                    .labels = p->labels[slot],
                                    .classes = s->classes,
                                    .label_smoothing = s->label_smoothing,
                                    .targets = p->shares[slot]};
    by_augment_mix(&s->augment, &batch, k, p->parts,
                   &(by_augment_key){.seed = s->seed, .example = (uint64_t)item});
    return BY_OK;
}

static by_status allocate(train_pictures *p, int slots)
{
    const train_picture_source *s = &p->source;
    const size_t batch = (size_t)s->batch, channels = (size_t)by_processor_channels(s->processor);
    size_t row, bytes;
    if (!base_mul_size((size_t)s->height, (size_t)s->width, &row) ||
        !base_mul_size(row, channels, &p->plane) || !base_mul_size(p->plane, batch * sizeof(float), &bytes))
        return base_fail(BY_ERR_MEMORY, "a batch of %d pictures of %d x %d pixels is too large", s->batch,
                         s->width, s->height);
    const bool pairs = s->task != BY_TASK_CLASSIFY;
    const size_t cells = batch * (size_t)(pairs ? s->length : 1);
    const size_t tokens = pairs ? cells : p->colours ? batch * row : 0;
    for (int i = 0; i < slots; i++) {
        p->pixels[i] = base_alloc(bytes);
        p->labels[i] = base_alloc(cells * sizeof *p->labels[i]);
        p->tokens[i] = tokens ? base_alloc(tokens * sizeof *p->tokens[i]) : NULL;
        p->shares[i] = p->soft ? base_alloc(batch * (size_t)s->classes * sizeof(float)) : NULL;
        if (!p->pixels[i] || !p->labels[i] || (p->soft && !p->shares[i]) || (tokens && !p->tokens[i]))
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

by_status train_pictures_open(train_pictures *p, const train_picture_source *source, int threads,
                              int64_t first, int64_t end)
{
    const by_augment *a = &source->augment;
    *p = (train_pictures){.source = *source,
                          .soft = source->task == BY_TASK_CLASSIFY && source->trains &&
                                  (a->mixup > 0 || a->cutmix > 0 || source->label_smoothing > 0),
                          .colours = by_processor_colours(source->processor) > 0,
                          .parts = BY_MIN(source->batch, BY_MAX(4 * threads, 1))};
    BY_TRY(allocate(p, threads > 0 ? TRAIN_PICTURE_SLOTS : 1));
    p->ahead = base_prefetch_new(&(base_prefetch_spec){.threads = threads,
                                                       .slots = threads > 0 ? TRAIN_PICTURE_SLOTS : 1,
                                                       .parts = p->parts,
                                                       .first = first,
                                                       .end = end,
                                                       .user = p,
                                                       .part = prepare_part,
                                                       .finish = p->soft ? finish : NULL});
    return p->ahead ? BY_OK : base_error_status();
}

void train_pictures_close(train_pictures *p)
{
    base_prefetch_free(p->ahead);
    for (int i = 0; i < TRAIN_PICTURE_SLOTS; i++) {
        base_free(p->pixels[i]);
        base_free(p->labels[i]);
        base_free(p->tokens[i]);
        base_free(p->shares[i]);
    }
    *p = (train_pictures){0};
}

static by_batch batch_of(const train_pictures *p, const by_model *m, int slot)
{
    const train_picture_source *s = &p->source;
    by_batch b = p->colours ? by_batch_of(s->batch, s->height * s->width, p->tokens[slot])
                            : by_batch_of_pictures(m, s->batch, s->height, s->width, p->pixels[slot]);
    if (s->task != BY_TASK_CLASSIFY) {
        b.seq = s->length;
        by_batch_put_tokens(&b, "tokens", p->tokens[slot]);
        if (s->task == BY_TASK_SEQ2SEQ)
            by_batch_put_tokens(&b, "targets", p->labels[slot]);
        return b;
    }
    if (p->soft)
        by_batch_put(&b, "targets", BY_F32, 2, (int64_t[]){s->batch, s->classes}, p->shares[slot]);
    else
        by_batch_put_ids(&b, "targets", s->batch, p->labels[slot]);
    return b;
}

by_batch train_pictures_like(const train_pictures *p, const by_model *m)
{
    return batch_of(p, m, 0);
}

by_status train_pictures_next(train_pictures *p, const by_model *m, by_batch *out, const int32_t **labels)
{
    int slot;
    BY_TRY(base_prefetch_next(p->ahead, &slot, &p->waited));
    *out = batch_of(p, m, slot);
    if (labels)
        *labels = p->labels[slot];
    return BY_OK;
}
