/* verb_train.c - `banyan train`: pretrain a model from scratch, or continue a run. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "banyan/train.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/learning.h"
#include "cli/picture_options.h"
#include "cli/pixel_options.h"
#include "cli/ngram_verbs.h"
#include "cli/run_screen.h"
#include "cli/show_batch.h"
#include "cli/show.h"
#include "cli/train_scope.h"
#include "cli/verbs.h"
#include "models/models.h"

typedef struct train_options {
    by_run_spec run;
    cli_learning l;
    cli_ngram_options ngram;
    cli_pictures p;
    cli_pixels pixels;
    int64_t memory; /* positions, or bytes of an n-gram model */
    cli_list data, eval_data, prefixes;
    const char *languages;
    int masking, show;
    bool trace;
    cli_args own; /* arguments of this command, without recipe and earlier run */
} train_options;

static const cli_option options[] = {
    {CLI_AT(train_options, run.recipe), .name = "recipe", .value = "NAME",
     .help = "use a published set-up; other options override it: multi30k, multi30k-gru, transformer-base, "
             "transformer-big, shakespeare-char, shakespeare-char-cpu, gpt2-124m, bert-base, roberta-base, "
             "t5-base",
     .group = "Recipe"},
    {CLI_AT(train_options, run.family), .name = "model", .letter = 'm', .preset = "gpt2", .value = "FAMILY",
     .help = "model family: gpt2, openai-gpt, bert, roberta, distilbert, albert, xlm, xlm-roberta, "
             "transformer, marian, t5, bart, llama, gptj, linformer, longformer, big_bird, "
             "sparse-transformer, transfo-xl, xlnet, reformer, imagegpt, image-transformer, vit, deit, clip, "
             "vision-encoder-decoder, rnn, lstm, gru, rnn-seq2seq, ngram",
     .group = "Model"},
    {CLI_AT(train_options, run.shape.preset), .name = "preset", .preset = "tiny", .value = "NAME",
     .help =
         "shape by name: tiny, ...; gpt2: 124m, 350m, 774m, 1558m; gptj: 6b; transfo-xl: enwik8, wt103-base, "
         "wt103; reformer: duplication; imagegpt: small, medium, large; image-transformer: cifar10, "
         "cifar10-dmol; vit: small, base, large, grey28; deit: small, base, tiny-distilled, ...; encoders: "
         "small, base, large; rnn, lstm, gru: small, medium, large; rnn-seq2seq: small, base"},
    {CLI_AT(train_options, run.shape.layers), .name = "layers", CLI_MIN(1),
     .help = "number of layers (default: the preset's)"},
    {CLI_AT(train_options, run.shape.decoder_layers), .name = "decoder-layers", CLI_MIN(1),
     .help = "decoder layers of an encoder-decoder (default: --layers)"},
    {CLI_AT(train_options, run.shape.decoder), .name = "decoder",
     .choices = "gpt2|bert|roberta|xlm-roberta|camembert",
     .help = "vision-encoder-decoder: language model that writes the captions (default: gpt2)"},
    {CLI_AT(train_options, run.shape.heads), .name = "heads", CLI_MIN(1),
     .help = "attention heads (default: the preset's)"},
    {CLI_AT(train_options, run.shape.kv_heads), .name = "kv-heads", CLI_MIN(1),
     .help = "llama: key/value heads, shared by groups of heads (default: the preset's)"},
    {CLI_AT(train_options, memory), .name = "memory", CLI_MIN(0), .suffix = true, .bytes = true,
     .help = "transfo-xl, xlnet: memory length in positions, 0 for none (default: the preset's); ngram: "
             "bytes for counts, as in 2G (default: 1Gi)"},
    {CLI_AT(train_options, run.shape.attention), .name = "attention",
     .choices = "strided|fixed|1d|2d|additive|none|dot|general|concat",
     .help = "sparse-transformer: attention pattern, strided or fixed; image-transformer: blocks of one row "
             "or rectangles; rnn-seq2seq: score of the decoder's attention, or none (default: strided, 1d, "
             "additive)"},
    {CLI_AT(train_options, run.shape.cell), .name = "cell", .choices = "gru|lstm|rnn",
     .help = "rnn-seq2seq: cell of the recurrent layers (default: gru)"},
    {CLI_AT(train_options, run.shape.attention_mode), .name = "attention-mode",
     .choices = "merged|alternating|heads",
     .help = "sparse-transformer: both sets of keys in every layer and head, one in each layer in turn, or "
             "one in each half of the heads (default: the preset's)"},
    {CLI_AT(train_options, run.shape.stride), .name = "stride", CLI_MIN(1),
     .help = "sparse-transformer: length of the pattern, for images a row: width times channels (default: "
             "near the square root of the context)"},
    {CLI_AT(train_options, run.shape.summary), .name = "summary", CLI_MIN(1),
     .help = "sparse-transformer: summary positions of a block of a fixed pattern (default: a quarter of the "
             "stride, at most 8)"},
    {CLI_AT(train_options, run.shape.hash_rounds), .name = "hash-rounds", CLI_RANGE(1, 64),
     .help = "reformer: rounds of hashing (default: the preset's)"},
    {CLI_AT(train_options, run.shape.width), .name = "width", CLI_MIN(1),
     .help = "model width (default: the preset's)"},
    {CLI_AT(train_options, run.shape.inner), .name = "inner", CLI_MIN(1),
     .help = "feed-forward width (default: four times the width)"},
    {CLI_AT(train_options, run.shape.context), .name = "context", .letter = 'c', CLI_MIN(1), .suffix = true,
     .help = "maximum sequence length in tokens (default: the preset's)"},
    {CLI_AT(train_options, run.shape.dropout), .name = "dropout", CLI_RANGE(0, 0.99), .preset = "0",
     .help = "dropout probability; encoder-decoders use 0.1 unless given, translate 0.2 below 100,000 pairs"},
    {CLI_AT(train_options, run.shape.init_std), .name = "init-std", CLI_RANGE(1e-6, 10),
     .help = "standard deviation of the initial weights, initializer_range in config.json (default: the "
             "preset's, mostly 0.02; below width 768 0.02 * sqrt(768 / width), at most 0.08)"},
    {CLI_AT(train_options, run.shape.pre_norm), .name = "pre-norm",
     .help = "transformer: norms before the sub-layers (the default); --no-pre-norm puts them after, as in "
             "the 2017 paper"},
    {CLI_AT(train_options, run.shape.patch), .name = "patch", CLI_RANGE(1, 4096),
     .help = "vit, deit, clip, captions: side of a patch in pixels (default: 16 for 224 pixels, 4 for 28 and "
             "32)"},
    {CLI_AT(train_options, run.shape.channels), .name = "channels", CLI_RANGE(1, 3),
     .help = "vit, deit, clip, captions: channels of the pictures, 1 or 3 (default: those of the data)"},
    {CLI_AT(train_options, run.init_from), .name = "init-from", .value = "DIR",
     .help = "start from the weights of this model or run"},

    {CLI_AT(train_options, data), .name = "data", .letter = 'd', .value = "FILE",
     .help = "text files or .bin token shards, as several arguments, patterns or commas; .gz and .zst are "
             "unpacked; - is standard input. For translate: two parallel files, or .tsv, .csv, .jsonl, "
             ".json. For vit, deit, imagegpt, image-transformer: folders, lists of files, IDX or CIFAR "
             "files; for clip and vision-encoder-decoder: a list of files and captions",
     .group = "Data"},
    {CLI_AT(train_options, eval_data), .name = "eval-data", .value = "FILE", .help = "text to evaluate on"},
    {CLI_AT(train_options, run.eval_fraction), .name = "eval-fraction", CLI_RANGE(0, 0.9), .preset = "0.1",
     .help = "without --eval-data, hold out this fraction from the end of the data"},
    {CLI_AT(train_options, run.tokenizer), .name = "tokenizer", .value = "char|byte|DIR|bpe:N",
     .help =
         "tokenizer: characters, bytes, a directory, or bpe:N, unigram:N, wordpiece:N, word:N trained on the "
         "data (default: char, or the model's own with --init-from; ngram: words between white space)"},
    {CLI_AT(train_options, run.target_tokenizer), .name = "target-tokenizer", .value = "DIR|bpe:N",
     .help = "translate: separate tokenizer for the target (transformer, marian)"},

    {CLI_AT(train_options, run.objective.name), .name = "objective",
     .choices = "lm|mlm|nsp|sop|clm|tlm|translate|spans|infill|fim|plm",
     .help = "training objective (default: the family's own)", .group = "Objective"},
    {CLI_AT(train_options, masking), .name = "masking", .choices = "auto|static|dynamic", .preset = "auto",
     .help = "static: the same masks in every epoch (BERT, ALBERT); dynamic: new masks (RoBERTa)"},
    {CLI_AT(train_options, run.objective.mask_copies), .name = "mask-copies", CLI_RANGE(1, 1e6),
     .preset = "1", .help = "static masking: number of differently masked copies (BERT's own data had 10)"},
    {CLI_AT(train_options, run.objective.mask_share), .name = "mask-share", CLI_RANGE(0.001, 1),
     .help = "fraction of masked tokens (default: 0.15; infill: 0.3; plm: 1/6), or of fim documents "
             "(default: 0.5)"},
    {CLI_AT(train_options, run.objective.mask_span), .name = "mask-span", CLI_RANGE(1, 1000),
     .help = "mean span length of spans and infill (default: 3)"},
    {CLI_AT(train_options, run.objective.suffix_first), .name = "suffix-first",
     .help = "fim: order suffix, prefix, middle instead of prefix, suffix, middle"},
    {CLI_AT(train_options, run.objective.whole_words), .name = "whole-words",
     .help = "mask all pieces of a word or none"},
    {CLI_AT(train_options, run.objective.mask_words), .name = "mask-words", CLI_RANGE(1, 100),
     .help = "mask up to N consecutive words (default: 1; sop: 3; plm: 5 pieces)"},
    {CLI_AT(train_options, run.objective.block), .name = "permuted-block", CLI_RANGE(1, 1 << 24),
     .help = "plm: permute the order within blocks of N tokens (default: half a row)"},
    {CLI_AT(train_options, run.objective.reuse), .name = "reuse", CLI_RANGE(1, 1 << 24),
     .help = "plm: tokens of the first part of a row, which the memory keeps and the next row continues "
             "(default: half a row)"},
    {CLI_AT(train_options, run.objective.one_way), .name = "one-way",
     .help = "plm: read all text forwards; otherwise half of the rows are read backwards"},
    {CLI_AT(train_options, languages), .name = "languages", .value = "EN,DE,...",
     .help = "xlm: language of each item of --data"},
    {CLI_AT(train_options, run.objective.parallel), .name = "parallel",
     .help = "translation LM: line i of each language is a translation"},
    {CLI_AT(train_options, run.objective.both_directions), .name = "both-directions",
     .help =
         "translate: use each pair in both directions; >>de<< before the source names the target language"},
    {CLI_AT(train_options, prefixes), .name = "prefix", .value = "TEXT",
     .help = "translate: put TEXT before the source; one per pair of files (two with --both-directions)"},
    {CLI_AT(train_options, run.objective.source), .name = "source-column", .value = "NAME",
     .help = "translate: source column of a table or JSON lines (default: source, or the first)"},
    {CLI_AT(train_options, run.objective.target), .name = "target-column", .value = "NAME",
     .help = "translate: target column (default: target, or the second)"},
    {CLI_AT(train_options, show), .name = "show-batch", CLI_RANGE(1, 1e6),
     .help = "print N rows as the model would get them, with masked tokens marked, without training"},

    CLI_NGRAM_ROWS(train_options),

    {CLI_AT(train_options, run.batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1e6), .preset = "12",
     .help = "sequences per step; pictures: 128 unless given, or an eighth of a small set", .group = "Steps"},
    {CLI_AT(train_options, run.batch_tokens), .name = "batch-tokens", CLI_RANGE(8, 1e8), .preset = "2048",
     .suffix = true, .help = "translate: tokens per step instead, in rows of similar length"},
    {CLI_AT(train_options, run.seq), .name = "seq", CLI_MIN(1),
     .help = "tokens per sequence (default: the context)"},
    CLI_ACCUMULATE_ROW(train_options, run),
    {CLI_AT(train_options, run.steps), .name = "max-steps", .alias = "steps", .letter = 'n', CLI_MIN(1),
     .suffix = true, .help = "total training steps"},
    {CLI_AT(train_options, run.epochs), .name = "epochs", CLI_MIN(1e-6),
     .help = "length in epochs instead (default: enough for 2,000 steps, translate 3,000; at most 20)"},
    CLI_PATIENCE_ROW(train_options, run),

    {CLI_AT(train_options, run.label_smoothing), .name = "label-smoothing", CLI_RANGE(0, 0.99),
     .help = "fraction of each target spread over all tokens (default: 0; translate: 0.1); evaluations do "
             "not use it"},
    {CLI_AT(train_options, run.scheduled_sampling), .name = "scheduled-sampling", CLI_RANGE(0, 1),
     .help = "encoder-decoders: fraction of decoder inputs replaced by the model's own predictions, growing "
             "from 0 to this at the last step (default: 0)"},

    {CLI_AT(train_options, run.optimizer.kind), .name = "optimizer", .choices = "adamw|sgd|adafactor",
     .preset = "adamw", .help = "optimiser; t5 uses adafactor unless given", .group = "Optimiser"},
    {CLI_AT(train_options, run.schedule.rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 100),
     .help = "peak learning rate (default by width: 3e-3 at 128, 5e-4 at 768; encoders a third; translate "
             "2e-3 at 256; pictures 1e-3 up to 384; adafactor 0.03, relative to the parameters)"},
    {CLI_AT(train_options, run.schedule.min_rate), .name = "min-learning-rate", .alias = "min-lr", CLI_MIN(0),
     .help = "final rate of linear and cosine (default: a tenth of the peak)"},
    {CLI_AT(train_options, run.schedule.kind), .name = "lr-scheduler", .alias = "schedule",
     .choices = "constant|linear|cosine|inverse-sqrt", .preset = "cosine", .help = "learning-rate schedule"},
    {CLI_AT(train_options, run.schedule.warmup), .name = "warmup-steps", .alias = "warmup", CLI_MIN(0),
     .help = "steps of linear warm-up (default: a tenth of the run, at most 100; translate: a sixth, at most "
             "4000)"},
    CLI_DECAY_ROW(train_options, run, "0.1"),
    CLI_ADAM_ROWS(train_options, run, "0.99"),
    {CLI_AT(train_options, run.optimizer.momentum), .name = "momentum", CLI_RANGE(0, 0.99999), .preset = "0",
     .help = "SGD: momentum"},
    CLI_CLIP_ROW(train_options, run),

    CLI_PICTURE_DATA_ROWS(train_options, run.images.data),
    {CLI_AT(train_options, run.images.data.file), .name = "file-column", .value = "NAME",
     .help = "column of the file in a list (default: file_name, file, image, path, ...)"},
    {CLI_AT(train_options, run.images.data.label), .name = "label-column", .value = "NAME",
     .help = "column of the class in a list (default: label, class, ...)"},
    CLI_PICTURE_TRAIN_ROWS(train_options, run.images, p),
    CLI_PIXEL_TRAIN_ROWS(train_options, run, pixels),

    CLI_RUN_ROWS(train_options, run, "run folder; the same command continues a run in it",
                 "ten times in all"),
    {CLI_AT(train_options, run.eval_batches), .name = "eval-batches", CLI_MIN(0),
     .help = "batches per evaluation; 0 takes the whole held-out part (default: as many as steps between "
             "evaluations)"},
    CLI_SAVE_ROWS(train_options, run),
    {CLI_AT(train_options, run.average), .name = "average", CLI_RANGE(1, 1000),
     .help = "at the end, write the mean of the N newest checkpoints to averaged/"},
    CLI_LOG_ROWS(train_options, run, "seed of initial values, data order and dropout"),

    CLI_MACHINE_ROWS(train_options, run),

    CLI_JSON_ROW(train_options),
    {CLI_AT(train_options, trace), .name = "trace",
     .help = "print every node of the first step: shape, norm, time"},
    CLI_CURVE_ROWS(train_options),
};

