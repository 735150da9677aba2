/* ngram.h - n-gram language models: estimated from text with bounded memory, stored as ARPA files or in a
 * mapped binary, queried in constant time. All have the form of a back-off model:
 *
 *   p(w | h) = p(h w) if the n-gram h w is listed, otherwise b(h) p(w | h without its first word)
 *
 * where b(h) is 1 for a context that is not listed. Probabilities are base-10 logarithms, as in ARPA
 * files. */
#ifndef BANYAN_NGRAM_H
#define BANYAN_NGRAM_H

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BY_NGRAM_MAX_ORDER = 20 };

typedef enum by_smoothing {
    /* interpolated modified Kneser-Ney (Chen and Goodman 1998), equal to KenLM's lmplz */
    BY_SMOOTHING_KNESER_NEY,
    BY_SMOOTHING_ADD_K, /* (c(h w) + k) / (c(h) + k |V|); with k = 0 maximum likelihood */
    /* c(h w) / c(h), otherwise 0.4 times the score of the shorter context (Brants et al. 2007) */
    BY_SMOOTHING_STUPID,
    BY_SMOOTHING_MLE,    /* maximum likelihood: c(h w) / c(h), 0 if unseen */
    BY_SMOOTHING_UNKNOWN /* model read from an ARPA file; not valid in by_ngram_spec */
} by_smoothing;
/* "kneser-ney", "add-k", "stupid-backoff", "mle", "unknown" */
BY_API const char *by_smoothing_name(by_smoothing s);

typedef struct by_ngram_spec {
    int order; /* 1 to BY_NGRAM_MAX_ORDER; 0: 3 */
    by_smoothing smoothing;
    double k; /* add-k */
    /* Drop n-grams of order i + 1 that occur at most prune[i] times. Non-decreasing; the last entry applies
     * to higher orders. Unigrams are never pruned */
    const int *prune;
    int prune_count;
    /* Use `fallback` for orders whose discounts cannot be estimated; otherwise this is an error. Zeros: 0.5,
     * 1, 1.5 */
    bool discount_fallback;
    double fallback[3];
    bool plain_unigrams; /* do not interpolate unigrams with the uniform distribution; <unk> gets the rest */
    bool skip_symbols;   /* treat <s>, </s> and <unk> in the text as white space; otherwise an error */
    bool lines;    /* with a tokenizer: each line, without its line end, is a text; otherwise each file */
    size_t memory; /* limit in bytes; 0: 1 GiB. The rest is kept in sorted runs on disk */
    const char *temporary; /* directory for these; NULL: $TMPDIR or /tmp */
    int threads;           /* 0: all cores */
    void (*progress)(void *user, const char *stage, int64_t done); /* words, or n-grams of the stage */
    bool (*cancelled)(void *user);
    void *user;
} by_ngram_spec;

typedef struct by_ngram_result {
    int order;
    int64_t sentences, tokens;          /* </s> is not counted */
    int words;                          /* vocabulary, with <unk>, <s> and </s> */
    int64_t ngrams[BY_NGRAM_MAX_ORDER]; /* per order, after pruning */
    int64_t unpruned[BY_NGRAM_MAX_ORDER];
    double discounts[BY_NGRAM_MAX_ORDER][3]; /* for adjusted counts of 1, 2, and 3 or more */
    bool fell_back[BY_NGRAM_MAX_ORDER];
    double seconds;
} by_ngram_result;

typedef struct by_ngram by_ngram; /* a model; any number of threads may query it */

/* Estimates a model from text files, which may be compressed; "-" is standard input. The model is written to
 * `binary` and to `arpa`, unless NULL, each replaced atomically; an ARPA file whose name ends in .gz is
 * compressed. result may be NULL.
 *
 * Without a tokenizer, a line is a sentence, and words are separated by white space. With a tokenizer, the
 * model predicts tokens: the text is the stream that neural models read, including line ends, and a sentence
 * ends at the end of a file or at an end-of-text token, which becomes </s>. Files may then be .bin token
 * shards. Every token of the vocabulary is a word of the model, even if it does not occur. */
BY_API by_status by_ngram_train(const char *const *files, int count, const by_tokenizer *t,
                                const by_ngram_spec *spec, const char *binary, const char *arpa,
                                by_ngram_result *result);

/* ---- files ------------------------------------------------------------------------------------ */

/* A model directory has config.json ("model_type": "ngram"), ngram.bin and, for a model of tokens, tokenizer
 * files. by_ngram_is returns true if the path is such a directory, a binary, or an ARPA file, plain or
 * compressed. */
BY_API bool by_ngram_is(const char *path);
BY_API bool by_ngram_is_family(const char *family); /* true for "ngram" */
/* Estimates a model and writes a directory. t NULL: words. config.json is written last, so an interrupted
 * call leaves no model, and the next call removes its files. A directory that holds another model is an
 * error, unless it is an n-gram model and `overwrite` is set; the old model stays until the new one is
 * complete. arpa: an ARPA file to write as well, or NULL. */
BY_API by_status by_ngram_train_folder(const char *const *files, int count, const by_tokenizer *t,
                                       const by_ngram_spec *spec, const char *dir, const char *arpa,
                                       bool overwrite, by_ngram_result *result);
