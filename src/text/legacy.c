/* legacy.c - model directories from before tokenizer.json: vocab.json with merges.txt, vocab.txt,
 * spiece.model. Each is rewritten as the tokenizer.json that the reference library makes of it and then read
 * as one, so there is one way to encode, and saving writes a file that can be read everywhere. */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "text/spiece.h"

#define FILE_LIMIT ((size_t)256 << 20)

enum { FROM_BPE, FROM_WORDPIECE, FROM_SPIECE };
enum { BOS, EOS, UNK, SEP, PAD, CLS, MASK, ROLES };
static const char *const role_keys[ROLES] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token"};
static const char *const role_names[ROLES] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};

/* Templates: role names, A and B, each with its segment where that is not 0. */
typedef struct family {
    const char *class, *model_type; /* as in tokenizer_config.json and config.json */
    int source;
    const char *roles[ROLES];
    const char *single, *pair;
} family;

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

static const family families[] = {
    {"GPT2Tokenizer", "gpt2", FROM_BPE, GPT2_ROLES, NULL, NULL},
    {"OpenAIGPTTokenizer", "openai-gpt", FROM_BPE, {NULL, NULL, "<unk>", NULL, NULL, NULL, NULL}, NULL, NULL},
    {"RobertaTokenizer", "roberta", FROM_BPE, ROBERTA_ROLES, "cls A sep", "cls A sep sep B sep"},
    {"BartTokenizer", "bart", FROM_BPE, ROBERTA_ROLES, "cls A sep", "cls A sep sep B sep"},
    {"BertTokenizer", "bert", FROM_WORDPIECE, BERT_ROLES, BERT_SINGLE, BERT_PAIR},
    {"DistilBertTokenizer", "distilbert", FROM_WORDPIECE, BERT_ROLES, BERT_SINGLE, BERT_PAIR},
    {"ElectraTokenizer", "electra", FROM_WORDPIECE, BERT_ROLES, BERT_SINGLE, BERT_PAIR},
    {"T5Tokenizer",
     "t5",
     FROM_SPIECE,
     {NULL, "</s>", "<unk>", NULL, "<pad>", NULL, NULL},
     "A eos",
     "A eos B eos"},
    {"AlbertTokenizer",
     "albert",
     FROM_SPIECE,
     {"[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"},
     BERT_SINGLE,
     BERT_PAIR},
    {"XLNetTokenizer",
     "xlnet",
     FROM_SPIECE,
     {"<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"},
     "A sep cls:2",
     "A sep B:1 sep:1 cls:2"},
    {"XLMRobertaTokenizer", "xlm-roberta", FROM_SPIECE, ROBERTA_ROLES, "bos A eos", "bos A eos eos B eos"},
};

typedef struct added {
    char *content;
    int id;
    bool special, lstrip, rstrip, normalized, single_word;
} added;

typedef struct legacy {
    const char *dir;
    cJSON *config, *map,
        *more; /* tokenizer_config.json, special_tokens_map.json, added_tokens.json; NULL where absent */
    const family *family;
    by_vocab vocab;
    by_spiece spiece;
    char *vocab_text, *merges_text;
    added *tokens;
    int count, capacity;
    by_buf out;
} legacy;

