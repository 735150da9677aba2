/* labelled_json.c - examples as JSON objects, one per line or in a list, and SQuAD files (Rajpurkar et al.
 * 2016, 2018). */
#include <math.h>
#include <stdio.h>

#include "data/labelled.h"
#include "base/input.h"
#include "base/json.h"

static char *keep(data_examples *e, const char *s)
{
    return base_arena_strdup(e->arena, s);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Converts a character offset, used in the files, to a byte offset. Returns SIZE_MAX past the end. */
static size_t byte_of(const char *text, double character)
{
    size_t at = 0, n = strlen(text);
    for (double i = 0; i < character && at < n; i++)
        at += base_json_utf8(text + at, n - at);
    return character <= (double)n && (at < n || character == 0) ? at : SIZE_MAX;
}

static by_status add_answer(data_examples *e, data_example *x, const cJSON *text, const cJSON *start)
{
    const char *answer = cJSON_GetStringValue(text);
    if (!answer || !*answer || !cJSON_IsNumber(start) || !(start->valuedouble >= 0))
        return data_examples_fail(e, x->line, "an answer requires \"text\" and \"answer_start\"");
    size_t at = byte_of(x->pair, start->valuedouble);
    if (at == SIZE_MAX || strncmp(x->pair + at, answer, strlen(answer)) != 0)
        return data_examples_fail(e, x->line, "the answer \"%.60s\" is not in the text at character %.0f",
                                  answer, start->valuedouble);
    x->answers[x->n_answers++] = (data_answer){at, at + strlen(answer)};
    return BY_OK;
}

static by_status room_for_answers(data_examples *e, data_example *x, int count)
{
    x->answers = base_arena_alloc(e->arena, (size_t)BY_MAX(count, 1) * sizeof *x->answers);
    return x->answers ? BY_OK : BY_ERR_MEMORY;
}

/* [{"text": ..., "answer_start": ...}, ...] */
static by_status add_answer_list(data_examples *e, data_example *x, const cJSON *list)
{
    BY_TRY(room_for_answers(e, x, cJSON_GetArraySize(list)));
    const cJSON *item;
    cJSON_ArrayForEach(item, list) BY_TRY(add_answer(e, x, cJSON_GetObjectItemCaseSensitive(item, "text"),
                                                     cJSON_GetObjectItemCaseSensitive(item, "answer_start")));
    return BY_OK;
}

/* {"text": [...], "answer_start": [...]} */
static by_status add_answer_columns(data_examples *e, data_example *x, const cJSON *object)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, "text"),
                *start = cJSON_GetObjectItemCaseSensitive(object, "answer_start");
    if (!cJSON_IsArray(text) || !cJSON_IsArray(start) ||
        cJSON_GetArraySize(text) != cJSON_GetArraySize(start))
        return data_examples_fail(e, x->line, "\"answers\" must have as many texts as starts");
    BY_TRY(room_for_answers(e, x, cJSON_GetArraySize(text)));
    for (text = text->child, start = start->child; text; text = text->next, start = start->next)
        BY_TRY(add_answer(e, x, text, start));
    return BY_OK;
}

/* ---- SQuAD ----------------------------------------------------------------------------------- */

static by_status add_question(data_examples *e, const cJSON *qa, const char *context)
{
    data_example *x = data_examples_add(e, e->count + 1);
    if (!x)
        return BY_ERR_MEMORY;
    const char *question = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(qa, "question"));
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(qa, "id"));
    const cJSON *answers = cJSON_GetObjectItemCaseSensitive(qa, "answers");
    bool impossible = false;
    if (!question || !question[strspn(question, " ")])
        return data_examples_fail(e, x->line, "missing \"question\"");
    BY_TRY(base_json_bool(qa, "is_impossible", false, &impossible));
    x->text = keep(e, question);
    x->pair = context;
    x->id = id ? keep(e, id) : NULL;
    if (!x->text || (id && !x->id))
        return BY_ERR_MEMORY;
    if (impossible)
        return BY_OK;
    if (!cJSON_IsArray(answers) || !answers->child)
        return data_examples_fail(e, x->line, "missing \"answers\", and \"is_impossible\" is not true");
    return add_answer_list(e, x, answers);
}

static by_status add_paragraph(data_examples *e, const cJSON *paragraph)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(paragraph, "context"));
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(paragraph, "qas"), *qa;
    if (!text || !cJSON_IsArray(list))
        return data_examples_fail(e, e->count + 1, "the paragraph has no \"context\" with \"qas\"");
    text = keep(e, text);
    if (!text)
        return BY_ERR_MEMORY;
    cJSON_ArrayForEach(qa, list) BY_TRY(add_question(e, qa, text));
    return BY_OK;
}

