/* defaults.c - see defaults.h. */
#include "train/defaults.h"

#include <math.h>

#include "banyan/finetune.h"
#include "model/adapter.h"
#include "models/models.h"

/* ---- whole specs ----------------------------------------------------------------------------- */

static by_optimizer optimizer_of(const arch_training *t)
{
    return t->optimizer && strcmp(t->optimizer, "adafactor") == 0 ? BY_ADAFACTOR : BY_ADAMW;
}

/* Negative values are chosen by by_train_run. */
by_run_spec by_run_defaults(const char *family, const char *objective, const char *init_from)
{
    by_run_spec s = {.family = family,
                     .init_from = init_from,
                     .shape = {.preset = "tiny", .dropout = init_from ? -1 : 0, .init_std = -1},
                     .eval_fraction = 0.1,
                     .objective = {.name = objective},
                     .batch = 12,
                     .batch_tokens = 2048,
                     .accumulate = 1,
                     .schedule = {.kind = BY_SCHEDULE_COSINE, .rate = -1, .min_rate = -1, .warmup = -1},
                     .optimizer = {.kind = BY_ADAMW,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .max_grad_norm = 1},
                     .seed = 1337,
                     .images = {.drop_path = init_from ? -1 : 0},
                     .eval_batches = -1,
                     .keep = 1};
    const arch_family *a = family && !init_from ? arch_find(family) : NULL;
    if (!a) {
        base_error_clear(); /* by_train_run reports the error */
        return s;
    }
    const char *name = objective ? objective : a->objective;
    if (a->pretrained == BY_TASK_SEQ2SEQ || a->recurrent)
        s.shape.dropout = -1;
    s.shape.pre_norm = a->training.pre_norm;
    s.optimizer.kind = optimizer_of(&a->training);
    if (a->training.clip > 0)
        s.optimizer.max_grad_norm = a->training.clip;
    if (a->training.no_decay)
        s.optimizer.weight_decay = 0;
    if (a->canvas)
        s.shape.dropout = -1;
    if (a->pictures) { /* as DeiT (Touvron et al. 2021) */
        s.shape.dropout = -1;
        s.batch = 0;
        s.optimizer.beta2 = 0.999;
        s.optimizer.weight_decay = 0.05;
    }
    if (name && strcmp(name, "translate") == 0) {
        s.label_smoothing = 0.1;
        s.optimizer.beta2 = 0.98;
        s.optimizer.weight_decay = 1e-4;
    }
    return s;
}

by_finetune_spec by_finetune_defaults(void)
{
    return (by_finetune_spec){.dropout = -1,
                              .images = {.drop_path = -1},
                              .work = {.longest_answer = 30, .batch = 32},
                              .seq2seq = {.batch_tokens = 4096, .eval_texts = 200},
                              .accumulate = 1,
                              .schedule = {.kind = BY_SCHEDULE_LINEAR, .rate = -1, .warmup = -1},
                              .warmup_share = 0.1,
                              .optimizer = {.kind = BY_ADAMW,
                                            .beta1 = 0.9,
                                            .beta2 = 0.999,
                                            .eps = 1e-8,
                                            .weight_decay = 0.01,
                                            .max_grad_norm = 1},
                              .layer_decay = 1,
                              .seed = 1337,
                              .keep = 1};
}

by_run_spec train_tuning_run(const by_finetune_spec *s)
{
    return (by_run_spec){TRAIN_SPEC_SHARED(s),
                         .init_from = s->model,
                         .adapter = s->adapter,
                         .lora = s->lora,
                         .weights = s->weights,
                         .shape = {.dropout = s->dropout},
                         .data = &s->data,
                         .data_count = 1,
                         .eval_data = &s->eval_data,
                         .eval_count = s->eval_data != NULL,
                         .warmup_share = s->warmup_share > 0 ? s->warmup_share : -1,
                         .leaves_model = true};
}

