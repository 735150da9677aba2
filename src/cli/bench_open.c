/* bench_open.c - see bench.h. Nothing is computed, so there are no tokens to count: milliseconds, and
 * the memory of the process before and after. */
#include <stdio.h>
#include <unistd.h>

#include "banyan/weights.h"
#include "cli/bench.h"

/* Resident bytes of this process, or 0 without /proc. */
static double resident(void)
{
    long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* The last of the opened ones is kept. */
static by_weights *open_often(const char *path, double *seconds, int steps)
{
    by_weights *w = NULL;
    for (int i = 0; i < steps; i++) {
        by_weights_free(w);
        double start = base_seconds();
        w = by_weights_open(path);
        seconds[i] = base_seconds() - start;
        if (!w)
            return NULL;
    }
    return w;
}

int bench_open_weights(const char *path, int steps)
{
    double *seconds = base_alloc_zero((size_t)steps, sizeof *seconds), before = resident();
    by_weights *w = seconds ? open_often(path, seconds, steps) : NULL;
    if (!w) {
        base_free(seconds);
        return cli_fail(NULL);
    }
    const double after = resident(), median = bench_median(seconds, steps);
    double bytes = 0;
    for (int i = 0; i < by_weights_count(w); i++)
        bytes += (double)by_weights_at(w, i)->bytes;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "what", "open");
    cJSON_AddStringToObject(j, "format", by_weights_format(w));
    cJSON_AddNumberToObject(j, "files", by_weights_files(w));
    cJSON_AddNumberToObject(j, "tensors", by_weights_count(w));
    cJSON_AddNumberToObject(j, "bytes", bytes);
    cJSON_AddNumberToObject(j, "steps", steps);
    cJSON_AddNumberToObject(j, "ms", 1e3 * median);
    cJSON_AddNumberToObject(j, "ms_min", 1e3 * seconds[0]);
    cJSON_AddNumberToObject(j, "ms_max", 1e3 * seconds[steps - 1]);
    cJSON_AddNumberToObject(j, "rss_before_bytes", before);
    cJSON_AddNumberToObject(j, "rss_after_bytes", after);
    by_weights_free(w);
    base_free(seconds);
    return cli_print_json(j);
}
