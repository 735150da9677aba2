/* rules.c - the constraints on the next token, and the order of all rules (see rules.h). */
#include "infer/rules.h"

#include <math.h>

#include "infer/sample.h"

/* ---- the work of the rules ------------------------------------------------------------------- */

void by_rule_repetition(by_sampler *s, by_scores *x, const int32_t *tokens, int count, double penalty)
{
    for (int i = 0; i < count; i++) {
        float *score = s->mark[tokens[i]] ? NULL : by_score_of(x, tokens[i]);
        if (score)
            *score = (float)(*score > 0 ? *score / penalty : *score * penalty);
        s->mark[tokens[i]] = 1;
    }
    for (int i = 0; i < count; i++)
        s->mark[tokens[i]] = 0;
}

void by_rule_presence(by_sampler *s, by_scores *x, const int32_t *tokens, int count, double presence,
                      double frequency)
{
    for (int i = 0; i < count; i++) {
        float *score = by_score_of(x, tokens[i]);
        if (score)
            *score -= (float)(frequency + (s->mark[tokens[i]] ? 0 : presence));
        s->mark[tokens[i]] = 1;
    }
    for (int i = 0; i < count; i++)
        s->mark[tokens[i]] = 0;
}

static void rule_out(by_scores *x, int32_t token)
{
    float *score = by_score_of(x, token);
    if (score)
        *score = -INFINITY;
}

void by_rule_no_repeat(by_scores *x, const int32_t *tokens, int count, int n)
{
    if (count < n)
        return;
    const int32_t *end = tokens + count - (n - 1); /* the run being completed, n - 1 tokens long */
    for (int i = 0; i + n <= count; i++)
        if (memcmp(tokens + i, end, sizeof *tokens * (size_t)(n - 1)) == 0)
            rule_out(x, tokens[i + n - 1]);
}

void by_rule_ban(by_scores *x, const int32_t *tokens, int count)
{
    for (int i = 0; i < count; i++)
        rule_out(x, tokens[i]);
}

void by_rule_words(by_scores *x, const by_words *words, int n_words, const int32_t *tokens, int count)
{
    for (int i = 0; i < n_words; i++) {
        const int begun = words[i].count - 1;
        if (begun <= count &&
            memcmp(tokens + count - begun, words[i].tokens, sizeof *tokens * (size_t)begun) == 0)
            rule_out(x, words[i].tokens[begun]);
    }
}

void by_rule_only(by_scores *x, int32_t token, bool own_score)
{
    const float *old = by_score_of(x, token);
    const float score = !own_score ? 0 : old ? *old : -INFINITY;
    if (x->id) { /* it need not be listed */
        x->count = 1;
        x->id[0] = token;
        x->value[0] = score;
        return;
    }
    for (int i = 0; i < x->count; i++)
        x->value[i] = -INFINITY;
    x->value[token] = score;
}

/* ---- the rules ------------------------------------------------------------------------------- */

static int fresh_of(const by_sample_at *at)
{
    return at->count - at->prompt;
}

#define WANTED(name) static bool name##_wanted(const by_sampling *spec, const by_sample_at *at)
#define APPLY(name) \
    static void name##_apply(by_sampler *s, const by_sampling *spec, const by_sample_at *at, by_scores *x)

WANTED(repetition)
{
    (void)at;
    return spec->repetition_penalty > 0 && spec->repetition_penalty != 1;
}
APPLY(repetition)
{
    by_rule_repetition(s, x, at->tokens, at->count, spec->repetition_penalty);
}

WANTED(presence)
{
    return spec->presence_penalty != 0 && fresh_of(at) > 0;
}
APPLY(presence)
{
    by_rule_presence(s, x, at->tokens + at->prompt, fresh_of(at), spec->presence_penalty, 0);
}

WANTED(frequency)
{
    return spec->frequency_penalty != 0 && fresh_of(at) > 0;
}
APPLY(frequency)
{
    by_rule_presence(s, x, at->tokens + at->prompt, fresh_of(at), 0, spec->frequency_penalty);
}

WANTED(no_repeat)
{
    (void)at;
    return spec->no_repeat_ngram > 0;
}
APPLY(no_repeat)
{
    (void)s;
    by_rule_no_repeat(x, at->tokens, at->count, spec->no_repeat_ngram);
}

