/* finetune_seq2seq.c - fine-tuning of encoder-decoders: pretraining on pairs of texts from an existing model, then the texts that the
 * best model writes are compared with their targets. */
#include <math.h>

#include "banyan/adapter.h"
#include "base/base.h"
#include "train/defaults.h"
#include "train/task_batches.h"

static by_run_spec run_spec(const by_finetune_spec *s)
{
    by_run_spec run = train_tuning_run(s);
    run.objective = (by_objective_choice){.name = "translate",
                                          .prefixes = s->seq2seq.prefixes,
                                          .prefix_count = s->seq2seq.prefix_count,
                                          .source = s->reading.text,
                                          .target = s->reading.label,
                                          .label_words = s->seq2seq.label_words};
    run.seq = s->work.limit;
    run.batch_tokens = s->seq2seq.batch_tokens;
    if (run.schedule.rate < 0)
        run.schedule.rate = !s->adapter ? 3e-5 : s->adapter->ia3 ? 3e-3 : 3e-4;
    return run;
}

static by_status write_texts(by_device *d, const by_finetune_spec *s, by_text_result *out)
{
    const by_text_spec spec = {.metrics = "bleu,chrf,rouge,exact",
                               .prefix = s->seq2seq.prefix_count ? s->seq2seq.prefixes[0] : "",
                               .words = s->seq2seq.label_words,
                               .source = s->reading.text,
                               .target = s->reading.label,
                               .predictions = s->predictions,
                               .batch = s->work.batch,
                               .limit = s->seq2seq.eval_texts,
                               .progress = s->seq2seq.wrote,
                               .cancelled = s->cancelled,
                               .user = s->user};
    by_model *m = by_model_open(d, s->out, &(by_model_spec){.dtype = s->dtype, .weights = s->weights});
    by_tokenizer *t = m ? by_tokenizer_load(s->out) : NULL;
    by_status status = t ? by_text_evaluate(m, t, s->out, &s->eval_data, 1, &spec, out) : base_error_status();
    by_tokenizer_free(t);
    by_model_free(m);
    return status;
}

by_status train_finetune_seq2seq(by_device *d, const by_finetune_spec *spec, by_finetune_result *out)
{
    const bool writes = spec->eval_data && spec->seq2seq.eval_texts > 0;
    if (spec->freeze || spec->class_weights || (spec->layer_decay != 0 && spec->layer_decay != 1))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "the task seq2seq has no frozen layers, no layer decay and no class weights");
    if (spec->predictions && !writes)
        return base_fail(BY_ERR_ARGUMENT,
                         "predictions of the task seq2seq need evaluation data and a number of "
                         "texts to write (--eval, --eval-texts)");
    const by_run_spec run = run_spec(spec);
    by_run_result r;
    by_status s = by_train_run(d, &run, &r);
    *out = train_tuning_result(&r);
    out->evaluated = isfinite(r.best_eval_loss);
    out->best_step = out->evaluated ? r.best_step : r.steps;
    return s == BY_OK && writes ? write_texts(d, spec, &out->texts) : s;
}
