/* processor.c - preprocessor_config.json: how a picture becomes what a model reads. The steps and their order are those of
 * the transformers library: resize, centre crop, rescale, normalise; for ImageGPT the nearest colour of a palette. */
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "image/palette.h"
#include "image/picture.h"

typedef struct image_size {
    int height, width; /* exact, or */
    int shortest;      /* the shorter side; 0: exact */
    int longest;       /* the longer side is no longer than this; 0: no limit */
} image_size;

typedef struct processor_type processor_type;

struct by_processor {
    const processor_type *type;
    int channels; /* 1 or 3 */
    bool resizes, crops, rescales, normalises;
    image_size size, crop;
    by_filter filter;
    double factor; /* of rescaling */
    bool offset;   /* then subtract 1 */
    double mean[3], std[3];
    int colours;
    float *clusters; /* (colours, 3) in [-1, 1] */
    image_palette *palette;
};

/* What a type of processor does where the file does not say it. */
struct processor_type {
    const char *name; /* of the class, without ImageProcessor, ImageProcessorFast or FeatureExtractor */
    int size, crop;   /* crop 0: no crop */
    bool square;      /* `size` as a number means both sides; otherwise the shorter one */
    by_filter filter;
    double mean[3], std[3];
};

#define HALVES        \
    {                 \
        0.5, 0.5, 0.5 \
    }
static const processor_type types[] = {
    {"ViT", 224, 0, true, BY_FILTER_BILINEAR, HALVES, HALVES},
    {"DeiT", 256, 224, true, BY_FILTER_BICUBIC, HALVES, HALVES},
    {"CLIP",
     224,
     224,
     false,
     BY_FILTER_BICUBIC,
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711}},
    {"ImageGPT", 256, 0, true, BY_FILTER_BILINEAR, HALVES, HALVES}, /* the last: that of palettes */
};

/* ---- reading ------------------------------------------------------------------------------------ */

/* The type by image_processor_type or feature_extractor_type; ViT's where neither is known. */
static const processor_type *find_type(const cJSON *json)
{
    static const char *const keys[] = {"image_processor_type", "feature_extractor_type"};
    for (int k = 0; k < BY_COUNT(keys); k++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, keys[k]);
        for (int i = 0; cJSON_IsString(value) && i < BY_COUNT(types); i++) {
            const size_t n = strlen(types[i].name);
            const char *rest = value->valuestring + n;
            if (strncmp(value->valuestring, types[i].name, n) == 0 &&
                (strncmp(rest, "Image", 5) == 0 || strncmp(rest, "Feature", 7) == 0))
                return &types[i];
        }
    }
    return &types[0];
}

static by_status side(const cJSON *o, const char *key, int *out)
{
    int64_t v;
    BY_TRY(base_json_int(o, key, 0, 1, 1 << 16, &v));
    *out = (int)v;
    return BY_OK;
}

/* A size is a number, {"height", "width"}, {"shortest_edge"} with or without "longest_edge", or in old files a pair of
 * numbers: width and height. */
static by_status read_size(const cJSON *json, const char *key, int fallback, bool square, image_size *out)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, key);
    int64_t n = fallback;
    *out = (image_size){0};
    if (cJSON_IsObject(value)) {
        BY_TRY(side(value, "height", &out->height));
        BY_TRY(side(value, "width", &out->width));
        BY_TRY(side(value, "shortest_edge", &out->shortest));
        BY_TRY(side(value, "longest_edge", &out->longest));
    } else if (cJSON_IsArray(value)) {
        if (cJSON_GetArraySize(value) != 2 || !cJSON_IsNumber(value->child) ||
            !cJSON_IsNumber(value->child->next))
            return base_fail(BY_ERR_FORMAT, "%s is not a pair of numbers", key);
        out->width = value->child->valueint;
        out->height = value->child->next->valueint;
    } else {
        BY_TRY(base_json_int(json, key, fallback, 1, 1 << 16, &n));
        *(square ? &out->height : &out->shortest) = (int)n;
        out->width = square ? (int)n : 0;
    }
    const bool exact = out->height > 0 && out->width > 0 && out->height <= 1 << 16 && out->width <= 1 << 16;
    return exact || out->shortest > 0 ? BY_OK : base_fail(BY_ERR_FORMAT, "%s names no size", key);
}

