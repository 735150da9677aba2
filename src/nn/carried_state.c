/* carried_state.c - see carried_state.h. */
#include "nn/carried_state.h"

#include "base/base.h"

static by_tensor *held(by_graph *g, const nn_carry *c)
{
    return nn_stream_state(g, c->stream, c->name, c->type, 2, (int64_t[]){c->batch, c->width});
}

/* (B, 1) i32: 1 once a piece of the text has been read. Streams begin with zeros. */
static by_tensor *begun(by_graph *g, const nn_carry *c)
{
    char name[96];
    base_format(name, sizeof name, "%s.begun", c->name);
    return nn_stream_state(g, c->stream, name, BY_I32, 2, (int64_t[]){c->batch, 1});
}

by_tensor *nn_carry_read(by_graph *g, const nn_carry *c)
{
    if (!c->stream)
        return c->initial;
    by_tensor *state = held(g, c);
    return c->initial ? by_where(g, begun(g, c), state, c->initial) : state;
}

void nn_carry_write(by_graph *g, const nn_carry *c, by_tensor *state)
{
    if (!c->stream)
        return;
    by_store(g, state, held(g, c));
    if (c->initial)
        by_store(g, by_fill(g, BY_I32, 2, (int64_t[]){c->batch, 1}, 1), begun(g, c));
}
