/* objective.h - training objectives on text: functions from (seed, step, row) to a row of a batch. No state
 * is kept between rows, so resuming is seeking, and the split of a step into micro-batches does not matter.
 * Each way to make rows has its own file: pack.c, pairs.c, translations.c, corrupt.c, fim.c; mask.c masks
 * tokens. DATA_OBJECTIVE_TRANSLATE (length_buckets.c) makes whole micro-batches, each with its own shape. */
#ifndef BY_DATA_OBJECTIVE_H
#define BY_DATA_OBJECTIVE_H

#include "banyan/pass.h"
#include "data/docs.h"
#include "data/mask.h"

typedef enum data_objective_kind {
    DATA_OBJECTIVE_LM,        /* next token, ignoring document boundaries */
    DATA_OBJECTIVE_MLM,       /* masked tokens of full sentences */
    DATA_OBJECTIVE_NSP,       /* masked tokens of two texts, and whether the second follows the first */
    DATA_OBJECTIVE_SOP,       /* masked tokens of two consecutive texts, and their order */
    DATA_OBJECTIVE_CLM,       /* next token of full sentences with known language */
    DATA_OBJECTIVE_TLM,       /* masked tokens of a sentence and its translation */
    DATA_OBJECTIVE_TRANSLATE, /* encoder-decoder: a target text from a source text */
    DATA_OBJECTIVE_SPANS,     /* encoder-decoder: the removed spans, between sentinels */
    DATA_OBJECTIVE_INFILL,    /* encoder-decoder: the original text from a corrupted one */
    DATA_OBJECTIVE_FIM,       /* next token of documents whose middle is moved to the end */
    DATA_OBJECTIVE_PLM,       /* some tokens of a text in a random order */
    DATA_OBJECTIVE_PIXELS,    /* next pixel of pictures, each a row */
    DATA_OBJECTIVE_COUNT
} data_objective_kind;

const char *data_objective_name(data_objective_kind k); /* "lm", ... */
bool data_objective_find(const char *name, data_objective_kind *out);
by_task data_objective_task(data_objective_kind k);
bool data_objective_masks(data_objective_kind k); /* masks tokens in place */
/* Removes spans: DATA_OBJECTIVE_SPANS, DATA_OBJECTIVE_INFILL. */
bool data_objective_denoises(data_objective_kind k);
/* Returns the meaning of a label of the second task ("next", "random"; "in order", "swapped"), or NULL if
 * there is no second task. */
const char *data_objective_label(data_objective_kind k, int label);

data_masking data_masking_usual(data_objective_kind k); /* defaults: 15 %, 80 %, 10 %; spans of 3 */

typedef struct data_objective_spec {
    data_objective_kind kind;
    int seq;       /* tokens per row */
    int step_rows; /* rows per step */
    uint64_t seed;
    data_masking masking;
    int languages;      /* number of languages in the text */
    bool language_ids;  /* write language ids into the segments */
    int first_position; /* first position of a text; only rows with two texts set positions */
    bool suffix_first;  /* DATA_OBJECTIVE_FIM: the prefix directly precedes the middle */
    int start; /* encoder-decoders: token that starts the target; DATA_OBJECTIVE_PIXELS: token before the first,
                           -1: the model shifts its tokens itself */
    int batch;    /* DATA_OBJECTIVE_PLM: rows of a micro-batch; 0: step_rows */
    int block;    /* DATA_OBJECTIVE_PLM: tokens whose order is random among themselves; 0: a whole part */
    int reuse;    /* DATA_OBJECTIVE_PLM: tokens of the first part of a row; 0: half a row */
    bool one_way; /* DATA_OBJECTIVE_PLM: no row reads the text from its end */
    bool follows; /* DATA_OBJECTIVE_PLM: the model has a memory */
    int budget;   /* DATA_OBJECTIVE_TRANSLATE: tokens of a micro-batch per side, including padding */
} data_objective_spec;

typedef struct data_objective data_objective;
/* Text and tokenizer are borrowed. Returns NULL on failure. */
data_objective *data_objective_new(const data_docs_part *text, const by_tokenizer *t,
                                   const data_objective_spec *spec);
/* Creates DATA_OBJECTIVE_LM over a stream; steps have d->batch rows. */
data_objective *data_objective_new_lm(const data_lm_batches *d);
/* Creates DATA_OBJECTIVE_PIXELS: the stream has d->seq tokens for each picture. start: see
 * data_objective_spec. */
data_objective *data_objective_new_pixels(const data_lm_batches *d, int start);
void data_objective_free(data_objective *o);

const data_objective_spec *data_objective_settings(const data_objective *o);
/* Rows of an epoch; for evaluation see data_objective_held. */
int64_t data_objective_rows(const data_objective *o);
/* Returns the number of micro-batches of an epoch, not rounded, with `rows` rows each unless the objective
 * decides. */
double data_objective_batches(const data_objective *o, int rows);
/* Counts the pairs that DATA_OBJECTIVE_TRANSLATE dropped: with an empty side, and longer than the
 * sequence. */
void data_objective_dropped(const data_objective *o, int64_t *empty, int64_t *longer);

/* Memory for the rows of a step or an evaluation. */
typedef struct data_samples {
    int count, batch, seq; /* total rows; rows of a micro-batch; tokens of a row */
    int picks;             /* predicted positions per row; 0: all */
    int32_t *tokens, *targets;
    /* NULL if the objective does not have them. */
    int32_t *segments, *positions, *mask, *pick, *second, *scratch;
    int32_t *order, *reversed; /* DATA_OBJECTIVE_PLM: of prediction, by token; by row */
    int source_seq;            /* length of the source */
    int32_t *source, *source_mask;
    struct data_shape {
        int rows, seq, source_seq;
    } * shapes;  /* shape of each micro-batch; NULL: all are the same */
    size_t room; /* elements per side in the largest micro-batch */
} data_samples;
by_status data_samples_make(data_samples *r, const data_objective *o, int count, int batch);
void data_samples_free(data_samples *r);                        /* the zero state is a no-op */
by_batch data_samples_batch(const data_samples *r, int number); /* one micro-batch, pointing into r */
/* Sets the shapes to those of the largest micro-batch, without contents. */
void data_samples_largest(data_samples *r, const data_objective *o);

/* Makes all rows of a step. Safe to call from several threads, each with its own rows. */
by_status data_objective_get(const data_objective *o, int64_t step, data_samples *rows);
void data_objective_prefetch(const data_objective *o, int64_t step);

/* Whether every row continues the same row of the previous step, and whether the rows of this step start new
 * texts. Held batches are then consecutive too. */
bool data_objective_follows(const data_objective *o);
bool data_objective_restarts(const data_objective *o, int64_t step);

/* Makes rows first, first + 1, ... in order, always the same, for evaluation. Rows past the last one have no
 * targets. */
int64_t data_objective_held_rows(const data_objective *o);
by_status data_objective_held(const data_objective *o, int64_t first, data_samples *rows);
/* The same for all objectives, batch by batch. */
int64_t data_objective_held_batches(const data_objective *o, const data_samples *rows);
by_status data_objective_held_batch(const data_objective *o, int64_t number, data_samples *rows);

#endif
