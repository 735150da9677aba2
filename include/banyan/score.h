/* score.h - similarity of texts to their references: BLEU, chrF and ROUGE, with the same scores as sacreBLEU
 * and rouge_score (docs/METRICS.md).
 *
 * The three interfaces work alike. Create an object, add each hypothesis with its references, and read the
 * score of everything added so far at any time. Texts are NUL-terminated UTF-8 and borrowed for the call. A
 * call that fails leaves the score unchanged. An object may be used by one thread at a time. */
#ifndef BANYAN_SCORE_H
#define BANYAN_SCORE_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A metric of a task, for example "accuracy". */
enum { BY_METRICS_MAX = 16 };
typedef struct by_metric {
    const char *name;
    double value;
} by_metric;

/* ---- BLEU (Papineni et al. 2002) ------------------------------------------------------------- */

#define BY_BLEU_ORDER 4

/* How a text is split into words. */
typedef enum by_bleu_words {
    BY_BLEU_13A = 0, /* mteval-v13a: splits off punctuation, for Western languages */
    BY_BLEU_NONE,    /* split at white space */
    BY_BLEU_CHAR,    /* every character is a word */
    BY_BLEU_INTL     /* mteval-v14: splits off punctuation and symbols of all of Unicode */
} by_bleu_words;

/* How an n-gram order without matches is counted. */
typedef enum by_bleu_smooth {
    BY_BLEU_EXP = 0, /* as half a match, then a quarter, ... */
    BY_BLEU_FLOOR,   /* as smooth_value matches */
    BY_BLEU_ADD_K,   /* smooth_value is added to matches and totals of orders above 1 */
    BY_BLEU_ZERO     /* as zero */
} by_bleu_smooth;

typedef struct by_bleu_spec {
    by_bleu_words words;
    by_bleu_smooth smooth;
    double smooth_value;  /* 0: default of the method, 0.1 (floor) or 1 (add-k) */
    bool lowercase;       /* ignore case */
    bool effective_order; /* omit orders longer than the text; for single sentences */
} by_bleu_spec;

typedef struct by_bleu_score {
    double score; /* 0 to 100 */
    double precision[BY_BLEU_ORDER];
    double brevity; /* brevity penalty, at most 1 */
    double ratio;   /* length of hypotheses / length of references; 0 without references */
    int64_t correct[BY_BLEU_ORDER], total[BY_BLEU_ORDER];
    int64_t hypothesis_words, reference_words; /* references: those closest in length */
} by_bleu_score;

typedef struct by_bleu by_bleu;
BY_API by_bleu *by_bleu_new(const by_bleu_spec *spec); /* spec NULL: all defaults. Returns NULL on failure. */
/* Free the object (NULL is a no-op), or reset it. */
BY_API void by_bleu_free(by_bleu *b);
BY_API void by_bleu_clear(by_bleu *b);
/* Add one text with its `count` references; read the score of all texts so far. */
BY_API by_status by_bleu_add(by_bleu *b, const char *hypothesis, const char *const *references, int count);
BY_API void by_bleu_read(const by_bleu *b, by_bleu_score *out);
/* "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:banyan-0.1.0". Owned by the object, valid until the
 * next call. */
BY_API const char *by_bleu_signature(by_bleu *b);

/* ---- chrF (Popović 2015, 2017) --------------------------------------------------------------- */

typedef struct by_chrf_spec {
    int char_order; /* 0: 6 */
    int word_order; /* 0: chrF; 2: chrF++ */
    int beta;       /* weight of recall; 0: 2 */
    bool lowercase;
    bool whitespace; /* count spaces as characters */
    bool eps_smooth; /* add a small epsilon for missing orders instead of omitting them */
} by_chrf_spec;

typedef struct by_chrf by_chrf;
BY_API by_chrf *by_chrf_new(const by_chrf_spec *spec); /* spec NULL: all defaults. Returns NULL on failure. */
/* Free the object (NULL is a no-op), or reset it. */
BY_API void by_chrf_free(by_chrf *c);
BY_API void by_chrf_clear(by_chrf *c);
/* Add one text with its `count` references; read the score of all texts so far. */
BY_API by_status by_chrf_add(by_chrf *c, const char *hypothesis, const char *const *references, int count);
BY_API double by_chrf_read(const by_chrf *c); /* 0 to 100 */
BY_API const char *by_chrf_name(by_chrf *c); /* "chrF2", "chrF2++"; owned by the object, like the signature */
/* The settings, in the format of by_bleu_signature. */
BY_API const char *by_chrf_signature(by_chrf *c);

/* ---- ROUGE (Lin 2004) ------------------------------------------------------------------------ */

typedef enum by_rouge_kind {
    BY_ROUGE_1 = 0, /* words */
    BY_ROUGE_2,     /* word pairs */
    BY_ROUGE_L,     /* longest common subsequence */
    BY_ROUGE_L_SUM, /* the same per sentence; newlines separate sentences */
    BY_ROUGE_COUNT
} by_rouge_kind;

typedef struct by_rouge_spec {
    bool stem; /* compare word stems (Porter), for English */
} by_rouge_spec;

/* Means over all texts, from 0 to 1. With several references, the one with the best F1 counts. */
typedef struct by_rouge_score {
    double precision, recall, f1;
} by_rouge_score;

typedef struct by_rouge by_rouge;
/* spec NULL: all defaults. Returns NULL on failure. */
BY_API by_rouge *by_rouge_new(const by_rouge_spec *spec);
/* Free the object (NULL is a no-op), or reset it. */
BY_API void by_rouge_free(by_rouge *r);
BY_API void by_rouge_clear(by_rouge *r);
/* Add one text with its `count` references; read the score of all texts so far. */
BY_API by_status by_rouge_add(by_rouge *r, const char *hypothesis, const char *const *references, int count);
BY_API void by_rouge_read(const by_rouge *r, by_rouge_score out[BY_ROUGE_COUNT]);
BY_API const char *by_rouge_name(by_rouge_kind kind); /* "rouge1", "rouge2", "rougeL", "rougeLsum" */
/* The settings, in the format of by_bleu_signature. */
BY_API const char *by_rouge_signature(by_rouge *r);

#ifdef __cplusplus
}
#endif
#endif
