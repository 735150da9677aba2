/* translations.c - a sentence and its translation side by side (Lample and Conneau 2019): masked tokens of
 * one can be inferred from the other. Positions restart with the second; language ids distinguish them. */
#include "data/objective_row.h"

/* The part's list has the same number of documents of each language, in the same order. */
static data_document document(const data_objective *o, int64_t i, int language)
{
    return o->text->list[language * (o->text->count / o->spec.languages) + i];
}

static int64_t size_of(const data_objective *o, data_document d)
{
    return o->text->all->starts[d.end] - o->text->all->starts[d.first];
}

by_status data_translations_plan(data_objective *o)
{
    if (o->spec.languages < 2)
        return base_fail(BY_ERR_ARGUMENT,
                         "translation requires two or more languages; name them, and give a file for each");
    for (int64_t i = 0; i < o->text->count / o->spec.languages; i++) {
        bool whole = true;
        for (int l = 0; l < o->spec.languages && whole; l++)
            whole = size_of(o, document(o, i, l)) > 0;
        if (whole)
            BY_TRY(data_span_add(o, (data_span){i, i, i}));
    }
    return BY_OK;
}

by_status data_translations_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row)
{
    int a = (int)base_rng_below(random, (uint64_t)o->spec.languages);
    int b = (int)base_rng_below(random, (uint64_t)o->spec.languages - 1);
    const int languages[2] = {a, b + (b >= a)};
    int64_t size[2];
    for (int k = 0; k < 2; k++)
        size[k] = size_of(o, document(o, o->rows[i].doc, languages[k]));
    while (size[0] + size[1] > o->spec.seq - 4)
        --size[size[1] > size[0]];
    for (int k = 0; k < 2; k++) {
        int64_t begin = o->text->all->starts[document(o, o->rows[i].doc, languages[k]).first];
        row->position = o->spec.first_position;
        data_sample_put(row, o->first, languages[k]);
        BY_TRY(data_sample_copy(row, o, begin, begin + size[k], languages[k]));
        data_sample_put(row, o->sep, languages[k]);
    }
    return BY_OK;
}
