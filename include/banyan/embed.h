/* embed.h - vectors of texts: the last hidden states of a model, put together to one vector for each text.
 * Reads directories of sentence-transformers with their modules.json. */
#ifndef BANYAN_EMBED_H
#define BANYAN_EMBED_H

#include "banyan/model.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_pooling {
    BY_POOLING_DEFAULT, /* as the directory says; else the mean, of decoders the last */
    BY_POOLING_MEAN,
    BY_POOLING_CLS,      /* the first token */
    BY_POOLING_MAX,      /* of each element */
    BY_POOLING_LAST,     /* the last token */
    BY_POOLING_SQRT_MEAN /* the sum over the square root of the count */
} by_pooling;

typedef struct by_embed_spec {
    by_dtype dtype;
    by_pooling pooling;
    int normalize; /* to length 1: 0 as the directory says, 1 yes, -1 no */
    int limit;     /* tokens of a text that are read; 0: as the directory says, or the model's context */
    int batch;     /* rows at once; 0: 32, on a GPU 256 */
} by_embed_spec;

typedef struct by_embedder by_embedder;
BY_API by_embedder *by_embedder_open(by_device *d, const char *dir,
                                     const by_embed_spec *spec); /* NULL on failure */
/* Free an embedder; NULL is legal. */
BY_API void by_embedder_free(by_embedder *e);
BY_API int by_embedder_width(const by_embedder *e); /* elements of a vector */

/* out (count, width). */
BY_API by_status by_embedder_run(by_embedder *e, const char *const *texts, int count, float *out);

#ifdef __cplusplus
}
#endif
#endif
