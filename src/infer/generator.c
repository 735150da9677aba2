/* generator.c - a batch of sequences and their key-value cache: creation, feeding and queries (see
 * banyan/generate.h). */
#include "infer/generator.h"

#include "model/adapter.h"

static by_status check_pages(const by_generator_spec *spec)
{
    const int page = spec->page;
    if (page != 0 && (page < 16 || page > 256 || (page & (page - 1))))
        return base_fail(BY_ERR_ARGUMENT, "a page of %d positions: not a power of two from 16 to 256", page);
    if (spec->pages < 0 || (spec->pages && !page))
        return base_fail(BY_ERR_ARGUMENT, "invalid number of pages: %d of %d positions", spec->pages, page);
    return page && spec->beams > 1 ? base_fail(BY_ERR_ARGUMENT, "pages cannot be combined with beams")
                                   : BY_OK;
}

static by_status check_spec(const by_model *m, const by_generator_spec *spec)
{
    if (!m || !spec)
        return base_fail_missing(m ? "by_generator_spec" : "model");
    int context = by_model_is_limited(m) ? by_model_context(m) : 1 << 24;
    if (by_model_task(m) != BY_TASK_LM && by_model_task(m) != BY_TASK_SEQ2SEQ)
        return base_fail(BY_ERR_ARGUMENT, "%s does not generate text", base_a(by_model_class(m)).text);
    if (m->arch->predicts_itself)
        return base_fail(BY_ERR_ARGUMENT, "%s generates pictures, not text", base_a(by_model_class(m)).text);
    if (spec->batch < 0 || spec->batch > 1 << 20)
        return base_fail(BY_ERR_ARGUMENT, "invalid batch of %d sequences", spec->batch);
    /* Positions of a picture have no limit: the position table is interpolated. */
    const int room[] = {spec->capacity, spec->source_capacity};
    const int limit[] = {context, by_model_pictures(m, &(by_pictures){0}) ? 1 << 24 : context};
    for (int i = 0; i < BY_COUNT(room); i++)
        if (room[i] < 0 || room[i] > limit[i])
            return base_fail(BY_ERR_ARGUMENT, "the capacity %d exceeds the model's context of %d", room[i],
                             limit[i]);
    if (spec->beams < 0 || spec->beams > BY_BEAMS_MAX || BY_MAX(spec->batch, 1) % BY_MAX(spec->beams, 1) != 0)
        return base_fail(BY_ERR_ARGUMENT, "%d rows do not form groups of %d", BY_MAX(spec->batch, 1),
                         spec->beams);
    return check_pages(spec);
}

enum { RING_PAGE = 64 };

/* Queries of a model with a memory see only that many positions besides their own. If texts may be much
 * longer, a row has a ring of pages for these and the tokens of one pass. Returns the number of pages; 0: no
 * gain. */
static int ring_of(const by_generator *g, int room)
{
    const int memory = by_model_memory(g->model), seen = memory + 1 + gen_widths[g->n_widths - 1];
    const int pages = (seen + RING_PAGE - 1) / RING_PAGE + 1;
    return memory > 0 && !by_model_is_recurrent(g->model) && g->beams == 1 && pages * RING_PAGE < room ? pages
                                                                                                       : 0;
}

static by_status make_ring(by_generator *g, int room)
{
    g->columns = (room + RING_PAGE - 1) / RING_PAGE;
    if ((int64_t)g->batch * g->ring >= INT32_MAX)
        return base_fail(BY_ERR_ARGUMENT, "%d sequences are too many", g->batch);
    g->store = nn_store_new(by_model_device(g->model), (int64_t)g->batch * g->ring, RING_PAGE);
    g->table = base_alloc_zero((size_t)g->batch * (size_t)g->columns, sizeof *g->table);
    for (int b = 0; g->table && b < g->batch; b++)
        for (int i = 0; i < g->columns; i++)
            g->table[(size_t)b * (size_t)g->columns + (size_t)i] = b * g->ring + i % g->ring;
    return g->store && g->table ? BY_OK : BY_ERR_MEMORY;
}

