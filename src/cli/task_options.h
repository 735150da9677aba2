/* task_options.h - options of the verbs that read labelled examples, and how they print metrics. */
#ifndef BY_CLI_TASK_OPTIONS_H
#define BY_CLI_TASK_OPTIONS_H

#include <cjson/cJSON.h>

#include "banyan/finetune.h"
#include "cli/options.h"

typedef struct cli_task_options {
    const char *task, *text, *pair, *label, *choices, *separator;
    by_file_format format;
    by_header header;
    int limit, overlap, longest_answer;
    double null_threshold;
    const char *predictions;
} cli_task_options;

/* The rows of a verb's table for a field `t` of this type. */
#define CLI_TASK_ROWS(type, t)                                                                          \
    {CLI_AT(type, t.format), .name = "format", .choices = "auto|tsv|csv|jsonl|conll|squad|text",        \
     .preset = "auto", .help = "format of the data; auto decides by the file name"},                    \
        {CLI_AT(type, t.header), .name = "header", .choices = "auto|yes|no", .preset = "auto",          \
         .help = "whether the first line of a table names its columns; auto looks for known names"},    \
        {CLI_AT(type, t.text), .name = "text", .alias = "text-column", .value = "COLUMN",               \
         .help = "text column, by name or number (default: text, sentence, question, ...)"},            \
        {CLI_AT(type, t.pair), .name = "pair", .alias = "pair-column", .value = "COLUMN",               \
         .help = "column of a second text (default: sentence2, hypothesis, ...)"},                      \
        {CLI_AT(type, t.label), .name = "label", .alias = "label-column", .value = "COLUMN",            \
         .help = "label column, by name or number (default: label, score, class, ...)"},                \
        {CLI_AT(type, t.choices), .name = "choices", .value = "COLUMNS",                                \
         .help = "columns of the choices, comma-separated"},                                            \
        {CLI_AT(type, t.separator), .name = "label-separator", .value = "TEXT",                         \
         .help = "multi-label data: separator between the labels of a text"},                           \
        {CLI_AT(type, t.longest_answer), .name = "max-answer-length", CLI_MIN(1), .preset = "30",       \
         .help = "maximum tokens of an answer"},                                                        \
        {CLI_AT(type, t.null_threshold), .name = "null-threshold", CLI_RANGE(-1e6, 1e6), .preset = "0", \
         .help = "report no answer if \"no answer\" scores higher by more than this"},                  \
    {                                                                                                   \
        CLI_AT(type, t.predictions), .name = "predictions", .value = "FILE",                            \
                                     .help = "write one JSON object per evaluation example to FILE"     \
    }

/* Returns false after reporting an option of CLI_TASK_ROWS, or of
 * finetune, that the user gave and that examples of this kind do not have. */
bool cli_task_fits(by_example_kind kind, const char *task, const cli_args *own);

/* Fills data and spec. Returns false after reporting an unknown task; the caller returns CLI_USAGE. */
bool cli_task_read(const cli_task_options *t, const char *task, by_examples_spec *data, by_row_spec *spec);

/* "accuracy 0.9123  f1 0.9" on stdout, or members of an object. */
void cli_task_print(const by_task_result *v);
void cli_task_json(cJSON *json, const by_task_result *v);

#endif
