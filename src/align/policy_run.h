/* policy_run.h - shared by the files of policy runs: policy_run.c is the client of the loop, policy_learn.c makes updates of the
 * policy, policy_critic.c has what PPO adds, policy_watch.c the measures and samples, policy_record.c and policy_defaults.c what their
 * names say. */
#ifndef BY_ALIGN_POLICY_RUN_H
#define BY_ALIGN_POLICY_RUN_H

#include "align/methods.h"
#include "align/rollouts.h"
#include "align/source.h"
#include "train/loop.h"

/* Sums over the micro-batches of a step. */
typedef struct align_seen {
    by_policy_metrics sum; /* weighted by tokens, but low_min and high_max */
    double tokens;
    double ratio, ratio_squares; /* mean ratios of micro-batches */
    int parts;
    double value_loss, value_clipped;
    double policy_loss, norm; /* means over updates */
    int updates;
} align_seen;

enum { ALIGN_MEASURES = 64 };

/* Named numbers of a step, in the order of the log. */
typedef struct align_measures {
    by_metric list[ALIGN_MEASURES];
    char names[ALIGN_MEASURES][64];
    int count;
} align_measures;

/* PPO's estimate of what an answer will be worth, and what is computed from it. Arrays of answers are (rows, cols). */
typedef struct align_critic {
    by_model *model;
    by_trainer *trainer;
    by_passes *passes;
    by_value_spec loss;
    int cols;
    int32_t *last, *pick; /* pick: of a micro-batch */
    float *scores, *values, *logps, *ref_logps, *advantages, *returns, *mask;
    size_t capacity;
} align_critic;

typedef struct align_policy {
    by_device *device;
    by_align_spec spec; /* with every default filled in */
    align_source source;
    align_prompts prompts, eval_prompts;
    int train_prompts; /* of `prompts`; the others are held out */
    int eval_count;    /* held-out prompts; 0: there are none */
    align_rewards rewards;
    by_model *model, *reference; /* reference NULL: there is none, or it is the model without its adapter */
    by_trainer *trainer;
    by_passes *likelihood, *ref_likelihood;
    by_memory *memory; /* of the activations of these passes */
    by_generator *generator;
    by_policy_spec loss;
    by_likelihood_spec spoken; /* for log-probabilities at the temperature of the answers */
    double beta;               /* the present one, where it adapts */
    int capacity, max_new_tokens;
    int64_t epoch_steps;
    align_rollouts rollouts, trials; /* trials: answers of an evaluation */
    /* (rows, width) of the rollouts */
    float *old_logps, *ref_logps, *token_advantages;
    size_t wide_capacity;
    float *row_kl, *shaped, *advantages; /* (rows) */
    int *order;                          /* (rows) of the present pass over the answers */
    /* of a micro-batch */
    struct align_part {
        int32_t *tokens, *targets;
        float *old_logps, *ref_logps, *advantages, *mask;
        float *logps, *entropy; /* that come out */
        size_t capacity;
    } part;
    align_critic critic;
    align_seen seen;
    align_measures measures;
    by_metric evaluation[BY_METRICS_MAX];
    int n_evaluation;
    double sampled, judged, learned; /* seconds of the step */
    double last_loss, last_norm;
    char *reward_text, *stop_text; /* of the record */
    train_loop loop;
    by_align_result *result;
} align_policy;

/* Members of a run that are 0 get the method's default, the upper clip ratio that of the lower one. */
void align_policy_fill(by_policy_run *run, by_align_method method);
by_status align_policy_record(void *self, train_record *out); /* a train_client's */

/* ---- policy_learn.c ----------------------------------------------------------------------------- */

/* What the method minimises. */
void align_policy_choose_loss(align_policy *p);
/* Whether updates compare with the log-probabilities at the time of sampling. */
bool align_policy_needs_old(const align_policy *p);
bool align_policy_needs_reference(const align_policy *p);
int align_policy_updates(const align_policy *p); /* of a step */
/* Log-probabilities of the answers, advantages, updates. */
by_status align_policy_learn(align_policy *p, int64_t step, double rate);
/* Copies rows order[0..count) of a float array (rows, width). */
void align_policy_gather(const align_policy *p, const float *from, const int *rows, int count, float *to);

/* ---- policy_critic.c ---------------------------------------------------------------------------- */

by_status align_critic_open(align_policy *p, const char *checkpoint); /* NULL: a new one */
by_status align_critic_plan(align_policy *p);                         /* after the model is open */
void align_critic_close(align_critic *c);
/* Values, and the advantages of tokens: p->token_advantages. */
by_status align_critic_advise(align_policy *p);
/* Backward over a micro-batch: rows[0..count) of the rollouts. */
by_status align_critic_learn(align_policy *p, const int *rows, int count, bool first, double share);
by_status align_critic_update(align_policy *p, double rate);

/* ---- policy_watch.c ----------------------------------------------------------------------------- */

/* Collects what the pass of a micro-batch of `count` rows returned. */
by_status align_policy_see(align_policy *p, int count);
void align_policy_measure(align_policy *p);
void align_measures_add(align_measures *m, double value, const char *fmt, ...) BY_PRINTF(3, 4);
/* The lines of samples.jsonl after this step are removed. */
by_status align_samples_open(align_policy *p);
by_status align_samples_write(align_policy *p, int64_t step);

#endif
