/* distill_vectors.c - distillation of sentence embedders, as a client of the loop. Rows are sentences, and
 * the loss compares pooled vectors. Evaluation measures how similarly both models rank pairs of held-out
 * sentences. */
#include <math.h>

#include "align/distill_run.h"
#include "banyan/weights.h"
#include "base/file.h"
#include "data/rows.h"
#include "infer/embed.h"
#include "score/task_metrics.h"
#include "train/loop.h"
#include "train/task_batches.h"

enum { FEW_PASSES = 24, MOST_HELD = 512 }; /* sentences whose pairs are all compared */

typedef struct vectors {
    distill_run *r;
    const by_distill_run_spec *asked;
    by_distill_run_spec spec; /* defaults filled in */
    by_embedder *teacher;     /* provides the pooling; another copy of its model teaches */
    by_model *student;
    by_trainer *trainer;
    by_passes *passes;
    by_memory *memory;
    data_rows rows, held;
    uint64_t data_hash;
    data_row_batch batch;
    data_row_groups groups;
    float *weights;
    size_t room;
    float *wanted, *own;             /* (held, width): vectors of the held-out sentences */
    float *wanted_pairs, *own_pairs; /* cosine similarities of all pairs of them */
    int64_t epoch, epoch_steps;
    by_metric metrics[BY_METRICS_MAX];
    train_loop loop;
} vectors;

/* ---- batches ----------------------------------------------------------------------------------- */

/* Adds the pooling weights of the hidden states to the batch. */
static by_status pool(vectors *v, const data_rows *rows, const int *list, int count)
{
    by_batch *b = &v->batch.batch;
    const size_t cells = (size_t)b->batch * (size_t)b->seq;
    if (cells > v->room) {
        float *more = base_resize(v->weights, cells, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        v->weights = more;
        v->room = cells;
    }
    memset(v->weights, 0, cells * sizeof *v->weights);
    for (int i = 0; i < count; i++) {
        const int n = rows->list[list[i]].count, first = data_rows_start(rows, list[i], b->seq);
        float *w = v->weights + (size_t)i * (size_t)b->seq + (size_t)first;
        for (int t = 0; t < n; t++)
            w[t] = gen_embed_weight(v->teacher->pooling, t, n);
    }
    by_batch_put(b, "pool_weights", BY_F32, 2, (int64_t[]){b->batch, b->seq}, v->weights);
    return BY_OK;
}

static by_status make_batch(vectors *v, const data_rows *rows, const int *list, int count)
{
    BY_TRY(data_rows_batch(rows, list, count, count, &v->batch));
    return pool(v, rows, list, count);
}

/* ---- steps ------------------------------------------------------------------------------------- */

static by_status enter_epoch(vectors *v, int64_t epoch)
{
    if (epoch == v->epoch)
        return BY_OK;
    data_row_groups_free(&v->groups);
    v->epoch = epoch;
    return data_rows_shuffled(&v->rows, v->spec.batch, v->spec.seed + (uint64_t)epoch, &v->groups);
}

static by_status step(void *self, int64_t step, double rate, train_work *work)
{
    vectors *v = self;
    BY_TRY(enter_epoch(v, step / v->epoch_steps));
    int64_t g = step % v->epoch_steps * v->spec.accumulate;
    const int64_t end = BY_MIN(g + v->spec.accumulate, v->groups.count);
    for (bool first = true; g < end; g++, first = false) {
        const int from = v->groups.first[g], count = v->groups.first[g + 1] - from;
        BY_TRY(make_batch(v, &v->rows, v->groups.rows + from, count));
        BY_TRY(by_trainer_backward(v->trainer, &v->batch.batch, first, NULL));
        work->tokens += (double)count * v->batch.batch.seq;
    }
    BY_TRY(train_update(v->trainer, rate));
    return distill_update(v->r, rate, step);
}

static by_status read_losses(void *self, int count, double *losses, double *norms)
{
    return by_trainer_read(((vectors *)self)->trainer, count, losses, norms);
}

/* ---- evaluation -------------------------------------------------------------------------------- */

/* Unit vectors of all held-out sentences. */
static by_status embed(vectors *v, by_model *m, float *out)
{
    data_row_groups groups = {0};
    const int width = by_model_width(m);
    by_passes *passes =
        by_passes_new(m, &(by_pass_spec){.grads = BY_GRAD_NONE, .memory = &v->memory}, FEW_PASSES);
    float *some = base_alloc((size_t)v->spec.work.batch * (size_t)width * sizeof *some);
    by_status s = passes && some ? data_rows_by_length(&v->held, v->spec.work.batch, &groups) : BY_ERR_MEMORY;
    for (int g = 0; g < groups.count && s == BY_OK; g++) {
        const int *list = groups.rows + groups.first[g], count = groups.first[g + 1] - groups.first[g];
        s = make_batch(v, &v->held, list, count);
        by_pass *p = s == BY_OK ? by_passes_get(passes, &v->batch.batch) : NULL;
        if (s == BY_OK)
            s = p ? by_pass_run(p, &v->batch.batch) : base_error_status();
        if (s == BY_OK)
            s = by_pass_read(p, by_pass_summary(p), some);
        for (int i = 0; i < count && s == BY_OK; i++) {
            gen_embed_unit(some + (size_t)i * (size_t)width, width);
            memcpy(out + (size_t)list[i] * (size_t)width, some + (size_t)i * (size_t)width,
                   (size_t)width * sizeof *out);
        }
    }
    base_free(some);
    by_passes_free(passes);
    data_row_groups_free(&groups);
    return s;
}

static int64_t pairs_of(const vectors *v)
{
    const int64_t n = BY_MIN(v->held.count, MOST_HELD);
    return n * (n - 1) / 2;
}

static void compare_pairs(const vectors *v, const float *x, int width, float *out)
{
    const int n = BY_MIN(v->held.count, MOST_HELD);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) {
            double dot = 0;
            for (int c = 0; c < width; c++)
                dot += (double)x[(size_t)i * (size_t)width + (size_t)c] *
                       (double)x[(size_t)j * (size_t)width + (size_t)c];
            *out++ = (float)dot;
        }
}

