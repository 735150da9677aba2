/* verb_convert.c - `banyan convert`: a checkpoint in another element type, in files of another size, in another
 * format. */
#include "cli/verbs.h"

#include "banyan/weights.h"
#include "base/file.h"
#include "cli/common.h"
#include "cli/format.h"

typedef struct convert_options {
    by_dtype dtype;
    const char *format;
    int64_t shard;
    bool dry_run, json, quiet;
} convert_options;

static const cli_option options[] = {
    {CLI_AT(convert_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64",
     .help = "type of floating-point tensors (default: unchanged)"},
    {CLI_AT(convert_options, shard), .name = "shard-size", CLI_MIN(1), .suffix = true, .bytes = true,
     .value = "SIZE", .help = "split into files of at most this size: 5GB, 500MB, 2GiB (default: one file)"},
    {CLI_AT(convert_options, format), .name = "format", .choices = "safetensors", .preset = "safetensors",
     .help = "file format"},
    {CLI_AT(convert_options, dry_run), .name = "dry-run", .letter = 'n',
     .help = "print what would be written and write nothing"},
    {CLI_AT(convert_options, json), .name = "json", .help = "print one JSON object"},
    {CLI_AT(convert_options, quiet), .name = "quiet", .letter = 'q', .help = "show no progress"},
};

/* Progress is counted in megabytes: a number of that size is easier to read. */
static bool watch(void *user, const char *name, size_t done, size_t total)
{
    cli_progress *bar = user;
    bar->total = (int64_t)((total + 999999) / 1000000);
    cli_progress_update(bar, (int64_t)(done / 1000000), "MB  %s", name);
    return !cli_interrupted();
}

static int print_report(const convert_options *o, const char *out, const by_convert_report *r, bool typed)
{
    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "out", out);
        cJSON_AddBoolToObject(j, "written", !o->dry_run);
        cJSON_AddNumberToObject(j, "tensors", r->tensors);
        cJSON_AddNumberToObject(j, "elements", (double)r->elements);
        cJSON_AddNumberToObject(j, "files", r->files);
        cJSON_AddNumberToObject(j, "tied", r->dropped);
        cJSON_AddNumberToObject(j, "bytes_in", (double)r->bytes_in);
        cJSON_AddNumberToObject(j, "bytes_out", (double)r->bytes_out);
        return cli_print_json(j);
    }
    printf("%s %s: %d tensors, %s elements, %s", o->dry_run ? "would write" : "wrote", out, r->tensors,
           cli_count_text(r->elements).s, cli_bytes_text(r->bytes_in).s);
    printf(typed ? " -> %s as %s" : " -> %s", cli_bytes_text(r->bytes_out).s, by_dtype_name(o->dtype));
    printf(r->files > 1 ? " in %d files" : " in %d file", r->files);
    printf(r->dropped ? "; %d tied once\n" : "\n", r->dropped);
    return CLI_OK;
}

/* A run folder stands for the model in it; anything else is opened as it is. */
static char *input(const char *path)
{
    if (!base_dir_exists(path) && !base_file_exists(path)) {
        cli_fail_absent(path);
        return NULL;
    }
    char *dir = base_dir_exists(path) ? cli_model_dir(path) : NULL;
    base_error_clear();
    return dir ? dir : base_strdup(path);
}

static int run(int argc, char **argv)
{
    convert_options o;
    cli_args args;
    int code;
    if (!cli_parse(&cli_convert, argc, argv, &o, &args, &code))
        return code;
    cli_interrupt_install();
    bool typed = cli_given(&args, &o.dtype);
    const char *out = args.items[1];
    cli_progress bar = {.label = "convert", .total = 1, .quiet = o.quiet || o.dry_run};
    by_convert_spec spec = {.set_dtype = typed,
                            .dtype = o.dtype,
                            .shard_bytes = o.shard,
                            .dry_run = o.dry_run,
                            .progress = watch,
                            .user = &bar};
    by_convert_report report = {0};
    char *in = input(args.items[0]);
    cli_progress_start(&bar);
    by_status s = in ? by_weights_convert(in, out, &spec, &report) : BY_ERR_MEMORY;
    cli_progress_end(&bar);
    code = s == BY_OK ? print_report(&o, out, &report, typed) : cli_fail(NULL);
    base_free(in);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_convert = {
    .name = "convert",
    .summary = "convert a checkpoint to another precision, shard size or format",
    .args = "IN OUT",
    .description =
        "IN is a model directory, a run folder, or a file: .safetensors, a PyTorch .bin or .pt "
        "(zip or the older stream), or the index of several. OUT is a file if its name ends in "
        ".safetensors, otherwise a directory that does not exist yet or is empty. Names of other "
        "file types (x.bin, x.gguf) are refused. The configuration and the tokenizer are copied "
        "from a directory; a file that cannot be copied is an error. Where there is no configuration, that "
        "of a "
        "recurrent network (PyTorch's nn.RNN, nn.LSTM, nn.GRU, and language models around them) is "
        "inferred from names and shapes.\n"
        "\n"
        "Tensors pass through memory piece by piece. OUT appears only when it is complete: a full "
        "disk, an interruption or a power cut leaves nothing under its name. Reading a PyTorch "
        "file executes nothing; contents other than tensors are refused by name.",
    .examples = "banyan convert gpt2 gpt2-bf16 --dtype bf16\n"
                "# files of at most five gigabytes\n"
                "banyan convert big big-shards --shard-size 5GB\n"
                "banyan convert pytorch_model.bin model.safetensors\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