/* One number for each channel: 3, or 1 in a list of one; a number alone is that of all channels. */
static by_status read_each(const cJSON *json, const char *key, const double fallback[3], double out[3],
                           int *channels)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key);
    const bool one = cJSON_IsArray(list) && cJSON_GetArraySize(list) == 1;
    memcpy(out, fallback, 3 * sizeof *out);
    if (!list || cJSON_IsNull(list))
        return BY_OK;
    for (int i = 0; i < 3; i++) {
        const cJSON *v = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, one ? 0 : i) : list;
        if (!cJSON_IsNumber(v))
            return base_fail(BY_ERR_FORMAT, "%s does not have one or three numbers", key);
        out[i] = v->valuedouble;
    }
    if (cJSON_IsArray(list))
        *channels = one ? 1 : 3;
    return BY_OK;
}

static by_status read_clusters(by_processor *p, const cJSON *json)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "clusters"), *one;
    const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    bool wanted;
    BY_TRY(base_json_bool(json, "do_color_quantize", n > 0, &wanted));
    if (!wanted || n == 0)
        return wanted ? base_fail(BY_ERR_FORMAT, "do_color_quantize needs clusters") : BY_OK;
    p->clusters = base_alloc_zero((size_t)n * 3, sizeof *p->clusters);
    if (!p->clusters)
        return BY_ERR_MEMORY;
    cJSON_ArrayForEach(one, list)
    {
        for (int c = 0; c < 3; c++) {
            const cJSON *v = cJSON_GetArrayItem(one, c);
            if (!cJSON_IsNumber(v))
                return base_fail(BY_ERR_FORMAT, "cluster %d does not have three numbers", p->colours);
            p->clusters[3 * p->colours + c] = (float)v->valuedouble;
        }
        p->colours++;
    }
    return BY_OK;
}

static float value(const by_processor *p, int byte, int c)
{
    float v = (float)(p->rescales ? byte * p->factor : byte);
    if (p->rescales && p->offset)
        v -= 1;
    return p->normalises ? (v - (float)p->mean[c]) / (float)p->std[c] : v;
}

/* The palette lies in [-1, 1], and pictures are brought there. An offset was written without regard to the normalisation. */
static by_status use_palette(by_processor *p)
{
    for (int c = 0; c < 3 && !p->offset; c++)
        if (fabsf(value(p, 0, c) + 1) > 1e-4f || fabsf(value(p, 255, c) - 1) > 1e-4f)
            return base_fail(BY_ERR_UNSUPPORTED,
                             "rescale_factor, image_mean and image_std give values from %g to %g; "
                             "with clusters there are those from -1 to 1",
                             (double)value(p, 0, c), (double)value(p, 255, c));
    p->channels = 3;
    p->rescales = p->offset = true;
    p->factor = 1 / 127.5;
    p->normalises = false;
    p->palette = image_palette_new(p->clusters, p->colours);
    return p->palette ? BY_OK : BY_ERR_MEMORY;
}

/* What other types of processors do besides, which would change the values. */
static by_status check_steps(const cJSON *json)
{
    static const char *const steps[] = {"do_pad", "do_thumbnail", "do_align_long_axis",
                                        "do_flip_channel_order", "do_image_splitting"};
    for (int i = 0; i < BY_COUNT(steps); i++)
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, steps[i])))
            return base_fail(BY_ERR_UNSUPPORTED, "\"%s\" is true, which is not supported", steps[i]);
    return BY_OK;
}

