/* beam_step.c - one step of a group of hypotheses: continuations, survivors, ends, and explanations.
 *
 * Only the highest logits are copied to the host. Rules and n-gram models can only lower them, so the best
 * are among them if enough stay above the lowest copied one; otherwise the whole row is fetched. */
#include <math.h>

#include "infer/beam.h"
#include "infer/ngram_mix.h"
#include "infer/stop_strings.h"

/* ---- candidates ------------------------------------------------------------------------------ */

/* Whether an option of this rank would be among the best. */
static bool is_good(const beam_run *r, double rank)
{
    return r->n_best < r->keep || rank > r->best[r->n_best - 1].rank;
}

/* Inserts an option among the best: higher ranks first, earlier options first among equals. */
static void offer(beam_run *r, beam_option o)
{
    if (o.total == -INFINITY || !is_good(r, o.rank))
        return;
    int at = r->n_best < r->keep ? r->n_best++ : r->n_best - 1;
    for (; at > 0 && r->best[at - 1].rank < o.rank; at--)
        r->best[at] = r->best[at - 1];
    r->best[at] = o;
}

/* Penalises tokens that earlier groups chose in this step. */
static void diversify(const beam_run *r, const beam_text *t, int group, gen_scores *x)
{
    for (int i = 0; i < group; i++)
        for (int k = 0; k < t->searches[i].n_chosen; k++) {
            float *score = gen_score_of(x, t->searches[i].chosen[k]);
            if (score)
                *score -= (float)r->spec->beam.diversity;
        }
}

static gen_sample_at place_of(const beam_run *r, const beam_text *t, const beam_hypothesis *b)
{
    return (gen_sample_at){.tokens = b->tokens,
                           .count = t->prompt + t->fresh,
                           .prompt = t->prompt,
                           .limit = t->limit,
                           .source = t->source,
                           .source_count = t->source_count,
                           .stops = r->stops,
                           .stop_count = r->stop_count};
}

/* Applies all changes to the log-probabilities of a hypothesis's next token. */
static void apply_rules(beam_run *r, const beam_text *t, int group, const beam_hypothesis *b, gen_scores *x,
                        gen_tracking *track)
{
    const gen_sample_at at = place_of(r, t, b);
    if (r->fused) {
        const int begin = r->paired ? t->prompt : 0;
        gen_ngram_fuse(&r->spec->ngram, b->tokens + begin, at.count - begin, x, r->fused);
        gen_track(track, "n-gram", x);
    }
    gen_constrain(&r->sampler, &r->spec->sampling, &at, x, track);
    if (group > 0 && r->spec->beam.diversity > 0) {
        diversify(r, t, group, x);
        gen_track(track, "diversity", x);
    }
}

static bool check_weight(const beam_run *r, float lse)
{
    if (isfinite(lse) || r->spec->sampling.remove_invalid)
        return true;
    base_fail(BY_ERR_NUMERIC, "the model's logits are not finite");
    return false;
}

/* Scores the highest logits, in x. Returns false if they may not be enough. */
static bool score_few(beam_run *r, const beam_text *t, int group, const beam_hypothesis *b, gen_scores *x,
                      gen_tracking *track)
{
    const by_top_logits *top = by_generator_top(r->generator, b->row);
    if (!top || (r->spec->sampling.prefix_count > t->fresh))
        return false;
    for (int i = 0; i < top->count; i++) {
        r->value[i] = top->logits[i] - top->lse;
        r->id[i] = top->ids[i];
        r->slot[top->ids[i]] = i + 1;
    }
    const float floor = r->value[top->count - 1];
    *x = (gen_scores){.value = r->value, .id = r->id, .slot = r->slot, .count = top->count};
    apply_rules(r, t, group, b, x, track);
    for (int i = 0; i < top->count; i++)
        r->slot[top->ids[i]] = 0;
    int sure = 0;
    for (int i = 0; i < x->count; i++)
        sure += x->value[i] >= floor;
    return sure >= r->keep || top->count == r->vocab || x->count < top->count; /* the last: one is forced */
}

