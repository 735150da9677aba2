/* symbols.c - stores tokenizers whose tokens are single characters in tokenizer.json: as a BPE model with
 * those characters as vocabulary and without merges. The reference library reads that to one id per
 * character. */
#include "base/json.h"
#include "text/kind.h"
#include "text/utf8.h"

bool tok_symbols_match(const cJSON *root, const char *pre_tokenizer)
{
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(model, "type"));
    const cJSON *merges = cJSON_GetObjectItemCaseSensitive(model, "merges");
    if (!type || strcmp(type, "BPE") != 0 || !cJSON_IsArray(merges) || merges->child)
        return false;
    const cJSON *pre = cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer");
    if (!pre_tokenizer)
        return !pre || cJSON_IsNull(pre);
    const char *pre_type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(pre, "type"));
    return pre_type && strcmp(pre_type, pre_tokenizer) == 0;
}

/* Checks members of an object that must be absent, null, false or "" for one id per character to hold. */
static by_status refuse_options(const cJSON *object, const char *const *keys, int count)
{
    for (int i = 0; i < count; i++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, keys[i]);
        if (v && !cJSON_IsNull(v) && !cJSON_IsFalse(v) && !(cJSON_IsString(v) && !v->valuestring[0]))
            return base_fail(BY_ERR_UNSUPPORTED, "a vocabulary of characters with \"%s\" is not supported",
                             keys[i]);
    }
    return BY_OK;
}

/* Returns true for a post-processor that does not change the ids: none, one that only moves offsets, or the
 * template of just the sequence, which the reference library writes if there was none. */
static bool post_processor_is_neutral(const cJSON *post)
{
    if (!post || cJSON_IsNull(post))
        return true;
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(post, "type"));
    const cJSON *single = cJSON_GetObjectItemCaseSensitive(post, "single");
    if (type && strcmp(type, "TemplateProcessing") == 0)
        return cJSON_GetArraySize(single) == 1 && cJSON_GetObjectItemCaseSensitive(single->child, "Sequence");
    return type && strcmp(type, "ByteLevel") == 0;
}

/* Returns the single character of a vocabulary key. */
static by_status key_point(const char *key, uint32_t *point)
{
    size_t n = strlen(key);
    if (strcmp(key, BY_JSON_NUL) == 0) {
        *point = 0;
        return BY_OK;
    }
    if (n == 0)
        return base_fail(BY_ERR_UNSUPPORTED, "the vocabulary has an empty token");
    int length = tok_utf8_decode((const uint8_t *)key, n, point);
    if (length == 0)
        return base_fail(BY_ERR_FORMAT, "the vocabulary has a token that is not UTF-8");
    if ((size_t)length != n)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "token \"%.40s\" has more than one character, but there are no merges", key);
    return BY_OK;
}

uint32_t *tok_symbols_read(const cJSON *root, int *count)
{
    static const char *const root_keys[] = {"normalizer"};
    static const char *const model_keys[] = {"unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                             "byte_fallback"};
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model");
    if (refuse_options(root, root_keys, BY_COUNT(root_keys)) != BY_OK ||
        refuse_options(model, model_keys, BY_COUNT(model_keys)) != BY_OK)
        return NULL;
    if (!post_processor_is_neutral(cJSON_GetObjectItemCaseSensitive(root, "post_processor"))) {
        base_fail(BY_ERR_UNSUPPORTED, "a vocabulary of characters with a post_processor is not supported");
        return NULL;
    }
    const cJSON *vocab = cJSON_GetObjectItemCaseSensitive(model, "vocab");
    int n = cJSON_IsObject(vocab) ? cJSON_GetArraySize(vocab) : 0;
    if (n <= 0 || n > TOK_UTF8_POINTS) {
        base_fail(BY_ERR_FORMAT, "model.vocab is missing, empty or too large");
        return NULL;
    }
    uint32_t *points = base_alloc_zero((size_t)n, sizeof(*points));
    if (!points)
        return NULL;
    memset(points, 0xff, (size_t)n * sizeof(*points)); /* not a code point: not set yet */
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab)
    {
        uint32_t point = 0;
        if (key_point(item->string, &point) != BY_OK)
            goto fail;
        double id = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(id >= 0 && id < n) || id != (int)id) {
            base_fail(BY_ERR_FORMAT, "the id of token U+%04X is not an integer from 0 to %d", (unsigned)point,
                      n - 1);
            goto fail;
        }
        if (points[(int)id] != UINT32_MAX) {
            base_fail(BY_ERR_FORMAT, "two tokens have the id %d", (int)id);
            goto fail;
        }
        points[(int)id] = point;
    }
    *count = n;
    return points;
fail:
    base_free(points);
    return NULL;
}

/* Writes a JSON string of one character. */
static void put_symbol(base_buf *out, uint32_t point)
{
    if (point < 0x20 || point == 0x7f || point == '"' || point == '\\') {
        base_buf_printf(out, "\"\\u%04x\"", (unsigned)point);
        return;
    }
    char text[6] = {'"'};
    int n = tok_utf8_encode(point, text + 1);
    text[1 + n] = '"';
    base_buf_put(out, text, (size_t)n + 2);
}

void tok_symbols_write(base_buf *out, const uint32_t *points, int count, const char *added_tokens,
                       const char *pre_tokenizer, const char *decoder)
{
    base_buf_printf(out,
                    "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"
                    "  \"added_tokens\": %s,\n  \"normalizer\": null,\n  \"pre_tokenizer\": %s,\n"
                    "  \"post_processor\": null,\n  \"decoder\": %s,\n",
                    added_tokens, pre_tokenizer, decoder);
    base_buf_puts(out,
                  "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
                  "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
                  "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n"
                  "    \"vocab\": {\n");
    for (int id = 0; id < count; id++) {
        base_buf_puts(out, "      ");
        put_symbol(out, points[id]);
        base_buf_printf(out, ": %d%s\n", id, id + 1 < count ? "," : "");
    }
    base_buf_puts(out, "    },\n    \"merges\": []\n  }\n}\n");
}
