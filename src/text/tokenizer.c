/* tokenizer.c - what all kinds of tokenizers share: dispatch, the files of a model directory, lists of ids.
 */
#include "base/file.h"
#include "text/kind.h"
#include "text/pipeline.h"
#include "text/spiece.h"

#define TOKENIZER_JSON_LIMIT ((size_t)256 << 20) /* the largest published ones are about 35 MB */

static const by_text_kind *const kinds[] = {&by_text_bytes, &by_text_chars, &by_text_pipeline};

/* The first kind that matches and reads it. What the simple kinds cannot do is left to the pipeline, which
 * can do all or says why not. */
static by_tokenizer *read_kind(const cJSON *root, const char *json, size_t size)
{
    for (int k = 0; k < BY_COUNT(kinds); k++) {
        if (!kinds[k]->match(root))
            continue;
        by_tokenizer *t = kinds[k]->read(root);
        if (t && kinds[k] == &by_text_pipeline && by_pipeline_keep(t, json, size) != BY_OK) {
            by_tokenizer_free(t);
            return NULL;
        }
        if (t || by_error_status() != BY_ERR_UNSUPPORTED || k == BY_COUNT(kinds) - 1)
            return t;
        by_error_clear();
    }
    by_fail(BY_ERR_FORMAT, "this is not a JSON object");
    return NULL;
}

by_tokenizer *by_tokenizer_parse(const char *json, size_t size, const char *name)
{
    const char *stop = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(json, size + 1, &stop, true);
    if (!root) {
        by_fail(BY_ERR_FORMAT, "%s: not JSON from byte %zu on", name, stop ? (size_t)(stop - json) : 0);
        return NULL;
    }
    by_tokenizer *t = read_kind(root, json, size);
    if (!t)
        by_fail_context("%s", name);
    cJSON_Delete(root);
    return t;
}

/* A file by itself: JSON, or else a SentencePiece model. */
static by_tokenizer *load_file(const char *file)
{
    size_t size = 0, i = 0;
    char *bytes = by_file_read(file, TOKENIZER_JSON_LIMIT, &size);
    if (!bytes)
        return NULL;
    while (i < size && strchr(" \t\r\n", bytes[i]))
        i++;
    by_tokenizer *t = NULL;
    by_spiece model;
    if (i == size || bytes[i] == '{' || bytes[i] == '[' || bytes[i] == '"')
        t = by_tokenizer_parse(bytes, size, file);
    else if (by_spiece_parse(&model, bytes, size) != BY_OK || !(t = by_spiece_tokenizer(&model)))
        by_fail_context("%s: neither JSON nor a SentencePiece model", file);
    by_free(bytes);
    return t;
}

/* What tokenizer_config.json adds to a tokenizer.json: the end of text and the chat template. A damaged one
 * is an error. */
static by_status read_config(by_tokenizer *t, const char *dir)
{
    char *path = by_path_join(dir, "tokenizer_config.json");
    if (!path)
        return BY_ERR_MEMORY;
    by_status status = BY_OK;
    if (by_file_exists(path)) {
        char *text = by_file_read(path, TOKENIZER_JSON_LIMIT, NULL);
        cJSON *root = text ? cJSON_Parse(text) : NULL;
        if (!text)
            status = by_error_status();
        else if (!root)
            status = by_fail(BY_ERR_FORMAT, "%s is not JSON", path);
        const cJSON *eos = cJSON_GetObjectItemCaseSensitive(root, "eos_token");
        const char *name = cJSON_IsObject(eos) ? by_stage_string(eos, "content") : cJSON_GetStringValue(eos);
        const char *chat = by_stage_string(root, "chat_template");
        if (name)
            by_tokenizer_set_eos(t, name);
        if (chat && !(t->chat_template = by_strdup(chat)))
            status = BY_ERR_MEMORY;
        cJSON_Delete(root);
        by_free(text);
    }
    by_free(path);
    return status;
}

by_tokenizer *by_tokenizer_load(const char *path)
{
    if (!by_dir_exists(path))
        return load_file(path);
    char *file = by_path_join(path, "tokenizer.json");
    if (!file)
        return NULL;
    by_tokenizer *t = by_file_exists(file) ? load_file(file) : by_legacy_load(path);
    by_free(file);
    if (t && read_config(t, path) != BY_OK) {
        by_tokenizer_free(t);
        t = NULL;
    }
    return t;
}

