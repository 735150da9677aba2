/* table.c - examples from tables: tabs (no quoting, as GLUE's files) or commas (RFC 4180: quoted fields may
 * have commas, doubled quotes and line ends in them). */
#include <stdlib.h>

#include "data/tasks.h"

enum { COLUMNS = 256 };

typedef struct table {
    by_cases *e;
    char separator;
    char *cursor;
    int line; /* of the row's first line */
    char *fields[COLUMNS];
    int count;
    int width; /* of the first row */
    int text, pair, label, choices[COLUMNS], n_choices;
} table;

/* ---- rows ------------------------------------------------------------------------------------ */

static by_status too_many(const table *t)
{
    return by_cases_fail(t->e, t->line, "more than %d columns", COLUMNS);
}

static by_status split_line(table *t, char *line)
{
    t->count = 0;
    for (char *at = line, *next; at; at = next) {
        if (t->count == COLUMNS)
            return too_many(t);
        next = strchr(at, t->separator);
        if (next)
            *next++ = '\0';
        t->fields[t->count++] = at;
    }
    return BY_OK;
}

/* A quoted field: *at is behind the quote; the text is made where it stands. Lines that end inside are put
 * back together. */
static by_status unquote(table *t, char **at, int *line)
{
    char *from = *at, *to = *at;
    for (;;) {
        if (*from == '"' && from[1] != '"')
            break;
        if (*from == '\0') { /* the end of a line, or of the file */
            char *more;
            if (!*t->cursor)
                return by_cases_fail(t->e, t->line, "a quote is never closed");
            BY_TRY(by_cases_line(t->e, &t->cursor, line, &more));
            *to++ = '\n';
            from = more;
            continue;
        }
        from += *from == '"';
        *to++ = *from++;
    }
    *to = '\0';
    *at = from + 1;
    return BY_OK;
}

static by_status split_quoted(table *t, char *at, int *line)
{
    t->count = 0;
    for (bool more = true; more;) {
        if (t->count == COLUMNS)
            return too_many(t);
        if (*at == '"') {
            t->fields[t->count++] = ++at;
            BY_TRY(unquote(t, &at, line));
            if (*at && *at != t->separator)
                return by_cases_fail(t->e, *line, "text between a closing quote and the next comma");
        } else {
            t->fields[t->count++] = at;
            at += strcspn(at, ",");
        }
        more = *at == t->separator;
        *at++ = '\0';
    }
    return BY_OK;
}

/* The next row; count is 0 after the last. */
static by_status next_row(table *t, int *line)
{
    char *text;
    t->count = 0;
    BY_TRY(by_cases_line(t->e, &t->cursor, line, &text));
    if (!text)
        return BY_OK;
    t->line = *line;
    if (!*text)
        return by_cases_fail(t->e, t->line, "the line is empty");
    return t->separator == ',' ? split_quoted(t, text, line) : split_line(t, text);
}

/* ---- columns --------------------------------------------------------------------------------- */

static int find_field(const table *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (strcmp(t->fields[i], name) == 0)
            return i;
    return -1;
}

static int find_any(const table *t, const char *const *names)
{
    int found = -1;
    for (; *names && found < 0; names++)
        found = find_field(t, *names);
    return found;
}

/* A column that was asked for: its name in the header, or its number. */
static by_status named(const table *t, const char *name, int *out)
{
    char *end;
    *out = find_field(t, name);
    if (*out >= 0)
        return BY_OK;
    long n = strtol(name, &end, 10);
    if (*end || n < 1)
        return by_cases_fail(t->e, t->line, "there is no column \"%.60s\"", name);
    if (n > t->count)
        return by_cases_fail(t->e, t->line, "there is no column %ld, only %d", n, t->count);
    *out = (int)n - 1;
    return BY_OK;
}

