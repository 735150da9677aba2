/* reach.h - which keys a position sees under a by_pattern, for the backends and for counting. Every pattern
 * is a union of three sets: near keys, measured in units, distant keys selected by their index in a cycle,
 * and the first keys. Positions of queries may be negative (more queries than keys); divisions round down. */
#ifndef BY_GRAPH_REACH_H
#define BY_GRAPH_REACH_H

#include "banyan/graph.h"

#ifdef __CUDACC__
#define GR_REACH static __host__ __device__ __forceinline__
#else
#define GR_REACH static inline
#endif

/* Positions, lengths and distances are below this limit, so that sums of two fit an int. */
#define GR_REACH_LIMIT (1 << 30)

typedef struct gr_reach {
    bool on;                 /* false: every key is seen, other members are ignored */
    int unit, before, after; /* near: -before <= (s + shift) / unit - p / unit <= after */
    int cycle;               /* far: none when 0; */
    int tail;                /* 0: s % cycle == p % cycle, otherwise s % cycle >= cycle - tail */
    int sinks;               /* s < sinks */
    bool split;              /* for all heads together, each of which sees one of the two sets */
    int shift;
} gr_reach;

/* The unit and the cycle index of a position. */
typedef struct gr_spot {
    int unit, turn;
} gr_spot;

/* Positions [from, to). */
typedef struct gr_stretch {
    int from, to;
} gr_stretch;

GR_REACH gr_reach gr_reach_of(const by_pattern *x)
{
    gr_reach r = {x->kind != BY_PATTERN_FULL, 1, x->before, x->after, 0, 0, 0, x->part == 3, 0};
    if (x->kind == BY_PATTERN_BLOCKS || x->kind == BY_PATTERN_FIXED)
        r.unit = x->length;
    if (x->kind == BY_PATTERN_STRIDED)
        r.before = r.after = x->length - 1;
    if (x->kind == BY_PATTERN_FIXED) {
        r.before = r.after = 0;
        r.tail = x->after;
    }
    if ((x->kind == BY_PATTERN_STRIDED || x->kind == BY_PATTERN_FIXED) && x->part != 1)
        r.cycle = x->length;
    if (x->kind == BY_PATTERN_SINKS)
        r.sinks = x->length;
    if (x->kind == BY_PATTERN_MEMORY) {
        r.unit = x->length;
        r.before = 0;
        r.after = GR_REACH_LIMIT - 1;
        r.shift = x->before;
    }
    if (x->part == 2)
        r.before = r.after = -GR_REACH_LIMIT; /* nothing is near */
    return r;
}

/* The reach of head h of `heads`. */
GR_REACH gr_reach gr_reach_of_head(gr_reach r, int h, int heads)
{
    if (r.split && h < heads / 2)
        r.cycle = 0;
    else if (r.split)
        r.before = r.after = -GR_REACH_LIMIT;
    r.split = false;
    return r;
}

GR_REACH int gr_floor_div(int a, int b)
{
    return a >= 0 ? a / b : -((b - 1 - a) / b);
}

GR_REACH gr_spot gr_spot_of(const gr_reach *r, int at)
{
    gr_spot x = {at, 0};
    if (r->unit > 1)
        x.unit = gr_floor_div(at, r->unit);
    if (r->cycle)
        x.turn = at - gr_floor_div(at, r->cycle) * r->cycle;
    return x;
}

/* The same for a key. */
GR_REACH gr_spot gr_key_spot_of(const gr_reach *r, int s)
{
    return gr_spot_of(r, s + r->shift); /* with a shift there is no cycle */
}

/* Whether the query at p may see the key at s. */
GR_REACH bool gr_reaches(const gr_reach *r, gr_spot p, gr_spot s)
{
    const int d = s.unit - p.unit;
    return (d >= -r->before && d <= r->after) || s.unit < r->sinks ||
           (r->cycle && (r->tail ? s.turn >= r->cycle - r->tail : s.turn == p.turn));
}

/* Whether every query sees its own position. */
GR_REACH bool gr_reaches_itself(const gr_reach *r)
{
    return !r->on || (r->before >= 0 && r->after >= 0 && !(r->split && r->tail)) || (r->cycle && !r->tail);
}

