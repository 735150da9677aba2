/* big_bird.c - Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences". BERT with block-sparse
 * attention: a block of tokens sees its neighbours, the first and the last block, and random blocks chosen
 * for every layer and head; the first and the last block see everything. Time and memory are linear in T. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct big_bird_config {
    arch_bert_config bert;
    int block, random; /* tokens per block; random blocks per block */
    int separator;
    bool use_bias, rescale;
    bool full; /* every token sees all others */
} big_bird_config;

static const arch_field fields[] = {
    ARCH_BERT_FIELDS(50358, 4096, 0, BY_GELU_TANH),
    ARCH_LABEL_DROP_FIELD,
    ARCH_IS_DECODER_FIELD,
    ARCH_INT_FIELD(big_bird_config, block, "block_size", 64, 1, 1 << 20, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(big_bird_config, random, "num_random_blocks", 3, 0, 1 << 10, ARCH_ROLE_NONE),
    ARCH_INT_FIELD(big_bird_config, separator, "sep_token_id", 66, 0, 1 << 24, ARCH_ROLE_SEPARATOR),
    ARCH_BOOL_FIELD(big_bird_config, use_bias, "use_bias", true),
    ARCH_BOOL_FIELD(big_bird_config, rescale, "rescale_embeddings", false),
};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 1024},
    {"small", 4, 8, 512, 2048},
    {"base", 12, 12, 768, 4096},
    {"large", 24, 16, 1024, 4096},
};

/* ---- inputs computed from a batch -------------------------------------------------------------- */

/* Short texts use full attention, as in the reference. */
static bool is_sparse(const big_bird_config *c, int64_t length)
{
    return !c->full && !c->bert.causal && length > (5 + 2 * (int64_t)c->random) * c->block;
}

static int64_t blocks_of(const big_bird_config *c, int64_t length)
{
    return (length + c->block - 1) / c->block;
}

/* (layers, H, blocks - 2, random blocks), for all blocks except the first and the last */
static int random_shape(const void *config, const arch_rows *r, int64_t *dim)
{
    const big_bird_config *c = config;
    dim[0] = c->bert.layers;
    dim[1] = c->bert.heads;
    dim[2] = blocks_of(c, r->seq) - 2;
    dim[3] = c->random;
    return is_sparse(c, r->seq) && c->random > 0 ? 4 : 0;
}

/* A table depends only on the layer, the head and the number of blocks. Blocks that are seen anyway are
 * excluded, and no block is drawn twice. */
static void random_fill(const void *config, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    (void)config, (void)r;
    for (int64_t row = 0; row < dim[0] * dim[1] * dim[2]; row++, out += dim[3]) {
        const int64_t head = row / dim[2], block = row % dim[2] + 1;
        base_rng draws = base_rng_make((uint64_t)(head / dim[1]), (uint64_t)(head % dim[1] * dim[2] + block));
        for (int64_t i = 0; i < dim[3];) {
            const int64_t x = 1 + (int64_t)base_rng_u32(&draws) % dim[2];
            bool fresh = x < block - 1 || x > block + 1;
            for (int64_t k = 0; k < i; k++)
                fresh = fresh && out[k] != x;
            if (fresh)
                out[i++] = (int32_t)x;
        }
    }
}

/* (B, T): 1 for the question before a text, up to the separator. */
static int question_shape(const void *config, const arch_rows *r, int64_t *dim)
{
    (void)config;
    dim[0] = r->batch;
    dim[1] = r->seq;
    return r->task == BY_TASK_ANSWER ? 2 : 0;
}

static void question_fill(const void *config, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    const int separator = ((const big_bird_config *)config)->separator;
    for (int64_t b = 0; b < dim[0]; b++, out += dim[1]) {
        const int32_t *row = r->tokens + b * dim[1];
        int64_t end = 0;
        while (end < dim[1] && row[end] != separator)
            end++;
        end = end < dim[1] ? end : 0; /* without a separator, only the first token */
        for (int64_t t = 0; t < dim[1]; t++)
            out[t] = t <= end;
    }
}

static const arch_derived derived[] = {{"random_blocks", NULL, random_shape, random_fill},
                                       {"question", NULL, question_shape, question_fill},
                                       {.name = NULL}};

/* ---- attention --------------------------------------------------------------------------------- */

/* What the layers share. */
typedef struct layers {
    by_tensor *near;   /* (N, N): near_blocks */
    by_tensor *random; /* (layers, H, N - 2, random blocks) i32, or NULL */
    by_tensor *mask;   /* (B, T) i32, or NULL */
    int block;
} layers;

