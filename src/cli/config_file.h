/* config_file.h - options of training verbs from a file: --config FILE, --resume DIR, or --out DIR with a run
 * in DIR. The file is a run.json, or an object of options by their long names:
 *
 *     {"data": ["a.txt", "b.txt"], "max-steps": 1000, "bf16": true}
 *
 * A resumed run takes options that are given neither on the command line nor in the file from its run.json,
 * so that changed defaults have no effect (recorded.c). */
#ifndef BY_CLI_CONFIG_FILE_H
#define BY_CLI_CONFIG_FILE_H

#include <cjson/cJSON.h>

#include "cli/verbs.h"

/* A command line with the options of a file in it. The strings live as long as it does. */
typedef struct cli_config {
    base_arena *arena;
    char **argv;
    int argc, room;
    bool filled[CLI_MAX_OPTIONS];  /* by row: from a recorded value, not given by anyone */
    bool earlier[CLI_MAX_OPTIONS]; /* by row: taken from a resumed run, not from the command line */
} cli_config;

/* A command of a verb whose runs are recorded. */
typedef struct cli_command {
    cli_args args;
    cli_config config;
    char *line;  /* the command as it was typed */
    char *given; /* the options that were given, in the form above, for run.json; NULL when memory is out */
} cli_command;

/* Parse a command line, with the options of the file that it names. `options` is a struct of `size` bytes
 * that belongs to the verb. False: return *code at once; nothing needs to be closed. */
bool cli_command_open(const cli_verb *verb, void *options, size_t size, int argc, char **argv, cli_command *c,
                      int *code);
void cli_command_close(cli_command *c);

/* ---- shared by config.c and recorded.c ------------------------------------------------------- */

/* The command line by itself. */
typedef struct cli_said {
    const cli_verb *verb;
    cli_args args;
    char *options; /* the verb's struct */
} cli_said;

/* The option of this name or alias, or NULL. */
const cli_option *cli_config_row(const cli_verb *verb, const char *name);
bool cli_said_given(const cli_said *s, const char *name);
/* The value of an option as JSON; the caller deletes it. `at`: the option's field. */
cJSON *cli_config_value(const cli_option *o, const void *at);

by_status cli_config_push(cli_config *c, const cli_option *o, const char *value);

/* The member of an object of options that gives this option, by any of its names; NULL: none does. */
const cJSON *cli_config_member(const cli_verb *verb, const cJSON *options, const cli_option *o);

/* Options from the values that `record`, a run.json, has at its top, for all that the command line and
 * `options` (of the file that it draws on, may be NULL) leave open. */
by_status cli_recorded_fill(cli_config *c, const cli_said *s, const cJSON *record, const cJSON *options);
enum { CLI_RECORDED_MAX = 48 }; /* options at most */

/* A path of a run.json, as seen from the present directory: a relative one is relative to the directory in
 * which the run was started, where that still has it. NULL when memory is out. */
const char *cli_recorded_path(base_arena *arena, const cJSON *record, const char *path);

#endif
