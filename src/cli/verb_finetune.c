/* verb_finetune.c - `banyan finetune`: fine-tune a model on labelled examples. */
#include <math.h>

#include "banyan/finetune.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/eval_texts.h"
#include "cli/learning.h"
#include "cli/lora.h"
#include "cli/picture_options.h"
#include "cli/run_screen.h"
#include "cli/show.h"
#include "cli/task_options.h"
#include "cli/verbs.h"
#include "model/model.h"
#include "train/task_batches.h"

typedef struct finetune_options {
    by_finetune_spec tune;
    cli_learning l;
    cli_task_options t;
    cli_pictures p;
    cli_list prefixes;
    const char *weights;
    cli_adapter_words adapters;
    cli_lora adapter;
    cli_args own; /* arguments of this command */
} finetune_options;

static const cli_option options[] = {
    {CLI_AT(finetune_options, t.task), .name = "task", .value = "TASK",
     .help = "classify, regress, tag, answer (or qa), choice, seq2seq, image-classify, caption, mlm, lm "
             "(default: classify; models of pictures: image-classify, those with a text tower or decoder: "
             "caption)",
     .group = "Data"},
    {CLI_AT(finetune_options, tune.data), .name = "data", .letter = 'd', .value = "FILE",
     .help = "training examples; image-classify: a folder, a list, an IDX or a CIFAR file; caption: a list"},
    {CLI_AT(finetune_options, tune.eval_data), .name = "eval", .letter = 'e', .value = "FILE",
     .help = "evaluation examples; the best model is kept"},
    CLI_TASK_ROWS(finetune_options, t),
    {CLI_AT(finetune_options, t.limit), .name = "max-length", .alias = "seq", CLI_MIN(1), .suffix = true,
     .help = "maximum tokens per row (default: the model's context)"},
    {CLI_AT(finetune_options, t.overlap), .name = "stride", CLI_MIN(1),
     .help = "answer, tag: tokens shared by consecutive windows of a long text (default: 128)"},
    {CLI_AT(finetune_options, prefixes), .name = "prefix", .value = "TEXT",
     .help = "seq2seq: put TEXT before the source, such as \"sst2: \""},
    {CLI_AT(finetune_options, tune.seq2seq.label_words), .name = "label-words", .value = "W0,W1,...",
     .help = "seq2seq: words for targets 0, 1, ..., such as negative,positive"},
    {CLI_AT(finetune_options, tune.seq2seq.eval_texts), .name = "eval-texts", CLI_RANGE(0, 1e9),
     .preset = "200",
     .help = "seq2seq: texts of --eval to generate at the end for BLEU, chrF, ROUGE, exact match and "
             "--predictions; 0 generates none"},
    {CLI_AT(finetune_options, tune.class_weights), .name = "class-weights", .value = "balanced|W1,W2,...",
     .help = "weight of each label in the loss, in the order of config.json"},

    {CLI_AT(finetune_options, tune.batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1e6), .help = "rows per step (default: 32, pictures 128; an eighth of small sets)",
     .group = "Steps"},
    {CLI_AT(finetune_options, tune.seq2seq.batch_tokens), .name = "batch-tokens", CLI_RANGE(8, 1e8),
     .preset = "4096", .suffix = true, .help = "seq2seq: tokens per step instead, in rows of similar length"},
    {CLI_AT(finetune_options, tune.label_smoothing), .name = "label-smoothing", CLI_RANGE(0, 0.99),
     .preset = "0",
     .help = "seq2seq, image-classify: share of each target spread over all tokens or classes"},
    {CLI_AT(finetune_options, tune.work.batch), .name = "eval-batch-size", CLI_RANGE(1, 1e6), .preset = "32",
     .help = "rows per batch in evaluation"},
    CLI_ACCUMULATE_ROW(finetune_options, tune),
    {CLI_AT(finetune_options, tune.epochs), .name = "epochs", CLI_MIN(1e-6),
     .help = "length in epochs (default: 3; up to 20 if that makes fewer than 200 steps)"},
    {CLI_AT(finetune_options, tune.steps), .name = "max-steps", .alias = "steps", .letter = 'n', CLI_MIN(1),
     .suffix = true, .help = "length in steps instead"},
    CLI_PATIENCE_ROW(finetune_options, tune),

    {CLI_AT(finetune_options, tune.optimizer.kind), .name = "optimizer", .choices = "adamw|sgd|adafactor",
     .preset = "adamw", .help = "optimiser", .group = "Optimiser"},
    {CLI_AT(finetune_options, tune.schedule.rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 100),
     .help = "peak learning rate (default: 3e-5; higher below width 768, 1.8e-4 at 128; pictures three times "
             "that; seq2seq: 3e-5; ten times that with --lora, a hundred times with --ia3, --prefix-tuning "
             "and --prompt-tuning)"},
    {CLI_AT(finetune_options, tune.schedule.kind), .name = "lr-scheduler",
     .choices = "constant|linear|cosine|inverse-sqrt", .preset = "linear",
     .help = "learning-rate schedule, ending at 0"},
    {CLI_AT(finetune_options, tune.warmup_share), .name = "warmup-ratio", CLI_RANGE(0, 1), .preset = "0.1",
     .help = "share of the run for linear warm-up"},
    {CLI_AT(finetune_options, tune.schedule.warmup), .name = "warmup-steps", .alias = "warmup", CLI_MIN(0),
     .help = "steps of linear warm-up instead"},
    CLI_DECAY_ROW(finetune_options, tune, "0.01"),
    {CLI_AT(finetune_options, tune.layer_decay), .name = "layer-decay", CLI_RANGE(1e-6, 1), .preset = "1",
     .help = "learning-rate factor from each layer to the one below it"},
    {CLI_AT(finetune_options, tune.freeze), .name = "freeze", .value = "embeddings|N|body|weights|but:NAMES",
     .help =
         "do not train the embeddings; N: nor the first N layers; body: nor any layer; weights: train biases "
         "and a new head alone; but:NAMES: train the parameters with these names and a new head alone"},
    CLI_ADAPTER_ROWS(finetune_options, adapters),
    CLI_ADAM_ROWS(finetune_options, tune, "0.999"),
    CLI_CLIP_ROW(finetune_options, tune),
    {CLI_AT(finetune_options, tune.dropout), .name = "dropout", CLI_RANGE(0, 0.99),
     .help = "dropout probability (default: the model's own)"},

    CLI_PICTURE_DATA_ROWS(finetune_options, tune.images.data),
    CLI_PICTURE_TRAIN_ROWS(finetune_options, tune.images, p),

    CLI_RUN_ROWS(finetune_options, tune,
                 "output directory, also the run folder; the same command continues a run in it",
                 "after each epoch"),
    CLI_SAVE_ROWS(finetune_options, tune),
    CLI_LOG_ROWS(finetune_options, tune, "seed of the new head, the data order and dropout"),

    CLI_MACHINE_ROWS(finetune_options, tune),
    CLI_WEIGHTS(finetune_options, weights),

    CLI_JSON_ROW(finetune_options),
    CLI_CURVE_ROWS(finetune_options),
};

