/* model_io.c - the named inputs and outputs of a model that is built into a graph (banyan/model_io.h). */
#include <string.h>

#include "graph/graph.h"
#include "models/models.h"

static by_port *find(const by_ports *p, const char *name, int i)
{
    by_port *at = p->first;
    while (at && (strcmp(at->name, name) != 0 || i-- > 0))
        at = at->next;
    return at;
}

static by_port *append(by_ports *p, by_graph *g, const char *name, by_tensor *t)
{
    by_port *at = base_arena_alloc(g->arena, sizeof *at);
    if (!at) {
        gr_poison(g);
        return NULL;
    }
    *at = (by_port){.name = name, .tensor = t};
    *(p->last ? &p->last->next : &p->first) = at;
    p->last = at;
    return at;
}

void by_io_feed(by_model_io *io, const char *name, by_tensor *t)
{
    if (!t)
        return;
    by_port *at = find(&io->inputs, name, 0);
    if (at)
        at->tensor = t;
    else
        append(&io->inputs, t->graph, name, t);
}

by_tensor *by_io_input(const by_model_io *io, const char *name)
{
    const by_port *at = find(&io->inputs, name, 0);
    return at ? at->tensor : NULL;
}

by_tensor *by_io_return(by_model_io *io, const char *name, by_tensor *t)
{
    if (t)
        append(&io->outputs, t->graph, name, t);
    return t;
}

by_tensor *by_io_output_at(const by_model_io *io, const char *name, int i)
{
    const by_port *at = find(&io->outputs, name, i);
    return at ? at->tensor : NULL;
}

by_tensor *by_io_output(const by_model_io *io, const char *name)
{
    return by_io_output_at(io, name, 0);
}

int by_io_output_count(const by_model_io *io, const char *name)
{
    int count = 0;
    for (const by_port *at = io->outputs.first; at; at = at->next)
        count += strcmp(at->name, name) == 0;
    return count;
}

int by_pictures_positions(const by_pictures *p, int height, int width)
{
    if (p->patch < 1 || height < p->patch || width < p->patch || height % p->patch || width % p->patch)
        return 0;
    return p->tokens + (height / p->patch) * (width / p->patch);
}

/* ---- hidden states and attention weights, for build functions ---------------------------------- */

static void keep(by_graph *g, by_model_io *io, const char *name, by_tensor *h)
{
    if (io->want_hidden)
        by_io_return(io, name, by_output(g, NULL, h));
}

static by_tensor **slot(by_model_io *io, const char *name)
{
    if (!io->want_attention || io->cache || !io->inputs.first)
        return NULL;
    by_port *at = append(&io->outputs, io->inputs.first->tensor->graph, name, NULL);
    return at ? &at->tensor : NULL;
}

void arch_keep_hidden(by_graph *g, by_model_io *io, by_tensor *h)
{
    keep(g, io, "hidden", h);
}

void arch_keep_source_hidden(by_graph *g, by_model_io *io, by_tensor *h)
{
    keep(g, io, "source_hidden", h);
}

by_tensor **arch_weights_slot(by_model_io *io)
{
    return slot(io, "attention");
}

by_tensor **arch_source_weights_slot(by_model_io *io)
{
    return slot(io, "source_attention");
}

by_tensor **arch_cross_weights_slot(by_model_io *io)
{
    return slot(io, "cross_attention");
}

/* ---- canvases -------------------------------------------------------------------------------- */

int by_canvas_low(const by_canvas *c)
{
    return c->upscale ? c->height / c->upscale * (c->width / c->upscale) * c->channels : 0;
}

/* The mean of the square of pixel (row, column), of one channel. */
static int32_t mean_of(const by_canvas *c, const int32_t *tokens, int row, int column, int channel)
{
    const int n = c->upscale;
    int64_t sum = 0;
    for (int y = row * n; y < (row + 1) * n; y++)
        for (int x = column * n; x < (column + 1) * n; x++)
            sum += tokens[((int64_t)y * c->width + x) * c->channels + channel];
    return (int32_t)((sum + n * n / 2) / (n * n));
}

void by_canvas_reduce(const by_canvas *c, const int32_t *tokens, int32_t *low)
{
    for (int y = 0; c->upscale && y < c->height / c->upscale; y++)
        for (int x = 0; x < c->width / c->upscale; x++)
            for (int i = 0; i < c->channels; i++)
                *low++ = mean_of(c, tokens, y, x, i);
}
