/* kind.h - a kind of tokenizer as a table of functions. Private to src/text and its tests. */
#ifndef BY_TEXT_KIND_H
#define BY_TEXT_KIND_H

#include <cjson/cJSON.h>

#include "text/tokenizer.h"

typedef struct tok_text_kind {
    const char *name;

    /* Returns true if this tokenizer.json is of this kind. Checks types only; read() validates the rest. */
    bool (*match)(const cJSON *root);

    /* Builds a tokenizer from a tokenizer.json that matched. Returns NULL after base_fail. */
    by_tokenizer *(*read)(const cJSON *root);

    /* Appends the tokenizer.json. Allocation failure is recorded in the buffer. */
    void (*write)(const by_tokenizer *t, base_buf *out);

    /* As tok_encode; on failure out->count is unchanged. */
    by_status (*encode)(const by_tokenizer *t, const char *text, size_t size, by_ids *out);

    /* As by_tokenizer_encode_with, with *out empty. NULL if encode() is sufficient. */
    by_status (*encode_with)(const by_tokenizer *t, const char *text, size_t size, const by_encode_spec *spec,
                             by_encoding *out);

    /* Decodes id by id; ids are in range. Each call appends the text that is certain, and end() the rest.
     * state has state_size bytes, initially zero; end() also frees what it holds. end may be NULL. */
    size_t state_size;
    by_status (*put)(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                     base_buf *out);
    by_status (*end)(const by_tokenizer *t, void *state, base_buf *out);

    /* As tok_cut. */
    size_t (*cut)(const by_tokenizer *t, const char *text, size_t size);

    /* Returns the id of a token and sets its text, which lives as long as t; -1 if there is none. May be
     * NULL. */
    int32_t (*find)(const by_tokenizer *t, const char *token, const char **text);

    void (*free)(by_tokenizer *t);
} tok_text_kind;

/* A file written by by_tokenizer_save. */
typedef struct tok_kept_file {
    char *name, *bytes;
    size_t size;
} tok_kept_file;

/* The struct of every kind starts with this. */
struct by_tokenizer {
    const tok_text_kind *kind;
    int vocab_size;       /* vocabulary of the source, if there are two */
    int target_size;      /* size of a separate target vocabulary; 0: none */
    int eos;              /* id of the end-of-text token, or -1 */
    const char *eos_text; /* its content, or NULL; valid as long as the tokenizer */
    char *chat_template;  /* heap, or NULL */
    tok_kept_file *kept;  /* files saved instead of tokenizer.json, if that cannot represent everything */
    int kept_count;
    int special[BY_SPECIAL_COUNT]; /* id + 1 of the token named in tokenizer_config.json, otherwise 0 */
    char *config;                  /* heap, or NULL: the tokenizer_config.json to save with it */
};

extern const tok_text_kind tok_text_bytes, tok_text_chars, tok_text_pair, tok_text_words;

/* Returns one of the two tokenizers joined by tok_pair; any other tokenizer returns itself. */
const by_tokenizer *tok_side(const by_tokenizer *t, bool target);

/* Loads a model directory without tokenizer.json (legacy/legacy.c). */
by_tokenizer *tok_legacy_load(const char *dir);

/* Makes this token the end of text if the tokenizer has it. */
void tok_set_eos(by_tokenizer *t, const char *token);

/* Reads the special tokens named in tokenizer_config.json (special.c), and writes them. */
void tok_special_read(by_tokenizer *t, const cJSON *config);
/* Marks the tokens that such a file names, with a role or without one, as special. */
void tok_special_mark(by_tokenizer *t, const cJSON *config);
/* Keys of special tokens without a role. */
extern const char *const tok_special_lists[2];
/* The text of a token, which is a string or an object with its content and flags. */
const char *tok_special_text(const cJSON *token);
const char *tok_special_name(const cJSON *config, const char *key);
void tok_special_write(const by_tokenizer *t, base_buf *out);

/* Saves this file instead of tokenizer.json; bytes are copied. A name that is already kept is not
 * replaced. */
by_status tok_keep(by_tokenizer *t, const char *name, const void *bytes, size_t size);
by_status tok_keep_file(by_tokenizer *t, const char *dir, const char *name); /* if it exists */

/* Parses the text of a tokenizer.json, with a NUL at json[size]; name prefixes error messages. */
by_tokenizer *tok_parse(const char *json, size_t size, const char *name);

/* Formats tokenizer.json for t. */
by_status tok_format(const by_tokenizer *t, base_buf *out);

/* ---- vocabularies of single characters (symbols.c): a BPE model without merges --------------- */

/* Returns true if root holds such a model and its pre_tokenizer has this type (NULL: there must be none). */
bool tok_symbols_match(const cJSON *root, const char *pre_tokenizer);

/* Reads the vocabulary as a heap array of code points indexed by id (base_free); ids must be 0..count-1, each
 * once. Rejects everything that would change the ids: normalizers, post-processors, unknown-token and prefix
 * options. Returns NULL after base_fail. */
uint32_t *tok_symbols_read(const cJSON *root, int *count);

/* Writes the whole tokenizer.json; added_tokens, pre_tokenizer and decoder are JSON text. */
void tok_symbols_write(base_buf *out, const uint32_t *points, int count, const char *added_tokens,
                       const char *pre_tokenizer, const char *decoder);

#endif
