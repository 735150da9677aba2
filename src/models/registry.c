/* registry.c - the list of architectures, and access to configurations by role. */
#include "base/base.h"
#include "models/models.h"

static const arch_family *const architectures[] = {
    &arch_gpt2,
    &arch_gpt,
    &arch_bert,
    &arch_roberta,
    &arch_xlm_roberta,
    &arch_camembert,
    &arch_distilbert,
    &arch_albert,
    &arch_xlm,
    &arch_transformer,
    &arch_marian,
    &arch_t5,
    &arch_mt5,
    &arch_umt5,
    &arch_bart,
    &arch_mbart,
    &arch_pegasus,
    &arch_llama,
    &arch_gptj,
    &arch_linformer,
    &arch_longformer,
    &arch_big_bird,
    &arch_transfo_xl,
    &arch_reformer,
    &arch_xlnet,
    &arch_sparse_transformer,
    &arch_rnn,
    &arch_lstm,
    &arch_gru,
    &arch_rnn_seq2seq,
    &arch_vit,
    &arch_imagegpt,
    &arch_deit,
    &arch_clip,
    &arch_vision_encoder_decoder,
    &arch_image_transformer,
    &arch_clip_text, /* those without presets are the last ones */
    &arch_clip_vision,
};

int arch_count(void)
{
    return BY_COUNT(architectures);
}

const arch_family *arch_at(int i)
{
    return i >= 0 && i < BY_COUNT(architectures) ? architectures[i] : NULL;
}

const arch_family *arch_find_stored(const char *family)
{
    for (int i = 0; i < BY_COUNT(architectures); i++)
        if (architectures[i]->n_presets == 0 && strcmp(architectures[i]->family, family) == 0)
            return architectures[i];
    return arch_find(family);
}

const arch_family *arch_find(const char *family)
{
    base_buf known = {0};
    for (int i = 0; i < BY_COUNT(architectures) && architectures[i]->n_presets; i++) {
        if (strcmp(architectures[i]->family, family) == 0) {
            base_buf_free(&known);
            return architectures[i];
        }
        base_buf_printf(&known, "%s%s", i ? ", " : "", architectures[i]->family);
    }
    base_fail(BY_ERR_UNSUPPORTED, "unknown model family \"%s\"; available: %s", family,
              known.data ? known.data : "");
    base_buf_free(&known);
    return NULL;
}

const arch_family *arch_variant(const arch_family *a, const char *text_type)
{
    if (!text_type || (a->text_type && strcmp(a->text_type, text_type) == 0))
        return a;
    base_buf known = {0};
    for (const arch_family *const *v = a->variants; v && *v; v++) {
        if (strcmp((*v)->text_type, text_type) == 0) {
            base_buf_free(&known);
            return *v;
        }
        base_buf_printf(&known, ", %s", (*v)->text_type);
    }
    if (a->variants)
        base_fail(BY_ERR_UNSUPPORTED, "%s: unknown decoder \"%s\"; available: %s%s", a->family, text_type,
                  a->text_type, known.data ? known.data : "");
    else
        base_fail(BY_ERR_ARGUMENT, "%s has no choice of decoders", a->title);
    base_buf_free(&known);
    return NULL;
}

const char *by_family_at(int i)
{
    return arch_at(i) && arch_at(i)->n_presets ? arch_at(i)->family : NULL;
}

const char *by_family_title(int i)
{
    return arch_at(i) && arch_at(i)->n_presets ? arch_at(i)->title : NULL;
}

