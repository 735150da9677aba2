/* check.c - shared by the parts of a verification: reporting, comparisons, tensors of the reference. */
#include "verify/check.h"

#include <math.h>
#include <stdio.h>

#include "graph/graph.h"
#include "model/derive.h"
#include "model/model.h"

/* ---- tensors of the reference ---------------------------------------------------------------- */

bool verify_is_wide(const verify_case *c)
{
    return c->spec->dtype == BY_F32 || c->spec->dtype == BY_F64;
}

const by_weight *verify_find(const verify_case *c, const char *prefix, const char *name)
{
    char full[64];
    base_format(full, sizeof full, "%s%s", prefix, name);
    return by_weights_find(c->reference, full);
}

size_t verify_elements(const by_weight *e)
{
    return e->bytes / by_dtype_size(e->dtype);
}

void *verify_values(const by_weight *e, by_dtype type)
{
    void *values = base_alloc_zero(verify_elements(e) + 1, by_dtype_size(type));
    if (values)
        base_convert(values, type, e->data, e->dtype, verify_elements(e));
    return values;
}

static void shape_text(char *text, size_t size, int rank, const int64_t *dim)
{
    size_t n = (size_t)base_format(text, size, "(");
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)base_format(text + n, size - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (n < size)
        base_format(text + n, size - n, ")");
}

static bool same_shape(const by_weight *e, int rank, const int64_t *dim)
{
    return e->rank == rank && memcmp(e->dim, dim, sizeof *dim * (size_t)rank) == 0;
}

/* ---- reporting and comparisons --------------------------------------------------------------- */

static void say(verify_case *c, by_verify_line line)
{
    if (line.verdict == BY_VERDICT_NOT_RUN)
        c->result->not_run++;
    else
        c->result->tensors++;
    c->result->failed += line.verdict == BY_VERDICT_FAILED;
    if (c->spec->line)
        c->spec->line(c->spec->user, &line);
}

void verify_note(verify_case *c, const by_weight *e, by_check_verdict verdict, const char *note)
{
    say(c, (by_verify_line){.name = e->name, .verdict = verdict, .error = NAN, .bound = NAN, .note = note});
}

void verify_say(verify_case *c, const by_weight *e, const verify_rule *rule, double error, const char *note)
{
    say(c, (by_verify_line){.name = e->name,
                            .verdict = error <= rule->bound ? BY_VERDICT_OK : BY_VERDICT_FAILED,
                            .measure = rule->measure,
                            .error = error,
                            .bound = rule->bound,
                            .note = note});
}

by_status verify_compare(verify_case *c, const by_weight *e, verify_subject subject, int rank,
                         const int64_t *dim, const float *here, const bool *skip)
{
    const bool places = e->dtype == BY_I64 || e->dtype == BY_I32;
    if (!same_shape(e, rank, dim) || (!by_dtype_is_float(e->dtype) && !places)) {
        char note[256], a[96], b[96];
        shape_text(a, sizeof a, rank, dim);
        shape_text(b, sizeof b, e->rank, e->dim);
        base_format(note, sizeof note, "shape is %s here but %s %s in the reference", a, b,
                    by_dtype_name(e->dtype));
        verify_note(c, e, BY_VERDICT_FAILED, note);
        return BY_OK;
    }
    float *there = verify_values(e, BY_F32);
    if (!there)
        return BY_ERR_MEMORY;
    verify_rule rule = verify_rule_for(subject, c->spec->dtype);
    rule.bound = places ? 0 : rule.bound; /* whole numbers are equal or wrong */
    int skipped = 0;
    char note[80];
    for (size_t i = 0; skip && i < verify_elements(e); i++)
        if (skip[i]) {
            there[i] = here[i];
            skipped++;
        }
    base_format(note, sizeof note, "ignores %d elements whose gradient is rounding noise", skipped);
    verify_say(c, e, &rule, verify_measure_error(&rule, here, there, verify_elements(e), c->whole),
               skipped ? note : NULL);
    base_free(there);
    return BY_OK;
}

size_t verify_parameter_size(const by_params *p, int i)
{
    size_t n = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        n *= (size_t)by_params_shape(p, i)[k];
    return n;
}

float *verify_parameter(const by_params *p, int i, by_slot slot)
{
    float *values = base_alloc_zero(verify_parameter_size(p, i), sizeof *values);
    if (values && !gr_params_address(p, i, slot))
        return values; /* it is not trained: its gradient and moments are zero */
    if (values && by_params_get(p, i, slot, values) != BY_OK) {
        base_free(values);
        return NULL;
    }
    return values;
}

