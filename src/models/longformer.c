/* longformer.c - Beltagy et al. 2020, "Longformer: The Long-Document Transformer". RoBERTa with sliding
 * window attention and global tokens, which are seen by all and see everything, through separate projections.
 * With G global tokens and a window of w, time and memory grow as T (w + G). */
#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct longformer_config {
    arch_bert_config bert;
    int separator;
    int windows[BY_MAX_LAYERS]; /* w per layer: w / 2 tokens before and after */
} longformer_config;

static const arch_field fields[] = {
    ARCH_BERT_FIELDS(30522, 512, 1, BY_GELU),
    ARCH_INT_FIELD(longformer_config, separator, "sep_token_id", 2, 0, 1 << 24, ARCH_ROLE_SEPARATOR)};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 1026},
    {"small", 4, 8, 512, 2050},
    {"base", 12, 12, 768, 4098},
    {"large", 24, 16, 1024, 4098},
};

/* ---- global tokens ----------------------------------------------------------------------------- */

/* The first separator of a row, or its length. */
static int first_end(const longformer_config *c, const arch_rows *r, const int32_t *row)
{
    int t = 0;
    while (t < r->seq && row[t] != c->separator)
        t++;
    return t;
}

/* Writes the positions of the global tokens of row b to `to`, unless NULL, and returns their number. They are
 * given by the batch or by the task: the first token for labels, the question, the context of a choice. */
static int global_places(const longformer_config *c, const arch_rows *r, int b, int32_t *to)
{
    const size_t first = (size_t)b * (size_t)r->seq;
    const int end = first_end(c, r, r->tokens + first);
    int count = 0;
    for (int t = 0; t < r->seq; t++) {
        const bool seen = !r->mask || r->mask[first + (size_t)t];
        const bool chosen = r->given                      ? r->given[first + (size_t)t] != 0
                            : r->task == BY_TASK_CLASSIFY ? t == 0
                            : r->task == BY_TASK_ANSWER   ? t < end
                            : r->task == BY_TASK_CHOICE   ? t > end + 1
                                                          : false;
        if (!seen || !chosen)
            continue;
        if (to)
            to[count] = t;
        count++;
    }
    return count;
}

/* The maximum number over all rows; rounded up if derived from the texts, so that at most about 16 shapes
 * occur per length. */
static int places_shape(const void *config, const arch_rows *r, int64_t *dim)
{
    const int step = BY_MAX(r->seq / 16, 1);
    int most = 0;
    for (int b = 0; b < r->batch; b++)
        most = BY_MAX(most, global_places(config, r, b, NULL));
    if (!r->given && r->task != BY_TASK_CLASSIFY)
        most = BY_MIN((most + step - 1) / step * step, r->seq);
    dim[0] = r->batch;
    dim[1] = most;
    return most > 0 ? 2 : 0;
}

static void places_fill(const void *config, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    for (int b = 0; b < r->batch; b++, out += dim[1])
        for (int64_t i = global_places(config, r, b, out); i < dim[1]; i++)
            out[i] = -1;
}

static const arch_derived derived[] = {{"global_places", "global_attention_mask", places_shape, places_fill},
                                       {.name = NULL}};

/* ---- attention --------------------------------------------------------------------------------- */

/* What the layers share. */
typedef struct layers {
    const longformer_config *config;
    by_model_io *io;
    by_tensor *places;   /* (B, G) i32: the global tokens, 0 where a row has fewer; NULL: none */
    by_tensor *there;    /* (B, G, 1): 1, and 0 where a row has fewer */
    by_tensor *key_mask; /* (B, G + T) i32, of the global keys and then of all that are not global */
    by_tensor *local;    /* (B, T, 1): 1, and 0 for rows of padding and of global tokens; NULL: all 1 */
} layers;

/* In f32, which represents these integers exactly. */
static layers look_around(by_graph *g, const longformer_config *c, by_model_io *io)
{
    layers l = {.config = c, .io = io, .key_mask = by_io_input(io, "mask")};
    by_tensor *tokens = by_io_input(io, "tokens"), *places = by_io_input(io, "global_places");
    const int64_t b = by_dim(tokens, 0), t = by_dim(tokens, 1), n = by_dim(places, 1);
    if (l.key_mask)
        l.local = by_reshape(g, by_cast(g, l.key_mask, BY_F32), 3, (int64_t[]){b, t, 1});
    if (!places)
        return l;
    by_tensor *one = by_fill(g, BY_F32, 0, NULL, 1), *at = by_cast(g, places, BY_F32);
    l.there = by_reshape(g, by_clamp(g, by_add(g, at, one), 0, 1), 3, (int64_t[]){b, n, 1});
    l.places = by_cast(g, by_clamp(g, at, 0, (double)t), BY_I32);
    by_tensor *global = by_scatter_add(g, l.there, l.places, t); /* (B, T, 1) */
    by_tensor *others = by_sub(g, by_fill(g, BY_F32, 3, (int64_t[]){b, t, 1}, 1), global);
    l.local = l.local ? by_mul(g, l.local, others) : others;
    by_tensor *keys = by_concat(g, (by_tensor *[]){l.there, l.local}, 2, 1); /* (B, G + T, 1) */
    l.key_mask = by_reshape(g, by_cast(g, keys, BY_I32), 2, (int64_t[]){b, n + t});
    return l;
}

