/* json.h - a thin layer over cJSON: errors that say where, typed getters for configurations, a printer. */
#ifndef BY_BASE_JSON_H
#define BY_BASE_JSON_H

#include <cjson/cJSON.h>

#include "base/base.h"

#define BY_JSON_MAX_BYTES ((size_t)256 << 20) /* a larger file is refused */
#define BY_JSON_MAX_DEPTH 1000

/* Parse size bytes of UTF-8 (no NUL needed behind them); `what` names the text in messages, normally its
 * path. Invalid UTF-8, a NUL character (even escaped: C strings would be cut there) and anything after the
 * value are errors, reported with byte, line and column. NULL on failure, else cJSON_Delete it. A number
 * whose type or digits its value does not show (1.0, 1e5, more than 15 digits) keeps its text in valuestring.
 */
cJSON *base_json_parse(const char *text, size_t size, const char *what);
cJSON *base_json_load(const char *path);

/* cJSON's own parser, in the "C" locale: text[size] must be NUL. *end (may be NULL) is where it stopped;
 * whole: nothing may follow the value. NULL on failure, without a message. */
cJSON *base_json_tree(const char *text, size_t size, const char **end, bool whole);

/* The same, whole, for text whose strings may hold NUL: an escaped NUL, at which cJSON would cut a string, is
 * BY_JSON_NUL in the tree, two bytes that no UTF-8 has. base_json_unmask gives a heap copy of such a string
 * with its size, which holds the NULs themselves; NULL when memory is out. */
#define BY_JSON_NUL "\xc0\x80"
cJSON *base_json_text_tree(const char *text, size_t size, const char **end);
char *base_json_unmask(const char *s, size_t *size);

/* Whether a text is JSON, for one that cJSON did not parse: when it is, memory was out. */
bool base_json_well_formed(const char *text);

/* Length of the number at s by the grammar of JSON, 0 when there is none. */
size_t base_json_number(const char *s);

/* Typed members of an object. An absent key, an explicit null and o == NULL all give the fallback, which need
 * not lie within the bounds. A wrong type, an integer with a fraction or a value outside [min, max] is
 * BY_ERR_FORMAT naming key and value; *out is then untouched. Numbers are doubles inside cJSON, hence
 * integers are exact below 2^53 and refused from there on. */
by_status base_json_int(const cJSON *o, const char *key, int64_t fallback, int64_t min, int64_t max,
                        int64_t *out);
by_status base_json_double(const cJSON *o, const char *key, double fallback, double min, double max,
                           double *out);
by_status base_json_bool(const cJSON *o, const char *key, bool fallback, bool *out);
by_status base_json_string(const cJSON *o, const char *key, const char *fallback,
                           const char **out); /* borrowed */

/* Append a value as text: pretty is two-space indent and one member per line, otherwise everything on one
 * line without spaces. Keys keep their order. A number that was parsed keeps its type: 1 stays 1 and 1.0
 * stays 1.0. Of other numbers, integers have no decimals, the rest the fewest digits that read back equal;
 * NaN and infinity are null. */
by_status base_json_print(base_buf *out, const cJSON *value, bool pretty);

/* Append a number with so many significant digits; null when it is NaN or infinite, which JSON has not. */
void base_json_put_number(base_buf *out, double value, int digits);

/* Append s as a JSON string with its quotes. Bytes that are not UTF-8 come out as U+FFFD, so the result is
 * always valid. */
void base_json_quote(base_buf *out, const char *s);
void base_json_quote_bytes(base_buf *out, const char *s, size_t n); /* which may hold NUL characters */

/* Length of the well-formed UTF-8 sequence at s (n > 0 bytes may be read), 0 when there is none: overlong
 * forms, surrogates and values above U+10FFFF are not well formed. */
size_t base_json_utf8(const char *s, size_t n);

/* Replace or add a member, in the place of the old one; false when memory is out. Takes the value over in any
 * case. */
bool base_json_put(cJSON *json, const char *key, cJSON *value);

/* Add a string of n bytes that may hold NUL characters, at which cJSON would cut it; base_json_print writes
 * them all. False when memory is out. */
bool base_json_add_bytes(cJSON *json, const char *key, const char *s, size_t n);

/* Pretty-print with a final newline, replacing the file atomically. */
by_status base_json_write(const char *path, const cJSON *value);

#endif
