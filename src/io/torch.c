/* torch.c - reads files written by torch.save: a pickle that describes tensors, and storages that hold their
 * elements. Since PyTorch 1.6 both are in a zip archive; earlier they follow each other in a stream of
 * pickles. Nothing is executed (see pickle.h): the calls that would rebuild a tensor are read as descriptions
 * of it. */
#include "base/json.h"
#include "io/pickle.h"
#include "io/weights.h"
#include "io/zip.h"

/* Maximum total size of all tensors, as a multiple of the file size. Tensors may share storages. */
#define MAX_EXPANSION 64

/* Names that a file may refer to. Storages and then element types come last, in the order of `types`. */
enum {
    ORDERED_DICT,
    REBUILD,
    REBUILD_V2,
    REBUILD_V3,
    PARAMETER,
    PARAMETER_WITH_STATE,
    SIZE,
    UNTYPED,
    FIRST_STORAGE,
    FIRST_TYPE = FIRST_STORAGE + 10,
    LAST_TYPE = FIRST_TYPE + 15
};

static const char *const globals[] = {"collections OrderedDict",
                                      "torch._utils _rebuild_tensor",
                                      "torch._utils _rebuild_tensor_v2",
                                      "torch._utils _rebuild_tensor_v3",
                                      "torch._utils _rebuild_parameter",
                                      "torch._utils _rebuild_parameter_with_state",
                                      "torch Size",
                                      "torch.storage UntypedStorage",
                                      "torch FloatStorage",
                                      "torch DoubleStorage",
                                      "torch HalfStorage",
                                      "torch BFloat16Storage",
                                      "torch LongStorage",
                                      "torch IntStorage",
                                      "torch ShortStorage",
                                      "torch CharStorage",
                                      "torch ByteStorage",
                                      "torch BoolStorage",
                                      "torch float32",
                                      "torch float64",
                                      "torch float16",
                                      "torch bfloat16",
                                      "torch int64",
                                      "torch int32",
                                      "torch int16",
                                      "torch int8",
                                      "torch uint8",
                                      "torch bool",
                                      "torch uint16",
                                      "torch uint32",
                                      "torch uint64",
                                      "torch float8_e4m3fn",
                                      "torch float8_e5m2",
                                      NULL};

static const by_dtype types[] = {BY_F32, BY_F64,  BY_F16, BY_BF16, BY_I64, BY_I32,     BY_I16,    BY_I8,
                                 BY_U8,  BY_BOOL, BY_U16, BY_U32,  BY_U64, BY_F8_E4M3, BY_F8_E5M2};

typedef struct storage {
    const char *key;
    bool untyped;                 /* size in bytes; tensors give the element type */
    size_t element, count, bytes; /* bytes per element, number of elements, total bytes */
    const uint8_t *data;          /* NULL until found in the file */
} storage;

/* The part of a storage that a tensor covers. */
typedef struct view {
    int storage;
    size_t offset; /* in elements */
    int64_t stride[BY_WEIGHT_MAX_RANK];
} view;

typedef struct reader {
    by_weights *out;
    base_arena *arena; /* pickles, records */
    const uint8_t *bytes;
    size_t size;
    const char *what;
    base_names *keys; /* keys of the storages */
    storage *storages;
    view *views; /* one per tensor of out */
    size_t n_storages;
} reader;

/* Recognises a zip archive or a pickle. The length of a safetensors header may start like a pickle, but is
 * followed by '{'. */
bool io_torch_is(const uint8_t *bytes, size_t size)
{
    bool header = size > 8 && bytes[8] == '{' && memcmp(bytes + 4, "\0\0\0", 4) == 0;
    return size >= 4 && !header &&
           (memcmp(bytes, "PK\3\4", 4) == 0 || (bytes[0] == 0x80 && bytes[1] >= 1 && bytes[1] <= 5));
}

/* ---- tensors in the pickle ------------------------------------------------------------------- */

static by_status malformed(const reader *r, const by_weight *w, const char *problem)
{
    return base_fail(BY_ERR_FORMAT, "%s: tensor \"%s\": %s", r->what, io_show(w->name).text, problem);
}

static bool is_count(const io_pickled *v, size_t *out)
{
    if (v->kind != IO_PICKLE_INT || v->number < 0)
        return false;
    *out = (size_t)v->number;
    return true;
}

