/* ngram_verbs.h - support for n-gram models in verbs. cli_model_kind (common.h) recognises them. */
#ifndef BY_CLI_NGRAM_VERBS_H
#define BY_CLI_NGRAM_VERBS_H

#include "banyan/evaluate.h"
#include "banyan/ngram.h"
#include "cli/options.h"

/* ---- train ------------------------------------------------------------------------------------------- */

typedef struct cli_ngram_options {
    int order;
    unsigned smoothing; /* by_smoothing */
    double k;
    cli_list prune, fallback;
    bool discount_fallback, interpolate_unigrams, skip_symbols, lines;
    const char *temporary, *arpa;
} cli_ngram_options;

/* clang-format off */
/* The rows of train's table that fill a member `ngram` of its options. */
#define CLI_NGRAM_ROWS(type)                                                                               \
    {CLI_AT(type, ngram.order), .name = "order", CLI_RANGE(1, BY_NGRAM_MAX_ORDER), .preset = "3",          \
     .help = "length of the longest n-grams", .group = "N-gram models (--model ngram)"},                   \
    {CLI_AT(type, ngram.smoothing), .name = "smoothing", .choices = "kneser-ney|add-k|stupid-backoff|mle", \
     .preset = "kneser-ney",                                                                               \
     .help = "interpolated modified Kneser-Ney, add-k, stupid back-off or maximum likelihood"},            \
    {CLI_AT(type, ngram.k), .name = "add-k", CLI_RANGE(0, 1e9), .preset = "1",                             \
     .help = "k of --smoothing add-k"},                                                                    \
    {CLI_AT(type, ngram.prune), .name = "prune", .value = "N",                                             \
     .help = "drop n-grams that occur at most N times: one non-decreasing number per order, the first 0; " \
             "the last applies to higher orders. 0 0 1 drops trigrams and above that occur once"},         \
    {CLI_AT(type, ngram.discount_fallback), .name = "discount-fallback",                                   \
     .help = "use 0.5, 1 and 1.5 where the Kneser-Ney discounts cannot be estimated"},                     \
    {CLI_AT(type, ngram.fallback), .name = "fallback-discounts", .value = "D",                             \
     .help = "the same with other discounts: three numbers, for counts of 1, 2, and 3 or more"},           \
    {CLI_AT(type, ngram.interpolate_unigrams), .name = "interpolate-unigrams", .preset = "yes",            \
     .help = "interpolate unigrams with the uniform distribution; without it <unk> gets the remaining "    \
             "probability, as in SRILM"},                                                                  \
    {CLI_AT(type, ngram.skip_symbols), .name = "skip-symbols",                                             \
     .help = "treat <s>, </s> and <unk> in the text as white space; otherwise they are an error"},         \
    {CLI_AT(type, ngram.lines), .name = "lines",                                                           \
     .help = "with --tokenizer: treat every line as a separate text, as for translations"},                \
    {CLI_AT(type, ngram.arpa), .name = "arpa", .value = "FILE",                                            \
     .help = "also write an ARPA file, compressed if its name ends in .gz"},                               \
    {CLI_AT(type, ngram.temporary), .name = "temporary", .value = "DIR",                                   \
     .help = "directory for sorted runs if counts do not fit in --memory (default: $TMPDIR or /tmp)"}
/* clang-format on */

/* Settings of `train` for estimating an n-gram model. */
typedef struct cli_ngram_run {
    const cli_ngram_options *options;
    const char *const *data, *const *eval_data;
    int data_count, eval_count;
    const char *tokenizer; /* NULL: words */
    const char *out;
    int64_t memory; /* bytes; 0: the library's */
    int threads;
    bool overwrite, json, quiet;
    const char *command, *given; /* for run.json */
} cli_ngram_run;
int cli_ngram_train(const cli_ngram_run *r);

/* ---- the other verbs --------------------------------------------------------------------------------- */

/* A model with its tokenizer. */
typedef struct cli_ngram {
    by_ngram *model;
    by_tokenizer *tokenizer;
} cli_ngram;
by_status cli_ngram_open(cli_ngram *n, const char *path);
void cli_ngram_close(cli_ngram *n); /* zero state is legal */

/* eval: perplexity of files. */
typedef struct cli_ngram_eval {
    const char *path;
    const char *const *data;
    int count;
    int64_t max_tokens;
    bool json, quiet;
} cli_ngram_eval;
int cli_ngram_evaluate(const cli_ngram_eval *e);

/* score: log10 probabilities of every line. */
typedef struct cli_ngram_score {
    const char *path;
    char *const *files;
    int count; /* 0: standard input */
    bool words, json;
    int width; /* decimals */
} cli_ngram_score;
int cli_ngram_scores(const cli_ngram_score *s);

/* ---- mixing an n-gram model with a neural model ------------------------------------------------------- */

typedef struct cli_mix_options {
    const char *path; /* NULL: there is none */
    double weight;
} cli_mix_options;

/* clang-format off */
/* The rows of a verb's table that fill a member `mix` of its options. */
#define CLI_MIX_ROWS(type, how)                                                                   \
    {CLI_AT(type, mix.path), .name = "ngram", .value = "MODEL", .group = "N-gram mixture",        \
     .help = "an n-gram model of the same tokens (train --model ngram --tokenizer MODEL) " how},  \
    {CLI_AT(type, mix.weight), .name = "ngram-weight", CLI_MIN(0), .preset = "0.3", .value = "W", \
     .help = "weight of the n-gram model"}
/* clang-format on */

/* Opens the model, if there is one, and checks that its tokens are those of t. The caller frees mix->model by
 * by_ngram_free. */
by_status cli_mix_open(const cli_mix_options *o, const by_tokenizer *t, by_ngram **model, by_ngram_mix *mix);

int cli_ngram_inspect(const char *path, bool words, bool json);
int cli_ngram_convert(const char *from, const char *to, bool json);

#endif
