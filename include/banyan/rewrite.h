/* rewrite.h - texts out of texts: translation, summaries, answers, by an encoder-decoder. */
#ifndef BANYAN_REWRITE_H
#define BANYAN_REWRITE_H

#include "banyan/generate.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a model directory says about how its texts are to be generated: generation_config.json, or config.json
 * where there is no such file; then the entry `task` of config.json's task_specific_params ("summarization",
 * "translation_en_to_de"). A key that changes the text and is not supported is an error that names it.
 * Sources of a model that could read any length, which is a matter of memory, are cut at model_max_length of
 * tokenizer_config.json, else at 1024. */
typedef struct by_rewrite_defaults {
    by_generate_spec generate;  /* beam, penalties, constraints; points into what follows */
    int max_length, min_length; /* with the prompt, or the token that starts a decoder; 0: nothing is said */
    int max_new, min_new;       /* new tokens; 0: nothing is said. They come before the lengths */
    bool sample, greedy;        /* do_sample is true, is false; neither: nothing is said */
    int32_t *stops, *first_banned; /* eos_token_id; begin_suppress_tokens: in `generate`, too, as the rest: */
    int32_t *suppressed, start;    /* suppress_tokens; decoder_start_token_id */
    by_bias *biases;               /* sequence_bias */
    int32_t *bias_tokens;
    char **stop_strings;
    int max_source; /* tokens to read of a source; 0: as many as the model can */
    char *prefix;   /* put before every source, or NULL */
    int32_t first, last, *banned;
    by_words *words;
    int32_t *word_tokens;
    int vocab; /* of the model */
} by_rewrite_defaults;
/* task NULL: none; one that is not there is an error which lists those that are. To be freed also after a
 * failure. */
BY_API by_status by_rewrite_defaults_load(const by_model *m, const char *dir, const char *task,
                                          by_rewrite_defaults *out);
/* The same without generation settings: nothing but what bounds a source. */
BY_API by_status by_rewrite_defaults_none(const by_model *m, const char *dir, by_rewrite_defaults *out);
/* Settings as a JSON object with the names of the reference library, over those in *d. A null eos_token_id
 * means that nothing ends a text. A name that is not known is an error. */
BY_API by_status by_rewrite_defaults_read(const by_model *m, const char *json, by_rewrite_defaults *d);
/* The most and least new tokens for a prompt of this length; for an encoder-decoder, for any source. 0:
 * nothing is said. */
BY_API int by_rewrite_defaults_most(const by_rewrite_defaults *d, int prompt);
BY_API int by_rewrite_defaults_least(const by_rewrite_defaults *d, int prompt);
BY_API void by_rewrite_defaults_free(by_rewrite_defaults *d); /* back to the zero state */

typedef struct by_rewriter_spec {
    /* max_new_tokens 0: twice the source and 32 more, within the context; tokenizer NULL: the rewriter's */
    by_generate_spec generate;
    int batch;          /* sources at once; 0: 32 */
    const char *prefix; /* put before every source; NULL: nothing */
    bool truncate;      /* a source longer than the model reads is cut; otherwise it is an error */
    int max_source;     /* tokens that are read of a source, the rest is cut; 0: all */
} by_rewriter_spec;

typedef struct by_rewriter by_rewriter;
/* Model and tokenizer are borrowed, and so is what the spec points to. NULL on failure. */
BY_API by_rewriter *by_rewriter_new(by_model *m, const by_tokenizer *t, const by_rewriter_spec *spec);
BY_API void by_rewriter_free(by_rewriter *r);

typedef struct by_rewriting {
    char *text;  /* to be freed with by_rewritings_free */
    size_t size; /* bytes of it, which may hold NUL characters */
    float score; /* of a beam search: log-probability over length^penalty; else 0 */
    int tokens;  /* written */
    bool cut;    /* the source was too long */
} by_rewriting;

/* The texts of every source, of which there are beam.returned (or 1): out (count, returned). Sources of about
 * the same length go together; an empty source gives an empty text. *out is NULL on failure. */
BY_API by_status by_rewriter_run(by_rewriter *r, const char *const *texts, int count, by_rewriting **out);
BY_API void by_rewritings_free(by_rewriting *list, int count);
BY_API int by_rewriter_returned(const by_rewriter *r);
BY_API int by_rewriter_most(const by_rewriter *r); /* tokens of a source that are read; 0: there is no limit */

#ifdef __cplusplus
}
#endif
#endif
