/* embed_pictures.c - embeddings of pictures (banyan/embed.h). */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "infer/embed.h"
#include "infer/picture_passes.h"
#include "infer/predict.h"

typedef struct embedding {
    by_embedder *e;
    float *out;
} embedding;

/* The mean is over patches only; the class token is the first position. */
static by_status add_weights(void *user, by_batch *b)
{
    by_embedder *e = ((embedding *)user)->e;
    by_pictures p;
    gen_reads_pictures(e->model, &p);
    const int patches = b->seq - p.tokens;
    if (e->pooling == BY_POOLING_MAX)
        return BY_OK;
    BY_TRY(gen_embed_room(e, (size_t)b->batch * (size_t)b->seq));
    for (int i = 0; i < b->batch; i++)
        for (int t = 0; t < b->seq; t++) {
            const float share = e->pooling == BY_POOLING_CLS         ? t == 0
                                : e->pooling == BY_POOLING_LAST      ? t == b->seq - 1
                                : t < p.tokens                       ? 0
                                : e->pooling == BY_POOLING_SQRT_MEAN ? 1 / sqrtf((float)patches)
                                                                     : 1 / (float)patches;
            e->weights[(size_t)i * (size_t)b->seq + (size_t)t] = share;
        }
    by_batch_put(b, "pool_weights", BY_F32, 2, (int64_t[]){b->batch, b->seq}, e->weights);
    return BY_OK;
}

/* The maximum of each element over all positions. */
static by_status largest(const by_embedder *e, by_pass *p, int count, float *out)
{
    const by_tensor *h = by_io_output(by_pass_io(p), "features");
    const size_t width = (size_t)e->width, seq = (size_t)by_dim(h, 1);
    float *x = base_alloc((size_t)by_elements(h) * sizeof *x);
    by_status s = x ? by_pass_read(p, h, x) : BY_ERR_MEMORY;
    for (size_t i = 0; s == BY_OK && i < (size_t)count * seq; i++)
        for (size_t c = 0; c < width; c++) {
            float *to = &out[i / seq * width + c];
            *to = i % seq == 0 || x[i * width + c] > *to ? x[i * width + c] : *to;
        }
    base_free(x);
    return s;
}

static by_status take(void *user, by_pass *p, int first, int count)
{
    const embedding *x = user;
    const by_embedder *e = x->e;
    float *out = x->out + (size_t)first * (size_t)e->width;
    if (e->own)
        BY_TRY(by_pass_read(p, by_io_output(by_pass_io(p), "image_embeds"), out));
    else if (e->pooling == BY_POOLING_MAX)
        BY_TRY(largest(e, p, count, out));
    else
        BY_TRY(by_pass_read(p, by_pass_summary(p), out));
    BY_TRY(by_pass_finite(e->model, out, (size_t)count * (size_t)e->width));
    for (int i = 0; e->normalize && i < count; i++)
        gen_embed_unit(out + (size_t)i * (size_t)e->width, e->width);
    return BY_OK;
}

by_status by_embedder_run_pictures(by_embedder *e, const by_picture_set *set, int64_t first, int count,
                                   float *out)
{
    if (!e || !set || (count > 0 && !out))
        return base_fail_missing(e ? "dataset or array" : "embedder");
    if (!e->processor)
        return base_fail(BY_ERR_ARGUMENT, "%s reads texts, not pictures",
                         base_a(by_model_class(e->model)).text);
    embedding x = {e, out};
    return gen_pictures_run(
        &(gen_pictures_spec){.model = e->model, .processor = e->processor, .batch = e->batch},
        &(gen_picture_passes){
            .passes = e->passes, .prepare = e->own ? NULL : add_weights, .take = take, .user = &x},
        set, first, count);
}

by_status by_embedder_choose(by_embedder *e, const float *vectors, int labels, const by_picture_set *set,
                             int64_t first, int count, float *scores)
{
    if (!e || !vectors || !scores || labels < 1)
        return base_fail_missing(e ? "list of labels" : "embedder");
    const size_t width = (size_t)e->width;
    const double scale = by_embedder_scale(e);
    float *seen = base_alloc_zero((size_t)count * width + 1, sizeof *seen);
    by_status s = seen ? by_embedder_run_pictures(e, set, first, count, seen) : BY_ERR_MEMORY;
    for (int i = 0; s == BY_OK && i < count; i++) {
        float *x = scores + (size_t)i * (size_t)labels;
        for (int k = 0; k < labels; k++) {
            double sum = 0;
            for (size_t c = 0; c < width; c++)
                sum += (double)vectors[(size_t)k * width + c] * (double)seen[(size_t)i * width + c];
            x[k] = (float)(scale * sum);
        }
        gen_probabilities(x, labels);
    }
    base_free(seen);
    return s;
}
