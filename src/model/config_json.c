/* config_json.c - converts config.json to a model configuration and back. Every key that the reference
 * library knows is a field, an alias of one, or in a table of keys (models/keys.c): it is honoured, harmless,
 * or rejected by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "model/model.h"

/* ---- nested configurations ------------------------------------------------------------------- */

/* The configuration inside of `json` that a key "part.key" belongs to, and in *key what is left of it. NULL:
 * there is none. */
static cJSON *part_of(const cJSON *json, const char **key)
{
    const char *dot = strchr(*key, '.');
    char part[64];
    if (!dot)
        return (cJSON *)json;
    base_format(part, sizeof part, "%.*s", (int)(dot - *key), *key);
    *key = dot + 1;
    return cJSON_GetObjectItemCaseSensitive(json, part);
}

/* The same to write into: it is made if there is none. */
static cJSON *make_part(cJSON *json, const char **key)
{
    const char *full = *key;
    cJSON *part = part_of(json, key);
    if (cJSON_IsObject(part))
        return part;
    char name[64];
    base_format(name, sizeof name, "%.*s", (int)(*key - full - 1), full);
    part = cJSON_CreateObject();
    return part && base_json_put(json, name, part) ? part : NULL;
}

/* Whether a key names a nested configuration. */
static bool is_part(const arch_family *a, const char *key)
{
    const size_t n = strlen(key);
    for (int i = 0; i < a->n_fields; i++)
        if (strncmp(a->fields[i].key, key, n) == 0 && a->fields[i].key[n] == '.')
            return true;
    return false;
}

static by_status check_parts(const by_model *m)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, m->json)
    {
        if (is_part(m->arch, item->string) && !cJSON_IsObject(item) && !cJSON_IsNull(item))
            return base_fail(BY_ERR_FORMAT, "config.json: \"%s\" is not an object", item->string);
    }
    return BY_OK;
}

/* ---- config.json to struct and back ---------------------------------------------------------- */

static by_status read_pair(const cJSON *json, const arch_field *f, int *at)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, f->key);
    int64_t i;
    if (!cJSON_IsArray(item)) {
        BY_TRY(base_json_int(json, f->key, (int64_t)f->fallback, (int64_t)f->min, (int64_t)f->max, &i));
        at[0] = at[1] = (int)i;
        return BY_OK;
    }
    for (int k = 0; k < 2; k++) {
        const cJSON *one = cJSON_GetArrayItem(item, k);
        if (!cJSON_IsNumber(one) || cJSON_GetArraySize(item) != 2 || one->valuedouble != one->valueint ||
            one->valuedouble < f->min || one->valuedouble > f->max)
            return base_fail(BY_ERR_FORMAT,
                             "config.json: \"%s\" must be a number or a list of two, from %g to %g", f->key,
                             f->min, f->max);
        at[k] = one->valueint;
    }
    return BY_OK;
}

static by_status read_field(const cJSON *whole, const arch_field *field, char *at)
{
    static const cJSON nothing = {.type = cJSON_Object};
    int64_t i;
    double d;
    const char *s;
    arch_field leaf = *field;
    const arch_field *f = &leaf;
    const cJSON *json = part_of(whole, &leaf.key);
    json = json ? json : &nothing;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, f->key);
    switch (f->kind) {
    case ARCH_FIELD_INT:
        if (f->role == ARCH_ROLE_PAD && cJSON_IsNull(item)) { /* null: there is no padding token */
            *(int *)at = -1;
            return BY_OK;
        }
        BY_TRY(base_json_int(json, f->key, (int64_t)f->fallback, (int64_t)f->min, (int64_t)f->max, &i));
        *(int *)at = (int)i;
        return BY_OK;
    case ARCH_FIELD_PAIR:
        return read_pair(json, f, (int *)at);
    case ARCH_FIELD_FLOAT:
        BY_TRY(base_json_double(json, f->key, f->fallback, f->min, f->max, &d));
        *(float *)at = (float)d;
        return BY_OK;
    case ARCH_FIELD_BOOL:
        return base_json_bool(json, f->key, f->fallback != 0, (bool *)at);
    case ARCH_FIELD_ACT:
        BY_TRY(base_json_string(json, f->key, arch_act_name((by_act)f->fallback), &s));
        if (!arch_act_parse(s, (by_act *)at))
            return base_fail(BY_ERR_UNSUPPORTED, "%s: unknown activation \"%s\"", f->key, s);
        return BY_OK;
    case ARCH_FIELD_CHOICE:
        BY_TRY(base_json_string(json, f->key, arch_choice_word(f->role, (int)f->fallback), &s));
        return arch_choice_parse(f, s, (int *)at);
    }
    return BY_OK;
}

