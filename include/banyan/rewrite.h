/* rewrite.h - text generation by encoder-decoders: translation, summaries, answers, image captions. */
#ifndef BANYAN_REWRITE_H
#define BANYAN_REWRITE_H

#include "banyan/generate.h"
#include "banyan/picture_set.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The generation settings of a model directory, from generation_config.json, or from config.json if there is
 * no such file. The entry `task` of task_specific_params in config.json ("summarization",
 * "translation_en_to_de") overrides them. An unsupported key that would change the text is an error that
 * names it. For a model without a length limit, sources are truncated at model_max_length of
 * tokenizer_config.json, otherwise at 1024 tokens. */
typedef struct by_rewrite_defaults {
    by_generate_spec generate; /* beam, penalties, constraints; points into the fields below */
    /* Total tokens, including the prompt or the decoder start token; 0: not set. */
    int max_length, min_length;
    int max_new, min_new;          /* new tokens; 0: not set. Override the lengths */
    bool sample, greedy;           /* do_sample is true; do_sample is false. Neither: not set */
    int32_t *stops, *first_banned; /* eos_token_id, begin_suppress_tokens */
    int32_t *suppressed, start;    /* suppress_tokens, decoder_start_token_id */
    by_bias *biases;               /* sequence_bias */
    int32_t *bias_tokens;
    char **stop_strings;
    int max_source; /* maximum tokens of a source; 0: as many as the model accepts */
    char *prefix;   /* prepended to every source, or NULL */
    int32_t first, last, *banned;
    by_words *words;
    int32_t *word_tokens;
    int vocab; /* vocabulary size of the model */
} by_rewrite_defaults;
/* Loads the settings. task may be NULL; an unknown task is an error that lists the known ones. The caller
 * frees *out, also after a failure. */
BY_API by_status by_rewrite_defaults_load(const by_model *m, const char *dir, const char *task,
                                          by_rewrite_defaults *out);
/* Sets only the limit on source length, without loading generation settings. */
BY_API by_status by_rewrite_defaults_none(const by_model *m, const char *dir, by_rewrite_defaults *out);
/* Applies settings given as a JSON object, with the names of the reference library, on top of *d. A null
 * eos_token_id means that no token ends a text. An unknown name is an error. */
BY_API by_status by_rewrite_defaults_read(const by_model *m, const char *json, by_rewrite_defaults *d);
/* The maximum and minimum number of new tokens for a prompt of this length (for any source, if the model is
 * an encoder-decoder). 0: not set. */
BY_API int by_rewrite_defaults_most(const by_rewrite_defaults *d, int prompt);
BY_API int by_rewrite_defaults_least(const by_rewrite_defaults *d, int prompt);
BY_API void by_rewrite_defaults_free(by_rewrite_defaults *d); /* resets to the zero state */

typedef struct by_rewriter_spec {
    /* max_new_tokens 0: twice the source length plus 32, or 32 for pictures, limited by the context.
     * tokenizer NULL: the rewriter's. */
    by_generate_spec generate;
    int batch;          /* sources per batch; 0: 32 */
    const char *prefix; /* prepended to every source, or NULL */
    bool truncate;      /* truncate a source that is too long for the model; otherwise it is an error */
    int max_source;     /* truncate sources to this many tokens; 0: no limit */
} by_rewriter_spec;

typedef struct by_rewriter by_rewriter;
/* The model, the tokenizer and everything that spec points to are borrowed. Returns NULL on failure. */
BY_API by_rewriter *by_rewriter_new(by_model *m, const by_tokenizer *t, const by_rewriter_spec *spec);
BY_API void by_rewriter_free(by_rewriter *r);

typedef struct by_rewriting {
    char *text;  /* without special tokens; free with by_rewritings_free */
    size_t size; /* bytes of text, which may contain NUL characters */
    float score; /* beam search: log-probability / length^penalty; otherwise 0 */
    int tokens;  /* generated tokens, special ones included */
    bool cut;    /* the source was truncated */
} by_rewriting;

/* Generates beam.returned (or 1) texts for every source; *out is (count, returned). Sources of similar length
 * are batched together. An empty source gives an empty text. *out is NULL on failure. */
BY_API by_status by_rewriter_run(by_rewriter *r, const char *const *texts, int count, by_rewriting **out);
/* The same for pictures `first` to `first` + `count` - 1 of a dataset, with a captioning model. */
BY_API by_status by_rewriter_caption(by_rewriter *r, const by_processor *processor, const by_picture_set *set,
                                     int64_t first, int count, by_rewriting **out);
BY_API void by_rewritings_free(by_rewriting *list, int count);
BY_API int by_rewriter_returned(const by_rewriter *r);
BY_API int by_rewriter_most(const by_rewriter *r); /* maximum tokens of a source; 0: unlimited */

#ifdef __cplusplus
}
#endif
#endif
