/* rows.c - see rows.h. */
#include "data/rows.h"

#include <stdlib.h>

/* ---- the list -------------------------------------------------------------------------------- */

by_status data_rows_init(data_rows *r, by_model *m, const by_tokenizer *t, const data_rows_spec *spec)
{
    *r = (data_rows){.model = m, .tokenizer = t, .spec = *spec};
    int context = by_model_context(m);
    if (r->spec.limit > context)
        return base_fail(BY_ERR_ARGUMENT, "rows of %d tokens exceed the model's context of %d", r->spec.limit,
                         context);
    if (r->spec.limit <= 0)
        r->spec.limit = context;
    r->spec.together = BY_MAX(r->spec.together, 1);
    if (by_tokenizer_vocab_size(t) > by_model_source_vocab(m))
        return base_fail(BY_ERR_ARGUMENT, "the tokenizer has %d tokens, but the model's vocabulary has %d",
                         by_tokenizer_vocab_size(t), by_model_source_vocab(m));
    if (by_model_pad(m) < 0 && by_model_reads_last(m))
        by_model_set_pad(m, by_tokenizer_eos(t));
    return BY_OK;
}

void data_rows_clear(data_rows *r)
{
    r->count = r->examples = 0;
    r->tokens.count = 0;
}

void data_rows_free(data_rows *r)
{
    tok_ids_free(&r->tokens);
    base_free(r->segments);
    base_free(r->parts);
    base_free(r->offsets);
    base_free(r->list);
    *r = (data_rows){0};
}

static by_status reserve(data_rows *r, size_t extra)
{
    if (r->count == r->capacity) {
        int grown = r->capacity ? r->capacity * 2 : 64;
        data_row *list = base_resize(r->list, (size_t)grown, sizeof *list);
        if (!list)
            return BY_ERR_MEMORY;
        r->list = list;
        r->capacity = grown;
    }
    BY_TRY(tok_ids_reserve(&r->tokens, extra));
    if (r->room >= r->tokens.capacity)
        return BY_OK;
    size_t room = r->tokens.capacity;
    uint8_t *segments = base_resize(r->segments, room, 1);
    r->segments = segments ? segments : r->segments;
    uint8_t *parts = base_resize(r->parts, room, 1);
    r->parts = parts ? parts : r->parts;
    by_offset *offsets = r->spec.offsets ? base_resize(r->offsets, room, sizeof *offsets) : NULL;
    r->offsets = offsets ? offsets : r->offsets;
    if (!segments || !parts || (r->spec.offsets && !offsets))
        return BY_ERR_MEMORY;
    r->room = room;
    return BY_OK;
}

/* ---- from an encoding to rows ---------------------------------------------------------------- */

/* The range of tokens that a row takes from each part. */
typedef struct cut {
    size_t begin[2], end[2];
} cut;

static by_status add_row(data_rows *r, const by_encoding *e, const cut *c, int window, size_t repeated)
{
    BY_TRY(reserve(r, e->ids.count));
    data_row row = {
        .first = r->tokens.count, .example = r->examples, .window = window, .repeated = (int)repeated};
    size_t seen[2] = {0, 0};
    for (size_t i = 0; i < e->ids.count; i++) {
        int part = e->parts[i];
        if (part != BY_FROM_NEITHER) {
            size_t at = seen[part]++;
            if (at < c->begin[part] || at >= c->end[part])
                continue;
        }
        size_t to = r->tokens.count++;
        r->tokens.data[to] = e->ids.data[i];
        r->segments[to] = e->types[i];
        r->parts[to] = (uint8_t)part;
        if (r->spec.offsets)
            r->offsets[to] = e->offsets[i];
    }
    row.count = (int)(r->tokens.count - row.first);
    r->list[r->count++] = row;
    return BY_OK;
}

/* Shortens the longer text until both have the same length, then both; an odd token goes to the second. */
static void cut_longest(const size_t count[2], size_t limit, cut *c)
{
    size_t low = BY_MIN(count[0], count[1]), high = BY_MAX(count[0], count[1]);
    if (low + high > limit) {
        low = BY_MIN(low, limit / 2);
        high = limit - low;
    }
    bool second = count[1] >= count[0];
    *c = (cut){{0, 0}, {second ? low : high, second ? high : low}};
}

/* Adds windows over one part. The other part, a question, is complete in each of them, or cut to half of the
 * space. */
static by_status add_windows(data_rows *r, const by_encoding *e, const size_t count[2], size_t limit,
                             int over)
{
    cut c = {{0, 0}, {count[0], count[1]}};
    size_t other = over == BY_FROM_PAIR ? BY_MIN(count[BY_FROM_TEXT], limit / 2) : 0;
    c.end[!over] = other;
    size_t room = limit - other, overlap = BY_MIN((size_t)BY_MAX(r->spec.overlap, 0), room / 2);
    for (size_t begin = 0, window = 0;; begin += room - overlap, window++) {
        c.begin[over] = begin;
        c.end[over] = BY_MIN(begin + room, count[over]);
        BY_TRY(add_row(r, e, &c, (int)window, window ? overlap : 0));
        if (c.end[over] == count[over])
            return BY_OK;
    }
}

