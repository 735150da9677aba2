/* finetune.h - fine-tunes a model on labelled examples, and evaluates a model on a task. */
#ifndef BANYAN_FINETUNE_H
#define BANYAN_FINETUNE_H

#include "banyan/evaluate.h"
#include "banyan/examples.h"
#include "banyan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How texts are cut into rows, and how answers are read from rows. */
typedef struct by_row_spec {
    int limit;             /* maximum tokens per row; 0: the model's context */
    int overlap;           /* tokens shared by neighbouring windows of a long text; 0: 128 */
    int longest_answer;    /* maximum tokens of an answer; 0: 30 */
    double null_threshold; /* "no answer" must outscore the best answer by more than this */
    int batch;             /* rows per batch; 0: 32 */
    by_dtype weights;      /* by_task_evaluate: see by_model_spec */
    const char *adapter;   /* by_task_evaluate: folder of an adapter to use; NULL: none */
} by_row_spec;

/* The quality of a model on a task. */
typedef struct by_task_result {
    by_metric metrics[BY_METRICS_MAX]; /* models are compared by the first */
    int n_metrics;
    double loss;
    double score; /* the first metric, or the negative loss; higher is better */
    int64_t cases, rows;
    double seconds;
} by_task_result;

/* Evaluates the model in a directory, which also holds its tokenizer, on a file of examples. predictions: a
 * file that receives one JSON object per case, or NULL. */
BY_API by_status by_task_evaluate(by_device *d, const char *model, by_dtype dtype, const char *path,
                                  const by_examples_spec *data, const by_row_spec *spec,
                                  const char *predictions, by_task_result *out);

/* Settings for BY_EXAMPLE_SEQ2SEQ, in which an encoder-decoder learns to generate the targets of its
 * sources. */
typedef struct by_seq2seq_spec {
    const char *const *prefixes; /* prepended to the sources; one or none */
    int prefix_count;
    /* "negative,positive": texts for targets 0, 1, ...; NULL: the targets themselves */
    const char *label_words;
    int batch_tokens; /* tokens per step, in rows of similar length; 0: 4096 */
    int eval_texts;   /* sources of the evaluation data to generate texts for at the end; 0: none */
    /* Progress of this generation; NULL: none */
    void (*wrote)(void *user, const by_text_result *so_far, int64_t total);
} by_seq2seq_spec;

typedef struct by_finetune_spec {
    const char *model; /* directory */
    by_dtype dtype;
    bool stochastic_rounding; /* as in by_run_spec */
    double dropout;           /* negative: as in the model */
    /* data */
    const char *data, *eval_data; /* eval_data may be NULL */
    by_examples_spec reading;
    by_row_spec work; /* batch: for evaluation */
    by_seq2seq_spec seq2seq;
    by_image_training images; /* for BY_EXAMPLE_IMAGE_CLASSIFY */
    double label_smoothing;   /* for BY_EXAMPLE_SEQ2SEQ and BY_EXAMPLE_IMAGE_CLASSIFY */
    /* steps */
    int batch, accumulate;     /* batch 0: 32, or less for fewer than 256 rows */
    int64_t steps;             /* total; 0: from epochs */
    double epochs;             /* 0: 3, or up to 20 if 3 are fewer than 200 steps */
    by_schedule_spec schedule; /* rate negative: by width; warmup negative: warmup_share of the run */
    double warmup_share;
    by_optimizer_spec optimizer;
    double layer_decay; /* learning-rate factor from each layer to the one below; 0: 1 */
    /* Train this adapter instead of the model; the run folder becomes a PEFT adapter folder. NULL: none */
    const by_adapter_spec *adapter;
    const char *lora;   /* description of the adapter for run.json; must match on resuming; may be NULL */
    by_dtype weights;   /* storage of frozen weights: see by_model_spec */
    const char *freeze; /* as in by_model_spec; NULL: nothing */
    const char *class_weights; /* "balanced", or comma-separated numbers per label; NULL: equal */
    bool recompute;
    uint64_t seed;
    int64_t eval_every, log_every, save_every; /* in steps; 0: every epoch; 1; with every evaluation */
    int keep, patience, ahead;                 /* as in by_run_spec */
    const char *out; /* becomes a model directory; run.json, metrics.jsonl and checkpoints are in it too */
    bool overwrite;
    const char *command;
    const char *options;     /* see by_run_spec */
    const char *predictions; /* file for the best model's predictions on the evaluation data, or NULL */
    void (*report)(void *user, const by_report *r);
    bool (*cancelled)(void *user);
    void *user;
} by_finetune_spec;

typedef struct by_finetune_result {
    int64_t steps, resumed_from, parameters, trained; /* trained: without frozen parameters */
    int64_t best_step;
    double loss, seconds;
    size_t activation_bytes, state_bytes; /* planned activations; parameters and optimiser state */
    int labels;
    bool evaluated, stopped_early;
    by_task_result best; /* of the model that is kept, if `evaluated` */
    double data_wait;    /* for pictures: see by_report */
    /* for BY_EXAMPLE_SEQ2SEQ: scores of the texts that this model generates; empty if eval_texts is 0 */
    by_text_result texts;
} by_finetune_result;

/* Returns the default spec, as `banyan finetune` uses it. The caller sets model, data, reading and out, and
 * overrides other members as needed. */
BY_API by_finetune_spec by_finetune_defaults(void);

/* Fine-tunes a model, or resumes the run in spec->out. Afterwards spec->out is a model directory with the
 * best model by the task's first metric (ties by the lowest loss; BY_EXAMPLE_SEQ2SEQ by the loss), or without
 * evaluation the last. */
BY_API by_status by_finetune_run(by_device *d, const by_finetune_spec *spec, by_finetune_result *result);

#ifdef __cplusplus
}
#endif
#endif
