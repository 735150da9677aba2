/* decode.c - the decoders of tokenizer.json: from a list of tokens to text. Each turns a list of strings into
 * another; the last list is joined. */
#include "text/pipeline.h"
#include "text/unicode.h"

typedef struct list {
    by_buf text;
    size_t *ends; /* string i is text[ends[i - 1] .. ends[i]) */
    size_t count, capacity;
    bool failed;
} list;

typedef struct decoder decoder;
struct decoder {
    void (*run)(const decoder *d, const list *in, list *out);
    char *text, *content;
    size_t start, stop;
    by_regex *regex;
    bool flag;
};

struct by_decoders {
    decoder *items;
    int count;
    bool joined; /* without decoders, tokens are joined by spaces */
};

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_free(list *v)
{
    by_buf_free(&v->text);
    by_free(v->ends);
    *v = (list){0};
}

/* Close the string that was put into v->text. */
static void list_end(list *v)
{
    if (v->count == v->capacity) {
        size_t capacity = BY_MAX(v->capacity * 2, (size_t)64);
        size_t *ends = by_resize(v->ends, capacity, sizeof(*ends));
        if (!ends) {
            v->failed = true;
            return;
        }
        v->ends = ends;
        v->capacity = capacity;
    }
    v->ends[v->count++] = v->text.size;
}

static const char *list_at(const list *v, size_t i, size_t *size)
{
    size_t start = i ? v->ends[i - 1] : 0;
    *size = v->ends[i] - start;
    return v->text.data ? v->text.data + start : "";
}

/* Put s with every `from` replaced. */
static void put_replaced(by_buf *out, const char *s, size_t n, const char *from, const char *to)
{
    size_t k = strlen(from), done = 0;
    const char *hit;
    while (k && (hit = memmem(s + done, n - done, from, k))) {
        by_buf_put(out, s + done, (size_t)(hit - s) - done);
        by_buf_puts(out, to);
        done = (size_t)(hit - s) + k;
    }
    by_buf_put(out, s + done, n - done);
}

/* English spacing: no space before punctuation and contractions. */
static void clean_up(by_buf *text, size_t start)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    if (text->failed || !text->data || !memchr(text->data + start, ' ', text->size - start))
        return;
    for (int i = 0; i < BY_COUNT(pairs); i++) {
        by_buf next = {0};
        put_replaced(&next, text->data + start, text->size - start, pairs[i][0], pairs[i][1]);
        text->size = start;
        if (next.size)
            by_buf_put(text, next.data, next.size);
        text->failed = text->failed || next.failed;
        by_buf_free(&next);
        if (text->failed)
            return;
    }
}

/* ---- decoders -------------------------------------------------------------------------------- */

static void run_byte_level(const decoder *d, const list *in, list *out)
{
    (void)d;
    for (size_t i = 0; i < in->count; i++) {
        size_t n, start = out->text.size;
        const char *s = list_at(in, i, &n);
        for (size_t k = 0; k < n;) {
            uint32_t c;
            k += (size_t)by_utf8_next(s + k, n - k, &c);
            int byte = by_char_byte(c);
            if (byte < 0) { /* not made of byte characters: an added token */
                out->text.size = start;
                by_buf_put(&out->text, s, n);
                break;
            }
            by_buf_put(&out->text, &(char){(char)byte}, 1);
        }
    }
    list_end(out);
}

static void run_wordpiece(const decoder *d, const list *in, list *out)
{
    size_t prefix = strlen(d->text);
    for (size_t i = 0; i < in->count; i++) {
        size_t n, start = out->text.size;
        const char *s = list_at(in, i, &n);
        if (i > 0 && n >= prefix && memcmp(s, d->text, prefix) == 0) {
            by_buf_put(&out->text, s + prefix, n - prefix);
        } else {
            if (i > 0)
                by_buf_puts(&out->text, " ");
            by_buf_put(&out->text, s, n);
        }
        if (d->flag)
            clean_up(&out->text, start);
        list_end(out);
    }
}

