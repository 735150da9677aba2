/* finetune_rates.c - which parameters learn a task and how fast, how much labels count, and the largest batch
 * (work.h). */
#include <math.h>
#include <stdlib.h>

#include "train/task_batches.h"

/* ---- what learns, and how fast --------------------------------------------------------------- */

/* The layer in a parameter's name, "encoder.layer.11.output": 11. -1: none. */
static int layer_in(const char *name)
{
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
        char *end;
        long n = strtol(at + 1, &end, 10);
        if (end > at + 1 && (*end == '.' || !*end))
            return (int)n;
    }
    return -1;
}

/* 0: before the first layer; i + 1: layer i; layers + 1: after the last. */
static int depth_of(const by_model *m, int param)
{
    const by_params *p = by_model_params(m);
    const int layer = layer_in(by_params_name(p, param));
    if (layer >= 0)
        return BY_MIN(layer, by_model_layers(m) - 1) + 1;
    for (int i = 0; i < param; i++)
        if (layer_in(by_params_name(p, i)) >= 0)
            return by_model_layers(m) + 1;
    return 0;
}

/* Depths below this are frozen. */
static by_status frozen_depth(const by_model *m, const char *freeze, int *out)
{
    const int layers = by_model_layers(m);
    *out = 0;
    if (!freeze)
        return BY_OK;
    char *end;
    long n = strtol(freeze, &end, 10);
    if (strcmp(freeze, "embeddings") == 0)
        n = 0;
    else if (strcmp(freeze, "body") == 0)
        n = layers;
    else if (end == freeze || *end || n < 0 || n > layers)
        return base_fail(
            BY_ERR_ARGUMENT,
            "what is to be frozen is \"embeddings\", \"body\" or a number of layers up to %d, not "
            "\"%s\"",
            layers, freeze);
    *out = (int)n + 1;
    return BY_OK;
}

by_status train_tuning_rates(by_model *m, double layer_decay, const char *freeze, int64_t *trained)
{
    by_params *p = by_model_params(m);
    const double decay = layer_decay > 0 ? layer_decay : 1;
    const int top = by_model_layers(m) + 1;
    int frozen;
    BY_TRY(frozen_depth(m, freeze, &frozen));
    *trained = 0;
    for (int i = 0; i < by_params_count(p); i++) {
        const int depth = depth_of(m, i);
        const double scale = depth < frozen ? 0 : pow(decay, top - depth);
        by_params_set_rate(p, i, scale);
        int64_t n = scale != 0;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= by_params_shape(p, i)[k];
        *trained += n;
    }
    return BY_OK;
}

/* ---- class weights --------------------------------------------------------------------------- */

/* Those that make every label count the same in all: cases / (labels * cases of the label). */
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
                "class weights are \"balanced\" or %d numbers with commas, one for each label, not "
                "\"%s\"",
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
    if (!train_task_has_names(w->cases.spec.kind) || w->cases.spec.separator)
        return base_fail(BY_ERR_ARGUMENT, "class weights are for tasks where one label of several is right");
    w->weights = base_alloc_zero((size_t)labels, sizeof *w->weights);
    if (!w->weights)
        return BY_ERR_MEMORY;
    if (strcmp(list, "balanced") != 0)
        return parse_weights(list, labels, w->weights);
    balance(&w->cases, labels, w->weights);
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
