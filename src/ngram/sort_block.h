/* sort_block.h - sorting of a block of records in memory. */
#ifndef BY_NGRAM_SORT_BLOCK_H
#define BY_NGRAM_SORT_BLOCK_H

#include "base/base.h"

typedef struct ngram_block {
    char *records, *spare; /* (count) records each; the result is in `records` */
    size_t count;
    size_t record; /* bytes; a multiple of 4 */
    int words; /* u32 at the beginning of a record that order it, the first one first. Equal records keep their order */
    int threads;
} ngram_block;

by_status ngram_sort_block(const ngram_block *b);

#endif
