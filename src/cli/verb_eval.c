/* verb_eval.c - `banyan eval`: how well a language model predicts a text, or another model does its task. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/model.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/common.h"
#include "cli/eval_texts.h"
#include "cli/show.h"
#include "cli/task_options.h"
#include "cli/verbs.h"
#include "data/tokens.h"

typedef struct eval_options {
    cli_task_options t;
    cli_list data;
    const char *device;
    int64_t max_tokens;
    int seq, stride, batch, threads;
    by_dtype dtype;
    const char *weights;
    bool json, quiet;
    cli_texts_options texts;
} eval_options;

static const cli_option options[] = {
    {CLI_AT(eval_options, data), .name = "data", .letter = 'd', .value = "FILE",
     .help = "text or .bin token shards; patterns and repetition allowed", .group = "Data"},
    {CLI_AT(eval_options, t.task), .name = "task", .value = "TASK",
     .help = "classify, regress, tag, answer (or qa), choice, mlm, lm (else the model's own)"},
    CLI_TASK_ROWS(eval_options, t),
    {CLI_AT(eval_options, texts.metric), .name = "metric", .value = "LIST", .preset = "bleu,chrf",
     .help = "of bleu, chrf, rouge and exact, with commas", .group = "Texts from encoder-decoders"},
    {CLI_AT(eval_options, texts.beams), .name = "beams", CLI_RANGE(0, 64), .preset = "0",
     .help = "of the search (0: what the model's directory says, else 5)"},
    {CLI_AT(eval_options, texts.prefix), .name = "prefix", .value = "TEXT",
     .help = "put before every source"},
    {CLI_AT(eval_options, texts.plain), .name = "no-generation-config",
     .help = "ignore generation settings of the model's directory"},
    {CLI_AT(eval_options, texts.words), .name = "label-words", .value = "W0,W1,...",
     .help = "what labels 0, 1, ... of a table stand for"},
    {CLI_AT(eval_options, max_tokens), .name = "max-tokens", CLI_MIN(2), .suffix = true,
     .help = "only the beginning of the data", .group = "Windows"},
    {CLI_AT(eval_options, seq), .name = "seq", .alias = "context", .letter = 'c', CLI_RANGE(1, 1 << 24),
     .suffix = true, .help = "tokens per window (else the model's context)"},
    {CLI_AT(eval_options, stride), .name = "stride", CLI_RANGE(1, 1 << 24), .suffix = true,
     .help = "tokens from one window to the next (else the window: no overlap)"},
    {CLI_AT(eval_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1 << 16), .preset = "8", .help = "windows at once"},

    {CLI_AT(eval_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "where to compute: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8, or auto: a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(eval_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads (0: every core)"},
    {CLI_AT(eval_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",
     .help = "precision of parameters and activations"},
    CLI_WEIGHTS(eval_options, weights),

    {CLI_AT(eval_options, json), .name = "json", .help = "print the result as one JSON object",
     .group = "Output"},
    {CLI_AT(eval_options, quiet), .name = "quiet", .letter = 'q', .help = "no progress"},
};

typedef struct evaluation {
    eval_options o;
    by_device *device;
    by_model *model;
    cJSON *record;           /* run.json of the model's folder, or NULL */
    by_tokenizer *tokenizer; /* NULL: shards of an unknown one */
    data_tokens *tokens;
    char *scratch; /* folder of a tokenised text, or NULL */
    int64_t count; /* tokens that take part */
    int64_t windows;
    by_program *program;
    by_tensor *input, *targets, *loss;
    int32_t *rows, *wanted; /* (batch, seq) */
    /* the result */
    double nats;
    int64_t predicted, bytes; /* bytes: of the predicted text, 0 when unknown */
    double seconds;
} evaluation;

/* ---- data ------------------------------------------------------------------------------------ */

