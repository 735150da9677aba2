/* align.h - losses of instruction tuning, preference optimisation, policy gradients and distillation. Each is
 * a by_loss_fn: pass it with its spec to by_pass_spec or by_trainer_spec. It reads the model's outputs and
 * the arrays of the batch.
 *
 *   array         shape   type   read by
 *   targets       (B, T)  i32    all but by_reward_loss and by_value_loss: the token that each position predicts;
 *                                -100 outside the answer. With the array "pick", (N) for the picked rows
 *   sequences     (N)     i32    with "pick": the row of the batch that each belongs to
 *   ref_logps     (B)     f32    by_dpo_loss, by_kto_loss: summed log-probabilities of the answers under the
 *                                reference
 *   ...                          see each loss
 *
 * Besides the loss, each sets outputs of io that can be read after the pass (by_io_output): "token_logps" and
 * "entropy", shaped like targets; "logps" (B), summed over the answers; and those named in its comment. None
 * of these has a gradient. Losses are computed in f32 (f64 for f64 models). docs/ALIGN.md has the
 * equations. */
#ifndef BANYAN_ALIGN_H
#define BANYAN_ALIGN_H

#include "banyan/pass.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- answers ---------------------------------------------------------------------------------- */

/* The negative log-likelihood of answers, averaged over their tokens. Instruction tuning minimises it; a pass
 * without gradients uses it to compute the log-probabilities of a reference. */
typedef struct by_likelihood_spec {
    double temperature; /* 0: 1 */
    bool dynamic;       /* -p log p with a constant p (dynamic fine-tuning, Wu et al. 2025) */
} by_likelihood_spec;
BY_API by_tensor *by_likelihood_loss(void *spec, by_graph *g, by_model_io *io);

/* ---- preferences ------------------------------------------------------------------------------ */

/* The rows of a batch are n chosen answers, then the n rejected ones to the same prompts. r is the difference
 * between the log-probabilities of an answer under the policy and under the reference; d is the difference
 * between the r of the two answers. */
typedef enum by_dpo_kind {
    BY_DPO_SIGMOID, /* -log sigmoid(beta d), with label smoothing (Rafailov et al. 2023; Mitchell 2023) */
    BY_DPO_HINGE,   /* max(0, 1 - beta d) (Zhao et al. 2023) */
    BY_DPO_IPO,     /* (d - 1 / (2 beta))^2 of means over the answers' tokens (Azar et al. 2023) */
    /* sigmoid, unbiased under a share label_smoothing of wrong labels (Chowdhury et al. 2024) */
    BY_DPO_ROBUST,
    BY_DPO_SIGMOID_NORM, /* sigmoid of means over the answers' tokens */
    BY_DPO_SPPO_HARD,    /* (r - 1 / (2 beta))^2 chosen, (r + 1 / (2 beta))^2 rejected (Wu et al. 2024) */
    BY_DPO_APO_ZERO,     /* (D'Oosterlinck et al. 2024) */
    BY_DPO_APO_DOWN,
    BY_DPO_NCA_PAIR,     /* (Chen et al. 2024) */
    BY_DPO_EXO_PAIR,     /* (Ji et al. 2024), with label smoothing */
    BY_DPO_BCO_PAIR,     /* (Jung et al. 2024) */
    BY_DPO_SFT,          /* the negative log-likelihood of the chosen answers */
    BY_DPO_DISCOPOP,     /* (Lu et al. 2024) */
    BY_DPO_AOT,          /* margins of equal rank, with label smoothing (Melnyk et al. 2024) */
    BY_DPO_AOT_UNPAIRED, /* r of chosen and of rejected answers of equal rank */
    BY_DPO_KINDS
} by_dpo_kind;
BY_API const char *by_dpo_name(by_dpo_kind kind); /* "sigmoid", ... */
BY_API bool by_dpo_find(const char *name, by_dpo_kind *out);

