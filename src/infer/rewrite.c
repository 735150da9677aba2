/* rewrite.c - text generation by encoder-decoders (see banyan/rewrite.h): encode, sort by length, generate in
 * batches, decode. */
#include "infer/rewrite.h"

#include <stdlib.h>

#include "base/base.h"
#include "text/tokenizer.h"

enum { BATCH = 32 };
enum { MORE = 32 }; /* maximum tokens of a text beyond twice its source */
enum { FEW = 64 };  /* minimum source capacity */

/* A source being processed. */
typedef struct item {
    by_ids ids;
    int at; /* which of the texts */
    bool cut;
} item;

by_rewriter *by_rewriter_new(by_model *m, const by_tokenizer *t, const by_rewriter_spec *spec)
{
    if (!m || !t || !spec) {
        base_fail_missing(!m ? "model" : !t ? "tokenizer" : "by_rewriter_spec");
        return NULL;
    }
    if (by_model_task(m) != BY_TASK_SEQ2SEQ) {
        base_fail(BY_ERR_ARGUMENT, "%s is not an encoder-decoder", base_a(by_model_class(m)).text);
        return NULL;
    }
    if (by_tokenizer_vocab_size(t) > by_model_source_vocab(m)) {
        base_fail(BY_ERR_ARGUMENT, "the tokenizer has %d tokens, but the model's vocabulary has %d",
                  by_tokenizer_vocab_size(t), by_model_source_vocab(m));
        return NULL;
    }
    if (by_tokenizer_target_vocab_size(t) > by_model_vocab(m)) {
        base_fail(BY_ERR_ARGUMENT,
                  "the tokenizer has %d target tokens, but the model's target vocabulary has %d",
                  by_tokenizer_target_vocab_size(t), by_model_vocab(m));
        return NULL;
    }
    by_rewriter *r = base_alloc_zero(1, sizeof *r);
    if (!r)
        return NULL;
    r->model = m;
    r->tokenizer = t;
    r->spec = *spec;
    r->spec.batch = spec->batch > 0 ? spec->batch : BATCH;
    if (!r->spec.generate.tokenizer)
        r->spec.generate.tokenizer = t;
    return r;
}

void by_rewriter_free(by_rewriter *r)
{
    if (!r)
        return;
    by_generator_free(r->generator);
    base_free(r);
}

int by_rewriter_returned(const by_rewriter *r)
{
    if (!r)
        return 0;
    const by_beam *b = &r->spec.generate.beam;
    return b->width > 1 ? BY_MAX(b->returned, 1) : 1;
}

int by_rewriter_most(const by_rewriter *r)
{
    if (!r)
        return 0;
    const int own = by_model_is_limited(r->model) ? by_model_context(r->model) : 0;
    const int asked = r->spec.max_source;
    return own && asked ? BY_MIN(own, asked) : BY_MAX(own, asked);
}

/* ---- sources --------------------------------------------------------------------------------- */

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

/* Appends the end-of-text token unless the tokenizer does. */
static by_status encode(const by_rewriter *r, const char *text, item *out)
{
    const int own = by_tokenizer_source_eos(r->tokenizer), limit = by_rewriter_most(r);
    const int eos = own == by_tokenizer_eos(r->tokenizer) ? by_model_eos(r->model) : own;
    char *whole = base_sprintf("%s%s", r->spec.prefix ? r->spec.prefix : "", text);
    if (!whole)
        return BY_ERR_MEMORY;
    by_encoding e = {0};
    by_status s = by_tokenizer_encode_with(r->tokenizer, whole, strlen(whole),
                                           &(by_encode_spec){.special = true, .whole = true}, &e);
    base_free(whole);
    const int count = s == BY_OK ? (int)e.ids.count : 0;
    int length = count - (count > 0 && e.ids.data[count - 1] == eos);
    out->cut = limit && length > limit - 1;
    if (out->cut)
        length = limit - 1;
    if (s == BY_OK && out->cut && !r->spec.truncate && limit != r->spec.max_source)
        s = base_fail(BY_ERR_ARGUMENT, "text %d has %d tokens; the limit of this model is %d",
                      r->done + out->at + 1, count, limit);
    out->ids.data = s == BY_OK ? base_alloc_zero((size_t)length + 1, sizeof *out->ids.data) : NULL;
    if (s == BY_OK && !out->ids.data)
        s = BY_ERR_MEMORY;
    if (s == BY_OK) {
        if (length > 0)
            memcpy(out->ids.data, e.ids.data, sizeof *e.ids.data * (size_t)length);
        out->ids.data[length] = eos;
        out->ids.count = (size_t)length + (eos >= 0);
    }
    by_encoding_free(&e);
    return s;
}

static int gen_length(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->ids.count != y->ids.count)
        return x->ids.count < y->ids.count ? 1
                                           /* the longest first, so that the maximum memory is used at once */
                                           : -1;
    return x->at - y->at;
}

/* ---- batches --------------------------------------------------------------------------------- */

int gen_rewriter_tokens(const by_rewriter *r, int source)
{
    const by_generate_spec *spec = &r->spec.generate;
    const int asked = spec->max_new_tokens, limit = by_model_context(r->model);
    const int least = BY_MAX(spec->sampling.min_new_tokens, spec->sampling.prefix_count);
    const int wanted = asked ? asked : BY_MAX(2 * source + MORE, least);
    return by_model_is_limited(r->model) || !asked ? BY_MIN(wanted, limit) : wanted;
}

