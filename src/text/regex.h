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

typedef struct tok_char_range {
    uint32_t first, last;
} tok_char_range;

/* Sorted, disjoint, not adjacent; failed is sticky, as in base_buf. The zero value is the empty set. */
typedef struct tok_charset {
    tok_char_range *ranges;
    size_t count, capacity;
    bool failed;
} tok_charset;

void tok_charset_free(tok_charset *s);
void tok_charset_add(tok_charset *s, uint32_t first, uint32_t last);
void tok_charset_unite(tok_charset *s, const tok_charset *other);
void tok_charset_invert(tok_charset *s);
void tok_charset_subtract(tok_charset *s, const tok_charset *other);
void tok_charset_intersect(tok_charset *s, const tok_charset *other);
bool tok_charset_has(const tok_charset *s, uint32_t c);

/* The set of a property, POSIX class or type of characters; names are compared as Oniguruma does, without
 * case, spaces, "-" and "_". room gets the text between brackets with which PCRE2 says about the same, ""
 * when there is none. False when there is no such set. */
typedef enum tok_set_kind {
    TOK_SET_PROPERTY, /* \p{} in a class */
    TOK_SET_ALONE,    /* \p{}, \w and the like outside of one */
    TOK_SET_POSIX     /* [:name:], and \w and the like in a class */
} tok_set_kind;
#define TOK_HINT_ROOM 64
bool tok_charset_named(tok_set_kind kind, const char *name, size_t size, tok_charset *out,
                       char room[TOK_HINT_ROOM]);

/* Characters above ASCII that have another case or a folding. */
void tok_charset_cased(tok_charset *out);

/* ---- translation (regex_parse.c, regex_items.c, regex_class.c) -------------------------------- */

/* PCRE2's sets, each asked for once: the text between brackets and the characters it matches. */
typedef struct tok_natives {
    struct tok_native {
        char hint[TOK_HINT_ROOM];
        tok_charset set;
        bool known; /* PCRE2 takes the hint */
    } items[16];
    int count;
    base_buf text, points; /* the characters that are asked about, as UTF-8 and as numbers */
} tok_natives;
void tok_natives_free(tok_natives *n);
/* The set of a hint. NULL when PCRE2 refuses it, or there is no memory. (regex.c) */
const tok_charset *tok_natives_find(tok_natives *n, const char *hint);

/* One character class, still without its brackets. */
typedef struct tok_charclass {
    tok_charset exact;  /* what Oniguruma matches */
    tok_charset native; /* what PCRE2 matches for the hint */
    tok_charset doubt;  /* where a property of the hint differs from Oniguruma's */
    base_buf hint;
} tok_charclass;
void tok_charclass_free(tok_charclass *c);
void tok_charclass_add(tok_charclass *c, uint32_t first, uint32_t last);
/* Add a named set or its complement; false when there is none of that name. */
bool tok_charclass_add_named(tok_charclass *c, tok_natives *natives, tok_set_kind kind, const char *name,
                             size_t size, bool negate);
void tok_charclass_unite(tok_charclass *c, tok_charclass *other, bool negate); /* other is emptied */
void tok_charclass_intersect(tok_charclass *c, tok_charclass *other);          /* the same */
/* Close it under case, as Oniguruma does for (?i). False when it holds letters above ASCII, whose foldings
 * may be longer than one character there. */
bool tok_charclass_fold(tok_charclass *c);
/* Append it as one item that matches one character and can be quantified; without exact it may be wrong for
 * the characters in doubt. */
void tok_charclass_write(const tok_charclass *c, bool negate, bool exact, base_buf *out);

/* Set the error for an expression that is not taken. */
by_status tok_regex_refuse(const char *pattern, size_t size, const char *why);

/* Append PCRE2's form of an Oniguruma expression; without exact it holds for texts without the characters
 * that are added to *doubt. The error names what cannot be translated. */
by_status tok_regex_translate(const char *pattern, size_t size, bool exact, tok_natives *natives,
                              base_buf *out, tok_charset *doubt);

#endif
