/* bleu_words.c - word splitting for BLEU: the rules of mteval-v13a and mteval-v14 as sacreBLEU applies them.
 * Each rule rewrites the text from left to right and continues after its last match. */
#include <stdlib.h>

#include "score/score.h"
#include "text/unicode.h"

static void swap(score_points *a, score_points *b)
{
    score_points t = *a;
    *a = *b;
    *b = t;
}

/* ---- 13a ------------------------------------------------------------------------------------- */

static bool is_at(const score_points *t, size_t i, const char *what)
{
    for (; *what; what++, i++)
        if (i >= t->count || t->c[i] != (uint32_t)*what)
            return false;
    return true;
}

static void replace(score_points *t, score_points *out, const char *from, const char *to)
{
    const size_t n = strlen(from);
    out->count = 0;
    for (size_t i = 0; i < t->count;) {
        if (!is_at(t, i, from)) {
            score_points_put(out, t->c[i++]);
            continue;
        }
        for (const char *s = to; *s; s++)
            score_points_put(out, (uint32_t)*s);
        i += n;
    }
    swap(t, out);
}

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

/* ASCII punctuation except apostrophe, comma, hyphen and full stop. */
static bool is_mark(uint32_t c)
{
    return c <= '~' && tok_is_ascii_punctuation(c) && c != '\'' && c != ',' && c != '-' && c != '.';
}

static bool is_stop(uint32_t c)
{
    return c == '.' || c == ',';
}

typedef bool (*is_fn)(uint32_t c);

/* Puts spaces around each such character. */
static void space_each(score_points *t, score_points *out, is_fn is)
{
    out->count = 0;
    for (size_t i = 0; i < t->count; i++) {
        bool alone = is(t->c[i]);
        if (alone)
            score_points_put(out, ' ');
        score_points_put(out, t->c[i]);
        if (alone)
            score_points_put(out, ' ');
    }
    swap(t, out);
}

/* For each pair of a character for which `first` is `first_is` and one for which `second` is true: puts a
 * space between them, and another one after the second (`after`) or before the first. */
static void space_pairs(score_points *t, score_points *out, is_fn first, bool first_is, is_fn second,
                        bool second_is, bool after)
{
    out->count = 0;
    size_t i = 0;
    while (i + 1 < t->count) {
        if (first(t->c[i]) != first_is || second(t->c[i + 1]) != second_is) {
            score_points_put(out, t->c[i++]);
            continue;
        }
        if (!after)
            score_points_put(out, ' ');
        score_points_put(out, t->c[i]);
        score_points_put(out, ' ');
        score_points_put(out, t->c[i + 1]);
        if (after)
            score_points_put(out, ' ');
        i += 2;
    }
    if (i < t->count)
        score_points_put(out, t->c[i]);
    swap(t, out);
}

static bool is_dash(uint32_t c)
{
    return c == '-';
}

static void surround(score_points *t, score_points *out)
{
    out->count = 0;
    score_points_put(out, ' ');
    for (size_t i = 0; i < t->count; i++)
        score_points_put(out, t->c[i]);
    score_points_put(out, ' ');
    swap(t, out);
}

