/* generator_whole.c - generation without a cache: every step processes the whole text. In XLNet, all tokens
 * see each other, so a new token changes the states of earlier ones. The position of the next token holds a
 * mask, which sees the text but is not seen, and whose query stream predicts. In Reformer, a new token
 * changes the sort order. The last token predicts, and every text is a separate pass without padding. */
#include <math.h>

#include "banyan/pass.h"
#include "infer/generator.h"

struct gen_whole {
    int room;      /* capacity of a row of `text` */
    int32_t *text; /* (B, room) */
    /* inputs of a pass: (B, T), (B), and the sequence of every row */
    int32_t *tokens, *mask, *order, *pick, *row;
    by_passes *passes;
};

enum { STEP = 16 }; /* lengths of passes are multiples of this */

gen_whole *gen_whole_new(const by_generator *g)
{
    gen_whole *w = base_alloc_zero(1, sizeof *w);
    if (!w)
        return NULL;
    w->room = (g->capacity + STEP) / STEP * STEP;
    const size_t rows = (size_t)g->batch, all = rows * (size_t)w->room;
    int32_t **cells[] = {&w->text, &w->tokens, &w->mask, &w->order};
    for (int i = 0; i < BY_COUNT(cells); i++)
        *cells[i] = base_alloc_zero(all, sizeof(int32_t));
    w->pick = base_alloc_zero(rows, sizeof *w->pick);
    w->row = base_alloc_zero(rows, sizeof *w->row);
    w->passes = by_passes_new(g->model, &(by_pass_spec){.features = !by_model_rereads(g->model)}, 0);
    if (w->text && w->tokens && w->mask && w->order && w->pick && w->row && w->passes)
        return w;
    gen_whole_free(w);
    return NULL;
}

void gen_whole_free(gen_whole *w)
{
    if (!w)
        return;
    by_passes_free(w->passes);
    int32_t *memory[] = {w->text, w->tokens, w->mask, w->order, w->pick, w->row};
    for (int i = 0; i < BY_COUNT(memory); i++)
        base_free(memory[i]);
    base_free(w);
}

size_t gen_whole_bytes(const gen_whole *w)
{
    return w ? by_passes_bytes(w->passes) : 0;
}

/* Copies the texts of other rows. */
static void reorder(by_generator *g)
{
    gen_whole *w = g->whole;
    const size_t row = sizeof *w->text * (size_t)w->room;
    memcpy(w->tokens, w->text, row * (size_t)g->batch);
    for (int b = 0; b < g->batch; b++) {
        memcpy(w->text + (size_t)b * (size_t)w->room, w->tokens + (size_t)g->rows[b].from * (size_t)w->room,
               row);
        g->rows[b].from = b;
    }
}

/* Writes sequence b to row i of a pass of T tokens: padding, text, mask. */
static void fill_row(by_generator *g, int i, int b, int length)
{
    gen_whole *w = g->whole;
    const int count = g->rows[b].past, start = length - 1 - count;
    const size_t at = (size_t)i * (size_t)length;
    for (int t = 0; t < length; t++) {
        const bool text = t >= start && t < length - 1;
        w->tokens[at + (size_t)t] = text ? w->text[(size_t)b * (size_t)w->room + (size_t)(t - start)] : 0;
        w->mask[at + (size_t)t] = t >= start;
        w->order[at + (size_t)t] = t == length - 1;
    }
    w->pick[i] = (i + 1) * length - 1;
    w->row[i] = b;
}

/* The k highest logits of a row, the first of equals first. */
static void keep_top(by_generator *g, int b)
{
    gen_output *o = &g->out;
    const float *x = o->logits + (size_t)b * (size_t)g->vocab;
    float *best = o->best + (size_t)b * (size_t)o->top, most = x[0];
    int32_t *ids = o->ids + (size_t)b * (size_t)o->top;
    int found = 0;
    double sum = 0;
    for (int v = 0; v < g->vocab; v++) {
        int at = found < o->top ? found++ : o->top;
        for (; at > 0 && best[at - 1] < x[v]; at--)
            if (at < o->top) {
                best[at] = best[at - 1];
                ids[at] = ids[at - 1];
            }
        if (at < o->top) {
            best[at] = x[v];
            ids[at] = v;
        }
        most = fmaxf(most, x[v]);
    }
    for (int v = 0; v < g->vocab; v++)
        sum += exp((double)x[v] - most);
    g->rows[b].top = (by_top_logits){best, ids, o->top, (float)(most + log(sum))};
}

static void keep_row(by_generator *g, int b)
{
    g->rows[b].known = true;
    g->rows[b].where = NULL;
    if (g->out.top)
        keep_top(g, b);
}

