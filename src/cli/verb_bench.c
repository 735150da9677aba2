/* verb_bench.c - banyan bench: speed of training and inference on random tokens, as one line of JSON. */
#include <time.h>

#include "cli/bench.h"

static const cli_option options[] = {
    {CLI_AT(bench_options, model), .name = "model", .letter = 'm', .preset = "gpt2", .value = "FAMILY",
     .help = "model family: gpt2, bert, vit, ... (translate: marian)", .group = "Model"},
    {CLI_AT(bench_options, preset), .name = "preset", .value = "NAME",
     .help = "shape by name: tiny, 124m, 350m, 774m, 1558m, base, large (default: 124m or base)"},
    {CLI_AT(bench_options, layers), .name = "layers", CLI_MIN(1),
     .help = "number of layers (default: the preset's)"},
    {CLI_AT(bench_options, heads), .name = "heads", CLI_MIN(1),
     .help = "attention heads (default: the preset's)"},
    {CLI_AT(bench_options, width), .name = "width", CLI_MIN(1),
     .help = "model width (default: the preset's)"},
    {CLI_AT(bench_options, context), .name = "context", .letter = 'c', CLI_MIN(1), .suffix = true,
     .help = "maximum sequence length (default: the preset's)"},
    {CLI_AT(bench_options, vocab), .name = "vocab", CLI_MIN(2), .suffix = true,
     .help = "size of the vocabulary (default: the family's)"},
    {CLI_AT(bench_options, model_dir), .name = "model-dir", .value = "DIR",
     .help = "open this model instead; decode then reports the time from program start to first token"},
    {CLI_AT(bench_options, save), .name = "save", .value = "DIR",
     .help = "write the model to DIR first, for --model-dir and other programs"},

    {CLI_AT(bench_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b', CLI_RANGE(1, 1e6),
     .help = "sequences per batch (default: 4; prefill and decode: 1)", .group = "Workload"},
    {CLI_AT(bench_options, seq), .name = "seq", .alias = "prompt", CLI_RANGE(1, 1e7), .suffix = true,
     .help = "tokens per sequence or of the prompt (default: 64; prefill: 512)"},
    {CLI_AT(bench_options, target), .name = "target", CLI_RANGE(1, 1e7), .suffix = true,
     .help = "train, encoder-decoders: target tokens (default: as many as source tokens)"},
    {CLI_AT(bench_options, padding), .name = "padding", CLI_RANGE(0, 0.5), .preset = "0", .value = "SHARE",
     .help = "train: fraction of padding tokens, in rows of different lengths (encoders, sources)"},
    {CLI_AT(bench_options, new_tokens), .name = "new-tokens", CLI_RANGE(2, 1e7), .preset = "256",
     .help = "decode: tokens generated after the prompt"},
    {CLI_AT(bench_options, beams), .name = "beams", CLI_RANGE(1, 64), .preset = "4",
     .help = "translate: beams of the search"},
    {CLI_AT(bench_options, steps), .name = "steps", .letter = 'n', CLI_RANGE(1, 1e6),
     .help = "timed steps (default: 10; decode, where a step is a whole text: 3)"},
    {CLI_AT(bench_options, warmup), .name = "warmup", CLI_RANGE(0, 1e6),
     .help = "untimed steps before them (default: 2; decode: 1)"},
    {CLI_AT(bench_options, recompute), .name = "recompute", .alias = "gradient-checkpointing",
     .help = "train: recompute activations in the backward pass"},

    {CLI_AT(bench_options, lengths), .name = "lengths", .value = "LIST",
     .help = "tokens, k = 1024 (default: 1k,2k,4k,8k,16k; on a GPU up to 64k)", .group = "Attention"},
    {CLI_AT(bench_options, kinds), .name = "kinds", .value = "LIST",
     .help = "of dense, causal, window, blocks, strided, fixed, sinks, longformer, bigbird, lsh, linformer, "
             "relative (default: all)"},
    {CLI_AT(bench_options, head_dim), .name = "head-dim", CLI_RANGE(1, 1024), .preset = "64",
     .help = "width of a head; --heads is 4 and --batch-size 1 unless given"},
    {CLI_AT(bench_options, plot), .name = "plot", .value = "FILE.svg",
     .help = "plot time and memory against length, both axes logarithmic"},
    {CLI_AT(bench_options, json), .name = "json", .help = "print one JSON object per line"},

    {CLI_AT(bench_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one",
     .group = "Machine"},
    {CLI_AT(bench_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads; 0 uses every core"},
    {CLI_AT(bench_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",
     .help = "precision of parameters and activations; 16-bit training keeps f32 masters"},
    {CLI_AT(bench_options, bf16), .name = "bf16", .help = "the same as --dtype bf16"},
    CLI_WEIGHTS(bench_options, weights),
    {CLI_AT(bench_options, gr_stochastic), .name = "stochastic-rounding",
     .help = "train: bf16 parameters without f32 masters"},
};

static const bench_work works[] = {
    {"train", "gpt2", 4, 64, 10, 2, .training = true, .any_task = true, .open = bench_train_open,
     .step = bench_train_step},
    {"decode", "gpt2", 1, 64, 3, 1, .writes = true, .open = bench_decode_open, .step = bench_decode_step},
    {"forward", "gpt2", 4, 64, 10, 2, .any_task = true, .open = bench_forward_open,
     .step = bench_forward_step},
    {"prefill", "gpt2", 1, 512, 10, 2, .open = bench_prefill_open, .step = bench_prefill_step},
    {"gemm", "gpt2", 4, 64, 10, 2, .training = true, .any_task = true, .open = bench_gemm_open,
     .step = bench_traced_step},
    {"profile", "gpt2", 4, 64, 10, 2, .training = true, .any_task = true, .open = bench_profile_open,
     .step = bench_traced_step},
    {"translate", "marian", 32, 32, 3, 1, .any_task = true, .writes = true, .beams = true,
     .open = bench_translate_open, .step = bench_translate_step},
    {"profile-decode", "gpt2", 1, 64, 10, 2, .open = bench_decode_profile_open,
     .step = bench_decode_profile_step},
};

/* One step on new tokens. */
static by_status timed_step(bench *b, double *seconds)
{
    BY_TRY(bench_draw(b));
    if (cli_interrupted())
        return base_fail(BY_ERR_CANCELLED, "interrupted");
    return b->work->step(b, seconds);
}

static by_status measure(bench *b)
{
    const bench_options *o = &b->o;
    b->device = cli_device(o->device, o->threads);
    if (!b->device)
        return base_error_status();
    BY_TRY(bench_open_model(b));
    BY_TRY(bench_open_rows(b));
    b->tokens_per_step = (int64_t)o->batch * o->seq;
    b->passes = 1;
    BY_TRY(b->work->open(b));
    cli_progress bar = {.label = b->work->name, .total = (int64_t)o->warmup + o->steps};
    by_status status = BY_OK;
    cli_progress_start(&bar);
    for (int i = -o->warmup; i < o->steps && status == BY_OK; i++) {
        double *seconds = &b->seconds[BY_MAX(i, 0)]; /* the first counted step overwrites the warm-up */
        const clock_t before = clock();
        status = timed_step(b, seconds);
        const double spent = (double)(clock() - before) / CLOCKS_PER_SEC;
        b->cpu_seconds = i <= 0 ? spent : BY_MIN(b->cpu_seconds, spent);
        cli_progress_update(&bar, i + o->warmup + 1, "%.1f ms%s", 1e3 * *seconds / b->passes,
                            i < 0 ? "  (warming up)" : "");
    }
    cli_progress_end(&bar);
    return status;
}

/* Defaults that depend on the workload. */
static void fill_in(bench_options *o, const cli_args *args, const bench_work *w)
{
    if (!cli_given(args, &o->model))
        o->model = w->model;
    if (!cli_given(args, &o->warmup))
        o->warmup = w->warmup;
    o->batch = o->batch ? o->batch : w->batch;
    o->seq = o->seq ? o->seq : w->seq;
    o->target = o->target ? o->target : o->seq;
    o->steps = o->steps ? o->steps : w->steps;
    o->dtype = o->bf16 ? BY_BF16 : o->dtype;
}

static int run_open(const bench_options *o)
{
    if (!o->model_dir)
        return cli_usage_fail("bench open needs --model-dir, a file or a directory");
    return bench_open_weights(o->model_dir, o->steps ? o->steps : 20);
}

static int run_work(bench *b, const cli_args *args)
{
    for (int i = 0; i < BY_COUNT(works); i++)
        if (strcmp(args->items[0], works[i].name) == 0)
            b->work = &works[i];
    fill_in(&b->o, args, b->work);
    cli_interrupt_install();
    int code = measure(b) == BY_OK ? bench_tell(b) : cli_fail(NULL);
    bench_release(b);
    return code;
}

static int run(int argc, char **argv)
{
    bench b = {.started = base_seconds(), .first_token = NAN, .random = 1};
    cli_args args;
    int code;
    if (!cli_parse(&cli_bench, argc, argv, &b.o, &args, &code))
        return code;
    code = strcmp(args.items[0], "open") == 0        ? run_open(&b.o)
           : strcmp(args.items[0], "attention") == 0 ? bench_attention(&b.o)
                                                     : run_work(&b, &args);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_bench = {
    .name = "bench",
    .summary = "measure how fast models train and run on this machine",
    .description =
        "Runs on random tokens and prints one line of JSON: tokens per second, milliseconds per step (median "
        "and minimum), FLOP/s, also as a fraction of the rate of a large matrix product, and peak memory.\n"
        "\n"
        "  train           forward, backward and update, counted as 6 N + 12 L d T FLOP per token.\n"
        "                  Encoders predict 15 % of their tokens, XLNet with two streams;\n"
        "                  vit and deit sort pictures into 1,000 classes: a token is a position\n"
        "  forward         logits of every position or picture; for encoders, the last hidden states\n"
        "  prefill         a prompt into the cache, and the logits of its last token\n"
        "  decode          greedy text after a prompt, token by token\n"
        "  translate       --new-tokens per text by beam search, encoder included\n"
        "  gemm            the matrix products of a training step, by kind and shape\n"
        "  profile         all nodes of a training step, by kind and shape\n"
        "  profile-decode  all nodes of a decoding step\n"
        "  attention       each kind of attention over --lengths, forward and backward: milliseconds,\n"
        "                  activations, time relative to dense and to dense times the share of pairs kept,\n"
        "                  and the exponent of the length. Prints a table\n"
        "  open            the weights of --model-dir: milliseconds, memory before and after",
    .examples = "banyan bench train --preset 124m --batch 4 --seq 64 --dtype bf16\n"
                "banyan bench decode --model-dir runs/gpt2 --prompt 64 --new-tokens 256\n"
                "banyan bench attention --lengths 1k,2k,4k --plot attention.svg\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
    .args = "train|decode|forward|prefill|translate|gemm|profile|profile-decode|attention|open",
};
