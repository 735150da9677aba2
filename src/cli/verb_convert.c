/* verb_convert.c - `banyan convert`: a checkpoint in another element type, in files of another size, in
 * another format. */
#include "cli/verbs.h"

#include <unistd.h>

#include "banyan/adapter.h"
#include "banyan/weights.h"
#include "base/file.h"
#include "base/input.h"
#include "cli/common.h"
#include "cli/format.h"
#include "cli/ngram_verbs.h"
#include "infer/picture_passes.h"
#include "train/captions.h"

typedef struct convert_options {
    by_dtype dtype;
    const char *format, *merge, *decoder;
    int64_t shard;
    cli_list renames;
    bool dry_run, json, quiet;
} convert_options;

static const cli_option options[] = {
    {CLI_AT(convert_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64",
     .help = "type of floating-point tensors (default: unchanged)"},
    {CLI_AT(convert_options, shard), .name = "shard-size", CLI_MIN(1), .suffix = true, .bytes = true,
     .value = "SIZE", .help = "split into files of at most this size: 5GB, 500MB, 2GiB (default: one file)"},
    {CLI_AT(convert_options, format), .name = "format", .choices = "safetensors", .preset = "safetensors",
     .help = "file format"},
    {CLI_AT(convert_options, renames), .name = "rename", .value = "OLD=NEW", .help = "rename a tensor"},
    {CLI_AT(convert_options, merge), .name = "merge", .value = "DIR",
     .help = "add the adapter in DIR (as PEFT writes it) to the weights"},
    {CLI_AT(convert_options, decoder), .name = "decoder", .value = "DIR",
     .help = "IN is a ViT or DeiT: join it with this GPT-2, BERT or RoBERTa into a captioning model"},
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

/* The same for a model that was opened and saved. */
static void print_model(const convert_options *o, const char *out, const by_model *m, by_dtype dtype)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "out", out);
    cJSON_AddBoolToObject(j, "written", !o->dry_run);
    cJSON_AddStringToObject(j, "model", by_model_class(m));
    cJSON_AddNumberToObject(j, "parameters", (double)by_params_elements(by_model_params(m)));
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(dtype));
    cli_print_json(j);
}

/* ---- adapters --------------------------------------------------------------------------------- */

/* Whether a directory has an adapter. */
static bool has_adapter(const char *dir)
{
    char *path = base_path_join(dir, "adapter_config.json");
    const bool there = path && base_file_exists(path);
    base_free(path);
    return there;
}

/* The model with its adapter merged, in a directory of another name until it is complete. */
static by_status write_merged(by_model *m, const char *base, const char *adapter, const char *out,
                              const by_save_spec *spec)
{
    char *temp = base_sprintf("%s.tmp-%ld", out, (long)getpid());
    if (!temp)
        return BY_ERR_MEMORY;
    by_status s = by_adapter_merge(by_model_adapter(m));
    by_model_use(m, NULL);
    if (s == BY_OK)
        s = base_dir_make(temp);
    if (s == BY_OK)
        s = by_model_save_with(m, temp, spec);
    if (s == BY_OK) /* the chat template or the size of pictures may be the adapter's */
        s = by_companions_copy(adapter, temp);
    if (s == BY_OK)
        s = by_companions_copy(base, temp);
    if (s == BY_OK)
        s = base_rename(temp, out);
    if (s != BY_OK)
        base_dir_remove(temp);
    base_free(temp);
    return s;
}

static by_status merge(const convert_options *o, const char *in, const char *out, bool typed)
{
    const bool own = has_adapter(in);
    by_save_spec as = {.shard_bytes = o->shard ? o->shard : -1};
    char *base = own ? by_adapter_base(in) : base_strdup(in);
    if (!base)
        return base_error_status();
    as.dtype = typed ? o->dtype : cli_stored_type(base);
    by_device *d = by_device_open("cpu", 0);
    const by_model_spec opening = {.copy = true, .adapter_folder = own ? NULL : o->merge};
    by_model *m = d ? by_model_open(d, in, &opening) : NULL;
    const int layers = by_adapter_layers(by_model_adapter(m));
    by_status s = m ? BY_OK : base_error_status();
    if (s == BY_OK)
        s = base_dir_check_empty(out);
    if (s == BY_OK && !o->dry_run)
        s = write_merged(m, base, own ? in : o->merge, out, &as);
    if (s == BY_OK && o->json)
        print_model(o, out, m, as.dtype);
    else if (s == BY_OK)
        printf("%s %s: the adapter of %d layers is merged, weights in %s\n",
               o->dry_run ? "would write" : "wrote", out, layers, by_dtype_name(as.dtype));
    by_model_free(m);
    by_device_free(d);
    base_free(base);
    return s;
}

