/* number.c - numbers as text, with a decimal point in every locale. The only file that calls the C library's
 * floating-point conversions; tools/check-layers.sh enforces that. */
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

/* Returns the "C" locale, which newlocale provides without allocating. Threads that create it at the same
 * time get the same one. Returns 0 if there is none: then the host's locale stays. */
static locale_t plain(void)
{
    static locale_t c;
    locale_t now = __atomic_load_n(&c, __ATOMIC_ACQUIRE);
    if (now == (locale_t)0) {
        now = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        __atomic_store_n(&c, now, __ATOMIC_RELEASE);
    }
    return now;
}

/* uselocale affects only the calling thread and costs a few nanoseconds. */
base_locale base_locale_enter(void)
{
    locale_t c = plain();
    return (base_locale){c != (locale_t)0 ? (void *)uselocale(c) : NULL};
}

void base_locale_leave(base_locale before)
{
    if (before.handle)
        uselocale((locale_t)before.handle);
}

int base_vformat(char *out, size_t size, const char *fmt, va_list args)
{
    base_locale before = base_locale_enter();
    int n = vsnprintf(out, size, fmt, args);
    base_locale_leave(before);
    return n;
}

int base_format(char *out, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = base_vformat(out, size, fmt, args);
    va_end(args);
    return n;
}

double base_strtod(const char *text, char **end)
{
    base_locale before = base_locale_enter();
    double value = strtod(text, end);
    base_locale_leave(before);
    return value;
}

float base_strtof(const char *text, char **end)
{
    base_locale before = base_locale_enter();
    float value = strtof(text, end);
    base_locale_leave(before);
    return value;
}
