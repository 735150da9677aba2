/* rnn.c - recurrent language models: Elman 1990 (rnn), Hochreiter and Schmidhuber 1997 (lstm), Cho et al.
 * 2014 (gru). An embedding, recurrent layers, a projection to the vocabulary; dropout only between them
 * (Zaremba et al. 2014). Names are those of PyTorch's word_language_model example. The state is carried from
 * one segment of a text to the next without a gradient (truncated back-propagation through time).
 * Bidirectional networks predict masked tokens and labels. */
#include "base/base.h"
#include "models/models.h"
#include "nn/carried_state.h"
#include "nn/recurrent_layers.h"

typedef struct rnn_config {
    int vocab, context, embed, width, layers; /* embed 0: see embed_of */
    float drop;
    by_act act; /* activation of rnn cells: tanh or relu */
    bool both, bias;
    arch_head head;
} rnn_config;

#define FIELDS                                                                                       \
    ARCH_INT_FIELD(rnn_config, vocab, "vocab_size", 10000, 1, 1 << 24, ARCH_ROLE_VOCAB),             \
        ARCH_INT_FIELD(rnn_config, context, "bptt", 35, 1, 1 << 24, ARCH_ROLE_CONTEXT),              \
        ARCH_INT_FIELD(rnn_config, embed, "embedding_size", 0, 1, 1 << 20, ARCH_ROLE_NONE),          \
        ARCH_INT_FIELD(rnn_config, width, "hidden_size", 200, 1, 1 << 20, ARCH_ROLE_WIDTH),          \
        ARCH_INT_FIELD(rnn_config, layers, "num_layers", 2, 1, 64, ARCH_ROLE_LAYERS),                \
        ARCH_FLOAT_FIELD(rnn_config, drop, "dropout", 0.2, 0, 0.999, ARCH_ROLE_DROPOUT),             \
        {"bidirectional", ARCH_FIELD_BOOL, offsetof(rnn_config, both), false, 0, 1, ARCH_ROLE_BOTH}, \
        ARCH_BOOL_FIELD(rnn_config, bias, "bias", true), ARCH_TIED_FIELD(rnn_config)

static const arch_field gated_fields[] = {FIELDS};
static const arch_field plain_fields[] = {FIELDS, ARCH_ACT_FIELD(rnn_config, act, "nonlinearity", BY_TANH)};

static const arch_alias aliases[] = {{"num_hidden_layers", "num_layers"}, {.key = NULL}};
static const arch_key keys[] = {
    {.key = "batch_first"}, /* affects layouts, not weights */
    {.key = "input_size"},  /* embedding_size says it */
    {.key = "proj_size", .neutral = "0|null"},
    {.key = NULL},
};

/* Zaremba et al. 2014, with an untied softmax. */
static const arch_preset presets[] = {
    {"tiny", 2, 1, 128, 64}, {"small", 2, 1, 200, 20}, {"medium", 2, 1, 650, 35}, {"large", 2, 1, 1500, 35}};
static const struct {
    float drop;
    bool tied;
} rest[] = {{0, true}, {0, false}, {0.5f, false}, {0.65f, false}};

static void adjust(const char *preset, void *config)
{
    rnn_config *c = config;
    for (int i = 0; i < BY_COUNT(presets); i++)
        if (strcmp(presets[i].name, preset) == 0) {
            c->drop = rest[i].drop;
            c->head.tied = rest[i].tied;
        }
}

/* Width of the last layer's output. */
static int features_of(const rnn_config *c)
{
    return c->both ? 2 * c->width : c->width;
}

/* A tied table is as wide as the features. */
static int embed_of(const rnn_config *c)
{
    return c->embed > 0 ? c->embed : c->head.tied ? features_of(c) : c->width;
}