by_finetune_result train_tuning_result(const by_run_result *r)
{
    return (by_finetune_result){.steps = r->steps,
                                .resumed_from = r->resumed_from,
                                .parameters = r->parameters,
                                .trained = r->trained,
                                .best_step = r->best_step,
                                .loss = r->loss,
                                .seconds = r->seconds,
                                .activation_bytes = r->activation_bytes,
                                .state_bytes = r->state_bytes,
                                .stopped_early = r->stopped_early,
                                .best = {.loss = r->best_eval_loss, .score = -r->best_eval_loss}};
}

/* ---- values by data and width ---------------------------------------------------------------- */

static double within(double x, double least, double most)
{
    return BY_MAX(least, BY_MIN(x, most));
}

/* About ten epochs of the 29,000 pairs of Multi30k, two of a megabyte of characters. A model memorises a text
 * that it sees more than twenty times. */
double train_default_epochs(data_objective_kind kind, double epoch_steps)
{
    const bool pairs = kind == DATA_OBJECTIVE_TRANSLATE;
    const double enough = pairs ? 3000 : 2000, most = 100000;
    const double epochs = within(enough / epoch_steps, pairs ? 3 : 1, 20);
    return BY_MAX(BY_MIN(epochs, most / epoch_steps), 1);
}

/* Three epochs, or up to twenty if that makes fewer than 200 steps (Mosbach et al. 2021). */
double train_default_tuning_epochs(double epoch_steps)
{
    return within(200 / epoch_steps, 3, 20);
}

/* At most 32, with at least eight steps per epoch from 32 rows on. */
int train_default_tuning_batch(int64_t rows)
{
    return (int)within((double)(rows / 8), 4, 32);
}

/* Narrower models tolerate higher rates: 3e-3 at 128, 5e-4 at 768, 2.4e-4 at 1600. Post-norm encoders train
 * better on masked tokens with a third of that; translation tolerates more: 2e-3 at 256. */
double train_default_rate(data_objective_kind kind, by_optimizer optimizer, int width)
{
    if (optimizer == BY_ADAFACTOR)
        return 0.03; /* relative to the size of each parameter */
    if (kind == DATA_OBJECTIVE_TRANSLATE)
        return BY_MIN(0.512 / width, 2e-3);
    const double rate = BY_MIN(0.384 / width, 3e-3);
    const bool next =
        kind == DATA_OBJECTIVE_LM || kind == DATA_OBJECTIVE_FIM || kind == DATA_OBJECTIVE_PIXELS;
    return next ? rate : rate / 3;
}

/* At width 128, 3e-5 does not get beyond predicting the most frequent label in twenty epochs of 400 rows;
 * 1.8e-4 does. */
double train_default_tuning_rate(int width)
{
    return BY_MIN(3e-5 * BY_MAX(768.0 / width, 1), 3e-4);
}

double train_default_adapter_factor(const by_model *m)
{
    const by_adapter *a = by_model_adapter(m);
    return !a ? 1 : a->config.ia3 || a->config.prefix ? 100 : 10;
}

int64_t train_default_warmup(data_objective_kind kind, int64_t steps)
{
    return kind == DATA_OBJECTIVE_TRANSLATE ? BY_MIN(4000, steps / 6) : BY_MIN(100, steps / 10);
}

double train_default_dropout(int64_t pairs)
{
    return pairs < 100000 ? 0.2 : 0.1;
}

/* A row costs about three times as much with gradients as without. */
int64_t train_default_eval_steps(int64_t epoch_steps, int64_t eval_rows, int64_t step_rows)
{
    return BY_MAX(epoch_steps, (eval_rows + 3 * step_rows - 1) / (3 * step_rows));
}

int64_t train_default_eval_batches(int64_t batches, int64_t steps_between, int accumulate)
{
    return BY_MIN(batches, BY_MAX(16, steps_between * accumulate));
}

by_status train_check_weights(by_dtype weights, bool trains_other, const char *model)
{
    return !weights || trains_other || !model || model_adapter_is_folder(model)
               ? BY_OK
               : base_fail(BY_ERR_UNSUPPORTED,
                           "weights of type %s cannot be trained: train an adapter, or freeze layers",
                           by_dtype_name(weights));
}
