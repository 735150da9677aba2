/* progress.c - one line redrawn in place on a terminal, plain lines elsewhere. A line is composed in memory
 * and written at once, so that it never tears. A failed write is not an error. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/progress.h"
#include "cli/report.h"

enum { LINE_SIZE = 1024, BAR_MIN = 8, BAR_MAX = 30 };

static const double REDRAW_SECONDS = 0.1, PLAIN_SECONDS = 10, PACE_SECONDS = 20;

static cli_progress *active; /* the job that has a line on the terminal */

void cli_format_duration(char *out, size_t size, double seconds)
{
    int64_t s = seconds > 0 && seconds < 1e12 ? (int64_t)(seconds + 0.5) : 0;
    int day = (int)(s / 86400), hour = (int)(s / 3600 % 24), minute = (int)(s / 60 % 60),
        second = (int)(s % 60);
    if (day)
        snprintf(out, size, "%dd %02d:%02d", day, hour, minute);
    else if (hour)
        snprintf(out, size, "%d:%02d:%02d", hour, minute, second);
    else
        snprintf(out, size, "%d:%02d", minute, second);
}

/* Columns of UTF-8 text, counting every character as one. */
static int columns(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void cut_columns(char *s, int limit)
{
    int n = 0;
    for (; *s; s++) {
        n += ((unsigned char)*s & 0xc0) != 0x80;
        if (n > limit) {
            *s = 0;
            return;
        }
    }
}

/* A line break or an escape in the text would leave the redrawn line. */
static void make_plain(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = ' ';
}

static void write_all(cli_progress *p, const char *s, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(p->fd, s, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            p->broken = errno != EAGAIN; /* a full non-blocking terminal loses this line, not the next ones */
            return;
        }
        s += wrote;
        n -= (size_t)wrote;
    }
}

static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < BY_COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "UTF8") ||
                   strstr(value, "utf-8");
    }
    return false;
}

/* A bar of `width` columns, in eighths of a column where the terminal has them. out holds 3 bytes a column.
 */
static void format_bar(char *out, int width, double fraction)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    bool fine = locale_is_utf8();
    int filled = (int)(fraction * width * 8);
    char *at = out;
    for (int i = 0; i < width; i++) {
        int part = BY_MAX(0, BY_MIN(8, filled - 8 * i));
        at = stpcpy(at, fine ? eighths[part] : part == 8 ? "=" : part > 0 ? "-" : " ");
    }
}

/* Moves the marks that the time left is estimated from: mark 1 is up to PACE_SECONDS old, mark 0 the one
 * before it. The first step is not counted, because programs are compiled in it. */
static void note_pace(cli_progress *p, int64_t done, double now)
{
    if (p->paced && (done <= p->mark[1] || now - p->mark_at[1] < PACE_SECONDS))
        return;
    p->mark[0] = p->paced ? p->mark[1] : done;
    p->mark_at[0] = p->paced ? p->mark_at[1] : now;
    p->mark[1] = done;
    p->mark_at[1] = now;
    p->paced = true;
}

/* Seconds for the remaining steps at the recent pace; before there is one, at the mean pace so far. Returns
 * -1 if no step is done or left. */
static double time_left(const cli_progress *p, int64_t done, double now)
{
    const bool recent = p->paced && done > p->mark[0];
    const int64_t steps = done - (recent ? p->mark[0] : p->first), left = p->total - done;
    const double seconds = now - (recent ? p->mark_at[0] : p->started);
    return steps > 0 && left > 0 ? seconds / (double)steps * (double)left : -1;
}

/* "120/2000" or "120", and "0:12, 3:08 left" or "0:12". */
static void format_counts(const cli_progress *p, int64_t done, char count[64], char times[96])
{
    char elapsed[32], left[32];
    const double now = base_seconds(), remaining = time_left(p, done, now);
    cli_format_duration(elapsed, sizeof elapsed, now - p->started);
    snprintf(count, 64, p->total > 0 ? "%lld/%lld" : "%lld", (long long)done, (long long)p->total);
    if (remaining >= 0) {
        cli_format_duration(left, sizeof left, remaining);
        snprintf(times, 96, "%s, %s left", elapsed, left);
    } else {
        snprintf(times, 96, "%s", elapsed);
    }
}

/* Drops whole fields of the text, separated by two spaces, until it has at most `limit` columns, from the
 * last but one backwards. The first and the last stay. */
