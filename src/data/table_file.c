/* table_file.c - examples from tables: tab-separated (no quoting, as in GLUE) or comma-separated (RFC 4180:
 * quoted fields may contain commas, doubled quotes and line ends). */
#include <stdio.h>
#include <stdlib.h>

#include "base/input.h"
#include "data/labelled.h"

enum { COLUMNS = 256 };

typedef struct table {
    data_examples *e;
    char separator;
    char *cursor;
    int line; /* first line of the row */
    char *fields[COLUMNS];
    int count;
    int width; /* columns of the first row */
    int text, pair, label, choices[COLUMNS], n_choices;
    bool header;          /* the first row names the columns */
    char *names[COLUMNS]; /* the first row */
} table;

/* ---- rows ------------------------------------------------------------------------------------ */

static by_status too_many(const table *t)
{
    return data_examples_fail(t->e, t->line, "more than %d columns; is --format right?", COLUMNS);
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

/* Reads a quoted field in place; *at is after the opening quote. Rejoins lines that end inside the field. */
static by_status unquote(table *t, char **at, int *line)
{
    char *from = *at, *to = *at;
    for (;;) {
        if (*from == '"' && from[1] != '"')
            break;
        if (*from == '\0') { /* end of a line or of the file */
            char *more;
            if (!*t->cursor)
                return data_examples_fail(
                    t->e, t->line, "unterminated quote; a quote inside a quoted field must be doubled");
            BY_TRY(data_examples_line(t->e, &t->cursor, line, &more));
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
                return data_examples_fail(
                    t->e, *line,
                    "text between a closing quote and the next comma; a quote inside a quoted "
                    "field must be doubled");
        } else {
            t->fields[t->count++] = at;
            at += strcspn(at, ",");
        }
        more = *at == t->separator;
        *at++ = '\0';
    }
    return BY_OK;
}

/* Reads the next row; count is 0 after the last. */
static by_status next_row(table *t, int *line)
{
    char *text;
    t->count = 0;
    BY_TRY(data_examples_line(t->e, &t->cursor, line, &text));
    if (!text)
        return BY_OK;
    t->line = *line;
    if (!*text)
        return data_examples_fail(t->e, t->line, "the line is empty; remove it");
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

/* Lists "a", "b", ... of the first row, as many as fit. */
static const char *list_columns(const table *t, char *out, size_t room)
{
    size_t at = 0;
    for (int i = 0; i < t->count && at + 64 < room; i++)
        at += (size_t)base_format(out + at, room - at, "%s\"%.40s\"", i ? ", " : "", t->fields[i]);
    return out;
}

/* Finds a column specified by its name in the header or by its number. */
static by_status find_named(const table *t, const char *name, int *out)
{
    char *end, columns[240];
    *out = find_field(t, name);
    if (*out >= 0)
        return BY_OK;
    long n = strtol(name, &end, 10);
    if (*end || n < 1)
        return data_examples_fail(t->e, t->line, "no column \"%.60s\"; the columns are %s", name,
                                  list_columns(t, columns, sizeof columns));
    if (n > t->count)
        return data_examples_fail(t->e, t->line, "no column %ld; there are %d: %s", n, t->count,
                                  list_columns(t, columns, sizeof columns));
    *out = (int)n - 1;
    return BY_OK;
}

static by_status find_choices(table *t, const char *names)
{
    for (const char *at = names; at && *at;) {
        size_t n = strcspn(at, ",");
        char name[64];
        if (n >= sizeof name || t->n_choices == COLUMNS)
            return base_fail(BY_ERR_ARGUMENT, "the list of choices \"%.40s\" is too long", names);
        memcpy(name, at, n);
        name[n] = '\0';
        BY_TRY(find_named(t, name, &t->choices[t->n_choices++]));
        at += n + (at[n] == ',');
    }
    if (t->n_choices < 2)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s: name two or more columns of choices, for example --choices a,b",
                         base_input_name(t->e->path));
    return BY_OK;
}

static bool needs_label(const table *t)
{
    return t->e->spec.kind < BY_EXAMPLE_MLM;
}

static const data_columns *columns_of(const table *t)
{
    return data_columns_of(t->e->spec.kind);
}

static bool is_named(const table *t, const char *name)
{
    return name && *name && find_field(t, name) >= 0;
}

/* Returns true if the first row names the columns: it has a conventional name, or one that was given. */
static bool has_header(const table *t)
{
    const by_examples_spec *s = &t->e->spec;
    const data_columns *c = columns_of(t);
    if (s->header != BY_HEADER_AUTO)
        return s->header == BY_HEADER_YES;
    return is_named(t, s->text) || is_named(t, s->label) || is_named(t, s->pair) ||
           find_any(t, c->texts) >= 0 || (needs_label(t) && find_any(t, c->labels) >= 0);
}

/* Finds the column of the text or of the label: the specified one, a conventional name, or `place` if there
 * is no header. */
static by_status find_column(const table *t, const char *asked, const char *const *usual, int place,
                             const char *what, const char *option, int *out)
{
    char columns[240];
    if (asked)
        return find_named(t, asked, out);
    *out = t->header ? find_any(t, usual) : place;
    if (*out >= 0)
        return BY_OK;
    return data_examples_fail(
        t->e, t->line, "the header is %s; none of these is a known name for the %s; name the column with %s",
        list_columns(t, columns, sizeof columns), what, option);
}

/* Determines the columns from the first row. */
static by_status find_columns(table *t)
{
    const by_examples_spec *s = &t->e->spec;
    const data_columns *c = columns_of(t);
    t->header = has_header(t);
    t->label = t->pair = -1;
    BY_TRY(find_column(t, s->text, c->texts, 0, c->text, c->text_option, &t->text));
    if (needs_label(t))
        BY_TRY(find_column(t, s->label, c->labels, c->two && t->count > 1 ? 1 : t->count - 1, c->label,
                           c->label_option, &t->label));
    if (s->pair && *s->pair)
        BY_TRY(find_named(t, s->pair, &t->pair));
    else if (!s->pair && !c->two)
        t->pair = t->header ? find_any(t, data_pair_names) : t->count == 3 && needs_label(t) ? 1 : -1;
    if (t->pair == t->text && !s->pair) /* --text 2 of three columns without a header */
        t->pair = -1;
    if (s->kind == BY_EXAMPLE_CHOICE)
        BY_TRY(find_choices(t, s->choices));
    if (!needs_label(t))
        return BY_OK;
    if (t->label == t->text || (t->pair >= 0 && (t->pair == t->label || t->pair == t->text)))
        return data_examples_fail(
            t->e, t->line, "%d column%s; expected a %s and its %s; columns are separated by %s%s", t->count,
            t->count == 1 ? "" : "s", data_kind_is_picture(s->kind) ? "file" : "text", c->label,
            t->separator == ',' ? "commas" : "tabs",
            !data_kind_is_picture(s->kind) ? " (--format)"
            : t->separator == ','          ? ""
                                           : ", in .csv files by commas");
    return BY_OK;
}

/* ---- a header of unknown names --------------------------------------------------------------- */

/* Returns true for a short field of letters, digits, spaces, _ and -, at most three words. */
static bool is_name(const char *s)
{
    int words = 1;
    size_t n = 0;
    for (; s[n]; n++) {
        const char c = s[n];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '-' || c == ' '))
            return false;
        words += c == ' ';
    }
    return n > 0 && n <= 40 && words <= 3;
}

