/* utf8.h - strict UTF-8, one character at a time: no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
#ifndef BY_TEXT_UTF8_H
#define BY_TEXT_UTF8_H

#include "base/base.h"

#define TOK_UTF8_POINTS 0x110000 /* code points are below this */

/* Decodes the character that starts at s, where n >= 1 bytes are readable. Returns its length, 1 to 4, or 0
 * if there is no well-formed character (*point is then unchanged). */
static inline int tok_utf8_decode(const uint8_t *s, size_t n, uint32_t *point)
{
    uint32_t a = s[0];
    if (a < 0x80) {
        *point = a;
        return 1;
    }
    if (a < 0xc2 || a > 0xf4 || n < 2 || (s[1] & 0xc0) != 0x80)
        return 0;
    uint32_t b = s[1] & 0x3fu;
    if (a < 0xe0) {
        *point = (a & 0x1f) << 6 | b;
        return 2;
    }
    if (n < 3 || (s[2] & 0xc0) != 0x80)
        return 0;
    uint32_t c = s[2] & 0x3fu;
    if (a < 0xf0) {
        uint32_t v = (a & 0x0f) << 12 | b << 6 | c;
        if (v < 0x800 || (v >= 0xd800 && v <= 0xdfff))
            return 0;
        *point = v;
        return 3;
    }
    if (n < 4 || (s[3] & 0xc0) != 0x80)
        return 0;
    uint32_t v = (a & 0x07) << 18 | b << 12 | c << 6 | (s[3] & 0x3fu);
    if (v < 0x10000 || v >= TOK_UTF8_POINTS)
        return 0;
    *point = v;
    return 4;
}

/* For text without a well-formed character: returns how many bytes are the prefix of one, at least 1. One
 * U+FFFD replaces them all, as recommended since Unicode 6. */
static inline size_t tok_utf8_broken(const uint8_t *s, size_t n)
{
    uint8_t a = s[0];
    size_t i = 1, more = a >= 0xf0 && a <= 0xf4  ? 3
                         : a >= 0xe0 && a < 0xf0 ? 2
                         : a >= 0xc2 && a < 0xe0 ? 1
                                                 : 0;
    uint8_t low = a == 0xe0   ? 0xa0
                  : a == 0xf0 ? 0x90
                              : 0x80,
            high = a == 0xed   ? 0x9f
                   : a == 0xf4 ? 0x8f
                               : 0xbf;
    for (; i <= more && i < n && s[i] >= low && s[i] <= high; i++) {
        low = 0x80;
        high = 0xbf;
    }
    return i;
}

/* Writes a code point below TOK_UTF8_POINTS. Returns the number of bytes, 1 to 4. */
static inline int tok_utf8_encode(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    int n = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(lead[n] | point);
    return n;
}

/* Returns the longest prefix of s[0..n) that does not end inside a character. Invalid bytes count as
 * complete: the decoder reports them. */
static inline size_t tok_utf8_cut(const uint8_t *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        uint8_t b = s[n - back];
        if ((b & 0xc0) == 0x80)
            continue;
        size_t need = b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1;
        return need > back ? n - back : n;
    }
    return n;
}

#endif
