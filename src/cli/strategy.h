/* strategy.h - options shared by the verbs that generate: beam search, and constraints on the text. */
#ifndef BY_CLI_STRATEGY_H
#define BY_CLI_STRATEGY_H

#include "banyan/generate.h"
#include "banyan/rewrite.h"
#include "cli/options.h"
#include "text/tokenizer.h"

typedef struct cli_strategy {
    int beams, returned, groups, min_new, no_repeat, no_source;
    double length_penalty, diversity, repeat, presence, frequency, source_repeat;
    double top_h, epsilon, eta, max_time;
    unsigned early_stopping;
    cli_list ban, bias, stop;
    const char *force_first, *force_last, *begin, *start;
    bool explain, renormalize, remove_invalid;
} cli_strategy;

/* clang-format off */
/* The rows of a verb's table that fill a member `strategy` of its options. */
#define CLI_BEAM_ROWS(type, default_beams)                                                                   \
    {CLI_AT(type, strategy.beams), .name = "beams", CLI_RANGE(1, 64), .preset = default_beams,               \
     .help = "beam search with N hypotheses per text; 1 turns it off", .group = "Beam search"},              \
    {CLI_AT(type, strategy.returned), .name = "return", CLI_RANGE(1, 64), .preset = "1",                     \
     .help = "print the N best texts with their scores"},                                                    \
    {CLI_AT(type, strategy.length_penalty), .name = "length-penalty", CLI_RANGE(-100, 100), .preset = "1",   \
     .help = "divide scores by length^penalty; values above 0 favour long texts"},                           \
    {CLI_AT(type, strategy.early_stopping), .name = "early-stopping", .choices = "false|true|never",         \
     .preset = "false", .help = "true: stop once there are as many finished texts as beams; never: stop "    \
             "when none can improve"},                                                                       \
    {CLI_AT(type, strategy.groups), .name = "groups", CLI_RANGE(1, 64), .preset = "1",                       \
     .help = "divide the beams into N groups that avoid each other"},                                        \
    {CLI_AT(type, strategy.diversity), .name = "diversity", CLI_RANGE(0, 1e3), .preset = "0",                \
     .help = "subtract this from a token for each earlier group that chose it in the same step"},            \
    {CLI_AT(type, strategy.renormalize), .name = "renormalize",                                              \
     .help = "renormalise probabilities after the constraints"}

#define CLI_END_ROWS(type)                                                                                   \
    {CLI_AT(type, strategy.stop), .name = "stop",                                                            \
     .help = "end a text at this string, which is not printed"},                                             \
    {CLI_AT(type, strategy.max_time), .name = "max-time", .value = "SECONDS", CLI_RANGE(0, 1e9),             \
     .preset = "0", .help = "end a text after this time; 0 sets no limit"}

#define CLI_CUTOFF_ROWS(type)                                                                                \
    {CLI_AT(type, strategy.epsilon), .name = "epsilon-cutoff", CLI_RANGE(0, 1), .preset = "0",               \
     .help = "keep tokens of at least this probability; 0 keeps all"},                                       \
    {CLI_AT(type, strategy.eta), .name = "eta-cutoff", CLI_RANGE(0, 1), .preset = "0",                       \
     .help = "the same with a bound that falls as entropy grows; 0 keeps all"},                              \
    {CLI_AT(type, strategy.top_h), .name = "top-h", CLI_RANGE(0, 1), .preset = "0",                          \
     .help = "keep the most likely tokens that hold this share of the entropy; 0 keeps all"}

