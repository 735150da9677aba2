/* zip.c - see zip.h. Uses the directory at the end of the archive, including the 64-bit fields of large
 * archives. */
#include "io/zip.h"

#include "io/weights.h"

#define END_SIZE     22
#define ENTRY_SIZE   46
#define LOCAL_SIZE   30
#define LOCATOR_SIZE 20
#define END64_SIZE   56

static uint64_t little(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static bool is_at(const uint8_t *p, const char *signature)
{
    return memcmp(p, "PK", 2) == 0 && memcmp(p + 2, signature, 2) == 0;
}

typedef struct directory {
    uint64_t count, size, offset;
} directory;

/* The end record precedes a comment of at most 65,535 bytes. */
static const uint8_t *find_end(const uint8_t *bytes, size_t size)
{
    size_t most = size >= END_SIZE ? BY_MIN(size - END_SIZE, (size_t)UINT16_MAX) : 0;
    for (size_t back = 0; size >= END_SIZE && back <= most; back++)
        if (is_at(bytes + size - END_SIZE - back, "\5\6"))
            return bytes + size - END_SIZE - back;
    return NULL;
}

static by_status find_directory(directory *d, const uint8_t *bytes, size_t size, const char *what)
{
    const uint8_t *end = find_end(bytes, size);
    if (!end)
        return base_fail(BY_ERR_FORMAT, "%s: the zip archive has no end record; the file may be truncated",
                         what);
    size_t at = (size_t)(end - bytes);
    *d = (directory){little(end + 10, 2), little(end + 12, 4), little(end + 16, 4)};
    if (little(end + 4, 2) != little(end + 6, 2))
        return base_fail(BY_ERR_UNSUPPORTED, "%s: one part of a split zip archive", what);
    if (at >= LOCATOR_SIZE && is_at(end - LOCATOR_SIZE, "\6\7")) {
        uint64_t offset = little(end - LOCATOR_SIZE + 8, 8);
        if (offset > at || at - offset < END64_SIZE || !is_at(bytes + offset, "\6\6"))
            return base_fail(BY_ERR_FORMAT, "%s: the 64-bit end record of the zip archive is misplaced",
                             what);
        *d = (directory){little(bytes + offset + 32, 8), little(bytes + offset + 40, 8),
                         little(bytes + offset + 48, 8)};
    }
    if (d->offset > at || d->size > at - d->offset || d->count > d->size / ENTRY_SIZE)
        return base_fail(BY_ERR_FORMAT, "%s: the directory of the zip archive does not fit into the file",
                         what);
    return BY_OK;
}

typedef struct sizes {
    uint64_t packed, plain, offset;
} sizes;

/* Fields that do not fit into 32 bits are all ones; their values are in an extra field, in this order. */
static void read_large(sizes *s, const uint8_t *extra, size_t n)
{
    uint64_t *field[] = {&s->plain, &s->packed, &s->offset};
    for (size_t at = 0; at + 4 <= n; at += 4 + (size_t)little(extra + at + 2, 2)) {
        const uint8_t *p = extra + at + 4;
        size_t left = BY_MIN((size_t)little(extra + at + 2, 2), n - at - 4);
        if (little(extra + at, 2) != 1)
            continue;
        for (int i = 0; i < BY_COUNT(field); i++)
            if (*field[i] == UINT32_MAX && left >= 8) {
                *field[i] = little(p, 8);
                p += 8;
                left -= 8;
            }
        return;
    }
}

/* Finds the bytes of a record, which follow its own header. The header repeats the name. */
static by_status find_data(io_zip_record *r, const sizes *s, const uint8_t *bytes, size_t size,
                           const char *what)
{
    io_shown name = io_show(r->name);
    if (s->offset > size || size - s->offset < LOCAL_SIZE || !is_at(bytes + s->offset, "\3\4"))
        return base_fail(BY_ERR_FORMAT,
                         "%s: record \"%s\" is not at the offset given in the directory of the zip archive",
                         what, name.text);
    const uint8_t *local = bytes + s->offset;
    size_t skip = LOCAL_SIZE + (size_t)little(local + 26, 2) + (size_t)little(local + 28, 2);
    size_t left = size - (size_t)s->offset;
    if (skip > left || s->packed > left - skip)
        return base_fail(BY_ERR_FORMAT, "%s: record \"%s\" extends beyond the end of the file", what,
                         name.text);
    r->data = local + skip;
    r->size = (size_t)s->packed;
    return BY_OK;
}

/* Reads one entry of the directory at *at and advances past it. */
static by_status read_entry(io_zip *z, base_arena *arena, const uint8_t **at, const uint8_t *end,
                            const uint8_t *bytes, size_t size, const char *what)
{
    const uint8_t *p = *at;
    if (end - p < ENTRY_SIZE || !is_at(p, "\1\2"))
        return base_fail(BY_ERR_FORMAT, "%s: the directory of the zip archive is damaged", what);
    size_t name = (size_t)little(p + 28, 2), extra = (size_t)little(p + 30, 2),
           note = (size_t)little(p + 32, 2);
    if (name + extra + note > (size_t)(end - p) - ENTRY_SIZE)
        return base_fail(BY_ERR_FORMAT, "%s: the directory of the zip archive is damaged", what);
    *at = p + ENTRY_SIZE + name + extra + note;
    io_zip_record *r = &z->list[z->count];
    char *copy = base_arena_alloc(arena, name + 1);
    if (!copy)
        return BY_ERR_MEMORY;
    memcpy(copy, p + ENTRY_SIZE, name);
    r->name = copy;
    if (strlen(copy) != name)
        return base_fail(BY_ERR_FORMAT, "%s: the name of a record contains a NUL", what);
    sizes s = {little(p + 20, 4), little(p + 24, 4), little(p + 42, 4)};
    read_large(&s, p + ENTRY_SIZE + name, extra);
    if (little(p + 8, 2) & 1 || little(p + 10, 2) != 0 || s.packed != s.plain)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s: record \"%s\" is compressed or encrypted (it claims %llu bytes in %llu)", what,
                         io_show(copy).text, (unsigned long long)s.plain, (unsigned long long)s.packed);
    BY_TRY(find_data(r, &s, bytes, size, what));
    if (base_names_find(z->names, copy) >= 0)
        return base_fail(BY_ERR_FORMAT, "%s: two records named \"%s\"", what, io_show(copy).text);
    return base_names_put(z->names, copy, z->count++);
}

by_status io_zip_open(io_zip *z, base_arena *arena, const uint8_t *bytes, size_t size, const char *what)
{
    directory d = {0};
    *z = (io_zip){0};
    BY_TRY(find_directory(&d, bytes, size, what));
    if (d.count > INT32_MAX)
        return base_fail(BY_ERR_FORMAT, "%s: too many records", what);
    z->list = base_arena_alloc(arena, ((size_t)d.count + 1) * sizeof *z->list);
    z->names = base_names_new();
    if (!z->list || !z->names)
        return BY_ERR_MEMORY;
    const uint8_t *at = bytes + d.offset, *end = at + d.size;
    for (uint64_t i = 0; i < d.count; i++)
        BY_TRY(read_entry(z, arena, &at, end, bytes, size, what));
    return BY_OK;
}

void io_zip_close(io_zip *z)
{
    base_names_free(z->names);
    *z = (io_zip){0};
}

const io_zip_record *io_zip_find(const io_zip *z, const char *name)
{
    int i = base_names_find(z->names, name);
    return i >= 0 ? &z->list[i] : NULL;
}
