/* distill.h - whole runs of distillation: a student learns from a teacher of the same vocabulary. The loss is by_distill_loss (align.h);
 * data, run folders, resuming and logs are those of training and fine-tuning. docs/DISTIL.md. */
#ifndef BANYAN_DISTILL_H
#define BANYAN_DISTILL_H

#include "banyan/align.h"
#include "banyan/finetune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the student is made of: a directory, a family with a shape, or layers of the teacher. The first that is given counts. */
typedef struct by_student {
    const char *model; /* a model directory or run folder */
    const char *family; /* a new model of this shape; vocabulary, and context unless given, are the teacher's */
    by_model_shape shape;
    const int *layers; /* of the teacher, from 0 */
    int layer_count;   /* with layers NULL: this many, evenly (by_layers_even); 0: half of them */
} by_student;

/* What it learns from. */
typedef enum by_distill_kind {
    BY_DISTILL_AUTO,      /* by the teacher's head; VECTORS for a directory with modules.json */
    BY_DISTILL_TEXT,      /* plain text, as by_train_run: language models, masked or not */
    BY_DISTILL_EXAMPLES,  /* labelled examples, as by_finetune_run; the teacher has the head */
    BY_DISTILL_VECTORS,   /* sentences, one a line; the vectors that the teacher makes of them */
    BY_DISTILL_TRANSLATE, /* pairs of texts, as by_train_run: word by word, or with `sequence` */
    BY_DISTILL_KINDS
} by_distill_kind;
/* The name of a kind: "auto", "text", ...; "?" for no kind. */
BY_API const char *by_distill_name(by_distill_kind kind);
/* Finds a kind by its name. False, without writing, if there is none of this name or it is NULL. */
BY_API bool by_distill_find(const char *name, by_distill_kind *out);

/* Sets the weights of a published recipe: "distilbert", "tinybert", "minilm". kind: what is learned, not AUTO. An unknown name is
 * BY_ERR_ARGUMENT. */
BY_API by_status by_distill_recipe(const char *name, by_distill_kind kind, by_distill_spec *terms);

typedef struct by_distill_run_spec {
    const char *teacher; /* a model directory or run folder */
    by_student student;
    by_distill_kind kind;
    const char *recipe; /* weights of the terms; those that `terms` has are taken instead. NULL: none */
    /* teacher, student and projection are set by the run; 0: the usual (docs/DISTIL.md); negative: none */
    by_distill_spec terms;
    int map_count;       /* of terms.map; 0 without it */
    bool soft_at_masked; /* masked language models: compare distributions at masked positions alone */
    bool sequence;       /* TRANSLATE: the teacher's translations, searched once, are the targets */
    int beams;           /* of that search; 0: those of the teacher's directory, otherwise 5 */
    bool store; /* keep the teacher's logits in out/teacher instead of computing them again in every epoch */
    int store_top; /* of each position only this many, and the sum of the others; 0: all */
    by_dtype dtype;
    bool stochastic_rounding; /* as in by_run_spec */
    double dropout;           /* of the student; negative: its own */
    /* data */
    const char *const *data; /* EXAMPLES: one file */
    int data_count;
    const char *const *eval_data; /* NULL: eval_fraction of the data; EXAMPLES: no evaluation */
    int eval_count;
    double eval_fraction;
    by_examples_spec reading;      /* EXAMPLES; the kind follows from the teacher's head */
    by_row_spec work;              /* EXAMPLES, VECTORS; limit: tokens of a row, of all kinds */
    by_objective_choice objective; /* TEXT, TRANSLATE; name NULL: by the teacher's head */
    double label_smoothing;
    /* steps */
    int batch, accumulate; /* batch 0: 32 */
    int batch_tokens;      /* TRANSLATE */
    int64_t steps;         /* 0: from epochs */
    double epochs;         /* 0: as by_train_run and by_finetune_run choose; VECTORS: 3 */
    by_schedule_spec schedule;
    double warmup_share; /* where schedule.warmup is negative */
    by_optimizer_spec optimizer;
    bool recompute;
    uint64_t seed;
    int64_t eval_every, log_every, save_every; /* in steps; 0: as usual */
    int64_t eval_batches;                      /* TEXT, TRANSLATE: as in by_run_spec */
    int keep, patience, ahead;
    const char *out; /* becomes a model directory; run.json, metrics.jsonl and checkpoints are in it too */
    bool overwrite;
    const char *command, *options; /* see by_run_spec */
    const char *predictions;       /* EXAMPLES: see by_finetune_spec */
    void (*report)(void *user, const by_report *r);
    void (*wrote)(void *user, const by_text_result *so_far,
                  int64_t total); /* progress of `sequence`; NULL: none */
    bool (*cancelled)(void *user);
    void *user;
} by_distill_run_spec;

typedef struct by_distill_result {
    by_distill_kind kind;
    int64_t steps, resumed_from, best_step;
    int64_t parameters, teacher_parameters;
    int layers, teacher_layers;
    double loss, seconds; /* of the training: the sum of the terms */
    size_t activation_bytes, state_bytes;
    bool evaluated, stopped_early;
    /* of the student that is kept: EXAMPLES all of it, others the loss; VECTORS: metrics */
    by_task_result best;
    const char *loss_unit; /* of best.loss */
} by_distill_result;

/* The spec that `banyan distill` starts from. The caller sets teacher, data and out, and changes what it likes. */
BY_API by_distill_run_spec by_distill_defaults(void);
/* Distil, or go on with what is in spec->out. Afterwards spec->out is a model directory: the best student by the evaluation, else the
 * last. The error of vocabularies that differ names the first difference. */
BY_API by_status by_distill_run(by_device *d, const by_distill_run_spec *spec, by_distill_result *result);

#ifdef __cplusplus
}
#endif
#endif
