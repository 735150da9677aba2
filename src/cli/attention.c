/* attention.c - banyan attention: what every head of every layer looks at, as a picture and as numbers. */
#include <stdio.h>

#include "banyan/pass.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/verbs.h"
#include "io/heatmap.h"
#include "base/json.h"
#include "text/tokenizer.h"

typedef struct attention_options {
    const char *pair, *out, *device;
    int layer, head, threads;
    bool json;
} attention_options;

static const cli_option options[] = {
    {CLI_AT(attention_options, pair), .name = "pair", .value = "TEXT",
     .help = "a second text, for models that read two"},
    {CLI_AT(attention_options, layer), .name = "layer", CLI_MIN(-1), .preset = "-1",
     .help = "the layer drawn large (-1: the last)"},
    {CLI_AT(attention_options, head), .name = "head", CLI_MIN(-1), .preset = "-1",
     .help = "its head (-1: the mean of all)"},
    {CLI_AT(attention_options, out), .name = "out", .letter = 'o', .preset = "attention.svg", .value = "FILE",
     .help = "where the picture goes"},
    {CLI_AT(attention_options, json), .name = "json",
     .help = "print the weights as JSON instead of drawing them"},
    {CLI_AT(attention_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "where to compute: cpu, cuda, or auto", .group = "Machine"},
    {CLI_AT(attention_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads (0: every core)"},
};

typedef struct look {
    attention_options o;
    by_device *device;
    by_model *model;
    by_tokenizer *tokenizer;
    by_pass *pass;
    by_encoding text;
    int32_t *segments;
    char **names;   /* (T) of the tokens */
    float *weights; /* (layers, heads, T, T) */
    int layers, heads, tokens;
} look;

static size_t map_size(const look *k)
{
    return (size_t)k->tokens * (size_t)k->tokens;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* What a token is called: its part of the text, or what a special one decodes to. */
static char *name_of(const look *k, const char *text, int i)
{
    const by_offset at = k->text.offsets[i];
    const char *from = k->text.types[i] && k->o.pair ? k->o.pair : text;
    if (!k->text.special[i] && at.end > at.start)
        return by_sprintf("%.*s", (int)(at.end - at.start), from + at.start);
    return by_decode(k->tokenizer, &k->text.ids.data[i], 1, NULL);
}

static by_status encode(look *k, const char *text)
{
    by_encode_spec spec = {.special = true,
                           .offsets = true,
                           .whole = true,
                           .pair = k->o.pair,
                           .pair_size = k->o.pair ? strlen(k->o.pair) : 0};
    BY_TRY(by_tokenizer_encode_with(k->tokenizer, text, strlen(text), &spec, &k->text));
    k->tokens = (int)k->text.ids.count;
    if (k->tokens < 1)
        return by_fail(BY_ERR_ARGUMENT, "the text has no tokens");
    if (k->tokens > by_model_context(k->model))
        return by_fail(BY_ERR_ARGUMENT,
                       "the text has %d tokens, more than the %d that this model reads at once", k->tokens,
                       by_model_context(k->model));
    k->names = by_alloc_zero((size_t)k->tokens, sizeof *k->names);
    k->segments = by_alloc_zero((size_t)k->tokens, sizeof *k->segments);
    if (!k->names || !k->segments)
        return BY_ERR_MEMORY;
    for (int i = 0; i < k->tokens; i++) {
        k->segments[i] = k->text.types[i];
        k->names[i] = name_of(k, text, i);
        if (!k->names[i])
            return by_error_status();
    }
    return BY_OK;
}

static by_status compute(look *k)
{
    by_batch b = {.batch = 1, .seq = k->tokens, .tokens = k->text.ids.data};
    if (by_model_segments(k->model) > 1)
        b.segments = k->segments;
    k->pass = by_pass_new(k->model, &b, &(by_pass_spec){.attention = true});
    if (!k->pass)
        return by_error_status();
    BY_TRY(by_pass_run(k->pass, &b));
    const by_model_io *io = by_pass_io(k->pass);
    if (io->n_attention == 0)
        return by_fail(BY_ERR_UNSUPPORTED, "a %s has no attention to show", by_model_class(k->model));
    k->layers = io->n_attention;
    k->heads = (int)by_dim(io->attention[0], 1);
    k->weights = by_alloc_zero((size_t)k->layers * (size_t)k->heads * map_size(k), sizeof *k->weights);
    for (int i = 0; k->weights && i < k->layers; i++)
        BY_TRY(
            by_pass_read(k->pass, io->attention[i], k->weights + (size_t)i * (size_t)k->heads * map_size(k)));
    return k->weights ? BY_OK : BY_ERR_MEMORY;
}

/* ---- telling --------------------------------------------------------------------------------- */

static int print_json(const look *k)
{
    by_buf out = {0};
    by_buf_puts(&out, "{\"tokens\":[");
    for (int i = 0; i < k->tokens; i++) {
        by_buf_puts(&out, i ? "," : "");
        by_json_quote(&out, k->names[i]);
    }
    by_buf_puts(&out, "],\"weights\":[");
    const float *w = k->weights;
    for (int i = 0; i < k->layers * k->heads; i++)
        for (int r = 0; r < k->tokens; r++) {
            by_buf_puts(&out, i % k->heads == 0 && r == 0 ? (i ? "]],[[" : "[[") : r == 0 ? "],[" : ",");
            for (int c = 0; c < k->tokens; c++)
                by_buf_printf(&out, "%s%.6g", c ? "," : "[", (double)*w++);
            by_buf_puts(&out, "]");
        }
    by_buf_puts(&out, "]]]}\n");
    bool ok = !out.failed && fwrite(out.data, 1, out.size, stdout) == out.size;
    by_buf_free(&out);
    return ok ? CLI_OK : CLI_FAILED;
}

/* The map drawn large: one head, or the mean of a layer's. */
static void choose(const look *k, int layer, float *to)
{
    const float *from = k->weights + (size_t)layer * (size_t)k->heads * map_size(k);
    for (int h = 0; h < k->heads; h++)
        for (size_t i = 0; i < map_size(k) && (k->o.head < 0 || k->o.head == h); i++)
            to[i] += from[(size_t)h * map_size(k) + i] / (k->o.head < 0 ? (float)k->heads : 1);
}

static by_status draw(const look *k)
{
    const int layer = k->o.layer < 0 ? k->layers - 1 : k->o.layer;
    if (layer >= k->layers || k->o.head >= k->heads)
        return by_fail(BY_ERR_ARGUMENT, "there are %d layers of %d heads, counted from 0", k->layers,
                       k->heads);
    float *large = by_alloc_zero(map_size(k), sizeof *large);
    if (!large)
        return BY_ERR_MEMORY;
    choose(k, layer, large);
    const char *const *names = (const char *const *)k->names;
    by_heatmap map = {large, k->tokens, k->tokens, names, names, k->text.special}, first = map;
    first.weights = k->weights;
    by_heatmap_grid grid = {first, k->layers, k->heads, "layer", "head"};
    char head[24] = "mean of the heads";
    if (k->o.head >= 0)
        snprintf(head, sizeof head, "head %d", k->o.head);
    char *title =
        by_sprintf("%s: layer %d, %s (rows look at columns)", by_model_title(k->model), layer, head);
    by_buf out = {0};
    by_status s = title ? by_heatmap_write(&out, title, &map, &grid) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = by_file_write(k->o.out, out.data, out.size);
    by_buf_free(&out);
    by_free(title);
    by_free(large);
    return s;
}

static by_status look_at(look *k, const char *model, const char *text)
{
    char *dir = cli_model_dir(model);
    k->device = dir ? cli_device(k->o.device, k->o.threads) : NULL;
    k->model = k->device ? by_model_open(k->device, dir, &(by_model_spec){0}) : NULL;
    by_free(dir);
    if (!k->model)
        return by_error_status();
    k->tokenizer = cli_tokenizer(model);
    if (!k->tokenizer)
        return by_error_status();
    BY_TRY(encode(k, text));
    return compute(k);
}

static void release(look *k)
{
    for (int i = 0; k->names && i < k->tokens; i++)
        by_release(k->names[i]);
    by_free(k->names);
    by_free(k->segments);
    by_free(k->weights);
    by_encoding_free(&k->text);
    by_pass_free(k->pass);
    by_tokenizer_free(k->tokenizer);
    by_model_free(k->model);
    by_device_free(k->device);
}

static int run(int argc, char **argv)
{
    look k = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_attention, argc, argv, &k.o, &args, &code))
        return code;
    by_status s = look_at(&k, args.items[0], args.items[1]);
    if (s == BY_OK && !k.o.json)
        s = draw(&k);
    if (s != BY_OK)
        code = cli_fail(NULL);
    else if (k.o.json)
        code = print_json(&k);
    else
        printf("%s: %d layers of %d heads over %d tokens\n", k.o.out, k.layers, k.heads, k.tokens);
    release(&k);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_attention = {
    .name = "attention",
    .summary = "see what every head of a model looks at",
    .args = "MODEL TEXT",
    .description = "Draws the attention weights of a text: one layer large, with its tokens named, and every "
                   "head of every "
                   "layer small below it, each with its strongest pair. A row is a token that looks, its "
                   "columns are what it "
                   "looks at; point at a square to see its weight. With --json the weights are printed as "
                   "{\"tokens\": [...], \"weights\": [layer][head][row][column]}.",
    .examples =
        "banyan attention bert-base-uncased \"The animal didn't cross the street because it was tired.\"\n"
        "banyan attention gpt2 \"to be or not to be\" --layer 5 --head 1 -o heads.svg\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
