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
                                 rows->offsets[r->first + (size_t)k].end, score, b->none, false};
        }
    }
}

double data_best_margin(const data_best *b)
{
    return b->beam ? b->none : b->none - b->score;
}

/* ---- with a beam of starts ------------------------------------------------------------------- */

static bool in_pair(const data_rows *rows, const data_row *r, int t)
{
    return t >= 0 && t < r->count && rows->parts[r->first + (size_t)t] == BY_FROM_PAIR;
}

static void look_from(data_best *b, const data_rows *rows, const data_row *r, const float *start, int ends,
                      int first, int longest)
{
    const int from = (int)start[1] - first;
    for (int k = 0; k < ends && in_pair(rows, r, from); k++) {
        const int to = (int)start[3 + ends + k] - first;
        const double score = log((double)start[0]) + log((double)start[3 + k]);
        if (in_pair(rows, r, to) && to >= from && to - from < longest && score > b->score) {
            b->start = rows->offsets[r->first + (size_t)from].start;
            b->end = rows->offsets[r->first + (size_t)to].end;
            b->score = score;
        }
    }
}

void data_best_look_beam(data_best *b, const data_rows *rows, int row, const float *beam, int starts,
                         int width, int first, int longest)
{
    b->beam = true;
    b->none = fmin(b->none, (double)beam[2]);
    for (int i = 0; i < starts; i++)
        look_from(b, rows, &rows->list[row], beam + (size_t)i * (size_t)width, (width - 3) / 2, first,
                  longest);
}

static bool reads(const by_model *m, const char *name)
{
    const by_input_info *in;
    for (int i = 0; (in = by_model_input(m, i)); i++)
        if (strcmp(in->name, name) == 0)
            return true;
    return false;
}

by_status data_answer_inputs_put(data_answer_inputs *a, const data_rows *rows, const int *list, int count,
                                 by_batch *b)
{
    const size_t batch = (size_t)b->batch, need = batch * ((size_t)b->seq + 1);
    if (!reads(rows->model, "p_mask"))
        return BY_OK;
    if (need > a->room) {
        int32_t *more = base_resize(a->cells, need, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        a->cells = more;
        a->room = need;
    }
    memset(a->cells, 0, need * sizeof *a->cells);
    for (int i = 0; i < count; i++) {
        const data_row *r = &rows->list[list[i]];
        const int first = data_rows_start(rows, list[i], b->seq);
        int32_t *mask = a->cells + batch + (size_t)i * (size_t)b->seq;
        a->cells[i] = first + data_none_place(rows, list[i]);
        for (int t = 0; t < b->seq; t++)
            mask[t] = t != a->cells[i] && !in_pair(rows, r, t - first);
    }
    by_batch_put_ids(b, "cls_index", b->batch, a->cells);
    by_batch_put_tokens(b, "p_mask", a->cells + batch);
    return BY_OK;
}
