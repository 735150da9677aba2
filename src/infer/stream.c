/* stream.c - incremental decoding of tokens (see stream.h). */
#include "infer/stream.h"

#include "text/utf8.h"

/* The start of the first stop string among the bytes not taken yet, or raw.size. It cannot start earlier,
 * because possible beginnings were held back. */
static size_t find_stop(const gen_stream *s)
{
    size_t first = s->raw.size;
    for (int i = 0; i < s->stop_count; i++) {
        size_t n = strlen(s->stops[i]);
        const char *from = s->raw.data + s->taken;
        const char *at = n ? memmem(from, s->raw.size - s->taken, s->stops[i], n) : NULL;
        if (at)
            first = BY_MIN(first, (size_t)(at - s->raw.data));
    }
    return first;
}

/* Bytes at the end that may begin a stop string. */
static size_t count_held(const gen_stream *s)
{
    size_t most = 0;
    for (int i = 0; i < s->stop_count; i++) {
        size_t n = strlen(s->stops[i]);
        for (size_t k = BY_MIN(n ? n - 1 : 0, s->raw.size - s->taken); k > most; k--)
            if (memcmp(s->raw.data + s->raw.size - k, s->stops[i], k) == 0)
                most = k;
    }
    return most;
}

/* Tokens that begin before the end of the taken bytes belong to the text. */
static void count_tokens(gen_stream *s)
{
    const size_t *starts = (const size_t *)(const void *)s->starts.data, n = s->starts.size / sizeof *starts;
    size_t taken = 0;
    while (taken < n && starts[taken] < s->taken)
        taken++;
    s->tokens += (int)taken;
    s->starts.size -= taken * sizeof *starts;
    if (taken)
        memmove(s->starts.data, s->starts.data + taken * sizeof *starts, s->starts.size);
}

/* Moves raw bytes up to `end` into text, character by character. */
static by_status take(gen_stream *s, size_t end)
{
    uint32_t point = 0;
    while (s->taken < end) {
        const char *at = s->raw.data + s->taken;
        int n = tok_utf8_decode((const uint8_t *)at, end - s->taken, &point);
        if (n)
            base_buf_put(&s->text, at, (size_t)n);
        else
            base_buf_puts(&s->text, "\xef\xbf\xbd");
        s->taken += n ? (size_t)n : tok_utf8_broken((const uint8_t *)at, end - s->taken);
    }
    count_tokens(s);
    return s->text.failed || s->starts.failed ? base_fail(BY_ERR_MEMORY, "out of memory for the text")
                                              : BY_OK;
}

/* The new bytes may contain a stop string; bytes that cannot be part of one or of a character become text. */
static by_status look(gen_stream *s)
{
    size_t stop = find_stop(s);
    if (stop < s->raw.size) {
        s->stopped = true;
        return take(s, stop);
    }
    size_t free = s->raw.size - s->taken - count_held(s);
    return free ? take(s, s->taken + tok_utf8_cut((const uint8_t *)s->raw.data + s->taken, free)) : BY_OK;
}

by_status gen_stream_put(gen_stream *s, int32_t token)
{
    if (s->stopped)
        return BY_OK;
    if (!s->decoding && !(s->decoding = tok_decoding_new(s->tokenizer, &(tok_decode_spec){0})))
        return BY_ERR_MEMORY;
    base_buf_put(&s->starts, &s->raw.size, sizeof s->raw.size);
    BY_TRY(tok_decoding_put(s->decoding, token, &s->raw));
    return look(s);
}

by_status gen_stream_end(gen_stream *s)
{
    if (s->stopped)
        return BY_OK;
    if (s->decoding) {
        BY_TRY(tok_decoding_end(s->decoding, &s->raw));
        BY_TRY(look(s));
    }
    return s->stopped ? BY_OK : take(s, s->raw.size);
}

void gen_stream_free(gen_stream *s)
{
    tok_decoding_free(s->decoding);
    base_buf_free(&s->text);
    base_buf_free(&s->raw);
    base_buf_free(&s->starts);
    *s = (gen_stream){0};
}
