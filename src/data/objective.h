/* objective.h - what a model is trained to do with text: a function from (seed, step, row) to a row of a
 * batch. Nothing is remembered between rows, so resuming is seeking, and how a step is cut into micro-batches
 * does not matter. One file for each way to make rows: pack.c, pairs.c, translations.c; mask.c hides tokens.
 * DATA_OBJECTIVE_TRANSLATE (buckets.c) makes whole micro-batches, each of a shape of its own. */
#ifndef BY_DATA_OBJECTIVE_H
#define BY_DATA_OBJECTIVE_H

#include "banyan/pass.h"
#include "data/docs.h"
#include "data/mask.h"

typedef enum data_objective_kind {
    DATA_OBJECTIVE_LM,        /* the next token; documents do not matter */
    DATA_OBJECTIVE_MLM,       /* hidden tokens of full sentences */
    DATA_OBJECTIVE_NSP,       /* hidden tokens of two texts, and whether the second follows the first */
    DATA_OBJECTIVE_SOP,       /* hidden tokens of two texts that follow each other, and their order */
    DATA_OBJECTIVE_CLM,       /* the next token of full sentences, their language known */
    DATA_OBJECTIVE_TLM,       /* hidden tokens of a sentence and its translation */
    DATA_OBJECTIVE_TRANSLATE, /* of encoder-decoders: a text from another */
    DATA_OBJECTIVE_SPANS,     /* the same: what was cut out, between sentinels */
    DATA_OBJECTIVE_INFILL,    /* the same: a text from its ruins */
    DATA_OBJECTIVE_FIM,       /* the next token of documents whose middle is written last */
    DATA_OBJECTIVE_COUNT
} data_objective_kind;

const char *data_objective_name(data_objective_kind k); /* "lm", ... */
bool data_objective_find(const char *name, data_objective_kind *out);
by_task data_objective_task(data_objective_kind k);
bool data_objective_masks(data_objective_kind k); /* tokens, where they stand */
bool data_objective_denoises(
    data_objective_kind k); /* text with parts cut out: DATA_OBJECTIVE_SPANS, INFILL */
/* What a label of the second task says ("next", "random"; "in order", "swapped"), NULL where there is none.
 */
const char *data_objective_label(data_objective_kind k, int label);

data_masking data_masking_usual(data_objective_kind k); /* 15 %, 80 %, 10 %; spans of 3 */

typedef struct data_objective_spec {
    data_objective_kind kind;
    int seq;       /* tokens of a row */
    int step_rows; /* rows of a step */
    uint64_t seed;
    data_masking masking;
    int languages;      /* of the text */
    bool language_ids;  /* as segments */
    int first_position; /* of a text, as the model counts; only rows with two count their positions */
    bool suffix_first;  /* of DATA_OBJECTIVE_FIM: the prefix stands right before the middle */
    int start;          /* what the second text of an encoder-decoder begins with */
    int budget; /* of DATA_OBJECTIVE_TRANSLATE: tokens of a micro-batch, of either text, padding too */
} data_objective_spec;

typedef struct data_objective data_objective;
/* Text and tokenizer are borrowed. NULL on failure. */
data_objective *data_objective_new(const data_docs_part *text, const by_tokenizer *t,
                                   const data_objective_spec *spec);
/* DATA_OBJECTIVE_LM over a stream; steps have d->batch rows. */
data_objective *data_objective_new_lm(const data_lm_batches *d);
void data_objective_free(data_objective *o);

const data_objective_spec *data_objective_settings(const data_objective *o);
int64_t data_objective_rows(const data_objective *o); /* of an epoch; in order: data_objective_held */
/* Micro-batches of an epoch, not rounded, when each has that many rows, where the objective does not decide.
 */
double data_objective_batches(const data_objective *o, int rows);
/* Pairs that DATA_OBJECTIVE_TRANSLATE left out: with an empty side, and longer than the sequence. */
void data_objective_dropped(const data_objective *o, int64_t *empty, int64_t *longer);

/* Memory for the rows of a step, or of an evaluation. */
typedef struct data_samples {
    int count, batch, seq; /* rows; rows of a micro-batch; tokens of a row */
    int picks;             /* places of a row where something is to be predicted; 0: everywhere */
    int32_t *tokens, *targets;
    int32_t *segments, *positions, *mask, *pick, *second, *scratch; /* NULL where the objective has none */
    int source_seq;                                                 /* of the first texts */
    int32_t *source, *source_mask;
    struct data_shape {
        int rows, seq, source_seq;
    } * shapes;  /* of each micro-batch; NULL: all are alike */
    size_t room; /* cells of either text in the largest such one */
} data_samples;
by_status data_samples_make(data_samples *r, const data_objective *o, int count, int batch);
void data_samples_free(data_samples *r);                        /* zero state is legal */
by_batch data_samples_batch(const data_samples *r, int number); /* one micro-batch, pointing into r */
/* Set the shapes to those of the largest micro-batch there is, with nothing in it. */
void data_samples_largest(data_samples *r, const data_objective *o);

/* All rows of a step. Safe from several threads, each with rows of its own. */
by_status data_objective_get(const data_objective *o, int64_t step, data_samples *rows);
void data_objective_prefetch(const data_objective *o, int64_t step);

/* Rows first, first + 1, ... in order, always the same, for evaluation; behind the last one rows without
 * targets. */
int64_t data_objective_held_rows(const data_objective *o);
by_status data_objective_held(const data_objective *o, int64_t first, data_samples *rows);
/* The same for all objectives: batch after batch. */
int64_t data_objective_held_batches(const data_objective *o, const data_samples *rows);
by_status data_objective_held_batch(const data_objective *o, int64_t number, data_samples *rows);

#endif
