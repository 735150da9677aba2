/* transfo_xl.c - Dai et al. 2019, "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context".
 * Every layer also attends to a memory of its inputs from the previous segment, without a gradient. Relative
 * attention, norms after the sub-layers, optionally adaptive embedding and softmax. */
#include "base/base.h"
#include "base/json.h"
#include "models/models.h"
#include "nn/stream_state.h"

typedef struct transfo_xl_config {
    arch_adaptive words; /* first: arch_adaptive_derived */
    int context, width, layers, heads, head_dim, inner, memory;
    int clamp; /* the largest distance with a separate encoding; 0 or less: no limit */
    float eps, drop, attn_drop;
    bool pre_norm, same_length, untied_biases, share_projections;
    arch_head head;
} transfo_xl_config;

#define INT(member, key, fallback, low, high, role) \
    ARCH_INT_FIELD(transfo_xl_config, member, key, fallback, low, high, role)
#define FLOAT(member, key, fallback, high, role) \
    ARCH_FLOAT_FIELD(transfo_xl_config, member, key, fallback, 0, high, role)

static const arch_field fields[] = {
    INT(words.vocab, "vocab_size", 267735, 1, 1 << 24, ARCH_ROLE_VOCAB),
    INT(context, "tgt_len", 128, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    INT(memory, "mem_len", 1600, 0, 1 << 24, ARCH_ROLE_MEMORY),
    INT(width, "d_model", 1024, 1, 1 << 20, ARCH_ROLE_WIDTH),
    INT(words.embed, "d_embed", 1024, 1, 1 << 20, ARCH_ROLE_NONE),
    INT(layers, "n_layer", 18, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    INT(heads, "n_head", 16, 1, 4096, ARCH_ROLE_HEADS),
    INT(head_dim, "d_head", 64, 1, 1 << 16, ARCH_ROLE_NONE),
    INT(inner, "d_inner", 4096, 1, 1 << 22, ARCH_ROLE_INNER),
    INT(words.div, "div_val", 4, 1, 1 << 16, ARCH_ROLE_NONE),
    INT(clamp, "clamp_len", 1000, -1, 1 << 24, ARCH_ROLE_NONE),
    FLOAT(drop, "dropout", 0.1, 0.999, ARCH_ROLE_DROPOUT),
    FLOAT(attn_drop, "dropatt", 0, 0.999, ARCH_ROLE_DROPOUT),
    FLOAT(eps, "layer_norm_epsilon", 1e-5, 1, ARCH_ROLE_NONE),
    FLOAT(words.std, "init_std", 0.02, 10, ARCH_ROLE_INIT),
    FLOAT(words.projection_std, "proj_init_std", 0.01, 10, ARCH_ROLE_NONE),
    {"pre_lnorm", ARCH_FIELD_BOOL, offsetof(transfo_xl_config, pre_norm), false, 0, 1, ARCH_ROLE_PRE_NORM},
    ARCH_BOOL_FIELD(transfo_xl_config, same_length, "same_length", true),
    ARCH_BOOL_FIELD(transfo_xl_config, untied_biases, "untie_r", true),
    ARCH_BOOL_FIELD(transfo_xl_config, share_projections, "proj_share_all_but_first", true),
    ARCH_BOOL_FIELD(transfo_xl_config, words.reversed, "reverse_clusters", false),
    ARCH_TIED_FIELD(transfo_xl_config),
};

static const arch_alias aliases[] = {{"n_token", "vocab_size"},
                                     {"hidden_size", "d_model"},
                                     {"num_attention_heads", "n_head"},
                                     {"num_hidden_layers", "n_layer"},
                                     {.key = NULL}};

static const arch_key keys[] = {
    {.key = "cutoffs"}, /* read below */
    {.key = "tie_projs"},
    {.key = "adaptive"}, /* the cutoffs say it */
    {.key = "attn_type", .neutral = "0"},
    {.key = "ext_len", .neutral = "0"},
    {.key = "sample_softmax", .neutral = "-1|0"},
    {.key = "tie_weight", .neutral = "true"},
    {.key = "init"}, /* initial values: init_std and proj_init_std */
    {.key = "init_range"},
    {.key = "max_position_embeddings"}, /* there is no limit */
    {.key = NULL},
};

/* ---- configuration outside of the table -------------------------------------------------------- */

static by_status read_cutoffs(const cJSON *json, arch_adaptive *a)
{
    static const int published[] = {20000, 40000, 200000}; /* where the key is missing */
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "cutoffs"), *one;
    a->count = 0;
    if (!list) {
        a->count = BY_COUNT(published);
        memcpy(a->cutoffs, published, sizeof published);
    }
    cJSON_ArrayForEach(one, list)
    {
        const double last = a->count ? a->cutoffs[a->count - 1] : 0;
        if (a->count == ARCH_CUTOFFS)
            return base_fail(BY_ERR_UNSUPPORTED, "cutoffs: more than %d", ARCH_CUTOFFS);
        if (!cJSON_IsNumber(one) || one->valuedouble != one->valueint ||
            !(one->valuedouble > last && one->valuedouble < a->vocab))
            return base_fail(BY_ERR_FORMAT, "cutoffs must be increasing whole numbers below vocab_size, %d",
                             a->vocab);
        a->cutoffs[a->count++] = one->valueint;
    }
    return BY_OK;
}

/* Which projections before the softmax are tied to the embedding's. */
static void tie_projections(transfo_xl_config *c)
{
    for (int i = 0; i <= ARCH_CUTOFFS; i++)
        c->words.ties[i] = i > 0 && c->share_projections;
}

static by_status read(const cJSON *json, void *config)
{
    transfo_xl_config *c = config;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "tie_projs");
    BY_TRY(read_cutoffs(json, &c->words));
    c->words.width = c->width;
    tie_projections(c);
    for (int i = 0; cJSON_IsArray(list) && i <= c->words.count; i++)
        c->words.ties[i] = cJSON_IsTrue(cJSON_GetArrayItem(list, i));
    return BY_OK;
}

