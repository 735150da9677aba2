/* graphemes.c - grapheme boundaries: the rules of Unicode Annex 29 with the character tables of the reference
 * tokenizers, from which a library of another Unicode version would differ. */
#include <stdlib.h>

#include "text/unicode.h"

typedef enum kind {
    OTHER,
    CR,
    LF,
    CONTROL,
    EXTEND,
    LINKER,     /* extends, and joins two consonants */
    NON_JOINER, /* extends, but nothing is joined across it */
    JOINER,
    SPACING,
    PREPEND,
    CONSONANT, /* consonant of an Indic script */
    PICTURE,
    FLAG,
    HANGUL_L,
    HANGUL_V,
    HANGUL_T,
    HANGUL_LV,
    HANGUL_LVT
} kind;

static const struct range {
    uint32_t first, last;
    kind kind;
} ranges[] = {
#include "text/graphemes.def"
};

static int compare(const void *key, const void *row)
{
    uint32_t c = *(const uint32_t *)key;
    const struct range *r = row;
    return c < r->first ? -1 : c > r->last ? 1 : 0;
}

static kind kind_of(uint32_t c)
{
    if (c >= 0x20 && c < 0x7f)
        return OTHER;
    if (c >= 0xac00 && c <= 0xd7a3)
        return (c - 0xac00) % 28 ? HANGUL_LVT : HANGUL_LV;
    const struct range *r = bsearch(&c, ranges, BY_COUNT(ranges), sizeof ranges[0], compare);
    return r ? r->kind : OTHER;
}

static bool extends(kind k)
{
    return k == EXTEND || k == LINKER || k == NON_JOINER;
}

/* Records the state for the rules that look back more than one character. */
static void remember(tok_grapheme *g, kind k)
{
    if (k == CONSONANT)
        g->conjunct = 1;
    else if (k == LINKER)
        g->conjunct = g->conjunct ? 2 : 0;
    else if (k != EXTEND && k != JOINER)
        g->conjunct = 0;
    if (k == PICTURE)
        g->picture = 1;
    else if (k == JOINER && g->picture == 1)
        g->picture = 2;
    else if (!extends(k) || g->picture == 2)
        g->picture = 0;
    g->flags = k == FLAG ? g->flags + 1 : 0;
    g->last = (int)k;
}

void tok_grapheme_begin(tok_grapheme *g, uint32_t c)
{
    *g = (tok_grapheme){0};
    remember(g, kind_of(c));
}

static bool joins_hangul(kind a, kind b)
{
    if (a == HANGUL_L)
        return b == HANGUL_L || b == HANGUL_V || b == HANGUL_LV || b == HANGUL_LVT;
    if (a == HANGUL_LV || a == HANGUL_V)
        return b == HANGUL_V || b == HANGUL_T;
    return (a == HANGUL_LVT || a == HANGUL_T) && b == HANGUL_T;
}

bool tok_grapheme_goes_on(tok_grapheme *g, uint32_t c)
{
    kind a = (kind)g->last, b = kind_of(c);
    bool on;
    if (a == CR && b == LF)
        on = true;
    else if (a == CR || a == LF || a == CONTROL || b == CR || b == LF || b == CONTROL)
        on = false;
    else
        on = extends(b) || b == JOINER || b == SPACING || a == PREPEND || joins_hangul(a, b) ||
             (b == CONSONANT && g->conjunct == 2) || (b == PICTURE && g->picture == 2) ||
             (b == FLAG && g->flags % 2 == 1);
    if (on)
        remember(g, b);
    return on;
}
