/* sparse_transformer.c - Child et al. 2019, "Generating Long Sequences with Sparse Transformers". GPT-2's
 * decoder with sparse attention: queries see two sets of about sqrt(n) keys each, near keys, and distant keys
 * at fixed offsets in rows (strided) or blocks (fixed). */
#include "base/base.h"
#include "models/models.h"

enum { STRIDED, FIXED };             /* the words of ARCH_ROLE_PATTERN, */
enum { MERGED, ALTERNATING, HEADS }; /* and of ARCH_ROLE_SHARING */

typedef struct sparse_config {
    arch_gpt2_config body;
    int attention, mode;
    int stride, summary; /* l, and c in the fixed pattern */
} sparse_config;

static const arch_field fields[] = {
    ARCH_GPT2_FIELDS(sparse_config, body., 256, 1024, BY_QUICK_GELU),
    ARCH_CHOICE_FIELD(sparse_config, attention, "attention_pattern", ARCH_ROLE_PATTERN),
    ARCH_CHOICE_FIELD(sparse_config, mode, "attention_mode", ARCH_ROLE_SHARING),
    ARCH_INT_FIELD(sparse_config, stride, "attention_stride", 128, 1, 1 << 24, ARCH_ROLE_STRIDE),
    ARCH_INT_FIELD(sparse_config, summary, "attention_summary", 8, 1, 1 << 24, ARCH_ROLE_SUMMARY),
};

static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 256},      {"tiny-fixed", 4, 4, 128, 256},     {"cifar10", 128, 2, 256, 3072},
    {"enwik8", 30, 8, 512, 12288}, {"imagenet64", 48, 16, 512, 12288},
};

/* The smallest power of two whose square is at least n. */
static int root_of(int n)
{
    int l = 1;
    while ((int64_t)l * l < n)
        l *= 2;
    return l;
}

/* As in the paper: strided for images, with the row as the length, fixed for text. */
static void adjust(const char *preset, void *config)
{
    sparse_config *c = config;
    const bool cifar = strcmp(preset, "cifar10") == 0, enwik8 = strcmp(preset, "enwik8") == 0;
    c->attention = enwik8 || strcmp(preset, "tiny-fixed") == 0 ? FIXED : STRIDED;
    c->stride = cifar ? 32 * 3 : root_of(c->body.context);
    if (c->stride > c->body.context)
        c->stride = c->body.context;
    c->summary = enwik8 ? 32 : c->stride / 4;
    c->summary = c->summary < 1 ? 1 : c->summary > 8 && !enwik8 ? 8 : c->summary;
    if (c->summary > c->stride)
        c->summary = c->stride;
}

static by_pattern pattern(const arch_gpt2_config *body, int layer)
{
    const sparse_config *c = (const sparse_config *)body;
    const int part = c->mode == MERGED ? 0 : c->mode == HEADS ? 3 : layer % 2 + 1;
    return (by_pattern){.kind = c->attention == FIXED ? BY_PATTERN_FIXED : BY_PATTERN_STRIDED,
                        .length = c->stride,
                        .after = c->attention == FIXED ? c->summary : 0,
                        .part = part};
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    arch_gpt2_build(g, config, io, &(arch_gpt2_variant){.pattern = pattern});
}

static by_status check(const void *config)
{
    const sparse_config *c = config;
    BY_TRY(arch_gpt2_check(config));
    if (c->attention == FIXED && c->summary > c->stride)
        return base_fail(BY_ERR_ARGUMENT,
                         "attention_summary is %d; a block of attention_stride has %d positions", c->summary,
                         c->stride);
    if (c->mode == HEADS && c->body.heads < 2)
        return base_fail(BY_ERR_ARGUMENT, "attention_mode \"heads\" needs at least two heads");
    return BY_OK;
}

const arch_family arch_sparse_transformer = {
    .family = "sparse-transformer",
    .title = "Sparse Transformer (Child et al. 2019)",
    .classes = {[BY_TASK_LM] = "SparseTransformerLMHeadModel",
                [BY_TASK_CLASSIFY] = "SparseTransformerForSequenceClassification",
                [BY_TASK_TAG] = "SparseTransformerForTokenClassification",
                [BY_TASK_ANSWER] = "SparseTransformerForQuestionAnswering",
                [BY_TASK_FEATURES] = "SparseTransformerModel"},
    .pretrained = BY_TASK_LM,
    .prefix = "transformer.",
    .head = "lm_head.weight",
    .table = "transformer.wte.weight",
    .head_offset = offsetof(sparse_config, body.head),
    .aliases = arch_gpt2_aliases,
    .tokens = {-1, -1, -1},
    ARCH_TABLES(sparse_config),
    .check = check,
    .adjust = adjust,
    .adapted = "c_attn",
    .build = build,
};
