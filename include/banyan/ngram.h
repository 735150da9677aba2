/* ngram.h - n-gram language models: estimated from text with bounded memory, kept as ARPA files or in a mapped binary,
 * queried in constant time. All of them have the form of a back-off model:
 *
 *   p(w | h) = p(h w) if the n-gram h w is listed, otherwise b(h) p(w | h without its first word)
 *
 * where b(h) is 1 for a context that is not listed. Probabilities are logarithms to the base of 10, as in ARPA files. */
#ifndef BANYAN_NGRAM_H
#define BANYAN_NGRAM_H

#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { BY_NGRAM_MAX_ORDER = 20 };

typedef enum by_smoothing {
    BY_SMOOTHING_KNESER_NEY, /* interpolated and modified (Chen and Goodman 1998), the estimates of KenLM's lmplz */
    BY_SMOOTHING_ADD_K, /* (c(h w) + k) / (c(h) + k |V|); with k = 0 maximum likelihood */
    BY_SMOOTHING_STUPID, /* c(h w) / c(h), otherwise 0.4 times that of the shorter context (Brants et al. 2007) */
    BY_SMOOTHING_MLE,    /* maximum likelihood: c(h w) / c(h), 0 for what was not seen */
    BY_SMOOTHING_UNKNOWN /* of a model that was read from an ARPA file; not to be asked for */
} by_smoothing;
BY_API const char *by_smoothing_name(
    by_smoothing s); /* "kneser-ney", "add-k", "stupid-backoff", "mle", "unknown" */

typedef struct by_ngram_spec {
    int order; /* 1 to BY_NGRAM_MAX_ORDER; 0: 3 */
    by_smoothing smoothing;
    double k;         /* of add-k */
    const int *prune; /* n-grams of order i + 1 that occur prune[i] times or less are left out. Not falling; */
    int prune_count;  /* the last one holds for higher orders. Unigrams are never pruned */
    bool discount_fallback; /* use `fallback` for orders whose discounts cannot be estimated; otherwise that */
    double fallback[3];     /* is an error. Zeros: 0.5, 1, 1.5 */
    bool plain_unigrams; /* do not interpolate unigrams with the uniform distribution: <unk> has what is left */
    bool skip_symbols;   /* <s>, </s> and <unk> in the text are white space; otherwise they are an error */
    bool lines;    /* with a tokenizer: every line is a text, without its line end; otherwise a file is one */
    size_t memory; /* bytes; 0: 1 GiB. More goes to sorted runs on disk */
    const char *temporary; /* directory for them; NULL: $TMPDIR or /tmp */
    int threads;           /* 0: all cores */
    void (*progress)(void *user, const char *stage, int64_t done); /* words, or n-grams of the stage */
    bool (*cancelled)(void *user);
    void *user;
} by_ngram_spec;

typedef struct by_ngram_result {
    int order;
    int64_t sentences, tokens;          /* </s> is not counted */
    int words;                          /* vocabulary, with <unk>, <s> and </s> */
    int64_t ngrams[BY_NGRAM_MAX_ORDER]; /* of each order, after pruning */
    int64_t unpruned[BY_NGRAM_MAX_ORDER];
    double discounts[BY_NGRAM_MAX_ORDER][3]; /* for adjusted counts of 1, 2, and 3 or more */
    bool fell_back[BY_NGRAM_MAX_ORDER];
    double seconds;
} by_ngram_result;

typedef struct by_ngram by_ngram; /* a model; any number of threads may query it */

/* Estimates a model from text files; compressed files and "-" are fine. The model is written to `binary` and to `arpa`,
 * unless NULL, each replaced atomically; an ARPA file whose name ends with .gz is compressed. result may be NULL.
 *
 * Without a tokenizer a line is a sentence, and words are separated by white space. With one the model is one of tokens:
 * the text is the stream that neural models read, line ends included; a sentence ends with a file, or where the
 * end-of-text token stands, for which the model has </s>. Files may then be .bin token shards. Every token of the
 * vocabulary is a word of the model, whether it occurs or not. */
BY_API by_status by_ngram_train(const char *const *files, int count, const by_tokenizer *t,
                                const by_ngram_spec *spec, const char *binary, const char *arpa,
                                by_ngram_result *result);

/* ---- files ------------------------------------------------------------------------------------ */

/* A model directory has config.json ("model_type": "ngram"), ngram.bin and, for a model of tokens, the files of the
 * tokenizer. by_ngram_is says whether the path is such a directory, a binary, or an ARPA file, plain or compressed. */
BY_API bool by_ngram_is(const char *path);
BY_API bool by_ngram_is_family(const char *family); /* whether "ngram" is meant */
/* Estimates a model and writes a directory. t: NULL for words. config.json is written last: what an interrupted call leaves
 * is no model, and the next call removes it. A directory that holds another model is an error unless `overwrite` is set,
 * which replaces an n-gram model and no other; the old one stays until the new one is complete. arpa: NULL, or an ARPA file
 * to be written as well. */
BY_API by_status by_ngram_train_folder(const char *const *files, int count, const by_tokenizer *t,
                                       const by_ngram_spec *spec, const char *dir, const char *arpa,
                                       bool overwrite, by_ngram_result *result);
