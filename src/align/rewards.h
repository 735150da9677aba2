/* rewards.h - rewards of answers from several sources: checks, commands, models, callbacks
 * (banyan/align_policy.h). */
#ifndef BY_ALIGN_REWARDS_H
#define BY_ALIGN_REWARDS_H

#include "banyan/align_policy.h"
#include "base/base.h"

/* Failures of commands so far. */
typedef struct align_failures {
    int64_t timeouts, crashes, nonsense; /* failed attempts */
    int64_t fallbacks;                   /* answers that got the fallback */
} align_failures;

/* An open source. */
typedef struct align_judge {
    by_reward_fn score;
    void *self;
    void (*close)(void *self); /* NULL: nothing to free */
} align_judge;

typedef struct align_rewards {
    struct align_reward {
        align_judge judge;
        char *name;
        double weight;
    } * list;
    int count;
    align_failures failures;
} align_rewards;

/* What sources may need. Borrowed until they are closed. */
typedef struct align_court {
    by_device *device;
    const by_judging *judging;
    align_failures *failures;
    bool (*cancelled)(void *user); /* polled while commands run; may be NULL */
    void *user;
} align_court;

/* Opens all sources. *r is overwritten; close it even after a failure. Its address must not change. */
by_status align_rewards_open(align_rewards *r, const by_reward_source *list, int count,
                             const align_court *court);
void align_rewards_close(align_rewards *r); /* closing the zero state is a no-op */

/* Scores answers. each (r->count, count): the rewards of every source; total (count): their weighted sums. */
by_status align_rewards_score(align_rewards *r, const by_judged *answers, int count, float *each,
                              float *total);

/* ---- kinds of sources --------------------------------------------------------------------------- */

/* Opens a check (reward_checks.c). `what` as in by_reward_source. */
by_status align_check_open(const char *what, align_judge *out);
/* reward_command.c */
by_status align_command_open(const char *command, const align_court *court, align_judge *out);
/* reward_model.c */
by_status align_scorer_open(const char *dir, const align_court *court, align_judge *out);

#endif
