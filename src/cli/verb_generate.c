/* verb_generate.c - banyan generate: continue a prompt. Text goes to stdout as it comes. */
#include <time.h>
#include <unistd.h>

#include "cli/cache_options.h"
#include "cli/common.h"
#include "cli/generate_pictures.h"
#include "cli/generating.h"
#include "cli/verbs.h"
#include "data/fim.h"

enum { ROWS_AT_ONCE = 8, MOST_TEXTS = 64 }; /* samples that grow side by side; texts of a beam search */

static const cli_option rows[] = {
    {CLI_AT(cli_generate_options, prompt), .name = "prompt", .letter = 'p', .help = "text to continue",
     .group = "Prompt"},
    {CLI_AT(cli_generate_options, file), .name = "file", .letter = 'f', .value = "FILE",
     .help = "read the prompt from FILE, - for standard input; one trailing newline is dropped"},
    {CLI_AT(cli_generate_options, lines), .name = "lines",
     .help =
         "treat each line of the file as a prompt; print one line per text, with newlines written as \\n"},
    {CLI_AT(cli_generate_options, before), .name = "prefix",
     .help = "fill in the middle: text before the gap"},
    {CLI_AT(cli_generate_options, after), .name = "suffix",
     .help = "fill in the middle: text after the gap; prints the middle. For models trained with --objective "
             "fim"},
    {CLI_AT(cli_generate_options, ids), .name = "ids",
     .help = "read the prompt and print the output as token ids; needs no tokenizer"},

    {CLI_AT(cli_generate_options, max_new), .name = "max-new-tokens", .alias = "n-predict", .letter = 'n',
     CLI_RANGE(0, 1e9), .suffix = true, .preset = "128", .help = "maximum new tokens; 0 fills the context",
     .group = "Length"},
    {CLI_AT(cli_generate_options, plain), .name = "no-generation-config",
     .help = "ignore the model's generation_config.json"},
    CLI_END_ROWS(cli_generate_options),
    {CLI_AT(cli_generate_options, ignore_eos), .name = "ignore-eos",
     .help = "continue after an end-of-text token"},
    {CLI_AT(cli_generate_options, context), .name = "context", .alias = "ctx-size", .letter = 'c',
     CLI_RANGE(0, 1 << 24), .preset = "0", .help = "tokens the model sees; 0 uses the model's full context"},
    {CLI_AT(cli_generate_options, slide), .name = "slide", .preset = "yes",
     .help = "when the context is full, continue with its last half; with --no-slide that is an error"},
    {CLI_AT(cli_generate_options, window), .name = "window", CLI_RANGE(0, 1 << 24), .suffix = true,
     .preset = "0",
     .help = "endless text: the model sees this many tokens, including the first --sinks tokens of the text; "
             "0: off"},
    {CLI_AT(cli_generate_options, sinks), .name = "sinks", CLI_RANGE(0, 1 << 24), .preset = "4",
     .help = "with --window, tokens at the start of the text that are always kept"},

    {CLI_AT(cli_generate_options, temp), .name = "temp", .alias = "temperature", CLI_RANGE(0, 1e6),
     .preset = "0.8", .help = "divide the logits by this; 0 is greedy", .group = "Sampling"},
    {CLI_AT(cli_generate_options, greedy), .name = "greedy", .help = "same as --temp 0"},
    {CLI_AT(cli_generate_options, top_k), .name = "top-k", CLI_RANGE(0, 1e9), .preset = "40",
     .help = "keep the k most likely tokens; 0 keeps all"},
    {CLI_AT(cli_generate_options, top_p), .name = "top-p", CLI_RANGE(0, 1), .preset = "0.95",
     .help = "keep the most likely tokens whose probabilities reach p; 1 keeps all"},
    {CLI_AT(cli_generate_options, min_p), .name = "min-p", CLI_RANGE(0, 1), .preset = "0.05",
     .help = "keep tokens of at least this share of the highest probability; 0 keeps all"},
    {CLI_AT(cli_generate_options, typical), .name = "typical", .alias = "typical-p", CLI_RANGE(0, 1),
     .preset = "1", .help = "keep the most typical tokens whose probabilities reach p; 1 keeps all"},
    CLI_CUTOFF_ROWS(cli_generate_options),
    {CLI_AT(cli_generate_options, seed), .name = "seed", .letter = 's', CLI_MIN(0),
     .help = "seed for sampling (default: random)"},
    {CLI_AT(cli_generate_options, samples), .name = "samples", CLI_RANGE(1, 1e6), .preset = "1",
     .help = "number of texts to generate; pixel models: of pictures, for each that is completed"},

    CLI_CACHE_ROWS(cli_generate_options, cache),

    CLI_MIX_ROWS(cli_generate_options,
                 "to interpolate with; with --beams, its log-probabilities are added in the search"),

    CLI_CONSTRAINT_ROWS(cli_generate_options),

    CLI_BEAM_ROWS(cli_generate_options, "1"),

    {CLI_AT(cli_generate_options, out), .name = "out", .letter = 'o', .value = "FILE.png",
     .help = "file for the grid of pictures", .group = "Pixel models"},
    {CLI_AT(cli_generate_options, complete), .name = "complete", .value = "FILE",
     .help = "complete these pictures, or the first pictures of a dataset. Each becomes a row of the grid: "
             "the picture, the given part, the samples"},
    {CLI_AT(cli_generate_options, upscale), .name = "upscale", .value = "FILE",
     .help = "models trained with --upscale: enlarge these pictures, or the first pictures of a dataset. A "
             "picture that does not have the input size is first scaled to the output size and averaged. "
             "Each becomes a row of the grid: the picture, the input, the samples"},
    {CLI_AT(cli_generate_options, limit), .name = "limit", CLI_RANGE(1, 4096), .preset = "6",
     .help = "maximum pictures of a dataset to complete or enlarge"},
    {CLI_AT(cli_generate_options, keep), .name = "keep", CLI_RANGE(0, 1), .preset = "0.5",
     .help = "fraction of the rows that is given, from the top"},
    {CLI_AT(cli_generate_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 4096), .preset = "16", .help = "pictures per batch"},
    {CLI_AT(cli_generate_options, scale), .name = "scale", CLI_RANGE(1, 64),
     .help = "enlarge pixels by this factor (default: pictures of 64 pixels or more)"},

    {CLI_AT(cli_generate_options, echo), .name = "echo", .preset = "yes",
     .help = "print the prompt before the text", .group = "Output"},
    {CLI_AT(cli_generate_options, strategy.explain), .name = "explain",
     .help = "show the candidates of every step, the effect of each rule, and the choice"},
    {CLI_AT(cli_generate_options, json), .name = "json",
     .help = "print one JSON object per text: text, ids, finish_reason, score, tokens; with --explain also "
             "one per step"},
    {CLI_AT(cli_generate_options, verbose), .name = "verbose", .letter = 'v',
     .help = "print speed and time to the first token on stderr"},

    {CLI_AT(cli_generate_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(cli_generate_options, dtype), .name = "dtype", .choices = "f32|bf16", .preset = "f32",
     .help = "precision of weights and cache"},
    CLI_WEIGHTS(cli_generate_options, weights),
    CLI_ADAPTER(cli_generate_options, adapter),
    {CLI_AT(cli_generate_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096),
     .preset = "0", .help = "CPU threads; 0 uses every core"},
};

/* ---- the prompts ----------------------------------------------------------------------------- */

/* Write into a hole. */
static bool fills_in(const cli_generate_options *o)
{
    return o->before || o->after;
}

/* From --prompt, the arguments, a file, or stdin when it is not a terminal; otherwise empty. */
static by_status read_prompts(cli_generation *j, const cli_args *args)
{
    const cli_generate_options *o = &j->o;
    const bool piped = !o->prompt && !fills_in(o) && args->count < 2 && !isatty(STDIN_FILENO);
    return cli_prompts_read(&j->prompts, o->prompt, args->items + 1, args->count - 1, o->file, piped,
                            o->lines);
}

/* An encoder-decoder reads the prompt and generates a separate text. */
static bool is_pair(const cli_generation *j)
{
    return j->model && by_model_task(j->model) == BY_TASK_SEQ2SEQ;
}

static by_status encode_prompts(cli_generation *j)
{
    if (!fills_in(&j->o))
        return cli_prompts_encode(&j->prompts, j->tokenizer, is_pair(j));
    return data_fim_prompt(j->tokenizer, j->o.before ? j->o.before : "", j->o.after ? j->o.after : "",
                           &j->prompts.list[0].ids);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Model and tokenizer must speak of the same tokens. A model may have more, as published ones do to round the
 * number up; those are banned. */
static by_status match_tokenizer(cli_generation *j)
{
    const int target = by_tokenizer_target_vocab_size(j->tokenizer);
    int model = by_model_vocab(j->model), known = target ? target : by_tokenizer_vocab_size(j->tokenizer);
    if (known > model)
        return base_fail(BY_ERR_FORMAT,
                         "the tokenizer has %d tokens but the model only %d; they do not match", known,
                         model);
    for (int id = known; id < model; id++)
        BY_TRY(tok_ids_push(&j->constraints.banned, id));
    if (by_model_eos(j->model) < 0)
        by_model_set_eos(j->model, by_tokenizer_eos(j->tokenizer));
    return BY_OK;
}

static by_status open_ngram(cli_generation *j, const char *path)
{
    j->defaults = (by_rewrite_defaults){.generate.beam.length_penalty = 1};
    j->ngram = by_ngram_open(path);
    return j->ngram ? BY_OK : base_error_status();
}

static by_status open_model(cli_generation *j, const char *path)
{
    if (cli_model_kind(path) == CLI_MODEL_NGRAM)
        return open_ngram(j, path);
    char *dir = cli_model_dir(path);
    if (!dir)
        return base_error_status();
    cli_note_widening(dir, j->o.dtype);
    j->device = cli_device(j->o.device, j->o.threads);
    const by_model_spec spec = {
        .dtype = j->o.dtype, .weights = cli_weights(j->o.weights), .adapter_folder = j->o.adapter};
    j->model = j->device ? by_model_open(j->device, dir, &spec) : NULL;
    by_status s = j->model ? BY_OK : base_error_status();
    if (s == BY_OK)
        s = j->o.plain ? by_rewrite_defaults_none(j->model, dir, &j->defaults)
                       : by_rewrite_defaults_load(j->model, dir, NULL, &j->defaults);
    base_free(dir);
    return s;
}

/* NULL on failure. */
static by_tokenizer *open_tokenizer(const cli_generation *j, const char *path)
{
    return j->model ? cli_tokenizer(path) : by_ngram_tokenizer(j->ngram, path);
}

/* Options that do not apply to an n-gram model, which has no weights, no context limit and no hidden
 * states. */
static const char *const neural_names[] = {"prefix",
                                           "suffix",
                                           "context",
                                           "slide",
                                           "window",
                                           "sinks",
                                           "cache-size",
                                           "cache-theta",
                                           "cache-lambda",
                                           "cache-per-document",
                                           "decoder-start",
                                           "beams",
                                           "groups",
                                           "renormalize",
                                           "diversity",
                                           "return",
                                           "length-penalty",
                                           "early-stopping",
                                           "dtype",
                                           "ngram",
                                           "ngram-weight",
                                           "weights",
                                           NULL};

static const char *const pixel_own[] = {"out",  "complete",   "upscale", "limit",
                                        "keep", "batch-size", "scale",   NULL};

/* Lengths that count the prompt need prompts of one length. */
static by_status prompt_tokens(const cli_generation *j, int *out)
{
    *out = 1;
    if (is_pair(j))
        return BY_OK;
    *out = (int)j->prompts.list[0].ids.count;
    for (int i = 1; i < j->prompts.count; i++)
        if ((int)j->prompts.list[i].ids.count != *out && (j->defaults.max_length || j->defaults.min_length))
            return base_fail(BY_ERR_ARGUMENT,
                             "max_length and min_length in the model's directory count the prompt, and these "
                             "prompts differ in length; use --no-generation-config");
    return BY_OK;
}

/* Precedence: options, then the model's directory, then Banyan's presets. */
static by_status merge_defaults(cli_generation *j, const cli_args *args)
{
    cli_generate_options *o = &j->o;
    const by_rewrite_defaults *d = &j->defaults;
    const by_sampling *own = &d->generate.sampling;
    const cli_strategy given = o->strategy;
    int prompt;
    BY_TRY(prompt_tokens(j, &prompt));
    if (!cli_given(args, &o->max_new) && by_rewrite_defaults_most(d, prompt))
        o->max_new = by_rewrite_defaults_most(d, prompt);
    BY_TRY(cli_strategy_merge(d, args, &o->strategy, prompt, o->max_new, &o->strategy, &j->constraints));
    const bool draws = cli_given(args, &o->temp) || o->greedy;
    if (o->strategy.beams > 1 && given.beams <= 1 && !draws)
        o->temp = 0;
    if (!draws && d->greedy)
        o->temp = 0;
    if (draws || !d->sample)
        return BY_OK;
    cli_strategy_cutoffs(d, args, &o->strategy, &o->strategy);
    o->temp = own->temperature;
    o->top_k = cli_given(args, &o->top_k) ? o->top_k : own->top_k;
    o->top_p = cli_given(args, &o->top_p) ? o->top_p : own->top_p;
    o->min_p = cli_given(args, &o->min_p) ? o->min_p : own->min_p;
    o->typical = cli_given(args, &o->typical) ? o->typical : own->typical_p;
    return BY_OK;
}

/* A model with a memory has no length limit: its context is only the segment length of training. */
static int capacity_of(const cli_generation *j)
{
    enum { MOST = 1 << 24 };
    int64_t longest = 0;
    if (j->o.context || by_model_memory(j->model) == 0)
        return j->o.context;
    for (int i = 0; i < j->prompts.count; i++)
        longest = BY_MAX(longest, (int64_t)j->prompts.list[i].ids.count);
    return (int)BY_MIN(longest + BY_MAX(j->o.max_new, by_model_context(j->model)), MOST);
}

static by_status open_samples(cli_generation *j)
{
    j->width = j->o.strategy.beams > 1 ? j->o.strategy.returned : (int)BY_MIN(cli_texts_all(j), ROWS_AT_ONCE);
    j->live = cli_texts_all(j) == 1 && !j->o.json && !j->o.lines && !j->o.strategy.explain;
    j->samples = base_alloc_zero((size_t)j->width, sizeof *j->samples);
    return j->samples ? BY_OK : BY_ERR_MEMORY;
}

static by_status open_generator(cli_generation *j)
{
    const int beams = j->o.strategy.beams;
    BY_TRY(open_samples(j));
    if (!j->model)
        return BY_OK;
    j->generator = by_generator_new(
        j->model, &(by_generator_spec){.endless = true,
                                       .batch = beams > 1 ? beams : j->width,
                                       .capacity = j->o.window ? j->o.window : capacity_of(j),
                                       .beams = beams});
    if (!j->generator)
        return base_error_status();
    if (j->o.max_new == 0 || beams > 1 || is_pair(j))
        j->o.slide = false;
    if (is_pair(j))
        j->o.echo = false;
    const int capacity = by_generator_capacity(j->generator);
    for (int i = 0; i < j->prompts.count && j->o.slide; i++)
        if ((int)j->prompts.list[i].ids.count > capacity)
            cli_note("prompt %d has %zu tokens, more than the context of %d; only its end is used", i + 1,
                     j->prompts.list[i].ids.count, capacity);
    return BY_OK;
}

static void close_job(cli_generation *j)
{
    for (int i = 0; j->samples && i < j->width; i++)
        gen_stream_free(&j->samples[i].stream);
    base_free(j->samples);
    by_generator_free(j->generator);
    by_tokenizer_free(j->tokenizer);
    by_tokenizer_free(j->reader);
    by_ngram_free(j->ngram);
    by_model_free(j->model);
    by_device_free(j->device);
    cli_prompts_free(&j->prompts);
    cli_constraints_close(&j->constraints);
    by_rewrite_defaults_free(&j->defaults);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static by_generate_spec make_spec(cli_generation *j)
{
    const cli_generate_options *o = &j->o;
    by_generate_spec spec = {.sampling = {.temperature = o->greedy ? 0 : o->temp,
                                          .top_k = o->top_k,
                                          .top_p = cli_share(o->top_p),
                                          .min_p = o->min_p,
                                          .typical_p = cli_share(o->typical),
                                          .seed = (uint64_t)o->seed},
                             .max_new_tokens = o->max_new,
                             .slide = o->slide,
                             .sinks = o->window ? o->sinks : 0,
                             .cache = o->cache,
                             .ngram = j->mix,
                             .ignore_eos = o->ignore_eos,
                             .first_sample = j->first,
                             .token = cli_on_token,
                             .no_logprobs = true,
                             .cancelled = cli_poll,
                             .explain = o->strategy.explain ? cli_on_explain : NULL,
                             .user = j};
    cli_strategy_apply(&o->strategy, &j->constraints, &spec);
    cli_strategy_finish(&j->defaults, &o->strategy, &spec);
    spec.tokenizer = j->tokenizer ? j->tokenizer : j->reader;
    if (o->strategy.beams > 1 && o->strategy.stop.count) { /* otherwise the stream ends the text */
        spec.stop_strings = o->strategy.stop.items;
        spec.stop_string_count = o->strategy.stop.count;
    }
    return spec;
}

/* Whether --slide would make the text fit. */
static bool could_slide(const cli_generation *j)
{
    size_t longest = 0;
    for (int i = 0; i < j->prompts.count; i++)
        longest = BY_MAX(longest, j->prompts.list[i].ids.count);
    return j->generator && !j->o.slide && !is_pair(j) && j->o.strategy.beams == 1 &&
           (int64_t)longest + j->o.max_new > by_generator_capacity(j->generator) + 1;
}

/* Generates and prints the next samples, as many as there are rows. */
static int run_group(cli_generation *j)
{
    const int32_t *prompts[MOST_TEXTS] = {NULL};
    int lengths[MOST_TEXTS] = {0};
    for (int b = 0; b < j->width; b++) {
        cli_generated *s = &j->samples[b];
        gen_stream_free(&s->stream);
        *s = (cli_generated){.stream = {.tokenizer = j->tokenizer,
                                        .stops = j->o.strategy.stop.items,
                                        .stop_count = j->o.strategy.stop.count}};
        const by_ids *ids = j->first + b < cli_texts_all(j) ? &cli_prompt_of(j, b)->ids : NULL;
        prompts[b] = ids ? ids->data : NULL;
        lengths[b] = ids ? (int)ids->count : 0;
    }
    by_generate_spec spec = make_spec(j);
    by_generate_result result;
    by_status status = j->model ? by_generate(j->generator, prompts, lengths, &spec, &result)
                                : by_ngram_generate(j->ngram, prompts, lengths, j->width, &spec, &result);
    bool cancelled = status == BY_ERR_CANCELLED, begun = result.new_tokens > 0 || status == BY_OK;
    int code = CLI_OK;
    if (status != BY_OK && !cancelled) {
        if (begun && j->live)
            cli_end_line(j);
        cli_flush();
        code = cli_fail(status == BY_ERR_ARGUMENT && could_slide(j)
                            ? "--slide continues with the last half of the context when it is full"
                            : NULL);
    } else if (j->status != BY_OK) {
        code = cli_flush() ? cli_fail(NULL) : CLI_FAILED;
    } else {
        code = cli_print_generated(j, &result);
    }
    j->prompt_tokens += result.prompt_tokens;
    j->decoded += result.new_tokens;
    j->prompt_seconds += result.prompt_seconds;
    j->decode_seconds += result.decode_seconds;
    by_generate_result_free(&result);
    return code == CLI_OK && cancelled ? CLI_INTERRUPTED : code;
}

static int64_t random_seed(void)
{
    struct {
        struct timespec now;
        int64_t pid;
    } what = {.pid = getpid()};
    clock_gettime(CLOCK_REALTIME, &what.now);
    return (int64_t)(base_hash(&what, sizeof what, 0) & INT32_MAX); /* short enough to be typed again */
}

static int run_job(cli_generation *j, const cli_args *args)
{
    by_canvas canvas;
    by_pictures reads;
    const char *path = args->items[0];
    if (!cli_given(args, &j->o.seed))
        j->o.seed = random_seed();
    if (open_model(j, path) != BY_OK)
        return cli_fail(NULL);
    cli_interrupt_install();
    if (j->model && by_model_task(j->model) == BY_TASK_LM && by_model_canvas(j->model, &canvas))
        return cli_run_pictures(j, args);
    const cli_option *of_pixels = cli_given_among(args, pixel_own);
    if (of_pixels)
        return cli_usage_fail("--%s is for pixel models", of_pixels->name);
    if (j->model && by_model_pictures(j->model, &reads)) {
        base_fail(BY_ERR_ARGUMENT, "%s writes no texts%s", base_a(by_model_class(j->model)).text,
                  is_pair(j) ? " without a picture: banyan caption" : "");
        return cli_fail(NULL);
    }
    if (read_prompts(j, args) != BY_OK)
        return cli_fail(NULL);
    if (!j->model && cli_given_among(args, neural_names))
        return cli_usage_fail("--%s is not for n-gram models", cli_given_among(args, neural_names)->name);
    if (!j->o.ids) {
        j->tokenizer = open_tokenizer(j, path);
        if (!j->tokenizer)
            return cli_fail("--ids reads and prints token ids and needs no tokenizer");
        if (j->model && match_tokenizer(j) != BY_OK)
            return cli_fail(NULL);
    }
    if (j->model && cli_mix_open(&j->o.mix, j->tokenizer, &j->ngram, &j->mix) != BY_OK)
        return cli_fail(NULL);
    if (j->o.ids && j->defaults.generate.stop_string_count && !(j->reader = cli_tokenizer(path)))
        return cli_fail(
            "stop_strings in the model's directory need a tokenizer; --no-generation-config ignores them");
    if (encode_prompts(j) != BY_OK || merge_defaults(j, args) != BY_OK ||
        cli_check_cutoffs(args, j->o.greedy ? 0 : j->o.temp) != BY_OK ||
        cli_constraints_open(&j->o.strategy, j->tokenizer, &j->constraints) != BY_OK ||
        cli_constraints_add(&j->constraints, j->defaults.generate.sampling.words,
                            j->defaults.generate.sampling.word_count) != BY_OK ||
        open_generator(j) != BY_OK)
        return cli_fail(NULL);
    int code = CLI_OK;
    for (; j->first < cli_texts_all(j) && code == CLI_OK; j->first += j->width)
        code = run_group(j);
    if (code == CLI_OK || code == CLI_INTERRUPTED)
        cli_report_generated(j);
    return code;
}

static int generate_run(int argc, char **argv)
{
    cli_generation j = {.started = base_seconds()};
    cli_args args;
    int code;
    if (!cli_parse(&cli_generate, argc, argv, &j.o, &args, &code))
        return code;
    int sources = (j.o.prompt != NULL) + (j.o.file != NULL) + (args.count > 1) + fills_in(&j.o);
    if (fills_in(&j.o))
        j.o.echo = false;
    if (j.o.strategy.beams > 1 && !cli_given(&args, &j.o.temp)) /* beam search unless sampling is requested */
        j.o.temp = 0;
    if (fills_in(&j.o) && j.o.ids)
        code = cli_usage_fail("--prefix and --suffix take text and cannot be combined with --ids");
    else if (j.o.lines && (sources > 0 && !j.o.file))
        code = cli_usage_fail("--lines reads prompts from --file or stdin");
    else if (sources > 1)
        code = cli_usage_fail("the prompt is given twice: choose one of --prompt, --file, arguments, and "
                              "--prefix with --suffix");
    else if (j.o.strategy.beams > 1 && j.o.samples > 1)
        code = cli_usage_fail("--samples does not apply to a beam search; use --return");
    else if (j.o.strategy.beams > 1 && cli_given(&args, &j.o.slide) && j.o.slide)
        code = cli_usage_fail("--slide does not apply to a beam search");
    else if (j.o.window && (j.o.context || !j.o.slide || j.o.max_new == 0 || j.o.strategy.beams > 1))
        code = cli_usage_fail("--window slides over a text of a given length: it does not go with --context, "
                              "--no-slide, --beams and --max-new-tokens 0");
    else if (cli_given(&args, &j.o.sinks) && !j.o.window)
        code = cli_usage_fail("--sinks needs --window");
    else if (j.o.cache.size && !(j.o.cache.lambda > 0))
        code = cli_usage_fail(
            "--cache-size needs --cache-theta and --cache-lambda: `banyan eval --tune-cache` chooses them");
    else if (!j.o.cache.size && (cli_given(&args, &j.o.cache.theta) || cli_given(&args, &j.o.cache.lambda) ||
                                 j.o.cache.per_document))
        code = cli_usage_fail("--cache-theta, --cache-lambda and --cache-per-document need --cache-size");
    else if (cli_given(&args, &j.o.mix.weight) && !j.o.mix.path)
        code = cli_usage_fail("--ngram-weight needs --ngram");
    else if (j.o.ids && j.o.strategy.stop.count)
        code = cli_usage_fail("--stop matches text and cannot be combined with --ids");
    else
        code = run_job(&j, &args);
    close_job(&j);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_generate = {
    .name = "generate",
    .group = "Inference",
    .summary = "continue a text with a language model",
    .description =
        "MODEL is a model directory or a run folder, whose best model is used. The prompt comes from "
        "--prompt, from the arguments after MODEL, from --file, or from standard input if that is not a "
        "terminal. Without a prompt the text starts at the model's end-of-text token.\n"
        "\n"
        "Constraints apply first, in the order listed below, then the temperature, then the filters. --beams "
        "searches for the most likely texts under the same constraints, and samples only if --temp is given "
        "too. docs/GENERATION.md gives every formula.",
    .examples = "banyan generate runs/shakespeare \"ROMEO:\"\n"
                "# the most likely text, as JSON\n"
                "banyan generate gpt2 -p \"The banyan is\" --greedy -n 40 --json\n"
                "# four texts, the same ones every time\n"
                "banyan generate gpt2 -p \"Once\" --samples 4 --seed 7 --stop END\n"
                "# the three best texts of a beam search\n"
                "banyan generate gpt2 -p \"The banyan is\" --beams 5 --return 3 -n 20\n"
                "# one text for each line of a file, as JSON\n"
                "banyan generate gpt2 -f prompts.txt --lines --json\n"
                "# a long text: the model sees the first 4 and the latest tokens, at most 512\n"
                "banyan generate gpt2 -p \"Once\" -n 20000 --window 512 --ignore-eos\n"
                "# interpolated with a 5-gram model of the same tokens\n"
                "banyan generate gpt2 -p \"Once\" --ngram runs/gpt2-5gram --ngram-weight 0.3\n"
                "# sixteen pictures by a pixel model, and four lower halves for one picture\n"
                "banyan generate runs/fashion --samples 16 -o grid.png\n"
                "banyan generate runs/fashion --complete shoe.png --keep 0.5 --samples 4 -o halves.png\n"
                "# enlarge a picture four times\n"
                "banyan generate runs/larger --upscale small.png --samples 3 -o large.png\n"
                "# why each token was chosen\n"
                "banyan generate gpt2 -p \"Once\" -n 5 --no-repeat-ngram 2 --explain\n",
    .options = rows,
    .option_count = BY_COUNT(rows),
    .run = generate_run,
    .args = "MODEL [PROMPT...]",
};