static bool write(cJSON *json, const void *config)
{
    const transfo_xl_config *c = config;
    const int tails = arch_adaptive_tails(&c->words);
    if (cJSON_GetObjectItemCaseSensitive(json, "cutoffs"))
        return true;
    cJSON *cutoffs = cJSON_CreateIntArray(c->words.cutoffs, tails);
    return base_json_put(json, "cutoffs", cutoffs) && base_json_put(json, "attn_type", cJSON_CreateNumber(0));
}

static by_status check(const void *config)
{
    const transfo_xl_config *c = config;
    int64_t width = c->words.embed;
    for (int i = 0; i < arch_adaptive_tails(&c->words); i++)
        width /= c->words.div;
    return width > 0 ? BY_OK
                     : base_fail(BY_ERR_ARGUMENT, "div_val %d leaves no width for the last of %d clusters",
                                 c->words.div, c->words.count + 1);
}

static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 64},          {"tiny-adaptive", 4, 4, 128, 64}, {"enwik8", 12, 8, 512, 512},
    {"wt103-base", 16, 10, 410, 150}, {"wt103", 18, 16, 1024, 384},
};
static const struct {
    int inner, memory, clamp; /* inner 0: four times the width */
    int div, count, cutoffs[3];
    bool untied;
} rest[] = {{0, 64, -1, 1, 0, {0}, false},
            {0, 64, -1, 2, 2, {100, 200}, false},
            {2048, 512, -1, 1, 0, {0}, false},
            {2100, 150, -1, 1, 3, {20000, 40000, 200000}, false},
            {4096, 384, 1000, 4, 3, {20000, 40000, 200000}, true}};

