/* progress.h - how far a long job is: one rewritten line on a terminal, plain lines now and then elsewhere.
 * Never on stdout. */
#ifndef BY_CLI_PROGRESS_H
#define BY_CLI_PROGRESS_H

#include "base/base.h"

typedef struct cli_progress {
    /* set by the caller, zero means default */
    const char *label;    /* in front of the line */
    int64_t first, total; /* where this run starts, and where it ends; total 0: not known */
    int64_t every_steps;  /* plain lines: one each so many steps, and ... */
    double every_seconds; /* ... at the latest after so long; both 0: every 10 seconds */
    bool quiet;           /* show nothing */
    int fd;               /* 0: stderr */
    /* the rest is the module's */
    double started, shown_at;
    int64_t shown;
    double mark_at[2]; /* the time left is estimated from mark 0, 20 to 40 seconds ago; see note_pace */
    int64_t mark[2];
    bool paced; /* the marks are set */
    bool terminal, broken, visible;
} cli_progress;

/* Start the clock. The struct must stay where it is until cli_progress_end; one job at a time has a line. */
void cli_progress_start(cli_progress *p);

/* `done` steps of total are done; the text (loss, tokens per second) is formatted only when it is going to be
 * shown, at most ten times a second on a terminal. The last step is always shown. Write errors are ignored.
 */
void cli_progress_update(cli_progress *p, int64_t done, const char *fmt, ...) BY_PRINTF(3, 4);

/* Clear the line. Legal without start. */
void cli_progress_end(cli_progress *p);

/* Clear the line of the running job, so that something else can be printed; the next update draws it again.
 */
void cli_progress_hide(void);

/* "0:07", "12:34", "1:02:03", "2d 03:04" */
void cli_format_duration(char *out, size_t size, double seconds);

#endif
