/* run_record.c - the facts that a pretraining run records in run.json, and the shape requested by its spec
 * (run.h). */
#include <math.h>

#include "model/model.h"
#include "train/defaults.h"
#include "train/pixel_data.h"
#include "train/run.h"

static const char *const schedules[] = {"constant", "linear", "cosine", "inverse-sqrt"};
static const char *const optimizers[] = {"adamw", "sgd", "adafactor"};

by_model_shape train_run_shape(const train_run *r)
{
    by_model_shape shape = r->spec.shape;
    if (r->data.kind == DATA_OBJECTIVE_TRANSLATE && shape.dropout < 0)
        shape.dropout = train_default_dropout(r->data.train_part.count);
    if (r->data.tokenizer) {
        shape.vocab = by_tokenizer_vocab_size(r->data.tokenizer);
        shape.target_vocab = by_tokenizer_target_vocab_size(r->data.tokenizer);
    }
    if (r->data.processor)
        train_pixels_shape(&r->data, &shape);
    if (r->spec.objective.language_count > 1)
        shape.languages = r->spec.objective.language_count;
    return shape;
}

/* Decoders need no padding. */
void train_run_tokens(const train_dataset *d, by_model *m)
{
    const by_tokenizer *t = d->tokenizer;
    if (!t)
        return;
    const int pad = by_tokenizer_special(t, BY_SPECIAL_PAD);
    by_model_set_eos(m, by_tokenizer_eos(t));
    if (d->kind != DATA_OBJECTIVE_LM && pad >= 0)
        by_model_set_pad(m, pad);
    if (by_tokenizer_special(t, BY_SPECIAL_SEP) >= 0)
        arch_config_set(m->arch, m->config, ARCH_ROLE_SEPARATOR, by_tokenizer_special(t, BY_SPECIAL_SEP));
    if (by_model_task(m) == BY_TASK_SEQ2SEQ)
        by_model_set_start(m, m->arch->starts_with_eos ? by_tokenizer_eos(t) : pad);
}

static void record_origin(const train_run *r, train_record *out)
{
    const by_run_spec *s = &r->spec;
    train_record_text(out, "banyan", by_version(), TRAIN_FREE);
    train_record_text(out, "command", s->command, TRAIN_FREE);
    train_record_text(out, "recipe", s->recipe, TRAIN_FREE);
    train_record_text(out, "device", by_device_description(r->device), TRAIN_FREE);
    train_record_number(out, "parameters", (double)by_params_elements(by_model_params(r->model)), TRAIN_FREE);
    train_record_number(out, "first_steps", (double)r->loop.first_steps, TRAIN_FREE);
    train_record_number(out, "eval_batches", (double)s->eval_batches, TRAIN_FREE);
    train_record_number(out, "train_tokens", (double)r->data.train_tokens, TRAIN_FREE);
    train_record_number(out, "eval_tokens", (double)r->data.eval_tokens, TRAIN_FREE);
    if (isfinite(r->data.entropy))
        train_record_number(out, "unigram_entropy", r->data.entropy, TRAIN_FREE);
    out->data = s->data;
    out->data_count = s->data_count;
}

static void record_names(const train_run *r, train_record *out)
{
    const by_run_spec *s = &r->spec;
    train_record_text(out, "family", s->init_from ? by_model_family(r->model) : s->family, TRAIN_SAME);
    train_record_text(out, "dtype", train_record_dtype(s->dtype, s->stochastic_rounding), TRAIN_SAME);
    train_record_adapter(out, s->adapter, s->lora);
    train_record_text(out, "weights", s->weights ? by_dtype_name(s->weights) : NULL, TRAIN_SAME);
    train_record_text(out, "tokenizer", s->tokenizer ? s->tokenizer : "char", TRAIN_PATH);
    train_record_text(out, "target_tokenizer", s->target_tokenizer, TRAIN_PATH);
    train_record_text(out, "optimizer", optimizers[s->optimizer.kind], TRAIN_SAME);
    train_record_text(out, "schedule", schedules[s->schedule.kind], TRAIN_SAME);
    train_record_text(out, "objective", data_objective_name(r->data.kind), TRAIN_SAME);
    out->facts[out->count - 1].absent = "lm";
    train_record_text(out, "languages", r->languages, TRAIN_SAME);
}

