/* pixel_data.c - see pixel_data.h. Pictures are tokenised once; the tokens stay in the run folder, in one
 * file in permuted order, with held-out pictures last. */
#include "train/pixel_data.h"

#include <math.h>

#include "base/file.h"
#include "model/model.h"
#include "train/checkpoint.h"
#include "train/shard_facts.h"

enum {
    COLOURS = 512, /* of a palette, as published, */
    GREYS = 32,    /* and of one for grey pictures */
    /* independent of the run's seed: all runs have the same palette and held-out pictures */
    FIXED_SEED = 1,
    SAMPLE_PIXELS = 1 << 18, /* used to learn a palette */
    CHUNK = 256              /* pictures that are encoded at once */
};

/* ---- the processor --------------------------------------------------------------------------- */

static by_picture_set *open_set(const by_run_spec *s, const char *const *paths, int count, by_pixels format)
{
    const by_image_data *d = &s->images.data;
    return by_picture_set_open(paths, count,
                               &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE,
                                                      .file = d->file,
                                                      .label = d->label,
                                                      .header = d->header,
                                                      .format = format});
}

/* Whether a family uses a palette. */
static bool reads_palette(const arch_family *a)
{
    void *config = base_alloc_zero(1, a->config_size);
    if (!config)
        return false;
    arch_config_defaults(a, config);
    const bool palette = a->canvas(config).palette;
    base_free(config);
    return palette;
}

/* The size of pictures: the requested one, that of all pictures, or the shorter side of the first. */
static by_status find_size(const by_run_spec *s, const by_picture_set *set, bool square, int *height,
                           int *width)
{
    by_picture_set_size(set, height, width);
    if (s->images.size > 0) {
        *height = *width = s->images.size;
        return BY_OK;
    }
    by_image *m = *height ? NULL : by_picture_set_get(set, 0);
    if (!*height && !m)
        return base_error_status();
    if (m) {
        *height = m->height;
        *width = m->width;
    }
    if (m || square)
        *height = *width = BY_MIN(*height, *width);
    by_image_free(m);
    return BY_OK;
}

/* RGB pixels of pictures in the order of the part, at most `most`. Returns their number, or -1 on failure. */
static int64_t sample_pixels(const data_picture_part *part, const by_processor *p, uint8_t *out, int64_t most)
{
    int64_t n = 0;
    for (int64_t i = 0; i < part->count && n < most; i++) {
        by_image *m = by_picture_set_get(part->pictures, data_picture_part_at(part, i));
        by_image *shaped = m ? by_processor_shape(p, m) : NULL;
        by_image_free(m);
        if (!shaped)
            return -1;
        const int64_t own = (int64_t)shaped->width * shaped->height, take = BY_MIN(own, most - n);
        memcpy(out + 3 * n, shaped->pixels, 3 * (size_t)take);
        n += take;
        by_image_free(shaped);
    }
    return n;
}

/* A processor with a palette learned from the training pictures. */
static by_processor *learn_palette(const data_picture_part *train, int colours, int height, int width)
{
    by_processor_spec spec = {.channels = 3, .height = height, .width = width};
    by_processor *plain = by_processor_new(&spec), *p = NULL;
    uint8_t *pixels = base_alloc(3 * (size_t)SAMPLE_PIXELS);
    float *palette = base_alloc((size_t)colours * 3 * sizeof *palette);
    const int64_t n = plain && pixels && palette ? sample_pixels(train, plain, pixels, SAMPLE_PIXELS) : -1;
    if (n > 0 && by_palette_learn(pixels, n, &(by_palette_spec){.colours = colours, .seed = FIXED_SEED},
                                  palette, &spec.colours) == BY_OK) {
        spec.palette = palette;
        p = by_processor_new(&spec);
    }
    by_processor_free(plain);
    base_free(pixels);
    base_free(palette);
    return p;
}

