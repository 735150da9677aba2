/* verb_rewrite.c - banyan translate, banyan summarize, banyan caption: texts and pictures to text with an
 * encoder-decoder. The model's directory has the settings that the options do not give. */
#include <unistd.h>

#include "banyan/rewrite.h"
#include "base/json.h"
#include "cli/common.h"
#include "cli/ngram_verbs.h"
#include "cli/pictures.h"
#include "cli/read.h"
#include "cli/strategy.h"
#include "cli/verbs.h"
#include "infer/picture_passes.h"

enum { TOGETHER = 512 }; /* lines sorted by length and answered at once */

typedef struct rewrite_options {
    cli_read_options read;
    cli_strategy strategy;
    cli_mix_options mix;
    const char *prefix, *task, *from, *to;
    int max_new, max_source;
    double temp, top_p;
    int top_k;
    int64_t seed;
    bool truncate, time;
    bool plain; /* without generation_config.json */
} rewrite_options;

/* Differences between the verbs. */
typedef struct kind {
    const cli_verb *verb;
    bool summary, pictures;
} kind;

/* clang-format off */
#define MACHINE_ROWS                                                                                         \
    CLI_MODEL_ROWS(rewrite_options),                                                                         \
    {CLI_AT(rewrite_options, time), .name = "time", .help = "print the time taken on stderr"}

#define ROWS(cut)                                                                                                  \
    CLI_TEXT_ROWS(rewrite_options),                                                                                \
    {CLI_AT(rewrite_options, truncate), .name = "truncate", .preset = cut,                                         \
     .help = "cut a text that is longer than the model can read; otherwise it is an error"},                       \
    {CLI_AT(rewrite_options, max_source), .name = "max-source", CLI_RANGE(1, 1 << 24), .suffix = true,             \
     .help = "read at most N tokens of a text and cut the rest, with a note (default: the model's "                \
             "limit, else the tokenizer's model_max_length, else 1024)"},                                          \
    {CLI_AT(rewrite_options, prefix), .name = "prefix", .value = "TEXT", .group = "Task",                          \
     .help = "put TEXT before every source (T5: \"translate English to German: \")"},                              \
    {CLI_AT(rewrite_options, task), .name = "task", .value = "NAME",                                               \
     .help = "use the settings under this name in config.json (task_specific_params)"},                            \
    WRITING_ROWS("twice the source plus 32")

#define WRITING_ROWS(most)                                                                                         \
    {CLI_AT(rewrite_options, plain), .name = "no-generation-config",                                               \
     .help = "ignore the generation settings in the model's directory"},                                           \
    {CLI_AT(rewrite_options, max_new), .name = "max-new-tokens", .letter = 'n', CLI_RANGE(0, 1e9), .preset = "0",  \
     .help = "maximum new tokens; 0 takes the model's setting, else " most, .group = "Length"},                    \
    CLI_END_ROWS(rewrite_options),                                                                                 \
    CLI_BEAM_ROWS(rewrite_options, "5"),                                                                           \
    CLI_MIX_ROWS(rewrite_options, "whose log-probabilities are added in the search"),                              \
    CLI_CONSTRAINT_ROWS(rewrite_options),                                                                          \
    {CLI_AT(rewrite_options, temp), .name = "temp", .alias = "temperature", CLI_RANGE(0, 1e6), .preset = "0",      \
     .help = "above 0, sample instead of searching; with --beams, sample within the search", .group = "Sampling"}, \
    {CLI_AT(rewrite_options, top_k), .name = "top-k", CLI_RANGE(0, 1e9), .preset = "0",                            \
     .help = "keep the k most likely tokens; 0 keeps all"},                                                        \
    {CLI_AT(rewrite_options, top_p), .name = "top-p", CLI_RANGE(0, 1), .preset = "1",                              \
     .help = "keep the most likely tokens whose probabilities reach p; 1 keeps all"},                              \
    CLI_CUTOFF_ROWS(rewrite_options),                                                                              \
    {CLI_AT(rewrite_options, seed), .name = "seed", CLI_RANGE(0, 9e15), .preset = "0", .help = "seed for sampling"}
/* clang-format on */

