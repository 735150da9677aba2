/* verb_devices.c - `banyan devices`: lists devices and their speeds. */
#include <math.h>

#include "cli/common.h"
#include "cli/show.h"
#include "cli/verbs.h"

typedef struct devices_options {
    bool json, quick;
} devices_options;

static const cli_option options[] = {
    {CLI_AT(devices_options, quick), .name = "quick", .help = "do not measure speeds"},
    {CLI_AT(devices_options, json), .name = "json", .help = "print one JSON object per device"},
};

static const by_dtype types[] = {BY_F32, BY_BF16};

static int print_device(const devices_options *o, const char *name, by_device *d)
{
    double rate[BY_COUNT(types)], bandwidth = o->quick ? NAN : by_device_bandwidth(d);
    for (int i = 0; i < BY_COUNT(types); i++)
        rate[i] = o->quick ? NAN : by_device_peak(d, types[i]);
    if (o->json) {
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "name", name);
        cJSON_AddStringToObject(j, "description", by_device_description(d));
        for (int i = 0; i < BY_COUNT(types) && !o->quick; i++) {
            char key[32];
            snprintf(key, sizeof key, "%s_flops_per_s", by_dtype_name(types[i]));
            cli_json_number(j, key, rate[i]);
        }
        if (!o->quick)
            cli_json_number(j, "copy_bytes_per_s", bandwidth);
        return cli_print_json(j);
    }
    printf("%-10s %s\n", name, by_device_description(d));
    if (!o->quick)
        printf("           measured: matrix products %.3g TFLOP/s in f32, %.3g in bf16; copying %.3g GB/s\n",
               rate[0] / 1e12, rate[1] / 1e12, bandwidth / 1e9);
    return CLI_OK;
}

/* The same card again with products in FP8, where it has that. */
static int print_fp8(const devices_options *o, const char *name)
{
    char fp8[32];
    snprintf(fp8, sizeof fp8, "%s+fp8", name);
    by_device *d = by_device_open(fp8, 0);
    int code = d ? print_device(o, fp8, d) : CLI_OK;
    by_device_free(d);
    return code;
}

static int list(const devices_options *o)
{
    by_device *d = by_device_open("cpu", 0);
    if (!d)
        return cli_fail(NULL);
    int code = print_device(o, "cpu", d);
    by_device_free(d);
    for (int i = 0; code == CLI_OK; i++) {
        char name[24];
        snprintf(name, sizeof name, "cuda:%d", i);
        d = by_device_open(name, 0);
        if (!d) {
            if (i == 0 && !o->json)
                printf("cuda       %s\n", by_error_message());
            break;
        }
        code = print_device(o, name, d);
        by_device_free(d);
        if (code == CLI_OK)
            code = print_fp8(o, name);
    }
    return code;
}

static int run(int argc, char **argv)
{
    devices_options o;
    cli_args args;
    int code;
    if (!cli_parse(&cli_devices, argc, argv, &o, &args, &code))
        return code;
    code = list(&o);
    cli_args_free(&args);
    return code;
}

const cli_verb cli_devices = {
    .name = "devices",
    .summary = "list the devices of this machine and measure their speed",
    .description = "Prints one line per device: the name that --device takes, and the measured rate of a "
                   "large matrix product and a large copy (bytes read plus bytes written). A GPU with FP8 is "
                   "listed a second time as +fp8, where bf16 products run in FP8 if that is faster. If no "
                   "NVIDIA GPU can be used, the last line says why.",
    .examples = "banyan devices\nbanyan devices --quick --json\n",
    .options = options,
    .option_count = BY_COUNT(options),
    .run = run,
};
