/* verb_align.c - `banyan align`: instruction tuning, preferences, reward models, reinforcement learning. */
#include <math.h>

#include "banyan/align_run.h"
#include "cli/common.h"
#include "cli/config_file.h"
#include "cli/learning.h"
#include "cli/lora.h"
#include "cli/policy_options.h"
#include "cli/run_screen.h"
#include "cli/show.h"
#include "cli/show_answers.h"
#include "cli/verbs.h"

typedef struct align_options {
    by_align_spec run;
    cli_learning l;
    cli_policy_options p;
    const char *method, *loss, *loss_weights, *weights;
    by_dpo_term *losses; /* allocated by read_losses */
    cli_adapter_words adapters;
    cli_lora adapter;
    int show;
    cli_args own; /* the options of this call */
} align_options;

static const cli_option options[] = {
    {CLI_AT(align_options, method), .name = "method", .letter = 'm', .value = "METHOD",
     .help = "sft, reward, dpo, kto, orpo, simpo, cpo; ppo, grpo, rloo, reinforce", .group = "Method"},
    {CLI_AT(align_options, loss), .name = "loss", .value = "KIND[,KIND...]", .preset = "sigmoid",
     .help = "dpo: sigmoid, hinge, ipo, robust, sigmoid_norm, sppo_hard, apo_zero, apo_down, nca_pair, "
             "exo_pair, bco_pair, sft, discopop, aot, aot_unpaired; several add up"},
    {CLI_AT(align_options, loss_weights), .name = "loss-weights", .value = "W1,W2,...",
     .help = "dpo: weights of the losses, in their order (default: 1 each)"},
    {CLI_AT(align_options, run.divergence), .name = "divergence",
     .choices = "reverse_kl|forward_kl|js_divergence|alpha_divergence", .preset = "reverse_kl",
     .help = "dpo: divergence from the reference (sigmoid, hinge, ipo, robust, sigmoid_norm, exo_pair, "
             "discopop, sft)"},
    {CLI_AT(align_options, run.divergence_alpha), .name = "divergence-alpha", CLI_RANGE(1e-6, 1e3),
     .help = "dpo: alpha of alpha_divergence (default: 0.5)"},
    {CLI_AT(align_options, run.weight_pairs), .name = "weight-pairs",
     .help = "dpo: a pair counts as much as the policy is likely to write its answers (WPO)"},
    {CLI_AT(align_options, run.beta), .name = "beta", CLI_MIN(0),
     .help = "dpo, kto, policies: weight of the divergence from the reference; orpo, simpo, cpo: factor of "
             "the log-probabilities (default: 0.1; simpo: 2; grpo: 0; ppo, rloo, reinforce: 0.05)"},
    {CLI_AT(align_options, run.label_smoothing), .name = "label-smoothing", CLI_RANGE(0, 0.49), .preset = "0",
     .help = "dpo (sigmoid, robust, exo_pair, aot), cpo, simpo: assumed share of pairs in the wrong order"},
    {CLI_AT(align_options, run.alpha), .name = "alpha", CLI_MIN(0),
     .help = "cpo, simpo: weight of the likelihood of the chosen answers (default: 1; simpo: 0)"},
    {CLI_AT(align_options, run.gamma), .name = "gamma", CLI_MIN(0),
     .help = "simpo: margin between the two answers (default: 1)"},
    {CLI_AT(align_options, run.center), .name = "center", CLI_MIN(0), .preset = "0",
     .help = "reward: weight of the squared sum of both rewards, which keeps them around 0"},
    {CLI_AT(align_options, run.desirable_weight), .name = "desirable-weight", CLI_MIN(0), .preset = "1",
     .help = "kto: weight of good answers"},
    {CLI_AT(align_options, run.undesirable_weight), .name = "undesirable-weight", CLI_MIN(0), .preset = "1",
     .help = "kto: weight of bad answers"},
    {CLI_AT(align_options, run.unpaired), .name = "unpaired",
     .help = "kto: unpaired loss of APO-zero, without the divergence"},
    {CLI_AT(align_options, run.reference), .name = "reference", .value = "DIR",
     .help = "reference model (default: the initial MODEL, without a new adapter)"},
    {CLI_AT(align_options, run.no_cache), .name = "no-cache",
     .help = "run the reference in every step instead of once before training"},
    CLI_POLICY_ROWS(align_options, run.policy, p)

        {CLI_AT(align_options, run.data), .name = "data", .letter = 'd', .value = "FILE",
         .help = "training examples: JSON lines or a list of objects; - is standard input", .group = "Data"},
    {CLI_AT(align_options, run.eval_data), .name = "eval", .letter = 'e', .value = "FILE",
     .help = "evaluation examples; the best model is kept"},
    {CLI_AT(align_options, run.eval_fraction), .name = "eval-fraction", CLI_RANGE(0, 0.9), .preset = "0",
     .help = "without --eval: share of the examples to hold out for evaluation"},
    {CLI_AT(align_options, run.chat_template), .name = "chat-template", .value = "FILE",
     .help = "chat template, saved with the model (default: the model's own)"},
    {CLI_AT(align_options, run.limit), .name = "max-length", .alias = "seq", CLI_MIN(2), .suffix = true,
     .help = "maximum tokens of an example; longer ones lose their end (default: the model's context)"},
    {CLI_AT(align_options, run.keep_end), .name = "keep-end",
     .help = "longer examples lose their beginning instead"},
    {CLI_AT(align_options, run.learn_prompts), .name = "learn-prompts",
     .help = "sft: compute the loss on all tokens, not only on answers"},
    {CLI_AT(align_options, run.pack), .name = "pack",
     .help = "sft: put several examples into a row; attention does not cross them"},
    {CLI_AT(align_options, run.dynamic), .name = "dynamic",
     .help = "sft: weigh each token's loss by its probability (DFT)"},
    {CLI_AT(align_options, run.noise), .name = "neftune", CLI_RANGE(0, 1e4), .preset = "0",
     .help = "sft: noise on embeddings in training, alpha of NEFTune, such as 5"},
    {CLI_AT(align_options, show), .name = "show-batch", CLI_MIN(1),
     .help = "print N examples as token sequences with the learned tokens marked, and exit"},

    {CLI_AT(align_options, run.batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1e6), .preset = "8", .help = "examples, pairs or prompts per micro-batch",
     .group = "Steps"},
    CLI_ACCUMULATE_ROW(align_options, run),
    {CLI_AT(align_options, run.eval_batch), .name = "eval-batch-size", CLI_RANGE(1, 1e6),
     .help = "examples per batch in evaluation (default: as --batch-size)"},
    {CLI_AT(align_options, run.epochs), .name = "epochs", CLI_MIN(1e-6),
     .help = "length in epochs (default: 3)"},
    {CLI_AT(align_options, run.steps), .name = "max-steps", .alias = "steps", .letter = 'n', CLI_MIN(1),
     .suffix = true, .help = "length in steps instead"},
    CLI_PATIENCE_ROW(align_options, run),

    {CLI_AT(align_options, run.optimizer.kind), .name = "optimizer", .choices = "adamw|sgd|adafactor",
     .preset = "adamw", .help = "optimiser", .group = "Optimiser"},
    {CLI_AT(align_options, run.schedule.rate), .name = "learning-rate", .alias = "lr", CLI_RANGE(0, 100),
     .help = "peak learning rate (default: sft, reward: 3e-5, others: 1e-6; below width 768 more; ten times "
             "that with --lora, a hundred times with --ia3, --prefix-tuning and --prompt-tuning)"},
    {CLI_AT(align_options, run.schedule.kind), .name = "lr-scheduler",
     .choices = "constant|linear|cosine|inverse-sqrt", .preset = "linear",
     .help = "learning-rate schedule, ending at 0"},
    {CLI_AT(align_options, run.warmup_share), .name = "warmup-ratio", CLI_RANGE(0, 1), .preset = "0.1",
     .help = "share of the run for linear warm-up"},
    {CLI_AT(align_options, run.schedule.warmup), .name = "warmup-steps", .alias = "warmup", CLI_MIN(0),
     .help = "steps of linear warm-up instead"},
    CLI_DECAY_ROW(align_options, run, "0"),
    {CLI_AT(align_options, run.freeze), .name = "freeze", .value = "embeddings|N|body|weights|but:NAMES",
     .help =
         "do not train the embeddings; N: nor the first N layers; body: nor any layer; weights: train biases "
         "and a new head alone; but:NAMES: train the parameters with these names and a new head alone"},
    CLI_ADAPTER_ROWS(align_options, adapters),
    CLI_ADAM_ROWS(align_options, run, "0.999"),
    CLI_CLIP_ROW(align_options, run),
    {CLI_AT(align_options, run.dropout), .name = "dropout", CLI_RANGE(0, 0.99),
     .help = "dropout probability (default: sft: the model's own; others: 0)"},

    CLI_RUN_ROWS(align_options, run,
                 "output directory, also the run folder; the same command continues a run in it",
                 "after each epoch"),
    CLI_SAVE_ROWS(align_options, run),
    CLI_LOG_ROWS(align_options, run, "seed of the data order, dropout, new heads and sampled answers"),

    CLI_MACHINE_ROWS(align_options, run),
    CLI_WEIGHTS(align_options, weights),

    CLI_JSON_ROW(align_options),
    CLI_CURVE_ROWS(align_options),
};