/* 1 where the integer x equals `value`, otherwise 0. */
static by_tensor *equals(by_graph *g, by_tensor *x, int64_t value)
{
    by_tensor *d = by_sub(g, x, by_fill(g, BY_F32, 0, NULL, (double)value));
    d = by_maximum(g, d, by_scale(g, d, -1));
    return by_clamp(g, by_sub(g, by_fill(g, BY_F32, 0, NULL, 1), d), 0, 1);
}

/* Positive where a block sees another by its position: the first and the last block see all and are seen by
 * all, the others see their neighbours. Among blocks of padding, the reference lets only the second and the
 * last but one see their neighbours. (N, N) */
static by_tensor *near_blocks(by_graph *g, int64_t n, bool padding)
{
    by_tensor *at = by_cast(g, by_range(g, 1, &n), BY_F32);
    by_tensor *rows = by_reshape(g, at, 2, (int64_t[]){n, 1}), *d = by_sub(g, rows, at);
    by_tensor *next = by_add(g, by_add(g, equals(g, d, -1), equals(g, d, 0)), equals(g, d, 1));
    if (padding)
        next = by_mul(g, next, by_add(g, equals(g, rows, 1), equals(g, rows, n - 2)));
    by_tensor *queries = by_add(g, equals(g, rows, 0), equals(g, rows, n - 1));
    by_tensor *keys = by_add(g, equals(g, at, 0), equals(g, at, n - 1));
    return by_add(g, by_add(g, queries, keys), next);
}

/* (1, H, N, N) i32 */
static by_tensor *block_mask(by_graph *g, const layers *l, int layer)
{
    const int64_t n = by_dim(l->near, 0), heads = l->random ? by_dim(l->random, 1) : 1;
    by_tensor *all = by_reshape(g, l->near, 3, (int64_t[]){1, n, n});
    if (l->random) {
        const int64_t r = by_dim(l->random, 3);
        by_tensor *ids = by_reshape(g, by_slice(g, l->random, 0, layer, 1), 3, (int64_t[]){heads, n - 2, r});
        by_tensor *ones = by_fill(g, BY_F32, 4, (int64_t[]){heads, n - 2, r, 1}, 1);
        by_tensor *drawn = by_reshape(g, by_scatter_add(g, ones, ids, n), 3, (int64_t[]){heads, n - 2, n});
        by_tensor *none = by_fill(g, BY_F32, 3, (int64_t[]){heads, 1, n}, 0);
        all = by_add(g, all, by_concat(g, (by_tensor *[]){none, drawn, none}, 3, 1));
    }
    return by_reshape(g, by_cast(g, all, BY_I32), 4, (int64_t[]){1, heads, n, n});
}

/* Padding rows get the weights that the reference reports; they affect nothing. */
static by_tensor *weights_of_padding(by_graph *g, const layers *l, by_tensor *weights, by_tensor *q,
                                     by_tensor *k, by_tensor *v, by_attention_spec op)
{
    const int64_t n = by_dim(l->near, 0), b = by_dim(q, 0), t = by_dim(q, 1);
    by_tensor *others;
    op.pair_mask = by_reshape(g, by_cast(g, near_blocks(g, n, true), BY_I32), 4, (int64_t[]){1, 1, n, n});
    op.weights = &others;
    by_attention(g, q, k, v, &op);
    return by_where(g, by_reshape(g, l->mask, 4, (int64_t[]){b, 1, t, 1}), weights, others);
}

static by_tensor *attend(by_graph *g, const nn_attention_spec *s, by_tensor *x, by_tensor *q, by_tensor *k,
                         by_tensor *v)
{
    const layers *l = s->user;
    by_attention_spec op = s->op;
    (void)x;
    op.pair_mask = block_mask(g, l, s->layer);
    op.pair_block = l->block;
    op.empty_zero = true;
    by_tensor *y = by_attention(g, q, k, v, &op);
    if (op.weights && l->mask)
        *op.weights = weights_of_padding(g, l, *op.weights, q, k, v, op);
    return l->mask ? nn_hide(g, y, l->mask) : y; /* rows of padding are 0 */
}

/* ---- body and heads ---------------------------------------------------------------------------- */

