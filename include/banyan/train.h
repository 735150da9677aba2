/* train.h - training: one step at a time (by_trainer), or a whole run with data, evaluation, checkpoints and
 * logs (by_train_run). */
#ifndef BANYAN_TRAIN_H
#define BANYAN_TRAIN_H

#include "banyan/image_tasks.h"
#include "banyan/pass.h"
#include "banyan/score.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimisers and schedules ---------------------------------------------------------------- */

typedef enum by_optimizer { BY_ADAMW, BY_SGD, BY_ADAFACTOR } by_optimizer;
typedef struct by_optimizer_spec {
    by_optimizer kind;
    double beta1, beta2;  /* AdamW; 0: 0.9 and 0.95; negative: 0 */
    double eps;           /* 0: 1e-8; negative: 0 */
    double momentum;      /* SGD */
    double weight_decay;  /* on tensors with two or more axes */
    double max_grad_norm; /* 0: no clipping */
    uint64_t seed;        /* stochastic rounding of parameters without masters; by_trainer sets its own */
} by_optimizer_spec;

typedef enum by_schedule {
    BY_SCHEDULE_CONSTANT,
    BY_SCHEDULE_LINEAR,
    BY_SCHEDULE_COSINE,
    BY_SCHEDULE_INVERSE_SQRT
} by_schedule;
typedef struct by_schedule_spec {
    by_schedule kind;
    /* peak learning rate. Negative for by_train_run: chosen from the model's width. 0: no updates */
    double rate;
    double min_rate; /* end of linear and cosine; negative for by_train_run: a tenth of the peak */
    /* Steps of linear warm-up: step s has rate * (s + 1) / warmup. Negative for by_train_run: a tenth of the
     * run, at most 100 steps; for "translate" a sixth, at most 4000 */
    int64_t warmup;
    int64_t steps; /* length of the run, for linear and cosine */
} by_schedule_spec;

/* The update of a parameter list as one compiled program over its flat buffers: norm, clipping, optimiser.
 * For custom training loops; by_trainer contains one. The list must be frozen for training
 * (by_params_freeze). */
typedef struct by_update by_update;
BY_API by_update *by_update_new(by_params *p, const by_optimizer_spec *spec);
BY_API void by_update_free(by_update *u);
/* Applies update number `step` (from 1) at the given rate. *norm (may be NULL) receives the gradient norm
 * before clipping. */
BY_API by_status by_update_run(by_update *u, double learning_rate, int64_t step, double *norm);
/* Waits for the last update and reads its gradient norm. BY_ERR_NUMERIC if it is not finite; the update was
 * then skipped. */
BY_API by_status by_update_norm(by_update *u, double *norm);
/* Copies this norm to device memory as an element of the gradients' type, without waiting. */
BY_API by_status by_update_keep(by_update *u, by_memory *m, size_t offset);
BY_API by_program *by_update_program(by_update *u); /* for tracing */

/* The learning rate of a step, counted from 0. */
BY_API double by_schedule_rate(const by_schedule_spec *s, int64_t step);

/* ---- one step at a time ---------------------------------------------------------------------- */

typedef struct by_trainer by_trainer;
typedef struct by_trainer_spec {
    int accumulate; /* micro-batches per step; 0: 1 */
    bool recompute;
    bool no_dropout; /* train without the model's dropout, as is usual in alignment */
    by_optimizer_spec optimizer;
    uint64_t seed;         /* dropout and stochastic rounding */
    float label_smoothing; /* in the training loss, not in evaluations */
    by_loss_fn loss;       /* replaces the model's loss in training, not in evaluations; or NULL */
    void *loss_user;
    bool hidden, scores; /* outputs that this loss reads: see by_pass_spec */
    /* Batches have a few dozen shapes: keep the passes of all of them. They share the memory of the first one
     * compiled */
    bool many_shapes;
    bool streams; /* every micro-batch of a step has its own stream */
} by_trainer_spec;