static void run_metaspace(const decoder *d, const list *in, list *out)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t n;
        const char *s = list_at(in, i, &n);
        put_replaced(&out->text, s, n, d->text, i == 0 && d->flag ? "" : " ");
        list_end(out);
    }
}

static void run_bpe(const decoder *d, const list *in, list *out)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t n;
        const char *s = list_at(in, i, &n);
        put_replaced(&out->text, s, n, d->text, i + 1 == in->count ? "" : " ");
        list_end(out);
    }
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
        int k = by_utf8_decode((const uint8_t *)s + i, n - i, &c);
        if (k == 0)
            return false;
        i += (size_t)k;
    }
    return true;
}

/* Bytes that stood together become one string, or a replacement character each when they are not UTF-8. */
static void put_bytes(by_buf *bytes, list *out)
{
    if (bytes->size == 0)
        return;
    if (is_utf8(bytes->data, bytes->size)) {
        by_buf_put(&out->text, bytes->data, bytes->size);
        list_end(out);
    } else {
        for (size_t i = 0; i < bytes->size; i++) {
            by_buf_puts(&out->text, "\xef\xbf\xbd");
            list_end(out);
        }
    }
    bytes->size = 0;
}

static void run_byte_fallback(const decoder *d, const list *in, list *out)
{
    (void)d;
    by_buf bytes = {0};
    for (size_t i = 0; i < in->count; i++) {
        size_t n;
        const char *s = list_at(in, i, &n);
        int high = n == 6 && memcmp(s, "<0x", 3) == 0 && s[5] == '>' ? hex_value(s[3]) : -1;
        int low = high >= 0 ? hex_value(s[4]) : -1;
        if (low >= 0) {
            by_buf_put(&bytes, &(char){(char)(high * 16 + low)}, 1);
            continue;
        }
        put_bytes(&bytes, out);
        by_buf_put(&out->text, s, n);
        list_end(out);
    }
    put_bytes(&bytes, out);
    out->failed = out->failed || bytes.failed;
    by_buf_free(&bytes);
}

static void run_fuse(const decoder *d, const list *in, list *out)
{
    (void)d;
    if (in->text.size)
        by_buf_put(&out->text, in->text.data, in->text.size);
    list_end(out);
}

static void run_strip(const decoder *d, const list *in, list *out)
{
    size_t k = strlen(d->text);
    for (size_t i = 0; i < in->count; i++) {
        size_t n;
        const char *s = list_at(in, i, &n);
        for (size_t left = d->start; left && n >= k && memcmp(s, d->text, k) == 0; left--) {
            s += k;
            n -= k;
        }
        for (size_t right = d->stop; right && n >= k && memcmp(s + n - k, d->text, k) == 0; right--)
            n -= k;
        by_buf_put(&out->text, s, n);
        list_end(out);
    }
}

static void run_replace(const decoder *d, const list *in, list *out)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t n, from = 0, start = 0, end = 0;
        const char *s = list_at(in, i, &n);
        if (!d->regex) {
            put_replaced(&out->text, s, n, d->text, d->content);
        } else {
            while (from < n && by_regex_find(d->regex, s, n, from, &start, &end) > 0 && end > start) {
                by_buf_put(&out->text, s + from, start - from);
                by_buf_puts(&out->text, d->content);
                from = end;
            }
            by_buf_put(&out->text, s + from, n - from);
        }
        list_end(out);
    }
}

