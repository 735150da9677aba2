/* distill_run.c - by_distill_run: opens the teacher, chooses the kind of run, and is the lesson
 * (train/lesson.h) of by_train_run and by_finetune_run. */
#include <math.h>

#include "align/distill_run.h"
#include "base/file.h"
#include "train/defaults.h"
#include "train/task_batches.h"

/* ---- names and recipes ------------------------------------------------------------------------- */

static const char *const kinds[] = {"auto", "text", "examples", "vectors", "translate"};

const char *by_distill_name(by_distill_kind kind)
{
    return (unsigned)kind < BY_DISTILL_KINDS ? kinds[kind] : "?";
}

bool by_distill_find(const char *name, by_distill_kind *out)
{
    for (int i = 0; name && i < BY_DISTILL_KINDS; i++)
        if (strcmp(name, kinds[i]) == 0) {
            *out = (by_distill_kind)i;
            return true;
        }
    return false;
}

/* The weight of a term: the caller's, otherwise the recipe's. Negative becomes 0. */
static void choose(double *weight, double recipe)
{
    *weight = *weight < 0 ? 0 : *weight > 0 ? *weight : recipe;
}

static const struct {
    const char *name;
    double temperature, soft, task, cosine, layers, attention, relations;
} recipes[] = {{"distilbert", 2, 5, 2, 1, 0, 0, 0},
               {"tinybert", 1, 1, 0, 0, 1, 1, 0},
               {"minilm", 1, 1, 0, 0, 0, 0, 1},
               {"usual", 2, 1, 1, 0, 0, 0, 0}};

by_status by_distill_recipe(const char *name, by_distill_kind kind, by_distill_spec *terms)
{
    int i = 0;
    if (!name || !terms)
        return base_fail_missing(terms ? "recipe" : "by_distill_spec");
    while (i < BY_COUNT(recipes) && strcmp(recipes[i].name, name) != 0)
        i++;
    if (i == BY_COUNT(recipes))
        return base_fail(BY_ERR_ARGUMENT, "unknown recipe \"%s\"; available: distilbert, tinybert, minilm",
                         name);
    const bool vectors = kind == BY_DISTILL_VECTORS;
    choose(&terms->temperature, recipes[i].temperature);
    choose(&terms->soft,
           vectors || (kind == BY_DISTILL_TEXT && recipes[i].relations > 0) ? 0 : recipes[i].soft);
    choose(&terms->task, vectors ? 0 : recipes[i].task);
    choose(&terms->cosine, recipes[i].cosine);
    choose(&terms->hidden, 0);
    choose(&terms->layers, recipes[i].layers);
    choose(&terms->attention, recipes[i].attention);
    choose(&terms->relations, recipes[i].relations);
    choose(&terms->vector_cosine, vectors ? 1 : 0);
    choose(&terms->vector_error, 0);
    choose(&terms->vector_similarity, 0);
    return BY_OK;
}

by_distill_run_spec by_distill_defaults(void)
{
    const by_finetune_spec usual = by_finetune_defaults();
    return (by_distill_run_spec){.dropout = -1,
                                 .eval_fraction = 0.1,
                                 .student.shape = {.dropout = -1, .init_std = -1},
                                 .work = usual.work,
                                 .accumulate = 1,
                                 .batch_tokens = 2048,
                                 .schedule = usual.schedule,
                                 .warmup_share = usual.warmup_share,
                                 .optimizer = usual.optimizer,
                                 .seed = usual.seed,
                                 .eval_batches = -1,
                                 .keep = 1};
}

/* ---- the teacher ------------------------------------------------------------------------------- */

/* Whether the run distils sentence embeddings, which need no head. */
static bool wants_vectors(const char *teacher, by_distill_kind asked)
{
    char *modules = asked == BY_DISTILL_AUTO ? base_path_join(teacher, "modules.json") : NULL;
    const bool found = modules && base_file_exists(modules);
    base_free(modules);
    return found || asked == BY_DISTILL_VECTORS;
}

by_distill_kind distill_kind_of(const by_model *teacher, const char *dir, by_distill_kind asked)
{
    if (wants_vectors(dir, asked))
        return BY_DISTILL_VECTORS;
    if (asked != BY_DISTILL_AUTO)
        return asked;
    switch (by_model_task(teacher)) {
    case BY_TASK_LM:
    case BY_TASK_MLM:
    case BY_TASK_PRETRAIN:
        return BY_DISTILL_TEXT;
    case BY_TASK_SEQ2SEQ:
        return BY_DISTILL_TRANSLATE;
    case BY_TASK_FEATURES:
        return BY_DISTILL_VECTORS;
    default:
        return BY_DISTILL_EXAMPLES;
    }
}