/* ---- captions ---------------------------------------------------------------------------------- */

/* The tokens that begin and end texts, where the configuration of the decoder names none. */
static void set_tokens(by_model *m, const by_tokenizer *t)
{
    const int first = by_tokenizer_special(t, BY_SPECIAL_FIRST);
    if (by_model_eos(m) < 0)
        by_model_set_eos(m, train_caption_end(t));
    if (by_model_start(m) < 0)
        by_model_set_start(m, first >= 0 ? first : by_model_eos(m));
}

/* Saves a model with its image processor and tokenizer, under a temporary name until it is complete. */
static by_status write_joined(by_model *m, const char *encoder, const char *decoder, const char *out,
                              const by_save_spec *spec)
{
    char *temp = base_sprintf("%s.tmp-%ld", out, (long)getpid());
    by_processor *p = temp ? gen_processor_open(m, encoder, NULL) : NULL;
    by_tokenizer *t = p ? by_tokenizer_load(decoder) : NULL;
    by_status s = t ? base_dir_make(temp) : base_error_status();
    if (t)
        set_tokens(m, t);
    if (s == BY_OK)
        s = by_model_save_with(m, temp, spec);
    if (s == BY_OK)
        s = by_processor_save(p, temp);
    if (s == BY_OK)
        s = by_tokenizer_save(t, temp);
    if (s == BY_OK)
        s = base_rename(temp, out);
    if (s != BY_OK && temp)
        base_dir_remove(temp);
    by_tokenizer_free(t);
    by_processor_free(p);
    base_free(temp);
    return s;
}

static by_status join(const convert_options *o, const char *encoder, const char *out, bool typed)
{
    const by_save_spec as = {.shard_bytes = o->shard ? o->shard : -1, .dtype = typed ? o->dtype : BY_F32};
    char *decoder = cli_model_dir(o->decoder);
    by_device *d = decoder ? by_device_open("cpu", 0) : NULL;
    by_model *m = d ? by_model_join(d, encoder, decoder, 0) : NULL;
    by_status s = m ? BY_OK : base_error_status();
    if (s == BY_OK)
        s = base_dir_check_empty(out);
    if (s == BY_OK && !o->dry_run)
        s = write_joined(m, encoder, decoder, out, &as);
    if (s == BY_OK && o->json)
        print_model(o, out, m, as.dtype);
    else if (s == BY_OK)
        printf("%s %s: %s, %s parameters; banyan finetune --task caption trains it\n",
               o->dry_run ? "would write" : "wrote", out, by_model_title(m),
               cli_count_text(by_params_elements(by_model_params(m))).s);
    by_model_free(m);
    by_device_free(d);
    base_free(decoder);
    return s;
}

/* A run folder means the model in it; other paths are opened directly. */
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

static int convert_ngram(const convert_options *o, const cli_args *args)
{
    static const char *const names[] = {"json", "quiet", NULL};
    const cli_option *other = cli_given_beyond(args, names, NULL);
    if (other)
        return cli_usage_fail("--%s is not for n-gram models", other->name);
    return cli_ngram_convert(args->items[0], args->items[1], o->json);
}

/* Why the options do not go together, or NULL. */
static const char *conflict(const convert_options *o, const char *in, bool merges)
{
    if (merges && o->decoder)
        return "--decoder needs a model without an adapter: merge it first";
    if (o->merge && has_adapter(in))
        return "IN has an adapter already, which is merged: --merge adds one to a model without";
    if (o->renames.count)
        return "--rename is for weights that are converted as they are, not with an adapter or --decoder";
    return NULL;
}

