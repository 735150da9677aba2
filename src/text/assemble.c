/* assemble.c - what is around the ids of a text: its pair, special tokens, truncation, what did not fit,
 * padding. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* ---- the texts ------------------------------------------------------------------------------- */

typedef struct range {
    size_t start, end;
} range;

typedef struct part {
    by_ids ids;
    by_spans spans;
    range *ranges; /* the pieces it is cut into; the first is what is kept */
    size_t count;
} part;

/* Is this what a byte-level token may begin and end with that is no text? */
static bool is_trimmed(uint32_t c)
{
    return c == 0x120 || by_is_space(c);
}

static size_t leading_spaces(const by_token *token)
{
    size_t count = 0;
    uint32_t c;
    for (size_t i = 0; i < token->size; count++) {
        i += (size_t)by_utf8_next(token->text + i, token->size - i, &c);
        if (!is_trimmed(c))
            break;
    }
    return count;
}

static size_t trailing_spaces(const by_token *token)
{
    size_t count = 0;
    uint32_t c;
    for (size_t i = token->size; i > 0; count++) {
        do
            i--;
        while (i > 0 && ((uint8_t)token->text[i] & 0xc0) == 0x80);
        by_utf8_next(token->text + i, token->size - i, &c);
        if (!is_trimmed(c))
            break;
    }
    return count;
}

/* Leave out the spaces at the ends of each token's place, as byte-level post-processors ask. */
static void trim_places(const by_pipeline *p, const char *text, const by_ids *ids, by_spans *spans)
{
    for (size_t i = 0; i < spans->count; i++) {
        by_at *at = &spans->data[i];
        const by_token *token = &p->texts[ids->data[i]];
        size_t lead = leading_spaces(token), trail = trailing_spaces(token);
        if (lead == 1 && p->post.trim_prefix_space && (i == 0 || at->start == 0) && text[at->start] != ' ')
            lead = 0;
        at->start = (uint32_t)BY_MIN(at->start + lead, (size_t)at->end);
        if (trail && at->end >= trail)
            at->end = (uint32_t)BY_MAX(at->end - trail, (size_t)at->start);
    }
}

static by_status encode_part(const by_pipeline *p, const char *text, size_t size, bool offsets, part *v)
{
    BY_TRY(by_pipeline_encode(p, text, size, &v->ids, offsets ? &v->spans : NULL));
    if (offsets && p->post.trim)
        trim_places(p, text, &v->ids, &v->spans);
    v->ranges = by_alloc(sizeof(*v->ranges));
    if (!v->ranges)
        return BY_ERR_MEMORY;
    v->ranges[v->count++] = (range){0, v->ids.count};
    return BY_OK;
}

static void part_free(part *v)
{
    by_ids_free(&v->ids);
    by_free(v->spans.data);
    by_free(v->ranges);
}

/* ---- truncation ------------------------------------------------------------------------------ */

/* Cut into pieces of `most` ids that overlap by stride, from one end to the other; the last may be shorter.
 */
static by_status part_cut(part *v, size_t most, const by_truncation *t)
{
    size_t n = v->ids.count, stride = (size_t)t->stride, count = 0;
    if (most >= n)
        return BY_OK;
    if (most && stride >= most)
        return by_fail(BY_ERR_ARGUMENT, "a stride of %zu does not go with pieces of %zu tokens", stride,
                       most);
    size_t step = most ? most - stride : n;
    range *ranges = by_alloc((n / step + 2) * sizeof(*ranges));
    if (!ranges)
        return BY_ERR_MEMORY;
    by_free(v->ranges);
    v->ranges = ranges;
    if (!most) { /* nothing is kept */
        ranges[count++] = (range){0, 0};
        ranges[count++] = (range){0, n};
    }
    for (size_t done = 0; most && done < n; done += step) {
        size_t end = BY_MIN(done + most, n);
        ranges[count++] = t->left ? (range){n - end, n - done} : (range){done, end};
        if (end == n)
            break;
    }
    v->count = count;
    return BY_OK;
}

