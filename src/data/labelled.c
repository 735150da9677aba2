/* labelled.c - see labelled.h. Shared by all formats: the file, lines, the list, labels. */
#include "data/labelled.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/input.h"
#include "base/json.h"

#define FILE_LIMIT ((size_t)4 << 30)

const char *const data_pair_names[] = {"pair", "sentence2", "question2", "hypothesis", "context", NULL};

static const char *const text_names[] = {"text",      "sentence", "sentence1", "question",
                                         "question1", "premise",  NULL};
static const char *const label_names[] = {"label", "labels", "score", "gold_label", "class", NULL};
static const char *const source_names[] = {"source",   "src",  "input",    "document", "article",
                                           "dialogue", "text", "sentence", "question", NULL};
static const char *const target_names[] = {"target",     "tgt",   "output", "summary",
                                           "highlights", "label", "answer", NULL};
static const char *const file_names[] = {"file_name", "file", "filename", "image", "picture", "path", NULL};
static const char *const caption_names[] = {"caption", "text", "sentence", "description", NULL};

static const data_columns one_text = {text_names, label_names, "text", "label", "--text", "--label", false};
static const data_columns two_texts = {source_names,
                                       target_names,
                                       "source",
                                       "target",
                                       "--source-column (finetune: --text)",
                                       "--target-column (finetune: --label)",
                                       true};
#define FILE_OPTION "--file-column (finetune, eval: --text)" /* --label-column is known to all three */
static const data_columns file_and_label = {file_names,  label_names,      "file", "label",
                                            FILE_OPTION, "--label-column", true};
static const data_columns file_and_caption = {file_names,  caption_names,    "file", "caption",
                                              FILE_OPTION, "--label-column", true};

const data_columns *data_columns_of(by_example_kind kind)
{
    return kind == BY_EXAMPLE_SEQ2SEQ                                      ? &two_texts
           : kind == BY_EXAMPLE_CAPTION                                    ? &file_and_caption
           : kind == BY_EXAMPLE_IMAGE_CLASSIFY || kind == BY_EXAMPLE_IMAGE ? &file_and_label
                                                                           : &one_text;
}

bool data_kind_is_picture(by_example_kind kind)
{
    return kind == BY_EXAMPLE_IMAGE_CLASSIFY || kind == BY_EXAMPLE_CAPTION || kind == BY_EXAMPLE_IMAGE;
}

bool by_example_kind_find(const char *name, by_example_kind *out)
{
    static const char *const names[] = {"classify", "regress",        "tag",     "answer", "choice",
                                        "seq2seq",  "image-classify", "caption", "mlm",    "lm"};
    for (int i = 0; i < BY_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (by_example_kind)i;
            return true;
        }
    *out = BY_EXAMPLE_ANSWER;
    return strcmp(name, "qa") == 0;
}

by_status data_examples_fail(const data_examples *e, int line, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    base_vformat(text, sizeof text, fmt, args);
    va_end(args);
    return base_fail(BY_ERR_FORMAT, "%s, %s %d: %s", base_input_name(e->path),
                     e->spec.format == BY_FORMAT_SQUAD ? "question" : "line", line, text);
}

data_example *data_examples_add(data_examples *e, int line)
{
    if (e->count == e->capacity) {
        int grown = e->capacity ? e->capacity * 2 : 256;
        data_example *list = base_resize(e->list, (size_t)grown, sizeof *list);
        if (!list)
            return NULL;
        e->list = list;
        e->capacity = grown;
    }
    e->list[e->count] = (data_example){.line = line};
    return &e->list[e->count++];
}

/* ---- lines ----------------------------------------------------------------------------------- */

static by_status check_utf8(const data_examples *e, int line, const char *s)
{
    for (size_t i = 0, n = strlen(s); i < n;) {
        size_t k = base_json_utf8(s + i, n - i);
        if (!k)
            return data_examples_fail(
                e, line,
                "byte %zu (0x%02x) is not UTF-8; convert the file, for example with `iconv -f LATIN1 -t "
                "UTF-8`",
                i + 1, (unsigned)(uint8_t)s[i]);
        i += k;
    }
    return BY_OK;
}

