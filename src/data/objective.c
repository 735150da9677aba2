/* objective.c - see objective.h. */
#include "data/objective_row.h"

#include <stdio.h>

/* Random streams of one seed: orders of epochs, copies of the text, evaluation. */
#define ORDER_STREAM (UINT64_C(1) << 62)
#define COPY_STREAM  (UINT64_C(1) << 61)
#define HELD_STREAM  (UINT64_C(3) << 60)

/* Special tokens that an objective requires. */
enum { FIRST = 1, SEP = 2, PAD = 4, MASK = 8, EOS = 16, AROUND = FIRST | SEP | PAD };

enum { SHORTEST = 8 }; /* minimum tokens of a row, including special tokens */

static const struct {
    const char *name;
    by_task task;
    bool masks;
    int needs;
    const char *labels[2];
    by_status (*plan)(data_objective *);
    by_status (*row)(const data_objective *, int64_t, base_rng *, data_sample *);
} kinds[DATA_OBJECTIVE_COUNT] = {
    [DATA_OBJECTIVE_LM] = {.name = "lm", .task = BY_TASK_LM},
    [DATA_OBJECTIVE_MLM] = {"mlm", BY_TASK_MLM, true, AROUND | MASK, {NULL}, data_pack_plan, data_pack_row},
    [DATA_OBJECTIVE_NSP] =
        {"nsp", BY_TASK_PRETRAIN, true, AROUND | MASK, {"next", "random"}, data_pairs_plan, data_pairs_row},
    [DATA_OBJECTIVE_SOP] = {"sop",
                            BY_TASK_PRETRAIN,
                            true,
                            AROUND | MASK,
                            {"in order", "swapped"},
                            data_pairs_plan,
                            data_pairs_row},
    [DATA_OBJECTIVE_CLM] = {"clm", BY_TASK_LM, false, AROUND, {NULL}, data_pack_plan, data_pack_row},
    [DATA_OBJECTIVE_TLM] =
        {"tlm", BY_TASK_MLM, true, AROUND | MASK, {NULL}, data_translations_plan, data_translations_row},
    [DATA_OBJECTIVE_TRANSLATE] =
        {"translate", BY_TASK_SEQ2SEQ, false, PAD | EOS, {NULL}, data_buckets_plan, NULL},
    [DATA_OBJECTIVE_SPANS] =
        {"spans", BY_TASK_SEQ2SEQ, false, PAD | EOS, {NULL}, data_spans_plan, data_spans_row},
    [DATA_OBJECTIVE_INFILL] =
        {"infill", BY_TASK_SEQ2SEQ, false, AROUND | MASK, {NULL}, data_infill_plan, data_infill_row},
    [DATA_OBJECTIVE_PLM] = {"plm", BY_TASK_LM, false, FIRST | SEP, {NULL}, data_plm_plan, NULL},
    [DATA_OBJECTIVE_PIXELS] = {.name = "pixels", .task = BY_TASK_LM},
    [DATA_OBJECTIVE_FIM] = {"fim", BY_TASK_LM, false, EOS, {NULL}, data_pack_plan, data_fim_row},
};

const char *data_objective_name(data_objective_kind k)
{
    return kinds[k].name;
}

bool data_objective_find(const char *name, data_objective_kind *out)
{
    base_buf known = {0};
    for (int i = 0; i < DATA_OBJECTIVE_COUNT; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            *out = (data_objective_kind)i;
            base_buf_free(&known);
            return true;
        }
        base_buf_printf(&known, "%s%s", i ? ", " : "", kinds[i].name);
    }
    base_fail(BY_ERR_ARGUMENT, "unknown objective \"%s\"; available: %s", name, known.data ? known.data : "");
    base_buf_free(&known);
    return false;
}

by_task data_objective_task(data_objective_kind k)
{
    return kinds[k].task;
}

bool data_objective_masks(data_objective_kind k)
{
    return kinds[k].masks;
}

