/* mix_evaluate.c - perplexity of the mixture of a neural model and an n-gram model, and tuning of the weight
 * on held-out text. */
#include <math.h>

#include "infer/ngram_mix.h"
#include "infer/windows.h"

double gen_mixed_nats(double nats, double other, double share)
{
    return other < 0 ? nats : -log((1 - share) * exp(-nats) + share * other);
}

static double sum_nats(const double *nats, const float *other, int64_t stride, int64_t count, double share)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += gen_mixed_nats(nats[i], (double)other[i * stride], share);
    return sum;
}

/* The nats are convex in the weight: ternary search, down to a step of 1/1000. */
double gen_best_share(const double *nats, const float *other, int64_t stride, int64_t count, double *least)
{
    double low = 0, high = 0.999;
    while (high - low > 1e-3) {
        const double a = low + (high - low) / 3, b = high - (high - low) / 3;
        if (sum_nats(nats, other, stride, count, a) <= sum_nats(nats, other, stride, count, b))
            high = b;
        else
            low = a;
    }
    const double share = round(1000 * (low + high) / 2) / 1000;
    *least = sum_nats(nats, other, stride, count, share);
    return share;
}

/* ---- an n-gram model --------------------------------------------------------------------------------- */

typedef struct reader {
    by_ngram_mix mix;
    by_ngram_state state;
    bool begun;
    double nats; /* of the mixture */
    bool keeps;  /* every token, to tune the weight */
    double *plain;
    float *other;
    int64_t tokens, room;
} reader;

static by_status keep(reader *r, double nats, double other)
{
    if (r->tokens == r->room) {
        const size_t room = (size_t)BY_MAX(2 * r->room, 4096);
        double *plain = base_resize(r->plain, room, sizeof *plain);
        r->plain = plain ? plain : r->plain;
        float *more = plain ? base_resize(r->other, room, sizeof *more) : NULL;
        r->other = more ? more : r->other;
        if (!more)
            return BY_ERR_MEMORY;
        r->room = (int64_t)room;
    }
    r->plain[r->tokens] = nats;
    r->other[r->tokens++] = (float)other;
    return BY_OK;
}

static by_status on_token(void *user, int32_t token, int32_t next, double nats, const float *state, int width)
{
    reader *r = user;
    (void)state;
    (void)width;
    if (!r->begun) { /* the first token of the text is not predicted */
        r->state = by_ngram_begin(r->mix.model);
        by_ngram_token_score(r->mix.model, &r->state, token, &r->state);
        r->begun = true;
    }
    const double other = exp(by_ngram_token_score(r->mix.model, &r->state, next, &r->state));
    r->nats += gen_mixed_nats(nats, other, r->mix.weight);
    return r->keeps ? keep(r, nats, other) : BY_OK;
}

static by_status check(const by_model *m, const by_tokenizer *t, const by_perplexity_spec *spec)
{
    if (spec->cache.size)
        return base_fail(BY_ERR_UNSUPPORTED, "the continuous cache and an n-gram model cannot be combined");
    if (t && by_ngram_check_tokenizer(spec->ngram.model, t) != BY_OK)
        return base_fail_context("the n-gram model");
    return gen_ngram_check(&spec->ngram, by_model_vocab(m), false);
}

static by_status read_text(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                           const by_perplexity_spec *spec, reader *r, by_perplexity_result *out)
{
    const by_perplexity_spec ordered = gen_in_order(m, spec);
    *out = (by_perplexity_result){0};
    BY_TRY(check(m, t, spec));
    r->mix = spec->ngram;
    BY_TRY(gen_read_windows(m, t, files, count, &ordered, (gen_listener){.token = on_token, .user = r}, out));
    out->nats = r->nats;
    return BY_OK;
}

by_status gen_ngram_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out)
{
    reader r = {.nats = 0};
    return read_text(m, t, files, count, spec, &r, out);
}

by_status by_ngram_tune(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                        const by_perplexity_spec *spec, double *weight, by_perplexity_result *out)
{
    if (!m || !files || !spec || !spec->ngram.model || !weight || !out)
        return base_fail_missing(m ? "files, n-gram model, weight or by_perplexity_result" : "model");
    reader r = {.keeps = true};
    by_status s = read_text(m, t, files, count, spec, &r, out);
    if (s == BY_OK)
        *weight = gen_best_share(r.plain, r.other, 1, r.tokens, &out->nats);
    base_free(r.plain);
    base_free(r.other);
    return s;
}
