/* beam_head.c - the question answering head of XLNet for SQuAD 2.0 (Yang et al. 2019), which searches a beam
 * of starts: the end of an answer depends on its start, and a third score predicts whether there is an
 * answer. See models.h. */
#include "base/base.h"
#include "models/models.h"

/* x (..., C) times columns `first` to `first` + C of the weights `name` (C, 2 C): the part of a projection of
 * two concatenated states that belongs to one of them. */
static by_tensor *half_of(by_graph *g, const char *name, by_tensor *x, bool second, float std)
{
    const int64_t c = by_dim(x, -1), shape[2] = {c, 2 * c};
    by_tensor *w = by_param(g, name, 2, shape, (by_init){BY_INIT_NORMAL, std});
    return by_linear(g, x, by_slice(g, w, 1, second ? c : 0, c), NULL, NULL);
}

/* tanh of a projection of the concatenation of a (..., C) and b (..., C); the axes before C broadcast. */
static by_tensor *both_of(by_graph *g, by_tensor *a, by_tensor *b, float std)
{
    const int64_t c = by_dim(a, -1);
    by_tensor *bias = by_param(g, "dense_0.bias", 1, &c, (by_init){BY_INIT_ZERO, 0});
    a = by_add(g, half_of(g, "dense_0.weight", a, false, std), bias);
    return by_activation(g, by_add(g, a, half_of(g, "dense_0.weight", b, true, std)), BY_TANH);
}

/* Masks the scores of tokens that cannot be part of an answer: mask is 1 there, broadcasts, and may be
 * NULL. */
static by_tensor *hide(by_graph *g, by_tensor *x, by_tensor *mask)
{
    const by_dtype type = by_type(x) == BY_F64 ? BY_F64 : BY_F32;
    x = by_cast(g, x, type);
    return mask ? by_where(g, by_cast(g, mask, BY_I32), by_fill(g, type, 1, (int64_t[]){1}, -1e30), x) : x;
}

static by_tensor *start_logits(by_graph *g, const by_model_io *io, float std) /* (B, T) */
{
    by_tensor *h = by_io_output(io, "features");
    by_tensor *x = nn_linear(g, "start_logits.dense", h, &(nn_linear_spec){.out = 1, .std = std});
    return hide(g, by_reshape(g, x, 2, (int64_t[]){by_dim(h, 0), by_dim(h, 1)}), by_io_input(io, "p_mask"));
}

/* h (B, 1, T, C) and the states of S starts (B, S, 1, C) -> (B, S, T). */
static by_tensor *end_logits(by_graph *g, const by_model_io *io, by_tensor *starts, const arch_beam_spec *s)
{
    by_tensor *h = by_io_output(io, "features"), *mask = by_io_input(io, "p_mask");
    const int64_t b = by_dim(h, 0), t = by_dim(h, 1), c = by_dim(h, 2), n = by_dim(starts, 1);
    by_scope_push(g, "end_logits");
    by_tensor *x = both_of(g, by_reshape(g, h, 4, (int64_t[]){b, 1, t, c}),
                           by_reshape(g, starts, 4, (int64_t[]){b, n, 1, c}), s->std);
    x = nn_layernorm(g, "LayerNorm", x, s->eps);
    x = nn_linear(g, "dense_1", x, &(nn_linear_spec){.out = 1, .std = s->std});
    by_scope_pop(g);
    return hide(g, by_reshape(g, x, 3, (int64_t[]){b, n, t}),
                mask ? by_reshape(g, mask, 3, (int64_t[]){b, 1, t}) : NULL);
}

/* The state of the start (B, C) and of the classification token -> (B): above 0, there is no answer. */
static by_tensor *class_logits(by_graph *g, const by_model_io *io, by_tensor *start, float std)
{
    by_tensor *h = by_io_output(io, "features"), *at = by_io_input(io, "cls_index");
    const int64_t b = by_dim(h, 0), c = by_dim(h, 2);
    by_tensor *whole =
        at ? by_take(g, h, by_reshape(g, at, 2, (int64_t[]){b, 1})) : by_slice(g, h, 1, by_dim(h, 1) - 1, 1);
    by_scope_push(g, "answer_class");
    by_tensor *x = both_of(g, start, by_reshape(g, whole, 2, (int64_t[]){b, c}), std);
    x = nn_linear(g, "dense_1", x, &(nn_linear_spec){.out = 1, .no_bias = true, .std = std});
    by_scope_pop(g);
    return by_reshape(g, hide(g, x, NULL), 1, &b);
}