/* Room for `limit` ids in all: the longer text gives way first. */
static by_status cut_longest(part parts[2], size_t limit, const by_truncation *t)
{
    size_t a = parts[0].ids.count, b = parts[1].ids.count;
    size_t low = BY_MIN(a, b), high = low > limit ? low : BY_MAX(low, limit - low);
    if (low + high > limit) {
        low = limit / 2;
        high = low + limit % 2;
    }
    BY_TRY(part_cut(&parts[0], a > b ? high : low, t));
    return part_cut(&parts[1], a > b ? low : high, t);
}

/* added: special tokens that come on top. When they alone are too many, nothing is cut, as in the reference.
 */
static by_status truncate(part parts[2], bool paired, size_t added, const by_truncation *t)
{
    size_t total = parts[0].ids.count + parts[1].ids.count, most = (size_t)t->max_length;
    if (most < added || total <= most - added)
        return BY_OK;
    size_t limit = most - added, surplus = total - limit;
    if (limit == 0) {
        BY_TRY(part_cut(&parts[0], 0, t));
        return part_cut(&parts[1], 0, t);
    }
    if (t->strategy == BY_TRUNCATE_LONGEST)
        return paired ? cut_longest(parts, limit, t) : part_cut(&parts[0], limit, t);
    part *v = &parts[t->strategy == BY_TRUNCATE_SECOND];
    if (t->strategy == BY_TRUNCATE_SECOND && !paired)
        return by_fail(BY_ERR_ARGUMENT, "there is no second text to truncate");
    if (v->ids.count <= surplus)
        return by_fail(BY_ERR_ARGUMENT, "the %s text is too short to bring the whole down to %zu tokens",
                       t->strategy == BY_TRUNCATE_SECOND ? "second" : "first", most);
    return part_cut(v, v->ids.count - surplus, t);
}

/* ---- putting it together --------------------------------------------------------------------- */

typedef struct job {
    const by_pipeline *p;
    const by_template *template; /* NULL: no special tokens */
    const by_padding *padding;   /* NULL: none */
    bool paired, offsets;
    part parts[2];
} job;

static by_status reserve(by_encoding *out, bool offsets)
{
    if (out->ids.count < out->capacity)
        return BY_OK;
    size_t capacity = BY_MAX(out->capacity * 2, (size_t)64);
    uint8_t *types = by_resize(out->types, capacity, 1);
    if (types)
        out->types = types;
    uint8_t *mask = by_resize(out->special, capacity, 1);
    if (mask)
        out->special = mask;
    uint8_t *parts = by_resize(out->parts, capacity, 1);
    if (parts)
        out->parts = parts;
    by_offset *places = offsets ? by_resize(out->offsets, capacity, sizeof(*places)) : NULL;
    if (places)
        out->offsets = places;
    if (!types || !mask || !parts || (offsets && !places))
        return BY_ERR_MEMORY;
    out->capacity = capacity;
    return BY_OK;
}

static by_status put_token(by_encoding *out, bool offsets, int32_t id, by_at at, int type, int from)
{
    BY_TRY(reserve(out, offsets));
    size_t i = out->ids.count;
    BY_TRY(by_ids_push(&out->ids, id));
    out->types[i] = (uint8_t)type;
    out->special[i] = from == BY_FROM_NEITHER;
    out->parts[i] = (uint8_t)from;
    if (offsets)
        out->offsets[i] = (by_offset){at.start, at.end};
    return BY_OK;
}

static by_status put_part(by_encoding *out, const job *j, int which, range r, int type)
{
    const part *v = &j->parts[which];
    const bool offsets = j->offsets;
    for (size_t i = r.start; i < r.end; i++)
        BY_TRY(
            put_token(out, offsets, v->ids.data[i], offsets ? v->spans.data[i] : (by_at){0, 0}, type, which));
    return BY_OK;
}

static by_status put_template(const job *j, const range r[2], by_encoding *out)
{
    for (int i = 0; i < j->template->count; i++) {
        const by_template_item *item = &j->template->items[i];
        if (item->sequence >= 0)
            BY_TRY(put_part(out, j, item->sequence, r[item->sequence], item->type_id));
        for (int k = 0; k < item->count; k++)
            BY_TRY(put_token(out, j->offsets, item->ids[k], (by_at){0, 0}, item->type_id, BY_FROM_NEITHER));
    }
    return BY_OK;
}

