/* picture_setup.c - see picture_run.h: sets up the data, the model and the hyperparameters of a run on
 * pictures. */
#include <math.h>

#include "base/file.h"
#include "infer/picture_passes.h"
#include "model/model.h"
#include "train/defaults.h"
#include "train/picture_run.h"

enum { SPLIT_SEED = 1 }; /* runs with any seed hold out the same pictures */

/* ---- data ------------------------------------------------------------------------------------ */

static by_picture_set *open_set(const train_picture_run *r, const char *const *paths, int count,
                                by_pixels format)
{
    const by_image_data *d = &r->spec.images.data;
    return by_picture_set_open(paths, count,
                               &(by_picture_set_spec){.kind = r->task == BY_TASK_CLASSIFY
                                                                  ? BY_EXAMPLE_IMAGE_CLASSIFY
                                                                  : BY_EXAMPLE_CAPTION,
                                                      .file = d->file,
                                                      .label = d->label,
                                                      .header = d->header,
                                                      .classes = d->classes,
                                                      .coarse = d->coarse,
                                                      .format = format});
}

static by_pixels format_of(int channels)
{
    return channels == 1 ? BY_PIXELS_GREY : channels == 3 ? BY_PIXELS_RGB : BY_PIXELS_NATIVE;
}

/* channels 0: those of the data. */
static by_status open_data(train_picture_run *r, int channels)
{
    const by_run_spec *s = &r->spec;
    r->set = open_set(r, s->data, s->data_count, format_of(channels));
    if (!r->set)
        return base_error_status();
    if (r->task == BY_TASK_CLASSIFY && by_picture_set_classes(r->set) < 2)
        return base_fail(BY_ERR_FORMAT, "%s: all pictures have the class \"%s\"", s->data[0],
                         by_picture_set_class(r->set, 0));
    if (s->eval_count) {
        r->eval_set = open_set(r, s->eval_data, s->eval_count, format_of(by_picture_set_channels(r->set)));
        if (!r->eval_set)
            return base_error_status();
    }
    BY_TRY(data_picture_set_check_use(r->set, r->eval_set));
    BY_TRY(
        data_picture_set_split(r->set, s->eval_count ? 0 : s->eval_fraction, s->seed, &r->train, &r->held));
    if (r->eval_set)
        r->held = (data_picture_part){
            .pictures = r->eval_set, .count = by_picture_set_count(r->eval_set), .whole = true};
    return BY_OK;
}

const char *train_picture_loss_unit(by_task task)
{
    return task == BY_TASK_SEQ2SEQ    ? "nats per token"
           : task == BY_TASK_CONTRAST ? "nats per pair"
                                      : "nats per picture";
}

bool train_picture_holds_out(const train_picture_run *r)
{
    return r->held.count > 0;
}

/* Tokenizes captions. Rows of all batches have the length of the longest, rounded up to a multiple of 8 if
 * the model's context allows. */
static by_status encode_captions(train_picture_run *r)
{
    const int context = by_model_context(r->model);
    BY_TRY(train_captions_open(&r->captions, r->set, r->tokenizer, context));
    if (r->eval_set)
        BY_TRY(train_captions_open(&r->eval_captions, r->eval_set, r->tokenizer, context));
    const int longest = BY_MAX(r->captions.longest, r->eval_captions.longest), round = (longest + 7) / 8 * 8;
    r->length = round <= context ? round : longest;
    return BY_OK;
}

/* Tokenizes captions, and gives labels the model's numbers. */
static by_status number_sets(train_picture_run *r)
{
    if (r->tokenizer)
        return encode_captions(r);
    BY_TRY(train_pictures_number(r->model, r->set));
    return r->eval_set ? train_pictures_number(r->model, r->eval_set) : BY_OK;
}

/* ---- a new model ------------------------------------------------------------------------------- */

