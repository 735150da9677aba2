/* examples.c - see examples.h. */
#include "train/examples.h"

#include <stdlib.h>

#include "base/file.h"

typedef struct look {
    by_run_spec spec;
    by_dataset data;
    by_model *model;
    by_samples rows;
    char *folder; /* where the text is tokenised */
} look;

static by_status make_folder(look *l)
{
    const char *tmp = getenv("TMPDIR");
    l->folder = by_sprintf("%s/banyan-examples-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!l->folder)
        return BY_ERR_MEMORY;
    l->spec.out = l->folder;
    if (mkdtemp(l->folder))
        return BY_OK;
    by_fail(BY_ERR_IO, "%s: cannot make a temporary folder", l->folder);
    by_free(l->folder);
    l->folder = NULL;
    return BY_ERR_IO;
}

/* A model without values: its context, its positions, whether it knows languages. */
static by_status make_model(look *l, by_device *d)
{
    by_model_spec spec = {.blank = true, .task = by_objective_task(l->data.kind)};
    by_model_shape shape = l->spec.shape;
    if (l->data.tokenizer)
        shape.vocab = by_tokenizer_vocab_size(l->data.tokenizer);
    if (l->spec.objective.language_count > 1)
        shape.languages = l->spec.objective.language_count;
    l->model = l->spec.init_from ? by_model_open(d, l->spec.init_from, &(by_model_spec){0})
                                 : by_model_new(d, l->spec.family, &shape, &spec);
    if (!l->model)
        return by_error_status();
    if (l->data.tokenizer && by_tokenizer_special(l->data.tokenizer, BY_SPECIAL_PAD) >= 0)
        by_model_set_pad(l->model, by_tokenizer_special(l->data.tokenizer, BY_SPECIAL_PAD));
    return BY_OK;
}

static by_status show_rows(look *l, int count, by_status (*show)(void *, const by_example *), void *user)
{
    const int step_rows = l->spec.batch * l->spec.accumulate;
    BY_TRY(by_samples_make(&l->rows, l->data.rows, step_rows, 1)); /* each row a batch: picks begin at 0 */
    for (int i = 0; i < count; i++) {
        const int k = i % step_rows;
        if (k == 0)
            BY_TRY(by_objective_get(l->data.rows, i / step_rows, &l->rows));
        const size_t cell = (size_t)k * (size_t)l->rows.seq, pick = (size_t)k * (size_t)l->rows.picks;
        by_samples one = l->rows;
        int32_t **cells[] = {&one.tokens, &one.segments, &one.positions, &one.mask};
        for (int c = 0; c < BY_COUNT(cells); c++)
            *cells[c] = *cells[c] ? *cells[c] + cell : NULL;
        one.targets += one.picks ? pick : cell;
        one.pick = one.pick ? one.pick + pick : NULL;
        one.second = one.second ? one.second + k : NULL;
        by_example e = {i, l->data.kind, l->data.tokenizer, &one, one.seq};
        while (one.mask && e.used > 0 && !one.mask[e.used - 1])
            e.used--;
        BY_TRY(show(user, &e));
    }
    return BY_OK;
}

static by_status look_at(look *l, by_device *d, int count, by_status (*show)(void *, const by_example *),
                         void *user)
{
    BY_TRY(make_folder(l));
    BY_TRY(by_dataset_open(&l->data, &l->spec, false));
    BY_TRY(make_model(l, d));
    if (l->spec.seq <= 0)
        l->spec.seq = by_model_context(l->model);
    l->spec.batch = BY_MAX(l->spec.batch, 1);
    l->spec.accumulate = BY_MAX(l->spec.accumulate, 1);
    BY_TRY(by_dataset_objectives(&l->data, &l->spec, l->model, false));
    return show_rows(l, count, show, user);
}

by_status by_train_examples(by_device *d, const by_run_spec *spec, int count,
                            by_status (*show)(void *user, const by_example *e), void *user)
{
    look l = {.spec = *spec};
    by_error_clear();
    by_status s = look_at(&l, d, count, show, user);
    by_samples_free(&l.rows);
    by_dataset_close(&l.data);
    by_model_free(l.model);
    if (l.folder && by_dir_remove(l.folder) != BY_OK && s == BY_OK)
        s = by_error_status();
    by_free(l.folder);
    return s;
}
