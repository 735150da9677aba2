/* attention_pixels.c - see attention_pixels.h. */
#include "cli/attention_pixels.h"

#include <stdio.h>

#include "banyan/image.h"
#include "banyan/pixels.h"
#include "base/base.h"
#include "cli/common.h"
#include "cli/format.h"
#include "cli/report.h"
#include "cli/show.h"
#include "report/mosaic.h"

typedef struct job {
    const cli_pixel_look *k;
    by_processor *processor;
    by_image *picture; /* as the model sees it */
    int row, column, height, width, layers, heads;
    float *weights; /* (layers, heads, height, width) */
} job;

/* The requested pixel, by default one in the lower half, which attends to many others. */
static by_status choose_pixel(job *j)
{
    char rest;
    j->row = j->height * 3 / 4;
    j->column = j->width / 2;
    if (j->k->pixel && sscanf(j->k->pixel, "%d,%d%c", &j->row, &j->column, &rest) != 2)
        return base_fail(BY_ERR_ARGUMENT, "--pixel %s: expected a row and a column, as in 14,20",
                         j->k->pixel);
    return BY_OK;
}

static by_status look_at(job *j)
{
    const cli_pixel_look *k = j->k;
    by_image *m = by_image_open(k->picture, NULL);
    j->processor = m ? by_processor_open(k->dir) : NULL;
    const int64_t tokens = j->processor ? by_processor_tokens(j->processor) : 0;
    int32_t *ids = tokens ? base_alloc_zero((size_t)tokens, sizeof *ids) : NULL;
    by_status s = ids ? by_processor_encode(j->processor, m, ids) : base_error_status();
    by_image_free(m);
    if (s == BY_OK && tokens != by_model_context(k->model))
        s = base_fail(BY_ERR_FORMAT, "preprocessor_config.json does not match the pictures of the model");
    if (s == BY_OK) {
        by_processor_size(j->processor, &j->height, &j->width);
        j->layers = by_model_layers(k->model);
        j->heads = by_model_heads(k->model);
        j->picture = by_processor_decode(j->processor, ids);
        j->weights = base_alloc_zero(
            (size_t)j->layers * (size_t)j->heads * (size_t)j->height * (size_t)j->width, sizeof *j->weights);
        s = j->picture && j->weights ? choose_pixel(j) : base_error_status();
    }
    if (s == BY_OK)
        s = by_pixels_attention(k->model, ids, j->row, j->column, j->weights);
    base_free(ids);
    return s;
}

/* The weights of a head over the picture (head -1: the mean of the layer's), and the pixel in blue. */
static by_image *draw_map(const job *j, int layer, int head)
{
    const int pixels = j->height * j->width;
    float *sum = base_alloc_zero((size_t)pixels, sizeof *sum);
    for (int i = 0; sum && i < pixels; i++)
        for (int h = 0; h < j->heads; h++)
            if (head < 0 || h == head)
                sum[i] += j->weights[((ptrdiff_t)layer * j->heads + h) * pixels + i];
    by_image *m = sum ? report_overlay(j->picture, sum, j->height, j->width, false) : NULL;
    if (m)
        memcpy((uint8_t *)m->pixels + 3 * ((ptrdiff_t)j->row * j->width + j->column), "\x40\x90\xff", 3);
    base_free(sum);
    return m;
}

/* A row for each layer: the mean of its heads, then each of them. */
static by_status draw(const job *j)
{
    const int first = j->k->layer < 0 ? 0 : j->k->layer, last = j->k->layer < 0 ? j->layers - 1 : first;
    const int count = (last - first + 1) * (j->heads + 1);
    if (last >= j->layers)
        return base_fail(BY_ERR_ARGUMENT, "the model has %d layers, counted from 0", j->layers);
    by_image **list = base_alloc_zero((size_t)count, sizeof *list), *page = NULL;
    bool whole = list != NULL;
    for (int i = 0; whole && i < count; i++)
        whole = (list[i] = draw_map(j, first + i / (j->heads + 1), i % (j->heads + 1) - 1)) != NULL;
    if (whole)
        page = by_image_grid((const by_image *const *)list, count, j->heads + 1, BY_MAX(1, 128 / j->height));
    by_status s = page ? by_image_write_png(page, j->k->out) : base_error_status();
    for (int i = 0; list && i < count; i++)
        by_image_free(list[i]);
    base_free(list);
    by_image_free(page);
    return s;
}

static int print_json(const job *j)
{
    cJSON *o = cJSON_CreateObject(), *all = cJSON_AddArrayToObject(o, "weights");
    cJSON_AddNumberToObject(o, "row", j->row);
    cJSON_AddNumberToObject(o, "column", j->column);
    const float *w = j->weights;
    for (int i = 0; i < j->layers; i++) {
        cJSON *layer = cJSON_CreateArray();
        for (int h = 0; h < j->heads; h++, w += j->height * j->width)
            cJSON_AddItemToArray(layer, cJSON_CreateFloatArray(w, j->height * j->width));
        cJSON_AddItemToArray(all, layer);
    }
    return cli_print_json(o);
}

int cli_attention_pixels(const cli_pixel_look *k)
{
    job j = {.k = k};
    int code = CLI_OK;
    report_picture kind = REPORT_PICTURE_SVG;
    if (!k->json && (report_picture_of(k->out, &kind) != BY_OK || kind != REPORT_PICTURE_PNG))
        return cli_usage_fail("a pixel model's attention is drawn as a PNG: -o FILE.png");
    by_status s = look_at(&j);
    if (s == BY_OK && !k->json)
        s = draw(&j);
    if (s != BY_OK)
        code = cli_fail(NULL);
    else if (k->json)
        code = print_json(&j);
    else
        printf("%s: where pixel %d,%d looked, %s of %s\n", k->out, j.row, j.column,
               cli_counted(j.layers, "layer").s, cli_counted(j.heads, "head").s);
    by_processor_free(j.processor);
    by_image_free(j.picture);
    base_free(j.weights);
    return code;
}