static by_status make_processor(train_dataset *d, const by_run_spec *s, const by_picture_set *set,
                                const data_picture_part *train, bool palette)
{
    const int grey = by_picture_set_channels(set) == 1;
    int height, width;
    BY_TRY(find_size(s, set, !palette, &height, &width));
    if (palette && s->images.palette) {
        d->processor = by_processor_open(s->images.palette);
        if (d->processor && by_processor_colours(d->processor) == 0)
            return base_fail(BY_ERR_FORMAT, "%s: preprocessor_config.json has no clusters",
                             s->images.palette);
        return d->processor ? by_processor_set_size(d->processor, height, width) : base_error_status();
    }
    const int colours = s->images.colours > 0 ? s->images.colours : grey ? GREYS : COLOURS;
    const int channels = s->shape.channels > 0 ? s->shape.channels : by_picture_set_channels(set);
    d->processor =
        palette
            ? learn_palette(train, colours, height, width)
            : by_processor_new(&(by_processor_spec){.channels = channels, .height = height, .width = width});
    return d->processor ? BY_OK : base_error_status();
}

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct encoding {
    const data_picture_part *part;
    const by_processor *processor;
    int64_t first, tokens;
    int32_t *out;
    int chunks;
    int64_t count;
} encoding;

static by_status encode_some(void *user, int index)
{
    const encoding *e = user;
    const int64_t begin = e->count * index / e->chunks, end = e->count * (index + 1) / e->chunks;
    for (int64_t i = begin; i < end; i++) {
        by_image *m = by_picture_set_get(e->part->pictures, data_picture_part_at(e->part, e->first + i));
        by_status s = m ? by_processor_encode(e->processor, m, e->out + i * e->tokens) : base_error_status();
        by_image_free(m);
        BY_TRY(s);
    }
    return BY_OK;
}

by_status train_pixels_encode(const data_picture_part *part, const by_processor *p, int64_t first,
                              int64_t count, int threads, int32_t *out)
{
    encoding e = {.part = part,
                  .processor = p,
                  .first = first,
                  .tokens = by_processor_tokens(p),
                  .out = out,
                  .chunks = BY_MAX(threads, 1),
                  .count = count};
    return base_parallel(e.chunks, encode_some, &e);
}

/* Appends a part to a shard. */
static by_status put_part(data_shard_writer *w, const data_picture_part *part, const by_processor *p)
{
    const int64_t tokens = by_processor_tokens(p);
    by_ids ids = {0};
    ids.data = base_alloc((size_t)(CHUNK * tokens) * sizeof *ids.data);
    ids.capacity = (size_t)(CHUNK * tokens);
    by_status s = ids.data ? BY_OK : BY_ERR_MEMORY;
    for (int64_t i = 0; i < part->count && s == BY_OK; i += CHUNK) {
        const int64_t n = BY_MIN(part->count - i, (int64_t)CHUNK);
        s = train_pixels_encode(part, p, i, n, base_cores(), ids.data);
        ids.count = (size_t)(n * tokens);
        if (s == BY_OK)
            s = data_shard_put(w, &ids);
    }
    base_free(ids.data);
    return s;
}

static by_status write_tokens(const char *path, const data_picture_part *parts, int n_parts,
                              const by_processor *p)
{
    data_shard_writer w = {0};
    const int values = by_processor_colours(p) ? by_processor_colours(p) : 256;
    by_status s = data_shard_begin(&w, path, values);
    for (int i = 0; i < n_parts && s == BY_OK; i++)
        s = put_part(&w, &parts[i], p);
    if (s == BY_OK)
        return data_shard_finish(&w);
    data_shard_abort(&w);
    return s;
}

/* A hash of everything that the tokens depend on. */
static uint64_t source_of(const data_picture_part *part, const by_processor *p, const char *dir)
{
    uint64_t h = by_picture_set_fingerprint(part->pictures);
    char *path = base_path_join(dir, "preprocessor_config.json"), *text;
    size_t size = 0;
    text = path && base_file_exists(path) ? base_file_read(path, 1 << 26, &size) : NULL;
    h = base_hash(&(int64_t[3]){part->count, (int64_t)part->seed, by_processor_tokens(p)},
                  3 * sizeof(int64_t), h);
    h = text ? base_hash(text, size, h) : h;
    base_free(text);
    base_free(path);
    return h;
}

