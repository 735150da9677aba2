/* generator.c - the key-value cache of a batch of sequences, and the programs that extend it. Tokens are fed
 * in passes of a few fixed widths, each compiled when it is first needed; a pass wider than what is left is
 * padded at the end. The keys of padding lie behind the row's last position: no query sees them, and the next
 * tokens overwrite them. */
#include "banyan/generate.h"
#include "base/base.h"
#include "nn/nn.h"

static const int widths[] = {1, 16, 64, 256};
#define WIDTHS BY_COUNT(widths)
enum { RUN = 32 }; /* steps of greedy decoding without a look at them */

/* A program that takes T new positions of every row, and its tensors. */
typedef struct pass {
    by_program *program;  /* NULL: not compiled yet */
    by_tensor *tokens;    /* (B, T) */
    by_tensor *positions; /* (B, T) */
    by_tensor *past;      /* (B) positions the cache holds */
    by_tensor *pick;      /* (B) flat index of the last real token */
    by_tensor *logits;    /* (B, V) there */
} pass;

/* A decoding step that ends where the next begins. Its tensors are states. */
typedef struct loop {
    by_program *program;                        /* NULL: not compiled yet */
    by_memory *tokens, *positions, *past, *log; /* (B), (B), (B), (1 + RUN B) */
} loop;

struct by_generator {
    by_model *model;
    int batch, capacity, vocab;
    int n_widths; /* of widths[], those of use with this capacity */
    nn_cache *cache;
    pass passes[WIDTHS];
    loop greedy;
    int32_t *past;               /* (B) positions every row holds */
    bool *known;                 /* (B) its logits are those of its last position */
    float *logits, *fresh;       /* (B, V): of every row, and of the last pass */
    int32_t *tokens, *positions; /* (B, widest) what goes into a pass */
    int32_t *pick;               /* (B) */
    int *done;                   /* (B) tokens already fed of the present call */
};

static by_status check_spec(const by_model *m, const by_generator_spec *spec)
{
    int context = by_model_context(m);
    if (by_model_task(m) != BY_TASK_LM)
        return by_fail(BY_ERR_ARGUMENT, "a %s does not generate text", by_model_class(m));
    if (spec->batch < 0 || spec->batch > 1 << 20)
        return by_fail(BY_ERR_ARGUMENT, "a batch of %d sequences is not possible", spec->batch);
    if (spec->capacity < 0 || spec->capacity > context)
        return by_fail(BY_ERR_ARGUMENT, "room for %d positions was asked for; the model's context is %d",
                       spec->capacity, context);
    return BY_OK;
}

by_generator *by_generator_new(by_model *m, const by_generator_spec *spec)
{
    if (check_spec(m, spec) != BY_OK)
        return NULL;
    by_generator *g = by_alloc_zero(1, sizeof *g);
    if (!g)
        return NULL;
    g->model = m;
    g->vocab = by_model_vocab(m);
    g->batch = BY_MAX(spec->batch, 1);
    g->capacity = spec->capacity ? spec->capacity : by_model_context(m);
    g->n_widths = 1;
    while (g->n_widths < WIDTHS && widths[g->n_widths - 1] < g->capacity)
        g->n_widths++;
    size_t rows = (size_t)g->batch, widest = (size_t)widths[g->n_widths - 1];
    g->cache = nn_cache_new(by_model_device(m),
                            g->capacity + (int64_t)widest); /* behind the last position, padding */
    g->past = by_alloc_zero(rows, sizeof *g->past);
    g->known = by_alloc_zero(rows, sizeof *g->known);
    g->logits = by_alloc_zero(rows * (size_t)g->vocab, sizeof *g->logits);
    g->fresh = by_alloc_zero(rows * (size_t)g->vocab, sizeof *g->fresh);
    g->tokens = by_alloc_zero(rows * widest, sizeof *g->tokens);
    g->positions = by_alloc_zero(rows * widest, sizeof *g->positions);
    g->pick = by_alloc_zero(rows, sizeof *g->pick);
    g->done = by_alloc_zero(rows, sizeof *g->done);
    if (!g->cache || !g->past || !g->known || !g->logits || !g->fresh || !g->tokens || !g->positions ||
        !g->pick || !g->done) {
        by_generator_free(g);
        return NULL;
    }
    return g;
}

void by_generator_free(by_generator *g)
{
    if (!g)
        return;
    for (int i = 0; i < WIDTHS; i++)
        by_program_free(g->passes[i].program);
    by_program_free(g->greedy.program);
    by_memory_free(g->greedy.tokens);
    by_memory_free(g->greedy.positions);
    by_memory_free(g->greedy.past);
    by_memory_free(g->greedy.log);
    nn_cache_free(g->cache);
    by_free(g->past);
    by_free(g->known);
    by_free(g->logits);
    by_free(g->fresh);
    by_free(g->tokens);
    by_free(g->positions);
    by_free(g->pick);
    by_free(g->done);
    by_free(g);
}