static void legacy_free(legacy *l)
{
    cJSON_Delete(l->config);
    cJSON_Delete(l->map);
    cJSON_Delete(l->more);
    by_vocab_free(&l->vocab);
    by_spiece_free(&l->spiece);
    by_free(l->vocab_text);
    by_free(l->merges_text);
    for (int i = 0; i < l->count; i++)
        by_free(l->tokens[i].content);
    by_free(l->tokens);
    by_buf_free(&l->out);
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool has_file(const char *dir, const char *name)
{
    char *path = by_path_join(dir, name);
    bool there = path && by_file_exists(path);
    by_free(path);
    return there;
}

/* NULL after by_fail. */
static char *read_file(const char *dir, const char *name, size_t *size)
{
    char *path = by_path_join(dir, name);
    char *text = path ? by_file_read(path, FILE_LIMIT, size) : NULL;
    by_free(path);
    return text;
}

/* *out stays NULL when there is no such file. */
static by_status read_json(const char *dir, const char *name, cJSON **out)
{
    size_t size = 0;
    if (!has_file(dir, name))
        return BY_OK;
    char *text = read_file(dir, name, &size);
    if (!text)
        return by_error_status();
    *out = cJSON_ParseWithLengthOpts(text, size + 1, NULL, true);
    by_free(text);
    return *out ? BY_OK : by_fail(BY_ERR_FORMAT, "%s/%s is not JSON", dir, name);
}

static void put_string(by_buf *out, const char *s, size_t n)
{
    by_buf_puts(out, "\"");
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)s[i];
        if (c < 0x20)
            by_buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            by_buf_put(out, (char[2]){'\\', (char)c}, 2);
        else
            by_buf_put(out, s + i, 1);
    }
    by_buf_puts(out, "\"");
}

/* ---- settings -------------------------------------------------------------------------------- */

static bool setting(const legacy *l, const char *key, bool fallback)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(l->config, key);
    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : fallback;
}

/* A special token is a string, or an object with its content and flags. */
static const char *content_of(const cJSON *v)
{
    const char *text = cJSON_GetStringValue(v);
    return text ? text : by_stage_string(v, "content");
}

static const cJSON *role_value(const legacy *l, int role)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(l->config, role_keys[role]);
    if (!content_of(v))
        v = cJSON_GetObjectItemCaseSensitive(l->map, role_keys[role]);
    return content_of(v) ? v : NULL;
}

static const char *role_content(const legacy *l, int role)
{
    const cJSON *v = role_value(l, role);
    return v ? content_of(v) : l->family->roles[role];
}

