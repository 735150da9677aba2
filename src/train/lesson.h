/* lesson.h - hooks by which other rooms change a run: the initial model, the loss, the arrays of batches, and
 * parameters trained along with the model. Distillation uses it. Data, steps, evaluations, checkpoints and
 * logs remain those of by_train_run and by_finetune_run. */
#ifndef BY_TRAIN_LESSON_H
#define BY_TRAIN_LESSON_H

#include "banyan/finetune.h"
#include "train/record.h"

/* Members may be NULL, except open and loss. */
typedef struct train_lesson {
    void *user;
    const char *title; /* of loss.svg */
    /* Creates the model of a new run, with the task, labels, types and buffers of spec. */
    by_status (*open)(void *user, by_device *d, const by_model_spec *spec, by_model **out);
    /* Called when the model exists. from: the checkpoint to resume from, or NULL. */
    by_status (*begin)(void *user, by_model *m, const char *from);
    by_loss_fn loss; /* training loss; evaluations use the model's own */
    void *loss_user;
    bool hidden, scores; /* outputs that it reads */
    int segments;        /* that a teacher tells apart: see data_rows_spec */
    /* Changes the arrays of a batch. compiles: only their shapes matter. */
    by_status (*prepare)(void *user, by_batch *b, bool compiles);
    /* called after an update; step counts from 0 */
    by_status (*update)(void *user, double rate, int64_t step);
    by_status (*save)(void *user, const char *dir); /* into a new checkpoint */
    void (*record)(void *user, train_record *out);  /* for run.json */
    /* Measures of the last step, for the report of an evaluation. */
    by_status (*measure)(void *user, const by_trainer *t, by_report *r);
} train_lesson;

/* by_train_run and by_finetune_run with a lesson, which may be NULL. With one, init_from or model only names
 * the directory of the tokenizer; the model there is not opened. */
by_status train_run_with(by_device *d, const by_run_spec *spec, const train_lesson *lesson,
                         by_run_result *result);
by_status train_finetune_with(by_device *d, const by_finetune_spec *spec, const train_lesson *lesson,
                              by_finetune_result *result);

static inline by_status train_lesson_prepare(const train_lesson *l, by_batch *b, bool compiles)
{
    return l && l->prepare ? l->prepare(l->user, b, compiles) : BY_OK;
}
static inline by_status train_lesson_begin(const train_lesson *l, by_model *m, const char *from)
{
    return l && l->begin ? l->begin(l->user, m, from) : BY_OK;
}
static inline by_status train_lesson_update(const train_lesson *l, double rate, int64_t step)
{
    return l && l->update ? l->update(l->user, rate, step) : BY_OK;
}
static inline by_status train_lesson_save(const train_lesson *l, const char *dir)
{
    return l && l->save ? l->save(l->user, dir) : BY_OK;
}
static inline by_status train_lesson_measure(const train_lesson *l, const by_trainer *t, by_report *r)
{
    return l && l->measure ? l->measure(l->user, t, r) : BY_OK;
}
static inline void train_lesson_record(const train_lesson *l, train_record *out)
{
    if (l && l->record)
        l->record(l->user, out);
}

#endif