static by_status add_encoding(data_rows *r, const by_encoding *e, bool paired)
{
    size_t count[3] = {0, 0, 0};
    for (size_t i = 0; i < e->ids.count; i++)
        count[e->parts[i]]++;
    if ((size_t)r->spec.limit < count[BY_FROM_NEITHER] + (paired ? 2 : 1))
        return base_fail(BY_ERR_ARGUMENT, "rows of %d tokens leave no room for a text", r->spec.limit);
    if (e->ids.count == 0)
        return base_fail(BY_ERR_FORMAT, "the text is empty");
    size_t limit = (size_t)r->spec.limit - count[BY_FROM_NEITHER];
    if (r->spec.windows && count[BY_FROM_TEXT] + count[BY_FROM_PAIR] > limit)
        return add_windows(r, e, count, limit, paired ? BY_FROM_PAIR : BY_FROM_TEXT);
    cut c;
    cut_longest(count, limit, &c);
    return add_row(r, e, &c, 0, 0);
}

by_status data_rows_add(data_rows *r, const char *text, const char *pair)
{
    by_encoding e;
    by_encode_spec spec = {.special = true,
                           .offsets = r->spec.offsets,
                           .whole = true,
                           .pair = pair,
                           .pair_size = pair ? strlen(pair) : 0};
    by_status s = by_tokenizer_encode_with(r->tokenizer, text, strlen(text), &spec, &e);
    if (s == BY_OK)
        s = add_encoding(r, &e, pair != NULL);
    if (s == BY_OK)
        r->examples++;
    by_encoding_free(&e);
    return s;
}

by_status data_rows_put(data_rows *r, const int32_t *tokens, int count)
{
    BY_TRY(reserve(r, (size_t)count));
    r->list[r->count++] = (data_row){.first = r->tokens.count, .count = count, .example = r->examples++};
    memcpy(r->tokens.data + r->tokens.count, tokens, (size_t)count * sizeof *tokens);
    memset(r->segments + r->tokens.count, 0, (size_t)count);
    memset(r->parts + r->tokens.count, BY_FROM_TEXT, (size_t)count);
    r->tokens.count += (size_t)count;
    return BY_OK;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Rows that must stay together, by length. */
typedef struct unit {
    int first, length; /* its first row; length of its longest row */
    int order;         /* tie-breaker */
} unit;

static int longer(const void *a, const void *b)
{
    const unit *x = a, *y = b;
    return x->length != y->length ? y->length - x->length : x->order - y->order;
}

static unit *list_units(const data_rows *r, int count)
{
    const int each = r->spec.together;
    unit *units = base_alloc_zero((size_t)count + 1, sizeof *units);
    for (int i = 0; units && i < count; i++) {
        units[i] = (unit){.first = i * each, .order = i};
        for (int k = 0; k < each; k++)
            units[i].length = BY_MAX(units[i].length, r->list[i * each + k].count);
    }
    return units;
}

static by_status start_groups(const data_rows *r, int batch, data_row_groups *out, unit **units, int *count)
{
    const int each = r->spec.together;
    *out = (data_row_groups){0};
    *units = NULL;
    if (r->count % each || batch < each || batch % each)
        return base_fail(BY_ERR_ARGUMENT, "%d rows in batches of %d are not a multiple of the group size %d",
                         r->count, batch, each);
    *count = r->count / each;
    *units = list_units(r, *count);
    out->rows = base_alloc_zero((size_t)r->count + 1, sizeof *out->rows);
    out->first = base_alloc_zero((size_t)(r->count / batch) + 2, sizeof *out->first);
    return *units && out->rows && out->first ? BY_OK : BY_ERR_MEMORY;
}

/* Adds the next group, of n units. */
static void put_group(const data_rows *r, data_row_groups *g, const unit *units, int n)
{
    int at = g->first[g->count];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < r->spec.together; k++)
            g->rows[at++] = units[i].first + k;
    g->first[++g->count] = at;
}

by_status data_rows_by_length(const data_rows *r, int batch, data_row_groups *out)
{
    unit *units;
    int count = 0;
    by_status s = start_groups(r, batch, out, &units, &count);
    if (s == BY_OK) {
        const int n = batch / r->spec.together;
        qsort(units, (size_t)count, sizeof *units, longer);
        for (int i = 0; i < count; i += n)
            put_group(r, out, units + i, BY_MIN(n, count - i));
    }
    base_free(units);
    return s;
}

enum { STRETCH = 32 }; /* rows are sorted by length within this many batches */

