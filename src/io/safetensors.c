/* safetensors.c - the safetensors format: an eight-byte header length, a JSON header, raw little-endian
 * tensors. All claims of the header are checked: every tensor lies inside the file, and together they tile
 * the data area without holes or overlaps, as the format requires. */
#include "io/weights.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"

#define MAX_HEADER ((uint64_t)100000000) /* limit of the format */
#define ALIGN      64

static const struct {
    const char *name;
    by_dtype type;
} DTYPES[] = {
    {"F64", BY_F64}, {"F32", BY_F32}, {"F16", BY_F16},   {"BF16", BY_BF16},       {"I64", BY_I64},
    {"I32", BY_I32}, {"U8", BY_U8},   {"BOOL", BY_BOOL}, {"I8", BY_I8},           {"I16", BY_I16},
    {"U16", BY_U16}, {"U32", BY_U32}, {"U64", BY_U64},   {"F8_E4M3", BY_F8_E4M3}, {"F8_E5M2", BY_F8_E5M2},
};

/* Element types of the format that have no by_dtype. */
static const char *const FOREIGN[] = {"C64",     "F4",          "F6_E2M3",    "F6_E3M2",
                                      "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

/* Orders by file offset; of two tensors at the same offset, the empty one comes first. */
static int compare_places(const void *a, const void *b)
{
    const by_weight *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads an integer that a double represents exactly. */
static bool whole_number(const cJSON *v, int64_t *out)
{
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || v->valuedouble >= 9007199254740992.0 ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (int64_t)v->valuedouble;
    return true;
}

static by_status read_dtype(by_weight *e, const cJSON *v, const char *what)
{
    const char *name = cJSON_IsString(v) ? v->valuestring : "";
    for (int i = 0; i < BY_COUNT(DTYPES); i++) {
        if (strcmp(name, DTYPES[i].name) == 0) {
            e->dtype = DTYPES[i].type;
            return BY_OK;
        }
    }
    for (int i = 0; i < BY_COUNT(FOREIGN); i++)
        if (strcmp(name, FOREIGN[i]) == 0)
            return base_fail(BY_ERR_UNSUPPORTED, "%s: tensor \"%s\" has unsupported element type %s", what,
                             io_show(e->name).text, name);
    return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has unknown element type \"%s\"", what,
                     io_show(e->name).text, io_show(name).text);
}

static by_status read_shape(by_weight *e, const cJSON *v, const char *what)
{
    if (!cJSON_IsArray(v))
        return base_fail(BY_ERR_FORMAT, "%s: the shape of tensor \"%s\" is not a list", what,
                         io_show(e->name).text);
    for (const cJSON *c = v->child; c; c = c->next) {
        if (e->rank == BY_WEIGHT_MAX_RANK)
            return base_fail(BY_ERR_UNSUPPORTED, "%s: tensor \"%s\" has more than %d dimensions", what,
                             io_show(e->name).text, BY_WEIGHT_MAX_RANK);
        if (!whole_number(c, &e->dim[e->rank++]))
            return base_fail(BY_ERR_FORMAT, "%s: the shape of tensor \"%s\" contains an invalid size", what,
                             io_show(e->name).text);
    }
    return BY_OK;
}

/* Reads one member of the header, {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; other keys
 * are ignored. data points to the `size` bytes after the header. */
static by_status read_tensor(by_weight *e, const cJSON *item, const uint8_t *data, size_t size,
                             const char *what)
{
    const cJSON *field[3] = {NULL};
    static const char *const key[3] = {"dtype", "shape", "data_offsets"};
    for (const cJSON *c = cJSON_IsObject(item) ? item->child : NULL; c; c = c->next) {
        for (int i = 0; i < 3; i++) {
            if (strcmp(c->string, key[i]) != 0)
                continue;
            if (field[i])
                return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has a duplicate %s", what,
                                 io_show(e->name).text, key[i]);
            field[i] = c;
        }
    }
    for (int i = 0; i < 3; i++)
        if (!field[i])
            return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has no %s", what, io_show(e->name).text,
                             key[i]);
    BY_TRY(read_dtype(e, field[0], what));
    BY_TRY(read_shape(e, field[1], what));

    const cJSON *first = cJSON_IsArray(field[2]) ? field[2]->child : NULL,
                *second = first ? first->next : NULL;
    int64_t begin, end;
    if (!second || second->next || !whole_number(first, &begin) || !whole_number(second, &end) || begin > end)
        return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has malformed data_offsets", what,
                         io_show(e->name).text);
    if ((uint64_t)end > size)
        return base_fail(
            BY_ERR_FORMAT,
            "%s: tensor \"%s\" ends at byte %lld of %zu bytes of data; the file may be truncated", what,
            io_show(e->name).text, (long long)end, size);
    e->data = data + begin;
    e->bytes = (size_t)(end - begin);
    size_t expected;
    if (!io_weight_bytes(e, &expected))
        return base_fail(BY_ERR_FORMAT, "%s: the shape of tensor \"%s\" overflows", what,
                         io_show(e->name).text);
    if (expected != e->bytes)
        return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has %zu bytes, but its shape requires %zu", what,
                         io_show(e->name).text, e->bytes, expected);
    return BY_OK;
}

