/* xlm.c - Lample and Conneau 2019, "Cross-lingual Language Model Pretraining". Post-norm blocks over the sum
 * of token, position and language embeddings; the same model predicts masked tokens (of one text, or of a
 * sentence and its translation) or, with a causal mask, the next token. Masked positions are zeroed after
 * every block. */
#include <stdio.h>

#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct xlm_config {
    int vocab, context, languages, width, layers, heads, pad;
    float eps, std, token_std, drop, attn_drop, label_drop;
    bool causal, sines, gelu, use_languages;
    arch_head head;
    /* sequence summary for labels */
    arch_summary summary;
    by_act summary_act;
    float last_drop;
} xlm_config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(xlm_config, vocab, "vocab_size", 30145, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(xlm_config, context, "max_position_embeddings", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(xlm_config, languages, "n_langs", 1, 1, 1 << 16, ARCH_ROLE_LANGUAGES),
    ARCH_INT_FIELD(xlm_config, width, "emb_dim", 2048, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(xlm_config, layers, "n_layers", 12, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(xlm_config, heads, "n_heads", 16, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_FLOAT_FIELD(xlm_config, drop, "dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(xlm_config, attn_drop, "attention_dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(xlm_config, label_drop, "summary_first_dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(xlm_config, eps, "layer_norm_eps", 1e-12, 0, 1, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(xlm_config, std, "init_std", 0.02, 0, 10, ARCH_ROLE_INIT),
    ARCH_FLOAT_FIELD(xlm_config, token_std, "embed_init_std", 0.02209708691207961, 0, 10, ARCH_ROLE_NONE),
    {"causal", ARCH_FIELD_BOOL, offsetof(xlm_config, causal), 0, 0, 1, ARCH_ROLE_CAUSAL},
    ARCH_BOOL_FIELD(xlm_config, sines, "sinusoidal_embeddings", false),
    ARCH_BOOL_FIELD(xlm_config, gelu, "gelu_activation", true),
    ARCH_BOOL_FIELD(xlm_config, use_languages, "use_lang_emb", true),
    ARCH_INT_FIELD(xlm_config, pad, "pad_token_id", 2, 0, 1 << 24, ARCH_ROLE_PAD),
    ARCH_TIED_FIELD(xlm_config),
    ARCH_FLOAT_FIELD(xlm_config, last_drop, "summary_last_dropout", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
};

static const arch_alias aliases[] = {{"hidden_size", "emb_dim"},        {"num_attention_heads", "n_heads"},
                                     {"num_hidden_layers", "n_layers"}, {"n_words", "vocab_size"},
                                     {"bos_index", "bos_token_id"},     {"eos_index", "eos_token_id"},
                                     {"pad_index", "pad_token_id"},     {.key = NULL}};

static const arch_key keys[] = {
    {.key = "asm",
     .neutral = "false",
     .tasks = ARCH_TASK_BIT(BY_TASK_LM) | ARCH_TASK_BIT(BY_TASK_MLM)}, /* adaptive softmax */
    {.key = "is_encoder", .neutral = "true"},
    {.key = "summary_type"}, /* read here, */
    {.key = "summary_activation"},
    {.key = "summary_use_proj", .neutral = "true", .tasks = ARCH_TASK_BIT(BY_TASK_CLASSIFY)},
    {.key = "summary_proj_to_labels", .neutral = "true", .tasks = ARCH_TASK_BIT(BY_TASK_CLASSIFY)},
    {.key = "unk_index"}, /* tokens and languages, used only for generation */
    {.key = "mask_index"},
    {.key = "lang_id"},
    {.key = "lang2id"},
    {.key = "id2lang"},
    {.key = "start_n_top"}, /* of an unsupported class */
    {.key = "end_n_top"},
    {.key = NULL},
};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 256},
    {"small", 6, 8, 512, 256},
    {"base", 12, 16, 1024, 512},
    {"large", 12, 16, 2048, 512},
};

/* The layer number is inside parameter names. */
typedef struct layer_names {
    char query[40], key[40], value[40], out[40], norm1[40], wide[40], narrow[40], norm2[40];
} layer_names;

static layer_names names_of(int i)
{
    layer_names n = {0};
    base_format(n.query, sizeof n.query, "attentions.%d.q_lin", i);
    base_format(n.key, sizeof n.key, "attentions.%d.k_lin", i);
    base_format(n.value, sizeof n.value, "attentions.%d.v_lin", i);
    base_format(n.out, sizeof n.out, "attentions.%d.out_lin", i);
    base_format(n.norm1, sizeof n.norm1, "layer_norm1.%d", i);
    base_format(n.wide, sizeof n.wide, "ffns.%d.lin1", i);
    base_format(n.narrow, sizeof n.narrow, "ffns.%d.lin2", i);
    base_format(n.norm2, sizeof n.norm2, "layer_norm2.%d", i);
    return n;
}

static by_tensor *block(by_graph *g, by_tensor *x, const xlm_config *c, by_model_io *io,
                        int i) /* (B, T, C) -> (B, T, C) */
{
    const layer_names n = names_of(i);
    x = nn_encoder_block(
        g, x,
        &(nn_encoder_spec){.attention = {.op = {.heads = c->heads,
                                                .mask = c->causal ? BY_MASK_CAUSAL : BY_MASK_NONE,
                                                .dropout = c->attn_drop,
                                                .key_mask = c->causal ? NULL : by_io_input(io, "mask"),
                                                .weights = arch_weights_slot(io)},
                                         .query = n.query,
                                         .key = n.key,
                                         .value = n.value,
                                         .out = n.out,
                                         .std = c->std,
                                         .cache = io->cache,
                                         .layer = i},
                           .norm1 = n.norm1,
                           .wide = n.wide,
                           .narrow = n.narrow,
                           .norm2 = n.norm2,
                           .inner = 4 * (int64_t)c->width,
                           .act = c->gelu ? BY_GELU : BY_RELU,
                           .eps = c->eps,
                           .std = c->std,
                           .drop1 = c->drop,
                           .drop2 = c->drop});
    return by_io_input(io, "mask") ? nn_hide(g, x, by_io_input(io, "mask")) : x;
}

static by_tensor *body(by_graph *g, const xlm_config *c, by_model_io *io)
{
    by_tensor *x = nn_embedding_padded(g, "embeddings", by_io_input(io, "tokens"), c->vocab, c->width,
                                       c->token_std, c->pad);
    x = by_add(g, x,
               nn_positions(g, "position_embeddings", by_io_input(io, "positions"), c->context, c->width,
                            c->token_std, c->sines));
    if (c->use_languages && c->languages > 1) {
        by_tensor *l = nn_segments(g, "lang_embeddings", by_io_input(io, "segments"), c->languages, c->width,
                                   c->token_std);
        if (by_io_input(io, "segments")) /* without it, no language embedding is added */
            x = by_add(g, x, l);
    }
    x = by_dropout(g, nn_layernorm(g, "layer_norm_emb", x, c->eps), c->drop); /* (B, T, C) */
    if (by_io_input(io, "mask"))
        x = nn_hide(g, x, by_io_input(io, "mask"));
    arch_keep_hidden(g, io, x);
    for (int i = 0; i < c->layers; i++) {
        by_block_push(g, "%s", ""); /* layers have no scope */
        x = block(g, x, c, io, i);
        by_block_pop(g);
        arch_keep_hidden(g, io, x);
    }
    return x;
}

static void put_label(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const xlm_config *c = top->config;
    by_tensor *h = by_dropout(g, arch_summarize(g, c->summary, by_io_output(io, "features")), c->label_drop);
    h = nn_linear(g, row->name, h,
                  &(nn_linear_spec){.out = io->labels, .act = c->summary_act, .std = c->std});
    by_io_return(io, "logits", by_dropout(g, h, c->last_drop));
}

static void put_tokens(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const int64_t vocab = by_dim(top->table, 0);
    by_tensor *bias = by_param(g, "pred_layer.proj.bias", 1, &vocab, (by_init){BY_INIT_ZERO, 0});
    by_tensor *weights =
        arch_head_weights(g, top->head, row->name, top->table, ((const xlm_config *)top->config)->token_std);
    arch_lm_head(g, io, by_io_output(io, "features"), weights, bias);
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, put_tokens, "pred_layer.proj.weight", 0},
    {BY_TASK_MLM, put_tokens, "pred_layer.proj.weight", 0},
    {BY_TASK_CLASSIFY, put_label, "sequence_summary.summary", 0},
    {BY_TASK_TAG, arch_put_tag, "classifier", offsetof(xlm_config, drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const xlm_config *c = config;
    by_scope_push(g, "transformer");
    by_io_return(io, "features", body(g, c, io));
    by_tensor *table = by_param(g, "embeddings.weight", 2, (int64_t[]){c->vocab, c->width},
                                (by_init){BY_INIT_NORMAL, c->token_std});
    by_scope_pop(g);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = table, .head = c->head, .std = c->std});
}

static by_status check(const void *config)
{
    const xlm_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static by_status read(const cJSON *json, void *config)
{
    xlm_config *c = config;
    return arch_summary_read(json, "first", NULL, &c->summary, &c->summary_act);
}

static bool is_causal(const void *config)
{
    return ((const xlm_config *)config)->causal;
}

const arch_family arch_xlm = {
    .family = "xlm",
    .title = "XLM (Lample and Conneau 2019)",
    .classes = {[BY_TASK_LM] = "XLMWithLMHeadModel",
                [BY_TASK_MLM] = "XLMWithLMHeadModel",
                [BY_TASK_CLASSIFY] = "XLMForSequenceClassification",
                [BY_TASK_TAG] = "XLMForTokenClassification",
                [BY_TASK_ANSWER] = "XLMForQuestionAnsweringSimple",
                [BY_TASK_FEATURES] = "XLMModel"},
    .pretrained = BY_TASK_MLM,
    .objective = "mlm",
    .prefix = "transformer.",
    .head = "pred_layer.proj.weight",
    .table = "transformer.embeddings.weight",
    .head_offset = offsetof(xlm_config, head),
    .aliases = aliases,
    .keys = keys,
    .tokens = {1, 2, -1},
    .read = read,
    .masks_padding = true,
    ARCH_TABLES(xlm_config),
    .check = check,
    .is_causal = is_causal,
    .labels_in_place = true,
    .adapted = "q_lin,v_lin",
    .build = build,
};
