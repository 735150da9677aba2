#include "text/train.h"
by_status by_unigram_train(const by_vocab_spec *spec, const by_words *words, by_trained *out)
{
    (void)spec;
    (void)words;
    (void)out;
    return by_fail(BY_ERR_UNSUPPORTED, "later");
}
