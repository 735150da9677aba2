/* spans.h - finds the answer to a question: the best span over the windows of a text. */
#ifndef BY_DATA_SPANS_H
#define BY_DATA_SPANS_H

#include "data/rows.h"

/* The best span so far over the windows of one example. Initialise with data_best_none. */
typedef struct data_best {
    uint32_t start, end; /* byte range of the text */
    double score;        /* sum of the two logits; -INFINITY: nothing found */
    double none;         /* lowest score of "no answer" over all windows; INFINITY before the first */
    bool beam;           /* found by a beam of starts: none is a score by itself */
} data_best;
data_best data_best_none(void);

/* Considers one more window; start and end are the logits of its tokens. Answers lie in the pair and have at
 * most `longest` tokens. */
void data_best_look(data_best *b, const data_rows *rows, int row, const float *start, const float *end,
                    int longest);

/* The same for a model with a beam of starts: of each, `width` numbers as models.h (arch_beam_head) describes
 * them. score is the sum of the logarithms of the two probabilities. first: the position of the row's first
 * token. */
void data_best_look_beam(data_best *b, const data_rows *rows, int row, const float *beam, int starts,
                         int width, int first, int longest);
/* How much more likely "no answer" is than the span. */
double data_best_margin(const data_best *b);

/* Memory of the arrays that tell a model with a beam where an answer can be. */
typedef struct data_answer_inputs {
    int32_t *cells;
    size_t room;
} data_answer_inputs;
/* Adds p_mask and cls_index to the batch of these rows if the model reads them. */
by_status data_answer_inputs_put(data_answer_inputs *a, const data_rows *rows, const int *list, int count,
                                 by_batch *b);

/* The position in a row that represents "no answer": that of the classification token. */
int data_none_place(const data_rows *rows, int row);

#endif