/* Returns the shortest decimal that reads back as the same float: 0.1f is 0.1 in the file, not
 * 0.100000001490116. */
static double shortest(float f)
{
    char text[32];
    for (int digits = 6; digits < 10; digits++) {
        base_format(text, sizeof text, "%.*g", digits, (double)f);
        if (base_strtof(text, NULL) == f)
            break;
    }
    return base_strtod(text, NULL);
}

/* An integral value keeps its decimal point: readers that distinguish types would take 1 for an integer. */
static cJSON *float_json(float f)
{
    char text[64];
    if (f != floorf(f))
        return cJSON_CreateNumber(shortest(f));
    base_format(text, sizeof text, "%.1f", (double)f);
    return cJSON_CreateRaw(text);
}

/* Returns true if the file already holds the value of the field, or omits it and thereby means it. */
static bool is_written(const cJSON *json, const arch_field *f, const char *at)
{
    union {
        int i, pair[2];
        float f;
        bool b;
        by_act act;
    } there = {0};
    const size_t size = f->kind == ARCH_FIELD_INT      ? sizeof there.i
                        : f->kind == ARCH_FIELD_PAIR   ? sizeof there.pair
                        : f->kind == ARCH_FIELD_CHOICE ? sizeof there.i
                        : f->kind == ARCH_FIELD_FLOAT  ? sizeof there.f
                        : f->kind == ARCH_FIELD_BOOL   ? sizeof there.b
                                                       : sizeof there.act;
    return read_field(json, f, (char *)&there) == BY_OK && memcmp(&there, at, size) == 0;
}

static bool write_field(cJSON *whole, const arch_field *field, const char *at)
{
    arch_field leaf = *field;
    const arch_field *f = &leaf;
    cJSON *json = make_part(whole, &leaf.key);
    if (!json)
        return false;
    switch (f->kind) {
    case ARCH_FIELD_INT:
        /* "as specified by the architecture" */
        if ((*(const int *)at == 0 && f->fallback == 0 && f->min > 0) ||
            (f->role == ARCH_ROLE_PAD && *(const int *)at < 0))
            return base_json_put(json, f->key, cJSON_CreateNull());
        return base_json_put(json, f->key, cJSON_CreateNumber(*(const int *)at));
    case ARCH_FIELD_PAIR:
        return base_json_put(json, f->key,
                             ((const int *)at)[0] == ((const int *)at)[1]
                                 ? cJSON_CreateNumber(*(const int *)at)
                                 : cJSON_CreateIntArray((const int *)at, 2));
    case ARCH_FIELD_FLOAT:
        if ((double)*(const float *)at == f->fallback && f->fallback < f->min)
            return base_json_put(json, f->key, cJSON_CreateNull());
        return base_json_put(json, f->key, float_json(*(const float *)at));
    case ARCH_FIELD_BOOL:
        return base_json_put(json, f->key, cJSON_CreateBool(*(const bool *)at));
    case ARCH_FIELD_ACT:
        return base_json_put(json, f->key, cJSON_CreateString(arch_act_name(*(const by_act *)at)));
    case ARCH_FIELD_CHOICE:
        return base_json_put(json, f->key, cJSON_CreateString(arch_choice_word(f->role, *(const int *)at)));
    }
    return false;
}

