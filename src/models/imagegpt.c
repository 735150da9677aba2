/* imagegpt.c - Chen et al. 2020, "Generative Pretraining from Pixels". GPT-2 over the pixels of a small
 * picture in raster order. A pixel is one of the colours of a palette; a start token, the last row of the
 * table, precedes the first pixel. Norms have no mean subtraction and no bias. */
#include "base/base.h"
#include "base/json.h"
#include "models/models.h"
#include <math.h>
#include <stdlib.h>

#define WHOLE_ROOT "scale_attn_by_whole_root" /* of files that are written here */

static const arch_field fields[] = {
    ARCH_GPT2_BODY_FIELDS(arch_gpt2_config, , 513, 1024, 512, 24, 8, BY_QUICK_GELU),
    {"tie_word_embeddings", ARCH_FIELD_BOOL, offsetof(arch_gpt2_config, head.tied), false, 0, 1,
     ARCH_ROLE_TIED},
};

static const arch_key keys[] = {
    {.key = "reorder_and_upcast_attn"}, /* computed in f32 here in any case */
    {.key = WHOLE_ROOT},
    {.key = NULL},
};

/* Contexts are pictures: 28 x 28 with a palette of greys, and 32 x 32. */
static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 784},
    {"small", 24, 8, 512, 1024},
    {"medium", 36, 8, 1024, 1024},
    {"large", 48, 16, 1536, 1024},
};

/* The authors train without dropout. */
static void adjust(const char *preset, void *config)
{
    (void)preset;
    arch_gpt2_config *c = config;
    c->embd_drop = c->attn_drop = c->resid_drop = 0;
}

/* The start token is never predicted: the head has one row less than the table. */
static void put_colours(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    const arch_gpt2_config *c = top->config;
    by_tensor *weights =
        by_param(g, row->name, 2, (int64_t[]){c->vocab - 1, c->width}, (by_init){BY_INIT_NORMAL, c->std});
    arch_lm_head(g, io, by_io_output(io, "features"), weights, NULL);
}

/* Labels are predicted from the mean of all positions. */
static void put_labels(by_graph *g, by_model_io *io, const arch_top *top, const arch_head_row *row)
{
    by_tensor *mean = by_mean(g, by_io_output(io, "features"), 1); /* (B, C) */
    by_io_return(io, "logits",
                 nn_linear(g, row->name, mean,
                           &(nn_linear_spec){.out = io->labels, .no_bias = true, .std = top->std}));
}

static const arch_head_row heads[] = {
    {BY_TASK_LM, put_colours, "lm_head.weight", 0},
    {BY_TASK_CLASSIFY, put_labels, "score", 0},
    {.put = NULL},
};

static void build(by_graph *g, const void *config, by_model_io *io)
{
    arch_gpt2_build(g, config, io, &(arch_gpt2_variant){.norm = nn_rmsnorm, .heads = heads});
}

/* Versions 4.42 to 5.20 of the reference divide scores by floor(sqrt(D)), other versions by sqrt(D), which
 * differs if D is not a square. The version that wrote the model decides. */
static bool truncates(const char *version)
{
    char *end;
    const long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return (major == 4 && minor >= 42) || (major == 5 && minor <= 20);
}

static by_status read(const cJSON *json, void *config)
{
    const char *version;
    BY_TRY(base_json_string(json, "transformers_version", "", &version));
    return base_json_bool(json, WHOLE_ROOT, truncates(version), &((arch_gpt2_config *)config)->whole_root);
}

static bool write(cJSON *json, const void *config)
{
    const arch_gpt2_config *c = config;
    return !c->whole_root || base_json_put(json, WHOLE_ROOT, cJSON_CreateTrue());
}

static by_status check(const void *config)
{
    const arch_gpt2_config *c = config;
    if (c->vocab < 2)
        return base_fail(BY_ERR_ARGUMENT, "vocab_size is %d; it counts the colours and a start token",
                         c->vocab);
    if (c->head.tied)
        return base_fail(BY_ERR_UNSUPPORTED, "tie_word_embeddings: the head has a row less than the table");
    return arch_check_heads(c->width, c->heads);
}

/* config.json does not give the width of a picture; published models have square pictures. */
static by_canvas canvas(const void *config)
{
    const arch_gpt2_config *c = config;
    const int side = (int)lround(sqrt(c->context));
    const bool square = side * side == c->context;
    return (by_canvas){.height = square ? side : 1,
                       .width = square ? side : c->context,
                       .channels = 1,
                       .values = c->vocab - 1,
                       .positions = c->context,
                       .palette = true};
}

static const char *const ignored[] = {".attn.bias", ".attn.masked_bias", NULL};

const arch_family arch_imagegpt = {
    .family = "imagegpt",
    .title = "ImageGPT (Chen et al. 2020)",
    .classes = {[BY_TASK_LM] = "ImageGPTForCausalImageModeling",
                [BY_TASK_CLASSIFY] = "ImageGPTForImageClassification",
                [BY_TASK_FEATURES] = "ImageGPTModel"},
    .pretrained = BY_TASK_LM,
    .objective = "pixels",
    .prefix = "transformer.",
    .head_offset = offsetof(arch_gpt2_config, head),
    .aliases = arch_gpt2_aliases,
    .keys = keys,
    .tokens = {-1, -1, -1},
    .ignored = ignored,
    .canvas = canvas,
    .start_row = true,
    .labels_by_mean = true,
    ARCH_TABLES(arch_gpt2_config),
    .check = check,
    .adjust = adjust,
    .read = read,
    .write = write,
    .adapted = "c_attn",
    .build = build,
};