/* Returns true if the other labels repeat but the first one occurs only once, or if all but the first are
 * numbers. */
static bool first_label_is_alone(const data_examples *e)
{
    const data_example *first = &e->list[0];
    base_names *seen = base_names_new();
    int distinct = 0, numbers = 0;
    bool alone = seen && first->n_labels == 1;
    for (int i = 1; alone && i < e->count; i++) {
        const char *label = e->list[i].n_labels ? e->list[i].labels[0] : "";
        numbers += data_label_is_number(label);
        alone = strcmp(label, first->labels[0]) != 0;
        if (base_names_find(seen, label) < 0)
            alone = alone && base_names_put(seen, label, distinct++) == BY_OK;
    }
    base_names_free(seen);
    const int others = e->count - 1;
    if (!alone || data_label_is_number(first->labels[0]))
        return false;
    const bool classes = e->spec.kind == BY_EXAMPLE_CLASSIFY || e->spec.kind == BY_EXAMPLE_IMAGE_CLASSIFY;
    return numbers == others || (classes && others >= 2 * distinct);
}

/* Returns true if all texts but the first have several words. */
static bool first_text_is_alone(const data_examples *e)
{
    int several = 0;
    for (int i = 1; i < e->count; i++)
        several += strchr(e->list[i].text, ' ') != NULL;
    return !strchr(e->list[0].text, ' ') && several * 10 >= (e->count - 1) * 9;
}

