/* normalize.c - the normalisers of tokenizer.json: Unicode forms, case, accents, BERT's cleaning,
 * replacements, SentencePiece maps. Every byte keeps the place it came from. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* Flags of a form stage, which can also drop marks and lower case, so that BERT's steps are one pass. */
enum { DROP_NONSPACING, DROP_MARKS, LOWER };

typedef struct points {
    int32_t *c;
    by_at *at;
    size_t count, capacity;
} points;

static bool points_reserve(points *v, size_t extra)
{
    if (v->capacity - v->count >= extra)
        return true;
    size_t capacity = BY_MAX(v->capacity * 2, v->count + extra + 64);
    int32_t *c = by_resize(v->c, capacity, sizeof(*c));
    if (c)
        v->c = c;
    by_at *at = by_resize(v->at, capacity, sizeof(*at));
    if (at)
        v->at = at;
    if (!c || !at)
        return false;
    v->capacity = capacity;
    return true;
}

static int combining_class(int32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property(c)->combining_class;
}

/* Lower case of one character: the only one that becomes two is capital I with dot. */
static void put_lower(by_work *out, uint32_t c, by_at at)
{
    if (c == 0x130) {
        by_work_put(out, "i\xcc\x87", 3, at);
        return;
    }
    by_work_put_char(out, c < 0x80 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0) : by_lower(c), at);
}

/* Canonical order of marks: stable by combining class between starters. Runs are short in text and long in
 * attacks: both are linear. */
static bool order_marks(points *v, size_t from)
{
    for (size_t i = from; i < v->count;) {
        size_t end = i;
        while (end < v->count && combining_class(v->c[end]) != 0)
            end++;
        size_t n = end - i;
        if (n > 1) {
            points sorted = {0};
            if (!points_reserve(&sorted, n)) {
                by_free(sorted.c);
                by_free(sorted.at);
                return false;
            }
            size_t starts[257] = {0};
            for (size_t k = i; k < end; k++)
                starts[combining_class(v->c[k]) + 1]++;
            for (int k = 0; k < 256; k++)
                starts[k + 1] += starts[k];
            for (size_t k = i; k < end; k++) {
                size_t to = starts[combining_class(v->c[k])]++;
                sorted.c[to] = v->c[k];
                sorted.at[to] = v->at[k];
            }
            memcpy(v->c + i, sorted.c, n * sizeof(*v->c));
            memcpy(v->at + i, sorted.at, n * sizeof(*v->at));
            by_free(sorted.c);
            by_free(sorted.at);
        }
        i = end + 1;
    }
    return true;
}

/* Could this character be joined with, or move past, one before it? */
static bool continues(uint32_t c)
{
    if (c < 0x300)
        return false;
    const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)c);
    bool second = p->comb_index != UINT16_MAX && p->comb_index >= 0x8000;
    bool jamo = (c >= 0x1161 && c <= 0x1175) || (c >= 0x11a8 && c <= 0x11c2);
    return p->combining_class != 0 || second || jamo;
}

static void put_point(const by_stage *s, by_work *out, uint32_t c, by_at at)
{
    if (c >= 0x300 && s->flags[DROP_MARKS] && by_is_mark(c))
        return;
    if (c >= 0x300 && s->flags[DROP_NONSPACING] && by_is_nonspacing(c))
        return;
    if (s->flags[LOWER])
        put_lower(out, c, at);
    else
        by_work_put_char(out, c, at);
}

/* One stretch from a character that nothing before can touch to the next such: decompose, order, compose. */
static bool put_stretch(const by_stage *s, const by_work *in, size_t start, size_t end, points *v,
                        by_work *out)
{
    int options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | (s->behavior & 2 ? UTF8PROC_COMPAT : 0);
    v->count = 0;
    for (size_t i = start; i < end;) {
        uint32_t c;
        int n = by_utf8_next(in->text + i, end - i, &c), last = 0;
        if (!points_reserve(v, 32))
            return false;
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)c, v->c + v->count, 32,
                                                     (utf8proc_option_t)options, &last);
        if (k < 1 || k > 32 || (c >= 0x300 && by_is_whole(c))) {
            v->c[v->count] = (int32_t)c;
            k = 1;
        }
        for (int j = 0; j < k; j++)
            v->at[v->count + (size_t)j] = by_work_at(in, i);
        v->count += (size_t)k;
        i += (size_t)n;
    }
    if (!order_marks(v, 0))
        return false;
    size_t count = v->count;
    if (s->behavior & 1) {
        utf8proc_ssize_t k = utf8proc_normalize_utf32(
            v->c, (utf8proc_ssize_t)count, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        count = k < 0 ? count : (size_t)k;
    }
    for (size_t i = 0; i < count; i++)
        put_point(s, out, (uint32_t)v->c[i], v->at[i ? i + v->count - count : 0]);
    return true;
}

