/* batches.c - batches of a language model as a function of (seed, step, row), and windows in order for
 * evaluation.
 *
 * N tokens contain N - 1 predictions. An epoch has W = N / seq - 1 windows (at least one), so that a shift of
 * the cuts by up to seq - 1 tokens always fits and W is the same in every epoch. Row r of step s is window (s
 * * batch + r) mod W of epoch (s * batch + r) / W, so seeking is arithmetic.
 *
 * In columns, an epoch has W = (N - 1) / batch / seq steps. Row r of step s is window r * W + s mod W of epoch s / W. */
#include "data/tokens.h"

/* Random streams from here on belong to epochs, separate from the small numbers that others use with the same
 * seed. */
#define EPOCH_STREAM ((uint64_t)1 << 62)

typedef struct epoch {
    uint64_t order; /* seed of the permutation of the windows */
    int64_t shift;  /* of the first window from the start of the region */
} epoch;

by_status data_lm_batches_check(const data_lm_batches *d)
{
    if (!d->tokens || d->batch <= 0 || d->seq <= 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "batches need a token stream and positive sizes, not %d rows of %d tokens", d->batch,
                         d->seq);
    int64_t count = data_tokens_count(d->tokens);
    if (d->begin < 0 || d->begin > d->end || d->end > count)
        return base_fail(BY_ERR_ARGUMENT, "the region [%lld, %lld) is outside the %lld tokens",
                         (long long)d->begin, (long long)d->end, (long long)count);
    if (d->end - d->begin <= d->seq)
        return base_fail(
            BY_ERR_ARGUMENT,
            "%lld tokens are too few for one window of %d tokens and its successor; use more text or a "
            "shorter context",
            (long long)(d->end - d->begin), d->seq);
    if (d->columns && (d->end - d->begin - 1) / d->batch < d->seq)
        return base_fail(
            BY_ERR_ARGUMENT,
            "%lld tokens are too few for %d columns of %d tokens; use more text, fewer rows or shorter "
            "segments",
            (long long)(d->end - d->begin), d->batch, d->seq);
    return BY_OK;
}

static int64_t epoch_windows(const data_lm_batches *d)
{
    return BY_MAX((d->end - d->begin) / d->seq - 1, (int64_t)1);
}

static int64_t column_windows(const data_lm_batches *d)
{
    return (d->end - d->begin - 1) / d->batch / d->seq;
}

static epoch epoch_at(const data_lm_batches *d, int64_t number)
{
    const int64_t windows = d->columns ? column_windows(d) * d->batch : epoch_windows(d);
    int64_t slack = d->end - d->begin - 1 - windows * d->seq; /* tokens that no window needs, >= 0 */
    base_rng r = base_rng_make(d->seed, EPOCH_STREAM + (uint64_t)number);
    epoch e;
    e.order = base_rng_u64(&r);
    e.shift = (int64_t)base_rng_below(&r, (uint64_t)BY_MIN(slack + 1, (int64_t)d->seq));
    return e;
}

/* Returns the position in the stream where row r of a step starts. */
static int64_t row_start(const data_lm_batches *d, int64_t step, int r)
{
    if (d->columns) {
        const int64_t rows = column_windows(d);
        return d->begin + epoch_at(d, step / rows).shift + (r * rows + step % rows) * d->seq;
    }
    int64_t windows = epoch_windows(d), number = step * d->batch + r;
    epoch e = epoch_at(d, number / windows);
    int64_t window = (int64_t)base_permute((uint64_t)(number % windows), (uint64_t)windows, e.order);
    return d->begin + e.shift + window * d->seq;
}

bool data_lm_batches_restart(const data_lm_batches *d, int64_t step)
{
    return !d->columns || step % column_windows(d) == 0;
}

void data_lm_batches_prefetch(const data_lm_batches *d, int64_t step)
{
    for (int r = 0; r < d->batch && step >= 0 && step < INT64_MAX / d->batch; r++)
        data_tokens_prefetch(d->tokens, row_start(d, step, r), d->seq + 1);
}

by_status data_lm_batches_get(const data_lm_batches *d, int64_t step, int32_t *inputs, int32_t *targets)
{
    BY_TRY(data_lm_batches_check(d));
    if (step < 0 || step >= INT64_MAX / d->batch)
        return base_fail(BY_ERR_ARGUMENT, "invalid step %lld", (long long)step);
    for (int r = 0; r < d->batch; r++) {
        int64_t start = row_start(d, step, r);
        BY_TRY(data_tokens_read(d->tokens, start, d->seq, inputs + (size_t)r * (size_t)d->seq));
        BY_TRY(data_tokens_read(d->tokens, start + 1, d->seq, targets + (size_t)r * (size_t)d->seq));
    }
    return BY_OK;
}

int64_t data_lm_eval_windows(const data_lm_batches *d)
{
    if (!d->tokens || d->seq <= 0 || d->begin < 0 || d->end > data_tokens_count(d->tokens) ||
        d->end - 1 <= d->begin)
        return 0;
    return (d->end - d->begin - 2) / d->seq + 1;
}

by_status data_lm_eval_get(const data_lm_batches *d, int64_t window, int rows, int32_t *inputs,
                           int32_t *targets)
{
    int64_t windows = data_lm_eval_windows(d);
    if (window < 0 || window >= windows)
        return base_fail(BY_ERR_ARGUMENT, "no window %lld; the data has %lld", (long long)window,
                         (long long)windows);
    for (int r = 0; r < rows; r++, inputs += d->seq, targets += d->seq) {
        int64_t n = 0; /* predictions in this row */
        if (r < windows - window) {
            int64_t start = d->begin + (window + r) * d->seq;
            n = BY_MIN((int64_t)d->seq, d->end - 1 - start);
            BY_TRY(data_tokens_read(d->tokens, start, n, inputs));
            BY_TRY(data_tokens_read(d->tokens, start + 1, n, targets));
        }
        for (int64_t i = n; i < d->seq; i++) {
            inputs[i] = 0;
            targets[i] = -100;
        }
    }
    return BY_OK;
}

int64_t data_lm_eval_segments(const data_lm_batches *d, int rows)
{
    return (data_lm_eval_windows(d) + rows - 1) / rows;
}

by_status data_lm_eval_columns(const data_lm_batches *d, int64_t number, int rows, int32_t *inputs,
                               int32_t *targets)
{
    const int64_t windows = data_lm_eval_windows(d), length = data_lm_eval_segments(d, rows);
    for (int r = 0; r < rows; r++, inputs += d->seq, targets += d->seq) {
        const int64_t window = r * length + number;
        if (window < windows) {
            BY_TRY(data_lm_eval_get(d, window, 1, inputs, targets));
            continue;
        }
        for (int i = 0; i < d->seq; i++) {
            inputs[i] = 0;
            targets[i] = -100;
        }
    }
    return BY_OK;
}
