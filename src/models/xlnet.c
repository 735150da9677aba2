/* xlnet.c - Yang et al. 2019, "XLNet: Generalized Autoregressive Pretraining for Language Understanding".
 * Post-norm blocks over relative positions, relative segments and a memory (Dai et al. 2019). In pretraining,
 * tokens are predicted in a random order by two streams with the same weights: the content stream h sees a
 * token and those before it in the order; the query stream g sees only those before it and the position. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "graph/graph.h"
#include "models/xlnet.h"
#include "nn/stream_state.h"

#define INT(member, key, fallback, low, high, role) \
    ARCH_INT_FIELD(arch_xlnet_config, member, key, fallback, low, high, role)
#define FLOAT(member, key, fallback, high, role) \
    ARCH_FLOAT_FIELD(arch_xlnet_config, member, key, fallback, 0, high, role)

static const arch_field fields[] = {
    INT(vocab, "vocab_size", 32000, 1, 1 << 24, ARCH_ROLE_VOCAB),
    INT(context, "seq_len", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    INT(width, "d_model", 1024, 1, 1 << 20, ARCH_ROLE_WIDTH),
    INT(layers, "n_layer", 24, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    INT(heads, "n_head", 16, 1, 4096, ARCH_ROLE_HEADS),
    INT(inner, "d_inner", 4096, 1, 1 << 22, ARCH_ROLE_INNER),
    INT(memory, "mem_len", 512, 0, 1 << 24, ARCH_ROLE_MEMORY),
    INT(reuse, "reuse_len", 0, 1, 1 << 24, ARCH_ROLE_REUSE), /* null: 0 */
    INT(clamp, "clamp_len", -1, -1, 1 << 24, ARCH_ROLE_NONE),
    INT(starts, "start_n_top", 5, 1, 1 << 16, ARCH_ROLE_NONE),
    INT(ends, "end_n_top", 5, 1, 1 << 16, ARCH_ROLE_NONE),
    INT(pad, "pad_token_id", 5, 0, 1 << 24, ARCH_ROLE_PAD),
    ARCH_ACT_FIELD(arch_xlnet_config, act, "ff_activation", BY_GELU),
    FLOAT(drop, "dropout", 0.1, 0.999, ARCH_ROLE_DROPOUT),
    FLOAT(last_drop, "summary_last_dropout", 0.1, 0.999, ARCH_ROLE_DROPOUT),
    FLOAT(eps, "layer_norm_eps", 1e-12, 1, ARCH_ROLE_NONE),
    FLOAT(std, "initializer_range", 0.02, 10, ARCH_ROLE_INIT),
    ARCH_BOOL_FIELD(arch_xlnet_config, two_ways, "bi_data", false),
    ARCH_BOOL_FIELD(arch_xlnet_config, same_length, "same_length", false),
    ARCH_BOOL_FIELD(arch_xlnet_config, summary_projects, "summary_use_proj", true),
    ARCH_TIED_FIELD(arch_xlnet_config),
};

static const arch_alias aliases[] = {{"n_token", "vocab_size"},
                                     {"hidden_size", "d_model"},
                                     {"num_attention_heads", "n_head"},
                                     {"num_hidden_layers", "n_layer"},
                                     {.key = NULL}};

static const arch_key keys[] = {
    {.key = "attn_type"}, /* read below, */
    {.key = "d_head"},         {.key = "summary_type"}, {.key = "summary_activation"},
    {.key = "untie_r"},       /* in files, every layer has its own biases */
    {.key = "use_mems_eval"}, /* here the batch determines whether a text continues */
    {.key = "use_mems_train"}, {.key = NULL},
};

static const by_input_info inputs[] = {
    {"tokens", BY_I32, "BT", BY_PART_WHOLE, true},
    {"segments", BY_I32, "BT", BY_PART_WHOLE, false},
    {"positions", BY_I32, "BT", BY_PART_WHOLE, false}, /* never read */
    {"mask", BY_I32, "BT", BY_PART_WHOLE, false},
    {"pick", BY_I32, "N", BY_PART_WHOLE, false},
    {"order", BY_I32, "BT", BY_PART_WHOLE, false}, /* prediction order: pick then gives the targets */
    {"reversed", BY_I32, "B", BY_PART_WHOLE, false},
    {"perm_mask", BY_F32, "BTT", BY_PART_WHOLE, false}, /* the same in the reference's form */
    {"target_mapping", BY_F32, "BNT", BY_PART_WHOLE, false},
    {"p_mask", BY_I32, "BT", BY_PART_WHOLE, false}, /* these of answers by a beam */
    {"cls_index", BY_I32, "B", BY_PART_WHOLE, false},
    {"is_impossible", BY_I32, "B", BY_PART_WHOLE, false},
    {0}};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 128},
    {"small", 4, 4, 256, 256},
    {"base", 12, 12, 768, 512},
    {"large", 24, 16, 1024, 512},
};

