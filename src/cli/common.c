/* common.c - what several verbs do alike (see common.h). */
#include "cli/common.h"

#include "base/file.h"

/* dir/name is there. A failed allocation counts as absent: opening the file next reports it. */
static bool holds(const char *dir, const char *name)
{
    char *path = by_path_join(dir, name);
    bool there = path && by_file_exists(path);
    by_free(path);
    return there;
}

char *cli_model_dir(const char *path)
{
    static const char *const inside[] = {"best", "last"};
    if (holds(path, "config.json"))
        return by_strdup(path);
    for (int i = 0; i < BY_COUNT(inside); i++) {
        char *dir = by_path_join(path, inside[i]);
        if (!dir || holds(dir, "config.json"))
            return dir;
        by_free(dir);
    }
    if (!by_dir_exists(path))
        by_fail(BY_ERR_IO, "%s: %s", path,
                by_file_exists(path) ? "a file, not a model directory" : "no such directory");
    else
        by_fail(BY_ERR_IO, "%s: neither a model directory (config.json) nor a run folder (best/ or last/)",
                path);
    return NULL;
}

by_tokenizer *cli_tokenizer(const char *path)
{
    char *dir = cli_model_dir(path);
    if (!dir)
        return NULL;
    by_tokenizer *t =
        by_tokenizer_load(holds(dir, "tokenizer.json") || !holds(path, "tokenizer.json") ? dir : path);
    by_free(dir);
    return t;
}

by_device *cli_device(const char *name, int threads)
{
    return by_device_open(name, threads);
}