/* The shorter side of the pictures: of all, or of the first one if they are in separate files. */
static by_status find_size(const train_picture_run *r, int *size)
{
    int height, width;
    by_picture_set_size(r->set, &height, &width);
    if (!height) {
        by_image *m = by_picture_set_get(r->set, 0);
        if (!m)
            return base_error_status();
        height = m->height;
        width = m->width;
        by_image_free(m);
    }
    *size = BY_MIN(height, width);
    return BY_OK;
}

/* The largest patch that gives at least seven patches per side: 4 for 28 and 32 pixels, 16 for 224. */
static int usual_patch(int size)
{
    static const int patches[] = {16, 14, 8, 7, 4, 3, 2};
    for (int i = 0; i < BY_COUNT(patches); i++)
        if (size % patches[i] == 0 && size / patches[i] >= 7)
            return patches[i];
    return 1;
}

by_status train_picture_shape(const train_picture_run *r, by_model_shape *out)
{
    const by_run_spec *s = &r->spec;
    *out = s->shape;
    if (out->channels <= 0)
        out->channels = by_picture_set_channels(r->set);
    if (out->image <= 0)
        out->image = s->images.size;
    if (out->image <= 0)
        BY_TRY(find_size(r, &out->image));
    if (out->patch <= 0)
        out->patch = usual_patch(out->image);
    if (s->images.drop_path > 0)
        out->drop_path = s->images.drop_path;
    if (r->tokenizer)
        out->vocab = by_tokenizer_vocab_size(r->tokenizer);
    return BY_OK;
}

/* Copies the special tokens of the tokenizer. */
static void set_tokens(by_model *m, const by_tokenizer *t)
{
    const int pad = by_tokenizer_special(t, BY_SPECIAL_PAD), end = train_caption_end(t);
    by_model_set_eos(m, end);
    by_model_set_pad(m, pad >= 0 ? pad : end);
    if (by_model_task(m) == BY_TASK_SEQ2SEQ)
        by_model_set_start(m, m->arch->starts_with_eos || pad < 0 ? end : pad);
}

static by_model_spec model_spec(const train_picture_run *r)
{
    const by_run_spec *s = &r->spec;
    return (by_model_spec){.dtype = s->dtype,
                           .training = true,
                           .stochastic_rounding = s->stochastic_rounding,
                           .adapter = s->adapter,
                           .weights = s->weights,
                           .freeze = r->tuning ? r->tuning->freeze : NULL,
                           .layer_decay = r->tuning ? r->tuning->layer_decay : 0,
                           .task = r->task,
                           .problem = r->task == BY_TASK_CLASSIFY ? BY_PROBLEM_ONE_LABEL : BY_PROBLEM_DEFAULT,
                           .seed = s->seed};
}

static by_status name_labels(train_picture_run *r)
{
    if (r->tokenizer)
        return BY_OK;
    const int n = by_picture_set_classes(r->set);
    const char **names = base_alloc_zero((size_t)n, sizeof *names);
    for (int i = 0; names && i < n; i++)
        names[i] = by_picture_set_class(r->set, i);
    by_status s = names ? by_model_name_labels(r->model, names, n) : BY_ERR_MEMORY;
    base_free(names);
    return s;
}

static by_status make_model(train_picture_run *r)
{
    by_model_shape shape;
    by_model_spec spec = model_spec(r);
    spec.labels = by_picture_set_classes(r->set);
    if (r->task != BY_TASK_CLASSIFY && !(r->tokenizer = train_caption_tokenizer(&r->spec, r->set)))
        return base_error_status();
    BY_TRY(train_picture_shape(r, &shape));
    r->model = by_model_new(r->device, r->spec.family, &shape, &spec);
    BY_TRY(r->model ? name_labels(r) : base_error_status());
    if (r->tokenizer)
        set_tokens(r->model, r->tokenizer);
    r->processor = by_processor_new(
        &(by_processor_spec){.channels = shape.channels, .height = shape.image, .width = shape.image});
    return r->processor ? BY_OK : base_error_status();
}

