/* derive.c - see derive.h. */
#include "model/derive.h"

static const arch_derived *entry(const by_model *m, int i)
{
    const arch_derived *list = m->arch->derived;
    for (int k = 0; list && list[k].name && k < MODEL_DERIVED; k++)
        if (k == i)
            return &list[k];
    return NULL;
}

static arch_rows rows_of(const by_model *m, const by_batch *b, const arch_derived *how)
{
    const by_array *given = how->from ? by_batch_find(b, how->from) : NULL;
    int64_t count = given ? 1 : 0;
    for (int i = 0; given && i < given->rank; i++)
        count *= given->shape[i];
    return (arch_rows){.task = by_model_task(m),
                       .batch = b->batch,
                       .seq = b->seq,
                       .tokens = by_batch_ids(b, "tokens"),
                       .mask = by_batch_ids(b, "mask"),
                       .given = how->from ? by_batch_ids(b, how->from) : NULL,
                       .count = count};
}

int model_derive(const by_model *m, const by_batch *b, model_derived *list)
{
    const arch_derived *how;
    int count = 0;
    for (int i = 0; (how = entry(m, i)); i++) {
        const arch_rows rows = rows_of(m, b, how);
        model_derived one = {.how = how};
        if (by_batch_find(b, how->name) || !rows.tokens)
            continue;
        one.rank = how->shape(m->config, &rows, one.dim);
        if (one.rank > 0)
            list[count++] = one;
    }
    return count;
}

by_status model_derive_room(model_derived *list, int count)
{
    for (int i = 0; i < count; i++) {
        size_t n = 1;
        for (int k = 0; k < list[i].rank; k++)
            n *= (size_t)list[i].dim[k];
        list[i].values = base_alloc_zero(n, sizeof *list[i].values);
        if (!list[i].values)
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

void model_derive_fill(const by_model *m, const by_batch *b, const model_derived *one)
{
    const arch_rows rows = rows_of(m, b, one->how);
    one->how->fill(m->config, &rows, one->dim, one->values);
}

void model_derive_free(model_derived *list, int count)
{
    for (int i = 0; i < count; i++)
        base_free(list[i].values);
}

bool model_derived_alike(const model_derived *a, const model_derived *b)
{
    return a->how == b->how && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

bool model_derives_from(const by_model *m, const char *name)
{
    const arch_derived *how;
    if (strcmp(name, "targets") == 0) /* the loss reads them */
        return false;
    for (int i = 0; (how = entry(m, i)); i++)
        if (how->from && strcmp(how->from, name) == 0)
            return true;
    return false;
}

const char *model_array_name(const by_model *m, const char *name)
{
    const by_input_info *in;
    const arch_derived *how;
    for (int i = 0; (in = by_model_input(m, i)); i++)
        if (strcmp(in->name, name) == 0)
            return in->name;
    for (int i = 0; (how = entry(m, i)); i++) {
        if (strcmp(how->name, name) == 0)
            return how->name;
        if (how->from && strcmp(how->from, name) == 0)
            return how->from;
    }
    return NULL;
}
