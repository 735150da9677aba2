/* verify.c - run a recorded case and compare everything that was recorded (see banyan/verify.h). */
#include "banyan/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "banyan/generate.h"
#include "banyan/train.h"
#include "base/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "train/measure.h"

typedef struct pass {
    by_program *program;
    by_model_io io;
    by_tensor *targets, *loss;
} pass;

typedef struct check {
    by_device *device;
    const by_verify_spec *spec;
    by_verify_result *result;
    cJSON *settings; /* case.json */
    by_st *reference;
    by_model *model;
    by_generator *generator;
    /* what the model is given; NULL where the case has none */
    int batch, seq;
    int32_t *tokens, *mask, *positions; /* (B, T) */
    int32_t *targets;                   /* (B, T), shifted by one; or (B) */
    int32_t *pick;                      /* (B) */
    pass forward, backward;
    double whole; /* norm of the reference's whole gradient */
    /* training */
    float *losses, *norms;
    int steps;
} check;

/* ---- pieces ------------------------------------------------------------------------------------------------------------- */

static bool has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static const by_st_entry *find(const check *c, const char *prefix, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return by_st_find(c->reference, full);
}

static size_t elements_of(const by_st_entry *e)
{
    return e->bytes / by_dtype_size(e->dtype);
}

/* An entry's values as another type, in memory of their own. */
static void *values_of(const by_st_entry *e, by_dtype type)
{
    void *values = by_alloc_zero(elements_of(e) + 1, by_dtype_size(type));
    if (values)
        by_convert(values, type, e->data, e->dtype, elements_of(e));
    return values;
}

static void shape_text(char *text, size_t size, int rank, const int64_t *dim)
{
    size_t n = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (n < size)
        snprintf(text + n, size - n, ")");
}

static bool same_shape(const by_st_entry *e, int rank, const int64_t *dim)
{
    return e->rank == rank && memcmp(e->dim, dim, sizeof *dim * (size_t)rank) == 0;
}

/* ---- lines ---------------------------------------------------------------------------------------------------------------- */

static void say(check *c, by_verify_line line)
{
    if (line.verdict == BY_VERDICT_NOT_RUN)
        c->result->not_run++;
    else
        c->result->tensors++;
    c->result->failed += line.verdict == BY_VERDICT_FAILED;
    if (c->spec->line)
        c->spec->line(c->spec->user, &line);
}

static void say_nothing_measured(check *c, const by_st_entry *e, by_verdict verdict, const char *note)
{
    say(c, (by_verify_line){.name = e->name, .verdict = verdict, .error = NAN, .bound = NAN, .note = note});
}

static void say_measured(check *c, const by_st_entry *e, const by_rule *rule, double error, const char *note)
{
    say(c, (by_verify_line){.name = e->name,
                            .verdict = error <= rule->bound ? BY_VERDICT_OK : BY_VERDICT_FAILED,
                            .measure = rule->measure,
                            .error = error,
                            .bound = rule->bound,
                            .note = note});
}

