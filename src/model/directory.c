/* directory.c - models as HuggingFace directories: config.json, model.safetensors, generation_config.json. */
#include "model/adapter.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "graph/graph.h"
#include "base/json.h"

/* ---- parameters ------------------------------------------------------------------------------ */

/* The size of an axis of an input by its letter: that of the model for pictures, otherwise 1. */
static int64_t axis_size(const by_pictures *p, char letter)
{
    return letter == 'C' ? p->channels : letter == 'H' ? p->height : letter == 'W' ? p->width : 1;
}

by_status model_declare(by_model *m)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = m->params});
    if (!g)
        return BY_ERR_MEMORY;
    by_model_io io = {0};
    const by_input_info *in;
    by_pictures pictures;
    by_model_pictures(m, &pictures);
    for (int i = 0; (in = by_model_input(m, i)); i++) {
        int64_t shape[BY_MAX_RANK];
        const int rank = (int)strlen(in->axes);
        for (int k = 0; k < rank; k++)
            shape[k] = axis_size(&pictures, in->axes[k]);
        if (in->required || strcmp(in->name, "pick") == 0 || strcmp(in->name, "tokens") == 0 ||
            strcmp(in->name, "pixel_values") == 0) /* a model of texts and pictures reads either */
            by_io_feed(&io, in->name, by_input(g, in->name, in->type, rank, shape));
    }
    by_model_build(m, g, &io);
    by_status s = by_graph_status(g);
    gr_params_find_weights(m->params, g);
    by_graph_free(g);
    return s;
}

/* ---- open, new, free ------------------------------------------------------------------------- */

by_model *model_blank(by_device *d, by_dtype dtype)
{
    by_model *m = base_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->device = d;
    m->eos = m->pad = m->start = -1;
    m->params = by_params_new(d, dtype);
    if (!m->params) {
        base_free(m);
        return NULL;
    }
    return m;
}

/* Checks that the architecture has a head for the requested task. */
static by_status check_task(const by_model *m)
{
    if ((unsigned)m->task >= BY_TASK_COUNT)
        return base_fail(BY_ERR_ARGUMENT, "there is no task %d", (int)m->task);
    if (!m->arch->classes[m->task])
        return m->task == BY_TASK_FEATURES
                   ? base_fail(BY_ERR_UNSUPPORTED, "%s cannot be opened without its head", m->arch->title)
                   : base_fail(BY_ERR_UNSUPPORTED, "%s has no head for \"%s\"", m->arch->title,
                               by_task_name(m->task));
    if (model_has_labels(m->task) && (m->labels < 1 || m->labels > MODEL_MAX_LABELS))
        return base_fail(BY_ERR_ARGUMENT, "the number of labels must be 1 to %d, not %d", MODEL_MAX_LABELS,
                         m->labels);
    return BY_OK;
}

/* The absolute path of a directory, for adapters, which may be elsewhere. */
static by_status keep_dir(by_model *m, const char *dir)
{
    char path[PATH_MAX];
    m->dir = base_strdup(realpath(dir, path) ? path : dir);
    return m->dir ? BY_OK : BY_ERR_MEMORY;
}

/* config.json is in one directory, the weights may be in another. */
static by_status open_body(by_model *m, const char *config, const char *dir, const by_model_spec *spec)
{
    bool own_task = spec->new_head && spec->task != BY_TASK_DEFAULT;
    BY_TRY(keep_dir(m, dir));
    BY_TRY(model_config_read(m, config, spec));
    if (own_task) {
        model_strings_free(m->label_names, m->labels);
        m->label_names = NULL;
        m->task = spec->task;
        m->labels = spec->labels;
        m->problem = spec->problem;
    }
    BY_TRY(check_task(m));
    by_weights *file = by_weights_open(dir);
    if (!file)
        return base_error_status();
    model_head_find(m, file);
    by_status s = model_declare(m);
    if (s == BY_OK)
        s = model_load(m, file, spec);
    if (m->file != file)
        by_weights_free(file);
    return s;
}

