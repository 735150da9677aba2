/* verify.c - runs a recorded case and compares everything that was recorded (see banyan/verify.h). */
#include "banyan/verify.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "verify/check.h"

static by_status compare_pass_entry(verify_case *c, const by_weight *e, const char *group)
{
    if (strcmp(group, "output.") == 0)
        return verify_output(c, e, e->name + strlen(group));
    if (strcmp(group, "grad.") == 0)
        return verify_gradient(c, e);
    return verify_generation(c, e);
}

static by_status compare_training_entry(verify_case *c, const by_weight *e, const char *group)
{
    if (strcmp(group, "final.") == 0)
        return verify_trained(c, e);
    return verify_step_values(c, e, strcmp(group, "losses") == 0 ? c->losses : c->norms);
}

/* N is below c->steps and has no leading zeros. */
bool verify_is_batch(const verify_case *c, const char *name)
{
    char prefix[32];
    long n = verify_has_prefix(name, "step") ? strtol(name + 4, NULL, 10) : -1;
    base_format(prefix, sizeof prefix, "step%ld.", n);
    return n >= 0 && n < c->steps && verify_has_prefix(name, prefix);
}

/* "stem." matches every name below it, "name" matches itself. */
static bool is_in(const char *name, const char *group)
{
    return group[strlen(group) - 1] == '.' ? verify_has_prefix(name, group) : strcmp(name, group) == 0;
}

/* Whether an input of the model has this very name. */
static bool is_named(const verify_case *c, const char *name)
{
    const by_input_info *in;
    for (int i = 0; (in = by_model_input(c->model, i)); i++)
        if (strcmp(in->name, name) == 0)
            return true;
    return false;
}

/* Walks through the reference group by group. An entry that belongs to no group has failed. */
static by_status compare_all(verify_case *c, bool training)
{
    static const char *const passes[] = {"output.", "grad.", "generate."};
    static const char *const steps[] = {"losses", "grad_norms", "final."};
    const char *const *groups = training ? steps : passes;
    for (int k = 0; k <= 3; k++)
        for (int i = 0; i < by_weights_count(c->reference); i++) {
            const by_weight *e = by_weights_at(c->reference, i);
            int group = 0;
            while (group < 3 && !is_in(e->name, groups[group]))
                group++;
            bool input = training ? verify_is_batch(c, e->name)
                                  : verify_has_prefix(e->name, "input.") || is_named(c, e->name);
            if (group != k || (group == 3 && input))
                continue;
            if (group == 3)
                verify_note(c, e, BY_VERDICT_FAILED, "unknown kind of tensor");
            else
                BY_TRY(training ? compare_training_entry(c, e, groups[k])
                                : compare_pass_entry(c, e, groups[k]));
        }
    return BY_OK;
}

/* The case must match the opened model and contain nothing that is ignored here. */
static by_status check_case(const verify_case *c)
{
    const char *class;
    const cJSON *scalars = cJSON_GetObjectItemCaseSensitive(c->settings, "scalar_inputs");
    BY_TRY(base_json_string(c->settings, "class", "", &class));
    if (strcmp(class, by_model_class(c->model)) != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "case.json describes %s, but the model was opened as %s",
                         base_a(class).text, base_a(by_model_class(c->model)).text);
    if (cJSON_IsObject(scalars) && scalars->child)
        return base_fail(BY_ERR_UNSUPPORTED, "case.json has the scalar input %s, which %s does not take",
                         scalars->child->string, base_a(class).text);
    return BY_OK;
}

static by_status read_case(verify_case *c, const char *dir)
{
    c->dir = dir;
    char *settings = base_path_join(dir, "case.json");
    c->settings = settings ? base_json_load(settings) : NULL;
    base_free(settings);
    return c->settings ? BY_OK : base_error_status();
}

static by_status open_reference(verify_case *c)
{
    char *path = base_path_join(c->dir, "reference.safetensors");
    c->reference = path ? by_weights_open(path) : NULL;
    base_free(path);
    return c->reference ? BY_OK : base_error_status();
}

