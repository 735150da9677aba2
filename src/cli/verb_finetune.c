/* verb_finetune.c - `banyan finetune`: teach a trained model a task. */
#include <math.h>

#include "banyan/finetune.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/eval_texts.h"
#include "cli/learning.h"
#include "cli/show.h"
#include "cli/task_options.h"
#include "cli/verbs.h"
#include "train/task_batches.h"

typedef struct finetune_options {
    cli_task_options t;
    by_seq2seq_spec seq2seq;
    cli_list prefixes;
    const char *config, *resume;
    const char *data, *eval, *out, *freeze, *weights, *device;
    int batch, eval_batch, accumulate, threads, keep, patience;
    int64_t steps, warmup, eval_every, save_every, log_every, seed;
    by_optimizer optimizer;
    double epochs, rate, warmup_share, decay, beta1, beta2, eps, max_norm, layer_decay, dropout;
    by_schedule schedule;
    by_dtype dtype;
    bool bf16, gr_stochastic, recompute, overwrite, json, curve, quiet;
} finetune_options;

static const cli_option options[] = {
    {CLI_AT(finetune_options, t.task), .name = "task", .value = "TASK", .preset = "classify",
     .help = "classify, regress, tag, answer (or qa), choice, seq2seq, mlm, lm", .group = "Data"},
    {CLI_AT(finetune_options, data), .name = "data", .letter = 'd', .value = "FILE",
     .help = "cases to learn"},
    {CLI_AT(finetune_options, eval), .name = "eval", .letter = 'e', .value = "FILE",
     .help = "cases to judge by; the best model is kept"},
    CLI_TASK_ROWS(finetune_options, t),
    {CLI_AT(finetune_options, t.limit), .name = "max-length", .alias = "seq", CLI_MIN(1), .suffix = true,
     .help = "tokens of a row at most (else the model's context)"},
    {CLI_AT(finetune_options, t.overlap), .name = "stride", CLI_MIN(1),
     .help = "tokens that the windows over a long text share, of answer and tag (else 128)"},
    {CLI_AT(finetune_options, prefixes), .name = "prefix", .value = "TEXT",
     .help = "seq2seq: put before the source, as in \"sst2: \""},
    {CLI_AT(finetune_options, seq2seq.label_words), .name = "label-words", .value = "W0,W1,...",
     .help = "seq2seq: what targets 0, 1, ... stand for, as in negative,positive"},
    {CLI_AT(finetune_options, seq2seq.eval_texts), .name = "eval-texts", CLI_RANGE(0, 1e9), .preset = "200",
     .help = "seq2seq: the best model writes the first N texts of --eval at the end, for BLEU, chrF, "
             "ROUGE, exact matches and --predictions; 0: none"},
    {CLI_AT(finetune_options, weights), .name = "class-weights", .value = "balanced|W1,W2,...",
     .help = "how much each label counts in the loss, in the order of config.json"},

    {CLI_AT(finetune_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1e6), .help = "rows per step (else 32, and less for fewer than 256 rows)",
     .group = "Steps"},
    {CLI_AT(finetune_options, seq2seq.batch_tokens), .name = "batch-tokens", CLI_RANGE(8, 1e8),
     .preset = "4096", .suffix = true,
     .help = "seq2seq: tokens per step instead, in rows of about the same length"},
    {CLI_AT(finetune_options, seq2seq.label_smoothing), .name = "label-smoothing", CLI_RANGE(0, 0.99),
     .preset = "0", .help = "seq2seq: share of each target that is spread over all tokens"},
    {CLI_AT(finetune_options, eval_batch), .name = "eval-batch-size", CLI_RANGE(1, 1e6), .preset = "32",
     .help = "rows at once when evaluating"},
    CLI_ACCUMULATE_ROW(finetune_options),
    {CLI_AT(finetune_options, epochs), .name = "epochs", CLI_MIN(1e-6),
     .help = "passes over the data (else 3, and up to 20 where that makes fewer than 200 steps)"},
    {CLI_AT(finetune_options, steps), .name = "max-steps", .alias = "steps", .letter = 'n', CLI_MIN(1),
     .suffix = true, .help = "or: steps in all"},
    CLI_PATIENCE_ROW(finetune_options),

    {CLI_AT(finetune_options, optimizer), .name = "optimizer", .choices = "adamw|sgd|adafactor",
     .preset = "adamw", .help = "optimiser", .group = "Optimiser"},
    {CLI_AT(finetune_options, rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 100),
     .preset = "3e-5", .help = "highest learning rate"},
    {CLI_AT(finetune_options, schedule), .name = "lr-scheduler",
     .choices = "constant|linear|cosine|inverse-sqrt", .preset = "linear",
     .help = "course of the learning rate, down to 0"},
    {CLI_AT(finetune_options, warmup_share), .name = "warmup-ratio", CLI_RANGE(0, 1), .preset = "0.1",
     .help = "part of the run in which the rate rises"},
    {CLI_AT(finetune_options, warmup), .name = "warmup-steps", .alias = "warmup", CLI_MIN(0),
     .help = "or: steps in which it does"},
    CLI_DECAY_ROW(finetune_options, "0.01"),
    {CLI_AT(finetune_options, layer_decay), .name = "layer-decay", CLI_RANGE(1e-6, 1), .preset = "1",
     .help = "each layer learns at this times the rate of the one above it"},
    {CLI_AT(finetune_options, freeze), .name = "freeze", .value = "embeddings|N|body",
     .help = "what does not learn: the embeddings, also the first N layers, or all layers"},
    CLI_ADAM_ROWS(finetune_options, "0.999"),
    CLI_CLIP_ROW(finetune_options),
    {CLI_AT(finetune_options, dropout), .name = "dropout", CLI_RANGE(0, 0.99),
     .help = "dropout probability (else the model's own)"},

    CLI_RUN_ROWS(finetune_options, "becomes a model directory; the same command goes on with a run in it",
                 "after each epoch"),
    CLI_SAVE_ROWS(finetune_options),
    CLI_LOG_ROWS(finetune_options, "of the new head, the order of the data and dropout"),

    CLI_MACHINE_ROWS(finetune_options),

    {CLI_AT(finetune_options, json), .name = "json", .help = "print the result as one JSON object",
     .group = "Output"},
    CLI_CURVE_ROWS(finetune_options),
};

