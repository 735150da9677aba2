/* adapter_folder.c - PEFT folders: adapter_config.json and adapter_model.safetensors (or .bin). */
#include "base/file.h"
#include "model/adapter.h"

/* ---- reading ---------------------------------------------------------------------------------- */

static bool holds(const char *dir, const char *name)
{
    char *path = base_path_join(dir, name);
    const bool there = path && base_file_exists(path);
    base_free(path);
    return there;
}

bool model_adapter_is_folder(const char *dir)
{
    return holds(dir, "adapter_config.json");
}

static by_weights *open_weights(const char *dir)
{
    char *path =
        base_path_join(dir, holds(dir, "adapter_model.safetensors") || !holds(dir, "adapter_model.bin")
                                ? "adapter_model.safetensors"
                                : "adapter_model.bin");
    by_weights *file = path ? by_weights_open(path) : NULL;
    base_free(path);
    return file;
}

char *by_adapter_base(const char *dir)
{
    cJSON *json = dir ? model_adapter_read_config(dir) : NULL;
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "base_model_name_or_path");
    char *base = NULL;
    if (!dir)
        base_fail_missing("folder");
    if (cJSON_IsString(name) && base_dir_exists(name->valuestring))
        base = base_strdup(name->valuestring);
    else if (cJSON_IsString(name)) {
        base = base_path_join(dir, name->valuestring);
        if (base && !base_dir_exists(base)) {
            base_free(base);
            base = NULL;
            base_fail(BY_ERR_IO,
                      "%s: the adapter was trained for %s, which is not a directory here; open that model "
                      "and add the "
                      "adapter to it (--adapter)",
                      dir, io_show(name->valuestring).text);
        }
    } else if (json) {
        base_fail(BY_ERR_FORMAT, "%s: adapter_config.json does not name its model", dir);
    }
    cJSON_Delete(json);
    return base;
}

int model_adapter_labels(const char *dir)
{
    static const char *const heads[] = {"classifier.weight", "score.weight", "classifier.out_proj.weight"};
    by_weights *file = open_weights(dir);
    int labels = 0;
    for (int i = 0; file && i < BY_COUNT(heads) && !labels; i++) {
        char *name = base_sprintf(MODEL_ADAPTER_PREFIX "%s", heads[i]);
        const by_weight *e = name ? by_weights_find(file, name) : NULL;
        if (e && e->rank == 2 && e->dim[0] > 0 && e->dim[0] <= MODEL_MAX_LABELS)
            labels = (int)e->dim[0];
        base_free(name);
    }
    by_weights_free(file);
    base_error_clear();
    return labels;
}

/* The adapter's parameter for a tensor name, or -1. The adapter may have been trained with another head, so
 * the prefix of the body may be missing in the file or in this model. Old files name the biases of adapted
 * layers as the body does. */
static int find_spelled(const by_adapter *a, const char *name)
{
    int k = by_params_find(a->params, name);
    const char *rest = strncmp(name, MODEL_ADAPTER_PREFIX, strlen(MODEL_ADAPTER_PREFIX)) == 0
                           ? name + strlen(MODEL_ADAPTER_PREFIX)
                           : name;
    const size_t n = strlen(rest);
    const char *prefix = model_prefix(a->model);
    const bool body = strncmp(rest, prefix, strlen(prefix)) == 0;
    char *tries[3] = {0};
    if (k < 0) {
        tries[0] = body ? base_sprintf(MODEL_ADAPTER_PREFIX "%s", rest + strlen(prefix))
                        : base_sprintf(MODEL_ADAPTER_PREFIX "%s%s", prefix, rest);
        tries[1] = n > 5 && strcmp(rest + n - 5, ".bias") == 0
                       ? base_sprintf(MODEL_ADAPTER_PREFIX "%.*s.base_layer.bias", (int)(n - 5), rest)
                       : NULL;
        tries[2] = base_sprintf("%s.weight", name);
    }
    for (int i = 0; i < BY_COUNT(tries); i++) {
        k = k < 0 && tries[i] ? by_params_find(a->params, tries[i]) : k;
        base_free(tries[i]);
    }
    return k;
}

/* The same for a bias that modules share. The file may have it under each of their names, the adapter under
 * one. */
