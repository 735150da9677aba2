/* finetune_rates.c - class weights, and the largest batch (task_batches.h). */
#include <math.h>
#include <stdlib.h>

#include "train/task_batches.h"

/* ---- class weights --------------------------------------------------------------------------- */

/* Balanced weights: examples / (labels * examples of the label). */
static void balance(const data_examples *c, int labels, float *weights)
{
    double all = 0;
    for (int i = 0; i < labels; i++)
        weights[i] = 0;
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < c->list[i].n_labels; k++) {
            weights[c->list[i].values[k]]++;
            all++;
        }
    for (int i = 0; i < labels; i++)
        weights[i] = weights[i] > 0 ? (float)(all / labels / weights[i]) : 0;
}

static by_status parse_weights(const char *list, int labels, float *weights)
{
    const char *at = list;
    for (int i = 0; i < labels; i++) {
        char *end;
        weights[i] = base_strtof(at, &end);
        if (end == at || !(weights[i] >= 0) || !isfinite(weights[i]) || *end != (i + 1 < labels ? ',' : '\0'))
            return base_fail(
                BY_ERR_ARGUMENT,
                "class weights are \"balanced\" or %d numbers with commas, one for each label, not \"%s\"",
                labels, list);
        at = end + 1;
    }
    return BY_OK;
}

by_status train_tuning_weights(train_task *w, const char *list)
{
    const int labels = by_model_labels(w->model);
    if (!list)
        return BY_OK;
    if (!train_task_has_names(w->examples.spec.kind) || w->examples.spec.separator)
        return base_fail(BY_ERR_ARGUMENT, "class weights are for tasks with one label per example");
    w->weights = base_alloc_zero((size_t)labels, sizeof *w->weights);
    if (!w->weights)
        return BY_ERR_MEMORY;
    if (strcmp(list, "balanced") != 0)
        return parse_weights(list, labels, w->weights);
    balance(&w->examples, labels, w->weights);
    return BY_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

by_status train_task_largest(train_task *w, int batch)
{
    data_row_groups groups = {0};
    int64_t counted;
    BY_TRY(data_rows_by_length(&w->rows, batch, &groups));
    by_status s = train_task_batch(w, groups.rows, groups.first[1], groups.first[1], 0, &counted);
    train_task_weigh(w);
    data_row_groups_free(&groups);
    return s;
}
