/* mask.h - masking of tokens, which a model has to predict. */
#ifndef BY_DATA_MASK_H
#define BY_DATA_MASK_H

#include "base/base.h"
#include "text/tokenizer.h"

/* Which tokens are masked, and how. */
typedef struct data_masking {
    /* Fraction of the tokens that are not special; for DATA_OBJECTIVE_FIM, fraction of the documents. */
    double share;
    double span; /* mean length of a removed span */
    /* Fractions of the selected tokens: become the mask token, become a random token; the rest is kept. */
    double masked, random;
    bool whole_words; /* mask all pieces of a word or none */
    int longest; /* maximum words masked at once, n of them with probability ~ 1/n; 0 and 1: one at a time */
    /* Number of differently paired and masked copies of the text, which epochs use in turn (1: static
     * masking). 0: every epoch has its own (dynamic masking). */
    int copies;
} data_masking;

/* Masking settings together with the properties of the vocabulary. */
typedef struct data_masker {
    data_masking how;
    int masked;        /* id of the mask token, or -1 */
    bool marked;       /* tokens mark where words start */
    uint8_t *parts;    /* by id: TOK_ID_... */
    int32_t *ordinary; /* ids that are not special tokens */
    int64_t n_ordinary;
} data_masker;

by_status data_masker_open(data_masker *m, const data_masking *how, const by_tokenizer *t);
void data_masker_close(data_masker *m); /* call also after a failure; the zero state is a no-op */

/* Masks at most `most` tokens of a row. was[k] is the original token at position pick[k], in ascending order.
 * Returns the number of masked tokens. scratch has 3 * used elements. */
int data_mask_row(const data_masker *m, base_rng *random, int32_t *tokens, int used, int most, int32_t *pick,
                  int32_t *was, int32_t *scratch);
/* Draws the number of words to mask at once: n with a probability proportional to 1/n. */
int data_mask_length(int longest, base_rng *random);
/* Maximum number of masked tokens in a row of this length. */
int data_mask_picks(const data_masking *m, int seq);

#endif
