/* distilbert.c - Sanh et al. 2019, "DistilBERT, a distilled version of BERT". Half of BERT's layers, no
 * segments, no pooler; positions are learned, optionally initialised with sines. Pretrained with masked
 * tokens, best with a teacher. */
#include "base/base.h"
#include "models/models.h"

typedef struct distilbert_config {
    int vocab, context, width, layers, heads, inner, pad;
    float std, drop, attn_drop, label_drop, answer_drop;
    bool sines;
    by_act act;
    arch_head head;
} distilbert_config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(distilbert_config, vocab, "vocab_size", 30522, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(distilbert_config, context, "max_position_embeddings", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(distilbert_config, width, "dim", 768, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(distilbert_config, layers, "n_layers", 6, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(distilbert_config, heads, "n_heads", 12, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_INT_FIELD(distilbert_config, inner, "hidden_dim", 3072, 1, 1 << 22, ARCH_ROLE_INNER),
    ARCH_ACT_FIELD(distilbert_config, act, "activation", BY_GELU),
    ARCH_FLOAT_FIELD(distilbert_config, drop, "dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(distilbert_config, attn_drop, "attention_dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(distilbert_config, label_drop, "seq_classif_dropout", 0.2, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(distilbert_config, answer_drop, "qa_dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_INT_FIELD(distilbert_config, pad, "pad_token_id", 0, 0, 1 << 24, ARCH_ROLE_PAD),
    ARCH_FLOAT_FIELD(distilbert_config, std, "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),
    ARCH_BOOL_FIELD(distilbert_config, sines, "sinusoidal_pos_embds", false),
    ARCH_TIED_FIELD(distilbert_config),
};

static const arch_alias aliases[] = {{"hidden_size", "dim"},
                                     {"num_attention_heads", "n_heads"},
                                     {"num_hidden_layers", "n_layers"},
                                     {.key = NULL}};

static const arch_key keys[] = {{.key = "tie_weights_"}, {.key = NULL}}; /* tie_word_embeddings decides */

static const arch_preset presets[] = {
    {"tiny", 1, 2, 128, 512},
    {"mini", 2, 4, 256, 512},
    {"small", 2, 8, 512, 512},
    {"base", 6, 12, 768, 512},
};

static const float eps = 1e-12f; /* not in the configuration */

static by_tensor *block(by_graph *g, by_tensor *x, const distilbert_config *c, by_model_io *io,
                        int i) /* (B, T, C) -> (B, T, C) */
{
    by_block_push(g, "layer.%d", i);
    x = nn_encoder_block(g, x,
                         &(nn_encoder_spec){.attention = {.op = {.heads = c->heads,
                                                                 .dropout = c->attn_drop,
                                                                 .key_mask = by_io_input(io, "mask"),
                                                                 .weights = arch_weights_slot(io)},
                                                          .query = "attention.q_lin",
                                                          .key = "attention.k_lin",
                                                          .value = "attention.v_lin",
                                                          .out = "attention.out_lin",
                                                          .std = c->std},
                                            .norm1 = "sa_layer_norm",
                                            .wide = "ffn.lin1",
                                            .narrow = "ffn.lin2",
                                            .norm2 = "output_layer_norm",
                                            .inner = c->inner,
                                            .act = c->act,
                                            .eps = eps,
                                            .std = c->std,
                                            .drop2 = c->drop});
    by_block_pop(g);
    return x;
}

static by_tensor *body(by_graph *g, const distilbert_config *c, by_model_io *io)
{
    by_scope_push(g, "embeddings");
    by_tensor *x = nn_embedding_padded(g, "word_embeddings", by_io_input(io, "tokens"), c->vocab, c->width,
                                       c->std, c->pad);
    x = by_add(g, x,
               nn_positions(g, "position_embeddings", by_io_input(io, "positions"), c->context, c->width,
                            c->std, c->sines));
    x = by_dropout(g, nn_layernorm(g, "LayerNorm", x, eps), c->drop); /* (B, T, C) */
    by_scope_pop(g);
    arch_keep_hidden(g, io, x);
    by_scope_push(g, "transformer");
    for (int i = 0; i < c->layers; i++) {
        x = block(g, x, c, io, i);
        arch_keep_hidden(g, io, x);
    }
    by_scope_pop(g);
    return x;
}

/* An extra projection between the first position and the labels. */
static void put_label(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    by_tensor *h = nn_linear(
        g, "pre_classifier", nn_first(g, by_io_output(io, "features")),
        &(nn_linear_spec){.out = by_dim(by_io_output(io, "features"), -1), .act = BY_RELU, .std = top->std});
    arch_label_head(g, io, row->name, arch_head_dropout(g, h, top, row), top->std);
}

static const arch_head_row heads[] = {
    {BY_TASK_MLM, arch_put_mlm, NULL, 0},
    {BY_TASK_CLASSIFY, put_label, "classifier", offsetof(distilbert_config, label_drop)},
    {BY_TASK_CHOICE, put_label, "classifier", offsetof(distilbert_config, label_drop)},
    {BY_TASK_TAG, arch_put_tag, "classifier", offsetof(distilbert_config, drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", offsetof(distilbert_config, answer_drop)},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const distilbert_config *c = config;
    by_scope_push(g, "distilbert");
    by_io_return(io, "features", body(g, c, io));
    by_tensor *table = arch_bert_table(g, c->vocab, c->width, c->std);
    by_scope_pop(g);
    const arch_mlm_spec mlm = {.dense = "vocab_transform",
                               .norm = "vocab_layer_norm",
                               .bias = "vocab_projector.bias",
                               .head = c->head,
                               .decoder = "vocab_projector.weight",
                               .act = c->act,
                               .eps = eps,
                               .std = c->std};
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = table, .std = c->std, .mlm = &mlm});
}

static by_status check(const void *config)
{
    const distilbert_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

const arch_family arch_distilbert = {
    .family = "distilbert",
    .title = "DistilBERT (Sanh et al. 2019)",
    .classes = {[BY_TASK_MLM] = "DistilBertForMaskedLM",
                [BY_TASK_CLASSIFY] = "DistilBertForSequenceClassification",
                [BY_TASK_TAG] = "DistilBertForTokenClassification",
                [BY_TASK_ANSWER] = "DistilBertForQuestionAnswering",
                [BY_TASK_CHOICE] = "DistilBertForMultipleChoice",
                [BY_TASK_FEATURES] = "DistilBertModel"},
    .pretrained = BY_TASK_MLM,
    .objective = "mlm",
    .prefix = "distilbert.",
    .head = "vocab_projector.weight",
    .table = "distilbert.embeddings.word_embeddings.weight",
    .head_offset = offsetof(distilbert_config, head),
    .aliases = aliases,
    .keys = keys,
    .tokens = {-1, 0, -1},
    ARCH_TABLES(distilbert_config),
    .check = check,
    .adapted = "q_lin,v_lin",
    .build = build,
};
