/* gptj.c - Wang and Komatsuzaki 2021, "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model".
 * Decoder with parallel attention and feed-forward, which read the same norm. Rotary positions rotate
 * neighbouring elements at the start of each head. The language model head has a bias. */
#include "base/base.h"
#include "models/models.h"

typedef struct gptj_config {
    int vocab, context, width, layers, heads, inner; /* inner 0: four times the width */
    int rotary;                                      /* elements of a head that are rotated */
    float eps, std, embd_drop, attn_drop, resid_drop;
    by_act act;
    arch_head head;
} gptj_config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(gptj_config, vocab, "vocab_size", 50400, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(gptj_config, context, "n_positions", 2048, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(gptj_config, width, "n_embd", 4096, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(gptj_config, layers, "n_layer", 28, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(gptj_config, heads, "n_head", 16, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_INT_FIELD(gptj_config, rotary, "rotary_dim", 64, 2, BY_MAX_ROTARY, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(gptj_config, inner, "n_inner", 0, 1, 1 << 22, ARCH_ROLE_INNER),
    ARCH_ACT_FIELD(gptj_config, act, "activation_function", BY_GELU_TANH),
    ARCH_FLOAT_FIELD(gptj_config, resid_drop, "resid_pdrop", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(gptj_config, embd_drop, "embd_pdrop", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(gptj_config, attn_drop, "attn_pdrop", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(gptj_config, eps, "layer_norm_epsilon", 1e-5, 0, 1, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(gptj_config, std, "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),
    {"tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(gptj_config, head.tied), false, 0, 1, ARCH_ROLE_TIED},
};

static const arch_alias aliases[] = {{"hidden_size", "n_embd"},
                                     {"max_position_embeddings", "n_positions"},
                                     {"num_attention_heads", "n_head"},
                                     {"num_hidden_layers", "n_layer"},
                                     {.key = NULL}};

static const arch_preset presets[] = {{"tiny", 4, 4, 128, 256}, {"6b", 28, 16, 4096, 2048}};

/* A quarter of a head is rotated, as in the published model. */
static void adjust(const char *preset, void *config)
{
    gptj_config *c = config;
    (void)preset;
    c->rotary = c->width / c->heads / 8 * 2;
    c->rotary = c->rotary < 2 ? 2 : c->rotary > BY_MAX_ROTARY ? BY_MAX_ROTARY : c->rotary;
}

static by_tensor *block(by_graph *g, by_tensor *x, const gptj_config *c, by_model_io *io,
                        int i) /* (B, T, C) -> (B, T, C) */
{
    /* Half an element is added so that the fraction of a head rounds down to `rotary` elements. */
    const nn_rope rope = {
        .theta = 10000, .partial = (c->rotary + 0.5) * c->heads / c->width, .interleaved = true};
    by_block_push(g, "h.%d", i);
    by_tensor *n = nn_layernorm(g, "ln_1", x, c->eps);
    by_tensor *a = nn_attention(g, "attn", n, n,
                                &(nn_attention_spec){.op = {.heads = c->heads,
                                                            .mask = BY_MASK_CAUSAL,
                                                            .dropout = c->attn_drop,
                                                            .key_mask = by_io_input(io, "mask"),
                                                            .pair_mask = by_io_input(io, "pair_mask"),
                                                            .weights = arch_weights_slot(io)},
                                                     .query = "q_proj",
                                                     .key = "k_proj",
                                                     .value = "v_proj",
                                                     .out = "out_proj",
                                                     .no_bias = true,
                                                     .no_out_bias = true,
                                                     .std = c->std,
                                                     .cache = io->cache,
                                                     .layer = i,
                                                     .rope = &rope,
                                                     .positions = by_io_input(io, "positions")});
    by_tensor *f = nn_mlp(g, "mlp", n,
                          &(nn_mlp_spec){.in = "fc_in",
                                         .out = "fc_out",
                                         .act = c->act,
                                         .std = c->std,
                                         .out_std = c->std,
                                         .inner = c->inner ? c->inner : 4 * (int64_t)c->width});
    x = by_add(g, x, by_dropout(g, a, c->resid_drop));
    x = by_add(g, x, by_dropout(g, f, c->resid_drop));
    by_block_pop(g);
    return x;
}

/* The language model head, with a bias. */
static void put_lm(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const int64_t vocab = by_dim(top->table, 0);
    by_tensor *weights = arch_head_weights(g, top->head, row->name, top->table, top->std);
    by_tensor *bias = by_param(g, "lm_head.bias", 1, &vocab, (by_init){BY_INIT_ZERO, 0});
    arch_lm_head(g, io, by_io_output(io, "features"), weights, bias);
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, put_lm, "lm_head.weight", 0},
    {BY_TASK_CLASSIFY, arch_put_score, "score", 0},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const gptj_config *c = config;
    by_scope_push(g, "transformer");
    by_tensor *x =
        nn_embedding(g, "wte", by_io_input(io, "tokens"), c->vocab, c->width, c->std); /* (B, T, C) */
    x = by_dropout(g, x, c->embd_drop);
    for (int i = 0; i < c->layers; i++) {
        arch_keep_hidden(g, io, x);
        x = block(g, x, c, io, i);
    }
    arch_keep_hidden(g, io, by_io_return(io, "features", nn_layernorm(g, "ln_f", x, c->eps)));
    by_tensor *wte =
        by_param(g, "wte.weight", 2, (int64_t[]){c->vocab, c->width}, (by_init){BY_INIT_NORMAL, c->std});
    by_scope_pop(g);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = wte, .head = c->head, .std = c->std});
}

static by_status check(const void *config)
{
    const gptj_config *c = config;
    BY_TRY(arch_check_heads(c->width, c->heads));
    if (c->rotary % 2 || c->rotary > c->width / c->heads)
        return base_fail(BY_ERR_FORMAT, "rotary_dim is %d; it must be even and at most n_embd / n_head (%d)",
                         c->rotary, c->width / c->heads);
    return BY_OK;
}

/* The reference then rotates whole heads with a table of the model's width. */
static by_status read(const cJSON *json, void *config)
{
    (void)config;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "rotary_dim")))
        return base_fail(BY_ERR_UNSUPPORTED, "rotary_dim null is not supported; it must be a number");
    return BY_OK;
}

static const char *const ignored[] = {".attn.bias", ".attn.masked_bias", NULL};

const arch_family arch_gptj = {
    .family = "gptj",
    .title = "GPT-J (Wang and Komatsuzaki 2021)",
    .classes = {[BY_TASK_LM] = "GPTJForCausalLM",
                [BY_TASK_CLASSIFY] = "GPTJForSequenceClassification",
                [BY_TASK_ANSWER] = "GPTJForQuestionAnswering",
                [BY_TASK_FEATURES] = "GPTJModel"},
    .pretrained = BY_TASK_LM,
    .prefix = "transformer.",
    .head = "lm_head.weight",
    .table = "transformer.wte.weight",
    .head_offset = offsetof(gptj_config, head),
    .aliases = aliases,
    .tokens = {50256, -1, -1},
    .packs = true,
    .documents = true,
    .ignored = ignored,
    ARCH_TABLES(gptj_config),
    .check = check,
    .read = read,
    .adjust = adjust,
    .adapted = "q_proj,v_proj",
    .build = build,
};
