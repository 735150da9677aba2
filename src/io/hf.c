/* hf.c - models as HuggingFace directories: config.json, model.safetensors, generation_config.json. */
#include "io/hf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "graph/graph.h"
#include "base/json.h"

enum { MAX_LABELS = 1 << 20 };

/* ---- config.json to struct and back ---------------------------------------------------------- */

static by_status read_field(const cJSON *json, const by_field *f, char *at)
{
    int64_t i;
    double d;
    const char *s;
    switch (f->kind) {
    case BY_FIELD_INT:
        BY_TRY(by_json_int(json, f->key, (int64_t)f->fallback, (int64_t)f->min, (int64_t)f->max, &i));
        *(int *)at = (int)i;
        return BY_OK;
    case BY_FIELD_FLOAT:
        BY_TRY(by_json_double(json, f->key, f->fallback, f->min, f->max, &d));
        *(float *)at = (float)d;
        return BY_OK;
    case BY_FIELD_BOOL:
        return by_json_bool(json, f->key, f->fallback != 0, (bool *)at);
    case BY_FIELD_ACT:
        BY_TRY(by_json_string(json, f->key, by_act_name((by_act)f->fallback), &s));
        if (!by_act_parse(s, (by_act *)at))
            return by_fail(BY_ERR_UNSUPPORTED, "%s: the activation \"%s\" is not known", f->key, s);
        return BY_OK;
    }
    return BY_OK;
}

/* The shortest decimal that reads back as the same float: 0.1f is 0.1 in the file, not 0.100000001490116. */
static double shortest(float f)
{
    char text[32];
    for (int digits = 6; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)f);
        if (strtof(text, NULL) == f)
            break;
    }
    return strtod(text, NULL);
}

/* A whole number keeps its point: readers that tell types apart take 1 for an integer. */
static cJSON *float_json(float f)
{
    char text[48];
    if (f != floorf(f) || fabsf(f) >= 1e6f)
        return cJSON_CreateNumber(shortest(f));
    snprintf(text, sizeof text, "%.1f", (double)f);
    return cJSON_CreateRaw(text);
}

static bool write_field(cJSON *json, const by_field *f, const char *at)
{
    by_act act;
    const cJSON *old = cJSON_GetObjectItemCaseSensitive(json, f->key);
    switch (f->kind) {
    case BY_FIELD_INT:
        if (*(const int *)at == 0 && f->fallback == 0 && f->min > 0)
            return by_json_put(json, f->key, cJSON_CreateNull()); /* "as the architecture says" */
        return by_json_put(json, f->key, cJSON_CreateNumber(*(const int *)at));
    case BY_FIELD_FLOAT:
        if ((double)*(const float *)at == f->fallback && f->fallback < f->min)
            return by_json_put(json, f->key, cJSON_CreateNull());
        return by_json_put(json, f->key, float_json(*(const float *)at));
    case BY_FIELD_BOOL:
        return by_json_put(json, f->key, cJSON_CreateBool(*(const bool *)at));
    case BY_FIELD_ACT: /* keep the spelling it came with */
        memcpy(&act, at, sizeof act);
        if (cJSON_IsString(old) && by_act_parse(old->valuestring, &act) && memcmp(&act, at, sizeof act) == 0)
            return true;
        return by_json_put(json, f->key, cJSON_CreateString(by_act_name(*(const by_act *)at)));
    }
    return false;
}

/* A token id: a number, the first of a list, or -1. */
static int token_of(const cJSON *json, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key);
    if (cJSON_IsArray(v))
        v = cJSON_GetArrayItem(v, 0);
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < INT32_MAX ? v->valueint : -1;
}

static const char *const problem_names[] = {
    [BY_PROBLEM_ONE_LABEL] = "single_label_classification",
    [BY_PROBLEM_MANY_LABELS] = "multi_label_classification",
    [BY_PROBLEM_REGRESSION] = "regression",
};

