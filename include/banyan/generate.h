/* generate.h - text from a language model: a key-value cache for a batch of sequences (by_generator), and a
 * loop around it that samples token after token (by_generate). */
#ifndef BANYAN_GENERATE_H
#define BANYAN_GENERATE_H

#include "banyan/model.h"
#include "banyan/ngram.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the cache: feed tokens, read logits ----------------------------------------------------- */

/* Some sequences that grow side by side, each at its own pace, and the keys and values of what they hold. */
typedef struct by_generator by_generator;
typedef struct by_generator_spec {
    int batch;           /* sequences (rows); 0: 1 */
    int capacity;        /* positions each can hold, at most the model's context; 0: the context */
    int source_capacity; /* of encoder-decoders: tokens of a source at most; 0: the context */
    int beams; /* rows stand in groups of this size, at most BY_BEAMS_MAX, that can be reordered; 0: 1 */
    /* Positions of a page of the key-value cache: a power of two from 16 to 256. Rows then take pages as they
     * grow and give them back when they are rewound, so that memory follows what rows hold. Not with beams. 0:
     * every row has memory for its capacity, which is a little faster. */
    int page;
    int pages; /* pages in all; 0: as many as it takes to fill every row */
    /* Of models with a memory, without beams and pages: a row keeps the positions that its next tokens see and no
     * more, whatever its capacity. Rows can then be rewound to 0 alone; other rewinds are ignored. */
    bool endless;
} by_generator_spec;

/* The model must be a language model; it is borrowed. NULL on failure. */
BY_API by_generator *by_generator_new(by_model *m, const by_generator_spec *spec);
BY_API void by_generator_free(by_generator *g);

/* Of encoder-decoders, before anything else: the source of every group of rows, of which there are batch /
 * beams. The encoder runs once over sources[i][0..lengths[i]); NULL: that group is not used. All rows become
 * empty. */
BY_API by_status by_generator_encode(by_generator *g, const int32_t *const *sources, const int *lengths);

/* The same for models that read pictures: the first `count` groups of rows see one each. */
typedef struct by_picture_batch {
    const float *values; /* (count, channels, height, width), prepared */
    int count, height, width;
} by_picture_batch;
BY_API by_status by_generator_see(by_generator *g, const by_picture_batch *pictures);

/* Append tokens[row][0..counts[row]) to every row; a row with count 0 stays as it is (its pointer may be
 * NULL), and costs nothing once half of the rows do. Of empty rows side by side that get the same tokens, one is fed; the others
 * take its keys and values over. A token outside the vocabulary or a row that would
 * outgrow the capacity is BY_ERR_ARGUMENT, too few free pages are BY_ERR_MEMORY, and nothing is fed. After
 * another failure the rows' contents are undefined until they are rewound to 0. */
BY_API by_status by_generator_feed(by_generator *g, const int32_t *const *tokens, const int *counts);

/* (V) logits of what follows the last token fed to the row; NULL when there is none, that is at the beginning
 * and after a rewind, or when they cannot be read. Valid until the next feed. */
BY_API const float *by_generator_logits(by_generator *g, int row);

/* The highest of these logits, and what all of them weigh: log-probabilities are logit - lse. */
typedef struct by_top_logits {
    const float *logits; /* (count) in falling order, the first of equals first */
    const int32_t *ids;  /* (count) */
    int count;
    float lse; /* log of the sum of e^logit over the whole vocabulary; not finite: the logits are not */
} by_top_logits;

/* From now on a feed brings the k (1 to BY_TOP_MAX, at most V) highest logits of every row to the host and leaves
 * the rest on the device, from where by_generator_logits fetches a row when it is asked to; then it knows
 * only the rows that were fed last. 0: whole rows, as at the beginning. */
BY_API by_status by_generator_keep_top(by_generator *g, int k);
/* NULL where there are no logits, and with k = 0. Valid until the next feed. */
BY_API const by_top_logits *by_generator_top(const by_generator *g, int row);

/* Row b goes on with what row from[b], one of its group, holds: hypotheses of a beam search change places.
 * Done within the next feed. No row has logits afterwards. */
BY_API by_status by_generator_reorder(by_generator *g, const int32_t *from);

/* Forget all but the first `length` positions of a row (more than it holds: nothing happens). Costs nothing. A
 * recurrent model has no states of earlier positions: BY_ERR_UNSUPPORTED unless `length` is 0 or what the row
 * holds. */
BY_API by_status by_generator_rewind(by_generator *g, int row, int length);

