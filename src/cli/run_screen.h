/* run_screen.h - display of a training run on stderr: notes, evaluations, a progress line. */
#ifndef BY_CLI_RUN_SCREEN_H
#define BY_CLI_RUN_SCREEN_H

#include "banyan/evaluate.h"
#include "banyan/train.h"
#include "cli/progress.h"

typedef struct cli_run_screen {
    const char *label; /* of the progress line */
    bool quiet;
    int64_t log_every; /* steps between plain lines, at least */
    bool estimates;    /* print an estimate of the total time after some steps */
    /* the rest is the module's */
    cli_progress bar;
    bool started, estimated, writing;
    double began; /* seconds after the start, at step `begin` */
    int64_t begin;
} cli_run_screen;

/* Callbacks of the library; `user` is the screen. */
void cli_run_report(void *user, const by_report *r);
void cli_run_wrote(void *user, const by_text_result *so_far, int64_t total);

void cli_run_end(cli_run_screen *s);

#endif
