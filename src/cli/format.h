/* format.h - numbers as people read them. */
#ifndef BY_CLI_FORMAT_H
#define BY_CLI_FORMAT_H

#include "base/base.h"

typedef struct cli_text {
    char s[64];
} cli_text;

cli_text cli_bytes_text(size_t bytes);                 /* 474.7 MiB */
cli_text cli_flops_text(double flops);                 /* 0.247 GFLOP */
cli_text cli_count_text(int64_t n);                    /* 124,439,808 */
cli_text cli_counted(int64_t n, const char *noun);     /* 1 layer, 12 layers, 50,257 tokens */
cli_text cli_shape_text(int rank, const int64_t *dim); /* (50257, 768) */

#endif