/* The family: tokenizer_class, else model_type of config.json, else what the files look like. */
static by_status find_family(legacy *l)
{
    const char *class = by_stage_string(l->config, "tokenizer_class");
    size_t n = class ? strlen(class) : 0;
    n -= n > 4 && strcmp(class + n - 4, "Fast") == 0 ? 4 : 0;
    cJSON *config = NULL;
    if (!class)
        BY_TRY(read_json(l->dir, "config.json", &config));
    const char *model = by_stage_string(config, "model_type");
    for (int i = 0; i < BY_COUNT(families) && !l->family; i++) {
        const family *f = &families[i];
        if (class ? strlen(f->class) == n && memcmp(f->class, class, n) == 0
                  : model && strcmp(f->model_type, model) == 0)
            l->family = f;
    }
    if (!l->family && !class && !model && has_file(l->dir, "vocab.txt"))
        l->family = &families[4];
    if (!l->family && !class && !model && has_file(l->dir, "merges.txt"))
        l->family = &families[0];
    by_status status = BY_OK;
    if (!l->family && (class || model))
        status =
            by_fail(BY_ERR_UNSUPPORTED,
                    "%s: the tokenizer class %.60s is known only by its tokenizer.json, which is not there",
                    l->dir, class ? class : model);
    else if (!l->family)
        status = by_fail(BY_ERR_IO,
                         "%s: there is no tokenizer.json, and no vocab.json with merges.txt, vocab.txt or "
                         "spiece.model with a "
                         "tokenizer_config.json that names its class",
                         l->dir);
    cJSON_Delete(config);
    return status;
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static by_status read_bpe_files(legacy *l)
{
    size_t size = 0;
    cJSON *vocab = NULL;
    l->vocab_text = read_file(l->dir, "vocab.json", &size);
    l->merges_text = l->vocab_text ? read_file(l->dir, "merges.txt", NULL) : NULL;
    if (!l->merges_text)
        return by_error_status();
    BY_TRY(read_json(l->dir, "vocab.json", &vocab));
    by_status status = by_vocab_read(&l->vocab, vocab);
    cJSON_Delete(vocab);
    return status == BY_OK ? BY_OK : by_fail_context("%s/vocab.json", l->dir);
}

/* One token a line; the line is the id. */
static by_status read_vocab_txt(legacy *l)
{
    size_t size = 0;
    char *text = read_file(l->dir, "vocab.txt", &size);
    if (!text)
        return by_error_status();
    by_status status = BY_OK;
    int id = 0;
    for (size_t i = 0; i < size && status == BY_OK; id++) {
        const char *end = memchr(text + i, '\n', size - i);
        size_t n = end ? (size_t)(end - (text + i)) : size - i, next = i + n + 1;
        n -= n > 0 && text[i + n - 1] == '\r';
        status = by_vocab_put(&l->vocab, text + i, n, id);
        i = next;
    }
    by_free(text);
    return status == BY_OK ? BY_OK : by_fail_context("%s/vocab.txt", l->dir);
}

static by_status read_spiece_file(legacy *l)
{
    static const char *const names[] = {"spiece.model", "sentencepiece.bpe.model", "spm.model"};
    int k = 0;
    while (k < BY_COUNT(names) - 1 && !has_file(l->dir, names[k]))
        k++;
    size_t size = 0;
    char *bytes = read_file(l->dir, names[has_file(l->dir, names[k]) ? k : 0], &size);
    if (!bytes)
        return by_error_status();
    by_status status = by_spiece_parse(&l->spiece, bytes, size);
    by_free(bytes);
    if (status == BY_OK && l->spiece.model != BY_SPIECE_UNIGRAM)
        status = by_fail(BY_ERR_UNSUPPORTED, "%s wants a unigram model, this one is BPE", l->family->class);
    return status == BY_OK ? BY_OK : by_fail_context("%s/%s", l->dir, names[k]);
}

/* The pieces as the family numbers them: T5 appends its sentinels, XLM-RoBERTa has an order of its own for
 * the first and a mask. */
static by_status number_pieces(legacy *l)
{
    const by_spiece *m = &l->spiece;
    bool xlmr = strcmp(l->family->class, "XLMRobertaTokenizer") == 0;
    static const char *const first[] = {"<s>", "<pad>", "</s>", "<unk>"};
    int id = 0;
    for (; xlmr && id < 4; id++)
        BY_TRY(by_vocab_put(&l->vocab, first[id], strlen(first[id]), id));
    for (int i = xlmr ? 3 : 0; i < m->count; i++, id++)
        BY_TRY(by_vocab_put(&l->vocab, m->vocab.tokens[i].text, m->vocab.tokens[i].size, id));
    if (xlmr)
        return by_vocab_put(&l->vocab, "<mask>", 6, id);
    if (strcmp(l->family->class, "T5Tokenizer") != 0)
        return BY_OK;
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(l->config, "extra_ids");
    int count = cJSON_IsNumber(extra) && extra->valuedouble >= 0 && extra->valuedouble <= 10000
                    ? (int)extra->valuedouble
                    : 100;
    for (int i = count - 1; i >= 0; i--, id++) {
        char text[32];
        int n = snprintf(text, sizeof(text), "<extra_id_%d>", i);
        BY_TRY(by_vocab_put(&l->vocab, text, (size_t)n, id));
    }
    return BY_OK;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

/* id -1: the one it has in the vocabulary, or the next free one. A token that is there already stays as it
 * is, but can become special. */
static by_status add_token(legacy *l, const char *content, int id, bool special, const cJSON *flags)
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
        added *tokens = by_resize(l->tokens, (size_t)capacity, sizeof(*tokens));
        if (!tokens)
            return BY_ERR_MEMORY;
        l->tokens = tokens;
        l->capacity = capacity;
    }
    int known = by_vocab_find(&l->vocab, content, strlen(content));
    id = known >= 0 ? known : id >= 0 ? id : l->vocab.count;
    if (known < 0)
        BY_TRY(by_vocab_put(&l->vocab, content, strlen(content), id));
    added t = {.content = by_strdup(content), .id = id, .special = special};
    t.lstrip = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "lstrip"));
    t.rstrip = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "rstrip"));
    t.single_word = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "single_word"));
    t.normalized = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(flags, "normalized"));
    if (!t.content)
        return BY_ERR_MEMORY;
    l->tokens[l->count++] = t;
    return BY_OK;
}

