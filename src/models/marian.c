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
    BY_BART_FIELDS(58101, BY_SILU, 58100, true),
    BY_INT_FIELD(by_bart_config, target_vocab, "decoder_vocab_size", 0, 1, 1 << 24, BY_ROLE_TARGET_VOCAB),
    SHARED,
    BY_INT_FIELD(by_bart_config, context, "max_position_embeddings", 512, 1, 1 << 24, BY_ROLE_CONTEXT),
    BY_FLOAT_FIELD(by_bart_config, std, "init_std", 0.02, 0, 10, BY_ROLE_NONE),
};

static const by_field transformer_fields[] = {
    BY_BART_FIELDS(37000, BY_RELU, 0, true),
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

static const char *const ignored[] = {"encoder.embed_tokens.weight",
                                      "decoder.embed_tokens.weight",
                                      "encoder.embed_positions.weight",
                                      "decoder.embed_positions.weight",
                                      "lm_head.weight",
                                      NULL};

#define SAME                                                                                               \
    .pretrained = BY_TASK_SEQ2SEQ, .objective = "translate", .prefix = "model.", .head = "lm_head.weight", \
    .table = "model.shared.weight", .ignored = ignored, .config_size = sizeof(by_bart_config),             \
    .presets = presets, .n_presets = BY_COUNT(presets), .check = check, .labels_in_place = true,           \
    .build = by_bart_build

const by_arch by_arch_marian = {
    .family = "marian",
    .title = "Marian (Junczys-Dowmunt et al. 2018)",
    .classes = {[BY_TASK_SEQ2SEQ] = "MarianMTModel", [BY_TASK_FEATURES] = "MarianModel"},
    .fields = marian_fields,
    .n_fields = BY_COUNT(marian_fields),
    SAME,
};

const by_arch by_arch_transformer = {
    .family = "transformer",
    .title = "Transformer (Vaswani et al. 2017)",
    .classes = {[BY_TASK_SEQ2SEQ] = "TransformerForConditionalGeneration"},
    .fields = transformer_fields,
    .n_fields = BY_COUNT(transformer_fields),
    SAME,
};
