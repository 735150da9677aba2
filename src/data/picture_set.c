/* picture_set.c - see banyan/picture_set.h: the list of examples, their classes, and the pictures
 * themselves. */
#include "data/picture_set.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/input.h"
#include "image/picture.h"

#define MAX_BYTES  ((int64_t)8 << 30)
#define MAX_PACKED 1032 /* the highest compression ratio of deflate */

/* ---- examples ---------------------------------------------------------------------------------- */

static data_picture *append(by_picture_set *p)
{
    if (p->count == p->capacity) {
        const int64_t grown = p->capacity ? p->capacity * 2 : 1024;
        data_picture *list = base_resize(p->list, (size_t)grown, sizeof *list);
        if (!list)
            return NULL;
        p->list = list;
        p->capacity = grown;
    }
    p->list[p->count] = (data_picture){.block = -1, .label = -1};
    return &p->list[p->count++];
}

static void mix(by_picture_set *p, const void *bytes, size_t n)
{
    p->fingerprint = base_hash(bytes, n, p->fingerprint);
}

static void mix_text(by_picture_set *p, const char *text)
{
    if (text)
        mix(p, text, strlen(text) + 1);
}

by_status data_picture_set_add(by_picture_set *p, const char *path, const char *label, const char *caption)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return base_fail(BY_ERR_IO, "%s: %s", path,
                         access(path, F_OK) != 0 ? "no such file" : "not a regular file");
    data_picture *x = append(p);
    if (!x)
        return BY_ERR_MEMORY;
    x->path = path;
    x->caption = caption;
    if (label && (x->label = data_picture_set_class(p, label)) < 0)
        return BY_ERR_MEMORY;
    const char *name = strrchr(path, '/');
    const int64_t size = st.st_size;
    mix_text(p, name ? name + 1 : path);
    mix(p, &size, sizeof size);
    mix_text(p, label);
    mix_text(p, caption);
    return BY_OK;
}

by_status data_picture_set_add_block(by_picture_set *p, const char *path, const data_picture_block *b,
                                     int64_t count, const uint8_t *labels)
{
    data_picture_block *blocks =
        p->n_blocks < INT16_MAX ? base_resize(p->blocks, (size_t)p->n_blocks + 1, sizeof *blocks) : NULL;
    const char *own = blocks ? base_arena_strdup(p->arena, path) : NULL;
    p->blocks = blocks ? blocks : p->blocks;
    if (!own) {
        base_free(b->bytes);
        return BY_ERR_MEMORY;
    }
    p->blocks[p->n_blocks] = *b;
    for (int64_t i = 0; i < count; i++) {
        data_picture *x = append(p);
        if (!x)
            return BY_ERR_MEMORY;
        *x = (data_picture){.path = own,
                            .number = (int32_t)i,
                            .block = (int16_t)p->n_blocks,
                            .label = labels ? labels[i] : -1};
    }
    p->n_blocks++;
    const uint64_t sums[] = {base_checksum(b->bytes, (size_t)count * b->stride),
                             labels ? base_checksum(labels, (size_t)count) : 0};
    mix(p, sums, sizeof sums);
    return BY_OK;
}

by_status data_picture_set_check_bytes(const by_picture_set *p, const char *path, uint64_t bytes)
{
    const int64_t most = p->spec.max_bytes > 0 ? p->spec.max_bytes : MAX_BYTES;
    struct stat st;
    if (bytes > (uint64_t)most)
        return base_fail(BY_ERR_FORMAT,
                         "%s: the pictures need %llu bytes of memory; at most %lld are allowed", path,
                         (unsigned long long)bytes, (long long)most);
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && bytes / MAX_PACKED > (uint64_t)st.st_size)
        return base_fail(BY_ERR_FORMAT, "%s: the header claims %llu bytes, more than the file can hold", path,
                         (unsigned long long)bytes);
    return BY_OK;
}

/* ---- classes ----------------------------------------------------------------------------------- */

int data_picture_set_class(by_picture_set *p, const char *name)
{
    int found = base_names_find(p->numbers, name);
    if (found >= 0)
        return found;
    if (p->classes.count == p->class_room) {
        const int grown = p->class_room ? p->class_room * 2 : 64;
        const char **names = base_resize(p->classes.names, (size_t)grown, sizeof *names);
        if (!names)
            return -1;
        p->classes.names = names;
        p->class_room = grown;
    }
    const char *own = base_arena_strdup(p->arena, name);
    if (!own || base_names_put(p->numbers, own, p->classes.count) != BY_OK)
        return -1;
    p->classes.names[p->classes.count] = own;
    return p->classes.count++;
}

