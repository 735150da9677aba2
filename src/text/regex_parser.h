/* regex_parser.h - the parser of Oniguruma syntax, shared by regex_items.c (characters, escapes, classes) and
 * regex_parse.c (groups, repetition). */
#ifndef BY_TEXT_REGEX_PARSER_H
#define BY_TEXT_REGEX_PARSER_H

#include "text/regex.h"

#define TOK_PARSER_DEPTH 100

typedef struct tok_parser {
    const char *p, *end, *start;
    size_t size;
    tok_natives *natives;
    bool exact;
    tok_charset *doubt;
    bool fold, dotall, extended; /* (?i) (?m) (?x) */
    bool named;                  /* a named group was seen */
    int depth, groups;
    uint32_t literal; /* the last literal read, 0 after anything else */
} tok_parser;

bool tok_parser_refuse(const tok_parser *s, const char *why); /* sets the error; always returns false */
bool tok_parser_peek(const tok_parser *s, const char *text);  /* true if this text comes next */
bool tok_parser_take(tok_parser *s, const char *text);        /* the same, and consumes it */
bool tok_parser_next(tok_parser *s, uint32_t *c);             /* reads the next character */

/* Reads the character of an escape whose letter has been read and which is not a set. */
bool tok_parser_escaped(tok_parser *s, char letter, uint32_t *c);

/* Reads a set given by an escape, whose letter is next. Returns 1 if it was one, 0 if not, -1 after
 * base_fail. Outside of a class, *alone is set if its complement is meant; inside, it is NULL. */
int tok_parser_set(tok_parser *s, bool *alone, tok_charclass *c);

/* Reads a class after "[" or "[^", up to its "]". */
bool tok_parser_class(tok_parser *s, tok_charclass *out);

/* Writes a class as one item; PCRE2 must not fold it again. */
bool tok_parser_put_class(tok_parser *s, tok_charclass *c, bool negate, base_buf *out);

#endif
