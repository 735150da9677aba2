/* verb_train.c - `banyan train`: pretrain a model from scratch, or go on with a run. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/train.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/show_batch.h"
#include "cli/learning.h"
#include "cli/show.h"
#include "cli/verbs.h"

typedef struct train_options {
    const char *model, *preset, *out, *tokenizer, *target_tokenizer, *init_from, *device, *objective,
        *languages;
    const char *source, *target, *recipe, *config, *resume;
    cli_list data, eval_data, prefixes;
    bool both_directions, pre_norm, suffix_first;
    int decoder_layers, batch_tokens, average;
    double label_smoothing;
    int masking, mask_copies, mask_words, show;
    double mask_share, mask_span;
    bool whole_words, parallel;
    int layers, heads, kv_heads, width, context, inner;
    double dropout;
    int batch, seq, accumulate, threads, keep, patience;
    int64_t steps, warmup, eval_every, save_every, log_every, eval_batches, seed;
    double epochs, rate, min_rate, beta1, beta2, eps, momentum, decay, max_norm, eval_fraction;
    by_schedule schedule;
    by_optimizer optimizer;
    by_dtype dtype;
    bool bf16, gr_stochastic, recompute, overwrite, json, trace, curve, quiet;
} train_options;

static const cli_option options[] = {
    {CLI_AT(train_options, recipe), .name = "recipe", .value = "NAME",
     .help = "a published set-up; other options win over it: multi30k, transformer-base, transformer-big, "
             "shakespeare-char, shakespeare-char-cpu, gpt2-124m, bert-base, roberta-base, t5-base",
     .group = "Recipe"},
    {CLI_AT(train_options, model), .name = "model", .letter = 'm', .preset = "gpt2", .value = "FAMILY",
     .help = "model family: gpt2, openai-gpt, bert, roberta, distilbert, albert, xlm, xlm-roberta, "
             "transformer, marian, t5, bart, llama",
     .group = "Model"},
    {CLI_AT(train_options, preset), .name = "preset", .preset = "tiny", .value = "NAME",
     .help = "shape by name: tiny, ...; of gpt2 also 124m, 350m, 774m, 1558m; of llama 1b, 3b, 7b, 8b, 13b; "
             "of the encoders small, base, large"},
    {CLI_AT(train_options, layers), .name = "layers", CLI_MIN(1),
     .help = "number of layers (else the preset's)"},
    {CLI_AT(train_options, decoder_layers), .name = "decoder-layers", CLI_MIN(1),
     .help = "of an encoder-decoder's decoder (else as many as --layers)"},
    {CLI_AT(train_options, heads), .name = "heads", CLI_MIN(1),
     .help = "attention heads (else the preset's)"},
    {CLI_AT(train_options, kv_heads), .name = "kv-heads", CLI_MIN(1),
     .help = "llama: key/value heads, shared by groups of heads (else the preset's)"},
    {CLI_AT(train_options, width), .name = "width", CLI_MIN(1), .help = "model width (else the preset's)"},
    {CLI_AT(train_options, inner), .name = "inner", CLI_MIN(1),
     .help = "feed-forward width (else four times the width)"},
    {CLI_AT(train_options, context), .name = "context", .letter = 'c', CLI_MIN(1), .suffix = true,
     .help = "longest sequence, in tokens (else the preset's)"},
    {CLI_AT(train_options, dropout), .name = "dropout", CLI_RANGE(0, 0.99), .preset = "0",
     .help =
         "dropout probability (of encoder-decoders 0.1 unless given; of translate 0.2 below 100,000 pairs)"},
    {CLI_AT(train_options, pre_norm), .name = "pre-norm",
     .help = "transformer: norms before the sub-layers (the default); --no-pre-norm: after them, as in 2017"},
    {CLI_AT(train_options, init_from), .name = "init-from", .value = "DIR",
     .help = "start from this model's weights"},

    {CLI_AT(train_options, data), .name = "data", .letter = 'd', .value = "FILE",
     .help =
         "text or .bin token shards; patterns, commas, several and repetition allowed; .gz and .zst are "
         "unpacked; - is the standard input. For translate: two files of lines, or .tsv, .csv, .jsonl, .json",
     .group = "Data"},
    {CLI_AT(train_options, eval_data), .name = "eval-data", .value = "FILE", .help = "text to evaluate on"},
    {CLI_AT(train_options, eval_fraction), .name = "eval-fraction", CLI_RANGE(0, 0.9), .preset = "0.1",
     .help = "else: hold out this part of the end of the data"},
    {CLI_AT(train_options, tokenizer), .name = "tokenizer", .value = "char|byte|DIR|bpe:N",
     .help = "how text becomes tokens (default char, or the model's own with --init-from). bpe:N, unigram:N, "
             "wordpiece:N: learn N tokens from the data"},
    {CLI_AT(train_options, target_tokenizer), .name = "target-tokenizer", .value = "DIR|bpe:N",
     .help = "translate: one for the target; --tokenizer is then the source's alone (transformer, marian)"},

    {CLI_AT(train_options, objective), .name = "objective",
     .choices = "lm|mlm|nsp|sop|clm|tlm|translate|spans|infill|fim",
     .help = "what the model learns to do (else what its family does)", .group = "Objective"},
    {CLI_AT(train_options, masking), .name = "masking", .choices = "auto|static|dynamic", .preset = "auto",
     .help = "hide the same tokens in every epoch (BERT, ALBERT), or others (RoBERTa)"},
    {CLI_AT(train_options, mask_copies), .name = "mask-copies", CLI_RANGE(1, 1e6), .preset = "1",
     .help = "static masking: so many versions in turn (BERT's own data had 10)"},
    {CLI_AT(train_options, mask_share), .name = "mask-share", CLI_RANGE(0.001, 1),
     .help =
         "share of the tokens that is hidden (else 0.15; of infill 0.3), or of the documents of fim (0.5)"},
    {CLI_AT(train_options, mask_span), .name = "mask-span", CLI_RANGE(1, 1000),
     .help = "mean length of what spans and infill cut out (else 3)"},
    {CLI_AT(train_options, suffix_first), .name = "suffix-first",
     .help = "fim: suffix, prefix, middle instead of prefix, suffix, middle"},
    {CLI_AT(train_options, whole_words), .name = "whole-words", .help = "hide all pieces of a word or none"},
    {CLI_AT(train_options, mask_words), .name = "mask-words", CLI_RANGE(1, 100),
     .help = "hide up to N words that follow each other (else 1; 3 of objective sop)"},
    {CLI_AT(train_options, languages), .name = "languages", .value = "EN,DE,...",
     .help = "one name for each item of --data: language ids (xlm)"},
    {CLI_AT(train_options, parallel), .name = "parallel",
     .help = "line i of each language says the same: translation LM"},
    {CLI_AT(train_options, both_directions), .name = "both-directions",
     .help = "translate: each pair also the other way round; >>de<< before the source says where to"},
    {CLI_AT(train_options, prefixes), .name = "prefix", .value = "TEXT",
     .help = "translate: put before the source; one for each pair of texts (with both directions, two)"},
    {CLI_AT(train_options, source), .name = "source-column", .value = "NAME",
     .help = "translate: of tables and JSON lines (else source, or the first)"},
    {CLI_AT(train_options, target), .name = "target-column", .value = "NAME",
     .help = "the same (else target, or the second)"},
    {CLI_AT(train_options, show), .name = "show-batch", CLI_RANGE(1, 1e6),
     .help = "show N rows as the model would get them, and what is hidden; train nothing"},

    {CLI_AT(train_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b', CLI_RANGE(1, 1e6),
     .preset = "12", .help = "sequences per step", .group = "Steps"},
    {CLI_AT(train_options, batch_tokens), .name = "batch-tokens", CLI_RANGE(8, 1e8), .preset = "2048",
     .suffix = true, .help = "translate: tokens per step instead, in rows of about the same length"},
    {CLI_AT(train_options, seq), .name = "seq", CLI_MIN(1), .help = "tokens per sequence (else the context)"},
    CLI_ACCUMULATE_ROW(train_options),
    {CLI_AT(train_options, steps), .name = "max-steps", .alias = "steps", .letter = 'n', CLI_MIN(1),
     .suffix = true, .help = "steps in all"},
    {CLI_AT(train_options, epochs), .name = "epochs", CLI_MIN(1e-6),
     .help = "or: passes over the data (else enough for 2,000 steps, of translate 3,000, and 20 at most)"},
    CLI_PATIENCE_ROW(train_options),

    {CLI_AT(train_options, label_smoothing), .name = "label-smoothing", CLI_RANGE(0, 0.99),
     .help =
         "share of each target that is spread over all tokens (else 0, of translate 0.1); held-out loss is "
         "without it"},

    {CLI_AT(train_options, optimizer), .name = "optimizer", .choices = "adamw|sgd|adafactor",
     .preset = "adamw", .help = "optimiser (of t5 adafactor unless given)", .group = "Optimiser"},
    {CLI_AT(train_options, rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 100),
     .help = "highest learning rate (else by the width: 3e-3 at 128, 5e-4 at 768; of encoders a third; of "
             "translate 2e-3 at 256; of adafactor 0.03, a share of the parameters)"},
    {CLI_AT(train_options, min_rate), .name = "min-learning-rate", .alias = "min-lr", CLI_MIN(0),
     .help = "where linear and cosine end (else a tenth of the highest)"},
    {CLI_AT(train_options, schedule), .name = "lr-scheduler", .alias = "schedule",
     .choices = "constant|linear|cosine|inverse-sqrt", .preset = "cosine",
     .help = "course of the learning rate"},
    {CLI_AT(train_options, warmup), .name = "warmup-steps", .alias = "warmup", CLI_MIN(0),
     .help =
         "steps of linear rise (else a tenth of the run, 100 at most; of translate a sixth, 4000 at most)"},
    CLI_DECAY_ROW(train_options, "0.1"),
    CLI_ADAM_ROWS(train_options, "0.99"),
    {CLI_AT(train_options, momentum), .name = "momentum", CLI_RANGE(0, 0.99999), .preset = "0",
     .help = "SGD"},
    CLI_CLIP_ROW(train_options),

    CLI_RUN_ROWS(train_options, "run folder; the same command goes on with what is in it",
                 "ten times in all"),
    {CLI_AT(train_options, eval_batches), .name = "eval-batches", CLI_MIN(0),
     .help =
         "batches per evaluation (0: the whole held-out part; else as many as steps between two of them)"},
    CLI_SAVE_ROWS(train_options),
    {CLI_AT(train_options, average), .name = "average", CLI_RANGE(1, 1000),
     .help = "at the end, the mean of the N newest checkpoints goes to averaged/"},
    CLI_LOG_ROWS(train_options, "of initial values, data order and dropout"),

    CLI_MACHINE_ROWS(train_options),

    {CLI_AT(train_options, json), .name = "json", .help = "print the result as one JSON object",
     .group = "Output"},
    {CLI_AT(train_options, trace), .name = "trace",
     .help = "show every node of the first step: shape, norm, time"},
    CLI_CURVE_ROWS(train_options),
};

/* What the callbacks share. */
typedef struct screen {
    const train_options *o;
    cli_progress bar;
    bool started;
    bool estimated;
    double began; /* seconds after the start, at step `begin` */
    int64_t begin;
} screen;