/* Returns a token id: a number, the first of a list, the fallback if the key is absent, or -1. */
static int token_of(const cJSON *json, const char *key, int fallback)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, key);
    if (cJSON_IsArray(v))
        v = cJSON_GetArrayItem(v, 0);
    if (!v)
        return fallback;
    return cJSON_IsNumber(v) && v->valuedouble >= 0 && v->valuedouble < INT32_MAX ? v->valueint : -1;
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Returns true if a value is one of the neutral values of a key, which are JSON, separated by '|'. */
static bool is_neutral(const cJSON *value, const char *neutral)
{
    base_buf text = {0};
    bool found = false;
    if (base_json_print(&text, value, false) != BY_OK) {
        base_buf_free(&text);
        return false;
    }
    for (const char *at = neutral; *at && !found;) {
        const size_t n = strcspn(at, "|");
        found = cJSON_IsNumber(value)
                    ? base_strtod(at, NULL) == value->valuedouble && strchr("-0123456789", *at)
                    : text.size == n && memcmp(text.data, at, n) == 0;
        at += n + (at[n] == '|');
    }
    base_buf_free(&text);
    return found;
}

/* A key must not ask for anything that would change the result and is not honoured. Keys that are unknown to
 * the reference's configuration too are tolerated. */
static by_status check_key(const by_model *m, const by_model_spec *spec, const char *key, const cJSON *item)
{
    const by_task task = spec->new_head && spec->task != BY_TASK_DEFAULT ? spec->task : m->task;
    const arch_key *k = arch_key_find(m->arch, key);
    if (!k || !k->neutral || (k->training && !spec->training) ||
        (k->tasks && !(k->tasks & ARCH_TASK_BIT(task))) || is_neutral(item, k->neutral))
        return BY_OK;
    base_buf text = {0};
    base_json_print(&text, item, false);
    by_status s =
        base_fail(BY_ERR_UNSUPPORTED, "config.json: \"%s\" is %.60s, but %s supports only %s%s", key,
                  text.data ? text.data : "?", m->arch->title, k->neutral, k->training ? " in training" : "");
    base_buf_free(&text);
    return s;
}

static by_status check_keys(const by_model *m, const by_model_spec *spec)
{
    const cJSON *item, *inner;
    cJSON_ArrayForEach(item, m->json)
    {
        if (!is_part(m->arch, item->string)) {
            BY_TRY(check_key(m, spec, item->string, item));
            continue;
        }
        cJSON_ArrayForEach(inner, item)
        {
            char key[128];
            base_format(key, sizeof key, "%s.%s", item->string, inner->string);
            BY_TRY(check_key(m, spec, key, inner));
        }
    }
    return BY_OK;
}

/* Moves values given under an alias to the name of their field. */
static by_status rename_aliases(by_model *m)
{
    for (const arch_alias *a = m->arch->aliases; a && a->key; a++) {
        const cJSON *alias = cJSON_GetObjectItemCaseSensitive(m->json, a->key);
        const cJSON *main = cJSON_GetObjectItemCaseSensitive(m->json, a->field);
        if (!alias)
            continue;
        if (main && !cJSON_IsNull(main) && !cJSON_IsNull(alias) && !cJSON_Compare(main, alias, true))
            return base_fail(BY_ERR_FORMAT,
                             "config.json: \"%s\" and \"%s\" are the same setting but have different values",
                             a->field, a->key);
        if (!cJSON_IsNull(alias) && (!main || cJSON_IsNull(main))) {
            cJSON *copy = cJSON_Duplicate(alias, true);
            cJSON_DeleteItemFromObjectCaseSensitive(m->json, a->field);
            if (!base_json_put(m->json, a->field, copy))
                return base_fail(BY_ERR_MEMORY, "out of memory while reading config.json");
        }
        cJSON_DeleteItemFromObjectCaseSensitive(m->json, a->key);
    }
    return BY_OK;
}

/* A nested configuration may be there a second time, as PART_dict: in the reference it counts, with the
 * defaults for what it leaves out. */
static by_status rename_parts(by_model *m)
{
    static const char tail[] = "_dict";
    for (cJSON *item = m->json->child; item;) {
        const size_t n = strlen(item->string), stem = n > strlen(tail) ? n - strlen(tail) : 0;
        char part[64];
        base_format(part, sizeof part, "%.*s", (int)BY_MIN(stem, sizeof part), item->string);
        if (stem == 0 || strcmp(item->string + stem, tail) != 0 || !is_part(m->arch, part) ||
            !(cJSON_IsObject(item) || cJSON_IsNull(item))) {
            item = item->next;
            continue;
        }
        cJSON_DetachItemViaPointer(m->json, item);
        if (cJSON_IsNull(item)) {
            cJSON_Delete(item);
        } else {
            cJSON_DeleteItemFromObjectCaseSensitive(m->json, part);
            if (!base_json_put(m->json, part, item))
                return base_fail(BY_ERR_MEMORY, "out of memory while reading config.json");
        }
        item = m->json->child; /* neighbours may be gone */
    }
    return BY_OK;
}

