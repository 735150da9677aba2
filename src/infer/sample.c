/* sample.c - penalties, filters and draws (see sample.h). Nothing here sorts a vocabulary: top-k keeps a heap
 * of k logits, and the filters that collect probability mass select it in linear expected time. */
#include "infer/sample.h"

#include <math.h>

by_status by_sampler_open(by_sampler *s, int vocab)
{
    *s = (by_sampler){.vocab = vocab};
    s->row = by_alloc_zero((size_t)vocab, sizeof *s->row);
    s->items = by_alloc_zero((size_t)vocab, sizeof *s->items);
    s->mark = by_alloc_zero((size_t)vocab, sizeof *s->mark);
    if (s->row && s->items && s->mark)
        return BY_OK;
    by_sampler_close(s);
    return BY_ERR_MEMORY;
}

void by_sampler_close(by_sampler *s)
{
    by_free(s->row);
    by_free(s->items);
    by_free(s->mark);
    *s = (by_sampler){0};
}

/* ---- penalties ------------------------------------------------------------------------------- */

void by_sample_repetition(by_sampler *s, float *row, const int32_t *tokens, int count, double penalty)
{
    for (int i = 0; i < count; i++) {
        int32_t t = tokens[i];
        if (!s->mark[t])
            row[t] = (float)(row[t] > 0 ? row[t] / penalty : row[t] * penalty);
        s->mark[t] = 1;
    }
    for (int i = 0; i < count; i++)
        s->mark[tokens[i]] = 0;
}

void by_sample_presence(by_sampler *s, float *row, const int32_t *tokens, int count, double presence,
                        double frequency)
{
    for (int i = 0; i < count; i++) {
        int32_t t = tokens[i];
        row[t] -= (float)(frequency + (s->mark[t] ? 0 : presence));
        s->mark[t] = 1;
    }
    for (int i = 0; i < count; i++)
        s->mark[tokens[i]] = 0;
}

void by_sample_no_repeat(by_sampler *s, float *row, const int32_t *tokens, int count, int n)
{
    (void)s;
    if (count < n)
        return;
    const int32_t *end = tokens + count - (n - 1); /* the run being completed, n - 1 tokens long */
    for (int i = 0; i + n <= count; i++)
        if (memcmp(tokens + i, end, sizeof *tokens * (size_t)(n - 1)) == 0)
            row[tokens[i + n - 1]] = -INFINITY;
}

void by_sample_ban(by_sampler *s, float *row, const int32_t *tokens, int count)
{
    (void)s;
    for (int i = 0; i < count; i++)
        row[tokens[i]] = -INFINITY;
}

/* ---- filters --------------------------------------------------------------------------------- */

static float highest(const by_sampler *s, const float *row)
{
    float top = -INFINITY;
    for (int i = 0; i < s->vocab; i++)
        top = row[i] > top ? row[i] : top;
    return top;
}

static void drop_below(const by_sampler *s, float *row, float least)
{
    for (int i = 0; i < s->vocab; i++)
        row[i] = row[i] < least ? -INFINITY : row[i];
}

/* The tokens not ruled out, in order of their ids: key -logit, weight e^(logit - highest). Gives their number
 * and total weight. */
static int collect(by_sampler *s, const float *row, double *total)
{
    float top = highest(s, row);
    int n = 0;
    *total = 0;
    for (int i = 0; i < s->vocab; i++) {
        if (row[i] == -INFINITY)
            continue;
        s->items[n] = (sample_item){.key = -row[i], .weight = expf(row[i] - top), .id = i};
        *total += (double)s->items[n++].weight;
    }
    return n;
}

/* A strict order without equals, so that what is selected does not depend on where the items lie. */
static bool before(const sample_item *a, const sample_item *b)
{
    return a->key < b->key || (a->key == b->key && a->id < b->id);
}

static void swap(sample_item *a, sample_item *b)
{
    sample_item t = *a;
    *a = *b;
    *b = t;
}

/* Order items [low, high) around one of them, the middle one of three. Returns its place; *weight is that of
 * the items before it. */