static by_tensor *as(by_graph *g, by_tensor *x, const by_tensor *like)
{
    return by_cast(g, x, by_type(like));
}

/* The rows of the global tokens, and then all rows: (B, T, C) -> (B, G + T, C). */
static by_tensor *with_globals(by_graph *g, const layers *l, by_tensor *x)
{
    return l->places ? by_concat(g, (by_tensor *[]){by_take(g, x, l->places), x}, 2, 1) : x;
}

/* Weights in the layout of the reference: w (B, H, T, G + T) -> (B, H, T, G + window + 1), for the global
 * keys and the window; 0 for padding rows and global tokens. */
static by_tensor *window_weights(by_graph *g, const layers *l, by_tensor *w, int64_t half)
{
    const int64_t b = by_dim(w, 0), h = by_dim(w, 1), t = by_dim(w, 2), n = by_dim(w, 3) - t;
    const int64_t wide = t + 2 * half;
    by_tensor *side = by_fill(g, by_type(w), 4, (int64_t[]){b, h, t, half}, 0);
    by_tensor *end = by_fill(g, by_type(w), 3, (int64_t[]){b, h, t}, 0);
    by_tensor *near = by_concat(g, (by_tensor *[]){side, by_slice(g, w, 3, n, t), side}, 3, 3);
    /* appending one element per row shifts each row by one: column i is then the key at distance i - half */
    near = by_reshape(g, near, 3, (int64_t[]){b, h, t * wide});
    near = by_concat(g, (by_tensor *[]){near, end}, 2, 2);
    near = by_slice(g, by_reshape(g, near, 4, (int64_t[]){b, h, t, wide + 1}), 3, 0, 2 * half + 1);
    if (n > 0)
        near = by_concat(g, (by_tensor *[]){by_slice(g, w, 3, 0, n), near}, 2, 3);
    if (l->local)
        near = by_mul(g, near, by_reshape(g, as(g, l->local, w), 4, (int64_t[]){b, 1, t, 1}));
    return near;
}

/* (B, H, G, T) -> (B, H, U, G), where U is T rounded up to a multiple of the widest window: the reference
 * pads the text to that length, with weight 0. A missing global token has equal weights. */
static void keep_global_weights(by_graph *g, const layers *l, by_tensor *w)
{
    const int64_t b = by_dim(w, 0), h = by_dim(w, 1), n = by_dim(w, 2), t = by_dim(w, 3);
    int64_t window = 1;
    for (int i = 0; i < l->config->bert.layers; i++)
        window = BY_MAX(window, l->config->windows[i]);
    const int64_t u = (t + window - 1) / window * window;
    by_tensor *there = by_reshape(g, by_cast(g, l->there, BY_I32), 4, (int64_t[]){b, 1, n, 1});
    if (u > t)
        w = by_concat(g, (by_tensor *[]){w, by_fill(g, by_type(w), 4, (int64_t[]){b, h, n, u - t}, 0)}, 2, 3);
    w = by_where(g, there, w, by_fill(g, by_type(w), 0, NULL, 1.0 / (double)u));
    by_io_return(l->io, "global_attention", by_permute_axes(g, w, (int[]){0, 1, 3, 2}));
}

/* Attention of global tokens: to everything, through separate projections, which are declared even if there
 * are no global tokens. */
static by_tensor *attend_globally(by_graph *g, const layers *l, const nn_attention_spec *s, by_tensor *x)
{
    const nn_linear_spec linear = {.out = by_dim(x, 2), .std = s->std};
    by_attention_spec op = s->op;
    by_tensor *weights = NULL;
    by_tensor *q = nn_linear(g, "attention.self.query_global", l->places ? by_take(g, x, l->places) : x,
                             &linear); /* (B, G, C) */
    by_tensor *k = nn_linear(g, "attention.self.key_global", x, &linear);
    by_tensor *v = nn_linear(g, "attention.self.value_global", x, &linear);
    if (!l->places)
        return NULL;
    op.weights = s->op.weights ? &weights : NULL;
    by_tensor *y = by_attention(g, q, k, v, &op);
    if (weights)
        keep_global_weights(g, l, weights);
    return by_scatter_add(g, by_mul(g, y, as(g, l->there, y)), l->places, by_dim(x, 1)); /* (B, T, C) */
}