static void adjust(const char *preset, void *config)
{
    arch_xlnet_config *c = config;
    (void)preset;
    c->inner = 4 * c->width;
    /* as in the paper: a memory of 384, rows of 512, of which half is reused */
    c->memory = c->context * 3 / 4;
    c->reuse = c->context / 2;
    c->beam = true;
    c->summary = ARCH_SUMMARY_LAST;
    c->summary_act = BY_TANH;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A parameter (n, H, D). */
static by_tensor *param_of(by_graph *g, const arch_xlnet_config *c, const char *name, int64_t n)
{
    const int64_t shape[3] = {n, c->heads, c->width / c->heads};
    return by_param(g, name, 3, shape, (by_init){BY_INIT_NORMAL, c->std});
}

static by_tensor *bias_of(by_graph *g, const arch_xlnet_config *c, const char *name) /* (H, D) */
{
    return by_param(g, name, 2, (int64_t[]){c->heads, c->width / c->heads},
                    (by_init){BY_INIT_NORMAL, c->std});
}

/* x (..., C) times a parameter (C, H, D) -> (..., H*D). */
static by_tensor *project(by_graph *g, const arch_xlnet_config *c, const char *name, by_tensor *x)
{
    by_tensor *w =
        by_reshape(g, param_of(g, c, name, c->width), 2, (int64_t[]){c->width, c->width}); /* (C, H*D) */
    return by_linear(g, x, w, NULL, &(by_linear_spec){.w_is_kn = true});
}

/* Shared by the streams of a layer. */
typedef struct layer {
    const arch_xlnet_config *c;
    const arch_xlnet_sight *s;
    by_tensor *keys, *values;                      /* (B, S, H*D) */
    by_tensor *distances;                          /* (L, H*D) or (B, L, H*D) */
    by_tensor *content, *position, *segment, *kin; /* (H, D), the last (2, H, D) */
} layer;

/* NULL when memory is out. */
static const layer *open_layer(by_graph *g, const arch_xlnet_config *c, const arch_xlnet_sight *s,
                               by_tensor *all)
{
    layer *l = base_arena_alloc(g->arena, sizeof *l);
    if (!l)
        return NULL;
    *l = (layer){.c = c, .s = s, .keys = project(g, c, "k", all), .values = project(g, c, "v", all)};
    l->distances = project(g, c, "r", s->distances);
    if (s->turns) { /* (2, L * H*D) by the direction of each row */
        const int64_t rows = by_dim(l->distances, 0) / 2;
        by_tensor *both = by_reshape(g, l->distances, 2, (int64_t[]){2, rows * c->width});
        l->distances = by_reshape(g, by_gather(g, both, s->turns), 3, (int64_t[]){-1, rows, c->width});
    }
    l->content = bias_of(g, c, "r_w_bias");
    l->position = bias_of(g, c, "r_r_bias");
    l->segment = bias_of(g, c, "r_s_bias");
    l->kin = param_of(g, c, "seg_embed", 2);
    return l;
}

/* q (B, n, H*D) -> the segment term, (B, H, n, m): one value for equal segments, another for different
 * ones. */
static by_tensor *segment_term(by_graph *g, const layer *l, by_tensor *differs, by_tensor *q)
{
    const int64_t b = by_dim(q, 0), t = by_dim(q, 1), h = l->c->heads, d = l->c->width / h;
    by_tensor *seeks = by_add(g, q, by_reshape(g, l->segment, 1, (int64_t[]){-1}));
    seeks = by_scale(g, seeks, 1 / sqrt((double)d));
    seeks = by_permute_axes(g, by_reshape(g, seeks, 4, (int64_t[]){b, t, h, d}), (int[]){0, 2, 1, 3});
    by_tensor *kin = by_permute_axes(g, l->kin, (int[]){1, 0, 2}); /* (H, 2, D) */
    by_tensor *both = by_matmul(g, seeks, kin, false, true);       /* (B, H, n, 2) */
    return by_where(g, differs, by_slice(g, both, 3, 1, 1), by_slice(g, both, 3, 0, 1));
}

static void pair_segments(by_graph *g, const layer *l, const nn_chunk *at, by_tensor *q,
                          by_attention_spec *op)
{
    const arch_xlnet_sight *s = l->s;
    if (s->segments)
        op->bias = segment_term(g, l, s->differs ? s->differs : arch_xlnet_differs(g, s, at), q);
}

static void pair_content(by_graph *g, const void *user, const nn_chunk *at, by_tensor *q,
                         by_attention_spec *op)
{
    const layer *l = user;
    if (arch_xlnet_sees_pairs(l->s))
        op->pair_mask = l->s->content ? l->s->content : arch_xlnet_seen(g, l->s, at, true);
    pair_segments(g, l, at, q, op);
}

static void pair_query(by_graph *g, const void *user, const nn_chunk *at, by_tensor *q, by_attention_spec *op)
{
    const layer *l = user;
    if (arch_xlnet_sees_pairs(l->s))
        op->pair_mask = l->s->query ? l->s->query : arch_xlnet_seen(g, l->s, at, false);
    pair_segments(g, l, at, q, op);
}

/* q (B, T, H*D) of h (content) or g -> (B, T, H*D). Every token of h sees itself, which must be set
 * explicitly in chunks. */
static by_tensor *attend(by_graph *g, const layer *l, by_tensor *q, bool content, by_tensor **weights)
{
    const arch_xlnet_sight *s = l->s;
    return nn_relative_attention(
        g, q, l->keys, l->values,
        &(nn_relative_spec){.op = {.heads = l->c->heads,
                                   .mask = s->mask,
                                   .pattern = s->pattern,
                                   .dropout = l->c->drop,
                                   .key_mask = arch_xlnet_sees_pairs(s) ? NULL : s->held,
                                   .empty_zero = content ? s->chunk < s->length : s->order != NULL,
                                   .weights = weights},
                            .content = l->content,
                            .position = l->position,
                            .distances = l->distances,
                            .zero = s->zero,
                            .chunk = s->chunk,
                            .pairs = !arch_xlnet_sees_pairs(s) && !s->segments ? NULL
                                     : content                                 ? pair_content
                                                                               : pair_query,
                            .user = l});
}

/* Scatters queries of the targets, (N, H*D) or (B, N, H*D), to their positions: (B, T, H*D). */
static by_tensor *place(by_graph *g, const by_model_io *io, by_tensor *q)
{
    by_tensor *map = by_io_input(io, "target_mapping"), *tokens = by_io_input(io, "tokens");
    if (map)
        return by_matmul(g, by_cast(g, map, by_type(q)), q, true, false);
    const int64_t b = by_dim(tokens, 0), t = by_dim(tokens, 1);
    by_tensor *rows = by_scatter_add(g, q, by_io_input(io, "pick"), b * t);
    return by_reshape(g, rows, 3, (int64_t[]){b, t, by_dim(q, -1)});
}

/* The inverse: gathers the positions of the targets. */
static by_tensor *collect(by_graph *g, const by_model_io *io, by_tensor *y)
{
    by_tensor *map = by_io_input(io, "target_mapping");
    return map ? by_matmul(g, by_cast(g, map, by_type(y)), y, false, false)
               : nn_pick(g, y, by_io_input(io, "pick"));
}

/* After attention: projection, sum and norm, then the feed-forward block. */
static by_tensor *finish(by_graph *g, const arch_xlnet_config *c, by_tensor *x, by_tensor *y)
{
    by_scope_push(g, "rel_attn");
    by_tensor *o = by_reshape(g, param_of(g, c, "o", c->width), 2, (int64_t[]){c->width, c->width});
    y = by_dropout(g, by_linear(g, y, o, NULL, NULL), c->drop);
    x = nn_layernorm(g, "layer_norm", by_add(g, x, y), c->eps);
    by_scope_pop(g);
    y = nn_mlp(g, "ff", x,
               &(nn_mlp_spec){.in = "layer_1",
                              .out = "layer_2",
                              .inner = c->inner,
                              .act = c->act,
                              .dropout = c->drop,
                              .std = c->std,
                              .out_std = c->std});
    return nn_layernorm(g, "ff.layer_norm", by_add(g, x, by_dropout(g, y, c->drop)), c->eps);
}

/* The memory after the segment, in the layout of the reference: (M, B, C). */
static void keep_memory(by_graph *g, const arch_xlnet_config *c, by_model_io *io, by_tensor *all,
                        int64_t memory)
{
    if (!io->want_hidden)
        return;
    const int64_t t = by_dim(all, 1) - memory;
    const int64_t length = memory + (c->reuse > 0 ? BY_MIN(c->reuse, t) : t);
    const int64_t kept = c->memory > 0 ? BY_MIN(length, c->memory) : length;
    by_tensor *last = by_slice(g, all, 1, length - kept, kept);
    by_io_return(io, "mems", by_output(g, NULL, by_permute_axes(g, last, (int[]){1, 0, 2})));
}

typedef struct streams {
    by_tensor *h, *g; /* (B, T, C); (N, C) or (B, N, C), or NULL */
} streams;

static streams block(by_graph *g, const arch_xlnet_config *c, by_model_io *io, const arch_xlnet_sight *s,
                     streams x, int i)
{
    char name[32];
    streams y = {0};
    base_format(name, sizeof name, "mems.%d", i);
    by_block_push(g, "layer.%d", i);
    by_tensor *all = nn_memory_rows_first(g, io->stream, name, x.h, c->memory, c->reuse); /* (B, S, C) */
    keep_memory(g, c, io, all, s->memory);
    by_scope_push(g, "rel_attn");
    const layer *l = open_layer(g, c, s, all);
    if (!l) {
        gr_poison(g);
        return x;
    }
    y.h = attend(g, l, project(g, c, "q", x.h), true, arch_weights_slot(io));
    if (x.g)
        y.g = collect(g, io, attend(g, l, place(g, io, project(g, c, "q", x.g)), false, NULL));
    by_scope_pop(g);
    x.h = finish(g, c, x.h, y.h);
    if (x.g)
        x.g = finish(g, c, x.g, y.g);
    by_block_pop(g);
    return x;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* The query stream begins with the same vector for every target. */
static by_tensor *begin_queries(by_graph *g, const arch_xlnet_config *c, const by_model_io *io)
{
    const int64_t shape[3] = {1, 1, c->width};
    const by_init init = {BY_INIT_NORMAL, c->std};
    if (io->task != BY_TASK_LM && io->task != BY_TASK_FEATURES) {
        by_param_fixed(g, "mask_emb", 3, shape, init);
        return NULL;
    }
    by_tensor *map = by_io_input(io, "target_mapping"), *pick = by_io_input(io, "pick");
    by_tensor *mask = by_param(g, "mask_emb", 3, shape, init);
    const bool listed = by_io_input(io, "order") && pick;
    if (!map && !listed)
        return NULL;
    const int64_t rank = map ? 3 : 2, n = map ? by_dim(map, 0) : by_dim(pick, 0);
    by_tensor *zeros =
        by_fill(g, by_type(mask), (int)rank, (int64_t[]){n, map ? by_dim(map, 1) : c->width, c->width}, 0);
    return by_dropout(g, by_add(g, zeros, by_reshape(g, mask, 1, (int64_t[]){-1})), c->drop);
}

static void keep(by_graph *g, by_model_io *io, streams x)
{
    arch_keep_hidden(g, io, x.h);
    if (x.g)
        arch_keep_hidden(g, io, x.g);
}

static by_tensor *body(by_graph *g, const arch_xlnet_config *c, by_model_io *io, bool *two)
{
    by_tensor *e = nn_embedding(g, "word_embedding", by_io_input(io, "tokens"), c->vocab, c->width, c->std);
    streams x = {by_dropout(g, e, c->drop), begin_queries(g, c, io)};
    arch_xlnet_sight *s = base_arena_alloc(g->arena, sizeof *s);
    if (!s)
        return gr_poison(g);
    arch_xlnet_look(g, c, io, by_type(e), s);
    keep(g, io, x);
    for (int i = 0; i < c->layers; i++) {
        x = block(g, c, io, s, x, i);
        keep(g, io, x);
    }
    *two = x.g != NULL;
    return by_dropout(g, x.g ? x.g : x.h, c->drop);
}

static void put_summary(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const arch_xlnet_config *c = top->config;
    by_tensor *x = arch_summarize(g, c->summary, by_io_output(io, "features")); /* (B, C) */
    if (c->summary_projects)
        x = nn_linear(g, "sequence_summary.summary", x,
                      &(nn_linear_spec){.out = c->width, .act = c->summary_act, .std = c->std});
    else
        x = by_activation(g, x, c->summary_act);
    arch_label_head(g, io, row->name, by_dropout(g, x, c->last_drop), c->std);
}

static arch_beam_spec beam_of(const arch_xlnet_config *c)
{
    return (arch_beam_spec){.starts = c->starts, .ends = c->ends, .eps = c->eps, .std = c->std};
}

static void put_answer(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const arch_xlnet_config *c = top->config;
    const arch_beam_spec beam = beam_of(c);
    if (c->beam)
        arch_beam_head(g, io, &beam);
    else
        arch_put_answer(g, io, top, row);
}

/* With a beam, the ends depend on the predicted starts. */
static by_tensor *loss(by_graph *g, const void *config, const by_model_io *io, by_tensor *targets)
{
    const arch_xlnet_config *c = config;
    const arch_beam_spec beam = beam_of(c);
    by_tensor *second = by_io_input(io, "second_targets");
    return io->task == BY_TASK_ANSWER && c->beam && second ? arch_beam_loss(g, io, targets, second, &beam)
                                                           : NULL;
}

static const arch_head_row heads[] = {
    {BY_TASK_CLASSIFY, put_summary, "logits_proj", 0},
    {BY_TASK_CHOICE, put_summary, "logits_proj", 0},
    {BY_TASK_TAG, arch_put_tag, "classifier", 0},
    {BY_TASK_ANSWER, put_answer, "qa_outputs", 0},
    {.put = NULL},
};

static void put_tokens(by_graph *g, by_model_io *io, const arch_xlnet_config *c, by_tensor *table, bool two)
{
    const int64_t vocab = c->vocab;
    by_tensor *weights = arch_head_weights(g, c->head, "lm_loss.weight", table, c->std);
    by_tensor *bias = by_param(g, "lm_loss.bias", 1, &vocab, (by_init){BY_INIT_ZERO, 0});
    by_tensor *x = by_io_output(io, "features");
    if (two) /* these are the targets already */
        by_io_return(io, "logits", by_linear(g, x, weights, bias, NULL));
    else
        arch_lm_head(g, io, x, weights, bias);
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const arch_xlnet_config *c = config;
    bool two = false;
    by_scope_push(g, "transformer");
    by_io_return(io, "features", body(g, c, io, &two));
    by_tensor *table = by_param(g, "word_embedding.weight", 2, (int64_t[]){c->vocab, c->width},
                                (by_init){BY_INIT_NORMAL, c->std});
    by_scope_pop(g);
    if (io->task == BY_TASK_LM)
        put_tokens(g, io, c, table, two);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .table = table, .head = c->head, .std = c->std});
}

