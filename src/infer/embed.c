/* embed.c - embeddings of texts (banyan/embed.h). All poolings except the maximum are weighted sums of hidden
 * states, computed on the device; the vectors stay there until all are done. */
#include "infer/embed.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "graph/graph.h"
#include "infer/picture_passes.h"

/* ---- settings of a directory ----------------------------------------------------------------- */

/* {"pooling_mode_mean_tokens": true, ...} */
static by_status read_pooling(by_embedder *e, const cJSON *json)
{
    static const struct {
        const char *key;
        by_pooling pooling;
    } modes[] = {{"pooling_mode_cls_token", BY_POOLING_CLS},
                 {"pooling_mode_mean_tokens", BY_POOLING_MEAN},
                 {"pooling_mode_max_tokens", BY_POOLING_MAX},
                 {"pooling_mode_lasttoken", BY_POOLING_LAST},
                 {"pooling_mode_mean_sqrt_len_tokens", BY_POOLING_SQRT_MEAN}};
    int found = 0;
    for (int i = 0; i < BY_COUNT(modes); i++) {
        bool on;
        BY_TRY(base_json_bool(json, modes[i].key, false, &on));
        if (on && found++ == 0)
            e->pooling = modes[i].pooling;
    }
    if (found > 1)
        return base_fail(BY_ERR_UNSUPPORTED, "combining several poolings is not supported");
    return BY_OK;
}

static by_status read_module(by_embedder *e, const char *dir, const cJSON *module)
{
    const char *type, *path;
    BY_TRY(base_json_string(module, "type", "", &type));
    BY_TRY(base_json_string(module, "path", "", &path));
    const char *name = strrchr(type, '.') ? strrchr(type, '.') + 1 : type;
    if (strcmp(name, "Transformer") == 0)
        return BY_OK;
    if (strcmp(name, "Normalize") == 0) {
        e->normalize = true;
        return BY_OK;
    }
    if (strcmp(name, "Pooling") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "modules.json: modules of type \"%s\" are not supported", type);
    char *file = base_sprintf("%s/%s/config.json", dir, path);
    cJSON *json = file ? base_json_load(file) : NULL;
    by_status s = json ? read_pooling(e, json) : base_error_status();
    cJSON_Delete(json);
    base_free(file);
    return s;
}

/* An optional file of the directory. */
static by_status load_optional(const char *dir, const char *name, cJSON **out)
{
    char *path = base_path_join(dir, name);
    *out = NULL;
    if (!path)
        return BY_ERR_MEMORY;
    bool there = base_file_exists(path);
    if (there)
        *out = base_json_load(path);
    base_free(path);
    return there && !*out ? base_error_status() : BY_OK;
}

