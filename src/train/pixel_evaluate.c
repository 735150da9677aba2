/* pixel_evaluate.c - likelihood of pictures under a pixel model (banyan/image_tasks.h). */
#include <math.h>

#include "banyan/image_tasks.h"
#include "model/model.h"
#include "train/pixel_data.h"

typedef struct measuring {
    by_model *model;
    const by_processor *processor;
    const by_image_evaluate_spec *spec;
    data_picture_part part;
    int batch, tokens;
    int32_t *targets, *shifted; /* (B, N) */
    by_passes *passes;
    by_pixel_result *out;
} measuring;

static by_status check_model(const by_model *m, const by_processor *p)
{
    by_canvas c;
    const int colours = by_processor_colours(p);
    if (!by_model_canvas(m, &c) || by_model_task(m) != BY_TASK_LM)
        return base_fail(BY_ERR_ARGUMENT, "%s is not a pixel model", base_a(by_model_class(m)).text);
    if (by_processor_tokens(p) != by_model_context(m) || (colours ? colours : 256) != c.values)
        return base_fail(
            BY_ERR_FORMAT,
            "the model has pictures of %d tokens of %d values, but its preprocessor_config.json %lld of %d",
            by_model_context(m), c.values, (long long)by_processor_tokens(p), colours ? colours : 256);
    return BY_OK;
}

/* The pictures of a batch; rows past the last have no targets. */
static by_status fill_batch(measuring *m, int64_t first, int rows)
{
    const bool itself = m->model->arch->predicts_itself;
    const int32_t start = by_model_source_vocab(m->model) - 1;
    BY_TRY(train_pixels_encode(&m->part, m->processor, first, rows, base_cores(), m->targets));
    for (int64_t i = 0; i < (int64_t)m->batch * m->tokens; i++) {
        const bool there = i < (int64_t)rows * m->tokens;
        m->shifted[i] = !there ? 0 : itself ? m->targets[i] : i % m->tokens == 0 ? start : m->targets[i - 1];
    }
    for (int64_t i = (int64_t)rows * m->tokens; i < (int64_t)m->batch * m->tokens; i++)
        m->targets[i] = -100;
    return BY_OK;
}

static by_status measure_batch(measuring *m, int64_t first)
{
    const int rows = (int)BY_MIN(m->part.count - first, (int64_t)m->batch);
    float loss;
    BY_TRY(fill_batch(m, first, rows));
    by_batch b = by_batch_of(m->batch, m->tokens, m->shifted);
    by_batch_put_ids(&b, "targets", (int64_t)m->batch * m->tokens, m->targets);
    by_pass *p = by_passes_get(m->passes, &b);
    if (!p)
        return base_error_status();
    BY_TRY(by_pass_run(p, &b));
    BY_TRY(by_pass_read(p, by_pass_loss(p), &loss));
    if (!isfinite(loss))
        return base_fail(BY_ERR_NUMERIC, "the loss of pictures %lld to %lld is not finite", (long long)first,
                         (long long)first + rows - 1);
    m->out->nats += (double)loss * rows;
    m->out->pictures += rows;
    if (m->spec->progress)
        m->spec->progress(m->spec->user, m->out->pictures, m->part.count);
    return m->spec->cancelled && m->spec->cancelled(m->spec->user) ? base_fail(BY_ERR_CANCELLED, "stopped")
                                                                   : BY_OK;
}

static by_status measure(measuring *m)
{
    const double started = base_seconds();
    const size_t cells = (size_t)m->batch * (size_t)m->tokens;
    m->targets = base_alloc_zero(cells, sizeof *m->targets);
    m->shifted = base_alloc_zero(cells, sizeof *m->shifted);
    m->passes = by_passes_new(m->model, &(by_pass_spec){.grads = BY_GRAD_NONE, .loss_alone = true}, 2);
    if (!m->targets || !m->shifted || !m->passes)
        return base_error_status();
    for (int64_t i = 0; i < m->part.count; i += m->batch)
        BY_TRY(measure_batch(m, i));
    m->out->tokens = m->tokens;
    m->out->palette = by_processor_colours(m->processor) > 0;
    m->out->nats /= (double)BY_MAX(m->out->pictures, 1);
    m->out->bits = m->out->nats / log(2);
    m->out->seconds = base_seconds() - started;
    return BY_OK;
}

by_status by_pixel_evaluate(by_model *m, const by_processor *p, const char *const *paths, int count,
                            const by_image_evaluate_spec *spec, by_pixel_result *out)
{
    if (!m || !p || !spec || !out)
        return base_fail_missing(!m   ? "model"
                                 : !p ? "processor"
                                      : "by_image_evaluate_spec or by_pixel_result");
    *out = (by_pixel_result){0};
    BY_TRY(check_model(m, p));
    by_picture_set *set = by_picture_set_open(
        paths, count,
        &(by_picture_set_spec){.kind = BY_EXAMPLE_IMAGE,
                               .file = spec->data.file,
                               .header = spec->data.header,
                               .format = by_processor_channels(p) == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB});
    if (!set || (spec->lists && data_picture_set_check_list(set) != BY_OK)) {
        by_picture_set_free(set);
        return base_error_status();
    }
    measuring w = {.model = m,
                   .processor = p,
                   .spec = spec,
                   .part = {.pictures = set, .count = by_picture_set_count(set), .whole = true},
                   .batch = spec->batch > 0 ? spec->batch : 16,
                   .tokens = by_model_context(m),
                   .out = out};
    by_status s = measure(&w);
    by_passes_free(w.passes);
    base_free(w.targets);
    base_free(w.shifted);
    by_picture_set_free(set);
    return s;
}
