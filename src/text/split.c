/* split.c - the pre-tokenizers of tokenizer.json: split a text into pieces, which a model encodes one by
 * one. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* ---- the byte alphabet and the words of GPT-2 (Radford et al. 2019) -------------------------- */

/* Bytes that are printable in Latin-1 represent themselves; the others are U+0100 and up, in order. */
uint32_t tok_byte_char(uint8_t b)
{
    if ((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad))
        return b;
    if (b <= 0x20)
        return 0x100u + b;
    return b == 0xad ? 0x143 : 0x121u + (b - 0x7fu);
}

int tok_char_byte(uint32_t c)
{
    if (c < 0x100)
        return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c != 0xad) ? (int)c : -1;
    if (c <= 0x120)
        return (int)(c - 0x100);
    if (c <= 0x142)
        return (int)(c - 0x121 + 0x7f);
    return c == 0x143 ? 0xad : -1;
}

#define L TOK_CHAR_LETTER
#define N TOK_CHAR_NUMBER
#define S TOK_CHAR_SPACE
#define O TOK_CHAR_OTHER
static const uint8_t ascii_class[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};
#undef L
#undef N
#undef S
#undef O

/* Returns the class of the character at s[i] and sets its length. */
static inline uint8_t class_at(const uint8_t *s, size_t i, size_t n, size_t *length)
{
    *length = 1;
    if (s[i] < 0x80)
        return ascii_class[s[i]];
    uint32_t c;
    int k = tok_utf8_decode(s + i, n - i, &c);
    if (k == 0)
        return TOK_CHAR_OTHER;
    *length = (size_t)k;
    return (uint8_t)tok_wide_class(c);
}

/* Returns the end of the run of one class that contains s[i]. */
static inline size_t run_end(const uint8_t *s, size_t i, size_t n, uint8_t class)
{
    for (;;) {
        while (i < n && s[i] < 0x80 && ascii_class[s[i]] == class)
            i++;
        size_t length;
        if (i >= n || s[i] < 0x80 || class_at(s, i, n, &length) != class)
            return i;
        i += length;
    }
}

/* 's 't 're 've 'm 'll 'd */
static inline size_t contraction(const uint8_t *s, size_t n)
{
    if (n >= 2 && (s[1] == 's' || s[1] == 't' || s[1] == 'm' || s[1] == 'd'))
        return 2;
    if (n >= 3 &&
        ((s[1] == 'r' && s[2] == 'e') || (s[1] == 'v' && s[2] == 'e') || (s[1] == 'l' && s[2] == 'l')))
        return 3;
    return 0;
}

/* An optional space with letters, numbers or symbols; spaces at the end of the text; spaces except the last;
 * one space. */
size_t tok_gpt2_word(const uint8_t *s, size_t i, size_t n)
{
    size_t length;
    if (s[i] == '\'') {
        length = contraction(s + i, n - i);
        if (length)
            return i + length;
    }
    size_t at = i + (s[i] == ' ' && i + 1 < n);
    uint8_t class = class_at(s, at, n, &length);
    if (class != TOK_CHAR_SPACE)
        return run_end(s, at + length, n, class);
    size_t last = i, end = i;
    while (end < n && class_at(s, end, n, &length) == TOK_CHAR_SPACE) {
        last = end;
        end += length;
    }
    return end < n && last > i ? last : end;
}

enum { PREFIX_SPACE, USE_REGEX };

static by_status run_byte_level(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    const uint8_t *text = (const uint8_t *)in->text + p->start;
    bool prefix = s->flags[PREFIX_SPACE] && p->size && text[0] != ' ';
    base_buf joined = {0};
    if (prefix) { /* the space belongs to the first word: split the text with it */
        base_buf_put(&joined, " ", 1);
        base_buf_put(&joined, text, p->size);
        if (joined.failed) {
            base_buf_free(&joined);
            return base_fail(BY_ERR_MEMORY, "out of memory while splitting a text");
        }
        text = (const uint8_t *)joined.data;
    }
    size_t n = p->size + prefix;
    for (size_t i = 0, end; i < n; i = end) {
        end = s->flags[USE_REGEX] ? tok_gpt2_word(text, i, n) : n;
        size_t start = out->size;
        for (; i < end; i++)
            tok_buffer_put_char(out, tok_byte_char(text[i]),
                                tok_buffer_at(in, p->start + (i ? i - prefix : 0)));
        tok_buffer_piece(out, start, out->size - start, -1);
    }
    base_buf_free(&joined);
    return BY_OK;
}