/* The beam with the names and in the order of the reference, whose "log probs" are probabilities. */
static void keep_beam(by_graph *g, by_model_io *io, by_tensor *const *beam, int64_t pairs)
{
    static const char *const names[] = {"start_top_log_probs", "start_top_index", "end_top_log_probs",
                                        "end_top_index", "cls_logits"};
    for (int i = 0; i < BY_COUNT(names) && io->want_hidden; i++) {
        by_tensor *x = beam[i];
        if (by_rank(x) == 3) /* (B, S, E) -> (B, E * S) */
            x = by_reshape(g, by_permute_axes(g, x, (int[]){0, 2, 1}), 2, (int64_t[]){-1, pairs});
        by_io_return(io, names[i], by_output(g, NULL, x));
    }
}

/* For each start its probability, position and cls_logits, then the probabilities and positions of its ends:
 * (B, S, 3 + 2 E). */
static by_tensor *pack_beam(by_graph *g, by_tensor *const *beam)
{
    const int64_t b = by_dim(beam[0], 0), s = by_dim(beam[0], 1), shape[3] = {b, s, 1};
    const by_dtype type = by_type(beam[0]);
    by_tensor *zeros = by_fill(g, type, 3, shape, 0);
    by_tensor *whole = by_add(g, zeros, by_reshape(g, beam[4], 3, (int64_t[]){b, 1, 1}));
    return by_concat(g,
                     (by_tensor *[]){by_reshape(g, beam[0], 3, shape),
                                     by_reshape(g, by_cast(g, beam[1], type), 3, shape), whole, beam[2],
                                     by_cast(g, beam[3], type)},
                     5, 2);
}

void arch_beam_head(by_graph *g, by_model_io *io, const arch_beam_spec *s)
{
    by_tensor *h = by_io_output(io, "features"),
              *starts = by_io_return(io, "logits", start_logits(g, io, s->std));
    const int64_t b = by_dim(h, 0), t = by_dim(h, 1), c = by_dim(h, 2);
    const int64_t n = BY_MIN(s->starts, t), ends = BY_MIN(s->ends, t);
    by_tensor *p = by_softmax(g, starts), *beam[5];
    beam[0] = by_top_k(g, p, n, &beam[1]);
    by_tensor *found = end_logits(g, io, by_take(g, h, beam[1]), s);
    beam[2] = by_top_k(g, by_softmax(g, found), ends, &beam[3]); /* (B, S, E) */
    by_tensor *mean =
        by_matmul(g, by_cast(g, by_reshape(g, p, 3, (int64_t[]){b, 1, t}), by_type(h)), h, false, false);
    beam[4] = class_logits(g, io, by_reshape(g, mean, 2, (int64_t[]){b, c}), s->std);
    keep_beam(g, io, beam, n * ends);
    by_io_return(io, "second", pack_beam(g, beam));
}

/* Negative ids mark ignored rows, which read the first token. */
static by_tensor *inside(by_graph *g, by_tensor *ids, int64_t length)
{
    const int64_t shape[2] = {by_dim(ids, 0), 1};
    by_tensor *x = by_clamp(g, by_cast(g, ids, BY_F32), 0, (double)length - 1);
    return by_reshape(g, by_cast(g, x, BY_I32), 2, shape);
}

by_tensor *arch_beam_loss(by_graph *g, const by_model_io *io, by_tensor *targets, by_tensor *second,
                          const arch_beam_spec *s)
{
    by_tensor *h = by_io_output(io, "features"), *none = by_io_input(io, "is_impossible");
    const int64_t b = by_dim(h, 0), t = by_dim(h, 1), c = by_dim(h, 2);
    by_tensor *start = by_take(g, h, inside(g, targets, t)); /* (B, 1, C) */
    by_tensor *ends = by_reshape(g, end_logits(g, io, start, s), 2, (int64_t[]){b, t});
    by_tensor *loss = by_cross_entropy(g, by_io_output(io, "logits"), targets, NULL);
    loss = by_scale(g, by_add(g, loss, by_cross_entropy(g, ends, second, NULL)), 0.5);
    if (!none || !by_io_input(io, "cls_index"))
        return loss;
    by_tensor *x = class_logits(g, io, by_reshape(g, start, 2, (int64_t[]){b, c}), s->std);
    return by_add(g, loss, by_scale(g, arch_each_or_not(g, x, by_cast(g, none, BY_I32)), 0.5));
}
