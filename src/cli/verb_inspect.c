/* verb_inspect.c - `banyan inspect`: determines the kind of its argument and calls the function that shows
 * it. */
#include "cli/inspect.h"

#include "base/file.h"
#include "cli/common.h"
#include "cli/lora.h"
#include "cli/ngram_verbs.h"
#include "cli/verbs.h"

static const cli_option options[] = {
    {CLI_AT(inspect_options, params), .name = "params", .letter = 'p',
     .help = "list every parameter, every token of a tokenizer, or every word of an n-gram model"},
    {CLI_AT(inspect_options, graph), .name = "graph", .letter = 'g', .choices = "text|dot",
     .help = "print the compiled graph instead: one line per node, or Graphviz"},
    {CLI_AT(inspect_options, mode), .name = "mode", .letter = 'm', .choices = "forward|train|decode",
     .help = "show only this mode (default: all; with --graph: forward)"},
    {CLI_AT(inspect_options, batch), .name = "batch-size", .alias = "batch", .letter = 'b',
     CLI_RANGE(1, 1 << 20), .preset = "1", .help = "sequences per batch"},
    {CLI_AT(inspect_options, seq), .name = "seq", CLI_RANGE(1, 1 << 24), .suffix = true,
     .help = "tokens per sequence (default: the whole context)"},
    {CLI_AT(inspect_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64",
     .help = "precision to plan for (default: that of the file; f32 for a preset)"},
    CLI_WEIGHTS(inspect_options, weights),
    {CLI_AT(inspect_options, freeze), .name = "freeze", .value = "embeddings|N|body|weights|but:NAMES",
     .help = "plan training with these parameters frozen, without gradients and optimiser state"},
    CLI_ADAPTER_ROWS(inspect_options, adapters),
    {CLI_AT(inspect_options, task), .name = "task", .choices = "classify|tag|answer",
     .help = "plan with a new head for this task with two labels, as `finetune` creates it"},
    {CLI_AT(inspect_options, recompute), .name = "recompute",
     .help = "with --graph: the training graph with recomputation"},
    {CLI_AT(inspect_options, json), .name = "json", .help = "print one JSON object"},
};

static int show(const char *what, const inspect_options *o)
{
    if (cli_model_kind(what) == CLI_MODEL_NGRAM)
        return cli_ngram_inspect(what, o->params, o->json);
    if (base_file_exists(what))
        return cli_inspect_file(what, o);
    char *dir = base_dir_exists(what) ? cli_model_dir(what) : NULL;
    int code = base_dir_exists(what) && !dir ? cli_inspect_folder(what, o) : cli_inspect_model(what, o);
    base_free(dir);
    return code;
}

static int run(int argc, char **argv)
{
    inspect_options o;
    cli_args args;
    int code;
    if (!cli_parse(&cli_inspect, argc, argv, &o, &args, &code))
        return code;
    o.dtype_given = cli_given(&args, &o.dtype);
    o.seq_given = cli_given(&args, &o.seq);
    code = show(args.items[0], &o);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_inspect = {
    .name = "inspect",
    .summary = "show a model's parameters, memory, FLOP and graph, or the contents of a file",
    .args = "MODEL",
    .description =
        "MODEL is a model directory, a run folder, or FAMILY:PRESET for a model that does not exist yet. "
        "Shows its shape and parameters, and for each mode (forward, train, decode) the memory and the FLOP "
        "per token (a multiply-add counts as two). Everything is computed without running the model.\n"
        "\n"
        "For a file: the tensors of a .safetensors or PyTorch .bin file or of an index, with their types, "
        "shapes and sizes; the kind and vocabulary of a tokenizer.json, vocab.json, vocab.txt, merges.txt or "
        "spiece.model. A directory with an unknown model is shown file by file. An n-gram model, which may "
        "be an ARPA file, is shown with its n-gram counts per order.",
    .examples =
        "banyan inspect runs/shakespeare\n"
        "# will it fit?\nbanyan inspect gpt2:1558m --dtype bf16 --mode train --batch 4\n"
        "# train only a new head\nbanyan inspect gpt2:124m --task classify --freeze body --mode train --seq "
        "128\n"
        "# an adapter on all linear layers of a model in 4 bits\n"
        "banyan inspect gpt2:1558m --mode train --seq 256 --lora r=16,targets=all-linear --weights q4_0\n"
        "# a picture of the graph\nbanyan inspect gpt2:tiny --seq 16 --graph dot | dot -Tsvg > gpt2.svg\n"
        "banyan inspect model.safetensors --json\n"
        "banyan inspect pytorch_model.bin\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