/* Compare what was computed here with an entry of the reference, and say how it went. */
static by_status compare(check *c, const by_st_entry *e, by_subject subject, int rank, const int64_t *dim, const float *here)
{
    if (!same_shape(e, rank, dim) || !by_dtype_is_float(e->dtype)) {
        char note[256], a[96], b[96];
        shape_text(a, sizeof a, rank, dim);
        shape_text(b, sizeof b, e->rank, e->dim);
        snprintf(note, sizeof note, "the shape is %s here and %s %s in the reference", a, b, by_dtype_name(e->dtype));
        say_nothing_measured(c, e, BY_VERDICT_FAILED, note);
        return BY_OK;
    }
    float *there = values_of(e, BY_F32);
    if (!there)
        return BY_ERR_MEMORY;
    by_rule rule = by_rule_for(subject, c->spec->dtype);
    say_measured(c, e, &rule, by_measure_error(&rule, here, there, elements_of(e), c->whole), NULL);
    by_free(there);
    return BY_OK;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------------- */

/* prefix + name as (rows, cols) i32, or as (rows) when cols is 0; *out stays NULL when there is none. */
static by_status take_ids(const check *c, const char *prefix, const char *name, int64_t rows, int64_t cols, int32_t **out)
{
    const by_st_entry *e = find(c, prefix, name);
    if (!e)
        return BY_OK;
    if (by_dtype_is_float(e->dtype) || !same_shape(e, cols ? 2 : 1, (int64_t[]){rows, cols})) {
        char have[96], want[96];
        shape_text(have, sizeof have, e->rank, e->dim);
        shape_text(want, sizeof want, cols ? 2 : 1, (int64_t[]){rows, cols});
        return by_fail(BY_ERR_UNSUPPORTED, "%s is %s %s; a model of this class takes integers %s", e->name, have,
                       by_dtype_name(e->dtype), want);
    }
    *out = values_of(e, BY_I32);
    return *out ? BY_OK : BY_ERR_MEMORY;
}

/* The shape of prefix + "input_ids". */
static by_status find_shape(check *c, const char *prefix)
{
    const by_st_entry *e = find(c, prefix, "input_ids");
    if (!e)
        return by_fail(BY_ERR_FORMAT, "the reference has no %sinput_ids", prefix);
    if (e->rank != 2 || e->dim[0] < 1 || e->dim[1] < 1 || e->dim[0] > 1 << 20 || e->dim[1] > 1 << 24)
        return by_fail(BY_ERR_FORMAT, "%s is not a batch of sequences", e->name);
    c->batch = (int)e->dim[0];
    c->seq = (int)e->dim[1];
    return BY_OK;
}

/* Labels are the tokens themselves: position t predicts label t + 1, and the last one nothing. */
static void shift(int32_t *labels, int batch, int seq)
{
    for (int b = 0; b < batch; b++) {
        int32_t *row = labels + (size_t)b * (size_t)seq;
        memmove(row, row + 1, sizeof *row * (size_t)(seq - 1));
        row[seq - 1] = -100;
    }
}

/* Where a classifier reads its label off: the last token that is not padding, or the last one when there is no padding token. */
static by_status find_last(check *c)
{
    int pad = by_model_pad(c->model);
    c->pick = by_alloc_zero((size_t)c->batch, sizeof *c->pick);
    for (int b = 0; c->pick && b < c->batch; b++) {
        int last = c->seq - 1;
        while (pad >= 0 && last > 0 && c->tokens[b * c->seq + last] == pad)
            last--;
        c->pick[b] = b * c->seq + (pad >= 0 && c->tokens[b * c->seq + last] == pad ? 0 : last);
    }
    return c->pick ? BY_OK : BY_ERR_MEMORY;
}

/* Everything that begins with `prefix` must be one of `known`: what is left out changes the result. */
static by_status check_known(const check *c, const char *prefix, const char *const *known)
{
    for (int i = 0; i < by_st_count(c->reference); i++) {
        const char *name = by_st_at(c->reference, i)->name;
        bool found = !has_prefix(name, prefix);
        for (int k = 0; known[k] && !found; k++)
            found = strcmp(name + strlen(prefix), known[k]) == 0;
        if (!found)
            return by_fail(BY_ERR_UNSUPPORTED, "%s: a %s takes no such input here", name, by_model_class(c->model));
    }
    return BY_OK;
}

static by_status take_inputs(check *c)
{
    static const char *const known[] = {"input_ids", "attention_mask", "position_ids", "labels", NULL};
    bool classify = by_model_task(c->model) == BY_TASK_CLASSIFY;
    BY_TRY(check_known(c, "input.", known));
    BY_TRY(find_shape(c, "input."));
    BY_TRY(take_ids(c, "input.", "input_ids", c->batch, c->seq, &c->tokens));
    BY_TRY(take_ids(c, "input.", "attention_mask", c->batch, c->seq, &c->mask));
    BY_TRY(take_ids(c, "input.", "position_ids", c->batch, c->seq, &c->positions));
    BY_TRY(take_ids(c, "input.", "labels", c->batch, classify ? 0 : c->seq, &c->targets));
    if (classify)
        return find_last(c);
    if (c->targets)
        shift(c->targets, c->batch, c->seq);
    return BY_OK;
}

/* ---- one pass forward, one with gradients ------------------------------------------------------------------------------------ */

static by_status feed(pass *p, by_tensor *t, const int32_t *values)
{
    return t ? by_write(p->program, t, values, (size_t)by_elements(t) * sizeof *values) : BY_OK;
}

static by_status run_pass(check *c, pass *p, bool gradients)
{
    int64_t shape[2] = {c->batch, c->seq};
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(c->model), .training = gradients});
    if (!g)
        return BY_ERR_MEMORY;
    p->io.want_hidden = p->io.want_attention = !gradients;
    p->io.tokens = by_input(g, "tokens", BY_I32, 2, shape);
    p->io.mask = c->mask ? by_input(g, "mask", BY_I32, 2, shape) : NULL;
    p->io.pick = c->pick ? by_input(g, "pick", BY_I32, 1, shape) : NULL;
    by_tensor *positions = c->positions ? by_input(g, "positions", BY_I32, 2, shape) : NULL;
    p->io.positions = positions;
    p->targets = c->targets ? by_input(g, "targets", BY_I32, c->pick ? 1 : 2, shape) : NULL;
    by_model_build(c->model, g, &p->io);
    if (!gradients)
        by_output(g, "logits", p->io.logits);
    p->loss = p->targets ? by_model_loss(c->model, g, &p->io, p->targets) : NULL;
    p->program = by_compile(g, &(by_compile_spec){.loss = p->loss, .grads = gradients ? BY_GRAD_STORE : BY_GRAD_NONE});
    if (!p->program)
        return by_error_status();
    BY_TRY(feed(p, p->io.tokens, c->tokens));
    BY_TRY(feed(p, p->io.mask, c->mask));
    BY_TRY(feed(p, p->io.pick, c->pick));
    BY_TRY(feed(p, positions, c->positions));
    BY_TRY(feed(p, p->targets, c->targets));
    return by_run(p->program);
}

