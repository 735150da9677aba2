/* generator.c - the key-value cache of a batch of sequences, and the programs that extend it. Tokens are fed
 * in passes of a few fixed widths, each compiled when it is first needed; a pass wider than what is left is
 * padded at the end. The keys of padding lie behind the row's last position: no query sees them, and the next
 * tokens overwrite them. Where rows stand in groups, there are passes for the first half of the groups, the
 * first quarter and so on, for when the others are done, and for the first row of every group alone: a prompt
 * is fed once, and the other rows of its group take it over. Encoder-decoders have passes of their own for
 * each of a few lengths of the source. */
#include "infer/generator.h"

static const int widths[GEN_WIDTHS] = {1, 16, 64, 256};
enum { MOST_BEAMS = 64, MOST_TOP = 128 };

static by_status check_spec(const by_model *m, const by_generator_spec *spec)
{
    if (!m || !spec)
        return base_fail_missing(m ? "by_generator_spec" : "model");
    int context = by_model_is_limited(m) ? by_model_context(m) : 1 << 24;
    if (by_model_task(m) != BY_TASK_LM && by_model_task(m) != BY_TASK_SEQ2SEQ)
        return base_fail(BY_ERR_ARGUMENT, "a %s does not generate text", by_model_class(m));
    if (spec->batch < 0 || spec->batch > 1 << 20)
        return base_fail(BY_ERR_ARGUMENT, "a batch of %d sequences is not possible", spec->batch);
    const int room[] = {spec->capacity, spec->source_capacity};
    for (int i = 0; i < BY_COUNT(room); i++)
        if (room[i] < 0 || room[i] > context)
            return base_fail(BY_ERR_ARGUMENT,
                             "room for %d positions was asked for; the model's context is %d", room[i],
                             context);
    if (spec->beams < 0 || spec->beams > MOST_BEAMS || BY_MAX(spec->batch, 1) % BY_MAX(spec->beams, 1) != 0)
        return base_fail(BY_ERR_ARGUMENT, "%d rows cannot stand in groups of %d", BY_MAX(spec->batch, 1),
                         spec->beams);
    return BY_OK;
}

void gen_stand_still(by_generator *g)
{
    for (int b = 0; b < g->batch; b++)
        g->from[b] = b;
}

/* What a graph sees of the cache: every stride-th row alone, followed by those between it and the next. To
 * passes of leaders a group is one long row so, of which its first row is the beginning. */
static void shape_cache(by_generator *g, int stride)
{
    const int widest = widths[g->n_widths - 1]; /* behind the last position, padding */
    g->cache->beams = g->beams / stride;
    g->cache->rows = g->batch / stride;
    g->cache->capacity = (int64_t)(g->capacity + widest) * stride;
}

by_generator *by_generator_new(by_model *m, const by_generator_spec *spec)
{
    if (check_spec(m, spec) != BY_OK)
        return NULL;
    by_generator *g = base_alloc_zero(1, sizeof *g);
    if (!g)
        return NULL;
    g->model = m;
    g->vocab = by_model_vocab(m);
    g->batch = BY_MAX(spec->batch, 1);
    g->beams = BY_MAX(spec->beams, 1);
    g->capacity = spec->capacity ? spec->capacity : by_model_context(m);
    g->n_widths = 1;
    while (g->n_widths < GEN_WIDTHS && widths[g->n_widths - 1] < g->capacity)
        g->n_widths++;
    size_t rows = (size_t)g->batch, widest = (size_t)widths[g->n_widths - 1];
    g->cache = nn_cache_new(by_model_device(m), g->capacity);
    g->past = base_alloc_zero(rows, sizeof *g->past);
    g->from = base_alloc_zero(rows, sizeof *g->from);
    g->known = base_alloc_zero(rows, sizeof *g->known);
    g->where = base_alloc_zero(rows, sizeof *g->where);
    g->tokens = base_alloc_zero(rows * widest, sizeof *g->tokens);
    g->positions = base_alloc_zero(rows * widest, sizeof *g->positions);
    g->pick = base_alloc_zero(rows, sizeof *g->pick);
    g->starts = base_alloc_zero(rows, sizeof *g->starts);
    g->done = base_alloc_zero(rows, sizeof *g->done);
    if (!g->cache || !g->past || !g->from || !g->known || !g->where || !g->tokens || !g->positions ||
        !g->pick || !g->starts || !g->done) {
        by_generator_free(g);
        return NULL;
    }
    shape_cache(g, 1);
    if (gen_has_sources(g) ? gen_make_sources(g, spec->source_capacity) != BY_OK
                           : gen_enter_stage(g, 0) != BY_OK) {
        by_generator_free(g);
        return NULL;
    }
    gen_stand_still(g);
    return g;
}

