/* report.h - how the program speaks: errors and notes on stderr, results on stdout, exit codes, signals. */
#ifndef BY_CLI_REPORT_H
#define BY_CLI_REPORT_H

#include <cjson/cJSON.h>

#include "base/base.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* The verb that messages name: "banyan VERB: ...". NULL: "banyan: ...". The string is kept, not copied. */
void cli_name_set(const char *verb);

/* Report by_error_message() in one line on stderr, with a hint under it unless hint is NULL. Returns
 * CLI_FAILED, or CLI_INTERRUPTED when the error is a cancellation that followed a signal, so that `return
 * cli_fail(...)` is right. */
int cli_fail(const char *hint, ...) BY_PRINTF(1, 2);

/* Report a wrong command line in one line on stderr. Returns CLI_USAGE. */
int cli_usage_fail(const char *fmt, ...) BY_PRINTF(1, 2);

/* A line on stderr that is not an error. Notes and errors clear a progress line first. */
void cli_note(const char *fmt, ...) BY_PRINTF(1, 2);

/* Print one compact line of JSON on stdout. Takes the object over, deletes it in any case; NULL counts as out
 * of memory. Returns CLI_OK or, after reporting, CLI_FAILED. */
int cli_print_json(cJSON *object);

/* Flush stdout, for verbs that stream. False when the reader is gone or the disk is full: stop working and
 * return CLI_FAILED; cli_finish tells the user. */
bool cli_flush(void);

/* The last thing main does: flush and close stdout. Returns the code, or CLI_FAILED when results were lost;
 * says why unless it was a pipe closed at the other end. */
int cli_finish(int code);

/* True for a terminal that understands escape sequences, and when colours are wanted on it too (NO_COLOR
 * unset). */
bool cli_is_terminal(int fd);
bool cli_has_colour(int fd);

/* Columns of the terminal, else $COLUMNS, else 80. */
int cli_width(int fd);

/* From here on a mapped file that shrinks ends the program with a message instead of SIGBUS. */
void cli_faults_install(void);

/* From here on the first SIGINT or SIGTERM only makes cli_interrupted() true; the next one exits at once. */
void cli_interrupt_install(void);
bool cli_interrupted(void);
bool cli_poll(void *user); /* the same, as a callback `cancelled` of the library */

#endif
