/* llama.c - Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models", and its successors.
 * Pre-norm decoder with RMS norms, rotary positions, key/value heads shared by groups of query heads, a
 * feed-forward block gated by SiLU, no biases, and an untied or tied head. */
#include "base/base.h"
#include "models/models.h"

typedef struct llama_config {
    int vocab, context, width, layers, heads, inner, pad;
    int kv_heads; /* 0: as many as heads */
    int head_dim; /* 0: width / heads */
    float eps, std, attn_drop;
    float label_drop; /* negative: 0.1 */
    by_act act;
    bool attention_bias, mlp_bias;
    arch_head head;
    nn_rope rope;
} llama_config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(llama_config, vocab, "vocab_size", 32000, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(llama_config, context, "max_position_embeddings", 2048, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(llama_config, width, "hidden_size", 4096, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(llama_config, layers, "num_hidden_layers", 32, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(llama_config, heads, "num_attention_heads", 32, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_INT_FIELD(llama_config, kv_heads, "num_key_value_heads", 0, 1, 4096, ARCH_ROLE_KV_HEADS),
    ARCH_INT_FIELD(llama_config, head_dim, "head_dim", 0, 1, 1 << 16, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(llama_config, inner, "intermediate_size", 11008, 1, 1 << 22, ARCH_ROLE_INNER),
    ARCH_INT_FIELD(llama_config, pad, "pad_token_id", -1, 0, 1 << 24, ARCH_ROLE_PAD),
    ARCH_ACT_FIELD(llama_config, act, "hidden_act", BY_SILU),
    ARCH_FLOAT_FIELD(llama_config, attn_drop, "attention_dropout", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(llama_config, label_drop, "classifier_dropout", -1, 0, 0.999, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(llama_config, eps, "rms_norm_eps", 1e-6, 0, 1, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(llama_config, std, "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),
    ARCH_BOOL_FIELD(llama_config, attention_bias, "attention_bias", false),
    ARCH_BOOL_FIELD(llama_config, mlp_bias, "mlp_bias", false),
    {"tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(llama_config, head.tied), false, 0, 1, ARCH_ROLE_TIED},
};

static const arch_key keys[] = {
    ARCH_ROPE_KEYS,
    {.key = "partial_rotary_factor", .neutral = "1|null"},
    {.key = "hidden_dropout", .neutral = "null"}, /* fallback for classifier_dropout */
    {.key = "pretraining_tp"},                    /* the same computation in parts */
    {.key = NULL},
};

/* The first four are arch_preset's; tiny and stories15m are tied, as are Llama 3.2's 1b and 3b. */
static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 256},     {"stories15m", 6, 6, 288, 256}, {"tinyllama", 22, 32, 2048, 2048},
    {"7b", 32, 32, 4096, 4096},   {"13b", 40, 40, 5120, 4096},    {"1b", 16, 32, 2048, 131072},
    {"3b", 28, 24, 3072, 131072}, {"8b", 32, 32, 4096, 131072},
};
static const struct {
    int kv_heads, inner; /* 0: as many as heads */
    bool tied;
    double stretch; /* factor of Llama 3; 0: Llama 1 and 2 */
} rest[] = {
    {2, 352, true, 0},    {0, 768, true, 0},   {4, 5632, false, 0}, {0, 11008, false, 0},
    {0, 13824, false, 0}, {8, 8192, true, 32}, {8, 8192, true, 32}, {8, 14336, false, 8},
};

/* The other fields of a preset, or values that fit if --width or --heads changed the shape. */
static void adjust(const char *preset, void *config)
{
    llama_config *c = config;
    int i = 0;
    while (i < BY_COUNT(presets) - 1 && strcmp(presets[i].name, preset) != 0)
        i++;
    c->kv_heads = rest[i].kv_heads && c->heads % rest[i].kv_heads == 0 ? rest[i].kv_heads : 0;
    c->inner = c->width == presets[i].width ? rest[i].inner : (8 * c->width / 3 + 31) / 32 * 32;
    c->head.tied = rest[i].tied;
    c->eps = 1e-5f;
    c->rope = (nn_rope){.theta = 10000};
    if (rest[i].stretch > 0) {
        c->vocab = 128256;
        c->rope = (nn_rope){NN_ROPE_LLAMA3, 500000, rest[i].stretch, .trained = 8192, .low = 1, .high = 4};
    }
}

static by_tensor *block(by_graph *g, by_tensor *x, const llama_config *c, by_model_io *io,
                        int i) /* (B, T, C) -> (B, T, C) */
{
    by_block_push(g, "layers.%d", i);
    by_tensor *h = nn_rmsnorm(g, "input_layernorm", x, c->eps);
    h = nn_attention(g, "self_attn", h, h,
                     &(nn_attention_spec){.op = {.heads = c->heads,
                                                 .kv_heads = c->kv_heads,
                                                 .mask = BY_MASK_CAUSAL,
                                                 .dropout = c->attn_drop,
                                                 .key_mask = by_io_input(io, "mask"),
                                                 .pair_mask = by_io_input(io, "pair_mask"),
                                                 .weights = arch_weights_slot(io)},
                                          .query = "q_proj",
                                          .key = "k_proj",
                                          .value = "v_proj",
                                          .out = "o_proj",
                                          .inner = (int64_t)c->heads * c->head_dim,
                                          .no_bias = !c->attention_bias,
                                          .no_out_bias = !c->attention_bias,
                                          .std = c->std,
                                          .cache = io->cache,
                                          .layer = i,
                                          .rope = &c->rope,
                                          .positions = by_io_input(io, "positions")});
    x = by_add(g, x, h);
    h = nn_mlp(g, "mlp", nn_rmsnorm(g, "post_attention_layernorm", x, c->eps),
               &(nn_mlp_spec){.gate = "gate_proj",
                              .in = "up_proj",
                              .out = "down_proj",
                              .inner = c->inner,
                              .act = c->act,
                              .no_bias = !c->mlp_bias,
                              .std = c->std,
                              .out_std = c->std});
    x = by_add(g, x, h);
    by_block_pop(g);
    return x;
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, arch_put_lm, "lm_head.weight", 0},
    {BY_TASK_CLASSIFY, arch_put_score, "score", 0},
    {BY_TASK_TAG, arch_put_tag, "score", offsetof(llama_config, label_drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const llama_config *c = config;
    by_scope_push(g, io->task == BY_TASK_ANSWER ? "transformer" : "model");
    by_tensor *x = nn_embedding_padded(g, "embed_tokens", by_io_input(io, "tokens"), c->vocab, c->width,
                                       c->std, c->pad); /* (B, T, C) */
    for (int i = 0; i < c->layers; i++) {
        arch_keep_hidden(g, io, x);
        x = block(g, x, c, io, i);
    }
    arch_keep_hidden(g, io, by_io_return(io, "features", nn_rmsnorm(g, "norm", x, c->eps)));
    by_tensor *table = by_param(g, "embed_tokens.weight", 2, (int64_t[]){c->vocab, c->width},
                                (by_init){BY_INIT_NORMAL, c->std});
    by_scope_pop(g);
    arch_put_heads(g, io, heads,
                   &(arch_top){.config = c, .table = table, .head = c->head, .std = c->std, .drop = 0.1f});
}

static by_status check(const void *config)
{
    const llama_config *c = config;
    const int dim = c->head_dim ? c->head_dim : c->width / c->heads;
    if (c->kv_heads && c->heads % c->kv_heads)
        return base_fail(BY_ERR_FORMAT,
                         "num_attention_heads (%d) is not a multiple of num_key_value_heads (%d)", c->heads,
                         c->kv_heads);
    if (dim % 2 || dim > BY_MAX_ROTARY)
        return base_fail(BY_ERR_FORMAT, "head_dim is %d; rotary positions need an even number up to %d", dim,
                         BY_MAX_ROTARY);
    return c->head_dim ? BY_OK : arch_check_heads(c->width, c->heads);
}

static by_status read(const cJSON *json, void *config)
{
    llama_config *c = config;
    return arch_rope_read(json, c->context, &c->rope);
}

static bool write(cJSON *json, const void *config)
{
    return arch_rope_write(json, &((const llama_config *)config)->rope);
}

static const char *const ignored[] = {".rotary_emb.inv_freq", NULL};

const arch_family arch_llama = {
    .family = "llama",
    .title = "Llama (Touvron et al. 2023)",
    .classes = {[BY_TASK_LM] = "LlamaForCausalLM",
                [BY_TASK_CLASSIFY] = "LlamaForSequenceClassification",
                [BY_TASK_TAG] = "LlamaForTokenClassification",
                [BY_TASK_ANSWER] = "LlamaForQuestionAnswering",
                [BY_TASK_FEATURES] = "LlamaModel"},
    .pretrained = BY_TASK_LM,
    .prefix = "model.",
    .answer_prefix = "transformer.",
    .head = "lm_head.weight",
    .table = "model.embed_tokens.weight",
    .head_offset = offsetof(llama_config, head),
    .keys = keys,
    .tokens = {2, -1, -1},
    .packs = true,
    .documents = true,
    .ignored = ignored,
    ARCH_TABLES(llama_config),
    .unlimited = true,
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .adapted = "q_proj,v_proj",
    .build = build,
};