static int convert(const convert_options *o, const char *in, const char *out, bool typed)
{
    cli_progress bar = {.label = "convert", .total = 1, .quiet = o->quiet || o->dry_run};
    const by_convert_spec spec = {.set_dtype = typed,
                                  .dtype = o->dtype,
                                  .shard_bytes = o->shard,
                                  .dry_run = o->dry_run,
                                  .renames = o->renames.items,
                                  .rename_count = o->renames.count,
                                  .progress = watch,
                                  .user = &bar};
    by_convert_report report = {0};
    const bool merges = o->merge || has_adapter(in), opens = merges || o->decoder;
    if (opens && conflict(o, in, merges))
        return cli_usage_fail("%s", conflict(o, in, merges));
    cli_progress_start(&bar);
    const by_status s = merges       ? merge(o, in, out, typed)
                        : o->decoder ? join(o, in, out, typed)
                                     : by_weights_convert(in, out, &spec, &report);
    cli_progress_end(&bar);
    return s != BY_OK ? cli_fail(NULL) : opens ? CLI_OK : print_report(o, out, &report, typed);
}

static int run(int argc, char **argv)
{
    convert_options o;
    cli_args args;
    int code;
    char *in = NULL;
    if (!cli_parse(&cli_convert, argc, argv, &o, &args, &code))
        return code;
    cli_interrupt_install();
    if (cli_model_kind(args.items[0]) == CLI_MODEL_NGRAM)
        code = convert_ngram(&o, &args);
    else if (base_input_ends(args.items[1], ".arpa"))
        code = cli_usage_fail("only n-gram models can be converted to ARPA files");
    else if (!(in = input(args.items[0])))
        code = cli_fail(NULL);
    else
        code = convert(&o, in, args.items[1], cli_given(&args, &o.dtype));
    base_free(in);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_convert = {
    .name = "convert",
    .summary = "convert a checkpoint to another precision, shard size or format",
    .args = "IN OUT",
    .description = "IN is a model directory, a run folder, or a file: .safetensors, a PyTorch .bin or .pt "
                   "(zip or the older stream), a NumPy .npz (not compressed), or the index of several. OUT "
                   "is a file if its name ends in .safetensors, otherwise a directory that does not exist "
                   "yet or is empty. Names of other file types (x.bin, x.gguf) are errors. The configuration "
                   "and the tokenizer of a directory are copied; a file that cannot be copied is an error. "
                   "Without a configuration, that of a recurrent network (PyTorch's nn.RNN, nn.LSTM, nn.GRU, "
                   "and language models around them) is inferred from names and shapes.\n"
                   "\n"
                   "Tensors are streamed through memory. OUT appears only when it is complete: a full disk, "
                   "an interruption or a power cut leaves nothing under its name. Reading a PyTorch file "
                   "executes nothing; contents other than tensors are an error that names them.\n"
                   "\n"
                   "An n-gram model is converted from an ARPA file, plain or compressed, to a model "
                   "directory (or to one mapped file, if OUT ends in .bin), and from these to an ARPA file "
                   "if OUT ends in .arpa or .arpa.gz.\n"
                   "\n"
                   "With --decoder, IN is an image model that becomes the encoder of a captioning model. The "
                   "cross-attention is new and must be trained.\n"
                   "\n"
                   "An adapter (--merge, or an IN with adapter_config.json) is merged into the weights of "
                   "its model; OUT is an equivalent model without an adapter.",
    .examples = "banyan convert gpt2 gpt2-bf16 --dtype bf16\n"
                "# merge an adapter\n"
                "banyan convert gpt2 merged --merge runs/adapter\n"
                "# a captioning model, to be trained\n"
                "banyan convert vit-base-patch16-224 captioner --decoder gpt2\n"
                "# files of at most 5 GB\n"
                "banyan convert big big-shards --shard-size 5GB\n"
                "banyan convert pytorch_model.bin model.safetensors\n"
                "banyan convert arrays.npz model --rename emb=encoder.weight --rename fc=decoder.weight\n"
                "# n-gram models: an ARPA file to a directory, and back\n"
                "banyan convert lm.arpa.gz lm\n"
                "banyan convert lm lm.arpa\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