static bool is_shard(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

/* Tokenise text into a shard of its own, so that a text of any size needs little memory. */
static by_status open_text(evaluation *e)
{
    const char *place = getenv("TMPDIR");
    e->scratch = base_sprintf("%s/banyan-eval-XXXXXX", place && *place ? place : "/tmp");
    if (!e->scratch)
        return BY_ERR_MEMORY;
    if (!mkdtemp(e->scratch)) {
        base_fail(BY_ERR_IO, "%s: a folder for the tokens cannot be made (TMPDIR says where)", e->scratch);
        base_free(e->scratch);
        e->scratch = NULL;
        return BY_ERR_IO;
    }
    char *path = base_path_join(e->scratch, "text.bin");
    by_status s = path ? data_tokens_build(e->tokenizer, e->o.data.items, e->o.data.count, path, NULL, NULL)
                       : BY_ERR_MEMORY;
    if (s == BY_OK)
        e->tokens = data_tokens_open((const char *const[]){path}, 1, by_model_vocab(e->model));
    base_free(path);
    return s == BY_OK && !e->tokens ? base_error_status() : s;
}

static by_status open_data(evaluation *e, const char *model)
{
    int shards = 0;
    for (int i = 0; i < e->o.data.count; i++)
        shards += is_shard(e->o.data.items[i]);
    if (shards && shards != e->o.data.count)
        return base_fail(BY_ERR_ARGUMENT, "text files and .bin shards cannot be mixed");
    e->tokenizer = cli_tokenizer(model);
    if (!e->tokenizer && !shards)
        return base_error_status();
    if (shards)
        e->tokens = data_tokens_open(e->o.data.items, e->o.data.count, by_model_vocab(e->model));
    else
        BY_TRY(open_text(e));
    if (!e->tokens)
        return base_error_status();
    e->count = data_tokens_count(e->tokens);
    if (e->o.max_tokens > 0)
        e->count = BY_MIN(e->count, e->o.max_tokens);
    if (e->count < 2)
        return base_fail(BY_ERR_ARGUMENT, "the data has %lld token%s; at least two are needed to predict one",
                         (long long)e->count, e->count == 1 ? "" : "s");
    return BY_OK;
}

/* The length of the text that tokens [1, count) stand for: what is predicted. End-of-text tokens are no text.
 */
static by_status count_bytes(evaluation *e)
{
    int32_t ids[4096], eos = by_tokenizer_eos(e->tokenizer);
    base_buf text = {0};
    by_status s = BY_OK;
    for (int64_t at = 1; at < e->count && s == BY_OK; at += BY_COUNT(ids)) {
        int64_t n = BY_MIN(e->count - at, BY_COUNT(ids));
        size_t kept = 0;
        s = data_tokens_read(e->tokens, at, n, ids);
        for (int64_t i = 0; i < n && s == BY_OK; i++)
            if (ids[i] != eos)
                ids[kept++] = ids[i];
        text.size = 0;
        if (s == BY_OK)
            s = tok_decode(e->tokenizer, ids, kept, &text);
        if (s == BY_OK)
            e->bytes += (int64_t)text.size;
    }
    base_buf_free(&text);
    return s;
}

/* ---- windows --------------------------------------------------------------------------------- */

static by_status open_model(evaluation *e, const char *path)
{
    char *dir = cli_model_dir(path);
    if (!dir)
        return base_error_status();
    cli_note_widening(dir, e->o.dtype);
    e->device = cli_device(e->o.device, e->o.threads);
    e->model =
        e->device ? by_model_open(e->device, dir,
                                  &(by_model_spec){.dtype = e->o.dtype, .weights = cli_weights(e->o.weights)})
                  : NULL;
    base_free(dir);
    return e->model ? BY_OK : base_error_status();
}

static by_status choose_windows(evaluation *e)
{
    if (by_model_task(e->model) != BY_TASK_LM)
        return base_fail(BY_ERR_UNSUPPORTED, "a %s is no language model", by_model_class(e->model));
    int context = by_model_context(e->model);
    if (e->o.seq > context)
        return base_fail(BY_ERR_ARGUMENT, "--seq %d: the model's context is %d", e->o.seq, context);
    e->o.seq = e->o.seq ? e->o.seq : context;
    e->o.stride = e->o.stride ? e->o.stride : e->o.seq;
    if (e->o.stride > e->o.seq)
        return base_fail(BY_ERR_ARGUMENT, "--stride %d: more than a window of %d tokens would leave some out",
                         e->o.stride, e->o.seq);
    return BY_OK;
}

static by_status compile(evaluation *e)
{
    int64_t left = e->count - 1 - e->o.seq;
    e->windows = left > 0 ? 1 + (left + e->o.stride - 1) / e->o.stride : 1;
    e->o.batch = (int)BY_MIN(e->o.batch, e->windows);
    e->o.seq = (int)BY_MIN(e->o.seq, e->count - 1);
    e->o.stride = BY_MIN(e->o.stride, e->o.seq);
    int64_t shape[2] = {e->o.batch, e->o.seq};
    e->rows = base_alloc_zero((size_t)e->o.batch * (size_t)e->o.seq, sizeof *e->rows);
    e->wanted = base_alloc_zero((size_t)e->o.batch * (size_t)e->o.seq, sizeof *e->wanted);
    by_graph *g =
        e->rows && e->wanted ? by_graph_new(&(by_graph_spec){.params = by_model_params(e->model)}) : NULL;
    if (!g)
        return BY_ERR_MEMORY;
    e->input = by_input(g, "tokens", BY_I32, 2, shape);
    e->targets = by_input(g, "targets", BY_I32, 2, shape);
    by_model_io io = {0};
    by_io_feed(&io, "tokens", e->input);
    by_model_build(e->model, g, &io);
    e->loss = by_model_loss(e->model, g, &io, e->targets, NULL);
    e->program = by_compile(g, &(by_compile_spec){.loss = e->loss});
    return e->program ? BY_OK : base_error_status();
}

/* Window w reads tokens [w * stride, w * stride + seq) and predicts their successors; those that the window
 * before has predicted are left out, and so is what lies behind the last window. Gives how many count. */
static by_status fill_window(evaluation *e, int64_t w, int32_t *row, int32_t *wanted, int64_t *counted)
{
    int64_t begin = w * e->o.stride, seq = e->o.seq, n = BY_MIN(seq, e->count - 1 - begin);
    int64_t known = w > 0 ? seq - e->o.stride : 0;
    for (int64_t i = 0; i < seq; i++) {
        row[i] = 0;
        wanted[i] = -100;
    }
    if (w >= e->windows)
        return BY_OK;
    BY_TRY(data_tokens_read(e->tokens, begin, n, row));
    BY_TRY(data_tokens_read(e->tokens, begin + 1 + known, n - known, wanted + known));
    *counted += n - known;
    return BY_OK;
}

static by_status run_batch(evaluation *e, int64_t first)
{
    size_t bytes = (size_t)e->o.batch * (size_t)e->o.seq * sizeof *e->rows;
    int64_t counted = 0;
    float loss;
    for (int b = 0; b < e->o.batch; b++) {
        size_t at = (size_t)b * (size_t)e->o.seq;
        BY_TRY(fill_window(e, first + b, e->rows + at, e->wanted + at, &counted));
    }
    BY_TRY(by_write(e->program, e->input, e->rows, bytes));
    BY_TRY(by_write(e->program, e->targets, e->wanted, bytes));
    BY_TRY(by_run(e->program));
    BY_TRY(by_read_f32(e->program, e->loss, &loss));
    e->nats += (double)loss * (double)counted;
    e->predicted += counted;
    return isfinite(loss)
               ? BY_OK
               : base_fail(BY_ERR_NUMERIC, "the loss is %g in window %lld", (double)loss, (long long)first);
}

static by_status run_windows(evaluation *e)
{
    cli_progress bar = {.label = "eval", .total = e->count - 1, .quiet = e->o.quiet};
    double begin = base_seconds();
    by_status s = BY_OK;
    cli_progress_start(&bar);
    for (int64_t w = 0; w < e->windows && s == BY_OK; w += e->o.batch) {
        s = cli_interrupted()
                ? base_fail(BY_ERR_CANCELLED, "interrupted after %lld tokens", (long long)e->predicted)
                : run_batch(e, w);
        e->seconds = base_seconds() - begin;
        if (s == BY_OK)
            cli_progress_update(&bar, e->predicted, "loss %.4f  %.0f tok/s", e->nats / (double)e->predicted,
                                (double)e->predicted / e->seconds);
    }
    cli_progress_end(&bar);
    return s;
}

/* ---- labelled cases -------------------------------------------------------------------------- */

/* What the model is for, unless it is said. */
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
                   {"label-separator", &t->separator}};
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

