/* docs.c - see docs.h. The index is a file of 64-bit little-endian numbers: magic, number of sentences,
 * number of documents; the start of each sentence and the end of the last; the first sentence of each
 * document and the end of the last; the language of each document. */
#include "data/docs.h"

#include <math.h>

#include "base/input.h"

#define MAGIC     INT64_C(0x31736f4344796e42) /* "BnyDCos1" */
#define MAX_LINES (INT64_C(1) << 40)

/* ---- sentences ------------------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (uint8_t)c >= 0x80;
}

/* Returns the number of bytes of a closing quote or bracket at s, or 0. */
static size_t closing(const char *s, size_t n)
{
    static const char *const marks[] = {"\"", "'", ")", "]", "\xe2\x80\x9d", "\xe2\x80\x99", "\xc2\xbb"};
    for (int i = 0; i < BY_COUNT(marks); i++) {
        size_t k = strlen(marks[i]);
        if (k <= n && memcmp(s, marks[i], k) == 0)
            return k;
    }
    return 0;
}

static bool is_initial(const char *s, size_t stop)
{
    return s[stop] == '.' && stop >= 1 && is_letter(s[stop - 1]) && (uint8_t)s[stop - 1] < 0x80 &&
           (stop == 1 || is_space(s[stop - 2]) || s[stop - 2] == '.');
}

size_t data_sentence_end(const char *s, size_t n, size_t start)
{
    for (size_t i = start; i < n; i++) {
        if (!strchr(".!?", s[i]) || !s[i] || is_initial(s, i))
            continue;
        size_t end = i + 1, next;
        while (end < n && s[end] && strchr(".!?", s[end]))
            end++;
        for (size_t k; end < n && (k = closing(s + end, n - end)) > 0;)
            end += k;
        for (next = end; next < n && is_space(s[next]);)
            next++;
        if (next == n)
            return n;
        if (next > end && !(s[next] >= 'a' && s[next] <= 'z') && !strchr(",;:", s[next]))
            return end;
        i = end - 1;
    }
    return n;
}

/* ---- building -------------------------------------------------------------------------------- */

static void put_number(base_buf *b, int64_t v)
{
    base_buf_put(b, &v, sizeof v);
}

by_status data_docs_begin(data_docs_writer *w, const char *shard, int vocab_size)
{
    *w = (data_docs_writer){0};
    return data_shard_begin(&w->shard, shard, vocab_size);
}

by_status data_docs_sentence(data_docs_writer *w, by_ids *ids)
{
    put_number(&w->starts, w->shard.tokens);
    w->sentences++;
    return data_shard_put(&w->shard, ids);
}

void data_docs_document(data_docs_writer *w, int language)
{
    if (w->sentences == w->first)
        return;
    put_number(&w->firsts, w->first);
    put_number(&w->languages, language);
    w->documents++;
    w->first = w->sentences;
}

static by_status write_index(data_docs_writer *w, const char *path)
{
    base_buf out = {0};
    put_number(&out, MAGIC);
    put_number(&out, w->sentences);
    put_number(&out, w->documents);
    put_number(&w->starts, w->shard.tokens);
    put_number(&w->firsts, w->sentences);
    base_buf *parts[] = {&w->starts, &w->firsts, &w->languages};
    for (int i = 0; i < BY_COUNT(parts); i++) {
        base_buf_put(&out, parts[i]->data, parts[i]->size);
        out.failed = out.failed || parts[i]->failed;
    }
    by_status s = out.failed ? base_fail(BY_ERR_MEMORY, "out of memory for an index of %lld sentences",
                                         (long long)w->sentences)
                             : base_file_write(path, out.data, out.size);
    base_buf_free(&out);
    return s;
}

by_status data_docs_finish(data_docs_writer *w, const char *index, by_status so_far)
{
    by_status s = so_far == BY_OK ? write_index(w, index) : so_far;
    if (s == BY_OK)
        s = data_shard_finish(&w->shard);
    else
        data_shard_abort(&w->shard);
    base_buf_free(&w->starts);
    base_buf_free(&w->firsts);
    base_buf_free(&w->languages);
    return s;
}

/* ---- from plain text ------------------------------------------------------------------------- */

typedef struct builder {
    data_docs_writer out;
    const by_tokenizer *tokenizer;
    bool parallel;
    by_ids ids;
    base_buf text;
    int64_t bytes;
} builder;

/* Sentences after the first of a document are encoded with the preceding space, which byte-level tokenizers
 * see. */
static by_status add_sentence(builder *b, const char *text, size_t size)
{
    b->text.size = 0;
    if (b->out.sentences > b->out.first)
        base_buf_puts(&b->text, " ");
    base_buf_put(&b->text, text, size);
    if (b->text.failed)
        return base_fail(BY_ERR_MEMORY, "out of memory for a line of %zu bytes", size);
    BY_TRY(tok_encode(b->tokenizer, b->text.data, b->text.size, &b->ids));
    if (!b->ids.count && !b->parallel)
        return BY_OK;
    return data_docs_sentence(&b->out, &b->ids);
}

