/* parallel.c - runs the same work on several threads and returns the first error. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/base.h"

enum { MOST = 256 };

typedef struct part {
    by_status (*work)(void *user, int index);
    void *user;
    int index;
    bool started;
    pthread_t thread;
    by_status status;
    char *message; /* a thread's message is lost when it ends */
} part;

int base_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MOST ? MOST : (int)n;
}

/* OpenMP threads do not survive fork(), and a child that waits for them waits forever. */
int base_team(int threads)
{
    static _Atomic(pid_t) owner;
    if (threads <= 1)
        return threads;
    pid_t first = 0, self = getpid();
    return atomic_compare_exchange_strong(&owner, &first, self) || first == self ? threads : 1;
}

static void *run_part(void *argument)
{
    part *p = argument;
    p->status = p->work(p->user, p->index);
    if (p->status != BY_OK && p->started)
        p->message = base_strdup(by_error_message());
    return NULL;
}

by_status base_parallel(int threads, by_status (*work)(void *user, int index), void *user)
{
    part parts[MOST];
    threads = BY_MAX(1, BY_MIN(threads, MOST));
    for (int i = 0; i < threads; i++)
        parts[i] = (part){.work = work, .user = user, .index = i, .started = i > 0};
    for (int i = 1; i < threads; i++)
        parts[i].started = pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0;
    run_part(&parts[0]);
    by_status status = parts[0].status;
    for (int i = 1; i < threads; i++) {
        if (parts[i].started)
            pthread_join(parts[i].thread, NULL);
        else
            run_part(&parts[i]); /* no more threads available: run in sequence */
        if (status == BY_OK && parts[i].status != BY_OK)
            status = parts[i].message ? base_fail(parts[i].status, "%s", parts[i].message) : parts[i].status;
        base_free(parts[i].message);
    }
    return status;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

enum { SHORT = 1 << 16 }; /* shorter ranges are not worth a thread */

typedef struct ranges {
    size_t n, each;
    void (*work)(void *user, size_t begin, size_t end);
    void *user;
} ranges;

static by_status run_range(void *user, int index)
{
    const ranges *r = user;
    const size_t begin = BY_MIN(r->n, (size_t)index * r->each), end = BY_MIN(r->n, begin + r->each);
    if (begin < end)
        r->work(r->user, begin, end);
    return BY_OK;
}

void base_parallel_ranges(int threads, size_t n, void (*work)(void *user, size_t begin, size_t end),
                          void *user)
{
    const size_t most = BY_MAX((size_t)1, BY_MIN(n / SHORT, (size_t)MOST));
    threads = (int)BY_MIN((size_t)BY_MAX(threads, 1), most);
    ranges r = {n, (n + (size_t)threads - 1) / (size_t)threads, work, user};
    base_parallel(threads, run_range, &r);
}
