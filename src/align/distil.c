/* align_distil.c - the loss of a student that learns from a teacher (banyan/align.h). */
#include "base/base.h"
#include "align/terms.h"

/* What the teacher says: built into the graph, or given by the batch. */
typedef struct lesson {
    by_tensor *logits, *hidden; /* (B, T, V), (B, T, C); NULL where it is not asked for */
} lesson;

static lesson hear(by_graph *g, const by_distill_spec *s, const by_model_io *io)
{
    static const char *const shared[] = {"tokens", "mask", "segments", "source", "source_mask"};
    if (!s->teacher)
        return (lesson){by_io_input(io, "teacher_logits"), by_io_input(io, "teacher_hidden")};
    by_model_io own = {0};
    const by_input_info *in;
    for (int k = 0; k < BY_COUNT(shared); k++)
        for (int i = 0; (in = by_model_input(s->teacher, i)); i++)
            if (strcmp(in->name, shared[k]) == 0)
                by_io_feed(&own, shared[k], by_io_input(io, shared[k]));
    by_model_build_frozen(s->teacher, g, &own);
    return (lesson){by_io_output(&own, "logits"), by_io_output(&own, "features")};
}

static by_tensor *in_type(by_graph *g, by_tensor *x, by_dtype type)
{
    return x ? by_cast(g, x, type)
             : by_graph_fail(g, "the teacher has no such output, and the batch no such array");
}

/* 1 - x y / (|x| |y|) */
static by_tensor *angle(by_graph *g, by_tensor *x, by_tensor *y)
{
    by_tensor *dot = by_sum(g, by_mul(g, x, y), 2);
    by_tensor *squares = by_mul(g, by_sum(g, by_mul(g, x, x), 2), by_sum(g, by_mul(g, y, y), 2));
    by_tensor *cos = by_div(g, dot, by_activation(g, by_clamp(g, squares, 1e-16, 1e30), BY_SQRT));
    return train_shift(g, by_scale(g, cos, -1), 1);
}

/* A mask of the batch, (B, T) in the type of sums; all ones without it. */
static by_tensor *mask_of(by_graph *g, const by_model_io *io, const char *name, by_dtype type)
{
    const by_tensor *tokens = by_io_input(io, "tokens");
    by_tensor *mask = by_io_input(io, name);
    return mask ? by_cast(g, mask, type)
                : by_fill(g, type, 2, (int64_t[]){by_dim(tokens, 0), by_dim(tokens, 1)}, 1);
}

static by_tensor *add_term(by_graph *g, by_model_io *io, const char *name, by_tensor *loss, by_tensor *term,
                           double weight)
{
    train_keep(g, io, name, term);
    term = by_scale(g, term, weight);
    return loss ? by_add(g, loss, term) : term;
}

by_tensor *by_distill_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_distill_spec *s = user;
    const double t = train_or(s->temperature, 2);
    by_tensor *logits = by_io_output(io, "logits"), *features = by_io_output(io, "features"), *loss = NULL;
    if (!logits)
        return by_graph_fail(g, "a student has logits");
    const by_dtype type = by_type(logits), sums = type == BY_F64 ? BY_F64 : BY_F32;
    const lesson l = hear(g, s, io);
    by_tensor *mask = mask_of(g, io, "mask", sums);
    if (s->soft != 0) {
        by_tensor *seen = by_io_input(io, "soft_mask") ? mask_of(g, io, "soft_mask", sums) : mask;
        by_tensor *kl = by_kl_divergence(g, logits, by_detach(g, in_type(g, l.logits, type)), 1 / t);
        loss =
            add_term(g, io, "soft_loss", loss, by_scale(g, train_masked_mean(g, kl, seen), t * t), s->soft);
    }
    if (s->task != 0)
        loss = add_term(
            g, io, "task_loss", loss,
            by_model_loss(s->student, g, io, by_io_input(io, "targets"), by_io_input(io, "second_targets")),
            s->task);
    if (s->cosine != 0 || s->hidden != 0) {
        by_tensor *x = in_type(g, features, sums), *y = by_detach(g, in_type(g, l.hidden, sums)),
                  *d = by_sub(g, x, y);
        if (s->cosine != 0)
            loss =
                add_term(g, io, "cosine_loss", loss, train_masked_mean(g, angle(g, x, y), mask), s->cosine);
        if (s->hidden != 0)
            loss = add_term(g, io, "hidden_loss", loss,
                            train_masked_mean(g, by_mean(g, by_mul(g, d, d), 2), mask), s->hidden);
    }
    return loss ? loss : by_graph_fail(g, "no term of the distillation has a weight");
}
