/* tokenizer.c - what all kinds of tokenizers share: dispatch, the files of a model directory, lists of ids.
 */
#include "base/file.h"
#include "text/kind.h"

#define TOKENIZER_JSON_LIMIT ((size_t)256 << 20) /* the largest published ones are about 35 MB */

static const by_text_kind *const kinds[] = {&by_text_bytes, &by_text_chars};

/* Say what a tokenizer.json is that no kind matched. */
static void fail_unknown(const cJSON *root)
{
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(model, "type"));
    if (!cJSON_IsObject(model)) {
        by_fail(BY_ERR_FORMAT, "there is no \"model\" object");
        return;
    }
    const cJSON *pre = cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer");
    const char *pre_type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(pre, "type"));
    int merges = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(model, "merges"));
    by_fail(BY_ERR_UNSUPPORTED, "tokenizers of kind %.40s (pre-tokenizer %.40s, %d merges) are not supported",
            type ? type : "without a type", pre_type ? pre_type : "none", merges);
}

by_tokenizer *by_tokenizer_parse(const char *json, size_t size, const char *name)
{
    const char *stop = NULL;
    cJSON *root = cJSON_ParseWithLengthOpts(json, size + 1, &stop, true);
    by_tokenizer *t = NULL;
    if (!root) {
        by_fail(BY_ERR_FORMAT, "%s: not JSON from byte %zu on", name, stop ? (size_t)(stop - json) : 0);
        return NULL;
    }
    int k = 0;
    while (k < BY_COUNT(kinds) && !kinds[k]->match(root))
        k++;
    if (k < BY_COUNT(kinds))
        t = kinds[k]->read(root);
    else
        fail_unknown(root);
    if (!t)
        by_fail_context("%s", name);
    cJSON_Delete(root);
    return t;
}

by_tokenizer *by_tokenizer_load(const char *path)
{
    char *file = by_dir_exists(path) ? by_path_join(path, "tokenizer.json") : by_strdup(path);
    size_t size = 0;
    char *json = file ? by_file_read(file, TOKENIZER_JSON_LIMIT, &size) : NULL;
    by_tokenizer *t = json ? by_tokenizer_parse(json, size, file) : NULL;
    by_free(json);
    by_free(file);
    return t;
}

by_status by_tokenizer_format(const by_tokenizer *t, by_buf *out)
{
    t->kind->write(t, out);
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory writing tokenizer.json") : BY_OK;
}

/* What makes the reference library's AutoTokenizer take tokenizer.json as it is. */
static by_status format_config(const by_tokenizer *t, by_buf *out)
{
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

by_status by_tokenizer_save(const by_tokenizer *t, const char *dir)
{
    BY_TRY(by_dir_make(dir));
    BY_TRY(save_file(t, dir, "tokenizer.json", by_tokenizer_format));
    return save_file(t, dir, "tokenizer_config.json", format_config);
}

void by_tokenizer_free(by_tokenizer *t)
{
    if (t)
        t->kind->free(t);
}

const char *by_tokenizer_kind(const by_tokenizer *t)
{
    return t->kind->name;
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

by_status by_tokenizer_decode(const by_tokenizer *t, const int32_t *ids, size_t count, by_buf *out)
{
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= t->vocab_size)
            return by_fail(BY_ERR_ARGUMENT, "id %d at position %zu is outside the vocabulary of %d",
                           (int)ids[i], i, t->vocab_size);
    t->kind->decode(t, ids, count, out);
    return out->failed ? by_fail(BY_ERR_MEMORY, "out of memory decoding %zu ids", count) : BY_OK;
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

/* ---- whole texts, for users of the library ------------------------------------------------------------------ */

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
