/* cache_evaluate.c - perplexity with the continuous cache (Grave et al. 2016), and tuning of theta and lambda
 * on held-out text. The pairs of the text are collected in blocks of queries. A block is computed against the
 * pairs before it and its own: (K, BLOCK, size + BLOCK) weights for K values of theta. */
#include <math.h>

#include "infer/continuous_cache.h"
#include "infer/windows.h"

enum { BLOCK = 256, THETAS = 16 };

typedef struct reader {
    by_device *device;
    by_continuous_cache cache;
    int32_t eos;
    int n_thetas;
    double thetas[THETAS];
    bool relative; /* thetas are multiples of 1 / mean(h.h) of the first block */
    int width;     /* C */
    /* rows [size - held, size + filled): pairs of the text; the last `filled` are the block */
    float *states;  /* (size + BLOCK, C) */
    int32_t *next;  /* (size + BLOCK) */
    int64_t *begin; /* (size + BLOCK) the first pair of its document, as a number in the text */
    double *plain;  /* (BLOCK) nats of the model */
    int held, filled;
    int64_t total, document; /* pairs so far; the first of this document */
    uint8_t *seen, *match;   /* (BLOCK, size + BLOCK) */
    float *cached;           /* (K, BLOCK) */
    by_params *params;
    by_program *program;
    by_tensor *keys_in, *seen_in, *match_in, *theta_in, *cached_out;
    /* Called for each token with the nats of the model and p_cache for each theta; NULL: the cache was
     * empty. */
    by_status (*token)(struct reader *r, double nats, const float *cached, int stride);
    double nats;       /* evaluation: of the mixture */
    double *all_plain; /* tuning: of each token, */
    float *all_cached; /* (tokens, K); -1: the cache was empty */
    int64_t tokens, room;
} reader;

/* ---- the program ----------------------------------------------------------------------------- */

static by_status compile(reader *r)
{
    const int64_t keys = (int64_t)r->cache.size + BLOCK, square[] = {BLOCK, keys};
    r->params = by_params_new(r->device, BY_F32);
    BY_TRY(r->params ? by_params_freeze(r->params, false) : base_error_status());
    by_graph *g = by_graph_new(&(by_graph_spec){.params = r->params});
    r->keys_in = by_input(g, "keys", BY_F32, 2, (int64_t[]){keys, r->width});
    r->seen_in = by_input(g, "seen", BY_U8, 2, square);
    r->match_in = by_input(g, "match", BY_U8, 2, square);
    r->theta_in = by_input(g, "theta", BY_F32, 3, (int64_t[]){r->n_thetas, 1, 1});
    by_tensor *queries = by_slice(g, r->keys_in, 0, r->cache.size, BLOCK);
    by_tensor *weights = gen_cache_weights(g, queries, r->keys_in, r->seen_in, r->theta_in);
    weights = by_where(g, r->match_in, weights, by_fill(g, BY_F32, 1, (int64_t[]){1}, 0));
    r->cached_out = by_output(g, "cached", by_sum(g, weights, -1)); /* (K, BLOCK) */
    r->program = by_compile(g, &(by_compile_spec){0});
    return r->program ? BY_OK : base_error_status();
}

static by_status open_rows(reader *r, int width)
{
    const size_t keys = (size_t)r->cache.size + BLOCK;
    r->width = width;
    r->states = base_alloc_zero(keys * (size_t)width, sizeof *r->states);
    r->next = base_alloc_zero(keys, sizeof *r->next);
    r->begin = base_alloc_zero(keys, sizeof *r->begin);
    r->plain = base_alloc_zero(BLOCK, sizeof *r->plain);
    r->seen = base_alloc_zero(BLOCK * keys, 1);
    r->match = base_alloc_zero(BLOCK * keys, 1);
    r->cached = base_alloc_zero((size_t)r->n_thetas * BLOCK, sizeof *r->cached);
    if (!r->states || !r->next || !r->begin || !r->plain || !r->seen || !r->match || !r->cached)
        return BY_ERR_MEMORY;
    return compile(r);
}