/* Opens dir/NAME.bin, which is written unless it is there. */
static data_tokens *open_tokens(const char *dir, const char *name, const data_picture_part *parts,
                                int n_parts, const by_processor *p)
{
    char *bin = base_sprintf("%s/%s.bin", dir, name), *note = base_sprintf("%s/%s.json", dir, name);
    train_facts f = {0};
    data_tokens *t = NULL;
    by_status s = bin && note ? BY_OK : base_error_status();
    const uint64_t source = source_of(&parts[0], p, dir);
    if (s == BY_OK && (!train_facts_read(note, &f) || f.source != source || !base_file_exists(bin) ||
                       f.sum != train_facts_sum(bin, NULL))) {
        s = write_tokens(bin, parts, n_parts, p);
        f = (train_facts){.source = source, .sum = s == BY_OK ? train_facts_sum(bin, NULL) : 0};
        if (s == BY_OK)
            s = train_facts_write(note, &f);
    }
    if (s == BY_OK)
        t = data_tokens_open((const char *const[]){bin}, 1,
                             by_processor_colours(p) ? by_processor_colours(p) : 256);
    base_free(bin);
    base_free(note);
    return t;
}

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct sources {
    by_picture_set *set, *eval_set;
    data_picture_part parts[2], eval; /* training, held out; apart */
} sources;

static by_status open_sources(sources *x, const by_run_spec *s, by_pixels format)
{
    x->set = open_set(s, s->data, s->data_count, format);
    if (!x->set)
        return base_error_status();
    if (s->eval_count && !(x->eval_set = open_set(s, s->eval_data, s->eval_count, format)))
        return base_error_status();
    BY_TRY(data_picture_set_check_use(x->set, x->eval_set));
    if (x->eval_set)
        x->eval = (data_picture_part){
            .pictures = x->eval_set, .count = by_picture_set_count(x->eval_set), .whole = true};
    return data_picture_set_split(x->set, s->eval_count ? 0 : s->eval_fraction, FIXED_SEED, &x->parts[0],
                                  &x->parts[1]);
}

static by_status claim_files(train_folder *folder, bool eval)
{
    static const char *const names[] = {"preprocessor_config.json", "train.bin", "train.json", "eval.bin",
                                        "eval.json"};
    for (int i = 0; i < (eval ? 5 : 3); i++)
        BY_TRY(train_folder_claim_in(folder, "data", names[i]));
    return BY_OK;
}

static by_status open_streams(train_dataset *d, const by_run_spec *s, train_folder *folder, const sources *x)
{
    const int64_t n = by_processor_tokens(d->processor);
    char *dir = base_path_join(s->out, "data");
    by_status status = dir ? claim_files(folder, x->eval_set != NULL) : BY_ERR_MEMORY;
    if (status == BY_OK)
        status = train_checkpoint_place(folder, "data", NULL, NULL, d->processor);
    if (status == BY_OK && !(d->train = open_tokens(dir, "train", x->parts, 2, d->processor)))
        status = base_error_status();
    if (status == BY_OK && x->eval_set && !(d->eval = open_tokens(dir, "eval", &x->eval, 1, d->processor)))
        status = base_error_status();
    base_free(dir);
    BY_TRY(status);
    d->train_end = x->parts[0].count * n;
    if (!d->eval && x->parts[1].count > 0) {
        d->eval = d->train;
        d->eval_begin = d->train_end;
    }
    d->eval_end = d->eval ? d->eval_begin + (x->eval_set ? x->eval.count : x->parts[1].count) * n : 0;
    d->train_tokens = d->train_end - d->train_begin;
    d->eval_tokens = d->eval_end - d->eval_begin;
    d->bytes_per_token = NAN;
    d->fingerprint = base_hash(&(int64_t[2]){d->train_tokens, d->eval_tokens}, 2 * sizeof(int64_t),
                               by_picture_set_fingerprint(x->set));
    return BY_OK;
}

