/* distill_store.h - a cache file of teacher logits, keyed by the contents of the rows. */
#ifndef BY_ALIGN_DISTILL_STORE_H
#define BY_ALIGN_DISTILL_STORE_H

#include "banyan/pass.h"

typedef struct distill_store distill_store;
/* Opens or creates the file. top: how many logits of each position are stored; 0: all. Fails if the file was
 * written for another teacher (fingerprint) or another `top`. Truncates a record that an interrupted run left
 * incomplete. NULL on failure. */
distill_store *distill_store_open(const char *path, by_model *teacher, uint64_t fingerprint, int top);
void distill_store_free(distill_store *s);
/* Adds "teacher_logits", and "teacher_second" for answers, to a batch: read from the file, or computed and
 * appended to it. The arrays are valid until the next call. compiles: the batch only compiles the pass, and
 * the contents do not matter. */
by_status distill_store_teach(distill_store *s, by_batch *b, bool compiles);
/* How many rows were read and how many were computed. */
void distill_store_counts(const distill_store *s, int64_t *read, int64_t *computed);

#endif
