/* tokenizer_models.c - shared by the models of tokenizer.json: selection by type, vocabularies, and strict
 * reading of JSON. */
#include "base/json.h"
#include "text/pipeline.h"

by_status tok_json_only(const cJSON *object, const char *what, const char *const *keys, int count)
{
    for (const cJSON *item = object ? object->child : NULL; item; item = item->next) {
        int k = 0;
        while (k < count && (!item->string || strcmp(item->string, keys[k]) != 0))
            k++;
        if (k == count)
            return base_fail(BY_ERR_UNSUPPORTED, "%s has the unknown setting \"%.60s\"", what,
                             item->string ? item->string : "");
    }
    return BY_OK;
}

by_status tok_json_fields(const cJSON *object, const char *what, const char *const *keys, int most)
{
    const char *all[8] = {"type"};
    int count = 1;
    while (count <= most && count < BY_COUNT(all) && keys[count - 1]) {
        all[count] = keys[count - 1];
        count++;
    }
    return tok_json_only(object, what, all, count);
}

static by_status read_nested(const cJSON *json, const tok_sequence *s, void *out, int depth)
{
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    if (depth > TOK_MAX_NESTING)
        return base_fail(BY_ERR_FORMAT, "%s are nested more than %d levels deep", s->what, TOK_MAX_NESTING);
    if (strcmp(tok_json_type(json), "Sequence") != 0)
        return s->read(json, tok_json_type(json), out);
    BY_TRY(tok_json_fields(json, s->what, &s->key, 1));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, s->key);
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
        BY_TRY(read_nested(item, s, out, depth + 1));
    return BY_OK;
}

by_status tok_sequence_read(const cJSON *json, const tok_sequence *s, void *out)
{
    return read_nested(json, s, out, 0);
}

by_status tok_stage_bool(const cJSON *object, const char *key, bool fallback, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item && !cJSON_IsNull(item) && !cJSON_IsBool(item))
        return base_fail(BY_ERR_FORMAT, "\"%s\" is not true or false", key);
    *out = cJSON_IsBool(item) ? cJSON_IsTrue(item) : fallback;
    return BY_OK;
}

const char *tok_stage_string(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

const char *tok_json_type(const cJSON *object)
{
    const char *type = tok_stage_string(object, "type");
    return type ? type : "";
}

/* Escapes only what JSON does not allow. */
void tok_json_put_string(base_buf *out, const char *s, size_t n)
{
    base_buf_puts(out, "\"");
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)s[i];
        if (c < 0x20)
            base_buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            base_buf_put(out, (char[2]){'\\', (char)c}, 2);
        else if (c == 0xc0 && i + 1 < n && memcmp(s + i, BY_JSON_NUL, 2) == 0) {
            base_buf_puts(out, "\\u0000");
            i++;
        } else
            base_buf_put(out, s + i, 1);
    }
    base_buf_puts(out, "\"");
}

by_status tok_chars_set(tok_chars *s, const char *json)
{
    tok_chars_free(s);
    s->data = base_json_unmask(json, &s->size);
    return s->data ? BY_OK : BY_ERR_MEMORY;
}

by_status tok_chars_read(const cJSON *object, const char *key, tok_chars *out)
{
    const char *text = tok_stage_string(object, key);
    return text ? tok_chars_set(out, text) : BY_OK;
}

void tok_chars_free(tok_chars *s)
{
    base_free(s->data);
    *s = (tok_chars){0};
}

by_status tok_pattern_read(const cJSON *json, tok_chars *text, tok_regex **regex)
{
    tok_chars pattern = {0};
    BY_TRY(tok_chars_read(json, "String", text));
    if (text->data)
        return BY_OK;
    BY_TRY(tok_chars_read(json, "Regex", &pattern));
    if (!pattern.data)
        return BY_OK;
    *regex = tok_regex_new(pattern.data, pattern.size);
    tok_chars_free(&pattern);
    return *regex ? BY_OK : base_error_status();
}

by_status tok_vocab_put_json(tok_vocab *v, const char *json, int id)
{
    if (!strstr(json, BY_JSON_NUL))
        return tok_vocab_put(v, json, strlen(json), id);
    tok_chars s = {0};
    BY_TRY(tok_chars_set(&s, json));
    by_status status = tok_vocab_put(v, s.data, s.size, id);
    tok_chars_free(&s);
    return status;
}

by_status tok_vocab_read(tok_vocab *v, const cJSON *json)
{
    if (!cJSON_IsObject(json))
        return base_fail(BY_ERR_FORMAT, "the model has no \"vocab\" object");
    for (const cJSON *item = json->child; item; item = item->next) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id < INT32_MAX) || id != (int)id)
            return base_fail(BY_ERR_FORMAT, "the id of token \"%.40s\" is not an integer", item->string);
        BY_TRY(tok_vocab_put_json(v, item->string, (int)id));
    }
    return BY_OK;
}

by_status tok_spans_push(tok_spans *v, size_t start, size_t end)
{
    if (v->count == v->capacity) {
        size_t capacity = BY_MAX(v->capacity * 2, (size_t)64);
        tok_span_place *data = base_resize(v->data, capacity, sizeof(*data));
        if (!data)
            return BY_ERR_MEMORY;
        v->data = data;
        v->capacity = capacity;
    }
    v->data[v->count++] = (tok_span_place){.start = (uint32_t)start, .end = (uint32_t)end};
    return BY_OK;
}

tok_text_model *tok_text_model_read(const cJSON *json)
{
    if (!cJSON_IsObject(json)) {
        base_fail(BY_ERR_FORMAT, "there is no \"model\" object");
        return NULL;
    }
    const char *type = tok_json_type(json);
    if (!type[0]) { /* the first versions omit the type; the members identify it */
        if (cJSON_GetObjectItemCaseSensitive(json, "merges"))
            type = "BPE";
        else if (cJSON_GetObjectItemCaseSensitive(json, "max_input_chars_per_word"))
            type = "WordPiece";
        else
            type = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, "vocab")) ? "Unigram" : "WordLevel";
    }
    if (strcmp(type, "BPE") == 0)
        return tok_bpe_read(json);
    if (strcmp(type, "WordPiece") == 0)
        return tok_wordpiece_read(json);
    if (strcmp(type, "WordLevel") == 0)
        return tok_wordlevel_read(json);
    if (strcmp(type, "Unigram") == 0)
        return tok_unigram_read(json);
    base_fail(BY_ERR_UNSUPPORTED,
              "models of type \"%.60s\" are not supported (BPE, WordPiece, WordLevel and Unigram are)", type);
    return NULL;
}

void tok_text_model_free(tok_text_model *m)
{
    if (!m)
        return;
    m->free(m);
    tok_vocab_free(&m->vocab);
    base_free(m);
}
