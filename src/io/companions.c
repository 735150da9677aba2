/* companions.c - copies the files of a model directory other than its weights. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/json.h"
#include "io/weights.h"

/* Not copied, by the end of the name: weights in any format, their indices, */
static const char *const weights[] = {".safetensors", ".bin",     ".pt",   ".pth",    ".ckpt",
                                      ".h5",          ".msgpack", ".onnx", ".gguf",   ".index.json",
                                      ".tflite",      ".npz",     ".ot",   ".pickle", ".pkl"};
/* what a training run writes beside a model, */
static const char *const run[] = {"trainer_state.json", "run.json",      "owned.json",
                                  "metrics.jsonl",      "samples.jsonl", "loss.svg"};
static const char events[] = "events.out.tfevents."; /* the beginning of a name, */
/* and the configuration of an adapter, which the copy does not have. */
static const char adapter[] = "adapter_config.json";

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

static bool is_companion(const char *name)
{
    if (name[0] == '.' || strstr(name, ".tmp-") || strncmp(name, events, sizeof events - 1) == 0 ||
        strcmp(name, adapter) == 0)
        return false;
    for (int i = 0; i < BY_COUNT(weights); i++)
        if (ends_with(name, weights[i]))
            return false;
    for (int i = 0; i < BY_COUNT(run); i++)
        if (strcmp(name, run[i]) == 0)
            return false;
    return true;
}

static by_status copy_bytes(FILE *in, base_writer *w, const char *from)
{
    char part[64 << 10];
    for (size_t n; (n = fread(part, 1, sizeof part, in)) > 0;)
        BY_TRY(base_writer_put(w, part, n));
    return ferror(in) ? base_fail(BY_ERR_IO, "cannot read %s: %s", from, strerror(errno)) : BY_OK;
}

/* Copies a file unless `to` exists already. Skips a directory; anything else that is not a regular file is an
 * error, because a copy without it would be incomplete. */
static by_status copy_file(const char *from, const char *to)
{
    struct stat st;
    if (base_file_exists(to))
        return BY_OK;
    if (stat(from, &st) != 0)
        return base_fail(BY_ERR_IO, "cannot read %s: %s", from, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return BY_OK;
    if (!S_ISREG(st.st_mode))
        return base_fail(BY_ERR_IO, "cannot copy %s: it is not a regular file", from);
    FILE *in = fopen(from, "rb");
    if (!in)
        return base_fail(BY_ERR_IO, "cannot open %s: %s", from, strerror(errno));
    base_writer w = {0};
    by_status s = base_writer_open(&w, to);
    if (s == BY_OK)
        s = copy_bytes(in, &w, from);
    fclose(in);
    if (s == BY_OK)
        return base_writer_finish(&w);
    base_writer_abort(&w);
    return s;
}

static by_status copy_folder(const char *from, const char *to)
{
    DIR *d = opendir(from);
    by_status s = BY_OK;
    if (!d)
        return base_fail(BY_ERR_IO, "cannot open the directory %s: %s", from, strerror(errno));
    for (struct dirent *e; s == BY_OK && (e = readdir(d));) {
        if (!is_companion(e->d_name))
            continue;
        char *source = base_path_join(from, e->d_name), *target = base_path_join(to, e->d_name);
        s = source && target ? copy_file(source, target) : BY_ERR_MEMORY;
        base_free(source);
        base_free(target);
    }
    closedir(d);
    return s;
}

/* A module is stored in the directory itself (an empty path) or in a folder of it, which may be missing if
 * the module has no settings. */
static by_status copy_module(const char *from, const char *to, const cJSON *module)
{
    const char *path;
    BY_TRY(base_json_string(module, "path", "", &path));
    if (!*path)
        return BY_OK;
    if (path[0] == '.' || strpbrk(path, "/\\"))
        return base_fail(BY_ERR_FORMAT,
                         "%s/modules.json: the path \"%s\" is not the name of a folder in that directory",
                         from, path);
    char *source = base_path_join(from, path), *target = base_path_join(to, path);
    by_status s = source && target ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && base_dir_exists(source)) {
        s = base_dir_make(target);
        if (s == BY_OK)
            s = copy_folder(source, target);
        if (s == BY_OK)
            s = base_dir_sync(target);
    }
    base_free(source);
    base_free(target);
    return s;
}

/* Copies the folders of a sentence-transformers model: [{"path": "1_Pooling", ...}, ...]. */
static by_status copy_modules(const char *from, const char *to)
{
    char *file = base_path_join(from, "modules.json");
    if (!file)
        return BY_ERR_MEMORY;
    bool there = base_file_exists(file);
    cJSON *modules = there ? base_json_load(file) : NULL;
    by_status s = there && !modules ? base_error_status() : BY_OK;
    const cJSON *module;
    cJSON_ArrayForEach(module, modules) if (s == BY_OK) s = copy_module(from, to, module);
    cJSON_Delete(modules);
    base_free(file);
    return s;
}

by_status by_companions_copy(const char *from, const char *to)
{
    BY_TRY(copy_folder(from, to));
    return copy_modules(from, to);
}