static by_status check(const void *config)
{
    const arch_xlnet_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static by_status read(const cJSON *json, void *config)
{
    arch_xlnet_config *c = config;
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(json, "mem_len");
    const char *type;
    int64_t dim;
    if (cJSON_IsNull(memory))
        c->memory = 0;
    const cJSON *name = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, "architectures"), 0);
    c->beam = !cJSON_IsString(name) || strcmp(name->valuestring, "XLNetForQuestionAnsweringSimple") != 0;
    BY_TRY(base_json_string(json, "attn_type", "bi", &type));
    c->causal = strcmp(type, "uni") == 0;
    if (!c->causal && strcmp(type, "bi") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: unknown attn_type \"%s\"", type);
    BY_TRY(base_json_int(json, "d_head", c->width / BY_MAX(c->heads, 1), 1, 1 << 20, &dim));
    if (dim * c->heads != c->width)
        return base_fail(BY_ERR_FORMAT, "config.json: d_head %d is not d_model / n_head", (int)dim);
    return arch_summary_read(json, "last", "tanh", &c->summary, &c->summary_act);
}

static bool write(cJSON *json, const void *config)
{
    const arch_xlnet_config *c = config;
    return base_json_put(json, "d_head", cJSON_CreateNumber(c->width / c->heads)) &&
           base_json_put(json, "attn_type", cJSON_CreateString(c->causal ? "uni" : "bi"));
}

