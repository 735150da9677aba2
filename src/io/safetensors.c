/* safetensors.c - reading by mapping, writing atomically. Whatever the header of a file claims is checked
 * before it is believed: every tensor lies inside the file, and together they tile the data area with no hole
 * and no overlap, as the format demands. */
#include "io/safetensors.h"

#include <math.h>
#include <stdlib.h>

#include "base/file.h"
#include "io/json.h"

#define MAX_HEADER ((uint64_t)100000000) /* the format's own limit */
#define ALIGN      64

typedef struct pair {
    const char *key, *value;
} pair;

struct by_st {
    by_map map;      /* zero for memory and for an index */
    by_arena *arena; /* names and metadata */
    by_st_entry *entries;
    pair *metadata;
    int count, metadata_count;
    by_st **shards; /* an index: the files that its entries point into */
    int shard_count;
};

static const struct {
    const char *name;
    by_dtype type;
} DTYPES[] = {
    {"F64", BY_F64}, {"F32", BY_F32}, {"F16", BY_F16}, {"BF16", BY_BF16},
    {"I64", BY_I64}, {"I32", BY_I32}, {"U8", BY_U8},   {"BOOL", BY_BOOL},
};

/* In the format, without a by_dtype. */
static const char *const FOREIGN[] = {"I8", "I16",     "U16",     "U32",     "U64",     "C64",
                                      "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3", "F8_E5M2", "F8_E8M0"};

/* A name from a file, fit for a message: cut short, and with nothing that would steer a terminal. */
typedef struct shown {
    char text[100];
} shown;

static shown show(const char *name)
{
    shown s = {0};
    size_t n = strlen(name), max = sizeof s.text - 4;
    memcpy(s.text, name, BY_MIN(n, max));
    for (char *p = s.text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    if (n > max) {
        while (max > 0 && ((unsigned char)name[max] & 0xc0) == 0x80)
            max--;
        memcpy(s.text + max, "...", 4);
    }
    return s;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const by_st_entry *)a)->name, ((const by_st_entry *)b)->name);
}

/* Position in the file; of two at the same place the empty one comes first. */
static int compare_places(const void *a, const void *b)
{
    const by_st_entry *x = a, *y = b;
    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Sort by name and refuse two of the same name. */
static by_status sort_entries(by_st_entry *entries, int count, const char *what, by_status failure)
{
    if (count > 1)
        qsort(entries, (size_t)count, sizeof *entries, compare_names);
    for (int i = 1; i < count; i++)
        if (strcmp(entries[i - 1].name, entries[i].name) == 0)
            return by_fail(failure, "%s: two tensors named \"%s\"", what, show(entries[i].name).text);
    return BY_OK;
}

/* Bytes of a tensor from its shape; false on overflow. */
static bool shape_bytes(const by_st_entry *e, size_t *out)
{
    size_t n = 1;
    for (int i = 0; i < e->rank; i++)
        if (e->dim[i] < 0 || !by_mul_size(n, (size_t)e->dim[i], &n))
            return false;
    return by_mul_size(n, by_dtype_size(e->dtype), out);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A whole number that a double holds exactly. */
static bool whole_number(const cJSON *v, int64_t *out)
{
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) || v->valuedouble >= 9007199254740992.0 ||
        v->valuedouble != floor(v->valuedouble))
        return false;
    *out = (int64_t)v->valuedouble;
    return true;
}

static by_status read_dtype(by_st_entry *e, const cJSON *v, const char *what)
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
            return by_fail(BY_ERR_UNSUPPORTED,
                           "%s: tensor \"%s\" has element type %s, which is not supported", what,
                           show(e->name).text, name);
    return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has unknown element type \"%s\"", what,
                   show(e->name).text, show(name).text);
}

static by_status read_shape(by_st_entry *e, const cJSON *v, const char *what)
{
    if (!cJSON_IsArray(v))
        return by_fail(BY_ERR_FORMAT, "%s: the shape of tensor \"%s\" is not a list", what,
                       show(e->name).text);
    for (const cJSON *c = v->child; c; c = c->next) {
        if (e->rank == BY_ST_MAX_RANK)
            return by_fail(BY_ERR_UNSUPPORTED, "%s: tensor \"%s\" has more than %d dimensions", what,
                           show(e->name).text, BY_ST_MAX_RANK);
        if (!whole_number(c, &e->dim[e->rank++]))
            return by_fail(BY_ERR_FORMAT, "%s: the shape of tensor \"%s\" holds something that is not a size",
                           what, show(e->name).text);
    }
    return BY_OK;
}

