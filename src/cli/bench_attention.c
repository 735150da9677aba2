/* bench_attention.c - `banyan bench attention`: time and memory of each kind of attention over lengths, with
 * fitted exponents. */
#include <stdlib.h>

#include "cli/bench.h"
#include "cli/show.h"
#include "infer/attention_bench.h"
#include "report/curve.h"

enum { LENGTHS = 16, KINDS = 32 };

typedef struct measurement {
    bool done;
    double share, forward, both; /* of the pairs; seconds */
    size_t forward_bytes, bytes;
} measurement;

typedef struct attention_bench {
    const bench_options *o;
    by_device *device;
    gen_attention_shape shape;
    int lengths[LENGTHS], n_lengths;
    const gen_attention_kind *kinds[KINDS];
    int n_kinds;
    measurement m[KINDS][LENGTHS];
} attention_bench;

/* ---- options --------------------------------------------------------------------------------- */

/* "1k,2k,4096": k is 1024. */
static bool read_lengths(attention_bench *b, const char *text)
{
    while (b->n_lengths < LENGTHS) {
        char *end;
        long n = strtol(text, &end, 10);
        const bool kilo = *end == 'k' || *end == 'K';
        if (end == text || n < 1 || n > 1 << 24 || (kilo && n > 1 << 14))
            return false;
        end += kilo;
        b->lengths[b->n_lengths++] = (int)(kilo ? 1024 * n : n);
        if (*end != ',')
            return *end == '\0';
        text = end + 1;
    }
    return false;
}

/* Whether a list with commas has the name. */
static bool is_listed(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

static bool read_kinds(attention_bench *b, const char *list)
{
    int wanted = 1;
    for (const char *at = list; at && *at; at++)
        wanted += *at == ',';
    for (int i = 0; i < gen_attention_count() && b->n_kinds < KINDS; i++)
        if (!list || is_listed(list, gen_attention_at(i)->name))
            b->kinds[b->n_kinds++] = gen_attention_at(i);
    return !list || b->n_kinds == wanted;
}

/* ---- output ---------------------------------------------------------------------------------- */

static const measurement *dense_at(const attention_bench *b, int length)
{
    return strcmp(b->kinds[0]->name, "dense") == 0 && b->m[0][length].done ? &b->m[0][length] : NULL;
}

static int print_row(const attention_bench *b, int kind, int length)
{
    const measurement *m = &b->m[kind][length], *dense = dense_at(b, length);
    const double to_dense = dense ? m->both / dense->both : (double)NAN;
    if (!b->o->json) {
        printf("%-10s %7d  %8.4f  %10.2f  %12.2f  %9.1f", b->kinds[kind]->name, b->lengths[length], m->share,
               1e3 * m->forward, 1e3 * m->both, (double)m->bytes / (1 << 20));
        if (dense)
            printf("  %8.3f  %8.2f", to_dense, to_dense / m->share);
        printf("\n");
        return cli_flush() ? CLI_OK : CLI_FAILED;
    }
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "attention", b->kinds[kind]->name);
    cJSON_AddNumberToObject(j, "length", b->lengths[length]);
    cJSON_AddNumberToObject(j, "batch", b->shape.batch);
    cJSON_AddNumberToObject(j, "heads", b->shape.heads);
    cJSON_AddNumberToObject(j, "head_dim", b->shape.head_dim);
    cJSON_AddStringToObject(j, "dtype", by_dtype_name(b->shape.dtype));
    cJSON_AddStringToObject(j, "device", by_device_name(b->device));
    cli_json_number(j, "share", m->share);
    cli_json_number(j, "forward_ms", 1e3 * m->forward);
    cli_json_number(j, "forward_backward_ms", 1e3 * m->both);
    cJSON_AddNumberToObject(j, "forward_bytes", (double)m->forward_bytes);
    cJSON_AddNumberToObject(j, "bytes", (double)m->bytes);
    cli_json_number(j, "to_dense", to_dense);
    cli_json_number(j, "to_dense_share", to_dense / m->share);
    return cli_print_json(j);
}

