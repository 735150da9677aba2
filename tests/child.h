/* child.h - run part of a test in a child process, for what must not happen to the test process itself.
 * Include it after cmocka.h. */
#ifndef BY_TESTS_CHILD_H
#define BY_TESTS_CHILD_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

/* In the test process: text holds part. */
#define assert_contains(text, part)                                 \
    do {                                                            \
        if (!strstr(text, part))                                    \
            fail_msg("\"%s\" does not contain \"%s\"", text, part); \
    } while (0)

/* In a child, where the assertions of cmocka would run the other tests a second time. */
#define CHECK(condition)                                                                                   \
    do {                                                                                                   \
        if (!(condition)) {                                                                                \
            fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #condition, by_error_message()); \
            return 1;                                                                                      \
        }                                                                                                  \
    } while (0)

enum { CHILD_SKIPPED = 77 };

/* Run body in a child process; false when it said that this machine cannot run it. */
static inline bool in_child(int (*body)(const char *dir), const char *dir)
{
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body(dir));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == CHILD_SKIPPED)
        return false;
    assert_int_equal(WEXITSTATUS(status), 0);
    return true;
}

#endif
