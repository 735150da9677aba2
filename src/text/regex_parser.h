/* regex_parser.h - the reader of Oniguruma's syntax: the part that regex_items.c (characters, escapes,
 * classes) and regex_parse.c (groups, repetition) share. Private to those two. */
#ifndef BY_TEXT_REGEX_PARSER_H
#define BY_TEXT_REGEX_PARSER_H

#include "text/regex.h"

#define BY_PARSER_DEPTH 100

typedef struct by_parser {
    const char *p, *end, *start;
    size_t size;
    by_natives *natives;
    bool exact;
    by_charset *doubt;
    bool fold, dotall, extended; /* (?i) (?m) (?x) */
    bool named;                  /* a named group was seen */
    int depth, groups;
    uint32_t literal; /* the literal that was read last, 0 after anything else */
} by_parser;

bool by_parser_refuse(const by_parser *s, const char *why); /* sets the error; always false */
bool by_parser_peek(const by_parser *s, const char *text);  /* does this text come next? */
bool by_parser_take(by_parser *s, const char *text);        /* the same, and step over it */
bool by_parser_next(by_parser *s, uint32_t *c);             /* the next character */

/* The character of an escape whose letter has been read and which is not a set. */
bool by_parser_escaped(by_parser *s, char letter, uint32_t *c);

/* A set by an escape, whose letter is next: 1 when it was one, 0 when not, -1 after by_fail. Outside of a
 * class *alone says whether its complement is meant; in one it is NULL. */
int by_parser_set(by_parser *s, bool *alone, by_charclass *c);

/* After "[" or "[^", up to its "]". */
bool by_parser_class(by_parser *s, by_charclass *out);

/* Write a class as one item; PCRE2 must not fold it again. */
bool by_parser_put_class(by_parser *s, by_charclass *c, bool negate, by_buf *out);

#endif