/* Log of the sum of e^logit. */
static float weigh(const float *logits, int count)
{
    float most = -INFINITY;
    double sum = 0;
    for (int i = 0; i < count; i++)
        most = BY_MAX(most, logits[i]);
    for (int i = 0; i < count; i++)
        sum += (double)expf(logits[i] - most);
    return (float)((double)most + log(sum));
}

/* Tracks the most likely tokens of a whole row. */
static void track_all(const beam_run *r, const float *logits, float lse, gen_tracking *track)
{
    for (int k = 0; k < BY_MIN(BY_EXPLAIN_CANDIDATES, r->vocab); k++) {
        int best = -1;
        for (int i = 0; i < r->vocab; i++) {
            bool seen = false;
            for (int j = 0; j < k; j++)
                seen = seen || track->candidate[j].token == i;
            if (!seen && (best < 0 || logits[i] > logits[best]))
                best = i;
        }
        gen_track_add(track, best, logits[best] - lse, expf(logits[best] - lse));
    }
}

/* The scores of all tokens. */
static by_status score_all(beam_run *r, const beam_text *t, int group, const beam_hypothesis *b,
                           gen_scores *x, gen_tracking *track)
{
    const float *logits = by_generator_logits(r->generator, b->row);
    if (!logits)
        return base_error_status();
    const float lse = weigh(logits, r->vocab);
    if (!check_weight(r, lse))
        return BY_ERR_NUMERIC;
    if (track && track->count == 0)
        track_all(r, logits, lse, track);
    for (int i = 0; i < r->vocab; i++)
        r->sampler.row[i] = logits[i] - lse;
    *x = (gen_scores){.value = r->sampler.row, .count = r->vocab};
    apply_rules(r, t, group, b, x, track);
    return BY_OK;
}

/* ---- draws ----------------------------------------------------------------------------------- */

static bool draws(const beam_run *r)
{
    return r->spec->sampling.temperature > 0;
}

/* The n-th highest of some scores. */
static float nth_highest(const float *value, int count, int n)
{
    float bound = INFINITY;
    for (int seen = 0; seen < n && bound > -INFINITY;) {
        float next = -INFINITY;
        for (int i = 0; i < count; i++)
            next = value[i] < bound && value[i] > next ? value[i] : next;
        for (int i = 0; i < count; i++)
            seen += value[i] == next;
        bound = next;
    }
    return bound;
}

/* Applies temperature and filters to log-probabilities. Filters work relative to the highest, whose value is
 * restored afterwards, because different hypotheses are compared. They keep as many tokens as a group
 * considers per hypothesis, so that it always has enough continuations. */
static void filter(beam_run *r, const beam_text *t, const beam_hypothesis *b, gen_scores *x,
                   gen_tracking *track)
{
    const gen_sample_at at = place_of(r, t, b);
    const double temperature = r->spec->sampling.temperature;
    const float highest = nth_highest(x->value, x->count, 1);
    const float least = nth_highest(x->value, x->count, r->keep / r->size);
    memcpy(r->raw, x->value, sizeof *r->raw * (size_t)x->count);
    for (int i = 0; i < x->count; i++)
        x->value[i] -= highest > -INFINITY ? highest : 0;
    gen_filter(&r->sampler, &r->spec->sampling, &at, x, track);
    for (int i = 0; i < x->count; i++)
        x->value[i] = x->value[i] > -INFINITY || r->raw[i] >= least ? (float)((double)r->raw[i] / temperature)
                                                                    : -INFINITY;
}

/* Gumbel noise as a function of seed, sample, step, hypothesis and token. The options with the highest total
 * plus noise, in descending order, are samples without replacement with probabilities e^total. */
