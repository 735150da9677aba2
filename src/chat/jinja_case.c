/* jinja_case.c - upper, lower and title case as in Python's str, including Unicode mappings that change the
 * number of characters. */
#include "chat/jinja_value.h"
#include "text/unicode.h"

typedef struct mapping {
    uint32_t point, upper[3];
} mapping;

/* Characters whose upper case has more than one character. */
static const mapping longer[] = {
    {0xdf, {0x53, 0x53}},
    {0x149, {0x2bc, 0x4e}},
    {0x1f0, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}},
    {0x3b0, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}},
    {0x1e96, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399}},
    {0x1f81, {0x1f09, 0x399}},
    {0x1f82, {0x1f0a, 0x399}},
    {0x1f83, {0x1f0b, 0x399}},
    {0x1f84, {0x1f0c, 0x399}},
    {0x1f85, {0x1f0d, 0x399}},
    {0x1f86, {0x1f0e, 0x399}},
    {0x1f87, {0x1f0f, 0x399}},
    {0x1f88, {0x1f08, 0x399}},
    {0x1f89, {0x1f09, 0x399}},
    {0x1f8a, {0x1f0a, 0x399}},
    {0x1f8b, {0x1f0b, 0x399}},
    {0x1f8c, {0x1f0c, 0x399}},
    {0x1f8d, {0x1f0d, 0x399}},
    {0x1f8e, {0x1f0e, 0x399}},
    {0x1f8f, {0x1f0f, 0x399}},
    {0x1f90, {0x1f28, 0x399}},
    {0x1f91, {0x1f29, 0x399}},
    {0x1f92, {0x1f2a, 0x399}},
    {0x1f93, {0x1f2b, 0x399}},
    {0x1f94, {0x1f2c, 0x399}},
    {0x1f95, {0x1f2d, 0x399}},
    {0x1f96, {0x1f2e, 0x399}},
    {0x1f97, {0x1f2f, 0x399}},
    {0x1f98, {0x1f28, 0x399}},
    {0x1f99, {0x1f29, 0x399}},
    {0x1f9a, {0x1f2a, 0x399}},
    {0x1f9b, {0x1f2b, 0x399}},
    {0x1f9c, {0x1f2c, 0x399}},
    {0x1f9d, {0x1f2d, 0x399}},
    {0x1f9e, {0x1f2e, 0x399}},
    {0x1f9f, {0x1f2f, 0x399}},
    {0x1fa0, {0x1f68, 0x399}},
    {0x1fa1, {0x1f69, 0x399}},
    {0x1fa2, {0x1f6a, 0x399}},
    {0x1fa3, {0x1f6b, 0x399}},
    {0x1fa4, {0x1f6c, 0x399}},
    {0x1fa5, {0x1f6d, 0x399}},
    {0x1fa6, {0x1f6e, 0x399}},
    {0x1fa7, {0x1f6f, 0x399}},
    {0x1fa8, {0x1f68, 0x399}},
    {0x1fa9, {0x1f69, 0x399}},
    {0x1faa, {0x1f6a, 0x399}},
    {0x1fab, {0x1f6b, 0x399}},
    {0x1fac, {0x1f6c, 0x399}},
    {0x1fad, {0x1f6d, 0x399}},
    {0x1fae, {0x1f6e, 0x399}},
    {0x1faf, {0x1f6f, 0x399}},
    {0x1fb2, {0x1fba, 0x399}},
    {0x1fb3, {0x391, 0x399}},
    {0x1fb4, {0x386, 0x399}},
    {0x1fb6, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}},
    {0x1fbc, {0x391, 0x399}},
    {0x1fc2, {0x1fca, 0x399}},
    {0x1fc3, {0x397, 0x399}},
    {0x1fc4, {0x389, 0x399}},
    {0x1fc6, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}},
    {0x1fcc, {0x397, 0x399}},
    {0x1fd2, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}},
    {0x1ff3, {0x3a9, 0x399}},
    {0x1ff4, {0x38f, 0x399}},
    {0x1ff6, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}},
    {0x1ffc, {0x3a9, 0x399}},
    {0xfb00, {0x46, 0x46}},
    {0xfb01, {0x46, 0x49}},
    {0xfb02, {0x46, 0x4c}},
    {0xfb03, {0x46, 0x46, 0x49}},
    {0xfb04, {0x46, 0x46, 0x4c}},
    {0xfb05, {0x53, 0x54}},
    {0xfb06, {0x53, 0x54}},
    {0xfb13, {0x544, 0x546}},
    {0xfb14, {0x544, 0x535}},
    {0xfb15, {0x544, 0x53b}},
    {0xfb16, {0x54e, 0x546}},
    {0xfb17, {0x544, 0x53d}},
};

