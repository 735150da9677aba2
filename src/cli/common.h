/* common.h - helpers of several verbs: find the model and its tokenizer, open the device. */
#ifndef BY_CLI_COMMON_H
#define BY_CLI_COMMON_H

#include "banyan/graph.h"
#include "cli/options.h"
#include "text/tokenizer.h"

/* The kinds of models, determined from the contents of a path. This is the only place that decides. */
typedef enum cli_kind_of_model {
    CLI_MODEL_NEURAL, /* or something else: opening it reports the error */
    CLI_MODEL_NGRAM   /* a directory, a binary or an ARPA file (banyan/ngram.h) */
} cli_kind_of_model;
cli_kind_of_model cli_model_kind(const char *path);

/* Returns the model directory for `path`: `path` itself if it holds config.json, else the best or last model
 * of the run folder. Heap string (base_free), or NULL with an error. */
char *cli_model_dir(const char *path);

/* Sets the error for a missing model directory. For a name of the Hugging Face hub it has the command that
 * fetches it. */
void cli_fail_absent(const char *path);

/* Loads the tokenizer of `path` (a model directory or a run folder), beside the model or in the run folder.
 * Returns NULL with an error that names the folder. */
by_tokenizer *cli_tokenizer(const char *path);

/* The type of the largest tensor of a model's file; others, such as norms, may be kept in f32. BY_F32 if it
 * cannot be opened, which is reported on opening the model. */
by_dtype cli_stored_type(const char *dir);

/* Notes on stderr that 16-bit weights will be converted to f32, and how to avoid the cost. dir may be
 * NULL. */
void cli_note_widening(const char *dir, by_dtype dtype);

/* The option --weights of verbs that open a model: how weights of products are stored. */
#define CLI_WEIGHTS(type, member)                                                                  \
    {                                                                                              \
        CLI_AT(type, member),                                                                      \
            .name = "weights", .choices = "q8_0|q4_0|bf16|f16",                                    \
            .help = "storage type of matrix weights: less memory, faster decoding, less precision" \
    }
/* The option --adapter of verbs that open a model. */
#define CLI_ADAPTER(type, member)                                                                         \
    {                                                                                                     \
        CLI_AT(type, member),                                                                             \
            .name = "adapter", .value = "DIR",                                                            \
            .help = "apply the PEFT adapter in DIR (adapter_config.json); an adapter folder can also be " \
                    "given as the model"                                                                  \
    }
by_dtype cli_weights(const char *name); /* BY_F32, which means dtype, for NULL */

/* Open a device by name ("cpu", "auto"; NULL: "auto") with this many threads, 0 for every core. NULL on
 * failure. */
by_device *cli_device(const char *name, int threads);

/* The items of an option such as --data. An item with commas is split unless a file has that name. Call
 * cli_list_free in every case. */
by_status cli_list_split(cli_list *out, const char *const *items, int count);
void cli_list_free(cli_list *l);

#endif
