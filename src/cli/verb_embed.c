/* verb_embed.c - banyan embed: a vector for every text. */
#include <stdio.h>

#include "banyan/embed.h"
#include "cli/common.h"
#include "cli/read.h"
#include "cli/verbs.h"
#include "base/json.h"

typedef struct embed_options {
    cli_read_options read;
    unsigned pooling, format;
    bool normalize, similarity, time;
    int limit;
} embed_options;

enum { PLAIN, BINARY };

static const cli_option options[] = {
    {CLI_AT(embed_options, pooling), .name = "pooling", .choices = "auto|mean|cls|max|last|sqrt-mean",
     .preset = "auto",
     .help = "how token vectors become one vector; auto follows the model's directory, else mean",
     .group = "Vectors"},
    {CLI_AT(embed_options, normalize), .name = "normalize",
     .help = "scale vectors to length 1 (default: as the model's directory says)"},
    {CLI_AT(embed_options, limit), .name = "max-length", CLI_RANGE(0, 1e7), .preset = "0",
     .help = "tokens read of each text; 0 follows the model's directory, else the model's context"},
    {CLI_AT(embed_options, similarity), .name = "similarity",
     .help = "print cosine similarities of all pairs instead of vectors, one row per text"},
    {CLI_AT(embed_options, format), .name = "format", .choices = "text|f32", .preset = "text",
     .help = "numbers as text, or raw little-endian floats"},
    {CLI_AT(embed_options, time), .name = "time",
     .help = "print texts per second on stderr, without opening and printing"},
    CLI_READ_ROWS(embed_options),
};

typedef struct job {
    embed_options o;
    by_embedder *embedder;
    by_device *device;
    float *vectors;      /* of the present texts; with --similarity of all, made to length 1 */
    char **texts;        /* all of them, with --similarity and --json */
    int64_t count, room; /* of all texts, with --similarity */
    double seconds;      /* spent on vectors */
} job;

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
                          .batch = j->o.read.batch};
    j->embedder = j->device ? by_embedder_open(j->device, dir, &spec) : NULL;
    base_free(dir);
    return j->embedder ? BY_OK : base_error_status();
}

static void put_vector(const job *j, const char *text, const float *v)
{
    const int n = by_embedder_width(j->embedder);
    base_buf out = {0};
    if (j->o.read.json) {
        base_buf_puts(&out, "{\"text\":");
        base_json_quote(&out, text);
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

/* Vectors of length 1, whose products are cosines; one of zeros stays as it is. */
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

/* One row of the matrix at a time: of all there is, only the vectors are held. */
static by_status put_similarities(const job *j)
{
    const int n = by_embedder_width(j->embedder);
    for (int64_t a = 0; a < j->count && cli_flush() && !cli_interrupted(); a++) {
        base_buf out = {0};
        if (j->o.read.json) {
            base_buf_puts(&out, "{\"text\":");
            base_json_quote(&out, j->texts[a]);
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

/* Make room for `more` vectors. */
static by_status reserve(job *j, int more)
{
    if (j->count + more <= j->room)
        return BY_OK;
    const int64_t room = BY_MAX(j->count + more, 2 * j->count);
    float *vectors =
        base_resize(j->vectors, (size_t)room * (size_t)by_embedder_width(j->embedder), sizeof *vectors);
    j->vectors = vectors ? vectors : j->vectors;
    char **texts = vectors && j->o.similarity && j->o.read.json
                       ? base_resize(j->texts, (size_t)room, sizeof *texts)
                       : NULL;
    j->texts = texts ? texts : j->texts;
    if (!vectors || (j->o.similarity && j->o.read.json && !texts))
        return BY_ERR_MEMORY;
    j->room = room;
    return BY_OK;
}

/* For the matrix, which begins when all texts are read. */
static by_status keep(job *j, const cli_texts *t, float *vectors)
{
    const int width = by_embedder_width(j->embedder);
    for (int i = 0; i < t->count; i++) {
        make_unit(vectors + (size_t)i * (size_t)width, width);
        if (j->texts && !(j->texts[j->count] = base_strdup(t->texts[i])))
            return BY_ERR_MEMORY;
        j->count++;
    }
    return BY_OK;
}

static by_status embed(job *j, const cli_texts *t)
{
    const size_t width = (size_t)by_embedder_width(j->embedder);
    BY_TRY(reserve(j, t->count));
    float *vectors = j->vectors + (size_t)j->count * width;
    double begin = base_seconds();
    BY_TRY(by_embedder_run(j->embedder, (const char *const *)t->texts, t->count, vectors));
    j->seconds += base_seconds() - begin;
    if (j->o.similarity)
        return keep(j, t, vectors);
    if (j->o.format == BINARY)
        fwrite(vectors, sizeof *vectors, (size_t)t->count * width, stdout);
    else
        for (int i = 0; i < t->count; i++)
            put_vector(j, t->texts[i], vectors + (size_t)i * width);
    return BY_OK;
}

static void close_job(job *j)
{
    for (int64_t i = 0; j->texts && i < j->count; i++)
        base_free(j->texts[i]);
    base_free(j->texts);
    base_free(j->vectors);
    by_embedder_free(j->embedder);
    by_device_free(j->device);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_embed, argc, argv, &j.o, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {.arguments = args.items + 1, .n_arguments = args.count - 1, .path = j.o.read.file};
    by_status s = open_job(&j, args.items[0], cli_given(&args, &j.o.normalize));
    while (s == BY_OK && (s = cli_texts_next(&texts)) == BY_OK && texts.count > 0 && cli_flush())
        s = embed(&j, &texts);
    if (s == BY_OK && j.o.similarity && !cli_interrupted())
        s = put_similarities(&j);
    code = s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    if (j.o.time && s == BY_OK)
        cli_note("%lld texts in %.3f s, %.0f per second", (long long)texts.before, j.seconds,
                 (double)texts.before / j.seconds);
    cli_texts_free(&texts);
    close_job(&j);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_embed = {
    .name = "embed",
    .summary = "compute vectors of texts, for search and comparison",
    .args = "MODEL [TEXT...]",
    .description =
        "Prints the vector of each TEXT or, without TEXT, of each line of the input, one per line. "
        "A sentence-transformers directory is read with its modules.json, pooling and "
        "normalisation.\n"
        "\n"
        "--similarity compares all texts with each other and prints one row of cosines per text "
        "(as JSON with --json). The vectors are held in memory, the matrix is not.",
    .examples =
        "banyan embed all-MiniLM-L6-v2 \"A man is eating food.\" \"Someone has lunch.\" --similarity\n"
        "banyan embed bert-base-uncased --pooling cls --json < texts.txt > vectors.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