static const cli_option translate_rows[] = {
    ROWS("no"),
    {CLI_AT(rewrite_options, from), .name = "from", .value = "LANG", .group = "Languages",
     .help = "language of the source, for multilingual models"},
    {CLI_AT(rewrite_options, to), .name = "to", .value = "LANG", .help = "language of the translation"},
    MACHINE_ROWS,
};
static const cli_option summarize_rows[] = {ROWS("yes"), MACHINE_ROWS};
static const cli_option caption_rows[] = {
    {CLI_AT(rewrite_options, read.file), .name = "file", .letter = 'f', .value = "FILE", .group = "Pictures",
     .help = "read the pictures of a dataset or list (default: paths on standard input)"},
    {CLI_AT(rewrite_options, read.json), .name = "json", .help = "print one JSON object per picture"},
    WRITING_ROWS("32"),
    MACHINE_ROWS,
};

typedef struct job {
    rewrite_options o;
    const kind *kind;
    by_device *device;
    by_model *model;
    by_tokenizer *tokenizer;
    by_processor *processor; /* of pictures; otherwise NULL */
    by_ngram *ngram;
    by_rewrite_defaults defaults;
    cli_constraints constraints;
    by_rewriter *rewriter;
    char *prefix;
    int64_t cut, texts;
    double seconds;
} job;

/* ---- settings -------------------------------------------------------------------------------- */

static by_status set_prefix(job *j, const char *text)
{
    base_free(j->prefix);
    j->prefix = text ? base_strdup(text) : NULL;
    return !text || j->prefix ? BY_OK : BY_ERR_MEMORY;
}

/* Marian's models of many languages have a token >>xx<< for each they write. */
static by_status use_token(job *j, const char *to)
{
    char *token = base_sprintf(">>%s<<", to), *text = base_sprintf(">>%s<< ", to);
    by_status s = token && text ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && by_tokenizer_find(j->tokenizer, token) < 0)
        s = base_fail(BY_ERR_ARGUMENT,
                      "unknown language \"%s\": the tokenizer has no %s, and there is no task "
                      "\"translation_%s_to_%s\" in config.json",
                      to, token, j->o.from ? j->o.from : "en", to);
    if (s == BY_OK)
        s = set_prefix(j, text);
    base_free(token);
    base_free(text);
    return s;
}

/* The settings of the model's directory for the requested task. */
static by_status load_defaults(job *j, const char *dir)
{
    const rewrite_options *o = &j->o;
    char *named = o->to ? base_sprintf("translation_%s_to_%s", o->from ? o->from : "en", o->to) : NULL;
    const char *task = o->task ? o->task : j->kind->summary ? "summarization" : named;
    by_status s = o->plain ? by_rewrite_defaults_none(j->model, dir, &j->defaults)
                           : by_rewrite_defaults_load(j->model, dir, task, &j->defaults);
    if (s == BY_OK && o->plain && o->to)
        s = use_token(j, o->to);
    if (s != BY_OK && !o->task && s == BY_ERR_ARGUMENT) { /* it may go without */
        by_rewrite_defaults_free(&j->defaults);
        s = by_rewrite_defaults_load(j->model, dir, NULL, &j->defaults);
        if (s == BY_OK && o->to)
            s = use_token(j, o->to);
    }
    base_free(named);
    if (s == BY_OK && !j->prefix)
        s = set_prefix(j, j->defaults.prefix);
    return s == BY_OK && o->prefix ? set_prefix(j, o->prefix) : s;
}

/* Options take precedence over the model's settings. */
static by_status make_spec(job *j, const cli_args *args, by_generate_spec *spec)
{
    const by_sampling *own = &j->defaults.generate.sampling;
    const bool given = cli_given(args, &j->o.strategy.beams), draws = cli_given(args, &j->o.temp);
    const int most = j->o.max_new ? j->o.max_new : by_rewrite_defaults_most(&j->defaults, 1);
    cli_strategy s = j->o.strategy;
    if (j->o.temp > 0 && s.returned > 1 && !given)
        return base_fail(BY_ERR_ARGUMENT, "--temp samples one text; --return needs --beams");
    BY_TRY(cli_strategy_merge(&j->defaults, args, &j->o.strategy, 1, most, &s, &j->constraints));
    if (!given && (j->o.temp > 0 || s.beams < 1))
        s.beams = j->o.temp > 0 ? 1 : 5;
    if (!draws)
        cli_strategy_cutoffs(&j->defaults, args, &j->o.strategy, &s);
    BY_TRY(cli_constraints_open(&s, j->tokenizer, &j->constraints));
    BY_TRY(cli_constraints_add(&j->constraints, own->words, own->word_count));
    cli_strategy_apply(&s, &j->constraints, spec);
    spec->sampling.temperature = draws ? j->o.temp : own->temperature;
    BY_TRY(cli_check_cutoffs(args, spec->sampling.temperature));
    spec->sampling.top_k = draws || cli_given(args, &j->o.top_k) ? j->o.top_k : own->top_k;
    spec->sampling.top_p =
        draws || own->top_p == 0 || cli_given(args, &j->o.top_p) ? cli_share(j->o.top_p) : own->top_p;
    spec->sampling.min_p = draws ? 0 : own->min_p;
    spec->sampling.typical_p = draws ? 0 : own->typical_p;
    spec->sampling.seed = (uint64_t)j->o.seed;
    spec->max_new_tokens = j->o.max_new ? j->o.max_new : BY_MIN(most, by_model_context(j->model));
    cli_strategy_finish(&j->defaults, &s, spec);
    if (s.stop.count) {
        spec->stop_strings = s.stop.items;
        spec->stop_string_count = s.stop.count;
    }
    return BY_OK;
}

