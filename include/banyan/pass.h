/* pass.h - runs a model over batches. A pass is compiled once for a batch shape and reused for batches of the
 * same shape. */
#ifndef BANYAN_PASS_H
#define BANYAN_PASS_H

#include "banyan/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An array in host memory, borrowed. Its name is a string that outlives the passes made for it. */
typedef struct by_array {
    const char *name;
    by_dtype type;
    int rank;
    int64_t shape[BY_MAX_RANK];
    const void *data;
} by_array;

/* The arrays of one batch. Names are those of the model's inputs (by_model_io) and
 *   targets          see by_model_loss; i32, or f32 for regression and for probabilities of classes (B, labels)
 *                    . Pairs of texts and pictures (BY_TASK_CONTRAST) have none: row i of both belong together
 *   second_targets   (B) i32, for tasks with a second target
 *   sampled          (B, T) i32, encoder-decoders: where not 0, the decoder reads the token that the model predicts there
 *                    instead of the given one (scheduled sampling: docs/OBJECTIVES.md)
 *   pool_weights     (B, T) f32, by which the last hidden states are summed into by_pass_summary
 * Positions that a batch lacks are the family's own (by_model_positions); a decoder that classifies finds the
 * last token of each row itself. */
enum { BY_BATCH_ARRAYS = 16 };
typedef struct by_batch {
    int batch, seq; /* B rows of T tokens */
    int choices;    /* rows that form one example (BY_TASK_CHOICE only); 0: 1 */
    /* the texts go on from earlier batches with this stream (banyan/stream.h); NULL: they begin */
    by_stream *stream;
    int count;
    by_array arrays[BY_BATCH_ARRAYS];
} by_batch;

/* A batch of text: tokens (B, T). */
BY_API by_batch by_batch_of(int batch, int seq, const int32_t *tokens);
/* A batch of pictures: pixel_values (B, C, H, W), with the channels of the model. seq becomes the number of positions of
 * a picture; 0, which by_pass_new refuses, where the model reads no such pictures. */
BY_API by_batch by_batch_of_pictures(const by_model *m, int batch, int height, int width,
                                     const float *pixels);
/* Adds an array, or replaces the one with that name; data NULL removes it. More than BY_BATCH_ARRAYS arrays
 * make by_pass_new fail. */
BY_API void by_batch_put(by_batch *b, const char *name, by_dtype type, int rank, const int64_t *shape,
                         const void *data);
/* The same for i32 arrays: of shape (B, T), and of `count` elements. */
BY_API void by_batch_put_tokens(by_batch *b, const char *name, const int32_t *data);
BY_API void by_batch_put_ids(by_batch *b, const char *name, int64_t count, const int32_t *data);
/* Adds the source tokens of an encoder-decoder and their mask, (B, S) each; mask may be NULL. */
BY_API void by_batch_put_source(by_batch *b, int seq, const int32_t *source, const int32_t *mask);
/* Returns the array with that name, or NULL; and its elements if they are i32, otherwise NULL. */
BY_API const by_array *by_batch_find(const by_batch *b, const char *name);
BY_API const int32_t *by_batch_ids(const by_batch *b, const char *name);

/* Number of targets, including ignored ones. */
BY_API int64_t by_batch_targets(const by_model *m, const by_batch *b);

/* Builds a loss, a scalar, in place of by_model_loss. io has the model's outputs, and every array of the batch
 * as an input under its name. Distillation, preference losses and policy gradients are such losses. */
typedef by_tensor *(*by_loss_fn)(void *user, by_graph *g, by_model_io *io);

typedef struct by_pass_spec {
    by_grad_mode grads;     /* BY_GRAD_NONE: forward only, without dropout */
    bool hidden, attention; /* make them readable */
    bool scores;            /* a loss of the caller's reads them (by_model_io) */
    bool features;          /* make the states that the head reads readable: output "features" */
    bool loss_alone;        /* of a forward pass, only the loss is read: not the logits, nor other outputs */
    bool recompute;
    bool no_dropout;       /* with gradients: without it all the same */
    float label_smoothing; /* see by_loss_spec */
    by_memory **memory;    /* memory of activations, see by_compile_spec */
    by_loss_fn loss;       /* NULL: by_model_loss, for batches with targets */
    void *loss_user;
} by_pass_spec;

typedef struct by_pass by_pass;
/* Compiles a pass for batches with the shape and the fields of `like`. The model is borrowed. Returns NULL on
 * failure. */
BY_API by_pass *by_pass_new(by_model *m, const by_batch *like, const by_pass_spec *spec);
BY_API void by_pass_free(by_pass *p);
BY_API bool by_pass_fits(const by_pass *p, const by_batch *b);
/* Starts the pass. On a GPU it runs asynchronously; reading a result waits for it. */
BY_API by_status by_pass_run(by_pass *p, const by_batch *b);
BY_API void by_pass_scale(by_pass *p, double loss_scale); /* factor of the gradients; default 1 */

/* The compiled program, and the model's tensors in it. */
BY_API by_program *by_pass_program(const by_pass *p);
BY_API const by_model_io *by_pass_io(const by_pass *p);
BY_API by_tensor *by_pass_loss(const by_pass *p);    /* NULL if batches have no targets */
BY_API by_tensor *by_pass_summary(const by_pass *p); /* (B, C); NULL if batches have no weights */
/* Reads a tensor as by_elements(t) floats. */
BY_API by_status by_pass_read(by_pass *p, const by_tensor *t, float *out);
/* Returns BY_ERR_NUMERIC if the values contain NaN or infinity. Padding rows may hold anything: check only
 * the rows that are used. */
BY_API by_status by_pass_finite(const by_model *m, const float *values, size_t count);

/* A cache of passes of one kind, keyed by shape. Keeps at most `limit` passes (0: 16). */
typedef struct by_passes by_passes;
BY_API by_passes *by_passes_new(by_model *m, const by_pass_spec *spec, int limit);
BY_API void by_passes_free(by_passes *s);
/* Finds or compiles the pass for `like`. Returns NULL on failure. Valid until the next call. */
BY_API by_pass *by_passes_get(by_passes *s, const by_batch *like);
BY_API by_pass *by_passes_last(const by_passes *s); /* the pass returned last, or NULL */
BY_API size_t by_passes_bytes(const by_passes *s);  /* planned activation memory of all passes */

#ifdef __cplusplus
}
#endif
#endif
