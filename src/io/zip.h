/* zip.h - the table of contents of a zip archive in memory whose records are stored, not compressed. */
#ifndef BY_IO_ZIP_H
#define BY_IO_ZIP_H

#include "base/base.h"

typedef struct by_zip_record {
    const char *name;
    const uint8_t *data; /* in the archive */
    size_t size;
} by_zip_record;

typedef struct by_zip {
    by_zip_record *list; /* in the arena, like the names */
    int count;
    by_names *names; /* to places in the list */
} by_zip;

/* Compressed, encrypted and split archives are BY_ERR_UNSUPPORTED: whatever a record claims to hold lies in
 * the archive itself, so none can swell. by_zip_close in any case. */
by_status by_zip_open(by_zip *z, by_arena *arena, const uint8_t *bytes, size_t size, const char *what);
void by_zip_close(by_zip *z);
const by_zip_record *by_zip_find(const by_zip *z, const char *name); /* NULL when absent */

#endif