static by_status open_job(job *j, const cli_args *args)
{
    const cli_read_options *read = &j->o.read;
    char *dir = cli_model_dir(args->items[0]);
    cli_note_widening(dir, (by_dtype)read->dtype);
    j->device = dir ? cli_device(read->device, read->threads) : NULL;
    const by_model_spec opening = {.dtype = (by_dtype)read->dtype, .adapter_folder = read->adapter};
    j->model = j->device ? by_model_open(j->device, dir, &opening) : NULL;
    by_pictures p;
    if (j->model && j->kind->pictures && (!by_model_pictures(j->model, &p) || !by_model_is_pair(j->model))) {
        base_free(dir);
        return base_fail(BY_ERR_ARGUMENT, "%s does not generate captions",
                         base_a(by_model_class(j->model)).text);
    }
    j->tokenizer = j->model ? cli_tokenizer(args->items[0]) : NULL;
    by_status s = j->tokenizer ? load_defaults(j, dir) : base_error_status();
    if (s == BY_OK && j->kind->pictures && !(j->processor = gen_processor_open(j->model, dir, read->adapter)))
        s = base_error_status();
    base_free(dir);
    by_rewriter_spec spec = {.generate.cancelled = cli_poll,
                             .batch = read->batch,
                             .prefix = j->prefix,
                             .truncate = j->o.truncate,
                             .max_source = j->o.max_source ? j->o.max_source : j->defaults.max_source};
    if (s == BY_OK)
        s = make_spec(j, args, &spec.generate);
    if (s == BY_OK)
        s = cli_mix_open(&j->o.mix, j->tokenizer, &j->ngram, &spec.generate.ngram);
    if (s == BY_OK)
        j->rewriter = by_rewriter_new(j->model, j->tokenizer, &spec);
    return s == BY_OK && !j->rewriter ? base_error_status() : s;
}