static bool is_text(const io_pickled *v, const char *text)
{
    return v->kind == IO_PICKLE_TEXT && strcmp(v->text, text) == 0 && strlen(text) == v->size;
}

static bool is_call(const io_pickled *v, int64_t global, uint32_t arguments)
{
    return v->kind == IO_PICKLE_CALL && v->items[0]->number == global && v->items[1]->count >= arguments;
}

/* Reads ("storage", class, key, location, count[, view]); returns false if the value is something else. A
 * view is (key, offset, count) in files of PyTorch 0.3 and older, None after that. *type is unchanged if the
 * class does not give one. */
static bool read_storage(const io_pickled *p, storage *s, by_dtype *type, size_t *view_offset)
{
    const io_pickled *id = p->kind == IO_PICKLE_PERSISTENT ? p->items[0] : p;
    if (id == p || id->kind != IO_PICKLE_TUPLE || id->count < 5 || !is_text(id->items[0], "storage") ||
        id->items[1]->kind != IO_PICKLE_GLOBAL || id->items[2]->kind != IO_PICKLE_TEXT ||
        strlen(id->items[2]->text) != id->items[2]->size || !is_count(id->items[4], &s->count))
        return false;
    int64_t class = id->items[1]->number;
    if (class != UNTYPED && (class < FIRST_STORAGE || class >= FIRST_TYPE))
        return false;
    if (class != UNTYPED)
        *type = types[class - FIRST_STORAGE];
    const io_pickled *part = id->count > 5 ? id->items[5] : NULL;
    *view_offset = 0;
    if (part && part->kind == IO_PICKLE_TUPLE && (part->count < 3 || !is_count(part->items[1], view_offset)))
        return false;
    s->key = id->items[2]->text;
    s->untyped = class == UNTYPED;
    s->element = s->untyped ? 1 : by_dtype_size(*type);
    return true;
}

/* Lists all storages that the pickle refers to, whether in tensors or elsewhere: a stream has to be read past
 * each. */
static by_status list_storages(reader *r, const io_pickled *outside)
{
    r->storages = base_alloc_zero((size_t)outside->count + 1, sizeof *r->storages);
    r->keys = base_names_new();
    if (!r->storages || !r->keys)
        return BY_ERR_MEMORY;
    for (uint32_t i = 0; i < outside->count; i++) {
        storage s = {0};
        by_dtype type = BY_F32;
        size_t offset;
        if (!read_storage(outside->items[i], &s, &type, &offset) ||
            !base_mul_size(s.count, s.element, &s.bytes) || s.bytes > r->size ||
            base_names_find(r->keys, s.key) >= 0)
            continue;
        r->storages[r->n_storages] = s;
        BY_TRY(base_names_put(r->keys, s.key, (int)r->n_storages++));
    }
    return BY_OK;
}

static by_status find_storage(reader *r, by_weight *w, view *v, const io_pickled *p, bool *untyped)
{
    storage s = {0};
    if (!read_storage(p, &s, &w->dtype, &v->offset))
        return malformed(r, w, "malformed description of its storage");
    *untyped = s.untyped;
    v->storage = base_names_find(r->keys, s.key);
    if (v->storage < 0 || !base_mul_size(s.count, s.element, &s.bytes))
        return malformed(r, w, "its storage is larger than the file");
    return r->storages[v->storage].bytes == s.bytes ? BY_OK
                                                    : malformed(r, w, "conflicting sizes of its storage");
}

/* Reads a tuple of sizes, or torch.Size of one. */
static by_status read_sizes(const reader *r, const by_weight *w, const io_pickled *v, int rank, int64_t *out,
                            int *count)
{
    if (is_call(v, SIZE, 1))
        v = v->items[1]->items[0];
    if (v->kind != IO_PICKLE_TUPLE || v->count > BY_WEIGHT_MAX_RANK ||
        (rank >= 0 && v->count != (uint32_t)rank))
        return v->kind == IO_PICKLE_TUPLE && v->count > BY_WEIGHT_MAX_RANK
                   ? base_fail(BY_ERR_UNSUPPORTED, "%s: tensor \"%s\" has more than %d dimensions", r->what,
                               io_show(w->name).text, BY_WEIGHT_MAX_RANK)
                   : malformed(r, w, "its shape is malformed");
    for (uint32_t i = 0; i < v->count; i++) {
        size_t n;
        if (!is_count(v->items[i], &n))
            return malformed(r, w, "its shape or strides contain an invalid size");
        out[i] = (int64_t)n;
    }
    *count = (int)v->count;
    return BY_OK;
}

