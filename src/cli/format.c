/* format.c - see format.h. */
#include "cli/format.h"

#include <stdio.h>

cli_text cli_bytes_text(size_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int unit = 0;
    for (; v >= 1024 && unit + 1 < BY_COUNT(units); unit++)
        v /= 1024;
    cli_text t;
    snprintf(t.s, sizeof t.s, unit ? "%.1f %s" : "%.0f %s", v, units[unit]);
    return t;
}

cli_text cli_flops_text(double flops)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    for (; flops >= 1000 && unit + 1 < BY_COUNT(units); unit++)
        flops /= 1000;
    cli_text t;
    snprintf(t.s, sizeof t.s, "%.3g %sFLOP", flops, units[unit]);
    return t;
}

/* 124,439,808 */
cli_text cli_count_text(int64_t n)
{
    char digits[32];
    cli_text t;
    int length = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < length; i++) {
        t.s[at++] = digits[i];
        if ((length - i) % 3 == 1 && i + 1 < length)
            t.s[at++] = ',';
    }
    t.s[at] = '\0';
    return t;
}

cli_text cli_counted(int64_t n, const char *noun)
{
    cli_text t = {""};
    base_format(t.s, sizeof t.s, "%s %s%s", cli_count_text(n).s, noun, n == 1 ? "" : "s");
    return t;
}

cli_text cli_shape_text(int rank, const int64_t *dim)
{
    cli_text t = {"("};
    size_t n = 1;
    for (int i = 0; i < rank && n < sizeof t.s; i++)
        n += (size_t)snprintf(t.s + n, sizeof t.s - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (n < sizeof t.s)
        snprintf(t.s + n, sizeof t.s - n, ")");
    return t;
}
