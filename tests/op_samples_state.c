/* op_samples_state.c - samples of optimisers, and of ops that advance generation. */
#include "op_sample_build.h"

/* ---- the flat buffers ------------------------------------------------------------------------ */

bool op_sample_norm2(by_op_sample *s, int which)
{
    static const int64_t counts[] = {1, 10, 4099, 70001};
    if (which >= BY_COUNT(counts))
        return false;
    shown_of(s, BARE_NODE(NORM2, operand(s, SHAPE(counts[which]))), 0);
    return true;
}

/* A matrix, a vector, one that is frozen and a long one, with gaps between them. */
static const gr_segment segments[] = {
    {.offset = 0, .count = 35, .rows = 5, .cols = 7, .lr_scale = 1, .decay = true},
    {.offset = 48, .count = 19, .rows = 1, .cols = 19, .lr_scale = 0.5f},
    {.offset = 80, .count = 16, .rows = 4, .cols = 4, .lr_scale = 0, .decay = true},
    {.offset = 96, .count = 33 * 700, .rows = 33, .cols = 700, .lr_scale = 1, .decay = true},
};
enum { FLAT = 96 + 33 * 700 };

enum { STEP_CLIPPED, STEP_PLAIN, STEP_FIRST, STEPS };
enum { MASTERS_NONE, MASTERS_F32, MASTERS_STOCHASTIC, MASTERS };

/* Steps are as large as the values, so that a wrong one is seen. */
static by_tensor *hyper(by_op_sample *s, int kind)
{
    by_tensor *t = input(s, BY_F32, SHAPE(GR_HYPER_COUNT));
    double *v = values_of(s, t);
    if (!v)
        return t;
    const double step = kind == STEP_FIRST ? 1 : 10;
    memset(v, 0, GR_HYPER_COUNT * sizeof *v);
    v[GR_HYPER_LR] = 0.5;
    v[GR_HYPER_MAX_NORM] = kind == STEP_CLIPPED ? 1.5 : 0;
    v[GR_HYPER_CORR1] = 1 - pow(0.9, step);
    v[GR_HYPER_CORR2] = 1 - pow(0.99, step);
    v[GR_HYPER_STEP] = step;
    v[GR_HYPER_MOMENTUM] = kind == STEP_FIRST ? 0 : 0.75;
    return t;
}

/* Each kind of masters with each kind of step. */
static bool optimiser(by_op_sample *s, gr_op op, int which)
{
    static const char *const masters[] = {"no masters ", "masters ", "stochastic rounding "};
    static const char *const steps[] = {"clipped ", "plain ", "first "};
    const int kind = which / STEPS, step = which % STEPS;
    if (kind >= MASTERS)
        return false;
    tag(s, "%s%s", masters[kind], steps[step]);
    const gr_optim_attr a = {.segments = segments,
                             .n_segments = BY_COUNT(segments),
                             .beta1 = 0.9f,
                             .beta2 = 0.99f,
                             .eps = 1e-8f,
                             .weight_decay = which ? 0.25f : 0,
                             .gr_stochastic = kind == MASTERS_STOCHASTIC};
    const by_dtype acc = gr_acc_type(s->type);
    by_tensor *value = changes(s, input(s, s->type, SHAPE(FLAT)));
    by_tensor *grad = input(s, acc, SHAPE(FLAT));
    by_tensor *m = changes(s, positive(s, input(s, acc, SHAPE(FLAT))));
    by_tensor *v = changes(s, positive(s, input(s, acc, SHAPE(FLAT))));
    by_tensor *master = kind == MASTERS_F32 ? changes(s, input(s, acc, SHAPE(FLAT))) : NULL;
    by_tensor *norm = input(s, acc, 0, NULL), *h = hyper(s, step);
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    values_of(s, norm)[0] = 3; /* twice what is allowed */
    if (master)
        memcpy(values_of(s, master), values_of(s, value), FLAT * sizeof(double));
    by_tensor *in[] = {value, grad, m, v, master, norm, h}, *in_sgd[] = {value, grad, m, master, norm, h};
    gr_node_make(s->graph, op, op == GR_OP_SGD ? in_sgd : in, op == GR_OP_SGD ? 6 : 7, &a, sizeof a);
    shown(s, value);
    shown(s, m);
    shown(s, v);
    if (master)
        shown(s, master);
    return true;
}

bool op_sample_adamw(by_op_sample *s, int which)
{
    return optimiser(s, GR_OP_ADAMW, which);
}

bool op_sample_sgd(by_op_sample *s, int which)
{
    return optimiser(s, GR_OP_SGD, which);
}

bool op_sample_adafactor(by_op_sample *s, int which)
{
    return optimiser(s, GR_OP_ADAFACTOR, which);
}

/* A step in the middle, one whose positions are at their end, and one whose log is full. */
bool op_sample_reorder(by_op_sample *s, int which)
{
    /* nothing moves; some do; all do; one by one; large groups; rows that are named */
    static const double rows[][6] = {{0, 1, 2, 3, 4, 5}, {1, 0, 2, 2, 5, 4}, {1, 0, 3, 2, 5, 4},
                                     {1, 1, 2, 3, 4, 4}, {0, 1, 2, 4, 4, 4}, {1, 0, 3, 3, 4, 5}};
    static const struct {
        int beams;
        int64_t room, width;
        bool named;
    } cases[] = {{2, 6, 8, false},  {2, 9, 5, false},   {2, 300, 64, false},
                 {2, 7, 12, false}, {3, 40, 16, false}, {2, 20, 8, true}};
    if (which >= BY_COUNT(cases))
        return false;
    const int64_t room = cases[which].room, c = cases[which].width;
    const int64_t all = cases[which].named ? 9 : 6;
    tag(s, "groups of %d ", cases[which].beams);
    tag_if(s, cases[which].named, "pages");
    by_tensor *keys = changes(s, input(s, s->type, SHAPE(all, room, c)));
    by_tensor *values = changes(s, input(s, s->type, SHAPE(all, room, c)));
    by_tensor *from = indices(s, 6, SHAPE(6)), *past = indices(s, room + 1, SHAPE(6));
    by_tensor *pages = cases[which].named ? indices(s, all, SHAPE(6, 1)) : NULL;
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    for (int b = 0; b < 6; b++)
        values_of(s, from)[b] = rows[which][b];
    values_of(s, past)[0] = (double)room;
    values_of(s, past)[3] = 0;
    for (int b = 0; pages && b < 6; b++)
        values_of(s, pages)[b] = (double)((b * 4 + 7) % 9);
    by_reorder(s->graph, keys, values, from, past, pages, cases[which].beams);
    shown(s, keys);
    shown(s, values);
    return true;
}

bool op_sample_advance(by_op_sample *s, int which)
{
    if (which >= 3)
        return false;
    const gr_advance_attr a = {.last = which == 1 ? 3 : 100};
    by_tensor *next = indices(s, 50, SHAPE(3)), *tokens = changes(s, indices(s, 50, SHAPE(3, 1)));
    by_tensor *positions = changes(s, indices(s, 4, SHAPE(3, 1))),
              *past = changes(s, indices(s, 9, SHAPE(3)));
    by_tensor *log = changes(s, indices(s, 50, SHAPE(1 + 4 * 3)));
    if (by_graph_status(s->graph) != BY_OK)
        return true;
    values_of(s, log)[0] = which == 2 ? 4 : 2;
    NODE(ADVANCE, &a, next, tokens, positions, past, log);
    shown(s, tokens);
    shown(s, positions);
    shown(s, past);
    shown(s, log);
    return true;
}
