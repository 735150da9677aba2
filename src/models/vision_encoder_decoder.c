/* vision_encoder_decoder.c - captioning: an image encoder (ViT or DeiT) and a language model (GPT-2, or BERT
 * or RoBERTa as a decoder) with cross-attention. The family has a record for each decoder. */
#include "base/base.h"
#include "base/json.h"
#include "models/models.h"

typedef struct caption_config {
    arch_vit_config encoder;
    union {
        arch_gpt2_config gpt2;
        arch_bert_config bert; /* also for variants of RoBERTa */
    } decoder;
} caption_config;

#define ENCODER_FIELDS ARCH_VIT_PART_FIELDS("encoder.", caption_config, encoder.)
#define BERT_FIELDS(words, padding)                                                                       \
    ENCODER_FIELDS, ARCH_BERT_PART_FIELDS("decoder.", caption_config, decoder.bert., words, 512, padding, \
                                          BY_GELU, ARCH_ROLE_DECODER_LAYERS)
static const arch_field gpt2_fields[] = {ENCODER_FIELDS,
                                         ARCH_GPT2_PART_FIELDS("decoder.", caption_config, decoder.gpt2.,
                                                               50257, 1024, 768, 12, 12, BY_GELU_TANH,
                                                               ARCH_ROLE_DECODER_LAYERS),
                                         {"decoder.tie_word_embeddings", ARCH_FIELD_BOOL,
                                          offsetof(caption_config, decoder.gpt2.head.tied), true, 0, 1,
                                          ARCH_ROLE_TIED}},
                        bert_fields[] = {BERT_FIELDS(30522, 0)}, roberta_fields[] = {BERT_FIELDS(50265, 1)},
                        xlm_roberta_fields[] = {BERT_FIELDS(30522, 1)};

#define COMMON_KEYS                                                                     \
    {.key = "is_encoder_decoder", .neutral = "true"},                                   \
        {.key = "tie_word_embeddings"}, /* the decoder's decides */                     \
        {.key = "encoder.encoder_stride"},                                              \
        {.key = "decoder.is_decoder"}, /* it is one here, and attends to the encoder */ \
        {.key = "decoder.add_cross_attention"},                                         \
    {                                                                                   \
        .key = "decoder.classifier_dropout"                                             \
    }
static const arch_key gpt2_keys[] = {
    COMMON_KEYS,
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
static const arch_key bert_keys[] = {COMMON_KEYS, {.key = NULL}};

static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 64},
    {"small", 6, 6, 384, 128},
    {"base", 12, 12, 768, 1024},
};

static void adjust(const char *preset, void *config)
{
    caption_config *c = config;
    if (strcmp(preset, "tiny") == 0) {
        c->encoder.image[0] = c->encoder.image[1] = 32;
        c->encoder.patch[0] = c->encoder.patch[1] = 4;
    }
}

static void adjust_gpt2(const char *preset, void *config)
{
    ((caption_config *)config)->decoder.gpt2.inner = 0; /* four times the width */
    adjust(preset, config);
}

static void adjust_roberta(const char *preset, void *config)
{
    ((caption_config *)config)->decoder.bert.segments = 1;
    adjust(preset, config);
}

/* ---- nested models ----------------------------------------------------------------------------- */

/* The decoder determines the record. */
static by_status read(const cJSON *json, void *config)
{
    caption_config *c = config;
    const char *encoder;
    BY_TRY(
        base_json_string(cJSON_GetObjectItemCaseSensitive(json, "encoder"), "model_type", "vit", &encoder));
    if (strcmp(encoder, "vit") != 0 && strcmp(encoder, "deit") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: unsupported encoder \"%s\"; available: vit, deit",
                         encoder);
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
           put_default(decoder, "is_decoder", cJSON_CreateTrue()) &&
           put_default(decoder, "add_cross_attention", cJSON_CreateTrue()) &&
           put_default(json, "tie_word_embeddings", cJSON_CreateFalse());
}

