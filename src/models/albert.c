/* albert.c - Lan et al. 2020, "ALBERT: A Lite BERT for Self-supervised Learning of Language Representations".
 * Small embeddings projected to the width of the body; the layers of a group share their parameters, and
 * usually there is one group. Pretrained with masked tokens and sentence order prediction. */
#include "base/base.h"
#include "models/models.h"

typedef struct albert_config {
    int vocab, context, segments, small, width, layers, groups, in_group, heads, inner, pad;
    float eps, std, drop, attn_drop, label_drop;
    by_act act;
    arch_head head;
} albert_config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(albert_config, vocab, "vocab_size", 30000, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(albert_config, context, "max_position_embeddings", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(albert_config, segments, "type_vocab_size", 2, 1, 1 << 16, ARCH_ROLE_SEGMENTS),
    ARCH_INT_FIELD(albert_config, small, "embedding_size", 128, 1, 1 << 20, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(albert_config, width, "hidden_size", 4096, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(albert_config, layers, "num_hidden_layers", 12, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(albert_config, groups, "num_hidden_groups", 1, 1, BY_MAX_LAYERS, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(albert_config, in_group, "inner_group_num", 1, 1, BY_MAX_LAYERS, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(albert_config, heads, "num_attention_heads", 64, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_INT_FIELD(albert_config, inner, "intermediate_size", 16384, 1, 1 << 22, ARCH_ROLE_INNER),
    ARCH_ACT_FIELD(albert_config, act, "hidden_act", BY_GELU_TANH),
    ARCH_FLOAT_FIELD(albert_config, drop, "hidden_dropout_prob", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(albert_config, attn_drop, "attention_probs_dropout_prob", 0, 0, 0.999,
                     ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(albert_config, label_drop, "classifier_dropout_prob", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(albert_config, eps, "layer_norm_eps", 1e-12, 0, 1, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(albert_config, pad, "pad_token_id", 0, 0, 1 << 24, ARCH_ROLE_PAD),
    ARCH_FLOAT_FIELD(albert_config, std, "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),
    ARCH_TIED_FIELD(albert_config),
};

static const arch_key keys[] = {{.key = "net_structure_type", .neutral = "0"},
                                {.key = "gap_size", .neutral = "0"},
                                {.key = "num_memory_blocks", .neutral = "0"},
                                {.key = "down_scale_factor"},
                                {.key = NULL}};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 512},
    {"small", 4, 8, 512, 512},
    {"base", 12, 12, 768, 512},
    {"large", 24, 16, 1024, 512},
};

static by_tensor *layer(by_graph *g, by_tensor *x, const albert_config *c, by_model_io *io, int group,
                        int inside) /* (B, T, C) -> (B, T, C) */
{
    by_block_push(g, "albert_layer_groups.%d.albert_layers.%d", group, inside);
    x = nn_encoder_block(g, x,
                         &(nn_encoder_spec){.attention = {.op = {.heads = c->heads,
                                                                 .dropout = c->attn_drop,
                                                                 .key_mask = by_io_input(io, "mask"),
                                                                 .weights = arch_weights_slot(io)},
                                                          .query = "attention.query",
                                                          .key = "attention.key",
                                                          .value = "attention.value",
                                                          .out = "attention.dense",
                                                          .std = c->std},
                                            .norm1 = "attention.LayerNorm",
                                            .wide = "ffn",
                                            .narrow = "ffn_output",
                                            .norm2 = "full_layer_layer_norm",
                                            .inner = c->inner,
                                            .act = c->act,
                                            .eps = c->eps,
                                            .std = c->std,
                                            .drop1 = c->drop});
    by_block_pop(g);
    return x;
}

static by_tensor *body(by_graph *g, const albert_config *c, by_model_io *io)
{
    by_tensor *x = arch_bert_embeddings(
        g, io, &(arch_bert_sizes){c->vocab, c->context, c->segments, c->small, c->pad, -1}, c->eps, c->std,
        c->drop); /* (B, T, E) */
    by_scope_push(g, "encoder");
    x = nn_linear(g, "embedding_hidden_mapping_in", x, &(nn_linear_spec){.out = c->width, .std = c->std});
    arch_keep_hidden(g, io, x);
    for (int i = 0; i < c->layers; i++)
        for (int k = 0; k < c->in_group; k++) {
            x = layer(g, x, c, io, (int)((int64_t)i * c->groups / c->layers), k);
            arch_keep_hidden(g, io, x);
        }
    by_scope_pop(g);
    return x;
}

static bool is_pooled(by_task t)
{
    return t != BY_TASK_MLM && t != BY_TASK_TAG && t != BY_TASK_ANSWER;
}

static void put_order(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    by_io_return(io, "second",
                 nn_linear(g, row->name, arch_head_dropout(g, by_io_output(io, "pooled"), top, row),
                           &(nn_linear_spec){.out = 2, .std = top->std}));
}

#define LABEL_DROP offsetof(albert_config, label_drop)
static const arch_head_row heads[] = {
    {BY_TASK_MLM, arch_put_mlm, NULL, 0},
    {BY_TASK_PRETRAIN, arch_put_mlm, NULL, 0},
    {BY_TASK_PRETRAIN, put_order, "sop_classifier.classifier", LABEL_DROP},
    {BY_TASK_CLASSIFY, arch_put_label, "classifier", LABEL_DROP},
    {BY_TASK_CHOICE, arch_put_label, "classifier", LABEL_DROP},
    {BY_TASK_TAG, arch_put_tag, "classifier", LABEL_DROP},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const albert_config *c = config;
    by_scope_push(g, "albert");
    by_tensor *x = by_io_return(io, "features", body(g, c, io));
    if (is_pooled(io->task))
        by_io_return(io, "pooled", arch_pooler(g, "pooler", x, c->std));
    by_tensor *table = arch_bert_table(g, c->vocab, c->small, c->std);
    by_scope_pop(g);
    const arch_mlm_spec mlm = {.dense = "predictions.dense",
                               .norm = "predictions.LayerNorm",
                               .bias = "predictions.bias",
                               .head = c->head,
                               .decoder = "predictions.decoder.weight",
                               .decoder_bias = "predictions.decoder.bias",
                               .act = c->act,
                               .eps = c->eps,
                               .std = c->std};
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = table, .std = c->std, .mlm = &mlm});
}

static by_status check(const void *config)
{
    const albert_config *c = config;
    if (c->groups > c->layers)
        return base_fail(BY_ERR_FORMAT, "%d layers do not divide into %d groups", c->layers, c->groups);
    if (c->layers * c->in_group > BY_MAX_LAYERS)
        return base_fail(BY_ERR_FORMAT, "too many layers: %d of %d each", c->layers, c->in_group);
    return arch_check_heads(c->width, c->heads);
}

static const arch_alias copies[] = {{"predictions.decoder.bias", "predictions.bias"}, {.key = NULL}};

const arch_family arch_albert = {
    .family = "albert",
    .title = "ALBERT (Lan et al. 2020)",
    .classes = {[BY_TASK_MLM] = "AlbertForMaskedLM",
                [BY_TASK_PRETRAIN] = "AlbertForPreTraining",
                [BY_TASK_CLASSIFY] = "AlbertForSequenceClassification",
                [BY_TASK_TAG] = "AlbertForTokenClassification",
                [BY_TASK_ANSWER] = "AlbertForQuestionAnswering",
                [BY_TASK_CHOICE] = "AlbertForMultipleChoice",
                [BY_TASK_FEATURES] = "AlbertModel"},
    .pretrained = BY_TASK_PRETRAIN,
    .objective = "sop",
    .prefix = "albert.",
    .head = "predictions.decoder.weight",
    .table = "albert.embeddings.word_embeddings.weight",
    .head_offset = offsetof(albert_config, head),
    .copies = copies,
    .keys = keys,
    .tokens = {3, 0, -1},
    ARCH_TABLES(albert_config),
    .check = check,
    .adapted = "query,value",
    .build = build,
};