/* After some steps it is known how long all of them take. */
static void estimate(screen *s, const by_report *r)
{
    /* Steps after the first, in which programs are compiled: many, where rows have many lengths. */
    const int64_t enough = BY_MAX(5, BY_MIN(r->steps / 50, 50));
    char text[32];
    if (s->began == 0) {
        s->began = r->seconds;
        s->begin = r->step;
    }
    const double spent = r->seconds - s->began;
    if (s->estimated || r->step < s->begin + enough || spent <= 0)
        return;
    s->estimated = true;
    const double step = spent / (double)(r->step - s->begin);
    cli_format_duration(text, sizeof text, step * (double)(r->steps - s->begin));
    cli_note("%lld steps of %.3g s: about %s in all", (long long)r->steps, step, text);
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
        if (!s->o->quiet)
            cli_note("%s", r->note);
        if (r->step > 0 && !s->o->quiet)
            cli_note("going on from step %lld", (long long)r->step);
        s->bar = (cli_progress){
            .label = "train", .first = r->step, .total = r->steps, .every_steps = BY_MAX(r->steps / 50, 1)};
        if (!s->o->quiet)
            cli_progress_start(&s->bar);
        s->started = !s->o->quiet;
        return;
    }
    if (!s->started)
        return;
    estimate(s, r);
    if (r->more && s->bar.terminal) /* a terminal shows the newest */
        return;
    char share[16] = "n/a", eval[80] = "";
    if (isfinite(r->peak_share))
        snprintf(share, sizeof share, "%.0f%%", 100 * r->peak_share);
    if (r->evaluated)
        snprintf(eval, sizeof eval, "  held-out %.4f", r->eval_loss);
    if (r->evaluated && isfinite(r->next_accuracy))
        snprintf(eval + strlen(eval), sizeof eval - strlen(eval), "  pairs right %.1f%%",
                 100 * r->next_accuracy);
    if (r->evaluated) { /* a line that stays */
        cli_progress_hide();
        cli_note("step %lld  loss %.4f%s%s", (long long)r->step, r->loss, eval, r->saved ? "  saved" : "");
    }
    cli_progress_update(&s->bar, r->step, "loss %.4f  norm %.3f  lr %.2e  %.1f ms  %s of peak  %.0f tok/s",
                        r->loss, r->grad_norm, r->learning_rate, r->ms, share, r->tokens_per_s);
}

