/* evaluate.h - measure a model: perplexity of a language model, and the texts that an encoder-decoder writes. Tasks with labelled
 * examples are measured by by_task_evaluate (finetune.h). */
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
    int64_t tokens;    /* that were predicted */
    int64_t bytes;     /* of the text they stand for; 0 when unknown */
    int64_t windows;
    int seq, stride; /* of the windows, as chosen */
    bool carried;    /* a state went from one segment to the next; otherwise windows are apart */
    int memory;      /* positions that it remembered; 0: the state of a recurrent network, or none */
    double seconds;
} by_perplexity_result;

typedef struct by_perplexity_spec {
    int64_t max_tokens;  /* only the beginning of the data; 0: all */
    int seq;             /* tokens per window; 0: the model's context */
    int stride;          /* tokens from one window to the next; 0: seq, so that windows do not overlap */
    int batch;           /* windows at once; 0: 8, or 1 with a memory */
    bool apart;          /* of models with a memory: windows begin without it, as with a stride */
    int bins;            /* parts of a window for which the loss is measured apart; 0: none */
    double *bin_nats;    /* (bins): sums of -log p */
    int64_t *bin_tokens; /* (bins) */
    by_continuous_cache cache; /* size 0: none. It is filled in the order of the text, across windows */
    by_ngram_mix ngram;        /* not with a cache; it reads the text as a whole, across windows */
    /* Callbacks, may be NULL. progress is called after each batch; total counts tokens. When cancelled returns true, the
     * status is BY_ERR_CANCELLED. */
    void (*progress)(void *user, const by_perplexity_result *so_far, int64_t total);
    bool (*cancelled)(void *user);
    void *user;
} by_perplexity_spec;

/* How well a language model predicts the files, which are text or .bin token shards. They are one stream, read in windows; every
 * token but the first is predicted once. In overlapping windows only the new tokens count. A model with a memory reads
 * segment after segment and remembers; with a batch of B, the text is cut into B parts that are read side by side, each
 * beginning without a memory. The loss is nats / tokens, the perplexity its exponential. t: NULL when shards come without a tokenizer; bytes are then unknown. */
BY_API by_status by_perplexity(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_perplexity_result *out);

/* theta and lambda for a continuous cache of spec->cache.size pairs, chosen on held-out text. theta is the best of 16
 * values, 0 and multiples of 1 / mean(h.h) by factors of sqrt(2); lambda is the best for it to three digits. */
typedef struct by_cache_tuning {
    by_continuous_cache cache;   /* with theta and lambda as chosen */
    by_perplexity_result result; /* on the held-out text, with that cache */
    double thetas[16], lambdas[16],
        nats[16]; /* what was tried: the best lambda of each theta, and its nats */
} by_cache_tuning;
BY_API by_status by_cache_tune(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, by_cache_tuning *out);

/* The weight of spec->ngram.model that is best on held-out text, to three digits; *out is for this weight. */
BY_API by_status by_ngram_tune(by_model *m, const by_tokenizer *t, const char *const *files, int count,
                               const by_perplexity_spec *spec, double *weight, by_perplexity_result *out);

/* How well an n-gram model predicts the files. A model of words reads sentences, a line each: words and </s> are predicted, and *sum,
 * unless NULL, has them in base 10 with the unknown words. Unknown words have no spelling under the model, so that bytes are
 * 0 where there are any. A model of tokens reads the stream of t as by_perplexity does, every token but the first. `sentence`,
 * unless NULL, hears of every line, tokens of a line included; a model of tokens then reads lines as texts of their own. Of
 * the spec, max_tokens (models of tokens), progress, cancelled and user count. */
typedef void by_ngram_sentence_fn(void *user, const char *line, size_t bytes, const by_ngram_sum *sum);
BY_API by_status by_ngram_evaluate(const by_ngram *m, const by_tokenizer *t, const char *const *files,
                                   int count, const by_perplexity_spec *spec, by_ngram_sentence_fn *sentence,
                                   by_perplexity_result *out, by_ngram_sum *sum);

/* ---- texts ----------------------------------------------------------------------------------- */

/* How near texts come to their references. */
typedef struct by_text_result {
    int64_t texts, exact;               /* exact: texts equal to their references */
    double seconds;                     /* spent writing */
    bool has_bleu, has_chrf, has_rouge; /* which of the following were asked for */
    by_bleu_score bleu;
    double chrf;
    by_rouge_score rouge[BY_ROUGE_COUNT];
    char bleu_signature[128], chrf_name[16], chrf_signature[128];
} by_text_result;

typedef struct by_text_spec {
    const char *metrics; /* "bleu", "chrf", "rouge" and "exact", with commas; NULL: "bleu,chrf" */
    const char *prefix;  /* put before every source; NULL: the model directory's */
    const char *words; /* "negative,positive": what targets 0, 1, ... of a table stand for; NULL: themselves */
    const char *source, *target; /* columns of a table; NULL: the usual ones */
    int beams;                   /* 0: the model directory's, else 5 */
    by_ngram_mix ngram;          /* of the targets' tokens; fused into the search */
    bool plain;                  /* ignore the generation settings of the directory */
    const char *predictions;     /* a file for one JSON object a text, or NULL */
    int batch;                   /* sources at once; 0: 32 */
    int limit;                   /* only the first texts; 0: all */
    void (*progress)(void *user, const by_text_result *so_far,
                     int64_t total); /* as above; metrics come at the end */
    bool (*cancelled)(void *user);
    void *user;
} by_text_spec;

/* Write a text for every source of the files (one of sources and one of references, or one table with both) with the model of
 * directory dir, and compare it with its reference. */
BY_API by_status by_text_evaluate(by_model *m, const by_tokenizer *t, const char *dir,
                                  const char *const *files, int count, const by_text_spec *spec,
                                  by_text_result *out);

#ifdef __cplusplus
}
#endif
#endif
