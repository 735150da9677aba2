/* picture_attention.c - where a model of pictures looks (banyan/inspect.h). */
#include "banyan/pass.h"
#include "banyan/rewrite.h"
#include "base/base.h"
#include "infer/attention_maps.h"

typedef struct look {
    by_model *model;
    const by_processor *processor;
    const by_picture_maps_spec *spec;
    by_picture_maps *maps;
    by_pictures reads;
    by_prepared values;
    by_pass *pass;
} look;

static bool writes(const look *k)
{
    return by_model_task(k->model) == BY_TASK_SEQ2SEQ;
}

static int positions(const by_picture_maps *a)
{
    return a->tokens + a->rows * a->columns;
}

/* ---- what is looked at ------------------------------------------------------------------------- */

static by_status prepare(look *k, const by_image *m)
{
    by_picture_maps *a = k->maps;
    by_prepared *x = &k->values;
    BY_TRY(by_processor_apply(k->processor, m, x));
    if (x->ids || x->channels != k->reads.channels)
        return base_fail(BY_ERR_ARGUMENT, "pictures are not prepared as a %s reads them: %d channels, not %d",
                         by_model_class(k->model), x->ids ? 0 : x->channels, k->reads.channels);
    if (!by_pictures_positions(&k->reads, x->height, x->width))
        return base_fail(BY_ERR_ARGUMENT,
                         "a picture of %d x %d pixels is not a whole number of patches of %d", x->width,
                         x->height, k->reads.patch);
    a->rows = x->height / k->reads.patch;
    a->columns = x->width / k->reads.patch;
    a->tokens = k->reads.tokens;
    a->seen = by_processor_shape(k->processor, m);
    return a->seen ? BY_OK : base_error_status();
}

static by_status read_caption(look *k, const char *text)
{
    return gen_side_read(k->model, &(gen_side_spec){k->spec->tokenizer, text, NULL, true}, &k->maps->text);
}

/* The caption that the model itself writes. */
static by_status write_caption(look *k, const by_picture_set *set, int64_t index)
{
    const by_rewriter_spec spec = {.generate.beam = {.width = 4, .length_penalty = 1}, .batch = 1};
    by_rewriter *r = by_rewriter_new(k->model, k->spec->tokenizer, &spec);
    by_rewriting *list = NULL;
    by_status s = r ? by_rewriter_caption(r, k->processor, set, index, 1, &list) : base_error_status();
    if (s == BY_OK)
        s = read_caption(k, list[0].text);
    by_rewritings_free(list, 1);
    by_rewriter_free(r);
    return s;
}

/* ---- weights ------------------------------------------------------------------------------------ */

static by_status run(look *k)
{
    const by_prepared *x = &k->values;
    by_batch b = by_batch_of_pictures(k->model, 1, x->height, x->width, x->values);
    int32_t *tokens = NULL;
    by_status s = BY_OK;
    if (writes(k)) { /* the decoder reads the caption one place later */
        const by_encoding *text = &k->maps->text.text;
        b.seq = k->maps->text.tokens;
        tokens = base_alloc_zero((size_t)b.seq, sizeof *tokens);
        s = tokens ? by_model_shift(k->model, text->ids.data, 1, b.seq, tokens) : BY_ERR_MEMORY;
        by_batch_put_tokens(&b, "tokens", tokens);
    }
    if (s == BY_OK) {
        k->pass = by_pass_new(k->model, &b, &(by_pass_spec){.attention = true});
        s = k->pass ? by_pass_run(k->pass, &b) : base_error_status();
    }
    base_free(tokens);
    return s;
}

static by_status read_weights(look *k)
{
    by_picture_maps *a = k->maps;
    const by_model_io *io = by_pass_io(k->pass);
    const char *name = writes(k)                             ? "cross_attention"
                       : by_io_output_count(io, "attention") ? "attention"
                                                             : "source_attention";
    const by_tensor *first = by_io_output(io, name);
    a->queries = writes(k) ? a->text.tokens : positions(a);
    a->layers = by_io_output_count(io, name);
    if (!first || by_dim(first, 2) != a->queries || by_dim(first, 3) != positions(a))
        return base_fail(BY_ERR_UNSUPPORTED, "a %s has no attention over patches to show",
                         by_model_class(k->model));
    a->heads = (int)by_dim(first, 1);
    const size_t layer = (size_t)a->heads * (size_t)a->queries * (size_t)positions(a);
    a->weights = base_alloc_zero((size_t)a->layers * layer, sizeof *a->weights);
    for (int i = 0; a->weights && i < a->layers; i++)
        BY_TRY(by_pass_read(k->pass, by_io_output_at(io, name, i), a->weights + (size_t)i * layer));
    return a->weights ? by_pass_finite(k->model, a->weights, (size_t)a->layers * layer) : BY_ERR_MEMORY;
}