static by_status add_articles(data_examples *e, const cJSON *root)
{
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data"), *article, *paragraph;
    if (!cJSON_IsArray(data))
        return base_fail(
            BY_ERR_FORMAT,
            "%s: not in SQuAD format: no list \"data\"; for one object per line, use --format jsonl",
            base_input_name(e->path));
    cJSON_ArrayForEach(article, data)
    {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(article, "paragraphs");
        if (!cJSON_IsArray(list))
            return base_fail(BY_ERR_FORMAT, "%s: the article after question %d has no \"paragraphs\"",
                             e->path, e->count);
        cJSON_ArrayForEach(paragraph, list) BY_TRY(add_paragraph(e, paragraph));
    }
    return BY_OK;
}

by_status data_read_squad(data_examples *e)
{
    if (e->spec.kind != BY_EXAMPLE_ANSWER)
        return base_fail(BY_ERR_ARGUMENT, "%s: SQuAD files require --task answer", base_input_name(e->path));
    cJSON *root = base_json_parse(e->bytes, strlen(e->bytes), e->path);
    by_status s = root ? add_articles(e, root) : base_error_status();
    cJSON_Delete(root);
    return s;
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static const cJSON *find_any(const cJSON *o, const char *name, const char *const *names)
{
    if (name)
        return cJSON_GetObjectItemCaseSensitive(o, name);
    const cJSON *found = NULL;
    for (; *names && !found; names++)
        found = cJSON_GetObjectItemCaseSensitive(o, *names);
    return found;
}

/* Reports a missing key and lists the keys that are present. */
static by_status no_key(const data_examples *e, int line, const cJSON *o, const char *key, const char *option)
{
    char keys[240] = "";
    size_t at = 0;
    for (const cJSON *x = o->child; x && at + 64 < sizeof keys; x = x->next)
        at += (size_t)base_format(keys + at, sizeof keys - at, "%s\"%.40s\"", at ? ", " : "", x->string);
    return data_examples_fail(e, line, "no key \"%s\"; the keys are %s; name the right one with %s", key,
                              *keys ? keys : "none", option);
}

/* Labels are strings, numbers or booleans. */
static by_status label_text(data_examples *e, int line, const cJSON *value, const char **out)
{
    if (cJSON_IsString(value))
        *out = keep(e, value->valuestring);
    else if (cJSON_IsNumber(value) && isfinite(value->valuedouble))
        *out = base_arena_sprintf(e->arena, "%.9g", value->valuedouble);
    else if (cJSON_IsBool(value))
        *out = cJSON_IsTrue(value) ? "1" : "0";
    else
        return data_examples_fail(
            e, line,
            "a label is neither a string nor a number; if texts have several labels, use --label-separator");
    return *out ? BY_OK : BY_ERR_MEMORY;
}

static by_status add_labels(data_examples *e, data_example *x, const cJSON *list)
{
    x->labels = base_arena_alloc(e->arena, ((size_t)cJSON_GetArraySize(list) + 1) * sizeof *x->labels);
    if (!x->labels)
        return BY_ERR_MEMORY;
    for (const cJSON *item = list->child; item; item = item->next)
        BY_TRY(label_text(e, x->line, item, &x->labels[x->n_labels++]));
    return BY_OK;
}

static by_status add_label(data_examples *e, data_example *x, const cJSON *o)
{
    const data_columns *c = data_columns_of(e->spec.kind);
    const cJSON *label = find_any(o, e->spec.label, c->labels);
    if (!label)
        return no_key(e, x->line, o, e->spec.label ? e->spec.label : c->label, c->label_option);
    if (cJSON_IsArray(label) && (e->spec.separator || e->spec.kind == BY_EXAMPLE_REGRESS))
        return add_labels(e, x, label);
    const char *text;
    BY_TRY(label_text(e, x->line, label, &text));
    char *own = keep(e, text);
    return own ? data_example_split(e, x, own) : BY_ERR_MEMORY;
}

/* {"tokens": ["the", "cat"], "tags": ["O", "B-ANIMAL"]} */
static by_status add_words(data_examples *e, data_example *x, const cJSON *o)
{
    static const char *const words[] = {"tokens", "words", NULL}, *const tags[] = {"tags", "ner_tags",
                                                                                   "labels", NULL};
    const cJSON *list = find_any(o, e->spec.text, words), *labels = find_any(o, e->spec.label, tags), *item;
    int count = cJSON_GetArraySize(list), k = 0;
    if (!cJSON_IsArray(list) || !cJSON_IsArray(labels) || !count || cJSON_GetArraySize(labels) != count)
        return data_examples_fail(e, x->line, "\"tokens\" and \"tags\" must be lists of the same length");
    base_buf text = {0};
    x->words = base_arena_alloc(e->arena, (size_t)count * sizeof *x->words);
    by_status s = x->words ? add_labels(e, x, labels) : BY_ERR_MEMORY;
    cJSON_ArrayForEach(item, list)
    {
        const char *word = cJSON_GetStringValue(item);
        if (s == BY_OK && (!word || !*word))
            s = data_examples_fail(e, x->line, "a word is empty or not a string");
        if (s != BY_OK)
            break;
        if (k)
            base_buf_puts(&text, " ");
        uint32_t start = (uint32_t)text.size;
        base_buf_puts(&text, word);
        x->words[k++] = (by_offset){start, (uint32_t)text.size};
    }
    x->text = s == BY_OK && !text.failed ? keep(e, text.data) : NULL;
    base_buf_free(&text);
    return s == BY_OK && !x->text ? BY_ERR_MEMORY : s;
}

static by_status add_choices(data_examples *e, data_example *x, const cJSON *o)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, e->spec.choices ? e->spec.choices : "choices");
    if (cJSON_GetArraySize(list) < 2)
        return data_examples_fail(e, x->line, "\"choices\" must be a list of at least two");
    x->choices = base_arena_alloc(e->arena, (size_t)cJSON_GetArraySize(list) * sizeof *x->choices);
    if (!x->choices)
        return BY_ERR_MEMORY;
    for (const cJSON *item = list->child; item; item = item->next) {
        if (!cJSON_IsString(item))
            return data_examples_fail(e, x->line, "a choice is not a string");
        if (!(x->choices[x->n_choices++] = keep(e, item->valuestring)))
            return BY_ERR_MEMORY;
    }
    return BY_OK;
}

