/* image_transformer.c - Parmar et al. 2018, "Image Transformer". A post-norm decoder over the values of a
 * picture, with local attention: queries see their own block and a memory around it. In one dimension, blocks
 * are runs of the raster; in two, rectangles, which are generated one after the other. A position is a
 * channel value out of 256, or a whole pixel under a discretised mixture of logistics. For super-resolution,
 * an encoder reads the small picture, and every decoder layer has cross-attention to its output. */
#include <math.h>

#include "base/base.h"
#include "models/models.h"

enum { LINES, RECTANGLES };    /* the words of ARCH_ROLE_BLOCKS, */
enum { CATEGORICAL, MIXTURE }; /* of ARCH_ROLE_DISTRIBUTION, */
enum { SINUSOIDAL, LEARNED };  /* and of ARCH_ROLE_COORDINATES */
enum { VALUES = 256 };         /* of a channel */

typedef struct config {
    int rows, columns, channels; /* of a picture */
    int width, layers, heads, inner;
    int block, memory; /* of lines */
    int block_rows, block_columns, memory_rows, memory_columns;
    int mixtures, blocks, distribution, coordinates;
    int upscale, encoder_layers; /* upscale 0: no encoder */
    by_act act;
    float eps, drop;
    bool scale_embedding;
    arch_head head;
} config;

static const arch_field fields[] = {
    ARCH_INT_FIELD(config, rows, "image_height", 32, 1, 4096, ARCH_ROLE_IMAGE),
    ARCH_INT_FIELD(config, columns, "image_width", 32, 1, 4096, ARCH_ROLE_IMAGE),
    ARCH_INT_FIELD(config, channels, "num_channels", 3, 1, 3, ARCH_ROLE_CHANNELS),
    ARCH_INT_FIELD(config, width, "hidden_size", 512, 1, 1 << 20, ARCH_ROLE_WIDTH),
    ARCH_INT_FIELD(config, layers, "num_hidden_layers", 12, 1, BY_MAX_LAYERS, ARCH_ROLE_LAYERS),
    ARCH_INT_FIELD(config, heads, "num_attention_heads", 4, 1, 4096, ARCH_ROLE_HEADS),
    ARCH_INT_FIELD(config, inner, "intermediate_size", 2048, 1, 1 << 22, ARCH_ROLE_INNER),
    ARCH_CHOICE_FIELD(config, blocks, "attention_blocks", ARCH_ROLE_BLOCKS),
    ARCH_INT_FIELD(config, block, "query_block_length", 256, 1, 1 << 24, ARCH_ROLE_BLOCK),
    ARCH_INT_FIELD(config, memory, "memory_length", 256, 0, 1 << 24, ARCH_ROLE_LOCAL_MEMORY),
    ARCH_INT_FIELD(config, block_rows, "query_block_height", 8, 1, 4096, ARCH_ROLE_BLOCK_ROWS),
    ARCH_INT_FIELD(config, block_columns, "query_block_width", 32, 1, 1 << 16, ARCH_ROLE_BLOCK_COLUMNS),
    ARCH_INT_FIELD(config, memory_rows, "memory_height", 8, 0, 4096, ARCH_ROLE_LOCAL_MEMORY_ROWS),
    ARCH_INT_FIELD(config, memory_columns, "memory_width", 8, 0, 1 << 16, ARCH_ROLE_LOCAL_MEMORY_COLUMNS),
    ARCH_CHOICE_FIELD(config, distribution, "output_distribution", ARCH_ROLE_DISTRIBUTION),
    ARCH_INT_FIELD(config, mixtures, "num_mixtures", 10, 1, 64, ARCH_ROLE_MIXTURES),
    ARCH_CHOICE_FIELD(config, coordinates, "position_encoding", ARCH_ROLE_COORDINATES),
    ARCH_INT_FIELD(config, upscale, "upscale_factor", 0, 2, 64, ARCH_ROLE_UPSCALE),
    ARCH_INT_FIELD(config, encoder_layers, "encoder_layers", 4, 1, BY_MAX_LAYERS, ARCH_ROLE_NONE),
    ARCH_ACT_FIELD(config, act, "hidden_act", BY_RELU),
    ARCH_FLOAT_FIELD(config, eps, "layer_norm_eps", 1e-6, 0, 1, ARCH_ROLE_NONE),
    ARCH_FLOAT_FIELD(config, drop, "dropout", 0.1, 0, 0.999, ARCH_ROLE_DROPOUT),
    ARCH_BOOL_FIELD(config, scale_embedding, "scale_embedding", false),
};