static int names_in(const char *list)
{
    int n = 1;
    for (; *list; list++)
        n += *list == ',';
    return n;
}

/* Cuts the next name off a list. Returns it as a heap string and moves *list to the rest. */
static char *next_name(const char **list)
{
    const size_t n = strcspn(*list, ",");
    char *name = base_sprintf("%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return name;
}

/* Parses the kinds and weights of --loss. Returns false after reporting an error. */
static bool read_losses(align_options *o)
{
    const int count = names_in(o->loss);
    const char *names = o->loss, *weights = o->loss_weights;
    o->losses = base_alloc_zero((size_t)count, sizeof *o->losses);
    for (int i = 0; o->losses && i < count; i++) {
        char *name = next_name(&names);
        const bool known = name && by_dpo_find(name, &o->losses[i].kind);
        if (!known)
            cli_usage_fail("unknown --loss %s; banyan help align lists the losses", name ? name : "");
        base_free(name);
        if (!known)
            return false;
        char *end = NULL;
        const char mark = i + 1 < count ? ',' : '\0';
        o->losses[i].weight = weights ? base_strtod(weights, &end) : 1;
        if (weights && (end == weights || *end != mark || !(o->losses[i].weight > 0))) {
            cli_usage_fail("--loss-weights %s: not %d numbers above 0, separated by commas", o->loss_weights,
                           count);
            return false;
        }
        weights = weights ? end + 1 : NULL;
    }
    o->run.loss = o->losses ? o->losses[0].kind : BY_DPO_SIGMOID;
    o->run.losses = o->losses;
    o->run.loss_count = count > 1 || o->loss_weights ? count : 0;
    return o->losses != NULL;
}

/* Options that were not given get the library's defaults for the method. Returns false after reporting an
 * error. */
static bool fill_spec(align_options *o, const cli_args *args, cli_run_screen *screen)
{
    by_align_spec *s = &o->run;
    by_align_method method;
    if (!by_align_find(o->method, &method)) {
        cli_usage_fail("unknown --method %s; the methods are sft, reward, dpo, kto, orpo, simpo, cpo, ppo, "
                       "grpo, rloo and reinforce",
                       o->method);
        return false;
    }
    const by_align_spec usual = by_align_defaults(method);
    cli_options_default(args, s, &usual, sizeof *s);
    s->method = method;
    if (!read_losses(o))
        return false;
    s->dtype = o->l.bf16 ? BY_BF16 : s->dtype;
    cli_adam_read(&s->optimizer);
    if (cli_lora_parse(&o->adapters, &o->adapter) != BY_OK) {
        cli_usage_fail("%s", by_error_message());
        return false;
    }
    o->adapter.spec.seed = s->seed;
    s->adapter = o->adapter.words ? &o->adapter.spec : NULL;
    s->lora = o->adapter.words;
    s->weights = cli_weights(o->weights);
    s->report = cli_run_report;
    s->cancelled = cli_poll;
    s->user = screen;
    return cli_policy_read(&o->p, args, &s->policy);
}

static int print_json(const align_options *o, const by_align_result *r)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "out", o->run.out);
    cJSON_AddStringToObject(j, "method", by_align_name(o->run.method));
    cJSON_AddNumberToObject(j, "steps", (double)r->steps);
    cJSON_AddNumberToObject(j, "resumed_from", (double)r->resumed_from);
    cJSON_AddNumberToObject(j, "parameters", (double)r->parameters);
    cJSON_AddNumberToObject(j, "trained_parameters", (double)r->trained);
    cli_json_number(j, "train_loss", r->loss);
    cJSON_AddNumberToObject(j, "best_step", (double)r->best_step);
    cJSON_AddNumberToObject(j, "seconds", r->seconds);
    cJSON_AddNumberToObject(j, "state_bytes", (double)r->state_bytes);
    cJSON_AddNumberToObject(j, "activation_bytes", (double)r->activation_bytes);
    if (r->evaluated && isfinite(r->eval_loss))
        cli_json_number(j, "loss", r->eval_loss);
    for (int i = 0; i < r->n_metrics; i++)
        cli_json_number(j, r->metrics[i].name, r->metrics[i].value);
    return cli_print_json(j);
}

