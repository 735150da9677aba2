/* zip.h - the table of contents of a zip archive in memory whose records are stored, not compressed. */
#ifndef BY_IO_ZIP_H
#define BY_IO_ZIP_H

#include "base/base.h"

typedef struct io_zip_record {
    const char *name;
    const uint8_t *data; /* points into the archive */
    size_t size;
} io_zip_record;

typedef struct io_zip {
    io_zip_record *list; /* in the arena, like the names */
    int count;
    base_names *names; /* to indices in the list */
} io_zip;

/* Compressed, encrypted and split archives are BY_ERR_UNSUPPORTED: all records are stored in the archive
 * itself, so none can expand. Call io_zip_close in any case, also on failure. */
by_status io_zip_open(io_zip *z, base_arena *arena, const uint8_t *bytes, size_t size, const char *what);
void io_zip_close(io_zip *z);
const io_zip_record *io_zip_find(const io_zip *z, const char *name); /* NULL if absent */

#endif