static void close_job(job *j)
{
    by_rewriter_free(j->rewriter);
    by_ngram_free(j->ngram);
    cli_constraints_close(&j->constraints);
    by_rewrite_defaults_free(&j->defaults);
    by_processor_free(j->processor);
    by_tokenizer_free(j->tokenizer);
    by_model_free(j->model);
    by_device_free(j->device);
    base_free(j->prefix);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* A translation is printed on one line. */
static void put_line(const char *text)
{
    for (; *text; text++)
        putchar(*text == '\n' || *text == '\r' ? ' ' : *text);
    putchar('\n');
}

/* what: "source" or "picture". */
static by_status put_json(const char *what, const char *source, const by_rewriting *list, int count)
{
    base_buf out = {0};
    base_buf_printf(&out, "{\"%s\":", what);
    base_json_quote(&out, source);
    base_buf_puts(&out, ",\"text\":");
    base_json_quote_bytes(&out, list[0].text, list[0].size);
    base_buf_puts(&out, ",\"score\":");
    base_json_put_number(&out, (double)list[0].score, 9);
    for (int i = 1; i < count; i++) {
        base_buf_puts(&out, i == 1 ? ",\"others\":[{\"text\":" : ",{\"text\":");
        base_json_quote_bytes(&out, list[i].text, list[i].size);
        base_buf_puts(&out, ",\"score\":");
        base_json_put_number(&out, (double)list[i].score, 9);
        base_buf_puts(&out, i + 1 == count ? "}]" : "}");
    }
    base_buf_puts(&out, list[0].cut ? ",\"cut\":true}\n" : "}\n");
    by_status s = out.failed ? base_fail(BY_ERR_MEMORY, "out of memory while printing") : BY_OK;
    if (s == BY_OK)
        fwrite(out.data, 1, out.size, stdout);
    base_buf_free(&out);
    return s;
}

/* A text ends before the first stop string. */
static void cut_text(const cli_list *stops, by_rewriting *r)
{
    for (int i = 0; i < stops->count; i++) {
        const size_t n = strlen(stops->items[i]);
        char *at = n ? memmem(r->text, r->size, stops->items[i], n) : NULL;
        if (!at)
            continue;
        r->size = (size_t)(at - r->text);
        *at = '\0';
    }
}

/* Prints the texts of one source. Captions are prefixed with the picture if there are several. */
static by_status put_texts(job *j, const char *source, bool named, by_rewriting *own)
{
    const int returned = by_rewriter_returned(j->rewriter);
    for (int k = 0; k < returned; k++)
        cut_text(&j->o.strategy.stop, &own[k]);
    j->cut += own->cut;
    if (j->o.read.json)
        return put_json(j->kind->pictures ? "picture" : "source", source, own, returned);
    for (int k = 0; k < returned; k++) {
        if (named)
            printf("%s\t", source);
        if (returned > 1)
            printf("%.4f\t", (double)own[k].score);
        put_line(own[k].text);
    }
    return BY_OK;
}

static by_status rewrite(job *j, const cli_texts *t)
{
    const int returned = by_rewriter_returned(j->rewriter);
    by_rewriting *list;
    double begin = base_seconds();
    BY_TRY(by_rewriter_run(j->rewriter, (const char *const *)t->texts, t->count, &list));
    j->seconds += base_seconds() - begin;
    j->texts += t->count;
    by_status s = BY_OK;
    for (int i = 0; i < t->count && s == BY_OK; i++)
        s = put_texts(j, t->texts[i], false, list + (size_t)i * (size_t)returned);
    by_rewritings_free(list, t->count * returned);
    return s;
}

static by_status rewrite_lines(job *j, cli_texts *texts)
{
    by_status s = BY_OK;
    if (texts->n_arguments == 0 && !texts->path && isatty(STDIN_FILENO))
        cli_note("type a text and press Enter; Ctrl-D ends");
    while (s == BY_OK && (s = cli_texts_next(texts)) == BY_OK && texts->count > 0 && cli_flush())
        s = rewrite(j, texts);
    return s;
}

/* ---- pictures -------------------------------------------------------------------------------- */

static by_status caption(job *j, const by_picture_set *set)
{
    const int returned = by_rewriter_returned(j->rewriter);
    const int64_t all = by_picture_set_count(set);
    by_status s = BY_OK;
    for (int64_t first = 0; first < all && s == BY_OK && cli_flush() && !cli_interrupted();
         first += TOGETHER) {
        const int count = (int)BY_MIN(all - first, (int64_t)TOGETHER);
        by_rewriting *list;
        const double begin = base_seconds();
        BY_TRY(by_rewriter_caption(j->rewriter, j->processor, set, first, count, &list));
        j->seconds += base_seconds() - begin;
        j->texts += count;
        for (int i = 0; i < count && s == BY_OK; i++) {
            char name[4096];
            by_picture_set_name(set, first + i, name, sizeof name);
            s = put_texts(j, name, all > 1, list + (size_t)i * (size_t)returned);
        }
        by_rewritings_free(list, count * returned);
    }
    return s;
}

static by_status caption_all(job *j, const cli_texts *names)
{
    by_picture_set *set = cli_pictures_open(names->arguments, names->n_arguments, names->path,
                                            by_processor_channels(j->processor));
    by_status s = set ? caption(j, set) : base_error_status();
    by_picture_set_free(set);
    return s;
}

static int run_kind(const kind *k, int argc, char **argv)
{
    job j = {.kind = k};
    cli_args args;
    int code;
    if (!cli_parse(k->verb, argc, argv, &j.o, &args, &code) || !cli_one_source(j.o.read.file, &args, &code))
        return code;
    cli_interrupt_install();
    cli_texts texts = {.arguments = args.items + 1,
                       .n_arguments = args.count - 1,
                       .path = j.o.read.file,
                       .most = BY_MAX(TOGETHER, j.o.read.batch)};
    by_status s = open_job(&j, &args);
    if (s == BY_OK)
        s = k->pictures ? caption_all(&j, &texts) : rewrite_lines(&j, &texts);
    if (s != BY_OK && j.model && !j.tokenizer && !k->pictures)
        code = cli_fail(
            "a model without a tokenizer takes token ids: banyan generate %s --ids --beams 5 -p \"5 6 2\"",
            args.items[0]);
    else
        code = s != BY_OK ? cli_fail(NULL) : cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
    if (j.cut)
        cli_note("%lld text%s cut to the first %d tokens (--max-source)", (long long)j.cut,
                 j.cut == 1 ? " was" : "s were", by_rewriter_most(j.rewriter));
    if (j.o.time && s == BY_OK)
        cli_note("%lld %s in %.3f s, %.1f per second", (long long)j.texts, k->pictures ? "pictures" : "texts",
                 j.seconds, (double)j.texts / j.seconds);
    cli_texts_free(&texts);
    close_job(&j);
    cli_args_free(&args);
    return code;
}

static const kind translation = {.verb = &cli_translate}, summary = {.verb = &cli_summarize, .summary = true},
                  captions = {.verb = &cli_caption, .pictures = true};

static int run_translate(int argc, char **argv)
{
    return run_kind(&translation, argc, argv);
}

static int run_summarize(int argc, char **argv)
{
    return run_kind(&summary, argc, argv);
}

static int run_caption(int argc, char **argv)
{
    return run_kind(&captions, argc, argv);
}

const cli_verb cli_translate = {
    .name = "translate",
    .summary = "translate texts, or run any encoder-decoder",
    .args = "MODEL [TEXT...]",
    .description = "Prints one line for each TEXT or, without TEXT, for each line of the input: the best "
                   "output of a beam search. An empty line gives an empty line.\n"
                   "\n"
                   "Beams, penalties and lengths come from the options, then from the model's "
                   "generation_config.json (or config.json if there is none). The default is 5 beams.\n"
                   "\n"
                   "For multilingual models, --from and --to select a task in config.json "
                   "(translation_en_to_de) or put Marian's >>de<< before the text.",
    .examples = "banyan translate opus-mt-en-de \"A man is riding a bicycle.\"\n"
                "banyan translate runs/multi30k < test.en > test.de\n"
                "banyan translate t5-small --to de --beams 4 --return 4 \"That is good.\"\n"
                "# with a language model of the target in the search (shallow fusion)\n"
                "banyan train --model ngram --order 4 --tokenizer runs/multi30k --lines --data train.de "
                "--out runs/de\n"
                "banyan translate runs/multi30k --ngram runs/de --ngram-weight 0.1 < test.en\n",
    .options = translate_rows,
    .option_count = BY_COUNT(translate_rows),
    .run = run_translate,
};

const cli_verb cli_summarize = {
    .name = "summarize",
    .summary = "summarise texts with an encoder-decoder",
    .args = "MODEL [TEXT...]",
    .description =
        "Prints one line for each TEXT or, without TEXT, for each line of the input. Settings come from the "
        "options, then from the task \"summarization\" in config.json (length, beams, T5's prefix), then "
        "from generation_config.json. Texts that are too long are cut, with a note on stderr.",
    .examples = "banyan summarize bart-large-cnn -f articles.txt\n"
                "banyan summarize t5-base --max-new-tokens 60 --no-repeat-ngram 3 < article.txt\n",
    .options = summarize_rows,
    .option_count = BY_COUNT(summarize_rows),
    .run = run_summarize,
};

const cli_verb cli_caption = {
    .name = "caption",
    .summary = "describe pictures with an encoder-decoder",
    .args = "MODEL [PICTURE...]",
    .description = "Prints a sentence for each PICTURE: a PNG, JPEG, WebP or GIF file, a directory of them, "
                   "or a dataset that finetune reads. With more than one picture, its name and a tab stand "
                   "before the sentence. Pictures are prepared as preprocessor_config.json says.\n"
                   "\n"
                   "Beams, penalties and lengths come from the options, then from the model's "
                   "generation_config.json (or config.json if there is none). The default is 5 beams.",
    .examples = "banyan caption vit-gpt2-image-captioning photo.jpg\n"
                "banyan caption runs/captions photos/ --beams 3 --json > captions.jsonl\n",
    .options = caption_rows,
    .option_count = BY_COUNT(caption_rows),
    .run = run_caption,
};
