/* xlnet.h - internals of XLNet: the configuration, and which token sees which. See xlnet.c. */
#ifndef BY_MODELS_XLNET_H
#define BY_MODELS_XLNET_H

#include "models/models.h"
#include "nn/nn.h"

typedef struct arch_xlnet_config {
    int vocab, context, width, layers, heads, inner, memory, pad;
    int reuse; /* positions of a segment that enter the memory; 0: all */
    int clamp; /* distances are clamped to this; -1: not clamped */
    float eps, std, drop, last_drop;
    by_act act, summary_act;
    bool causal;   /* attn_type "uni" */
    bool two_ways; /* the second half of a batch is reversed */
    bool same_length, summary_projects;
    bool beam; /* answers by a beam of starts: XLNetForQuestionAnswering */
    int starts, ends;
    arch_summary summary;
    arch_head head;
} arch_xlnet_config;

/* State shared by all layers. Shapes have S = M + T keys, the memory first. */
typedef struct arch_xlnet_sight {
    int64_t memory, length; /* M, 0 without a stream; T */
    int64_t chunk;          /* queries at a time */
    by_tensor *held;        /* (B, S) i32, or NULL: all keys are valid */
    bool padded;            /* of which some are padding */
    /* (B, T), (B, S) i32: prediction order, in which the memory is first. NULL: none */
    by_tensor *order, *ranks;
    by_tensor *hidden;             /* (B, T, T): the reference's perm_mask, or NULL */
    by_tensor *segments, *origins; /* (B, T), (B, S) i32, of queries and keys; NULL: none */
    by_tensor *distances, *turns;  /* (L, C) or (2, L * C) by direction; (B) i32: directions */
    int zero;
    by_mask mask;
    by_pattern pattern;
    /* For all pairs, if attention is not chunked: */
    by_tensor *content, *query; /* (B or 1, 1, T, S) i32: what h and g see; NULL: all valid keys */
    by_tensor *differs;         /* (B, 1, T, S) i32: the segments differ; NULL: no segments */
} arch_xlnet_sight;

void arch_xlnet_look(by_graph *g, const arch_xlnet_config *c, const by_model_io *io, by_dtype type,
                     arch_xlnet_sight *s);
/* Whether h and g have pair masks besides the validity of keys. */
bool arch_xlnet_sees_pairs(const arch_xlnet_sight *s);
/* For a range of queries and keys: what h (content) or g sees, and where the segments differ. (B or 1, 1, n,
 * m) i32. */
by_tensor *arch_xlnet_seen(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at, bool content);
by_tensor *arch_xlnet_differs(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at);

#endif