static void free_top(by_generator *g)
{
    base_free(g->tops);
    base_free(g->best);
    base_free(g->fresh_best);
    base_free(g->fresh_lse);
    base_free(g->ids);
    base_free(g->fresh_ids);
    g->tops = NULL;
    g->best = g->fresh_best = g->fresh_lse = NULL;
    g->ids = g->fresh_ids = NULL;
    g->top = 0;
}

void by_generator_free(by_generator *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->n_stages; i++)
        gen_free_stage(g->stages[i]);
    base_free(g->stages);
    by_memory_free(g->mask);
    base_free(g->sources);
    base_free(g->source_mask);
    base_free(g->source_from);
    by_memory_free(g->greedy.tokens);
    by_memory_free(g->greedy.positions);
    by_memory_free(g->greedy.past);
    by_memory_free(g->greedy.log);
    nn_cache_free(g->cache);
    base_free(g->past);
    base_free(g->from);
    base_free(g->known);
    base_free(g->where);
    base_free(g->logits);
    base_free(g->fresh);
    free_top(g);
    base_free(g->tokens);
    base_free(g->positions);
    base_free(g->pick);
    base_free(g->starts);
    base_free(g->done);
    base_free(g);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Rows of the passes of a level. */
static int rows_of(const by_generator *g, int level)
{
    const int groups = g->batch / g->beams;
    if (level == GEN_LEADERS)
        return groups;
    return (groups + (1 << level) - 1) / (1 << level) * g->beams;
}

static void use_cache(by_generator *g, by_graph *graph, const gen_pass *p)
{
    g->cache->past = p->past;
    g->cache->from = p->from;
    g->cache->source_from = p->source_from;
    shape_cache(g, p->stride);
    gen_use_sources(g, graph, p->rows);
}

static by_status compile_pass(by_generator *g, int rows, int width, int stride, gen_pass *p)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    int64_t shape[] = {rows, width};
    *p = (gen_pass){.rows = rows, .top = g->top, .stride = stride};
    p->tokens = by_input(graph, "tokens", BY_I32, 2, shape);
    p->positions = by_input(graph, "positions", BY_I32, 2, shape);
    p->past = by_input(graph, "past", BY_I32, 1, shape);
    p->pick = by_input(graph, "pick", BY_I32, 1, shape);
    p->from = g->beams > stride ? by_input(graph, "from", BY_I32, 1, shape) : NULL;
    if (p->from && gen_has_sources(g))
        p->source_from = by_input(graph, "source from", BY_I32, 1, (int64_t[]){rows / g->beams});
    use_cache(g, graph, p);
    by_model_io io = {.part = gen_has_sources(g) ? BY_PART_DECODER : BY_PART_WHOLE, .cache = g->cache};
    by_io_feed(&io, "tokens", p->tokens);
    by_io_feed(&io, "positions", p->positions);
    by_io_feed(&io, "pick", p->pick);
    by_model_build(g->model, graph, &io);
    shape_cache(g, 1);
    p->logits = by_output(graph, "logits", by_io_output(&io, "logits"));
    if (g->top) {
        p->best = by_output(graph, "best", by_top(graph, p->logits, g->top, &p->ids, &p->lse));
        by_output(graph, "ids", p->ids);
        by_output(graph, "lse", p->lse);
    }
    p->program = by_compile(graph, &(by_compile_spec){0});
    return p->program ? BY_OK : base_error_status();
}

/* Which width to use when the longest row has `left` tokens to go: the widest that it fills, or the next one
 * when that is then at least half full. Up to 16 tokens cost hardly more than one, so a few are not fed one
 * by one. */
static int choose_width(const by_generator *g, int left)
{
    int i = 0;
    while (i + 1 < g->n_widths && left > widths[i] && (i == 0 || 2 * left >= widths[i + 1]))
        i++;
    return i;
}

