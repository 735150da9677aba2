/* jinja_text.c - text in Python's formats: floats, quoted strings, escaped HTML. */
#include <math.h>
#include <stdlib.h>

#include "chat/jinja_value.h"
#include "text/unicode.h"

void chat_put_point(base_buf *out, uint32_t point)
{
    char bytes[4];
    base_buf_put(out, bytes, (size_t)tok_utf8_encode(point, bytes));
}

/* The shortest digits that read back equal; with an exponent below 1e-4 and from 1e16. */
void chat_put_float(base_buf *out, double d)
{
    char text[40];
    if (!isfinite(d)) {
        base_buf_puts(out, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 1;
    for (; digits < 17; digits++) {
        base_format(text, sizeof text, "%.*e", digits - 1, d);
        if (base_strtod(text, NULL) == d)
            break;
    }
    base_format(text, sizeof text, "%.*e", digits - 1, d);
    char *mark = strchr(text, 'e');
    const int exponent = atoi(mark + 1);
    if (exponent >= -4 && exponent < 16) {
        base_buf_printf(out, "%.*f", BY_MAX(digits - 1 - exponent, 1), d);
        return;
    }
    *mark = '\0';
    base_buf_printf(out, "%se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent));
}

/* str.isprintable: neither control, format, surrogate, private, unassigned nor separator, except the
 * space. */
static bool is_printable(uint32_t c)
{
    if (c < 0x7f)
        return c >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

static void put_repr_point(base_buf *out, uint32_t c, char quote)
{
    static const char from[] = "\n\r\t\\", to[] = "nrt\\";
    const char *hit = c && c < 0x80 ? strchr(from, (int)c) : NULL;
    if (hit)
        base_buf_printf(out, "\\%c", to[hit - from]);
    else if (c == (uint32_t)quote)
        base_buf_printf(out, "\\%c", quote);
    else if (is_printable(c))
        chat_put_point(out, c);
    else
        base_buf_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
}

/* In single quotes, unless the text contains single and no double quotes. */
void chat_put_quoted(base_buf *out, const char *text, size_t size)
{
    const bool single = size && memchr(text, '\'', size), twice = size && memchr(text, '"', size);
    const char quote = single && !twice ? '"' : '\'';
    base_buf_put(out, &quote, 1);
    for (size_t i = 0; i < size;) {
        uint32_t c;
        i += (size_t)tok_utf8_next(text + i, size - i, &c);
        put_repr_point(out, c, quote);
    }
    base_buf_put(out, &quote, 1);
}

void chat_put_escaped(base_buf *out, const char *text, size_t size)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    for (size_t i = 0; i < size; i++) {
        const char *hit = text[i] ? strchr(from, text[i]) : NULL;
        if (hit)
            base_buf_puts(out, to[hit - from]);
        else
            base_buf_put(out, text + i, 1);
    }
}
