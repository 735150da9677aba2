/* rules.c - the constraints on the next token, and the order of all rules (see rules.h). */
#include "infer/rules.h"

#include <float.h>
#include <math.h>

#include "infer/sample.h"

/* ---- the work of the rules ------------------------------------------------------------------- */

void gen_rule_repetition(gen_sampler *s, gen_scores *x, const int32_t *tokens, int count, double penalty)
{
    for (int i = 0; i < count; i++) {
        float *score = s->mark[tokens[i]] ? NULL : gen_score_of(x, tokens[i]);
        if (score)
            *score = (float)(*score > 0 ? *score / penalty : *score * penalty);
        s->mark[tokens[i]] = 1;
    }
    for (int i = 0; i < count; i++)
        s->mark[tokens[i]] = 0;
}

void gen_rule_presence(gen_sampler *s, gen_scores *x, const int32_t *tokens, int count, double presence,
                       double frequency)
{
    for (int i = 0; i < count; i++) {
        float *score = gen_score_of(x, tokens[i]);
        if (score)
            *score -= (float)(frequency + (s->mark[tokens[i]] ? 0 : presence));
        s->mark[tokens[i]] = 1;
    }
    for (int i = 0; i < count; i++)
        s->mark[tokens[i]] = 0;
}

static void rule_out(gen_scores *x, int32_t token)
{
    float *score = gen_score_of(x, token);
    if (score)
        *score = -INFINITY;
}

void gen_rule_no_repeat(gen_scores *x, const int32_t *there, int there_count, const int32_t *tokens,
                        int count, int n)
{
    if (count < n - 1)
        return;
    const int32_t *end = tokens + count - (n - 1); /* the n-gram being completed, n - 1 tokens long */
    for (int i = 0; i + n <= there_count; i++)
        if (memcmp(there + i, end, sizeof *tokens * (size_t)(n - 1)) == 0)
            rule_out(x, there[i + n - 1]);
}

void gen_rule_ban(gen_scores *x, const int32_t *tokens, int count)
{
    for (int i = 0; i < count; i++)
        rule_out(x, tokens[i]);
}

/* Whether the text ends with all tokens of a sequence except its last. */
static bool has_begun(const int32_t *run, int length, const int32_t *tokens, int count)
{
    const int begun = length - 1;
    return begun <= count && memcmp(tokens + count - begun, run, sizeof *tokens * (size_t)begun) == 0;
}

void gen_rule_words(gen_scores *x, const by_words *words, int n_words, const int32_t *tokens, int count)
{
    for (int i = 0; i < n_words; i++)
        if (has_begun(words[i].tokens, words[i].count, tokens, count))
            rule_out(x, words[i].tokens[words[i].count - 1]);
}

void gen_rule_bias(gen_scores *x, const by_bias *biases, int n_biases, const int32_t *tokens, int count)
{
    for (int i = 0; i < n_biases; i++) {
        const by_bias *b = &biases[i];
        float *score =
            has_begun(b->tokens, b->count, tokens, count) ? gen_score_of(x, b->tokens[b->count - 1]) : NULL;
        if (score)
            *score += (float)b->bias;
    }
}

void gen_rule_finite(gen_scores *x)
{
    for (int i = 0; i < x->count; i++)
        x->value[i] = isnan(x->value[i])         ? 0
                      : x->value[i] == INFINITY  ? FLT_MAX
                      : x->value[i] == -INFINITY ? -FLT_MAX
                                                 : x->value[i];
}