/* Connectionist temporal classification: repeated tokens are one, padding is nothing. */
static void run_ctc(const decoder *d, const list *in, list *out)
{
    for (size_t i = 0; i < in->count; i++) {
        size_t n, before, start = out->text.size;
        const char *s = list_at(in, i, &n), *last = i ? list_at(in, i - 1, &before) : NULL;
        if (last && before == n && memcmp(last, s, n) == 0)
            continue;
        put_replaced(&out->text, s, n, d->text, "");
        if (d->flag && !out->text.failed && out->text.size > start) {
            clean_up(&out->text, start);
            by_buf next = {0};
            put_replaced(&next, out->text.data + start, out->text.size - start, d->content, " ");
            out->text.size = start;
            if (next.size)
                by_buf_put(&out->text, next.data, next.size);
            out->failed = out->failed || next.failed;
            by_buf_free(&next);
        }
        if (out->text.size > start)
            list_end(out);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* Append s with each longest beginning of a broken character replaced by U+FFFD. */
static void put_lossy(by_buf *out, const char *text, size_t n)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t good = 0, i = 0;
    while (i < n) {
        uint32_t c;
        int k = by_utf8_decode(s + i, n - i, &c);
        if (k > 0) {
            i += (size_t)k;
            continue;
        }
        by_buf_put(out, text + good, i - good);
        by_buf_puts(out, "\xef\xbf\xbd");
        uint8_t a = s[i++];
        int more = a >= 0xf0 && a <= 0xf4 ? 3 : a >= 0xe0 && a < 0xf0 ? 2 : a >= 0xc2 && a < 0xe0 ? 1 : 0;
        uint8_t low = a == 0xe0   ? 0xa0
                      : a == 0xf0 ? 0x90
                                  : 0x80,
                high = a == 0xed   ? 0x9f
                       : a == 0xf4 ? 0x8f
                                   : 0xbf;
        for (; more && i < n && s[i] >= low && s[i] <= high; more--, i++) {
            low = 0x80;
            high = 0xbf;
        }
        good = i;
    }
    by_buf_put(out, text + good, n - good);
}

by_status by_decoders_run(const by_decoders *d, const by_token *tokens, size_t count, bool lossy, by_buf *out)
{
    list now = {0}, next = {0};
    for (size_t i = 0; i < count; i++) {
        if (i && !d->joined)
            by_buf_puts(&now.text, " ");
        by_buf_put(&now.text, tokens[i].text, tokens[i].size);
        list_end(&now);
    }
    for (int k = 0; k < d->count && now.count && !now.failed && !now.text.failed; k++) {
        next.text.size = next.count = 0;
        d->items[k].run(&d->items[k], &now, &next);
        list t = now;
        now = next;
        next = t;
    }
    bool failed = now.failed || now.text.failed || next.failed || next.text.failed;
    if (!failed && now.text.size) {
        if (lossy)
            put_lossy(out, now.text.data, now.text.size);
        else
            by_buf_put(out, now.text.data, now.text.size);
    }
    list_free(&now);
    list_free(&next);
    return failed || out->failed ? by_fail(BY_ERR_MEMORY, "out of memory decoding %zu tokens", count) : BY_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

void by_decoders_free(by_decoders *d)
{
    if (!d)
        return;
    for (int i = 0; i < d->count; i++) {
        by_free(d->items[i].text);
        by_free(d->items[i].content);
        by_regex_free(d->items[i].regex);
    }
    by_free(d->items);
    by_free(d);
}

static by_status set_text(char **out, const cJSON *json, const char *key, const char *fallback)
{
    const char *text = by_stage_string(json, key);
    if (!text && !(text = fallback))
        return by_fail(BY_ERR_FORMAT, "a decoder of type %.40s has no \"%s\"", by_json_type(json), key);
    *out = by_strdup(text);
    return *out ? BY_OK : BY_ERR_MEMORY;
}

static by_status set_count(size_t *out, const cJSON *json, const char *key)
{
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!cJSON_IsNumber(n) || !(n->valuedouble >= 0 && n->valuedouble < 1e9))
        return by_fail(BY_ERR_FORMAT, "a Strip decoder has no count \"%s\"", key);
    *out = (size_t)n->valuedouble;
    return BY_OK;
}

static by_status read_one(const cJSON *json, const char *type, decoder *d)
{
    if (d->run == run_wordpiece) {
        BY_TRY(by_stage_bool(json, "cleanup", true, &d->flag));
        return set_text(&d->text, json, "prefix", "##");
    }
    if (d->run == run_metaspace) {
        const char *scheme = by_stage_string(json, "prepend_scheme");
        d->flag = !(scheme && strcmp(scheme, "never") == 0) &&
                  !cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(json, "add_prefix_space"));
        return set_text(&d->text, json, "replacement", NULL);
    }
    if (d->run == run_bpe)
        return set_text(&d->text, json, "suffix", "</w>");
    if (d->run == run_strip) {
        BY_TRY(set_count(&d->start, json, "start"));
        BY_TRY(set_count(&d->stop, json, "stop"));
        BY_TRY(set_text(&d->text, json, "content", NULL));
        return d->text[0] ? BY_OK : by_fail(BY_ERR_FORMAT, "a Strip decoder has no \"content\"");
    }
    if (d->run == run_replace) {
        const cJSON *pattern = cJSON_GetObjectItemCaseSensitive(json, "pattern");
        const char *regex = by_stage_string(pattern, "Regex");
        BY_TRY(set_text(&d->content, json, "content", NULL));
        if (!regex)
            return set_text(&d->text, pattern, "String", NULL);
        d->regex = by_regex_new(regex);
        return d->regex ? BY_OK : by_error_status();
    }
    if (d->run == run_ctc) {
        BY_TRY(by_stage_bool(json, "cleanup", true, &d->flag));
        BY_TRY(set_text(&d->content, json, "word_delimiter_token", "|"));
        return set_text(&d->text, json, "pad_token", "<pad>");
    }
    (void)type;
    return BY_OK;
}

