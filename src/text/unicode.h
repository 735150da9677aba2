/* unicode.h - what tokenizers ask about a character. Tables come from utf8proc; ASCII is answered here. */
#ifndef BY_TEXT_UNICODE_H
#define BY_TEXT_UNICODE_H

#include <utf8proc.h>

#include "text/utf8.h"

typedef enum by_char_class { BY_CHAR_OTHER, BY_CHAR_LETTER, BY_CHAR_NUMBER, BY_CHAR_SPACE } by_char_class;

/* The property White_Space. */
static inline bool by_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static inline bool by_is_ascii_punctuation(uint32_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

/* Classes as the reference tokenizers have them (classes.c). */
bool by_is_wide_punctuation(uint32_t c); /* general category P, above ASCII */
bool by_is_nonspacing(uint32_t c);       /* Mn */
bool by_is_mark(uint32_t c);             /* M */
bool by_is_other(uint32_t c);            /* control, format, private use */
bool by_is_whole(uint32_t c);            /* has no decomposition there */
bool by_is_word(uint32_t c);             /* \\w: letters, marks, decimals, connectors, joiners */
uint32_t
by_lower(uint32_t c); /* one character; capital I with dot, which becomes two, is left to the caller */

/* Whether the capital sigma text[i] ends a word: its small form is then another one (case.c). */
bool by_is_final_sigma(const uint32_t *text, size_t count, size_t i);

/* Graphemes (graphemes.c): begin one with its first character, and ask of each further one whether it belongs
 * to it. */
typedef struct by_grapheme {
    int last, conjunct, picture, flags;
} by_grapheme;
void by_grapheme_begin(by_grapheme *g, uint32_t c);
bool by_grapheme_goes_on(by_grapheme *g, uint32_t c);

/* A number for the script of a character, kana counting as Han; 0 for a space and what is unassigned. */
int by_script(uint32_t c);

/* General category P, and the ASCII symbols. */
static inline bool by_is_punctuation(uint32_t c)
{
    return c < 0x80 ? by_is_ascii_punctuation(c) : by_is_wide_punctuation(c);
}

/* Of a character that utf8proc does not know. */
by_char_class by_newer_class(uint32_t c);

/* \p{L}, \p{N}, \s of a character that is not ASCII. */
static inline by_char_class by_wide_class(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO)
        return BY_CHAR_LETTER;
    if (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO)
        return BY_CHAR_NUMBER;
    if (k == UTF8PROC_CATEGORY_CN)
        return by_newer_class(c);
    return by_is_space(c) ? BY_CHAR_SPACE : BY_CHAR_OTHER;
}

static inline by_char_class by_class(uint32_t c)
{
    if (c >= 0x80)
        return by_wide_class(c);
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
        return BY_CHAR_LETTER;
    if (c >= '0' && c <= '9')
        return BY_CHAR_NUMBER;
    return by_is_space(c) ? BY_CHAR_SPACE : BY_CHAR_OTHER;
}

/* The character at s, n >= 1 bytes readable, in text known to be UTF-8. */
static inline int by_utf8_next(const char *s, size_t n, uint32_t *c)
{
    int k = by_utf8_decode((const uint8_t *)s, n, c);
    if (k == 0) {
        *c = 0xfffd;
        k = 1;
    }
    return k;
}

#endif
