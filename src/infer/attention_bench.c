/* attention_bench.c - see attention_bench.h. To add a kind, add a row to the table and, unless it is
 * by_attention with a spec, the function that builds it. */
#include "infer/attention_bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "graph/reach.h"

enum {
    REACH = 256, /* keys of a window or a block */
    SUMMARY = 8, /* summary columns of a stride in FIXED */
    SINKS = 4,   /* first keys, which all queries see */
    GLOBALS = 16,
    TILE = 64, /* tokens of a block of BigBird and of a chunk of Reformer */
    RANDOM = 3,
    ROUNDS = 2
};

/* ---- kinds that are compositions ------------------------------------------------------------- */

/* Linformer (Wang et al. 2020): keys and values are projected along the positions from T to REACH. */
static by_tensor *build_linformer(by_graph *g, const gen_attention_shape *s, by_tensor *q, by_tensor *k,
                                  by_tensor *v)
{
    const int64_t shape[] = {BY_MIN(REACH, s->length), s->length};
    const by_init init = {BY_INIT_NORMAL, (float)(1 / sqrt(s->length))};
    k = by_matmul(g, by_param(g, "key projection", 2, shape, init), k, false, false);
    v = by_matmul(g, by_param(g, "value projection", 2, shape, init), v, false, false);
    return by_attention(g, q, k, v, &(by_attention_spec){.heads = s->heads});
}

static double share_linformer(const gen_attention_shape *s)
{
    return (double)BY_MIN(REACH, s->length) / s->length;
}

/* A learned bias by distance, as in T5. */
static by_tensor *build_relative(by_graph *g, const gen_attention_shape *s, by_tensor *q, by_tensor *k,
                                 by_tensor *v)
{
    const int64_t shape[] = {1, s->heads, 1, s->length};
    by_tensor *bias = by_param(g, "bias", 4, shape, (by_init){BY_INIT_NORMAL, 1});
    return by_attention(
        g, q, k, v,
        &(by_attention_spec){
            .heads = s->heads, .mask = BY_MASK_CAUSAL, .relative = bias, .relative_zero = s->length - 1});
}

/* Longformer (Beltagy et al. 2020): a two-sided window; the first tokens see all and are seen by all. */
static by_tensor *build_longformer(by_graph *g, const gen_attention_shape *s, by_tensor *q, by_tensor *k,
                                   by_tensor *v)
{
    const int globals = BY_MIN(GLOBALS, s->length - 1);
    const by_pattern pattern = {
        .kind = BY_PATTERN_SINKS, .length = globals, .before = REACH / 2, .after = REACH / 2};
    by_tensor *near = by_attention(g, q, k, v, &(by_attention_spec){.heads = s->heads, .pattern = pattern});
    by_tensor *all =
        by_attention(g, by_slice(g, q, 1, 0, globals), k, v, &(by_attention_spec){.heads = s->heads});
    return by_concat(g, (by_tensor *[]){all, by_slice(g, near, 1, globals, s->length - globals)}, 2, 1);
}

static double share_longformer(const gen_attention_shape *s)
{
    const by_pattern pattern = {
        .kind = BY_PATTERN_SINKS, .length = GLOBALS, .before = REACH / 2, .after = REACH / 2};
    const gr_reach r = gr_reach_of(&pattern);
    double pairs = 0;
    for (int p = 0; p < s->length; p++)
        pairs += (double)(p < GLOBALS ? s->length : gr_reach_count(&r, p, s->length));
    return pairs / s->length / s->length;
}

/* 1 where x > 0, else 0. */
static by_tensor *positive(by_graph *g, by_tensor *x)
{
    return by_clamp(g, by_scale(g, x, 1e9), 0, 1);
}

/* BigBird (Zaheer et al. 2020): blocks see their neighbours, the first block, and about RANDOM others. The
 * mask has an entry per pair of blocks. */
