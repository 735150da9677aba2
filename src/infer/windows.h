/* windows.h - reading a text with a language model window by window (perplexity.c). */
#ifndef BY_INFER_WINDOWS_H
#define BY_INFER_WINDOWS_H

#include "banyan/evaluate.h"

/* Called for each predicted token in text order: the previous token, the token, -log p under the model, and
 * the hidden state (C) that predicted it, or NULL. */
typedef by_status gen_token_fn(void *user, int32_t token, int32_t next, double nats, const float *state,
                               int width);
/* Who listens. */
typedef struct gen_listener {
    gen_token_fn *token; /* NULL: nobody */
    void *user;
    bool states; /* hidden states are wanted */
} gen_listener;
/* Reads the files as by_perplexity() does without a cache. */
by_status gen_read_windows(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                           const by_perplexity_spec *spec, gen_listener listener, by_perplexity_result *out);
/* The spec for callers that need text order: with a memory, rows of a batch are columns of the text, so a
 * single column is used. */
by_perplexity_spec gen_in_order(const by_model *m, const by_perplexity_spec *spec);

/* Given -log p under a model and p under another, (count) each with a stride: finds the weight of the other
 * with the fewest nats, to three digits, and these nats. A negative p means that the other has no
 * prediction. */
double gen_best_share(const double *nats, const float *other, int64_t stride, int64_t count, double *least);
double gen_mixed_nats(double nats, double other, double share);

/* by_perplexity() with a continuous cache (cache_evaluate.c). */
by_status gen_cache_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out);

/* by_perplexity() with an n-gram model (mix_evaluate.c). */
by_status gen_ngram_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out);

#endif
