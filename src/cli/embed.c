/* embed.c - banyan embed: a vector for every text. */
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
     .help = "how tokens make one vector (auto: as the model's directory says, else the mean)",
     .group = "Vectors"},
    {CLI_AT(embed_options, normalize), .name = "normalize",
     .help = "make vectors of length 1 (else as the model's directory says)"},
    {CLI_AT(embed_options, limit), .name = "max-length", CLI_RANGE(0, 1e7), .preset = "0",
     .help = "tokens of a text that are read (0: as the directory says, or the model's context)"},
    {CLI_AT(embed_options, similarity), .name = "similarity",
     .help = "print how alike the texts are, the cosine of each pair, instead of their vectors"},
    {CLI_AT(embed_options, format), .name = "format", .choices = "text|f32", .preset = "text",
     .help = "numbers in text, or raw little-endian floats"},
    {CLI_AT(embed_options, time), .name = "time",
     .help = "say how many texts a second were read, without opening and printing"},
    CLI_READ_ROWS(embed_options),
};

typedef struct job {
    embed_options o;
    by_embedder *embedder;
    by_device *device;
    float *vectors; /* of the present texts */
    double seconds; /* spent on vectors */
} job;

static by_status open_job(job *j, const char *path, bool normalize_given)
{
    char *dir = cli_model_dir(path);
    j->device = dir ? cli_device(j->o.read.device, j->o.read.threads) : NULL;
    by_embed_spec spec = {.dtype = (by_dtype)j->o.read.dtype,
                          .pooling = (by_pooling)j->o.pooling,
                          .normalize = !normalize_given ? 0
                                       : j->o.normalize ? 1
                                                        : -1,
                          .limit = j->o.limit,
                          .batch = j->o.read.batch};
    j->embedder = j->device ? by_embedder_open(j->device, dir, &spec) : NULL;
    by_free(dir);
    return j->embedder ? BY_OK : by_error_status();
}

static void put_vector(const job *j, const char *text, const float *v)
{
    const int n = by_embedder_width(j->embedder);
    by_buf out = {0};
    if (j->o.read.json) {
        by_buf_puts(&out, "{\"text\":");
        by_json_quote(&out, text);
        by_buf_puts(&out, ",\"embedding\":[");
    }
    for (int i = 0; i < n; i++)
        by_buf_printf(&out, "%s%.9g", i == 0 ? "" : j->o.read.json ? "," : " ", (double)v[i]);
    by_buf_puts(&out, j->o.read.json ? "]}\n" : "\n");
    fwrite(out.data ? out.data : "", 1, out.size, stdout);
    by_buf_free(&out);
}

static double cosine(const float *a, const float *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static void put_similarity(const job *j, const cli_texts *t)
{
    const int n = by_embedder_width(j->embedder);
    for (int a = 0; a < t->count; a++)
        for (int b = 0; b < t->count; b++)
            printf("%.4f%c",
                   cosine(j->vectors + (size_t)a * (size_t)n, j->vectors + (size_t)b * (size_t)n, n),
                   b + 1 < t->count ? '\t' : '\n');
}

static by_status embed(job *j, const cli_texts *t)
{
    const size_t width = (size_t)by_embedder_width(j->embedder);
    float *more = by_resize(j->vectors, (size_t)t->count * width, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    j->vectors = more;
    double begin = by_seconds();
    BY_TRY(by_embedder_run(j->embedder, (const char *const *)t->texts, t->count, j->vectors));
    j->seconds += by_seconds() - begin;
    if (j->o.similarity)
        put_similarity(j, t);
    else if (j->o.format == BINARY)
        fwrite(j->vectors, sizeof *j->vectors, (size_t)t->count * width, stdout);
    else
        for (int i = 0; i < t->count; i++)
            put_vector(j, t->texts[i], j->vectors + (size_t)i * width);
    return BY_OK;
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
    code = s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    if (j.o.time && s == BY_OK)
        cli_note("%lld texts in %.3f s, %.0f a second", (long long)texts.before, j.seconds,
                 (double)texts.before / j.seconds);
    cli_texts_free(&texts);
    by_embedder_free(j.embedder);
    by_device_free(j.device);
    by_free(j.vectors);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_embed = {
    .name = "embed",
    .summary = "vectors of texts, for search and comparison",
    .args = "MODEL [TEXT...]",
    .description = "Each TEXT, or else each line of the input, gives one line: the numbers of its vector. "
                   "Directories of "
                   "sentence-transformers are read with their modules.json, pooling and normalisation.\n\n"
                   "--similarity compares up to 4096 texts with each other.",
    .examples =
        "banyan embed all-MiniLM-L6-v2 \"A man is eating food.\" \"Someone has lunch.\" --similarity\n"
        "banyan embed bert-base-uncased --pooling cls --json < texts.txt > vectors.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
