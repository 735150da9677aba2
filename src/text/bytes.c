/* bytes.c - one id per byte plus the end-of-text token. tokenizer.json represents each byte by its printable
 * character in GPT-2's byte-level alphabet (Radford et al. 2019, section 2.2). */
#include "text/kind.h"

#define END_TEXT "<|endoftext|>"
#define END_SIZE (sizeof(END_TEXT) - 1)
#define END_ID   256

by_tokenizer *tok_new_bytes(void)
{
    by_tokenizer *t = base_alloc_zero(1, sizeof(*t));
    if (t)
        *t = (by_tokenizer){
            .kind = &tok_text_bytes, .vocab_size = END_ID + 1, .eos = END_ID, .eos_text = END_TEXT};
    return t;
}

static void bytes_free(by_tokenizer *t)
{
    base_free(t);
}

/* GPT-2's alphabet: bytes that are printable in Latin-1 represent themselves; the others are U+0100 and up,
 * in order. */
static void byte_alphabet(uint32_t points[256])
{
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) {
        bool prints = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
        points[b] = prints ? b : next++;
    }
}

static bool bytes_match(const cJSON *root)
{
    return tok_symbols_match(root, "ByteLevel");
}

/* The only added token must be the end of text, with the id after the bytes. */
static bool end_token_is_ours(const cJSON *root)
{
    const cJSON *added = cJSON_GetObjectItemCaseSensitive(root, "added_tokens");
    const cJSON *end = cJSON_GetArrayItem(added, 0);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(end, "id");
    const char *content = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(end, "content"));
    return cJSON_GetArraySize(added) == 1 && cJSON_IsNumber(id) && id->valuedouble == END_ID && content &&
           strcmp(content, END_TEXT) == 0;
}

static by_tokenizer *bytes_read(const cJSON *root)
{
    uint32_t alphabet[256];
    byte_alphabet(alphabet);
    int count = 0;
    uint32_t *points = tok_symbols_read(root, &count);
    if (!points)
        return NULL;
    bool identity = count == 256 && memcmp(points, alphabet, sizeof(alphabet)) == 0;
    base_free(points);
    const cJSON *pre = cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer");
    if (!identity || !end_token_is_ours(root))
        base_fail(BY_ERR_UNSUPPORTED, "a byte vocabulary must give byte b the id b and have \"" END_TEXT
                                      "\" as its only added token, with id 256");
    else if (!cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(pre, "add_prefix_space")))
        base_fail(BY_ERR_UNSUPPORTED, "a byte vocabulary with add_prefix_space is not supported");
    else
        return tok_new_bytes();
    return NULL;
}

static void bytes_write(const by_tokenizer *t, base_buf *out)
{
    (void)t;
    uint32_t alphabet[256];
    byte_alphabet(alphabet);
    tok_symbols_write(out, alphabet, 256,
                      "[\n    { \"id\": 256, \"content\": \"" END_TEXT "\", \"single_word\": false, "
                      "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true }\n  ]",
                      "{ \"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                      "\"use_regex\": false }",
                      "{ \"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
                      "\"use_regex\": true }");
}

/* Encodes any bytes. The text of the end token becomes its id, as in the reference library. */
static by_status bytes_encode(const by_tokenizer *t, const char *text, size_t size, by_ids *out)
{
    (void)t;
    BY_TRY(tok_ids_reserve(out, size));
    int32_t *next = out->data + out->count;
    for (size_t i = 0; i < size;) {
        if (text[i] == '<' && size - i >= END_SIZE && memcmp(text + i, END_TEXT, END_SIZE) == 0) {
            *next++ = END_ID;
            i += END_SIZE;
        } else {
            *next++ = (uint8_t)text[i++];
        }
    }
    out->count = (size_t)(next - out->data);
    return BY_OK;
}

static by_status bytes_put(const by_tokenizer *t, void *state, const tok_decode_spec *spec, int32_t id,
                           base_buf *out)
{
    (void)t;
    (void)state;
    if (id != END_ID)
        base_buf_put(out, &(char){(char)id}, 1);
    else if (!spec->skip_special)
        base_buf_put(out, END_TEXT, END_SIZE);
    return BY_OK;
}

/* Backs off if the text stops inside what may become an end token. That token starts with its only '<', so at
 * most one position is possible. */
static size_t bytes_cut(const by_tokenizer *t, const char *text, size_t size)
{
    (void)t;
    for (size_t back = 1; back < END_SIZE && back <= size; back++)
        if (text[size - back] == '<')
            return memcmp(text + size - back, END_TEXT, back) == 0 ? size - back : size;
    return size;
}

const tok_text_kind tok_text_bytes = {
    .name = "byte",
    .match = bytes_match,
    .read = bytes_read,
    .write = bytes_write,
    .encode = bytes_encode,
    .put = bytes_put,
    .cut = bytes_cut,
    .free = bytes_free,
};