static by_status read_problem(by_model *m)
{
    const char *name;
    BY_TRY(by_json_string(m->json, "problem_type", NULL, &name));
    m->problem = BY_PROBLEM_DEFAULT;
    for (int i = 1; name && i < BY_COUNT(problem_names); i++)
        if (strcmp(name, problem_names[i]) == 0)
            m->problem = (by_problem)i;
    if (name && m->problem == BY_PROBLEM_DEFAULT)
        return by_fail(BY_ERR_UNSUPPORTED, "problem_type \"%s\" is not known", name);
    return BY_OK;
}

/* id2label is an object of numbers as strings. */
static by_status read_label_names(by_model *m, const cJSON *object)
{
    const cJSON *item;
    m->label_names = by_alloc_zero((size_t)m->labels, sizeof *m->label_names);
    if (!m->label_names)
        return BY_ERR_MEMORY;
    cJSON_ArrayForEach(item, object)
    {
        char *end;
        long i = strtol(item->string, &end, 10);
        if (*end || end == item->string || i < 0 || i >= m->labels || !cJSON_IsString(item) ||
            m->label_names[i])
            return by_fail(BY_ERR_FORMAT, "id2label: \"%s\" is not the number of one of %d labels",
                           item->string, m->labels);
        m->label_names[i] = by_strdup(item->valuestring);
        if (!m->label_names[i])
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* The class of model that config.json names is none of the architecture's. */
static by_status unknown_class(const by_model *m, const char *name)
{
    by_buf known = {0};
    for (int t = 0; t < BY_TASK_COUNT; t++)
        if (m->arch->classes[t])
            by_buf_printf(&known, "%s%s", known.size ? ", " : "", m->arch->classes[t]);
    by_status s = by_fail(BY_ERR_UNSUPPORTED,
                          "config.json: architectures names \"%s\", which is not supported; a %s can be: %s",
                          by_show(name).text, m->arch->family, known.data ? known.data : "");
    by_buf_free(&known);
    return s;
}

/* The task that config.json's architectures[0] stands for; without one, what the family is pretrained with. A
 * class that is not known does not matter when the caller brings a task of its own. */
static by_status read_class(by_model *m, bool any)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(m->json, "architectures");
    const cJSON *first = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, 0) : NULL;
    if ((list && !cJSON_IsArray(list) && !cJSON_IsNull(list)) || (first && !cJSON_IsString(first)))
        return by_fail(BY_ERR_FORMAT, "config.json: \"architectures\" is not a list of names");
    bool known = any || !first;
    m->task = m->arch->pretrained;
    for (int t = 0; t < BY_TASK_COUNT && first; t++)
        if (m->arch->classes[t] && strcmp(m->arch->classes[t], first->valuestring) == 0) {
            m->task = (by_task)t;
            known = true;
        }
    if (m->task == BY_TASK_FEATURES &&
        (m->arch->pretrained == BY_TASK_LM || m->arch->pretrained == BY_TASK_SEQ2SEQ))
        m->task = m->arch->pretrained; /* the head is tied to the body, so nothing is missing */
    return known ? BY_OK : unknown_class(m, first->valuestring);
}

static by_status read_task(by_model *m, bool any_class)
{
    BY_TRY(read_class(m, any_class));
    if (m->arch->is_causal && (m->task == BY_TASK_LM || m->task == BY_TASK_MLM))
        m->task = m->arch->is_causal(m->config) ? BY_TASK_LM : BY_TASK_MLM;
    int64_t labels = 2;
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(m->json, "id2label");
    if (cJSON_IsObject(names))
        labels = cJSON_GetArraySize(names);
    BY_TRY(by_json_int(m->json, "num_labels", labels, 1, MAX_LABELS, &labels));
    m->labels = (int)labels;
    if (cJSON_IsObject(names) && cJSON_GetArraySize(names) == m->labels)
        BY_TRY(read_label_names(m, names));
    return read_problem(m);
}

