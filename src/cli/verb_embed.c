/* verb_embed.c - banyan embed: a vector for every text or picture, and search by them. */
#include <stdio.h>

#include "banyan/embed.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/pictures.h"
#include "cli/read.h"
#include "cli/verbs.h"
#include "base/json.h"
#include "infer/predict.h"

typedef struct embed_options {
    cli_read_options read;
    unsigned pooling, format;
    bool normalize, similarity, time;
    int limit, top;
    const char *search;
} embed_options;

enum { PLAIN, BINARY };

static const cli_option options[] = {
    {CLI_AT(embed_options, pooling), .name = "pooling", .choices = "auto|mean|cls|max|last|sqrt-mean",
     .preset = "auto",
     .help = "how token vectors are combined; auto follows the model's directory, otherwise mean",
     .group = "Vectors"},
    {CLI_AT(embed_options, normalize), .name = "normalize",
     .help = "scale vectors to length 1 (default: as the model's directory says)"},
    {CLI_AT(embed_options, limit), .name = "max-length", CLI_RANGE(0, 1e7), .preset = "0",
     .help = "maximum tokens of a text; 0 follows the model's directory, otherwise the model's context"},
    {CLI_AT(embed_options, similarity), .name = "similarity",
     .help = "print cosine similarities of all pairs instead of vectors, one row per text"},
    {CLI_AT(embed_options, search), .name = "search", .letter = 's', .value = "QUERY",
     .help = "print the texts or pictures nearest to QUERY (a text or a picture) with their cosines"},
    {CLI_AT(embed_options, top), .name = "top", .letter = 'k', CLI_RANGE(1, 1e9), .preset = "10",
     .value = "K", .help = "results of a search"},
    {CLI_AT(embed_options, format), .name = "format", .choices = "text|f32", .preset = "text",
     .help = "numbers as text, or raw little-endian floats"},
    {CLI_AT(embed_options, time), .name = "time",
     .help = "print texts per second on stderr, excluding loading and output"},
    CLI_READ_ROWS(embed_options),
};

/* The input of a kept vector. */
typedef struct example {
    const char *what; /* "text" or "picture" */
    char *name;       /* the text, or the picture's path */
} example;

typedef struct job {
    embed_options o;
    by_embedder *embedder;
    by_device *device;
    float *vectors;      /* vectors of the current examples; if they are kept, of all, as unit vectors */
    example *kept;       /* examples to compare */
    int64_t count, room; /* number of kept examples */
    int64_t done;        /* examples so far */
    double seconds;      /* seconds spent on vectors */
} job;

/* Whether vectors are kept, because they are compared only when all have been computed. */
static bool keeps(const job *j)
{
    return j->o.similarity || j->o.search;
}

static by_status open_job(job *j, const char *path, bool normalize_given)
{
    char *dir = cli_model_dir(path);
    cli_note_widening(dir, (by_dtype)j->o.read.dtype);
    j->device = dir ? cli_device(j->o.read.device, j->o.read.threads) : NULL;
    by_embed_spec spec = {.dtype = (by_dtype)j->o.read.dtype,
                          .pooling = (by_pooling)j->o.pooling,
                          .normalize = !normalize_given ? 0
                                       : j->o.normalize ? 1
                                                        : -1,
                          .limit = j->o.limit,
                          .batch = j->o.read.batch,
                          .adapter = j->o.read.adapter};
    j->embedder = j->device ? by_embedder_open(j->device, dir, &spec) : NULL;
    base_free(dir);
    return j->embedder ? BY_OK : base_error_status();
}

/* what: "text" or "picture". */
static void put_vector(const job *j, const char *what, const char *name, const float *v)
{
    const int n = by_embedder_width(j->embedder);
    base_buf out = {0};
    if (j->o.read.json) {
        base_buf_printf(&out, "{\"%s\":", what);
        base_json_quote(&out, name);
        base_buf_puts(&out, ",\"embedding\":[");
    }
    for (int i = 0; i < n; i++) {
        base_buf_puts(&out, i == 0 ? "" : j->o.read.json ? "," : " ");
        base_json_put_number(&out, (double)v[i], 9);
    }
    base_buf_puts(&out, j->o.read.json ? "]}\n" : "\n");
    fwrite(out.data ? out.data : "", 1, out.size, stdout);
    base_buf_free(&out);
}