const char *by_tokenizer_chat_template(const by_tokenizer *t)
{
    return t->chat_template;
}

by_status by_tokenizer_format(const by_tokenizer *t, by_buf *out)
{
    if (t->kind == &by_text_spiece)
        return by_fail(BY_ERR_UNSUPPORTED,
                       "a bare SentencePiece model cannot be written as tokenizer.json; load its directory");
    t->kind->write(t, out);
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory writing tokenizer.json") : BY_OK;
}

/* What makes the reference library's AutoTokenizer take tokenizer.json as it is. */
static by_status format_config(const by_tokenizer *t, by_buf *out)
{
    if (t->config) {
        by_buf_puts(out, t->config);
        return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory writing tokenizer_config.json") : BY_OK;
    }
    by_buf_puts(out, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n");
    if (t->eos_text)
        by_buf_printf(out, "  \"eos_token\": \"%s\",\n", t->eos_text);
    by_buf_puts(out, "  \"clean_up_tokenization_spaces\": false\n}\n");
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory writing tokenizer_config.json") : BY_OK;
}

static by_status save_file(const by_tokenizer *t, const char *dir, const char *name,
                           by_status (*format)(const by_tokenizer *, by_buf *))
{
    by_buf text = {0};
    char *path = by_path_join(dir, name);
    by_status status = path ? format(t, &text) : BY_ERR_MEMORY;
    if (status == BY_OK)
        status = by_file_write(path, text.data, text.size);
    by_buf_free(&text);
    by_free(path);
    return status;
}

by_status by_tokenizer_write(const by_tokenizer *t, const char *path)
{
    return save_file(t, NULL, path, by_tokenizer_format);
}

by_status by_tokenizer_save(const by_tokenizer *t, const char *dir)
{
    BY_TRY(by_dir_make(dir));
    BY_TRY(save_file(t, dir, "tokenizer.json", by_tokenizer_format));
    return save_file(t, dir, "tokenizer_config.json", format_config);
}

void by_tokenizer_free(by_tokenizer *t)
{
    if (!t)
        return;
    by_free(t->chat_template);
    by_free(t->config);
    t->kind->free(t);
}

const char *by_tokenizer_kind(const by_tokenizer *t)
{
    return t->kind == &by_text_pipeline ? by_pipeline_type(t) : t->kind->name;
}

uint64_t by_tokenizer_hash(const by_tokenizer *t)
{
    by_buf text = {0};
    t->kind->write(t, &text);
    uint64_t hash = by_hash(text.data ? text.data : "", text.size, 0);
    by_buf_free(&text);
    return hash;
}

int32_t by_tokenizer_find(const by_tokenizer *t, const char *token)
{
    const char *text;
    if (t->kind->find)
        return t->kind->find(t, token, &text);
    return t->eos_text && strcmp(token, t->eos_text) == 0 ? t->eos : -1;
}

void by_tokenizer_set_eos(by_tokenizer *t, const char *token)
{
    const char *text = NULL;
    int32_t id = t->kind->find ? t->kind->find(t, token, &text) : -1;
    if (id >= 0) {
        t->eos = id;
        t->eos_text = text;
    }
}

int by_tokenizer_vocab_size(const by_tokenizer *t)
{
    return t->vocab_size;
}

int by_tokenizer_eos(const by_tokenizer *t)
{
    return t->eos;
}

by_status by_tokenizer_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    return t->kind->encode(t, text, size, out);
}

static by_status check_ids(const by_tokenizer *t, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return by_fail(BY_ERR_ARGUMENT, "id %d at position %zu is outside the vocabulary of %d",
                           (int)ids[i], i, t->vocab_size);
    return BY_OK;
}

by_status by_tokenizer_decode(const by_tokenizer *t, const int32_t *ids, size_t count, by_buf *out)
{
    BY_TRY(check_ids(t, ids, count));
    t->kind->decode(t, ids, count, out);
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory decoding %zu ids", count) : BY_OK;
}