/* Feed tokens[row] to every row that is active, then the likeliest token after it, and so on: `steps` tokens
 * a row, 32 at most, each row with room for as many. out (steps, batch) receives the likeliest token after
 * each; the last of them is not fed yet. Nothing returns to the host in between, which is how a GPU decodes
 * fast. Rows that are not active stay as they are; their part of out is not written. No row has logits
 * afterwards. */
BY_API by_status by_generator_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                                     int32_t *out);

/* What a row's tokens are drawn with. `sample` and `place` count as in by_sampling: the number of the text, and of new tokens before. */
typedef struct by_draw_spec {
    uint64_t seed, sample;
    int place;
    float temperature; /* positive */
} by_draw_spec;
/* As by_generator_greedy, but tokens are drawn from softmax(logits / temperature), with the random numbers of by_generate. draws has a
 * member for each row. out has -1 where the model's logits are no numbers. Models that are run over whole texts do not have it
 * (BY_ERR_UNSUPPORTED). */
BY_API by_status by_generator_draw(by_generator *g, const int32_t *tokens, const bool *active,
                                   const by_draw_spec *draws, int steps, int32_t *out);

BY_API by_status by_generator_time(by_generator *g, by_trace_fn fn,
                                   void *user); /* by_program_time of such steps */

BY_API int by_generator_length(const by_generator *g, int row); /* positions the row holds */
/* The model, rows, beams of a row, and tokens that a row can hold. */
BY_API by_model *by_generator_model(const by_generator *g);
BY_API int by_generator_batch(const by_generator *g);
BY_API int by_generator_beams(const by_generator *g);
BY_API int by_generator_capacity(const by_generator *g);
BY_API size_t by_generator_bytes(const by_generator *g); /* cache and activations in use */

/* ---- sampling -------------------------------------------------------------------------------- */

/* A word as a run of tokens. */
typedef struct by_words {
    const int32_t *tokens;
    int count;
} by_words;

/* A run of tokens and the bias of its last one. */
typedef struct by_bias {
    const int32_t *tokens;
    int count;
    double bias;
} by_bias;

/* How the next token is chosen from the logits. All zero is greedy decoding: the likeliest token, the first
 * of equals. What is set applies in the order of the fields, up to seed. The source is that of an
 * encoder-decoder, or else the prompt. */
typedef struct by_sampling {
    const by_bias *biases; /* added to the last token of a run whose other tokens have just come; NULL: none */
    int bias_count;
    double source_penalty;     /* tokens of the source: positive logits are multiplied by it, negative ones
                                  divided; above 1 keeps to the source; 0: off */
    double repetition_penalty; /* tokens of prompt and text: positive logits are divided by it, negative ones
                                  multiplied; 0: off */
    double presence_penalty;   /* subtracted from the logits of tokens in the text generated so far */
    double frequency_penalty;  /* subtracted from them as often as they are there */
    int no_repeat_ngram;       /* an n-gram of this many tokens never occurs twice, prompt included; 0: off */
    int no_source_ngram;       /* n-grams of this many tokens of the source are banned; 0: off */
    const int32_t *banned;     /* tokens that never come, NULL: none */
    int banned_count;
    const by_words *words; /* runs of tokens that never come, NULL: none */
    int word_count;
    int min_new_tokens;    /* no stop token before this many */
    const int32_t *prefix; /* what is generated begins with these, NULL: anything */
    int prefix_count;
    const int32_t *forced_first; /* the first new token is this, NULL: any */
    const int32_t *forced_bos;   /* the same after a prompt of one token, as an encoder-decoder's is */
    const int32_t *forced_last;  /* the last one that max_new_tokens allows is this, NULL: any */
    bool remove_invalid;         /* NaN becomes 0, infinities the greatest finite numbers; else an error */
    int decay_start;             /* after this many new tokens the scores x of stop tokens grow by */
    double decay;                /* |x| (decay^(tokens beyond) - 1); 0 and 1: off */
    const int32_t *suppressed;   /* tokens that never come, even if forced; NULL: none */
    int suppressed_count;
    const int32_t *first_banned; /* tokens that do not come first, or after forced_bos; NULL: none */
    int first_banned_count;
    double temperature; /* logits are divided by it; 0: greedy, and what follows has no effect */
    double top_h;     /* of the 100 likeliest, keep the likeliest whose terms -p log p reach no more than this
                         share of the entropy; 0: off */
    int top_k;        /* keep the k likeliest and those equal to the last of them; 0: off */
    double top_p;     /* keep the fewest likeliest that together reach p; 0 and 1: off */
    double min_p;     /* keep what is at least so likely as a share of the likeliest; 0: off */
    double typical_p; /* keep the fewest, nearest to the expected information content first, that reach p; 0
                         and 1: off */
    double epsilon_cutoff; /* drop tokens less probable than this, except the most probable one; 0: off */
    double eta_cutoff;     /* e: the same with min(e, sqrt(e) exp(-entropy)) for the bound; 0: off */
    uint64_t seed;         /* a draw depends on (seed, sample, number of the new token) alone */
} by_sampling;