/* Scales vectors to length 1, so that products are cosines. Zero vectors stay. */
static void make_unit(float *v, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    for (int i = 0; i < n && sum > 0; i++)
        v[i] = (float)((double)v[i] / sqrt(sum));
}

static double product(const float *a, const float *b, int n)
{
    enum { LANES = 8 };
    double lanes[LANES] = {0}, sum = 0;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* Prints one row of the matrix at a time, so that only the vectors are in memory. */
static by_status put_similarities(const job *j)
{
    const int n = by_embedder_width(j->embedder);
    for (int64_t a = 0; a < j->count && cli_flush() && !cli_interrupted(); a++) {
        base_buf out = {0};
        if (j->o.read.json) {
            base_buf_printf(&out, "{\"%s\":", j->kept[a].what);
            base_json_quote(&out, j->kept[a].name);
            base_buf_puts(&out, ",\"similarity\":[");
        }
        for (int64_t b = 0; b < j->count; b++)
            base_buf_printf(&out, "%s%.4f",
                            b == 0           ? ""
                            : j->o.read.json ? ","
                                             : "\t",
                            product(j->vectors + a * n, j->vectors + b * n, n));
        base_buf_puts(&out, j->o.read.json ? "]}\n" : "\n");
        BY_TRY(cli_put(&out));
    }
    return BY_OK;
}

/* Makes room for `more` vectors. */
static by_status reserve(job *j, int more)
{
    if (j->count + more <= j->room)
        return BY_OK;
    const int64_t room = BY_MAX(j->count + more, 2 * j->count);
    float *vectors =
        base_resize(j->vectors, (size_t)room * (size_t)by_embedder_width(j->embedder), sizeof *vectors);
    j->vectors = vectors ? vectors : j->vectors;
    example *kept = vectors && keeps(j) ? base_resize(j->kept, (size_t)room, sizeof *kept) : NULL;
    j->kept = kept ? kept : j->kept;
    if (!vectors || (keeps(j) && !kept))
        return BY_ERR_MEMORY;
    j->room = room;
    return BY_OK;
}

/* Keeps an example for comparison, or prints its vector. */
static by_status put(job *j, const char *what, const char *name, float *v)
{
    const int width = by_embedder_width(j->embedder);
    j->done++;
    if (keeps(j)) {
        make_unit(v, width);
        j->kept[j->count] = (example){what, base_strdup(name)};
        if (!j->kept[j->count].name)
            return BY_ERR_MEMORY;
        j->count++;
    } else if (j->o.format == BINARY) {
        fwrite(v, sizeof *v, (size_t)width, stdout);
    } else {
        put_vector(j, what, name, v);
    }
    return BY_OK;
}

/* ---- texts and pictures ------------------------------------------------------------------------ */

static by_status embed_texts(job *j, char *const *texts, int count)
{
    const size_t width = (size_t)by_embedder_width(j->embedder);
    BY_TRY(reserve(j, count));
    float *vectors = j->vectors + (size_t)j->count * width;
    const double begin = base_seconds();
    BY_TRY(by_embedder_run(j->embedder, (const char *const *)texts, count, vectors));
    j->seconds += base_seconds() - begin;
    for (int i = 0; i < count; i++)
        BY_TRY(put(j, "text", texts[i], vectors + (size_t)i * width));
    return BY_OK;
}

static by_status embed_set(job *j, const by_picture_set *set)
{
    enum { TOGETHER = 1024 };
    const size_t width = (size_t)by_embedder_width(j->embedder);
    const int64_t all = by_picture_set_count(set);
    for (int64_t first = 0; first < all && cli_flush() && !cli_interrupted(); first += TOGETHER) {
        const int count = (int)BY_MIN(all - first, (int64_t)TOGETHER);
        BY_TRY(reserve(j, count));
        float *vectors = j->vectors + (size_t)j->count * width;
        const double begin = base_seconds();
        BY_TRY(by_embedder_run_pictures(j->embedder, set, first, count, vectors));
        j->seconds += base_seconds() - begin;
        for (int i = 0; i < count; i++) {
            char name[4096];
            by_picture_set_name(set, first + i, name, sizeof name);
            BY_TRY(put(j, "picture", name, vectors + (size_t)i * width));
        }
    }
    return BY_OK;
}

static by_status embed_pictures(job *j, char **paths, int count)
{
    by_picture_set *set = cli_pictures_open(paths, count, j->o.read.file, by_embedder_channels(j->embedder));
    by_status s = set ? embed_set(j, set) : base_error_status();
    by_picture_set_free(set);
    return s;
}

static by_status embed_lines(job *j, char **texts, int count)
{
    cli_texts all = {.arguments = texts, .n_arguments = count, .path = j->o.read.file};
    by_status s = BY_OK;
    while (s == BY_OK && (s = cli_texts_next(&all)) == BY_OK && all.count > 0 && cli_flush())
        s = embed_texts(j, all.texts, all.count);
    cli_texts_free(&all);
    return s;
}

/* For a model that reads both, an argument that names pictures is not a text. */
static bool is_picture(const job *j, const char *argument)
{
    if (!by_embedder_reads_pictures(j->embedder) || !by_embedder_reads_texts(j->embedder))
        return by_embedder_reads_pictures(j->embedder);
    return cli_names_pictures(argument);
}

static by_status embed_all(job *j, char **arguments, int count)
{
    by_status s = BY_OK;
    if (count == 0)
        return by_embedder_reads_texts(j->embedder) ? embed_lines(j, NULL, 0) : embed_pictures(j, NULL, 0);
    for (int i = 0, end; i < count && s == BY_OK; i = end) {
        const bool picture = is_picture(j, arguments[i]);
        for (end = i + 1; end < count && is_picture(j, arguments[end]) == picture;)
            end++;
        s = picture ? embed_pictures(j, arguments + i, end - i) : embed_lines(j, arguments + i, end - i);
    }
    return s;
}

/* ---- search ------------------------------------------------------------------------------------ */

static by_status put_nearest(const job *j, const float *query)
{
    const int n = by_embedder_width(j->embedder), all = (int)BY_MIN(j->count, (int64_t)INT32_MAX);
    const int most = BY_MIN(j->o.top, all);
    float *scores = base_alloc_zero((size_t)all + 1, sizeof *scores);
    int *places = base_alloc_zero((size_t)most + 1, sizeof *places);
    base_buf out = {0};
    for (int i = 0; scores && places && i < all; i++)
        scores[i] = (float)product(query, j->vectors + (int64_t)i * n, n);
    const int found = scores && places ? gen_places_top(scores, all, most, places) : 0;
    for (int i = 0; i < found; i++) {
        const char *name = j->kept[places[i]].name;
        if (j->o.read.json) {
            base_buf_puts(&out, "{\"name\":");
            base_json_quote(&out, name);
            base_buf_printf(&out, ",\"score\":%.6f}\n", (double)scores[places[i]]);
        } else {
            base_buf_printf(&out, "%.4f\t%s\n", (double)scores[places[i]], name);
        }
    }
    by_status s = scores && places ? cli_put(&out) : BY_ERR_MEMORY;
    base_free(scores);
    base_free(places);
    return s;
}

/* Searches with the unit vector of the query, which is not among the results. */
static by_status search(job *j)
{
    char *query = (char *)j->o.search;
    const size_t width = (size_t)by_embedder_width(j->embedder);
    if (!by_embedder_reads_texts(j->embedder) && !base_file_exists(query))
        return base_fail(BY_ERR_ARGUMENT, "--search %s: no such file, and the model reads only pictures",
                         query);
    float *v = base_alloc(width * sizeof *v);
    if (!v)
        return BY_ERR_MEMORY;
    const int64_t before = j->count;
    by_status s = embed_all(j, &query, 1);
    if (s == BY_OK && j->count != before + 1)
        s = base_fail(BY_ERR_ARGUMENT, "--search %s: expected one picture or text, not %lld", query,
                      (long long)(j->count - before));
    if (s == BY_OK) {
        j->count--;
        base_free(j->kept[j->count].name);
        memcpy(v, j->vectors + (size_t)j->count * width, width * sizeof *v);
        s = put_nearest(j, v);
    }
    base_free(v);
    return s;
}

static void close_job(job *j)
{
    for (int64_t i = 0; j->kept && i < j->count; i++)
        base_free(j->kept[i].name);
    base_free(j->kept);
    base_free(j->vectors);
    by_embedder_free(j->embedder);
    by_device_free(j->device);
}

/* Why the options conflict, or NULL. */
static const char *conflict(const embed_options *o, const cli_args *args)
{
    if (o->search && o->similarity)
        return "--search and --similarity exclude each other";
    if (!o->search && cli_given(args, &o->top))
        return "--top needs --search";
    if (o->format == BINARY && (o->search || o->similarity || o->read.json))
        return "--format f32 is for vectors: it does not go with --search, --similarity and --json";
    return NULL;
}

/* Fails for options that the model cannot use. */
static by_status check_options(const job *j, const cli_args *args)
{
    const bool texts = by_embedder_reads_texts(j->embedder),
               pictures = by_embedder_reads_pictures(j->embedder);
    if (!texts && cli_given(args, &j->o.limit))
        return base_fail(BY_ERR_ARGUMENT, "--max-length is for texts, and the model reads only pictures");
    if (texts && pictures && cli_given(args, &j->o.pooling))
        return base_fail(BY_ERR_ARGUMENT,
                         "--pooling is not for models of texts and pictures, which have their own");
    return BY_OK;
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_embed, argc, argv, &j.o, &args, &code) ||
        !cli_one_source(j.o.read.file, &args, &code))
        return code;
    if (conflict(&j.o, &args)) {
        code = cli_usage_fail("%s", conflict(&j.o, &args));
        cli_args_free(&args);
        return code;
    }
    cli_interrupt_install();
    by_status s = open_job(&j, args.items[0], cli_given(&args, &j.o.normalize));
    if (s == BY_OK)
        s = check_options(&j, &args);
    if (s == BY_OK)
        s = embed_all(&j, args.items + 1, args.count - 1);
    if (s == BY_OK && j.o.search && !cli_interrupted())
        s = search(&j);
    else if (s == BY_OK && j.o.similarity && !cli_interrupted())
        s = put_similarities(&j);
    code = s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    if (j.o.time && s == BY_OK)
        cli_note("%lld %s in %.3f s, %.0f per second", (long long)j.done,
                 by_embedder_reads_texts(j.embedder) ? "texts" : "pictures", j.seconds,
                 (double)j.done / j.seconds);
    close_job(&j);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_embed = {
    .name = "embed",
    .summary = "compute vectors of texts and pictures, for search and comparison",
    .args = "MODEL [INPUT...]",
    .description =
        "Prints the vector of each INPUT, a text, one per line. Without INPUT, each line of standard input "
        "is a text. A sentence-transformers directory is read with its modules.json, pooling and "
        "normalisation.\n"
        "\n"
        "With a model of pictures, INPUT is a PNG, JPEG, WebP or GIF file, a directory of them, or a dataset "
        "that finetune reads; the vector is the class token unless --pooling selects another. For a model of "
        "texts and pictures (CLIP), an argument that is a file or directory, or has the extension of a "
        "picture, is a picture; any other is a text. Their vectors share one space.\n"
        "\n"
        "--similarity compares all inputs with each other and prints one row of cosines for each (as JSON "
        "with --json). --search ranks them by their cosine with QUERY. The vectors are held in memory; the "
        "matrix is not.",
    .examples =
        "banyan embed all-MiniLM-L6-v2 \"A man is eating food.\" \"Someone has lunch.\" --similarity\n"
        "banyan embed bert-base-uncased --pooling cls --json < texts.txt > vectors.jsonl\n"
        "banyan embed clip-vit-base-patch32 --search \"a dog in the snow\" photos/\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