/* Whether nothing happens to any but the first row of each group. */
static bool only_leaders(const by_generator *g, const int *counts)
{
    if (g->beams == 1 || gen_has_sources(g))
        return false;
    for (int b = 0; b < g->batch; b++)
        if (g->from[b] != b || (b % g->beams != 0 && counts[b] > g->done[b]))
            return false;
    return true;
}

/* The smallest level that has the rows to feed and those that change places. */
static int choose_level(const by_generator *g, const int *counts)
{
    if (only_leaders(g, counts))
        return GEN_LEADERS;
    int rows = 1, level = 0;
    for (int b = 0; b < g->batch; b++) {
        if (counts[b] > g->done[b])
            rows = b + 1;
        if (g->from[b] != b)
            rows = BY_MAX(rows, BY_MAX(b, g->from[b]) + 1);
    }
    while (g->beams > 1 && level + 1 < GEN_LEVELS && rows_of(g, level + 1) >= rows)
        level++;
    return level;
}

/* The pass for what is left to feed, ready to run. */
static by_status choose_pass(by_generator *g, const int *counts, int left, gen_pass **out, int *width)
{
    const int level = choose_level(g, counts), i = choose_width(g, left);
    gen_pass *p = *out = &g->now->passes[level][i];
    *width = widths[i];
    if (p->program && p->top == g->top)
        return BY_OK;
    by_program_free(p->program);
    p->program = NULL;
    return compile_pass(g, rows_of(g, level), widths[i], level == GEN_LEADERS ? g->beams : 1, p);
}

int gen_last_place(const by_generator *g)
{
    return by_model_is_limited(g->model) ? by_model_context(g->model) - 1 : 1 << 24;
}

/* The next `width` tokens of every row, padded with the last position; gives the number of rows that end in this pass. */
static int fill_pass(by_generator *g, const gen_pass *p, const int32_t *const *tokens, const int *counts,
                     int width)
{
    const int first = by_model_first_position(g->model), last = gen_last_place(g);
    int ending = 0;
    for (int i = 0; i < p->rows; i++) {
        const int b = i * p->stride, n = BY_MIN(counts[b] - g->done[b], width);
        for (int t = 0; t < width; t++) {
            g->tokens[i * width + t] = t < n ? tokens[b][g->done[b] + t] : 0;
            g->positions[i * width + t] = first + BY_MIN(g->past[b] + BY_MIN(t, BY_MAX(n - 1, 0)), last);
        }
        g->starts[i] = g->past[b];
        g->pick[i] = i * width + BY_MAX(n - 1, 0);
        ending += n > 0 && g->done[b] + n == counts[b];
    }
    return ending;
}

static by_status run_pass(by_generator *g, gen_pass *p, int width)
{
    size_t rows = (size_t)p->rows * sizeof(int32_t), all = rows * (size_t)width;
    for (int b = 0; b < g->batch; b++) /* what it held before is lost */
        g->known[b] = g->known[b] && g->where[b] != p;
    BY_TRY(by_write(p->program, p->tokens, g->tokens, all));
    BY_TRY(by_write(p->program, p->positions, g->positions, all));
    BY_TRY(by_write(p->program, p->past, g->starts, rows));
    BY_TRY(by_write(p->program, p->pick, g->pick, rows));
    if (p->from)
        BY_TRY(by_write(p->program, p->from, g->from, rows));
    if (p->source_from) {
        BY_TRY(gen_move_sources(g));
        BY_TRY(by_write(p->program, p->source_from, g->source_from, rows / (size_t)g->beams));
    }
    gen_stand_still(g);
    return by_run(p->program);
}

/* Room for whole rows of logits. */
static by_status need_logits(by_generator *g)
{
    const size_t count = (size_t)g->batch * (size_t)g->vocab;
    g->logits = g->logits ? g->logits : base_alloc_zero(count, sizeof *g->logits);
    g->fresh = g->fresh ? g->fresh : base_alloc_zero(count, sizeof *g->fresh);
    return g->logits && g->fresh ? BY_OK : BY_ERR_MEMORY;
}

/* What has to come to the host after a pass: the highest logits, and whole rows when nobody else will keep
 * them. */
static by_status read_pass(by_generator *g, gen_pass *p, bool whole)
{
    const size_t rows = (size_t)p->rows, k = (size_t)g->top;
    if (whole) {
        BY_TRY(need_logits(g));
        BY_TRY(by_read_f32(p->program, p->logits, g->fresh));
    }
    if (!g->top)
        return BY_OK;
    BY_TRY(by_read_f32(p->program, p->best, g->fresh_best));
    BY_TRY(by_read(p->program, p->ids, g->fresh_ids, rows * k * sizeof(int32_t)));
    return by_read_f32(p->program, p->lse, g->fresh_lse);
}

