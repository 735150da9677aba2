/* train_word_level.c - a vocabulary of whole words: the most frequent ones. The order is that of the reference's
 * WordLevelTrainer: by falling count, equals by their bytes. */
#include <stdlib.h>

#include "text/train/train.h"

static int compare(const void *left, const void *right)
{
    const tok_word *const *a = left, *const *b = right;
    if ((*a)->count != (*b)->count)
        return (*a)->count > (*b)->count ? -1 : 1;
    const int order = memcmp((*a)->text, (*b)->text, BY_MIN((*a)->size, (*b)->size));
    return order ? order : ((*a)->size > (*b)->size) - ((*a)->size < (*b)->size);
}

static by_status add(tok_vocab *v, const char *text, size_t size)
{
    return tok_vocab_find(v, text, size) >= 0 ? BY_OK : tok_vocab_put(v, text, size, v->count);
}

/* A word with a NUL is left out: tokenizer.json cannot represent it here. */
static by_status add_words(const by_vocab_spec *spec, const tok_word *const *order, size_t count,
                           tok_vocab *v)
{
    for (size_t i = 0; i < count && v->count < spec->size; i++)
        if (order[i]->count >= (uint64_t)spec->min_frequency && !memchr(order[i]->text, 0, order[i]->size))
            BY_TRY(add(v, order[i]->text, order[i]->size));
    return BY_OK;
}

by_status tok_word_level_train(const by_vocab_spec *spec, const tok_words *words, tok_trained *out)
{
    if (spec->size <= spec->special_count)
        return base_fail(BY_ERR_ARGUMENT, "a vocabulary of %d is too small; special tokens alone need %d",
                         spec->size, spec->special_count);
    const tok_word **order = base_alloc((words->count + 1) * sizeof *order);
    if (!order)
        return BY_ERR_MEMORY;
    for (size_t i = 0; i < words->count; i++)
        order[i] = &words->items[i];
    qsort(order, words->count, sizeof *order, compare);
    by_status s = BY_OK;
    for (int i = 0; i < spec->special_count && s == BY_OK; i++)
        s = add(&out->vocab, spec->special[i], strlen(spec->special[i]));
    if (s == BY_OK)
        s = add_words(spec, order, words->count, &out->vocab);
    base_free(order);
    return s;
}
