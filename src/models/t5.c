/* t5.c - Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
 * Transformer". Pre-norm blocks with RMS norms and no biases. Positions enter as a bias on the scores by
 * bucketed distance, with one table per half shared by its layers. Scores are not scaled. Version 1.1
 * (Shazeer 2020) has a gated feed-forward block and an untied head. */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct t5_config {
    int vocab, context, width, head_size, inner, encoder_layers, decoder_layers, heads, buckets, far;
    float eps, drop, factor;
    by_act act;
    bool gated, scaled;
    bool every_layer; /* has a table of buckets */
    arch_head head;
} t5_config;

#define FIELDS(words, wide, layers, many)                                                                    \
    ARCH_INT_FIELD(t5_config, vocab, "vocab_size", words, 1, 1 << 24, ARCH_ROLE_VOCAB),                      \
        ARCH_INT_FIELD(t5_config, context, "n_positions", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),               \
        ARCH_INT_FIELD(t5_config, width, "d_model", 512, 1, 1 << 20, ARCH_ROLE_WIDTH),                       \
        ARCH_INT_FIELD(t5_config, head_size, "d_kv", 64, 1, 1 << 16, ARCH_ROLE_NONE),                        \
        ARCH_INT_FIELD(t5_config, inner, "d_ff", wide, 1, 1 << 22, ARCH_ROLE_INNER),                         \
        ARCH_INT_FIELD(t5_config, encoder_layers, "num_layers", layers, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS), \
        ARCH_INT_FIELD(t5_config, decoder_layers, "num_decoder_layers", 0, 1, BY_MAX_LAYERS,                 \
                       ARCH_ROLE_DECODER_LAYERS),                                                            \
        ARCH_INT_FIELD(t5_config, heads, "num_heads", many, 1, 4096, ARCH_ROLE_HEADS),                       \
        ARCH_INT_FIELD(t5_config, buckets, "relative_attention_num_buckets", 32, 4, 2 * BY_MAX_BUCKETS,      \
                       ARCH_ROLE_NONE),                                                                      \
        ARCH_INT_FIELD(t5_config, far, "relative_attention_max_distance", 128, 2, 1 << 20, ARCH_ROLE_NONE),  \
        ARCH_FLOAT_FIELD(t5_config, drop, "dropout_rate", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),                 \
        ARCH_FLOAT_FIELD(t5_config, eps, "layer_norm_epsilon", 1e-6, 0, 1, ARCH_ROLE_NONE),                  \
        ARCH_FLOAT_FIELD(t5_config, factor, "initializer_factor", 1, 0, 100, ARCH_ROLE_NONE),                \
        ARCH_TIED_FIELD(t5_config)

static const arch_field fields[] = {FIELDS(32128, 2048, 6, 8)}, newer_fields[] = {FIELDS(250112, 1024, 8, 6)};

static const arch_alias aliases[] = {{"hidden_size", "d_model"},
                                     {"num_attention_heads", "num_heads"},
                                     {"num_hidden_layers", "num_layers"},
                                     {"head_dim", "d_kv"},
                                     {.key = NULL}};

static const arch_key other_keys[] = {
    {.key = "is_encoder_decoder"}, /* false beside an encoder alone; the class decides */
    {.key = "feed_forward_proj"},  /* read here, */
    {.key = "dense_act_fn"},
    {.key = "is_gated_act"},
    {.key = "scale_decoder_outputs"},
    {.key = "classifier_dropout"}, /* of unsupported classes */
    {.key = NULL},
};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 256},        {"small", 6, 8, 512, 512},         {"base", 12, 12, 768, 512},
    {"large", 24, 16, 1024, 512},    {"v1.1-tiny", 2, 2, 128, 256},     {"v1.1-small", 8, 6, 512, 512},
    {"v1.1-base", 12, 12, 768, 512}, {"v1.1-large", 24, 16, 1024, 512},
};

static const arch_preset newer_presets[] = {{"tiny", 2, 2, 128, 256},
                                            {"small", 8, 6, 512, 512},
                                            {"base", 12, 12, 768, 512},
                                            {"large", 24, 16, 1024, 512}};

/* ---- positions ------------------------------------------------------------------------------- */

/* The first distance of each bucket of one side: half of them hold one distance each, the others grow
 * geometrically up to the maximum. In f32 and in this order of operations, which decides ties. */
static int bucket_starts(const t5_config *c, bool both, int *first)
{
    const int count = both ? c->buckets / 2 : c->buckets, exact = count / 2;
    int k = 0;
    for (int d = 0; k < count && d <= c->far; d++) {
        float wide =
            logf((float)d / (float)exact) / (float)log((double)c->far / exact) * (float)(count - exact);
        int bucket = d < exact ? d : BY_MIN(exact + (int)wide, count - 1);
        for (; k <= bucket; k++)
            first[k] = d;
    }
    for (; k < count; k++)
        first[k] = c->far;
    return count;
}