static int child_count(const cJSON *v)
{
    int n = 0;
    for (const cJSON *c = v->child; c; c = c->next)
        n++;
    return n;
}

static by_status read_metadata(by_weights *s, const cJSON *item, const char *what)
{
    if (cJSON_IsNull(item))
        return BY_OK;
    if (!cJSON_IsObject(item) || s->metadata)
        return base_fail(BY_ERR_FORMAT, "%s: __metadata__ is %s", what,
                         s->metadata ? "given twice" : "not an object");
    s->metadata = base_alloc_zero((size_t)child_count(item) + 1, sizeof *s->metadata);
    if (!s->metadata)
        return BY_ERR_MEMORY;
    for (const cJSON *c = item->child; c; c = c->next) {
        if (!cJSON_IsString(c))
            return base_fail(BY_ERR_FORMAT, "%s: metadata \"%s\" is not a string", what,
                             io_show(c->string).text);
        io_weights_pair *p = &s->metadata[s->metadata_count++];
        p->key = base_arena_strdup(s->arena, c->string);
        p->value = base_arena_strdup(s->arena, c->valuestring);
        if (!p->key || !p->value)
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* Checks that the tensors follow each other from the first byte of the data to the last. Leaves the entries
 * in file order. */
static by_status check_tiling(by_weights *s, const uint8_t *data, size_t size, const char *what)
{
    if (s->count > 1)
        qsort(s->list, (size_t)s->count, sizeof *s->list, compare_places);
    size_t at = 0;
    for (int i = 0; i < s->count; i++) {
        const by_weight *e = &s->list[i];
        size_t begin = (size_t)((const uint8_t *)e->data - data);
        if (begin != at)
            return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" starts at byte %zu of the data, %s byte %zu",
                             what, io_show(e->name).text, begin,
                             begin < at ? "overlapping up to" : "leaving a hole from", at);
        at += e->bytes;
    }
    if (at != size)
        return base_fail(BY_ERR_FORMAT, "%s: %zu bytes of data after the last tensor", what, size - at);
    return BY_OK;
}

static by_status read_header(by_weights *s, const cJSON *root, const uint8_t *data, size_t size,
                             const char *what)
{
    s->list = base_alloc_zero((size_t)child_count(root) + 1, sizeof *s->list);
    if (!s->list)
        return BY_ERR_MEMORY;
    for (const cJSON *c = root->child; c; c = c->next) {
        if (strcmp(c->string, "__metadata__") == 0) {
            BY_TRY(read_metadata(s, c, what));
            continue;
        }
        by_weight *e = &s->list[s->count];
        e->name = base_arena_strdup(s->arena, c->string);
        if (!e->name)
            return BY_ERR_MEMORY;
        BY_TRY(read_tensor(e, c, data, size, what));
        s->count++;
    }
    BY_TRY(check_tiling(s, data, size, what));
    return io_weights_sort(s->list, s->count, what, BY_ERR_FORMAT);
}

by_status io_safetensors_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what)
{
    if (size < 8)
        return base_fail(BY_ERR_FORMAT, "%s: %zu bytes is too short for a safetensors file", what, size);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | bytes[i];
    if (header > MAX_HEADER)
        return base_fail(BY_ERR_FORMAT, "%s: not a safetensors file (its header would have %llu bytes)", what,
                         (unsigned long long)header);
    if (header > size - 8)
        return base_fail(BY_ERR_FORMAT,
                         "%s: the header has %llu bytes, but the file only %zu; it may be truncated", what,
                         (unsigned long long)header, size);
    if (header == 0 || bytes[8] != '{')
        return base_fail(BY_ERR_FORMAT, "%s: not a safetensors file (the header does not start with '{')",
                         what);
    s->format = "safetensors";
    cJSON *root = base_json_parse((const char *)bytes + 8, (size_t)header, what);
    if (!root)
        return base_error_status();
    by_status status = read_header(s, root, bytes + 8 + header, size - 8 - (size_t)header, what);
    cJSON_Delete(root);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Orders by decreasing element size, so that every tensor is aligned to its own element, then by name. */
static int compare_layout(const void *a, const void *b)
{
    size_t x = by_dtype_size(((const by_weight *)a)->dtype), y = by_dtype_size(((const by_weight *)b)->dtype);
    return x != y ? (x < y ? 1 : -1) : strcmp(((const by_weight *)a)->name, ((const by_weight *)b)->name);
}

static bool is_utf8(const char *s)
{
    size_t n = strlen(s), len = 1;
    for (; n > 0 && len > 0; s += len, n -= len)
        len = base_json_utf8(s, n);
    return len > 0;
}

static by_status check_entry(const by_weight *e, const char *path)
{
    if (!e->name || strcmp(e->name, "__metadata__") == 0 || !is_utf8(e->name))
        return base_fail(BY_ERR_ARGUMENT, "%s: invalid tensor name \"%s\"", path,
                         e->name ? io_show(e->name).text : "(null)");
    if (e->rank < 0 || e->rank > BY_WEIGHT_MAX_RANK || by_dtype_size(e->dtype) == 0)
        return base_fail(BY_ERR_ARGUMENT, "%s: tensor \"%s\" has rank %d and element type %d", path,
                         io_show(e->name).text, e->rank, (int)e->dtype);
    size_t expected;
    if (!io_weight_bytes(e, &expected) || expected != e->bytes || (e->bytes > 0 && !e->data))
        return base_fail(BY_ERR_ARGUMENT, "%s: tensor \"%s\" has %zu bytes%s, which does not match its shape",
                         path, io_show(e->name).text, e->bytes, e->data ? "" : " at NULL");
    return BY_OK;
}

static const char *dtype_label(by_dtype type)
{
    for (int i = 0; i < BY_COUNT(DTYPES); i++)
        if (DTYPES[i].type == type)
            return DTYPES[i].name;
    return "?";
}

/* Builds the JSON header of entries already in file order, padded with spaces up to the alignment of the
 * data. */
static by_status build_header(base_buf *b, const by_weight *entries, int count, const char *const *metadata,
                              const char *path)
{
    static const char *const plain[] = {"format", "pt", NULL};
    base_buf_puts(b, "{\"__metadata__\":{");
    const char *const *m = metadata ? metadata : plain;
    for (int i = 0; m[i]; i += 2) {
        if (!m[i + 1])
            return base_fail(BY_ERR_ARGUMENT, "%s: metadata \"%s\" has no value", path, io_show(m[i]).text);
        for (int j = 0; j < i; j += 2)
            if (strcmp(m[i], m[j]) == 0)
                return base_fail(BY_ERR_ARGUMENT, "%s: metadata \"%s\" is given twice", path,
                                 io_show(m[i]).text);
        base_buf_puts(b, i ? "," : "");
        base_json_quote(b, m[i]);
        base_buf_puts(b, ":");
        base_json_quote(b, m[i + 1]);
    }
    base_buf_puts(b, "}");
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const by_weight *e = &entries[i];
        base_buf_puts(b, ",");
        base_json_quote(b, e->name);
        base_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_label(e->dtype));
        for (int d = 0; d < e->rank; d++)
            base_buf_printf(b, "%s%lld", d ? "," : "", (long long)e->dim[d]);
        size_t end;
        if (!base_add_size(at, e->bytes, &end))
            return base_fail(BY_ERR_ARGUMENT, "%s: the tensors are too large for one file", path);
        base_buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
    }
    base_buf_puts(b, "}");
    base_buf_printf(b, "%*s", (int)((ALIGN - (8 + b->size) % ALIGN) % ALIGN), "");
    if (b->failed)
        return base_fail(BY_ERR_MEMORY, "%s: out of memory while building the header", path);
    if (b->size > MAX_HEADER)
        return base_fail(BY_ERR_ARGUMENT, "%s: a header of %zu bytes exceeds the limit of the format", path,
                         b->size);
    return BY_OK;
}

