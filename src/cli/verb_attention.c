/* verb_attention.c - banyan attention: the attention weights of every head of every layer, as a picture or as
 * numbers. */
#include <stdio.h>

#include "banyan/inspect.h"
#include "base/file.h"
#include "cli/attention_pictures.h"
#include "cli/attention_pixels.h"
#include "cli/common.h"
#include "cli/format.h"
#include "cli/pictures.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "report/heatmap.h"
#include "base/json.h"

typedef struct attention_options {
    by_attention_maps_spec spec;
    const char *out, *device, *adapter, *pixel;
    unsigned show;
    int layer, head, threads;
    bool json;
} attention_options;

static const cli_option options[] = {
    {CLI_AT(attention_options, spec.pair), .name = "pair", .value = "TEXT",
     .help = "a second text, for models that read two"},
    {CLI_AT(attention_options, spec.target), .name = "target", .value = "TEXT",
     .help = "encoder-decoders and captions: the target text (default: the model generates it)"},
    {CLI_AT(attention_options, spec.part), .name = "part", .choices = "cross|encoder|decoder",
     .preset = "cross",
     .help = "encoder-decoders: cross-attention, or self-attention of the encoder or the decoder"},
    {CLI_AT(attention_options, layer), .name = "layer", CLI_MIN(-1), .preset = "-1",
     .help = "layer to draw large, with its heads below; -1: the last layer, with the heads of all layers"},
    {CLI_AT(attention_options, head), .name = "head", CLI_MIN(-1), .preset = "-1",
     .help = "head to draw on the whole page; -1: the mean of all heads, with each one small below"},
    {CLI_AT(attention_options, pixel), .name = "pixel", .value = "R,C",
     .help = "query position by row and column. Pixel models: this pixel (default: one in the lower half). "
             "Models of patches: the patch that contains it (default: the class token)"},
    {CLI_AT(attention_options, show), .name = "show", .choices = "attention|positions|filters",
     .preset = "attention",
     .help = "models of patches: draw attention over a picture, the similarity of position embeddings, or "
             "the principal components of the patch embedding"},
    {CLI_AT(attention_options, out), .name = "out", .letter = 'o', .preset = "attention.svg", .value = "FILE",
     .help = "picture to write: .svg or .png"},
    {CLI_AT(attention_options, json), .name = "json", .help = "print the weights as JSON instead"},
    {CLI_AT(attention_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(attention_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads; 0 uses every core"},
    CLI_ADAPTER(attention_options, adapter),
};

typedef struct look {
    attention_options o;
    by_device *device;
    by_model *model;
    by_tokenizer *tokenizer;
    by_attention_maps maps;
    const by_attention_side *rows, *columns; /* of the maps */
    report_picture kind;
    const char *name, *shown; /* the model and the text, as the user gave them */
    int together;             /* tokens of a square */
} look;

static size_t map_size(const look *k)
{
    return (size_t)k->rows->tokens * (size_t)k->columns->tokens;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void put_names(base_buf *out, const char *begin, const by_attention_side *s)
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
    const float *w = k->maps.weights;
    for (int i = 0; i < k->maps.layers * k->maps.heads; i++)
        for (int r = 0; r < k->rows->tokens; r++) {
            base_buf_puts(&out, i % k->maps.heads == 0 && r == 0 ? (i ? "]],[[" : "[[")
                                : r == 0                         ? "],["
                                                                 : ",");
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
    const float *from = k->maps.weights + (size_t)layer * (size_t)k->maps.heads * map_size(k);
    for (int h = 0; h < k->maps.heads; h++)
        for (size_t i = 0; i < map_size(k) && (k->o.head < 0 || k->o.head == h); i++)
            to[i] += from[(size_t)h * map_size(k) + i] / (k->o.head < 0 ? (float)k->maps.heads : 1);
}

/* The title names the model as the user did, the text is below it. */
static by_status write_page(const look *k, const report_heatmap *map, const report_heatmap_grid *grid,
                            int layer, base_buf *out, int *together)
{
    char head[24] = "mean of the heads";
    if (k->o.head >= 0)
        snprintf(head, sizeof head, "head %d", k->o.head);
    char *title = base_sprintf("%s, %s: layer %d, %s", k->name, by_model_title(k->model), layer, head);
    char *subtitle = k->rows == k->columns && k->o.spec.pair
                         ? base_sprintf("“%s” – “%s”", k->shown, k->o.spec.pair)
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
    const int layer = k->o.layer < 0 ? k->maps.layers - 1 : k->o.layer;
    if (layer >= k->maps.layers || k->o.head >= k->maps.heads)
        return base_fail(BY_ERR_ARGUMENT, "the model has %d layers of %d heads, counted from 0",
                         k->maps.layers, k->maps.heads);
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
    first.weights = k->maps.weights + (size_t)first_layer * (size_t)k->maps.heads * map_size(k);
    report_heatmap_grid grid = {
        first, k->o.layer < 0 ? k->maps.layers : 1, k->maps.heads, first_layer, "layer", "head"};
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
    k->tokenizer = cli_tokenizer(model);
    if (!k->tokenizer)
        return base_error_status();
    BY_TRY(by_attention_maps_make(k->model, k->tokenizer, text, &k->o.spec, &k->maps));
    k->rows = &k->maps.sides[k->maps.rows];
    k->columns = &k->maps.sides[k->maps.columns];
    return BY_OK;
}

static int look_at_pixels(const look *k, const char *dir, const char *picture)
{
    if (!picture)
        return cli_usage_fail("no picture: banyan attention MODEL PICTURE");
    return cli_attention_pixels(&(cli_pixel_look){.model = k->model,
                                                  .dir = dir,
                                                  .picture = picture,
                                                  .out = k->o.out,
                                                  .pixel = k->o.pixel,
                                                  .layer = k->o.layer,
                                                  .json = k->o.json});
}

static int look_at_patches(const look *k, const char *dir, const char *picture)
{
    return cli_attention_pictures(&(cli_picture_look){.model = k->model,
                                                      .name = k->name,
                                                      .dir = dir,
                                                      .adapter = k->o.adapter,
                                                      .picture = picture,
                                                      .out = k->o.out,
                                                      .pixel = k->o.pixel,
                                                      .target = k->o.spec.target,
                                                      .show = (cli_picture_show)k->o.show,
                                                      .layer = k->o.layer,
                                                      .head = k->o.head,
                                                      .json = k->o.json});
}

/* Kinds of input, and options that apply only to some of them. */
enum { TEXTS = 1, PAIRS = 2, PATCHES = 4, CAPTIONS = 8, PIXELS = 16 };
static const cli_scope scopes[] = {
    {"pair", TEXTS | PAIRS, "texts that are read together"},
    {"target", PAIRS | CAPTIONS, "encoder-decoders and captions"},
    {"part", PAIRS, "encoder-decoders of texts"},
    {"head", TEXTS | PAIRS | PATCHES | CAPTIONS, "models of texts and patches"},
    {"pixel", PATCHES | PIXELS, "pictures without captions"},
    {"show", PATCHES | CAPTIONS, "models of patches"},
};

static bool fits(const by_model *m, const cli_args *args)
{
    by_pictures reads;
    by_canvas size;
    const bool pair = by_model_task(m) == BY_TASK_SEQ2SEQ;
    const uint32_t kind = by_model_canvas(m, &size) ? PIXELS
                          : by_model_pictures(m, &reads)
                              ? (pair                                   ? CAPTIONS
                                 : by_model_task(m) == BY_TASK_CONTRAST ? PATCHES | TEXTS
                                                                        : PATCHES)
                              : (pair ? PAIRS : TEXTS);
    const cli_scope *row = cli_given_outside(args, scopes, BY_COUNT(scopes), kind);
    if (row)
        cli_usage_fail("--%s is for %s, not for %s", row->option, row->names, base_a(by_model_class(m)).text);
    return !row;
}

/* Opens the model. Returns true if the input was a picture and is done, or on failure; *code is then the exit
 * code. A model of texts and pictures (CLIP) reads a picture if the input is a file. */
static bool is_picture(look *k, const cli_args *args, int *code)
{
    by_canvas size;
    by_pictures reads;
    const char *input = k->shown;
    char *dir = cli_model_dir(args->items[0]);
    k->device = dir ? cli_device(k->o.device, k->o.threads) : NULL;
    k->model =
        k->device ? by_model_open(k->device, dir, &(by_model_spec){.adapter_folder = k->o.adapter}) : NULL;
    bool picture = true;
    if (!k->model)
        *code = cli_fail(NULL);
    else if (!fits(k->model, args))
        *code = CLI_USAGE;
    else if (by_model_canvas(k->model, &size))
        *code = look_at_pixels(k, dir, input);
    else if (by_model_pictures(k->model, &reads) && (by_model_task(k->model) != BY_TASK_CONTRAST ||
                                                     k->o.show || (input && cli_names_pictures(input))))
        *code = look_at_patches(k, dir, input);
    else
        picture = false;
    base_free(dir);
    return picture;
}

static void release(look *k)
{
    by_attention_maps_free(&k->maps);
    by_tokenizer_free(k->tokenizer);
    by_model_free(k->model);
    by_device_free(k->device);
}

static int print_maps(const look *k)
{
    printf("%s: %s of %s over %s\n", k->o.out, cli_counted(k->maps.layers, "layer").s,
           cli_counted(k->maps.heads, "head").s, cli_counted(k->columns->tokens, "token").s);
    if (k->together > 1)
        cli_note("too many tokens to draw one by one: each square shows the largest weight of %d x %d tokens",
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
    k.shown = args.count > 1 ? args.items[1] : NULL;
    const bool picture = is_picture(&k, &args, &code);
    if (picture || !k.shown) {
        if (!picture)
            code = cli_usage_fail("no text: banyan attention MODEL TEXT");
        release(&k);
        cli_args_free(&args);
        return code;
    }
    by_status s = k.o.json ? BY_OK : report_picture_of(k.o.out, &k.kind);
    if (s == BY_OK)
        s = look_at(&k, args.items[0], args.items[1]);
    if (s == BY_OK && !k.o.json)
        s = draw(&k);
    if (s != BY_OK)
        code = k.model && !k.tokenizer
                   ? cli_fail("the pictures name tokens and need the model's tokenizer files")
                   : cli_fail(NULL);
    else if (k.o.json)
        code = print_json(&k);
    else
        code = print_maps(&k);
    release(&k);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_attention = {
    .name = "attention",
    .summary = "draw the attention weights of each head",
    .args = "MODEL [INPUT]",
    .description = "Draws the attention weights of a text: one large map of a layer with token labels, and "
                   "below it a small map of every head. The caption of a head names where most of its weight "
                   "goes (the first token, the previous one, itself), or its strongest pair. Rows are query "
                   "tokens, columns are keys. In an SVG, hover over a square to see its weight. With --head "
                   "that head fills the page. Long texts are drawn at lower resolution. --json prints the "
                   "weights as {\"tokens\": [...], \"weights\": [layer][head][row][column]}.\n"
                   "\n"
                   "For an encoder-decoder, rows are output tokens and columns are source tokens.\n"
                   "\n"
                   "For a model of patches (ViT, DeiT, CLIP), INPUT is a picture. Each map shows the "
                   "attention of the class token, bright where the weight is large; attention rollout "
                   "multiplies the layers. A captioning model shows the attention of each word of its "
                   "caption. --show positions and --show filters need no picture. For CLIP, an INPUT that is "
                   "not a file or directory and does not have the extension of a picture is a text.\n"
                   "\n"
                   "For a pixel model, a PNG shows the attention of one pixel of a picture when it was "
                   "predicted: one row per layer, the mean of its heads first.",
    .examples =
        "banyan attention bert-base-uncased \"The animal didn't cross the street because it was tired.\"\n"
        "banyan attention runs/multi30k \"A man rides a bicycle.\" --target \"Ein Mann fährt Fahrrad.\"\n"
        "banyan attention gpt2 \"to be or not to be\" --layer 5 --head 1 -o head.png\n"
        "banyan attention vit-base-patch16-224 cat.jpg -o looked.png\n"
        "banyan attention runs/captions cat.jpg --target \"a cat on a sofa\" -o words.svg\n"
        "banyan attention vit-base-patch16-224 --show filters -o filters.png\n"
        "banyan attention runs/fashion shoe.png --pixel 20,14 -o looked.png\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