/* Reports the states of the tokens fed to row b. */
static by_status tell_watch(by_generator *g, by_pass *p, int b, const int32_t *tokens, int count)
{
    by_tensor *features = by_io_output(by_pass_io(p), "features"); /* (1, T, C) */
    const int width = (int)by_dim(features, -1), before = g->rows[b].past - count;
    float *states = base_alloc_zero((size_t)by_elements(features), sizeof *states);
    by_status s = states ? by_pass_read(p, features, states) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = g->watch.fed(g->watch.user, b, tokens, count, states + (ptrdiff_t)before * width, width);
    base_free(states);
    return s;
}

/* A pass over the text of one row. The last `count` tokens are new. */
static by_status run_causal(by_generator *g, int b, const int32_t *tokens, int count)
{
    const gen_whole *w = g->whole;
    const int32_t last = g->rows[b].past - 1;
    by_batch batch = by_batch_of(1, g->rows[b].past, w->text + (size_t)b * (size_t)w->room);
    by_batch_put_ids(&batch, "pick", 1, &last);
    by_pass *p = by_passes_get(w->passes, &batch);
    if (!p)
        return base_error_status();
    BY_TRY(gen_need_logits(g));
    BY_TRY(by_pass_run(p, &batch));
    BY_TRY(
        by_pass_read(p, by_io_output(by_pass_io(p), "logits"), g->out.logits + (size_t)b * (size_t)g->vocab));
    keep_row(g, b);
    return g->watch.fed ? tell_watch(g, p, b, tokens, count) : BY_OK;
}

static by_status run(by_generator *g, int rows, int length)
{
    gen_whole *w = g->whole;
    by_batch batch = by_batch_of(rows, length, w->tokens);
    by_batch_put_tokens(&batch, "mask", w->mask);
    by_batch_put_tokens(&batch, "order", w->order);
    by_batch_put_ids(&batch, "pick", rows, w->pick);
    by_pass *p = by_passes_get(w->passes, &batch);
    if (!p)
        return base_error_status();
    BY_TRY(gen_need_logits(g));
    BY_TRY(by_pass_run(p, &batch));
    BY_TRY(by_pass_read(p, by_io_output(by_pass_io(p), "logits"), g->out.fresh));
    for (int i = 0; i < rows; i++) {
        const int b = w->row[i];
        const size_t vocab = (size_t)g->vocab;
        memcpy(g->out.logits + (size_t)b * vocab, g->out.fresh + (size_t)i * vocab, sizeof(float) * vocab);
        keep_row(g, b);
    }
    return BY_OK;
}

static by_status feed(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    gen_whole *w = g->whole;
    int rows = 0, longest = 0;
    reorder(g);
    for (int b = 0; b < g->batch; b++) {
        gen_row *r = &g->rows[b];
        if (counts[b] == 0)
            continue;
        memcpy(w->text + (size_t)b * (size_t)w->room + r->past, tokens[b],
               sizeof **tokens * (size_t)counts[b]);
        r->past += counts[b];
        longest = BY_MAX(longest, r->past);
        if (!by_model_rereads(g->model))
            BY_TRY(run_causal(g, b, tokens[b], counts[b]));
    }
    if (!by_model_rereads(g->model))
        return BY_OK;
    const int length = (longest + STEP) / STEP * STEP; /* one more for the mask */
    for (int b = 0; b < g->batch; b++)
        if (counts[b] > 0)
            fill_row(g, rows++, b, length);
    return rows ? run(g, rows, length) : BY_OK;
}

by_status gen_feed_whole(by_generator *g, const int32_t *const *tokens, const int *counts)
{
    by_adapter *now = by_model_adapter(g->model);
    by_model_use(g->model, g->adapter); /* its own adapter, whichever the model uses now */
    by_status s = feed(g, tokens, counts);
    by_model_use(g->model, now);
    return s;
}

/* The most likely token of every active row. */
static void take_best(const by_generator *g, const bool *active, int32_t *out)
{
    for (int b = 0; b < g->batch; b++) {
        const float *x = g->out.logits + (size_t)b * (size_t)g->vocab;
        int best = 0;
        for (int v = 1; active[b] && v < g->vocab; v++)
            best = x[v] > x[best] ? v : best;
        if (active[b])
            out[b] = best;
    }
}

by_status gen_greedy_whole(by_generator *g, const int32_t *tokens, const bool *active, int steps,
                           int32_t *out)
{
    const int32_t **next = base_alloc_zero((size_t)g->batch, sizeof *next);
    by_status status = next ? BY_OK : BY_ERR_MEMORY;
    for (int s = 0; s < steps && status == BY_OK; s++) {
        const int32_t *last = s ? out + (size_t)(s - 1) * (size_t)g->batch : tokens;
        for (int b = 0; b < g->batch; b++) {
            g->in.pick[b] = active[b];
            next[b] = last + b;
        }
        status = gen_feed_whole(g, next, g->in.pick);
        if (status == BY_OK)
            take_best(g, active, out + (size_t)s * (size_t)g->batch);
    }
    base_free(next);
    return status;
}
