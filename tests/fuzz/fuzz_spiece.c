/* fuzz_spiece.c - any bytes as a SentencePiece model, and its own end as a text. What is accepted must encode
 * with and without places to the same ids, and decode id by id to what it decodes at once. */
#include <stdlib.h>

#include "text/legacy/spiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_decoding(const by_tokenizer *t, const by_ids *ids)
{
    base_buf whole = {0}, parts = {0};
    tok_decoding *d = tok_decoding_new(t, &(tok_decode_spec){0});
    require(d && tok_decode(t, ids->data, ids->count, &whole) == BY_OK);
    for (size_t i = 0; i < ids->count; i++)
        require(tok_decoding_put(d, ids->data[i], &parts) == BY_OK);
    require(tok_decoding_end(d, &parts) == BY_OK);
    require(parts.size == whole.size && (!whole.size || memcmp(parts.data, whole.data, whole.size) == 0));
    tok_decoding_free(d);
    base_buf_free(&whole);
    base_buf_free(&parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tok_spiece model;
    by_tokenizer *t = tok_spiece_parse(&model, data, size) == BY_OK ? tok_spiece_tokenizer(&model) : NULL;
    if (!t)
        return 0;
    size_t n = BY_MIN(size, (size_t)512);
    const char *text = (const char *)data + size - n;
    by_ids ids = {0};
    by_encoding e;
    require(tok_encode(t, text, n, &ids) == BY_OK);
    require(by_tokenizer_encode_with(t, text, n, &(by_encode_spec){.offsets = true}, &e) == BY_OK);
    require(e.ids.count == ids.count && (!ids.count || memcmp(e.ids.data, ids.data, ids.count * 4) == 0));
    for (size_t i = 0; i < e.ids.count; i++)
        require(e.offsets[i].start <= e.offsets[i].end && e.offsets[i].end <= n);
    check_decoding(t, &ids);
    by_encoding_free(&e);
    tok_ids_free(&ids);
    by_tokenizer_free(t);
    return 0;
}
