/* seq2seq.c - see seq2seq.h. */
#include "cli/seq2seq.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "cli/eval_texts.h"
#include "cli/report.h"
#include "cli/show.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"

static by_run_spec run_spec(const by_finetune_spec *s, const cli_seq2seq *o)
{
    return (by_run_spec){
        .init_from = s->model,
        .dtype = s->dtype,
        .stochastic_rounding = s->stochastic_rounding,
        .shape = {.dropout = s->dropout},
        .data = &s->data,
        .data_count = 1,
        .eval_data = &s->eval_data,
        .eval_count = s->eval_data != NULL,
        .objective = {.name = "translate",
                      .prefixes = o->prefixes.items,
                      .prefix_count = o->prefixes.count,
                      .source = s->reading.text,
                      .target = s->reading.label,
                      .label_words = o->words},
        .seq = s->work.limit,
        .batch_tokens = o->batch_tokens,
        .label_smoothing = o->label_smoothing,
        .accumulate = s->accumulate,
        .steps = s->steps,
        .epochs = s->epochs,
        .schedule = s->schedule,
        .optimizer = s->optimizer,
        .recompute = s->recompute,
        .seed = s->seed,
        .eval_every = s->eval_every,
        .log_every = s->log_every,
        .save_every = s->save_every,
        .keep = s->keep,
        .patience = s->patience,
        .ahead = s->ahead,
        .out = s->out,
        .overwrite = s->overwrite,
        .command = s->command,
        .options = s->options,
        .leaves_model = true,
        .report = s->report,
        .cancelled = s->cancelled,
        .user = s->user,
    };
}

/* The best model, or the last one where nothing was held out, as anyone would expect to find it. */
static by_status leave(by_device *d, const char *out, bool best)
{
    char *dir = base_path_join(out, best ? "best" : "last");
    by_model *m = dir ? by_model_open(d, dir, &(by_model_spec){0}) : NULL;
    by_tokenizer *t = m ? by_tokenizer_load(dir) : NULL;
    train_folder f = {.lock = -1};
    by_status s = t ? train_folder_open(&f, out) : base_error_status();
    if (s == BY_OK)
        s = train_checkpoint_leave(&f, m, t);
    train_folder_close(&f);
    by_tokenizer_free(t);
    by_model_free(m);
    base_free(dir);
    return s;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* What the model in spec->out makes of the evaluation set, as `banyan eval` would judge it. */
static by_status judge(by_device *d, const by_finetune_spec *s, const cli_seq2seq *o, cli_figures *out)
{
    by_model *m = by_model_open(d, s->out, &(by_model_spec){.dtype = s->dtype});
    by_tokenizer *t = m ? by_tokenizer_load(s->out) : NULL;
    const cli_list files = {.items = &(const char *){s->eval_data}, .count = 1};
    const cli_texts_options options = {.metric = "bleu,chrf,rouge,exact",
                                       .prefix = o->prefixes.count ? o->prefixes.items[0] : "",
                                       .words = o->words,
                                       .source_column = s->reading.text,
                                       .target_column = s->reading.label,
                                       .predictions = s->predictions,
                                       .batch = s->work.batch,
                                       .limit = o->eval_texts,
                                       .quiet = o->quiet};
    by_status status = t ? cli_figures_make(m, t, s->out, &files, &options, out) : base_error_status();
    by_tokenizer_free(t);
    by_model_free(m);
    return status;
}

static void print_json(const by_finetune_spec *s, const by_run_result *r, cli_figures *f)
{
    const bool judged = isfinite(r->best_eval_loss);
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "out", s->out);
    cJSON_AddNumberToObject(j, "steps", (double)r->steps);
    cJSON_AddNumberToObject(j, "resumed_from", (double)r->resumed_from);
    cJSON_AddNumberToObject(j, "parameters", (double)r->parameters);
    cli_json_number(j, "train_loss", r->loss);
    cJSON_AddNumberToObject(j, "best_step", (double)(judged ? r->best_step : r->steps));
    cJSON_AddNumberToObject(j, "seconds", r->seconds);
    if (judged)
        cJSON_AddNumberToObject(j, "loss", r->best_eval_loss);
    if (f->texts)
        cli_figures_json(f, j);
    cli_print_json(j);
}

static void print_text(const by_finetune_spec *s, const cli_seq2seq *o, const by_run_result *r,
                       cli_figures *f)
{
    if (!o->quiet)
        cli_show_curve(s->out, "nats per token", o->curve);
    printf("%lld steps in %.1f s%s", (long long)(r->steps - r->resumed_from), r->seconds,
           r->stopped_early ? " (stopped early)" : "");
    if (isfinite(r->best_eval_loss))
        printf("; best at step %lld: loss %.4f", (long long)r->best_step, r->best_eval_loss);
    printf("\n");
    if (f->texts)
        cli_figures_print(f);
    printf("model: %s\n", s->out);
}

by_status cli_tune_seq2seq(by_device *d, const by_finetune_spec *spec, const cli_seq2seq *o)
{
    const bool writes = spec->eval_data && o->eval_texts > 0;
    if (spec->freeze || spec->class_weights || spec->layer_decay != 1)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "--task seq2seq has no --freeze, --layer-decay and --class-weights");
    if (spec->predictions && !writes)
        return base_fail(BY_ERR_ARGUMENT, "--predictions needs --eval, and --eval-texts above 0");
    const by_run_spec run = run_spec(spec, o);
    by_run_result result;
    BY_TRY(by_train_run(d, &run, &result));
    BY_TRY(leave(d, spec->out, isfinite(result.best_eval_loss)));
    cli_figures f = {0};
    by_status s = writes ? judge(d, spec, o, &f) : BY_OK;
    if (s == BY_OK && o->json)
        print_json(spec, &result, &f);
    else if (s == BY_OK)
        print_text(spec, o, &result, &f);
    cli_figures_close(&f);
    return s;
}
