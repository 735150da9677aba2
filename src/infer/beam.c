/* beam.c - beam search. A text is searched for by one or several groups of hypotheses; each step extends the
 * hypotheses of a group by their best tokens, sets aside those that end, and goes on with the best of the
 * rest. What is finished, when a search ends and how ties are broken is as in the reference library.
 *
 * Only the highest logits come to the host. Rules can only lower them, so the best are still among them as
 * long as enough stay above the lowest that came; otherwise the whole row is fetched. */
#include "infer/beam.h"

#include <math.h>

#include "infer/rules.h"

enum { SLICE = 256, MOST_TOP = 128, SPARE = 16 };

/* A text so far, with its prompt. */
typedef struct beam {
    int32_t *tokens;
    float score; /* sum of log-probabilities */
    int row;     /* of the generator: where its keys and logits are */
} beam;

typedef struct ended {
    int32_t *tokens; /* with the prompt, and a stop token at the end when one came */
    int count;
    float score;
    bool stopped;
} ended;

/* A group of hypotheses. */
typedef struct search {
    beam *beams, *next; /* (width) */
    int live;           /* of beams */
    int32_t *chosen;    /* (width) tokens chosen in the present step, for the groups that follow */
    int n_chosen;
    ended *finished; /* (width) best first */
    int n_finished;
    const char *end; /* why it is over, NULL: it is not */
} search;

typedef struct text {
    int prompt, fresh, limit; /* tokens of the prompt, new ones so far, and at most */
    int row;                  /* its first row of the generator */
    search *searches;
    bool over;
} text;

typedef struct option {
    float total, score; /* with the hypothesis, and alone */
    int beam;
    int32_t token;
} option;

typedef struct run {
    by_generator *generator;
    const by_generate_spec *spec;
    by_generate_result *result;
    const int32_t *stops;
    int stop_count;
    int width, groups, size; /* beams of a text; their groups, and beams of one */
    int keep;                /* continuations looked at in a step of a group */
    int top;                 /* highest logits of a row that come to the host; 0: all */
    int vocab, capacity;
    by_sampler sampler;
    text *texts;
    int count;    /* texts */
    int *order;   /* (count) the text at each place of the generator, -1: none */
    int places;   /* in use */
    option *best; /* (keep) */
    int n_best;
    float *value;  /* (top) scores of a row, */
    int32_t *id;   /* whose they are */
    int32_t *slot; /* (V) and where they are, all 0 between calls */
    int32_t *from; /* (B) */
    const int32_t **next;
    int *left, *counts;
    by_hypothesis *shown; /* (3 size) for explanations, as what follows */
    by_tracking *tracks;  /* (size) what became of each hypothesis's likeliest tokens */
    double started;
    bool begun;
} run;

/* ---- before the first pass ------------------------------------------------------------------- */

by_status by_beam_check(const by_generator *g, const by_generate_spec *spec)
{
    const by_beam *b = &spec->beam;
    const int groups = BY_MAX(b->groups, 1);
    if (b->width > 64)
        return by_fail(BY_ERR_ARGUMENT, "a beam search keeps 64 hypotheses at most, not %d", b->width);
    if (by_generator_beams(g) != b->width)
        return by_fail(BY_ERR_ARGUMENT, "the generator was made for %d beams, %d are asked for",
                       by_generator_beams(g), b->width);
    if (b->groups < 0 || b->width % groups != 0)
        return by_fail(BY_ERR_ARGUMENT, "%d beams cannot be divided into %d groups of one size", b->width,
                       b->groups);
    if (b->returned < 0 || b->returned > b->width)
        return by_fail(BY_ERR_ARGUMENT, "%d texts are to be returned, but there are %d beams", b->returned,
                       b->width);
    if (!(b->diversity >= 0 && isfinite(b->diversity)) || !isfinite(b->length_penalty))
        return by_fail(BY_ERR_ARGUMENT,
                       "diversity is %g and length_penalty %g; they must be finite, the first not negative",
                       b->diversity, b->length_penalty);
    if (b->diversity > 0 && groups == 1)
        return by_fail(BY_ERR_ARGUMENT, "diversity tells groups apart, and there is only one");
    if (spec->sampling.temperature > 0)
        return by_fail(BY_ERR_ARGUMENT, "a beam search draws nothing: temperature must be 0");
    if (spec->slide)
        return by_fail(BY_ERR_ARGUMENT, "the context cannot slide in a beam search");
    return BY_OK;
}

