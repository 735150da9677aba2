/* learning.h - options that the verbs which train share, as rows of their tables. They write into a
 * by_run_spec or a by_finetune_spec, the member `s` of a verb's options; the rest is in a cli_learning, the
 * member `l`. */
#ifndef BY_CLI_LEARNING_H
#define BY_CLI_LEARNING_H

#include "banyan/train.h"
#include "cli/options.h"

typedef struct cli_learning {
    const char *config, *resume, *device;
    int threads;
    bool bf16, json, curve, quiet;
} cli_learning;

/* The library reads 0 as "default" and a negative number as 0: maps the user's 0 to the latter. */
static inline double cli_or_none(double x)
{
    return x == 0 ? -1 : x;
}

/* The numbers of AdamW, as the library reads them. */
void cli_adam_read(by_optimizer_spec *o);
/* Returns false after reporting an option of another optimiser or schedule that the user gave. */
bool cli_optimizer_fits(by_optimizer optimizer, by_schedule schedule, const cli_args *own);
/* Shows the error of a run, with a hint if values were not finite or memory was exhausted. Returns the exit
 * code. */
int cli_fail_learning(by_status s, const char *rate, const char *memory);

/* Prints the number of steps of a run. */
typedef struct cli_steps {
    int64_t steps, resumed_from, best; /* best 0: there was no evaluation */
    double seconds;
    bool stopped_early;
} cli_steps;
/* "12 steps in 3.4 s; best at step 8" on stdout, without the end of the line. */
void cli_steps_print(const cli_steps *s);

/* clang-format off */
#define CLI_ACCUMULATE_ROW(type, s)                                                                          \
    {CLI_AT(type, s.accumulate), .name = "gradient-accumulation-steps", .alias = "accumulate",               \
     CLI_RANGE(1, 1e6), .preset = "1", .help = "micro-batches per step"}

#define CLI_PATIENCE_ROW(type, s)                                                                            \
    {CLI_AT(type, s.patience), .name = "patience", CLI_MIN(0), .preset = "0",                                \
     .help = "stop after N evaluations without improvement; 0 never stops early"}

#define CLI_DECAY_ROW(type, s, usual)                                                                        \
    {CLI_AT(type, s.optimizer.weight_decay), .name = "weight-decay", CLI_MIN(0), .preset = usual,            \
     .help = "decay of tensors with two or more axes"}

#define CLI_ADAM_ROWS(type, s, usual_beta2)                                                                  \
    {CLI_AT(type, s.optimizer.beta1), .name = "adam-beta1", .alias = "beta1", CLI_RANGE(0, 0.99999),         \
     .preset = "0.9", .help = "AdamW: decay of the first moment"},                                           \
    {CLI_AT(type, s.optimizer.beta2), .name = "adam-beta2", .alias = "beta2", CLI_RANGE(0, 0.999999),        \
     .preset = usual_beta2, .help = "AdamW: decay of the second moment"},                                    \
    {CLI_AT(type, s.optimizer.eps), .name = "adam-epsilon", CLI_MIN(0), .preset = "1e-8", .help = "AdamW: epsilon"}

#define CLI_CLIP_ROW(type, s)                                                                                \
    {CLI_AT(type, s.optimizer.max_grad_norm), .name = "max-grad-norm", CLI_MIN(0), .preset = "1",            \
     .help = "clip the gradient norm; 0 does not clip"}

/* Prints the run folder, described by `what`, and the evaluation interval: every N steps, by default
 * `usually`. */
#define CLI_RUN_ROWS(type, s, what, usually)                                                                 \
    {CLI_AT(type, s.out), .name = "out", .letter = 'o', .value = "DIR", .help = what, .group = "Run"},       \
    {CLI_AT(type, l.resume), .name = "resume", .value = "DIR",                                               \
     .help = "continue the run in DIR with its own options; options given here override them"},              \
    {CLI_AT(type, l.config), .name = "config", .value = "FILE",                                              \
     .help = "read options from a run.json or a JSON object; options given here override them"},             \
    {CLI_AT(type, s.overwrite), .name = "overwrite",                                                         \
     .help = "start again instead of continuing; removes only files that an earlier run wrote"},             \
    {CLI_AT(type, s.eval_every), .name = "eval-steps", .alias = "eval-every", CLI_MIN(1),                    \
     .help = "evaluate every N steps (default: " usually ")"}

#define CLI_SAVE_ROWS(type, s)                                                                               \
    {CLI_AT(type, s.save_every), .name = "save-steps", .alias = "save-every", CLI_MIN(1),                    \
     .help = "save every N steps (default: at each evaluation)"},                                            \
    {CLI_AT(type, s.keep), .name = "save-total-limit", CLI_MIN(1), .preset = "1",                            \
     .help = "number of newest checkpoints to keep, besides the best"}

#define CLI_LOG_ROWS(type, s, seeded)                                                                        \
    {CLI_AT(type, s.log_every), .name = "logging-steps", .alias = "log-every", CLI_MIN(1),                   \
     .help = "log and print every N steps (default: log each step, print 20 to 50 lines)"},                  \
    {CLI_AT(type, s.seed), .name = "seed", CLI_MIN(0), .preset = "1337", .help = seeded}

#define CLI_MACHINE_ROWS(type, s)                                                                            \
    {CLI_AT(type, l.device), .name = "device", .preset = "auto", .value = "NAME",                            \
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one",   \
     .group = "Machine"},                                                                                    \
    {CLI_AT(type, l.threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",           \
     .help = "CPU threads; 0 uses every core"},                                                              \
    {CLI_AT(type, s.dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",                 \
     .help = "precision of parameters and activations; 16-bit parameters keep f32 masters unless "           \
             "--stochastic-rounding is given"},                                                              \
    {CLI_AT(type, l.bf16), .name = "bf16", .help = "same as --dtype bf16"},                                  \
    {CLI_AT(type, s.stochastic_rounding), .name = "stochastic-rounding",                                     \
     .help = "bf16 parameters without f32 masters: 14 bytes each instead of 18, with updates rounded "       \
             "stochastically"},                                                                              \
    {CLI_AT(type, s.recompute), .name = "recompute", .alias = "gradient-checkpointing",                      \
     .help = "recompute activations in the backward pass to save memory"}

#define CLI_JSON_ROW(type)                                                                                   \
    {CLI_AT(type, l.json), .name = "json", .help = "print the result as one JSON object", .group = "Output"}

#define CLI_CURVE_ROWS(type)                                                                                 \
    {CLI_AT(type, l.curve), .name = "curve",                                                                 \
     .help = "draw the curve at the end even if the output is not a terminal"},                              \
    {CLI_AT(type, l.quiet), .name = "quiet", .letter = 'q', .help = "show no progress"}
/* clang-format on */

#endif
