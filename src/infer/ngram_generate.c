/* ngram_generate.c - generation with an n-gram model, with the rules and the sampler of neural models
 * (banyan/generate.h). */
#include <math.h>

#include "banyan/generate.h"
#include "infer/sample.h"

typedef struct writing {
    const by_ngram *model;
    const by_generate_spec *spec;
    by_generate_result *result;
    by_generation *out; /* the present text */
    int row;
    double begun; /* seconds */
    gen_sampler sampler;
    int vocab, room;
    int32_t end, unknown; /* ids; -1: there is none */
    double *words;        /* (words) log10, of a model of words */
    float *row_values;    /* (vocab) logarithms */
    by_ngram_state state;
} writing;

static by_status open_writing(writing *w)
{
    const by_ngram *m = w->model;
    const bool tokens = by_ngram_tokens(m) > 0;
    w->vocab = tokens ? by_ngram_tokens(m) : by_ngram_words(m);
    w->end = tokens ? -1 : by_ngram_find(m, "</s>", 4);
    w->unknown = tokens ? -1 : by_ngram_find(m, "<unk>", 5);
    for (int32_t i = 0; tokens && i < w->vocab && w->end < 0; i++)
        w->end = by_ngram_token_word(m, i) == by_ngram_find(m, "</s>", 4) ? i : -1;
    w->words = base_alloc_zero(tokens ? 1 : (size_t)w->vocab, sizeof *w->words);
    w->row_values = base_alloc_zero((size_t)w->vocab, sizeof *w->row_values);
    BY_TRY(w->words && w->row_values ? BY_OK : BY_ERR_MEMORY);
    return gen_sampler_open(&w->sampler, w->vocab);
}

static void fill_row(writing *w)
{
    if (by_ngram_tokens(w->model)) {
        by_ngram_token_distribution(w->model, &w->state, w->row_values);
    } else {
        by_ngram_distribution(w->model, &w->state, w->words);
        for (int i = 0; i < w->vocab; i++)
            w->row_values[i] = i == w->unknown ? -INFINITY : (float)(w->words[i] * M_LN10);
    }
    if (w->spec->ignore_eos && w->end >= 0)
        w->row_values[w->end] = -INFINITY;
}

static void move(writing *w, int32_t token)
{
    if (by_ngram_tokens(w->model))
        by_ngram_token_score(w->model, &w->state, token, &w->state);
    else
        by_ngram_score(w->model, &w->state, token, &w->state, NULL);
}

/* Allocates one extra token, so that an empty text has a list too. */
static by_status make_room(writing *w)
{
    by_generation *g = w->out;
    if (g->count < w->room)
        return BY_OK;
    const int room = BY_MAX(2 * w->room, 64);
    int32_t *tokens = base_resize(g->tokens, (size_t)room, sizeof *tokens);
    if (!tokens)
        return BY_ERR_MEMORY;
    g->tokens = tokens;
    w->room = room;
    return BY_OK;
}

static by_status push(writing *w, int32_t token)
{
    BY_TRY(make_room(w));
    w->out->tokens[w->out->count++] = token;
    return BY_OK;
}

static by_status step(writing *w)
{
    const by_generate_spec *spec = w->spec;
    by_generation *g = w->out;
    const gen_sample_at at = {.tokens = g->tokens,
                              .count = g->count,
                              .prompt = g->prompt,
                              .limit = spec->max_new_tokens,
                              .source = g->tokens,
                              .source_count = g->prompt,
                              .sample = (uint64_t)spec->first_sample + (uint64_t)w->row,
                              .stops = &w->end,
                              .stop_count = w->end >= 0};
    by_explanation why = {.row = w->row, .step = g->count - g->prompt};
    int32_t token;
    float logprob;
    if (spec->cancelled && spec->cancelled(spec->user))
        return base_fail(BY_ERR_CANCELLED, "generation was cancelled");
    fill_row(w);
    BY_TRY(gen_sample(&w->sampler, &spec->sampling, &at, w->row_values, &token, &logprob,
                      spec->explain ? &why : NULL));
    if (spec->explain)
        spec->explain(spec->user, &why);
    if (token == w->end) {
        g->finish = BY_FINISH_STOP;
        return BY_OK;
    }
    BY_TRY(push(w, token));
    move(w, token);
    if (spec->token && !spec->token(spec->user, w->row, token, logprob))
        g->finish = BY_FINISH_CALLER;
    else if (g->count - g->prompt >= spec->max_new_tokens)
        g->finish = BY_FINISH_LENGTH;
    else if (spec->max_seconds > 0 && base_seconds() - w->begun > spec->max_seconds)
        g->finish = BY_FINISH_TIME;
    return BY_OK;
}

static by_status write_text(writing *w, const int32_t *prompt, int length)
{
    w->room = 0;
    w->out->prompt = length;
    w->state = by_ngram_begin(w->model);
    BY_TRY(make_room(w));
    for (int i = 0; i < length; i++) {
        if (prompt[i] < 0 || prompt[i] >= w->vocab)
            return base_fail(BY_ERR_ARGUMENT, "token %d of the prompt, %d, is outside the vocabulary of %d",
                             i, (int)prompt[i], w->vocab);
        BY_TRY(push(w, prompt[i]));
        move(w, prompt[i]);
    }
    w->result->prompt_tokens += length;
    while (w->out->finish == BY_FINISH_NONE)
        BY_TRY(step(w));
    return BY_OK;
}

static by_status write_texts(writing *w, const int32_t *const *prompts, const int *lengths, int count)
{
    by_status s = open_writing(w);
    if (s == BY_OK)
        s = gen_sampling_check(&w->spec->sampling, w->vocab);
    for (int i = 0; i < count && s == BY_OK; i++) {
        w->row = i;
        w->out = &w->result->rows[i];
        if (prompts[i])
            s = write_text(w, prompts[i], lengths[i]);
        w->result->new_tokens += BY_MAX(w->out->count - w->out->prompt, 0);
    }
    return s;
}

static by_status check(const by_generate_spec *spec)
{
    if (spec->max_new_tokens < 1)
        return base_fail(BY_ERR_ARGUMENT, "an n-gram model has no context limit: max_new_tokens is required");
    if (spec->beam.width > 1 || spec->cache.size || spec->sinks)
        return base_fail(BY_ERR_UNSUPPORTED, "beams, the continuous cache and sinks are for neural models");
    return BY_OK;
}

by_status by_ngram_generate(const by_ngram *m, const int32_t *const *prompts, const int *lengths, int count,
                            const by_generate_spec *spec, by_generate_result *result)
{
    if (!result)
        return base_fail_missing("place for the result");
    *result = (by_generate_result){0};
    if (!m || !prompts || !lengths || !spec)
        return base_fail_missing(m ? "prompts, lengths or by_generate_spec" : "model");
    BY_TRY(check(spec));
    result->rows = base_alloc_zero((size_t)BY_MAX(count, 1), sizeof *result->rows);
    if (!result->rows)
        return BY_ERR_MEMORY;
    result->count = count;
    writing w = {.model = m, .spec = spec, .result = result, .begun = base_seconds()};
    by_status s = write_texts(&w, prompts, lengths, count);
    result->decode_seconds = base_seconds() - w.begun;
    gen_sampler_close(&w.sampler);
    base_free(w.words);
    base_free(w.row_values);
    return s;
}
