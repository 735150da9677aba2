/* charsmap.c - the normaliser map inside SentencePiece models: a double-array trie (Aoe 1989, in the layout
 * of darts-clone) from byte strings to offsets in a block of NUL-terminated replacements. */
#include "text/pipeline.h"

struct tok_charsmap {
    uint32_t *units;
    size_t unit_count;
    char *strings;
    size_t string_size;
    bool plain[256];
};

static inline size_t unit_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

/* Returns true if the node has a unit for byte c. */
static bool has_child(const tok_charsmap *m, size_t node, uint32_t c)
{
    size_t next = node ^ c;
    return next < m->unit_count && (m->units[next] & 0x800000ffu) == c;
}

/* Finds the ASCII bytes that are not an entry and do not start one when followed by ASCII. */
static void find_plain(tok_charsmap *m)
{
    size_t root = unit_offset(m->units[0]);
    for (uint32_t c = 1; c < 0x80; c++) {
        bool child = has_child(m, root, c);
        uint32_t unit = child ? m->units[root ^ c] : 0;
        size_t node = (root ^ c) ^ unit_offset(unit);
        m->plain[c] = !child || !(unit & 0x100);
        for (uint32_t next = 1; child && next < 0x80; next++)
            m->plain[c] = m->plain[c] && !has_child(m, node, next);
    }
}

const bool *tok_charsmap_plain(const tok_charsmap *m)
{
    return m->plain;
}

tok_charsmap *tok_charsmap_new(const uint8_t *blob, size_t size)
{
    uint32_t trie = 0;
    if (size >= 4)
        memcpy(&trie, blob, 4);
    if (size < 4 || trie % 4 != 0 || trie == 0 || trie > size - 4) {
        base_fail(BY_ERR_FORMAT, "a precompiled normaliser map of %zu bytes is damaged", size);
        return NULL;
    }
    tok_charsmap *m = base_alloc_zero(1, sizeof(*m));
    if (!m)
        return NULL;
    m->unit_count = trie / 4;
    m->string_size = size - 4 - trie;
    m->units = base_alloc(trie);
    m->strings = base_alloc(m->string_size + 1);
    if (!m->units || !m->strings) {
        tok_charsmap_free(m);
        return NULL;
    }
    memcpy(m->units, blob + 4, trie);
    memcpy(m->strings, blob + 4 + trie, m->string_size);
    m->strings[m->string_size] = '\0';
    find_plain(m);
    return m;
}

void tok_charsmap_free(tok_charsmap *m)
{
    if (!m)
        return;
    base_free(m->units);
    base_free(m->strings);
    base_free(m);
}

const char *tok_charsmap_find(const tok_charsmap *m, const char *text, size_t size, bool longest,
                              size_t *length)
{
    const char *found = NULL;
    size_t node = unit_offset(m->units[0]);
    for (size_t i = 0; i < size && text[i]; i++) {
        uint8_t c = (uint8_t)text[i];
        node ^= c;
        if (node >= m->unit_count)
            break;
        uint32_t unit = m->units[node];
        if ((unit & 0x800000ffu) != c)
            break;
        node ^= unit_offset(unit);
        if (node >= m->unit_count)
            break;
        if (!(unit & 0x100))
            continue;
        size_t at = m->units[node] & 0x7fffffffu;
        if (at >= m->string_size)
            break;
        found = m->strings + at;
        *length = i + 1;
        if (!longest)
            break;
    }
    return found;
}

by_status tok_base64_decode(const char *text, base_buf *out)
{
    uint32_t bits = 0;
    int count = 0;
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
        if (v < 0)
            return base_fail(BY_ERR_FORMAT, "invalid base64 at byte %zu", i);
        bits = bits << 6 | (uint32_t)v;
        if ((count += 6) >= 8) {
            count -= 8;
            char byte = (char)(bits >> count);
            base_buf_put(out, &byte, 1);
        }
    }
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while reading base64") : BY_OK;
}
