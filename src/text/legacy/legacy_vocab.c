/* legacy_vocab.c - the vocabularies of directories without tokenizer.json, numbered as in their families. */
#include <stdio.h>

#include "base/file.h"
#include "text/legacy/legacy.h"
#include "text/unicode.h"

/* ---- vocab.json and merges.txt --------------------------------------------------------------- */

static by_status read_vocab_json(tok_legacy *l)
{
    cJSON *vocab = NULL;
    size_t size = 0;
    l->vocab_text = tok_legacy_file(l, "vocab.json", &size);
    if (!l->vocab_text)
        return base_error_status();
    BY_TRY(tok_legacy_read_json(l, "vocab.json", &vocab));
    by_status status = tok_vocab_read(&l->vocab, vocab);
    cJSON_Delete(vocab);
    return status == BY_OK ? BY_OK : base_fail_context("%s/vocab.json", l->dir);
}

static by_status read_merges_txt(tok_legacy *l)
{
    l->merges_text = tok_legacy_file(l, "merges.txt", NULL);
    return l->merges_text ? BY_OK : base_error_status();
}

/* Returns the field of a line that starts at *i, up to white space, and advances *i past it. */
static tok_token next_field(const char *p, size_t n, size_t *i)
{
    uint32_t c;
    size_t k;
    while (*i < n && (k = (size_t)tok_utf8_next(p + *i, n - *i, &c), tok_is_space(c)))
        *i += k;
    tok_token t = {p + *i, 0};
    while (*i < n && (k = (size_t)tok_utf8_next(p + *i, n - *i, &c), !tok_is_space(c)))
        *i += k;
    t.size = (uint32_t)(p + *i - t.text);
    return t;
}

int tok_legacy_merge(const tok_legacy *l, const char **p, tok_token pair[2])
{
    const char *line = *p;
    if (!*line)
        return 0;
    size_t n = strcspn(line, "\n"), i = 0;
    *p = line + n + (line[n] == '\n');
    if (l->family->flavor == TOK_LEGACY_XLM) {
        pair[0] = next_field(line, n, &i);
        pair[1] = next_field(line, n, &i);
        return pair[1].size && line[n] == '\n' ? 1 : -1;
    }
    n -= n > 0 && line[n - 1] == '\r';
    const char *space = memchr(line, ' ', n);
    if (!space || space == line || space == line + n - 1)
        return -1;
    pair[0] = (tok_token){line, (uint32_t)(space - line)};
    pair[1] = (tok_token){space + 1, (uint32_t)(line + n - space - 1)};
    return 1;
}

/* ---- vocab.txt ------------------------------------------------------------------------------- */

/* One token per line; the line number is the id. */
static by_status read_vocab_txt(tok_legacy *l)
{
    size_t size = 0;
    char *text = tok_legacy_file(l, "vocab.txt", &size);
    if (!text)
        return base_error_status();
    by_status status = BY_OK;
    int id = 0;
    for (size_t i = 0; i < size && status == BY_OK; id++) {
        const char *end = memchr(text + i, '\n', size - i);
        size_t n = end ? (size_t)(end - (text + i)) : size - i, next = i + n + 1;
        n -= n > 0 && text[i + n - 1] == '\r';
        status = tok_vocab_put(&l->vocab, text + i, n, id);
        i = next;
    }
    base_free(text);
    return status == BY_OK ? BY_OK : base_fail_context("%s/vocab.txt", l->dir);
}

/* ---- XLM ------------------------------------------------------------------------------------- */

#define XLM_SPECIAL 10

/* Reads lines "word count". "@@" ends a token that is continued, which here is one without "</w>". */
static by_status put_counted(tok_legacy *l, const char *line, size_t n, int number)
{
    size_t size = n;
    while (size > 0 && line[size - 1] != ' ')
        size--;
    if (size < 2 || size == n || strspn(line + size, "0123456789") < n - size)
        return base_fail(BY_ERR_FORMAT, "line %d is not a token and its count", number);
    size--;
    bool inner = size > 2 && memcmp(line + size - 2, "@@", 2) == 0;
    char *token = base_sprintf("%.*s%s", (int)(inner ? size - 2 : size), line, inner ? "" : "</w>");
    if (!token)
        return BY_ERR_MEMORY;
    by_status status = BY_OK;
    if (tok_vocab_find(&l->vocab, token, strlen(token)) < 0)
        status = tok_vocab_put(&l->vocab, token, strlen(token), l->vocab.count);
    base_free(token);
    return status;
}

static by_status put_special(tok_legacy *l)
{
    static const char *const first[] = {"<s>", "</s>", "<pad>", "<unk>"};
    for (int i = 0; i < 4 + XLM_SPECIAL; i++) {
        char text[32];
        int n = i < 4 ? base_format(text, sizeof(text), "%s", first[i])
                      : base_format(text, sizeof(text), "<special%d>", i - 4);
        BY_TRY(tok_vocab_put(&l->vocab, text, (size_t)n, i));
    }
    return BY_OK;
}

static by_status read_counts(tok_legacy *l, const char *path)
{
    char *text = base_file_read(path, (size_t)256 << 20, NULL);
    if (!text)
        return base_error_status();
    by_status status = put_special(l);
    int number = 1;
    for (char *p = text; *p && status == BY_OK; number++) {
        size_t n = strcspn(p, "\n"), next = n + (p[n] == '\n');
        n -= n > 0 && p[n - 1] == '\r';
        if (n)
            status = put_counted(l, p, n, number);
        p += next;
    }
    base_free(text);
    return status == BY_OK ? BY_OK : base_fail_context("%s", path);
}

