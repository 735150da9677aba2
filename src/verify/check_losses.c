/* check_losses.c - the case "losses": losses of numbers instead of a model's outputs, each with the gradient of its operand. They are
 * computed by what training, distillation and alignment use. */
#include "align/distill_terms.h"
#include "align/losses.h"
#include "verify/check.h"

enum { TEMPERATURE = 2 };

typedef struct losses_case {
    verify_case *c;
    verify_graph v;
    int64_t rows;
    int32_t *targets;
    by_tensor *targets_in, *total;
} losses_case;

/* A loss under its recorded name. All of them are summed: none shares an operand with another. */
static void add(losses_case *l, const char *name, by_tensor *losses)
{
    by_graph *g = l->v.graph;
    by_tensor *wide = by_cast(g, losses, by_type(losses) == BY_F64 ? BY_F64 : BY_F32);
    by_tensor *loss = by_rank(losses) == 0 ? wide : by_mean(g, wide, 0);
    verify_graph_output(&l->v, name, loss);
    l->total = l->total ? by_add(g, l->total, loss) : loss;
}

/* An input that has no gradient. */
static by_tensor *constant(losses_case *l, const char *name)
{
    return by_detach(l->v.graph, verify_graph_operand(l->c, &l->v, name));
}

static void add_supervised(losses_case *l)
{
    by_graph *g = l->v.graph;
    by_tensor *logits = verify_graph_operand_as(l->c, &l->v, "logits", "label_smoothing");
    l->targets_in = by_input(g, "targets", BY_I32, 1, &l->rows);
    add(l, "label_smoothing_0.1",
        by_cross_entropy(g, logits, l->targets_in, &(by_loss_spec){.label_smoothing = 0.1F}));
}

static void add_distilled(losses_case *l)
{
    by_graph *g = l->v.graph;
    by_tensor *logits = verify_graph_operand_as(l->c, &l->v, "logits", "distil_kl");
    by_tensor *kl = by_kl_divergence(g, logits, constant(l, "teacher_logits"), 1.0 / TEMPERATURE);
    by_tensor *hidden = verify_graph_operand_as(l->c, &l->v, "student_hidden", "cosine");
    add(l, "distil_kl_T2", by_scale(g, kl, TEMPERATURE * TEMPERATURE));
    add(l, "cosine", distill_angle(g, hidden, constant(l, "teacher_hidden")));
}

static void add_aligned(losses_case *l)
{
    by_graph *g = l->v.graph;
    by_tensor *w = verify_graph_operand(l->c, &l->v, "policy_chosen"),
              *r = verify_graph_operand(l->c, &l->v, "policy_rejected");
    train_ratios ratios = {.w = by_sub(g, w, constant(l, "reference_chosen")),
                           .l = by_sub(g, r, constant(l, "reference_rejected"))};
    ratios.d = by_sub(g, ratios.w, ratios.l);
    add(l, "dpo_beta_0.1", train_dpo_losses(g, &(by_dpo_spec){.beta = 0.1}, &ratios));

    by_tensor *logps = verify_graph_operand(l->c, &l->v, "new_logp");
    by_tensor *ratio = by_activation(g, by_sub(g, logps, constant(l, "old_logp")), BY_EXP);
    add(l, "ppo_clip_0.2",
        train_clipped_losses(g, &(by_policy_spec){.epsilon_low = 0.2, .epsilon_high = 0.2}, ratio,
                             constant(l, "advantage")));
}

static by_status run(losses_case *l)
{
    const by_weight *e = verify_find(l->c, "input.", "targets");
    if (!e || e->rank != 1)
        return base_fail(BY_ERR_FORMAT, "the reference has no input.targets (N)");
    l->rows = e->dim[0];
    BY_TRY(verify_ids(l->c, "input.", "targets", l->rows, 0, &l->targets));
    BY_TRY(verify_graph_open(l->c, &l->v));
    add_supervised(l);
    add_distilled(l);
    add_aligned(l);
    BY_TRY(verify_graph_compile(&l->v, l->total));
    BY_TRY(by_write(l->v.program, l->targets_in, l->targets, (size_t)l->rows * sizeof *l->targets));
    return verify_graph_compare(l->c, &l->v);
}

by_status verify_losses(verify_case *c)
{
    losses_case l = {.c = c};
    by_status s = run(&l);
    verify_graph_close(&l.v);
    base_free(l.targets);
    return s;
}
