/* verb_classify.c - banyan classify: the label, labels or number of a text or picture. */
#include <stdio.h>

#include "banyan/embed.h"
#include "cli/common.h"
#include "cli/pictures.h"
#include "cli/read.h"
#include "cli/verbs.h"
#include "base/input.h"
#include "base/json.h"
#include "infer/predict.h"

typedef struct classify_options {
    cli_read_options read;
    bool all;
    const char *names, *template;
    int top;
    double threshold;
} classify_options;

static const cli_option options[] = {
    {CLI_AT(classify_options, all), .name = "all", .letter = 'a',
     .help = "print every label, most likely first", .group = "Labels"},
    {CLI_AT(classify_options, top), .name = "top", .letter = 'k', CLI_RANGE(0, 1e6), .preset = "0",
     .value = "K", .help = "print the K most likely labels; 0: 1 for texts, 5 for pictures"},
    {CLI_AT(classify_options, names), .name = "labels", .value = "A,B,C",
     .help = "models of texts and pictures (CLIP): choose among these labels"},
    {CLI_AT(classify_options, template), .name = "template", .value = "TEXT", .preset = "a photo of a {}",
     .help = "text for a label, which replaces {}"},
    {CLI_AT(classify_options, threshold), .name = "threshold", CLI_RANGE(0, 1), .preset = "0.5",
     .help = "multi-label models: minimum probability of a label"},
    CLI_READ_ROWS(classify_options),
};

typedef struct job {
    classify_options o;
    cli_reading r;
    float *scores; /* (texts, labels) */
    int *places;   /* (labels) */
    int labels;
    int top; /* how many labels are printed, for a model with one label per text */
    by_problem problem;
    data_examples table;   /* the --file, if it is a table */
    by_embedder *embedder; /* with --labels, instead of the predictor of r: */
    char **names;          /* the labels, */
    float *vectors;        /* and the vectors of their texts (labels, width) */
} job;

