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
    double weight_decay;  /* on tensors of two or more axes */
    double max_grad_norm; /* 0: no clipping */
    uint64_t seed;        /* of stochastic rounding, where there are no masters; by_trainer sets its own */
} by_optimizer_spec;

typedef enum by_schedule {
    BY_SCHEDULE_CONSTANT,
    BY_SCHEDULE_LINEAR,
    BY_SCHEDULE_COSINE,
    BY_SCHEDULE_INVERSE_SQRT
} by_schedule;
typedef struct by_schedule_spec {
    by_schedule kind;
    double rate; /* the highest. Negative for by_train_run: one by the model's width. 0: nothing is learnt */
    double min_rate; /* where linear and cosine end; negative for by_train_run: a tenth of the highest */
    int64_t warmup;  /* steps of linear rise: step s of them has rate * (s + 1) / warmup.
                      * Negative for by_train_run: a tenth of the run, 100 at most; for "translate" a sixth,
                      * 4000 at most */
    int64_t steps;   /* of the whole run, for linear and cosine */
} by_schedule_spec;

/* The update of a parameter list as one compiled program over its flat buffers: norm, clipping, optimiser.
 * For one's own training loops; by_trainer has one inside. The list must have been frozen for training. */
typedef struct by_update by_update;
BY_API by_update *by_update_new(by_params *p, const by_optimizer_spec *spec);
BY_API void by_update_free(by_update *u);
/* Apply update number step (from 1) at the given rate; *norm (may be NULL) receives the gradient norm before
 * clipping. */
BY_API by_status by_update_run(by_update *u, double learning_rate, int64_t step, double *norm);
/* The norm of the last update; waits for it. Where it is not finite the update was left out: BY_ERR_NUMERIC.
 */
BY_API by_status by_update_norm(by_update *u, double *norm);
/* Copy that norm to memory of the caller's, an element of the gradients' type; does not wait. */
BY_API by_status by_update_keep(by_update *u, by_memory *m, size_t offset);
BY_API by_program *by_update_program(by_update *u); /* for tracing */

/* The learning rate of a step, counted from 0. */
BY_API double by_schedule_rate(const by_schedule_spec *s, int64_t step);

/* ---- one step at a time ---------------------------------------------------------------------- */

typedef struct by_trainer by_trainer;
typedef struct by_trainer_spec {
    int accumulate; /* micro-batches per step; 0: 1 */
    bool recompute;
    bool no_dropout; /* whatever the model has, which keeps it: usual in alignment */
    by_optimizer_spec optimizer;
    uint64_t seed;         /* of dropout and stochastic rounding */
    float label_smoothing; /* of the loss that is trained with, not of evaluations */
    by_loss_fn loss;       /* replaces the model's own loss in training, not in evaluations; or NULL */
    void *loss_user;
    bool hidden, scores; /* outputs that this loss reads: see by_pass_spec */
    bool many_shapes;    /* batches come in a few dozen: their passes are all kept, and share their memory,
                            * which is that of the first one compiled */
    bool streams;        /* every micro-batch of a step has its own stream */
} by_trainer_spec;

/* The model must have been made for training; it is borrowed. NULL on failure. */
BY_API by_trainer *by_trainer_new(by_model *m, const by_trainer_spec *spec);
BY_API void by_trainer_free(by_trainer *t);

/* Forward and backward over one micro-batch, gradients stored (first) or added. *loss receives the mean loss;
 * with NULL, the call does not wait for a GPU to finish; by_trainer_loss reads it later. */
BY_API by_status by_trainer_backward(by_trainer *t, const by_batch *batch, bool first, double *loss);

/* The weight of the next micro-batch in the mean of its step, where it is not one over their number. */
BY_API void by_trainer_share(by_trainer *t, double share);

/* Clip, update the parameters, count the step. *norm (may be NULL: the call does not wait) receives the
 * gradient norm before clipping. */
BY_API by_status by_trainer_update(by_trainer *t, double learning_rate, double *norm);

/* Of the last step: the mean loss of its micro-batches (by their shares), and the gradient norm. These wait
 * for a GPU. What is not finite is BY_ERR_NUMERIC. */
BY_API by_status by_trainer_loss(by_trainer *t, double *loss);
BY_API by_status by_trainer_norm(by_trainer *t, double *norm);

/* The same of the last `count` updates, the oldest first, finite or not: reading them for many steps at once
 * lets a GPU work without a break in between. An update whose norm is not finite was left out on a GPU, and
 * has failed on the CPU. */
enum { BY_TRAINER_KEPT = 64 };
BY_API by_status by_trainer_read(by_trainer *t, int count, double *losses, double *norms);

/* Loss without gradients and without dropout: adds to *sum the summed loss and to *count the positions that
 * counted. */
BY_API by_status by_trainer_evaluate(by_trainer *t, const by_batch *batch, double *sum, int64_t *count);

