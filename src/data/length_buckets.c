/* length_buckets.c - pairs of source and target in batches of about the same number of tokens. Pairs are
 * sorted into buckets by the longer of the two texts; a batch has rows of one bucket, as many as fit the
 * token budget. An epoch contains every pair once. All epochs have the same number of batches, so that
 * seeking is arithmetic; the rows of each bucket and the batches of all buckets are reshuffled every epoch.
 * The last batch of a bucket is padded with rows without targets, which keeps the number of compiled shapes
 * small. */
#include "data/objective_row.h"

static int64_t size_of(const data_objective *o, int64_t pair, int side)
{
    return data_sentence_size(o->text->all, o->text->list[pair].first + side);
}

/* 8, 12, 16, 20, 24, 32, 40, 48, 64, ... */
static int next_length(int n)
{
    int power = 16;
    if (n < 16)
        return n + 4;
    while (power * 2 <= n)
        power *= 2;
    return n < power + power / 2 ? n + power / 4 : power * 2;
}

static by_status make_lengths(data_objective *o)
{
    data_bucket_list *b = &o->buckets;
    for (int n = 8;; n = next_length(n)) {
        if (b->count == DATA_BUCKETS)
            return base_fail(BY_ERR_ARGUMENT, "sequences of %d tokens are too long", o->spec.seq);
        b->list[b->count++].seq = BY_MIN(n, o->spec.seq);
        if (n >= o->spec.seq)
            return BY_OK;
    }
}

/* Returns the bucket of a pair, or NULL if the pair is dropped. */
static data_bucket *find_bucket(data_objective *o, int64_t pair, bool count)
{
    const int64_t source = size_of(o, pair, 0), target = size_of(o, pair, 1);
    const int64_t size = BY_MAX(source, target);
    data_bucket *b = o->buckets.list;
    o->empty += count && (!source || !target);
    o->longer += count && source && target && size > o->spec.seq;
    if (!source || !target || size > o->spec.seq)
        return NULL;
    while (b->seq < size)
        b++;
    return b;
}

/* Limits the padding of the bucket to its longest texts. */
static void widen(const data_objective *o, data_bucket *b, int64_t pair)
{
    for (int side = 0; side < 2; side++) {
        int size = (int)(size_of(o, pair, side) + 3) / 4 * 4;
        b->sides[side] = BY_MAX(b->sides[side], BY_MIN(size, b->seq));
    }
}

/* Multiples of eight rows are faster to compute. */
static int rows_for(const data_objective *o, const data_bucket *b)
{
    int rows = BY_MAX(o->spec.budget / b->seq, 1);
    rows -= rows >= 8 ? rows % 8 : 0;
    return (int)BY_MIN((int64_t)rows, b->count);
}

/* Removes empty buckets from the list. */
static void lay_out(data_objective *o)
{
    data_bucket_list *b = &o->buckets;
    int kept = 0;
    int64_t first = 0;
    for (int i = 0; i < b->count; i++) {
        data_bucket x = b->list[i];
        if (!x.count)
            continue;
        x.rows = rows_for(o, &x);
        x.batches = (x.count + x.rows - 1) / x.rows;
        x.first = first;
        first += x.count;
        b->batches += x.batches;
        x.count = 0; /* counted again while filling */
        b->list[kept++] = x;
    }
    b->count = kept;
    o->count = first;
}

by_status data_buckets_plan(data_objective *o)
{
    const int64_t n = o->text->count;
    BY_TRY(make_lengths(o));
    for (int64_t i = 0; i < n; i++) {
        data_bucket *b = find_bucket(o, i, true);
        if (!b)
            continue;
        b->count++;
        widen(o, b, i);
    }
    lay_out(o);
    if (!o->count)
        return base_fail(BY_ERR_FORMAT,
                         "of %lld pairs, %lld have an empty side and %lld are longer than %d tokens, which "
                         "leaves none; use a longer --context",
                         (long long)n, (long long)o->empty, (long long)o->longer, o->spec.seq);
    o->buckets.pairs = base_alloc((size_t)o->count * sizeof *o->buckets.pairs);
    if (!o->buckets.pairs)
        return BY_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        data_bucket *b = find_bucket(o, i, false);
        if (b)
            o->buckets.pairs[b->first + b->count++] = i;
    }
    return BY_OK;
}

/* Writes one text of a pair into a row of seq positions, padded with `filler`. Returns its size. */
static by_status put_side(const data_objective *o, int64_t pair, int side, int32_t filler, int seq,
                          int32_t *row, int *size)
{
    const data_docs *d = o->text->all;
    const int64_t sentence = o->text->list[pair].first + side;
    *size = (int)data_sentence_size(d, sentence);
    BY_TRY(data_tokens_read(d->tokens, d->starts[sentence], *size, row));
    for (int t = *size; t < seq; t++)
        row[t] = filler;
    return BY_OK;
}

/* Writes row r of micro-batch k; pair < 0: a row without targets. Its source is not all padding, because
 * attention needs at least one token. */
static by_status put_row(const data_objective *o, int64_t pair, data_samples *rows, int k, int r)
{
    const int seq = rows->shapes[k].seq, source_seq = rows->shapes[k].source_seq;
    const size_t at = (size_t)k * rows->room + (size_t)r * (size_t)seq;
    const size_t source_at = (size_t)k * rows->room + (size_t)r * (size_t)source_seq;
    int32_t *source = rows->source + source_at, *targets = rows->targets + at;
    int n = 1, written = 0;
    if (pair >= 0) {
        BY_TRY(put_side(o, pair, 0, o->pad, source_seq, source, &n));
        BY_TRY(put_side(o, pair, 1, -100, seq, targets, &written));
    } else {
        for (int t = 0; t < source_seq; t++)
            source[t] = t ? o->pad : o->eos;
        for (int t = 0; t < seq; t++)
            targets[t] = -100;
    }
    for (int t = 0; t < source_seq; t++)
        rows->source_mask[source_at + (size_t)t] = t < n;
    for (int t = 0; t < seq; t++)
        rows->tokens[at + (size_t)t] = t == 0 ? o->spec.start : t <= written ? targets[t - 1] : o->pad;
    return BY_OK;
}

by_status data_buckets_batch(const data_objective *o, int64_t i, uint64_t order, bool ordered,
                             data_samples *rows, int k)
{
    const data_bucket *b = o->buckets.list;
    while (i >= b->batches)
        i -= b++->batches;
    const uint64_t inside = data_number_at(order, (uint64_t)(b - o->buckets.list));
    rows->shapes[k] = (struct data_shape){b->rows, b->sides[1], b->sides[0]};
    for (int r = 0; r < b->rows; r++) {
        int64_t number = i * b->rows + r, pair = -1;
        if (number < b->count && !ordered)
            number = (int64_t)base_permute((uint64_t)number, (uint64_t)b->count, inside);
        if (number < b->count)
            pair = o->buckets.pairs[b->first + number];
        BY_TRY(put_row(o, pair, rows, k, r));
    }
    return BY_OK;
}
