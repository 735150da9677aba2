/* spiece.c - reads SentencePiece model files, which are protocol buffers: fields with a number and a wire
 * type, in any order; unknown ones are skipped. */
#include "text/legacy/spiece.h"

typedef struct reader {
    const uint8_t *at, *end;
    bool failed;
} reader;

typedef struct field {
    int number, wire; /* number 0: the end */
    uint64_t value;   /* wire 0; also the bits of a fixed field */
    const uint8_t *bytes;
    size_t size; /* wire 2 */
} field;

static uint64_t read_varint(reader *r)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            break;
        uint8_t b = *r->at++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    r->failed = true;
    return 0;
}

static uint64_t read_fixed(reader *r, size_t n)
{
    uint64_t v = 0;
    if ((size_t)(r->end - r->at) < n) {
        r->failed = true;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)*r->at++ << (8 * i);
    return v;
}

static field next_field(reader *r)
{
    field f = {0};
    if (r->failed || r->at == r->end)
        return f;
    uint64_t key = read_varint(r);
    f.wire = (int)(key & 7);
    f.number = key >> 3 < (1 << 29) ? (int)(key >> 3) : 0;
    if (f.wire == 0) {
        f.value = read_varint(r);
    } else if (f.wire == 1 || f.wire == 5) {
        f.value = read_fixed(r, f.wire == 1 ? 8 : 4);
    } else if (f.wire == 2) {
        uint64_t n = read_varint(r);
        if (r->failed || n > (uint64_t)(r->end - r->at)) {
            r->failed = true;
        } else {
            f.bytes = r->at;
            f.size = (size_t)n;
            r->at += n;
        }
    } else {
        r->failed = true;
    }
    if (r->failed || f.number == 0) {
        r->failed = true;
        f.number = 0;
    }
    return f;
}

static by_status read_piece(tok_spiece *m, const field *from)
{
    reader r = {from->bytes, from->bytes + from->size, false};
    const char *text = "";
    size_t size = 0;
    float score = 0;
    uint8_t type = TOK_PIECE_NORMAL;
    for (field f = next_field(&r); f.number; f = next_field(&r)) {
        if (f.number == 1 && f.wire == 2) {
            text = (const char *)f.bytes;
            size = f.size;
        } else if (f.number == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, 4);
        } else if (f.number == 3 && f.wire == 0) {
            type = f.value <= TOK_PIECE_BYTE ? (uint8_t)f.value : 0;
        }
    }
    if (r.failed || type == 0 || score != score)
        return base_fail(BY_ERR_FORMAT, "piece %d is damaged", m->count);
    if (m->count == m->capacity) {
        int capacity = BY_MAX(m->capacity * 2, 1024);
        float *scores = base_resize(m->scores, (size_t)capacity, sizeof(*scores));
        if (scores)
            m->scores = scores;
        uint8_t *types = base_resize(m->types, (size_t)capacity, 1);
        if (types)
            m->types = types;
        if (!scores || !types)
            return BY_ERR_MEMORY;
        m->capacity = capacity;
    }
    if (tok_vocab_find(&m->vocab, text, size) >= 0)
        return base_fail(BY_ERR_FORMAT, "duplicate piece \"%.*s\"", (int)BY_MIN(size, (size_t)40), text);
    BY_TRY(tok_vocab_put(&m->vocab, text, size, m->count));
    m->scores[m->count] = score;
    m->types[m->count++] = type;
    return BY_OK;
}

static by_status read_trainer(tok_spiece *m, const field *from)
{
    reader r = {from->bytes, from->bytes + from->size, false};
    for (field f = next_field(&r); f.number; f = next_field(&r)) {
        if (f.number == 3 && f.wire == 0)
            m->model = f.value <= TOK_SPIECE_CHAR ? (int)f.value : 0;
        else if (f.number == 24 && f.wire == 0)
            m->space_as_suffix = f.value != 0;
        else if (f.number == 35 && f.wire == 0)
            m->byte_fallback = f.value != 0;
        else if (f.number == 44 && f.wire == 2) {
            base_free(m->unk_surface);
            m->unk_surface = base_sprintf("%.*s", (int)BY_MIN(f.size, (size_t)1000), (const char *)f.bytes);
            if (!m->unk_surface)
                return BY_ERR_MEMORY;
        } else if (f.number == 53 && f.wire == 2 && f.size)
            return base_fail(BY_ERR_UNSUPPORTED, "a pretokenization_delimiter is not supported");
    }
    return r.failed ? base_fail(BY_ERR_FORMAT, "the trainer's settings are damaged") : BY_OK;
}