/* Numbers the classes of files in sorted order, independent of the order in which they were found. */
static by_status sort_classes(by_picture_set *p)
{
    const int n = p->classes.count;
    int *to = base_alloc((size_t)n * sizeof *to + 1);
    data_labels sorted = {.names = base_alloc((size_t)n * sizeof *sorted.names + 1), .count = n};
    if (!to || !sorted.names) {
        base_free(to);
        base_free(sorted.names);
        return BY_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++)
        sorted.names[i] = p->classes.names[i];
    data_labels_sort(&sorted);
    by_status s = BY_OK;
    for (int i = 0; i < n; i++)
        to[base_names_find(p->numbers, sorted.names[i])] = i;
    for (int64_t i = 0; i < p->count; i++)
        p->list[i].label = p->list[i].label < 0 ? -1 : to[p->list[i].label];
    for (int i = 0; i < n && s == BY_OK; i++)
        s = base_names_put(p->numbers, sorted.names[i], i);
    base_free(p->classes.names);
    p->classes = sorted;
    p->class_room = n;
    base_free(to);
    return s;
}

/* Names with commas, or one per line. */
static by_status add_names(by_picture_set *p, const char *text, const char *separators)
{
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, separators);
        size_t length = n;
        while (length && (at[length - 1] == ' ' || at[length - 1] == '\r'))
            length--;
        char *name = length ? base_sprintf("%.*s", (int)length, at) : NULL;
        const int before = p->classes.count, got = name ? data_picture_set_class(p, name) : 0;
        base_free(name);
        if (got < 0 || (length && !name))
            return BY_ERR_MEMORY;
        if (name && got < before)
            return base_fail(BY_ERR_FORMAT, "the class \"%.60s\" is named twice", p->classes.names[got]);
        at += n + (at[n] != '\0');
    }
    return BY_OK;
}

static by_status add_names_file(by_picture_set *p, const char *path)
{
    char *text = base_input_read(path, 1 << 20, NULL);
    if (!text)
        return base_error_status();
    by_status s = add_names(p, text, "\n");
    base_free(text);
    return s == BY_OK ? BY_OK : base_fail_context("%s", path);
}