/* The model must have been opened or created for training; it is borrowed. Returns NULL on failure. */
BY_API by_trainer *by_trainer_new(by_model *m, const by_trainer_spec *spec);
BY_API void by_trainer_free(by_trainer *t);

/* Runs forward and backward over one micro-batch; gradients are stored (first) or accumulated. *loss receives
 * the mean loss. With NULL, the call does not wait for a GPU; by_trainer_loss reads the loss later. */
BY_API by_status by_trainer_backward(by_trainer *t, const by_batch *batch, bool first, double *loss);

/* Sets the weight of the next micro-batch in the mean of its step. The default is 1 / accumulate. */
BY_API void by_trainer_share(by_trainer *t, double share);

/* Clips the gradient, updates the parameters and counts the step. *norm receives the gradient norm before
 * clipping; with NULL, the call does not wait. */
BY_API by_status by_trainer_update(by_trainer *t, double learning_rate, double *norm);

/* The mean loss of the last step's micro-batches (weighted by by_trainer_share) and its gradient norm. Both
 * wait for a GPU. BY_ERR_NUMERIC if the value is not finite. */
BY_API by_status by_trainer_loss(by_trainer *t, double *loss);
BY_API by_status by_trainer_norm(by_trainer *t, double *norm);

/* The same for the last `count` updates, oldest first, finite or not. Reading many steps at once keeps a GPU
 * busy. An update whose norm is not finite was skipped on a GPU, and has failed on the CPU. */
enum { BY_TRAINER_KEPT = 64 };
BY_API by_status by_trainer_read(by_trainer *t, int count, double *losses, double *norms);

/* Computes the loss without gradients and dropout. Adds the summed loss to *sum and the number of counted
 * positions to *count. */
BY_API by_status by_trainer_evaluate(by_trainer *t, const by_batch *batch, double *sum, int64_t *count);

/* The pass of the last micro-batch, to read the outputs of its loss; NULL before the first. */
BY_API by_pass *by_trainer_trained(const by_trainer *t);
/* The pass of the last evaluation, to read its logits; NULL before the first. */
BY_API by_pass *by_trainer_evaluated(const by_trainer *t);

/* The model being trained. */
BY_API by_model *by_trainer_model(const by_trainer *t);
BY_API int64_t by_trainer_steps(const by_trainer *t);           /* updates so far */
BY_API void by_trainer_set_steps(by_trainer *t, int64_t steps); /* when resuming */
BY_API size_t by_trainer_bytes(const by_trainer *t);            /* planned activations of a training step */
BY_API size_t by_trainer_state_bytes(const by_trainer *t);      /* parameters, gradients, moments, masters */
BY_API double by_trainer_flops(const by_trainer *t);            /* one micro-batch, forward and backward */
/* The program of a micro-batch like this one, compiled if necessary; for tracing, or to see whether it
 * fits. */
BY_API by_program *by_trainer_program(by_trainer *t, const by_batch *like);
/* by_program_time for a whole step: micro-batches like this one and the update. */
BY_API by_status by_trainer_time(by_trainer *t, const by_batch *like, by_trace_fn fn, void *user);

/* ---- a whole run ----------------------------------------------------------------------------- */

