/* count.c - counts the n-grams of the highest order. The words of an n-gram are stored from the last to the
 * first, so that sorting them brings n-grams with a common suffix together. A sentence begins after order - 1
 * times <s> and ends with </s>. */
#include <unistd.h>

#include "base/input.h"
#include "data/tokens.h"
#include "ngram/ngram.h"
#include "text/tokenizer.h"

/* A record: its words, then the count as two u32. */
static void add_counts(void *into, const void *from, int words)
{
    uint64_t a, b;
    memcpy(&a, (char *)into + 4 * words, 8);
    memcpy(&b, (const char *)from + 4 * words, 8);
    a += b;
    memcpy((char *)into + 4 * words, &a, 8);
}

enum { FOUND = 32 };

typedef struct found_word {
    size_t begin, size;
    uint64_t hash;
} found_word;

typedef struct corpus {
    ngram_job *job;
    found_word found[FOUND];
    int count;
    by_ids ids;                              /* tokens of a line */
    uint32_t record[BY_NGRAM_MAX_ORDER + 2]; /* the last words, the newest first, and a count of 1 */
} corpus;

static by_status push(corpus *c, uint32_t word)
{
    const int n = c->job->order;
    memmove(c->record + 1, c->record, (size_t)(n - 1) * sizeof *c->record);
    c->record[0] = word;
    return ngram_sorter_count(c->job->counts, c->record);
}

static by_status push_word(corpus *c, const base_lines *l, const found_word *f)
{
    uint32_t id;
    BY_TRY(ngram_words_add(c->job->vocabulary, l->text + f->begin, f->size, f->hash, &id));
    if (id >= NGRAM_SPECIAL) {
        c->job->result->tokens++;
        return push(c, id);
    }
    return c->job->spec->skip_symbols
               ? BY_OK
               : base_fail(
                     BY_ERR_FORMAT,
                     "%s:%lld: the text contains the reserved symbol %s; remove it, or skip such symbols",
                     base_input_name(l->path), (long long)l->number,
                     ngram_words_name(c->job->vocabulary, id));
}

/* The next words of a line, at most FOUND; returns the position after them. */
static size_t find_words(corpus *c, const base_lines *l, size_t at)
{
    c->count = 0;
    while (at < l->size && c->count < FOUND) {
        while (at < l->size && ngram_is_space(l->text[at]))
            at++;
        const size_t begin = at;
        while (at < l->size && !ngram_is_space(l->text[at]))
            at++;
        if (at == begin)
            break;
        found_word *f = &c->found[c->count++];
        *f = (found_word){begin, at - begin, ngram_words_hash(l->text + begin, at - begin)};
        ngram_words_fetch(c->job->vocabulary, f->hash);
    }
    return at;
}

/* Several words are looked up at once, to overlap memory latency. */
static by_status push_words(corpus *c, const base_lines *l)
{
    for (size_t at = 0; at < l->size;) {
        at = find_words(c, l, at);
        for (int i = 0; i < c->count; i++)
            ngram_words_fetch_text(c->job->vocabulary, c->found[i].hash);
        for (int i = 0; i < c->count; i++)
            BY_TRY(push_word(c, l, &c->found[i]));
    }
    return BY_OK;
}

static void begin_sentence(corpus *c)
{
    for (int i = 0; i < c->job->order; i++)
        c->record[i] = NGRAM_BOS;
}

static by_status end_sentence(corpus *c)
{
    c->job->result->sentences++;
    return push(c, NGRAM_EOS);
}

/* An end-of-text token ends a sentence, unless none has begun. */
static by_status push_token(corpus *c, int32_t token, int32_t eos)
{
    if (token != eos) {
        c->job->result->tokens++;
        return push(c, NGRAM_SPECIAL + (uint32_t)token);
    }
    if (c->record[0] != NGRAM_BOS)
        BY_TRY(end_sentence(c));
    begin_sentence(c);
    return BY_OK;
}

/* The tokens of a line. */
static by_status push_tokens(corpus *c, const base_lines *l)
{
    c->ids.count = 0;
    BY_TRY(tok_encode(c->job->tokenizer, l->text, l->size, &c->ids));
    for (size_t i = 0; i < c->ids.count; i++)
        BY_TRY(push_token(c, c->ids.data[i], by_tokenizer_eos(c->job->tokenizer)));
    return BY_OK;
}

static by_status count_line(corpus *c, const base_lines *l)
{
    begin_sentence(c);
    BY_TRY(c->job->tokenizer ? push_tokens(c, l) : push_words(c, l));
    return end_sentence(c);
}

static by_status count_lines(corpus *c, const char *path)
{
    base_lines l;
    BY_TRY(base_lines_open(&l, path));
    bool more = true;
    by_status status = base_lines_next(&l, &more);
    for (; status == BY_OK && more; status = status == BY_OK ? base_lines_next(&l, &more) : status) {
        status = count_line(c, &l);
        if (status == BY_OK && l.number % 4096 == 0)
            status = ngram_report(c->job, c->job->result->tokens);
    }
    base_lines_close(&l);
    return status;
}