/* The mean cosine similarity of the two vectors of a sentence; NaN if the widths differ. */
static double mean_cosine(const vectors *v)
{
    const int width = by_model_width(v->student);
    double sum = 0;
    if (width != by_model_width(v->r->teacher))
        return NAN;
    for (size_t i = 0; i < (size_t)v->held.count * (size_t)width; i++)
        sum += (double)v->wanted[i] * (double)v->own[i];
    return sum / v->held.count;
}

/* Rank correlation comes first: it selects the best student. */
static by_status correlate(const vectors *v, by_task_result *out)
{
    score_metrics *m = score_metrics_new(SCORE_METRICS_NUMBERS, NULL, 1);
    by_metric all[BY_METRICS_MAX];
    by_status s = m ? BY_OK : BY_ERR_MEMORY;
    for (int64_t i = 0, n = pairs_of(v); i < n && s == BY_OK; i++)
        s = score_metrics_number(m, (double)v->own_pairs[i], (double)v->wanted_pairs[i]);
    const int count = s == BY_OK ? score_metrics_read(m, all) : 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < count; i++)
            if ((strcmp(all[i].name, "spearman") == 0) == (pass == 0))
                out->metrics[out->n_metrics++] = all[i];
    score_metrics_free(m);
    return s;
}

static by_status measure(vectors *v, by_task_result *out)
{
    const int64_t n = pairs_of(v);
    double error = 0;
    BY_TRY(embed(v, v->student, v->own));
    compare_pairs(v, v->own, by_model_width(v->student), v->own_pairs);
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)v->own_pairs[i] - (double)v->wanted_pairs[i];
        error += d * d / (double)n;
    }
    *out = (by_task_result){.loss = error, .cases = v->held.count, .rows = v->held.count};
    BY_TRY(correlate(v, out));
    const double cosine = mean_cosine(v);
    if (isfinite(cosine))
        out->metrics[out->n_metrics++] = (by_metric){"cosine", cosine};
    out->score = out->metrics[0].value;
    return BY_OK;
}

static by_status evaluate(void *self, by_report *p, double *score)
{
    vectors *v = self;
    by_task_result now;
    BY_TRY(distill_measure(v->r, v->trainer, p));
    BY_TRY(measure(v, &now));
    memcpy(v->metrics, now.metrics, sizeof v->metrics);
    p->eval_loss = now.loss;
    p->metrics = v->metrics;
    p->n_metrics = now.n_metrics;
    *score = now.score;
    return BY_OK;
}

