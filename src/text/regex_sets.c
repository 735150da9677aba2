/* regex_sets.c - sets of characters, and the properties that Oniguruma knows by name. */
#include <stdio.h>
#include <utf8proc.h>

#include "text/regex.h"

#include "text/regex_sets.def"

#define LAST_CHAR 0x10ffffu

/* ---- arithmetic ------------------------------------------------------------------------------- */

void tok_charset_free(tok_charset *s)
{
    base_free(s->ranges);
    *s = (tok_charset){0};
}

static bool reserve(tok_charset *s, size_t count)
{
    if (count <= s->capacity)
        return !s->failed;
    size_t capacity = BY_MAX(count, s->capacity * 2 + 8);
    tok_char_range *p = base_alloc_zero(capacity, sizeof(*p));
    if (!p) {
        s->failed = true;
        return false;
    }
    if (s->count)
        memcpy(p, s->ranges, s->count * sizeof(*p));
    base_free(s->ranges);
    s->ranges = p;
    s->capacity = capacity;
    return !s->failed;
}

void tok_charset_add(tok_charset *s, uint32_t first, uint32_t last)
{
    if (first > last || !reserve(s, s->count + 1))
        return;
    size_t i = s->count; /* the first range that touches or follows */
    while (i > 0 && s->ranges[i - 1].last + 1 >= first)
        i--;
    size_t end = i; /* past the last one that touches */
    while (end < s->count && s->ranges[end].first <= last + 1) {
        first = BY_MIN(first, s->ranges[end].first);
        last = BY_MAX(last, s->ranges[end].last);
        end++;
    }
    memmove(s->ranges + i + 1, s->ranges + end, (s->count - end) * sizeof(*s->ranges));
    s->count = s->count - (end - i) + 1;
    s->ranges[i] = (tok_char_range){first, last};
}

/* Both are sorted: merge them. */
void tok_charset_unite(tok_charset *s, const tok_charset *other)
{
    tok_charset out = {.failed = s->failed || other->failed};
    size_t i = 0, j = 0;
    reserve(&out, s->count + other->count);
    while (i < s->count || j < other->count) {
        bool mine = j == other->count || (i < s->count && s->ranges[i].first <= other->ranges[j].first);
        tok_char_range r = mine ? s->ranges[i++] : other->ranges[j++];
        tok_charset_add(&out, r.first, r.last);
    }
    tok_charset_free(s);
    *s = out;
}

void tok_charset_invert(tok_charset *s)
{
    tok_charset out = {.failed = s->failed};
    uint32_t next = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->ranges[i].first > next)
            tok_charset_add(&out, next, s->ranges[i].first - 1);
        next = s->ranges[i].last + 1;
    }
    if (next <= LAST_CHAR)
        tok_charset_add(&out, next, LAST_CHAR);
    tok_charset_free(s);
    *s = out;
}

/* a minus b is the complement of (complement of a) or b. */
void tok_charset_subtract(tok_charset *s, const tok_charset *other)
{
    tok_charset_invert(s);
    tok_charset_unite(s, other);
    tok_charset_invert(s);
}

void tok_charset_intersect(tok_charset *s, const tok_charset *other)
{
    tok_charset rest = {0};
    tok_charset_unite(&rest, other);
    tok_charset_invert(&rest);
    tok_charset_subtract(s, &rest);
    tok_charset_free(&rest);
}