/* ---- splitting at matches -------------------------------------------------------------------- */

/* Pieces being produced; one is held back because it may still grow. */
typedef struct cutter {
    tok_buffer *out;
    int behavior;
    bool held, last_match;
    size_t start, end;
} cutter;

static void cutter_flush(cutter *c)
{
    if (c->held)
        tok_buffer_piece(c->out, c->start, c->end - c->start, -1);
    c->held = false;
}

static void cutter_hold(cutter *c, size_t start, size_t end)
{
    cutter_flush(c);
    c->held = true;
    c->start = start;
    c->end = end;
}

/* Adds the next stretch of text, which is a match of the pattern or lies between two. */
static void cutter_put(cutter *c, size_t start, size_t end, bool match)
{
    switch (c->behavior) {
    case TOK_SPLIT_REMOVED:
        if (!match)
            tok_buffer_piece(c->out, start, end - start, -1);
        break;
    case TOK_SPLIT_ISOLATED:
        tok_buffer_piece(c->out, start, end - start, -1);
        break;
    case TOK_SPLIT_CONTIGUOUS:
        if (c->held && match == c->last_match)
            c->end = end;
        else
            cutter_hold(c, start, end);
        break;
    case TOK_SPLIT_PREVIOUS:
        if (c->held && match && !c->last_match)
            c->end = end;
        else
            cutter_hold(c, start, end);
        break;
    case TOK_SPLIT_NEXT:
        if (c->held && !match && c->last_match)
            c->end = end;
        else
            cutter_hold(c, start, end);
        break;
    }
    c->last_match = match;
}

/* Splits at the characters for which the test holds, each a separate match. */
static void cut_by(tok_buffer *out, const char *text, size_t start, size_t size, int behavior,
                   bool (*test)(uint32_t))
{
    cutter c = {.out = out, .behavior = behavior};
    size_t from = start, end = start + size;
    for (size_t i = start; i < end;) {
        uint32_t point;
        size_t n = (size_t)tok_utf8_next(text + i, end - i, &point);
        if (test(point)) {
            if (from < i)
                cutter_put(&c, from, i, false);
            cutter_put(&c, i, i + n, true);
            from = i + n;
        }
        i += n;
    }
    if (from < end)
        cutter_put(&c, from, end, false);
    cutter_flush(&c);
}

static bool is_number(uint32_t c)
{
    return tok_class(c) == TOK_CHAR_NUMBER;
}

static by_status run_whitespace_split(const tok_stage *s, const tok_buffer *in, const tok_piece *p,
                                      tok_buffer *out)
{
    (void)s;
    cut_by(out, in->text, p->start, p->size, TOK_SPLIT_REMOVED, tok_is_space);
    return BY_OK;
}

static by_status run_punctuation(const tok_stage *s, const tok_buffer *in, const tok_piece *p,
                                 tok_buffer *out)
{
    cut_by(out, in->text, p->start, p->size, s->behavior, tok_is_punctuation);
    return BY_OK;
}

static by_status run_digits(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    cut_by(out, in->text, p->start, p->size, s->flags[0] ? TOK_SPLIT_ISOLATED : TOK_SPLIT_CONTIGUOUS,
           is_number);
    return BY_OK;
}

