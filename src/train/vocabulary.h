/* vocabulary.h - vocabularies that a run learns from its own text ("bpe:8000"), and the pairs of texts that a
 * run is given. */
#ifndef BY_TRAIN_VOCABULARY_H
#define BY_TRAIN_VOCABULARY_H

#include "banyan/train.h"
#include "data/objective.h"
#include "data/parallel.h"

/* What the data of a run of BY_OBJECTIVE_TRANSLATE is. */
typedef struct by_items {
    by_arena *arena; /* has everything below */
    by_parallel_spec spec;
    const char *tokens[2]; /* that tell languages, where they do: they want to be special ones; else NULL */
} by_items;
/* Files that have both texts are items by themselves; others go together two by two. */
by_status by_items_make(by_items *out, const by_run_spec *spec, char *const *paths, int count);
void by_items_free(by_items *items); /* zero state is legal */

/* Whether a tokenizer is to be learnt: "bpe:N", "unigram:N", "wordpiece:N". */
bool by_vocabulary_asked(const char *tokenizer);
/* Learn what `asked` names from text files; items, of pairs, or NULL. Its special tokens are those the
 * objective needs, and have the first ids. */
by_tokenizer *by_vocabulary_learn(const by_run_spec *spec, const char *asked, by_objective_kind kind,
                                  const char *const *files, int count, const by_items *items);

#endif
