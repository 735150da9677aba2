/* task_batches.c - converts examples to batches with targets. See task_batches.h. */
#include "train/task_batches.h"

#include "data/spans.h"

#include "data/objective.h"

enum { IGNORED = -100 };

by_task train_task_task(by_example_kind kind)
{
    static const by_task tasks[] = {[BY_EXAMPLE_CLASSIFY] = BY_TASK_CLASSIFY,
                                    [BY_EXAMPLE_REGRESS] = BY_TASK_CLASSIFY,
                                    [BY_EXAMPLE_TAG] = BY_TASK_TAG,
                                    [BY_EXAMPLE_ANSWER] = BY_TASK_ANSWER,
                                    [BY_EXAMPLE_CHOICE] = BY_TASK_CHOICE,
                                    [BY_EXAMPLE_SEQ2SEQ] = BY_TASK_SEQ2SEQ,
                                    [BY_EXAMPLE_IMAGE_CLASSIFY] = BY_TASK_CLASSIFY,
                                    [BY_EXAMPLE_CAPTION] = BY_TASK_SEQ2SEQ,
                                    [BY_EXAMPLE_MLM] = BY_TASK_MLM,
                                    [BY_EXAMPLE_LM] = BY_TASK_LM,
                                    [BY_EXAMPLE_IMAGE] = BY_TASK_LM};
    return tasks[kind];
}

by_problem train_task_problem(const by_examples_spec *data)
{
    if (data->kind == BY_EXAMPLE_REGRESS)
        return BY_PROBLEM_REGRESSION;
    return data->kind == BY_EXAMPLE_CLASSIFY && data->separator ? BY_PROBLEM_MANY_LABELS
                                                                : BY_PROBLEM_ONE_LABEL;
}

by_status train_task_check(const by_model *m, const by_examples_spec *data)
{
    const by_task needed = train_task_task(data->kind);
    if (by_model_task(m) != needed)
        return base_fail(BY_ERR_ARGUMENT, "%s is for the task \"%s\", not \"%s\"",
                         base_a(by_model_class(m)).text, by_task_name(by_model_task(m)),
                         by_task_name(needed));
    if (needed == BY_TASK_CLASSIFY && by_model_problem(m) != train_task_problem(data))
        return base_fail(BY_ERR_ARGUMENT, "the model has %s, but the data has %s",
                         by_model_problem(m) == BY_PROBLEM_REGRESSION    ? "numbers"
                         : by_model_problem(m) == BY_PROBLEM_MANY_LABELS ? "several labels per text"
                                                                         : "one label per text",
                         data->kind == BY_EXAMPLE_REGRESS ? "numbers"
                         : data->separator                ? "several labels per text"
                                                          : "one label per text");
    return BY_OK;
}

const char *train_task_title(by_example_kind kind)
{
    static const char *const titles[] = {[BY_EXAMPLE_CLASSIFY] = "text classification",
                                         [BY_EXAMPLE_REGRESS] = "regression",
                                         [BY_EXAMPLE_TAG] = "word tagging",
                                         [BY_EXAMPLE_ANSWER] = "question answering",
                                         [BY_EXAMPLE_CHOICE] = "multiple choice",
                                         [BY_EXAMPLE_SEQ2SEQ] = "sequence to sequence",
                                         [BY_EXAMPLE_IMAGE_CLASSIFY] = "image classification",
                                         [BY_EXAMPLE_CAPTION] = "captions",
                                         [BY_EXAMPLE_MLM] = "masked language modelling",
                                         [BY_EXAMPLE_LM] = "language modelling",
                                         [BY_EXAMPLE_IMAGE] = "pixel models"};
    return titles[kind];
}

const char *train_task_loss_unit(const by_examples_spec *data)
{
    switch (data->kind) {
    case BY_EXAMPLE_CLASSIFY:
        return data->separator ? "nats per label" : "nats per example";
    case BY_EXAMPLE_REGRESS:
        return "squared error";
    case BY_EXAMPLE_TAG:
        return "nats per word";
    case BY_EXAMPLE_ANSWER:
        return "nats per start or end";
    case BY_EXAMPLE_CHOICE:
        return "nats per example";
    default:
        return "nats per token";
    }
}

bool train_task_has_names(by_example_kind kind)
{
    return kind == BY_EXAMPLE_CLASSIFY || kind == BY_EXAMPLE_TAG;
}

