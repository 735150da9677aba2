/* attention_pixels.h - `banyan attention` with a pixel model: attention of a pixel. */
#ifndef BY_CLI_ATTENTION_PIXELS_H
#define BY_CLI_ATTENTION_PIXELS_H

#include "banyan/model.h"

typedef struct cli_pixel_look {
    by_model *model;
    const char *dir, *picture, *out;
    const char *pixel; /* "R,C"; NULL: the middle of the last row but a quarter */
    int layer;         /* -1: all */
    bool json;
} cli_pixel_look;

/* Returns an exit code. */
int cli_attention_pixels(const cli_pixel_look *k);

#endif
