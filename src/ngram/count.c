/* count.c - counts the n-grams of the highest order. The words of an n-gram are stored from the last to the first, so
 * that sorting them brings n-grams with a common suffix together. A sentence begins after order - 1 times <s> and
 * ends with </s>. */
#include "base/input.h"
#include "data/tokens.h"
#include "ngram/ngram.h"

/* A record: its words, then the count as two u32. */
static void add_counts(void *into, const void *from, int words)
{
    uint64_t a, b;
    memcpy(&a, (char *)into + 4 * words, 8);
    memcpy(&b, (const char *)from + 4 * words, 8);
    a += b;
    memcpy((char *)into + 4 * words, &a, 8);
}

typedef struct corpus {
    ngram_job *job;
    uint32_t record[BY_NGRAM_MAX_ORDER + 2]; /* the last words, the newest first, and a count of 1 */
} corpus;

static by_status push(corpus *c, uint32_t word)
{
    const int n = c->job->order;
    memmove(c->record + 1, c->record, (size_t)(n - 1) * sizeof *c->record);
    c->record[0] = word;
    return ngram_sorter_count(c->job->counts, c->record);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' || c == '\0';
}

static by_status push_text(corpus *c, const base_lines *l, const char *word, size_t n)
{
    uint32_t id;
    BY_TRY(ngram_words_add(c->job->vocabulary, word, n, &id));
    if (id >= NGRAM_SPECIAL) {
        c->job->result->tokens++;
        return push(c, id);
    }
    return c->job->spec->skip_symbols
               ? BY_OK
               : base_fail(
                     BY_ERR_FORMAT,
                     "%s:%lld: the text contains %s, which has a meaning of its own; remove it, or skip such "
                     "symbols",
                     base_input_name(l->path), (long long)l->number,
                     ngram_words_name(c->job->vocabulary, id));
}

static by_status push_words(corpus *c, const base_lines *l)
{
    for (size_t at = 0; at < l->size;) {
        while (at < l->size && is_space(l->text[at]))
            at++;
        const size_t begin = at;
        while (at < l->size && !is_space(l->text[at]))
            at++;
        if (at > begin)
            BY_TRY(push_text(c, l, l->text + begin, at - begin));
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

static by_status count_line(corpus *c, const base_lines *l)
{
    begin_sentence(c);
    BY_TRY(push_words(c, l));
    return end_sentence(c);
}

static by_status count_file(corpus *c, const char *path)
{
    base_lines l;
    const by_ngram_spec *s = c->job->spec;
    BY_TRY(base_lines_open(&l, path));
    bool more = true;
    by_status status = base_lines_next(&l, &more);
    for (; status == BY_OK && more; status = status == BY_OK ? base_lines_next(&l, &more) : status) {
        status = count_line(c, &l);
        if (status == BY_OK && l.number % 4096 == 0 && s->cancelled && s->cancelled(s->user))
            status = base_fail(BY_ERR_CANCELLED, "interrupted while counting");
        if (l.number % 65536 == 0 && s->progress)
            s->progress(s->user, "counting", c->job->result->tokens);
    }
    base_lines_close(&l);
    return status;
}

/* ---- tokens ------------------------------------------------------------------------------------------ */

/* Token i is word NGRAM_SPECIAL + i, by the order in which they are added. */
static by_status add_vocabulary(ngram_job *j)
{
    char name[16];
    uint32_t id;
    for (int i = 0; i < by_tokenizer_vocab_size(j->tokenizer); i++) {
        const int n = base_format(name, sizeof name, "%d", i);
        BY_TRY(ngram_words_add(j->vocabulary, name, (size_t)n, &id));
    }
    return BY_OK;
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

static by_status count_stream(corpus *c, const data_tokens *tokens)
{
    const by_ngram_spec *s = c->job->spec;
    const int32_t eos = by_tokenizer_eos(c->job->tokenizer);
    const int64_t count = data_tokens_count(tokens);
    int32_t ids[4096];
    begin_sentence(c);
    for (int64_t at = 0; at < count; at += BY_COUNT(ids)) {
        const int64_t n = BY_MIN(count - at, BY_COUNT(ids));
        BY_TRY(data_tokens_read(tokens, at, n, ids));
        for (int64_t i = 0; i < n; i++)
            BY_TRY(push_token(c, ids[i], eos));
        if (s->cancelled && s->cancelled(s->user))
            return base_fail(BY_ERR_CANCELLED, "interrupted while counting");
        if (s->progress && at / BY_COUNT(ids) % 64 == 0)
            s->progress(s->user, "counting", c->job->result->tokens);
    }
    return c->record[0] == NGRAM_BOS ? BY_OK : end_sentence(c);
}

/* Text goes through a shard of tokens, which is open when its folder is removed. */
static data_tokens *open_tokens(const ngram_job *j, const char *const *files, int count)
{
    const int vocab = by_tokenizer_vocab_size(j->tokenizer);
    if (count && data_tokens_is_shard(files[0]))
        return data_tokens_open(files, count, vocab);
    char *dir = base_dir_temporary("ngram"), *path = dir ? base_path_join(dir, "text.bin") : NULL;
    data_tokens *t = NULL;
    if (path && data_tokens_build(j->tokenizer, files, count, path, NULL, NULL) == BY_OK)
        t = data_tokens_open((const char *const[]){path}, 1, vocab);
    if (dir)
        base_dir_remove(dir);
    base_free(path);
    base_free(dir);
    return t;
}

static by_status count_tokens(corpus *c, const char *const *files, int count)
{
    BY_TRY(add_vocabulary(c->job));
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
                                                      .budget = j->budget,
                                                      .threads = j->threads,
                                                      .merge = add_counts,
                                                      .dir = j->dir});
    by_status s = j->counts ? BY_OK : base_error_status();
    if (s == BY_OK && j->tokenizer)
        s = count_tokens(&c, files, count);
    for (int i = 0; i < count && s == BY_OK && !j->tokenizer; i++)
        s = count_file(&c, files[i]);
    if (s == BY_OK && j->result->tokens == 0)
        s = base_fail(BY_ERR_FORMAT, "the text has no words");
    return s == BY_OK ? ngram_sorter_finish(j->counts) : s;
}
