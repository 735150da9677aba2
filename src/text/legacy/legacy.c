/* legacy.c - model directories without tokenizer.json: vocab.json with merges.txt, vocab.txt, spiece.model,
 * XLM's codes. Each is converted to the tokenizer.json that the reference library would make, and then read
 * as one, so there is one way to encode, and saving writes a file that can be read everywhere. This file
 * determines the family of a directory and its special tokens. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "text/legacy/legacy.h"

#define FILE_LIMIT ((size_t)256 << 20)

static const char *const role_keys[TOK_ROLES] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                 "pad_token", "cls_token", "mask_token"};
const char *const tok_legacy_role_names[TOK_ROLES] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};

#define GPT2_ROLES                                                                \
    {                                                                             \
        "<|endoftext|>", "<|endoftext|>", "<|endoftext|>", NULL, NULL, NULL, NULL \
    }
#define ROBERTA_ROLES                                            \
    {                                                            \
        "<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>" \
    }
#define BERT_ROLES                                               \
    {                                                            \
        NULL, NULL, "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]" \
    }
#define BERT_SINGLE "cls A sep"
#define BERT_PAIR   "cls A sep B:1 sep:1"

static const tok_family families[] = {
    {"GPT2Tokenizer", "gpt2", TOK_LEGACY_GPT2, GPT2_ROLES, NULL, NULL},
    {"OpenAIGPTTokenizer",
     "openai-gpt",
     TOK_LEGACY_GPT,
     {NULL, NULL, "<unk>", NULL, NULL, NULL, NULL},
     NULL,
     NULL},
    {"RobertaTokenizer", "roberta", TOK_LEGACY_ROBERTA, ROBERTA_ROLES, "cls A sep", "cls A sep sep B sep"},
    {"BartTokenizer", "bart", TOK_LEGACY_ROBERTA, ROBERTA_ROLES, "cls A sep", "cls A sep sep B sep"},
    {"BertTokenizer", "bert", TOK_LEGACY_BERT, BERT_ROLES, BERT_SINGLE, BERT_PAIR},
    {"DistilBertTokenizer", "distilbert", TOK_LEGACY_BERT, BERT_ROLES, BERT_SINGLE, BERT_PAIR},
    {"ElectraTokenizer", "electra", TOK_LEGACY_BERT, BERT_ROLES, BERT_SINGLE, BERT_PAIR},
    {"T5Tokenizer",
     "t5",
     TOK_LEGACY_T5,
     {NULL, "</s>", "<unk>", NULL, "<pad>", NULL, NULL},
     "A eos",
     "A eos B eos"},
    {"AlbertTokenizer",
     "albert",
     TOK_LEGACY_ALBERT,
     {"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"},
     BERT_SINGLE,
     BERT_PAIR},
    {"XLNetTokenizer",
     "xlnet",
     TOK_LEGACY_XLNET,
     {"<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"},
     "A sep cls:2",
     "A sep B:1 sep:1 cls:2"},
    {"XLMRobertaTokenizer", "xlm-roberta", TOK_LEGACY_XLMR, ROBERTA_ROLES, "bos A eos",
     "bos A eos eos B eos"},
    {"LlamaTokenizer",
     "llama",
     TOK_LEGACY_LLAMA,
     {"<s>", "</s>", "<unk>", NULL, NULL, NULL, NULL},
     NULL,
     NULL}, /* its template depends on add_bos_token and add_eos_token */
    {"XLMTokenizer",
     "xlm",
     TOK_LEGACY_XLM,
     {"<s>", NULL, "<unk>", "</s>", "<pad>", "</s>", "<special1>"},
     "bos A sep",
     "bos A sep B:1 sep:1"},
    {"MarianTokenizer",
     "marian",
     TOK_LEGACY_MARIAN,
     {NULL, "</s>", "<unk>", NULL, "<pad>", NULL, NULL},
     NULL,
     NULL},
};

static void legacy_free(tok_legacy *l)
{
    cJSON_Delete(l->config);
    cJSON_Delete(l->map);
    cJSON_Delete(l->more);
    tok_vocab_free(&l->vocab);
    tok_spiece_free(&l->spiece);
    base_free(l->vocab_text);
    base_free(l->merges_text);
    for (int i = 0; i < l->count; i++)
        base_free(l->tokens[i].content);
    base_free(l->tokens);
    base_buf_free(&l->out);
}

/* ---- files ----------------------------------------------------------------------------------- */

bool tok_legacy_has(const tok_legacy *l, const char *name)
{
    char *path = base_path_join(l->dir, name);
    bool there = path && base_file_exists(path);
    base_free(path);
    return there;
}

char *tok_legacy_file(const tok_legacy *l, const char *name, size_t *size)
{
    char *path = base_path_join(l->dir, name);
    char *text = path ? base_file_read(path, FILE_LIMIT, size) : NULL;
    base_free(path);
    return text;
}

