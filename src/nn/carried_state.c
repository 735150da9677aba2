/* carried_state.c - see carried_state.h. */
#include "nn/carried_state.h"

#include "base/base.h"
#include "nn/cache.h"

/* ---- in a generator: states (sequences, C) ------------------------------------------------------ */

static by_tensor *all_states(by_graph *g, const nn_carry *c)
{
    const int64_t rows = c->cache->store->rows;
    return nn_cache_state(g, c->cache, c->name, c->type, 2, (int64_t[]){rows, c->width}, rows * c->width);
}

/* Each row continues the state of a sequence, unless it is at the start of a text. */
static by_tensor *read_rows(by_graph *g, const nn_carry *c)
{
    by_tensor *state = by_gather(g, all_states(g, c), c->cache->reads); /* (B, C) */
    by_tensor *past = by_reshape(g, c->cache->past, 2, (int64_t[]){c->batch, 1});
    by_tensor *none = c->initial ? c->initial : by_fill(g, c->type, 2, (int64_t[]){1, 1}, 0);
    return by_where(g, past, state, none);
}

static void write_rows(by_graph *g, const nn_carry *c, by_tensor *state)
{
    by_tensor *all = all_states(g, c);
    if (c->cache->places) {
        by_tensor *both = by_concat(g, (by_tensor *[]){state, all}, 2, 0); /* (B + sequences, C) */
        state = by_gather(g, both, c->cache->places);
    }
    by_store(g, state, all);
}

by_tensor *nn_carry_mask(const by_cache *cache, by_tensor *mask)
{
    return cache ? cache->valid : mask;
}

/* ---- in a stream ------------------------------------------------------------------------------- */

static by_tensor *held(by_graph *g, const nn_carry *c)
{
    return nn_stream_state(g, c->stream, c->name, c->type, 2, (int64_t[]){c->batch, c->width});
}

/* (B, 1) i32: 1 once a segment of the text has been read. Streams start with zeros. */
static by_tensor *begun(by_graph *g, const nn_carry *c)
{
    char name[96];
    base_format(name, sizeof name, "%s.begun", c->name);
    return nn_stream_state(g, c->stream, name, BY_I32, 2, (int64_t[]){c->batch, 1});
}

by_tensor *nn_carry_read(by_graph *g, const nn_carry *c)
{
    if (c->cache)
        return read_rows(g, c);
    if (!c->stream)
        return c->initial;
    by_tensor *state = held(g, c);
    return c->initial ? by_where(g, begun(g, c), state, c->initial) : state;
}

void nn_carry_write(by_graph *g, const nn_carry *c, by_tensor *state)
{
    if (c->cache)
        write_rows(g, c, state);
    if (c->cache || !c->stream)
        return;
    by_store(g, state, held(g, c));
    if (c->initial)
        by_store(g, by_fill(g, BY_I32, 2, (int64_t[]){c->batch, 1}, 1), begun(g, c));
}
