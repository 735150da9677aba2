/* predict.h - predictions of fine-tuned models: labels of texts and pictures, masked tokens, entities,
 * answers to questions. The texts of a call are grouped by length and run in batches. */
#ifndef BANYAN_PREDICT_H
#define BANYAN_PREDICT_H

#include "banyan/model.h"
#include "banyan/picture_set.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_predictor_spec {
    by_task task; /* required head of the model; BY_TASK_DEFAULT: any */
    int batch;    /* rows per batch; 0: 32, or 256 on a GPU */
    /* Polled between batches; returning true ends the call with BY_ERR_CANCELLED. May be NULL. */
    bool (*cancelled)(void *user);
    void *user;
    const by_processor *processor; /* preprocesses pictures; NULL: texts only. Borrowed */
} by_predictor_spec;

typedef struct by_predictor by_predictor;
/* The model and the tokenizer (NULL: pictures only) are borrowed and must outlive the predictor. Returns NULL
 * on failure. A predictor may be used by one thread at a time. */
BY_API by_predictor *by_predictor_new(by_model *m, const by_tokenizer *t, const by_predictor_spec *spec);
/* Frees a predictor. NULL is a no-op. */
BY_API void by_predictor_free(by_predictor *p);

/* Classifies texts or pairs of texts (pairs and pairs[i] may be NULL) with a BY_TASK_CLASSIFY model. scores
 * is the caller's, (count, by_model_labels(m)): probabilities that sum to 1 (BY_PROBLEM_ONE_LABEL), an
 * independent probability for each label (BY_PROBLEM_MANY_LABELS), or the predicted numbers
 * (BY_PROBLEM_REGRESSION). */
BY_API by_status by_predictor_classify(by_predictor *p, const char *const *texts, const char *const *pairs,
                                       int count, float *scores);

/* The same for pictures `first` to `first` + `count` - 1 of a dataset. */
BY_API by_status by_predictor_classify_pictures(by_predictor *p, const by_picture_set *set, int64_t first,
                                                int count, float *scores);

/* A candidate for a masked token. */
typedef struct by_guess {
    int32_t token; /* -1: the vocabulary has fewer tokens than requested */
    float score;   /* probability */
} by_guess;

/* Candidates for the masks of several texts. */
typedef struct by_guesses {
    by_guess *list; /* (masks of all texts, top), most likely first */
    int *first;     /* (count + 1): the masks of text i are first[i] to first[i + 1] - 1 */
    int count, top;
} by_guesses;
/* Finds the `top` most likely tokens for each mask, with a BY_TASK_MLM or BY_TASK_PRETRAIN model. A mask is
 * the model's mask token or a run of three or more underscores; a text may have none. *out is overwritten,
 * and empty on failure; free it with by_guesses_free. */
BY_API by_status by_predictor_fill(by_predictor *p, const char *const *texts, int count, int top,
                                   by_guesses *out);
/* Frees the arrays and resets to the zero state. The zero state is legal. */
BY_API void by_guesses_free(by_guesses *g);

/* The label of a token. */
typedef struct by_tagged {
    by_offset at; /* bytes of the text */
    int label;    /* see by_model_label_name */
    float score;  /* probability */
} by_tagged;

/* A span of text with one label. Labels B-X and I-X are joined; a word has the label of its first token. */
typedef struct by_entity {
    by_offset at;     /* bytes of the text */
    const char *name; /* the label without B- or I-; owned by the model */
    float score;      /* mean probability of the words */
} by_entity;

/* The labels of several texts. Text i has tokens first_token[i] to first_token[i + 1] - 1, and entities
 * first_entity[i] to first_entity[i + 1] - 1. */
typedef struct by_tags {
    by_tagged *tokens; /* special tokens are omitted */
    by_entity *entities;
    size_t *first_token, *first_entity; /* (count + 1) */
    int count;
} by_tags;
/* Labels each token and joins the labels into entities, with a BY_TASK_TAG model. Long texts are processed in
 * windows. *out is overwritten, and empty on failure; free it with by_tags_free. */
BY_API by_status by_predictor_tag(by_predictor *p, const char *const *texts, int count, by_tags *out);
/* Frees the arrays and resets to the zero state. The zero state is legal. */
BY_API void by_tags_free(by_tags *t);

typedef struct by_answer_spec {
    int longest;           /* maximum tokens of an answer; 0: 30 */
    int overlap;           /* tokens shared by neighbouring windows of a long text; 0: 128, negative: none */
    bool may_have_none;    /* a text may lack an answer */
    double null_threshold; /* if so, "no answer" must outscore the best answer by more than this */
} by_answer_spec;

/* The answer to a question. */
typedef struct by_answer_found {
    bool found;   /* false: the text has no answer */
    by_offset at; /* bytes of the text */
    double score; /* sum of the logits of its first and last token; -INFINITY: no valid span */
    double none;  /* the same for "no answer" */
} by_answer_found;
/* Finds the span of texts[i] that answers questions[i], with a BY_TASK_ANSWER model. out is the caller's,
 * (count). */
BY_API by_status by_predictor_answer(by_predictor *p, const char *const *questions, const char *const *texts,
                                     int count, const by_answer_spec *spec, by_answer_found *out);

#ifdef __cplusplus
}
#endif
#endif