by_status tok_legacy_read_json(const tok_legacy *l, const char *name, cJSON **out)
{
    size_t size = 0;
    if (!tok_legacy_has(l, name))
        return BY_OK;
    char *text = tok_legacy_file(l, name, &size);
    if (!text)
        return base_error_status();
    const char *stop;
    *out = base_json_text_tree(text, size, &stop);
    bool valid = !*out && base_json_well_formed(text);
    base_free(text);
    if (valid)
        return base_fail(BY_ERR_MEMORY, "%s/%s: out of memory", l->dir, name);
    return *out ? BY_OK : base_fail(BY_ERR_FORMAT, "%s/%s is not JSON", l->dir, name);
}

/* ---- settings -------------------------------------------------------------------------------- */

bool tok_legacy_setting(const tok_legacy *l, const char *key, bool fallback)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(l->config, key);
    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : fallback;
}

static const cJSON *role_value(const tok_legacy *l, int role)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(l->config, role_keys[role]);
    if (!tok_special_text(v))
        v = cJSON_GetObjectItemCaseSensitive(l->map, role_keys[role]);
    return tok_special_text(v) ? v : NULL;
}

const char *tok_legacy_role(const tok_legacy *l, int role)
{
    const cJSON *v = role_value(l, role);
    return v ? tok_special_text(v) : l->family->roles[role];
}

static const tok_family *family_of(const char *class, size_t class_size, const char *model)
{
    for (int i = 0; i < BY_COUNT(families); i++) {
        const tok_family *f = &families[i];
        if (class ? strlen(f->class) == class_size && memcmp(f->class, class, class_size) == 0
                  : model && strcmp(f->model_type, model) == 0)
            return f;
    }
    return NULL;
}

/* Guesses the family from the files present, if nothing names it. */
static const tok_family *guess_family(const tok_legacy *l)
{
    const char *class = tok_legacy_has(l, "source.spm")   ? "MarianTokenizer"
                        : tok_legacy_has(l, "vocab.txt")  ? "BertTokenizer"
                        : tok_legacy_has(l, "merges.txt") ? "GPT2Tokenizer"
                                                          : NULL;
    return class ? family_of(class, strlen(class), NULL) : NULL;
}

/* Determines the family: by tokenizer_class, otherwise model_type of config.json, otherwise the files
 * present. */
static by_status find_family(tok_legacy *l)
{
    const char *class = tok_stage_string(l->config, "tokenizer_class");
    size_t n = class ? strlen(class) : 0;
    n -= n > 4 && strcmp(class + n - 4, "Fast") == 0 ? 4 : 0;
    cJSON *config = NULL;
    if (!class)
        BY_TRY(tok_legacy_read_json(l, "config.json", &config));
    const char *model = tok_stage_string(config, "model_type");
    l->family = class || model ? family_of(class, n, model) : guess_family(l);
    by_status status = BY_OK;
    if (!l->family && class)
        status = base_fail(BY_ERR_UNSUPPORTED,
                           "%s: the tokenizer class %.60s requires a tokenizer.json, which is missing",
                           l->dir, class);
    else if (!l->family && model)
        status = base_fail(
            BY_ERR_UNSUPPORTED,
            "%s: no tokenizer: tokenizer.json is missing, and no older format is known for the type %.60s",
            l->dir, model);
    else if (!l->family)
        status = base_fail(BY_ERR_IO,
                           "%s: found no tokenizer.json, and no vocab.json with merges.txt, vocab.txt or "
                           "spiece.model with a tokenizer_config.json that names its class",
                           l->dir);
    cJSON_Delete(config);
    return status;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* id -1: the id in the vocabulary, or the next free one. A token that already exists is unchanged, but can
 * become special. */
static by_status add_token(tok_legacy *l, const char *content, int id, bool special, const cJSON *flags)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->tokens[i].content, content) == 0) {
            l->tokens[i].special = l->tokens[i].special || special;
            return BY_OK;
        }
    if (!content[0])
        return BY_OK;
    if (l->count == l->capacity) {
        int capacity = BY_MAX(l->capacity * 2, 16);
        tok_legacy_token *tokens = base_resize(l->tokens, (size_t)capacity, sizeof(*tokens));
        if (!tokens)
            return BY_ERR_MEMORY;
        l->tokens = tokens;
        l->capacity = capacity;
    }
    int known = tok_vocab_find(&l->vocab, content, strlen(content));
    id = known >= 0 ? known : id >= 0 ? id : l->vocab.count;
    if (known < 0)
        BY_TRY(tok_vocab_put(&l->vocab, content, strlen(content), id));
    tok_legacy_token t = {.content = base_strdup(content), .id = id, .special = special};
    t.lstrip = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "lstrip"));
    t.rstrip = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "rstrip"));
    t.single_word = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "single_word"));
    t.normalized = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "normalized"));
    if (!t.content)
        return BY_ERR_MEMORY;
    l->tokens[l->count++] = t;
    return BY_OK;
}

static by_status add_listed(tok_legacy *l, const cJSON *list)
{
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next)
        if (tok_special_text(item))
            BY_TRY(add_token(l, tok_special_text(item), -1, true, cJSON_IsObject(item) ? item : NULL));
    return BY_OK;
}

