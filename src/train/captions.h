/* captions.h - tokenised captions of a set of pictures. */
#ifndef BY_TRAIN_CAPTIONS_H
#define BY_TRAIN_CAPTIONS_H

#include "banyan/picture_set.h"
#include "banyan/train.h"
#include "text/tokenizer.h"

/* The tokens of caption i are ids[first[i]] ... ids[first[i + 1] - 1]; the last is the end token. */
typedef struct train_captions {
    int32_t *ids;
    int64_t *first;
    int longest; /* tokens of the longest */
} train_captions;

/* Captions longer than `limit` tokens are truncated before the end token; 0: no limit. */
by_status train_captions_open(train_captions *c, const by_picture_set *set, const by_tokenizer *t, int limit);
void train_captions_close(train_captions *c); /* the zero state is a no-op */

/* The token that ends captions: the end-of-text token, otherwise [SEP]; -1: none. */
int train_caption_end(const by_tokenizer *t);

/* The tokenizer of a run: from a directory, or trained on the captions. NULL on failure. */
by_tokenizer *train_caption_tokenizer(const by_run_spec *spec, const by_picture_set *set);

#endif
