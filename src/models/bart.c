/* bart.c - Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training". An encoder and a decoder
 * of post-norm blocks, learned positions, a norm after the embedding, one table for both texts and the head.
 * mBART, PEGASUS and the 2017 Transformer (marian.c) have the same parameter names and differ in
 * arch_bart_config. */
#include <math.h>

#include "base/base.h"
#include "models/models.h"

#define COMMON_FIELDS(padding)                                                                 \
    ARCH_BART_FIELDS(50265, BY_GELU, padding, 0, 1024, 12, 16, 4096),                          \
        ARCH_INT_FIELD(arch_bart_config, context, "max_position_embeddings", 1024, 1, 1 << 24, \
                       ARCH_ROLE_CONTEXT),                                                     \
        ARCH_FLOAT_FIELD(arch_bart_config, std, "init_std", 0.02, 0, 10, ARCH_ROLE_INIT)

static const arch_field fields[] = {
    COMMON_FIELDS(1),
    ARCH_FLOAT_FIELD(arch_bart_config, label_drop, "classifier_dropout", 0, 0, 0.999, ARCH_ROLE_NONE),
};
static const arch_field pegasus_fields[] = {COMMON_FIELDS(0)};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 256},
    {"base", 6, 12, 768, 1024},
    {"large", 12, 16, 1024, 1024},
};
static const arch_preset pegasus_presets[] = {{"tiny", 2, 2, 128, 256}, {"large", 16, 16, 1024, 512}};

const arch_alias arch_bart_aliases[] = {{"num_attention_heads", "encoder_attention_heads"},
                                        {"hidden_size", "d_model"},
                                        {"num_hidden_layers", "encoder_layers"},
                                        {.key = NULL}};

const arch_key arch_bart_keys[] = {
    {.key = "is_encoder_decoder", .neutral = "true"},
    {.key = "encoder_layerdrop", .neutral = "0", .training = true},
    {.key = "decoder_layerdrop", .neutral = "0", .training = true},
    /* redundant settings in old files */
    {.key = "normalize_before"},
    {.key = "normalize_embedding"},
    {.key = "add_final_layer_norm"},
    {.key = "add_bias_logits"},
    {.key = "static_position_embeddings"},
    {.key = "extra_pos_embeddings"},
    {.key = NULL},
};

const arch_alias arch_bart_copies[] = {{"encoder.embed_tokens.weight", "model.shared.weight"},
                                       {"decoder.embed_tokens.weight", "model.shared.weight"},
                                       {.key = NULL}};

const char *const arch_bart_optional[] = {"final_logits_bias", NULL};

enum { FIRST = 2 }; /* unused rows of the position table */

static const float eps = 1e-5f;

/* ---- blocks ---------------------------------------------------------------------------------- */

/* before() gives the input of a sub-layer, and after() adds its output. */
static by_tensor *before(by_graph *g, const arch_bart_config *c, const char *norm, by_tensor *x)
{
    return c->pre_norm ? nn_layernorm(g, norm, x, eps) : x;
}

static by_tensor *after(by_graph *g, const arch_bart_config *c, const char *norm, by_tensor *x, by_tensor *h)
{
    x = by_add(g, x, by_dropout(g, h, c->drop));
    return c->pre_norm ? x : nn_layernorm(g, norm, x, eps);
}

static nn_attention_spec attention_spec(const arch_bart_config *c, int heads)
{
    return (nn_attention_spec){.op = {.heads = heads, .dropout = c->attn_drop},
                               .query = "q_proj",
                               .key = "k_proj",
                               .value = "v_proj",
                               .out = "out_proj",
                               .std = c->std};
}

static by_tensor *self_attention(by_graph *g, const arch_bart_config *c, by_tensor *x,
                                 const nn_attention_spec *spec)
{
    by_tensor *h = before(g, c, "self_attn_layer_norm", x);
    h = nn_attention(g, "self_attn", h, h, spec);
    return after(g, c, "self_attn_layer_norm", x, h);
}

