/* reformer.c - Kitaev, Kaiser and Levskaya 2020, "Reformer: The Efficient Transformer". Reversible layers
 * with local attention, within chunks of the text, or LSH attention, among rows of one hash bucket; a decoder
 * with a causal mask, or an encoder. The output concatenates both streams, twice the width. */
#include <stdlib.h>

#include "base/json.h"
#include "graph/graph.h"
#include "models/reformer.h"

typedef arch_reformer_config config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(config, vocab, "vocab_size", 320, 1, 1 << 24, ARCH_ROLE_VOCAB),
    ARCH_INT_FIELD(config, context, "max_position_embeddings", 4096, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_INT_FIELD(config, width, "hidden_size", 256, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(config, layers, "num_hidden_layers", 6, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(config, heads, "num_attention_heads", 12, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_INT_FIELD(config, head_dim, "attention_head_size", 64, 1, 1 << 16, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, inner, "feed_forward_size", 512, 1, 1 << 22, ARCH_ROLE_INNER),
    ARCH_INT_FIELD(config, lsh_chunk, "lsh_attn_chunk_length", 64, 1, 1 << 16, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, lsh_before, "lsh_num_chunks_before", 1, 0, 64, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, lsh_after, "lsh_num_chunks_after", 0, 0, 64, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, local_chunk, "local_attn_chunk_length", 64, 1, 1 << 16, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, local_before, "local_num_chunks_before", 1, 0, 64, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, local_after, "local_num_chunks_after", 0, 0, 64, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(config, hashes, "num_hashes", 1, 1, 64, ARCH_ROLE_HASHES),
    ARCH_INT_FIELD(config, ff_chunk, "chunk_size_feed_forward", 0, 0, 1 << 24, ARCH_ROLE_NONE),
    ARCH_ACT_FIELD(config, act, "hidden_act", BY_RELU),
    ARCH_FLOAT_FIELD(config, drop, "hidden_dropout_prob", 0.05, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(config, lsh_drop, "lsh_attention_probs_dropout_prob", 0, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(config, local_drop, "local_attention_probs_dropout_prob", 0.05, 0, 0.999,
                     ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(config, label_drop, "classifier_dropout", -1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_FLOAT_FIELD(config, eps, "layer_norm_eps", 1e-12, 0, 1, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(config, std, "initializer_range", 0.02, 0, 10, ARCH_ROLE_INIT),
    ARCH_FLOAT_FIELD(config, axial_std, "axial_norm_std", 1, 0, 10, ARCH_ROLE_NONE),
    ARCH_BOOL_FIELD(config, axial, "axial_pos_embds", true),
    {"is_decoder", ARCH_FIELD_BOOL, offsetof(config, causal), false, 0, 1, ARCH_ROLE_CAUSAL},
    {"tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(config, head.tied), false, 0, 1, ARCH_ROLE_TIED},
};

static const arch_key keys[] = {
    {.key = "attn_layers"}, /* read below */
    {.key = "axial_pos_shape"},
    {.key = "axial_pos_embds_dim"},
    {.key = "num_buckets"},
    {.key = "lm_head_bias"},       /* not of the reference: see read_bias */
    {.key = "chunk_size_lm_head"}, /* the same computation in parts */
    {.key = "hash_seed"},          /* a different generator; here rotations depend on the seed of the run */
    {.key = NULL},
};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 256},
    {"small", 6, 4, 256, 4096},
    {"base", 12, 8, 1024, 65536},
    {"duplication", 1, 4, 256, 1024}, /* the task of section 5: one LSH layer */
};

/* ---- configuration --------------------------------------------------------------------------- */

/* A list of `least` to `count` numbers; absent or null: empty. */
static by_status read_list(const cJSON *json, const char *key, int least, int most, int *out, int *count)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key), *at;
    *count = 0;
    if (!list || cJSON_IsNull(list))
        return BY_OK;
    const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : -1;
    if (n < least || n > most)
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: %s must be a list of %d to %d numbers", key, least,
                         most);
    cJSON_ArrayForEach(at, list)
    {
        if (!cJSON_IsNumber(at) || at->valuedouble != at->valueint || at->valueint < 1)
            return base_fail(BY_ERR_FORMAT, "config.json: %s must hold positive whole numbers", key);
        out[(*count)++] = at->valueint;
    }
    return BY_OK;
}

static by_status read_layers(const cJSON *json, config *c)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "attn_layers"), *at;
    for (int i = 0; i < BY_MAX_LAYERS; i++)
        c->lsh[i] = i % 2;
    if (!list || cJSON_IsNull(list)) {
        c->layers = 6;
        return BY_OK;
    }
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 || cJSON_GetArraySize(list) > BY_MAX_LAYERS)
        return base_fail(BY_ERR_FORMAT, "config.json: attn_layers must be a list of 1 to %d layers",
                         BY_MAX_LAYERS);
    c->layers = 0;
    cJSON_ArrayForEach(at, list)
    {
        const char *kind = cJSON_IsString(at) ? at->valuestring : "";
        if (strcmp(kind, "lsh") != 0 && strcmp(kind, "local") != 0)
            return base_fail(BY_ERR_UNSUPPORTED,
                             "config.json: attn_layers has \"%s\"; layers are \"lsh\" or \"local\"", kind);
        c->lsh[c->layers++] = strcmp(kind, "lsh") == 0;
    }
    return BY_OK;
}

/* Versions of the reference before 5 add the bias of the head; later versions store it but ignore it. A new
 * model has a zero bias, so that all versions agree. */
static by_status read_bias(const cJSON *json, config *c)
{
    const char *version;
    BY_TRY(base_json_string(json, "transformers_version", "4", &version));
    return base_json_bool(json, "lm_head_bias", strtol(version, NULL, 10) < 5, &c->head_bias);
}

static by_status read(const cJSON *json, void *into)
{
    config *c = into;
    int count;
    BY_TRY(read_bias(json, c));
    BY_TRY(read_layers(json, c));
    c->axial_shape[0] = c->axial_shape[1] = 64;
    c->axial_dim[0] = 64;
    c->axial_dim[1] = 192;
    if (!c->axial) {
        BY_TRY(read_list(json, "axial_pos_shape", 0, 16, (int[16]){0}, &count));
    } else {
        BY_TRY(read_list(json, "axial_pos_shape", 2, 2, c->axial_shape, &count));
        BY_TRY(read_list(json, "axial_pos_embds_dim", 2, 2, c->axial_dim, &count));
    }
    const cJSON *buckets = cJSON_GetObjectItemCaseSensitive(json, "num_buckets");
    if (!cJSON_IsNumber(buckets))
        return read_list(json, "num_buckets", 1, BY_MAX_FACTORS, c->factors, &c->n_factors);
    c->n_factors = 1;
    c->factors[0] = buckets->valueint;
    return BY_OK;
}

static bool write_axial(cJSON *json, const config *c)
{
    return base_json_put(json, "axial_pos_shape", cJSON_CreateIntArray(c->axial_shape, 2)) &&
           base_json_put(json, "axial_pos_embds_dim", cJSON_CreateIntArray(c->axial_dim, 2));
}

static bool write(cJSON *json, const void *from)
{
    const config *c = from;
    cJSON *layers = cJSON_CreateArray();
    for (int i = 0; layers && i < c->layers; i++)
        cJSON_AddItemToArray(layers, cJSON_CreateString(c->lsh[i] ? "lsh" : "local"));
    cJSON *buckets = c->n_factors == 0   ? cJSON_CreateNull()
                     : c->n_factors == 1 ? cJSON_CreateNumber(c->factors[0])
                                         : cJSON_CreateIntArray(c->factors, c->n_factors);
    return base_json_put(json, "lm_head_bias", cJSON_CreateBool(c->head_bias)) &&
           base_json_put(json, "attn_layers", layers) && base_json_put(json, "num_buckets", buckets) &&
           (!c->axial || write_axial(json, c));
}

static void adjust(const char *preset, void *into)
{
    config *c = into;
    const bool all = strcmp(preset, "duplication") == 0;
    for (int i = 0; i < BY_MAX_LAYERS; i++)
        c->lsh[i] = all || i % 2;
    c->head_dim = BY_MAX(c->width / c->heads, 1);
    c->lsh_chunk = c->local_chunk = c->context <= 512 ? 32 : 64;
    c->axial_shape[0] = 1;
    for (int i = 1; (int64_t)i * i <= c->context; i++)
        if (c->context % i == 0)
            c->axial_shape[0] = i;
    c->axial_shape[1] = c->context / c->axial_shape[0];
    c->axial_dim[0] = BY_MAX(c->width / 4, 1);
    c->axial_dim[1] = c->width - c->axial_dim[0];
    if (all) {
        c->axial = false;
        c->hashes = 4;
        c->inner = c->width;
    }
}

static by_status check(const void *from)
{
    const config *c = from;
    if (c->head.tied)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "tie_word_embeddings: the head reads both streams, %d elements, but embeddings have "
                         "%d; they cannot be tied",
                         2 * c->width, c->width);
    if (c->axial && (int64_t)c->axial_dim[0] + c->axial_dim[1] != c->width)
        return base_fail(BY_ERR_FORMAT, "axial_pos_embds_dim (%d and %d) must sum to hidden_size (%d)",
                         c->axial_dim[0], c->axial_dim[1], c->width);
    for (int i = 0; i < c->n_factors; i++)
        if (c->factors[i] < 2 || c->factors[i] % 2)
            return base_fail(BY_ERR_FORMAT, "num_buckets: %d is not an even number", c->factors[i]);
    if (c->causal && (c->lsh_after || c->local_after))
        return base_fail(BY_ERR_UNSUPPORTED, "a decoder sees no chunks after its own (num_chunks_after)");
    return BY_OK;
}

/* ---- embeddings ------------------------------------------------------------------------------ */

/* The rows of the axial table needed for `tokens` positions: (n, C), or (B, n, C) with dropout, which drops
 * whole columns of positions per text. */
static by_tensor *axial_table(by_graph *g, const config *c, int64_t batch, int64_t tokens)
{
    const int64_t columns = c->axial_shape[1], rows = (tokens + columns - 1) / columns;
    const int64_t shape[2][3] = {{c->axial_shape[0], 1, c->axial_dim[0]}, {1, columns, c->axial_dim[1]}};
    const by_init init = {BY_INIT_NORMAL, c->axial_std};
    by_tensor *part[2];
    for (int i = 0; i < 2; i++)
        part[i] = by_param(g, i ? "weights.1" : "weights.0", 3, shape[i], init);
    by_tensor *zeros = by_fill(g, by_type(part[0]), 3, (int64_t[]){rows, columns, 1}, 0);
    part[0] = by_add(g, by_slice(g, part[0], 0, 0, rows), zeros);
    part[1] = by_add(g, part[1], zeros);
    by_tensor *table = by_concat(g, part, 2, 2); /* (rows, columns, C) */
    by_tensor *ones = by_fill(g, by_type(table), 4, (int64_t[]){batch, 1, columns, 1}, 1);
    by_tensor *kept = by_dropout(g, ones, c->drop);
    if (kept == ones)
        return by_reshape(g, table, 2, (int64_t[]){rows * columns, c->width});
    return by_reshape(g, by_mul(g, table, kept), 3, (int64_t[]){batch, rows * columns, c->width});
}

static by_tensor *position_vectors(by_graph *g, const config *c,
                                   by_tensor *positions) /* (B, T) -> (B, T, C) */
{
    const int64_t tokens = by_dim(positions, 1), room = (int64_t)c->axial_shape[0] * c->axial_shape[1];
    if (!c->axial)
        return by_dropout(
            g, nn_embedding(g, "position_embeddings.embedding", positions, c->context, c->width, c->std),
            c->drop);
    if (tokens > room)
        return by_graph_fail(g, "%lld positions exceed the axial table of %d by %d (axial_pos_shape)",
                             (long long)tokens, c->axial_shape[0], c->axial_shape[1]);
    by_scope_push(g, "position_embeddings");
    by_tensor *table = axial_table(g, c, by_dim(positions, 0), tokens);
    by_scope_pop(g);
    return by_rank(table) == 3 ? by_take(g, table, positions) : by_gather(g, table, positions);
}

static by_tensor *embed(by_graph *g, const config *c, by_model_io *io) /* (B, T, C) */
{
    by_scope_push(g, "embeddings");
    by_tensor *x = by_dropout(
        g, nn_embedding(g, "word_embeddings", by_io_input(io, "tokens"), c->vocab, c->width, c->std),
        c->drop);
    x = by_add(g, x, position_vectors(g, c, by_io_input(io, "positions")));
    by_scope_pop(g);
    return x;
}

/* ---- body and heads -------------------------------------------------------------------------- */

static by_tensor *given_rotations(const by_model_io *io, const config *c, int layer)
{
    char name[32];
    int number = 0;
    for (int i = 0; i < layer; i++)
        number += c->lsh[i];
    base_format(name, sizeof name, "rotations.%d", number);
    return c->lsh[layer] ? by_io_input(io, name) : NULL;
}

static by_tensor *encode(by_graph *g, const config *c, by_model_io *io,
                         by_tensor *x) /* (B, T, C) -> (B, T, 2C) */
{
    const by_dtype type = by_type(x);
    by_tensor *streams[2];
    streams[0] = streams[1] = by_cast(g, x, gr_acc_type(type));
    by_scope_push(g, "encoder");
    for (int i = 0; i < c->layers && by_graph_status(g) == BY_OK; i++) {
        arch_reformer_layer *l = base_arena_alloc(g->arena, sizeof *l);
        if (!l)
            return gr_poison(g);
        *l = (arch_reformer_layer){.config = c,
                                   .index = i,
                                   .type = type,
                                   .length = arch_reformer_length(c, by_dim(x, 1)),
                                   .mask = by_io_input(io, "mask"),
                                   .rotations = given_rotations(io, c, i),
                                   .weights = arch_weights_slot(io)};
        arch_keep_hidden(g, io, streams[1]);
        arch_reformer_step(g, l, streams);
    }
    arch_keep_hidden(g, io, streams[1]);
    x = nn_layernorm(g, "layer_norm", by_cast(g, by_concat(g, streams, 2, 2), type), c->eps);
    by_scope_pop(g);
    return by_dropout(g, x, c->drop);
}

static void put_tokens(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const config *c = top->config;
    const int64_t vocab = c->vocab, shape[2] = {vocab, 2 * (int64_t)c->width};
    by_tensor *weights = by_param(g, row->name, 2, shape, (by_init){BY_INIT_NORMAL, c->std});
    const by_init zero = {BY_INIT_ZERO, 0};
    by_tensor *bias = c->head_bias ? by_param(g, "lm_head.bias", 1, &vocab, zero) : NULL;
    if (!bias)
        by_param_fixed(g, "lm_head.bias", 1, &vocab, zero); /* in files all the same */
    arch_lm_head(g, io, by_io_output(io, "features"), weights, bias);
}

/* tanh between two projections of the first position. */
static void put_label(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const config *c = top->config;
    by_tensor *h = arch_head_dropout(g, nn_first(g, by_io_output(io, "features")), top, row);
    h = nn_linear(g, "classifier.dense", h,
                  &(nn_linear_spec){.out = c->width, .act = BY_TANH, .std = c->std});
    arch_label_head(g, io, row->name, arch_head_dropout(g, h, top, row), c->std);
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, put_tokens, "lm_head.decoder.weight", 0},
    {BY_TASK_MLM, put_tokens, "lm_head.decoder.weight", 0},
    {BY_TASK_CLASSIFY, put_label, "classifier.out_proj", offsetof(config, label_drop)},
    {BY_TASK_ANSWER, arch_put_answer, "qa_outputs", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *from, by_model_io *io)
{
    const config *c = from;
    by_scope_push(g, "reformer");
    by_io_return(io, "features", encode(g, c, io, embed(g, c, io)));
    by_scope_pop(g);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .head = c->head, .std = c->std, .drop = c->drop});
}