static int print_result(const align_options *o, const by_align_result *r)
{
    if (o->l.json)
        return print_json(o, r);
    if (!o->l.quiet)
        cli_show_curve(o->run.out, by_align_loss_unit(o->run.method), o->l.curve);
    if (r->resumed_from == r->steps)
        cli_note_finished(o->run.out, r->steps);
    cli_steps_print(&(cli_steps){.steps = r->steps,
                                 .resumed_from = r->resumed_from,
                                 .best = r->evaluated ? r->best_step : 0,
                                 .seconds = r->seconds,
                                 .stopped_early = r->stopped_early});
    if (r->evaluated && isfinite(r->eval_loss))
        printf(": loss %.4f", r->eval_loss);
    printf("\n");
    for (int i = 0; i < r->n_metrics; i++)
        printf("%s %.4f%s", r->metrics[i].name, r->metrics[i].value, i + 1 < r->n_metrics ? "   " : "\n");
    printf("model: %s\n", o->run.out);
    return CLI_OK;
}

/* Advice after a diverged run. */
static const char *const slower = "use a lower --learning-rate";
static const char *const smaller = "use a smaller --batch-size with more --gradient-accumulation-steps, "
                                   "--lora, --recompute, --bf16, or a shorter --max-length";

static int start(align_options *o, by_device *d, cli_run_screen *screen)
{
    by_align_result result;
    cli_interrupt_install();
    if (o->show)
        return cli_show_answers(d, &o->run, o->show, o->l.json, o->l.quiet);
    const by_status status = by_align_run(d, &o->run, &result);
    cli_run_end(screen);
    return status == BY_OK ? print_result(o, &result) : cli_fail_learning(status, slower, smaller);
}