/* A hash of the parameters' names and values. */
static by_status fingerprint(distill_run *r)
{
    const by_params *p = by_model_params(r->teacher);
    uint64_t hash = tok_hash(r->tokenizer);
    for (int i = 0; i < by_params_count(p); i++) {
        int64_t n = 1;
        for (int k = 0; k < by_params_rank(p, i); k++)
            n *= by_params_shape(p, i)[k];
        float *v = base_alloc((size_t)n * sizeof *v);
        by_status s = v ? by_params_get(p, i, BY_SLOT_VALUE, v) : BY_ERR_MEMORY;
        if (s == BY_OK)
            hash = base_hash(v, (size_t)n * sizeof *v,
                             base_hash(by_params_name(p, i), strlen(by_params_name(p, i)), hash));
        base_free(v);
        BY_TRY(s);
    }
    r->fingerprint = hash;
    return BY_OK;
}

static by_status open_teacher(distill_run *r)
{
    const bool vectors = wants_vectors(r->spec.teacher, r->spec.kind);
    const by_model_spec spec = {
        .dtype = r->spec.dtype, .new_head = vectors, .task = vectors ? BY_TASK_FEATURES : BY_TASK_DEFAULT};
    r->teacher = by_model_open(r->device, r->spec.teacher, &spec);
    by_pictures reads;
    if (r->teacher && by_model_pictures(r->teacher, &reads))
        return base_fail(BY_ERR_UNSUPPORTED,
                         "%s reads pictures, and distillation runs on text; train a DeiT with this teacher",
                         base_a(by_model_class(r->teacher)).text);
    r->tokenizer = r->teacher ? by_tokenizer_load(r->spec.teacher) : NULL;
    if (!r->tokenizer)
        return base_error_status();
    r->kind = distill_kind_of(r->teacher, r->spec.teacher, r->spec.kind);
    r->result->kind = r->kind;
    r->result->teacher_parameters = by_params_elements(by_model_params(r->teacher));
    r->result->teacher_layers = by_model_layers(r->teacher);
    return fingerprint(r);
}

/* ---- the projection ---------------------------------------------------------------------------- */

static const by_slot slots[] = {BY_SLOT_VALUE, BY_SLOT_MOMENT1, BY_SLOT_MOMENT2};

/* Elements of the projection in all slots. */
static size_t projection_room(const distill_run *r)
{
    return (size_t)by_params_elements(r->projection) * BY_COUNT(slots);
}

static by_status each_slot(const distill_run *r, float *at, bool sets)
{
    by_params *p = r->projection;
    for (int k = 0; k < BY_COUNT(slots); k++)
        for (int i = 0; i < by_params_count(p); i++) {
            BY_TRY(sets ? by_params_set(p, i, slots[k], at) : by_params_get(p, i, slots[k], at));
            int64_t n = 1;
            for (int a = 0; a < by_params_rank(p, i); a++)
                n *= by_params_shape(p, i)[a];
            at += n;
        }
    return BY_OK;
}

by_status distill_save(void *user, const char *dir)
{
    const distill_run *r = user;
    if (!r->projection)
        return BY_OK;
    char *path = base_path_join(dir, "projection.bin");
    float *v = base_alloc(projection_room(r) * sizeof *v);
    by_status s = path && v ? each_slot(r, v, false) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = base_file_write(path, v, projection_room(r) * sizeof *v);
    base_free(v);
    base_free(path);
    return s;
}

static by_status load_projection(const distill_run *r, const char *from)
{
    size_t size = 0;
    char *path = base_path_join(from, "projection.bin");
    char *text = path ? base_file_read(path, (size_t)1 << 31, &size) : NULL;
    float *v = base_alloc(projection_room(r) * sizeof *v);
    by_status s = text && v ? BY_OK : base_error_status();
    if (s == BY_OK && size != projection_room(r) * sizeof *v)
        s = base_fail(BY_ERR_FORMAT, "%s has %zu bytes, not %zu", path, size, projection_room(r) * sizeof *v);
    if (s == BY_OK) {
        memcpy(v, text, size);
        s = each_slot(r, v, true);
    }
    base_free(v);
    base_free(text);
    base_free(path);
    return s;
}

