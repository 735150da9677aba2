/* bart.c - Lewis et al. 2020, "BART: Denoising Sequence-to-Sequence Pre-training". An encoder and a decoder
 * of post-norm blocks, learned positions, a norm after the embedding, one table for both texts and the head.
 * The Transformer of 2017 (marian.c) has the same names and differs in what by_bart_config says. */
#include <math.h>

#include "base/base.h"
#include "models/models.h"

static const by_field fields[] = {
    BY_BART_FIELDS(50265, BY_GELU, 1, 0),
    BY_INT_FIELD(by_bart_config, context, "max_position_embeddings", 1024, 1, 1 << 24, BY_ROLE_CONTEXT),
    BY_FLOAT_FIELD(by_bart_config, std, "init_std", 0.02, 0, 10, BY_ROLE_NONE),
};

static const by_preset presets[] = {
    {"tiny", 2, 2, 128, 256},
    {"base", 6, 12, 768, 1024},
    {"large", 12, 16, 1024, 1024},
};

enum { FIRST = 2 }; /* rows of a table of positions that nothing uses */

static const float eps = 1e-5f;

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A sub-layer works on what before() gives, and after() adds what it made of that. */
static by_tensor *before(by_graph *g, const by_bart_config *c, const char *norm, by_tensor *x)
{
    return c->pre_norm ? nn_layernorm(g, norm, x, eps) : x;
}

static by_tensor *after(by_graph *g, const by_bart_config *c, const char *norm, by_tensor *x, by_tensor *h)
{
    x = by_add(g, x, by_dropout(g, h, c->drop));
    return c->pre_norm ? x : nn_layernorm(g, norm, x, eps);
}

static nn_attend_spec attention_spec(const by_bart_config *c, int heads)
{
    return (nn_attend_spec){.query = "q_proj",
                            .key = "k_proj",
                            .value = "v_proj",
                            .out = "out_proj",
                            .heads = heads,
                            .dropout = c->attn_drop,
                            .std = c->std};
}

static by_tensor *self_attention(by_graph *g, const by_bart_config *c, by_tensor *x,
                                 const nn_attend_spec *spec)
{
    by_tensor *h = before(g, c, "self_attn_layer_norm", x);
    by_scope_push(g, "self_attn");
    h = nn_attend(g, h, h, spec);
    by_scope_pop(g);
    return after(g, c, "self_attn_layer_norm", x, h);
}

static by_tensor *feed_forward(by_graph *g, const by_bart_config *c, by_tensor *x, int inner)
{
    by_tensor *h = before(g, c, "final_layer_norm", x);
    h = nn_linear(g, "fc1", h, &(nn_linear_spec){.out = inner, .act = c->act, .std = c->std});
    h = nn_linear(g, "fc2", by_dropout(g, h, c->act_drop), &(nn_linear_spec){.out = c->width, .std = c->std});
    return after(g, c, "final_layer_norm", x, h);
}

static by_tensor *encoder_block(by_graph *g, const by_bart_config *c, by_model_io *io, by_tensor *x,
                                int i) /* (B, S, C) -> (B, S, C) */
{
    nn_attend_spec spec = attention_spec(c, c->encoder_heads);
    spec.key_mask = io->source_mask;
    spec.weights = by_source_weights_slot(io);
    by_block_push(g, "layers.%d", i);
    x = self_attention(g, c, x, &spec);
    x = feed_forward(g, c, x, c->encoder_inner);
    by_block_pop(g);
    return x;
}

static nn_attend_spec cross_spec(const by_bart_config *c, const by_model_io *io, int layer)
{
    nn_attend_spec spec = attention_spec(c, c->decoder_heads);
    spec.key_mask = io->source_mask;
    spec.cache = io->cache;
    spec.layer = layer;
    return spec;
}

static by_tensor *decoder_block(by_graph *g, const by_bart_config *c, by_model_io *io, by_tensor *x,
                                int i) /* (B, T, C) -> (B, T, C) */
{
    nn_attend_spec own = attention_spec(c, c->decoder_heads), cross = cross_spec(c, io, i);
    own.mask = BY_MASK_CAUSAL;
    own.cache = io->cache;
    own.layer = i;
    own.weights = by_weights_slot(io);
    cross.weights = by_cross_weights_slot(io);
    by_block_push(g, "layers.%d", i);
    x = self_attention(g, c, x, &own);
    by_tensor *h = before(g, c, "encoder_attn_layer_norm", x);
    by_scope_push(g, "encoder_attn");
    h = nn_attend(g, h, io->memory, &cross);
    by_scope_pop(g);
    x = after(g, c, "encoder_attn_layer_norm", x, h);
    x = feed_forward(g, c, x, c->decoder_inner);
    by_block_pop(g);
    return x;
}

/* ---- the two halves -------------------------------------------------------------------------- */

