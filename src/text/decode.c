/* decode.c - the decoders of tokenizer.json: tokens to text, one token at a time. Decoders form a chain; each
 * receives strings from the previous one and passes strings on as soon as nothing that follows can change
 * them. */
#include "text/pipeline.h"
#include "text/unicode.h"

typedef struct decoder decoder;
typedef struct tok_unfolding chain;

struct decoder {
    /* Receives the next string of the list; n may be 0. */
    void (*put)(const decoder *d, chain *c, int at, const char *s, size_t n);
    void (*end)(const decoder *d, chain *c, int at); /* NULL: nothing is held back */
    /* Called by end_gather with the whole string. */
    void (*whole_put)(const decoder *d, chain *c, int at, const char *s, size_t n);
    void (*whole_end)(const decoder *d, chain *c, int at);
    tok_chars text, content;
    size_t start, stop;
    tok_regex *regex;
    bool flag;
};

struct tok_decoders {
    decoder *items;
    int count;
    bool joined; /* without decoders, tokens are joined by spaces */
};

/* The state of one decoder. */
typedef struct link {
    size_t seen;   /* number of strings or, for a fused string, bytes stripped from it */
    base_buf held; /* not passed on yet */
    bool begun;
} link;

struct tok_unfolding {
    const tok_decoders *d;
    link *links;
    base_buf *out;
    size_t seen;
    bool failed;
    bool stopped; /* stopped by an error that is set */
};

/* Passes a string to the decoder after number `at`, or out of the chain. */
static void pass(chain *c, int at, const char *s, size_t n)
{
    if (++at < c->d->count)
        c->d->items[at].put(&c->d->items[at], c, at, s, n);
    else if (n)
        base_buf_put(c->out, s, n);
}

/* ---- helpers --------------------------------------------------------------------------------- */

/* Wraps a C string. */
static tok_chars plain(const char *s)
{
    return (tok_chars){(char *)s, strlen(s)};
}

/* Appends s with every `from` replaced. */
static void put_replaced(base_buf *out, const char *s, size_t n, tok_chars from, tok_chars to)
{
    size_t done = 0;
    const char *hit;
    while (from.size && (hit = memmem(s + done, n - done, from.data, from.size))) {
        base_buf_put(out, s + done, (size_t)(hit - s) - done);
        base_buf_put(out, to.data, to.size);
        done = (size_t)(hit - s) + from.size;
    }
    base_buf_put(out, s + done, n - done);
}

/* English spacing: no space before punctuation and contractions. */
static void clean_up(base_buf *text, size_t start)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    if (text->failed || !text->data || !memchr(text->data + start, ' ', text->size - start))
        return;
    for (int i = 0; i < BY_COUNT(pairs); i++) {
        base_buf next = {0};
        put_replaced(&next, text->data + start, text->size - start, plain(pairs[i][0]), plain(pairs[i][1]));
        text->size = start;
        if (next.size)
            base_buf_put(text, next.data, next.size);
        text->failed = text->failed || next.failed;
        base_buf_free(&next);
        if (text->failed)
            return;
    }
}

/* ---- decoders -------------------------------------------------------------------------------- */

static void put_byte_level(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    base_buf bytes = {0};
    (void)d;
    for (size_t i = 0; i < n;) {
        uint32_t point;
        i += (size_t)tok_utf8_next(s + i, n - i, &point);
        int byte = tok_char_byte(point);
        if (byte < 0) { /* not made of byte characters: an added token */
            bytes.size = 0;
            base_buf_put(&bytes, s, n);
            break;
        }
        base_buf_put(&bytes, &(char){(char)byte}, 1);
    }
    c->failed = c->failed || bytes.failed;
    if (bytes.size)
        pass(c, at, bytes.data, bytes.size);
    base_buf_free(&bytes);
}

/* Passes on the contents of text and empties it. */
static void pass_buf(chain *c, int at, base_buf *text)
{
    c->failed = c->failed || text->failed;
    pass(c, at, text->data ? text->data : "", text->size);
    base_buf_free(text);
}

static void put_wordpiece(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    size_t prefix = d->text.size;
    bool first = c->links[at].seen++ == 0;
    bool inner = !first && n >= prefix && memcmp(s, d->text.data, prefix) == 0;
    base_buf text = {0};
    if (!first && !inner)
        base_buf_puts(&text, " ");
    base_buf_put(&text, s + (inner ? prefix : 0), n - (inner ? prefix : 0));
    if (d->flag)
        clean_up(&text, 0);
    pass_buf(c, at, &text);
}

static void put_metaspace(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    bool first = c->links[at].seen++ == 0;
    base_buf text = {0};
    put_replaced(&text, s, n, d->text, plain(first && d->flag ? "" : " "));
    pass_buf(c, at, &text);
}

