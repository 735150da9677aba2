/* pixels.h - generation with pixel models, token by token over a key-value cache, unconditionally or
 * completing a given part. by_processor_encode and by_processor_decode (image.h) convert pictures to tokens
 * and back. */
#ifndef BANYAN_PIXELS_H
#define BANYAN_PIXELS_H

#include "banyan/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_pixel_spec {
    /* Temperature 0: the most likely values. Penalties and other rules for text are not applied. */
    by_sampling sampling;
    int batch;          /* pictures per batch; 0: 16 */
    const bool *given;  /* (tokens of a picture): which tokens are given, in raster order; NULL: none */
    const int32_t *low; /* super-resolution: input pictures, (count, by_canvas_low) values; otherwise NULL */
    bool (*cancelled)(void *user);
    void (*progress)(void *user, int64_t done, int64_t total); /* positions of all pictures, or NULL */
    void *user;
} by_pixel_spec;

/* Generates `count` pictures. tokens (count, N), N = height * width * channels of by_model_canvas, contains
 * the given values and receives all. nats (count), unless NULL, receives -ln p of the generated tokens of
 * each picture. Samples depend only on the seed, the number of the picture and the position, not on the
 * batch. */
BY_API by_status by_pixels_sample(by_model *m, const by_pixel_spec *spec, int32_t *tokens, int count,
                                  double *nats);

/* Attention of a pixel: the weights of every head over the preceding pixels when this pixel is predicted,
 * given the tokens (N) of the picture. out (layers, heads, height, width), averaged over the channels of the
 * pixel if they are positions. Weight on the start of the picture is omitted, so a map may sum to less than
 * 1. */
BY_API by_status by_pixels_attention(by_model *m, const int32_t *tokens, int row, int column, float *out);

/* ln p of all 256 values of one channel of a pixel, given the previous channels. logits (N) are those of
 * by_logistic_mixture for `channels` channels, 1 or 3; before (channel) has the values of the previous
 * channels. */
BY_API void by_mixture_log_probs(const float *logits, int count, int channels, int channel,
                                 const int32_t *before, double out[256]);

#ifdef __cplusplus
}
#endif
#endif