static double noise(const beam_run *r, int text, int step, int beam, int32_t token)
{
    const by_generate_spec *spec = r->spec;
    const uint64_t sample =
        spec->samples ? (uint64_t)spec->samples[text] : (uint64_t)spec->first_sample + (uint64_t)text;
    const base_philox p = base_philox_at(spec->sampling.seed, sample,
                                         ((uint64_t)step * 64 + (uint64_t)beam) << 32 | (uint32_t)token);
    const uint64_t bits = ((uint64_t)p.v[1] << 32 | p.v[0]) >> 12;
    return -log(-log(((double)bits + 0.5) * 0x1p-52));
}

#define MOST_NOISE 37 /* that 52 bits give */

static void offer_draw(beam_run *r, const beam_text *t, beam_option o)
{
    if (o.total == -INFINITY || !is_good(r, (double)o.total + MOST_NOISE))
        return;
    o.rank = (double)o.total + noise(r, (int)(t - r->texts), t->fresh, o.beam, o.token);
    offer(r, o);
}

/* Renormalises probabilities. */
static void renormalize(gen_scores *x, gen_tracking *track)
{
    const float lse = weigh(x->value, x->count);
    for (int i = 0; i < x->count && isfinite(lse); i++)
        x->value[i] -= lse;
    gen_track(track, "renormalization", x);
}

/* The continuations of a hypothesis. */
static by_status extend(beam_run *r, const beam_text *t, int group, int which, gen_tracking *track)
{
    const beam_hypothesis *b = &t->searches[group].beams[which];
    const by_top_logits *top = by_generator_top(r->generator, b->row);
    gen_tracking before;
    if (track)
        before = *track;
    gen_scores x;
    if (top && !check_weight(r, top->lse))
        return BY_ERR_NUMERIC;
    if (!score_few(r, t, group, b, &x, track)) {
        if (track)
            *track = before;
        BY_TRY(score_all(r, t, group, b, &x, track));
    }
    if (draws(r))
        filter(r, t, b, &x, track);
    if (r->spec->beam.renormalize)
        renormalize(&x, track);
    for (int i = 0; i < x.count; i++) {
        const float total = b->score + x.value[i];
        const beam_option o = {.total = total,
                               .score = x.value[i],
                               .rank = (double)total,
                               .beam = which,
                               .token = x.id ? x.id[i] : i};
        if (draws(r))
            offer_draw(r, t, o);
        else
            offer(r, o);
    }
    return BY_OK;
}

/* ---- one step of a group --------------------------------------------------------------------- */

static bool is_stop(const beam_run *r, int32_t token)
{
    for (int i = 0; i < r->stop_count; i++)
        if (r->stops[i] == token)
            return true;
    return false;
}

static float normalise(const beam_run *r, float total, int length)
{
    return total / (float)pow((double)length, r->spec->beam.length_penalty);
}

/* A hypothesis ends with this option: it joins the finished ones if it is better than the last of them. */
static bool finish(const beam_run *r, const beam_text *t, beam_group *s, const beam_option *o)
{
    const float score = normalise(r, o->total, t->fresh + 1);
    if (s->n_finished == r->size && score <= s->finished[r->size - 1].score)
        return false;
    int at = s->n_finished < r->size ? s->n_finished++ : r->size - 1;
    int32_t *tokens = s->finished[at].tokens;
    for (; at > 0 && s->finished[at - 1].score < score; at--)
        s->finished[at] = s->finished[at - 1];
    const int count = t->prompt + t->fresh;
    memcpy(tokens, s->beams[o->beam].tokens, sizeof *tokens * (size_t)count);
    tokens[count] = o->token;
    s->finished[at] = (beam_ended){tokens, count + 1, score, o->ends};
    return true;
}

/* Why the search ends after `length` new tokens, or NULL. */
static const char *why_over(const beam_run *r, const beam_text *t, const beam_group *s, int live, int length)
{
    const by_beam *b = &r->spec->beam;
    if (length >= t->limit)
        return "the greatest length is reached";
    if (r->late)
        return "the time is over";
    if (live == 0)
        return "no hypothesis can go on";
    if (s->n_finished < r->size)
        return NULL;
    if (b->early_stopping == BY_STOP_EARLY)
        return "as many texts are finished as there are beams";
    const bool far = b->early_stopping == BY_STOP_NEVER && b->length_penalty > 0;
    const float hope = normalise(r, s->next[0].score, far ? t->limit : length);
    return hope > s->finished[r->size - 1].score ? NULL
                                                 : "no hypothesis can become better than those finished";
}