/* The end of a word becomes a space, except at the end of the text: one string is held back. */
static void put_bpe(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    link *l = &c->links[at];
    base_buf text = {0};
    put_replaced(&text, l->held.data ? l->held.data : "", l->held.size, d->text, plain(" "));
    l->held.size = 0;
    base_buf_put(&l->held, s, n);
    if (l->begun)
        pass_buf(c, at, &text);
    base_buf_free(&text);
    l->begun = true;
}

static void end_bpe(const decoder *d, chain *c, int at)
{
    link *l = &c->links[at];
    base_buf text = {0};
    put_replaced(&text, l->held.data ? l->held.data : "", l->held.size, d->text, plain(""));
    if (l->begun)
        pass_buf(c, at, &text);
    base_buf_free(&text);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int k = tok_utf8_decode((const uint8_t *)s + i, n - i, &c);
        if (k == 0)
            return false;
        i += (size_t)k;
    }
    return true;
}

/* Adjacent bytes become one string, or one replacement character each if they are not UTF-8. */
static void end_byte_fallback(const decoder *d, chain *c, int at)
{
    base_buf *held = &c->links[at].held;
    (void)d;
    if (held->size && is_utf8(held->data, held->size))
        pass(c, at, held->data, held->size);
    else
        for (size_t i = 0; i < held->size; i++)
            pass(c, at, "\xef\xbf\xbd", 3);
    held->size = 0;
}

static void put_byte_fallback(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    int high = n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' ? hex_value(s[3]) : -1;
    int low = high >= 0 ? hex_value(s[4]) : -1;
    if (low >= 0) {
        base_buf_put(&c->links[at].held, &(char){(char)(high * 16 + low)}, 1);
        return;
    }
    end_byte_fallback(d, c, at);
    pass(c, at, s, n);
}

static void put_fuse(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    (void)d;
    pass(c, at, s, n);
}

static void put_strip(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    size_t k = d->text.size;
    for (size_t left = d->start; left && n >= k && memcmp(s, d->text.data, k) == 0; left--) {
        s += k;
        n -= k;
    }
    for (size_t right = d->stop; right && n >= k && memcmp(s + n - k, d->text.data, k) == 0; right--)
        n -= k;
    pass(c, at, s, n);
}

/* Returns how much of text cannot be stripped from the end, whatever follows. */
static size_t sure_size(const decoder *d, const base_buf *text, size_t from)
{
    size_t k = d->text.size, end = text->size, part = BY_MIN(k - 1, end - from);
    /* The start of one more. */
    while (part && memcmp(text->data + end - part, d->text.data, part) != 0)
        part--;
    end -= part;
    for (size_t right = d->stop;
         right && end - from >= k && memcmp(text->data + end - k, d->text.data, k) == 0; right--)
        end -= k;
    return end;
}

/* For one string in parts: holds back what may still belong to a stripped end. */
static void put_strip_parts(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    link *l = &c->links[at];
    size_t k = d->text.size, from = 0;
    base_buf_put(&l->held, s, n);
    if (l->held.failed)
        return;
    while (!l->begun && l->held.size - from >= k) {
        l->begun = l->seen == d->start || memcmp(l->held.data + from, d->text.data, k) != 0;
        l->seen += !l->begun;
        from += l->begun ? 0 : k;
    }
    size_t end = l->begun ? sure_size(d, &l->held, from) : from;
    if (end > from)
        pass(c, at, l->held.data + from, end - from);
    if (end)
        memmove(l->held.data, l->held.data + end, l->held.size - end);
    l->held.size -= end;
}

static void end_strip_parts(const decoder *d, chain *c, int at)
{
    link *l = &c->links[at];
    size_t k = d->text.size, n = l->held.size;
    for (size_t right = d->stop; right && n >= k && memcmp(l->held.data + n - k, d->text.data, k) == 0;
         right--)
        n -= k;
    if (n)
        pass(c, at, l->held.data, n);
}

static void put_replace(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    size_t from = 0, start = 0, end = 0;
    base_buf text = {0}, valid = {0};
    if (!d->regex) {
        put_replaced(&text, s, n, d->text, d->content);
    } else {
        tok_put_lossy(&valid, s, n); /* regular expressions require valid UTF-8 */
        s = valid.data ? valid.data : "";
        n = valid.size;
        c->failed = c->failed || valid.failed;
        tok_regex_scan scan;
        int found = tok_regex_begin(&scan, d->regex, s, n) ? -1 : 1;
        while (found > 0 && from < n && (found = tok_regex_next(&scan, from, &start, &end)) > 0 &&
               end > start) {
            base_buf_put(&text, s + from, start - from);
            base_buf_put(&text, d->content.data, d->content.size);
            from = end;
        }
        tok_regex_end(&scan);
        c->stopped = c->stopped || found < 0;
        base_buf_put(&text, s + from, n - from);
        base_buf_free(&valid);
    }
    pass_buf(c, at, &text);
}