by_status gen_rewriter_room(by_rewriter *r, int count, int source, int capacity)
{
    const int beams = BY_MAX(r->spec.generate.beam.width, 1), rows = BY_MIN(count, r->spec.batch);
    if (r->generator && r->rows >= rows && r->source_capacity >= source && r->capacity >= capacity)
        return BY_OK;
    by_generator_free(r->generator);
    r->rows = BY_MAX(r->rows, rows);
    r->source_capacity = BY_MAX(r->source_capacity, source);
    r->capacity = BY_MAX(r->capacity, capacity);
    r->generator = by_generator_new(r->model, &(by_generator_spec){.batch = r->rows * beams,
                                                                   .beams = beams,
                                                                   .capacity = r->capacity,
                                                                   .source_capacity = r->source_capacity});
    return r->generator ? BY_OK : base_error_status();
}

/* The same for texts with this maximum number of tokens. */
static by_status need_room(by_rewriter *r, int count, int longest)
{
    const int source = by_model_is_limited(r->model)
                           ? BY_MIN(BY_MAX(longest, FEW), by_model_context(r->model))
                           : BY_MAX(longest, FEW);
    return gen_rewriter_room(r, count, source, gen_rewriter_tokens(r, source));
}

/* Special tokens, such as the language that a decoder starts with, are not part of the text. */
by_status gen_rewriter_take(const by_rewriter *r, const by_generation *g, bool cut, by_rewriting *out)
{
    const int32_t *text = g->tokens ? g->tokens + g->prompt : NULL;
    out->score = g->score;
    out->cut = cut;
    out->tokens = g->count - g->prompt;
    out->text = tok_decode_text(r->tokenizer, text, text ? (size_t)out->tokens : 0,
                                &(tok_decode_spec){.skip_special = true}, &out->size);
    return out->text ? BY_OK : base_error_status();
}

static by_status run_batch(by_rewriter *r, const item *items, int count, by_rewriting *out)
{
    const int returned = by_rewriter_returned(r);
    const int32_t **sources = base_alloc_zero((size_t)r->rows, sizeof *sources);
    int *lengths = base_alloc_zero((size_t)r->rows, sizeof *lengths);
    int *limits = base_alloc_zero((size_t)r->rows, sizeof *limits);
    int *samples = base_alloc_zero((size_t)r->rows, sizeof *samples);
    by_generate_result result = {0};
    by_generate_spec spec = r->spec.generate;
    by_status s = sources && lengths && limits && samples ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < count; i++) {
        sources[i] = items[i].ids.data;
        lengths[i] = (int)items[i].ids.count;
        limits[i] = gen_rewriter_tokens(r, lengths[i]);
        samples[i] = spec.first_sample + r->done + items[i].at;
    }
    spec.max_new_tokens = gen_rewriter_tokens(r, (int)items[0].ids.count); /* the longest */
    spec.limits = limits;
    spec.samples = samples;
    if (s == BY_OK)
        s = by_generate(r->generator, sources, lengths, &spec, &result);
    for (int i = 0; i < count && s == BY_OK; i++)
        for (int k = 0; k < returned && s == BY_OK; k++)
            s = gen_rewriter_take(r, &result.rows[i * returned + k], items[i].cut,
                                  &out[items[i].at * returned + k]);
    by_generate_result_free(&result);
    base_free(sources);
    base_free(lengths);
    base_free(limits);
    base_free(samples);
    return s;
}

static by_status run_all(by_rewriter *r, const char *const *texts, int count, item *items, by_rewriting *out)
{
    int used = 0;
    for (int i = 0; i < count; i++) {
        if (is_blank(texts[i])) {
            for (int k = 0; k < by_rewriter_returned(r); k++)
                BY_TRY(
                    gen_rewriter_take(r, &(by_generation){0}, false, &out[i * by_rewriter_returned(r) + k]));
            continue;
        }
        items[used].at = i;
        BY_TRY(encode(r, texts[i], &items[used++]));
    }
    qsort(items, (size_t)used, sizeof *items, gen_length);
    if (used > 0)
        BY_TRY(need_room(r, used, (int)items[0].ids.count));
    for (int i = 0; i < used; i += r->spec.batch)
        BY_TRY(run_batch(r, items + i, BY_MIN(r->spec.batch, used - i), out));
    return BY_OK;
}

by_status by_rewriter_run(by_rewriter *r, const char *const *texts, int count, by_rewriting **out)
{
    if (!r || !out || (count > 0 && !texts))
        return base_fail_missing(r ? "text" : "rewriter");
    const int all = count * by_rewriter_returned(r);
    item *items = base_alloc_zero((size_t)count + 1, sizeof *items);
    *out = base_alloc_zero((size_t)all + 1, sizeof **out);
    by_status s = items && *out ? run_all(r, texts, count, items, *out) : BY_ERR_MEMORY;
    for (int i = 0; items && i < count; i++)
        base_free(items[i].ids.data);
    base_free(items);
    r->done += count;
    if (s != BY_OK) {
        by_rewritings_free(*out, all);
        *out = NULL;
    }
    return s;
}

void by_rewritings_free(by_rewriting *list, int count)
{
    for (int i = 0; list && i < count; i++)
        by_release(list[i].text);
    base_free(list);
}
