/* linformer.c - Wang et al. 2020, "Linformer: Self-Attention with Linear Complexity". BERT with keys and
 * values projected along the length, from n positions to k. Time and memory grow as n k. The projections E
 * (keys) and F (values) are indexed by position, so n is fixed. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

/* How E and F are shared. */
typedef enum sharing {
    SHARE_NONE,      /* every head of every layer has its own E and F */
    SHARE_HEADS,     /* the heads of a layer share them */
    SHARE_KEY_VALUE, /* and E = F */
    SHARE_LAYERS     /* one E for all layers */
} sharing;
static const char *const sharing_names[] = {"none", "headwise", "key-value", "layerwise"};

typedef struct linformer_config {
    arch_bert_config bert;
    int projected; /* k */
    sharing sharing;
} linformer_config;

static const arch_field fields[] = {
    ARCH_BERT_FIELDS(30522, 512, 0, BY_GELU), ARCH_LABEL_DROP_FIELD,
    ARCH_INT_FIELD(linformer_config, projected, "projected_length", 256, 1, 1 << 20, ARCH_ROLE_NONE)};

static const arch_preset presets[] = {
    {"tiny", 2, 2, 128, 512},
    {"small", 4, 8, 512, 512},
    {"base", 12, 12, 768, 512},
    {"long", 12, 12, 768, 4096},
    {"tiny-none", 2, 2, 128, 512},
    {"tiny-key-value", 2, 2, 128, 512},
    {"tiny-layerwise", 2, 2, 128, 512},
    {"base-layerwise", 12, 12, 768, 512},
    {"long-layerwise", 12, 12, 768, 4096},
};

/* The first T columns of a projection (k, n), or (H, k, n) if heads have their own. */
static by_tensor *projection(by_graph *g, const linformer_config *c, const char *name, int64_t length)
{
    const bool each = c->sharing == SHARE_NONE;
    const int64_t shape[] = {c->bert.heads, c->projected, c->bert.context};
    /* about the scale of an average over positions, for any n */
    const by_init init = {BY_INIT_NORMAL, sqrtf(2 / (float)(c->projected + c->bert.context))};
    by_tensor *e = by_param(g, name, each ? 3 : 2, each ? shape : shape + 1, init);
    return length < c->bert.context ? by_slice(g, e, each ? 2 : 1, 0, length) : e;
}

/* e (k, T) or (H, k, T), x (B, T, H*D) -> (B, k, H*D) */
static by_tensor *compress(by_graph *g, by_tensor *e, by_tensor *x, int heads)
{
    const int64_t b = by_dim(x, 0), t = by_dim(x, 1), c = by_dim(x, 2);
    const int swap[] = {0, 2, 1, 3};
    if (by_rank(e) == 2)
        return by_matmul(g, e, x, false, false);
    x = by_permute_axes(g, by_reshape(g, x, 4, (int64_t[]){b, t, heads, c / heads}), swap); /* (B, H, T, D) */
    x = by_permute_axes(g, by_matmul(g, e, x, false, false), swap);                         /* (B, k, H, D) */
    return by_reshape(g, x, 3, (int64_t[]){b, -1, c});
}

typedef struct layers {
    const linformer_config *config;
    by_tensor *shared; /* E of all layers, or NULL */
} layers;

/* Masked keys and values are zeroed before the projection, after which no mask is needed. */
static by_tensor *attend(by_graph *g, const nn_attention_spec *s, by_tensor *x, by_tensor *q, by_tensor *k,
                         by_tensor *v)
{
    const layers *l = s->user;
    const linformer_config *c = l->config;
    const int64_t length = by_dim(x, 1);
    by_attention_spec op = s->op;
    if (op.key_mask) {
        k = nn_hide(g, k, op.key_mask);
        v = nn_hide(g, v, op.key_mask);
        op.key_mask = NULL;
    }
    by_tensor *e = l->shared ? l->shared : projection(g, c, "attention.self.compress_k.weight", length);
    by_tensor *f =
        c->sharing <= SHARE_HEADS ? projection(g, c, "attention.self.compress_v.weight", length) : e;
    return by_attention(g, q, compress(g, e, k, op.heads), compress(g, f, v, op.heads), &op);
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    layers l = {.config = config};
    by_scope_push(g, "linformer.encoder");
    if (l.config->sharing == SHARE_LAYERS)
        l.shared = projection(g, config, "compress.weight", by_dim(by_io_input(io, "tokens"), 1));
    by_scope_pop(g);
    arch_bert_build(g, &l.config->bert, io,
                    &(arch_bert_variant){.body = "linformer", .attend = attend, .user = &l});
}

static by_status check(const void *config)
{
    const arch_bert_config *c = config;
    return arch_check_heads(c->width, c->heads);
}

static by_status read(const cJSON *json, void *config)
{
    const char *name;
    BY_TRY(base_json_string(json, "projection_sharing", sharing_names[SHARE_HEADS], &name));
    for (int i = 0; i < BY_COUNT(sharing_names); i++)
        if (strcmp(name, sharing_names[i]) == 0) {
            ((linformer_config *)config)->sharing = (sharing)i;
            return BY_OK;
        }
    return base_fail(
        BY_ERR_UNSUPPORTED,
        "config.json: projection_sharing is \"%s\"; expected none, headwise, key-value or layerwise", name);
}

static bool write(cJSON *json, const void *config)
{
    const linformer_config *c = config;
    return cJSON_HasObjectItem(json, "projection_sharing") ||
           base_json_put(json, "projection_sharing", cJSON_CreateString(sharing_names[c->sharing]));
}

/* k is that of the paper for 512 positions, and at most its value for long texts. The suffix of a preset's
 * name gives the sharing. */
static void adjust(const char *preset, void *config)
{
    linformer_config *c = config;
    const char *who = strchr(preset, '-');
    c->projected = BY_MIN(BY_MAX(c->bert.context / 4, 1), 256);
    c->sharing = SHARE_HEADS;
    for (int i = 0; who && i < BY_COUNT(sharing_names); i++)
        if (strcmp(who + 1, sharing_names[i]) == 0)
            c->sharing = (sharing)i;
}

static const arch_key keys[] = {{.key = "projection_sharing"}, {.key = NULL}};

const arch_family arch_linformer = {
    .family = "linformer",
    .title = "Linformer (Wang et al. 2020)",
    .classes = {[BY_TASK_MLM] = "LinformerForMaskedLM",
                [BY_TASK_CLASSIFY] = "LinformerForSequenceClassification",
                [BY_TASK_TAG] = "LinformerForTokenClassification",
                [BY_TASK_ANSWER] = "LinformerForQuestionAnswering",
                [BY_TASK_CHOICE] = "LinformerForMultipleChoice",
                [BY_TASK_FEATURES] = "LinformerModel"},
    .pretrained = BY_TASK_MLM,
    .objective = "mlm",
    .prefix = "linformer.",
    .head = "cls.predictions.decoder.weight",
    .table = "linformer.embeddings.word_embeddings.weight",
    .head_offset = offsetof(linformer_config, bert.head),
    .copies = arch_bert_copies,
    .keys = keys,
    .tokens = {-1, 0, -1},
    ARCH_TABLES(linformer_config),
    .check = check,
    .read = read,
    .write = write,
    .adjust = adjust,
    .adapted = "query,value",
    .build = build,
};
