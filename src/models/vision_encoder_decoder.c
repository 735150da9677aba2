/* vision_encoder_decoder.c - captions: an encoder of pictures (ViT or DeiT) and GPT-2, whose blocks attend to what the encoder
 * gives. */
#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct caption_config {
    arch_vit_config encoder;
    arch_gpt2_config decoder;
} caption_config;

static const arch_field fields[] = {
    ARCH_VIT_PART_FIELDS("encoder.", caption_config, encoder.),
    ARCH_GPT2_PART_FIELDS("decoder.", caption_config, decoder., 50257, 1024, 768, 12, 12, BY_GELU_TANH,
                          ARCH_ROLE_DECODER_LAYERS),
    {"decoder.tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(caption_config, decoder.head.tied), true, 0, 1,
     ARCH_ROLE_TIED},
};

static const arch_key keys[] = {
    {.key = "is_encoder_decoder", .neutral = "true"},
    {.key = "tie_word_embeddings"}, /* the decoder's decides */
    {.key = "encoder.encoder_stride"},
    {.key = "decoder.is_decoder"}, /* it is one here, and attends to the encoder */
    {.key = "decoder.add_cross_attention"},
    {.key = "decoder.classifier_dropout"},
    {.key = "decoder.hidden_dropout"},
    {.key = "decoder.reorder_and_upcast_attn"},
    {.key = "decoder.n_ctx"},
    {.key = "decoder.summary_type"},
    {.key = "decoder.summary_use_proj"},
    {.key = "decoder.summary_activation"},
    {.key = "decoder.summary_proj_to_labels"},
    {.key = "decoder.summary_first_dropout"},
    {.key = NULL},
};

static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 64},
    {"small", 6, 6, 384, 128},
    {"base", 12, 12, 768, 1024},
};

static void adjust(const char *preset, void *config)
{
    caption_config *c = config;
    c->decoder.inner = 0; /* four times the width */
    if (strcmp(preset, "tiny") == 0) {
        c->encoder.image = 32;
        c->encoder.patch = 4;
    }
}

/* ---- which models are inside ------------------------------------------------------------------- */

static by_status type_of(const cJSON *json, const char *part, const char *fallback, const char **out)
{
    const cJSON *inner = cJSON_GetObjectItemCaseSensitive(json, part);
    return base_json_string(inner, "model_type", fallback, out);
}

static by_status read(const cJSON *json, void *config)
{
    caption_config *c = config;
    const char *encoder, *decoder;
    BY_TRY(type_of(json, "encoder", "vit", &encoder));
    BY_TRY(type_of(json, "decoder", "gpt2", &decoder));
    if (strcmp(encoder, "vit") != 0 && strcmp(encoder, "deit") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: the encoder is a \"%s\"; there are: vit, deit",
                         encoder);
    if (strcmp(decoder, "gpt2") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: the decoder is a \"%s\"; there is: gpt2", decoder);
    c->encoder.distilled = strcmp(encoder, "deit") == 0;
    return BY_OK;
}

static bool put_default(cJSON *part, const char *key, cJSON *value)
{
    if (cJSON_HasObjectItem(part, key)) {
        cJSON_Delete(value);
        return true;
    }
    return base_json_put(part, key, value);
}

static bool write(cJSON *json, const void *config)
{
    const caption_config *c = config;
    cJSON *encoder = cJSON_GetObjectItemCaseSensitive(json, "encoder");
    cJSON *decoder = cJSON_GetObjectItemCaseSensitive(json, "decoder");
    return put_default(encoder, "model_type", cJSON_CreateString(c->encoder.distilled ? "deit" : "vit")) &&
           put_default(decoder, "model_type", cJSON_CreateString("gpt2")) &&
           put_default(decoder, "is_decoder", cJSON_CreateTrue()) &&
           put_default(decoder, "add_cross_attention", cJSON_CreateTrue()) &&
           put_default(json, "tie_word_embeddings", cJSON_CreateFalse());
}

static bool put_copy(cJSON *json, const char *key, const cJSON *part)
{
    return base_json_put(json, key, cJSON_Duplicate(part, true));
}