/* One member of the header, {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}; other keys are
 * ignored. data points at the `size` bytes behind the header. */
static by_status read_tensor(by_st_entry *e, const cJSON *item, const uint8_t *data, size_t size,
                             const char *what)
{
    const cJSON *field[3] = {NULL};
    static const char *const key[3] = {"dtype", "shape", "data_offsets"};
    for (const cJSON *c = cJSON_IsObject(item) ? item->child : NULL; c; c = c->next) {
        for (int i = 0; i < 3; i++) {
            if (strcmp(c->string, key[i]) != 0)
                continue;
            if (field[i])
                return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has two %s", what, show(e->name).text,
                               key[i]);
            field[i] = c;
        }
    }
    for (int i = 0; i < 3; i++)
        if (!field[i])
            return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has no %s", what, show(e->name).text, key[i]);
    BY_TRY(read_dtype(e, field[0], what));
    BY_TRY(read_shape(e, field[1], what));

    const cJSON *first = cJSON_IsArray(field[2]) ? field[2]->child : NULL,
                *second = first ? first->next : NULL;
    int64_t begin, end;
    if (!second || second->next || !whole_number(first, &begin) || !whole_number(second, &end) || begin > end)
        return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has malformed data_offsets", what,
                       show(e->name).text);
    if ((uint64_t)end > size)
        return by_fail(BY_ERR_FORMAT,
                       "%s: tensor \"%s\" ends at byte %lld of %zu bytes of data; the file may be cut short",
                       what, show(e->name).text, (long long)end, size);
    e->data = data + begin;
    e->bytes = (size_t)(end - begin);
    size_t expected;
    if (!shape_bytes(e, &expected))
        return by_fail(BY_ERR_FORMAT, "%s: the shape of tensor \"%s\" overflows", what, show(e->name).text);
    if (expected != e->bytes)
        return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" has %zu bytes, its shape asks for %zu", what,
                       show(e->name).text, e->bytes, expected);
    return BY_OK;
}

static int child_count(const cJSON *v)
{
    int n = 0;
    for (const cJSON *c = v->child; c; c = c->next)
        n++;
    return n;
}

