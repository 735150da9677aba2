/* embed.h - inside embedders (banyan/embed.h). */
#ifndef BY_INFER_EMBED_H
#define BY_INFER_EMBED_H

#include "banyan/embed.h"
#include "banyan/pass.h"
#include "data/rows.h"

struct by_embedder {
    by_model *model;
    by_tokenizer *tokenizer; /* NULL: it reads pictures alone */
    by_processor *processor; /* NULL: it reads texts alone */
    by_passes *passes;
    data_rows rows;
    by_pooling pooling;
    bool shared; /* texts and pictures have vectors in one space, which the model makes itself */
    bool normalize;
    int limit, batch, width;
    float *weights; /* of a batch */
    size_t room;
};

/* The weight of token t of n in the sum that pools them; not for BY_POOLING_MAX. */
float gen_embed_weight(by_pooling pooling, int t, int n);
/* Makes room for n weights. */
by_status gen_embed_room(by_embedder *e, size_t n);
/* Scales a vector of n numbers to length 1; zeros stay. */
void gen_embed_unit(float *v, int n);

#endif
