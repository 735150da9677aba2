/* clip.c - CLIP (Radford et al. 2021): a text tower and an image tower whose vectors share one space. Both
 * are pre-norm Transformers; the vector of a text is that of its end token, the vector of a picture that of
 * its class token. A tower may be stored alone, with or without its projection into that space, and the image
 * tower may have a classifier. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct tower {
    int width, layers, heads, inner;
    float eps, attn_drop;
    by_act act;
} tower;

typedef struct clip_config {
    tower vision, text;
    int image[2], patch[2]; /* rows and columns in pixels */
    int channels;
    int vocab, context, eos, pad;
    int projection;
    float std, factor, logit_scale;
    bool projected; /* a tower alone has its projection */
} clip_config;

#define TOWER_FIELDS(part, member, size, count, wide, layers_role, width_role, heads_role, inner_role)     \
    ARCH_INT_FIELD(clip_config, member.width, part "hidden_size", size, 1, 1 << 20, width_role),           \
        ARCH_INT_FIELD(clip_config, member.layers, part "num_hidden_layers", 12, 1, BY_MAX_LAYERS,         \
                       layers_role),                                                                       \
        ARCH_INT_FIELD(clip_config, member.heads, part "num_attention_heads", count, 1, 4096, heads_role), \
        ARCH_INT_FIELD(clip_config, member.inner, part "intermediate_size", wide, 1, 1 << 22, inner_role), \
        ARCH_ACT_FIELD(clip_config, member.act, part "hidden_act", BY_QUICK_GELU),                         \
        ARCH_FLOAT_FIELD(clip_config, member.eps, part "layer_norm_eps", 1e-5, 0, 1, ARCH_ROLE_NONE),      \
        ARCH_FLOAT_FIELD(clip_config, member.attn_drop, part "attention_dropout", 0, 0, 0.999,             \
                         ARCH_ROLE_DROPOUT)
#define VISION_FIELDS(part)                                                                        \
    TOWER_FIELDS(part, vision, 768, 12, 3072, ARCH_ROLE_LAYERS, ARCH_ROLE_WIDTH, ARCH_ROLE_HEADS,  \
                 ARCH_ROLE_INNER),                                                                 \
        ARCH_PAIR_FIELD(clip_config, image, part "image_size", 224, 1, 1 << 14, ARCH_ROLE_IMAGE),  \
        ARCH_PAIR_FIELD(clip_config, patch, part "patch_size", 32, 1, 1 << 14, ARCH_ROLE_PATCH),   \
        ARCH_INT_FIELD(clip_config, channels, part "num_channels", 3, 1, 256, ARCH_ROLE_CHANNELS), \
        ARCH_FLOAT_FIELD(clip_config, std, part "initializer_range", 0.02, 0, 10, ARCH_ROLE_NONE)
#define TEXT_FIELDS(part, layers_role, width_role, heads_role, inner_role)                         \
    TOWER_FIELDS(part, text, 512, 8, 2048, layers_role, width_role, heads_role, inner_role),       \
        ARCH_INT_FIELD(clip_config, vocab, part "vocab_size", 49408, 1, 1 << 24, ARCH_ROLE_VOCAB), \
        ARCH_INT_FIELD(clip_config, context, part "max_position_embeddings", 77, 1, 1 << 20,       \
                       ARCH_ROLE_CONTEXT),                                                         \
        ARCH_INT_FIELD(clip_config, pad, part "pad_token_id", 1, 0, 1 << 24, ARCH_ROLE_PAD),       \
        ARCH_INT_FIELD(clip_config, eos, part "eos_token_id", 49407, 0, 1 << 24, ARCH_ROLE_EOS)
#define SPACE_FIELDS                                                                            \
    ARCH_INT_FIELD(clip_config, projection, "projection_dim", 512, 1, 1 << 20, ARCH_ROLE_NONE), \
        ARCH_FLOAT_FIELD(clip_config, factor, "initializer_factor", 1, 0, 100, ARCH_ROLE_NONE)