/* Reads rebuild(storage, offset, size, stride, ...); version 3 has the element type as seventh argument. */
static by_status read_tensor(reader *r, by_weight *w, view *v, const io_pickled *value)
{
    if (is_call(value, PARAMETER, 1) || is_call(value, PARAMETER_WITH_STATE, 1))
        value = value->items[1]->items[0];
    bool typed = is_call(value, REBUILD_V3, 7);
    if (!typed && !is_call(value, REBUILD, 4) && !is_call(value, REBUILD_V2, 4))
        return malformed(r, w, "malformed description of the tensor");
    io_pickled *const *a = value->items[1]->items;
    size_t offset;
    int strides;
    bool untyped = false;
    BY_TRY(find_storage(r, w, v, a[0], &untyped));
    if (typed) {
        if (a[6]->kind != IO_PICKLE_GLOBAL || a[6]->number < FIRST_TYPE || a[6]->number >= LAST_TYPE)
            return malformed(r, w, "it has no element type");
        w->dtype = types[a[6]->number - FIRST_TYPE];
    } else if (untyped) {
        return malformed(r, w, "it has no element type");
    }
    if (!is_count(a[1], &offset) || !base_add_size(v->offset, offset, &v->offset))
        return malformed(r, w, "its offset is malformed");
    BY_TRY(read_sizes(r, w, a[2], -1, w->dim, &w->rank));
    return read_sizes(r, w, a[3], w->rank, v->stride, &strides);
}

/* Checks that the last element lies inside the storage, and that there are no more elements than the storage
 * has: a tensor that repeats its elements could claim any size. */
static by_status check_view(const reader *r, by_weight *w, const view *v)
{
    size_t size = by_dtype_size(w->dtype), room = r->storages[v->storage].bytes / size, last = v->offset, n,
           step;
    if (!io_weight_bytes(w, &w->bytes))
        return malformed(r, w, "its shape overflows");
    n = w->bytes / size;
    for (int d = 0; d < w->rank && n > 0; d++)
        if (!base_mul_size((size_t)w->dim[d] - 1, (size_t)v->stride[d], &step) ||
            !base_add_size(last, step, &last))
            return malformed(r, w, "its strides overflow");
    if (n > 0 && last >= room)
        return malformed(r, w, "it extends beyond its storage");
    if (n > room)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: tensor \"%s\" repeats its elements (it was expanded)",
                         r->what, io_show(w->name).text);
    return BY_OK;
}

static bool is_dense(const by_weight *w, const view *v)
{
    int64_t step = 1;
    for (int d = w->rank - 1; d >= 0 && w->bytes > 0; d--) {
        if (w->dim[d] != 1 && v->stride[d] != step)
            return false;
        step *= w->dim[d];
    }
    return true;
}

static bool is_name(const io_pickled *v)
{
    if (v->kind != IO_PICKLE_TEXT || strlen(v->text) != v->size)
        return false;
    for (size_t at = 0, n; at < v->size; at += n)
        if ((n = base_json_utf8(v->text + at, v->size - at)) == 0)
            return false;
    return true;
}

static by_status add_tensor(reader *r, const io_pickled *key, const io_pickled *value)
{
    if (!is_name(key))
        return base_fail(BY_ERR_FORMAT, "%s: the name of a tensor is %s", r->what,
                         key->kind == IO_PICKLE_TEXT ? "not UTF-8" : io_pickle_kind_name(key->kind));
    if (value->kind < IO_PICKLE_TUPLE)
        return BY_OK; /* None, a number or a text: not a tensor */
    if (value->kind != IO_PICKLE_CALL)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: \"%s\" is %s, not a tensor", r->what,
                         io_show(key->text).text, io_pickle_kind_name(value->kind));
    by_weight *w = &r->out->list[r->out->count];
    view *v = &r->views[r->out->count];
    w->name = base_arena_strdup(r->out->arena, key->text);
    if (!w->name)
        return BY_ERR_MEMORY;
    BY_TRY(read_tensor(r, w, v, value));
    BY_TRY(check_view(r, w, v));
    r->out->count++;
    return BY_OK;
}

