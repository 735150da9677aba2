/* t5.c - Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
 * Transformer". Pre-norm blocks with RMS norms and no biases; positions are known by a bias on the scores
 * that depends on the distance, one table of buckets per half, shared by its layers; scores are not
 * scaled. 1.1 (Shazeer 2020) has a gated feed-forward and a head of its own. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct t5_config {
    int vocab, context, width, head, inner, encoder_layers, decoder_layers, heads, buckets, far;
    float eps, drop, factor;
    by_act act;
    bool gated, tied, scaled;
} t5_config;

static const by_field fields[] = {
    BY_INT_FIELD(t5_config, vocab, "vocab_size", 32128, 1, 1 << 24, BY_ROLE_VOCAB),
    BY_INT_FIELD(t5_config, context, "n_positions", 512, 1, 1 << 24, BY_ROLE_CONTEXT),
    BY_INT_FIELD(t5_config, width, "d_model", 512, 1, 1 << 20, BY_ROLE_WIDTH),
    BY_INT_FIELD(t5_config, head, "d_kv", 64, 1, 1 << 16, BY_ROLE_NONE),
    BY_INT_FIELD(t5_config, inner, "d_ff", 2048, 1, 1 << 22, BY_ROLE_INNER),
    BY_INT_FIELD(t5_config, encoder_layers, "num_layers", 6, 1, BY_MAX_LAYERS, BY_ROLE_LAYERS),
    BY_INT_FIELD(t5_config, decoder_layers, "num_decoder_layers", 0, 1, BY_MAX_LAYERS,
                 BY_ROLE_DECODER_LAYERS),
    BY_INT_FIELD(t5_config, heads, "num_heads", 8, 1, 4096, BY_ROLE_HEADS),
    BY_INT_FIELD(t5_config, buckets, "relative_attention_num_buckets", 32, 4, 2 * BY_MAX_BUCKETS,
                 BY_ROLE_NONE),
    BY_INT_FIELD(t5_config, far, "relative_attention_max_distance", 128, 2, 1 << 20, BY_ROLE_NONE),
    BY_FLOAT_FIELD(t5_config, drop, "dropout_rate", 0.1, 0, 0.999, BY_ROLE_DROPOUT),
    BY_FLOAT_FIELD(t5_config, eps, "layer_norm_epsilon", 1e-6, 0, 1, BY_ROLE_NONE),
    BY_FLOAT_FIELD(t5_config, factor, "initializer_factor", 1, 0, 100, BY_ROLE_NONE),
    {"tie_word_embeddings", BY_FIELD_BOOL, offsetof(t5_config, tied), true, 0, 1, BY_ROLE_TIED},
};

static const by_preset presets[] = {
    {"tiny", 2, 2, 128, 256},        {"small", 6, 8, 512, 512},         {"base", 12, 12, 768, 512},
    {"large", 24, 16, 1024, 512},    {"v1.1-tiny", 2, 2, 128, 256},     {"v1.1-small", 8, 6, 512, 512},
    {"v1.1-base", 12, 12, 768, 512}, {"v1.1-large", 24, 16, 1024, 512},
};

/* ---- positions ------------------------------------------------------------------------------- */

/* Where the buckets of one side begin: half of them hold one distance each, the others grow by a factor up to
 * the farthest. In f32 and in this order of operations, which decides ties. */
static int bucket_starts(const t5_config *c, bool both, int *first)
{
    const int count = both ? c->buckets / 2 : c->buckets, exact = count / 2;
    int k = 0;
    for (int d = 0; k < count && d <= c->far; d++) {
        float wide =
            logf((float)d / (float)exact) / (float)log((double)c->far / exact) * (float)(count - exact);
        int bucket = d < exact ? d : BY_MIN(exact + (int)wide, count - 1);
        for (; k <= bucket; k++)
            first[k] = d;
    }
    for (; k < count; k++)
        first[k] = c->far;
    return count;
}