/* The number at the end of "hidden_states.N", below count; -1 when it is none. */
static int index_after(const char *name, const char *stem, int count)
{
    char *end;
    size_t n = strlen(stem);
    if (strncmp(name, stem, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    long i = strtol(name + n, &end, 10);
    return *end == '\0' && i < count ? (int)i : -1;
}

static by_tensor *output_named(const pass *p, const char *name)
{
    int hidden = index_after(name, "hidden_states.", p->io.n_hidden);
    int attention = index_after(name, "attentions.", p->io.n_attention);
    if (hidden >= 0)
        return p->io.hidden[hidden];
    if (attention >= 0)
        return p->io.attention[attention];
    return strcmp(name, "logits") == 0 ? p->io.logits : strcmp(name, "loss") == 0 ? p->loss : NULL;
}

static by_status compare_output(check *c, const by_st_entry *e)
{
    const char *name = e->name + strlen("output.");
    const by_tensor *t = output_named(&c->forward, name);
    if (!t) {
        bool unlabelled = strcmp(name, "loss") == 0 && !c->targets;
        say_nothing_measured(c, e, BY_VERDICT_FAILED,
                             unlabelled ? "there are no labels (input.labels)" : "this model has no such output");
        return BY_OK;
    }
    int64_t dim[BY_MAX_RANK];
    for (int i = 0; i < by_rank(t); i++)
        dim[i] = by_dim(t, i);
    float *here = by_alloc_zero((size_t)by_elements(t) + 1, sizeof *here);
    by_status s = here ? by_read_f32(c->forward.program, t, here) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = compare(c, e, t == c->forward.loss ? BY_SUBJECT_LOSS : BY_SUBJECT_OUTPUT, by_rank(t), dim, here);
    by_free(here);
    return s;
}

/* A parameter's gradient, or its value after training. */
static by_status compare_parameter(check *c, const by_st_entry *e, const char *name, by_slot slot)
{
    const by_params *p = by_model_params(c->model);
    int i = by_params_find(p, name);
    bool gradient = slot == BY_SLOT_GRAD;
    if (i < 0 || (gradient && !c->backward.program)) {
        say_nothing_measured(c, e, BY_VERDICT_FAILED,
                             i < 0 ? "this model has no such parameter" : "there are no labels (input.labels)");
        return BY_OK;
    }
    size_t n = 1;
    for (int k = 0; k < by_params_rank(p, i); k++)
        n *= (size_t)by_params_shape(p, i)[k];
    float *here = by_alloc_zero(n + 1, sizeof *here);
    by_status s = here ? by_params_get(p, i, slot, here) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = compare(c, e, gradient ? BY_SUBJECT_GRADIENT : BY_SUBJECT_TRAINED, by_params_rank(p, i), by_params_shape(p, i),
                    here);
    by_free(here);
    return s;
}

static by_status run_passes(check *c)
{
    BY_TRY(take_inputs(c));
    BY_TRY(run_pass(c, &c->forward, false));
    double sum = 0;
    bool wanted = false;
    for (int i = 0; i < by_st_count(c->reference); i++) {
        const by_st_entry *e = by_st_at(c->reference, i);
        if (!has_prefix(e->name, "grad."))
            continue;
        float *values = values_of(e, BY_F32);
        if (!values)
            return BY_ERR_MEMORY;
        for (size_t k = 0; k < elements_of(e); k++)
            sum += (double)values[k] * (double)values[k];
        by_free(values);
        wanted = true;
    }
    c->whole = sqrt(sum);
    return wanted && c->targets ? run_pass(c, &c->backward, true) : BY_OK;
}

/* ---- generation -------------------------------------------------------------------------------------------------------------- */

typedef struct generation {
    by_generate_spec spec;
    int beams, pad;
    int32_t eos; /* -1: none */
} generation;

/* Settings by the names that the reference library gives them. An unknown one is an error: it may change the tokens. */
static by_status read_generation(const check *c, const cJSON *json, generation *out)
{
    static const char *const known[] = {"do_sample", "num_beams", "max_new_tokens", "min_new_tokens",
                                        "eos_token_id", "pad_token_id", "repetition_penalty",
                                        "no_repeat_ngram_size", "length_penalty", "early_stopping"};
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        bool found = false;
        for (int i = 0; i < BY_COUNT(known) && !found; i++)
            found = strcmp(item->string, known[i]) == 0;
        if (!found)
            return by_fail(BY_ERR_UNSUPPORTED, "the setting %s is not known", item->string);
    }
    bool sample;
    int64_t beams, most, least, ngram, eos, pad;
    double penalty;
    BY_TRY(by_json_bool(json, "do_sample", false, &sample));
    BY_TRY(by_json_int(json, "num_beams", 1, 1, 1 << 16, &beams));
    BY_TRY(by_json_int(json, "max_new_tokens", 0, 1, 1 << 24, &most));
    BY_TRY(by_json_int(json, "min_new_tokens", 0, 0, 1 << 24, &least));
    BY_TRY(by_json_int(json, "no_repeat_ngram_size", 0, 0, 1 << 24, &ngram));
    BY_TRY(by_json_double(json, "repetition_penalty", 1, 1e-3, 1e3, &penalty));
    /* an explicit null means that nothing ends the text, no entry that the model's own token does */
    bool own = !cJSON_HasObjectItem(json, "eos_token_id");
    BY_TRY(by_json_int(json, "eos_token_id", own ? by_model_eos(c->model) : -1, 0, INT32_MAX, &eos));
    BY_TRY(by_json_int(json, "pad_token_id", 0, 0, INT32_MAX, &pad));
    if (sample)
        return by_fail(BY_ERR_UNSUPPORTED, "sampled tokens cannot be compared: the random numbers differ");
    if (most == 0)
        return by_fail(BY_ERR_FORMAT, "max_new_tokens is missing");
    *out = (generation){.beams = (int)beams, .pad = (int)pad, .eos = (int32_t)eos};
    out->spec = (by_generate_spec){.max_new_tokens = (int)most, .ignore_eos = true};
    out->spec.sampling.min_new_tokens = (int)least;
    out->spec.sampling.no_repeat_ngram = (int)ngram;
    out->spec.sampling.repetition_penalty = penalty;
    return BY_OK;
}

/* What the reference library returns at place i: the tokens, an end token when one came, padding after it. */
static int32_t token_at(const by_generation *row, const generation *g, int i)
{
    if (i < row->count)
        return row->tokens[i];
    return row->finish == BY_FINISH_STOP && i == row->count ? g->eos : g->pad;
}

/* Compare rows of `width` tokens; the first difference goes into the note. */
static int count_different(const by_generate_result *r, const generation *g, const int32_t *there, int width, char *note,
                           size_t size)
{
    int different = 0;
    for (int b = 0; b < r->count; b++)
        for (int i = 0; i < width; i++) {
            int here = token_at(&r->rows[b], g, i);
            if (here == there[b * width + i])
                continue;
            if (different++ == 0)
                snprintf(note, size, "first in row %d: token %d is %d, the reference has %d", b, i, here,
                         (int)there[b * width + i]);
        }
    return different;
}

/* The reference holds prompts and what followed; prompts are the beginnings of input_ids. */
static by_status generate_rows(check *c, const by_st_entry *e, generation *g, const int32_t *there)
{
    int rows = (int)e->dim[0], width = (int)e->dim[1], prompt = width - g->spec.max_new_tokens;
    const int32_t **prompts = by_alloc_zero((size_t)rows, sizeof *prompts);
    int *lengths = by_alloc_zero((size_t)rows, sizeof *lengths);
    by_generate_result result = {0};
    by_status s = prompts && lengths ? BY_OK : BY_ERR_MEMORY;
    for (int b = 0; b < rows && s == BY_OK; b++) {
        prompts[b] = there + (size_t)b * (size_t)width;
        lengths[b] = prompt;
        if (prompt < 1 || prompt > c->seq ||
            memcmp(prompts[b], c->tokens + (size_t)b * (size_t)c->seq, sizeof **prompts * (size_t)prompt) != 0)
            s = by_fail(BY_ERR_FORMAT, "row %d does not begin with tokens of input_ids", b);
    }
    g->spec.stop_tokens = &g->eos;
    g->spec.stop_count = g->eos >= 0 && g->eos < by_model_vocab(c->model);
    by_generator_free(c->generator);
    c->generator = s == BY_OK ? by_generator_new(c->model, &(by_generator_spec){.batch = rows}) : NULL;
    if (s == BY_OK)
        s = c->generator ? by_generate(c->generator, prompts, lengths, &g->spec, &result) : by_error_status();
    if (s == BY_OK) {
        char note[128] = "";
        by_rule rule = by_rule_for(BY_SUBJECT_TOKENS, c->spec->dtype);
        int different = count_different(&result, g, there, width, note, sizeof note);
        say_measured(c, e, &rule, different, *note ? note : NULL);
    }
    by_generate_result_free(&result);
    by_free(prompts);
    by_free(lengths);
    return s;
}

static by_status compare_generation(check *c, const by_st_entry *e)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(c->settings, "generate");
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(all, e->name + strlen("generate."));
    generation g;
    by_status s = BY_OK;
    if (!cJSON_IsObject(json))
        s = by_fail(BY_ERR_FORMAT, "case.json has no settings for it");
    else
        s = read_generation(c, json, &g);
    if (s == BY_OK && g.beams > 1) {
        say_nothing_measured(c, e, BY_VERDICT_NOT_RUN, "beam search is not there yet");
        return BY_OK;
    }
    if (s == BY_OK && c->spec->dtype != BY_F32 && c->spec->dtype != BY_F64) {
        say_nothing_measured(c, e, BY_VERDICT_NOT_RUN, "in 16 bits another token may be the likeliest");
        return BY_OK;
    }
    if (s == BY_OK && (e->rank != 2 || by_dtype_is_float(e->dtype) || e->dim[0] < 1 || e->dim[0] > c->batch ||
                       e->dim[1] > 1 << 24))
        s = by_fail(BY_ERR_FORMAT, "these are not as many rows of tokens as input_ids has");
    int32_t *there = s == BY_OK ? values_of(e, BY_I32) : NULL;
    if (s == BY_OK)
        s = there ? generate_rows(c, e, &g, there) : BY_ERR_MEMORY;
    by_free(there);
    if (s == BY_ERR_FORMAT || s == BY_ERR_UNSUPPORTED || s == BY_ERR_ARGUMENT) {
        char *note = by_strdup(by_error_message());
        say_nothing_measured(c, e, BY_VERDICT_FAILED, note);
        by_free(note);
        s = BY_OK;
    }
    return s;
}

