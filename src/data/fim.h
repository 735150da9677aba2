/* fim.h - fill-in-the-middle (Bavarian et al. 2022): a document is split at two places and its middle is
 * moved to the end, so that a decoder learns to fill a gap. */
#ifndef BY_DATA_FIM_H
#define BY_DATA_FIM_H

#include "text/tokenizer.h"

/* The tokens that precede each part. */
typedef struct data_fim {
    int32_t prefix, suffix, middle;
} data_fim;

/* Finds <|fim_prefix|>, <|fim_suffix|>, <|fim_middle|>, or the names used by other tokenizers. */
by_status data_fim_find(const by_tokenizer *t, data_fim *out);

/* Appends the prompt that a model continues with the middle, up to the end of the text, to out. */
by_status data_fim_prompt(const by_tokenizer *t, const char *prefix, const char *suffix, by_ids *out);

#endif
