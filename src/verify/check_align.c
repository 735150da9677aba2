/* check_align.c - see check_align.h: shared parts of the cases, and their dispatch. */
#include "verify/check_align.h"

#include <math.h>

#include "base/file.h"
#include "base/json.h"
#include "model/model.h"

/* ---- inputs ----------------------------------------------------------------------------------- */

static void *keep(verify_align *a, void *memory)
{
    if (memory && a->n_arrays == VERIFY_ALIGN_ARRAYS) {
        base_free(memory);
        base_fail(BY_ERR_UNSUPPORTED, "the case has too many arrays");
        return NULL;
    }
    if (memory)
        a->arrays[a->n_arrays++] = memory;
    return memory;
}

void *verify_align_room(verify_align *a, size_t count, size_t size)
{
    return keep(a, base_alloc_zero(count + 1, size));
}

void verify_align_drop(verify_align *a, int kept)
{
    while (a->n_arrays > kept)
        base_free(a->arrays[--a->n_arrays]);
}

static const by_weight *input(verify_align *a, const char *name)
{
    const by_weight *e = verify_find(a->c, "input.", name);
    if (!e)
        base_fail(BY_ERR_FORMAT, "the reference has no input.%s", name);
    return e;
}

int32_t *verify_align_ids(verify_align *a, const char *name, int *rows, int *cols)
{
    const by_weight *e = input(a, name);
    if (!e)
        return NULL;
    if (rows)
        *rows = e->rank > 0 ? (int)e->dim[0] : 1;
    if (cols)
        *cols = e->rank > 1 ? (int)e->dim[1] : 1;
    return keep(a, verify_values(e, BY_I32));
}

float *verify_align_floats(verify_align *a, const char *name)
{
    const by_weight *e = input(a, name);
    return e ? keep(a, verify_values(e, BY_F32)) : NULL;
}

static const cJSON *setting(const verify_align *a, const char *variant, const char *key)
{
    const cJSON *variants = cJSON_GetObjectItemCaseSensitive(a->c->settings, "variants");
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(variants, variant);
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(own, key);
    return value ? value
                 : cJSON_GetObjectItemCaseSensitive(
                       cJSON_GetObjectItemCaseSensitive(a->c->settings, "settings"), key);
}

double verify_align_number(const verify_align *a, const char *variant, const char *key, double fallback)
{
    const cJSON *v = setting(a, variant, key);
    return cJSON_IsNumber(v) ? v->valuedouble : fallback;
}

const char *verify_align_word(const verify_align *a, const char *variant, const char *key)
{
    const cJSON *v = setting(a, variant, key);
    return cJSON_IsString(v) ? v->valuestring : "";
}

/* ---- comparisons ------------------------------------------------------------------------------ */

static int find(const verify_align *a, const char *variant, const char *name)
{
    char *full = *variant ? base_sprintf("%s.%s", variant, name) : base_strdup(name);
    int i = full ? by_weights_count(a->c->reference) - 1 : -1;
    while (i >= 0 && strcmp(by_weights_at(a->c->reference, i)->name, full) != 0)
        i--;
    base_free(full);
    return i;
}

by_status verify_align_values(verify_align *a, const char *variant, const char *name, const float *values)
{
    const int i = find(a, variant, name);
    if (i < 0)
        return BY_OK;
    const by_weight *e = by_weights_at(a->c->reference, i);
    a->seen[i] = true;
    return values ? verify_compare(a->c, e, e->rank ? VERIFY_SUBJECT_OUTPUT : VERIFY_SUBJECT_LOSS, e->rank,
                                   e->dim, values, NULL)
                  : base_error_status();
}

by_status verify_align_number_is(verify_align *a, const char *variant, const char *name, double value)
{
    const float v = (float)value;
    return verify_align_values(a, variant, name, &v);
}

static bool is_grad(const by_weight *e, const char *variant, const char *part)
{
    const size_t n = strlen(variant);
    return strncmp(e->name, variant, n) == 0 && strncmp(e->name + n, ".grad.", 6) == 0 &&
           verify_has_prefix(e->name + n + 6, part);
}

bool verify_align_has_grads(const verify_align *a, const char *variant)
{
    for (int i = 0; i < by_weights_count(a->c->reference); i++)
        if (is_grad(by_weights_at(a->c->reference, i), variant, ""))
            return true;
    return false;
}

/* The norm of all recorded gradients of a variant. */
static by_status find_whole(verify_align *a, const char *variant, const char *part)
{
    double sum = 0;
    for (int i = 0; i < by_weights_count(a->c->reference); i++) {
        const by_weight *e = by_weights_at(a->c->reference, i);
        if (!is_grad(e, variant, part))
            continue;
        float *v = verify_values(e, BY_F32);
        if (!v)
            return BY_ERR_MEMORY;
        for (size_t k = 0; k < verify_elements(e); k++)
            sum += (double)v[k] * (double)v[k];
        base_free(v);
    }
    a->c->whole = sum > 0 ? sqrt(sum) : 1;
    return BY_OK;
}

by_status verify_align_grads(verify_align *a, const char *variant, const char *part, const by_model *m)
{
    const by_params *p = by_model_params(m);
    const size_t skip = strlen(variant) + strlen(".grad.") + strlen(part);
    BY_TRY(find_whole(a, variant, part));
    for (int i = 0; i < by_weights_count(a->c->reference); i++) {
        const by_weight *e = by_weights_at(a->c->reference, i);
        if (!is_grad(e, variant, part))
            continue;
        const int k = model_find(m, e->name + skip);
        a->seen[i] = true;
        if (verify_missing(a->c, e, k, true))
            continue;
        float *here = verify_parameter(p, k, BY_SLOT_GRAD);
        by_status s = here ? verify_compare(a->c, e, VERIFY_SUBJECT_GRADIENT, by_params_rank(p, k),
                                            by_params_shape(p, k), here, NULL)
                           : base_error_status();
        base_free(here);
        BY_TRY(s);
    }
    return BY_OK;
}

