/* spans.h - finds the answer to a question: the best span over the windows of a text. */
#ifndef BY_DATA_SPANS_H
#define BY_DATA_SPANS_H

#include "data/rows.h"

/* The best span so far over the windows of one example. Initialise with data_best_none. */
typedef struct data_best {
    uint32_t start, end; /* byte range of the text */
    double score;        /* sum of the two logits; -INFINITY: nothing found */
    double none;         /* lowest score of "no answer" over all windows; INFINITY before the first */
} data_best;
data_best data_best_none(void);

/* Considers one more window; start and end are the logits of its tokens. Answers lie in the pair and have at
 * most `longest` tokens. */
void data_best_look(data_best *b, const data_rows *rows, int row, const float *start, const float *end,
                    int longest);

/* The position in a row that stands for no answer: that of the token of the whole text. */
int data_none_place(const data_rows *rows, int row);

#endif
