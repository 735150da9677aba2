/* attention_pictures.c - see attention_pictures.h. */
#include "cli/attention_pictures.h"

#include <math.h>
#include <stdio.h>

#include "banyan/inspect.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/common.h"
#include "cli/format.h"
#include "cli/pictures.h"
#include "cli/report.h"
#include "cli/show.h"
#include "infer/picture_passes.h"
#include "report/mosaic.h"

enum { LARGE = 280, SMALL = 104, WORD = 144, COMPONENTS = 28 };

typedef struct job {
    const cli_picture_look *k;
    by_pictures reads;
    by_picture_maps maps;
    int query; /* the position that looks */
    report_picture kind;
    report_tile *tiles;
    int count;
} job;

/* ---- where the model looks --------------------------------------------------------------------- */

/* The patch with the pixel R,C of the picture as the model reads it, or the class token. */
static by_status choose_query(job *j)
{
    int row, column;
    char rest;
    const by_image *m = j->maps.seen;
    if (!j->k->pixel)
        return BY_OK;
    if (j->maps.text.tokens)
        return base_fail(BY_ERR_ARGUMENT,
                         "--pixel does not apply to captioning models, whose queries are words");
    if (sscanf(j->k->pixel, "%d,%d%c", &row, &column, &rest) != 2)
        return base_fail(BY_ERR_ARGUMENT, "--pixel %s: expected a row and a column, as in 14,20",
                         j->k->pixel);
    if (row < 0 || column < 0 || row >= m->height || column >= m->width)
        return base_fail(BY_ERR_ARGUMENT, "no pixel %d,%d: the picture has %d rows of %d", row, column,
                         m->height, m->width);
    j->query = j->maps.tokens + row / j->reads.patch * j->maps.columns + column / j->reads.patch;
    return BY_OK;
}

static by_status look_at(job *j)
{
    const cli_picture_look *k = j->k;
    char *path = (char *)k->picture;
    const bool writes = by_model_task(k->model) == BY_TASK_SEQ2SEQ;
    by_processor *p = gen_processor_open(k->model, k->dir, k->adapter);
    by_picture_set *set = p ? cli_pictures_open(&path, 1, NULL, by_processor_channels(p)) : NULL;
    by_tokenizer *t = set && writes ? cli_tokenizer(k->dir) : NULL;
    by_status s = set && (t || !writes) ? BY_OK : base_error_status();
    if (s == BY_OK)
        s = by_picture_maps_make(k->model, p, set, 0,
                                 &(by_picture_maps_spec){.tokenizer = t, .target = k->target}, &j->maps);
    by_tokenizer_free(t);
    by_picture_set_free(set);
    by_processor_free(p);
    return s == BY_OK ? choose_query(j) : s;
}

/* ---- tiles -------------------------------------------------------------------------------------- */

/* Takes the picture over; NULL is an error that was reported. */
static by_status put_tile(job *j, by_image *m, const char *title)
{
    report_tile *more = m ? base_resize(j->tiles, (size_t)j->count + 1, sizeof *more) : NULL;
    if (!more) {
        by_image_free(m);
        return base_error_status();
    }
    j->tiles = more;
    more[j->count].picture = m;
    base_format(more[j->count].title, sizeof more->title, "%s", title);
    j->count++;
    return BY_OK;
}

static by_status put_overlay(job *j, const float *map, const char *title)
{
    const by_picture_maps *a = &j->maps;
    return put_tile(j, report_overlay(a->seen, map, a->rows, a->columns, true), title);
}

static by_status put_head(job *j, int layer, int head, float *map)
{
    char title[48];
    BY_TRY(by_picture_maps_head(&j->maps, layer, head, j->query, map));
    if (head < 0)
        base_format(title, sizeof title, "layer %d, mean of the heads", layer);
    else
        base_format(title, sizeof title, "layer %d, head %d", layer, head);
    return put_overlay(j, map, title);
}

/* The picture, the rollout and one map large; below them the heads of a layer or of all. Returns the number
 * of large tiles. */
static by_status put_heads(job *j, float *map, int *large)
{
    const by_picture_maps *a = &j->maps;
    const int layer = j->k->layer < 0 ? a->layers - 1 : j->k->layer;
    BY_TRY(put_tile(j, by_image_crop(a->seen, 0, 0, a->seen->width, a->seen->height), "the picture"));
    BY_TRY(by_picture_maps_rollout(a, j->query, map));
    BY_TRY(put_overlay(j, map, "rollout through all layers"));
    BY_TRY(put_head(j, layer, j->k->head, map));
    *large = j->count;
    for (int l = j->k->layer < 0 ? 0 : layer; j->k->head < 0 && l < (j->k->layer < 0 ? a->layers : layer + 1);
         l++)
        for (int h = 0; h < a->heads; h++)
            BY_TRY(put_head(j, l, h, map));
    return BY_OK;
}

