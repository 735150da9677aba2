/* assemble.c - assembles an encoding around the ids of a text: its pair, special tokens, truncation,
 * overflow, padding. */
#include "text/pipeline.h"
#include "text/unicode.h"

/* ---- the texts ------------------------------------------------------------------------------- */

typedef struct range {
    size_t start, end;
} range;

typedef struct part {
    const char *text;
    size_t size;
    by_ids ids;
    tok_spans spans;
    range *ranges; /* the pieces it is split into; the first is kept */
    size_t count;
} part;

static by_status encode_part(const tok_pipeline *p, const char *text, size_t size, bool offsets, part *v)
{
    v->text = text;
    v->size = size;
    BY_TRY(tok_pipeline_encode(p, text, size, &v->ids, offsets ? &v->spans : NULL));
    v->ranges = base_alloc(sizeof(*v->ranges));
    if (!v->ranges)
        return BY_ERR_MEMORY;
    v->ranges[v->count++] = (range){0, v->ids.count};
    return BY_OK;
}

static void part_free(part *v)
{
    tok_ids_free(&v->ids);
    base_free(v->spans.data);
    base_free(v->ranges);
}

/* ---- truncation ------------------------------------------------------------------------------ */

/* Splits into pieces of `most` ids that overlap by stride, from one end to the other; the last may be
 * shorter. */
static by_status part_cut(part *v, size_t most, const by_truncation *t)
{
    size_t n = v->ids.count, stride = (size_t)t->stride, count = 0;
    if (most >= n)
        return BY_OK;
    if (most && stride >= most)
        return base_fail(BY_ERR_ARGUMENT, "a stride of %zu is too large for pieces of %zu tokens", stride,
                         most);
    size_t step = most ? most - stride : n;
    range *ranges = base_alloc((n / step + 2) * sizeof(*ranges));
    if (!ranges)
        return BY_ERR_MEMORY;
    base_free(v->ranges);
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

/* Truncates to `limit` ids in total, the longer text first. */
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

/* added: number of special tokens to be added. If they alone exceed the limit, nothing is truncated, as in
 * the reference. */
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
        return base_fail(BY_ERR_ARGUMENT, "cannot truncate the second text: there is none");
    if (v->ids.count <= surplus)
        return base_fail(BY_ERR_ARGUMENT, "the %s text is too short to truncate the pair to %zu tokens",
                         t->strategy == BY_TRUNCATE_SECOND ? "second" : "first", most);
    return part_cut(v, v->ids.count - surplus, t);
}

/* ---- trimming -------------------------------------------------------------------------------- */

/* Removes the spaces at the ends of a token's range, as byte-level post-processors require. Spaces are
 * counted in the token, but the range moves by as many characters of the text; the two need not agree. first:
 * nothing precedes the token. */
static tok_at trim_place(const part *v, const tok_span_place *token, tok_at at, bool first, bool prefix_space)
{
    const char *text = v->text;
    size_t start = at.start, end = at.end, trail = token->trail, lead = token->lead;
    if (lead == 1 && prefix_space && (first || start == 0))
        lead = 0; /* the space was prepended */
    for (; lead && start < end; lead--)
        start += (size_t)tok_utf8_next(text + start, v->size - start, &(uint32_t){0});
    start = BY_MIN(start, end);
    size_t back = end;
    for (; trail && back > 0; trail--)
        do
            back--;
        while (back > 0 && ((uint8_t)text[back] & 0xc0) == 0x80);
    if (!trail)
        end = BY_MAX(back, start);
    return (tok_at){(uint32_t)start, (uint32_t)end};
}

/* Returns the range of token i, which is the one at `first` or follows it. */
static tok_at place_of(const part *v, size_t i, size_t first, const tok_template_item *item)
{
    const tok_span_place *token = &v->spans.data[i];
    tok_at at = {token->start, token->end};
    for (int k = 0; k < item->trim_count; k++)
        at = trim_place(v, token, at, i == first && (item->trims[k] & TOK_TRIM_FIRST),
                        item->trims[k] & TOK_TRIM_PREFIX_SPACE);
    return at;
}

/* ---- putting it together --------------------------------------------------------------------- */

#define TOK_MAX_SEQUENCES 16 /* sequences of a template that can be truncated */

typedef struct job {
    const tok_pipeline *p;
    const tok_template *template;
    const by_padding *padding; /* NULL: none */
    bool paired, offsets;
    part parts[2];
} job;

static by_status reserve(by_encoding *out, bool offsets)
{
    if (out->ids.count < out->capacity)
        return BY_OK;
    size_t capacity = BY_MAX(out->capacity * 2, (size_t)64);
    uint8_t *types = base_resize(out->types, capacity, 1);
    if (types)
        out->types = types;
    uint8_t *mask = base_resize(out->special, capacity, 1);
    if (mask)
        out->special = mask;
    uint8_t *parts = base_resize(out->parts, capacity, 1);
    if (parts)
        out->parts = parts;
    by_offset *places = offsets ? base_resize(out->offsets, capacity, sizeof(*places)) : NULL;
    if (places)
        out->offsets = places;
    if (!types || !mask || !parts || (offsets && !places))
        return BY_ERR_MEMORY;
    out->capacity = capacity;
    return BY_OK;
}

static by_status put_token(by_encoding *out, bool offsets, int32_t id, tok_at at, int type, int from)
{
    BY_TRY(reserve(out, offsets));
    size_t i = out->ids.count;
    BY_TRY(tok_ids_push(&out->ids, id));
    out->types[i] = (uint8_t)type;
    out->special[i] = from == BY_FROM_NEITHER;
    out->parts[i] = (uint8_t)from;
    if (offsets)
        out->offsets[i] = (by_offset){at.start, at.end};
    return BY_OK;
}

