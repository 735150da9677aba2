/* porter.c - Porter, An algorithm for suffix stripping (1980), with NLTK's changes: a list of words with
 * their own stems, short words in -ies and -ied, y only after consonants, -alli first, -bli, -fulli and
 * -logi, and two letters as a short syllable. */
#include "score/score.h"

typedef struct word {
    char *s;
    size_t n;
} word;

/* ---- letters --------------------------------------------------------------------------------- */

static bool is_vowel(char c)
{
    return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

/* A y is a consonant at the start and after a vowel. */
static bool is_consonant(const char *s, size_t i)
{
    bool other = false;
    for (; i > 0 && s[i] == 'y'; i--)
        other = !other;
    return is_vowel(s[i]) == other;
}

/* Counts how many times consonants follow vowels in s[0, n): Porter's m. */
static int measure(const char *s, size_t n)
{
    int m = 0;
    bool before = true;
    for (size_t i = 0; i < n; i++) {
        bool consonant = s[i] == 'y' ? i == 0 || !before : !is_vowel(s[i]);
        m += consonant && !before;
        before = consonant;
    }
    return m;
}

static bool has_vowel(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_vowel(s[i]) || (s[i] == 'y' && !is_consonant(s, i)))
            return true;
    return false;
}

static bool ends_double(const char *s, size_t n)
{
    return n >= 2 && s[n - 1] == s[n - 2] && is_consonant(s, n - 1);
}

/* True for consonant, vowel, consonant where the last is not w, x or y, and for a lone vowel and
 * consonant. */
static bool ends_short(const char *s, size_t n)
{
    if (n == 2)
        return !is_consonant(s, 0) && is_consonant(s, 1);
    return n >= 3 && is_consonant(s, n - 3) && !is_consonant(s, n - 2) && is_consonant(s, n - 1) &&
           s[n - 1] != 'w' && s[n - 1] != 'x' && s[n - 1] != 'y';
}

static bool ends(const word *w, const char *suffix)
{
    size_t n = strlen(suffix);
    return w->n >= n && memcmp(w->s + w->n - n, suffix, n) == 0;
}

/* Replaces the last `cut` letters with another ending, which is never longer than what the word has lost so
 * far. */
static void put(word *w, size_t cut, const char *ending)
{
    size_t n = strlen(ending);
    memcpy(w->s + w->n - cut, ending, n);
    w->n = w->n - cut + n;
}

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct rule {
    const char *suffix, *ending;
    bool (*also)(const char *stem, size_t n); /* or NULL */
} rule;

/* The first rule with a matching suffix decides: it applies if the rest of the word has at least this
 * measure. */
static void apply(word *w, const rule *rules, int count, int least)
{
    for (int i = 0; i < count; i++) {
        const rule *r = &rules[i];
        if (!ends(w, r->suffix))
            continue;
        size_t cut = strlen(r->suffix), n = w->n - cut;
        if ((r->also ? r->also(w->s, n) : true) && measure(w->s, n) >= least)
            put(w, cut, r->ending);
        return;
    }
}
#define APPLY(w, rules, least) apply(w, rules, BY_COUNT(rules), least)

static void plural(word *w)
{
    static const rule rules[] = {
        {"sses", "ss", NULL}, {"ies", "i", NULL}, {"ss", "ss", NULL}, {"s", "", NULL}};
    if (w->n == 4 && ends(w, "ies"))
        put(w, 3, "ie");
    else
        APPLY(w, rules, 0);
}

/* Restores a final e or drops a doubled letter after -ed or -ing was removed. */
static void restore_ending(word *w)
{
    const char last = w->s[w->n - 1];
    if (ends(w, "at") || ends(w, "bl") || ends(w, "iz"))
        put(w, 0, "e");
    else if (ends_double(w->s, w->n))
        w->n -= last != 'l' && last != 's' && last != 'z';
    else if (measure(w->s, w->n) == 1 && ends_short(w->s, w->n))
        put(w, 0, "e");
}