const char *by_family_preset(int i, int k)
{
    const arch_family *a = arch_at(i);
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

double arch_config_get(const arch_family *a, const void *config, arch_role role)
{
    for (int i = 0; i < a->n_fields; i++) {
        const char *at = (const char *)config + a->fields[i].offset;
        if (a->fields[i].role == role)
            return a->fields[i].kind == ARCH_FIELD_INT || a->fields[i].kind == ARCH_FIELD_PAIR ||
                           a->fields[i].kind == ARCH_FIELD_CHOICE
                       ? *(const int *)at
                   : a->fields[i].kind == ARCH_FIELD_BOOL ? *(const bool *)at
                                                          : (double)*(const float *)at;
    }
    return 0;
}

/* Sets every field of the role: an architecture may have several dropouts. */
bool arch_config_set(const arch_family *a, void *config, arch_role role, double value)
{
    bool any = false;
    for (int i = 0; i < a->n_fields; i++) {
        char *at = (char *)config + a->fields[i].offset;
        if (a->fields[i].role != role)
            continue;
        if (a->fields[i].kind == ARCH_FIELD_INT)
            *(int *)at = (int)value;
        else if (a->fields[i].kind == ARCH_FIELD_PAIR)
            ((int *)at)[0] = ((int *)at)[1] = (int)value;
        else if (a->fields[i].kind == ARCH_FIELD_BOOL)
            *(bool *)at = value != 0;
        else
            *(float *)at = (float)value;
        any = true;
    }
    return any;
}

const char *arch_choice_word(arch_role role, int i)
{
    enum { MOST = 6 };
    static const struct {
        arch_role role;
        const char *words[MOST];
    } choices[] = {{ARCH_ROLE_PATTERN, {"strided", "fixed"}},
                   {ARCH_ROLE_BLOCKS, {"1d", "2d"}},
                   {ARCH_ROLE_DISTRIBUTION, {"categorical", "dmol"}},
                   {ARCH_ROLE_COORDINATES, {"sinusoidal", "learned"}},
                   {ARCH_ROLE_SHARING, {"merged", "alternating", "heads"}},
                   {ARCH_ROLE_CELL, {"gru", "lstm", "rnn"}},
                   {ARCH_ROLE_SCORE, {"additive", "none", "dot", "general", "concat"}}};
    for (int k = 0; k < BY_COUNT(choices); k++)
        if (choices[k].role == role)
            return i < MOST ? choices[k].words[i] : NULL;
    return NULL;
}

by_status arch_choice_parse(const arch_field *f, const char *word, int *to)
{
    base_buf known = {0};
    const char *one;
    for (int i = 0; (one = arch_choice_word(f->role, i)) != NULL; i++) {
        if (strcmp(one, word) == 0) {
            base_buf_free(&known);
            *to = i;
            return BY_OK;
        }
        base_buf_printf(&known, "%s%s", i ? ", " : "", one);
    }
    base_fail(BY_ERR_ARGUMENT, "%s: unknown value \"%s\"; available: %s", f->key, word,
              known.data ? known.data : "");
    base_buf_free(&known);
    return BY_ERR_ARGUMENT;
}

static const arch_field *choice_of(const arch_family *a, arch_role role)
{
    for (int i = 0; i < a->n_fields; i++)
        if (a->fields[i].role == role && a->fields[i].kind == ARCH_FIELD_CHOICE)
            return &a->fields[i];
    return NULL;
}

const char *arch_config_choice(const arch_family *a, const void *config, arch_role role)
{
    const arch_field *f = choice_of(a, role);
    return f ? arch_choice_word(role, *(const int *)((const char *)config + f->offset)) : NULL;
}

by_status arch_config_choose(const arch_family *a, void *config, arch_role role, const char *word)
{
    const arch_field *f = choice_of(a, role);
    return f ? arch_choice_parse(f, word, (int *)((char *)config + f->offset))
             : base_fail(BY_ERR_ARGUMENT, "%s has no variant \"%s\"", a->title, word);
}

bool arch_has(const arch_family *a, arch_role role)
{
    for (int i = 0; i < a->n_fields; i++)
        if (a->fields[i].role == role)
            return true;
    return false;
}

void arch_config_defaults(const arch_family *a, void *config)
{
    for (int i = 0; i < a->n_fields; i++) {
        char *at = (char *)config + a->fields[i].offset;
        switch (a->fields[i].kind) {
        case ARCH_FIELD_INT:
        case ARCH_FIELD_CHOICE:
            *(int *)at = (int)a->fields[i].fallback;
            break;
        case ARCH_FIELD_PAIR:
            ((int *)at)[0] = ((int *)at)[1] = (int)a->fields[i].fallback;
            break;
        case ARCH_FIELD_FLOAT:
            *(float *)at = (float)a->fields[i].fallback;
            break;
        case ARCH_FIELD_BOOL:
            *(bool *)at = a->fields[i].fallback != 0;
            break;
        case ARCH_FIELD_ACT:
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

bool arch_act_parse(const char *name, by_act *out)
{
    for (int i = 0; i < BY_COUNT(activations); i++)
        if (strcmp(activations[i].name, name) == 0) {
            *out = activations[i].act;
            return true;
        }
    return false;
}

const char *arch_act_name(by_act act)
{
    for (int i = 0; i < BY_COUNT(activations); i++)
        if (activations[i].act == act)
            return activations[i].name;
    return "linear";
}

by_status arch_check_patches(const int image[2], const int patch[2])
{
    if (patch[0] != patch[1])
        return base_fail(BY_ERR_UNSUPPORTED, "patches of %d x %d pixels are not square", patch[0], patch[1]);
    if (image[0] % patch[0] == 0 && image[1] % patch[1] == 0)
        return BY_OK;
    if (image[0] == image[1])
        return base_fail(BY_ERR_FORMAT, "pictures of %d pixels are not a whole number of patches of %d",
                         image[0], patch[0]);
    return base_fail(BY_ERR_FORMAT, "pictures of %d x %d pixels are not a whole number of patches of %d",
                     image[0], image[1], patch[0]);
}

by_status arch_check_heads(int width, int heads)
{
    return width % heads ? base_fail(BY_ERR_FORMAT, "width %d is not divisible by %d heads", width, heads)
                         : BY_OK;
}
