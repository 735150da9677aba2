/* error.c - the last error of each thread: a status and one line of text in fixed memory, so that reporting a
 * failed allocation allocates nothing. */
#include <stdio.h>

#include "base/base.h"

enum { MESSAGE_SIZE = 1024 };

static _Thread_local struct {
    by_status status;
    char text[MESSAGE_SIZE];
} last;

/* Replaces control bytes, which a hostile file or file name can contain, so that the message stays on one
 * line and cannot control a terminal. */
static void make_one_line(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = ' ';
}

/* Stores text as the message. Text that does not fit is cut between two UTF-8 characters and ends in
 * "...". */
static by_status store(by_status status, const char *text)
{
    size_t n = strlen(text);
    last.status = status;
    if (n < MESSAGE_SIZE) {
        memcpy(last.text, text, n + 1);
    } else {
        n = MESSAGE_SIZE - 4;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n--;
        memcpy(last.text, text, n);
        memcpy(last.text + n, "...", 4);
    }
    make_one_line(last.text);
    return status;
}

/* Formats into size bytes. A format that cannot be expanded (an invalid wide character) is copied
 * verbatim. */
static void expand(char *text, size_t size, const char *fmt, va_list args)
{
    if (base_vformat(text, size, fmt, args) < 0)
        base_format(text, size, "%s", fmt);
}

/* The text is built separately before it is stored, because the arguments may point into the current
 * message. */
by_status base_fail(by_status status, const char *fmt, ...)
{
    char text[MESSAGE_SIZE + 1];
    va_list args;
    va_start(args, fmt);
    expand(text, sizeof(text), fmt, args);
    va_end(args);
    return store(status, text);
}

/* "context: message". The separator is added here. */
by_status base_fail_context(const char *fmt, ...)
{
    char text[2 * MESSAGE_SIZE + 2];
    va_list args;
    va_start(args, fmt);
    expand(text, MESSAGE_SIZE, fmt, args);
    va_end(args);
    if (last.status == BY_OK)
        return store(BY_ERR_ARGUMENT, text);
    strcat(text, ": ");
    strcat(text, last.text);
    return store(last.status, text);
}

by_status base_fail_missing(const char *what)
{
    return last.status != BY_OK ? last.status : base_fail(BY_ERR_ARGUMENT, "%s is NULL", what);
}

const char *by_error_message(void)
{
    return last.text;
}

by_status base_error_status(void)
{
    return last.status;
}

void base_error_clear(void)
{
    last.status = BY_OK;
    last.text[0] = '\0';
}

const char *by_version(void)
{
    return BY_VERSION;
}

/* ---- cancelling ------------------------------------------------------------------------------ */

static _Thread_local struct {
    bool (*cancelled)(void *user);
    void *user;
} hook;

void by_cancel_set(bool (*cancelled)(void *user), void *user)
{
    hook.cancelled = cancelled;
    hook.user = user;
}

by_status base_cancel_check(void)
{
    return hook.cancelled && hook.cancelled(hook.user) ? base_fail(BY_ERR_CANCELLED, "interrupted") : BY_OK;
}