static int judge_task(evaluation *e, const char *model)
{
    const char *task = task_of(e);
    by_examples_spec data;
    by_row_spec spec;
    by_task_result v;
    e->o.t.limit = e->o.seq;
    e->o.t.overlap = e->o.stride;
    if (!cli_task_read(&e->o.t, task, &data, &spec))
        return CLI_USAGE;
    if (e->o.data.count != 1)
        return cli_usage_fail("cases come from one file");
    spec.batch = e->o.batch;
    spec.weights = cli_weights(e->o.weights);
    char *dir = cli_model_dir(model);
    by_status s = dir ? by_task_evaluate(e->device, dir, e->o.dtype, e->o.data.items[0], &data, &spec,
                                         e->o.t.predictions, &v)
                      : base_error_status();
    base_free(dir);
    if (s != BY_OK)
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

/* Two files, or a table with both texts. */
static int judge_texts(evaluation *e, const char *model)
{
    cli_texts_options o = e->o.texts;
    o.source_column = e->o.t.text;
    o.target_column = e->o.t.label;
    o.predictions = e->o.t.predictions;
    o.batch = e->o.batch;
    o.json = e->o.json;
    o.quiet = e->o.quiet;
    char *dir = cli_model_dir(model);
    e->tokenizer = cli_tokenizer(model);
    int code =
        dir && e->tokenizer ? cli_eval_texts(e->model, e->tokenizer, dir, &e->o.data, &o) : cli_fail(NULL);
    base_free(dir);
    return code;
}

/* ---- the verb -------------------------------------------------------------------------------- */

static int print_result(const evaluation *e, const char *model)
{
    double loss = e->nats / (double)e->predicted, bits = loss / log(2),
           speed = (double)e->predicted / e->seconds;
    double per_byte = e->bytes ? e->nats / log(2) / (double)e->bytes : (double)NAN;
    if (!e->o.json) {
        printf("loss %.4f   perplexity %.4f   bits per token %.4f", loss, exp(loss), bits);
        if (isfinite(per_byte))
            printf("   bits per byte %.4f", per_byte);
        printf("\n%lld tokens in windows of %d, %.1f s, %.0f tokens per second\n", (long long)e->predicted,
               e->o.seq, e->seconds, speed);
        return CLI_OK;
    }
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", model);
    cli_json_number(j, "loss", loss);
    cli_json_number(j, "perplexity", exp(loss));
    cli_json_number(j, "bits_per_token", bits);
    cli_json_number(j, "bits_per_byte", per_byte);
    cJSON_AddNumberToObject(j, "tokens", (double)e->predicted);
    cli_json_number(j, "bytes", e->bytes ? (double)e->bytes : (double)NAN);
    cJSON_AddNumberToObject(j, "seq", e->o.seq);
    cJSON_AddNumberToObject(j, "stride", e->o.stride);
    cJSON_AddNumberToObject(j, "windows", (double)e->windows);
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(e->o.dtype));
    if (e->o.weights)
        cJSON_AddStringToObject(j, "weights", e->o.weights);
    cJSON_AddNumberToObject(j, "seconds", e->seconds);
    cli_json_number(j, "tokens_per_s", speed);
    return cli_print_json(j);
}