/* ---- the model --------------------------------------------------------------------------------- */

static by_model_spec spec_of(const vectors *v)
{
    return (by_model_spec){.dtype = v->spec.dtype,
                           .training = true,
                           .stochastic_rounding = v->spec.stochastic_rounding,
                           .seed = v->spec.seed,
                           .task = BY_TASK_FEATURES};
}

static by_status save(void *self, const char *dir)
{
    const vectors *v = self;
    BY_TRY(train_model_save(v->student, v->r->tokenizer, dir));
    BY_TRY(by_companions_copy(v->spec.teacher, dir));
    return distill_save(v->r, dir);
}

static by_status load(void *self, const char *dir)
{
    vectors *v = self;
    by_model_spec spec = spec_of(v);
    spec.new_head = true;
    v->student = by_model_open(v->r->device, dir, &spec);
    return v->student ? train_model_load(v->student, dir) : base_error_status();
}

static by_status open_student(vectors *v)
{
    const by_model_spec spec = spec_of(v);
    BY_TRY(distill_student_open(v->r, &spec, &v->student));
    if (v->spec.dropout >= 0)
        by_model_set_dropout(v->student, v->spec.dropout);
    return BY_OK;
}

static by_status record(void *self, train_record *out)
{
    const vectors *v = self;
    const by_distill_run_spec *s = &v->spec;
    const struct {
        const char *key;
        double value;
        train_rule rule;
    } numbers[] = {{"limit", v->rows.spec.limit, TRAIN_SAME},
                   {"train_rows", v->rows.count, TRAIN_SAME},
                   {"eval_rows", v->held.count, TRAIN_SAME},
                   {"data_fingerprint", (double)(v->data_hash >> 12), TRAIN_SAME}};
    train_record_text(out, "family", by_model_family(v->student), TRAIN_SAME);
    train_record_text(out, "dtype", train_record_dtype(s->dtype, s->stochastic_rounding), TRAIN_SAME);
    for (int i = 0; i < BY_COUNT(numbers); i++)
        train_record_number(out, numbers[i].key, numbers[i].value, numbers[i].rule);
    train_loop_record(&v->loop, TRAIN_COURSE(s, v->r->device), out);
    distill_record(v->r, out);
    return BY_OK;
}

static void title(void *self, base_buf *out)
{
    train_log_title(out, ((vectors *)self)->student, "distillation of sentence vectors");
}

static const train_client client = {step, read_losses, evaluate, save, load, record, title, NULL};

/* ---- data -------------------------------------------------------------------------------------- */

/* Appends `count` texts, from `first` on, as rows. */
static by_status add_texts(vectors *v, data_rows *rows, const data_examples *e, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        v->data_hash = base_hash(e->list[i].text, strlen(e->list[i].text), v->data_hash);
        BY_TRY(data_rows_add(rows, e->list[i].text, NULL));
    }
    return BY_OK;
}

static by_status add_file(vectors *v, const char *path, bool held_alone)
{
    by_examples_spec reading = v->spec.reading;
    data_examples e = {0};
    reading.kind = BY_EXAMPLE_LM;
    by_status s = data_examples_open(&e, path, &reading);
    int held = held_alone ? e.count : v->spec.eval_count ? 0 : (int)(v->spec.eval_fraction * e.count);
    if (s == BY_OK)
        s = add_texts(v, &v->rows, &e, 0, e.count - held);
    if (s == BY_OK)
        s = add_texts(v, &v->held, &e, e.count - held, held);
    data_examples_close(&e);
    return s;
}

static by_status open_data(vectors *v)
{
    const by_distill_run_spec *s = &v->spec;
    const data_rows_spec how = {.limit = s->work.limit > 0 ? s->work.limit : v->teacher->limit};
    BY_TRY(data_rows_init(&v->rows, v->student, v->r->tokenizer, &how));
    BY_TRY(data_rows_init(&v->held, v->student, v->r->tokenizer, &how));
    for (int i = 0; i < s->data_count; i++)
        BY_TRY(add_file(v, s->data[i], false));
    for (int i = 0; i < s->eval_count; i++)
        BY_TRY(add_file(v, s->eval_data[i], true));
    if (v->rows.count < 1)
        return base_fail(BY_ERR_FORMAT, "%s: no sentences", s->data[0]);
    return BY_OK;
}

