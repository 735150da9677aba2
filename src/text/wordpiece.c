/* wordpiece.c - WordPiece (Schuster and Nakajima 2012; Wu et al. 2016): takes the longest known prefix, then
 * the longest known continuation, and so on; a word that cannot be completed is unknown as a whole.
 * WordLevel, where a word is known or not, is here too. */
#include "text/pipeline.h"
#include "text/utf8.h"

typedef struct wordpiece {
    tok_text_model base;
    tok_chars unk_token, prefix;
    int32_t unk;
    double max_chars;
} wordpiece;

static by_status put_unknown(const wordpiece *w, by_ids *out, tok_spans *spans, size_t ids, size_t span_count,
                             size_t size)
{
    if (w->unk < 0)
        return base_fail(BY_ERR_FORMAT, "the unknown token \"%.40s\" is not in the vocabulary",
                         w->unk_token.data);
    out->count = ids;
    BY_TRY(tok_ids_push(out, w->unk));
    if (!spans)
        return BY_OK;
    spans->count = span_count;
    return tok_spans_push(spans, 0, size);
}

static size_t count_chars(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)s[i] & 0xc0) != 0x80;
    return count;
}

/* Returns the longest token that starts at text + start and sets *end, or returns -1. key: the prefix, then
 * room for the longest token. */
static int32_t longest_token(const wordpiece *w, char *key, const char *text, size_t size, size_t start,
                             size_t *end)
{
    const tok_vocab *v = &w->base.vocab;
    size_t before = start ? w->prefix.size : 0;
    size_t room = v->longest > before ? v->longest - before : 0, n = BY_MIN(size - start, room);
    memcpy(key + w->prefix.size, text + start, n);
    for (; n > 0; n--) {
        if (start + n < size && ((uint8_t)text[start + n] & 0xc0) == 0x80)
            continue; /* inside a character */
        int32_t id = tok_vocab_find(v, key + w->prefix.size - before, before + n);
        if (id >= 0) {
            *end = start + n;
            return id;
        }
    }
    return -1;
}

static by_status wordpiece_encode(const tok_text_model *m, tok_scratch *s, const char *text, size_t size,
                                  by_ids *out, tok_spans *spans)
{
    const wordpiece *w = (const wordpiece *)m;
    size_t ids = out->count, span_count = spans ? spans->count : 0;
    if (size > w->max_chars && (double)count_chars(text, size) > w->max_chars)
        return put_unknown(w, out, spans, ids, span_count, size);
    char *key = tok_scratch_memory(s, w->prefix.size + m->vocab.longest + 1);
    if (!key)
        return BY_ERR_MEMORY;
    memcpy(key, w->prefix.data, w->prefix.size);
    for (size_t start = 0, end = 0; start < size; start = end) {
        int32_t id = longest_token(w, key, text, size, start, &end);
        if (id < 0)
            return put_unknown(w, out, spans, ids, span_count, size);
        BY_TRY(tok_ids_push(out, id));
        if (spans)
            BY_TRY(tok_spans_push(spans, start, end));
    }
    return BY_OK;
}

/* A word without an entry becomes the unknown token. */
static by_status wordlevel_encode(const tok_text_model *m, tok_scratch *s, const char *text, size_t size,
                                  by_ids *out, tok_spans *spans)
{
    const wordpiece *w = (const wordpiece *)m;
    (void)s;
    int32_t id = tok_vocab_find(&m->vocab, text, size);
    if (id < 0)
        return put_unknown(w, out, spans, out->count, spans ? spans->count : 0, size);
    BY_TRY(tok_ids_push(out, id));
    return spans ? tok_spans_push(spans, 0, size) : BY_OK;
}

static void wordpiece_free(tok_text_model *m)
{
    wordpiece *w = (wordpiece *)m;
    tok_chars_free(&w->unk_token);
    tok_chars_free(&w->prefix);
}

static by_status read_model(wordpiece *w, const cJSON *json)
{
    const cJSON *chars = cJSON_GetObjectItemCaseSensitive(json, "max_input_chars_per_word");
    BY_TRY(tok_chars_set(&w->prefix, "##"));
    BY_TRY(tok_chars_read(json, "continuing_subword_prefix", &w->prefix));
    BY_TRY(tok_chars_read(json, "unk_token", &w->unk_token));
    if (!w->unk_token.data)
        return base_fail(BY_ERR_FORMAT, "a %s model has no \"unk_token\"", w->base.type);
    w->max_chars = cJSON_IsNumber(chars) ? chars->valuedouble : 100;
    BY_TRY(tok_vocab_read(&w->base.vocab, cJSON_GetObjectItemCaseSensitive(json, "vocab")));
    w->unk = tok_vocab_find(&w->base.vocab, w->unk_token.data, w->unk_token.size);
    return BY_OK;
}

static tok_text_model *new_model(tok_text_model base, const cJSON *json, const char *const *keys, int count)
{
    if (tok_json_only(json, base.type, keys, count) != BY_OK)
        return NULL;
    wordpiece *w = base_alloc_zero(1, sizeof(*w));
    if (!w)
        return NULL;
    w->base = base;
    if (read_model(w, json) == BY_OK)
        return &w->base;
    tok_text_model_free(&w->base);
    return NULL;
}

tok_text_model *tok_wordpiece_read(const cJSON *json)
{
    static const char *const keys[] = {"type", "unk_token", "continuing_subword_prefix",
                                       "max_input_chars_per_word", "vocab"};
    tok_text_model base = {.type = "WordPiece", .encode = wordpiece_encode, .free = wordpiece_free};
    return new_model(base, json, keys, BY_COUNT(keys));
}

tok_text_model *tok_wordlevel_read(const cJSON *json)
{
    static const char *const keys[] = {"type", "unk_token", "vocab"};
    tok_text_model base = {.type = "WordLevel", .encode = wordlevel_encode, .free = wordpiece_free};
    return new_model(base, json, keys, BY_COUNT(keys));
}