by_status data_rows_shuffled(const data_rows *r, int batch, uint64_t seed, data_row_groups *out)
{
    unit *units;
    int count = 0;
    by_status s = start_groups(r, batch, out, &units, &count);
    unit *mixed = s == BY_OK ? base_alloc_zero((size_t)count + 1, sizeof *mixed) : NULL;
    if (s == BY_OK && !mixed)
        s = BY_ERR_MEMORY;
    if (s == BY_OK) {
        const int n = batch / r->spec.together, whole = count / n;
        for (int i = 0; i < count; i++) {
            mixed[i] = units[base_permute((uint64_t)i, (uint64_t)count, seed)];
            mixed[i].order = i;
        }
        for (int i = 0; i < count; i += n * STRETCH)
            qsort(mixed + i, (size_t)BY_MIN(n * STRETCH, count - i), sizeof *mixed, longer);
        for (int i = 0; i < whole; i++)
            put_group(r, out, mixed + base_permute((uint64_t)i, (uint64_t)whole, ~seed) * (uint64_t)n, n);
        if (count % n) /* put last, so that the start of an epoch is the same */
            put_group(r, out, mixed + (size_t)whole * (size_t)n, count % n);
    }
    base_free(mixed);
    base_free(units);
    return s;
}

void data_row_groups_free(data_row_groups *g)
{
    base_free(g->rows);
    base_free(g->first);
    *g = (data_row_groups){0};
}

/* ---- batches --------------------------------------------------------------------------------- */

int data_rows_bucket(int n, int limit)
{
    int step = 8;
    while (n > 8 * step)
        step *= 2;
    return BY_MIN((n + step - 1) / step * step, BY_MAX(limit, n));
}

/* tokens, mask and segments are three planes of one allocation. */
static by_status shape_batch(const data_rows *r, int height, int seq, data_row_batch *out)
{
    size_t plane = (size_t)height * (size_t)seq;
    if (3 * plane > out->capacity) {
        int32_t *cells = base_resize(out->cells, 3 * plane, sizeof *cells);
        if (!cells)
            return BY_ERR_MEMORY;
        out->cells = cells;
        out->capacity = 3 * plane;
    }
    const bool masked = !by_model_reads_last(r->model); /* causal rows do not attend to later padding */
    const bool segmented = by_model_segments(r->model) > 1 && !by_model_languages(r->model);
    out->batch = by_batch_of(height, seq, out->cells);
    out->batch.choices = by_model_task(r->model) == BY_TASK_CHOICE ? r->spec.together : 0;
    by_batch_put_tokens(&out->batch, "mask", masked ? out->cells + plane : NULL);
    by_batch_put_tokens(&out->batch, "segments", segmented ? out->cells + 2 * plane : NULL);
    by_batch_put_tokens(&out->batch, "teacher_segments",
                        !segmented && r->spec.teacher_segments > 1 ? out->cells + 2 * plane : NULL);
    return BY_OK;
}

enum { PADDING_SEGMENT = 3 }; /* XLNet's: a segment besides those of the text */

int data_rows_start(const data_rows *r, int row, int seq)
{
    return by_model_pads_left(r->model) ? seq - r->list[row].count : 0;
}

by_status data_rows_batch(const data_rows *r, const int *rows, int count, int height, data_row_batch *out)
{
    int longest = 1, pad = BY_MAX(by_model_pad(r->model), 0);
    for (int i = 0; i < count; i++)
        longest = BY_MAX(longest, r->list[rows[i]].count);
    height = BY_MAX(height, count);
    const int seq = data_rows_bucket(longest, r->spec.limit),
              most = BY_MAX(by_model_segments(r->model), r->spec.teacher_segments) - 1;
    const int outside = by_model_pads_left(r->model) ? PADDING_SEGMENT : 0;
    BY_TRY(shape_batch(r, height, seq, out));
    out->rows = count;
    const size_t plane = (size_t)height * (size_t)seq;
    for (int b = 0; b < height; b++) {
        const data_row *row = b < count ? &r->list[rows[b]] : NULL;
        int32_t *cell = out->cells + (size_t)b * (size_t)seq;
        const int start = row ? data_rows_start(r, rows[b], seq) : 0;
        for (int t = 0; t < seq; t++) {
            const bool there = row && t >= start && t < start + row->count;
            const size_t at = there ? row->first + (size_t)(t - start) : 0;
            cell[t] = there ? r->tokens.data[at] : pad;
            cell[plane + (size_t)t] = there || (!row && t == 0); /* attention needs at least one key */
            cell[2 * plane + (size_t)t] = there ? BY_MIN(r->segments[at], most) : outside;
        }
    }
    return BY_OK;
}

by_status data_rows_group(const data_rows *r, const data_row_groups *groups, int g, int batch,
                          data_row_batch *out)
{
    int count = groups->first[g + 1] - groups->first[g], height = r->spec.together;
    while (height < count)
        height *= 2;
    return data_rows_batch(r, groups->rows + groups->first[g], count, BY_MIN(height, batch), out);
}

void data_row_batch_free(data_row_batch *b)
{
    base_free(b->cells);
    *b = (data_row_batch){0};
}
