/* tuning_preview.c - the first rows of a run, as the model gets them (tuning_data.h). */
#include "align/methods.h"
#include "align/tuning_data.h"

static const char *kind_of(const data_instructions *x, int row)
{
    const bool good = x->spec.kind == DATA_TUNING || x->list[row].good;
    return x->spec.kind == DATA_TUNING        ? NULL
           : x->spec.kind == DATA_PREFERENCES ? (good ? "chosen" : "rejected")
                                              : (good ? "good" : "bad");
}

static by_status show_rows(const align_source *source, const data_instructions *x, int count,
                           by_status (*show)(void *user, const align_shown *row), void *user)
{
    const data_rows *rows = &x->rows;
    for (int i = 0; i < BY_MIN(rows->count, count * rows->spec.together); i++) {
        const size_t first = rows->list[i].first;
        BY_TRY(show(user, &(align_shown){.number = i,
                                         .kind = kind_of(x, i),
                                         .tokenizer = source->tokenizer,
                                         .tokens = rows->tokens.data + first,
                                         .positions = x->row_positions + first,
                                         .learned = x->row_learned + first,
                                         .count = rows->list[i].count}));
    }
    return BY_OK;
}

by_status align_preview(by_device *d, const by_align_spec *s, int count,
                        by_status (*show)(void *user, const align_shown *row), void *user, base_buf *about)
{
    align_source source = {0};
    align_part train = {0}, eval = {0};
    by_model_spec spec = {.dtype = s->dtype};
    by_model *m = NULL;
    if (align_is_policy(s->method))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s has no examples to show, because it samples its answers in training",
                         by_align_name(s->method));
    by_status status = align_source_open(&source, s);
    if (status == BY_OK)
        status = align_choose_head(d, s, &spec);
    if (status == BY_OK && !(m = by_model_open(d, s->model, &spec)))
        status = base_error_status();
    if (status == BY_OK)
        status = align_source_read(&source, s, m, &train, &eval);
    if (status == BY_OK)
        status = show_rows(&source, &train.list, count, show, user);
    if (status == BY_OK)
        data_instructions_describe(&train.list, about);
    align_part_close(&train);
    align_part_close(&eval);
    by_model_free(m);
    align_source_close(&source);
    return status;
}