/* What the callbacks share. */
typedef struct screen {
    bool quiet, started, writing;
    cli_progress bar;
} screen;

static void on_start(screen *s, const by_report *r)
{
    if (s->quiet)
        return;
    cli_note("%s", r->note);
    if (r->step > 0)
        cli_note("going on from step %lld", (long long)r->step);
    s->bar = (cli_progress){
        .label = "tune", .first = r->step, .total = r->steps, .every_steps = BY_MAX(r->steps / 20, 1)};
    cli_progress_start(&s->bar);
    s->started = true;
}

static void on_report(void *user, const by_report *r)
{
    screen *s = user;
    if (r->warning) {
        cli_progress_hide();
        cli_note("%s", r->warning);
        return;
    }
    if (r->note) {
        on_start(s, r);
        return;
    }
    if (!s->started || (r->more && s->bar.terminal)) /* a terminal shows the newest */
        return;
    if (r->evaluated) { /* a line that stays */
        base_buf line = {0};
        for (int i = 0; i < r->n_metrics; i++)
            base_buf_printf(&line, "  %s %.4f", r->metrics[i].name, r->metrics[i].value);
        cli_progress_hide();
        cli_note("step %lld  loss %.4f  held-out %.4f%s%s", (long long)r->step, r->loss, r->eval_loss,
                 line.data ? line.data : "", r->saved ? "  saved" : "");
        base_buf_free(&line);
    }
    cli_progress_update(&s->bar, r->step, "loss %.4f  norm %.3f  lr %.2e  %.1f ms  %.0f tok/s", r->loss,
                        r->grad_norm, r->learning_rate, r->ms, r->tokens_per_s);
}