static by_status read_metadata(by_st *s, const cJSON *item, const char *what)
{
    if (cJSON_IsNull(item))
        return BY_OK;
    if (!cJSON_IsObject(item) || s->metadata)
        return by_fail(BY_ERR_FORMAT, "%s: __metadata__ is %s", what,
                       s->metadata ? "there twice" : "not an object");
    s->metadata = by_alloc_zero((size_t)child_count(item) + 1, sizeof *s->metadata);
    if (!s->metadata)
        return BY_ERR_MEMORY;
    for (const cJSON *c = item->child; c; c = c->next) {
        if (!cJSON_IsString(c))
            return by_fail(BY_ERR_FORMAT, "%s: metadata \"%s\" is not a string", what, show(c->string).text);
        pair *p = &s->metadata[s->metadata_count++];
        p->key = by_arena_strdup(s->arena, c->string);
        p->value = by_arena_strdup(s->arena, c->valuestring);
        if (!p->key || !p->value)
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* The tensors lie one behind the other from the first byte of the data to the last. Leaves the entries in
 * file order. */
static by_status check_tiling(by_st *s, const uint8_t *data, size_t size, const char *what)
{
    if (s->count > 1)
        qsort(s->entries, (size_t)s->count, sizeof *s->entries, compare_places);
    size_t at = 0;
    for (int i = 0; i < s->count; i++) {
        const by_st_entry *e = &s->entries[i];
        size_t begin = (size_t)((const uint8_t *)e->data - data);
        if (begin != at)
            return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" starts at byte %zu of the data, %s byte %zu",
                           what, show(e->name).text, begin,
                           begin < at ? "overlapping up to" : "leaving a hole from", at);
        at += e->bytes;
    }
    if (at != size)
        return by_fail(BY_ERR_FORMAT, "%s: %zu bytes of data after the last tensor", what, size - at);
    return BY_OK;
}

static by_status read_header(by_st *s, const cJSON *root, const uint8_t *data, size_t size, const char *what)
{
    s->entries = by_alloc_zero((size_t)child_count(root) + 1, sizeof *s->entries);
    if (!s->entries)
        return BY_ERR_MEMORY;
    for (const cJSON *c = root->child; c; c = c->next) {
        if (strcmp(c->string, "__metadata__") == 0) {
            BY_TRY(read_metadata(s, c, what));
            continue;
        }
        by_st_entry *e = &s->entries[s->count];
        e->name = by_arena_strdup(s->arena, c->string);
        if (!e->name)
            return BY_ERR_MEMORY;
        BY_TRY(read_tensor(e, c, data, size, what));
        s->count++;
    }
    BY_TRY(check_tiling(s, data, size, what));
    return sort_entries(s->entries, s->count, what, BY_ERR_FORMAT);
}

static by_status read_container(by_st *s, const uint8_t *bytes, size_t size, const char *what)
{
    if (size < 8)
        return by_fail(BY_ERR_FORMAT, "%s: %zu bytes, too short for a safetensors file", what, size);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--)
        header = header << 8 | bytes[i];
    if (header > MAX_HEADER)
        return by_fail(BY_ERR_FORMAT, "%s: not a safetensors file (its header would have %llu bytes)", what,
                       (unsigned long long)header);
    if (header > size - 8)
        return by_fail(BY_ERR_FORMAT, "%s: the header has %llu bytes, the file only %zu; it may be cut short",
                       what, (unsigned long long)header, size);
    if (header == 0 || bytes[8] != '{')
        return by_fail(BY_ERR_FORMAT, "%s: not a safetensors file (the header does not start with '{')",
                       what);
    cJSON *root = by_json_parse((const char *)bytes + 8, (size_t)header, what);
    if (!root)
        return by_error_status();
    by_status status = read_header(s, root, bytes + 8 + header, size - 8 - (size_t)header, what);
    cJSON_Delete(root);
    return status;
}

static by_st *st_new(void)
{
    by_st *s = by_alloc_zero(1, sizeof *s);
    if (s && !(s->arena = by_arena_new())) {
        by_free(s);
        return NULL;
    }
    return s;
}

static by_st *open_file(const char *path)
{
    by_st *s = st_new();
    if (s && by_map_open(&s->map, path) == BY_OK &&
        read_container(s, s->map.data, s->map.size, path) == BY_OK)
        return s;
    by_st_free(s);
    return NULL;
}

by_st *by_st_open_memory(const void *bytes, size_t size, const char *what)
{
    by_st *s = st_new();
    if (s && read_container(s, bytes, size, what) == BY_OK)
        return s;
    by_st_free(s);
    return NULL;
}

/* The shard that an index calls `file`, opened on first sight. Returns its number or -1. */
static int index_shard(by_st *s, by_names *names, const char *dir, const char *file)
{
    int known = by_names_find(names, file);
    if (known >= 0)
        return known;
    by_st **grown = by_resize(s->shards, (size_t)s->shard_count + 1, sizeof *grown);
    if (!grown)
        return -1;
    s->shards = grown;
    char *path = by_path_join(dir, file);
    by_st *shard = path ? open_file(path) : NULL;
    by_free(path);
    if (!shard)
        return -1;
    s->shards[s->shard_count] = shard;
    return by_names_put(names, file, s->shard_count++) == BY_OK ? s->shard_count - 1 : -1;
}

/* Fill the list from {"weight_map": {tensor: file, ...}}. The map decides: what a shard holds beyond it is
 * left out. */
