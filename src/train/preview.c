/* preview.c - see preview.h. */
#include "train/preview.h"

#include "base/file.h"
#include "train/run.h"

typedef struct look {
    by_run_spec spec;
    train_dataset data;
    by_model *model;
    data_samples rows;
    char *folder; /* where the text is tokenised */
    train_folder opened;
} look;

static by_status make_folder(look *l)
{
    l->spec.out = l->folder = base_dir_temporary("examples");
    return l->folder ? BY_OK : base_error_status();
}

/* A model without values, for its context, positions, special tokens and languages. */
static by_status make_model(look *l, by_device *d)
{
    by_model_spec spec = {.blank = true, .task = data_objective_task(l->data.kind)};
    by_model_shape shape = l->spec.shape;
    if (l->data.tokenizer) {
        shape.vocab = by_tokenizer_vocab_size(l->data.tokenizer);
        shape.target_vocab = by_tokenizer_target_vocab_size(l->data.tokenizer);
    }
    if (l->spec.objective.language_count > 1)
        shape.languages = l->spec.objective.language_count;
    l->model = l->spec.init_from ? by_model_open(d, l->spec.init_from, &(by_model_spec){0})
                                 : by_model_new(d, l->spec.family, &shape, &spec);
    if (!l->model)
        return base_error_status();
    if (!l->spec.init_from)
        train_run_tokens(&l->data, l->model);
    return BY_OK;
}

/* Row k of a micro-batch alone. */
static data_samples one_row(const data_samples *all, int micro, int k)
{
    data_samples one = *all;
    const size_t row = (size_t)micro * (size_t)all->batch + (size_t)k;
    size_t cell = row * (size_t)one.seq, source = row * (size_t)one.source_seq,
           pick = row * (size_t)one.picks;
    if (all->shapes) {
        one.seq = all->shapes[micro].seq;
        one.source_seq = all->shapes[micro].source_seq;
        cell = (size_t)micro * all->room + (size_t)k * (size_t)one.seq;
        source = (size_t)micro * all->room + (size_t)k * (size_t)one.source_seq;
    }
    int32_t **cells[] = {&one.tokens, &one.segments, &one.positions, &one.mask, &one.order};
    for (int c = 0; c < BY_COUNT(cells); c++)
        *cells[c] = *cells[c] ? *cells[c] + cell : NULL;
    one.targets += one.picks ? pick : cell;
    one.pick = one.pick ? one.pick + pick : NULL;
    one.reversed = one.reversed ? one.reversed + row : NULL;
    one.second = one.second ? one.second + row : NULL;
    one.source = one.source ? one.source + source : NULL;
    one.source_mask = one.source_mask ? one.source_mask + source : NULL;
    return one;
}

static int count_visible(const int32_t *mask, int seq)
{
    while (mask && seq > 0 && !mask[seq - 1])
        seq--;
    return seq;
}

static int count_targets(const int32_t *targets, int seq)
{
    while (seq > 0 && targets[seq - 1] == -100)
        seq--;
    return seq;
}

static by_status show_rows(look *l, int count, by_status (*show)(void *, const train_preview_row *),
                           void *user)
{
    const int step_rows = l->spec.batch * l->spec.accumulate;
    data_samples *all = &l->rows;
    BY_TRY(data_samples_make(all, l->data.rows, step_rows, 1)); /* each row is a batch: picks start at 0 */
    for (int64_t i = 0, step = 0; i < count; step++) {
        BY_TRY(data_objective_get(l->data.rows, step, all));
        for (int m = 0; m < step_rows; m++)
            for (int k = 0; k < (all->shapes ? all->shapes[m].rows : 1) && i < count; k++) {
                data_samples one = one_row(all, m, k);
                train_preview_row e = {
                    i, l->data.kind, l->data.tokenizer, &one, count_visible(one.mask, one.seq), 0};
                if (one.source) {
                    e.used = count_targets(one.targets, one.seq);
                    e.source_used = count_visible(one.source_mask, one.source_seq);
                }
                if (one.source && !e.used)
                    continue; /* fills up a batch */
                BY_TRY(show(user, &e));
                i++;
            }
    }
    return BY_OK;
}

static by_status look_at(look *l, by_device *d, int count,
                         by_status (*show)(void *, const train_preview_row *), void *user)
{
    BY_TRY(make_folder(l));
    BY_TRY(train_folder_open(&l->opened, l->folder));
    BY_TRY(train_dataset_open(&l->data, &l->spec, &l->opened, NULL));
    BY_TRY(make_model(l, d));
    train_run_sizes(&l->spec, l->data.kind, l->model);
    BY_TRY(train_dataset_objectives(&l->data, &l->spec, l->model, false));
    return show_rows(l, count, show, user);
}

by_status train_preview(by_device *d, const by_run_spec *spec, int count,
                        by_status (*show)(void *user, const train_preview_row *e), void *user)
{
    look l = {.spec = *spec, .opened = {.lock = -1}};
    base_error_clear();
    by_status s = look_at(&l, d, count, show, user);
    data_samples_free(&l.rows);
    train_dataset_close(&l.data);
    by_model_free(l.model);
    train_folder_close(&l.opened);
    if (l.folder && base_dir_remove(l.folder) != BY_OK && s == BY_OK)
        s = base_error_status();
    base_free(l.folder);
    return s;
}
