/* read.h - shared by the verbs that read texts: a model with its tokenizer, and texts from the command line,
 * a file or standard input, in batches. */
#ifndef BY_CLI_READ_H
#define BY_CLI_READ_H

#include "banyan/predict.h"
#include "cli/common.h"
#include "cli/options.h"
#include "data/labelled.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* Texts, a few thousand at a time: `arguments` if there are any, otherwise `table`, the lines of `path`, or
 * those of standard input. With `pairs`, a tab separates a text from its pair. */
typedef struct cli_texts {
    char **arguments;
    int n_arguments;
    const char *path;
    bool pairs;
    int most;                /* lines at a time; 0: 4096 */
    char **texts, **seconds; /* the present ones; seconds[i] may be NULL */
    int count;
    int64_t before; /* number of earlier texts */
    FILE *file;
    const data_examples *table; /* take the texts from here instead; NULL: no table */
    bool ended;
} cli_texts;
by_status cli_texts_next(cli_texts *t); /* count is 0 at the end */
void cli_texts_free(cli_texts *t);
/* Calls `each` for all texts, a few thousand at a time, unless `begun` is an error. Frees the texts, reports
 * an error and returns an exit code. */
typedef by_status cli_texts_fn(void *user, const cli_texts *t);
int cli_texts_run(cli_texts *t, by_status begun, cli_texts_fn *each, void *user);

/* Prints and frees the buffer. */
by_status cli_put(base_buf *out);

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct cli_read_options {
    const char *device, *file, *adapter;
    int threads, batch;
    unsigned dtype;
    bool json;
} cli_read_options;

/* Whether the inputs come from a single source: a file, or the command line after the model. Otherwise
 * reports this, frees the arguments and sets *code. */
bool cli_one_source(const char *file, cli_args *args, int *code);

/* clang-format off */
/* Rows of a verb's table for a member `read` of its options: the source of texts, and how the model runs. */
#define CLI_TEXT_ROWS(type)                                                                                   \
    {CLI_AT(type, read.file), .name = "file", .letter = 'f', .value = "FILE",                                 \
     .help = "read texts from FILE, one per line (default: standard input)", .group = "Texts"},               \
    {CLI_AT(type, read.json), .name = "json", .help = "print one JSON object per text"}

#define CLI_MODEL_ROWS(type)                                                                                  \
    {CLI_AT(type, read.batch), .name = "batch-size", .alias = "batch", .letter = 'b', CLI_RANGE(0, 1e5),      \
     .preset = "0", .help = "texts per batch; 0 chooses for the device", .group = "Machine"},                 \
    {CLI_AT(type, read.device), .name = "device", .preset = "auto", .value = "NAME",                          \
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one"},   \
    {CLI_AT(type, read.threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",         \
     .help = "CPU threads; 0 uses every core"},                                                               \
    {CLI_AT(type, read.dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",               \
     .help = "precision of parameters and activations"},                                                      \
    CLI_ADAPTER(type, read.adapter)

#define CLI_READ_ROWS(type) CLI_TEXT_ROWS(type), CLI_MODEL_ROWS(type)
/* clang-format on */

typedef struct cli_reading {
    by_device *device;
    by_model *model;
    by_tokenizer *tokenizer; /* NULL: the model reads only pictures */
    by_processor *processor; /* NULL: it reads only texts */
    by_predictor *predictor;
} cli_reading;

/* The model must have a head for `task` (for BY_TASK_MLM also one that is pretrained with it). */
by_status cli_read_open(cli_reading *r, const char *path, by_task task, const cli_read_options *o);
void cli_read_close(cli_reading *r); /* zero state is legal */

#endif
