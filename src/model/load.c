/* load.c - loads the tensors of a checkpoint into the parameters of a model. Files of the last ten years name
 * the same parameter in different ways; the tables below list all known variants. */
#include <math.h>

#include "base/file.h"
#include "graph/graph.h"
#include "model/model.h"

/* Prefixes added by torch's wrappers around a module. */
static const char *const wrappers[] = {"module.", "_orig_mod."};

/* Names of the body inside a model with a head. A file may have one where the model has none, or a different
 * one. */
static const char *const bodies[] = {"transformer.", "model.", "bert.", "roberta.", "distilbert.", "albert."};

/* Obsolete suffixes (TensorFlow's layer norm) and their current names. */
static const struct {
    const char *from, *to;
} endings[] = {{".gamma", ".weight"}, {".beta", ".bias"}};

/* Constants that modules of any family saved as buffers; each family adds its own (arch_family.ignored). */
static const char *const buffers[] = {"position_ids", ".masked_bias", "token_type_ids"};

static const char *strip(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : name;
}

static const char *unwrap(const char *name)
{
    for (const char *before = NULL; before != name;) {
        before = name;
        for (int i = 0; i < BY_COUNT(wrappers); i++)
            name = strip(name, wrappers[i]);
    }
    return name;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

/* Returns the prefix of the names of the body's parameters. */
const char *model_prefix(const by_model *m)
{
    return m->task == BY_TASK_ANSWER && m->arch->answer_prefix ? m->arch->answer_prefix : m->arch->prefix;
}

/* Returns the index of the parameter with that name, with or without the model's own prefix, or -1. */
static int find_spelled(const by_model *m, const char *name, base_buf *scratch)
{
    int k = by_params_find(m->params, name);
    if (k >= 0)
        return k;
    scratch->size = 0;
    base_buf_puts(scratch, model_prefix(m));
    base_buf_puts(scratch, name);
    return scratch->failed ? -1 : by_params_find(m->params, scratch->data);
}

/* Converts a name in terms of modules (arch_family.modules) to the name in published files. Returns false if
 * it is the same. */
static bool respell(const by_model *m, const char *name, base_buf *out)
{
    const arch_alias *all = m->arch->modules ? m->arch->modules : m->arch->renamed;
    bool other = false;
    for (const char *at = name; all && *at;) {
        const arch_alias *p = all;
        size_t n = 0;
        for (; p->key; p++) {
            n = strlen(p->field);
            if (strncmp(at, p->field, n) == 0 && at[n] == '.')
                break;
        }
        other |= p->key != NULL;
        n = p->key ? n : strcspn(at, ".");
        base_buf_put(out, p->key ? p->key : at, p->key ? strlen(p->key) : n);
        base_buf_put(out, ".", at[n] == '.');
        at += n + (at[n] == '.');
    }
    return other && !out->failed;
}

/* As find_spelled, but also accepts module names, which programs that dump a state dictionary write. */
static int find(const by_model *m, const char *name, base_buf *scratch)
{
    base_buf file = {0};
    int k = find_spelled(m, name, scratch);
    if (k < 0 && respell(m, name, &file))
        k = find_spelled(m, file.data, scratch);
    scratch->failed |= file.failed;
    base_buf_free(&file);
    return k;
}

/* Returns the index of the parameter that a tensor of the file belongs to, or -1. */
static int resolve(const by_model *m, const char *name, base_buf *spelled, base_buf *scratch)
{
    spelled->size = 0;
    base_buf_puts(spelled, unwrap(name));
    int k = spelled->failed ? -1 : find(m, spelled->data, scratch);
    for (int i = 0; i < BY_COUNT(endings) && k < 0 && !spelled->failed; i++)
        if (ends_with(spelled->data, endings[i].from)) {
            spelled->size -= strlen(endings[i].from);
            base_buf_puts(spelled, endings[i].to);
            k = spelled->failed ? -1 : find(m, spelled->data, scratch);
            break;
        }
    for (int i = 0; i < BY_COUNT(bodies) && k < 0 && !spelled->failed; i++) {
        const char *rest = strip(spelled->data, bodies[i]);
        if (rest != spelled->data)
            k = find(m, rest, scratch);
    }
    return k;
}

/* ---- matching tensors to parameters ---------------------------------------------------------- */

static bool is_head(const by_model *m, const char *name)
{
    return m->arch->head && strcmp(unwrap(name), m->arch->head) == 0;
}

bool model_in_body(const by_model *m, const char *name)
{
    for (const char *const *o = m->arch->outside; o && *o; o++)
        if (strip(unwrap(name), *o) != unwrap(name))
            return false;
    return strncmp(unwrap(name), model_prefix(m), strlen(model_prefix(m))) == 0;
}

/* Returns true if the names in the file distinguish the body from the heads. */
static bool is_prefixed(const by_model *m, const by_weights *file)
{
    for (int i = 0; i < by_weights_count(file); i++)
        if (model_in_body(m, by_weights_at(file, i)->name))
            return true;
    return false;
}

static bool ends_with_any(const char *name, const char *const *tails)
{
    for (; tails && *tails; tails++)
        if (ends_with(name, *tails))
            return true;
    return false;
}

/* Returns the parameter whose values a tensor duplicates, or NULL. */
static const char *copied(const by_model *m, const char *name)
{
    for (const arch_alias *a = m->arch->copies; a && a->key; a++)
        if (ends_with(name, a->key))
            return a->field;
    return NULL;
}

/* Returns true for a tensor that is not a parameter but is allowed: a buffer, or a head or pooler that this
 * task does not use. */
static bool is_ignored(const by_model *m, const char *name, bool prefixed)
{
    for (int i = 0; i < BY_COUNT(buffers); i++)
        if (ends_with(name, buffers[i]))
            return true;
    if (ends_with_any(name, m->arch->ignored) || ends_with_any(name, m->arch->sines) || copied(m, name))
        return true;
    if (m->task == BY_TASK_ENCODER && strncmp(unwrap(name), "decoder.", 8) == 0)
        return true;
    return (prefixed && !model_in_body(m, name)) || strncmp(unwrap(name), "score.", 6) == 0 ||
           strstr(name, "pooler.");
}

static bool has_shape(const gr_param_info *info, const by_weight *e)
{
    bool fits = e->rank == info->rank && by_dtype_has_fraction(e->dtype);
    for (int k = 0; fits && k < e->rank; k++)
        fits = e->dim[k] == info->dim[k];
    return fits;
}

/* Returns true if a parameter keeps its initial values when a model is opened: the labels of a new head, and
 * parameters outside of the body that the file lacks. */
static bool is_fresh(const by_model *m, const gr_param_info *info, const by_weight *found,
                     const by_model_spec *spec)
{
    const char *name = info->name;
    bool head = !model_in_body(m, name), pooler = strstr(name, ".pooler.") != NULL;
    bool labels = model_has_labels(m->task) || m->task == BY_TASK_ANSWER || m->task == BY_TASK_CHOICE;
    if (spec->task == BY_TASK_DEFAULT)
        labels = labels && found && !has_shape(info, found);
    if (!found && ends_with_any(name, m->arch->optional))
        return true;
    return spec->new_head && ((head && labels) || ((head || pooler) && !found));
}

enum { SHOWN = 4 };

/* The first names of a list, and the number of the others. */
typedef struct few {
    base_buf text;
    int count;
} few;

static void few_add(few *f, const char *name)
{
    if (f->count++ < SHOWN)
        base_buf_printf(&f->text, "%s%s", f->count > 1 ? ", " : "", io_show(name).text);
}

static void few_end(few *f)
{
    if (f->count > SHOWN)
        base_buf_printf(&f->text, " and %d more", f->count - SHOWN);
}

static by_status complain(const by_model *m, few *missing, few *unknown)
{
    base_buf text = {0};
    few_end(missing);
    few_end(unknown);
    if (missing->count)
        base_buf_printf(&text, "%s %s missing", missing->text.data, missing->count > 1 ? "are" : "is");
    if (unknown->count)
        base_buf_printf(&text, "%sthe file contains %s, which %s with this configuration does not have",
                        missing->count ? "; " : "", unknown->text.data, base_a(m->arch->title).text);
    by_status s = text.failed || missing->text.failed || unknown->text.failed
                      ? base_fail(BY_ERR_MEMORY, "out of memory")
                      : base_fail(BY_ERR_FORMAT, "%s", text.data);
    base_buf_free(&text);
    return s;
}

/* Sets found[k] to the tensor of parameter k, and *head to the tied head if it is present. */
static by_status match(const by_model *m, const by_weights *file, const by_weight **found,
                       const by_weight **head, few *unknown)
{
    base_buf spelled = {0}, scratch = {0};
    by_status s = BY_OK;
    bool prefixed = is_prefixed(m, file);
    for (int i = 0; i < by_weights_count(file) && s == BY_OK; i++) {
        const by_weight *e = by_weights_at(file, i);
        int k = resolve(m, e->name, &spelled, &scratch);
        if (spelled.failed || scratch.failed)
            s = base_fail(BY_ERR_MEMORY, "out of memory");
        else if (k >= 0 && found[k] && !io_weight_same(found[k], e))
            s = base_fail(BY_ERR_FORMAT, "the file contains both %s and %s, which are the parameter %s",
                          io_show(found[k]->name).text, io_show(e->name).text, m->params->list[k].name);
        else if (k >= 0)
            found[k] = e;
        else if (is_head(m, e->name))
            *head = e;
        else if (!is_ignored(m, e->name, prefixed))
            few_add(unknown, e->name);
    }
    base_buf_free(&spelled);
    base_buf_free(&scratch);
    return s;
}

static bool same_values(const by_weight *a, const by_weight *b)
{
    enum { PART = 1024 };
    float x[PART], y[PART];
    size_t n = a->bytes / by_dtype_size(a->dtype);
    if (n != b->bytes / by_dtype_size(b->dtype))
        return false;
    for (size_t i = 0; i < n; i += PART) {
        size_t part = BY_MIN(n - i, (size_t)PART);
        if (by_weight_read(a, i, part, x, BY_F32) != BY_OK ||
            by_weight_read(b, i, part, y, BY_F32) != BY_OK || memcmp(x, y, part * sizeof *x) != 0)
            return false;
    }
    return true;
}

int model_find(const by_model *m, const char *name)
{
    base_buf scratch = {0};
    int k = find(m, name, &scratch);
    const char *other = k < 0 && is_head(m, name) ? m->arch->table : k < 0 ? copied(m, name) : NULL;
    if (other)
        k = find(m, other, &scratch);
    if (k < 0 && is_head(m, name) && m->arch->target_table)
        k = find(m, m->arch->target_table, &scratch);
    base_buf_free(&scratch);
    return k;
}

/* Returns the tensor with that name, or with that name without the prefix of the body. */
static const by_weight *find_tensor(const by_model *m, const by_weights *file, const char *name)
{
    const char *bare = name ? strip(name, model_prefix(m)) : NULL;
    for (int i = 0; name && i < by_weights_count(file); i++) {
        const char *there = unwrap(by_weights_at(file, i)->name);
        if (strcmp(there, name) == 0 || strcmp(there, bare) == 0)
            return by_weights_at(file, i);
    }
    return NULL;
}

void model_head_find(by_model *m, const by_weights *file)
{
    if (!m->arch->head)
        return;
    arch_head *h = model_head(m);
    const by_weight *head = find_tensor(m, file, m->arch->head);
    const by_weight *table = find_tensor(m, file, m->arch->table);
    if (!table)
        table = find_tensor(m, file, m->arch->target_table);
    if (m->arch->bare && m->task == m->arch->pretrained && !is_prefixed(m, file))
        m->arch->bare(m->config);
    h->own = !m->arch->always_tied && !h->tied;
    if (head && table && !same_values(head, table))
        h->own = true;
    if (h->own && !head && m->promoted)
        m->task = BY_TASK_FEATURES; /* nothing can replace the missing head */
}

/* A file may contain a tied head in addition to the embedding table, or instead of it. */
static void tie(const by_model *m, const by_weight **found, const by_weight *head)
{
    int k = m->arch->table ? by_params_find(m->params, m->arch->table) : -1;
    if (k < 0 && m->arch->target_table)
        k = by_params_find(m->params, m->arch->target_table);
    if (head && k >= 0 && !found[k])
        found[k] = head;
}

/* A tensor of a language model head that the task does not have. */
static bool is_unused_head(const by_model *m, const char *name)
{
    const bool predicts = m->task == BY_TASK_LM || m->task == BY_TASK_MLM || m->task == BY_TASK_SEQ2SEQ ||
                          m->task == BY_TASK_PRETRAIN;
    return !predicts && !model_in_body(m, name);
}

/* A duplicate replaces its parameter if that is missing, and otherwise must have the same values, unless it
 * belongs to a skipped head with separate values. */
static by_status tie_copy(const by_model *m, const by_weight **found, const by_weight *e, bool prefixed)
{
    const char *of = copied(m, e->name);
    int k = of ? by_params_find(m->params, of) : -1;
    if (k < 0)
        return BY_OK;
    if (!found[k])
        found[k] = e;
    else if (!same_values(found[k], e) && !(prefixed && is_unused_head(m, e->name)))
        return base_fail(BY_ERR_UNSUPPORTED, "%s differs from %s, to which the configuration ties it",
                         io_show(e->name).text, io_show(found[k]->name).text);
    return BY_OK;
}

/* A stored table of positions must equal the computed one. */
static by_status check_sines(const by_weight *e)
{
    const int64_t rows = e->rank == 2 ? e->dim[0] : 0, width = e->rank == 2 ? e->dim[1] : 0;
    const int64_t half = (width + 1) / 2;
    float *row = base_alloc_zero((size_t)width + 1, sizeof *row);
    by_status s = row ? BY_OK : BY_ERR_MEMORY;
    for (int64_t p = 0; p < rows && s == BY_OK; p++) {
        s = by_weight_read(e, (size_t)(p * width), (size_t)width, row, BY_F32);
        for (int64_t i = 0; i < width && s == BY_OK; i++) {
            const int64_t k = i < half ? i : i - half;
            const double angle = (double)p / pow(10000, 2.0 * (double)k / (double)width);
            const double want = i < half ? sin(angle) : cos(angle);
            if (!(fabs((double)row[i] - want) < 0.01)) /* precision of 16 bits */
                s = base_fail(BY_ERR_UNSUPPORTED, "%s is not the sinusoidal position table of this family",
                              io_show(e->name).text);
        }
    }
    base_free(row);
    return s;
}

/* Checks tensors that are not parameters but must agree with one. */
static by_status check_others(const by_model *m, const by_weights *file, const by_weight **found)
{
    base_buf spelled = {0}, scratch = {0};
    const bool prefixed = is_prefixed(m, file);
    by_status s = BY_OK;
    for (int i = 0; i < by_weights_count(file) && s == BY_OK; i++) {
        const by_weight *e = by_weights_at(file, i);
        if (resolve(m, e->name, &spelled, &scratch) >= 0)
            continue;
        if (copied(m, e->name))
            s = tie_copy(m, found, e, prefixed);
        else if (ends_with_any(e->name, m->arch->sines))
            s = check_sines(e);
    }
    base_buf_free(&spelled);
    base_buf_free(&scratch);
    return s;
}

static by_status check_shape(const by_params *p, int i, const by_weight *e)
{
    const gr_param_info *info = &p->list[i];
    if (has_shape(info, e))
        return BY_OK;
    base_buf want = {0}, have = {0};
    for (int k = 0; k < info->rank; k++)
        base_buf_printf(&want, "%s%lld", k ? ", " : "", (long long)info->dim[k]);
    for (int k = 0; k < e->rank; k++)
        base_buf_printf(&have, "%s%lld", k ? ", " : "", (long long)e->dim[k]);
    base_fail(BY_ERR_FORMAT, "%s has shape (%s) %s in the file, but the configuration requires (%s)",
              io_show(e->name).text, have.data ? have.data : "", by_dtype_name(e->dtype),
              want.data ? want.data : "");
    base_buf_free(&want);
    base_buf_free(&have);
    return BY_ERR_FORMAT;
}

/* Checks that every parameter, except fresh ones, has a tensor of its shape, and that every tensor of the
 * body is used: a leftover means that the configuration describes another model. *fresh is set if there are
 * fresh parameters. */
static by_status check_all(const by_model *m, const by_weights *file, const by_model_spec *spec,
                           const by_weight **found, bool *fresh)
{
    const by_params *p = m->params;
    const by_weight *head = NULL;
    few missing = {0}, unknown = {0};
    by_status s = match(m, file, found, &head, &unknown);
    if (s == BY_OK) {
        tie(m, found, head);
        s = check_others(m, file, found);
    }
    for (int i = 0; i < p->count && s == BY_OK; i++) {
        if (is_fresh(m, &p->list[i], found[i], spec)) {
            found[i] = NULL;
            *fresh = m->fresh[i] = true;
        } else if (!found[i]) {
            few_add(&missing, p->list[i].name);
        }
    }
    if (s == BY_OK && missing.count + unknown.count > 0)
        s = complain(m, &missing, &unknown);
    for (int i = 0; i < p->count && s == BY_OK; i++)
        if (found[i])
            s = check_shape(p, i, found[i]);
    base_buf_free(&missing.text);
    base_buf_free(&unknown.text);
    return s;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Uses the tensors in the mapped file if nothing has to be converted. */
static bool try_map(by_model *m, by_weights *file, const by_weight *const *found)
{
    for (int i = 0; i < m->params->count; i++) {
        const by_weight *e = found[i];
        if (e->dtype != m->params->list[i].type || e->stride || (uintptr_t)e->data % by_dtype_size(e->dtype))
            return false;
    }
    for (int i = 0; i < m->params->count; i++) {
        union { /* mapped read-only: kernels never write the parameters of a model that is not for training */
            const void *from;
            void *to;
        } address = {found[i]->data};
        m->params->list[i].mapped = address.to;
    }
    m->file = file;
    return true;
}

static by_status copy(by_params *p, int i, const by_weight *e)
{
    if (!e->stride)
        return gr_params_set_typed(p, i, BY_SLOT_VALUE, e->data, e->dtype);
    void *dense = base_alloc(e->bytes);
    by_status s =
        dense ? by_weight_read(e, 0, e->bytes / by_dtype_size(e->dtype), dense, e->dtype) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = gr_params_set_typed(p, i, BY_SLOT_VALUE, dense, e->dtype);
    base_free(dense);
    return s;
}

static by_status fill(by_model *m, by_weights *file, const by_model_spec *spec, const by_weight **found)
{
    by_params *p = m->params;
    bool fresh = false;
    BY_TRY(check_all(m, file, spec, found, &fresh));
    bool mappable = !spec->training && !spec->copy && !fresh && strcmp(by_device_name(m->device), "cpu") == 0;
    BY_TRY(model_prepare(m, spec));
    bool mapped = mappable && try_map(m, file, found);
    BY_TRY(by_params_freeze(p, spec->training));
    if (mapped)
        return BY_OK;
    if (fresh)
        BY_TRY(by_params_init(p, spec->seed));
    for (int i = 0; i < p->count; i++)
        if (found[i])
            BY_TRY(copy(p, i, found[i]));
    return BY_OK;
}

by_status model_load(by_model *m, by_weights *file, const by_model_spec *spec)
{
    const by_weight **found = base_alloc_zero((size_t)m->params->count + 1, sizeof *found);
    m->fresh = base_alloc_zero((size_t)m->params->count + 1, sizeof *m->fresh);
    if (!found || !m->fresh) {
        base_free(found);
        return BY_ERR_MEMORY;
    }
    by_status s = fill(m, file, spec, found);
    base_free(found);
    return s;
}
