/* options.h - one static table per verb, from which parsing, defaults, help, man page and shell completion
 * all follow. A row takes its kind from the type of the field it fills, so the two cannot disagree:
 *
 *     typedef struct bench_options {
 *         int steps;
 *     } bench_options;
 *
 *     static const cli_option options[] = {
 *         {CLI_AT(bench_options, steps), .name = "steps", .letter = 'n', CLI_RANGE(1, 1e6), .preset = "10",
 *          .help = "timed steps", .group = "Measurement"},
 *     };
 */
#ifndef BY_CLI_OPTIONS_H
#define BY_CLI_OPTIONS_H

#include <math.h>
#include <stdio.h>

#include "base/base.h"

typedef enum cli_kind {
    CLI_FLAG = 1, /* bool: --name, --no-name, --name=yes|no */
    CLI_INT,      /* int; with .choices, the index of the choice */
    CLI_INT64,    /* int64_t, or uint64_t where .min is at least 0 */
    CLI_ENUM,     /* an enum whose values are 0, 1, 2 ... in the order of .choices */
    CLI_DOUBLE,   /* double, finite */
    CLI_STRING,   /* const char *, borrowed from argv; with .choices, one of them */
    CLI_LIST      /* cli_list: one item each time the option is given */
} cli_kind;

typedef struct cli_list {
    const char **items; /* strings borrowed from argv; the array goes with cli_args_free */
    int count;
} cli_list;

typedef struct cli_option {
    const char *name;  /* "learning-rate", without the dashes; on the command line _ counts as - */
    const char *alias; /* a second long name, or NULL */
    char letter;       /* 'n' for -n, or 0 */
    bool suffix;       /* integers: accept 64k, 1M, 2G (thousands) and 64Ki, 1Mi, 2Gi (1024s) */
    bool bytes;        /* with suffix: a B may follow, as in 5GB and 512MiB */
    bool ranged;       /* min and max hold, both inclusive: see CLI_RANGE, CLI_MIN */
    cli_kind kind;     /* by CLI_AT */
    size_t offset;     /* by CLI_AT: of the field in the verb's struct */
    double min, max;
    const char *choices; /* "cpu|cuda", or NULL */
    const char *preset;  /* the default, as typed: applied, and shown in the help. NULL: zero, not shown */
    const char *value;   /* its name in the help (FILE, DIR, PATH, MODEL complete to paths). NULL: by kind */
    const char *help;    /* one line, lower case, no full stop */
    const char *group;   /* heading of this row and of those after it, up to the next heading */
} cli_option;

#define CLI_KIND_OF(x) \
    _Generic((x), bool: CLI_FLAG, int: CLI_INT, int64_t: CLI_INT64, uint64_t: CLI_INT64, unsigned: CLI_ENUM, double: CLI_DOUBLE, \
        const char *: CLI_STRING, cli_list: CLI_LIST)
#define CLI_AT(type, field)  .kind = CLI_KIND_OF(((type *)0)->field), .offset = offsetof(type, field)
#define CLI_RANGE(low, high) .ranged = true, .min = (low), .max = (high)
#define CLI_MIN(low)         .ranged = true, .min = (low), .max = HUGE_VAL

#define CLI_MAX_OPTIONS 128

typedef struct cli_verb cli_verb; /* verbs.h */

/* The command line besides the options. */
typedef struct cli_args {
    char **items; /* positional arguments, in order, borrowed from argv; followed by NULL */
    int count;
    bool help; /* --help was given; parsing stopped there */
    const cli_verb *verb;
    void *options;
    bool given[CLI_MAX_OPTIONS]; /* by row */
} cli_args;

/* Parse argv (argv[0] is the verb's name) into *options: zeroed, then the table's defaults, then the command
 * line. Positionals are moved to the front of argv. Returns BY_OK, or BY_ERR_ARGUMENT with a message for the
 * user; prints nothing. cli_args_free in every case. */
by_status cli_options_parse(const cli_verb *verb, int argc, char **argv, void *options, size_t size,
                            cli_args *args);

