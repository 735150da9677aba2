/* model_io.h - tasks, and the tensors that a model reads and returns when it is built into a graph. */
#ifndef BANYAN_MODEL_IO_H
#define BANYAN_MODEL_IO_H

#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a model's head is for. B rows, T positions, C the width. */
typedef enum by_task {
    BY_TASK_DEFAULT,  /* of a new model: what its family is pretrained with */
    BY_TASK_LM,       /* next token: logits (B, T, V) */
    BY_TASK_MLM,      /* hidden tokens: logits (B, T, V) */
    BY_TASK_PRETRAIN, /* hidden tokens, and of two sentences: second (B, 2) (do they follow, or their order)
                       */
    BY_TASK_NEXT,     /* whether the second sentence follows the first: logits (B, 2) */
    BY_TASK_CLASSIFY, /* labels of a sequence: logits (B, labels) */
    BY_TASK_TAG,      /* a label of every token: logits (B, T, labels) */
    BY_TASK_ANSWER,   /* where an answer begins and ends: logits (B, T) and second (B, T) */
    BY_TASK_CHOICE,   /* one of several continuations: logits (B / choices, choices) */
    BY_TASK_FEATURES, /* no head */
    BY_TASK_SEQ2SEQ,  /* a text from another: next token of the second, logits (B, T, V) */
    BY_TASK_ENCODER,  /* the encoder of an encoder-decoder, no head: its text is in tokens and mask */
    BY_TASK_COUNT
} by_task;
BY_API const char *by_task_name(by_task t); /* "lm", "mlm", ..., for messages and options */
BY_API bool by_task_find(const char *name, by_task *out);

/* What the labels of a sequence are. */
typedef enum by_problem {
    BY_PROBLEM_DEFAULT,     /* one number with one label, else one of them */
    BY_PROBLEM_ONE_LABEL,   /* exactly one holds: softmax and cross-entropy */
    BY_PROBLEM_MANY_LABELS, /* each holds or not: a sigmoid of each */
    BY_PROBLEM_REGRESSION   /* numbers: mean squared error */
} by_problem;

/* How much of an encoder-decoder is built. With a cache, the encoder leaves there what the decoder needs. */
typedef enum by_part { BY_PART_WHOLE, BY_PART_ENCODER, BY_PART_DECODER } by_part;

/* What a model is given and what it hands back when it is built into a graph. */
#define BY_MAX_LAYERS 256
typedef struct by_model_io {
    by_task task;
    int labels; /* number of them, for the tasks that have some */
    by_problem problem;
    int choices; /* of BY_TASK_CHOICE: that many rows belong together; 0: 1 */
    /* in */
    by_tensor *tokens;    /* (B, T) i32 */
    by_tensor *segments;  /* (B, T) i32, which of two texts a token is of, or its language; or NULL */
    by_tensor *positions; /* (B, T) i32, or NULL for the first T */
    by_tensor *mask;      /* (B, T) i32, 0 hides a position from the others; or NULL */
    by_tensor *pick;      /* (N) i32, flat rows b*T + t where token logits are wanted, which are then (N, V);
                           * NULL: everywhere. Decoders that classify need it: the last token of each row */
    by_tensor *class_weights; /* (labels) f32, how much each counts in the loss where one is right; or NULL */
    /* of encoder-decoders, whose tokens are those of the second text, each behind the ones before it */
    by_part part;
    by_tensor *source;      /* (B, S) i32, the first text */
    by_tensor *source_mask; /* (B, S) i32, 0: padding; or NULL */
    float label_smoothing;  /* of the loss of token logits */
    struct nn_cache *cache; /* decoding; NULL otherwise */
    bool want_hidden, want_attention;
    /* out */
    by_tensor *logits, *second;           /* see by_task */
    by_tensor *features;                  /* (B, T, C) */
    by_tensor *pooled;                    /* (B, C), of models that have a pooler; or NULL */
    by_tensor *hidden[BY_MAX_LAYERS + 1]; /* (B, T, C): after the embedding and after each block */
    int n_hidden;
    by_tensor *attention[BY_MAX_LAYERS]; /* (B, H, T, T) */
    int n_attention;
    /* of encoder-decoders: what the encoder makes of the source, on the way and in the end; and how the
     * decoder looks at that */
    by_tensor *memory;                           /* (B, S, C) */
    by_tensor *source_hidden[BY_MAX_LAYERS + 1]; /* (B, S, C) */
    int n_source_hidden;
    by_tensor *source_attention[BY_MAX_LAYERS]; /* (B, H, S, S) */
    int n_source_attention;
    by_tensor *cross_attention[BY_MAX_LAYERS]; /* (B, H, T, S) */
    int n_cross_attention;
} by_model_io;

#ifdef __cplusplus
}
#endif
#endif
