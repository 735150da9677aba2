/* gpt.c - Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training". The predecessor
 * of GPT-2: norms come after the residual sums, there is no final norm, and "gelu" in config.json means the
 * tanh form. */
#include "base/base.h"
#include "models/models.h"

typedef struct gpt_config {
    int vocab, context, width, layers, heads;
    float eps, std, embd_drop, attn_drop, resid_drop;
    by_act act;
    arch_head head;
} gpt_config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(gpt_config, vocab, "vocab_size", 40478, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(gpt_config, context, "n_positions", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(gpt_config, width, "n_embd", 768, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(gpt_config, layers, "n_layer", 12, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(gpt_config, heads, "n_head", 12, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_ACT_FIELD(gpt_config, act, "afn", BY_GELU),
    ARCH_FLOAT_FIELD(gpt_config, resid_drop, "resid_pdrop", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(gpt_config, embd_drop, "embd_pdrop", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(gpt_config, attn_drop, "attn_pdrop", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(gpt_config, eps, "layer_norm_epsilon", 1e-5, 0, 1, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(gpt_config, std, "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),
    ARCH_TIED_FIELD(gpt_config),
};

static const arch_alias aliases[] = {{"hidden_size", "n_embd"},
                                     {"max_position_embeddings", "n_positions"},
                                     {"num_attention_heads", "n_head"},
                                     {"num_hidden_layers", "n_layer"},
                                     {.key = NULL}};

static const arch_key keys[] = {
    {.key = "n_ctx"},        /* n_positions once more */
    {.key = "n_special"},    /* counted in vocab_size */
    {.key = "summary_type"}, /* of a class with two heads that is not supported */
    {.key = "summary_use_proj"},
    {.key = "summary_activation"},
    {.key = "summary_proj_to_labels"},
    {.key = "summary_first_dropout"},
    {.key = "predict_special_tokens"},
    {.key = NULL},
};

static const arch_preset presets[] = {{"tiny", 4, 4, 128, 64}, {"117m", 12, 12, 768, 512}};

static by_tensor *block(by_graph *g, by_tensor *x, const gpt_config *c, by_model_io *io,
                        int i) /* (B, T, C) -> (B, T, C) */
{
    by_block_push(g, "h.%d", i);
    by_tensor *h = nn_attention(g, "attn", x, x,
                                &(nn_attention_spec){.op = {.heads = c->heads,
                                                            .mask = BY_MASK_CAUSAL,

                                                            .dropout = c->attn_drop,
                                                            .key_mask = by_io_input(io, "mask"),
                                                            .pair_mask = by_io_input(io, "pair_mask"),
                                                            .weights = arch_weights_slot(io)},
                                                     .qkv = "c_attn",
                                                     .out = "c_proj",
                                                     .conv1d = true,
                                                     .std = c->std,

                                                     .cache = io->cache,
                                                     .layer = i});
    x = nn_layernorm(g, "ln_1", by_add(g, x, by_dropout(g, h, c->resid_drop)), c->eps);
    h = nn_mlp(g, "mlp", x,
               &(nn_mlp_spec){.in = "c_fc",
                              .out = "c_proj",
                              .conv1d = true,
                              .inner = 4 * (int64_t)c->width,
                              .act = c->act == BY_GELU ? BY_GELU_TANH : c->act,
                              .std = c->std,
                              .out_std = c->std});
    x = nn_layernorm(g, "ln_2", by_add(g, x, by_dropout(g, h, c->resid_drop)), c->eps);
    by_block_pop(g);
    return x;
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, arch_put_lm, "lm_head.weight", 0},
    {BY_TASK_CLASSIFY, arch_put_score, "score", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const gpt_config *c = config;
    by_scope_push(g, "transformer");
    by_tensor *x = nn_embedding(g, "tokens_embed", by_io_input(io, "tokens"), c->vocab, c->width,
                                c->std); /* (B, T, C) */
    x = by_add(
        g, x, nn_embedding(g, "positions_embed", by_io_input(io, "positions"), c->context, c->width, c->std));
    x = by_dropout(g, x, c->embd_drop);
    arch_keep_hidden(g, io, x);
    for (int i = 0; i < c->layers; i++) {
        x = block(g, x, c, io, i);
        arch_keep_hidden(g, io, x);
    }
    by_tensor *table = by_param(g, "tokens_embed.weight", 2, (int64_t[]){c->vocab, c->width},
                                (by_init){BY_INIT_NORMAL, c->std});
    by_scope_pop(g);
    by_io_return(io, "features", x);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = table, .head = c->head, .std = c->std});
}

static by_status check(const void *config)
{
    const gpt_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static const char *const ignored[] = {".attn.bias", NULL};

const arch_family arch_gpt = {
    .family = "openai-gpt",
    .title = "GPT (Radford et al. 2018)",
    .classes = {[BY_TASK_LM] = "OpenAIGPTLMHeadModel",
                [BY_TASK_CLASSIFY] = "OpenAIGPTForSequenceClassification",
                [BY_TASK_FEATURES] = "OpenAIGPTModel"},
    .pretrained = BY_TASK_LM,
    .prefix = "transformer.",
    .head = "lm_head.weight",
    .table = "transformer.tokens_embed.weight",
    .head_offset = offsetof(gpt_config, head),
    .aliases = aliases,
    .keys = keys,
    .tokens = {-1, -1, -1},
    .documents = true,
    .looks_ahead = true,
    .ignored = ignored,
    ARCH_TABLES(gpt_config),
    .check = check,
    .adapted = "c_attn",
    .build = build,
};
