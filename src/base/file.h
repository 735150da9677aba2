/* file.h - files that outlive a crash: mapped reading, whole-file reading, atomic replacement. */
#ifndef BY_BASE_FILE_H
#define BY_BASE_FILE_H

#include <stdio.h>

#include "base/base.h"

/* A read-only memory map. An empty file maps to size 0 and a non-NULL data pointer. */
typedef struct by_map {
    const uint8_t *data;
    size_t size;
} by_map;
by_status by_map_open(by_map *m,
                      const char *path); /* on failure *m is zeroed and the message names the path */
void by_map_close(by_map *m);            /* zero state is legal */

/* Bytes of a map that will not be looked at soon: their memory may be used for something else. */
void by_map_forget(const void *data, size_t bytes);

/* The whole file as a NUL-terminated heap string (by_free), *size without the NUL when size is not NULL.
 * Refuses files above limit bytes, and pipes, devices and directories without waiting for them. NULL on
 * failure. */
char *by_file_read(const char *path, size_t limit, size_t *size);

bool by_file_exists(const char *path);
bool by_dir_exists(const char *path);
by_status by_dir_make(const char *path); /* with parents; fine when it exists */

/* Remove a directory that holds plain files and sub-directories; a missing one is fine. */
by_status by_dir_remove(const char *path);

/* "dir/name" as a heap string; "name" when dir is "" or NULL. NULL on failure. */
char *by_path_join(const char *dir, const char *name);

/* Atomic replacement of one file: write to path.tmp-<pid>, then finish() flushes, fsyncs, renames over path
 * and fsyncs the folder. abort() removes the temporary. Short writes and a full disk come out as BY_ERR_IO
 * naming the path. */
typedef struct by_writer {
    FILE *file;
    char *path, *temp;
    bool failed;
} by_writer;
by_status by_writer_open(by_writer *w, const char *path);
by_status by_writer_put(by_writer *w, const void *bytes, size_t n);
by_status by_writer_finish(by_writer *w); /* closes in any case */
void by_writer_abort(by_writer *w);       /* zero state is legal */

/* by_writer in one call. */
by_status by_file_write(const char *path, const void *bytes, size_t n);

/* fsync a directory, so that a rename inside it survives a power cut. */
by_status by_dir_sync(const char *path);

/* Rename with the folder synced; replaces an existing plain file. */
by_status by_rename(const char *from, const char *to);

/* Files that match a shell pattern, sorted; a plain path matches itself. *out is a heap array of heap
 * strings; free with by_paths_free. Nothing matching is BY_ERR_IO. */
by_status by_glob(const char *pattern, char ***out, int *count);
void by_paths_free(char **paths, int count);

#endif
