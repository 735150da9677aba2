/* conll.c - CoNLL columns: a word and its label on every line, an empty line between sentences (Tjong Kim
 * Sang and De Meulder 2003). Other columns may lie between the two. */
#include <stdlib.h>

#include "data/labelled.h"

typedef struct sentence {
    base_buf text;
    by_offset *words;
    const char **labels;
    int count, capacity, line;
} sentence;

static by_status grow(sentence *s)
{
    if (s->count < s->capacity)
        return BY_OK;
    int grown = s->capacity ? s->capacity * 2 : 64;
    by_offset *words = base_resize(s->words, (size_t)grown, sizeof *words);
    s->words = words ? words : s->words;
    const char **labels = base_resize(s->labels, (size_t)grown, sizeof *labels);
    s->labels = labels ? labels : s->labels;
    if (!words || !labels)
        return BY_ERR_MEMORY;
    s->capacity = grown;
    return BY_OK;
}

static void *keep(data_examples *e, const void *from, size_t bytes)
{
    void *to = base_arena_alloc(e->arena, bytes + 1);
    if (to && bytes)
        memcpy(to, from, bytes);
    return to;
}

/* Turns the sentence into an example and empties it. */
static by_status end_sentence(data_examples *e, sentence *s)
{
    if (!s->count)
        return BY_OK;
    data_example *x = data_examples_add(e, s->line);
    if (!x || s->text.failed)
        return BY_ERR_MEMORY;
    x->n_labels = s->count;
    x->text = keep(e, s->text.data, s->text.size);
    x->words = keep(e, s->words, (size_t)s->count * sizeof *s->words);
    x->labels = keep(e, s->labels, (size_t)s->count * sizeof *s->labels);
    s->count = 0;
    s->text.size = 0;
    return x->text && x->words && x->labels ? BY_OK : BY_ERR_MEMORY;
}

enum { COLUMNS = 64 };

static int split(char *line, char **out)
{
    int n = 0;
    for (char *at = line + strspn(line, " \t"); *at && n < COLUMNS; at += strspn(at, " \t")) {
        out[n++] = at;
        at += strcspn(at, " \t");
        if (*at)
            *at++ = '\0';
    }
    return n;
}

/* "3" -> column 2; NULL: the fallback. */
static by_status column(const data_examples *e, const char *option, int fallback, int *out)
{
    char *end;
    long n = option ? strtol(option, &end, 10) : fallback + 1;
    if (option && (*end || n < 1 || n > COLUMNS))
        return base_fail(BY_ERR_ARGUMENT,
                         "%s: \"%.40s\" is not a CoNLL column; columns are numbered from 1 to %d", e->path,
                         option, COLUMNS);
    *out = (int)n - 1;
    return BY_OK;
}

static by_status add_word(data_examples *e, sentence *s, char **columns, int count, int line)
{
    int word, label;
    BY_TRY(column(e, e->spec.text, 0, &word));
    BY_TRY(column(e, e->spec.label, count - 1, &label));
    if (count < 2 || word >= count || label >= count)
        return data_examples_fail(
            e, line,
            "%d column%s; expected a word and its label, separated by a space or a tab; an empty "
            "line ends a sentence",
            count, count == 1 ? "" : "s");
    BY_TRY(grow(s));
    if (!s->count)
        s->line = line;
    else
        base_buf_puts(&s->text, " ");
    uint32_t start = (uint32_t)s->text.size;
    base_buf_puts(&s->text, columns[word]);
    s->words[s->count] = (by_offset){start, (uint32_t)s->text.size};
    s->labels[s->count++] = columns[label];
    return BY_OK;
}

/* "# sent_id = 12" in CoNLL-U. A line "# O" is a word with its label. */
static bool is_comment(const char *line)
{
    return line[0] == '#' && strstr(line, " = ");
}

static by_status read_lines(data_examples *e, sentence *s)
{
    char *cursor = e->bytes, *text, *columns[COLUMNS];
    for (int line = 0;;) {
        BY_TRY(data_examples_line(e, &cursor, &line, &text));
        if (!text)
            return end_sentence(e, s);
        if (is_comment(text))
            continue;
        int count = split(text, columns);
        if (count == 0 || strcmp(columns[0], "-DOCSTART-") == 0)
            BY_TRY(end_sentence(e, s));
        else
            BY_TRY(add_word(e, s, columns, count, line));
    }
}

by_status data_read_conll(data_examples *e)
{
    sentence s = {0};
    by_status status = read_lines(e, &s);
    base_buf_free(&s.text);
    base_free(s.words);
    base_free(s.labels);
    return status;
}
