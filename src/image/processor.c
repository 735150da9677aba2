/* processor.c - preprocessor_config.json: how a picture becomes what a model reads. The steps and their order are those of
 * the transformers library: resize, centre crop, rescale, normalise; for ImageGPT the nearest colour of a palette. */
#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "image/picture.h"

typedef struct image_size {
    int height, width; /* exact, or */
    int shortest;      /* the shorter side; 0: exact */
    int longest;       /* the longer side is no longer than this; 0: no limit */
} image_size;

struct by_processor {
    bool resizes, crops, rescales, normalises;
    image_size size, crop;
    by_filter filter;
    double factor; /* of rescaling */
    bool offset;   /* then subtract 1 */
    double mean[3], std[3];
    int colours;
    float *clusters; /* (colours, 3) in [-1, 1] */
};

/* What a type of processor does where the file does not say it. */
typedef struct processor_type {
    const char *name; /* of the class, without ImageProcessor, ImageProcessorFast or FeatureExtractor */
    int size, crop;   /* crop 0: no crop */
    bool square;      /* `size` as a number means both sides; otherwise the shorter one */
    by_filter filter;
    double mean[3], std[3];
} processor_type;

#define HALVES        \
    {                 \
        0.5, 0.5, 0.5 \
    }
#define IMAGENET            \
    {0.485, 0.456, 0.406},  \
    {                       \
        0.229, 0.224, 0.225 \
    }
static const processor_type types[] = {
    {"ViT", 224, 0, true, BY_FILTER_BILINEAR, HALVES, HALVES},
    {"DeiT", 256, 224, true, BY_FILTER_BICUBIC, IMAGENET},
    {"CLIP",
     224,
     224,
     false,
     BY_FILTER_BICUBIC,
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711}},
    {"ImageGPT", 256, 0, true, BY_FILTER_BILINEAR, HALVES, HALVES},
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

static by_status read_three(const cJSON *json, const char *key, const double fallback[3], double out[3])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key);
    memcpy(out, fallback, 3 * sizeof *out);
    if (!list || cJSON_IsNull(list))
        return BY_OK;
    for (int i = 0; i < 3; i++) {
        const cJSON *v = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, i) : list; /* one number for all */
        if (!cJSON_IsNumber(v))
            return base_fail(BY_ERR_FORMAT, "%s does not have three numbers", key);
        out[i] = v->valuedouble;
    }
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

/* The palette lies in [-1, 1]: pictures are brought there whatever the normalisation. */
static void use_palette(by_processor *p)
{
    p->rescales = p->offset = true;
    p->factor = 1 / 127.5;
    p->normalises = false;
}

static by_status read_config(by_processor *p, const cJSON *json)
{
    const processor_type *t = find_type(json);
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
    BY_TRY(read_three(json, "image_mean", t->mean, p->mean));
    BY_TRY(read_three(json, "image_std", t->std, p->std));
    for (int c = 0; c < 3; c++)
        if (p->normalises && !(p->std[c] > 0))
            return base_fail(BY_ERR_FORMAT, "image_std is not positive");
    BY_TRY(read_clusters(p, json));
    if (p->colours)
        use_palette(p);
    return BY_OK;
}

by_processor *by_processor_open(const char *dir)
{
    if (!dir) {
        base_fail_missing("directory");
        return NULL;
    }
    char *path = base_path_join(dir, "preprocessor_config.json");
    cJSON *json = path ? base_json_load(path) : NULL;
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

/* ---- applying ------------------------------------------------------------------------------------ */

/* The size to resize to. The longer side is cut down to a whole number. */
static image_size target_size(const by_processor *p, const by_image *m)
{
    image_size s = p->size;
    if (!s.shortest)
        return s;
    const int64_t low = BY_MIN(m->width, m->height), high = BY_MAX(m->width, m->height);
    int64_t a = s.shortest, b = a * high / low;
    if (s.longest && b > s.longest) {
        a = BY_MAX((int64_t)s.longest * a / b, 1);
        b = s.longest;
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

static float value(const by_processor *p, int byte, int c)
{
    float v = (float)(p->rescales ? byte * p->factor : byte);
    if (p->rescales && p->offset)
        v -= 1;
    return p->normalises ? (v - (float)p->mean[c]) / (float)p->std[c] : v;
}

static by_status put_values(const by_processor *p, const by_image *m, by_prepared *out)
{
    const size_t plane = (size_t)m->width * (size_t)m->height;
    const uint8_t *pixels = m->pixels;
    float table[3][256];
    if (!(out->values = base_alloc_zero(3 * plane, sizeof *out->values)))
        return BY_ERR_MEMORY;
    for (int c = 0; c < 3; c++)
        for (int b = 0; b < 256; b++)
            table[c][b] = value(p, b, c);
    for (size_t i = 0; i < plane; i++)
        for (size_t c = 0; c < 3; c++)
            out->values[c * plane + i] = table[c][pixels[3 * i + c]];
    return BY_OK;
}

/* The nearest colour, the first of equals. */
static int32_t nearest_colour(const by_processor *p, const uint8_t *rgb)
{
    double best = INFINITY;
    int32_t id = 0;
    for (int k = 0; k < p->colours; k++) {
        double d = 0;
        for (int c = 0; c < 3; c++) {
            const double x = (double)value(p, rgb[c], c) - (double)p->clusters[3 * k + c];
            d += x * x;
        }
        if (d < best) {
            best = d;
            id = k;
        }
    }
    return id;
}

static by_status put_ids(const by_processor *p, const by_image *m, by_prepared *out)
{
    const size_t plane = (size_t)m->width * (size_t)m->height;
    if (!(out->ids = base_alloc_zero(plane, sizeof *out->ids)))
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < plane; i++)
        out->ids[i] = nearest_colour(p, (const uint8_t *)m->pixels + 3 * i);
    return BY_OK;
}

by_status by_processor_apply(const by_processor *p, const by_image *m, by_prepared *out)
{
    if (!p || !m || !out)
        return base_fail_missing(!p ? "processor" : !m ? "picture" : "result");
    if (m->format != BY_PIXELS_RGB)
        return base_fail(BY_ERR_ARGUMENT, "a processor takes RGB pictures");
    by_image *shaped = shape(p, m);
    *out = (by_prepared){0};
    if (!shaped)
        return base_error_status();
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
