/* check.h - the inside of a verification (banyan/verify.h): one recorded case, and what its parts share. */
#ifndef BY_TRAIN_CHECK_H
#define BY_TRAIN_CHECK_H

#include <cjson/cJSON.h>

#include "banyan/generate.h"
#include "banyan/train.h"
#include "io/weights.h"
#include "train/measure.h"

typedef struct by_check {
    by_device *device;
    const by_verify_spec *spec;
    const char *dir;
    by_verify_result *result;
    cJSON *settings; /* case.json */
    by_weights *reference;
    by_model *model;
    by_generator *generator;
    /* what the model is given; NULL where the case has none */
    int batch, seq, source_seq;
    int choices;                                   /* rows that belong together; 0: none do */
    int32_t *source, *source_mask;                 /* (B, S) */
    int32_t *tokens, *segments, *mask, *positions; /* (B, T) */
    int32_t *targets, *second;                     /* as by_batch has them */
    float *numbers;
    by_pass *forward, *backward;
    double whole; /* norm of the reference's whole gradient */
    /* training */
    float *losses, *norms; /* (steps) */
    int steps;
    double moment; /* the largest second moment in the end */
} by_check;

static inline bool by_has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ---- what the parts share (check.c) ---------------------------------------------------------- */

/* Say how a tensor of the reference came out: measured, or why it was not. */
void by_check_say(by_check *c, const by_weight *e, const by_rule *rule, double error, const char *note);
void by_check_note(by_check *c, const by_weight *e, by_check_verdict verdict, const char *note);

/* Compare what was computed here with an entry of the reference, and say how it went. Elements where `skip`
 * (may be NULL) is true do not count. */
by_status by_check_compare(by_check *c, const by_weight *e, by_subject subject, int rank, const int64_t *dim,
                           const float *here, const bool *skip);

const by_weight *by_check_find(const by_check *c, const char *prefix,
                               const char *name); /* NULL when there is none */
size_t by_check_elements(const by_weight *e);
void *by_check_values(const by_weight *e,
                      by_dtype type);     /* as that type, on the heap; NULL when memory is out */
bool by_check_is_wide(const by_check *c); /* f32 or f64 */

/* A slot of parameter i as floats, on the heap; NULL on failure. */
float *by_check_parameter(const by_params *p, int i, by_slot slot);
size_t by_check_parameter_size(const by_params *p, int i);
/* There is no such parameter (negative), or no gradient of it: true after saying so. */
bool by_check_missing(by_check *c, const by_weight *e, int parameter, bool there);

/* prefix + name as (rows, cols) i32, or as (rows) when cols is 0; *out stays NULL when there is none. */
by_status by_check_ids(const by_check *c, const char *prefix, const char *name, int64_t rows, int64_t cols,
                       int32_t **out);
/* c->batch and c->seq from prefix + "input_ids". */
by_status by_check_shape(by_check *c, const char *prefix);
/* Everything that begins with `prefix` must be one of `known`: what is left out changes the result. */
by_status by_check_known(const by_check *c, const char *prefix, const char *const *known);
/* prefix + name as (rows) or (rows, 1) floats. */
by_status by_check_numbers(const by_check *c, const char *prefix, const char *name, int64_t rows,
                           float **out);
static inline bool by_check_has_targets(const by_check *c)
{
    return c->targets || c->numbers;
}
/* The two texts of an encoder-decoder, from prefix + "input_ids" and "labels"; c->seq becomes that of the
 * labels. In the place of what was there. */
by_status by_check_pair(by_check *c, const char *prefix);
/* Labels of a language model are the tokens themselves: position t predicts label t + 1, and the last one
 * nothing. Other labels stay where they are. */
void by_check_shift(const by_check *c, int32_t *labels);

/* ---- the parts: run, then compare entry by entry (check_pass.c, check_generate.c, check_train.c) --- */

by_status by_check_passes(by_check *c);
by_status by_check_output(by_check *c, const by_weight *e);
by_status by_check_gradient(by_check *c, const by_weight *e);
by_status by_check_generation(by_check *c, const by_weight *e);
by_status by_check_training(by_check *c, const cJSON *settings);
by_status by_check_course(by_check *c, const by_weight *e, const float *here);
by_status by_check_trained(by_check *c, const by_weight *e);

#endif
