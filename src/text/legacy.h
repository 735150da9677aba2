/* legacy.h - model directories from before tokenizer.json, while they are being read. Private to legacy*.c
 * and marian.c. */
#ifndef BY_TEXT_LEGACY_H
#define BY_TEXT_LEGACY_H

#include "text/spiece.h"

typedef enum by_flavor {
    BY_LEGACY_GPT2,
    BY_LEGACY_GPT,
    BY_LEGACY_ROBERTA,
    BY_LEGACY_BERT,
    BY_LEGACY_T5,
    BY_LEGACY_ALBERT,
    BY_LEGACY_XLNET,
    BY_LEGACY_XLMR,
    BY_LEGACY_LLAMA,
    BY_LEGACY_XLM,
    BY_LEGACY_MARIAN
} by_flavor;

enum { BY_ROLE_BOS, BY_ROLE_EOS, BY_ROLE_UNK, BY_ROLE_SEP, BY_ROLE_PAD, BY_ROLE_CLS, BY_ROLE_MASK, BY_ROLES };

/* Templates: role names, A and B, each with its segment where that is not 0. */
typedef struct by_family {
    const char *class, *model_type; /* as in tokenizer_config.json and config.json */
    by_flavor flavor;
    const char *roles[BY_ROLES]; /* special tokens, where the files do not say otherwise */
    const char *single, *pair;
} by_family;

typedef struct by_legacy_token {
    char *content;
    int id;
    bool special, lstrip, rstrip, normalized, single_word;
} by_legacy_token;

typedef struct by_legacy {
    const char *dir;
    /* tokenizer_config.json, special_tokens_map.json, added_tokens.json; NULL where absent */
    cJSON *config, *map, *more;
    const by_family *family;
    by_vocab vocab; /* all tokens, as the family numbers them */
    int known;      /* XLM: ids from here on are steps of merging only */
    by_spiece spiece;
    char *vocab_text, *merges_text;
    by_legacy_token *tokens;
    int count, capacity;
    by_buf out; /* the tokenizer.json */
} by_legacy;

/* ---- files and settings (legacy.c) ----------------------------------------------------------- */

bool by_legacy_has(const by_legacy *l, const char *name);
char *by_legacy_file(const by_legacy *l, const char *name, size_t *size); /* NULL after by_fail */
by_status by_legacy_read_json(const by_legacy *l, const char *name,
                              cJSON **out); /* stays NULL without the file */
bool by_legacy_setting(const by_legacy *l, const char *key, bool fallback);
const char *by_legacy_role(const by_legacy *l, int role); /* the special token of that role, or NULL */
extern const char *const by_legacy_role_names[BY_ROLES];  /* as templates have them */

/* ---- vocabularies (legacy_vocab.c) ----------------------------------------------------------- */

by_status by_legacy_read_vocab(by_legacy *l);

/* "a b" or "a b count" a line of merges.txt, from *p on: the two tokens, and *p behind the line. 1, 0 at the
 * end, -1 for a line that is not two tokens. XLM's lines are split at any white space. */
int by_legacy_merge(const by_legacy *l, const char **p, by_token pair[2]);

/* ---- writing (legacy_json.c) ----------------------------------------------------------------- */

by_status by_legacy_write(by_legacy *l);
void by_legacy_put_vocab(const by_vocab *v, int count,
                         by_buf *out); /* {"token": id, ...} of ids below count */

/* ---- Marian's pair of models (marian.c) ------------------------------------------------------ */

by_tokenizer *by_marian_load(by_legacy *l);

#endif
