/* picture_teacher.h - a trained classifier whose predictions a student learns with its distillation token (DeiT; Touvron et al. 2021). */
#ifndef BY_TRAIN_PICTURE_TEACHER_H
#define BY_TRAIN_PICTURE_TEACHER_H

#include "banyan/pass.h"
#include "data/picture_set.h"

typedef struct train_teacher_spec {
    const char *dir; /* a model directory */
    bool soft;       /* its probabilities; otherwise its likeliest class */
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

/* Opens a teacher of the student's classes that reads the pictures of `set` prepared as the student's. NULL on failure. */
train_teacher *train_teacher_open(by_model *student, const by_processor *processor, const by_picture_set *set,
                                  const train_teacher_spec *spec);
void train_teacher_free(train_teacher *t); /* NULL is a no-op */
/* Adds the array "second_targets" to a batch, without its values: to compile for. */
void train_teacher_like(const train_teacher *t, by_batch *b);
/* The same with the predictions for the batch's pictures, which are valid until the next call. */
by_status train_teacher_label(train_teacher *t, by_batch *b);

#endif
