/* tuning_batch.c - batches of examples with the arrays that the losses read (tuning.h). */
#include <math.h>

#include "align/tuning.h"
#include "base/base.h"

enum { IGNORED = -100 };

void align_part_close(align_part *p)
{
    data_instructions_close(&p->list);
    data_instructions_close(&p->mismatched);
    data_instruction_batch_free(&p->batch);
    data_instruction_batch_free(&p->other);
    base_free(p->ref_logps);
    base_free(p->ref_mismatched);
    base_free(p->rows);
    base_free(p->all_targets);
    base_free(p->ref);
    base_free(p->other_ref);
    base_free(p->label);
    base_free(p->margin);
    *p = (align_part){0};
}

int align_rows_each(const align_part *p)
{
    return p->list.rows.spec.together;
}

double align_part_weight(const align_part *p, by_align_method method, const int *rows, int count)
{
    double learned = 0;
    if (method != BY_ALIGN_SFT)
        return count;
    for (int i = 0; i < count; i++) {
        const data_row *r = &p->list.rows.list[rows[i]];
        for (int t = 0; t < r->count; t++)
            learned += p->list.row_learned[r->first + (size_t)t];
    }
    return learned;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static by_status grow(float **a, size_t n)
{
    float *grown = base_resize(*a, n, sizeof **a);
    *a = grown ? grown : *a;
    return grown ? BY_OK : BY_ERR_MEMORY;
}

static by_status reserve_rows(align_part *p, size_t n)
{
    if (n <= p->room)
        return BY_OK;
    int *rows = base_resize(p->rows, n, sizeof *rows);
    p->rows = rows ? rows : p->rows;
    BY_TRY(rows ? BY_OK : BY_ERR_MEMORY);
    BY_TRY(grow(&p->ref, n));
    BY_TRY(grow(&p->other_ref, n));
    BY_TRY(grow(&p->label, n));
    BY_TRY(grow(&p->margin, n));
    p->room = n;
    return BY_OK;
}

static by_status reserve_cells(align_part *p, size_t n)
{
    if (n <= p->cells)
        return BY_OK;
    int32_t *cells = base_resize(p->all_targets, n, sizeof *cells);
    if (!cells)
        return BY_ERR_MEMORY;
    p->all_targets = cells;
    p->cells = n;
    return BY_OK;
}

/* ---- arrays ------------------------------------------------------------------------------------ */

/* All tokens of the chosen rows, for the likelihood term of ORPO. */
static by_status fill_all_targets(align_part *p, int count)
{
    const by_batch *b = &p->batch.rows.batch;
    const size_t seq = (size_t)b->seq;
    BY_TRY(reserve_cells(p, (size_t)count * seq));
    for (int i = 0; i < count; i++) {
        const data_row *r = &p->list.rows.list[p->rows[i]];
        for (int t = 0; t < b->seq; t++)
            p->all_targets[(size_t)i * seq + (size_t)t] =
                i < count / 2 && t + 1 < r->count ? p->list.rows.tokens.data[r->first + (size_t)t + 1]
                                                  : IGNORED;
    }
    return BY_OK;
}

static void put_numbers(by_batch *b, const char *name, int64_t count, const float *values)
{
    by_batch_put(b, name, BY_F32, 1, &count, values);
}

/* Sequences and rows have the same numbers, because examples do not share rows here. */
static void fill_rows(align_part *p, int count)
{
    for (int i = 0; i < count; i++) {
        const data_instruction *one = &p->list.list[p->rows[i]];
        p->label[i] = one->good;
        p->margin[i] = isnan(one->margin) ? 0 : one->margin;
        if (p->ref_logps)
            p->ref[i] = p->ref_logps[p->rows[i]];
        if (p->ref_mismatched)
            p->other_ref[i] = p->ref_mismatched[p->rows[i]];
    }
}

by_status align_part_batch(align_part *p, const by_align_spec *s, const int *rows, int count)
{
    const bool pairs = align_rows_each(p) == 2;
    BY_TRY(reserve_rows(p, (size_t)count));
    for (int i = 0; i < count; i++)
        p->rows[pairs ? i / 2 + (i % 2) * (count / 2) : i] = rows[i];
    BY_TRY(data_instructions_batch(&p->list, p->rows, count, count, &p->batch));
    if (align_needs_mismatched(s))
        BY_TRY(data_instructions_batch(&p->mismatched, p->rows, count, count, &p->other));
    if (s->method != BY_ALIGN_SFT)
        fill_rows(p, count);
    return s->method == BY_ALIGN_ORPO ? fill_all_targets(p, count) : BY_OK;
}

void align_part_put(align_part *p, const by_align_spec *s)
{
    by_batch *b = &p->batch.rows.batch;
    if (align_needs_reference(s))
        put_numbers(b, "ref_logps", b->batch, p->ref);
    if (s->method == BY_ALIGN_KTO)
        put_numbers(b, "label", b->batch, p->label);
    if (align_needs_mismatched(s))
        put_numbers(b, "kl", 1, &p->kl);
    if (s->method == BY_ALIGN_ORPO)
        by_batch_put_tokens(b, "all_targets", p->all_targets);
    if (s->method == BY_ALIGN_REWARD && p->list.margins)
        put_numbers(b, "margin", b->batch / 2, p->margin);
}

by_status align_part_largest(align_part *p, const by_align_spec *s, int examples)
{
    data_row_groups groups;
    by_status status = data_rows_by_length(&p->list.rows, examples * align_rows_each(p), &groups);
    if (status == BY_OK)
        status = align_part_batch(p, s, groups.rows, groups.first[1]);
    if (status == BY_OK)
        align_part_put(p, s);
    data_row_groups_free(&groups);
    return status;
}
