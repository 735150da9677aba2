/* vocabulary.h - vocabularies trained on the text of a run ("bpe:8000"), and pairs of texts of a run. */
#ifndef BY_TRAIN_VOCABULARY_H
#define BY_TRAIN_VOCABULARY_H

#include "banyan/train.h"
#include "data/objective.h"
#include "data/parallel_text.h"

/* The data of a run of DATA_OBJECTIVE_TRANSLATE. */
typedef struct train_items {
    base_arena *arena; /* has everything below */
    data_parallel_spec spec;
    const char *tokens[2]; /* language tokens, which become special tokens; NULL: none */
} train_items;
/* Files with both texts are single items; other files are paired. */
by_status train_items_make(train_items *out, const by_run_spec *spec, char *const *paths, int count);
void train_items_free(train_items *items); /* zero state is legal */

/* Whether a tokenizer is to be trained: "bpe:N", "unigram:N", "wordpiece:N", "word:N". */
bool train_vocabulary_asked(const char *tokenizer);
/* Trains the tokenizer that `asked` names on text files; items: pairs, or NULL. The special tokens of the
 * objective get the first ids. */
by_tokenizer *train_vocabulary_learn(const by_run_spec *spec, const char *asked, data_objective_kind kind,
                                     const char *const *files, int count, const train_items *items);

/* A tokenizer by name for text: "char", "byte", one to train, or a directory. NULL on failure. */
by_tokenizer *train_tokenizer_named(const char *asked, const char *const *files, int count);

#endif