/* Drops spaces and isolates each punctuation mark. */
static by_status run_bert(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    (void)s;
    const char *text = in->text;
    size_t from = p->start, end = p->start + p->size;
    for (size_t i = from; i < end;) {
        uint8_t b = (uint8_t)text[i];
        if ((b | 0x20) >= 'a' && (b | 0x20) <= 'z') {
            i++;
            continue;
        }
        uint32_t c;
        size_t n = (size_t)tok_utf8_next(text + i, end - i, &c);
        bool space = tok_is_space(c);
        if (space || tok_is_punctuation(c)) {
            tok_buffer_piece(out, from, i - from, -1);
            if (!space)
                tok_buffer_piece(out, i, n, -1);
            from = i + n;
        }
        i += n;
    }
    tok_buffer_piece(out, from, end - from, -1);
    return BY_OK;
}

/* \w+|[^\w\s]+ */
static by_status run_whitespace(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    (void)s;
    size_t from = p->start, end = p->start + p->size;
    int last = 0; /* 0: space, 1: word, 2: other */
    for (size_t i = from; i < end;) {
        uint32_t c;
        size_t n = (size_t)tok_utf8_next(in->text + i, end - i, &c);
        int class = tok_is_word(c) ? 1 : tok_is_space(c) ? 0 : 2;
        if (class != last) {
            if (last)
                tok_buffer_piece(out, from, i - from, -1);
            from = i;
            last = class;
        }
        i += n;
    }
    if (last)
        tok_buffer_piece(out, from, end - from, -1);
    return BY_OK;
}

/* Starts a new piece where the script changes. Characters without a script belong to the previous piece; at
 * the start of the text they are dropped, as in the reference. */
static by_status run_scripts(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    (void)s;
    size_t from = p->start, end = p->start + p->size;
    int last = 0;
    for (size_t i = from; i < end;) {
        uint32_t c;
        size_t n = (size_t)tok_utf8_next(in->text + i, end - i, &c);
        int script = tok_script(c);
        if (script && script != last) {
            if (last)
                tok_buffer_piece(out, from, i - from, -1);
            from = i;
            last = script;
        }
        i += n;
    }
    if (last)
        tok_buffer_piece(out, from, end - from, -1);
    return BY_OK;
}

/* Drops the delimiter, a character, and keeps what lies between. */
static by_status run_delimiter(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    const char *text = in->text + p->start;
    size_t from = 0, n = s->text.size;
    for (const char *hit; (hit = memmem(text + from, p->size - from, s->text.data, n)) != NULL;
         from = (size_t)(hit - text) + n)
        tok_buffer_piece(out, p->start + from, (size_t)(hit - text) - from, -1);
    tok_buffer_piece(out, p->start + from, p->size - from, -1);
    return BY_OK;
}

/* Pieces of a fixed number of characters. */
static by_status run_fixed(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    size_t from = p->start, end = p->start + p->size;
    int count = 0;
    for (size_t i = from; i < end;) {
        uint32_t c;
        i += (size_t)tok_utf8_next(in->text + i, end - i, &c);
        if (++count == s->behavior || i == end) {
            tok_buffer_piece(out, from, i - from, -1);
            from = i;
            count = 0;
        }
    }
    return BY_OK;
}

enum { INVERT = 0 };

static by_status run_split(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    const char *text = in->text + p->start;
    cutter c = {.out = out, .behavior = s->behavior};
    tok_regex_scan scan = {.size = 0};
    if (s->regex)
        BY_TRY(tok_regex_begin(&scan, s->regex, text, p->size));
    size_t done = 0, from = 0, start = 0, end = 0;
    int found = 0;
    size_t plain = s->text.size;
    while (from <= p->size) {
        if (s->regex) {
            found = tok_regex_next(&scan, from, &start, &end);
        } else {
            const char *hit =
                plain && from < p->size ? memmem(text + from, p->size - from, s->text.data, plain) : NULL;
            found = hit != NULL;
            start = hit ? (size_t)(hit - text) : 0;
            end = start + plain;
        }
        if (found <= 0)
            break;
        if (start > done)
            cutter_put(&c, p->start + done, p->start + start, s->flags[INVERT]);
        cutter_put(&c, p->start + start, p->start + end, !s->flags[INVERT]);
        done = from = end;
        if (start == end) { /* an empty match: continue at the next character */
            uint32_t point;
            from += end < p->size ? (size_t)tok_utf8_next(text + end, p->size - end, &point) : 1;
        }
    }
    tok_regex_end(&scan);
    if (found < 0)
        return base_error_status();
    if (done < p->size)
        cutter_put(&c, p->start + done, p->start + p->size, s->flags[INVERT]);
    cutter_flush(&c);
    return BY_OK;
}

