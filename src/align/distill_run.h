/* distill_run.h - a run of distillation, as a lesson of training (train/lesson.h). For distill_*.c, and for those who ask what is learned. */
#ifndef BY_ALIGN_DISTILL_RUN_H
#define BY_ALIGN_DISTILL_RUN_H

#include "align/distill_store.h"
#include "banyan/distill.h"
#include "text/tokenizer.h"
#include "train/lesson.h"

typedef struct distill_run {
    by_device *device;
    by_distill_run_spec spec;
    by_distill_kind kind;
    by_model *teacher;
    by_tokenizer *tokenizer; /* the teacher's */
    uint64_t fingerprint;    /* of the teacher's configuration and weights */
    by_distill_spec terms;   /* as the loss reads them */
    by_params *projection;
    by_update *update; /* of the projection */
    by_model *student; /* borrowed */
    distill_store *store;
    int32_t *dense; /* (B, T): targets of a batch whose rows were picked */
    size_t room;
    by_metric terms_now[BY_METRICS_MAX]; /* of the last step before an evaluation */
    by_distill_result *result;
} distill_run;

/* What is learned from a teacher, which was opened from `dir`: what is asked for, else by its head. */
by_distill_kind distill_kind_of(const by_model *teacher, const char *dir, by_distill_kind asked);
/* The labelled examples that a teacher of BY_DISTILL_EXAMPLES learns from. */
by_example_kind distill_example_kind(const by_model *teacher);

/* Makes the student of a new run (distill_student.c). An error unless it can learn from the teacher: vocabularies, heads, layer map. */
by_status distill_student_open(const distill_run *r, const by_model_spec *spec, by_model **out);

/* The run for sentences (distill_vectors.c). */
by_status distill_vectors(distill_run *r);

/* The sources of the data and the teacher's translations of them, two files in out/teacher (distill_translate.c). Heap strings, also on
 * failure. */
by_status distill_translations(distill_run *r, char **source, char **target);

/* What the lesson says about itself and keeps, for every kind of run (distill_run.c). */
by_status distill_begin(void *user, by_model *m, const char *from);
by_status distill_update(void *user, double rate, int64_t step);
by_status distill_save(void *user, const char *dir);
void distill_record(void *user, train_record *out);
by_status distill_measure(void *user, const by_trainer *t, by_report *report);

#endif
