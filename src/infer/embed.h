/* embed.h - internals of embedders (banyan/embed.h). */
#ifndef BY_INFER_EMBED_H
#define BY_INFER_EMBED_H

#include "banyan/embed.h"
#include "banyan/pass.h"
#include "data/rows.h"

struct by_embedder {
    by_model *model;
    by_tokenizer *tokenizer; /* NULL: reads only pictures */
    by_processor *processor; /* NULL: reads only texts */
    by_passes *passes;
    data_rows rows;
    by_pooling pooling;
    bool own; /* the model returns the vectors itself */
    bool normalize;
    int limit, batch, width;
    float *weights; /* of a batch */
    size_t room;
};

/* The weight of token t of n in the pooled sum; not for BY_POOLING_MAX. */
float gen_embed_weight(by_pooling pooling, int t, int n);
/* Makes room for n weights. */
by_status gen_embed_room(by_embedder *e, size_t n);
/* Scales a vector of n numbers to length 1; zeros stay. */
void gen_embed_unit(float *v, int n);

#endif