/* How to open the base model of an adapter: with the adapter's head if the model has none or another. */
static by_status spec_of_body(const char *dir, bool configured, by_model_spec *spec)
{
    spec->training = false;
    spec->adapter = NULL;
    if (spec->new_head)
        return BY_OK;
    spec->new_head = true;
    spec->task = BY_TASK_DEFAULT;
    if (configured)
        return BY_OK;
    cJSON *json = model_adapter_read_config(dir);
    if (!json)
        return base_error_status();
    const by_task task = model_adapter_task(json);
    if (model_has_labels(task))
        spec->labels = model_adapter_labels(dir);
    if ((model_has_labels(task) && spec->labels > 0) || task == BY_TASK_ANSWER)
        spec->task = task;
    cJSON_Delete(json);
    return BY_OK;
}

/* The configuration in the folder of an adapter, of a run that trained it, describes the model that it is for. */
static by_status check_base(const char *dir, const char *base)
{
    const arch_family *own = model_family_of(dir, NULL), *other = own ? model_family_of(base, NULL) : NULL;
    if (!own || !other)
        return base_error_status();
    if (own == other || own == other->classifier || other == own->classifier)
        return BY_OK;
    return base_fail(BY_ERR_ARGUMENT, "the adapter %s is for %s, and %s is %s", dir, own->title, base,
                     other->title);
}

/* Opens a model with the adapter in a folder. base NULL: the model that the adapter names. */
static by_status open_adapted(by_model *m, const char *dir, const char *base, const by_model_spec *spec)
{
    by_model_spec body = *spec;
    if (!model_adapter_is_folder(dir))
        return base_fail(BY_ERR_FORMAT, "%s has no adapter_config.json, so it is no adapter", dir);
    char *own = base ? base_strdup(base) : by_adapter_base(dir);
    char *config = own ? base_path_join(dir, "config.json") : NULL;
    const bool configured = config && base_file_exists(config);
    by_status s = config ? spec_of_body(dir, configured, &body) : base_error_status();
    if (s == BY_OK && configured)
        s = check_base(dir, own);
    if (s == BY_OK)
        s = open_body(m, configured ? dir : own, own, &body);
    base_free(own);
    base_free(config);
    if (s == BY_OK && !by_adapter_open(m, dir, spec->training))
        s = base_error_status();
    return s;
}

/* The adapter determines what is trained. */
static by_status check_frozen(const by_model_spec *spec)
{
    if (spec->training &&
        (spec->freeze || spec->stochastic_rounding || (spec->layer_decay != 0 && spec->layer_decay != 1)))
        return base_fail(
            BY_ERR_UNSUPPORTED,
            "an adapter freezes the whole model: freeze, layer_decay and stochastic_rounding do not apply");
    return BY_OK;
}

static by_status open_into(by_model *m, const char *dir, const by_model_spec *spec)
{
    by_model_spec body = *spec;
    const bool folder = model_adapter_is_folder(dir);
    if ((folder || spec->adapter_folder) && (spec->adapter || (folder && spec->adapter_folder)))
        return base_fail(BY_ERR_UNSUPPORTED, "the model has an adapter: merge it before adding another");
    if (folder || spec->adapter_folder || spec->adapter)
        BY_TRY(check_frozen(spec));
    if (folder || spec->adapter_folder)
        return open_adapted(m, folder ? dir : spec->adapter_folder, folder ? NULL : dir, spec);
    body.training = spec->training && !spec->adapter;
    BY_TRY(open_body(m, dir, dir, &body));
    if (spec->adapter && !by_adapter_new(m, spec->adapter, spec->training))
        return base_error_status();
    return BY_OK;
}

by_model *by_model_open(by_device *d, const char *dir, const by_model_spec *spec)
{
    if (!d || !dir || !spec) {
        base_fail_missing(!d ? "device" : !dir ? "model directory" : "by_model_spec");
        return NULL;
    }
    base_error_clear();
    by_model *m = model_blank(d, spec->dtype);
    if (!m)
        return NULL;
    if (open_into(m, dir, spec) != BY_OK) {
        base_fail_context("%s", dir);
        by_model_free(m);
        return NULL;
    }
    return m;
}

