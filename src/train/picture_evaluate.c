/* picture_evaluate.c - see picture_evaluate.h and banyan/image_tasks.h. */
#include "train/picture_evaluate.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "infer/picture_passes.h"
#include "report/confusion.h"

/* ---- results --------------------------------------------------------------------------------- */

void by_image_result_free(by_image_result *r)
{
    if (!r)
        return;
    base_free(r->confusion);
    *r = (by_image_result){0};
}

void by_image_result_class(const by_image_result *r, int class_index, double *precision, double *recall,
                           double *f1)
{
    const int64_t n = r->classes;
    int64_t right = r->confusion[class_index * n + class_index], actual = 0, taken = 0;
    for (int64_t i = 0; i < n; i++) {
        actual += r->confusion[class_index * n + i];
        taken += r->confusion[i * n + class_index];
    }
    *precision = taken ? (double)right / (double)taken : NAN;
    *recall = actual ? (double)right / (double)actual : NAN;
    *f1 = taken + actual ? 2 * (double)right / (double)(taken + actual) : NAN;
}

int train_picture_metrics(const by_image_result *r, by_metric out[BY_METRICS_MAX])
{
    int n = 0;
    if (isfinite(r->exact)) {
        out[n++] = (by_metric){"exact", r->exact};
        out[n++] = (by_metric){"token_accuracy", r->token_accuracy};
        return n;
    }
    out[n++] = (by_metric){"accuracy", r->top1};
    if (isfinite(r->top5))
        out[n++] = (by_metric){"top5_accuracy", r->top5};
    return n;
}

