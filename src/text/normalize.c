/* normalize.c - the normalisers of tokenizer.json: case, accents, BERT's cleaning, replacements,
 * SentencePiece maps; Unicode forms are in forms.c. Every byte keeps its origin. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* Copies ASCII from i on, in lower case if requested. Returns its end. */
static size_t copy_ascii(const tok_buffer *in, size_t i, size_t end, bool small, tok_buffer *out)
{
    size_t from = i, to = out->size;
    while (i < end && (uint8_t)in->text[i] < 0x80)
        i++;
    tok_buffer_copy(out, in, from, i - from);
    for (; small && !out->failed && to < out->size; to++)
        out->text[to] += out->text[to] >= 'A' && out->text[to] <= 'Z' ? 32 : 0;
    return i;
}

/* ---- one character at a time ----------------------------------------------------------------- */

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

enum { BERT_CLEAN, BERT_CHINESE, BERT_LOWER };

static by_status run_bert(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    size_t start = out->size;
    tok_buffer_reserve(out, p->size);
    for (size_t i = p->start, end = p->start + p->size; i < end;) {
        uint8_t b = (uint8_t)in->text[i];
        if (b >= 0x20 && b < 0x7f && out->capacity > out->size) {
            out->text[out->size] = (char)(s->flags[BERT_LOWER] && b >= 'A' && b <= 'Z' ? b + 32 : b);
            if (out->at)
                out->at[out->size] = in->at[i];
            out->size++;
            i++;
            continue;
        }
        uint32_t c;
        int n = tok_utf8_next(in->text + i, end - i, &c);
        tok_at at = tok_buffer_at(in, i);
        i += (size_t)n;
        if (s->flags[BERT_CLEAN]) {
            if (c == 0 || c == 0xfffd || (c != '\t' && c != '\n' && c != '\r' && tok_is_other(c)))
                continue;
            if (tok_is_space(c))
                c = ' ';
        }
        bool apart = s->flags[BERT_CHINESE] && is_chinese(c);
        if (apart)
            tok_buffer_put(out, " ", 1, at);
        if (s->flags[BERT_LOWER])
            tok_buffer_put_lower(out, c, at);
        else
            tok_buffer_put_char(out, c, at);
        if (apart)
            tok_buffer_put(out, " ", 1, at);
    }
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

static by_status run_lowercase(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    (void)s;
    size_t start = out->size, end = p->start + p->size;
    for (size_t i = copy_ascii(in, p->start, end, true, out); i < end;
         i = copy_ascii(in, i, end, true, out)) {
        uint32_t c;
        int n = tok_utf8_next(in->text + i, end - i, &c);
        tok_buffer_put_lower(out, c, tok_buffer_at(in, i));
        i += (size_t)n;
    }
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

static by_status run_strip_accents(const tok_stage *s, const tok_buffer *in, const tok_piece *p,
                                   tok_buffer *out)
{
    (void)s;
    size_t start = out->size, end = p->start + p->size;
    for (size_t i = copy_ascii(in, p->start, end, false, out); i < end;
         i = copy_ascii(in, i, end, false, out)) {
        uint32_t c;
        int n = tok_utf8_next(in->text + i, end - i, &c);
        if (c < 0x300 || !tok_is_mark(c))
            tok_buffer_copy(out, in, i, (size_t)n);
        i += (size_t)n;
    }
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* Cleaning for neural machine translation: drops control characters, and replaces unusual spaces by plain
 * ones. */
static by_status run_nmt(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    (void)s;
    size_t start = out->size;
    for (size_t i = p->start, end = p->start + p->size; i < end;) {
        uint32_t c;
        size_t n = (size_t)tok_utf8_next(in->text + i, end - i, &c);
        bool gone =
            (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
        bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                     (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xfeff || c == 0xfffd;
        if (space)
            tok_buffer_put(out, " ", 1, tok_buffer_at(in, i));
        else if (!gone)
            tok_buffer_copy(out, in, i, n);
        i += n;
    }
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

static by_status run_byte_level(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    (void)s;
    size_t start = out->size;
    for (size_t i = p->start; i < p->start + p->size; i++)
        tok_buffer_put_char(out, tok_byte_char((uint8_t)in->text[i]), tok_buffer_at(in, i));
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

enum { STRIP_LEFT, STRIP_RIGHT };

static by_status run_strip(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    size_t from = p->start, to = p->start + p->size, start = out->size;
    uint32_t c;
    while (s->flags[STRIP_LEFT] && from < to) {
        int n = tok_utf8_next(in->text + from, to - from, &c);
        if (!tok_is_space(c))
            break;
        from += (size_t)n;
    }
    while (s->flags[STRIP_RIGHT] && to > from) {
        size_t k = to - 1;
        while (k > from && ((uint8_t)in->text[k] & 0xc0) == 0x80)
            k--;
        tok_utf8_next(in->text + k, to - k, &c);
        if (!tok_is_space(c))
            break;
        to = k;
    }
    tok_buffer_copy(out, in, from, to - from);
    tok_buffer_piece(out, start, to - from, -1);
    return BY_OK;
}

static by_status run_prepend(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    size_t start = out->size;
    tok_buffer_put(out, s->text.data, s->text.size, tok_buffer_at(in, p->start));
    tok_buffer_copy(out, in, p->start, p->size);
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* ---- replacements ---------------------------------------------------------------------------- */

/* Finds the next match of the stage's pattern, a string or a regular expression, at or after from. Returns 1,
 * 0 or -1 like tok_regex_next. */
static int find_pattern(const tok_stage *s, tok_regex_scan *scan, const char *text, size_t size, size_t from,
                        size_t *start, size_t *end)
{
    if (s->regex)
        return tok_regex_next(scan, from, start, end);
    size_t n = s->text.size;
    const char *hit = n && from < size ? memmem(text + from, size - from, s->text.data, n) : NULL;
    if (!hit)
        return 0;
    *start = (size_t)(hit - text);
    *end = *start + n;
    return 1;
}

static by_status run_replace(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    const char *text = in->text + p->start;
    size_t start = out->size, done = 0, from = 0, hit = 0, end = 0;
    int found = 0;
    tok_regex_scan scan = {.size = 0};
    if (s->regex)
        BY_TRY(tok_regex_begin(&scan, s->regex, text, p->size));
    while (from <= p->size && (found = find_pattern(s, &scan, text, p->size, from, &hit, &end)) > 0) {
        tok_buffer_copy(out, in, p->start + done, hit - done);
        tok_buffer_put(out, s->content.data, s->content.size, tok_buffer_before(in, p, end));
        done = end;
        from = end;
        if (end == hit) { /* an empty match: skip one character */
            uint32_t c;
            from += end < p->size ? (size_t)tok_utf8_next(text + end, p->size - end, &c) : 1;
        }
    }
    tok_regex_end(&scan);
    if (found < 0)
        return base_error_status();
    tok_buffer_copy(out, in, p->start + done, p->size - done);
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* A replacement in progress. The last character is held back, because a shorter replacement after it changes
 * it. */
typedef struct replacer {
    tok_transform to;
    uint32_t last;
    int change;
    bool held;
} replacer;

static void replacer_put(replacer *r, uint32_t c, int change)
{
    if (r->held)
        tok_transform_put(&r->to, r->last, r->change);
    r->last = c;
    r->change = change;
    r->held = true;
}

static void replacer_flush(replacer *r)
{
    if (r->held)
        tok_transform_put(&r->to, r->last, r->change);
    r->held = false;
}

static int count_chars(const char *text, size_t size)
{
    int count = 0;
    uint32_t c;
    for (size_t i = 0; i < size; count++)
        i += (size_t)tok_utf8_next(text + i, size - i, &c);
    return count;
}

/* Replaces `old` characters with `text`: one for one; additional ones are inserted, and surplus old ones are
 * removed after the last. */
static void replacer_swap(replacer *r, int old, const char *text)
{
    size_t size = strlen(text);
    int count = count_chars(text, size), done = 0;
    uint32_t c;
    for (size_t i = 0; i < size; done++) {
        i += (size_t)tok_utf8_next(text + i, size - i, &c);
        replacer_put(r, c, done >= old);
    }
    if (count < old && r->held)
        r->change -= old - count;
}

/* Returns the end of the grapheme that starts at text[i]. */
static size_t grapheme_end(const char *text, size_t i, size_t end)
{
    uint32_t c, next;
    size_t at = i + (size_t)tok_utf8_next(text + i, end - i, &c);
    tok_grapheme g;
    if (c >= 0x20 && c < 0x7f && at < end && (uint8_t)text[at] < 0x80)
        return at;
    tok_grapheme_begin(&g, c);
    while (at < end) {
        int n = tok_utf8_next(text + at, end - at, &next);
        if (!tok_grapheme_goes_on(&g, next))
            break;
        at += (size_t)n;
    }
    return at;
}

/* Maps a grapheme: as a whole if it has fewer than six bytes, otherwise character by character. */
static void map_grapheme(const tok_charsmap *map, const char *text, size_t size, replacer *r)
{
    size_t matched;
    const char *whole = size < 6 ? tok_charsmap_find(map, text, size, false, &matched) : NULL;
    if (whole) {
        replacer_swap(r, count_chars(text, size), whole);
        return;
    }
    for (size_t i = 0, n; i < size; i += n) {
        uint32_t c;
        n = (size_t)tok_utf8_next(text + i, size - i, &c);
        const char *part = tok_charsmap_find(map, text + i, n, false, &matched);
        if (part)
            replacer_swap(r, 1, part);
        else
            replacer_put(r, c, 0);
    }
}

/* Applies SentencePiece's map as the reference library does: to graphemes, always with the shortest entry
 * that matches their start. */
static by_status run_precompiled(const tok_stage *s, const tok_buffer *in, const tok_piece *p,
                                 tok_buffer *out)
{
    size_t start = out->size, end = p->start + p->size;
    const bool *plain = tok_charsmap_plain(s->map);
    replacer r = {.to = {.in = in, .piece = p, .out = out}};
    for (size_t i = p->start; i < end;) {
        size_t run = i;
        while (run < end && plain[(uint8_t)in->text[run]] && (uint8_t)in->text[run] >= 0x20 &&
               (run + 1 == end || (uint8_t)in->text[run + 1] < 0x80))
            run++;
        if (run > i + 1)
            replacer_flush(&r);
        if (run > i + 1 && p->start + r.to.next == i) {
            tok_transform_copy(&r.to, run - i - 1);
            i = run - 1;
        }
        while (i < run)
            replacer_put(&r, (uint8_t)in->text[i++], 0);
        if (i == end)
            break;
        size_t to = grapheme_end(in->text, i, end);
        map_grapheme(s->map, in->text + i, to - i, &r);
        i = to;
    }
    replacer_flush(&r);
    tok_buffer_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static by_status read_replace(const cJSON *json, tok_stage *s)
{
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(json, "pattern");
    s->rewrite = run_replace;
    BY_TRY(tok_pattern_read(pattern, &s->text, &s->regex));
    BY_TRY(tok_chars_read(json, "content", &s->content));
    if ((!s->text.data && !s->regex) || !s->content.data)
        return base_fail(BY_ERR_FORMAT, "a Replace normalizer has no pattern or no content");
    return BY_OK;
}

static by_status read_precompiled(const cJSON *json, tok_stage *s)
{
    const char *text = tok_stage_string(json, "precompiled_charsmap");
    base_buf blob = {0};
    if (!text)
        return base_fail(BY_ERR_FORMAT, "a Precompiled normalizer has no precompiled_charsmap");
    by_status status = tok_base64_decode(text, &blob);
    if (status == BY_OK) {
        s->rewrite = run_precompiled;
        s->map = tok_charsmap_new((const uint8_t *)(blob.data ? blob.data : ""), blob.size);
        status = s->map ? BY_OK : base_error_status();
    }
    base_buf_free(&blob);
    return status;
}

static by_status read_bert(const cJSON *json, tok_stages *out)
{
    bool clean, chinese, lower, strip;
    BY_TRY(tok_stage_bool(json, "clean_text", true, &clean));
    BY_TRY(tok_stage_bool(json, "handle_chinese_chars", true, &chinese));
    BY_TRY(tok_stage_bool(json, "lowercase", true, &lower));
    BY_TRY(tok_stage_bool(json, "strip_accents", lower, &strip));
    tok_stage *s = tok_stages_add(out, "BertNormalizer");
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = run_bert;
    s->flags[BERT_CLEAN] = clean;
    s->flags[BERT_CHINESE] = chinese;
    s->flags[BERT_LOWER] = lower && !strip;
    if (!strip)
        return BY_OK;
    s = tok_stages_add(out, "BertNormalizer");
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = tok_form_run;
    s->flags[TOK_FORM_STRIP] = true;
    s->flags[TOK_FORM_LOWER] = lower;
    return BY_OK;
}

static const struct normalizer {
    const char *type;
    by_status (*rewrite)(const tok_stage *, const tok_buffer *, const tok_piece *, tok_buffer *);
    int behavior;
    const char *keys[4]; /* besides "type" */
} normalizers[] = {
    {"NFD", tok_form_run, 0, {0}},
    {"NFC", tok_form_run, 1, {0}},
    {"NFKD", tok_form_run, 2, {0}},
    {"NFKC", tok_form_run, 3, {0}},
    {"Lowercase", run_lowercase, 0, {0}},
    {"StripAccents", run_strip_accents, 0, {0}},
    {"Nmt", run_nmt, 0, {0}},
    {"ByteLevel", run_byte_level, 0, {0}},
    {"Strip", run_strip, 0, {"strip_left", "strip_right"}},
    {"Prepend", run_prepend, 0, {"prepend"}},
    {"Replace", run_replace, 0, {"pattern", "content"}},
    {"Precompiled", run_precompiled, 0, {"precompiled_charsmap"}},
    {"BertNormalizer", run_bert, 0, {"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"}},
};

static by_status read_one(const cJSON *json, const struct normalizer *n, tok_stages *out)
{
    BY_TRY(tok_json_fields(json, n->type, n->keys, BY_COUNT(n->keys)));
    if (n->rewrite == run_bert)
        return read_bert(json, out);
    tok_stage *s = tok_stages_add(out, n->type);
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = n->rewrite;
    s->behavior = n->behavior;
    if (n->rewrite == run_replace)
        return read_replace(json, s);
    if (n->rewrite == run_precompiled)
        return read_precompiled(json, s);
    if (n->rewrite == run_strip) {
        BY_TRY(tok_stage_bool(json, "strip_left", true, &s->flags[STRIP_LEFT]));
        return tok_stage_bool(json, "strip_right", true, &s->flags[STRIP_RIGHT]);
    }
    if (n->rewrite == run_prepend) {
        BY_TRY(tok_chars_read(json, "prepend", &s->text));
        return s->text.data ? BY_OK : base_fail(BY_ERR_FORMAT, "a Prepend normalizer has no \"prepend\"");
    }
    return BY_OK;
}

static by_status read_normalizer(const cJSON *json, const char *type, void *out)
{
    for (int i = 0; i < BY_COUNT(normalizers); i++)
        if (strcmp(type, normalizers[i].type) == 0)
            return read_one(json, &normalizers[i], out);
    return base_fail(BY_ERR_UNSUPPORTED, "normalizers of type \"%.60s\" are not supported", type);
}

by_status tok_normalizers_read(const cJSON *json, tok_stages *out)
{
    static const tok_sequence all = {"normalizers", "normalizers", read_normalizer};
    return tok_sequence_read(json, &all, out);
}