/* Tokens (B, T) -> (B, T, C). */
static by_tensor *embed(by_graph *g, const by_bart_config *c, by_tensor *table, by_tensor *tokens,
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

static by_tensor *encode(by_graph *g, const by_bart_config *c, by_model_io *io, by_tensor *table)
{
    by_scope_push(g, "encoder");
    by_tensor *x = embed(g, c, table, io->source, NULL); /* (B, S, C) */
    for (int i = 0; i < c->encoder_layers; i++) {
        by_keep_source_hidden(g, io, x);
        x = encoder_block(g, c, io, x, i);
    }
    if (c->pre_norm)
        x = nn_layernorm(g, "layer_norm", x, eps);
    by_keep_source_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

static by_tensor *decode(by_graph *g, const by_bart_config *c, by_model_io *io, by_tensor *table)
{
    by_scope_push(g, "decoder");
    by_tensor *x = embed(g, c, table, io->tokens, io->positions); /* (B, T, C) */
    for (int i = 0; i < c->decoder_layers; i++) {
        by_keep_hidden(g, io, x);
        x = decoder_block(g, c, io, x, i);
    }
    if (c->pre_norm)
        x = nn_layernorm(g, "layer_norm", x, eps);
    by_keep_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

/* What every decoder block will look at. */
static void keep_memory(by_graph *g, const by_bart_config *c, by_model_io *io)
{
    for (int i = 0; i < c->decoder_layers; i++) {
        const nn_attend_spec spec = cross_spec(c, io, i);
        by_scope_push(g, "decoder.layers.%d.encoder_attn", i);
        nn_attend_keep(g, io->memory, &spec);
        by_scope_pop(g);
    }
}

static by_tensor *token_table(by_graph *g, const by_bart_config *c, const char *name, int64_t rows)
{
    float std = c->std > 0 ? c->std : 1 / sqrtf((float)c->width);
    return by_param(g, name, 2, (int64_t[]){rows, c->width}, (by_init){BY_INIT_NORMAL, std});
}

void by_bart_build(by_graph *g, const void *config, by_model_io *io)
{
    const by_bart_config *c = config;
    const int64_t vocab = c->shared || !c->target_vocab ? c->vocab : c->target_vocab;
    by_scope_push(g, "model");
    by_tensor *source =
        token_table(g, c, c->shared ? "shared.weight" : "encoder.embed_tokens.weight", c->vocab);
    by_tensor *target = c->shared ? source : token_table(g, c, "decoder.embed_tokens.weight", vocab);
    if (io->part != BY_PART_DECODER)
        io->memory = encode(g, c, io, source);
    if (io->part == BY_PART_ENCODER && io->cache)
        keep_memory(g, c, io);
    if (io->part != BY_PART_ENCODER)
        io->features = decode(g, c, io, target);
    by_scope_pop(g);
    by_tensor *bias = /* nothing that is learnt: it rules tokens out (padding, in Marian's files) */
        by_param_fixed(g, "final_logits_bias", 2, (int64_t[]){1, vocab}, (by_init){BY_INIT_ZERO, 0});
    if (io->part != BY_PART_ENCODER)
        by_lm_head(g, io, io->features, target, by_reshape(g, bias, 1, &vocab));
}

by_status by_bart_check(const void *config)
{
    const by_bart_config *c = config;
    BY_TRY(by_check_heads(c->width, c->encoder_heads));
    return by_check_heads(c->width, c->decoder_heads);
}

static const char *const ignored[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                      "lm_head.weight", NULL};

/* ---- BART itself ----------------------------------------------------------------------------- */

static by_status read(const cJSON *json, void *config)
{
    by_bart_config *c = config;
    (void)json;
    c->learned = c->embedding_norm = c->shared = true;
    return BY_OK;
}

static void adjust(const char *preset, void *config)
{
    (void)preset;
    read(NULL, config);
}

static int first_position(const void *config)
{
    (void)config;
    return FIRST;
}

const by_arch by_arch_bart = {
    .family = "bart",
    .title = "BART (Lewis et al. 2020)",
    .classes = {[BY_TASK_SEQ2SEQ] = "BartForConditionalGeneration", [BY_TASK_FEATURES] = "BartModel"},
    .pretrained = BY_TASK_SEQ2SEQ,
    .objective = "infill",
    .prefix = "model.",
    .head = "lm_head.weight",
    .table = "model.shared.weight",
    .ignored = ignored,
    .fields = fields,
    .n_fields = BY_COUNT(fields),
    .config_size = sizeof(by_bart_config),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .check = by_bart_check,
    .read = read,
    .adjust = adjust,
    .first_position = first_position,
    .extra_rows = true,
    .starts_with_eos = true,
    .labels_in_place = true,
    .build = by_bart_build,
};