/* Returns the dictionary of names: the root, or the member in which trainers store it. */
static const io_pickled *state_of(const io_pickled *root)
{
    static const char *const members[] = {"state_dict", "model_state_dict", "model"};
    for (int k = 0; k < BY_COUNT(members); k++)
        for (uint32_t i = 0; i + 1 < root->count; i += 2)
            if (is_text(root->items[i], members[k]) && root->items[i + 1]->kind == IO_PICKLE_DICT)
                return root->items[i + 1];
    return root;
}

static by_status read_state(reader *r, const io_pickled *root, const io_pickled *outside)
{
    if (root->kind != IO_PICKLE_DICT)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: contains %s, not a dictionary of tensors", r->what,
                         io_pickle_kind_name(root->kind));
    const io_pickled *state = state_of(root);
    size_t n = state->count / 2 + 1;
    r->out->list = base_alloc_zero(n, sizeof *r->out->list);
    r->views = base_alloc_zero(n, sizeof *r->views);
    if (!r->out->list || !r->views)
        return BY_ERR_MEMORY;
    BY_TRY(list_storages(r, outside));
    for (uint32_t i = 0; i + 1 < state->count; i += 2)
        BY_TRY(add_tensor(r, state->items[i], state->items[i + 1]));
    return BY_OK;
}

/* Points the tensors at their elements, once every storage has been found. */
static by_status place_tensors(reader *r)
{
    size_t all = 0;
    for (int i = 0; i < r->out->count; i++) {
        by_weight *w = &r->out->list[i];
        const view *v = &r->views[i];
        const storage *s = &r->storages[v->storage];
        if (!s->data)
            return malformed(r, w, "its storage is not in the file");
        w->data = w->bytes ? s->data + v->offset * by_dtype_size(w->dtype) : s->data;
        if (!is_dense(w, v)) {
            int64_t *stride = base_arena_alloc(r->out->arena, sizeof v->stride);
            if (!stride)
                return BY_ERR_MEMORY;
            memcpy(stride, v->stride, sizeof v->stride);
            w->stride = stride;
        }
        if (!base_add_size(all, w->bytes, &all) || all / MAX_EXPANSION > r->size)
            return base_fail(BY_ERR_FORMAT, "%s: the tensors claim more than %d times the size of the file",
                             r->what, MAX_EXPANSION);
    }
    return io_weights_sort(r->out->list, r->out->count, r->what, BY_ERR_FORMAT);
}

/* ---- the zip archive ------------------------------------------------------------------------- */

/* Returns the record of that name in the archive's only folder, or NULL. */
static const io_zip_record *record(const reader *r, const io_zip *z, int root, const char *folder,
                                   const char *name)
{
    char *full = base_arena_sprintf(r->arena, "%.*s%s%s", root, z->list[0].name, folder, name);
    return full ? io_zip_find(z, full) : NULL;
}