static void record_pattern(const by_model *m, train_record *out)
{
    const arch_role role = arch_has(m->arch, ARCH_ROLE_SCORE)    ? ARCH_ROLE_SCORE
                           : arch_has(m->arch, ARCH_ROLE_BLOCKS) ? ARCH_ROLE_BLOCKS
                                                                 : ARCH_ROLE_PATTERN;
    train_record_text(out, "attention", arch_config_choice(m->arch, m->config, role), TRAIN_SAME);
    train_record_text(out, "cell", arch_config_choice(m->arch, m->config, ARCH_ROLE_CELL), TRAIN_SAME);
    train_record_text(out, "distribution", arch_config_choice(m->arch, m->config, ARCH_ROLE_DISTRIBUTION),
                      TRAIN_SAME);
    train_record_text(out, "coordinates", arch_config_choice(m->arch, m->config, ARCH_ROLE_COORDINATES),
                      TRAIN_SAME);
    train_record_text(out, "attention_mode", arch_config_choice(m->arch, m->config, ARCH_ROLE_SHARING),
                      TRAIN_SAME);
}

/* A run may be extended; fewer steps are allowed if the schedule does not depend on their number. */
static train_rule steps_rule(const train_run *r)
{
    const by_schedule kind = r->spec.schedule.kind;
    const bool fixed = kind == BY_SCHEDULE_CONSTANT || kind == BY_SCHEDULE_INVERSE_SQRT;
    return r->loop.longer || (fixed && !(r->spec.scheduled_sampling > 0)) ? TRAIN_FREE : TRAIN_SAME;
}

static double role(const by_model *m, arch_role wanted)
{
    return arch_config_get(m->arch, m->config, wanted);
}

double train_asked_rate(const by_run_spec *s, const by_model *m, arch_role wanted, double asked)
{
    const double p = s->init_from && asked >= 0 && arch_has(m->arch, wanted) ? asked : role(m, wanted);
    return round(p * 1e6) / 1e6; /* a float */
}

typedef struct number {
    const char *key;
    double value;
    train_rule rule;
} number;

static void record_all(train_record *out, const number *list, int count)
{
    for (int i = 0; i < count; i++)
        train_record_number(out, list[i].key, list[i].value, list[i].rule);
}

static void record_steps(const train_run *r, const by_model *m, train_record *out)
{
    const by_run_spec *s = &r->spec;
    const number list[] = {
        {"layers", by_model_layers(m), TRAIN_SAME},
        {"heads", by_model_heads(m), TRAIN_SAME},
        {"width", by_model_width(m), TRAIN_SAME},
        {"context", by_model_context(m), TRAIN_SAME},
        {"vocab", by_model_vocab(m), TRAIN_SAME},
        {"inner", role(m, ARCH_ROLE_INNER), TRAIN_SAME},
        {"dropout", train_asked_rate(s, m, ARCH_ROLE_DROPOUT, s->shape.dropout), TRAIN_SAME},
        {"init_std", BY_MAX(s->shape.init_std, 0), TRAIN_YOUNGER},
        {"batch", s->batch, TRAIN_SAME},
        {"seq", s->seq, TRAIN_SAME},
        {"accumulate", s->accumulate, TRAIN_SAME},
        {"steps", (double)s->steps, steps_rule(r)},
        {"seed", (double)s->seed, TRAIN_SAME},
        {"learning_rate", s->schedule.rate, TRAIN_SAME},
        {"min_learning_rate", s->schedule.min_rate, TRAIN_SAME},
        {"warmup_steps", (double)s->schedule.warmup, TRAIN_SAME},
        {"momentum", s->optimizer.momentum, TRAIN_SAME},
        {"eval_fraction", s->eval_fraction, TRAIN_SAME},
        {"data_fingerprint", (double)(r->data.fingerprint >> 12), TRAIN_SAME},
    };
    record_all(out, list, BY_COUNT(list));
}