/* A file, or all that match a pattern. */
static by_status count_file(corpus *c, const char *pattern)
{
    char **paths = NULL;
    int n = 0;
    if (strcmp(pattern, "-") == 0)
        return count_lines(c, pattern);
    by_status s = base_glob(pattern, &paths, &n);
    for (int i = 0; i < n && s == BY_OK; i++)
        s = count_lines(c, paths[i]);
    base_paths_free(paths, n);
    return s;
}

/* ---- tokens ------------------------------------------------------------------------------------------ */

/* Token i is word NGRAM_SPECIAL + i, by the order in which they are added. */
static by_status add_vocabulary(ngram_job *j)
{
    char name[16];
    uint32_t id;
    for (int i = 0; i < by_tokenizer_vocab_size(j->tokenizer); i++) {
        const int n = base_format(name, sizeof name, "%d", i);
        BY_TRY(ngram_words_add(j->vocabulary, name, (size_t)n, ngram_words_hash(name, (size_t)n), &id));
    }
    return BY_OK;
}

static by_status count_stream(corpus *c, const data_tokens *tokens)
{
    const int32_t eos = by_tokenizer_eos(c->job->tokenizer);
    const int64_t count = data_tokens_count(tokens);
    int32_t ids[4096];
    begin_sentence(c);
    for (int64_t at = 0; at < count; at += BY_COUNT(ids)) {
        const int64_t n = BY_MIN(count - at, BY_COUNT(ids));
        BY_TRY(data_tokens_read(tokens, at, n, ids));
        for (int64_t i = 0; i < n; i++)
            BY_TRY(push_token(c, ids[i], eos));
        BY_TRY(ngram_report(c->job, c->job->result->tokens));
    }
    return c->record[0] == NGRAM_BOS ? BY_OK : end_sentence(c);
}

/* Text goes through a shard of tokens, which is open when its folder is removed. */
static data_tokens *open_text(const ngram_job *j, const char *const *files, int count)
{
    char *name = base_path_join(j->dir, "banyan-ngram-tokens");
    char *dir = name ? base_sprintf("%s.tmp-%ld", name, (long)getpid()) : NULL;
    char *path = dir ? base_path_join(dir, "text.bin") : NULL;
    data_tokens *t = NULL;
    if (name)
        base_file_remove_leftovers(name);
    if (path && base_dir_make(dir) == BY_OK &&
        data_tokens_build(j->tokenizer, files, count, path, NULL, NULL) == BY_OK)
        t = data_tokens_open((const char *const[]){path}, 1, by_tokenizer_vocab_size(j->tokenizer));
    if (dir)
        base_dir_remove(dir);
    base_free(path);
    base_free(dir);
    base_free(name);
    return t;
}

static data_tokens *open_tokens(const ngram_job *j, const char *const *files, int count)
{
    if (count && data_tokens_is_shard(files[0]))
        return data_tokens_open(files, count, by_tokenizer_vocab_size(j->tokenizer));
    return open_text(j, files, count);
}

static by_status count_tokens(corpus *c, const char *const *files, int count)
{
    if (count && c->job->spec->lines && data_tokens_is_shard(files[0]))
        return base_fail(BY_ERR_ARGUMENT, "a shard of tokens has no lines");
    data_tokens *t = open_tokens(c->job, files, count);
    by_status s = t ? count_stream(c, t) : base_error_status();
    data_tokens_free(t);
    return s;
}

by_status ngram_count(ngram_job *j, const char *const *files, int count)
{
    corpus c = {.job = j};
    const uint64_t one = 1;
    memcpy(c.record + j->order, &one, sizeof one);
    j->counts = ngram_sorter_new(&(ngram_sorter_spec){.words = j->order,
                                                      .record = 4 * (size_t)j->order + 8,
                                                      .budget = j->budget / 4 * 3,
                                                      .threads = j->threads,
                                                      .merge = add_counts,
                                                      .dir = j->dir});
    by_status s = j->counts ? BY_OK : base_error_status();
    if (s == BY_OK && j->tokenizer)
        s = add_vocabulary(j);
    if (s == BY_OK && j->tokenizer && !j->spec->lines)
        s = count_tokens(&c, files, count);
    for (int i = 0; i < count && s == BY_OK && (!j->tokenizer || j->spec->lines); i++)
        s = count_file(&c, files[i]);
    tok_ids_free(&c.ids);
    if (s == BY_OK && j->result->tokens == 0)
        s = base_fail(BY_ERR_FORMAT, "the text has no words");
    return s == BY_OK ? ngram_sorter_finish(j->counts) : s;
}
