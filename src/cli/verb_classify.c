/* verb_classify.c - banyan classify: the label of a text, its labels, or its number. */
#include <stdio.h>

#include "cli/read.h"
#include "cli/verbs.h"
#include "base/input.h"
#include "base/json.h"
#include "infer/predict.h"

typedef struct classify_options {
    cli_read_options read;
    bool all;
    double threshold;
} classify_options;

static const cli_option options[] = {
    {CLI_AT(classify_options, all), .name = "all", .letter = 'a',
     .help = "print every label, most likely first", .group = "Labels"},
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
    by_problem problem;
    data_examples table; /* of --file, when that is one */
} job;

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

/* Take the texts from the text column of a table, with labels or without. Lines with tabs and no header may also
 * be texts and their pairs, as on the standard input. */
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

static void put_json(const job *j, base_buf *out, const char *text, const char *pair, const float *x)
{
    base_buf_puts(out, "{\"text\":");
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
        base_json_quote(out, by_model_label_name(j->r.model, j->places[0]));
        base_buf_puts(out, ",\"score\":");
        base_json_put_number(out, (double)x[j->places[0]], 6);
    } else if (j->problem == BY_PROBLEM_MANY_LABELS) {
        int shown = 0;
        base_buf_puts(out, ",\"labels\":[");
        for (int k = 0; k < j->labels && (double)x[j->places[k]] >= j->o.threshold; k++) {
            base_buf_puts(out, shown++ ? "," : "");
            base_json_quote(out, by_model_label_name(j->r.model, j->places[k]));
        }
        base_buf_puts(out, "]");
    }
    base_buf_puts(out, ",\"scores\":{");
    for (int k = 0; k < j->labels; k++) {
        base_buf_puts(out, k ? "," : "");
        base_json_quote(out, by_model_label_name(j->r.model, j->places[k]));
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
        bool holds = j->problem == BY_PROBLEM_MANY_LABELS ? share >= j->o.threshold : k == 0;
        if (!holds && !j->o.all)
            continue;
        base_buf_printf(out, "%s%s %.2f %%", shown++ ? ", " : "",
                        by_model_label_name(j->r.model, j->places[k]), 100 * share);
    }
    base_buf_printf(out, "%s\t%s\n", shown ? "" : "none", text);
}

static by_status classify(void *user, const cli_texts *t)
{
    job *j = user;
    float *more = base_resize(j->scores, (size_t)t->count * (size_t)j->labels, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    j->scores = more;
    BY_TRY(by_predictor_classify(j->r.predictor, (const char *const *)t->texts,
                                 (const char *const *)t->seconds, t->count, j->scores));
    base_buf out = {0};
    for (int i = 0; i < t->count; i++) {
        const float *x = j->scores + (size_t)i * (size_t)j->labels;
        gen_places_top(x, j->labels, j->labels, j->places);
        if (j->o.read.json)
            put_json(j, &out, t->texts[i], t->seconds[i], x);
        else
            put_plain(j, &out, t->texts[i], x);
    }
    return cli_put(&out);
}

static int run(int argc, char **argv)
{
    job j = {0};
    cli_args args;
    int code;
    if (!cli_parse(&cli_classify, argc, argv, &j.o, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {
        .arguments = args.items + 1, .n_arguments = args.count - 1, .path = j.o.read.file, .pairs = true};
    by_status s = cli_read_open(&j.r, args.items[0], BY_TASK_CLASSIFY, &j.o.read);
    if (s == BY_OK) {
        j.labels = by_model_labels(j.r.model);
        j.problem = by_model_problem(j.r.model);
        j.places = base_alloc_zero((size_t)j.labels, sizeof *j.places);
        s = j.places ? BY_OK : BY_ERR_MEMORY;
    }
    if (s == BY_OK && texts.n_arguments == 0 && is_table(texts.path))
        s = open_table(&j, &texts);
    code = cli_texts_run(&texts, s, classify, &j);
    cli_read_close(&j.r);
    data_examples_close(&j.table);
    base_free(j.scores);
    base_free(j.places);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_classify = {
    .name = "classify",
    .summary = "label texts with a fine-tuned model",
    .args = "MODEL [TEXT...]",
    .description =
        "Prints the label and its probability for each TEXT or, without TEXT, for each line of the "
        "input. A tab in a line separates a text from its pair. A multi-label model prints every "
        "label above the threshold; a regression model prints its number.\n"
        "\n"
        "--file also takes labelled tables (.tsv, .csv, .jsonl, .json): the text column is found "
        "as in finetune, and the columns used are printed on stderr.",
    .examples = "banyan classify runs/sst2 \"A gorgeous, witty, seductive movie.\"\n"
                "banyan classify runs/sst2 -f test.tsv\n"
                "banyan classify runs/mnli --json < pairs.tsv > labels.jsonl\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
