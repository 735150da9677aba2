/* task_evaluate.c - evaluates a model on the examples of a task: loss, metrics, predictions. For each example
 * only the prediction is kept, in the order of the file. */
#include <math.h>

#include "base/file.h"
#include "data/spans.h"
#include "base/json.h"
#include "score/task_metrics.h"
#include "train/task_batches.h"

/* What the model predicted for one example. */
typedef struct guess {
    int label;     /* single label, or choice */
    float score;   /* its probability */
    float *values; /* probabilities of many labels, or numbers */
    int *tags;     /* label of each word; -1: not seen */
    data_best best;
} guess;

typedef struct evaluation {
    train_task *w;
    by_passes *passes;
    base_arena *arena;
    guess *guesses;    /* one for each example */
    float *out[2];     /* logits, second */
    int starts, width; /* width of `second` for a beam: (B, starts, width) */
    size_t room[2];
    double loss;
    int64_t counted;
} evaluation;

/* ---- reading --------------------------------------------------------------------------------- */

static by_status make_guesses(evaluation *e)
{
    const data_examples *c = &e->w->examples;
    const by_example_kind kind = c->spec.kind;
    const int labels = by_model_labels(e->w->model);
    e->arena = base_arena_new();
    e->guesses = e->arena ? base_arena_alloc(e->arena, (size_t)c->count * sizeof *e->guesses) : NULL;
    bool ok = e->guesses != NULL;
    for (int i = 0; i < c->count && ok; i++) {
        guess *g = &e->guesses[i];
        g->best = data_best_none();
        if (kind == BY_EXAMPLE_REGRESS || (kind == BY_EXAMPLE_CLASSIFY && c->spec.separator))
            ok = (g->values = base_arena_alloc(e->arena, (size_t)labels * sizeof *g->values)) != NULL;
        if (kind == BY_EXAMPLE_TAG)
            ok =
                (g->tags = base_arena_alloc(e->arena, (size_t)c->list[i].n_labels * sizeof *g->tags)) != NULL;
        for (int k = 0; ok && kind == BY_EXAMPLE_TAG && k < c->list[i].n_labels; k++)
            g->tags[k] = -1;
    }
    return ok ? BY_OK : BY_ERR_MEMORY;
}

static by_status read_out(evaluation *e, by_pass *p, int which, by_tensor *t)
{
    size_t n = t ? (size_t)by_elements(t) : 0;
    if (n > e->room[which]) {
        float *more = base_resize(e->out[which], n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        e->out[which] = more;
        e->room[which] = n;
    }
    return t ? by_pass_read(p, t, e->out[which]) : BY_OK;
}

static int best_of(const float *x, int n, float *probability)
{
    int best = 0;
    double sum = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - x[best]);
    *probability = (float)(1 / sum);
    return best;
}

static void take_tags(evaluation *e, int row, const data_example *x, guess *g, const float *logits)
{
    const int labels = by_model_labels(e->w->model);
    float score;
    for (int i = 0; i < x->n_labels; i++) {
        int t = train_task_word(e->w, row, x, i);
        if (t >= 0 && train_task_owns(e->w, row, t))
            g->tags[i] = best_of(logits + (size_t)t * (size_t)labels, labels, &score);
    }
}

/* Reads the prediction of row b of the batch. */
static void take_row(evaluation *e, int b, int row)
{
    train_task *w = e->w;
    const int labels = by_model_labels(w->model), each = w->rows.spec.together, seq = w->batch.batch.seq;
    const size_t at = (size_t)b * (size_t)seq + (size_t)data_rows_start(&w->rows, row, seq);
    const int number = w->rows.list[row].example / each;
    const data_example *x = &w->examples.list[number];
    guess *g = &e->guesses[number];
    const float *own = e->out[0] + (size_t)b * (size_t)labels;
    switch (w->examples.spec.kind) {
    case BY_EXAMPLE_CLASSIFY:
        for (int i = 0; i < labels && g->values; i++)
            g->values[i] = (float)(1 / (1 + exp(-(double)own[i])));
        if (!g->values)
            g->label = best_of(own, labels, &g->score);
        break;
    case BY_EXAMPLE_REGRESS:
        memcpy(g->values, own, (size_t)labels * sizeof *own);
        break;
    case BY_EXAMPLE_TAG:
        take_tags(e, row, x, g, e->out[0] + at * (size_t)labels);
        break;
    case BY_EXAMPLE_ANSWER:
        if (e->starts) /* a beam */
            data_best_look_beam(&g->best, &w->rows, row,
                                e->out[1] + (size_t)b * (size_t)(e->starts * e->width), e->starts, e->width,
                                data_rows_start(&w->rows, row, w->batch.batch.seq), w->spec.longest_answer);
        else
            data_best_look(&g->best, &w->rows, row, e->out[0] + at, e->out[1] + at, w->spec.longest_answer);
        break;
    case BY_EXAMPLE_CHOICE:
        if (b % each == 0)
            g->label = best_of(e->out[0] + b, each, &g->score);
        break;
    default:
        break;
    }
}