/* ---- an existing model --------------------------------------------------------------------------- */

/* Returns true if the model has these classes in this order. Its head is then kept. */
static bool same_classes(const by_model *m, const by_picture_set *set)
{
    if (by_model_task(m) != BY_TASK_CLASSIFY || by_model_labels(m) != by_picture_set_classes(set))
        return false;
    for (int i = 0; i < by_picture_set_classes(set); i++)
        if (strcmp(by_model_label_name(m, i), by_picture_set_class(set, i)) != 0)
            return false;
    return true;
}

/* Captioning and joint models keep their task, except that CLIP may learn classes. Other models get a
 * head. */
static by_task task_of(const train_picture_run *r, const by_model *m)
{
    const by_task task = by_model_task(m);
    const bool classes = r->tuning && r->tuning->kind != BY_EXAMPLE_CAPTION;
    if (task == BY_TASK_CONTRAST && classes)
        return BY_TASK_CLASSIFY;
    return task == BY_TASK_SEQ2SEQ || task == BY_TASK_CONTRAST ? task : BY_TASK_CLASSIFY;
}

/* Fails if the model cannot learn the requested task. */
static by_status check_kind(const train_picture_run *r, const by_model *m)
{
    const bool captions = r->tuning && r->tuning->kind == BY_EXAMPLE_CAPTION;
    if (!r->tuning || captions == (r->task != BY_TASK_CLASSIFY))
        return BY_OK;
    return base_fail(BY_ERR_ARGUMENT,
                     captions ? "%s learns the classes of pictures, not captions"
                              : "%s learns captions, not the classes of pictures",
                     base_a(by_model_class(m)).text);
}

/* The model as it is, or the body of a model of an unknown class, such as one for masked image modelling. */
static by_model *open_start(const train_picture_run *r, by_dtype dtype, bool *known)
{
    by_model *m = by_model_open(r->device, r->spec.init_from, &(by_model_spec){.dtype = dtype});
    *known = m != NULL;
    if (m || base_error_status() != BY_ERR_UNSUPPORTED)
        return m;
    char *why = base_strdup(by_error_message());
    m = by_model_open(
        r->device, r->spec.init_from,
        &(by_model_spec){.dtype = dtype, .task = BY_TASK_CLASSIFY, .labels = 2, .new_head = true});
    if (!m && why)
        base_fail(BY_ERR_UNSUPPORTED, "%s", why);
    base_free(why);
    return m;
}

static by_status open_model(train_picture_run *r)
{
    by_model_spec spec = model_spec(r);
    bool known;
    by_model *m = open_start(r, spec.dtype, &known);
    by_pictures reads;
    if (!m)
        return base_error_status();
    gen_reads_pictures(m, &reads);
    r->task = task_of(r, m);
    spec.task = r->task;
    by_status s = check_kind(r, m);
    if (s == BY_OK)
        s = open_data(r, reads.channels);
    if (s == BY_OK && r->task == BY_TASK_CLASSIFY) {
        spec.labels = by_picture_set_classes(r->set);
        spec.new_head = !known || !same_classes(m, r->set);
    } else if (s == BY_OK && !(r->tokenizer = by_tokenizer_load(r->spec.init_from))) {
        s = base_error_status();
    }
    by_model_free(m);
    BY_TRY(s);
    r->model = by_model_open(r->device, r->spec.init_from, &spec);
    BY_TRY(r->model ? name_labels(r) : base_error_status());
    if (r->spec.shape.dropout >= 0)
        by_model_set_dropout(r->model, r->spec.shape.dropout);
    if (r->spec.images.drop_path >= 0 &&
        !arch_config_set(r->model->arch, r->model->config, ARCH_ROLE_DROP_PATH, r->spec.images.drop_path) &&
        r->spec.images.drop_path > 0)
        return base_fail(BY_ERR_ARGUMENT, "%s has no stochastic depth", r->model->arch->title);
    r->processor = gen_processor_open(r->model, r->spec.init_from, NULL);
    if (r->processor && r->spec.images.size > 0)
        return by_processor_set_size(r->processor, r->spec.images.size, r->spec.images.size);
    return r->processor ? BY_OK : base_error_status();
}