/* Settings of the objective, which older records lack. */
static void record_objective(const train_run *r, train_record *out)
{
    const by_run_spec *s = &r->spec;
    const bool masks = data_objective_masks(r->data.kind), denoises = data_objective_denoises(r->data.kind),
               fim = r->data.kind == DATA_OBJECTIVE_FIM, plm = r->data.kind == DATA_OBJECTIVE_PLM;
    const data_masking mask = train_masking_choose(s, r->data.kind);
    const number list[] = {
        {"mask_share", masks || denoises || fim || plm ? mask.share : 0, TRAIN_YOUNGER},
        {"mask_span", denoises ? mask.span : 0, TRAIN_YOUNGER},
        {"permuted_block", plm ? s->objective.block : 0, TRAIN_YOUNGER},
        {"reuse", plm ? s->objective.reuse : 0, TRAIN_YOUNGER},
        {"one_way", plm && s->objective.one_way, TRAIN_YOUNGER},
        {"suffix_first", fim && s->objective.suffix_first, TRAIN_YOUNGER},
        {"mask_copies", mask.copies, TRAIN_YOUNGER},
        {"mask_words", mask.longest, TRAIN_YOUNGER},
        {"whole_words", mask.whole_words, TRAIN_YOUNGER},
    };
    record_all(out, list, BY_COUNT(list));
}

/* Fields of some families, and settings that older records lack. */
static void record_shape(const train_run *r, const by_model *m, train_record *out)
{
    const by_run_spec *s = &r->spec;
    const number list[] = {
        {"decoder_layers", role(m, ARCH_ROLE_DECODER_LAYERS), TRAIN_YOUNGER},
        {"pre_norm", role(m, ARCH_ROLE_PRE_NORM), TRAIN_YOUNGER},
        {"kv_heads", role(m, ARCH_ROLE_KV_HEADS), TRAIN_YOUNGER},
        {"memory", by_model_memory(m), TRAIN_YOUNGER},
        {"stride", role(m, ARCH_ROLE_STRIDE), TRAIN_YOUNGER},
        {"summary", role(m, ARCH_ROLE_SUMMARY), TRAIN_YOUNGER},
        {"channels", role(m, ARCH_ROLE_CHANNELS), TRAIN_YOUNGER},
        {"query_block", role(m, ARCH_ROLE_BLOCK), TRAIN_YOUNGER},
        {"local_memory", role(m, ARCH_ROLE_LOCAL_MEMORY), TRAIN_YOUNGER},
        {"query_block_rows", role(m, ARCH_ROLE_BLOCK_ROWS), TRAIN_YOUNGER},
        {"query_block_columns", role(m, ARCH_ROLE_BLOCK_COLUMNS), TRAIN_YOUNGER},
        {"local_memory_rows", role(m, ARCH_ROLE_LOCAL_MEMORY_ROWS), TRAIN_YOUNGER},
        {"local_memory_columns", role(m, ARCH_ROLE_LOCAL_MEMORY_COLUMNS), TRAIN_YOUNGER},
        {"mixtures", role(m, ARCH_ROLE_MIXTURES), TRAIN_YOUNGER},
        {"upscale", role(m, ARCH_ROLE_UPSCALE), TRAIN_YOUNGER},
        {"colours", s->images.colours, TRAIN_YOUNGER},
        {"hash_rounds", by_model_hash_rounds(m), TRAIN_YOUNGER},
        {"label_smoothing", s->label_smoothing, TRAIN_YOUNGER},
        {"scheduled_sampling", s->scheduled_sampling, TRAIN_YOUNGER},
        {"batch_tokens", s->batch_tokens, TRAIN_YOUNGER},
    };
    record_all(out, list, BY_COUNT(list));
    train_record_optimizer(out, &s->optimizer);
}

/* A resumed run already has a model, so the requested shape is taken from a model without values. */
by_status train_run_record(void *self, train_record *out)
{
    const train_run *r = self;
    by_model *asked = NULL;
    if (r->loop.last && !r->spec.init_from) {
        by_model_shape shape = train_run_shape(r);
        asked = by_model_new(r->device, r->spec.family, &shape,
                             &(by_model_spec){.blank = true, .task = data_objective_task(r->data.kind)});
        if (!asked)
            return base_error_status();
        train_run_tokens(&r->data, asked);
    }
    record_origin(r, out);
    record_names(r, out);
    record_pattern(asked ? asked : r->model, out);
    record_steps(r, asked ? asked : r->model, out);
    record_objective(r, out);
    record_shape(r, asked ? asked : r->model, out);
    train_lesson_record(r->lesson, out);
    by_model_free(asked);
    return BY_OK;
}
