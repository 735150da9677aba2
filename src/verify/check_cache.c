/* check_cache.c - the continuous cache (Grave et al. 2016): hidden states (T, C), logits (T, V) and the T tokens that
 * follow. Query t sees the pairs of the `cache_window` positions before it. */
#include "base/file.h"
#include "base/json.h"
#include "infer/continuous_cache.h"
#include "verify/check.h"

typedef struct cache_case {
    verify_graph graph;
    int64_t positions;
    double theta, lambda;
    int window;
    int32_t *next, *seen; /* (T), (T, T) */
    float *share;         /* (T): lambda, 0 while the cache is empty */
    by_tensor *next_in, *seen_in, *share_in;
} cache_case;

static by_status read_config(verify_case *c, cache_case *k)
{
    char *path = base_path_join(c->dir, "config.json");
    cJSON *config = path ? base_json_load(path) : NULL;
    base_free(path);
    if (!config)
        return base_error_status();
    int64_t window = 0;
    by_status s = base_json_double(config, "cache_theta", 0, 0, 1e6, &k->theta);
    if (s == BY_OK)
        s = base_json_double(config, "cache_lambda", 0, 0, 1, &k->lambda);
    if (s == BY_OK)
        s = base_json_int(config, "cache_window", 0, 0, 1 << 24, &window);
    k->window = (int)window;
    cJSON_Delete(config);
    return s;
}

static by_status make_inputs(verify_case *c, cache_case *k)
{
    static const char *const known[] = {"hidden_states", "logits", "next_tokens", NULL};
    const by_weight *e = verify_find(c, "input.", "next_tokens");
    BY_TRY(verify_known(c, "input.", known));
    if (!e || e->rank != 1 || e->dim[0] < 1 || e->dim[0] > 1 << 14)
        return base_fail(BY_ERR_FORMAT, "the reference has no input.next_tokens (T)");
    const int64_t n = k->positions = e->dim[0];
    BY_TRY(verify_ids(c, "input.", "next_tokens", n, 0, &k->next));
    k->seen = base_alloc_zero((size_t)(n * n), sizeof *k->seen);
    k->share = base_alloc_zero((size_t)n, sizeof *k->share);
    if (!k->seen || !k->share)
        return BY_ERR_MEMORY;
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = BY_MAX(t - k->window, 0); i < t; i++)
            k->seen[t * n + i] = 1;
        k->share[t] = t > 0 && k->window > 0 ? (float)k->lambda : 0;
    }
    return BY_OK;
}

/* A mean over T of -log p of the token that follows. */
static by_status build(verify_case *c, cache_case *k)
{
    verify_graph *v = &k->graph;
    by_graph *g = v->graph;
    const int64_t n = k->positions, square[] = {n, n}, column[] = {n, 1};
    by_tensor *states = verify_graph_operand(c, v, "hidden_states");
    by_tensor *logits = verify_graph_operand(c, v, "logits");
    k->next_in = by_input(g, "next", BY_I32, 1, &n);
    k->seen_in = by_input(g, "seen", BY_I32, 2, square);
    k->share_in = by_input(g, "share", BY_F32, 2, column);
    by_tensor *log_probs =
        gen_cache_mix(g, &(gen_cache_mixture){.states = states,
                                              .logits = logits,
                                              .keys = states,
                                              .next = k->next_in,
                                              .seen = k->seen_in,
                                              .share = by_cast(g, k->share_in, by_type(states)),
                                              .theta = k->theta});
    by_tensor *rows = by_reshape(g, log_probs, 3, (int64_t[]){n, by_dim(log_probs, -1), 1});
    by_tensor *picked = by_take(g, rows, by_reshape(g, k->next_in, 2, column)); /* (T, 1, 1) */
    by_tensor *losses = by_scale(g, by_reshape(g, picked, 1, &n), -1);
    by_tensor *loss = by_mean(g, losses, 0);
    verify_graph_output(v, "log_probs", log_probs);
    verify_graph_output(v, "token_losses", losses);
    verify_graph_output(v, "loss", loss);
    return verify_graph_compile(v, loss);
}

static by_status run(verify_case *c, cache_case *k)
{
    BY_TRY(read_config(c, k));
    BY_TRY(make_inputs(c, k));
    BY_TRY(verify_graph_open(c, &k->graph));
    BY_TRY(build(c, k));
    const size_t n = (size_t)k->positions;
    BY_TRY(by_write(k->graph.program, k->next_in, k->next, n * sizeof *k->next));
    BY_TRY(by_write(k->graph.program, k->seen_in, k->seen, n * n * sizeof *k->seen));
    BY_TRY(by_write(k->graph.program, k->share_in, k->share, n * sizeof *k->share));
    return verify_graph_compare(c, &k->graph);
}

by_status verify_continuous_cache(verify_case *c)
{
    cache_case k = {0};
    by_status s = run(c, &k);
    verify_graph_close(&k.graph);
    base_free(k.next);
    base_free(k.seen);
    base_free(k.share);
    return s;
}