by_status train_picture_load(void *self, const char *dir)
{
    train_picture_run *r = self;
    by_model_spec spec = model_spec(r);
    spec.adapter = NULL; /* it is in the checkpoint */
    r->model = by_model_open(r->device, dir, &spec);
    if (!r->model)
        return base_error_status();
    by_pictures reads;
    if (!gen_reads_pictures(r->model, &reads))
        return base_fail(BY_ERR_ARGUMENT,
                         "the run in %s is for %s, which reads no pictures; use another folder, or "
                         "overwrite it",
                         r->spec.out, base_a(by_model_class(r->model)).text);
    r->task = task_of(r, r->model);
    BY_TRY(open_data(r, reads.channels));
    if (r->task != BY_TASK_CLASSIFY && !(r->tokenizer = by_tokenizer_load(dir)))
        return base_error_status();
    r->processor = by_processor_open(dir);
    return r->processor ? train_model_load(r->model, dir) : base_error_status();
}

/* ---- hyperparameters ----------------------------------------------------------------------------- */

/* The default learning rate is 1e-3 up to a width of 384, and lower for wider models. */
static double usual_rate(const train_picture_run *r)
{
    const int width = by_model_width(r->model);
    return r->spec.init_from ? train_default_tuning_rate(width) * 3 * train_default_adapter_factor(r->model)
                             : BY_MIN(1e-3, 0.384 / width);
}

static double usual_epochs(double epoch_steps, bool tunes)
{
    return tunes ? train_default_tuning_epochs(epoch_steps) : BY_MAX(BY_MIN(4000 / epoch_steps, 100), 10);
}

static by_status fill_defaults(train_picture_run *r)
{
    by_run_spec *s = &r->spec;
    s->batch = s->batch > 0 ? s->batch : (int)BY_MAX(BY_MIN(r->train.count / 8, 128), 1);
    s->accumulate = BY_MAX(s->accumulate, 1);
    const double epoch_steps = (double)r->train.count / ((double)s->batch * s->accumulate);
    if (s->steps <= 0)
        s->steps = (int64_t)ceil(
            (s->epochs > 0 ? s->epochs : usual_epochs(epoch_steps, s->init_from != NULL)) * epoch_steps);
    s->steps = BY_MAX(s->steps, 1);
    s->schedule.steps = s->steps;
    BY_TRY(train_loop_plan(&r->loop, s->steps));
    if (s->schedule.rate < 0)
        s->schedule.rate = usual_rate(r);
    if (s->schedule.min_rate < 0)
        s->schedule.min_rate = s->schedule.rate / 100;
    if (s->schedule.warmup < 0)
        s->schedule.warmup =
            (int64_t)((r->tuning ? r->tuning->warmup_share : 0.05) * (double)r->loop.first_steps);
    if (s->eval_every <= 0)
        s->eval_every = train_default_eval_steps(BY_MAX((int64_t)ceil(epoch_steps), s->steps / 20),
                                                 r->held.count, (int64_t)s->batch * s->accumulate);
    if (s->save_every <= 0)
        s->save_every = s->eval_every;
    if (s->log_every <= 0)
        s->log_every = BY_MAX(s->steps / 10000, 1);
    s->keep = BY_MAX(s->keep, 1);
    return BY_OK;
}

/* Models of palette colours cannot represent a blend of two pictures, or noise. */
static by_status check_colours(const train_picture_run *r, const by_pictures *reads)
{
    const by_augment *a = &r->spec.images.augment;
    if (by_processor_colours(r->processor) == 0)
        return reads->channels ? BY_OK
                               : base_fail(BY_ERR_FORMAT, "preprocessor_config.json of %s has no palette",
                                           base_a(by_model_class(r->model)).text);
    if (a->mixup > 0 || a->cutmix > 0 || a->erase > 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s reads palette colours, for which mixup, cutmix and erasing are not supported",
                         base_a(by_model_class(r->model)).text);
    return BY_OK;
}

