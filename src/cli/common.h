/* common.h - helpers of several verbs: find the model and its tokenizer, open the device. */
#ifndef BY_CLI_COMMON_H
#define BY_CLI_COMMON_H

#include "banyan/graph.h"
#include "text/tokenizer.h"

/* Returns the model directory for `path`: `path` itself if it holds config.json, else the best or last model of the run
 * folder. Heap string (base_free), or NULL with an error. */
char *cli_model_dir(const char *path);

/* Sets the error for a missing model directory. For a name of the Hugging Face hub it has the command that fetches
 * it. */
void cli_fail_absent(const char *path);

/* Loads the tokenizer of `path` (a model directory or a run folder), beside the model or in the run folder. Returns NULL
 * with an error that names the folder. */
by_tokenizer *cli_tokenizer(const char *path);

/* Notes on stderr that 16-bit weights will be converted to f32, and how to avoid the cost. dir may be NULL. */
void cli_note_widening(const char *dir, by_dtype dtype);

/* The option --weights of verbs that open a model: how weights of products are stored. */
#define CLI_WEIGHTS(type, member)                                                                  \
    {                                                                                              \
        CLI_AT(type, member),                                                                      \
            .name = "weights", .choices = "q8_0|q4_0|bf16|f16",                                    \
            .help = "store the weights of products so: less memory, faster decoding, fewer digits" \
    }
by_dtype cli_weights(const char *name); /* BY_F32, which is as dtype says, for NULL */

/* Open a device by name ("cpu", "auto"; NULL: "auto") with this many threads, 0 for every core. NULL on
 * failure. */
by_device *cli_device(const char *name, int threads);

#endif