static by_status read_records(reader *r, const io_zip *z)
{
    const char *first = z->count ? z->list[0].name : "", *slash = strchr(first, '/');
    int root = slash ? (int)(slash - first) + 1 : 0;
    const io_zip_record *pickle = z->count ? record(r, z, root, "", "data.pkl") : NULL;
    if (!pickle)
        return base_fail(BY_ERR_FORMAT, "%s: not a PyTorch file (a zip archive without data.pkl)", r->what);
    if (record(r, z, root, "", "constants.pkl"))
        return base_fail(BY_ERR_UNSUPPORTED, "%s: a TorchScript program, not a dictionary of tensors",
                         r->what);
    const io_zip_record *order = record(r, z, root, "", "byteorder");
    if (order && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        return base_fail(BY_ERR_UNSUPPORTED, "%s: big-endian files are not supported", r->what);
    const uint8_t *at = pickle->data;
    const io_pickled *outside,
        *state = io_pickle_read(r->arena, &at, at + pickle->size, globals, r->what, &outside);
    if (!state)
        return base_error_status();
    BY_TRY(read_state(r, state, outside));
    for (size_t i = 0; i < r->n_storages; i++) {
        storage *s = &r->storages[i];
        const io_zip_record *data = record(r, z, root, "data/", s->key);
        if (!data || data->size < s->bytes)
            return base_fail(BY_ERR_FORMAT, "%s: storage \"%s\" %s", r->what, io_show(s->key).text,
                             data ? "is shorter than its tensors" : "is not in the archive");
        s->data = data->data;
    }
    return place_tensors(r);
}

static by_status read_zip(reader *r)
{
    io_zip z;
    r->out->format = "PyTorch zip";
    by_status status = io_zip_open(&z, r->arena, r->bytes, r->size, r->what);
    if (status == BY_OK)
        status = read_records(r, &z);
    io_zip_close(&z);
    return status;
}

/* ---- the stream of pickles ------------------------------------------------------------------- */

static const io_pickled *member(const io_pickled *dict, const char *key)
{
    for (uint32_t i = 0; i + 1 < dict->count && dict->kind == IO_PICKLE_DICT; i += 2)
        if (is_text(dict->items[i], key))
            return dict->items[i + 1];
    return NULL;
}

/* Reads the magic number, the protocol version, and the description of the machine. */
static by_status read_preamble(reader *r, const uint8_t **at)
{
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    const io_pickled *part[3];
    for (int i = 0; i < 3; i++) {
        part[i] = io_pickle_read(r->arena, at, r->bytes + r->size, globals, r->what, NULL);
        if (!part[i])
            return base_error_status();
        if (i == 0 &&
            (part[0]->kind != IO_PICKLE_LONG || part[0]->size != 10 || memcmp(part[0]->text, magic, 10)))
            return base_fail(BY_ERR_FORMAT, "%s: not a PyTorch file (a different pickle)", r->what);
    }
    if (part[1]->kind != IO_PICKLE_INT || part[1]->number != 1001)
        return base_fail(BY_ERR_UNSUPPORTED, "%s: a PyTorch file with an unknown protocol version", r->what);
    const io_pickled *little = member(part[2], "little_endian");
    if (little && (little->kind != IO_PICKLE_BOOL || !little->number))
        return base_fail(BY_ERR_UNSUPPORTED, "%s: big-endian files are not supported", r->what);
    return BY_OK;
}

/* Reads the storages after the last pickle, a list of keys: for each key an eight-byte count and the
 * elements. */
static by_status read_storages(reader *r, const io_pickled *keys, const uint8_t *at)
{
    const uint8_t *end = r->bytes + r->size;
    if (keys->kind != IO_PICKLE_LIST)
        return base_fail(BY_ERR_FORMAT, "%s: the list of storages is %s", r->what,
                         io_pickle_kind_name(keys->kind));
    for (uint32_t i = 0; i < keys->count; i++) {
        const io_pickled *key = keys->items[i];
        int known = key->kind == IO_PICKLE_TEXT ? base_names_find(r->keys, key->text) : -1;
        if (known < 0)
            return base_fail(BY_ERR_UNSUPPORTED, "%s: contains a storage that no tensor uses", r->what);
        storage *s = &r->storages[known];
        uint64_t count = 0;
        for (int k = 7; k >= 0 && end - at >= 8; k--)
            count = count << 8 | at[k];
        if (end - at < 8 || count != s->count || s->bytes > (size_t)(end - at) - 8)
            return base_fail(BY_ERR_FORMAT,
                             "%s: storage \"%s\" has %llu elements in the file, expected %zu%s", r->what,
                             io_show(s->key).text, (unsigned long long)count, s->count,
                             count == s->count ? "; the file is truncated" : "");
        s->data = at + 8;
        at += 8 + s->bytes;
    }
    return place_tensors(r);
}

static by_status read_stream(reader *r)
{
    const uint8_t *at = r->bytes, *end = at + r->size;
    r->out->format = "PyTorch stream";
    BY_TRY(read_preamble(r, &at));
    const io_pickled *outside, *state = io_pickle_read(r->arena, &at, end, globals, r->what, &outside);
    if (!state)
        return base_error_status();
    BY_TRY(read_state(r, state, outside));
    const io_pickled *keys = io_pickle_read(r->arena, &at, end, globals, r->what, NULL);
    return keys ? read_storages(r, keys, at) : base_error_status();
}

by_status io_torch_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what)
{
    reader r = {.out = s, .arena = base_arena_new(), .bytes = bytes, .size = size, .what = what};
    by_status status = BY_ERR_MEMORY;
    if (r.arena)
        status = bytes[0] == 'P' ? read_zip(&r) : read_stream(&r);
    base_names_free(r.keys);
    base_free(r.storages);
    base_free(r.views);
    base_arena_free(r.arena);
    return status;
}