static void part_13a(score_points *t, score_points *spare)
{
    static const char *const spelled[][2] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                                             {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    for (int i = 0; i < BY_COUNT(spelled); i++)
        replace(t, spare, spelled[i][0], spelled[i][1]);
    surround(t, spare);
    space_each(t, spare, is_mark);
    space_pairs(t, spare, is_digit, false, is_stop, true, true);
    space_pairs(t, spare, is_stop, true, is_digit, false, false);
    space_pairs(t, spare, is_digit, true, is_dash, true, true);
}

/* ---- international --------------------------------------------------------------------------- */

/* Punctuation, numbers and symbols up to Unicode 17 that the tables of utf8proc may lack. */
static const struct newer {
    uint32_t first, last;
    char kind;
} newer[] = {
    {0x1b4e, 0x1b4f, 'P'},   {0x1b7f, 0x1b7f, 'P'},   {0x20c1, 0x20c4, 'S'},   {0x2427, 0x2429, 'S'},
    {0x2b96, 0x2b96, 'S'},   {0x2e60, 0x2e63, 'P'},   {0x2ffc, 0x2fff, 'S'},   {0x31e4, 0x31e5, 'S'},
    {0x31ef, 0x31ef, 'S'},   {0xfbc3, 0xfbd2, 'S'},   {0xfd90, 0xfd91, 'S'},   {0xfdc8, 0xfdce, 'S'},
    {0x10d40, 0x10d49, 'N'}, {0x10d6e, 0x10d6e, 'P'}, {0x10d8e, 0x10d8f, 'S'}, {0x10ec9, 0x10eca, 'S'},
    {0x10ed0, 0x10ed0, 'P'}, {0x10ed1, 0x10ed8, 'S'}, {0x113d4, 0x113d5, 'P'}, {0x113d7, 0x113d8, 'P'},
    {0x116d0, 0x116e3, 'N'}, {0x11be1, 0x11be1, 'P'}, {0x11bf0, 0x11bf9, 'N'}, {0x11de0, 0x11de9, 'N'},
    {0x1246f, 0x1246f, 'N'}, {0x12475, 0x1247f, 'N'}, {0x12550, 0x12686, 'N'}, {0x16130, 0x16139, 'N'},
    {0x16d6d, 0x16d6f, 'P'}, {0x16d70, 0x16d79, 'N'}, {0x16ff4, 0x16ff6, 'N'}, {0x1cc00, 0x1ccef, 'S'},
    {0x1ccf0, 0x1ccf9, 'N'}, {0x1ccfa, 0x1ccfc, 'S'}, {0x1cd00, 0x1ceb3, 'S'}, {0x1ceba, 0x1ced0, 'S'},
    {0x1ced2, 0x1ced4, 'S'}, {0x1cedd, 0x1cefd, 'S'}, {0x1d1eb, 0x1d1ff, 'S'}, {0x1d253, 0x1d25a, 'S'},
    {0x1d25d, 0x1d25e, 'S'}, {0x1d260, 0x1d27f, 'S'}, {0x1db00, 0x1db1c, 'S'}, {0x1e5f1, 0x1e5fa, 'N'},
    {0x1e5ff, 0x1e5ff, 'P'}, {0x1f1ae, 0x1f1ae, 'S'}, {0x1f6d8, 0x1f6d9, 'S'}, {0x1f777, 0x1f77a, 'S'},
    {0x1f7da, 0x1f7db, 'S'}, {0x1f7f1, 0x1f7ff, 'S'}, {0x1f8b2, 0x1f8bb, 'S'}, {0x1f8c0, 0x1f8c1, 'S'},
    {0x1f8d0, 0x1f8d8, 'S'}, {0x1fa54, 0x1fa57, 'S'}, {0x1fa89, 0x1fa8f, 'S'}, {0x1fabe, 0x1fabe, 'S'},
    {0x1fac6, 0x1fac6, 'S'}, {0x1fac8, 0x1fac8, 'S'}, {0x1facc, 0x1facd, 'S'}, {0x1fadc, 0x1fadd, 'S'},
    {0x1fadf, 0x1fadf, 'S'}, {0x1fae9, 0x1faeb, 'S'}, {0x1faef, 0x1faef, 'S'}, {0x1faf9, 0x1fafa, 'S'},
    {0x1fbcb, 0x1fbef, 'S'}, {0x1fbfa, 0x1fbfa, 'S'},
};

static int compare_newer(const void *key, const void *row)
{
    uint32_t c = *(const uint32_t *)key;
    const struct newer *r = row;
    return c < r->first ? -1 : c > r->last ? 1 : 0;
}

/* Returns the first letter of the general category if it is P, N or S, otherwise 0. */
static char kind_of(uint32_t c)
{
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO)
        return 'P';
    if (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO)
        return 'N';
    if (k >= UTF8PROC_CATEGORY_SM && k <= UTF8PROC_CATEGORY_SO)
        return 'S';
    if (k != UTF8PROC_CATEGORY_CN)
        return 0;
    const struct newer *r = bsearch(&c, newer, BY_COUNT(newer), sizeof newer[0], compare_newer);
    return r ? r->kind : 0;
}

static bool is_punctuation(uint32_t c)
{
    return kind_of(c) == 'P';
}

static bool is_number(uint32_t c)
{
    return kind_of(c) == 'N';
}

static bool is_symbol(uint32_t c)
{
    return kind_of(c) == 'S';
}

static void part_intl(score_points *t, score_points *spare)
{
    space_pairs(t, spare, is_number, false, is_punctuation, true, true);
    space_pairs(t, spare, is_punctuation, true, is_number, false, false);
    space_each(t, spare, is_symbol);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool is_any(uint32_t c)
{
    (void)c;
    return true;
}

void score_bleu_part(by_bleu_words words, score_points *text, score_points *spare)
{
    while (text->count && score_space(text->c[text->count - 1]))
        text->count--;
    if (words == BY_BLEU_13A)
        part_13a(text, spare);
    else if (words == BY_BLEU_CHAR)
        space_each(text, spare, is_any);
    else if (words == BY_BLEU_INTL)
        part_intl(text, spare);
}
