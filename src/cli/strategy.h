/* strategy.h - options that verbs which generate share: beam search, and constraints on what comes. */
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
/* The rows of a verb's table that fill a member `strategy` of its options; beams: how many by default. */
#define CLI_BEAM_ROWS(type, default_beams)                                                                    \
    {CLI_AT(type, strategy.beams), .name = "beams", CLI_RANGE(1, 64), .preset = default_beams, \
     .help = "beam search: hypotheses that grow side by side; 1: none", .group = "Beam search"},              \
    {CLI_AT(type, strategy.returned), .name = "return", CLI_RANGE(1, 64), .preset = "1",                      \
     .help = "the best so many texts, with their scores"},                                                    \
    {CLI_AT(type, strategy.length_penalty), .name = "length-penalty", CLI_RANGE(-100, 100), .preset = "1",    \
     .help = "scores are divided by length^penalty; above 0 favours long texts"},                             \
    {CLI_AT(type, strategy.early_stopping), .name = "early-stopping", .choices = "false|true|never",          \
     .preset = "false", .help = "true: with as many texts as beams; never: when none can become better"},     \
    {CLI_AT(type, strategy.groups), .name = "groups", CLI_RANGE(1, 64), .preset = "1",                        \
     .help = "groups of beams that are kept apart"},                                                          \
    {CLI_AT(type, strategy.diversity), .name = "diversity", CLI_RANGE(0, 1e3), .preset = "0",                 \
     .help = "taken off a token each time an earlier group has chosen it"},                                   \
    {CLI_AT(type, strategy.renormalize), .name = "renormalize",                                               \
     .help = "probabilities add up to 1 again after the constraints"}

#define CLI_END_ROWS(type)                                                                                    \
    {CLI_AT(type, strategy.stop), .name = "stop",                                                             \
     .help = "end where this text comes; it is no part of the output"},                                       \
    {CLI_AT(type, strategy.max_time), .name = "max-time", .value = "SECONDS", CLI_RANGE(0, 1e9),              \
     .preset = "0", .help = "end after this time; 0: no limit"}

#define CLI_CUTOFF_ROWS(type)                                                                                 \
    {CLI_AT(type, strategy.epsilon), .name = "epsilon-cutoff", CLI_RANGE(0, 1), .preset = "0",                \
     .help = "only tokens with this probability or more; 0: all"},                                            \
    {CLI_AT(type, strategy.eta), .name = "eta-cutoff", CLI_RANGE(0, 1), .preset = "0",                        \
     .help = "the same with a bound that falls as the entropy grows; 0: all"},                                \
    {CLI_AT(type, strategy.top_h), .name = "top-h", CLI_RANGE(0, 1), .preset = "0",                           \
     .help = "only the likeliest that have this share of the entropy; 0: all"}

#define CLI_CONSTRAINT_ROWS(type)                                                                             \
    {CLI_AT(type, strategy.repeat), .name = "repeat-penalty", .alias = "repetition-penalty",                  \
     CLI_RANGE(1e-3, 1e3), .preset = "1", .group = "Constraints",                                             \
     .help = "above 1, makes what was there less likely, prompt included"},                                   \
    {CLI_AT(type, strategy.presence), .name = "presence-penalty", CLI_RANGE(-1e3, 1e3), .preset = "0",        \
     .help = "subtracted from the logits of tokens generated before"},                                        \
    {CLI_AT(type, strategy.frequency), .name = "frequency-penalty", CLI_RANGE(-1e3, 1e3), .preset = "0",      \
     .help = "subtracted each time the token was generated"},                                                 \
    {CLI_AT(type, strategy.no_repeat), .name = "no-repeat-ngram", CLI_RANGE(0, 1e9), .preset = "0",           \
     .help = "no run of N tokens comes twice; 0: off"},                                                       \
    {CLI_AT(type, strategy.source_repeat), .name = "source-penalty",                                          \
     .alias = "encoder-repetition-penalty", CLI_RANGE(1e-3, 1e3), .preset = "1",                              \
     .help = "above 1, makes tokens of the source more likely (of a decoder: of the prompt)"},                \
    {CLI_AT(type, strategy.no_source), .name = "no-source-ngram", .alias = "encoder-no-repeat-ngram-size",    \
     CLI_RANGE(0, 1e9), .preset = "0", .help = "no run of N tokens of the source comes; 0: off"},             \
    {CLI_AT(type, strategy.bias), .name = "bias", .value = "TEXT=NUMBER",                                     \
     .help = "added to the logit of the last token of this text, with or without a space before it"},         \
    {CLI_AT(type, strategy.remove_invalid), .name = "remove-invalid",                                         \
     .help = "NaN logits become 0 and infinite ones finite; otherwise they are an error"},                    \
    {CLI_AT(type, strategy.start), .name = "decoder-start", .value = "TOKEN",                                 \
     .help = "texts of an encoder-decoder begin after this token"},                                           \
    {CLI_AT(type, strategy.ban), .name = "ban", .value = "WORDS",                                             \
     .help = "this text never comes, with or without a space before it"},                                     \
    {CLI_AT(type, strategy.min_new), .name = "min-new-tokens", CLI_RANGE(0, 1e9), .preset = "0",              \
     .help = "no end of text before so many"},                                                                \
    {CLI_AT(type, strategy.begin), .name = "begin", .value = "TEXT",                                          \
     .help = "what is generated begins with this"},                                                           \
    {CLI_AT(type, strategy.force_first), .name = "force-first", .value = "TOKEN",                             \
     .help = "the first new token: its text, or its id"},                                                     \
    {CLI_AT(type, strategy.force_last), .name = "force-last", .value = "TOKEN",                               \
     .help = "the last one when --max-new-tokens is reached"}
/* clang-format on */

/* The tokens that a strategy speaks of. */
typedef struct cli_constraints {
    by_ids banned; /* single tokens: the caller may add some before */
    by_ids tokens; /* of all words, one behind the other */
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
/* Words that never come besides; what they point to must outlive c. */
by_status cli_constraints_add(cli_constraints *c, const by_words *words, int count);
void cli_constraints_close(cli_constraints *c); /* zero state is legal */

/* Take over from the model's directory what was not given: beams, penalties, lengths for a prompt of so many
 * tokens (1: an encoder-decoder), bans. most: new tokens at most, 0: not known. d must outlive the spec. */
by_status cli_strategy_merge(const by_rewrite_defaults *d, const cli_args *args, const cli_strategy *given,
                             int prompt, int most, cli_strategy *s, cli_constraints *c);
/* The cutoffs of the model's directory that were not given; for texts that are drawn as it says. */
void cli_strategy_cutoffs(const by_rewrite_defaults *d, const cli_args *args, const cli_strategy *given,
                          cli_strategy *s);
/* The same for a spec that is otherwise complete: tokens that end or begin a text, decay, biases. */
void cli_strategy_finish(const by_rewrite_defaults *d, const cli_strategy *s, by_generate_spec *spec);

/* Put everything into a spec; c must outlive it. */
void cli_strategy_apply(const cli_strategy *o, const cli_constraints *c, by_generate_spec *spec);

/* In the library 0 switches a share off; on the command line it is what it says, the single likeliest token.
 */
double cli_share(double p);

/* "1, 2 3" to ids; `what` names the option in the message. */
by_status cli_parse_ids(const char *what, const char *text, by_ids *out);

/* Print an explanation of by_generate for people, or as one JSON object. tokenizer NULL: tokens are shown as
 * ids. `name` is the number of the text, -1 when there is only one. */
by_status cli_explain(const by_tokenizer *t, const by_explanation *why, int name, bool json);

#endif
