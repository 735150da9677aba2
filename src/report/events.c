/* events.c - TensorBoard event files. Each record is a TFRecord frame (length, masked CRC of the length,
 * bytes, masked CRC of the bytes; everything little-endian) around one Event message in protocol buffer
 * encoding. The four field types that it needs are encoded by hand below. */
#include "report/events.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

struct report_events {
    FILE *file;
    char *path;
    base_buf record, nested; /* reused between calls */
    bool failed;
};

/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), four bits at a time. */
static uint32_t crc32c(const void *bytes, size_t n)
{
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                       0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                       0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *p = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* TFRecord stores CRCs rotated and shifted, because the CRC of data that contains CRCs would be weak. */
static uint32_t masked_crc(const void *bytes, size_t n)
{
    uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- protocol buffer fields ------------------------------------------------------------------ */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void store(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static void put_fixed(base_buf *b, uint64_t value, int bytes)
{
    uint8_t raw[8];
    store(raw, value, bytes);
    base_buf_put(b, raw, (size_t)bytes);
}

static void put_varint(base_buf *b, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_fixed(b, (value & 127) | 128, 1);
    put_fixed(b, value, 1);
}

static void put_key(base_buf *b, int field, int type)
{
    put_varint(b, (uint64_t)field << 3 | (uint64_t)type);
}

static void put_bytes(base_buf *b, int field, const void *bytes, size_t n)
{
    put_key(b, field, BYTES);
    put_varint(b, n);
    base_buf_put(b, bytes, n);
}

static void put_double(base_buf *b, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FIXED64);
    put_fixed(b, bits, 8);
}

static void put_float(base_buf *b, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(b, field, FIXED32);
    put_fixed(b, bits, 4);
}

/* ---- the file -------------------------------------------------------------------------------- */

static by_status fail_write(report_events *e)
{
    int reason = errno;
    e->failed = true;
    return base_fail(BY_ERR_IO, "%s: cannot write: %s", e->path, strerror(reason));
}

/* Frames and appends e->record. */
static by_status write_record(report_events *e)
{
    if (e->record.failed || e->nested.failed)
        return base_fail(BY_ERR_MEMORY, "%s: out of memory", e->path);
    uint8_t head[12], tail[4];
    store(head, e->record.size, 8);
    store(head + 8, masked_crc(head, 8), 4);
    store(tail, masked_crc(e->record.data, e->record.size), 4);
    errno = 0;
    if (fwrite(head, sizeof head, 1, e->file) != 1 ||
        fwrite(e->record.data, e->record.size, 1, e->file) != 1 || fwrite(tail, sizeof tail, 1, e->file) != 1)
        return fail_write(e);
    return BY_OK;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Creates a new file; a second one within the same second gets a number. */
static by_status create_file(report_events *e, const char *dir)
{
    char host[256] = "localhost";
    if (gethostname(host, sizeof host - 1) != 0 || !*host)
        strcpy(host, "localhost");
    for (char *p = host; *p; p++)
        if (*p == '/')
            *p = '-';
    long long seconds = (long long)now();
    for (int i = 0; i < 1000 && !e->file; i++) {
        char name[400], suffix[16] = "";
        if (i > 0)
            base_format(suffix, sizeof suffix, ".%d", i);
        base_format(name, sizeof name, "events.out.tfevents.%lld.%s.%ld%s", seconds, host, (long)getpid(),
                    suffix);
        base_free(e->path);
        e->path = base_path_join(dir, name);
        if (!e->path)
            return BY_ERR_MEMORY;
        e->file = fopen(e->path, "wbx");
        if (!e->file && errno != EEXIST)
            break;
    }
    return e->file ? BY_OK : base_fail(BY_ERR_IO, "%s: cannot create: %s", e->path, strerror(errno));
}

/* Event: wall_time = 1 (double), step = 2 (int64), file_version = 3 (string), summary = 5 (message). */
report_events *report_events_open(const char *dir)
{
    static const char version[] = "brain.Event:2";
    if (base_dir_make(dir) != BY_OK)
        return NULL;
    report_events *e = base_alloc_zero(1, sizeof *e);
    if (!e)
        return NULL;
    by_status status = create_file(e, dir);
    if (status == BY_OK) {
        put_double(&e->record, 1, now());
        put_bytes(&e->record, 3, version, sizeof version - 1);
        status = write_record(e);
    }
    if (status == BY_OK)
        status = report_events_flush(e);
    if (status != BY_OK) {
        e->failed = true; /* closing must not replace the message */
        if (e->file && e->path)
            unlink(e->path);
        report_events_close(e);
        return NULL;
    }
    return e;
}

/* Summary: value = 1 (repeated message); Value: tag = 1 (string), simple_value = 2 (float). */
by_status report_events_scalar(report_events *e, int64_t step, const char *tag, double value)
{
    if (e->failed)
        return base_fail(BY_ERR_IO, "%s: not writable after an earlier error", e->path);
    base_buf *b = &e->record, *n = &e->nested;
    b->size = n->size = 0;
    put_bytes(b, 1, tag, strlen(tag));
    put_float(b, 2, (float)value);
    put_bytes(n, 1, b->data, b->size);
    b->size = 0;
    put_double(b, 1, now());
    put_key(b, 2, VARINT);
    put_varint(b, (uint64_t)step);
    put_bytes(b, 5, n->data, n->size);
    return write_record(e);
}

by_status report_events_flush(report_events *e)
{
    if (e->failed)
        return base_fail(BY_ERR_IO, "%s: not writable after an earlier error", e->path);
    return fflush(e->file) == 0 ? BY_OK : fail_write(e);
}

by_status report_events_close(report_events *e)
{
    if (!e)
        return BY_OK;
    by_status status = BY_OK;
    if (e->file && fclose(e->file) != 0 && !e->failed)
        status = fail_write(e);
    base_buf_free(&e->record);
    base_buf_free(&e->nested);
    base_free(e->path);
    base_free(e);
    return status;
}

const char *report_events_path(const report_events *e)
{
    return e->path;
}