/* If the widths differ, hidden states are compared through a projection. */
static by_status make_projection(distill_run *r, const by_model *student, const char *from)
{
    const by_distill_spec *t = &r->terms;
    const bool compares =
        t->cosine != 0 || t->hidden != 0 || t->layers != 0 || t->vector_cosine != 0 || t->vector_error != 0;
    if (!compares || by_model_width(student) == by_model_width(r->teacher))
        return BY_OK;
    r->projection = by_distill_projection(student, r->teacher, r->spec.seed);
    r->update = r->projection ? by_update_new(r->projection, &r->spec.optimizer) : NULL;
    r->terms.projection = r->projection;
    if (!r->update)
        return base_error_status();
    return from ? load_projection(r, from) : BY_OK;
}

by_status distill_update(void *user, double rate, int64_t step)
{
    distill_run *r = user;
    return r->update ? by_update_run(r->update, rate, step + 1, NULL) : BY_OK;
}

/* ---- the lesson -------------------------------------------------------------------------------- */

static by_status open_student(void *user, by_device *d, const by_model_spec *spec, by_model **out)
{
    (void)d;
    return distill_student_open(user, spec, out);
}

static by_status open_store(distill_run *r)
{
    char *dir = base_path_join(r->spec.out, "teacher"),
         *path = dir ? base_path_join(dir, "logits.bin") : NULL;
    const by_distill_spec *t = &r->terms;
    by_status s = path ? BY_OK : BY_ERR_MEMORY;
    if (by_model_is_pair(r->teacher) || by_model_pads_left(r->teacher))
        s = base_fail(BY_ERR_UNSUPPORTED, "the logits of %s are not stored",
                      base_a(by_model_title(r->teacher)).text);
    else if (t->cosine != 0 || t->hidden != 0 || t->layers != 0 || t->attention != 0 || t->relations != 0)
        s = base_fail(BY_ERR_UNSUPPORTED,
                      "only logits are stored: hidden states and attention need the teacher in every step");
    if (s == BY_OK)
        s = base_dir_make(dir);
    if (s == BY_OK && !(r->store = distill_store_open(path, r->teacher, r->fingerprint, r->spec.store_top)))
        s = base_error_status();
    base_free(path);
    base_free(dir);
    return s;
}

by_status distill_begin(void *user, by_model *m, const char *from)
{
    distill_run *r = user;
    r->student = m;
    r->terms.student = m;
    r->terms.teacher = r->spec.store ? NULL : r->teacher;
    r->result->layers = by_model_layers(m);
    if (by_model_pad(r->teacher) < 0) /* decoder rows may end early, before padding with a different token */
        by_model_set_pad(r->teacher, by_model_pad(m));
    BY_TRY(make_projection(r, m, from));
    return r->spec.store ? open_store(r) : BY_OK;
}