/* A sequence of pixels is exactly one picture. */
static by_status check_context(const by_processor *p, const by_run_spec *s)
{
    const int64_t tokens = by_processor_tokens(p);
    return s->shape.context <= 0 || s->shape.context == tokens
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "the context is a picture of %lld tokens, not %d",
                           (long long)tokens, s->shape.context);
}

/* A resumed run must have pictures of the same size. */
static by_status check_size(const by_processor *p, int side)
{
    int height, width;
    by_processor_size(p, &height, &width);
    return side <= 0 || (side == height && side == width)
               ? BY_OK
               : base_fail(BY_ERR_ARGUMENT, "the run was started with pictures of %d x %d pixels, not %d",
                           width, height, side);
}

by_status train_pixels_open(train_dataset *d, const by_run_spec *s, train_folder *folder, const char *from)
{
    const char *model = from ? from : s->init_from;
    const arch_family *a = model ? NULL : arch_find(s->family);
    const bool palette = a && reads_palette(a);
    by_pixels format = palette                  ? BY_PIXELS_NATIVE
                       : s->shape.channels == 1 ? BY_PIXELS_GREY
                       : s->shape.channels == 3 ? BY_PIXELS_RGB
                                                : BY_PIXELS_NATIVE;
    sources x = {0};
    if (!model && !a)
        return base_error_status();
    if (!from && !palette && (s->images.colours || s->images.palette))
        return base_fail(BY_ERR_ARGUMENT,
                         model ? "%s already has a palette or values: none can be chosen"
                               : "%s predicts channel values, not colours of a palette",
                         model ? model : a->title);
    if (model && !(d->processor = by_processor_open(model)))
        return base_error_status();
    if (from && d->processor)
        BY_TRY(check_size(d->processor, s->images.size));
    if (d->processor)
        format = by_processor_channels(d->processor) == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB;
    by_status status = open_sources(&x, s, format);
    if (status == BY_OK && !d->processor)
        status = make_processor(d, s, x.set, &x.parts[0], palette);
    if (status == BY_OK)
        status = check_context(d->processor, s);
    if (status == BY_OK)
        status = open_streams(d, s, folder, &x);
    by_picture_set_free(x.set);
    by_picture_set_free(x.eval_set);
    return status;
}

void train_pixels_shape(const train_dataset *d, by_model_shape *shape)
{
    int height, width;
    const int colours = by_processor_colours(d->processor);
    by_processor_size(d->processor, &height, &width);
    if (colours) {
        shape->vocab = colours + 1; /* and a start token */
        shape->context = height * width;
        return;
    }
    shape->context = 0; /* derived from the picture */
    shape->image = height;
    shape->channels = by_processor_channels(d->processor);
}

by_status train_pixels_objectives(train_dataset *d, const by_run_spec *s, const by_model *m, bool held)
{
    by_canvas c;
    const int64_t tokens = by_processor_tokens(d->processor);
    by_model_canvas(m, &c);
    const int start = m->arch->predicts_itself ? -1 : by_model_source_vocab(m) - 1;
    const int colours = by_processor_colours(d->processor);
    if (tokens != by_model_context(m) || (colours > 0) != c.palette || (colours && colours != c.values))
        return base_fail(
            BY_ERR_FORMAT,
            "the model has pictures of %d tokens of %d values, but its preprocessor_config.json %lld of %d",
            by_model_context(m), c.values, (long long)tokens, colours ? colours : 256);
    if (s->seq != tokens)
        return base_fail(BY_ERR_ARGUMENT, "rows are whole pictures of %lld tokens, not %d", (long long)tokens,
                         s->seq);
    const data_lm_batches train = {d->train, d->train_begin, d->train_end, s->batch * s->accumulate,
                                   s->seq,   s->seed,        false};
    const data_lm_batches apart = {d->eval, d->eval_begin, d->eval_end, s->batch, s->seq, s->seed, false};
    d->rows = data_objective_new_pixels(&train, start);
    held = held && d->eval;
    d->eval_rows = d->rows && held ? data_objective_new_pixels(&apart, start) : NULL;
    return d->rows && (d->eval_rows || !held) ? BY_OK : base_error_status();
}
