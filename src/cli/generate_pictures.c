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
#include "report/page.h"

typedef struct task {
    by_model *model;
    const char *dir;           /* of the model, whose processor is there too */
    const char *out;           /* FILE.png */
    cli_list complete;         /* pictures to complete; none: from nothing */
    double keep;               /* share of their rows, from the top */
    int limit;                 /* pictures of a dataset */
    int samples, batch, scale; /* samples: for each picture; scale 0: by the size of a picture */
    by_sampling sampling;
    bool json, quiet;
} task;

typedef struct job {
    const task *g;
    by_processor *processor;
    by_canvas size;
    int64_t tokens;
    int sources, count; /* pictures to complete, and pictures to make */
    int32_t *originals; /* (sources, N) */
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

/* Adds a picture to those that are completed. */
static by_status add_source(job *j, by_image *m)
{
    int32_t *more =
        m ? base_resize(j->originals, (size_t)((j->sources + 1) * j->tokens), sizeof *more) : NULL;
    j->originals = more ? more : j->originals;
    by_status s = !m ? base_error_status() : !more ? BY_ERR_MEMORY : BY_OK;
    if (s == BY_OK)
        s = by_processor_encode(j->processor, m, j->originals + j->sources++ * j->tokens);
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
    for (int i = 0; i < j->g->complete.count; i++)
        BY_TRY(read_source(j, j->g->complete.items[i]));
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
    return BY_OK;
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
        return base_fail(BY_ERR_FORMAT,
                         "preprocessor_config.json is about other pictures than the model makes");
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

/* What was given of a picture; the rest is mid-grey. */
static by_image *kept_part(const job *j, const int32_t *tokens)
{
    int height, width;
    by_image *m = by_processor_decode(j->processor, tokens);
    by_processor_size(j->processor, &height, &width);
    for (int64_t i = 0; m && i < (int64_t)height * width; i++)
        if (!j->given[i * j->tokens / ((int64_t)height * width)])
            memset((uint8_t *)m->pixels + i * m->channels, 128, (size_t)m->channels);
    return m;
}

/* A row for each picture that was completed: the picture, what was given, the samples. Otherwise as square as possible. */
static by_status draw(const job *j)
{
    const int each = j->g->samples + (j->sources ? 2 : 0), count = BY_MAX(j->sources, 1) * each;
    const int columns = j->sources ? each : (int)ceil(sqrt(j->count));
    by_image **list = base_alloc_zero((size_t)count, sizeof *list), *page = NULL;
    for (int i = 0; list && i < count; i++) {
        const int source = i / each, k = i % each - (j->sources ? 2 : 0);
        const int32_t *original = j->originals + source * j->tokens;
        list[i] = k >= 0
                      ? by_processor_decode(j->processor, j->made + (source * j->g->samples + k) * j->tokens)
                  : k == -2 ? by_processor_decode(j->processor, original)
                            : kept_part(j, original);
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
        printf("%d pictures in %.1f s, %.3f nats per %s: %s\n", j->count, j->seconds, nats,
               j->size.palette ? "colour" : "value", j->g->out);
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
    base_free(j.made);
    base_free(j.originals);
    base_free(j.given);
    base_free(j.nats);
    return code;
}

/* Options of pictures; without them, those of texts. */
static const char *const pixel_names[] = {"out",     "complete", "keep",   "scale",  "batch-size", "samples",
                                          "limit",   "temp",     "greedy", "top-k",  "top-p",      "min-p",
                                          "typical", "seed",     "json",   "device", "dtype",      "weights",
                                          "threads", "verbose",  NULL};

/* Values are drawn as they are likely, unless something else is asked for. */
int cli_run_pictures(cli_generation *j, const cli_args *args)
{
    const cli_generate_options *o = &j->o;
    const cli_option *other = cli_given_beyond(args, pixel_names, NULL);
    if (other || args->count > 1)
        return cli_usage_fail(other ? "--%s is not for models of pixels"
                                    : "models of pixels take no prompt%s",
                              other ? other->name : "");
    report_picture kind = REPORT_PICTURE_SVG;
    if (!o->out || report_picture_of(o->out, &kind) != BY_OK || kind != REPORT_PICTURE_PNG)
        return cli_usage_fail("give the file for the pictures: --out FILE.png");
    char *dir = cli_model_dir(args->items[0]);
    const by_sampling sampling = {.temperature = o->greedy                   ? 0
                                                 : cli_given(args, &o->temp) ? o->temp
                                                                             : 1,
                                  .top_k = cli_given(args, &o->top_k) ? o->top_k : 0,
                                  .top_p = cli_given(args, &o->top_p) ? cli_share(o->top_p) : 0,
                                  .min_p = cli_given(args, &o->min_p) ? o->min_p : 0,
                                  .typical_p = cli_given(args, &o->typical) ? cli_share(o->typical) : 0,
                                  .seed = (uint64_t)o->seed};
    const int code = dir ? generate(&(task){.model = j->model,
                                            .dir = dir,
                                            .out = o->out,
                                            .complete = o->complete,
                                            .keep = o->keep,
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
