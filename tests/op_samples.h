/* op_samples.h - for every op of ops.def a generator of samples: small computations that together take every
 * way through its kernels. The test of the op table runs each of them in every element type, on every
 * instruction set. */
#ifndef BY_TESTS_OP_SAMPLES_H
#define BY_TESTS_OP_SAMPLES_H

#include "graph/graph.h"

/* clang-format off */
#define SHAPE(...) BY_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}
/* clang-format on */

enum { BY_SAMPLE_LEAVES = 12, BY_SAMPLE_OUTPUTS = 6, BY_SAMPLE_NAME = 256 };

/* A leaf and what goes into it. Values depend on the op and the number of the sample alone, not on the
 * element type. */
typedef struct op_sample_leaf {
    by_tensor *tensor;
    by_tensor *seen; /* what the op reads: the tensor, or a copy of it */
    double *values;  /* heap, by_elements(tensor) */
    bool changes;    /* the op writes to it */
} op_sample_leaf;

typedef struct by_op_sample {
    char name[BY_SAMPLE_NAME]; /* what distinguishes it, and the shapes of its leaves, for messages */
    by_graph *graph;           /* borrowed; its parameters are the operands that get gradients */
    by_dtype type;             /* of the floating-point operands */
    bool copied; /* operands are copies of the parameters, in memory that the op may take over */
    uint64_t seed;
    op_sample_leaf leaf[BY_SAMPLE_LEAVES];
    int n_leaves;
    struct {
        by_tensor *tensor;
        bool in_loss; /* the loss is the sum of these, each multiplied by a random tensor of its shape */
    } out[BY_SAMPLE_OUTPUTS];
    int n_outs;
    double loss_scale; /* of those random tensors, 1 as a rule */
    bool forward_only; /* its gradient is 0 or does not exist */
} by_op_sample;

/* Sample number `which` of an op, or NULL when there are no more, or when memory is out (base_error_status
 * tells). The graph is the caller's; it must be free of other nodes, and the sample must be released before
 * it. */
by_op_sample *op_sample_new(by_graph *g, gr_op op, int which, bool copied);
void op_sample_free(by_op_sample *s);

/* Rows, depth and columns of products. Samples of linear and its gradients begin with these, in this order. */
enum { OP_SAMPLE_PRODUCTS = 17 };
extern const int64_t op_sample_products[OP_SAMPLE_PRODUCTS][3];

/* Random bits, and numbers of mean 0 and variance 1. */
uint64_t op_sample_next(uint64_t *seed);
double op_sample_noise(uint64_t *seed);

/* The generators, one per row of the table: false when there is no such sample. A row without one does not
 * link. */
typedef bool (*op_sample_fn)(by_op_sample *s, int which);
#define GR_OP(ID, name, in, out, traits, gradient) bool op_sample_##name(by_op_sample *s, int which);
#include "graph/ops.def"
#undef GR_OP

#endif
