/* plm.c - permutation language modelling (Yang et al. 2019). A row of T tokens has two halves, or parts of
 * other lengths if the spec says how many tokens are reused:
 *
 *     T / 2 tokens of text | A <sep> B <sep> <cls>
 *
 * A continues the first half; B continues A or comes from elsewhere. The text is split into columns. Row r of
 * consecutive steps reads consecutive first halves of its column, which is also what enters the model's
 * memory. The rows in the second half of a batch read the same columns backwards.
 *
 * A fraction of the tokens, in spans, is predicted. The order of prediction is random within blocks of a
 * half. Token t may see token s if order[s] <= order[t], and predicts itself from those with order[s] <
 * order[t]:
 *
 *     0               tokens of the first half that are not predicted
 *     1 + k           place k of the first half, where its token is predicted
 *     T/2 + 1         tokens of the second half that are not predicted
 *     T/2 + 2 + k     place k of the second half, where its token is predicted, <sep> or <cls> */
#include <math.h>

#include "data/objective_row.h"

enum { AROUND = 3 }; /* two separators and <cls> */

static int first_half(const data_objective *o)
{
    return o->spec.reuse > 0 ? o->spec.reuse : o->spec.seq / 2;
}

static int tail_of(const data_objective *o)
{
    return o->spec.seq - first_half(o) - AROUND;
}

/* ---- the text as columns --------------------------------------------------------------------- */

static int batch_of(const data_objective *o)
{
    return o->spec.batch > 0 ? o->spec.batch : o->spec.step_rows;
}

/* Rows of a batch that read forwards. */
static int forward_of(const data_objective *o)
{
    return batch_of(o) - (o->spec.one_way ? 0 : batch_of(o) / 2);
}

static int64_t column_length(const data_objective *o)
{
    return o->total / ((int64_t)(o->spec.step_rows / batch_of(o)) * forward_of(o));
}

int64_t data_plm_steps(const data_objective *o)
{
    return (column_length(o) - tail_of(o)) / first_half(o);
}

/* Documents that follow each other in the stream are one run. at[i] is where run i begins in the text. */
by_status data_plm_plan(data_objective *o)
{
    const int64_t *starts = o->text->all->starts;
    for (int64_t i = 0, end; i < o->text->count; i = end) {
        for (end = i + 1;
             end < o->text->count && starts[o->text->list[end].first] == starts[o->text->list[end - 1].end];)
            end++;
        BY_TRY(data_span_add(
            o, (data_span){starts[o->text->list[i].first], starts[o->text->list[end - 1].end], i}));
    }
    o->at = base_alloc_zero((size_t)o->count + 1, sizeof *o->at);
    if (!o->at)
        return BY_ERR_MEMORY;
    for (int64_t i = 0; i < o->count; i++)
        o->at[i + 1] = o->at[i] + o->rows[i].end - o->rows[i].begin;
    o->total = o->at[o->count];
    o->picks = BY_MAX((int)(o->spec.masking.share * o->spec.seq), 2);
    if (o->spec.masking.share > 0.5)
        return base_fail(BY_ERR_ARGUMENT, "the objective \"plm\" predicts at most half of the tokens");
    if (tail_of(o) < 1)
        return base_fail(BY_ERR_ARGUMENT,
                         "%d reused tokens leave no room for two texts and their separators in rows of %d",
                         first_half(o), o->spec.seq);
    if (o->picks / 2 > tail_of(o) || o->picks - o->picks / 2 > first_half(o))
        return base_fail(BY_ERR_ARGUMENT,
                         "rows of %d tokens, %d of them reused, are too short for the objective \"plm\" with "
                         "%d predicted tokens",
                         o->spec.seq, first_half(o), o->picks);
    if (o->count > 0 && data_plm_steps(o) < 1)
        return base_fail(BY_ERR_ARGUMENT,
                         "%lld tokens are too few for batches of %d rows of %d tokens; use more text, fewer "
                         "rows or shorter rows",
                         (long long)o->total, o->spec.step_rows, o->spec.seq);
    return BY_OK;
}

