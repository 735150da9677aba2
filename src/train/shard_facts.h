/* shard_facts.h - what a run folder notes beside tokens that it keeps: from what they were made, and a checksum. As long as both
 * hold, the tokens are used again. */
#ifndef BY_TRAIN_SHARD_FACTS_H
#define BY_TRAIN_SHARD_FACTS_H

#include "base/base.h"

typedef struct train_facts {
    uint64_t source, sum; /* sum: of the contents; 0 when it was not recorded */
    int64_t bytes, tokens;
} train_facts;

by_status train_facts_write(const char *path, const train_facts *f);
/* False when there are none, or none that can be read: the shard is then made again. */
bool train_facts_read(const char *path, train_facts *f);
/* Of the tokens, and of the documents where there are some (index NULL: none); 0 when a file cannot be read. */
uint64_t train_facts_sum(const char *bin, const char *index);

#endif
