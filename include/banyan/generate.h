/* generate.h - text generation with a language model: a key-value cache for a batch of sequences
 * (by_generator) and a sampling loop on top of it (by_generate). */
#ifndef BANYAN_GENERATE_H
#define BANYAN_GENERATE_H

#include "banyan/model.h"
#include "banyan/ngram.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the cache: feed tokens, read logits ----------------------------------------------------- */

/* A batch of sequences that grow independently, with their keys and values. */
typedef struct by_generator by_generator;
typedef struct by_generator_spec {
    int batch;           /* sequences (rows); 0: 1 */
    int capacity;        /* maximum positions of a row, at most the model's context; 0: the context */
    int source_capacity; /* encoder-decoders: maximum tokens of a source; 0: the context */
    int beams; /* rows form groups of this size, at most BY_BEAMS_MAX, that can be reordered; 0: 1 */
    /* Positions per page of the key-value cache: a power of two from 16 to 256. Rows allocate pages as they
     * grow and free them when they are rewound, so that memory is proportional to their contents. Not with
     * beams. 0: every row has memory for its full capacity, which is slightly faster. */
    int page;
    int pages; /* total number of pages; 0: enough to fill every row */
    /* Models with a memory, without beams and pages: a row keeps only the positions that its next tokens can
     * see, whatever its capacity. Rows can then be rewound only to 0; other rewinds are ignored. */
    bool endless;
} by_generator_spec;

/* The model must be a language model; it is borrowed. Returns NULL on failure. */
BY_API by_generator *by_generator_new(by_model *m, const by_generator_spec *spec);
BY_API void by_generator_free(by_generator *g);

/* Encoder-decoders: sets the source of each of the batch / beams groups of rows. Call this first. The encoder
 * runs once over sources[i][0..lengths[i]); a group whose source is NULL is not used. All rows become
 * empty. */
BY_API by_status by_generator_encode(by_generator *g, const int32_t *const *sources, const int *lengths);

/* The same for captioning models: each of the first `count` groups of rows reads one picture. */
typedef struct by_picture_batch {
    const float *values; /* (count, channels, height, width), preprocessed */
    int count, height, width;
} by_picture_batch;
BY_API by_status by_generator_see(by_generator *g, const by_picture_batch *pictures);

/* Appends tokens[row][0..counts[row]) to every row. A row with count 0 is unchanged (its pointer may be
 * NULL), and such rows cost nothing once they are at least half of all. Adjacent empty rows that get the same
 * tokens are computed once and share the result. A token outside the vocabulary or a row that would exceed
 * the capacity is BY_ERR_ARGUMENT, too few free pages are BY_ERR_MEMORY; in both cases nothing is fed. After
 * any other failure the contents of the rows are undefined until they are rewound to 0. */
BY_API by_status by_generator_feed(by_generator *g, const int32_t *const *tokens, const int *counts);

/* Logits (V) for the token after the last one fed to the row. NULL if nothing has been fed since the start or
 * a rewind, or if they cannot be read. Valid until the next feed. */
BY_API const float *by_generator_logits(by_generator *g, int row);

/* The highest logits and the normaliser: log-probabilities are logit - lse. */
typedef struct by_top_logits {
    const float *logits; /* (count) in descending order, ties in order of id */
    const int32_t *ids;  /* (count) */
    int count;
    float lse; /* log-sum-exp over the whole vocabulary; not finite if the logits are not */
} by_top_logits;

/* From now on a feed copies only the k (1 to BY_TOP_MAX, at most V) highest logits of every row to the host.
 * by_generator_logits then fetches a whole row from the device, for rows of the last feed only. 0: whole
 * rows, the default. */
BY_API by_status by_generator_keep_top(by_generator *g, int k);
/* NULL if the row has no logits, and with k = 0. Valid until the next feed. */
BY_API const by_top_logits *by_generator_top(const by_generator *g, int row);

/* Replaces the contents of row b by those of row from[b] of the same group, as a beam search does with its
 * hypotheses. Takes effect in the next feed. No row has logits afterwards. */
BY_API by_status by_generator_reorder(by_generator *g, const int32_t *from);

/* Truncates a row to its first `length` positions, at no cost. A no-op if the row is not longer. A recurrent
 * model keeps no earlier states: BY_ERR_UNSUPPORTED unless `length` is 0 or the length of the row. */
BY_API by_status by_generator_rewind(by_generator *g, int row, int length);

