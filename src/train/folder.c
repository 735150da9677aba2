/* folder.c - see folder.h. */
#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

#define OWNED "owned.json"
#define STAGE BY_FOLDER_STAGE

/* ---- the list -------------------------------------------------------------------------------- */

static int find_name(const by_folder *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->names[i], name) == 0)
            return i;
    return -1;
}

bool by_folder_owns(const by_folder *f, const char *name)
{
    return find_name(f, name) >= 0;
}

/* A name that is not listed yet. Every resumed run adds one, of its event file: the list has to bear many. */
static by_status push_new(by_folder *f, const char *name)
{
    if (!f->arena && !(f->arena = by_arena_new()))
        return BY_ERR_MEMORY;
    if (f->count == f->capacity) {
        int grown = f->capacity ? f->capacity * 2 : 32;
        char **more = by_resize(f->names, (size_t)grown, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        f->names = more;
        f->capacity = grown;
    }
    f->names[f->count] = by_arena_strdup(f->arena, name);
    return f->names[f->count] ? f->count++, BY_OK : BY_ERR_MEMORY;
}

static by_status push_name(by_folder *f, const char *name)
{
    return find_name(f, name) >= 0 ? BY_OK : push_new(f, name);
}

static void drop_name(by_folder *f, int i)
{
    memmove(f->names + i, f->names + i + 1, (size_t)(f->count - i - 1) * sizeof *f->names);
    f->count--;
}

static by_status write_list(const by_folder *f)
{
    by_buf text = {0};
    by_buf_puts(&text, "{\n  \"owned\": [");
    for (int i = 0; i < f->count; i++) {
        by_buf_puts(&text, i ? ",\n    " : "\n    ");
        by_json_quote(&text, f->names[i]);
    }
    by_buf_puts(&text, "\n  ]\n}\n");
    char *path = by_path_join(f->out, OWNED);
    by_status s = text.failed || !path ? BY_ERR_MEMORY : by_file_write(path, text.data, text.size);
    by_free(path);
    by_buf_free(&text);
    return s;
}

/* A path inside the folder: neither absolute nor leading out of it. */
static bool is_inside(const char *name)
{
    return *name && *name != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 &&
           !strstr(name, "/../");
}

/* False: there is no list, or none that can be read. */
static bool read_list(by_folder *f)
{
    char *path = by_path_join(f->out, OWNED);
    cJSON *json = path && by_file_exists(path) ? by_json_load(path) : NULL;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "owned");
    bool ok = cJSON_IsArray(list);
    for (const cJSON *e = ok ? list->child : NULL; e && ok; e = e->next)
        ok = cJSON_IsString(e) && (!is_inside(e->valuestring) || push_new(f, e->valuestring) == BY_OK);
    cJSON_Delete(json);
    by_free(path);
    while (!ok && f->count > 0)
        drop_name(f, f->count - 1);
    return ok;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

by_status by_folder_list(by_folder *f, const char *const *names, int count)
{
    const int before = f->count;
    for (int i = 0; i < count; i++)
        BY_TRY(push_name(f, names[i]));
    return f->count > before ? write_list(f) : BY_OK;
}

by_status by_folder_add(by_folder *f, const char *name)
{
    return by_folder_list(f, &name, 1);
}

by_status by_folder_check_free(const by_folder *f, const char *name)
{
    if (by_folder_owns(f, name))
        return BY_OK;
    char *path = by_path_join(f->out, name);
    if (!path)
        return BY_ERR_MEMORY;
    size_t n = strlen(path);
    if (n > 0 && path[n - 1] == '/')
        path[n - 1] = '\0';
    by_status s = exists(path) ? by_fail(BY_ERR_ARGUMENT,
                                         "%s is in the way: it was not written by a run in this folder; "
                                         "move it away or use another folder",
                                         path)
                               : BY_OK;
    by_free(path);
    return s;
}

by_status by_folder_claim(by_folder *f, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        BY_TRY(by_folder_check_free(f, names[i]));
    return by_folder_list(f, names, count);
}

by_status by_folder_claim_in(by_folder *f, const char *dir, const char *name)
{
    char *path = by_path_join(f->out, dir), *file = by_path_join(dir, name);
    by_status s = path && file ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && !by_dir_exists(path))
        s = by_folder_claim(f, &dir, 1); /* else the directory is somebody else's, and stays */
    if (s == BY_OK)
        s = by_folder_claim(f, &(const char *){file}, 1);
    if (s == BY_OK)
        s = by_dir_make(path);
    by_free(path);
    by_free(file);
    return s;
}

