/* rope_config.c - rotary positions in config.json: rope_parameters (transformers 5), or rope_scaling and
 * rope_theta (before). */
#include <math.h>

#include "base/json.h"
#include "models/models.h"

static const char *const kinds[] = {[NN_ROPE_DEFAULT] = "default",
                                    [NN_ROPE_LINEAR] = "linear",
                                    [NN_ROPE_DYNAMIC] = "dynamic",
                                    [NN_ROPE_YARN] = "yarn",
                                    [NN_ROPE_LLAMA3] = "llama3"};

/* The object with the parameters, or NULL; rope_scaling takes precedence. */
static const cJSON *parameters_of(const cJSON *json)
{
    const cJSON *old = cJSON_GetObjectItemCaseSensitive(json, "rope_scaling");
    const cJSON *now = cJSON_GetObjectItemCaseSensitive(json, "rope_parameters");
    return cJSON_IsObject(old) && old->child ? old : cJSON_IsObject(now) ? now : NULL;
}

/* Anything else under these names would be silently ignored. */
static by_status check_kind(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return !item || cJSON_IsNull(item) || cJSON_IsObject(item)
               ? BY_OK
               : base_fail(BY_ERR_FORMAT, "\"%s\" is not an object", key);
}

static by_status read_kind(const cJSON *p, nn_rope *r)
{
    const char *old, *name;
    const cJSON *item;
    cJSON_ArrayForEach(item, p) if (cJSON_IsObject(item)) return base_fail(
        BY_ERR_UNSUPPORTED, "rope_parameters: rotary positions by layer type (\"%s\") are not supported",
        item->string);
    BY_TRY(base_json_string(p, "type", "default", &old));
    BY_TRY(base_json_string(p, "rope_type", old, &name));
    for (int i = 0; i < BY_COUNT(kinds); i++)
        if (strcmp(name, kinds[i]) == 0) {
            r->kind = (nn_rope_kind)i;
            return BY_OK;
        }
    return base_fail(BY_ERR_UNSUPPORTED,
                     "rope_type \"%s\" is not supported; default, linear, dynamic, yarn and llama3 are",
                     name);
}

/* The factor on sines and cosines recommended by the paper. */
static double advised(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

static by_status read_yarn(const cJSON *p, nn_rope *r)
{
    double scale, all;
    bool round;
    BY_TRY(base_json_double(p, "beta_fast", 32, 1e-6, 1e9, &r->fast));
    BY_TRY(base_json_double(p, "beta_slow", 1, 1e-6, 1e9, &r->slow));
    BY_TRY(base_json_bool(p, "truncate", true, &round));
    BY_TRY(base_json_double(p, "mscale", 0, 0, 1e6, &scale));
    BY_TRY(base_json_double(p, "mscale_all_dim", 0, 0, 1e6, &all));
    r->exact_range = !round;
    const double usual =
        scale > 0 && all > 0 ? advised(r->factor, scale) / advised(r->factor, all) : advised(r->factor, 1);
    return base_json_double(p, "attention_factor", usual, 1e-6, 1e6, &r->attention);
}

by_status arch_rope_read(const cJSON *json, int context, nn_rope *r)
{
    const cJSON *p = parameters_of(json);
    int64_t trained;
    *r = (nn_rope){.kind = NN_ROPE_DEFAULT};
    BY_TRY(check_kind(json, "rope_scaling"));
    BY_TRY(check_kind(json, "rope_parameters"));
    BY_TRY(base_json_double(json, "rope_theta", 10000, 1, 1e12, &r->theta));
    BY_TRY(base_json_double(p, "rope_theta", r->theta, 1, 1e12, &r->theta));
    BY_TRY(read_kind(p, r));
    BY_TRY(base_json_int(p, "original_max_position_embeddings", context, 1, 1 << 30, &trained));
    if (r->kind == NN_ROPE_YARN || r->kind == NN_ROPE_LLAMA3)
        BY_TRY(base_json_int(json, "original_max_position_embeddings", trained, 1, 1 << 30, &trained));
    r->trained = r->kind == NN_ROPE_DYNAMIC ? context : (int)trained;
    if (r->kind == NN_ROPE_DEFAULT)
        return BY_OK;
    const double none = r->kind == NN_ROPE_YARN ? (double)context / (double)trained : 0;
    BY_TRY(base_json_double(p, "factor", none, 1, 1e6, &r->factor));
    if (r->factor <= 0)
        return base_fail(BY_ERR_FORMAT, "rope_type \"%s\" needs a factor", kinds[r->kind]);
    if (r->kind == NN_ROPE_LLAMA3) {
        BY_TRY(base_json_double(p, "low_freq_factor", 1, 1e-6, 1e6, &r->low));
        BY_TRY(base_json_double(p, "high_freq_factor", 4, 1e-6, 1e6, &r->high));
        if (r->high <= r->low)
            return base_fail(BY_ERR_FORMAT, "high_freq_factor must be more than low_freq_factor");
    }
    return r->kind == NN_ROPE_YARN ? read_yarn(p, r) : BY_OK;
}

bool arch_rope_write(cJSON *json, const nn_rope *r)
{
    if (cJSON_HasObjectItem(json, "rope_parameters") || cJSON_HasObjectItem(json, "rope_scaling") ||
        cJSON_HasObjectItem(json, "rope_theta"))
        return true;
    cJSON *p = cJSON_CreateObject();
    bool ok = cJSON_AddNumberToObject(p, "rope_theta", r->theta) &&
              cJSON_AddStringToObject(p, "rope_type", kinds[r->kind]);
    if (ok && r->kind != NN_ROPE_DEFAULT)
        ok = cJSON_AddNumberToObject(p, "factor", r->factor);
    if (ok && r->kind == NN_ROPE_LLAMA3)
        ok = cJSON_AddNumberToObject(p, "low_freq_factor", r->low) &&
             cJSON_AddNumberToObject(p, "high_freq_factor", r->high);
    if (ok && (r->kind == NN_ROPE_LLAMA3 || r->kind == NN_ROPE_YARN))
        ok = cJSON_AddNumberToObject(p, "original_max_position_embeddings", r->trained);
    if (!ok) {
        cJSON_Delete(p);
        return false;
    }
    return base_json_put(json, "rope_parameters", p);
}
