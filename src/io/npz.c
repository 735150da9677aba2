/* npz.c - reads files written by numpy.savez: a zip archive of arrays, each a .npy file. Its header is a Python dictionary of three
 * members, {'descr': '<f4', 'fortran_order': False, 'shape': (29, 256), }, which is parsed as such and nothing else. */
#include "io/weights.h"
#include "io/zip.h"

static const struct {
    const char *name;
    by_dtype type;
} types[] = {{"<f4", BY_F32},  {"<f8", BY_F64}, {"<f2", BY_F16}, {"<i8", BY_I64},
             {"<i4", BY_I32},  {"<i2", BY_I16}, {"|i1", BY_I8},  {"|u1", BY_U8},
             {"|b1", BY_BOOL}, {"<u2", BY_U16}, {"<u4", BY_U32}, {"<u8", BY_U64}};

/* The first record of the archive is an array. */
bool io_npz_is(const uint8_t *bytes, size_t size)
{
    enum { HEADER = 30 };
    if (size < HEADER || memcmp(bytes, "PK\3\4", 4) != 0)
        return false;
    const size_t name = (size_t)bytes[26] | (size_t)bytes[27] << 8;
    return name > 4 && size - HEADER >= name && memcmp(bytes + HEADER + name - 4, ".npy", 4) == 0;
}

/* ---- the header of an array -------------------------------------------------------------------- */

typedef struct header {
    const char *at, *end;
    char type[8];
    bool fortran;
    by_weight *to;
} header;

static bool skip(header *h, char c)
{
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n'))
        h->at++;
    if (h->at == h->end || *h->at != c)
        return false;
    h->at++;
    return true;
}

/* A string in single quotes, without escapes. */
static bool read_string(header *h, char *out, size_t room)
{
    if (!skip(h, '\''))
        return false;
    size_t n = 0;
    while (h->at < h->end && *h->at != '\'' && *h->at != '\\' && n + 1 < room)
        out[n++] = *h->at++;
    out[n] = '\0';
    return skip(h, '\'');
}

static bool read_word(header *h, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(h->end - h->at) < n || memcmp(h->at, word, n) != 0)
        return false;
    h->at += n;
    return true;
}

static bool read_bool(header *h, bool *out)
{
    while (h->at < h->end && *h->at == ' ')
        h->at++;
    *out = read_word(h, "True");
    return *out || read_word(h, "False");
}

static bool read_number(header *h, int64_t *out)
{
    int64_t n = 0;
    int digits = 0;
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9' && digits < 18; digits++)
        n = n * 10 + (*h->at++ - '0');
    *out = n;
    return digits > 0;
}

/* (), (3,), (29, 256) */
static bool read_shape(header *h)
{
    h->to->rank = 0;
    if (!skip(h, '('))
        return false;
    while (!skip(h, ')')) {
        if (h->to->rank == BY_WEIGHT_MAX_RANK || !read_number(h, &h->to->dim[h->to->rank++]))
            return false;
        if (!skip(h, ','))
            return skip(h, ')');
        skip(h, ' ');
    }
    return true;
}

static bool read_member(header *h)
{
    char key[16];
    if (!read_string(h, key, sizeof key) || !skip(h, ':'))
        return false;
    if (strcmp(key, "descr") == 0)
        return read_string(h, h->type, sizeof h->type);
    if (strcmp(key, "fortran_order") == 0)
        return read_bool(h, &h->fortran);
    return strcmp(key, "shape") == 0 && read_shape(h);
}

static bool read_header(header *h)
{
    if (!skip(h, '{'))
        return false;
    while (!skip(h, '}')) {
        if (!read_member(h))
            return false;
        if (!skip(h, ','))
            return skip(h, '}');
    }
    return h->type[0] != '\0';
}

/* ---- arrays ------------------------------------------------------------------------------------ */

static by_status fail(const char *what, const by_weight *w, const char *problem)
{
    return base_fail(BY_ERR_FORMAT, "%s: array \"%s\": %s", what, io_show(w->name).text, problem);
}

static by_status set_type(const header *h, const char *what)
{
    for (int i = 0; i < BY_COUNT(types); i++)
        if (strcmp(h->type, types[i].name) == 0) {
            h->to->dtype = types[i].type;
            return BY_OK;
        }
    return base_fail(BY_ERR_UNSUPPORTED,
                     "%s: array \"%s\" has elements of type \"%s\", which are not supported", what,
                     io_show(h->to->name).text, io_show(h->type).text);
}

/* Column by column: neighbours along the first axis are neighbours in memory. */
static by_status set_strides(by_weights *s, by_weight *w)
{
    int64_t *stride = base_arena_alloc(s->arena, BY_WEIGHT_MAX_RANK * sizeof *stride), step = 1;
    if (!stride)
        return BY_ERR_MEMORY;
    memset(stride, 0, BY_WEIGHT_MAX_RANK * sizeof *stride);
    for (int i = 0; i < w->rank; i++) {
        stride[i] = step;
        step *= BY_MAX(w->dim[i], 1);
    }
    w->stride = stride;
    return BY_OK;
}

/* Version 1 has two bytes for the length of the header, later ones four. */
static by_status read_array(by_weights *s, const io_zip_record *r, by_weight *w, const char *what)
{
    const uint8_t *p = r->data;
    if (r->size < 12 || memcmp(p, "\x93NUMPY", 6) != 0 || p[6] < 1 || p[6] > 3)
        return fail(what, w, "not a .npy file of version 1 to 3");
    const size_t first = p[6] == 1 ? 10 : 12;
    size_t length = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1)
        length |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (length > r->size - first)
        return fail(what, w, "its header is longer than the file");
    header h = {.at = (const char *)p + first, .end = (const char *)p + first + length, .to = w};
    if (!read_header(&h))
        return fail(what, w, "malformed header");
    BY_TRY(set_type(&h, what));
    if (!io_weight_bytes(w, &w->bytes) || w->bytes > r->size - first - length)
        return fail(what, w, "has fewer elements than its shape says");
    w->data = p + first + length;
    return h.fortran && w->rank > 1 ? set_strides(s, w) : BY_OK;
}

static by_status read_arrays(by_weights *s, const io_zip *z, const char *what)
{
    s->list = base_alloc_zero((size_t)z->count + 1, sizeof *s->list);
    if (!s->list)
        return BY_ERR_MEMORY;
    for (int i = 0; i < z->count; i++) {
        by_weight *w = &s->list[s->count];
        const size_t n = strlen(z->list[i].name);
        if (n <= 4 || strcmp(z->list[i].name + n - 4, ".npy") != 0)
            return base_fail(BY_ERR_FORMAT, "%s: \"%s\" is not an array", what,
                             io_show(z->list[i].name).text);
        w->name = base_arena_sprintf(s->arena, "%.*s", (int)(n - 4), z->list[i].name);
        if (!w->name)
            return BY_ERR_MEMORY;
        BY_TRY(read_array(s, &z->list[i], w, what));
        s->count++;
    }
    return io_weights_sort(s->list, s->count, what, BY_ERR_FORMAT);
}

by_status io_npz_read(by_weights *s, const uint8_t *bytes, size_t size, const char *what)
{
    io_zip z;
    base_arena *arena = base_arena_new();
    if (!arena)
        return BY_ERR_MEMORY;
    s->format = "NumPy npz";
    by_status status = io_zip_open(&z, arena, bytes, size, what);
    if (status == BY_OK)
        status = read_arrays(s, &z, what);
    io_zip_close(&z);
    base_arena_free(arena);
    return status;
}