/* ---- beam search ----------------------------------------------------------------------------- */

typedef enum by_early_stopping {
    BY_STOP_HEURISTIC, /* when the best hypothesis, were it to end now, could not join the finished ones */
    BY_STOP_EARLY,     /* as soon as there are as many finished ones as beams */
    BY_STOP_NEVER      /* when no hypothesis could join them at the length that suits it best */
} by_early_stopping;

/* The likeliest texts, several of them grown side by side. The constraints of by_sampling, that is what
 * precedes the temperature, apply to log-probabilities. With a temperature the continuations are drawn
 * without replacement (docs/GENERATION.md); otherwise nothing is. */
typedef struct by_beam {
    int width;             /* hypotheses; 0 and 1: no beam search */
    int groups;            /* of diverse beam search (Vijayakumar et al. 2018); 0: 1 */
    double diversity;      /* subtracted from a token as often as earlier groups have just chosen it */
    double length_penalty; /* scores are divided by length^penalty: above 0 favours long texts */
    by_early_stopping early_stopping; /* when to stop looking for better ones */
    int returned;                     /* best hypotheses in the result, 0: 1 */
    bool renormalize;                 /* log-probabilities add up to 1 again after the rules */
} by_beam;

/* ---- explanations ---------------------------------------------------------------------------- */

enum { BY_EXPLAIN_CANDIDATES = 16, BY_EXPLAIN_CHANGES = 16 };

typedef enum by_fate {
    BY_FATE_PASSED,    /* possible, but another was better or was drawn */
    BY_FATE_RULED_OUT, /* by a rule */
    BY_FATE_CHOSEN,    /* the next token; in a beam search, of a hypothesis that goes on */
    BY_FATE_FINISHED,  /* beam search: the end of a finished hypothesis */
    BY_FATE_TOO_LATE   /* beam search: an end that is not among the best, or worse than what is finished */
} by_fate;

/* What a rule has made of a candidate. */
typedef struct by_change {
    const char *rule;
    float share; /* probability after it, 0: ruled out. In a beam search they no longer add up to 1 */
} by_change;

typedef struct by_candidate {
    int32_t token;
    float probability; /* under the model */
    by_change changes[BY_EXPLAIN_CHANGES];
    int n_changes;
    float share; /* after all rules, of what is left */
    by_fate fate;
    int beam;    /* beam search: the hypothesis that it would continue, */
    float total; /* the sum of log-probabilities with it, */
    float score; /* of a finished one: divided by length^penalty */
} by_candidate;

typedef struct by_hypothesis {
    const int32_t *tokens; /* without the prompt */
    int count;
    float score; /* the sum of log-probabilities; of a finished one, divided by length^penalty */
} by_hypothesis;

/* How one token came about, or in a beam search one step of a group of hypotheses. Valid during the call. */
typedef struct by_explanation {
    int row;                                        /* in the prompts */
    int step;                                       /* new tokens before this one */
    by_candidate candidates[BY_EXPLAIN_CANDIDATES]; /* the likeliest and the chosen one; the best first */
    int count;
    /* sampling */
    int32_t chosen;
    int left;    /* tokens that no rule has ruled out */
    double draw; /* the random number that chose among them, -1: the likeliest was taken */
    /* beam search */
    int group;
    const by_hypothesis *beams, *next,
        *finished; /* before the step, after it, and what is finished by then */
    int n_beams, n_next, n_finished;
    const char *end; /* why the search ends here, NULL: it goes on */
} by_explanation;

/* ---- the continuous cache -------------------------------------------------------------------- */

/* A cache of the hidden states h_i and the tokens that followed them (Grave et al. 2016). With h_t, the state that
 * predicts the next token,
 *   p(w) = (1 - lambda) p_model(w) + lambda sum over i of softmax_i(theta h_t.h_i) [token after i = w].
 * The states are what the head over the vocabulary reads ("features"). While the cache is empty, p is p_model. */
typedef struct by_continuous_cache {
    int size;          /* pairs that it holds, the last ones; 0: there is no cache */
    double theta;      /* at least 0; 0 weighs all pairs alike */
    double lambda;     /* share of the cache, at least 0 and below 1 */
    bool per_document; /* emptied at each end-of-text token; otherwise it is carried on */
} by_continuous_cache;