static by_status read_config(by_processor *p, const cJSON *json)
{
    BY_TRY(check_steps(json));
    const processor_type *t = p->type = find_type(json);
    int64_t filter;
    BY_TRY(base_json_bool(json, "do_resize", true, &p->resizes));
    BY_TRY(base_json_bool(json, "do_center_crop", t->crop > 0, &p->crops));
    BY_TRY(base_json_bool(json, "do_rescale", true, &p->rescales));
    BY_TRY(base_json_bool(json, "do_normalize", true, &p->normalises));
    BY_TRY(read_size(json, "size", t->size, t->square, &p->size));
    BY_TRY(read_size(json, "crop_size", t->crop ? t->crop : t->size, true, &p->crop));
    if (p->crop.shortest)
        p->crop = (image_size){p->crop.shortest, p->crop.shortest, 0, 0};
    BY_TRY(base_json_int(json, "resample", t->filter, 0, BY_FILTER_HAMMING, &filter));
    p->filter = (by_filter)filter;
    BY_TRY(base_json_double(json, "rescale_factor", 1.0 / 255, 0, 1e6, &p->factor));
    BY_TRY(base_json_bool(json, "rescale_offset", false, &p->offset));
    int of_mean = 3, of_std = 3;
    BY_TRY(read_each(json, "image_mean", t->mean, p->mean, &of_mean));
    BY_TRY(read_each(json, "image_std", t->std, p->std, &of_std));
    if (of_mean != of_std)
        return base_fail(BY_ERR_FORMAT, "image_mean and image_std have different numbers of channels");
    p->channels = of_mean;
    for (int c = 0; c < 3; c++)
        if (p->normalises && !(p->std[c] > 0))
            return base_fail(BY_ERR_FORMAT, "image_std is not positive");
    BY_TRY(read_clusters(p, json));
    return p->colours ? use_palette(p) : BY_OK;
}

static by_status copy_palette(by_processor *p, const by_processor_spec *spec)
{
    if (!spec->palette)
        return BY_OK;
    if (spec->colours < 1 || spec->colours > BY_MAX_COLOURS)
        return base_fail(BY_ERR_ARGUMENT, "a palette of %d colours is not possible", spec->colours);
    p->type = &types[BY_COUNT(types) - 1];
    p->colours = spec->colours;
    p->clusters = base_alloc_zero((size_t)spec->colours * 3, sizeof *p->clusters);
    if (!p->clusters)
        return BY_ERR_MEMORY;
    memcpy(p->clusters, spec->palette, (size_t)spec->colours * 3 * sizeof *p->clusters);
    return use_palette(p);
}

by_processor *by_processor_new(const by_processor_spec *spec)
{
    const int h = spec ? spec->height : 0, w = spec ? spec->width : 0;
    if (!spec || (spec->channels != 1 && spec->channels != 3) || h < 1 || w < 1 || h > 1 << 16 ||
        w > 1 << 16) {
        spec ? base_fail(BY_ERR_ARGUMENT,
                         "a processor makes pictures of 1 or 3 channels and up to 65536 pixels a side")
             : base_fail_missing("by_processor_spec");
        return NULL;
    }
    by_processor *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (by_processor){.type = &types[0],
                        .channels = spec->channels,
                        .resizes = true,
                        .rescales = true,
                        .normalises = true,
                        .size = {.height = h, .width = w},
                        .crop = {.height = h, .width = w},
                        .filter = types[0].filter,
                        .factor = 1.0 / 255};
    memcpy(p->mean, types[0].mean, sizeof p->mean);
    memcpy(p->std, types[0].std, sizeof p->std);
    if (copy_palette(p, spec) == BY_OK)
        return p;
    by_processor_free(p);
    return NULL;
}

/* The settings inside processor_config.json, which come first in the reference, or those of preprocessor_config.json. *path gets the
 * name of the file, also where it cannot be read. */
static cJSON *load_settings(const char *dir, char **path)
{
    *path = base_path_join(dir, "processor_config.json");
    if (*path && base_file_exists(*path)) {
        cJSON *whole = base_json_load(*path);
        cJSON *own = cJSON_DetachItemFromObjectCaseSensitive(whole, "image_processor");
        const bool settled = !whole || own;
        cJSON_Delete(whole);
        if (settled)
            return own;
    }
    base_free(*path);
    *path = base_path_join(dir, "preprocessor_config.json");
    return *path ? base_json_load(*path) : NULL;
}

