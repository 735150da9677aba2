/* kind.h - what a kind of tokenizer is: a row of functions. Private to src/text and its tests. */
#ifndef BY_TEXT_KIND_H
#define BY_TEXT_KIND_H

#include <cjson/cJSON.h>

#include "text/tokenizer.h"

typedef struct by_text_kind {
    const char *name;

    /* Is this tokenizer.json of this kind? Looks at types only; read() judges the rest. */
    bool (*match)(const cJSON *root);

    /* Build from a tokenizer.json that matched; NULL after by_fail. */
    by_tokenizer *(*read)(const cJSON *root);

    /* Append the tokenizer.json. Memory failure shows in the buffer. */
    void (*write)(const by_tokenizer *t, by_buf *out);

    /* As by_tokenizer_encode; on failure out->count is unchanged. */
    by_status (*encode)(const by_tokenizer *t, const char *text, size_t size, by_ids *out);

    /* Append the bytes of ids that are known to be in range. */
    void (*decode)(const by_tokenizer *t, const int32_t *ids, size_t count, by_buf *out);

    /* As by_tokenizer_cut. */
    size_t (*cut)(const by_tokenizer *t, const char *text, size_t size);

    void (*free)(by_tokenizer *t);
} by_text_kind;

/* Every kind's own struct starts with this. */
struct by_tokenizer {
    const by_text_kind *kind;
    int vocab_size;
    int eos;              /* id of the end-of-text token, or -1 */
    const char *eos_text; /* its content, NULL when there is none; valid as long as the tokenizer */
};

extern const by_text_kind by_text_bytes, by_text_chars;

/* From the text of a tokenizer.json, with a NUL at json[size]; name stands in front of error messages. */
by_tokenizer *by_tokenizer_parse(const char *json, size_t size, const char *name);

/* The text of tokenizer.json for t. */
by_status by_tokenizer_format(const by_tokenizer *t, by_buf *out);

/* ---- vocabularies of single characters (symbols.c): a BPE model without merges
 * ---------------------------------- */

/* True when root holds such a model and its pre_tokenizer has this type (NULL: there must be none). */
bool by_symbols_match(const cJSON *root, const char *pre_tokenizer);

/* The vocabulary as a heap array of code points indexed by id (by_free); ids must be 0..count-1, each once.
 * Also refuses what would change the ids: normalizers, post-processors, unknown-token and prefix options.
 * NULL after by_fail. */
uint32_t *by_symbols_read(const cJSON *root, int *count);

/* The whole tokenizer.json; added_tokens, pre_tokenizer and decoder are JSON text. */
void by_symbols_write(by_buf *out, const uint32_t *points, int count, const char *added_tokens,
                      const char *pre_tokenizer, const char *decoder);

#endif
