/* fim.h - fill in the middle (Bavarian et al. 2022): a document is cut at two places and written with its
 * middle last, so that a decoder learns to write into a hole. */
#ifndef BY_DATA_FIM_H
#define BY_DATA_FIM_H

#include "text/tokenizer.h"

/* The tokens that stand before each part. */
typedef struct data_fim {
    int32_t prefix, suffix, middle;
} data_fim;

/* <|fim_prefix|>, <|fim_suffix|>, <|fim_middle|>, or the names others give them. */
by_status data_fim_find(const by_tokenizer *t, data_fim *out);

/* What a model continues with the middle, up to the end of the text. Appended to out. */
by_status data_fim_prompt(const by_tokenizer *t, const char *prefix, const char *suffix, by_ids *out);

#endif
