/* verb_generate.c - banyan generate: continue a prompt. Text goes to stdout as it comes. */
#include <time.h>
#include <unistd.h>

#include "banyan/generate.h"
#include "base/json.h"
#include "cli/cache_options.h"
#include "cli/common.h"
#include "cli/prompts.h"
#include "cli/strategy.h"
#include "cli/verbs.h"
#include "data/fim.h"
#include "infer/stream.h"

enum { ROWS_AT_ONCE = 8, MOST_TEXTS = 64 }; /* samples that grow side by side; texts of a beam search */

typedef struct generate_options {
    const char *prompt, *file, *device;
    const char *before, *after; /* of a hole */
    by_dtype dtype;
    const char *weights;
    cli_strategy strategy;
    by_continuous_cache cache;
    int window, sinks;
    int max_new, context, threads, samples, top_k;
    double temp, top_p, min_p, typical;
    int64_t seed;
    bool greedy, slide, ignore_eos, plain, ids, lines, echo, json, verbose;
} generate_options;

static const cli_option rows[] = {
    {CLI_AT(generate_options, prompt), .name = "prompt", .letter = 'p', .help = "text to continue",
     .group = "Prompt"},
    {CLI_AT(generate_options, file), .name = "file", .letter = 'f', .value = "FILE",
     .help = "read the prompt from FILE, - for standard input; one trailing newline is dropped"},
    {CLI_AT(generate_options, lines), .name = "lines",
     .help =
         "treat each line of the file as a prompt; print one line per text, with newlines written as \\n"},
    {CLI_AT(generate_options, before), .name = "prefix", .help = "fill in the middle: text before the gap"},
    {CLI_AT(generate_options, after), .name = "suffix",
     .help = "fill in the middle: text after the gap; prints the middle. For models trained with --objective "
             "fim"},
    {CLI_AT(generate_options, ids), .name = "ids",
     .help = "read the prompt and print the output as token ids; needs no tokenizer"},

    {CLI_AT(generate_options, max_new), .name = "max-new-tokens", .alias = "n-predict", .letter = 'n',
     CLI_RANGE(0, 1e9), .suffix = true, .preset = "128", .help = "maximum new tokens; 0 fills the context",
     .group = "Length"},
    {CLI_AT(generate_options, plain), .name = "no-generation-config",
     .help = "ignore the model's generation_config.json"},
    CLI_END_ROWS(generate_options),
    {CLI_AT(generate_options, ignore_eos), .name = "ignore-eos",
     .help = "continue after an end-of-text token"},
    {CLI_AT(generate_options, context), .name = "context", .alias = "ctx-size", .letter = 'c',
     CLI_RANGE(0, 1 << 24), .preset = "0", .help = "tokens the model sees; 0 uses the model's full context"},
    {CLI_AT(generate_options, slide), .name = "slide", .preset = "yes",
     .help = "when the context is full, continue with its last half; with --no-slide that is an error"},
    {CLI_AT(generate_options, window), .name = "window", CLI_RANGE(0, 1 << 24), .suffix = true, .preset = "0",
     .help =
         "endless text: the model sees this many tokens, the first --sinks ones of the text among them; 0: "
         "off"},
    {CLI_AT(generate_options, sinks), .name = "sinks", CLI_RANGE(0, 1 << 24), .preset = "4",
     .help = "with --window, tokens at the beginning of the text that always stay"},

    {CLI_AT(generate_options, temp), .name = "temp", .alias = "temperature", CLI_RANGE(0, 1e6),
     .preset = "0.8", .help = "divide the logits by this; 0 is greedy", .group = "Sampling"},
    {CLI_AT(generate_options, greedy), .name = "greedy", .help = "same as --temp 0"},
    {CLI_AT(generate_options, top_k), .name = "top-k", CLI_RANGE(0, 1e9), .preset = "40",
     .help = "keep the k most likely tokens; 0 keeps all"},
    {CLI_AT(generate_options, top_p), .name = "top-p", CLI_RANGE(0, 1), .preset = "0.95",
     .help = "keep the most likely tokens whose probabilities reach p; 1 keeps all"},
    {CLI_AT(generate_options, min_p), .name = "min-p", CLI_RANGE(0, 1), .preset = "0.05",
     .help = "keep tokens of at least this share of the highest probability; 0 keeps all"},
    {CLI_AT(generate_options, typical), .name = "typical", .alias = "typical-p", CLI_RANGE(0, 1),
     .preset = "1", .help = "keep the most typical tokens whose probabilities reach p; 1 keeps all"},
    CLI_CUTOFF_ROWS(generate_options),
    {CLI_AT(generate_options, seed), .name = "seed", .letter = 's', CLI_MIN(0),
     .help = "seed for sampling (default: random)"},
    {CLI_AT(generate_options, samples), .name = "samples", CLI_RANGE(1, 1e6), .preset = "1",
     .help = "number of texts to generate"},

    CLI_CACHE_ROWS(generate_options, cache),

    CLI_CONSTRAINT_ROWS(generate_options),

    CLI_BEAM_ROWS(generate_options, "1"),

    {CLI_AT(generate_options, echo), .name = "echo", .preset = "yes",
     .help = "print the prompt before the text", .group = "Output"},
    {CLI_AT(generate_options, strategy.explain), .name = "explain",
     .help = "show the candidates of every step, what each rule did to them, and which one won"},
    {CLI_AT(generate_options, json), .name = "json",
     .help = "print one JSON object per text: text, ids, finish_reason, score, tokens; with --explain also "
             "one per step"},
    {CLI_AT(generate_options, verbose), .name = "verbose", .letter = 'v',
     .help = "print speed and time to the first token on stderr"},

    {CLI_AT(generate_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(generate_options, dtype), .name = "dtype", .choices = "f32|bf16", .preset = "f32",
     .help = "precision of weights and cache"},
    CLI_WEIGHTS(generate_options, weights),
    {CLI_AT(generate_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads; 0 uses every core"},
};

/* One text in the making. */
typedef struct sample {
    gen_stream stream;
    size_t shown; /* bytes of the stream's text already printed */
} sample;

typedef struct job {
    generate_options o;
    double started;
    by_device *device;
    by_model *model;
    by_tokenizer *tokenizer; /* NULL with --ids */
    by_tokenizer *reader;    /* with --ids, for the stop strings of the model's directory; else NULL */
    by_generator *generator;
    cli_prompts prompts;
    cli_constraints constraints;
    by_rewrite_defaults defaults;
    sample *samples;
    int width, first;                           /* texts at once, and the first of the present ones */
    bool live;                                  /* one text, printed as it comes */
    bool echoed;                                /* its prompt is printed */
    char last;                                  /* character printed last, 0: none */
    double first_token;                         /* when it came, 0: not yet */
    by_status status;                           /* of what went wrong inside the callback */
    int64_t prompt_tokens, new_tokens, decoded; /* decoded: with those of stop strings */
    double prompt_seconds, decode_seconds;
} job;

/* ---- the prompts ----------------------------------------------------------------------------- */

/* Write into a hole. */
static bool fills_in(const generate_options *o)
{
    return o->before || o->after;
}

/* From --prompt, the arguments, a file, or stdin when it is not a terminal; otherwise empty. */
static by_status read_prompts(job *j, const cli_args *args)
{
    const generate_options *o = &j->o;
    const bool piped = !o->prompt && !fills_in(o) && args->count < 2 && !isatty(STDIN_FILENO);
    return cli_prompts_read(&j->prompts, o->prompt, args->items + 1, args->count - 1, o->file, piped,
                            o->lines);
}

/* An encoder-decoder reads the prompt and writes another text. */
static bool is_pair(const job *j)
{
    return by_model_task(j->model) == BY_TASK_SEQ2SEQ;
}

static by_status encode_prompts(job *j)
{
    if (!fills_in(&j->o))
        return cli_prompts_encode(&j->prompts, j->tokenizer, is_pair(j));
    return data_fim_prompt(j->tokenizer, j->o.before ? j->o.before : "", j->o.after ? j->o.after : "",
                           &j->prompts.list[0].ids);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Model and tokenizer must speak of the same tokens. A model may have more, as published ones do to round the
 * number up; those are banned. */
static by_status match_tokenizer(job *j)
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

static by_status open_model(job *j, const char *path)
{
    char *dir = cli_model_dir(path);
    if (!dir)
        return base_error_status();
    cli_note_widening(dir, j->o.dtype);
    j->device = cli_device(j->o.device, j->o.threads);
    j->model =
        j->device ? by_model_open(j->device, dir,
                                  &(by_model_spec){.dtype = j->o.dtype, .weights = cli_weights(j->o.weights)})
                  : NULL;
    by_status s = j->model ? BY_OK : base_error_status();
    if (s == BY_OK)
        s = j->o.plain ? by_rewrite_defaults_none(j->model, dir, &j->defaults)
                       : by_rewrite_defaults_load(j->model, dir, NULL, &j->defaults);
    base_free(dir);
    return s;
}

/* Lengths that count the prompt need prompts of one length. */
static by_status prompt_tokens(const job *j, int *out)
{
    *out = 1;
    if (is_pair(j))
        return BY_OK;
    *out = (int)j->prompts.list[0].ids.count;
    for (int i = 1; i < j->prompts.count; i++)
        if ((int)j->prompts.list[i].ids.count != *out && (j->defaults.max_length || j->defaults.min_length))
            return base_fail(BY_ERR_ARGUMENT,
                             "max_length and min_length in the model's directory count the prompt, "
                             "and these prompts differ in length; use --no-generation-config");
    return BY_OK;
}

/* Options count first, then what the model's directory says, then Banyan's presets. */
static by_status merge_defaults(job *j, const cli_args *args)
{
    generate_options *o = &j->o;
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

/* Texts for each prompt. */
static int texts_each(const job *j)
{
    return j->o.strategy.beams > 1 ? j->o.strategy.returned : j->o.samples;
}

static int64_t texts_of(const job *j)
{
    return (int64_t)texts_each(j) * j->prompts.count;
}

/* Of the text in a row: its prompt, and its number among those of the same prompt. */
static const cli_prompt *prompt_of(const job *j, int row)
{
    return &j->prompts.list[(j->first + row) / texts_each(j)];
}

static int number_of(const job *j, int row)
{
    return (j->first + row) % texts_each(j) + 1;
}

/* A model with a memory reads and writes on without end: its context is where training cuts texts. */
static int capacity_of(const job *j)
{
    enum { MOST = 1 << 24 };
    int64_t longest = 0;
    if (j->o.context || by_model_memory(j->model) == 0)
        return j->o.context;
    for (int i = 0; i < j->prompts.count; i++)
        longest = BY_MAX(longest, (int64_t)j->prompts.list[i].ids.count);
    return (int)BY_MIN(longest + BY_MAX(j->o.max_new, by_model_context(j->model)), MOST);
}

static by_status open_generator(job *j)
{
    const int beams = j->o.strategy.beams;
    j->width = beams > 1 ? j->o.strategy.returned : (int)BY_MIN(texts_of(j), ROWS_AT_ONCE);
    j->live = texts_of(j) == 1 && !j->o.json && !j->o.lines && !j->o.strategy.explain;
    j->samples = base_alloc_zero((size_t)j->width, sizeof *j->samples);
    j->generator = by_generator_new(
        j->model, &(by_generator_spec){.endless = true,
                                       .batch = beams > 1 ? beams : j->width,
                                       .capacity = j->o.window ? j->o.window : capacity_of(j),
                                       .beams = beams});
    if (!j->samples || !j->generator)
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

static void close_job(job *j)
{
    for (int i = 0; j->samples && i < j->width; i++)
        gen_stream_free(&j->samples[i].stream);
    base_free(j->samples);
    by_generator_free(j->generator);
    by_tokenizer_free(j->tokenizer);
    by_tokenizer_free(j->reader);
    by_model_free(j->model);
    by_device_free(j->device);
    cli_prompts_free(&j->prompts);
    cli_constraints_close(&j->constraints);
    by_rewrite_defaults_free(&j->defaults);
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print(job *j, const char *text, size_t n)
{
    if (!n)
        return;
    fwrite(text, 1, n, stdout);
    j->last = text[n - 1];
}

/* With --lines a text is a line: the line ends in it are written as \n. */
static void print_part(job *j, const char *text, size_t n)
{
    while (j->o.lines && n > 0) {
        const char *end = memchr(text, '\n', n);
        const size_t k = end ? (size_t)(end - text) : n;
        print(j, text, k);
        if (end)
            print(j, "\\n", 2);
        text += k + (end != NULL);
        n -= k + (end != NULL);
    }
    print(j, text, n);
}

static void print_id(job *j, int32_t id)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%s%d", j->last && j->last != '\n' ? " " : "", (int)id);
    print(j, text, (size_t)n);
}

/* In front of each sample; for a live one as late as its first token, so that an error comes alone. */
static void print_prompt(job *j, int row)
{
    const cli_prompt *p = prompt_of(j, row);
    if (!j->o.echo || (j->live && j->echoed))
        return;
    j->echoed = true;
    for (size_t i = 0; !j->tokenizer && i < p->ids.count; i++)
        print_id(j, p->ids.data[i]);
    if (j->tokenizer)
        print_part(j, p->text, p->size);
}

static void print_fresh(job *j, sample *s)
{
    const base_buf *text = &s->stream.text;
    if (text->size > s->shown)
        print_part(j, text->data + s->shown, text->size - s->shown);
    s->shown = text->size;
}

static void end_line(job *j)
{
    if (j->last != '\n')
        print(j, "\n", 1);
}

/* New tokens that belong to the text: not those of a stop string, which is not part of it. */
static int tokens_of(const sample *s, const by_generation *g)
{
    return s->stream.stopped ? s->stream.tokens : g->count - g->prompt;
}

/* by_generate's callback: a token has come. */
static bool on_token(void *user, int row, int32_t token, float logprob)
{
    job *j = user;
    sample *s = &j->samples[row];
    (void)logprob;
    if (j->first_token == 0)
        j->first_token = base_seconds();
    if (j->tokenizer && j->status == BY_OK)
        j->status = gen_stream_put(&s->stream, token);
    if (j->live)
        print_prompt(j, row);
    if (j->live && j->tokenizer)
        print_fresh(j, s);
    else if (j->live)
        print_id(j, token);
    if (j->live && !cli_flush())
        j->status = base_fail(BY_ERR_IO, "cannot write to standard output");
    return j->status == BY_OK && !s->stream.stopped;
}

static void on_explain(void *user, const by_explanation *why)
{
    job *j = user;
    const bool several = j->o.strategy.beams == 1 && texts_of(j) > 1;
    if (j->status == BY_OK)
        j->status = cli_explain(j->tokenizer, why, several ? j->first + why->row : -1, j->o.json);
}

static const char *finish_reason(const by_generation *g, const sample *s)
{
    switch (g->finish) {
    case BY_FINISH_STOP:
        return "eos";
    case BY_FINISH_LENGTH:
        return "length";
    case BY_FINISH_STRING:
        return "stop";
    case BY_FINISH_TIME:
        return "time";
    case BY_FINISH_CALLER:
        return s->stream.stopped ? "stop" : "error";
    case BY_FINISH_NONE:
        break;
    }
    return cli_interrupted() ? "interrupted" : "error";
}

/* Tokens per second once the prompt is read: the first token belongs to the prompt's time. */
static double speed(int64_t rows_begun, int64_t tokens, double seconds)
{
    return tokens > rows_begun && seconds > 0 ? (double)(tokens - rows_begun) / seconds : (double)NAN;
}

static int print_json(job *j, int row, const by_generation *g, const by_generate_result *result)
{
    const sample *s = &j->samples[row];
    const base_buf *text = &s->stream.text;
    int n = tokens_of(s, g);
    cJSON *o = cJSON_CreateObject(), *ids = cJSON_CreateIntArray(g->tokens + g->prompt, n);
    bool ok = o && ids;
    if (ok && j->o.lines)
        ok = cJSON_AddNumberToObject(o, "line", (double)(prompt_of(j, row) - j->prompts.list) + 1);
    ok = ok && cJSON_AddNumberToObject(o, "sample", number_of(j, row));
    if (ok && j->tokenizer)
        ok = base_json_add_bytes(o, "text", text->data ? text->data : "", text->size);
    ok = ok && cJSON_AddItemToObject(o, "ids", ids);
    if (ok && j->o.strategy.beams > 1)
        ok = cJSON_AddNumberToObject(o, "score", (double)g->score);
    ok = ok && cJSON_AddStringToObject(o, "finish_reason", finish_reason(g, s)) &&
         cJSON_AddNumberToObject(o, "prompt_tokens", g->prompt) && cJSON_AddNumberToObject(o, "tokens", n) &&
         cJSON_AddNumberToObject(o, "tokens_per_s", speed(1, g->count - g->prompt, result->decode_seconds)) &&
         cJSON_AddNumberToObject(o, "seed", (double)j->o.seed);
    if (!ok && o && !cJSON_GetObjectItem(o, "ids"))
        cJSON_Delete(ids);
    if (!ok) {
        cJSON_Delete(o);
        o = NULL;
    }
    return cli_print_json(o);
}

static void print_text(job *j, int row, const by_generation *g)
{
    if (!j->live && !j->o.lines && j->o.strategy.beams > 1)
        printf("--- text %d, score %.4f ---\n", number_of(j, row), (double)g->score);
    else if (!j->live && !j->o.lines)
        printf("--- sample %d ---\n", number_of(j, row));
    if (!j->live)
        j->last = '\n';
    print_prompt(j, row);
    if (j->tokenizer)
        print_fresh(j, &j->samples[row]);
    for (int i = g->prompt; !j->live && !j->tokenizer && i < g->count; i++)
        print_id(j, g->tokens[i]);
    if (j->o.lines)
        print(j, "\n", 1); /* of an empty text too */
    else
        end_line(j);
}

static int print_results(job *j, const by_generate_result *result)
{
    int code = CLI_OK;
    for (int row = 0; row < result->count && code == CLI_OK; row++) {
        const by_generation *g = &result->rows[row];
        if (!g->tokens)
            continue;
        if (gen_stream_end(&j->samples[row].stream) != BY_OK)
            return cli_fail(NULL);
        j->new_tokens += tokens_of(&j->samples[row], g);
        if (j->o.json)
            code = print_json(j, row, g, result);
        else
            print_text(j, row, g);
    }
    return cli_flush() ? code : CLI_FAILED;
}

static void report(const job *j)
{
    char rate[32] = "";
    double tokens_per_s = speed(texts_of(j), j->decoded, j->decode_seconds);
    if (!(j->o.verbose || cli_is_terminal(STDERR_FILENO)) || j->first_token == 0)
        return;
    if (!isnan(tokens_per_s))
        snprintf(rate, sizeof rate, ", %.1f tok/s", tokens_per_s);
    cli_note(
        "%lld prompt tokens in %.2f s, %lld new in %.2f s%s, first token %.2f s after the start, seed %lld",
        (long long)j->prompt_tokens, j->prompt_seconds, (long long)j->new_tokens, j->decode_seconds, rate,
        j->first_token - j->started, (long long)j->o.seed);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static by_generate_spec make_spec(job *j)
{
    const generate_options *o = &j->o;
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
                             .ignore_eos = o->ignore_eos,
                             .first_sample = j->first,
                             .token = on_token,
                             .no_logprobs = true,
                             .cancelled = cli_poll,
                             .explain = o->strategy.explain ? on_explain : NULL,
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

/* Whether --slide would make room for what does not fit. */
static bool could_slide(const job *j)
{
    size_t longest = 0;
    for (int i = 0; i < j->prompts.count; i++)
        longest = BY_MAX(longest, j->prompts.list[i].ids.count);
    return !j->o.slide && !is_pair(j) && j->o.strategy.beams == 1 &&
           (int64_t)longest + j->o.max_new > by_generator_capacity(j->generator) + 1;
}

/* Generate and print the next samples, as many as there are rows. */
static int run_group(job *j)
{
    const int32_t *prompts[MOST_TEXTS] = {NULL};
    int lengths[MOST_TEXTS] = {0};
    for (int b = 0; b < j->width; b++) {
        sample *s = &j->samples[b];
        gen_stream_free(&s->stream);
        *s = (sample){.stream = {.tokenizer = j->tokenizer,
                                 .stops = j->o.strategy.stop.items,
                                 .stop_count = j->o.strategy.stop.count}};
        const by_ids *ids = j->first + b < texts_of(j) ? &prompt_of(j, b)->ids : NULL;
        prompts[b] = ids ? ids->data : NULL;
        lengths[b] = ids ? (int)ids->count : 0;
    }
    by_generate_spec spec = make_spec(j);
    by_generate_result result;
    by_status status = by_generate(j->generator, prompts, lengths, &spec, &result);
    bool cancelled = status == BY_ERR_CANCELLED, begun = result.new_tokens > 0 || status == BY_OK;
    int code = CLI_OK;
    if (status != BY_OK && !cancelled) {
        if (begun && j->live)
            end_line(j);
        cli_flush();
        code = cli_fail(status == BY_ERR_ARGUMENT && could_slide(j)
                            ? "--slide continues with the last half of a full context"
                            : NULL);
    } else if (j->status != BY_OK) {
        code = cli_flush() ? cli_fail(NULL) : CLI_FAILED;
    } else {
        code = print_results(j, &result);
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

static int run_job(job *j, const cli_args *args)
{
    const char *path = args->items[0];
    if (!cli_given(args, &j->o.seed))
        j->o.seed = random_seed();
    if (read_prompts(j, args) != BY_OK || open_model(j, path) != BY_OK)
        return cli_fail(NULL);
    if (!j->o.ids) {
        j->tokenizer = cli_tokenizer(path);
        if (!j->tokenizer)
            return cli_fail("--ids reads and prints token ids and needs no tokenizer");
        if (match_tokenizer(j) != BY_OK)
            return cli_fail(NULL);
    }
    if (j->o.ids && j->defaults.generate.stop_string_count && !(j->reader = cli_tokenizer(path)))
        return cli_fail(
            "stop_strings in the model's directory need a tokenizer; --no-generation-config ignores them");
    if (encode_prompts(j) != BY_OK || merge_defaults(j, args) != BY_OK ||
        cli_constraints_open(&j->o.strategy, j->tokenizer, &j->constraints) != BY_OK ||
        cli_constraints_add(&j->constraints, j->defaults.generate.sampling.words,
                            j->defaults.generate.sampling.word_count) != BY_OK ||
        open_generator(j) != BY_OK)
        return cli_fail(NULL);
    cli_interrupt_install();
    int code = CLI_OK;
    for (; j->first < texts_of(j) && code == CLI_OK; j->first += j->width)
        code = run_group(j);
    if (code == CLI_OK || code == CLI_INTERRUPTED)
        report(j);
    return code;
}

static int generate_run(int argc, char **argv)
{
    job j = {.started = base_seconds()};
    cli_args args;
    int code;
    if (!cli_parse(&cli_generate, argc, argv, &j.o, &args, &code))
        return code;
    int sources = (j.o.prompt != NULL) + (j.o.file != NULL) + (args.count > 1) + fills_in(&j.o);
    if (fills_in(&j.o))
        j.o.echo = false;
    if (j.o.strategy.beams > 1 && !cli_given(&args, &j.o.temp)) /* it searches, unless draws are asked for */
        j.o.temp = 0;
    if (fills_in(&j.o) && j.o.ids)
        code = cli_usage_fail("--prefix and --suffix take text and cannot be combined with --ids");
    else if (j.o.lines && (sources > 0 && !j.o.file))
        code = cli_usage_fail("--lines reads prompts from --file or stdin");
    else if (sources > 1)
        code = cli_usage_fail("the prompt is given twice: choose one of --prompt, --file, arguments, "
                              "and --prefix with --suffix");
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
        code =
            cli_usage_fail("--cache-size needs --cache-theta and --cache-lambda: `banyan eval --tune-cache` "
                           "chooses them");
    else if (!j.o.cache.size && (cli_given(&args, &j.o.cache.theta) || cli_given(&args, &j.o.cache.lambda) ||
                                 j.o.cache.per_document))
        code = cli_usage_fail("--cache-theta, --cache-lambda and --cache-per-document need --cache-size");
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
    .description = "MODEL is a model directory or a run folder, whose best model is used. The prompt comes "
                   "from --prompt, from the arguments after MODEL, from --file, or from standard input if "
                   "that is not a terminal. Without a prompt the text starts at the model's end-of-text "
                   "token.\n"
                   "\n"
                   "Constraints apply first, in the order listed below, then the temperature, then the "
                   "filters. With --beams the program searches for the most likely texts under the same "
                   "constraints; it samples only if --temp is given too. docs/GENERATION.md gives every "
                   "formula.",
    .examples = "banyan generate runs/shakespeare \"ROMEO:\"\n"
                "# the most likely text, as JSON\n"
                "banyan generate gpt2 -p \"The banyan is\" --greedy -n 40 --json\n"
                "# four texts, the same ones every time\n"
                "banyan generate gpt2 -p \"Once\" --samples 4 --seed 7 --stop END\n"
                "# the three best of a beam search\n"
                "banyan generate gpt2 -p \"The banyan is\" --beams 5 --return 3 -n 20\n"
                "# one text for each line of a file, as JSON\n"
                "banyan generate gpt2 -f prompts.txt --lines --json\n"
                "# a long text: the model sees 4 first and the last tokens, 512 at most\n"
                "banyan generate gpt2 -p \"Once\" -n 20000 --window 512 --ignore-eos\n"
                "# why each token was chosen\n"
                "banyan generate gpt2 -p \"Once\" -n 5 --no-repeat-ngram 2 --explain\n",
    .options = rows,
    .option_count = BY_COUNT(rows),
    .run = generate_run,
    .args = "MODEL [PROMPT...]",
};
