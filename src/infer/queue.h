/* queue.h - prompts, and tokens on their way into a generator: what all ways of generating text share. */
#ifndef BY_INFER_QUEUE_H
#define BY_INFER_QUEUE_H

#include "banyan/generate.h"
#include "base/base.h"

/* What to feed to every row of a generator. */
typedef struct gen_queue {
    by_generator *generator;
    int rows;
    const int32_t **next; /* (rows) in the tokens of its text */
    int *left;            /* (rows) how many from there on */
    int *counts;          /* (rows) how many of them now */
} gen_queue;
by_status gen_queue_open(gen_queue *q, by_generator *g);
void gen_queue_close(gen_queue *q);
/* Feed what is queued, slice by slice; spec->cancelled() is asked before each. */
by_status gen_queue_feed(gen_queue *q, const by_generate_spec *spec);

/* BY_ERR_ARGUMENT for a prompt that the model cannot read. An empty one becomes the model's end-of-text token,
 * in *start. */
by_status gen_check_prompt(const by_model *m, int row, const int32_t **tokens, int *length, int32_t *start);

by_status gen_push(by_generation *out, int32_t token); /* append a token; the array doubles as it grows */

/* Every stop token, the model's own last. */
typedef struct gen_stops {
    int32_t *tokens;
    int count;
} gen_stops;
by_status gen_stops_open(gen_stops *s, const by_model *m, const int32_t *tokens, int count, bool ignore_eos);
void gen_stops_close(gen_stops *s);
bool gen_is_stop(const gen_stops *s, int32_t token);

#endif
