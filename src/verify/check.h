/* check.h - internals of a verification (banyan/verify.h): one recorded case and helpers shared by its
 * parts. */
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
    /* inputs of the model; NULL if absent from the case */
    int batch, seq, source_seq;
    int choices;                                   /* rows per group (multiple choice); 0: not grouped */
    int32_t *source, *source_mask;                 /* (B, S) */
    int32_t *tokens, *segments, *mask, *positions; /* (B, T) */
    int32_t *targets, *second;                     /* as in by_batch */
    float *numbers;
    by_batch extra; /* further arrays of the batch, on the heap: verify_take_extra */
    by_pass *forward, *backward;
    by_stream *stream, *backward_stream; /* of the two passes, for models with a memory; otherwise NULL */
    double whole;                        /* norm of the whole reference gradient */
    /* training */
    float *losses, *norms; /* (steps) */
    int steps;
    double moment; /* largest second moment after training */
} verify_case;

static inline bool verify_has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* ---- helpers (check.c) ----------------------------------------------------------------------- */

/* Report the result for a tensor of the reference: the measured error, or why it was not measured. */
void verify_say(verify_case *c, const by_weight *e, const verify_rule *rule, double error, const char *note);
void verify_note(verify_case *c, const by_weight *e, by_check_verdict verdict, const char *note);

/* Compares a result with an entry of the reference and reports it. Elements where `skip` (may be NULL) is
 * true are ignored. */
by_status verify_compare(verify_case *c, const by_weight *e, verify_subject subject, int rank,
                         const int64_t *dim, const float *here, const bool *skip);

/* Returns NULL if the entry is missing. */
const by_weight *verify_find(const verify_case *c, const char *prefix, const char *name);
size_t verify_elements(const by_weight *e);
/* Returns the values converted to `type`, on the heap. Returns NULL if allocation fails. */
void *verify_values(const by_weight *e, by_dtype type);
bool verify_is_wide(const verify_case *c); /* true for f32 and f64 */

/* Returns a slot of parameter i as floats, on the heap. Returns NULL on failure. */
float *verify_parameter(const by_params *p, int i, by_slot slot);
size_t verify_parameter_size(const by_params *p, int i);
/* Finds a parameter by its name in the reference: of the adapter, if the case has one, else of the model.
 * *list gets where it is. Returns -1 if there is none. */
int verify_locate(const verify_case *c, const char *name, const by_params **list);
/* Reports a missing parameter (negative index) or a missing gradient. Returns true if it reported one. */
bool verify_missing(verify_case *c, const by_weight *e, int parameter, bool there);

/* Reads prefix + name as (rows, cols) i32, or (rows) if cols is 0. *out stays NULL if there is no such
 * entry. */
by_status verify_ids(const verify_case *c, const char *prefix, const char *name, int64_t rows, int64_t cols,
                     int32_t **out);
/* Sets c->batch and c->seq from prefix + "input_ids". */
by_status verify_shape(verify_case *c, const char *prefix);
/* Fails if an entry that starts with `prefix` is not in `known` and is no array of the model: an ignored
 * input would change the result. */
by_status verify_known(const verify_case *c, const char *prefix, const char *const *known);
/* Makes arrays of c->extra from the entries prefix + NAME that are not in `known`; prefix + NAME.0, NAME.1,
 * ... become one array NAME with an axis more. */
by_status verify_take_extra(verify_case *c, const char *prefix, const char *const *known);
/* Reads prefix + name as (rows) or (rows, 1) floats. */
by_status verify_numbers(const verify_case *c, const char *prefix, const char *name, int64_t rows,
                         float **out);
/* Sets c->whole, the norm of all reference gradients; *any: whether there are some. */
by_status verify_whole(verify_case *c, bool *any);
static inline bool verify_has_targets(const verify_case *c)
{
    return c->targets || c->numbers;
}
/* Reads source and target of an encoder-decoder from prefix + "input_ids" and "labels", replacing the current
 * ones. c->seq becomes the length of the labels. */