/* The training objective (docs/OBJECTIVES.md). 0 and NULL select the defaults. */
typedef struct by_objective_choice {
    const char *name; /* "lm", "mlm", "nsp", "sop", "clm", "tlm", "translate", "spans", "infill", "fim",
                         "plm"; NULL: that of the family */
    /* Fraction of tokens to mask; 0: 0.15, for "infill" 0.3, for "plm" 1/6. "fim": fraction of documents; 0:
     * 0.5 */
    double mask_share;
    double mask_span;  /* mean span length of "spans" and "infill"; 0: 3 */
    bool suffix_first; /* "fim": suffix, prefix, middle */
    int mask_copies;  /* 1: the same masks in every epoch; n: n versions in turn; -1: new masks every epoch */
    int mask_words;   /* maximum adjacent words to mask; 0: 1, for "sop" 3, for "plm" 5 (pieces) */
    int block;        /* "plm": tokens that are permuted together; 0: a whole part of a row */
    int reuse;        /* "plm": tokens of the first part of a row, which the memory keeps; 0: half a row */
    bool one_way;     /* "plm": read no row backwards */
    bool whole_words; /* mask all pieces of a word or none */
    bool parallel;    /* "tlm": line i of all languages is the same sentence */
    const char *const *languages; /* one per item of data (and of eval_data), or NULL */
    int language_count;           /* "translate": 2, from the first to the second */
    /* "translate", whose data are tables of two texts or pairs of files */
    bool both_directions;        /* train each pair in both directions */
    const char *const *prefixes; /* prepended to the source: one per pair of texts, or two with */
    int prefix_count;            /* both_directions */
    const char *source, *target; /* columns; NULL: the conventional names */
    const char *label_words;     /* "negative,positive": texts for targets 0, 1, ... of tables; or NULL */
} by_objective_choice;

/* A report on a logged step. Fields that do not apply are NaN. */

typedef struct by_report {
    int64_t step, steps;
    double loss, eval_loss, learning_rate, grad_norm, ms, tokens_per_s;
    double next_accuracy;  /* accuracy of next-sentence or sentence-order prediction on held-out text */
    double peak_share;     /* fraction of the measured matrix-product rate; NaN if unknown */
    double pictures_per_s; /* runs on pictures; replaces tokens_per_s */
    double data_wait;      /* fraction of time spent waiting for data; NaN if data are not prefetched */
    double seconds;        /* since this process started the run */
    bool evaluated, saved;
    bool more; /* reports of later steps follow at once; ms and rates are means over all of them */
    const by_metric *metrics; /* evaluation metrics, for tasks that have some */
    int n_metrics;
    const by_metric *measures; /* training metrics of the step besides the loss (alignment) */
    int n_measures;
    const char *note;    /* description at the start of a run, or NULL */
    const char *warning; /* a problem that does not end the run, or NULL. Nothing else is set then */
} by_report;

