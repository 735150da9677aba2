/* legacy.h - reading model directories without tokenizer.json. Private to src/text/legacy. */
#ifndef BY_TEXT_LEGACY_LEGACY_H
#define BY_TEXT_LEGACY_LEGACY_H

#include "text/legacy/spiece.h"

typedef enum tok_flavor {
    TOK_LEGACY_GPT2,
    TOK_LEGACY_GPT,
    TOK_LEGACY_ROBERTA,
    TOK_LEGACY_BERT,
    TOK_LEGACY_T5,
    TOK_LEGACY_ALBERT,
    TOK_LEGACY_XLNET,
    TOK_LEGACY_XLMR,
    TOK_LEGACY_LLAMA,
    TOK_LEGACY_XLM,
    TOK_LEGACY_MARIAN
} tok_flavor;

enum {
    TOK_ROLE_BOS,
    TOK_ROLE_EOS,
    TOK_ROLE_UNK,
    TOK_ROLE_SEP,
    ARCH_ROLE_PAD,
    TOK_ROLE_CLS,
    TOK_ROLE_MASK,
    TOK_ROLES
};

/* Templates: role names, A and B, each with its segment if that is not 0. */
typedef struct tok_family {
    const char *class, *model_type; /* as in tokenizer_config.json and config.json */
    tok_flavor flavor;
    const char *roles[TOK_ROLES]; /* default special tokens */
    const char *single, *pair;
} tok_family;

typedef struct tok_legacy_token {
    char *content;
    int id;
    bool special, lstrip, rstrip, normalized, single_word;
} tok_legacy_token;

typedef struct tok_legacy {
    const char *dir;
    /* tokenizer_config.json, special_tokens_map.json, added_tokens.json; NULL if absent */
    cJSON *config, *map, *more;
    const tok_family *family;
    tok_vocab vocab; /* all tokens, as numbered by the family */
    int known;       /* XLM: ids from here on are intermediate merges only */
    tok_spiece spiece;
    char *vocab_text, *merges_text;
    tok_legacy_token *tokens;
    int count, capacity;
    base_buf out; /* the tokenizer.json */
} tok_legacy;

/* ---- files and settings (legacy.c) ----------------------------------------------------------- */

bool tok_legacy_has(const tok_legacy *l, const char *name);
char *tok_legacy_file(const tok_legacy *l, const char *name, size_t *size); /* NULL after base_fail */
/* *out stays NULL if the file does not exist. */
by_status tok_legacy_read_json(const tok_legacy *l, const char *name, cJSON **out);
bool tok_legacy_setting(const tok_legacy *l, const char *key, bool fallback);
const char *tok_legacy_role(const tok_legacy *l, int role); /* the special token of that role, or NULL */
extern const char *const tok_legacy_role_names[TOK_ROLES];  /* names used in templates */

/* ---- vocabularies (legacy_vocab.c) ----------------------------------------------------------- */

by_status tok_legacy_read_vocab(tok_legacy *l);

/* Reads a line "a b" or "a b count" of merges.txt at *p: the two tokens; advances *p past the line. Returns
 * 1, 0 at the end, or -1 for a line that is not two tokens. XLM's lines are split at any white space. */
int tok_legacy_merge(const tok_legacy *l, const char **p, tok_token pair[2]);

/* ---- writing (legacy_json.c) ----------------------------------------------------------------- */

by_status tok_legacy_write(tok_legacy *l);
void tok_legacy_put_vocab(const tok_vocab *v, int count,
                          base_buf *out); /* {"token": id, ...} of ids below count */

/* ---- Marian's pair of models (marian_pair.c) ------------------------------------------------- */

by_tokenizer *tok_marian_load(tok_legacy *l);

#endif
