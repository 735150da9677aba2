/* folder_adopt.c - run folders of versions that kept no list of their files: list what such a run is known to have
 * made, and nothing of which that is not certain. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/folder.h"

typedef struct finds {
    train_folder *folder;
    char **names;
    int count;
    by_status status; /* BY_ERR_MEMORY says nothing about the folder */
} finds;

/* A member of a JSON file, or a wrong file: NULL, without an error. The caller deletes *json. */
static const cJSON *member_of(finds *f, const char *name, const char *key, cJSON **json)
{
    char *path = base_path_join(f->folder->out, name);
    struct stat st;
    base_error_clear();
    *json = path && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? base_json_load(path) : NULL;
    if (!path || base_error_status() == BY_ERR_MEMORY)
        f->status = BY_ERR_MEMORY;
    base_free(path);
    base_error_clear();
    return cJSON_GetObjectItemCaseSensitive(*json, key);
}

static bool has_member(finds *f, const char *name, const char *key)
{
    cJSON *json;
    bool has = member_of(f, name, key, &json) != NULL;
    cJSON_Delete(json);
    return has;
}

/* A directory; NULL where there is none. */
static DIR *open_dir(finds *f, const char *path)
{
    DIR *d = path ? opendir(path) : NULL;
    if (!path || (!d && errno == ENOMEM))
        f->status = BY_ERR_MEMORY;
    return d;
}

/* List a path when it exists. */
static void note(finds *f, const char *name)
{
    char *path = base_path_join(f->folder->out, name);
    struct stat st;
    char **more = base_resize(f->names, (size_t)f->count + 1, sizeof *more);
    f->names = more ? more : f->names;
    if (!path || !more) {
        f->status = BY_ERR_MEMORY;
    } else if (lstat(path, &st) == 0) {
        more[f->count] = base_strdup(name);
        if (more[f->count])
            f->count++;
        else
            f->status = BY_ERR_MEMORY;
    }
    base_free(path);
}

/* Files of a directory (NULL: the folder itself) that have the names of a model's. */
static void note_model(finds *f, const char *dir, bool checkpoint)
{
    char *path = base_path_join(f->folder->out, dir ? dir : "");
    DIR *d = open_dir(f, path);
    for (struct dirent *e; d && f->status == BY_OK && (e = readdir(d));) {
        const bool state = strcmp(e->d_name, "optimizer.safetensors") == 0 ||
                           strcmp(e->d_name, "streams.safetensors") == 0 ||
                           strcmp(e->d_name, "trainer_state.json") == 0;
        if (!train_folder_is_model_file(e->d_name) && !(checkpoint && state))
            continue;
        char *name = base_path_join(dir, e->d_name);
        if (name)
            note(f, name);
        else
            f->status = BY_ERR_MEMORY;
        base_free(name);
    }
    if (d)
        closedir(d);
    base_free(path);
}

static void note_data(finds *f)
{
    static const char *const texts[] = {"train", "eval"}, *const ends[] = {"bin", "docs", "json"};
    for (int i = 0; i < BY_COUNT(texts); i++) {
        char name[32];
        base_format(name, sizeof name, "data/%s.json", texts[i]);
        for (int k = 0; k < BY_COUNT(ends) && has_member(f, name, "source"); k++) {
            char file[32];
            base_format(file, sizeof file, "data/%s.%s", texts[i], ends[k]);
            note(f, file);
        }
    }
    if (f->count > 0)
        note_model(f, "data", false);
}

/* A checkpoint says the step that it is named by. */
static bool is_checkpoint(finds *f, const char *name)
{
    if (strncmp(name, "checkpoint-", 11) != 0)
        return false;
    char *state = base_sprintf("%s/trainer_state.json", name), *end;
    if (!state) {
        f->status = BY_ERR_MEMORY;
        return false;
    }
    cJSON *json;
    const cJSON *step = member_of(f, state, "step", &json);
    const long long named = strtoll(name + 11, &end, 10);
    const bool is = end > name + 11 && !*end && cJSON_IsNumber(step) && step->valuedouble == (double)named;
    cJSON_Delete(json);
    base_free(state);
    return is;
}

static void note_checkpoints(finds *f)
{
    DIR *d = open_dir(f, f->folder->out);
    for (struct dirent *e; d && f->status == BY_OK && (e = readdir(d));) {
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0)
            note(f, e->d_name);
        if (!is_checkpoint(f, e->d_name))
            continue;
        note(f, e->d_name);
        note_model(f, e->d_name, true);
    }
    if (d)
        closedir(d);
}

/* A link to a checkpoint, or a copy of one. */
static void note_link(finds *f, const char *name)
{
    char *path = base_path_join(f->folder->out, name), *state = base_sprintf("%s/trainer_state.json", name);
    struct stat st;
    const bool link = path && lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    if (!path || !state)
        f->status = BY_ERR_MEMORY;
    else if (link || has_member(f, state, "step"))
        note(f, name);
    base_free(path);
    base_free(state);
}

/* Fine-tuning leaves a model in the folder itself. */
static bool was_tuning(finds *f)
{
    cJSON *json;
    const cJSON *command = member_of(f, "run.json", "command", &json);
    const bool tuning =
        cJSON_GetObjectItemCaseSensitive(json, "class") ||
        (cJSON_IsString(command) && strncmp(command->valuestring, "banyan finetune ", 16) == 0);
    cJSON_Delete(json);
    return tuning;
}

by_status train_folder_adopt(train_folder *folder)
{
    static const char *const plain[] = {"run.json", "metrics.jsonl", "loss.svg"};
    static const char *const links[] = {"last", "best", ".last-new", ".best-new"};
    finds f = {.folder = folder};
    if (!has_member(&f, "run.json", "banyan"))
        return f.status == BY_OK ? BY_OK : base_fail(f.status, "%s: out of memory", folder->out);
    note_data(&f);
    for (int i = 0; i < BY_COUNT(plain); i++)
        note(&f, plain[i]);
    for (int i = 0; i < BY_COUNT(links); i++)
        note_link(&f, links[i]);
    note_checkpoints(&f);
    if (has_member(&f, "averaged/config.json", "model_type")) {
        note(&f, "averaged");
        note_model(&f, "averaged", false);
    }
    if (was_tuning(&f))
        note_model(&f, NULL, false);
    by_status s =
        f.status == BY_OK
            ? train_folder_list(folder, (const char *const *)f.names, f.count)
            : base_fail(f.status, "%s: out of memory while listing the files of a run", folder->out);
    base_paths_free(f.names, f.count);
    return s;
}