/* Reads vocab.json, or the only file vocab*.txt as written by XLM itself, with counts. */
static by_status read_xlm_vocab(tok_legacy *l)
{
    if (tok_legacy_has(l, "vocab.json"))
        return read_vocab_json(l);
    char *pattern = base_path_join(l->dir, "vocab*.txt"), **paths = NULL;
    int count = 0;
    by_status status = pattern ? base_glob(pattern, &paths, &count) : BY_ERR_MEMORY;
    if (status == BY_OK && count != 1)
        status = base_fail(BY_ERR_FORMAT, "%s: expected vocab.json or one file vocab*.txt, found %d", l->dir,
                           count);
    if (status == BY_OK)
        status = read_counts(l, paths[0]);
    base_paths_free(paths, count);
    base_free(pattern);
    return status;
}

static by_status put_step(tok_legacy *l, const char *text, size_t size)
{
    return tok_vocab_find(&l->vocab, text, size) >= 0 ? BY_OK
                                                      : tok_vocab_put(&l->vocab, text, size, l->vocab.count);
}

/* Tokens that merges need and the vocabulary lacks get ids after it. */
static by_status put_steps(tok_legacy *l)
{
    const char *p = l->merges_text;
    tok_token pair[2];
    base_buf joined = {0};
    by_status status = BY_OK;
    for (int found; status == BY_OK && (found = tok_legacy_merge(l, &p, pair)) != 0;) {
        if (found < 0)
            continue;
        joined.size = 0;
        base_buf_put(&joined, pair[0].text, pair[0].size);
        base_buf_put(&joined, pair[1].text, pair[1].size);
        status = joined.failed ? base_fail(BY_ERR_MEMORY, "out of memory while reading merges") : BY_OK;
        for (int k = 0; k < 2 && status == BY_OK; k++)
            status = put_step(l, pair[k].text, pair[k].size);
        if (status == BY_OK)
            status = put_step(l, joined.data, joined.size);
    }
    base_buf_free(&joined);
    return status == BY_OK ? BY_OK : base_fail_context("%s/merges.txt", l->dir);
}

static by_status read_xlm(tok_legacy *l)
{
    BY_TRY(read_xlm_vocab(l));
    BY_TRY(read_merges_txt(l));
    l->known = l->vocab.count;
    return put_steps(l);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

static by_status read_spiece(tok_legacy *l)
{
    static const char *const names[] = {"spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
                                        "spm.model"};
    int k = 0;
    while (k < BY_COUNT(names) - 1 && !tok_legacy_has(l, names[k]))
        k++;
    k = tok_legacy_has(l, names[k]) ? k : 0;
    size_t size = 0;
    char *bytes = tok_legacy_file(l, names[k], &size);
    if (!bytes)
        return base_error_status();
    by_status status = tok_spiece_parse(&l->spiece, bytes, size);
    base_free(bytes);
    int wanted = l->family->flavor == TOK_LEGACY_LLAMA ? TOK_SPIECE_BPE : TOK_SPIECE_UNIGRAM;
    if (status == BY_OK && l->spiece.model != wanted)
        status = base_fail(BY_ERR_UNSUPPORTED, "%s requires a %s model, but this one is %s", l->family->class,
                           wanted == TOK_SPIECE_BPE ? "BPE" : "unigram",
                           wanted == TOK_SPIECE_BPE ? "unigram" : "BPE");
    return status == BY_OK ? BY_OK : base_fail_context("%s/%s", l->dir, names[k]);
}

/* XLM-RoBERTa: a special order of the first pieces, and a mask token after the last. */
static by_status number_xlmr(tok_legacy *l)
{
    static const char *const first[] = {"<s>", "<pad>", "</s>", "<unk>"};
    const tok_spiece *m = &l->spiece;
    int id = 0;
    for (; id < BY_COUNT(first); id++)
        BY_TRY(tok_vocab_put(&l->vocab, first[id], strlen(first[id]), id));
    for (int i = 3; i < m->count; i++, id++)
        BY_TRY(tok_vocab_put(&l->vocab, m->vocab.tokens[i].text, m->vocab.tokens[i].size, id));
    return tok_vocab_put(&l->vocab, "<mask>", 6, id);
}

/* T5's sentinels come after the pieces, in reverse order. */
static by_status number_sentinels(tok_legacy *l)
{
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(l->config, "extra_ids");
    bool said = cJSON_IsNumber(extra) && extra->valuedouble >= 0 && extra->valuedouble <= 10000;
    for (int i = (said ? (int)extra->valuedouble : 100) - 1; i >= 0; i--) {
        char text[32];
        int n = base_format(text, sizeof(text), "<extra_id_%d>", i);
        BY_TRY(tok_vocab_put(&l->vocab, text, (size_t)n, l->vocab.count));
    }
    return BY_OK;
}

static by_status read_pieces(tok_legacy *l)
{
    BY_TRY(read_spiece(l));
    const tok_spiece *m = &l->spiece;
    if (l->family->flavor == TOK_LEGACY_XLMR)
        return number_xlmr(l);
    for (int id = 0; id < m->count; id++)
        BY_TRY(tok_vocab_put(&l->vocab, m->vocab.tokens[id].text, m->vocab.tokens[id].size, id));
    return l->family->flavor == TOK_LEGACY_T5 ? number_sentinels(l) : BY_OK;
}

by_status tok_legacy_read_vocab(tok_legacy *l)
{
    switch (l->family->flavor) {
    case TOK_LEGACY_GPT2:
    case TOK_LEGACY_GPT:
    case TOK_LEGACY_ROBERTA:
        BY_TRY(read_vocab_json(l));
        return read_merges_txt(l);
    case TOK_LEGACY_BERT:
        return read_vocab_txt(l);
    case TOK_LEGACY_XLM:
        return read_xlm(l);
    default:
        return read_pieces(l);
    }
}
