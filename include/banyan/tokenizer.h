/* tokenizer.h - text to token ids and back. */
#ifndef BANYAN_TOKENIZER_H
#define BANYAN_TOKENIZER_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_tokenizer by_tokenizer;

/* From a model directory (tokenizer.json, or the older vocab.json with merges.txt, vocab.txt, spiece.model,
 * Marian's pair of models, XLM's codes), or from one such file. target_tokenizer.json beside tokenizer.json
 * is the target's side. NULL on failure; what this build does not know is BY_ERR_UNSUPPORTED and named. */
BY_API by_tokenizer *by_tokenizer_load(const char *path);
BY_API void by_tokenizer_free(by_tokenizer *t);

/* Write the files of a model directory, which is made, that the reference library reads to the same ids:
 * tokenizer.json and tokenizer_config.json; for Marian and XLM the older files; target_tokenizer.json, which
 * the reference does not know, where the target has its own. Or tokenizer.json alone, under any name. Each
 * file is replaced whole or not at all. */
BY_API by_status by_tokenizer_save(const by_tokenizer *t, const char *dir);
BY_API by_status by_tokenizer_write(const by_tokenizer *t, const char *path);

/* Ids lie below this. */
BY_API int by_tokenizer_vocab_size(const by_tokenizer *t);
/* Of the target side, where that has a vocabulary of its own; else 0. Its ids are what is decoded. */
BY_API int by_tokenizer_target_vocab_size(const by_tokenizer *t);
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

/* The id of a token by its text, or -1. */
BY_API int32_t by_tokenizer_find(const by_tokenizer *t, const char *token);

/* The chat template of the model directory (chat_template.jinja, else tokenizer_config.json), or NULL; valid
 * as long as the tokenizer. */
BY_API const char *by_tokenizer_chat_template(const by_tokenizer *t);

/* Whole texts. The results are the caller's, to be released with by_release(); NULL on failure. A decoded
 * text is NUL-terminated and may hold NUL bytes itself, which *size counts (size may be NULL). */
BY_API int32_t *by_encode(const by_tokenizer *t, const char *text, size_t size, size_t *count);
BY_API char *by_decode(const by_tokenizer *t, const int32_t *ids, size_t count, size_t *size);
BY_API void by_release(void *memory);

/* ---- everything an encoding can be asked for ------------------------------------------------- */

typedef enum by_truncate {
    BY_TRUNCATE_LONGEST, /* of a pair, the longer text gives way first */
    BY_TRUNCATE_FIRST,   /* only the text */
    BY_TRUNCATE_SECOND   /* only its pair */
} by_truncate;

typedef struct by_truncation {
    int max_length; /* tokens at most, special ones included */
    int stride;     /* tokens that what did not fit shares with what comes before it */
    by_truncate strategy;
    bool left; /* the end is kept */
} by_truncation;

typedef struct by_padding {
    int length;   /* pad to this many tokens; 0: only to the multiple */
    int multiple; /* and up to a multiple of this; 0: none */
    int32_t id;
    int type_id; /* 0 to 255 */
    bool left;
} by_padding;

typedef struct by_encode_spec {
    bool special;     /* put the special tokens around the text that the tokenizer asks for */
    bool offsets;     /* keep the place of each token */
    bool whole;       /* neither truncate nor pad, even when the file says so */
    bool target;      /* with the target side of a tokenizer that has two */
    const char *pair; /* a second text, or NULL */
    size_t pair_size;
    const by_truncation *truncation; /* NULL: as the tokenizer's file says */
    const by_padding *padding;
} by_encode_spec;

typedef struct by_ids {
    int32_t *data;
    size_t count, capacity;
} by_ids;

typedef struct by_offset {
    uint32_t start, end; /* bytes of the text, or of the pair */
} by_offset;

/* Where a token comes from. */
typedef enum by_from { BY_FROM_TEXT, BY_FROM_PAIR, BY_FROM_NEITHER } by_from;

typedef struct by_encoding by_encoding;
struct by_encoding {
    by_ids ids;
    by_offset *offsets; /* one per id when asked for; (0, 0) for special tokens */
    uint8_t *types;     /* one per id: the segment, 0 or 1 (XLNet: 2) */
    uint8_t *special;   /* one per id: 1 for tokens that do not come from the text */
    uint8_t *parts;     /* one per id: by_from */
    size_t capacity;
    size_t padding; /* how many ids at the end (or beginning) are padding */
    bool padded_left;
    by_encoding *overflow; /* what truncation left out, encoded the same way */
    size_t overflow_count;
};

/* Encode one text or a pair; *out is overwritten and to be freed, also after a failure. */
BY_API by_status by_tokenizer_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                          const by_encode_spec *spec, by_encoding *out);
BY_API void by_encoding_free(by_encoding *e);

/* Encode many texts on several threads (0: one per core); the result does not depend on how many. spec says
 * how and has no pair of its own: pairs and their sizes are NULL or one per text, of which some may be NULL.
 * out[i] are overwritten and to be freed, also after a failure. */
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