/* ---- Metaspace: spaces become a visible character that starts words -------------------------- */

enum { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

static by_status run_metaspace(const tok_stage *s, const tok_buffer *in, const tok_piece *p, tok_buffer *out)
{
    size_t n = s->text.size, start = out->size, from = start, end = p->start + p->size;
    const char *text = in->text;
    bool marked = text[p->start] == ' ' || (p->size >= n && memcmp(text + p->start, s->text.data, n) == 0);
    bool first = in->at ? in->at[p->start].start == 0 : p->start == 0;
    if (!marked && (s->behavior == SCHEME_ALWAYS || (s->behavior == SCHEME_FIRST && first)))
        tok_buffer_put(out, s->text.data, n, tok_buffer_at(in, p->start));
    for (size_t i = p->start; i < end;) {
        bool space = text[i] == ' ',
             mark = !space && (size_t)(end - i) >= n && memcmp(text + i, s->text.data, n) == 0;
        if ((space || mark) && s->flags[0] && out->size > from) {
            tok_buffer_piece(out, from, out->size - from, -1);
            from = out->size;
        }
        if (space) {
            tok_buffer_put(out, s->text.data, n, tok_buffer_at(in, i++));
            continue;
        }
        size_t to = i + (mark ? n : 1);
        while (to < end && text[to] != ' ' && text[to] != s->text.data[0])
            to++;
        tok_buffer_copy(out, in, i, to - i);
        i = to;
    }
    tok_buffer_piece(out, from, out->size - from, -1);
    return BY_OK;
}

bool tok_splitters_need_places(const tok_stages *s, bool normalized)
{
    for (int i = 0; i < s->count; i++)
        if (s->items[i].rewrite == run_metaspace && s->items[i].behavior == SCHEME_FIRST && (normalized || i))
            return true;
    return false;
}

/* ---- reading --------------------------------------------------------------------------------- */

static by_status read_behavior(const cJSON *json, int fallback, int *out)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *name = tok_stage_string(json, "behavior");
    *out = fallback;
    if (!name && fallback >= 0)
        return BY_OK;
    for (int i = 0; i < BY_COUNT(names) && name; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return BY_OK;
        }
    return base_fail(BY_ERR_FORMAT, "a pre-tokenizer has the unknown behavior \"%.60s\"", name ? name : "");
}

static by_status read_metaspace(const cJSON *json, tok_stage *s)
{
    static const char *const schemes[] = {"always", "first", "never"};
    const char *scheme = tok_stage_string(json, "prepend_scheme");
    const cJSON *prefix = cJSON_GetObjectItemCaseSensitive(json, "add_prefix_space");
    BY_TRY(tok_chars_read(json, "replacement", &s->text));
    if (!s->text.size)
        return base_fail(BY_ERR_FORMAT, "a Metaspace has no \"replacement\"");
    s->behavior = -1;
    for (int i = 0; i < BY_COUNT(schemes); i++)
        if (strcmp(scheme ? scheme : "always", schemes[i]) == 0)
            s->behavior = i;
    if (s->behavior < 0)
        return base_fail(BY_ERR_FORMAT, "a Metaspace has the unknown prepend_scheme \"%.60s\"", scheme);
    if (cJSON_IsFalse(prefix))
        s->behavior = SCHEME_NEVER;
    return tok_stage_bool(json, "split", true, &s->flags[0]);
}

static by_status read_split(const cJSON *json, tok_stage *s)
{
    BY_TRY(read_behavior(json, -1, &s->behavior));
    BY_TRY(tok_stage_bool(json, "invert", false, &s->flags[INVERT]));
    BY_TRY(tok_pattern_read(cJSON_GetObjectItemCaseSensitive(json, "pattern"), &s->text, &s->regex));
    return s->text.data || s->regex ? BY_OK
                                    : base_fail(BY_ERR_FORMAT, "a Split pre-tokenizer has no pattern");
}