static by_run_spec run_spec(const train_options *o, const char *command)
{
    return (by_run_spec){
        .family = o->model,
        .shape = {.preset = o->preset,
                  .layers = o->layers,
                  .heads = o->heads,
                  .width = o->width,
                  .context = o->context,
                  .inner = o->inner,
                  .kv_heads = o->kv_heads,
                  .dropout = o->dropout,
                  .decoder_layers = o->decoder_layers,
                  .pre_norm = o->pre_norm},
        .dtype = o->bf16 ? BY_BF16 : o->dtype,
        .stochastic_rounding = o->gr_stochastic,
        .init_from = o->init_from,
        .eval_fraction = o->eval_data.count ? 0 : o->eval_fraction,
        .tokenizer = o->tokenizer,
        .target_tokenizer = o->target_tokenizer,
        .objective = {.name = o->objective,
                      .mask_share = o->mask_share,
                      .mask_span = o->mask_span,
                      .suffix_first = o->suffix_first,
                      .mask_copies = o->masking == 1   ? o->mask_copies
                                     : o->masking == 2 ? -1
                                                       : 0,
                      .mask_words = o->mask_words,
                      .whole_words = o->whole_words,
                      .parallel = o->parallel,
                      .both_directions = o->both_directions,
                      .prefixes = o->prefixes.items,
                      .prefix_count = o->prefixes.count,
                      .source = o->source,
                      .target = o->target},
        .batch = o->batch,
        .seq = o->seq,
        .batch_tokens = o->batch_tokens,
        .label_smoothing = o->label_smoothing,
        .accumulate = o->accumulate,
        .steps = o->steps,
        .epochs = o->epochs,
        .schedule = {.kind = o->schedule, .rate = o->rate, .min_rate = o->min_rate, .warmup = o->warmup},
        .optimizer = {.kind = o->optimizer,
                      .beta1 = cli_or_none(o->beta1),
                      .beta2 = cli_or_none(o->beta2),
                      .eps = cli_or_none(o->eps),
                      .momentum = o->momentum,
                      .weight_decay = o->decay,
                      .max_grad_norm = o->max_norm},
        .recompute = o->recompute,
        .seed = (uint64_t)o->seed,
        .eval_every = o->eval_every,
        .log_every = o->log_every,
        .save_every = o->save_every,
        .eval_batches = o->eval_batches,
        .keep = o->keep,
        .average = o->average,
        .patience = o->patience,
        .out = o->out,
        .overwrite = o->overwrite,
        .command = command,
        .recipe = o->recipe,
        .report = on_report,
        .no_peak = o->quiet,
        .cancelled = cli_poll,
        .trace = o->trace ? cli_trace_line : NULL,
    };
}