/* The preset of that name, or NULL with an error that lists all of them. */
static const arch_preset *find_preset(const arch_family *a, const char *name)
{
    base_buf names = {0};
    if (!name)
        return &a->presets[0];
    for (int i = 0; i < a->n_presets; i++)
        if (strcmp(a->presets[i].name, name) == 0)
            return &a->presets[i];
    for (int i = 0; i < a->n_presets; i++)
        base_buf_printf(&names, "%s%s", i ? ", " : "", a->presets[i].name);
    base_fail(BY_ERR_ARGUMENT, "%s has no preset \"%s\"; available: %s", a->family, name,
              names.data ? names.data : "");
    base_buf_free(&names);
    return NULL;
}

static by_status check_fields(const arch_family *a, const void *config)
{
    for (int i = 0; i < a->n_fields; i++) {
        const arch_field *f = &a->fields[i];
        const char *at = (const char *)config + f->offset;
        if (f->kind != ARCH_FIELD_INT && f->kind != ARCH_FIELD_PAIR && f->kind != ARCH_FIELD_FLOAT)
            continue;
        const double v = f->kind == ARCH_FIELD_FLOAT ? (double)*(const float *)at : *(const int *)at;
        if (v != f->fallback && (v < f->min || v > f->max))
            return base_fail(BY_ERR_ARGUMENT, "%s is %g; it must be between %g and %g", f->key, v, f->min,
                             f->max);
    }
    return a->check(config);
}

static by_status set_vocabularies(const arch_family *a, void *config, const by_model_shape *s)
{
    if (s->vocab > 0) {
        arch_config_set(a, config, ARCH_ROLE_VOCAB, s->vocab);
        arch_config_set(a, config, ARCH_ROLE_TARGET_VOCAB, s->target_vocab > 0 ? s->target_vocab : s->vocab);
    }
    if (s->target_vocab > 0 && !arch_config_set(a, config, ARCH_ROLE_SHARED, false))
        return base_fail(BY_ERR_ARGUMENT, "%s has one vocabulary for source and target, not two", a->title);
    return BY_OK;
}

static by_status set_pattern(const arch_family *a, void *config, const by_model_shape *s)
{
    if (s->attention)
        BY_TRY(arch_config_choose(a, config,
                                  arch_has(a, ARCH_ROLE_SCORE)    ? ARCH_ROLE_SCORE
                                  : arch_has(a, ARCH_ROLE_BLOCKS) ? ARCH_ROLE_BLOCKS
                                                                  : ARCH_ROLE_PATTERN,
                                  s->attention));
    if (s->cell)
        BY_TRY(arch_config_choose(a, config, ARCH_ROLE_CELL, s->cell));
    if (s->attention_mode)
        BY_TRY(arch_config_choose(a, config, ARCH_ROLE_SHARING, s->attention_mode));
    if ((s->stride > 0 && !arch_config_set(a, config, ARCH_ROLE_STRIDE, s->stride)) ||
        (s->summary > 0 && !arch_config_set(a, config, ARCH_ROLE_SUMMARY, s->summary)))
        return base_fail(BY_ERR_ARGUMENT, "%s has no attention patterns", a->title);
    return BY_OK;
}

static by_status set_local(const arch_family *a, void *config, const by_model_shape *s)
{
    const char *blocks = arch_config_choice(a, config, ARCH_ROLE_BLOCKS);
    const bool lines = blocks && strcmp(blocks, arch_choice_word(ARCH_ROLE_BLOCKS, 0)) == 0;
    const struct {
        arch_role role;
        int value;
    } all[] = {{lines ? ARCH_ROLE_BLOCK : ARCH_ROLE_BLOCK_COLUMNS, s->block_columns},
               {lines ? ARCH_ROLE_LOCAL_MEMORY : ARCH_ROLE_LOCAL_MEMORY_COLUMNS, s->memory_columns},
               {ARCH_ROLE_BLOCK_ROWS, s->block_rows},
               {ARCH_ROLE_LOCAL_MEMORY_ROWS, s->memory_rows},
               {ARCH_ROLE_MIXTURES, s->mixtures}};
    for (int i = 0; i < BY_COUNT(all); i++)
        if (all[i].value && !arch_config_set(a, config, all[i].role, BY_MAX(all[i].value, 0)))
            return base_fail(BY_ERR_ARGUMENT, "%s has no local attention over pictures", a->title);
    if (lines && (s->block_rows || s->memory_rows))
        return base_fail(BY_ERR_ARGUMENT,
                         "blocks and memories of attention \"1d\" have a length, not rows and columns");
    if (s->upscale && !arch_config_set(a, config, ARCH_ROLE_UPSCALE, s->upscale))
        return base_fail(BY_ERR_ARGUMENT, "%s does not support super-resolution", a->title);
    if (s->distribution)
        BY_TRY(arch_config_choose(a, config, ARCH_ROLE_DISTRIBUTION, s->distribution));
    const char *distribution = arch_config_choice(a, config, ARCH_ROLE_DISTRIBUTION);
    if (s->mixtures && distribution && strcmp(distribution, arch_choice_word(ARCH_ROLE_DISTRIBUTION, 0)) == 0)
        return base_fail(BY_ERR_ARGUMENT, "the distribution \"%s\" has no mixture", distribution);
    return s->coordinates ? arch_config_choose(a, config, ARCH_ROLE_COORDINATES, s->coordinates) : BY_OK;
}

