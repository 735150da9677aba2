/* mask.c - hiding tokens (Devlin et al. 2019): a share of them is chosen; of the chosen most become the mask
 * token, some any token, and some stay, so that the model cannot rely on seeing what it must not. Words as
 * wholes: Cui et al. 2019; several words at once: Lan et al. 2020. */
#include <math.h>

#include "data/sample.h"

by_masking by_masking_usual(by_objective_kind k)
{
    by_masking m = {.share = 0.15, .masked = 0.8, .random = 0.1, .span = 3};
    if (k == BY_OBJECTIVE_INFILL)
        m.share = 0.3;
    if (k == BY_OBJECTIVE_FIM)
        m.share = 0.5;
    if (k == BY_OBJECTIVE_NSP || k == BY_OBJECTIVE_SOP)
        m.copies = 1;
    if (k == BY_OBJECTIVE_SOP)
        m.longest = 3;
    return m;
}

int by_mask_picks(const by_masking *m, int seq)
{
    return (int)(m->share * seq) + 1;
}

/* Whether a word begins at place t of the row, which holds no special token. */
static bool begins(const by_objective *o, const by_sample *r, int t)
{
    if (!o->spec.masking.whole_words || t == 0)
        return true;
    uint8_t before = o->parts[r->tokens[t - 1]];
    return (before & (BY_ID_SPECIAL | BY_ID_ENDS)) || (o->parts[r->tokens[t]] & BY_ID_BEGINS);
}

/* words[i]: where word i begins; ends[i]: where it ends. Returns how many there are; *tokens: in all. */
static int find_words(const by_objective *o, const by_sample *r, int32_t *words, int32_t *ends, int *tokens)
{
    int n = 0;
    *tokens = 0;
    for (int t = 0; t < r->used; t++) {
        if (o->parts[r->tokens[t]] & BY_ID_SPECIAL)
            continue;
        if (begins(o, r, t))
            words[n++] = t;
        ends[n - 1] = t + 1;
        ++*tokens;
    }
    return n;
}

/* How many words at once: n with a probability proportional to 1/n. */
static int pick_length(int longest, by_rng *random)
{
    if (longest <= 1)
        return 1;
    double all = 0, u = by_rng_uniform(random);
    for (int n = 1; n <= longest; n++)
        all += 1.0 / n;
    for (int n = 1; n < longest; n++)
        if ((u -= 1.0 / n / all) < 0)
            return n;
    return longest;
}

/* Mark words w, w + 1, ... when all are free, follow each other and are `room` tokens at most. Returns the
 * number of tokens. */
static int choose(const int32_t *words, const int32_t *ends, int count, int w, int length, int room,
                  uint8_t *chosen)
{
    int last = w;
    while (last + 1 < count && last + 1 < w + length && words[last + 1] == ends[last])
        last++;
    int n = ends[last] - words[w];
    if (n > room)
        return 0;
    for (int t = words[w]; t < ends[last]; t++)
        if (chosen[t])
            return 0;
    memset(chosen + words[w], 1, (size_t)n);
    return n;
}

static int32_t hide(const by_objective *o, by_rng *random, int32_t id)
{
    const by_masking *m = &o->spec.masking;
    double u = by_rng_uniform(random);
    if (u < m->masked)
        return o->masked;
    if (u < m->masked + m->random)
        return o->ordinary[by_rng_below(random, (uint64_t)o->n_ordinary)];
    return id;
}

/* The share is met on average: what is left over from whole tokens decides the chance of one more. */
void by_mask_row(const by_objective *o, by_rng *random, by_sample *row, int32_t *pick, int32_t *targets,
                 int32_t *scratch)
{
    const by_masking *m = &o->spec.masking;
    int32_t *words = scratch, *ends = scratch + row->seq;
    uint8_t *chosen = (uint8_t *)(scratch + 2 * (ptrdiff_t)row->seq);
    int tokens, k = 0, count = find_words(o, row, words, ends, &tokens);
    int room = (int)(m->share * tokens + by_rng_uniform(random));
    room = BY_MIN(BY_MAX(room, tokens > 0), o->picks);
    memset(chosen, 0, (size_t)row->seq);
    uint64_t order = by_rng_u64(random);
    for (int i = 0; i < count && room > 0; i++) {
        int w = (int)by_permute((uint64_t)i, (uint64_t)count, order);
        room -= choose(words, ends, count, w, pick_length(m->longest, random), room, chosen);
    }
    for (int t = 0; t < row->used; t++) {
        if (!chosen[t])
            continue;
        pick[k] = t;
        targets[k++] = row->tokens[t];
        row->tokens[t] = hide(o, random, row->tokens[t]);
    }
    for (; k < o->picks; k++) {
        pick[k] = 0;
        targets[k] = -100;
    }
}
