/* picture_teacher.c - see picture_teacher.h. */
#include "train/picture_teacher.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "infer/picture_passes.h"
#include "infer/predict.h"

/* ---- compatibility -------------------------------------------------------------------------------- */

static by_status check_classes(const by_model *teacher, const by_model *student)
{
    const int n = by_model_labels(student);
    BY_TRY(gen_predict_check(teacher, BY_TASK_CLASSIFY));
    if (by_model_labels(teacher) != n)
        return base_fail(BY_ERR_ARGUMENT, "the teacher knows %d classes, the student %d",
                         by_model_labels(teacher), n);
    for (int i = 0; i < n; i++)
        if (strcmp(by_model_label_name(teacher, i), by_model_label_name(student, i)) != 0)
            return base_fail(BY_ERR_ARGUMENT, "class %d of the teacher is \"%s\", that of the student \"%s\"",
                             i, by_model_label_name(teacher, i), by_model_label_name(student, i));
    return BY_OK;
}

static bool near(const by_prepared *a, const by_prepared *b)
{
    const size_t n = (size_t)a->channels * (size_t)a->height * (size_t)a->width;
    if (a->ids || b->ids || a->channels != b->channels || a->height != b->height || a->width != b->width)
        return false;
    for (size_t i = 0; i < n; i++)
        if (fabsf(a->values[i] - b->values[i]) > 1e-3f)
            return false;
    return true;
}

/* Both models must see the same values: compares the first picture as preprocessed by both processors. */
static by_status check_values(const train_teacher *t, const by_processor *processor,
                              const by_picture_set *set)
{
    by_processor *own = gen_processor_open(t->model, t->spec.dir, NULL);
    by_image *m = own ? by_picture_set_get(set, 0) : NULL;
    by_prepared a = {0}, b = {0};
    by_status s = m ? by_processor_apply(processor, m, &a) : base_error_status();
    if (s == BY_OK)
        s = by_processor_apply(own, m, &b);
    if (s == BY_OK && !near(&a, &b))
        s = base_fail(
            BY_ERR_ARGUMENT,
            "the teacher preprocesses pictures differently from the student: sizes, channels, image_mean and "
            "image_std of preprocessor_config.json must agree (%d x %d pixels of %d channels, not %d x %d of "
            "%d)",
            b.width, b.height, b.channels, a.width, a.height, a.channels);
    by_prepared_free(&a);
    by_prepared_free(&b);
    by_image_free(m);
    by_processor_free(own);
    return s;
}

/* ---- opening -------------------------------------------------------------------------------------- */

static by_status open_teacher(train_teacher *t, by_model *student, const by_processor *processor,
                              const by_picture_set *set)
{
    if (by_params_find(by_model_params(student), "distillation_classifier.weight") < 0)
        return base_fail(
            BY_ERR_ARGUMENT,
            "%s has no head that learns from a teacher; DeiT's presets tiny-distilled, small-distilled "
            "and base-distilled have one",
            base_a(by_model_class(student)).text);
    t->model = by_model_open(by_model_device(student), t->spec.dir, &(by_model_spec){.dtype = t->spec.dtype});
    if (!t->model)
        return base_fail_context("the teacher");
    BY_TRY(check_classes(t->model, student));
    BY_TRY(check_values(t, processor, set));
    const size_t rows = (size_t)t->spec.batch;
    t->passes = by_passes_new(t->model, &(by_pass_spec){0}, 2);
    t->labels = base_alloc_zero(rows, sizeof *t->labels);
    t->logits = base_alloc_zero(rows * (size_t)by_model_labels(t->model), sizeof *t->logits);
    return t->passes && t->labels && t->logits ? BY_OK : base_error_status();
}

train_teacher *train_teacher_open(by_model *student, const by_processor *processor, const by_picture_set *set,
                                  const train_teacher_spec *spec)
{
    train_teacher *t = base_alloc_zero(1, sizeof *t);
    if (!t)
        return NULL;
    t->spec = *spec;
    if (open_teacher(t, student, processor, set) == BY_OK)
        return t;
    train_teacher_free(t);
    return NULL;
}

void train_teacher_free(train_teacher *t)
{
    if (!t)
        return;
    by_passes_free(t->passes);
    by_model_free(t->model);
    base_free(t->labels);
    base_free(t->logits);
    base_free(t);
}

/* ---- teaching ------------------------------------------------------------------------------------- */

void train_teacher_like(const train_teacher *t, by_batch *b)
{
    if (t->spec.soft)
        by_batch_put(b, "second_targets", BY_F32, 2, (int64_t[]){b->batch, by_model_labels(t->model)},
                     t->logits);
    else
        by_batch_put_ids(b, "second_targets", b->batch, t->labels);
}

by_status train_teacher_label(train_teacher *t, by_batch *b)
{
    const by_array *pixels = by_batch_find(b, "pixel_values");
    const int classes = by_model_labels(t->model);
    by_batch seen =
        by_batch_of_pictures(t->model, b->batch, (int)pixels->shape[2], (int)pixels->shape[3], pixels->data);
    by_pass *p = by_passes_get(t->passes, &seen);
    if (!p)
        return base_error_status();
    BY_TRY(by_pass_run(p, &seen));
    BY_TRY(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), t->logits));
    for (int r = 0; r < b->batch; r++) {
        float *row = t->logits + (size_t)r * (size_t)classes;
        if (t->spec.soft) {
            gen_probabilities(row, classes);
        } else {
            int best;
            gen_places_top(row, classes, 1, &best);
            t->labels[r] = best;
        }
    }
    train_teacher_like(t, b);
    return BY_OK;
}
