/* regex.h - translates a regular expression of tokenizer.json to PCRE2. Private to the regex_*.c files and
 * their tests; pipeline.h has the interface for the rest of src/text.
 *
 * The expressions have Oniguruma syntax. Every character class is evaluated to the set of characters that
 * Oniguruma gives it (regex_sets.c has its tables), so classes, properties and word boundaries do not depend
 * on the Unicode version of PCRE2. PCRE2's own properties are faster and differ on few characters. So an
 * expression is translated twice: with them alone, for texts without such characters, and corrected by
 * ranges, for the others. */
#ifndef BY_TEXT_REGEX_H
#define BY_TEXT_REGEX_H

#include "base/base.h"

/* ---- sets of characters (regex_sets.c) -------------------------------------------------------- */

typedef struct tok_char_range {
    uint32_t first, last;
} tok_char_range;

/* Sorted, disjoint, not adjacent. failed is sticky, as in base_buf. The zero value is the empty set. */
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

/* Finds the set of a property, POSIX class or character type; names are compared as in Oniguruma, ignoring
 * case, spaces, "-" and "_". room gets the bracket expression that is closest in PCRE2, or "". Returns false
 * if there is no such set. */
typedef enum tok_set_kind {
    TOK_SET_PROPERTY, /* \p{} in a class */
    TOK_SET_ALONE,    /* \p{}, \w and similar outside of a class */
    TOK_SET_POSIX     /* [:name:], and \w and similar in a class */
} tok_set_kind;
#define TOK_HINT_ROOM 64
bool tok_charset_named(tok_set_kind kind, const char *name, size_t size, tok_charset *out,
                       char room[TOK_HINT_ROOM]);

/* Adds the characters above ASCII that have another case or a folding. */
void tok_charset_cased(tok_charset *out);

/* ---- translation (regex_parse.c, regex_items.c, regex_class.c) -------------------------------- */

/* PCRE2's sets, each evaluated once: the bracket expression and the characters it matches. */
typedef struct tok_natives {
    struct tok_native {
        char hint[TOK_HINT_ROOM];
        tok_charset set;
        bool known; /* PCRE2 accepts the hint */
    } items[16];
    int count;
    base_buf text, points; /* the characters to test, as UTF-8 and as numbers */
} tok_natives;
void tok_natives_free(tok_natives *n);
/* Returns the set of a hint, or NULL if PCRE2 rejects it or allocation fails (regex.c). */
const tok_charset *tok_natives_find(tok_natives *n, const char *hint);

/* A character class, without its brackets. */
typedef struct tok_charclass {
    tok_charset exact;  /* the set that Oniguruma matches */
    tok_charset native; /* the set that PCRE2 matches for the hint */
    tok_charset doubt;  /* where the two differ for a property of the hint */
    base_buf hint;
} tok_charclass;
void tok_charclass_free(tok_charclass *c);
void tok_charclass_add(tok_charclass *c, uint32_t first, uint32_t last);
/* Adds a named set or its complement. Returns false if there is no such name. */
bool tok_charclass_add_named(tok_charclass *c, tok_natives *natives, tok_set_kind kind, const char *name,
                             size_t size, bool negate);
void tok_charclass_unite(tok_charclass *c, tok_charclass *other, bool negate); /* other is emptied */
void tok_charclass_intersect(tok_charclass *c, tok_charclass *other);          /* the same */
/* Closes the class under case, as Oniguruma does for (?i). Returns false if it contains letters above ASCII,
 * whose foldings may be longer than one character. */
bool tok_charclass_fold(tok_charclass *c);
/* Appends the class as one item that matches one character and can be quantified. Without exact, it may be
 * wrong for ambiguous characters. */
void tok_charclass_write(const tok_charclass *c, bool negate, bool exact, base_buf *out);

/* Sets the error for an unsupported expression. */
by_status tok_regex_refuse(const char *pattern, size_t size, const char *why);

/* Appends the PCRE2 form of an Oniguruma expression. Without exact, it is valid only for texts without the
 * characters added to *doubt. The error names what cannot be translated. */
by_status tok_regex_translate(const char *pattern, size_t size, bool exact, tok_natives *natives,
                              base_buf *out, tok_charset *doubt);

#endif
