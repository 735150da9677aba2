/* sequences.c - continuous batching (see banyan/generate.h). A sequence has the row of its number; the part
 * of its text that is not in the cache is fed by the next steps. */
#include "infer/generator.h"
#include "infer/queue.h"
#include "infer/sample.h"

enum { SLICE = 256 }; /* maximum tokens of a prompt per step */

typedef struct sequence {
    by_generation text; /* tokens NULL: there is none */
    by_sequence_spec spec;
    gen_stops stops;
} sequence;

struct gen_sequences {
    sequence *rows;       /* (batch) */
    const int32_t **next; /* (batch) what to feed, */
    int *counts;          /* (batch) and how much of it */
    gen_sampler sampler;
};

static void close_sequence(sequence *s)
{
    base_free(s->text.tokens);
    gen_stops_close(&s->stops);
    *s = (sequence){0};
}

void gen_drop_sequences(by_generator *g)
{
    struct gen_sequences *s = g->sequences;
    if (!s)
        return;
    for (int b = 0; s->rows && b < g->batch; b++)
        close_sequence(&s->rows[b]);
    gen_sampler_close(&s->sampler);
    base_free(s->rows);
    base_free(s->next);
    base_free(s->counts);
    base_free(s);
    g->sequences = NULL;
}

/* Allocates sequences; the contents of rows are discarded. */
static by_status make_sequences(by_generator *g)
{
    const size_t rows = (size_t)g->batch;
    if (g->sequences)
        return BY_OK;
    if (gen_has_sources(g) || g->beams > 1)
        return base_fail(BY_ERR_UNSUPPORTED, "sequences are only for decoders without beams");
    struct gen_sequences *s = g->sequences = base_alloc_zero(1, sizeof *s);
    if (!s)
        return BY_ERR_MEMORY;
    s->rows = base_alloc_zero(rows, sizeof *s->rows);
    s->next = base_alloc_zero(rows, sizeof *s->next);
    s->counts = base_alloc_zero(rows, sizeof *s->counts);
    if (!s->rows || !s->next || !s->counts || gen_sampler_open(&s->sampler, g->vocab) != BY_OK) {
        gen_drop_sequences(g);
        return BY_ERR_MEMORY;
    }
    for (int b = 0; b < g->batch; b++)
        by_generator_rewind(g, b, 0);
    return BY_OK;
}

static sequence *find(const by_generator *g, int row)
{
    const bool there = g && g->sequences && row >= 0 && row < g->batch && g->sequences->rows[row].text.tokens;
    return there ? &g->sequences->rows[row] : NULL;
}

static by_status fail_unknown(const by_generator *g, int row)
{
    return g ? base_fail(BY_ERR_ARGUMENT, "no sequence %d", row) : base_fail_missing("generator");
}

/* Checks that a text of `count` tokens leaves room for the new tokens. The last token is never fed. */
static by_status check_room(const by_generator *g, int count, int wanted)
{
    if (count > g->capacity || BY_MAX(wanted, 1) - 1 > g->capacity - count)
        return base_fail(BY_ERR_ARGUMENT, "%d new tokens after %d exceed the capacity of %d",
                         BY_MAX(wanted, 1), count, g->capacity);
    return BY_OK;
}

static by_status append(by_generator *g, sequence *s, const int32_t *tokens, int count)
{
    const int all = s->text.count + count;
    BY_TRY(check_room(g, all, s->spec.max_new_tokens));
    int32_t *more = base_resize(s->text.tokens, (size_t)all, sizeof *more);
    if (!more)
        return BY_ERR_MEMORY;
    memcpy(more + s->text.count, tokens, sizeof *more * (size_t)count);
    s->text = (by_generation){.tokens = more, .prompt = all, .count = all};
    return BY_OK;
}

