/* file.c - reading files whole or mapped, and replacing them so that a crash or a full disk leaves either the
 * old contents or the new ones. Every message names the path. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* "cannot <what> <path>: <reason>", from errno. */
static by_status fail_io(const char *what, const char *path)
{
    return by_fail(BY_ERR_IO, "cannot %s %s: %s", what, path, strerror(errno));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What a map of an empty file points to, since mmap refuses a length of 0. */
static const uint8_t empty;

/* The mapped files, for by_mapped_file(). An entry is valid while data is neither NULL nor &empty. */
enum { MOST_MAPS = 64 };
static struct {
    _Atomic(const uint8_t *) data;
    size_t size;
    char path[256];
} maps[MOST_MAPS];

static void note_map(const by_map *m, const char *path)
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

static void forget_map(const by_map *m)
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

/* Maps a descriptor, which stays the caller's. */
static by_status map_fd(by_map *m, int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_io("read", path);
    if (!S_ISREG(st.st_mode))
        return by_fail(BY_ERR_IO, "cannot map %s: it is not a regular file", path);
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

/* Non-blocking, because opening a named pipe would otherwise wait for a writer before it can be refused. */
by_status by_map_open(by_map *m, const char *path)
{
    *m = (by_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_io("open", path);
    by_status status = map_fd(m, fd, path);
    close(fd);
    return status;
}

void by_map_close(by_map *m)
{
    if (m->size > 0) {
        forget_map(m);
        munmap((void *)m->data, m->size);
    }
    *m = (by_map){0};
}

/* The pages are clean and come back from the file when somebody looks. */
void by_map_forget(const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = (uintptr_t)data % page;
    union {
        const void *from;
        char *to;
    } address = {data};
    if (bytes > 0)
        madvise(address.to - skip, bytes + skip, MADV_DONTNEED);
}

/* Read until the end into b. The size a file claims serves only to refuse it early: one of /proc claims 0,
 * and a file may grow while it is read. */
static by_status read_all(by_buf *b, int fd, const char *path, size_t limit)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail_io("read", path);
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > limit)
        return by_fail(BY_ERR_IO, "%s has %lld bytes, more than the %zu allowed here", path,
                       (long long)st.st_size, limit);
    by_buf_put(b, "", 0);
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
            return by_fail(BY_ERR_IO, "%s has more than the %zu bytes allowed here", path, limit);
        by_buf_put(b, part, (size_t)n);
        if (b->failed)
            break;
    }
    return b->failed ? by_fail_context("%s", path) : BY_OK;
}

char *by_file_read(const char *path, size_t limit, size_t *size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        fail_io("open", path);
        return NULL;
    }
    by_buf b = {0};
    struct stat st;
    by_status status = fstat(fd, &st) != 0 ? fail_io("read", path)
                       : S_ISREG(st.st_mode)
                           ? read_all(&b, fd, path, limit)
                           : by_fail(BY_ERR_IO, "cannot read %s: it is not a regular file", path);
    close(fd);
    if (status != BY_OK) {
        by_buf_free(&b);
        return NULL;
    }
    if (size)
        *size = b.size;
    return b.data;
}

/* ---- folders and paths ----------------------------------------------------------------------- */

/* Anything that can be opened as a file, pipes and devices included. */
bool by_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

bool by_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

by_status by_dir_make(const char *path)
{
    char *prefix = by_strdup(path);
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
            if (!by_dir_exists(prefix)) {
                errno = reason;
                status = fail_io("make the directory", prefix);
            }
        }
        *end = next;
    }
    by_free(prefix);
    return status;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    return (int)fail_io("remove", path);
}

/* Links are removed, not followed. */
by_status by_dir_remove(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? BY_OK : fail_io("remove", path);
    if (!S_ISDIR(st.st_mode))
        return by_fail(BY_ERR_IO, "cannot remove %s: it is not a directory", path);
    int rc = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return rc == -1 ? fail_io("remove", path) : (by_status)rc;
}

