/* case.c - final sigma, the only lower-case letter that depends on its position. */
#include "text/unicode.h"

static bool is_cased(uint32_t c)
{
    return utf8proc_islower((utf8proc_int32_t)c) || utf8proc_isupper((utf8proc_int32_t)c) ||
           utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
}

/* Case-ignorable characters: marks, modifiers, format characters, apostrophes and similar. */
static bool is_ignored_by_case(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' ||
           c == 0xb7 || c == 0x387 || c == 0x55f || c == 0x5f4 || c == 0x2018 || c == 0x2019 || c == 0x2024 ||
           c == 0x2027 || c == 0xfe13 || c == 0xfe52 || c == 0xfe55 || c == 0xff07 || c == 0xff0e ||
           c == 0xff1a;
}

bool tok_is_final_sigma(const uint32_t *text, size_t count, size_t i)
{
    size_t before = i, after = i + 1;
    while (before > 0 && is_ignored_by_case(text[before - 1]))
        before--;
    while (after < count && is_ignored_by_case(text[after]))
        after++;
    return before > 0 && is_cased(text[before - 1]) && !(after < count && is_cased(text[after]));
}