by_status train_task_number(const by_model *m, data_examples *c)
{
    const bool choice = c->spec.kind == BY_EXAMPLE_CHOICE;
    data_labels labels = {.count = choice ? c->list[0].n_choices : by_model_labels(m)};
    if (!choice && !train_task_has_names(c->spec.kind))
        return BY_OK;
    labels.names = base_alloc_zero((size_t)labels.count, sizeof *labels.names);
    if (!labels.names)
        return BY_ERR_MEMORY;
    for (int i = 0; i < labels.count; i++) /* choices have numbers only */
        labels.names[i] = choice ? "" : by_model_label_name(m, i);
    by_status s = data_examples_number(c, &labels);
    base_free(labels.names);
    return s;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool has_windows(by_example_kind k)
{
    return k == BY_EXAMPLE_ANSWER || k == BY_EXAMPLE_TAG || k >= BY_EXAMPLE_MLM;
}

/* A decoder also learns where a text ends. */
static by_status add_text(train_task *w, const data_example *x, const char *end)
{
    if (!end)
        return data_rows_add(&w->rows, x->text, x->pair);
    char *whole = base_sprintf("%s%s", x->text, end);
    by_status s = whole ? data_rows_add(&w->rows, whole, NULL) : BY_ERR_MEMORY;
    base_free(whole);
    return s;
}

static by_status add_example(train_task *w, const data_example *x, const char *end)
{
    if (w->examples.spec.kind != BY_EXAMPLE_CHOICE)
        return add_text(w, x, end);
    for (int k = 0; k < x->n_choices; k++)
        BY_TRY(data_rows_add(&w->rows, x->text, x->choices[k]));
    return BY_OK;
}

static by_status add_examples(train_task *w)
{
    const int eos = by_tokenizer_eos(w->tokenizer);
    const bool ends = w->examples.spec.kind == BY_EXAMPLE_LM && eos >= 0;
    char *end = ends ? by_decode(w->tokenizer, &eos, 1, NULL) : NULL;
    by_status s = ends && !end ? base_error_status() : BY_OK;
    for (int i = 0; i < w->examples.count && s == BY_OK; i++)
        if ((s = add_example(w, &w->examples.list[i], end)) != BY_OK)
            base_fail_context("%s, line %d", w->examples.path, w->examples.list[i].line);
    by_release(end);
    return s;
}

/* Checks properties that all examples must share. */
static by_status check_examples(train_task *w)
{
    const data_examples *c = &w->examples;
    for (int i = 0; i < c->count; i++) {
        const data_example *x = &c->list[i], *first = &c->list[0];
        w->may_be_none = w->may_be_none || (c->spec.kind == BY_EXAMPLE_ANSWER && !x->n_answers);
        if (x->n_choices != first->n_choices)
            return data_examples_fail(c, x->line, "%d choices, but the first case has %d", x->n_choices,
                                      first->n_choices);
        if (c->spec.kind == BY_EXAMPLE_CHOICE && (x->values[0] < 0 || x->values[0] >= x->n_choices))
            return data_examples_fail(c, x->line, "the label is choice \"%s\", but there are %d choices",
                                      x->labels[0], x->n_choices);
        if (c->spec.kind == BY_EXAMPLE_REGRESS && x->n_labels != by_model_labels(w->model))
            return data_examples_fail(c, x->line, "%d numbers, but the model predicts %d", x->n_labels,
                                      by_model_labels(w->model));
    }
    return BY_OK;
}

static by_status open_masker(train_task *w)
{
    const data_masking how = data_masking_usual(DATA_OBJECTIVE_MLM);
    BY_TRY(data_masker_open(&w->masker, &how, w->tokenizer));
    return w->masker.masked >= 0 ? BY_OK : base_fail(BY_ERR_UNSUPPORTED, "the tokenizer has no mask token");
}

by_status train_task_open(train_task *w, data_examples *examples, by_model *m, const by_tokenizer *t,
                          const by_row_spec *spec)
{
    *w = (train_task){.spec = *spec, .examples = *examples, .model = m, .tokenizer = t};
    *examples = (data_examples){0};
    const by_example_kind kind = w->examples.spec.kind;
    if (kind == BY_EXAMPLE_SEQ2SEQ || data_kind_is_picture(kind))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "by_task_evaluate does not support pictures and encoder-decoders");
    if (kind == BY_EXAMPLE_LM && by_model_pads_left(m))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s is not a left-to-right language model; 'banyan train --init-from' trains it "
                         "with the objective of its family",
                         base_a(by_model_class(m)).text);
    if (!w->spec.overlap)
        w->spec.overlap = 128;
    if (!w->spec.longest_answer)
        w->spec.longest_answer = 30;
    if (!w->spec.batch)
        w->spec.batch = 32;
    BY_TRY(check_examples(w));
    if (kind == BY_EXAMPLE_MLM)
        BY_TRY(open_masker(w));
    const int together = kind == BY_EXAMPLE_CHOICE ? w->examples.list[0].n_choices : 1;
    w->spec.batch = BY_MAX(w->spec.batch / together, 1) * together;
    BY_TRY(data_rows_init(&w->rows, m, t,
                          &(data_rows_spec){.limit = spec->limit,
                                            .windows = has_windows(kind),
                                            .overlap = kind >= BY_EXAMPLE_MLM ? 0 : w->spec.overlap,
                                            .offsets = kind == BY_EXAMPLE_ANSWER || kind == BY_EXAMPLE_TAG,
                                            .together = together}));
    return add_examples(w);
}

