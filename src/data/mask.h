/* mask.h - hiding tokens of rows, which a model is to guess. */
#ifndef BY_DATA_MASK_H
#define BY_DATA_MASK_H

#include "base/base.h"
#include "text/tokenizer.h"

/* Which tokens are hidden, and how. */
typedef struct data_masking {
    double share; /* of the tokens that are no special ones; of DATA_OBJECTIVE_FIM, of the documents */
    double span;  /* mean length of what is cut out */
    double masked, random; /* of those: become the mask token, become any token; the rest stays as it is */
    bool whole_words;      /* all pieces of a word or none */
    int longest; /* that many words at once at most, n of them as often as 1/n; 0 and 1: one by one */
    int copies; /* of the text, each with pairs and masks of its own, taken in turn by the epochs (1: static);
                   0: every epoch has its own (dynamic) */
} data_masking;

/* The same with what it has to know of the vocabulary. */
typedef struct data_masker {
    data_masking how;
    int masked;        /* the mask token, -1: there is none */
    bool marked;       /* tokens say where words begin */
    uint8_t *parts;    /* by id: BY_ID_... */
    int32_t *ordinary; /* ids that are no special ones */
    int64_t n_ordinary;
} data_masker;

by_status data_masker_open(data_masker *m, const data_masking *how, const by_tokenizer *t);
void data_masker_close(data_masker *m); /* also after a failure; zero state is legal */

/* Hide some of a row's tokens, `most` at most. was[k] is what stood at place pick[k], ascending; returns how
 * many there are. scratch: 3 * used. */
int data_mask_row(const data_masker *m, base_rng *random, int32_t *tokens, int used, int most, int32_t *pick,
                  int32_t *was, int32_t *scratch);
int data_mask_picks(const data_masking *m, int seq); /* as many as rows of this length can have */

#endif