static int find_as(const by_adapter *a, const char *name)
{
    int k = find_spelled(a, name);
    for (const arch_alias *c = a->model->arch->copies; c && c->key && k < 0; c++) {
        base_buf module = {0};
        const bool is_bias = model_adapter_module(c->key, "bias", &module);
        char *names[] = {is_bias ? base_sprintf(MODEL_ADAPTER_PREFIX "%s", c->field) : NULL,
                         is_bias ? base_sprintf(MODEL_ADAPTER_PREFIX "%s", c->key) : NULL,
                         is_bias ? base_sprintf(MODEL_ADAPTER_PREFIX "%s.base_layer.bias", module.data)
                                 : NULL};
        bool meant = false;
        for (int i = 0; i < BY_COUNT(names); i++)
            meant |= names[i] && strcmp(name, names[i]) == 0;
        for (int i = 0; i < BY_COUNT(names); i++) {
            k = meant && k < 0 && names[i] ? by_params_find(a->params, names[i]) : k;
            base_free(names[i]);
        }
        base_buf_free(&module);
    }
    return k;
}

/* Files from before the reference library renamed its modules use the names of model files. */
static int find(const by_adapter *a, const char *name)
{
    base_buf module = {0};
    const int k = model_adapter_path(a->model, name, &module) ? find_as(a, module.data) : -1;
    base_buf_free(&module);
    return k;
}

/* The body's parameter for PEFT's "X.base_layer.weight" or "X.base_layer.bias", or -1. Modules may share a
 * bias. */
static int find_base(const by_adapter *a, const char *name)
{
    const char *end = strstr(name, ".base_layer.");
    const char *part = end ? end + strlen(".base_layer.") : "";
    const size_t from = strlen(MODEL_ADAPTER_PREFIX);
    if (strlen(name) <= from || (strcmp(part, "weight") != 0 && strcmp(part, "bias") != 0))
        return -1;
    char *plain = base_sprintf("%.*s.%s", (int)(end - name - (ptrdiff_t)from), name + from, part);
    int k = plain ? model_find(a->model, plain) : -1;
    for (const arch_alias *c = a->model->arch->copies; plain && c && c->key && k < 0; c++)
        k = strcmp(plain, c->key) == 0 ? model_find(a->model, c->field) : -1;
    base_free(plain);
    return k;
}

/* PEFT stores the weights of an adapted embedding or head with the adapter. They must equal the model's. */
static by_status check_base(const by_adapter *a, const by_weight *e, bool *is_base)
{
    const int k = find_base(a, e->name);
    *is_base = k >= 0;
    if (k < 0)
        return BY_OK;
    const size_t n = (size_t)a->model->params->list[k].count;
    float *there = base_alloc(n * sizeof *there), *here = base_alloc(n * sizeof *here);
    by_status s = there && here ? BY_OK : BY_ERR_MEMORY;
    bool same = e->bytes == n * by_dtype_size(e->dtype);
    if (s == BY_OK && same)
        s = by_weight_read(e, 0, n, there, BY_F32);
    if (s == BY_OK && same)
        s = by_params_get(a->model->params, k, BY_SLOT_VALUE, here);
    same =
        same && a->model->params->list[k].type == BY_F32 ? memcmp(here, there, n * sizeof *here) == 0 : same;
    base_free(there);
    base_free(here);
    if (s == BY_OK && !same)
        s = base_fail(BY_ERR_UNSUPPORTED,
                      "%s differs from the model: the adapter was trained over other weights",
                      io_show(e->name).text);
    return s;
}

static by_status check_shape(const by_adapter *a, int k, const by_weight *e)
{
    const gr_param_info *info = &a->params->list[k];
    bool fits = e->rank == info->rank && by_dtype_has_fraction(e->dtype);
    for (int i = 0; fits && i < e->rank; i++)
        fits = e->dim[i] == info->dim[i];
    return fits ? BY_OK
                : base_fail(BY_ERR_FORMAT,
                            "%s does not have the shape that adapter_config.json and the model require",
                            io_show(e->name).text);
}

