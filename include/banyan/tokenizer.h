/* tokenizer.h - converts text to token ids and back. */
#ifndef BANYAN_TOKENIZER_H
#define BANYAN_TOKENIZER_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_tokenizer by_tokenizer;

/* Loads a tokenizer from a model directory or a single file. Reads tokenizer.json and the older formats:
 * vocab.json with merges.txt, vocab.txt, spiece.model, Marian's pair of models, XLM's codes. If
 * target_tokenizer.json exists next to tokenizer.json, it holds the target side. Returns NULL on failure; an
 * unknown component is named and reported as BY_ERR_UNSUPPORTED. */
BY_API by_tokenizer *by_tokenizer_load(const char *path);
BY_API void by_tokenizer_free(by_tokenizer *t);

/* by_tokenizer_save writes the tokenizer files of a model directory, which is created if necessary. The
 * reference library reads them to the same ids. The files are tokenizer.json and tokenizer_config.json, or
 * the older formats for Marian and XLM, plus target_tokenizer.json (unknown to the reference) if the target
 * side has its own vocabulary. by_tokenizer_write writes only tokenizer.json, under any name. Each file
 * is replaced atomically. */
BY_API by_status by_tokenizer_save(const by_tokenizer *t, const char *dir);
BY_API by_status by_tokenizer_write(const by_tokenizer *t, const char *path);

/* All ids are below this. */
BY_API int by_tokenizer_vocab_size(const by_tokenizer *t);
/* Vocabulary size of the target side, or 0 if it shares the source vocabulary. Decoding uses target ids. */
BY_API int by_tokenizer_target_vocab_size(const by_tokenizer *t);
BY_API int by_tokenizer_eos(
    const by_tokenizer *t); /* end-of-text id, or -1; with two vocabularies, the target's */
BY_API int by_tokenizer_source_eos(const by_tokenizer *t); /* the source's, which is often the same */

/* Special tokens by role: those named in tokenizer_config.json, otherwise the conventional ones ("[MASK]",
 * "<mask>", ...). */
typedef enum by_special {
    BY_SPECIAL_PAD,
    BY_SPECIAL_FIRST, /* starts a text: [CLS], <s> */
    BY_SPECIAL_SEP,   /* ends each part: [SEP], </s> */
    BY_SPECIAL_MASK,
    BY_SPECIAL_UNKNOWN,
    BY_SPECIAL_COUNT
} by_special;
BY_API int by_tokenizer_special(const by_tokenizer *t, by_special which); /* id of the token, or -1 */

/* Returns the id of a token given its text, or -1. */
BY_API int32_t by_tokenizer_find(const by_tokenizer *t, const char *token);

/* Returns the chat template of the model directory (chat_template.jinja, otherwise tokenizer_config.json), or
 * NULL. Valid as long as the tokenizer. */
BY_API const char *by_tokenizer_chat_template(const by_tokenizer *t);

/* Encode and decode whole texts. The caller owns the results and frees them with by_release(). Both return
 * NULL on failure. Decoded text is NUL-terminated and may also contain NUL bytes, which *size counts (size
 * may be NULL). */
BY_API int32_t *by_encode(const by_tokenizer *t, const char *text, size_t size, size_t *count);
BY_API char *by_decode(const by_tokenizer *t, const int32_t *ids, size_t count, size_t *size);
BY_API void by_release(void *memory);

/* ---- encoding with options ------------------------------------------------------------------- */

typedef enum by_truncate {
    BY_TRUNCATE_LONGEST, /* of a pair, shorten the longer text first */
    BY_TRUNCATE_FIRST,   /* shorten only the text */
    BY_TRUNCATE_SECOND   /* shorten only its pair */
} by_truncate;

typedef struct by_truncation {
    int max_length; /* maximum number of tokens, including special tokens */
    int stride;     /* tokens shared between a part that did not fit and the part before it */
    by_truncate strategy;
    bool left; /* drop tokens from the start instead of the end */
} by_truncation;

typedef struct by_padding {
    int length;   /* pad to this many tokens; 0: only to the multiple */
    int multiple; /* round the length up to a multiple of this; 0: no rounding */
    int32_t id;
    int type_id; /* 0 to 255 */
    bool left;
} by_padding;

typedef struct by_encode_spec {
    bool special;     /* add the special tokens that the tokenizer specifies */
    bool offsets;     /* record the byte range of each token */
    bool whole;       /* neither truncate nor pad, even if the tokenizer file says so */
    bool target;      /* use the target side of a tokenizer that has two sides */
    const char *pair; /* second text, or NULL */
    size_t pair_size;
    const by_truncation *truncation; /* NULL: as specified in the tokenizer file */
    const by_padding *padding;
} by_encode_spec;

typedef struct by_ids {
    int32_t *data;
    size_t count, capacity;
} by_ids;

typedef struct by_offset {
    uint32_t start, end; /* byte range in the text or its pair */
} by_offset;

/* The origin of a token. */
typedef enum by_from { BY_FROM_TEXT, BY_FROM_PAIR, BY_FROM_NEITHER } by_from;

typedef struct by_encoding by_encoding;
struct by_encoding {
    by_ids ids;
    by_offset *offsets; /* one per id if requested; (0, 0) for special tokens */
    uint8_t *types;     /* one per id: segment, 0 or 1 (XLNet: 2) */
    uint8_t *special;   /* one per id: 1 for tokens that do not come from the text */
    uint8_t *parts;     /* one per id: by_from */
    size_t capacity;
    size_t padding; /* number of padding ids at the end (or start) */
    bool padded_left;
    by_encoding *overflow; /* the parts removed by truncation, encoded the same way */
    size_t overflow_count;
};

/* Encodes one text or a pair. *out is overwritten; the caller frees it, also after a failure. */
BY_API by_status by_tokenizer_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                          const by_encode_spec *spec, by_encoding *out);
BY_API void by_encoding_free(by_encoding *e);

/* Encodes many texts on several threads (0: one per core). The result does not depend on the number of
 * threads. spec gives the options and must not have a pair: pairs and their sizes are NULL or have one entry
 * per text, which may be NULL. Each out[i] is overwritten; the caller frees it, also after a failure. */
typedef struct by_texts {
    const char *const *texts, *const *pairs;
    const size_t *sizes, *pair_sizes;
    size_t count;
} by_texts;
BY_API by_status by_tokenizer_encode_many(const by_tokenizer *t, const by_texts *texts,
                                          const by_encode_spec *spec, int threads, by_encoding *out);

#ifdef __cplusplus
}
#endif
#endif