by_status by_image_result_draw(const by_image_result *r, const char *const *names, const char *title,
                               const char *path)
{
    report_picture kind;
    base_buf out = {0};
    if (!r || !names || !path)
        return base_fail_missing(!r ? "by_image_result" : names ? "path" : "list of classes");
    BY_TRY(report_picture_of(path, &kind));
    by_status s = report_confusion_write(
        &out, kind,
        &(report_confusion){.title = title, .names = names, .counts = r->confusion, .classes = r->classes});
    if (s == BY_OK)
        s = base_file_write(path, out.data, out.size);
    base_buf_free(&out);
    return s;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

typedef struct measuring {
    const train_picture_measure *w;
    by_image_result *out;
    train_pictures batches;
    float *logits;    /* (batch, classes) */
    int32_t *choices; /* pairs: (batch, length) tokens, or (batch) captions */
    int64_t seen, right, near;
    int64_t tokens, tokens_right;
    double loss;
    base_writer *file;
} measuring;

/* -log p of the label, and its rank: how many classes are more likely. On ties, the first class ranks
 * higher. */
static double score(const float *logits, int classes, int label, int *rank, int *best)
{
    double high = -INFINITY, sum = 0;
    *rank = *best = 0;
    for (int i = 0; i < classes; i++) {
        *best = logits[i] > logits[*best] ? i : *best;
        *rank += logits[i] > logits[label] || (logits[i] == logits[label] && i < label);
        high = BY_MAX(high, (double)logits[i]);
    }
    for (int i = 0; i < classes; i++)
        sum += exp((double)logits[i] - high);
    return log(sum) + high - (double)logits[label];
}

static by_status put_prediction(measuring *m, int64_t i, int label, int best, const float *logits)
{
    const train_picture_measure *w = m->w;
    base_buf line = {0};
    char name[1024];
    int unused, also;
    by_picture_set_name(w->source->part.pictures, data_picture_part_at(&w->source->part, i), name,
                        sizeof name);
    base_buf_puts(&line, "{\"file\": ");
    base_json_quote(&line, name);
    base_buf_puts(&line, ", \"label\": ");
    base_json_quote(&line, by_model_label_name(w->model, best));
    base_buf_printf(
        &line, ", \"score\": %.6g, \"actual\": ", exp(-score(logits, m->out->classes, best, &unused, &also)));
    base_json_quote(&line, by_model_label_name(w->model, label));
    base_buf_puts(&line, "}\n");
    by_status s = line.failed ? base_fail(BY_ERR_MEMORY, "out of memory writing predictions")
                              : base_writer_put(m->file, line.data, line.size);
    base_buf_free(&line);
    return s;
}

static by_status count_batch(measuring *m, const int32_t *labels)
{
    const int classes = m->out->classes, batch = m->w->source->batch;
    for (int r = 0; r < batch && labels[r] != -100; r++) {
        const float *logits = m->logits + (size_t)r * (size_t)classes;
        int rank, best;
        BY_TRY(by_pass_finite(m->w->model, logits, (size_t)classes));
        m->loss += score(logits, classes, labels[r], &rank, &best);
        m->right += rank == 0;
        m->near += rank < 5;
        m->out->confusion[(int64_t)labels[r] * classes + best]++;
        if (m->file)
            BY_TRY(put_prediction(m, m->seen, labels[r], best, logits));
        m->seen++;
    }
    return BY_OK;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* The loss of the task. Output "choices": the most likely token of each position, or caption of each picture. */
static by_tensor *with_choices(void *user, by_graph *g, by_model_io *io)
{
    const by_model *m = user;
    by_tensor *logits =
        by_io_output(io, by_model_task(m) == BY_TASK_CONTRAST ? "logits_per_image" : "logits");
    by_io_return(io, "choices", by_output(g, NULL, by_argmax(g, logits)));
    return by_model_loss(m, g, io, by_io_input(io, "targets"), NULL);
}

by_passes *train_picture_passes(by_model *m, by_memory **memory)
{
    const bool pairs = by_model_task(m) != BY_TASK_CLASSIFY;
    return by_passes_new(m,
                         &(by_pass_spec){.grads = BY_GRAD_NONE,
                                         .memory = memory,
                                         .loss_alone = pairs,
                                         .loss = pairs ? with_choices : NULL,
                                         .loss_user = m},
                         2);
}

/* Counts a caption as exact if every token is predicted correctly from the correct tokens before it. */
static void count_sentences(measuring *m, const int32_t *targets, double loss)
{
    const int batch = m->w->source->batch, length = m->w->source->length;
    int64_t tokens = 0;
    for (int r = 0; r < batch && targets[(size_t)r * (size_t)length] != -100; r++) {
        bool exact = true;
        for (int t = 0; t < length && targets[(size_t)r * (size_t)length + (size_t)t] != -100; t++) {
            const size_t i = (size_t)r * (size_t)length + (size_t)t;
            const bool right = m->choices[i] == targets[i];
            exact = exact && right;
            m->tokens_right += right;
            tokens++;
        }
        m->right += exact;
        m->seen++;
    }
    m->tokens += tokens;
    m->loss += loss * (double)tokens;
}

/* Other pictures of a batch may have the same caption. */
static void count_pairs(measuring *m, int64_t number, double loss)
{
    const train_picture_source *s = m->w->source;
    const by_picture_set *set = s->part.pictures;
    for (int r = 0; r < s->batch; r++) {
        const int64_t own = data_picture_part_at(&s->part, number * s->batch + r),
                      chosen = data_picture_part_at(&s->part, number * s->batch + m->choices[r]);
        m->right += strcmp(by_picture_set_caption(set, own), by_picture_set_caption(set, chosen)) == 0;
        m->seen++;
    }
    m->loss += loss * s->batch;
    m->tokens += s->batch;
}

static by_status read_pairs(measuring *m, by_pass *p, int64_t number, const int32_t *targets)
{
    const by_tensor *choices = by_io_output(by_pass_io(p), "choices");
    float loss;
    BY_TRY(by_pass_read(p, by_pass_loss(p), &loss));
    BY_TRY(by_pass_finite(m->w->model, &loss, 1));
    BY_TRY(
        by_read(by_pass_program(p), choices, m->choices, (size_t)by_elements(choices) * sizeof *m->choices));
    if (m->w->source->task == BY_TASK_SEQ2SEQ)
        count_sentences(m, targets, (double)loss);
    else
        count_pairs(m, number, (double)loss);
    return BY_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static by_status measure_batch(measuring *m, int64_t number)
{
    const train_picture_measure *w = m->w;
    const by_image_evaluate_spec *hooks = w->hooks;
    by_batch b;
    const int32_t *labels;
    if (hooks && hooks->cancelled && hooks->cancelled(hooks->user))
        return base_fail(BY_ERR_CANCELLED, "stopped");
    BY_TRY(train_pictures_next(&m->batches, w->model, &b, &labels));
    by_pass *p = by_passes_get(w->passes, &b);
    if (!p)
        return base_error_status();
    BY_TRY(by_pass_run(p, &b));
    if (m->choices) {
        BY_TRY(read_pairs(m, p, number, labels));
    } else {
        BY_TRY(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), m->logits));
        BY_TRY(count_batch(m, labels));
    }
    if (hooks && hooks->progress)
        hooks->progress(hooks->user, m->seen, w->source->part.count);
    return BY_OK;
}

static by_status allocate(measuring *m)
{
    const train_picture_source *s = m->w->source;
    const size_t classes = (size_t)m->out->classes, batch = (size_t)s->batch;
    if (s->task != BY_TASK_CLASSIFY) {
        m->choices = base_alloc_zero(batch * (size_t)s->length, sizeof *m->choices);
        return m->choices ? BY_OK : BY_ERR_MEMORY;
    }
    m->out->confusion = base_alloc_zero(classes * classes, sizeof *m->out->confusion);
    m->logits = base_alloc_zero(batch * classes, sizeof *m->logits);
    return m->out->confusion && m->logits ? BY_OK : BY_ERR_MEMORY;
}

static void summarize(const measuring *m)
{
    by_image_result *r = m->out;
    const by_task task = m->w->source->task;
    const double seen = (double)m->seen;
    r->pictures = m->seen;
    r->loss = m->loss / (task == BY_TASK_CLASSIFY ? seen : (double)m->tokens);
    if (task == BY_TASK_SEQ2SEQ) {
        r->exact = (double)m->right / seen;
        r->token_accuracy = (double)m->tokens_right / (double)m->tokens;
        return;
    }
    r->top1 = (double)m->right / seen;
    if (r->classes > 5)
        r->top5 = (double)m->near / seen;
}

/* Pairs are compared only within full batches. The remainder is not evaluated. */
static by_status measure(measuring *m)
{
    const train_picture_source *s = m->w->source;
    const int64_t batches =
        s->task == BY_TASK_CONTRAST ? s->part.count / s->batch : train_pictures_batches(s);
    BY_TRY(allocate(m));
    BY_TRY(train_pictures_open(&m->batches, s, m->w->workers, 0, batches));
    for (int64_t i = 0; i < batches; i++)
        BY_TRY(measure_batch(m, i));
    summarize(m);
    m->out->left_out = BY_MAX(s->part.count - batches * s->batch, 0);
    return BY_OK;
}

by_status train_pictures_measure(const train_picture_measure *w, by_image_result *out)
{
    base_writer file = {0};
    measuring m = {.w = w, .out = out, .file = w->predictions ? &file : NULL};
    const double started = base_seconds();
    *out = (by_image_result){.classes = w->source->task == BY_TASK_CLASSIFY ? by_model_labels(w->model) : 0,
                             .loss = NAN,
                             .top1 = NAN,
                             .top5 = NAN,
                             .exact = NAN,
                             .token_accuracy = NAN};
    if (w->predictions && !out->classes)
        return base_fail(BY_ERR_UNSUPPORTED, "captions are written by `banyan caption`, not as predictions");
    by_status s = w->predictions ? base_writer_open(&file, w->predictions) : BY_OK;
    if (s == BY_OK)
        s = measure(&m);
    if (s == BY_OK && w->predictions)
        s = base_writer_finish(&file);
    else
        base_writer_abort(&file);
    out->seconds = base_seconds() - started;
    out->wait = m.batches.waited / BY_MAX(out->seconds, 1e-9);
    train_pictures_close(&m.batches);
    base_free(m.logits);
    base_free(m.choices);
    return s;
}

/* ---- a model directory ----------------------------------------------------------------------- */

by_status train_pictures_number(const by_model *m, by_picture_set *set)
{
    const int n = by_model_labels(m);
    const char **names = base_alloc_zero((size_t)n, sizeof *names);
    for (int i = 0; names && i < n; i++)
        names[i] = by_model_label_name(m, i);
    by_status s = names ? by_picture_set_number(set, names, n) : BY_ERR_MEMORY;
    base_free(names);
    return s;
}

static by_status check_model(const by_model *m, const by_processor *p)
{
    by_pictures reads;
    const by_task task = by_model_task(m);
    if (!gen_reads_pictures(m, &reads) ||
        (task != BY_TASK_CLASSIFY && task != BY_TASK_SEQ2SEQ && task != BY_TASK_CONTRAST))
        return base_fail(BY_ERR_ARGUMENT, "%s neither classifies pictures nor reads captions",
                         base_a(by_model_class(m)).text);
    if (!reads.channels && !by_processor_colours(p))
        return base_fail(BY_ERR_FORMAT, "preprocessor_config.json of %s has no palette",
                         base_a(by_model_class(m)).text);
    if (reads.channels && by_processor_channels(p) != reads.channels)
        return base_fail(BY_ERR_ARGUMENT,
                         "the model reads %d channels, and preprocessor_config.json makes %d", reads.channels,
                         by_processor_channels(p));
    return BY_OK;
}

/* Numbers labels as the model does, and tokenizes captions. */
static by_status prepare_targets(const by_model *m, const char *dir, by_picture_set *set,
                                 train_captions *captions)
{
    if (by_model_task(m) == BY_TASK_CLASSIFY)
        return train_pictures_number(m, set);
    by_tokenizer *t = by_tokenizer_load(dir);
    by_status s = t ? train_captions_open(captions, set, t, by_model_context(m)) : base_error_status();
    by_tokenizer_free(t);
    return s;
}

static by_status evaluate(by_model *m, const by_processor *p, const by_picture_set *set,
                          const train_captions *captions, const by_image_evaluate_spec *spec,
                          by_image_result *out)
{
    by_pictures reads;
    gen_reads_pictures(m, &reads);
    const int64_t count = by_picture_set_count(set);
    train_picture_source source = {.part = {.pictures = set, .count = count, .whole = true},
                                   .processor = p,
                                   .batch = (int)BY_MIN(spec->batch > 0 ? spec->batch : 64, count),
                                   .classes = by_model_labels(m),
                                   .task = by_model_task(m),
                                   .captions = captions,
                                   .length = captions->longest,
                                   .model = m};
    by_processor_size(p, &source.height, &source.width);
    if (!source.height) {
        source.height = reads.height;
        source.width = reads.width;
    }
    by_passes *passes = train_picture_passes(m, NULL);
    const train_picture_measure w = {.source = &source,
                                     .workers = train_picture_workers(by_model_device(m), spec->data.workers),
                                     .passes = passes,
                                     .model = m,
                                     .predictions = spec->predictions,
                                     .hooks = spec};
    by_status s = passes ? train_pictures_measure(&w, out) : base_error_status();
    by_passes_free(passes);
    return s;
}

by_status by_image_evaluate(by_device *d, const char *model, by_dtype dtype, const char *const *paths,
                            int count, const by_image_evaluate_spec *spec, by_image_result *out)
{
    if (!d || !spec || !out)
        return base_fail_missing(d ? "by_image_evaluate_spec or by_image_result" : "device");
    base_error_clear();
    *out = (by_image_result){0};
    train_captions captions = {0};
    by_model *m = by_model_open(
        d, model,
        &(by_model_spec){.dtype = dtype, .weights = spec->weights, .adapter_folder = spec->adapter});
    by_processor *p = m ? gen_processor_open(m, model, spec->adapter) : NULL;
    by_status s = p ? check_model(m, p) : base_error_status();
    const by_picture_set_spec reading = {
        .kind = m && by_model_task(m) == BY_TASK_CLASSIFY ? BY_EXAMPLE_IMAGE_CLASSIFY : BY_EXAMPLE_CAPTION,
        .file = spec->data.file,
        .label = spec->data.label,
        .header = spec->data.header,
        .classes = spec->data.classes,
        .coarse = spec->data.coarse,
        .format = p && by_processor_channels(p) == 1 ? BY_PIXELS_GREY : BY_PIXELS_RGB};
    by_picture_set *set = s == BY_OK ? by_picture_set_open(paths, count, &reading) : NULL;
    if (set)
        s = data_picture_set_check_use(set, NULL);
    if (s == BY_OK && set && spec->lists)
        s = data_picture_set_check_list(set);
    if (s == BY_OK)
        s = set ? prepare_targets(m, model, set, &captions) : base_error_status();
    if (s == BY_OK)
        s = evaluate(m, p, set, &captions, spec, out);
    train_captions_close(&captions);
    by_picture_set_free(set);
    by_processor_free(p);
    by_model_free(m);
    return s;
}