static const arch_key other_keys[] = {
    {.key = "tie_word_embeddings", .neutral = "false"},
    {.key = NULL},
};

/* "cifar10" and "cifar10-dmol" have the sizes of the authors' best models. */
static const arch_preset presets[] = {
    {"tiny", 4, 4, 128, 0},
    {"cifar10", 12, 4, 512, 0},
    {"cifar10-dmol", 12, 8, 256, 0},
};

static void adjust(const char *preset, void *into)
{
    config *c = into;
    const bool mixture = strcmp(preset, "cifar10-dmol") == 0;
    c->inner = mixture ? 2 * c->width : 4 * c->width;
    if (strcmp(preset, "cifar10") == 0)
        c->drop = 0.3f;
    if (mixture) {
        c->distribution = MIXTURE;
        c->coordinates = LEARNED;
    }
    if (strcmp(preset, "tiny") != 0)
        return;
    c->drop = 0;
    c->encoder_layers = 2;
    c->rows = c->columns = 28; /* grey, as in MNIST */
    c->channels = 1;
    c->block = c->memory = 196;
    c->block_rows = c->memory_rows = c->memory_columns = 7;
    c->block_columns = 14;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* Tokens of a position: a pixel, or one channel of it. */
static int tokens_of(const config *c)
{
    return c->distribution == MIXTURE ? c->channels : 1;
}

/* The grid of positions. */
static int grid_columns(const config *c)
{
    return c->distribution == MIXTURE ? c->columns : c->columns * c->channels;
}

static int positions_of(const config *c)
{
    return c->rows * grid_columns(c);
}

/* The raster index of the position generated at time t. */
static int place_of(const config *c, int t)
{
    const int columns = grid_columns(c), size = c->block_rows * c->block_columns;
    if (c->blocks == LINES)
        return t;
    const int across = columns / c->block_columns, block = t / size, inside = t % size;
    return (block / across * c->block_rows + inside / c->block_columns) * columns +
           block % across * c->block_columns + inside % c->block_columns;
}

/* The inverse. */
static int turn_of(const config *c, int place)
{
    const int columns = grid_columns(c), row = place / columns, column = place % columns;
    if (c->blocks == LINES)
        return place;
    const int block = row / c->block_rows * (columns / c->block_columns) + column / c->block_columns;
    return (block * c->block_rows + row % c->block_rows) * c->block_columns + column % c->block_columns;
}

/* Keys of a query rectangle: its memory at full size, then itself. */
static int block_keys(const config *c)
{
    return c->memory_rows * (c->block_columns + 2 * c->memory_columns) + c->block_rows * c->memory_columns +
           c->block_rows * c->block_columns;
}

static int block_count(const config *c)
{
    return positions_of(c) / (c->block_rows * c->block_columns);
}

/* The keys of block b by generation time, -1 outside of the picture. The memory precedes the block. */
static void list_keys(const config *c, int b, int32_t *out)
{
    const int columns = grid_columns(c), across = columns / c->block_columns;
    const int row = b / across * c->block_rows, column = b % across * c->block_columns;
    for (int r = row - c->memory_rows; r < row + c->block_rows; r++) {
        const int end = column + (r < row ? c->block_columns + c->memory_columns : 0);
        for (int k = column - c->memory_columns; k < end; k++)
            *out++ = r < 0 || k < 0 || k >= columns ? -1 : turn_of(c, r * columns + k);
    }
    for (int i = 0; i < c->block_rows * c->block_columns; i++)
        *out++ = b * c->block_rows * c->block_columns + i;
}

/* Whether position t sees the earlier position s. */
static bool is_near(const config *c, int t, int s)
{
    const int columns = grid_columns(c), across = columns / c->block_columns;
    const int block = t / (c->block_rows * c->block_columns);
    const int row = block / across * c->block_rows, column = block % across * c->block_columns;
    const int place = s < positions_of(c) ? place_of(c, s) : -1, r = place / columns, k = place % columns;
    return place >= 0 && r >= row - c->memory_rows && r < row + c->block_rows &&
           k >= column - c->memory_columns && k < column + c->block_columns + c->memory_columns;
}

static by_status check(const void *from)
{
    const config *c = from;
    const int columns = grid_columns(c);
    BY_TRY(arch_check_heads(c->width, c->heads));
    if (c->channels != 1 && c->channels != 3)
        return base_fail(BY_ERR_UNSUPPORTED, "num_channels is %d; expected 1 or 3", c->channels);
    if (c->width % (c->coordinates == SINUSOIDAL ? 4 : 2))
        return base_fail(BY_ERR_ARGUMENT, "hidden_size is %d; half of it encodes the row, half the column",
                         c->width);
    if (c->blocks == RECTANGLES && (c->rows % c->block_rows || columns % c->block_columns))
        return base_fail(BY_ERR_ARGUMENT,
                         "%d rows of %d positions are not a whole number of query blocks of %d rows of %d",
                         c->rows, columns, c->block_rows, c->block_columns);
    if (c->upscale && (c->rows % c->upscale || c->columns % c->upscale))
        return base_fail(BY_ERR_ARGUMENT, "%d x %d pixels are not divisible into squares of %d", c->columns,
                         c->rows, c->upscale);
    return BY_OK;
}

static by_canvas canvas(const void *from)
{
    const config *c = from;
    return (by_canvas){.height = c->rows,
                       .width = c->columns,
                       .channels = c->channels,
                       .values = VALUES,
                       .positions = positions_of(c),
                       .mixture = c->distribution == MIXTURE,
                       .upscale = c->upscale};
}

/* ---- inputs computed from a batch ------------------------------------------------------------ */

/* Positions of a pass: all, or those of a cached pass. */
static int64_t passed(const config *c, const arch_rows *r)
{
    return r->steps ? r->steps : positions_of(c);
}

/* (B, T, tokens): the tokens generated just before each position, as rows of the value table, or for a
 * mixture as values. The first position has none. */
static int previous_shape(const void *from, const arch_rows *r, int64_t *dim)
{
    dim[0] = r->batch;
    dim[1] = passed(from, r);
    dim[2] = tokens_of(from);
    return 3;
}

static void previous_fill(const void *from, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    const config *c = from;
    const int64_t all = (int64_t)c->rows * c->columns * c->channels;
    for (int64_t b = 0; b < dim[0]; b++)
        for (int64_t t = r->first; t < r->first + dim[1]; t++)
            for (int64_t i = 0; i < dim[2]; i++) {
                const int64_t at = t ? (int64_t)place_of(c, (int)t - 1) * dim[2] + i : 0;
                const int32_t v = t ? r->tokens[b * all + at] : 0;
                const bool bad = v < 0 || v >= VALUES; /* no row of the table */
                *out++ = bad ? -1 : dim[2] > 1 || !t ? v : (int32_t)(at % c->channels) * VALUES + v;
            }
}

/* (2, T): the row and the column of each position. */
static int places_shape(const void *from, const arch_rows *r, int64_t *dim)
{
    dim[0] = 2;
    dim[1] = passed(from, r);
    return 2;
}

static void places_fill(const void *from, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    const config *c = from;
    for (int64_t i = 0; i < 2 * dim[1]; i++) {
        const int place = place_of(c, (int)(r->first + i % dim[1]));
        *out++ = i < dim[1] ? place / grid_columns(c) : place % grid_columns(c);
    }
}

/* (B, T): the generation time of each raster position. */
static int turns_shape(const void *from, const arch_rows *r, int64_t *dim)
{
    const config *c = from;
    dim[0] = r->batch;
    dim[1] = positions_of(c);
    return c->blocks == LINES || r->steps ? 0 : 2;
}

static void turns_fill(const void *from, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    (void)r;
    for (int64_t i = 0; i < dim[0] * dim[1]; i++)
        *out++ = turn_of(from, (int)(i % dim[1]));
}

/* (2, B, blocks, S): the keys of every block, and a mask that is 0 outside of the picture. For a cached pass
 * over one position (B, M): 0 for keys that it does not see. */
static int keys_shape(const void *from, const arch_rows *r, int64_t *dim)
{
    const config *c = from;
    const int64_t whole[] = {2, r->batch, block_count(c), block_keys(c)}, one[] = {r->batch, r->room};
    memcpy(dim, r->steps ? one : whole, r->steps ? sizeof one : sizeof whole);
    return c->blocks == LINES ? 0 : r->steps ? 2 : 4;
}

static void keys_fill(const void *from, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    const config *c = from;
    const int keys = block_keys(c);
    if (r->steps) {
        for (int64_t i = 0; i < dim[0] * dim[1]; i++)
            *out++ = is_near(c, r->first, (int)(i % dim[1]));
        return;
    }
    const int64_t half = dim[1] * dim[2] * dim[3];
    for (int64_t i = 0; i < half; i += keys) {
        list_keys(c, (int)(i / keys % dim[2]), out + i);
        for (int k = 0; k < keys; k++) {
            out[half + i + k] = out[i + k] >= 0;
            out[i + k] = BY_MAX(out[i + k], 0);
        }
    }
}

/* (B, pixels, channels): the values of the input picture. A cached pass reads the encoder's output
 * instead. */
static int low_shape(const void *from, const arch_rows *r, int64_t *dim)
{
    const config *c = from;
    const by_canvas all = canvas(c);
    dim[0] = r->batch;
    dim[1] = by_canvas_low(&all) / c->channels;
    dim[2] = c->channels;
    return !c->upscale || r->steps ? 0 : 3;
}

static void low_fill(const void *from, const arch_rows *r, const int64_t *dim, int32_t *out)
{
    const by_canvas all = canvas(from);
    for (int64_t b = 0; b < dim[0]; b++)
        by_canvas_reduce(&all, r->tokens + b * all.height * all.width * all.channels,
                         out + b * dim[1] * dim[2]);
}

static const arch_derived derived[] = {{"previous", NULL, previous_shape, previous_fill},
                                       {"places", NULL, places_shape, places_fill},
                                       {"turns", NULL, turns_shape, turns_fill},
                                       {"keys", NULL, keys_shape, keys_fill},
                                       {"low", NULL, low_shape, low_fill},
                                       {.name = NULL}};

/* ---- the body -------------------------------------------------------------------------------- */

/* An input, or zeros while parameters are declared and plans are computed. steps: positions of a cached pass;
 * 0: all. */
static by_tensor *input_or_zeros(by_graph *g, const by_model_io *io, const arch_derived *how, const config *c,
                                 int steps)
{
    by_tensor *x = by_io_input(io, how->name), *tokens = x ? x : by_io_input(io, "tokens");
    const arch_rows rows = {.batch = (int)by_dim(tokens, 0), .steps = steps};
    int64_t dim[BY_MAX_RANK];
    const int rank = x ? 0 : how->shape(c, &rows, dim);
    return rank ? by_fill(g, BY_I32, rank, dim, 0) : x;
}

/* Rows of the value table, or pixel values, (B, T, tokens) -> (B, T, C). */
static by_tensor *embed_values(by_graph *g, const config *c, by_tensor *values)
{
    const int64_t batch = by_dim(values, 0), length = by_dim(values, 1);
    by_tensor *x;
    if (c->distribution == MIXTURE) {
        const float std = 1 / sqrtf((float)c->channels);
        const by_init normal = {BY_INIT_NORMAL, std}, zero = {BY_INIT_ZERO, 0};
        by_scope_push(g, "embed_pixels");
        by_tensor *w = by_param(g, "weight", 2, (int64_t[]){c->width, c->channels}, normal);
        by_tensor *bias = by_param(g, "bias", 1, (int64_t[]){c->width}, zero);
        by_scope_pop(g);
        x = by_scale(g, by_cast(g, values, by_type(w)), 1 / 127.5);
        x = by_linear(g, by_sub(g, x, by_fill(g, by_type(w), 0, NULL, 1)), w, bias, NULL);
    } else {
        const float std = c->scale_embedding ? 1 / sqrtf((float)c->width) : 1;
        x = nn_embedding(g, "embed_tokens", by_reshape(g, values, 2, (int64_t[]){batch, length}),
                         (int64_t)c->channels * VALUES, c->width, std);
    }
    return c->scale_embedding ? by_scale(g, x, sqrt(c->width)) : x;
}

/* The embedding of the tokens before each position, (B, T, tokens) -> (B, T, C); zeros for the first
 * position. */
static by_tensor *embed(by_graph *g, const config *c, const by_model_io *io)
{
    by_tensor *previous = input_or_zeros(g, io, &derived[0], c, io->cache != NULL),
              *positions = by_io_input(io, "positions");
    const int64_t batch = by_dim(previous, 0), length = by_dim(previous, 1);
    by_tensor *x = embed_values(g, c, previous);
    if (!io->cache)
        positions = by_range(g, 1, &length);
    const int64_t shape[3] = {io->cache ? batch : 1, length, 1};
    by_tensor *begun = by_clamp(g, by_cast(g, by_reshape(g, positions, 3, shape), by_type(x)), 0, 1);
    return by_mul(g, x, begun);
}

/* One coordinate: (T) -> (T, C / 2), alternating sines and cosines, or a table. */
static by_tensor *encode(by_graph *g, const config *c, const char *name, by_tensor *at, int rows,
                         by_dtype type)
{
    const int64_t length = by_dim(at, 0), half = c->width / 2;
    if (c->coordinates == LEARNED)
        return nn_embedding(g, name, at, rows, half, 1 / sqrtf((float)c->width));
    by_tensor *x = by_reshape(g, by_sines(g, at, half, type), 3, (int64_t[]){length, 2, half / 2});
    return by_reshape(g, by_permute_axes(g, x, (int[]){0, 2, 1}), 2, (int64_t[]){length, half});
}

static by_tensor *add_coordinates(by_graph *g, const config *c, const by_model_io *io, by_tensor *x)
{
    by_tensor *places = input_or_zeros(g, io, &derived[1], c, io->cache != NULL), *part[2];
    const int64_t length = by_dim(places, 1);
    for (int i = 0; i < 2; i++)
        part[i] = encode(g, c, i ? "column_embeddings" : "row_embeddings",
                         by_reshape(g, by_slice(g, places, 0, i, 1), 1, &length),
                         i ? grid_columns(c) : c->rows, by_type(x));
    return by_add(g, x, by_concat(g, part, 2, 1));
}

/* State shared by the layers of a graph. */
typedef struct layout {
    const config *c;
    by_tensor *turns;      /* (B, T); NULL: generation is in raster order */
    by_tensor *keys, *all; /* (B, blocks * S) i32; (B * blocks, S) i32: 0 beyond the border */
    by_tensor *pairs;      /* (1, 1, T, T): the same as a full mask, if attention weights are requested */
} layout;

/* Which keys the queries of each block see, as a mask by query. */
static by_tensor *pair_mask(by_graph *g, const layout *l)
{
    const int64_t length = positions_of(l->c), blocks = block_count(l->c), keys = block_keys(l->c);
    by_tensor *first = by_slice(g, l->keys, 0, 0, 1), *there = by_slice(g, l->all, 0, 0, blocks);
    by_tensor *ones = by_reshape(g, by_cast(g, there, BY_F32), 3, (int64_t[]){blocks, keys, 1});
    by_tensor *seen = by_scatter_add(g, ones, by_reshape(g, first, 2, (int64_t[]){blocks, keys}),
                                     length); /* (blocks, T, 1) */
    by_tensor *rows = by_fill(g, BY_F32, 3, (int64_t[]){blocks, length / blocks, length}, 0);
    seen = by_add(g, rows, by_reshape(g, seen, 3, (int64_t[]){blocks, 1, length}));
    return by_reshape(g, by_cast(g, seen, BY_I32), 4, (int64_t[]){1, 1, length, length});
}

static layout lay_out(by_graph *g, const config *c, const by_model_io *io)
{
    layout l = {.c = c};
    if (c->blocks == LINES || io->cache)
        return l;
    by_tensor *keys = input_or_zeros(g, io, &derived[3], c, 0);
    const int64_t batch = by_dim(keys, 1), blocks = by_dim(keys, 2), size = by_dim(keys, 3);
    l.turns = input_or_zeros(g, io, &derived[2], c, 0);
    l.keys = by_reshape(g, by_slice(g, keys, 0, 0, 1), 2, (int64_t[]){batch, blocks * size});
    l.all = by_reshape(g, by_slice(g, keys, 0, 1, 1), 2, (int64_t[]){batch * blocks, size});
    if (io->want_attention)
        l.pairs = pair_mask(g, &l);
    return l;
}

/* Reorders rows from generation order to raster order. */
static by_tensor *in_raster(by_graph *g, const layout *l, by_tensor *x)
{
    return l->turns ? by_take(g, x, l->turns) : x;
}

/* Attention of rectangles: each is an ordinary causal attention over its memory and itself. */
static by_tensor *attend_blocks(by_graph *g, const nn_attention_spec *spec, by_tensor *x, by_tensor *q,
                                by_tensor *k, by_tensor *v)
{
    (void)x;
    const layout *l = spec->user;
    const int64_t batch = by_dim(q, 0), length = by_dim(q, 1), width = by_dim(q, 2);
    const int64_t rows = by_dim(l->all, 0), keys = by_dim(l->all, 1);
    by_attention_spec op = spec->op;
    if (l->pairs) {
        op.pair_mask = l->pairs;
        return by_attention(g, q, k, v, &op);
    }
    op.key_mask = l->all;
    q = by_reshape(g, q, 3, (int64_t[]){rows, length * batch / rows, width});
    k = by_reshape(g, by_take(g, k, l->keys), 3, (int64_t[]){rows, keys, width});
    v = by_reshape(g, by_take(g, v, l->keys), 3, (int64_t[]){rows, keys, width});
    return by_reshape(g, by_attention(g, q, k, v, &op), 3, (int64_t[]){batch, length, width});
}

/* Shared by layers of the encoder and the decoder. */
static nn_encoder_spec layer_spec(const config *c)
{
    return (nn_encoder_spec){.attention = {.op = {.heads = c->heads},
                                           .query = "self_attn.q_proj",
                                           .key = "self_attn.k_proj",
                                           .value = "self_attn.v_proj",
                                           .out = "self_attn.out_proj",
                                           .no_bias = true,
                                           .no_out_bias = true},
                             .norm1 = "self_attn_layer_norm",
                             .wide = "fc1",
                             .narrow = "fc2",
                             .norm2 = "final_layer_norm",
                             .inner = c->inner,
                             .act = c->act,
                             .eps = c->eps,
                             .drop1 = c->drop,
                             .drop2 = c->drop};
}

/* Cross-attention of a layer to the small picture. */
static nn_attention_spec cross_spec(const config *c, const by_model_io *io, int layer)
{
    return (nn_attention_spec){.op = {.heads = c->heads},
                               .query = "encoder_attn.q_proj",
                               .key = "encoder_attn.k_proj",
                               .value = "encoder_attn.v_proj",
                               .out = "encoder_attn.out_proj",
                               .no_bias = true,
                               .no_out_bias = true,
                               .cache = io->part == BY_PART_WHOLE ? NULL : io->cache,
                               .layer = layer};
}

static by_tensor *block(by_graph *g, by_tensor *x, const layout *l, by_model_io *io, by_tensor *memory, int i)
{
    const config *c = l->c;
    const bool lines = c->blocks == LINES;
    const by_pattern pattern = {BY_PATTERN_MEMORY, .length = c->block, .before = c->memory};
    nn_encoder_spec layer = layer_spec(c);
    nn_attention_spec *a = &layer.attention;
    a->op.mask = BY_MASK_CAUSAL;
    a->op.pattern = lines ? pattern : (by_pattern){BY_PATTERN_FULL, 0, 0, 0, 0};
    a->op.key_mask = lines || !io->cache ? NULL : by_io_input(io, "keys");
    a->op.weights = arch_weights_slot(io);
    a->cache = io->cache;
    a->layer = i;
    a->attend = lines || io->cache ? NULL : attend_blocks;
    a->user = l;
    if (c->upscale) {
        layer.cross = cross_spec(c, io, i);
        layer.cross.op.weights = arch_cross_weights_slot(io);
        layer.cross_norm = "encoder_attn_layer_norm";
        layer.memory = memory;
    }
    by_block_push(g, "layers.%d", i);
    x = nn_encoder_block(g, x, &layer);
    by_block_pop(g);
    return x;
}

/* ---- the encoder ----------------------------------------------------------------------------- */

/* Rows and columns of a whole grid: (1, T, C). */
static by_tensor *grid_coordinates(by_graph *g, const config *c, by_dtype type)
{
    const int64_t rows = c->rows, columns = grid_columns(c), half = c->width / 2;
    by_tensor *at[2] = {by_range(g, 1, &rows), by_range(g, 1, &columns)}, *part[2];
    for (int i = 0; i < 2; i++) {
        part[i] =
            encode(g, c, i ? "column_embeddings" : "row_embeddings", at[i], (int)(i ? columns : rows), type);
        part[i] = by_reshape(g, part[i], 3, (int64_t[]){i ? 1 : rows, i ? columns : 1, half});
        part[i] = by_add(g, by_fill(g, type, 3, (int64_t[]){rows, columns, half}, 0), part[i]);
    }
    return by_reshape(g, by_concat(g, part, 2, 2), 3, (int64_t[]){1, rows * columns, c->width});
}

/* The encoder: input picture -> (B, S, C). Each position sees all. */
static by_tensor *encode_low(by_graph *g, const config *whole, by_model_io *io)
{
    config c = *whole;
    c.rows /= c.upscale;
    c.columns /= c.upscale;
    const int64_t channels = c.channels;
    by_tensor *low = input_or_zeros(g, io, &derived[4], whole, 0);
    by_scope_push(g, "encoder");
    if (c.distribution == CATEGORICAL) { /* each channel has its own rows of the table */
        by_tensor *first = by_scale(g, by_cast(g, by_range(g, 1, &channels), BY_F32), VALUES);
        low = by_cast(g, by_add(g, by_cast(g, low, BY_F32), first), BY_I32);
        low = by_reshape(g, low, 3, (int64_t[]){by_dim(low, 0), positions_of(&c), 1});
    }
    by_tensor *x = embed_values(g, &c, low);
    x = by_dropout(g, by_add(g, x, grid_coordinates(g, &c, by_type(x))), c.drop);
    for (int i = 0; i < c.encoder_layers; i++) {
        nn_encoder_spec layer = layer_spec(&c);
        arch_keep_source_hidden(g, io, x);
        layer.attention.op.weights = arch_source_weights_slot(io);
        by_block_push(g, "layers.%d", i);
        x = nn_encoder_block(g, x, &layer);
        by_block_pop(g);
    }
    arch_keep_source_hidden(g, io, x);
    by_scope_pop(g);
    return x;
}

/* Stores it in the cache. */
static void keep_low(by_graph *g, const config *c, by_model_io *io, by_tensor *memory)
{
    for (int i = 0; i < c->layers; i++) {
        const nn_attention_spec spec = cross_spec(c, io, i);
        by_scope_push(g, "layers.%d", i);
        nn_attention_keep(g, NULL, memory, &spec);
        by_scope_pop(g);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void put_values(by_graph *g, by_model_io *io, const config *c)
{
    const bool mixture = c->distribution == MIXTURE;
    const int64_t parts = c->channels == 1 ? 3 : 10, out = mixture ? c->mixtures * parts : VALUES;
    const by_init normal = {BY_INIT_NORMAL, mixture ? 0.02f : 1 / sqrtf((float)c->width)};
    by_tensor *weights = by_param(g, "lm_head.weight", 2, (int64_t[]){out, c->width}, normal);
    by_tensor *bias = mixture ? by_param(g, "lm_head.bias", 1, &out, (by_init){BY_INIT_ZERO, 0}) : NULL;
    arch_lm_head(g, io, by_io_output(io, "features"), weights, bias);
}

static by_tensor *loss(by_graph *g, const void *from, const by_model_io *io, by_tensor *targets)
{
    const config *c = from;
    return c->distribution == MIXTURE && io->task == BY_TASK_LM
               ? by_logistic_mixture(g, by_io_output(io, "logits"), targets, c->channels, NULL)
               : NULL;
}

/* The nats of each pixel, returned with hidden states. */
static void keep_losses(by_graph *g, const config *c, by_model_io *io)
{
    by_tensor *targets = by_io_input(io, "targets"), *each;
    if (c->distribution != MIXTURE || !io->want_hidden || !targets)
        return;
    by_logistic_mixture(g, by_io_output(io, "logits"), targets, c->channels, &each);
    each = by_reshape(g, each, 2, (int64_t[]){-1, positions_of(c)});
    by_io_return(io, "pixel_losses", by_output(g, NULL, each));
}

/* (B, T, C), in raster order; memory (B, S, C): of the encoder, or NULL. */
static by_tensor *decode(by_graph *g, const config *c, by_model_io *io, by_tensor *memory)
{
    by_tensor *x = add_coordinates(g, c, io, embed(g, c, io));
    const layout l = lay_out(g, c, io);
    x = by_dropout(g, x, c->drop);
    for (int i = 0; i < c->layers; i++) {
        if (io->want_hidden)
            arch_keep_hidden(g, io, in_raster(g, &l, x));
        x = block(g, x, &l, io, memory, i);
    }
    x = in_raster(g, &l, x);
    arch_keep_hidden(g, io, x);
    return x;
}

static void build(by_graph *g, const void *from, by_model_io *io)
{
    const config *c = from;
    by_scope_push(g, "model");
    by_tensor *memory = c->upscale && io->part != BY_PART_DECODER ? encode_low(g, c, io) : NULL;
    if (io->part == BY_PART_ENCODER && io->cache)
        keep_low(g, c, io, memory);
    by_tensor *x = io->part == BY_PART_ENCODER ? NULL : decode(g, c, io, memory);
    by_scope_pop(g);
    if (!x)
        return;
    by_io_return(io, "features", x);
    if (io->task != BY_TASK_LM)
        return;
    put_values(g, io, c);
    keep_losses(g, c, io);
}

static int place(const void *from, int t)
{
    return place_of(from, t);
}

static const by_input_info inputs[] = {{"tokens", BY_I32, "BT", BY_PART_DECODER, true},
                                       {"positions", BY_I32, "BT", BY_PART_DECODER, false},
                                       {0}};

const arch_family arch_image_transformer = {
    .family = "image-transformer",
    .title = "Image Transformer (Parmar et al. 2018)",
    .classes =
        {[BY_TASK_LM] = "ImageTransformerForCausalImageModeling", [BY_TASK_FEATURES] = "ImageTransformerModel"},
    .pretrained = BY_TASK_LM,
    .objective = "pixels",
    .prefix = "model.",
    .head_offset = offsetof(config, head),
    .keys = other_keys,
    .tokens = {-1, -1, -1},
    .labels_in_place = true,
    .predicts_itself = true,
    .canvas = canvas,
    .place = place,
    .derived = derived,
    .inputs = inputs,
    ARCH_TABLES(config),
    .check = check,
    .adjust = adjust,
    .build = build,
    .loss = loss,
};
