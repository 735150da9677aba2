/* corrupt.c - denoising objectives of encoder-decoders. T5 (Raffel et al. 2020): spans are removed from the
 * source, each replaced by a sentinel, and the target is the removed spans between the same sentinels. BART
 * (Lewis et al. 2020): sentences are shuffled, spans are replaced by one mask each, and the target is the
 * original text. */
#include <math.h>

#include "data/objective_row.h"

static int64_t start_of(const data_objective *o, int64_t doc)
{
    return o->text->all->starts[o->text->list[doc].first];
}

static int64_t end_of(const data_objective *o, int64_t doc)
{
    return o->text->all->starts[o->text->list[doc].end];
}

static void put_source(data_sample *r, int32_t id)
{
    if (r->source_used < r->source_seq)
        r->source[r->source_used++] = id;
}

static void put_target(data_sample *r, int32_t id)
{
    if (r->used < r->seq)
        r->targets[r->used++] = id;
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* How n tokens are corrupted: the number of removed tokens and of spans. A kept token precedes each span. */
typedef struct cut {
    int hidden, spans;
} cut;

static cut plan_cut(const data_objective *o, int n)
{
    cut c = {.hidden = (int)lround(n * o->spec.masking.share)};
    c.hidden = BY_MIN(BY_MAX(c.hidden, 1), n - 1);
    c.spans = (int)lround(c.hidden / o->spec.masking.span);
    c.spans = BY_MIN(BY_MAX(c.spans, 1), BY_MIN(c.hidden, n - c.hidden));
    c.spans = BY_MIN(c.spans, o->n_sentinels - 1); /* one more sentinel ends the target */
    return c;
}

/* Includes the end token. */
static int source_size(const data_objective *o, int n)
{
    cut c = plan_cut(o, n);
    return n - c.hidden + c.spans + 1;
}

/* Plans windows over the continuous text, each long enough to leave a source of seq tokens. */
by_status data_spans_plan(data_objective *o)
{
    int n = SHORTEST_TEXT;
    if (source_size(o, n) > o->spec.seq)
        return base_fail(BY_ERR_ARGUMENT, "rows of %d tokens are too short for the objective \"spans\"",
                         o->spec.seq);
    while (source_size(o, n + 1) <= o->spec.seq && n < 64 * o->spec.seq)
        n++;
    cut c = plan_cut(o, n);
    o->window = n;
    o->source_seq = o->spec.seq;
    o->target_seq = c.hidden + c.spans + 2;
    for (int64_t i = 0, end; i < o->text->count; i = end) {
        for (end = i + 1; end < o->text->count && start_of(o, end) == end_of(o, end - 1);)
            end++;
        for (int64_t at = start_of(o, i); at + SHORTEST_TEXT <= end_of(o, end - 1); at += n)
            BY_TRY(data_span_add(o, (data_span){at, BY_MIN(at + n, end_of(o, end - 1)), i}));
    }
    return BY_OK;
}

/* Splits `items` into non-empty parts, all ways equally likely. */
static void segment(base_rng *random, int items, int parts, int32_t *sizes)
{
    int part = 0, cuts = parts - 1;
    sizes[0] = 1;
    for (int left = items - 1; left > 0; left--) {
        if (base_rng_below(random, (uint64_t)left) < (uint64_t)cuts) {
            cuts--;
            sizes[++part] = 0;
        }
        sizes[part]++;
    }
}

by_status data_spans_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row)
{
    const int n = (int)(o->rows[i].end - o->rows[i].begin);
    const cut c = plan_cut(o, n);
    int32_t *text = row->scratch, *hidden = text + o->window, *kept = hidden + o->window;
    BY_TRY(data_tokens_read(o->text->all->tokens, o->rows[i].begin, n, text));
    segment(random, c.hidden, c.spans, hidden);
    segment(random, n - c.hidden, c.spans, kept);
    for (int k = 0; k < c.spans; k++) {
        for (int t = 0; t < kept[k]; t++)
            put_source(row, *text++);
        put_source(row, o->sentinels[k]);
        put_target(row, o->sentinels[k]);
        for (int t = 0; t < hidden[k]; t++)
            put_target(row, *text++);
    }
    put_source(row, o->eos);
    put_target(row, o->sentinels[c.spans]);
    put_target(row, o->eos);
    return BY_OK;
}

/* ---- infilling ------------------------------------------------------------------------------- */

by_status data_infill_plan(data_objective *o)
{
    o->window = o->source_seq = o->target_seq = o->spec.seq;
    return data_pack_plan(o);
}

/* Returns the first sentence that ends after a position. */
static int64_t sentence_at(const data_docs *d, int64_t at)
{
    int64_t low = 0, high = d->sentences;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (d->starts[middle + 1] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Shuffles the sentences of the row. */
static by_status shuffle_sentences(const data_objective *o, data_span s, base_rng *random, int32_t *out)
{
    const data_docs *d = o->text->all;
    const int64_t first = sentence_at(d, s.begin), count = sentence_at(d, s.end - 1) + 1 - first;
    const uint64_t order = base_rng_u64(random);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = first + (int64_t)base_permute((uint64_t)i, (uint64_t)count, order);
        int64_t begin = BY_MAX(d->starts[k], s.begin), end = BY_MIN(d->starts[k + 1], s.end);
        BY_TRY(data_tokens_read(d->tokens, begin, end - begin, out));
        out += end - begin;
    }
    return BY_OK;
}

static int poisson(double mean, base_rng *random)
{
    double left = exp(-mean), u = base_rng_uniform(random), p = left;
    int n = 0;
    for (; u >= p && n < 10 * (mean + 1); p += left)
        left *= mean / ++n;
    return n;
}

/* Draws span lengths that add up to `hidden`. Some are 0: a mask inserted without removing a token. Those
 * never make the source longer than the text. */
static int draw_lengths(const data_objective *o, int hidden, base_rng *random, int32_t *lengths)
{
    int n = 0, room = 0;
    while (hidden > 0) {
        int length = poisson(o->spec.masking.span, random);
        length = BY_MIN(length, hidden);
        if (length == 0 && room == 0)
            continue;
        room += length - 1;
        hidden -= length;
        lengths[n++] = length;
    }
    return n;
}

/* Spans and kept tokens are in random order. */
by_status data_infill_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row)
{
    const data_span s = o->rows[i];
    const int n = (int)(s.end - s.begin);
    const double share = o->spec.masking.share;
    int32_t *text = row->scratch, *lengths = text + o->window;
    BY_TRY(data_tokens_read(o->text->all->tokens, s.begin, n, text));
    put_target(row, o->first);
    for (int t = 0; t < n; t++)
        put_target(row, text[t]);
    put_target(row, o->sep);
    BY_TRY(shuffle_sentences(o, s, random, text));
    int hidden = BY_MIN((int)(share * n + base_rng_uniform(random)), n);
    int spans = draw_lengths(o, hidden, random, lengths), left = n - hidden + spans;
    put_source(row, o->first);
    for (int t = 0; left > 0; left--) {
        if (base_rng_below(random, (uint64_t)left) < (uint64_t)spans) {
            put_source(row, o->masker.masked);
            t += *lengths++;
            spans--;
        } else {
            put_source(row, text[t++]);
        }
    }
    put_source(row, o->sep);
    return BY_OK;
}
