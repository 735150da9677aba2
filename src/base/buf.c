/* buf.c - a growing buffer of text or bytes. Failures are sticky, so that a writer checks once, after the
 * last put. */
#include <stdio.h>

#include "base/base.h"

/* Makes room for n more bytes and the NUL. On failure the contents are unchanged and `failed` is set. */
static bool reserve(base_buf *b, size_t n)
{
    size_t need;
    if (b->failed)
        return false;
    if (!base_add_size(b->size, n, &need) || !base_add_size(need, 1, &need)) {
        base_fail(BY_ERR_MEMORY, "out of memory: a buffer of %zu bytes cannot grow by %zu", b->size, n);
        b->failed = true;
        return false;
    }
    if (need <= b->capacity)
        return true;
    size_t capacity = b->capacity <= SIZE_MAX / 2 ? b->capacity * 2 : SIZE_MAX;
    capacity = BY_MAX(BY_MAX(capacity, need), 64);
    char *data = base_resize(b->data, capacity, 1);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

/* bytes must not point into the buffer itself, because the buffer may move. */
void base_buf_put(base_buf *b, const void *bytes, size_t n)
{
    if (!reserve(b, n))
        return;
    if (n > 0)
        memcpy(b->data + b->size, bytes, n);
    b->size += n;
    b->data[b->size] = '\0';
}

void base_buf_puts(base_buf *b, const char *s)
{
    base_buf_put(b, s, strlen(s));
}

void base_buf_printf(base_buf *b, const char *fmt, ...)
{
    va_list args;
    if (b->failed)
        return;
    va_start(args, fmt);
    int n = base_vformat(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        base_fail(BY_ERR_ARGUMENT, "cannot format \"%s\"", fmt);
        b->failed = true;
        return;
    }
    if (!reserve(b, (size_t)n))
        return;
    va_start(args, fmt);
    base_vformat(b->data + b->size, (size_t)n + 1, fmt, args);
    va_end(args);
    b->size += (size_t)n;
}

void base_buf_free(base_buf *b)
{
    base_free(b->data);
    *b = (base_buf){0};
}
