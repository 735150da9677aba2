/* attention_maps.h - a text as the rows or columns of an attention map. */
#ifndef BY_INFER_ATTENTION_MAPS_H
#define BY_INFER_ATTENTION_MAPS_H

#include "banyan/inspect.h"

typedef struct gen_side_spec {
    const by_tokenizer *tokenizer;
    const char *text, *pair; /* pair: a second text, or NULL */
    bool target;             /* the text is the target of an encoder-decoder */
} gen_side_spec;

/* Encodes a text and names its tokens. Call gen_side_free also after a failure. */
by_status gen_side_read(const by_model *m, const gen_side_spec *spec, by_attention_side *s);
void gen_side_free(by_attention_side *s); /* resets to the zero state */

#endif