/* The exponent x of y = a n^x by least squares of the logarithms; NaN with fewer than two lengths. */
static double fit(const attention_bench *b, int kind, double (*value)(const measurement *m))
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (int i = 0; i < b->n_lengths; i++) {
        if (!b->m[kind][i].done)
            continue;
        const double x = log(b->lengths[i]), y = log(value(&b->m[kind][i]));
        n++;
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    return n < 2 ? (double)NAN : (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

static double forward_of(const measurement *m)
{
    return m->forward;
}

static double both_of(const measurement *m)
{
    return m->both;
}

static double bytes_of(const measurement *m)
{
    return (double)m->bytes;
}

/* One length has no exponent. In JSON it is null, so that readers find the lines that they expect. */
static int print_fits(const attention_bench *b)
{
    if (!b->o->json && b->n_lengths < 2)
        return cli_flush() ? CLI_OK : CLI_FAILED;
    if (!b->o->json)
        printf("\nexponent of n     forward  forward+backward  bytes\n");
    for (int k = 0; k < b->n_kinds; k++) {
        const double forward = fit(b, k, forward_of), both = fit(b, k, both_of), bytes = fit(b, k, bytes_of);
        if (!b->o->json) {
            printf("%-16s  %7.2f  %16.2f  %5.2f   %s\n", b->kinds[k]->name, forward, both, bytes,
                   b->kinds[k]->about);
            continue;
        }
        cJSON *j = cJSON_CreateObject();
        cJSON_AddStringToObject(j, "attention", b->kinds[k]->name);
        cli_json_number(j, "forward_exponent", forward);
        cli_json_number(j, "forward_backward_exponent", both);
        cli_json_number(j, "bytes_exponent", bytes);
        if (cli_print_json(j) != CLI_OK)
            return CLI_FAILED;
    }
    return cli_flush() ? CLI_OK : CLI_FAILED;
}

static by_status plot(const attention_bench *b, const char *path)
{
    static double x[LENGTHS], ms[KINDS][LENGTHS], mib[KINDS][LENGTHS];
    report_curve_series time[KINDS], memory[KINDS];
    char title[128];
    for (int i = 0; i < b->n_lengths; i++)
        x[i] = b->lengths[i];
    for (int k = 0; k < b->n_kinds; k++) {
        for (int i = 0; i < b->n_lengths; i++) {
            ms[k][i] = b->m[k][i].done ? 1e3 * b->m[k][i].both : (double)NAN;
            mib[k][i] = b->m[k][i].done ? (double)b->m[k][i].bytes / (1 << 20) : (double)NAN;
        }
        time[k] = memory[k] = (report_curve_series){
            .name = b->kinds[k]->name, .x = x, .y = ms[k], .count = (size_t)b->n_lengths, .exact = true};
        memory[k].y = mib[k];
        memory[k].name = NULL;
    }
    snprintf(title, sizeof title, "attention, forward and backward: %s, B %d, H %d, D %d, %s",
             by_device_name(b->device), b->shape.batch, b->shape.heads, b->shape.head_dim,
             by_dtype_name(b->shape.dtype));
    const report_curve_panel panels[] = {{"milliseconds", time, b->n_kinds},
                                         {"MiB of activations", memory, b->n_kinds}};
    return report_curve_svg(path, &(report_curve){.title = title,
                                                  .x_label = "tokens (k = 1024)",
                                                  .panels = panels,
                                                  .count = BY_COUNT(panels),
                                                  .logarithmic = true});
}

/* ---- the work -------------------------------------------------------------------------------- */

static by_status measure(attention_bench *b, int kind, int length)
{
    measurement *m = &b->m[kind][length];
    gen_attention_time forward, both;
    b->shape.length = b->lengths[length];
    BY_TRY(gen_attention_measure(b->device, b->kinds[kind], &b->shape, false, &forward));
    BY_TRY(gen_attention_measure(b->device, b->kinds[kind], &b->shape, true, &both));
    *m = (measurement){.done = true,
                       .share = gen_attention_share(b->kinds[kind], &b->shape),
                       .forward = forward.seconds,
                       .both = both.seconds,
                       .forward_bytes = forward.bytes,
                       .bytes = both.bytes};
    return BY_OK;
}

/* Lengths that do not fit into memory are skipped. */
static int measure_all(attention_bench *b)
{
    int code = CLI_OK;
    if (!b->o->json)
        printf("%s, B %d, H %d, D %d, %s\n%-10s %7s  %8s  %10s  %12s  %9s  %8s  %8s\n",
               by_device_description(b->device), b->shape.batch, b->shape.heads, b->shape.head_dim,
               by_dtype_name(b->shape.dtype), "attention", "tokens", "share", "forward ms", "+backward ms",
               "MiB", "to dense", "by share");
    for (int i = 0; i < b->n_lengths; i++)
        for (int k = 0; k < b->n_kinds && code == CLI_OK; k++) {
            by_status s = cli_interrupted() ? base_fail(BY_ERR_CANCELLED, "interrupted") : measure(b, k, i);
            if (s == BY_ERR_MEMORY)
                cli_note("%s at %d tokens: %s", b->kinds[k]->name, b->lengths[i], by_error_message());
            else
                code = s == BY_OK ? print_row(b, k, i) : cli_fail(NULL);
        }
    return code;
}

int bench_attention(const bench_options *o)
{
    static attention_bench b;
    b = (attention_bench){.o = o,
                          .shape = {.batch = o->batch ? o->batch : 1,
                                    .heads = o->heads ? o->heads : 4,
                                    .head_dim = o->head_dim,
                                    .dtype = o->bf16 ? BY_BF16 : o->dtype}};
    if (!read_kinds(&b, o->kinds))
        return cli_usage_fail("--kinds has an unknown kind of attention; `banyan help bench` lists them");
    if (o->lengths && !read_lengths(&b, o->lengths))
        return cli_usage_fail("--lengths is a list such as 1k,2k,4096, with at most %d entries", LENGTHS);
    cli_interrupt_install();
    b.device = cli_device(o->device, o->threads);
    if (!b.device)
        return cli_fail(NULL);
    if (!o->lengths)
        read_lengths(&b, by_device_runs_ahead(b.device) ? "1k,2k,4k,8k,16k,32k,64k" : "1k,2k,4k,8k,16k");
    int code = measure_all(&b);
    if (code == CLI_OK)
        code = print_fits(&b);
    if (code == CLI_OK && o->plot && plot(&b, o->plot) != BY_OK)
        code = cli_fail(NULL);
    by_device_free(b.device);
    return code;
}