/* ---- training ------------------------------------------------------------------------------------------------------------------ */

/* The settings of a recorded training run. Texts that describe what is fixed here must be the ones known. */
static by_status read_training(const cJSON *json, by_optimizer_spec *optimizer, by_schedule_spec *schedule)
{
    const char *kind, *decay, *course;
    double dropout;
    int warmup, divisor, rest;
    const cJSON *betas = cJSON_GetObjectItemCaseSensitive(json, "betas");
    const cJSON *beta1 = cJSON_GetArrayItem(betas, 0), *beta2 = cJSON_GetArrayItem(betas, 1);
    BY_TRY(by_json_string(json, "optimizer", "", &kind));
    BY_TRY(by_json_string(json, "decay", "", &decay));
    BY_TRY(by_json_string(json, "schedule", "", &course));
    BY_TRY(by_json_double(json, "dropout", 0, 0, 1, &dropout));
    BY_TRY(by_json_double(json, "lr", 0, 0, 1e3, &schedule->rate));
    BY_TRY(by_json_double(json, "eps", 0, 0, 1, &optimizer->eps));
    BY_TRY(by_json_double(json, "weight_decay", 0, 0, 1e3, &optimizer->weight_decay));
    BY_TRY(by_json_double(json, "clip_grad_norm", 0, 0, 1e9, &optimizer->max_grad_norm));
    BY_TRY(by_json_int(json, "steps", 0, 1, 1 << 20, &schedule->steps));
    if (strcmp(kind, "AdamW") != 0 || !cJSON_IsNumber(beta1) || !cJSON_IsNumber(beta2) || optimizer->eps == 0)
        return by_fail(BY_ERR_UNSUPPORTED, "the optimizer must be AdamW with betas and eps");
    if (strcmp(decay, "tensors of two or more dimensions") != 0 || dropout != 0)
        return by_fail(BY_ERR_UNSUPPORTED, "only runs without dropout and with decay on \"tensors of two or more "
                                           "dimensions\" can be repeated");
    if (sscanf(course, "linear warm-up over %d steps from lr/%d, then cosine to zero over the other %d:", &warmup, &divisor,
               &rest) != 3 ||
        divisor != warmup || warmup < 0 || warmup + rest != schedule->steps)
        return by_fail(BY_ERR_UNSUPPORTED, "the schedule \"%s\" is not known", course);
    optimizer->kind = BY_ADAMW;
    optimizer->beta1 = beta1->valuedouble;
    optimizer->beta2 = beta2->valuedouble;
    schedule->kind = BY_SCHEDULE_COSINE;
    schedule->warmup = warmup;
    return BY_OK;
}

