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
 *   targets          see by_model_loss; i32, or f32 for regression, multi-label problems and class
 *                    probabilities. BY_TASK_CONTRAST has none: text i belongs to picture i
 *   second_targets   (B) i32, for tasks with a second target
 *   sampled          (B, T) i32, encoder-decoders: where not 0, the decoder reads the model's prediction
 *                    instead of the given token (scheduled sampling: docs/OBJECTIVES.md)
 *   pool_weights     (B, T) f32, weights of the sum of last hidden states that by_pass_summary returns
 * Missing positions are filled in by by_model_positions, and the last token of each row is found for a
 * decoder that classifies. */
enum { BY_BATCH_ARRAYS = 16 };
typedef struct by_batch {
    int batch, seq; /* B rows of T tokens */
    int choices;    /* rows that form one example (BY_TASK_CHOICE only); 0: 1 */
    /* the texts continue earlier batches of this stream (stream.h); NULL: they start here */
    by_stream *stream;
    int count;
    by_array arrays[BY_BATCH_ARRAYS];
} by_batch;

/* Makes a batch of texts: tokens (B, T). */
BY_API by_batch by_batch_of(int batch, int seq, const int32_t *tokens);
/* Makes a batch of pictures: pixel_values (B, C, H, W), with the channels of the model. seq becomes the
 * number of positions of a picture, or 0, which by_pass_new rejects, if the model cannot read such
 * pictures. */
BY_API by_batch by_batch_of_pictures(const by_model *m, int batch, int height, int width,
                                     const float *pixels);
/* Adds an array, or replaces the one with that name; data NULL removes it. More than BY_BATCH_ARRAYS arrays
 * make by_pass_new fail. */
BY_API void by_batch_put(by_batch *b, const char *name, by_dtype type, int rank, const int64_t *shape,
                         const void *data);
/* The same for i32 arrays of shape (B, T) and of shape (count). */
BY_API void by_batch_put_tokens(by_batch *b, const char *name, const int32_t *data);
BY_API void by_batch_put_ids(by_batch *b, const char *name, int64_t count, const int32_t *data);
/* Adds the source tokens of an encoder-decoder and their mask, (B, S) each; mask may be NULL. */
BY_API void by_batch_put_source(by_batch *b, int seq, const int32_t *source, const int32_t *mask);
/* Returns the array with that name, or NULL; and its elements if they are i32, otherwise NULL. */
BY_API const by_array *by_batch_find(const by_batch *b, const char *name);
BY_API const int32_t *by_batch_ids(const by_batch *b, const char *name);

/* Number of targets, including ignored ones. */
BY_API int64_t by_batch_targets(const by_model *m, const by_batch *b);

/* Builds a loss, a scalar, in place of by_model_loss. io has the model's outputs, and every array of the
 * batch as an input under its name. Distillation, preference losses and policy gradients are such losses. */
typedef by_tensor *(*by_loss_fn)(void *user, by_graph *g, by_model_io *io);

typedef struct by_pass_spec {
    by_grad_mode grads;     /* BY_GRAD_NONE: forward only, without dropout */
    bool hidden, attention; /* make these outputs readable */
    bool scores;            /* build the outputs "scores" and "values" (by_model_io), for a custom loss */
    bool features;          /* make the output "features" readable: the hidden states that the head reads */
    bool loss_alone;        /* forward only: nothing but the loss is read */
    bool recompute;
    bool no_dropout;       /* disable dropout in a pass with gradients */
    float label_smoothing; /* see by_loss_spec */
    by_memory **memory;    /* activation memory, see by_compile_spec */
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
BY_API void by_pass_scale(by_pass *p, double loss_scale); /* factor on the gradients; default 1 */

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