static int print_result(const train_options *o, const by_run_result *r)
{
    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "out", o->out);
        cJSON_AddNumberToObject(j, "steps", (double)r->steps);
        cJSON_AddNumberToObject(j, "resumed_from", (double)r->resumed_from);
        cJSON_AddNumberToObject(j, "parameters", (double)r->parameters);
        cli_json_number(j, "loss", r->loss);
        cli_json_number(j, "eval_loss", r->eval_loss);
        cli_json_number(j, "best_eval_loss", r->best_eval_loss);
        cJSON_AddNumberToObject(j, "best_step", (double)r->best_step);
        if (isfinite(r->next_accuracy))
            cJSON_AddNumberToObject(j, "eval_next_accuracy", r->next_accuracy);
        if (r->averaged)
            cJSON_AddNumberToObject(j, "averaged", r->averaged);
        if (isfinite(r->averaged_eval_loss))
            cJSON_AddNumberToObject(j, "averaged_eval_loss", r->averaged_eval_loss);
        cJSON_AddNumberToObject(j, "seconds", r->seconds);
        cJSON_AddNumberToObject(j, "state_bytes", (double)r->state_bytes);
        cJSON_AddNumberToObject(j, "activation_bytes", (double)r->activation_bytes);
        return cli_print_json(j);
    }
    if (!o->quiet)
        cli_show_curve(o->out, "nats per token", o->curve);
    if (r->resumed_from == r->steps && !isfinite(r->loss))
        cli_note("nothing left to do: the run in %s is at step %lld already", o->out, (long long)r->steps);
    printf("%lld steps in %.1f s", (long long)(r->steps - r->resumed_from), r->seconds);
    if (isfinite(r->loss))
        printf(", loss %.4f", r->loss);
    if (isfinite(r->best_eval_loss))
        printf(", best held-out loss %.4f at step %lld", r->best_eval_loss, (long long)r->best_step);
    if (isfinite(r->next_accuracy))
        printf(", pairs right %.1f%%", 100 * r->next_accuracy);
    if (isfinite(r->averaged_eval_loss))
        printf(", of the mean of %d checkpoints %.4f", r->averaged, r->averaged_eval_loss);
    printf("%s\nmodel: %s/%s   curve: %s/loss.svg\n", r->stopped_early ? " (stopped early)" : "", o->out,
           isfinite(r->best_eval_loss) ? "best" : "last", o->out);
    return CLI_OK;
}

