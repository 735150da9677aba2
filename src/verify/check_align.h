/* check_align.h - cases of kind "align": losses of preferences, policies and students, with their
 * gradients. */
#ifndef BY_VERIFY_CHECK_ALIGN_H
#define BY_VERIFY_CHECK_ALIGN_H

#include "banyan/align.h"
#include "verify/check.h"

enum { VERIFY_ALIGN_ARRAYS = 64 };
typedef struct verify_align {
    verify_case *c;
    by_model *model, *other;           /* trained model; its reference, critic or teacher, or NULL */
    bool *seen;                        /* by entry of the reference: it was compared */
    void *arrays[VERIFY_ALIGN_ARRAYS]; /* heap memory, freed at the end */
    int n_arrays;
} verify_align;

/* The entry input.NAME as i32 or as floats, with *rows and *cols unless they are NULL. NULL with an error if
 * it is not there. */
int32_t *verify_align_ids(verify_align *a, const char *name, int *rows, int *cols);
float *verify_align_floats(verify_align *a, const char *name);
/* Memory of the case. */
void *verify_align_room(verify_align *a, size_t count, size_t size);
/* Frees the arrays of a variant: all but the first `kept`. */
void verify_align_drop(verify_align *a, int kept);
/* A number from the settings of a variant or of the whole case, or the fallback. */
double verify_align_number(const verify_align *a, const char *variant, const char *key, double fallback);
/* A string from a variant's settings, or "". */
const char *verify_align_word(const verify_align *a, const char *variant, const char *key);

/* Compares VARIANT.NAME, if it is recorded, with values of its shape, or with one number. */
by_status verify_align_values(verify_align *a, const char *variant, const char *name, const float *values);
by_status verify_align_number_is(verify_align *a, const char *variant, const char *name, double value);
/* Whether gradients VARIANT.grad.* are recorded; compares them with those of the model, times a factor. part:
 * the text between "grad." and the parameter's name. */
bool verify_align_has_grads(const verify_align *a, const char *variant);
by_status verify_align_grads(verify_align *a, const char *variant, const char *part, const by_model *m);

/* Runs one pass with a loss; with gradients if those of the variant are recorded. NULL on failure. */
by_pass *verify_align_pass(verify_align *a, by_model *m, const by_batch *b, by_loss_fn loss, const void *spec,
                           bool gradients);
/* An output of a pass as floats of the case, and its loss. */
float *verify_align_output(verify_align *a, by_pass *p, const char *name);
by_status verify_align_loss(verify_align *a, by_pass *p, double *out);

/* Tokens and the answers in them, as a batch: position t predicts token t + 1 where completion[t + 1] is not
 * 0. */
typedef struct verify_texts {
    int rows, cols;
    const int32_t *tokens, *mask, *completion;
    int32_t *targets; /* set by verify_align_batch */
} verify_texts;
by_status verify_align_batch(verify_align *a, verify_texts *t, by_batch *out);
/* Summed log-probabilities of the answers. */
by_status verify_align_logps(verify_align *a, by_model *m, const by_batch *b, float **out);

by_status verify_sft(verify_align *a); /* check_preferences.c, as are those up to verify_reward */
by_status verify_dpo(verify_align *a);
by_status verify_kto(verify_align *a);
by_status verify_cpo(verify_align *a);
by_status verify_reward(verify_align *a);
by_status verify_grpo(verify_align *a); /* check_policies.c */
by_status verify_rloo(verify_align *a);
by_status verify_ppo(verify_align *a);
by_status verify_distil(verify_align *a); /* check_distil.c */

#endif
