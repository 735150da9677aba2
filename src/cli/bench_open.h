/* bench_open.h - `banyan bench open`: how long opening a checkpoint takes and what memory it costs. */
#ifndef BY_CLI_BENCH_OPEN_H
#define BY_CLI_BENCH_OPEN_H

/* Open `path` so many times and print one line of JSON. Returns an exit code. */
int cli_bench_open(const char *path, int steps);

#endif
