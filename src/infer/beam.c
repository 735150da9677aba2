/* beam.c - beam search with one or several groups of hypotheses. Each step extends the hypotheses of a group
 * by their best tokens, sets aside those that end, and continues with the best of the rest. Finished
 * hypotheses, the end of a search and ties are handled as in the reference library. */
#include "infer/beam.h"

#include <math.h>

enum { SPARE = 16 }; /* reserve of highest logits, for rules that lower some of them */

/* ---- before the first pass ------------------------------------------------------------------- */

/* Returns BY_ERR_ARGUMENT naming an invalid setting. */
static by_status check_beam(const by_generator *g, const by_generate_spec *spec)
{
    const by_beam *b = &spec->beam;
    const int groups = BY_MAX(b->groups, 1);
    if (b->width > BY_BEAMS_MAX)
        return base_fail(BY_ERR_ARGUMENT, "a beam search has at most %d hypotheses, not %d", BY_BEAMS_MAX,
                         b->width);
    if (by_generator_beams(g) != b->width)
        return base_fail(BY_ERR_ARGUMENT, "the generator was created with %d beams, not %d",
                         by_generator_beams(g), b->width);
    if (b->groups < 0 || b->width % groups != 0)
        return base_fail(BY_ERR_ARGUMENT, "%d beams cannot be divided into %d groups of one size", b->width,
                         b->groups);
    if (b->returned < 0 || b->returned > b->width)
        return base_fail(BY_ERR_ARGUMENT, "cannot return %d texts with %d beams", b->returned, b->width);
    if (!(b->diversity >= 0 && isfinite(b->diversity)) || !isfinite(b->length_penalty))
        return base_fail(BY_ERR_ARGUMENT,
                         "diversity is %g and length_penalty %g; they must be finite, the first not negative",
                         b->diversity, b->length_penalty);
    if (b->diversity > 0 && groups == 1)
        return base_fail(BY_ERR_ARGUMENT, "diversity needs more than one beam group");
    if (spec->sampling.temperature > 0 && groups > 1)
        return base_fail(BY_ERR_ARGUMENT, "beam groups require temperature 0");
    if (spec->sampling.temperature > 0 && spec->sampling.top_h > 0)
        return base_fail(BY_ERR_UNSUPPORTED, "top_h is not supported for sampling within a beam search");
    if (spec->slide)
        return base_fail(BY_ERR_ARGUMENT, "the context cannot slide in a beam search");
    return BY_OK;
}

static int choose_top(const beam_run *r)
{
    const int wanted =
        r->keep + (gen_is_constrained(&r->spec->sampling) || r->spec->beam.diversity > 0 ? SPARE : 0);
    if (r->keep > BY_TOP_MAX || gen_is_raised(&r->spec->sampling) || r->spec->sampling.temperature > 0 ||
        r->spec->beam.renormalize)
        return 0;
    return BY_MIN(BY_MIN(wanted, BY_TOP_MAX), r->vocab);
}