void gen_rule_only(gen_scores *x, int32_t token, bool own_score)
{
    const float *old = gen_score_of(x, token);
    const float score = !own_score ? 0 : old ? *old : -INFINITY;
    if (x->id) { /* it may be missing from the list */
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

static int fresh_of(const gen_sample_at *at)
{
    return at->count - at->prompt;
}

/* Whether a rule is enabled by the spec, and whether it applies at a step. */
#define SET(name)    static bool name##_set(const by_sampling *spec)
#define WANTED(name) static bool name##_wanted(const by_sampling *spec, const gen_sample_at *at)
#define APPLY(name) \
    static void name##_apply(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x)

SET(bias)
{
    return spec->bias_count > 0;
}
APPLY(bias)
{
    (void)s;
    gen_rule_bias(x, spec->biases, spec->bias_count, at->tokens, at->count);
}

SET(source)
{
    return spec->source_penalty > 0 && spec->source_penalty != 1;
}
APPLY(source)
{
    gen_rule_repetition(s, x, at->source, at->source_count, 1 / spec->source_penalty);
}

SET(repetition)
{
    return spec->repetition_penalty > 0 && spec->repetition_penalty != 1;
}
APPLY(repetition)
{
    gen_rule_repetition(s, x, at->tokens, at->count, spec->repetition_penalty);
}

SET(presence)
{
    return spec->presence_penalty != 0;
}
WANTED(presence)
{
    (void)spec;
    return fresh_of(at) > 0;
}
APPLY(presence)
{
    gen_rule_presence(s, x, at->tokens + at->prompt, fresh_of(at), spec->presence_penalty, 0);
}

SET(frequency)
{
    return spec->frequency_penalty != 0;
}
WANTED(frequency)
{
    (void)spec;
    return fresh_of(at) > 0;
}
APPLY(frequency)
{
    gen_rule_presence(s, x, at->tokens + at->prompt, fresh_of(at), 0, spec->frequency_penalty);
}

SET(no_repeat)
{
    return spec->no_repeat_ngram > 0;
}
APPLY(no_repeat)
{
    (void)s;
    gen_rule_no_repeat(x, at->tokens, at->count, at->tokens, at->count, spec->no_repeat_ngram);
}

SET(no_source)
{
    return spec->no_source_ngram > 0;
}
APPLY(no_source)
{
    (void)s;
    gen_rule_no_repeat(x, at->source, at->source_count, at->tokens, at->count, spec->no_source_ngram);
}

SET(banned)
{
    return spec->banned_count > 0;
}
APPLY(banned)
{
    (void)s, (void)at;
    gen_rule_ban(x, spec->banned, spec->banned_count);
}

SET(words)
{
    return spec->word_count > 0;
}
APPLY(words)
{
    (void)s;
    gen_rule_words(x, spec->words, spec->word_count, at->tokens, at->count);
}

SET(min_length)
{
    return spec->min_new_tokens > 0;
}
WANTED(min_length)
{
    return fresh_of(at) < spec->min_new_tokens;
}
APPLY(min_length)
{
    (void)s, (void)spec;
    gen_rule_ban(x, at->stops, at->stop_count);
}

SET(prefix)
{
    return spec->prefix_count > 0;
}
WANTED(prefix)
{
    return fresh_of(at) < spec->prefix_count;
}
APPLY(prefix)
{
    (void)s;
    gen_rule_only(x, spec->prefix[fresh_of(at)], true);
}

SET(first)
{
    return spec->forced_first != NULL;
}
WANTED(first)
{
    (void)spec;
    return fresh_of(at) == 0;
}
APPLY(first)
{
    (void)s, (void)at;
    gen_rule_only(x, *spec->forced_first, false);
}

SET(bos)
{
    return spec->forced_bos != NULL;
}
WANTED(bos)
{
    (void)spec;
    return at->count == 1;
}
APPLY(bos)
{
    (void)s, (void)at;
    gen_rule_only(x, *spec->forced_bos, false);
}

SET(last)
{
    return spec->forced_last != NULL;
}
WANTED(last)
{
    (void)spec;
    return at->limit > 0 && fresh_of(at) == at->limit - 1;
}
APPLY(last)
{
    (void)s, (void)at;
    gen_rule_only(x, *spec->forced_last, false);
}

SET(finite)
{
    return spec->remove_invalid;
}
APPLY(finite)
{
    (void)s, (void)spec, (void)at;
    gen_rule_finite(x);
}

SET(decay)
{
    return spec->decay > 0 && spec->decay != 1;
}
WANTED(decay)
{
    return fresh_of(at) > spec->decay_start;
}
APPLY(decay)
{
    (void)s;
    const double factor = pow(spec->decay, fresh_of(at) - spec->decay_start) - 1;
    for (int i = 0; i < at->stop_count; i++) {
        float *score = gen_score_of(x, at->stops[i]);
        if (score && *score > -INFINITY)
            *score += (float)(fabs((double)*score) * factor);
    }
}

SET(suppressed)
{
    return spec->suppressed_count > 0;
}
APPLY(suppressed)
{
    (void)s, (void)at;
    gen_rule_ban(x, spec->suppressed, spec->suppressed_count);
}

SET(first_banned)
{
    return spec->first_banned_count > 0;
}
WANTED(first_banned)
{
    return fresh_of(at) == (spec->forced_bos && at->prompt == 1);
}
APPLY(first_banned)
{
    (void)s, (void)at;
    gen_rule_ban(x, spec->first_banned, spec->first_banned_count);
}

SET(temperature)
{
    return spec->temperature != 1;
}
APPLY(temperature)
{
    (void)at;
    gen_sample_temperature(s, x->value, spec->temperature);
}

SET(top_h)
{
    return spec->top_h > 0;
}
APPLY(top_h)
{
    (void)at;
    gen_sample_top_h(s, x->value, spec->top_h);
}

SET(top_k)
{
    return spec->top_k > 0;
}
APPLY(top_k)
{
    (void)at;
    gen_sample_top_k(s, x->value, spec->top_k);
}

SET(top_p)
{
    return spec->top_p > 0;
}
APPLY(top_p)
{
    (void)at;
    gen_sample_top_p(s, x->value, spec->top_p);
}

SET(min_p)
{
    return spec->min_p > 0;
}
APPLY(min_p)
{
    (void)at;
    gen_sample_min_p(s, x->value, spec->min_p);
}

SET(typical)
{
    return spec->typical_p > 0;
}
APPLY(typical)
{
    (void)at;
    gen_sample_typical(s, x->value, spec->typical_p);
}

SET(epsilon)
{
    return spec->epsilon_cutoff > 0;
}
APPLY(epsilon)
{
    (void)at;
    gen_sample_epsilon(s, x->value, spec->epsilon_cutoff);
}

SET(eta)
{
    return spec->eta_cutoff > 0;
}
APPLY(eta)
{
    (void)at;
    gen_sample_eta(s, x->value, spec->eta_cutoff);
}

/* Whether a rule can raise a token's score, so that the highest logits of the model are not enough. */
static bool bias_raises(const by_sampling *spec)
{
    for (int i = 0; i < spec->bias_count; i++)
        if (spec->biases[i].bias > 0)
            return true;
    return false;
}

static bool source_raises(const by_sampling *spec)
{
    return spec->source_penalty > 1;
}

static bool finite_raises(const by_sampling *spec)
{
    return spec->remove_invalid;
}

static bool repetition_raises(const by_sampling *spec)
{
    return spec->repetition_penalty < 1;
}

static bool presence_raises(const by_sampling *spec)
{
    return spec->presence_penalty < 0;
}

static bool frequency_raises(const by_sampling *spec)
{
    return spec->frequency_penalty < 0;
}

static bool decay_raises(const by_sampling *spec)
{
    return spec->decay > 1;
}

/* ALWAYS: at every step if enabled. */
#define ALWAYS(name, text)                         \
    {                                              \
        text, name##_set, NULL, name##_apply, NULL \
    }
#define RULE(name, text)                                    \
    {                                                       \
        text, name##_set, name##_wanted, name##_apply, NULL \
    }
#define RAISING(name, text, wanted)                           \
    {                                                         \
        text, name##_set, wanted, name##_apply, name##_raises \
    }
const gen_sample_rule gen_constraints[] = {
    RAISING(bias, "bias", NULL),
    RAISING(source, "source penalty", NULL),
    RAISING(repetition, "repetition penalty", NULL),
    RAISING(presence, "presence penalty", presence_wanted),
    RAISING(frequency, "frequency penalty", frequency_wanted),
    ALWAYS(no_repeat, "no repeated n-gram"),
    ALWAYS(no_source, "no n-gram of the source"),
    ALWAYS(banned, "banned token"),
    ALWAYS(words, "banned word"),
    RULE(min_length, "minimum length"),
    RULE(prefix, "prefix"),
    RULE(first, "forced first token"),
    RULE(bos, "forced first token"),
    RULE(last, "forced last token"),
    RAISING(finite, "finite numbers", NULL),
    RAISING(decay, "decay of length", decay_wanted),
    ALWAYS(suppressed, "suppressed token"),
    RULE(first_banned, "banned first token"),
};
const gen_sample_rule gen_filters[] = {
    ALWAYS(temperature, "temperature"),
    ALWAYS(top_h, "top-h"),
    ALWAYS(top_k, "top-k"),
    ALWAYS(top_p, "top-p"),
    ALWAYS(min_p, "min-p"),
    ALWAYS(typical, "typical"),
    ALWAYS(epsilon, "epsilon"),
    ALWAYS(eta, "eta"),
};
const int gen_constraint_count = BY_COUNT(gen_constraints), gen_filter_count = BY_COUNT(gen_filters);

static void apply_all(const gen_sample_rule *rules, int count, gen_sampler *s, const by_sampling *spec,
                      const gen_sample_at *at, gen_scores *x, gen_tracking *t)
{
    for (int i = 0; i < count; i++)
        if (rules[i].set(spec) && (!rules[i].wanted || rules[i].wanted(spec, at))) {
            rules[i].apply(s, spec, at, x);
            gen_track(t, rules[i].name, x);
        }
}

bool gen_is_constrained(const by_sampling *spec)
{
    for (int i = 0; i < gen_constraint_count; i++)
        if (gen_constraints[i].set(spec))
            return true;
    return false;
}

bool gen_is_filtered(const by_sampling *spec)
{
    for (int i = 0; i < gen_filter_count; i++)
        if (gen_filters[i].set(spec) && gen_filters[i].apply != temperature_apply)
            return true;
    return false;
}

bool gen_is_raised(const by_sampling *spec)
{
    for (int i = 0; i < gen_constraint_count; i++)
        if (gen_constraints[i].set(spec) && gen_constraints[i].raises && gen_constraints[i].raises(spec))
            return true;
    return false;
}

by_status gen_fail_no_token(const by_sampling *spec)
{
    char names[256] = "";
    for (int i = 0, n = 0; i < gen_constraint_count && n < (int)sizeof names - 40; i++)
        if (gen_constraints[i].set(spec))
            n += base_format(names + n, sizeof names - (size_t)n, "%s%s", n ? ", " : "",
                             gen_constraints[i].name);
    return base_fail(BY_ERR_NUMERIC, "no token is left: the constraints ban all of them (%s)", names);
}

void gen_constrain(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x,
                   gen_tracking *t)
{
    apply_all(gen_constraints, gen_constraint_count, s, spec, at, x, t);
}

void gen_filter(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, gen_scores *x,
                gen_tracking *t)
{
    apply_all(gen_filters, gen_filter_count, s, spec, at, x, t);
}

/* ---- explaining ------------------------------------------------------------------------------ */

void gen_track_add(gen_tracking *t, int32_t token, float score, float probability)
{
    if (t->count == BY_EXPLAIN_CANDIDATES)
        return;
    t->last[t->count] = score;
    t->candidate[t->count++] = (by_candidate){.token = token, .probability = probability};
}

/* Log of the sum of e^score. */
static double log_weight(const gen_scores *x)
{
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < x->count; i++)
        top = fmax(top, (double)x->value[i]);
    for (int i = 0; i < x->count && top > -INFINITY; i++)
        sum += exp((double)x->value[i] - top);
    return top + log(sum);
}

/* The current score of a candidate. */
static float score_now(const gen_scores *x, int32_t token)
{
    float now = x->id ? -INFINITY : x->value[token];
    for (int k = 0; x->id && k < x->count; k++)
        now = x->id[k] == token ? x->value[k] : now;
    return now;
}

void gen_track_end(gen_tracking *t, const gen_scores *x)
{
    const double all = t->normal ? log_weight(x) : 0;
    for (int i = 0; i < t->count; i++)
        t->candidate[i].share = (float)exp((double)score_now(x, t->candidate[i].token) - all);
}

void gen_track(gen_tracking *t, const char *rule, const gen_scores *x)
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