static int partition(sample_item *items, int low, int high, double *weight)
{
    sample_item *a = &items[low], *b = &items[low + (high - low) / 2], *c = &items[high - 1];
    if (before(b, a) == before(a, c))
        swap(a, c);
    else if (before(a, b) == before(b, c))
        swap(b, c);
    int place = low;
    *weight = 0;
    for (int i = low; i < high - 1; i++)
        if (before(&items[i], c)) {
            *weight += (double)items[i].weight;
            swap(&items[i], &items[place++]);
        }
    swap(&items[place], c);
    return place;
}

/* Move to the front the fewest items, in rising order of their keys, whose weights reach `mass`: at least
 * one, all when it is out of reach. Returns how many; they are not sorted. */
static int select_mass(sample_item *items, int count, double mass)
{
    int low = 0,
        high = count; /* items before low are in and weigh less than mass, those from high on are out */
    double weight = 0;
    while (high - low > 1) {
        double more;
        int place = partition(items, low, high, &more);
        if (weight + more >= mass) {
            high = place;
            continue;
        }
        weight += more + (double)items[place].weight;
        low = place + 1;
        if (weight >= mass)
            return low;
    }
    return BY_MAX(high, 1);
}

/* The highest logit becomes 0 first, so that the smallest temperature overflows nowhere but downwards. */
void by_sample_temperature(by_sampler *s, float *row, double temperature)
{
    float top = highest(s, row);
    for (int i = 0; i < s->vocab && top > -INFINITY; i++)
        row[i] = (float)(((double)row[i] - (double)top) / temperature);
}

/* Put a value in the place of a heap's root, the smallest one, and restore the order. */
static void heap_replace(sample_item *heap, int n, float value)
{
    int i = 0;
    while (2 * i + 1 < n) {
        int child = 2 * i + 1;
        if (child + 1 < n && heap[child + 1].key < heap[child].key)
            child++;
        if (heap[child].key >= value)
            break;
        heap[i].key = heap[child].key;
        i = child;
    }
    heap[i].key = value;
}

void by_sample_top_k(by_sampler *s, float *row, int k)
{
    if (k >= s->vocab)
        return;
    for (int i = 0; i < k; i++)
        s->items[i].key = -INFINITY;
    for (int i = 0; i < s->vocab; i++)
        if (row[i] > s->items[0].key)
            heap_replace(s->items, k, row[i]);
    drop_below(s, row, s->items[0].key);
}

void by_sample_top_p(by_sampler *s, float *row, double p)
{
    double total;
    if (p >= 1)
        return;
    int n = collect(s, row, &total);
    for (int i = n ? select_mass(s->items, n, p * total) : 0; i < n; i++)
        row[s->items[i].id] = -INFINITY;
}

void by_sample_min_p(by_sampler *s, float *row, double p)
{
    if (p > 0)
        drop_below(s, row, (float)((double)highest(s, row) + log(p)));
}

/* Locally typical sampling (Meister et al. 2023): a token's key is how far its information content lies from
 * the expected one. */
void by_sample_typical(by_sampler *s, float *row, double p)
{
    double total, entropy = 0;
    if (p >= 1)
        return;
    int n = collect(s, row, &total);
    double lse = (double)highest(s, row) + log(total);
    for (int i = 0; i < n; i++)
        entropy += (double)s->items[i].weight / total * ((double)s->items[i].key + lse);
    for (int i = 0; i < n; i++)
        s->items[i].key = (float)fabs((double)s->items[i].key + lse - entropy);
    int kept = n ? select_mass(s->items, n, p * total) : 0;
    float last = 0;
    for (int i = 0; i < kept; i++)
        last = BY_MAX(last, s->items[i].key);
    for (int i = kept; i < n; i++)
        if (s->items[i].key > last)
            row[s->items[i].id] = -INFINITY;
}

/* ---- choosing -------------------------------------------------------------------------------- */

int32_t by_sample_argmax(const by_sampler *s, const float *row)
{
    int best = 0;
    for (int i = 1; i < s->vocab; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

int32_t by_sample_draw(by_sampler *s, const float *row, double u)
{
    double total, sum = 0;
    int n = collect(s, row, &total), last = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)s->items[i].weight;
        if (sum > u * total)
            return s->items[i].id;
        last = s->items[i].weight > 0 ? i : last; /* where rounding ends, should the sum never pass */
    }
    return s->items[last].id;
}