static by_status run_group(evaluation *e, const data_row_groups *groups, int g)
{
    train_task *w = e->w;
    const int first = groups->first[g], count = groups->first[g + 1] - first;
    int64_t counted;
    int height = w->rows.spec.together;
    while (height < count)
        height *= 2;
    height = w->examples.spec.kind == BY_EXAMPLE_REGRESS ? count : BY_MIN(height, w->spec.batch);
    BY_TRY(train_task_batch(w, groups->rows + first, count, height, 0, &counted));
    by_pass *p = by_passes_get(e->passes, &w->batch.batch);
    if (!p)
        return base_error_status();
    float loss;
    BY_TRY(by_pass_run(p, &w->batch.batch));
    BY_TRY(by_pass_read(p, by_pass_loss(p), &loss));
    e->loss += (double)loss * (double)counted;
    e->counted += counted;
    BY_TRY(by_pass_finite(w->model, &loss, counted > 0));
    if (w->examples.spec.kind >= BY_EXAMPLE_MLM)
        return BY_OK;
    BY_TRY(read_out(e, p, 0, by_io_output(by_pass_io(p), "logits")));
    const by_tensor *second = by_io_output(by_pass_io(p), "second");
    e->starts = second && by_rank(second) == 3 ? (int)by_dim(second, 1) : 0;
    e->width = e->starts ? (int)by_dim(second, 2) : 0;
    BY_TRY(read_out(e, p, 1, by_io_output(by_pass_io(p), "second")));
    for (int i = 0; i < count; i++)
        take_row(e, i, groups->rows[first + i]);
    return BY_OK;
}

/* ---- metrics --------------------------------------------------------------------------------- */

/* A copy of the answer, or "". */
static char *answer_text(const train_task *w, const data_example *x, const data_best *b)
{
    if (b->end <= b->start || (w->may_be_none && data_best_margin(b) > w->spec.null_threshold))
        return base_strdup("");
    return base_sprintf("%.*s", (int)(b->end - b->start), x->pair + b->start);
}

static by_status count_answer(const evaluation *e, score_metrics *m, const data_example *x, const guess *g)
{
    char *predicted = answer_text(e->w, x, &g->best);
    const char **actual = base_alloc_zero((size_t)x->n_answers + 1, sizeof *actual);
    by_status s = predicted && actual ? BY_OK : BY_ERR_MEMORY;
    base_arena *texts = s == BY_OK ? base_arena_new() : NULL;
    for (int i = 0; i < x->n_answers && texts && s == BY_OK; i++) {
        const data_answer a = x->answers[i];
        actual[i] = base_arena_sprintf(texts, "%.*s", (int)(a.end - a.start), x->pair + a.start);
        s = actual[i] ? BY_OK : BY_ERR_MEMORY;
    }
    if (s == BY_OK)
        s = texts ? score_metrics_answer(m, predicted, actual, x->n_answers) : BY_ERR_MEMORY;
    base_arena_free(texts);
    base_free(predicted);
    base_free(actual);
    return s;
}

static by_status count_each(const evaluation *e, score_metrics *m, const data_example *x, const guess *g)
{
    const int labels = by_model_labels(e->w->model);
    uint8_t *flags = base_alloc_zero((size_t)labels * 2, 1);
    if (!flags)
        return BY_ERR_MEMORY;
    for (int i = 0; i < labels; i++)
        flags[i] = g->values[i] > 0.5f;
    for (int i = 0; i < x->n_labels; i++)
        flags[labels + x->values[i]] = 1;
    score_metrics_each(m, flags, flags + labels);
    base_free(flags);
    return BY_OK;
}

