/* attention_maps.c - the attention weights of a text (banyan/inspect.h). */
#include "infer/attention_maps.h"

#include "banyan/pass.h"
#include "banyan/rewrite.h"
#include "text/tokenizer.h"

typedef struct look {
    by_model *model;
    const by_tokenizer *tokenizer;
    const by_attention_maps_spec *spec;
    by_attention_maps *maps;
    by_pass *pass;
} look;

enum { READ, WRITTEN }; /* sides */

static bool is_pair(const look *k)
{
    return by_model_task(k->model) == BY_TASK_SEQ2SEQ;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The name of a token: its part of the text, or the decoded special token. */
static char *name_of(const by_attention_side *s, const gen_side_spec *spec, int i)
{
    const by_offset at = s->text.offsets[i];
    const char *from = s->text.types[i] && spec->pair ? spec->pair : spec->text;
    if (!s->text.special[i] && at.end > at.start)
        return base_sprintf("%.*s", (int)(at.end - at.start), from + at.start);
    base_buf name = {0};
    base_buf_puts(&name, "");
    if (tok_decode_with(spec->tokenizer, &s->text.ids.data[i], 1, &(tok_decode_spec){.source = !spec->target},
                        &name) == BY_OK)
        return name.data;
    base_buf_free(&name);
    return NULL;
}

by_status gen_side_read(const by_model *m, const gen_side_spec *spec, by_attention_side *s)
{
    const by_encode_spec encode = {.special = true,
                                   .offsets = true,
                                   .whole = true,
                                   .target = spec->target,
                                   .pair = spec->pair,
                                   .pair_size = spec->pair ? strlen(spec->pair) : 0};
    BY_TRY(by_tokenizer_encode_with(spec->tokenizer, spec->text, strlen(spec->text), &encode, &s->text));
    s->tokens = (int)s->text.ids.count;
    if (s->tokens < 1)
        return base_fail(BY_ERR_ARGUMENT, "the text has no tokens");
    if (by_model_is_limited(m) && s->tokens > by_model_context(m))
        return base_fail(BY_ERR_ARGUMENT, "the text has %d tokens; the limit of this model is %d", s->tokens,
                         by_model_context(m));
    s->names = base_alloc_zero((size_t)s->tokens, sizeof *s->names);
    for (int i = 0; s->names && i < s->tokens; i++)
        if (!(s->names[i] = name_of(s, spec, i)))
            return base_error_status();
    return s->names ? BY_OK : BY_ERR_MEMORY;
}

void gen_side_free(by_attention_side *s)
{
    for (int i = 0; s->names && i < s->tokens; i++)
        base_free(s->names[i]);
    base_free(s->names);
    by_encoding_free(&s->text);
    *s = (by_attention_side){0};
}

static by_status encode(look *k, const char *text, int side)
{
    const gen_side_spec spec = {k->tokenizer, text, k->spec->pair, side == WRITTEN};
    return gen_side_read(k->model, &spec, &k->maps->sides[side]);
}

/* The text that the model generates. */
static by_status write_target(look *k, const char *text)
{
    const by_rewriter_spec spec = {.generate.beam = {.width = 5, .length_penalty = 1}, .batch = 1};
    by_rewriter *r = by_rewriter_new(k->model, k->tokenizer, &spec);
    by_rewriting *list = NULL;
    by_status s = r ? by_rewriter_run(r, &text, 1, &list) : base_error_status();
    if (s == BY_OK)
        s = encode(k, list[0].text, WRITTEN);
    by_rewritings_free(list, 1);
    by_rewriter_free(r);
    return s;
}

/* ---- weights --------------------------------------------------------------------------------- */

static by_status run(look *k, const by_batch *b)
{
    k->pass = by_pass_new(k->model, b, &(by_pass_spec){.attention = true});
    return k->pass ? by_pass_run(k->pass, b) : base_error_status();
}

/* The decoder input is the target shifted by one. */
static by_status run_pair(look *k)
{
    const by_attention_side *from = &k->maps->sides[READ], *to = &k->maps->sides[WRITTEN];
    int32_t *tokens = base_alloc_zero((size_t)to->tokens, sizeof *tokens);
    by_status s = tokens ? by_model_shift(k->model, to->text.ids.data, 1, to->tokens, tokens) : BY_ERR_MEMORY;
    by_batch b = by_batch_of(1, to->tokens, tokens);
    by_batch_put_source(&b, from->tokens, from->text.ids.data, NULL);
    if (s == BY_OK)
        s = run(k, &b);
    base_free(tokens);
    k->maps->rows = k->spec->part == BY_ATTENTION_ENCODER ? READ : WRITTEN;
    k->maps->columns = k->spec->part == BY_ATTENTION_DECODER ? WRITTEN : READ;
    return s;
}

static by_status run_one(look *k)
{
    const by_attention_side *s = &k->maps->sides[READ];
    int32_t *segments = base_alloc_zero((size_t)s->tokens, sizeof *segments);
    if (!segments)
        return BY_ERR_MEMORY;
    for (int i = 0; i < s->tokens; i++)
        segments[i] = s->text.types[i];
    by_batch b = by_batch_of(1, s->tokens, s->text.ids.data);
    if (by_model_segments(k->model) > 1)
        by_batch_put_tokens(&b, "segments", segments);
    by_status status = run(k, &b);
    base_free(segments);
    return status;
}

static by_status read_weights(look *k)
{
    by_attention_maps *a = k->maps;
    const by_model_io *io = by_pass_io(k->pass);
    const char *name = !is_pair(k) || k->spec->part == BY_ATTENTION_DECODER ? "attention"
                       : k->spec->part == BY_ATTENTION_CROSS                ? "cross_attention"
                                                                            : "source_attention";
    a->layers = by_io_output_count(io, name);
    if (a->layers == 0)
        return base_fail(BY_ERR_UNSUPPORTED, "%s has no attention to show",
                         base_a(by_model_class(k->model)).text);
    const by_tensor *first = by_io_output(io, name);
    if (by_dim(first, 2) != a->sides[a->rows].tokens || by_dim(first, 3) != a->sides[a->columns].tokens)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "the attention of %s is not one of tokens by tokens: (%lld, %lld) for %d tokens",
                         base_a(by_model_class(k->model)).text, (long long)by_dim(first, 2),
                         (long long)by_dim(first, 3), a->sides[a->rows].tokens);
    a->heads = (int)by_dim(first, 1);
    const size_t layer =
        (size_t)a->heads * (size_t)a->sides[a->rows].tokens * (size_t)a->sides[a->columns].tokens;
    a->weights = base_alloc_zero((size_t)a->layers * layer, sizeof *a->weights);
    for (int i = 0; a->weights && i < a->layers; i++)
        BY_TRY(by_pass_read(k->pass, by_io_output_at(io, name, i), a->weights + (size_t)i * layer));
    return a->weights ? by_pass_finite(k->model, a->weights, (size_t)a->layers * layer) : BY_ERR_MEMORY;
}

