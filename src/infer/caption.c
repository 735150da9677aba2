/* caption.c - image captions (banyan/rewrite.h). */
#include "base/base.h"
#include "infer/picture_passes.h"
#include "infer/rewrite.h"

typedef struct captioning {
    by_rewriter *rewriter;
    by_rewriting *out; /* (pictures, returned) */
} captioning;

static by_status write_captions(void *user, const gen_picture_pack *x)
{
    const captioning *c = user;
    by_rewriter *r = c->rewriter;
    const int returned = by_rewriter_returned(r);
    const by_picture_batch seen = {x->values, x->count, x->height, x->width};
    by_pictures p;
    by_model_pictures(r->model, &p);
    BY_TRY(gen_rewriter_room(r, x->count, by_pictures_positions(&p, x->height, x->width),
                             gen_rewriter_tokens(r, 0)));
    int *samples = base_alloc_zero((size_t)r->rows, sizeof *samples);
    if (!samples)
        return BY_ERR_MEMORY;
    by_generate_spec spec = r->spec.generate;
    for (int i = 0; i < x->count; i++)
        samples[i] = spec.first_sample + r->done + x->first + i;
    spec.max_new_tokens = gen_rewriter_tokens(r, 0);
    spec.samples = samples;
    spec.pictures = &seen;
    by_generate_result result = {0};
    by_status s = by_generate(r->generator, NULL, NULL, &spec, &result);
    for (int i = 0; i < x->count * returned && s == BY_OK; i++)
        s = gen_rewriter_take(r, &result.rows[i], false, &c->out[x->first * returned + i]);
    by_generate_result_free(&result);
    base_free(samples);
    return s;
}

by_status by_rewriter_caption(by_rewriter *r, const by_processor *processor, const by_picture_set *set,
                              int64_t first, int count, by_rewriting **out)
{
    by_pictures p;
    if (!r || !processor || !set || !out)
        return base_fail_missing(!r ? "rewriter" : !processor ? "processor" : "dataset");
    *out = NULL;
    if (!by_model_pictures(r->model, &p))
        return base_fail(BY_ERR_ARGUMENT, "%s does not read pictures", base_a(by_model_class(r->model)).text);
    const int all = count * by_rewriter_returned(r);
    *out = base_alloc_zero((size_t)all + 1, sizeof **out);
    captioning c = {r, *out};
    const gen_pictures_spec spec = {.model = r->model,
                                    .processor = processor,
                                    .batch = r->spec.batch,
                                    .cancelled = r->spec.generate.cancelled,
                                    .cancel_user = r->spec.generate.user};
    by_status s = *out ? gen_pictures_read(&spec, set, first, count, write_captions, &c) : BY_ERR_MEMORY;
    r->done += count;
    if (s != BY_OK) {
        by_rewritings_free(*out, all);
        *out = NULL;
    }
    return s;
}