static by_status read_index(by_st *s, by_names *names, const cJSON *root, const char *dir, const char *path)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (!cJSON_IsObject(map))
        return by_fail(BY_ERR_FORMAT, "%s: no weight_map", path);
    s->entries = by_alloc_zero((size_t)child_count(map) + 1, sizeof *s->entries);
    if (!s->entries)
        return BY_ERR_MEMORY;
    for (const cJSON *c = map->child; c; c = c->next) {
        const char *file = cJSON_IsString(c) ? c->valuestring : "";
        if (!*file || strchr(file, '/') || strstr(file, ".."))
            return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" is mapped to \"%s\", which is not a file name",
                           path, show(c->string).text, show(file).text);
        int shard = index_shard(s, names, dir, file);
        if (shard < 0)
            return by_fail_context("%s", path);
        const by_st_entry *e = by_st_find(s->shards[shard], c->string);
        if (!e)
            return by_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" is not in %s", path, show(c->string).text,
                           show(file).text);
        s->entries[s->count++] = *e;
    }
    return sort_entries(s->entries, s->count, path, BY_ERR_FORMAT);
}

static by_st *open_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    by_st *s = st_new();
    by_names *names = by_names_new();
    char *dir = slash == path ? by_strdup("/") : by_sprintf("%.*s", slash ? (int)(slash - path) : 0, path);
    cJSON *root = s && names && dir ? by_json_load(path) : NULL;
    if (!root || read_index(s, names, root, dir, path) != BY_OK) {
        by_st_free(s);
        s = NULL;
    }
    cJSON_Delete(root);
    by_free(dir);
    by_names_free(names);
    return s;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

by_st *by_st_open(const char *path)
{
    if (!by_dir_exists(path))
        return ends_with(path, ".json") ? open_index(path) : open_file(path);
    char *file = by_path_join(path, "model.safetensors");
    char *index = by_path_join(path, "model.safetensors.index.json");
    by_st *s = NULL;
    if (file && index) {
        if (by_file_exists(file))
            s = open_file(file);
        else if (by_file_exists(index))
            s = open_index(index);
        else
            by_fail(BY_ERR_IO,
                    "%s: no model.safetensors and no model.safetensors.index.json in this directory", path);
    }
    by_free(file);
    by_free(index);
    return s;
}

void by_st_free(by_st *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->shard_count; i++)
        by_st_free(s->shards[i]);
    by_free(s->shards);
    by_free(s->entries);
    by_free(s->metadata);
    by_arena_free(s->arena);
    by_map_close(&s->map);
    by_free(s);
}

int by_st_count(const by_st *s)
{
    return s->count;
}

const by_st_entry *by_st_at(const by_st *s, int i)
{
    return i >= 0 && i < s->count ? &s->entries[i] : NULL;
}

const by_st_entry *by_st_find(const by_st *s, const char *name)
{
    by_st_entry key = {.name = name};
    return s->count ? bsearch(&key, s->entries, (size_t)s->count, sizeof key, compare_names) : NULL;
}