static by_status open_search(const beam_run *r, beam_group *s, int length)
{
    const size_t size = (size_t)r->size, room = (size_t)length;
    s->beams = base_alloc_zero(size, sizeof *s->beams);
    s->next = base_alloc_zero(size, sizeof *s->next);
    s->finished = base_alloc_zero(size, sizeof *s->finished);
    s->chosen = base_alloc_zero(size, sizeof *s->chosen);
    if (!s->beams || !s->next || !s->finished || !s->chosen)
        return BY_ERR_MEMORY;
    for (int i = 0; i < r->size; i++) {
        s->beams[i].tokens = base_alloc_zero(room, sizeof(int32_t));
        s->next[i].tokens = base_alloc_zero(room, sizeof(int32_t));
        s->finished[i].tokens = base_alloc_zero(room, sizeof(int32_t));
        if (!s->beams[i].tokens || !s->next[i].tokens || !s->finished[i].tokens)
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* Every group starts with one hypothesis, the prompt, all in the same row. */
static by_status open_text(beam_run *r, int which, const int32_t *prompt, int length)
{
    beam_text *t = &r->texts[which];
    int32_t start;
    BY_TRY(gen_check_prompt(by_generator_model(r->generator), which, &prompt, &length, &start));
    const int room = r->capacity - length + 1; /* the last token is never fed and needs no position */
    if (room < 1 || r->spec->max_new_tokens > room)
        return base_fail(BY_ERR_ARGUMENT,
                         "%d new tokens after a prompt of %d do not fit into the context of %d",
                         BY_MAX(r->spec->max_new_tokens, 1), length, r->capacity);
    t->prompt = length;
    t->limit = r->spec->limits ? r->spec->limits[which] : r->spec->max_new_tokens;
    t->limit = t->limit ? t->limit : room;
    t->row = which * r->width;
    t->searches = base_alloc_zero((size_t)r->groups, sizeof *t->searches);
    if (!t->searches)
        return BY_ERR_MEMORY;
    for (int i = 0; i < r->groups; i++) {
        beam_group *s = &t->searches[i];
        BY_TRY(open_search(r, s, length + t->limit));
        memcpy(s->beams[0].tokens, prompt, sizeof *prompt * (size_t)length);
        s->beams[0].row = t->row;
        s->live = 1;
    }
    return BY_OK;
}

static void close_text(const beam_run *r, beam_text *t)
{
    for (int i = 0; t->searches && i < r->groups; i++) {
        beam_group *s = &t->searches[i];
        for (int k = 0; k < r->size; k++) {
            if (s->beams)
                base_free(s->beams[k].tokens);
            if (s->next)
                base_free(s->next[k].tokens);
            if (s->finished)
                base_free(s->finished[k].tokens);
        }
        base_free(s->beams);
        base_free(s->next);
        base_free(s->finished);
        base_free(s->chosen);
    }
    base_free(t->searches);
}

static by_status begin(beam_run *r, const gen_beam_task *task)
{
    const int32_t *const *prompts = task->prompts, *const *sources = task->sources;
    const int *lengths = task->lengths, *source_lengths = task->source_lengths;
    const size_t rows = (size_t)by_generator_batch(r->generator), count = (size_t)r->count;
    BY_TRY(gen_sampler_open(&r->sampler, r->vocab));
    BY_TRY(gen_queue_open(&r->queue, r->generator));
    r->texts = base_alloc_zero(count, sizeof *r->texts);
    r->best = base_alloc_zero((size_t)r->keep, sizeof *r->best);
    r->value = base_alloc_zero((size_t)BY_MAX(r->top, 1), sizeof *r->value);
    r->id = base_alloc_zero((size_t)BY_MAX(r->top, 1), sizeof *r->id);
    r->slot = base_alloc_zero((size_t)r->vocab, sizeof *r->slot);
    const bool draws = r->spec->sampling.temperature > 0;
    r->raw = draws ? base_alloc_zero((size_t)r->vocab, sizeof *r->raw) : NULL;
    const bool fuses = r->spec->ngram.model != NULL;
    r->fused = fuses ? base_alloc_zero((size_t)r->vocab, sizeof *r->fused) : NULL;
    r->paired = sources != NULL;
    r->from = base_alloc_zero(rows, sizeof *r->from);
    r->shown = base_alloc_zero(3 * (size_t)r->size, sizeof *r->shown);
    r->tracks = base_alloc_zero(r->spec->explain ? (size_t)r->size : 1, sizeof *r->tracks);
    const int returned = BY_MAX(r->spec->beam.returned, 1);
    r->result->rows = base_alloc_zero(count * (size_t)returned, sizeof *r->result->rows);
    if (!r->texts || !r->best || !r->value || !r->id || !r->slot || (draws && !r->raw) ||
        (fuses && !r->fused) || !r->from || !r->shown || !r->tracks || !r->result->rows)
        return BY_ERR_MEMORY;
    r->result->count = r->count * returned;
    BY_TRY(by_generator_keep_top(r->generator, r->top));
    for (int i = 0; i < (int)rows; i++)
        by_generator_rewind(r->generator, i, 0);
    for (int i = 0; i < r->count; i++) {
        r->texts[i].over = true;
        if (!prompts[i])
            continue;
        BY_TRY(open_text(r, i, prompts[i], lengths[i]));
        beam_text *t = &r->texts[i];
        t->over = false;
        t->source = sources ? sources[i] : t->searches[0].beams[0].tokens;
        t->source_count = sources ? source_lengths[i] : t->prompt;
        r->queue.next[t->row] = t->searches[0].beams[0].tokens;
        r->queue.left[t->row] = t->prompt;
        r->result->prompt_tokens += t->prompt;
    }
    return BY_OK;
}

static void end(beam_run *r)
{
    const double now = base_seconds() - r->started;
    if (r->begun)
        r->result->decode_seconds = now - r->result->prompt_seconds;
    else
        r->result->prompt_seconds = now;
    for (int i = 0; r->texts && i < r->count; i++)
        close_text(r, &r->texts[i]);
    gen_sampler_close(&r->sampler);
    base_free(r->texts);
    base_free(r->best);
    base_free(r->raw);
    base_free(r->fused);
    base_free(r->value);
    base_free(r->id);
    base_free(r->slot);
    base_free(r->from);
    gen_queue_close(&r->queue);
    base_free(r->shown);
    base_free(r->tracks);
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* One step for every hypothesis of a text. Unused rows copy the first row of their group. */
static by_status step_text(beam_run *r, int which)
{
    beam_text *t = &r->texts[which];
    bool over = true;
    for (int i = 0; i < r->groups; i++) {
        t->searches[i].n_chosen = 0;
        if (t->searches[i].end)
            continue;
        BY_TRY(gen_beam_step(r, which, i));
        over = over && t->searches[i].end;
    }
    t->fresh++;
    t->over = over;
    return BY_OK;
}

/* Queues the last token of every hypothesis. */
static void queue(beam_run *r)
{
    for (int i = 0; i < r->count; i++) {
        const beam_text *t = &r->texts[i];
        for (int g = 0; g < r->groups && !t->over; g++)
            for (int k = 0; k < t->searches[g].live; k++) {
                const beam_hypothesis *b = &t->searches[g].beams[k];
                r->queue.next[b->row] = b->tokens + t->prompt + t->fresh - 1;
                r->queue.left[b->row] = 1;
            }
    }
}

static by_status search_all(beam_run *r)
{
    const int rows = by_generator_batch(r->generator);
    for (bool going = r->count > 0; going;) {
        BY_TRY(gen_queue_feed(&r->queue, r->spec));
        if (!r->begun)
            r->result->prompt_seconds = base_seconds() - r->started;
        r->begun = true;
        r->late = r->spec->max_seconds > 0 && base_seconds() - r->started > r->spec->max_seconds;
        for (int b = 0; b < rows; b++)
            r->from[b] = b;
        going = false;
        for (int i = 0; i < r->count; i++) {
            if (r->texts[i].over)
                continue;
            BY_TRY(step_text(r, i));
            going = going || !r->texts[i].over;
        }
        if (going)
            BY_TRY(by_generator_reorder(r->generator, r->from));
        queue(r);
    }
    return BY_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The best remaining finished text of all groups. */
static beam_ended *take_best(const beam_run *r, beam_text *t)
{
    beam_ended *best = NULL;
    for (int g = 0; g < r->groups; g++)
        for (int i = 0; i < t->searches[g].n_finished; i++) {
            beam_ended *e = &t->searches[g].finished[i];
            if (e->tokens && (!best || e->score > best->score))
                best = e;
        }
    return best;
}

/* Passes a text to the caller's callback, which may end it earlier. */
static void deliver(beam_run *r, int row, by_generation *out)
{
    const by_generate_spec *spec = r->spec;
    for (int i = out->prompt; spec->token && i < out->count; i++)
        if (!spec->token(spec->user, row, out->tokens[i], NAN)) {
            out->count = i + 1;
            out->finish = BY_FINISH_CALLER;
        }
    r->result->new_tokens += out->count - out->prompt;
}

static by_status give_results(beam_run *r)
{
    const int returned = BY_MAX(r->spec->beam.returned, 1);
    for (int i = 0; i < r->count; i++)
        for (int k = 0; k < returned && r->texts[i].searches; k++) {
            by_generation *out = &r->result->rows[i * returned + k];
            beam_ended *e = take_best(r, &r->texts[i]);
            if (!e && k == 0)
                return gen_fail_no_token(&r->spec->sampling);
            if (!e)
                break;
            *out = (by_generation){.tokens = e->tokens,
                                   .prompt = r->texts[i].prompt,
                                   .count = e->count - (e->why == BY_FINISH_STOP),
                                   .finish = e->why,
                                   .score = e->score};
            e->tokens = NULL; /* now owned by the result */
            deliver(r, i * returned + k, out);
        }
    return BY_OK;
}

by_status gen_beam_search(const gen_beam_task *task, by_generate_result *result)
{
    by_generator *g = task->generator;
    const by_generate_spec *spec = task->spec;
    BY_TRY(check_beam(g, spec));
    beam_run r = {.generator = g,
                  .spec = spec,
                  .result = result,
                  .stops = task->stops,
                  .stop_count = task->stop_count,
                  .width = spec->beam.width,
                  .groups = BY_MAX(spec->beam.groups, 1),
                  .vocab = by_model_vocab(by_generator_model(g)),
                  .capacity = by_generator_capacity(g),
                  .count = by_generator_batch(g) / spec->beam.width,
                  .started = base_seconds()};
    r.size = r.width / r.groups;
    r.keep = BY_MAX(2, 1 + task->stop_count) * r.size;
    r.top = choose_top(&r);
    by_status status = begin(&r, task);
    if (status == BY_OK)
        status = search_all(&r);
    if (status == BY_OK)
        status = give_results(&r);
    end(&r);
    return status;
}