void train_task_close(train_task *w)
{
    data_examples_close(&w->examples);
    data_rows_free(&w->rows);
    data_row_batch_free(&w->batch);
    base_free(w->targets);
    base_free(w->second);
    base_free(w->none);
    base_free(w->answers.cells);
    base_free(w->numbers);
    data_masker_close(&w->masker);
    base_free(w->hidden);
    base_free(w->weights);
    *w = (train_task){0};
}

/* ---- words ----------------------------------------------------------------------------------- */

bool train_task_owns(const train_task *w, int row, int t)
{
    const data_row *r = &w->rows.list[row], *next = r + 1;
    const uint8_t *part = w->rows.parts + r->first;
    int before = 0, after = 0; /* neighbouring tokens of the text */
    for (int i = 0; i < r->count; i++) {
        before += i < t && part[i] == BY_FROM_TEXT;
        after += i > t && part[i] == BY_FROM_TEXT;
    }
    const bool more = row + 1 < w->rows.count && next->example == r->example;
    return before >= r->repeated / 2 && (!more || after >= next->repeated - next->repeated / 2);
}

int train_task_word(const train_task *w, int row, const data_example *x, int word)
{
    const data_row *r = &w->rows.list[row];
    const by_offset at = x->words[word], *places = w->rows.offsets + r->first;
    const uint8_t *part = w->rows.parts + r->first;
    for (int t = 0; t < r->count; t++)
        if (part[t] == BY_FROM_TEXT && places[t].end > at.start && places[t].start < at.end)
            return t > 0 && part[t - 1] != BY_FROM_TEXT && r->window > 0 && places[t].start > at.start
                       ? -1 /* its first token is in the previous window */
                       : t;
    return -1;
}

/* ---- targets --------------------------------------------------------------------------------- */

static by_status reserve(train_task *w, size_t n)
{
    if (n <= w->room)
        return BY_OK;
    int32_t *targets = base_resize(w->targets, n, sizeof *targets);
    w->targets = targets ? targets : w->targets;
    int32_t *second = base_resize(w->second, n, sizeof *second);
    w->second = second ? second : w->second;
    int32_t *none = base_resize(w->none, n, sizeof *none);
    w->none = none ? none : w->none;
    float *numbers = base_resize(w->numbers, n, sizeof *numbers);
    w->numbers = numbers ? numbers : w->numbers;
    if (!targets || !second || !none || !numbers)
        return BY_ERR_MEMORY;
    w->room = n;
    return BY_OK;
}

static void put_labels(train_task *w, int b, const data_example *x)
{
    const int labels = by_model_labels(w->model);
    if (by_model_problem(w->model) == BY_PROBLEM_ONE_LABEL) {
        w->targets[b] = x->values[0];
        return;
    }
    for (int i = 0; i < labels; i++)
        w->targets[b * labels + i] = 0;
    for (int i = 0; i < x->n_labels; i++)
        w->targets[b * labels + x->values[i]] = 1;
}

static by_status put_numbers(train_task *w, int b, const data_example *x)
{
    for (int i = 0; i < x->n_labels; i++)
        BY_TRY(data_example_number(&w->examples, x, i, &w->numbers[b * x->n_labels + i]));
    return BY_OK;
}

/* The first token of a word has its label; the others are ignored. */
static void put_tags(train_task *w, int b, int row, const data_example *x)
{
    const int seq = w->batch.batch.seq, start = data_rows_start(&w->rows, row, seq);
    for (int i = 0; i < x->n_labels; i++) {
        int t = train_task_word(w, row, x, i);
        if (t >= 0 && train_task_owns(w, row, t))
            w->targets[b * seq + start + t] = x->values[i];
    }
}

/* The first and last token of the answer, or the classification token if the window does not contain all of
 * it. */