/* Can a rule make a token likelier? Then the highest logits are not enough. */
static bool raises(const by_sampling *s)
{
    return (s->repetition_penalty > 0 && s->repetition_penalty < 1) || s->presence_penalty < 0 ||
           s->frequency_penalty < 0;
}

static bool constrains(const by_generate_spec *spec)
{
    const by_sampling *s = &spec->sampling;
    return s->repetition_penalty > 0 || s->presence_penalty != 0 || s->frequency_penalty != 0 ||
           s->no_repeat_ngram > 0 || s->banned_count > 0 || s->word_count > 0 || s->min_new_tokens > 0 ||
           spec->beam.diversity > 0;
}

static int choose_top(const run *r)
{
    const int wanted = r->keep + (constrains(r->spec) ? SPARE : 0);
    if (r->keep > MOST_TOP || raises(&r->spec->sampling))
        return 0;
    return BY_MIN(BY_MIN(wanted, MOST_TOP), r->vocab);
}

static by_status open_search(const run *r, search *s, int length)
{
    const size_t size = (size_t)r->size, room = (size_t)length;
    s->beams = by_alloc_zero(size, sizeof *s->beams);
    s->next = by_alloc_zero(size, sizeof *s->next);
    s->finished = by_alloc_zero(size, sizeof *s->finished);
    s->chosen = by_alloc_zero(size, sizeof *s->chosen);
    if (!s->beams || !s->next || !s->finished || !s->chosen)
        return BY_ERR_MEMORY;
    for (int i = 0; i < r->size; i++) {
        s->beams[i].tokens = by_alloc_zero(room, sizeof(int32_t));
        s->next[i].tokens = by_alloc_zero(room, sizeof(int32_t));
        s->finished[i].tokens = by_alloc_zero(room, sizeof(int32_t));
        if (!s->beams[i].tokens || !s->next[i].tokens || !s->finished[i].tokens)
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* Every group begins with one hypothesis, the prompt, all of them in the same row. */
static by_status open_text(run *r, int which, const int32_t *prompt, int length)
{
    text *t = &r->texts[which];
    int32_t start = by_model_eos(by_generator_model(r->generator));
    if (length < 0)
        return by_fail(BY_ERR_ARGUMENT, "the prompt of row %d has %d tokens", which, length);
    if (length == 0 && (start < 0 || start >= r->vocab))
        return by_fail(BY_ERR_ARGUMENT, "the prompt is empty, and this model has no end-of-text token to "
                                        "start from: give it at least one token");
    prompt = length ? prompt : &start;
    length = BY_MAX(length, 1);
    for (int i = 0; i < length; i++)
        if (prompt[i] < 0 || prompt[i] >= r->vocab)
            return by_fail(BY_ERR_ARGUMENT, "token %d (row %d, place %d) is outside the vocabulary of %d",
                           (int)prompt[i], which, i, r->vocab);
    const int room = r->capacity - length + 1; /* the last token is never fed and needs no place */
    if (room < 1 || r->spec->max_new_tokens > room)
        return by_fail(BY_ERR_ARGUMENT,
                       "%d new tokens after a prompt of %d do not fit into the context of %d",
                       BY_MAX(r->spec->max_new_tokens, 1), length, r->capacity);
    t->prompt = length;
    t->limit = r->spec->max_new_tokens ? r->spec->max_new_tokens : room;
    t->row = r->places * r->width;
    t->searches = by_alloc_zero((size_t)r->groups, sizeof *t->searches);
    if (!t->searches)
        return BY_ERR_MEMORY;
    for (int i = 0; i < r->groups; i++) {
        search *s = &t->searches[i];
        BY_TRY(open_search(r, s, length + t->limit));
        memcpy(s->beams[0].tokens, prompt, sizeof *prompt * (size_t)length);
        s->beams[0].row = t->row;
        s->live = 1;
    }
    r->order[r->places++] = which;
    return BY_OK;
}

static void close_text(const run *r, text *t)
{
    for (int i = 0; t->searches && i < r->groups; i++) {
        search *s = &t->searches[i];
        for (int k = 0; k < r->size; k++) {
            if (s->beams)
                by_free(s->beams[k].tokens);
            if (s->next)
                by_free(s->next[k].tokens);
            if (s->finished)
                by_free(s->finished[k].tokens);
        }
        by_free(s->beams);
        by_free(s->next);
        by_free(s->finished);
        by_free(s->chosen);
    }
    by_free(t->searches);
}

static by_status begin(run *r, const int32_t *const *prompts, const int *lengths)
{
    const size_t rows = (size_t)by_generator_batch(r->generator), count = (size_t)r->count;
    BY_TRY(by_sampler_open(&r->sampler, r->vocab));
    r->texts = by_alloc_zero(count, sizeof *r->texts);
    r->order = by_alloc_zero(count, sizeof *r->order);
    r->best = by_alloc_zero((size_t)r->keep, sizeof *r->best);
    r->value = by_alloc_zero((size_t)BY_MAX(r->top, 1), sizeof *r->value);
    r->id = by_alloc_zero((size_t)BY_MAX(r->top, 1), sizeof *r->id);
    r->slot = by_alloc_zero((size_t)r->vocab, sizeof *r->slot);
    r->from = by_alloc_zero(rows, sizeof *r->from);
    r->next = by_alloc_zero(rows, sizeof *r->next);
    r->left = by_alloc_zero(rows, sizeof *r->left);
    r->counts = by_alloc_zero(rows, sizeof *r->counts);
    r->shown = by_alloc_zero(3 * (size_t)r->size, sizeof *r->shown);
    r->tracks = by_alloc_zero(r->spec->explain ? (size_t)r->size : 1, sizeof *r->tracks);
    const int returned = BY_MAX(r->spec->beam.returned, 1);
    r->result->rows = by_alloc_zero(count * (size_t)returned, sizeof *r->result->rows);
    if (!r->texts || !r->order || !r->best || !r->value || !r->id || !r->slot || !r->from || !r->next ||
        !r->left || !r->counts || !r->shown || !r->tracks || !r->result->rows)
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
        text *t = &r->texts[i];
        t->over = false;
        r->next[t->row] = t->searches[0].beams[0].tokens;
        r->left[t->row] = t->prompt;
        r->result->prompt_tokens += t->prompt;
    }
    return BY_OK;
}

static void end(run *r)
{
    const double now = by_seconds() - r->started;
    if (r->begun)
        r->result->decode_seconds = now - r->result->prompt_seconds;
    else
        r->result->prompt_seconds = now;
    for (int i = 0; r->texts && i < r->count; i++)
        close_text(r, &r->texts[i]);
    by_sampler_close(&r->sampler);
    by_free(r->texts);
    by_free(r->order);
    by_free(r->best);
    by_free(r->value);
    by_free(r->id);
    by_free(r->slot);
    by_free(r->from);
    by_free(r->next);
    by_free(r->left);
    by_free(r->counts);
    by_free(r->shown);
    by_free(r->tracks);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Enter an option among the best: higher totals first, of equals the first that came. */
static void offer(run *r, option o)
{
    if (o.total == -INFINITY || (r->n_best == r->keep && o.total <= r->best[r->n_best - 1].total))
        return;
    int at = r->n_best < r->keep ? r->n_best++ : r->n_best - 1;
    for (; at > 0 && r->best[at - 1].total < o.total; at--)
        r->best[at] = r->best[at - 1];
    r->best[at] = o;
}

/* Groups before this one have just chosen these tokens. */
static void diversify(const run *r, const text *t, int group, by_scores *x)
{
    for (int i = 0; i < group; i++)
        for (int k = 0; k < t->searches[i].n_chosen; k++) {
            float *score = by_score_of(x, t->searches[i].chosen[k]);
            if (score)
                *score -= (float)r->spec->beam.diversity;
        }
}

static by_sample_at place_of(const run *r, const text *t, const beam *b)
{
    return (by_sample_at){.tokens = b->tokens,
                          .count = t->prompt + t->fresh,
                          .prompt = t->prompt,
                          .limit = t->limit,
                          .stops = r->stops,
                          .stop_count = r->stop_count};
}

/* Everything that changes the log-probabilities of a hypothesis's next token. */
static void apply_rules(run *r, const text *t, int group, const beam *b, by_scores *x, by_tracking *track)
{
    const by_sample_at at = place_of(r, t, b);
    by_constrain(&r->sampler, &r->spec->sampling, &at, x, track);
    if (group > 0 && r->spec->beam.diversity > 0) {
        diversify(r, t, group, x);
        by_track(track, "diversity", x);
    }
}

static bool check_weight(float lse)
{
    if (isfinite(lse))
        return true;
    by_fail(BY_ERR_NUMERIC, "the model gives logits that are not finite");
    return false;
}

/* The scores of the highest logits, in x; false when they may not be enough. */
static bool score_few(run *r, const text *t, int group, const beam *b, by_scores *x, by_tracking *track)
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
    *x = (by_scores){.value = r->value, .id = r->id, .slot = r->slot, .count = top->count};
    apply_rules(r, t, group, b, x, track);
    for (int i = 0; i < top->count; i++)
        r->slot[top->ids[i]] = 0;
    int sure = 0;
    for (int i = 0; i < x->count; i++)
        sure += x->value[i] >= floor;
    return sure >= r->keep || top->count == r->vocab || x->count < top->count; /* the last: one is forced */
}

/* The scores of all tokens. */
static by_status score_all(run *r, const text *t, int group, const beam *b, by_scores *x, by_tracking *track)
{
    const float *logits = by_generator_logits(r->generator, b->row);
    if (!logits)
        return by_error_status();
    float most = -INFINITY;
    double sum = 0;
    for (int i = 0; i < r->vocab; i++)
        most = BY_MAX(most, logits[i]);
    for (int i = 0; i < r->vocab; i++)
        sum += (double)expf(logits[i] - most);
    const float lse = (float)((double)most + log(sum));
    if (!check_weight(lse))
        return BY_ERR_NUMERIC;
    for (int i = 0; i < r->vocab; i++)
        r->sampler.row[i] = logits[i] - lse;
    *x = (by_scores){.value = r->sampler.row, .count = r->vocab};
    apply_rules(r, t, group, b, x, track);
    return BY_OK;
}

/* The continuations of a hypothesis. */
static by_status extend(run *r, const text *t, int group, int which, by_tracking *track)
{
    const beam *b = &t->searches[group].beams[which];
    const by_top_logits *top = by_generator_top(r->generator, b->row);
    by_tracking before;
    if (track)
        before = *track;
    by_scores x;
    if (top && !check_weight(top->lse))
        return BY_ERR_NUMERIC;
    if (!score_few(r, t, group, b, &x, track)) {
        if (track)
            *track = before;
        BY_TRY(score_all(r, t, group, b, &x, track));
    }
    for (int i = 0; i < x.count; i++)
        offer(r, (option){b->score + x.value[i], x.value[i], which, x.id ? x.id[i] : i});
    return BY_OK;
}

/* ---- one step of a group --------------------------------------------------------------------- */

static bool is_stop(const run *r, int32_t token)
{
    for (int i = 0; i < r->stop_count; i++)
        if (r->stops[i] == token)
            return true;
    return false;
}

static float normalise(const run *r, float total, int length)
{
    return total / (float)pow((double)length, r->spec->beam.length_penalty);
}

/* A hypothesis ends with this option: it joins the finished ones when it is better than the last of them. */
static bool finish(const run *r, const text *t, search *s, const option *o, bool stopped)
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
    s->finished[at] = (ended){tokens, count + 1, score, stopped};
    return true;
}

