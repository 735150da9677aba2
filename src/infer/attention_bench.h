/* attention_bench.h - the kinds of attention measured by `banyan bench attention`. */
#ifndef BY_INFER_ATTENTION_BENCH_H
#define BY_INFER_ATTENTION_BENCH_H

#include "banyan/graph.h"

typedef struct gen_attention_shape {
    int batch, heads, head_dim, length;
    by_dtype dtype;
} gen_attention_shape;

/* A row of the table. Most kinds are by_attention with a spec; others have a function that builds them. */
typedef struct gen_attention_kind {
    const char *name;
    const char *about;
    by_attention_spec spec; /* heads are set when the graph is built */
    bool root;              /* the length of its pattern is a power of two of at least sqrt(n) */
    /* Queries, keys and values (B, T, H*D) -> (B, T, H*D). NULL: by_attention with the spec. */
    by_tensor *(*build)(by_graph *g, const gen_attention_shape *s, by_tensor *q, by_tensor *k, by_tensor *v);
    /* The fraction of the T x T pairs that are computed. NULL: as mask and pattern of the spec allow. */
    double (*share)(const gen_attention_shape *s);
} gen_attention_kind;

int gen_attention_count(void);
const gen_attention_kind *gen_attention_at(int i); /* the first is "dense" */
double gen_attention_share(const gen_attention_kind *k, const gen_attention_shape *s);

typedef struct gen_attention_time {
    double seconds; /* the least of several runs */
    size_t bytes;   /* of activations */
} gen_attention_time;
/* Runs the attention on random numbers, forward or forward and backward. */
by_status gen_attention_measure(by_device *d, const gen_attention_kind *k, const gen_attention_shape *s,
                                bool backward, gen_attention_time *out);

#endif