/* ---- an n-gram model beside the neural one ----------------------------------------------------- */

/* Both predict the same tokens. A text that is read or sampled has the probabilities
 *   p(w) = (1 - weight) p_model(w) + weight p_ngram(w),
 * a beam search adds weight log p_ngram(w) to the log-probabilities of the model (shallow fusion). The n-gram model sees the
 * whole text; of an encoder-decoder, what was generated. */
typedef struct by_ngram_mix {
    const by_ngram *model; /* of the model's tokens (by_ngram_check_tokenizer); NULL: there is none */
    double weight;         /* from 0 to 1; in a beam search at least 0 */
} by_ngram_mix;

/* ---- generation ------------------------------------------------------------------------------ */

typedef enum by_finish {
    BY_FINISH_NONE,   /* the row was left out, or generation failed or was cancelled before the row ended */
    BY_FINISH_STOP,   /* a stop token came; it is not part of the text */
    BY_FINISH_LENGTH, /* max_new_tokens, or no room is left */
    BY_FINISH_CALLER, /* the callback said so */
    BY_FINISH_STRING, /* a stop string is complete; it is part of the text */
    BY_FINISH_TIME    /* max_seconds are over */
} by_finish;

typedef struct by_generate_spec {
    by_sampling sampling;
    by_beam beam;
    /* 0: until a stop token comes or the row's capacity is used up. Otherwise prompt and new tokens must fit
     * into the capacity, unless slide is set. */
    int max_new_tokens;
    const int *limits; /* of each prompt its own number, max_new_tokens at most; NULL: the same for all */
    /* When a row is full, keep its last tokens, half the capacity, and feed them again from position 0 on; a
     * prompt that does not fit is cut to its end in the same way. Needs max_new_tokens. */
    bool slide;
    /* With slide: keep the first `sinks` tokens of the text as well (Xiao et al. 2023), and of the rest of the
     * capacity half for the last tokens. Below the capacity - 1. */
    int sinks;
    /* A cache for each row, empty at the beginning. Not with beams, not for encoder-decoders. */
    by_continuous_cache cache;
    by_ngram_mix ngram;
    const int32_t *stop_tokens; /* besides the model's end-of-text token; NULL: none */
    int stop_count;
    /* A text ends with the token that completes one of these strings, which may begin in the prompt and end
     * inside the token. Needs the tokenizer. */
    const char *const *stop_strings;
    int stop_string_count;
    const struct by_tokenizer *tokenizer;
    double max_seconds;   /* every text ends with the first token chosen after this time; 0: no limit */
    const int32_t *start; /* encoder-decoders: texts begin with this instead of the model's start token */
    const by_picture_batch *pictures; /* of models that read them, in place of prompts */
    bool ignore_eos;                  /* the model's end-of-text token is a token like others */
    int first_sample;                 /* row r draws the random numbers of sample first_sample + r, */
    const int *samples;               /* or, unless this is NULL, of sample samples[r] */
    /* Callbacks, may be NULL. token() hears of every new token but stop tokens, with its log-probability
     * under the model before any of the above; returning false ends the row. cancelled() is polled between
     * passes; returning true ends everything with BY_ERR_CANCELLED. */
    bool (*token)(void *user, int row, int32_t token, float logprob);
    bool (*cancelled)(void *user);
    /* Hears how every token was chosen. */
    void (*explain)(void *user, const by_explanation *why);
    void *user;
    /* token() need not know log-probabilities, and gets NaN. Greedy text, and text drawn with a temperature alone, is then
     * chosen on a GPU, several tokens between two calls. The same holds when there is no token(). A draw within rounding of the
     * border between two tokens may then fall the other way. */
    bool no_logprobs;
} by_generate_spec;

typedef struct by_generation {
    int32_t *tokens; /* the prompt, then what was generated */
    int prompt;      /* tokens of the prompt */
    int count;       /* of both */
    by_finish finish;
    float score; /* beam search: the sum of log-probabilities divided by length^penalty */
} by_generation;

typedef struct by_generate_result {
    by_generation *rows;
    int count;             /* rows: the generator's batch; in a beam search, prompts times beam.returned */
    int64_t prompt_tokens; /* fed */
    int64_t new_tokens;    /* of all rows, without stop tokens */
    double prompt_seconds; /* until the first token was chosen */
    double decode_seconds; /* from then on */
} by_generate_result;

