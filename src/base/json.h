/* json.h - a thin layer over cJSON: errors that say where, typed getters for configurations, a printer. */
#ifndef BY_BASE_JSON_H
#define BY_BASE_JSON_H

#include <cjson/cJSON.h>

#include "base/base.h"

#define BY_JSON_MAX_BYTES ((size_t)256 << 20) /* a larger file is refused */
#define BY_JSON_MAX_DEPTH 1000

/* Parse size bytes of UTF-8 (no NUL needed behind them); `what` names the text in messages, normally its
 * path. Invalid UTF-8, a NUL character (even escaped: C strings would be cut there) and anything after the
 * value are errors, reported with byte, line and column. NULL on failure, else cJSON_Delete it. */
cJSON *by_json_parse(const char *text, size_t size, const char *what);
cJSON *by_json_load(const char *path);

/* For text that is given to cJSON itself: an escaped NUL, at which it would cut a string, is an error as
 * above. */
by_status by_json_check_nul(const char *text, size_t size, const char *what);

/* Typed members of an object. An absent key, an explicit null and o == NULL all give the fallback, which need
 * not lie within the bounds. A wrong type, an integer with a fraction or a value outside [min, max] is
 * BY_ERR_FORMAT naming key and value; *out is then untouched. Numbers are doubles inside cJSON, hence
 * integers are exact below 2^53 and refused from there on. */
by_status by_json_int(const cJSON *o, const char *key, int64_t fallback, int64_t min, int64_t max,
                      int64_t *out);
by_status by_json_double(const cJSON *o, const char *key, double fallback, double min, double max,
                         double *out);
by_status by_json_bool(const cJSON *o, const char *key, bool fallback, bool *out);
by_status by_json_string(const cJSON *o, const char *key, const char *fallback,
                         const char **out); /* borrowed */

/* Append a value as text: pretty is two-space indent and one member per line, otherwise everything on one
 * line without spaces. Keys keep their order. Integers have no decimals, other numbers the fewest digits that
 * read back equal; NaN and infinity are null. */
by_status by_json_print(by_buf *out, const cJSON *value, bool pretty);

/* Append s as a JSON string with its quotes. Bytes that are not UTF-8 come out as U+FFFD, so the result is
 * always valid. */
void by_json_quote(by_buf *out, const char *s);
void by_json_quote_bytes(by_buf *out, const char *s, size_t n); /* which may hold NUL characters */

/* Length of the well-formed UTF-8 sequence at s (n > 0 bytes may be read), 0 when there is none: overlong
 * forms, surrogates and values above U+10FFFF are not well formed. */
size_t by_json_utf8(const char *s, size_t n);

/* Replace or add a member, in the place of the old one; false when memory is out. Takes the value over in any
 * case. */
bool by_json_put(cJSON *json, const char *key, cJSON *value);

/* Add a string of n bytes that may hold NUL characters, at which cJSON would cut it; by_json_print writes
 * them all. False when memory is out. */
bool by_json_add_bytes(cJSON *json, const char *key, const char *s, size_t n);

/* Pretty-print with a final newline, replacing the file atomically. */
by_status by_json_write(const char *path, const cJSON *value);

#endif