/* What may help. */
static const char *hint_for(by_status status)
{
    if (status == BY_ERR_NUMERIC)
        return "a lower --learning-rate, or --trace to see where it begins";
    if (status == BY_ERR_MEMORY)
        return "a smaller --batch-size with more --gradient-accumulation-steps, --recompute, --bf16, "
               "--stochastic-rounding, or a shorter --context";
    return NULL;
}

/* An item with commas stands for several, unless a file has that name. The strings are the list's. */
static by_status split_list(cli_list *out, const char *const *items, int count)
{
    *out = (cli_list){0};
    for (int i = 0; i < count; i++)
        for (const char *p = items[i], *end; p; p = end ? end + 1 : NULL) {
            end = base_file_exists(items[i]) ? NULL : strchr(p, ',');
            const char **more = base_resize(out->items, (size_t)out->count + 1, sizeof *more);
            char *item = more ? base_sprintf("%.*s", (int)(end ? end - p : (ptrdiff_t)strlen(p)), p) : NULL;
            out->items = more ? more : out->items;
            if (!item)
                return BY_ERR_MEMORY;
            out->items[out->count++] = item;
        }
    return BY_OK;
}

static void free_list(cli_list *l)
{
    base_paths_free((char **)l->items, l->count);
}

/* What was asked for, now that all is clear. */
static int start(const train_options *o, const by_run_spec *spec, screen *s)
{
    by_run_result result;
    cli_interrupt_install();
    by_device *d = cli_device(o->device, o->threads);
    by_status status = d ? BY_OK : base_error_status();
    int code = CLI_OK;
    if (o->show && d) {
        code = cli_show_examples(d, spec, o->show, o->json);
    } else {
        if (d)
            status = by_train_run(d, spec, &result);
        if (s->started)
            cli_progress_end(&s->bar);
        const char *hint = hint_for(status);
        code = status == BY_OK ? print_result(o, &result) : hint ? cli_fail("%s", hint) : cli_fail(NULL);
    }
    by_device_free(d);
    return code;
}

/* The options of a recipe, for all that was not given; NULL: there is none of that name. */
static char *take_recipe(cli_args *args, const char *name)
{
    const by_recipe *r = by_recipe_find(name);
    char *text = r ? base_strdup(r->options) : NULL;
    if (text && cli_options_add(args, text) == BY_OK)
        return text;
    base_free(text);
    return NULL;
}

/* Numbers that the library is to choose, and those that depend on the family. */
static void fill_usual(train_options *o, const cli_args *args)
{
    const bool fresh_pairs = !o->init_from && (o->objective ? strcmp(o->objective, "translate") == 0
                                                            : strcmp(o->model, "transformer") == 0 ||
                                                                  strcmp(o->model, "marian") == 0);
    if (!cli_given(args, &o->rate))
        o->rate = -1; /* by the width */
    if (!cli_given(args, &o->min_rate))
        o->min_rate = -1; /* a tenth of the highest */
    if (!cli_given(args, &o->warmup))
        o->warmup = -1;
    if (!cli_given(args, &o->eval_batches))
        o->eval_batches = -1;
    if ((o->init_from || by_family_task(o->model) == BY_TASK_SEQ2SEQ) && !cli_given(args, &o->dropout))
        o->dropout = -1; /* the model's own, or its family's */
    if (!o->init_from && strcmp(o->model, "t5") == 0 && !cli_given(args, &o->optimizer))
        o->optimizer = BY_ADAFACTOR; /* its embeddings begin at 1, where AdamW's steps are too small */
    if (!o->init_from && strcmp(o->model, "transformer") == 0 && !cli_given(args, &o->pre_norm))
        o->pre_norm = true;
    if (fresh_pairs && !cli_given(args, &o->label_smoothing))
        o->label_smoothing = 0.1;
    if (fresh_pairs && !cli_given(args, &o->beta2))
        o->beta2 = 0.98;
    if (fresh_pairs && !cli_given(args, &o->decay))
        o->decay = 1e-4;
    if (cli_given(args, &o->mask_copies))
        o->masking = 1;
}