by_status by_tokenizer_decode_with(const by_tokenizer *t, const int32_t *ids, size_t count,
                                   const by_decode_spec *spec, by_buf *out)
{
    BY_TRY(check_ids(t, ids, count));
    if (t->kind->decode_with)
        return t->kind->decode_with(t, ids, count, spec, out);
    for (size_t i = 0; i < count; i++)
        if (!spec->skip_special || ids[i] != t->eos)
            t->kind->decode(t, &ids[i], 1, out);
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory decoding %zu ids", count) : BY_OK;
}

/* For kinds where each id is some bytes of the text and nothing else. */
static by_status encode_plain(const by_tokenizer *t, const char *text, size_t size,
                              const by_encode_spec *spec, by_encoding *out)
{
    if (spec->pair)
        return by_fail(BY_ERR_UNSUPPORTED, "a %s tokenizer has no pairs of texts", by_tokenizer_kind(t));
    BY_TRY(t->kind->encode(t, text, size, &out->ids));
    size_t n = out->ids.count, at = 0;
    out->types = by_alloc_zero(n + 1, 1);
    out->special = by_alloc_zero(n + 1, 1);
    out->offsets = spec->offsets ? by_alloc_zero(n + 1, sizeof(*out->offsets)) : NULL;
    if (!out->types || !out->special || (spec->offsets && !out->offsets))
        return BY_ERR_MEMORY;
    by_buf piece = {0};
    for (size_t i = 0; i < n && spec->offsets; i++) {
        piece.size = 0;
        t->kind->decode(t, &out->ids.data[i], 1, &piece);
        out->offsets[i] = (by_offset){(uint32_t)at, (uint32_t)(at + piece.size)};
        at += piece.size;
    }
    by_status status = piece.failed ? by_fail(BY_ERR_MEMORY, "out of memory encoding a text") : BY_OK;
    by_buf_free(&piece);
    return status;
}

by_status by_tokenizer_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                   const by_encode_spec *spec, by_encoding *out)
{
    *out = (by_encoding){0};
    return (t->kind->encode_with ? t->kind->encode_with : encode_plain)(t, text, size, spec, out);
}

void by_encoding_free(by_encoding *e)
{
    by_ids_free(&e->ids);
    by_free(e->offsets);
    by_free(e->types);
    by_free(e->special);
    *e = (by_encoding){0};
}

size_t by_tokenizer_cut(const by_tokenizer *t, const char *text, size_t size)
{
    return t->kind->cut(t, text, size);
}

by_status by_ids_reserve(by_ids *v, size_t extra)
{
    size_t need;
    if (!by_add_size(v->count, extra, &need))
        return by_fail(BY_ERR_MEMORY, "a list of ids is too long");
    if (need <= v->capacity && v->data)
        return BY_OK;
    size_t capacity = BY_MAX(BY_MAX(need, v->capacity + v->capacity / 2), (size_t)64);
    int32_t *data = by_resize(v->data, capacity, sizeof(*data));
    if (!data)
        return BY_ERR_MEMORY;
    v->data = data;
    v->capacity = capacity;
    return BY_OK;
}

by_status by_ids_push(by_ids *v, int32_t id)
{
    BY_TRY(by_ids_reserve(v, 1));
    v->data[v->count++] = id;
    return BY_OK;
}

void by_ids_free(by_ids *v)
{
    by_free(v->data);
    *v = (by_ids){0};
}

/* ---- whole texts, for users of the library --------------------------------------------------- */

int32_t *by_encode(const by_tokenizer *t, const char *text, size_t size, size_t *count)
{
    by_ids ids = {0};
    if (by_ids_reserve(&ids, 1) != BY_OK || by_tokenizer_encode(t, text, size, &ids) != BY_OK) {
        by_ids_free(&ids);
        return NULL;
    }
    *count = ids.count;
    return ids.data;
}

char *by_decode(const by_tokenizer *t, const int32_t *ids, size_t count, size_t *size)
{
    by_buf text = {0};
    by_buf_puts(&text, "");
    by_status s = by_tokenizer_decode(t, ids, count, &text);
    if (s == BY_OK && (text.failed || !text.data))
        s = by_fail(BY_ERR_MEMORY, "out of memory while decoding %zu ids", count);
    if (s != BY_OK) {
        by_buf_free(&text);
        return NULL;
    }
    if (size)
        *size = text.size;
    return text.data;
}

void by_release(void *memory)
{
    by_free(memory);
}