cJSON *arch_caption_config(const cJSON *encoder, const cJSON *decoder, const char *family)
{
    cJSON *json = cJSON_CreateObject(), *part = json ? cJSON_Duplicate(decoder, true) : NULL;
    if (json && base_json_put(json, "decoder", part) &&
        base_json_put(json, "model_type", cJSON_CreateString("vision-encoder-decoder")) &&
        base_json_put(json, "is_encoder_decoder", cJSON_CreateTrue()) &&
        base_json_put(json, "encoder", cJSON_Duplicate(encoder, true)) &&
        base_json_put(json, "tie_word_embeddings", cJSON_CreateFalse()) &&
        base_json_put(part, "model_type", cJSON_CreateString(family)) &&
        base_json_put(part, "is_decoder", cJSON_CreateTrue()) &&
        base_json_put(part, "add_cross_attention", cJSON_CreateTrue()))
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* ---- the model ----------------------------------------------------------------------------------- */

/* Stores the encoder's output in the cache, or builds the language model; memory NULL: it is in the cache. */
typedef void (*part_fn)(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory);
typedef struct writer {
    int width;
    float std;
    int first; /* position */
    part_fn keep, build;
} writer;

/* pixels (B, Ch, H, W) -> (B, S, C), of the decoder's width. */
static by_tensor *encode(by_graph *g, const caption_config *c, by_model_io *io, const writer *w)
{
    by_scope_push(g, "encoder");
    by_tensor *x = arch_vit_body(g, &c->encoder, io, true);
    by_scope_pop(g);
    by_io_return(io, "memory", io->want_hidden ? by_output(g, NULL, x) : x);
    if (c->encoder.width == w->width)
        return x;
    return nn_linear(g, "enc_to_dec_proj", x, &(nn_linear_spec){.out = w->width, .std = w->std});
}

static void build_with(by_graph *g, const caption_config *c, by_model_io *io, const writer *w)
{
    by_tensor *tokens = by_io_input(io, "tokens");
    by_tensor *memory = io->part == BY_PART_DECODER ? NULL : encode(g, c, io, w);
    by_scope_push(g, "decoder");
    if (io->part == BY_PART_ENCODER && io->cache)
        w->keep(g, c, io, memory);
    if (io->part != BY_PART_ENCODER) {
        by_model_io writes = *io; /* the decoder is a language model */
        if (!by_io_input(io, "positions"))
            by_io_feed(&writes, "positions",
                       by_range_from(g, 2, (int64_t[]){by_dim(tokens, 0), by_dim(tokens, 1)}, w->first));
        writes.task = BY_TASK_LM;
        w->build(g, c, &writes, memory);
        io->outputs = writes.outputs;
        io->inputs = writes.inputs;
    }
    by_scope_pop(g);
}

static by_pictures pictures(const void *config)
{
    return arch_vit_pictures(&((const caption_config *)config)->encoder);
}

static const by_input_info inputs[] = {{"pixel_values", BY_F32, "BCHW", BY_PART_ENCODER, true},
                                       {"tokens", BY_I32, "BT", BY_PART_DECODER, true},
                                       {"positions", BY_I32, "BT", BY_PART_DECODER, false},
                                       {"pick", BY_I32, "N", BY_PART_DECODER, false},
                                       {0}};

#define CAPTIONS(type, name, its_fields, its_keys)                                               \
    .family = "vision-encoder-decoder", .title = "Vision encoder-decoder (ViT and " name ")",    \
    .classes = {[BY_TASK_SEQ2SEQ] = "VisionEncoderDecoderModel"}, .pretrained = BY_TASK_SEQ2SEQ, \
    .prefix = "", .text_part = "decoder", .text_type = type, .fields = its_fields,               \
    .n_fields = BY_COUNT(its_fields), .keys = its_keys, .config_size = sizeof(caption_config),   \
    .presets = presets, .n_presets = BY_COUNT(presets), .read = read, .write = write,            \
    .labels_in_place = true, .renamed = arch_vit_modules, .pictures = pictures, .inputs = inputs

/* ---- BERT ---------------------------------------------------------------------------------------- */

/* A decoder is causal, whatever its configuration says. */
static arch_bert_config causal(const caption_config *c)
{
    arch_bert_config d = c->decoder.bert;
    d.causal = true;
    return d;
}

static void keep_bert(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory)
{
    arch_bert_keep(g, &c->decoder.bert, io, "bert", memory);
}

static void write_bert(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory)
{
    const arch_bert_config d = causal(c);
    arch_bert_build(g, &d, io, &(arch_bert_variant){.body = "bert", .cross = true, .memory = memory});
}

static void build_bert(by_graph *g, const void *config, by_model_io *io)
{
    const caption_config *c = config;
    const arch_bert_config *d = &c->decoder.bert;
    build_with(g, c, io, &(writer){d->width, d->std, 0, keep_bert, write_bert});
}

static by_status check_bert(const void *config)
{
    const caption_config *c = config;
    BY_TRY(arch_vit_check(&c->encoder));
    return arch_bert_check(&c->decoder.bert);
}

static const arch_family captions_by_bert = {
    CAPTIONS("bert", "BERT", bert_fields, bert_keys),
    .head = "decoder.cls.predictions.decoder.weight",
    .table = "decoder.bert.embeddings.word_embeddings.weight",
    .head_offset = offsetof(caption_config, decoder.bert.head),
    .copies = arch_bert_copies,
    .tokens = {-1, 0, -1},
    .starts_with_eos = true,
    .adjust = adjust,
    .check = check_bert,
    .build = build_bert,
};

/* ---- RoBERTa and its variants -------------------------------------------------------------------- */

static void keep_roberta(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory)
{
    arch_bert_keep(g, &c->decoder.bert, io, "roberta", memory);
}

static void write_roberta(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory)
{
    const arch_bert_config d = causal(c);
    arch_roberta_build(g, &d, io, &(arch_bert_variant){.body = "roberta", .cross = true, .memory = memory});
}

static int first_position(const void *config)
{
    return arch_roberta_first_position(&((const caption_config *)config)->decoder.bert);
}

static void build_roberta(by_graph *g, const void *config, by_model_io *io)
{
    const caption_config *c = config;
    const arch_bert_config *d = &c->decoder.bert;
    build_with(g, c, io, &(writer){d->width, d->std, first_position(c), keep_roberta, write_roberta});
}

static by_status check_roberta(const void *config)
{
    const caption_config *c = config;
    BY_TRY(arch_vit_check(&c->encoder));
    return arch_roberta_check(&c->decoder.bert);
}

static int position_shape(const void *config, const arch_rows *rows, int64_t *dim)
{
    (void)config;
    dim[0] = rows->batch;
    dim[1] = rows->seq;
    return 2;
}

/* Padding has its own position and is not counted. */
static void fill_positions(const void *config, const arch_rows *rows, const int64_t *dim, int32_t *out)
{
    const int pad = ((const caption_config *)config)->decoder.bert.pad;
    for (int64_t b = 0; b < dim[0]; b++)
        for (int64_t t = 0, next = pad + 1; t < dim[1]; t++) {
            const int64_t i = b * dim[1] + t;
            out[i] = rows->tokens[i] == pad ? pad : (int32_t)next++;
        }
}

static const arch_derived positions[] = {{"positions", NULL, position_shape, fill_positions}, {.name = NULL}};

#define CAPTIONS_BY_ROBERTA(type, name, its_fields)                                                \
    CAPTIONS(type, name, its_fields, bert_keys),                                                   \
        .head = "decoder.lm_head.decoder.weight",                                                  \
        .table = "decoder.roberta.embeddings.word_embeddings.weight",                              \
        .head_offset = offsetof(caption_config, decoder.bert.head), .copies = arch_roberta_copies, \
        .tokens = {2, 1, -1}, .starts_with_eos = true, .first_position = first_position,           \
        .derived = positions, .adjust = adjust_roberta, .check = check_roberta, .build = build_roberta

static const arch_family captions_by_roberta = {CAPTIONS_BY_ROBERTA("roberta", "RoBERTa", roberta_fields)};
static const arch_family captions_by_xlm_roberta = {
    CAPTIONS_BY_ROBERTA("xlm-roberta", "XLM-RoBERTa", xlm_roberta_fields)};
static const arch_family captions_by_camembert = {
    CAPTIONS_BY_ROBERTA("camembert", "CamemBERT", xlm_roberta_fields)};

/* ---- GPT-2 --------------------------------------------------------------------------------------- */

static void keep_gpt2(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory)
{
    arch_gpt2_keep(g, &c->decoder.gpt2, io, memory);
}

static void write_gpt2(by_graph *g, const caption_config *c, by_model_io *io, by_tensor *memory)
{
    arch_gpt2_build(g, &c->decoder.gpt2, io, &(arch_gpt2_variant){.cross = true, .memory = memory});
}

static void build_gpt2(by_graph *g, const void *config, by_model_io *io)
{
    const caption_config *c = config;
    const arch_gpt2_config *d = &c->decoder.gpt2;
    build_with(g, c, io, &(writer){d->width, d->std, 0, keep_gpt2, write_gpt2});
}

static by_status check_gpt2(const void *config)
{
    const caption_config *c = config;
    BY_TRY(arch_vit_check(&c->encoder));
    return arch_gpt2_check(&c->decoder.gpt2);
}

static const char *const ignored[] = {".attn.bias", ".crossattention.bias", NULL};
static const arch_family *const variants[] = {&captions_by_bert, &captions_by_roberta,
                                              &captions_by_xlm_roberta, &captions_by_camembert, NULL};

const arch_family arch_vision_encoder_decoder = {
    CAPTIONS("gpt2", "GPT-2", gpt2_fields, gpt2_keys),
    .variants = variants,
    .modules = arch_vit_modules,
    .head = "decoder.lm_head.weight",
    .table = "decoder.transformer.wte.weight",
    .head_offset = offsetof(caption_config, decoder.gpt2.head),
    .tokens = {50256, -1, -1},
    .ignored = ignored,
    .adjust = adjust_gpt2,
    .check = check_gpt2,
    .build = build_gpt2,
};