static by_status set_pictures(const arch_family *a, void *config, const by_model_shape *s)
{
    const struct {
        arch_role role;
        double value;
        const char *lacks;
    } all[] = {{ARCH_ROLE_IMAGE, s->image, "reads no pictures"},
               {ARCH_ROLE_PATCH, s->patch, "reads no patches of pictures"},
               {ARCH_ROLE_CHANNELS, s->channels, "reads no channels of pictures"},
               {ARCH_ROLE_DROP_PATH, s->drop_path, "has no stochastic depth"}};
    for (int i = 0; i < BY_COUNT(all); i++)
        if (all[i].value > 0 && !arch_config_set(a, config, all[i].role, all[i].value))
            return base_fail(BY_ERR_ARGUMENT, "%s %s", a->title, all[i].lacks);
    return BY_OK;
}

/* The published 0.02 suits width 768. Sums over fewer inputs need larger weights to be as large. */
static by_status set_init_std(const arch_family *a, void *config, double std)
{
    const double width = arch_config_get(a, config, ARCH_ROLE_WIDTH);
    if (std > 0 && !arch_config_set(a, config, ARCH_ROLE_INIT, std))
        return base_fail(BY_ERR_ARGUMENT, "%s has no single standard deviation for its initial values",
                         a->title);
    if (std < 0 && width < 768 && (float)arch_config_get(a, config, ARCH_ROLE_INIT) == 0.02f)
        arch_config_set(a, config, ARCH_ROLE_INIT, fmin(0.02 * sqrt(768 / width), 0.08));
    return BY_OK;
}

/* Applies the defaults of the architecture, then the preset, then the caller's values. */
static by_status shape_config(by_model *m, const by_model_shape *s)
{
    const arch_family *a = m->arch;
    const arch_preset *preset = find_preset(a, s->preset);
    if (!preset)
        return BY_ERR_ARGUMENT;
    arch_config_defaults(a, m->config);
    arch_config_set(a, m->config, ARCH_ROLE_LAYERS, s->layers > 0 ? s->layers : preset->layers);
    arch_config_set(a, m->config, ARCH_ROLE_DECODER_LAYERS,
                    s->decoder_layers > 0 ? s->decoder_layers
                                          : arch_config_get(a, m->config, ARCH_ROLE_LAYERS));
    if (s->pre_norm && !arch_config_set(a, m->config, ARCH_ROLE_PRE_NORM, true))
        return base_fail(BY_ERR_ARGUMENT, "%s has no pre-norm variant", a->title);
    arch_config_set(a, m->config, ARCH_ROLE_HEADS, s->heads > 0 ? s->heads : preset->heads);
    arch_config_set(a, m->config, ARCH_ROLE_WIDTH, s->width > 0 ? s->width : preset->width);
    int first = a->first_position && !a->extra_rows ? a->first_position(m->config) : 0;
    arch_config_set(a, m->config, ARCH_ROLE_CONTEXT, s->context > 0 ? s->context + first : preset->context);
    if (arch_config_get(a, m->config, ARCH_ROLE_INNER) > 0) /* 0: derived from the width */
        arch_config_set(a, m->config, ARCH_ROLE_INNER, 4 * arch_config_get(a, m->config, ARCH_ROLE_WIDTH));
    if (s->languages > 0)
        arch_config_set(a, m->config, ARCH_ROLE_LANGUAGES, s->languages);
    arch_config_set(a, m->config, ARCH_ROLE_CAUSAL, m->task == BY_TASK_LM);
    arch_config_set(a, m->config, ARCH_ROLE_BOTH, m->task != BY_TASK_LM);
    if (a->adjust)
        a->adjust(preset->name, m->config);
    if (s->inner > 0)
        arch_config_set(a, m->config, ARCH_ROLE_INNER, s->inner);
    BY_TRY(set_init_std(a, m->config, s->init_std));
    if (s->kv_heads > 0 && !arch_config_set(a, m->config, ARCH_ROLE_KV_HEADS, s->kv_heads))
        return base_fail(BY_ERR_ARGUMENT, "%s has as many key/value heads as heads", a->title);
    if (s->hash_rounds > 0)
        BY_TRY(by_model_set_hash_rounds(m, s->hash_rounds));
    if (s->memory > 0 || (s->memory < 0 && arch_has(a, ARCH_ROLE_MEMORY)))
        BY_TRY(by_model_set_memory(m, BY_MAX(s->memory, 0)));
    BY_TRY(set_pattern(a, m->config, s));
    BY_TRY(set_local(a, m->config, s));
    BY_TRY(set_pictures(a, m->config, s));
    if (a->head)
        model_head(m)->own = !model_head(m)->tied;
    BY_TRY(set_vocabularies(a, m->config, s));
    if (s->dropout >= 0)
        arch_config_set(a, m->config, ARCH_ROLE_DROPOUT, s->dropout);
    return check_fields(a, m->config);
}