/* ---- removing -------------------------------------------------------------------------------- */

/* Remove one path of the folder; one that is not there is fine, and so is a directory that is not empty. */
static by_status remove_path(const by_folder *f, const char *name)
{
    char *path = by_path_join(f->out, name);
    if (!path)
        return BY_ERR_MEMORY;
    struct stat st;
    const size_t n = strlen(path);
    by_status s = BY_OK;
    if (path[n - 1] == '/') {
        path[n - 1] = '\0';
        s = by_dir_remove(path);
    } else if (lstat(path, &st) == 0) {
        const int rc = S_ISDIR(st.st_mode) ? rmdir(path) : unlink(path);
        if (rc != 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
            s = by_fail(BY_ERR_IO, "cannot remove %s: %s", path, strerror(errno));
    }
    by_free(path);
    return s;
}

static bool is_under(const char *name, const char *dir)
{
    const size_t n = strlen(dir);
    return strncmp(name, dir, n) == 0 && name[n] == '/';
}

by_status by_folder_drop(by_folder *f, const char *name)
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

/* Remove what a process that died while writing has left of files that are the run's own. */
static by_status remove_temporaries(const by_folder *f, const char *dir)
{
    char *path = by_path_join(f->out, dir);
    DIR *d = path ? opendir(path) : NULL;
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        const size_t n = temporary_of(e->d_name);
        char *base = n ? by_sprintf("%s%s%.*s", dir, *dir ? "/" : "", (int)n, e->d_name) : NULL;
        char *name = n ? by_sprintf("%s%s%s", dir, *dir ? "/" : "", e->d_name) : NULL;
        if (n && (!base || !name))
            s = BY_ERR_MEMORY;
        else if (n && (by_folder_owns(f, base) || strcmp(base, OWNED) == 0))
            s = remove_path(f, name);
        by_free(base);
        by_free(name);
    }
    if (d)
        closedir(d);
    by_free(path);
    return s;
}

static by_status tidy(by_folder *f)
{
    static const char *const names[] = {STAGE "/", ".last-new", ".best-new", BY_FOLDER_NEW_INPUT};
    for (int i = 0; i < BY_COUNT(names); i++)
        if (by_folder_owns(f, names[i]))
            BY_TRY(remove_path(f, names[i]));
    BY_TRY(remove_temporaries(f, ""));
    return remove_temporaries(f, "data");
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Make the directories of a path, and note the first one that did not exist. */
static by_status make_folder(by_folder *f)
{
    char *prefix = by_strdup(f->out);
    if (!prefix)
        return BY_ERR_MEMORY;
    for (char *end = prefix; *end && !f->made;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        const char next = *end;
        *end = '\0';
        if (!exists(prefix) && !(f->made = by_strdup(prefix))) {
            by_free(prefix);
            return BY_ERR_MEMORY;
        }
        *end = next;
    }
    by_free(prefix);
    return by_dir_make(f->out);
}

/* A process that gives up removes its lock file: a lock counts only while its file is the one in the folder.
 */
static by_status take_lock(by_folder *f, const char *path)
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
            return by_fail(BY_ERR_IO, "%s: %s", f->out, strerror(errno));
        if (flock(f->lock, LOCK_EX | LOCK_NB) != 0) {
            close(f->lock);
            f->lock = -1; /* nothing in the folder may be touched */
            return by_fail(BY_ERR_IO, "%s: another process is training into this folder", f->out);
        }
        if (fstat(f->lock, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino)
            return BY_OK;
        close(f->lock);
        f->lock = -1;
    }
    return by_fail(BY_ERR_IO, "%s: the lock file keeps changing", f->out);
}

by_status by_folder_open(by_folder *f, const char *out)
{
    *f = (by_folder){.lock = -1};
    if (!(f->out = by_strdup(out)))
        return BY_ERR_MEMORY;
    by_status s = make_folder(f);
    char *path = s == BY_OK ? by_path_join(out, ".lock") : NULL;
    if (s == BY_OK)
        s = path ? take_lock(f, path) : BY_ERR_MEMORY;
    by_free(path);
    if (s == BY_OK) {
        by_error_clear();
        f->held = read_list(f);
        if (!f->held)
            s = by_error_status() == BY_ERR_MEMORY ? BY_ERR_MEMORY : by_folder_adopt(f);
        if (s == BY_OK)
            by_error_clear();
        f->held = f->held || f->count > 0;
    }
    return s == BY_OK && f->held ? tidy(f) : s;
}