static by_status read_normalizer(tok_spiece *m, const field *from)
{
    reader r = {from->bytes, from->bytes + from->size, false};
    for (field f = next_field(&r); f.number; f = next_field(&r)) {
        if (f.number == 2 && f.wire == 2) {
            m->charsmap.size = 0;
            base_buf_put(&m->charsmap, f.bytes, f.size);
        } else if (f.number == 3 && f.wire == 0)
            m->dummy_prefix = f.value != 0;
        else if (f.number == 4 && f.wire == 0)
            m->remove_spaces = f.value != 0;
        else if (f.number == 5 && f.wire == 0)
            m->escape_spaces = f.value != 0;
    }
    if (m->charsmap.failed)
        return base_fail(BY_ERR_MEMORY, "out of memory while reading a normaliser map");
    return r.failed ? base_fail(BY_ERR_FORMAT, "the normaliser's settings are damaged") : BY_OK;
}

static by_status read_model(tok_spiece *m, const void *bytes, size_t size)
{
    reader r = {bytes, (const uint8_t *)bytes + size, false};
    for (field f = next_field(&r); f.number; f = next_field(&r)) {
        if (f.wire != 2)
            continue;
        if (f.number == 1)
            BY_TRY(read_piece(m, &f));
        else if (f.number == 2)
            BY_TRY(read_trainer(m, &f));
        else if (f.number == 3)
            BY_TRY(read_normalizer(m, &f));
    }
    if (r.failed)
        return base_fail(BY_ERR_FORMAT, "not a SentencePiece model, or truncated");
    if (m->model != TOK_SPIECE_UNIGRAM && m->model != TOK_SPIECE_BPE)
        return base_fail(BY_ERR_UNSUPPORTED,
                         "SentencePiece models of type %s are not supported (unigram and BPE are)",
                         m->model == TOK_SPIECE_WORD   ? "word"
                         : m->model == TOK_SPIECE_CHAR ? "char"
                                                       : "unknown");
    m->unk = -1;
    for (int id = 0; id < m->count; id++) {
        if (m->types[id] == TOK_PIECE_UNKNOWN && m->unk >= 0)
            return base_fail(BY_ERR_FORMAT, "more than one unknown piece");
        if (m->types[id] == TOK_PIECE_UNKNOWN)
            m->unk = id;
    }
    return m->unk >= 0 ? BY_OK : base_fail(BY_ERR_FORMAT, "not a SentencePiece model: no unknown piece");
}

by_status tok_spiece_parse(tok_spiece *m, const void *bytes, size_t size)
{
    *m = (tok_spiece){
        .model = TOK_SPIECE_UNIGRAM, .dummy_prefix = true, .remove_spaces = true, .escape_spaces = true};
    m->unk_surface = base_strdup(" \xe2\x81\x87 ");
    by_status status = m->unk_surface ? read_model(m, bytes, size) : BY_ERR_MEMORY;
    if (status != BY_OK)
        tok_spiece_free(m);
    return status;
}

void tok_spiece_free(tok_spiece *m)
{
    tok_vocab_free(&m->vocab);
    base_free(m->scores);
    base_free(m->types);
    base_free(m->unk_surface);
    base_buf_free(&m->charsmap);
    *m = (tok_spiece){0};
}

void tok_base64_encode(const void *bytes, size_t n, base_buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *s = bytes;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v =
            (uint32_t)s[i] << 16 | (i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0) | (i + 2 < n ? s[i + 2] : 0u);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        base_buf_put(out, four, 4);
    }
}
