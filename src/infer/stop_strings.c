/* stop_strings.c - see stop_strings.h. */
#include "infer/stop_strings.h"

#include "text/tokenizer.h"

/* Whether the string ends after byte `from` of the text. */
static bool ends_after(const base_buf *text, size_t from, const char *string)
{
    const size_t n = strlen(string), begin = from + 1 > n ? from + 1 - n : 0;
    return n && text->size > begin && memmem(text->data + begin, text->size - begin, string, n);
}

by_status gen_stop_strings_end(const by_generate_spec *spec, const int32_t *tokens, int count, bool *out)
{
    size_t longest = 0;
    *out = false;
    for (int i = 0; i < spec->stop_string_count; i++)
        longest = BY_MAX(longest, strlen(spec->stop_strings[i]));
    if (longest == 0 || count < 1)
        return BY_OK;
    /* a token has at least one byte; one extra token tells decoders that the text does not begin here */
    const size_t window = BY_MIN((size_t)count, longest + 1);
    const int32_t *from = tokens + count - window;
    base_buf before = {0}, text = {0};
    by_status s = tok_decode_with(spec->tokenizer, from, window - 1, &(tok_decode_spec){0}, &before);
    if (s == BY_OK)
        s = tok_decode_with(spec->tokenizer, from, window, &(tok_decode_spec){0}, &text);
    for (int i = 0; i < spec->stop_string_count && s == BY_OK && !*out; i++)
        *out = ends_after(&text, before.size, spec->stop_strings[i]);
    base_buf_free(&before);
    base_buf_free(&text);
    return s;
}
