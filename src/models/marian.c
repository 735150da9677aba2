/* marian.c - Vaswani et al. 2017, "Attention Is All You Need", and the layout in which Marian's translation
 * models (Junczys-Dowmunt et al. 2018) are published. Sinusoidal positions; embeddings scaled by sqrt(width)
 * and shared by both texts and the head; norms after every sub-layer, or before (Wang et al. 2019). The
 * blocks are those of BART. */
#include "base/base.h"
#include "models/models.h"

#define SHARED                                                                                               \
    {                                                                                                        \
        "share_encoder_decoder_embeddings", ARCH_FIELD_BOOL, offsetof(arch_bart_config, shared), true, 0, 1, \
            ARCH_ROLE_SHARED                                                                                 \
    }

static const arch_field marian_fields[] = {
    ARCH_BART_FIELDS(58101, BY_GELU, 58100, false, 1024, 12, 16, 4096),
    ARCH_INT_FIELD(arch_bart_config, target_vocab, "decoder_vocab_size", 0, 1, 1 << 24,
                   ARCH_ROLE_TARGET_VOCAB),
    SHARED,
    ARCH_INT_FIELD(arch_bart_config, context, "max_position_embeddings", 1024, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_FLOAT_FIELD(arch_bart_config, std, "init_std", 0.02, 0, 10, ARCH_ROLE_INIT),
};

/* As the published models are. */
static void adjust_marian(const char *preset, void *config)
{
    arch_bart_config *c = config;
    (void)preset;
    c->act = BY_SILU;
    c->scale_embedding = true;
}

static const arch_field transformer_fields[] = {
    ARCH_BART_FIELDS(37000, BY_RELU, 0, true, 512, 6, 8, 2048),
    ARCH_INT_FIELD(arch_bart_config, target_vocab, "decoder_vocab_size", 0, 1, 1 << 24,
                   ARCH_ROLE_TARGET_VOCAB),
    SHARED,
    ARCH_INT_FIELD(arch_bart_config, context, "max_position_embeddings", 512, 1, 1 << 24, ARCH_ROLE_CONTEXT),
    ARCH_FLOAT_FIELD(arch_bart_config, std, "init_std", 0, 0, 10, ARCH_ROLE_INIT), /* 0: Glorot's */
    {"normalize_before", ARCH_FIELD_BOOL, offsetof(arch_bart_config, pre_norm), false, 0, 1,
     ARCH_ROLE_PRE_NORM},
};

static const arch_preset presets[] = {
    {"tiny", 3, 4, 256, 256},
    {"small", 6, 4, 256, 512},
    {"base", 6, 8, 512, 512},
    {"big", 6, 16, 1024, 512},
};

static by_status check(const void *config)
{
    const arch_bart_config *c = config;
    if (c->shared && c->target_vocab && c->target_vocab != c->vocab)
        return base_fail(
            BY_ERR_FORMAT,
            "decoder_vocab_size %d is not vocab_size %d, but share_encoder_decoder_embeddings is true",
            c->target_vocab, c->vocab);
    return arch_bart_check(config);
}

static const char *const sines[] = {"encoder.embed_positions.weight", "decoder.embed_positions.weight", NULL};

#define SAME                                                                                      \
    .objective = "translate", .sines = sines, .presets = presets, .n_presets = BY_COUNT(presets), \
    .check = check, ARCH_BART_COMMON

const arch_family arch_marian = {
    .family = "marian",
    .title = "Marian (Junczys-Dowmunt et al. 2018)",
    .classes = {[BY_TASK_SEQ2SEQ] = "MarianMTModel", [BY_TASK_FEATURES] = "MarianModel"},
    .tokens = {0, 58100, 58100},
    .adjust = adjust_marian,
    .fields = marian_fields,
    .n_fields = BY_COUNT(marian_fields),
    SAME,
};

const arch_family arch_transformer = {
    .family = "transformer",
    .title = "Transformer (Vaswani et al. 2017)",
    .training = {.pre_norm = true},
    .classes = {[BY_TASK_SEQ2SEQ] = "TransformerForConditionalGeneration"},
    .tokens = {-1, 0, -1},
    .fields = transformer_fields,
    .n_fields = BY_COUNT(transformer_fields),
    SAME,
};
