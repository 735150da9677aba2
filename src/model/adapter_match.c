/* adapter_match.c - the modules that a PEFT configuration names. Expressions are Python's; PCRE2 agrees on
 * everything that module paths need. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdlib.h>

#include "model/adapter.h"

/* ---- regular expressions ---------------------------------------------------------------------- */

enum { MATCH_LIMIT = 1000000 }; /* match limit; an expression that needs more steps is an error */

static by_status bad_pattern(const char *pattern, int error)
{
    char why[128] = "";
    pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
    return base_fail(error == PCRE2_ERROR_NOMEMORY ? BY_ERR_MEMORY : BY_ERR_FORMAT,
                     "adapter: the regular expression \"%s\": %s", io_show(pattern).text, why);
}

/* Whether the expression matches the whole text. *number, unless NULL, gets the first group as a number. */
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

/* The same for an expression with a key of the configuration in the middle. */
static by_status match_around(const char *before, const char *key, const char *after, const char *text,
                              bool *out, long *number)
{
    char *pattern = base_sprintf("%s%s%s", before, key, after);
    by_status s = pattern ? match(pattern, text, out, number) : BY_ERR_MEMORY;
    base_free(pattern);
    return s;
}

/* ---- spellings -------------------------------------------------------------------------------- */

/* Whether the path starts with these parts. */
static bool begins_with(const char *path, const char *parts)
{
    const size_t n = strlen(parts);
    return strncmp(path, parts, n) == 0 && (!path[n] || path[n] == '.');
}

bool model_adapter_path(const by_model *m, const char *path, base_buf *out)
{
    out->size = 0;
    base_buf_puts(out, "");
    for (const char *at = path; *at && !out->failed;) {
        const arch_alias *p = m->arch->modules;
        while (p && p->key && !begins_with(at, p->key))
            p++;
        const bool other = p && p->key;
        const size_t n = other ? strlen(p->key) : strcspn(at, ".");
        base_buf_put(out, other ? p->field : at, other ? strlen(p->field) : n);
        base_buf_put(out, ".", at[n] == '.');
        at += n + (at[n] == '.');
    }
    return !out->failed;
}

/* The path of a module or parameter in the reference library and in files. */
typedef struct spellings {
    base_buf module;
    const char *file; /* NULL: the same */
} spellings;

static by_status spell(const by_adapter *a, const char *path, spellings *s)
{
    *s = (spellings){0};
    if (!model_adapter_path(a->model, path, &s->module)) {
        base_buf_free(&s->module);
        return BY_ERR_MEMORY;
    }
    s->file = strcmp(path, s->module.data) == 0 ? NULL : path;
    return BY_OK;
}

typedef by_status (*path_test)(const void *what, const char *path, bool *out);