/* ---- labels and classes ---------------------------------------------------------------------- */

static const char *const problem_names[] = {
    [BY_PROBLEM_ONE_LABEL] = "single_label_classification",
    [BY_PROBLEM_MANY_LABELS] = "multi_label_classification",
    [BY_PROBLEM_REGRESSION] = "regression",
};

static by_status read_problem(by_model *m)
{
    const char *name;
    BY_TRY(base_json_string(m->json, "problem_type", NULL, &name));
    m->problem = BY_PROBLEM_DEFAULT;
    for (int i = 1; name && i < BY_COUNT(problem_names); i++)
        if (strcmp(name, problem_names[i]) == 0)
            m->problem = (by_problem)i;
    if (name && m->problem == BY_PROBLEM_DEFAULT)
        return base_fail(BY_ERR_UNSUPPORTED, "unknown problem_type \"%s\"", name);
    return BY_OK;
}

/* id2label is an object whose keys are numbers as strings. */
static by_status read_label_names(by_model *m, const cJSON *object)
{
    const cJSON *item;
    m->label_names = base_alloc_zero((size_t)m->labels, sizeof *m->label_names);
    if (!m->label_names)
        return BY_ERR_MEMORY;
    cJSON_ArrayForEach(item, object)
    {
        char *end;
        long i = strtol(item->string, &end, 10);
        if (*end || end == item->string || i < 0 || i >= m->labels || !cJSON_IsString(item) ||
            m->label_names[i])
            return base_fail(BY_ERR_FORMAT, "id2label: \"%s\" is not the index of one of %d labels",
                             item->string, m->labels);
        m->label_names[i] = base_strdup(item->valuestring);
        if (!m->label_names[i])
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* Reports that config.json names a class that the architecture does not have. */
static by_status unknown_class(const by_model *m, const char *name)
{
    base_buf known = {0};
    for (int t = 0; t < BY_TASK_COUNT; t++) {
        const char *class = m->arch->classes[t];
        int first = 0; /* a class may be that of several tasks */
        while (class && (!m->arch->classes[first] || strcmp(m->arch->classes[first], class) != 0))
            first++;
        if (class && first == t)
            base_buf_printf(&known, "%s%s", known.size ? ", " : "", class);
    }
    if (m->arch->other.name)
        base_buf_printf(&known, ", %s", m->arch->other.name);
    if (m->arch->classifier)
        base_buf_printf(&known, ", %s", m->arch->classifier->classes[BY_TASK_CLASSIFY]);
    by_status s = base_fail(BY_ERR_UNSUPPORTED,
                            "config.json: unsupported class \"%s\" in architectures; %s supports: %s",
                            io_show(name).text, m->arch->family, known.data ? known.data : "");
    base_buf_free(&known);
    return s;
}

/* Gets the name in architectures[0] of config.json, or NULL. */
static by_status class_name(const by_model *m, const char **out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(m->json, "architectures");
    const cJSON *first = cJSON_IsArray(list) ? cJSON_GetArrayItem(list, 0) : NULL;
    if ((list && !cJSON_IsArray(list) && !cJSON_IsNull(list)) || (first && !cJSON_IsString(first)))
        return base_fail(BY_ERR_FORMAT, "config.json: \"architectures\" is not a list of names");
    *out = first ? first->valuestring : NULL;
    return BY_OK;
}

static bool task_of_class(const arch_family *a, const char *name, by_task *out)
{
    bool found = a->other.name && strcmp(a->other.name, name) == 0;
    *out = found ? a->other.task : *out;
    for (int t = 0; t < BY_TASK_COUNT; t++)
        if (a->classes[t] && strcmp(a->classes[t], name) == 0) {
            *out = (by_task)t;
            found = true;
        }
    return found;
}

/* Sets the task of the class, or the pretraining task of the family if there is no class. An unknown class
 * does not matter if the caller specifies a task. */
static by_status read_class(by_model *m, const by_model_spec *spec)
{
    const bool any = spec->new_head && spec->task != BY_TASK_DEFAULT;
    const char *name;
    BY_TRY(class_name(m, &name));
    m->task = m->arch->pretrained;
    if (name && !task_of_class(m->arch, name, &m->task) && !any)
        return unknown_class(m, name);
    if (name && m->arch->other.name)
        *(bool *)((char *)m->config + m->arch->other.offset) = strcmp(name, m->arch->other.name) == 0;
    m->promoted = m->task == BY_TASK_FEATURES && !spec->exact &&
                  (m->arch->pretrained == BY_TASK_LM || m->arch->pretrained == BY_TASK_SEQ2SEQ);
    if (m->promoted)
        m->task = m->arch->pretrained; /* the head is tied to the body, so nothing is missing */
    return BY_OK;
}

/* A causal and a masked language model may have the same class; the configuration distinguishes them. */
static by_status read_causal(by_model *m)
{
    const char *const *classes = m->arch->classes;
    if (!m->arch->is_causal || (m->task != BY_TASK_LM && m->task != BY_TASK_MLM))
        return BY_OK;
    const bool causal = m->arch->is_causal(m->config);
    if (strcmp(classes[BY_TASK_LM], classes[BY_TASK_MLM]) == 0)
        m->task = causal ? BY_TASK_LM : BY_TASK_MLM;
    else if (m->task == BY_TASK_LM && !causal)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "config.json: %s with \"is_decoder\" not true attends to the tokens that it "
                         "predicts, which is not supported",
                         base_a(classes[BY_TASK_LM]).text);
    return BY_OK;
}

static by_status read_task(by_model *m, const by_model_spec *spec)
{
    BY_TRY(read_class(m, spec));
    BY_TRY(read_causal(m));
    int64_t labels = m->arch->labels ? m->arch->labels : 2;
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(m->json, "id2label");
    if (cJSON_IsObject(names))
        labels = cJSON_GetArraySize(names);
    BY_TRY(base_json_int(m->json, "num_labels", labels, 1, MODEL_MAX_LABELS, &labels));
    m->labels = (int)labels;
    if (cJSON_IsObject(names) && cJSON_GetArraySize(names) == m->labels)
        BY_TRY(read_label_names(m, names));
    return read_problem(m);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Families of two models have a record for each that may be the second. */
static by_status choose_variant(by_model *m)
{
    const char *type;
    const cJSON *part = cJSON_GetObjectItemCaseSensitive(m->json, m->arch->text_part);
    BY_TRY(base_json_string(part, "model_type", NULL, &type));
    m->arch = arch_variant(m->arch, type);
    return m->arch ? BY_OK : base_error_status();
}

/* A classifier has a record of its own where the family says so; spec NULL: the class alone decides. */
static by_status choose_classifier(by_model *m, const by_model_spec *spec)
{
    const arch_family *other = m->arch->classifier;
    const char *name;
    by_task unused;
    BY_TRY(class_name(m, &name));
    if (other && ((spec && spec->new_head && spec->task == BY_TASK_CLASSIFY) ||
                  (name && task_of_class(other, name, &unused))))
        m->arch = other;
    return BY_OK;
}

/* The family with this class, or NULL. Classes of a family itself come before those of its classifier. */
static const arch_family *family_of_class(const char *name)
{
    by_task unused = BY_TASK_DEFAULT;
    for (int i = 0; i < arch_count(); i++)
        if (task_of_class(arch_at(i), name, &unused))
            return arch_at(i);
    for (int i = 0; i < arch_count(); i++)
        if (arch_at(i)->classifier && task_of_class(arch_at(i)->classifier, name, &unused))
            return arch_at(i);
    return NULL;
}

/* Finds the architecture by model_type or, if that is missing, by the class. */
static by_status find_arch(by_model *m)
{
    const char *family, *name;
    BY_TRY(base_json_string(m->json, "model_type", NULL, &family));
    if (family) {
        m->arch = arch_find_stored(family);
        return m->arch ? BY_OK : base_error_status();
    }
    BY_TRY(class_name(m, &name));
    m->arch = name ? family_of_class(name) : NULL;
    if (m->arch)
        return BY_OK;
    return name ? base_fail(BY_ERR_UNSUPPORTED,
                            "config.json has no model_type, and architectures names the unknown class \"%s\"",
                            io_show(name).text)
                : base_fail(BY_ERR_FORMAT, "config.json has neither model_type nor architectures");
}

const arch_family *model_family_of(const char *dir, by_task *task)
{
    by_model m = {0};
    const char *name;
    char *path = base_path_join(dir, "config.json");
    m.json = path ? base_json_load(path) : NULL;
    by_status s = m.json ? find_arch(&m) : base_error_status();
    if (s == BY_OK)
        s = choose_classifier(&m, NULL);
    if (s == BY_OK && task) {
        *task = m.arch->pretrained;
        s = class_name(&m, &name);
        if (s == BY_OK && name)
            task_of_class(m.arch, name, task);
    }
    if (s != BY_OK && m.json)
        base_fail_context("%s", path);
    cJSON_Delete(m.json);
    base_free(path);
    return s == BY_OK ? m.arch : NULL;
}

/* The same, and where the key is absent that of the nested configuration of the texts. */
static int token_in(const by_model *m, const char *key, int fallback)
{
    const cJSON *part =
        m->arch->text_part ? cJSON_GetObjectItemCaseSensitive(m->json, m->arch->text_part) : NULL;
    return token_of(m->json, key, token_of(part, key, fallback));
}

static void read_tokens(by_model *m)
{
    const int vocab = (int)arch_config_get(m->arch, m->config, ARCH_ROLE_VOCAB);
    const arch_token_ids *ids = &m->arch->tokens;
    m->eos = token_in(m, "eos_token_id", ids->eos < vocab ? ids->eos : -1);
    m->pad = token_in(m, "pad_token_id", ids->pad < vocab ? ids->pad : -1);
    m->start = token_in(m, "decoder_start_token_id", ids->start < vocab ? ids->start : -1);
}

by_status model_config_read(by_model *m, const char *dir, const by_model_spec *spec)
{
    char *path = base_path_join(dir, "config.json");
    m->json = path ? base_json_load(path) : NULL;
    base_free(path);
    return m->json ? model_config_take(m, spec) : base_error_status();
}

by_status model_config_take(by_model *m, const by_model_spec *spec)
{
    if (!cJSON_IsObject(m->json))
        return base_fail(BY_ERR_FORMAT, "config.json is not an object");
    BY_TRY(find_arch(m));
    if (m->arch->variants)
        BY_TRY(choose_variant(m));
    BY_TRY(choose_classifier(m, spec));
    m->config = base_alloc_zero(1, m->arch->config_size);
    if (!m->config)
        return BY_ERR_MEMORY;
    BY_TRY(rename_parts(m));
    BY_TRY(rename_aliases(m));
    BY_TRY(check_parts(m));
    for (int i = 0; i < m->arch->n_fields; i++)
        BY_TRY(read_field(m->json, &m->arch->fields[i], (char *)m->config + m->arch->fields[i].offset));
    read_tokens(m);
    if (m->arch->read)
        BY_TRY(m->arch->read(m->json, m->config));
    BY_TRY(m->arch->check(m->config));
    BY_TRY(read_task(m, spec));
    return check_keys(m, spec);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool write_class(const by_model *m, cJSON *json)
{
    cJSON *list = cJSON_CreateArray();
    cJSON *name = cJSON_CreateString(by_model_class(m));
    if (!list || !name || !cJSON_AddItemToArray(list, name)) {
        cJSON_Delete(list);
        cJSON_Delete(name);
        return false;
    }
    return base_json_put(json, "architectures", list);
}

static bool write_labels(const by_model *m, cJSON *json)
{
    if (!model_has_labels(m->task))
        return true;
    cJSON *names = cJSON_CreateObject(), *ids = cJSON_CreateObject();
    bool ok = names && ids;
    for (int i = 0; i < m->labels && ok; i++) {
        char id[16], fallback[24];
        const char *name = m->label_names ? m->label_names[i] : fallback;
        base_format(id, sizeof id, "%d", i);
        base_format(fallback, sizeof fallback, "LABEL_%d", i);
        ok = cJSON_AddStringToObject(names, id, name) && cJSON_AddNumberToObject(ids, name, i);
    }
    if (!ok) {
        cJSON_Delete(names);
        cJSON_Delete(ids);
        return false;
    }
    ok = base_json_put(json, "id2label", names);
    ok = base_json_put(json, "label2id", ids) && ok;
    if (m->task == BY_TASK_CLASSIFY && m->problem != BY_PROBLEM_DEFAULT)
        ok = base_json_put(json, "problem_type", cJSON_CreateString(problem_names[m->problem])) && ok;
    return ok;
}

bool model_config_put_token(cJSON *json, const char *key, int id)
{
    return base_json_put(json, key, id < 0 ? cJSON_CreateNull() : cJSON_CreateNumber(id));
}

/* Which variant it is. A nested configuration without tokens of its own would have those of the published
 * models, which are not in a small vocabulary. */
static bool put_text_part(const by_model *m, cJSON *json)
{
    cJSON *part = m->arch->text_part ? cJSON_GetObjectItemCaseSensitive(json, m->arch->text_part) : NULL;
    return !part || ((!m->arch->text_type ||
                      base_json_put(part, "model_type", cJSON_CreateString(m->arch->text_type))) &&
                     model_config_put_token(part, "bos_token_id", m->eos) &&
                     model_config_put_token(part, "eos_token_id", m->eos));
}

cJSON *model_config_json(const by_model *m, by_dtype dtype)
{
    static const char *const torch_names[] = {
        [BY_F32] = "float32", [BY_BF16] = "bfloat16", [BY_F16] = "float16"};
    cJSON *json = m->json ? cJSON_Duplicate(m->json, true) : cJSON_CreateObject();
    bool ok = json && write_class(m, json) &&
              base_json_put(json, "model_type", cJSON_CreateString(m->arch->family)) &&
              write_labels(m, json) && base_json_put(json, "dtype", cJSON_CreateString(torch_names[dtype]));
    if (ok && cJSON_GetObjectItemCaseSensitive(json, "torch_dtype")) /* its name before transformers 4.56 */
        ok = base_json_put(json, "torch_dtype", cJSON_CreateString(torch_names[dtype]));
    for (int i = 0; i < m->arch->n_fields && ok; i++) {
        const arch_field *f = &m->arch->fields[i];
        const char *at = (const char *)m->config + f->offset;
        if (!m->json || !is_written(m->json, f, at)) /* an unchanged value keeps its spelling and its type */
            ok = write_field(json, f, at);
    }
    const bool tokens = arch_has(m->arch, ARCH_ROLE_VOCAB) && !arch_has(m->arch, ARCH_ROLE_EOS);
    if (ok && !m->json && tokens)
        ok = model_config_put_token(json, "bos_token_id", m->eos) &&
             (cJSON_HasObjectItem(json, "tie_word_embeddings") ||
              base_json_put(json, "tie_word_embeddings", cJSON_CreateTrue()));
    if (ok && tokens && (!m->json || token_of(m->json, "eos_token_id", m->arch->tokens.eos) != m->eos))
        ok = model_config_put_token(json, "eos_token_id", m->eos);
    if (ok && tokens && !m->json && !arch_has(m->arch, ARCH_ROLE_PAD) && m->pad != m->arch->tokens.pad)
        ok = model_config_put_token(json, "pad_token_id", m->pad);
    /* The reference library needs it to find the last token of a row, from which a decoder predicts the
     * label. */
    if (ok && tokens && m->json && m->task == BY_TASK_CLASSIFY && !arch_has(m->arch, ARCH_ROLE_PAD) &&
        m->pad != token_in(m, "pad_token_id", m->arch->tokens.pad))
        ok = model_config_put_token(json, "pad_token_id", m->pad);
    if (ok && m->task == BY_TASK_SEQ2SEQ)
        ok = model_config_put_token(json, "decoder_start_token_id", m->start) &&
             model_config_put_token(json, "pad_token_id", m->pad) &&
             base_json_put(json, "is_encoder_decoder", cJSON_CreateTrue());
    if (ok && m->arch->write)
        ok = m->arch->write(json, m->config);
    if (ok && !m->json)
        ok = put_text_part(m, json);
    if (!ok) {
        cJSON_Delete(json);
        base_fail(BY_ERR_MEMORY, "out of memory while writing config.json");
        return NULL;
    }
    return json;
}
