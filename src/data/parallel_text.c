/* parallel_text.c - see parallel_text.h. */
#include "data/parallel_text.h"

#include <stdlib.h>

#include "base/input.h"
#include "base/json.h"

typedef struct span {
    const char *text;
    size_t size;
} span;

typedef by_status pair_fn(void *user, span source, span target);

/* ---- reading --------------------------------------------------------------------------------- */

bool data_parallel_is_table(const char *path)
{
    static const char *const endings[] = {".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet"};
    for (int i = 0; i < BY_COUNT(endings); i++)
        if (base_input_ends(path, endings[i]))
            return true;
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Reads the next line without surrounding space; *there is false after the last. */
static by_status next_line(base_lines *l, span *out, bool *there)
{
    BY_TRY(base_lines_next(l, there));
    if (!*there)
        return BY_OK;
    const char *text = l->text;
    size_t n = l->size;
    for (size_t i = 0, k; i < n; i += k) {
        k = base_json_utf8(text + i, n - i);
        if (!k || !text[i])
            return base_fail(
                BY_ERR_FORMAT,
                "%s, line %lld: byte %zu (0x%02x) is not UTF-8 text; convert the file with iconv", l->path,
                (long long)l->number, i + 1, (unsigned)(uint8_t)text[i]);
    }
    for (; n && is_space(*text); n--)
        text++;
    while (n && is_space(text[n - 1]))
        n--;
    *out = (span){text, n};
    return BY_OK;
}

static int64_t count_rest(base_lines *l)
{
    span line;
    for (bool there = true; there && next_line(l, &line, &there) == BY_OK;)
        ;
    return l->number;
}

static by_status each_line(base_lines *a, base_lines *b, pair_fn *fn, void *user)
{
    for (;;) {
        span source, target;
        bool more[2];
        BY_TRY(next_line(a, &source, &more[0]));
        BY_TRY(next_line(b, &target, &more[1]));
        if (more[0] != more[1])
            return base_fail(
                BY_ERR_FORMAT,
                "%s has %lld lines but %s has %lld; line i of one must be the translation of line "
                "i of the other",
                a->path, (long long)count_rest(a), b->path, (long long)count_rest(b));
        if (!more[0])
            return a->number ? BY_OK : base_fail(BY_ERR_FORMAT, "%s: the file has no text", a->path);
        const by_status s = fn(user, source, target);
        if (s != BY_OK)
            return s == BY_ERR_IO || s == BY_ERR_MEMORY
                       ? s
                       : base_fail_context("%s and %s, line %lld", a->path, b->path, (long long)a->number);
    }
}

/* Returns word number `label` of a comma-separated list. */
static by_status find_word(const data_examples *e, const data_example *x, const char *words, span *out)
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
        return data_examples_fail(
            e, x->line, "no word for the label \"%.60s\"; --label-words must name one for each label, from 0",
            x->labels[0]);
    *out = (span){words, strcspn(words, ",")};
    return BY_OK;
}

static by_status each_row(const data_parallel_item *item, const data_parallel_spec *spec, pair_fn *fn,
                          void *user)
{
    data_examples cases;
    by_status s = data_examples_open(
        &cases, item->source,
        &(by_examples_spec){.kind = BY_EXAMPLE_SEQ2SEQ, .text = spec->text, .label = spec->label});
    if (s == BY_OK && spec->found) {
        data_examples_describe(&cases, spec->found);
        base_buf_puts(spec->found, "\n");
    }
    for (int i = 0; i < cases.count && s == BY_OK; i++) {
        const data_example *x = &cases.list[i];
        span target = {x->labels[0], strlen(x->labels[0])};
        if (spec->words)
            s = find_word(&cases, x, spec->words, &target);
        if (s == BY_OK)
            s = fn(user, (span){x->text, strlen(x->text)}, target);
    }
    data_examples_close(&cases);
    return s;
}