/* Generate after every prompt at once: prompts[row][0..lengths[row]) for each row of the generator, the same
 * one several times for several samples; a row whose prompt is NULL is left out. An empty prompt starts with
 * the model's end-of-text token, or is an error when there is none. Of an encoder-decoder the prompts are
 * sources (NULL where spec->pictures takes their place), and every text begins with the model's start token. What the generator held before is forgotten.
 *
 * With a beam search there is one prompt for every beam.width rows of the generator, which must have been
 * made with as many beams. The texts of a prompt stand together in the result, the best first; where
 * constraints leave fewer than were asked for, the last have no tokens. token() hears of a text when all of
 * them are complete, and slide is not possible. *result is filled also on failure, with what there was until
 * then; release it in any case. */
BY_API by_status by_generate(by_generator *g, const int32_t *const *prompts, const int *lengths,
                             const by_generate_spec *spec, by_generate_result *result);
BY_API void by_generate_result_free(by_generate_result *result); /* back to the zero state */

/* The same with an n-gram model, whose tokens are those of its tokenizer, or words: `count` prompts, one text after each. A text
 * ends with </s>, which is the tokenizer's end-of-text token where it has one; a model of words never writes <unk>. Without a
 * tokenizer and without an end the text goes on to max_new_tokens, which must be given. Of the spec, sampling, max_new_tokens,
 * max_seconds, ignore_eos, first_sample, token, cancelled, explain and user count. */
BY_API by_status by_ngram_generate(const by_ngram *m, const int32_t *const *prompts, const int *lengths,
                                   int count, const by_generate_spec *spec, by_generate_result *result);

/* ---- sequences that come and go -------------------------------------------------------------- */

/* What a scheduler needs: sequences are added to a running generator and removed from it at any time, each with
 * its own prompt, rules and seed, and every step brings each of them one token further. A sequence gets the
 * tokens that it would get alone. There are at most as many as the generator has rows; with pages
 * (by_generator_spec.page) memory follows what they hold. For decoders, without beams.
 *
 * A generator is used by one thread at a time. The calls of this section are not to be mixed with those of the
 * first: a sequence owns its row until it is removed. by_generate removes all of them. */
typedef struct by_sequence_spec {
    by_sampling sampling;       /* copied; what it points to is borrowed until the sequence is removed */
    int sample;                 /* draws the random numbers of this sample of the seed */
    int max_new_tokens;         /* 0: until a stop token comes or the capacity is used up */
    const int32_t *stop_tokens; /* besides the model's end-of-text token; copied; NULL: none */
    int stop_count;
    bool ignore_eos; /* the model's end-of-text token is a token like others */
} by_sequence_spec;

/* A new token of a sequence. */
typedef struct by_sequence_token {
    int sequence;
    int32_t token;    /* with BY_FINISH_STOP, the stop token */
    float logprob;    /* under the model, before any rule */
    by_finish finish; /* STOP or LENGTH: the sequence is not stepped any more, but stays until it is removed */
} by_sequence_token;

/* Adds a sequence; nothing is computed yet. The prompt is copied; an empty one starts with the model's
 * end-of-text token. *sequence receives its number, which is free again after by_generator_remove.
 * BY_ERR_ARGUMENT: a bad prompt or spec, or all rows are taken. */
BY_API by_status by_generator_add(by_generator *g, const int32_t *prompt, int length,
                                  const by_sequence_spec *spec, int *sequence);
/* Appends tokens to what a sequence has: the next turn of a conversation. It goes on, and its max_new_tokens
 * count from here. Nothing that it holds is computed again. */
BY_API by_status by_generator_extend(by_generator *g, int sequence, const int32_t *tokens, int count);
/* Takes each active sequence one token further and writes the new tokens to out, in the order of their
 * sequences. out has room for one token per row of the generator; *count receives their number. A step feeds
 * at most 256 tokens of a prompt, so that other sequences need not wait long. A sequence yields no token until
 * its whole prompt is fed: *count can be 0 while by_generator_goes_on() is still true.
 * BY_ERR_MEMORY: there are not enough free pages; nothing has happened, and removing a sequence helps. */
BY_API by_status by_generator_step(by_generator *g, by_sequence_token *out, int *count);
/* Whether a sequence still has something to feed or to choose. */
BY_API bool by_generator_goes_on(const by_generator *g, int sequence);
BY_API void by_generator_remove(by_generator *g, int sequence); /* its row and pages are free */
/* Positions for which memory is free, in whole pages; without pages, the capacity of all free rows. */
BY_API int by_generator_room(const by_generator *g);

#ifdef __cplusplus
}
#endif
#endif
