/* distil.c - the distillation loss (banyan/align.h). */
#include "align/distill_terms.h"
#include "base/base.h"

/* ---- the teacher ------------------------------------------------------------------------------- */

static const by_input_info *input_of(const by_model *m, const char *name)
{
    const by_input_info *in = NULL;
    for (int i = 0; (in = by_model_input(m, i)) && strcmp(in->name, name) != 0; i++)
        ;
    return in;
}

/* The teacher's outputs: computed in the graph, or arrays of the batch. */
static void hear(by_graph *g, const by_distill_spec *s, const by_model_io *io, by_model_io *out)
{
    static const char *const shared[] = {"tokens", "mask", "segments", "source", "source_mask", "pick"};
    *out =
        (by_model_io){.want_hidden = s->layers != 0, .want_scores = s->attention != 0 || s->relations != 0};
    if (!s->teacher) {
        by_io_return(out, "logits", by_io_input(io, "teacher_logits"));
        by_io_return(out, "second", by_io_input(io, "teacher_second"));
        by_io_return(out, "features", by_io_input(io, "teacher_hidden"));
        return;
    }
    out->choices = io->choices;
    for (int k = 0; k < BY_COUNT(shared); k++)
        if (input_of(s->teacher, shared[k]))
            by_io_feed(out, shared[k], by_io_input(io, shared[k]));
    if (input_of(s->teacher, "segments") && by_model_segments(s->teacher))
        by_io_feed(out, "segments", by_io_input(io, "teacher_segments"));
    by_model_build_frozen(s->teacher, g, out);
}

/* ---- masks ------------------------------------------------------------------------------------- */

/* An array of the batch as a (B, T) mask in the accumulator type; all ones if the batch lacks it. */
static by_tensor *mask_of(by_graph *g, const by_model_io *io, const char *name, by_dtype type)
{
    const by_tensor *tokens = by_io_input(io, "tokens");
    by_tensor *mask = by_io_input(io, name);
    return mask ? by_cast(g, mask, type)
                : by_fill(g, type, 2, (int64_t[]){by_dim(tokens, 0), by_dim(tokens, 1)}, 1);
}

/* 1 where there is a target, in the shape of the targets. Without targets, all ones in the shape of
 * `like`. */
static by_tensor *has_target(by_graph *g, const distill_pair *p, const by_tensor *like)
{
    by_tensor *targets = by_io_input(p->student, "targets");
    if (targets && by_type(targets) == BY_I32 && by_elements(targets) == by_elements(like))
        return by_reshape(g, by_clamp(g, train_shift(g, by_cast(g, targets, p->type), 1), 0, 1), 1,
                          (int64_t[]){-1});
    return by_fill(g, p->type, 1, (int64_t[]){by_elements(like)}, 1);
}

/* ---- distributions ----------------------------------------------------------------------------- */

/* The divergence of each row of logits. */
static by_tensor *divergence(by_graph *g, by_tensor *x, by_tensor *y, double t)
{
    return by_kl_divergence(g, x, distill_taught(g, y, by_type(x)), 1 / t);
}

/* Multi-label: KL(sigmoid(y / t) || sigmoid(x / t)), a mean over labels and rows. */
static by_tensor *bernoulli(by_graph *g, by_tensor *x, by_tensor *y, double t)
{
    by_tensor *z[] = {by_scale(g, x, 1 / t), by_scale(g, distill_taught(g, y, by_type(x)), 1 / t)}, *ce[2];
    by_tensor *share = by_activation(g, z[1], BY_SIGMOID);
    for (int i = 0; i < 2; i++) /* -log(1 - sigmoid(z)) - share z */
        ce[i] =
            by_sub(g, by_scale(g, train_log_sigmoid(g, by_scale(g, z[i], -1)), -1), by_mul(g, share, z[i]));
    by_tensor *all = by_reshape(g, by_sub(g, ce[0], by_detach(g, ce[1])), 1, (int64_t[]){-1});
    return by_mean(g, all, 0);
}

