/* embed.h - text embeddings: the last hidden states of a model, pooled into one vector per text. Reads
 * sentence-transformers directories with their modules.json. */
#ifndef BANYAN_EMBED_H
#define BANYAN_EMBED_H

#include "banyan/model.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_pooling {
    /* As specified in the directory; otherwise the mean, or the last token for decoders. */
    BY_POOLING_DEFAULT,
    BY_POOLING_MEAN,
    BY_POOLING_CLS,      /* the first token */
    BY_POOLING_MAX,      /* maximum of each element */
    BY_POOLING_LAST,     /* the last token */
    BY_POOLING_SQRT_MEAN /* sum divided by the square root of the count */
} by_pooling;

typedef struct by_embed_spec {
    by_dtype dtype;
    by_pooling pooling;
    int normalize; /* scale to length 1: 0 as specified in the directory, 1 yes, -1 no */
    int limit; /* maximum tokens per text; 0: as specified in the directory, otherwise the model's context */
    int batch; /* rows per batch; 0: 32, or 256 on a GPU */
} by_embed_spec;

typedef struct by_embedder by_embedder;
/* Returns NULL on failure. */
BY_API by_embedder *by_embedder_open(by_device *d, const char *dir, const by_embed_spec *spec);
/* Frees an embedder. NULL is a no-op. */
BY_API void by_embedder_free(by_embedder *e);
BY_API int by_embedder_width(const by_embedder *e); /* elements per vector */

/* Embeds `count` texts; out is (count, width). */
BY_API by_status by_embedder_run(by_embedder *e, const char *const *texts, int count, float *out);

#ifdef __cplusplus
}
#endif
#endif