static by_status train_step(check *c, by_trainer *t, int step, double rate)
{
    static const char *const known[] = {"input_ids", "labels", NULL};
    bool classify = by_model_task(c->model) == BY_TASK_CLASSIFY;
    char prefix[24];
    int32_t *tokens = NULL, *labels = NULL;
    double loss, norm;
    snprintf(prefix, sizeof prefix, "step%d.", step);
    BY_TRY(check_known(c, prefix, known));
    by_status s = take_ids(c, prefix, "input_ids", c->batch, c->seq, &tokens);
    if (s == BY_OK)
        s = take_ids(c, prefix, "labels", c->batch, classify ? 0 : c->seq, &labels);
    if (s == BY_OK && (!tokens || !labels))
        s = by_fail(BY_ERR_FORMAT, "the reference has no %s", tokens ? "labels" : "input_ids");
    if (s == BY_OK && !classify)
        shift(labels, c->batch, c->seq);
    if (s == BY_OK)
        s = by_trainer_backward(t, tokens, labels, true, &loss);
    if (s == BY_OK)
        s = by_trainer_update(t, rate, &norm);
    by_free(tokens);
    by_free(labels);
    if (s != BY_OK)
        return by_fail_context("step %d", step);
    c->losses[step] = (float)loss;
    c->norms[step] = (float)norm;
    return BY_OK;
}