by_status data_examples_line(data_examples *e, char **cursor, int *line, char **out)
{
    *out = NULL;
    if (!**cursor)
        return BY_OK;
    char *begin = *cursor, *end = begin + strcspn(begin, "\n");
    *cursor = *end ? end + 1 : end;
    *end = '\0';
    if (end > begin && end[-1] == '\r')
        end[-1] = '\0';
    ++*line;
    BY_TRY(check_utf8(e, *line, begin));
    *out = begin;
    return BY_OK;
}

/* Each line is a text. */
static by_status read_text(data_examples *e)
{
    char *cursor = e->bytes, *text;
    for (int line = 0;;) {
        BY_TRY(data_examples_line(e, &cursor, &line, &text));
        if (!text)
            return BY_OK;
        if (!text[strspn(text, " \t")])
            continue; /* blank line between paragraphs */
        data_example *x = data_examples_add(e, line);
        if (!x)
            return BY_ERR_MEMORY;
        x->text = text;
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Returns true if the text starts with a JSON object or a list of objects. */
static bool is_json(const char *s)
{
    s += strspn(s, " \t\r\n");
    const bool list = *s == '[';
    s += list;
    s += strspn(s, " \t\r\n");
    return *s == '{' && (list || s[1 + strspn(s + 1, " \t\r\n")] == '"');
}

static bool is_list(const char *s)
{
    return s[strspn(s, " \t\r\n")] == '[';
}

/* Determines the format from the extension, otherwise from the first bytes and the task. */
static by_file_format guess_format(const char *path, const char *bytes, by_example_kind kind)
{
    static const struct {
        const char *ending;
        by_file_format format;
    } endings[] = {{".tsv", BY_FORMAT_TSV},
                   {".csv", BY_FORMAT_CSV},
                   {".jsonl", BY_FORMAT_JSONL},
                   {".ndjson", BY_FORMAT_JSONL},
                   {".conll", BY_FORMAT_CONLL}};
    const bool json = base_input_ends(path, ".json");
    if (kind == BY_EXAMPLE_TAG)
        return is_json(bytes) ? BY_FORMAT_JSONL : BY_FORMAT_CONLL;
    for (int i = 0; i < BY_COUNT(endings); i++)
        if (base_input_ends(path, endings[i].ending))
            return endings[i].format;
    if (kind == BY_EXAMPLE_ANSWER)
        return is_list(bytes) ? BY_FORMAT_JSONL : BY_FORMAT_SQUAD;
    if (json || (is_json(bytes) && kind < BY_EXAMPLE_MLM))
        return BY_FORMAT_JSONL;
    return kind >= BY_EXAMPLE_MLM ? BY_FORMAT_TEXT : BY_FORMAT_TSV;
}

static by_status read_file(data_examples *e)
{
    size_t size, mark = 0;
    e->bytes = base_input_read(e->path, FILE_LIMIT, &size);
    if (!e->bytes)
        return base_error_status();
    e->fingerprint = base_hash(e->bytes, size, 0);
    if (memchr(e->bytes, '\0', size))
        return base_fail(
            BY_ERR_FORMAT,
            "%s: contains zero bytes, so it is not UTF-8 text; convert it, for example with `iconv -f "
            "UTF-16 -t UTF-8`",
            base_input_name(e->path));
    if (size >= 3 && memcmp(e->bytes, "\xef\xbb\xbf", 3) == 0)
        mark = 3; /* byte order mark */
    memmove(e->bytes, e->bytes + mark, size + 1 - mark);
    return BY_OK;
}

by_status data_examples_open(data_examples *e, const char *path, const by_examples_spec *spec)
{
    if (spec->separator && !*spec->separator) {
        *e = (data_examples){0};
        return base_fail(BY_ERR_ARGUMENT, "the label separator is empty; give the text between two labels, "
                                          "for example \",\"");
    }
    *e = (data_examples){.spec = *spec, .arena = base_arena_new()};
    if (!e->arena || !(e->path = base_arena_strdup(e->arena, path)))
        return BY_ERR_MEMORY;
    BY_TRY(read_file(e));
    if (e->spec.format == BY_FORMAT_AUTO)
        e->spec.format = guess_format(path, e->bytes, spec->kind);
    if (spec->kind == BY_EXAMPLE_TAG && e->spec.format != BY_FORMAT_CONLL &&
        e->spec.format != BY_FORMAT_JSONL)
        return base_fail(BY_ERR_ARGUMENT,
                         "%s: tagging needs CoNLL columns (--format conll) or JSON lines "
                         "(--format jsonl)",
                         base_input_name(path));
    switch (e->spec.format) {
    case BY_FORMAT_CSV:
    case BY_FORMAT_TSV:
        BY_TRY(data_read_table(e, e->spec.format == BY_FORMAT_CSV ? ',' : '\t'));
        break;
    case BY_FORMAT_JSONL:
        BY_TRY(data_read_jsonl(e));
        break;
    case BY_FORMAT_CONLL:
        BY_TRY(data_read_conll(e));
        break;
    case BY_FORMAT_SQUAD:
        BY_TRY(data_read_squad(e));
        break;
    default:
        BY_TRY(read_text(e));
    }
    return e->count ? BY_OK : base_fail(BY_ERR_FORMAT, "%s: the file has no examples", base_input_name(path));
}

void data_examples_close(data_examples *e)
{
    base_arena_free(e->arena);
    base_free(e->list);
    base_free(e->bytes);
    *e = (data_examples){0};
}

/* ---- labels ---------------------------------------------------------------------------------- */

by_status data_example_split(data_examples *e, data_example *x, char *labels)
{
    const char *between = e->spec.separator;
    int most = 1;
    for (const char *at = labels; between && (at = strstr(at, between)); at += strlen(between))
        most++;
    x->labels = base_arena_alloc(e->arena, (size_t)most * sizeof *x->labels);
    if (!x->labels)
        return BY_ERR_MEMORY;
    for (char *at = labels, *next; at; at = next) {
        next = between ? strstr(at, between) : NULL;
        if (next) {
            *next = '\0';
            next += strlen(between);
        }
        at += strspn(at, " ");
        for (size_t n = strlen(at); n && at[n - 1] == ' ';)
            at[--n] = '\0';
        if (*at) /* with a separator, an example may have no label */
            x->labels[x->n_labels++] = at;
        else if (!between)
            return data_examples_fail(e, x->line, "the %s is empty", data_columns_of(e->spec.kind)->label);
    }
    return BY_OK;
}

static bool parse_number(const char *s, double *out)
{
    char *end;
    errno = 0;
    *out = base_strtod(s, &end);
    return end > s && !*end && isfinite(*out);
}

bool data_label_is_number(const char *label)
{
    double value;
    return parse_number(label, &value);
}

/* Compares numerically if both are numbers, otherwise byte by byte. */
static int compare_values(const void *a, const void *b)
{
    double x = 0, y = 0;
    parse_number(*(const char *const *)a, &x);
    parse_number(*(const char *const *)b, &y);
    return (x > y) - (x < y);
}

static int data_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void data_labels_sort(data_labels *l)
{
    bool numbers = true;
    for (int i = 0; i < l->count && numbers; i++)
        numbers = data_label_is_number(l->names[i]);
    if (l->count)
        qsort(l->names, (size_t)l->count, sizeof *l->names, numbers ? compare_values : data_bytes);
}

by_status data_examples_labels(const data_examples *e, data_labels *out)
{
    base_names *seen = base_names_new();
    by_status s = seen ? BY_OK : BY_ERR_MEMORY;
    int capacity = 0;
    *out = (data_labels){0};
    for (int i = 0; i < e->count && s == BY_OK; i++)
        for (int k = 0; k < e->list[i].n_labels && s == BY_OK; k++) {
            const char *name = e->list[i].labels[k];
            if (base_names_find(seen, name) >= 0)
                continue;
            if (out->count == capacity) {
                capacity = capacity ? capacity * 2 : 32;
                const char **more = base_resize(out->names, (size_t)capacity, sizeof *more);
                s = more ? BY_OK : BY_ERR_MEMORY;
                out->names = more ? more : out->names;
            }
            if (s == BY_OK) {
                s = base_names_put(seen, name, out->count);
                out->names[out->count++] = name;
            }
        }
    data_labels_sort(out);
    base_names_free(seen);
    return s == BY_OK && !out->count
               ? base_fail(BY_ERR_FORMAT, "%s: the file has no labels; is --label the right column?",
                           base_input_name(e->path))
               : s;
}

/* ---- descriptions ---------------------------------------------------------------------------- */

enum { SHOWN = 8 }; /* maximum number of labels shown */

/* Counts how often each label occurs, in the order of the list. Returns NULL if allocation fails. */
static int64_t *count_labels(const data_examples *e, const data_labels *labels)
{
    int64_t *counts = base_alloc_zero((size_t)labels->count + 1, sizeof *counts);
    base_names *names = base_names_new();
    bool ok = counts && names;
    for (int i = 0; ok && i < labels->count; i++)
        ok = base_names_put(names, labels->names[i], i) == BY_OK;
    for (int i = 0; ok && i < e->count; i++)
        for (int k = 0; k < e->list[i].n_labels; k++)
            counts[base_names_find(names, e->list[i].labels[k])]++;
    base_names_free(names);
    if (ok)
        return counts;
    base_free(counts);
    return NULL;
}

static void describe_labels(const data_examples *e, base_buf *out)
{
    data_labels labels = {0};
    int64_t *counts = data_examples_labels(e, &labels) == BY_OK ? count_labels(e, &labels) : NULL;
    if (counts)
        base_buf_printf(out, "\n  %d label%s:", labels.count, labels.count == 1 ? "" : "s");
    for (int i = 0; counts && i < BY_MIN(labels.count, SHOWN); i++)
        base_buf_printf(out, "%s %.40s (%lld)", i ? "," : "", labels.names[i], (long long)counts[i]);
    if (counts && labels.count > SHOWN)
        base_buf_printf(out, " and %d more", labels.count - SHOWN);
    base_free(labels.names);
    base_free(counts);
}

void data_examples_describe(const data_examples *e, base_buf *out)
{
    const by_example_kind kind = e->spec.kind;
    base_buf_printf(out, "%s: %d %s", base_input_name(e->path), e->count,
                    kind == BY_EXAMPLE_TAG      ? "sentences"
                    : kind == BY_EXAMPLE_ANSWER ? "questions"
                                                : "rows");
    if (e->columns)
        base_buf_printf(out, "; %s", e->columns);
    if (kind == BY_EXAMPLE_CLASSIFY || kind == BY_EXAMPLE_TAG)
        describe_labels(e, out);
}

int data_label_find(const base_names *names, const data_labels *labels, const char *label)
{
    double value;
    int found = base_names_find(names, label);
    if (found >= 0 || !parse_number(label, &value))
        return found;
    return value >= 0 && value < labels->count && value == floor(value) ? (int)value : -1;
}

static by_status number_labels(data_examples *e, data_example *x, const base_names *names,
                               const data_labels *labels)
{
    x->values = base_arena_alloc(e->arena, (size_t)x->n_labels * sizeof *x->values + 1);
    if (!x->values)
        return BY_ERR_MEMORY;
    for (int k = 0; k < x->n_labels; k++) {
        x->values[k] = data_label_find(names, labels, x->labels[k]);
        if (x->values[k] < 0)
            return data_examples_fail(e, x->line + (e->spec.format == BY_FORMAT_CONLL ? k : 0),
                                      "the label \"%.60s\" is not one of the model's %d labels%s%.40s%s",
                                      x->labels[k], labels->count,
                                      labels->count ? ", the first of which is \"" : "",
                                      labels->count ? labels->names[0] : "", labels->count ? "\"" : "");
    }
    return BY_OK;
}

by_status data_examples_number(data_examples *e, const data_labels *labels)
{
    base_names *names = base_names_new();
    by_status s = names ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < labels->count && s == BY_OK; i++)
        s = base_names_put(names, labels->names[i], i);
    for (int i = 0; i < e->count && s == BY_OK; i++)
        s = number_labels(e, &e->list[i], names, labels);
    base_names_free(names);
    return s;
}

by_status data_example_number(const data_examples *e, const data_example *x, int i, float *out)
{
    double value;
    if (!parse_number(x->labels[i], &value))
        return data_examples_fail(
            e, x->line, "the label \"%.60s\" is not a number; is --label the right column?", x->labels[i]);
    *out = (float)value;
    return BY_OK;
}