WANTED(banned)
{
    (void)at;
    return spec->banned_count > 0;
}
APPLY(banned)
{
    (void)s, (void)at;
    by_rule_ban(x, spec->banned, spec->banned_count);
}

WANTED(words)
{
    (void)at;
    return spec->word_count > 0;
}
APPLY(words)
{
    (void)s;
    by_rule_words(x, spec->words, spec->word_count, at->tokens, at->count);
}

WANTED(min_length)
{
    return fresh_of(at) < spec->min_new_tokens;
}
APPLY(min_length)
{
    (void)s, (void)spec;
    by_rule_ban(x, at->stops, at->stop_count);
}

WANTED(prefix)
{
    return fresh_of(at) < spec->prefix_count;
}
APPLY(prefix)
{
    (void)s;
    by_rule_only(x, spec->prefix[fresh_of(at)], true);
}

WANTED(first)
{
    return spec->forced_first && fresh_of(at) == 0;
}
APPLY(first)
{
    (void)s, (void)at;
    by_rule_only(x, *spec->forced_first, false);
}

WANTED(last)
{
    return spec->forced_last && at->limit > 0 && fresh_of(at) == at->limit - 1;
}
APPLY(last)
{
    (void)s, (void)at;
    by_rule_only(x, *spec->forced_last, false);
}

WANTED(temperature)
{
    (void)at;
    return spec->temperature != 1;
}
APPLY(temperature)
{
    (void)at;
    by_sample_temperature(s, x->value, spec->temperature);
}

WANTED(top_k)
{
    (void)at;
    return spec->top_k > 0;
}
APPLY(top_k)
{
    (void)at;
    by_sample_top_k(s, x->value, spec->top_k);
}

WANTED(top_p)
{
    (void)at;
    return spec->top_p > 0;
}
APPLY(top_p)
{
    (void)at;
    by_sample_top_p(s, x->value, spec->top_p);
}

WANTED(min_p)
{
    (void)at;
    return spec->min_p > 0;
}
APPLY(min_p)
{
    (void)at;
    by_sample_min_p(s, x->value, spec->min_p);
}

WANTED(typical)
{
    (void)at;
    return spec->typical_p > 0;
}
APPLY(typical)
{
    (void)at;
    by_sample_typical(s, x->value, spec->typical_p);
}

#define RULE(name, text)                  \
    {                                     \
        text, name##_wanted, name##_apply \
    }
const by_sample_rule by_constraints[] = {
    RULE(repetition, "repetition penalty"), RULE(presence, "presence penalty"),
    RULE(frequency, "frequency penalty"),   RULE(no_repeat, "no repeated n-gram"),
    RULE(banned, "banned token"),           RULE(words, "banned word"),
    RULE(min_length, "minimum length"),     RULE(prefix, "prefix"),
    RULE(first, "forced first token"),      RULE(last, "forced last token"),
};
const by_sample_rule by_filters[] = {
    RULE(temperature, "temperature"), RULE(top_k, "top-k"), RULE(top_p, "top-p"), RULE(min_p, "min-p"),
    RULE(typical, "typical"),
};
const int by_constraint_count = BY_COUNT(by_constraints), by_filter_count = BY_COUNT(by_filters);

static void apply_all(const by_sample_rule *rules, int count, by_sampler *s, const by_sampling *spec,
                      const by_sample_at *at, by_scores *x, by_tracking *t)
{
    for (int i = 0; i < count; i++)
        if (rules[i].wanted(spec, at)) {
            rules[i].apply(s, spec, at, x);
            by_track(t, rules[i].name, x);
        }
}

void by_constrain(by_sampler *s, const by_sampling *spec, const by_sample_at *at, by_scores *x,
                  by_tracking *t)
{
    apply_all(by_constraints, by_constraint_count, s, spec, at, x, t);
}

void by_filter(by_sampler *s, const by_sampling *spec, const by_sample_at *at, by_scores *x, by_tracking *t)
{
    apply_all(by_filters, by_filter_count, s, spec, at, x, t);
}

/* ---- checking -------------------------------------------------------------------------------- */

