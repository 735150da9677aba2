/* embed.h - embeddings: the last hidden states of a model, pooled into one vector per text or picture. Reads
 * sentence-transformers directories with their modules.json. */
#ifndef BANYAN_EMBED_H
#define BANYAN_EMBED_H

#include "banyan/model.h"
#include "banyan/picture_set.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_pooling {
    /* As specified in the directory; otherwise the mean, or the last token of decoders, or the class token of
     * pictures. */
    BY_POOLING_DEFAULT,
    BY_POOLING_MEAN,     /* for pictures, over the patches */
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
    const char *adapter; /* folder of an adapter to use; NULL: none */
} by_embed_spec;

typedef struct by_embedder by_embedder;
/* Returns NULL on failure. */
BY_API by_embedder *by_embedder_open(by_device *d, const char *dir, const by_embed_spec *spec);
/* Frees an embedder. NULL is a no-op. */
BY_API void by_embedder_free(by_embedder *e);
BY_API int by_embedder_width(const by_embedder *e); /* elements per vector */

/* Whether the model reads texts, pictures, or both, in which case the vectors share one space. */
BY_API bool by_embedder_reads_texts(const by_embedder *e);
BY_API bool by_embedder_reads_pictures(const by_embedder *e);
/* The learned scale of text-image cosines before the softmax (logit scale); 1 for other models. */
BY_API double by_embedder_scale(const by_embedder *e);
BY_API int by_embedder_channels(const by_embedder *e); /* image channels, 1 or 3; 0: no pictures */

/* Embeds `count` texts; out is (count, width). */
BY_API by_status by_embedder_run(by_embedder *e, const char *const *texts, int count, float *out);
/* Embeds pictures `first` to `first` + `count` - 1 of a dataset. */
BY_API by_status by_embedder_run_pictures(by_embedder *e, const by_picture_set *set, int64_t first, int count,
                                          float *out);
/* Zero-shot classification: for each of `count` pictures, the softmax of the scaled cosines with the vectors
 * (labels, width) of `labels` texts. scores is (count, labels). */
BY_API by_status by_embedder_choose(by_embedder *e, const float *vectors, int labels,
                                    const by_picture_set *set, int64_t first, int count, float *scores);

#ifdef __cplusplus
}
#endif
#endif
