/* generating.h - the parts of `banyan generate`: verb_generate.c opens the model and runs it,
 * generated_texts.c prints. */
#ifndef BY_CLI_GENERATING_H
#define BY_CLI_GENERATING_H

#include "banyan/generate.h"
#include "cli/ngram_verbs.h"
#include "cli/prompts.h"
#include "cli/strategy.h"
#include "infer/stream.h"

typedef struct cli_generate_options {
    const char *prompt, *file, *device;
    const char *before, *after; /* of a hole */
    by_dtype dtype;
    const char *weights, *adapter;
    cli_strategy strategy;
    by_continuous_cache cache;
    cli_mix_options mix;
    int window, sinks;
    int max_new, context, threads, samples, top_k;
    double temp, top_p, min_p, typical;
    cli_list complete, upscale; /* pixel models */
    double keep;
    int scale, batch, limit;
    const char *out;
    int64_t seed;
    bool greedy, slide, ignore_eos, plain, ids, lines, echo, json, verbose;
} cli_generate_options;

/* One text in the making. */
typedef struct cli_generated {
    gen_stream stream;
    size_t shown; /* bytes of the stream's text already printed */
} cli_generated;

typedef struct cli_generation {
    cli_generate_options o;
    double started;
    by_device *device;
    by_model *model; /* NULL: the model is `ngram` */
    by_ngram *ngram; /* or the n-gram model mixed with it */
    by_ngram_mix mix;
    by_tokenizer *tokenizer; /* NULL with --ids */
    by_tokenizer *reader;    /* with --ids, for the stop strings of the model's directory; else NULL */
    by_generator *generator; /* NULL: an n-gram model needs none */
    cli_prompts prompts;
    cli_constraints constraints;
    by_rewrite_defaults defaults;
    cli_generated *samples;
    int width, first;                           /* texts at once, and the first of the present ones */
    bool live;                                  /* one text, printed as it comes */
    bool echoed;                                /* its prompt is printed */
    char last;                                  /* character printed last, 0: none */
    double first_token;                         /* time of the first token; 0: none yet */
    by_status status;                           /* status of an error inside the callback */
    int64_t prompt_tokens, new_tokens, decoded; /* decoded: with those of stop strings */
    double prompt_seconds, decode_seconds;
} cli_generation;

/* Texts for each prompt, and in all. */
int cli_texts_each(const cli_generation *j);
int64_t cli_texts_all(const cli_generation *j);
/* Of the text in a row: its prompt. */
const cli_prompt *cli_prompt_of(const cli_generation *j, int row);

/* Callbacks of by_generate; `user` is the job. */
bool cli_on_token(void *user, int row, int32_t token, float logprob);
void cli_on_explain(void *user, const by_explanation *why);

/* Prints the finished texts; returns an exit code. */
int cli_print_generated(cli_generation *j, const by_generate_result *result);
/* Ends the line that a text has begun. */
void cli_end_line(cli_generation *j);
/* Speed, on stderr. */
void cli_report_generated(const cli_generation *j);

#endif
