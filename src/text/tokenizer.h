/* tokenizer.h - text to ids and back. One opaque type for every kind: characters, bytes, and what is
 * published (BPE, WordPiece, Unigram, WordLevel). What users of the library need is in banyan/tokenizer.h. */
#ifndef BY_TEXT_TOKENIZER_H
#define BY_TEXT_TOKENIZER_H

#include "banyan/tokenizer.h"
#include "base/base.h"

/* 256 ids, one per byte, plus one end-of-text id (256). Encodes and decodes any byte string exactly. The text
 * "<|endoftext|>" is that one id, both ways, as in the reference library. */
by_tokenizer *tok_new_bytes(void);

/* One id per Unicode character seen in the texts, in code point order (ids 0..n-1), invalid UTF-8 bytes being
 * an error that names the offset. Characters not in the vocabulary are an error at encode time naming the
 * character and offset. */
by_tokenizer *tok_new_chars(const char *const *texts, const size_t *sizes, int count);
/* The same from files, with the file and the line in errors. */
by_tokenizer *tok_new_chars_of(const char *const *paths, int count);

/* Two as one: the source's and the target's, which it owns from then on, also after a failure. Their padding,
 * closing and unknown tokens must have the same ids. NULL where one is. */
by_tokenizer *tok_pair(by_tokenizer *source, by_tokenizer *target);

/* Ids, of whichever side, are less than this. */
int tok_ids(const by_tokenizer *t);

const char *tok_kind(const by_tokenizer *t); /* "char", "byte", "BPE", "WordPiece", "WordLevel", "Unigram" */

/* A fingerprint: tokenizers that give different ids have different ones, as good as surely. */
uint64_t tok_hash(const by_tokenizer *t);

/* Growing list of ids. */
by_status tok_ids_reserve(by_ids *v, size_t extra); /* room for extra more; data is then not NULL */
by_status tok_ids_push(by_ids *v, int32_t id);
void tok_ids_free(by_ids *v);

/* Append the ids of text[0..size), without special tokens around it. On failure out->count is unchanged. Text
 * that is not UTF-8 is encoded as it is by byte-level tokenizers; others take each wrong byte for U+FFFD. */
by_status tok_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out);

/* The longest prefix of text[0..size) that can be encoded alone when more text follows, for text that comes
 * in chunks: it stops neither inside a character nor inside a special token nor inside a word. Usually a few
 * bytes shorter than size, and 0 only when size is small. */
size_t tok_cut(const by_tokenizer *t, const char *text, size_t size);

/* Append the bytes of the ids, special tokens included; ids out of range are an error. */
by_status tok_decode(const by_tokenizer *t, const int32_t *ids, size_t count, base_buf *out);

typedef struct tok_decode_spec {
    bool skip_special; /* leave special tokens out */
    bool source;       /* with the source side of a tokenizer that has two; else the target's */
    bool lossy;        /* always UTF-8: broken characters become U+FFFD, as in the reference library */
} tok_decode_spec;
by_status tok_decode_with(const by_tokenizer *t, const int32_t *ids, size_t count,
                          const tok_decode_spec *spec, base_buf *out);

/* The same id by id: put() and end() append bytes that no later id changes, and all of them together are what
 * tok_decode_with gives without lossy. Characters may come in parts. */
typedef struct tok_decoding tok_decoding;
tok_decoding *tok_decoding_new(const by_tokenizer *t, const tok_decode_spec *spec); /* spec is copied */
by_status tok_decoding_put(tok_decoding *d, int32_t id, base_buf *out);
by_status tok_decoding_end(tok_decoding *d, base_buf *out);
void tok_decoding_free(tok_decoding *d);

/* Append bytes with each longest beginning of a broken character replaced by U+FFFD. */
void tok_put_lossy(base_buf *out, const char *text, size_t n);

/* What part each id of the vocabulary has in words (special.c). */
enum {
    TOK_ID_ABSENT = 1,  /* no token has this id */
    TOK_ID_SPECIAL = 2, /* no text: [CLS], <pad>, ... */
    TOK_ID_BEGINS = 4,  /* the first piece of a word */
    TOK_ID_ENDS = 8     /* the last piece of a word */
};
/* out: one byte per id. False when the tokenizer does not mark where words begin or end: each id is then both
 * begin and end. */
bool tok_parts(const by_tokenizer *t, uint8_t *out);

#endif