static void drop_fields(char *text, int limit)
{
    while (columns(text) > limit) {
        char *last = NULL, *before = NULL;
        for (char *at = strstr(text, "  "); at; at = strstr(at + 2, "  ")) {
            before = last;
            last = at;
        }
        if (!before)
            return;
        memmove(before, last, strlen(last) + 1);
    }
}

/* If the line is too long, parts are dropped in this order: the bar, fields of the text, the elapsed time,
 * the time left, the end of the text. */
static void draw(cli_progress *p, int64_t done, char *text)
{
    char count[64], times[96], bar[3 * BAR_MAX + 1], line[LINE_SIZE] = "";
    int width = cli_width(p->fd) - 1; /* the last column would wrap on some terminals */
    format_counts(p, done, count, times);
    const int fixed = columns(p->label) + 2 + columns(count) + 2;
    drop_fields(text, width - fixed - 2 - columns(times));
    const char *left = strstr(times, ", ");
    if (left && fixed + columns(text) + 2 + columns(times) > width)
        memmove(times, left + 2, strlen(left + 2) + 1);
    int need = fixed + columns(text);
    int bar_width = BY_MIN(BAR_MAX, width - need - 2 - columns(times) - 3);
    if (p->total > 0 && bar_width >= BAR_MIN) {
        format_bar(bar, bar_width, BY_MAX(0.0, BY_MIN(1.0, (double)done / (double)p->total)));
        snprintf(line, sizeof line, "%s |%s| %s  %s  %s", p->label, bar, count, text, times);
    } else if (need + 2 + columns(times) <= width) {
        snprintf(line, sizeof line, "%s  %s  %s  %s", p->label, count, text, times);
    } else {
        snprintf(line, sizeof line, "%s  %s  %s", p->label, count, text);
    }
    cut_columns(line, width);
    char out[LINE_SIZE + 8];
    int n = snprintf(out, sizeof out, "\r%s\033[K", line);
    write_all(p, out, (size_t)n);
    p->visible = true;
}

static void print_line(cli_progress *p, int64_t done, const char *text)
{
    char count[64], times[96], line[LINE_SIZE];
    format_counts(p, done, count, times);
    int n = snprintf(line, sizeof line, "%s  %s  %s  %s\n", p->label, count, text, times);
    write_all(p, line, BY_MIN((size_t)n, sizeof line - 1));
}

/* Whether an update is due: on a terminal by time only, otherwise by steps, by time, or by both. */
static bool is_due(const cli_progress *p, int64_t done)
{
    double since = base_seconds() - p->shown_at;
    if (p->terminal)
        return since >= REDRAW_SECONDS || (p->total > 0 && done >= p->total);
    if (p->total > 0 && done >= p->total && done != p->shown)
        return true;
    if (p->every_steps > 0 && done / p->every_steps != p->shown / p->every_steps)
        return true;
    return p->every_seconds > 0 && since >= p->every_seconds;
}

void cli_progress_start(cli_progress *p)
{
    if (p->fd == 0)
        p->fd = STDERR_FILENO;
    if (!p->label)
        p->label = "step";
    if (p->every_steps <= 0 && p->every_seconds <= 0)
        p->every_seconds = PLAIN_SECONDS;
    p->terminal = cli_is_terminal(p->fd);
    p->started = base_seconds();
    p->shown_at =
        p->terminal ? 0 : p->started; /* a line at once on a terminal, elsewhere when the time comes */
    p->shown = p->first;
    p->visible = p->broken = p->paced = false;
    active = p;
}

void cli_progress_update(cli_progress *p, int64_t done, const char *fmt, ...)
{
    note_pace(p, done, base_seconds());
    if (p->quiet || p->broken || !is_due(p, done))
        return;
    char text[LINE_SIZE / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    make_plain(text);
    if (p->terminal)
        draw(p, done, text);
    else
        print_line(p, done, text);
    p->shown = done;
    p->shown_at = base_seconds();
}

static void clear(cli_progress *p)
{
    if (p->visible)
        write_all(p, "\r\033[K", 4);
    p->visible = false;
    p->shown_at = p->terminal ? 0 : p->shown_at;
}

void cli_progress_end(cli_progress *p)
{
    clear(p);
    if (active == p)
        active = NULL;
}

void cli_progress_hide(void)
{
    if (active)
        clear(active);
}