static const arch_field fields[] = {
    VISION_FIELDS("vision_config."),
    TEXT_FIELDS("text_config.", ARCH_ROLE_DECODER_LAYERS, ARCH_ROLE_NONE, ARCH_ROLE_NONE, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(clip_config, logit_scale, "logit_scale_init_value", 2.6592, -100, 100, ARCH_ROLE_NONE),
    SPACE_FIELDS,
};
static const arch_field text_fields[] = {
    TEXT_FIELDS("", ARCH_ROLE_LAYERS, ARCH_ROLE_WIDTH, ARCH_ROLE_HEADS, ARCH_ROLE_INNER), SPACE_FIELDS};
static const arch_field vision_fields[] = {VISION_FIELDS(""), SPACE_FIELDS};
static const arch_field classifier_fields[] = {VISION_FIELDS("vision_config."), SPACE_FIELDS};

static const arch_key keys[] = {
    {.key = "text_config.initializer_range"}, /* unused by the reference too */
    {.key = "text_config.initializer_factor"}, {.key = "vision_config.initializer_factor"},
    {.key = "text_config.projection_dim"}, /* projection_dim decides */
    {.key = "vision_config.projection_dim"},   {.key = NULL},
};
static const arch_key classifier_keys[] = {{.key = "text_config"},
                                           {.key = "logit_scale_init_value"},
                                           {.key = "vision_config.initializer_factor"},
                                           {.key = "vision_config.projection_dim"},
                                           {.key = NULL}};
static const arch_key text_keys[] = {{.key = "initializer_range"}, {.key = NULL}};

static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 77},
    {"base-patch32", 12, 12, 768, 77},
    {"base-patch16", 12, 12, 768, 77},
    {"large-patch14", 24, 16, 1024, 77},
};

/* In the published sizes, the text tower has two thirds of the image tower's width and heads of 64; in other
 * sizes both are equal. */
static void adjust(const char *preset, void *config)
{
    clip_config *c = config;
    const bool base = strncmp(preset, "base", 4) == 0 && c->vision.width == 768;
    const bool large = strncmp(preset, "large", 5) == 0 && c->vision.width == 1024;
    c->text.width = base ? 512 : large ? 768 : c->vision.width;
    c->text.heads = base ? 8 : large ? 12 : c->vision.heads;
    c->text.inner = 4 * c->text.width;
    c->text.layers = large && c->text.layers == 24 ? 12 : c->text.layers;
    c->projection = base ? 512 : large ? 768 : c->vision.width;
    if (large || strcmp(preset, "base-patch16") == 0)
        c->patch[0] = c->patch[1] = large ? 14 : 16;
    if (strcmp(preset, "tiny") == 0) {
        c->image[0] = c->image[1] = 32;
        c->patch[0] = c->patch[1] = 4;
    }
}

static by_pictures pictures(const void *config)
{
    const clip_config *c = config;
    return (by_pictures){.channels = c->channels,
                         .height = c->image[0],
                         .width = c->image[1],
                         .patch = c->patch[0],
                         .tokens = 1};
}

/* ---- towers ---------------------------------------------------------------------------------- */

static by_tensor *block(by_graph *g, by_tensor *x, const clip_config *c, const tower *t,
                        const by_attention_spec *op, int i) /* (B, T, C) */
{
    const float root = 1 / sqrtf((float)t->width), narrow = root / sqrtf(2.0f * (float)t->layers) * c->factor;
    by_block_push(g, "layers.%d", i);
    by_tensor *h = nn_layernorm(g, "layer_norm1", x, t->eps);
    h = nn_attention(g, "self_attn", h, h,
                     &(nn_attention_spec){.op = *op,
                                          .query = "q_proj",
                                          .key = "k_proj",
                                          .value = "v_proj",
                                          .out = "out_proj",
                                          .std = narrow,
                                          .out_std = root * c->factor});
    x = by_add(g, x, h);
    h = nn_layernorm(g, "layer_norm2", x, t->eps);
    h = nn_mlp(g, "mlp", h,
               &(nn_mlp_spec){.in = "fc1",
                              .out = "fc2",
                              .inner = t->inner,
                              .act = t->act,
                              .std = root / sqrtf(2) * c->factor,
                              .out_std = narrow});
    x = by_add(g, x, h);
    by_block_pop(g);
    return x;
}

