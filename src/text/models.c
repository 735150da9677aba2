/* models.c - what the models of tokenizer.json share: choosing one by its type, vocabularies, and reading
 * JSON strictly. */
#include "base/json.h"
#include "text/pipeline.h"

by_status by_json_only(const cJSON *object, const char *what, const char *const *keys, int count)
{
    for (const cJSON *item = object ? object->child : NULL; item; item = item->next) {
        int k = 0;
        while (k < count && (!item->string || strcmp(item->string, keys[k]) != 0))
            k++;
        if (k == count)
            return by_fail(BY_ERR_UNSUPPORTED, "%s has the unknown setting \"%.60s\"", what,
                           item->string ? item->string : "");
    }
    return BY_OK;
}

by_status by_json_fields(const cJSON *object, const char *what, const char *const *keys, int most)
{
    const char *all[8] = {"type"};
    int count = 1;
    while (count <= most && count < BY_COUNT(all) && keys[count - 1]) {
        all[count] = keys[count - 1];
        count++;
    }
    return by_json_only(object, what, all, count);
}

static by_status read_nested(const cJSON *json, const by_sequence *s, void *out, int depth)
{
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    if (depth > BY_MAX_NESTING)
        return by_fail(BY_ERR_FORMAT, "%s are nested more than %d deep", s->what, BY_MAX_NESTING);
    if (strcmp(by_json_type(json), "Sequence") != 0)
        return s->read(json, by_json_type(json), out);
    BY_TRY(by_json_fields(json, s->what, &s->key, 1));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, s->key);
    for (const cJSON *item = list ? list->child : NULL; item; item = item->next)
        BY_TRY(read_nested(item, s, out, depth + 1));
    return BY_OK;
}

by_status by_sequence_read(const cJSON *json, const by_sequence *s, void *out)
{
    return read_nested(json, s, out, 0);
}

by_status by_stage_bool(const cJSON *object, const char *key, bool fallback, bool *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item && !cJSON_IsNull(item) && !cJSON_IsBool(item))
        return by_fail(BY_ERR_FORMAT, "\"%s\" is neither true nor false", key);
    *out = cJSON_IsBool(item) ? cJSON_IsTrue(item) : fallback;
    return BY_OK;
}

const char *by_stage_string(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

const char *by_json_type(const cJSON *object)
{
    const char *type = by_stage_string(object, "type");
    return type ? type : "";
}

/* Everything is kept as it is but what JSON does not allow. */
void by_json_put_string(by_buf *out, const char *s, size_t n)
{
    by_buf_puts(out, "\"");
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)s[i];
        if (c < 0x20)
            by_buf_printf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            by_buf_put(out, (char[2]){'\\', (char)c}, 2);
        else if (c == 0xc0 && i + 1 < n && memcmp(s + i, BY_JSON_NUL, 2) == 0) {
            by_buf_puts(out, "\\u0000");
            i++;
        } else
            by_buf_put(out, s + i, 1);
    }
    by_buf_puts(out, "\"");
}

by_status by_chars_set(by_chars *s, const char *json)
{
    by_chars_free(s);
    s->data = by_json_unmask(json, &s->size);
    return s->data ? BY_OK : BY_ERR_MEMORY;
}

by_status by_chars_read(const cJSON *object, const char *key, by_chars *out)
{
    const char *text = by_stage_string(object, key);
    return text ? by_chars_set(out, text) : BY_OK;
}

void by_chars_free(by_chars *s)
{
    by_free(s->data);
    *s = (by_chars){0};
}

by_status by_pattern_read(const cJSON *json, by_chars *text, by_regex **regex)
{
    by_chars pattern = {0};
    BY_TRY(by_chars_read(json, "String", text));
    if (text->data)
        return BY_OK;
    BY_TRY(by_chars_read(json, "Regex", &pattern));
    if (!pattern.data)
        return BY_OK;
    *regex = by_regex_new(pattern.data, pattern.size);
    by_chars_free(&pattern);
    return *regex ? BY_OK : by_error_status();
}

by_status by_vocab_put_json(by_vocab *v, const char *json, int id)
{
    if (!strstr(json, BY_JSON_NUL))
        return by_vocab_put(v, json, strlen(json), id);
    by_chars s = {0};
    BY_TRY(by_chars_set(&s, json));
    by_status status = by_vocab_put(v, s.data, s.size, id);
    by_chars_free(&s);
    return status;
}

by_status by_vocab_read(by_vocab *v, const cJSON *json)
{
    if (!cJSON_IsObject(json))
        return by_fail(BY_ERR_FORMAT, "the model has no \"vocab\" object");
    for (const cJSON *item = json->child; item; item = item->next) {
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id < INT32_MAX) || id != (int)id)
            return by_fail(BY_ERR_FORMAT, "the id of token \"%.40s\" is not a whole number", item->string);
        BY_TRY(by_vocab_put_json(v, item->string, (int)id));
    }
    return BY_OK;
}

by_status by_spans_push(by_spans *v, size_t start, size_t end)
{
    if (v->count == v->capacity) {
        size_t capacity = BY_MAX(v->capacity * 2, (size_t)64);
        by_span_place *data = by_resize(v->data, capacity, sizeof(*data));
        if (!data)
            return BY_ERR_MEMORY;
        v->data = data;
        v->capacity = capacity;
    }
    v->data[v->count++] = (by_span_place){.start = (uint32_t)start, .end = (uint32_t)end};
    return BY_OK;
}

by_text_model *by_text_model_read(const cJSON *json)
{
    if (!cJSON_IsObject(json)) {
        by_fail(BY_ERR_FORMAT, "there is no \"model\" object");
        return NULL;
    }
    const char *type = by_json_type(json);
    if (!type[0]) { /* files of the first versions leave it out; the members tell */
        if (cJSON_GetObjectItemCaseSensitive(json, "merges"))
            type = "BPE";
        else if (cJSON_GetObjectItemCaseSensitive(json, "max_input_chars_per_word"))
            type = "WordPiece";
        else
            type = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, "vocab")) ? "Unigram" : "WordLevel";
    }
    if (strcmp(type, "BPE") == 0)
        return by_bpe_read(json);
    if (strcmp(type, "WordPiece") == 0)
        return by_wordpiece_read(json);
    if (strcmp(type, "WordLevel") == 0)
        return by_wordlevel_read(json);
    if (strcmp(type, "Unigram") == 0)
        return by_unigram_read(json);
    by_fail(BY_ERR_UNSUPPORTED,
            "models of type \"%.60s\" are not supported (BPE, WordPiece, WordLevel and Unigram are)", type);
    return NULL;
}

void by_text_model_free(by_text_model *m)
{
    if (!m)
        return;
    m->free(m);
    by_vocab_free(&m->vocab);
    by_free(m);
}
