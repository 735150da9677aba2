/* check.h - the inside of a verification (banyan/verify.h): one recorded case, and what its parts share. */
#ifndef BY_VERIFY_CHECK_H
#define BY_VERIFY_CHECK_H

#include <cjson/cJSON.h>

#include "banyan/generate.h"
#include "banyan/train.h"
#include "io/weights.h"
#include "verify/measure.h"

typedef struct verify_case {
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
} verify_case;

static inline bool verify_has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ---- what the parts share (check.c) ---------------------------------------------------------- */

/* Say how a tensor of the reference came out: measured, or why it was not. */
void verify_say(verify_case *c, const by_weight *e, const verify_rule *rule, double error, const char *note);
void verify_note(verify_case *c, const by_weight *e, by_check_verdict verdict, const char *note);

/* Compare what was computed here with an entry of the reference, and say how it went. Elements where `skip`
 * (may be NULL) is true do not count. */
by_status verify_compare(verify_case *c, const by_weight *e, verify_subject subject, int rank,
                         const int64_t *dim, const float *here, const bool *skip);

const by_weight *verify_find(const verify_case *c, const char *prefix,
                             const char *name); /* NULL when there is none */
size_t verify_elements(const by_weight *e);
void *verify_values(const by_weight *e,
                    by_dtype type);        /* as that type, on the heap; NULL when memory is out */
bool verify_is_wide(const verify_case *c); /* f32 or f64 */

/* A slot of parameter i as floats, on the heap; NULL on failure. */
float *verify_parameter(const by_params *p, int i, by_slot slot);
size_t verify_parameter_size(const by_params *p, int i);
/* There is no such parameter (negative), or no gradient of it: true after saying so. */
bool verify_missing(verify_case *c, const by_weight *e, int parameter, bool there);

/* prefix + name as (rows, cols) i32, or as (rows) when cols is 0; *out stays NULL when there is none. */
by_status verify_ids(const verify_case *c, const char *prefix, const char *name, int64_t rows, int64_t cols,
                     int32_t **out);
/* c->batch and c->seq from prefix + "input_ids". */
by_status verify_shape(verify_case *c, const char *prefix);
/* Everything that begins with `prefix` must be one of `known`: what is left out changes the result. */
by_status verify_known(const verify_case *c, const char *prefix, const char *const *known);
/* prefix + name as (rows) or (rows, 1) floats. */
by_status verify_numbers(const verify_case *c, const char *prefix, const char *name, int64_t rows,
                         float **out);
static inline bool verify_has_targets(const verify_case *c)
{
    return c->targets || c->numbers;
}
/* The two texts of an encoder-decoder, from prefix + "input_ids" and "labels"; c->seq becomes that of the
 * labels. In the place of what was there. */
by_status verify_pair(verify_case *c, const char *prefix);
/* Labels of a language model are the tokens themselves: position t predicts label t + 1, and the last one
 * nothing. Other labels stay where they are. */
void verify_shift(const verify_case *c, int32_t *labels);

/* ---- the parts: run, then compare entry by entry (check_pass.c, check_generate.c, check_train.c) --- */

by_status verify_passes(verify_case *c);
by_status verify_output(verify_case *c, const by_weight *e);
by_status verify_gradient(verify_case *c, const by_weight *e);
by_status verify_generation(verify_case *c, const by_weight *e);
by_status verify_training(verify_case *c, const cJSON *settings);
by_status verify_course(verify_case *c, const by_weight *e, const float *here);
by_status verify_trained(verify_case *c, const by_weight *e);

#endif
