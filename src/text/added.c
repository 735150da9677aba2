/* added.c - tokens that are found in the text before any other processing: special tokens, and words added
 * after training. */
#include "text/pipeline.h"
#include "text/trie.h"
#include "text/unicode.h"

typedef struct tok_matcher {
    tok_vocab patterns; /* id: index of the added token */
    tok_trie trie;
    bool starts[256]; /* first bytes of the patterns */
} tok_matcher;

static void matcher_free(tok_matcher *m)
{
    if (!m)
        return;
    tok_vocab_free(&m->patterns);
    tok_trie_free(&m->trie);
    base_free(m);
}

void tok_added_free(tok_added *a)
{
    for (int i = 0; i < a->count; i++) {
        base_free(a->items[i].content);
        base_free(a->items[i].pattern);
    }
    base_free(a->items);
    matcher_free(a->raw);
    matcher_free(a->normalized);
    *a = (tok_added){0};
}

static by_status read_token(const cJSON *json, tok_added_token *t)
{
    static const char *const keys[] = {"id",     "content",    "single_word", "lstrip",
                                       "rstrip", "normalized", "special"};
    BY_TRY(tok_json_only(json, "an added token", keys, BY_COUNT(keys)));
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(json, "id");
    tok_chars content = {0};
    BY_TRY(tok_chars_read(json, "content", &content));
    t->content = content.data;
    t->size = (uint32_t)content.size;
    if (!t->content || !cJSON_IsNumber(id) || !(id->valuedouble >= 0 && id->valuedouble < (1 << 24)))
        return base_fail(BY_ERR_FORMAT, "an added token has no content or no id");
    t->id = (int32_t)id->valuedouble;
    BY_TRY(tok_stage_bool(json, "single_word", false, &t->single_word));
    BY_TRY(tok_stage_bool(json, "lstrip", false, &t->lstrip));
    BY_TRY(tok_stage_bool(json, "rstrip", false, &t->rstrip));
    BY_TRY(tok_stage_bool(json, "normalized", true, &t->normalized));
    return tok_stage_bool(json, "special", false, &t->special);
}

by_status tok_added_read(const cJSON *json, tok_added *out)
{
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    if (!cJSON_IsArray(json))
        return base_fail(BY_ERR_FORMAT, "added_tokens is not a list");
    out->items = base_alloc_zero((size_t)cJSON_GetArraySize(json) + 1, sizeof(*out->items));
    if (!out->items)
        return BY_ERR_MEMORY;
    for (const cJSON *item = json->child; item; item = item->next)
        BY_TRY(read_token(item, &out->items[out->count++]));
    return BY_OK;
}

/* Makes the pattern of a token: its content, passed through the normalisers if the token is matched after
 * them. */
static by_status make_pattern(tok_added_token *t, const tok_stages *normalizers)
{
    tok_buffer work = {0}, spare = {0};
    tok_buffer_put(&work, t->content, t->size, (tok_at){0, 0});
    tok_buffer_piece(&work, 0, t->size, -1);
    by_status status = work.failed ? BY_ERR_MEMORY : BY_OK;
    if (status == BY_OK && t->normalized)
        status = tok_stages_run(normalizers, &work, &spare);
    size_t size = work.count ? work.pieces[0].size : 0;
    if (status == BY_OK && !(t->pattern = base_alloc(size + 1)))
        status = BY_ERR_MEMORY;
    if (status == BY_OK) {
        if (size)
            memcpy(t->pattern, work.text + work.pieces[0].start, size);
        t->pattern[size] = '\0';
        t->pattern_size = (uint32_t)size;
    }
    tok_buffer_free(&work);
    tok_buffer_free(&spare);
    return status;
}

static by_status make_matcher(const tok_added *a, bool normalized, tok_matcher **out)
{
    by_status status = BY_OK;
    for (int i = 0; i < a->count && status == BY_OK; i++) {
        const tok_added_token *t = &a->items[i];
        if (t->normalized != normalized || t->pattern_size == 0)
            continue;
        if (!*out && !(*out = base_alloc_zero(1, sizeof(**out))))
            return BY_ERR_MEMORY;
        status = tok_vocab_put(&(*out)->patterns, t->pattern, t->pattern_size, i);
        (*out)->starts[(uint8_t)t->pattern[0]] = true;
    }
    return status == BY_OK && *out ? tok_trie_build(&(*out)->trie, &(*out)->patterns, NULL) : status;
}

