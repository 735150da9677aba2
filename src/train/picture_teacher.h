/* picture_teacher.h - a trained classifier as the teacher of a distillation token (DeiT; Touvron et al.
 * 2021). */
#ifndef BY_TRAIN_PICTURE_TEACHER_H
#define BY_TRAIN_PICTURE_TEACHER_H

#include "banyan/pass.h"
#include "data/picture_set.h"

typedef struct train_teacher_spec {
    const char *dir; /* a model directory */
    bool soft;       /* targets are its probabilities; otherwise its likeliest class */
    int batch;
    by_dtype dtype;
} train_teacher_spec;

typedef struct train_teacher {
    train_teacher_spec spec;
    by_model *model;
    by_passes *passes;
    int32_t *labels; /* (batch) */
    float *logits;   /* (batch, classes) */
} train_teacher;

/* Opens a teacher with the student's classes and an equal preprocessing of the pictures of `set`. NULL on
 * failure. */
train_teacher *train_teacher_open(by_model *student, const by_processor *processor, const by_picture_set *set,
                                  const train_teacher_spec *spec);
void train_teacher_free(train_teacher *t); /* freeing NULL is a no-op */
/* Adds the array "second_targets" to a batch without values, for compiling. */
void train_teacher_like(const train_teacher *t, by_batch *b);
/* The same with the predictions for the batch's pictures, valid until the next call. */
by_status train_teacher_label(train_teacher *t, by_batch *b);

#endif