/* Converts a binary or a model directory to an ARPA file (`to` ends in .arpa or .arpa.gz), or an ARPA file to
 * a binary (`to` ends in .bin) or a model directory (any other name; it must be empty or missing). An ARPA
 * file of a model of tokens has ids as words, and reads back as a model of words. */
BY_API by_status by_ngram_convert(const char *from, const char *to);
/* Opens a directory, a binary, which is mapped, or an ARPA file, plain or compressed. Returns NULL on
 * failure. */
BY_API by_ngram *by_ngram_open(const char *path);
BY_API void by_ngram_free(by_ngram *m);
BY_API int by_ngram_order(const by_ngram *m);
BY_API by_smoothing by_ngram_smoothing(const by_ngram *m);
BY_API int64_t by_ngram_count(const by_ngram *m, int order);
BY_API size_t by_ngram_bytes(const by_ngram *m);
/* The number of words, the id of a word (0, <unk>, if unknown), and the text of an id. */
BY_API int by_ngram_words(const by_ngram *m);
BY_API int32_t by_ngram_find(const by_ngram *m, const char *word, size_t bytes);
BY_API const char *by_ngram_word(const by_ngram *m, int32_t id);
/* Models of tokens: vocabulary size of the tokenizer (0 for models of words), and the word id of a token. */
BY_API int by_ngram_tokens(const by_ngram *m);
BY_API int32_t by_ngram_token_word(const by_ngram *m, int32_t token);
/* Returns a tokenizer for the model: for a model of tokens, the one in its directory `path`; for a model of
 * words, one that splits at white space into word ids, which m must outlive. Returns NULL on failure. */
BY_API by_tokenizer *by_ngram_tokenizer(const by_ngram *m, const char *path);
/* Returns BY_ERR_ARGUMENT unless m is a model of the tokens of t (of its target side, if t has two
 * vocabularies). */
BY_API by_status by_ngram_check_tokenizer(const by_ngram *m, const by_tokenizer *t);

/* A context: the last words that can affect the next probability, most recent first. */
typedef struct by_ngram_state {
    int length;
    int32_t words[BY_NGRAM_MAX_ORDER - 1];
    float backoffs[BY_NGRAM_MAX_ORDER - 1];
} by_ngram_state;

BY_API by_ngram_state by_ngram_begin(const by_ngram *m);   /* after <s> */
BY_API by_ngram_state by_ngram_nothing(const by_ngram *m); /* without a context */
/* The state after a text of `count` tokens. Reads only the tokens that can matter. */
BY_API by_ngram_state by_ngram_after(const by_ngram *m, const int32_t *tokens, int count);
/* log10 p(word | state). *next, which may be the state itself or NULL, receives the context after the word;
 * *matched, unless NULL, the length of the n-gram found. */
BY_API double by_ngram_score(const by_ngram *m, const by_ngram_state *state, int32_t word,
                             by_ngram_state *next, int *matched);

/* log10 p(w | state) of every word, in the order of ids. <s> is never predicted and has -infinity. The other
 * probabilities sum to 1, except under stupid back-off, whose scores are not normalised. */
BY_API void by_ngram_distribution(const by_ngram *m, const by_ngram_state *state, double *out);
/* Natural log-probabilities of every token, for a model of tokens. They are normalised over the tokens, that
 * is without <unk>, and without </s> if the tokenizer has no end-of-text token. */
BY_API void by_ngram_token_distribution(const by_ngram *m, const by_ngram_state *state, float *out);
/* The same for `count` given tokens; -infinity for a token that is not in the model. */
BY_API void by_ngram_token_scores(const by_ngram *m, const by_ngram_state *state, const int32_t *tokens,
                                  int count, float *out);
/* The same for one token, and the state after it. An end-of-text token starts a new sentence. */
BY_API double by_ngram_token_score(const by_ngram *m, const by_ngram_state *state, int32_t token,
                                   by_ngram_state *next);

/* Looks up the log10 probability and back-off weight of an n-gram of `count` words in text order. Returns
 * false if it is not listed. */
BY_API bool by_ngram_entry(const by_ngram *m, const int32_t *words, int count, double *probability,
                           double *weight);

/* The score of a line of text, word by word. */
typedef struct by_ngram_sum {
    double log10;           /* all words and </s> */
    double log10_known;     /* without unknown words */
    int64_t words, unknown; /* </s> is counted in `words` */
    int64_t sentences;
} by_ngram_sum;
/* Adds the score of a sentence, from <s> to </s>, to *sum. */
BY_API by_status by_ngram_sentence(const by_ngram *m, const char *text, size_t bytes, by_ngram_sum *sum);
/* The same, calling `each` for every word and finally for </s>, with its id, the length of the n-gram found,
 * and log10 p. */
typedef void by_ngram_word_fn(void *user, const char *word, size_t bytes, int32_t id, int matched,
                              double log10);
BY_API by_status by_ngram_sentence_words(const by_ngram *m, const char *text, size_t bytes,
                                         by_ngram_word_fn *each, void *user, by_ngram_sum *sum);
/* Perplexity per word, with or without unknown words. */
BY_API double by_ngram_perplexity(const by_ngram_sum *sum, bool without_unknown);

#ifdef __cplusplus
}
#endif
#endif
