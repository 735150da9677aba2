/* rewrite.h - inside rewriters (banyan/rewrite.h). */
#ifndef BY_INFER_REWRITE_H
#define BY_INFER_REWRITE_H

#include "banyan/rewrite.h"

struct by_rewriter {
    by_model *model;
    const by_tokenizer *tokenizer;
    by_rewriter_spec spec;
    by_generator *generator;             /* NULL: not made yet */
    int rows, capacity, source_capacity; /* what that one is for */
    int done;                            /* texts of earlier runs: each draws random numbers of its own */
};

/* How long a text may become: not a matter of what else is in its batch. */
int gen_rewriter_tokens(const by_rewriter *r, int source);
/* A generator for `count` sources, with room for one of `source` positions and for `capacity` tokens of output. */
by_status gen_rewriter_room(by_rewriter *r, int count, int source, int capacity);
/* One text of a result. */
by_status gen_rewriter_take(const by_rewriter *r, const by_generation *g, bool cut, by_rewriting *out);

#endif