static by_status run_training(check *c, const cJSON *json)
{
    by_optimizer_spec optimizer = {0};
    by_schedule_spec schedule = {0};
    BY_TRY(read_training(json, &optimizer, &schedule));
    BY_TRY(find_shape(c, "step0."));
    c->steps = (int)schedule.steps;
    c->losses = by_alloc_zero((size_t)c->steps, sizeof *c->losses);
    c->norms = by_alloc_zero((size_t)c->steps, sizeof *c->norms);
    if (!c->losses || !c->norms)
        return BY_ERR_MEMORY;
    by_trainer *t =
        by_trainer_new(c->model, &(by_trainer_spec){.batch = c->batch, .seq = c->seq, .optimizer = optimizer});
    by_status s = t ? BY_OK : by_error_status();
    for (int i = 0; i < c->steps && s == BY_OK; i++)
        s = train_step(c, t, i, by_schedule_rate(&schedule, i));
    by_trainer_free(t);
    return s;
}

static by_status compare_course(check *c, const by_st_entry *e, const float *here)
{
    return compare(c, e, BY_SUBJECT_COURSE, 1, (int64_t[]){c->steps}, here);
}

/* ---- the case --------------------------------------------------------------------------------------------------------------------- */

static by_status compare_pass_entry(check *c, const by_st_entry *e, const char *group)
{
    if (strcmp(group, "output.") == 0)
        return compare_output(c, e);
    if (strcmp(group, "grad.") == 0)
        return compare_parameter(c, e, e->name + strlen(group), BY_SLOT_GRAD);
    return compare_generation(c, e);
}