/* {"translation": {"en": ..., "de": ...}}: from the first language to the second, unless they are named. */
static by_status add_translation(data_examples *e, data_example *x, const cJSON *o)
{
    const cJSON *from = e->spec.text ? cJSON_GetObjectItemCaseSensitive(o, e->spec.text) : o->child;
    const cJSON *to = e->spec.label ? cJSON_GetObjectItemCaseSensitive(o, e->spec.label)
                      : o->child    ? o->child->next
                                    : NULL;
    const char *text = cJSON_GetStringValue(from), *target = cJSON_GetStringValue(to);
    if (!text || !target)
        return data_examples_fail(e, x->line, "\"translation\" requires a text in %s and one in %s",
                                  e->spec.text ? e->spec.text : "one language",
                                  e->spec.label ? e->spec.label : "another");
    x->text = keep(e, text);
    char *own = keep(e, target);
    if (!x->text || !own)
        return BY_ERR_MEMORY;
    return text[strspn(text, " ")] ? data_example_split(e, x, own)
                                   : data_examples_fail(e, x->line, "the text is empty");
}

static by_status add_object(data_examples *e, const cJSON *o, int line)
{
    data_example *x = data_examples_add(e, line);
    if (!x)
        return BY_ERR_MEMORY;
    const char *id = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "id"));
    if (id && !(x->id = keep(e, id)))
        return BY_ERR_MEMORY;
    if (e->spec.kind == BY_EXAMPLE_TAG)
        return add_words(e, x, o);
    const data_columns *c = data_columns_of(e->spec.kind);
    const cJSON *both =
        e->spec.kind == BY_EXAMPLE_SEQ2SEQ ? cJSON_GetObjectItemCaseSensitive(o, "translation") : NULL;
    if (cJSON_IsObject(both))
        return add_translation(e, x, both);
    const cJSON *first = find_any(o, e->spec.text, c->texts);
    const cJSON *second = c->two ? NULL : find_any(o, e->spec.pair, data_pair_names);
    const cJSON *wrong = first && !cJSON_IsString(first)                              ? first
                         : second && !cJSON_IsString(second) && !cJSON_IsNull(second) ? second
                                                                                      : NULL;
    if (wrong)
        return data_examples_fail(e, line, "no key \"%s\" with a string: it has another value",
                                  wrong->string);
    const char *text = cJSON_GetStringValue(first), *pair = cJSON_GetStringValue(second);
    if (!text)
        return no_key(e, line, o, e->spec.text ? e->spec.text : c->text, c->text_option);
    if (!text[strspn(text, " ")])
        return data_examples_fail(e, line, "the text is empty; remove the object");
    x->text = keep(e, text);
    x->pair = pair ? keep(e, pair) : NULL;
    if (!x->text || (pair && !x->pair))
        return BY_ERR_MEMORY;
    if (e->spec.kind == BY_EXAMPLE_CHOICE)
        BY_TRY(add_choices(e, x, o));
    if (e->spec.kind >= BY_EXAMPLE_MLM)
        return BY_OK;
    if (e->spec.kind != BY_EXAMPLE_ANSWER)
        return add_label(e, x, o);
    const cJSON *answers = cJSON_GetObjectItemCaseSensitive(o, "answers");
    if (!x->pair || !answers)
        return data_examples_fail(e, line, "a question requires \"context\" and \"answers\"");
    return cJSON_IsArray(answers) ? add_answer_list(e, x, answers) : add_answer_columns(e, x, answers);
}