static by_status open_model(verify_case *c)
{
    c->model = by_model_open(c->device, c->dir,
                             &(by_model_spec){.dtype = c->spec->dtype, .training = true, .exact = true});
    if (!c->model)
        return base_error_status();
    by_model_set_dropout(c->model, 0);
    return check_case(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
}

static void close_case(verify_case *c)
{
    by_pass_free(c->forward);
    by_pass_free(c->backward);
    by_stream_free(c->stream);
    by_stream_free(c->backward_stream);
    by_generator_free(c->generator);
    by_model_free(c->model);
    by_weights_free(c->reference);
    cJSON_Delete(c->settings);
    int32_t *inputs[] = {c->tokens,  c->segments, c->mask,   c->positions,
                         c->targets, c->second,   c->source, c->source_mask};
    for (int i = 0; i < BY_COUNT(inputs); i++)
        base_free(inputs[i]);
    base_free(c->numbers);
    for (int i = 0; i < c->extra.count; i++)
        base_free((void *)c->extra.arrays[i].data);
    base_free(c->losses);
    base_free(c->norms);
}

static by_status run_model(verify_case *c)
{
    const cJSON *train = cJSON_GetObjectItemCaseSensitive(c->settings, "train");
    BY_TRY(train ? verify_training(c, train) : verify_passes(c));
    return compare_all(c, train != NULL);
}

/* Cases that are not models, by class or family; each has its own computation. */
static const struct {
    const char *class;
    by_status (*run)(verify_case *c);
} kinds[] = {
    {"ContinuousCache", verify_continuous_cache},
    {"RNN", verify_recurrent},
    {"LSTM", verify_recurrent},
    {"GRU", verify_recurrent},
    {"additive attention", verify_additive_attention},
    {"losses", verify_losses},
};

static by_status run_case(verify_case *c)
{
    const char *class, *kind;
    BY_TRY(base_json_string(c->settings, "kind", "", &kind));
    if (strcmp(kind, "ngram") == 0)
        return verify_ngram(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
    if (strcmp(kind, "chat") == 0)
        return verify_chat(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
    BY_TRY(open_reference(c));
    if (strcmp(kind, "images") == 0)
        return verify_images(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
    if (strcmp(kind, "align") == 0)
        return verify_alignment(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
    if (strcmp(kind, "tune") == 0)
        return verify_tune(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
    BY_TRY(base_json_string(c->settings, "family", "", &class));
    BY_TRY(base_json_string(c->settings, "class", class, &class));
    for (int i = 0; i < BY_COUNT(kinds); i++)
        if (strcmp(class, kinds[i].class) == 0)
            return kinds[i].run(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
    BY_TRY(open_model(c));
    return run_model(c) == BY_OK ? BY_OK : base_fail_context("%s", c->dir);
}

/* A case in which nothing was compared has shown nothing. */
static by_status check_count(const verify_case *c)
{
    const by_verify_result *r = c->result;
    if (r->tensors > 0)
        return BY_OK;
    return r->not_run
               ? base_fail(BY_ERR_UNSUPPORTED,
                           "%s: nothing was compared: the recorded results cannot be compared in %s", c->dir,
                           by_dtype_name(c->spec->dtype))
               : base_fail(BY_ERR_FORMAT, "%s: nothing to compare: no expected results are recorded", c->dir);
}

by_status by_verify(by_device *d, const char *dir, const by_verify_spec *spec, by_verify_result *result)
{
    if (!d || !dir || !spec || !result)
        return base_fail_missing(d ? "case directory, by_verify_spec or by_verify_result" : "device");
    verify_case c = {.device = d, .spec = spec, .result = result};
    *result = (by_verify_result){0};
    base_error_clear();
    by_status s = read_case(&c, dir);
    if (s == BY_OK)
        s = run_case(&c);
    if (s == BY_OK)
        s = check_count(&c);
    close_case(&c);
    return s;
}