by_status verify_pair(verify_case *c, const char *prefix);
/* Shifts the labels of a language model, which are the tokens themselves: position t predicts label t + 1,
 * and the last position predicts nothing. Other labels are unchanged. */
void verify_shift(const verify_case *c, int32_t *labels);

/* ---- models with a memory (check_stream.c) --------------------------------------------------- */

bool verify_is_memory(const verify_case *c, const char *name); /* "mems.N" */
/* Whether the case continues a state: it has memories, or the model carries a state that is never empty. A
 * reference without memories has no entries for them. */
bool verify_streams(const verify_case *c);
/* Fills the memories of a stream with the recorded inputs. */
by_status verify_fill_stream(const verify_case *c, const by_stream *s);
by_status verify_token_losses(verify_case *c, const by_weight *e);

/* ---- the parts: run, then compare each entry (check_pass.c, check_generate.c, check_train.c) --- */

by_status verify_passes(verify_case *c);
/* The parts of verify_passes: read the inputs; run a pass over them, replacing an earlier one. */
by_status verify_inputs(verify_case *c);
by_status verify_forward(verify_case *c);
by_status verify_backward(verify_case *c);
/* Compares the output called `name`. */
by_status verify_output(verify_case *c, const by_weight *e, const char *name);
by_status verify_gradient(verify_case *c, const by_weight *e);
by_status verify_generation(verify_case *c, const by_weight *e);
by_status verify_training(verify_case *c, const cJSON *settings);
bool verify_is_batch(const verify_case *c, const char *name); /* "stepN.", an input of step N */
by_status verify_step_values(verify_case *c, const by_weight *e, const float *here);
by_status verify_trained(verify_case *c, const by_weight *e);

/* ---- cases that are a computation and not a model (check_graph.c) ------------------------------ */

typedef struct verify_operand {
    int parameter;
    const by_weight *value;
} verify_operand;

typedef struct verify_graph {
    by_params *params;   /* the float inputs, and weights */
    by_weights *weights; /* where those are; NULL: there are none */
    by_graph *graph;     /* until it is compiled */
    by_program *program;
    by_tensor *loss;
    verify_operand operands[16];
    int n_operands;
    const char *names[16]; /* of the outputs */
    by_tensor *outputs[16];
    int n_outputs;
} verify_graph;
by_status verify_graph_open(verify_case *c, verify_graph *v);
void verify_graph_close(verify_graph *v);
/* The float tensor input.NAME of the reference, as a leaf with a gradient. */
by_tensor *verify_graph_operand(verify_case *c, verify_graph *v, const char *name);
/* The same as another leaf: its gradient is compared with grad.LEAF. */
by_tensor *verify_graph_operand_as(verify_case *c, verify_graph *v, const char *name, const char *leaf);
/* The tensor that is compared with output.NAME. */
void verify_graph_output(verify_graph *v, const char *name, by_tensor *t);
by_status verify_graph_compile(verify_graph *v, by_tensor *loss);
/* Runs the program and compares every output.* and grad.* of the reference: grad.NAME is that of the weight
 * NAME, or of the input of that name. */
by_status verify_graph_compare(verify_case *c, verify_graph *v);

by_status verify_ngram(verify_case *c);            /* check_ngram.c: no model, no reference.safetensors */
by_status verify_chat(verify_case *c);             /* check_chat.c: no model, no reference.safetensors */
by_status verify_continuous_cache(verify_case *c); /* check_cache.c */
by_status verify_recurrent(verify_case *c);        /* check_recurrent.c */
by_status verify_additive_attention(verify_case *c);
by_status verify_losses(verify_case *c);    /* check_losses.c */
by_status verify_alignment(verify_case *c); /* check_align.c: losses of preferences, policies, students */
by_status verify_tune(verify_case *c);      /* check_tune.c: a model and an adapter */
by_status verify_images(verify_case *c);    /* check_images.c: no model */

#endif
