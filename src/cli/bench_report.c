/* bench_report.c - see bench.h: the results as one line of JSON. */
#include <stdlib.h>
#include <sys/resource.h>

#include "cli/bench.h"
#include "cli/show.h"

static int data_value(const void *a, const void *b)
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
    if (bench_is_picture(b))
        cJSON_AddNumberToObject(j, "image", b->picture.width);
    if (bench_is_pair(b))
        cJSON_AddNumberToObject(j, "target", o->target);
    if (b->work->writes)
        cJSON_AddNumberToObject(j, "new_tokens", o->new_tokens);
    if (b->work->beams)
        cJSON_AddNumberToObject(j, "beams", o->beams);
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(o->dtype));
    if (o->weights && !b->work->training)
        cJSON_AddStringToObject(j, "weights", o->weights);
    cJSON_AddStringToObject(j, "device", by_device_description(b->device));
    cJSON_AddNumberToObject(j, "threads", by_device_threads(b->device));
    cJSON_AddNumberToObject(j, "steps", o->steps);
    if (o->recompute)
        cJSON_AddTrueToObject(j, "recompute");
    if (o->gr_stochastic && b->work->training)
        cJSON_AddTrueToObject(j, "stochastic_rounding");
}

static void add_kinds(const bench *b, cJSON *j)
{
    cJSON *list = cJSON_AddArrayToObject(j, b->only_products ? "products" : "nodes");
    for (int i = 0; i < b->n_kinds; i++) {
        const bench_kind *k = &b->kinds[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "op", k->op);
        cJSON_AddStringToObject(one, "shape", k->shape);
        cJSON_AddNumberToObject(one, "count", k->count);
        cli_json_number(one, "ms", 1e3 * k->best);
        cli_json_number(one, "flops_per_s", k->flops / k->best);
        if (!b->only_products)
            cli_json_number(one, "bytes_per_s", k->bytes / k->best);
        cJSON_AddItemToArray(list, one);
    }
}

double bench_median(double *seconds, int n)
{
    qsort(seconds, (size_t)n, sizeof *seconds, data_value);
    return (seconds[n / 2] + seconds[(n - 1) / 2]) / 2;
}

int bench_tell(bench *b)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used); /* before the peak is measured */
    const double median = bench_median(b->seconds, b->o.steps), rate = (double)b->tokens_per_step / median;
    const double flops = rate * b->flops_per_token, peak = by_device_peak(b->device, b->o.dtype);
    cJSON *j = cJSON_CreateObject();
    add_shape(b, j);
    cli_json_number(j, "tokens_per_s", rate);
    cli_json_number(j, "ms_per_step", 1e3 * median / b->passes);
    cli_json_number(j, "ms_min", 1e3 * b->seconds[0] / b->passes);
    cli_json_number(j, "cpu_ms_min", 1e3 * b->cpu_seconds / b->passes);
    cli_json_number(j, "flops_per_s", flops);
    cli_json_number(j, "peak_flops_per_s", peak);
    cli_json_number(j, "peak_share", flops <= peak ? flops / peak : (double)NAN); /* else measured badly */
    cJSON_AddNumberToObject(j, "max_rss_bytes", 1024.0 * (double)used.ru_maxrss);
    cJSON_AddNumberToObject(j, "state_bytes", (double)by_params_bytes(by_model_params(b->model)));
    cJSON_AddNumberToObject(j, "planned_bytes", (double)planned_bytes(b));
    if (b->trainer)
        cli_json_number(j, "loss", b->loss);
    if (b->work->writes && !b->work->beams)
        cli_json_number(j, "first_token_s", b->o.model_dir ? b->first_token : NAN);
    if (b->work->writes)
        cJSON_AddNumberToObject(j, "token_sum", (double)b->token_sum);
    if (b->n_kinds)
        add_kinds(b, j);
    return cli_print_json(j);
}
