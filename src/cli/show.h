/* show.h - output shared by verbs: traces, curves, numbers in JSON. */
#ifndef BY_CLI_SHOW_H
#define BY_CLI_SHOW_H

#include <cjson/cJSON.h>

#include "banyan/graph.h"

/* A by_trace_fn that prints one line per node on stderr. */
void cli_trace_line(void *user, const by_trace_entry *e);

/* Draw the curves of a run folder's metrics.jsonl on stderr when that is a terminal, or `always`. loss_unit:
 * "nats per token". */
void cli_show_curve(const char *run_folder, const char *loss_unit, bool always);

/* Reports that the run in `run_folder` already has all its steps, and which options change that. */
void cli_note_finished(const char *run_folder, int64_t steps);

/* Add a number, or null when it is not finite. */
void cli_json_number(cJSON *object, const char *key, double value);

/* The command line as one string that a shell would split the same way. Heap string, NULL when memory is out.
 */
char *cli_command_line(int argc, char **argv);

#endif