#define CLI_CONSTRAINT_ROWS(type)                                                                            \
    {CLI_AT(type, strategy.repeat), .name = "repeat-penalty", .alias = "repetition-penalty",                 \
     CLI_RANGE(1e-3, 1e3), .preset = "1", .group = "Constraints",                                            \
     .help = "above 1, make tokens of the prompt and of the text less likely"},                              \
    {CLI_AT(type, strategy.presence), .name = "presence-penalty", CLI_RANGE(-1e3, 1e3), .preset = "0",       \
     .help = "subtract this from the logit of every generated token"},                                       \
    {CLI_AT(type, strategy.frequency), .name = "frequency-penalty", CLI_RANGE(-1e3, 1e3), .preset = "0",     \
     .help = "subtract this for each time a token was generated"},                                           \
    {CLI_AT(type, strategy.no_repeat), .name = "no-repeat-ngram", CLI_RANGE(0, 1e9), .preset = "0",          \
     .help = "never repeat a run of N tokens; 0 allows it"},                                                 \
    {CLI_AT(type, strategy.source_repeat), .name = "source-penalty",                                         \
     .alias = "encoder-repetition-penalty", CLI_RANGE(1e-3, 1e3), .preset = "1",                             \
     .help = "above 1, make tokens of the source more likely (decoders: of the prompt)"},                    \
    {CLI_AT(type, strategy.no_source), .name = "no-source-ngram", .alias = "encoder-no-repeat-ngram-size",   \
     CLI_RANGE(0, 1e9), .preset = "0", .help = "never copy a run of N tokens of the source; 0 allows it"},   \
    {CLI_AT(type, strategy.bias), .name = "bias", .value = "TEXT=NUMBER",                                    \
     .help = "add NUMBER to the logit of the last token of TEXT, with or without a space before it"},        \
    {CLI_AT(type, strategy.remove_invalid), .name = "remove-invalid",                                        \
     .help = "replace NaN logits by 0 and infinite ones by the largest finite number; otherwise they "       \
             "are an error"},                                                                                \
    {CLI_AT(type, strategy.start), .name = "decoder-start", .value = "TOKEN",                                \
     .help = "first decoder token of an encoder-decoder"},                                                   \
    {CLI_AT(type, strategy.ban), .name = "ban", .value = "WORDS",                                            \
     .help = "never generate this text, with or without a space before it"},                                 \
    {CLI_AT(type, strategy.min_new), .name = "min-new-tokens", CLI_RANGE(0, 1e9), .preset = "0",             \
     .help = "suppress the end-of-text token for the first N tokens"},                                       \
    {CLI_AT(type, strategy.begin), .name = "begin", .value = "TEXT",                                         \
     .help = "make the generated text begin with TEXT"},                                                     \
    {CLI_AT(type, strategy.force_first), .name = "force-first", .value = "TOKEN",                            \
     .help = "force the first new token, given as text or id"},                                              \
    {CLI_AT(type, strategy.force_last), .name = "force-last", .value = "TOKEN",                              \
     .help = "force the last token when --max-new-tokens is reached"}
/* clang-format on */

/* The tokens named by a strategy. */
typedef struct cli_constraints {
    by_ids banned; /* single tokens: the caller may add some before */
    by_ids tokens; /* of all words, concatenated */
    by_words *words;
    int count;
    by_ids begin;
    int32_t first, last, start;
    by_ids bias_tokens;
    by_bias *biases;
    int bias_count;
} cli_constraints;

/* Texts to tokens; without a tokenizer, texts are lists of ids. BY_ERR_ARGUMENT naming the option. */
by_status cli_constraints_open(const cli_strategy *o, const by_tokenizer *t, cli_constraints *out);
/* Adds banned words; their memory must outlive c. */
by_status cli_constraints_add(cli_constraints *c, const by_words *words, int count);
void cli_constraints_close(cli_constraints *c); /* zero state is legal */

/* Takes settings that were not given from the model's directory: beams, penalties, bans, lengths for a prompt
 * of `prompt` tokens (1: an encoder-decoder). most: maximum new tokens, 0: unknown. d must outlive the
 * spec. */
by_status cli_strategy_merge(const by_rewrite_defaults *d, const cli_args *args, const cli_strategy *given,
                             int prompt, int most, cli_strategy *s, cli_constraints *c);
/* Takes cutoffs that were not given from the model's directory, if it asks for sampling. */
void cli_strategy_cutoffs(const by_rewrite_defaults *d, const cli_args *args, const cli_strategy *given,
                          cli_strategy *s);
/* An error if an option that cuts off tokens was given and none are sampled. */
by_status cli_check_cutoffs(const cli_args *args, double temperature);
/* The same for a spec that is otherwise complete: tokens that end or begin a text, decay, biases. */
void cli_strategy_finish(const by_rewrite_defaults *d, const cli_strategy *s, by_generate_spec *spec);

/* Put everything into a spec; c must outlive it. */
void cli_strategy_apply(const cli_strategy *o, const cli_constraints *c, by_generate_spec *spec);

/* In the library 0 disables a cutoff by probability; on the command line 0 means the single most likely
 * token. */
double cli_share(double p);

/* "1, 2 3" to ids; `what` names the option in the message. */
by_status cli_parse_ids(const char *what, const char *text, by_ids *out);

/* Prints an explanation of by_generate as text or as one JSON object. tokenizer NULL: tokens are shown as
 * ids. `name` is the number of the text, -1 if there is only one. */
by_status cli_explain(const by_tokenizer *t, const by_explanation *why, int name, bool json);

#endif