/* As in BERT, but with the norm after the dropout. */
static by_tensor *embed(by_graph *g, by_model_io *io, const big_bird_config *c)
{
    const arch_bert_config *s = &c->bert;
    by_scope_push(g, "embeddings");
    by_tensor *x = nn_embedding_padded(g, "word_embeddings", by_io_input(io, "tokens"), s->vocab, s->width,
                                       s->std, s->pad);
    if (c->rescale)
        x = by_scale(g, x, sqrt(s->width));
    x = by_add(
        g, x,
        nn_segments(g, "token_type_embeddings", by_io_input(io, "segments"), s->segments, s->width, s->std));
    x = by_add(
        g, x,
        nn_embedding(g, "position_embeddings", by_io_input(io, "positions"), s->context, s->width, s->std));
    x = nn_layernorm(g, "LayerNorm", by_dropout(g, x, s->drop), s->eps); /* (B, T, C) */
    by_scope_pop(g);
    return x;
}

static bool is_pooled(by_task t)
{
    return t == BY_TASK_FEATURES || t == BY_TASK_PRETRAIN || t == BY_TASK_CHOICE;
}

/* Files of most classes have the pooler, whether it is used or not. */
static void pool(by_graph *g, by_model_io *io, const arch_bert_config *c, by_tensor *x)
{
    const int64_t shape[] = {c->width, c->width};
    if (is_pooled(io->task)) {
        by_io_return(io, "pooled", arch_pooler(g, "pooler", x, c->std));
    } else if (io->task != BY_TASK_ANSWER && io->task != BY_TASK_LM) {
        by_param_fixed(g, "pooler.weight", 2, shape, (by_init){BY_INIT_NORMAL, c->std});
        by_param_fixed(g, "pooler.bias", 1, shape, (by_init){BY_INIT_ZERO, 0});
    }
}

/* Two projections of the first position with the activation of the body between them. */
static void put_label(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const arch_bert_config *c = top->config;
    by_tensor *h = arch_head_dropout(g, nn_first(g, by_io_output(io, "features")), top, row);
    h = nn_linear(g, "classifier.dense", h,
                  &(nn_linear_spec){.out = c->width, .act = c->act, .std = top->std});
    arch_label_head(g, io, row->name, arch_head_dropout(g, h, top, row), top->std);
}

/* A feed-forward block before start and end logits. Tokens of the question are masked, except the first
 * token, which represents "no answer". */
static void put_answer(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const arch_bert_config *c = top->config;
    by_tensor *x = by_io_output(io, "features"), *question = by_io_input(io, "question");
    const int64_t shape[2] = {by_dim(x, 0), by_dim(x, 1)};
    by_tensor *h = nn_mlp(g, "qa_classifier", arch_head_dropout(g, x, top, row),
                          &(nn_mlp_spec){.in = "intermediate.dense",
                                         .out = "output.dense",
                                         .inner = c->inner,
                                         .act = c->act,
                                         .std = top->std,
                                         .out_std = top->std});
    h = nn_layernorm(g, "qa_classifier.output.LayerNorm", by_add(g, by_dropout(g, h, c->drop), x), c->eps);
    h = nn_linear(g, row->name, h, &(nn_linear_spec){.out = 2, .std = top->std}); /* (B, T, 2) */
    if (question) {
        by_tensor *later = by_cast(g, by_slice(g, question, 1, 1, shape[1] - 1), by_type(h));
        by_tensor *first = by_fill(g, by_type(h), 2, (int64_t[]){shape[0], 1}, 0);
        by_tensor *hidden = by_concat(g, (by_tensor *[]){first, later}, 2, 1);
        hidden = by_reshape(g, by_scale(g, hidden, 1e6), 3, (int64_t[]){shape[0], shape[1], 1});
        h = by_sub(g, h, hidden);
    }
    by_io_return(io, "logits", by_reshape(g, by_slice(g, h, 2, 0, 1), 2, shape));
    by_io_return(io, "second", by_reshape(g, by_slice(g, h, 2, 1, 1), 2, shape));
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, arch_put_mlm, NULL, 0},
    {BY_TASK_MLM, arch_put_mlm, NULL, 0},
    {BY_TASK_PRETRAIN, arch_put_mlm, NULL, 0},
    {BY_TASK_PRETRAIN, arch_put_next, "cls.seq_relationship", 0},
    {BY_TASK_CLASSIFY, put_label, "classifier.out_proj", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_CHOICE, arch_put_label, "classifier", offsetof(arch_bert_config, drop)},
    {BY_TASK_TAG, arch_put_tag, "classifier", offsetof(arch_bert_config, label_drop)},
    {BY_TASK_ANSWER, put_answer, "qa_classifier.qa_outputs", offsetof(arch_bert_config, drop)},
    {.put = NULL},
};

