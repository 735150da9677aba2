/* tokenizer.h - text to ids and back. One opaque type for every kind; today characters and bytes.
 * What users of the library need is in banyan/tokenizer.h. */
#ifndef BY_TEXT_TOKENIZER_H
#define BY_TEXT_TOKENIZER_H

#include "banyan/tokenizer.h"
#include "base/base.h"

/* 256 ids, one per byte, plus one end-of-text id (256). Encodes and decodes any byte string exactly. The text
 * "<|endoftext|>" is that one id, both ways, as in the reference library. */
by_tokenizer *by_tokenizer_new_bytes(void);

/* One id per Unicode character seen in the texts, in code point order (ids 0..n-1), invalid UTF-8 bytes being
 * an error that names the offset. Characters not in the vocabulary are an error at encode time naming the
 * character and offset. */
by_tokenizer *by_tokenizer_new_chars(const char *const *texts, const size_t *sizes, int count);

/* Write tokenizer.json and tokenizer_config.json into dir: files that the reference `tokenizers` library
 * reads to the same ids. */
by_status by_tokenizer_save(const by_tokenizer *t, const char *dir);

const char *by_tokenizer_kind(const by_tokenizer *t); /* "char", "byte" */

/* Growing list of ids. */
typedef struct by_ids {
    int32_t *data;
    size_t count, capacity;
} by_ids;
by_status by_ids_reserve(by_ids *v, size_t extra); /* room for extra more; data is then not NULL */
by_status by_ids_push(by_ids *v, int32_t id);
void by_ids_free(by_ids *v);

/* Append the ids of text[0..size). On failure out->count is unchanged. */
by_status by_tokenizer_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out);

/* The longest prefix of text[0..size) that can be encoded alone when more text follows, for text that comes
 * in chunks: it stops neither inside a character nor inside a special token. At most a few bytes shorter than
 * size. */
size_t by_tokenizer_cut(const by_tokenizer *t, const char *text, size_t size);

/* Append the bytes of the ids; ids out of range are an error. */
by_status by_tokenizer_decode(const by_tokenizer *t, const int32_t *ids, size_t count, by_buf *out);

#endif