/* ---- passes ----------------------------------------------------------------------------------- */

by_pass *verify_align_pass(verify_align *a, by_model *m, const by_batch *b, by_loss_fn loss, const void *spec,
                           bool gradients)
{
    (void)a;
    union { /* losses take any spec; theirs are not changed */
        const void *from;
        void *to;
    } user = {spec};
    by_pass *p = by_pass_new(m, b,
                             &(by_pass_spec){.grads = gradients ? BY_GRAD_STORE : BY_GRAD_NONE,
                                             .loss = loss,
                                             .loss_user = user.to});
    if (p && by_pass_run(p, b) != BY_OK) {
        by_pass_free(p);
        p = NULL;
    }
    return p;
}

float *verify_align_output(verify_align *a, by_pass *p, const char *name)
{
    const by_tensor *t = by_io_output(by_pass_io(p), name);
    if (!t) {
        base_fail(BY_ERR_ARGUMENT, "the loss has no output \"%s\"", name);
        return NULL;
    }
    float *v = verify_align_room(a, (size_t)by_elements(t), sizeof *v);
    return v && by_pass_read(p, t, v) == BY_OK ? v : NULL;
}

by_status verify_align_loss(verify_align *a, by_pass *p, double *out)
{
    (void)a;
    float v;
    BY_TRY(by_pass_read(p, by_pass_loss(p), &v));
    *out = (double)v;
    return BY_OK;
}

by_status verify_align_batch(verify_align *a, verify_texts *t, by_batch *out)
{
    const size_t n = (size_t)t->rows * (size_t)t->cols;
    t->targets = t->tokens && t->completion ? verify_align_room(a, n, sizeof *t->targets) : NULL;
    if (!t->targets)
        return base_error_status();
    for (int i = 0; i < t->rows * t->cols; i++)
        t->targets[i] = (i + 1) % t->cols && t->completion[i + 1] ? t->tokens[i + 1] : -100;
    *out = by_batch_of(t->rows, t->cols, t->tokens);
    by_batch_put_tokens(out, "mask", t->mask);
    by_batch_put_tokens(out, "targets", t->targets);
    return BY_OK;
}

by_status verify_align_logps(verify_align *a, by_model *m, const by_batch *b, float **out)
{
    by_pass *p = verify_align_pass(a, m, b, by_likelihood_loss, NULL, false);
    *out = p ? verify_align_output(a, p, "logps") : NULL;
    by_pass_free(p);
    return *out ? BY_OK : base_error_status();
}

/* ---- cases ------------------------------------------------------------------------------------ */

/* By the beginning of the formula, with the folder of the second model. */
static const struct {
    const char *formula, *folder;
    by_status (*run)(verify_align *a);
} losses[] = {
    {"trl.SFTTrainer", NULL, verify_sft},
    {"trl.DPOTrainer", "ref", verify_dpo},
    {"trl.KTOTrainer", "ref", verify_kto},
    {"trl.experimental.orpo", NULL, verify_cpo},
    {"trl.RewardTrainer", NULL, verify_reward},
    {"trl.GRPOTrainer", NULL, verify_grpo},
    {"trl.RLOOTrainer", NULL, verify_rloo},
    {"trl 0.24 PPOTrainer", "value", verify_ppo},
    {"DistilBERT's distiller.py", "teacher", verify_distil},
};

static by_model *open_model(verify_align *a, const char *folder)
{
    char *dir = folder ? base_path_join(a->c->dir, folder) : base_strdup(a->c->dir);
    by_model *m =
        dir ? by_model_open(a->c->device, dir,
                            &(by_model_spec){.dtype = a->c->spec->dtype, .training = true, .exact = true})
            : NULL;
    base_free(dir);
    if (m)
        by_model_set_dropout(m, 0);
    return m;
}

static void note_unseen(verify_align *a)
{
    for (int i = 0; i < by_weights_count(a->c->reference); i++) {
        const by_weight *e = by_weights_at(a->c->reference, i);
        if (!a->seen[i] && !verify_has_prefix(e->name, "input."))
            verify_note(a->c, e, BY_VERDICT_FAILED, "nothing here computes it");
    }
}

static by_status run(verify_align *a)
{
    const char *formula;
    BY_TRY(base_json_string(a->c->settings, "formula", "", &formula));
    int k = 0;
    while (k < BY_COUNT(losses) && !verify_has_prefix(formula, losses[k].formula))
        k++;
    if (k == BY_COUNT(losses))
        return base_fail(BY_ERR_UNSUPPORTED, "unknown formula \"%s\"", formula);
    a->model = open_model(a, NULL);
    if (a->model && losses[k].folder)
        a->other = open_model(a, losses[k].folder);
    if (!a->model || (losses[k].folder && !a->other))
        return base_error_status();
    a->seen = base_alloc_zero((size_t)by_weights_count(a->c->reference) + 1, sizeof *a->seen);
    BY_TRY(a->seen ? losses[k].run(a) : BY_ERR_MEMORY);
    note_unseen(a);
    return BY_OK;
}

by_status verify_alignment(verify_case *c)
{
    verify_align a = {.c = c};
    by_status s = run(&a);
    verify_align_drop(&a, 0);
    base_free(a.seen);
    by_model_free(a.model);
    by_model_free(a.other);
    return s;
}
