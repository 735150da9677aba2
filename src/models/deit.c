/* deit.c - DeiT (Touvron et al. 2021): ViT with a distillation token, which learns from a teacher's
 * predictions. */
#include "base/base.h"
#include "models/models.h"

typedef struct deit_config {
    arch_vit_config vit;
    bool teacher; /* a second head, on the distillation token */
} deit_config;

static const arch_field fields[] = {ARCH_VIT_FIELDS};

static const arch_preset presets[] = {
    {"tiny", 12, 3, 192, 0},           {"small", 12, 6, 384, 0},           {"base", 12, 12, 768, 0},
    {"tiny-distilled", 12, 3, 192, 0}, {"small-distilled", 12, 6, 384, 0}, {"base-distilled", 12, 12, 768, 0},
};

static void adjust(const char *preset, void *config)
{
    deit_config *c = config;
    c->vit.distilled = true;
    c->teacher = strstr(preset, "distilled") != NULL;
}

static by_status read(const cJSON *json, void *config)
{
    (void)json;
    ((deit_config *)config)->vit.distilled = true;
    return BY_OK;
}

/* ---- heads ----------------------------------------------------------------------------------- */

static by_tensor *head(by_graph *g, by_model_io *io, const char *name, int position, float std)
{
    by_tensor *x = by_io_output(io, "features");
    by_tensor *at = by_reshape(g, by_slice(g, x, 1, position, 1), 2, (int64_t[]){by_dim(x, 0), by_dim(x, 2)});
    return nn_linear(g, name, at, &(nn_linear_spec){.out = io->labels, .std = std});
}

/* Two heads predict the mean of their logits. */
static void put_both(by_graph *g, by_model_io *io, float std)
{
    by_tensor *own = by_output(g, NULL, head(g, io, "cls_classifier", 0, std));
    by_tensor *taught = by_output(g, NULL, head(g, io, "distillation_classifier", 1, std));
    by_io_return(io, "cls_logits", own);
    by_io_return(io, "distillation_logits", taught);
    by_io_return(io, "logits", by_scale(g, by_add(g, own, taught), 0.5));
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const deit_config *c = config;
    by_scope_push(g, "deit");
    arch_vit_features(g, &c->vit, io);
    by_scope_pop(g);
    if (io->task != BY_TASK_CLASSIFY)
        return;
    if (c->teacher)
        put_both(g, io, c->vit.std);
    else
        by_io_return(io, "logits", head(g, io, "classifier", 0, c->vit.std));
}

/* Hard distillation: the class token is trained on the targets, the distillation token on the teacher's
 * predictions (the input "second_targets"; without it, also on the targets). */
static by_tensor *loss(by_graph *g, const void *config, const by_model_io *io, by_tensor *targets)
{
    const deit_config *c = config;
    by_tensor *taught = by_io_input(io, "second_targets");
    if (io->task != BY_TASK_CLASSIFY || !c->teacher)
        return NULL;
    by_tensor *a = arch_label_loss(g, io, by_io_output(io, "cls_logits"), targets);
    by_tensor *b = arch_label_loss(g, io, by_io_output(io, "distillation_logits"), taught ? taught : targets);
    return by_scale(g, by_add(g, a, b), 0.5);
}

const arch_family arch_deit = {
    .family = "deit",
    .title = "DeiT (Touvron et al. 2021)",
    .classes = {[BY_TASK_CLASSIFY] = "DeiTForImageClassification", [BY_TASK_FEATURES] = "DeiTModel"},
    .other = {"DeiTForImageClassificationWithTeacher", BY_TASK_CLASSIFY, offsetof(deit_config, teacher)},
    .pretrained = BY_TASK_CLASSIFY,
    .prefix = "deit.",
    .modules = arch_vit_modules,
    .keys = arch_vit_keys,
    .ignored = arch_vit_ignored,
    .tokens = {-1, -1, -1},
    ARCH_TABLES(deit_config),
    .read = read,
    .adjust = adjust,
    .check = arch_vit_check,
    .pictures = arch_vit_pictures,
    .processor = "DeiT",
    .inputs = arch_picture_inputs,
    .adapted = "q_proj,v_proj",
    .build = build,
    .loss = loss,
};
