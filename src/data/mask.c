/* mask.c - masks tokens (Devlin et al. 2019): a fraction of them is selected; most of those become the mask
 * token, some a random token, and some stay, so that the model cannot rely on an unmasked token being right.
 * Whole words: Cui et al. 2019. Several words at once: Lan et al. 2020. */
#include "data/mask.h"

#include "data/objective.h"

data_masking data_masking_usual(data_objective_kind k)
{
    data_masking m = {.share = 0.15, .masked = 0.8, .random = 0.1, .span = 3};
    if (k == DATA_OBJECTIVE_INFILL)
        m.share = 0.3;
    if (k == DATA_OBJECTIVE_FIM)
        m.share = 0.5;
    if (k == DATA_OBJECTIVE_PLM)
        m = (data_masking){.share = 1.0 / 6, .longest = 5};
    if (k == DATA_OBJECTIVE_NSP || k == DATA_OBJECTIVE_SOP)
        m.copies = 1;
    if (k == DATA_OBJECTIVE_SOP)
        m.longest = 3;
    return m;
}

int data_mask_picks(const data_masking *m, int seq)
{
    return (int)(m->share * seq) + 1;
}

by_status data_masker_open(data_masker *m, const data_masking *how, const by_tokenizer *t)
{
    const size_t n = (size_t)by_tokenizer_vocab_size(t);
    *m = (data_masker){.how = *how, .masked = by_tokenizer_special(t, BY_SPECIAL_MASK)};
    m->parts = base_alloc_zero(n + 1, 1);
    m->ordinary = base_alloc_zero(n + 1, sizeof *m->ordinary);
    if (!m->parts || !m->ordinary)
        return BY_ERR_MEMORY;
    m->marked = tok_parts(t, m->parts);
    for (size_t id = 0; id < n; id++)
        if (!(m->parts[id] & (TOK_ID_SPECIAL | TOK_ID_ABSENT)))
            m->ordinary[m->n_ordinary++] = (int32_t)id;
    return BY_OK;
}

void data_masker_close(data_masker *m)
{
    base_free(m->parts);
    base_free(m->ordinary);
    *m = (data_masker){0};
}

/* Returns true if a word starts at position t of the row, which holds no special token. */
static bool begins(const data_masker *m, const int32_t *tokens, int t)
{
    if (!m->how.whole_words || t == 0)
        return true;
    uint8_t before = m->parts[tokens[t - 1]];
    return (before & (TOK_ID_SPECIAL | TOK_ID_ENDS)) || (m->parts[tokens[t]] & TOK_ID_BEGINS);
}

/* words[i] and ends[i] are the start and end of word i. Returns the number of words; *count is the total
 * number of tokens. */
static int find_words(const data_masker *m, const int32_t *tokens, int used, int32_t *words, int32_t *ends,
                      int *count)
{
    int n = 0;
    *count = 0;
    for (int t = 0; t < used; t++) {
        if (m->parts[tokens[t]] & TOK_ID_SPECIAL)
            continue;
        if (begins(m, tokens, t))
            words[n++] = t;
        ends[n - 1] = t + 1;
        ++*count;
    }
    return n;
}

int data_mask_length(int longest, base_rng *random)
{
    if (longest <= 1)
        return 1;
    double all = 0, u = base_rng_uniform(random);
    for (int n = 1; n <= longest; n++)
        all += 1.0 / n;
    for (int n = 1; n < longest; n++)
        if ((u -= 1.0 / n / all) < 0)
            return n;
    return longest;
}

/* Selects words w, w + 1, ... if all are free, adjacent, and at most `room` tokens. Returns the number of
 * tokens. */
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

static int32_t replace(const data_masker *m, base_rng *random, int32_t id)
{
    double u = base_rng_uniform(random);
    if (u < m->how.masked)
        return m->masked;
    if (u < m->how.masked + m->how.random)
        return m->ordinary[base_rng_below(random, (uint64_t)m->n_ordinary)];
    return id;
}

/* The fraction is met on average: the fractional part of the expected count is the probability of one more
 * token. */
int data_mask_row(const data_masker *m, base_rng *random, int32_t *tokens, int used, int most, int32_t *pick,
                  int32_t *was, int32_t *scratch)
{
    int32_t *words = scratch, *ends = scratch + used;
    uint8_t *chosen = (uint8_t *)(ends + used);
    int open, k = 0, count = find_words(m, tokens, used, words, ends, &open);
    int room = (int)(m->how.share * open + base_rng_uniform(random));
    room = BY_MIN(BY_MAX(room, open > 0), most);
    memset(chosen, 0, (size_t)BY_MAX(used, 0));
    uint64_t order = base_rng_u64(random);
    for (int i = 0; i < count && room > 0; i++) {
        int w = (int)base_permute((uint64_t)i, (uint64_t)count, order);
        room -= choose(words, ends, count, w, data_mask_length(m->how.longest, random), room, chosen);
    }
    for (int t = 0; t < used; t++) {
        if (!chosen[t])
            continue;
        pick[k] = t;
        was[k++] = tokens[t];
        tokens[t] = replace(m, random, tokens[t]);
    }
    return k;
}