void by_folder_close(by_folder *f)
{
    if (f->lock >= 0 && f->out)
        close(f->lock);
    by_arena_free(f->arena);
    by_free(f->names);
    by_free(f->made);
    by_free(f->out);
    *f = (by_folder){.lock = -1};
}

/* The directories that were made, from the last one up, as long as they are empty. */
static void remove_made(const by_folder *f)
{
    char *path = f->made ? by_strdup(f->out) : NULL;
    for (size_t n = path ? strlen(path) : 0; n >= (f->made ? strlen(f->made) : 1) && n > 0;) {
        while (n > 1 && path[n - 1] == '/')
            path[--n] = '\0';
        if (rmdir(path) != 0)
            break;
        while (n > 0 && path[n - 1] != '/')
            path[--n] = '\0';
    }
    by_free(path);
}

void by_folder_abandon(by_folder *f)
{
    if (!f->out)
        return;
    const by_status status = by_error_status();
    char *message = by_strdup(by_error_message());
    if (f->lock >= 0 && f->held) {
        if (by_folder_owns(f, BY_FOLDER_NEW_INPUT))
            by_folder_drop(f, BY_FOLDER_NEW_INPUT);
    } else if (f->lock >= 0) {
        static const char *const mine[] = {OWNED, ".lock"};
        tidy(f);
        for (int i = f->count - 1; i >= 0; i--) /* what a directory holds comes after it */
            remove_path(f, f->names[i]);
        for (int i = 0; i < BY_COUNT(mine); i++)
            if (i == 0 ? f->count > 0 : f->made_lock)
                remove_path(f, mine[i]);
    }
    if (!f->held)
        remove_made(f);
    by_fail(status, "%s", message ? message : "out of memory");
    by_free(message);
}

/* ---- writing by way of a stage --------------------------------------------------------------- */

by_status by_folder_stage(by_folder *f, char **path)
{
    *path = NULL;
    BY_TRY(by_folder_claim(f, (const char *const[]){STAGE "/"}, 1));
    BY_TRY(remove_path(f, STAGE "/"));
    *path = by_path_join(f->out, STAGE);
    by_status s = *path ? by_dir_make(*path) : BY_ERR_MEMORY;
    if (s != BY_OK) {
        by_free(*path);
        *path = NULL;
    }
    return s;
}

void by_folder_unstage(by_folder *f)
{
    const by_status status = by_error_status();
    char *message = by_strdup(by_error_message());
    if (by_folder_owns(f, STAGE "/"))
        remove_path(f, STAGE "/");
    by_fail(status, "%s", message ? message : "out of memory");
    by_free(message);
}

/* Names of the files of a directory, each after "dir/" unless dir is NULL. */
static by_status list_files(const by_folder *f, const char *from, const char *dir, char ***names, int *count)
{
    char *path = by_path_join(f->out, from);
    DIR *d = path ? opendir(path) : NULL;
    by_status s = d ? BY_OK : path ? by_fail(BY_ERR_IO, "%s: %s", path, strerror(errno)) : BY_ERR_MEMORY;
    *names = NULL;
    *count = 0;
    for (struct dirent *e; d && s == BY_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char **more = by_resize(*names, (size_t)*count + 1, sizeof *more);
        *names = more ? more : *names;
        char *name = more ? by_path_join(dir, e->d_name) : NULL;
        if (name)
            more[(*count)++] = name;
        else
            s = BY_ERR_MEMORY;
    }
    if (d)
        closedir(d);
    by_free(path);
    return s;
}

/* List the files that `from` holds as those of `to`, and rename the directory. */
static by_status rename_owned(by_folder *f, const char *from, const char *to)
{
    char **names = NULL, *old = by_path_join(f->out, from), *path = by_path_join(f->out, to);
    int count = 0;
    by_status s = old && path ? list_files(f, from, to, &names, &count) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_dir_sync(old);
    if (s == BY_OK && exists(path))
        s = by_fail(BY_ERR_ARGUMENT, "%s holds files that the run did not write; move them away", path);
    if (s == BY_OK)
        s = push_name(f, to);
    if (s == BY_OK)
        s = by_folder_claim(f, (const char *const *)names, count);
    if (s == BY_OK)
        s = by_rename(old, path);
    by_paths_free(names, count);
    by_free(old);
    by_free(path);
    return s;
}