/* The task of the model in a directory, if its configuration determines it. */
static const char *usual_task(const char *dir)
{
    by_task task;
    const arch_family *a = model_family_of(dir, &task);
    base_error_clear(); /* reported on opening the model */
    if (!a || (!a->pictures && !a->canvas))
        return "classify";
    return task == BY_TASK_CONTRAST || task == BY_TASK_SEQ2SEQ ? "caption" : "image-classify";
}

/* Fills in the library's defaults for options that were not given. Returns false after reporting an unknown
 * task. */
static bool fill_spec(finetune_options *o, const cli_args *args, cli_run_screen *screen)
{
    by_finetune_spec *t = &o->tune;
    const by_finetune_spec usual = by_finetune_defaults();
    cli_options_default(args, t, &usual, sizeof *t);
    const int eval_batch = t->work.batch;
    if (!cli_task_read(&o->t, o->t.task, &t->reading, &t->work))
        return false;
    t->work.batch = eval_batch;
    t->dtype = o->l.bf16 ? BY_BF16 : t->dtype;
    cli_adam_read(&t->optimizer);
    t->predictions = o->t.predictions;
    t->images.data.file = o->t.text;
    t->images.data.label = o->t.label;
    t->images.data.header = o->t.header;
    if (!cli_pictures_read(&o->p, &t->images))
        return false;
    o->adapter.spec.seed = t->seed;
    t->adapter = o->adapter.words ? &o->adapter.spec : NULL;
    t->lora = o->adapter.words;
    t->weights = cli_weights(o->weights);
    t->seq2seq.prefixes = o->prefixes.items;
    t->seq2seq.prefix_count = o->prefixes.count;
    t->seq2seq.wrote = cli_run_wrote;
    t->report = cli_run_report;
    t->cancelled = cli_poll;
    t->user = screen;
    return true;
}