/* source: it is the pictures' tower of a model of both. */
static by_tensor *layers(by_graph *g, by_tensor *x, const clip_config *c, by_model_io *io, bool picture,
                         bool source)
{
    const tower *t = picture ? &c->vision : &c->text;
    void (*keep)(by_graph *, by_model_io *, by_tensor *) =
        source ? arch_keep_source_hidden : arch_keep_hidden;
    keep(g, io, x);
    by_scope_push(g, "encoder");
    for (int i = 0; i < t->layers; i++) {
        const by_attention_spec op = {.heads = t->heads,
                                      .mask = picture ? BY_MASK_NONE : BY_MASK_CAUSAL,
                                      .dropout = t->attn_drop,
                                      .key_mask = picture ? NULL : by_io_input(io, "mask"),
                                      .weights =
                                          source ? arch_source_weights_slot(io) : arch_weights_slot(io)};
        x = block(g, x, c, t, &op, i);
        keep(g, io, x);
    }
    by_scope_pop(g);
    return x;
}

/* tokens (B, T) -> (B, C), the state at the end token. */
static by_tensor *read_text(by_graph *g, const clip_config *c, by_model_io *io)
{
    by_tensor *rows = by_io_input(io, "ends");
    const float std = 0.02f * c->factor;
    by_scope_push(g, "text_model");
    by_scope_push(g, "embeddings");
    by_tensor *x =
        nn_embedding(g, "token_embedding", by_io_input(io, "tokens"), c->vocab, c->text.width, std);
    x = by_add(
        g, x,
        nn_embedding(g, "position_embedding", by_io_input(io, "positions"), c->context, c->text.width, std));
    by_scope_pop(g);
    x = nn_layernorm(g, "final_layer_norm", layers(g, x, c, io, false, false), c->text.eps);
    by_scope_pop(g);
    by_io_return(io, "features", io->want_hidden ? by_output(g, NULL, x) : x);
    return rows ? nn_pick(g, x, rows) : arch_summarize(g, ARCH_SUMMARY_LAST, x);
}

static by_tensor *picture_embeddings(by_graph *g, const clip_config *c, by_tensor *pixels) /* (B, T, C) */
{
    const by_pictures p = pictures(c);
    const int64_t width = c->vision.width, rows = p.height / p.patch, cols = p.width / p.patch;
    by_scope_push(g, "embeddings");
    by_tensor *token =
        by_param(g, "class_embedding", 1, &width, (by_init){BY_INIT_NORMAL, c->factor / sqrtf((float)width)});
    by_tensor *x = nn_patches(
        g, "patch_embedding", pixels,
        &(nn_patch_spec){.width = width, .patch = p.patch, .no_bias = true, .std = c->std * c->factor});
    by_tensor *table = by_param(g, "position_embedding.weight", 2, (int64_t[]){1 + rows * cols, width},
                                (by_init){BY_INIT_NORMAL, c->std * c->factor});
    x = by_add(g, nn_prepend(g, x, &token, 1),
               nn_stretch(g, table, 1, rows, cols, by_dim(pixels, 2) / p.patch, by_dim(pixels, 3) / p.patch));
    by_scope_pop(g);
    return x;
}

/* pixels (B, Ch, H, W) -> (B, T, C), in the scope of the tower. */
static by_tensor *read_patches(by_graph *g, const clip_config *c, by_model_io *io, bool source)
{
    by_tensor *x = picture_embeddings(g, c, by_io_input(io, "pixel_values"));
    x = layers(g, nn_layernorm(g, "pre_layrnorm", x, c->vision.eps), c, io, true, source); /* so spelled */
    return by_io_return(io, source ? "memory" : "features", io->want_hidden ? by_output(g, NULL, x) : x);
}