by_status by_generator_add(by_generator *g, const int32_t *prompt, int length, const by_sequence_spec *spec,
                           int *number)
{
    int32_t start;
    int row = 0;
    if (!g || !spec || !number || (!prompt && length > 0))
        return base_fail_missing(g ? "prompt, by_sequence_spec or number" : "generator");
    BY_TRY(make_sequences(g));
    while (row < g->batch && find(g, row))
        row++;
    if (row == g->batch)
        return base_fail(BY_ERR_ARGUMENT, "all %d rows are in use", g->batch);
    if (spec->max_new_tokens < 0 || spec->stop_count < 0 || spec->sample < 0)
        return base_fail(BY_ERR_ARGUMENT, "max_new_tokens, stop_count and sample cannot be negative");
    BY_TRY(gen_sampling_check(&spec->sampling, g->vocab));
    BY_TRY(gen_check_prompt(g->model, row, &prompt, &length, &start));
    sequence *s = &g->sequences->rows[row];
    s->spec = *spec;
    by_status status =
        gen_stops_open(&s->stops, g->model, spec->stop_tokens, spec->stop_count, spec->ignore_eos);
    if (status == BY_OK)
        status = append(g, s, prompt, length);
    if (status != BY_OK)
        close_sequence(s);
    *number = row;
    return status;
}

by_status by_generator_extend(by_generator *g, int number, const int32_t *tokens, int count)
{
    sequence *s = find(g, number);
    int32_t start;
    if (!s)
        return fail_unknown(g, number);
    if (!tokens || count < 1)
        return base_fail(BY_ERR_ARGUMENT, "sequence %d is extended by nothing", number);
    BY_TRY(gen_check_prompt(g->model, number, &tokens, &count, &start));
    return append(g, s, tokens, count);
}

bool by_generator_goes_on(const by_generator *g, int number)
{
    const sequence *s = find(g, number);
    return s && s->text.finish == BY_FINISH_NONE;
}

void by_generator_remove(by_generator *g, int number)
{
    sequence *s = find(g, number);
    if (!s)
        return;
    close_sequence(s);
    by_generator_rewind(g, number, 0);
}

int by_generator_room(const by_generator *g)
{
    int rows = 0;
    if (!g)
        return 0;
    for (int b = 0; b < g->batch; b++)
        rows += !find(g, b);
    if (g->columns > 1 && !g->ring)
        return BY_MAX(g->store->n_free * (int)g->store->page - rows * g->prefix, 0);
    return rows * g->capacity;
}

/* Chooses the next token of a sequence that is fed completely. */
static by_status choose(by_generator *g, int row, by_sequence_token *out)
{
    sequence *s = &g->sequences->rows[row];
    by_generation *text = &s->text;
    const int limit = s->spec.max_new_tokens ? s->spec.max_new_tokens : g->capacity - text->prompt + 1;
    const gen_sample_at at = {.tokens = text->tokens,
                              .count = text->count,
                              .prompt = text->prompt,
                              .limit = limit,
                              .source = text->tokens,
                              .source_count = text->prompt,
                              .sample = (uint64_t)s->spec.sample,
                              .stops = s->stops.tokens,
                              .stop_count = s->stops.count};
    const float *logits = by_generator_logits(g, row);
    *out = (by_sequence_token){.sequence = row};
    if (!logits)
        return base_error_status();
    BY_TRY(
        gen_sample(&g->sequences->sampler, &s->spec.sampling, &at, logits, &out->token, &out->logprob, NULL));
    if (gen_is_stop(&s->stops, out->token)) {
        text->finish = out->finish = BY_FINISH_STOP;
        return BY_OK;
    }
    BY_TRY(gen_push(text, out->token));
    if (text->count - text->prompt >= limit)
        text->finish = BY_FINISH_LENGTH;
    out->finish = text->finish;
    return BY_OK;
}

by_status by_generator_step(by_generator *g, by_sequence_token *out, int *count)
{
    if (!g || !out || !count)
        return base_fail_missing(g ? "room for tokens" : "generator");
    struct gen_sequences *s = g->sequences;
    *count = 0;
    if (!s)
        return BY_OK;
    for (int b = 0; b < g->batch; b++) {
        const by_generation *text = &s->rows[b].text;
        s->counts[b] = by_generator_goes_on(g, b) ? BY_MIN(text->count - g->rows[b].past, SLICE) : 0;
        s->next[b] = s->counts[b] ? text->tokens + g->rows[b].past : NULL;
    }
    BY_TRY(gen_feed(g, s->next, s->counts));
    for (int b = 0; b < g->batch; b++)
        if (s->counts[b] && g->rows[b].past == s->rows[b].text.count)
            BY_TRY(choose(g, b, &out[(*count)++]));
    return BY_OK;
}