static by_status check_augmentation(const train_picture_run *r)
{
    const by_augment *a = &r->spec.images.augment;
    if (r->tokenizer && (a->mixup > 0 || a->cutmix > 0))
        return base_fail(BY_ERR_ARGUMENT, "mixup and cutmix are for classes; captions cannot be mixed");
    if (a->hue > 0 && by_processor_channels(r->processor) == 1)
        return base_fail(BY_ERR_ARGUMENT, "grey pictures have no hue to change");
    if (r->task == BY_TASK_CONTRAST && r->spec.label_smoothing > 0)
        return base_fail(BY_ERR_ARGUMENT,
                         "label smoothing is for classes and captions; pairs have no targets to smooth");
    return by_augment_check(a);
}

/* Sets the sources of training and evaluation batches. */
static by_status choose_sources(train_picture_run *r)
{
    const by_run_spec *s = &r->spec;
    by_pictures reads;
    train_picture_source *a = &r->source;
    if (!gen_reads_pictures(r->model, &reads))
        return base_fail(BY_ERR_ARGUMENT, "%s reads no pictures", base_a(by_model_class(r->model)).text);
    BY_TRY(check_colours(r, &reads));
    *a = (train_picture_source){.part = r->train,
                                .processor = r->processor,
                                .height = reads.height,
                                .width = reads.width,
                                .batch = s->batch,
                                .classes = by_model_labels(r->model),
                                .task = r->task,
                                .captions = &r->captions,
                                .length = r->length,
                                .model = r->model,
                                .trains = true,
                                .augment = s->images.augment,
                                .label_smoothing = s->label_smoothing,
                                .seed = s->seed};
    int height, width;
    by_processor_size(r->processor, &height, &width);
    if (height) {
        a->height = height;
        a->width = width;
    }
    if (!by_pictures_positions(&reads, a->height, a->width))
        return base_fail(BY_ERR_ARGUMENT,
                         "pictures of %d x %d pixels are not a whole number of patches of %d", a->width,
                         a->height, reads.patch);
    if (!reads.channels && a->height * a->width > by_model_context(r->model))
        return base_fail(BY_ERR_ARGUMENT,
                         "pictures of %d x %d pixels are more than the %d that the model reads", a->width,
                         a->height, by_model_context(r->model));
    r->eval_source = *a;
    r->eval_source.part = r->held;
    r->eval_source.trains = false;
    r->eval_source.batch = r->tuning && r->tuning->eval_batch > 0 ? r->tuning->eval_batch : s->batch;
    if (r->held.count > 0)
        r->eval_source.batch = (int)BY_MIN(r->eval_source.batch, r->held.count);
    if (r->eval_set)
        r->eval_source.captions = &r->eval_captions;
    return check_augmentation(r);
}

/* ---- set-up --------------------------------------------------------------------------------------- */

by_status train_picture_make_passes(train_picture_run *r)
{
    r->passes = train_picture_passes(r->model, &r->memory);
    return r->passes ? BY_OK : base_error_status();
}

/* With overwrite, an earlier run is kept until everything is open. */
static by_status open_folder(train_picture_run *r, const train_client *client)
{
    const by_run_spec *s = &r->spec;
    return train_loop_open(
        &r->loop, client, r,
        &(train_folder_use){.out = s->out,
                            .overwrite = s->overwrite,
                            .leaves_model = s->leaves_model,
                            .model = s->init_from,
                            .inputs = {{s->data, s->data_count}, {s->eval_data, s->eval_count}},
                            .report = s->report,
                            .user = s->user});
}

