/* tuning.h - shared by the files of runs that learn from given answers (tuning_run.c): supervised tuning,
 * preferences, reward models. */
#ifndef BY_ALIGN_TUNING_H
#define BY_ALIGN_TUNING_H

#include "banyan/align_run.h"
#include "data/instructions.h"

/* ---- losses (tuning_loss.c) ------------------------------------------------------------------- */

typedef struct align_objective {
    by_align_method method;
    const by_model *model;         /* for evaluations of supervised tuning */
    by_likelihood_spec likelihood; /* for dynamic supervised tuning */
    by_dpo_spec dpo;
    by_kto_spec kto;
    by_cpo_spec cpo;
    by_reward_spec reward;
} align_objective;
align_objective align_objective_of(const by_align_spec *s);
/* The loss and its spec, for training (where NULL is the model's own loss) or for evaluations. */
by_loss_fn align_objective_loss(align_objective *o, bool evaluation, void **user);

/* Checks the losses of DPO. */
by_status align_check_dpo(const by_align_spec *s);
bool align_has_loss(const by_align_spec *s, by_dpo_kind kind);
/* Appends "sigmoid", or "0.8 sigmoid, 0.2 bco_pair". */
void align_describe_losses(const by_align_spec *s, base_buf *out);

bool align_needs_reference(const by_align_spec *s);
bool align_needs_mismatched(const by_align_spec *s);
data_instruction_kind align_data_kind(by_align_method method);

/* ---- examples and their batches (tuning_batch.c) ----------------------------------------------- */

/* The examples of training or of evaluation, with their batch. */
typedef struct align_part {
    data_instructions list, mismatched; /* mismatched: KTO only */
    /* Log-probabilities under the reference by sequence; NULL: not computed in advance. */
    float *ref_logps, *ref_mismatched;
    /* the batch */
    data_instruction_batch batch, other;
    int *rows;
    int32_t *all_targets;
    float *ref, *other_ref, *label, *margin, kl;
    size_t room, cells;
} align_part;
void align_part_close(align_part *p); /* closing the zero state is a no-op */

/* Rows that an example has in a batch: 2 for pairs. */
int align_rows_each(const align_part *p);
/* The weight of these rows in the mean of a step: predicted tokens, or rows. */
double align_part_weight(const align_part *p, by_align_method method, const int *rows, int count);
/* Makes p->batch from rows, and with KTO p->other. `rows` lists the sequences of a pair side by side; in the
 * batch the chosen answers come first. Fills the arrays of reference log-probabilities if they are known. */
by_status align_part_batch(align_part *p, const by_align_spec *s, const int *rows, int count);
/* Adds the arrays that the losses read to the batch. */
void align_part_put(align_part *p, const by_align_spec *s);
/* Makes the batch of the longest rows. */
by_status align_part_largest(align_part *p, const by_align_spec *s, int examples);

/* ---- metrics (tuning_measure.c) ----------------------------------------------------------------- */

typedef enum align_fold { ALIGN_MEAN, ALIGN_LEAST, ALIGN_MOST } align_fold;
typedef struct align_tally {
    struct {
        const char *name; /* not copied */
        align_fold fold;
        double value, weight;
    } list[BY_METRICS_MAX];
    int count;
} align_tally;
void align_tally_add(align_tally *m, const char *name, align_fold fold, double value, double weight);
int align_tally_read(const align_tally *m, by_metric out[BY_METRICS_MAX]);
/* Adds up the outputs of a pass over the batch of p. */
by_status align_tally_pass(align_tally *m, const align_part *p, const by_align_spec *s, by_pass *pass);

/* ---- log-probabilities without gradients (tuning_reference.c) ------------------------------------- */

typedef struct align_reference {
    by_model *own;   /* a separate model, or NULL */
    by_model *model; /* the model that is run */
    bool bare;       /* without its adapter */
    by_passes *passes;
} align_reference;
/* memory: as in by_pass_spec. */
by_status align_reference_make(align_reference *r, by_model *m, bool bare, by_memory **memory);
void align_reference_free(align_reference *r); /* freeing the zero state is a no-op */
/* Computes the log-probabilities of the answers of a batch, out[0 ... rows - 1]. */
by_status align_reference_run(align_reference *r, const by_batch *b, float *out);

/* Log-probabilities of all sequences of both parts (eval may be NULL). Reads them from the file if it was
 * written for the same tokens. Otherwise computes them, `rows` at a time, and writes the file. cancelled: see
 * by_align_spec. */
typedef struct align_cache {
    const char *path;
    align_part *train, *eval;
    int rows;
    bool (*cancelled)(void *user);
    void *user;
} align_cache;
/* Returns false if the file does not match. */
bool align_cache_read(const align_cache *c);
by_status align_cache_make(const align_cache *c, align_reference *r);

#endif
