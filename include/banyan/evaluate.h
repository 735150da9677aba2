/* evaluate.h - evaluation: perplexity of a language model, and scores of the texts that an encoder-decoder
 * generates. by_task_evaluate (finetune.h) evaluates tasks with labelled examples. */
#ifndef BANYAN_EVALUATE_H
#define BANYAN_EVALUATE_H

#include "banyan/generate.h"
#include "banyan/model.h"
#include "banyan/ngram.h"
#include "banyan/score.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- perplexity ------------------------------------------------------------------------------ */

typedef struct by_perplexity_result {
    double nats;       /* sum of -log p over all predicted tokens */
    double plain_nats; /* the same without the continuous cache or the n-gram model */
    int64_t tokens;    /* predicted tokens */
    int64_t bytes;     /* bytes of their text; 0 if unknown */
    int64_t windows;
    int seq, stride; /* window length and stride that were used */
    bool carried;    /* a state was carried from segment to segment; otherwise windows are independent */
    int memory;      /* memory length in positions; 0: none, or the state of a recurrent network */
    double seconds;
} by_perplexity_result;

typedef struct by_perplexity_spec {
    int64_t max_tokens; /* use only this many tokens of the data; 0: all */
    int seq;            /* tokens per window; 0: the model's context */
    int stride;         /* tokens from one window to the next; 0: seq, so that windows do not overlap */
    int batch;          /* windows per batch; 0: 8, or 1 with a memory */
    bool apart;         /* models with a memory: start every window without it, as with a stride */
    int bins;         /* split windows into this many parts, whose losses are measured separately; 0: none */
    double *bin_nats; /* (bins): sums of -log p */
    int64_t *bin_tokens;       /* (bins) */
    by_continuous_cache cache; /* size 0: none. Filled in the order of the text, across windows */
    by_ngram_mix ngram;        /* not with a cache; reads the whole text, across windows */
    /* Callbacks, may be NULL. progress is called after each batch; total counts tokens. If cancelled returns
     * true, the call ends with BY_ERR_CANCELLED. */
    void (*progress)(void *user, const by_perplexity_result *so_far, int64_t total);
    bool (*cancelled)(void *user);
    void *user;
} by_perplexity_spec;

/* Measures how well a language model predicts the files, which are text or .bin token shards. They form one
 * stream that is read in windows; every token except the first is predicted once. In overlapping windows only
 * the new tokens count. A model with a memory carries it from segment to segment; with a batch of B, the text
 * is split into B parts that are read in parallel, each starting with an empty memory. The loss is nats /
 * tokens, the perplexity its exponential. t may be NULL for shards; bytes are then unknown. */
BY_API by_status by_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out);

/* Tunes theta and lambda of a continuous cache of spec->cache.size pairs on held-out text. theta is the best
 * of 16 values: 0 and multiples of 1 / mean(h.h) by powers of sqrt(2). lambda is the best for each, to three
 * digits. */
typedef struct by_cache_tuning {
    by_continuous_cache cache;                /* with the best theta and lambda */
    by_perplexity_result result;              /* on the held-out text, with this cache */
    double thetas[16], lambdas[16], nats[16]; /* trials: the best lambda of each theta, and its nats */
} by_cache_tuning;
BY_API by_status by_cache_tune(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_cache_tuning *out);

/* Finds the weight of spec->ngram.model that is best on held-out text, to three digits. *out is the result
 * with this weight. */
BY_API by_status by_ngram_tune(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, double *weight, by_perplexity_result *out);

/* Measures how well an n-gram model predicts the files. A model of words reads one sentence per line and
 * predicts words and </s>; *sum, unless NULL, receives the base-10 scores including unknown words. The model
 * assigns no probability to the spelling of unknown words, so bytes is 0 if there are any. A model of tokens
 * reads the token stream of t like by_perplexity. `sentence`, unless NULL, is called for every line; a model
 * of tokens then scores each line as a separate text. Only these members of spec are used: max_tokens (models
 * of tokens), progress, cancelled and user. */
typedef void by_ngram_sentence_fn(void *user, const char *line, size_t bytes, const by_ngram_sum *sum);
BY_API by_status by_ngram_evaluate(const by_ngram *m, const by_tokenizer *t, const char *const *files,
                                   int count, const by_perplexity_spec *spec, by_ngram_sentence_fn *sentence,
                                   by_perplexity_result *out, by_ngram_sum *sum);

/* ---- texts ----------------------------------------------------------------------------------- */

/* Similarity of generated texts to their references. */
typedef struct by_text_result {
    int64_t texts, exact;               /* exact: texts equal to their references */
    double seconds;                     /* spent on generation */
    bool has_bleu, has_chrf, has_rouge; /* which of the following were requested */
    by_bleu_score bleu;
    double chrf;
    by_rouge_score rouge[BY_ROUGE_COUNT];
    char bleu_signature[128], chrf_name[16], chrf_signature[128];
} by_text_result;

typedef struct by_text_spec {
    const char *metrics; /* comma-separated: "bleu", "chrf", "rouge", "exact"; NULL: "bleu,chrf" */
    const char *prefix;  /* prepended to every source; NULL: that of the model directory */
    /* "negative,positive": texts for targets 0, 1, ... of a table; NULL: the targets themselves */
    const char *words;
    const char *source, *target; /* columns of a table; NULL: the conventional names */
    int beams;                   /* 0: as in the model directory, otherwise 5 */
    by_ngram_mix ngram;          /* over target tokens; fused into the search */
    bool plain;                  /* ignore the generation settings of the directory */
    const char *predictions;     /* a file that receives one JSON object per text, or NULL */
    int batch;                   /* sources per batch; 0: 32 */
    int limit;                   /* use only the first texts; 0: all */
    /* As in by_perplexity_spec; metrics are set only at the end */
    void (*progress)(void *user, const by_text_result *so_far, int64_t total);
    bool (*cancelled)(void *user);
    void *user;
} by_text_spec;

/* Generates a text for every source of the files (a file of sources and one of references, or a table with
 * both) with the settings of model directory dir, and compares it with its reference. */
BY_API by_status by_text_evaluate(by_model *m, const by_tokenizer *t, const char *dir,
                                  const char *const *files, int count, const by_text_spec *spec,
                                  by_text_result *out);

#ifdef __cplusplus
}
#endif
#endif