bool image_processor_exists(const char *dir)
{
    char *path = base_path_join(dir, "preprocessor_config.json");
    bool there = path && base_file_exists(path);
    base_free(path);
    path = there ? NULL : base_path_join(dir, "processor_config.json");
    if (path && base_file_exists(path)) {
        cJSON *whole = base_json_load(path);
        there =
            !whole || cJSON_HasObjectItem(whole, "image_processor"); /* who opens a damaged file says so */
        cJSON_Delete(whole);
    }
    base_free(path);
    return there;
}

by_processor *by_processor_open(const char *dir)
{
    if (!dir) {
        base_fail_missing("directory");
        return NULL;
    }
    char *path;
    cJSON *json = load_settings(dir, &path);
    by_processor *p = json ? base_alloc_zero(1, sizeof *p) : NULL;
    if (p && read_config(p, json) != BY_OK) {
        base_fail_context("%s", path);
        by_processor_free(p);
        p = NULL;
    }
    cJSON_Delete(json);
    base_free(path);
    return p;
}

void by_processor_free(by_processor *p)
{
    if (!p)
        return;
    image_palette_free(p->palette);
    base_free(p->clusters);
    base_free(p);
}

void by_processor_size(const by_processor *p, int *height, int *width)
{
    const image_size *s = p->crops ? &p->crop : p->resizes && !p->size.shortest ? &p->size : NULL;
    *height = s ? s->height : 0;
    *width = s ? s->width : 0;
}

int by_processor_colours(const by_processor *p)
{
    return p->colours;
}

int by_processor_channels(const by_processor *p)
{
    return p->channels;
}

by_filter by_processor_filter(const by_processor *p)
{
    return p->filter;
}

void by_processor_fill(const by_processor *p, uint8_t out[3])
{
    for (int c = 0; c < 3; c++)
        out[c] = p->normalises ? (uint8_t)BY_MAX(0, BY_MIN(255, rint(255 * p->mean[c]))) : 128;
}

/* What is resized before a crop keeps its ratio to the crop. */
static int scaled(int side, int from, int to)
{
    return BY_MAX((int)rint((double)side * to / from), to);
}