static by_status add_line(builder *b, const char *line, size_t size)
{
    while (size && is_space(line[size - 1]))
        size--;
    while (size && is_space(*line)) {
        line++;
        size--;
    }
    if (b->parallel)
        return add_sentence(b, line, size);
    for (size_t at = 0; at < size;) {
        size_t end = data_sentence_end(line, size, at);
        BY_TRY(add_sentence(b, line + at, end - at));
        for (at = end; at < size && is_space(line[at]);)
            at++;
    }
    return BY_OK;
}

static bool is_blank(const char *line, size_t size)
{
    while (size && is_space(line[size - 1]))
        size--;
    return size == 0;
}

/* Checks whether the file has blank lines between others. */
static by_status find_blank_lines(base_lines *l, bool *found)
{
    bool before = false, blank = false;
    for (bool more = true; !*found;) {
        BY_TRY(base_lines_next(l, &more));
        if (!more)
            return BY_OK;
        const bool is = is_blank(l->text, l->size);
        *found = blank && !is;
        blank = before && is;
        before = before || !is;
    }
    return BY_OK;
}

static by_status add_lines(builder *b, const data_docs_file *file, base_lines *l, bool blocks)
{
    for (bool more = true;;) {
        BY_TRY(base_lines_next(l, &more));
        if (!more)
            break;
        if (add_line(b, l->text, l->size) != BY_OK)
            return base_fail_context("%s, line %lld", file->path, (long long)l->number);
        if (!blocks || is_blank(l->text, l->size))
            data_docs_document(&b->out, file->language);
        b->bytes += (int64_t)l->size + 1;
    }
    data_docs_document(&b->out, file->language);
    return BY_OK;
}

/* Reads the file twice: whether blank lines separate documents is only known after one was seen. */
static by_status add_file(builder *b, const data_docs_file *file)
{
    base_lines l;
    bool blocks = false;
    by_status s = base_lines_open(&l, file->path);
    if (s == BY_OK && !b->parallel) {
        s = find_blank_lines(&l, &blocks);
        base_lines_close(&l);
        if (s == BY_OK)
            s = base_lines_open(&l, file->path);
    }
    if (s == BY_OK)
        s = add_lines(b, file, &l, blocks);
    base_lines_close(&l);
    return s;
}

/* Checks that every language has as many lines as the first. */
static by_status check_parallel(const builder *b, const data_docs_spec *spec)
{
    const int64_t *languages = (const int64_t *)(const void *)b->out.languages.data;
    int last = spec->files[spec->count - 1].language;
    int64_t count[2] = {0, 0};
    for (int l = 0; l <= last; l++) {
        count[l > 0] = 0;
        for (int64_t i = 0; i < b->out.documents; i++)
            count[l > 0] += languages[i] == l;
        if (l && count[1] != count[0]) {
            int k = 0;
            while (spec->files[k].language != l)
                k++;
            return base_fail(
                BY_ERR_FORMAT,
                "%s has %lld lines but %s has %lld; parallel files need the same number of lines",
                spec->files[0].path, (long long)count[0], spec->files[k].path, (long long)count[1]);
        }
    }
    return BY_OK;
}

static by_status build(builder *b, const data_docs_spec *spec)
{
    for (int i = 0; i < spec->count; i++)
        BY_TRY(add_file(b, &spec->files[i]));
    if (b->out.documents == 0)
        return base_fail(BY_ERR_FORMAT, "%s: no text", spec->files[0].path);
    if (spec->parallel && !b->out.languages.failed)
        BY_TRY(check_parallel(b, spec));
    return BY_OK;
}

