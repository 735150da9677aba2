/* verb_attention.c - banyan attention: what every head of every layer looks at, as a picture and as numbers. */
#include <stdio.h>

#include "banyan/pass.h"
#include "banyan/rewrite.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "report/heatmap.h"
#include "base/json.h"
#include "text/tokenizer.h"

typedef struct attention_options {
    const char *pair, *target, *out, *device;
    int layer, head, threads;
    unsigned part;
    bool json;
} attention_options;

enum { CROSS, ENCODER, DECODER };

static const cli_option options[] = {
    {CLI_AT(attention_options, pair), .name = "pair", .value = "TEXT",
     .help = "a second text, for models that read two"},
    {CLI_AT(attention_options, target), .name = "target", .value = "TEXT",
     .help = "encoder-decoders: what is written (else what the model writes itself)"},
    {CLI_AT(attention_options, part), .name = "part", .choices = "cross|encoder|decoder", .preset = "cross",
     .help = "encoder-decoders: how the text looks at its source, or one of the two at itself"},
    {CLI_AT(attention_options, layer), .name = "layer", CLI_MIN(-1), .preset = "-1",
     .help = "the layer drawn large, with its heads below (-1: the last, with the heads of all)"},
    {CLI_AT(attention_options, head), .name = "head", CLI_MIN(-1), .preset = "-1",
     .help = "the head that fills the page (-1: the mean of all, and each small below)"},
    {CLI_AT(attention_options, out), .name = "out", .letter = 'o', .preset = "attention.svg", .value = "FILE",
     .help = "where the picture goes: .svg or .png"},
    {CLI_AT(attention_options, json), .name = "json",
     .help = "print the weights as JSON instead of drawing them"},
    {CLI_AT(attention_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "where to compute: cpu, cuda, or auto", .group = "Machine"},
    {CLI_AT(attention_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads (0: every core)"},
};

/* A text as tokens, and what each is called. */
typedef struct side {
    by_encoding text;
    char **names;
    int32_t *segments;
    int tokens;
} side;

typedef struct look {
    attention_options o;
    by_device *device;
    by_model *model;
    by_tokenizer *tokenizer;
    by_pass *pass;
    side read, written;         /* the second of encoder-decoders alone */
    const side *rows, *columns; /* who looks at whom */
    float *weights;             /* (layers, heads, rows, columns) */
    int layers, heads;
    report_picture kind;
    const char *name, *shown; /* the model and the text, as the user gave them */
    int together;             /* tokens of a square */
} look;

static bool is_pair(const look *k)
{
    return by_model_task(k->model) == BY_TASK_SEQ2SEQ;
}

static size_t map_size(const look *k)
{
    return (size_t)k->rows->tokens * (size_t)k->columns->tokens;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* What a token is called: its part of the text, or what a special one decodes to. */
static char *name_of(const look *k, const side *s, const char *text, bool target, int i)
{
    const by_offset at = s->text.offsets[i];
    const char *from = s->text.types[i] && k->o.pair ? k->o.pair : text;
    if (!s->text.special[i] && at.end > at.start)
        return base_sprintf("%.*s", (int)(at.end - at.start), from + at.start);
    base_buf name = {0};
    base_buf_puts(&name, "");
    if (tok_decode_with(k->tokenizer, &s->text.ids.data[i], 1, &(tok_decode_spec){.source = !target},
                        &name) == BY_OK)
        return name.data;
    base_buf_free(&name);
    return NULL;
}

static by_status encode(look *k, const char *text, bool target, side *s)
{
    by_encode_spec spec = {.special = true,
                           .offsets = true,
                           .whole = true,
                           .target = target,
                           .pair = k->o.pair,
                           .pair_size = k->o.pair ? strlen(k->o.pair) : 0};
    BY_TRY(by_tokenizer_encode_with(k->tokenizer, text, strlen(text), &spec, &s->text));
    s->tokens = (int)s->text.ids.count;
    if (s->tokens < 1)
        return base_fail(BY_ERR_ARGUMENT, "the text has no tokens");
    if (by_model_is_limited(k->model) && s->tokens > by_model_context(k->model))
        return base_fail(BY_ERR_ARGUMENT,
                         "the text has %d tokens, more than the %d that this model reads at once", s->tokens,
                         by_model_context(k->model));
    s->names = base_alloc_zero((size_t)s->tokens, sizeof *s->names);
    s->segments = base_alloc_zero((size_t)s->tokens, sizeof *s->segments);
    if (!s->names || !s->segments)
        return BY_ERR_MEMORY;
    for (int i = 0; i < s->tokens; i++) {
        s->segments[i] = s->text.types[i];
        s->names[i] = name_of(k, s, text, target, i);
        if (!s->names[i])
            return base_error_status();
    }
    return BY_OK;
}

/* What the model itself would write. */
static by_status write_target(look *k, const char *text)
{
    const by_rewriter_spec spec = {.generate.beam = {.width = 5, .length_penalty = 1}, .batch = 1};
    by_rewriter *r = by_rewriter_new(k->model, k->tokenizer, &spec);
    by_rewriting *list = NULL;
    by_status s = r ? by_rewriter_run(r, &text, 1, &list) : base_error_status();
    if (s == BY_OK)
        s = encode(k, list[0].text, true, &k->written);
    by_rewritings_free(list, 1);
    by_rewriter_free(r);
    return s;
}

/* The decoder reads what is written one place later; a row is named by what it is about to write. */
static by_status run_pair(look *k)
{
    const side *from = &k->read, *to = &k->written;
    int32_t *tokens = base_alloc_zero((size_t)to->tokens, sizeof *tokens);
    by_status s = tokens ? by_model_shift(k->model, to->text.ids.data, 1, to->tokens, tokens) : BY_ERR_MEMORY;
    by_batch b = by_batch_of(1, to->tokens, tokens);
    by_batch_put_source(&b, from->tokens, from->text.ids.data, NULL);
    if (s == BY_OK)
        k->pass = by_pass_new(k->model, &b, &(by_pass_spec){.attention = true});
    if (s == BY_OK)
        s = k->pass ? by_pass_run(k->pass, &b) : base_error_status();
    base_free(tokens);
    k->rows = k->o.part == ENCODER ? from : to;
    k->columns = k->o.part == DECODER ? to : from;
    return s;
}

static by_status run_one(look *k)
{
    by_batch b = by_batch_of(1, k->read.tokens, k->read.text.ids.data);
    if (by_model_segments(k->model) > 1)
        by_batch_put_tokens(&b, "segments", k->read.segments);
    k->rows = k->columns = &k->read;
    k->pass = by_pass_new(k->model, &b, &(by_pass_spec){.attention = true});
    return k->pass ? by_pass_run(k->pass, &b) : base_error_status();
}

static by_status compute(look *k)
{
    BY_TRY(is_pair(k) ? run_pair(k) : run_one(k));
    const by_model_io *io = by_pass_io(k->pass);
    const char *name = !is_pair(k) || k->o.part == DECODER ? "attention"
                       : k->o.part == CROSS                ? "cross_attention"
                                                           : "source_attention";
    k->layers = by_io_output_count(io, name);
    if (k->layers == 0)
        return base_fail(BY_ERR_UNSUPPORTED, "a %s has no attention to show", by_model_class(k->model));
    k->heads = (int)by_dim(by_io_output(io, name), 1);
    const size_t layer = (size_t)k->heads * map_size(k);
    k->weights = base_alloc_zero((size_t)k->layers * layer, sizeof *k->weights);
    for (int i = 0; k->weights && i < k->layers; i++)
        BY_TRY(by_pass_read(k->pass, by_io_output_at(io, name, i), k->weights + (size_t)i * layer));
    return k->weights ? by_pass_finite(k->model, k->weights, (size_t)k->layers * layer) : BY_ERR_MEMORY;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void put_names(base_buf *out, const char *begin, const side *s)
{
    base_buf_puts(out, begin);
    for (int i = 0; i < s->tokens; i++) {
        base_buf_puts(out, i ? "," : "");
        base_json_quote(out, s->names[i]);
    }
    base_buf_puts(out, "]");
}

static int print_json(const look *k)
{
    base_buf out = {0};
    put_names(&out, "{\"tokens\":[", k->columns);
    if (k->rows != k->columns)
        put_names(&out, ",\"written\":[", k->rows);
    base_buf_puts(&out, ",\"weights\":[");
    const float *w = k->weights;
    for (int i = 0; i < k->layers * k->heads; i++)
        for (int r = 0; r < k->rows->tokens; r++) {
            base_buf_puts(&out, i % k->heads == 0 && r == 0 ? (i ? "]],[[" : "[[") : r == 0 ? "],[" : ",");
            for (int c = 0; c < k->columns->tokens; c++) {
                base_buf_puts(&out, c ? "," : "[");
                base_json_put_number(&out, (double)*w++, 6);
            }
            base_buf_puts(&out, "]");
        }
    base_buf_puts(&out, "]]]}\n");
    bool ok = !out.failed && fwrite(out.data, 1, out.size, stdout) == out.size;
    base_buf_free(&out);
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

/* The title names the model as the user did, the text is below it. */
static by_status write_page(const look *k, const report_heatmap *map, const report_heatmap_grid *grid,
                            int layer, base_buf *out, int *together)
{
    char head[24] = "mean of the heads";
    if (k->o.head >= 0)
        snprintf(head, sizeof head, "head %d", k->o.head);
    char *title = base_sprintf("%s, %s: layer %d, %s", k->name, by_model_title(k->model), layer, head);
    char *subtitle = k->rows == k->columns && k->o.pair ? base_sprintf("“%s” – “%s”", k->shown, k->o.pair)
                                                        : base_sprintf("“%s”", k->shown);
    const report_heatmap_page page = {title, subtitle, *map, grid};
    by_status s = title && subtitle ? report_heatmap_write(out, k->kind, &page, together) : BY_ERR_MEMORY;
    base_free(title);
    base_free(subtitle);
    return s;
}

/* A chosen head has the page to itself; a chosen layer has its heads below it; else all heads of all layers.
 */
static by_status draw(look *k)
{
    const int layer = k->o.layer < 0 ? k->layers - 1 : k->o.layer;
    if (layer >= k->layers || k->o.head >= k->heads)
        return base_fail(BY_ERR_ARGUMENT, "there are %d layers of %d heads, counted from 0", k->layers,
                         k->heads);
    float *large = base_alloc_zero(map_size(k), sizeof *large);
    if (!large)
        return BY_ERR_MEMORY;
    choose(k, layer, large);
    report_heatmap map = {large,
                          k->rows->tokens,
                          k->columns->tokens,
                          (const char *const *)k->rows->names,
                          (const char *const *)k->columns->names,
                          k->columns->text.special,
                          k->rows == k->columns},
                   first = map;
    const int first_layer = k->o.layer < 0 ? 0 : layer;
    first.weights = k->weights + (size_t)first_layer * (size_t)k->heads * map_size(k);
    report_heatmap_grid grid = {first, k->o.layer < 0 ? k->layers : 1, k->heads, first_layer, "layer",
                                "head"};
    base_buf out = {0};
    by_status s = write_page(k, &map, k->o.head < 0 ? &grid : NULL, layer, &out, &k->together);
    if (s == BY_OK)
        s = base_file_write(k->o.out, out.data, out.size);
    base_buf_free(&out);
    base_free(large);
    return s;
}

static by_status look_at(look *k, const char *model, const char *text)
{
    char *dir = cli_model_dir(model);
    k->device = dir ? cli_device(k->o.device, k->o.threads) : NULL;
    k->model = k->device ? by_model_open(k->device, dir, &(by_model_spec){0}) : NULL;
    base_free(dir);
    if (!k->model)
        return base_error_status();
    if (is_pair(k) && k->o.pair)
        return base_fail(BY_ERR_ARGUMENT, "--pair: a %s reads one text; what it writes is --target",
                         by_model_class(k->model));
    if (!is_pair(k) && k->o.target)
        return base_fail(BY_ERR_ARGUMENT, "--target: a %s does not read one text and write another",
                         by_model_class(k->model));
    k->tokenizer = cli_tokenizer(model);
    if (!k->tokenizer)
        return base_error_status();
    BY_TRY(encode(k, text, false, &k->read));
    if (is_pair(k))
        BY_TRY(k->o.target ? encode(k, k->o.target, true, &k->written) : write_target(k, text));
    return compute(k);
}

static void free_side(side *s)
{
    for (int i = 0; s->names && i < s->tokens; i++)
        by_release(s->names[i]);
    base_free(s->names);
    base_free(s->segments);
    by_encoding_free(&s->text);
}

static void release(look *k)
{
    free_side(&k->read);
    free_side(&k->written);
    base_free(k->weights);
    by_pass_free(k->pass);
    by_tokenizer_free(k->tokenizer);
    by_model_free(k->model);
    by_device_free(k->device);
}

static int tell(const look *k)
{
    printf("%s: %d layers of %d heads over %d tokens\n", k->o.out, k->layers, k->heads, k->columns->tokens);
    if (k->together > 1)
        cli_note("too many tokens to be seen one by one: each square is the largest weight of %d x %d",
                 k->together, k->together);
    return CLI_OK;
}

/* The folder's own name: "gpt2" of "models/gpt2/". */
static const char *last_part(const char *path)
{
    const char *at = path;
    for (const char *s = path; *s; s++)
        if (*s == '/' && s[1] && s[1] != '/')
            at = s + 1;
    return at;
}

static int run(int argc, char **argv)
{
    look k = {0};
    cli_args args;
    int code = CLI_OK;
    if (!cli_parse(&cli_attention, argc, argv, &k.o, &args, &code))
        return code;
    k.name = last_part(args.items[0]);
    k.shown = args.items[1];
    by_status s = k.o.json ? BY_OK : report_picture_of(k.o.out, &k.kind);
    if (s == BY_OK)
        s = look_at(&k, args.items[0], args.items[1]);
    if (s == BY_OK && !k.o.json)
        s = draw(&k);
    if (s != BY_OK)
        code = cli_fail(NULL);
    else if (k.o.json)
        code = print_json(&k);
    else
        code = tell(&k);
    release(&k);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_attention = {
    .name = "attention",
    .summary = "see what every head of a model looks at",
    .args = "MODEL TEXT",
    .description =
        "Draws the attention weights of a text: one layer large, with its tokens named, and every "
        "head small below it, each with a caption: where most of its weight goes (the first token, the "
        "previous one, itself), or the pair that stands out. A row is a token that looks, its "
        "columns are the tokens it looks at; in an SVG, point at a square to see its weight. With --head "
        "that head alone fills the page. Long texts are drawn coarser. "
        "With --json the weights are printed as "
        "{\"tokens\": [...], \"weights\": [layer][head][row][column]}.\n\n"
        "Of an encoder-decoder, the rows are what is written and the columns its source: which words "
        "a translation comes from.",
    .examples =
        "banyan attention bert-base-uncased \"The animal didn't cross the street because it was tired.\"\n"
        "banyan attention runs/multi30k \"A man rides a bicycle.\" --target \"Ein Mann fährt Fahrrad.\"\n"
        "banyan attention gpt2 \"to be or not to be\" --layer 5 --head 1 -o head.png\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