by_status data_picture_set_name_classes(by_picture_set *p, const char *path, const char *file, int count)
{
    char number[16];
    if (p->classes.count == 0 && p->spec.classes) {
        const bool file_of_names = base_file_exists(p->spec.classes) || !strchr(p->spec.classes, ',');
        BY_TRY(file_of_names ? add_names_file(p, p->spec.classes) : add_names(p, p->spec.classes, ","));
        p->named_classes = true;
    } else if (p->classes.count == 0) {
        const char *slash = strrchr(path, '/');
        char *beside = base_sprintf("%.*s%s", (int)(slash ? slash + 1 - path : 0), path, file);
        by_status s = beside ? BY_OK : BY_ERR_MEMORY;
        if (beside && base_file_exists(beside))
            s = add_names_file(p, beside);
        base_free(beside);
        BY_TRY(s);
    }
    if (p->classes.count && p->spec.classes && p->classes.count < count)
        return base_fail(BY_ERR_ARGUMENT, "%s has the class %d, but only %d classes are named", path,
                         count - 1, p->classes.count);
    while (p->classes.count < count) {
        base_format(number, sizeof number, "%d", p->classes.count);
        if (data_picture_set_class(p, number) < 0)
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

by_status by_picture_set_number(by_picture_set *p, const char *const *names, int count)
{
    if (!p || (!names && count))
        return base_fail_missing(p ? "list of classes" : "dataset");
    data_labels old = p->classes;
    int *to = base_alloc((size_t)old.count * sizeof *to + 1);
    by_status s = to ? BY_OK : BY_ERR_MEMORY;
    base_names_free(p->numbers);
    p->numbers = base_names_new();
    p->classes = (data_labels){0};
    p->class_room = 0;
    if (s == BY_OK && !p->numbers)
        s = BY_ERR_MEMORY;
    for (int i = 0; i < count && s == BY_OK; i++)
        s = data_picture_set_class(p, names[i]) < 0 ? BY_ERR_MEMORY : BY_OK;
    for (int i = 0; i < old.count && s == BY_OK; i++) {
        to[i] = data_label_find(p->numbers, &p->classes, old.names[i]);
        if (to[i] < 0)
            s = base_fail(BY_ERR_FORMAT, "the class \"%.60s\" is not one of the model's %d classes%s%.40s%s",
                          old.names[i], count, count ? ", the first of which is \"" : "",
                          count ? names[0] : "", count ? "\"" : "");
    }
    for (int64_t i = 0; i < p->count && s == BY_OK; i++)
        p->list[i].label = p->list[i].label < 0 ? -1 : to[p->list[i].label];
    base_free(to);
    base_free(old.names);
    return s;
}

/* ---- opening ----------------------------------------------------------------------------------- */

/* The first of these files that exists in a directory, as a heap string in *out; NULL: none. */
static by_status find_in(const char *dir, const char *const *names, int count, char **out)
{
    *out = NULL;
    for (int i = 0; i < count && !*out; i++) {
        char *path = base_path_join(dir, names[i]);
        if (!path)
            return BY_ERR_MEMORY;
        if (base_file_exists(path))
            *out = path;
        else
            base_free(path);
    }
    return BY_OK;
}

static by_status open_file(by_picture_set *p, const char *path)
{
    if (p->spec.kind == BY_EXAMPLE_IMAGE && data_picture_set_is_picture(path)) {
        const char *own = base_arena_strdup(p->arena, path);
        return own ? data_picture_set_add(p, own, NULL, NULL) : BY_ERR_MEMORY;
    }
    if (data_picture_set_is_idx(path))
        return data_picture_set_idx(p, path);
    return base_input_ends(path, ".bin") ? data_picture_set_cifar(p, path) : data_picture_set_list(p, path);
}

static by_status open_directory(by_picture_set *p, const char *dir)
{
    static const char *const files[] = {"train-images-idx3-ubyte",
                                        "train-images-idx3-ubyte.gz",
                                        "train-images.idx3-ubyte",
                                        "data_batch_1.bin",
                                        "train.bin",
                                        "metadata.jsonl",
                                        "metadata.csv",
                                        "metadata.tsv"};
    char *path;
    BY_TRY(find_in(dir, files, BY_COUNT(files), &path));
    if (!path)
        return data_picture_set_folder(p, dir);
    by_status s = open_file(p, path);
    const size_t n = strlen(path);
    for (int k = 2; s == BY_OK && n > 16 && strcmp(path + n - 16, "data_batch_1.bin") == 0 && k <= 5; k++) {
        path[n - 5] = (char)('0' + k);
        if (base_file_exists(path))
            s = data_picture_set_cifar(p, path);
        path[n - 5] = '1';
    }
    base_free(path);
    return s;
}

static by_status check_spec(const by_picture_set_spec *s)
{
    if (!data_kind_is_picture(s->kind))
        return base_fail(BY_ERR_ARGUMENT, "pictures have classes, captions or neither");
    if (s->format != BY_PIXELS_RGB && s->format != BY_PIXELS_GREY && s->format != BY_PIXELS_NATIVE)
        return base_fail(BY_ERR_ARGUMENT, "datasets have RGB or grey pictures");
    return s->max_pixels < 0 || s->max_bytes < 0 ? base_fail(BY_ERR_ARGUMENT, "a limit is negative") : BY_OK;
}

static by_status open_paths(by_picture_set *p, const char *const *paths, int count)
{
    for (int i = 0; i < count; i++)
        BY_TRY(base_dir_exists(paths[i]) ? open_directory(p, paths[i]) : open_file(p, paths[i]));
    if (p->count == 0)
        return base_fail(BY_ERR_FORMAT, "%s: no pictures found", count ? paths[0] : "the dataset");
    return p->n_blocks ? BY_OK : sort_classes(p);
}

by_picture_set *by_picture_set_open(const char *const *paths, int count, const by_picture_set_spec *spec)
{
    if (!paths || !spec) {
        base_fail_missing(paths ? "by_picture_set_spec" : "list of paths");
        return NULL;
    }
    if (check_spec(spec) != BY_OK)
        return NULL;
    by_picture_set *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    p->spec = *spec;
    p->arena = base_arena_new();
    p->numbers = base_names_new();
    if (!p->arena || !p->numbers || open_paths(p, paths, count) != BY_OK) {
        by_picture_set_free(p);
        return NULL;
    }
    if (spec->format == BY_PIXELS_NATIVE)
        p->spec.format = by_picture_set_channels(p) == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB;
    return p;
}

by_status data_picture_set_check_use(const by_picture_set *p, const by_picture_set *other)
{
    const by_picture_set_spec *s = &p->spec;
    const by_picture_set *o = other ? other : p;
    if (s->classes && !p->named_classes && !o->named_classes)
        return base_fail(BY_ERR_ARGUMENT,
                         "class names are for IDX and CIFAR files; these data name their own");
    if (s->coarse && !p->had_coarse && !o->had_coarse)
        return base_fail(BY_ERR_ARGUMENT, "only CIFAR-100 has superclasses");
    const bool columns = s->file || s->label || s->header != BY_HEADER_AUTO;
    return columns && !o->had_list ? data_picture_set_check_list(p) : BY_OK;
}

by_status data_picture_set_check_list(const by_picture_set *p)
{
    return p->had_list ? BY_OK
                       : base_fail(BY_ERR_ARGUMENT,
                                   "columns and headers are for lists of pictures, which these data are not");
}

void by_picture_set_free(by_picture_set *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_blocks; i++)
        base_free(p->blocks[i].bytes);
    base_free(p->blocks);
    base_free(p->list);
    base_free(p->classes.names);
    base_names_free(p->numbers);
    base_arena_free(p->arena);
    base_free(p);
}

/* ---- properties -------------------------------------------------------------------------------- */

int64_t by_picture_set_count(const by_picture_set *p)
{
    return p->count;
}

int by_picture_set_channels(const by_picture_set *p)
{
    if (p->spec.format != BY_PIXELS_NATIVE)
        return p->spec.format == BY_PIXELS_GREY ? 1 : 3;
    int most = p->n_blocks ? 1 : 3;
    for (int i = 0; i < p->n_blocks; i++)
        most = BY_MAX(most, p->blocks[i].channels);
    return p->count && p->list[0].block < 0 ? 3 : most;
}

void by_picture_set_size(const by_picture_set *p, int *height, int *width)
{
    *height = *width = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (p->list[i].block < 0)
            return;
    for (int i = 0; i < p->n_blocks; i++)
        if (p->blocks[i].height != p->blocks[0].height || p->blocks[i].width != p->blocks[0].width)
            return;
    *height = p->blocks[0].height;
    *width = p->blocks[0].width;
}

int by_picture_set_label(const by_picture_set *p, int64_t i)
{
    return p->list[i].label;
}

const char *by_picture_set_caption(const by_picture_set *p, int64_t i)
{
    return p->list[i].caption;
}

void by_picture_set_name(const by_picture_set *p, int64_t i, char *out, size_t size)
{
    const data_picture *x = &p->list[i];
    if (x->block < 0)
        base_format(out, size, "%s", x->path);
    else
        base_format(out, size, "%s:%d", x->path, (int)x->number);
}

int by_picture_set_classes(const by_picture_set *p)
{
    return p->classes.count;
}

const char *by_picture_set_class(const by_picture_set *p, int i)
{
    return i >= 0 && i < p->classes.count ? p->classes.names[i] : NULL;
}

uint64_t by_picture_set_fingerprint(const by_picture_set *p)
{
    return p->fingerprint;
}

static by_image *from_block(const by_picture_set *p, const data_picture *x)
{
    const data_picture_block *b = &p->blocks[x->block];
    const uint8_t *from = b->bytes + (size_t)x->number * b->stride + b->skip;
    const size_t plane = (size_t)b->height * (size_t)b->width, channels = (size_t)b->channels;
    by_image *m = by_image_new(b->width, b->height, b->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB);
    if (!m)
        return NULL;
    uint8_t *to = m->pixels;
    if (!b->planar)
        memcpy(to, from, plane * channels);
    for (size_t i = 0; b->planar && i < plane; i++)
        for (size_t c = 0; c < channels; c++)
            to[i * channels + c] = from[c * plane + i];
    return image_convert(m, p->spec.format);
}

by_image *by_picture_set_get(const by_picture_set *p, int64_t i)
{
    if (!p || i < 0 || i >= p->count) {
        p ? base_fail(BY_ERR_ARGUMENT, "no picture %lld", (long long)i) : base_fail_missing("dataset");
        return NULL;
    }
    const data_picture *x = &p->list[i];
    if (x->block >= 0)
        return from_block(p, x);
    return by_image_open(
        x->path,
        &(by_image_spec){.format = p->spec.format, .upright = true, .max_pixels = p->spec.max_pixels});
}

/* ---- parts ------------------------------------------------------------------------------------- */

int64_t data_picture_part_at(const data_picture_part *d, int64_t i)
{
    return d->whole ? i
                    : (int64_t)base_permute((uint64_t)(d->begin + i), (uint64_t)d->pictures->count, d->seed);
}

by_status data_picture_set_split(const by_picture_set *p, double share, uint64_t seed,
                                 data_picture_part *train, data_picture_part *held)
{
    const int64_t n = share > 0 ? BY_MAX((int64_t)floor((double)p->count * share), 1) : 0;
    if (n >= p->count)
        return base_fail(BY_ERR_ARGUMENT, "a share of %g of %lld picture%s leaves nothing on one side", share,
                         (long long)p->count, p->count == 1 ? "" : "s");
    *held = (data_picture_part){.pictures = p, .seed = seed, .count = n};
    *train =
        (data_picture_part){.pictures = p, .seed = seed, .begin = n, .count = p->count - n, .whole = n == 0};
    return BY_OK;
}