bool tok_charset_has(const tok_charset *s, uint32_t c)
{
    size_t low = 0, high = s->count; /* the first range that ends at c or later */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->ranges[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->count && s->ranges[low].first <= c;
}

/* ---- tables ----------------------------------------------------------------------------------- */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Adds the ranges of a table whose value is wanted. */
static void add_stretches(tok_charset *out, const uint32_t *table, size_t count, const bool wanted[256])
{
    for (size_t i = 0; i < count; i++)
        if (wanted[table[i] >> 24])
            tok_charset_add(out, table[i] & 0xffffff,
                            i + 1 < count ? (table[i + 1] & 0xffffff) - 1 : LAST_CHAR);
}

/* Adds general categories by their short names, "L Nd": a whole group, or one. */
static void add_categories(tok_charset *out, const char *names)
{
    bool wanted[256] = {false};
    for (const char *p = names; *p; p += *p == ' ') {
        size_t n = strcspn(p, " ");
        for (size_t i = 0; i < COUNT(category_names); i++)
            if (strncmp(category_names[i], p, n) == 0)
                wanted[i] = true;
        p += n;
    }
    add_stretches(out, categories, COUNT(categories), wanted);
}

static bool add_binary(tok_charset *out, const char *name)
{
    for (size_t i = 0; i < COUNT(binaries); i++) {
        if (strcmp(binaries[i].name, name) != 0)
            continue;
        for (size_t k = 0; k < binaries[i].count; k += 2)
            tok_charset_add(out, binaries[i].at[k],
                            k + 1 < binaries[i].count ? binaries[i].at[k + 1] - 1 : LAST_CHAR);
        return true;
    }
    return false;
}

/* ---- names ------------------------------------------------------------------------------------ */

/* A set made of categories and binary properties, then `more` as text of "first-last" in hexadecimal. The
 * name is that of a POSIX bracket, of \p{}, or of both. */
typedef struct made {
    const char *name;
    bool posix, property;
    const char *categories, *binary, *more, *hint;
    bool negate;
} made;

#define SPACES "9-d 20-20 85-85 a0-a0 1680-1680 2000-200a 2028-2029 202f-202f 205f-205f 3000-3000"
#define ALPHA  "\\p{Alphabetic}"
#define WORD   "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"

/* \w, \b and \p{Word} count six Latin-1 numbers as word characters; in a class they do not. */
#define WORD_NUMBERS "b2-b3 b9-b9 bc-be"

static const made sets[] = {
    {"alnum", true, true, "Nd", "Alphabetic", "", ALPHA "\\p{Nd}", false},
    {"alpha", true, true, "", "Alphabetic", "", ALPHA, false},
    {"ascii", true, true, "", NULL, "0-7f", "", false},
    {"blank", true, true, "Zs", NULL, "9-9", "", false},
    {"cntrl", true, true, "Cc", NULL, "", "", false},
    {"digit", true, true, "Nd", NULL, "", "\\p{Nd}", false},
    {"graph", true, true, "Cn Cc", NULL, SPACES, "", true},
    {"lower", true, true, "", "Lowercase", "", "\\p{Ll}", false},
    {"print", true, true, "Cn Cc Zl Zp", NULL, "", "", true},
    {"punct", true, false, "P S", NULL, "", "\\p{P}\\p{S}", false},
    {"punct", false, true, "P", NULL, "", "\\p{P}", false},
    {"space", true, true, "", NULL, SPACES, "\\s", false},
    {"whitespace", false, true, "", NULL, SPACES, "", false},
    {"upper", true, true, "", "Uppercase", "", "\\p{Lu}", false},
    {"word", true, true, "M Nd Pc", "Alphabetic", "", WORD, false},
    {"xdigit", true, true, "", NULL, "30-39 41-46 61-66", "", false},
    {"any", false, true, "", NULL, "0-10ffff", "", false},
    {"assigned", false, true, "Cn", NULL, "", "", true},
    {"lc", false, true, "Ll Lt Lu", NULL, "", "\\p{Ll}\\p{Lt}\\p{Lu}", false},
    {"casedletter", false, true, "Ll Lt Lu", NULL, "", "\\p{Ll}\\p{Lt}\\p{Lu}", false},
};

/* Long names of general categories. */
static const struct {
    const char *name, *category;
} long_names[] = {
    {"other", "C"},
    {"unassigned", "Cn"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"letter", "L"},
    {"lowercaseletter", "Ll"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"titlecaseletter", "Lt"},
    {"uppercaseletter", "Lu"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"closepunctuation", "Pe"},
    {"finalpunctuation", "Pf"},
    {"initialpunctuation", "Pi"},
    {"otherpunctuation", "Po"},
    {"openpunctuation", "Ps"},
    {"symbol", "S"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"mathsymbol", "Sm"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"spaceseparator", "Zs"},
};

/* Converts to lower case without spaces, "-" and "_", as Oniguruma compares names. Returns false if it is too
 * long. */
static bool plain_name(const char *name, size_t size, char out[48])
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        char c = name[i];
        if (c == ' ' || c == '-' || c == '_')
            continue;
        if (n + 1 == 48)
            return false;
        out[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    out[n] = '\0';
    return n > 0;
}

static bool same_name(const char *plain, const char *name)
{
    char other[48];
    return plain_name(name, strlen(name), other) && strcmp(plain, other) == 0;
}

static void add_ranges(tok_charset *out, const char *text)
{
    for (const char *p = text; *p;) {
        char *end;
        uint32_t first = (uint32_t)strtoul(p, &end, 16), last = (uint32_t)strtoul(end + 1, &end, 16);
        tok_charset_add(out, first, last);
        p = end + (*end == ' ');
    }
}

static void make(const made *m, tok_charset *out)
{
    if (m->categories[0])
        add_categories(out, m->categories);
    if (m->binary)
        add_binary(out, m->binary);
    add_ranges(out, m->more);
    if (m->negate)
        tok_charset_invert(out);
}

static bool tok_category(const char *plain, tok_charset *out, char room[TOK_HINT_ROOM])
{
    const char *found = NULL;
    /* One letter or two. */
    for (size_t i = 0; i < COUNT(long_names) && !found; i++)
        if (strcmp(plain, long_names[i].name) == 0 || same_name(plain, long_names[i].category))
            found = long_names[i].category;
    if (!found)
        return false;
    add_categories(out, found);
    base_format(room, TOK_HINT_ROOM, "\\p{%s}", found);
    return true;
}

static bool tok_script_name(const char *plain, tok_charset *out, char room[TOK_HINT_ROOM])
{
    for (size_t i = 1; i < COUNT(script_names); i++) {
        if (!same_name(plain, script_names[i][0]) && !same_name(plain, script_names[i][1]))
            continue;
        bool wanted[256] = {false};
        wanted[i] = true;
        add_stretches(out, scripts, COUNT(scripts), wanted);
        base_format(room, TOK_HINT_ROOM, "\\p{sc:%s}", script_names[i][0]);
        return true;
    }
    return false;
}

bool tok_charset_named(tok_set_kind kind, const char *name, size_t size, tok_charset *out,
                       char room[TOK_HINT_ROOM])
{
    char plain[48];
    room[0] = '\0';
    if (!plain_name(name, size, plain))
        return false;
    for (size_t i = 0; i < COUNT(sets); i++)
        if ((kind == TOK_SET_POSIX ? sets[i].posix : sets[i].property) && strcmp(plain, sets[i].name) == 0) {
            make(&sets[i], out);
            if (kind == TOK_SET_ALONE && strcmp(plain, "word") == 0)
                add_ranges(out, WORD_NUMBERS);
            base_format(room, TOK_HINT_ROOM, "%s", sets[i].hint);
            return true;
        }
    if (kind == TOK_SET_POSIX)
        return false;
    if (tok_category(plain, out, room) || tok_script_name(plain, out, room))
        return true;
    for (size_t i = 0; i < COUNT(binaries); i++)
        if (same_name(plain, binaries[i].name)) {
            base_format(room, TOK_HINT_ROOM, "\\p{%s}", binaries[i].name);
            return add_binary(out, binaries[i].name);
        }
    return false;
}

void tok_charset_cased(tok_charset *out)
{
    for (uint32_t c = 0x80; c < 0x1f000; c++) {
        utf8proc_int32_t fold[8];
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, fold, 8, UTF8PROC_CASEFOLD, NULL);
        if (utf8proc_toupper((utf8proc_int32_t)c) != (utf8proc_int32_t)c ||
            utf8proc_tolower((utf8proc_int32_t)c) != (utf8proc_int32_t)c || n != 1 ||
            fold[0] != (utf8proc_int32_t)c)
            tok_charset_add(out, c, c);
    }
    tok_charset newer = {0}, ascii = {0}; /* including the reference's newer letters */
    add_categories(&newer, "Ll Lt Lu");
    tok_charset_add(&ascii, 0, 0x7f);
    tok_charset_subtract(&newer, &ascii);
    tok_charset_unite(out, &newer);
    tok_charset_free(&newer);
    tok_charset_free(&ascii);
}