/* The bar of the steps makes room for that of the texts. */
static void on_text(void *user, const by_text_result *so_far, int64_t total)
{
    screen *s = user;
    if (so_far->texts == 0 || s->quiet)
        return;
    if (!s->writing) {
        cli_progress_end(&s->bar);
        s->bar = (cli_progress){.label = "eval", .total = total};
        cli_progress_start(&s->bar);
        s->writing = true;
    }
    cli_text_progress(&s->bar, so_far, total);
}

static by_finetune_spec tuning_spec(const finetune_options *o, const cli_args *args)
{
    return (by_finetune_spec){
        .dtype = o->bf16 ? BY_BF16 : o->dtype,
        .stochastic_rounding = o->gr_stochastic,
        .dropout = cli_given(args, &o->dropout) ? o->dropout : -1,
        .data = o->data,
        .eval_data = o->eval,
        .batch = o->batch,
        .accumulate = o->accumulate,
        .steps = o->steps,
        .epochs = o->epochs,
        .schedule = {.kind = o->schedule,
                     .rate = o->rate,
                     .warmup = cli_given(args, &o->warmup) ? o->warmup : -1},
        .warmup_share = o->warmup_share,
        .optimizer = {.kind = o->optimizer,
                      .beta1 = cli_or_none(o->beta1),
                      .beta2 = cli_or_none(o->beta2),
                      .eps = cli_or_none(o->eps),
                      .weight_decay = o->decay,
                      .max_grad_norm = o->max_norm},
        .layer_decay = o->layer_decay,
        .freeze = o->freeze,
        .class_weights = o->weights,
        .recompute = o->recompute,
        .seed = (uint64_t)o->seed,
        .eval_every = o->eval_every,
        .log_every = o->log_every,
        .save_every = o->save_every,
        .keep = o->keep,
        .patience = o->patience,
        .out = o->out,
        .overwrite = o->overwrite,
        .predictions = o->t.predictions,
        .seq2seq = o->seq2seq,
        .report = on_report,
        .cancelled = cli_poll,
    };
}

static int print_json(const finetune_options *o, const by_examples_spec *reading, const by_finetune_result *r)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "out", o->out);
    cJSON_AddNumberToObject(j, "steps", (double)r->steps);
    cJSON_AddNumberToObject(j, "resumed_from", (double)r->resumed_from);
    cJSON_AddNumberToObject(j, "parameters", (double)r->parameters);
    cJSON_AddNumberToObject(j, "trained_parameters", (double)r->trained);
    cJSON_AddNumberToObject(j, "labels", r->labels);
    cli_json_number(j, "train_loss", r->loss);
    cJSON_AddNumberToObject(j, "best_step", (double)r->best_step);
    cJSON_AddNumberToObject(j, "seconds", r->seconds);
    cJSON_AddNumberToObject(j, "state_bytes", (double)r->state_bytes);
    cJSON_AddNumberToObject(j, "activation_bytes", (double)r->activation_bytes);
    if (r->evaluated && reading->kind == BY_EXAMPLE_SEQ2SEQ)
        cJSON_AddNumberToObject(j, "loss", r->best.loss);
    else if (r->evaluated)
        cli_task_json(j, &r->best);
    if (r->texts.texts)
        cli_text_json(j, &r->texts);
    return cli_print_json(j);
}

static int print_result(const finetune_options *o, const by_examples_spec *reading,
                        const by_finetune_result *r)
{
    const bool seq2seq = reading->kind == BY_EXAMPLE_SEQ2SEQ;
    if (o->json)
        return print_json(o, reading, r);
    if (!o->quiet)
        cli_show_curve(o->out, train_task_loss_unit(reading), o->curve);
    if (r->resumed_from == r->steps)
        cli_note("nothing left to do: the run in %s is at step %lld already", o->out, (long long)r->steps);
    printf("%lld steps in %.1f s%s; best at step %lld", (long long)(r->steps - r->resumed_from), r->seconds,
           r->stopped_early ? " (stopped early)" : "", (long long)r->best_step);
    if (seq2seq && r->evaluated)
        printf(": loss %.4f", r->best.loss);
    printf("\n");
    if (r->evaluated && !seq2seq)
        cli_task_print(&r->best);
    if (r->texts.texts)
        cli_text_print(&r->texts);
    printf("model: %s\n", o->out);
    return CLI_OK;
}