/* ---- set-up ------------------------------------------------------------------------------------ */

static by_status fill_defaults(vectors *v)
{
    by_distill_run_spec *s = &v->spec;
    s->batch = s->batch > 0 ? s->batch : 32;
    s->work.batch = s->work.batch > 0 ? s->work.batch : 32;
    s->accumulate = BY_MAX(s->accumulate, 1);
    const int64_t rows = (int64_t)s->batch * s->accumulate;
    v->epoch_steps = (v->rows.count + rows - 1) / rows;
    if (s->steps <= 0)
        s->steps = BY_MAX((int64_t)ceil((s->epochs > 0 ? s->epochs : 3) * (double)v->epoch_steps), 1);
    s->schedule.steps = s->steps;
    BY_TRY(train_loop_plan(&v->loop, s->steps));
    if (s->schedule.rate < 0)
        s->schedule.rate = 3e-4;
    if (s->schedule.warmup < 0)
        s->schedule.warmup = (int64_t)ceil(s->warmup_share * (double)v->loop.first_steps);
    if (s->eval_every <= 0)
        s->eval_every = v->epoch_steps;
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    s->log_every = BY_MAX(s->log_every, 1);
    s->keep = BY_MAX(s->keep, 1);
    v->epoch = -1;
    return BY_OK;
}

/* The teacher's vectors of the held-out sentences are computed once. */
static by_status make_wanted(vectors *v)
{
    const int width = by_model_width(v->r->teacher);
    const size_t n = (size_t)v->held.count, pairs = (size_t)pairs_of(v);
    v->wanted = base_alloc((n * (size_t)width + 1) * sizeof *v->wanted);
    v->own = base_alloc((n * (size_t)by_model_width(v->student) + 1) * sizeof *v->own);
    v->wanted_pairs = base_alloc((pairs + 1) * sizeof *v->wanted_pairs);
    v->own_pairs = base_alloc((pairs + 1) * sizeof *v->own_pairs);
    if (!v->wanted || !v->own || !v->wanted_pairs || !v->own_pairs)
        return BY_ERR_MEMORY;
    BY_TRY(embed(v, v->r->teacher, v->wanted));
    compare_pairs(v, v->wanted, width, v->wanted_pairs);
    return BY_OK;
}

static by_status make_trainer(vectors *v)
{
    const by_distill_run_spec *s = &v->spec;
    const by_distill_spec *t = &v->r->terms;
    v->trainer =
        by_trainer_new(v->student, &(by_trainer_spec){.accumulate = s->accumulate,
                                                      .recompute = s->recompute,
                                                      .optimizer = s->optimizer,
                                                      .seed = s->seed,
                                                      .loss = by_distill_loss,
                                                      .loss_user = &v->r->terms,
                                                      .hidden = t->layers != 0,
                                                      .scores = t->attention != 0 || t->relations != 0,
                                                      .many_shapes = true});
    if (!v->trainer)
        return base_error_status();
    data_row_groups groups = {0};
    by_status status = data_rows_by_length(&v->rows, s->batch, &groups); /* longest first */
    if (status == BY_OK)
        status = make_batch(v, &v->rows, groups.rows, groups.first[1]);
    if (status == BY_OK && !by_trainer_program(v->trainer, &v->batch.batch))
        status = base_error_status();
    data_row_groups_free(&groups);
    by_trainer_set_steps(v->trainer, v->loop.state.step);
    return status;
}

static by_status set_up(vectors *v)
{
    const by_distill_run_spec *s = &v->spec;
    const train_folder_use use = {.out = s->out,
                                  .overwrite = s->overwrite,
                                  .leaves_model = true,
                                  .model = s->teacher,
                                  .inputs = {{s->data, s->data_count}, {s->eval_data, s->eval_count}},
                                  .report = s->report,
                                  .user = s->user};
    v->teacher = by_embedder_open(v->r->device, s->teacher, &(by_embed_spec){.dtype = s->dtype});
    if (!v->teacher)
        return base_error_status();
    if (v->teacher->pooling == BY_POOLING_MAX || v->teacher->own)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "embedders with max pooling, or of CLIP models, cannot be distilled");
    BY_TRY(train_loop_open(&v->loop, &client, v, &use));
    BY_TRY(v->loop.last ? train_loop_load(&v->loop) : open_student(v));
    BY_TRY(open_data(v));
    BY_TRY(fill_defaults(v));
    BY_TRY(distill_begin(v->r, v->student, v->loop.last));
    BY_TRY(train_loop_check(&v->loop));
    BY_TRY(make_trainer(v));
    BY_TRY(make_wanted(v));
    return train_loop_begin(&v->loop, &(train_loop_spec){TRAIN_LOOP_SHARED(s), .evaluates = v->held.count > 1,
                                                         .device = v->r->device, .loss_unit = "loss"});
}

