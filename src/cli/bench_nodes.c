/* bench_nodes.c - see bench.h: sums of the trace of a step by kind and shape. */
#include "cli/bench.h"

void bench_on_node(void *user, const by_trace_entry *e)
{
    bench *b = user;
    bench_kind *k = b->kinds, *end = k + b->n_kinds;
    if (b->only_products && strncmp(e->op, "linear", 6) != 0 && strcmp(e->op, "matmul") != 0)
        return;
    while (k < end && (strcmp(k->op, e->op) != 0 || strcmp(k->shape, e->shape) != 0))
        k++;
    if (k == b->kinds + BY_COUNT(b->kinds))
        return;
    if (k == end) {
        *k = (bench_kind){.best = INFINITY};
        snprintf(k->op, sizeof k->op, "%s", e->op);
        snprintf(k->shape, sizeof k->shape, "%s", e->shape);
        b->n_kinds++;
    }
    k->count++;
    k->flops += e->flops;
    k->bytes += e->bytes;
    k->seconds += e->seconds;
}

void bench_clear_nodes(bench *b)
{
    for (int i = 0; i < b->n_kinds; i++) {
        b->kinds[i].count = 0;
        b->kinds[i].flops = b->kinds[i].bytes = b->kinds[i].seconds = 0;
    }
}

double bench_sum_nodes(bench *b, double *seconds)
{
    double flops = 0;
    for (int i = 0; i < b->n_kinds; i++) {
        bench_kind *k = &b->kinds[i];
        k->best = BY_MIN(k->best, k->seconds);
        *seconds += k->seconds;
        flops += k->flops;
    }
    return flops;
}
