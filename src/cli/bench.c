/* bench.c - banyan bench: how fast this machine trains, reads and writes. Random tokens in, one line of
 * JSON out. */
#include <stdlib.h>
#include <sys/resource.h>

#include "banyan/generate.h"
#include "banyan/train.h"
#include "cli/bench_open.h"
#include "cli/common.h"
#include "cli/show.h"
#include "cli/verbs.h"

typedef struct bench_options {
    const char *model, *preset, *model_dir, *save, *device;
    int layers, heads, width, context, vocab;
    int batch, seq, target, new_tokens, beams, steps, warmup, threads;
    by_dtype dtype;
    bool bf16, by_chance, recompute;
} bench_options;

static const cli_option options[] = {
    {CLI_AT(bench_options, model), .name = "model", .letter = 'm', .preset = "gpt2", .value = "FAMILY",
     .help = "model family: gpt2, bert, roberta, ...; for translate marian unless given", .group = "Model"},
    {CLI_AT(bench_options, preset), .name = "preset", .value = "NAME",
     .help = "shape by name: tiny, 124m, 350m, 774m, 1558m; base, large (else 124m or base)"},
    {CLI_AT(bench_options, layers), .name = "layers", CLI_MIN(1),
     .help = "number of layers (else the preset's)"},
    {CLI_AT(bench_options, heads), .name = "heads", CLI_MIN(1),
     .help = "attention heads (else the preset's)"},
    {CLI_AT(bench_options, width), .name = "width", CLI_MIN(1), .help = "model width (else the preset's)"},
    {CLI_AT(bench_options, context), .name = "context", .letter = 'c', CLI_MIN(1), .suffix = true,
     .help = "longest sequence, in tokens (else the preset's)"},
    {CLI_AT(bench_options, vocab), .name = "vocab", CLI_MIN(2), .suffix = true,
     .help = "tokens of the vocabulary (else the family's)"},
    {CLI_AT(bench_options, model_dir), .name = "model-dir", .value = "DIR",
     .help = "open this model instead; decode then tells the time from the start to the first token"},
    {CLI_AT(bench_options, save), .name = "save", .value = "DIR",
     .help = "write the model there first, for --model-dir and for other programs"},

    {CLI_AT(bench_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b', CLI_RANGE(1, 1e6),
     .help = "sequences at once (else 4; prefill and decode: 1)", .group = "Work"},
    {CLI_AT(bench_options, seq), .name = "seq", .alias = "prompt", CLI_RANGE(1, 1e7), .suffix = true,
     .help = "tokens per sequence, or of the prompt (else 64; prefill: 512)"},
    {CLI_AT(bench_options, target), .name = "target", CLI_RANGE(1, 1e7), .suffix = true,
     .help = "encoder-decoders, train: tokens of what is to be written (else as many as of the source)"},
    {CLI_AT(bench_options, new_tokens), .name = "new-tokens", CLI_RANGE(2, 1e7), .preset = "256",
     .help = "decode: tokens written after the prompt"},
    {CLI_AT(bench_options, beams), .name = "beams", CLI_RANGE(1, 64), .preset = "4",
     .help = "translate: hypotheses of the beam search"},
    {CLI_AT(bench_options, steps), .name = "steps", .letter = 'n', CLI_RANGE(1, 1e6),
     .help = "timed steps (else 10; decode, where a step is a whole text: 3)"},
    {CLI_AT(bench_options, warmup), .name = "warmup", CLI_RANGE(0, 1e6),
     .help = "steps before the clock starts (else 2; decode: 1)"},
    {CLI_AT(bench_options, recompute), .name = "recompute", .alias = "gradient-checkpointing",
     .help = "train: keep less for the backward pass and compute it again"},

    {CLI_AT(bench_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "where to compute: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8, or auto: a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(bench_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads (0: every core)"},
    {CLI_AT(bench_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",
     .help = "precision of parameters and activations; 16-bit training keeps f32 masters"},
    {CLI_AT(bench_options, bf16), .name = "bf16", .help = "the same as --dtype bf16"},
    {CLI_AT(bench_options, by_chance), .name = "stochastic-rounding",
     .help = "train: no f32 masters of bf16 parameters"},
};

/* Nodes of one kind and shape, as the trace of a step shows them. */
typedef struct product {
    char op[24], shape[48];
    int count;
    double flops, bytes, seconds; /* of all of them, in the present step */
    double best;                  /* the least that the seconds were */
} product;

typedef struct bench {
    bench_options o;
    const struct work *work;
    double started; /* when the verb began, for the time to the first token */
    by_device *device;
    by_model *model;
    by_trainer *trainer;     /* train, gemm */
    by_program *program;     /* forward */
    by_tensor *input;        /* its (B, T) */
    by_generator *generator; /* prefill, decode */
    uint64_t random;
    int32_t *tokens, *targets; /* (B, T) */
    int32_t *source;           /* (B, S) of encoder-decoders; else NULL */
    int32_t *pick;             /* (picks) rows that a model of hidden tokens is to guess, else NULL */
    int picks;
    const int32_t **rows; /* (B) of tokens, for the generator */
    int *lengths;         /* (B) */
    double *seconds;      /* (steps) */
    product products[160];
    int n_products;
    bool only_products; /* gemm; profile looks at all nodes */
    /* what there is to tell */
    int64_t tokens_per_step;
    int passes; /* through the model per step: ms_per_step is the time of one */
    double flops_per_token, loss, first_token;
    int64_t token_sum; /* of the text decoded first, to compare with what another program writes */
} bench;

/* One thing that can be measured. open() prepares it and fills tokens_per_step and flops_per_token; step()
 * does it once on the tokens drawn and gives the seconds that count. */
typedef struct work {
    const char *name;
    int batch, seq, steps, warmup; /* unless the user says otherwise */
    bool training, any_task;       /* of the model; else a language model is needed */
    by_status (*open)(bench *b);
    by_status (*step)(bench *b, double *seconds);
} work;

/* ---- tokens ---------------------------------------------------------------------------------- */

/* A linear congruential generator: bench/peer_torch.py draws the same tokens with it. */
static int32_t draw(bench *b)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (int32_t)((b->random >> 33) % (uint64_t)by_model_vocab(b->model));
}

static bool is_pair(const bench *b)
{
    return by_model_task(b->model) == BY_TASK_SEQ2SEQ;
}

/* Encoder-decoders: sources, then what is to be written. */
static by_status draw_pairs(bench *b)
{
    for (int i = 0; i < b->o.batch * b->o.seq; i++)
        b->source[i] = draw(b);
    for (int i = 0; i < b->o.batch * b->o.target; i++)
        b->targets[i] = draw(b);
    return by_model_shift(b->model, b->targets, b->o.batch, b->o.target, b->tokens);
}

/* New rows of T + 1 tokens: all but the last are the input, all but the first what is to be predicted. */
static by_status draw_rows(bench *b)
{
    if (is_pair(b))
        return draw_pairs(b);
    for (int r = 0; r < b->o.batch; r++) {
        int32_t next = draw(b);
        for (int t = 0; t < b->o.seq; t++) {
            size_t at = (size_t)r * (size_t)b->o.seq + (size_t)t;
            b->tokens[at] = next;
            b->targets[at] = next = draw(b);
        }
    }
    return BY_OK;
}

/* Three tokens of twenty are hidden, at places that bench/peer_encoder.py knows too; what is there does not
 * matter for the time, so they stay as they are. */
static bool is_hidden(int64_t i)
{
    return i * 3 % 20 < 3;
}

static by_status hide_tokens(bench *b)
{
    int64_t cells = (int64_t)b->o.batch * b->o.seq;
    b->pick = by_alloc_zero((size_t)cells, sizeof *b->pick);
    if (!b->pick)
        return BY_ERR_MEMORY;
    for (int64_t i = 0; i < cells; i++)
        if (is_hidden(i))
            b->pick[b->picks++] = (int32_t)i;
    return BY_OK;
}

/* FLOP of a token going forward: two per parameter, and for its queries, against the keys of `seen`
 * positions, two products. */
static double forward_flops(const bench *b, double seen)
{
    double n = (double)by_params_elements(by_model_params(b->model));
    double idle = b->pick ? 0.85 * by_model_vocab(b->model) * by_model_width(b->model) : 0;
    return 2 * (n - idle) + 4.0 * by_model_layers(b->model) * by_model_width(b->model) * seen;
}

static by_batch batch_of(const bench *b)
{
    return (by_batch){.batch = b->o.batch,
                      .seq = is_pair(b) ? b->o.target : b->o.seq,
                      .source = b->source,
                      .source_seq = b->source ? b->o.seq : 0,
                      .tokens = b->tokens,
                      .targets = b->targets,
                      .pick = b->pick,
                      .picks = b->picks};
}

/* ---- train, gemm ----------------------------------------------------------------------------- */

/* The halves see different numbers of tokens: FLOP are counted in the compiled step. */
static by_status count_pairs(bench *b)
{
    const by_batch batch = batch_of(b);
    b->tokens_per_step = (int64_t)b->o.batch * (b->o.seq + b->o.target);
    if (!by_trainer_program(b->trainer, &batch))
        return by_error_status();
    b->flops_per_token = by_trainer_flops(b->trainer) / (double)b->tokens_per_step;
    return BY_OK;
}

static by_status train_open(bench *b)
{
    if (by_model_task(b->model) == BY_TASK_MLM)
        BY_TRY(hide_tokens(b));
    const by_optimizer_spec adamw = {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .max_grad_norm = 1};
    b->trainer =
        by_trainer_new(b->model, &(by_trainer_spec){.recompute = b->o.recompute, .optimizer = adamw});
    b->flops_per_token = 3 * forward_flops(b, b->o.seq);
    if (!b->trainer)
        return by_error_status();
    return is_pair(b) ? count_pairs(b) : BY_OK;
}

static by_status train_step(bench *b, double *seconds)
{
    const by_batch batch = batch_of(b);
    double norm, begin = by_seconds();
    BY_TRY(by_trainer_backward(b->trainer, &batch, true, NULL));
    BY_TRY(by_trainer_update(b->trainer, 1e-4, NULL));
    BY_TRY(by_trainer_loss(b->trainer, &b->loss));
    BY_TRY(by_trainer_norm(b->trainer, &norm));
    *seconds = by_seconds() - begin;
    return BY_OK;
}

static void on_node(void *user, const by_trace_entry *e)
{
    bench *b = user;
    product *p = b->products, *end = p + b->n_products;
    if (b->only_products && strncmp(e->op, "linear", 6) != 0 && strcmp(e->op, "matmul") != 0)
        return;
    while (p < end && (strcmp(p->op, e->op) != 0 || strcmp(p->shape, e->shape) != 0))
        p++;
    if (p == b->products + BY_COUNT(b->products))
        return;
    if (p == end) {
        *p = (product){.best = INFINITY};
        snprintf(p->op, sizeof p->op, "%s", e->op);
        snprintf(p->shape, sizeof p->shape, "%s", e->shape);
        b->n_products++;
    }
    p->count++;
    p->flops += e->flops;
    p->bytes += e->bytes;
    p->seconds += e->seconds;
}

static by_status gemm_open(bench *b)
{
    b->only_products = true;
    BY_TRY(train_open(b));
    const by_batch batch = batch_of(b);
    by_program *p = by_trainer_program(b->trainer, &batch);
    if (!p)
        return by_error_status();
    by_program_time(p, on_node, b);
    return BY_OK;
}

static by_status profile_open(bench *b)
{
    BY_TRY(train_open(b));
    const by_batch batch = batch_of(b);
    return by_trainer_time(b->trainer, &batch, on_node, b);
}

static void clear_nodes(bench *b)
{
    for (int i = 0; i < b->n_products; i++) {
        b->products[i].count = 0;
        b->products[i].flops = b->products[i].bytes = b->products[i].seconds = 0;
    }
}

/* Adds up the seconds of a step; returns its FLOP. */
static double sum_nodes(bench *b, double *seconds)
{
    double flops = 0;
    for (int i = 0; i < b->n_products; i++) {
        product *p = &b->products[i];
        p->best = BY_MIN(p->best, p->seconds);
        *seconds += p->seconds;
        flops += p->flops;
    }
    return flops;
}

/* The nodes of a training step, or the matrix products among them, each timed inside the step. */
static by_status traced_step(bench *b, double *seconds)
{
    const by_batch batch = batch_of(b);
    clear_nodes(b);
    BY_TRY(by_trainer_backward(b->trainer, &batch, true, &b->loss));
    if (!b->only_products)
        BY_TRY(by_trainer_update(b->trainer, 1e-4, NULL));
    *seconds = 0;
    b->flops_per_token = sum_nodes(b, seconds) / (double)b->tokens_per_step;
    return BY_OK;
}

/* ---- forward --------------------------------------------------------------------------------- */

static by_status forward_open(bench *b)
{
    by_graph *g = by_graph_new(&(by_graph_spec){.params = by_model_params(b->model)});
    if (!g)
        return BY_ERR_MEMORY;
    b->input = by_input(g, "tokens", BY_I32, 2, (int64_t[]){b->o.batch, b->o.seq});
    by_model_io io = {.tokens = b->input};
    by_model_build(b->model, g, &io);
    by_output(g, "result", io.logits ? io.logits : io.features);
    b->program = by_compile(g, &(by_compile_spec){0});
    b->flops_per_token = forward_flops(b, b->o.seq);
    return b->program ? BY_OK : by_error_status();
}

static by_status forward_step(bench *b, double *seconds)
{
    double begin = by_seconds();
    BY_TRY(by_write(b->program, b->input, b->tokens, (size_t)b->tokens_per_step * sizeof *b->tokens));
    BY_TRY(by_run(b->program));
    BY_TRY(by_device_wait(b->device));
    *seconds = by_seconds() - begin;
    return BY_OK;
}

/* ---- prefill, decode ------------------------------------------------------------------------- */

static by_status generator_open(bench *b, int capacity)
{
    b->generator =
        by_generator_new(b->model, &(by_generator_spec){.batch = b->o.batch, .capacity = capacity});
    b->rows = by_alloc_zero((size_t)b->o.batch, sizeof *b->rows);
    b->lengths = by_alloc_zero((size_t)b->o.batch, sizeof *b->lengths);
    if (!b->generator || !b->rows || !b->lengths)
        return by_error_status();
    for (int r = 0; r < b->o.batch; r++) {
        b->rows[r] = b->tokens + (size_t)r * (size_t)b->o.seq;
        b->lengths[r] = b->o.seq;
    }
    return BY_OK;
}

/* Only the last token of a prompt needs the head, whose matrix is counted among the parameters. */
static by_status prefill_open(bench *b)
{
    double head = 2.0 * by_model_vocab(b->model) * by_model_width(b->model);
    b->flops_per_token = forward_flops(b, b->o.seq) - head * (1 - 1.0 / b->o.seq);
    return generator_open(b, b->o.seq);
}

static by_status prefill_step(bench *b, double *seconds)
{
    double begin = by_seconds();
    for (int r = 0; r < b->o.batch; r++)
        by_generator_rewind(b->generator, r, 0);
    BY_TRY(by_generator_feed(b->generator, b->rows, b->lengths));
    *seconds = by_seconds() - begin;
    return BY_OK;
}

/* The first new token comes out of the prompt; what is timed are the passes that write the others. */
static by_status decode_open(bench *b)
{
    b->passes = b->o.new_tokens - 1;
    b->tokens_per_step = (int64_t)b->o.batch * b->passes;
    b->flops_per_token = forward_flops(b, b->o.seq + b->passes / 2.0);
    return generator_open(b, b->o.seq + b->passes);
}

static bool on_poll(void *user)
{
    (void)user;
    return cli_interrupted();
}

static by_status decode_step(bench *b, double *seconds)
{
    by_generate_spec spec = {.max_new_tokens = b->o.new_tokens, .ignore_eos = true, .cancelled = on_poll};
    by_generate_result r;
    double begin = by_seconds();
    by_status status = by_generate(b->generator, b->rows, b->lengths, &spec, &r);
    *seconds = r.decode_seconds;
    if (status == BY_OK && !isfinite(b->first_token)) {
        b->first_token = begin - b->started + r.prompt_seconds;
        for (int i = 0; i < r.count; i++)
            for (int t = r.rows[i].prompt; t < r.rows[i].count; t++)
                b->token_sum += r.rows[i].tokens[t];
    }
    by_generate_result_free(&r);
    return status;
}

/* A greedy step after the prompt, node by node. */
static by_status decode_profile_open(bench *b)
{
    b->tokens_per_step = b->o.batch;
    b->flops_per_token = forward_flops(b, b->o.seq);
    BY_TRY(generator_open(b, b->o.seq + 1));
    BY_TRY(by_generator_feed(b->generator, b->rows, b->lengths));
    return by_generator_time(b->generator, on_node, b);
}

static by_status decode_profile_step(bench *b, double *seconds)
{
    int32_t next[1024], out[1024];
    bool active[1024];
    if (b->o.batch > BY_COUNT(next))
        return by_fail(BY_ERR_ARGUMENT, "at most %d rows can be profiled", BY_COUNT(next));
    for (int r = 0; r < b->o.batch; r++) {
        by_generator_rewind(b->generator, r, b->o.seq);
        next[r] = b->tokens[r];
        active[r] = true;
    }
    clear_nodes(b);
    BY_TRY(by_generator_greedy(b->generator, next, active, 1, out));
    *seconds = 0;
    sum_nodes(b, seconds);
    return BY_OK;
}

/* ---- translate ------------------------------------------------------------------------------- */

/* Texts of exactly so many tokens, all of the time counted: encoder, beam search, and what the host does. */
static by_status translate_open(bench *b)
{
    if (!is_pair(b))
        return by_fail(BY_ERR_ARGUMENT, "a %s does not translate", by_model_class(b->model));
    b->tokens_per_step = (int64_t)b->o.batch * b->o.new_tokens;
    b->passes = b->o.new_tokens;
    b->flops_per_token = NAN;
    b->generator = by_generator_new(b->model, &(by_generator_spec){.batch = b->o.batch * b->o.beams,
                                                                   .beams = b->o.beams,
                                                                   .capacity = b->o.new_tokens,
                                                                   .source_capacity = b->o.seq});
    b->rows = by_alloc_zero((size_t)b->o.batch, sizeof *b->rows);
    b->lengths = by_alloc_zero((size_t)b->o.batch, sizeof *b->lengths);
    if (!b->generator || !b->rows || !b->lengths)
        return by_error_status();
    for (int r = 0; r < b->o.batch; r++) {
        b->rows[r] = b->source + (size_t)r * (size_t)b->o.seq;
        b->lengths[r] = b->o.seq;
    }
    return BY_OK;
}

static by_status translate_step(bench *b, double *seconds)
{
    by_generate_spec spec = {.max_new_tokens = b->o.new_tokens,
                             .sampling.min_new_tokens = b->o.new_tokens,
                             .beam = {.width = b->o.beams, .length_penalty = 1},
                             .cancelled = on_poll};
    by_generate_result r;
    double begin = by_seconds();
    by_status status = by_generate(b->generator, b->rows, b->lengths, &spec, &r);
    *seconds = by_seconds() - begin;
    if (status == BY_OK && !b->token_sum)
        for (int i = 0; i < r.count; i++)
            for (int t = r.rows[i].prompt; t < r.rows[i].count; t++)
                b->token_sum += r.rows[i].tokens[t];
    by_generate_result_free(&r);
    return status;
}

static const work works[] = {
    {"train", 4, 64, 10, 2, true, true, train_open, train_step},
    {"decode", 1, 64, 3, 1, false, false, decode_open, decode_step},
    {"forward", 4, 64, 10, 2, false, true, forward_open, forward_step},
    {"prefill", 1, 512, 10, 2, false, false, prefill_open, prefill_step},
    {"gemm", 4, 64, 10, 2, true, true, gemm_open, traced_step},
    {"profile", 4, 64, 10, 2, true, true, profile_open, traced_step},
    {"translate", 32, 32, 3, 1, false, true, translate_open, translate_step},
    {"profile-decode", 1, 64, 10, 2, false, false, decode_profile_open, decode_profile_step},
};

/* ---- measuring ------------------------------------------------------------------------------- */

static by_status open_model(bench *b)
{
    const bench_options *o = &b->o;
    by_model_spec spec = {
        .dtype = o->dtype, .training = b->work->training, .stochastic_rounding = o->by_chance, .seed = 1337};
    const bool pair = by_family_task(o->model) == BY_TASK_SEQ2SEQ;
    const bool encoder = by_family_task(o->model) > BY_TASK_LM && !pair;
    if (encoder)
        spec.task = b->work->training ? BY_TASK_MLM : BY_TASK_FEATURES;
    by_model_shape shape = {.preset = o->preset         ? o->preset
                                      : encoder || pair ? "base"
                                                        : "124m",
                            .layers = o->layers,
                            .heads = o->heads,
                            .width = o->width,
                            .context = o->context,
                            .vocab = o->vocab,
                            .dropout = 0};
    char *dir = o->model_dir ? cli_model_dir(o->model_dir) : NULL;
    if (dir)
        b->model = by_model_open(b->device, dir, &spec);
    else if (!o->model_dir)
        b->model = by_model_new(b->device, o->model, &shape, &spec);
    by_free(dir);
    if (!b->model)
        return by_error_status();
    if (by_model_task(b->model) != BY_TASK_LM && !b->work->any_task)
        return by_fail(BY_ERR_ARGUMENT, "a %s cannot be measured: this needs a language model",
                       by_model_class(b->model));
    by_model_set_dropout(b->model, 0);
    if (is_pair(b) && !o->model_dir) { /* as Marian's models have them */
        by_model_set_pad(b->model, by_model_vocab(b->model) - 1);
        by_model_set_start(b->model, by_model_pad(b->model));
        by_model_set_eos(b->model, 0);
    }
    return o->save ? by_model_save(b->model, o->save, o->dtype == BY_F64 ? BY_F32 : o->dtype) : BY_OK;
}

static by_status measure(bench *b)
{
    bench_options *o = &b->o;
    o->target = o->target ? o->target : o->seq;
    const size_t cells = (size_t)o->batch * (size_t)BY_MAX(o->seq, o->target);
    b->device = cli_device(o->device, o->threads);
    if (!b->device)
        return by_error_status();
    BY_TRY(open_model(b));
    b->tokens = by_alloc_zero(cells, sizeof *b->tokens);
    b->targets = by_alloc_zero(cells, sizeof *b->targets);
    b->seconds = by_alloc_zero((size_t)o->steps, sizeof *b->seconds);
    b->source = is_pair(b) ? by_alloc_zero(cells, sizeof *b->source) : NULL;
    if (!b->tokens || !b->targets || !b->seconds || (is_pair(b) && !b->source))
        return BY_ERR_MEMORY;
    b->tokens_per_step = (int64_t)o->batch * o->seq;
    b->passes = 1;
    BY_TRY(b->work->open(b));
    cli_progress bar = {.label = b->work->name, .total = (int64_t)o->warmup + o->steps};
    by_status status = BY_OK;
    cli_progress_start(&bar);
    for (int i = -o->warmup; i < o->steps && status == BY_OK; i++) {
        double seconds = 0;
        status = draw_rows(b);
        if (status == BY_OK)
            status =
                cli_interrupted() ? by_fail(BY_ERR_CANCELLED, "interrupted") : b->work->step(b, &seconds);
        b->seconds[BY_MAX(i, 0)] = seconds;
        cli_progress_update(&bar, i + o->warmup + 1, "%.1f ms%s", 1e3 * seconds / b->passes,
                            i < 0 ? "  (warming up)" : "");
    }
    cli_progress_end(&bar);
    return status;
}

/* ---- telling --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t planned_bytes(const bench *b)
{
    return b->trainer     ? by_trainer_bytes(b->trainer)
           : b->generator ? by_generator_bytes(b->generator)
                          : by_program_bytes(b->program);
}

static size_t state_bytes(const bench *b)
{
    by_params *p = by_model_params(b->model);
    return b->trainer ? by_trainer_state_bytes(b->trainer)
                      : (size_t)by_params_elements(p) * by_dtype_size(by_params_dtype(p));
}

static void add_shape(const bench *b, cJSON *j)
{
    const bench_options *o = &b->o;
    cJSON_AddStringToObject(j, "what", b->work->name);
    cJSON_AddStringToObject(j, "model", by_model_family(b->model));
    cJSON_AddNumberToObject(j, "parameters", (double)by_params_elements(by_model_params(b->model)));
    cJSON_AddNumberToObject(j, "layers", by_model_layers(b->model));
    cJSON_AddNumberToObject(j, "heads", by_model_heads(b->model));
    cJSON_AddNumberToObject(j, "width", by_model_width(b->model));
    cJSON_AddNumberToObject(j, "context", by_model_context(b->model));
    cJSON_AddNumberToObject(j, "vocab", by_model_vocab(b->model));
    cJSON_AddNumberToObject(j, "batch", o->batch);
    cJSON_AddNumberToObject(j, "seq", o->seq);
    if (is_pair(b))
        cJSON_AddNumberToObject(j, "target", o->target);
    if (b->work->step == decode_step || b->work->step == translate_step)
        cJSON_AddNumberToObject(j, "new_tokens", o->new_tokens);
    if (b->work->step == translate_step)
        cJSON_AddNumberToObject(j, "beams", o->beams);
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(o->dtype));
    cJSON_AddStringToObject(j, "device", by_device_description(b->device));
    cJSON_AddNumberToObject(j, "threads", by_device_threads(b->device));
    cJSON_AddNumberToObject(j, "steps", o->steps);
    if (o->recompute)
        cJSON_AddTrueToObject(j, "recompute");
}

static void add_products(const bench *b, cJSON *j)
{
    cJSON *list = cJSON_AddArrayToObject(j, b->only_products ? "products" : "nodes");
    for (int i = 0; i < b->n_products; i++) {
        const product *p = &b->products[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "op", p->op);
        cJSON_AddStringToObject(one, "shape", p->shape);
        cJSON_AddNumberToObject(one, "count", p->count);
        cli_json_number(one, "ms", 1e3 * p->best);
        cli_json_number(one, "flops_per_s", p->flops / p->best);
        if (!b->only_products)
            cli_json_number(one, "bytes_per_s", p->bytes / p->best);
        cJSON_AddItemToArray(list, one);
    }
}

static int print_result(bench *b)
{
    int n = b->o.steps;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used); /* before the peak is measured */
    qsort(b->seconds, (size_t)n, sizeof *b->seconds, by_value);
    double median = (b->seconds[n / 2] + b->seconds[(n - 1) / 2]) / 2,
           rate = (double)b->tokens_per_step / median;
    double flops = rate * b->flops_per_token, peak = by_device_peak(b->device, b->o.dtype);
    cJSON *j = cJSON_CreateObject();
    add_shape(b, j);
    cli_json_number(j, "tokens_per_s", rate);
    cli_json_number(j, "ms_per_step", 1e3 * median / b->passes);
    cli_json_number(j, "ms_min", 1e3 * b->seconds[0] / b->passes);
    cli_json_number(j, "flops_per_s", flops);
    cli_json_number(j, "peak_flops_per_s", peak);
    cli_json_number(j, "peak_share", flops / peak);
    cJSON_AddNumberToObject(j, "max_rss_bytes", 1024.0 * (double)used.ru_maxrss);
    cJSON_AddNumberToObject(j, "state_bytes", (double)state_bytes(b));
    cJSON_AddNumberToObject(j, "planned_bytes", (double)planned_bytes(b));
    if (b->trainer)
        cli_json_number(j, "loss", b->loss);
    if (b->work->step == decode_step) {
        cli_json_number(j, "first_token_s", b->o.model_dir ? b->first_token : NAN);
        cJSON_AddNumberToObject(j, "token_sum", (double)b->token_sum);
    }
    if (b->work->step == translate_step)
        cJSON_AddNumberToObject(j, "token_sum", (double)b->token_sum);
    if (b->n_products)
        add_products(b, j);
    return cli_print_json(j);
}

static void release(bench *b)
{
    by_trainer_free(b->trainer);
    by_program_free(b->program);
    by_generator_free(b->generator);
    by_model_free(b->model);
    by_device_free(b->device);
    by_free(b->tokens);
    by_free(b->targets);
    by_free(b->source);
    by_free(b->pick);
    by_free(b->rows);
    by_free(b->lengths);
    by_free(b->seconds);
}

static int run(int argc, char **argv)
{
    bench b = {.started = by_seconds(), .first_token = NAN, .random = 1};
    bench_options *o = &b.o;
    cli_args args;
    int code;
    if (!cli_parse(&cli_bench, argc, argv, o, &args, &code))
        return code;
    if (strcmp(args.items[0], "open") == 0) {
        code = o->model_dir ? cli_bench_open(o->model_dir, o->steps ? o->steps : 20)
                            : cli_usage_fail("bench open needs --model-dir, a file or a directory");
        cli_args_free(&args);
        return code;
    }
    for (int i = 0; i < BY_COUNT(works); i++)
        if (strcmp(args.items[0], works[i].name) == 0)
            b.work = &works[i];
    if (b.work->open == translate_open && !cli_given(&args, &o->model))
        o->model = "marian";
    o->batch = o->batch ? o->batch : b.work->batch;
    o->seq = o->seq ? o->seq : b.work->seq;
    o->steps = o->steps ? o->steps : b.work->steps;
    o->warmup = cli_given(&args, &o->warmup) ? o->warmup : b.work->warmup;
    o->dtype = o->bf16 ? BY_BF16 : o->dtype;
    cli_interrupt_install();
    code = measure(&b) == BY_OK ? print_result(&b) : cli_fail(NULL);
    release(&b);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_bench = {
    .name = "bench",
    .summary = "measure how fast models train and run on this machine",
    .description =
        "Works on random tokens and prints one line of JSON: tokens per second, milliseconds per "
        "step (the median, and "
        "the least), FLOP per second and their share of what a plain matrix product reaches on "
        "this machine, peak "
        "memory.\n"
        "  train    forward, backward and update; FLOP per token are 6 N + 12 layers width seq. Encoders "
        "guess 15 % "
        "of their tokens\n"
        "  forward  logits of every position; a third of that. Of encoders, their last hidden states\n"
        "  prefill  a prompt into the cache, logits of its last token\n"
        "  decode   greedy text after a prompt, token by token\n"
        "  translate  texts of --new-tokens by a beam search, encoder and all (encoder-decoders)\n"
        "  gemm     the matrix products of a training step alone, by kind and shape\n"
        "  profile  all of a training step, by kind and shape; profile-decode: all of a decoding step\n"
        "  open     the weights of --model-dir: milliseconds, and memory before and after",
    .examples = "banyan bench train --preset 124m --batch 4 --seq 64 --dtype bf16\n"
                "banyan bench decode --model-dir runs/gpt2 --prompt 64 --new-tokens 256\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
    .args = "train|decode|forward|prefill|translate|gemm|profile|profile-decode|open",
};
