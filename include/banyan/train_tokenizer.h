/* train_tokenizer.h - learn a vocabulary from text: BPE, WordPiece, Unigram, as a tokenizer that can be used
 * and saved. */
#ifndef BANYAN_TRAIN_TOKENIZER_H
#define BANYAN_TRAIN_TOKENIZER_H

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_vocab_kind {
    BY_VOCAB_AUTO = 0, /* as `like` says, or else BPE */
    BY_VOCAB_BPE,
    BY_VOCAB_WORDPIECE,
    BY_VOCAB_UNIGRAM
} by_vocab_kind;

/* How far the training is. done and total count bytes, tokens or passes, by the phase; total 0: not known. */
typedef struct by_vocab_progress {
    const char *phase; /* "count words", "merge", "find pieces", "fit" */
    int64_t done, total;
    int64_t words; /* different words so far */
} by_vocab_progress;

/* What to learn. Zero is a good value for every field. Strings and lists are borrowed for the call. */
typedef struct by_vocab_spec {
    const char *like; /* a whole pipeline by name: "gpt2", "roberta", "gpt", "bert", "bert-cased", "t5" */
    by_vocab_kind kind;
    int size;              /* tokens in all, special ones included; 0: 30000 */
    int64_t min_frequency; /* BPE, WordPiece: a pair this rare is not merged; 0: 2 */

    /* Special tokens get the first ids, in this order. special NULL: those of `like`, or only the unknown
     * token where the kind needs one. unknown NULL: the one of `like`, or "<unk>", "[UNK]" for WordPiece. */
    const char *const *special;
    int special_count;
    const char *unknown;

    bool byte_level;              /* BPE over bytes: nothing is unknown */
    bool lowercase;               /* before anything else */
    const char *prefix, *suffix;  /* of tokens that continue a word ("##"), of those that end one ("</w>") */
    int limit_alphabet;           /* keep this many characters, the most frequent ones; 0: all */
    const char *initial_alphabet; /* characters to have in any case, as UTF-8 */
    int max_token_length;         /* BPE, WordPiece: characters, as the reference counts them; 0: any length.
                                     Unigram: 0 means 16 */
    double shrinking_factor;      /* Unigram: what a round leaves of the pieces; 0: 0.75 */
    int sub_iterations;           /* Unigram: EM steps per round; 0: 2 */
    int seed_size;                /* Unigram: candidates to begin with; 0: 1000000 */

    /* Parts of the pipeline as JSON of tokenizer.json, NULL: by `like` and kind. In the post-processor
     * @TOKEN@ stands for the id of a special token. */
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder;

    int threads; /* 0: every core. The result does not depend on it */

    /* Called now and then from the calling thread; false stops the training with BY_ERR_CANCELLED. */
    bool (*progress)(void *user, const by_vocab_progress *p);
    void *user;
} by_vocab_spec;

typedef struct by_vocab_result {
    int64_t bytes, lines;   /* of text read */
    int64_t words, running; /* different words, and words in all */
    int size;               /* tokens, special ones included; T5's sentinels are besides */
    int alphabet;           /* characters known */
    int merges;             /* BPE, WordPiece */
    double count_seconds, seconds;
} by_vocab_result;

/* Learn from text files, line by line. Memory is held for the different words and their counts, not for the
 * text. The tokenizer is the caller's; result may be NULL. NULL on failure. */
BY_API by_tokenizer *by_tokenizer_train(const by_vocab_spec *spec, const char *const *files, int count,
                                        by_vocab_result *result);

#ifdef __cplusplus
}
#endif
#endif
