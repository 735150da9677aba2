/* generate_pictures.c - see generate_pictures.h. */
#include "cli/generate_pictures.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "banyan/image.h"
#include "banyan/picture_set.h"
#include "banyan/pixels.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/show.h"
#include "cli/strategy.h"
#include "report/page.h"

typedef struct task {
    by_model *model;
    const char *dir;           /* directory of the model and its processor */
    const char *out;           /* FILE.png */
    cli_list sources;          /* pictures to complete or to enlarge; none: from nothing */
    double keep;               /* fraction of their rows that is given, from the top */
    int limit;                 /* pictures of a dataset */
    int samples, batch, scale; /* samples: for each picture; scale 0: by the size of a picture */
    by_sampling sampling;
    bool json, quiet;
} task;

typedef struct job {
    const task *g;
    by_processor *processor, *small; /* small: of pictures that are enlarged, or NULL */
    by_canvas size;
    int64_t tokens;
    int sources, count; /* pictures to complete, and pictures to make */
    int32_t *originals; /* (sources, N) */
    int32_t *low;       /* (sources, L): input pictures, or NULL */
    int32_t *begun;     /* (count, L): the same for each picture that is made */
    int32_t *made;      /* (count, N) */
    bool *given;
    double *nats;
    double seconds;
} job;

static void on_progress(void *user, int64_t done, int64_t total)
{
    cli_progress *bar = user;
    bar->total = total;
    cli_progress_update(bar, done, "positions");
}

/* Allocates one more row of values. */
static bool grow(int32_t **list, int rows, int64_t row)
{
    int32_t *more = base_resize(*list, (size_t)((rows + 1) * row), sizeof *more);
    *list = more ? more : *list;
    return more != NULL;
}

/* The input picture: the given one if it has that size, otherwise the average of the large one. */
static by_status add_low(job *j, const by_image *m)
{
    const int low = by_canvas_low(&j->size), n = j->size.upscale;
    if (!grow(&j->low, j->sources, low))
        return BY_ERR_MEMORY;
    int32_t *to = j->low + (int64_t)j->sources * low;
    if (m->height == j->size.height / n && m->width == j->size.width / n)
        return by_processor_encode(j->small, m, to);
    by_canvas_reduce(&j->size, j->originals + j->sources * j->tokens, to);
    return BY_OK;
}

/* Adds a picture to those that are completed or enlarged. */
static by_status add_source(job *j, by_image *m)
{
    by_status s = !m ? base_error_status() : BY_OK;
    if (s == BY_OK && !grow(&j->originals, j->sources, j->tokens))
        s = BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_processor_encode(j->processor, m, j->originals + j->sources * j->tokens);
    if (s == BY_OK && j->size.upscale)
        s = add_low(j, m);
    j->sources += s == BY_OK;
    by_image_free(m);
    return s;
}

/* A picture, or the first pictures of a dataset. */
static by_status read_source(job *j, const char *path)
{
    const by_pixels format = by_processor_channels(j->processor) == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB;
    by_image *m = by_image_open(path, &(by_image_spec){.format = format});
    if (m || !base_file_exists(path))
        return add_source(j, m);
    by_picture_set *set =
        by_picture_set_open(&path, 1, &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE, .format = format});
    if (!set)
        return base_fail(BY_ERR_FORMAT, "%s: neither a picture nor a dataset of pictures", path);
    const int64_t count = BY_MIN(by_picture_set_count(set), (int64_t)j->g->limit);
    by_status s = BY_OK;
    for (int64_t i = 0; i < count && s == BY_OK; i++)
        s = add_source(j, by_picture_set_get(set, i));
    by_picture_set_free(set);
    return s;
}

static by_status read_sources(job *j)
{
    int height, width;
    by_processor_size(j->processor, &height, &width);
    for (int i = 0; i < j->g->sources.count; i++)
        BY_TRY(read_source(j, j->g->sources.items[i]));
    const int64_t row = j->tokens / height, rows = (int64_t)lround(j->g->keep * height);
    for (int64_t i = 0; i < rows * row && j->sources; i++)
        j->given[i] = true;
    return BY_OK;
}

/* Every sample begins as the picture that it completes. */
static by_status make_room(job *j)
{
    j->count = BY_MAX(j->sources, 1) * j->g->samples;
    j->made = base_alloc_zero((size_t)j->count * (size_t)j->tokens, sizeof *j->made);
    j->nats = base_alloc_zero((size_t)j->count, sizeof *j->nats);
    if (!j->made || !j->nats)
        return BY_ERR_MEMORY;
    for (int i = 0; i < j->count && j->sources; i++)
        memcpy(j->made + i * j->tokens, j->originals + i / j->g->samples * j->tokens,
               (size_t)j->tokens * sizeof *j->made);
    const int64_t low = by_canvas_low(&j->size);
    if (!j->low)
        return BY_OK;
    j->begun = base_alloc_zero((size_t)j->count * (size_t)low, sizeof *j->begun);
    for (int i = 0; j->begun && i < j->count; i++)
        memcpy(j->begun + i * low, j->low + i / j->g->samples * low, (size_t)low * sizeof *j->begun);
    return j->begun ? BY_OK : BY_ERR_MEMORY;
}