static by_tensor *feed_forward(by_graph *g, const arch_bart_config *c, by_tensor *x, int inner)
{
    by_tensor *h = before(g, c, "final_layer_norm", x);
    h = nn_mlp(g, NULL, h,
               &(nn_mlp_spec){.in = "fc1",
                              .out = "fc2",
                              .inner = inner,
                              .act = c->act,
                              .dropout = c->act_drop,
                              .std = c->std,
                              .out_std = c->std});
    return after(g, c, "final_layer_norm", x, h);
}

static by_tensor *encoder_block(by_graph *g, const arch_bart_config *c, by_model_io *io, by_tensor *x,
                                int i) /* (B, S, C) -> (B, S, C) */
{
    nn_attention_spec spec = attention_spec(c, c->encoder_heads);
    spec.op.key_mask = by_io_input(io, "source_mask");
    spec.op.weights = arch_source_weights_slot(io);
    by_block_push(g, "layers.%d", i);
    x = self_attention(g, c, x, &spec);
    x = feed_forward(g, c, x, c->encoder_inner);
    by_block_pop(g);
    return x;
}

static nn_attention_spec cross_spec(const arch_bart_config *c, const by_model_io *io, int layer)
{
    nn_attention_spec spec = attention_spec(c, c->decoder_heads);
    spec.op.key_mask = by_io_input(io, "source_mask");
    spec.cache = io->cache;
    spec.layer = layer;
    return spec;
}

static by_tensor *decoder_block(by_graph *g, const arch_bart_config *c, by_model_io *io, by_tensor *x,
                                int i) /* (B, T, C) -> (B, T, C) */
{
    nn_attention_spec own = attention_spec(c, c->decoder_heads), cross = cross_spec(c, io, i);
    own.op.mask = BY_MASK_CAUSAL;
    own.cache = io->cache;
    own.layer = i;
    own.op.weights = arch_weights_slot(io);
    cross.op.weights = arch_cross_weights_slot(io);
    by_block_push(g, "layers.%d", i);
    x = self_attention(g, c, x, &own);
    by_tensor *h = before(g, c, "encoder_attn_layer_norm", x);
    h = nn_attention(g, "encoder_attn", h, by_io_output(io, "memory"), &cross);
    x = after(g, c, "encoder_attn_layer_norm", x, h);
    x = feed_forward(g, c, x, c->decoder_inner);
    by_block_pop(g);
    return x;
}

/* ---- the two halves -------------------------------------------------------------------------- */

/* Tokens (B, T) -> (B, T, C). */
static by_tensor *embed(by_graph *g, const arch_bart_config *c, by_tensor *table, by_tensor *tokens,
                        by_tensor *positions)
{
    int64_t length = by_dim(tokens, 1);
    by_tensor *x = by_gather_padded(g, table, tokens, c->pad);
    x = by_scale(g, x, c->scale_embedding ? sqrt((double)c->width) : 1);
    if (!positions)
        positions = by_range_from(g, 1, &length, c->learned ? FIRST : 0);
    by_tensor *p = c->learned ? nn_positions(g, "embed_positions", positions, c->context + FIRST, c->width,
                                             c->std, false)
                              : by_sines(g, positions, c->width, by_type(x));
    x = by_add(g, x, p);
    if (c->embedding_norm)
        x = nn_layernorm(g, "layernorm_embedding", x, eps);
    return by_dropout(g, x, c->drop);
}

