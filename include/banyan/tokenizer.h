/* tokenizer.h - text to token ids and back. */
#ifndef BANYAN_TOKENIZER_H
#define BANYAN_TOKENIZER_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_tokenizer by_tokenizer;

/* From a model directory (tokenizer.json, or the older vocab.json with merges.txt, vocab.txt, spiece.model),
 * or from one such file. NULL on failure; what this build does not know is BY_ERR_UNSUPPORTED and named. */
BY_API by_tokenizer *by_tokenizer_load(const char *path);
BY_API void by_tokenizer_free(by_tokenizer *t);

/* Write tokenizer.json and tokenizer_config.json into dir, which is made: files that the reference
 * `tokenizers` library reads to the same ids. Or the first of them alone, under any name. Each file is
 * replaced whole or not at all. */
BY_API by_status by_tokenizer_save(const by_tokenizer *t, const char *dir);
BY_API by_status by_tokenizer_write(const by_tokenizer *t, const char *path);

BY_API int by_tokenizer_vocab_size(const by_tokenizer *t);
BY_API int by_tokenizer_eos(const by_tokenizer *t); /* end-of-text id, or -1 */

/* Whole texts. The results are the caller's, to be released with by_release(); NULL on failure. A decoded
 * text is NUL-terminated and may hold NUL bytes itself, which *size counts (size may be NULL). */
BY_API int32_t *by_encode(const by_tokenizer *t, const char *text, size_t size, size_t *count);
BY_API char *by_decode(const by_tokenizer *t, const int32_t *ids, size_t count, size_t *size);
BY_API void by_release(void *memory);

#ifdef __cplusplus
}
#endif
#endif
