/* bert.c - Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers". Post-norm encoder,
 * learned positions, segment embeddings, a pooler over the first position; pretrained with masked tokens and
 * next sentence prediction. */
#include "base/base.h"
#include "models/models.h"

static const arch_field fields[] = {ARCH_BERT_FIELDS(30522, 512, 0, BY_GELU), ARCH_LABEL_DROP_FIELD,
                                    ARCH_IS_DECODER_FIELD};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 512},   {"mini", 4, 4, 256, 512},   {"small", 4, 8, 512, 512},
    {"medium", 8, 8, 512, 512}, {"base", 12, 12, 768, 512}, {"large", 24, 16, 1024, 512},
};

by_tensor *arch_bert_embeddings(by_graph *g, by_model_io *io, const arch_bert_sizes *s, float eps, float std,
                                float drop)
{
    by_scope_push(g, "embeddings");
    by_tensor *x =
        nn_embedding_padded(g, "word_embeddings", by_io_input(io, "tokens"), s->vocab, s->width, std, s->pad);
    x = by_add(
        g, x,
        nn_segments(g, "token_type_embeddings", by_io_input(io, "segments"), s->segments, s->width, std));
    x = by_add(g, x,
               nn_embedding_padded(g, "position_embeddings", by_io_input(io, "positions"), s->context,
                                   s->width, std, s->position_pad));
    x = by_dropout(g, nn_layernorm(g, "LayerNorm", x, eps), drop); /* (B, T, C) */
    by_scope_pop(g);
    return x;
}

by_tensor *arch_bert_layers(by_graph *g, by_model_io *io, by_tensor *x, int layers, nn_encoder_spec s)
{
    nn_attention_spec *a = &s.attention;
    a->query = "attention.self.query";
    a->key = "attention.self.key";
    a->value = "attention.self.value";
    a->out = "attention.output.dense";
    a->std = s.std;
    a->op.key_mask = by_io_input(io, "mask");
    a->cache = io->cache;
    s.norm1 = "attention.output.LayerNorm";
    s.wide = "intermediate.dense";
    s.narrow = "output.dense";
    s.norm2 = "output.LayerNorm";
    arch_keep_hidden(g, io, x);
    by_scope_push(g, "encoder");
    for (int i = 0; i < layers; i++) {
        by_block_push(g, "layer.%d", i);
        a->layer = s.cross.layer = i;
        a->op.weights = arch_weights_slot(io);
        s.cross.op.weights = s.cross_norm ? arch_cross_weights_slot(io) : NULL;
        x = nn_encoder_block(g, x, &s);
        by_block_pop(g);
        arch_keep_hidden(g, io, x);
    }
    by_scope_pop(g);
    return x;
}

by_tensor *arch_bert_table(by_graph *g, int64_t vocab, int64_t width, float std)
{
    return by_param(g, "embeddings.word_embeddings.weight", 2, (int64_t[]){vocab, width},
                    (by_init){BY_INIT_NORMAL, std});
}

/* Heads that read the pooled first position. */
static bool is_pooled(by_task t)
{
    return t != BY_TASK_MLM && t != BY_TASK_LM && t != BY_TASK_TAG && t != BY_TASK_ANSWER;
}