static by_tensor *squared(by_graph *g, by_tensor *x, by_tensor *y)
{
    by_tensor *d = by_sub(g, x, distill_taught(g, y, by_type(x)));
    return by_mean(g, by_reshape(g, by_mul(g, d, d), 1, (int64_t[]){-1}), 0);
}

/* Start and end logits of extractive answers. Padding is left out. */
static by_tensor *answers(by_graph *g, const distill_pair *p, double t)
{
    static const char *const names[] = {"logits", "second"};
    by_tensor *hide = by_scale(g, train_shift(g, p->mask, -1), 1e4), *sum = NULL;
    for (int i = 0; i < 2; i++) {
        by_tensor *x = by_io_output(p->student, names[i]), *y = by_io_output(&p->teacher, names[i]);
        if (!x || !y || by_rank(x) != 2)
            return by_graph_fail(
                g, "answers need a start and an end for every position, of student and teacher");
        x = by_add(g, by_cast(g, x, p->type), hide);
        by_tensor *kl = divergence(g, x, by_add(g, by_cast(g, y, p->type), hide), t);
        sum = sum ? by_add(g, sum, kl) : kl;
    }
    return by_scale(g, by_mean(g, sum, 0), 0.5);
}

/* The divergences of rows of logits: tokens, labels or choices. */
static by_tensor *rows(by_graph *g, const distill_pair *p, by_tensor *x, by_tensor *y, double t)
{
    by_tensor *kl = divergence(g, x, y, t);
    if (by_rank(kl) == 2 && by_io_input(p->student, "soft_mask"))
        return train_masked_mean(g, kl, mask_of(g, p->student, "soft_mask", p->type));
    if (by_rank(kl) == 2 && !by_io_input(p->student, "source"))
        return train_masked_mean(g, kl, p->mask);
    by_tensor *flat = by_reshape(g, kl, 1, (int64_t[]){-1});
    return train_masked_mean(g, flat, has_target(g, p, flat));
}

static by_tensor *soft(by_graph *g, const distill_pair *p, by_tensor *logits, double t)
{
    by_tensor *y = by_io_output(&p->teacher, "logits");
    const bool labels = p->student->task == BY_TASK_CLASSIFY;
    if (p->student->task == BY_TASK_ANSWER)
        return by_scale(g, answers(g, p, t), t * t);
    if (labels && p->student->problem == BY_PROBLEM_REGRESSION)
        return squared(g, logits, y);
    return by_scale(g,
                    labels && p->student->problem == BY_PROBLEM_MANY_LABELS ? bernoulli(g, logits, y, t)
                                                                            : rows(g, p, logits, y, t),
                    t * t);
}

/* ---- vectors of texts -------------------------------------------------------------------------- */

/* Sums of hidden states (B, T, C), weighted by (B, T): (B, C). */
static by_tensor *pooled(by_graph *g, const distill_pair *p, by_tensor *features)
{
    by_tensor *w = by_io_input(p->student, "pool_weights");
    if (!w || !features)
        return by_graph_fail(g,
                             "vectors of texts need the last hidden states and the array \"pool_weights\"");
    const int64_t b = by_dim(features, 0), t = by_dim(features, 1), c = by_dim(features, 2);
    by_tensor *sum = by_matmul(g, by_cast(g, by_reshape(g, w, 3, (int64_t[]){b, 1, t}), by_type(features)),
                               features, false, false);
    return by_cast(g, by_reshape(g, sum, 2, (int64_t[]){b, c}), p->type);
}

/* Cosine similarities of all pairs: (B, C) -> (B, B). */
static by_tensor *cosines(by_graph *g, by_tensor *v)
{
    by_tensor *norm = by_activation(g, by_clamp(g, by_sum(g, by_mul(g, v, v), 1), 1e-16, 1e30), BY_SQRT);
    v = by_div(g, v, by_reshape(g, norm, 2, (int64_t[]){by_dim(v, 0), 1}));
    return by_matmul(g, v, v, false, true);
}