/* The same for a verb's run function: reports errors on stderr, or shows the help on stdout. False: return
 * *code at once, nothing needs to be freed. True: continue, and call cli_args_free at the end. `options`
 * points to the struct. */
bool cli_parse_sized(const cli_verb *verb, int argc, char **argv, void *options, size_t size, cli_args *args,
                     int *code);
#define cli_parse(verb, argc, argv, options, args, code) \
    cli_parse_sized(verb, argc, argv, options, sizeof *(options), args, code)

void cli_args_free(cli_args *args); /* zero state is legal */

/* Whether the user gave the option that fills this field, as opposed to its default: cli_given(&args,
 * &o.steps). */
bool cli_given(const cli_args *args, const void *field);

/* The first option that the user gave and whose name is in neither list, or NULL. Lists end with NULL, and
 * `more` may be NULL. */
const cli_option *cli_given_beyond(const cli_args *args, const char *const *names, const char *const *more);
/* The first one that is in the list. */
const cli_option *cli_given_among(const cli_args *args, const char *const *names);

/* An option that applies only to some kinds of runs, models or tasks. */
typedef struct cli_scope {
    const char *option;
    uint32_t kinds;    /* bits */
    const char *names; /* of these kinds, for messages */
} cli_scope;
/* The first row whose option the user gave although it does not apply to `kind` (one bit), or NULL. */
const cli_scope *cli_given_outside(const cli_args *args, const cli_scope *rows, int count, uint32_t kind);
/* The arguments of this command, without the rows in `earlier`, which come from the resumed run. */
cli_args cli_args_own(const cli_args *args, const bool *earlier);

/* Fields of `part`, a struct inside the options, whose options were not given get their values in `usual`, a
 * struct of the same type. A library spec that options write into thus keeps the library's defaults. */
void cli_options_default(const cli_args *args, void *part, const void *usual, size_t size);

/* Options from "--name value --switch ..." for all that the user has not given: they count as given from then
 * on. The text must live as long as the options. */
by_status cli_options_add(cli_args *args, char *text);

/* A defect in a table (a name or letter twice, a default that does not parse, ...) as BY_ERR_UNSUPPORTED. */
by_status cli_verb_check(const cli_verb *verb);

/* ---- pieces that help.c, completion.c and main.c share --------------------------------------- */

/* Equal, with '_' and '-' the same; `a` has n characters. */
bool cli_name_equal(const char *a, size_t n, const char *b);

/* Suggestions: offer candidates one at a time; `best` is then the closest one, or NULL if none is close
 * enough. */
typedef struct cli_suggestion {
    const char *typed, *best;
    int distance;
} cli_suggestion;
void cli_suggest(cli_suggestion *s, const char *candidate);

/* Walk over the words of "MODEL [TEXT...]" or over the alternatives of "a|b|c": separator ' ' or '|'. */
typedef struct cli_word {
    const char *text; /* not terminated; brackets and dots removed */
    int length;
    bool optional, repeated;
} cli_word;
bool cli_word_next(const char **cursor, char separator, cli_word *word);

const char *cli_value_name(const cli_option *o);      /* "N"; NULL for a flag */
bool cli_value_is_path(const cli_option *o);          /* complete it with file names */
const char *cli_group(const cli_option *rows, int i); /* heading of row i, "Options" when none was given */

/* The names of options, "a|b", for an option of another program (aliases.c), or NULL; `typed` has n
 * characters. And a listing of all. */
const char *cli_synonym(const char *typed, size_t n);
void cli_synonyms_write(FILE *out);

/* ---- derived from the tables (help.c, completion.c) ------------------------------------------ */

void cli_help_write(FILE *out, const cli_verb *verb, int width);
void cli_overview_write(FILE *out, const cli_verb *const *verbs, int count, int width);
void cli_man_write(FILE *out, const cli_verb *verb);                             /* banyan-VERB(1) */
void cli_man_overview_write(FILE *out, const cli_verb *const *verbs, int count); /* banyan(1) */
bool cli_completion_write(FILE *out, const char *shell, const cli_verb *const *verbs,
                          int count); /* false: no such shell */

#endif