/* What the score of a key gains by its distance: (1, H, 1, L), entry `zero` for the query's own place. */
static by_tensor *distance_bias(by_graph *g, const t5_config *c, bool both, int64_t length, int64_t zero)
{
    int first[BY_MAX_BUCKETS * 2];
    const int count = bucket_starts(c, both, first);
    const float std = c->factor / sqrtf((float)c->width);
    by_tensor *table = by_param(g, "block.0.layer.0.SelfAttention.relative_attention_bias.weight", 2,
                                (int64_t[]){c->buckets, c->heads}, (by_init){BY_INIT_NORMAL, std});
    by_tensor *bias = by_gather(g, table, by_buckets(g, length, zero, both, count, first)); /* (L, H) */
    bias = by_permute_axes(g, bias, (int[]){1, 0});
    return by_reshape(g, bias, 4, (int64_t[]){1, c->heads, 1, length});
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static nn_attend_spec attention_spec(const t5_config *c)
{
    const float width = (float)c->width, inner = (float)c->heads * (float)c->head;
    return (nn_attend_spec){.query = "q",
                            .key = "k",
                            .value = "v",
                            .out = "o",
                            .heads = c->heads,
                            .inner = (int64_t)c->heads * c->head,
                            .no_bias = true,
                            .scale = 1,
                            .dropout = c->drop,
                            .query_std = c->factor / sqrtf(width * (float)c->head),
                            .std = c->factor / sqrtf(width),
                            .out_std = c->factor / sqrtf(inner)};
}

/* x plus what a sub-layer makes of its norm; `from` as in nn_attend, except that x stands for its norm. */
static by_tensor *attention(by_graph *g, const t5_config *c, const char *name, int number, by_tensor *x,
                            by_tensor *from, const nn_attend_spec *spec)
{
    by_scope_push(g, "layer.%d", number);
    by_tensor *h = nn_rmsnorm(g, "layer_norm", x, c->eps);
    by_scope_push(g, "%s", name);
    h = nn_attend(g, h, from == x ? h : from, spec);
    by_scope_pop(g);
    by_scope_pop(g);
    return by_add(g, x, by_dropout(g, h, c->drop));
}

static by_tensor *feed_forward(by_graph *g, const t5_config *c, int number, by_tensor *x)
{
    const float in = c->factor / sqrtf((float)c->width), out = c->factor / sqrtf((float)c->inner);
    const nn_linear_spec wide = {.out = c->inner, .no_bias = true, .act = c->act, .std = in};
    const nn_linear_spec plain = {.out = c->inner, .no_bias = true, .std = in};
    by_scope_push(g, "layer.%d", number);
    by_tensor *n = nn_rmsnorm(g, "layer_norm", x, c->eps);
    by_scope_push(g, "DenseReluDense");
    by_tensor *h = nn_linear(g, c->gated ? "wi_0" : "wi", n, &wide);
    if (c->gated)
        h = by_mul(g, h, nn_linear(g, "wi_1", n, &plain));
    h = nn_linear(g, "wo", by_dropout(g, h, c->drop),
                  &(nn_linear_spec){.out = c->width, .no_bias = true, .std = out});
    by_scope_pop(g);
    by_scope_pop(g);
    return by_add(g, x, by_dropout(g, h, c->drop));
}

static by_tensor *finish(by_graph *g, const t5_config *c, by_tensor *x)
{
    return by_dropout(g, nn_rmsnorm(g, "final_layer_norm", x, c->eps), c->drop);
}

/* ---- the two halves -------------------------------------------------------------------------- */

static by_tensor *encode(by_graph *g, const t5_config *c, by_model_io *io, by_tensor *table)
{
    const int64_t length = by_dim(io->source, 1);
    by_scope_push(g, "encoder");
    by_tensor *x = by_dropout(g, by_gather(g, table, io->source), c->drop); /* (B, S, C) */
    nn_attend_spec own = attention_spec(c);
    own.key_mask = io->source_mask;
    own.bias = distance_bias(g, c, true, 2 * length - 1, length - 1);
    own.bias_zero = (int)length - 1;
    for (int i = 0; i < c->encoder_layers; i++) {
        by_keep_source_hidden(g, io, x);
        own.weights = by_source_weights_slot(io);
        by_block_push(g, "block.%d", i);
        x = attention(g, c, "SelfAttention", 0, x, x, &own);
        x = feed_forward(g, c, 1, x);
        by_block_pop(g);
    }
    x = finish(g, c, x);
    by_keep_source_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

static nn_attend_spec cross_spec(const t5_config *c, const by_model_io *io, int layer)
{
    nn_attend_spec spec = attention_spec(c);
    spec.key_mask = io->source_mask;
    spec.cache = io->cache;
    spec.layer = layer;
    return spec;
}

static by_tensor *decode(by_graph *g, const t5_config *c, by_model_io *io, by_tensor *table)
{
    const int64_t keys = io->cache ? io->cache->capacity : by_dim(io->tokens, 1);
    by_scope_push(g, "decoder");
    by_tensor *x = by_dropout(g, by_gather(g, table, io->tokens), c->drop); /* (B, T, C) */
    nn_attend_spec own = attention_spec(c);
    own.mask = BY_MASK_CAUSAL;
    own.cache = io->cache;
    own.bias = distance_bias(g, c, false, keys, keys - 1);
    own.bias_zero = (int)keys - 1;
    for (int i = 0; i < c->decoder_layers; i++) {
        nn_attend_spec cross = cross_spec(c, io, i);
        by_keep_hidden(g, io, x);
        own.layer = i;
        own.weights = by_weights_slot(io);
        cross.weights = by_cross_weights_slot(io);
        by_block_push(g, "block.%d", i);
        x = attention(g, c, "SelfAttention", 0, x, x, &own);
        x = attention(g, c, "EncDecAttention", 1, x, io->memory, &cross);
        x = feed_forward(g, c, 2, x);
        by_block_pop(g);
    }
    x = finish(g, c, x);
    by_keep_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

/* What every decoder block will look at. */
static void keep_memory(by_graph *g, const t5_config *c, by_model_io *io)
{
    for (int i = 0; i < c->decoder_layers; i++) {
        const nn_attend_spec spec = cross_spec(c, io, i);
        by_scope_push(g, "decoder.block.%d.layer.1.EncDecAttention", i);
        nn_attend_keep(g, io->memory, &spec);
        by_scope_pop(g);
    }
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const t5_config *c = config;
    const int64_t shape[2] = {c->vocab, c->width};
    const by_init init = {BY_INIT_NORMAL, c->factor};
    by_tensor *table = by_param(g, "shared.weight", 2, shape, init);
    if (io->part != BY_PART_DECODER)
        io->memory = encode(g, c, io, table);
    if (io->part == BY_PART_ENCODER && io->cache)
        keep_memory(g, c, io);
    by_tensor *head = c->tied ? table : by_param(g, "lm_head.weight", 2, shape, init);
    if (io->part == BY_PART_ENCODER)
        return;
    io->features = decode(g, c, io, table);
    by_lm_head(g, io, c->scaled ? by_scale(g, io->features, 1 / sqrt((double)c->width)) : io->features, head,
               NULL);
}

/* ---- configuration --------------------------------------------------------------------------- */

static by_status check(const void *config)
{
    const t5_config *c = config;
    return c->buckets % 4 == 0 && c->far > c->buckets / 2
               ? BY_OK
               : by_fail(BY_ERR_FORMAT,
                         "relative_attention_num_buckets (%d) must be a multiple of 4, and "
                         "relative_attention_max_distance (%d) more than half of it",
                         c->buckets, c->far);
}

/* The scaling of 1.0 goes with the tied head, unless the file says so itself. */
static by_status read(const cJSON *json, void *config)
{
    t5_config *c = config;
    const char *kind;
    BY_TRY(by_json_bool(json, "scale_decoder_outputs", c->tied, &c->scaled));
    if (c->decoder_layers == 0)
        c->decoder_layers = c->encoder_layers;
    BY_TRY(by_json_string(json, "feed_forward_proj", "relu", &kind));
    c->gated = strncmp(kind, "gated-", 6) == 0;
    if (strcmp(kind, "gated-gelu") == 0) /* always meant this one */
        c->act = BY_GELU_TANH;
    else if (!by_act_parse(kind + (c->gated ? 6 : 0), &c->act))
        return by_fail(BY_ERR_UNSUPPORTED, "feed_forward_proj \"%s\" is not known", kind);
    return BY_OK;
}

static bool write(cJSON *json, const void *config)
{
    const t5_config *c = config;
    if (cJSON_HasObjectItem(json, "feed_forward_proj"))
        return true;
    return by_json_put(json, "feed_forward_proj", cJSON_CreateString(c->gated ? "gated-gelu" : "relu")) &&
           by_json_put(json, "scale_decoder_outputs", cJSON_CreateBool(c->scaled));
}

static void adjust(const char *preset, void *config)
{
    t5_config *c = config;
    const bool newer = strncmp(preset, "v1.1-", 5) == 0;
    c->act = newer ? BY_GELU_TANH : BY_RELU;
    c->gated = newer;
    c->scaled = c->tied = !newer;
}

static const char *const ignored[] = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                      "EncDecAttention.relative_attention_bias.weight", NULL};

const by_arch by_arch_t5 = {
    .family = "t5",
    .title = "T5 (Raffel et al. 2020)",
    .classes = {[BY_TASK_SEQ2SEQ] = "T5ForConditionalGeneration", [BY_TASK_FEATURES] = "T5Model"},
    .pretrained = BY_TASK_SEQ2SEQ,
    .objective = "spans",
    .prefix = "",
    .head = "lm_head.weight",
    .table = "shared.weight",
    .ignored = ignored,
    .fields = fields,
    .n_fields = BY_COUNT(fields),
    .config_size = sizeof(t5_config),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .unlimited = true,
    .labels_in_place = true,
    .build = build,
};
