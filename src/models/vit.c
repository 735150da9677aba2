/* vit.c - Vision Transformer (Dosovitskiy et al. 2021): an encoder over the patches of a picture. */
#include "base/base.h"
#include "models/models.h"

static const arch_field fields[] = {ARCH_VIT_FIELDS};

const arch_key arch_vit_keys[] = {{.key = "encoder_stride"}, /* of masked image modelling */
                                  {.key = NULL}};

/* The mask token of masked image modelling. */
const char *const arch_vit_ignored[] = {"embeddings.mask_token", NULL};

/* Files have the names of transformers 4, and modules those of transformers 5. */
const arch_alias arch_vit_modules[] = {{"encoder.layer", "layers"},
                                       {"attention.attention.query", "attention.q_proj"},
                                       {"attention.attention.key", "attention.k_proj"},
                                       {"attention.attention.value", "attention.v_proj"},
                                       {"attention.output.dense", "attention.o_proj"},
                                       {"intermediate.dense", "mlp.fc1"},
                                       {"output.dense", "mlp.fc2"},
                                       {NULL, NULL}};

static const arch_preset presets[] = {
    {"tiny", 12, 3, 192, 0},    {"small", 12, 6, 384, 0}, {"base", 12, 12, 768, 0},
    {"large", 24, 16, 1024, 0}, {"grey28", 6, 4, 128, 0}, /* 28 x 28 pixels of one channel, as in MNIST */
};

static void adjust(const char *preset, void *config)
{
    arch_vit_config *c = config;
    if (strcmp(preset, "grey28") != 0)
        return;
    c->image[0] = c->image[1] = 28;
    c->patch[0] = c->patch[1] = 4;
    c->channels = 1;
}

by_pictures arch_vit_pictures(const void *config)
{
    const arch_vit_config *c = config;
    return (by_pictures){.channels = c->channels,
                         .height = c->image[0],
                         .width = c->image[1],
                         .patch = c->patch[0],
                         .tokens = 1 + c->distilled};
}

by_status arch_vit_check(const void *config)
{
    const arch_vit_config *c = config;
    BY_TRY(arch_check_patches(c->image, c->patch));
    return arch_check_heads(c->width, c->heads);
}

/* ---- the body -------------------------------------------------------------------------------- */

static by_tensor *token(by_graph *g, const char *name, const arch_vit_config *c)
{
    return by_param(g, name, 3, (int64_t[]){1, 1, c->width}, (by_init){BY_INIT_NORMAL, c->std});
}

static by_tensor *embeddings(by_graph *g, const arch_vit_config *c, by_tensor *pixels) /* (B, T, C) */
{
    const by_pictures p = arch_vit_pictures(c);
    const int64_t rows = by_pictures_positions(&p, p.height, p.width);
    by_tensor *tokens[2];
    by_scope_push(g, "embeddings");
    tokens[0] = token(g, "cls_token", c);
    if (c->distilled)
        tokens[1] = token(g, "distillation_token", c);
    by_tensor *table = by_param(g, "position_embeddings", 3, (int64_t[]){1, rows, c->width},
                                (by_init){BY_INIT_NORMAL, c->std});
    table = nn_stretch(g, by_reshape(g, table, 2, (int64_t[]){rows, c->width}), p.tokens, p.height / p.patch,
                       p.width / p.patch, by_dim(pixels, 2) / p.patch, by_dim(pixels, 3) / p.patch);
    by_tensor *x = nn_patches(g, "patch_embeddings.projection", pixels,
                              &(nn_patch_spec){.width = c->width, .patch = p.patch, .std = c->std});
    x = nn_prepend(g, x, tokens, p.tokens);
    x = by_dropout(g, by_add(g, x, table), c->drop);
    by_scope_pop(g);
    return x;
}

