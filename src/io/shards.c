/* shards.c - the weights of a model directory: model.safetensors, or several files with
 * model.safetensors.index.json if one would be too large. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/json.h"
#include "io/weights.h"

#define WHOLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

int io_shards_plan(const by_weight *list, int count, size_t limit, int *shard)
{
    int files = 1;
    size_t file = 0;
    for (int i = 0; i < count; i++) {
        if (file > 0 && (file > limit || list[i].bytes > limit - file)) {
            files++;
            file = 0;
        }
        file += list[i].bytes;
        shard[i] = files - 1;
    }
    return files;
}

static char *shard_name(int i, int files)
{
    return files > 1 ? base_sprintf("model-%05d-of-%05d.safetensors", i + 1, files) : base_strdup(WHOLE);
}

static by_status write_index(const char *dir, const by_weight *list, int count, const int *shard, int files)
{
    double total = 0;
    for (int i = 0; i < count; i++)
        total += (double)list[i].bytes;
    cJSON *root = cJSON_CreateObject(), *metadata = cJSON_AddObjectToObject(root, "metadata");
    bool ok = cJSON_AddNumberToObject(metadata, "total_size", total) != NULL;
    cJSON *map = cJSON_AddObjectToObject(root, "weight_map");
    for (int i = 0; i < count && ok; i++) {
        char *name = shard_name(shard[i], files);
        cJSON *item = name ? cJSON_CreateString(name) : NULL;
        base_free(name);
        ok = item && cJSON_AddItemToObject(map, list[i].name, item);
        if (!ok)
            cJSON_Delete(item);
    }
    char *path = base_path_join(dir, INDEX);
    by_status s = ok && path ? base_json_write(path, root)
                             : base_fail(BY_ERR_MEMORY, "out of memory while writing the index");
    base_free(path);
    cJSON_Delete(root);
    return s;
}

/* Returns true for weight files of an earlier save that the current one has not replaced. Anyone opening the
 * directory might load them. */
static bool is_stale(const char *name, int files)
{
    int i, of, end = 0;
    if (strcmp(name, WHOLE) == 0)
        return files > 1;
    if (strcmp(name, INDEX) == 0)
        return files == 1;
    sscanf(name, "model-%5d-of-%5d.safetensors%n", &i, &of, &end);
    return end == 32 && name[end] == '\0' && of != files;
}

static by_status remove_stale(const char *dir, int files)
{
    by_status s = BY_OK;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        if (!is_stale(e->d_name, files))
            continue;
        char *path = base_path_join(dir, e->d_name);
        if (!path)
            s = BY_ERR_MEMORY;
        else if (unlink(path) != 0)
            s = base_fail(BY_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
        base_free(path);
    }
    if (d)
        closedir(d);
    return s;
}

by_status io_shards_write(const char *dir, const by_weight *list, int count, const int *shard, int files,
                          const char *const *metadata, io_weight_put put, void *user)
{
    for (int first = 0, i = 0; i < files; i++) {
        int n = 0;
        while (first + n < count && shard[first + n] == i)
            n++;
        char *name = shard_name(i, files), *path = name ? base_path_join(dir, name) : NULL;
        by_status s = path ? io_safetensors_write(path, list + first, n, metadata, put, user) : BY_ERR_MEMORY;
        base_free(name);
        base_free(path);
        BY_TRY(s);
        first += n;
    }
    /* Last, once every file that it names exists. */
    if (files > 1)
        BY_TRY(write_index(dir, list, count, shard, files));
    return remove_stale(dir, files);
}
