/* vocabulary.h - vocabularies that a run learns from its own text ("bpe:8000"), and the pairs of texts that a
 * run is given. */
#ifndef BY_TRAIN_VOCABULARY_H
#define BY_TRAIN_VOCABULARY_H

#include "banyan/train.h"
#include "data/objective.h"
#include "data/parallel_text.h"

/* What the data of a run of DATA_OBJECTIVE_TRANSLATE is. */
typedef struct train_items {
    base_arena *arena; /* has everything below */
    data_parallel_spec spec;
    const char *tokens[2]; /* that name languages, to become special tokens; NULL: none */
} train_items;
/* Files that have both texts are items by themselves; others go together two by two. */
by_status train_items_make(train_items *out, const by_run_spec *spec, char *const *paths, int count);
void train_items_free(train_items *items); /* zero state is legal */

/* Whether a tokenizer is to be learnt: "bpe:N", "unigram:N", "wordpiece:N", "word:N". */
bool train_vocabulary_asked(const char *tokenizer);
/* Learn what `asked` names from text files; items, of pairs, or NULL. Its special tokens are those the
 * objective needs, and have the first ids. */
by_tokenizer *train_vocabulary_learn(const by_run_spec *spec, const char *asked, data_objective_kind kind,
                                     const char *const *files, int count, const train_items *items);

/* A tokenizer by name, for text: "char", "byte", one to be learnt, or a directory. NULL on failure. */
by_tokenizer *train_tokenizer_named(const char *asked, const char *const *files, int count);

#endif
