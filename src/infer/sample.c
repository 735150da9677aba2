/* sample.c - filters and sampling (see sample.h). No filter except top-h sorts the vocabulary: top-k keeps a
 * heap of k logits, and filters by probability mass select in expected linear time. */
#include "infer/sample.h"

#include <math.h>
#include <stdlib.h>

by_status gen_sampler_open(gen_sampler *s, int vocab)
{
    *s = (gen_sampler){.vocab = vocab};
    s->row = base_alloc_zero((size_t)vocab, sizeof *s->row);
    s->items = base_alloc_zero((size_t)vocab, sizeof *s->items);
    s->mark = base_alloc_zero((size_t)vocab, sizeof *s->mark);
    s->sums = base_alloc_zero((size_t)vocab / SAMPLE_BLOCK + 1, sizeof *s->sums);
    if (s->row && s->items && s->mark && s->sums)
        return BY_OK;
    gen_sampler_close(s);
    return BY_ERR_MEMORY;
}

void gen_sampler_close(gen_sampler *s)
{
    base_free(s->row);
    base_free(s->items);
    base_free(s->mark);
    base_free(s->sums);
    *s = (gen_sampler){0};
}

/* ---- filters --------------------------------------------------------------------------------- */

enum { LANES = 32 }; /* for loops that compilers vectorise */