/* Greedy decoding on the device. Feeds tokens[row] to every active row, then the most likely next token, and
 * so on: `steps` tokens per row, at most 32, for which each row must have room. out (steps, batch) receives
 * the most likely token after each; the last one is not fed yet. Nothing is copied to the host in between,
 * which makes decoding on a GPU fast. Inactive rows and their part of out are unchanged. No row has logits
 * afterwards. */
BY_API by_status by_generator_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                                     int32_t *out);

/* Random numbers of a row. As in by_sampling, `sample` is the number of the text and `place` that of the new
 * token. */
typedef struct by_draw_spec {
    uint64_t seed, sample;
    int place;
    float temperature; /* positive */
} by_draw_spec;
/* As by_generator_greedy, but samples from softmax(logits / temperature) with the random numbers of
 * by_generate. draws has one entry per row. out is -1 where the logits are NaN. BY_ERR_UNSUPPORTED for models
 * without a cache. */
BY_API by_status by_generator_draw(by_generator *g, const int32_t *tokens, const bool *active,
                                   const by_draw_spec *draws, int steps, int32_t *out);

/* by_program_time for these steps. */
BY_API by_status by_generator_time(by_generator *g, by_trace_fn fn, void *user);

BY_API int by_generator_length(const by_generator *g, int row); /* positions in the row */
/* The model, number of rows, rows per group, and capacity of a row. */
BY_API by_model *by_generator_model(const by_generator *g);
BY_API int by_generator_batch(const by_generator *g);
BY_API int by_generator_beams(const by_generator *g);
BY_API int by_generator_capacity(const by_generator *g);
BY_API size_t by_generator_bytes(const by_generator *g); /* cache and activations in use */

/* ---- sampling -------------------------------------------------------------------------------- */

/* A word as a sequence of tokens. */
typedef struct by_words {
    const int32_t *tokens;
    int count;
} by_words;

/* A sequence of tokens and the bias on its last one. */
typedef struct by_bias {
    const int32_t *tokens;
    int count;
    double bias;
} by_bias;

/* How the next token is chosen from the logits. All zero is greedy decoding: the most likely token, the
 * lowest id of equals. Rules apply in the order of the fields, up to seed. "The source" is that of an
 * encoder-decoder, or the prompt of a decoder. */
typedef struct by_sampling {
    /* added to the last token of a sequence whose other tokens precede it; NULL: none */
    const by_bias *biases;
    int bias_count;
    /* tokens of the source: positive logits are multiplied by it, negative ones divided; above 1 favours
     * them; 0: off */
    double source_penalty;
    double repetition_penalty; /* tokens of prompt and text: positive logits are divided by it, negative ones
                                  multiplied; 0: off */
    double presence_penalty;   /* subtracted from the logits of tokens already generated */
    double frequency_penalty;  /* subtracted once per occurrence in the generated text */
    int no_repeat_ngram;       /* no n-gram of this size occurs twice, prompt included; 0: off */
    int no_source_ngram;       /* n-grams of this size from the source are banned; 0: off */
    const int32_t *banned;     /* tokens that are never generated; NULL: none */
    int banned_count;
    const by_words *words; /* sequences of tokens that are never generated; NULL: none */
    int word_count;
    int min_new_tokens;    /* stop tokens are banned before this many */
    const int32_t *prefix; /* the generated text starts with these; NULL: no constraint */
    int prefix_count;
    const int32_t *forced_first; /* the first new token; NULL: any */
    const int32_t *forced_bos;   /* the same after a prompt of one token, as in encoder-decoders */
    const int32_t *forced_last;  /* the last token that max_new_tokens allows; NULL: any */
    bool remove_invalid;       /* NaN becomes 0, infinities the largest finite numbers; otherwise an error */
    int decay_start;           /* after this many new tokens, scores x of stop tokens grow by */
    double decay;              /* |x| (decay^(tokens beyond) - 1); 0 and 1: off */
    const int32_t *suppressed; /* tokens that are never generated, even if forced; NULL: none */
    int suppressed_count;
    const int32_t *first_banned; /* tokens that are banned first, and after forced_bos; NULL: none */
    int first_banned_count;
    double temperature; /* divides the logits; 0: greedy, and the fields below have no effect */
    /* of the 100 most likely, keep the first whose terms -p log p sum to at most this fraction of the
     * entropy; 0: off */
    double top_h;
    int top_k;    /* keep the k most likely and ties with the last of them; 0: off */
    double top_p; /* keep the smallest set of most likely tokens with total probability p; 0 and 1: off */
    double min_p; /* keep tokens with at least this fraction of the highest probability; 0: off */
    /* keep the smallest set closest to the expected information content with total probability p; 0 and 1:
     * off */
    double typical_p;
    double epsilon_cutoff; /* drop tokens below this probability, except the most likely; 0: off */
    double eta_cutoff;     /* e: the same with the bound min(e, sqrt(e) exp(-entropy)); 0: off */
    uint64_t seed;         /* a draw depends only on (seed, sample, number of the new token) */
} by_sampling;