static void close_reader(reader *r)
{
    by_program_free(r->program);
    by_params_free(r->params);
    void *const host[] = {r->states, r->next,   r->begin,     r->plain,     r->seen,
                          r->match,  r->cached, r->all_plain, r->all_cached};
    for (int i = 0; i < BY_COUNT(host); i++)
        base_free(host[i]);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The first key that query i of the block sees, limited by the size, the start of the text and its
 * document. */
static int first_key(const reader *r, int i)
{
    const int size = r->cache.size;
    const int64_t zero = r->total - r->filled; /* index in the text of the pair in row `size` */
    const int64_t document = r->begin[size + i] - zero + size;
    return (int)BY_MIN(BY_MAX(BY_MAX(i, size - r->held), document), size + i);
}

static void mark(reader *r)
{
    const int size = r->cache.size, keys = size + BLOCK;
    memset(r->seen, 0, (size_t)BLOCK * (size_t)keys);
    memset(r->match, 0, (size_t)BLOCK * (size_t)keys);
    for (int i = 0; i < r->filled; i++)
        for (int k = first_key(r, i); k < size + i; k++) {
            r->seen[i * (int64_t)keys + k] = 1;
            r->match[i * (int64_t)keys + k] = r->next[k] == r->next[size + i];
        }
}

/* Thetas are in units of 1 / mean(h.h), which differs by orders of magnitude between models. */
static void scale_thetas(reader *r)
{
    double sum = 0;
    const float *h = r->states + (size_t)r->cache.size * (size_t)r->width;
    for (int64_t i = 0; i < (int64_t)r->filled * r->width; i++)
        sum += (double)h[i] * (double)h[i];
    for (int k = 0; k < r->n_thetas; k++)
        r->thetas[k] /= fmax(sum / r->filled, 1e-30);
    r->relative = false;
}

static by_status run_block(reader *r)
{
    const size_t keys = (size_t)r->cache.size + BLOCK;
    float thetas[THETAS];
    if (r->relative)
        scale_thetas(r);
    for (int k = 0; k < r->n_thetas; k++)
        thetas[k] = (float)r->thetas[k];
    mark(r);
    BY_TRY(by_write(r->program, r->keys_in, r->states, keys * (size_t)r->width * sizeof *r->states));
    BY_TRY(by_write(r->program, r->seen_in, r->seen, BLOCK * keys));
    BY_TRY(by_write(r->program, r->match_in, r->match, BLOCK * keys));
    BY_TRY(by_write(r->program, r->theta_in, thetas, (size_t)r->n_thetas * sizeof *thetas));
    BY_TRY(by_run(r->program));
    return by_read_f32(r->program, r->cached_out, r->cached);
}

/* Moves the last pairs to the front. */
static void shift(reader *r)
{
    const size_t size = (size_t)r->cache.size, by = (size_t)r->filled, width = (size_t)r->width;
    memmove(r->states, r->states + by * width, size * width * sizeof *r->states);
    memmove(r->next, r->next + by, size * sizeof *r->next);
    memmove(r->begin, r->begin + by, size * sizeof *r->begin);
    r->held = BY_MIN(r->held + r->filled, r->cache.size);
    r->filled = 0;
}

static by_status flush(reader *r)
{
    if (!r->filled)
        return BY_OK;
    BY_TRY(run_block(r));
    for (int i = 0; i < r->filled; i++)
        BY_TRY(r->token(r, r->plain[i], first_key(r, i) < r->cache.size + i ? r->cached + i : NULL, BLOCK));
    shift(r);
    return BY_OK;
}

static by_status on_token(void *user, int32_t token, int32_t next, double nats, const float *state, int width)
{
    reader *r = user;
    if (!r->program)
        BY_TRY(open_rows(r, width));
    if (r->cache.per_document && token == r->eos)
        r->document = r->total;
    const int row = r->cache.size + r->filled;
    memcpy(r->states + (ptrdiff_t)row * width, state, (size_t)width * sizeof *state);
    r->next[row] = next;
    r->begin[row] = r->document;
    r->plain[r->filled++] = nats;
    r->total++;
    return r->filled == BLOCK ? flush(r) : BY_OK;
}

static reader reader_of(const by_model *m, const by_tokenizer *t, const by_continuous_cache *c)
{
    return (reader){
        .device = by_model_device(m), .cache = *c, .eos = t ? by_tokenizer_eos(t) : by_model_eos(m)};
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static by_status add_token(reader *r, double nats, const float *cached, int stride)
{
    (void)stride;
    r->nats += gen_mixed_nats(nats, cached ? (double)*cached : -1, r->cache.lambda);
    return BY_OK;
}

by_status gen_cache_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out)
{
    *out = (by_perplexity_result){0};
    BY_TRY(gen_cache_check(&spec->cache));
    reader r = reader_of(m, t, &spec->cache);
    r.token = add_token;
    r.n_thetas = 1;
    r.thetas[0] = spec->cache.theta;
    const by_perplexity_spec ordered = gen_in_order(m, spec);
    by_status s = gen_read_windows(m, t, files, count, &ordered, (gen_listener){on_token, &r, true}, out);
    if (s == BY_OK)
        s = flush(&r);
    if (s == BY_OK)
        out->nats = r.nats;
    close_reader(&r);
    return s;
}

/* ---- tuning ---------------------------------------------------------------------------------- */

static by_status keep_token(reader *r, double nats, const float *cached, int stride)
{
    const size_t k = (size_t)r->n_thetas;
    if (r->tokens == r->room) {
        const size_t room = (size_t)BY_MAX(2 * r->room, 4096);
        double *plain = base_resize(r->all_plain, room, sizeof *plain);
        r->all_plain = plain ? plain : r->all_plain;
        float *all = plain ? base_resize(r->all_cached, room * k, sizeof *all) : NULL;
        r->all_cached = all ? all : r->all_cached;
        if (!all)
            return BY_ERR_MEMORY;
        r->room = (int64_t)room;
    }
    r->all_plain[r->tokens] = nats;
    for (size_t i = 0; i < k; i++)
        r->all_cached[(size_t)r->tokens * k + i] = cached ? cached[i * (size_t)stride] : -1;
    r->tokens++;
    return BY_OK;
}

static void choose(const reader *r, by_cache_tuning *out)
{
    int best = 0;
    for (int k = 0; k < r->n_thetas; k++) {
        out->thetas[k] = r->thetas[k];
        out->lambdas[k] =
            gen_best_share(r->all_plain, r->all_cached + k, r->n_thetas, r->tokens, &out->nats[k]);
        best = out->nats[k] < out->nats[best] ? k : best;
    }
    out->cache.theta = out->thetas[best];
    out->cache.lambda = out->lambdas[best];
    out->result.nats = out->nats[best];
}

by_status by_cache_tune(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                        const by_perplexity_spec *spec, by_cache_tuning *out)
{
    if (!m || !files || !spec || !out)
        return base_fail_missing(m ? "files, by_perplexity_spec or by_cache_tuning" : "model");
    *out = (by_cache_tuning){.cache = spec->cache};
    BY_TRY(gen_cache_check(&spec->cache));
    if (spec->cache.size == 0)
        return base_fail(BY_ERR_ARGUMENT, "a cache of 0 states has nothing to tune");
    reader r = reader_of(m, t, &spec->cache);
    r.token = keep_token;
    r.relative = true;
    r.n_thetas = THETAS;
    for (int k = 1; k < THETAS; k++)
        r.thetas[k] = pow(2, k / 2.0);
    const by_perplexity_spec ordered = gen_in_order(m, spec);
    by_status s =
        gen_read_windows(m, t, files, count, &ordered, (gen_listener){on_token, &r, true}, &out->result);
    if (s == BY_OK)
        s = flush(&r);
    if (s == BY_OK)
        choose(&r, out);
    close_reader(&r);
    return s;
}