/* The divergence from the reference (Wang et al. 2023). Its f replaces r in d. */
typedef enum by_divergence {
    BY_DIVERGENCE_REVERSE_KL, /* r */
    BY_DIVERGENCE_FORWARD_KL, /* 1 - e^-r */
    BY_DIVERGENCE_JS,         /* Jensen-Shannon: log 2 + log sigmoid(r) */
    BY_DIVERGENCE_ALPHA,      /* (e^((alpha - 1) r) - 1) / (alpha - 1) */
    BY_DIVERGENCES
} by_divergence;
BY_API const char *by_divergence_name(by_divergence divergence); /* "reverse_kl", ... */
BY_API bool by_divergence_find(const char *name, by_divergence *out);
/* Whether a loss is defined for other divergences than the reverse KL. */
BY_API bool by_dpo_takes_divergence(by_dpo_kind kind);

/* A term in a weighted sum of losses. */
typedef struct by_dpo_term {
    by_dpo_kind kind;
    double weight; /* 0: 1 */
} by_dpo_term;

typedef struct by_dpo_spec {
    by_dpo_kind kind;
    double beta; /* 0: 0.1 */
    double label_smoothing;
    const by_dpo_term *terms; /* a weighted sum of losses in place of kind (MPO, Wang et al. 2024); borrowed */
    int term_count;           /* 0: kind alone */
    by_divergence divergence;
    double divergence_alpha; /* of BY_DIVERGENCE_ALPHA; 0: 0.5 */
    bool weighted;           /* weights pairs by their likelihood under the policy (WPO, Zhou et al. 2024) */
} by_dpo_spec;
/* Also returns "losses" (n) and "rewards" (B): beta r. */
BY_API by_tensor *by_dpo_loss(void *spec, by_graph *g, by_model_io *io);

/* Single answers labelled good or bad (Ethayarajh et al. 2024). Reads "label" (B) f32, 1 or 0, and "kl" (1)
 * f32: the mean of r over mismatched answers, clamped at 0, without a gradient (by_kto_kl). */
typedef struct by_kto_spec {
    double beta;                                 /* 0: 0.1 */
    double desirable_weight, undesirable_weight; /* 0: 1 */
    bool unpaired; /* without kl: the unpaired loss of APO-zero (D'Oosterlinck et al. 2024) */
} by_kto_spec;
/* Also returns "losses" (B) and "rewards" (B). */
BY_API by_tensor *by_kto_loss(void *spec, by_graph *g, by_model_io *io);
BY_API float by_kto_kl(const float *logps, const float *ref_logps, int count);

/* Losses without a reference. Rows are as for DPO. ORPO (Hong et al. 2024) also reads "all_targets" (B, T):
 * the tokens of prompt and answer of the chosen rows, -100 in the rejected ones. */
typedef enum by_cpo_kind {
    BY_CPO_SIGMOID, /* (Xu et al. 2024), sums of log-probabilities */
    BY_CPO_HINGE,
    BY_CPO_SIMPO, /* means, with a margin of gamma (Meng et al. 2024) */
    BY_CPO_ORPO   /* means; the odds ratio */
} by_cpo_kind;
typedef struct by_cpo_spec {
    by_cpo_kind kind;
    double beta;  /* 0: 0.1 */
    double alpha; /* weight of the likelihood of the chosen answers; 1 for ORPO */
    double gamma; /* SimPO */
    double label_smoothing;
} by_cpo_spec;
/* Also returns "losses" (n), without the likelihood; "likelihood" () if its weight is not 0; "rewards" (B):
 * beta times the log-probability; for ORPO, "log_odds" (n). */
BY_API by_tensor *by_cpo_loss(void *spec, by_graph *g, by_model_io *io);

/* Trains a classifier with one label as a reward model: -log sigmoid(chosen - rejected - margin), rows as for
 * DPO. Reads "margin" (n) f32 if the batch has it. */
typedef struct by_reward_spec {
    double center; /* weight of (chosen + rejected)^2 */
} by_reward_spec;
/* Also returns "rewards" (B). */
BY_API by_tensor *by_reward_loss(void *spec, by_graph *g, by_model_io *io);

/* ---- policy gradients ------------------------------------------------------------------------- */

/* The normalisation of the sum of the clipped terms over tokens. */
typedef enum by_policy_mean {
    BY_MEAN_SEQUENCE, /* the length of each answer, then the number of rows (GRPO, Shao et al. 2024) */
    BY_MEAN_TOKEN,    /* the number of tokens in the batch (PPO, BNPO) */
    BY_MEAN_GIVEN /* `divisor`: all tokens of several batches (DAPO), or rows times the longest answer (Dr. GRPO) */
} by_policy_mean;

