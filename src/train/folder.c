/* folder.c - see folder.h. */
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

#define OWNED "owned.json"
#define STAGE TRAIN_FOLDER_STAGE

/* ---- the list -------------------------------------------------------------------------------- */

static int find_name(const train_folder *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->names[i], name) == 0)
            return i;
    return -1;
}

bool train_folder_owns(const train_folder *f, const char *name)
{
    return find_name(f, name) >= 0;
}

/* Adds an unlisted name. Every resumed run adds its event file, so the list can grow long. */
static by_status push_new(train_folder *f, const char *name)
{
    if (!f->arena && !(f->arena = base_arena_new()))
        return BY_ERR_MEMORY;
    if (f->count == f->capacity) {
        int grown = f->capacity ? f->capacity * 2 : 32;
        char **more = base_resize(f->names, (size_t)grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        f->names = more;
        f->capacity = grown;
    }
    f->names[f->count] = base_arena_strdup(f->arena, name);
    return f->names[f->count] ? f->count++, BY_OK : BY_ERR_MEMORY;
}

static by_status push_name(train_folder *f, const char *name)
{
    return find_name(f, name) >= 0 ? BY_OK : push_new(f, name);
}

static void drop_name(train_folder *f, int i)
{
    memmove(f->names + i, f->names + i + 1, (size_t)(f->count - i - 1) * sizeof *f->names);
    f->count--;
}

static by_status write_list(const train_folder *f)
{
    base_buf text = {0};
    base_buf_puts(&text, "{\n  \"owned\": [");
    for (int i = 0; i < f->count; i++) {
        base_buf_puts(&text, i ? ",\n    " : "\n    ");
        base_json_quote(&text, f->names[i]);
    }
    base_buf_puts(&text, "\n  ]\n}\n");
    char *path = base_path_join(f->out, OWNED);
    by_status s = text.failed || !path ? BY_ERR_MEMORY : base_file_write(path, text.data, text.size);
    base_free(path);
    base_buf_free(&text);
    return s;
}

/* Whether a path stays inside the folder: neither absolute nor with "..". */
static bool is_inside(const char *name)
{
    return *name && *name != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 &&
           !strstr(name, "/../");
}

/* Returns false if there is no readable list. */
static bool read_list(train_folder *f)
{
    char *path = base_path_join(f->out, OWNED);
    cJSON *json = path && base_file_exists(path) ? base_json_load(path) : NULL;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "owned");
    bool ok = cJSON_IsArray(list);
    for (const cJSON *e = ok ? list->child : NULL; e && ok; e = e->next)
        ok = cJSON_IsString(e) && (!is_inside(e->valuestring) || push_new(f, e->valuestring) == BY_OK);
    cJSON_Delete(json);
    base_free(path);
    while (!ok && f->count > 0)
        drop_name(f, f->count - 1);
    return ok;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

by_status train_folder_list(train_folder *f, const char *const *names, int count)
{
    const int before = f->count;
    for (int i = 0; i < count; i++)
        BY_TRY(push_name(f, names[i]));
    return f->count > before ? write_list(f) : BY_OK;
}

by_status train_folder_add(train_folder *f, const char *name)
{
    return train_folder_list(f, &name, 1);
}

by_status train_folder_check_free(const train_folder *f, const char *name)
{
    if (train_folder_owns(f, name))
        return BY_OK;
    char *path = base_path_join(f->out, name);
    if (!path)
        return BY_ERR_MEMORY;
    size_t n = strlen(path);
    if (n > 0 && path[n - 1] == '/')
        path[n - 1] = '\0';
    by_status s = exists(path) ? base_fail(BY_ERR_ARGUMENT,
                                           "%s is in the way: it was not written by a run in this folder; "
                                           "move it away or use another folder",
                                           path)
                               : BY_OK;
    base_free(path);
    return s;
}

by_status train_folder_claim(train_folder *f, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        BY_TRY(train_folder_check_free(f, names[i]));
    return train_folder_list(f, names, count);
}

by_status train_folder_claim_in(train_folder *f, const char *dir, const char *name)
{
    char *path = base_path_join(f->out, dir), *file = base_path_join(dir, name);
    by_status s = path && file ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && !base_dir_exists(path))
        s = train_folder_claim(f, &dir, 1); /* otherwise the directory is foreign and stays */
    if (s == BY_OK)
        s = train_folder_claim(f, &(const char *){file}, 1);
    if (s == BY_OK)
        s = base_dir_make(path);
    base_free(path);
    base_free(file);
    return s;
}