static bool has_memory(const char *family)
{
    const arch_family *a = arch_find(family);
    base_error_clear(); /* an unknown family is reported by the run */
    return a && arch_has(a, ARCH_ROLE_MEMORY);
}

/* Fills in the library's defaults for options that were not given. Returns false after reporting an invalid
 * option. */
static bool fill_spec(train_options *o, const cli_args *args, cli_run_screen *screen)
{
    by_run_spec *r = &o->run;
    const by_run_spec usual = by_run_defaults(r->family, r->objective.name, r->init_from);
    cli_options_default(args, r, &usual, sizeof *r);
    r->shape.memory = cli_given(args, &o->memory) && o->memory == 0 ? -1 : (int)BY_MIN(o->memory, INT32_MAX);
    if (r->shape.memory < 0 && !cli_given(&o->own, &o->memory) && !has_memory(r->family))
        r->shape.memory = 0; /* the record of a family without one */
    if (!cli_given(args, &r->objective.mask_copies))
        r->objective.mask_copies = o->masking == 1 ? 1 : o->masking == 2 ? -1 : 0;
    r->dtype = o->l.bf16 ? BY_BF16 : r->dtype;
    cli_adam_read(&r->optimizer);
    r->objective.prefixes = o->prefixes.items;
    r->objective.prefix_count = o->prefixes.count;
    r->no_peak = o->l.quiet;
    if (!cli_pictures_read(&o->p, &r->images) || !cli_pixels_read(&o->pixels, &r->shape))
        return false;
    r->report = cli_run_report;
    r->cancelled = cli_poll;
    r->trace = o->trace ? cli_trace_line : NULL;
    r->user = screen;
    return true;
}

