/* bench.h - internals of `banyan bench`: one model, random tokens, and the workloads that are measured. A
 * workload is a row of the table in verb_bench.c; its two functions are in bench_train.c or
 * bench_decode.c. */
#ifndef BY_CLI_BENCH_H
#define BY_CLI_BENCH_H

#include "banyan/generate.h"
#include "banyan/train.h"
#include "cli/common.h"
#include "cli/verbs.h"

typedef struct bench_options {
    const char *model, *preset, *model_dir, *save, *device, *weights;
    int layers, heads, width, context, vocab;
    int batch, seq, target, new_tokens, beams, steps, warmup, threads;
    by_dtype dtype;
    double padding;
    bool bf16, gr_stochastic, recompute;
    const char *lengths, *kinds, *plot; /* attention */
    int head_dim;
    bool json;
} bench_options;

/* Nodes of one kind and shape, as the trace of a step shows them. */
typedef struct bench_kind {
    char op[24], shape[48];
    int count;
    double flops, bytes, seconds; /* of all of them, in the present step */
    double best;                  /* the least that the seconds were */
} bench_kind;

typedef struct bench {
    bench_options o;
    const struct bench_work *work;
    double started; /* when the verb began, for the time to the first token */
    by_device *device;
    by_model *model;
    by_trainer *trainer;     /* train, gemm, profile */
    by_program *program;     /* forward */
    by_tensor *input;        /* its (B, T) */
    by_generator *generator; /* prefill, decode, translate */
    uint64_t random;
    int32_t *tokens, *targets; /* (B, T) */
    int32_t *source;           /* (B, S) of encoder-decoders; else NULL */
    int32_t *mask;             /* (B, T) or (B, S) with --padding, else NULL */
    int32_t *pick;             /* (picks) rows that a model of hidden tokens is to guess, else NULL */
    int picks;
    float *pixels; /* (B, C, H, W) of models that classify pictures, else NULL; then targets are classes */
    by_pictures picture;
    int32_t *order, *segments; /* (B, T) where tokens are predicted in a random order, else NULL */
    const int32_t **rows;      /* (B) of tokens or sources, for the generator */
    int *lengths;              /* (B) */
    double *seconds;           /* (steps) */
    double cpu_seconds;        /* least processor time of a step, of all threads together */
    bench_kind kinds[160];
    int n_kinds;
    bool only_products; /* gemm; the profiles look at all nodes */
    /* results */
    int64_t tokens_per_step;
    int passes; /* through the model per step: ms_per_step is the time of one */
    double flops_per_token, loss, first_token;
    int64_t token_sum; /* of the first generated texts, to compare with the output of another program */
} bench;

/* One thing that can be measured. open() prepares it and fills tokens_per_step and flops_per_token; step()
 * does it once on the tokens drawn and gives the seconds that count. */
typedef struct bench_work {
    const char *name;
    const char *model;             /* family, ... */
    int batch, seq, steps, warmup; /* ... and size, unless given by the user */
    bool training, any_task;       /* of the model; else a language model is needed */
    bool writes, beams;            /* texts of --new-tokens, by a search of --beams */
    by_status (*open)(bench *b);
    by_status (*step)(bench *b, double *seconds);
} bench_work;

/* bench_model.c: the set-up that all works share. */
by_status bench_open_model(bench *b);
by_status bench_open_rows(bench *b); /* room for the tokens of a step */
by_status bench_draw(bench *b);      /* new tokens; those of bench/peer_*.py */
by_status bench_hide(bench *b);
by_status bench_order(bench *b);
bool bench_takes(const bench *b,
                 const char *input); /* selects the tokens that a masked language model predicts */
by_batch bench_batch(const bench *b);
bool bench_is_pair(const bench *b);
bool bench_is_picture(const bench *b);
/* FLOP of a token going forward against the keys of `seen` positions. */
double bench_forward_flops(const bench *b, double seen);
void bench_release(bench *b);

/* bench_nodes.c: a step node by node. */
void bench_on_node(void *user, const by_trace_entry *e); /* user: the bench */
void bench_clear_nodes(bench *b);
double bench_sum_nodes(bench *b, double *seconds); /* adds up the seconds of a step; returns its FLOP */

/* bench_train.c */
by_status bench_train_open(bench *b);
by_status bench_train_step(bench *b, double *seconds);
by_status bench_gemm_open(bench *b);
by_status bench_profile_open(bench *b);
by_status bench_traced_step(bench *b, double *seconds);
by_status bench_forward_open(bench *b);
by_status bench_forward_step(bench *b, double *seconds);

/* bench_decode.c */
by_status bench_prefill_open(bench *b);
by_status bench_prefill_step(bench *b, double *seconds);
by_status bench_decode_open(bench *b);
by_status bench_decode_step(bench *b, double *seconds);
by_status bench_decode_profile_open(bench *b);
by_status bench_decode_profile_step(bench *b, double *seconds);
by_status bench_translate_open(bench *b);
by_status bench_translate_step(bench *b, double *seconds);

/* bench_tell.c */
int bench_tell(bench *b);                    /* the line of JSON; returns an exit code */
double bench_median(double *seconds, int n); /* sorts them */

/* bench_open.c: opens the weights at `path` repeatedly and prints one line of JSON. Returns an exit code. */
int bench_open_weights(const char *path, int steps);

/* bench_attention.c: each kind of attention over lengths. Returns an exit code. */
int bench_attention(const bench_options *o);

#endif