/* Creates the store and its page table. Without paging, every row has one page with room for padding; with
 * paging, page 0 is shared and holds padding. */
static by_status make_store(by_generator *g, int page, int pages, bool endless)
{
    const int held = g->capacity + g->prefix, room = held + gen_widths[g->n_widths - 1];
    g->ring = endless && !page ? ring_of(g, room) : 0;
    if (g->ring)
        return make_ring(g, room);
    const int64_t per_row = page ? (held + page - 1) / page : 1, all = pages ? pages : g->batch * per_row;
    g->columns = page ? BY_MAX((room + page - 1) / page, 2) : 1; /* 1 would mean a fixed page */
    if (all >= INT32_MAX)
        return base_fail(BY_ERR_ARGUMENT, "%lld pages are too many", (long long)all);
    g->store = nn_store_new(by_model_device(g->model), all + (page > 0), page ? page : room);
    g->table = base_alloc_zero((size_t)g->batch * (size_t)g->columns, sizeof *g->table);
    if (!g->store || !g->table)
        return BY_ERR_MEMORY;
    for (int b = 0; g->columns == 1 && b < g->batch; b++)
        g->table[b] = b;
    if (g->columns > 1)
        nn_page_take(g->store);
    return BY_OK;
}

static by_status make_input(by_generator *g)
{
    const size_t rows = (size_t)g->batch, all = rows * (size_t)gen_widths[g->n_widths - 1];
    gen_input *in = &g->in;
    in->acts = base_alloc_zero(rows, sizeof *in->acts);
    in->rows = base_alloc_zero(rows, sizeof *in->rows);
    in->tokens = base_alloc_zero(all, sizeof *in->tokens);
    in->positions = base_alloc_zero(all, sizeof *in->positions);
    in->past = base_alloc_zero(rows, sizeof *in->past);
    in->pick = base_alloc_zero(rows, sizeof *in->pick);
    in->from = base_alloc_zero(rows, sizeof *in->from);
    in->pages = base_alloc_zero(rows * (size_t)g->columns, sizeof *in->pages);
    in->sources = base_alloc_zero(rows, sizeof *in->sources);
    in->reads = base_alloc_zero(rows, sizeof *in->reads);
    in->places = base_alloc_zero(rows, sizeof *in->places);
    in->valid = base_alloc_zero(all, sizeof *in->valid);
    return in->reads && in->places && in->valid && in->acts && in->rows && in->tokens && in->positions &&
                   in->past && in->pick && in->from && in->pages && in->sources
               ? BY_OK
               : BY_ERR_MEMORY;
}

static by_status set_up(by_generator *g, const by_generator_spec *spec)
{
    g->vocab = by_model_vocab(g->model);
    g->batch = BY_MAX(spec->batch, 1);
    g->beams = BY_MAX(spec->beams, 1);
    g->prefix = model_adapter_prefix(g->adapter);
    g->capacity = spec->capacity ? spec->capacity : by_model_context(g->model);
    g->n_widths = 1;
    while (g->n_widths < GEN_WIDTHS && gen_widths[g->n_widths - 1] < g->capacity)
        g->n_widths++;
    g->rows = base_alloc_zero((size_t)g->batch, sizeof *g->rows);
    if (!g->rows)
        return BY_ERR_MEMORY;
    for (int b = 0; b < g->batch; b++)
        g->rows[b].from = b;
    BY_TRY(make_store(g, spec->page, spec->pages, spec->endless));
    BY_TRY(make_input(g));
    g->store->rows = g->batch;
    if (!by_model_has_cache(g->model) && !(g->whole = gen_whole_new(g)))
        return base_error_status();
    return gen_has_sources(g) ? gen_make_sources(g, spec->source_capacity) : gen_enter_stage(g, 0, 0);
}

void gen_build(const by_generator *g, by_graph *graph, by_model_io *io)
{
    by_adapter *now = by_model_adapter(g->model);
    by_model_use(g->model, g->adapter);
    by_model_build(g->model, graph, io);
    by_model_use(g->model, now);
}