/* Connectionist temporal classification: collapses repeated tokens and drops padding. */
static void put_ctc(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    link *l = &c->links[at];
    base_buf text = {0}, spaced = {0};
    if (l->begun && l->held.size == n && memcmp(l->held.data ? l->held.data : "", s, n) == 0)
        return;
    l->begun = true;
    l->held.size = 0;
    base_buf_put(&l->held, s, n);
    put_replaced(&text, s, n, d->text, plain(""));
    if (d->flag && text.size) {
        clean_up(&text, 0);
        if (text.size)
            put_replaced(&spaced, text.data, text.size, d->content, plain(" "));
        c->failed = c->failed || spaced.failed || text.failed;
        base_buf_free(&text);
        text = spaced;
    }
    if (text.size)
        pass_buf(c, at, &text);
    base_buf_free(&text);
}

/* Collects one string in parts, for decoders that need all of it. */
static void put_gather(const decoder *d, chain *c, int at, const char *s, size_t n)
{
    (void)d;
    base_buf_put(&c->links[at].held, s, n);
    c->links[at].begun = true;
}

static void end_gather(const decoder *d, chain *c, int at)
{
    base_buf all = c->links[at].held;
    if (!c->links[at].begun)
        return;
    c->links[at] = (link){0};
    c->failed = c->failed || all.failed;
    d->whole_put(d, c, at, all.data ? all.data : "", all.size);
    if (d->whole_end)
        d->whole_end(d, c, at);
    base_buf_free(&all);
}

/* ---- running --------------------------------------------------------------------------------- */

tok_unfolding *tok_unfolding_new(const tok_decoders *d)
{
    tok_unfolding *c = base_alloc_zero(1, sizeof(*c));
    if (!c)
        return NULL;
    c->d = d;
    c->links = base_alloc_zero((size_t)d->count + 1, sizeof(*c->links));
    if (c->links)
        return c;
    base_free(c);
    return NULL;
}

static by_status check(chain *c)
{
    bool failed = c->failed || c->out->failed;
    for (int i = 0; i < c->d->count; i++)
        failed = failed || c->links[i].held.failed;
    if (c->stopped)
        return base_error_status();
    return failed ? base_fail(BY_ERR_MEMORY, "out of memory while decoding") : BY_OK;
}

by_status tok_unfolding_put(tok_unfolding *c, const tok_token *token, base_buf *out)
{
    c->out = out;
    if (!c->d->joined && c->seen++)
        base_buf_puts(out, " ");
    pass(c, -1, token->text, token->size);
    return check(c);
}

by_status tok_unfolding_end(tok_unfolding *c, base_buf *out)
{
    c->out = out;
    for (int i = 0; i < c->d->count; i++) {
        const decoder *d = &c->d->items[i];
        if (d->end)
            d->end(d, c, i);
    }
    return check(c);
}

void tok_unfolding_free(tok_unfolding *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->d->count; i++)
        base_buf_free(&c->links[i].held);
    base_free(c->links);
    base_free(c);
}

void tok_put_lossy(base_buf *out, const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t good = 0, i = 0;
    while (i < n) {
        uint32_t c;
        int k = tok_utf8_decode(s + i, n - i, &c);
        if (k > 0) {
            i += (size_t)k;
            continue;
        }
        base_buf_put(out, text + good, i - good);
        base_buf_puts(out, "\xef\xbf\xbd");
        i += tok_utf8_broken(s + i, n - i);
        good = i;
    }
    base_buf_put(out, text + good, n - good);
}

/* ---- reading --------------------------------------------------------------------------------- */

void tok_decoders_free(tok_decoders *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->count; i++) {
        tok_chars_free(&d->items[i].text);
        tok_chars_free(&d->items[i].content);
        tok_regex_free(d->items[i].regex);
    }
    base_free(d->items);
    base_free(d);
}

static by_status set_text(tok_chars *out, const cJSON *json, const char *key, const char *fallback)
{
    const char *text = tok_stage_string(json, key);
    if (!text && !(text = fallback))
        return base_fail(BY_ERR_FORMAT, "a decoder of type %.40s has no \"%s\"", tok_json_type(json), key);
    return tok_chars_set(out, text);
}

