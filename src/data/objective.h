/* objective.h - what a model is trained to do with text: a function from (seed, step, row) to a row of a
 * batch. Nothing is remembered between rows, so resuming is seeking, and how a step is cut into micro-batches
 * does not matter. One file for each way to make rows: pack.c, pairs.c, translations.c; mask.c hides tokens.
 * BY_OBJECTIVE_TRANSLATE (buckets.c) makes whole micro-batches, each of a shape of its own. */
#ifndef BY_DATA_OBJECTIVE_H
#define BY_DATA_OBJECTIVE_H

#include "banyan/pass.h"
#include "data/docs.h"
#include "data/mask.h"

typedef enum by_objective_kind {
    BY_OBJECTIVE_LM,        /* the next token; documents do not matter */
    BY_OBJECTIVE_MLM,       /* hidden tokens of full sentences */
    BY_OBJECTIVE_NSP,       /* hidden tokens of two texts, and whether the second follows the first */
    BY_OBJECTIVE_SOP,       /* hidden tokens of two texts that follow each other, and their order */
    BY_OBJECTIVE_CLM,       /* the next token of full sentences, their language known */
    BY_OBJECTIVE_TLM,       /* hidden tokens of a sentence and its translation */
    BY_OBJECTIVE_TRANSLATE, /* of encoder-decoders: a text from another */
    BY_OBJECTIVE_SPANS,     /* the same: what was cut out, between sentinels */
    BY_OBJECTIVE_INFILL,    /* the same: a text from its ruins */
    BY_OBJECTIVE_FIM,       /* the next token of documents whose middle is written last */
    BY_OBJECTIVE_COUNT
} by_objective_kind;

const char *by_objective_name(by_objective_kind k); /* "lm", ... */
bool by_objective_find(const char *name, by_objective_kind *out);
by_task by_objective_task(by_objective_kind k);
bool by_objective_hides(by_objective_kind k); /* tokens, where they stand */
bool by_objective_mends(by_objective_kind k); /* text with parts cut out: BY_OBJECTIVE_SPANS, INFILL */
/* What a label of the second task says ("next", "random"; "in order", "swapped"), NULL where there is none.
 */
const char *by_objective_label(by_objective_kind k, int label);

by_masking by_masking_usual(by_objective_kind k); /* 15 %, 80 %, 10 %; spans of 3 */

typedef struct by_objective_spec {
    by_objective_kind kind;
    int seq;       /* tokens of a row */
    int step_rows; /* rows of a step */
    uint64_t seed;
    by_masking masking;
    int languages;      /* of the text */
    bool language_ids;  /* as segments */
    int first_position; /* of a text, as the model counts; only rows with two count their positions */
    bool suffix_first;  /* of BY_OBJECTIVE_FIM: the prefix stands right before the middle */
    int start;          /* what the second text of an encoder-decoder begins with */
    int budget;         /* of BY_OBJECTIVE_TRANSLATE: tokens of a micro-batch, of either text, padding too */
} by_objective_spec;

typedef struct by_objective by_objective;
/* Text and tokenizer are borrowed. NULL on failure. */
by_objective *by_objective_new(const by_docs_part *text, const by_tokenizer *t,
                               const by_objective_spec *spec);
/* BY_OBJECTIVE_LM over a stream; steps have d->batch rows. */
by_objective *by_objective_new_lm(const by_lm_batches *d);
void by_objective_free(by_objective *o);

const by_objective_spec *by_objective_settings(const by_objective *o);
int64_t by_objective_rows(const by_objective *o); /* of an epoch; in order: by_objective_held */
/* Micro-batches of an epoch, not rounded, when each has that many rows, where the objective does not decide.
 */
double by_objective_batches(const by_objective *o, int rows);
/* Pairs that BY_OBJECTIVE_TRANSLATE left out: with an empty side, and longer than the sequence. */
void by_objective_dropped(const by_objective *o, int64_t *empty, int64_t *longer);

/* Memory for the rows of a step, or of an evaluation. */
typedef struct by_samples {
    int count, batch, seq; /* rows; rows of a micro-batch; tokens of a row */
    int picks;             /* places of a row where something is to be predicted; 0: everywhere */
    int32_t *tokens, *targets;
    int32_t *segments, *positions, *mask, *pick, *second, *scratch; /* NULL where the objective has none */
    int source_seq;                                                 /* of the first texts */
    int32_t *source, *source_mask;
    struct by_shape {
        int rows, seq, source_seq;
    } * shapes;  /* of each micro-batch; NULL: all are alike */
    size_t room; /* cells of either text in the largest such one */
} by_samples;
by_status by_samples_make(by_samples *r, const by_objective *o, int count, int batch);
void by_samples_free(by_samples *r);                        /* zero state is legal */
by_batch by_samples_batch(const by_samples *r, int number); /* one micro-batch, pointing into r */
/* Set the shapes to those of the largest micro-batch there is, with nothing in it. */
void by_samples_largest(by_samples *r, const by_objective *o);

/* All rows of a step. Safe from several threads, each with rows of its own. */
by_status by_objective_get(const by_objective *o, int64_t step, by_samples *rows);
void by_objective_prefetch(const by_objective *o, int64_t step);

/* Rows first, first + 1, ... in order, always the same, for evaluation; behind the last one rows without
 * targets. */
int64_t by_objective_held_rows(const by_objective *o);
by_status by_objective_held(const by_objective *o, int64_t first, by_samples *rows);
/* The same for all objectives: batch after batch. */
int64_t by_objective_held_batches(const by_objective *o, const by_samples *rows);
by_status by_objective_held_batch(const by_objective *o, int64_t number, by_samples *rows);

#endif
