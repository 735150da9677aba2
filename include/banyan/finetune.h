/* finetune.h - take a trained model and teach it a task from labelled examples; measure a model on a task. */
#ifndef BANYAN_FINETUNE_H
#define BANYAN_FINETUNE_H

#include "banyan/evaluate.h"
#include "banyan/examples.h"
#include "banyan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How texts become rows, and rows answers. */
typedef struct by_row_spec {
    int limit;             /* tokens of a row at most; 0: the model's context */
    int overlap;           /* of the windows over a text that is too long, where there are windows; 0: 128 */
    int longest_answer;    /* in tokens; 0: 30 */
    double null_threshold; /* no answer where having none is better by more than this */
    int batch;             /* rows at once; 0: 32 */
    by_dtype weights;      /* by_task_evaluate: see by_model_spec */
    const char *adapter;   /* by_task_evaluate: folder of an adapter to use; NULL: none */
} by_row_spec;

/* What a model is worth on a task. */
typedef struct by_task_result {
    by_metric metrics[BY_METRICS_MAX]; /* the first decides which of two models is better */
    int n_metrics;
    double loss;
    double score; /* the first metric, or the negative loss: more is better */
    int64_t cases, rows;
    double seconds;
} by_task_result;

/* Measure a model directory on a file. The tokenizer is looked for in the same place. predictions: a file
 * for one JSON object a case, or NULL. */
BY_API by_status by_task_evaluate(by_device *d, const char *model, by_dtype dtype, const char *path,
                                  const by_examples_spec *data, const by_row_spec *spec,
                                  const char *predictions, by_task_result *out);

/* What else BY_EXAMPLE_SEQ2SEQ needs: an encoder-decoder learns to write the targets of its sources. */
typedef struct by_seq2seq_spec {
    const char *const *prefixes; /* put before the sources, one or none */
    int prefix_count;
    const char *label_words; /* "negative,positive": what targets 0, 1, ... stand for; NULL: themselves */
    int batch_tokens;        /* tokens per step, in rows of about the same length; 0: 4096 */
    int eval_texts; /* at the end, the best model writes the first texts of the evaluation data; 0: none */
    void (*wrote)(void *user, const by_text_result *so_far, int64_t total); /* progress of that; NULL: none */
} by_seq2seq_spec;

typedef struct by_finetune_spec {
    const char *model; /* directory */
    by_dtype dtype;
    bool stochastic_rounding; /* as in by_run_spec */
    double dropout;           /* negative: the model's own */
    /* data */
    const char *data, *eval_data; /* eval_data may be NULL */
    by_examples_spec reading;
    by_row_spec work; /* batch: of evaluation */
    by_seq2seq_spec seq2seq;
    by_image_training images; /* for BY_EXAMPLE_IMAGE_CLASSIFY */
    double label_smoothing;   /* for BY_EXAMPLE_SEQ2SEQ and BY_EXAMPLE_IMAGE_CLASSIFY */
    /* steps */
    int batch, accumulate;     /* batch 0: 32, and less for fewer than 256 rows */
    int64_t steps;             /* in all; 0: from epochs */
    double epochs;             /* 0: 3, and up to 20 where that makes fewer than 200 steps */
    by_schedule_spec schedule; /* rate negative: by width; warmup negative: warmup_share of the run */
    double warmup_share;
    by_optimizer_spec optimizer;
    double layer_decay; /* each layer learns at this times the rate of the one above; 0: 1 */
    /* train this and not the model; the run folder becomes a folder of PEFT. NULL: none */
    const by_adapter_spec *adapter;
    const char *lora; /* the adapter in words, for run.json; a run goes on only with the same; may be NULL */
    by_dtype weights; /* how what is not trained is stored: see by_model_spec */
    const char *freeze;        /* as in by_model_spec; NULL: nothing */
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
    by_task_result best; /* of the model that is kept, when there is something to evaluate on */
    double data_wait;    /* for pictures: see by_report */
    /* for BY_EXAMPLE_SEQ2SEQ: what that model writes; without texts when none were asked for */
    by_text_result texts;
} by_finetune_result;

/* What models are fine-tuned with: the spec that `banyan finetune` starts from. The caller sets model, data, reading and out, and
 * changes what it likes. */
BY_API by_finetune_spec by_finetune_defaults(void);

/* Tune, or go on with what is in spec->out. Afterwards spec->out is a model directory: the best model by the
 * task's first metric (of equals the one with the lowest loss; for BY_EXAMPLE_SEQ2SEQ by the loss), else the last. */
BY_API by_status by_finetune_run(by_device *d, const by_finetune_spec *spec, by_finetune_result *result);

#ifdef __cplusplus
}
#endif
#endif