/* Other tensors that PEFT stores, and a head or pooler that the model was opened without. */
static bool is_unused(const by_adapter *a, const char *name)
{
    const bool bare = a->model->task == BY_TASK_FEATURES || a->model->task == BY_TASK_ENCODER;
    const char *rest = name + BY_MIN(strlen(name), strlen(MODEL_ADAPTER_PREFIX));
    return strstr(name, ".original_module.") || strstr(name, ".modules_to_save.") ||
           strstr(name, ".pooler.") || (bare && !model_in_body(a->model, rest));
}

by_status model_adapter_match(by_adapter *a, const char *dir)
{
    a->file = open_weights(dir);
    a->found = base_alloc_zero((size_t)a->params->count + 1, sizeof *a->found);
    if (!a->file || !a->found)
        return base_error_status();
    for (int i = 0; i < by_weights_count(a->file); i++) {
        const by_weight *e = by_weights_at(a->file, i);
        const int k = find(a, e->name);
        bool is_base = false;
        if (k < 0)
            BY_TRY(check_base(a, e, &is_base));
        if (k < 0 && !is_base && !is_unused(a, e->name))
            return base_fail(BY_ERR_FORMAT, "%s belongs to no layer that adapter_config.json adapts in %s",
                             io_show(e->name).text, base_a(a->model->arch->title).text);
        if (k >= 0)
            BY_TRY(check_shape(a, k, e));
        if (k >= 0)
            a->found[k] = e;
    }
    for (int k = 0; k < a->params->count; k++)
        if (!a->found[k] && !a->params->list[k].fixed)
            return base_fail(BY_ERR_FORMAT, "%s is missing", a->params->list[k].name);
    return BY_OK;
}

by_status model_adapter_load(by_adapter *a)
{
    for (int k = 0; k < a->params->count; k++) {
        const size_t n = (size_t)a->params->list[k].count;
        float *v = a->found[k] ? base_alloc(n * sizeof *v) : NULL;
        by_status s = a->found[k] && !v ? BY_ERR_MEMORY : BY_OK;
        if (v)
            s = by_weight_read(a->found[k], 0, n, v, BY_F32);
        if (v && s == BY_OK)
            s = by_params_set(a->params, k, BY_SLOT_VALUE, v);
        base_free(v);
        BY_TRY(s);
    }
    model_adapter_close(a);
    return BY_OK;
}

void model_adapter_close(by_adapter *a)
{
    by_weights_free(a->file);
    base_free(a->found);
    a->file = NULL;
    a->found = NULL;
}

/* ---- writing ---------------------------------------------------------------------------------- */

static by_status put_values(void *user, base_writer *w, const by_weight *e)
{
    const by_params *p = user;
    const int i = (int)((const gr_param_info *)e->data - p->list);
    float *v = base_alloc(e->bytes);
    by_status s = v ? by_params_get(p, i, BY_SLOT_VALUE, v) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = base_writer_put(w, v, e->bytes);
    base_free(v);
    return s;
}

static by_status write_weights(const by_adapter *a, const char *path)
{
    by_params *p = a->params;
    by_weight *list = base_alloc_zero((size_t)p->count + 1, sizeof *list);
    int n = 0;
    for (int i = 0; list && i < p->count; i++) {
        const gr_param_info *info = &p->list[i];
        if (info->fixed)
            continue;
        list[n] = (by_weight){.name = info->name, .dtype = BY_F32, .rank = info->rank, .data = info};
        list[n].bytes = (size_t)info->count * sizeof(float);
        memcpy(list[n++].dim, info->dim, sizeof(int64_t) * (size_t)info->rank);
    }
    by_status s = list ? io_safetensors_write(path, list, n, NULL, put_values, p) : BY_ERR_MEMORY;
    base_free(list);
    return s;
}

by_status by_adapter_save(const by_adapter *a, const char *dir)
{
    if (!a || !dir)
        return base_fail_missing(a ? "folder" : "adapter");
    BY_TRY(base_dir_make(dir));
    char *weights = base_path_join(dir, "adapter_model.safetensors"),
         *config = base_path_join(dir, "adapter_config.json");
    by_status s = weights && config ? write_weights(a, weights) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = base_json_write(config, a->json);
    base_free(weights);
    base_free(config);
    return s;
}