static by_status open_job(job *j)
{
    const task *g = j->g;
    by_model_canvas(g->model, &j->size);
    j->processor = by_processor_open(g->dir);
    if (!j->processor)
        return base_error_status();
    j->tokens = by_processor_tokens(j->processor);
    const int values = by_processor_colours(j->processor) ? by_processor_colours(j->processor) : 256;
    if (j->tokens != by_model_context(g->model) || values != j->size.values)
        return base_fail(BY_ERR_FORMAT, "preprocessor_config.json does not match the pictures of the model");
    const int n = j->size.upscale;
    j->small =
        !n ? NULL
           : by_processor_new(&(by_processor_spec){
                 .channels = j->size.channels, .height = j->size.height / n, .width = j->size.width / n});
    if (n && !j->small)
        return base_error_status();
    j->given = base_alloc_zero((size_t)j->tokens, sizeof *j->given);
    BY_TRY(j->given ? read_sources(j) : BY_ERR_MEMORY);
    return make_room(j);
}

static by_status sample(job *j)
{
    cli_progress bar = {.label = "generate", .quiet = j->g->quiet};
    const by_pixel_spec spec = {.sampling = j->g->sampling,
                                .batch = j->g->batch,
                                .given = j->sources ? j->given : NULL,
                                .low = j->begun,
                                .cancelled = cli_poll,
                                .progress = on_progress,
                                .user = &bar};
    const double started = base_seconds();
    cli_progress_start(&bar);
    by_status s = by_pixels_sample(j->g->model, &spec, j->made, j->count, j->nats);
    cli_progress_end(&bar);
    j->seconds = base_seconds() - started;
    return s;
}

/* A small picture in pixels of the size that the large one has. */
static by_image *small_picture(const job *j, const int32_t *low)
{
    const int n = j->size.upscale, width = j->size.width, channels = j->size.channels;
    int32_t *large = base_alloc_zero((size_t)j->tokens, sizeof *large);
    for (int i = 0; large && i < j->tokens; i++) {
        const int row = i / channels / width / n, column = i / channels % width / n;
        large[i] = low[(row * (width / n) + column) * channels + i % channels];
    }
    by_image *m = large ? by_processor_decode(j->processor, large) : NULL;
    base_free(large);
    return m;
}

/* The given part of a picture: the input, or some rows with mid-grey for the rest. */
static by_image *kept_part(const job *j, int source)
{
    int height, width;
    if (j->low)
        return small_picture(j, j->low + (int64_t)source * by_canvas_low(&j->size));
    by_image *m = by_processor_decode(j->processor, j->originals + source * j->tokens);
    by_processor_size(j->processor, &height, &width);
    for (int64_t i = 0; m && i < (int64_t)height * width; i++)
        if (!j->given[i * j->tokens / ((int64_t)height * width)])
            memset((uint8_t *)m->pixels + i * m->channels, 128, (size_t)m->channels);
    return m;
}

/* The grid: one row per completed or enlarged picture with the picture, the given part and the samples.
 * Otherwise as square as possible. */
static by_status draw(const job *j)
{
    const int each = j->g->samples + (j->sources ? 2 : 0), count = BY_MAX(j->sources, 1) * each;
    const int columns = j->sources ? each : (int)ceil(sqrt(j->count));
    by_image **list = base_alloc_zero((size_t)count, sizeof *list), *page = NULL;
    for (int i = 0; list && i < count; i++) {
        const int source = i / each, k = i % each - (j->sources ? 2 : 0);
        const int32_t *made = j->made + (source * j->g->samples + k) * j->tokens;
        list[i] = k >= 0    ? by_processor_decode(j->processor, made)
                  : k == -2 ? by_processor_decode(j->processor, j->originals + source * j->tokens)
                            : kept_part(j, source);
        if (!list[i])
            break;
    }
    const int scale = !list || !list[0] ? 1
                      : j->g->scale     ? j->g->scale
                                        : BY_MAX(1, 64 / BY_MAX(list[0]->height, 1));
    if (list && list[count - 1])
        page = by_image_grid((const by_image *const *)list, count, columns, scale);
    by_status s = page ? by_image_write_png(page, j->g->out) : base_error_status();
    for (int i = 0; list && i < count; i++)
        by_image_free(list[i]);
    base_free(list);
    by_image_free(page);
    return s;
}