ARCH_PUT(next)
{
    by_io_return(
        io, io->task == BY_TASK_NEXT ? "logits" : "second",
        nn_linear(g, row->name, by_io_output(io, "pooled"), &(nn_linear_spec){.out = 2, .std = top->std}));
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, arch_put_mlm, NULL, 0},
    {BY_TASK_MLM, arch_put_mlm, NULL, 0},
    {BY_TASK_PRETRAIN, arch_put_mlm, NULL, 0},
    {BY_TASK_PRETRAIN, arch_put_next, "cls.seq_relationship", 0},
    {BY_TASK_NEXT, arch_put_next, "cls.seq_relationship", 0},
    {BY_TASK_CLASSIFY, arch_put_label, "classifier", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_CHOICE, arch_put_label, "classifier", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_TAG, arch_put_tag, "classifier", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

nn_encoder_spec arch_bert_layer(const arch_bert_config *c)
{
    return (nn_encoder_spec){.attention.op = {.heads = c->heads,
                                              .mask = c->causal ? BY_MASK_CAUSAL : BY_MASK_NONE,
                                              .dropout = c->attn_drop},
                             .inner = c->inner,
                             .act = c->act,
                             .eps = c->eps,
                             .std = c->std,
                             .drop1 = c->drop,
                             .drop2 = c->drop};
}

/* Cross-attention of a decoder layer. */
static nn_attention_spec cross_spec(const arch_bert_config *c, const by_model_io *io)
{
    return (nn_attention_spec){.op = {.heads = c->heads, .dropout = c->attn_drop},
                               .query = "crossattention.self.query",
                               .key = "crossattention.self.key",
                               .value = "crossattention.self.value",
                               .out = "crossattention.output.dense",
                               .std = c->std,
                               .cache = io->cache};
}

nn_encoder_spec arch_bert_variant_layer(const arch_bert_config *c, const by_model_io *io,
                                        const arch_bert_variant *v)
{
    nn_encoder_spec layer = arch_bert_layer(c);
    layer.attention.attend = v->attend;
    layer.attention.user = v->user;
    if (v->cross) {
        layer.cross = cross_spec(c, io);
        layer.cross_norm = "crossattention.output.LayerNorm";
        layer.memory = v->memory;
    }
    return layer;
}

void arch_bert_keep(by_graph *g, const arch_bert_config *c, by_model_io *io, const char *body,
                    by_tensor *memory)
{
    nn_attention_spec spec = cross_spec(c, io);
    for (int i = 0; i < c->layers; i++) {
        by_scope_push(g, "%s.encoder.layer.%d", body, i);
        spec.layer = i;
        nn_attention_keep(g, NULL, memory, &spec);
        by_scope_pop(g);
    }
}

arch_mlm_spec arch_bert_mlm(const arch_bert_config *c)
{
    return (arch_mlm_spec){.dense = "cls.predictions.transform.dense",
                           .norm = "cls.predictions.transform.LayerNorm",
                           .bias = "cls.predictions.bias",
                           .head = c->head,
                           .decoder = "cls.predictions.decoder.weight",
                           .decoder_bias = "cls.predictions.decoder.bias",
                           .act = c->act,
                           .eps = c->eps,
                           .std = c->std};
}

void arch_bert_build(by_graph *g, const arch_bert_config *c, by_model_io *io, const arch_bert_variant *v)
{
    by_scope_push(g, "%s", v->body);
    by_tensor *x = arch_bert_embeddings(
        g, io, &(arch_bert_sizes){c->vocab, c->context, c->segments, c->width, c->pad, -1}, c->eps, c->std,
        c->drop);
    x = arch_bert_layers(g, io, x, c->layers, arch_bert_variant_layer(c, io, v));
    if (is_pooled(io->task))
        by_io_return(io, "pooled", arch_pooler(g, "pooler.dense", x, c->std));
    by_tensor *table = arch_bert_table(g, c->vocab, c->width, c->std);
    by_scope_pop(g);
    by_io_return(io, "features", x);
    const arch_mlm_spec mlm = arch_bert_mlm(c);
    arch_put_heads(g, io, heads,
                   &(arch_top){.config = c, .table = table, .std = c->std, .drop = c->drop, .mlm = &mlm});
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    arch_bert_build(g, config, io, &(arch_bert_variant){.body = "bert"});
}

by_status arch_bert_check(const void *config)
{
    const arch_bert_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static bool is_causal(const void *config)
{
    return ((const arch_bert_config *)config)->causal;
}

const arch_alias arch_bert_copies[] = {{"cls.predictions.decoder.bias", "cls.predictions.bias"},
                                       {.key = NULL}};

const arch_family arch_bert = {
    .family = "bert",
    .title = "BERT (Devlin et al. 2019)",
    .classes = {[BY_TASK_LM] = "BertLMHeadModel",
                [BY_TASK_MLM] = "BertForMaskedLM",
                [BY_TASK_PRETRAIN] = "BertForPreTraining",
                [BY_TASK_NEXT] = "BertForNextSentencePrediction",
                [BY_TASK_CLASSIFY] = "BertForSequenceClassification",
                [BY_TASK_TAG] = "BertForTokenClassification",
                [BY_TASK_ANSWER] = "BertForQuestionAnswering",
                [BY_TASK_CHOICE] = "BertForMultipleChoice",
                [BY_TASK_FEATURES] = "BertModel"},
    .pretrained = BY_TASK_PRETRAIN,
    .objective = "nsp",
    .prefix = "bert.",
    .head = "cls.predictions.decoder.weight",
    .table = "bert.embeddings.word_embeddings.weight",
    .head_offset = offsetof(arch_bert_config, head),
    .copies = arch_bert_copies,
    .tokens = {-1, 0, -1},
    ARCH_TABLES(arch_bert_config),
    .check = arch_bert_check,
    .is_causal = is_causal,
    .adapted = "query,value",
    .build = build,
};