/* A token of the caption, without the space in front. */
static const char *word(const by_picture_maps *a, int i)
{
    const char *name = a->text.names[i];
    return *name == ' ' && name[1] ? name + 1 : name;
}

static by_status put_words(job *j, float *map)
{
    const by_picture_maps *a = &j->maps;
    BY_TRY(put_tile(j, by_image_crop(a->seen, 0, 0, a->seen->width, a->seen->height), "the picture"));
    for (int t = 0; t < a->text.tokens; t++) {
        BY_TRY(by_picture_maps_head(a, j->k->layer, j->k->head, t, map));
        BY_TRY(put_overlay(j, map, word(a, t)));
    }
    return BY_OK;
}

static by_status put_maps(job *j, report_mosaic *m)
{
    const bool words = j->maps.text.tokens > 0;
    float *map = base_alloc_zero((size_t)j->maps.rows * (size_t)j->maps.columns, sizeof *map);
    by_status s = !map ? BY_ERR_MEMORY : words ? put_words(j, map) : put_heads(j, map, &m->large);
    base_free(map);
    m->large_side = LARGE;
    m->small_side = words ? WORD : SMALL;
    m->columns = words ? 0 : j->maps.heads;
    return s;
}

/* A map for each patch, at its place. */
static by_status put_positions(job *j, report_mosaic *m)
{
    const int rows = j->reads.height / j->reads.patch, columns = j->reads.width / j->reads.patch,
              n = rows * columns;
    float *all = base_alloc_zero((size_t)n * (size_t)n, sizeof *all), least = 1;
    by_status s = all ? by_position_similarities(j->k->model, all) : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < n * n; i++)
        least = fminf(least, all[i]);
    for (int i = 0; s == BY_OK && i < n; i++)
        s = put_tile(j, report_map(all + (size_t)i * (size_t)n, rows, columns, (double)least, 1), "");
    base_free(all);
    m->columns = columns;
    m->small_side = BY_MIN(BY_MAX(900 / columns, 16), 100);
    return s;
}

/* A filter as a picture: grey is 0, the largest value is black or white. */
static by_image *draw_filter(const float *v, int channels, int side)
{
    const int area = side * side;
    by_image *m = by_image_new(side, side, channels == 3 ? BY_PIXELS_RGB : BY_PIXELS_GREY);
    float most = 0;
    for (int i = 0; i < channels * area; i++)
        most = fmaxf(most, fabsf(v[i]));
    for (int i = 0; m && i < m->channels * area; i++)
        ((uint8_t *)m->pixels)[i] = (uint8_t)lround(
            127.5 + (most > 0 ? 127.5 * (double)(v[i % m->channels * area + i / m->channels] / most) : 0));
    return m;
}

static int components(const job *j)
{
    return BY_MIN(COMPONENTS, j->reads.channels * j->reads.patch * j->reads.patch);
}

static by_status put_filters(job *j, report_mosaic *m)
{
    const size_t n = (size_t)j->reads.channels * (size_t)j->reads.patch * (size_t)j->reads.patch;
    const int count = components(j);
    float *all = base_alloc_zero(n * (size_t)count, sizeof *all);
    by_status s = all ? by_patch_filters(j->k->model, count, all) : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < count; i++)
        s = put_tile(j, draw_filter(all + (size_t)i * n, j->reads.channels, j->reads.patch), "");
    base_free(all);
    m->columns = 7;
    m->small_side = 80;
    return s;
}

/* ---- the page ------------------------------------------------------------------------------------ */

static by_status draw(job *j)
{
    static const char *const titles[] = {"where it looks", "similarity of positions", "patch filters"};
    static const char *const below[] = {
        NULL,
        "each square is a patch; it shows the cosine of its position embedding with those of all patches",
        "principal components of the patch embedding, the strongest first"};
    char *title = base_sprintf("%s: %s", j->k->name, titles[j->k->show]);
    char *subtitle = below[j->k->show]     ? base_strdup(below[j->k->show])
                     : j->maps.text.tokens ? base_sprintf("each word of the caption, where the model looks")
                     : j->k->pixel
                         ? base_sprintf("%s, from the patch of pixel %s", j->k->picture, j->k->pixel)
                         : base_sprintf("%s, from the class token", j->k->picture);
    report_mosaic m = {.title = title, .subtitle = subtitle};
    by_status s = !title || !subtitle                ? BY_ERR_MEMORY
                  : j->k->show == CLI_SHOW_POSITIONS ? put_positions(j, &m)
                  : j->k->show == CLI_SHOW_FILTERS   ? put_filters(j, &m)
                                                     : put_maps(j, &m);
    m.tiles = j->tiles;
    m.count = j->count;
    base_buf out = {0};
    if (s == BY_OK)
        s = report_mosaic_write(&out, j->kind, &m);
    if (s == BY_OK)
        s = base_file_write(j->k->out, out.data, out.size);
    base_buf_free(&out);
    base_free(title);
    base_free(subtitle);
    return s;
}