static bool reads_pictures(const finetune_options *o)
{
    return o->tune.reading.kind == BY_EXAMPLE_IMAGE_CLASSIFY || o->tune.reading.kind == BY_EXAMPLE_CAPTION;
}

/* Returns false after reporting an option of another task. */
static bool fits(const finetune_options *o)
{
    if (cli_given(&o->own, &o->tune.images.soft_teacher) && !o->p.teacher) {
        cli_usage_fail("--distillation needs --teacher");
        return false;
    }
    if (cli_given(&o->own, &o->tune.batch) && o->tune.reading.kind == BY_EXAMPLE_SEQ2SEQ) {
        cli_usage_fail("--batch-size is not for the task seq2seq: use --batch-tokens");
        return false;
    }
    return cli_task_fits(o->tune.reading.kind, o->t.task, &o->own) &&
           cli_optimizer_fits(o->tune.optimizer.kind, o->tune.schedule.kind, &o->own);
}

static int print_json(const finetune_options *o, const by_finetune_result *r)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "out", o->tune.out);
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
    if (reads_pictures(o) && isfinite(r->data_wait))
        cJSON_AddNumberToObject(j, "data_wait", r->data_wait);
    if (r->evaluated && o->tune.reading.kind == BY_EXAMPLE_SEQ2SEQ)
        cJSON_AddNumberToObject(j, "loss", r->best.loss);
    else if (r->evaluated)
        cli_task_json(j, &r->best);
    if (r->texts.texts)
        cli_text_json(j, &r->texts);
    return cli_print_json(j);
}

static int print_result(const finetune_options *o, const by_finetune_result *r)
{
    const bool seq2seq = o->tune.reading.kind == BY_EXAMPLE_SEQ2SEQ;
    if (o->l.json)
        return print_json(o, r);
    if (!o->l.quiet)
        cli_show_curve(o->tune.out, train_task_loss_unit(&o->tune.reading), o->l.curve);
    if (r->resumed_from == r->steps)
        cli_note_finished(o->tune.out, r->steps);
    cli_steps_print(&(cli_steps){.steps = r->steps,
                                 .resumed_from = r->resumed_from,
                                 .best = r->evaluated ? r->best_step : 0,
                                 .seconds = r->seconds,
                                 .stopped_early = r->stopped_early});
    if (seq2seq && r->evaluated)
        printf(": loss %.4f", r->best.loss);
    printf("\n");
    if (reads_pictures(o))
        cli_picture_summary(r->best.metrics, r->best.n_metrics, r->best.loss, r->data_wait);
    else if (r->evaluated && !seq2seq)
        cli_task_print(&r->best);
    if (r->texts.texts)
        cli_text_print(&r->texts);
    printf("model: %s\n", o->tune.out);
    return CLI_OK;
}

/* What may help. */
static const char *const slower = "use a lower --learning-rate";
static const char *const smaller =
    "use a smaller --batch-size with more --gradient-accumulation-steps, --recompute, --bf16, "
    "--stochastic-rounding, a shorter --max-length, or smaller pictures";