char *by_path_join(const char *dir, const char *name)
{
    if (!dir || !*dir)
        return by_strdup(name);
    return by_sprintf(dir[strlen(dir) - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

/* The folder that holds path, as a heap string; "." for a bare name, "/" for the root itself. */
static char *parent_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n > 0 ? by_sprintf("%.*s", (int)n, path) : by_strdup(".");
}

static by_status sync_parent(const char *path)
{
    char *dir = parent_of(path);
    if (!dir)
        return BY_ERR_MEMORY;
    by_status status = by_dir_sync(dir);
    by_free(dir);
    return status;
}

/* File systems that keep no directory on a disk answer EINVAL: nothing to sync is no failure. */
by_status by_dir_sync(const char *path)
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

by_status by_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        return by_fail(BY_ERR_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
    BY_TRY(sync_parent(to));
    return sync_parent(from);
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* The temporary may be left over from a crashed process with our id, or be a link somebody planted: it is
 * removed, and created anew or not at all. The permissions of a file that is replaced are never widened. */
static by_status create_temp(by_writer *w)
{
    struct stat st;
    mode_t mode = 0666;
    if (stat(w->path, &st) == 0) {
        if (!S_ISREG(st.st_mode))
            return by_fail(BY_ERR_IO, "cannot write %s: it exists and is not a regular file", w->path);
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

/* On failure *w is in the zero state and nothing is left on the disk. */
by_status by_writer_open(by_writer *w, const char *path)
{
    *w = (by_writer){0};
    w->path = by_strdup(path);
    w->temp = by_sprintf("%s.tmp-%ld", path, (long)getpid());
    by_status status = w->path && w->temp ? create_temp(w) : BY_ERR_MEMORY;
    if (status != BY_OK)
        by_writer_abort(w);
    return status;
}

by_status by_writer_put(by_writer *w, const void *bytes, size_t n)
{
    if (!w->file)
        return by_fail(BY_ERR_ARGUMENT, "writing to a file that is not open");
    if (w->failed)
        return by_fail(BY_ERR_IO, "cannot write %s: an earlier write failed; is the disk full?", w->path);
    if (n > 0 && fwrite(bytes, 1, n, w->file) != n) {
        w->failed = true;
        return fail_io("write", w->path);
    }
    return BY_OK;
}

/* Everything up to the rename. A full disk may show only at the flush, at the sync (delayed allocation) or at
 * the close (network file systems). */
static by_status settle(by_writer *w)
{
    by_status status = by_writer_put(w, NULL, 0);
    if (status == BY_OK && (fflush(w->file) != 0 || fsync(fileno(w->file)) != 0))
        status = fail_io("write", w->path);
    FILE *file = w->file;
    w->file = NULL;
    if (file && fclose(file) != 0 && status == BY_OK)
        status = fail_io("write", w->path);
    return status;
}

/* Whatever happens the writer ends in the zero state. Before the rename a failure leaves the old file as it
 * was; the only one after it is that the folder cannot be synced. */
by_status by_writer_finish(by_writer *w)
{
    by_status status = settle(w);
    if (status == BY_OK && rename(w->temp, w->path) != 0)
        status = fail_io("replace", w->path);
    if (status == BY_OK) {
        status = sync_parent(w->path);
        by_free(w->temp);
        w->temp = NULL;
    }
    by_writer_abort(w);
    return status;
}

void by_writer_abort(by_writer *w)
{
    if (w->file)
        fclose(w->file);
    if (w->temp)
        unlink(w->temp);
    by_free(w->temp);
    by_free(w->path);
    *w = (by_writer){0};
}

by_status by_file_write(const char *path, const void *bytes, size_t n)
{
    by_writer w;
    BY_TRY(by_writer_open(&w, path));
    by_status status = by_writer_put(&w, bytes, n);
    if (status == BY_OK)
        return by_writer_finish(&w);
    by_writer_abort(&w);
    return status;
}

/* ---- patterns -------------------------------------------------------------------------------- */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Copies of those of n paths that are no directories, which GLOB_MARK ends in a slash. Sorted by bytes: glob
 * itself would sort by locale, and the order of a data set must not depend on that. */
static by_status keep_files(const char *const *paths, size_t n, const char *pattern, char ***out, int *count)
{
    if (n > INT_MAX)
        return by_fail(BY_ERR_ARGUMENT, "%s: matches too many files", pattern);
    char **kept = by_alloc_zero(n, sizeof(*kept));
    if (!kept)
        return BY_ERR_MEMORY;
    int used = 0;
    for (size_t i = 0; i < n; i++) {
        if (paths[i][strlen(paths[i]) - 1] == '/')
            continue;
        if (!(kept[used] = by_strdup(paths[i]))) {
            by_paths_free(kept, used);
            return BY_ERR_MEMORY;
        }
        used++;
    }
    if (used == 0) {
        by_free(kept);
        return by_fail(BY_ERR_IO,
                       "%s: matches a directory, but no file; name the files in it, as in dir/*.txt",
                       pattern);
    }
    qsort(kept, (size_t)used, sizeof(*kept), compare_paths);
    *out = kept;
    *count = used;
    return BY_OK;
}

/* A file whose very name holds pattern characters wins over the pattern. On failure *out is NULL and *count
 * 0. */
by_status by_glob(const char *pattern, char ***out, int *count)
{
    *out = NULL;
    *count = 0;
    if (by_file_exists(pattern))
        return keep_files(&pattern, 1, pattern, out, count);
    glob_t found = {0};
    by_status status;
    switch (glob(pattern, GLOB_NOSORT | GLOB_MARK, NULL, &found)) {
    case 0:
        status = keep_files((const char *const *)found.gl_pathv, found.gl_pathc, pattern, out, count);
        break;
    case GLOB_NOMATCH:
        status = by_fail(BY_ERR_IO, "%s: no such file, and no file matches it as a pattern", pattern);
        break;
    case GLOB_NOSPACE:
        status = by_fail(BY_ERR_MEMORY, "%s: out of memory while looking for files", pattern);
        break;
    default:
        status = fail_io("look for", pattern);
    }
    globfree(&found);
    return status;
}

void by_paths_free(char **paths, int count)
{
    if (!paths)
        return;
    for (int i = 0; i < count; i++)
        by_free(paths[i]);
    by_free(paths);
}