/* Options that only some methods have. */
#define BIT(name) (1u << BY_ALIGN_##name)
enum { POLICIES = BIT(PPO) | BIT(GRPO) | BIT(RLOO) | BIT(REINFORCE) };
static const cli_scope scopes[] = {
    {"loss", BIT(DPO), "dpo"},
    {"loss-weights", BIT(DPO), "dpo"},
    {"divergence", BIT(DPO), "dpo"},
    {"divergence-alpha", BIT(DPO), "dpo"},
    {"weight-pairs", BIT(DPO), "dpo"},
    {"beta", ~(BIT(SFT) | BIT(REWARD)), "preferences and policies"},
    {"label-smoothing", BIT(DPO) | BIT(CPO) | BIT(SIMPO), "dpo, cpo and simpo"},
    {"alpha", BIT(CPO) | BIT(SIMPO), "cpo and simpo"},
    {"gamma", BIT(SIMPO), "simpo"},
    {"center", BIT(REWARD), "reward"},
    {"desirable-weight", BIT(KTO), "kto"},
    {"undesirable-weight", BIT(KTO), "kto"},
    {"unpaired", BIT(KTO), "kto"},
    {"learn-prompts", BIT(SFT), "sft"},
    {"dynamic", BIT(SFT), "sft"},
    {"neftune", BIT(SFT), "sft"},
    {"keep-end", ~POLICIES, "methods that learn from given answers"},
    {"pack", BIT(SFT), "sft"},
    {"reference", BIT(DPO) | BIT(KTO) | POLICIES, "dpo, kto and policies"},
    {"no-cache", BIT(DPO) | BIT(KTO), "dpo and kto"},
    {"grpo-loss", BIT(GRPO), "grpo"},
    {"scale-rewards", BIT(GRPO), "grpo"},
    {"top-entropy-quantile", BIT(GRPO), "grpo"},
    {"delta", BIT(GRPO), "grpo"},
    {"normalize-advantages", BIT(RLOO), "rloo"},
    {"mask-truncated", BIT(GRPO) | BIT(RLOO) | BIT(REINFORCE), "grpo, rloo and reinforce"},
    {"value-model", BIT(PPO), "ppo"},
    {"value-learning-rate", BIT(PPO), "ppo"},
    {"vf-coef", BIT(PPO), "ppo"},
    {"value-clip", BIT(PPO), "ppo"},
    {"discount", BIT(PPO), "ppo"},
    {"gae-lambda", BIT(PPO), "ppo"},
    {"whiten-rewards", BIT(PPO), "ppo"},
    {"kl-estimator", BIT(PPO), "ppo"},
    {"missing-eos-penalty", BIT(PPO), "ppo"},
    {"kl-target", BIT(PPO), "ppo"},
    {"kl-horizon", BIT(PPO), "ppo"},
    {"reward", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"reward-weights", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"num-generations", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"max-new-tokens", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"temperature", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"top-k", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"top-p", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"stop", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"greedy-eval", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"sample-steps", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"sample-count", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"num-iterations", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"num-minibatches", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"epsilon", POLICIES, "ppo, grpo, rloo and reinforce"},
    {"epsilon-high", POLICIES, "ppo, grpo, rloo and reinforce"},
};
#undef BIT