/* Scatters the targets of picked rows to all positions, so that every distribution is compared. */
static by_status spread(distill_run *r, by_batch *b)
{
    const by_array *pick = by_batch_find(b, "pick");
    const int32_t *rows = by_batch_ids(b, "pick"), *targets = by_batch_ids(b, "targets");
    const size_t n = (size_t)b->batch * (size_t)b->seq;
    if (!rows || !targets)
        return BY_OK;
    if (n > r->room) {
        int32_t *more = base_resize(r->dense, n, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        r->dense = more;
        r->room = n;
    }
    for (size_t i = 0; i < n; i++)
        r->dense[i] = -100;
    for (int64_t i = 0; i < pick->shape[0]; i++)
        if (targets[i] != -100)
            r->dense[rows[i]] = targets[i];
    by_batch_put(b, "pick", BY_I32, 0, NULL, NULL);
    by_batch_put_ids(b, "targets", (int64_t)n, r->dense);
    return BY_OK;
}

static by_status prepare(void *user, by_batch *b, bool compiles)
{
    distill_run *r = user;
    if (r->kind == BY_DISTILL_TEXT && r->terms.soft != 0 && (!r->spec.soft_at_masked || r->store))
        BY_TRY(spread(r, b));
    return r->store ? distill_store_teach(r->store, b, compiles) : BY_OK;
}

/* A hash of the layer map; 0 without one. */
static double map_sum(const distill_run *r)
{
    const by_distill_spec *t = &r->terms;
    const size_t bytes = t->map && r->student ? (size_t)by_model_layers(r->student) * sizeof *t->map : 0;
    return bytes ? (double)(base_hash(t->map, bytes, 0) >> 12) : 0;
}

void distill_record(void *user, train_record *out)
{
    const distill_run *r = user;
    const by_distill_spec *t = &r->terms;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"teacher_fingerprint", (double)(r->fingerprint >> 12)},
                   {"student_layers", r->student ? by_model_layers(r->student) : 0},
                   {"distill_temperature", t->temperature},
                   {"distill_soft", t->soft},
                   {"distill_task_loss", t->task},
                   {"distill_cosine", t->cosine},
                   {"distill_hidden", t->hidden},
                   {"distill_hidden_layers", t->layers},
                   {"distill_attention", t->attention},
                   {"distill_relations", t->relations},
                   {"distill_vector_cosine", t->vector_cosine},
                   {"distill_vector_error", t->vector_error},
                   {"distill_vector_similarity", t->vector_similarity},
                   {"stored_logits", r->spec.store ? 1 : 0},
                   {"stored_top", r->spec.store_top}};
    train_record_text(out, "teacher", r->spec.teacher, TRAIN_FREE);
    train_record_text(out, "distill_recipe", r->spec.recipe, TRAIN_FREE);
    for (int i = 0; i < BY_COUNT(numbers); i++)
        train_record_number(out, numbers[i].key, numbers[i].value, TRAIN_SAME);
    if (r->kind == BY_DISTILL_VECTORS) /* other kinds of runs record it themselves */
        train_record_newer(out, "own_dropout", r->spec.dropout, NAN);
    train_record_newer(out, "distill_layer_map", map_sum(r), NAN);
}

/* Reports the unweighted terms of the loss. */
by_status distill_measure(void *user, const by_trainer *t, by_report *report)
{
    static const char *const names[] = {"soft_loss",         "task_loss",
                                        "cosine_loss",       "hidden_loss",
                                        "layers_loss",       "attention_loss",
                                        "relations_loss",    "vector_cosine_loss",
                                        "vector_error_loss", "vector_similarity_loss"};
    distill_run *r = user;
    by_pass *p = by_trainer_trained(t);
    report->n_measures = 0;
    report->measures = r->terms_now;
    for (int i = 0; p && i < BY_COUNT(names) && report->n_measures < BY_METRICS_MAX; i++) {
        const by_tensor *term = by_io_output(by_pass_io(p), names[i]);
        float value;
        if (!term)
            continue;
        BY_TRY(by_pass_read(p, term, &value));
        r->terms_now[report->n_measures++] = (by_metric){names[i], (double)value};
    }
    return BY_OK;
}

static train_lesson lesson_of(distill_run *r)
{
    return (train_lesson){.user = r,
                          .title = "distillation",
                          .open = open_student,
                          .begin = distill_begin,
                          .loss = by_distill_loss,
                          .loss_user = &r->terms,
                          .hidden = r->terms.layers != 0,
                          .scores = r->terms.attention != 0 || r->terms.relations != 0,
                          .segments = by_model_languages(r->teacher) ? 0 : by_model_segments(r->teacher),
                          .prepare = prepare,
                          .update = distill_update,
                          .save = distill_save,
                          .record = distill_record,
                          .measure = distill_measure};
}

/* ---- kinds of runs ----------------------------------------------------------------------------- */

by_example_kind distill_example_kind(const by_model *teacher)
{
    switch (by_model_task(teacher)) {
    case BY_TASK_TAG:
        return BY_EXAMPLE_TAG;
    case BY_TASK_ANSWER:
        return BY_EXAMPLE_ANSWER;
    case BY_TASK_CHOICE:
        return BY_EXAMPLE_CHOICE;
    default:
        return by_model_problem(teacher) == BY_PROBLEM_REGRESSION ? BY_EXAMPLE_REGRESS : BY_EXAMPLE_CLASSIFY;
    }
}

