/* processor_config.c - the settings of preprocessor_config.json, in current and older formats. */
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "image/processor.h"

#define HALVES        \
    {                 \
        0.5, 0.5, 0.5 \
    }
static const image_processor_type types[] = {
    {"ViT", 224, 0, true, BY_FILTER_BILINEAR, HALVES, HALVES},
    {"DeiT", 256, 224, true, BY_FILTER_BICUBIC, HALVES, HALVES},
    {"CLIP",
     224,
     224,
     false,
     BY_FILTER_BICUBIC,
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711}},
    {"ImageGPT", 256, 0, true, BY_FILTER_BILINEAR, HALVES, HALVES}, /* the last, for palettes */
};

/* ---- reading ------------------------------------------------------------------------------------ */

/* The type by image_processor_type or feature_extractor_type; ViT's if neither is known. */
static const image_processor_type *find_type(const cJSON *json)
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

/* A size is a number, {"height", "width"}, {"shortest_edge"} with or without "longest_edge", or in old files
 * a pair: width and height. */
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

/* One number per channel: a list of 3, or of 1; a plain number applies to all channels. */
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

/* The palette is in [-1, 1], so pictures are scaled to that. `offset` does so whatever the normalisation. */
static by_status use_palette(by_processor *p)
{
    for (int c = 0; c < 3 && !p->offset; c++)
        if (fabsf(image_processor_value(p, 0, c) + 1) > 1e-4f ||
            fabsf(image_processor_value(p, 255, c) - 1) > 1e-4f)
            return base_fail(BY_ERR_UNSUPPORTED,
                             "rescale_factor, image_mean and image_std give values from %g to %g; "
                             "clusters require values from -1 to 1",
                             (double)image_processor_value(p, 0, c),
                             (double)image_processor_value(p, 255, c));
    p->channels = 3;
    p->rescales = p->offset = true;
    p->factor = 1 / 127.5;
    p->normalises = false;
    p->palette = image_palette_new(p->clusters, p->colours);
    return p->palette ? BY_OK : BY_ERR_MEMORY;
}

/* Refuses other steps that some processor types have, because they would change the values. */
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
    const image_processor_type *t = p->type = find_type(json);
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

/* The type with that name; NULL: ViT's. */
static const image_processor_type *type_named(const char *name)
{
    for (int i = 0; i < BY_COUNT(types); i++)
        if (!name || strcmp(types[i].name, name) == 0)
            return &types[i];
    base_fail(BY_ERR_ARGUMENT, "unknown image processor type \"%s\"", name);
    return NULL;
}

/* Scales the size before a crop with the crop. */
static int scaled(int side, int from, int to)
{
    return BY_MAX((int)rint((double)side * to / from), to);
}

static image_size size_before_crop(const image_processor_type *t, int height, int width)
{
    if (t->crop == 0)
        return (image_size){.height = height, .width = width};
    if (!t->square)
        return (image_size){.shortest = scaled(t->size, t->crop, BY_MAX(height, width))};
    return (image_size){.height = scaled(t->size, t->crop, height), .width = scaled(t->size, t->crop, width)};
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
    const image_processor_type *t = type_named(spec->type);
    by_processor *p = t ? base_alloc_zero(1, sizeof *p) : NULL;
    if (!p)
        return NULL;
    *p = (by_processor){.type = t,
                        .channels = spec->channels,
                        .resizes = true,
                        .rescales = true,
                        .normalises = true,
                        .crops = t->crop > 0,
                        .size = size_before_crop(t, h, w),
                        .crop = {.height = h, .width = w},
                        .filter = t->filter,
                        .factor = 1.0 / 255};
    memcpy(p->mean, t->mean, sizeof p->mean);
    memcpy(p->std, t->std, sizeof p->std);
    if (copy_palette(p, spec) == BY_OK)
        return p;
    by_processor_free(p);
    return NULL;
}

/* The settings in processor_config.json, which take precedence as in the reference, or those of
 * preprocessor_config.json. *path receives the name of the file, even if it cannot be read. */
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
            !whole || cJSON_HasObjectItem(whole, "image_processor"); /* opening the file reports the damage */
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
