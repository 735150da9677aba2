/* main.c - the program: finds the verb, runs it, and reports errors of writing to stdout. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/verbs.h"

static const cli_verb help_verb, completion_verb;

#define ADDRESS(name) &name,
/* clang-format off */
static const cli_verb *const verbs[] = {CLI_VERBS(ADDRESS) &help_verb, &completion_verb};
/* clang-format on */
#undef ADDRESS

static const cli_verb *find_verb(const char *name)
{
    for (int i = 0; i < BY_COUNT(verbs); i++)
        if (cli_name_equal(name, strlen(name), verbs[i]->name))
            return verbs[i];
    return NULL;
}

static int unknown_verb(const char *name)
{
    cli_suggestion s = {.typed = name};
    for (int i = 0; i < BY_COUNT(verbs); i++)
        cli_suggest(&s, verbs[i]->name);
    if (s.best)
        return cli_usage_fail("unknown command '%s'; did you mean %s?", name, s.best);
    return cli_usage_fail("unknown command '%s' (see banyan help)", name);
}

/* ---- help and completion, verbs like the others ---------------------------------------------- */

typedef struct help_options {
    bool man, list, aliases;
} help_options;

static const cli_option help_rows[] = {
    {CLI_AT(help_options, man), .name = "man", .help = "write a man page (roff) instead"},
    {CLI_AT(help_options, list), .name = "list", .help = "print the names of the commands, one per line"},
    {CLI_AT(help_options, aliases), .name = "aliases",
     .help = "list the option names of transformers, nanoGPT and llama.cpp that are accepted too"},
};

static int help_run(int argc, char **argv)
{
    help_options o;
    cli_args args;
    int code;
    if (!cli_parse(&help_verb, argc, argv, &o, &args, &code))
        return code;
    const char *name = args.count ? args.items[0] : NULL;
    const cli_verb *verb = name ? find_verb(name) : NULL;
    cli_args_free(&args);
    if (name && !verb)
        return unknown_verb(name);
    for (int i = 0; o.list && i < BY_COUNT(verbs); i++)
        puts(verbs[i]->name);
    if (o.aliases)
        cli_synonyms_write(stdout);
    if (o.list || o.aliases)
        return CLI_OK;
    if (verb && o.man)
        cli_man_write(stdout, verb);
    else if (verb)
        cli_help_write(stdout, verb, cli_width(STDOUT_FILENO));
    else if (o.man)
        cli_man_overview_write(stdout, verbs, BY_COUNT(verbs));
    else
        cli_overview_write(stdout, verbs, BY_COUNT(verbs), cli_width(STDOUT_FILENO));
    return CLI_OK;
}

static const cli_verb help_verb = {
    .name = "help",
    .group = "Help",
    .summary = "describe a command and its options",
    .args = "[COMMAND]",
    .examples = "banyan help train\nbanyan help --man train > banyan-train.1\nbanyan help --aliases\n",
    .options = help_rows,
    .option_count = BY_COUNT(help_rows),
    .run = help_run,
};

static int completion_run(int argc, char **argv)
{
    struct {
        char none;
    } o;
    cli_args args;
    int code;
    if (!cli_parse(&completion_verb, argc, argv, &o, &args, &code))
        return code;
    cli_completion_write(stdout, args.items[0], verbs, BY_COUNT(verbs));
    cli_args_free(&args);
    return CLI_OK;
}

static const cli_verb completion_verb = {
    .name = "completion",
    .summary = "write a shell completion script",
    .args = "bash|zsh|fish",
    .examples = "# bash: run this, or put it in ~/.bashrc\n"
                "eval \"$(banyan completion bash)\"\n"
                "# zsh, fish\n"
                "source <(banyan completion zsh)\n"
                "banyan completion fish | source\n",
    .run = completion_run,
};

/* ---- the program ----------------------------------------------------------------------------- */

/* With a standard descriptor closed, the next file opened would take its number and receive what is printed.
 * A read-only /dev/null keeps the place: writing to it fails, as it should. */
static void keep_descriptors(void)
{
    while (true) {
        int fd = open("/dev/null", O_RDONLY);
        if (fd > STDERR_FILENO)
            close(fd);
        if (fd < 0 || fd > STDERR_FILENO)
            return;
    }
}

static int run(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : NULL;
    if (!first) {
        cli_overview_write(stderr, verbs, BY_COUNT(verbs), cli_width(STDERR_FILENO));
        return CLI_USAGE;
    }
    if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
        cli_overview_write(stdout, verbs, BY_COUNT(verbs), cli_width(STDOUT_FILENO));
        return CLI_OK;
    }
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        printf("banyan %s\n", by_version());
        return CLI_OK;
    }
    if (first[0] == '-')
        return cli_usage_fail("unknown option %s; options follow the command: banyan COMMAND [options]",
                              first);
    const cli_verb *verb = find_verb(first);
    if (!verb)
        return unknown_verb(first);
    cli_name_set(verb->name);
    return verb->run(argc - 1, argv + 1);
}

/* Threads of GNU OpenMP wait for each other by spinning for milliseconds. If another program needs a core,
 * the awaited thread is delayed, and a step takes a hundred times as long. The limit is read before main,
 * hence the re-exec; a setting of the user is kept. */
static void wait_politely(char **argv)
{
#ifdef _OPENMP
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    if (setenv("GOMP_SPINCOUNT", "2000", 1) == 0)
        execv("/proc/self/exe", argv); /* returns only when it cannot: then as before */
#else
    (void)argv;
#endif
}

int main(int argc, char **argv)
{
    wait_politely(argv);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of write() */
    keep_descriptors();
    cli_faults_install();
    return cli_finish(run(argc, argv));
}