const arch_family arch_xlnet = {
    .family = "xlnet",
    .title = "XLNet (Yang et al. 2019)",
    .classes = {[BY_TASK_LM] = "XLNetLMHeadModel",
                [BY_TASK_CLASSIFY] = "XLNetForSequenceClassification",
                [BY_TASK_TAG] = "XLNetForTokenClassification",
                [BY_TASK_ANSWER] = "XLNetForQuestionAnsweringSimple",
                [BY_TASK_CHOICE] = "XLNetForMultipleChoice",
                [BY_TASK_FEATURES] = "XLNetModel"},
    .other = {"XLNetForQuestionAnswering", BY_TASK_ANSWER, offsetof(arch_xlnet_config, beam)},
    .pretrained = BY_TASK_LM,
    .objective = "plm",
    .prefix = "transformer.",
    .head = "lm_loss.weight",
    .table = "transformer.word_embedding.weight",
    .head_offset = offsetof(arch_xlnet_config, head),
    .aliases = aliases,
    .keys = keys,
    .tokens = {2, 5, -1},
    .read = read,
    .write = write,
    .adjust = adjust,
    ARCH_TABLES(arch_xlnet_config),
    .check = check,
    .unlimited = true,
    .labels_in_place = true,
    .pads_left = true,
    .rereads = true,
    .segments = 3,
    .inputs = inputs,
    .build = build,
    .loss = loss,
};