static by_tensor *block(by_graph *g, by_tensor *x, const arch_vit_config *c, by_tensor **weights,
                        int i) /* (B, T, C) */
{
    const float path = c->layers > 1 ? c->drop_path * (float)i / (float)(c->layers - 1) : c->drop_path;
    by_block_push(g, "layer.%d", i);
    by_tensor *h = nn_layernorm(g, "layernorm_before", x, c->eps);
    h = nn_attention(
        g, "attention", h, h,
        &(nn_attention_spec){.op = {.heads = c->heads, .dropout = c->attn_drop, .weights = weights},
                             .query = "attention.query",
                             .key = "attention.key",
                             .value = "attention.value",
                             .out = "output.dense",
                             .no_bias = !c->qkv_bias,
                             .std = c->std});
    x = by_add(g, x, nn_drop_path(g, by_dropout(g, h, c->drop), path));
    h = nn_layernorm(g, "layernorm_after", x, c->eps);
    h = nn_mlp(g, NULL, h,
               &(nn_mlp_spec){.in = "intermediate.dense",
                              .out = "output.dense",
                              .inner = c->inner,
                              .act = c->act,
                              .std = c->std,
                              .out_std = c->std});
    x = by_add(g, x, nn_drop_path(g, by_dropout(g, h, c->drop), path));
    by_block_pop(g);
    return x;
}

by_tensor *arch_vit_body(by_graph *g, const arch_vit_config *c, by_model_io *io, bool source)
{
    void (*keep)(by_graph *, by_model_io *, by_tensor *) =
        source ? arch_keep_source_hidden : arch_keep_hidden;
    by_tensor *x = embeddings(g, c, by_io_input(io, "pixel_values"));
    keep(g, io, x);
    by_scope_push(g, "encoder");
    for (int i = 0; i < c->layers; i++) {
        x = block(g, x, c, source ? arch_source_weights_slot(io) : arch_weights_slot(io), i);
        keep(g, io, x); /* the last one before the norm */
    }
    by_scope_pop(g);
    return nn_layernorm(g, "layernorm", x, c->eps);
}

/* Returns "features" and, of a model without a head, "pooled". */
void arch_vit_features(by_graph *g, const arch_vit_config *c, by_model_io *io)
{
    by_tensor *x = by_io_return(io, "features", arch_vit_body(g, c, io, false));
    if (io->task == BY_TASK_FEATURES)
        by_io_return(io, "pooled",
                     nn_linear(g, "pooler.dense", nn_first(g, x),
                               &(nn_linear_spec){.out = c->pooled ? c->pooled : c->width,
                                                 .act = c->pooler_act,
                                                 .std = c->std}));
}

/* ---- heads ----------------------------------------------------------------------------------- */

static void put_label(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    arch_label_head(g, io, row->name, nn_first(g, by_io_output(io, "features")), top->std);
}

static const arch_head_row heads[] = {
    {BY_TASK_CLASSIFY, put_label, "classifier", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const arch_vit_config *c = config;
    by_scope_push(g, "vit");
    arch_vit_features(g, c, io);
    by_scope_pop(g);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .std = c->std});
}

const by_input_info arch_picture_inputs[] = {{"pixel_values", BY_F32, "BCHW", BY_PART_WHOLE, true}, {0}};

const arch_family arch_vit = {
    .family = "vit",
    .title = "ViT (Dosovitskiy et al. 2021)",
    .classes = {[BY_TASK_CLASSIFY] = "ViTForImageClassification", [BY_TASK_FEATURES] = "ViTModel"},
    .pretrained = BY_TASK_CLASSIFY,
    .prefix = "vit.",
    .modules = arch_vit_modules,
    .keys = arch_vit_keys,
    .ignored = arch_vit_ignored,
    .tokens = {-1, -1, -1},
    ARCH_TABLES(arch_vit_config),
    .adjust = adjust,
    .check = arch_vit_check,
    .pictures = arch_vit_pictures,
    .inputs = arch_picture_inputs,
    .adapted = "q_proj,v_proj",
    .build = build,
};