/* The bias of scores by distance: (1, H, 1, L), entry `zero` for distance 0. */
static by_tensor *distance_bias(by_graph *g, const t5_config *c, int layer, bool both, int64_t length,
                                int64_t zero)
{
    int first[BY_MAX_BUCKETS * 2];
    char name[80];
    base_format(name, sizeof name, "block.%d.layer.0.SelfAttention.relative_attention_bias.weight", layer);
    const int count = bucket_starts(c, both, first);
    const float std = c->factor / sqrtf((float)c->width);
    by_tensor *table =
        by_param(g, name, 2, (int64_t[]){c->buckets, c->heads}, (by_init){BY_INIT_NORMAL, std});
    by_tensor *bias = by_gather(g, table, by_buckets(g, length, zero, both, count, first)); /* (L, H) */
    bias = by_permute_axes(g, bias, (int[]){1, 0});
    return by_reshape(g, bias, 4, (int64_t[]){1, c->heads, 1, length});
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static nn_attention_spec attention_spec(const t5_config *c)
{
    const float width = (float)c->width, inner = (float)c->heads * (float)c->head_size;
    return (nn_attention_spec){.op = {.heads = c->heads, .scale = 1, .dropout = c->drop},
                               .query = "q",
                               .key = "k",
                               .value = "v",
                               .out = "o",
                               .inner = (int64_t)c->heads * c->head_size,
                               .no_bias = true,
                               .no_out_bias = true,
                               .query_std = c->factor / sqrtf(width * (float)c->head_size),
                               .std = c->factor / sqrtf(width),
                               .out_std = c->factor / sqrtf(inner)};
}

/* x plus attention of its norm; `from` as in nn_attention, except that x stands for its norm. */
static by_tensor *attention(by_graph *g, const t5_config *c, const char *name, int number, by_tensor *x,
                            by_tensor *from, const nn_attention_spec *spec)
{
    by_scope_push(g, "layer.%d", number);
    by_tensor *h = nn_rmsnorm(g, "layer_norm", x, c->eps);
    h = nn_attention(g, name, h, from == x ? h : from, spec);
    by_scope_pop(g);
    return by_add(g, x, by_dropout(g, h, c->drop));
}

static by_tensor *feed_forward(by_graph *g, const t5_config *c, int number, by_tensor *x)
{
    const float in = c->factor / sqrtf((float)c->width), out = c->factor / sqrtf((float)c->inner);
    by_scope_push(g, "layer.%d", number);
    by_tensor *h = nn_mlp(g, "DenseReluDense", nn_rmsnorm(g, "layer_norm", x, c->eps),
                          &(nn_mlp_spec){.gate = c->gated ? "wi_0" : NULL,
                                         .in = c->gated ? "wi_1" : "wi",
                                         .out = "wo",
                                         .inner = c->inner,
                                         .act = c->act,
                                         .no_bias = true,
                                         .dropout = c->drop,
                                         .std = in,
                                         .out_std = out});
    by_scope_pop(g);
    return by_add(g, x, by_dropout(g, h, c->drop));
}

static by_tensor *finish(by_graph *g, const t5_config *c, by_tensor *x)
{
    return by_dropout(g, nn_rmsnorm(g, "final_layer_norm", x, c->eps), c->drop);
}

/* ---- the two halves -------------------------------------------------------------------------- */

static by_tensor *encode(by_graph *g, const t5_config *c, by_model_io *io, by_tensor *table)
{
    const int64_t length = by_dim(by_io_input(io, "source"), 1);
    by_scope_push(g, "encoder");
    by_tensor *x = by_dropout(g, by_gather(g, table, by_io_input(io, "source")), c->drop); /* (B, S, C) */
    nn_attention_spec own = attention_spec(c);
    own.op.key_mask = by_io_input(io, "source_mask");
    own.op.relative_zero = (int)length - 1;
    for (int i = 0; i < c->encoder_layers; i++) {
        arch_keep_source_hidden(g, io, x);
        if (i == 0 || c->every_layer)
            own.op.relative = distance_bias(g, c, i, true, 2 * length - 1, length - 1);
        own.op.weights = arch_source_weights_slot(io);
        by_block_push(g, "block.%d", i);
        x = attention(g, c, "SelfAttention", 0, x, x, &own);
        x = feed_forward(g, c, 1, x);
        by_block_pop(g);
    }
    x = finish(g, c, x);
    arch_keep_source_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

static nn_attention_spec cross_spec(const t5_config *c, const by_model_io *io, int layer)
{
    nn_attention_spec spec = attention_spec(c);
    spec.op.key_mask = by_io_input(io, "source_mask");
    spec.cache = io->cache;
    spec.layer = layer;
    return spec;
}

static by_tensor *decode(by_graph *g, const t5_config *c, by_model_io *io, by_tensor *table)
{
    const int64_t keys = io->cache ? nn_cache_room(io->cache) : by_dim(by_io_input(io, "tokens"), 1);
    by_scope_push(g, "decoder");
    by_tensor *x = by_dropout(g, by_gather(g, table, by_io_input(io, "tokens")), c->drop); /* (B, T, C) */
    nn_attention_spec own = attention_spec(c);
    own.op.mask = BY_MASK_CAUSAL;
    own.cache = io->cache;
    own.op.relative_zero = (int)keys - 1;
    for (int i = 0; i < c->decoder_layers; i++) {
        nn_attention_spec cross = cross_spec(c, io, i);
        if (i == 0 || c->every_layer)
            own.op.relative = distance_bias(g, c, i, false, keys, keys - 1);
        arch_keep_hidden(g, io, x);
        own.layer = i;
        own.op.weights = arch_weights_slot(io);
        cross.op.weights = arch_cross_weights_slot(io);
        by_block_push(g, "block.%d", i);
        x = attention(g, c, "SelfAttention", 0, x, x, &own);
        x = attention(g, c, "EncDecAttention", 1, x, by_io_output(io, "memory"), &cross);
        x = feed_forward(g, c, 2, x);
        by_block_pop(g);
    }
    x = finish(g, c, x);
    arch_keep_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

/* Keys and values of cross-attention for every decoder block. */
static void keep_memory(by_graph *g, const t5_config *c, by_model_io *io)
{
    for (int i = 0; i < c->decoder_layers; i++) {
        const nn_attention_spec spec = cross_spec(c, io, i);
        by_scope_push(g, "decoder.block.%d.layer.1", i);
        nn_attention_keep(g, "EncDecAttention", by_io_output(io, "memory"), &spec);
        by_scope_pop(g);
    }
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const t5_config *c = config;
    const int64_t shape[2] = {c->vocab, c->width};
    const by_init init = {BY_INIT_NORMAL, c->factor};
    by_tensor *table = by_param(g, "shared.weight", 2, shape, init);
    if (io->part != BY_PART_DECODER)
        by_io_return(io, "memory", encode(g, c, io, table));
    if (io->part == BY_PART_ENCODER && io->cache)
        keep_memory(g, c, io);
    const bool writes = io->task == BY_TASK_SEQ2SEQ;
    by_tensor *head = writes ? arch_head_weights(g, c->head, "lm_head.weight", table, c->factor) : NULL;
    if (io->part == BY_PART_ENCODER)
        return;
    by_io_return(io, "features", decode(g, c, io, table));
    if (writes)
        arch_lm_head(g, io,
                     c->scaled ? by_scale(g, by_io_output(io, "features"), 1 / sqrt((double)c->width))
                               : by_io_output(io, "features"),
                     head, NULL);
}

/* ---- configuration --------------------------------------------------------------------------- */

static by_status check(const void *config)
{
    const t5_config *c = config;
    return c->far > c->buckets / 2 ? BY_OK
                                   : base_fail(BY_ERR_UNSUPPORTED,
                                               "relative_attention_max_distance (%d) must be more than half "
                                               "of relative_attention_num_buckets (%d)",
                                               c->far, c->buckets);
}

/* Sets the feed-forward block from feed_forward_proj, unless the derived keys are given. */
static by_status read_block(const cJSON *json, t5_config *c, const char *usual)
{
    const char *kind, *act;
    BY_TRY(base_json_string(json, "feed_forward_proj", usual, &kind));
    const bool gated = strncmp(kind, "gated-", 6) == 0;
    BY_TRY(base_json_bool(json, "is_gated_act", gated, &c->gated));
    BY_TRY(base_json_string(json, "dense_act_fn",
                            strcmp(kind, "gated-gelu") == 0 ? "gelu_new" : kind + (gated ? 6 : 0), &act));
    if (!arch_act_parse(act, &c->act))
        return base_fail(BY_ERR_UNSUPPORTED, "feed_forward_proj: unknown activation \"%s\"", act);
    if (c->decoder_layers == 0)
        c->decoder_layers = c->encoder_layers;
    return BY_OK;
}

/* T5 1.0 scales the output if the head is tied, unless the file specifies it. */
static by_status read(const cJSON *json, void *config)
{
    t5_config *c = config;
    BY_TRY(base_json_bool(json, "scale_decoder_outputs", c->head.tied, &c->scaled));
    return read_block(json, c, "relu");
}

static by_status read_mt5(const cJSON *json, void *config)
{
    return read_block(json, config, "gated-gelu");
}

static by_status read_umt5(const cJSON *json, void *config)
{
    t5_config *c = config;
    c->scaled = c->every_layer = true;
    return read_block(json, config, "gated-gelu");
}

static bool write_block(cJSON *json, const t5_config *c)
{
    return cJSON_HasObjectItem(json, "feed_forward_proj") ||
           base_json_put(json, "feed_forward_proj", cJSON_CreateString(c->gated ? "gated-gelu" : "relu"));
}

static bool write(cJSON *json, const void *config)
{
    const t5_config *c = config;
    if (!write_block(json, c))
        return false;
    return cJSON_HasObjectItem(json, "scale_decoder_outputs") || c->scaled == c->head.tied ||
           base_json_put(json, "scale_decoder_outputs", cJSON_CreateBool(c->scaled));
}

static bool write_newer(cJSON *json, const void *config)
{
    return write_block(json, config);
}

static void adjust(const char *preset, void *config)
{
    t5_config *c = config;
    const bool newer = strncmp(preset, "v1.1-", 5) == 0;
    c->act = newer ? BY_GELU_TANH : BY_RELU;
    c->gated = newer;
    c->scaled = c->head.tied = !newer;
}

/* In both, the head is untied. */
static void adjust_mt5(const char *preset, void *config)
{
    t5_config *c = config;
    (void)preset;
    c->act = BY_GELU_TANH;
    c->gated = true;
    c->head.tied = false;
}

static void adjust_umt5(const char *preset, void *config)
{
    t5_config *c = config;
    adjust_mt5(preset, config);
    c->scaled = c->every_layer = true;
}

static const char *const ignored[] = {"EncDecAttention.relative_attention_bias.weight", NULL};
static const arch_alias copies[] = {{"encoder.embed_tokens.weight", "shared.weight"},
                                    {"decoder.embed_tokens.weight", "shared.weight"},
                                    {.key = NULL}};

#define COMMON                                                                                    \
    .pretrained = BY_TASK_SEQ2SEQ, .objective = "spans", .prefix = "", .head = "lm_head.weight",  \
    .table = "shared.weight", .head_offset = offsetof(t5_config, head), .always_tied = true,      \
    .ignored = ignored, .copies = copies, .aliases = aliases, .keys = other_keys,                 \
    .config_size = sizeof(t5_config), .check = check, .unlimited = true, .labels_in_place = true, \
    .adapted = "q,v", .build = build
#define CLASSES(name)                                                \
    .classes = {[BY_TASK_SEQ2SEQ] = name "ForConditionalGeneration", \
                [BY_TASK_FEATURES] = name "Model",                   \
                [BY_TASK_ENCODER] = name "EncoderModel"}

const arch_family arch_t5 = {
    .family = "t5",
    .title = "T5 (Raffel et al. 2020)",
    /* Embeddings are initialised with scale 1, where AdamW's steps are too small. */
    .training = {.optimizer = "adafactor", .sentinels = 100},
    CLASSES("T5"),
    .fields = fields,
    .n_fields = BY_COUNT(fields),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .tokens = {1, 0, -1},
    .read = read,
    .write = write,
    .adjust = adjust,
    COMMON,
};

/* Xue et al. 2021: T5 1.1 for a hundred languages. */
const arch_family arch_mt5 = {
    .family = "mt5",
    .title = "mT5 (Xue et al. 2021)",
    CLASSES("MT5"),
    .fields = newer_fields,
    .n_fields = BY_COUNT(newer_fields),
    .presets = newer_presets,
    .n_presets = BY_COUNT(newer_presets),
    .tokens = {1, 0, 0},
    .read = read_mt5,
    .write = write_newer,
    .adjust = adjust_mt5,
    COMMON,
};

/* Chung et al. 2023: mT5 with a table of buckets in every layer. */
const arch_family arch_umt5 = {
    .family = "umt5",
    .title = "umT5 (Chung et al. 2023)",
    CLASSES("UMT5"),
    .fields = newer_fields,
    .n_fields = BY_COUNT(newer_fields),
    .presets = newer_presets,
    .n_presets = BY_COUNT(newer_presets),
    .tokens = {1, 0, 0},
    .read = read_umt5,
    .write = write_newer,
    .adjust = adjust_umt5,
    COMMON,
};
