/* record.c - see record.h. */
#include "train/record.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

const char *train_record_dtype(by_dtype type, bool stochastic_rounding)
{
    return type == BY_BF16 && stochastic_rounding ? "bf16, stochastic rounding" : by_dtype_name(type);
}

/* The checksum of everything except the member "checksum". */
static by_status sum_of(const cJSON *json, char out[20])
{
    cJSON *copy = cJSON_Duplicate(json, true);
    base_buf text = {0};
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "checksum");
    by_status s = copy ? base_json_print(&text, copy, false) : base_fail(BY_ERR_MEMORY, "out of memory");
    base_format(out, 20, "%016llx", (unsigned long long)base_checksum(text.data ? text.data : "", text.size));
    cJSON_Delete(copy);
    base_buf_free(&text);
    return s;
}

static void add(train_record *r, train_fact fact)
{
    if (r->count < TRAIN_FACTS_MAX)
        r->facts[r->count++] = fact;
    else
        r->full = true;
}

void train_record_number(train_record *r, const char *key, double value, train_rule rule)
{
    add(r, (train_fact){.key = key, .rule = rule, .number = value});
}

void train_record_newer(train_record *r, const char *key, double value, double missing)
{
    add(r,
        (train_fact){
            .key = key, .rule = TRAIN_YOUNGER, .number = value, .missing = isnan(missing) ? value : missing});
}

void train_record_text(train_record *r, const char *key, const char *value, train_rule rule)
{
    add(r, (train_fact){.key = key, .rule = rule, .text = value ? value : ""});
}

void train_record_adapter(train_record *r, const by_adapter_spec *adapter, const char *words)
{
    const bool ia3 = adapter && adapter->ia3, prefix = adapter && adapter->prefix,
               prompt = adapter && adapter->prompt;
    train_record_text(r, "lora", ia3 || prefix || prompt ? NULL : words, TRAIN_SAME);
    train_record_text(r, "ia3", ia3 ? words : NULL, TRAIN_SAME);
    train_record_text(r, "prefix_tuning", prefix ? words : NULL, TRAIN_SAME);
    train_record_text(r, "prompt_tuning", prompt ? words : NULL, TRAIN_SAME);
}