static by_status read_modules(by_embedder *e, const char *dir)
{
    cJSON *modules, *limits;
    const cJSON *module;
    BY_TRY(load_optional(dir, "modules.json", &modules));
    by_status s = BY_OK;
    cJSON_ArrayForEach(module, modules) if (s == BY_OK) s = read_module(e, dir, module);
    cJSON_Delete(modules);
    BY_TRY(s);
    BY_TRY(load_optional(dir, "sentence_bert_config.json", &limits));
    int64_t limit;
    s = limits ? base_json_int(limits, "max_seq_length", 0, 1, 1 << 24, &limit) : BY_OK;
    if (limits && s == BY_OK)
        e->limit = (int)limit;
    cJSON_Delete(limits);
    return s;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Opens the tokenizer and the image processor that the model needs. */
static by_status open_readers(by_embedder *e, const char *dir, const char *adapter)
{
    by_pictures p;
    by_canvas c;
    const bool pictures = gen_reads_pictures(e->model, &p), colours = pictures && !p.channels;
    if (!pictures && by_model_canvas(e->model, &c))
        return base_fail(BY_ERR_ARGUMENT, "%s generates pictures; it has no embeddings",
                         base_a(by_model_class(e->model)).text);
    if (pictures && !(e->processor = gen_processor_open(e->model, dir, adapter)))
        return base_error_status();
    if (!colours && by_model_vocab(e->model) > 0 && !(e->tokenizer = by_tokenizer_load(dir)))
        return base_error_status();
    return BY_OK;
}

static by_status open_into(by_embedder *e, by_device *d, const char *dir, const by_embed_spec *spec)
{
    BY_TRY(read_modules(e, dir));
    by_model_spec body = {
        .dtype = spec->dtype, .new_head = true, .task = BY_TASK_FEATURES, .adapter_folder = spec->adapter};
    e->model = by_model_open(d, dir, &body);
    if (!e->model)
        return base_error_status();
    BY_TRY(open_readers(e, dir, spec->adapter));
    e->own = by_model_vector_width(e->model) > 0 &&
             ((e->tokenizer && e->processor) ||
              (spec->pooling == BY_POOLING_DEFAULT && e->pooling == BY_POOLING_DEFAULT));
    e->width = e->own ? by_model_vector_width(e->model) : by_model_width(e->model);
    if (spec->pooling != BY_POOLING_DEFAULT)
        e->pooling = spec->pooling;
    else if (e->pooling == BY_POOLING_DEFAULT)
        e->pooling = e->processor && !by_processor_colours(e->processor) ? BY_POOLING_CLS
                     : by_model_reads_last(e->model)                     ? BY_POOLING_LAST
                                                                         : BY_POOLING_MEAN;
    if (spec->normalize)
        e->normalize = spec->normalize > 0;
    if (spec->limit > 0)
        e->limit = spec->limit;
    if (e->limit == 0 || e->limit > by_model_context(e->model))
        e->limit = by_model_context(e->model);
    e->batch = spec->batch > 0 ? spec->batch : strncmp(by_device_name(d), "cpu", 3) == 0 ? 32 : 256;
    e->passes = by_passes_new(e->model, &(by_pass_spec){0}, 64);
    if (!e->passes || !e->tokenizer)
        return e->passes ? BY_OK : BY_ERR_MEMORY;
    return data_rows_init(&e->rows, e->model, e->tokenizer, &(data_rows_spec){.limit = e->limit});
}

by_embedder *by_embedder_open(by_device *d, const char *dir, const by_embed_spec *spec)
{
    if (!d || !dir || !spec) {
        base_fail_missing(!d ? "device" : !dir ? "model directory" : "by_embed_spec");
        return NULL;
    }
    base_error_clear();
    by_embedder *e = base_alloc_zero(1, sizeof *e);
    if (!e)
        return NULL;
    if (open_into(e, d, dir, spec) != BY_OK) {
        by_embedder_free(e);
        return NULL;
    }
    return e;
}

void by_embedder_free(by_embedder *e)
{
    if (!e)
        return;
    data_rows_free(&e->rows);
    by_passes_free(e->passes);
    by_tokenizer_free(e->tokenizer);
    by_processor_free(e->processor);
    by_model_free(e->model);
    base_free(e->weights);
    base_free(e);
}

int by_embedder_width(const by_embedder *e)
{
    return e->width;
}

bool by_embedder_reads_texts(const by_embedder *e)
{
    return e->tokenizer != NULL;
}

bool by_embedder_reads_pictures(const by_embedder *e)
{
    return e->processor != NULL;
}

double by_embedder_scale(const by_embedder *e)
{
    const by_params *p = by_model_params(e->model);
    const int i = by_params_find(p, "logit_scale");
    float value;
    return i >= 0 && by_params_get(p, i, BY_SLOT_VALUE, &value) == BY_OK ? exp((double)value) : 1;
}

int by_embedder_channels(const by_embedder *e)
{
    return e->processor ? by_processor_channels(e->processor) : 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The weight of token t of a row of n. */
float gen_embed_weight(by_pooling pooling, int t, int n)
{
    switch (pooling) {
    case BY_POOLING_CLS:
        return t == 0;
    case BY_POOLING_LAST:
        return t == n - 1;
    case BY_POOLING_SQRT_MEAN:
        return 1 / sqrtf((float)n);
    default:
        return 1 / (float)n;
    }
}

by_status gen_embed_room(by_embedder *e, size_t n)
{
    if (n <= e->room)
        return BY_OK;
    float *more = base_resize(e->weights, n, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    e->weights = more;
    e->room = n;
    return BY_OK;
}

static by_status fill_weights(by_embedder *e, const by_batch *b, const int *rows, int count)
{
    const size_t cells = (size_t)b->batch * (size_t)b->seq;
    BY_TRY(gen_embed_room(e, cells));
    memset(e->weights, 0, cells * sizeof *e->weights);
    for (int i = 0; i < count; i++) {
        const int n = e->rows.list[rows[i]].count, first = data_rows_start(&e->rows, rows[i], b->seq);
        for (int t = 0; t < n; t++)
            e->weights[(size_t)i * (size_t)b->seq + (size_t)(first + t)] = gen_embed_weight(e->pooling, t, n);
    }
    return BY_OK;
}

void gen_embed_unit(float *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    const float by = sum > 0 ? (float)(1 / fmax(sqrt(sum), 1e-12)) : 0;
    for (int i = 0; i < n; i++)
        v[i] *= by;
}

/* The maximum of each element over the tokens of a row, from hidden states (B, T, C). */
static by_status largest(by_embedder *e, by_pass *p, const by_batch *b, const int *rows, int count,
                         float *out)
{
    const size_t width = (size_t)e->width;
    float *h = base_alloc((size_t)b->batch * (size_t)b->seq * width * sizeof *h);
    by_status s = h ? by_pass_read(p, by_io_output(by_pass_io(p), "features"), h) : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < count; i++) {
        const data_row *row = &e->rows.list[rows[i]];
        float *to = out + (size_t)row->example * width;
        const int first = data_rows_start(&e->rows, rows[i], b->seq);
        const float *from = h + ((size_t)i * (size_t)b->seq + (size_t)first) * width;
        s = by_pass_finite(e->model, from, (size_t)row->count * width);
        for (int t = 0; t < row->count; t++)
            for (size_t c = 0; c < width; c++) {
                const float x = from[(size_t)t * width + c];
                to[c] = t == 0 || x > to[c] ? x : to[c];
            }
    }
    base_free(h);
    return s;
}

/* The type of vectors on the device. */
static by_dtype vector_type(const by_embedder *e)
{
    const by_dtype type = by_params_dtype(by_model_params(e->model));
    return e->own && type != BY_F64 ? BY_F32 : type;
}

/* Copies vectors from the device, in order of computation, to their rows. */
static by_status collect(by_embedder *e, const data_row_groups *groups, const by_memory *kept, float *out)
{
    const by_dtype type = vector_type(e);
    const size_t width = (size_t)e->width, bytes = width * by_dtype_size(type);
    char *row = base_alloc(bytes * (size_t)e->rows.count);
    by_status s = row ? by_memory_read(kept, 0, row, bytes * (size_t)e->rows.count) : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < e->rows.count; i++)
        base_convert(out + (size_t)e->rows.list[groups->rows[i]].example * width, BY_F32,
                     row + (size_t)i * bytes, type, width);
    if (s == BY_OK)
        s = by_pass_finite(e->model, out, width * (size_t)e->rows.count);
    base_free(row);
    return s;
}

static by_status run_groups(by_embedder *e, const data_row_groups *groups, by_memory *kept,
                            data_row_batch *rows, float *out)
{
    const size_t bytes = (size_t)e->width * by_dtype_size(vector_type(e));
    for (int g = 0; g < groups->count; g++) {
        const int first = groups->first[g], *list = groups->rows + first;
        BY_TRY(data_rows_group(&e->rows, groups, g, e->batch, rows));
        by_batch b = rows->batch;
        if (kept && !e->own) {
            BY_TRY(fill_weights(e, &b, list, rows->rows));
            by_batch_put(&b, "pool_weights", BY_F32, 2, (int64_t[]){b.batch, b.seq}, e->weights);
        }
        by_pass *p = by_passes_get(e->passes, &b);
        if (!p)
            return base_error_status();
        BY_TRY(by_pass_run(p, &b));
        if (kept)
            BY_TRY(by_keep(by_pass_program(p),
                           e->own ? by_io_output(by_pass_io(p), "text_embeds") : by_pass_summary(p), kept,
                           (size_t)first * bytes));
        else
            BY_TRY(largest(e, p, &b, list, rows->rows, out));
    }
    return kept ? collect(e, groups, kept, out) : BY_OK;
}

by_status by_embedder_run(by_embedder *e, const char *const *texts, int count, float *out)
{
    if (!e || (count > 0 && (!texts || !out)))
        return base_fail_missing(e ? "text" : "embedder");
    if (!e->tokenizer)
        return base_fail(BY_ERR_ARGUMENT, "%s reads pictures, not texts",
                         base_a(by_model_class(e->model)).text);
    data_row_groups groups = {0};
    data_row_batch rows = {0};
    by_memory *kept = NULL;
    data_rows_clear(&e->rows);
    for (int i = 0; i < count; i++)
        BY_TRY(data_rows_add(&e->rows, texts[i], NULL));
    by_status s = data_rows_by_length(&e->rows, e->batch, &groups);
    if (s == BY_OK && count > 0 && (e->own || e->pooling != BY_POOLING_MAX)) {
        /* a padded group may have more rows than remain: they are written after the last one */
        const size_t size = by_dtype_size(vector_type(e));
        kept = by_memory_new(by_model_device(e->model),
                             ((size_t)e->rows.count + (size_t)e->batch) * (size_t)e->width * size);
        s = kept ? BY_OK : base_error_status();
    }
    if (s == BY_OK)
        s = run_groups(e, &groups, kept, &rows, out);
    for (int i = 0; s == BY_OK && e->normalize && i < count; i++)
        gen_embed_unit(out + (size_t)i * (size_t)e->width, e->width);
    by_memory_free(kept);
    data_row_groups_free(&groups);
    data_row_batch_free(&rows);
    return s;
}
