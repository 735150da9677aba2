/* loop.h - the training loop: evaluation, saving, logging, reports, early stopping, cancellation and
 * resuming. It knows neither models nor data: a client provides them and executes the steps. Pretraining
 * (run.c) and fine-tuning (finetune.c) are clients.
 *
 *   train_client     what a client does: start a step, read losses back, evaluate, save, load
 *   train_loop_spec  what a run asks for: number of steps, schedule, when to evaluate, save and log
 *   train_run_state  where a run stands, which is what a checkpoint keeps (checkpoint.h)
 *   train_loop       all of that, with the run folder and the logs
 *
 * A client calls in this order: train_loop_open; train_loop_load when there is a checkpoint; train_loop_plan;
 * train_loop_check; train_loop_begin; train_loop_run; train_loop_close. */
#ifndef BY_TRAIN_LOOP_H
#define BY_TRAIN_LOOP_H

#include "train/checkpoint.h"
#include "train/log.h"
#include "train/record.h"

/* Amounts of data of a step. */
typedef struct train_work {
    double tokens, flops;
    double pictures;
    double waited; /* seconds of waiting, for prefetched data */
} train_work;

typedef struct train_client {
    /* Starts step `step`, counted from 0, without waiting for the device. BY_ERR_CANCELLED: nothing has
     * changed; the run is saved in its previous state. */
    by_status (*step)(void *self, int64_t step, double rate, train_work *work);
    /* Losses and gradient norms of the last `count` steps, the oldest first; waits for them. */
    by_status (*read)(void *self, int count, double *losses, double *norms);
    /* Adds held-out loss and metrics to the report. *score may receive a criterion for the best model, higher
     * is better, with the loss breaking ties; by default the loss decides. */
    by_status (*evaluate)(void *self, by_report *r, double *score);
    /* Writes to a new checkpoint, or reads from one, everything except the state of the loop: any number of
     * models. */
    by_status (*save)(void *self, const char *dir);
    by_status (*load)(void *self, const char *dir);
    by_status (*record)(void *self, train_record *r); /* for run.json */
    void (*title)(void *self, base_buf *out);         /* of loss.svg */
    /* Sets the measures of the report for the last step. May be NULL. A client with this callback is read
     * back after every step. */
    void (*measure)(void *self, by_report *r);
} train_client;

typedef struct train_loop_spec {
    int64_t steps, eval_every, log_every, save_every; /* at least 1 */
    by_schedule_spec schedule;
    int keep, patience, ahead; /* as in by_run_spec */
    bool evaluates;            /* there are held-out data */
    bool overwrite;
    bool measures_peak; /* reports have peak_share */
    by_device *device;
    by_dtype dtype;
    const char *loss_unit; /* "nats per token" */
    const char *options;   /* for run.json: see by_run_spec */
    void (*report)(void *user, const by_report *r);
    bool (*cancelled)(void *user);
    void *user;
} train_loop_spec;
/* Members common to by_run_spec and by_finetune_spec. */
#define TRAIN_LOOP_SHARED(s)                                                                                \
    .steps = (s)->steps, .eval_every = (s)->eval_every, .log_every = (s)->log_every,                        \
    .save_every = (s)->save_every, .schedule = (s)->schedule, .keep = (s)->keep, .patience = (s)->patience, \
    .ahead = (s)->ahead, .dtype = (s)->dtype, .overwrite = (s)->overwrite, .options = (s)->options,         \
    .report = (s)->report, .cancelled = (s)->cancelled, .user = (s)->user

typedef struct train_loop {
    const train_client *client;
    void *self; /* the client's struct */
    train_loop_spec spec;
    train_folder folder;
    char *last; /* the checkpoint to resume from; NULL for a new run */
    train_run_state state;
    int64_t first_steps; /* the number of steps that the run was started with */
    bool longer;         /* more steps are requested than recorded */
    train_log *log;
    double started;
    /* Read-back. So that neither the GPU nor the host waits, losses and norms stay on the device and are read
     * for several steps at once, about once a second and whenever a step is evaluated or saved. */
    int64_t read;           /* steps read back so far; the others are pending */
    int limit;              /* maximum pending steps */
    double begin;           /* start time of the pending steps */
    train_work work;        /* their work */
    double waited, stepped; /* over all steps: seconds of waiting for data, and in total */
    double peak;            /* measured FLOP/s of matrix products; NaN: unknown */
    int remeasured;         /* number of repeated measurements */
    /* the result */
    double loss; /* of the last step; NaN before */
    bool stopped_early;
} train_loop;

/* Locks the run folder and finds the checkpoint to resume from, l->last. Call train_loop_close in every
 * case. */
by_status train_loop_open(train_loop *l, const train_client *client, void *self, const train_folder_use *use);
/* Checks that a resumed run has the same family, before data of another kind are opened. family NULL: that of
 * the run. */
by_status train_loop_check_family(const train_loop *l, const char *family);
/* Reads l->last: the state, and the rest through the client. */
by_status train_loop_load(train_loop *l);
/* Compares the number of steps with the record of a resumed run: l->first_steps, l->longer. */
by_status train_loop_plan(train_loop *l, int64_t steps);
/* A run resumes only with the same settings: compares the client's record with run.json. */
by_status train_loop_check(train_loop *l);
/* Adds the facts common to all runs except pretraining to a client's record. */
typedef struct train_course {
    int batch, accumulate;
    int64_t steps;
    uint64_t seed;
    const by_schedule_spec *schedule;
    const by_optimizer_spec *optimizer;
    const char *command;
    const by_device *device;
} train_course;
#define TRAIN_COURSE(s, on)                                                                                \
    &(train_course)                                                                                        \
    {                                                                                                      \
        (s)->batch, (s)->accumulate, (s)->steps, (s)->seed, &(s)->schedule, &(s)->optimizer, (s)->command, \
            on                                                                                             \
    }
void train_loop_record(const train_loop *l, const train_course *c, train_record *out);
/* Called when everything is open: writes run.json, removes an earlier run to be replaced, opens the logs. */
by_status train_loop_begin(train_loop *l, const train_loop_spec *spec);
/* The result of a run that has not started, with NaN values. */
by_run_result train_loop_no_result(void);
by_status train_loop_run(train_loop *l);
/* Whether the best model is older than the last. */
bool train_loop_best_is_older(const train_loop *l);
/* Cleans up the folder if the run failed before its first step. */
void train_loop_close(train_loop *l, by_status status);

by_report train_report_empty(void);
void train_loop_report(const train_loop *l, by_report *r);
/* Reports a note at the start of the run. */
void train_loop_announce(const train_loop *l, const char *note);

/* For clients with one trainer: by_trainer_update, whose error names the step. */
by_status train_update(by_trainer *t, double rate);

#endif