/* Records the keys of the first object, for the description. */
static by_status note_keys(data_examples *e, const cJSON *o)
{
    const by_example_kind kind = e->spec.kind;
    const data_columns *c = data_columns_of(kind);
    const cJSON *text = find_any(o, e->spec.text, c->texts);
    const cJSON *label = find_any(o, e->spec.label, c->labels);
    if (text && label && kind < BY_EXAMPLE_MLM)
        e->columns = base_arena_sprintf(e->arena, "%s \"%s\", %s \"%s\"", c->text, text->string, c->label,
                                        label->string);
    else
        e->columns = "JSON objects";
    return e->columns ? BY_OK : BY_ERR_MEMORY;
}

static by_status add_json(data_examples *e, const char *text, size_t size, int line)
{
    char where[32];
    base_format(where, sizeof where, "line %d", line);
    cJSON *o = base_json_parse(text, size, where);
    by_status s = !o ? base_fail_context("%s", base_input_name(e->path))
                  : cJSON_IsObject(o)
                      ? add_object(e, o, line)
                      : data_examples_fail(e, line, "not a JSON object such as {\"text\": ...}");
    if (s == BY_OK && !e->columns)
        s = note_keys(e, o);
    cJSON_Delete(o);
    return s;
}

/* ---- a list of objects ----------------------------------------------------------------------- */

/* Returns the end of the value at s: after its last bracket, or before a comma. Skips strings. */
static const char *value_end(const char *s, int *line)
{
    int depth = 0;
    for (bool quoted = false; *s; s++) {
        *line += *s == '\n';
        if (quoted) {
            quoted = *s != '"';
            s += *s == '\\' && s[1];
            continue;
        }
        quoted = *s == '"';
        if ((*s == ',' || *s == ']') && depth == 0)
            return s;
        depth += *s == '{' || *s == '[';
        if ((*s == '}' || *s == ']') && --depth == 0)
            return s + 1;
    }
    return s;
}

static const char *skip_space(const char *s, int *line)
{
    for (; *s == ' ' || *s == '\t' || *s == '\r' || *s == '\n'; s++)
        *line += *s == '\n';
    return s;
}

/* Parses one object at a time: the tree of the whole list would be many times its size. */
static by_status read_list(data_examples *e)
{
    int line = 1;
    const char *s = skip_space(e->bytes, &line) + 1;
    for (bool more = *(s = skip_space(s, &line)) != ']'; more; s++) {
        s = skip_space(s, &line);
        const int first = line;
        const char *end = value_end(s, &line);
        BY_TRY(add_json(e, s, (size_t)(end - s), first));
        s = skip_space(end, &line);
        more = *s == ',';
        if (*s != ',' && *s != ']')
            return data_examples_fail(e, line,
                                      *s ? "missing comma between two objects of the list"
                                         : "the list is never closed; is the file truncated?");
    }
    return BY_OK;
}

by_status data_read_jsonl(data_examples *e)
{
    char *cursor = e->bytes, *text;
    if (e->bytes[strspn(e->bytes, " \t\r\n")] == '[')
        return read_list(e);
    for (int line = 0;;) {
        BY_TRY(data_examples_line(e, &cursor, &line, &text));
        if (!text)
            return BY_OK;
        if (!text[strspn(text, " \t")])
            return data_examples_fail(e, line, "the line is empty; remove it");
        BY_TRY(add_json(e, text, strlen(text), line));
    }
}