static by_status check_share(const char *name, double p)
{
    return p >= 0 && p <= 1 ? BY_OK
                            : by_fail(BY_ERR_ARGUMENT, "%s is %g; it must lie between 0 and 1", name, p);
}

static by_status check_tokens(const char *name, const int32_t *tokens, int count, int vocab)
{
    for (int i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return by_fail(BY_ERR_ARGUMENT, "%s %d is outside the vocabulary of %d", name, (int)tokens[i],
                           vocab);
    return BY_OK;
}

by_status by_sampling_check(const by_sampling *spec, int vocab)
{
    if (!(spec->temperature >= 0 && isfinite(spec->temperature)))
        return by_fail(BY_ERR_ARGUMENT, "temperature is %g; it must be 0 or more", spec->temperature);
    if (!(spec->repetition_penalty >= 0 && isfinite(spec->repetition_penalty)))
        return by_fail(BY_ERR_ARGUMENT, "repetition_penalty is %g; it must be above 0",
                       spec->repetition_penalty);
    if (!isfinite(spec->presence_penalty) || !isfinite(spec->frequency_penalty))
        return by_fail(BY_ERR_ARGUMENT, "presence_penalty and frequency_penalty must be finite");
    if (spec->top_k < 0 || spec->no_repeat_ngram < 0 || spec->min_new_tokens < 0 || spec->banned_count < 0 ||
        spec->word_count < 0 || spec->prefix_count < 0)
        return by_fail(BY_ERR_ARGUMENT, "top_k, no_repeat_ngram, min_new_tokens, banned_count, word_count "
                                        "and prefix_count cannot be negative");
    BY_TRY(check_share("top_p", spec->top_p));
    BY_TRY(check_share("min_p", spec->min_p));
    BY_TRY(check_share("typical_p", spec->typical_p));
    BY_TRY(check_tokens("banned token", spec->banned, spec->banned_count, vocab));
    BY_TRY(check_tokens("prefix token", spec->prefix, spec->prefix_count, vocab));
    BY_TRY(check_tokens("forced first token", spec->forced_first, spec->forced_first != NULL, vocab));
    BY_TRY(check_tokens("forced last token", spec->forced_last, spec->forced_last != NULL, vocab));
    for (int i = 0; i < spec->word_count; i++) {
        if (spec->words[i].count < 1)
            return by_fail(BY_ERR_ARGUMENT, "banned word %d has no tokens", i);
        BY_TRY(check_tokens("token of a banned word", spec->words[i].tokens, spec->words[i].count, vocab));
    }
    return BY_OK;
}

/* ---- explaining ------------------------------------------------------------------------------ */

void by_track_add(by_tracking *t, int32_t token, float score, float probability)
{
    if (t->count == BY_EXPLAIN_CANDIDATES)
        return;
    t->last[t->count] = score;
    t->candidate[t->count++] = (by_candidate){.token = token, .probability = probability};
}

/* Log of the sum of e^score. */
static double log_weight(const by_scores *x)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < x->count; i++)
        top = fmax(top, (double)x->value[i]);
    for (int i = 0; i < x->count && top > -INFINITY; i++)
        sum += exp((double)x->value[i] - top);
    return top + log(sum);
}

/* The score of a candidate now. */
static float score_now(const by_scores *x, int32_t token)
{
    float now = x->id ? -INFINITY : x->value[token];
    for (int k = 0; x->id && k < x->count; k++)
        now = x->id[k] == token ? x->value[k] : now;
    return now;
}

void by_track_end(by_tracking *t, const by_scores *x)
{
    const double all = t->normal ? log_weight(x) : 0;
    for (int i = 0; i < t->count; i++)
        t->candidate[i].share = (float)exp((double)score_now(x, t->candidate[i].token) - all);
}

void by_track(by_tracking *t, const char *rule, const by_scores *x)
{
    if (!t)
        return;
    const double all = t->normal ? log_weight(x) : 0;
    for (int i = 0; i < t->count; i++) {
        by_candidate *c = &t->candidate[i];
        const float now = score_now(x, c->token);
        if (now == t->last[i] || c->n_changes == BY_EXPLAIN_CHANGES)
            continue;
        c->changes[c->n_changes++] = (by_change){rule, now == -INFINITY ? 0 : (float)exp((double)now - all)};
        t->last[i] = now;
    }
}