static int print_result(const train_options *o, const by_run_result *r)
{
    if (o->l.json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "out", o->run.out);
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
        for (int i = 0; i < r->n_metrics; i++)
            cli_json_number(j, r->metrics[i].name, r->metrics[i].value);
        if (isfinite(r->data_wait))
            cJSON_AddNumberToObject(j, "data_wait", r->data_wait);
        cJSON_AddNumberToObject(j, "seconds", r->seconds);
        cJSON_AddNumberToObject(j, "state_bytes", (double)r->state_bytes);
        cJSON_AddNumberToObject(j, "activation_bytes", (double)r->activation_bytes);
        return cli_print_json(j);
    }
    if (!o->l.quiet)
        cli_show_curve(o->run.out,
                       isfinite(r->data_wait) ? "nats per picture"
                       : r->loss_unit         ? r->loss_unit
                                              : "nats per token",
                       o->l.curve);
    if (r->resumed_from == r->steps && !isfinite(r->loss))
        cli_note_finished(o->run.out, r->steps);
    const long long steps = (long long)(r->steps - r->resumed_from);
    printf("%lld step%s in %.1f s", steps, steps == 1 ? "" : "s", r->seconds);
    if (isfinite(r->loss))
        printf(", loss %.4f", r->loss);
    if (isfinite(r->best_eval_loss))
        printf(", best held-out loss %.4f at step %lld", r->best_eval_loss, (long long)r->best_step);
    for (int i = 0; i < r->n_metrics && !isfinite(r->data_wait); i++)
        printf(", %s %.4f", r->metrics[i].name, r->metrics[i].value);
    if (isfinite(r->next_accuracy))
        printf(", NSP/SOP accuracy %.1f%%", 100 * r->next_accuracy);
    if (isfinite(r->averaged_eval_loss))
        printf(", for the mean of %d checkpoints %.4f", r->averaged, r->averaged_eval_loss);
    printf("%s\n", r->stopped_early ? " (stopped early)" : "");
    if (isfinite(r->data_wait))
        cli_picture_summary(r->metrics, r->n_metrics, NAN, r->data_wait);
    printf("model: %s/%s   curve: %s/loss.svg\n", o->run.out, isfinite(r->best_eval_loss) ? "best" : "last",
           o->run.out);
    return CLI_OK;
}

