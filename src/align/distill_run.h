/* distill_run.h - a distillation run as a lesson of training (train/lesson.h), shared by distill_*.c. */
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
    uint64_t fingerprint;    /* hash of the teacher's configuration and weights */
    by_distill_spec terms;   /* as the loss reads them */
    by_params *projection;
    by_update *update; /* of the projection */
    by_model *student; /* borrowed */
    distill_store *store;
    int32_t *dense; /* (B, T): scattered targets of a batch with picked rows */
    size_t room;
    by_metric terms_now[BY_METRICS_MAX]; /* at the last step before an evaluation */
    by_distill_result *result;
} distill_run;

/* The kind of run: `asked` if it is not AUTO, otherwise by the head of the teacher, which was opened from
 * `dir`. */
by_distill_kind distill_kind_of(const by_model *teacher, const char *dir, by_distill_kind asked);
/* The kind of labelled examples for the head of this teacher. */
by_example_kind distill_example_kind(const by_model *teacher);

/* Opens or makes the student of a new run (distill_student.c). Fails if the student cannot learn from the
 * teacher: vocabularies, heads and the layer map are checked. */
by_status distill_student_open(const distill_run *r, const by_model_spec *spec, by_model **out);

/* Runs distillation of sentence embeddings (distill_vectors.c). */
by_status distill_vectors(distill_run *r);

/* Paths of the sources and of the teacher's translations of them, two files in out/teacher
 * (distill_translate.c). Heap strings, to be freed even on failure. */
by_status distill_translations(distill_run *r, char **source, char **target);

/* Callbacks of the lesson that every kind of run shares (distill_run.c). */
by_status distill_begin(void *user, by_model *m, const char *from);
by_status distill_update(void *user, double rate, int64_t step);
by_status distill_save(void *user, const char *dir);
void distill_record(void *user, train_record *out);
by_status distill_measure(void *user, const by_trainer *t, by_report *report);

#endif
