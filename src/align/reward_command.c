/* reward_command.c - rewards from a command: a pool of processes that each read a line and print a number
 * (banyan/align_policy.h). A process that times out, exits or prints anything else is killed and replaced,
 * and its answer goes to another process, up to a number of attempts. Every process has its own process
 * group, so that children of the shell end with it.
 *
 * The leader of a group is a guard: a shell that waits for end of file on a pipe whose write end only this
 * program holds, and then kills the group. So everything in the group ends when this program ends, for
 * whatever reason. While a process starts, it also holds the write end until it has joined the group and runs
 * the shell. The guard therefore never kills too early to catch it. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "align/rewards.h"
#include "base/json.h"

extern char **environ;

enum { LONGEST_REPLY = 4096, REASON = 160, PATIENCE_MS = 100 };

typedef struct worker {
    pid_t pid;   /* 0: no process */
    pid_t guard; /* process id of the group leader */
    int life;    /* the guard reads the other end */
    int in, out; /* our ends of its standard input and output */
    int item;    /* the answer that it scores; -1: none */
    int served;  /* answers that it has scored */
    size_t sent; /* bytes of the line written so far */
    double deadline;
    char reply[LONGEST_REPLY];
    size_t got;
} worker;

typedef struct pool {
    char *command;
    const by_judging *judging;
    align_failures *failures;
    bool (*cancelled)(void *user);
    void *user;
    worker *workers;
    struct pollfd *polls; /* two for each worker */
    int count;
    /* the current call */
    base_buf lines;
    size_t *first; /* (answers + 1): offsets of their lines */
    int *tries;    /* (answers) failed attempts */
    int *queue;    /* (answers): a stack of the answers to score */
    int waiting, done, answers;
    float *rewards;
} pool;

static double seconds_of(const pool *p)
{
    return p->judging->seconds > 0 ? p->judging->seconds : 10;
}

static int retries_of(const pool *p)
{
    return p->judging->retries == 0 ? 2 : BY_MAX(p->judging->retries, 0);
}

/* ---- processes ---------------------------------------------------------------------------------- */

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* A pipe whose ends are above the standard descriptors and close on exec. */
static by_status open_pipe(int ends[2])
{
    int low[2];
#ifdef __linux__
    const int made = pipe2(low, O_CLOEXEC); /* another thread may start a program before the flags are set */
#else
    const int made = pipe(low);
#endif
    if (made != 0)
        return base_fail(BY_ERR_IO, "a pipe to a reward command: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
        close(low[i]);
    }
    if (ends[0] >= 0 && ends[1] >= 0)
        return BY_OK;
    const int error = errno;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    return base_fail(BY_ERR_IO, "a pipe to a reward command: %s", strerror(error));
}

