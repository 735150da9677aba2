/* registry.c - the list of architectures, and access to their configurations by role.
 */
#include "base/base.h"
#include "models/models.h"

static const by_arch *const architectures[] = {
    &by_arch_gpt2,      &by_arch_gpt,        &by_arch_bert,   &by_arch_roberta, &by_arch_xlm_roberta,
    &by_arch_camembert, &by_arch_distilbert, &by_arch_albert, &by_arch_xlm,     &by_arch_transformer,
    &by_arch_marian,    &by_arch_t5,         &by_arch_mt5,    &by_arch_umt5,    &by_arch_bart,
    &by_arch_mbart,     &by_arch_pegasus};

int by_arch_count(void)
{
    return BY_COUNT(architectures);
}

const by_arch *by_arch_at(int i)
{
    return i >= 0 && i < BY_COUNT(architectures) ? architectures[i] : NULL;
}

const by_arch *by_arch_find(const char *family)
{
    by_buf known = {0};
    for (int i = 0; i < BY_COUNT(architectures); i++) {
        if (strcmp(architectures[i]->family, family) == 0) {
            by_buf_free(&known);
            return architectures[i];
        }
        by_buf_printf(&known, "%s%s", i ? ", " : "", architectures[i]->family);
    }
    by_fail(BY_ERR_UNSUPPORTED, "no model family is called \"%s\"; there are: %s", family,
            known.data ? known.data : "");
    by_buf_free(&known);
    return NULL;
}

const char *by_family_at(int i)
{
    return by_arch_at(i) ? by_arch_at(i)->family : NULL;
}

const char *by_family_title(int i)
{
    return by_arch_at(i) ? by_arch_at(i)->title : NULL;
}

const char *by_family_preset(int i, int k)
{
    const by_arch *a = by_arch_at(i);
    return a && k >= 0 && k < a->n_presets ? a->presets[k].name : NULL;
}

by_task by_family_task(const char *family)
{
    for (int i = 0; i < BY_COUNT(architectures); i++)
        if (strcmp(architectures[i]->family, family) == 0)
            return architectures[i]->pretrained;
    return BY_TASK_DEFAULT;
}

/* ---- configurations -------------------------------------------------------------------------- */

double by_config_get(const by_arch *a, const void *config, by_role role)
{
    for (int i = 0; i < a->n_fields; i++) {
        const char *at = (const char *)config + a->fields[i].offset;
        if (a->fields[i].role == role)
            return a->fields[i].kind == BY_FIELD_INT    ? *(const int *)at
                   : a->fields[i].kind == BY_FIELD_BOOL ? *(const bool *)at
                                                        : (double)*(const float *)at;
    }
    return 0;
}

/* Sets every field of the role: an architecture may have several dropouts. */
bool by_config_set(const by_arch *a, void *config, by_role role, double value)
{
    bool any = false;
    for (int i = 0; i < a->n_fields; i++) {
        char *at = (char *)config + a->fields[i].offset;
        if (a->fields[i].role != role)
            continue;
        if (a->fields[i].kind == BY_FIELD_INT)
            *(int *)at = (int)value;
        else if (a->fields[i].kind == BY_FIELD_BOOL)
            *(bool *)at = value != 0;
        else
            *(float *)at = (float)value;
        any = true;
    }
    return any;
}

bool by_arch_has(const by_arch *a, by_role role)
{
    for (int i = 0; i < a->n_fields; i++)
        if (a->fields[i].role == role)
            return true;
    return false;
}

void by_config_defaults(const by_arch *a, void *config)
{
    for (int i = 0; i < a->n_fields; i++) {
        char *at = (char *)config + a->fields[i].offset;
        switch (a->fields[i].kind) {
        case BY_FIELD_INT:
            *(int *)at = (int)a->fields[i].fallback;
            break;
        case BY_FIELD_FLOAT:
            *(float *)at = (float)a->fields[i].fallback;
            break;
        case BY_FIELD_BOOL:
            *(bool *)at = a->fields[i].fallback != 0;
            break;
        case BY_FIELD_ACT:
            *(by_act *)at = (by_act)a->fields[i].fallback;
            break;
        }
    }
}

static const struct {
    const char *name;
    by_act act;
} activations[] = {
    {"gelu_new", BY_GELU_TANH},
    {"gelu", BY_GELU},
    {"gelu_pytorch_tanh", BY_GELU_TANH},
    {"gelu_fast", BY_GELU_TANH},
    {"relu", BY_RELU},
    {"silu", BY_SILU},
    {"swish", BY_SILU},
    {"tanh", BY_TANH},
    {"sigmoid", BY_SIGMOID},
    {"linear", BY_ACT_NONE},
    {"gelu_python", BY_GELU},
    {"gelu_python_tanh", BY_GELU_TANH},
    {"gelu_accurate", BY_GELU_TANH},
    {"quick_gelu", BY_QUICK_GELU},
    {"gelu_10", BY_GELU_10},
    {"relu2", BY_RELU2},
    {"relu6", BY_RELU6},
    {"leaky_relu", BY_LEAKY_RELU},
    {"hardswish", BY_HARD_SWISH},
    {"mish", BY_MISH},
    {"laplace", BY_LAPLACE},
    {"sqrtsoftplus", BY_SQRT_SOFTPLUS},
};

bool by_act_parse(const char *name, by_act *out)
{
    for (int i = 0; i < BY_COUNT(activations); i++)
        if (strcmp(activations[i].name, name) == 0) {
            *out = activations[i].act;
            return true;
        }
    return false;
}

const char *by_act_name(by_act act)
{
    for (int i = 0; i < BY_COUNT(activations); i++)
        if (activations[i].act == act)
            return activations[i].name;
    return "linear";
}

/* ---- what build functions share -------------------------------------------------------------- */

static void keep(by_graph *g, const by_model_io *io, by_tensor *h, by_tensor **list, int *count)
{
    if (io->want_hidden && *count <= BY_MAX_LAYERS)
        list[(*count)++] = by_output(g, NULL, h);
}

static by_tensor **slot(const by_model_io *io, by_tensor **list, int *count)
{
    if (!io->want_attention || io->cache || *count >= BY_MAX_LAYERS)
        return NULL;
    return &list[(*count)++];
}

void by_keep_hidden(by_graph *g, by_model_io *io, by_tensor *h)
{
    keep(g, io, h, io->hidden, &io->n_hidden);
}

void by_keep_source_hidden(by_graph *g, by_model_io *io, by_tensor *h)
{
    keep(g, io, h, io->source_hidden, &io->n_source_hidden);
}

by_tensor **by_weights_slot(by_model_io *io)
{
    return slot(io, io->attention, &io->n_attention);
}

by_tensor **by_source_weights_slot(by_model_io *io)
{
    return slot(io, io->source_attention, &io->n_source_attention);
}

by_tensor **by_cross_weights_slot(by_model_io *io)
{
    return slot(io, io->cross_attention, &io->n_cross_attention);
}

by_status by_check_heads(int width, int heads)
{
    return width % heads ? by_fail(BY_ERR_FORMAT, "width %d does not divide by %d heads", width, heads)
                         : BY_OK;
}
