/* progress.h - progress of a long job: one line redrawn in place on a terminal, occasional plain lines elsewhere.
 * Never on stdout. */
#ifndef BY_CLI_PROGRESS_H
#define BY_CLI_PROGRESS_H

#include "base/base.h"

typedef struct cli_progress {
    /* set by the caller, zero means default */
    const char *label;    /* at the start of the line */
    int64_t first, total; /* first and last step of this job; total 0: unknown */
    int64_t every_steps;  /* plain lines: one every N steps, and ... */
    double every_seconds; /* ... at least this often; both 0: every 10 seconds */
    bool quiet;           /* show nothing */
    int fd;               /* 0: stderr */
    /* private */
    double started, shown_at;
    int64_t shown;
    double mark_at[2]; /* the time left is estimated from mark 0, 20 to 40 seconds ago; see note_pace */
    int64_t mark[2];
    bool paced; /* the marks are set */
    bool terminal, broken, visible;
} cli_progress;

/* Starts the clock. The struct must not move until cli_progress_end. Only one job at a time has a line. */
void cli_progress_start(cli_progress *p);

/* Reports that `done` steps are done. The text (loss, tokens per second) is formatted only if it is shown: at most ten
 * times a second on a terminal, and always for the last step. Write errors are ignored. */
void cli_progress_update(cli_progress *p, int64_t done, const char *fmt, ...) BY_PRINTF(3, 4);

/* Clears the line. May be called without start. */
void cli_progress_end(cli_progress *p);

/* Clears the line of the running job so that something else can be printed; the next update redraws it. */
void cli_progress_hide(void);

/* "0:07", "12:34", "1:02:03", "2d 03:04" */
void cli_format_duration(char *out, size_t size, double seconds);

#endif
