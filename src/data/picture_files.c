/* picture_files.c - many small pictures in one file: IDX (MNIST, Fashion-MNIST) and the binary files of
 * CIFAR-10 and CIFAR-100 (data/picture_set.h). */
#include <stdio.h>

#include "base/file.h"
#include "base/input.h"
#include "data/picture_set.h"

/* ---- IDX ----------------------------------------------------------------------------------------
 * Two zero bytes, the type of elements (8: unsigned bytes), the number of axes, their lengths as big-endian
 * 32-bit numbers, then the elements. */

enum { IDX_BYTES = 8, IDX_DOUBLES = 14, IDX_AXES = 4 };

typedef struct idx {
    int axes;
    uint64_t length[IDX_AXES];
} idx;

/* Reads n bytes or fails. */
static by_status take(FILE *f, const char *path, void *out, size_t n)
{
    const size_t got = fread(out, 1, n, f);
    BY_TRY(base_input_check(f, path));
    return got == n ? BY_OK : base_fail(BY_ERR_FORMAT, "%s: the file is truncated", path);
}

static by_status read_header(FILE *f, const char *path, idx *h)
{
    uint8_t b[4];
    BY_TRY(take(f, path, b, 4));
    if (b[0] || b[1] || b[2] != IDX_BYTES || b[3] < 1 || b[3] > IDX_AXES)
        return base_fail(BY_ERR_FORMAT, "%s: not an IDX file of bytes with at most %d axes", path, IDX_AXES);
    h->axes = b[3];
    for (int i = 0; i < h->axes; i++) {
        BY_TRY(take(f, path, b, 4));
        h->length[i] = (uint64_t)b[0] << 24 | (uint64_t)b[1] << 16 | (uint64_t)b[2] << 8 | b[3];
    }
    return BY_OK;
}

/* Reads the elements, which must end the file. Each of at most four lengths is below 2^32: `max` is checked
 * factor by factor. */
static uint8_t *read_elements(FILE *f, const by_picture_set *p, const char *path, const idx *h)
{
    uint64_t bytes = 1;
    for (int i = 0; i < h->axes; i++) {
        if (h->length[i] && bytes > UINT64_MAX / h->length[i])
            bytes = UINT64_MAX;
        else
            bytes *= h->length[i];
    }
    if (data_picture_set_check_bytes(p, path, bytes) != BY_OK)
        return NULL;
    uint8_t *out = base_alloc((size_t)bytes);
    if (out && take(f, path, out, (size_t)bytes) == BY_OK) {
        if (fgetc(f) == EOF && base_input_check(f, path) == BY_OK)
            return out;
        if (base_error_status() == BY_OK)
            base_fail(BY_ERR_FORMAT, "%s: the file has more bytes than its header says", path);
    }
    base_free(out);
    return NULL;
}

static uint8_t *read_idx(const by_picture_set *p, const char *path, idx *h)
{
    base_error_clear();
    FILE *f = base_input_open(path);
    uint8_t *out = f && read_header(f, path, h) == BY_OK ? read_elements(f, p, path, h) : NULL;
    base_input_close(f);
    return out;
}

bool data_picture_set_is_idx(const char *path)
{
    uint8_t b[4] = {1};
    FILE *f = base_input_open(path);
    const size_t n = f ? fread(b, 1, 4, f) : 0;
    base_input_close(f);
    base_error_clear(); /* the error is reported on opening the file */
    return n == 4 && !b[0] && !b[1] && b[2] >= IDX_BYTES && b[2] <= IDX_DOUBLES && b[3] >= 1;
}

/* Replaces `from` by `to` in the file name, not in the directory. Returns a heap string; NULL: out of memory,
 * or it does not occur. */
static char *replace(const char *path, const char *from, const char *to)
{
    const char *slash = strrchr(path, '/'), *at = strstr(slash ? slash : path, from);
    return at ? base_sprintf("%.*s%s%s", (int)(at - path), path, to, at + strlen(from)) : NULL;
}

/* The label file of a file of pictures, compressed or not, as a heap string, or NULL. */
static char *find_labels(const char *path)
{
    char *axes = replace(path, "idx3", "idx1");
    char *labels = replace(axes ? axes : path, "images", "labels");
    base_free(axes);
    if (!labels || base_file_exists(labels))
        return labels;
    const size_t stem = base_input_stem(labels);
    char *other = labels[stem] ? base_sprintf("%.*s", (int)stem, labels) : base_sprintf("%s.gz", labels);
    const bool there = other && base_file_exists(other);
    base_free(labels);
    if (!there)
        base_free(other);
    return there ? other : NULL;
}

static by_status read_labels(by_picture_set *p, const char *path, uint64_t count, uint8_t **out)
{
    idx h = {0};
    char *file = find_labels(path);
    *out = NULL;
    if (!file)
        return p->spec.kind == BY_EXAMPLE_IMAGE
                   ? BY_OK
                   : base_fail(BY_ERR_FORMAT,
                               "%s: no label file; its name has \"labels\" for \"images\" and "
                               "\"idx1\" for \"idx3\"",
                               path);
    uint8_t *labels = read_idx(p, file, &h);
    by_status s = labels ? BY_OK : base_error_status();
    if (labels && h.axes != 1)
        s = base_fail(BY_ERR_FORMAT, "%s: the file has %d axes; labels have one", file, h.axes);
    else if (labels && h.length[0] != count)
        s = base_fail(BY_ERR_FORMAT, "%s: %llu labels for %llu pictures", file,
                      (unsigned long long)h.length[0], (unsigned long long)count);
    int most = 0;
    for (uint64_t i = 0; s == BY_OK && i < count; i++)
        most = BY_MAX(most, labels[i] + 1);
    if (s == BY_OK)
        s = data_picture_set_name_classes(p, path, "classes.txt", most);
    base_free(file);
    if (s == BY_OK)
        *out = labels;
    else
        base_free(labels);
    return s;
}