static by_status write_file(const char *path, const base_buf *header, const by_weight *entries, int count,
                            io_weight_put put, void *user)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header->size >> 8 * i);
    base_writer w = {0};
    BY_TRY(base_writer_open(&w, path));
    by_status status = base_writer_put(&w, length, sizeof length);
    if (status == BY_OK)
        status = base_writer_put(&w, header->data, header->size);
    for (int i = 0; i < count && status == BY_OK; i++)
        if (entries[i].bytes > 0)
            status = put(user, &w, &entries[i]);
    if (status == BY_OK)
        return base_writer_finish(&w);
    base_writer_abort(&w);
    return status;
}

by_status io_safetensors_write(const char *path, const by_weight *list, int count,
                               const char *const *metadata, io_weight_put put, void *user)
{
    if (count < 0 || (count > 0 && !list))
        return base_fail(BY_ERR_ARGUMENT, "%s: invalid number of tensors: %d", path, count);
    for (int i = 0; i < count; i++)
        BY_TRY(check_entry(&list[i], path));
    by_weight *sorted = base_alloc_zero((size_t)count + 1, sizeof *sorted);
    if (!sorted)
        return BY_ERR_MEMORY;
    if (count > 0)
        memcpy(sorted, list, (size_t)count * sizeof *sorted);
    base_buf header = {0};
    by_status status = io_weights_sort(sorted, count, path, BY_ERR_ARGUMENT);
    if (status == BY_OK) {
        if (count > 1)
            qsort(sorted, (size_t)count, sizeof *sorted, compare_layout);
        status = build_header(&header, sorted, count, metadata, path);
    }
    if (status == BY_OK)
        status = write_file(path, &header, sorted, count, put, user);
    base_buf_free(&header);
    base_free(sorted);
    return status;
}

static by_status put_memory(void *user, base_writer *w, const by_weight *e)
{
    (void)user;
    return e->stride ? io_weight_write(w, e, e->dtype) : base_writer_put(w, e->data, e->bytes);
}

by_status by_weights_write(const char *path, const by_weight *list, int count, const char *const *metadata)
{
    return io_safetensors_write(path, list, count, metadata, put_memory, NULL);
}
