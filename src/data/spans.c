/* spans.c - see spans.h. */
#include "data/spans.h"

#include <math.h>

data_best data_best_none(void)
{
    return (data_best){.score = -INFINITY, .none = INFINITY};
}

int data_none_place(const data_rows *rows, int row)
{
    return by_model_pads_left(rows->model) ? rows->list[row].count - 1 : 0;
}

void data_best_look(data_best *b, const data_rows *rows, int row, const float *start, const float *end,
                    int longest)
{
    const data_row *r = &rows->list[row];
    const uint8_t *part = rows->parts + r->first;
    const int none = data_none_place(rows, row);
    b->none = fmin(b->none, (double)start[none] + end[none]);
    for (int i = 0; i < r->count; i++) {
        if (part[i] != BY_FROM_PAIR)
            continue;
        for (int k = i; k < BY_MIN(r->count, i + longest) && part[k] == BY_FROM_PAIR; k++) {
            double score = (double)start[i] + end[k];
            if (score > b->score)
                *b = (data_best){rows->offsets[r->first + (size_t)i].start,
                                 rows->offsets[r->first + (size_t)k].end, score, b->none};
        }
    }
}
