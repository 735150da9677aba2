/* verify.h - checks a model against recorded reference results, tensor by tensor. */
#ifndef BANYAN_VERIFY_H
#define BANYAN_VERIFY_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the error of a tensor is measured. a is the result computed here, b the reference. */
typedef enum by_measure {
    BY_MEASURE_MAX, /* largest |a - b| / max(1, |b|) over all elements */
    /* |a - b| / |b| (2-norms). For a gradient, |b| is at least a small fraction of the norm of the whole
     * gradient. */
    BY_MEASURE_NORM,
    BY_MEASURE_NMSE,     /* the square of BY_MEASURE_NORM */
    BY_MEASURE_DIFFERENT /* number of unequal elements */
} by_measure;
BY_API const char *by_measure_name(by_measure m); /* "max", "norm", "nmse", "different" */

typedef enum by_check_verdict { BY_VERDICT_OK, BY_VERDICT_FAILED, BY_VERDICT_NOT_RUN } by_check_verdict;

/* The result for one reference tensor. Strings are valid until the callback returns. */
typedef struct by_verify_line {
    const char *name;
    by_check_verdict verdict;
    by_measure measure;
    double error, bound; /* NaN: nothing was measured, see note */
    const char *note;    /* explanation, or NULL */
} by_verify_line;

typedef struct by_verify_spec {
    by_dtype dtype; /* f64 uses the bounds of f32; bf16 and f16 use wider ones */
    void (*line)(void *user, const by_verify_line *line); /* may be NULL */
    void *user;
} by_verify_spec;

typedef struct by_verify_result {
    int tensors; /* number compared: ok or failed */
    int failed, not_run;
} by_verify_result;

/* Runs the case in dir, which consists of config.json, model.safetensors, case.json and
 * reference.safetensors. case.json holds the class, the settings of generation, or "train", the settings of
 * training steps. reference.safetensors holds the inputs and the expected results:
 *
 *   input.{input_ids,attention_mask,token_type_ids,position_ids,labels}    inputs of the model
 *   output.{logits,loss,hidden_states.N,attentions.N}                      expected outputs
 *   grad.PARAMETER                                                         expected gradients
 *   generate.SETTINGS              expected tokens; prompts are prefixes of the rows of input_ids, unmasked
 *   stepN.{input_ids,labels}       training: batch of step N
 *   losses, grad_norms             training: expected loss and gradient norm of each step
 *   final.PARAMETER                training: expected parameters after the last step
 *
 * Conventions follow the transformers library: the labels of a language model are the tokens themselves, -100
 * where they are ignored. Dropout is off. tools/record_cases.py records cases; tests/data/verify has three.
 * Every reference tensor that is not an input is reported on one line; one that cannot be computed counts as
 * failed. BY_OK means that something was compared: check result->failed. */
BY_API by_status by_verify(by_device *d, const char *dir, const by_verify_spec *spec,
                           by_verify_result *result);

#ifdef __cplusplus
}
#endif
#endif