typedef struct by_run_spec {
    /* model */
    const char *family; /* "gpt2" */
    by_model_shape shape;
    by_dtype dtype;
    bool stochastic_rounding;       /* bf16 parameters without f32 masters: see by_params_without_masters */
    const by_adapter_spec *adapter; /* with init_from: train this adapter instead of the model; NULL: none */
    const char *lora;               /* description of the adapter for run.json; may be NULL */
    by_dtype weights;               /* storage of frozen weights: see by_model_spec */
    /* A model directory to start from instead of initial values, or NULL. `shape` then sets only dropout
     * (negative: as in the model) */
    const char *init_from;
    /* data */
    const char *const *data; /* text files or .bin shards; glob patterns are allowed */
    int data_count;
    const char *const *eval_data; /* text for evaluation, or NULL */
    int eval_count;
    double eval_fraction; /* without eval_data: fraction of the data, from its end, to hold out */
    /* "char", "byte", a directory, or a vocabulary to train on the data: "bpe:8000", "unigram:8000",
     * "wordpiece:8000", "word:8000". NULL: "char" for text */
    const char *tokenizer;
    /* "translate": a tokenizer for the target, so that source and target have separate vocabularies; NULL: a
     * shared vocabulary */
    const char *target_tokenizer;
    by_objective_choice objective;
    /* steps */
    int batch, seq; /* seq 0: the model's context */
    /* "translate", instead of batch: tokens per side of a micro-batch, including padding; 0: 4096 */
    int batch_tokens;
    double label_smoothing;
    /* Encoder-decoders: the fraction of decoder inputs replaced by the model's own predictions at the last
     * step. It grows linearly from 0 */
    double scheduled_sampling;
    int accumulate;
    int64_t steps; /* total; 0: from epochs */
    double epochs; /* 0: chosen from the objective and the amount of data (docs/RECIPES.md) */
    by_schedule_spec schedule;
    /* Warm-up as a fraction of the run, if schedule.warmup is negative; 0: by the objective, negative:
     * none */
    double warmup_share;
    by_optimizer_spec optimizer;
    bool recompute;
    uint64_t seed;
    by_image_training images; /* families that read pictures */
    /* Evaluation, logging and saving, in steps; 0: a sensible default */
    int64_t eval_every, log_every, save_every;
    /* Maximum batches per evaluation. 0: all held-out data; negative: as many as there are steps between two
     * evaluations, at least 16, sampled evenly from all of it */
    int64_t eval_batches;
    int keep;     /* newest checkpoints to keep besides best and last; 0: 1 */
    int average;  /* at the end, write the mean of this many newest checkpoints to out/averaged; 0: none */
    int patience; /* early stopping after this many evaluations without progress; 0: never */
    /* Steps started before their losses are read back, at most 64. 0: one on the CPU, about a second's worth
     * on a GPU. Reports are delayed by this; their contents are the same */
    int ahead;
    const char *out;     /* run folder */
    bool overwrite;      /* start over even if the run could be resumed */
    const char *command; /* recorded in run.json, may be NULL */
    const char *recipe;  /* recorded in run.json: name of the recipe that set options, or NULL */
    const char *options; /* recorded in run.json: a JSON object that reproduces the command, or NULL */
    /* At the end, `out` itself becomes a model directory: the best model, or without evaluation the last.
     * Files of another model there are an error at the start */
    bool leaves_model;
    /* callbacks, may be NULL */
    void (*report)(void *user, const by_report *r);
    bool no_peak;                  /* omit peak_share, whose measurement takes 1/4 s at the start */
    bool (*cancelled)(void *user); /* polled every step; true saves and stops with BY_ERR_CANCELLED */
    by_trace_fn trace;             /* called for every node of the first step */
    void *user;
} by_run_spec;

typedef struct by_run_result {
    int64_t steps, resumed_from, parameters, trained; /* trained: without frozen parameters */
    double loss, eval_loss, best_eval_loss, next_accuracy;
    int64_t best_step;
    int averaged;              /* checkpoints in out/averaged */
    double averaged_eval_loss; /* NaN without one */
    double seconds;
    size_t activation_bytes, state_bytes;
    bool stopped_early;
    by_metric metrics[BY_METRICS_MAX]; /* runs on pictures: best evaluation */
    int n_metrics, labels;
    double data_wait;      /* as in by_report, over all steps */
    const char *loss_unit; /* unit of the losses, "nats per token"; NULL: unknown */
} by_run_result;

/* Published training set-ups as options of `banyan train`: "--model transformer --layers 6 ...". Explicit
 * options override a recipe. */
typedef struct by_recipe {
    const char *name, *about, *options;
} by_recipe;
BY_API const by_recipe *by_recipe_at(int i);              /* NULL after the last */
BY_API const by_recipe *by_recipe_find(const char *name); /* NULL with an error that names all */

/* Returns the default spec for training a family from scratch (init_from NULL) or from a model directory, as
 * `banyan train` uses it. objective NULL: that of the family. Values that depend on the data or on the
 * model's width are chosen by by_train_run. The caller sets data and out, and overrides other members as
 * needed. */
BY_API by_run_spec by_run_defaults(const char *family, const char *objective, const char *init_from);

/* A run folder lists in owned.json the files that the run wrote. Nothing else in the folder is ever removed
 * or replaced: a foreign file in the way is an error that names it. A run that cannot start leaves no files.
 *
 * Trains a model, or resumes the run in spec->out. The final model in out/last is bit-identical whether or
 * not the run was interrupted. */
BY_API by_status by_train_run(by_device *d, const by_run_spec *spec, by_run_result *result);

#ifdef __cplusplus
}
#endif
#endif
