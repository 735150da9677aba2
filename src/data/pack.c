/* pack.c - rows of consecutive full sentences, across documents, with a separator after each document (Liu et
 * al. 2019). A sentence longer than a row is split. A row has one language. */
#include "data/objective_row.h"

typedef struct packer {
    data_objective *o;
    int around;  /* special tokens in a row with one document */
    int between; /* special tokens that each further document adds */
    data_span row;
    /* Positions used in the current row: first token, sentences, a separator for each document. */
    int64_t used;
    int64_t doc; /* document of the last sentence */
} packer;

static by_status flush(packer *p)
{
    if (p->row.begin == p->row.end)
        return BY_OK;
    BY_TRY(data_span_add(p->o, p->row));
    p->row.begin = p->row.end;
    return BY_OK;
}

static void begin(packer *p, int64_t at, int64_t doc)
{
    p->row = (data_span){at, at, doc};
    p->used = p->around;
    p->doc = doc;
}

static by_status add_sentence(packer *p, int64_t at, int64_t end, int64_t doc)
{
    const data_document *list = p->o->text->list;
    const int64_t seq = p->o->spec.seq;
    bool open = p->row.begin < p->row.end && list[doc].language == list[p->row.doc].language &&
                p->used + (doc != p->doc) * p->between + end - at <= seq;
    if (!open) {
        BY_TRY(flush(p));
        begin(p, at, doc);
    }
    const int64_t room = seq - p->around;
    for (; end - at > room; at += room) {
        p->row.end = at + room;
        BY_TRY(flush(p));
        begin(p, at + room, doc);
    }
    p->used += (doc != p->doc) * p->between + end - at;
    p->doc = doc;
    p->row.end = end;
    return BY_OK;
}

by_status data_pack_plan(data_objective *o)
{
    const data_docs *d = o->text->all;
    /* Three parts and the end token, for each document. */
    const bool fim = o->spec.kind == DATA_OBJECTIVE_FIM;
    packer p = {.o = o,
                .around = fim ? 4 : 2,
                .between = fim                                     ? 4
                           : o->spec.kind == DATA_OBJECTIVE_INFILL ? 0
                                                                   : 1};
    for (int64_t i = 0; i < o->text->count; i++)
        for (int64_t s = o->text->list[i].first; s < o->text->list[i].end; s++)
            BY_TRY(add_sentence(&p, d->starts[s], d->starts[s + 1], i));
    return flush(&p);
}

by_status data_pack_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row)
{
    (void)random;
    const data_span s = o->rows[i];
    const data_document *doc = o->text->list + s.doc;
    const int language = doc->language;
    data_sample_put(row, o->first, language);
    for (int64_t at = s.begin; at < s.end; doc++) {
        int64_t end = BY_MIN(o->text->all->starts[doc->end], s.end);
        BY_TRY(data_sample_copy(row, o, at, end, language));
        data_sample_put(row, o->sep, language);
        at = end;
    }
    return BY_OK;
}