static by_status check_share(const char *name, double p)
{
    return p >= 0 && p <= 1 ? BY_OK
                            : by_fail(BY_ERR_ARGUMENT, "%s is %g; it must lie between 0 and 1", name, p);
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
    if (spec->top_k < 0 || spec->no_repeat_ngram < 0 || spec->min_new_tokens < 0 || spec->banned_count < 0)
        return by_fail(BY_ERR_ARGUMENT,
                       "top_k, no_repeat_ngram, min_new_tokens and banned_count cannot be negative");
    BY_TRY(check_share("top_p", spec->top_p));
    BY_TRY(check_share("min_p", spec->min_p));
    BY_TRY(check_share("typical_p", spec->typical_p));
    for (int i = 0; i < spec->banned_count; i++)
        if (spec->banned[i] < 0 || spec->banned[i] >= vocab)
            return by_fail(BY_ERR_ARGUMENT, "banned token %d is outside the vocabulary of %d",
                           (int)spec->banned[i], vocab);
    return BY_OK;
}

/* Log of the sum of e^logit, after a look at every logit. */
static by_status log_sum(const by_sampler *s, const float *row, double *out)
{
    float top = highest(s, row);
    double sum = 0;
    for (int i = 0; i < s->vocab; i++) {
        if (isnan(row[i]) || row[i] == INFINITY)
            return by_fail(BY_ERR_NUMERIC, "the model gives %f as the logit of token %d", (double)row[i], i);
        sum += (double)expf(row[i] - top);
    }
    if (top == -INFINITY)
        return by_fail(BY_ERR_NUMERIC, "the model rules every token out");
    *out = (double)top + log(sum);
    return BY_OK;
}

static void penalize(by_sampler *s, const by_sampling *spec, const by_sample_at *at, float *row)
{
    int fresh = at->count - at->prompt;
    if (spec->repetition_penalty > 0)
        by_sample_repetition(s, row, at->tokens, at->count, spec->repetition_penalty);
    if (spec->presence_penalty != 0 || spec->frequency_penalty != 0)
        by_sample_presence(s, row, at->tokens + at->prompt, fresh, spec->presence_penalty,
                           spec->frequency_penalty);
    if (spec->no_repeat_ngram > 0)
        by_sample_no_repeat(s, row, at->tokens, at->count, spec->no_repeat_ngram);
    by_sample_ban(s, row, spec->banned, spec->banned_count);
    if (fresh < spec->min_new_tokens)
        by_sample_ban(s, row, at->stops, at->stop_count);
}

static void filter(by_sampler *s, const by_sampling *spec, float *row)
{
    by_sample_temperature(s, row, spec->temperature);
    if (spec->top_k > 0)
        by_sample_top_k(s, row, spec->top_k);
    if (spec->top_p > 0)
        by_sample_top_p(s, row, spec->top_p);
    if (spec->min_p > 0)
        by_sample_min_p(s, row, spec->min_p);
    if (spec->typical_p > 0)
        by_sample_typical(s, row, spec->typical_p);
}

/* The only random number of a token: a function of seed, sample and place, whatever was drawn before. */
static double uniform_at(uint64_t seed, uint64_t sample, int place)
{
    by_rng r = by_rng_make(seed, sample);
    r.counter = 2 * (uint64_t)place;
    return by_rng_uniform(&r);
}

by_status by_sample(by_sampler *s, const by_sampling *spec, const by_sample_at *at, const float *logits,
                    int32_t *token, float *logprob)
{
    double lse = 0;
    BY_TRY(log_sum(s, logits, &lse));
    memcpy(s->row, logits, sizeof *s->row * (size_t)s->vocab);
    penalize(s, spec, at, s->row);
    if (!isfinite(highest(s, s->row)))
        return by_fail(BY_ERR_NUMERIC, "%s",
                       highest(s, s->row) > 0
                           ? "the penalties make a logit infinite"
                           : "no token is left: bans and no_repeat_ngram rule all of them out");
    if (spec->temperature > 0) {
        filter(s, spec, s->row);
        *token = by_sample_draw(s, s->row, uniform_at(spec->seed, at->sample, at->count - at->prompt));
    } else {
        *token = by_sample_argmax(s, s->row);
    }
    *logprob = (float)((double)logits[*token] - lse);
    return BY_OK;
}
