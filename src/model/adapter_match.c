/* adapter_match.c - which modules a configuration of PEFT names. Expressions are Python's; PCRE2 agrees on all that paths of
 * modules need. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>

#include "model/adapter.h"

/* ---- regular expressions ---------------------------------------------------------------------- */

enum { MATCH_LIMIT = 1000000 }; /* steps; an expression that needs more is refused */

static by_status bad_pattern(const char *pattern, int error)
{
    char why[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return base_fail(error == PCRE2_ERROR_NOMEMORY ? BY_ERR_MEMORY : BY_ERR_FORMAT,
                     "adapter: the regular expression \"%s\": %s", io_show(pattern).text, why);
}

/* Whether the expression matches the whole text. *number, unless NULL, gets its first group as a number. */
static by_status match(const char *pattern, const char *text, bool *out, long *number)
{
    int error;
    PCRE2_SIZE at;
    *out = false;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, NULL);
    if (!code)
        return bad_pattern(pattern, error);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int found = PCRE2_ERROR_NOMEMORY;
    if (data && context) {
        pcre2_set_match_limit(context, MATCH_LIMIT);
        found = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, context);
    }
    *out = found > 0;
    if (found > 1 && number)
        *number = strtol(text + pcre2_get_ovector_pointer(data)[2], NULL, 10);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return found > 0 || found == PCRE2_ERROR_NOMATCH ? BY_OK : bad_pattern(pattern, found);
}

/* The same for an expression made of parts around a key of the configuration. */
static by_status match_around(const char *before, const char *key, const char *after, const char *text,
                              bool *out, long *number)
{
    char *pattern = base_sprintf("%s%s%s", before, key, after);
    by_status s = pattern ? match(pattern, text, out, number) : BY_ERR_MEMORY;
    base_free(pattern);
    return s;
}

/* ---- modules ---------------------------------------------------------------------------------- */

bool model_adapter_module(const char *name, const char *part, base_buf *out)
{
    const char *dot = strrchr(name, '.');
    out->size = 0;
    if (!dot || strcmp(dot + 1, part) != 0)
        return false;
    base_buf_put(out, name, (size_t)(dot - name));
    return !out->failed;
}

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

/* A name of a list is the module's path or its end, after a dot. */
static bool is_named(const char *module, const char *name)
{
    const size_t n = strlen(module), t = strlen(name);
    return ends_with(module, name) && (n == t || module[n - t - 1] == '.');
}

static by_status in_names(const cJSON *names, const char *module, bool *out)
{
    *out = false;
    if (cJSON_IsString(names))
        return match(names->valuestring, module, out, NULL);
    for (const cJSON *n = names ? names->child : NULL; n && !*out; n = n->next)
        *out = is_named(module, n->valuestring);
    return BY_OK;
}

static bool lists_exactly(const cJSON *names, const char *module)
{
    for (const cJSON *n = cJSON_IsArray(names) ? names->child : NULL; n; n = n->next)
        if (strcmp(n->valuestring, module) == 0)
            return true;
    return false;
}

/* The number of the layer in a path: the first after one of the patterns, or after any two parts. -1: none. */
static by_status layer_of(const by_adapter *a, const char *module, long *layer)
{
    const cJSON *patterns = a->config.layers_pattern;
    const cJSON *first = cJSON_IsArray(patterns) ? patterns->child : patterns;
    bool found = false;
    *layer = -1;
    if (!first || (cJSON_IsString(first) && !first->valuestring[0]))
        return match(".*?\\.[^.]*\\.(\\d+)\\..*", module, &found, layer);
    for (const cJSON *p = first; p && !found; p = p->next) {
        BY_TRY(match_around("(?:|.*?\\.)", p->valuestring, "\\.(\\d+)\\..*", module, &found, layer));
        if (!cJSON_IsArray(patterns))
            break;
    }
    return BY_OK;
}

static bool holds(const cJSON *numbers, long value)
{
    if (cJSON_IsNumber(numbers))
        return numbers->valuedouble == (double)value;
    for (const cJSON *n = numbers->child; n; n = n->next)
        if (n->valuedouble == (double)value)
            return true;
    return false;
}

static by_status matches(const by_adapter *a, const char *module, bool *out)
{
    const model_adapter_config *c = &a->config;
    bool other = false;
    long layer;
    *out = false;
    if (c->excluded)
        BY_TRY(in_names(c->excluded, module, &other));
    for (const cJSON *n = c->save ? c->save->child : NULL; n && !other; n = n->next)
        BY_TRY(match_around("(|.*\\.)", n->valuestring, "(|\\..*)", module, &other, NULL));
    if (other)
        return BY_OK;
    BY_TRY(in_names(c->targets, module, out));
    const bool some = c->layers && (cJSON_IsNumber(c->layers) || c->layers->child);
    if (!*out || !some || cJSON_IsString(c->targets) || lists_exactly(c->targets, module))
        return BY_OK;
    BY_TRY(layer_of(a, module, &layer));
    *out = layer >= 0 && holds(c->layers, layer);
    return BY_OK;
}

/* A configuration that was made for a model with a head has the prefix of the body in its paths. */
by_status model_adapter_matches(const by_adapter *a, const char *module, bool *out)
{
    const by_model *m = a->model;
    BY_TRY(matches(a, module, out));
    if (*out || (m->task != BY_TASK_FEATURES && m->task != BY_TASK_ENCODER))
        return BY_OK;
    char *full = base_sprintf("%s%s", model_prefix(m), module);
    by_status s = full ? matches(a, full, out) : BY_ERR_MEMORY;
    base_free(full);
    return s;
}

by_status model_adapter_saves(const by_adapter *a, const char *parameter, bool *out)
{
    *out = false;
    for (const cJSON *n = a->config.save ? a->config.save->child : NULL; n && !*out; n = n->next)
        for (const char *dot = strchr(parameter, '.'); dot && !*out; dot = strchr(dot + 1, '.')) {
            char *module = base_sprintf("%.*s", (int)(dot - parameter), parameter);
            if (!module)
                return BY_ERR_MEMORY;
            *out = ends_with(module, n->valuestring);
            base_free(module);
        }
    return BY_OK;
}

/* The value of the first key of a pattern that the end of the path matches. */
static by_status in_pattern(const cJSON *pattern, const char *module, double fallback, double *out)
{
    *out = fallback;
    for (const cJSON *p = pattern ? pattern->child : NULL; p; p = p->next) {
        bool found;
        char *key = base_sprintf("(%s)", p->string);
        by_status s = key ? match_around("(.*\\.)?", key, "", module, &found, NULL) : BY_ERR_MEMORY;
        base_free(key);
        BY_TRY(s);
        if (found) {
            *out = p->valuedouble;
            return BY_OK;
        }
    }
    return BY_OK;
}

by_status model_adapter_scale(const by_adapter *a, const char *module, int *rank, double *scale)
{
    const model_adapter_config *c = &a->config;
    double r, alpha;
    BY_TRY(in_pattern(c->rank_pattern, module, (double)c->rank, &r));
    BY_TRY(in_pattern(c->alpha_pattern, module, c->alpha, &alpha));
    *rank = (int)r;
    *scale = alpha / (c->rslora ? sqrt(r) : r);
    return BY_OK;
}