static int print_result(const job *j)
{
    double nats = 0;
    int64_t own = 0;
    for (int i = 0; i < j->count; i++)
        nats += j->nats[i];
    for (int64_t i = 0; i < j->tokens; i++)
        own += !j->given[i];
    nats /= (double)BY_MAX(own, 1) * j->count;
    if (!j->g->json) {
        printf("%d picture%s in %.1f s, %.3f nats per %s: %s\n", j->count, j->count == 1 ? "" : "s",
               j->seconds, nats, j->size.palette ? "colour" : "value", j->g->out);
        return CLI_OK;
    }
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "out", j->g->out);
    cJSON_AddNumberToObject(o, "pictures", j->count);
    cJSON_AddNumberToObject(o, "tokens", (double)own);
    cli_json_number(o, "nats", nats);
    cli_json_number(o, "seconds", j->seconds);
    return cli_print_json(o);
}

static int generate(const task *g)
{
    job j = {.g = g};
    by_status s = open_job(&j);
    if (s == BY_OK)
        s = sample(&j);
    if (s == BY_OK)
        s = draw(&j);
    const int code = s == BY_ERR_CANCELLED ? CLI_INTERRUPTED : s == BY_OK ? print_result(&j) : cli_fail(NULL);
    by_processor_free(j.processor);
    by_processor_free(j.small);
    base_free(j.low);
    base_free(j.begun);
    base_free(j.made);
    base_free(j.originals);
    base_free(j.given);
    base_free(j.nats);
    return code;
}

/* Options of pictures; without them, those of texts. */
static const char *const pixel_names[] = {"out",     "complete", "upscale", "keep",    "scale",  "batch-size",
                                          "samples", "limit",    "temp",    "greedy",  "top-k",  "top-p",
                                          "min-p",   "typical",  "seed",    "json",    "device", "dtype",
                                          "weights", "threads",  "verbose", "adapter", NULL};

/* Values are sampled from the model's distribution unless options change it. */
int cli_run_pictures(cli_generation *j, const cli_args *args)
{
    const cli_generate_options *o = &j->o;
    const cli_option *other = cli_given_beyond(args, pixel_names, NULL);
    if (other || args->count > 1)
        return cli_usage_fail(other ? "--%s is not for pixel models" : "pixel models take no prompt%s",
                              other ? other->name : "");
    by_canvas size;
    by_model_canvas(j->model, &size);
    if ((size.upscale != 0) != (o->upscale.count != 0) && (o->upscale.count || !o->complete.count))
        return cli_usage_fail(size.upscale
                                  ? "this is a super-resolution model: give pictures with --upscale FILE"
                                  : "--upscale is for models trained with --upscale");
    if (o->upscale.count && o->complete.count)
        return cli_usage_fail("--complete and --upscale exclude each other");
    if (cli_given(args, &o->keep) && !o->complete.count)
        return cli_usage_fail("--keep needs --complete");
    if (cli_given(args, &o->limit) && !o->complete.count && !o->upscale.count)
        return cli_usage_fail("--limit needs --complete or --upscale");
    report_picture kind = REPORT_PICTURE_SVG;
    if (!o->out || report_picture_of(o->out, &kind) != BY_OK || kind != REPORT_PICTURE_PNG)
        return cli_usage_fail("no output file: give --out FILE.png");
    char *dir = cli_model_dir(args->items[0]);
    const by_sampling sampling = {.temperature = o->greedy                   ? 0
                                                 : cli_given(args, &o->temp) ? o->temp
                                                                             : 1,
                                  .top_k = cli_given(args, &o->top_k) ? o->top_k : 0,
                                  .top_p = cli_given(args, &o->top_p) ? cli_share(o->top_p) : 0,
                                  .min_p = cli_given(args, &o->min_p) ? o->min_p : 0,
                                  .typical_p = cli_given(args, &o->typical) ? cli_share(o->typical) : 0,
                                  .seed = (uint64_t)o->seed};
    const int code = dir && cli_check_cutoffs(args, sampling.temperature) == BY_OK
                         ? generate(&(task){.model = j->model,
                                            .dir = dir,
                                            .out = o->out,
                                            .sources = o->upscale.count ? o->upscale : o->complete,
                                            .keep = o->upscale.count ? 0 : o->keep,
                                            .samples = o->samples,
                                            .limit = o->limit,
                                            .batch = o->batch,
                                            .scale = o->scale,
                                            .sampling = sampling,
                                            .json = o->json,
                                            .quiet = !isatty(STDERR_FILENO)})
                         : cli_fail(NULL);
    base_free(dir);
    return code;
}