static void put_answer(train_task *w, int b, int row, const data_example *x)
{
    const data_row *r = &w->rows.list[row];
    const by_offset *places = w->rows.offsets + r->first;
    const uint8_t *part = w->rows.parts + r->first;
    const int start = data_rows_start(&w->rows, row, w->batch.batch.seq);
    int first = -1, last = -1;
    w->targets[b] = w->second[b] = start + data_none_place(&w->rows, row);
    w->none[b] = 1;
    if (!x->n_answers)
        return;
    const data_answer a = x->answers[0];
    bool begun = false, ended = false;
    for (int t = 0; t < r->count; t++) {
        if (part[t] != BY_FROM_PAIR)
            continue;
        begun = begun || places[t].start <= a.start;
        ended = ended || places[t].end >= a.end;
        if (first < 0 && places[t].end > a.start)
            first = t;
        if (places[t].start < a.end)
            last = t;
    }
    if (begun && ended && first >= 0 && first <= last) {
        w->targets[b] = start + first;
        w->second[b] = start + last;
        w->none[b] = 0;
    }
}

/* Masked as in pretraining: data/mask.c. */
static by_status hide_tokens(train_task *w, int b, int row, uint64_t seed)
{
    const int used = w->rows.list[row].count, most = data_mask_picks(&w->masker.how, used);
    const size_t at = (size_t)b * (size_t)w->batch.batch.seq;
    base_rng random = base_rng_make(seed, (uint64_t)row);
    int32_t *pick = base_resize(w->hidden, 3 * (size_t)used + 2 * (size_t)most, sizeof *pick);
    if (!pick)
        return BY_ERR_MEMORY;
    w->hidden = pick;
    int32_t *was = pick + most;
    int n = data_mask_row(&w->masker, &random, w->batch.cells + at, used, most, pick, was, was + most);
    for (int k = 0; k < n; k++)
        w->targets[at + (size_t)pick[k]] = was[k];
    return BY_OK;
}

static void put_next(train_task *w, int b, int row)
{
    const int seq = w->batch.batch.seq;
    for (int t = 0; t + 1 < w->rows.list[row].count; t++)
        w->targets[b * seq + t] = w->batch.cells[b * seq + t + 1];
}

static by_status put_targets(train_task *w, int b, int row, uint64_t seed)
{
    const data_example *x = &w->examples.list[w->rows.list[row].example / w->rows.spec.together];
    switch (w->examples.spec.kind) {
    case BY_EXAMPLE_CLASSIFY:
        put_labels(w, b, x);
        break;
    case BY_EXAMPLE_REGRESS:
        return put_numbers(w, b, x);
    case BY_EXAMPLE_TAG:
        put_tags(w, b, row, x);
        break;
    case BY_EXAMPLE_ANSWER:
        put_answer(w, b, row, x);
        break;
    case BY_EXAMPLE_CHOICE:
        w->targets[b / w->rows.spec.together] = x->values[0];
        break;
    case BY_EXAMPLE_MLM:
        return hide_tokens(w, b, row, seed);
    case BY_EXAMPLE_LM:
        put_next(w, b, row);
        break;
    default: /* train_task_open refuses the others */
        break;
    }
    return BY_OK;
}

void train_task_weigh(train_task *w)
{
    const int64_t labels = by_model_labels(w->model);
    by_batch_put(&w->batch.batch, "class_weights", BY_F32, 1, &labels, w->weights);
}

by_status train_task_batch(train_task *w, const int *rows, int count, int height, uint64_t seed,
                           int64_t *counted)
{
    BY_TRY(data_rows_batch(&w->rows, rows, count, height, &w->batch));
    by_batch *b = &w->batch.batch;
    const int64_t n = by_batch_targets(w->model, b);
    BY_TRY(reserve(w, (size_t)BY_MAX(n, b->batch)));
    for (int64_t i = 0; i < BY_MAX(n, b->batch); i++)
        w->targets[i] = w->second[i] = w->none[i] = IGNORED;
    for (int i = 0; i < count; i++)
        BY_TRY(put_targets(w, i, rows[i], seed));
    const bool numbers = w->examples.spec.kind == BY_EXAMPLE_REGRESS;
    by_batch_put(b, "targets", numbers ? BY_F32 : BY_I32, 1, &n,
                 numbers ? (const void *)w->numbers : w->targets);
    by_batch_put_ids(b, "second_targets", b->batch,
                     w->examples.spec.kind == BY_EXAMPLE_ANSWER ? w->second : NULL);
    if (w->examples.spec.kind == BY_EXAMPLE_ANSWER) {
        BY_TRY(data_answer_inputs_put(&w->answers, &w->rows, rows, count, b));
        by_batch_put_ids(b, "is_impossible", b->batch, by_batch_find(b, "p_mask") ? w->none : NULL);
    }
    *counted = numbers ? n : 0;
    for (int64_t i = 0; i < n && !numbers; i++)
        *counted += w->targets[i] != IGNORED;
    return BY_OK;
}
