/* pixels.h - pictures from pixel models: sampled token by token over a key-value cache, from nothing or from a part that
 * is given. by_processor_encode and by_processor_decode (image.h) turn pictures into tokens and back. */
#ifndef BANYAN_PIXELS_H
#define BANYAN_PIXELS_H

#include "banyan/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_pixel_spec {
    /* With temperature 0, the likeliest values. Penalties and other rules for text are not applied. */
    by_sampling sampling;
    int batch;         /* pictures that are made side by side; 0: 16 */
    const bool *given; /* (tokens of a picture): those that are known, in raster order; NULL: none */
    const int32_t
        *low; /* of models that enlarge pictures: these, (count, by_canvas_low) values; otherwise NULL */
    bool (*cancelled)(void *user);
    void (*progress)(void *user, int64_t done, int64_t total); /* positions of all pictures, or NULL */
    void *user;
} by_pixel_spec;

/* Makes `count` pictures. tokens (count, N), N = height * width * channels of by_model_canvas, has the values that are given,
 * and receives all. nats, unless NULL, (count) receives -ln p of each picture's own tokens, without what is given. Draws depend
 * on the seed, the number of the picture and the position alone, not on the batch. */
BY_API by_status by_pixels_sample(by_model *m, const by_pixel_spec *spec, int32_t *tokens, int count,
                                  double *nats);

/* Where a pixel looked: how much attention the heads pay to each pixel before it when this one is predicted, given the picture,
 * tokens (N). out (layers, heads, height, width); the mean over the channels of the pixel where they are positions. What goes to the
 * start of the picture is on none, so a map may sum to less than 1. */
BY_API by_status by_pixels_attention(by_model *m, const int32_t *tokens, int row, int column, float *out);

/* ln p of all 256 values of one channel of a pixel, given the channels before it. logits (N) of by_logistic_mixture for
 * `channels` channels, 1 or 3; before (channel) has the values of the channels before. */
BY_API void by_mixture_log_probs(const float *logits, int count, int channels, int channel,
                                 const int32_t *before, double out[256]);

#ifdef __cplusplus
}
#endif
#endif