static void tear_down(vectors *v)
{
    by_trainer_free(v->trainer);
    by_memory_free(v->memory);
    by_model_free(v->student);
    by_embedder_free(v->teacher);
    data_rows_free(&v->rows);
    data_rows_free(&v->held);
    data_row_batch_free(&v->batch);
    data_row_groups_free(&v->groups);
    base_free(v->weights);
    base_free(v->wanted);
    base_free(v->own);
    base_free(v->wanted_pairs);
    base_free(v->own_pairs);
}

/* ---- the end ----------------------------------------------------------------------------------- */

static by_status take_best(vectors *v)
{
    const by_model_spec spec = {.dtype = v->spec.dtype, .new_head = true, .task = BY_TASK_FEATURES};
    by_model *m = train_checkpoint_best(&v->loop.folder, v->r->device, &spec);
    if (!m)
        return base_error_status();
    by_trainer_free(v->trainer);
    by_model_free(v->student);
    v->trainer = NULL;
    v->student = v->rows.model = v->held.model = m;
    return BY_OK;
}

/* Saves the folder in the sentence-transformers format, with the teacher's settings. */
static by_status leave(vectors *v)
{
    char *stage;
    train_folder *f = &v->loop.folder;
    BY_TRY(train_folder_stage(f, &stage));
    by_status s = by_model_save(v->student, stage, BY_F32);
    if (s == BY_OK)
        s = by_tokenizer_save(v->r->tokenizer, stage);
    if (s == BY_OK)
        s = by_companions_copy(v->spec.teacher, stage);
    if (s == BY_OK)
        s = train_folder_place_files(f, NULL);
    if (s != BY_OK)
        train_folder_unstage(f);
    base_free(stage);
    return s;
}

static by_status finish(vectors *v)
{
    by_distill_result *out = v->r->result;
    out->evaluated = v->held.count > 1;
    out->best_step = out->evaluated ? v->loop.state.best_step : v->loop.state.step;
    if (train_loop_best_is_older(&v->loop))
        BY_TRY(take_best(v));
    if (out->evaluated)
        BY_TRY(measure(v, &out->best));
    return leave(v);
}

static void describe(const vectors *v)
{
    char note[400];
    base_format(note, sizeof note,
                "%s: %.2f M parameters, %d layers, from a teacher of %.2f M, %d layers; %d sentences, %d "
                "held out; %lld steps",
                by_model_title(v->student), (double)v->r->result->parameters / 1e6,
                by_model_layers(v->student), (double)v->r->result->teacher_parameters / 1e6,
                by_model_layers(v->r->teacher), v->rows.count, v->held.count, (long long)v->spec.steps);
    train_loop_announce(&v->loop, note);
}

static by_status run(vectors *v)
{
    by_distill_result *out = v->r->result;
    BY_TRY(set_up(v));
    out->resumed_from = v->loop.state.step;
    out->parameters = by_params_elements(by_model_params(v->student));
    out->activation_bytes = by_trainer_bytes(v->trainer);
    out->state_bytes = by_trainer_state_bytes(v->trainer);
    out->loss_unit = "squared difference of cosines";
    describe(v);
    by_status s = train_loop_run(&v->loop);
    out->loss = v->loop.loss;
    out->stopped_early = v->loop.stopped_early;
    out->steps = v->loop.state.step;
    return s == BY_OK ? finish(v) : s;
}

by_status distill_vectors(distill_run *r)
{
    vectors v = {.r = r, .spec = r->spec, .loop = {.folder = {.lock = -1}}};
    by_status s = run(&v);
    train_loop_close(&v.loop, s);
    tear_down(&v);
    return s;
}