static by_status read_config(by_model *m, const char *dir, bool any_class)
{
    char *path = by_path_join(dir, "config.json");
    m->json = path ? by_json_load(path) : NULL;
    by_free(path);
    if (!m->json)
        return by_error_status();
    const char *family;
    BY_TRY(by_json_string(m->json, "model_type", NULL, &family));
    if (!family)
        return by_fail(BY_ERR_FORMAT, "config.json does not say its model_type");
    m->arch = by_arch_find(family);
    if (!m->arch)
        return by_error_status();
    m->config = by_alloc_zero(1, m->arch->config_size);
    if (!m->config)
        return BY_ERR_MEMORY;
    for (int i = 0; i < m->arch->n_fields; i++)
        BY_TRY(read_field(m->json, &m->arch->fields[i], (char *)m->config + m->arch->fields[i].offset));
    m->eos = token_of(m->json, "eos_token_id");
    m->pad = token_of(m->json, "pad_token_id");
    m->start = token_of(m->json, "decoder_start_token_id");
    if (m->arch->read)
        BY_TRY(m->arch->read(m->json, m->config));
    BY_TRY(m->arch->check(m->config));
    return read_task(m, any_class);
}

static bool write_class(const by_model *m, cJSON *json)
{
    cJSON *list = cJSON_CreateArray();
    cJSON *name = cJSON_CreateString(m->arch->classes[m->task]);
    if (!list || !name || !cJSON_AddItemToArray(list, name)) {
        cJSON_Delete(list);
        cJSON_Delete(name);
        return false;
    }
    return by_json_put(json, "architectures", list);
}

static bool write_labels(const by_model *m, cJSON *json)
{
    if (!by_has_labels(m->task))
        return true;
    cJSON *names = cJSON_CreateObject(), *ids = cJSON_CreateObject();
    bool ok = names && ids;
    for (int i = 0; i < m->labels && ok; i++) {
        char id[16], fallback[24];
        const char *name = m->label_names ? m->label_names[i] : fallback;
        snprintf(id, sizeof id, "%d", i);
        snprintf(fallback, sizeof fallback, "LABEL_%d", i);
        ok = cJSON_AddStringToObject(names, id, name) && cJSON_AddNumberToObject(ids, name, i);
    }
    if (!ok) {
        cJSON_Delete(names);
        cJSON_Delete(ids);
        return false;
    }
    ok = by_json_put(json, "id2label", names);
    ok = by_json_put(json, "label2id", ids) && ok;
    if (m->task == BY_TASK_CLASSIFY && m->problem != BY_PROBLEM_DEFAULT)
        ok = by_json_put(json, "problem_type", cJSON_CreateString(problem_names[m->problem])) && ok;
    return ok;
}

static bool put_token(cJSON *json, const char *key, int id)
{
    return by_json_put(json, key, id < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(id));
}

static cJSON *config_json(const by_model *m, by_dtype dtype)
{
    static const char *const torch_names[] = {
        [BY_F32] = "float32", [BY_BF16] = "bfloat16", [BY_F16] = "float16"};
    cJSON *json = m->json ? cJSON_Duplicate(m->json, true) : cJSON_CreateObject();
    bool ok = json && write_class(m, json) &&
              by_json_put(json, "model_type", cJSON_CreateString(m->arch->family)) && write_labels(m, json) &&
              by_json_put(json, "dtype", cJSON_CreateString(torch_names[dtype]));
    if (ok && cJSON_GetObjectItemCaseSensitive(json, "torch_dtype")) /* its name until transformers 4.56 */
        ok = by_json_put(json, "torch_dtype", cJSON_CreateString(torch_names[dtype]));
    for (int i = 0; i < m->arch->n_fields && ok; i++)
        ok = write_field(json, &m->arch->fields[i], (const char *)m->config + m->arch->fields[i].offset);
    if (ok && !m->json)
        ok = put_token(json, "bos_token_id", m->eos) &&
             (cJSON_HasObjectItem(json, "tie_word_embeddings") ||
              by_json_put(json, "tie_word_embeddings", cJSON_CreateTrue()));
    if (ok && (!m->json || token_of(m->json, "eos_token_id") != m->eos))
        ok = put_token(json, "eos_token_id", m->eos);
    if (ok && m->task == BY_TASK_SEQ2SEQ)
        ok = put_token(json, "decoder_start_token_id", m->start) && put_token(json, "pad_token_id", m->pad) &&
             by_json_put(json, "is_encoder_decoder", cJSON_CreateTrue());
    if (ok && m->arch->write)
        ok = m->arch->write(json, m->config);
    if (!ok) {
        cJSON_Delete(json);
        by_fail(BY_ERR_MEMORY, "out of memory while writing config.json");
        return NULL;
    }
    return json;
}