static by_tensor *encode(by_graph *g, const arch_bart_config *c, by_model_io *io, by_tensor *table)
{
    by_scope_push(g, "encoder");
    by_tensor *x = embed(g, c, table, by_io_input(io, "source"), NULL); /* (B, S, C) */
    for (int i = 0; i < c->encoder_layers; i++) {
        arch_keep_source_hidden(g, io, x);
        x = encoder_block(g, c, io, x, i);
    }
    if (c->pre_norm)
        x = nn_layernorm(g, "layer_norm", x, eps);
    arch_keep_source_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

static by_tensor *decode(by_graph *g, const arch_bart_config *c, by_model_io *io, by_tensor *table)
{
    by_scope_push(g, "decoder");
    by_tensor *x =
        embed(g, c, table, by_io_input(io, "tokens"), by_io_input(io, "positions")); /* (B, T, C) */
    for (int i = 0; i < c->decoder_layers; i++) {
        arch_keep_hidden(g, io, x);
        x = decoder_block(g, c, io, x, i);
    }
    if (c->pre_norm)
        x = nn_layernorm(g, "layer_norm", x, eps);
    arch_keep_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

/* Keys and values of cross-attention for every decoder block. */
static void keep_memory(by_graph *g, const arch_bart_config *c, by_model_io *io)
{
    for (int i = 0; i < c->decoder_layers; i++) {
        const nn_attention_spec spec = cross_spec(c, io, i);
        by_scope_push(g, "decoder.layers.%d", i);
        nn_attention_keep(g, "encoder_attn", by_io_output(io, "memory"), &spec);
        by_scope_pop(g);
    }
}

static float table_std(const arch_bart_config *c)
{
    return c->std > 0 ? c->std : 1 / sqrtf((float)c->width);
}

static by_tensor *token_table(by_graph *g, const arch_bart_config *c, const char *name, int64_t rows)
{
    return by_param(g, name, 2, (int64_t[]){rows, c->width}, (by_init){BY_INIT_NORMAL, table_std(c)});
}

/* Labels are predicted from the position that by_io_input(io, "pick") gives in each row, that of the last end
 * token. */
static void classify(by_graph *g, const arch_bart_config *c, by_model_io *io)
{
    if (!by_io_input(io, "pick")) {
        by_io_return(
            io, "logits",
            by_graph_fail(g, "classification requires the input \"pick\", the position of the last token"));
        return;
    }
    by_tensor *h =
        by_dropout(g, nn_pick(g, by_io_output(io, "features"), by_io_input(io, "pick")), c->label_drop);
    h = nn_linear(g, "classification_head.dense", h,
                  &(nn_linear_spec){.out = c->width, .act = BY_TANH, .std = c->std});
    arch_label_head(g, io, "classification_head.out_proj", by_dropout(g, h, c->label_drop), c->std);
}

/* final_logits_bias is not trained: it bans tokens (padding, in Marian's files). */
static void write_tokens(by_graph *g, const arch_bart_config *c, by_model_io *io, by_tensor *table)
{
    const int64_t vocab = by_dim(table, 0);
    by_tensor *bias =
        by_param_fixed(g, "final_logits_bias", 2, (int64_t[]){1, vocab}, (by_init){BY_INIT_ZERO, 0});
    by_tensor *weights = arch_head_weights(g, c->head, "lm_head.weight", table, table_std(c));
    if (io->part != BY_PART_ENCODER)
        arch_lm_head(g, io, by_io_output(io, "features"), weights, by_reshape(g, bias, 1, &vocab));
}

void arch_bart_build(by_graph *g, const void *config, by_model_io *io)
{
    const arch_bart_config *c = config;
    const int64_t vocab = c->shared || !c->target_vocab ? c->vocab : c->target_vocab;
    const bool apart = !c->shared || !c->head.tied; /* untied embeddings have separate tables */
    by_scope_push(g, "model");
    if (c->shared && apart) /* which nothing uses then */
        by_param_fixed(g, "shared.weight", 2, (int64_t[]){c->vocab, c->width},
                       (by_init){BY_INIT_NORMAL, table_std(c)});
    by_tensor *source = token_table(g, c, apart ? "encoder.embed_tokens.weight" : "shared.weight", c->vocab);
    by_tensor *target = apart ? token_table(g, c, "decoder.embed_tokens.weight", vocab) : source;
    if (io->part != BY_PART_DECODER)
        by_io_return(io, "memory", encode(g, c, io, source));
    if (io->part == BY_PART_ENCODER && io->cache)
        keep_memory(g, c, io);
    if (io->part != BY_PART_ENCODER)
        by_io_return(io, "features", decode(g, c, io, target));
    by_scope_pop(g);
    if (io->task == BY_TASK_CLASSIFY)
        classify(g, c, io);
    if (io->task == BY_TASK_SEQ2SEQ)
        write_tokens(g, c, io, target);
}

by_status arch_bart_check(const void *config)
{
    const arch_bart_config *c = config;
    BY_TRY(arch_check_heads(c->width, c->encoder_heads));
    return arch_check_heads(c->width, c->decoder_heads);
}

/* ---- BART itself, mBART and PEGASUS ---------------------------------------------------------- */

static by_status read(const cJSON *json, void *config)
{
    arch_bart_config *c = config;
    (void)json;
    c->learned = c->embedding_norm = c->shared = true;
    return BY_OK;
}

static void adjust(const char *preset, void *config)
{
    (void)preset;
    read(NULL, config);
}

static by_status read_mbart(const cJSON *json, void *config)
{
    ((arch_bart_config *)config)->pre_norm = true;
    return read(json, config);
}

static void adjust_mbart(const char *preset, void *config)
{
    arch_bart_config *c = config;
    (void)preset;
    read_mbart(NULL, config);
    c->vocab = 250027;
    c->scale_embedding = true;
}

static by_status read_pegasus(const cJSON *json, void *config)
{
    arch_bart_config *c = config;
    (void)json;
    c->shared = c->pre_norm = true;
    return BY_OK;
}

static void adjust_pegasus(const char *preset, void *config)
{
    arch_bart_config *c = config;
    (void)preset;
    read_pegasus(NULL, config);
    c->vocab = 96103;
    c->act = BY_RELU;
    c->scale_embedding = true;
}

static int first_position(const void *config)
{
    (void)config;
    return FIRST;
}

const arch_family arch_bart = {
    .family = "bart",
    .title = "BART (Lewis et al. 2020)",
    .classes = {[BY_TASK_SEQ2SEQ] = "BartForConditionalGeneration",
                [BY_TASK_CLASSIFY] = "BartForSequenceClassification",
                [BY_TASK_FEATURES] = "BartModel"},
    .objective = "infill",
    .training = {.encloses = true},
    .fields = fields,
    .n_fields = BY_COUNT(fields),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .tokens = {2, 1, 2},
    .labels = 3,
    .check = arch_bart_check,
    .read = read,
    .adjust = adjust,
    .first_position = first_position,
    .extra_rows = true,
    .starts_with_eos = true,
    ARCH_BART_COMMON,
};

/* Liu et al. 2020: norms before the sub-layers and after the last. The decoder starts with the language
 * token, which is the last target. */
const arch_family arch_mbart = {
    .family = "mbart",
    .title = "mBART (Liu et al. 2020)",
    .classes = {[BY_TASK_SEQ2SEQ] = "MBartForConditionalGeneration",
                [BY_TASK_CLASSIFY] = "MBartForSequenceClassification",
                [BY_TASK_FEATURES] = "MBartModel"},
    .objective = "infill",
    .fields = fields,
    .n_fields = BY_COUNT(fields),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .tokens = {2, 1, -1},
    .check = arch_bart_check,
    .read = read_mbart,
    .adjust = adjust_mbart,
    .first_position = first_position,
    .extra_rows = true,
    .starts_with_eos = true,
    .starts_with_last = true,
    ARCH_BART_COMMON,
};

static const char *const sines[] = {"encoder.embed_positions.weight", "decoder.embed_positions.weight", NULL};

/* Zhang et al. 2020: norms as in mBART, sinusoidal positions, no norm after the embedding. */
const arch_family arch_pegasus = {
    .family = "pegasus",
    .title = "PEGASUS (Zhang et al. 2020)",
    .classes = {[BY_TASK_SEQ2SEQ] = "PegasusForConditionalGeneration", [BY_TASK_FEATURES] = "PegasusModel"},
    .objective = "infill",
    .fields = pegasus_fields,
    .n_fields = BY_COUNT(pegasus_fields),
    .presets = pegasus_presets,
    .n_presets = BY_COUNT(pegasus_presets),
    .sines = sines,
    .tokens = {1, 0, 0},
    .check = arch_bart_check,
    .read = read_pegasus,
    .adjust = adjust_pegasus,
    ARCH_BART_COMMON,
};
