/* report.c - output of the program: errors, notes, results, closing stdout, signals. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/report.h"

static const char *verb_name;
static int stdout_error; /* errno of the first write that failed, 0 when all went well */

void cli_name_set(const char *verb)
{
    verb_name = verb;
}

bool cli_is_terminal(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && term && *term && strcmp(term, "dumb") != 0;
}

bool cli_has_colour(int fd)
{
    const char *no = getenv("NO_COLOR");
    return cli_is_terminal(fd) && !(no && *no);
}

int cli_width(int fd)
{
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    long width = columns ? strtol(columns, NULL, 10) : 0;
    return width > 0 && width < 10000 ? (int)width : 80;
}

/* "banyan VERB: ", in bold on a terminal, after whatever progress line was there. */
static void put_prefix(void)
{
    bool colour = cli_has_colour(STDERR_FILENO);
    cli_progress_hide();
    fprintf(stderr, "%sbanyan%s%s:%s ", colour ? "\033[1m" : "", verb_name ? " " : "",
            verb_name ? verb_name : "", colour ? "\033[0m" : "");
}

static void put_error(const char *text)
{
    bool colour = cli_has_colour(STDERR_FILENO);
    put_prefix();
    fprintf(stderr, "%s%s%s\n", colour ? "\033[31m" : "", text, colour ? "\033[0m" : "");
}

int cli_fail(const char *hint, ...)
{
    const char *message = by_error_message();
    put_error(*message ? message : "failed, and no reason was given");
    if (hint) {
        va_list args;
        va_start(args, hint);
        fputs("  hint: ", stderr);
        vfprintf(stderr, hint, args);
        fputc('\n', stderr);
        va_end(args);
    }
    return base_error_status() == BY_ERR_CANCELLED && cli_interrupted() ? CLI_INTERRUPTED : CLI_FAILED;
}

int cli_usage_fail(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_error(text);
    return CLI_USAGE;
}

void cli_note(const char *fmt, ...)
{
    va_list args;
    cli_progress_hide();
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

int cli_print_json(cJSON *object)
{
    char *line = object ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (!line) {
        base_fail(BY_ERR_MEMORY, "out of memory for the JSON result");
        return cli_fail(NULL);
    }
    cli_progress_hide();
    puts(line);
    cJSON_free(line);
    return cli_flush() ? CLI_OK : CLI_FAILED;
}

bool cli_flush(void)
{
    errno = 0;
    if (fflush(stdout) != 0 && !stdout_error)
        stdout_error = errno ? errno : EIO;
    if (ferror(stdout) && !stdout_error) /* failed inside a printf, whose errno is gone */
        stdout_error = EIO;
    return stdout_error == 0;
}

/* A pipe without a reader. */
static bool reader_gone(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return stdout_error == EPIPE || (poll(&p, 1, 0) == 1 && (p.revents & (POLLERR | POLLHUP)));
}

int cli_finish(int code)
{
    bool quiet = !cli_flush() && reader_gone();
    if (fclose(stdout) != 0 && !stdout_error &&
        errno != EBADF) /* EBADF: started without a stdout, and wrote nothing */
        stdout_error = errno;
    if (!stdout_error)
        return code;
    if (!quiet) {
        base_fail(BY_ERR_IO, "cannot write to standard output: %s", strerror(stdout_error));
        cli_fail(NULL);
    }
    return code == CLI_OK ? CLI_FAILED : code;
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    if (interrupted)
        _exit(CLI_INTERRUPTED);
    interrupted = 1;
}

/* SA_RESTART, so that no read or write of a file fails half way because of the first signal. */
void cli_interrupt_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    by_cancel_set(cli_poll, NULL);
}

static void complain(const char *s)
{
    if (write(STDERR_FILENO, s, strlen(s)) < 0)
        return; /* the pipe has no reader */
}

/* A missing page of a mapped file: the file was truncated, or the disk cannot be read. */
static void on_bus_error(int signal, siginfo_t *info, void *context)
{
    (void)context;
    const char *path = by_mapped_file(info->si_addr);
    if (!path) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        sigaction(signal, &action, NULL);
        return; /* the instruction is repeated, and ends the process */
    }
    complain("banyan: ");
    complain(path);
    complain(": the file became shorter, or unreadable, while it was in use; replace files by renaming a new "
             "one over them\n");
    _exit(CLI_FAILED);
}

void cli_faults_install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

bool cli_interrupted(void)
{
    return interrupted != 0;
}

bool cli_poll(void *user)
{
    (void)user;
    return cli_interrupted();
}
