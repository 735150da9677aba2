/* readback.h - steps that have been started and not been looked at yet. A GPU need not wait for the host, nor
 * the host for a GPU: what steps come to stays on the device, and is read for several of them at once: after
 * about a second's worth, and whenever a step is evaluated or saved. */
#ifndef BY_TRAIN_READBACK_H
#define BY_TRAIN_READBACK_H

#include "train/log.h"

typedef struct train_readback {
    by_trainer *trainer; /* these are borrowed */
    train_log *log;
    int64_t log_every;
    int64_t steps;                                  /* of the whole run */
    double started;                                 /* when the run was */
    double peak;                                    /* measured FLOP/s of matrix products; 0: unknown */
    by_dtype dtype;                                 /* that it was measured in */
    void (*report)(void *user, const by_report *r); /* or NULL */
    void *user;
    int wanted; /* steps that may be waiting; 0: by their time, or 1 where nothing can run ahead */
    /* what follows begins as 0 */
    int remeasured;                /* how often the peak was */
    int limit, count;              /* how many may wait now; how many do */
    double begin, tokens, flops;   /* of those that do: since when, and together */
    double rates[BY_TRAINER_KEPT]; /* theirs */
} train_readback;

/* Around the starting of a step: its learning rate and what it works on. */
void train_readback_begin(train_readback *a);
void train_readback_add(train_readback *a, double rate, double tokens, double flops);

bool train_readback_full(const train_readback *a);

/* Wait for the steps, log and report them, all but the last, which is the caller's to do: *last. The first
 * one whose loss or norm is not finite is BY_ERR_NUMERIC, after those before it; *last is then empty. Nothing
 * waiting is legal, and leaves *last empty. */
by_status train_readback_settle(train_readback *a, by_report *last);

/* Of an update that failed at once, as they do on the CPU: name the step. */
by_status train_readback_failed(const train_readback *a, by_status updated);

/* Tell the user. */
void train_readback_report(const train_readback *a, by_report *p);

by_report train_report_empty(void);

#endif
