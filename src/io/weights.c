/* weights.c - opens checkpoints of any format, in one file or several, and finds and reads their tensors. */
#include "io/weights.h"

#include <stdlib.h>

#include "base/json.h"

io_shown io_show(const char *name)
{
    io_shown s = {0};
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
    return strcmp(((const by_weight *)a)->name, ((const by_weight *)b)->name);
}

by_status io_weights_sort(by_weight *list, int count, const char *what, by_status failure)
{
    if (count > 1)
        qsort(list, (size_t)count, sizeof *list, compare_names);
    for (int i = 1; i < count; i++)
        if (strcmp(list[i - 1].name, list[i].name) == 0)
            return base_fail(failure, "%s: two tensors named \"%s\"", what, io_show(list[i].name).text);
    return BY_OK;
}

static bool element_count(const by_weight *w, size_t *out)
{
    size_t n = 1;
    for (int i = 0; i < w->rank; i++)
        if (w->dim[i] < 0 || !base_mul_size(n, (size_t)w->dim[i], &n))
            return false;
    *out = n;
    return true;
}

bool io_weight_bytes(const by_weight *w, size_t *out)
{
    size_t n;
    return element_count(w, &n) && base_mul_size(n, by_dtype_size(w->dtype), out);
}

bool io_weight_same(const by_weight *a, const by_weight *b)
{
    bool strides =
        a->stride && b->stride ? memcmp(a->stride, b->stride, sizeof a->dim) == 0 : !a->stride && !b->stride;
    return strides && a->data == b->data && a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static by_weights *weights_new(void)
{
    by_weights *s = base_alloc_zero(1, sizeof *s);
    if (s && !(s->arena = base_arena_new())) {
        base_free(s);
        return NULL;
    }
    return s;
}

static by_status read_any(by_weights *s, const uint8_t *bytes, size_t size, const char *what)
{
    return io_npz_is(bytes, size)     ? io_npz_read(s, bytes, size, what)
           : io_torch_is(bytes, size) ? io_torch_read(s, bytes, size, what)
                                      : io_safetensors_read(s, bytes, size, what);
}

static by_weights *open_file(const char *path)
{
    by_weights *s = weights_new();
    if (s && base_map_open(&s->map, path) == BY_OK && read_any(s, s->map.data, s->map.size, path) == BY_OK)
        return s;
    by_weights_free(s);
    return NULL;
}

by_weights *by_weights_open_memory(const void *bytes, size_t size, const char *what)
{
    by_weights *s = weights_new();
    if (s && read_any(s, bytes, size, what) == BY_OK)
        return s;
    by_weights_free(s);
    return NULL;
}

/* Returns the index of the shard called `file`, which is opened on first use, or -1. */
static int index_shard(by_weights *s, base_names *names, const char *dir, const char *file)
{
    int known = base_names_find(names, file);
    if (known >= 0)
        return known;
    by_weights **grown = base_resize(s->shards, (size_t)s->shard_count + 1, sizeof *grown);
    if (!grown)
        return -1;
    s->shards = grown;
    char *path = base_path_join(dir, file);
    by_weights *shard = path ? open_file(path) : NULL;
    base_free(path);
    if (!shard)
        return -1;
    s->shards[s->shard_count] = shard;
    s->format = shard->format;
    return base_names_put(names, file, s->shard_count++) == BY_OK ? s->shard_count - 1 : -1;
}

/* Fills the list from {"weight_map": {tensor: file, ...}}. The map decides: other tensors in a shard are
 * ignored. */
static by_status read_index(by_weights *s, base_names *names, const cJSON *root, const char *dir,
                            const char *path)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (!cJSON_IsObject(map))
        return base_fail(BY_ERR_FORMAT, "%s: no weight_map", path);
    size_t members = 1;
    for (const cJSON *c = map->child; c; c = c->next)
        members++;
    s->list = base_alloc_zero(members, sizeof *s->list);
    if (!s->list)
        return BY_ERR_MEMORY;
    for (const cJSON *c = map->child; c; c = c->next) {
        const char *file = cJSON_IsString(c) ? c->valuestring : "";
        if (!*file || strchr(file, '/') || strstr(file, ".."))
            return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" is mapped to \"%s\", which is not a file name",
                             path, io_show(c->string).text, io_show(file).text);
        int shard = index_shard(s, names, dir, file);
        if (shard < 0)
            return base_fail_context("%s", path);
        const by_weight *e = by_weights_find(s->shards[shard], c->string);
        if (!e)
            return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\" is not in %s", path, io_show(c->string).text,
                             io_show(file).text);
        s->list[s->count++] = *e;
    }
    return io_weights_sort(s->list, s->count, path, BY_ERR_FORMAT);
}