/* The first element that is larger than x, of n rising ones. */
static int64_t after(const int64_t *v, int64_t n, int64_t x)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (v[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Reads tokens [from, from + n) of the text. cuts[i], unless NULL, tells whether a sentence begins at i. */
static by_status read_text(const data_objective *o, int64_t from, int n, int32_t *out, uint8_t *cuts)
{
    const data_docs *d = o->text->all;
    for (int64_t run = after(o->at, o->count + 1, from) - 1; n > 0; run++) {
        const int64_t begin = o->rows[run].begin + from - o->at[run];
        const int count = (int)BY_MIN((int64_t)n, o->rows[run].end - begin);
        BY_TRY(data_tokens_read(d->tokens, begin, count, out));
        for (int64_t s = after(d->starts, d->sentences + 1, begin - 1);
             cuts && s <= d->sentences && d->starts[s] < begin + count; s++)
            cuts[d->starts[s] - begin] = 1;
        out += count;
        cuts = cuts ? cuts + count : NULL;
        from += count;
        n -= count;
    }
    return BY_OK;
}

static void turn(int32_t *v, uint8_t *flags, int n)
{
    for (int i = 0, k = n - 1; i < k; i++, k--) {
        const int32_t id = v[i];
        v[i] = v[k];
        v[k] = id;
        if (flags) {
            const uint8_t f = flags[i];
            flags[i] = flags[k];
            flags[k] = f;
        }
    }
}

/* A place in a column, in the direction in which its row reads. */
typedef struct place {
    int64_t column, from;
    bool reversed;
} place;

static by_status read_column(const data_objective *o, const place *p, int64_t from, int n, int32_t *out,
                             uint8_t *cuts)
{
    const int64_t length = column_length(o), at = p->from + from;
    BY_TRY(read_text(o, p->column * length + (p->reversed ? length - at - n : at), n, out, cuts));
    if (p->reversed)
        turn(out, cuts, n);
    return BY_OK;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The number of tokens of A out of n: up to a random sentence end, or all but one without one. In reversed
 * text a sentence ends with its first token. */
static int choose_end(const uint8_t *cuts, int n, bool reversed, base_rng *random, bool *found)
{
    int count = 0;
    for (int i = 1; i < n; i++)
        count += cuts[i - reversed];
    *found = count > 0;
    int k = (int)base_rng_below(random, (uint64_t)count);
    for (int i = 1; i < n; i++)
        if (cuts[i - reversed] && k-- == 0)
            return i;
    return n - 1;
}

/* Writes A <sep> B <sep> <cls> with their segments. */
static by_status put_tail(const data_objective *o, const place *p, base_rng *random, int32_t *tokens,
                          int32_t *segments, uint8_t *cuts)
{
    const int n = tail_of(o);
    bool found;
    memset(cuts, 0, (size_t)n);
    BY_TRY(read_column(o, p, first_half(o), n, tokens, cuts));
    const int a = choose_end(cuts, n, p->reversed, random, &found), b = n - a;
    memmove(tokens + a + 1, tokens + a, sizeof *tokens * (size_t)b);
    if (!found || base_rng_below(random, 2)) {
        BY_TRY(read_text(o, (int64_t)base_rng_below(random, (uint64_t)(o->total - b + 1)), b, tokens + a + 1,
                         NULL));
        if (p->reversed)
            turn(tokens + a + 1, NULL, b);
    }
    tokens[a] = tokens[n + 1] = o->sep;
    tokens[n + 2] = o->first;
    for (int i = 0; i < n + AROUND; i++)
        segments[i] = i <= a ? 0 : i < n + 2 ? 1 : 2;
    return BY_OK;
}

/* ---- predicted tokens ------------------------------------------------------------------------ */

static bool is_text(const data_objective *o, int32_t id)
{
    return id != o->sep && id != o->first;
}

static bool begins_word(const data_objective *o, int32_t id)
{
    return is_text(o, id) && (!o->masker.marked || (o->masker.parts[id] & TOK_ID_BEGINS));
}

/* Chooses `goal` tokens of n, or all of the text if it has fewer, in spans of up to `longest` pieces that
 * begin with a word, each in a context that is 1 / share times as long; then single tokens until the goal is
 * reached. */
static void choose(const data_objective *o, const int32_t *tokens, int n, bool reversed, int goal,
                   base_rng *random, uint8_t *chosen)
{
    const int around = BY_MAX((int)lround(1 / o->spec.masking.share), 1);
    int count = 0, at = 0, text = 0;
    for (int i = 0; i < n; i++) {
        chosen[i] = 0;
        text += is_text(o, tokens[i]);
    }
    goal = BY_MIN(goal, text);
#define TOKEN(i) (reversed ? n - 1 - (i) : (i)) /* spans go forwards in the text */
    while (at < n && count < goal) {
        const int drawn = data_mask_length(o->spec.masking.longest, random);
        const int length = BY_MIN(drawn, goal - count);
        const int context = length * around, before = (int)base_rng_below(random, (uint64_t)context);
        int begin = at + before;
        while (begin < n && !begins_word(o, tokens[TOKEN(begin)]))
            begin++;
        if (begin + length >= n)
            break;
        for (int i = begin; i < begin + length; i++)
            if (is_text(o, tokens[TOKEN(i)])) {
                chosen[TOKEN(i)] = 1;
                count++;
            }
        at = begin + length + context - before;
    }
    while (count < goal) {
        const int i = (int)base_rng_below(random, (uint64_t)n);
        count += is_text(o, tokens[i]) && !chosen[i];
        chosen[i] |= is_text(o, tokens[i]);
    }
#undef TOKEN
}

/* The prediction order of a half of n tokens: `first` for tokens that are not predicted, then blocks from
 * left to right. */
static void put_order(const data_objective *o, const int32_t *tokens, const uint8_t *chosen, int n,
                      int32_t first, uint64_t random, int32_t *order)
{
    const int block = o->spec.block > 0 ? BY_MIN(o->spec.block, first_half(o)) : n;
    for (int i = 0; i < n; i++) {
        const int begin = i / block * block, size = BY_MIN(block, n - begin);
        const int k = begin + (int)base_permute((uint64_t)(i - begin), (uint64_t)size, random);
        order[i] = chosen[i] || !is_text(o, tokens[i]) ? first + 1 + k : first;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static by_status make_row(const data_objective *o, const place *p, base_rng *random, data_samples *rows,
                          int r)
{
    const int n = o->spec.seq, half = first_half(o), late = o->picks / 2;
    const size_t cell = (size_t)r * (size_t)n, first = (size_t)r * (size_t)o->picks;
    int32_t *tokens = rows->tokens + cell, *segments = rows->segments + cell, *order = rows->order + cell;
    uint8_t *chosen = (uint8_t *)rows->scratch, *cuts = chosen + n;
    memset(segments, 0, sizeof *segments * (size_t)half);
    BY_TRY(read_column(o, p, 0, half, tokens, NULL));
    BY_TRY(put_tail(o, p, random, tokens + half, segments + half, cuts));
    choose(o, tokens, half, p->reversed, o->picks - late, random, chosen);
    choose(o, tokens + half, n - half, p->reversed, late, random, chosen + half);
    put_order(o, tokens, chosen, half, 0, base_rng_u64(random), order);
    put_order(o, tokens + half, chosen + half, n - half, half + 1, base_rng_u64(random), order + half);
    int k = 0;
    for (int t = 0; t < n; t++)
        if (chosen[t]) {
            rows->pick[first + (size_t)k] = t + r % rows->batch * n;
            rows->targets[first + (size_t)k++] = tokens[t];
        }
    for (; k < o->picks; k++) { /* the text has fewer tokens: no target */
        rows->pick[first + (size_t)k] = r % rows->batch * n;
        rows->targets[first + (size_t)k] = -100;
    }
    rows->reversed[r] = p->reversed;
    return BY_OK;
}

by_status data_plm_rows(const data_objective *o, int64_t window, uint64_t shift, uint64_t seed,
                        data_samples *rows)
{
    const int batch = batch_of(o), forward = forward_of(o), half = first_half(o);
    const int64_t steps = data_plm_steps(o), spare = column_length(o) - tail_of(o) - steps * half;
    for (int r = 0; r < rows->count; r++) {
        const int k = r % batch;
        const bool reversed = k >= forward;
        const place p = {.column = (int64_t)(r / batch) * forward + (reversed ? k - forward : k),
                         .from = (int64_t)(shift % (uint64_t)(spare + 1)) + window * half,
                         .reversed = reversed};
        base_rng random = base_rng_make(seed, (uint64_t)window * (uint64_t)rows->count + (uint64_t)r);
        BY_TRY(make_row(o, &p, &random, rows, r));
    }
    return BY_OK;
}