/* pixels (B, Ch, H, W) -> (B, C), the class token. */
static by_tensor *read_picture(by_graph *g, const clip_config *c, by_model_io *io, bool source)
{
    by_scope_push(g, "vision_model");
    by_tensor *x = read_patches(g, c, io, source);
    x = nn_layernorm(g, "post_layernorm", nn_first(g, x), c->vision.eps);
    by_scope_pop(g);
    return x;
}

/* ---- the common space ------------------------------------------------------------------------ */

static by_tensor *widen(by_graph *g, by_tensor *x)
{
    return by_cast(g, x, by_type(x) == BY_F64 ? BY_F64 : BY_F32);
}

/* (B, C) -> (B, E), of length 1, in f32: the logits are large. */
static by_tensor *project(by_graph *g, const clip_config *c, by_model_io *io, by_tensor *x, const char *name,
                          const char *before, const char *after)
{
    by_tensor *y =
        nn_linear(g, name, x,
                  &(nn_linear_spec){
                      .out = c->projection, .no_bias = true, .std = c->factor / sqrtf((float)by_dim(x, -1))});
    y = widen(g, y);
    by_io_return(io, before, by_output(g, NULL, y));
    by_tensor *length = by_activation(g, by_sum(g, by_mul(g, y, y), 1), BY_SQRT);
    y = by_div(g, y, by_reshape(g, length, 2, (int64_t[]){by_dim(y, 0), 1}));
    return by_io_return(io, after, by_output(g, NULL, y));
}

static by_tensor *embed_text(by_graph *g, const clip_config *c, by_model_io *io, by_tensor *x)
{
    return project(g, c, io, x, "text_projection", "text_features", "text_embeds");
}

static by_tensor *embed_picture(by_graph *g, const clip_config *c, by_model_io *io, by_tensor *x)
{
    return project(g, c, io, x, "visual_projection", "image_features", "image_embeds");
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const clip_config *c = config;
    by_tensor *texts = by_io_input(io, "tokens"), *seen = by_io_input(io, "pixel_values");
    if (!texts && !seen) {
        by_graph_fail(g, "CLIP requires the input \"tokens\" or \"pixel_values\"");
        return;
    }
    if (texts)
        texts = embed_text(g, c, io, read_text(g, c, io));
    if (seen)
        seen = embed_picture(g, c, io, read_picture(g, c, io, true));
    if (!texts || !seen)
        return;
    by_tensor *scale = by_param(g, "logit_scale", 0, NULL, (by_init){BY_INIT_CONSTANT, c->logit_scale});
    scale = by_cast(g, scale, by_type(texts));
    by_tensor *cosines = by_matmul(g, texts, seen, false, true); /* (texts, pictures) */
    by_tensor *logits = by_output(g, NULL, by_mul(g, cosines, by_activation(g, scale, BY_EXP)));
    by_io_return(io, "logits", logits);
    by_io_return(io, "logits_per_text", logits);
    by_io_return(io, "logits_per_image", by_output(g, NULL, by_permute_axes(g, logits, (int[]){1, 0})));
}

/* The labels are read off the mean of the patches, before the last norm: the file has it, and nothing reads it. */
static void classify(by_graph *g, const clip_config *c, by_model_io *io)
{
    by_scope_push(g, "vision_model");
    by_tensor *x = read_patches(g, c, io, false);
    nn_layernorm(g, "post_layernorm", nn_first(g, x), c->vision.eps);
    by_scope_pop(g);
    x = by_mean(g, by_slice(g, x, 1, 1, by_dim(x, 1) - 1), 1);
    arch_label_head(g, io, "classifier", x, c->factor / sqrtf((float)c->vision.width));
}