static by_weights *open_index(const char *path)
{
    const char *slash = strrchr(path, '/');
    by_weights *s = weights_new();
    base_names *names = base_names_new();
    char *dir =
        slash == path ? base_strdup("/") : base_sprintf("%.*s", slash ? (int)(slash - path) : 0, path);
    cJSON *root = s && names && dir ? base_json_load(path) : NULL;
    if (!root || read_index(s, names, root, dir, path) != BY_OK) {
        by_weights_free(s);
        s = NULL;
    }
    cJSON_Delete(root);
    base_free(dir);
    base_names_free(names);
    return s;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

static by_weights *open_either(const char *path)
{
    return ends_with(path, ".json") ? open_index(path) : open_file(path);
}

by_weights *by_weights_open(const char *path)
{
    if (!path) {
        base_fail_missing("path of the weights");
        return NULL;
    }
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin", "pytorch_model.bin.index.json"};
    if (!base_dir_exists(path))
        return open_either(path);
    for (int i = 0; i < BY_COUNT(names); i++) {
        char *file = base_path_join(path, names[i]);
        if (!file)
            return NULL;
        bool there = base_file_exists(file);
        by_weights *s = there ? open_either(file) : NULL;
        base_free(file);
        if (there)
            return s;
    }
    base_fail(BY_ERR_IO,
              "%s: the directory has no model.safetensors and no pytorch_model.bin, nor an index of either",
              path);
    return NULL;
}

void by_weights_free(by_weights *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->shard_count; i++)
        by_weights_free(s->shards[i]);
    base_free(s->shards);
    base_free(s->list);
    base_free(s->metadata);
    base_arena_free(s->arena);
    base_map_close(&s->map);
    base_free(s);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

int by_weights_count(const by_weights *s)
{
    return s->count;
}

const by_weight *by_weights_at(const by_weights *s, int i)
{
    return i >= 0 && i < s->count ? &s->list[i] : NULL;
}

const by_weight *by_weights_find(const by_weights *s, const char *name)
{
    by_weight key = {.name = name};
    return s->count ? bsearch(&key, s->list, (size_t)s->count, sizeof key, compare_names) : NULL;
}

const char *by_weights_format(const by_weights *s)
{
    return s->format ? s->format : "safetensors"; /* an empty index */
}

int by_weights_files(const by_weights *s)
{
    return s->shards ? s->shard_count : 1;
}

const char *by_weights_metadata(const by_weights *s, const char *key)
{
    for (int i = 0; i < s->metadata_count; i++)
        if (strcmp(s->metadata[i].key, key) == 0)
            return s->metadata[i].value;
    const char *value = NULL;
    for (int i = 0; i < s->shard_count && !value; i++)
        value = by_weights_metadata(s->shards[i], key);
    return value;
}

/* Shards usually have the same metadata; returns that of the first one. */
bool by_weights_metadata_at(const by_weights *s, int i, const char **key, const char **value)
{
    if (s->shard_count > 0)
        return by_weights_metadata_at(s->shards[0], i, key, value);
    if (i < 0 || i >= s->metadata_count)
        return false;
    *key = s->metadata[i].key;
    *value = s->metadata[i].value;
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Copies elements begin .. begin + count - 1 into dense memory, one row of the last axis at a time. */
static void gather(const by_weight *w, size_t begin, size_t count, char *out)
{
    size_t size = by_dtype_size(w->dtype), at[BY_WEIGHT_MAX_RANK] = {0}, rest = begin, from = 0;
    for (int d = w->rank - 1; d >= 0; d--) {
        at[d] = rest % (size_t)w->dim[d];
        rest /= (size_t)w->dim[d];
        from += at[d] * (size_t)w->stride[d];
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(out + i * size, (const char *)w->data + from * size, size);
        for (int d = w->rank - 1; d >= 0; d--) {
            from += (size_t)w->stride[d];
            if (++at[d] < (size_t)w->dim[d])
                break;
            from -= (size_t)w->dim[d] * (size_t)w->stride[d];
            at[d] = 0;
        }
    }
}

by_status by_weight_read(const by_weight *w, size_t begin, size_t count, void *out, by_dtype type)
{
    size_t all, size = by_dtype_size(w->dtype), to = by_dtype_size(type);
    if (!element_count(w, &all) || begin > all || count > all - begin || size == 0 || to == 0)
        return base_fail(BY_ERR_ARGUMENT, "tensor \"%s\": cannot read %zu elements from %zu as %s",
                         io_show(w->name).text, count, begin, by_dtype_name(type));
    if (!w->stride) {
        base_convert(out, type, (const char *)w->data + begin * size, w->dtype, count);
        return BY_OK;
    }
    char part[4096];
    for (size_t i = 0; i < count; i += sizeof part / 8) {
        size_t n = BY_MIN(count - i, sizeof part / 8);
        gather(w, begin + i, n, part);
        base_convert((char *)out + i * to, type, part, w->dtype, n);
    }
    return BY_OK;
}

by_status io_weight_write(base_writer *w, const by_weight *e, by_dtype type)
{
    enum { PART = 64 << 10 };
    size_t all, size = by_dtype_size(type);
    if (!element_count(e, &all))
        return base_fail(BY_ERR_ARGUMENT, "the shape of tensor \"%s\" overflows", io_show(e->name).text);
    char *part = base_alloc(PART * size);
    by_status s = part ? BY_OK : BY_ERR_MEMORY;
    for (size_t i = 0; i < all && s == BY_OK; i += PART) {
        size_t n = BY_MIN(all - i, (size_t)PART);
        s = by_weight_read(e, i, n, part, type);
        if (s == BY_OK)
            s = base_writer_put(w, part, n * size);
    }
    base_free(part);
    return s;
}
