/* generate.c - the generation loop: feed, choose, feed the choice (see banyan/generate.h). */
#include <math.h>

#include "banyan/generate.h"
#include "infer/beam.h"
#include "infer/continuous_cache.h"
#include "infer/generator.h"
#include "infer/ngram_mix.h"
#include "infer/queue.h"
#include "infer/sample.h"
#include "infer/stop_strings.h"

enum { AHEAD = 32 }; /* tokens per row generated on the device between two read-backs */

/* One call of by_generate. */
typedef struct run {
    by_generator *generator;
    const by_model *model;
    const by_generate_spec *spec;
    by_generate_result *result;
    gen_sampler sampler;
    int batch, capacity, vocab;
    gen_stops stops;
    gen_queue queue;
    bool *active;        /* (B) not finished */
    int32_t *last;       /* (B) tokens to continue from */
    int32_t *ahead;      /* (AHEAD, B) */
    by_draw_spec *draws; /* (B) random state for sampling on the device */
    int32_t *again;      /* (B, capacity) sinks and last tokens of a restarted row; NULL: no sinks */
    gen_recall *recall;  /* the continuous caches; NULL: none */
    float *mixed;        /* (V) log-probabilities with an n-gram model; NULL: none */
    double started;
    const int32_t *const *sources; /* sources of an encoder-decoder; NULL: the prompts */
    const int *source_lengths;
    bool begun; /* a token was chosen */
} run;

/* ---- before the first pass ------------------------------------------------------------------- */

/* Checks that prompt and new tokens fit. The last token is never fed and needs no position. */
static by_status check_room(const run *r, int row, int length)
{
    int wanted = r->spec->max_new_tokens;
    if (r->spec->slide)
        return BY_OK;
    if (length > r->capacity)
        return base_fail(BY_ERR_ARGUMENT,
                         "the prompt of row %d has %d tokens; the context holds %d (slide the context, or "
                         "shorten the prompt)",
                         row, length, r->capacity);
    if (wanted - 1 > r->capacity - length)
        return base_fail(BY_ERR_ARGUMENT,
                         "%d new tokens after a prompt of %d do not fit into the context of %d (slide the "
                         "context, or generate at most %d)",
                         wanted, length, r->capacity, r->capacity - length + 1);
    return BY_OK;
}

/* Copy a row's prompt into its generation. */
static by_status begin_row(run *r, int row, const int32_t *prompt, int length)
{
    by_generation *out = &r->result->rows[row];
    int32_t start;
    BY_TRY(gen_check_prompt(r->model, row, &prompt, &length, &start));
    BY_TRY(check_room(r, row, length));
    out->tokens = base_alloc_zero((size_t)length, sizeof *out->tokens);
    if (!out->tokens)
        return BY_ERR_MEMORY;
    memcpy(out->tokens, prompt, sizeof *prompt * (size_t)length);
    out->prompt = out->count = length;
    r->active[row] = true;
    return BY_OK;
}

/* Per-prompt limits need no length check: they are within the common limit. */
static by_status check_limits(const run *r, const int32_t *const *prompts)
{
    const int count = r->batch / BY_MAX(r->spec->beam.width, 1);
    const int least = BY_MAX(BY_MAX(r->spec->sampling.min_new_tokens, r->spec->sampling.prefix_count), 1);
    for (int i = 0; r->spec->limits && i < count; i++)
        if (prompts[i] && (r->spec->limits[i] < least || r->spec->limits[i] > r->spec->max_new_tokens))
            return base_fail(BY_ERR_ARGUMENT,
                             "prompt %d has a limit of %d new tokens, which is not between %d and %d", i,
                             r->spec->limits[i], least, r->spec->max_new_tokens);
    return BY_OK;
}

/* Sinks and the continuous cache. */
static by_status check_memory(const run *r)
{
    const by_generate_spec *spec = r->spec;
    const bool beams = spec->beam.width > 1;
    if (spec->sinks < 0 || (spec->sinks > 0 && spec->sinks >= r->capacity - 1))
        return base_fail(BY_ERR_ARGUMENT, "%d sinks leave no room in a context of %d tokens", spec->sinks,
                         r->capacity);
    if (spec->sinks > 0 && (!spec->slide || beams))
        return base_fail(BY_ERR_ARGUMENT, "sinks require a sliding context and no beams");
    BY_TRY(gen_cache_check(&spec->cache));
    BY_TRY(gen_ngram_check(&spec->ngram, r->vocab, beams));
    if (spec->ngram.model && spec->tokenizer &&
        by_ngram_check_tokenizer(spec->ngram.model, spec->tokenizer) != BY_OK)
        return base_fail_context("the n-gram model");
    return spec->cache.size && (beams || r->sources || by_model_rereads(r->generator->model))
               ? base_fail(BY_ERR_UNSUPPORTED,
                           "the continuous cache is for decoders that read from left to right, without beams")
               : BY_OK;
}