/* A tower alone. Without its projection, its vectors are the states that the projection would read. */
static void build_text(by_graph *g, const void *config, by_model_io *io)
{
    const clip_config *c = config;
    by_tensor *x = by_io_return(io, "pooled", read_text(g, c, io));
    if (c->projected)
        embed_text(g, c, io, x);
    else
        by_io_return(io, "text_embeds", by_output(g, NULL, widen(g, x)));
}

static void build_vision(by_graph *g, const void *config, by_model_io *io)
{
    const clip_config *c = config;
    by_tensor *x = by_io_return(io, "pooled", read_picture(g, c, io, false));
    if (c->projected)
        embed_picture(g, c, io, x);
    else
        by_io_return(io, "image_embeds", by_output(g, NULL, widen(g, x)));
}

static void build_classifier(by_graph *g, const void *config, by_model_io *io)
{
    if (io->task == BY_TASK_CLASSIFY)
        classify(g, config, io);
    else
        build_vision(g, config, io);
}

static int vector_width(const void *config)
{
    return ((const clip_config *)config)->projection;
}

static int text_vector_width(const void *config)
{
    const clip_config *c = config;
    return c->projected ? c->projection : c->text.width;
}

static int vision_vector_width(const void *config)
{
    const clip_config *c = config;
    return c->projected ? c->projection : c->vision.width;
}

/* Each text against all pictures, and each picture against all texts. */
static by_tensor *loss(by_graph *g, const void *config, const by_model_io *io, by_tensor *targets)
{
    by_tensor *logits = by_io_output(io, "logits_per_text");
    const int64_t n = logits ? by_dim(logits, 0) : 0;
    (void)config;
    (void)targets;
    if (!logits || by_dim(logits, 1) != n)
        return by_graph_fail(g, "the numbers of texts and pictures must be equal");
    by_tensor *own = by_range(g, 1, &n);
    by_tensor *sum = by_add(g, by_cross_entropy(g, logits, own, NULL),
                            by_cross_entropy(g, by_io_output(io, "logits_per_image"), own, NULL));
    return by_scale(g, sum, 0.5);
}

/* ---- where texts end --------------------------------------------------------------------------- */

static int ends_shape(const void *config, const arch_rows *rows, int64_t *dim)
{
    (void)config;
    dim[0] = rows->batch;
    return 1;
}

/* The first end token of each row, 0 if there is none. In published files, eos_token_id 2 means the token
 * with the largest id. */
static void ends_fill(const void *config, const arch_rows *rows, const int64_t *dim, int32_t *out)
{
    const clip_config *c = config;
    const bool largest = c->eos == 2;
    for (int64_t b = 0; b < dim[0]; b++) {
        const int32_t *row = rows->tokens + b * rows->seq;
        int end = 0;
        for (int t = 1; t < rows->seq; t++)
            if (largest ? row[t] > row[end] : row[t] == c->eos && row[end] != c->eos)
                end = t;
        out[b] = (int32_t)(b * rows->seq + end);
    }
}

static const arch_derived derived[] = {{"ends", NULL, ends_shape, ends_fill}, {.name = NULL}};

#define TEXT_INPUTS(needed)                                                                             \
    {"tokens", BY_I32, "BT", BY_PART_WHOLE, needed}, {"positions", BY_I32, "BT", BY_PART_WHOLE, false}, \
    {                                                                                                   \
        "mask", BY_I32, "BT", BY_PART_WHOLE, false                                                      \
    }
static const by_input_info inputs[] = {
    TEXT_INPUTS(false), {"pixel_values", BY_F32, "BCHW", BY_PART_WHOLE, false}, {0}};
static const by_input_info text_inputs[] = {TEXT_INPUTS(true), {0}};

static bool name_part(cJSON *json, const char *part, const char *type)
{
    cJSON *inner = cJSON_GetObjectItemCaseSensitive(json, part);
    return !inner || cJSON_HasObjectItem(inner, "model_type") ||
           base_json_put(inner, "model_type", cJSON_CreateString(type));
}