static by_status find_choices(table *t, const char *names)
{
    for (const char *at = names; at && *at;) {
        size_t n = strcspn(at, ",");
        char name[64];
        if (n >= sizeof name || t->n_choices == COLUMNS)
            return by_fail(BY_ERR_ARGUMENT, "the list of choices \"%.40s\" is too long", names);
        memcpy(name, at, n);
        name[n] = '\0';
        BY_TRY(named(t, name, &t->choices[t->n_choices++]));
        at += n + (at[n] == ',');
    }
    return BY_OK;
}

static bool needs_label(const table *t)
{
    return t->e->spec.kind < BY_WORK_MLM;
}

/* Which columns are what, from the first row. *header: it is no example. */
static by_status find_columns(table *t, bool *header)
{
    const by_task_data *s = &t->e->spec;
    const bool two = s->kind == BY_WORK_SEQ2SEQ;
    int text = s->text ? find_field(t, s->text) : find_any(t, two ? by_source_names : by_text_names);
    int label = s->label ? find_field(t, s->label) : find_any(t, two ? by_target_names : by_label_names);
    *header = text >= 0 && (label >= 0 || !needs_label(t));
    t->text = *header ? text : 0;
    t->label = *header ? label : two && t->count > 1 ? 1 : t->count - 1; /* what stands behind is no text */
    t->pair = two ? -1 : *header ? find_any(t, by_pair_names) : t->count == 3 && needs_label(t) ? 1 : -1;
    if (s->text)
        BY_TRY(named(t, s->text, &t->text));
    if (s->label)
        BY_TRY(named(t, s->label, &t->label));
    if (s->pair && !*s->pair)
        t->pair = -1;
    else if (s->pair)
        BY_TRY(named(t, s->pair, &t->pair));
    if (s->kind == BY_WORK_CHOICE)
        BY_TRY(find_choices(t, s->choices));
    if (s->kind == BY_WORK_CHOICE && t->n_choices < 2)
        return by_fail(BY_ERR_ARGUMENT, "%s: say which columns are the choices, two at least", t->e->path);
    if (!needs_label(t))
        return BY_OK;
    if (t->label == t->text || (t->pair >= 0 && (t->pair == t->label || t->pair == t->text)))
        return by_cases_fail(t->e, t->line, "%d column%s, and a text and its %s are needed", t->count,
                             t->count == 1 ? "" : "s", two ? "target" : "label");
    return BY_OK;
}

static by_status add_choices(table *t, by_case *x)
{
    x->choices = by_arena_alloc(t->e->arena, (size_t)t->n_choices * sizeof *x->choices);
    if (!x->choices)
        return BY_ERR_MEMORY;
    x->n_choices = t->n_choices;
    for (int i = 0; i < t->n_choices; i++)
        x->choices[i] = t->fields[t->choices[i]];
    return BY_OK;
}

static by_status add_row(table *t)
{
    if (t->count != t->width)
        return by_cases_fail(t->e, t->line, "%d columns where the first line has %d", t->count, t->width);
    by_case *x = by_cases_add(t->e, t->line);
    if (!x)
        return BY_ERR_MEMORY;
    x->text = t->fields[t->text];
    x->pair = t->pair >= 0 ? t->fields[t->pair] : NULL;
    if (!x->text[strspn(x->text, " ")])
        return by_cases_fail(t->e, t->line, "the text is empty");
    if (t->n_choices)
        BY_TRY(add_choices(t, x));
    return needs_label(t) ? by_case_split(t->e, x, t->fields[t->label]) : BY_OK;
}

by_status by_read_table(by_cases *e, char separator)
{
    table t = {.e = e, .separator = separator, .cursor = e->bytes};
    bool header;
    int line = 0;
    if (e->spec.kind == BY_WORK_ANSWER)
        return by_fail(BY_ERR_ARGUMENT, "%s: questions come as SQuAD's JSON or as JSON lines", e->path);
    BY_TRY(next_row(&t, &line));
    if (!t.count)
        return BY_OK;
    t.width = t.count;
    BY_TRY(find_columns(&t, &header));
    if (!header)
        BY_TRY(add_row(&t));
    for (;;) {
        BY_TRY(next_row(&t, &line));
        if (!t.count)
            return BY_OK;
        BY_TRY(add_row(&t));
    }
}
