/* tokenizer.h - text to ids and back. One opaque type for every kind: characters, bytes, and the published
 * ones (BPE, WordPiece, Unigram, WordLevel). The public interface is banyan/tokenizer.h. */
#ifndef BY_TEXT_TOKENIZER_H
#define BY_TEXT_TOKENIZER_H

#include "banyan/tokenizer.h"
#include "base/base.h"

/* 256 ids, one per byte, plus one end-of-text id (256). Encodes and decodes any byte string exactly. The text
 * "<|endoftext|>" maps to that id in both directions, as in the reference library. */
by_tokenizer *tok_new_bytes(void);

/* One id per Unicode character in the texts, in code point order (ids 0..n-1). Invalid UTF-8 is an error that
 * names the offset. Encoding an unknown character is an error that names the character and offset. */
by_tokenizer *tok_new_chars(const char *const *texts, const size_t *sizes, int count);
/* The same from files; errors name the file and the line. */
by_tokenizer *tok_new_chars_of(const char *const *paths, int count);

/* Words between white space, of a vocabulary that the caller holds and that must outlive the tokenizer. It is made, never
 * read: a file of it is a WordLevel model. Decoded words are separated by one space. */
typedef struct tok_word_list {
    int count;
    int32_t unknown, end;                                          /* ids; end may be -1 */
    int32_t (*find)(const void *user, const char *word, size_t n); /* `unknown` for what is not there */
    const char *(*name)(const void *user, int32_t id);
    const void *user;
} tok_word_list;
by_tokenizer *tok_new_words(const tok_word_list *list);

/* Joins the tokenizers of source and target and takes ownership of both, also on failure. Their padding, end
 * and unknown tokens must have the same ids. Returns NULL if either is NULL. */
by_tokenizer *tok_pair(by_tokenizer *source, by_tokenizer *target);

/* All ids, of either side, are below this. */
int tok_ids(const by_tokenizer *t);

const char *tok_kind(
    const by_tokenizer *t); /* "char", "byte", "word", "BPE", "WordPiece", "WordLevel", "Unigram" */

/* A fingerprint: tokenizers that give different ids have different fingerprints, with near certainty. */
uint64_t tok_hash(const by_tokenizer *t);
uint64_t tok_target_hash(const by_tokenizer *t); /* of the target side, where there are two */

/* Gives the tokenizer another chat template, which is saved with it. */
by_status tok_set_chat_template(by_tokenizer *t, const char *text);

/* A growing list of ids. */
by_status tok_ids_reserve(by_ids *v, size_t extra); /* makes room for extra more; data is then not NULL */
by_status tok_ids_push(by_ids *v, int32_t id);
void tok_ids_free(by_ids *v);

/* Appends the ids of text[0..size), without special tokens. On failure out->count is unchanged. Byte-level
 * tokenizers encode invalid UTF-8 unchanged; others replace each invalid byte by U+FFFD. */
by_status tok_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out);

/* Returns the length of the longest prefix of text[0..size) that can be encoded alone if more text follows:
 * it ends neither inside a character nor inside a special token nor inside a word. Usually a few bytes less
 * than size, and 0 only if size is small. */
size_t tok_cut(const by_tokenizer *t, const char *text, size_t size);

/* Appends the bytes of the ids, including special tokens. Ids out of range are an error. */
by_status tok_decode(const by_tokenizer *t, const int32_t *ids, size_t count, base_buf *out);

typedef struct tok_decode_spec {
    bool skip_special; /* omit special tokens */
    bool source;       /* use the source side of a tokenizer that has two; otherwise the target side */
    bool lossy;        /* always valid UTF-8: broken characters become U+FFFD, as in the reference library */
} tok_decode_spec;
by_status tok_decode_with(const by_tokenizer *t, const int32_t *ids, size_t count,
                          const tok_decode_spec *spec, base_buf *out);
/* The same as a string, which by_release frees; *size counts its bytes. NULL on failure. */
char *tok_decode_text(const by_tokenizer *t, const int32_t *ids, size_t count, const tok_decode_spec *spec,
                      size_t *size);

/* The same id by id: put() and end() append bytes that no later id changes; together they are the output of
 * tok_decode_with without lossy. Characters may arrive in parts. */
typedef struct tok_decoding tok_decoding;
tok_decoding *tok_decoding_new(const by_tokenizer *t, const tok_decode_spec *spec); /* spec is copied */
by_status tok_decoding_put(tok_decoding *d, int32_t id, base_buf *out);
by_status tok_decoding_end(tok_decoding *d, base_buf *out);
void tok_decoding_free(tok_decoding *d);

/* Appends bytes with each maximal prefix of a broken character replaced by U+FFFD. */
void tok_put_lossy(base_buf *out, const char *text, size_t n);

/* The role of each id in words (special.c). */
enum {
    TOK_ID_ABSENT = 1,  /* no token has this id */
    TOK_ID_SPECIAL = 2, /* not text: [CLS], <pad>, ... */
    TOK_ID_BEGINS = 4,  /* the first piece of a word */
    TOK_ID_ENDS = 8     /* the last piece of a word */
};
/* out: one byte per id. Returns false if the tokenizer does not mark where words start or end; each id is
 * then both. */
bool tok_parts(const by_tokenizer *t, uint8_t *out);

#endif