/* Reads {"id": {"content": ...}} of tokenizer_config.json and {"token": id} of added_tokens.json. */
static by_status add_numbered(tok_legacy *l)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(l->config, "added_tokens_decoder");
    for (const cJSON *item = cJSON_IsObject(list) ? list->child : NULL; item; item = item->next)
        if (tok_special_text(item))
            BY_TRY(add_token(l, tok_special_text(item), atoi(item->string),
                             cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "special")), item));
    for (const cJSON *item = cJSON_IsObject(l->more) ? l->more->child : NULL; item; item = item->next)
        if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < (1 << 24))
            BY_TRY(add_token(l, item->string, item->valueint, false, NULL));
    return BY_OK;
}

/* Adds tokens that the vocabulary itself marks: SentencePiece's control and user-defined pieces, T5's
 * sentinels, XLM's special tokens. */
static by_status add_marked(tok_legacy *l)
{
    for (int id = 0; id < l->spiece.count; id++) {
        int type = l->spiece.types[id];
        if (type == TOK_PIECE_CONTROL || type == TOK_PIECE_USER)
            BY_TRY(add_token(l, l->spiece.vocab.tokens[id].text, -1, type == TOK_PIECE_CONTROL, NULL));
    }
    const char *prefix = l->family->flavor == TOK_LEGACY_T5    ? "<extra_id_"
                         : l->family->flavor == TOK_LEGACY_XLM ? "<special"
                                                               : NULL;
    for (int id = l->spiece.count; prefix && id < l->vocab.count; id++) {
        const char *text = l->vocab.tokens[id].text;
        if (text && strncmp(text, prefix, strlen(prefix)) == 0 && text[strlen(text) - 1] == '>')
            BY_TRY(add_token(l, text, -1, true, NULL));
    }
    return BY_OK;
}

static by_status collect_tokens(tok_legacy *l)
{
    BY_TRY(add_numbered(l));
    for (int r = 0; r < TOK_ROLES; r++) {
        const char *content = tok_legacy_role(l, r);
        const cJSON *value = role_value(l, r);
        if (content)
            BY_TRY(add_token(l, content, -1, true, cJSON_IsObject(value) ? value : NULL));
    }
    for (int i = 0; i < BY_COUNT(tok_special_lists); i++) {
        BY_TRY(add_listed(l, cJSON_GetObjectItemCaseSensitive(l->map, tok_special_lists[i])));
        BY_TRY(add_listed(l, cJSON_GetObjectItemCaseSensitive(l->config, tok_special_lists[i])));
    }
    return add_marked(l);
}

/* ---- loading --------------------------------------------------------------------------------- */

static by_status read_settings(tok_legacy *l)
{
    BY_TRY(tok_legacy_read_json(l, "tokenizer_config.json", &l->config));
    BY_TRY(tok_legacy_read_json(l, "special_tokens_map.json", &l->map));
    BY_TRY(tok_legacy_read_json(l, "added_tokens.json", &l->more));
    return find_family(l);
}

/* tokenizer.json cannot represent XLM's word splitting: such a tokenizer is saved as the files that the
 * reference reads. */
static by_status keep_xlm(tok_legacy *l, by_tokenizer *t)
{
    static const char config[] = "{\"tokenizer_class\": \"XLMTokenizer\"}\n";
    base_buf vocab = {0};
    tok_legacy_put_vocab(&l->vocab, l->known, &vocab);
    by_status status = vocab.failed ? base_fail(BY_ERR_MEMORY, "out of memory while reading %s", l->dir)
                                    : tok_keep(t, "vocab.json", vocab.data, vocab.size);
    base_buf_free(&vocab);
    if (status == BY_OK)
        status = tok_keep(t, "merges.txt", l->merges_text, strlen(l->merges_text));
    if (status == BY_OK && !l->config)
        status = tok_keep(t, "tokenizer_config.json", config, strlen(config));
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "added_tokens.json"};
    for (int i = 0; i < BY_COUNT(names) && status == BY_OK; i++)
        status = tok_keep_file(t, l->dir, names[i]);
    return status;
}

static by_tokenizer *load(tok_legacy *l)
{
    if (l->family->flavor == TOK_LEGACY_MARIAN)
        return tok_marian_load(l);
    if (tok_legacy_read_vocab(l) != BY_OK || collect_tokens(l) != BY_OK || tok_legacy_write(l) != BY_OK)
        return NULL;
    by_tokenizer *t = tok_parse(l->out.data, l->out.size, l->dir);
    if (t && l->family->flavor == TOK_LEGACY_XLM && keep_xlm(l, t) != BY_OK) {
        by_tokenizer_free(t);
        return NULL;
    }
    return t;
}

by_tokenizer *tok_legacy_load(const char *dir)
{
    tok_legacy l = {.dir = dir};
    by_tokenizer *t = read_settings(&l) == BY_OK ? load(&l) : NULL;
    if (t && tok_legacy_role(&l, TOK_ROLE_EOS))
        tok_set_eos(t, tok_legacy_role(&l, TOK_ROLE_EOS));
    legacy_free(&l);
    return t;
}
