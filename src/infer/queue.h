/* queue.h - prompts, and tokens queued for a generator, shared by sampling and beam search. */
#ifndef BY_INFER_QUEUE_H
#define BY_INFER_QUEUE_H

#include "banyan/generate.h"
#include "base/base.h"

/* What to feed to every row of a generator. */
typedef struct gen_queue {
    by_generator *generator;
    int rows;
    const int32_t **next; /* (rows) first queued token of its text */
    int *left;            /* (rows) number of queued tokens */
    int *counts;          /* (rows) number of them in the current slice */
} gen_queue;
by_status gen_queue_open(gen_queue *q, by_generator *g);
void gen_queue_close(gen_queue *q);
/* Feeds the queued tokens in slices; spec->cancelled() is called before each. */
by_status gen_queue_feed(gen_queue *q, const by_generate_spec *spec);

/* Returns BY_ERR_ARGUMENT for an invalid prompt. An empty prompt becomes the model's end-of-text token,
 * stored in *start. */
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