/* What may help. */
static const char *const slower = "use a lower --learning-rate, or --trace to see where it starts";
static const char *const smaller =
    "use a smaller --batch-size with more --gradient-accumulation-steps, --recompute, --bf16, "
    "--stochastic-rounding, a shorter --context, or smaller pictures";

/* Options that count for n-gram models, and those that count for no others. */
static const char *const ngram_own[] = {"order",
                                        "smoothing",
                                        "add-k",
                                        "prune",
                                        "discount-fallback",
                                        "arpa",
                                        "lines",
                                        "skip-symbols",
                                        "temporary",
                                        "fallback-discounts",
                                        "interpolate-unigrams",
                                        NULL};
static const char *const ngram_shared[] = {"model", "data",    "eval-data", "tokenizer", "memory",
                                           "out",   "resume",  "config",    "json",      "overwrite",
                                           "quiet", "threads", NULL};

static int start_ngram(const train_options *o, const cli_args *args)
{
    const cli_option *other = cli_given_beyond(args, ngram_shared, ngram_own);
    if (other)
        return cli_usage_fail("--%s is not for n-gram models", other->name);
    if (cli_given(args, &o->memory) && o->memory == 0)
        return cli_usage_fail("--memory is the bytes for counts of an n-gram model, at least 1");
    return cli_ngram_train(&(cli_ngram_run){.options = &o->ngram,
                                            .data = o->run.data,
                                            .data_count = o->run.data_count,
                                            .eval_data = o->run.eval_data,
                                            .eval_count = o->run.eval_count,
                                            .tokenizer = o->run.tokenizer,
                                            .out = o->run.out,
                                            .memory = o->memory,
                                            .threads = o->l.threads,
                                            .overwrite = o->run.overwrite,
                                            .json = o->l.json,
                                            .quiet = o->l.quiet,
                                            .command = o->run.command,
                                            .given = o->run.options});
}

