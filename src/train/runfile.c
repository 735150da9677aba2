/* runfile.c - run.json: how a run began. See folder.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/folder.h"

const char *train_folder_dtype(by_dtype type, bool stochastic_rounding)
{
    return type == BY_BF16 && stochastic_rounding ? "bf16, stochastic rounding" : by_dtype_name(type);
}

/* Of everything but the member "checksum", as text. */
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

by_status train_folder_record(const char *out, cJSON *facts)
{
    char sum[20], here[PATH_MAX];
    if (getcwd(here, sizeof here) && !base_json_put(facts, "directory", cJSON_CreateString(here)))
        return base_fail(BY_ERR_MEMORY, "out of memory while writing run.json");
    BY_TRY(sum_of(facts, sum));
    if (!base_json_put(facts, "checksum", cJSON_CreateString(sum)))
        return base_fail(BY_ERR_MEMORY, "out of memory while writing run.json");
    char *path = base_path_join(out, "run.json");
    by_status s = path ? base_json_write(path, facts) : BY_ERR_MEMORY;
    base_free(path);
    return s;
}

cJSON *train_folder_read(const char *out)
{
    char *path = base_path_join(out, "run.json"), sum[20];
    cJSON *json = path ? base_json_load(path) : NULL;
    const char *said = NULL;
    bool ok = json && base_json_string(json, "checksum", NULL, &said) == BY_OK && sum_of(json, sum) == BY_OK;
    if (ok && said && strcmp(said, sum) != 0) {
        base_fail(BY_ERR_FORMAT,
                  "%s was changed or damaged after it was written: its checksum differs; restore it, use "
                  "another folder, or start afresh",
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

/* A relative path of run.json, as it is found from anywhere. */
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

bool train_folder_same_path(const cJSON *json, const char *was, const char *asked)
{
    char a[PATH_MAX], b[PATH_MAX];
    return strcmp(was, asked) == 0 || (resolve(json, was, a) && realpath(asked, b) && strcmp(a, b) == 0);
}

by_status train_folder_recall(const char *out, int64_t asked, int64_t *first, bool *longer)
{
    cJSON *json = train_folder_read(out);
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

bool train_folder_add_options(cJSON *facts, const char *options)
{
    return !options || base_json_put(facts, "options", base_json_parse(options, strlen(options), "options"));
}

static bool is_free(const char *key, const char *free_keys)
{
    char text[64];
    base_format(text, sizeof text, ",%s,", key);
    return strstr(free_keys, text) != NULL;
}

by_status train_folder_differs(const char *out, const char *key, const char *was, const char *asked)
{
    if (strcmp(key, "data_fingerprint") == 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "the run in %s was started with other data; use another folder, or start it afresh",
                         out);
    return base_fail(
        BY_ERR_ARGUMENT,
        "the run in %s was started with %s %s, and this asks for %s; use another folder, or start it afresh",
        out, key, was, asked);
}

static by_status differs(const char *out, const cJSON *was, const cJSON *asked)
{
    base_buf text[2] = {{0}, {0}};
    if (was)
        base_json_print(&text[0], was, false);
    base_json_print(&text[1], asked, false);
    by_status s = train_folder_differs(out, asked->string, text[0].data ? text[0].data : "none",
                                       text[1].data ? text[1].data : "?");
    base_buf_free(&text[0]);
    base_buf_free(&text[1]);
    return s;
}

by_status train_folder_compare(const char *out, const cJSON *facts, const char *free_keys)
{
    cJSON *json = train_folder_read(out);
    if (!json)
        return base_error_status();
    by_status s = BY_OK;
    for (const cJSON *item = facts->child; item && s == BY_OK; item = item->next) {
        const cJSON *was = cJSON_GetObjectItemCaseSensitive(json, item->string);
        if (!is_free(item->string, free_keys) && !cJSON_Compare(was, item, true))
            s = differs(out, was, item);
    }
    cJSON_Delete(json);
    return s;
}