/* behavior: bit 0 composes, bit 1 is compatibility. */
static by_status run_form(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    size_t start = out->size, i = p->start, end = p->start + p->size;
    points v = {0};
    bool ok = true;
    while (ok && i < end) {
        size_t from = i;
        while (i < end && (uint8_t)in->text[i] < 0x80)
            i++;
        if (i > from && i < end) { /* the last one may have marks behind it */
            uint32_t c;
            by_utf8_next(in->text + i, end - i, &c);
            i -= continues(c);
        }
        size_t to = out->size;
        by_work_copy(out, in, from, i - from);
        if (s->flags[LOWER] && !out->failed)
            for (; to < out->size; to++)
                out->text[to] += out->text[to] >= 'A' && out->text[to] <= 'Z' ? 32 : 0;
        if (i >= end)
            break;
        from = i;
        uint32_t c;
        i += (size_t)by_utf8_next(in->text + i, end - i, &c);
        while (i < end) {
            int n = by_utf8_next(in->text + i, end - i, &c);
            if (!continues(c))
                break;
            i += (size_t)n;
        }
        ok = put_stretch(s, in, from, i, &v, out);
    }
    by_free(v.c);
    by_free(v.at);
    by_work_piece(out, start, out->size - start, -1);
    return ok ? BY_OK : by_fail(BY_ERR_MEMORY, "out of memory normalising a text");
}