by_status data_docs_build(const by_tokenizer *t, const data_docs_spec *spec, const char *shard,
                          const char *index, int64_t *bytes, int64_t *tokens)
{
    builder b = {.tokenizer = t, .parallel = spec->parallel};
    by_status s = data_docs_begin(&b.out, shard, by_tokenizer_vocab_size(t));
    if (s == BY_OK)
        s = build(&b, spec);
    *bytes = b.bytes;
    *tokens = b.out.shard.tokens;
    s = data_docs_finish(&b.out, index, s);
    tok_ids_free(&b.ids);
    base_buf_free(&b.text);
    return s;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* True if values never decrease, the first is 0, and the last is `end`. */
static bool is_rising(const int64_t *v, int64_t n, int64_t end)
{
    for (int64_t i = 1; i < n; i++)
        if (v[i] < v[i - 1])
            return false;
    return n > 0 && v[0] == 0 && v[n - 1] == end;
}

static by_status read_index(data_docs *d, const int64_t *v, size_t size, const char *path)
{
    int64_t count = (int64_t)(size / sizeof *v);
    if (size % sizeof *v || count < 3 || v[0] != MAGIC || v[1] < 1 || v[2] < 1 || v[1] > MAX_LINES ||
        v[2] > MAX_LINES || count != 3 + (v[1] + 1) + (v[2] + 1) + v[2])
        return base_fail(BY_ERR_FORMAT, "%s is not an index of sentences, or is truncated", path);
    const int64_t *starts = v + 3, *firsts = starts + v[1] + 1, *languages = firsts + v[2] + 1;
    d->sentences = v[1];
    d->count = v[2];
    if (!is_rising(starts, d->sentences + 1, data_tokens_count(d->tokens)) ||
        !is_rising(firsts, d->count + 1, d->sentences))
        return base_fail(BY_ERR_FORMAT, "%s does not match the token file next to it", path);
    d->starts = base_alloc((size_t)(d->sentences + 1) * sizeof *d->starts);
    d->list = base_alloc_zero((size_t)d->count, sizeof *d->list);
    if (!d->starts || !d->list)
        return BY_ERR_MEMORY;
    memcpy(d->starts, starts, (size_t)(d->sentences + 1) * sizeof *d->starts);
    for (int64_t i = 0; i < d->count; i++) {
        if (languages[i] < 0 || languages[i] > UINT16_MAX || (i && languages[i] < languages[i - 1]))
            return base_fail(BY_ERR_FORMAT, "%s: document %lld has no language", path, (long long)i);
        d->list[i] = (data_document){firsts[i], firsts[i + 1], (int)languages[i]};
    }
    return BY_OK;
}

by_status data_docs_open(data_docs *d, const char *shard, const char *index, int vocab_size)
{
    base_map map;
    *d = (data_docs){.tokens = data_tokens_open(&shard, 1, vocab_size)};
    if (!d->tokens)
        return base_error_status();
    by_status s = base_map_open(&map, index);
    if (s == BY_OK) {
        s = read_index(d, (const int64_t *)(const void *)map.data, map.size, index);
        base_map_close(&map);
    }
    if (s != BY_OK)
        data_docs_close(d);
    return s;
}

void data_docs_close(data_docs *d)
{
    data_tokens_free(d->tokens);
    base_free(d->starts);
    base_free(d->list);
    *d = (data_docs){0};
}

/* ---- parts ----------------------------------------------------------------------------------- */

void data_docs_part_free(data_docs_part *p)
{
    base_free(p->list);
    *p = (data_docs_part){0};
}

static void take(data_docs_part *p, data_document doc)
{
    if (doc.first == doc.end)
        return;
    p->list[p->count++] = doc;
    p->tokens += p->all->starts[doc.end] - p->all->starts[doc.first];
}

/* Splits documents [from, to), which are of one language. */
static void split_language(const data_docs *d, int64_t from, int64_t to, double fraction, bool parallel,
                           data_docs_part *train, data_docs_part *held)
{
    int64_t begin = d->starts[d->list[from].first], end = d->starts[d->list[to - 1].end];
    int64_t cut = begin + (int64_t)floor((double)(end - begin) * (1 - fraction));
    int64_t whole = from + (int64_t)floor((double)(to - from) * (1 - fraction));
    for (int64_t i = from; i < to; i++) {
        data_document a = d->list[i], b = a;
        if (parallel) {
            take(i < whole ? train : held, a);
            continue;
        }
        while (a.end > a.first && d->starts[a.end] > cut && fraction > 0)
            a.end--;
        b.first = a.end;
        take(train, a);
        take(held, b);
    }
}

by_status data_docs_split(const data_docs *d, double fraction, bool parallel, data_docs_part *train,
                          data_docs_part *held)
{
    *train = *held = (data_docs_part){.all = d};
    train->list = base_alloc((size_t)d->count * sizeof *train->list);
    held->list = base_alloc((size_t)d->count * sizeof *held->list);
    if (!train->list || !held->list)
        return BY_ERR_MEMORY;
    for (int64_t from = 0, to; from < d->count; from = to) {
        for (to = from; to < d->count && d->list[to].language == d->list[from].language;)
            to++;
        split_language(d, from, to, fraction, parallel, train, held);
    }
    return BY_OK;
}

by_status data_docs_entropy(const data_docs_part *p, int vocab_size, double *nats)
{
    int32_t ids[1024];
    int64_t *counts = base_alloc_zero((size_t)vocab_size, sizeof *counts), total = 0;
    if (!counts)
        return BY_ERR_MEMORY;
    by_status s = BY_OK;
    for (int64_t i = 0; i < p->count && s == BY_OK; i++) {
        int64_t at = p->all->starts[p->list[i].first], end = p->all->starts[p->list[i].end];
        for (int64_t n; at < end && s == BY_OK; at += n) {
            n = BY_MIN(end - at, (int64_t)BY_COUNT(ids));
            s = data_tokens_read(p->all->tokens, at, n, ids);
            for (int64_t k = 0; k < n && s == BY_OK; k++)
                counts[ids[k]]++;
            total += n;
        }
    }
    *nats = 0;
    for (int i = 0; i < vocab_size; i++)
        if (counts[i])
            *nats -= (double)counts[i] / (double)total * log((double)counts[i] / (double)total);
    base_free(counts);
    return s;
}