/* A row has come to its end: keep its logits, or remember where they are. */
static void keep_row(by_generator *g, gen_pass *p, int b, bool whole)
{
    const size_t row = (size_t)b, from = (size_t)(b / p->stride), vocab = (size_t)g->vocab,
                 k = (size_t)g->top;
    g->known[b] = true;
    g->where[b] = whole ? NULL : p;
    if (whole)
        memcpy(g->logits + row * vocab, g->fresh + from * vocab, sizeof(float) * vocab);
    if (!g->top)
        return;
    memcpy(g->best + row * k, g->fresh_best + from * k, sizeof(float) * k);
    memcpy(g->ids + row * k, g->fresh_ids + from * k, sizeof(int32_t) * k);
    g->tops[b] = (by_top_logits){g->best + row * k, g->ids + row * k, g->top, g->fresh_lse[from]};
}

/* Count what the pass has fed. */
static void finish_pass(by_generator *g, gen_pass *p, const int *counts, int width, bool whole)
{
    for (int b = 0; b < p->rows * p->stride; b += p->stride) {
        int n = BY_MIN(counts[b] - g->done[b], width);
        if (n <= 0)
            continue;
        g->done[b] += n;
        g->past[b] += n;
        g->known[b] = false;
        if (g->done[b] == counts[b])
            keep_row(g, p, b, whole);
    }
}

static by_status check_feed(const by_generator *g, const int32_t *const *tokens, const int *counts)
{
    for (int b = 0; b < g->batch; b++) {
        if (counts[b] < 0 || counts[b] > g->capacity - g->past[b])
            return base_fail(BY_ERR_ARGUMENT,
                             "row %d holds %d tokens and %d more do not fit: there is room for %d", b,
                             g->past[b], counts[b], g->capacity);
        for (int i = 0; i < counts[b]; i++)
            if (tokens[b][i] < 0 || tokens[b][i] >= g->vocab)
                return base_fail(BY_ERR_ARGUMENT,
                                 "token %d (row %d, place %d) is outside the vocabulary of %d",
                                 (int)tokens[b][i], b, i, g->vocab);
    }
    return BY_OK;
}

static int count_left(const by_generator *g, const int *counts)
{
    int left = 0;
    for (int b = 0; b < g->batch; b++)
        left = BY_MAX(left, counts[b] - g->done[b]);
    return left;
}

by_status by_generator_feed(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    if (!g || !tokens || !counts)
        return base_fail_missing(g ? "token" : "generator");
    BY_TRY(gen_check_stage(g));
    BY_TRY(check_feed(g, tokens, counts));
    memset(g->done, 0, sizeof *g->done * (size_t)g->batch);
    for (int left; (left = count_left(g, counts)) > 0;) {
        gen_pass *p;
        int width;
        BY_TRY(choose_pass(g, counts, left, &p, &width));
        const bool ending = fill_pass(g, p, tokens, counts, width) > 0;
        const bool whole = !g->top || left > width; /* the next pass may take the place of these logits */
        BY_TRY(run_pass(g, p, width));
        if (ending)
            BY_TRY(read_pass(g, p, whole));
        finish_pass(g, p, counts, width, whole);
    }
    return BY_OK;
}

/* ---- beams ----------------------------------------------------------------------------------- */

by_status by_generator_keep_top(by_generator *g, int k)
{
    if (!g)
        return base_fail_missing("generator");
    if (k < 0 || k > MOST_TOP || k > g->vocab)
        return base_fail(BY_ERR_ARGUMENT, "the %d highest logits: not between 0 and %d", k,
                         BY_MIN(MOST_TOP, g->vocab));
    if (k == g->top)
        return BY_OK;
    const size_t rows = (size_t)g->batch, count = rows * (size_t)k;
    memset(g->known, 0, rows * sizeof *g->known);
    free_top(g);
    if (k == 0)
        return BY_OK;
    g->tops = base_alloc_zero(rows, sizeof *g->tops);
    g->best = base_alloc_zero(count, sizeof *g->best);
    g->fresh_best = base_alloc_zero(count, sizeof *g->fresh_best);
    g->fresh_lse = base_alloc_zero(rows, sizeof *g->fresh_lse);
    g->ids = base_alloc_zero(count, sizeof *g->ids);
    g->fresh_ids = base_alloc_zero(count, sizeof *g->fresh_ids);
    if (!g->tops || !g->best || !g->fresh_best || !g->fresh_lse || !g->ids || !g->fresh_ids) {
        free_top(g);
        return BY_ERR_MEMORY;
    }
    g->top = k;
    return BY_OK;
}

