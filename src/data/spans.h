/* spans.h - where in a text the answer to a question is: the best span over the windows of the text. */
#ifndef BY_DATA_SPANS_H
#define BY_DATA_SPANS_H

#include "data/rows.h"

/* The best so far over the windows of one example. Begin with data_best_none. */
typedef struct data_best {
    uint32_t start, end; /* bytes of the text */
    double score;        /* sum of the two logits; -INFINITY: nothing was found */
    double none;         /* the lowest score of "no answer" of all windows; INFINITY before the first */
} data_best;
data_best data_best_none(void);

/* Look at one more window: start and end are the logits of its tokens. Answers lie in the pair and are
 * `longest` tokens at most; the first position stands for none. */
void data_best_look(data_best *b, const data_rows *rows, int row, const float *start, const float *end,
                    int longest);

#endif