static const char *hint_for(by_status status)
{
    if (status == BY_ERR_NUMERIC)
        return "a lower --learning-rate";
    if (status == BY_ERR_MEMORY)
        return "a smaller --batch-size with more --gradient-accumulation-steps, --recompute, --bf16, "
               "--stochastic-rounding, or a shorter --max-length";
    return NULL;
}

static int tune(const finetune_options *o, const cli_args *args, const char *command, const char *given)
{
    by_finetune_spec spec = tuning_spec(o, args);
    if (!cli_task_read(&o->t, o->t.task, &spec.reading, &spec.work))
        return CLI_USAGE;
    spec.work.batch = o->eval_batch;
    char *dir = cli_model_dir(args->items[0]);
    by_device *d = dir ? cli_device(o->device, o->threads) : NULL;
    screen s = {.quiet = o->quiet};
    by_finetune_result result;
    spec.model = dir;
    spec.command = command;
    spec.options = given;
    spec.user = &s;
    spec.seq2seq.prefixes = o->prefixes.items;
    spec.seq2seq.prefix_count = o->prefixes.count;
    spec.seq2seq.wrote = on_text;
    cli_interrupt_install();
    by_status status = d ? by_finetune_run(d, &spec, &result) : base_error_status();
    if (s.started)
        cli_progress_end(&s.bar);
    const char *hint = hint_for(status);
    int code = status == BY_OK ? print_result(o, &spec.reading, &result)
               : hint          ? cli_fail("%s", hint)
                               : cli_fail(NULL);
    by_device_free(d);
    base_free(dir);
    return code;
}

static int run(int argc, char **argv)
{
    finetune_options o;
    cli_args args;
    cli_config config;
    int code;
    char *command = cli_command_line(argc, argv), *given;
    if (!cli_config_expand(&cli_finetune, sizeof o, argc, argv, &config, &code) ||
        !cli_parse(&cli_finetune, config.argc, config.argv, &o, &args, &code)) {
        cli_config_free(&config);
        base_free(command);
        return code;
    }
    given = cli_config_record(&config, &args);
    if (!o.out || !o.data)
        code = cli_usage_fail("%s", !o.data ? "no data: give --data FILE" : "no folder: give --out DIR");
    else
        code = tune(&o, &args, command, given);
    cli_args_free(&args);
    cli_config_free(&config);
    base_free(given);
    base_free(command);
    return code;
}

const cli_verb cli_finetune = {
    .name = "finetune",
    .summary = "teach a trained model a task from labelled examples",
    .args = "MODEL",
    .description =
        "MODEL is a model directory or a run folder. Its body is kept, and it gets the head that the task "
        "needs, "
        "unless it has that head with the same labels already. Data are tables (TSV, CSV), JSON lines or "
        "lists, CoNLL columns (tag) or SQuAD's JSON (answer), also packed (.gz, .zst) or - for the standard "
        "input. The columns and labels found are shown before training. Labels get their numbers in sorted "
        "order, and their names "
        "are "
        "kept in config.json.\n\n"
        "DIR becomes a model directory that other programs load: the best model by the task's metric "
        "(accuracy, "
        "Pearson's r, F1) on the --eval data (a tie goes to the lower loss), else the last. Beside it are "
        "metrics.jsonl, run.json, loss.svg "
        "and "
        "checkpoints; the same command goes on where a run stopped.",
    .examples =
        "banyan finetune bert-base-uncased --data train.tsv --eval dev.tsv --out runs/sentiment\n"
        "# sentence pairs, columns by name\n"
        "banyan finetune roberta-base --data mnli.tsv --text premise --pair hypothesis --label gold_label "
        "--out m\n"
        "banyan finetune bert-base-cased --task tag --data ner.conll --eval dev.conll --out runs/ner\n"
        "banyan finetune bert-base-cased --task qa --data squad.json --max-length 384 --out runs/qa\n"
        "# an encoder-decoder: columns source and target\n"
        "banyan finetune t5-small --task seq2seq --data train.tsv --eval dev.tsv --prefix 'summarize: ' "
        "--out "
        "runs/s\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
