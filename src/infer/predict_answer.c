/* predict_answer.c - extractive question answering (banyan/predict.h). */
#include <math.h>

#include "data/spans.h"
#include "infer/predict.h"

typedef struct answering {
    data_best *best; /* by question */
    int longest;
    data_answer_inputs inputs;
} answering;

static by_status prepare(void *user, by_batch *b, const data_rows *rows, const int *list, int count)
{
    answering *a = user;
    return data_answer_inputs_put(&a->inputs, rows, list, count, b);
}

static by_status take_beam(answering *a, by_predictor *p, const gen_predicted *b, const by_tensor *beam)
{
    const int starts = (int)by_dim(beam, 1), width = (int)by_dim(beam, 2);
    float *values;
    BY_TRY(gen_predict_read(p, b->pass, beam, 1, &values));
    BY_TRY(by_pass_finite(p->model, values, (size_t)b->count * (size_t)(starts * width)));
    for (int i = 0; i < b->count; i++)
        data_best_look_beam(&a->best[b->rows->list[b->list[i]].example], b->rows, b->list[i],
                            values + (size_t)i * (size_t)(starts * width), starts, width,
                            data_rows_start(b->rows, b->list[i], b->batch->seq), a->longest);
    return BY_OK;
}

static by_status take(void *user, by_predictor *p, const gen_predicted *b)
{
    answering *a = user;
    float *starts, *ends;
    by_tensor *second = by_io_output(b->io, "second");
    if (by_rank(second) == 3)
        return take_beam(a, p, b, second);
    BY_TRY(gen_predict_read(p, b->pass, by_io_output(b->io, "logits"), 0, &starts));
    BY_TRY(gen_predict_read(p, b->pass, second, 1, &ends));
    for (int i = 0; i < b->count; i++) {
        const data_row *row = &b->rows->list[b->list[i]];
        const int seq = b->batch->seq, first = data_rows_start(b->rows, b->list[i], seq);
        const size_t at = (size_t)i * (size_t)seq + (size_t)first;
        BY_TRY(by_pass_finite(p->model, starts + at, (size_t)row->count));
        BY_TRY(by_pass_finite(p->model, ends + at, (size_t)row->count));
        data_best_look(&a->best[row->example], b->rows, b->list[i], starts + at, ends + at, a->longest);
    }
    return BY_OK;
}

by_status by_predictor_answer(by_predictor *p, const char *const *questions, const char *const *texts,
                              int count, const by_answer_spec *spec, by_answer_found *out)
{
    static const gen_predict_calls calls = {prepare, take};
    if (!p || !spec || (count > 0 && (!questions || !texts || !out)))
        return base_fail_missing(!p           ? "predictor"
                                 : !spec      ? "by_answer_spec"
                                 : !questions ? "question"
                                 : !texts     ? "text"
                                              : "array of answers");
    BY_TRY(gen_predict_check(p->model, BY_TASK_ANSWER));
    data_rows_spec reading = {
        .offsets = true, .windows = true, .overlap = spec->overlap ? BY_MAX(spec->overlap, 0) : 128};
    answering a = {.longest = spec->longest > 0 ? spec->longest : 30,
                   .best = base_alloc_zero((size_t)BY_MAX(count, 1), sizeof *a.best)};
    data_rows rows = {0};
    by_status s = a.best ? gen_predict_rows(p, &reading, questions, texts, count, &rows) : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < count; i++)
        a.best[i] = data_best_none();
    if (s == BY_OK)
        s = gen_predict_run(p, &rows, &calls, &a);
    for (int i = 0; s == BY_OK && i < count; i++) {
        const data_best *b = &a.best[i];
        bool none =
            b->score == -INFINITY || (spec->may_have_none && data_best_margin(b) > spec->null_threshold);
        out[i] =
            (by_answer_found){.found = !none, .at = {b->start, b->end}, .score = b->score, .none = b->none};
    }
    data_rows_free(&rows);
    base_free(a.best);
    base_free(a.inputs.cells);
    return s;
}