static int start(const train_options *o, cli_run_screen *screen)
{
    by_run_result result;
    cli_interrupt_install();
    by_device *d = cli_device(o->l.device, o->l.threads);
    int code;
    if (o->show && d) {
        code = cli_show_examples(d, &o->run, o->show, o->l.json);
    } else {
        by_status status = d ? by_train_run(d, &o->run, &result) : base_error_status();
        cli_run_end(screen);
        code = status == BY_OK ? print_result(o, &result) : cli_fail_learning(status, slower, smaller);
    }
    by_device_free(d);
    return code;
}

/* Applies the options of a recipe that were not given. Returns NULL for an unknown name. */
static char *take_recipe(cli_args *args, const char *name)
{
    const by_recipe *r = by_recipe_find(name);
    char *text = r ? base_strdup(r->options) : NULL;
    if (text && cli_options_add(args, text) == BY_OK)
        return text;
    base_free(text);
    return NULL;
}

/* The model in a run folder, whose tokenizer is meant. NULL: the tokenizer is named otherwise. */
static char *tokenizer_dir(const char *asked)
{
    char *dir = asked && base_dir_exists(asked) ? cli_model_dir(asked) : NULL;
    base_error_clear(); /* a directory with only tokenizer files */
    return dir;
}

/* Lists with commas become lists of items; with them the spec is complete. */
static int train(train_options *o, const cli_args *args)
{
    cli_list data = {0}, eval_data = {0}, languages = {0};
    cli_run_screen screen = {
        .label = "train", .quiet = o->l.quiet, .log_every = BY_MAX(o->run.log_every, 1), .estimates = true};
    char *words = tokenizer_dir(o->run.tokenizer);
    if (words)
        o->run.tokenizer = words;
    char *from = o->run.init_from ? cli_model_dir(o->run.init_from) : NULL;
    int code;
    if ((o->run.init_from && !from) || cli_list_split(&data, o->data.items, o->data.count) != BY_OK ||
        cli_list_split(&eval_data, o->eval_data.items, o->eval_data.count) != BY_OK ||
        cli_list_split(&languages, &o->languages, o->languages != NULL) != BY_OK) {
        code = cli_fail(NULL);
    } else if (!fill_spec(o, args, &screen)) {
        code = CLI_USAGE;
    } else {
        o->run.init_from = from;
        o->run.data = data.items;
        o->run.data_count = data.count;
        o->run.eval_data = eval_data.items;
        o->run.eval_count = eval_data.count;
        o->run.eval_fraction = eval_data.count ? 0 : o->run.eval_fraction;
        o->run.objective.languages = languages.items;
        o->run.objective.language_count = languages.count;
        code = by_ngram_is_family(o->run.family)  ? start_ngram(o, args)
               : cli_train_fits(&o->run, &o->own) ? start(o, &screen)
                                                  : CLI_USAGE;
    }
    cli_list_free(&data);
    cli_list_free(&eval_data);
    cli_list_free(&languages);
    cli_pictures_free(&o->p);
    base_free(words);
    base_free(from);
    return code;
}

