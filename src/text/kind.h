/* kind.h - what a kind of tokenizer is: a row of functions. Private to src/text and its tests. */
#ifndef BY_TEXT_KIND_H
#define BY_TEXT_KIND_H

#include <cjson/cJSON.h>

#include "text/tokenizer.h"

typedef struct tok_text_kind {
    const char *name;

    /* Is this tokenizer.json of this kind? Looks at types only; read() judges the rest. */
    bool (*match)(const cJSON *root);

    /* Build from a tokenizer.json that matched; NULL after base_fail. */
    by_tokenizer *(*read)(const cJSON *root);

    /* Append the tokenizer.json. Memory failure shows in the buffer. */
    void (*write)(const by_tokenizer *t, base_buf *out);

    /* As tok_encode; on failure out->count is unchanged. */
    by_status (*encode)(const by_tokenizer *t, const char *text, size_t size, by_ids *out);

    /* As by_tokenizer_encode_with, *out being empty; NULL where encode() says it all. */
    by_status (*encode_with)(const by_tokenizer *t, const char *text, size_t size, const by_encode_spec *spec,
                             by_encoding *out);

    /* Decoding id by id, ids being in range: append what is certain of the text, and at the end the rest.
     * state is state_size bytes, zero at first; end() also releases what it holds. end may be NULL. */
    size_t state_size;
    by_status (*put)(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                     base_buf *out);
    by_status (*end)(const by_tokenizer *t, void *state, base_buf *out);

    /* As tok_cut. */
    size_t (*cut)(const by_tokenizer *t, const char *text, size_t size);

    /* The id of a token and its text, which lives as long as t; -1 when there is none. May be NULL. */
    int32_t (*find)(const by_tokenizer *t, const char *token, const char **text);

    void (*free)(by_tokenizer *t);
} tok_text_kind;

/* A file that by_tokenizer_save writes. */
typedef struct tok_kept_file {
    char *name, *bytes;
    size_t size;
} tok_kept_file;

/* Every kind's own struct starts with this. */
struct by_tokenizer {
    const tok_text_kind *kind;
    int vocab_size;       /* of the source, where there are two */
    int target_size;      /* of the target's own vocabulary, 0: it has none */
    int eos;              /* id of the end-of-text token, or -1 */
    const char *eos_text; /* its content, NULL when there is none; valid as long as the tokenizer */
    char *chat_template;  /* heap, or NULL */
    tok_kept_file *kept;  /* what is saved instead of a tokenizer.json, where that cannot say it all */
    int kept_count;
    int special[BY_SPECIAL_COUNT]; /* id + 1 of what tokenizer_config.json names, 0 elsewhere */
    char *config;                  /* heap, or NULL: the tokenizer_config.json to save with it */
};

extern const tok_text_kind tok_text_bytes, tok_text_chars, tok_text_pair;

/* One of the two that tok_pair made one of; any other tokenizer itself. */
const by_tokenizer *tok_side(const by_tokenizer *t, bool target);

/* From a model directory without tokenizer.json (legacy.c). */
by_tokenizer *tok_legacy_load(const char *dir);

/* Make this token the end of text, when the tokenizer has it. */
void tok_set_eos(by_tokenizer *t, const char *token);

/* Take over the special tokens that a tokenizer_config.json names (special.c); and write them again. */
void tok_special_read(by_tokenizer *t, const cJSON *config);
const char *tok_special_name(const cJSON *config, const char *key); /* a string, or an object's content */
void tok_special_write(const by_tokenizer *t, base_buf *out);

/* Save this file instead of tokenizer.json; bytes are copied. A name that is kept already stays as it is. */
by_status tok_keep(by_tokenizer *t, const char *name, const void *bytes, size_t size);
by_status tok_keep_file(by_tokenizer *t, const char *dir, const char *name); /* when it is there */

/* From the text of a tokenizer.json, with a NUL at json[size]; name stands in front of error messages. */
by_tokenizer *tok_parse(const char *json, size_t size, const char *name);

/* The text of tokenizer.json for t. */
by_status tok_format(const by_tokenizer *t, base_buf *out);

/* ---- vocabularies of single characters (symbols.c): a BPE model without merges --------------- */

/* True when root holds such a model and its pre_tokenizer has this type (NULL: there must be none). */
bool tok_symbols_match(const cJSON *root, const char *pre_tokenizer);

/* The vocabulary as a heap array of code points indexed by id (base_free); ids must be 0..count-1, each once.
 * Also refuses what would change the ids: normalizers, post-processors, unknown-token and prefix options.
 * NULL after base_fail. */
uint32_t *tok_symbols_read(const cJSON *root, int *count);

/* The whole tokenizer.json; added_tokens, pre_tokenizer and decoder are JSON text. */
void tok_symbols_write(base_buf *out, const uint32_t *points, int count, const char *added_tokens,
                       const char *pre_tokenizer, const char *decoder);

#endif