static void past(word *w)
{
    if (ends(w, "ied")) {
        put(w, 3, w->n == 4 ? "ie" : "i");
    } else if (ends(w, "eed")) {
        if (measure(w->s, w->n - 3) > 0)
            put(w, 3, "ee");
    } else {
        size_t cut = ends(w, "ed") ? 2 : ends(w, "ing") ? 3 : 0;
        if (cut && has_vowel(w->s, w->n - cut)) {
            put(w, cut, "");
            restore_ending(w);
        }
    }
}

static void last_y(word *w)
{
    if (w->n > 2 && ends(w, "y") && is_consonant(w->s, w->n - 2))
        put(w, 1, "i");
}

static void double_suffix(word *w)
{
    static const rule rules[] = {{"ational", "ate", NULL}, {"tional", "tion", NULL}, {"enci", "ence", NULL},
                                 {"anci", "ance", NULL},   {"izer", "ize", NULL},    {"bli", "ble", NULL},
                                 {"alli", "al", NULL},     {"entli", "ent", NULL},   {"eli", "e", NULL},
                                 {"ousli", "ous", NULL},   {"ization", "ize", NULL}, {"ation", "ate", NULL},
                                 {"ator", "ate", NULL},    {"alism", "al", NULL},    {"iveness", "ive", NULL},
                                 {"fulness", "ful", NULL}, {"ousness", "ous", NULL}, {"aliti", "al", NULL},
                                 {"iviti", "ive", NULL},   {"biliti", "ble", NULL},  {"fulli", "ful", NULL}};
    while (ends(w, "alli") && measure(w->s, w->n - 4) > 0)
        put(w, 4, "al");
    if (!ends(w, "logi"))
        APPLY(w, rules, 1);
    else if (measure(w->s, w->n - 3) > 0) /* the l belongs to the stem: geo, theo are long enough */
        put(w, 4, "log");
}

static void suffix(word *w)
{
    static const rule rules[] = {{"icate", "ic", NULL}, {"ative", "", NULL},  {"alize", "al", NULL},
                                 {"iciti", "ic", NULL}, {"ical", "ic", NULL}, {"ful", "", NULL},
                                 {"ness", "", NULL}};
    APPLY(w, rules, 1);
}

static bool ends_s_or_t(const char *s, size_t n)
{
    return n > 0 && (s[n - 1] == 's' || s[n - 1] == 't');
}

static void bare(word *w)
{
    static const rule rules[] = {
        {"al", "", NULL},    {"ance", "", NULL}, {"ence", "", NULL}, {"er", "", NULL},
        {"ic", "", NULL},    {"able", "", NULL}, {"ible", "", NULL}, {"ant", "", NULL},
        {"ement", "", NULL}, {"ment", "", NULL}, {"ent", "", NULL},  {"ion", "", ends_s_or_t},
        {"ou", "", NULL},    {"ism", "", NULL},  {"ate", "", NULL},  {"iti", "", NULL},
        {"ous", "", NULL},   {"ive", "", NULL},  {"ize", "", NULL}};
    APPLY(w, rules, 2);
}

static void last_letter(word *w)
{
    if (ends(w, "e")) {
        int m = measure(w->s, w->n - 1);
        if (m > 1 || (m == 1 && !ends_short(w->s, w->n - 1)))
            put(w, 1, "");
    }
    if (ends(w, "ll") && measure(w->s, w->n - 1) > 1)
        put(w, 1, "");
}

/* Handles words whose stems no rule finds. */
static bool is_irregular(word *w)
{
    static const char *const list[][2] = {
        {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
        {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
        {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
        {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"}};
    for (int i = 0; i < BY_COUNT(list); i++)
        if (strlen(list[i][0]) == w->n && ends(w, list[i][0])) {
            put(w, w->n, list[i][1]);
            return true;
        }
    return false;
}

size_t score_porter_stem(char *text, size_t n)
{
    word w = {text, n};
    if (is_irregular(&w) || n <= 2)
        return w.n;
    plural(&w);
    past(&w);
    last_y(&w);
    double_suffix(&w);
    suffix(&w);
    bare(&w);
    last_letter(&w);
    return w.n;
}
