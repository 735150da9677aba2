/* train_tokenizer.h - trains a vocabulary (BPE, WordPiece, Unigram, whole words) on text and returns a tokenizer that is
 * ready to use and save. */
#ifndef BANYAN_TRAIN_TOKENIZER_H
#define BANYAN_TRAIN_TOKENIZER_H

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_vocab_kind {
    BY_VOCAB_AUTO = 0, /* as specified by `like`, otherwise BPE */
    BY_VOCAB_BPE,
    BY_VOCAB_WORDPIECE,
    BY_VOCAB_UNIGRAM,
    BY_VOCAB_WORD /* whole words; all others are unknown */
} by_vocab_kind;

/* Progress of the training. done and total count bytes, tokens or passes, depending on the phase; total is 0
 * if unknown. */
typedef struct by_vocab_progress {
    const char *phase; /* "count words", "merge", "find pieces", "fit" */
    int64_t done, total;
    int64_t words; /* distinct words so far */
} by_vocab_progress;

/* What to train. Zero is a sensible value for every field. Strings and lists are borrowed for the call. */
typedef struct by_vocab_spec {
    const char *like; /* name of a complete pipeline: "gpt2", "roberta", "gpt", "bert", "bert-cased", "t5" */
    by_vocab_kind kind;
    int size; /* vocabulary size, including special tokens; 0: 30000 */
    int64_t
        min_frequency; /* BPE, WordPiece: minimum count of a pair to be merged; 0: 2. Words: of a word; 0: 1 */

    /* Special tokens get the first ids, in this order. special NULL: those of `like`, or only the unknown
     * token if the model type needs one. unknown NULL: that of `like`, otherwise "<unk>" ("[UNK]" for
     * WordPiece). */
    const char *const *special;
    int special_count;
    const char *unknown;

    bool byte_level; /* BPE over bytes; there are no unknown tokens */
    bool lowercase;  /* convert to lower case before anything else */
    /* Prefix of tokens that continue a word ("##"), suffix of tokens that end one ("</w>"). */
    const char *prefix, *suffix;
    int limit_alphabet;           /* keep only this many characters, the most frequent ones; 0: all */
    const char *initial_alphabet; /* characters to include in any case, as UTF-8 */
    /* Maximum characters in a token, counted as in the reference; 0: unlimited for BPE and WordPiece, 16 for
     * Unigram. */
    int max_token_length;
    double shrinking_factor; /* Unigram: fraction of the pieces kept in each round; 0: 0.75 */
    int sub_iterations;      /* Unigram: EM steps per round; 0: 2 */
    int seed_size;           /* Unigram: number of initial candidates; 0: 1000000 */

    /* Parts of the pipeline as JSON, in the format of tokenizer.json. NULL: as determined by `like` and kind.
     * In the post-processor, @TOKEN@ stands for the id of a special token. */
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder;

    int threads; /* 0: one per core. The result does not depend on it */

    /* Called periodically from the calling thread. Returning false stops the training with
     * BY_ERR_CANCELLED. */
    bool (*progress)(void *user, const by_vocab_progress *p);
    void *user;
} by_vocab_spec;

typedef struct by_vocab_result {
    int64_t bytes, lines;   /* text read */
    int64_t words, running; /* distinct words, total words */
    int size;               /* vocabulary size, including special tokens but not T5's sentinels */
    int alphabet;           /* number of distinct characters */
    int merges;             /* number of merges (BPE, WordPiece) */
    double count_seconds, seconds;
} by_vocab_result;

/* Trains on text files, line by line. Memory use grows with the number of distinct words, not with the size
 * of the text. The caller owns the tokenizer; result may be NULL. Returns NULL on failure. */
BY_API by_tokenizer *by_tokenizer_train(const by_vocab_spec *spec, const char *const *files, int count,
                                        by_vocab_result *result);

#ifdef __cplusplus
}
#endif
#endif
