/* predict.h - predictions of fine-tuned models: labels of texts, masked tokens, names in texts, answers to
 * questions. The texts of a call are grouped by length and run in batches. */
#ifndef BANYAN_PREDICT_H
#define BANYAN_PREDICT_H

#include "banyan/model.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_predictor_spec {
    by_task task; /* the head that the model must have; BY_TASK_DEFAULT: any */
    int batch;    /* rows at once; 0: 32, on a GPU 256 */
    /* Polled between batches; true ends the call with BY_ERR_CANCELLED. May be NULL. */
    bool (*cancelled)(void *user);
    void *user;
} by_predictor_spec;

typedef struct by_predictor by_predictor;
/* Model and tokenizer are borrowed and outlive the predictor. NULL on failure. A predictor serves one thread
 * at a time. */
BY_API by_predictor *by_predictor_new(by_model *m, const by_tokenizer *t, const by_predictor_spec *spec);
/* Free a predictor; NULL is legal. */
BY_API void by_predictor_free(by_predictor *p);

/* Labels of texts, or of pairs of texts (pairs or pairs[i] may be NULL), with a model for BY_TASK_CLASSIFY.
 * scores is the caller's, (count, by_model_labels(m)): probabilities that sum to 1 (BY_PROBLEM_ONE_LABEL), a
 * probability for each label by itself (BY_PROBLEM_MANY_LABELS), or the predicted numbers
 * (BY_PROBLEM_REGRESSION). */
BY_API by_status by_predictor_classify(by_predictor *p, const char *const *texts, const char *const *pairs,
                                       int count, float *scores);

/* A candidate for a masked token. */
typedef struct by_guess {
    int32_t token; /* -1: the vocabulary has fewer tokens than were asked for */
    float score;   /* probability */
} by_guess;

/* Candidates for the masks of several texts. */
typedef struct by_guesses {
    by_guess *list; /* (masks of all texts, top), the likeliest first */
    int *first;     /* (count + 1): text i has the masks first[i] to first[i + 1] - 1 */
    int count, top;
} by_guesses;
/* The `top` likeliest tokens for each mask, with a model for BY_TASK_MLM or BY_TASK_PRETRAIN. A mask is the
 * mask token of the model or a run of three or more underscores; a text may have none. *out is overwritten,
 * empty on failure; free it with by_guesses_free. */
BY_API by_status by_predictor_fill(by_predictor *p, const char *const *texts, int count, int top,
                                   by_guesses *out);
/* Free the arrays; back to the zero state, which is legal too. */
BY_API void by_guesses_free(by_guesses *g);

/* The label of a token. */
typedef struct by_tagged {
    by_offset at; /* bytes of the text */
    int label;    /* see by_model_label_name */
    float score;  /* probability */
} by_tagged;

/* A stretch of text with one label. Labels B-X and I-X are joined; a word has the label of its first token.
 */
typedef struct by_entity {
    by_offset at;     /* bytes of the text */
    const char *name; /* the label without B- or I-; owned by the model */
    float score;      /* mean probability of its words */
} by_entity;

/* The labels found in several texts. Text i has tokens first_token[i] to first_token[i + 1] - 1, and the
 * entities alike. */
typedef struct by_tags {
    by_tagged *tokens; /* special tokens are left out */
    by_entity *entities;
    size_t *first_token, *first_entity; /* (count + 1) */
    int count;
} by_tags;
/* A label for each token, and the entities they form, with a model for BY_TASK_TAG. Long texts are read in
 * windows. *out is overwritten, empty on failure; free it with by_tags_free. */
BY_API by_status by_predictor_tag(by_predictor *p, const char *const *texts, int count, by_tags *out);
/* Free the arrays; back to the zero state, which is legal too. */
BY_API void by_tags_free(by_tags *t);

typedef struct by_answer_spec {
    int longest;           /* tokens of an answer at most; 0: 30 */
    int overlap;           /* tokens that neighbouring windows of a long text share; 0: 128, negative: none */
    bool may_have_none;    /* a text need not answer its question: */
    double null_threshold; /* it does not when "no answer" scores higher than the best one by more than this */
} by_answer_spec;

/* The answer to a question. */
typedef struct by_answer_found {
    bool found;   /* false: the text has no answer */
    by_offset at; /* bytes of the text */
    double score; /* sum of the logits of its first and last token; -INFINITY: no stretch fits */
    double none;  /* the same for "no answer" */
} by_answer_found;
/* The stretch of texts[i] that answers questions[i], with a model for BY_TASK_ANSWER. out is the caller's,
 * (count). */
BY_API by_status by_predictor_answer(by_predictor *p, const char *const *questions, const char *const *texts,
                                     int count, const by_answer_spec *spec, by_answer_found *out);

#ifdef __cplusplus
}
#endif
#endif
