/* predict.h - shared by all predictions (banyan/predict.h): running a model on rows of texts, batch by
 * batch. */
#ifndef BY_INFER_PREDICT_H
#define BY_INFER_PREDICT_H

#include "banyan/pass.h"
#include "banyan/predict.h"
#include "data/rows.h"

struct by_predictor {
    by_model *model;
    const by_tokenizer *tokenizer;
    by_predictor_spec spec;
    by_passes *passes;
    float *values[2]; /* outputs of the last batch */
    size_t room[2];
};

/* A processed batch: row i of it is rows->list[list[i]]. */
typedef struct gen_predicted {
    const data_rows *rows;
    const int *list;
    int count; /* rows; the batch may be padded to more */
    const by_batch *batch;
    const by_model_io *io;
    by_pass *pass;
} gen_predicted;

/* Called for every batch: before it runs, to add to it (may be NULL), and after. */
typedef struct gen_predict_calls {
    by_status (*prepare)(void *user, by_batch *b, const data_rows *rows, const int *list, int count);
    by_status (*take)(void *user, by_predictor *p, const gen_predicted *b);
} gen_predict_calls;

/* Returns BY_ERR_ARGUMENT unless the model has a head for `task`. */
by_status gen_predict_check(const by_model *m, by_task task);
/* Appends texts with their pairs (NULL: none) to rows, initialising rows for this predictor. */
by_status gen_predict_rows(by_predictor *p, const data_rows_spec *spec, const char *const *texts,
                           const char *const *pairs, int count, data_rows *rows);
/* Run all rows. */
by_status gen_predict_run(by_predictor *p, const data_rows *rows, const gen_predict_calls *calls, void *user);
/* An output of the batch as floats, valid until the next batch. which: 0 or 1, one of two buffers. */
by_status gen_predict_read(by_predictor *p, by_pass *pass, const by_tensor *t, int which, float **out);

/* Logits to probabilities, in place. */
void gen_probabilities(float *x, int n);
/* The indices of the k largest of n, largest first; k is limited to n. Returns k. */
int gen_places_top(const float *x, int n, int k, int *places);

#endif
