/* check_images.c - cases of kind "images": decodes the recorded files, resizes and prepares them, and compares every byte
 * with what the reference made of them; damaged and hostile files must end in an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/image.h"
#include "base/file.h"
#include "base/json.h"
#include "verify/check.h"

#define FLOAT_BOUND 1e-6
#define TABLE_BOUND 1e-5 /* interpolated tables, which the reference computes in f32 */
enum { MAX_PIXELS = 10000000 };

static char *file_path(const verify_case *c, const char *folder, const char *name)
{
    char *dir = base_path_join(c->dir, folder), *path = dir ? base_path_join(dir, name) : NULL;
    base_free(dir);
    return path;
}

static by_image *open_picture(const verify_case *c, const char *name, by_pixels format, bool upright)
{
    char *path = base_path_join(c->dir, name);
    by_image *m =
        path ? by_image_open(path,
                             &(by_image_spec){.format = format, .upright = upright, .max_pixels = MAX_PIXELS})
             : NULL;
    base_free(path);
    return m;
}

static void compare(verify_case *c, const by_weight *e, double error, double bound)
{
    verify_say(c, e, &(verify_rule){BY_MEASURE_MAX, bound, 0}, error, NULL);
}

/* The largest difference of a picture's samples; infinity where the number of bytes differs. */
static double picture_error(const by_weight *e, const by_image *m)
{
    const size_t count = (size_t)m->width * (size_t)m->height * (size_t)m->channels;
    const bool wide = m->format == BY_PIXELS_GREY16;
    double worst = 0;
    if (e->dtype != (wide ? BY_U16 : BY_U8) || verify_elements(e) != count || e->dim[0] != m->height)
        return INFINITY;
    for (size_t i = 0; i < count; i++) {
        const int here = wide ? ((const uint16_t *)m->pixels)[i] : ((const uint8_t *)m->pixels)[i];
        const int there = wide ? ((const uint16_t *)e->data)[i] : ((const uint8_t *)e->data)[i];
        worst = fmax(worst, abs(here - there));
    }
    return worst;
}

static by_status compare_picture(verify_case *c, const by_weight *e, by_image *m)
{
    if (m)
        compare(c, e, picture_error(e, m), 0);
    else
        verify_note(c, e, BY_VERDICT_FAILED, by_error_message());
    by_image_free(m);
    return BY_OK;
}

/* ---- FILE.rgb, FILE.native, FILE.rgba, FILE.upright ------------------------------------------------- */

static const struct {
    const char *ending;
    by_pixels format;
    bool upright;
} readings[] = {{".rgb", BY_PIXELS_RGB, false},
                {".native", BY_PIXELS_NATIVE, false},
                {".rgba", BY_PIXELS_RGBA, false},
                {".upright", BY_PIXELS_RGB, true}};

/* Copies the name without its ending; false if it ends in another way. */
static bool without(const char *name, const char *ending, char *stem, size_t room)
{
    const size_t n = strlen(name), k = strlen(ending);
    if (n <= k || n - k >= room || strcmp(name + n - k, ending) != 0)
        return false;
    memcpy(stem, name, n - k);
    stem[n - k] = '\0';
    return true;
}

static bool is_reading(verify_case *c, const by_weight *e)
{
    char file[128];
    for (int i = 0; i < BY_COUNT(readings); i++)
        if (without(e->name, readings[i].ending, file, sizeof file)) {
            compare_picture(c, e, open_picture(c, file, readings[i].format, readings[i].upright));
            return true;
        }
    return false;
}

/* ---- resize.FILTER.WIDTHxHEIGHT and interpolate.FILTER.HEIGHTxWIDTH.KIND ------------------------------ */

