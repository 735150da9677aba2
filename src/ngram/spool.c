/* spool.c - large memory, temporary files, and records that are written once and read in order (see
 * ngram.h). */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ngram/ngram.h"

void *ngram_big_alloc(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        base_fail(BY_ERR_MEMORY, "out of memory for %zu bytes", bytes);
        return NULL;
    }
    madvise(memory, bytes, MADV_HUGEPAGE); /* advice that may be refused */
    return memory;
}

void ngram_big_free(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

void ngram_big_forget(void *memory, size_t bytes)
{
    madvise(memory, bytes, MADV_DONTNEED);
}

FILE *ngram_temporary(const char *dir)
{
    char *path = base_sprintf("%s/banyan-ngram-XXXXXX", dir);
    const int fd = path ? mkstemp(path) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    if (fd >= 0)
        unlink(path);
    if (fd >= 0 && !file)
        close(fd);
    if (!file && path)
        ngram_temporary_fail(dir);
    base_free(path);
    return file;
}

by_status ngram_temporary_fail(const char *dir)
{
    return base_fail(BY_ERR_IO, "%s: temporary file: %s (see TMPDIR)", dir,
                     errno ? strerror(errno) : "cannot be read back");
}

enum { CHUNK = 1 << 15 }; /* records */

by_status ngram_spool_make(ngram_spool *s, size_t record, size_t budget, const char *dir)
{
    *s = (ngram_spool){.record = record, .budget = budget, .dir = dir};
    return BY_OK;
}

void ngram_spool_free(ngram_spool *s)
{
    if (s->file)
        fclose(s->file);
    base_free(s->memory);
    base_free(s->chunk);
    *s = (ngram_spool){0};
}

static by_status fail(const ngram_spool *s)
{
    return ngram_temporary_fail(s->dir);
}

static by_status grow(ngram_spool *s)
{
    const size_t room = BY_MIN(BY_MAX(s->room * 2, (size_t)1 << 14), s->budget / s->record * s->record);
    char *memory = base_resize(s->memory, room, 1);
    if (!memory)
        return BY_ERR_MEMORY;
    s->memory = memory;
    s->room = room;
    return BY_OK;
}

by_status ngram_spool_put(ngram_spool *s, const void *record)
{
    s->count++;
    if (!s->file && s->used + s->record > s->room && s->room + s->record <= s->budget)
        BY_TRY(grow(s));
    if (!s->file && s->used + s->record <= s->room) {
        memcpy(s->memory + s->used, record, s->record);
        s->used += s->record;
        return BY_OK;
    }
    if (!s->file && !(s->file = ngram_temporary(s->dir)))
        return base_error_status();
    return fwrite(record, s->record, 1, s->file) == 1 ? BY_OK : fail(s);
}

by_status ngram_spool_rewind(ngram_spool *s)
{
    s->read = 0;
    return s->file && fseek(s->file, 0, SEEK_SET) != 0 ? fail(s) : BY_OK;
}

by_status ngram_spool_next(ngram_spool *s, const void **records, size_t *count)
{
    const int64_t held = s->record ? (int64_t)(s->used / s->record) : 0;
    const bool in_file = s->read >= held;
    *count = (size_t)BY_MIN((in_file ? s->count : held) - s->read, CHUNK);
    *records = in_file ? s->chunk : s->memory + (size_t)s->read * s->record;
    if (*count == 0)
        return BY_OK;
    if (in_file && !s->chunk && !(s->chunk = base_alloc(CHUNK * s->record)))
        return BY_ERR_MEMORY;
    s->read += (int64_t)*count;
    errno = 0;
    if (in_file && fread(s->chunk, s->record, *count, s->file) != *count)
        return fail(s);
    *records = in_file ? s->chunk : *records;
    return BY_OK;
}
