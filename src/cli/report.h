/* report.h - output of the program: errors and notes on stderr, results on stdout, exit codes, signals. */
#ifndef BY_CLI_REPORT_H
#define BY_CLI_REPORT_H

#include <cjson/cJSON.h>

#include "base/base.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* Sets the verb in messages: "banyan VERB: ...", or "banyan: ..." for NULL. The string is borrowed. */
void cli_name_set(const char *verb);

/* Prints by_error_message() on stderr, with a hint below it unless hint is NULL. Returns CLI_FAILED, or
 * CLI_INTERRUPTED if a signal caused the error: `return cli_fail(...)`. */
int cli_fail(const char *hint, ...) BY_PRINTF(1, 2);

/* Prints an error in the command line on stderr. Returns CLI_USAGE. */
int cli_usage_fail(const char *fmt, ...) BY_PRINTF(1, 2);

/* Prints a line on stderr that is not an error. Notes and errors clear a progress line first. */
void cli_note(const char *fmt, ...) BY_PRINTF(1, 2);

/* Prints one line of JSON on stdout and deletes the object; NULL counts as out of memory. Returns CLI_OK or,
 * after reporting, CLI_FAILED. */
int cli_print_json(cJSON *object);

/* Flushes stdout, for verbs that stream. Returns false if the reader is gone or the disk is full: stop and
 * return CLI_FAILED; cli_finish reports it. */
bool cli_flush(void);

/* Flushes and closes stdout at the end of main. Returns the code, or CLI_FAILED if results were lost, with
 * the reason unless the reader closed the pipe. */
int cli_finish(int code);

/* Whether fd is a terminal with escape sequences, and whether colours are enabled (NO_COLOR unset). */
bool cli_is_terminal(int fd);
bool cli_has_colour(int fd);

/* Columns of the terminal, else $COLUMNS, else 80. */
int cli_width(int fd);

/* Makes a mapped file that shrinks end the program with a message instead of SIGBUS. */
void cli_faults_install(void);

/* Makes the first SIGINT or SIGTERM set cli_interrupted(); the next one exits at once. */
void cli_interrupt_install(void);
bool cli_interrupted(void);
bool cli_poll(void *user); /* the same, as a callback `cancelled` of the library */

#endif