/* The group that all rows of a group take from; -1 when they disagree, or take from an earlier one. */
static int source_of(const by_generator *g, const int32_t *from, int group)
{
    const int first = group * g->beams, source = from[first] >= 0 ? from[first] / g->beams : -1;
    for (int b = first; b < first + g->beams; b++)
        if (from[b] < first || from[b] >= g->batch || from[b] / g->beams != source)
            return -1;
    return source;
}

static bool is_still(const by_generator *g, const int32_t *from, int group)
{
    for (int b = group * g->beams; b < (group + 1) * g->beams; b++)
        if (from[b] != b)
            return false;
    return true;
}

/* The contract of by_reorder: rows that are read are overwritten by nobody, or by the reader of an earlier
 * group alone. */
static by_status check_order(const by_generator *g, const int32_t *from)
{
    const int groups = g->batch / g->beams;
    for (int i = 0; i < groups; i++) {
        const int source = source_of(g, from, i);
        bool fits =
            source >= 0 && (source == i || is_still(g, from, source) || source_of(g, from, source) > source);
        for (int k = i + 1; k < groups && fits && source > i; k++)
            fits = k == source || source_of(g, from, k) != source;
        if (!fits)
            return base_fail(BY_ERR_ARGUMENT,
                             "the rows of group %d do not take from one group, their own or a later one", i);
    }
    return BY_OK;
}

by_status by_generator_reorder(by_generator *g, const int32_t *from)
{
    if (!g || !from)
        return base_fail_missing(g ? "order" : "generator");
    if (g->beams < 2)
        return base_fail(BY_ERR_ARGUMENT, "rows that stand alone cannot be reordered");
    for (int b = 0; b < g->batch; b++)
        if (g->from[b] != b)
            return base_fail(BY_ERR_ARGUMENT, "rows were reordered before, and nothing was fed since");
    BY_TRY(check_order(g, from));
    memcpy(g->from, from, sizeof *from * (size_t)g->batch);
    for (int b = 0; b < g->batch; b++) /* in this order, as the device does: none reads what was replaced */
        g->done[b] = g->past[from[b]];
    for (int b = 0; b < g->batch; b++) {
        g->past[b] = g->done[b];
        g->known[b] = false;
    }
    return BY_OK;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static bool has_logits(const by_generator *g, int row)
{
    return g && row >= 0 && row < g->batch && g->known[row];
}

const float *by_generator_logits(by_generator *g, int row)
{
    if (!has_logits(g, row) || need_logits(g) != BY_OK)
        return NULL;
    float *logits = g->logits + (size_t)row * (size_t)g->vocab;
    const gen_pass *p = g->where[row];
    if (p && by_read_row(p->program, p->logits, row / p->stride, logits) != BY_OK)
        return NULL;
    g->where[row] = NULL;
    return logits;
}

const by_top_logits *by_generator_top(const by_generator *g, int row)
{
    return has_logits(g, row) && g->top ? &g->tops[row] : NULL;
}

void by_generator_rewind(by_generator *g, int row, int length)
{
    if (!g || row < 0 || row >= g->batch || length < 0 || length >= g->past[row])
        return;
    g->past[row] = length;
    g->known[row] = false;
}

int by_generator_length(const by_generator *g, int row)
{
    return g && row >= 0 && row < g->batch ? g->past[row] : 0;
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
    size_t bytes = nn_cache_bytes(g->cache);
    for (int k = 0; k < g->n_stages; k++) {
        const gen_stage *s = g->stages[k];
        for (int i = 0; i < GEN_KINDS * GEN_WIDTHS; i++)
            bytes += program_bytes(s->passes[i / GEN_WIDTHS][i % GEN_WIDTHS].program);
        bytes += program_bytes(s->greedy) + program_bytes(s->encoder);
    }
    return bytes;
}
