/* gpt2.c - Radford et al. 2019, "Language Models are Unsupervised Multitask Learners". Pre-norm decoder,
 * learned positions, GELU in its tanh form, head tied to the token embedding. Names and Conv1D layout are
 * those of the published checkpoints. */
#include "base/base.h"
#include "models/models.h"
#include <math.h>

static const arch_field fields[] = {ARCH_GPT2_FIELDS(arch_gpt2_config, , 50257, 1024, BY_GELU_TANH)};

const arch_alias arch_gpt2_aliases[] = {{"hidden_size", "n_embd"},
                                        {"max_position_embeddings", "n_positions"},
                                        {"num_attention_heads", "n_head"},
                                        {"num_hidden_layers", "n_layer"},
                                        {.key = NULL}};

static const arch_key keys[] = {
    {.key = "hidden_dropout", .neutral = "null"}, /* fallback for classifier_dropout */
    {.key = "reorder_and_upcast_attn"},           /* computed in f32 here in any case */
    {.key = "n_ctx"},                             /* n_positions once more */
    {.key = "summary_type"},                      /* of a class with two heads that is not supported */
    {.key = "summary_use_proj"},
    {.key = "summary_activation"},
    {.key = "summary_proj_to_labels"},
    {.key = "summary_first_dropout"},
    {.key = NULL},
};

static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 64},      {"124m", 12, 12, 768, 1024},  {"gpt2", 12, 12, 768, 1024},
    {"350m", 24, 16, 1024, 1024}, {"774m", 36, 20, 1280, 1024}, {"1558m", 48, 25, 1600, 1024},
};

static float scale_of(const arch_gpt2_config *c, int layer)
{
    const float root = sqrtf((float)c->width / (float)c->heads);
    const float scale = !c->scale_weights ? 1.0f : 1.0f / (c->whole_root ? floorf(root) : root);
    return c->scale_by_layer ? scale / (float)(layer + 1) : scale;
}

/* Initial values of residual branches shrink with depth. */
static float out_std(const arch_gpt2_config *c)
{
    return c->std / sqrtf(2.0f * (float)c->layers);
}

static nn_attention_spec cross_spec(const arch_gpt2_config *c, const by_model_io *io, int layer)
{
    return (nn_attention_spec){
        .op = {.heads = c->heads, .scale = scale_of(c, layer), .dropout = c->attn_drop},
        .query = "q_attn",
        .kv = "c_attn",
        .out = "c_proj",
        .conv1d = true,
        .std = c->std,
        .out_std = out_std(c),
        .cache = io->cache,
        .layer = layer};
}

/* (B, T, C) -> (B, T, C) */
static by_tensor *block(by_graph *g, by_tensor *x, const arch_gpt2_config *c, by_model_io *io, int i,
                        const arch_gpt2_variant *v)
{
    const by_pattern pattern = v->pattern ? v->pattern(c, i) : (by_pattern){BY_PATTERN_FULL, 0, 0, 0, 0};
    by_block_push(g, "h.%d", i);
    by_tensor *h = v->norm(g, "ln_1", x, c->eps);
    h = nn_attention(g, "attn", h, h,
                     &(nn_attention_spec){.op = {.heads = c->heads,
                                                 .mask = BY_MASK_CAUSAL,
                                                 .pattern = pattern,
                                                 .empty_zero = pattern.kind != BY_PATTERN_FULL,
                                                 .scale = scale_of(c, i),
                                                 .dropout = c->attn_drop,
                                                 .key_mask = by_io_input(io, "mask"),
                                                 .pair_mask = by_io_input(io, "pair_mask"),
                                                 .weights = arch_weights_slot(io)},
                                          .qkv = "c_attn",
                                          .out = "c_proj",
                                          .conv1d = true,
                                          .std = c->std,
                                          .out_std = out_std(c),
                                          .cache = io->cache,
                                          .layer = i});
    x = by_add(g, x, by_dropout(g, h, c->resid_drop));
    if (v->cross) {
        nn_attention_spec cross = cross_spec(c, io, i);
        cross.op.weights = arch_cross_weights_slot(io);
        h = nn_attention(g, "crossattention", v->norm(g, "ln_cross_attn", x, c->eps), v->memory, &cross);
        x = by_add(g, x, by_dropout(g, h, c->resid_drop));
    }
    h = v->norm(g, "ln_2", x, c->eps);
    h = nn_mlp(g, "mlp", h,
               &(nn_mlp_spec){.in = "c_fc",
                              .out = "c_proj",
                              .conv1d = true,
                              .act = c->act,
                              .std = c->std,
                              .out_std = out_std(c),
                              .inner = c->inner ? c->inner : 4 * (int64_t)c->width});
    x = by_add(g, x, by_dropout(g, h, c->resid_drop));
    by_block_pop(g);
    return x;
}

