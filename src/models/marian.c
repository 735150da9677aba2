/* marian.c - Vaswani et al. 2017, "Attention Is All You Need", and the layout in which Marian's translation
 * models (Junczys-Dowmunt et al. 2018) are published. Sinusoidal positions, embeddings times the root of the
 * width and shared by both texts and the head; norms after every sub-layer, or before (Wang et al. 2019). The
 * blocks are BART's. */
#include "base/base.h"
#include "models/models.h"

#define SHARED                                                                                           \
    {                                                                                                    \
        "share_encoder_decoder_embeddings", BY_FIELD_BOOL, offsetof(by_bart_config, shared), true, 0, 1, \
            BY_ROLE_SHARED                                                                               \
    }

static const by_field marian_fields[] = {
    BY_BART_FIELDS(58101, BY_GELU, 58100, false, 1024, 12, 16, 4096),
    BY_INT_FIELD(by_bart_config, target_vocab, "decoder_vocab_size", 0, 1, 1 << 24, BY_ROLE_TARGET_VOCAB),
    SHARED,
    BY_INT_FIELD(by_bart_config, context, "max_position_embeddings", 1024, 1, 1 << 24, BY_ROLE_CONTEXT),
    BY_FLOAT_FIELD(by_bart_config, std, "init_std", 0.02, 0, 10, BY_ROLE_NONE),
};

/* As the published models are. */
static void adjust_marian(const char *preset, void *config)
{
    by_bart_config *c = config;
    (void)preset;
    c->act = BY_SILU;
    c->scale_embedding = true;
}

static const by_field transformer_fields[] = {
    BY_BART_FIELDS(37000, BY_RELU, 0, true, 512, 6, 8, 2048),
    BY_INT_FIELD(by_bart_config, target_vocab, "decoder_vocab_size", 0, 1, 1 << 24, BY_ROLE_TARGET_VOCAB),
    SHARED,
    BY_INT_FIELD(by_bart_config, context, "max_position_embeddings", 512, 1, 1 << 24, BY_ROLE_CONTEXT),
    BY_FLOAT_FIELD(by_bart_config, std, "init_std", 0, 0, 10, BY_ROLE_NONE), /* 0: Glorot's */
    {"normalize_before", BY_FIELD_BOOL, offsetof(by_bart_config, pre_norm), false, 0, 1, BY_ROLE_PRE_NORM},
};

static const by_preset presets[] = {
    {"tiny", 3, 4, 256, 256},
    {"small", 6, 4, 256, 512},
    {"base", 6, 8, 512, 512},
    {"big", 6, 16, 1024, 512},
};

static by_status check(const void *config)
{
    const by_bart_config *c = config;
    if (c->shared && c->target_vocab && c->target_vocab != c->vocab)
        return by_fail(
            BY_ERR_FORMAT,
            "decoder_vocab_size %d is not vocab_size %d, but share_encoder_decoder_embeddings is true",
            c->target_vocab, c->vocab);
    return by_bart_check(config);
}

static const char *const sines[] = {"encoder.embed_positions.weight", "decoder.embed_positions.weight", NULL};

#define SAME                                                                                      \
    .objective = "translate", .sines = sines, .presets = presets, .n_presets = BY_COUNT(presets), \
    .check = check, BY_BART_COMMON

const by_arch by_arch_marian = {
    .family = "marian",
    .title = "Marian (Junczys-Dowmunt et al. 2018)",
    .classes = {[BY_TASK_SEQ2SEQ] = "MarianMTModel", [BY_TASK_FEATURES] = "MarianModel"},
    .tokens = {0, 58100, 58100},
    .adjust = adjust_marian,
    .fields = marian_fields,
    .n_fields = BY_COUNT(marian_fields),
    SAME,
};

const by_arch by_arch_transformer = {
    .family = "transformer",
    .title = "Transformer (Vaswani et al. 2017)",
    .classes = {[BY_TASK_SEQ2SEQ] = "TransformerForConditionalGeneration"},
    .tokens = {-1, 0, -1},
    .fields = transformer_fields,
    .n_fields = BY_COUNT(transformer_fields),
    SAME,
};