/* Checks that apply to sampling and beam search. */
static by_status check_spec(run *r)
{
    const by_sampling *s = &r->spec->sampling;
    if (r->spec->max_new_tokens < 0 || r->spec->stop_count < 0 || r->spec->first_sample < 0)
        return base_fail(BY_ERR_ARGUMENT, "max_new_tokens, stop_count and first_sample cannot be negative");
    if (r->spec->slide && r->spec->max_new_tokens == 0)
        return base_fail(BY_ERR_ARGUMENT, "a sliding context has no end: max_new_tokens is required");
    if (r->spec->max_new_tokens > 0 && s->min_new_tokens > r->spec->max_new_tokens)
        return base_fail(BY_ERR_ARGUMENT, "min_new_tokens %d exceeds max_new_tokens %d", s->min_new_tokens,
                         r->spec->max_new_tokens);
    BY_TRY(check_memory(r));
    if (r->spec->stop_string_count < 0 || !(r->spec->max_seconds >= 0))
        return base_fail(BY_ERR_ARGUMENT, "stop_string_count and max_seconds cannot be negative");
    if (r->spec->stop_string_count > 0 && !r->spec->tokenizer)
        return base_fail(BY_ERR_ARGUMENT, "stop_strings need the tokenizer");
    if (r->spec->max_new_tokens > 0 && s->prefix_count > r->spec->max_new_tokens)
        return base_fail(BY_ERR_ARGUMENT, "the prefix has %d tokens, but at most %d new ones are allowed",
                         s->prefix_count, r->spec->max_new_tokens);
    BY_TRY(gen_sampling_check(s, r->vocab));
    if ((s->no_source_ngram > 0 || (s->source_penalty > 0 && s->source_penalty != 1)) && r->sources &&
        by_model_source_vocab(r->model) != r->vocab)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "source_penalty and no_source_ngram need one vocabulary for source and target");
    return gen_stops_open(&r->stops, r->model, r->spec->stop_tokens, r->spec->stop_count,
                          r->spec->ignore_eos);
}

static by_status begin(run *r, const int32_t *const *prompts, const int *lengths)
{
    size_t rows = (size_t)r->batch;
    BY_TRY(gen_sampler_open(&r->sampler, r->vocab));
    BY_TRY(gen_queue_open(&r->queue, r->generator));
    r->active = base_alloc_zero(rows, sizeof *r->active);
    r->last = base_alloc_zero(rows, sizeof *r->last);
    r->ahead = base_alloc_zero(AHEAD * rows, sizeof *r->ahead);
    r->draws = base_alloc_zero(rows, sizeof *r->draws);
    r->result->rows = base_alloc_zero(rows, sizeof *r->result->rows);
    if (!r->active || !r->last || !r->ahead || !r->draws || !r->result->rows)
        return BY_ERR_MEMORY;
    r->result->count = r->batch;
    if (r->spec->sinks && !(r->again = base_alloc_zero(rows * (size_t)r->capacity, sizeof *r->again)))
        return BY_ERR_MEMORY;
    if (r->spec->ngram.model && !(r->mixed = base_alloc_zero((size_t)r->vocab, sizeof *r->mixed)))
        return BY_ERR_MEMORY;
    if (r->spec->cache.size && !(r->recall = gen_recall_new(r->generator, &r->spec->cache)))
        return BY_ERR_MEMORY;
    BY_TRY(by_generator_keep_top(r->generator, 0));
    for (int b = 0; b < r->batch; b++) {
        by_generator_rewind(r->generator, b, 0);
        if (prompts[b])
            BY_TRY(begin_row(r, b, prompts[b], lengths[b]));
    }
    return BY_OK;
}

static void end(run *r)
{
    gen_sampler_close(&r->sampler);
    gen_stops_close(&r->stops);
    gen_queue_close(&r->queue);
    base_free(r->active);
    base_free(r->last);
    base_free(r->ahead);
    base_free(r->draws);
    base_free(r->again);
    base_free(r->mixed);
    gen_recall_free(r->recall);
}

/* ---- feeding --------------------------------------------------------------------------------- */

/* Restarts the row with the first `sinks` tokens and the last tokens, which fill half of the remaining
 * capacity. Positions, and therefore all keys, change, so nothing in the cache can be kept. */