/* Makes an ARPA file (`to` ends with .arpa or .arpa.gz) of a binary or a model directory, or of an ARPA file a binary (`to`
 * ends with .bin) or a model directory (any other name; it is empty or does not exist). An ARPA file of a model of tokens
 * has their ids for words; read again, it is a model of words. */
BY_API by_status by_ngram_convert(const char *from, const char *to);
/* Opens a directory, a binary, which is mapped, or an ARPA file, plain or compressed. Returns NULL on failure. */
BY_API by_ngram *by_ngram_open(const char *path);
BY_API void by_ngram_free(by_ngram *m);
BY_API int by_ngram_order(const by_ngram *m);
BY_API by_smoothing by_ngram_smoothing(const by_ngram *m);
BY_API int64_t by_ngram_count(const by_ngram *m, int order);
BY_API size_t by_ngram_bytes(const by_ngram *m);
/* Words: their number, the id of one (0, <unk>, if it is not known) and the name of one. */
BY_API int by_ngram_words(const by_ngram *m);
BY_API int32_t by_ngram_find(const by_ngram *m, const char *word, size_t bytes);
BY_API const char *by_ngram_word(const by_ngram *m, int32_t id);
/* Of a model of tokens: the size of the tokenizer's vocabulary, otherwise 0; and the word of a token. */
BY_API int by_ngram_tokens(const by_ngram *m);
BY_API int32_t by_ngram_token_word(const by_ngram *m, int32_t token);
/* Of a model of tokens, the tokenizer in its directory `path`. Of a model of words, a tokenizer whose tokens are the words: ids are
 * the same, words are separated by white space, and m must outlive it. NULL on failure. */
BY_API by_tokenizer *by_ngram_tokenizer(const by_ngram *m, const char *path);
/* BY_ERR_ARGUMENT unless it is a model of the tokens of t; of a tokenizer with two vocabularies, of those of the target. */
BY_API by_status by_ngram_check_tokenizer(const by_ngram *m, const by_tokenizer *t);

/* A context. The last words, as far as they can matter, the most recent first. */
typedef struct by_ngram_state {
    int length;
    int32_t words[BY_NGRAM_MAX_ORDER - 1];
    float backoffs[BY_NGRAM_MAX_ORDER - 1];
} by_ngram_state;

BY_API by_ngram_state by_ngram_begin(const by_ngram *m);   /* after <s> */
BY_API by_ngram_state by_ngram_nothing(const by_ngram *m); /* without a context */
/* After some tokens, of a text that begins with the first of them. Looks at as many as can matter. */
BY_API by_ngram_state by_ngram_after(const by_ngram *m, const int32_t *tokens, int count);
/* log10 p(word | state). *next, which may be the state itself or NULL, becomes the context after the word; *matched,
 * unless NULL, the length of the n-gram that was found. */
BY_API double by_ngram_score(const by_ngram *m, const by_ngram_state *state, int32_t word,
                             by_ngram_state *next, int *matched);

/* log10 p(w | state) of every word, (words) in the order of ids. <s> is never predicted and has -infinity. The others add up to 1,
 * except under stupid back-off, whose scores are no probabilities. */
BY_API void by_ngram_distribution(const by_ngram *m, const by_ngram_state *state, double *out);
/* The same for a model of tokens, (tokens) natural logarithms: the probabilities of what is no token (<unk>; </s> where the
 * tokenizer has no end-of-text token) are shared out in proportion, so that those of the tokens add up to 1. */
BY_API void by_ngram_token_distribution(const by_ngram *m, const by_ngram_state *state, float *out);
/* The same for `count` tokens; one that the model does not have gets -infinity. */
BY_API void by_ngram_token_scores(const by_ngram *m, const by_ngram_state *state, const int32_t *tokens,
                                  int count, float *out);
/* One of these, and the state after the token: that of a new sentence after an end-of-text token. */
BY_API double by_ngram_token_score(const by_ngram *m, const by_ngram_state *state, int32_t token,
                                   by_ngram_state *next);

/* The log10 probability and back-off weight of an n-gram of `count` words, the first one first. False if it is not
 * listed. */
BY_API bool by_ngram_entry(const by_ngram *m, const int32_t *words, int count, double *probability,
                           double *weight);

/* The score of a line of text, word by word. */
typedef struct by_ngram_sum {
    double log10;           /* of all words and </s> */
    double log10_known;     /* without unknown words */
    int64_t words, unknown; /* </s> is counted in `words` */
    int64_t sentences;
} by_ngram_sum;
/* Adds the score of a sentence, from <s> to </s>, to *sum. */
BY_API by_status by_ngram_sentence(const by_ngram *m, const char *text, size_t bytes, by_ngram_sum *sum);
/* The same; `each` hears of every word and at last of </s>: its id, the length of the n-gram that was found, log10 p. */
typedef void by_ngram_word_fn(void *user, const char *word, size_t bytes, int32_t id, int matched,
                              double log10);
BY_API by_status by_ngram_sentence_words(const by_ngram *m, const char *text, size_t bytes,
                                         by_ngram_word_fn *each, void *user, by_ngram_sum *sum);
/* Perplexity per word, with unknown words or without them. */
BY_API double by_ngram_perplexity(const by_ngram_sum *sum, bool without_unknown);

#ifdef __cplusplus
}
#endif
#endif
