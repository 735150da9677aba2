/* objective_choice.c - the objective of a run, and its rows (dataset.h). */
#include "base/file.h"
#include "model/model.h"
#include "base/json.h"
#include "train/pixel_data.h"

by_status train_objective_choose(const by_run_spec *spec, data_objective_kind *out)
{
    const by_objective_choice *c = &spec->objective;
    const arch_family *a = spec->init_from ? model_family_of(spec->init_from, NULL) : arch_find(spec->family);
    if (!a)
        return base_error_status();
    const char *name = c->name ? c->name : c->parallel ? "tlm" : a->objective ? a->objective : "lm";
    if (!data_objective_find(name, out))
        return base_error_status();
    if (c->parallel && *out != DATA_OBJECTIVE_TLM)
        return base_fail(BY_ERR_ARGUMENT, "parallel text is for the objective \"tlm\", not \"%s\"", name);
    if (c->language_count &&
        (*out == DATA_OBJECTIVE_LM || *out == DATA_OBJECTIVE_NSP || *out == DATA_OBJECTIVE_SOP))
        return base_fail(BY_ERR_ARGUMENT, "the objective \"%s\" has no languages", name);
    if ((c->block || c->reuse || c->one_way) && *out != DATA_OBJECTIVE_PLM)
        return base_fail(
            BY_ERR_ARGUMENT,
            "permuted blocks, reused tokens and one-way reading are for the objective \"plm\", not \"%s\"",
            name);
    if ((*out == DATA_OBJECTIVE_PIXELS) != (a->canvas != NULL))
        return base_fail(BY_ERR_ARGUMENT,
                         a->canvas ? "%s learns pixels; the objective \"%s\" is for text"
                                   : "%s is not a pixel model, which the objective \"%s\" requires",
                         a->title, name);
    if (!a->classes[data_objective_task(*out)] && !c->name && !a->objective)
        return base_fail(BY_ERR_UNSUPPORTED, "%s has no objective of its own and is not trained on text",
                         a->title);
    if (!a->classes[data_objective_task(*out)])
        return base_fail(BY_ERR_UNSUPPORTED, "%s has no head for the objective \"%s\"; its own is \"%s\"",
                         a->title, name, a->objective ? a->objective : "lm");
    return BY_OK;
}

data_masking train_masking_choose(const by_run_spec *spec, data_objective_kind kind)
{
    const by_objective_choice *c = &spec->objective;
    data_masking m = data_masking_usual(kind);
    const bool cuts = data_objective_denoises(kind) || kind == DATA_OBJECTIVE_FIM;
    const bool permutes = kind == DATA_OBJECTIVE_PLM;
    if (!data_objective_masks(kind) && !cuts && !permutes)
        return (data_masking){.share = m.share};
    if (c->mask_share > 0)
        m.share = c->mask_share;
    if (c->mask_span > 0)
        m.span = c->mask_span;
    if (permutes)
        return (data_masking){.share = m.share, .longest = c->mask_words ? c->mask_words : m.longest};
    if (cuts)
        return (data_masking){.share = m.share, .span = m.span};
    if (c->mask_copies)
        m.copies = BY_MAX(c->mask_copies, 0);
    if (c->mask_words)
        m.longest = c->mask_words;
    m.whole_words = c->whole_words;
    return m;
}

static by_status make_stream_rows(train_dataset *d, const by_run_spec *s, bool columns, bool held_too)
{
    const data_lm_batches train = {d->train, d->train_begin, d->train_end, s->batch * s->accumulate,
                                   s->seq,   s->seed,        columns};
    const data_lm_batches held = {d->eval, d->eval_begin, d->eval_end, s->batch, s->seq, s->seed, columns};
    BY_TRY(data_lm_batches_check(&train));
    held_too = held_too && d->eval;
    if (held_too && d->eval_tokens < 2)
        return base_fail(BY_ERR_ARGUMENT, "the held-out part has fewer than two tokens");
    d->rows = data_objective_new_lm(&train);
    d->eval_rows = d->rows && held_too ? data_objective_new_lm(&held) : NULL;
    return d->rows && (d->eval_rows || !held_too) ? BY_OK : base_error_status();
}

by_status train_dataset_objectives(train_dataset *d, const by_run_spec *s, const by_model *m, bool held)
{
    if (d->kind == DATA_OBJECTIVE_PIXELS)
        return train_pixels_objectives(d, s, m, held);
    if (d->kind == DATA_OBJECTIVE_LM)
        return make_stream_rows(d, s, by_model_carries(m), held);
    const int32_t no_padding = by_model_pad(m) == 0;
    data_objective_spec spec = {.kind = d->kind,
                                .seq = s->seq,
                                .step_rows = s->batch * s->accumulate,
                                .seed = s->seed,
                                .masking = train_masking_choose(s, d->kind),
                                .languages = s->objective.language_count,
                                .language_ids = arch_config_get(m->arch, m->config, ARCH_ROLE_LANGUAGES) > 1,
                                .suffix_first = s->objective.suffix_first,
                                .start = by_model_start(m),
                                .batch = s->batch,
                                .block = s->objective.block,
                                .reuse = s->objective.reuse,
                                .one_way = s->objective.one_way,
                                .follows = by_model_carries(m),
                                .budget = s->batch_tokens};
    by_model_positions(m, &no_padding, 1, 1, &spec.first_position);
    d->rows = data_objective_new(&d->train_part, d->tokenizer, &spec);
    if (!d->rows)
        return base_error_status();
    if (data_objective_task(d->kind) == BY_TASK_SEQ2SEQ && spec.start < 0)
        return base_fail(BY_ERR_FORMAT, "the model has no decoder_start_token_id");
    if (d->eval_part.count == 0 || !held)
        return BY_OK;
    spec.step_rows = s->batch;
    d->eval_rows = data_objective_new(&d->eval_part, d->tokenizer, &spec);
    return d->eval_rows ? BY_OK : base_fail_context("the held-out part, which may be too small");
}