static by_status check(const void *config)
{
    const rnn_config *c = config;
    if (c->head.tied && embed_of(c) != features_of(c))
        return base_fail(BY_ERR_ARGUMENT,
                         "tie_word_embeddings: embedding_size (%d) must be %shidden_size (%d)", embed_of(c),
                         c->both ? "twice the " : "the ", c->width);
    return BY_OK;
}

static by_status check_plain(const void *config)
{
    const rnn_config *c = config;
    if (c->act != BY_TANH && c->act != BY_RELU)
        return base_fail(BY_ERR_UNSUPPORTED, "nonlinearity is \"%s\"; it must be \"tanh\" or \"relu\"",
                         arch_act_name(c->act));
    return check(config);
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* The states of one layer: 0 forward, 1 backward. */
typedef struct layer_states {
    by_tensor *h[2], *c[2], *last_h[2], *last_c[2];
} layer_states;

/* One part of the state that is carried along a text: "h.0". */
typedef struct part {
    char name[16];
    nn_carry carry;
} part;

static const nn_carry *part_of(part *p, const by_model_io *io, char which, int layer, by_tensor *x, int width)
{
    base_format(p->name, sizeof p->name, "%c.%d", which, layer);
    p->carry = (nn_carry){.stream = io->stream,
                          .cache = io->cache,
                          .name = p->name,
                          .batch = by_dim(x, 0),
                          .width = width,
                          .type = by_type(x)};
    return &p->carry;
}

static by_tensor *layer(by_graph *g, by_tensor *x, const rnn_config *c, by_cell cell, const by_model_io *io,
                        int i, layer_states *s) /* (B, T, C) -> (B, T, H) or (B, T, 2 H) */
{
    const bool lstm = cell == BY_CELL_LSTM;
    part h, own;
    by_block_push(g, "rnn");
    if (!c->both)
        s->h[0] = nn_carry_read(g, part_of(&h, io, 'h', i, x, c->width));
    if (!c->both && lstm)
        s->c[0] = nn_carry_read(g, part_of(&own, io, 'c', i, x, c->width));
    x = nn_recurrent(g, NULL, x,
                     &(nn_recurrent_spec){.cell = cell,
                                          .first = i,
                                          .layers = 1,
                                          .width = c->width,
                                          .both = c->both,
                                          .no_bias = !c->bias,
                                          .mask = nn_carry_mask(io->cache, by_io_input(io, "mask")),
                                          .h = s->h,
                                          .c = lstm ? s->c : NULL,
                                          .last_h = s->last_h,
                                          .last_c = lstm ? s->last_c : NULL});
    if (!c->both)
        nn_carry_write(g, &h.carry, s->last_h[0]);
    if (!c->both && lstm)
        nn_carry_write(g, &own.carry, s->last_c[0]);
    by_block_pop(g);
    return x;
}

static by_tensor *words(by_graph *g, const char *name, int64_t rows, int64_t width)
{
    return by_param(g, name, 2, (int64_t[]){rows, width}, (by_init){BY_INIT_UNIFORM, 0.1f});
}

static void put_words(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const rnn_config *c = top->config;
    const int64_t vocab = c->vocab;
    if (c->both && io->task == BY_TASK_LM) {
        by_io_return(
            io, "logits",
            by_graph_fail(
                g, "a bidirectional network cannot be a language model: it sees the token to predict"));
        return;
    }
    by_tensor *weights = top->head.own ? words(g, row->name, vocab, features_of(c)) : top->table;
    by_tensor *bias = by_param(g, "decoder.bias", 1, &vocab, (by_init){BY_INIT_ZERO, 0});
    arch_lm_head(g, io, by_io_output(io, "features"), weights, bias);
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, put_words, "decoder.weight", 0},
    {BY_TASK_MLM, put_words, "decoder.weight", 0},
    {BY_TASK_CLASSIFY, arch_put_label, "classifier", 0},
    {BY_TASK_TAG, arch_put_tag, "classifier", 0},
    {.put = NULL},
};

