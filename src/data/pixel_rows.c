/* pixel_rows.c - rows that are pictures: as many tokens of a stream as a picture has, each row one of
 * them. */
#include "data/objective_row.h"

data_objective *data_objective_new_pixels(const data_lm_batches *d, int start)
{
    const int64_t count = d->seq > 0 ? (d->end - d->begin) / d->seq : 0;
    if (count < 1) {
        base_fail(BY_ERR_FORMAT, "the data hold less than one picture");
        return NULL;
    }
    data_objective *o = base_alloc_zero(1, sizeof *o);
    if (!o)
        return NULL;
    o->lm = *d;
    o->count = count;
    o->spec = (data_objective_spec){
        .kind = DATA_OBJECTIVE_PIXELS, .seq = d->seq, .step_rows = d->batch, .seed = d->seed, .start = start};
    return o;
}

/* With a start token, the tokens are the targets shifted right by one; otherwise the model shifts them. */
by_status data_pixels_row(const data_objective *o, int64_t picture, int32_t *tokens, int32_t *targets)
{
    const int n = o->lm.seq;
    if (picture < 0) {
        for (int i = 0; i < n; i++) {
            tokens[i] = 0;
            targets[i] = -100;
        }
        return BY_OK;
    }
    BY_TRY(data_tokens_read(o->lm.tokens, o->lm.begin + picture * n, n, targets));
    const int shift = o->spec.start >= 0;
    memcpy(tokens + shift, targets, (size_t)(n - shift) * sizeof *tokens);
    if (shift)
        tokens[0] = o->spec.start;
    return BY_OK;
}