static by_status put_part(by_encoding *out, const job *j, const tok_template_item *item, range r)
{
    const part *v = &j->parts[item->sequence];
    for (size_t i = r.start; i < r.end; i++) {
        tok_at at = j->offsets ? place_of(v, i, r.start, item) : (tok_at){0, 0};
        BY_TRY(put_token(out, j->offsets, v->ids.data[i], at, item->type_id, item->sequence));
    }
    return BY_OK;
}

/* Pads to a given length. Padding to the longest of a batch is up to the caller. */
static by_status put_padding(const by_padding *p, bool offsets, by_encoding *out)
{
    size_t own = out->ids.count, target = BY_MAX(own, (size_t)p->length), multiple = (size_t)p->multiple;
    if (multiple)
        target = (target + multiple - 1) / multiple * multiple;
    size_t missing = target - own;
    for (size_t i = 0; i < missing; i++)
        BY_TRY(put_token(out, offsets, p->id, (tok_at){0, 0}, p->type_id, BY_FROM_NEITHER));
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

/* Assembles one piece of each sequence of the template. which: indices of the pieces, NULL for the first of
 * each. */
static by_status put_pieces(const job *j, const size_t *which, by_encoding *out)
{
    for (int i = 0; i < j->template->count; i++) {
        const tok_template_item *item = &j->template->items[i];
        if (item->sequence >= 0)
            BY_TRY(put_part(out, j, item, j->parts[item->sequence].ranges[which ? *which++ : 0]));
        for (int k = 0; k < item->count; k++)
            BY_TRY(put_token(out, j->offsets, item->ids[k], (tok_at){0, 0}, item->type_id, BY_FROM_NEITHER));
    }
    return j->padding ? put_padding(j->padding, j->offsets, out) : BY_OK;
}

/* Lists the combinations of pieces for `depth` sequences, in the order of the reference: for each combination
 * of the previous sequences except the first, all pieces of the last; then the first combination with the
 * other pieces. The first combination itself is at index 0. counts: pieces of each sequence. Returns the
 * number of combinations; out has `depth` numbers for each. */
static size_t list_choices(const size_t *counts, size_t depth, size_t width, size_t *out)
{
    if (depth == 0)
        return 1;
    size_t before = list_choices(counts, depth - 1, width, out), n = counts[depth - 1];
    for (size_t i = before; i-- > 1;) /* from the end, because the lists share memory */
        for (size_t k = n; k-- > 0;) {
            size_t *to = out + ((i - 1) * n + k + 1) * width;
            memmove(to, out + i * width, (depth - 1) * sizeof(*out));
            to[depth - 1] = k;
        }
    for (size_t k = 1; k < n; k++) {
        size_t *to = out + ((before - 1) * n + k) * width;
        memcpy(to, out, (depth - 1) * sizeof(*out));
        to[depth - 1] = k;
    }
    out[depth - 1] = 0;
    return before * n;
}

#define MOST_OVERFLOW ((size_t)1 << 24) /* limit of the list of combinations */

/* Adds all other combinations of pieces. */
static by_status put_overflow(const job *j, by_encoding *out)
{
    size_t depth = 0, total = 1, counts[TOK_MAX_SEQUENCES];
    for (int i = 0; i < j->template->count; i++)
        if (j->template->items[i].sequence >= 0) {
            size_t n = j->parts[j->template->items[i].sequence].count;
            if (depth == TOK_MAX_SEQUENCES || total * n > MOST_OVERFLOW / TOK_MAX_SEQUENCES)
                return base_fail(BY_ERR_UNSUPPORTED, "truncation produces too many overflow pieces");
            counts[depth++] = n;
            total *= n;
        }
    if (total <= 1)
        return BY_OK;
    size_t *choices = base_alloc_zero(total * depth, sizeof(*choices));
    by_status status = choices ? BY_OK : BY_ERR_MEMORY;
    out->overflow = base_alloc_zero(total, sizeof(*out->overflow));
    if (!out->overflow)
        status = BY_ERR_MEMORY;
    if (choices)
        list_choices(counts, depth, depth, choices);
    for (size_t i = 1; i < total && status == BY_OK; i++)
        status = put_pieces(j, choices + i * depth, &out->overflow[out->overflow_count++]);
    base_free(choices);
    return status;
}

static by_status run(job *j, const char *text, size_t size, const by_encode_spec *spec, by_encoding *out)
{
    const tok_pipeline *p = j->p;
    const by_truncation *t = spec->truncation ? spec->truncation : p->truncate ? &p->truncation : NULL;
    if (j->template->bad)
        return base_fail(BY_ERR_UNSUPPORTED, "%s", j->template->bad);
    BY_TRY(encode_part(p, text, size, j->offsets, &j->parts[0]));
    if (j->paired)
        BY_TRY(encode_part(p, spec->pair, spec->pair_size, j->offsets, &j->parts[1]));
    if (t && !spec->whole)
        BY_TRY(truncate(j->parts, j->paired, j->template->added, t));
    BY_TRY(put_pieces(j, NULL, out));
    return put_overflow(j, out);
}

by_status tok_pipeline_encode_with(const by_tokenizer *t, const char *text, size_t size,
                                   const by_encode_spec *spec, by_encoding *out)
{
    const tok_pipeline *p = (const tok_pipeline *)t;
    job j = {.p = p, .paired = spec->pair != NULL, .offsets = spec->offsets};
    j.template = &p->post.forms[j.paired][spec->special];
    if (!spec->whole)
        j.padding = spec->padding ? spec->padding : p->pad ? &p->padding : NULL;
    by_status status = run(&j, text, size, spec, out);
    part_free(&j.parts[0]);
    part_free(&j.parts[1]);
    return status;
}