static by_status set_count(size_t *out, const cJSON *json, const char *key)
{
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 0 && n->valuedouble < 1e9))
        return base_fail(BY_ERR_FORMAT, "a Strip decoder has no count \"%s\"", key);
    *out = (size_t)n->valuedouble;
    return BY_OK;
}

static by_status read_one(const cJSON *json, decoder *d)
{
    if (d->put == put_wordpiece) {
        BY_TRY(tok_stage_bool(json, "cleanup", true, &d->flag));
        return set_text(&d->text, json, "prefix", "##");
    }
    if (d->put == put_metaspace) {
        const char *scheme = tok_stage_string(json, "prepend_scheme");
        d->flag = !(scheme && strcmp(scheme, "never") == 0) &&
                  !cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(json, "add_prefix_space"));
        return set_text(&d->text, json, "replacement", NULL);
    }
    if (d->put == put_bpe)
        return set_text(&d->text, json, "suffix", "</w>");
    if (d->put == put_strip) {
        BY_TRY(set_count(&d->start, json, "start"));
        BY_TRY(set_count(&d->stop, json, "stop"));
        BY_TRY(set_text(&d->text, json, "content", NULL));
        return d->text.size ? BY_OK : base_fail(BY_ERR_FORMAT, "a Strip decoder has no \"content\"");
    }
    if (d->put == put_replace) {
        BY_TRY(set_text(&d->content, json, "content", NULL));
        BY_TRY(tok_pattern_read(cJSON_GetObjectItemCaseSensitive(json, "pattern"), &d->text, &d->regex));
        return d->text.data || d->regex ? BY_OK
                                        : base_fail(BY_ERR_FORMAT, "a Replace decoder has no pattern");
    }
    if (d->put == put_ctc) {
        BY_TRY(tok_stage_bool(json, "cleanup", true, &d->flag));
        BY_TRY(set_text(&d->content, json, "word_delimiter_token", "|"));
        return set_text(&d->text, json, "pad_token", "<pad>");
    }
    return BY_OK;
}

static const struct known {
    const char *type;
    void (*put)(const decoder *d, chain *c, int at, const char *s, size_t n);
    void (*end)(const decoder *d, chain *c, int at);
    const char *keys[5];
} known[] = {
    {"ByteLevel", put_byte_level, NULL, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"WordPiece", put_wordpiece, NULL, {"prefix", "cleanup"}},
    {"Metaspace",
     put_metaspace,
     NULL,
     {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}},
    {"BPEDecoder", put_bpe, end_bpe, {"suffix"}},
    {"ByteFallback", put_byte_fallback, end_byte_fallback, {0}},
    {"Fuse", put_fuse, NULL, {0}},
    {"Strip", put_strip, NULL, {"content", "start", "stop"}},
    {"Replace", put_replace, NULL, {"pattern", "content"}},
    {"CTC", put_ctc, NULL, {"pad_token", "word_delimiter_token", "cleanup"}},
};

static by_status read_decoder(const cJSON *json, const char *type, void *context)
{
    tok_decoders *out = context;
    int k = 0;
    while (k < BY_COUNT(known) && strcmp(type, known[k].type) != 0)
        k++;
    if (k == BY_COUNT(known))
        return base_fail(BY_ERR_UNSUPPORTED, "decoders of type \"%.60s\" are not supported", type);
    BY_TRY(tok_json_fields(json, type, known[k].keys, BY_COUNT(known[k].keys)));
    decoder *items = base_resize(out->items, (size_t)out->count + 1, sizeof(*items));
    if (!items)
        return BY_ERR_MEMORY;
    out->items = items;
    items[out->count] = (decoder){.put = known[k].put, .end = known[k].end};
    return read_one(json, &items[out->count++]);
}

/* After ByteLevel and Fuse, all tokens are one string. */
static void mark_fused(tok_decoders *all)
{
    bool fused = false;
    for (int i = 0; i < all->count; i++) {
        decoder *d = &all->items[i];
        bool joins = d->put == put_byte_level || d->put == put_fuse;
        if (fused && d->put == put_strip) {
            d->put = put_strip_parts;
            d->end = end_strip_parts;
        } else if (fused && d->put != put_fuse) {
            d->whole_put = d->put;
            d->whole_end = d->end;
            d->put = put_gather;
            d->end = end_gather;
        }
        fused = fused || joins;
    }
}

tok_decoders *tok_decoders_read(const cJSON *json)
{
    tok_decoders *d = base_alloc_zero(1, sizeof(*d));
    static const tok_sequence all = {"decoders", "decoders", read_decoder};
    if (d && tok_sequence_read(json, &all, d) != BY_OK) {
        tok_decoders_free(d);
        return NULL;
    }
    if (d) {
        d->joined = json && !cJSON_IsNull(json);
        mark_fused(d);
    }
    return d;
}
