/* pass.h - a model run over batches: what a batch is, and compiled passes that are used again for batches of
 * the same shape. */
#ifndef BANYAN_PASS_H
#define BANYAN_PASS_H

#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An input of the caller's own loss. */
enum { BY_EXTRA_MAX = 8 };
typedef struct by_extra {
    const char *name; /* outlives the passes */
    by_dtype type;
    int rank;
    int64_t shape[4];
    const void *data; /* of that type and shape */
} by_extra;

/* B rows of T tokens in host memory, borrowed. What is NULL is not there. */
typedef struct by_batch {
    int batch, seq;           /* B, T */
    int choices;              /* of BY_TASK_CHOICE: that many rows belong together */
    const int32_t *tokens;    /* (B, T) */
    const int32_t *segments;  /* (B, T) */
    const int32_t *positions; /* (B, T); NULL: by_model_positions */
    const int32_t
        *mask; /* (B, T), 0: padding. NULL: none; decoders that classify look for their padding token */
    const int32_t *pick; /* (picks) rows where token logits are wanted */
    int picks;
    const float *weights;       /* (B, T) by which the last hidden states are added up to by_pass_summary */
    const int32_t *targets;     /* see by_model_loss */
    const float *numbers;       /* the same for regression */
    const int32_t *second;      /* (B) */
    const int32_t *source;      /* (B, S): the first text of encoder-decoders, whose tokens are the second */
    const int32_t *source_mask; /* (B, S), 0: padding */
    int source_seq;             /* S */
    const float *class_weights; /* (labels): see by_model_io; NULL: all count the same */
    const by_extra *extra;      /* (extras) inputs of by_pass_spec.loss */
    int extras;
} by_batch;

/* How many targets there are, ignored ones included. */
BY_API int64_t by_batch_targets(const by_model *m, const by_batch *b);

/* Builds a loss from what the model returns, in the place of by_model_loss. targets: those of the batch, or NULL. extra: one tensor for
 * each of its extra inputs. The result is a scalar. Distillation, preference losses and policy gradients are such losses. */
typedef by_tensor *(*by_loss_fn)(void *user, by_graph *g, by_model_io *io, by_tensor *targets,
                                 by_tensor *const *extra);

typedef struct by_pass_spec {
    by_grad_mode grads;     /* BY_GRAD_NONE: forward only, without dropout */
    bool hidden, attention; /* keep them to be read */
    bool recompute;
    float label_smoothing; /* see by_loss_spec */
    by_memory **memory;    /* of activations: see by_compile_spec */
    by_loss_fn loss;       /* NULL: by_model_loss, for batches with targets */
    void *loss_user;
} by_pass_spec;

typedef struct by_pass by_pass;
/* For batches like this one: of its shape, with what it has. The model is borrowed. NULL on failure. */
BY_API by_pass *by_pass_new(by_model *m, const by_batch *like, const by_pass_spec *spec);
BY_API void by_pass_free(by_pass *p);
BY_API bool by_pass_fits(const by_pass *p, const by_batch *b);
/* Start the pass; on a GPU it goes on while the host does other things. Reading waits for it. */
BY_API by_status by_pass_run(by_pass *p, const by_batch *b);
BY_API void by_pass_scale(by_pass *p, double loss_scale); /* of the gradients; 1 unless set */

/* The compiled program, and the tensors of the model in it. */
BY_API by_program *by_pass_program(const by_pass *p);
BY_API const by_model_io *by_pass_io(const by_pass *p);
BY_API by_tensor *by_pass_loss(const by_pass *p);    /* NULL when batches have no targets */
BY_API by_tensor *by_pass_summary(const by_pass *p); /* (B, C), NULL when batches have no weights */
/* As floats: by_elements(t) of them. */
BY_API by_status by_pass_read(by_pass *p, const by_tensor *t, float *out);
/* BY_ERR_NUMERIC when values that were read hold NaN or infinity. Rows of padding may hold anything: check
 * the rows that are used. */
BY_API by_status by_pass_finite(const by_model *m, const float *values, size_t count);

/* Passes of one kind, by shape: found or made. At most `limit` are kept (0: 16). */
typedef struct by_passes by_passes;
BY_API by_passes *by_passes_new(by_model *m, const by_pass_spec *spec, int limit);
BY_API void by_passes_free(by_passes *s);
BY_API by_pass *by_passes_get(by_passes *s,
                              const by_batch *like); /* NULL on failure; lives until the next call */
BY_API by_pass *by_passes_last(const by_passes *s);  /* the one got last, or NULL */
BY_API size_t by_passes_bytes(const by_passes *s);   /* planned activations of all */

#ifdef __cplusplus
}
#endif
#endif