static by_status make(look *k, const by_picture_set *set, int64_t index)
{
    if (!by_model_pictures(k->model, &k->reads))
        return base_fail(BY_ERR_ARGUMENT, "a %s reads no pictures", by_model_class(k->model));
    if (writes(k) && !k->spec->tokenizer)
        return base_fail_missing("tokenizer of the captions");
    if (!writes(k) && k->spec->target)
        return base_fail(BY_ERR_ARGUMENT,
                         "a caption (--target) is for models that write captions; a %s does not",
                         by_model_class(k->model));
    by_image *m = by_picture_set_get(set, index);
    by_status s = m ? prepare(k, m) : base_error_status();
    by_image_free(m);
    BY_TRY(s);
    if (writes(k))
        BY_TRY(k->spec->target ? read_caption(k, k->spec->target) : write_caption(k, set, index));
    BY_TRY(run(k));
    return read_weights(k);
}

by_status by_picture_maps_make(by_model *m, const by_processor *p, const by_picture_set *set, int64_t index,
                               const by_picture_maps_spec *spec, by_picture_maps *out)
{
    if (!m || !p || !set || !spec || !out)
        return base_fail_missing(!m     ? "model"
                                 : !p   ? "processor"
                                 : !set ? "dataset"
                                        : "by_picture_maps_spec or by_picture_maps");
    look k = {.model = m, .processor = p, .spec = spec, .maps = out};
    *out = (by_picture_maps){0};
    by_status s = make(&k, set, index);
    by_prepared_free(&k.values);
    by_pass_free(k.pass);
    return s;
}

void by_picture_maps_free(by_picture_maps *a)
{
    if (!a)
        return;
    by_image_free(a->seen);
    gen_side_free(&a->text);
    base_free(a->weights);
    *a = (by_picture_maps){0};
}

/* ---- one map ------------------------------------------------------------------------------------- */

static const float *row_of(const by_picture_maps *a, int layer, int head, int query)
{
    return a->weights +
           (((size_t)layer * (size_t)a->heads + (size_t)head) * (size_t)a->queries + (size_t)query) *
               (size_t)positions(a);
}

static by_status check_query(const by_picture_maps *a, int query)
{
    if (query >= 0 && query < a->queries)
        return BY_OK;
    return base_fail(BY_ERR_ARGUMENT, "there is no position %d: there are %d, counted from 0", query,
                     a->queries);
}

by_status by_picture_maps_head(const by_picture_maps *a, int layer, int head, int query, float *out)
{
    if (!a || !a->weights || !out)
        return base_fail_missing(a && a->weights ? "array" : "attention");
    if (layer >= a->layers || head >= a->heads)
        return base_fail(BY_ERR_ARGUMENT, "there are %d layers of %d heads, counted from 0", a->layers,
                         a->heads);
    BY_TRY(check_query(a, query));
    const int patches = a->rows * a->columns;
    const int maps = (layer < 0 ? a->layers : 1) * (head < 0 ? a->heads : 1);
    memset(out, 0, (size_t)patches * sizeof *out);
    for (int l = 0; l < a->layers; l++)
        for (int h = 0; h < a->heads; h++)
            for (int i = 0; (layer < 0 || l == layer) && (head < 0 || h == head) && i < patches; i++)
                out[i] += row_of(a, l, h, query)[a->tokens + i] / (float)maps;
    return BY_OK;
}

/* One layer: shares (1, n) times the mean of its heads, half of it. */
static void roll(const by_picture_maps *a, int layer, const double *from, double *to)
{
    const int n = positions(a);
    for (int i = 0; i < n; i++)
        to[i] = 0.5 * from[i];
    for (int h = 0; h < a->heads; h++)
        for (int q = 0; q < n; q++) {
            const float *row = row_of(a, layer, h, q);
            const double share = 0.5 * from[q] / a->heads;
            for (int i = 0; i < n; i++)
                to[i] += share * (double)row[i];
        }
}

/* From the last layer to the first: one row of the product of all layers is enough. */
by_status by_picture_maps_rollout(const by_picture_maps *a, int query, float *out)
{
    if (!a || !a->weights || !out)
        return base_fail_missing(a && a->weights ? "array" : "attention");
    BY_TRY(check_query(a, query));
    const int n = positions(a);
    if (a->queries != n)
        return base_fail(BY_ERR_ARGUMENT, "there is no rollout from the tokens of a caption");
    double *shares = base_alloc_zero(2 * (size_t)n, sizeof *shares);
    if (!shares)
        return BY_ERR_MEMORY;
    double *now = shares, *next = shares + n;
    now[query] = 1;
    for (int l = a->layers - 1; l >= 0; l--) {
        roll(a, l, now, next);
        double *swap = now;
        now = next;
        next = swap;
    }
    for (int i = 0; i < n - a->tokens; i++)
        out[i] = (float)now[a->tokens + i];
    base_free(shares);
    return BY_OK;
}
