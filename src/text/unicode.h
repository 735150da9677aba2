/* unicode.h - character properties for tokenizers. Tables come from utf8proc; ASCII is handled here. */
#ifndef BY_TEXT_UNICODE_H
#define BY_TEXT_UNICODE_H

#include <utf8proc.h>

#include "text/utf8.h"

typedef enum tok_char_class {
    TOK_CHAR_OTHER,
    TOK_CHAR_LETTER,
    TOK_CHAR_NUMBER,
    TOK_CHAR_SPACE
} tok_char_class;

/* The property White_Space. */
static inline bool tok_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static inline bool tok_is_ascii_punctuation(uint32_t c)
{
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
}

/* Classes as defined by the reference tokenizers (classes.c). */
bool tok_is_wide_punctuation(uint32_t c); /* general category P, above ASCII */
bool tok_is_nonspacing(uint32_t c);       /* Mn */
bool tok_is_mark(uint32_t c);             /* M */
bool tok_is_other(uint32_t c);            /* control, format, private use */
bool tok_is_whole(uint32_t c);            /* has no decomposition in them */
bool tok_is_word(uint32_t c);             /* \\w: letters, marks, decimals, connectors, joiners */
/* One character; the caller handles capital I with dot above, which becomes two. */
uint32_t tok_lower(uint32_t c);

/* Returns true if the capital sigma text[i] ends a word: its lower case is then a different letter
 * (case.c). */
bool tok_is_final_sigma(const uint32_t *text, size_t count, size_t i);

/* Graphemes (graphemes.c): start one with its first character, and test for each further one whether it
 * belongs to it. */
typedef struct tok_grapheme {
    int last, conjunct, picture, flags;
} tok_grapheme;
void tok_grapheme_begin(tok_grapheme *g, uint32_t c);
bool tok_grapheme_goes_on(tok_grapheme *g, uint32_t c);

/* A number for the script of a character, with kana counted as Han; 0 for a space and for unassigned
 * characters. */
int tok_script(uint32_t c);

/* General category P, and the ASCII symbols. */
static inline bool tok_is_punctuation(uint32_t c)
{
    return c < 0x80 ? tok_is_ascii_punctuation(c) : tok_is_wide_punctuation(c);
}

/* The class of a character that utf8proc does not know. */
tok_char_class tok_newer_class(uint32_t c);

/* \p{L}, \p{N}, \s of a character above ASCII. */
static inline tok_char_class tok_wide_class(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO)
        return TOK_CHAR_LETTER;
    if (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO)
        return TOK_CHAR_NUMBER;
    if (k == UTF8PROC_CATEGORY_CN)
        return tok_newer_class(c);
    return tok_is_space(c) ? TOK_CHAR_SPACE : TOK_CHAR_OTHER;
}

static inline tok_char_class tok_class(uint32_t c)
{
    if (c >= 0x80)
        return tok_wide_class(c);
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
        return TOK_CHAR_LETTER;
    if (c >= '0' && c <= '9')
        return TOK_CHAR_NUMBER;
    return tok_is_space(c) ? TOK_CHAR_SPACE : TOK_CHAR_OTHER;
}

/* Decodes the character at s, n >= 1 bytes readable, in text known to be UTF-8. */
static inline int tok_utf8_next(const char *s, size_t n, uint32_t *c)
{
    int k = tok_utf8_decode((const uint8_t *)s, n, c);
    if (k == 0) {
        *c = 0xfffd;
        k = 1;
    }
    return k;
}

#endif