static int say(const job *j)
{
    const by_picture_maps *a = &j->maps;
    if (j->k->show == CLI_SHOW_POSITIONS)
        printf("%s: similarities of %s\n", j->k->out, cli_counted(j->count, "position").s);
    else if (j->k->show == CLI_SHOW_FILTERS)
        printf("%s: %s of the patch filters\n", j->k->out, cli_counted(j->count, "component").s);
    else if (a->text.tokens)
        printf("%s: %s over %d x %d patches\n", j->k->out, cli_counted(a->text.tokens, "token").s, a->rows,
               a->columns);
    else
        printf("%s: %s of %s over %d x %d patches\n", j->k->out, cli_counted(a->layers, "layer").s,
               cli_counted(a->heads, "head").s, a->rows, a->columns);
    return CLI_OK;
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static cJSON *numbers(float *v, size_t n)
{
    return cJSON_CreateFloatArray(v, (int)n);
}

static by_status print_maps(const job *j, cJSON *o)
{
    const by_picture_maps *a = &j->maps;
    const size_t n = (size_t)a->rows * (size_t)a->columns;
    cJSON *all = cJSON_AddArrayToObject(o, "weights");
    float *map = base_alloc_zero(n, sizeof *map);
    by_status s = map ? BY_OK : BY_ERR_MEMORY;
    cJSON_AddNumberToObject(o, "rows", a->rows);
    cJSON_AddNumberToObject(o, "columns", a->columns);
    for (int l = 0; s == BY_OK && l < a->layers && !a->text.tokens; l++) {
        cJSON *heads = cJSON_CreateArray();
        for (int h = 0; s == BY_OK && h < a->heads; h++) {
            s = by_picture_maps_head(a, l, h, j->query, map);
            cJSON_AddItemToArray(heads, numbers(map, n));
        }
        cJSON_AddItemToArray(all, heads);
    }
    if (s == BY_OK && !a->text.tokens && (s = by_picture_maps_rollout(a, j->query, map)) == BY_OK)
        cJSON_AddItemToObject(o, "rollout", numbers(map, n));
    cJSON *names = a->text.tokens ? cJSON_AddArrayToObject(o, "tokens") : NULL;
    for (int t = 0; s == BY_OK && t < a->text.tokens; t++) {
        s = by_picture_maps_head(a, j->k->layer, j->k->head, t, map);
        cJSON_AddItemToArray(names, cJSON_CreateString(word(a, t)));
        cJSON_AddItemToArray(all, numbers(map, n));
    }
    base_free(map);
    return s;
}

/* Draws `count` rows of n learned values. */
static by_status print_learned(const job *j, cJSON *o)
{
    const by_pictures *p = &j->reads;
    const bool filters = j->k->show == CLI_SHOW_FILTERS;
    const int rows = p->height / p->patch, columns = p->width / p->patch;
    const size_t count = (size_t)(filters ? components(j) : rows * columns);
    const size_t n = filters ? (size_t)p->channels * (size_t)p->patch * (size_t)p->patch : count;
    float *v = base_alloc_zero(count * n, sizeof *v);
    by_status s = !v        ? BY_ERR_MEMORY
                  : filters ? by_patch_filters(j->k->model, (int)count, v)
                            : by_position_similarities(j->k->model, v);
    cJSON_AddNumberToObject(o, filters ? "channels" : "rows", filters ? p->channels : rows);
    cJSON_AddNumberToObject(o, filters ? "patch" : "columns", filters ? p->patch : columns);
    cJSON *all = cJSON_AddArrayToObject(o, filters ? "filters" : "similarities");
    for (size_t i = 0; s == BY_OK && i < count; i++)
        cJSON_AddItemToArray(all, numbers(v + i * n, n));
    base_free(v);
    return s;
}

static int print_json(const job *j)
{
    cJSON *o = cJSON_CreateObject();
    by_status s = j->k->show == CLI_SHOW_ATTENTION ? print_maps(j, o) : print_learned(j, o);
    if (s == BY_OK)
        return cli_print_json(o);
    cJSON_Delete(o);
    return cli_fail(NULL);
}

int cli_attention_pictures(const cli_picture_look *k)
{
    job j = {.k = k};
    if (k->show == CLI_SHOW_ATTENTION && !k->picture)
        return cli_usage_fail("no picture: banyan attention MODEL PICTURE");
    by_model_pictures(k->model, &j.reads);
    by_status s = k->json ? BY_OK : report_picture_of(k->out, &j.kind);
    if (s == BY_OK && k->show == CLI_SHOW_ATTENTION)
        s = look_at(&j);
    if (s == BY_OK && !k->json)
        s = draw(&j);
    const int code = s != BY_OK ? cli_fail(NULL) : k->json ? print_json(&j) : say(&j);
    report_tiles_free(j.tiles, j.count);
    by_picture_maps_free(&j.maps);
    return code;
}