/* ---- parameters ------------------------------------------------------------------------------ */

/* Building the model once over one token declares every parameter. */
static by_status declare(by_model *m)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = m->params});
    if (!g)
        return BY_ERR_MEMORY;
    by_model_io io = {.tokens = by_input(g, "tokens", BY_I32, 2, (int64_t[]){1, 1}),
                      .source = by_input(g, "source", BY_I32, 2, (int64_t[]){1, 1}),
                      .pick = by_input(g, "pick", BY_I32, 1, (int64_t[]){1})};
    by_model_build(m, g, &io);
    by_status s = by_graph_status(g);
    by_graph_free(g);
    return s;
}

/* ---- open, new, free ------------------------------------------------------------------------- */

static by_model *model_new(by_device *d, by_dtype dtype)
{
    by_model *m = by_alloc_zero(1, sizeof *m);
    if (!m)
        return NULL;
    m->device = d;
    m->eos = m->pad = m->start = -1;
    m->params = by_params_new(d, dtype);
    if (!m->params) {
        by_free(m);
        return NULL;
    }
    return m;
}

/* Whether the architecture has a head for the task that was asked for. */
static by_status check_task(const by_model *m)
{
    if ((unsigned)m->task >= BY_TASK_COUNT || !m->arch->classes[m->task])
        return by_fail(BY_ERR_UNSUPPORTED, "%s has no head for this task", m->arch->title);
    if (by_has_labels(m->task) && (m->labels < 1 || m->labels > MAX_LABELS))
        return by_fail(BY_ERR_ARGUMENT, "a model with labels needs 1 to %d of them, not %d", MAX_LABELS,
                       m->labels);
    return BY_OK;
}

static by_status open_into(by_model *m, const char *dir, const by_model_spec *spec)
{
    bool own_task = spec->new_head && spec->task != BY_TASK_DEFAULT;
    BY_TRY(read_config(m, dir, own_task));
    if (own_task) {
        by_strings_free(m->label_names, m->labels);
        m->label_names = NULL;
        m->task = spec->task;
        m->labels = spec->labels;
        m->problem = spec->problem;
    }
    BY_TRY(check_task(m));
    by_weights *file = by_weights_open(dir);
    if (!file)
        return by_error_status();
    by_head_find(m, file);
    by_status s = declare(m);
    if (s == BY_OK)
        s = by_model_load(m, file, spec);
    if (m->file != file)
        by_weights_free(file);
    return s;
}

by_model *by_model_open(by_device *d, const char *dir, const by_model_spec *spec)
{
    if (!d || !dir || !spec) {
        by_fail_missing(!d ? "device" : !dir ? "directory of a model" : "by_model_spec");
        return NULL;
    }
    by_error_clear();
    by_model *m = model_new(d, spec->dtype);
    if (!m)
        return NULL;
    if (open_into(m, dir, spec) != BY_OK) {
        by_fail_context("%s", dir);
        by_model_free(m);
        return NULL;
    }
    return m;
}