static by_status count_example(const evaluation *e, score_metrics *m, const data_example *x, guess *g)
{
    float actual;
    switch (e->w->examples.spec.kind) {
    case BY_EXAMPLE_CLASSIFY:
        if (g->values)
            return count_each(e, m, x, g);
        score_metrics_class(m, g->label, x->values[0]);
        break;
    case BY_EXAMPLE_CHOICE:
        score_metrics_class(m, g->label, x->values[0]);
        break;
    case BY_EXAMPLE_REGRESS:
        for (int i = 0; i < x->n_labels; i++) {
            BY_TRY(data_example_number(&e->w->examples, x, i, &actual));
            BY_TRY(score_metrics_number(m, g->values[i], actual));
        }
        break;
    case BY_EXAMPLE_TAG: /* a word without tokens gets the first label */
        for (int i = 0; i < x->n_labels; i++)
            g->tags[i] = BY_MAX(g->tags[i], 0);
        score_metrics_tags(m, g->tags, x->values, x->n_labels);
        break;
    case BY_EXAMPLE_ANSWER:
        return count_answer(e, m, x, g);
    default:
        break;
    }
    return BY_OK;
}

static score_metrics *metrics_for(const train_task *w, const char **names)
{
    const int labels = by_model_labels(w->model);
    switch (w->examples.spec.kind) {
    case BY_EXAMPLE_CLASSIFY:
        return score_metrics_new(w->examples.spec.separator ? SCORE_METRICS_EACH : SCORE_METRICS_CLASSES,
                                 names, labels);
    case BY_EXAMPLE_REGRESS:
        return score_metrics_new(SCORE_METRICS_NUMBERS, NULL, 0);
    case BY_EXAMPLE_TAG:
        return score_metrics_new(score_metrics_of_tags(names, labels), names, labels);
    case BY_EXAMPLE_CHOICE:
        return score_metrics_new(SCORE_METRICS_CLASSES, NULL, w->rows.spec.together);
    default:
        return score_metrics_new(SCORE_METRICS_ANSWERS, NULL, 0);
    }
}

static by_status count_all(const evaluation *e, by_task_result *out)
{
    const train_task *w = e->w;
    if (w->examples.spec.kind >= BY_EXAMPLE_MLM) {
        out->metrics[out->n_metrics++] = (by_metric){"perplexity", exp(out->loss)};
        out->score = -out->loss;
        return BY_OK;
    }
    const int labels = by_model_labels(w->model);
    const char **names = base_alloc_zero((size_t)BY_MAX(labels, 1), sizeof *names);
    for (int i = 0; names && i < labels; i++)
        names[i] = by_model_label_name(w->model, i);
    score_metrics *m = names ? metrics_for(w, names) : NULL;
    by_status s = m ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < w->examples.count && s == BY_OK; i++)
        s = count_example(e, m, &w->examples.list[i], &e->guesses[i]);
    if (s == BY_OK) {
        out->n_metrics = score_metrics_read(m, out->metrics);
        if (w->examples.spec.kind == BY_EXAMPLE_CHOICE)
            out->n_metrics = 1; /* the index of a choice has no meaning across examples */
        out->score = isfinite(out->metrics[0].value) ? out->metrics[0].value : -out->loss;
    }
    score_metrics_free(m);
    base_free(names);
    return s;
}

/* ---- predictions ----------------------------------------------------------------------------- */

static void put_name(base_buf *out, const char *key, const char *name)
{
    base_buf_printf(out, ", \"%s\": ", key);
    base_json_quote(out, name);
}

static void put_names(const train_task *w, base_buf *out, const char *key, const int *values, int count)
{
    base_buf_printf(out, ", \"%s\": [", key);
    for (int i = 0; i < count; i++) {
        base_buf_puts(out, i ? ", " : "");
        base_json_quote(out, by_model_label_name(w->model, values[i]));
    }
    base_buf_puts(out, "]");
}

static void put_each(const train_task *w, base_buf *out, const data_example *x, const guess *g)
{
    const int labels = by_model_labels(w->model);
    int count = 0;
    base_buf_puts(out, ", \"labels\": [");
    for (int i = 0; i < labels; i++)
        if (g->values[i] > 0.5f) {
            base_buf_puts(out, count++ ? ", " : "");
            base_json_quote(out, by_model_label_name(w->model, i));
        }
    base_buf_puts(out, "], \"scores\": [");
    for (int i = 0; i < labels; i++)
        base_buf_printf(out, i ? ", %.6g" : "%.6g", (double)g->values[i]);
    base_buf_puts(out, "]");
    put_names(w, out, "actual", x->values, x->n_labels);
}

static void put_words(base_buf *out, const data_example *x)
{
    base_buf word = {0};
    base_buf_puts(out, ", \"words\": [");
    for (int i = 0; i < x->n_labels; i++) {
        word.size = 0;
        base_buf_put(&word, x->text + x->words[i].start, x->words[i].end - x->words[i].start);
        base_buf_puts(out, i ? ", " : "");
        base_json_quote(out, word.data ? word.data : "");
    }
    base_buf_puts(out, "]");
    out->failed = out->failed || word.failed;
    base_buf_free(&word);
}

