/* parallel.c - see parallel.h. */
#include "data/parallel.h"

#include <stdlib.h>

#include "base/input.h"
#include "base/json.h"

typedef struct span {
    const char *text;
    size_t size;
} span;

typedef by_status pair_fn(void *user, span source, span target);

/* ---- reading --------------------------------------------------------------------------------- */

bool by_parallel_is_table(const char *path)
{
    static const char *const endings[] = {".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet"};
    for (int i = 0; i < BY_COUNT(endings); i++)
        if (by_input_ends(path, endings[i]))
            return true;
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next line without space around it; false after the last. */
static by_status next_line(by_lines *l, span *out, bool *there)
{
    BY_TRY(by_lines_next(l, there));
    if (!*there)
        return BY_OK;
    const char *text = l->text;
    size_t n = l->size;
    for (size_t i = 0, k; i < n; i += k) {
        k = by_json_utf8(text + i, n - i);
        if (!k || !text[i])
            return by_fail(BY_ERR_FORMAT,
                           "%s, line %lld: byte %zu (0x%02x) is not UTF-8 text; convert the file with iconv",
                           l->path, (long long)l->number, i + 1, (unsigned)(uint8_t)text[i]);
    }
    for (; n && is_space(*text); n--)
        text++;
    while (n && is_space(text[n - 1]))
        n--;
    *out = (span){text, n};
    return BY_OK;
}

static int64_t count_rest(by_lines *l)
{
    span line;
    for (bool there = true; there && next_line(l, &line, &there) == BY_OK;)
        ;
    return l->number;
}

static by_status each_line(by_lines *a, by_lines *b, pair_fn *fn, void *user)
{
    for (;;) {
        span source, target;
        bool more[2];
        BY_TRY(next_line(a, &source, &more[0]));
        BY_TRY(next_line(b, &target, &more[1]));
        if (more[0] != more[1])
            return by_fail(BY_ERR_FORMAT,
                           "%s has %lld lines and %s has %lld; line i of one must be the translation of line "
                           "i of the other",
                           a->path, (long long)count_rest(a), b->path, (long long)count_rest(b));
        if (!more[0])
            return a->number ? BY_OK : by_fail(BY_ERR_FORMAT, "%s: there is no text in it", a->path);
        const by_status s = fn(user, source, target);
        if (s != BY_OK)
            return s == BY_ERR_IO || s == BY_ERR_MEMORY
                       ? s
                       : by_fail_context("%s and %s, line %lld", a->path, b->path, (long long)a->number);
    }
}

/* Word number `label` of a list with commas. */
static by_status find_word(const by_cases *e, const by_case *x, const char *words, span *out)
{
    char *end;
    long n = strtol(x->labels[0], &end, 10);
    bool there = end > x->labels[0] && !*end && n >= 0;
    for (; there && n > 0; n--) {
        const char *comma = strchr(words, ',');
        there = comma != NULL;
        words = there ? comma + 1 : words;
    }
    if (!there)
        return by_cases_fail(
            e, x->line,
            "no word was given for the label \"%.60s\"; --label-words names one for each label, from 0",
            x->labels[0]);
    *out = (span){words, strcspn(words, ",")};
    return BY_OK;
}

static by_status each_row(const by_parallel_item *item, const by_parallel_spec *spec, pair_fn *fn, void *user)
{
    by_cases cases;
    by_status s =
        by_cases_open(&cases, item->source,
                      &(by_task_data){.kind = BY_WORK_SEQ2SEQ, .text = spec->text, .label = spec->label});
    if (s == BY_OK && spec->found) {
        by_cases_describe(&cases, spec->found);
        by_buf_puts(spec->found, "\n");
    }
    for (int i = 0; i < cases.count && s == BY_OK; i++) {
        const by_case *x = &cases.list[i];
        span target = {x->labels[0], strlen(x->labels[0])};
        if (spec->words)
            s = find_word(&cases, x, spec->words, &target);
        if (s == BY_OK)
            s = fn(user, (span){x->text, strlen(x->text)}, target);
    }
    by_cases_close(&cases);
    return s;
}

static by_status each_pair(const by_parallel_item *item, const by_parallel_spec *spec, pair_fn *fn,
                           void *user)
{
    if (!item->target)
        return each_row(item, spec, fn, user);
    by_lines a, b = {0};
    by_status s = by_lines_open(&a, item->source);
    if (s == BY_OK)
        s = by_lines_open(&b, item->target);
    if (s == BY_OK)
        s = each_line(&a, &b, fn, user);
    by_lines_close(&a);
    by_lines_close(&b);
    return s;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct builder {
    by_docs_writer out;
    const by_tokenizer *tokenizer;
    const char *prefix;
    bool back;
    int language;
    by_buf text;
    int64_t bytes;
} builder;

/* What ends a text is there even where the tokenizer does not put it. */
static by_status add_text(builder *b, const char *prefix, span text, bool target)
{
    by_encoding e = {0};
    int eos = by_tokenizer_eos(b->tokenizer);
    by_status s = BY_OK;
    b->text.size = 0;
    by_buf_puts(&b->text, prefix);
    by_buf_put(&b->text, text.text, text.size);
    if (b->text.failed)
        return by_fail(BY_ERR_MEMORY, "out of memory for a line of %zu bytes", text.size);
    if (text.size)
        s = by_tokenizer_encode_with(b->tokenizer, b->text.data, b->text.size,
                                     &(by_encode_spec){.special = true, .whole = true, .target = target}, &e);
    if (s == BY_OK && e.ids.count && eos >= 0 && e.ids.data[e.ids.count - 1] != eos)
        s = by_ids_push(&e.ids, eos);
    b->bytes += (int64_t)b->text.size;
    if (s == BY_OK)
        s = by_docs_sentence(&b->out, &e.ids);
    by_encoding_free(&e);
    return s;
}

static by_status add_pair(void *user, span source, span target)
{
    builder *b = user;
    BY_TRY(add_text(b, b->prefix, b->back ? target : source, b->back));
    BY_TRY(add_text(b, "", b->back ? source : target, !b->back));
    by_docs_document(&b->out, b->language);
    return BY_OK;
}

static by_status add_item(builder *b, const by_parallel_item *item, const by_parallel_spec *spec, bool back)
{
    b->prefix = back ? item->back : item->prefix;
    b->back = back;
    BY_TRY(each_pair(item, spec, add_pair, b));
    b->language++;
    return BY_OK;
}

by_status by_parallel_build(const by_tokenizer *t, const by_parallel_spec *spec, const char *shard,
                            const char *index, int64_t *bytes, int64_t *tokens)
{
    builder b = {.tokenizer = t};
    by_status s = by_docs_begin(&b.out, shard, by_tokenizer_ids(t));
    for (int i = 0; i < spec->count && s == BY_OK; i++) {
        s = add_item(&b, &spec->items[i], spec, false);
        if (s == BY_OK && spec->items[i].back)
            s = add_item(&b, &spec->items[i], spec, true);
    }
    *bytes = b.bytes;
    *tokens = b.out.shard.tokens;
    s = by_docs_finish(&b.out, index, s);
    by_buf_free(&b.text);
    return s;
}

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct printer {
    by_writer out;
    const by_parallel_item *item;
    by_side side;
} printer;

static by_status put_line(printer *p, const char *prefix, span text)
{
    BY_TRY(by_writer_put(&p->out, prefix, strlen(prefix)));
    BY_TRY(by_writer_put(&p->out, text.text, text.size));
    return by_writer_put(&p->out, "\n", 1);
}

static by_status put_pair(void *user, span source, span target)
{
    printer *p = user;
    if (p->side != BY_SIDE_TARGET)
        BY_TRY(put_line(p, p->item->prefix, source));
    return p->side == BY_SIDE_SOURCE ? BY_OK : put_line(p, p->item->back ? p->item->back : "", target);
}

by_status by_parallel_text(const by_parallel_spec *spec, by_side side, const char *path)
{
    printer p = {.side = side};
    by_status s = by_writer_open(&p.out, path);
    for (int i = 0; i < spec->count && s == BY_OK; i++) {
        p.item = &spec->items[i];
        s = each_pair(p.item, spec, put_pair, &p);
    }
    if (s == BY_OK)
        return by_writer_finish(&p.out);
    by_writer_abort(&p.out);
    return s;
}

/* ---- strings --------------------------------------------------------------------------------- */

static by_status grow(by_pairs *p)
{
    const int capacity = p->capacity ? 2 * p->capacity : 1024;
    char **sources = by_resize(p->sources, (size_t)capacity, sizeof *sources);
    if (!sources)
        return BY_ERR_MEMORY;
    p->sources = sources;
    char **targets = by_resize(p->targets, (size_t)capacity, sizeof *targets);
    if (!targets)
        return BY_ERR_MEMORY;
    p->targets = targets;
    p->capacity = capacity;
    return BY_OK;
}

static by_status keep_pair(void *user, span source, span target)
{
    by_pairs *p = user;
    if (p->count == p->capacity)
        BY_TRY(grow(p));
    p->sources[p->count] = by_arena_sprintf(p->arena, "%.*s", (int)source.size, source.text);
    p->targets[p->count] = by_arena_sprintf(p->arena, "%.*s", (int)target.size, target.text);
    return p->sources[p->count] && p->targets[p->count++] ? BY_OK : BY_ERR_MEMORY;
}

by_status by_parallel_read(const by_parallel_spec *spec, by_pairs *out)
{
    *out = (by_pairs){.arena = by_arena_new()};
    by_status s = out->arena ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < spec->count && s == BY_OK; i++)
        s = each_pair(&spec->items[i], spec, keep_pair, out);
    return s;
}

void by_pairs_free(by_pairs *p)
{
    by_free(p->sources);
    by_free(p->targets);
    by_arena_free(p->arena);
    *p = (by_pairs){0};
}
