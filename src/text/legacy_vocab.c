/* legacy_vocab.c - the vocabularies of directories without tokenizer.json, numbered as their families number
 * them. */
#include <stdio.h>

#include "base/file.h"
#include "text/legacy.h"
#include "text/unicode.h"

/* ---- vocab.json and merges.txt --------------------------------------------------------------- */

static by_status read_vocab_json(by_legacy *l)
{
    cJSON *vocab = NULL;
    size_t size = 0;
    l->vocab_text = by_legacy_file(l, "vocab.json", &size);
    if (!l->vocab_text)
        return by_error_status();
    BY_TRY(by_legacy_read_json(l, "vocab.json", &vocab));
    by_status status = by_vocab_read(&l->vocab, vocab);
    cJSON_Delete(vocab);
    return status == BY_OK ? BY_OK : by_fail_context("%s/vocab.json", l->dir);
}

static by_status read_merges_txt(by_legacy *l)
{
    l->merges_text = by_legacy_file(l, "merges.txt", NULL);
    return l->merges_text ? BY_OK : by_error_status();
}

/* The field of a line that starts at *i, up to white space, and *i behind it. */
static by_token next_field(const char *p, size_t n, size_t *i)
{
    uint32_t c;
    size_t k;
    while (*i < n && (k = (size_t)by_utf8_next(p + *i, n - *i, &c), by_is_space(c)))
        *i += k;
    by_token t = {p + *i, 0};
    while (*i < n && (k = (size_t)by_utf8_next(p + *i, n - *i, &c), !by_is_space(c)))
        *i += k;
    t.size = (uint32_t)(p + *i - t.text);
    return t;
}

int by_legacy_merge(const by_legacy *l, const char **p, by_token pair[2])
{
    const char *line = *p;
    if (!*line)
        return 0;
    size_t n = strcspn(line, "\n"), i = 0;
    *p = line + n + (line[n] == '\n');
    if (l->family->flavor == BY_LEGACY_XLM) {
        pair[0] = next_field(line, n, &i);
        pair[1] = next_field(line, n, &i);
        return pair[1].size && line[n] == '\n' ? 1 : -1;
    }
    n -= n > 0 && line[n - 1] == '\r';
    const char *space = memchr(line, ' ', n);
    if (!space || space == line || space == line + n - 1)
        return -1;
    pair[0] = (by_token){line, (uint32_t)(space - line)};
    pair[1] = (by_token){space + 1, (uint32_t)(line + n - space - 1)};
    return 1;
}

/* ---- vocab.txt ------------------------------------------------------------------------------- */

/* One token a line; the line is the id. */
static by_status read_vocab_txt(by_legacy *l)
{
    size_t size = 0;
    char *text = by_legacy_file(l, "vocab.txt", &size);
    if (!text)
        return by_error_status();
    by_status status = BY_OK;
    int id = 0;
    for (size_t i = 0; i < size && status == BY_OK; id++) {
        const char *end = memchr(text + i, '\n', size - i);
        size_t n = end ? (size_t)(end - (text + i)) : size - i, next = i + n + 1;
        n -= n > 0 && text[i + n - 1] == '\r';
        status = by_vocab_put(&l->vocab, text + i, n, id);
        i = next;
    }
    by_free(text);
    return status == BY_OK ? BY_OK : by_fail_context("%s/vocab.txt", l->dir);
}

/* ---- XLM ------------------------------------------------------------------------------------- */

#define XLM_SPECIAL 10

/* "word count" a line. "@@" ends a token that the word goes on behind, which here is one without "</w>". */
static by_status put_counted(by_legacy *l, const char *line, size_t n, int number)
{
    size_t size = n;
    while (size > 0 && line[size - 1] != ' ')
        size--;
    if (size < 2 || size == n || strspn(line + size, "0123456789") < n - size)
        return by_fail(BY_ERR_FORMAT, "line %d is not a token and its count", number);
    size--;
    bool inner = size > 2 && memcmp(line + size - 2, "@@", 2) == 0;
    char *token = by_sprintf("%.*s%s", (int)(inner ? size - 2 : size), line, inner ? "" : "</w>");
    if (!token)
        return BY_ERR_MEMORY;
    by_status status = BY_OK;
    if (by_vocab_find(&l->vocab, token, strlen(token)) < 0)
        status = by_vocab_put(&l->vocab, token, strlen(token), l->vocab.count);
    by_free(token);
    return status;
}

static by_status put_special(by_legacy *l)
{
    static const char *const first[] = {"<s>", "</s>", "<pad>", "<unk>"};
    for (int i = 0; i < 4 + XLM_SPECIAL; i++) {
        char text[32];
        int n = i < 4 ? by_format(text, sizeof(text), "%s", first[i])
                      : by_format(text, sizeof(text), "<special%d>", i - 4);
        BY_TRY(by_vocab_put(&l->vocab, text, (size_t)n, i));
    }
    return BY_OK;
}

static by_status read_counts(by_legacy *l, const char *path)
{
    char *text = by_file_read(path, (size_t)256 << 20, NULL);
    if (!text)
        return by_error_status();
    by_status status = put_special(l);
    int number = 1;
    for (char *p = text; *p && status == BY_OK; number++) {
        size_t n = strcspn(p, "\n"), next = n + (p[n] == '\n');
        n -= n > 0 && p[n - 1] == '\r';
        if (n)
            status = put_counted(l, p, n, number);
        p += next;
    }
    by_free(text);
    return status == BY_OK ? BY_OK : by_fail_context("%s", path);
}