/* The term of a token, from its ratio and the advantage A. */
typedef enum by_policy_term {
    BY_TERM_CLIPPED, /* -min(ratio A, clip(ratio) A) */
    BY_TERM_WEIGHTED, /* -min(ratio, epsilon_high) A log p, without a gradient through the ratio (CISPO, MiniMax 2025) */
    BY_TERM_SOFT /* -4 / t sigmoid(t (ratio - 1)) A, t = 1 where A > 0 and 1.05 elsewhere (SAPO, Gao et al. 2025) */
} by_policy_term;

/* Reads "advantages" f32, (B) or per token (B, T); "old_logps" (B, T) f32, under the policy that wrote the
 * answers, without which every ratio is 1; and with beta, "token_ref_logps" (B, T) f32, under the
 * reference. */
typedef struct by_policy_spec {
    by_policy_mean mean;
    double divisor;
    by_policy_term term;
    double delta;        /* CLIPPED: upper bound of the ratio for negative advantages too; 0: none */
    double top_entropy;  /* share of tokens to train on, by highest entropy (Wang et al. 2025); 0: all */
    bool by_sequence;    /* one ratio per answer, a geometric mean over tokens (GSPO, Zheng et al. 2025) */
    bool whole_sequence; /* one ratio per answer, of its probabilities; means are over rows (RLOO) */
    double epsilon_low, epsilon_high; /* 0: 0.2; epsilon_high of WEIGHTED: 5 */
    double beta;                      /* of the divergence from the reference, e^d - d - 1 */
    double temperature;               /* of sampling; 0: 1 */
} by_policy_spec;
/* Also returns "token_kl" if there is a reference. */
BY_API by_tensor *by_policy_loss(void *spec, by_graph *g, by_model_io *io);

/* The critic of PPO: a classifier with one label, whose "pick" holds the position before each token of the
 * answers (B T positions). Reads "old_values", "returns" and "value_mask", (B, T) f32. The loss is half the
 * larger of two squared errors: of the value, and of the value clipped to within `clip` of the old one. Also
 * returns "values" (B, T). */
typedef struct by_value_spec {
    double clip; /* 0: 0.2 */
} by_value_spec;
BY_API by_tensor *by_value_loss(void *spec, by_graph *g, by_model_io *io);

/* ---- rewards and advantages, on the host ------------------------------------------------------- */

typedef enum by_reward_scale { BY_SCALE_GROUP, BY_SCALE_BATCH, BY_SCALE_NONE } by_reward_scale;
/* The advantages of count answers, with `group` consecutive answers per prompt: the reward minus the mean of
 * its group, divided by a standard deviation (n - 1) plus 1e-4. */
BY_API void by_group_advantages(const float *rewards, int count, int group, by_reward_scale scale,
                                float *out);
/* The reward minus the mean of the other answers of its group (Ahmadian et al. 2024). normalized: also
 * normalised over the batch. */
BY_API void by_leave_one_out(const float *rewards, int count, int group, bool normalized, float *out);

/* The answers of PPO: rows of `cols` tokens, of which row r uses the first last[r] + 1. */
typedef struct by_rollout {
    int rows, cols;
    const int32_t *last;                     /* (rows): index of the last token */
    const float *logps, *ref_logps, *values; /* (rows, cols) */
    const float *scores;                     /* (rows): of whole answers */
} by_rollout;
typedef struct by_gae_spec {
    double kl;           /* weight of the divergence from the reference in the rewards; 0: 0.05 */
    bool third;          /* estimate it by e^d - d - 1 (k3), d = ref - policy; otherwise by -d (k1) */
    bool whiten_rewards; /* to variance 1, keeping the mean */
    double gamma;        /* 0: 1 */
    double lambda;       /* 0: 0.95 */
} by_gae_spec;
/* Generalised advantage estimation (Schulman et al. 2015). Arrays are (rows, cols); all but advantages and
 * returns may be NULL. raw: before whitening. The score of an answer is added one past its last token, or at
 * the last token if the row ends there. */
typedef struct by_gae {
    float *kl, *rewards_raw, *rewards, *advantages_raw, *advantages, *returns;
} by_gae;
BY_API by_status by_gae_compute(const by_rollout *r, const by_gae_spec *spec, const by_gae *out);
/* Scales the values of unmasked tokens (mask not 0) to mean 0 and variance 1 (n - 1, plus 1e-8). keep_mean:
 * to variance 1 only. */