by_tensor *gen_positions(const by_generator *g, by_graph *graph, by_tensor *tokens, by_tensor *positions)
{
    if (!model_pads_apart(g->model))
        return positions;
    const int pad = by_model_first_position(g->model) - 1;
    by_tensor *differs = by_sub(graph, by_cast(graph, tokens, BY_F32), by_fill(graph, BY_F32, 0, NULL, pad));
    return by_where(graph, by_cast(graph, differs, BY_I32), positions, by_fill(graph, BY_I32, 0, NULL, pad));
}

by_generator *by_generator_new(by_model *m, const by_generator_spec *spec)
{
    if (check_spec(m, spec) != BY_OK)
        return NULL;
    by_generator *g = base_alloc_zero(1, sizeof *g);
    if (!g)
        return NULL;
    g->model = m;
    g->adapter = by_model_adapter(m);
    if (set_up(g, spec) == BY_OK)
        return g;
    by_generator_free(g);
    return NULL;
}

void gen_free_top(gen_output *o)
{
    base_free(o->best);
    base_free(o->fresh_best);
    base_free(o->fresh_lse);
    base_free(o->ids);
    base_free(o->fresh_ids);
    o->best = o->fresh_best = o->fresh_lse = NULL;
    o->ids = o->fresh_ids = NULL;
    o->top = 0;
}

void by_generator_free(by_generator *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_stages; i++)
        gen_free_stage(g->stages[i]);
    base_free(g->stages);
    by_memory *const memory[] = {g->sources.seen, g->loop.tokens, g->loop.positions,  g->loop.past,
                                 g->loop.log,     g->loop.draws,  g->loop.temperature};
    for (int i = 0; i < BY_COUNT(memory); i++)
        by_memory_free(memory[i]);
    by_program_free(g->share.program);
    nn_store_free(g->store);
    gen_whole_free(g->whole);
    gen_free_top(&g->out);
    gen_drop_sequences(g);
    void *const host[] = {g->in.reads,  g->in.places, g->in.valid,       g->table,       g->rows,
                          g->in.acts,   g->in.rows,   g->in.tokens,      g->in.pages,    g->in.positions,
                          g->in.past,   g->in.pick,   g->in.from,        g->in.sources,  g->out.logits,
                          g->out.fresh, g->loop.out,  g->sources.tokens, g->sources.mask};
    for (int i = 0; i < BY_COUNT(host); i++)
        base_free(host[i]);
    base_free(g);
}

/* ---- feeding --------------------------------------------------------------------------------- */

static by_status check_feed(const by_generator *g, const int32_t *const *tokens, const int *counts)
{
    for (int b = 0; b < g->batch; b++) {
        if (counts[b] < 0 || counts[b] > g->capacity - g->rows[b].past)
            return base_fail(BY_ERR_ARGUMENT, "row %d holds %d tokens; %d more exceed the capacity of %d", b,
                             g->rows[b].past, counts[b], g->capacity);
        for (int i = 0; i < counts[b]; i++)
            if (tokens[b][i] < 0 || tokens[b][i] >= g->vocab)
                return base_fail(BY_ERR_ARGUMENT,
                                 "token %d (row %d, place %d) is outside the vocabulary of %d",
                                 (int)tokens[b][i], b, i, g->vocab);
    }
    return BY_OK;
}

by_status by_generator_feed(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    if (!g || !tokens || !counts)
        return base_fail_missing(g ? "token" : "generator");
    BY_TRY(gen_check_stage(g));
    BY_TRY(check_feed(g, tokens, counts));
    return gen_feed(g, tokens, counts);
}

by_status by_generator_keep_top(by_generator *g, int k)
{
    if (!g)
        return base_fail_missing("generator");
    gen_output *o = &g->out;
    if (k < 0 || k > BY_TOP_MAX || k > g->vocab)
        return base_fail(BY_ERR_ARGUMENT, "keep_top is %d, which is not between 0 and %d", k,
                         BY_MIN(BY_TOP_MAX, g->vocab));
    if (k == o->top)
        return BY_OK;
    const size_t rows = (size_t)g->batch, count = rows * (size_t)k;
    for (int b = 0; b < g->batch; b++)
        g->rows[b].known = false;
    gen_free_top(o);
    if (k == 0)
        return BY_OK;
    o->best = base_alloc_zero(count, sizeof *o->best);
    o->fresh_best = base_alloc_zero(count, sizeof *o->fresh_best);
    o->fresh_lse = base_alloc_zero(rows, sizeof *o->fresh_lse);
    o->ids = base_alloc_zero(count, sizeof *o->ids);
    o->fresh_ids = base_alloc_zero(count, sizeof *o->fresh_ids);
    if (!o->best || !o->fresh_best || !o->fresh_lse || !o->ids || !o->fresh_ids) {
        gen_free_top(o);
        return BY_ERR_MEMORY;
    }
    o->top = k;
    return BY_OK;
}

