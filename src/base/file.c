/* file.c - reads files whole or mapped, and replaces them so that a crash or a full disk leaves either the
 * old contents or the new ones. Every message names the path. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* "cannot <what> <path>: <reason>", from errno. */
static by_status fail_io(const char *what, const char *path)
{
    return base_fail(BY_ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The address for a map of an empty file, because mmap rejects a length of 0. */
static const uint8_t empty;

/* The mapped files, for by_mapped_file(). An entry is valid while data is neither NULL nor &empty. */
enum { MOST_MAPS = 64 };
static struct {
    _Atomic(const uint8_t *) data;
    size_t size;
    char path[256];
} maps[MOST_MAPS];

static void note_map(const base_map *m, const char *path)
{
    for (int i = 0; i < MOST_MAPS; i++) {
        const uint8_t *none = NULL;
        if (!atomic_compare_exchange_strong(&maps[i].data, &none, &empty))
            continue;
        size_t n = BY_MIN(strlen(path), sizeof maps[i].path - 1);
        memcpy(maps[i].path, path, n);
        maps[i].path[n] = '\0';
        maps[i].size = m->size;
        atomic_store(&maps[i].data, m->data);
        return;
    }
}

static void forget_map(const base_map *m)
{
    for (int i = 0; i < MOST_MAPS; i++)
        if (atomic_load(&maps[i].data) == m->data) {
            atomic_store(&maps[i].data, NULL);
            return;
        }
}

const char *by_mapped_file(const void *address)
{
    for (int i = 0; i < MOST_MAPS; i++) {
        const uint8_t *data = atomic_load(&maps[i].data);
        if (data && data != &empty && (uintptr_t)address >= (uintptr_t)data &&
            (uintptr_t)address - (uintptr_t)data < maps[i].size)
            return maps[i].path;
    }
    return NULL;
}

/* Maps a descriptor, which the caller keeps and closes. */
static by_status map_fd(base_map *m, int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_io("read", path);
    if (!S_ISREG(st.st_mode))
        return base_fail(BY_ERR_IO, "cannot map %s: it is not a regular file", path);
    if (st.st_size == 0) {
        m->data = &empty;
        return BY_OK;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return fail_io("map", path);
    m->data = data;
    m->size = (size_t)st.st_size;
    note_map(m, path);
    return BY_OK;
}

/* Opens non-blocking, because opening a named pipe would otherwise wait for a writer before it can be
 * rejected. */
by_status base_map_open(base_map *m, const char *path)
{
    *m = (base_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_io("open", path);
    by_status status = map_fd(m, fd, path);
    close(fd);
    return status;
}

void base_map_close(base_map *m)
{
    if (m->size > 0) {
        forget_map(m);
        munmap((void *)m->data, m->size);
    }
    *m = (base_map){0};
}

/* The pages are clean and are read from the file again on the next access. */
void base_map_forget(const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = (uintptr_t)data % page;
    union {
        const void *from;
        char *to;
    } address = {data};
    if (bytes > 0)
        madvise(address.to - skip, bytes + skip, MADV_DONTNEED);
}

/* Reads to the end of the file into b. The reported size only serves to reject a file early: files in /proc
 * report 0, and a file may grow while it is read. */
static by_status read_all(base_buf *b, int fd, const char *path, size_t limit)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_io("read", path);
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit)
        return base_fail(BY_ERR_IO, "%s has %lld bytes; the limit is %zu", path, (long long)st.st_size,
                         limit);
    base_buf_put(b, "", 0);
    for (;;) {
        char part[16 * 1024];
        ssize_t n = read(fd, part, sizeof(part));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_io("read", path);
        if (n == 0)
            break;
        if ((size_t)n > limit - b->size)
            return base_fail(BY_ERR_IO, "%s exceeds the limit of %zu bytes", path, limit);
        base_buf_put(b, part, (size_t)n);
        if (b->failed)
            break;
    }
    return b->failed ? base_fail_context("%s", path) : BY_OK;
}

char *base_file_read(const char *path, size_t limit, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        fail_io("open", path);
        return NULL;
    }
    base_buf b = {0};
    struct stat st;
    by_status status = fstat(fd, &st) != 0 ? fail_io("read", path)
                       : S_ISREG(st.st_mode)
                           ? read_all(&b, fd, path, limit)
                           : base_fail(BY_ERR_IO, "cannot read %s: it is not a regular file", path);
    close(fd);
    if (status != BY_OK) {
        base_buf_free(&b);
        return NULL;
    }
    if (size)
        *size = b.size;
    return b.data;
}

/* ---- folders and paths ----------------------------------------------------------------------- */

/* True for anything that can be opened as a file, including pipes and devices. */
bool base_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool base_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

by_status base_dir_check_empty(const char *path)
{
    if (base_file_exists(path))
        return base_fail(BY_ERR_ARGUMENT, "%s exists and is not a directory", path);
    DIR *d = opendir(path);
    if (!d)
        return BY_OK;
    bool nothing = true;
    for (struct dirent *e; (e = readdir(d));)
        nothing = nothing && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
    closedir(d);
    return nothing ? BY_OK : base_fail(BY_ERR_ARGUMENT, "%s exists and is not empty", path);
}

by_status base_dir_make(const char *path)
{
    char *prefix = base_strdup(path);
    if (!prefix)
        return BY_ERR_MEMORY;
    by_status status = BY_OK;
    for (char *end = prefix; status == BY_OK && *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        char next = *end;
        *end = '\0';
        if (mkdir(prefix, 0777) != 0) {
            int reason = errno;
            if (!base_dir_exists(prefix)) {
                errno = reason;
                status = fail_io("make the directory", prefix);
            }
        }
        *end = next;
    }
    base_free(prefix);
    return status;
}

char *base_dir_temporary(const char *name)
{
    const char *place = getenv("TMPDIR");
    char *path = base_sprintf("%s/banyan-%s-XXXXXX", place && *place ? place : "/tmp", name);
    if (path && !mkdtemp(path)) {
        base_fail(BY_ERR_IO, "%s: cannot create a temporary directory (see TMPDIR)", path);
        base_free(path);
        return NULL;
    }
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    return (int)fail_io("remove", path);
}

/* Removes symbolic links instead of following them. */
by_status base_dir_remove(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? BY_OK : fail_io("remove", path);
    if (!S_ISDIR(st.st_mode))
        return base_fail(BY_ERR_IO, "cannot remove %s: it is not a directory", path);
    int rc = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return rc == -1 ? fail_io("remove", path) : (by_status)rc;
}

char *base_path_join(const char *dir, const char *name)
{
    if (!dir || !*dir)
        return base_strdup(name);
    return base_sprintf(dir[strlen(dir) - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

/* Returns the folder that contains path, as a heap string: "." for a bare name, "/" for the root itself. */
static char *parent_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n > 0 ? base_sprintf("%.*s", (int)n, path) : base_strdup(".");
}

static by_status sync_parent(const char *path)
{
    char *dir = parent_of(path);
    if (!dir)
        return BY_ERR_MEMORY;
    by_status status = base_dir_sync(dir);
    base_free(dir);
    return status;
}

/* File systems that keep no directory on a disk return EINVAL. Nothing to sync is not a failure. */
by_status base_dir_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_io("open the directory", path);
    by_status status = BY_OK;
    if (fsync(fd) != 0 && errno != EINVAL)
        status = fail_io("sync the directory", path);
    close(fd);
    return status;
}

by_status base_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        return base_fail(BY_ERR_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    BY_TRY(sync_parent(to));
    return sync_parent(from);
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* The temporary file may be left over from a crashed process with the same id, or be a link that somebody
 * planted: it is removed, then created exclusively. The permissions of a file that is replaced are never
 * widened. */
static by_status create_temp(base_writer *w)
{
    struct stat st;
    mode_t mode = 0666;
    if (stat(w->path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return base_fail(BY_ERR_IO, "cannot write %s: it exists and is not a regular file", w->path);
        mode = st.st_mode & 0777;
    }
    unlink(w->temp);
    int fd = open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return fail_io("write", w->path);
    w->file = fdopen(fd, "wb");
    if (!w->file) {
        by_status status = fail_io("write", w->path);
        close(fd);
        unlink(w->temp);
        return status;
    }
    return BY_OK;
}

/* On failure *w is in the zero state and nothing is left on disk. */
by_status base_writer_open(base_writer *w, const char *path)
{
    *w = (base_writer){0};
    w->path = base_strdup(path);
    w->temp = base_sprintf("%s.tmp-%ld", path, (long)getpid());
    by_status status = w->path && w->temp ? create_temp(w) : BY_ERR_MEMORY;
    if (status != BY_OK)
        base_writer_abort(w);
    return status;
}

by_status base_writer_put(base_writer *w, const void *bytes, size_t n)
{
    if (!w->file)
        return base_fail(BY_ERR_ARGUMENT, "cannot write: the file is not open");
    if (w->failed)
        return base_fail(BY_ERR_IO, "cannot write %s: an earlier write failed; is the disk full?", w->path);
    if (n > 0 && fwrite(bytes, 1, n, w->file) != n) {
        w->failed = true;
        return fail_io("write", w->path);
    }
    return BY_OK;
}

/* Does everything up to the rename. A full disk may only show at the flush, at the sync (delayed allocation)
 * or at the close (network file systems). */
static by_status flush_and_close(base_writer *w)
{
    by_status status = base_writer_put(w, NULL, 0);
    if (status == BY_OK && (fflush(w->file) != 0 || fsync(fileno(w->file)) != 0))
        status = fail_io("write", w->path);
    FILE *file = w->file;
    w->file = NULL;
    if (file && fclose(file) != 0 && status == BY_OK)
        status = fail_io("write", w->path);
    return status;
}

/* The writer always ends in the zero state. A failure before the rename leaves the old file unchanged; the
 * only possible failure after it is that the folder cannot be synced. */
by_status base_writer_finish(base_writer *w)
{
    by_status status = flush_and_close(w);
    if (status == BY_OK && rename(w->temp, w->path) != 0)
        status = fail_io("replace", w->path);
    if (status == BY_OK) {
        status = sync_parent(w->path);
        base_free(w->temp);
        w->temp = NULL;
    }
    base_writer_abort(w);
    return status;
}

void base_writer_abort(base_writer *w)
{
    if (w->file)
        fclose(w->file);
    if (w->temp)
        unlink(w->temp);
    base_free(w->temp);
    base_free(w->path);
    *w = (base_writer){0};
}

/* "text.arpa.tmp-123" of a process 123 that is no more. */
static bool is_leftover(const char *name, const char *of)
{
    const size_t n = strlen(of);
    char *end;
    if (strncmp(name, of, n) != 0 || strncmp(name + n, ".tmp-", 5) != 0)
        return false;
    const long pid = strtol(name + n + 5, &end, 10);
    return pid > 0 && (*end == '\0' || *end == '.') && pid != (long)getpid() && kill((pid_t)pid, 0) != 0 &&
           errno == ESRCH;
}

void base_file_remove_leftovers(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *dir = slash ? base_sprintf("%.*s", (int)BY_MAX(slash - path, 1), path) : base_strdup(".");
    DIR *d = dir ? opendir(dir) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *one = is_leftover(e->d_name, name) ? base_path_join(dir, e->d_name) : NULL;
        if (one && base_dir_exists(one))
            base_dir_remove(one);
        else if (one)
            unlink(one);
        base_free(one);
    }
    if (d)
        closedir(d);
    base_free(dir);
    base_error_clear();
}

by_status base_file_write(const char *path, const void *bytes, size_t n)
{
    base_writer w;
    BY_TRY(base_writer_open(&w, path));
    by_status status = base_writer_put(&w, bytes, n);
    if (status == BY_OK)
        return base_writer_finish(&w);
    base_writer_abort(&w);
    return status;
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Copies the paths that are not directories, which GLOB_MARK ends in a slash. Sorts by bytes: glob itself
 * would sort by locale, and the order of a dataset must not depend on that. */
static by_status keep_files(const char *const *paths, size_t n, const char *pattern, char ***out, int *count)
{
    if (n > INT_MAX)
        return base_fail(BY_ERR_ARGUMENT, "%s matches too many files", pattern);
    char **kept = base_alloc_zero(n, sizeof(*kept));
    if (!kept)
        return BY_ERR_MEMORY;
    int used = 0;
    for (size_t i = 0; i < n; i++) {
        if (paths[i][strlen(paths[i]) - 1] == '/')
            continue;
        if (!(kept[used] = base_strdup(paths[i]))) {
            base_paths_free(kept, used);
            return BY_ERR_MEMORY;
        }
        used++;
    }
    if (used == 0) {
        base_free(kept);
        return base_fail(BY_ERR_IO,
                         "%s matches a directory but no file; name the files in it, for example dir/*.txt",
                         pattern);
    }
    qsort(kept, (size_t)used, sizeof(*kept), compare_paths);
    *out = kept;
    *count = used;
    return BY_OK;
}

/* An existing file whose name contains pattern characters takes precedence over the pattern. On failure *out
 * is NULL and *count is 0. */
by_status base_glob(const char *pattern, char ***out, int *count)
{
    *out = NULL;
    *count = 0;
    if (base_file_exists(pattern))
        return keep_files(&pattern, 1, pattern, out, count);
    glob_t found = {0};
    by_status status;
    switch (glob(pattern, GLOB_NOSORT | GLOB_MARK, NULL, &found)) {
    case 0:
        status = keep_files((const char *const *)found.gl_pathv, found.gl_pathc, pattern, out, count);
        break;
    case GLOB_NOMATCH:
        status = base_fail(BY_ERR_IO, "%s: no such file, and no file matches this pattern", pattern);
        break;
    case GLOB_NOSPACE:
        status = base_fail(BY_ERR_MEMORY, "%s: out of memory while searching for files", pattern);
        break;
    default:
        status = fail_io("look for", pattern);
    }
    globfree(&found);
    return status;
}

void base_paths_free(char **paths, int count)
{
    if (!paths)
        return;
    for (int i = 0; i < count; i++)
        base_free(paths[i]);
    base_free(paths);
}