/* Start from the architecture's defaults, then the preset, then what the caller asks for. */
static by_status shape_config(by_model *m, const by_model_shape *s)
{
    const by_arch *a = m->arch;
    const by_preset *preset = s->preset ? NULL : &a->presets[0];
    by_buf names = {0};
    for (int i = 0; i < a->n_presets && !preset; i++) {
        by_buf_printf(&names, "%s%s", i ? ", " : "", a->presets[i].name);
        if (strcmp(a->presets[i].name, s->preset) == 0)
            preset = &a->presets[i];
    }
    if (!preset)
        by_fail(BY_ERR_ARGUMENT, "%s has no preset \"%s\"; there are: %s", a->family, s->preset,
                names.data ? names.data : "");
    by_buf_free(&names);
    if (!preset)
        return BY_ERR_ARGUMENT;
    by_config_defaults(a, m->config);
    by_config_set(a, m->config, BY_ROLE_LAYERS, s->layers > 0 ? s->layers : preset->layers);
    by_config_set(a, m->config, BY_ROLE_DECODER_LAYERS,
                  s->decoder_layers > 0 ? s->decoder_layers : by_config_get(a, m->config, BY_ROLE_LAYERS));
    if (s->pre_norm && !by_config_set(a, m->config, BY_ROLE_PRE_NORM, true))
        return by_fail(BY_ERR_ARGUMENT, "%s has its norms where they are", a->title);
    by_config_set(a, m->config, BY_ROLE_HEADS, s->heads > 0 ? s->heads : preset->heads);
    by_config_set(a, m->config, BY_ROLE_WIDTH, s->width > 0 ? s->width : preset->width);
    int first = a->first_position && !a->extra_rows ? a->first_position(m->config) : 0;
    by_config_set(a, m->config, BY_ROLE_CONTEXT, s->context > 0 ? s->context + first : preset->context);
    if (s->inner > 0 || by_config_get(a, m->config, BY_ROLE_INNER) > 0) /* 0: what follows the width */
        by_config_set(a, m->config, BY_ROLE_INNER,
                      s->inner > 0 ? s->inner : 4 * by_config_get(a, m->config, BY_ROLE_WIDTH));
    if (s->languages > 0)
        by_config_set(a, m->config, BY_ROLE_LANGUAGES, s->languages);
    by_config_set(a, m->config, BY_ROLE_CAUSAL, m->task == BY_TASK_LM);
    if (a->adjust)
        a->adjust(preset->name, m->config);
    if (s->vocab > 0) {
        by_config_set(a, m->config, BY_ROLE_VOCAB, s->vocab);
        by_config_set(a, m->config, BY_ROLE_TARGET_VOCAB, s->target_vocab > 0 ? s->target_vocab : s->vocab);
    }
    if (s->target_vocab > 0 && !by_config_set(a, m->config, BY_ROLE_SHARED, false))
        return by_fail(BY_ERR_ARGUMENT, "%s has one vocabulary for all texts, not two", a->title);
    if (s->dropout >= 0)
        by_config_set(a, m->config, BY_ROLE_DROPOUT, s->dropout);
    for (int i = 0; i < a->n_fields; i++) {
        const by_field *f = &a->fields[i];
        const char *at = (const char *)m->config + f->offset;
        double v = f->kind == BY_FIELD_INT     ? *(const int *)at
                   : f->kind == BY_FIELD_FLOAT ? *(const float *)at
                                               : f->min;
        if (v != f->fallback && (v < f->min || v > f->max) && f->kind <= BY_FIELD_FLOAT)
            return by_fail(BY_ERR_ARGUMENT, "%s is %g; it must lie between %g and %g", f->key, v, f->min,
                           f->max);
    }
    return a->check(m->config);
}

static by_status new_into(by_model *m, const char *family, const by_model_shape *shape,
                          const by_model_spec *spec)
{
    m->arch = by_arch_find(family);
    if (!m->arch)
        return by_error_status();
    m->config = by_alloc_zero(1, m->arch->config_size);
    if (!m->config)
        return BY_ERR_MEMORY;
    m->task = spec->task == BY_TASK_DEFAULT ? m->arch->pretrained : spec->task;
    m->labels = spec->labels;
    m->problem = spec->problem;
    BY_TRY(check_task(m));
    BY_TRY(shape_config(m, shape));
    BY_TRY(declare(m));
    if (spec->training && spec->stochastic_rounding)
        BY_TRY(by_params_without_masters(m->params));
    BY_TRY(by_params_freeze(m->params, spec->training));
    return spec->blank ? BY_OK : by_params_init(m->params, spec->seed);
}

by_model *by_model_new(by_device *d, const char *family, const by_model_shape *shape,
                       const by_model_spec *spec)
{
    if (!d || !family || !shape || !spec) {
        by_fail_missing(!d ? "device" : !family ? "family of models" : "shape of the model");
        return NULL;
    }
    by_error_clear();
    by_model *m = model_new(d, spec->dtype);
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
    by_params_free(m->params);
    by_weights_free(m->file);
    cJSON_Delete(m->json);
    by_strings_free(m->label_names, m->labels);
    by_free(m->config);
    by_free(m);
}

