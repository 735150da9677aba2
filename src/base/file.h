/* file.h - crash-safe files: mapped reading, whole-file reading, atomic replacement. */
#ifndef BY_BASE_FILE_H
#define BY_BASE_FILE_H

#include <stdio.h>

#include "base/base.h"

/* A read-only memory map. An empty file maps to size 0 and a non-NULL data pointer. */
typedef struct base_map {
    const uint8_t *data;
    size_t size;
} base_map;
/* On failure *m is zeroed and the message names the path. */
by_status base_map_open(base_map *m, const char *path);
void base_map_close(base_map *m); /* the zero state is a no-op */

/* Releases the memory of a part of a map that is not needed soon. The next access reads it from the file
 * again. */
void base_map_forget(const void *data, size_t bytes);

/* Reads the whole file into a NUL-terminated heap string (base_free). *size excludes the NUL; size may be
 * NULL. Rejects files larger than limit bytes, and rejects pipes, devices and directories without waiting for
 * them. Returns NULL on failure. */
char *base_file_read(const char *path, size_t limit, size_t *size);

bool base_file_exists(const char *path);
bool base_dir_exists(const char *path);
by_status base_dir_check_empty(const char *path); /* an error unless it is an empty directory or nothing */
by_status base_dir_make(const char *path);        /* with parents; fine when it exists */
char *base_dir_temporary(const char *name); /* a new one in $TMPDIR or /tmp; heap string, NULL on failure */

/* Removes a directory with its regular files and sub-directories. Succeeds if it does not exist. */
by_status base_dir_remove(const char *path);

/* Returns "dir/name" as a heap string, or "name" if dir is "" or NULL. Returns NULL on failure. */
char *base_path_join(const char *dir, const char *name);

/* Atomic replacement of one file: data goes to path.tmp-<pid>; finish() flushes, fsyncs, renames it over path
 * and fsyncs the folder. abort() removes the temporary file. Short writes and a full disk are reported as
 * BY_ERR_IO with the path. */
typedef struct base_writer {
    FILE *file;
    char *path, *temp;
    bool failed;
} base_writer;
by_status base_writer_open(base_writer *w, const char *path);
by_status base_writer_put(base_writer *w, const void *bytes, size_t n);
by_status base_writer_finish(base_writer *w); /* always closes the writer */
void base_writer_abort(base_writer *w);       /* the zero state is a no-op */

/* Removes "path.tmp-PID", files and directories, of processes that have ended. Leaves no error. */
void base_file_remove_leftovers(const char *path);

/* Writes a whole file with base_writer. */
by_status base_file_write(const char *path, const void *bytes, size_t n);

/* Fsyncs a directory, so that a rename inside it survives a power failure. */
by_status base_dir_sync(const char *path);

/* Renames and syncs the folder. Replaces an existing regular file. */
by_status base_rename(const char *from, const char *to);

/* Finds the files that match a shell pattern, sorted; a plain path matches itself. *out is a heap array of
 * heap strings; free it with base_paths_free. No match is BY_ERR_IO. */
by_status base_glob(const char *pattern, char ***out, int *count);
void base_paths_free(char **paths, int count);

#endif