static bool write(cJSON *json, const void *config)
{
    (void)config;
    return name_part(json, "text_config", "clip_text_model") &&
           name_part(json, "vision_config", "clip_vision_model");
}

static by_status check_text(const void *config)
{
    const clip_config *c = config;
    return arch_check_heads(c->text.width, c->text.heads);
}

static by_status check_vision(const void *config)
{
    const clip_config *c = config;
    BY_TRY(arch_check_patches(c->image, c->patch));
    return arch_check_heads(c->vision.width, c->vision.heads);
}

static by_status check(const void *config)
{
    BY_TRY(check_vision(config));
    return check_text(config);
}

static const arch_family classifier = {
    .family = "clip",
    .title = "CLIP picture classifier (Radford et al. 2021)",
    .classes = {[BY_TASK_CLASSIFY] = "CLIPForImageClassification", [BY_TASK_FEATURES] = "CLIPVisionModel"},
    .pretrained = BY_TASK_CLASSIFY,
    .prefix = "vision_model.",
    .keys = classifier_keys,
    .tokens = {-1, -1, -1},
    .fields = classifier_fields,
    .n_fields = BY_COUNT(classifier_fields),
    .config_size = sizeof(clip_config),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .adjust = adjust,
    .write = write,
    .check = check_vision,
    .pictures = pictures,
    .processor = "CLIP",
    .adapted = "q_proj,v_proj",
    .inputs = arch_picture_inputs,
    .vector_width = vision_vector_width,
    .build = build_classifier,
};

const arch_family arch_clip = {
    .family = "clip",
    .title = "CLIP (Radford et al. 2021)",
    .classes = {[BY_TASK_FEATURES] = "CLIPModel", [BY_TASK_CONTRAST] = "CLIPModel"},
    .pretrained = BY_TASK_CONTRAST,
    .prefix = "",
    .keys = keys,
    .tokens = {49407, 1, -1},
    .text_part = "text_config",
    .classifier = &classifier,
    ARCH_TABLES(clip_config),
    .adjust = adjust,
    .write = write,
    .check = check,
    .pictures = pictures,
    .processor = "CLIP",
    .adapted = "q_proj,v_proj",
    .derived = derived,
    .inputs = inputs,
    .vector_width = vector_width,
    .build = build,
    .loss = loss,
};

const arch_family arch_clip_text = {
    .family = "clip_text_model",
    .title = "CLIP text encoder (Radford et al. 2021)",
    .classes = {[BY_TASK_FEATURES] = "CLIPTextModel"},
    .other = {"CLIPTextModelWithProjection", BY_TASK_FEATURES, offsetof(clip_config, projected)},
    .pretrained = BY_TASK_FEATURES,
    .prefix = "text_model.",
    .keys = text_keys,
    .tokens = {49407, 1, -1},
    .fields = text_fields,
    .n_fields = BY_COUNT(text_fields),
    .config_size = sizeof(clip_config),
    .check = check_text,
    .derived = derived,
    .inputs = text_inputs,
    .vector_width = text_vector_width,
    .build = build_text,
};

const arch_family arch_clip_vision = {
    .family = "clip_vision_model",
    .title = "CLIP picture encoder (Radford et al. 2021)",
    .classes = {[BY_TASK_FEATURES] = "CLIPVisionModel"},
    .other = {"CLIPVisionModelWithProjection", BY_TASK_FEATURES, offsetof(clip_config, projected)},
    .pretrained = BY_TASK_FEATURES,
    .prefix = "vision_model.",
    .tokens = {-1, -1, -1},
    .fields = vision_fields,
    .n_fields = BY_COUNT(vision_fields),
    .config_size = sizeof(clip_config),
    .check = check_vision,
    .pictures = pictures,
    .processor = "CLIP",
    .adapted = "q_proj,v_proj",
    .inputs = arch_picture_inputs,
    .vector_width = vision_vector_width,
    .build = build_vision,
};
