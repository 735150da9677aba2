/* roberta.c - Liu et al. 2019, "RoBERTa: A Robustly Optimized BERT Pretraining Approach"; XLM-RoBERTa
 * (Conneau et al. 2020) and CamemBERT (Martin et al. 2020) are the same model for a hundred languages and for
 * French. BERT's body with positions that start after the padding token's id, one segment, and a pooler only
 * in the bare body; pretrained only with masked tokens. */
#include "base/base.h"
#include "models/models.h"

static const arch_field roberta_fields[] = {ARCH_BERT_FIELDS(50265, 512, 1, BY_GELU), ARCH_LABEL_DROP_FIELD,
                                            ARCH_IS_DECODER_FIELD},
                        fields[] = {ARCH_BERT_FIELDS(30522, 512, 1, BY_GELU), ARCH_LABEL_DROP_FIELD,
                                    ARCH_IS_DECODER_FIELD};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 514},
    {"small", 4, 8, 512, 514},
    {"base", 12, 12, 768, 514},
    {"large", 24, 16, 1024, 514},
};

/* tanh between two projections of the first position. */
static void put_label(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    by_tensor *h = arch_head_dropout(g, nn_first(g, by_io_output(io, "features")), top, row);
    h = nn_linear(g, "classifier.dense", h,
                  &(nn_linear_spec){.out = by_dim(h, -1), .act = BY_TANH, .std = top->std});
    arch_label_head(g, io, row->name, arch_head_dropout(g, h, top, row), top->std);
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, arch_put_mlm, NULL, 0},
    {BY_TASK_MLM, arch_put_mlm, NULL, 0},
    {BY_TASK_CLASSIFY, put_label, "classifier.out_proj", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_CHOICE, arch_put_label, "classifier", offsetof(arch_bert_config, drop)},
    {BY_TASK_TAG, arch_put_tag, "classifier", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

void arch_roberta_build(by_graph *g, const arch_bert_config *c, by_model_io *io, const arch_bert_variant *v)
{
    by_scope_push(g, "%s", v->body);
    by_tensor *x = arch_bert_embeddings(
        g, io, &(arch_bert_sizes){c->vocab, c->context, c->segments, c->width, c->pad, c->pad}, c->eps,
        c->std, c->drop);
    x = arch_bert_layers(g, io, x, c->layers, arch_bert_variant_layer(c, io, v));
    if (io->task == BY_TASK_FEATURES || io->task == BY_TASK_CHOICE)
        by_io_return(io, "pooled", arch_pooler(g, "pooler.dense", x, c->std));
    by_tensor *table = arch_bert_table(g, c->vocab, c->width, c->std);
    by_scope_pop(g);
    by_io_return(io, "features", x);
    const arch_mlm_spec mlm = {.dense = "lm_head.dense",
                               .norm = "lm_head.layer_norm",
                               .bias = "lm_head.bias",
                               .head = c->head,
                               .decoder = "lm_head.decoder.weight",
                               .decoder_bias = "lm_head.decoder.bias",
                               .act = BY_GELU,
                               .eps = c->eps,
                               .std = c->std};
    arch_put_heads(g, io, heads,
                   &(arch_top){.config = c, .table = table, .std = c->std, .drop = c->drop, .mlm = &mlm});
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    arch_roberta_build(g, config, io, &(arch_bert_variant){.body = "roberta"});
}

by_status arch_roberta_check(const void *config)
{
    const arch_bert_config *c = config;
    if (c->pad < 0)
        return base_fail(BY_ERR_UNSUPPORTED, "pad_token_id is null; positions are counted from it");
    if (c->context <= c->pad + 1)
        return base_fail(BY_ERR_FORMAT,
                         "max_position_embeddings (%d) leaves no position after pad_token_id (%d)",
                         c->context, c->pad);
    return arch_check_heads(c->width, c->heads);
}

int arch_roberta_first_position(const void *config)
{
    return ((const arch_bert_config *)config)->pad + 1;
}

static bool is_causal(const void *config)
{
    return ((const arch_bert_config *)config)->causal;
}

/* Published models have one segment, and vocabularies of their own. */
static void adjust(arch_bert_config *c, int vocab)
{
    c->segments = 1;
    c->vocab = vocab;
}

static void adjust_roberta(const char *preset, void *config)
{
    (void)preset;
    adjust(config, 50265);
}

static void adjust_xlm_roberta(const char *preset, void *config)
{
    (void)preset;
    adjust(config, 250002);
}

static void adjust_camembert(const char *preset, void *config)
{
    (void)preset;
    adjust(config, 32005);
}

const arch_alias arch_roberta_copies[] = {{"lm_head.decoder.bias", "lm_head.bias"}, {.key = NULL}};

#define ROBERTA(name)                                                                                      \
    .classes = {[BY_TASK_LM] = name "ForCausalLM",                                                         \
                [BY_TASK_MLM] = name "ForMaskedLM",                                                        \
                [BY_TASK_CLASSIFY] = name "ForSequenceClassification",                                     \
                [BY_TASK_TAG] = name "ForTokenClassification",                                             \
                [BY_TASK_ANSWER] = name "ForQuestionAnswering",                                            \
                [BY_TASK_CHOICE] = name "ForMultipleChoice",                                               \
                [BY_TASK_FEATURES] = name "Model"},                                                        \
    .pretrained = BY_TASK_MLM, .objective = "mlm", .prefix = "roberta.", .head = "lm_head.decoder.weight", \
    .table = "roberta.embeddings.word_embeddings.weight", .head_offset = offsetof(arch_bert_config, head), \
    .copies = arch_roberta_copies, .tokens = {2, 1, -1}, .is_causal = is_causal,                           \
    .config_size = sizeof(arch_bert_config), .presets = presets, .n_presets = BY_COUNT(presets),           \
    .check = arch_roberta_check, .first_position = arch_roberta_first_position, .adapted = "query,value",  \
    .build = build

const arch_family arch_roberta = {.family = "roberta",
                                  .title = "RoBERTa (Liu et al. 2019)",
                                  .fields = roberta_fields,
                                  .n_fields = BY_COUNT(roberta_fields),
                                  .adjust = adjust_roberta,
                                  ROBERTA("Roberta")};

const arch_family arch_xlm_roberta = {.family = "xlm-roberta",
                                      .title = "XLM-RoBERTa (Conneau et al. 2020)",
                                      .fields = fields,
                                      .n_fields = BY_COUNT(fields),
                                      .adjust = adjust_xlm_roberta,
                                      ROBERTA("XLMRoberta")};

const arch_family arch_camembert = {.family = "camembert",
                                    .title = "CamemBERT (Martin et al. 2020)",
                                    .fields = fields,
                                    .n_fields = BY_COUNT(fields),
                                    .adjust = adjust_camembert,
                                    ROBERTA("Camembert")};