/* ---- passes ---------------------------------------------------------------------------------- */

static by_status compile_pass(by_generator *g, int width, pass *p)
{
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    int64_t shape[] = {g->batch, width};
    p->tokens = by_input(graph, "tokens", BY_I32, 2, shape);
    p->positions = by_input(graph, "positions", BY_I32, 2, shape);
    p->past = by_input(graph, "past", BY_I32, 1, shape);
    p->pick = by_input(graph, "pick", BY_I32, 1, shape);
    g->cache->past = p->past;
    by_model_io io = {.tokens = p->tokens, .positions = p->positions, .pick = p->pick, .cache = g->cache};
    by_model_build(g->model, graph, &io);
    p->logits = by_output(graph, "logits", io.logits);
    p->program = by_compile(graph, &(by_compile_spec){0});
    return p->program ? BY_OK : by_error_status();
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

/* The next `width` tokens of every row, padded; gives the number of rows that end in this pass. */
static int fill_pass(by_generator *g, const int32_t *const *tokens, const int *counts, int width)
{
    const int last = by_model_context(g->model) - 1;
    int ending = 0;
    for (int b = 0; b < g->batch; b++) {
        int n = BY_MIN(counts[b] - g->done[b], width);
        for (int t = 0; t < width; t++) {
            g->tokens[b * width + t] = t < n ? tokens[b][g->done[b] + t] : 0;
            g->positions[b * width + t] = BY_MIN(g->past[b] + t, last);
        }
        g->pick[b] = b * width + BY_MAX(n - 1, 0);
        ending += n > 0 && g->done[b] + n == counts[b];
    }
    return ending;
}

static by_status run_pass(by_generator *g, pass *p, int width, bool read)
{
    size_t rows = (size_t)g->batch * sizeof(int32_t), all = rows * (size_t)width;
    BY_TRY(by_write(p->program, p->tokens, g->tokens, all));
    BY_TRY(by_write(p->program, p->positions, g->positions, all));
    BY_TRY(by_write(p->program, p->past, g->past, rows));
    BY_TRY(by_write(p->program, p->pick, g->pick, rows));
    BY_TRY(by_run(p->program));
    return read ? by_read_f32(p->program, p->logits, g->fresh) : BY_OK;
}

/* Count what the pass has fed, and keep the logits of the rows that have come to their end. */
static void finish_pass(by_generator *g, const int *counts, int width)
{
    size_t vocab = (size_t)g->vocab;
    for (int b = 0; b < g->batch; b++) {
        int n = BY_MIN(counts[b] - g->done[b], width);
        if (n <= 0)
            continue;
        g->done[b] += n;
        g->past[b] += n;
        g->known[b] = g->done[b] == counts[b];
        if (g->known[b])
            memcpy(g->logits + (size_t)b * vocab, g->fresh + (size_t)b * vocab, sizeof(float) * vocab);
    }
}

static by_status check_feed(const by_generator *g, const int32_t *const *tokens, const int *counts)
{
    for (int b = 0; b < g->batch; b++) {
        if (counts[b] < 0 || counts[b] > g->capacity - g->past[b])
            return by_fail(BY_ERR_ARGUMENT,
                           "row %d holds %d tokens and %d more do not fit: there is room for %d", b,
                           g->past[b], counts[b], g->capacity);
        for (int i = 0; i < counts[b]; i++)
            if (tokens[b][i] < 0 || tokens[b][i] >= g->vocab)
                return by_fail(BY_ERR_ARGUMENT, "token %d (row %d, place %d) is outside the vocabulary of %d",
                               (int)tokens[b][i], b, i, g->vocab);
    }
    return BY_OK;
}

by_status by_generator_feed(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    BY_TRY(check_feed(g, tokens, counts));
    memset(g->done, 0, sizeof *g->done * (size_t)g->batch);
    while (true) {
        int left = 0;
        for (int b = 0; b < g->batch; b++)
            left = BY_MAX(left, counts[b] - g->done[b]);
        if (left == 0)
            return BY_OK;
        int i = choose_width(g, left);
        if (!g->passes[i].program)
            BY_TRY(compile_pass(g, widths[i], &g->passes[i]));
        bool read = fill_pass(g, tokens, counts, widths[i]) > 0;
        BY_TRY(run_pass(g, &g->passes[i], widths[i], read));
        finish_pass(g, counts, widths[i]);
    }
}

/* ---- greedy decoding on the device ----------------------------------------------------------- */

static by_memory *ints(by_generator *g, size_t count)
{
    return by_memory_new(by_model_device(g->model), count * sizeof(int32_t));
}

static by_status compile_loop(by_generator *g, loop *l)
{
    const size_t rows = (size_t)g->batch;
    l->tokens = l->tokens ? l->tokens : ints(g, rows);
    l->positions = l->positions ? l->positions : ints(g, rows);
    l->past = l->past ? l->past : ints(g, rows);
    l->log = l->log ? l->log : ints(g, 1 + RUN * rows);
    if (!l->tokens || !l->positions || !l->past || !l->log)
        return by_error_status();
    by_graph *graph = by_graph_new(&(by_graph_spec){.params = by_model_params(g->model)});
    if (!graph)
        return BY_ERR_MEMORY;
    int64_t shape[] = {g->batch, 1}, log[] = {1 + (int64_t)RUN * g->batch};
    by_tensor *tokens = by_state(graph, "tokens", BY_I32, 2, shape, l->tokens);
    by_tensor *positions = by_state(graph, "positions", BY_I32, 2, shape, l->positions);
    by_tensor *past = by_state(graph, "past", BY_I32, 1, shape, l->past);
    g->cache->past = past;
    by_model_io io = {.tokens = tokens, .positions = positions, .cache = g->cache};
    by_model_build(g->model, graph, &io);
    by_tensor *next = by_argmax(graph, io.logits); /* (B, 1) */
    by_advance(graph, next, tokens, positions, past, by_state(graph, "log", BY_I32, 1, log, l->log),
               by_model_context(g->model) - 1);
    l->program = by_compile(graph, &(by_compile_spec){0});
    return l->program ? BY_OK : by_error_status();
}

by_status by_generator_time(by_generator *g, by_trace_fn fn, void *user)
{
    if (!g->greedy.program)
        BY_TRY(compile_loop(g, &g->greedy));
    by_program_time(g->greedy.program, fn, user);
    return BY_OK;
}

by_status by_generator_greedy(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                              int32_t *out)
{
    loop *l = &g->greedy;
    const size_t rows = (size_t)g->batch, bytes = rows * sizeof(int32_t);
    const int32_t none = 0;
    if (steps < 1 || steps > RUN)
        return by_fail(BY_ERR_ARGUMENT, "%d steps at once: not between 1 and %d", steps, RUN);
    for (int b = 0; b < g->batch; b++) {
        if (active[b] && (steps > g->capacity - g->past[b] || tokens[b] < 0 || tokens[b] >= g->vocab))
            return by_fail(BY_ERR_ARGUMENT, "row %d cannot go on from token %d for %d steps", b,
                           (int)tokens[b], steps);
        g->tokens[b] = active[b] ? tokens[b] : 0;
        g->past[b] = active[b] ? g->past[b] : 0;
        g->known[b] = false;
    }
    if (!l->program)
        BY_TRY(compile_loop(g, l));
    BY_TRY(by_memory_write(l->tokens, 0, g->tokens, bytes));
    BY_TRY(by_memory_write(l->positions, 0, g->past, bytes)); /* below the context, as the capacity is */
    BY_TRY(by_memory_write(l->past, 0, g->past, bytes));
    BY_TRY(by_memory_write(l->log, 0, &none, sizeof none));
    for (int s = 0; s < steps; s++)
        BY_TRY(by_run(l->program));
    BY_TRY(by_memory_read(l->log, sizeof none, out, (size_t)steps * bytes));
    for (int b = 0; b < g->batch; b++)
        g->past[b] = active[b] ? g->past[b] + steps : 0;
    return BY_OK;
}

/* ---- facts ----------------------------------------------------------------------------------- */

const float *by_generator_logits(const by_generator *g, int row)
{
    return row >= 0 && row < g->batch && g->known[row] ? g->logits + (size_t)row * (size_t)g->vocab : NULL;
}

void by_generator_rewind(by_generator *g, int row, int length)
{
    if (row < 0 || row >= g->batch || length < 0 || length >= g->past[row])
        return;
    g->past[row] = length;
    g->known[row] = false;
}

int by_generator_length(const by_generator *g, int row)
{
    return row >= 0 && row < g->batch ? g->past[row] : 0;
}

by_model *by_generator_model(const by_generator *g)
{
    return g->model;
}

int by_generator_batch(const by_generator *g)
{
    return g->batch;
}

int by_generator_capacity(const by_generator *g)
{
    return g->capacity;
}

size_t by_generator_bytes(const by_generator *g)
{
    size_t bytes = nn_cache_bytes(g->cache);
    for (int i = 0; i < WIDTHS; i++)
        if (g->passes[i].program)
            bytes += by_program_bytes(g->passes[i].program);
    return bytes + (g->greedy.program ? by_program_bytes(g->greedy.program) : 0);
}