by_batch train_picture_like(const train_picture_run *r)
{
    by_batch b = train_pictures_like(&r->batches, r->model);
    if (r->teacher)
        train_teacher_like(r->teacher, &b);
    return b;
}

static by_status open_teacher(train_picture_run *r)
{
    const by_image_training *i = &r->spec.images;
    const train_teacher_spec spec = {
        .dir = i->teacher, .soft = i->soft_teacher, .batch = r->spec.batch, .dtype = r->spec.dtype};
    if (!i->teacher)
        return BY_OK;
    r->teacher = train_teacher_open(r->model, r->processor, r->set, &spec);
    return r->teacher ? BY_OK : base_error_status();
}

static by_status set_up_steps(train_picture_run *r)
{
    const by_run_spec *s = &r->spec;
    r->trainer = by_trainer_new(
        r->model,
        &(by_trainer_spec){.accumulate = s->accumulate,
                           .recompute = s->recompute,
                           .optimizer = s->optimizer,
                           .seed = s->seed,
                           .label_smoothing = r->task == BY_TASK_SEQ2SEQ ? (float)s->label_smoothing : 0});
    if (!r->trainer)
        return base_error_status();
    BY_TRY(open_teacher(r));
    by_trainer_set_steps(r->trainer, r->loop.state.step);
    if (s->images.average > 0 &&
        !(r->average = train_average_new(by_model_trained(r->model), s->images.average)))
        return base_error_status();
    if (r->average && r->loop.last)
        BY_TRY(train_average_load(r->average, r->loop.last));
    BY_TRY(train_picture_make_passes(r));
    BY_TRY(train_pictures_open(&r->batches, &r->source,
                               train_picture_workers(r->device, s->images.data.workers),
                               r->loop.state.step * s->accumulate, s->steps * s->accumulate));
    const by_batch like = train_picture_like(r);
    return by_trainer_program(r->trainer, &like) ? BY_OK : base_error_status();
}

/* family: of a new model, or NULL. */
static by_status check_text_options(const train_picture_run *r, const arch_family *family)
{
    const by_run_spec *s = &r->spec;
    if (s->objective.name)
        return base_fail(BY_ERR_ARGUMENT,
                         "the objective \"%s\" is for text, and this model learns from pictures",
                         s->objective.name);
    if (s->tokenizer && (!family || r->task == BY_TASK_CLASSIFY))
        return base_fail(BY_ERR_ARGUMENT, "%s needs no other tokenizer",
                         family ? "a classifier of pictures" : "a trained model");
    return BY_OK;
}

by_status train_picture_set_up(train_picture_run *r, const train_client *client)
{
    by_run_spec *s = &r->spec;
    BY_TRY(open_folder(r, client));
    BY_TRY(train_loop_check_family(&r->loop, s->init_from ? NULL : s->family));
    const arch_family *a = s->init_from ? NULL : arch_find(s->family);
    if (a)
        r->task = a->pretrained == BY_TASK_SEQ2SEQ || a->pretrained == BY_TASK_CONTRAST ? a->pretrained
                                                                                        : BY_TASK_CLASSIFY;
    BY_TRY(check_text_options(r, a));
    if (r->loop.last) {
        BY_TRY(train_loop_load(&r->loop));
    } else if (s->init_from) {
        BY_TRY(open_model(r));
    } else {
        BY_TRY(open_data(r, s->shape.channels));
        BY_TRY(make_model(r));
    }
    BY_TRY(number_sets(r));
    BY_TRY(fill_defaults(r));
    BY_TRY(choose_sources(r));
    BY_TRY(train_loop_check(&r->loop));
    BY_TRY(set_up_steps(r));
    return train_loop_begin(&r->loop,
                            &(train_loop_spec){TRAIN_LOOP_SHARED(s), .evaluates = train_picture_holds_out(r),
                                               .measures_peak = !s->no_peak, .device = r->device,
                                               .loss_unit = "nats per picture"});
}
