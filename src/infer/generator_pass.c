/* generator_pass.c - the programs that extend the cache. Tokens are fed in passes of a few fixed widths over
 * a number of rows, each compiled when it is first needed. A pass that is too wide is padded at the end. Keys
 * of padding are after the row's last position: no query sees them, and the next tokens overwrite them. A
 * pass can process any rows: an input gives their pages. There are passes for all rows, half of them, a
 * quarter and so on; surplus rows are fed padding. */
#include "infer/generator.h"
#include "model/adapter.h"

const int gen_widths[GEN_WIDTHS] = {1, 16, 64, 256};

/* ---- which rows ------------------------------------------------------------------------------ */

int gen_choose_rows(by_generator *g, int per)
{
    const int groups = g->batch / g->beams;
    int active = 0, size = groups, n = 0;
    for (int i = 0; i < groups; i++)
        active += g->in.acts[i];
    while (size > 1 && (size + 1) / 2 >= active)
        size = (size + 1) / 2;
    for (int turn = 0; turn < 2; turn++) /* active groups, then others; in order if all are active */
        for (int i = 0; i < groups && n < size * per; i++)
            if (size == groups || g->in.acts[i] == (turn == 0))
                for (int k = 0; k < per; k++) {
                    g->in.rows[n] = i * g->beams + k;
                    g->rows[i * g->beams + k].slot = n++;
                }
    return size * per;
}