BY_API void by_whiten(float *values, const float *mask, size_t count, bool keep_mean);

/* Metrics of a policy in training, under their usual names. */
typedef struct by_policy_metrics {
    double kl, entropy, approx_kl; /* means over tokens; approx_kl: of half the square of the log-ratio */
    double low_mean, low_min, high_mean, high_max,
        region_mean; /* shares of clipped ratios; min and max over answers */
} by_policy_metrics;
/* token arrays are (rows, cols); old_logps, ref_logps and entropy may be NULL. advantages: (rows), or with
 * by_token (rows, cols). */
typedef struct by_policy_seen {
    int rows, cols;
    const float *logps, *old_logps, *ref_logps, *entropy, *mask, *advantages;
    bool by_token;
} by_policy_seen;
BY_API void by_policy_measure(const by_policy_seen *seen, const by_policy_spec *spec, by_policy_metrics *out);
/* The share of values for which the clipped error is the larger one. Arrays of count elements. */
BY_API double by_value_clipped(const float *values, const float *old_values, const float *returns,
                               const float *mask, int count, const by_value_spec *spec);

/* ---- distillation ------------------------------------------------------------------------------ */

/* Distillation from a teacher with the same vocabulary (docs/DISTIL.md has the equations). The teacher is
 * built into the same program, so its logits stay on the device. With teacher NULL the batch holds
 * "teacher_logits", shaped like the logits (for BY_TASK_ANSWER also "teacher_second"), and "teacher_hidden"
 * (B, T, C), f32. Members are weights of terms unless stated otherwise; a term of weight 0 is not computed.
 *
 * Distributions follow the task: a softmax over tokens or labels, a sigmoid per label for multi-label
 * classification, squared error for regression. Reads "mask", and "soft_mask" (B, T) i32 if the batch has it:
 * the positions whose distributions are compared. Without "soft_mask" these are the positions of the mask; in
 * an encoder-decoder, those with targets; with "pick", the picked ones with targets. A teacher with segments
 * reads "teacher_segments" (B, T) i32 if the student reads no "segments". */
typedef struct by_distill_spec {
    const by_model *teacher;
    double
        /* no weight: of both distributions; 0: 2. Their divergence is multiplied by its square */
        temperature;
    double soft;             /* the divergence of the distributions (Hinton et al. 2015) */
    double task;             /* by_model_loss; with 0 the batch needs no targets */
    double cosine;           /* 1 - cos of the last hidden states (Sanh et al. 2019) */
    double hidden;           /* their mean squared error */
    const by_model *student; /* for by_model_loss */
    /* Inside of the models. Those that read scores need by_pass_spec.scores, `layers` needs
     * by_pass_spec.hidden. */
    double
        /* mean squared error of hidden states: of the embeddings, and of every layer (Jiao et al. 2020) */
        layers;
    double
        /* mean squared error of the scores of every layer's attention before the softmax (Jiao et al. 2020)
         */
        attention;
    double
        /* divergences of the last layer's attention and of the products of its values (Wang et al. 2020) */
        relations;
    const int *map;        /* the layer of the teacher, from 1, for each of the student's; NULL: evenly */
    by_params *projection; /* by_distill_projection, where widths differ; NULL: they are the same */
    /* Vectors of texts: sums of the last hidden states with the weights "pool_weights" (B, T) f32 */
    double vector_cosine;     /* 1 - cos */
    double vector_error;      /* mean squared error; needs equal widths or the projection */
    double vector_similarity; /* mean squared error of all pairwise cosines; widths may differ */
} by_distill_spec;
/* Also returns the terms without their weights: "soft_loss", "task_loss", "cosine_loss", "hidden_loss",
 * "layers_loss", "attention_loss", "relations_loss", "vector_cosine_loss", "vector_error_loss",
 * "vector_similarity_loss". */
BY_API by_tensor *by_distill_loss(void *spec, by_graph *g, by_model_io *io);

/* A linear map from the student's hidden states to the teacher's width, trained with the student (by_update)
 * and discarded afterwards. The seed determines its initial values. Returns NULL on failure. */
BY_API by_params *by_distill_projection(const by_model *student, const by_model *teacher, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