/* Options of the rewards that begin with a word; of others, for instance a learned one, they would change
 * nothing. */
static const struct {
    const char *kind;
    const char *options[6];
} judging[] = {
    {"model:", {"reward-label", "reward-logits", "reward-answer-alone"}},
    {"command:",
     {"reward-format", "reward-processes", "reward-timeout", "reward-retries", "reward-fallback"}}};

static bool has_reward(const align_options *o, const char *kind)
{
    for (int i = 0; i < o->p.rewards.count; i++)
        if (strncmp(o->p.rewards.items[i], kind, strlen(kind)) == 0)
            return true;
    return false;
}

/* Returns false after reporting an option of an absent kind of reward source. */
static bool fits_rewards(const align_options *o)
{
    for (int k = 0; k < BY_COUNT(judging); k++) {
        const cli_option *row = cli_given_among(&o->own, judging[k].options);
        if (row && !has_reward(o, judging[k].kind)) {
            cli_usage_fail("--%s needs --reward %s...", row->name, judging[k].kind);
            return false;
        }
    }
    return true;
}

/* Whether ratios can differ from 1: after the first update of a step, or if the log-probabilities at sampling
 * time come from a separate pass without dropout. */
static bool has_ratios(const by_align_spec *s)
{
    const bool old = s->method == BY_ALIGN_PPO || (s->method != BY_ALIGN_GRPO && s->beta != 0);
    return s->policy.updates * s->policy.minibatches > 1 || (old && s->dropout > 0);
}