/* Whether the test holds for either spelling. Records whether the configuration uses names of files. */
static by_status either(by_adapter *a, path_test one, const void *what, const spellings *s, bool *out)
{
    BY_TRY(one(what, s->module.data, out));
    if (*out || !s->file)
        return BY_OK;
    BY_TRY(one(what, s->file, out));
    a->old_names |= *out;
    return BY_OK;
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

bool model_adapter_is_named(const char *module, const char *name)
{
    const size_t n = strlen(module), t = strlen(name);
    return ends_with(module, name) && (n == t || module[n - t - 1] == '.');
}

static by_status in_names(const void *what, const char *module, bool *out)
{
    const cJSON *names = what;
    *out = false;
    if (cJSON_IsString(names))
        return match(names->valuestring, module, out, NULL);
    for (const cJSON *n = names ? names->child : NULL; n && !*out; n = n->next)
        *out = model_adapter_is_named(module, n->valuestring);
    return BY_OK;
}

static by_status lists_exactly(const void *what, const char *module, bool *out)
{
    const cJSON *names = what;
    *out = false;
    for (const cJSON *n = cJSON_IsArray(names) ? names->child : NULL; n && !*out; n = n->next)
        *out = strcmp(n->valuestring, module) == 0;
    return BY_OK;
}

/* The layer number in a path: after the first matching pattern, or after any two parts. -1: none. */
static by_status layer_of(const cJSON *patterns, const char *module, long *layer)
{
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

static by_status in_layers(const void *what, const char *module, bool *out)
{
    const model_adapter_config *c = what;
    long layer;
    *out = false;
    BY_TRY(layer_of(c->layers_pattern, module, &layer));
    *out = layer >= 0 && holds(c->layers, layer);
    return BY_OK;
}

static by_status is_inside(const void *what, const char *module, bool *out)
{
    const cJSON *name = what;
    return match_around("(|.*\\.)", name->valuestring, "(|\\..*)", module, out, NULL);
}

static by_status matches(by_adapter *a, const spellings *module, bool *out)
{
    const model_adapter_config *c = &a->config;
    bool other = false;
    *out = false;
    if (c->excluded)
        BY_TRY(either(a, in_names, c->excluded, module, &other));
    for (const cJSON *n = c->save ? c->save->child : NULL; n && !other; n = n->next)
        BY_TRY(either(a, is_inside, n, module, &other));
    if (other)
        return BY_OK;
    BY_TRY(either(a, in_names, c->targets, module, out));
    const bool some = c->layers && (cJSON_IsNumber(c->layers) || c->layers->child);
    if (!*out || !some || cJSON_IsString(c->targets))
        return BY_OK;
    BY_TRY(either(a, lists_exactly, c->targets, module, &other));
    return other ? BY_OK : either(a, in_layers, c, module, out);
}

static by_status matches_path(by_adapter *a, const char *path, bool *out)
{
    spellings s;
    BY_TRY(spell(a, path, &s));
    by_status status = matches(a, &s, out);
    base_buf_free(&s.module);
    return status;
}

/* A configuration made for a model with a head has the prefix of the body in its paths. */
static by_status with_prefix(by_adapter *a, by_status (*one)(by_adapter *a, const char *path, bool *out),
                             const char *module, bool *out)
{
    const by_model *m = a->model;
    *out = false;
    BY_TRY(one(a, module, out));
    if (*out || (m->task != BY_TASK_FEATURES && m->task != BY_TASK_ENCODER))
        return BY_OK;
    char *full = base_sprintf("%s%s", model_prefix(m), module);
    by_status s = full ? one(a, full, out) : BY_ERR_MEMORY;
    base_free(full);
    return s;
}

by_status model_adapter_matches(by_adapter *a, const char *module, bool *out)
{
    return with_prefix(a, matches_path, module, out);
}

/* An expression matches the whole path. A name in a list matches the end of the path, even within a part, as
 * in PEFT. */
static by_status has_end(const void *what, const char *module, bool *out)
{
    const cJSON *names = what;
    *out = false;
    if (cJSON_IsString(names))
        return match(names->valuestring, module, out, NULL);
    for (const cJSON *n = names->child; n && !*out; n = n->next)
        *out = ends_with(module, n->valuestring);
    return BY_OK;
}

static by_status feeds_forward(by_adapter *a, const char *path, bool *out)
{
    spellings s;
    BY_TRY(spell(a, path, &s));
    by_status status = either(a, has_end, a->config.feedforward, &s, out);
    base_buf_free(&s.module);
    return status;
}

by_status model_adapter_scales_inputs(by_adapter *a, const char *module, bool *out)
{
    return with_prefix(a, feeds_forward, module, out);
}

/* Whether the parameter is in a module whose path ends with the name. */
static by_status is_saved_as(const void *what, const char *parameter, bool *out)
{
    const cJSON *name = what;
    *out = false;
    for (const char *dot = strchr(parameter, '.'); dot && !*out; dot = strchr(dot + 1, '.')) {
        char *module = base_sprintf("%.*s", (int)(dot - parameter), parameter);
        if (!module)
            return BY_ERR_MEMORY;
        *out = ends_with(module, name->valuestring);
        base_free(module);
    }
    return BY_OK;
}

/* The same for any of the names. */
static by_status is_saved(const void *what, const char *parameter, bool *out)
{
    const cJSON *names = what;
    *out = false;
    for (const cJSON *n = names->child; n && !*out; n = n->next)
        BY_TRY(is_saved_as(n, parameter, out));
    return BY_OK;
}

static by_status saves_under(by_adapter *a, path_test one, const cJSON *names, const char *parameter,
                             bool *out)
{
    spellings s;
    BY_TRY(spell(a, parameter, &s));
    by_status status = either(a, one, names, &s, out);
    base_buf_free(&s.module);
    return status;
}

by_status model_adapter_saves(by_adapter *a, const char *parameter, bool *out)
{
    *out = false;
    return a->config.save ? saves_under(a, is_saved, a->config.save, parameter, out) : BY_OK;
}

by_status model_adapter_check_saved(by_adapter *a, int count)
{
    const cJSON *name = a->config.save ? a->config.save->child : NULL;
    for (int k = 0; name && k < count; k++, name = name->next) {
        bool found = false;
        for (int i = 0; i < a->n_replaced && !found; i++) {
            const model_replaced *r = &a->replaced[i];
            const char *parameter = r->tied ? a->model->arch->head : a->model->params->list[r->body].name;
            BY_TRY(saves_under(a, is_saved_as, name, parameter, &found));
        }
        if (!found)
            return base_fail(BY_ERR_ARGUMENT, "adapter: %s has no module \"%s\" to save",
                             a->model->arch->title, io_show(name->valuestring).text);
    }
    return BY_OK;
}

static by_status is_key(const void *what, const char *module, bool *out)
{
    const cJSON *entry = what;
    char *key = base_sprintf("(%s)", entry->string);
    by_status s = key ? match_around("(.*\\.)?", key, "", module, out, NULL) : BY_ERR_MEMORY;
    base_free(key);
    return s;
}

/* The value of the first key of a pattern that matches the end of the path. */
static by_status in_pattern(by_adapter *a, const cJSON *pattern, const spellings *module, double fallback,
                            double *out)
{
    bool found = false;
    *out = fallback;
    for (const cJSON *p = pattern ? pattern->child : NULL; p && !found; p = p->next) {
        BY_TRY(either(a, is_key, p, module, &found));
        *out = found ? p->valuedouble : fallback;
    }
    return BY_OK;
}

by_status model_adapter_scale(by_adapter *a, const char *module, model_target *t)
{
    const model_adapter_config *c = &a->config;
    double r = 1;
    spellings path;
    BY_TRY(spell(a, module, &path));
    by_status s = in_pattern(a, c->rank_pattern, &path, (double)c->rank, &r);
    if (s == BY_OK)
        s = in_pattern(a, c->alpha_pattern, &path, c->alpha, &t->alpha);
    base_buf_free(&path.module);
    t->rank = (int)r;
    t->scale = t->alpha / (c->rslora ? sqrt(r) : r);
    return s;
}