static by_tensor *vector_term(by_graph *g, const distill_pair *p, int kind)
{
    by_tensor *x = pooled(g, p, by_io_output(p->student, "features"));
    by_tensor *y = distill_taught(g, pooled(g, p, by_io_output(&p->teacher, "features")), p->type);
    if (kind == 2)
        return squared(g, cosines(g, x), cosines(g, y));
    x = distill_projected(g, p, x, y);
    return kind == 1 ? squared(g, x, y) : by_mean(g, distill_angle(g, x, y), 0);
}

/* ---- the sum ----------------------------------------------------------------------------------- */

typedef struct terms {
    by_graph *g;
    by_model_io *io;
    by_tensor *loss;
} terms;

static void add(terms *t, const char *name, by_tensor *term, double weight)
{
    train_keep(t->g, t->io, name, term);
    term = by_scale(t->g, term, weight);
    t->loss = t->loss ? by_add(t->g, t->loss, term) : term;
}

/* Terms of the last hidden states. */
static void add_last(terms *t, const distill_pair *p)
{
    const by_distill_spec *s = p->spec;
    by_tensor *y = by_io_output(&p->teacher, "features"), *features = by_io_output(p->student, "features");
    if (s->cosine == 0 && s->hidden == 0)
        return;
    if (!y || !features) {
        distill_taught(t->g, NULL, p->type);
        return;
    }
    by_tensor *x = distill_projected(t->g, p, features, y), *h = distill_taught(t->g, y, p->type),
              *d = by_sub(t->g, x, h);
    if (s->cosine != 0)
        add(t, "cosine_loss", train_masked_mean(t->g, distill_angle(t->g, x, h), p->mask), s->cosine);
    if (s->hidden != 0)
        add(t, "hidden_loss", train_masked_mean(t->g, by_mean(t->g, by_mul(t->g, d, d), 2), p->mask),
            s->hidden);
}

static void add_inner(terms *t, const distill_pair *p)
{
    const by_distill_spec *s = p->spec;
    if (s->layers != 0)
        add(t, "layers_loss", distill_layers(t->g, p), s->layers);
    if (s->attention != 0)
        add(t, "attention_loss", distill_attention(t->g, p), s->attention);
    if (s->relations != 0)
        add(t, "relations_loss", distill_relations(t->g, p), s->relations);
    if (s->vector_cosine != 0)
        add(t, "vector_cosine_loss", vector_term(t->g, p, 0), s->vector_cosine);
    if (s->vector_error != 0)
        add(t, "vector_error_loss", vector_term(t->g, p, 1), s->vector_error);
    if (s->vector_similarity != 0)
        add(t, "vector_similarity_loss", vector_term(t->g, p, 2), s->vector_similarity);
}

static by_dtype type_of_sums(const by_model_io *io)
{
    const by_tensor *like = by_io_output(io, "logits");
    if (!like)
        like = by_io_output(io, "features");
    return like && by_type(like) == BY_F64 ? BY_F64 : BY_F32;
}

by_tensor *by_distill_loss(void *user, by_graph *g, by_model_io *io)
{
    const by_distill_spec *s = user;
    by_tensor *logits = by_io_output(io, "logits");
    distill_pair p = {.spec = s, .student = io, .type = type_of_sums(io), .causal = io->task == BY_TASK_LM};
    terms t = {g, io, NULL};
    if (!by_io_input(io, "tokens") || (!logits && (s->soft != 0 || s->task != 0)))
        return by_graph_fail(g, "a student reads tokens and has logits");
    hear(g, s, io, &p.teacher);
    p.mask = mask_of(g, io, "mask", p.type);
    if (s->soft != 0)
        add(&t, "soft_loss", soft(g, &p, logits, train_or(s->temperature, 2)), s->soft);
    if (s->task != 0)
        add(&t, "task_loss",
            by_model_loss(s->student, g, io, by_io_input(io, "targets"), by_io_input(io, "second_targets")),
            s->task);
    add_last(&t, &p);
    add_inner(&t, &p);
    return t.loss ? t.loss : by_graph_fail(g, "no term of the distillation has a weight");
}