static by_status run_examples(distill_run *r)
{
    const by_distill_run_spec *s = &r->spec;
    const by_task task = by_model_task(r->teacher);
    const train_lesson lesson = lesson_of(r);
    by_finetune_result f;
    if (task != BY_TASK_CLASSIFY && task != BY_TASK_TAG && task != BY_TASK_ANSWER && task != BY_TASK_CHOICE)
        return base_fail(BY_ERR_ARGUMENT, "%s has no head for labelled examples; fine-tune it first",
                         s->teacher);
    if (s->data_count != 1 || s->eval_count > 1)
        return base_fail(BY_ERR_ARGUMENT,
                         "labelled examples need one training file and at most one evaluation file");
    by_finetune_spec spec = {TRAIN_SPEC_SHARED(s),
                             .model = s->teacher,
                             .dropout = s->dropout,
                             .data = s->data[0],
                             .reading = s->reading,
                             .work = s->work,
                             .batch = s->batch,
                             .layer_decay = 1,
                             .warmup_share = s->warmup_share,
                             .predictions = s->predictions};
    spec.eval_data = s->eval_count ? s->eval_data[0] : NULL;
    spec.reading.kind = distill_example_kind(r->teacher);
    BY_TRY(train_task_check(r->teacher, &spec.reading));
    r->result->loss_unit = train_task_loss_unit(&spec.reading);
    by_status status = train_finetune_with(r->device, &spec, &lesson, &f);
    by_distill_result *out = r->result;
    out->steps = f.steps;
    out->resumed_from = f.resumed_from;
    out->best_step = f.best_step;
    out->parameters = f.parameters;
    out->loss = f.loss;
    out->activation_bytes = f.activation_bytes;
    out->state_bytes = f.state_bytes;
    out->evaluated = f.evaluated;
    out->stopped_early = f.stopped_early;
    out->best = f.best;
    return status;
}

static const char *objective_of(const distill_run *r)
{
    if (r->spec.objective.name)
        return r->spec.objective.name;
    return r->kind == BY_DISTILL_TRANSLATE           ? "translate"
           : by_model_task(r->teacher) == BY_TASK_LM ? "lm"
                                                     : "mlm";
}

static by_run_spec text_spec(const distill_run *r)
{
    const by_distill_run_spec *s = &r->spec;
    by_run_spec spec = {TRAIN_SPEC_SHARED(s),
                        .init_from = s->teacher,
                        .shape = {.dropout = s->dropout},
                        .data = s->data,
                        .data_count = s->data_count,
                        .eval_data = s->eval_data,
                        .eval_count = s->eval_count,
                        .eval_fraction = s->eval_count ? 0 : s->eval_fraction,
                        .objective = s->objective,
                        .batch = s->batch > 0 ? s->batch : 32,
                        .batch_tokens = s->batch_tokens,
                        .seq = s->work.limit,
                        .warmup_share = s->warmup_share > 0 ? s->warmup_share : -1,
                        .eval_batches = s->eval_batches,
                        .leaves_model = true};
    spec.objective.name = objective_of(r);
    if (strcmp(spec.objective.name, "mlm") == 0 && spec.objective.mask_copies == 0)
        spec.objective.mask_copies = -1;
    return spec;
}

static by_status run_text(distill_run *r)
{
    const train_lesson lesson = lesson_of(r);
    by_run_spec spec = text_spec(r);
    char *files[2] = {NULL, NULL};
    by_run_result t = {0};
    by_status s = r->spec.sequence ? distill_translations(r, &files[0], &files[1]) : BY_OK;
    if (r->spec.sequence) {
        spec.data = (const char *const *)files;
        spec.data_count = 2;
    }
    if (s == BY_OK)
        s = train_run_with(r->device, &spec, &lesson, &t);
    base_free(files[0]);
    base_free(files[1]);
    by_distill_result *out = r->result;
    out->steps = t.steps;
    out->resumed_from = t.resumed_from;
    out->best_step = t.best_step;
    out->parameters = t.parameters;
    out->loss = t.loss;
    out->activation_bytes = t.activation_bytes;
    out->state_bytes = t.state_bytes;
    out->evaluated = isfinite(t.best_eval_loss) && t.best_step > 0;
    out->stopped_early = t.stopped_early;
    out->best = (by_task_result){.loss = t.best_eval_loss, .score = -t.best_eval_loss};
    out->loss_unit = "nats per token";
    return s;
}

/* ---- the run ----------------------------------------------------------------------------------- */

