/* pixel_options.h - options for pixel models, as rows of the tables of verbs. */
#ifndef BY_CLI_PIXEL_OPTIONS_H
#define BY_CLI_PIXEL_OPTIONS_H

#include "banyan/model.h"
#include "cli/options.h"

typedef struct cli_pixels {
    const char *block, *memory; /* "196", or rows and columns: "7x14" */
} cli_pixels;

/* clang-format off */
#define CLI_PIXEL_TRAIN_ROWS(type, run, x)                                                                  \
    {CLI_AT(type, run.images.colours), .name = "colours", .alias = "colors", CLI_RANGE(2, 65535),           \
     .help = "imagegpt: colours of the palette, learned by k-means (default: 512; 32 for grey pictures)",   \
     .group = "Pixel models"},                                                                              \
    {CLI_AT(type, run.images.palette), .name = "palette", .value = "DIR",                                   \
     .help = "imagegpt: use the palette of the preprocessor_config.json in this directory"},                \
    {CLI_AT(type, run.shape.distribution), .name = "distribution", .choices = "categorical|dmol",           \
     .help = "image-transformer: 256 values of a channel, or a discretised mixture of logistics for a "     \
             "pixel "                                                                                       \
             "(default: the preset's)"},                                                                    \
    {CLI_AT(type, run.shape.mixtures), .name = "mixtures", CLI_RANGE(1, 64),                                \
     .help = "image-transformer: components of the mixture (default: 10)"},                                 \
    {CLI_AT(type, run.shape.upscale), .name = "upscale", CLI_RANGE(2, 64),                                  \
     .help = "image-transformer: learn super-resolution by this factor; an encoder reads the picture "      \
             "averaged over N x N squares (default: no input picture)"},                                    \
    {CLI_AT(type, run.shape.coordinates), .name = "coordinates", .choices = "sinusoidal|learned",           \
     .help = "image-transformer: how rows and columns are encoded (default: the preset's)"},                \
    {CLI_AT(type, x.block), .name = "query-block", .value = "L|RxC",                                        \
     .help = "image-transformer: length of a query block, or with --attention 2d its rows and columns, as " \
             "in 7x14"},                                                                                    \
    {CLI_AT(type, x.memory), .name = "local-memory", .value = "L|RxC",                                      \
     .help = "image-transformer: positions before a query block that it attends to; 2d: rows above, "       \
             "columns on both sides"}
/* clang-format on */

/* Writes them into a shape. Returns false after reporting an error; the caller returns CLI_USAGE. */
bool cli_pixels_read(const cli_pixels *x, by_model_shape *shape);

#endif
