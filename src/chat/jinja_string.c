/* jinja_string.c - characters of strings. Positions count code points, as in Python. */
#include "chat/jinja_value.h"
#include "text/unicode.h"

int64_t chat_characters(const char *text, size_t size)
{
    int64_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

size_t chat_offset(const char *text, size_t size, int64_t n)
{
    size_t i = 0;
    for (; i < size && n > 0; n--)
        do
            i++;
        while (i < size && ((unsigned char)text[i] & 0xc0) == 0x80);
    return i;
}

bool chat_is_space(uint32_t c)
{
    return tok_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

size_t chat_strip_left(const char *text, size_t size)
{
    uint32_t c;
    size_t i = 0;
    while (i < size) {
        const int k = tok_utf8_next(text + i, size - i, &c);
        if (!chat_is_space(c))
            break;
        i += (size_t)k;
    }
    return i;
}

size_t chat_strip_right(const char *text, size_t size)
{
    uint32_t c;
    while (size > 0) {
        size_t i = size - 1;
        while (i > 0 && ((unsigned char)text[i] & 0xc0) == 0x80)
            i--;
        tok_utf8_next(text + i, size - i, &c);
        if (!chat_is_space(c))
            break;
        size = i;
    }
    return size;
}

size_t chat_find_bytes(const char *text, size_t size, const char *what, size_t what_size, size_t from)
{
    if (from > size)
        return SIZE_MAX;
    if (what_size == 0)
        return from;
    const char *at = memmem(text + from, size - from, what, what_size);
    return at ? (size_t)(at - text) : SIZE_MAX;
}

size_t chat_find_last(const char *text, size_t size, const char *what, size_t what_size)
{
    if (what_size > size)
        return SIZE_MAX;
    for (size_t at = size - what_size;; at--) {
        if (memcmp(text + at, what, what_size) == 0)
            return at;
        if (at == 0)
            return SIZE_MAX;
    }
}
