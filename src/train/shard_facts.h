/* shard_facts.h - metadata of tokens kept in a run folder: their sources and a checksum. If both match, the
 * tokens are reused. */
#ifndef BY_TRAIN_SHARD_FACTS_H
#define BY_TRAIN_SHARD_FACTS_H

#include "base/base.h"

typedef struct train_facts {
    uint64_t source, sum; /* sum: checksum of the contents; 0 if not recorded */
    int64_t bytes, tokens;
} train_facts;

by_status train_facts_write(const char *path, const train_facts *f);
/* Returns false if they are missing or unreadable; the shard is then rebuilt. */
bool train_facts_read(const char *path, train_facts *f);
/* Checksum of the tokens and of the documents (index NULL: none); 0 if a file cannot be read. */
uint64_t train_facts_sum(const char *bin, const char *index);

#endif