static by_status read_delimiter(const cJSON *json, tok_stage *s)
{
    uint32_t c;
    BY_TRY(tok_chars_read(json, "delimiter", &s->text));
    if (!s->text.size || tok_utf8_next(s->text.data, s->text.size, &c) != (int)s->text.size)
        return base_fail(BY_ERR_FORMAT, "a CharDelimiterSplit requires a delimiter of one character");
    return BY_OK;
}

static by_status read_length(const cJSON *json, tok_stage *s)
{
    const cJSON *length = cJSON_GetObjectItemCaseSensitive(json, "length");
    if (!cJSON_IsNumber(length) || !(length->valuedouble >= 1 && length->valuedouble < (1 << 30)))
        return base_fail(BY_ERR_FORMAT, "a FixedLength pre-tokenizer requires a length of at least 1");
    s->behavior = (int)length->valuedouble;
    return BY_OK;
}

typedef by_status run_stage(const tok_stage *, const tok_buffer *, const tok_piece *, tok_buffer *);
static const struct splitter {
    const char *type;
    run_stage *rewrite, *split;
    const char *keys[5]; /* besides "type" */
} splitters[] = {
    {"ByteLevel", run_byte_level, NULL, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"BertPreTokenizer", NULL, run_bert, {0}},
    {"Whitespace", NULL, run_whitespace, {0}},
    {"WhitespaceSplit", NULL, run_whitespace_split, {0}},
    {"Metaspace",
     run_metaspace,
     NULL,
     {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}},
    {"Punctuation", NULL, run_punctuation, {"behavior"}},
    {"Digits", NULL, run_digits, {"individual_digits"}},
    {"UnicodeScripts", NULL, run_scripts, {0}},
    {"CharDelimiterSplit", NULL, run_delimiter, {"delimiter"}},
    {"FixedLength", NULL, run_fixed, {"length"}},
    {"XLM", tok_moses_run, NULL, {"lowercase"}}, /* our own: legacy_json.c uses it for an XLM directory */
    {"Split", NULL, run_split, {"pattern", "behavior", "invert"}},
};

static by_status read_one(const cJSON *json, const struct splitter *k, tok_stages *out)
{
    BY_TRY(tok_json_fields(json, k->type, k->keys, BY_COUNT(k->keys)));
    tok_stage *s = tok_stages_add(out, k->type);
    if (!s)
        return BY_ERR_MEMORY;
    s->rewrite = k->rewrite;
    s->split = k->split;
    if (k->rewrite == run_byte_level) {
        BY_TRY(tok_stage_bool(json, "add_prefix_space", true, &s->flags[PREFIX_SPACE]));
        return tok_stage_bool(json, "use_regex", true, &s->flags[USE_REGEX]);
    }
    if (k->rewrite == run_metaspace)
        return read_metaspace(json, s);
    if (k->rewrite == tok_moses_run)
        return tok_stage_bool(json, "lowercase", true, &s->flags[0]);
    if (k->split == run_punctuation)
        return read_behavior(json, TOK_SPLIT_ISOLATED, &s->behavior);
    if (k->split == run_digits)
        return tok_stage_bool(json, "individual_digits", false, &s->flags[0]);
    if (k->split == run_delimiter)
        return read_delimiter(json, s);
    if (k->split == run_fixed)
        return read_length(json, s);
    return k->split == run_split ? read_split(json, s) : BY_OK;
}

static by_status read_splitter(const cJSON *json, const char *type, void *out)
{
    for (int i = 0; i < BY_COUNT(splitters); i++)
        if (strcmp(type, splitters[i].type) == 0)
            return read_one(json, &splitters[i], out);
    return base_fail(BY_ERR_UNSUPPORTED, "pre-tokenizers of type \"%.60s\" are not supported", type);
}

by_status tok_splitters_read(const cJSON *json, tok_stages *out)
{
    static const tok_sequence all = {"pre-tokenizers", "pretokenizers", read_splitter};
    return tok_sequence_read(json, &all, out);
}