void arch_gpt2_keep(by_graph *g, const arch_gpt2_config *c, by_model_io *io, by_tensor *memory)
{
    for (int i = 0; i < c->layers; i++) {
        const nn_attention_spec spec = cross_spec(c, io, i);
        by_scope_push(g, "transformer.h.%d", i);
        nn_attention_keep(g, "crossattention", memory, &spec);
        by_scope_pop(g);
    }
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, arch_put_lm, "lm_head.weight", 0},
    {BY_TASK_CLASSIFY, arch_put_score, "score", 0},
    {BY_TASK_TAG, arch_put_tag, "classifier", offsetof(arch_gpt2_config, label_drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

void arch_gpt2_build(by_graph *g, const arch_gpt2_config *c, by_model_io *io, const arch_gpt2_variant *v)
{
    arch_gpt2_variant own = v ? *v : (arch_gpt2_variant){0};
    own.norm = own.norm ? own.norm : nn_layernorm;
    own.heads = own.heads ? own.heads : heads;
    by_scope_push(g, "transformer");
    by_tensor *x =
        nn_embedding(g, "wte", by_io_input(io, "tokens"), c->vocab, c->width, c->std); /* (B, T, C) */
    x = by_add(g, x, nn_embedding(g, "wpe", by_io_input(io, "positions"), c->context, c->width, c->std));
    x = by_dropout(g, x, c->embd_drop);
    for (int i = 0; i < c->layers; i++) {
        arch_keep_hidden(g, io, x);
        x = block(g, x, c, io, i, &own);
    }
    x = own.norm(g, "ln_f", x, c->eps);
    arch_keep_hidden(g, io, x);
    by_tensor *wte =
        by_param(g, "wte.weight", 2, (int64_t[]){c->vocab, c->width}, (by_init){BY_INIT_NORMAL, c->std});
    by_scope_pop(g);
    by_io_return(io, "features", x);
    arch_put_heads(g, io, own.heads,
                   &(arch_top){.config = c, .table = wte, .head = c->head, .std = c->std, .drop = 0.1f});
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    arch_gpt2_build(g, config, io, NULL);
}

by_status arch_gpt2_check(const void *config)
{
    const arch_gpt2_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static const char *const ignored[] = {".attn.bias", NULL};

const arch_family arch_gpt2 = {
    .family = "gpt2",
    .title = "GPT-2 (Radford et al. 2019)",
    .classes = {[BY_TASK_LM] = "GPT2LMHeadModel",
                [BY_TASK_CLASSIFY] = "GPT2ForSequenceClassification",
                [BY_TASK_TAG] = "GPT2ForTokenClassification",
                [BY_TASK_ANSWER] = "GPT2ForQuestionAnswering",
                [BY_TASK_FEATURES] = "GPT2Model"},
    .pretrained = BY_TASK_LM,
    .prefix = "transformer.",
    .head = "lm_head.weight",
    .table = "transformer.wte.weight",
    .head_offset = offsetof(arch_gpt2_config, head),
    .aliases = arch_gpt2_aliases,
    .keys = keys,
    .tokens = {50256, -1, -1},
    .packs = true,
    .documents = true,
    .ignored = ignored,
    ARCH_TABLES(arch_gpt2_config),
    .check = arch_gpt2_check,
    .adapted = "c_attn",
    .build = build,
};
