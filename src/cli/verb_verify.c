/* verb_verify.c - `banyan verify`: compares a model with recorded reference results. */
#include <math.h>

#include "banyan/verify.h"
#include "cli/common.h"
#include "cli/show.h"
#include "cli/verbs.h"

typedef struct verify_options {
    const char *device;
    by_dtype dtype;
    int threads;
    bool json;
} verify_options;

static const cli_option options[] = {
    {CLI_AT(verify_options, device), .name = "device", .preset = "auto", .value = "NAME",
     .help = "device to run on: cpu, cuda, cuda:1, cuda+tf32, cuda+fp8; auto picks a GPU if there is one"},
    {CLI_AT(verify_options, dtype), .name = "dtype", .choices = "f32|bf16|f16|f64", .preset = "f32",
     .help = "precision of parameters and activations"},
    {CLI_AT(verify_options, threads), .name = "threads", .letter = 't', CLI_RANGE(0, 4096), .preset = "0",
     .help = "CPU threads; 0 uses every core"},
    {CLI_AT(verify_options, json), .name = "json", .help = "print one JSON object"},
};

static void print_line(void *user, const by_verify_line *l)
{
    (void)user;
    if (l->verdict == BY_VERDICT_NOT_RUN) {
        printf("not run  %s: %s\n", l->name, l->note);
        return;
    }
    char error[16] = "-";
    if (!isnan(l->error))
        snprintf(error, sizeof error, l->measure == BY_MEASURE_DIFFERENT ? "%.0f" : "%.1e", l->error);
    printf("%-50s %8s  %s", l->name, error, l->verdict == BY_VERDICT_OK ? "ok" : "FAILED");
    if (l->verdict == BY_VERDICT_FAILED && !isnan(l->bound))
        printf(" (%s, bound %g)", by_measure_name(l->measure), l->bound);
    printf("%s%s\n", l->note ? ": " : "", l->note ? l->note : "");
}

static void add_line(void *user, const by_verify_line *l)
{
    static const char *const verdicts[] = {"ok", "failed", "not run"};
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "name", l->name);
    cJSON_AddStringToObject(o, "result", verdicts[l->verdict]);
    if (!isnan(l->bound)) {
        cJSON_AddStringToObject(o, "measure", by_measure_name(l->measure));
        cli_json_number(o, "error", l->error);
        cli_json_number(o, "bound", l->bound);
    }
    if (l->note)
        cJSON_AddStringToObject(o, "note", l->note);
    cJSON_AddItemToArray(user, o);
}

static int print_json(const verify_options *o, const char *dir, const by_verify_result *r, cJSON *lines)
{
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "dir", dir);
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(o->dtype));
    cJSON_AddBoolToObject(j, "ok", r->failed == 0);
    cJSON_AddNumberToObject(j, "tensors", r->tensors);
    cJSON_AddNumberToObject(j, "failed", r->failed);
    cJSON_AddNumberToObject(j, "not_run", r->not_run);
    if (!cJSON_AddItemToObject(j, "results", lines))
        cJSON_Delete(lines);
    return cli_print_json(j);
}

static int verify(const verify_options *o, const char *dir)
{
    by_device *d = cli_device(o->device, o->threads);
    cJSON *lines = o->json ? cJSON_CreateArray() : NULL;
    by_verify_spec spec = {.dtype = o->dtype, .line = o->json ? add_line : print_line, .user = lines};
    by_verify_result r;
    int code;
    if (!d || by_verify(d, dir, &spec, &r) != BY_OK) {
        cJSON_Delete(lines);
        code = cli_fail(NULL);
    } else {
        code = o->json ? print_json(o, dir, &r, lines) : CLI_OK;
        if (!o->json && r.failed)
            printf("verify: FAILED %d of %d\n", r.failed, r.tensors);
        else if (!o->json)
            printf("verify: ok %d tensors\n", r.tensors);
        code = code == CLI_OK && r.failed ? CLI_FAILED : code;
    }
    by_device_free(d);
    return code;
}

static int run(int argc, char **argv)
{
    verify_options o;
    cli_args args;
    int code;
    if (!cli_parse(&cli_verify, argc, argv, &o, &args, &code))
        return code;
    code = verify(&o, args.items[0]);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_verify = {
    .name = "verify",
    .summary = "compare a model with recorded reference results",
    .args = "DIR",
    .description =
        "DIR holds a model (config.json, model.safetensors), reference.safetensors with inputs and expected "
        "results, and case.json with the settings. Prints one line per tensor (name, error, ok or FAILED) "
        "and a summary. The exit status is 1 if anything failed, or if nothing was compared.\n"
        "\n"
        "Error measures for a (here) against b (the reference), with bounds for f32 and f64; for bf16 and "
        "f16:\n"
        "  outputs            largest |a-b| / max(1, |b|)       1e-4;  1e-4 of NMSE = sum (a-b)^2 / sum b^2\n"
        "  loss               largest |a-b| / max(1, |b|)       1e-5;  1e-2\n"
        "  gradients          |a-b| / |b|, 2-norms              1e-4;  1e-3 of NMSE\n"
        "  generated tokens   how many differ                   0;     not run\n"
        "  training steps     largest |a-b| / max(1, |b|)       1e-4;  3e-2\n"
        "  trained parameters |a-b| / |b|, 2-norms              1e-4;  1e-2 of NMSE\n"
        "\n"
        "A gradient that is zero except for rounding, such as that of a key bias, is measured against 1/1000 "
        "(16 bits: 1/10) of the norm of the whole gradient. Such elements of a trained parameter do not "
        "count.",
    .examples = "banyan verify tests/data/verify/gpt2\n"
                "banyan verify tests/data/verify/gpt2 --dtype bf16 --json\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