/* ---- beam search ----------------------------------------------------------------------------- */

typedef enum by_early_stopping {
    BY_STOP_HEURISTIC, /* when the best hypothesis, if it ended now, would not rank among the finished */
    BY_STOP_EARLY,     /* as soon as as many hypotheses are finished as there are beams */
    BY_STOP_NEVER      /* when no hypothesis could rank among the finished at any length */
} by_early_stopping;

/* Beam search. The rules of by_sampling before the temperature apply to log-probabilities. With a
 * temperature, continuations are sampled without replacement (docs/GENERATION.md); otherwise the search is
 * deterministic. */
typedef struct by_beam {
    int width;             /* hypotheses; 0 and 1: no beam search */
    int groups;            /* of diverse beam search (Vijayakumar et al. 2018); 0: 1 */
    double diversity;      /* subtracted from a token once per earlier group that chose it in this step */
    double length_penalty; /* scores are divided by length^penalty; above 0 favours long texts */
    by_early_stopping early_stopping; /* when the search ends */
    int returned;                     /* best hypotheses in the result, 0: 1 */
    bool renormalize;                 /* renormalise probabilities after the rules */
} by_beam;

/* ---- explanations ---------------------------------------------------------------------------- */

enum { BY_EXPLAIN_CANDIDATES = 16, BY_EXPLAIN_CHANGES = 16 };

typedef enum by_fate {
    BY_FATE_PASSED,    /* possible, but another was better or was sampled */
    BY_FATE_RULED_OUT, /* banned by a rule */
    BY_FATE_CHOSEN,    /* the next token; in a beam search, that of a hypothesis that continues */
    BY_FATE_FINISHED,  /* beam search: the end of a finished hypothesis */
    BY_FATE_TOO_LATE   /* beam search: an end that is not among the best, or worse than all finished */
} by_fate;

/* The effect of a rule on a candidate. */
typedef struct by_change {
    const char *rule;
    float share; /* probability after the rule; 0: banned. Not normalised in a beam search */
} by_change;

typedef struct by_candidate {
    int32_t token;
    float probability; /* under the model */
    by_change changes[BY_EXPLAIN_CHANGES];
    int n_changes;
    float share; /* probability after all rules, renormalised */
    by_fate fate;
    /* beam search: the hypothesis that it continues, the sum of log-probabilities including it, and the score
     * of a finished hypothesis, the sum divided by length^penalty */
    int beam;
    float total, score;
} by_candidate;

typedef struct by_hypothesis {
    const int32_t *tokens; /* without the prompt */
    int count;
    float score; /* sum of log-probabilities; divided by length^penalty if finished */
} by_hypothesis;

/* How one token was chosen, or in a beam search one step of a group of hypotheses. Valid during the call. */
typedef struct by_explanation {
    int row;                                        /* index of the prompt */
    int step;                                       /* new tokens before this one */
    by_candidate candidates[BY_EXPLAIN_CANDIDATES]; /* the most likely and the chosen one, best first */
    int count;
    /* sampling */
    int32_t chosen;
    int left;    /* tokens that no rule has banned */
    double draw; /* the random number that selected among them; -1: greedy */
    /* beam search */
    int group;
    /* hypotheses before the step, after it, and finished so far */
    const by_hypothesis *beams, *next, *finished;
    int n_beams, n_next, n_finished;
    const char *end; /* why the search ends here; NULL: it continues */
} by_explanation;

/* ---- the continuous cache -------------------------------------------------------------------- */

/* A cache of the hidden states h_i and the tokens that followed them (Grave et al. 2016). With h_t, the state
 * that predicts the next token,
 *   p(w) = (1 - lambda) p_model(w) + lambda sum over i of softmax_i(theta h_t.h_i) [token after i = w].
 * The states are the input of the language model head ("features"). While the cache is empty, p is
 * p_model. */
typedef struct by_continuous_cache {
    int size;          /* capacity in pairs, the most recent ones; 0: no cache */
    double theta;      /* at least 0; 0 weights all pairs equally */
    double lambda;     /* weight of the cache, at least 0 and below 1 */
    bool per_document; /* clear the cache at each end-of-text token */
} by_continuous_cache;

