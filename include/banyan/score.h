/* score.h - how near texts come to their references: BLEU, chrF and ROUGE, with the figures of sacreBLEU and
 * of rouge_score (docs/METRICS.md).
 *
 * All three work alike. Make one, add each hypothesis with its references, and read the figures at any time:
 * they are those of everything added so far. Texts are NUL-terminated UTF-8 and are only looked at during the
 * call; a call that fails leaves the figures as they were. One object belongs to one thread at a time. */
#ifndef BANYAN_SCORE_H
#define BANYAN_SCORE_H

#include "banyan/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A figure that a task is judged by: "accuracy". */
enum { BY_METRICS_MAX = 8 };
typedef struct by_metric {
    const char *name;
    double value;
} by_metric;

/* ---- BLEU (Papineni et al. 2002) ------------------------------------------------------------- */

#define BY_BLEU_ORDER 4

/* How a text is cut into words. */
typedef enum by_bleu_words {
    BY_BLEU_13A = 0, /* mteval-v13a: punctuation by itself, for languages of the West */
    BY_BLEU_NONE,    /* at white space */
    BY_BLEU_CHAR,    /* every character */
    BY_BLEU_INTL     /* mteval-v14: punctuation and symbols of all of Unicode */
} by_bleu_words;

/* What an order without any match counts. */
typedef enum by_bleu_smooth {
    BY_BLEU_EXP = 0, /* half a match, then a quarter, ... */
    BY_BLEU_FLOOR,   /* smooth_value matches */
    BY_BLEU_ADD_K,   /* smooth_value is added to matches and totals above order 1 */
    BY_BLEU_ZERO     /* nothing */
} by_bleu_smooth;

typedef struct by_bleu_spec {
    by_bleu_words words;
    by_bleu_smooth smooth;
    double smooth_value;  /* 0: the method's own, 0.1 and 1 */
    bool lowercase;       /* capitals count as small letters */
    bool effective_order; /* leave out orders longer than the text; for single sentences */
} by_bleu_spec;

typedef struct by_bleu_score {
    double score; /* 0 to 100 */
    double precision[BY_BLEU_ORDER];
    double brevity; /* the penalty for short texts, at most 1 */
    double ratio;   /* of the lengths; 0 without references */
    int64_t correct[BY_BLEU_ORDER], total[BY_BLEU_ORDER];
    int64_t hypothesis_words, reference_words; /* of the references, those nearest in length */
} by_bleu_score;

typedef struct by_bleu by_bleu;
BY_API by_bleu *by_bleu_new(const by_bleu_spec *spec); /* NULL: all defaults. NULL on failure */
/* Free it (NULL is legal), or begin again. */
BY_API void by_bleu_free(by_bleu *b);
BY_API void by_bleu_clear(by_bleu *b); /* as new */
/* Count one text and its `count` references; read the score of all so far. */
BY_API by_status by_bleu_add(by_bleu *b, const char *hypothesis, const char *const *references, int count);
BY_API void by_bleu_read(const by_bleu *b, by_bleu_score *out);
/* "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:banyan-0.1.0"; the object's, valid until the next
 * call. */
BY_API const char *by_bleu_signature(by_bleu *b);

/* ---- chrF (Popović 2015, 2017) --------------------------------------------------------------- */

typedef struct by_chrf_spec {
    int char_order; /* 0: 6 */
    int word_order; /* 0: chrF; 2: chrF++ */
    int beta;       /* 0: 2; how much recall counts */
    bool lowercase;
    bool whitespace; /* spaces are characters too */
    bool eps_smooth; /* a tiny number for missing orders, instead of leaving them out */
} by_chrf_spec;

typedef struct by_chrf by_chrf;
BY_API by_chrf *by_chrf_new(const by_chrf_spec *spec); /* NULL: all defaults. NULL on failure */
/* Free it (NULL is legal), or begin again. */
BY_API void by_chrf_free(by_chrf *c);
BY_API void by_chrf_clear(by_chrf *c);
/* Count one text and its `count` references; read the score of all so far. */
BY_API by_status by_chrf_add(by_chrf *c, const char *hypothesis, const char *const *references, int count);
BY_API double by_chrf_read(const by_chrf *c); /* 0 to 100 */
BY_API const char *by_chrf_name(by_chrf *c);  /* "chrF2", "chrF2++"; as the signature, the object's */
/* The settings, as by_bleu_signature gives them. */
BY_API const char *by_chrf_signature(by_chrf *c);

/* ---- ROUGE (Lin 2004) ------------------------------------------------------------------------ */

typedef enum by_rouge_kind {
    BY_ROUGE_1 = 0, /* words */
    BY_ROUGE_2,     /* pairs of words */
    BY_ROUGE_L,     /* the longest common subsequence */
    BY_ROUGE_L_SUM, /* the same by sentences, which newlines part */
    BY_ROUGE_COUNT
} by_rouge_kind;

typedef struct by_rouge_spec {
    bool stem; /* compare stems of words (Porter), for English */
} by_rouge_spec;

/* Means over all texts, from 0 to 1. Of several references the one with the best f1 counts. */
typedef struct by_rouge_score {
    double precision, recall, f1;
} by_rouge_score;

typedef struct by_rouge by_rouge;
BY_API by_rouge *by_rouge_new(const by_rouge_spec *spec); /* NULL: all defaults. NULL on failure */
/* Free it (NULL is legal), or begin again. */
BY_API void by_rouge_free(by_rouge *r);
BY_API void by_rouge_clear(by_rouge *r);
/* Count one text and its `count` references; read the score of all so far. */
BY_API by_status by_rouge_add(by_rouge *r, const char *hypothesis, const char *const *references, int count);
BY_API void by_rouge_read(const by_rouge *r, by_rouge_score out[BY_ROUGE_COUNT]);
BY_API const char *by_rouge_name(by_rouge_kind kind); /* "rouge1", "rouge2", "rougeL", "rougeLsum" */
/* The settings, as by_bleu_signature gives them. */
BY_API const char *by_rouge_signature(by_rouge *r);

#ifdef __cplusplus
}
#endif
#endif
