/* picture_record.c - the settings of a run on pictures in run.json (see picture_run.h). */
#include <math.h>

#include "model/model.h"
#include "train/picture_run.h"
#include "train/run.h"

static void record_texts(const train_picture_run *r, train_record *out)
{
    static const char *const schedules[] = {"constant", "linear", "cosine", "inverse-sqrt"};
    static const char *const optimizers[] = {"adamw", "sgd", "adafactor"};
    const by_run_spec *s = &r->spec;
    train_record_text(out, "banyan", by_version(), TRAIN_FREE);
    train_record_text(out, "command", s->command, TRAIN_FREE);
    train_record_text(out, "recipe", s->recipe, TRAIN_FREE);
    train_record_text(out, "device", by_device_description(r->device), TRAIN_FREE);
    train_record_text(out, "family", by_model_family(r->model), TRAIN_SAME);
    train_record_text(out, "class", by_model_class(r->model), TRAIN_SAME);
    train_record_text(out, "model", s->init_from, TRAIN_FREE);
    train_record_text(out, "dtype", train_record_dtype(s->dtype, s->stochastic_rounding), TRAIN_SAME);
    train_record_text(out, "optimizer", optimizers[s->optimizer.kind], TRAIN_SAME);
    train_record_text(out, "schedule", schedules[s->schedule.kind], TRAIN_SAME);
    train_record_adapter(out, s->adapter, s->lora);
    train_record_text(out, "teacher", s->images.teacher, TRAIN_SAME);
    train_record_text(out, "distillation",
                      !s->images.teacher       ? NULL
                      : s->images.soft_teacher ? "soft"
                                               : "hard",
                      TRAIN_SAME);
    train_record_text(out, "weights", s->weights ? by_dtype_name(s->weights) : NULL, TRAIN_SAME);
    train_record_text(out, "freeze", r->tuning ? r->tuning->freeze : NULL, TRAIN_SAME);
    out->data = s->data;
    out->data_count = s->data_count;
}

static void record_augment(const by_augment *a, train_record *out)
{
    const struct {
        const char *key;
        double value;
    } all[] = {{"crop_scale_min", a->crop_scale[0]},
               {"crop_scale_max", a->crop_scale[1]},
               {"crop_padding", a->crop_padding},
               {"flip", a->flip},
               {"randaugment_layers", a->layers},
               {"randaugment_magnitude", a->magnitude},
               {"randaugment_std", isinf(a->magnitude_std) ? -1 : a->magnitude_std},
               {"randaugment_probability", a->probability},
               {"randaugment_increasing", a->increasing},
               {"brightness", a->brightness},
               {"contrast", a->contrast},
               {"saturation", a->saturation},
               {"hue", a->hue},
               {"erase", a->erase},
               {"mixup", a->mixup},
               {"cutmix", a->cutmix}};
    for (int i = 0; i < BY_COUNT(all); i++)
        train_record_number(out, all[i].key, all[i].value, TRAIN_SAME);
}

static void record_numbers(const train_picture_run *r, const by_model *m, train_record *out)
{
    const by_run_spec *s = &r->spec;
    by_pictures reads;
    by_model_pictures(m, &reads);
    const struct {
        const char *key;
        double value;
        train_rule rule;
    } all[] = {
        {"parameters", (double)by_params_elements(by_model_params(r->model)), TRAIN_FREE},
        {"first_steps", (double)r->loop.first_steps, TRAIN_FREE},
        {"layers", by_model_layers(m), TRAIN_SAME},
        {"heads", by_model_heads(m), TRAIN_SAME},
        {"width", by_model_width(m), TRAIN_SAME},
        {"inner", arch_config_get(m->arch, m->config, ARCH_ROLE_INNER), TRAIN_SAME},
        {"dropout", train_asked_rate(s, m, ARCH_ROLE_DROPOUT, s->shape.dropout), TRAIN_SAME},
        {"init_std", BY_MAX(s->shape.init_std, 0), TRAIN_YOUNGER},
        {"drop_path", train_asked_rate(s, m, ARCH_ROLE_DROP_PATH, s->images.drop_path), TRAIN_SAME},
        {"patch", reads.patch, TRAIN_SAME},
        {"channels", reads.channels, TRAIN_SAME},
        {"classes", by_model_labels(m), TRAIN_SAME},
        {"caption_length", r->length, TRAIN_SAME},
        {"vocab", r->tokenizer ? by_model_vocab(m) : 0, TRAIN_SAME},
        {"image_height", r->source.height, TRAIN_SAME},
        {"image_width", r->source.width, TRAIN_SAME},
        {"batch", s->batch, TRAIN_SAME},
        {"accumulate", s->accumulate, TRAIN_SAME},
        {"steps", (double)s->steps, r->loop.longer ? TRAIN_FREE : TRAIN_SAME},
        {"seed", (double)s->seed, TRAIN_SAME},
        {"learning_rate", s->schedule.rate, TRAIN_SAME},
        {"min_learning_rate", s->schedule.min_rate, TRAIN_SAME},
        {"warmup_steps", (double)s->schedule.warmup, TRAIN_SAME},
        {"momentum", s->optimizer.momentum, TRAIN_SAME},
        {"layer_decay", r->tuning && r->tuning->layer_decay > 0 ? r->tuning->layer_decay : 1, TRAIN_SAME},
        {"label_smoothing", s->label_smoothing, TRAIN_SAME},
        {"average_decay", s->images.average, TRAIN_SAME},
        {"eval_fraction", s->eval_fraction, TRAIN_SAME},
        {"train_pictures", (double)r->train.count, TRAIN_SAME},
        {"eval_pictures", (double)r->held.count, TRAIN_SAME},
        {"data_fingerprint", (double)(by_picture_set_fingerprint(r->set) >> 12), TRAIN_SAME},
    };
    for (int i = 0; i < BY_COUNT(all); i++)
        train_record_number(out, all[i].key, all[i].value, all[i].rule);
    train_record_optimizer(out, &s->optimizer);
}

/* Records without the decoder use the family's first decoder. */
static void record_decoder(const by_model *m, train_record *out)
{
    train_record_text(out, "decoder", m->arch->text_type, TRAIN_SAME);
    out->facts[out->count - 1].absent = arch_find(m->arch->family)->text_type;
}

/* A resumed run already has a model. The shape to compare is that of an unallocated model for the spec. */
by_status train_picture_record(void *self, train_record *out)
{
    const train_picture_run *r = self;
    by_model *asked = NULL;
    if (r->loop.last && !r->spec.init_from) {
        by_model_shape shape;
        BY_TRY(train_picture_shape(r, &shape));
        asked = by_model_new(r->device, r->spec.family, &shape,
                             &(by_model_spec){.blank = true,
                                              .task = r->task,
                                              .problem = r->task == BY_TASK_CLASSIFY ? BY_PROBLEM_ONE_LABEL
                                                                                     : BY_PROBLEM_DEFAULT,
                                              .labels = by_picture_set_classes(r->set)});
        if (!asked)
            return base_error_status();
    }
    record_texts(r, out);
    record_decoder(asked ? asked : r->model, out);
    record_numbers(r, asked ? asked : r->model, out);
    record_augment(&r->spec.images.augment, out);
    by_model_free(asked);
    return BY_OK;
}
