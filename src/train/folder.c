/* folder.c - see folder.h. */
#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/checkpoint.h"
#include "train/log.h"

by_status by_folder_lock(const char *out, int *fd)
{
    BY_TRY(by_dir_make(out));
    char *path = by_path_join(out, ".lock");
    if (!path)
        return BY_ERR_MEMORY;
    *fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    int error = errno;
    by_free(path);
    if (*fd < 0)
        return by_fail(BY_ERR_IO, "%s: %s", out, strerror(error));
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
        return by_fail(BY_ERR_IO, "%s: another process is training into this folder", out);
    return BY_OK;
}

by_status by_folder_forget(const char *out)
{
    BY_TRY(by_checkpoint_clean(out, true));
    BY_TRY(by_log_remove(out));
    const char *names[] = {"data", "averaged", "run.json"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        char *path = by_path_join(out, names[i]);
        by_status s = !path ? BY_ERR_MEMORY : by_dir_exists(path) ? by_dir_remove(path) : BY_OK;
        if (path && by_file_exists(path))
            unlink(path);
        by_free(path);
        BY_TRY(s);
    }
    return BY_OK;
}

const char *by_folder_dtype(by_dtype type, bool stochastic_rounding)
{
    return type == BY_BF16 && stochastic_rounding ? "bf16, stochastic rounding" : by_dtype_name(type);
}

by_status by_folder_record(const char *out, const cJSON *facts)
{
    char *path = by_path_join(out, "run.json");
    by_status s = path ? by_json_write(path, facts) : BY_ERR_MEMORY;
    by_free(path);
    return s;
}

static bool is_free(const char *key, const char *free_keys)
{
    char text[64];
    snprintf(text, sizeof text, ",%s,", key);
    return strstr(free_keys, text) != NULL;
}

static by_status differs(const char *out, const cJSON *was, const cJSON *asked)
{
    if (strcmp(asked->string, "data_fingerprint") == 0)
        return by_fail(BY_ERR_ARGUMENT,
                       "the run in %s was started with other data; use another folder, or start it afresh",
                       out);
    by_buf text[2] = {{0}, {0}};
    if (was)
        by_json_print(&text[0], was, false);
    by_json_print(&text[1], asked, false);
    by_status s =
        by_fail(BY_ERR_ARGUMENT,
                "the run in %s was started with %s %s, and this asks for %s; use another folder, or start it "
                "afresh",
                out, asked->string, text[0].data ? text[0].data : "none", text[1].data ? text[1].data : "?");
    by_buf_free(&text[0]);
    by_buf_free(&text[1]);
    return s;
}

by_status by_folder_compare(const char *out, const cJSON *facts, const char *free_keys)
{
    char *path = by_path_join(out, "run.json");
    cJSON *json = path ? by_json_load(path) : NULL;
    by_free(path);
    if (!json)
        return by_fail_context("%s: there is a checkpoint but no readable run.json", out);
    by_status s = BY_OK;
    for (const cJSON *item = facts->child; item && s == BY_OK; item = item->next) {
        const cJSON *was = cJSON_GetObjectItemCaseSensitive(json, item->string);
        if (!is_free(item->string, free_keys) && !cJSON_Compare(was, item, true))
            s = differs(out, was, item);
    }
    cJSON_Delete(json);
    return s;
}