static by_status check_shape(const by_picture_set *p, const char *path, const idx *h)
{
    const uint64_t channels = h->axes == 4 ? h->length[3] : 1;
    const uint64_t most = p->spec.max_pixels ? (uint64_t)p->spec.max_pixels : (uint64_t)INT32_MAX;
    if (h->axes < 3 || (channels != 1 && channels != 3))
        return base_fail(
            BY_ERR_FORMAT,
            "%s: the file has %d axes; pictures have (count, height, width), or 1 or 3 channels after them",
            path, h->axes);
    if (!h->length[1] || !h->length[2])
        return base_fail(BY_ERR_FORMAT, "%s: pictures of %llu x %llu pixels are empty", path,
                         (unsigned long long)h->length[2], (unsigned long long)h->length[1]);
    if (h->length[1] > most / h->length[2])
        return base_fail(BY_ERR_FORMAT,
                         "%s: %llu pictures of %llu x %llu pixels; at most %llu pixels are allowed", path,
                         (unsigned long long)h->length[0], (unsigned long long)h->length[2],
                         (unsigned long long)h->length[1], (unsigned long long)most);
    if (h->length[0] > INT32_MAX)
        return base_fail(BY_ERR_FORMAT, "%s: %llu pictures; at most %d are read", path,
                         (unsigned long long)h->length[0], INT32_MAX);
    return BY_OK;
}

static by_status no_captions(const by_picture_set *p, const char *path)
{
    return p->spec.kind == BY_EXAMPLE_CAPTION ? base_fail(BY_ERR_FORMAT, "%s: the file has no captions", path)
                                              : BY_OK;
}

by_status data_picture_set_idx(by_picture_set *p, const char *path)
{
    idx h = {0};
    uint8_t *labels = NULL;
    BY_TRY(no_captions(p, path));
    base_error_clear();
    FILE *f = base_input_open(path);
    by_status s = f ? read_header(f, path, &h) : base_error_status();
    if (s == BY_OK)
        s = check_shape(p, path, &h);
    uint8_t *bytes = s == BY_OK ? read_elements(f, p, path, &h) : NULL;
    base_input_close(f);
    if (s == BY_OK)
        s = bytes ? read_labels(p, path, h.length[0], &labels) : base_error_status();
    if (s != BY_OK) {
        base_free(bytes);
        return s;
    }
    const int channels = h.axes == 4 ? (int)h.length[3] : 1;
    const data_picture_block b = {.bytes = bytes,
                                  .stride = (size_t)(h.length[1] * h.length[2]) * (size_t)channels,
                                  .height = (int)h.length[1],
                                  .width = (int)h.length[2],
                                  .channels = channels};
    s = data_picture_set_add_block(p, path, &b, (int64_t)h.length[0], labels);
    base_free(labels);
    return s;
}

/* ---- CIFAR --------------------------------------------------------------------------------------
 * Records of one class byte (CIFAR-10), or a superclass and a class (CIFAR-100), and 32 x 32 pixels in planes,
 * one for each channel. */

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE };

/* Class bytes of a record: 1 or 2; 0 if it has neither size. If both sizes fit, the values decide. */
static int class_bytes(const uint8_t *bytes, size_t size)
{
    static const uint8_t most[2][2] = {{10, 0}, {20, 100}};
    for (size_t k = 1; k <= 2; k++) {
        bool fits = size > 0 && size % (PIXELS + k) == 0;
        for (size_t at = 0; fits && at < size; at += PIXELS + k)
            fits = bytes[at] < most[k - 1][0] && (k == 1 || bytes[at + 1] < most[1][1]);
        if (fits)
            return (int)k;
    }
    return 0;
}

by_status data_picture_set_cifar(by_picture_set *p, const char *path)
{
    const size_t most = p->spec.max_bytes ? (size_t)p->spec.max_bytes : (size_t)8 << 30;
    size_t size = 0;
    BY_TRY(no_captions(p, path));
    uint8_t *bytes = (uint8_t *)base_input_read(path, most, &size);
    if (!bytes)
        return base_error_status();
    const int k = class_bytes(bytes, size);
    const size_t stride = (size_t)(PIXELS + k), count = size / stride;
    uint8_t *labels = k && count <= INT32_MAX ? base_alloc(count) : NULL;
    by_status s = labels ? BY_OK
                  : k    ? BY_ERR_MEMORY
                         : base_fail(BY_ERR_FORMAT,
                                     "%s: not a file of CIFAR-10 (records of 3073 bytes, classes 0 to 9) or "
                                        "CIFAR-100 (3074 bytes)",
                                     path);
    const bool coarse = k == 2 && p->spec.coarse;
    p->had_coarse = p->had_coarse || coarse;
    for (size_t i = 0; s == BY_OK && i < count; i++)
        labels[i] = bytes[i * stride + (k == 2 && !coarse)];
    if (s == BY_OK)
        s = data_picture_set_name_classes(p, path,
                                          k == 1   ? "batches.meta.txt"
                                          : coarse ? "coarse_label_names.txt"
                                                   : "fine_label_names.txt",
                                          k == 1   ? 10
                                          : coarse ? 20
                                                   : 100);
    if (s == BY_OK)
        s = data_picture_set_add_block(p, path,
                                       &(data_picture_block){.bytes = bytes,
                                                             .stride = stride,
                                                             .skip = (size_t)k,
                                                             .height = SIDE,
                                                             .width = SIDE,
                                                             .channels = 3,
                                                             .planar = true},
                                       (int64_t)count, labels);
    else
        base_free(bytes);
    base_free(labels);
    return s;
}