/* The next option to continue: the highest total of those that do not end, the first of equals; -1: none
 * left. Without sampling, options are already in this order. */
static int next_live(const beam_run *r)
{
    int best = -1;
    for (int i = 0; i < r->n_best; i++)
        if (!r->best[i].taken && r->best[i].ends == BY_FINISH_NONE &&
            (best < 0 || r->best[i].total > r->best[best].total))
            best = i;
    return best;
}

/* Continues the best options that do not end. */
static int go_on(const beam_run *r, const beam_text *t, beam_group *s, int first_row, by_fate *fates)
{
    const int count = t->prompt + t->fresh;
    int live = 0;
    for (int i; live < r->size && (i = next_live(r)) >= 0; live++) {
        beam_option *o = &r->best[i];
        beam_hypothesis *next = &s->next[live];
        const beam_hypothesis *old = &s->beams[o->beam];
        memcpy(next->tokens, old->tokens, sizeof *next->tokens * (size_t)count);
        next->tokens[count] = o->token;
        next->score = o->total;
        next->row = first_row + live;
        r->from[next->row] = old->row;
        o->taken = true;
        if (fates)
            fates[i] = BY_FATE_CHOSEN;
    }
    return live;
}

/* Determines how each of the best options ends, if it does. scratch: space for a text and a token. */
static by_status find_ends(beam_run *r, const beam_text *t, const beam_group *s, int32_t *scratch)
{
    const int count = t->prompt + t->fresh;
    const by_finish otherwise = count + 1 - t->prompt >= t->limit ? BY_FINISH_LENGTH
                                : r->late                         ? BY_FINISH_TIME
                                                                  : BY_FINISH_NONE;
    for (int i = 0; i < r->n_best; i++) {
        beam_option *o = &r->best[i];
        bool complete = false;
        if (r->spec->stop_string_count > 0) {
            memcpy(scratch, s->beams[o->beam].tokens, sizeof *scratch * (size_t)count);
            scratch[count] = o->token;
            BY_TRY(gen_stop_strings_end(r->spec, scratch, count + 1, &complete));
        }
        o->ends = is_stop(r, o->token) ? BY_FINISH_STOP : complete ? BY_FINISH_STRING : otherwise;
    }
    return BY_OK;
}

/* Splits the best options into continuations and ends; fates may be NULL. Only ends among the first `size`
 * count: the others ensure enough continuations. */
static int divide(const beam_run *r, const beam_text *t, beam_group *s, int first_row, by_fate *fates)
{
    s->n_chosen = 0;
    for (int i = 0; i < r->n_best; i++) {
        const beam_option *o = &r->best[i];
        if (o->ends != BY_FINISH_STOP && s->n_chosen < r->size)
            s->chosen[s->n_chosen++] = o->token;
        if (o->ends == BY_FINISH_NONE)
            continue;
        const bool finished = i < r->size && finish(r, t, s, o);
        if (fates)
            fates[i] = finished ? BY_FATE_FINISHED : BY_FATE_TOO_LATE;
    }
    return go_on(r, t, s, first_row, fates);
}

/* ---- explaining ------------------------------------------------------------------------------ */

/* Tracks the most likely continuations of a hypothesis. */
static gen_tracking *track(beam_run *r, const beam_text *t, int group, int which)
{
    if (!r->spec->explain)
        return NULL;
    gen_tracking *out = &r->tracks[which];
    const int row = t->searches[group].beams[which].row;
    const by_top_logits *top = by_generator_top(r->generator, row);
    *out = (gen_tracking){.normal = draws(r)};
    for (int i = 0; top && i < BY_MIN(top->count, BY_EXPLAIN_CANDIDATES); i++) {
        const float score = top->logits[i] - top->lse;
        gen_track_add(out, top->ids[i], score, expf(score));
    }
    return out;
}