static void build(by_graph *g, const rnn_config *c, by_cell cell, by_model_io *io)
{
    layer_states s = {{NULL}, {NULL}, {NULL}, {NULL}};
    by_tensor *table = words(g, "encoder.weight", c->vocab, embed_of(c));
    by_tensor *x = by_gather(g, table, by_io_input(io, "tokens")); /* (B, T, E) */
    for (int i = 0; i < c->layers; i++) {
        arch_keep_hidden(g, io, x);
        x = layer(g, by_dropout(g, x, c->drop), c, cell, io, i, &s);
    }
    x = by_dropout(g, x, c->drop);
    arch_keep_hidden(g, io, x);
    by_io_return(io, "features", x);
    by_tensor *last = c->both ? by_concat(g, s.last_h, 2, 1) : s.last_h[0]; /* (B, H) or (B, 2 H) */
    by_io_return(io, "pooled", by_dropout(g, last, c->drop));
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = table, .head = c->head});
}

static void build_rnn(by_graph *g, const void *config, by_model_io *io)
{
    const rnn_config *c = config;
    build(g, c, c->act == BY_RELU ? BY_CELL_RELU : BY_CELL_TANH, io);
}

static void build_lstm(by_graph *g, const void *config, by_model_io *io)
{
    build(g, config, BY_CELL_LSTM, io);
}

static void build_gru(by_graph *g, const void *config, by_model_io *io)
{
    build(g, config, BY_CELL_GRU, io);
}

static const char *const outside[] = {"decoder.", "classifier.", NULL};

#define COMMON                                                                                           \
    .pretrained = BY_TASK_LM, .training = {.rate = 3, .clip = 0.25, .no_decay = true}, .prefix = "",     \
    .outside = outside, .head = "decoder.weight", .table = "encoder.weight",                             \
    .head_offset = offsetof(rnn_config, head), .aliases = aliases, .keys = keys, .tokens = {-1, -1, -1}, \
    .unlimited = true, .recurrent = true, .config_size = sizeof(rnn_config), .presets = presets,         \
    .n_presets = BY_COUNT(presets), .adjust = adjust

const arch_family arch_rnn = {
    .family = "rnn",
    .title = "recurrent network (Elman 1990)",
    .classes = {[BY_TASK_LM] = "RNNForCausalLM",
                [BY_TASK_MLM] = "RNNForMaskedLM",
                [BY_TASK_CLASSIFY] = "RNNForSequenceClassification",
                [BY_TASK_TAG] = "RNNForTokenClassification",
                [BY_TASK_FEATURES] = "RNNModel"},
    COMMON,
    .fields = plain_fields,
    .n_fields = BY_COUNT(plain_fields),
    .check = check_plain,
    .build = build_rnn,
};

const arch_family arch_lstm = {
    .family = "lstm",
    .title = "LSTM (Hochreiter and Schmidhuber 1997)",
    .classes = {[BY_TASK_LM] = "LSTMForCausalLM",
                [BY_TASK_MLM] = "LSTMForMaskedLM",
                [BY_TASK_CLASSIFY] = "LSTMForSequenceClassification",
                [BY_TASK_TAG] = "LSTMForTokenClassification",
                [BY_TASK_FEATURES] = "LSTMModel"},
    COMMON,
    .fields = gated_fields,
    .n_fields = BY_COUNT(gated_fields),
    .check = check,
    .build = build_lstm,
};

const arch_family arch_gru = {
    .family = "gru",
    .title = "GRU (Cho et al. 2014)",
    .classes = {[BY_TASK_LM] = "GRUForCausalLM",
                [BY_TASK_MLM] = "GRUForMaskedLM",
                [BY_TASK_CLASSIFY] = "GRUForSequenceClassification",
                [BY_TASK_TAG] = "GRUForTokenClassification",
                [BY_TASK_FEATURES] = "GRUModel"},
    COMMON,
    .fields = gated_fields,
    .n_fields = BY_COUNT(gated_fields),
    .check = check,
    .build = build_gru,
};