/* Why clipping options would change nothing, or NULL. */
static const char *unclipped(const align_options *o)
{
    const by_align_spec *s = &o->run;
    const by_policy_run *p = &s->policy;
    const bool low = cli_given(&o->own, &p->epsilon_low), high = cli_given(&o->own, &p->epsilon_high),
               delta = cli_given(&o->own, &p->delta);
    if (!low && !high && !delta)
        return NULL;
    if (s->method == BY_ALIGN_GRPO && p->loss == BY_GRPO_SAPO)
        return "--grpo-loss sapo clips no ratios: --epsilon, --epsilon-high and --delta are for other losses";
    if (s->method == BY_ALIGN_GRPO && p->loss == BY_GRPO_CISPO && (low || delta))
        return "--grpo-loss cispo limits ratios by --epsilon-high alone";
    if (s->method == BY_ALIGN_GRPO && p->loss == BY_GRPO_CISPO && p->epsilon_high < 1)
        return NULL;
    return has_ratios(s)
               ? NULL
               : "--epsilon, --epsilon-high and --delta clip ratios, which are all 1 with one update per "
                 "step: give --num-iterations or --num-minibatches";
}

/* Why policy options conflict, or NULL. */
static const char *conflict(const align_options *o)
{
    const by_align_spec *s = &o->run;
    if (unclipped(o))
        return unclipped(o);
    if (o->run.reference && s->beta == 0)
        return "--reference counts only with --beta above 0";
    if (s->policy.kl_target > 0 && s->beta == 0)
        return "--kl-target adapts --beta, which must be above 0";
    if (cli_given(&o->own, &s->policy.greedy_eval) && !s->eval_data && s->eval_fraction == 0)
        return "--greedy-eval needs --eval or --eval-fraction";
    if (cli_given(&o->own, &s->policy.kl_horizon) && s->policy.kl_target == 0)
        return "--kl-horizon needs --kl-target";
    return NULL;
}

/* Returns false after reporting an option of another method. */
static bool fits_method(const align_options *o)
{
    const uint32_t method = 1u << o->run.method;
    const cli_scope *row = cli_given_outside(&o->own, scopes, BY_COUNT(scopes), method);
    const bool policy = method & POLICIES;
    const bool alpha = cli_given(&o->own, &o->run.divergence_alpha);
    if (o->run.eval_data && cli_given(&o->own, &o->run.eval_fraction))
        cli_usage_fail("--eval-fraction and --eval exclude each other");
    else if (row)
        cli_usage_fail("--%s is for %s, not for %s", row->option, row->names, o->method);
    else if (alpha && o->run.divergence != BY_DIVERGENCE_ALPHA)
        cli_usage_fail("--divergence-alpha needs --divergence alpha_divergence");
    else if (policy && o->p.rewards.count == 0)
        cli_usage_fail(
            "no reward: %s needs --reward exact, sorted, length:N, command:COMMAND, model:DIR, ...",
            o->method);
    else if (policy && conflict(o))
        cli_usage_fail("%s", conflict(o));
    else
        return fits_rewards(o) && cli_optimizer_fits(o->run.optimizer.kind, o->run.schedule.kind, &o->own);
    return false;
}

