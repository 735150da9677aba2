/* policy_run.h - shared by the files of policy runs: the client of the loop (policy_run.c), updates of the
 * policy (policy_learn.c), the critic (policy_critic.c), metrics and samples (policy_watch.c), run.json
 * (policy_record.c) and defaults (policy_defaults.c). */
#ifndef BY_ALIGN_POLICY_RUN_H
#define BY_ALIGN_POLICY_RUN_H

#include "align/methods.h"
#include "align/rollouts.h"
#include "align/source.h"
#include "train/loop.h"

/* Sums over the micro-batches of a step. */
typedef struct align_seen {
    by_policy_metrics sum; /* weighted by tokens, except low_min and high_max */
    double tokens;
    double ratio, ratio_squares; /* mean ratios of micro-batches */
    int parts;
    double value_loss, value_clipped;
    double policy_loss, norm; /* means over updates */
    int updates;
} align_seen;

enum { ALIGN_MEASURES = 64 };

/* Named metrics of a step, in the order of the log. */
typedef struct align_measures {
    by_metric list[ALIGN_MEASURES];
    char names[ALIGN_MEASURES][64];
    int count;
} align_measures;

/* The critic of PPO, which estimates the value of an answer, and arrays computed from its values. Arrays of
 * answers are (rows, cols). */
typedef struct align_critic {
    by_model *model;
    by_trainer *trainer;
    by_passes *passes;
    by_value_spec loss;
    int cols;
    int32_t *last, *pick; /* pick: for a micro-batch */
    float *scores, *values, *logps, *ref_logps, *advantages, *returns, *mask;
    size_t capacity;
} align_critic;

typedef struct align_policy {
    by_device *device;
    by_align_spec spec; /* defaults filled in */
    align_source source;
    align_prompts prompts, eval_prompts;
    int train_prompts; /* number of training prompts; the others are held out */
    int eval_count;    /* number of held-out prompts; may be 0 */
    align_rewards rewards;
    by_model *model, *reference; /* reference NULL: none, or the model without its adapter */
    by_trainer *trainer;
    by_passes *likelihood, *ref_likelihood;
    by_memory *memory; /* activations that these passes share */
    by_generator *generator;
    by_policy_spec loss;
    by_likelihood_spec spoken; /* for log-probabilities at the sampling temperature */
    double beta;               /* the current value if beta is adaptive */
    int capacity, max_new_tokens;
    int64_t epoch_steps;
    align_rollouts rollouts, trials; /* trials: answers of an evaluation */
    /* (rows, width) of the rollouts */
    float *old_logps, *ref_logps, *token_advantages;
    size_t wide_capacity;
    float *row_kl, *shaped, *advantages; /* (rows) */
    int *order;                          /* (rows), for the current pass over the answers */
    /* of a micro-batch */
    struct align_part {
        int32_t *tokens, *targets;
        float *old_logps, *ref_logps, *advantages, *mask;
        float *logps, *entropy; /* outputs */
        size_t capacity;
    } part;
    align_critic critic;
    align_seen seen;
    align_measures measures;
    by_metric evaluation[BY_METRICS_MAX];
    int n_evaluation;
    double sampled, judged, learned; /* seconds spent in the step */
    double last_loss, last_norm;
    char *reward_text, *stop_text; /* texts of the record */
    train_loop loop;
    by_align_result *result;
} align_policy;

/* Replaces zero members of a run by the method's defaults. The upper clip ratio defaults to the lower one. */
void align_policy_fill(by_policy_run *run, by_align_method method);
by_status align_policy_record(void *self, train_record *out); /* function of train_client */

/* ---- policy_learn.c ----------------------------------------------------------------------------- */

/* Sets the loss of the method. */
void align_policy_choose_loss(align_policy *p);
/* Whether updates need the log-probabilities at sampling time. */
bool align_policy_needs_old(const align_policy *p);
bool align_policy_needs_reference(const align_policy *p);
int align_policy_updates(const align_policy *p); /* updates in a step */
/* Computes log-probabilities and advantages of the answers and updates the policy. */
by_status align_policy_learn(align_policy *p, int64_t step, double rate);
/* Copies rows order[0..count) of a float array (rows, width). */
void align_policy_gather(const align_policy *p, const float *from, const int *rows, int count, float *to);

/* ---- policy_critic.c ---------------------------------------------------------------------------- */

by_status align_critic_open(align_policy *p, const char *checkpoint); /* NULL: a new one */
by_status align_critic_plan(align_policy *p);                         /* after the model is open */
void align_critic_close(align_critic *c);
/* Computes the values and the token advantages, p->token_advantages. */
by_status align_critic_advise(align_policy *p);
/* The backward pass over a micro-batch, rows[0..count) of the rollouts. */
by_status align_critic_learn(align_policy *p, const int *rows, int count, bool first, double share);
by_status align_critic_update(align_policy *p, double rate);

/* ---- policy_watch.c ----------------------------------------------------------------------------- */

/* Adds up the outputs of a micro-batch of `count` rows. */
by_status align_policy_see(align_policy *p, int count);
void align_policy_measure(align_policy *p);
void align_measures_add(align_measures *m, double value, const char *fmt, ...) BY_PRINTF(3, 4);
/* Opens samples.jsonl and removes the lines after the current step. */
by_status align_samples_open(align_policy *p);
by_status align_samples_write(align_policy *p, int64_t step);

#endif