/* vocab.json, or the one file vocab*.txt as XLM itself wrote it, with counts. */
static by_status read_xlm_vocab(by_legacy *l)
{
    if (by_legacy_has(l, "vocab.json"))
        return read_vocab_json(l);
    char *pattern = by_path_join(l->dir, "vocab*.txt"), **paths = NULL;
    int count = 0;
    by_status status = pattern ? by_glob(pattern, &paths, &count) : BY_ERR_MEMORY;
    if (status == BY_OK && count != 1)
        status = by_fail(BY_ERR_FORMAT, "%s: %d files vocab*.txt, and no vocab.json", l->dir, count);
    if (status == BY_OK)
        status = read_counts(l, paths[0]);
    by_paths_free(paths, count);
    by_free(pattern);
    return status;
}

static by_status put_step(by_legacy *l, const char *text, size_t size)
{
    return by_vocab_find(&l->vocab, text, size) >= 0 ? BY_OK
                                                     : by_vocab_put(&l->vocab, text, size, l->vocab.count);
}

/* What merges need and the vocabulary does not have gets ids behind it. */
static by_status put_steps(by_legacy *l)
{
    const char *p = l->merges_text;
    by_token pair[2];
    by_buf joined = {0};
    by_status status = BY_OK;
    for (int found; status == BY_OK && (found = by_legacy_merge(l, &p, pair)) != 0;) {
        if (found < 0)
            continue;
        joined.size = 0;
        by_buf_put(&joined, pair[0].text, pair[0].size);
        by_buf_put(&joined, pair[1].text, pair[1].size);
        status = joined.failed ? by_fail(BY_ERR_MEMORY, "out of memory reading merges") : BY_OK;
        for (int k = 0; k < 2 && status == BY_OK; k++)
            status = put_step(l, pair[k].text, pair[k].size);
        if (status == BY_OK)
            status = put_step(l, joined.data, joined.size);
    }
    by_buf_free(&joined);
    return status == BY_OK ? BY_OK : by_fail_context("%s/merges.txt", l->dir);
}

static by_status read_xlm(by_legacy *l)
{
    BY_TRY(read_xlm_vocab(l));
    BY_TRY(read_merges_txt(l));
    l->known = l->vocab.count;
    return put_steps(l);
}

/* ---- SentencePiece --------------------------------------------------------------------------- */

static by_status read_spiece(by_legacy *l)
{
    static const char *const names[] = {"spiece.model", "sentencepiece.bpe.model", "tokenizer.model",
                                        "spm.model"};
    int k = 0;
    while (k < BY_COUNT(names) - 1 && !by_legacy_has(l, names[k]))
        k++;
    k = by_legacy_has(l, names[k]) ? k : 0;
    size_t size = 0;
    char *bytes = by_legacy_file(l, names[k], &size);
    if (!bytes)
        return by_error_status();
    by_status status = by_spiece_parse(&l->spiece, bytes, size);
    by_free(bytes);
    int wanted = l->family->flavor == BY_LEGACY_LLAMA ? BY_SPIECE_BPE : BY_SPIECE_UNIGRAM;
    if (status == BY_OK && l->spiece.model != wanted)
        status =
            by_fail(BY_ERR_UNSUPPORTED, "%s wants a %s model, this one is %s", l->family->class,
                    wanted == BY_SPIECE_BPE ? "BPE" : "unigram", wanted == BY_SPIECE_BPE ? "unigram" : "BPE");
    return status == BY_OK ? BY_OK : by_fail_context("%s/%s", l->dir, names[k]);
}

/* XLM-RoBERTa: an order of its own for the first pieces, and a mask behind the last. */
static by_status number_xlmr(by_legacy *l)
{
    static const char *const first[] = {"<s>", "<pad>", "</s>", "<unk>"};
    const by_spiece *m = &l->spiece;
    int id = 0;
    for (; id < BY_COUNT(first); id++)
        BY_TRY(by_vocab_put(&l->vocab, first[id], strlen(first[id]), id));
    for (int i = 3; i < m->count; i++, id++)
        BY_TRY(by_vocab_put(&l->vocab, m->vocab.tokens[i].text, m->vocab.tokens[i].size, id));
    return by_vocab_put(&l->vocab, "<mask>", 6, id);
}

/* T5's sentinels stand behind the pieces, the first of them last. */
static by_status number_sentinels(by_legacy *l)
{
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(l->config, "extra_ids");
    bool said = cJSON_IsNumber(extra) && extra->valuedouble >= 0 && extra->valuedouble <= 10000;
    for (int i = (said ? (int)extra->valuedouble : 100) - 1; i >= 0; i--) {
        char text[32];
        int n = by_format(text, sizeof(text), "<extra_id_%d>", i);
        BY_TRY(by_vocab_put(&l->vocab, text, (size_t)n, l->vocab.count));
    }
    return BY_OK;
}

static by_status read_pieces(by_legacy *l)
{
    BY_TRY(read_spiece(l));
    const by_spiece *m = &l->spiece;
    if (l->family->flavor == BY_LEGACY_XLMR)
        return number_xlmr(l);
    for (int id = 0; id < m->count; id++)
        BY_TRY(by_vocab_put(&l->vocab, m->vocab.tokens[id].text, m->vocab.tokens[id].size, id));
    return l->family->flavor == BY_LEGACY_T5 ? number_sentinels(l) : BY_OK;
}

by_status by_legacy_read_vocab(by_legacy *l)
{
    switch (l->family->flavor) {
    case BY_LEGACY_GPT2:
    case BY_LEGACY_GPT:
    case BY_LEGACY_ROBERTA:
        BY_TRY(read_vocab_json(l));
        return read_merges_txt(l);
    case BY_LEGACY_BERT:
        return read_vocab_txt(l);
    case BY_LEGACY_XLM:
        return read_xlm(l);
    default:
        return read_pieces(l);
    }
}
