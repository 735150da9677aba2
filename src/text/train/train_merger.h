/* train_merger.h - merges a pair of symbols in many words, on several threads, and reports which pairs
 * change. Private to train_bpe.c.
 *
 * Merging a and b into c changes only pairs with a neighbour: (left, a) becomes (left, c), and (b, right)
 * becomes (c, right). So the changes are summed by neighbour, in two arrays indexed by token, before any
 * table of pairs is updated. */
#ifndef BY_TEXT_TRAIN_TRAIN_MERGER_H
#define BY_TEXT_TRAIN_TRAIN_MERGER_H

#include "text/train/train.h"

typedef struct tok_merge {
    uint32_t left, right, merged;
    uint32_t longest; /* neighbours with at least this many characters would make too long a token */
} tok_merge;

/* A neighbour is a token; this bit is set if it is on the right. */
#define TOK_RIGHT 0x80000000u

/* The effect of a merge on the pairs of one neighbour. */
typedef struct tok_change {
    int64_t lost, gained; /* count of its old pair, and of its pair with the merged token */
    uint32_t n;           /* number of words that gained */
    uint32_t last;        /* the last of them, plus 1 */
    uint32_t *words;      /* where tok_merger_list puts them, or NULL */
    bool touched;
} tok_change;

typedef struct tok_merger tok_merger;

/* Creates a merger over words spelled with symbols, which it modifies; all are borrowed. lengths: characters
 * by token, for `room` tokens. Returns NULL on failure. */
tok_merger *tok_merger_new(const tok_words *words, tok_spelling *spelling, const uint32_t *lengths,
                           size_t room, int threads);
void tok_merger_free(tok_merger *m);

/* Merges in the given words, each listed once. *touched: the neighbours for which something changed. A pair
 * of the merged token with itself counts as one of its left neighbour. */
by_status tok_merger_run(tok_merger *m, const tok_merge *merge, const uint32_t *words, size_t count,
                         const uint32_t **touched, size_t *touched_count);
tok_change *tok_merger_change(tok_merger *m, uint32_t neighbour);

/* Writes the words that gained into the lists of their changes, which have room for them, and resets. */
void tok_merger_list(tok_merger *m);

#endif