/* ---- mixing with an n-gram model --------------------------------------------------------------- */

/* Both models predict the same tokens. Reading and sampling use the probabilities
 *   p(w) = (1 - weight) p_model(w) + weight p_ngram(w),
 * a beam search adds weight log p_ngram(w) to the log-probabilities of the model (shallow fusion). The n-gram
 * model sees the whole text, or with an encoder-decoder the generated part. */
typedef struct by_ngram_mix {
    const by_ngram *model; /* over the model's tokens (by_ngram_check_tokenizer); NULL: none */
    double weight;         /* from 0 to 1; in a beam search at least 0 */
} by_ngram_mix;

/* ---- generation ------------------------------------------------------------------------------ */

typedef enum by_finish {
    BY_FINISH_NONE,   /* the row was skipped, or generation failed or was cancelled before its end */
    BY_FINISH_STOP,   /* a stop token, which is not part of the text */
    BY_FINISH_LENGTH, /* max_new_tokens or the capacity is reached */
    BY_FINISH_CALLER, /* ended by the callback */
    BY_FINISH_STRING, /* a stop string, which is part of the text */
    BY_FINISH_TIME    /* max_seconds have passed */
} by_finish;

typedef struct by_generate_spec {
    by_sampling sampling;
    by_beam beam;
    /* 0: until a stop token or the capacity of the row. Otherwise prompt and new tokens must fit into the
     * capacity, unless slide is set. */
    int max_new_tokens;
    const int *limits; /* a limit for each prompt, at most max_new_tokens; NULL: the same for all */
    /* When a row is full, keep its last tokens, half of the capacity, and feed them again from position 0. A
     * prompt that does not fit is truncated to its end in the same way. Requires max_new_tokens. */
    bool slide;
    /* With slide: also keep the first `sinks` tokens of the text (Xiao et al. 2023); the last tokens then
     * fill half of the remaining capacity. Less than the capacity - 1. */
    int sinks;
    /* A cache per row, initially empty. Not with beams, not for encoder-decoders. */
    by_continuous_cache cache;
    by_ngram_mix ngram;
    const int32_t *stop_tokens; /* in addition to the model's end-of-text token; NULL: none */
    int stop_count;
    /* A text ends with the token that completes one of these strings, which may start in the prompt and end
     * inside the token. Requires the tokenizer. */
    const char *const *stop_strings;
    int stop_string_count;
    const struct by_tokenizer *tokenizer;
    double max_seconds;               /* texts end with the first token chosen after this time; 0: no limit */
    const int32_t *start;             /* encoder-decoders: replaces the model's start token */
    const by_picture_batch *pictures; /* captioning models: replace the prompts */
    bool ignore_eos;                  /* treat the model's end-of-text token like any other */
    int first_sample;                 /* row r uses the random numbers of sample first_sample + r, */
    const int *samples;               /* or, unless this is NULL, of sample samples[r] */
    /* Callbacks, may be NULL. token() is called for every new token except stop tokens, with its
     * log-probability under the model before any rule; returning false ends the row. cancelled() is polled
     * between passes; returning true ends generation with BY_ERR_CANCELLED. */
    bool (*token)(void *user, int row, int32_t token, float logprob);
    bool (*cancelled)(void *user);
    /* Called with an explanation of every choice. */
    void (*explain)(void *user, const by_explanation *why);
    void *user;
    /* Pass NaN to token() as the log-probability. Greedy decoding, and sampling with only a temperature, then
     * run on a GPU for several tokens between two callbacks; this is also the case if token is NULL. A draw
     * within rounding error of the boundary between two tokens may then select the other one. */
    bool no_logprobs;
} by_generate_spec;

typedef struct by_generation {
    int32_t *tokens; /* prompt and generated tokens */
    int prompt;      /* tokens of the prompt */
    int count;       /* all tokens */
    by_finish finish;
    float score; /* beam search: sum of log-probabilities, divided by length^penalty */
} by_generation;

typedef struct by_generate_result {
    by_generation *rows;
    int count;             /* the generator's batch; in a beam search, prompts times beam.returned */
    int64_t prompt_tokens; /* fed */
    int64_t new_tokens;    /* of all rows, without stop tokens */
    double prompt_seconds; /* time to the first token */
    double decode_seconds; /* time after it */
} by_generate_result;