static by_status new_into(by_model *m, const char *family, const by_model_shape *shape,
                          const by_model_spec *spec)
{
    by_model_spec body = *spec;
    m->arch = arch_find(family);
    m->arch = m->arch ? arch_variant(m->arch, shape->decoder) : NULL;
    if (!m->arch)
        return base_error_status();
    if (m->arch->classifier && spec->task == BY_TASK_CLASSIFY)
        m->arch = m->arch->classifier;
    m->config = base_alloc_zero(1, m->arch->config_size);
    if (!m->config)
        return BY_ERR_MEMORY;
    m->task = spec->task == BY_TASK_DEFAULT ? m->arch->pretrained : spec->task;
    m->labels = spec->labels;
    if (spec->task == BY_TASK_DEFAULT && m->labels == 0) /* a family whose own task has labels */
        m->labels = m->arch->labels ? m->arch->labels : 2;
    m->problem = spec->problem;
    if (spec->adapter)
        BY_TRY(check_frozen(spec));
    BY_TRY(check_task(m));
    BY_TRY(shape_config(m, shape));
    BY_TRY(model_declare(m));
    body.training = spec->training && !spec->adapter;
    BY_TRY(model_prepare(m, &body));
    BY_TRY(by_params_freeze(m->params, body.training));
    if (!spec->blank)
        BY_TRY(by_params_init(m->params, spec->seed));
    return !spec->adapter || by_adapter_new(m, spec->adapter, spec->training) ? BY_OK : base_error_status();
}

by_model *by_model_new(by_device *d, const char *family, const by_model_shape *shape,
                       const by_model_spec *spec)
{
    if (!d || !family || !shape || !spec) {
        base_fail_missing(!d ? "device" : !family ? "model family" : "model shape or by_model_spec");
        return NULL;
    }
    base_error_clear();
    by_model *m = model_blank(d, spec->dtype);
    if (m && new_into(m, family, shape, spec) != BY_OK) {
        by_model_free(m);
        return NULL;
    }
    return m;
}

void by_model_free(by_model *m)
{
    if (!m)
        return;
    while (m->adapters)
        by_adapter_free(m->adapters);
    by_params_free(m->params);
    by_weights_free(m->file);
    cJSON_Delete(m->json);
    model_strings_free(m->label_names, m->labels);
    base_free(m->dir);
    base_free(m->fresh);
    base_free(m->config);
    base_free(m);
}

/* ---- save ------------------------------------------------------------------------------------ */

