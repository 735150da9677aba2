/* fim.c - see fim.h. */
#include "data/fim.h"

#include "data/objective_row.h"

by_status data_fim_find(const by_tokenizer *t, data_fim *out)
{
    static const char *const names[][3] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
                                           {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
                                           {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"}};
    for (int i = 0; i < BY_COUNT(names); i++) {
        *out = (data_fim){by_tokenizer_find(t, names[i][0]), by_tokenizer_find(t, names[i][1]),
                          by_tokenizer_find(t, names[i][2])};
        if (out->prefix >= 0 && out->suffix >= 0 && out->middle >= 0)
            return BY_OK;
    }
    return base_fail(BY_ERR_UNSUPPORTED,
                     "the tokenizer (%s) lacks %s, %s or %s, which fill-in-the-middle requires; train a "
                     "tokenizer for the objective \"fim\"",
                     tok_kind(t), names[0][0], names[0][1], names[0][2]);
}

by_status data_fim_prompt(const by_tokenizer *t, const char *prefix, const char *suffix, by_ids *out)
{
    data_fim f;
    BY_TRY(data_fim_find(t, &f));
    BY_TRY(tok_ids_push(out, f.prefix));
    BY_TRY(tok_encode(t, prefix, strlen(prefix), out));
    BY_TRY(tok_ids_push(out, f.suffix));
    BY_TRY(tok_encode(t, suffix, strlen(suffix), out));
    return tok_ids_push(out, f.middle);
}

/* Writes prefix, suffix, middle; or suffix first, so that the middle directly follows its prefix. */
static by_status put_parts(const data_objective *o, int64_t at, int64_t end, base_rng *random,
                           data_sample *row)
{
    const uint64_t n = (uint64_t)(end - at);
    int64_t a = at + (int64_t)base_rng_below(random, n + 1), b = at + (int64_t)base_rng_below(random, n + 1);
    if (a > b) {
        int64_t c = a;
        a = b;
        b = c;
    }
    data_sample_put(row, o->fim.prefix, 0);
    if (!o->spec.suffix_first)
        BY_TRY(data_sample_copy(row, o, at, a, 0));
    data_sample_put(row, o->fim.suffix, 0);
    BY_TRY(data_sample_copy(row, o, b, end, 0));
    data_sample_put(row, o->fim.middle, 0);
    return data_sample_copy(row, o, o->spec.suffix_first ? at : a, b, 0);
}

by_status data_fim_row(const data_objective *o, int64_t i, base_rng *random, data_sample *row)
{
    const data_span s = o->rows[i];
    const data_document *doc = o->text->list + s.doc;
    for (int64_t at = s.begin; at < s.end; doc++) {
        int64_t end = BY_MIN(o->text->all->starts[doc->end], s.end);
        if (base_rng_uniform(random) < o->spec.masking.share)
            BY_TRY(put_parts(o, at, end, random, row));
        else
            BY_TRY(data_sample_copy(row, o, at, end, 0));
        data_sample_put(row, o->eos, 0);
        at = end;
    }
    return BY_OK;
}