/* Checks, after all rows were read as examples, whether the first row is a header after all. */
static by_status check_first_row(const table *t)
{
    const data_examples *e = t->e;
    bool names = !t->header && e->spec.header == BY_HEADER_AUTO && e->count >= 3;
    char label[120] = "";
    for (int i = 0; names && i < t->width; i++)
        names = is_name(t->names[i]);
    const bool two = e->spec.kind == BY_EXAMPLE_SEQ2SEQ, files = data_kind_is_picture(e->spec.kind);
    const bool texts = two || e->spec.kind == BY_EXAMPLE_CAPTION || !needs_label(t);
    if (!names || !(texts ? first_text_is_alone(e) : first_label_is_alone(e)))
        return BY_OK;
    if (needs_label(t))
        base_format(label, sizeof label,
                    two     ? " --target-column \"%.40s\" (finetune: --text, --label)"
                    : files ? " --label-column \"%.40s\" (finetune, eval: --text, --label)"
                            : " --label \"%.40s\"",
                    t->names[t->label]);
    return data_examples_fail(
        e, 1,
        "this looks like a header, but none of its names is known; name the columns, for example "
        "%s \"%.40s\"%s, or use --header no if it is an example",
        two     ? "--source-column"
        : files ? "--file-column"
                : "--text",
        t->names[t->text], label);
}

/* ---- examples -------------------------------------------------------------------------------- */

static void put_column(base_buf *out, const table *t, const char *what, int column)
{
    if (column < 0)
        return;
    base_buf_printf(out, ", %s column %d", what, column + 1);
    if (t->header)
        base_buf_printf(out, " \"%.40s\"", t->names[column]);
}

static by_status note_columns(table *t)
{
    const data_columns *c = columns_of(t);
    base_buf out = {0};
    t->e->header = t->header;
    base_buf_puts(&out, t->header ? "with a header" : "no header");
    put_column(&out, t, c->text, t->text);
    put_column(&out, t, "second text", t->pair);
    put_column(&out, t, c->label, t->label);
    t->e->columns = out.failed ? NULL : base_arena_strdup(t->e->arena, out.data);
    base_buf_free(&out);
    return t->e->columns ? BY_OK : BY_ERR_MEMORY;
}

static by_status add_choices(table *t, data_example *x)
{
    x->choices = base_arena_alloc(t->e->arena, (size_t)t->n_choices * sizeof *x->choices);
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
        return data_examples_fail(
            t->e, t->line, "%d columns, but the first line has %d%s", t->count, t->width,
            t->separator == ',' ? "; quote fields that contain commas" : "; texts must not contain tabs");
    data_example *x = data_examples_add(t->e, t->line);
    if (!x)
        return BY_ERR_MEMORY;
    x->text = t->fields[t->text];
    x->pair = t->pair >= 0 ? t->fields[t->pair] : NULL;
    if (!x->text[strspn(x->text, " ")])
        return data_examples_fail(t->e, t->line, "the column of the %s is empty; name the right one with %s",
                                  data_columns_of(t->e->spec.kind)->text,
                                  data_columns_of(t->e->spec.kind)->text_option);
    if (t->n_choices)
        BY_TRY(add_choices(t, x));
    return needs_label(t) ? data_example_split(t->e, x, t->fields[t->label]) : BY_OK;
}

by_status data_read_table(data_examples *e, char separator)
{
    table t = {.e = e, .separator = separator, .cursor = e->bytes};
    int line = 0;
    if (e->spec.kind == BY_EXAMPLE_ANSWER)
        return base_fail(
            BY_ERR_ARGUMENT,
            "%s: question answering needs SQuAD JSON (--format squad) or JSON lines (--format jsonl)",
            base_input_name(e->path));
    BY_TRY(next_row(&t, &line));
    if (!t.count)
        return BY_OK;
    t.width = t.count;
    memcpy(t.names, t.fields, (size_t)t.count * sizeof *t.names);
    BY_TRY(find_columns(&t));
    BY_TRY(note_columns(&t));
    if (!t.header)
        BY_TRY(add_row(&t));
    for (;;) {
        BY_TRY(next_row(&t, &line));
        if (!t.count)
            return check_first_row(&t);
        BY_TRY(add_row(&t));
    }
}