by_status tok_added_prepare(tok_added *a, const tok_stages *normalizers)
{
    for (int i = 0; i < a->count; i++)
        BY_TRY(make_pattern(&a->items[i], normalizers));
    BY_TRY(make_matcher(a, false, &a->raw));
    return make_matcher(a, true, &a->normalized);
}

const tok_added_token *tok_added_find(const tok_added *a, int32_t id)
{
    for (int i = 0; i < a->count; i++)
        if (a->items[i].id == id)
            return &a->items[i];
    return NULL;
}

/* Returns the start of the character that ends at text[end], end > 0. */
static size_t char_before(const char *text, size_t end)
{
    size_t i = end - 1;
    while (i > 0 && ((uint8_t)text[i] & 0xc0) == 0x80)
        i--;
    return i;
}

/* Returns true if text[start, end) is a separate word. */
static bool stands_alone(const char *text, size_t size, size_t start, size_t end)
{
    uint32_t c;
    if (start > 0) {
        size_t before = char_before(text, start);
        tok_utf8_next(text + before, start - before, &c);
        if (tok_is_word(c))
            return false;
    }
    if (end < size) {
        tok_utf8_next(text + end, size - end, &c);
        if (tok_is_word(c))
            return false;
    }
    return true;
}

static size_t skip_back(const char *text, size_t start, size_t limit)
{
    uint32_t c;
    while (start > limit) {
        size_t before = char_before(text, start);
        tok_utf8_next(text + before, start - before, &c);
        if (!tok_is_space(c))
            break;
        start = before;
    }
    return BY_MAX(start, limit);
}

static size_t skip_on(const char *text, size_t size, size_t end)
{
    uint32_t c;
    while (end < size) {
        int n = tok_utf8_next(text + end, size - end, &c);
        if (!tok_is_space(c))
            break;
        end += (size_t)n;
    }
    return end;
}

/* Finds the longest pattern that starts at text[i]. Returns its index and sets *length, or returns -1. */
static int32_t match_at(const tok_matcher *m, const char *text, size_t size, size_t i, size_t *length)
{
    int32_t node = 0, found = -1;
    for (size_t k = i; k < size && (node = tok_trie_step(&m->trie, node, (uint8_t)text[k])) >= 0; k++)
        if (m->trie.nodes[node].id >= 0) {
            found = m->trie.nodes[node].id;
            *length = k + 1 - i;
        }
    return found;
}

by_status tok_added_split(const tok_added *a, bool normalized, const char *text, size_t start, size_t size,
                          tok_buffer *out)
{
    const tok_matcher *m = normalized ? a->normalized : a->raw;
    const char *s = text + start;
    size_t done = 0;
    for (size_t i = 0; m && i < size;) {
        if (!m->starts[(uint8_t)s[i]]) {
            i++;
            continue;
        }
        size_t length = 0;
        int32_t k = match_at(m, s, size, i, &length);
        if (k < 0) {
            i++;
            continue;
        }
        const tok_added_token *t = &a->items[k];
        size_t from = i, to = i + length;
        i = to;
        if (t->single_word && !stands_alone(s, size, from, to))
            continue;
        if (t->lstrip) /* spaces already taken by the previous token are not part of this one */
            from = BY_MAX(skip_back(s, from, BY_MIN(done, from)), done);
        if (t->rstrip)
            to = skip_on(s, size, to);
        if (done < from)
            tok_buffer_piece(out, start + done, from - done, -1);
        if (from < to)
            tok_buffer_piece(out, start + from, to - from, t->id);
        done = BY_MAX(done, to);
    }
    if (done < size)
        tok_buffer_piece(out, start + done, size - done, -1);
    return out->failed ? base_fail(BY_ERR_MEMORY, "out of memory while searching for added tokens") : BY_OK;
}
