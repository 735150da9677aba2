/* xlnet_sight.c - masks, distances and segments of XLNet. See xlnet.h. */
#include "base/base.h"
#include "models/xlnet.h"
#include "nn/stream_state.h"

static by_tensor *some(by_graph *g, by_tensor *x, int axis, int64_t first, int64_t count)
{
    return count < by_dim(x, axis) ? by_slice(g, x, axis, first, count) : x;
}

/* A range of x (B, N) as f32, as a column or a row of a pair matrix. */
static by_tensor *as_queries(by_graph *g, by_tensor *x, int64_t first, int64_t count)
{
    x = by_cast(g, some(g, x, 1, first, count), BY_F32);
    return by_reshape(g, x, 4, (int64_t[]){by_dim(x, 0), 1, count, 1});
}

static by_tensor *as_keys(by_graph *g, by_tensor *x, int64_t first, int64_t count)
{
    x = by_cast(g, some(g, x, 1, first, count), BY_F32);
    return by_reshape(g, x, 4, (int64_t[]){by_dim(x, 0), 1, 1, count});
}

/* 1 where x + more, an integer, is positive. */
static by_tensor *positive(by_graph *g, by_tensor *x, double more)
{
    by_tensor *one = by_fill(g, BY_F32, 1, (int64_t[]){1}, more);
    return by_clamp(g, by_add(g, x, one), 0, 1);
}

/* x (B, T) of the segment, preceded by `value` for the positions of the memory: (B, S). NULL gives NULL. */
static by_tensor *after_memory(by_graph *g, by_tensor *x, int64_t memory, double value)
{
    if (!x || memory == 0)
        return x;
    by_tensor *first = by_fill(g, BY_I32, 2, (int64_t[]){by_dim(x, 0), memory}, value);
    return by_concat(g, (by_tensor *[]){first, x}, 2, 1);
}

/* (1, 1, n, m): 1 where query and key are the same token. */
static by_tensor *diagonal(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at)
{
    const int64_t q[2] = {1, at->queries}, k[2] = {1, at->keys};
    by_tensor *p = by_range_from(g, 2, q, (int)(s->memory + at->query));
    by_tensor *d = by_sub(g, as_queries(g, p, 0, at->queries),
                          as_keys(g, by_range_from(g, 2, k, (int)at->key), 0, at->keys));
    return positive(g, by_scale(g, by_mul(g, d, d), -1), 1);
}

/* The same from the reference's mask, in which 1 masks a key of the segment. */
static by_tensor *unhidden(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at)
{
    by_tensor *rows = some(g, s->hidden, 1, at->query, at->queries); /* (B, n, T) */
    const int64_t b = by_dim(rows, 0), before[4] = {b, 1, at->queries, s->memory};
    by_tensor *ones = by_fill(g, BY_F32, 1, (int64_t[]){1}, 1);
    by_tensor *pairs = by_reshape(g, rows, 4, (int64_t[]){b, 1, at->queries, s->length});
    pairs = by_clamp(g, by_sub(g, ones, pairs), 0, 1);
    if (s->memory > 0)
        pairs = by_concat(g, (by_tensor *[]){by_fill(g, BY_F32, 4, before, 1), pairs}, 2, 3);
    return some(g, pairs, 3, at->key, at->keys);
}

/* What h or g sees of a range of keys by the prediction order: (B, 1, n, m), f32. */
static by_tensor *seen_in_order(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at, bool content)
{
    if (s->hidden)
        return unhidden(g, s, at);
    by_tensor *steps =
        by_sub(g, as_queries(g, s->order, at->query, at->queries), as_keys(g, s->ranks, at->key, at->keys));
    return positive(g, steps, content ? 1 : 0);
}

bool arch_xlnet_sees_pairs(const arch_xlnet_sight *s)
{
    return s->order || s->hidden || s->padded;
}