static int align(align_options *o, const cli_args *args)
{
    cli_run_screen screen = {.label = "align", .quiet = o->l.quiet, .log_every = BY_MAX(o->run.log_every, 1)};
    if (!fill_spec(o, args, &screen) || (!o->show && !fits_method(o)))
        return CLI_USAGE;
    char *dir = cli_model_dir(args->items[0]);
    char *reference = dir && o->run.reference ? cli_model_dir(o->run.reference) : NULL;
    by_device *d = dir && (reference || !o->run.reference) ? cli_device(o->l.device, o->l.threads) : NULL;
    o->run.model = dir;
    o->run.reference = reference;
    const int code = d ? start(o, d, &screen) : cli_fail(NULL);
    by_device_free(d);
    base_free(reference);
    base_free(dir);
    return code;
}

static const char *missing(const align_options *o)
{
    return !o->method                ? "no method: give --method sft, dpo, ..."
           : !o->run.data            ? "no data: give --data FILE"
           : !o->run.out && !o->show ? "no output directory: give --out DIR"
                                     : NULL;
}

static int run(int argc, char **argv)
{
    align_options o;
    cli_command c;
    int code;
    if (!cli_command_open(&cli_align, &o, sizeof o, argc, argv, &c, &code))
        return code;
    o.run.command = c.line;
    o.run.options = c.given;
    o.own = cli_args_own(&c.args, c.config.earlier);
    code = missing(&o) ? cli_usage_fail("%s", missing(&o)) : align(&o, &c.args);
    cli_policy_free(&o.p);
    base_free(o.losses);
    cli_lora_free(&o.adapter);
    cli_command_close(&c);
    return code;
}

const cli_verb cli_align = {
    .name = "align",
    .summary = "tune a language model on instructions, preferences and rewards",
    .args = "MODEL",
    .description =
        "MODEL is a model directory or a run folder with a decoder. --method selects the training data and "
        "loss:\n"
        "\n"
        "  sft              texts, prompts with completions, conversations (loss on the answers)\n"
        "  reward           pairs of a chosen and a rejected answer; trains a model that scores texts\n"
        "  dpo orpo simpo cpo  the same pairs; trains the language model itself\n"
        "  kto              single answers labelled good or bad, or pairs\n"
        "  ppo grpo rloo reinforce  prompts; answers are sampled and rewarded\n"
        "\n"
        "DIR becomes a model directory that other programs load: the best model on the evaluation data, else "
        "the last. Beside it are metrics.jsonl, run.json, loss.svg and checkpoints. The same command "
        "continues a stopped run. Conversations are rendered with the model's chat template. With --lora an "
        "adapter is trained, and DIR becomes a folder of PEFT.",
    .examples =
        "banyan align gpt2 --method sft --data chats.jsonl --chat-template chatml.jinja --out runs/chat\n"
        "# the examples as the model gets them\n"
        "banyan align gpt2 --method sft --data chats.jsonl --show-batch 2\n"
        "banyan align runs/chat --method dpo --data pairs.jsonl --eval-fraction 0.1 --beta 0.1 --out "
        "runs/dpo\n"
        "# a reward model, and the score of a text\n"
        "banyan align runs/chat --method reward --data pairs.jsonl --eval-fraction 0.1 --out runs/reward\n"
        "banyan classify runs/reward \"How are you? Fine, thank you.\"\n"
        "# rewards that can be checked, and those of a command\n"
        "banyan align runs/chat --method grpo --data prompts.jsonl --reward arithmetic --out runs/grpo\n"
        "banyan align runs/chat --method ppo --data prompts.jsonl --reward command:./score.py --out "
        "runs/ppo\n"
        "# QLoRA: an adapter over weights of 4 bits\n"
        "banyan align llama --method sft --data chats.jsonl --lora r=16,targets=all-linear --weights q4_0 "
        "--out runs/a\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
