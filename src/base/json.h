/* json.h - a thin layer over cJSON: errors with positions, typed getters for configurations, a printer. */
#ifndef BY_BASE_JSON_H
#define BY_BASE_JSON_H

#include <cjson/cJSON.h>

#include "base/base.h"

#define BY_JSON_MAX_BYTES ((size_t)256 << 20) /* larger files are rejected */
#define BY_JSON_MAX_DEPTH 1000

/* Parses size bytes of UTF-8, which need not be NUL-terminated. `what` names the text in messages, normally
 * its path. Invalid UTF-8, a NUL character (even escaped: C strings would end there) and anything after the
 * value are errors, reported with byte, line and column. Returns NULL on failure; free the result with
 * cJSON_Delete. A number whose value does not show its type or all of its digits (1.0, 1e5, more than 15
 * digits) keeps its text in valuestring. */
cJSON *base_json_parse(const char *text, size_t size, const char *what);
cJSON *base_json_load(const char *path);

/* cJSON's own parser, in the "C" locale. text[size] must be NUL. *end (may be NULL) is where it stopped.
 * whole: nothing may follow the value. Returns NULL on failure, without a message. */
cJSON *base_json_tree(const char *text, size_t size, const char **end, bool whole);

/* As base_json_tree with whole set, for text whose strings may contain NUL: an escaped NUL, at which cJSON
 * would truncate the string, becomes BY_JSON_NUL in the tree, two bytes that never occur in UTF-8.
 * base_json_unmask returns a heap copy of such a string, with its size, that contains the NULs; NULL if
 * allocation fails. */
#define BY_JSON_NUL "\xc0\x80"
cJSON *base_json_text_tree(const char *text, size_t size, const char **end);
char *base_json_unmask(const char *s, size_t *size);

/* Returns true if a text that cJSON did not parse is JSON. If it is, cJSON ran out of memory. */
bool base_json_well_formed(const char *text);

/* Returns the length of the JSON number at s, or 0 if there is none. */
size_t base_json_number(const char *s);

/* Typed members of an object. An absent key, an explicit null and o == NULL all give the fallback, which need
 * not lie within the bounds. A wrong type, an integer with a fraction or a value outside [min, max] is
 * BY_ERR_FORMAT with key and value; *out is then unchanged. Numbers are doubles inside cJSON, so integers are
 * exact below 2^53 and rejected from there on. */
by_status base_json_int(const cJSON *o, const char *key, int64_t fallback, int64_t min, int64_t max,
                        int64_t *out);
by_status base_json_double(const cJSON *o, const char *key, double fallback, double min, double max,
                           double *out);
by_status base_json_bool(const cJSON *o, const char *key, bool fallback, bool *out);
by_status base_json_string(const cJSON *o, const char *key, const char *fallback,
                           const char **out); /* borrowed */

/* Appends a value as text. pretty: two-space indent and one member per line; otherwise one line without
 * spaces. Keys keep their order. A parsed number keeps its type: 1 stays 1 and 1.0 stays 1.0. Other integers
 * are printed without decimals, other numbers with the fewest digits that read back equal; NaN and infinity
 * become null. */
by_status base_json_print(base_buf *out, const cJSON *value, bool pretty);

/* Appends a number with `digits` significant digits, or null if it is NaN or infinite, which JSON cannot
 * represent. */
void base_json_put_number(base_buf *out, double value, int digits);

/* Appends s as a quoted JSON string. Invalid UTF-8 becomes U+FFFD, so the result is always valid. */
void base_json_quote(base_buf *out, const char *s);
void base_json_quote_bytes(base_buf *out, const char *s, size_t n); /* s may contain NUL characters */

/* Returns the length of the well-formed UTF-8 sequence at s (n > 0 bytes are readable), or 0. Overlong forms,
 * surrogates and values above U+10FFFF are not well formed. */
size_t base_json_utf8(const char *s, size_t n);

/* Replaces a member in place, or adds it. Always takes ownership of the value. Returns false if allocation
 * fails. */
bool base_json_put(cJSON *json, const char *key, cJSON *value);

/* Adds a string of n bytes that may contain NUL characters, at which cJSON would truncate it; base_json_print
 * writes all of it. Returns false if allocation fails. */
bool base_json_add_bytes(cJSON *json, const char *key, const char *s, size_t n);

/* Pretty-prints with a final newline and replaces the file atomically. */
by_status base_json_write(const char *path, const cJSON *value);

#endif