static void adjust(const char *preset, void *config)
{
    transfo_xl_config *c = config;
    int i = 0;
    while (i < BY_COUNT(presets) - 1 && strcmp(presets[i].name, preset) != 0)
        i++;
    c->inner = rest[i].inner && c->width == presets[i].width ? rest[i].inner : 4 * c->width;
    c->memory = rest[i].memory;
    c->clamp = rest[i].clamp;
    c->same_length = false;
    c->untied_biases = rest[i].untied;
    c->head_dim = c->width / c->heads;
    c->words.width = c->words.embed = c->width;
    c->words.div = rest[i].div;
    c->words.count = rest[i].count;
    memcpy(c->words.cutoffs, rest[i].cutoffs, sizeof rest[i].cutoffs);
    tie_projections(c);
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* State shared by all layers of a graph. */
typedef struct sight {
    by_tensor *distances;          /* (L, C) */
    by_tensor *held;               /* (B, M + T): the key mask, or NULL */
    by_tensor *content, *position; /* u and v; NULL: each layer has its own */
    by_pattern pattern;
    int zero;
    int64_t chunk; /* queries at a time */
} sight;

static by_tensor *bias(by_graph *g, const transfo_xl_config *c, const char *name)
{
    return by_param(g, name, 2, (int64_t[]){c->heads, c->head_dim}, (by_init){BY_INIT_NORMAL, c->words.std});
}

/* Maximum keys that a query sees, including itself; 0: limited only by the segment and its memory. Cached
 * decoding has segments of one token. */
static int reach_of(const transfo_xl_config *c, const by_model_io *io)
{
    return c->memory <= 0 ? 0 : c->same_length ? c->memory : io->cache ? c->memory + 1 : 0;
}

/* Encodings of the visible distances, up to the clamped one. */
static sight look(by_graph *g, const transfo_xl_config *c, by_model_io *io, by_dtype type)
{
    by_tensor *tokens = by_io_input(io, "tokens"), *mask = by_io_input(io, "mask");
    const int reach = reach_of(c, io);
    int64_t length = io->cache ? nn_cache_room(io->cache) : by_dim(tokens, 1) + (io->stream ? c->memory : 0);
    if (reach > 0)
        length = BY_MIN(length, reach);
    if (c->clamp > 0)
        length = BY_MIN(length, c->clamp + 1);
    sight s = {.zero = (int)length - 1, .held = nn_memory_held(g, io->stream, tokens, mask, c->memory)};
    s.chunk = nn_relative_chunk(by_dim(tokens, 0) * c->heads, by_dim(tokens, 1), length);
    by_tensor *table = nn_distances(g, length, s.zero, c->width, type);
    s.distances = by_dropout(g, table, c->drop);
    if (reach > 0)
        s.pattern = (by_pattern){.kind = BY_PATTERN_WINDOW, .before = reach - 1};
    if (!c->untied_biases) {
        s.content = bias(g, c, "r_w_bias");
        s.position = bias(g, c, "r_r_bias");
    }
    return s;
}

static by_tensor *norm(by_graph *g, const transfo_xl_config *c, by_tensor *x)
{
    const int64_t width = by_dim(x, -1);
    by_scope_push(g, "layer_norm");
    by_tensor *gamma = by_param(g, "weight", 1, &width, (by_init){BY_INIT_ONE, c->words.std});
    by_tensor *beta = by_param(g, "bias", 1, &width, (by_init){BY_INIT_ZERO, 0});
    x = by_layernorm(g, x, gamma, beta, c->eps);
    by_scope_pop(g);
    return x;
}

static by_tensor *linear(by_graph *g, const transfo_xl_config *c, const char *name, by_tensor *x, int64_t out)
{
    return nn_linear(g, name, x, &(nn_linear_spec){.out = out, .no_bias = true, .std = c->words.std});
}

/* Queries, keys and values, projected by the thirds of one matrix. With a memory, each third is a separate
 * product, because the memory needs no queries; not if the matrix is stored in blocks, which cannot be
 * sliced. */
typedef struct projected {
    by_tensor *q, *k, *v; /* (B, T, H*D), (B, M + T, H*D) twice */
} projected;

static projected project(by_graph *g, const transfo_xl_config *c, by_tensor *x, by_tensor *all)
{
    const int64_t inner = (int64_t)c->heads * c->head_dim, t = by_dim(x, 1), n = by_dim(all, 1);
    by_tensor *w = by_param(g, "qkv_net.weight", 2, (int64_t[]){3 * inner, c->width},
                            (by_init){BY_INIT_NORMAL, c->words.std});
    projected y;
    if (all != x && by_dtype_block(by_type(w)) == 1) {
        y.q = by_linear(g, x, by_slice(g, w, 0, 0, inner), NULL, NULL);
        y.k = by_linear(g, all, by_slice(g, w, 0, inner, inner), NULL, NULL);
        y.v = by_linear(g, all, by_slice(g, w, 0, 2 * inner, inner), NULL, NULL);
        return y;
    }
    by_tensor *qkv = by_linear(g, all, w, NULL, NULL);
    y.q = by_slice(g, by_slice(g, qkv, 1, n - t, t), 2, 0, inner);
    y.k = by_slice(g, qkv, 2, inner, inner);
    y.v = by_slice(g, qkv, 2, 2 * inner, inner);
    return y;
}

/* x (B, T, C) of a segment and all (B, M + T, C) with the memory before it -> (B, T, C). */
static by_tensor *attention(by_graph *g, const transfo_xl_config *c, by_model_io *io, by_tensor *x,
                            by_tensor *all, const sight *s, int i)
{
    const int64_t inner = (int64_t)c->heads * c->head_dim, t = by_dim(x, 1), n = by_dim(all, 1);
    by_tensor *from = c->pre_norm ? norm(g, c, all) : all;
    by_tensor *own = all == x ? from : c->pre_norm ? by_slice(g, from, 1, n - t, t) : x;
    const projected p = project(g, c, own, from);
    by_tensor *y = nn_relative_attention(
        g, p.q, p.k, p.v,
        &(nn_relative_spec){.op = {.heads = c->heads,
                                   .mask = BY_MASK_CAUSAL,
                                   .pattern = s->pattern,
                                   .dropout = c->attn_drop,
                                   .key_mask = s->held,
                                   .empty_zero = true, /* rows of only padding: every token sees itself */
                                   .weights = arch_weights_slot(io)},
                            .content = s->content ? s->content : bias(g, c, "r_w_bias"),
                            .position = s->position ? s->position : bias(g, c, "r_r_bias"),
                            .distances = linear(g, c, "r_net", s->distances, inner),
                            .zero = s->zero,
                            .chunk = s->chunk,
                            .cache = io->cache,
                            .layer = i});
    x = by_add(g, x, by_dropout(g, linear(g, c, "o_net", y, c->width), c->drop));
    return c->pre_norm ? x : norm(g, c, x);
}

static by_tensor *feed_forward(by_graph *g, const transfo_xl_config *c, by_tensor *x)
{
    by_tensor *h = nn_mlp(g, "CoreNet", c->pre_norm ? norm(g, c, x) : x,
                          &(nn_mlp_spec){.in = "0",
                                         .out = "3",
                                         .inner = c->inner,
                                         .act = BY_RELU,
                                         .dropout = c->drop,
                                         .std = c->words.std,
                                         .out_std = c->words.std});
    x = by_add(g, x, by_dropout(g, h, c->drop));
    return c->pre_norm ? x : norm(g, c, x);
}

/* The memory of a layer followed by the segment, (B, M + T, C). The next segment keeps the last rows. */
static by_tensor *remember(by_graph *g, const transfo_xl_config *c, by_model_io *io, by_tensor *x, int i)
{
    char name[32];
    base_format(name, sizeof name, "mems.%d", i);
    by_tensor *all = nn_memory_rows(g, io->stream, name, x, c->memory);
    const int64_t n = by_dim(all, 1), kept = BY_MIN(n, c->memory);
    if (io->want_hidden && kept > 0)
        by_io_return(io, "mems", by_output(g, NULL, by_slice(g, all, 1, n - kept, kept)));
    return all;
}

static by_tensor *block(by_graph *g, by_tensor *x, const transfo_xl_config *c, by_model_io *io,
                        const sight *s, int i) /* (B, T, C) -> (B, T, C) */
{
    by_block_push(g, "layers.%d", i);
    by_tensor *all = remember(g, c, io, x, i);
    by_scope_push(g, "dec_attn");
    x = attention(g, c, io, x, all, s, i);
    by_scope_pop(g);
    by_scope_push(g, "pos_ff");
    x = feed_forward(g, c, x);
    by_scope_pop(g);
    by_block_pop(g);
    return x;
}

static void put_words(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const transfo_xl_config *c = top->config;
    (void)row;
    arch_adaptive_head(g, io, &c->words, c->head.own);
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, put_words, "crit.out_layers.0.weight", 0},
    {BY_TASK_CLASSIFY, arch_put_score, "score", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const transfo_xl_config *c = config;
    by_scope_push(g, "transformer");
    by_tensor *x = arch_adaptive_embedding(g, by_io_input(io, "tokens"), &c->words); /* (B, T, C) */
    const sight s = look(g, c, io, by_type(x));
    x = by_dropout(g, x, c->drop);
    for (int i = 0; i < c->layers; i++) {
        arch_keep_hidden(g, io, x);
        x = block(g, x, c, io, &s, i);
    }
    if (io->want_hidden) /* not read by any layer, but returned by the reference */
        remember(g, c, io, x, c->layers);
    x = by_dropout(g, x, c->drop);
    arch_keep_hidden(g, io, x);
    by_scope_pop(g);
    by_io_return(io, "features", x);
    arch_put_heads(g, io, heads, &(arch_top){.config = c, .head = c->head, .std = c->words.std});
}

static by_tensor *loss(by_graph *g, const void *config, const by_model_io *io, by_tensor *targets)
{
    const transfo_xl_config *c = config;
    return io->task == BY_TASK_LM && arch_adaptive_tails(&c->words) > 0
               ? arch_adaptive_loss(g, io, targets, &c->words, c->head.own)
               : NULL;
}

/* The authors' files number the tails backwards from the last column of the head. */
static void bare(void *config)
{
    ((transfo_xl_config *)config)->words.reversed = true;
}

static const char *const ignored[] = {"pos_emb.inv_freq", NULL};

const arch_family arch_transfo_xl = {
    .family = "transfo-xl",
    .title = "Transformer-XL (Dai et al. 2019)",
    .classes = {[BY_TASK_LM] = "TransfoXLLMHeadModel",
                [BY_TASK_CLASSIFY] = "TransfoXLForSequenceClassification",
                [BY_TASK_FEATURES] = "TransfoXLModel"},
    .pretrained = BY_TASK_LM,
    .training = {.rate = 0.5, .clip = 0.25, .no_decay = true},
    .prefix = "transformer.",
    .head = "crit.out_layers.0.weight",
    .table = "transformer.word_emb.emb_layers.0.weight",
    .head_offset = offsetof(transfo_xl_config, head),
    .aliases = aliases,
    .keys = keys,
    .copies = arch_adaptive_copies,
    .tokens = {0, -1, -1},
    .unlimited = true,
    .labels_in_place = true,
    .ignored = ignored,
    .derived = arch_adaptive_derived,
    ARCH_TABLES(transfo_xl_config),
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .build = build,
    .loss = loss,
    .bare = bare,
};
