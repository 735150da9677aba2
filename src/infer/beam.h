/* beam.h - beam search: the likeliest texts, several grown side by side. beam.c has the loop over texts,
 * beam_step.c one step of a group of hypotheses. */
#ifndef BY_INFER_BEAM_H
#define BY_INFER_BEAM_H

#include "infer/queue.h"
#include "infer/rules.h"

/* What to search for. */
typedef struct gen_beam_task {
    by_generator *generator;
    const by_generate_spec *spec;
    const int32_t *const *prompts, *const *sources; /* sources: of an encoder-decoder; NULL: the prompts */
    const int *lengths, *source_lengths;
    const int32_t *stops; /* every stop token */
    int stop_count;
} gen_beam_task;

/* by_generate when spec->beam.width is above 1. */
by_status gen_beam_search(const gen_beam_task *task, by_generate_result *result);

/* ---- inside ---------------------------------------------------------------------------------- */

/* A text so far, with its prompt. */
typedef struct beam_hypothesis {
    int32_t *tokens;
    float score; /* sum of log-probabilities */
    int row;     /* of the generator: where its keys and logits are */
} beam_hypothesis;

typedef struct beam_ended {
    int32_t *tokens; /* with the prompt, and a stop token at the end when one came */
    int count;
    float score;
    by_finish why;
} beam_ended;

/* A group of hypotheses. */
typedef struct beam_group {
    beam_hypothesis *beams, *next; /* (size) */
    int live;                      /* of beams */
    int32_t *chosen;               /* (size) tokens chosen in the present step, for the groups that follow */
    int n_chosen;
    beam_ended *finished; /* (size) best first */
    int n_finished;
    const char *end; /* why it is over, NULL: it is not */
} beam_group;

typedef struct beam_text {
    int prompt, fresh, limit; /* tokens of the prompt, new ones so far, and at most */
    int row;                  /* its first row of the generator */
    const int32_t *source;    /* of an encoder-decoder; else the prompt */
    int source_count;
    beam_group *searches;
    bool over;
} beam_text;

typedef struct beam_option {
    float total, score; /* with the hypothesis, and alone */
    double rank;        /* options are looked at from the highest on: the total, or a draw by it */
    bool taken;         /* it goes on */
    int beam;
    int32_t token;
    by_finish ends; /* with this token; BY_FINISH_NONE: it can go on */
} beam_option;

typedef struct beam_run {
    by_generator *generator;
    const by_generate_spec *spec;
    by_generate_result *result;
    const int32_t *stops;
    int stop_count;
    int width, groups, size; /* beams of a text; their groups, and beams of one */
    int keep;                /* continuations looked at in a step of a group */
    int top;                 /* highest logits of a row that come to the host; 0: all */
    int vocab, capacity;
    gen_sampler sampler;
    beam_text *texts;
    int count;         /* texts */
    beam_option *best; /* (keep) */
    int n_best;
    float *raw;    /* (V) scores before the filters; NULL: nothing is drawn */
    float *fused;  /* (V) for an n-gram model; NULL: there is none */
    bool paired;   /* an encoder-decoder: prompts are no text */
    float *value;  /* (top) scores of a row, */
    int32_t *id;   /* whose they are */
    int32_t *slot; /* (V) and where they are, all 0 between calls */
    int32_t *from; /* (B) */
    gen_queue queue;
    by_hypothesis *shown; /* (3 size) for explanations, as what follows */
    gen_tracking *tracks; /* (size) what became of each hypothesis's likeliest tokens */
    double started;
    bool begun;
    bool late; /* max_seconds are over: every text ends with this step */
} beam_run;

/* One token for every hypothesis of a group: what ends is set aside, the best of the rest are its hypotheses
 * from now on, and r->from says what their rows take over. */
by_status gen_beam_step(beam_run *r, int which, int group);

#endif