/* ---- save ------------------------------------------------------------------------------------ */

static by_status write_generation_config(const by_model *m, const char *dir)
{
    cJSON *json = cJSON_CreateObject();
    char *path = by_path_join(dir, "generation_config.json");
    by_status s;
    bool ok = json && path && by_json_put(json, "_from_model_config", cJSON_CreateTrue());
    if (ok && m->eos >= 0)
        ok = by_json_put(json, "bos_token_id", cJSON_CreateNumber(m->eos)) &&
             by_json_put(json, "eos_token_id", cJSON_CreateNumber(m->eos));
    if (ok && m->pad >= 0)
        ok = put_token(json, "pad_token_id", m->pad);
    if (ok && m->start >= 0)
        ok = put_token(json, "decoder_start_token_id", m->start);
    s = ok ? by_json_write(path, json)
           : by_fail(BY_ERR_MEMORY, "out of memory while writing generation_config.json");
    cJSON_Delete(json);
    by_free(path);
    return s;
}

/* Write one parameter's values as dtype; e->data points to its place in the list. */
static by_status put_parameter(void *user, by_writer *w, const by_weight *e)
{
    const by_params *p = user;
    int i = (int)((const by_param_info *)e->data - p->list);
    size_t n = (size_t)p->list[i].count;
    float *values = by_alloc(n * sizeof *values);
    by_status s = values ? by_params_get(p, i, BY_SLOT_VALUE, values) : BY_ERR_MEMORY;
    by_weight full = {.name = e->name,
                      .dtype = BY_F32,
                      .rank = 1,
                      .dim = {p->list[i].count},
                      .data = values,
                      .bytes = n * 4};
    if (s == BY_OK)
        s = by_weight_write(w, &full, e->dtype);
    by_free(values);
    return s;
}

static by_status write_weights(const by_model *m, const char *dir, by_dtype dtype, size_t limit)
{
    by_params *p = m->params;
    by_weight *list = by_alloc_zero((size_t)p->count + 1, sizeof *list);
    int *shard = by_alloc_zero((size_t)p->count + 1, sizeof *shard);
    by_status s = list && shard ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < p->count && s == BY_OK; i++) {
        const by_param_info *info = &p->list[i];
        list[i] = (by_weight){.name = info->name, .dtype = dtype, .rank = info->rank, .data = info};
        list[i].bytes = (size_t)info->count * by_dtype_size(dtype);
        memcpy(list[i].dim, info->dim, sizeof(int64_t) * (size_t)info->rank);
    }
    if (s == BY_OK)
        s = by_shards_write(dir, list, p->count, shard, by_shards_plan(list, p->count, limit, shard), NULL,
                            put_parameter, p);
    by_free(list);
    by_free(shard);
    return s;
}

by_status by_model_save(const by_model *m, const char *dir, by_dtype dtype)
{
    return by_model_save_with(m, dir, &(by_save_spec){.dtype = dtype});
}

by_status by_model_save_with(const by_model *m, const char *dir, const by_save_spec *spec)
{
    if (!m || !dir || !spec)
        return by_fail_missing(!m ? "model" : "directory to write it to");
    const by_dtype dtype = spec->dtype;
    const int64_t limit = spec->shard_bytes == 0 ? BY_SHARD_BYTES : spec->shard_bytes;
    if (dtype != BY_F32 && dtype != BY_BF16 && dtype != BY_F16)
        return by_fail(BY_ERR_ARGUMENT, "models are saved as f32, bf16 or f16, not %s", by_dtype_name(dtype));
    BY_TRY(by_dir_make(dir));
    BY_TRY(write_weights(m, dir, dtype, limit > 0 ? (size_t)limit : SIZE_MAX));
    cJSON *json = config_json(m, dtype);
    char *path = by_path_join(dir, "config.json");
    by_status s = json && path ? by_json_write(path, json) : BY_ERR_MEMORY;
    cJSON_Delete(json);
    by_free(path);
    BY_TRY(s);
    return m->task == BY_TASK_LM || m->task == BY_TASK_SEQ2SEQ ? write_generation_config(m, dir) : BY_OK;
}
