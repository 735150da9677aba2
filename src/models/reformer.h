/* reformer.h - shared by the two files of Reformer: the configuration and one reversible layer. */
#ifndef BY_MODELS_REFORMER_H
#define BY_MODELS_REFORMER_H

#include "models/models.h"

typedef struct arch_reformer_config {
    int vocab, context, width, layers, heads, head_dim, inner;
    int lsh_chunk, lsh_before, lsh_after, local_chunk, local_before, local_after;
    int hashes;                  /* rounds of hashing */
    int n_factors;               /* factors of the number of buckets; 0: chosen from the length */
    int factors[BY_MAX_FACTORS]; /* of that number */
    bool lsh[BY_MAX_LAYERS];     /* LSH layers; the others are local */
    bool head_bias;              /* the language model head adds its bias */
    bool causal, axial;          /* axial: a position has a row and a column, with a vector each */
    int axial_shape[2], axial_dim[2];
    int ff_chunk; /* positions per chunk of the feed-forward block; 0: all */
    float eps, std, axial_std, drop, lsh_drop, local_drop, label_drop; /* label_drop negative: as drop */
    by_act act;
    arch_head head;
} arch_reformer_config;

/* One layer of a graph, in its memory. */
typedef struct arch_reformer_layer {
    const arch_reformer_config *config;
    int index;
    by_dtype type;        /* type of the branches; the two streams have the accumulation type */
    int64_t length;       /* length including the padding of the last chunk */
    by_tensor *mask;      /* (B, T), NULL: nothing is masked */
    by_tensor *rotations; /* (H, D, R, S), NULL: drawn here */
    by_tensor **weights;  /* destination of attention weights, or NULL */
    by_tensor *order;     /* (B, H, R, T): the order of the forward pass, for the backward pass */
    bool kept;            /* for tests: keep everything and differentiate by the rules of the ops */
} arch_reformer_layer;

/* The length rounded up to whole chunks of every kind of layer. */
int64_t arch_reformer_length(const arch_reformer_config *c, int64_t tokens);
/* Both streams (B, T, C) go through a layer. */
void arch_reformer_step(by_graph *g, arch_reformer_layer *layer, by_tensor **streams);

#endif
