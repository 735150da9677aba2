/* finetune.h - take a trained model and teach it a task from labelled examples; measure a model on a task. */
#ifndef BANYAN_FINETUNE_H
#define BANYAN_FINETUNE_H

#include "banyan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What examples are for. */
typedef enum by_work_kind {
    BY_WORK_CLASSIFY, /* a label, or several, of a text or a pair of texts */
    BY_WORK_REGRESS,  /* a number, or several */
    BY_WORK_TAG,      /* a label for every word */
    BY_WORK_ANSWER,   /* the part of a text that answers a question */
    BY_WORK_CHOICE,   /* the best of several continuations */
    BY_WORK_SEQ2SEQ,  /* a text to be written from another: source and target */
    BY_WORK_MLM,      /* hidden tokens of plain text */
    BY_WORK_LM        /* next tokens of plain text */
} by_work_kind;
BY_API bool by_work_find(const char *name, by_work_kind *out); /* "classify", ..., "answer" or "qa" */

typedef enum by_file_format { /* AUTO: by the ending; then by what the kind of work needs */
                              BY_FORMAT_AUTO,
                              BY_FORMAT_TSV,
                              BY_FORMAT_CSV,
                              BY_FORMAT_JSONL, /* an object a line, or one list of objects */
                              BY_FORMAT_CONLL,
                              BY_FORMAT_SQUAD,
                              BY_FORMAT_TEXT /* a line, a text */
} by_file_format;

/* Whether the first line of a table names its columns. AUTO: when it has a usual name or one that was given.
 * A first line that looks like a header of other names is then an error. */
typedef enum by_header { BY_HEADER_AUTO, BY_HEADER_YES, BY_HEADER_NO } by_header;

/* How a file of examples is read. Files may be packed with gzip or zstd; "-" is the standard input. Columns
 * by name or by number from 1. NULL: the usual names; without a header the first column is the text, the last
 * the label, one between them the pair. */
typedef struct by_task_data {
    by_work_kind kind;
    by_file_format format;
    const char *text, *pair, *label; /* pair "": there is none */
    const char *choices;             /* names of columns, with commas */
    const char *separator;           /* between several labels of a text; NULL: it has one */
    by_header header;
} by_task_data;

/* How texts become rows, and rows answers. */
typedef struct by_work_spec {
    int limit;             /* tokens of a row at most; 0: the model's context */
    int overlap;           /* of the windows over a text that is too long, where there are windows; 0: 128 */
    int longest_answer;    /* in tokens; 0: 30 */
    double null_threshold; /* no answer where having none is better by more than this */
    int batch;             /* rows at once; 0: 32 */
} by_work_spec;

/* What a model is worth on a task. */
typedef struct by_verdict {
    by_metric metrics[BY_METRICS_MAX]; /* the first decides which of two models is better */
    int n_metrics;
    double loss;
    double score; /* the first metric, or the negative loss: more is better */
    int64_t cases, rows;
    double seconds;
} by_verdict;

/* Measure a model directory on a file. The tokenizer is looked for in the same place. predictions: a file
 * for one JSON object a case, or NULL. */
BY_API by_status by_task_evaluate(by_device *d, const char *model, by_dtype dtype, const char *path,
                                  const by_task_data *data, const by_work_spec *spec, const char *predictions,
                                  by_verdict *out);

typedef struct by_finetune_spec {
    const char *model; /* directory */
    by_dtype dtype;
    bool stochastic_rounding; /* as in by_run_spec */
    double dropout;           /* negative: the model's own */
    /* data */
    const char *data, *eval_data; /* eval_data may be NULL */
    by_task_data reading;
    by_work_spec work; /* batch: of evaluation */
    /* steps */
    int batch, accumulate;     /* batch 0: 32, and less for fewer than 256 rows */
    int64_t steps;             /* in all; 0: from epochs */
    double epochs;             /* 0: 3, and up to 20 where that makes fewer than 200 steps */
    by_schedule_spec schedule; /* warmup negative: warmup_share of the run */
    double warmup_share;
    by_optimizer_spec optimizer;
    double layer_decay;        /* each layer learns at this times the rate of the one above; 0: 1 */
    const char *freeze;        /* "embeddings", "body", or so many layers and the embeddings; NULL: nothing */
    const char *class_weights; /* "balanced", or a number for each label, with commas; NULL: all alike */
    bool recompute;
    uint64_t seed;
    int64_t eval_every, log_every, save_every; /* in steps; 0: each epoch; 1; with each evaluation */
    int keep, patience, ahead;                 /* as in by_run_spec */
    const char *out; /* becomes a model directory; run.json, metrics.jsonl and checkpoints are in it too */
    bool overwrite;
    const char *command;
    const char *options;     /* see by_run_spec */
    const char *predictions; /* of the best model on the evaluation data, or NULL */
    void (*report)(void *user, const by_report *r);
    bool (*cancelled)(void *user);
    void *user;
} by_finetune_spec;

typedef struct by_finetune_result {
    int64_t steps, resumed_from, parameters, trained; /* trained: parameters that are not frozen */
    int64_t best_step;
    double loss, seconds;
    size_t activation_bytes,
        state_bytes; /* memory of the run: planned activations; parameters and optimiser */
    int labels;
    bool evaluated, stopped_early;
    by_verdict best; /* of the model that is kept, when there is something to evaluate on */
} by_finetune_result;

/* Tune, or go on with what is in spec->out. Afterwards spec->out is a model directory: the best model by the
 * task's first metric (of equals the one with the lowest loss), else the last. */
BY_API by_status by_finetune_run(by_device *d, const by_finetune_spec *spec, by_finetune_result *result);

#ifdef __cplusplus
}
#endif
#endif
