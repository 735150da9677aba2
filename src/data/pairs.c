/* pairs.c - two texts in a row, each of one or more sentences: the second follows the first or comes from
 * another document (Devlin et al. 2019), or both are consecutive, in order or swapped (Lan et al. 2020).
 *
 * Each document is split into spans of sentences that fill a row; a span is split again, at random, into the
 * two texts. A second text from elsewhere is the second text of another span, so that where it starts does
 * not reveal whether it is the right one. */
#include "data/objective_row.h"

#define SHORT_SHARE 0.1 /* fraction of spans shorter than a row, as later inputs will be */

static int64_t longest_pair(const data_objective *o)
{
    return o->spec.seq - 3;
}

/* Splits a document of two or more sentences. */
static by_status plan_document(data_objective *o, int64_t doc, base_rng *random)
{
    const data_document d = o->text->list[doc];
    const int64_t *starts = o->text->all->starts;
    const int64_t longest = longest_pair(o);
    for (int64_t s = d.first, end; s < d.end; s = end) {
        int64_t target = longest;
        if (base_rng_uniform(random) < SHORT_SHARE)
            target = 2 + (int64_t)base_rng_below(random, (uint64_t)longest - 1);
        for (end = s + 2; end < d.end && starts[end] - starts[s] < target;)
            end++;
        if (end == d.end - 1) /* a single sentence would remain */
            end = d.end;
        BY_TRY(data_span_add(o, (data_span){s, end, doc}));
    }
    return BY_OK;
}

by_status data_pairs_plan(data_objective *o)
{
    base_rng random = base_rng_make(o->spec.seed, UINT64_C(1) << 60);
    for (int64_t i = 0; i < o->text->count; i++)
        if (o->text->list[i].end - o->text->list[i].first >= 2)
            BY_TRY(plan_document(o, i, &random));
    if (o->count == 0)
        return base_fail(BY_ERR_FORMAT,
                         "sentence pairs require documents of two or more sentences, and none of the %lld "
                         "has that; without blank lines between documents, every line is a document; the "
                         "objective mlm needs no pairs",
                         (long long)o->text->count);
    if (o->spec.kind == DATA_OBJECTIVE_NSP && o->rows[0].doc == o->rows[o->count - 1].doc)
        return base_fail(
            BY_ERR_FORMAT,
            "next-sentence pairs require at least two documents of two or more sentences, and there is only "
            "one; separate documents by blank lines, or use the objective mlm, which needs no pairs");
    return BY_OK;
}

/* Returns the index of the first span whose document is `doc` or a later one. */
static int64_t first_of(const data_objective *o, int64_t doc)
{
    int64_t low = 0, high = o->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (o->rows[middle].doc < doc)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

typedef struct piece {
    int64_t begin, end; /* tokens */
} piece;

/* Returns the second text of a span of another document, about `size` tokens. */
static piece elsewhere(const data_objective *o, int64_t doc, int64_t size, base_rng *random)
{
    const int64_t *starts = o->text->all->starts;
    int64_t low = first_of(o, doc), high = first_of(o, doc + 1);
    int64_t q = (int64_t)base_rng_below(random, (uint64_t)(o->count - (high - low)));
    const data_span s = o->rows[q < low ? q : q + high - low];
    int64_t begin = s.begin + 1 + (int64_t)base_rng_below(random, (uint64_t)(s.end - s.begin - 1));
    int64_t end = begin + 1, last = o->text->list[s.doc].end;
    while (end < last && starts[end] - starts[begin] < size)
        end++;
    return (piece){starts[begin], starts[end]};
}

/* Removes tokens from the longer text, at random from its start or its end. */
static void shorten(piece *a, piece *b, int64_t longest, base_rng *random)
{
    while (a->end - a->begin + b->end - b->begin > longest) {
        piece *p = a->end - a->begin > b->end - b->begin ? a : b;
        if (base_rng_u32(random) & 1)
            p->begin++;
        else
            p->end--;
    }
}

by_status data_pairs_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row)
{
    const data_span s = o->rows[i];
    const int64_t *starts = o->text->all->starts, longest = longest_pair(o);
    int64_t cut = s.begin + 1 + (int64_t)base_rng_below(random, (uint64_t)(s.end - s.begin - 1));
    piece a = {starts[s.begin], starts[cut]}, b = {starts[cut], starts[s.end]};
    row->second = (int)(base_rng_u32(random) & 1);
    if (row->second && o->spec.kind == DATA_OBJECTIVE_NSP)
        b = elsewhere(o, s.doc, longest - (a.end - a.begin), random);
    shorten(&a, &b, longest, random);
    bool swap = row->second && o->spec.kind == DATA_OBJECTIVE_SOP;
    const piece *texts[2] = {swap ? &b : &a, swap ? &a : &b};
    data_sample_put(row, o->first, 0);
    for (int k = 0; k < 2; k++) {
        BY_TRY(data_sample_copy(row, o, texts[k]->begin, texts[k]->end, k));
        data_sample_put(row, o->sep, k);
    }
    return BY_OK;
}