/* Generates a continuation of prompts[row][0..lengths[row]) for every row of the generator at once. Repeat a
 * prompt for several samples; a row whose prompt is NULL is skipped. An empty prompt starts with the model's
 * end-of-text token, and is an error if there is none. For an encoder-decoder, the prompts are sources (NULL
 * with spec->pictures), and every text begins with the model's start token. Earlier contents of the generator
 * are discarded.
 *
 * Beam search takes one prompt per beam.width rows of the generator, which must have been created with as
 * many beams. The texts of a prompt are adjacent in the result, best first; if constraints leave fewer than
 * requested, the last ones have no tokens. token() is called after all texts are complete, and slide is not
 * possible. On failure, *result holds the partial texts; free it in any case. */
BY_API by_status by_generate(by_generator *g, const int32_t *const *prompts, const int *lengths,
                             const by_generate_spec *spec, by_generate_result *result);
BY_API void by_generate_result_free(by_generate_result *result); /* resets to the zero state */

/* The same with an n-gram model over tokens or words: one text for each of `count` prompts. A text ends with
 * </s>, which corresponds to the tokenizer's end-of-text token; a model of words never generates <unk>.
 * max_new_tokens is required. Only these members of spec are used: sampling, max_new_tokens, max_seconds,
 * ignore_eos, first_sample, token, cancelled, explain and user. */
BY_API by_status by_ngram_generate(const by_ngram *m, const int32_t *const *prompts, const int *lengths,
                                   int count, const by_generate_spec *spec, by_generate_result *result);

/* ---- continuous batching --------------------------------------------------------------------- */

/* The interface for a scheduler. Sequences are added to a running generator and removed from it at any time,
 * each with its own prompt, rules and seed, and every step advances each of them by one token. A sequence
 * gets the same tokens as if it ran alone. The number of sequences is limited by the rows of the generator;
 * with pages (by_generator_spec.page), memory is proportional to their contents. Decoders only, without
 * beams.
 *
 * A generator may be used by one thread at a time. Do not mix these calls with those of the first section: a
 * sequence owns its row until it is removed. by_generate removes all sequences. */
typedef struct by_sequence_spec {
    by_sampling sampling;       /* copied; its pointers are borrowed until the sequence is removed */
    int sample;                 /* use the random numbers of this sample of the seed */
    int max_new_tokens;         /* 0: until a stop token or the capacity */
    const int32_t *stop_tokens; /* in addition to the model's end-of-text token; copied; NULL: none */
    int stop_count;
    bool ignore_eos; /* treat the model's end-of-text token like any other */
} by_sequence_spec;

/* A new token of a sequence. */
typedef struct by_sequence_token {
    int sequence;
    int32_t token;    /* with BY_FINISH_STOP, the stop token */
    float logprob;    /* under the model, before any rule */
    by_finish finish; /* STOP or LENGTH: the sequence is finished, but keeps its row until it is removed */
} by_sequence_token;

/* Adds a sequence without computing anything. The prompt is copied; an empty one starts with the model's
 * end-of-text token. *sequence receives its number, which can be reused after by_generator_remove.
 * BY_ERR_ARGUMENT: an invalid prompt or spec, or no free row. */
BY_API by_status by_generator_add(by_generator *g, const int32_t *prompt, int length,
                                  const by_sequence_spec *spec, int *sequence);
/* Appends tokens to a sequence, for example the next turn of a conversation. max_new_tokens counts from here.
 * Its cached keys and values are reused. */
BY_API by_status by_generator_extend(by_generator *g, int sequence, const int32_t *tokens, int count);
/* Advances each active sequence by one token and writes the new tokens to out in the order of sequences. out
 * has room for one token per row of the generator; *count receives their number. A step feeds at most 256
 * tokens of a prompt, to bound the latency of other sequences. A sequence yields no token until its whole
 * prompt is fed, so *count can be 0 while by_generator_goes_on() is true. BY_ERR_MEMORY: not enough free
 * pages; nothing has changed, and the call can be repeated after a sequence is removed. */
BY_API by_status by_generator_step(by_generator *g, by_sequence_token *out, int *count);
/* Returns true if a sequence still has tokens to feed or to generate. */
BY_API bool by_generator_goes_on(const by_generator *g, int sequence);
BY_API void by_generator_remove(by_generator *g, int sequence); /* frees its row and pages */
/* Free positions, in whole pages; without pages, the capacity of all free rows. */
BY_API int by_generator_room(const by_generator *g);

#ifdef __cplusplus
}
#endif
#endif