/* ---- removing -------------------------------------------------------------------------------- */

/* Removes a path of the folder, ignoring missing files and directories that are not empty. */
static by_status remove_path(const train_folder *f, const char *name)
{
    char *path = base_path_join(f->out, name);
    if (!path)
        return BY_ERR_MEMORY;
    struct stat st;
    const size_t n = strlen(path);
    by_status s = BY_OK;
    if (path[n - 1] == '/') {
        path[n - 1] = '\0';
        s = base_dir_remove(path);
    } else if (lstat(path, &st) == 0) {
        const int rc = S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path);
        if (rc != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
            s = base_fail(BY_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    base_free(path);
    return s;
}

static bool is_under(const char *name, const char *dir)
{
    const size_t n = strlen(dir);
    return strncmp(name, dir, n) == 0 && name[n] == '/';
}

by_status train_folder_drop(train_folder *f, const char *name)
{
    int dropped = 0;
    for (int i = f->count - 1; i >= 0; i--)
        if (is_under(f->names[i], name)) {
            BY_TRY(remove_path(f, f->names[i]));
            drop_name(f, i);
            dropped++;
        }
    const int at = find_name(f, name);
    if (at >= 0) {
        BY_TRY(remove_path(f, name));
        drop_name(f, at);
        dropped++;
    }
    return dropped ? write_list(f) : BY_OK;
}

/* "run.json.tmp-123" is the temporary file of run.json. Returns the length of "run.json", or 0. */
static size_t temporary_of(const char *name)
{
    const char *mark = NULL;
    for (const char *p = name; (p = strstr(p, ".tmp-")); p++)
        mark = p;
    if (!mark || mark == name || !mark[5] || mark[5 + strspn(mark + 5, "0123456789")])
        return 0;
    return (size_t)(mark - name);
}

/* Removes temporary files of the run that a crashed process left. */
static by_status remove_temporaries(const train_folder *f, const char *dir)
{
    char *path = base_path_join(f->out, dir);
    DIR *d = path ? opendir(path) : NULL;
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        const size_t n = temporary_of(e->d_name);
        char *base = n ? base_sprintf("%s%s%.*s", dir, *dir ? "/" : "", (int)n, e->d_name) : NULL;
        char *name = n ? base_sprintf("%s%s%s", dir, *dir ? "/" : "", e->d_name) : NULL;
        if (n && (!base || !name))
            s = BY_ERR_MEMORY;
        else if (n && (train_folder_owns(f, base) || strcmp(base, OWNED) == 0))
            s = remove_path(f, name);
        base_free(base);
        base_free(name);
    }
    if (d)
        closedir(d);
    base_free(path);
    return s;
}

static by_status tidy(train_folder *f)
{
    static const char *const names[] = {STAGE "/", ".last-new", ".best-new", TRAIN_FOLDER_NEW_INPUT};
    for (int i = 0; i < BY_COUNT(names); i++)
        if (train_folder_owns(f, names[i]))
            BY_TRY(remove_path(f, names[i]));
    BY_TRY(remove_temporaries(f, ""));
    return remove_temporaries(f, "data");
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Creates the directories of a path, and records the first one that did not exist. */
static by_status make_folder(train_folder *f)
{
    char *prefix = base_strdup(f->out);
    if (!prefix)
        return BY_ERR_MEMORY;
    for (char *end = prefix; *end && !f->made;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        const char next = *end;
        *end = '\0';
        if (!exists(prefix) && !(f->made = base_strdup(prefix))) {
            base_free(prefix);
            return BY_ERR_MEMORY;
        }
        *end = next;
    }
    base_free(prefix);
    return base_dir_make(f->out);
}

/* A process that fails to start removes its lock file, so a lock counts only while its file is the one in the
 * folder. */
static by_status take_lock(train_folder *f, const char *path)
{
    for (int tries = 0; tries < 100; tries++) {
        struct stat held, there;
        f->made_lock = true;
        f->lock = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0644);
        if (f->lock < 0 && errno == EEXIST) {
            f->made_lock = false;
            f->lock = open(path, O_RDWR | O_CLOEXEC);
        }
        if (f->lock < 0 && errno == ENOENT)
            continue;
        if (f->lock < 0)
            return base_fail(BY_ERR_IO, "%s: %s", f->out, strerror(errno));
        if (flock(f->lock, LOCK_EX | LOCK_NB) != 0) {
            close(f->lock);
            f->lock = -1; /* nothing in the folder may be touched */
            return base_fail(BY_ERR_IO, "%s: another process is training into this folder", f->out);
        }
        if (fstat(f->lock, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino)
            return BY_OK;
        close(f->lock);
        f->lock = -1;
    }
    return base_fail(BY_ERR_IO, "%s: the lock file keeps changing", f->out);
}

by_status train_folder_open(train_folder *f, const char *out)
{
    *f = (train_folder){.lock = -1};
    if (!(f->out = base_strdup(out)))
        return BY_ERR_MEMORY;
    by_status s = make_folder(f);
    char *path = s == BY_OK ? base_path_join(out, ".lock") : NULL;
    if (s == BY_OK)
        s = path ? take_lock(f, path) : BY_ERR_MEMORY;
    base_free(path);
    if (s == BY_OK) {
        base_error_clear();
        f->held = read_list(f);
        if (!f->held)
            s = base_error_status() == BY_ERR_MEMORY ? BY_ERR_MEMORY : train_folder_adopt(f);
        if (s == BY_OK)
            base_error_clear();
        f->held = f->held || f->count > 0;
    }
    return s == BY_OK && f->held ? tidy(f) : s;
}

void train_folder_close(train_folder *f)
{
    if (f->lock >= 0 && f->out)
        close(f->lock);
    base_arena_free(f->arena);
    base_free(f->names);
    base_free(f->made);
    base_free(f->out);
    *f = (train_folder){.lock = -1};
}

/* Removes the created directories, innermost first, while they are empty. */
static void remove_made(const train_folder *f)
{
    char *path = f->made ? base_strdup(f->out) : NULL;
    for (size_t n = path ? strlen(path) : 0; n >= (f->made ? strlen(f->made) : 1) && n > 0;) {
        while (n > 1 && path[n - 1] == '/')
            path[--n] = '\0';
        if (rmdir(path) != 0)
            break;
        while (n > 0 && path[n - 1] != '/')
            path[--n] = '\0';
    }
    base_free(path);
}

void train_folder_abandon(train_folder *f)
{
    if (!f->out)
        return;
    const by_status status = base_error_status();
    char *message = base_strdup(by_error_message());
    if (f->lock >= 0 && f->held) {
        if (train_folder_owns(f, TRAIN_FOLDER_NEW_INPUT))
            train_folder_drop(f, TRAIN_FOLDER_NEW_INPUT);
    } else if (f->lock >= 0) {
        static const char *const mine[] = {OWNED, ".lock"};
        tidy(f);
        for (int i = f->count - 1; i >= 0; i--) /* a directory is listed before its contents */
            remove_path(f, f->names[i]);
        for (int i = 0; i < BY_COUNT(mine); i++)
            if (i == 0 ? f->count > 0 : f->made_lock)
                remove_path(f, mine[i]);
    }
    if (!f->held)
        remove_made(f);
    base_fail(status, "%s", message ? message : "out of memory");
    base_free(message);
}

/* ---- staged writing -------------------------------------------------------------------------- */

by_status train_folder_stage(train_folder *f, char **path)
{
    *path = NULL;
    BY_TRY(train_folder_claim(f, (const char *const[]){STAGE "/"}, 1));
    BY_TRY(remove_path(f, STAGE "/"));
    *path = base_path_join(f->out, STAGE);
    by_status s = *path ? base_dir_make(*path) : BY_ERR_MEMORY;
    if (s != BY_OK) {
        base_free(*path);
        *path = NULL;
    }
    return s;
}

void train_folder_unstage(train_folder *f)
{
    const by_status status = base_error_status();
    char *message = base_strdup(by_error_message());
    if (train_folder_owns(f, STAGE "/"))
        remove_path(f, STAGE "/");
    base_fail(status, "%s", message ? message : "out of memory");
    base_free(message);
}

static by_status add_files(const char *dir, const char *prefix, char ***names, int *count)
{
    DIR *d = opendir(dir);
    by_status s = d ? BY_OK : base_fail(BY_ERR_IO, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *path = base_path_join(dir, e->d_name);
        char **more = path ? base_resize(*names, (size_t)*count + 1, sizeof *more) : NULL;
        *names = more ? more : *names;
        char *name = more ? base_path_join(prefix, e->d_name) : NULL;
        s = name ? BY_OK : BY_ERR_MEMORY;
        if (name)
            more[(*count)++] = name;
        if (name && base_dir_exists(path))
            s = add_files(path, name, names, count);
        base_free(path);
    }
    if (d)
        closedir(d);
    return s;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

by_status train_folder_files(const char *dir, const char *prefix, char ***names, int *count)
{
    *names = NULL;
    *count = 0;
    by_status s = add_files(dir, prefix, names, count);
    if (*count > 1)
        qsort(*names, (size_t)*count, sizeof **names, compare_names);
    return s;
}

/* A directory and those in it; the first `skip` characters of each name are not part of its path. */
static by_status sync_all(const char *dir, char *const *names, int count, size_t skip)
{
    BY_TRY(base_dir_sync(dir));
    for (int i = 0; i < count; i++) {
        char *path = base_path_join(dir, names[i] + skip);
        by_status s = !path ? BY_ERR_MEMORY : base_dir_exists(path) ? base_dir_sync(path) : BY_OK;
        base_free(path);
        BY_TRY(s);
    }
    return BY_OK;
}

/* Lists the files of `from` as those of `to`, and renames the directory. */
static by_status rename_owned(train_folder *f, const char *from, const char *to)
{
    char **names = NULL, *old = base_path_join(f->out, from), *path = base_path_join(f->out, to);
    int count = 0;
    by_status s = old && path ? train_folder_files(old, to, &names, &count) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = sync_all(old, names, count, strlen(to) + 1);
    if (s == BY_OK && exists(path))
        s = base_fail(BY_ERR_ARGUMENT, "%s holds files that the run did not write; move them away", path);
    if (s == BY_OK)
        s = push_name(f, to);
    if (s == BY_OK)
        s = train_folder_claim(f, (const char *const *)names, count);
    if (s == BY_OK)
        s = base_rename(old, path);
    base_paths_free(names, count);
    base_free(old);
    base_free(path);
    return s;
}

by_status train_folder_move(train_folder *f, const char *from, const char *to)
{
    return rename_owned(f, from, to);
}

by_status train_folder_drop_copy(train_folder *f, const char *name, const char *copy)
{
    const size_t n = strlen(name);
    char *path = base_path_join(f->out, copy);
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < f->count && s == BY_OK; i++)
        if (is_under(f->names[i], name)) {
            char *file = base_path_join(copy, f->names[i] + n + 1);
            s = file ? remove_path(f, file) : BY_ERR_MEMORY;
            base_free(file);
        }
    if (s == BY_OK && rmdir(path) != 0)
        s = base_fail(BY_ERR_ARGUMENT, "%s holds files that the run did not write; move them away", path);
    base_free(path);
    return s;
}

by_status train_folder_place(train_folder *f, const char *name)
{
    BY_TRY(train_folder_check_free(f, name));
    BY_TRY(train_folder_drop(f, name));
    return rename_owned(f, STAGE, name);
}

static bool is_among(const char *name, char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Files of an earlier model or tokenizer would be mistaken for those of the new one. */
static by_status drop_stale(train_folder *f, const char *dir, char *const *names, int count)
{
    const size_t skip = dir ? strlen(dir) + 1 : 0;
    for (int i = f->count - 1; i >= 0; i--) {
        const char *name = f->names[i];
        if (dir ? !is_under(name, dir) : strchr(name, '/') != NULL)
            continue;
        if (!train_folder_is_model_file(name + skip) || is_among(name, names, count))
            continue;
        BY_TRY(remove_path(f, name));
        drop_name(f, i);
    }
    return BY_OK;
}

by_status train_folder_place_files(train_folder *f, const char *dir)
{
    char **names = NULL, *stage = base_path_join(f->out, STAGE);
    int count = 0;
    by_status s = stage ? train_folder_files(stage, dir, &names, &count) : BY_ERR_MEMORY;
    base_free(stage);
    for (int i = 0; i < count && s == BY_OK && dir; i++)
        s = train_folder_claim_in(f, dir, names[i] + strlen(dir) + 1);
    if (s == BY_OK)
        s = train_folder_claim(f, (const char *const *)names, count);
    if (s == BY_OK)
        s = drop_stale(f, dir, names, count);
    for (int i = 0; i < count && s == BY_OK; i++) {
        char *from = base_sprintf("%s/" STAGE "/%s", f->out, names[i] + (dir ? strlen(dir) + 1 : 0));
        char *to = base_path_join(f->out, names[i]);
        s = !from || !to ? BY_ERR_MEMORY : base_dir_exists(from) ? base_dir_make(to) : base_rename(from, to);
        base_free(from);
        base_free(to);
    }
    base_paths_free(names, count);
    return s == BY_OK ? remove_path(f, STAGE "/") : s;
}

/* ---- overwriting a run ----------------------------------------------------------------------- */

by_status train_folder_take_input(train_folder *f)
{
    if (!train_folder_owns(f, TRAIN_FOLDER_NEW_INPUT))
        return BY_OK;
    char *from = base_path_join(f->out, TRAIN_FOLDER_NEW_INPUT),
         *to = base_path_join(f->out, TRAIN_FOLDER_INPUT);
    by_status s = from && to ? base_rename(from, to) : BY_ERR_MEMORY;
    base_free(from);
    base_free(to);
    return s == BY_OK ? train_folder_drop(f, TRAIN_FOLDER_NEW_INPUT) : s;
}

by_status train_folder_forget(train_folder *f)
{
    static const char *const kept[] = {"run.json", "metrics.jsonl", "loss.svg",
                                       STAGE "/",  ".last-new",     ".best-new"};
    for (int i = f->count - 1; i >= 0; i--) {
        const char *name = f->names[i];
        if (strcmp(name, "data") == 0 || is_under(name, "data") || train_folder_is_model_file(name))
            continue; /* reused, or replaced at the end */
        BY_TRY(remove_path(f, name));
        bool keep = false; /* the list has these in any case */
        for (int k = 0; k < BY_COUNT(kept); k++)
            keep = keep || strcmp(kept[k], name) == 0;
        if (!keep)
            drop_name(f, i);
    }
    return write_list(f);
}