bool data_objective_denoises(data_objective_kind k)
{
    return k == DATA_OBJECTIVE_SPANS || k == DATA_OBJECTIVE_INFILL;
}

const char *data_objective_label(data_objective_kind k, int label)
{
    return label == 0 || label == 1 ? kinds[k].labels[label] : NULL;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Looks up a special token. A required token that is missing is an error. */
static by_status find_special(const data_objective *o, const by_tokenizer *t, int part, int id,
                              const char *what, int *out)
{
    *out = id;
    return id >= 0 || !(kinds[o->spec.kind].needs & part)
               ? BY_OK
               : base_fail(BY_ERR_UNSUPPORTED,
                           "the tokenizer (%s) has no %s token, which the objective \"%s\" requires; use the "
                           "tokenizer of a model that has one",
                           tok_kind(t), what, kinds[o->spec.kind].name);
}

static by_status find_specials(data_objective *o, const by_tokenizer *t)
{
    const struct {
        int part, id;
        const char *what;
        int *out;
    } list[] = {
        {FIRST, by_tokenizer_special(t, BY_SPECIAL_FIRST), "first ([CLS], <s>)", &o->first},
        {SEP, by_tokenizer_special(t, BY_SPECIAL_SEP), "separating ([SEP], </s>)", &o->sep},
        {PAD, by_tokenizer_special(t, BY_SPECIAL_PAD), "padding ([PAD], <pad>)", &o->pad},
        {MASK, by_tokenizer_special(t, BY_SPECIAL_MASK), "mask ([MASK], <mask>)", &o->masker.masked},
        {EOS, by_tokenizer_source_eos(t), "closing (</s>)", &o->eos},
    };
    for (int i = 0; i < BY_COUNT(list); i++)
        BY_TRY(find_special(o, t, list[i].part, list[i].id, list[i].what, list[i].out));
    return BY_OK;
}

/* Finds <extra_id_0>, <extra_id_1>, ..., as many as there are. */
static by_status find_sentinels(data_objective *o, const by_tokenizer *t)
{
    for (;; o->n_sentinels++) {
        char name[32];
        base_format(name, sizeof name, "<extra_id_%d>", o->n_sentinels);
        int32_t id = by_tokenizer_find(t, name);
        if (id < 0)
            break;
        int32_t *more = base_resize(o->sentinels, (size_t)o->n_sentinels + 1, sizeof *more);
        if (!more)
            return BY_ERR_MEMORY;
        o->sentinels = more;
        o->sentinels[o->n_sentinels] = id;
    }
    return o->n_sentinels > 1
               ? BY_OK
               : base_fail(
                     BY_ERR_UNSUPPORTED,
                     "the tokenizer (%s) has no sentinel tokens (<extra_id_0>, ...), which the objective "
                     "\"spans\" requires; T5 tokenizers and those trained for t5 have them",
                     tok_kind(t));
}

static by_status read_vocabulary(data_objective *o, const by_tokenizer *t)
{
    BY_TRY(data_masker_open(&o->masker, &o->spec.masking, t));
    BY_TRY(find_specials(o, t));
    if (o->spec.kind == DATA_OBJECTIVE_SPANS)
        BY_TRY(find_sentinels(o, t));
    if (o->spec.kind == DATA_OBJECTIVE_FIM) {
        BY_TRY(data_fim_find(t, &o->fim));
        o->first = o->eos;
        o->pad = o->pad < 0 ? o->eos : o->pad; /* never attended to */
    }
    if (kinds[o->spec.kind].masks && o->spec.masking.whole_words && !o->masker.marked)
        return base_fail(
            BY_ERR_UNSUPPORTED,
            "the tokenizer (%s) does not mark where words start, so whole words cannot be masked",
            tok_kind(t));
    return BY_OK;
}

static by_status check(const data_objective_spec *s)
{
    const data_masking *m = &s->masking;
    if (s->seq < SHORTEST || s->step_rows < 1)
        return base_fail(BY_ERR_ARGUMENT,
                         "rows of %d tokens are too short for the objective \"%s\"; the minimum is %d",
                         s->seq, kinds[s->kind].name, SHORTEST);
    if (!(m->share > 0 && m->share < 1 + (s->kind == DATA_OBJECTIVE_FIM)) || m->masked < 0 || m->random < 0 ||
        m->masked + m->random > 1)
        return base_fail(BY_ERR_ARGUMENT, "invalid masking: fraction %g, of which %g masked and %g replaced",
                         m->share, m->masked, m->random);
    if (data_objective_denoises(s->kind) && !(m->span >= 1 && m->span <= s->seq / 2.0))
        return base_fail(BY_ERR_ARGUMENT, "spans of %g tokens cannot be removed from rows of %d", m->span,
                         s->seq);
    return BY_OK;
}

static by_status set_up(data_objective *o, const by_tokenizer *t)
{
    BY_TRY(check(&o->spec));
    BY_TRY(read_vocabulary(o, t));
    BY_TRY(kinds[o->spec.kind].plan(o));
    if (o->count == 0)
        return base_fail(
            BY_ERR_FORMAT,
            "the text has no examples for the objective \"%s\"; is it empty, or are its lines too short?",
            kinds[o->spec.kind].name);
    if (kinds[o->spec.kind].masks)
        o->picks = data_mask_picks(&o->spec.masking, o->spec.seq);
    return BY_OK;
}

data_objective *data_objective_new(const data_docs_part *text, const by_tokenizer *t,
                                   const data_objective_spec *spec)
{
    data_objective *o = base_alloc_zero(1, sizeof *o);
    if (!o)
        return NULL;
    o->spec = *spec;
    o->text = text;
    if (set_up(o, t) != BY_OK) {
        data_objective_free(o);
        return NULL;
    }
    return o;
}

data_objective *data_objective_new_lm(const data_lm_batches *d)
{
    data_objective *o = base_alloc_zero(1, sizeof *o);
    if (!o)
        return NULL;
    o->lm = *d;
    o->spec = (data_objective_spec){
        .kind = DATA_OBJECTIVE_LM, .seq = d->seq, .step_rows = d->batch, .seed = d->seed};
    return o;
}

void data_objective_free(data_objective *o)
{
    if (!o)
        return;
    data_masker_close(&o->masker);
    base_free(o->rows);
    base_free(o->sentinels);
    base_free(o->at);
    base_free(o->buckets.pairs);
    base_free(o);
}

const data_objective_spec *data_objective_settings(const data_objective *o)
{
    return &o->spec;
}

by_status data_span_add(data_objective *o, data_span s)
{
    if (o->count == o->capacity) {
        int64_t capacity = BY_MAX(o->capacity * 2, (int64_t)256);
        data_span *rows = base_resize(o->rows, (size_t)capacity, sizeof *rows);
        if (!rows)
            return BY_ERR_MEMORY;
        o->rows = rows;
        o->capacity = capacity;
    }
    o->rows[o->count++] = s;
    return BY_OK;
}

/* ---- memory of rows -------------------------------------------------------------------------- */

by_status data_samples_make(data_samples *r, const data_objective *o, int count, int batch)
{
    const data_objective_kind kind = o->spec.kind;
    const bool lm = kind == DATA_OBJECTIVE_LM || kind == DATA_OBJECTIVE_PIXELS,
               shaped = kind == DATA_OBJECTIVE_TRANSLATE;
    const bool pairs = kinds[kind].labels[0] != NULL, two = kind == DATA_OBJECTIVE_TLM,
               plm = kind == DATA_OBJECTIVE_PLM;
    *r = (data_samples){.count = count, .batch = batch, .seq = o->spec.seq, .picks = o->picks};
    for (int i = 0; i < o->buckets.count; i++)
        r->room = BY_MAX(r->room, (size_t)o->buckets.list[i].rows * (size_t)o->buckets.list[i].seq);
    const bool denoises = data_objective_denoises(kind);
    if (denoises) {
        r->seq = o->target_seq;
        r->source_seq = o->source_seq;
    }
    const size_t cells = shaped ? (size_t)(count / batch) * r->room : (size_t)count * (size_t)r->seq,
                 sources = denoises ? (size_t)count * (size_t)r->source_seq
                           : shaped ? cells
                                    : 0;
    const struct {
        int32_t **at;
        size_t size;
    } parts[] = {
        {&r->tokens, cells},
        {&r->targets, o->picks ? (size_t)count * (size_t)o->picks : cells},
        {&r->mask, lm || shaped || denoises || plm ? 0 : cells},
        {&r->segments, pairs || plm || o->spec.language_ids ? cells : 0},
        {&r->order, plm ? cells : 0},
        {&r->reversed, plm ? (size_t)count : 0},
        {&r->positions, two ? cells : 0},
        {&r->pick, (size_t)count * (size_t)o->picks},
        {&r->second, pairs ? (size_t)count : 0},
        {&r->scratch, 3 * (size_t)BY_MAX(o->spec.seq, o->window)},
        {&r->source, sources},
        {&r->source_mask, sources},
    };
    for (int i = 0; i < BY_COUNT(parts); i++)
        if (parts[i].size && !(*parts[i].at = base_alloc_zero(parts[i].size, sizeof(int32_t)))) {
            data_samples_free(r);
            return BY_ERR_MEMORY;
        }
    if (shaped && !(r->shapes = base_alloc_zero((size_t)(count / batch) + 1, sizeof *r->shapes))) {
        data_samples_free(r);
        return BY_ERR_MEMORY;
    }
    return BY_OK;
}

void data_samples_free(data_samples *r)
{
    int32_t *parts[] = {r->tokens, r->targets, r->segments, r->positions,   r->mask,  r->pick,
                        r->second, r->scratch, r->source,   r->source_mask, r->order, r->reversed};
    for (int i = 0; i < BY_COUNT(parts); i++)
        base_free(parts[i]);
    base_free(r->shapes);
    *r = (data_samples){0};
}

static int32_t *from(int32_t *v, size_t at)
{
    return v ? v + at : NULL;
}

void data_samples_largest(data_samples *r, const data_objective *o)
{
    const data_bucket_list *b = &o->buckets;
    const data_bucket *best = b->list;
    for (int i = 1; i < b->count; i++)
        if ((int64_t)b->list[i].rows * (b->list[i].sides[0] + b->list[i].sides[1]) >
            (int64_t)best->rows * (best->sides[0] + best->sides[1]))
            best = &b->list[i];
    for (int k = 0; k < r->count / r->batch && b->count; k++)
        r->shapes[k] = (struct data_shape){best->rows, best->sides[1], best->sides[0]};
}

by_batch data_samples_batch(const data_samples *r, int number)
{
    if (r->shapes) {
        const size_t at = (size_t)number * r->room;
        by_batch b = by_batch_of(r->shapes[number].rows, r->shapes[number].seq, r->tokens + at);
        by_batch_put_tokens(&b, "targets", r->targets + at);
        by_batch_put_source(&b, r->shapes[number].source_seq, r->source + at, r->source_mask + at);
        return b;
    }
    const size_t row = (size_t)number * (size_t)r->batch, cell = row * (size_t)r->seq,
                 pick = row * (size_t)r->picks;
    const int64_t picks = (int64_t)r->batch * r->picks, cells = (int64_t)r->batch * r->seq;
    by_batch b = by_batch_of(r->batch, r->seq, from(r->tokens, cell));
    by_batch_put_tokens(&b, "segments", from(r->segments, cell));
    by_batch_put_tokens(&b, "positions", from(r->positions, cell));
    by_batch_put_tokens(&b, "mask", from(r->mask, cell));
    by_batch_put_tokens(&b, "order", from(r->order, cell));
    by_batch_put_ids(&b, "reversed", r->batch, from(r->reversed, row));
    by_batch_put_ids(&b, "pick", picks, from(r->pick, pick));
    by_batch_put_ids(&b, "targets", picks ? picks : cells, from(r->targets, picks ? pick : cell));
    by_batch_put_ids(&b, "second_targets", r->batch, from(r->second, row));
    by_batch_put_source(&b, r->source_seq, from(r->source, row * (size_t)r->source_seq),
                        from(r->source_mask, row * (size_t)r->source_seq));
    return b;
}

/* ---- rows ------------------------------------------------------------------------------------ */

void data_sample_put(data_sample *r, int32_t id, int segment)
{
    if (r->used == r->seq)
        return;
    r->tokens[r->used] = id;
    r->mask[r->used] = 1;
    if (r->segments)
        r->segments[r->used] = segment;
    if (r->positions)
        r->positions[r->used] = r->position;
    r->position++;
    r->used++;
}

by_status data_sample_copy(data_sample *r, const data_objective *o, int64_t begin, int64_t end, int segment)
{
    int64_t n = BY_MIN(end - begin, (int64_t)(r->seq - r->used));
    int32_t *ids = r->tokens + r->used;
    BY_TRY(data_tokens_read(o->text->all->tokens, begin, n, ids));
    for (int64_t i = 0; i < n; i++)
        data_sample_put(r, ids[i], segment);
    return BY_OK;
}

/* Pads the rest of a row with tokens that are never attended to. */
static void pad(const data_objective *o, data_sample *r)
{
    for (int t = r->used; t < r->seq; t++) {
        r->tokens[t] = o->pad;
        r->mask[t] = 0;
        if (r->segments)
            r->segments[t] = 0;
        if (r->positions)
            r->positions[t] = o->spec.first_position;
    }
}

/* Each position predicts the token at the next one. */
static void put_next(const data_sample *row, int32_t *targets)
{
    for (int t = 0; t < row->seq; t++)
        targets[t] = t + 1 < row->used ? row->tokens[t + 1] : -100;
}

/* Makes a row of an encoder-decoder. A row without targets still has a token to attend to. */
static by_status make_two(const data_objective *o, int64_t i, uint64_t seed, data_samples *rows, int r)
{
    const size_t cell = (size_t)r * (size_t)rows->seq, from_cell = (size_t)r * (size_t)rows->source_seq;
    data_sample row = {.targets = rows->targets + cell,
                       .seq = rows->seq,
                       .source = rows->source + from_cell,
                       .source_seq = rows->source_seq,
                       .scratch = rows->scratch};
    base_rng random = base_rng_make(seed, (uint64_t)BY_MAX(i, 0));
    if (i >= 0)
        BY_TRY(kinds[o->spec.kind].row(o, i, &random, &row));
    else
        row.source[row.source_used++] = o->spec.kind == DATA_OBJECTIVE_SPANS ? o->eos : o->sep;
    for (int t = 0; t < row.source_seq; t++) {
        rows->source_mask[from_cell + (size_t)t] = t < row.source_used;
        if (t >= row.source_used)
            row.source[t] = o->pad;
    }
    for (int t = 0; t < row.seq; t++) {
        if (t >= row.used)
            row.targets[t] = -100;
        rows->tokens[cell + (size_t)t] = t == 0 ? o->spec.start : t <= row.used ? row.targets[t - 1] : o->pad;
    }
    return BY_OK;
}

/* Masks a row. If it has fewer masked positions than the maximum, the others repeat the first one, without a
 * target. */
static void mask_row(const data_objective *o, base_rng *random, data_sample *row, data_samples *rows, int r)
{
    int32_t *pick = rows->pick + (size_t)r * (size_t)o->picks;
    int32_t *targets = rows->targets + (size_t)r * (size_t)o->picks;
    int n = data_mask_row(&o->masker, random, row->tokens, row->used, o->picks, pick, targets, rows->scratch);
    for (int k = 0; k < o->picks; k++) {
        pick[k] = (k < n ? pick[k] : 0) + r % rows->batch * rows->seq;
        targets[k] = k < n ? targets[k] : -100;
    }
}

/* Makes row r of rows from span i, with random stream i of the seed; i < 0: a row without targets. */
static by_status make_row(const data_objective *o, int64_t i, uint64_t seed, data_samples *rows, int r)
{
    if (o->spec.kind == DATA_OBJECTIVE_PIXELS)
        return data_pixels_row(o, i, rows->tokens + (size_t)r * (size_t)rows->seq,
                               rows->targets + (size_t)r * (size_t)rows->seq);
    if (data_objective_denoises(o->spec.kind))
        return make_two(o, i, seed, rows, r);
    const size_t cell = (size_t)r * (size_t)rows->seq;
    data_sample row = {.tokens = rows->tokens + cell,
                       .mask = rows->mask + cell,
                       .segments = from(rows->segments, cell),
                       .positions = from(rows->positions, cell),
                       .seq = rows->seq,
                       .position = o->spec.first_position,
                       .second = -100};
    base_rng random = base_rng_make(seed, (uint64_t)BY_MAX(i, 0));
    if (i >= 0)
        BY_TRY(kinds[o->spec.kind].row(o, i, &random, &row));
    else
        data_sample_put(&row, o->first, 0);
    if (o->picks) {
        mask_row(o, &random, &row, rows, r);
    } else {
        put_next(&row, rows->targets + cell);
    }
    pad(o, &row);
    if (rows->second)
        rows->second[r] = row.second;
    return BY_OK;
}

uint64_t data_number_at(uint64_t seed, uint64_t stream)
{
    base_rng r = base_rng_make(seed, stream);
    return base_rng_u64(&r);
}

static by_status check_step(const data_objective *o, int64_t step, const data_samples *rows)
{
    if (step < 0 || step >= INT64_MAX / o->spec.step_rows || rows->count != o->spec.step_rows)
        return base_fail(BY_ERR_ARGUMENT, "invalid step %lld of %d rows", (long long)step, rows->count);
    return BY_OK;
}

static by_status get_batches(const data_objective *o, int64_t step, data_samples *rows)
{
    const int micro = rows->count / rows->batch;
    const uint64_t all = (uint64_t)o->buckets.batches;
    for (int k = 0; k < micro; k++) {
        uint64_t number = (uint64_t)step * (uint64_t)micro + (uint64_t)k;
        uint64_t order = data_number_at(o->spec.seed, ORDER_STREAM + number / all);
        BY_TRY(data_buckets_batch(o, (int64_t)base_permute(number % all, all, order), order, false, rows, k));
    }
    return BY_OK;
}

static by_status get_permuted(const data_objective *o, int64_t step, data_samples *rows)
{
    const int64_t steps = data_plm_steps(o);
    const uint64_t epoch = (uint64_t)(step / steps);
    return data_plm_rows(o, step % steps, data_number_at(o->spec.seed, ORDER_STREAM + epoch),
                         data_number_at(o->spec.seed, COPY_STREAM + epoch), rows);
}

by_status data_objective_get(const data_objective *o, int64_t step, data_samples *rows)
{
    BY_TRY(check_step(o, step, rows));
    if (o->spec.kind == DATA_OBJECTIVE_LM)
        return data_lm_batches_get(&o->lm, step, rows->tokens, rows->targets);
    if (o->spec.kind == DATA_OBJECTIVE_TRANSLATE)
        return get_batches(o, step, rows);
    if (o->spec.kind == DATA_OBJECTIVE_PLM)
        return get_permuted(o, step, rows);
    const int copies = o->spec.masking.copies;
    for (int r = 0; r < rows->count; r++) {
        int64_t number = step * rows->count + r, epoch = number / o->count;
        uint64_t order = data_number_at(o->spec.seed, ORDER_STREAM + (uint64_t)epoch);
        uint64_t copy = COPY_STREAM + (uint64_t)(copies > 0 ? epoch % copies : epoch);
        int64_t i = (int64_t)base_permute((uint64_t)(number % o->count), (uint64_t)o->count, order);
        BY_TRY(make_row(o, i, data_number_at(o->spec.seed, copy), rows, r));
    }
    return BY_OK;
}

void data_objective_prefetch(const data_objective *o, int64_t step)
{
    if (o->spec.kind == DATA_OBJECTIVE_LM)
        data_lm_batches_prefetch(&o->lm, step);
}

bool data_objective_follows(const data_objective *o)
{
    return o->spec.kind == DATA_OBJECTIVE_PLM ? o->spec.follows
                                              : o->spec.kind == DATA_OBJECTIVE_LM && o->lm.columns;
}

bool data_objective_restarts(const data_objective *o, int64_t step)
{
    if (o->spec.kind == DATA_OBJECTIVE_PLM)
        return step % data_plm_steps(o) == 0;
    return !data_objective_follows(o) || data_lm_batches_restart(&o->lm, step);
}

int64_t data_objective_rows(const data_objective *o)
{
    if (o->spec.kind == DATA_OBJECTIVE_PLM)
        return data_plm_steps(o) * o->spec.step_rows;
    return o->spec.kind == DATA_OBJECTIVE_LM ? BY_MAX((o->lm.end - o->lm.begin) / o->lm.seq, 1) : o->count;
}

double data_objective_batches(const data_objective *o, int rows)
{
    if (o->spec.kind == DATA_OBJECTIVE_TRANSLATE)
        return (double)o->buckets.batches;
    if (o->spec.kind == DATA_OBJECTIVE_LM)
        return (double)(o->lm.end - o->lm.begin) / o->lm.seq / rows;
    return (double)data_objective_rows(o) / rows;
}

void data_objective_dropped(const data_objective *o, int64_t *empty, int64_t *longer)
{
    *empty = o->empty;
    *longer = o->longer;
}

int64_t data_objective_held_rows(const data_objective *o)
{
    return o->spec.kind == DATA_OBJECTIVE_LM ? data_lm_eval_windows(&o->lm) : data_objective_rows(o);
}

by_status data_objective_held(const data_objective *o, int64_t first, data_samples *rows)
{
    if (o->spec.kind == DATA_OBJECTIVE_LM)
        return data_lm_eval_get(&o->lm, first, rows->count, rows->tokens, rows->targets);
    uint64_t seed = data_number_at(o->spec.seed, HELD_STREAM);
    if (o->spec.kind == DATA_OBJECTIVE_PLM)
        return data_plm_rows(o, first / rows->count, 0, seed, rows);
    for (int r = 0; r < rows->count; r++)
        BY_TRY(make_row(o, first + r < o->count ? first + r : -1, seed, rows, r));
    return BY_OK;
}

int64_t data_objective_held_batches(const data_objective *o, const data_samples *rows)
{
    if (data_objective_follows(o) && o->spec.kind == DATA_OBJECTIVE_LM)
        return data_lm_eval_segments(&o->lm, rows->count);
    return o->spec.kind == DATA_OBJECTIVE_TRANSLATE
               ? o->buckets.batches
               : (data_objective_held_rows(o) + rows->count - 1) / rows->count;
}

by_status data_objective_held_batch(const data_objective *o, int64_t number, data_samples *rows)
{
    if (data_objective_follows(o) && o->spec.kind == DATA_OBJECTIVE_LM)
        return data_lm_eval_columns(&o->lm, number, rows->count, rows->tokens, rows->targets);
    return o->spec.kind == DATA_OBJECTIVE_TRANSLATE ? data_buckets_batch(o, number, 0, true, rows, 0)
                                                    : data_objective_held(o, number * rows->count, rows);
}