static layers look_around(by_graph *g, const big_bird_config *c, const by_model_io *io, int64_t length)
{
    return (layers){.near = near_blocks(g, blocks_of(c, length), false),
                    .random = by_io_input(io, "random_blocks"),
                    .mask = by_io_input(io, "mask"),
                    .block = c->block};
}

/* Missing segments are computed from the question. */
static void complete_segments(by_graph *g, by_model_io *io)
{
    by_tensor *question = by_io_input(io, "question");
    if (!question || by_io_input(io, "segments"))
        return;
    by_tensor *one = by_fill(g, BY_F32, 0, NULL, 1);
    by_io_feed(io, "segments", by_cast(g, by_sub(g, one, by_cast(g, question, BY_F32)), BY_I32));
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const big_bird_config *c = config;
    const arch_bert_config *s = &c->bert;
    const int64_t length = by_dim(by_io_input(io, "tokens"), 1);
    nn_encoder_spec layer = arch_bert_layer(s);
    layers l;
    layer.attention.no_bias = !c->use_bias;
    if (is_sparse(c, length) && !io->cache) {
        l = look_around(g, c, io, length);
        layer.attention.attend = attend;
        layer.attention.user = &l;
    }
    complete_segments(g, io);
    by_scope_push(g, "bert");
    by_tensor *x = arch_bert_layers(g, io, embed(g, io, c), s->layers, layer);
    pool(g, io, s, x);
    by_tensor *table = arch_bert_table(g, s->vocab, s->width, s->std);
    by_scope_pop(g);
    by_io_return(io, "features", x);
    const arch_mlm_spec mlm = arch_bert_mlm(s);
    arch_put_heads(g, io, heads,
                   &(arch_top){.config = c, .table = table, .std = s->std, .drop = s->drop, .mlm = &mlm});
}

/* ---- configuration ----------------------------------------------------------------------------- */

static by_status check(const void *config)
{
    const arch_bert_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static by_status read(const cJSON *json, void *config)
{
    const char *type;
    BY_TRY(base_json_string(json, "attention_type", "block_sparse", &type));
    ((big_bird_config *)config)->full = strcmp(type, "original_full") == 0;
    if (strcmp(type, "original_full") != 0 && strcmp(type, "block_sparse") != 0)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "config.json: attention_type is \"%s\"; expected block_sparse or original_full",
                         type);
    return BY_OK;
}

static bool write(cJSON *json, const void *config)
{
    const big_bird_config *c = config;
    return cJSON_HasObjectItem(json, "attention_type") ||
           base_json_put(json, "attention_type",
                         cJSON_CreateString(c->full ? "original_full" : "block_sparse"));
}

/* Published models have 64 blocks of 64 tokens. */
static void adjust(const char *preset, void *config)
{
    big_bird_config *c = config;
    (void)preset;
    c->block = BY_MIN(BY_MAX(c->bert.context / 64, 1), 64);
}

static bool is_causal(const void *config)
{
    return ((const arch_bert_config *)config)->causal;
}

static const arch_key keys[] = {{.key = "attention_type"}, {.key = NULL}};

const arch_family arch_big_bird = {
    .family = "big_bird",
    .title = "BigBird (Zaheer et al. 2020)",
    .classes = {[BY_TASK_LM] = "BigBirdForCausalLM",
                [BY_TASK_MLM] = "BigBirdForMaskedLM",
                [BY_TASK_PRETRAIN] = "BigBirdForPreTraining",
                [BY_TASK_CLASSIFY] = "BigBirdForSequenceClassification",
                [BY_TASK_TAG] = "BigBirdForTokenClassification",
                [BY_TASK_ANSWER] = "BigBirdForQuestionAnswering",
                [BY_TASK_CHOICE] = "BigBirdForMultipleChoice",
                [BY_TASK_FEATURES] = "BigBirdModel"},
    .pretrained = BY_TASK_MLM,
    .objective = "mlm",
    .prefix = "bert.",
    .head = "cls.predictions.decoder.weight",
    .table = "bert.embeddings.word_embeddings.weight",
    .head_offset = offsetof(big_bird_config, bert.head),
    .copies = arch_bert_copies,
    .keys = keys,
    .tokens = {2, 0, -1},
    ARCH_TABLES(big_bird_config),
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .is_causal = is_causal,
    .derived = derived,
    .adapted = "query,value",
    .build = build,
};