/* Global keys are prepended and seen by all; inside windows they are masked, so that each counts once. */
static by_tensor *attend(by_graph *g, const nn_attention_spec *s, by_tensor *x, by_tensor *q, by_tensor *k,
                         by_tensor *v)
{
    const layers *l = s->user;
    const int half = l->config->windows[s->layer] / 2;
    by_attention_spec op = s->op;
    op.key_mask = l->key_mask;
    op.empty_zero = true;
    op.pattern = (by_pattern){.kind = l->places ? BY_PATTERN_SINKS : BY_PATTERN_WINDOW,
                              .length = l->places ? (int)by_dim(l->places, 1) : 0,
                              .before = half,
                              .after = half};
    by_tensor *y = by_attention(g, q, with_globals(g, l, k), with_globals(g, l, v), &op);
    if (op.weights)
        *op.weights = window_weights(g, l, *op.weights, half);
    if (l->local)
        y = by_mul(g, y, as(g, l->local, y));
    by_tensor *global = attend_globally(g, l, s, x);
    return global ? by_add(g, y, global) : y;
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const longformer_config *c = config;
    const layers l = look_around(g, c, io);
    arch_roberta_build(g, &c->bert, io,
                       &(arch_bert_variant){.body = "longformer", .attend = attend, .user = &l});
}

/* ---- configuration ----------------------------------------------------------------------------- */

static by_status check(const void *config)
{
    const longformer_config *c = config;
    for (int i = 0; i < c->bert.layers; i++)
        if (c->windows[i] < 2 || c->windows[i] % 2 || c->windows[i] > 1 << 24)
            return base_fail(BY_ERR_FORMAT, "the attention_window %d of layer %d is not even and positive",
                             c->windows[i], i);
    return arch_roberta_check(config);
}

/* One number for all layers, or a list. */
static by_status read(const cJSON *json, void *config)
{
    longformer_config *c = config;
    const cJSON *window = cJSON_GetObjectItemCaseSensitive(json, "attention_window");
    c->bert.label_drop = -1;
    if (cJSON_IsArray(window) && cJSON_GetArraySize(window) != c->bert.layers)
        return base_fail(BY_ERR_FORMAT, "config.json: attention_window has %d entries for %d layers",
                         cJSON_GetArraySize(window), c->bert.layers);
    for (int i = 0; i < c->bert.layers; i++) {
        const cJSON *own = cJSON_IsArray(window) ? cJSON_GetArrayItem(window, i) : window;
        if (own && !cJSON_IsNumber(own))
            return base_fail(BY_ERR_FORMAT,
                             "config.json: attention_window is not a number or a list of numbers");
        c->windows[i] = own ? own->valueint : 512;
    }
    return BY_OK;
}

static bool write(cJSON *json, const void *config)
{
    const longformer_config *c = config;
    return cJSON_HasObjectItem(json, "attention_window") ||
           base_json_put(json, "attention_window", cJSON_CreateIntArray(c->windows, c->bert.layers));
}

/* Published models have one segment; their window is an eighth of the context. */
static void adjust(const char *preset, void *config)
{
    longformer_config *c = config;
    (void)preset;
    c->bert.segments = 1;
    c->bert.vocab = 50265;
    c->bert.label_drop = -1;
    for (int i = 0; i < BY_MAX_LAYERS; i++)
        c->windows[i] = BY_MIN(BY_MAX(c->bert.context / 16 * 2, 2), 512);
}

static const arch_key keys[] = {{.key = "attention_window"}, {.key = "onnx_export"}, {.key = NULL}};

const arch_family arch_longformer = {
    .family = "longformer",
    .title = "Longformer (Beltagy et al. 2020)",
    .classes = {[BY_TASK_MLM] = "LongformerForMaskedLM",
                [BY_TASK_CLASSIFY] = "LongformerForSequenceClassification",
                [BY_TASK_TAG] = "LongformerForTokenClassification",
                [BY_TASK_ANSWER] = "LongformerForQuestionAnswering",
                [BY_TASK_CHOICE] = "LongformerForMultipleChoice",
                [BY_TASK_FEATURES] = "LongformerModel"},
    .pretrained = BY_TASK_MLM,
    .objective = "mlm",
    .prefix = "longformer.",
    .head = "lm_head.decoder.weight",
    .table = "longformer.embeddings.word_embeddings.weight",
    .head_offset = offsetof(longformer_config, bert.head),
    .copies = arch_roberta_copies,
    .keys = keys,
    .tokens = {2, 1, -1},
    ARCH_TABLES(longformer_config),
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .first_position = arch_roberta_first_position,
    .derived = derived,
    .adapted = "query,value",
    .build = build,
};