static const char *label(const job *j, int i)
{
    return j->names ? j->names[i] : by_model_label_name(j->r.model, i);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static bool is_table(const char *path)
{
    static const char *const endings[] = {".tsv", ".csv", ".jsonl", ".ndjson", ".json"};
    for (int i = 0; path && i < BY_COUNT(endings); i++)
        if (base_input_ends(path, endings[i]))
            return true;
    return false;
}

/* Whether the last column of a table without a header holds labels: those of the model, or numbers. */
static bool has_labels(job *j)
{
    bool all = true;
    data_labels own = {.names = base_alloc_zero((size_t)j->labels, sizeof *own.names), .count = j->labels};
    for (int i = 0; own.names && i < j->labels; i++)
        own.names[i] = by_model_label_name(j->r.model, i);
    if (j->problem != BY_PROBLEM_REGRESSION)
        all = own.names && data_examples_number(&j->table, &own) == BY_OK;
    for (int i = 0; j->problem == BY_PROBLEM_REGRESSION && i < j->table.count; i++)
        all = all && data_label_is_number(j->table.list[i].labels[0]);
    base_free(own.names);
    base_error_clear();
    return all;
}

static void note_table(const data_examples *e)
{
    base_buf text = {0};
    data_examples_describe(e, &text);
    if (!text.failed)
        cli_note("%s%s", text.data,
                 e->spec.kind == BY_EXAMPLE_CLASSIFY ? "; labels are ignored (banyan eval compares with them)"
                                                     : "");
    base_buf_free(&text);
}

/* Reads texts from the text column of a table, with or without labels. Lines with tabs and no header may also
 * be texts and their pairs, as on standard input. */
static by_status open_table(job *j, cli_texts *texts)
{
    const char *path = texts->path;
    const bool tabs = base_input_ends(path, ".tsv");
    by_status s = data_examples_open(&j->table, path, &(by_examples_spec){.kind = BY_EXAMPLE_CLASSIFY});
    if (s != BY_OK || (tabs && !j->table.header && !has_labels(j))) {
        data_examples_close(&j->table);
        s = data_examples_open(&j->table, path, &(by_examples_spec){.kind = BY_EXAMPLE_LM});
        if (tabs && !j->table.header) {
            base_error_clear();
            cli_note("%s: no header with known column names; reading lines, in which a tab separates a text "
                     "from its pair",
                     path);
            return BY_OK;
        }
    }
    if (s != BY_OK)
        return s;
    note_table(&j->table);
    texts->table = &j->table;
    return BY_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* what: "text" or "picture". */
static void put_json(const job *j, base_buf *out, const char *what, const char *text, const char *pair,
                     const float *x)
{
    base_buf_printf(out, "{\"%s\":", what);
    base_json_quote(out, text);
    if (pair) {
        base_buf_puts(out, ",\"pair\":");
        base_json_quote(out, pair);
    }
    if (j->problem == BY_PROBLEM_REGRESSION && j->labels == 1) {
        base_buf_puts(out, ",\"value\":");
        base_json_put_number(out, (double)x[0], 7);
        base_buf_puts(out, "}\n");
        return;
    }
    if (j->problem == BY_PROBLEM_ONE_LABEL) {
        base_buf_puts(out, ",\"label\":");
        base_json_quote(out, label(j, j->places[0]));
        base_buf_puts(out, ",\"score\":");
        base_json_put_number(out, (double)x[j->places[0]], 6);
    } else if (j->problem == BY_PROBLEM_MANY_LABELS) {
        int shown = 0;
        base_buf_puts(out, ",\"labels\":[");
        for (int k = 0; k < j->labels && (double)x[j->places[k]] >= j->o.threshold; k++) {
            base_buf_puts(out, shown++ ? "," : "");
            base_json_quote(out, label(j, j->places[k]));
        }
        base_buf_puts(out, "]");
    }
    base_buf_puts(out, ",\"scores\":{");
    for (int k = 0; k < j->labels && (j->o.top == 0 || k < j->o.top); k++) {
        base_buf_puts(out, k ? "," : "");
        base_json_quote(out, label(j, j->places[k]));
        base_buf_puts(out, ":");
        base_json_put_number(out, (double)x[j->places[k]], 6);
    }
    base_buf_puts(out, "}}\n");
}

static void put_plain(const job *j, base_buf *out, const char *text, const float *x)
{
    if (j->problem == BY_PROBLEM_REGRESSION) {
        for (int k = 0; k < j->labels; k++)
            base_buf_printf(out, "%.6g\t", (double)x[k]);
        base_buf_printf(out, "%s\n", text);
        return;
    }
    int shown = 0;
    for (int k = 0; k < j->labels; k++) {
        double share = (double)x[j->places[k]];
        bool holds = j->problem == BY_PROBLEM_MANY_LABELS ? share >= j->o.threshold : k < j->top;
        if (!holds && !j->o.all)
            continue;
        base_buf_printf(out, "%s%s %.2f %%", shown++ ? ", " : "", label(j, j->places[k]), 100 * share);
    }
    base_buf_printf(out, "%s\t%s\n", shown ? "" : "none", text);
}

/* Makes room for the scores of `count` examples. */
static by_status reserve(job *j, int count)
{
    float *more = base_resize(j->scores, (size_t)count * (size_t)j->labels, sizeof *more);
    if (more)
        j->scores = more;
    return more ? BY_OK : BY_ERR_MEMORY;
}

static void put(job *j, base_buf *out, const char *what, const char *text, const char *pair, int i)
{
    const float *x = j->scores + (size_t)i * (size_t)j->labels;
    gen_places_top(x, j->labels, j->labels, j->places);
    if (j->o.read.json)
        put_json(j, out, what, text, pair, x);
    else
        put_plain(j, out, text, x);
}

static by_status classify(void *user, const cli_texts *t)
{
    job *j = user;
    BY_TRY(reserve(j, t->count));
    BY_TRY(by_predictor_classify(j->r.predictor, (const char *const *)t->texts,
                                 (const char *const *)t->seconds, t->count, j->scores));
    base_buf out = {0};
    for (int i = 0; i < t->count; i++)
        put(j, &out, "text", t->texts[i], t->seconds[i], i);
    return cli_put(&out);
}

/* ---- pictures -------------------------------------------------------------------------------- */

static by_status classify_pictures(job *j, const by_picture_set *set)
{
    enum { TOGETHER = 1024 };
    const int64_t all = by_picture_set_count(set);
    for (int64_t first = 0; first < all && !cli_interrupted() && cli_flush(); first += TOGETHER) {
        const int count = (int)BY_MIN(all - first, (int64_t)TOGETHER);
        BY_TRY(reserve(j, count));
        BY_TRY(j->embedder
                   ? by_embedder_choose(j->embedder, j->vectors, j->labels, set, first, count, j->scores)
                   : by_predictor_classify_pictures(j->r.predictor, set, first, count, j->scores));
        base_buf out = {0};
        for (int i = 0; i < count; i++) {
            char name[4096];
            by_picture_set_name(set, first + i, name, sizeof name);
            put(j, &out, "picture", name, NULL, i);
        }
        BY_TRY(cli_put(&out));
    }
    return BY_OK;
}

static int run_pictures(job *j, const cli_args *args)
{
    const int channels =
        j->embedder ? by_embedder_channels(j->embedder) : by_processor_channels(j->r.processor);
    by_picture_set *set = cli_pictures_open(args->items + 1, args->count - 1, j->o.read.file, channels);
    by_status s = set ? classify_pictures(j, set) : base_error_status();
    by_picture_set_free(set);
    return s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

/* ---- labels in words --------------------------------------------------------------------------- */

static by_status add_label(job *j, const char *text, int length)
{
    char **more = base_resize(j->names, (size_t)j->labels + 1, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    j->names = more;
    char *name = j->names[j->labels] = base_sprintf("%.*s", length, text);
    if (!name)
        return BY_ERR_MEMORY;
    j->labels++;
    if (!length)
        return base_fail(BY_ERR_ARGUMENT, "--labels: label %d is empty", j->labels);
    for (int i = 0; i < j->labels - 1; i++)
        if (strcmp(j->names[i], name) == 0)
            return base_fail(BY_ERR_ARGUMENT, "--labels: \"%s\" is listed twice", name);
    return BY_OK;
}

/* Splits "a,b,c", trimming spaces around labels. */
static by_status split_labels(job *j)
{
    for (const char *at = j->o.names, *end;; at = end + 1) {
        at += strspn(at, " ");
        end = at + strcspn(at, ",");
        int length = (int)(end - at);
        while (length > 0 && at[length - 1] == ' ')
            length--;
        BY_TRY(add_label(j, at, length));
        if (!*end)
            return BY_OK;
    }
}

static by_status embed_labels(job *j)
{
    const char *place = strstr(j->o.template, "{}");
    const int before = place ? (int)(place - j->o.template) : 0;
    if (!place)
        return base_fail(BY_ERR_ARGUMENT, "--template: no {} in \"%s\"", j->o.template);
    char **texts = base_alloc_zero((size_t)j->labels, sizeof *texts);
    j->vectors =
        base_alloc_zero((size_t)j->labels * (size_t)by_embedder_width(j->embedder), sizeof *j->vectors);
    by_status s = texts && j->vectors ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < j->labels && s == BY_OK; i++) {
        texts[i] = base_sprintf("%.*s%s%s", before, j->o.template, j->names[i], place + 2);
        s = texts[i] ? BY_OK : BY_ERR_MEMORY;
    }
    if (s == BY_OK)
        s = by_embedder_run(j->embedder, (const char *const *)texts, j->labels, j->vectors);
    for (int i = 0; texts && i < j->labels; i++)
        base_free(texts[i]);
    base_free(texts);
    return s;
}

/* Opens a model of texts and pictures for labels that it was not trained on. */
static by_status open_zero_shot(job *j, const char *path)
{
    char *dir = cli_model_dir(path);
    cli_note_widening(dir, (by_dtype)j->o.read.dtype);
    j->r.device = dir ? cli_device(j->o.read.device, j->o.read.threads) : NULL;
    const by_embed_spec spec = {
        .dtype = (by_dtype)j->o.read.dtype, .batch = j->o.read.batch, .adapter = j->o.read.adapter};
    j->embedder = j->r.device ? by_embedder_open(j->r.device, dir, &spec) : NULL;
    base_free(dir);
    if (!j->embedder)
        return base_error_status();
    if (!by_embedder_reads_texts(j->embedder) || !by_embedder_reads_pictures(j->embedder))
        return base_fail(BY_ERR_ARGUMENT,
                         "--labels: the model does not read both texts and pictures, as CLIP does");
    BY_TRY(split_labels(j));
    return embed_labels(j);
}

/* ---- the verb --------------------------------------------------------------------------------- */

static by_status open_job(job *j, const char *path)
{
    if (j->o.names) {
        BY_TRY(open_zero_shot(j, path));
        j->problem = BY_PROBLEM_ONE_LABEL;
    } else {
        BY_TRY(cli_read_open(&j->r, path, BY_TASK_CLASSIFY, &j->o.read));
        j->labels = by_model_labels(j->r.model);
        j->problem = by_model_problem(j->r.model);
    }
    j->top = j->o.top > 0 ? j->o.top : j->r.processor || j->embedder ? 5 : 1;
    j->places = base_alloc_zero((size_t)j->labels, sizeof *j->places);
    return j->places ? BY_OK : BY_ERR_MEMORY;
}

static void close_job(job *j)
{
    by_embedder_free(j->embedder);
    cli_read_close(&j->r);
    data_examples_close(&j->table);
    for (int i = 0; j->names && i < j->labels; i++)
        base_free(j->names[i]);
    base_free(j->names);
    base_free(j->vectors);
    base_free(j->scores);
    base_free(j->places);
}

/* Options that would change nothing are an error. */
static by_status check_options(const job *j, const cli_args *args)
{
    if (!j->o.names && cli_given(args, &j->o.template))
        return base_fail(BY_ERR_ARGUMENT, "--template needs --labels");
    if (j->problem != BY_PROBLEM_MANY_LABELS && cli_given(args, &j->o.threshold))
        return base_fail(BY_ERR_ARGUMENT, "--threshold is for multi-label models");
    return BY_OK;
}

static int run_texts(job *j, const cli_args *args, by_status s)
{
    cli_texts texts = {
        .arguments = args->items + 1, .n_arguments = args->count - 1, .path = j->o.read.file, .pairs = true};
    if (s == BY_OK && texts.n_arguments == 0 && is_table(texts.path))
        s = open_table(j, &texts);
    return cli_texts_run(&texts, s, classify, j);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_classify, argc, argv, &j.o, &args, &code) ||
        !cli_one_source(j.o.read.file, &args, &code))
        return code;
    cli_interrupt_install();
    by_status s = open_job(&j, args.items[0]);
    if (s == BY_OK)
        s = check_options(&j, &args);
    code = s == BY_OK && (j.r.processor || j.embedder) ? run_pictures(&j, &args) : run_texts(&j, &args, s);
    close_job(&j);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_classify = {
    .name = "classify",
    .summary = "label texts or pictures with a fine-tuned model",
    .args = "MODEL [INPUT...]",
    .description = "Prints the label and its probability for each INPUT, a text or, with a model of "
                   "pictures, a picture. Without INPUT, each line of standard input is a text. A tab in a "
                   "line separates a text from its pair. A multi-label model prints every label above the "
                   "threshold; a regression model prints its number.\n"
                   "\n"
                   "--file also takes labelled tables (.tsv, .csv, .jsonl, .json): the text column is found "
                   "as in finetune, and the columns used are printed on stderr.\n"
                   "\n"
                   "A picture is a PNG, JPEG, WebP or GIF file, a directory of them, or a dataset that "
                   "finetune reads. It is preprocessed by preprocessor_config.json. Without INPUT, --file is "
                   "one of these, or standard input has a path per line. A model of texts and pictures "
                   "(CLIP) chooses among the --labels, which --template turns into texts.",
    .examples = "banyan classify runs/sst2 \"A gorgeous, witty, seductive movie.\"\n"
                "banyan classify runs/sst2 -f test.tsv\n"
                "banyan classify runs/mnli --json < pairs.tsv > labels.jsonl\n"
                "banyan classify vit-base-patch16-224 cat.jpg photos/ --top 3\n"
                "banyan classify clip-vit-base-patch32 cat.jpg --labels cat,dog,bird\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