static int show_beams(const beam_text *t, const beam_hypothesis *beams, int count, int fresh,
                      by_hypothesis *out)
{
    for (int i = 0; i < count; i++)
        out[i] = (by_hypothesis){beams[i].tokens + t->prompt, fresh, beams[i].score};
    return count;
}

/* The considered options, then the banned ones. */
static void show_candidates(const beam_run *r, const beam_group *s, const by_fate *fates, by_explanation *why)
{
    for (int i = 0; i < r->n_best && why->count < BY_EXPLAIN_CANDIDATES; i++) {
        const beam_option *o = &r->best[i];
        const float cooled = draws(r) ? (float)r->spec->sampling.temperature : 1;
        by_candidate c = {.token = o->token, .probability = expf(o->score * cooled)};
        const gen_tracking *known = &r->tracks[o->beam];
        for (int k = 0; k < known->count; k++)
            c = known->candidate[k].token == o->token ? known->candidate[k] : c;
        c.beam = o->beam;
        c.total = o->total;
        c.fate = fates[i];
        c.score = fates[i] == BY_FATE_FINISHED || fates[i] == BY_FATE_TOO_LATE
                      ? normalise(r, o->total, why->step + 1)
                      : 0;
        why->candidates[why->count++] = c;
    }
    for (int b = 0; b < s->live; b++)
        for (int k = 0; k < r->tracks[b].count && why->count < BY_EXPLAIN_CANDIDATES; k++) {
            by_candidate c = r->tracks[b].candidate[k];
            if (c.n_changes == 0 || c.changes[c.n_changes - 1].share > 0)
                continue;
            c.beam = b;
            c.total = -INFINITY;
            c.fate = BY_FATE_RULED_OUT;
            why->candidates[why->count++] = c;
        }
}

static void explain(const beam_run *r, int which, int group, int live, const by_fate *fates)
{
    const beam_text *t = &r->texts[which];
    const beam_group *s = &t->searches[group];
    by_hypothesis *before = r->shown, *after = before + r->size, *done = after + r->size;
    by_explanation why = {.row = which, .step = t->fresh, .group = group, .draw = -1, .end = s->end};
    show_candidates(r, s, fates, &why);
    why.n_beams = show_beams(t, s->beams, s->live, t->fresh, before);
    why.n_next = show_beams(t, s->next, live, t->fresh + 1, after);
    why.n_finished = s->n_finished;
    for (int i = 0; i < s->n_finished; i++)
        done[i] = (by_hypothesis){s->finished[i].tokens + t->prompt, s->finished[i].count - t->prompt,
                                  s->finished[i].score};
    why.beams = before;
    why.next = after;
    why.finished = done;
    r->spec->explain(r->spec->user, &why);
}

/* ---- the step -------------------------------------------------------------------------------- */

by_status gen_beam_step(beam_run *r, int which, int group)
{
    beam_text *t = &r->texts[which];
    beam_group *s = &t->searches[group];
    by_fate *fates = NULL;
    r->n_best = 0;
    for (int i = 0; i < s->live; i++)
        BY_TRY(extend(r, t, group, i, track(r, t, group, i)));
    BY_TRY(find_ends(r, t, s, s->next[0].tokens)); /* the next hypotheses do not exist yet */
    if (r->spec->explain && !(fates = base_alloc_zero((size_t)r->keep, sizeof *fates)))
        return BY_ERR_MEMORY;
    const int live = divide(r, t, s, t->row + group * r->size, fates);
    s->end = why_over(r, t, s, live, t->fresh + 1);
    if (r->spec->explain)
        explain(r, which, group, live, fates);
    base_free(fates);
    beam_hypothesis *old = s->beams;
    s->beams = s->next;
    s->next = old;
    s->live = s->end ? 0 : live;
    return BY_OK;
}