/* The positions of units [first, last], which begin `shift` earlier, clipped to [low, high). */
GR_REACH gr_stretch gr_units(const gr_reach *r, int first, int last, int shift, int low, int high)
{
    const int64_t from = (int64_t)first * r->unit - shift, to = ((int64_t)last + 1) * r->unit - shift;
    gr_stretch x = {from < low    ? low
                    : from > high ? high
                                  : (int)from,
                    to < low    ? low
                    : to > high ? high
                                : (int)to};
    return x;
}

/* A range of keys below `keys` that contains all keys seen by positions p0 ... p1. */
GR_REACH gr_stretch gr_reach_keys(const gr_reach *r, int p0, int p1, int keys)
{
    gr_stretch all = {0, keys};
    if (!r->on || r->cycle)
        return all;
    gr_stretch x = gr_units(r, gr_floor_div(p0, r->unit) - r->before, gr_floor_div(p1, r->unit) + r->after,
                            r->shift, 0, keys);
    if (r->sinks) {
        const int first = r->sinks < keys ? r->sinks : keys;
        x.to = x.from < x.to && x.to > first ? x.to : first;
        x.from = 0;
    }
    return x;
}

/* A range of positions in [low, high) that contains all positions that see any of keys s0 ... s1. */
GR_REACH gr_stretch gr_reach_queries(const gr_reach *r, int s0, int s1, int low, int high)
{
    gr_stretch all = {low, high};
    if (!r->on || r->cycle || s0 < r->sinks)
        return all;
    return gr_units(r, (s0 + r->shift) / r->unit - r->after, (s1 + r->shift) / r->unit + r->before, 0, low,
                    high);
}

/* Whether positions p0 ... p1 may see any of the keys s0 ... s1. */
GR_REACH bool gr_reach_meets(const gr_reach *r, int p0, int p1, int s0, int s1)
{
    const int least = (s0 + r->shift) / r->unit - gr_floor_div(p1, r->unit);
    const int most = (s1 + r->shift) / r->unit - gr_floor_div(p0, r->unit);
    if ((most >= -r->before && least <= r->after) || s0 < r->sinks)
        return true;
    if (!r->cycle)
        return false;
    return r->tail ? s0 % r->cycle + s1 - s0 >= r->cycle - r->tail
                   : gr_floor_div(p1 - s0, r->cycle) * r->cycle >= p0 - s1;
}

/* Of the tiles of m keys at s0, s0 + m, ..., one before which positions from p0 on see no key. */
GR_REACH int gr_reach_skip(const gr_reach *r, int p0, int s0, int m)
{
    const int gap = p0 - r->before - s0;
    return r->sinks && s0 >= r->sinks && gap >= m ? s0 + gap / m * m : s0;
}

/* Whether each of positions p0 ... p1 sees each of the keys s0 ... s1. */
GR_REACH bool gr_reach_covers(const gr_reach *r, int p0, int p1, int s0, int s1)
{
    return !r->on || s1 < r->sinks ||
           (!r->split && (s0 + r->shift) / r->unit - gr_floor_div(p1, r->unit) >= -r->before &&
            (s1 + r->shift) / r->unit - gr_floor_div(p0, r->unit) <= r->after);
}

/* Number of keys below `end` in the distant set of p, including those that are also near. */
GR_REACH int64_t gr_reach_far(const gr_reach *r, int p, int end)
{
    if (!r->cycle || end <= 0)
        return 0;
    const int whole = end / r->cycle, rest = end % r->cycle;
    if (!r->tail)
        return whole + (gr_spot_of(r, p).turn < rest);
    const int more = rest - (r->cycle - r->tail);
    return (int64_t)whole * r->tail + (more > 0 ? more : 0);
}

/* Number of keys below `keys` that the query at p sees. */
GR_REACH int64_t gr_reach_count(const gr_reach *r, int p, int keys)
{
    gr_reach close = *r;
    close.cycle = close.sinks = 0;
    const gr_stretch near = gr_reach_keys(&close, p, p, keys);
    if (r->sinks) {
        const int first = r->sinks < keys ? r->sinks : keys, from = near.from > first ? near.from : first;
        return first + (near.to > from ? near.to - from : 0);
    }
    if (near.from >= near.to)
        return gr_reach_far(r, p, keys);
    return near.to - near.from + gr_reach_far(r, p, keys) - gr_reach_far(r, p, near.to) +
           gr_reach_far(r, p, near.from);
}

#endif