static by_status compare_training_entry(check *c, const by_st_entry *e, const char *group)
{
    if (strcmp(group, "final.") == 0)
        return compare_parameter(c, e, e->name + strlen(group), BY_SLOT_VALUE);
    return compare_course(c, e, strcmp(group, "losses") == 0 ? c->losses : c->norms);
}

/* One step's batches, which are inputs: "step" and a number below c->steps. */
static bool is_batch(const check *c, const char *name)
{
    char *end;
    return has_prefix(name, "step") && name[4] >= '0' && name[4] <= '9' && strtol(name + 4, &end, 10) < c->steps && *end == '.';
}

/* Go through the reference group by group; what belongs to none has failed. */
static by_status compare_all(check *c, bool training)
{
    static const char *const passes[] = {"output.", "grad.", "generate."};
    static const char *const course[] = {"losses", "grad_norms", "final."};
    const char *const *groups = training ? course : passes;
    for (int k = 0; k <= 3; k++)
        for (int i = 0; i < by_st_count(c->reference); i++) {
            const by_st_entry *e = by_st_at(c->reference, i);
            int group = 0;
            while (group < 3 && !has_prefix(e->name, groups[group]))
                group++;
            bool input = training ? is_batch(c, e->name) : has_prefix(e->name, "input.");
            if (group != k || (group == 3 && input))
                continue;
            if (group == 3)
                say_nothing_measured(c, e, BY_VERDICT_FAILED, "verify does not know what this is");
            else
                BY_TRY(training ? compare_training_entry(c, e, groups[k]) : compare_pass_entry(c, e, groups[k]));
        }
    if (c->result->tensors == 0)
        return by_fail(BY_ERR_FORMAT, "reference.safetensors: there is nothing to compare");
    return BY_OK;
}