static int run(int argc, char **argv)
{
    train_options o;
    cli_args args;
    cli_config config;
    int code;
    char *command = cli_command_line(argc, argv), *given;
    if (!cli_config_expand(&cli_train, sizeof o, argc, argv, &config, &code) ||
        !cli_parse(&cli_train, config.argc, config.argv, &o, &args, &code)) {
        cli_config_free(&config);
        base_free(command);
        return code;
    }
    given = cli_config_record(&config, &args);
    cli_list data = {0}, eval_data = {0}, languages = {0};
    char *recipe = NULL;
    if (o.recipe && !(recipe = take_recipe(&args, o.recipe))) {
        code = cli_fail(NULL);
    } else if (!o.data.count || (!o.out && !o.show)) {
        code = cli_usage_fail("%s", !o.data.count
                                        ? "no data: give --data FILE, or --resume DIR to go on with a run"
                                        : "no run folder: give --out DIR");
    } else if (split_list(&data, o.data.items, o.data.count) != BY_OK ||
               split_list(&eval_data, o.eval_data.items, o.eval_data.count) != BY_OK ||
               split_list(&languages, &o.languages, o.languages != NULL) != BY_OK) {
        code = cli_fail(NULL);
    } else {
        fill_usual(&o, &args);
        screen s = {.o = &o};
        by_run_spec spec = run_spec(&o, command);
        spec.data = data.items;
        spec.data_count = data.count;
        spec.eval_data = eval_data.items;
        spec.eval_count = eval_data.count;
        spec.objective.languages = languages.items;
        spec.objective.language_count = languages.count;
        spec.user = &s;
        spec.options = given;
        code = start(&o, &spec, &s);
    }
    base_free(recipe);
    free_list(&data);
    free_list(&eval_data);
    free_list(&languages);
    cli_args_free(&args);
    cli_config_free(&config);
    base_free(given);
    base_free(command);
    return code;
}

const cli_verb cli_train = {
    .name = "train",
    .summary = "train a model from scratch, or go on with a run",
    .description =
        "Trains a model on text with the objective of its family and writes a run folder: checkpoints "
        "(HuggingFace "
        "directories; last and best point to them), metrics.jsonl, TensorBoard events, loss.svg and "
        "run.json. Running "
        "the same command again goes on where it stopped, bit for bit, after Ctrl-C, a crash or a power cut; "
        "so "
        "does --resume DIR, or --out DIR alone. A larger --max-steps makes a run longer. The run removes and "
        "replaces only files that it wrote (owned.json lists them).",
    .examples =
        "# a character model of Shakespeare, the size of nanoGPT's CPU recipe\n"
        "banyan train --data shakespeare.txt --out runs/shakespeare --max-steps 2000\n"
        "# go on with it, for longer\n"
        "banyan train --resume runs/shakespeare --max-steps 4000\n"
        "# GPT-2 124M on token shards, in bfloat16\n"
        "banyan train --preset 124m --data 'shards/*.bin' --bf16 --batch-size 8 --out runs/gpt2\n"
        "# BERT: hidden words and next sentences; first a look at what it will get\n"
        "banyan train --model bert --tokenizer DIR --data docs.txt --seq 128 --show-batch 3\n"
        "banyan train --model bert --tokenizer DIR --data docs.txt --seq 128 --out runs/bert\n"
        "# English to German, with a vocabulary learnt from both texts\n"
        "banyan train --model transformer --data train.en train.de --eval-data val.en val.de --tokenizer "
        "bpe:8000 --out runs/en-de\n"
        "# a published set-up, with one thing changed\n"
        "banyan train --recipe shakespeare-char --data shakespeare.txt --max-steps 2000 --out runs/char\n"
        "# XLM on sentences and their translations\n"
        "banyan train --model xlm --tokenizer DIR --data en.txt,de.txt --languages en,de --parallel --seq "
        "64 --out runs/xlm\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