gen_pass *gen_find_pass(by_generator *g, int rows, int width, bool reorders)
{
    gen_stage *s = g->now;
    for (int i = 0; i < s->n_passes; i++) {
        gen_pass *p = s->passes[i];
        if (p->rows == rows && p->width == width && p->reorders == reorders)
            return p;
    }
    gen_pass **more = base_resize(s->passes, (size_t)s->n_passes + 1, sizeof *more);
    if (!more)
        return NULL;
    s->passes = more;
    gen_pass *p = base_alloc_zero(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (gen_pass){.rows = rows, .width = width, .reorders = reorders};
    return s->passes[s->n_passes++] = p;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Pages for the contents of a row plus more tokens. An empty row has no prefix. */
static int pages_for(const by_generator *g, const gen_row *r, int more)
{
    const int positions = r->past || more ? r->past + more + g->prefix : 0;
    return (positions + (int)g->store->page - 1) / (int)g->store->page;
}

by_status gen_reserve(by_generator *g, const int *more)
{
    int wanted = 0;
    if (g->columns == 1 || g->ring)
        return BY_OK;
    for (int b = 0; more && b < g->batch; b++)
        wanted += BY_MAX(pages_for(g, &g->rows[b], more[b]) - g->rows[b].pages, 0);
    if (wanted > g->store->n_free)
        return base_fail(BY_ERR_MEMORY, "the cache has %d free pages of %d positions; %d are needed",
                         g->store->n_free, (int)g->store->page, wanted);
    for (int b = 0; b < g->batch; b++) {
        gen_row *r = &g->rows[b];
        int32_t *pages = g->table + (ptrdiff_t)b * g->columns;
        for (const int need = more ? pages_for(g, r, more[b]) : 0; r->pages < need;)
            pages[r->pages++] = nn_page_take(g->store);
        for (const int need = pages_for(g, r, 0); !more && r->pages > need;) {
            nn_page_give(g->store, pages[--r->pages]);
            pages[r->pages] = 0;
        }
    }
    return BY_OK;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static void view_states(const by_generator *g, by_graph *graph, gen_pass *p, by_cache *c)
{
    const int64_t shape[2] = {p->rows, BY_MAX(p->width, 1)}, all = g->batch;
    c->reads = p->reads = by_input(graph, "reads", BY_I32, 1, shape);
    c->valid = p->valid = by_input(graph, "valid", BY_I32, 2, shape);
    if (p->rows < g->batch)
        c->places = p->places = by_input(graph, "places", BY_I32, 1, &all);
}

/* Every row continues its own state or that of the row it copies. Sequences outside of the pass keep
 * theirs. */
static by_status write_states(by_generator *g, gen_pass *p)
{
    const size_t rows = (size_t)p->rows * sizeof(int32_t);
    gen_input *in = &g->in;
    for (int b = 0; b < g->batch; b++)
        in->places[b] = p->rows + b;
    for (int i = 0; i < p->rows; i++) {
        in->reads[i] = g->rows[in->rows[i]].from;
        in->places[in->rows[i]] = i;
    }
    BY_TRY(by_write(p->program, p->reads, in->reads, rows));
    BY_TRY(by_write(p->program, p->valid, in->valid, rows * (size_t)BY_MAX(p->width, 1)));
    return p->places ? by_write(p->program, p->places, in->places, (size_t)g->batch * sizeof *in->places)
                     : BY_OK;
}

by_cache gen_view(by_generator *g, by_graph *graph, gen_pass *p, by_tensor *past)
{
    const int groups = g->batch / g->beams, some = p->rows / g->beams;
    by_cache c = {.store = g->store, .past = past, .from = p->from, .beams = p->reorders ? g->beams : 1};
    if (p->rows < g->batch || g->columns > 1)
        c.pages = p->pages = by_input(graph, "pages", BY_I32, 2, (int64_t[]){p->rows, g->columns});
    if (by_model_is_recurrent(g->model))
        view_states(g, graph, p, &c);
    if (!gen_has_sources(g))
        return c;
    c.beams = g->beams;
    c.source_length = g->now->length;
    c.source_mask =
        by_state(graph, "source mask", BY_I32, 2, (int64_t[]){groups, g->now->length}, g->sources.seen);
    if (some < groups) {
        c.sources = p->sources = by_input(graph, "sources", BY_I32, 1, (int64_t[]){some});
        c.source_mask = by_gather(graph, c.source_mask, c.sources);
    }
    return c;
}

by_status gen_write_view(by_generator *g, gen_pass *p)
{
    const size_t row = (size_t)g->columns * sizeof(int32_t), groups = (size_t)(p->rows / g->beams);
    for (int i = 0; p->pages && i < p->rows; i++)
        memcpy(g->in.pages + (ptrdiff_t)i * g->columns, g->table + (ptrdiff_t)g->in.rows[i] * g->columns,
               row);
    if (p->pages)
        BY_TRY(by_write(p->program, p->pages, g->in.pages, (size_t)p->rows * row));
    if (p->reads)
        BY_TRY(write_states(g, p));
    for (int i = 0; p->sources && i < (int)groups; i++)
        g->in.sources[i] = g->in.rows[i * g->beams] / g->beams;
    return p->sources ? by_write(p->program, p->sources, g->in.sources, groups * sizeof(int32_t)) : BY_OK;
}

static by_status compile_pass(by_generator *g, gen_pass *p)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    int64_t shape[] = {p->rows, p->width};
    *p = (gen_pass){.rows = p->rows, .width = p->width, .reorders = p->reorders, .top = g->out.top};
    p->tokens = by_input(graph, "tokens", BY_I32, 2, shape);
    p->positions = by_input(graph, "positions", BY_I32, 2, shape);
    p->past = by_input(graph, "past", BY_I32, 1, shape);
    p->pick = by_input(graph, "pick", BY_I32, 1, shape);
    p->from = p->reorders ? by_input(graph, "from", BY_I32, 1, shape) : NULL;
    by_cache view = gen_view(g, graph, p, p->past);
    by_model_io io = {.part = gen_has_sources(g) ? BY_PART_DECODER : BY_PART_WHOLE, .cache = &view};
    by_io_feed(&io, "tokens", p->tokens);
    by_io_feed(&io, "positions", gen_positions(g, graph, p->tokens, p->positions));
    by_io_feed(&io, "pick", p->pick);
    gen_build(g, graph, &io);
    p->logits = by_output(graph, "logits", by_io_output(&io, "logits"));
    if (g->watch.fed)
        p->features = by_output(graph, "features", by_io_output(&io, "features"));
    if (p->top) {
        p->best = by_output(graph, "best", by_top(graph, p->logits, p->top, &p->ids, &p->lse));
        by_output(graph, "ids", p->ids);
        by_output(graph, "lse", p->lse);
    }
    p->program = by_compile(graph, &(by_compile_spec){0});
    return p->program ? BY_OK : base_error_status();
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* The width for a longest row of `left` tokens: the widest that it fills, or the next one if at least half
 * full. Up to 16 tokens cost hardly more than one. */
static int choose_width(const by_generator *g, int left)
{
    int i = 0;
    while (i + 1 < g->n_widths && left > gen_widths[i] && (i == 0 || 2 * left >= gen_widths[i + 1]))
        i++;
    return gen_widths[i];
}

/* Tokens of every row in a pass of this width. A row with a single token waits for a narrow pass, because it
 * would be mostly padding. */
static void choose_tokens(by_generator *g, const int *counts, int width)
{
    memset(g->in.acts, 0, sizeof *g->in.acts * (size_t)(g->batch / g->beams));
    for (int b = 0; b < g->batch; b++) {
        gen_row *r = &g->rows[b];
        const int left = counts[b] - r->fed;
        r->take = g->beams == 1 && left == 1 && width > gen_widths[1] ? 0 : BY_MIN(left, width);
        g->in.acts[b / g->beams] |= r->take > 0 || r->from != b;
    }
}

/* Whether only the first row of each group is fed: a prompt is fed once and copied to the others. */
static bool only_leaders(const by_generator *g)
{
    if (g->beams == 1 || gen_has_sources(g))
        return false;
    for (int b = 0; b < g->batch; b++)
        if (g->rows[b].from != b || (b % g->beams != 0 && g->rows[b].take))
            return false;
    return true;
}

/* The pass for these tokens, compiled. */
static by_status choose_pass(by_generator *g, int width, gen_pass **out)
{
    const bool leaders = only_leaders(g);
    const int rows = gen_choose_rows(g, leaders ? 1 : g->beams);
    gen_pass *p = *out = gen_find_pass(g, rows, width, g->beams > 1 && !leaders);
    if (!p)
        return BY_ERR_MEMORY;
    if (p->program && p->top == g->out.top && (p->features || !g->watch.fed))
        return BY_OK;
    by_program_free(p->program);
    p->program = NULL;
    return compile_pass(g, p);
}

/* ---- running --------------------------------------------------------------------------------- */

int gen_last_place(const by_generator *g)
{
    const int other = model_adapter_prefix(by_model_adapter(g->model)) - g->prefix;
    return by_model_is_limited(g->model) ? by_model_context(g->model) + other - 1 : 1 << 24;
}

/* The next tokens of every row, padded with the last position. */
static void fill_pass(by_generator *g, const gen_pass *p, const int32_t *const *tokens)
{
    const int first = by_model_first_position(g->model) + g->prefix, last = gen_last_place(g);
    gen_input *in = &g->in;
    for (int i = 0; i < p->rows; i++) {
        const int b = in->rows[i];
        const gen_row *r = &g->rows[b];
        for (int t = 0; t < p->width; t++) {
            in->tokens[i * p->width + t] = t < r->take ? tokens[b][r->fed + t] : 0;
            in->valid[i * p->width + t] = t < r->take;
            in->positions[i * p->width + t] =
                first + BY_MIN(r->past + BY_MIN(t, BY_MAX(r->take - 1, 0)), last);
        }
        in->past[i] = r->past + g->prefix;
        in->pick[i] = i * p->width + BY_MAX(r->take - 1, 0);
        in->from[i] = i - b % g->beams + r->from % g->beams;
    }
}

static by_status run_pass(by_generator *g, gen_pass *p)
{
    const size_t rows = (size_t)p->rows * sizeof(int32_t), all = rows * (size_t)p->width;
    for (int b = 0; b < g->batch; b++) /* what it held before is lost */
        g->rows[b].known = g->rows[b].known && g->rows[b].where != p;
    BY_TRY(by_write(p->program, p->tokens, g->in.tokens, all));
    BY_TRY(by_write(p->program, p->positions, g->in.positions, all));
    BY_TRY(by_write(p->program, p->past, g->in.past, rows));
    BY_TRY(by_write(p->program, p->pick, g->in.pick, rows));
    if (p->from)
        BY_TRY(by_write(p->program, p->from, g->in.from, rows));
    BY_TRY(gen_write_view(g, p));
    for (int b = 0; b < g->batch; b++)
        g->rows[b].from = b;
    return by_run(p->program);
}

by_status gen_need_logits(by_generator *g)
{
    const size_t count = (size_t)g->batch * (size_t)g->vocab;
    gen_output *o = &g->out;
    o->logits = o->logits ? o->logits : base_alloc_zero(count, sizeof *o->logits);
    o->fresh = o->fresh ? o->fresh : base_alloc_zero(count, sizeof *o->fresh);
    return o->logits && o->fresh ? BY_OK : BY_ERR_MEMORY;
}

/* Copies results to the host after a pass: the highest logits, and whole rows if they would be
 * overwritten. */
static by_status read_pass(by_generator *g, gen_pass *p, bool whole)
{
    const size_t rows = (size_t)p->rows, k = (size_t)p->top;
    if (whole) {
        BY_TRY(gen_need_logits(g));
        BY_TRY(by_read_f32(p->program, p->logits, g->out.fresh));
    }
    if (!p->top)
        return BY_OK;
    BY_TRY(by_read_f32(p->program, p->best, g->out.fresh_best));
    BY_TRY(by_read(p->program, p->ids, g->out.fresh_ids, rows * k * sizeof(int32_t)));
    return by_read_f32(p->program, p->lse, g->out.fresh_lse);
}

static by_status tell_watch(by_generator *g, const gen_pass *p, const int32_t *const *tokens)
{
    const int width = (int)by_dim(p->features, -1);
    const ptrdiff_t row = (ptrdiff_t)p->width * width;
    float *states = base_alloc_zero((size_t)p->rows * (size_t)row, sizeof *states);
    by_status s = states ? by_read_f32(p->program, p->features, states) : BY_ERR_MEMORY;
    for (int i = 0; i < p->rows && s == BY_OK; i++) {
        const gen_row *r = &g->rows[g->in.rows[i]];
        if (r->take)
            s = g->watch.fed(g->watch.user, g->in.rows[i], tokens[g->in.rows[i]] + r->fed, r->take,
                             states + i * row, width);
    }
    base_free(states);
    return s;
}

/* A row has been fed completely: stores its logits, or records their place. */
static void keep_row(by_generator *g, gen_pass *p, int b, bool whole)
{
    gen_row *r = &g->rows[b];
    gen_output *o = &g->out;
    const size_t row = (size_t)b, from = (size_t)r->slot, vocab = (size_t)g->vocab, k = (size_t)o->top;
    r->known = true;
    r->where = whole ? NULL : p;
    r->there = r->slot;
    if (whole)
        memcpy(o->logits + row * vocab, o->fresh + from * vocab, sizeof(float) * vocab);
    if (!o->top)
        return;
    memcpy(o->best + row * k, o->fresh_best + from * k, sizeof(float) * k);
    memcpy(o->ids + row * k, o->fresh_ids + from * k, sizeof(int32_t) * k);
    r->top = (by_top_logits){o->best + row * k, o->ids + row * k, o->top, o->fresh_lse[from]};
}

/* Counts the tokens of the pass, and whether any or all rows are completed by it. */
static void count_ends(const by_generator *g, const int *counts, bool *any, bool *all)
{
    *any = false, *all = true;
    for (int b = 0; b < g->batch; b++) {
        const int after = counts[b] - g->rows[b].fed - g->rows[b].take;
        *any = *any || (g->rows[b].take && after == 0);
        *all = *all && after == 0;
    }
}

static void finish_pass(by_generator *g, gen_pass *p, const int *counts, bool whole)
{
    for (int b = 0; b < g->batch; b++) {
        gen_row *r = &g->rows[b];
        if (!r->take)
            continue;
        r->fed += r->take;
        r->past += r->take;
        r->known = false;
        if (r->fed == counts[b])
            keep_row(g, p, b, whole);
    }
}

/* Passes until every row has been fed. */
static by_status feed_rows(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    while (true) {
        int left = 0;
        bool any, all;
        gen_pass *p;
        for (int b = 0; b < g->batch; b++)
            left = BY_MAX(left, counts[b] - g->rows[b].fed);
        if (left == 0)
            return BY_OK;
        const int width = choose_width(g, left);
        choose_tokens(g, counts, width);
        BY_TRY(choose_pass(g, width, &p));
        fill_pass(g, p, tokens);
        count_ends(g, counts, &any, &all);
        const bool whole = !g->out.top || !all; /* the next pass may overwrite these logits */
        BY_TRY(run_pass(g, p));
        if (any)
            BY_TRY(read_pass(g, p, whole));
        if (g->watch.fed)
            BY_TRY(tell_watch(g, p, tokens));
        finish_pass(g, p, counts, whole);
    }
}

/* Rows that get a prefix temporarily have negative positions. */
static by_status feed_prefix(by_generator *g, const int32_t *zeros, const int32_t **tokens, const int *counts)
{
    const gen_watch watch = g->watch;
    for (int b = 0; b < g->batch; b++) {
        tokens[b] = zeros;
        g->rows[b].fed = 0;
        g->rows[b].past -= counts[b];
    }
    g->watch.fed = NULL;
    by_status s = feed_rows(g, tokens, counts);
    g->watch = watch;
    for (int b = 0; b < g->batch; b++)
        g->rows[b].past = BY_MAX(g->rows[b].past, 0);
    return s;
}

by_status gen_feed_prefix(by_generator *g, const int *counts, const bool *active)
{
    bool any = false;
    int *takes = g->prefix ? base_alloc_zero((size_t)g->batch, sizeof *takes) : NULL;
    int32_t *zeros = base_alloc_zero((size_t)g->prefix + 1, sizeof *zeros);
    const int32_t **tokens = base_alloc_zero((size_t)g->batch, sizeof *tokens);
    by_status s = (takes || !g->prefix) && zeros && tokens ? BY_OK : BY_ERR_MEMORY;
    for (int b = 0; takes && b < g->batch; b++) {
        const bool begins = g->rows[b].past == 0 && (counts ? counts[b] > 0 : active[b]);
        takes[b] = begins ? g->prefix : 0;
        any |= begins;
    }
    if (any && s == BY_OK)
        s = feed_prefix(g, zeros, tokens, takes);
    base_free(takes);
    base_free(zeros);
    base_free(tokens);
    return s;
}

by_status gen_feed(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    if (g->whole)
        return gen_feed_whole(g, tokens, counts);
    BY_TRY(gen_reserve(g, counts));
    if (g->prefix)
        BY_TRY(gen_feed_prefix(g, counts, NULL));
    for (int b = 0; b < g->batch; b++)
        g->rows[b].fed = 0;
    const bool alike = gen_find_alike(g, tokens, counts);
    BY_TRY(feed_rows(g, tokens, counts));
    return alike ? gen_take_over(g) : BY_OK;
}