int verify_locate(const verify_case *c, const char *name, const by_params **list)
{
    const by_adapter *a = by_model_adapter(c->model);
    const char *end = strstr(name, ".base_layer.");
    int i = a ? by_params_find(by_adapter_params(a), name) : -1;
    *list = i >= 0 ? by_adapter_params(a) : by_model_params(c->model);
    if (i >= 0)
        return i;
    if (a && verify_has_prefix(name, "base_model.model."))
        name += strlen("base_model.model.");
    char *plain = a && end ? base_sprintf("%.*s.%s", (int)(end - name), name, end + strlen(".base_layer."))
                           : base_strdup(name);
    i = plain ? model_find(c->model, plain) : -1;
    base_free(plain);
    return i;
}

bool verify_missing(verify_case *c, const by_weight *e, int parameter, bool there)
{
    const char *why = parameter < 0 ? "the model has no such parameter" : "the reference has no input.labels";
    if (parameter < 0 || !there)
        verify_note(c, e, BY_VERDICT_FAILED, why);
    return parameter < 0 || !there;
}

/* A gradient with a norm below this is zero in exact arithmetic and is measured as if its norm were 1. */
#define NOISE 1e-5

by_status verify_whole(verify_case *c, bool *any)
{
    double sum = 0;
    *any = false;
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const by_weight *e = by_weights_at(c->reference, i);
        if (!verify_has_prefix(e->name, "grad."))
            continue;
        float *values = verify_values(e, BY_F32);
        if (!values)
            return BY_ERR_MEMORY;
        for (size_t k = 0; k < verify_elements(e); k++)
            sum += (double)values[k] * (double)values[k];
        base_free(values);
        *any = true;
    }
    c->whole = sqrt(sum) > NOISE ? sqrt(sum) : 1;
    return BY_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

by_status verify_ids(const verify_case *c, const char *prefix, const char *name, int64_t rows, int64_t cols,
                     int32_t **out)
{
    const by_weight *e = verify_find(c, prefix, name);
    if (!e)
        return BY_OK;
    const bool chosen =
        c->choices && cols && same_shape(e, 3, (int64_t[]){rows / c->choices, c->choices, cols});
    if (by_dtype_is_float(e->dtype) || (!chosen && !same_shape(e, cols ? 2 : 1, (int64_t[]){rows, cols}))) {
        char have[96], want[96];
        shape_text(have, sizeof have, e->rank, e->dim);
        shape_text(want, sizeof want, cols ? 2 : 1, (int64_t[]){rows, cols});
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s has shape %s %s; a model of this class takes integers of shape %s", e->name,
                         have, by_dtype_name(e->dtype), want);
    }
    *out = verify_values(e, BY_I32);
    return *out ? BY_OK : BY_ERR_MEMORY;
}

by_status verify_shape(verify_case *c, const char *prefix)
{
    const by_weight *e = verify_find(c, prefix, "input_ids");
    if (!e)
        return base_fail(BY_ERR_FORMAT, "the reference has no %sinput_ids", prefix);
    const bool choices = by_model_task(c->model) == BY_TASK_CHOICE;
    int64_t rows = 1;
    if (e->rank != 2 + choices)
        return base_fail(BY_ERR_FORMAT, "%s is not a batch of %s", e->name,
                         choices ? "choices" : "sequences");
    for (int i = 0; i < e->rank; i++) {
        if (e->dim[i] < 1 || e->dim[i] > (1 << 28) / rows)
            return base_fail(BY_ERR_FORMAT, "%s is not a batch of sequences", e->name);
        rows *= e->dim[i];
    }
    c->seq = (int)e->dim[e->rank - 1];
    c->batch = (int)(rows / c->seq);
    c->choices = choices ? (int)e->dim[1] : 0;
    return BY_OK;
}

by_status verify_numbers(const verify_case *c, const char *prefix, const char *name, int64_t rows,
                         float **out)
{
    const by_weight *e = verify_find(c, prefix, name);
    if (!e)
        return BY_OK;
    if (!by_dtype_is_float(e->dtype) || (int64_t)verify_elements(e) != rows)
        return base_fail(BY_ERR_UNSUPPORTED, "%s must have one number for each of %lld rows", e->name,
                         (long long)rows);
    *out = verify_values(e, BY_F32);
    return *out ? BY_OK : BY_ERR_MEMORY;
}