/* The pass of the last micro-batch, to read what its loss returned; NULL before. */
BY_API by_pass *by_trainer_trained(const by_trainer *t);
/* The pass of the last evaluation, to read its logits; NULL before. */
BY_API by_pass *by_trainer_evaluated(const by_trainer *t);

/* The pass of the last micro-batch, to read what its loss returned besides; NULL before. */
BY_API by_pass *by_trainer_learnt(const by_trainer *t);

/* The model that is trained. */
BY_API by_model *by_trainer_model(const by_trainer *t);
BY_API int64_t by_trainer_steps(const by_trainer *t);           /* updates so far */
BY_API void by_trainer_set_steps(by_trainer *t, int64_t steps); /* when resuming */
BY_API size_t by_trainer_bytes(const by_trainer *t);            /* planned activations of a training step */
BY_API size_t by_trainer_state_bytes(const by_trainer *t);      /* parameters, gradients, moments, masters */
BY_API double by_trainer_flops(const by_trainer *t);            /* of one micro-batch, forward and backward */
/* Of a micro-batch like this one, compiled if need be; for tracing, or to see whether it fits. */
BY_API by_program *by_trainer_program(by_trainer *t, const by_batch *like);
/* by_program_time for all of a step: micro-batches like this one, and the update. */
BY_API by_status by_trainer_time(by_trainer *t, const by_batch *like, by_trace_fn fn, void *user);

/* ---- a whole run ----------------------------------------------------------------------------- */

/* What a model is asked to do (docs/OBJECTIVES.md). What is 0 or NULL is as usual. */
typedef struct by_objective_choice {
    const char *name; /* "lm", "mlm", "nsp", "sop", "clm", "tlm", "translate", "spans", "infill", "fim",
                         "plm"; NULL: the family's own */
    double
        mask_share; /* of tokens to mask; 0: 0.15, for "infill" 0.3; for "plm" 1/6; for "fim", of documents: 0.5 */
    double mask_span;  /* mean length of the spans that "spans" and "infill" cut out; 0: 3 */
    bool suffix_first; /* "fim": suffix, prefix, middle */
    int mask_copies;   /* 1: the same masks in every epoch; n: n versions in turn; -1: new ones every epoch */
    int mask_words;    /* adjacent words to mask at most; 0: 1, for "sop" 3, for "plm" 5 (pieces) */
    int block;         /* "plm": tokens whose order is random among themselves; 0: a whole part of a row */
    int reuse;         /* "plm": tokens of the first part of a row, which the memory keeps; 0: half a row */
    bool one_way;      /* "plm": no row reads the text from its end */
    bool whole_words;  /* all pieces of a word or none */
    bool parallel;     /* line i of every language is a translation: "tlm" */
    const char *const *languages; /* one for each item of data (and of eval_data), or NULL */
    int language_count;           /* of "translate": 2, from the first to the second */
    /* of "translate", whose data are files of two texts, or pairs of files */
    bool both_directions;        /* each pair also the other way round */
    const char *const *prefixes; /* put before the source: one for each pair of texts; with both directions */
    int prefix_count;            /* two */
    const char *source, *target; /* columns; NULL: the usual ones */
    const char *label_words; /* "negative,positive": what targets 0, 1, ... of tables stand for; or NULL */
} by_objective_choice;

/* What a run reports, for every step that is logged. Fields that do not apply are NaN. */

typedef struct by_report {
    int64_t step, steps;
    double loss, eval_loss, learning_rate, grad_norm, ms, tokens_per_s;
    double next_accuracy;  /* of the second task on held-out text: do two texts follow, or their order */
    double peak_share;     /* of the measured matrix-product rate; NaN when it is unknown */
    double pictures_per_s; /* of runs on pictures, in place of tokens_per_s */
    double
        data_wait; /* share of the time in which the run waited for data; NaN where they are not prepared ahead */
    double seconds; /* since the start of this process's part */
    bool evaluated, saved;
    bool more; /* the reports of later steps follow at once; ms and rates are the mean over all of them */
    const by_metric *metrics; /* of the evaluation, for tasks that have some */
    int n_metrics;
    const by_metric *measures; /* of the step, for runs that know more of it than the loss (alignment) */
    int n_measures;
    const char *note;    /* describes the run that begins, or NULL */
    const char *warning; /* something went wrong that does not end the run, or NULL: nothing else is set then */
} by_report;