/* NaN is passed over. */
static float highest(const gen_sampler *s, const float *row)
{
    float lane[LANES], top = -INFINITY;
    int i = 0;
    for (int k = 0; k < LANES; k++)
        lane[k] = -INFINITY;
    for (; i + LANES <= s->vocab; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = row[i + k] > lane[k] ? row[i + k] : lane[k];
    for (int k = 0; k < LANES; k++)
        top = lane[k] > top ? lane[k] : top;
    for (; i < s->vocab; i++)
        top = row[i] > top ? row[i] : top;
    return top;
}

/* The first NaN or +infinity, or -1. */
static int first_invalid(const gen_sampler *s, const float *row)
{
    int i = 0;
    for (; i + LANES <= s->vocab; i += LANES) {
        int bad = 0;
        for (int k = 0; k < LANES; k++)
            bad |= !(row[i + k] < INFINITY);
        if (bad)
            break;
    }
    for (; i < s->vocab; i++)
        if (!(row[i] < INFINITY))
            return i;
    return -1;
}

static void drop_below(const gen_sampler *s, float *row, float least)
{
    for (int i = 0; i < s->vocab; i++)
        row[i] = row[i] < least ? -INFINITY : row[i];
}

/* The remaining tokens in order of id: key -logit, weight e^(logit - highest). Returns their number and total
 * weight. */
static int collect(gen_sampler *s, const float *row, double *total)
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

/* A strict total order, so that the selection does not depend on the order of the items. */
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

/* Partitions items [low, high) around the median of three. Returns its index; *weight is that of the items
 * before it. */
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

/* Moves to the front the smallest set of items with the lowest keys whose weights reach `mass`: at least one,
 * or all if it cannot be reached. Returns their number; they are not sorted. */
static int select_mass(sample_item *items, int count, double mass)
{
    int low = 0,
        high = count; /* items before low are selected and weigh less than mass, items from high on are not */
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

/* Subtracts the highest logit first, so that a tiny temperature cannot overflow upwards. */
void gen_sample_temperature(gen_sampler *s, float *row, double temperature)
{
    float top = highest(s, row);
    for (int i = 0; i < s->vocab && top > -INFINITY; i++)
        row[i] = (float)(((double)row[i] - (double)top) / temperature);
}

/* Replaces the root of a min-heap and restores the order. */
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

void gen_sample_top_k(gen_sampler *s, float *row, int k)
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

void gen_sample_top_p(gen_sampler *s, float *row, double p)
{
    double total;
    if (p >= 1)
        return;
    int n = collect(s, row, &total);
    for (int i = n ? select_mass(s->items, n, p * total) : 0; i < n; i++)
        row[s->items[i].id] = -INFINITY;
}

void gen_sample_min_p(gen_sampler *s, float *row, double p)
{
    if (p > 0)
        drop_below(s, row, (float)((double)highest(s, row) + log(p)));
}

/* Locally typical sampling (Meister et al. 2023): the key is the distance of a token's information content
 * from the entropy. */
void gen_sample_typical(gen_sampler *s, float *row, double p)
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

/* Bans tokens below this probability, except the most likely. */
static void drop_unlikely(gen_sampler *s, float *row, double total, double least)
{
    const float top = highest(s, row);
    for (int i = 0; i < s->vocab; i++)
        if (row[i] < top && (double)expf(row[i] - top) < least * total)
            row[i] = -INFINITY;
}

void gen_sample_epsilon(gen_sampler *s, float *row, double least)
{
    double total;
    if (collect(s, row, &total))
        drop_unlikely(s, row, total, least);
}

/* -p log p, where p = weight / total. */
static double entropy_term(double weight, double total)
{
    return weight > 0 ? -weight / total * log(weight / total) : 0;
}

/* Eta sampling (Hewitt et al. 2022). */
void gen_sample_eta(gen_sampler *s, float *row, double epsilon)
{
    double total, entropy = 0;
    const int n = collect(s, row, &total);
    for (int i = 0; i < n; i++)
        entropy += entropy_term((double)s->items[i].weight, total);
    if (n)
        drop_unlikely(s, row, total, BY_MIN(epsilon, sqrt(epsilon) * exp(-entropy)));
}

static int arch_key(const void *a, const void *b)
{
    return before(a, b) ? -1 : before(b, a);
}

/* Top-H sampling (Potraghloo et al. 2025). */
void gen_sample_top_h(gen_sampler *s, float *row, double share)
{
    enum { MOST = 100 };
    double total, entropy = 0, sum = 0;
    const int n = collect(s, row, &total);
    qsort(s->items, (size_t)n, sizeof *s->items, arch_key);
    total = 0;
    for (int i = 0; i < BY_MIN(n, MOST); i++)
        total += (double)s->items[i].weight;
    for (int i = 0; i < BY_MIN(n, MOST); i++)
        entropy += entropy_term((double)s->items[i].weight, total);
    for (int i = 0; i < n; i++) {
        sum += entropy_term((double)s->items[i].weight, total);
        if (i > 0 && (i >= MOST || sum > entropy * share))
            row[s->items[i].id] = -INFINITY;
    }
}

/* ---- choosing -------------------------------------------------------------------------------- */

int32_t gen_sample_argmax(const gen_sampler *s, const float *row)
{
    const float top = highest(s, row);
    int best = 0;
    while (!isnan(row[0]) && row[best] != top) /* nothing is above NaN */
        best++;
    return best;
}

#define LEAST_EXPONENT (-88.0f) /* e^x is 0 there: below the least normal number */

/* e^x for LEAST_EXPONENT <= x <= 0, within 3e-7 of its value. x = n ln 2 + r, and e^r is scaled by 2^n.
 * Without branches, for vectors. */
static inline float exp_below_zero(float x)
{
    const float shift = 12582912; /* 1.5 2^23: adding it rounds to an integer */
    const float n = (x * 1.44269504f + shift) - shift, r = x - n * 0.693359375f - n * -2.12194440e-4f;
    const float p =
        1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    union {
        int32_t bits;
        float value;
    } scale = {((int32_t)n + 127) * (1 << 23)};
    return p * scale.value;
}

/* The weights of LANES tokens. The row has `count` of them; weights past its end are 0. */
static void weigh(const float *restrict row, int count, float top, float *restrict weight)
{
    float near[LANES];
    for (int k = 0; k < LANES; k++)
        near[k] = -INFINITY;
    memcpy(near, row, (size_t)BY_MIN(count, LANES) * sizeof *near);
    for (int k = 0; k < LANES; k++)
        near[k] -= top;
    for (int k = 0; k < LANES; k++)
        near[k] = near[k] > LEAST_EXPONENT ? near[k] : LEAST_EXPONENT;
    for (int k = 0; k < LANES; k++)
        weight[k] = exp_below_zero(near[k]);
}

/* Weights are summed in blocks, so that only one block is searched for the token. */
static double sum_block(const float *row, int count, float top)
{
    float weight[LANES];
    double a = 0, b = 0, c = 0, d = 0; /* four sums, to hide the latency of additions */
    for (int i = 0; i < count; i += LANES) {
        weigh(row + i, count - i, top, weight);
        for (int k = 0; k < LANES; k += 4) {
            a += (double)weight[k];
            b += (double)weight[k + 1];
            c += (double)weight[k + 2];
            d += (double)weight[k + 3];
        }
    }
    return a + b + (c + d);
}

/* The index where the sum of the weights of a block passes `rest`, or the last token with a weight if
 * rounding keeps it below. */
static int find_in_block(const float *row, int count, float top, double rest)
{
    float weight[LANES];
    double sum = 0;
    int last = 0;
    for (int i = 0; i < count; i++) {
        if (i % LANES == 0)
            weigh(row + i, count - i, top, weight);
        sum += (double)weight[i % LANES];
        last = weight[i % LANES] > 0 ? i : last;
        if (sum > rest)
            break;
    }
    return last;
}

int32_t gen_sample_draw(gen_sampler *s, const float *row, double u)
{
    const float top = highest(s, row);
    double total = 0;
    int last = 0, block = 0;
    for (int b = 0; b * SAMPLE_BLOCK < s->vocab; b++) {
        const int at = b * SAMPLE_BLOCK;
        s->sums[b] = sum_block(row + at, BY_MIN(SAMPLE_BLOCK, s->vocab - at), top);
        total += s->sums[b];
        last = s->sums[b] > 0 ? b : last; /* fallback if rounding keeps all blocks below the rest */
    }
    double rest = u * total;
    for (; block < last && s->sums[block] <= rest; block++)
        rest -= s->sums[block];
    const int at = block * SAMPLE_BLOCK;
    return at + find_in_block(row + at, BY_MIN(SAMPLE_BLOCK, s->vocab - at), top, rest);
}

/* Computes log-sum-exp unless out is NULL, and checks every logit unless any value is allowed. */
static by_status log_sum(const gen_sampler *s, const float *row, bool any, double *out)
{
    const float top = highest(s, row);
    const int bad = any ? -1 : first_invalid(s, row);
    double sum = 0;
    if (bad >= 0)
        return base_fail(BY_ERR_NUMERIC, "the logit %f of token %d is not finite", (double)row[bad], bad);
    for (int i = 0; out && i < s->vocab; i++)
        sum += (double)expf(row[i] - top);
    if (!any && top == -INFINITY)
        return base_fail(BY_ERR_NUMERIC, "all logits are -infinity");
    if (out)
        *out = (double)top + log(sum);
    return BY_OK;
}

/* Tracks the most likely tokens under the model. */
static void track_likeliest(gen_tracking *t, const gen_sampler *s, const float *logits, double lse)
{
    enum { SHOWN = 8 };
    int32_t best[SHOWN];
    int n = 0;
    t->normal = true;
    for (int i = 0; i < s->vocab; i++) {
        if (n == SHOWN && logits[i] <= logits[best[n - 1]])
            continue;
        n = BY_MIN(n + 1, SHOWN);
        int at = n - 1;
        for (; at > 0 && logits[best[at - 1]] < logits[i]; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
    for (int i = 0; i < n; i++)
        gen_track_add(t, best[i], logits[best[i]], (float)exp((double)logits[best[i]] - lse));
}

/* Sets the fates of the candidates; adds the chosen one if it is not among them. */
static void explain(gen_tracking *t, const gen_sampler *s, const float *logits, double lse, int32_t token,
                    by_explanation *why)
{
    bool seen = false;
    for (int i = 0; i < t->count; i++)
        seen = seen || t->candidate[i].token == token;
    if (!seen)
        gen_track_add(t, token, logits[token], (float)exp((double)logits[token] - lse));
    gen_track_end(t, &(gen_scores){.value = s->row, .count = s->vocab});
    for (int i = 0; i < t->count; i++)
        t->candidate[i].fate = t->candidate[i].token == token               ? BY_FATE_CHOSEN
                               : s->row[t->candidate[i].token] == -INFINITY ? BY_FATE_RULED_OUT
                                                                            : BY_FATE_PASSED;
    for (int i = 0; i < s->vocab; i++)
        why->left += s->row[i] > -INFINITY;
    memcpy(why->candidates, t->candidate, sizeof *t->candidate * (size_t)t->count);
    why->count = t->count;
    why->chosen = token;
}

by_status gen_sample(gen_sampler *s, const by_sampling *spec, const gen_sample_at *at, const float *logits,
                     int32_t *token, float *logprob, by_explanation *why)
{
    double lse = 0, u = -1;
    gen_tracking tracking = {0}, *t = why ? &tracking : NULL;
    gen_scores x = {.value = s->row, .count = s->vocab};
    BY_TRY(log_sum(s, logits, spec->remove_invalid, logprob || why ? &lse : NULL));
    memcpy(s->row, logits, sizeof *s->row * (size_t)s->vocab);
    if (t)
        track_likeliest(t, s, logits, lse);
    gen_constrain(s, spec, at, &x, t);
    if (highest(s, s->row) == INFINITY)
        return base_fail(BY_ERR_NUMERIC, "the penalties make a logit infinite");
    if (spec->temperature > 0) {
        if (highest(s, s->row) == -INFINITY)
            return gen_fail_no_token(spec);
        u = base_uniform_at(spec->seed, at->sample,
                            (uint64_t)(at->count - at->prompt)); /* the only one of a token */
        gen_filter(s, spec, at, &x, t);
        *token = gen_sample_draw(s, s->row, u);
    } else {
        *token = gen_sample_argmax(s, s->row);
    }
    if (logprob)
        *logprob = (float)((double)logits[*token] - lse);
    if (t) {
        why->draw = u;
        explain(t, s, logits, lse, *token, why);
    }
    return BY_OK;
}
