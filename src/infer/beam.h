/* beam.h - beam search. beam.c has the loop over texts, beam_step.c one step of a group of hypotheses. */
#ifndef BY_INFER_BEAM_H
#define BY_INFER_BEAM_H

#include "infer/queue.h"
#include "infer/rules.h"

/* What to search for. */
typedef struct gen_beam_task {
    by_generator *generator;
    const by_generate_spec *spec;
    const int32_t *const *prompts, *const *sources; /* sources of an encoder-decoder; NULL: the prompts */
    const int *lengths, *source_lengths;
    const int32_t *stops; /* every stop token */
    int stop_count;
} gen_beam_task;

/* by_generate with spec->beam.width above 1. */
by_status gen_beam_search(const gen_beam_task *task, by_generate_result *result);

/* ---- inside ---------------------------------------------------------------------------------- */

/* A text so far, with its prompt. */
typedef struct beam_hypothesis {
    int32_t *tokens;
    float score; /* sum of log-probabilities */
    int row;     /* row of the generator with its keys and logits */
} beam_hypothesis;

typedef struct beam_ended {
    int32_t *tokens; /* including the prompt, and the stop token if any */
    int count;
    float score;
    by_finish why;
} beam_ended;

/* A group of hypotheses. */
typedef struct beam_group {
    beam_hypothesis *beams, *next; /* (size) */
    int live;                      /* of beams */
    int32_t *chosen;               /* (size) tokens chosen in the current step, for later groups */
    int n_chosen;
    beam_ended *finished; /* (size) best first */
    int n_finished;
    const char *end; /* why it ended; NULL: it has not */
} beam_group;

typedef struct beam_text {
    int prompt, fresh, limit; /* tokens of the prompt, new tokens so far, and their maximum */
    int row;                  /* its first row of the generator */
    const int32_t *source;    /* of an encoder-decoder; else the prompt */
    int source_count;
    beam_group *searches;
    bool over;
} beam_text;

typedef struct beam_option {
    float total, score; /* with the hypothesis, and alone */
    double rank;        /* options are considered from the highest on: the total, or a draw from it */
    bool taken;         /* it goes on */
    int beam;
    int32_t token;
    by_finish ends; /* with this token; BY_FINISH_NONE: it can continue */
} beam_option;

typedef struct beam_run {
    by_generator *generator;
    const by_generate_spec *spec;
    by_generate_result *result;
    const int32_t *stops;
    int stop_count;
    int width, groups, size; /* beams of a text; their groups, and beams of one */
    int keep;                /* continuations considered per step of a group */
    int top;                 /* highest logits per row that are copied to the host; 0: all */
    int vocab, capacity;
    gen_sampler sampler;
    beam_text *texts;
    int count;         /* texts */
    beam_option *best; /* (keep) */
    int n_best;
    float *raw;    /* (V) scores before the filters; NULL: no sampling */
    float *fused;  /* (V) for an n-gram model; NULL: none */
    bool paired;   /* an encoder-decoder: prompts are not part of the text */
    float *value;  /* (top) scores of a row, */
    int32_t *id;   /* whose they are */
    int32_t *slot; /* (V) and their indices, all 0 between calls */
    int32_t *from; /* (B) */
    gen_queue queue;
    by_hypothesis *shown; /* (3 size) for explanations, like the following */
    gen_tracking *tracks; /* (size) fates of each hypothesis's most likely tokens */
    double started;
    bool begun;
    bool late; /* max_seconds have passed: every text ends with this step */
} beam_run;

/* Extends every hypothesis of a group by one token: those that end are set aside, the best of the rest become
 * its hypotheses, and r->from gives the rows that theirs copy. */
by_status gen_beam_step(beam_run *r, int which, int group);

#endif
