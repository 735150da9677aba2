/* distill_store.h - the logits of a teacher, kept in a file by the contents of the rows that they belong to. */
#ifndef BY_ALIGN_DISTILL_STORE_H
#define BY_ALIGN_DISTILL_STORE_H

#include "banyan/pass.h"

typedef struct distill_store distill_store;
/* Opens the file, or begins it. top: entries that are kept of a position, 0: all. Of another teacher (fingerprint), or with another
 * `top`, is an error. What a run that died has half written is cut off. NULL on failure. */
distill_store *distill_store_open(const char *path, by_model *teacher, uint64_t fingerprint, int top);
void distill_store_free(distill_store *s);
/* Adds "teacher_logits", and "teacher_second" for answers, to a batch: read from the file, or computed and appended to it. Arrays are valid
 * until the next call. compiles: their contents do not matter. */
by_status distill_store_teach(distill_store *s, by_batch *b, bool compiles);
/* Rows that were read, and rows that were computed. */
void distill_store_counts(const distill_store *s, int64_t *read, int64_t *computed);

#endif
