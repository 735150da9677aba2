/* verb_eval.c - `banyan eval`: how well a language model predicts a text, or another model does its task. */
#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cache_options.h"
#include "cli/common.h"
#include "cli/eval_pictures.h"
#include "infer/picture_passes.h"
#include "cli/eval_perplexity.h"
#include "cli/eval_texts.h"
#include "cli/picture_options.h"
#include "cli/ngram_verbs.h"
#include "cli/show.h"
#include "cli/task_options.h"
#include "cli/verbs.h"
#include "data/tokens.h"

typedef struct eval_options {
    cli_task_options t;
    cli_list data;
    const char *device;
    int threads;
    by_dtype dtype;
    const char *weights, *adapter;
    int rounds;
    bool json, quiet;
    by_text_spec texts;
    by_perplexity_spec windows;
    const char *tune, *tune_ngram;
    cli_mix_options mix;
    int memory; /* negative: the model's */
    const char *way;
    by_image_data pictures;
    const char *confusion;
    bool per_class;
} eval_options;

static const cli_option options[] = {
    {CLI_AT(eval_options, data), .name = "data", .letter = 'd', .value = "FILE",
     .help = "text files or .bin token shards; patterns and several files are allowed. Models of pictures: "
             "folders, lists, IDX or CIFAR files",
     .group = "Data"},
    {CLI_AT(eval_options, t.task), .name = "task", .value = "TASK",
     .help = "classify, regress, tag, answer (or qa), choice, mlm, lm (default: the model's own)"},
    CLI_TASK_ROWS(eval_options, t),
    {CLI_AT(eval_options, texts.metrics), .name = "metric", .value = "LIST", .preset = "bleu,chrf",
     .help = "comma-separated list of bleu, chrf, rouge and exact",
     .group = "Generated texts (encoder-decoders)"},
    {CLI_AT(eval_options, texts.beams), .name = "beams", CLI_RANGE(0, 64), .preset = "0",
     .help = "beams of the search; 0 follows the model's directory, else 5"},
    {CLI_AT(eval_options, texts.prefix), .name = "prefix", .value = "TEXT",
     .help = "put TEXT before every source"},
    {CLI_AT(eval_options, texts.plain), .name = "no-generation-config",
     .help = "ignore the generation settings in the model's directory"},
    {CLI_AT(eval_options, texts.words), .name = "label-words", .value = "W0,W1,...",
     .help = "words for labels 0, 1, ... of a table"},
    CLI_PICTURE_DATA_ROWS(eval_options, pictures),
    {CLI_AT(eval_options, confusion), .name = "confusion", .value = "FILE.svg|FILE.png",
     .help = "draw the confusion matrix"},
    {CLI_AT(eval_options, per_class), .name = "per-class",
     .help = "also print precision, recall and F1 of each class"},
    {CLI_AT(eval_options, windows.max_tokens), .name = "max-tokens", CLI_MIN(2), .suffix = true,
     .help = "use only the first N tokens of the data", .group = "Windows"},
    {CLI_AT(eval_options, windows.seq), .name = "seq", .alias = "context", .letter = 'c',
     CLI_RANGE(1, 1 << 24), .suffix = true, .help = "tokens per window (default: the model's context)"},
    {CLI_AT(eval_options, windows.stride), .name = "stride", CLI_RANGE(1, 1 << 24), .suffix = true,
     .help = "tokens from one window to the next (default: the window, without overlap)"},
    {CLI_AT(eval_options, windows.batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1 << 16), .help = "windows per batch (default: 8; with a memory, 1 column of text)"},
    {CLI_AT(eval_options, memory), .name = "memory", CLI_RANGE(-1, 1 << 24), .preset = "-1", .suffix = true,
     .help = "memory length in positions; -1 is that of the model, 0 none", .group = "Models with a memory"},
    {CLI_AT(eval_options, way), .name = "evaluate", .choices = "segment|sliding|both", .preset = "segment",
     .help = "segment: read segment by segment with the memory; sliding: move a window without memory token "
             "by token; both: print the ratio of their speeds too"},
    {CLI_AT(eval_options, windows.bins), .name = "by-position", CLI_RANGE(0, 4096), .preset = "0",
     .help = "also print the loss for N consecutive parts of a window"},

    CLI_CACHE_ROWS(eval_options, windows.cache),
    {CLI_AT(eval_options, tune), .name = "tune-cache", .value = "FILE",
     .help = "tune theta and lambda on this text, which must differ from --data; --cache-size is then 2000 "
             "by default"},

    CLI_MIX_ROWS(eval_options,
                 "to interpolate with; for encoder-decoders, its log-probabilities are added in the search"),
    {CLI_AT(eval_options, tune_ngram), .name = "tune-ngram", .value = "FILE",
     .help = "tune the weight on this text, which must differ from --data"},

    {CLI_AT(eval_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(eval_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads; 0 uses every core"},
    {CLI_AT(eval_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",
     .help = "precision of parameters and activations"},
    CLI_WEIGHTS(eval_options, weights),
    CLI_ADAPTER(eval_options, adapter),
    {CLI_AT(eval_options, rounds), .name = "hash-rounds", CLI_RANGE(1, 64),
     .help = "Reformer: rounds of hashing (default: the model's)"},

    {CLI_AT(eval_options, json), .name = "json", .help = "print the result as one JSON object",
     .group = "Output"},
    {CLI_AT(eval_options, quiet), .name = "quiet", .letter = 'q', .help = "show no progress"},
};

typedef struct evaluation {
    eval_options o;
    by_device *device;
    char *dir; /* of the model */
    by_model *model;
    cJSON *record;           /* run.json of the model's folder, or NULL */
    by_tokenizer *tokenizer; /* NULL: shards of an unknown one */
    by_ngram *ngram;         /* that is mixed with the model, or NULL */
    bool lists;              /* columns were named */
} evaluation;

static by_status open_model(evaluation *e, const char *path)
{
    e->dir = cli_model_dir(path);
    if (!e->dir)
        return base_error_status();
    cli_note_widening(e->dir, e->o.dtype);
    e->device = cli_device(e->o.device, e->o.threads);
    const by_model_spec spec = {
        .dtype = e->o.dtype, .weights = cli_weights(e->o.weights), .adapter_folder = e->o.adapter};
    e->model = e->device ? by_model_open(e->device, e->dir, &spec) : NULL;
    if (e->model && e->o.rounds)
        return by_model_set_hash_rounds(e->model, e->o.rounds);
    return e->model ? BY_OK : base_error_status();
}

/* ---- labelled examples ----------------------------------------------------------------------- */

/* The default task: that of the model. */
static const char *task_of(const evaluation *e)
{
    if (e->o.t.task)
        return e->o.t.task;
    if (by_model_task(e->model) == BY_TASK_CLASSIFY && by_model_problem(e->model) == BY_PROBLEM_REGRESSION)
        return "regress";
    return by_task_name(by_model_task(e->model));
}

/* Columns that are not given are those that the run was fine-tuned with. */
static by_status recall_columns(evaluation *e, const char *model)
{
    cli_task_options *t = &e->o.t;
    const struct {
        const char *key, **value;
    } columns[] = {{"text", &t->text},
                   {"pair", &t->pair},
                   {"label", &t->label},
                   {"choices", &t->choices},
                   {"label-separator", &t->separator},
                   {"classes", &e->o.pictures.classes}};
    char *path = base_path_join(model, "run.json");
    const bool there = path && access(path, F_OK) == 0;
    e->record = there ? base_json_load(path) : NULL;
    base_free(path);
    if (!path || (there && !e->record))
        return base_error_status();
    const cJSON *recorded = cJSON_GetObjectItemCaseSensitive(e->record, "options");
    for (int i = 0; i < BY_COUNT(columns); i++) {
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(recorded, columns[i].key));
        if (!*columns[i].value && text)
            *columns[i].value = text;
    }
    return BY_OK;
}

static int evaluate_task(evaluation *e, const cli_args *args, const char *model)
{
    const char *task = task_of(e);
    by_example_kind kind;
    if (!e->o.t.task && !by_example_kind_find(task, &kind)) {
        base_fail(BY_ERR_ARGUMENT, "%s has no head that eval measures; 'banyan finetune' gives a model one",
                  base_a(by_model_class(e->model)).text);
        return cli_fail(NULL);
    }
    by_examples_spec data;
    by_row_spec spec;
    by_task_result v;
    e->o.t.limit = e->o.windows.seq;
    e->o.t.overlap = e->o.windows.stride;
    if (!cli_task_read(&e->o.t, task, &data, &spec) || !cli_task_fits(data.kind, task, args))
        return CLI_USAGE;
    if (e->o.data.count != 1)
        return cli_usage_fail("give one file of examples");
    spec.weights = cli_weights(e->o.weights);
    spec.adapter = e->o.adapter;
    spec.batch = e->o.windows.batch > 0 ? e->o.windows.batch : 8;
    if (by_task_evaluate(e->device, e->dir, e->o.dtype, e->o.data.items[0], &data, &spec, e->o.t.predictions,
                         &v) != BY_OK)
        return cli_fail(NULL);
    if (!e->o.json) {
        cli_task_print(&v);
        return CLI_OK;
    }
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", model);
    cJSON_AddStringToObject(j, "task", task);
    cli_task_json(j, &v);
    return cli_print_json(j);
}

static int evaluate_pictures(evaluation *e)
{
    const eval_options *o = &e->o;
    by_image_data data = o->pictures;
    data.file = o->t.text;
    data.label = o->t.label;
    data.header = o->t.header;
    cli_picture_evaluation p = {.model = e->model,
                                .dir = e->dir,
                                .data = o->data.items,
                                .count = o->data.count,
                                .dtype = o->dtype,
                                .spec = {.data = data,
                                         .lists = e->lists,
                                         .batch = o->windows.batch,
                                         .predictions = o->t.predictions,
                                         .weights = cli_weights(o->weights),
                                         .adapter = o->adapter},
                                .confusion = o->confusion,
                                .per_class = o->per_class,
                                .json = o->json,
                                .quiet = o->quiet};
    return cli_evaluate_pictures(&p);
}

/* How likely a pixel model finds pictures. */
static int evaluate_pixels(evaluation *e)
{
    const eval_options *o = &e->o;
    cli_picture_evaluation p = {.model = e->model,
                                .dir = e->dir,
                                .data = o->data.items,
                                .count = o->data.count,
                                .spec = {.data = o->pictures, .lists = e->lists, .batch = o->windows.batch},
                                .json = o->json,
                                .quiet = o->quiet};
    p.spec.data.file = o->t.text;
    p.spec.data.header = o->t.header;
    return cli_evaluate_pixels(&p);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static int evaluate_texts(evaluation *e, const char *model)
{
    by_text_spec *spec = &e->o.texts;
    by_text_result r;
    cli_progress bar = {.label = "eval", .quiet = e->o.quiet};
    spec->source = e->o.t.text;
    spec->target = e->o.t.label;
    spec->predictions = e->o.t.predictions;
    spec->batch = e->o.windows.batch > 0 ? e->o.windows.batch : 8;
    spec->progress = cli_text_progress;
    spec->cancelled = cli_poll;
    spec->user = &bar;
    if (!(e->tokenizer = cli_tokenizer(model)) ||
        cli_mix_open(&e->o.mix, e->tokenizer, &e->ngram, &spec->ngram) != BY_OK)
        return cli_fail(NULL);
    cli_progress_start(&bar);
    by_status s =
        by_text_evaluate(e->model, e->tokenizer, e->dir, e->o.data.items, e->o.data.count, spec, &r);
    cli_progress_end(&bar);
    if (s != BY_OK)
        return cli_fail(NULL);
    if (!e->o.json) {
        cli_text_print(&r);
        return CLI_OK;
    }
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", e->dir);
    cli_text_json(j, &r);
    cli_json_number(j, "seconds", r.seconds);
    return cli_print_json(j);
}

/* ---- perplexity ------------------------------------------------------------------------------ */

static int print_perplexity(const evaluation *e, const by_perplexity_result *r, const char *model)
{
    const cli_perplexity p = {.model = model,
                              .ngram = e->ngram ? e->o.mix.path : NULL,
                              .spec = &e->o.windows,
                              .dtype = e->o.dtype,
                              .weights = e->o.weights};
    if (e->o.json)
        return cli_perplexity_json(&p, r);
    cli_perplexity_print(&p, r);
    return CLI_OK;
}

/* theta and lambda by held-out text. */
static by_status tune_cache(evaluation *e)
{
    cli_progress bar = {.label = "tune", .quiet = e->o.quiet};
    by_perplexity_spec spec = e->o.windows;
    by_continuous_cache *cache = &e->o.windows.cache;
    by_cache_tuning tuning;
    cache->size = cache->size ? cache->size : 2000;
    spec.cache = *cache;
    spec.bins = 0;
    spec.progress = cli_perplexity_progress;
    spec.cancelled = cli_poll;
    spec.user = &bar;
    cli_progress_start(&bar);
    by_status s = by_cache_tune(e->model, e->tokenizer, &e->o.tune, 1, &spec, &tuning);
    cli_progress_end(&bar);
    if (s != BY_OK)
        return s;
    *cache = tuning.cache;
    const double tokens = (double)tuning.result.tokens;
    if (!e->o.json)
        printf("tuned on %s: --cache-size %d --cache-theta %.4g --cache-lambda %.4g   perplexity %.4f, "
               "without the cache %.4f\n",
               e->o.tune, cache->size, cache->theta, cache->lambda, exp(tuning.result.nats / tokens),
               exp(tuning.result.plain_nats / tokens));
    return BY_OK;
}

/* The weight of the n-gram model by held-out text. */
static by_status tune_ngram(evaluation *e)
{
    cli_progress bar = {.label = "tune", .quiet = e->o.quiet};
    by_perplexity_spec spec = e->o.windows;
    by_perplexity_result r;
    spec.bins = 0;
    spec.progress = cli_perplexity_progress;
    spec.cancelled = cli_poll;
    spec.user = &bar;
    cli_progress_start(&bar);
    by_status s =
        by_ngram_tune(e->model, e->tokenizer, &e->o.tune_ngram, 1, &spec, &e->o.windows.ngram.weight, &r);
    cli_progress_end(&bar);
    if (s == BY_OK && !e->o.json)
        printf("tuned on %s: --ngram-weight %.3f   perplexity %.4f, without the n-gram model %.4f\n",
               e->o.tune_ngram, e->o.windows.ngram.weight, exp(r.nats / (double)r.tokens),
               exp(r.plain_nats / (double)r.tokens));
    return s;
}

static by_status measure(evaluation *e, bool slides, by_perplexity_result *r)
{
    by_perplexity_spec spec = e->o.windows;
    cli_progress bar = {.label = slides ? "sliding" : "eval", .quiet = e->o.quiet};
    spec.progress = cli_perplexity_progress;
    spec.cancelled = cli_poll;
    spec.user = &bar;
    if (slides) { /* a window has as many tokens as a query sees keys in a segment with its memory */
        spec.seq = (spec.seq > 0 ? spec.seq : by_model_context(e->model)) + by_model_memory(e->model);
        spec.stride = 1;
        spec.batch = spec.batch > 0 ? spec.batch : 8;
        spec.bins = 0;
    }
    cli_progress_start(&bar);
    by_status s = by_perplexity(e->model, e->tokenizer, e->o.data.items, e->o.data.count, &spec, r);
    cli_progress_end(&bar);
    return s;
}

static int measure_both(evaluation *e, const char *model)
{
    by_perplexity_result segment, sliding;
    if (measure(e, false, &segment) != BY_OK || measure(e, true, &sliding) != BY_OK)
        return cli_fail(NULL);
    const double ratio =
        (double)segment.tokens / segment.seconds / ((double)sliding.tokens / sliding.seconds);
    print_perplexity(e, &segment, model);
    print_perplexity(e, &sliding, model);
    if (!e->o.json)
        printf("segment by segment is %.1f times as fast as sliding by one token\n", ratio);
    return CLI_OK;
}

static by_status make_bins(by_perplexity_spec *s)
{
    if (s->bins <= 0)
        return BY_OK;
    s->bin_nats = base_alloc_zero((size_t)s->bins, sizeof *s->bin_nats);
    s->bin_tokens = base_alloc_zero((size_t)s->bins, sizeof *s->bin_tokens);
    return s->bin_nats && s->bin_tokens ? BY_OK : BY_ERR_MEMORY;
}

/* Shards need no tokenizer. If text lacks one, the library reports it, and the loader the reason. */
static int evaluate_perplexity(evaluation *e, const char *model)
{
    by_perplexity_result r;
    if (make_bins(&e->o.windows) != BY_OK)
        return cli_fail(NULL);
    if (e->o.memory >= 0 && by_model_set_memory(e->model, e->o.memory) != BY_OK)
        return cli_fail(NULL);
    e->tokenizer = cli_tokenizer(model);
    if (!e->tokenizer && !data_tokens_is_shard(e->o.data.items[0]))
        return cli_fail(NULL);
    if (cli_mix_open(&e->o.mix, e->tokenizer, &e->ngram, &e->o.windows.ngram) != BY_OK ||
        (e->o.tune && tune_cache(e) != BY_OK) || (e->o.tune_ngram && tune_ngram(e) != BY_OK))
        return cli_fail(NULL);
    if (strcmp(e->o.way, "both") == 0)
        return measure_both(e, model);
    return measure(e, strcmp(e->o.way, "sliding") == 0, &r) == BY_OK ? print_perplexity(e, &r, model)
                                                                     : cli_fail(NULL);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static void close_evaluation(evaluation *e)
{
    base_free(e->o.windows.bin_nats);
    base_free(e->o.windows.bin_tokens);
    by_ngram_free(e->ngram);
    by_tokenizer_free(e->tokenizer);
    cJSON_Delete(e->record);
    by_model_free(e->model);
    by_device_free(e->device);
    base_free(e->dir);
}

/* Why the options do not go together, or NULL. */
static const char *conflict(const eval_options *o, const cli_args *args)
{
    const by_continuous_cache *cache = &o->windows.cache;
    const bool numbers = cli_given(args, &cache->theta) || cli_given(args, &cache->lambda);
    if (cache->size && !o->tune && !(cache->lambda > 0))
        return "--cache-size needs --tune-cache, or --cache-theta and --cache-lambda";
    if (!cache->size && !o->tune && (numbers || cache->per_document))
        return "--cache-theta, --cache-lambda and --cache-per-document need --cache-size";
    if (o->tune && numbers)
        return "--tune-cache chooses --cache-theta and --cache-lambda; they cannot be given as well";
    if (!o->mix.path && (o->tune_ngram || cli_given(args, &o->mix.weight)))
        return "--ngram-weight and --tune-ngram need --ngram";
    if (o->tune_ngram && cli_given(args, &o->mix.weight))
        return "--tune-ngram chooses --ngram-weight; it cannot be given as well";
    if (o->mix.path && (cache->size || o->tune))
        return "--ngram does not go with a continuous cache";
    if (strcmp(o->way, "segment") != 0 && (o->windows.stride || o->windows.bins))
        return "--evaluate sliding and both move a window by one token: they do not go with --stride and "
               "--by-position";
    return NULL;
}

static int evaluate_ngram(const evaluation *e, const cli_args *args)
{
    static const char *const names[] = {"data", "max-tokens", "threads", "device", "json", "quiet", NULL};
    const cli_option *other = cli_given_beyond(args, names, NULL);
    if (other)
        return cli_usage_fail("--%s is not for n-gram models", other->name);
    return cli_ngram_evaluate(&(cli_ngram_eval){.path = args->items[0],
                                                .data = e->o.data.items,
                                                .count = e->o.data.count,
                                                .max_tokens = e->o.windows.max_tokens,
                                                .json = e->o.json,
                                                .quiet = e->o.quiet});
}

/* Kinds of evaluation, and options that apply only to some of them. */
enum { PERPLEXITY = 1, EXAMPLES = 2, TEXTS = 4, CLASSES = 8, CAPTIONS = 16, PIXELS = 32 };
static const cli_scope scopes[] = {
    {"task", PERPLEXITY | EXAMPLES | TEXTS, "models of texts"},
    {"format", EXAMPLES, "labelled texts"},
    {"pair", EXAMPLES, "labelled texts"},
    {"choices", EXAMPLES, "labelled texts"},
    {"label-separator", EXAMPLES, "labelled texts"},
    {"max-answer-length", EXAMPLES, "labelled texts"},
    {"null-threshold", EXAMPLES, "labelled texts"},
    {"header", EXAMPLES | CLASSES | CAPTIONS | PIXELS, "labelled texts and pictures"},
    {"text", ~PERPLEXITY, "tables"},
    {"label", ~(PERPLEXITY | PIXELS), "tables with labels"},
    {"predictions", EXAMPLES | TEXTS | CLASSES, "models with labels and encoder-decoders"},
    {"metric", TEXTS, "encoder-decoders"},
    {"beams", TEXTS, "encoder-decoders"},
    {"prefix", TEXTS, "encoder-decoders"},
    {"no-generation-config", TEXTS, "encoder-decoders"},
    {"label-words", TEXTS, "encoder-decoders"},
    {"classes", CLASSES, "models that classify pictures"},
    {"coarse", CLASSES, "models that classify pictures"},
    {"confusion", CLASSES, "models that classify pictures"},
    {"per-class", CLASSES, "models that classify pictures"},
    {"workers", CLASSES | CAPTIONS, "models that read pictures"},
    {"seq", PERPLEXITY | EXAMPLES, "language models and labelled texts"},
    {"stride", PERPLEXITY | EXAMPLES, "language models and labelled texts"},
    {"max-tokens", PERPLEXITY, "language models"},
    {"memory", PERPLEXITY, "language models"},
    {"evaluate", PERPLEXITY, "language models"},
    {"by-position", PERPLEXITY, "language models"},
    {"cache-size", PERPLEXITY, "language models"},
    {"tune-cache", PERPLEXITY, "language models"},
    {"tune-ngram", PERPLEXITY, "language models"},
    {"ngram", PERPLEXITY | TEXTS, "language models and encoder-decoders"},
};

static uint32_t way_of(const evaluation *e)
{
    by_pictures reads;
    by_canvas canvas;
    const by_task task = by_model_task(e->model);
    if (by_model_canvas(e->model, &canvas) && task == BY_TASK_LM)
        return PIXELS;
    if (gen_reads_pictures(e->model, &reads))
        return task == BY_TASK_CLASSIFY ? CLASSES : CAPTIONS;
    if (task == BY_TASK_SEQ2SEQ)
        return TEXTS;
    return strcmp(task_of(e), "lm") == 0 ? PERPLEXITY : EXAMPLES;
}

static int evaluate(evaluation *e, const cli_args *args, const char *model)
{
    const uint32_t way = way_of(e);
    const cli_scope *row = cli_given_outside(args, scopes, BY_COUNT(scopes), way);
    if (row)
        return cli_usage_fail("--%s is for %s, not for %s", row->option, row->names,
                              base_a(by_model_class(e->model)).text);
    e->lists = cli_given_among(args, (const char *const[]){"text", "label", "header", NULL}) != NULL;
    if (recall_columns(e, args->items[0]) != BY_OK)
        return cli_fail(NULL);
    switch (way) {
    case PIXELS:
        return evaluate_pixels(e);
    case CLASSES:
    case CAPTIONS:
        return evaluate_pictures(e);
    case TEXTS:
        return evaluate_texts(e, model);
    case PERPLEXITY:
        return evaluate_perplexity(e, model);
    default:
        return evaluate_task(e, args, model);
    }
}

static int run(int argc, char **argv)
{
    evaluation e = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_eval, argc, argv, &e.o, &args, &code))
        return code;
    if (!e.o.data.count && args.count < 2) {
        code = cli_usage_fail("no data: give --data FILE, or files after the model");
    } else if (e.o.data.count && args.count > 1) {
        code = cli_usage_fail("data is given twice: choose one of --data and files after the model");
    } else if (conflict(&e.o, &args)) {
        code = cli_usage_fail("%s", conflict(&e.o, &args));
    } else {
        cli_list given = e.o.data;
        if (!given.count) { /* positionals are as good */
            e.o.data.items = (const char **)(args.items + 1);
            e.o.data.count = args.count - 1;
        }
        cli_interrupt_install();
        if (cli_model_kind(args.items[0]) == CLI_MODEL_NGRAM)
            code = evaluate_ngram(&e, &args);
        else if (open_model(&e, args.items[0]) != BY_OK)
            code = cli_fail(NULL);
        else
            code = evaluate(&e, &args, args.items[0]);
        e.o.data = given;
    }
    close_evaluation(&e);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_eval = {
    .name = "eval",
    .group = "Evaluation",
    .summary = "evaluate a model on text or on its task",
    .args = "MODEL [FILE...]",
    .description =
        "MODEL is a model directory or a run folder, whose best model is used.\n"
        "\n"
        "Language models: the text is tokenized with the model's tokenizer and read in windows of the "
        "context; every token except the first is predicted once. With --stride windows overlap, so that "
        "predictions have more context, and only the new tokens of each window count. Loss is the mean of "
        "-log p in nats per token, perplexity its exponential. Bits per byte refer to the text itself and "
        "are comparable between models with different tokenizers.\n"
        "\n"
        "A model with a memory (transfo-xl) reads segments of --seq tokens with a memory of --memory earlier "
        "positions. --evaluate sliding instead moves a window of both lengths by one token at a time, which "
        "is how a model without a memory gets the same context.\n"
        "\n"
        "--cache-size adds a continuous cache (Grave et al. 2016), which mixes the tokens that followed "
        "similar hidden states into the predictions. It persists across windows and documents; "
        "--cache-per-document clears it at each end-of-text token. --tune-cache tunes theta and lambda on "
        "held-out text.\n"
        "\n"
        "--ngram interpolates an n-gram model of the same tokens: p = (1 - W) p_model + W p_ngram. It reads "
        "the whole text, across windows. --tune-ngram tunes W on held-out text.\n"
        "\n"
        "Models with another head are evaluated on labelled examples by the metrics of their task: accuracy, "
        "F1 and Matthews' coefficient (classify), Pearson's and Spearman's (regress), F1 of entities (tag), "
        "exact match and F1 (answer). Files are read as by finetune; the default columns are those recorded "
        "in the run's run.json.\n"
        "\n"
        "Models that classify pictures are evaluated on folders, lists of files, IDX or CIFAR files: "
        "accuracy and top-5 accuracy, each class with --per-class, the confusion matrix as a picture with "
        "--confusion. Models that generate captions or compare texts with pictures are evaluated on lists of "
        "files and captions: the fraction of exact captions, or of texts and pictures whose nearest "
        "neighbour is their own pair.\n"
        "\n"
        "Encoder-decoders generate a text for each source, which is compared with its reference by BLEU, "
        "chrF, ROUGE and exact match. The data are two files of lines, or one table with both.\n"
        "\n"
        "An n-gram model, which may be an ARPA file, reads one sentence per line if it is a model of words, "
        "and also predicts the end of a sentence. Perplexity is printed with and without unknown words; bits "
        "per byte only if there are none. A model of tokens reads the same stream as a neural model.",
    .examples = "banyan eval runs/shakespeare --data held-out.txt\n"
                "banyan eval runs/sentiment --data dev.tsv --predictions out.jsonl\n"
                "banyan eval runs/multi30k test.en test.de --beams 5\n"
                "banyan eval runs/fashion t10k-images-idx3-ubyte.gz --per-class --confusion confusion.svg\n"
                "banyan eval gpt2 wiki.txt --stride 512 --json\n"
                "banyan eval gpt2 test.txt --cache-size 2000 --tune-cache valid.txt\n"
                "banyan eval runs/ngram held-out.txt\n"
                "banyan eval gpt2 test.txt --ngram runs/gpt2-5gram --tune-ngram valid.txt\n"
                "banyan eval runs/xl held-out.txt --memory 1024 --evaluate both --max-tokens 2k\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