const char *by_st_metadata(const by_st *s, const char *key)
{
    for (int i = 0; i < s->metadata_count; i++)
        if (strcmp(s->metadata[i].key, key) == 0)
            return s->metadata[i].value;
    const char *value = NULL;
    for (int i = 0; i < s->shard_count && !value; i++)
        value = by_st_metadata(s->shards[i], key);
    return value;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Falling element size, so that every tensor is aligned to its own element; then by name. */
static int compare_layout(const void *a, const void *b)
{
    size_t x = by_dtype_size(((const by_st_entry *)a)->dtype),
           y = by_dtype_size(((const by_st_entry *)b)->dtype);
    return x != y ? (x < y ? 1 : -1) : compare_names(a, b);
}

static bool is_utf8(const char *s)
{
    size_t n = strlen(s), len = 1;
    for (; n > 0 && len > 0; s += len, n -= len)
        len = by_json_utf8(s, n);
    return len > 0;
}

static by_status check_entry(const by_st_entry *e, const char *path)
{
    if (!e->name || strcmp(e->name, "__metadata__") == 0 || !is_utf8(e->name))
        return by_fail(BY_ERR_ARGUMENT, "%s: a tensor cannot be named \"%s\"", path,
                       e->name ? show(e->name).text : "(null)");
    if (e->rank < 0 || e->rank > BY_ST_MAX_RANK || by_dtype_size(e->dtype) == 0)
        return by_fail(BY_ERR_ARGUMENT, "%s: tensor \"%s\" has rank %d and element type %d", path,
                       show(e->name).text, e->rank, (int)e->dtype);
    size_t expected;
    if (!shape_bytes(e, &expected) || expected != e->bytes || (e->bytes > 0 && !e->data))
        return by_fail(BY_ERR_ARGUMENT,
                       "%s: tensor \"%s\" has %zu bytes%s, which is not what its shape asks for", path,
                       show(e->name).text, e->bytes, e->data ? "" : " at NULL");
    return BY_OK;
}

static const char *dtype_label(by_dtype type)
{
    for (int i = 0; i < BY_COUNT(DTYPES); i++)
        if (DTYPES[i].type == type)
            return DTYPES[i].name;
    return "?";
}

/* The JSON header of entries already in file order, padded with spaces up to the alignment of the data. */
static by_status build_header(by_buf *b, const by_st_entry *entries, int count, const char *const *metadata,
                              const char *path)
{
    static const char *const plain[] = {"format", "pt", NULL};
    by_buf_puts(b, "{\"__metadata__\":{");
    const char *const *m = metadata ? metadata : plain;
    for (int i = 0; m[i]; i += 2) {
        if (!m[i + 1])
            return by_fail(BY_ERR_ARGUMENT, "%s: metadata \"%s\" has no value", path, show(m[i]).text);
        for (int j = 0; j < i; j += 2)
            if (strcmp(m[i], m[j]) == 0)
                return by_fail(BY_ERR_ARGUMENT, "%s: metadata \"%s\" is given twice", path, show(m[i]).text);
        by_buf_puts(b, i ? "," : "");
        by_json_quote(b, m[i]);
        by_buf_puts(b, ":");
        by_json_quote(b, m[i + 1]);
    }
    by_buf_puts(b, "}");
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const by_st_entry *e = &entries[i];
        by_buf_puts(b, ",");
        by_json_quote(b, e->name);
        by_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_label(e->dtype));
        for (int d = 0; d < e->rank; d++)
            by_buf_printf(b, "%s%lld", d ? "," : "", (long long)e->dim[d]);
        size_t end;
        if (!by_add_size(at, e->bytes, &end))
            return by_fail(BY_ERR_ARGUMENT, "%s: the tensors are too large for one file", path);
        by_buf_printf(b, "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
    }
    by_buf_puts(b, "}");
    by_buf_printf(b, "%*s", (int)((ALIGN - (8 + b->size) % ALIGN) % ALIGN), "");
    if (b->failed)
        return by_fail(BY_ERR_MEMORY, "%s: out of memory building the header", path);
    if (b->size > MAX_HEADER)
        return by_fail(BY_ERR_ARGUMENT, "%s: a header of %zu bytes is more than the format allows", path,
                       b->size);
    return BY_OK;
}

static by_status write_file(const char *path, const by_buf *header, const by_st_entry *entries, int count)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header->size >> 8 * i);
    by_writer w = {0};
    BY_TRY(by_writer_open(&w, path));
    by_status status = by_writer_put(&w, length, sizeof length);
    if (status == BY_OK)
        status = by_writer_put(&w, header->data, header->size);
    for (int i = 0; i < count && status == BY_OK; i++)
        if (entries[i].bytes > 0)
            status = by_writer_put(&w, entries[i].data, entries[i].bytes);
    if (status == BY_OK)
        return by_writer_finish(&w);
    by_writer_abort(&w);
    return status;
}

by_status by_st_write(const char *path, const by_st_entry *entries, int count, const char *const *metadata)
{
    if (count < 0 || (count > 0 && !entries))
        return by_fail(BY_ERR_ARGUMENT, "%s: %d tensors", path, count);
    for (int i = 0; i < count; i++)
        BY_TRY(check_entry(&entries[i], path));
    by_st_entry *sorted = by_alloc_zero((size_t)count + 1, sizeof *sorted);
    if (!sorted)
        return BY_ERR_MEMORY;
    if (count > 0)
        memcpy(sorted, entries, (size_t)count * sizeof *sorted);
    by_buf header = {0};
    by_status status = sort_entries(sorted, count, path, BY_ERR_ARGUMENT);
    if (status == BY_OK) {
        if (count > 1)
            qsort(sorted, (size_t)count, sizeof *sorted, compare_layout);
        status = build_header(&header, sorted, count, metadata, path);
    }
    if (status == BY_OK)
        status = write_file(path, &header, sorted, count);
    by_buf_free(&header);
    by_free(sorted);
    return status;
}