static by_status evaluate(evaluation *e, const char *model)
{
    BY_TRY(choose_windows(e));
    BY_TRY(open_data(e, model));
    if (e->tokenizer)
        BY_TRY(count_bytes(e));
    BY_TRY(compile(e));
    return run_windows(e);
}

static void close_evaluation(evaluation *e)
{
    by_program_free(e->program);
    data_tokens_free(e->tokens);
    if (e->scratch)
        base_dir_remove(e->scratch);
    base_free(e->scratch);
    by_tokenizer_free(e->tokenizer);
    cJSON_Delete(e->record);
    by_model_free(e->model);
    by_device_free(e->device);
    base_free(e->rows);
    base_free(e->wanted);
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
    } else {
        cli_list given = e.o.data;
        if (!given.count) { /* positionals are as good */
            e.o.data.items = (const char **)(args.items + 1);
            e.o.data.count = args.count - 1;
        }
        cli_interrupt_install();
        if (open_model(&e, args.items[0]) != BY_OK || recall_columns(&e, args.items[0]) != BY_OK)
            code = cli_fail(NULL);
        else if (by_model_task(e.model) == BY_TASK_SEQ2SEQ)
            code = judge_texts(&e, args.items[0]);
        else if (strcmp(task_of(&e), "lm") != 0)
            code = judge_task(&e, args.items[0]);
        else
            code = evaluate(&e, args.items[0]) == BY_OK ? print_result(&e, args.items[0]) : cli_fail(NULL);
        e.o.data = given;
    }
    close_evaluation(&e);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_eval = {
    .name = "eval",
    .summary = "measure how well a model predicts a text or does its task",
    .args = "MODEL [FILE...]",
    .description =
        "MODEL is a model directory or the folder of a training run, whose best model is then "
        "used. The text goes through "
        "the model's own tokenizer and is read in windows of the context; every token but the "
        "first is predicted once. "
        "With --stride windows overlap, so that predictions have more context, and only what is "
        "new in each counts.\n\n"
        "Loss is the mean of -log p in nats per token, perplexity its exponential. Bits per byte "
        "refer to the text "
        "itself and can be compared between models with different tokenizers.\n\n"
        "A model with another head is measured on labelled cases by the metrics of its task: accuracy, "
        "F1 and Matthews' coefficient (classify), Pearson's and Spearman's (regress), F1 of entities "
        "(tag), exact match and F1 (answer). Files are read as by finetune; columns that are not given are "
        "those of the "
        "run's own data, as run.json records them.\n\n"
        "An encoder-decoder writes a text for each source, which is compared with its reference: BLEU, chrF, "
        "ROUGE, exact match. The data are two files of lines, or one table with both.",
    .examples = "banyan eval runs/shakespeare --data held-out.txt\n"
                "banyan eval runs/sentiment --data dev.tsv --predictions out.jsonl\n"
                "banyan eval runs/multi30k test.en test.de --beams 5\n"
                "banyan eval gpt2 wiki.txt --stride 512 --json\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
