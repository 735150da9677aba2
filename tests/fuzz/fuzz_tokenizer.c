/* fuzz_tokenizer.c - any bytes as a tokenizer.json, as a SentencePiece model and as a text. What is accepted
 * must encode and decode without harm; characters and bytes must round-trip exactly. */
#include <stdlib.h>

#include "text/legacy/spiece.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* decode(encode(text)) == text, also when the text is encoded in two parts. Texts the tokenizer refuses are
 * fine. */
static void check_text(const by_tokenizer *t, const char *text, size_t size)
{
    by_ids whole = {0}, parts = {0};
    base_buf back = {0};
    if (tok_encode(t, text, size, &whole) == BY_OK) {
        require(tok_decode(t, whole.data, whole.count, &back) == BY_OK);
        require(back.size == size && (size == 0 || memcmp(back.data, text, size) == 0));
        size_t cut = tok_cut(t, text, size / 2);
        require(tok_encode(t, text, cut, &parts) == BY_OK);
        require(tok_encode(t, text + cut, size - cut, &parts) == BY_OK);
        require(parts.count == whole.count && memcmp(parts.data, whole.data, whole.count * 4) == 0);
    }
    tok_ids_free(&whole);
    tok_ids_free(&parts);
    base_buf_free(&back);
}

/* Every id decodes, and what is written is read back to the same file. */
static void check_tokenizer(const by_tokenizer *t)
{
    base_buf text = {0}, first = {0}, second = {0};
    for (int32_t id = 0; id < by_tokenizer_vocab_size(t); id++)
        require(tok_decode(t, &id, 1, &text) == BY_OK);
    check_text(t, text.data, text.size);
    require(tok_format(t, &first) == BY_OK);
    by_tokenizer *again = tok_parse(first.data, first.size, "again");
    require(again && tok_format(again, &second) == BY_OK);
    require(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    by_tokenizer_free(again);
    base_buf_free(&text);
    base_buf_free(&first);
    base_buf_free(&second);
}

/* Other kinds may lose spaces, case and unknown characters; ids must be in range and places in the text. */
static void check_published(const by_tokenizer *t, const char *text, size_t size)
{
    by_encoding e;
    base_buf back = {0};
    size = size < 4096 ? size : 4096;
    if (by_tokenizer_encode_with(t, text, size, &(by_encode_spec){.special = true, .offsets = true}, &e) ==
        BY_OK) {
        for (size_t i = 0; i < e.ids.count; i++)
            require(e.offsets[i].start <= e.offsets[i].end && e.offsets[i].end <= size);
        require(tok_decode_with(t, e.ids.data, e.ids.count, &(tok_decode_spec){.lossy = true}, &back) ==
                BY_OK);
    }
    require(tok_cut(t, text, size) <= size);
    by_encoding_free(&e);
    base_buf_free(&back);
}

static bool is_simple(const by_tokenizer *t)
{
    return t->kind == &tok_text_bytes || t->kind == &tok_text_chars;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    base_buf input = {0};
    base_buf_put(&input, data, size);
    base_buf_put(&input, "", 1); /* the parser wants a NUL behind the text */
    const char *text = input.data;
    by_tokenizer *parsed = tok_parse(text, size, "fuzz");
    by_tokenizer *chars = tok_new_chars(&text, &size, 1);
    by_tokenizer *bytes = tok_new_bytes();
    tok_spiece model;
    by_tokenizer *pieces =
        tok_spiece_parse(&model, data, size) == BY_OK ? tok_spiece_tokenizer(&model) : NULL;
    if (parsed && is_simple(parsed)) {
        check_tokenizer(parsed);
        check_text(parsed, text, size);
    }
    if (parsed)
        check_published(parsed, text, size);
    if (pieces)
        check_published(pieces, text, size);
    if (chars) {
        check_tokenizer(chars);
        check_text(chars, text, size);
    }
    check_text(bytes, text, size);
    by_tokenizer_free(parsed);
    by_tokenizer_free(pieces);
    by_tokenizer_free(chars);
    by_tokenizer_free(bytes);
    base_buf_free(&input);
    return 0;
}