static by_tensor *build_big_bird(by_graph *g, const gen_attention_shape *s, by_tensor *q, by_tensor *k,
                                 by_tensor *v)
{
    const int64_t n = (s->length + TILE - 1) / TILE, shape[] = {1, s->heads, n, n};
    by_tensor *at = by_cast(g, by_range(g, 1, &n), BY_F32), *rows = by_reshape(g, at, 2, (int64_t[]){n, 1});
    by_tensor *d = by_sub(g, rows, at), *one = by_fill(g, BY_F32, 1, (int64_t[]){1}, 1);
    by_tensor *near = positive(g, by_sub(g, by_scale(g, one, 1.5), by_maximum(g, d, by_scale(g, d, -1))));
    by_tensor *first = positive(g, by_sub(g, by_scale(g, one, 0.5), by_minimum(g, rows, at)));
    by_tensor *drawn = by_random(g, BY_RANDOM_UNIFORM, BY_F32, 4, shape, 1); /* in (-1, 1) */
    drawn = positive(g, by_sub(g, drawn, by_scale(g, one, 1 - 2.0 * RANDOM / (double)n)));
    by_tensor *mask = by_cast(g, by_add(g, drawn, by_add(g, near, first)), BY_I32);
    return by_attention(g, q, k, v,
                        &(by_attention_spec){.heads = s->heads, .pair_mask = mask, .pair_block = TILE});
}

/* The mean over the draws. */
static double share_big_bird(const gen_attention_shape *s)
{
    const int n = (s->length + TILE - 1) / TILE;
    const double drawn = fmin((double)RANDOM / n, 1);
    double blocks = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            blocks += i == 0 || j == 0 || abs(i - j) <= 1 ? 1 : drawn;
    return blocks / n / n;
}

/* About twice as many buckets as chunks; in two factors if the rotations would be large, as in Reformer. */
static int bucket_factors(const gen_attention_shape *s, int *factors)
{
    int power = 1;
    while (1 << power < 2 * (s->length / TILE))
        power++;
    const bool split = 1 << power > 2 * TILE;
    factors[0] = 1 << (split ? power / 2 : power);
    factors[1] = 1 << (power - power / 2);
    return split ? 2 : 1;
}

/* LSH attention (Kitaev et al. 2020): keys are the queries; tokens sorted by bucket see their chunk and the
 * previous one. */
static by_tensor *build_lsh(by_graph *g, const gen_attention_shape *s, by_tensor *q, by_tensor *k,
                            by_tensor *v)
{
    int factors[2];
    const int count = bucket_factors(s, factors);
    const int64_t columns = (factors[0] + (count == 2 ? factors[1] : 0)) / 2;
    by_tensor *rotations = by_random(g, BY_RANDOM_NORMAL, by_type(q) == BY_F64 ? BY_F64 : BY_F32, 4,
                                     (int64_t[]){s->heads, s->head_dim, ROUNDS, columns}, 1);
    by_tensor *order = by_argsort(g, by_hash(g, q, rotations, NULL, count, factors), false);
    (void)k;
    return by_chunked_attention(g, q, q, v,
                                &(by_chunked_spec){.heads = s->heads,
                                                   .chunk = BY_MIN(TILE, s->length),
                                                   .before = s->length > TILE,
                                                   .causal = true,
                                                   .avoid_self = true,
                                                   .order = order});
}