static by_status check(const by_distill_run_spec *s)
{
    if (!s->teacher || !s->out || s->data_count < 1 || !s->data)
        return base_fail_missing(!s->teacher ? "teacher" : !s->out ? "run folder" : "data");
    if (s->store_top < 0 || s->store_top > 1024)
        return base_fail(BY_ERR_ARGUMENT,
                         "cannot store %d logits per position; expected 1 to 1024, or 0 for all",
                         s->store_top);
    return BY_OK;
}

/* Whether the teacher's head suits the kind of run. */
static bool has_head(const distill_run *r)
{
    const by_task task = by_model_task(r->teacher);
    if (r->kind == BY_DISTILL_TEXT)
        return task == BY_TASK_LM || task == BY_TASK_MLM || task == BY_TASK_PRETRAIN ||
               task == BY_TASK_SEQ2SEQ;
    return r->kind != BY_DISTILL_TRANSLATE || task == BY_TASK_SEQ2SEQ;
}

static by_status check_kind(const distill_run *r)
{
    const by_distill_run_spec *s = &r->spec;
    const by_distill_spec *t = &s->terms;
    if (!has_head(r))
        return base_fail(BY_ERR_ARGUMENT, "%s has no head that \"%s\" could learn from",
                         base_a(by_model_class(r->teacher)).text, by_distill_name(r->kind));
    if (s->sequence && r->kind != BY_DISTILL_TRANSLATE)
        return base_fail(BY_ERR_ARGUMENT, "only translation models learn from translations of their teacher");
    if (s->store && (r->kind == BY_DISTILL_VECTORS || r->kind == BY_DISTILL_TRANSLATE))
        return base_fail(BY_ERR_ARGUMENT, "logits can be stored only for text and labelled examples");
    if (s->soft_at_masked && (by_model_task(r->teacher) == BY_TASK_LM || r->kind != BY_DISTILL_TEXT))
        return base_fail(BY_ERR_ARGUMENT, "%s has no masked positions at which to compare distributions",
                         base_a(by_model_class(r->teacher)).text);
    if (s->soft_at_masked && s->store)
        return base_fail(BY_ERR_ARGUMENT,
                         "logits are stored for all positions, not for masked positions alone");
    if (r->kind == BY_DISTILL_VECTORS && (t->soft > 0 || t->task > 0))
        return base_fail(BY_ERR_ARGUMENT, "sentence vectors have no distributions and no targets");
    if (r->kind != BY_DISTILL_VECTORS &&
        (t->vector_cosine > 0 || t->vector_error > 0 || t->vector_similarity > 0))
        return base_fail(BY_ERR_ARGUMENT,
                         "sentence vectors are compared in runs of \"vectors\", not of \"%s\"",
                         by_distill_name(r->kind));
    return BY_OK;
}

static by_status run(distill_run *r)
{
    const by_distill_run_spec *s = &r->spec;
    BY_TRY(check(s));
    BY_TRY(open_teacher(r));
    BY_TRY(check_kind(r));
    r->terms = s->terms;
    BY_TRY(by_distill_recipe(s->recipe ? s->recipe : "usual", r->kind, &r->terms));
    if (s->sequence && !s->recipe && s->terms.soft == 0) { /* by default, only the translations */
        r->terms.soft = 0;
        r->terms.task = s->terms.task > 0 ? s->terms.task : 1;
    }
    if (r->terms.map && r->terms.layers == 0 && r->terms.attention == 0)
        return base_fail(BY_ERR_ARGUMENT, "a layer map is for terms of all layers: hidden layers, attention");
    if (r->kind == BY_DISTILL_VECTORS)
        return distill_vectors(r);
    return r->kind == BY_DISTILL_EXAMPLES ? run_examples(r) : run_text(r);
}

by_status by_distill_run(by_device *d, const by_distill_run_spec *spec, by_distill_result *result)
{
    if (!d || !spec || !result)
        return base_fail_missing(d ? "by_distill_run_spec or by_distill_result" : "device");
    base_error_clear();
    *result = (by_distill_result){.loss = NAN};
    distill_run r = {.device = d, .spec = *spec, .result = result};
    const double started = base_seconds();
    by_status s = run(&r);
    result->seconds = base_seconds() - started;
    distill_store_free(r.store);
    by_update_free(r.update);
    by_params_free(r.projection);
    by_tokenizer_free(r.tokenizer);
    by_model_free(r.teacher);
    base_free(r.dense);
    return s;
}