static by_status write_generation_config(const by_model *m, const char *dir)
{
    cJSON *json = cJSON_CreateObject();
    char *path = base_path_join(dir, "generation_config.json");
    by_status s;
    bool ok = json && path && base_json_put(json, "_from_model_config", cJSON_CreateTrue());
    if (ok && m->eos >= 0)
        ok = base_json_put(json, "bos_token_id", cJSON_CreateNumber(m->eos)) &&
             base_json_put(json, "eos_token_id", cJSON_CreateNumber(m->eos));
    if (ok && m->pad >= 0)
        ok = model_config_put_token(json, "pad_token_id", m->pad);
    if (ok && m->start >= 0)
        ok = model_config_put_token(json, "decoder_start_token_id", m->start);
    s = ok ? base_json_write(path, json)
           : base_fail(BY_ERR_MEMORY, "out of memory while writing generation_config.json");
    cJSON_Delete(json);
    base_free(path);
    return s;
}

/* Writes the values of one parameter as dtype; e->data points to its entry in the list. */
static by_status put_parameter(void *user, base_writer *w, const by_weight *e)
{
    const by_params *p = user;
    enum { PART = 256 << 10 }; /* convert in parts: a copy of the whole tensor would be unplanned memory */
    int i = (int)((const gr_param_info *)e->data - p->list);
    const size_t all = (size_t)p->list[i].count;
    float *values = base_alloc(BY_MIN(all, (size_t)PART) * sizeof *values);
    by_status s = values ? BY_OK : BY_ERR_MEMORY;
    for (size_t at = 0; at < all && s == BY_OK; at += PART) {
        const size_t n = BY_MIN(all - at, (size_t)PART);
        s = gr_params_get_range(p, i, BY_SLOT_VALUE, at, n, values);
        by_weight part = {.name = e->name,
                          .dtype = BY_F32,
                          .rank = 1,
                          .dim = {(int64_t)n},
                          .data = values,
                          .bytes = n * sizeof *values};
        if (s == BY_OK)
            s = io_weight_write(w, &part, e->dtype);
    }
    base_free(values);
    return s;
}

static by_status write_weights(const by_model *m, const char *dir, by_dtype dtype, size_t limit)
{
    by_params *p = m->params;
    by_weight *list = base_alloc_zero((size_t)p->count + 1, sizeof *list);
    int *shard = base_alloc_zero((size_t)p->count + 1, sizeof *shard);
    by_status s = list && shard ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < p->count && s == BY_OK; i++) {
        const gr_param_info *info = &p->list[i];
        list[i] = (by_weight){.name = info->name, .dtype = dtype, .rank = info->rank, .data = info};
        list[i].bytes = (size_t)info->count * by_dtype_size(dtype);
        memcpy(list[i].dim, info->dim, sizeof(int64_t) * (size_t)info->rank);
    }
    if (s == BY_OK)
        s = io_shards_write(dir, list, p->count, shard, io_shards_plan(list, p->count, limit, shard), NULL,
                            put_parameter, p);
    base_free(list);
    base_free(shard);
    return s;
}

by_status by_model_save(const by_model *m, const char *dir, by_dtype dtype)
{
    return by_model_save_with(m, dir, &(by_save_spec){.dtype = dtype});
}

by_status by_model_save_with(const by_model *m, const char *dir, const by_save_spec *spec)
{
    if (!m || !dir || !spec)
        return base_fail_missing(!m ? "model" : "output directory or by_save_spec");
    const by_dtype dtype = spec->dtype;
    const int64_t limit = spec->shard_bytes == 0 ? BY_SHARD_BYTES : spec->shard_bytes;
    if (dtype != BY_F32 && dtype != BY_BF16 && dtype != BY_F16)
        return base_fail(BY_ERR_ARGUMENT, "models are saved as f32, bf16 or f16, not %s",
                         by_dtype_name(dtype));
    BY_TRY(base_dir_make(dir));
    BY_TRY(m->adapter ? by_adapter_save(m->adapter, dir)
                      : write_weights(m, dir, dtype, limit > 0 ? (size_t)limit : SIZE_MAX));
    cJSON *json = model_config_json(m, dtype);
    char *path = base_path_join(dir, "config.json");
    by_status s = json && path ? base_json_write(path, json) : BY_ERR_MEMORY;
    cJSON_Delete(json);
    base_free(path);
    BY_TRY(s);
    return m->task == BY_TASK_LM || m->task == BY_TASK_SEQ2SEQ ? write_generation_config(m, dir) : BY_OK;
}