static by_status each_pair(const data_parallel_item *item, const data_parallel_spec *spec, pair_fn *fn,
                           void *user)
{
    if (!item->target)
        return each_row(item, spec, fn, user);
    base_lines a, b = {0};
    by_status s = base_lines_open(&a, item->source);
    if (s == BY_OK)
        s = base_lines_open(&b, item->target);
    if (s == BY_OK)
        s = each_line(&a, &b, fn, user);
    base_lines_close(&a);
    base_lines_close(&b);
    return s;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

typedef struct builder {
    data_docs_writer out;
    const by_tokenizer *tokenizer;
    const char *prefix;
    bool back;
    int language;
    base_buf text;
    int64_t bytes;
} builder;

/* Adds the end token even if the tokenizer does not. */
static by_status add_text(builder *b, const char *prefix, span text, bool target)
{
    by_encoding e = {0};
    int eos = target ? by_tokenizer_eos(b->tokenizer) : by_tokenizer_source_eos(b->tokenizer);
    by_status s = BY_OK;
    b->text.size = 0;
    base_buf_puts(&b->text, prefix);
    base_buf_put(&b->text, text.text, text.size);
    if (b->text.failed)
        return base_fail(BY_ERR_MEMORY, "out of memory for a line of %zu bytes", text.size);
    if (text.size)
        s = by_tokenizer_encode_with(b->tokenizer, b->text.data, b->text.size,
                                     &(by_encode_spec){.special = true, .whole = true, .target = target}, &e);
    if (s == BY_OK && e.ids.count && eos >= 0 && e.ids.data[e.ids.count - 1] != eos)
        s = tok_ids_push(&e.ids, eos);
    b->bytes += (int64_t)b->text.size;
    if (s == BY_OK)
        s = data_docs_sentence(&b->out, &e.ids);
    by_encoding_free(&e);
    return s;
}

static by_status add_pair(void *user, span source, span target)
{
    builder *b = user;
    BY_TRY(add_text(b, b->prefix, b->back ? target : source, b->back));
    BY_TRY(add_text(b, "", b->back ? source : target, !b->back));
    data_docs_document(&b->out, b->language);
    return BY_OK;
}

static by_status add_item(builder *b, const data_parallel_item *item, const data_parallel_spec *spec,
                          bool back)
{
    b->prefix = back ? item->back : item->prefix;
    b->back = back;
    BY_TRY(each_pair(item, spec, add_pair, b));
    b->language++;
    return BY_OK;
}

by_status data_parallel_build(const by_tokenizer *t, const data_parallel_spec *spec, const char *shard,
                              const char *index, int64_t *bytes, int64_t *tokens)
{
    builder b = {.tokenizer = t};
    by_status s = data_docs_begin(&b.out, shard, tok_ids(t));
    for (int i = 0; i < spec->count && s == BY_OK; i++) {
        s = add_item(&b, &spec->items[i], spec, false);
        if (s == BY_OK && spec->items[i].back)
            s = add_item(&b, &spec->items[i], spec, true);
    }
    *bytes = b.bytes;
    *tokens = b.out.shard.tokens;
    s = data_docs_finish(&b.out, index, s);
    base_buf_free(&b.text);
    return s;
}

/* ---- text ------------------------------------------------------------------------------------ */

typedef struct printer {
    base_writer out;
    const data_parallel_item *item;
    data_side side;
} printer;

static by_status put_line(printer *p, const char *prefix, span text)
{
    BY_TRY(base_writer_put(&p->out, prefix, strlen(prefix)));
    BY_TRY(base_writer_put(&p->out, text.text, text.size));
    return base_writer_put(&p->out, "\n", 1);
}

static by_status put_pair(void *user, span source, span target)
{
    printer *p = user;
    if (p->side != DATA_SIDE_TARGET)
        BY_TRY(put_line(p, p->item->prefix, source));
    return p->side == DATA_SIDE_SOURCE ? BY_OK : put_line(p, p->item->back ? p->item->back : "", target);
}

by_status data_parallel_text(const data_parallel_spec *spec, data_side side, const char *path)
{
    printer p = {.side = side};
    by_status s = base_writer_open(&p.out, path);
    for (int i = 0; i < spec->count && s == BY_OK; i++) {
        p.item = &spec->items[i];
        s = each_pair(p.item, spec, put_pair, &p);
    }
    if (s == BY_OK)
        return base_writer_finish(&p.out);
    base_writer_abort(&p.out);
    return s;
}

/* ---- strings --------------------------------------------------------------------------------- */

static by_status grow(data_pairs *p)
{
    const int capacity = p->capacity ? 2 * p->capacity : 1024;
    char **sources = base_resize(p->sources, (size_t)capacity, sizeof *sources);
    if (!sources)
        return BY_ERR_MEMORY;
    p->sources = sources;
    char **targets = base_resize(p->targets, (size_t)capacity, sizeof *targets);
    if (!targets)
        return BY_ERR_MEMORY;
    p->targets = targets;
    p->capacity = capacity;
    return BY_OK;
}

static by_status keep_pair(void *user, span source, span target)
{
    data_pairs *p = user;
    if (p->count == p->capacity)
        BY_TRY(grow(p));
    p->sources[p->count] = base_arena_sprintf(p->arena, "%.*s", (int)source.size, source.text);
    p->targets[p->count] = base_arena_sprintf(p->arena, "%.*s", (int)target.size, target.text);
    return p->sources[p->count] && p->targets[p->count++] ? BY_OK : BY_ERR_MEMORY;
}

by_status data_parallel_read(const data_parallel_spec *spec, data_pairs *out)
{
    *out = (data_pairs){.arena = base_arena_new()};
    by_status s = out->arena ? BY_OK : BY_ERR_MEMORY;
    for (int i = 0; i < spec->count && s == BY_OK; i++)
        s = each_pair(&spec->items[i], spec, keep_pair, out);
    return s;
}

void data_pairs_free(data_pairs *p)
{
    base_free(p->sources);
    base_free(p->targets);
    base_arena_free(p->arena);
    *p = (data_pairs){0};
}