static double share_lsh(const gen_attention_shape *s)
{
    return BY_MIN(2.0 * TILE * ROUNDS / s->length, 1);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const gen_attention_kind kinds[] = {
    {.name = "dense", .about = "every query sees every key"},
    {.name = "causal", .about = "keys up to the query", .spec = {.mask = BY_MASK_CAUSAL}},
    {.name = "window",
     .about = "the last 256 keys",
     .spec = {.mask = BY_MASK_CAUSAL, .pattern = {.kind = BY_PATTERN_WINDOW, .before = REACH - 1}}},
    {.name = "blocks",
     .about = "blocks of 256, and the block before",
     .spec = {.mask = BY_MASK_CAUSAL, .pattern = {.kind = BY_PATTERN_BLOCKS, .length = REACH, .before = 1}}},
    {.name = "strided",
     .about = "Sparse Transformer, stride of about sqrt(n)",
     .spec = {.mask = BY_MASK_CAUSAL, .pattern = {.kind = BY_PATTERN_STRIDED}},
     .root = true},
    {.name = "fixed",
     .about = "Sparse Transformer, blocks of about sqrt(n), 8 summary columns",
     .spec = {.mask = BY_MASK_CAUSAL, .pattern = {.kind = BY_PATTERN_FIXED, .after = SUMMARY}},
     .root = true},
    {.name = "sinks",
     .about = "the last 256 keys and the first 4",
     .spec = {.mask = BY_MASK_CAUSAL,
              .pattern = {.kind = BY_PATTERN_SINKS, .length = SINKS, .before = REACH - 1}}},
    {.name = "longformer",
     .about = "a window of 128 to both sides, 16 global tokens",
     .build = build_longformer,
     .share = share_longformer},
    {.name = "bigbird",
     .about = "blocks of 64: the nearest three, the first, three random ones",
     .build = build_big_bird,
     .share = share_big_bird},
    {.name = "lsh",
     .about = "Reformer, two rounds of chunks of 64 and the chunk before",
     .build = build_lsh,
     .share = share_lsh},
    {.name = "linformer",
     .about = "keys and values projected to 256",
     .build = build_linformer,
     .share = share_linformer},
    {.name = "relative",
     .about = "causal, with a learned bias by distance",
     .spec = {.mask = BY_MASK_CAUSAL},
     .build = build_relative},
};

int gen_attention_count(void)
{
    return BY_COUNT(kinds);
}

const gen_attention_kind *gen_attention_at(int i)
{
    return i >= 0 && i < BY_COUNT(kinds) ? &kinds[i] : NULL;
}

static by_attention_spec spec_of(const gen_attention_kind *k, const gen_attention_shape *s)
{
    by_attention_spec spec = k->spec;
    spec.heads = s->heads;
    for (int l = SUMMARY; k->root && (spec.pattern.length = l) < sqrt(s->length); l *= 2)
        ;
    return spec;
}

double gen_attention_share(const gen_attention_kind *k, const gen_attention_shape *s)
{
    const by_attention_spec spec = spec_of(k, s);
    const gr_reach r = gr_reach_of(&spec.pattern);
    double pairs = 0;
    if (k->share)
        return k->share(s);
    for (int p = 0; p < s->length; p++) {
        const int keys = spec.mask == BY_MASK_CAUSAL ? p + 1 : s->length;
        pairs += (double)(r.on ? gr_reach_count(&r, p, keys) : keys);
    }
    return pairs / s->length / s->length;
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct trial {
    by_params *params;
    by_program *program;
} trial;

static by_status compile(by_device *d, const gen_attention_kind *k, const gen_attention_shape *s,
                         bool backward, trial *t)
{
    const int64_t shape[] = {s->batch, s->length, (int64_t)s->heads * s->head_dim};
    const by_attention_spec spec = spec_of(k, s);
    by_tensor *in[3];
    t->params = by_params_new(d, s->dtype);
    by_graph *g =
        t->params ? by_graph_new(&(by_graph_spec){.params = t->params, .training = backward}) : NULL;
    if (!g)
        return base_error_status();
    for (int i = 0; i < 3; i++)
        in[i] = by_param(g, (const char *const[]){"q", "k", "v"}[i], 3, shape, (by_init){BY_INIT_NORMAL, 1});
    by_tensor *y =
        k->build ? k->build(g, s, in[0], in[1], in[2]) : by_attention(g, in[0], in[1], in[2], &spec);
    by_tensor *sum = by_sum(g, by_reshape(g, y, 1, (int64_t[]){-1}), 0);
    by_output(g, backward ? "sum" : "y", backward ? sum : y);
    by_status status = by_params_freeze(t->params, backward);
    if (status != BY_OK) {
        by_graph_free(g);
        return status;
    }
    t->program = by_compile(g, backward ? &(by_compile_spec){.loss = sum, .grads = BY_GRAD_STORE} : NULL);
    return t->program ? by_params_init(t->params, 1) : base_error_status();
}

static by_status run_once(by_device *d, trial *t, double *seconds)
{
    const double begin = base_seconds();
    BY_TRY(by_run(t->program));
    BY_TRY(by_device_wait(d));
    *seconds = base_seconds() - begin;
    return BY_OK;
}

/* At least two runs after the first, more if they are short. */
static by_status run_trial(by_device *d, trial *t, double *least)
{
    double first, seconds, all = 0;
    BY_TRY(run_once(d, t, &first));
    *least = INFINITY;
    for (int i = 0; i < 20 && (i < 2 || all < 0.4); i++) {
        BY_TRY(run_once(d, t, &seconds));
        *least = fmin(*least, seconds);
        all += seconds;
        if (first > 2)
            break;
    }
    return BY_OK;
}

by_status gen_attention_measure(by_device *d, const gen_attention_kind *k, const gen_attention_shape *s,
                                bool backward, gen_attention_time *out)
{
    trial t = {0};
    *out = (gen_attention_time){NAN, 0};
    by_status status = compile(d, k, s, backward, &t);
    if (status == BY_OK) {
        out->bytes = by_program_bytes(t.program);
        status = run_trial(d, &t, &out->seconds);
    }
    by_program_free(t.program);
    by_params_free(t.params);
    return status;
}