cJSON *arch_caption_config(const cJSON *encoder, const cJSON *decoder)
{
    cJSON *json = cJSON_CreateObject();
    if (json && base_json_put(json, "model_type", cJSON_CreateString("vision-encoder-decoder")) &&
        base_json_put(json, "is_encoder_decoder", cJSON_CreateTrue()) && put_copy(json, "encoder", encoder) &&
        put_copy(json, "decoder", decoder) && put_default(json, "tie_word_embeddings", cJSON_CreateFalse()) &&
        base_json_put(cJSON_GetObjectItemCaseSensitive(json, "decoder"), "is_decoder", cJSON_CreateTrue()) &&
        base_json_put(cJSON_GetObjectItemCaseSensitive(json, "decoder"), "add_cross_attention",
                      cJSON_CreateTrue()))
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* pixels (B, Ch, H, W) -> (B, S, C), of the decoder's width. */
static by_tensor *encode(by_graph *g, const caption_config *c, by_model_io *io)
{
    by_scope_push(g, "encoder");
    by_tensor *x = arch_vit_body(g, &c->encoder, io, true);
    by_scope_pop(g);
    by_io_return(io, "memory", io->want_hidden ? by_output(g, NULL, x) : x);
    if (c->encoder.width == c->decoder.width)
        return x;
    return nn_linear(g, "enc_to_dec_proj", x,
                     &(nn_linear_spec){.out = c->decoder.width, .std = c->decoder.std});
}

static void build(by_graph *g, const void *config, by_model_io *io)
{
    const caption_config *c = config;
    by_tensor *tokens = by_io_input(io, "tokens");
    by_tensor *memory = io->part == BY_PART_DECODER ? NULL : encode(g, c, io);
    by_scope_push(g, "decoder");
    if (io->part == BY_PART_ENCODER && io->cache)
        arch_gpt2_keep(g, &c->decoder, io, memory);
    if (io->part != BY_PART_ENCODER) {
        by_model_io writes = *io; /* the decoder is a language model */
        if (!by_io_input(io, "positions"))
            by_io_feed(&writes, "positions",
                       by_range(g, 2, (int64_t[]){by_dim(tokens, 0), by_dim(tokens, 1)}));
        writes.task = BY_TASK_LM;
        arch_gpt2_build(g, &c->decoder, &writes, &(arch_gpt2_variant){.cross = true, .memory = memory});
        io->outputs = writes.outputs;
        io->inputs = writes.inputs;
    }
    by_scope_pop(g);
}

static by_pictures pictures(const void *config)
{
    return arch_vit_pictures(&((const caption_config *)config)->encoder);
}

static by_status check(const void *config)
{
    const caption_config *c = config;
    BY_TRY(arch_vit_check(&c->encoder));
    return arch_gpt2_check(&c->decoder);
}

static const by_input_info inputs[] = {{"pixel_values", BY_F32, "BCHW", BY_PART_ENCODER, true},
                                       {"tokens", BY_I32, "BT", BY_PART_DECODER, true},
                                       {"positions", BY_I32, "BT", BY_PART_DECODER, false},
                                       {"pick", BY_I32, "N", BY_PART_DECODER, false},
                                       {0}};

static const char *const ignored[] = {".attn.bias", ".crossattention.bias", NULL};

const arch_family arch_vision_encoder_decoder = {
    .family = "vision-encoder-decoder",
    .title = "Vision encoder-decoder (ViT and GPT-2)",
    .classes = {[BY_TASK_SEQ2SEQ] = "VisionEncoderDecoderModel"},
    .pretrained = BY_TASK_SEQ2SEQ,
    .prefix = "",
    .modules = arch_vit_modules,
    .head = "decoder.lm_head.weight",
    .table = "decoder.transformer.wte.weight",
    .head_offset = offsetof(caption_config, decoder.head),
    .keys = keys,
    .tokens = {50256, -1, -1},
    .text_part = "decoder",
    .ignored = ignored,
    .fields = fields,
    .n_fields = BY_COUNT(fields),
    .config_size = sizeof(caption_config),
    .presets = presets,
    .n_presets = BY_COUNT(presets),
    .adjust = adjust,
    .read = read,
    .write = write,
    .check = check,
    .labels_in_place = true,
    .pictures = pictures,
    .inputs = inputs,
    .build = build,
};