/* (B or 1, 1, n, m) i32. In the content stream a token sees itself, even if it is padding. */
by_tensor *arch_xlnet_seen(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at, bool content)
{
    by_tensor *y = s->held ? as_keys(g, s->held, at->key, at->keys) : NULL; /* (B, 1, 1, m) */
    if (s->order || s->hidden) {
        by_tensor *ordered = seen_in_order(g, s, at, content);
        y = y ? by_mul(g, y, ordered) : ordered;
    }
    if (content)
        y = by_maximum(g, y, diagonal(g, s, at));
    return by_cast(g, y, BY_I32);
}

/* (B, 1, n, m) i32. */
by_tensor *arch_xlnet_differs(by_graph *g, const arch_xlnet_sight *s, const nn_chunk *at)
{
    by_tensor *d = by_sub(g, as_queries(g, s->segments, at->query, at->queries),
                          as_keys(g, s->origins, at->key, at->keys));
    return by_cast(g, by_mul(g, d, d), BY_I32);
}

/* Sines of the distances, and of the negated distances for reversed texts. */
static void look_far(by_graph *g, const arch_xlnet_config *c, const by_model_io *io, arch_xlnet_sight *s,
                     int64_t batch, int64_t length, by_dtype type)
{
    const int64_t far = c->clamp > 0 ? c->clamp : INT32_MAX, half = batch / 2;
    s->zero = (int)BY_MIN(s->memory + length, far);
    const int64_t rows = s->zero + 1 + (c->causal ? 0 : BY_MIN(length - 1, far));
    s->chunk = nn_relative_chunk(batch * c->heads, length, BY_MIN(rows, s->memory + length));
    by_tensor *ahead = nn_distances(g, rows, s->zero, c->width, type);
    s->turns = by_io_input(io, "reversed");
    if (!s->turns && c->two_ways && half > 0) {
        by_tensor *halves[2] = {by_fill(g, BY_I32, 1, (int64_t[]){batch - half}, 0),
                                by_fill(g, BY_I32, 1, &half, 1)};
        s->turns = by_concat(g, halves, 2, 0);
    }
    if (s->turns) {
        const int64_t sines = c->width - c->width / 2;
        by_tensor *back[2] = {by_scale(g, by_slice(g, ahead, 1, 0, sines), -1),
                              by_slice(g, ahead, 1, sines, c->width / 2)};
        ahead = by_concat(g, (by_tensor *[]){ahead, by_concat(g, back, 2, 1)}, 2, 0); /* (2 L, C) */
    }
    s->distances = by_dropout(g, ahead, c->drop);
}

/* All pairs at once. */
static void look_whole(by_graph *g, arch_xlnet_sight *s)
{
    const nn_chunk all = {0, s->length, 0, s->memory + s->length};
    if (arch_xlnet_sees_pairs(s)) {
        s->query = arch_xlnet_seen(g, s, &all, false);
        s->content = arch_xlnet_seen(g, s, &all, true);
    }
    if (s->segments)
        s->differs = arch_xlnet_differs(g, s, &all);
}

void arch_xlnet_look(by_graph *g, const arch_xlnet_config *c, const by_model_io *io, by_dtype type,
                     arch_xlnet_sight *s)
{
    by_tensor *tokens = by_io_input(io, "tokens"), *mask = by_io_input(io, "mask");
    const int64_t batch = by_dim(tokens, 0);
    *s = (arch_xlnet_sight){
        .memory = io->stream ? c->memory : 0, .length = by_dim(tokens, 1), .padded = mask != NULL};
    s->held = nn_memory_held_first(g, io->stream, tokens, mask, c->memory, c->reuse);
    if (c->causal) {
        s->mask = BY_MASK_CAUSAL;
        if (c->same_length)
            s->pattern = (by_pattern){.kind = BY_PATTERN_WINDOW, .before = (int)s->memory};
    }
    s->order = by_io_input(io, "order");
    s->ranks = after_memory(g, s->order, s->memory, -(1 << 30));
    s->hidden = s->order ? NULL : by_io_input(io, "perm_mask");
    s->segments = by_io_input(io, "segments");
    s->origins = after_memory(g, s->segments, s->memory, 0); /* it counts as the first segment */
    look_far(g, c, io, s, batch, s->length, type);
    if (s->chunk >= s->length)
        look_whole(g, s);
}