/* Padding to a length that is given; a batch is padded by whoever has it. */
static by_status put_padding(const by_padding *p, bool offsets, by_encoding *out)
{
    size_t own = out->ids.count, target = BY_MAX(own, (size_t)p->length), multiple = (size_t)p->multiple;
    if (multiple)
        target = (target + multiple - 1) / multiple * multiple;
    size_t missing = target - own;
    for (size_t i = 0; i < missing; i++)
        BY_TRY(put_token(out, offsets, p->id, (by_at){0, 0}, p->type_id, BY_FROM_NEITHER));
    out->padding = missing;
    out->padded_left = p->left;
    if (!missing || !p->left || !own)
        return BY_OK;
    memmove(out->ids.data + missing, out->ids.data, own * sizeof(*out->ids.data));
    memmove(out->types + missing, out->types, own);
    memmove(out->special + missing, out->special, own);
    memmove(out->parts + missing, out->parts, own);
    memset(out->special, 1, missing);
    memset(out->parts, BY_FROM_NEITHER, missing);
    memset(out->types, p->type_id, missing);
    for (size_t i = 0; i < missing; i++)
        out->ids.data[i] = p->id;
    if (offsets) {
        memmove(out->offsets + missing, out->offsets, own * sizeof(*out->offsets));
        memset(out->offsets, 0, missing * sizeof(*out->offsets));
    }
    return BY_OK;
}

/* Piece a of the first text with piece b of the second. */
static by_status put_pieces(const job *j, size_t a, size_t b, by_encoding *out)
{
    range r[2] = {j->parts[0].ranges[a], j->paired ? j->parts[1].ranges[b] : (range){0, 0}};
    if (j->template) {
        BY_TRY(put_template(j, r, out));
    } else {
        BY_TRY(put_part(out, j, BY_FROM_TEXT, r[0], 0));
        BY_TRY(put_part(out, j, BY_FROM_PAIR, r[1], 1));
    }
    return j->padding ? put_padding(j->padding, j->offsets, out) : BY_OK;
}

/* All other pairs of pieces, in the reference's order: the first text's kept piece comes last. */
static by_status put_overflow(const job *j, by_encoding *out)
{
    size_t first = j->parts[0].count, second = j->paired ? j->parts[1].count : 1;
    if (first * second == 1)
        return BY_OK;
    out->overflow = by_alloc_zero(first * second, sizeof(*out->overflow));
    if (!out->overflow)
        return BY_ERR_MEMORY;
    for (size_t i = 1; i <= first; i++)
        for (size_t b = i == first; b < second; b++)
            BY_TRY(put_pieces(j, i % first, b, &out->overflow[out->overflow_count++]));
    return BY_OK;
}

static by_status run(job *j, const char *text, size_t size, const by_encode_spec *spec, by_encoding *out)
{
    const by_pipeline *p = j->p;
    const by_truncation *t = spec->truncation ? spec->truncation : p->truncate ? &p->truncation : NULL;
    size_t added = 0;
    BY_TRY(encode_part(p, text, size, j->offsets, &j->parts[0]));
    if (j->paired)
        BY_TRY(encode_part(p, spec->pair, spec->pair_size, j->offsets, &j->parts[1]));
    for (int i = 0; j->template && i < j->template->count; i++)
        added += (size_t)j->template->items[i].count;
    if (t && !spec->whole)
        BY_TRY(truncate(j->parts, j->paired, added, t));
    BY_TRY(put_pieces(j, 0, 0, out));
    return put_overflow(j, out);
}

by_status by_pipeline_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                  const by_encode_spec *spec, by_encoding *out)
{
    const by_pipeline *p = (const by_pipeline *)t;
    job j = {.p = p, .paired = spec->pair != NULL, .offsets = spec->offsets};
    if (p->post.has_template && spec->special)
        j.template = j.paired ? &p->post.pair : &p->post.single;
    if (!spec->whole)
        j.padding = spec->padding ? spec->padding : p->pad ? &p->padding : NULL;
    by_status status = run(&j, text, size, spec, out);
    part_free(&j.parts[0]);
    part_free(&j.parts[1]);
    return status;
}
