/* distill.h - distillation runs: a student learns from a teacher with the same vocabulary. The loss is
 * by_distill_loss (align.h); data, run folders, resuming and logs are those of training and fine-tuning. See
 * docs/DISTIL.md. */
#ifndef BANYAN_DISTILL_H
#define BANYAN_DISTILL_H

#include "banyan/align.h"
#include "banyan/finetune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The initial student: a directory, a family with a shape, or layers of the teacher. The first one given is
 * used. */
typedef struct by_student {
    const char *model; /* a model directory or run folder */
    /* a new model of `shape`, with the teacher's vocabulary, and its context unless given */
    const char *family;
    by_model_shape shape;
    const int *layers; /* of the teacher, from 0 */
    int layer_count;   /* with layers NULL: number of layers, chosen by by_layers_even; 0: half of them */
} by_student;

/* The kind of training data. */
typedef enum by_distill_kind {
    BY_DISTILL_AUTO,      /* from the teacher's head; VECTORS for a directory with modules.json */
    BY_DISTILL_TEXT,      /* plain text, as by_train_run: language models, masked or not */
    BY_DISTILL_EXAMPLES,  /* labelled examples, as by_finetune_run; the teacher has the head */
    BY_DISTILL_VECTORS,   /* sentences, one per line, and the teacher's embeddings of them */
    BY_DISTILL_TRANSLATE, /* pairs of texts, as by_train_run: word-level, or with `sequence` sequence-level */
    BY_DISTILL_KINDS
} by_distill_kind;
/* The name of a kind: "auto", "text", ...; "?" for an invalid kind. */
BY_API const char *by_distill_name(by_distill_kind kind);
/* Finds a kind by its name. Returns false, without writing, for an unknown name or NULL. */
BY_API bool by_distill_find(const char *name, by_distill_kind *out);

/* Sets the weights of a published recipe: "distilbert", "tinybert", "minilm". kind must not be AUTO. An
 * unknown name is BY_ERR_ARGUMENT. */
BY_API by_status by_distill_recipe(const char *name, by_distill_kind kind, by_distill_spec *terms);

typedef struct by_distill_run_spec {
    const char *teacher; /* a model directory or run folder */
    by_student student;
    by_distill_kind kind;
    const char *recipe; /* weights of the terms, overridden by those in `terms`. NULL: none */
    /* teacher, student and projection are set by the run; 0: the default (docs/DISTIL.md); negative: none */
    by_distill_spec terms;
    int map_count;       /* of terms.map; 0 without it */
    bool soft_at_masked; /* masked language models: compare distributions only at masked positions */
    bool sequence;       /* TRANSLATE: train on the teacher's translations, generated once */
    int beams;           /* of that generation; 0: as in the teacher's directory, otherwise 5 */
    bool store;    /* store the teacher's logits in out/teacher instead of recomputing them in every epoch */
    int store_top; /* store only this many logits per position, and the sum of the others; 0: all */
    by_dtype dtype;
    bool stochastic_rounding; /* as in by_run_spec */
    double dropout;           /* of the student; negative: as in its configuration */
    /* data */
    const char *const *data; /* EXAMPLES: one file */
    int data_count;
    const char *const *eval_data; /* NULL: eval_fraction of the data; EXAMPLES: no evaluation */
    int eval_count;
    double eval_fraction;
    by_examples_spec reading;      /* EXAMPLES; the kind follows from the teacher's head */
    by_row_spec work;              /* EXAMPLES, VECTORS; limit: maximum tokens per row, for all kinds */
    by_objective_choice objective; /* TEXT, TRANSLATE; name NULL: by the teacher's head */
    double label_smoothing;
    /* steps */
    int batch, accumulate; /* batch 0: 32 */
    int batch_tokens;      /* TRANSLATE */
    int64_t steps;         /* 0: from epochs */
    double epochs;         /* 0: as chosen by by_train_run and by_finetune_run; VECTORS: 3 */
    by_schedule_spec schedule;
    double warmup_share; /* used if schedule.warmup is negative */
    by_optimizer_spec optimizer;
    bool recompute;
    uint64_t seed;
    int64_t eval_every, log_every, save_every; /* in steps; 0: the default */
    int64_t eval_batches;                      /* TEXT, TRANSLATE: as in by_run_spec */
    int keep, patience, ahead;
    const char *out; /* becomes a model directory, with run.json, metrics.jsonl and checkpoints */
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
    double loss, seconds; /* training loss: the sum of the terms */
    size_t activation_bytes, state_bytes;
    bool evaluated, stopped_early;
    /* the student that is kept. EXAMPLES: all members; VECTORS: loss and metrics; otherwise the loss */
    by_task_result best;
    const char *loss_unit; /* unit of best.loss */
} by_distill_result;

/* Returns the default spec, as `banyan distill` uses it. The caller sets teacher, data and out, and overrides
 * other members as needed. */
BY_API by_distill_run_spec by_distill_defaults(void);
/* Distils a student, or resumes the run in spec->out. Afterwards spec->out is a model directory with the best
 * student by the evaluation, otherwise the last. If the vocabularies differ, the error names the first
 * difference. */
BY_API by_status by_distill_run(by_device *d, const by_distill_run_spec *spec, by_distill_result *result);

#ifdef __cplusplus
}
#endif
#endif