by_status verify_pair(verify_case *c, const char *prefix)
{
    const by_weight *labels = verify_find(c, prefix, "labels");
    if (!labels || labels->rank != 2 || labels->dim[0] != c->batch || labels->dim[1] < 1 ||
        labels->dim[1] > (1 << 28) / c->batch)
        return base_fail(BY_ERR_FORMAT, "the reference has no %slabels (%d, T)", prefix, c->batch);
    int32_t **old[] = {&c->source, &c->targets, &c->tokens};
    for (int i = 0; i < BY_COUNT(old); i++) {
        base_free(*old[i]);
        *old[i] = NULL;
    }
    BY_TRY(verify_ids(c, prefix, "input_ids", c->batch, c->seq, &c->source));
    c->source_seq = c->seq;
    c->seq = (int)labels->dim[1];
    BY_TRY(verify_ids(c, prefix, "labels", c->batch, c->seq, &c->targets));
    c->tokens = base_alloc_zero((size_t)c->batch * (size_t)c->seq, sizeof *c->tokens);
    return c->tokens ? by_model_shift(c->model, c->targets, c->batch, c->seq, c->tokens) : BY_ERR_MEMORY;
}

void verify_shift(const verify_case *c, int32_t *labels)
{
    if (by_model_task(c->model) != BY_TASK_LM || by_model_labels_in_place(c->model))
        return;
    for (int b = 0; b < c->batch; b++) {
        int32_t *row = labels + (size_t)b * (size_t)c->seq;
        memmove(row, row + 1, sizeof *row * (size_t)(c->seq - 1));
        row[c->seq - 1] = -100;
    }
}

static bool is_listed(const char *name, const char *const *list)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* The array of the model that an entry NAME or NAME.N belongs to, or NULL; *numbered: it is NAME.N. */
static const char *array_of(const verify_case *c, const char *name, bool *numbered)
{
    char stem[64];
    const char *dot = strrchr(name, '.');
    *numbered = dot && dot[1] >= '0' && dot[1] <= '9';
    base_format(stem, sizeof stem, "%.*s", (int)(*numbered ? (size_t)(dot - name) : strlen(name)), name);
    return model_array_name(c->model, stem);
}

/* One array from the entry, or from as many as have its name and a number. */
static by_status take_array(verify_case *c, const char *prefix, const char *name, const by_weight *first,
                            bool numbered)
{
    int64_t shape[BY_MAX_RANK] = {1};
    const by_dtype type = by_dtype_is_float(first->dtype) ? BY_F32 : BY_I32;
    const size_t bytes = verify_elements(first) * by_dtype_size(type);
    const by_weight *e = first;
    base_buf all = {0};
    if (first->rank + numbered > BY_MAX_RANK)
        return base_fail(BY_ERR_UNSUPPORTED, "%s has too many axes", first->name);
    memcpy(shape + numbered, first->dim, (size_t)first->rank * sizeof *shape);
    for (int k = 0; e; k++) {
        char next[64];
        void *values = same_shape(e, first->rank, first->dim) ? verify_values(e, type) : NULL;
        if (values)
            base_buf_put(&all, values, bytes);
        base_free(values);
        if (!values || all.failed) {
            base_buf_free(&all);
            return values ? BY_ERR_MEMORY
                          : base_fail(BY_ERR_FORMAT, "%s and %s have different shapes", e->name, first->name);
        }
        base_format(next, sizeof next, "%s.%d", name, k + 1);
        e = numbered ? verify_find(c, prefix, next) : NULL;
        shape[0] = numbered ? k + 1 : shape[0];
    }
    by_batch_put(&c->extra, name, type, first->rank + numbered, shape, all.data);
    return BY_OK;
}

by_status verify_take_extra(verify_case *c, const char *prefix, const char *const *known)
{
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const by_weight *e = by_weights_at(c->reference, i);
        const char *name = e->name + strlen(prefix);
        bool numbered;
        if (!verify_has_prefix(e->name, prefix) || is_listed(name, known))
            continue;
        const char *array = array_of(c, name, &numbered);
        if (!array || by_batch_find(&c->extra, array))
            continue;
        if (numbered) { /* from the first on, wherever it lies */
            char first[64];
            base_format(first, sizeof first, "%s.0", array);
            e = verify_find(c, prefix, first);
            if (!e)
                return base_fail(BY_ERR_FORMAT, "the reference has no %s%s", prefix, first);
        }
        BY_TRY(take_array(c, prefix, array, e, numbered));
    }
    return BY_OK;
}

by_status verify_known(const verify_case *c, const char *prefix, const char *const *known)
{
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const char *name = by_weights_at(c->reference, i)->name;
        bool numbered;
        if (verify_has_prefix(name, prefix) && !is_listed(name + strlen(prefix), known) &&
            !verify_is_memory(c, name + strlen(prefix)) && !array_of(c, name + strlen(prefix), &numbered))
            return base_fail(BY_ERR_UNSUPPORTED, "%s: %s does not take this input", name,
                             base_a(c->model ? by_model_class(c->model) : "case of this kind").text);
    }
    return BY_OK;
}
