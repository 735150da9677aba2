/* attention_pictures.h - `banyan attention` with a model that reads pictures: where it looks in one, and what it has learned about
 * positions and patches. */
#ifndef BY_CLI_ATTENTION_PICTURES_H
#define BY_CLI_ATTENTION_PICTURES_H

#include "banyan/model.h"

typedef enum cli_picture_show { CLI_SHOW_ATTENTION, CLI_SHOW_POSITIONS, CLI_SHOW_FILTERS } cli_picture_show;

typedef struct cli_picture_look {
    by_model *model;
    const char *name; /* of the model, as the user gave it */
    const char *dir, *picture, *out;
    const char *adapter; /* the folder of one, or NULL */
    const char *pixel;   /* "R,C": the patch that has this pixel looks; NULL: the class token */
    const char *target;  /* a caption; NULL: the model writes it */
    cli_picture_show show;
    int layer, head; /* -1: all */
    bool json;
} cli_picture_look;

/* Returns an exit code. */
int cli_attention_pictures(const cli_picture_look *k);

#endif
