/* file.h - files that outlive a crash: mapped reading, whole-file reading, atomic replacement. */
#ifndef BY_BASE_FILE_H
#define BY_BASE_FILE_H

#include <stdio.h>

#include "base/base.h"

/* A read-only memory map. An empty file maps to size 0 and a non-NULL data pointer. */
typedef struct base_map {
    const uint8_t *data;
    size_t size;
} base_map;
by_status base_map_open(base_map *m,
                        const char *path); /* on failure *m is zeroed and the message names the path */
void base_map_close(base_map *m);          /* zero state is legal */

/* Bytes of a map that will not be looked at soon: their memory may be used for something else. */
void base_map_forget(const void *data, size_t bytes);

/* The whole file as a NUL-terminated heap string (base_free), *size without the NUL when size is not NULL.
 * Refuses files above limit bytes, and pipes, devices and directories without waiting for them. NULL on
 * failure. */
char *base_file_read(const char *path, size_t limit, size_t *size);

bool base_file_exists(const char *path);
bool base_dir_exists(const char *path);
by_status base_dir_make(const char *path);  /* with parents; fine when it exists */
char *base_dir_temporary(const char *name); /* a new one in $TMPDIR or /tmp; heap string, NULL on failure */

/* Remove a directory that holds plain files and sub-directories; a missing one is fine. */
by_status base_dir_remove(const char *path);

/* "dir/name" as a heap string; "name" when dir is "" or NULL. NULL on failure. */
char *base_path_join(const char *dir, const char *name);

/* Atomic replacement of one file: write to path.tmp-<pid>, then finish() flushes, fsyncs, renames over path
 * and fsyncs the folder. abort() removes the temporary. Short writes and a full disk come out as BY_ERR_IO
 * naming the path. */
typedef struct base_writer {
    FILE *file;
    char *path, *temp;
    bool failed;
} base_writer;
by_status base_writer_open(base_writer *w, const char *path);
by_status base_writer_put(base_writer *w, const void *bytes, size_t n);
by_status base_writer_finish(base_writer *w); /* closes in any case */
void base_writer_abort(base_writer *w);       /* zero state is legal */

/* base_writer in one call. */
by_status base_file_write(const char *path, const void *bytes, size_t n);

/* fsync a directory, so that a rename inside it survives a power cut. */
by_status base_dir_sync(const char *path);

/* Rename with the folder synced; replaces an existing plain file. */
by_status base_rename(const char *from, const char *to);

/* Files that match a shell pattern, sorted; a plain path matches itself. *out is a heap array of heap
 * strings; free with base_paths_free. Nothing matching is BY_ERR_IO. */
by_status base_glob(const char *pattern, char ***out, int *count);
void base_paths_free(char **paths, int count);

#endif
