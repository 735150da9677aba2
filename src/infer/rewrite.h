/* rewrite.h - internals of rewriters (banyan/rewrite.h). */
#ifndef BY_INFER_REWRITE_H
#define BY_INFER_REWRITE_H

#include "banyan/rewrite.h"

struct by_rewriter {
    by_model *model;
    const by_tokenizer *tokenizer;
    by_rewriter_spec spec;
    by_generator *generator;             /* NULL: not made yet */
    int rows, capacity, source_capacity; /* what that one is for */
    /* number of earlier texts, so that each has its own random numbers */
    int done;
};

/* Maximum length of a text, independent of the rest of its batch. */
int gen_rewriter_tokens(const by_rewriter *r, int source);
/* A generator for `count` sources of up to `source` positions and `capacity` output tokens. */
by_status gen_rewriter_room(by_rewriter *r, int count, int source, int capacity);
/* One text of a result. */
by_status gen_rewriter_take(const by_rewriter *r, const by_generation *g, bool cut, by_rewriting *out);

#endif