/* The case must be about the model that was opened, and about nothing that is left out here. */
static by_status check_case(const check *c)
{
    const char *class;
    const cJSON *scalars = cJSON_GetObjectItemCaseSensitive(c->settings, "scalar_inputs");
    BY_TRY(by_json_string(c->settings, "class", "", &class));
    if (strcmp(class, by_model_class(c->model)) != 0)
        return by_fail(BY_ERR_UNSUPPORTED, "case.json is about a %s; the model is a %s here", class, by_model_class(c->model));
    if (cJSON_GetArraySize(scalars) > 0)
        return by_fail(BY_ERR_UNSUPPORTED, "case.json has the scalar input %s, which a %s does not take here",
                       cJSON_GetArrayItem(scalars, 0)->string, class);
    return BY_OK;
}

static by_status open_case(check *c, const char *dir)
{
    char *settings = by_path_join(dir, "case.json"), *reference = by_path_join(dir, "reference.safetensors");
    if (settings && reference) {
        c->settings = by_json_load(settings);
        c->reference = c->settings ? by_st_open(reference) : NULL;
    }
    by_free(settings);
    by_free(reference);
    if (!c->reference)
        return by_error_status();
    c->model = by_model_open(c->device, dir, &(by_model_spec){.dtype = c->spec->dtype, .training = true});
    if (!c->model)
        return by_error_status();
    by_model_set_dropout(c->model, 0);
    if (check_case(c) != BY_OK)
        return by_fail_context("%s", dir);
    return BY_OK;
}

static void close_case(check *c)
{
    by_program_free(c->forward.program);
    by_program_free(c->backward.program);
    by_generator_free(c->generator);
    by_model_free(c->model);
    by_st_free(c->reference);
    cJSON_Delete(c->settings);
    int32_t *inputs[] = {c->tokens, c->mask, c->positions, c->targets, c->pick};
    for (int i = 0; i < BY_COUNT(inputs); i++)
        by_free(inputs[i]);
    by_free(c->losses);
    by_free(c->norms);
}

by_status by_verify(by_device *d, const char *dir, const by_verify_spec *spec, by_verify_result *result)
{
    check c = {.device = d, .spec = spec, .result = result};
    *result = (by_verify_result){0};
    by_error_clear();
    by_status s = open_case(&c, dir);
    if (s == BY_OK) {
        const cJSON *train = cJSON_GetObjectItemCaseSensitive(c.settings, "train");
        s = train ? run_training(&c, train) : run_passes(&c);
        if (s == BY_OK)
            s = compare_all(&c, train != NULL);
        if (s != BY_OK)
            by_fail_context("%s", dir);
    }
    close_case(&c);
    return s;
}