static void close_both(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

/* Starts a shell with these ends as its input and output, in a process group (0: a new one), with default
 * signal handlers. */
static int spawn_shell(char *command, int in, int out, pid_t group, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    char shell[] = "sh", option[] = "-c";
    char *const arguments[] = {shell, option, command, NULL};
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    int e = posix_spawn_file_actions_adddup2(&actions, in, 0);
    e = e ? e : posix_spawn_file_actions_adddup2(&actions, out, 1);
    e = e ? e : posix_spawnattr_setpgroup(&attributes, group);
    e = e ? e : posix_spawnattr_setsigmask(&attributes, &none);
    e = e ? e : posix_spawnattr_setsigdefault(&attributes, &usual);
    e = e ? e
          : posix_spawnattr_setflags(&attributes,
                                     POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    e = e ? e : posix_spawn(pid, "/bin/sh", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return e;
}

static void wait_until_ended(pid_t pid, int *status)
{
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        continue;
}

static void stop_group(worker *w)
{
    kill(-w->guard, SIGKILL);
    wait_until_ended(w->guard, NULL);
    close(w->life);
}

static by_status start_guard(const pool *p, worker *w)
{
    char watch[] = "read -r end; kill -s KILL 0";
    int life[2];
    BY_TRY(open_pipe(life));
    const int e = spawn_shell(watch, life[0], life[0], 0, &w->guard);
    close(life[0]);
    w->life = life[1];
    if (e == 0)
        return BY_OK;
    close(life[1]);
    return base_fail(BY_ERR_IO, "the reward command \"%s\" does not start: %s", p->command, strerror(e));
}

static by_status start_command(const pool *p, worker *w, const int to[2], const int from[2])
{
    BY_TRY(start_guard(p, w));
    const int e = spawn_shell(p->command, to[0], from[1], w->guard, &w->pid);
    if (e == 0)
        return BY_OK;
    w->pid = 0;
    stop_group(w);
    return base_fail(BY_ERR_IO, "the reward command \"%s\" does not start: %s", p->command, strerror(e));
}

static by_status start(pool *p, worker *w)
{
    int to[2], from[2];
    BY_TRY(open_pipe(to));
    by_status s = open_pipe(from);
    if (s != BY_OK) {
        close_both(to);
        return s;
    }
    *w = (worker){.in = to[1], .out = from[0], .item = -1};
    s = start_command(p, w, to, from);
    close(to[0]);
    close(from[1]);
    if (s == BY_OK) {
        fcntl(w->in, F_SETFL, O_NONBLOCK);
        fcntl(w->out, F_SETFL, O_NONBLOCK);
        return BY_OK;
    }
    close(w->in);
    close(w->out);
    return s;
}

/* Ends a process and its group. The process gets `patience` ms to exit by itself. Returns its status; -1 if
 * it was killed here. */
static int stop(worker *w, int patience)
{
    int status = 0;
    pid_t ended = 0;
    if (!w->pid)
        return 0;
    close(w->in);
    for (int ms = 0; ms <= patience && (ended = waitpid(w->pid, &status, WNOHANG)) == 0 && ms < patience;
         ms += 2)
        pause_ms(2);
    stop_group(w);
    if (ended == 0)
        wait_until_ended(w->pid, &status);
    close(w->out);
    w->pid = 0;
    return ended == 0 ? -1 : status;
}

/* write() without SIGPIPE. */
static ssize_t write_quietly(int fd, const void *bytes, size_t n)
{
    sigset_t broken, before, waiting;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigpending(&waiting);
    pthread_sigmask(SIG_BLOCK, &broken, &before);
    const ssize_t written = write(fd, bytes, n);
    const int error = errno;
    if (written < 0 && error == EPIPE && !sigismember(&waiting, SIGPIPE))
        while (sigtimedwait(&broken, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return written;
}

/* ---- failures ----------------------------------------------------------------------------------- */

/* After a failed attempt: puts the answer back in the queue, gives it the fallback, or fails. */
static by_status give_up(pool *p, int item, const char *reason)
{
    if (p->tries[item]++ < retries_of(p)) {
        p->queue[p->waiting++] = item;
        return BY_OK;
    }
    if (!p->judging->fallback)
        return base_fail(BY_ERR_IO, "the command \"%s\" gave no number for answer %d in %d attempts: %s",
                         p->command, item + 1, p->tries[item], reason);
    p->rewards[item] = (float)*p->judging->fallback;
    p->failures->fallbacks++;
    p->done++;
    return BY_OK;
}

static by_status too_late(pool *p, worker *w)
{
    char reason[REASON];
    base_format(reason, sizeof reason, "no line within %.3g s (does it flush its output after each line?)",
                seconds_of(p));
    p->failures->timeouts++;
    stop(w, 0);
    return give_up(p, w->item, reason);
}

static by_status nonsense(pool *p, worker *w, const char *what)
{
    char reason[REASON];
    base_format(reason, sizeof reason, "it printed %s \"%.60s\"", what, w->reply);
    for (char *c = reason; *c; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    p->failures->nonsense++;
    stop(w, 0);
    return give_up(p, w->item, reason);
}

/* The process closed its output. If it exited with success after some answers, it is only replaced. */
static by_status ended(pool *p, worker *w)
{
    char reason[REASON];
    const int status = stop(w, PATIENCE_MS);
    if (status != -1 && w->served && WIFEXITED(status) && WEXITSTATUS(status) == 0 && !w->got) {
        p->queue[p->waiting++] = w->item;
        return BY_OK;
    }
    if (status == -1)
        base_format(reason, sizeof reason, "it closed its output");
    else if (WIFSIGNALED(status))
        base_format(reason, sizeof reason, "it was ended by signal %d", WTERMSIG(status));
    else
        base_format(reason, sizeof reason, "it ended with status %d", WEXITSTATUS(status));
    p->failures->crashes++;
    return give_up(p, w->item, reason);
}

/* ---- lines -------------------------------------------------------------------------------------- */

static void put_json(base_buf *out, const by_judged *a)
{
    base_buf_puts(out, "{\"prompt\": ");
    base_json_quote(out, a->prompt);
    base_buf_puts(out, ", \"answer\": ");
    base_json_quote(out, a->answer);
    if (a->expected) {
        base_buf_puts(out, ", \"expected\": ");
        base_json_quote(out, a->expected);
    }
    base_buf_puts(out, "}\n");
}

static void put_text(base_buf *out, const by_judged *a)
{
    const size_t begin = out->size;
    base_buf_puts(out, a->answer);
    for (size_t i = begin; !out->failed && i < out->size; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
    base_buf_puts(out, "\n");
}

static by_status send_line(pool *p, worker *w)
{
    const size_t size = p->first[w->item + 1] - p->first[w->item];
    while (w->sent < size) {
        const ssize_t n = write_quietly(w->in, p->lines.data + p->first[w->item] + w->sent, size - w->sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) /* the output shows a broken pipe as well */
            return BY_OK;
        w->sent += (size_t)n;
    }
    return BY_OK;
}

/* A line must be a single number. */
static by_status take_line(pool *p, worker *w, char *end)
{
    char *rest;
    const bool more = w->got > (size_t)(end + 1 - w->reply);
    *end = '\0';
    const double value = base_strtod(w->reply, &rest);
    const bool number = rest > w->reply;
    while (*rest == ' ' || *rest == '\t' || *rest == '\r')
        rest++;
    if (!number || *rest || !isfinite(value) || !isfinite((float)value))
        return nonsense(p, w, "no number but");
    if (more)
        return nonsense(p, w, "more than a line after");
    p->rewards[w->item] = (float)value;
    p->done++;
    w->served++;
    w->item = -1;
    return BY_OK;
}

/* Reads the available output. Afterwards the worker may have no item or no process. */
static by_status receive(pool *p, worker *w)
{
    while (true) {
        const ssize_t n = read(w->out, w->reply + w->got, sizeof w->reply - 1 - w->got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return BY_OK; /* nothing more to read */
        if (n == 0)
            return ended(p, w);
        w->got += (size_t)n;
        w->reply[w->got] = '\0';
        char *end = memchr(w->reply, '\n', w->got);
        if (end)
            return take_line(p, w, end);
        if (w->got == sizeof w->reply - 1)
            return nonsense(p, w, "a line without an end:");
    }
}

/* ---- the pool ----------------------------------------------------------------------------------- */

/* Replaces an idle process that has exited or printed something. */
static void check_idle(pool *p, worker *w)
{
    char byte;
    if (!w->pid)
        return;
    const ssize_t n = read(w->out, &byte, 1);
    if (n > 0)
        p->failures->nonsense++;
    if (n >= 0)
        stop(w, n == 0 ? PATIENCE_MS : 0);
}

static by_status hand_out(pool *p)
{
    for (int i = 0; i < p->count && p->waiting; i++) {
        worker *w = &p->workers[i];
        if (w->pid && w->item >= 0)
            continue;
        check_idle(p, w);
        if (!w->pid)
            BY_TRY(start(p, w));
        w->item = p->queue[--p->waiting];
        w->sent = w->got = 0;
        w->deadline = base_seconds() + seconds_of(p);
        BY_TRY(send_line(p, w));
    }
    return BY_OK;
}

static bool is_busy(const worker *w)
{
    return w->pid && w->item >= 0;
}

/* Waits until a process can be read or written, or the next timeout. */
static void wait_for(pool *p)
{
    double wait = 0.2; /* how often `cancelled` is polled */
    for (int i = 0; i < p->count; i++) {
        const worker *w = &p->workers[i];
        const bool busy = is_busy(w);
        const bool sends = busy && w->sent < p->first[w->item + 1] - p->first[w->item];
        p->polls[2 * i] = (struct pollfd){.fd = busy ? w->out : -1, .events = POLLIN};
        p->polls[2 * i + 1] = (struct pollfd){.fd = sends ? w->in : -1, .events = POLLOUT};
        if (busy)
            wait = BY_MIN(wait, w->deadline - base_seconds());
    }
    poll(p->polls, (nfds_t)(2 * p->count), (int)ceil(BY_MAX(wait, 0) * 1e3));
}

static by_status serve(pool *p, int i)
{
    worker *w = &p->workers[i];
    const bool writable = p->polls[2 * i + 1].fd >= 0 && p->polls[2 * i + 1].revents,
               readable = p->polls[2 * i].fd >= 0 && p->polls[2 * i].revents;
    if (is_busy(w) && writable)
        BY_TRY(send_line(p, w));
    if (is_busy(w) && readable)
        BY_TRY(receive(p, w));
    return is_busy(w) && base_seconds() >= w->deadline ? too_late(p, w) : BY_OK;
}

static by_status judge_all(pool *p)
{
    while (p->done < p->answers) {
        if (p->cancelled && p->cancelled(p->user))
            return base_fail(BY_ERR_CANCELLED, "stopped while the command \"%s\" scored answers", p->command);
        BY_TRY(hand_out(p));
        wait_for(p);
        for (int i = 0; i < p->count; i++)
            BY_TRY(serve(p, i));
    }
    return BY_OK;
}

static void forget(pool *p)
{
    base_buf_free(&p->lines);
    base_free(p->first);
    base_free(p->tries);
    base_free(p->queue);
    p->first = NULL;
    p->tries = p->queue = NULL;
}

static by_status prepare(pool *p, const by_judged *answers, int count, float *rewards)
{
    p->first = base_alloc_zero((size_t)count + 1, sizeof *p->first);
    p->tries = base_alloc_zero((size_t)count + 1, sizeof *p->tries);
    p->queue = base_alloc_zero((size_t)count + 1, sizeof *p->queue);
    if (!p->first || !p->tries || !p->queue)
        return BY_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        (p->judging->text ? put_text : put_json)(&p->lines, &answers[i]);
        p->first[i + 1] = p->lines.size;
        p->queue[i] = count - 1 - i;
    }
    p->waiting = p->answers = count;
    p->done = 0;
    p->rewards = rewards;
    return p->lines.failed ? base_fail(BY_ERR_MEMORY, "out of memory for %d answers", count) : BY_OK;
}

static by_status score(void *self, const by_judged *answers, int count, float *rewards)
{
    pool *p = self;
    by_status s = prepare(p, answers, count, rewards);
    if (s == BY_OK)
        s = judge_all(p);
    for (int i = 0; s != BY_OK && i < p->count; i++)
        stop(&p->workers[i], 0);
    forget(p);
    return s;
}

static void close_pool(void *self)
{
    pool *p = self;
    for (int i = 0; p->workers && i < p->count; i++)
        stop(&p->workers[i], PATIENCE_MS);
    base_free(p->workers);
    base_free(p->polls);
    base_free(p->command);
    base_free(p);
}

by_status align_command_open(const char *command, const align_court *court, align_judge *out)
{
    if (!*command)
        return base_fail(BY_ERR_ARGUMENT, "a reward command is empty: command:COMMAND");
    pool *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return BY_ERR_MEMORY;
    *out = (align_judge){.score = score, .self = p, .close = close_pool};
    p->judging = court->judging;
    p->failures = court->failures;
    p->cancelled = court->cancelled;
    p->user = court->user;
    p->count =
        court->judging->processes > 0 ? BY_MIN(court->judging->processes, 256) : BY_MIN(base_cores(), 4);
    p->command = base_strdup(command);
    p->workers = base_alloc_zero((size_t)p->count, sizeof *p->workers);
    p->polls = base_alloc_zero(2 * (size_t)p->count, sizeof *p->polls);
    return p->command && p->workers && p->polls ? BY_OK : BY_ERR_MEMORY;
}