void train_record_optimizer(train_record *r, const by_optimizer_spec *o)
{
    train_record_number(r, "beta1", BY_MAX(o->beta1, 0), TRAIN_SAME);
    train_record_number(r, "beta2", BY_MAX(o->beta2, 0), TRAIN_SAME);
    train_record_number(r, "eps", BY_MAX(o->eps, 0), TRAIN_SAME);
    train_record_number(r, "weight_decay", o->weight_decay, TRAIN_SAME);
    train_record_number(r, "max_grad_norm", o->max_grad_norm, TRAIN_SAME);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool put_data(cJSON *json, const train_record *r)
{
    cJSON *list = r->data ? cJSON_AddArrayToObject(json, "data") : NULL;
    bool ok = !r->data || list;
    for (int i = 0; i < r->data_count && ok; i++)
        ok = cJSON_AddItemToArray(list, cJSON_CreateString(r->data[i]));
    return ok;
}

static bool put_all(cJSON *json, const train_record *r)
{
    char here[PATH_MAX];
    bool ok = json != NULL;
    for (int i = 0; i < r->count && ok; i++) {
        const train_fact *f = &r->facts[i];
        ok = f->text ? cJSON_AddStringToObject(json, f->key, f->text) != NULL
                     : cJSON_AddNumberToObject(json, f->key, f->number) != NULL;
    }
    if (ok && r->options)
        ok = base_json_put(json, "options", base_json_parse(r->options, strlen(r->options), "options"));
    ok = ok && put_data(json, r);
    return ok && (!getcwd(here, sizeof here) || base_json_put(json, "directory", cJSON_CreateString(here)));
}

by_status train_record_write(const char *out, const train_record *r)
{
    if (r->full)
        return base_fail(BY_ERR_UNSUPPORTED, "run.json: more than %d settings", TRAIN_FACTS_MAX);
    cJSON *json = cJSON_CreateObject();
    char sum[20], *path = base_path_join(out, "run.json");
    by_status s = path && put_all(json, r) ? sum_of(json, sum) : BY_ERR_MEMORY;
    if (s == BY_OK && !base_json_put(json, "checksum", cJSON_CreateString(sum)))
        s = BY_ERR_MEMORY;
    s = s == BY_OK ? base_json_write(path, json) : base_fail(s, "out of memory while writing run.json");
    base_free(path);
    cJSON_Delete(json);
    return s;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* NULL on failure. A file that changed after it was written is an error. */
static cJSON *load(const char *out)
{
    char *path = base_path_join(out, "run.json"), sum[20];
    cJSON *json = path ? base_json_load(path) : NULL;
    const char *said = NULL;
    bool ok = json && base_json_string(json, "checksum", NULL, &said) == BY_OK && sum_of(json, sum) == BY_OK;
    if (ok && said && strcmp(said, sum) != 0) {
        base_fail(BY_ERR_FORMAT,
                  "%s was changed or damaged after it was written: its checksum differs; restore it, use "
                  "another folder, or start over",
                  path);
        ok = false;
    } else if (!json) {
        base_fail_context("%s: there is a checkpoint but no readable run.json", out);
    }
    base_free(path);
    if (ok)
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* Resolves a relative path of run.json. */
static bool resolve(const cJSON *json, const char *path, char out[PATH_MAX])
{
    const char *directory = "";
    if (*path == '/' || base_json_string(json, "directory", "", &directory) != BY_OK || !*directory)
        return realpath(path, out) != NULL;
    char *joined = base_path_join(directory, path);
    const bool ok = joined && realpath(joined, out);
    base_free(joined);
    return ok;
}

static bool same_path(const cJSON *json, const char *was, const char *asked)
{
    char a[PATH_MAX], b[PATH_MAX];
    return strcmp(was, asked) == 0 || (resolve(json, was, a) && realpath(asked, b) && strcmp(a, b) == 0);
}

by_status train_record_recall(const char *out, int64_t asked, int64_t *first, bool *longer)
{
    cJSON *json = load(out);
    int64_t steps = asked;
    if (!json)
        return base_error_status();
    by_status s = base_json_int(json, "steps", asked, 0, INT64_C(1) << 50, &steps);
    if (s == BY_OK)
        s = base_json_int(json, "first_steps", steps, 0, INT64_C(1) << 50, first);
    cJSON_Delete(json);
    *longer = s == BY_OK && asked > steps;
    return s;
}

static by_status differs(const char *out, const char *key, const char *was, const char *asked)
{
    const bool template = strcmp(key, "chat_template_fingerprint") == 0;
    if (template || strcmp(key, "data_fingerprint") == 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "the run in %s was started with %s; use another folder, or overwrite it", out,
                         template ? "another chat template" : "other data");
    if (strcmp(key, "steps") == 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "the run in %s has %s steps, but this command asks for %s; a run can be extended, "
                         "not shortened: use another folder, or overwrite it",
                         out, was, asked);
    return base_fail(BY_ERR_ARGUMENT,
                     "the run in %s was started with%s %s%s%s, but this command asks for %s; use another "
                     "folder, or overwrite it",
                     out, *was ? "" : "out", key, *was ? " " : "", was, *asked ? asked : "none");
}

static by_status compare_text(const char *out, const cJSON *json, const train_fact *f)
{
    const char *was = "";
    BY_TRY(base_json_string(json, f->key, f->absent ? f->absent : "", &was));
    const bool same = f->rule == TRAIN_PATH ? same_path(json, was, f->text) : strcmp(was, f->text) == 0;
    return same ? BY_OK : differs(out, f->key, was, f->text);
}

static by_status compare_number(const char *out, const cJSON *json, const train_fact *f)
{
    double was = NAN;
    char text[2][32];
    BY_TRY(base_json_double(json, f->key, f->rule == TRAIN_YOUNGER ? f->missing : NAN, -INFINITY, INFINITY,
                            &was));
    if (was == f->number)
        return BY_OK;
    base_format(text[0], sizeof text[0], "%.10g", was);
    base_format(text[1], sizeof text[1], "%.10g", f->number);
    return differs(out, f->key, text[0], text[1]);
}

by_status train_record_compare(const char *out, const train_record *r)
{
    cJSON *json = load(out);
    if (!json)
        return base_error_status();
    by_status s = BY_OK;
    for (int i = 0; i < r->count && s == BY_OK; i++) {
        const train_fact *f = &r->facts[i];
        if (f->rule != TRAIN_FREE)
            s = f->text ? compare_text(out, json, f) : compare_number(out, json, f);
    }
    cJSON_Delete(json);
    return s;
}
