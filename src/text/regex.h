/* regex.h - how a regular expression of tokenizer.json becomes one of PCRE2. Private to the regex_*.c files
 * and their tests; pipeline.h has what the rest of src/text uses.
 *
 * The expressions are Oniguruma's. Every character class is evaluated to the set of characters that Oniguruma
 * gives it (regex_sets.c has its tables), so classes, properties and word boundaries do not depend on the
 * version of Unicode that PCRE2 has. PCRE2's own properties are faster, and differ on few characters: an
 * expression is translated twice, with them alone for texts without such characters, and corrected by ranges
 * for the others. */
#ifndef BY_TEXT_REGEX_H
#define BY_TEXT_REGEX_H

#include "base/base.h"

/* ---- sets of characters (regex_sets.c) -------------------------------------------------------- */

typedef struct by_char_range {
    uint32_t first, last;
} by_char_range;

/* Sorted, disjoint, not adjacent; failed is sticky, as in by_buf. The zero value is the empty set. */
typedef struct by_charset {
    by_char_range *ranges;
    size_t count, capacity;
    bool failed;
} by_charset;

void by_charset_free(by_charset *s);
void by_charset_add(by_charset *s, uint32_t first, uint32_t last);
void by_charset_unite(by_charset *s, const by_charset *other);
void by_charset_invert(by_charset *s);
void by_charset_subtract(by_charset *s, const by_charset *other);
void by_charset_intersect(by_charset *s, const by_charset *other);
bool by_charset_has(const by_charset *s, uint32_t c);

/* The set of a property, POSIX class or type of characters; names are compared as Oniguruma does, without
 * case, spaces, "-" and "_". room gets the text between brackets with which PCRE2 says about the same, ""
 * when there is none. False when there is no such set. */
typedef enum by_set_kind {
    BY_SET_PROPERTY, /* \p{} in a class */
    BY_SET_ALONE,    /* \p{}, \w and the like outside of one */
    BY_SET_POSIX     /* [:name:], and \w and the like in a class */
} by_set_kind;
#define BY_HINT_ROOM 64
bool by_charset_named(by_set_kind kind, const char *name, size_t size, by_charset *out,
                      char room[BY_HINT_ROOM]);

/* Characters above ASCII that have another case or a folding. */
void by_charset_cased(by_charset *out);

/* ---- translation (regex_parse.c, regex_items.c, regex_class.c) -------------------------------- */

/* PCRE2's sets, each asked for once: the text between brackets and the characters it matches. */
typedef struct by_natives {
    struct by_native {
        char hint[BY_HINT_ROOM];
        by_charset set;
        bool known; /* PCRE2 takes the hint */
    } items[16];
    int count;
    by_buf text, points; /* the characters that are asked about, as UTF-8 and as numbers */
} by_natives;
void by_natives_free(by_natives *n);
/* The set of a hint. NULL when PCRE2 refuses it, or there is no memory. (regex.c) */
const by_charset *by_natives_find(by_natives *n, const char *hint);

/* One character class, still without its brackets. */
typedef struct by_charclass {
    by_charset exact;  /* what Oniguruma matches */
    by_charset native; /* what PCRE2 matches for the hint */
    by_charset doubt;  /* where a property of the hint differs from Oniguruma's */
    by_buf hint;
} by_charclass;
void by_charclass_free(by_charclass *c);
void by_charclass_add(by_charclass *c, uint32_t first, uint32_t last);
/* Add a named set or its complement; false when there is none of that name. */
bool by_charclass_add_named(by_charclass *c, by_natives *natives, by_set_kind kind, const char *name,
                            size_t size, bool negate);
void by_charclass_unite(by_charclass *c, by_charclass *other, bool negate); /* other is emptied */
void by_charclass_intersect(by_charclass *c, by_charclass *other);          /* the same */
/* Close it under case, as Oniguruma does for (?i). False when it holds letters above ASCII, whose foldings
 * may be longer than one character there. */
bool by_charclass_fold(by_charclass *c);
/* Append it as one item that matches one character and can be quantified; without exact it may be wrong for
 * the characters in doubt. */
void by_charclass_write(const by_charclass *c, bool negate, bool exact, by_buf *out);

/* Set the error for an expression that is not taken. */
by_status by_regex_refuse(const char *pattern, size_t size, const char *why);

/* Append PCRE2's form of an Oniguruma expression; without exact it holds for texts without the characters
 * that are added to *doubt. The error names what cannot be translated. */
by_status by_regex_translate(const char *pattern, size_t size, bool exact, by_natives *natives, by_buf *out,
                             by_charset *doubt);

#endif