typedef struct by_run_spec {
    /* model */
    const char *family; /* "gpt2" */
    by_model_shape shape;
    by_dtype dtype;
    bool stochastic_rounding;       /* bf16 parameters without f32 masters: see by_params_without_masters */
    const by_adapter_spec *adapter; /* with init_from: train this and not the model; NULL: none */
    const char *lora;               /* the adapter in words, for run.json; may be NULL */
    by_dtype weights;               /* how what is not trained is stored: see by_model_spec */
    const char *init_from; /* a model directory to start from instead of fresh values, or NULL; of `shape`
                                 only dropout counts then (negative: the model's own) */
    /* data */
    const char *const *data; /* text files or .bin shards, patterns allowed */
    int data_count;
    const char *const *eval_data; /* text for evaluation, or NULL */
    int eval_count;
    double eval_fraction;         /* of the end of the data, when there is no eval_data */
    const char *tokenizer;        /* "char", "byte", a directory, or what to learn from the data: "bpe:8000",
                                     "unigram:8000", "wordpiece:8000", "word:8000"; NULL: "char" for text */
    const char *target_tokenizer; /* the same for the target of "translate", which then has a vocabulary of
                                     its own, as has the source; NULL: they share one */
    by_objective_choice objective;
    /* steps */
    int batch, seq; /* seq 0: the model's context */
    int batch_tokens; /* of "translate", instead of batch: tokens of a micro-batch per side, with padding; 0: 4096 */
    double label_smoothing;
    double
        scheduled_sampling; /* of encoder-decoders: the share of target tokens that the decoder reads as it predicts
                                  them itself, at the last step; it grows from 0 in proportion to the steps */
    int accumulate;
    int64_t steps; /* in all; 0: from epochs */
    double epochs; /* 0: by the objective and the amount of data (docs/RECIPES.md) */
    by_schedule_spec schedule;
    double
        warmup_share; /* of the run, if the schedule's warm-up is negative; 0: by the objective, negative: none */
    by_optimizer_spec optimizer;
    bool recompute;
    uint64_t seed;
    by_image_training images; /* of families that read pictures */
    /* evaluation, logging, saving; in steps, 0: a sensible default */
    int64_t eval_every, log_every, save_every;
    int64_t eval_batches; /* at most; 0: all of the held-out part; negative: as many as there are steps
                           * between two evaluations, 16 at least, evenly from all of it */
    int keep;             /* newest checkpoints kept, besides best and last; 0: 1 */
    int average;  /* at the end, the mean of this many newest checkpoints goes to out/averaged; 0: none */
    int patience; /* early stopping: evaluations without progress; 0: never */
    int ahead; /* steps started before their losses are read back, at most 64. 0: on a GPU about a second's worth,
                   * on the CPU one. Reports come that late; what is reported does not change */
    const char *out;     /* run folder */
    bool overwrite;      /* start afresh even when there is something to resume */
    const char *command; /* recorded in run.json, may be NULL */
    const char *recipe;  /* recorded too: the name of one whose options are in this spec, or NULL */
    /* a JSON object, recorded there too, from which the command can be repeated; or NULL */
    const char *options;
    bool leaves_model; /* at the end, `out` itself becomes a model directory: the best model, or the last one without
                        * evaluation. Files of another model there are an error at the start */
    /* callbacks, may be NULL */
    void (*report)(void *user, const by_report *r);
    bool no_peak; /* reports leave out peak_share, which takes 1/4 s to measure at the start */
    bool (*cancelled)(void *user); /* polled every step; true saves and stops with BY_ERR_CANCELLED */
    by_trace_fn trace;             /* called for every node of the first step */
    void *user;
} by_run_spec;

typedef struct by_run_result {
    int64_t steps, resumed_from, parameters, trained; /* trained: parameters that are not frozen */
    double loss, eval_loss, best_eval_loss, next_accuracy;
    int64_t best_step;
    int averaged;              /* checkpoints in out/averaged */
    double averaged_eval_loss; /* NaN when there is none */
    double seconds;
    size_t activation_bytes, state_bytes;
    bool stopped_early;
    by_metric metrics[BY_METRICS_MAX]; /* of the best evaluation, for runs on pictures */
    int n_metrics, labels;
    double data_wait;      /* as in by_report, over all steps */
    const char *loss_unit; /* of the losses: "nats per token"; NULL: unknown */
} by_run_result;

/* Published set-ups, as options of `banyan train`: "--model transformer --layers 6 ...". Options that are
 * given beside a recipe win. */
typedef struct by_recipe {
    const char *name, *about, *options;
} by_recipe;
BY_API const by_recipe *by_recipe_at(int i);              /* NULL after the last */
BY_API const by_recipe *by_recipe_find(const char *name); /* NULL with an error that names all */

/* What a family is trained with, from scratch or from the model directory init_from (NULL: from scratch): the spec that `banyan train` starts
 * from. objective NULL: the family's own. Numbers that depend on the data or on the model's width are left to by_train_run. The caller
 * sets data and out, and changes what it likes. */
BY_API by_run_spec by_run_defaults(const char *family, const char *objective, const char *init_from);

/* A run folder lists in owned.json the files that the run wrote. Nothing else in the folder is ever removed
 * or replaced: a foreign file in the way is an error that names it. A run that cannot start leaves nothing
 * behind.
 *
 * Train, or go on with what is in spec->out. The model in out/last afterwards is the same, bit for bit,
 * whether the run was interrupted or not. */
BY_API by_status by_train_run(by_device *d, const by_run_spec *spec, by_run_result *result);

#ifdef __cplusplus
}
#endif
#endif