static int run(int argc, char **argv)
{
    train_options o;
    cli_command c;
    int code;
    char *recipe = NULL;
    if (!cli_command_open(&cli_train, &o, sizeof o, argc, argv, &c, &code))
        return code;
    o.run.command = c.line;
    o.run.options = c.given;
    o.own = cli_args_own(&c.args, c.config.earlier);
    if (o.run.recipe && !(recipe = take_recipe(&c.args, o.run.recipe)))
        code = cli_fail(NULL);
    else if (!o.data.count || (!o.run.out && !o.show))
        code = cli_usage_fail("%s", !o.data.count
                                        ? "no data: give --data FILE, or --resume DIR to continue a run"
                                        : "no run folder: give --out DIR");
    else if (!by_ngram_is_family(o.run.family) && cli_given_among(&c.args, ngram_own))
        code = cli_usage_fail("--%s is for n-gram models (--model ngram)",
                              cli_given_among(&c.args, ngram_own)->name);
    else
        code = train(&o, &c.args);
    base_free(recipe);
    cli_command_close(&c);
    return code;
}

const cli_verb cli_train = {
    .name = "train",
    .group = "Training",
    .summary = "train a model from scratch, or continue a run",
    .description = "Trains a model on text with the objective of its family and writes a run folder: "
                   "checkpoints (HuggingFace directories; last and best link to them), metrics.jsonl, "
                   "TensorBoard events, loss.svg and run.json.\n"
                   "\n"
                   "The same command continues a stopped run bit for bit, after Ctrl-C, a crash or a power "
                   "cut; so do --resume DIR and --out DIR alone. A larger --max-steps makes a run longer. A "
                   "run removes and replaces only files that it wrote (owned.json lists them).\n"
                   "\n"
                   "--model ngram estimates an n-gram model of words or tokens, with the same estimates as "
                   "KenLM's lmplz. Counts that do not fit in --memory are kept in sorted runs in unnamed "
                   "temporary files. An interrupted run starts over; the model appears when it is complete.",
    .examples =
        "# a character model of Shakespeare\n"
        "banyan train --data shakespeare.txt --out runs/shakespeare --max-steps 2000\n"
        "# continue it for longer\n"
        "banyan train --resume runs/shakespeare --max-steps 4000\n"
        "# GPT-2 124M on token shards, in bfloat16\n"
        "banyan train --preset 124m --data 'shards/*.bin' --bf16 --batch-size 8 --out runs/gpt2\n"
        "# BERT: masked words and next sentences; inspect the examples first\n"
        "banyan train --model bert --tokenizer DIR --data docs.txt --seq 128 --show-batch 3\n"
        "banyan train --model bert --tokenizer DIR --data docs.txt --seq 128 --out runs/bert\n"
        "# English to German, with a shared vocabulary\n"
        "banyan train --model transformer --data train.en train.de --eval-data val.en val.de --tokenizer "
        "bpe:8000 --out runs/en-de\n"
        "# a published set-up with one change\n"
        "banyan train --recipe shakespeare-char --data shakespeare.txt --max-steps 2000 --out runs/char\n"
        "# a 5-gram model of words, and one of characters\n"
        "banyan train --model ngram --order 5 --data corpus.txt --out runs/ng --arpa ng.arpa.gz\n"
        "banyan train --model ngram --order 8 --tokenizer char --data corpus.txt --out runs/chars\n"
        "# a Vision Transformer from scratch on the gzipped files of Fashion-MNIST\n"
        "banyan train --model vit --preset grey28 --data train-images-idx3-ubyte.gz --flip 0.5 --epochs 20 "
        "--out runs/fashion\n"
        "# a DeiT that learns from this teacher, and a captioning model\n"
        "banyan train --model deit --preset tiny-distilled --teacher runs/fashion --data "
        "train-images-idx3-ubyte.gz --out runs/student\n"
        "banyan train --model vision-encoder-decoder --data pairs.tsv --image-size 64 --out runs/captions\n"
        "# pixel models of the same pictures\n"
        "banyan train --model imagegpt --data train-images-idx3-ubyte.gz --colours 32 --out runs/igpt\n"
        "banyan train --model image-transformer --distribution dmol --data cifar-10-batches-bin --out "
        "runs/it\n"
        "# super-resolution\n"
        "banyan train --model image-transformer --upscale 4 --data cifar-10-batches-bin --out runs/larger\n"
        "# XLM on sentences and their translations\n"
        "banyan train --model xlm --tokenizer DIR --data en.txt,de.txt --languages en,de --parallel --seq 64 "
        "--out runs/xlm\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