static const struct known {
    const char *type;
    void (*run)(const decoder *d, const list *in, list *out);
    const char *keys[5];
} known[] = {
    {"ByteLevel", run_byte_level, {"add_prefix_space", "trim_offsets", "use_regex"}},
    {"WordPiece", run_wordpiece, {"prefix", "cleanup"}},
    {"Metaspace", run_metaspace, {"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"}},
    {"BPEDecoder", run_bpe, {"suffix"}},
    {"ByteFallback", run_byte_fallback, {0}},
    {"Fuse", run_fuse, {0}},
    {"Strip", run_strip, {"content", "start", "stop"}},
    {"Replace", run_replace, {"pattern", "content"}},
    {"CTC", run_ctc, {"pad_token", "word_delimiter_token", "cleanup"}},
};

static by_status read_decoder(const cJSON *json, by_decoders *out, int depth)
{
    if (!json || cJSON_IsNull(json))
        return BY_OK;
    if (depth > BY_MAX_NESTING)
        return by_fail(BY_ERR_FORMAT, "decoders are nested more than %d deep", BY_MAX_NESTING);
    const char *type = by_json_type(json);
    out->joined = true;
    if (strcmp(type, "Sequence") == 0) {
        static const char *const keys[] = {"type", "decoders"};
        BY_TRY(by_json_only(json, "a Sequence of decoders", keys, 2));
        const cJSON *items = cJSON_GetObjectItemCaseSensitive(json, "decoders");
        for (const cJSON *item = items ? items->child : NULL; item; item = item->next)
            BY_TRY(read_decoder(item, out, depth + 1));
        return BY_OK;
    }
    for (int i = 0; i < BY_COUNT(known); i++) {
        if (strcmp(type, known[i].type) != 0)
            continue;
        const char *keys[] = {"type",           known[i].keys[0], known[i].keys[1],
                              known[i].keys[2], known[i].keys[3], known[i].keys[4]};
        int count = 1;
        while (count < 6 && keys[count])
            count++;
        BY_TRY(by_json_only(json, type, keys, count));
        decoder *items = by_resize(out->items, (size_t)out->count + 1, sizeof(*items));
        if (!items)
            return BY_ERR_MEMORY;
        out->items = items;
        items[out->count] = (decoder){.run = known[i].run};
        return read_one(json, type, &items[out->count++]);
    }
    return by_fail(BY_ERR_UNSUPPORTED, "decoders of type \"%.60s\" are not supported", type);
}

by_decoders *by_decoders_read(const cJSON *json)
{
    by_decoders *d = by_alloc_zero(1, sizeof(*d));
    if (d && read_decoder(json, d, 0) != BY_OK) {
        by_decoders_free(d);
        return NULL;
    }
    return d;
}
