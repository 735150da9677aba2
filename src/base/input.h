/* input.h - data files as streams of text: plain, gzip or zstd, recognised by their first bytes and not by
 * their name. Decompression holds only a window of the file in memory. */
#ifndef BY_BASE_INPUT_H
#define BY_BASE_INPUT_H

#include <stdio.h>

#include "base/base.h"

/* Opens a file for reading; "-" is standard input, which can be opened once. Files in other formats (Parquet,
 * xz, bzip2, zip) are rejected with the command that converts them. Returns NULL on failure. Close with
 * base_input_close. */
FILE *base_input_open(const char *path);
void base_input_close(FILE *f); /* NULL is a no-op */

/* Returns BY_OK unless reading failed; then the error gives the reason and the path. */
by_status base_input_check(FILE *f, const char *path);

/* Reads the whole file into a NUL-terminated heap string (base_free). *size excludes the NUL; size may be
 * NULL. Rejects more than limit bytes. Returns NULL on failure. */
char *base_input_read(const char *path, size_t limit, size_t *size);

/* A file read line by line. */
typedef struct base_lines {
    FILE *file;
    const char *path; /* borrowed */
    char *text;       /* the line, without its terminator */
    size_t size, room;
    int64_t number; /* line number, from 1 */
} base_lines;
by_status base_lines_open(base_lines *l, const char *path);
/* Reads the next line; *more is false at the end. Drops a byte order mark before the first line. */
by_status base_lines_next(base_lines *l, bool *more);
by_status base_lines_raw(base_lines *l, bool *more); /* keeps the line terminator */
void base_lines_close(base_lines *l);                /* the zero state is a no-op */

/* Returns the name for messages: "the input" for "-". */
const char *base_input_name(const char *path);

/* Returns true if the path ends with `ending`, ignoring the ending of a compressed file after it. */
bool base_input_ends(const char *path, const char *ending);

/* Returns the length of the path without a final ".gz", ".zst", ".xz" or ".bz2"; the last two are recognised and then refused. */
size_t base_input_stem(const char *path);

#endif
