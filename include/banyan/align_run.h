/* align_run.h - whole runs of alignment: instruction tuning, preferences, reward models, and reinforcement
 * learning from rewards. align.h has the losses. Data, run folders, resuming and logs work as in training
 * (train.h). See docs/ALIGN.md. */
#ifndef BANYAN_ALIGN_RUN_H
#define BANYAN_ALIGN_RUN_H

#include "banyan/adapter.h"
#include "banyan/align.h"
#include "banyan/align_policy.h"
#include "banyan/generate.h"
#include "banyan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_align_method {
    BY_ALIGN_SFT,    /* supervised: the likelihood of answers */
    BY_ALIGN_REWARD, /* a reward model from preferences */
    BY_ALIGN_DPO,
    BY_ALIGN_KTO,
    BY_ALIGN_ORPO,
    BY_ALIGN_SIMPO,
    BY_ALIGN_CPO,
    BY_ALIGN_PPO, /* this and the following methods sample answers and reward them */
    BY_ALIGN_GRPO,
    BY_ALIGN_RLOO,
    BY_ALIGN_REINFORCE,
    BY_ALIGN_METHODS
} by_align_method;
/* Returns the name of a method: "sft", "dpo". Returns "?" for other numbers. */
BY_API const char *by_align_name(by_align_method method);
/* Finds a method by name. Returns false and leaves *out unchanged if there is no such method. */
BY_API bool by_align_find(const char *name, by_align_method *out);
BY_API const char *by_align_loss_unit(by_align_method method); /* the unit of losses: "nats per token", ... */

typedef struct by_align_spec {
    by_align_method method;
    const char *model;     /* directory */
    const char *reference; /* directory of the reference model; NULL: the initial model */
    by_dtype dtype;
    bool stochastic_rounding; /* as in by_run_spec */
    double dropout;           /* negative: the model's own in supervised tuning, 0 elsewhere */
    /* data */
    const char *data, *eval_data; /* JSON lines; eval_data may be NULL */
    double eval_fraction;         /* share of the examples held out at random if eval_data is NULL */
    const char *chat_template;    /* file, saved with the model; NULL: the model's, if any */
    int limit;                    /* tokens of a sequence; 0: the model's context */
    bool keep_end;                /* truncate longer sequences at the beginning, not at the end */
    bool learn_prompts, pack;     /* supervised: train on all tokens; several examples share a row */
    double noise;                 /* supervised: alpha of by_model_set_noise; 0: none */
    bool dynamic; /* supervised: by_likelihood_spec.dynamic. Evaluations report the plain likelihood */
    /* losses of preferences (align.h): by_align_defaults sets those of the method */
    by_dpo_kind loss;
    const by_dpo_term *losses; /* DPO: a weighted sum of losses in place of `loss` */
    int loss_count;            /* 0: `loss` alone */
    by_divergence divergence;  /* DPO, as are the next two: members of by_dpo_spec */
    double divergence_alpha;
    bool weight_pairs;
    double beta, alpha, gamma, label_smoothing, center, desirable_weight, undesirable_weight;
    bool unpaired; /* KTO: by_kto_spec.unpaired */
    bool no_cache; /* compute log-probabilities of the reference in every step, not once before training */
    by_policy_run policy; /* PPO, GRPO, RLOO, REINFORCE */
    /* steps */
    int batch, accumulate; /* examples (pairs, prompts) per micro-batch, 0: 8; micro-batches per step */
    int eval_batch;        /* examples per batch of an evaluation; 0: as batch */
    int64_t steps;         /* total steps; 0: from epochs */
    double epochs;         /* 0: 3 */
    /* rate negative: default by method and width; warmup negative: warmup_share of the run */
    by_schedule_spec schedule;
    double warmup_share;
    by_optimizer_spec optimizer;
    const by_adapter_spec *adapter; /* as in by_finetune_spec */
    const char *lora;
    by_dtype weights;
    const char *freeze;
    bool recompute;
    uint64_t seed;
    int64_t eval_every, log_every, save_every; /* as in by_finetune_spec */
    int keep, patience, ahead;
    const char *out; /* becomes a model directory, and also has run.json, metrics.jsonl and checkpoints */
    bool overwrite;
    const char *command, *options; /* see by_run_spec */
    void (*report)(void *user, const by_report *r);
    bool (*cancelled)(void *user);
    void *user;
} by_align_spec;

typedef struct by_align_result {
    int64_t steps, resumed_from, parameters, trained, best_step;
    double loss, seconds;
    size_t activation_bytes, state_bytes;
    bool evaluated, stopped_early;
    double eval_loss;
    by_metric metrics[BY_METRICS_MAX]; /* of the best evaluation; for policy methods, of the last step */
    int n_metrics;
} by_align_result;

/* The defaults of `banyan align`. The caller must set model, data and out, and may change all members. */
BY_API by_align_spec by_align_defaults(by_align_method method);
/* Runs an alignment, or continues the run in spec->out, which becomes a model directory. */
BY_API by_status by_align_run(by_device *d, const by_align_spec *spec, by_align_result *result);

#ifdef __cplusplus
}
#endif
#endif