/* Copy the ASCII from i on, in small letters if asked; returns where it ends. */
static size_t copy_ascii(const by_work *in, size_t i, size_t end, bool small, by_work *out)
{
    size_t from = i, to = out->size;
    while (i < end && (uint8_t)in->text[i] < 0x80)
        i++;
    by_work_copy(out, in, from, i - from);
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

static by_status run_bert(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    size_t start = out->size;
    by_work_reserve(out, p->size);
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
        int n = by_utf8_next(in->text + i, end - i, &c);
        by_at at = by_work_at(in, i);
        i += (size_t)n;
        if (s->flags[BERT_CLEAN]) {
            if (c == 0 || c == 0xfffd || (c != '\t' && c != '\n' && c != '\r' && by_is_other(c)))
                continue;
            if (by_is_space(c))
                c = ' ';
        }
        bool apart = s->flags[BERT_CHINESE] && is_chinese(c);
        if (apart)
            by_work_put(out, " ", 1, at);
        if (s->flags[BERT_LOWER])
            put_lower(out, c, at);
        else
            by_work_put_char(out, c, at);
        if (apart)
            by_work_put(out, " ", 1, at);
    }
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

static by_status run_lowercase(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    (void)s;
    size_t start = out->size, end = p->start + p->size;
    for (size_t i = copy_ascii(in, p->start, end, true, out); i < end;
         i = copy_ascii(in, i, end, true, out)) {
        uint32_t c;
        int n = by_utf8_next(in->text + i, end - i, &c);
        put_lower(out, c, by_work_at(in, i));
        i += (size_t)n;
    }
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

static by_status run_strip_accents(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    (void)s;
    size_t start = out->size, end = p->start + p->size;
    for (size_t i = copy_ascii(in, p->start, end, false, out); i < end;
         i = copy_ascii(in, i, end, false, out)) {
        uint32_t c;
        int n = by_utf8_next(in->text + i, end - i, &c);
        if (c < 0x300 || !by_is_mark(c))
            by_work_copy(out, in, i, (size_t)n);
        i += (size_t)n;
    }
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* Neural machine translation's cleaning: control characters go, odd spaces become plain. */
static by_status run_nmt(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    (void)s;
    size_t start = out->size;
    for (size_t i = p->start, end = p->start + p->size; i < end;) {
        uint32_t c;
        size_t n = (size_t)by_utf8_next(in->text + i, end - i, &c);
        bool gone =
            (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
        bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                     (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xfeff || c == 0xfffd;
        if (space)
            by_work_put(out, " ", 1, by_work_at(in, i));
        else if (!gone)
            by_work_copy(out, in, i, n);
        i += n;
    }
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

static by_status run_byte_level(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    (void)s;
    size_t start = out->size;
    for (size_t i = p->start; i < p->start + p->size; i++)
        by_work_put_char(out, by_byte_char((uint8_t)in->text[i]), by_work_at(in, i));
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

enum { STRIP_LEFT, STRIP_RIGHT };

static by_status run_strip(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    size_t from = p->start, to = p->start + p->size, start = out->size;
    uint32_t c;
    while (s->flags[STRIP_LEFT] && from < to) {
        int n = by_utf8_next(in->text + from, to - from, &c);
        if (!by_is_space(c))
            break;
        from += (size_t)n;
    }
    while (s->flags[STRIP_RIGHT] && to > from) {
        size_t k = to - 1;
        while (k > from && ((uint8_t)in->text[k] & 0xc0) == 0x80)
            k--;
        by_utf8_next(in->text + k, to - k, &c);
        if (!by_is_space(c))
            break;
        to = k;
    }
    by_work_copy(out, in, from, to - from);
    by_work_piece(out, start, to - from, -1);
    return BY_OK;
}

static by_status run_prepend(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    size_t start = out->size;
    by_work_put(out, s->text, strlen(s->text), by_work_at(in, p->start));
    by_work_copy(out, in, p->start, p->size);
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* ---- replacements ---------------------------------------------------------------------------- */

/* The next match at or after from of the stage's pattern, plain or regular. 1, 0 or -1 as by_regex_find. */
static int find_pattern(const by_stage *s, const char *text, size_t size, size_t from, size_t *start,
                        size_t *end)
{
    if (s->regex)
        return by_regex_find(s->regex, text, size, from, start, end);
    size_t n = strlen(s->text);
    const char *hit = n && from < size ? memmem(text + from, size - from, s->text, n) : NULL;
    if (!hit)
        return 0;
    *start = (size_t)(hit - text);
    *end = *start + n;
    return 1;
}

static by_status run_replace(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    const char *text = in->text + p->start;
    size_t start = out->size, done = 0, from = 0, hit = 0, end = 0, n = strlen(s->content);
    int found = 0;
    while (from <= p->size && (found = find_pattern(s, text, p->size, from, &hit, &end)) > 0) {
        by_work_copy(out, in, p->start + done, hit - done);
        by_work_put(out, s->content, n, by_work_at(in, p->start + BY_MIN(hit, p->size - 1)));
        done = end;
        from = end;
        if (end == hit) { /* an empty match: step over one character */
            uint32_t c;
            from += end < p->size ? (size_t)by_utf8_next(text + end, p->size - end, &c) : 1;
        }
    }
    if (found < 0)
        return by_error_status();
    by_work_copy(out, in, p->start + done, p->size - done);
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* SentencePiece's map as the reference library applies it: to a whole grapheme below six bytes, else to its
 * characters, always with the shortest entry that begins it. */
static by_status run_precompiled(const by_stage *s, const by_work *in, const by_piece *p, by_work *out)
{
    size_t start = out->size, end = p->start + p->size;
    const bool *plain = by_charsmap_plain(s->map);
    for (size_t i = p->start; i < end;) {
        size_t run = i;
        while (run < end && plain[(uint8_t)in->text[run]] && (uint8_t)in->text[run] >= 0x20 &&
               (run + 1 == end || (uint8_t)in->text[run + 1] < 0x80))
            run++;
        by_work_copy(out, in, i, run - i);
        if ((i = run) == end)
            break;
        uint32_t c, next;
        size_t first = (size_t)by_utf8_next(in->text + i, end - i, &c), length = first, matched;
        by_grapheme g;
        by_grapheme_begin(&g, c);
        bool simple = c >= 0x20 && c < 0x7f && i + 1 < end && (uint8_t)in->text[i + 1] < 0x80;
        while (!simple && i + length < end) {
            int n = by_utf8_next(in->text + i + length, end - i - length, &next);
            if (!by_grapheme_goes_on(&g, next))
                break;
            length += (size_t)n;
        }
        by_at at = by_work_at(in, i);
        const char *whole =
            length < 6 ? by_charsmap_find(s->map, in->text + i, length, false, &matched) : NULL;
        if (whole) {
            by_work_put(out, whole, strlen(whole), at);
            i += length;
            continue;
        }
        for (size_t stop = i + length; i < stop;) {
            size_t n = (size_t)by_utf8_next(in->text + i, stop - i, &c);
            const char *part = by_charsmap_find(s->map, in->text + i, n, false, &matched);
            if (part)
                by_work_put(out, part, strlen(part), by_work_at(in, i));
            else
                by_work_copy(out, in, i, n);
            i += n;
        }
    }
    by_work_piece(out, start, out->size - start, -1);
    return BY_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static by_status read_replace(const cJSON *json, by_stage *s)
{
    const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(json, "pattern");
    const char *plain = by_stage_string(pattern, "String"), *regex = by_stage_string(pattern, "Regex");
    const char *content = by_stage_string(json, "content");
    if ((!plain && !regex) || !content)
        return by_fail(BY_ERR_FORMAT, "a Replace normalizer has no pattern or no content");
    s->rewrite = run_replace;
    s->content = by_strdup(content);
    s->text = by_strdup(plain ? plain : "");
    if (!plain)
        s->regex = by_regex_new(regex);
    return s->content && s->text && (plain || s->regex) ? BY_OK : by_error_status();
}

static by_status read_precompiled(const cJSON *json, by_stage *s)
{
    const char *text = by_stage_string(json, "precompiled_charsmap");
    by_buf blob = {0};
    if (!text)
        return by_fail(BY_ERR_FORMAT, "a Precompiled normalizer has no precompiled_charsmap");
    by_status status = by_base64_decode(text, &blob);
    if (status == BY_OK) {
        s->rewrite = run_precompiled;
        s->map = by_charsmap_new((const uint8_t *)(blob.data ? blob.data : ""), blob.size);
        status = s->map ? BY_OK : by_error_status();
    }
    by_buf_free(&blob);
    return status;
}

static by_status read_bert(const cJSON *json, by_stages *out)
{
    bool clean, chinese, lower, strip;
    BY_TRY(by_stage_bool(json, "clean_text", true, &clean));
    BY_TRY(by_stage_bool(json, "handle_chinese_chars", true, &chinese));
    BY_TRY(by_stage_bool(json, "lowercase", true, &lower));
    BY_TRY(by_stage_bool(json, "strip_accents", lower, &strip));
    by_stage *s = by_stages_add(out, "BertNormalizer");
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = run_bert;
    s->flags[BERT_CLEAN] = clean;
    s->flags[BERT_CHINESE] = chinese;
    s->flags[BERT_LOWER] = lower && !strip;
    if (!strip)
        return BY_OK;
    s = by_stages_add(out, "BertNormalizer");
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = run_form;
    s->flags[DROP_NONSPACING] = true;
    s->flags[LOWER] = lower;
    return BY_OK;
}

static const struct normalizer {
    const char *type;
    by_status (*rewrite)(const by_stage *, const by_work *, const by_piece *, by_work *);
    int behavior;
    const char *keys[4]; /* besides "type" */
} normalizers[] = {
    {"NFD", run_form, 0, {0}},
    {"NFC", run_form, 1, {0}},
    {"NFKD", run_form, 2, {0}},
    {"NFKC", run_form, 3, {0}},
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

static by_status read_one(const cJSON *json, const struct normalizer *n, by_stages *out)
{
    BY_TRY(by_json_fields(json, n->type, n->keys, BY_COUNT(n->keys)));
    if (n->rewrite == run_bert)
        return read_bert(json, out);
    by_stage *s = by_stages_add(out, n->type);
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = n->rewrite;
    s->behavior = n->behavior;
    if (n->rewrite == run_replace)
        return read_replace(json, s);
    if (n->rewrite == run_precompiled)
        return read_precompiled(json, s);
    if (n->rewrite == run_strip) {
        BY_TRY(by_stage_bool(json, "strip_left", true, &s->flags[STRIP_LEFT]));
        return by_stage_bool(json, "strip_right", true, &s->flags[STRIP_RIGHT]);
    }
    if (n->rewrite == run_prepend) {
        const char *text = by_stage_string(json, "prepend");
        if (!text)
            return by_fail(BY_ERR_FORMAT, "a Prepend normalizer has no \"prepend\"");
        s->text = by_strdup(text);
        return s->text ? BY_OK : BY_ERR_MEMORY;
    }
    return BY_OK;
}

static by_status read_normalizer(const cJSON *json, const char *type, void *out)
{
    for (int i = 0; i < BY_COUNT(normalizers); i++)
        if (strcmp(type, normalizers[i].type) == 0)
            return read_one(json, &normalizers[i], out);
    return by_fail(BY_ERR_UNSUPPORTED, "normalizers of type \"%.60s\" are not supported", type);
}

by_status by_normalizers_read(const cJSON *json, by_stages *out)
{
    static const by_sequence all = {"normalizers", "normalizers", read_normalizer};
    return by_sequence_read(json, &all, out);
}
