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

BY_API int by_tokenizer_vocab_size(const by_tokenizer *t);
BY_API int by_tokenizer_eos(const by_tokenizer *t); /* end-of-text id, or -1 */

/* Tokens with a part to play: those that tokenizer_config.json names, else the customary ones ("[MASK]",
 * "<mask>", ...). */
typedef enum by_special {
    BY_SPECIAL_PAD,
    BY_SPECIAL_FIRST, /* begins a text: [CLS], <s> */
    BY_SPECIAL_SEP,   /* ends each part: [SEP], </s> */
    BY_SPECIAL_MASK,
    BY_SPECIAL_UNKNOWN,
    BY_SPECIAL_COUNT
} by_special;
BY_API int by_tokenizer_special(const by_tokenizer *t, by_special which); /* its id, or -1 */

/* Whole texts. The results are the caller's, to be released with by_release(); NULL on failure. A decoded
 * text is NUL-terminated and may hold NUL bytes itself, which *size counts (size may be NULL). */
BY_API int32_t *by_encode(const by_tokenizer *t, const char *text, size_t size, size_t *count);
BY_API char *by_decode(const by_tokenizer *t, const int32_t *ids, size_t count, size_t *size);
BY_API void by_release(void *memory);

#ifdef __cplusplus
}
#endif
#endif