by_status by_folder_move(by_folder *f, const char *from, const char *to)
{
    return rename_owned(f, from, to);
}

by_status by_folder_drop_copy(by_folder *f, const char *name, const char *copy)
{
    const size_t n = strlen(name);
    char *path = by_path_join(f->out, copy);
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < f->count && s == BY_OK; i++)
        if (is_under(f->names[i], name)) {
            char *file = by_path_join(copy, f->names[i] + n + 1);
            s = file ? remove_path(f, file) : BY_ERR_MEMORY;
            by_free(file);
        }
    if (s == BY_OK && rmdir(path) != 0)
        s = by_fail(BY_ERR_ARGUMENT, "%s holds files that the run did not write; move them away", path);
    by_free(path);
    return s;
}

by_status by_folder_place(by_folder *f, const char *name)
{
    BY_TRY(by_folder_check_free(f, name));
    BY_TRY(by_folder_drop(f, name));
    return rename_owned(f, STAGE, name);
}

static bool is_among(const char *name, char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Files of an earlier model or tokenizer would be taken for the new one's. */
static by_status drop_stale(by_folder *f, const char *dir, char *const *names, int count)
{
    const size_t skip = dir ? strlen(dir) + 1 : 0;
    for (int i = f->count - 1; i >= 0; i--) {
        const char *name = f->names[i];
        if (dir ? !is_under(name, dir) : strchr(name, '/') != NULL)
            continue;
        if (!by_folder_is_model_file(name + skip) || is_among(name, names, count))
            continue;
        BY_TRY(remove_path(f, name));
        drop_name(f, i);
    }
    return BY_OK;
}

by_status by_folder_place_files(by_folder *f, const char *dir)
{
    char **names;
    int count;
    by_status s = list_files(f, STAGE, dir, &names, &count);
    for (int i = 0; i < count && s == BY_OK && dir; i++)
        s = by_folder_claim_in(f, dir, names[i] + strlen(dir) + 1);
    if (s == BY_OK)
        s = by_folder_claim(f, (const char *const *)names, count);
    if (s == BY_OK)
        s = drop_stale(f, dir, names, count);
    for (int i = 0; i < count && s == BY_OK; i++) {
        char *from = by_sprintf("%s/" STAGE "/%s", f->out, names[i] + (dir ? strlen(dir) + 1 : 0));
        char *to = by_path_join(f->out, names[i]);
        s = from && to ? by_rename(from, to) : BY_ERR_MEMORY;
        by_free(from);
        by_free(to);
    }
    by_paths_free(names, count);
    return s == BY_OK ? remove_path(f, STAGE "/") : s;
}

/* ---- a run that starts afresh ---------------------------------------------------------------- */

by_status by_folder_take_input(by_folder *f)
{
    if (!by_folder_owns(f, BY_FOLDER_NEW_INPUT))
        return BY_OK;
    char *from = by_path_join(f->out, BY_FOLDER_NEW_INPUT), *to = by_path_join(f->out, BY_FOLDER_INPUT);
    by_status s = from && to ? by_rename(from, to) : BY_ERR_MEMORY;
    by_free(from);
    by_free(to);
    return s == BY_OK ? by_folder_drop(f, BY_FOLDER_NEW_INPUT) : s;
}

by_status by_folder_forget(by_folder *f)
{
    static const char *const kept[] = {"run.json", "metrics.jsonl", "loss.svg",
                                       STAGE "/",  ".last-new",     ".best-new"};
    for (int i = f->count - 1; i >= 0; i--) {
        const char *name = f->names[i];
        if (strcmp(name, "data") == 0 || is_under(name, "data") || by_folder_is_model_file(name))
            continue; /* used again, or replaced at the end */
        BY_TRY(remove_path(f, name));
        bool keep = false; /* the list has these in any case */
        for (int k = 0; k < BY_COUNT(kept); k++)
            keep = keep || strcmp(kept[k], name) == 0;
        if (!keep)
            drop_name(f, i);
    }
    return write_list(f);
}
