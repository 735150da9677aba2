/* input.h - data files as streams of text: plain, gzip or zstd, by their first bytes and not by their name.
 * Unpacking never holds more than a window of the file. */
#ifndef BY_BASE_INPUT_H
#define BY_BASE_INPUT_H

#include <stdio.h>

#include "base/base.h"

/* Open a file for reading; "-" is the standard input, which can be opened once. Files in formats that are not
 * text (Parquet, xz, bzip2, zip) are refused with the command that converts them. NULL on failure. Close with
 * base_input_close. */
FILE *base_input_open(const char *path);
void base_input_close(FILE *f); /* NULL is legal */

/* BY_OK unless reading failed: the reason, with the path. */
by_status base_input_check(FILE *f, const char *path);

/* The whole file as a NUL-terminated heap string (base_free), *size without the NUL when size is not NULL.
 * Refuses more than limit bytes. NULL on failure. */
char *base_input_read(const char *path, size_t limit, size_t *size);

/* A file by its lines. */
typedef struct base_lines {
    FILE *file;
    const char *path; /* borrowed */
    char *text;       /* the line, without its end */
    size_t size, room;
    int64_t number; /* of the line, from 1 */
} base_lines;
by_status base_lines_open(base_lines *l, const char *path);
/* *more: there was a line. A byte order mark before the first line is dropped. */
by_status base_lines_next(base_lines *l, bool *more);
by_status base_lines_raw(base_lines *l, bool *more); /* the line as it is, with its end */
void base_lines_close(base_lines *l);                /* zero state is legal */

/* The name for messages: "the input" for "-". */
const char *base_input_name(const char *path);

/* Whether the path ends with `ending`, a ".gz" or ".zst" after it not counted. */
bool base_input_ends(const char *path, const char *ending);

/* Length of the path without ".gz" or ".zst" at its end. */
size_t base_input_stem(const char *path);

#endif