static by_status add_listed(legacy *l, const cJSON *list)
{
    for (const cJSON *item = cJSON_IsArray(list) ? list->child : NULL; item; item = item->next)
        if (content_of(item))
            BY_TRY(add_token(l, content_of(item), -1, true, cJSON_IsObject(item) ? item : NULL));
    return BY_OK;
}

/* tokenizer_config.json's {"id": {"content": ...}} and added_tokens.json's {"token": id}. */
static by_status add_numbered(legacy *l)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(l->config, "added_tokens_decoder");
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
        if (content_of(item))
            BY_TRY(add_token(l, content_of(item), atoi(item->string),
                             cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "special")), item));
    for (const cJSON *item = l->more ? l->more->child : NULL; item; item = item->next)
        if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < (1 << 24))
            BY_TRY(add_token(l, item->string, item->valueint, false, NULL));
    return BY_OK;
}

static by_status collect_tokens(legacy *l)
{
    BY_TRY(add_numbered(l));
    for (int r = 0; r < ROLES; r++) {
        const char *content = role_content(l, r);
        const cJSON *value = role_value(l, r);
        if (content)
            BY_TRY(add_token(l, content, -1, true, cJSON_IsObject(value) ? value : NULL));
    }
    BY_TRY(add_listed(l, cJSON_GetObjectItemCaseSensitive(l->map, "additional_special_tokens")));
    BY_TRY(add_listed(l, cJSON_GetObjectItemCaseSensitive(l->config, "additional_special_tokens")));
    for (int id = 0; id < l->spiece.count; id++) {
        int type = l->spiece.types[id];
        if (type == BY_PIECE_CONTROL || type == BY_PIECE_USER)
            BY_TRY(add_token(l, l->spiece.vocab.tokens[id].text, -1, type == BY_PIECE_CONTROL, NULL));
    }
    for (int id = l->spiece.count; id < l->vocab.count && l->family->source == FROM_SPIECE; id++)
        if (l->vocab.tokens[id].text && strncmp(l->vocab.tokens[id].text, "<extra_id_", 10) == 0)
            BY_TRY(add_token(l, l->vocab.tokens[id].text, -1, true, NULL));
    return BY_OK;
}

static int compare_ids(const void *a, const void *b)
{
    return ((const added *)a)->id - ((const added *)b)->id;
}

/* ---- writing tokenizer.json ------------------------------------------------------------------ */

static const char *json_bool(bool v)
{
    return v ? "true" : "false";
}

static void put_added(legacy *l)
{
    by_buf *out = &l->out;
    qsort(l->tokens, (size_t)l->count, sizeof(*l->tokens), compare_ids);
    by_buf_puts(out, "  \"added_tokens\": [");
    for (int i = 0; i < l->count; i++) {
        const added *t = &l->tokens[i];
        by_buf_printf(out, "%s\n    {\"id\": %d, \"content\": ", i ? "," : "", t->id);
        put_string(out, t->content, strlen(t->content));
        by_buf_printf(
            out,
            ", \"single_word\": %s, \"lstrip\": %s, \"rstrip\": %s, \"normalized\": %s, \"special\": %s}",
            json_bool(t->single_word), json_bool(t->lstrip), json_bool(t->rstrip), json_bool(t->normalized),
            json_bool(t->special));
    }
    by_buf_puts(out, "\n  ],\n");
}

/* BERT's cleaning; strip_accents follows the case unless it is set. */
static void put_bert_normalizer(legacy *l)
{
    const cJSON *strip = cJSON_GetObjectItemCaseSensitive(l->config, "strip_accents");
    bool gpt = l->family->source == FROM_BPE;
    by_buf_printf(&l->out,
                  "{\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": %s, "
                  "\"strip_accents\": %s, \"lowercase\": %s}",
                  json_bool(gpt || setting(l, "tokenize_chinese_chars", true)),
                  cJSON_IsBool(strip) && !gpt ? json_bool(cJSON_IsTrue(strip)) : "null",
                  json_bool(gpt || setting(l, "do_lower_case", true)));
}

