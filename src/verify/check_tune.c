/* check_tune.c - a model with an adapter: outputs, gradients of the adapter, merged weights and recorded
 * steps. */
#include "banyan/adapter.h"
#include "base/file.h"
#include "base/json.h"
#include "model/model.h"
#include "verify/check.h"

static by_status open_body(verify_case *c)
{
    const char *class;
    BY_TRY(base_json_string(c->settings, "class", "", &class));
    c->model = by_model_open(c->device, c->dir,
                             &(by_model_spec){.dtype = c->spec->dtype, .exact = true, .copy = true});
    if (!c->model)
        return base_error_status();
    by_model_set_dropout(c->model, 0);
    return strcmp(class, by_model_class(c->model)) == 0
               ? BY_OK
               : base_fail(BY_ERR_UNSUPPORTED, "case.json describes %s, but the model was opened as %s",
                           base_a(class).text, base_a(by_model_class(c->model)).text);
}

static by_status add_adapter(verify_case *c)
{
    char *dir = base_path_join(c->dir, "adapter");
    by_adapter *a = dir ? by_adapter_open(c->model, dir, true) : NULL;
    base_free(dir);
    return a ? BY_OK : base_error_status();
}

/* ---- comparisons ------------------------------------------------------------------------------ */

static by_status compare_merged(verify_case *c, const by_weight *e)
{
    const by_params *p = by_model_params(c->model);
    const int i = model_find(c->model, e->name + strlen("merged."));
    if (verify_missing(c, e, i, true))
        return BY_OK;
    float *here = verify_parameter(p, i, BY_SLOT_VALUE);
    by_status s = here ? verify_compare(c, e, VERIFY_SUBJECT_OUTPUT, by_params_rank(p, i),
                                        by_params_shape(p, i), here, NULL)
                       : base_error_status();
    base_free(here);
    return s;
}

static by_status compare_base_output(verify_case *c, const by_weight *e)
{
    return verify_output(c, e, e->name + strlen("base.output."));
}

static by_status compare_output(verify_case *c, const by_weight *e)
{
    return verify_output(c, e, e->name + strlen("output."));
}

static by_status compare_losses(verify_case *c, const by_weight *e)
{
    return verify_step_values(c, e, c->losses);
}

static by_status compare_norms(verify_case *c, const by_weight *e)
{
    return verify_step_values(c, e, c->norms);
}

/* Compares every entry whose name begins so. */
static by_status compare(verify_case *c, const char *prefix,
                         by_status (*one)(verify_case *c, const by_weight *e))
{
    for (int i = 0; i < by_weights_count(c->reference); i++)
        if (verify_has_prefix(by_weights_at(c->reference, i)->name, prefix))
            BY_TRY(one(c, by_weights_at(c->reference, i)));
    return BY_OK;
}

static by_status compare_unknown(verify_case *c)
{
    static const char *const known[] = {"input.",  "base.output.", "output.",    "grad.",
                                        "merged.", "losses",       "grad_norms", "final."};
    for (int i = 0; i < by_weights_count(c->reference); i++) {
        const by_weight *e = by_weights_at(c->reference, i);
        bool found = verify_is_batch(c, e->name);
        for (int k = 0; k < BY_COUNT(known) && !found; k++)
            found = verify_has_prefix(e->name, known[k]);
        if (!found)
            verify_note(c, e, BY_VERDICT_FAILED, "unknown kind of tensor");
    }
    return BY_OK;
}

/* ---- the case --------------------------------------------------------------------------------- */

/* Merging changes the weights for the comparison and leaves them as they were. */
static by_status check_merged(verify_case *c)
{
    by_adapter *a = by_model_adapter(c->model);
    bool any = false;
    for (int i = 0; i < by_weights_count(c->reference) && !any; i++)
        any = verify_has_prefix(by_weights_at(c->reference, i)->name, "merged.");
    if (!any)
        return BY_OK;
    BY_TRY(by_adapter_merge(a));
    by_status s = compare(c, "merged.", compare_merged), undone = by_adapter_unmerge(a);
    return s == BY_OK ? undone : s;
}

static by_status check_training(verify_case *c)
{
    const cJSON *train = cJSON_GetObjectItemCaseSensitive(c->settings, "train");
    if (!train)
        return BY_OK;
    BY_TRY(verify_training(c, train));
    BY_TRY(compare(c, "losses", compare_losses));
    BY_TRY(compare(c, "grad_norms", compare_norms));
    return compare(c, "final.", verify_trained);
}

by_status verify_tune(verify_case *c)
{
    BY_TRY(open_body(c));
    BY_TRY(verify_inputs(c));
    BY_TRY(verify_forward(c));
    BY_TRY(compare(c, "base.output.", compare_base_output));
    BY_TRY(add_adapter(c));
    BY_TRY(verify_forward(c));
    BY_TRY(compare(c, "output.", compare_output));
    BY_TRY(verify_backward(c));
    BY_TRY(compare(c, "grad.", verify_gradient));
    BY_TRY(check_merged(c));
    BY_TRY(check_training(c));
    return compare_unknown(c);
}