static by_status make(look *k, const char *text)
{
    const by_attention_maps_spec *s = k->spec;
    if (is_pair(k) && s->pair)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s reads one text, not a pair (--pair); give its output with --target",
                         base_a(by_model_class(k->model)).text);
    if (!is_pair(k) && s->target)
        return base_fail(BY_ERR_ARGUMENT, "a target (--target) is for encoder-decoders, not for %s",
                         base_a(by_model_class(k->model)).text);
    BY_TRY(encode(k, text, READ));
    if (is_pair(k))
        BY_TRY(s->target ? encode(k, s->target, WRITTEN) : write_target(k, text));
    BY_TRY(is_pair(k) ? run_pair(k) : run_one(k));
    return read_weights(k);
}

by_status by_attention_maps_make(by_model *m, const by_tokenizer *t, const char *text,
                                 const by_attention_maps_spec *spec, by_attention_maps *out)
{
    if (!m || !t || !text || !spec || !out)
        return base_fail_missing(m ? "tokenizer, text, by_attention_maps_spec or by_attention_maps"
                                   : "model");
    look k = {.model = m, .tokenizer = t, .spec = spec, .maps = out};
    *out = (by_attention_maps){0};
    by_status s = make(&k, text);
    by_pass_free(k.pass);
    return s;
}

void by_attention_maps_free(by_attention_maps *a)
{
    for (int k = 0; a && k < 2; k++)
        gen_side_free(&a->sides[k]);
    if (a) {
        base_free(a->weights);
        *a = (by_attention_maps){0};
    }
}