/* Returns an exit code. */
static int start(finetune_options *o, const cli_args *args, const char *dir)
{
    cli_run_screen screen = {.label = "tune", .quiet = o->l.quiet, .log_every = BY_MAX(o->tune.log_every, 1)};
    by_finetune_result result;
    if (!o->t.task)
        o->t.task = usual_task(dir);
    if (cli_lora_parse(&o->adapters, &o->adapter) != BY_OK)
        return cli_usage_fail("%s", by_error_message());
    if (!fill_spec(o, args, &screen) || !fits(o))
        return CLI_USAGE;
    by_device *d = cli_device(o->l.device, o->l.threads);
    o->tune.model = dir;
    cli_interrupt_install();
    by_status status = d ? by_finetune_run(d, &o->tune, &result) : base_error_status();
    cli_run_end(&screen);
    int code = status == BY_OK ? print_result(o, &result) : cli_fail_learning(status, slower, smaller);
    by_device_free(d);
    return code;
}

static int tune(finetune_options *o, const cli_args *args)
{
    char *dir = cli_model_dir(args->items[0]);
    const int code = dir ? start(o, args, dir) : cli_fail(NULL);
    base_free(dir);
    return code;
}

static int run(int argc, char **argv)
{
    finetune_options o;
    cli_command c;
    int code;
    if (!cli_command_open(&cli_finetune, &o, sizeof o, argc, argv, &c, &code))
        return code;
    o.tune.command = c.line;
    o.tune.options = c.given;
    o.own = cli_args_own(&c.args, c.config.earlier);
    if (!o.tune.out || !o.tune.data)
        code = cli_usage_fail("%s", !o.tune.data ? "no data: give --data FILE"
                                                 : "no output directory: give --out DIR");
    else
        code = tune(&o, &c.args);
    cli_lora_free(&o.adapter);
    cli_pictures_free(&o.p);
    cli_command_close(&c);
    return code;
}

const cli_verb cli_finetune = {
    .name = "finetune",
    .summary = "fine-tune a model on labelled examples",
    .args = "MODEL",
    .description =
        "MODEL is a model directory or a run folder. It gets a new head for the task unless it already has "
        "that head with the same labels. Data are tables (TSV, CSV), JSON lines or lists, CoNLL columns "
        "(tag) or SQuAD's JSON (answer), also compressed (.gz, .zst), or - for standard input. The columns "
        "and labels found are printed before training. Labels are numbered in sorted order, and config.json "
        "keeps their names.\n"
        "\n"
        "DIR becomes a model directory that other programs load, with the best model by the task's metric "
        "(accuracy, Pearson's r, F1; ties go to the lower loss) on the --eval data, or without --eval the "
        "last. It also holds metrics.jsonl, run.json, loss.svg and checkpoints. The same command continues a "
        "stopped run.\n"
        "\n"
        "With --lora, MODEL is frozen and a small adapter is trained; DIR becomes a PEFT adapter folder "
        "(adapter_config.json, adapter_model.safetensors) that refers to MODEL and opens like a model. "
        "--weights q4_0 stores the frozen weights in 4 bits (QLoRA). --ia3 trains scaling factors for keys, "
        "values and the input of the second feed-forward layer; --prefix-tuning trains keys and values "
        "prepended to every text, --prompt-tuning embeddings.",
    .examples =
        "banyan finetune bert-base-uncased --data train.tsv --eval dev.tsv --out runs/sentiment\n"
        "# sentence pairs, columns by name\n"
        "banyan finetune roberta-base --data mnli.tsv --text premise --pair hypothesis --label gold_label "
        "--out m\n"
        "banyan finetune bert-base-cased --task tag --data ner.conll --eval dev.conll --out runs/ner\n"
        "banyan finetune bert-base-cased --task qa --data squad.json --max-length 384 --out runs/qa\n"
        "# pictures in a folder per class, with a new head and augmentation\n"
        "banyan finetune vit-base-patch16-224 --task image-classify --data pets/train --eval pets/test "
        "--flip 0.5 --mixup 0.8 --layer-decay 0.75 --out runs/pets\n"
        "# an adapter of rank 16 on all linear layers\n"
        "banyan finetune gpt2 --task lm --data text.txt --lora r=16,alpha=32,targets=all-linear --out "
        "runs/a\n"
        "# an encoder-decoder: columns source and target\n"
        "banyan finetune t5-small --task seq2seq --data train.tsv --eval dev.tsv --prefix 'summarize: ' "
        "--out runs/s\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