by_status by_processor_set_size(by_processor *p, int height, int width)
{
    if (!p || height < 1 || width < 1 || height > 1 << 16 || width > 1 << 16)
        return p ? base_fail(BY_ERR_ARGUMENT, "pictures of %d x %d pixels are not possible", width, height)
                 : base_fail_missing("processor");
    if (p->crops && p->size.shortest)
        p->size.shortest = scaled(p->size.shortest, p->crop.height, height);
    else if (p->crops)
        p->size = (image_size){.height = scaled(p->size.height, p->crop.height, height),
                               .width = scaled(p->size.width, p->crop.width, width)};
    else
        p->size = (image_size){.height = height, .width = width};
    p->crop = (image_size){.height = height, .width = width};
    p->resizes = true;
    return BY_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static bool put_size(cJSON *json, const char *key, const image_size *s)
{
    cJSON *o = cJSON_AddObjectToObject(json, key);
    if (s->shortest)
        return o && cJSON_AddNumberToObject(o, "shortest_edge", s->shortest) &&
               (!s->longest || cJSON_AddNumberToObject(o, "longest_edge", s->longest));
    return o && cJSON_AddNumberToObject(o, "height", s->height) &&
           cJSON_AddNumberToObject(o, "width", s->width);
}

static bool put_each(cJSON *json, const char *key, const double *values, int channels)
{
    return base_json_put(json, key, cJSON_CreateDoubleArray(values, channels));
}

static bool put_clusters(cJSON *json, const by_processor *p)
{
    cJSON *list = p->colours ? cJSON_AddArrayToObject(json, "clusters") : NULL;
    for (int i = 0; i < p->colours; i++)
        if (!cJSON_AddItemToArray(list, cJSON_CreateFloatArray(p->clusters + 3 * i, 3)))
            return false;
    return !p->colours || cJSON_AddTrueToObject(json, "do_color_quantize");
}

static bool put_config(cJSON *json, const by_processor *p)
{
    char name[64];
    base_format(name, sizeof name, "%sImageProcessor", p->type->name);
    return json && cJSON_AddStringToObject(json, "image_processor_type", name) &&
           cJSON_AddBoolToObject(json, "do_resize", p->resizes) && put_size(json, "size", &p->size) &&
           cJSON_AddNumberToObject(json, "resample", p->filter) &&
           cJSON_AddBoolToObject(json, "do_center_crop", p->crops) &&
           (!p->crops || put_size(json, "crop_size", &p->crop)) &&
           cJSON_AddBoolToObject(json, "do_rescale", p->rescales || p->colours) &&
           cJSON_AddNumberToObject(json, "rescale_factor", p->colours ? 1.0 / 255 : p->factor) &&
           (!p->offset || p->colours || cJSON_AddTrueToObject(json, "rescale_offset")) &&
           cJSON_AddBoolToObject(json, "do_normalize", p->normalises || p->colours) &&
           put_each(json, "image_mean", p->mean, p->channels) &&
           put_each(json, "image_std", p->std, p->channels) && put_clusters(json, p);
}

by_status by_processor_save(const by_processor *p, const char *dir)
{
    if (!p || !dir)
        return base_fail_missing(p ? "directory" : "processor");
    cJSON *json = cJSON_CreateObject();
    char *path = base_path_join(dir, "preprocessor_config.json");
    by_status s =
        path && put_config(json, p) ? base_json_write(path, json) : base_fail(BY_ERR_MEMORY, "out of memory");
    cJSON_Delete(json);
    base_free(path);
    return s;
}

/* ---- applying ------------------------------------------------------------------------------------ */

/* The size to resize to. The longer side is cut down to a whole number; where it has a limit, the shorter one is rounded. */
static image_size target_size(const by_processor *p, const by_image *m)
{
    image_size s = p->size;
    if (!s.shortest)
        return s;
    const int64_t low = BY_MIN(m->width, m->height), high = BY_MAX(m->width, m->height);
    int64_t a = s.shortest, b = a * high / low;
    if (s.longest && (double)high / (double)low * s.shortest > s.longest) {
        const double exact = (double)s.longest * (double)low / (double)high;
        a = BY_MAX((int64_t)rint(exact), 1);
        b = a == low ? high : (int64_t)(exact * (double)high / (double)low);
    }
    s.width = (int)(m->width <= m->height ? a : b);
    s.height = (int)(m->width <= m->height ? b : a);
    return s;
}

/* Offsets round down; where the picture is smaller, the border before it is the larger half. */
static int crop_offset(int size, int crop)
{
    return size >= crop ? (size - crop) / 2 : -((crop - size + 1) / 2);
}

/* A copy with the channels of the processor. */
static by_image *recolour(const by_processor *p, const by_image *m)
{
    by_image *copy = by_image_crop(m, 0, 0, m->width, m->height);
    return copy ? image_convert(copy, p->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB) : NULL;
}

static by_image *shape(const by_processor *p, const by_image *m)
{
    by_image *sized;
    if (p->resizes) {
        const image_size s = target_size(p, m);
        sized = by_image_resize(m, s.width, s.height, p->filter);
    } else {
        sized = by_image_crop(m, 0, 0, m->width, m->height);
    }
    if (!sized || !p->crops)
        return sized;
    by_image *cut = by_image_crop(sized, crop_offset(sized->width, p->crop.width),
                                  crop_offset(sized->height, p->crop.height), p->crop.width, p->crop.height);
    by_image_free(sized);
    return cut;
}

by_status by_processor_values(const by_processor *p, const by_image *m, float *out)
{
    if (!p || !m || !out)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "memory for the values");
    if (m->format != (p->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB))
        return base_fail(BY_ERR_ARGUMENT, "the picture does not have the %d channels of the processor",
                         p->channels);
    const size_t plane = (size_t)m->width * (size_t)m->height, channels = (size_t)p->channels;
    const uint8_t *pixels = m->pixels;
    float table[3][256];
    for (size_t c = 0; c < channels; c++)
        for (int b = 0; b < 256; b++)
            table[c][b] = value(p, b, (int)c);
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < plane; i++)
            out[c * plane + i] = table[c][pixels[channels * i + c]];
    return BY_OK;
}