static const mapping *find_longer(uint32_t c)
{
    int low = 0, high = BY_COUNT(longer);
    while (low < high) {
        const int mid = (low + high) / 2;
        if (longer[mid].point < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < BY_COUNT(longer) && longer[low].point == c ? &longer[low] : NULL;
}

static bool is_upper(uint32_t c)
{
    return utf8proc_isupper((utf8proc_int32_t)c) != 0;
}

static bool is_lower(uint32_t c)
{
    return utf8proc_islower((utf8proc_int32_t)c) != 0;
}

static bool is_title(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
}

static bool is_cased(uint32_t c)
{
    return is_upper(c) || is_lower(c) || is_title(c);
}

static uint32_t lower_of(uint32_t c)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static void put_upper(uint32_t c, base_buf *out)
{
    const mapping *m = c < 0x80 ? NULL : find_longer(c);
    if (!m) {
        chat_put_point(out, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
        return;
    }
    for (int i = 0; i < 3 && m->upper[i]; i++)
        chat_put_point(out, m->upper[i]);
}

/* In a longer mapping, everything after the first cased character becomes lower case; an iota becomes a
 * subscript. */
static void put_title(uint32_t c, base_buf *out)
{
    const uint32_t title = (uint32_t)utf8proc_totitle((utf8proc_int32_t)c);
    const mapping *m = c < 0x80 || is_title(title) ? NULL : find_longer(c);
    if (!m) {
        chat_put_point(out, title);
        return;
    }
    bool begun = false;
    for (int i = 0; i < 3 && m->upper[i]; i++) {
        const uint32_t u = m->upper[i];
        chat_put_point(out, !begun ? u : u == 0x399 && c >= 0x1f00 ? 0x345 : lower_of(u));
        begun = begun || is_cased(u);
    }
}

static void put_lower(const uint32_t *points, size_t count, size_t i, base_buf *out)
{
    const uint32_t c = points[i];
    if (c == 0x130) { /* i with dot above */
        chat_put_point(out, 'i');
        chat_put_point(out, 0x307);
    } else if (c == 0x3a3) {
        chat_put_point(out, tok_is_final_sigma(points, count, i) ? 0x3c2 : 0x3c3);
    } else {
        chat_put_point(out, lower_of(c));
    }
}

static void put_point(const uint32_t *points, size_t count, size_t i, chat_case how, base_buf *out)
{
    const uint32_t c = points[i];
    const bool inside = how == CHAT_CAPITALIZE ? i > 0 : i > 0 && is_cased(points[i - 1]);
    if (how == CHAT_UPPER || (how == CHAT_SWAP && is_lower(c)))
        put_upper(c, out);
    else if (how == CHAT_LOWER || (how == CHAT_SWAP && is_upper(c)) || (how != CHAT_SWAP && inside))
        put_lower(points, count, i, out);
    else if (how == CHAT_SWAP)
        chat_put_point(out, c);
    else
        put_title(c, out);
}

by_status chat_change_case(const char *text, size_t size, chat_case how, base_buf *out)
{
    uint32_t *points = base_alloc((size + 1) * sizeof *points);
    size_t count = 0;
    if (!points)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < size; count++)
        i += (size_t)tok_utf8_next(text + i, size - i, &points[count]);
    for (size_t i = 0; i < count; i++)
        put_point(points, count, i, how, out);
    base_free(points);
    return out->failed ? base_error_status() : BY_OK;
}