/* Start offset in characters, as in SQuAD. */
static int characters(const char *text, uint32_t bytes)
{
    int n = 0;
    for (uint32_t i = 0; i < bytes; i++)
        n += ((uint8_t)text[i] & 0xc0) != 0x80;
    return n;
}

static void put_answer(const train_task *w, base_buf *out, const data_example *x, const guess *g)
{
    char *answer = answer_text(w, x, &g->best);
    put_name(out, "answer", answer ? answer : "");
    if (answer && *answer)
        base_buf_printf(out, ", \"answer_start\": %d", characters(x->pair, g->best.start));
    base_buf_printf(out, ", \"score\": %.6g, \"null_score\": %.6g", g->best.score, g->best.none);
    base_free(answer);
}

static void put_example(const train_task *w, base_buf *out, const data_example *x, const guess *g)
{
    base_buf_printf(out, "{\"line\": %d", x->line);
    if (x->id)
        put_name(out, "id", x->id);
    switch (w->examples.spec.kind) {
    case BY_EXAMPLE_CLASSIFY:
        if (g->values) {
            put_each(w, out, x, g);
            break;
        }
        put_name(out, "label", by_model_label_name(w->model, g->label));
        base_buf_printf(out, ", \"score\": %.6g", (double)g->score);
        put_name(out, "actual", by_model_label_name(w->model, x->values[0]));
        break;
    case BY_EXAMPLE_REGRESS:
        for (int i = 0; i < x->n_labels; i++)
            base_buf_printf(out, i ? ", %.6g" : ", \"values\": [%.6g", (double)g->values[i]);
        for (int i = 0; i < x->n_labels; i++) {
            float actual = NAN;
            data_example_number(&w->examples, x, i, &actual);
            base_buf_printf(out, i ? ", %.6g" : "], \"actual\": [%.6g", (double)actual);
        }
        base_buf_puts(out, "]");
        break;
    case BY_EXAMPLE_TAG:
        put_words(out, x);
        put_names(w, out, "labels", g->tags, x->n_labels);
        put_names(w, out, "actual", x->values, x->n_labels);
        break;
    case BY_EXAMPLE_CHOICE:
        base_buf_printf(out, ", \"choice\": %d, \"score\": %.6g, \"actual\": %d", g->label, (double)g->score,
                        x->values[0]);
        break;
    default:
        put_answer(w, out, x, g);
    }
    base_buf_puts(out, "}\n");
}

static by_status write_predictions(const evaluation *e, const char *path)
{
    const train_task *w = e->w;
    base_writer file;
    if (w->examples.spec.kind >= BY_EXAMPLE_MLM)
        return base_fail(BY_ERR_ARGUMENT, "a language model has no predictions to write");
    BY_TRY(base_writer_open(&file, path));
    base_buf line = {0};
    by_status s = BY_OK;
    for (int i = 0; i < w->examples.count && s == BY_OK; i++) {
        line.size = 0;
        put_example(w, &line, &w->examples.list[i], &e->guesses[i]);
        s = line.failed ? base_fail(BY_ERR_MEMORY, "out of memory writing predictions")
                        : base_writer_put(&file, line.data, line.size);
    }
    base_buf_free(&line);
    if (s == BY_OK)
        return base_writer_finish(&file);
    base_writer_abort(&file);
    return s;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static by_status evaluate_all(evaluation *e, const char *predictions, by_task_result *out)
{
    data_row_groups groups = {0};
    BY_TRY(make_guesses(e));
    by_status s = data_rows_by_length(&e->w->rows, e->w->spec.batch, &groups);
    for (int g = 0; g < groups.count && s == BY_OK; g++)
        s = run_group(e, &groups, g);
    data_row_groups_free(&groups);
    BY_TRY(s);
    out->loss = e->counted ? e->loss / (double)e->counted : (double)NAN;
    BY_TRY(count_all(e, out));
    return predictions ? write_predictions(e, predictions) : BY_OK;
}

by_status train_task_evaluate(train_task *w, by_passes *passes, const char *predictions, by_task_result *out)
{
    evaluation e = {.w = w, .passes = passes};
    const double begin = base_seconds();
    *out = (by_task_result){.loss = NAN, .score = NAN, .cases = w->examples.count, .rows = w->rows.count};
    by_status s = evaluate_all(&e, predictions, out);
    out->seconds = base_seconds() - begin;
    base_arena_free(e.arena);
    base_free(e.out[0]);
    base_free(e.out[1]);
    return s;
}