static void start_again(run *r, int row, int fresh)
{
    const by_generation *out = &r->result->rows[row];
    const int sinks = r->spec->sinks;
    const int last = BY_MIN(BY_MAX((r->capacity - sinks) / 2, 1), out->count - sinks);
    by_generator_rewind(r->generator, row, 0);
    r->queue.next[row] = out->tokens + out->count - last;
    r->queue.left[row] = sinks + last;
    gen_recall_skip(r->recall, row, r->queue.left[row] - BY_MIN(fresh, last));
    if (!sinks)
        return;
    int32_t *again = r->again + (ptrdiff_t)row * r->capacity;
    memcpy(again, out->tokens, sizeof *again * (size_t)sinks);
    memcpy(again + sinks, r->queue.next[row], sizeof *again * (size_t)last);
    r->queue.next[row] = again;
}

/* Queues the last `fresh` tokens of a row. */
static void queue(run *r, int row, int fresh)
{
    const by_generation *out = &r->result->rows[row];
    if (fresh > r->capacity - by_generator_length(r->generator, row)) {
        start_again(r, row, fresh);
        return;
    }
    r->queue.next[row] = out->tokens + out->count - fresh;
    r->queue.left[row] = fresh;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Maximum new tokens of a row: as requested, or as its capacity allows. */
static int limit_of(const run *r, int row)
{
    const by_generate_spec *spec = r->spec;
    return spec->limits           ? spec->limits[row]
           : spec->max_new_tokens ? spec->max_new_tokens
                                  : r->capacity - r->result->rows[row].prompt + 1;
}

/* Whether a row has reached its maximum. */
static bool is_full(const run *r, int row)
{
    const by_generation *out = &r->result->rows[row];
    return out->count - out->prompt >= limit_of(r, row);
}

static bool is_late(const run *r)
{
    return r->spec->max_seconds > 0 && base_seconds() - r->started > r->spec->max_seconds;
}

/* Adds a token to a row and determines whether the row ends with it. */
static by_status accept(run *r, int row, int32_t token, float logprob)
{
    by_generation *out = &r->result->rows[row];
    const by_generate_spec *spec = r->spec;
    if (!r->begun)
        r->result->prompt_seconds = base_seconds() - r->started;
    r->begun = true;
    if (gen_is_stop(&r->stops, token)) {
        out->finish = BY_FINISH_STOP;
    } else {
        BY_TRY(gen_push(out, token));
        r->result->new_tokens++;
        bool complete;
        BY_TRY(gen_stop_strings_end(spec, out->tokens, out->count, &complete));
        if (spec->token && !spec->token(spec->user, row, token, logprob))
            out->finish = BY_FINISH_CALLER;
        else if (complete)
            out->finish = BY_FINISH_STRING;
        else if (is_full(r, row))
            out->finish = BY_FINISH_LENGTH;
        else if (is_late(r))
            out->finish = BY_FINISH_TIME;
    }
    r->active[row] = out->finish == BY_FINISH_NONE;
    return BY_OK;
}

static uint64_t sample_of(const run *r, int row)
{
    return r->spec->samples ? (uint64_t)r->spec->samples[row]
                            : (uint64_t)r->spec->first_sample + (uint64_t)row;
}

/* Choose a row's next token. */
static by_status advance(run *r, int row)
{
    const by_generation *out = &r->result->rows[row];
    const by_generate_spec *spec = r->spec;
    gen_sample_at at = {.tokens = out->tokens,
                        .count = out->count,
                        .prompt = out->prompt,
                        .limit = limit_of(r, row),
                        .source = r->sources ? r->sources[row] : out->tokens,
                        .source_count = r->sources ? r->source_lengths[row] : out->prompt,
                        .sample = sample_of(r, row),
                        .stops = r->stops.tokens,
                        .stop_count = r->stops.count};
    int32_t token;
    float logprob = (float)NAN;
    const float *logits = by_generator_logits(r->generator, row);
    if (logits && r->recall)
        logits = gen_recall_mix(r->recall, row, logits);
    if (!logits)
        return base_error_status();
    if (r->mixed) {
        const int begin = r->sources ? out->prompt : 0;
        gen_ngram_mix(&spec->ngram, out->tokens + begin, out->count - begin, logits, r->vocab, r->mixed);
        logits = r->mixed;
    }
    by_explanation why = {.row = row, .step = out->count - out->prompt};
    BY_TRY(gen_sample(&r->sampler, &spec->sampling, &at, logits, &token,
                      spec->token && !spec->no_logprobs ? &logprob : NULL, spec->explain ? &why : NULL));
    if (spec->explain)
        spec->explain(spec->user, &why);
    return accept(r, row, token, logprob);
}

/* Generates one token for every active row. Returns the number of rows that are still active. */
static by_status advance_all(run *r, int *going)
{
    *going = 0;
    for (int b = 0; b < r->batch; b++) {
        if (!r->active[b])
            continue;
        BY_TRY(advance(r, b));
        if (r->active[b])
            queue(r, b, 1);
        *going += r->active[b];
    }
    return BY_OK;
}

/* ---- on the device --------------------------------------------------------------------------- */

/* The device divides by a temperature in f32. */
static bool draws_plainly(const run *r)
{
    const float temperature = (float)r->spec->sampling.temperature;
    return !r->generator->whole && !gen_is_filtered(&r->spec->sampling) && temperature > 0 &&
           isfinite(temperature);
}

/* Whether decoding is greedy, or sampling with only a temperature, so that the host need not read logits. */
static bool is_plain(const run *r)
{
    const by_generate_spec *spec = r->spec;
    return (spec->no_logprobs || !spec->token) && !spec->explain && !spec->cache.size && !spec->ngram.model &&
           !gen_is_constrained(&spec->sampling) && (spec->sampling.temperature == 0 || draws_plainly(r));
}

/* Number of tokens that every active row can take without the host; 0: a row must be restarted. */
static int steps_ahead(const run *r)
{
    int steps = AHEAD;
    for (int b = 0; b < r->batch; b++) {
        const by_generation *out = &r->result->rows[b];
        if (!r->active[b])
            continue;
        if (r->queue.left[b] != 1)
            return 0;
        steps = BY_MIN(steps, r->capacity - by_generator_length(r->generator, b));
        if (r->spec->max_new_tokens)
            steps = BY_MIN(steps, limit_of(r, b) - (out->count - out->prompt));
    }
    return steps;
}

/* Generates tokens for active rows into r->ahead. */
static by_status choose_ahead(run *r, int steps)
{
    const by_sampling *s = &r->spec->sampling;
    for (int b = 0; b < r->batch; b++) {
        const by_generation *out = &r->result->rows[b];
        r->last[b] = r->active[b] ? r->queue.next[b][0] : 0;
        r->draws[b] = (by_draw_spec){.seed = s->seed,
                                     .sample = sample_of(r, b),
                                     .place = out->count - out->prompt,
                                     .temperature = (float)s->temperature};
    }
    return s->temperature > 0 ? by_generator_draw(r->generator, r->last, r->active, r->draws, steps, r->ahead)
                              : by_generator_greedy(r->generator, r->last, r->active, steps, r->ahead);
}

static by_status accept_ahead(run *r, int row, int32_t token)
{
    return token < 0 ? base_fail(BY_ERR_NUMERIC, "the model's logits are NaN")
                     : accept(r, row, token, (float)NAN);
}

/* Generates several tokens for every active row; those after a row's end are dropped. */
static by_status run_ahead(run *r, int steps, int *going)
{
    const by_generate_spec *spec = r->spec;
    if (spec->cancelled && spec->cancelled(spec->user))
        return base_fail(BY_ERR_CANCELLED, "generation was cancelled");
    BY_TRY(choose_ahead(r, steps));
    for (int s = 0; s < steps; s++)
        for (int b = 0; b < r->batch; b++)
            if (r->active[b])
                BY_TRY(accept_ahead(r, b, r->ahead[s * r->batch + b]));
    *going = 0;
    for (int b = 0; b < r->batch; b++) {
        r->queue.left[b] = 0;
        if (r->active[b])
            queue(r, b, 1);
        *going += r->active[b];
    }
    return BY_OK;
}

static void tell_time(run *r)
{
    const double now = base_seconds() - r->started;
    if (r->begun)
        r->result->decode_seconds = now - r->result->prompt_seconds;
    else
        r->result->prompt_seconds = now;
}

static by_status generate(run *r, const int32_t *const *prompts, const int *lengths)
{
    int going = 0;
    BY_TRY(begin(r, prompts, lengths));
    for (int b = 0; b < r->batch; b++)
        if (r->active[b]) {
            queue(r, b, r->result->rows[b].count);
            r->result->prompt_tokens += r->queue.left[b];
            going++;
        }
    const bool plain = by_device_runs_ahead(by_model_device(r->model)) && is_plain(r);
    while (going) {
        int steps = plain && r->begun ? steps_ahead(r) : 0;
        if (steps > 0) {
            BY_TRY(run_ahead(r, steps, &going));
            continue;
        }
        BY_TRY(gen_queue_feed(&r->queue, r->spec));
        BY_TRY(advance_all(r, &going));
    }
    return BY_OK;
}

/* sources of an encoder-decoder, or NULL. */
static by_status generate_all(by_generator *g, const int32_t *const *sources, const int *source_lengths,
                              const int32_t *const *prompts, const int *lengths, const by_generate_spec *spec,
                              by_generate_result *result)
{
    const by_model *m = by_generator_model(g);
    run r = {.generator = g,
             .model = m,
             .spec = spec,
             .result = result,
             .batch = by_generator_batch(g),
             .capacity = by_generator_capacity(g),
             .vocab = by_model_vocab(m),
             .sources = sources,
             .source_lengths = source_lengths,
             .started = base_seconds()};
    by_status status = check_spec(&r);
    if (status == BY_OK)
        status = check_limits(&r, prompts);
    if (status == BY_OK && spec->beam.width > 1) {
        status = gen_beam_search(&(gen_beam_task){.generator = g,
                                                  .spec = spec,
                                                  .prompts = prompts,
                                                  .lengths = lengths,
                                                  .sources = sources,
                                                  .source_lengths = source_lengths,
                                                  .stops = r.stops.tokens,
                                                  .stop_count = r.stops.count},
                                 result);
    } else if (status == BY_OK) {
        status = generate(&r, prompts, lengths);
        tell_time(&r);
    }
    end(&r);
    return status;
}

/* Encoder-decoders: the encoder reads the prompts as sources, and every text begins with the start token. */
static by_status generate_from(by_generator *g, const int32_t *const *sources, const int *lengths,
                               const by_generate_spec *spec, by_generate_result *result)
{
    const int count = by_generator_batch(g) / by_generator_beams(g);
    const by_model *m = by_generator_model(g);
    const int32_t start = spec->start ? *spec->start : by_model_start(m);
    const int32_t **starts = base_alloc_zero((size_t)count, sizeof *starts);
    int *ones = base_alloc_zero((size_t)count, sizeof *ones);
    by_status s = starts && ones ? BY_OK : BY_ERR_MEMORY;
    if (s == BY_OK && start < 0)
        s = base_fail(BY_ERR_FORMAT, "the model has no decoder_start_token_id");
    if (s == BY_OK && start >= by_model_vocab(m))
        s = base_fail(BY_ERR_ARGUMENT, "decoder_start_token_id %d is outside the vocabulary of %d",
                      (int)start, by_model_vocab(m));
    if (s == BY_OK && spec->slide)
        s = base_fail(BY_ERR_ARGUMENT, "the context of an encoder-decoder cannot slide");
    if (s == BY_OK && spec->max_new_tokens > by_generator_capacity(g))
        s = base_fail(BY_ERR_ARGUMENT, "%d new tokens do not fit: there is room for %d", spec->max_new_tokens,
                      by_generator_capacity(g));
    for (int i = 0; s == BY_OK && i < count; i++) {
        starts[i] = (spec->pictures ? i < spec->pictures->count : sources[i] != NULL) ? &start : NULL;
        ones[i] = 1;
    }
    if (s == BY_OK)
        s = spec->pictures ? by_generator_see(g, spec->pictures) : by_generator_encode(g, sources, lengths);
    if (s == BY_OK)
        s = generate_all(g, sources, lengths, starts, ones, spec, result);
    base_free(starts);
    base_free(ones);
    return s;
}

by_status by_generate(by_generator *g, const int32_t *const *prompts, const int *lengths,
                      const by_generate_spec *spec, by_generate_result *result)
{
    if (result)
        *result = (by_generate_result){0};
    if (!g || !spec || !result || (!spec->pictures && (!prompts || !lengths)))
        return base_fail_missing(g ? "prompt, by_generate_spec or result" : "generator");
    const bool pair = by_model_task(by_generator_model(g)) == BY_TASK_SEQ2SEQ;
    if (spec->pictures && !pair)
        return base_fail(BY_ERR_ARGUMENT, "%s does not read pictures",
                         base_a(by_model_class(by_generator_model(g))).text);
    if (spec->pictures)
        prompts = NULL;
    gen_drop_sequences(g);
    return pair ? generate_from(g, prompts, lengths, spec, result)
                : generate_all(g, NULL, NULL, prompts, lengths, spec, result);
}

void by_generate_result_free(by_generate_result *result)
{
    for (int i = 0; i < result->count; i++)
        base_free(result->rows[i].tokens);
    base_free(result->rows);
    *result = (by_generate_result){0};
}