static by_status put_values(const by_processor *p, const by_image *m, by_prepared *out)
{
    out->values =
        base_alloc_zero((size_t)p->channels * (size_t)m->width * (size_t)m->height, sizeof *out->values);
    return out->values ? by_processor_values(p, m, out->values) : BY_ERR_MEMORY;
}

static by_status put_ids(const by_processor *p, const by_image *m, by_prepared *out)
{
    const size_t plane = (size_t)m->width * (size_t)m->height;
    if (!(out->ids = base_alloc_zero(plane, sizeof *out->ids)))
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < plane; i++)
        out->ids[i] = image_palette_nearest(p->palette, (const uint8_t *)m->pixels + 3 * i);
    return BY_OK;
}

by_image *by_processor_shape(const by_processor *p, const by_image *m)
{
    if (!p || !m) {
        base_fail_missing(p ? "picture" : "processor");
        return NULL;
    }
    if (m->format != BY_PIXELS_RGB && m->format != BY_PIXELS_GREY) {
        base_fail(BY_ERR_ARGUMENT, "a processor takes RGB or grey pictures");
        return NULL;
    }
    if (m->channels == p->channels)
        return shape(p, m);
    by_image *own = recolour(p, m);
    by_image *out = own ? shape(p, own) : NULL;
    by_image_free(own);
    return out;
}

by_status by_processor_apply(const by_processor *p, const by_image *m, by_prepared *out)
{
    if (!p || !m || !out)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "result");
    by_image *shaped = by_processor_shape(p, m);
    *out = (by_prepared){0};
    if (!shaped)
        return base_error_status();
    out->channels = p->colours ? 1 : p->channels;
    out->height = shaped->height;
    out->width = shaped->width;
    const by_status s = p->colours ? put_ids(p, shaped, out) : put_values(p, shaped, out);
    by_image_free(shaped);
    return s;
}

void by_prepared_free(by_prepared *x)
{
    if (!x)
        return;
    base_free(x->values);
    base_free(x->ids);
    *x = (by_prepared){0};
}

/* ---- tokens -------------------------------------------------------------------------------------- */

int64_t by_processor_tokens(const by_processor *p)
{
    int height = 0, width = 0;
    if (p)
        by_processor_size(p, &height, &width);
    return (int64_t)height * width * (p && p->colours ? 1 : p ? p->channels : 0);
}

by_status by_processor_encode(const by_processor *p, const by_image *m, int32_t *tokens)
{
    if (!p || !m || !tokens)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "memory for the tokens");
    const int64_t count = by_processor_tokens(p);
    if (count == 0)
        return base_fail(BY_ERR_ARGUMENT, "the processor makes pictures of different sizes");
    by_image *shaped = by_processor_shape(p, m);
    if (!shaped)
        return base_error_status();
    const uint8_t *pixels = shaped->pixels;
    for (int64_t i = 0; i < count; i++)
        tokens[i] = p->colours ? image_palette_nearest(p->palette, pixels + 3 * i) : pixels[i];
    by_image_free(shaped);
    return BY_OK;
}

static uint8_t to_byte(float x)
{
    return (uint8_t)BY_MAX(0, BY_MIN(255, rint(127.5 * ((double)x + 1))));
}

by_image *by_processor_decode(const by_processor *p, const int32_t *tokens)
{
    int height = 0, width = 0;
    const int64_t count = by_processor_tokens(p);
    if (!p || !tokens || count == 0) {
        !p || !tokens ? base_fail_missing(p ? "tokens" : "processor")
                      : base_fail(BY_ERR_ARGUMENT, "the processor makes pictures of different sizes");
        return NULL;
    }
    by_processor_size(p, &height, &width);
    by_image *m = by_image_new(width, height, p->channels == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB);
    const int limit = p->colours ? p->colours : 256;
    for (int64_t i = 0; m && i < count; i++) {
        uint8_t *to = (uint8_t *)m->pixels + (p->colours ? 3 : 1) * i;
        const int32_t id = BY_MAX(0, BY_MIN(tokens[i], limit - 1));
        for (int c = 0; c < (p->colours ? 3 : 1); c++)
            to[c] = p->colours ? to_byte(p->clusters[3 * id + c]) : (uint8_t)id;
    }
    return m;
}