static const char *const filter_names[] = {"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};

static int find_filter(const char *name)
{
    for (int i = 0; i < BY_COUNT(filter_names); i++)
        if (strcmp(name, filter_names[i]) == 0)
            return i;
    return -1;
}

static bool is_resize(verify_case *c, const by_weight *e)
{
    char filter[16];
    int width, height;
    if (sscanf(e->name, "resize.%15[a-z].%dx%d", filter, &width, &height) != 3 || find_filter(filter) < 0)
        return false;
    by_image *m = open_picture(c, "rgb8-interlaced.png", BY_PIXELS_RGB, false);
    compare_picture(c, e, m ? by_image_resize(m, width, height, (by_filter)find_filter(filter)) : NULL);
    by_image_free(m);
    return true;
}

static bool is_interpolation(verify_case *c, const by_weight *e)
{
    const by_weight *in = by_weights_find(c->reference, "interpolate.input");
    char filter[16], kind[16];
    int height, width;
    if (e == in)
        return true;
    if (!in || in->dtype != BY_F32 || e->dtype != BY_F32 || in->rank != 4 ||
        sscanf(e->name, "interpolate.%15[a-z].%dx%d.%15[a-z]", filter, &height, &width, kind) != 4)
        return false;
    const size_t count = (size_t)(in->dim[0] * in->dim[1] * height * width);
    float *out = base_alloc_zero(count + 1, sizeof *out);
    double worst = verify_elements(e) == count ? 0 : INFINITY;
    if (!out || by_interpolate((const float *)in->data, (int)(in->dim[0] * in->dim[1]), (int)in->dim[2],
                               (int)in->dim[3], out, height, width, (by_filter)find_filter(filter),
                               strcmp(kind, "antialias") == 0) != BY_OK)
        worst = INFINITY;
    for (size_t i = 0; worst < INFINITY && i < count; i++)
        worst = fmax(worst, fabs((double)out[i] - (double)((const float *)e->data)[i]));
    compare(c, e, worst, TABLE_BOUND);
    base_free(out);
    return true;
}

/* ---- PROCESSOR.FILE.pixel_values, PROCESSOR.FILE.input_ids ----------------------------------------------- */

static double prepared_error(const by_weight *e, const by_prepared *x)
{
    const size_t pixels = (size_t)x->height * (size_t)x->width, count = x->ids ? pixels : 3 * pixels;
    double worst = 0;
    if (verify_elements(e) != count || e->dtype != (x->ids ? BY_I64 : BY_F32))
        return INFINITY;
    for (size_t i = 0; i < count; i++)
        worst = fmax(worst, x->ids ? fabs((double)(x->ids[i] - ((const int64_t *)e->data)[i]))
                                   : fabs((double)x->values[i] - (double)((const float *)e->data)[i]));
    return worst;
}

static void compare_prepared(verify_case *c, const by_weight *e, const char *processor, const char *file)
{
    char *dir = file_path(c, "processors", processor);
    by_processor *p = dir ? by_processor_open(dir) : NULL;
    by_image *m = p ? open_picture(c, file, BY_PIXELS_RGB, false) : NULL;
    by_prepared x = {0};
    if (m && by_processor_apply(p, m, &x) == BY_OK)
        compare(c, e, prepared_error(e, &x), x.ids ? 0 : FLOAT_BOUND);
    else
        verify_note(c, e, BY_VERDICT_FAILED, by_error_message());
    by_prepared_free(&x);
    by_image_free(m);
    by_processor_free(p);
    base_free(dir);
}

static bool is_prepared(verify_case *c, const by_weight *e)
{
    char stem[128], *dot;
    if (!without(e->name, ".pixel_values", stem, sizeof stem) &&
        !without(e->name, ".input_ids", stem, sizeof stem))
        return false;
    if (!(dot = strchr(stem, '.')))
        return false;
    *dot = '\0';
    compare_prepared(c, e, stem, dot + 1);
    return true;
}

/* ---- broken files -------------------------------------------------------------------------------------- */

/* An error, or the picture that the reference reads in spite of the damage. Where the reference refuses a file for the size
 * of its text, which is not unpacked here, the picture is right. */
static void check_broken(verify_case *c, const cJSON *record)
{
    const cJSON *reason = cJSON_GetObjectItemCaseSensitive(record, "pillow");
    const bool text = cJSON_IsString(reason) && strstr(reason->valuestring, "MAX_TEXT_CHUNK");
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(record, "size");
    char name[160];
    char *path = file_path(c, "broken", record->string);
    by_image *m = path ? by_image_open(path, &(by_image_spec){.max_pixels = MAX_PIXELS}) : NULL;
    const bool same =
        m && (text || (cJSON_IsArray(size) && size->child && size->child->next &&
                       size->child->valueint == m->width && size->child->next->valueint == m->height));
    base_format(name, sizeof name, "broken.%s", record->string);
    verify_say(c, &(by_weight){.name = name}, &(verify_rule){BY_MEASURE_MAX, 0, 0}, !m || same ? 0 : INFINITY,
               m ? text ? "decoded; its text is not read" : "decoded" : by_error_message());
    by_image_free(m);
    base_free(path);
}

by_status verify_images(verify_case *c)
{
    const cJSON *broken;
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const by_weight *e = by_weights_at(c->reference, i);
        if (!is_resize(c, e) && !is_interpolation(c, e) && !is_prepared(c, e) && !is_reading(c, e))
            verify_note(c, e, BY_VERDICT_FAILED, "no such comparison is known");
    }
    cJSON_ArrayForEach(broken, cJSON_GetObjectItemCaseSensitive(c->settings, "broken"))
    {
        check_broken(c, broken);
    }
    return BY_OK;
}