static void put_map(legacy *l)
{
    by_buf_puts(&l->out, "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
    by_base64_encode(l->spiece.charsmap.data, l->spiece.charsmap.size, &l->out);
    by_buf_puts(&l->out, "\"}");
}

/* ALBERT and XLNet: quotes, accents and case before the model's own map; T5 and XLM-RoBERTa: the map alone.
 */
static void put_spiece_normalizer(legacy *l)
{
    bool xlnet = strcmp(l->family->class, "XLNetTokenizer") == 0,
         albert = strcmp(l->family->class, "AlbertTokenizer") == 0;
    if (!xlnet && !albert) {
        if (l->spiece.charsmap.size)
            put_map(l);
        else
            by_buf_puts(&l->out, "null");
        return;
    }
    by_buf_puts(&l->out, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Replace\", \"pattern\": "
                         "{\"String\": \"``\"}, "
                         "\"content\": \"\\\"\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \"''\"}, "
                         "\"content\": \"\\\"\"}");
    if (xlnet || !setting(l, "keep_accents", false))
        by_buf_puts(&l->out, ", {\"type\": \"NFKD\"}, {\"type\": \"StripAccents\"}");
    if (setting(l, "do_lower_case", albert))
        by_buf_puts(&l->out, ", {\"type\": \"Lowercase\"}");
    if (l->spiece.charsmap.size) {
        by_buf_puts(&l->out, ", ");
        put_map(l);
    }
    by_buf_puts(&l->out, "]}");
}

/* Normaliser, pre-tokenizer and decoder. */
static void put_stages(legacy *l)
{
    bool gpt = strcmp(l->family->class, "OpenAIGPTTokenizer") == 0;
    by_buf_puts(&l->out, "  \"normalizer\": ");
    if (l->family->source == FROM_WORDPIECE || gpt)
        put_bert_normalizer(l);
    else if (l->family->source == FROM_SPIECE)
        put_spiece_normalizer(l);
    else
        by_buf_puts(&l->out, "null");
    by_buf_puts(&l->out, ",\n  \"pre_tokenizer\": ");
    if (l->family->source == FROM_SPIECE)
        by_buf_puts(&l->out,
                    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, "
                    "{\"type\": \"Metaspace\", "
                    "\"replacement\": \"\xe2\x96\x81\", \"prepend_scheme\": \"always\", \"split\": true}]},\n"
                    "  \"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\xe2\x96\x81\", "
                    "\"prepend_scheme\": \"always\", \"split\": true},\n");
    else if (l->family->source == FROM_WORDPIECE)
        by_buf_puts(&l->out,
                    "{\"type\": \"BertPreTokenizer\"},\n"
                    "  \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", \"cleanup\": true},\n");
    else if (gpt)
        by_buf_puts(&l->out, "{\"type\": \"BertPreTokenizer\"},\n"
                             "  \"decoder\": {\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"},\n");
    else
        by_buf_printf(
            &l->out,
            "{\"type\": \"ByteLevel\", \"add_prefix_space\": %s, \"trim_offsets\": true, \"use_regex\": "
            "true},\n"
            "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
            "\"use_regex\": true},\n",
            json_bool(setting(l, "add_prefix_space", false)));
}

/* One template in tokenizer.json's words, from one of a family's. */
static void put_template(legacy *l, const char *key, const char *template)
{
    by_buf *out = &l->out;
    by_buf_printf(out, "\"%s\": [", key);
    for (const char *p = template; *p;) {
        size_t n = strcspn(p, " :");
        int type = p[n] == ':' ? p[n + 1] - '0' : 0;
        int role = 0;
        while (role < ROLES && (strlen(role_names[role]) != n || memcmp(role_names[role], p, n) != 0))
            role++;
        if (role == ROLES) {
            by_buf_printf(out, "{\"Sequence\": {\"id\": \"%c\", \"type_id\": %d}}", p[0], type);
        } else {
            const char *content = role_content(l, role);
            by_buf_puts(out, "{\"SpecialToken\": {\"id\": ");
            put_string(out, content, strlen(content));
            by_buf_printf(out, ", \"type_id\": %d}}", type);
        }
        p += n + (p[n] == ':' ? 2 : 0);
        if (*p == ' ') {
            by_buf_puts(out, ", ");
            p++;
        }
    }
    by_buf_puts(out, "], ");
}

static void put_post(legacy *l)
{
    by_buf *out = &l->out;
    const char *cls = role_content(l, CLS), *sep = role_content(l, SEP);
    if (!l->family->single) {
        by_buf_puts(out, "  \"post_processor\": null,\n");
        return;
    }
    if (l->family->source == FROM_BPE) {
        by_buf_puts(out, "  \"post_processor\": {\"type\": \"RobertaProcessing\", \"sep\": [");
        put_string(out, sep, strlen(sep));
        by_buf_printf(out, ", %d], \"cls\": [", (int)by_vocab_find(&l->vocab, sep, strlen(sep)));
        put_string(out, cls, strlen(cls));
        by_buf_printf(out, ", %d], \"trim_offsets\": true, \"add_prefix_space\": %s},\n",
                      (int)by_vocab_find(&l->vocab, cls, strlen(cls)),
                      json_bool(setting(l, "add_prefix_space", false)));
        return;
    }
    by_buf_puts(out, "  \"post_processor\": {\"type\": \"TemplateProcessing\", ");
    put_template(l, "single", l->family->single);
    put_template(l, "pair", l->family->pair);
    by_buf_puts(out, "\"special_tokens\": {");
    bool first = true;
    for (int r = 0; r < ROLES; r++) {
        const char *content = role_content(l, r);
        if (!content || !strstr(l->family->single, role_names[r]))
            continue;
        by_buf_puts(out, first ? "" : ", ");
        put_string(out, content, strlen(content));
        by_buf_puts(out, ": {\"id\": ");
        put_string(out, content, strlen(content));
        by_buf_printf(out, ", \"ids\": [%d], \"tokens\": [",
                      (int)by_vocab_find(&l->vocab, content, strlen(content)));
        put_string(out, content, strlen(content));
        by_buf_puts(out, "]}");
        first = false;
    }
    by_buf_puts(out, "}},\n");
}

/* "a b" a line, after an optional first line "#version: ...". */
static by_status put_merges(legacy *l)
{
    by_buf_puts(&l->out, ",\n    \"merges\": [");
    const char *p = l->merges_text;
    bool first = true;
    for (int line = 1; *p; line++) {
        size_t n = strcspn(p, "\n"), next = n + (p[n] == '\n');
        n -= n > 0 && p[n - 1] == '\r';
        const char *space = memchr(p, ' ', n);
        if (n && !(line == 1 && strncmp(p, "#version", 8) == 0)) {
            if (!space || space == p || space == p + n - 1)
                return by_fail(BY_ERR_FORMAT, "%s/merges.txt: line %d is not two tokens", l->dir, line);
            size_t left = (size_t)(space - p);
            by_buf_puts(&l->out, first ? "\n      [" : ",\n      [");
            put_string(&l->out, p, left);
            by_buf_puts(&l->out, ", ");
            put_string(&l->out, space + 1, n - left - 1);
            by_buf_puts(&l->out, "]");
            first = false;
        }
        p += next;
    }
    by_buf_puts(&l->out, "\n    ]");
    return BY_OK;
}

static void put_pieces(legacy *l)
{
    const by_spiece *m = &l->spiece;
    const char *unk = role_content(l, UNK);
    int count = 0;
    by_buf_printf(&l->out, "\"unk_id\": %d, \"byte_fallback\": false,\n    \"vocab\": [",
                  (int)BY_MAX(by_vocab_find(&l->vocab, unk, strlen(unk)), 0));
    bool xlmr = strcmp(l->family->class, "XLMRobertaTokenizer") == 0;
    for (int id = 0; id < l->vocab.count; id++) {
        const by_token *t = &l->vocab.tokens[id];
        int32_t piece = t->text ? by_vocab_find(&m->vocab, t->text, t->size) : -1;
        bool sentinel = t->text && (strncmp(t->text, "<extra_id_", 10) == 0 || xlmr);
        if (piece < 0 && !sentinel)
            break; /* from here on the ids belong to added tokens alone */
        by_buf_puts(&l->out, count++ ? ",\n      [" : "\n      [");
        put_string(&l->out, t->text, t->size);
        by_buf_printf(&l->out, ", %.17g]",
                      xlmr && id < 4 ? 0.0
                      : piece >= 0   ? (double)m->scores[piece]
                                     : 0.0);
    }
    by_buf_puts(&l->out, "\n    ]");
}

static by_status put_model(legacy *l)
{
    by_buf *out = &l->out;
    by_buf_puts(out, "  \"model\": {");
    if (l->family->source == FROM_SPIECE) {
        by_buf_puts(out, "\"type\": \"Unigram\", ");
        put_pieces(l);
    } else if (l->family->source == FROM_WORDPIECE) {
        const char *unk = role_content(l, UNK);
        by_buf_puts(out, "\"type\": \"WordPiece\", \"unk_token\": ");
        put_string(out, unk, strlen(unk));
        by_buf_puts(
            out,
            ", \"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 100,\n    \"vocab\": {");
        bool first = true;
        for (int id = 0; id < l->vocab.count; id++) {
            const by_token *t = &l->vocab.tokens[id];
            if (!t->text)
                continue;
            by_buf_puts(out, first ? "\n      " : ",\n      ");
            put_string(out, t->text, t->size);
            by_buf_printf(out, ": %d", id);
            first = false;
        }
        by_buf_puts(out, "\n    }");
    } else {
        bool gpt = strcmp(l->family->class, "OpenAIGPTTokenizer") == 0;
        const char *unk = role_content(l, UNK);
        by_buf_puts(out, "\"type\": \"BPE\", \"dropout\": null, \"unk_token\": ");
        if (gpt)
            put_string(out, unk, strlen(unk));
        else
            by_buf_puts(out, "null");
        by_buf_printf(
            out,
            ", \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"%s\", \"fuse_unk\": false, "
            "\"byte_fallback\": false, \"ignore_merges\": false,\n    \"vocab\": ",
            gpt ? "</w>" : "");
        by_buf_puts(out, l->vocab_text);
        BY_TRY(put_merges(l));
    }
    by_buf_puts(out, "\n  }\n}\n");
    return BY_OK;
}

static by_status convert(legacy *l)
{
    BY_TRY(read_json(l->dir, "tokenizer_config.json", &l->config));
    BY_TRY(read_json(l->dir, "special_tokens_map.json", &l->map));
    BY_TRY(read_json(l->dir, "added_tokens.json", &l->more));
    BY_TRY(find_family(l));
    if (l->family->source == FROM_BPE) {
        BY_TRY(read_bpe_files(l));
    } else if (l->family->source == FROM_WORDPIECE) {
        BY_TRY(read_vocab_txt(l));
    } else {
        BY_TRY(read_spiece_file(l));
        BY_TRY(number_pieces(l));
    }
    BY_TRY(collect_tokens(l));
    by_buf_puts(&l->out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
    put_added(l);
    put_stages(l);
    put_post(l);
    BY_TRY(put_model(l));
    return l->out.failed ? by_fail(BY_ERR_MEMORY, "out of memory reading %s", l->dir) : BY_OK;
}

by_tokenizer *by_legacy_load(const char *dir)
{
    legacy l = {.dir = dir};
    by_tokenizer *t = NULL;
    if (convert(&l) == BY_OK)
        t = by_tokenizer_parse(l.out.data, l.out.size, dir);
    if (t && role_content(&l, EOS))
        by_tokenizer_set_eos(t, role_content(&l, EOS));
    legacy_free(&l);
    return t;
}
