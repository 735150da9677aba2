/* rnn_seq2seq.c - recurrent encoder and decoder: without attention (Cho et al. 2014, Sutskever et al. 2014),
 * with additive attention of the previous state (Bahdanau et al. 2015), or with multiplicative or
 * concatenated attention of the present state (Luong et al. 2015). Recurrent layers have PyTorch's names. If
 * a decoder step needs the attention of the previous step, the decoder is a loop over positions, and
 * generation uses the same step. */
#include "base/base.h"
#include "models/models.h"
#include "nn/cache.h"
#include "nn/carried_state.h"
#include "nn/recurrent_layers.h"

enum { MAX_LAYERS = 8 };
typedef enum attention_kind { ADDITIVE, NONE, DOT, GENERAL, CONCAT } attention_kind; /* as arch_choice_word */

typedef struct seq2seq_config {
    int vocab, target_vocab, context, embed, width, encoder_width, layers, pad;
    int cell, attention;
    float drop;
    bool both, feeding, readout, shared;
    arch_head head;
} seq2seq_config;

#define INT(member, key, fallback, low, high, role) \
    ARCH_INT_FIELD(seq2seq_config, member, key, fallback, low, high, role)

static const arch_field fields[] = {
    INT(vocab, "vocab_size", 8000, 1, 1 << 24, ARCH_ROLE_VOCAB),
    INT(target_vocab, "decoder_vocab_size", 0, 1, 1 << 24, ARCH_ROLE_TARGET_VOCAB),
    INT(context, "max_length", 256, 1, 1 << 16, ARCH_ROLE_CONTEXT),
    INT(embed, "embedding_size", 0, 1, 1 << 20, ARCH_ROLE_NONE), /* 0: half the width */
    INT(width, "hidden_size", 512, 2, 1 << 20, ARCH_ROLE_WIDTH),
    INT(encoder_width, "encoder_hidden_size", 0, 1, 1 << 20,
        ARCH_ROLE_NONE), /* width of a direction; 0: derived */
    INT(layers, "num_layers", 1, 1, MAX_LAYERS, ARCH_ROLE_LAYERS),
    INT(pad, "pad_token_id", 0, 0, 1 << 24, ARCH_ROLE_PAD),
    ARCH_CHOICE_FIELD(seq2seq_config, cell, "cell", ARCH_ROLE_CELL),
    ARCH_CHOICE_FIELD(seq2seq_config, attention, "attention", ARCH_ROLE_SCORE),
    ARCH_FLOAT_FIELD(seq2seq_config, drop, "dropout", 0.3, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_BOOL_FIELD(seq2seq_config, both, "bidirectional", true),
    ARCH_BOOL_FIELD(seq2seq_config, feeding, "input_feeding", true),
    ARCH_BOOL_FIELD(seq2seq_config, readout, "readout", true),
    {"share_encoder_decoder_embeddings", ARCH_FIELD_BOOL, offsetof(seq2seq_config, shared), true, 0, 1,
     ARCH_ROLE_SHARED},
    ARCH_TIED_FIELD(seq2seq_config),
};

static const arch_alias aliases[] = {{"num_hidden_layers", "num_layers"}, {.key = NULL}};
static const arch_key keys[] = {{.key = "is_encoder_decoder", .neutral = "true"}, {.key = NULL}};
static const arch_preset presets[] = {
    {"tiny", 1, 1, 128, 256}, {"small", 1, 1, 512, 256}, {"base", 2, 1, 1024, 256}};

/* ---- sizes ------------------------------------------------------------------------------------------ */

static by_cell cell_of(const seq2seq_config *c)
{
    static const by_cell cells[] = {BY_CELL_GRU, BY_CELL_LSTM, BY_CELL_TANH}; /* as arch_choice_word */
    return cells[c->cell];
}

static int64_t embed_of(const seq2seq_config *c)
{
    return c->embed > 0 ? c->embed : c->width / 2;
}

/* Width of one direction of the encoder. "dot" needs a memory as wide as the decoder's states. */
static int64_t encoder_of(const seq2seq_config *c)
{
    return c->encoder_width > 0 ? c->encoder_width : c->attention == DOT && c->both ? c->width / 2 : c->width;
}

static int64_t memory_of(const seq2seq_config *c)
{
    return (c->both ? 2 : 1) * encoder_of(c);
}

/* Width of the input of the logits. */
static int64_t features_of(const seq2seq_config *c)
{
    return c->readout ? embed_of(c) : c->width;
}

/* Width of the cell's input besides the embedding: the context, the previous attentional vector, or
 * nothing. */
static int64_t fed_of(const seq2seq_config *c)
{
    return c->attention == ADDITIVE ? memory_of(c) : c->attention != NONE && c->feeding ? c->width : 0;
}

static by_status check(const void *config)
{
    const seq2seq_config *c = config;
    if (c->attention == DOT && memory_of(c) != c->width)
        return base_fail(BY_ERR_ARGUMENT,
                         "attention \"dot\" needs encoder and decoder states of equal width, not %lld and "
                         "%d; \"general\" does not",
                         (long long)memory_of(c), c->width);
    if (c->head.tied && features_of(c) != embed_of(c))
        return base_fail(
            BY_ERR_ARGUMENT,
            "tie_word_embeddings without readout: embedding_size (%lld) and hidden_size (%d) must be equal",
            (long long)embed_of(c), c->width);
    if (c->shared && c->target_vocab && c->target_vocab != c->vocab)
        return base_fail(
            BY_ERR_FORMAT,
            "decoder_vocab_size %d is not vocab_size %d, but share_encoder_decoder_embeddings is true",
            c->target_vocab, c->vocab);
    return BY_OK;
}

/* ---- encoder ---------------------------------------------------------------------------------------- */

/* The encoded source. G is the batch, or in decoding the number of sources. */
typedef struct source {
    by_tensor *memory, *keys, *mask;          /* (G, S, M), (G, S, H), (G, S) */
    by_tensor *h[MAX_LAYERS], *c[MAX_LAYERS]; /* (G, H): the initial states of the decoder; c for an LSTM */
} source;

static by_tensor *embed(by_graph *g, const seq2seq_config *c, by_tensor *table, by_tensor *tokens)
{
    return by_dropout(g, by_gather_padded(g, table, tokens, c->pad), c->drop);
}

/* The initial state of decoder layer i. The bridge projects the states of a bidirectional encoder, or of
 * another width. */
static by_tensor *bridge(by_graph *g, const seq2seq_config *c, const char *name, int i, by_tensor **last,
                         by_act act)
{
    char scope[32];
    if (!c->both && memory_of(c) == c->width)
        return last[i];
    base_format(scope, sizeof scope, "bridge.%s.%d", name, i);
    by_tensor *x = c->both ? by_concat(g, (by_tensor *[]){last[2 * i], last[2 * i + 1]}, 2, 1) : last[i];
    return nn_linear(g, scope, x, &(nn_linear_spec){.out = c->width, .act = act});
}

static by_tensor *keys_of(by_graph *g, const seq2seq_config *c, by_tensor *memory)
{
    if (c->attention == NONE || c->attention == DOT)
        return NULL;
    return nn_linear(g, "attention.key", memory, &(nn_linear_spec){.out = c->width, .no_bias = true});
}

static source encode(by_graph *g, const seq2seq_config *c, by_model_io *io, by_tensor *table)
{
    const bool lstm = cell_of(c) == BY_CELL_LSTM;
    by_tensor *last_h[2 * MAX_LAYERS] = {NULL}, *last_c[2 * MAX_LAYERS] = {NULL};
    source s = {.mask = by_io_input(io, "source_mask")};
    by_tensor *x = embed(g, c, table, by_io_input(io, "source")); /* (B, S, E) */
    arch_keep_source_hidden(g, io, x);
    x = nn_recurrent(g, "encoder.rnn", x,
                     &(nn_recurrent_spec){.cell = cell_of(c),
                                          .layers = c->layers,
                                          .width = encoder_of(c),
                                          .both = c->both,
                                          .dropout = c->drop,
                                          .mask = s.mask,
                                          .last_h = last_h,
                                          .last_c = lstm ? last_c : NULL});
    s.memory = by_dropout(g, x, c->drop);
    arch_keep_source_hidden(g, io, x);
    s.keys = keys_of(g, c, s.memory);
    for (int i = 0; i < c->layers; i++) {
        s.h[i] = bridge(g, c, "h", i, last_h, BY_TANH);
        s.c[i] = lstm ? bridge(g, c, "c", i, last_c, BY_ACT_NONE) : NULL;
    }
    return s;
}

static void keep(by_graph *g, const seq2seq_config *c, const by_cache *cache, const source *s)
{
    char name[16];
    nn_cache_put(g, cache, "memory", s->memory, true);
    if (s->keys)
        nn_cache_put(g, cache, "keys", s->keys, true);
    for (int i = 0; i < c->layers; i++) {
        base_format(name, sizeof name, "source.h.%d", i);
        nn_cache_put(g, cache, name, s->h[i], false);
        base_format(name, sizeof name, "source.c.%d", i);
        if (s->c[i])
            nn_cache_put(g, cache, name, s->c[i], false);
    }
}

/* (G, H) -> (B, H): the rows of a group have one source. */
static by_tensor *repeat(by_graph *g, by_tensor *x, int64_t rows)
{
    const int64_t groups = by_dim(x, 0), width = by_dim(x, 1);
    if (rows == groups)
        return x;
    x = by_reshape(g, x, 3, (int64_t[]){groups, 1, width});
    x = by_add(g, x, by_fill(g, by_type(x), 3, (int64_t[]){1, rows / groups, 1}, 0));
    return by_reshape(g, x, 2, (int64_t[]){rows, width});
}

static source kept(by_graph *g, const seq2seq_config *c, const by_cache *cache, by_dtype type, int64_t rows)
{
    char name[16];
    source s = {.mask = cache->source_mask,
                .memory = nn_cache_get(g, cache, "memory", type, memory_of(c), true)};
    if (c->attention != NONE && c->attention != DOT)
        s.keys = nn_cache_get(g, cache, "keys", type, c->width, true);
    for (int i = 0; i < c->layers; i++) {
        base_format(name, sizeof name, "source.h.%d", i);
        s.h[i] = repeat(g, nn_cache_get(g, cache, name, type, c->width, false), rows);
        base_format(name, sizeof name, "source.c.%d", i);
        if (cell_of(c) == BY_CELL_LSTM)
            s.c[i] = repeat(g, nn_cache_get(g, cache, name, type, c->width, false), rows);
    }
    return s;
}

/* ---- attention -------------------------------------------------------------------------------------- */

/* q (B, T, H), the decoder's states -> contexts (B, T, M); *weights (B, T, S). */
static by_tensor *attend(by_graph *g, const seq2seq_config *c, const source *s, by_tensor *q,
                         by_tensor **weights)
{
    const int64_t rows = by_dim(q, 0), t = by_dim(q, 1), groups = by_dim(s->memory, 0),
                  length = by_dim(s->memory, 1);
    by_tensor *scores;
    const bool added = c->attention == ADDITIVE || c->attention == CONCAT;
    if (added)
        q = nn_linear(g, "attention.query", q, &(nn_linear_spec){.out = c->width});
    q = by_reshape(g, q, 3, (int64_t[]){groups, rows / groups * t, c->width});
    if (added) {
        const int64_t width = c->width;
        by_tensor *v = by_param(g, "attention.v.weight", 1, &width, (by_init){BY_INIT_UNIFORM, 0.1f});
        scores = by_additive_scores(g, q, s->keys, v);
    } else {
        scores = by_matmul(g, q, c->attention == DOT ? s->memory : s->keys, false, true);
    }
    if (s->mask) {
        by_tensor *mask = by_reshape(g, s->mask, 3, (int64_t[]){groups, 1, length});
        scores = by_where(g, mask, scores, by_fill(g, by_type(scores), 3, (int64_t[]){1, 1, 1}, -1e30));
    }
    by_tensor *p = by_softmax(g, scores); /* (G, beams T, S) */
    by_tensor *y = by_matmul(g, p, s->memory, false, false);
    *weights = by_reshape(g, p, 3, (int64_t[]){rows, t, length});
    return by_reshape(g, y, 3, (int64_t[]){rows, t, memory_of(c)});
}

/* Luong's attentional vector: (B, T, H) twice -> tanh(W [context; state]). */
static by_tensor *attentional(by_graph *g, const seq2seq_config *c, by_tensor *context, by_tensor *h)
{
    by_tensor *x = by_concat(g, (by_tensor *[]){context, h}, 2, 2);
    return nn_linear(g, "attention.out", x,
                     &(nn_linear_spec){.out = c->width, .no_bias = true, .act = BY_TANH});
}

/* ---- decoder ---------------------------------------------------------------------------------------- */

/* State passed from a step to the next. */
typedef struct carried {
    by_tensor *h[MAX_LAYERS], *c[MAX_LAYERS], *fed; /* (B, H), (B, 1, fed) */
} carried;

/* Output of the decoder at all positions, or at one. */
typedef struct given {
    by_tensor *state, *context, *weights; /* (B, T, H), (B, T, M) or the attentional vector, (B, T, S) */
} given;

typedef struct part {
    char name[16];
    nn_carry carry;
} part;

static const nn_carry *part_of(part *p, const by_model_io *io, char which, int i, by_tensor *initial,
                               by_dtype type, int64_t batch, int64_t width)
{
    base_format(p->name, sizeof p->name, "%c.%d", which, i);
    p->carry = (nn_carry){.stream = io->stream,
                          .cache = io->cache,
                          .name = p->name,
                          .batch = batch,
                          .width = width,
                          .type = type,
                          .initial = initial};
    return &p->carry;
}

static carried begin(by_graph *g, const seq2seq_config *c, const by_model_io *io, const source *s,
                     by_tensor *x)
{
    const int64_t batch = by_dim(x, 0), fed = fed_of(c);
    carried now = {.fed = NULL};
    part p;
    for (int i = 0; i < c->layers; i++) {
        now.h[i] = nn_carry_read(g, part_of(&p, io, 'h', i, s->h[i], by_type(x), batch, c->width));
        if (s->c[i])
            now.c[i] = nn_carry_read(g, part_of(&p, io, 'c', i, s->c[i], by_type(x), batch, c->width));
    }
    if (fed && c->attention != ADDITIVE) {
        by_tensor *none = by_fill(g, by_type(x), 2, (int64_t[]){batch, fed}, 0);
        now.fed = nn_carry_read(g, part_of(&p, io, 'f', 0, none, by_type(x), batch, fed));
        now.fed = by_reshape(g, now.fed, 3, (int64_t[]){batch, 1, fed});
    }
    return now;
}

static void end(by_graph *g, const seq2seq_config *c, const by_model_io *io, const source *s,
                const carried *now, by_tensor *x)
{
    const int64_t batch = by_dim(x, 0), fed = fed_of(c);
    part p;
    for (int i = 0; i < c->layers; i++) {
        nn_carry_write(g, part_of(&p, io, 'h', i, s->h[i], by_type(x), batch, c->width), now->h[i]);
        if (s->c[i])
            nn_carry_write(g, part_of(&p, io, 'c', i, s->c[i], by_type(x), batch, c->width), now->c[i]);
    }
    if (now->fed)
        nn_carry_write(g, part_of(&p, io, 'f', 0, now->fed, by_type(x), batch, fed),
                       by_reshape(g, now->fed, 2, (int64_t[]){batch, fed}));
}

/* Runs the layers over x (B, T, ...) from the states in *now, which are updated. */
static by_tensor *layers(by_graph *g, const seq2seq_config *c, by_tensor *x, by_tensor *mask, carried *now)
{
    by_tensor *last_h[MAX_LAYERS] = {NULL}, *last_c[MAX_LAYERS] = {NULL};
    const bool lstm = cell_of(c) == BY_CELL_LSTM;
    by_tensor *y = nn_recurrent(g, "decoder.rnn", x,
                                &(nn_recurrent_spec){.cell = cell_of(c),
                                                     .layers = c->layers,
                                                     .width = c->width,
                                                     .dropout = c->drop,
                                                     .mask = mask,
                                                     .h = now->h,
                                                     .c = lstm ? now->c : NULL,
                                                     .last_h = last_h,
                                                     .last_c = lstm ? last_c : NULL});
    memcpy(now->h, last_h, sizeof last_h);
    memcpy(now->c, last_c, sizeof last_c);
    return y;
}

/* One position x (B, 1, E) of a decoder with input feeding. */
static given step(by_graph *g, const seq2seq_config *c, const source *s, by_tensor *x, by_tensor *mask,
                  carried *now)
{
    given y = {.state = NULL};
    const int64_t batch = by_dim(x, 0);
    if (c->attention == ADDITIVE) { /* by the state before */
        by_tensor *before = by_reshape(g, now->h[c->layers - 1], 3, (int64_t[]){batch, 1, c->width});
        y.context = attend(g, c, s, before, &y.weights);
        y.state = layers(g, c, by_concat(g, (by_tensor *[]){x, y.context}, 2, 2), mask, now);
        return y;
    }
    y.state = layers(g, c, by_concat(g, (by_tensor *[]){x, now->fed}, 2, 2), mask, now);
    y.context = attentional(g, c, attend(g, c, s, y.state, &y.weights), y.state);
    if (mask) /* padding feeds nothing on */
        now->fed = by_where(g, by_reshape(g, mask, 3, (int64_t[]){batch, 1, 1}), y.context, now->fed);
    else
        now->fed = y.context;
    return y;
}

/* All positions, one after the other. */
static given unroll(by_graph *g, const seq2seq_config *c, const source *s, by_tensor *x, by_tensor *mask,
                    carried *now)
{
    const int n = (int)by_dim(x, 1);
    by_tensor **list = base_alloc_zero((size_t)n * 3, sizeof *list);
    given y = {.state = NULL};
    if (!list) {
        y.state = y.context = y.weights = by_graph_fail(g, "out of memory");
        return y;
    }
    for (int t = 0; t < n; t++) {
        const given one =
            step(g, c, s, by_slice(g, x, 1, t, 1), mask ? by_slice(g, mask, 1, t, 1) : NULL, now);
        list[t] = one.state;
        list[n + t] = one.context;
        list[2 * n + t] = one.weights;
    }
    y.state = nn_concat(g, list, n, 1);
    y.context = nn_concat(g, list + n, n, 1);
    y.weights = nn_concat(g, list + 2 * n, n, 1);
    base_free(list);
    return y;
}

static void keep_weights(by_graph *g, by_model_io *io, by_tensor *weights)
{
    by_tensor **slot = weights ? arch_cross_weights_slot(io) : NULL;
    if (slot)
        *slot = by_reshape(g, weights, 4,
                           (int64_t[]){by_dim(weights, 0), 1, by_dim(weights, 1), by_dim(weights, 2)});
}

/* The input of the deep output layer (Pascanu et al. 2014): the state, the context and the previous token.
 * With Luong's attention, the attentional vector combines them. x (B, T, E). */
static by_tensor *read_out(by_graph *g, const seq2seq_config *c, const given *y, by_tensor *x)
{
    if (c->attention == ADDITIVE)
        x = by_concat(g, (by_tensor *[]){y->state, y->context, x}, 3, 2);
    else if (c->attention == NONE)
        x = by_concat(g, (by_tensor *[]){y->state, x}, 2, 2);
    else
        x = y->context;
    return nn_linear(g, "decoder.readout", by_dropout(g, x, c->drop),
                     &(nn_linear_spec){.out = embed_of(c), .act = BY_TANH});
}

/* Tokens (B, T) -> the input of the logits: (B, T, E), or without a readout (B, T, H). */
static by_tensor *decode(by_graph *g, const seq2seq_config *c, by_model_io *io, by_tensor *table,
                         const source *s)
{
    by_tensor *mask = nn_carry_mask(io->cache, by_io_input(io, "mask"));
    by_tensor *x = embed(g, c, table, by_io_input(io, "tokens")); /* (B, T, E) */
    carried now = begin(g, c, io, s, x);
    given y = {.state = NULL};
    if (fed_of(c)) {
        y = unroll(g, c, s, x, mask, &now);
    } else {
        y.state = layers(g, c, x, mask, &now);
        if (c->attention != NONE)
            y.context = attentional(g, c, attend(g, c, s, y.state, &y.weights), y.state);
    }
    end(g, c, io, s, &now, x);
    keep_weights(g, io, y.weights);
    const bool luong = c->attention != NONE && c->attention != ADDITIVE;
    x = c->readout ? read_out(g, c, &y, x) : luong ? y.context : y.state;
    return by_dropout(g, x, c->drop);
}

static by_tensor *words(by_graph *g, const char *name, int64_t rows, int64_t width)
{
    return by_param(g, name, 2, (int64_t[]){rows, width}, (by_init){BY_INIT_UNIFORM, 0.1f});
}

static void write_tokens(by_graph *g, const seq2seq_config *c, by_model_io *io, by_tensor *table)
{
    const int64_t vocab = by_dim(table, 0);
    by_tensor *weights = c->head.own ? words(g, "output.weight", vocab, features_of(c)) : table;
    by_tensor *bias = by_param(g, "output.bias", 1, &vocab, (by_init){BY_INIT_ZERO, 0});
    if (io->part != BY_PART_ENCODER)
        arch_lm_head(g, io, by_io_output(io, "features"), weights, bias);
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const seq2seq_config *c = config;
    const int64_t vocab = c->shared || !c->target_vocab ? c->vocab : c->target_vocab;
    by_tensor *table =
        words(g, c->shared ? "embedding.weight" : "encoder.embedding.weight", c->vocab, embed_of(c));
    by_tensor *target = c->shared ? table : words(g, "decoder.embedding.weight", vocab, embed_of(c));
    source s = {.memory = NULL};
    if (io->part != BY_PART_DECODER) {
        s = encode(g, c, io, table);
        by_io_return(io, "memory", s.memory);
    }
    if (io->part == BY_PART_ENCODER && io->cache)
        keep(g, c, io->cache, &s);
    if (io->part == BY_PART_DECODER && io->cache)
        s = kept(g, c, io->cache, by_type(table), by_dim(by_io_input(io, "tokens"), 0));
    if (io->part != BY_PART_ENCODER)
        by_io_return(io, "features", decode(g, c, io, target, &s));
    if (io->task == BY_TASK_SEQ2SEQ)
        write_tokens(g, c, io, target);
}

const arch_family arch_rnn_seq2seq = {
    .family = "rnn-seq2seq",
    .title = "recurrent sequence to sequence (Bahdanau et al. 2015, Luong et al. 2015)",
    .classes = {[BY_TASK_SEQ2SEQ] = "RNNForConditionalGeneration", [BY_TASK_FEATURES] = "RNNSeq2SeqModel"},
    .pretrained = BY_TASK_SEQ2SEQ,
    .objective = "translate",
    .training = {.rate = 2, .no_decay = true},
    .prefix = "",
    .head = "output.weight",
    .table = "embedding.weight",
    .target_table = "decoder.embedding.weight",
    .head_offset = offsetof(seq2seq_config, head),
    .aliases = aliases,
    .keys = keys,
    .tokens = {-1, 0, -1},
    .unlimited = true,
    .recurrent = true,
    .labels_in_place = true,
    ARCH_TABLES(seq2seq_config),
    .check = check,
    .build = build,
};