/* Why the search is over after `length` new tokens, NULL when it is not. */
static const char *why_over(const run *r, const text *t, const search *s, int live, int length)
{
    const by_beam *b = &r->spec->beam;
    if (length >= t->limit)
        return "the greatest length is reached";
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

/* Sort the best options into what goes on and what ends; fates may be NULL. Only ends among the first `size`
 * count: the others are there so that enough can go on. */
static int divide(const run *r, const text *t, search *s, int first_row, by_fate *fates)
{
    int live = 0;
    s->n_chosen = 0;
    for (int i = 0; i < r->n_best; i++) {
        const option *o = &r->best[i];
        const bool stopped = is_stop(r, o->token), last = t->fresh + 1 >= t->limit;
        by_fate fate = BY_FATE_PASSED;
        if (!stopped && s->n_chosen < r->size)
            s->chosen[s->n_chosen++] = o->token;
        if (stopped || last) {
            fate = i < r->size && finish(r, t, s, o, stopped) ? BY_FATE_FINISHED : BY_FATE_TOO_LATE;
        } else if (live < r->size) {
            beam *next = &s->next[live];
            const beam *old = &s->beams[o->beam];
            const int count = t->prompt + t->fresh;
            memcpy(next->tokens, old->tokens, sizeof *next->tokens * (size_t)count);
            next->tokens[count] = o->token;
            next->score = o->total;
            next->row = first_row + live;
            r->from[next->row] = old->row;
            live++;
            fate = BY_FATE_CHOSEN;
        }
        if (fates)
            fates[i] = fate;
    }
    return live;
}

/* ---- explaining ------------------------------------------------------------------------------ */

/* Follow the likeliest continuations of a hypothesis. */
static by_tracking *track(run *r, const text *t, int group, int which)
{
    if (!r->spec->explain)
        return NULL;
    by_tracking *out = &r->tracks[which];
    const int row = t->searches[group].beams[which].row;
    const by_top_logits *top = by_generator_top(r->generator, row);
    *out = (by_tracking){0};
    for (int i = 0; top && i < BY_MIN(top->count, BY_EXPLAIN_CANDIDATES); i++) {
        const float score = top->logits[i] - top->lse;
        by_track_add(out, top->ids[i], score, expf(score));
    }
    return out;
}

static int show_beams(const text *t, const beam *beams, int count, int fresh, by_hypothesis *out)
{
    for (int i = 0; i < count; i++)
        out[i] = (by_hypothesis){beams[i].tokens + t->prompt, fresh, beams[i].score};
    return count;
}

/* The options that were looked at, then what was ruled out. */
static void show_candidates(const run *r, const search *s, const by_fate *fates, by_explanation *why)
{
    for (int i = 0; i < r->n_best && why->count < BY_EXPLAIN_CANDIDATES; i++) {
        const option *o = &r->best[i];
        by_candidate c = {.token = o->token, .probability = expf(o->score)};
        const by_tracking *known = &r->tracks[o->beam];
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

static void explain(const run *r, int which, int group, int live, const by_fate *fates)
{
    const text *t = &r->texts[which];
    const search *s = &t->searches[group];
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

/* ---- the loop -------------------------------------------------------------------------------- */

static by_status step_group(run *r, int which, int group)
{
    text *t = &r->texts[which];
    search *s = &t->searches[group];
    by_fate *fates = NULL;
    r->n_best = 0;
    for (int i = 0; i < s->live; i++)
        BY_TRY(extend(r, t, group, i, track(r, t, group, i)));
    if (r->spec->explain && !(fates = by_alloc_zero((size_t)r->keep, sizeof *fates)))
        return BY_ERR_MEMORY;
    const int live = divide(r, t, s, t->row + group * r->size, fates);
    s->end = why_over(r, t, s, live, t->fresh + 1);
    if (r->spec->explain)
        explain(r, which, group, live, fates);
    by_free(fates);
    beam *old = s->beams;
    s->beams = s->next;
    s->next = old;
    s->live = s->end ? 0 : live;
    return BY_OK;
}

/* One token for every hypothesis of a text. Rows that hold none stay with the first of their own. */
static by_status step_text(run *r, int which)
{
    text *t = &r->texts[which];
    bool over = true;
    for (int i = 0; i < r->groups; i++) {
        t->searches[i].n_chosen = 0;
        if (t->searches[i].end)
            continue;
        BY_TRY(step_group(r, which, i));
        over = over && t->searches[i].end;
    }
    t->fresh++;
    t->over = over;
    return BY_OK;
}

/* Feed what is queued, slice by slice. */
static by_status feed(run *r)
{
    const by_generate_spec *spec = r->spec;
    const int rows = by_generator_batch(r->generator);
    for (int most = 1; most > 0;) {
        if (spec->cancelled && spec->cancelled(spec->user))
            return by_fail(BY_ERR_CANCELLED, "generation was cancelled");
        most = 0;
        for (int b = 0; b < rows; b++) {
            r->counts[b] = BY_MIN(r->left[b], SLICE);
            r->left[b] -= r->counts[b];
            most = BY_MAX(most, r->left[b]);
        }
        BY_TRY(by_generator_feed(r->generator, r->next, r->counts));
        for (int b = 0; b < rows; b++)
            if (r->counts[b])
                r->next[b] += r->counts[b];
    }
    return BY_OK;
}

/* Texts that are over leave their places once half of the places are free: what is left moves to the front,
 * and every pass costs half as much from then on. */
static void squeeze(run *r)
{
    int live = 0;
    for (int i = 0; i < r->places; i++)
        live += r->order[i] >= 0 && !r->texts[r->order[i]].over;
    if (2 * live > r->places + 1 || live == 0)
        return;
    int place = 0;
    for (int i = 0; i < r->places; i++) {
        if (r->order[i] < 0 || r->texts[r->order[i]].over)
            continue;
        text *t = &r->texts[r->order[i]];
        const int moved = t->row - place * r->width;
        for (int b = 0; b < r->width; b++)
            r->from[place * r->width + b] = r->from[t->row + b];
        for (int b = t->row; moved && b < t->row + r->width; b++)
            r->from[b] = b; /* left as it is, unless another one takes the place */
        for (int g = 0; g < r->groups; g++)
            for (int k = 0; k < t->searches[g].live; k++)
                t->searches[g].beams[k].row -= moved;
        t->row -= moved;
        r->order[place++] = r->order[i];
    }
    r->places = place;
}

/* The last token of every hypothesis goes next. */
static void queue(run *r)
{
    for (int i = 0; i < r->places; i++) {
        text *t = &r->texts[r->order[i]];
        for (int g = 0; g < r->groups && !t->over; g++)
            for (int k = 0; k < t->searches[g].live; k++) {
                const beam *b = &t->searches[g].beams[k];
                r->next[b->row] = b->tokens + t->prompt + t->fresh - 1;
                r->left[b->row] = 1;
            }
    }
}

static by_status search_all(run *r)
{
    const int rows = by_generator_batch(r->generator);
    for (bool going = r->places > 0; going;) {
        BY_TRY(feed(r));
        if (!r->begun)
            r->result->prompt_seconds = by_seconds() - r->started;
        r->begun = true;
        for (int b = 0; b < rows; b++)
            r->from[b] = b;
        going = false;
        for (int i = 0; i < r->places; i++) {
            if (r->texts[r->order[i]].over)
                continue;
            BY_TRY(step_text(r, r->order[i]));
            going = going || !r->texts[r->order[i]].over;
        }
        squeeze(r);
        if (going)
            BY_TRY(by_generator_reorder(r->generator, r->from));
        queue(r);
    }
    return BY_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The best finished text of all groups that was not taken yet. */
static ended *take_best(const run *r, text *t)
{
    ended *best = NULL;
    for (int g = 0; g < r->groups; g++)
        for (int i = 0; i < t->searches[g].n_finished; i++) {
            ended *e = &t->searches[g].finished[i];
            if (e->tokens && (!best || e->score > best->score))
                best = e;
        }
    return best;
}

/* A text is told to the caller, who may end it earlier. */
static void tell(run *r, int row, by_generation *out)
{
    const by_generate_spec *spec = r->spec;
    for (int i = out->prompt; spec->token && i < out->count; i++)
        if (!spec->token(spec->user, row, out->tokens[i], NAN)) {
            out->count = i + 1;
            out->finish = BY_FINISH_CALLER;
        }
    r->result->new_tokens += out->count - out->prompt;
}

static by_status give_results(run *r)
{
    const int returned = BY_MAX(r->spec->beam.returned, 1);
    for (int i = 0; i < r->count; i++)
        for (int k = 0; k < returned && r->texts[i].searches; k++) {
            by_generation *out = &r->result->rows[i * returned + k];
            ended *e = take_best(r, &r->texts[i]);
            if (!e && k == 0)
                return by_fail(BY_ERR_NUMERIC, BY_NO_TOKEN_LEFT);
            if (!e)
                break;
            *out = (by_generation){.tokens = e->tokens,
                                   .prompt = r->texts[i].prompt,
                                   .count = e->count - e->stopped,
                                   .finish = e->stopped ? BY_FINISH_STOP : BY_FINISH_LENGTH,
                                   .score = e->score};
            e->tokens = NULL; /* the result's from now on */
            tell(r, i * returned + k, out);
        }
    return BY_OK;
}

by_status by_beam_search(by_generator *g, const int32_t *const *prompts, const int *lengths,
                         const by_generate_spec *spec, const int32_t *stops, int stop_count,
                         by_generate_result *result)
{
    BY_TRY(by_beam_check(g, spec));
    run r = {.generator = g,
             .spec = spec,
             .result = result,
             .stops = stops,
             .stop_count = stop_count,
             .width = spec->beam.width,
             .groups = BY_MAX(spec->beam.groups, 1),
             .vocab = by_model_vocab(by_generator_model(g)),
             .capacity = by_generator_capacity(g),
             .count = by_generator_batch(g) / spec->beam.width,
             .started = by_seconds()};
    r.size = r.width / r.groups;
    r.keep = BY_MAX(2, 1 + stop_count) * r.size;
    r.top = choose_top(&r);
    by_status status = begin(&r, prompts, lengths);
    if (status == BY_OK)
        status = search_all(&r);
    if (status == BY_OK)
        status = give_results(&r);
    end(&r);
    return status;
}
