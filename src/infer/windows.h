/* windows.h - a text read by a language model, window by window (perplexity.c). */
#ifndef BY_INFER_WINDOWS_H
#define BY_INFER_WINDOWS_H

#include "banyan/evaluate.h"

/* Hears of each predicted token in the order of the text: the token before it, the token, -log p under the model, and
 * the hidden state (C) that predicted it. */
typedef by_status gen_token_fn(void *user, int32_t token, int32_t next, double nats, const float *state,
                               int width);
/* Reads the files as by_perplexity() does without a cache. fn may be NULL. */
by_status gen_read_windows(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                           const by_perplexity_spec *spec, gen_token_fn *fn, void *user,
                           by_perplexity_result *out);

/* by_perplexity() with a continuous cache (cache_evaluate.c). */
by_status gen_cache_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out);

#endif
