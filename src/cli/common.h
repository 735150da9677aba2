/* common.h - what several verbs do alike: find the model and its tokenizer, open the device. */
#ifndef BY_CLI_COMMON_H
#define BY_CLI_COMMON_H

#include "banyan/graph.h"
#include "text/tokenizer.h"

/* The model directory a user means: `path` itself when it holds config.json, otherwise the best or else the
 * last model of the run folder `path`. Heap string, base_free it; NULL with an error that says what was looked
 * for. */
char *cli_model_dir(const char *path);

/* Leave the error for a model directory that does not exist. A name of the Hugging Face hub gets the command
 * that fetches it. */
void cli_fail_absent(const char *path);

/* The tokenizer that belongs to `path` (a model directory or a run folder): beside the model, or in the run
 * folder. NULL with an error that names the folder. */
by_tokenizer *cli_tokenizer(const char *path);

/* Say on stderr when weights that are stored in 16 bits are about to be computed with in f32, and how to
 * avoid the cost. dir may be NULL. */
void cli_note_widening(const char *dir, by_dtype dtype);

/* The option --weights of verbs that open a model: how weights of products are stored. */
#define CLI_WEIGHTS(type, member)                                                                  \
    {                                                                                              \
        CLI_AT(type, member),                                                                      \
            .name = "weights", .choices = "q8_0|q4_0|bf16|f16",                                    \
            .help = "store the weights of products so: less memory, faster decoding, fewer digits" \
    }
by_dtype cli_weights(const char *name); /* BY_F32, which is as dtype says, for NULL */

/* Open a device by name ("cpu", "auto"; NULL: "auto") with so many threads, 0 for every core. NULL on
 * failure. */
by_device *cli_device(const char *name, int threads);

#endif