static bool is_causal(const void *from)
{
    return ((const config *)from)->causal;
}

/* ---- the record ------------------------------------------------------------------------------ */

#define ROTATIONS(i)                                      \
    {                                                     \
        "rotations." #i, BY_F32, "", BY_PART_WHOLE, false \
    }
static const by_input_info inputs[] = {
    {"tokens", BY_I32, "BT", BY_PART_WHOLE, true},
    {"positions", BY_I32, "BT", BY_PART_WHOLE, false},
    {"mask", BY_I32, "BT", BY_PART_WHOLE, false},
    {"pick", BY_I32, "N", BY_PART_WHOLE, false},
    ROTATIONS(0), /* rotations of LSH layers, (heads, head width, rounds, columns) */
    ROTATIONS(1),
    ROTATIONS(2),
    ROTATIONS(3),
    ROTATIONS(4),
    ROTATIONS(5),
    {0},
};

static const arch_alias copies[] = {{"lm_head.decoder.bias", "lm_head.bias"}, {.key = NULL}};

const arch_family arch_reformer = {
    .family = "reformer",
    .title = "Reformer (Kitaev et al. 2020)",
    .classes = {[BY_TASK_LM] = "ReformerModelWithLMHead",
                [BY_TASK_MLM] = "ReformerForMaskedLM",
                [BY_TASK_CLASSIFY] = "ReformerForSequenceClassification",
                [BY_TASK_ANSWER] = "ReformerForQuestionAnswering",
                [BY_TASK_FEATURES] = "ReformerModel"},
    .pretrained = BY_TASK_MLM, /* is_decoder is false by default */
    .objective = "lm",
    .prefix = "reformer.",
    .head = "lm_head.decoder.weight",
    .table = "reformer.embeddings.word_embeddings.weight",
    .head_offset = offsetof(config, head),
    .copies = copies,
    .keys = keys,
    .tokens = {2, 0, -1},
    ARCH_TABLES(config),
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .is_causal = is_causal,
    .no_cache = true,
    .inputs = inputs,
    .adapted = "query,query_key,value",
    .build = build,
};
