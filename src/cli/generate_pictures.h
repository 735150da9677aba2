/* generate_pictures.h - `banyan generate` with a pixel model: a grid of samples, or pictures that are completed. */
#ifndef BY_CLI_GENERATE_PICTURES_H
#define BY_CLI_GENERATE_PICTURES_H

#include "cli/generating.h"

/* The model of j, which is open, makes pictures. Returns an exit code. */
int cli_run_pictures(cli_generation *j, const cli_args *args);

#endif
