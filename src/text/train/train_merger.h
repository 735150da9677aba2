/* train_merger.h - merge a pair of symbols in many words, on several threads, and tell which pairs that
 * changes. Private to train_bpe.c.
 *
 * A merge of a and b to c changes only pairs with a neighbour: (left, a) becomes (left, c), (b, right)
 * becomes (c, right). So the changes are summed by neighbour, in two arrays over the tokens, before any table
 * of pairs is touched. */
#ifndef BY_TEXT_TRAIN_TRAIN_MERGER_H
#define BY_TEXT_TRAIN_TRAIN_MERGER_H

#include "text/train/train.h"

typedef struct tok_merge {
    uint32_t left, right, merged;
    uint32_t longest; /* neighbours of this many characters or more would make too long a token */
} tok_merge;

/* A neighbour is a token, with this bit when it stands on the right. */
#define TOK_RIGHT 0x80000000u

/* What a merge does to the pairs of one neighbour. */
typedef struct tok_change {
    int64_t lost, gained; /* counts of its pair before, and of the one with the merged token */
    uint32_t n;           /* words that gained */
    uint32_t last;        /* the last of them, plus 1 */
    uint32_t *words;      /* where tok_merger_list puts them, or NULL */
    bool touched;
} tok_change;

typedef struct tok_merger tok_merger;

/* Over words spelled with symbols, which it changes; all are borrowed. lengths: characters by token, for
 * `room` tokens. NULL on failure. */
tok_merger *tok_merger_new(const tok_words *words, tok_spelling *spelling, const uint32_t *lengths,
                           size_t room, int threads);
void tok_merger_free(tok_merger *m);

/* Merge in the given words, each of which is there once. *touched: the neighbours of which something changed.
 * A pair of the merged token with itself is one of its left neighbour. */
by_status tok_merger_run(tok_merger *m, const tok_merge *merge, const uint32_t *words, size_t count,
                         const uint32_t **touched, size_t *touched_count);
tok_change *tok_merger_change(tok_merger *m, uint32_t neighbour);

/* Write the words that gained into the lists of their changes, which have room for them, and forget it all.
 */
void tok_merger_list(tok_merger *m);

#endif
