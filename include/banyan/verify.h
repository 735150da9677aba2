/* verify.h - is a model computed here as it was computed elsewhere? Runs a recorded case and compares number
 * by number. */
#ifndef BANYAN_VERIFY_H
#define BANYAN_VERIFY_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the error of a tensor is measured; a is what was computed here, b the reference. */
typedef enum by_measure {
    BY_MEASURE_MAX,      /* the largest |a - b| / max(1, |b|) of all elements */
    BY_MEASURE_NORM,     /* |a - b| / |b|, 2-norms; for a gradient |b| counts as a small share of the whole
                            gradient's at least */
    BY_MEASURE_NMSE,     /* the same squared */
    BY_MEASURE_DIFFERENT /* how many elements are not equal */
} by_measure;
BY_API const char *by_measure_name(by_measure m); /* "max", "norm", "nmse", "different" */

typedef enum by_check_verdict { BY_VERDICT_OK, BY_VERDICT_FAILED, BY_VERDICT_NOT_RUN } by_check_verdict;

/* What was found out about one tensor of the reference. Strings live until the callback returns. */
typedef struct by_verify_line {
    const char *name;
    by_check_verdict verdict;
    by_measure measure;
    double error, bound; /* NaN: there was nothing to measure, note says why */
    const char *note;    /* NULL, or what is there to say */
} by_verify_line;

typedef struct by_verify_spec {
    by_dtype dtype; /* bounds are those of f32 also for f64; they are wider for bf16 and f16 */
    void (*line)(void *user, const by_verify_line *line); /* may be NULL */
    void *user;
} by_verify_spec;

typedef struct by_verify_result {
    int tensors; /* compared: ok or failed */
    int failed, not_run;
} by_verify_result;

/* Run the case in dir: config.json, model.safetensors, case.json (class; settings of generation; or "train",
 * the settings of training steps) and reference.safetensors. In the latter are the inputs,
 *
 *   input.{input_ids,attention_mask,token_type_ids,position_ids,labels}
 *
 * and the expected results,
 *
 *   output.{logits,loss,hidden_states.N,attentions.N}, grad.PARAMETER,
 *   generate.SETTINGS (from the beginnings of input_ids, without a mask)
 *
 * or, for training, the batches stepN.{input_ids,labels} and their results losses, grad_norms,
 * final.PARAMETER. The conventions are those of the transformers library: labels of a language model are the
 * tokens themselves, -100 where they do not count. Dropout is off. tools/record_cases.py records such cases;
 * tests/data/verify has three. Every tensor of the reference is an input or gets one line; one that cannot be
 * computed here counts as failed. BY_OK means that the comparison took place: look at result->failed. */
BY_API by_status by_verify(by_device *d, const char *dir, const by_verify_spec *spec,
                           by_verify_result *result);

#ifdef __cplusplus
}
#endif
#endif