by_status by_generator_reorder(by_generator *g, const int32_t *from)
{
    if (!g || !from)
        return base_fail_missing(g ? "order" : "generator");
    if (g->beams < 2)
        return base_fail(BY_ERR_ARGUMENT, "only rows in groups of beams can be reordered");
    for (int b = 0; b < g->batch; b++) {
        if (g->rows[b].from != b)
            return base_fail(BY_ERR_ARGUMENT, "rows were already reordered since the last feed");
        if (from[b] < 0 || from[b] / g->beams != b / g->beams)
            return base_fail(BY_ERR_ARGUMENT, "row %d cannot copy row %d, which is not in its group", b,
                             (int)from[b]);
    }
    for (int b = 0; b < g->batch; b++)
        g->in.past[b] = g->rows[from[b]].past;
    for (int b = 0; b < g->batch; b++) {
        gen_row *r = &g->rows[b];
        r->from = from[b];
        r->past = g->in.past[b];
        r->known = false;
    }
    return BY_OK;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static bool has_row(const by_generator *g, int row)
{
    return g && row >= 0 && row < g->batch;
}

const float *by_generator_logits(by_generator *g, int row)
{
    if (!has_row(g, row) || !g->rows[row].known || gen_need_logits(g) != BY_OK)
        return NULL;
    gen_row *r = &g->rows[row];
    float *logits = g->out.logits + (size_t)row * (size_t)g->vocab;
    if (r->where && by_read_row(r->where->program, r->where->logits, r->there, logits) != BY_OK)
        return NULL;
    r->where = NULL;
    return logits;
}

const by_top_logits *by_generator_top(const by_generator *g, int row)
{
    return has_row(g, row) && g->rows[row].known && g->out.top ? &g->rows[row].top : NULL;
}

by_status by_generator_rewind(by_generator *g, int row, int length)
{
    if (!has_row(g, row) || length < 0 || length >= g->rows[row].past || (g->ring && length > 0))
        return BY_OK;
    if (length > 0 && by_model_is_recurrent(g->model))
        return base_fail(BY_ERR_UNSUPPORTED, "row %d holds %d tokens; %s cannot be rewound to %d tokens", row,
                         g->rows[row].past, base_a(by_model_title(g->model)).text, length);
    g->rows[row].past = length;
    g->rows[row].known = false;
    return gen_reserve(g, NULL);
}

int by_generator_length(const by_generator *g, int row)
{
    return has_row(g, row) ? g->rows[row].past : 0;
}

by_model *by_generator_model(const by_generator *g)
{
    return g ? g->model : NULL;
}

int by_generator_batch(const by_generator *g)
{
    return g ? g->batch : 0;
}

int by_generator_beams(const by_generator *g)
{
    return g ? g->beams : 0;
}

int by_generator_capacity(const by_generator *g)
{
    return g ? g->capacity : 0;
}

static size_t program_bytes(const by_program *p)
{
    return p ? by_program_bytes(p) : 0;
}

size_t by_generator_bytes(const by_generator *g)
{
    if (!g)
        return 0;
    size_t bytes = nn_store_bytes(g->store) + gen_whole_bytes(g->whole) + program_bytes(g->share.program);
    for (int k = 0; k < g->n_stages; k++) {
        const gen_stage *s = g->stages[k];
        for (int i = 0; i < s->n_passes; i++)
            bytes += program_bytes(s->passes[i]->program);
        bytes += program_bytes(s->encoder);
    }
    return bytes;
}
