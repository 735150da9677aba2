/* heads.c - task heads, and the loss of each task. */
#include "base/base.h"
#include "base/json.h"
#include "graph/graph.h"
#include "models/models.h"

static const char *const task_names[BY_TASK_COUNT] = {
    [BY_TASK_DEFAULT] = "default",   [BY_TASK_LM] = "lm",           [BY_TASK_MLM] = "mlm",
    [BY_TASK_PRETRAIN] = "pretrain", [BY_TASK_NEXT] = "next",       [BY_TASK_CLASSIFY] = "classify",
    [BY_TASK_TAG] = "tag",           [BY_TASK_ANSWER] = "answer",   [BY_TASK_CHOICE] = "choice",
    [BY_TASK_FEATURES] = "features", [BY_TASK_SEQ2SEQ] = "seq2seq", [BY_TASK_ENCODER] = "encoder",
    [BY_TASK_CONTRAST] = "contrast",
};

const char *by_task_name(by_task t)
{
    return (unsigned)t < BY_TASK_COUNT ? task_names[t] : "unknown";
}

bool by_task_find(const char *name, by_task *out)
{
    for (int i = 0; i < BY_TASK_COUNT; i++)
        if (strcmp(task_names[i], name) == 0) {
            *out = (by_task)i;
            return true;
        }
    return false;
}

/* ---- heads ----------------------------------------------------------------------------------- */

by_tensor *arch_head_weights(by_graph *g, arch_head head, const char *name, by_tensor *table, float std)
{
    const int64_t shape[2] = {by_dim(table, 0), by_dim(table, 1)};
    return head.own ? by_param(g, name, 2, shape, (by_init){BY_INIT_NORMAL, std})
                    : gr_tied_weights(g, name, table);
}

void arch_lm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *weights, by_tensor *bias)
{
    if (by_io_input(io, "pick"))
        h = nn_pick(g, h, by_io_input(io, "pick"));
    by_io_return(io, "logits", by_linear(g, h, weights, bias, NULL));
}

/* An untied head has its own bias; the other bias is then unused. */
static by_tensor *mlm_bias(by_graph *g, const arch_mlm_spec *s, int64_t vocab)
{
    const by_init zero = {BY_INIT_ZERO, 0};
    if (!s->decoder_bias || s->head.tied)
        return by_param(g, s->bias, 1, &vocab, zero);
    by_param_fixed(g, s->bias, 1, &vocab, zero);
    return by_param(g, s->decoder_bias, 1, &vocab, zero);
}

void arch_mlm_head(by_graph *g, by_model_io *io, by_tensor *h, by_tensor *table, const arch_mlm_spec *s)
{
    int64_t vocab = by_dim(table, 0);
    if (by_io_input(io, "pick"))
        h = nn_pick(g, h, by_io_input(io, "pick"));
    h = nn_linear(g, s->dense, h, &(nn_linear_spec){.out = by_dim(table, 1), .act = s->act, .std = s->std});
    h = nn_layernorm(g, s->norm, h, s->eps);
    by_tensor *weights = arch_head_weights(g, s->head, s->decoder, table, s->std);
    by_io_return(io, "logits", by_linear(g, h, weights, mlm_bias(g, s, vocab), NULL));
}

void arch_label_head(by_graph *g, by_model_io *io, const char *name, by_tensor *x, float std)
{
    const bool choice = io->task == BY_TASK_CHOICE;
    const int64_t choices = io->choices > 0 ? io->choices : 1;
    by_tensor *y = nn_linear(g, name, x, &(nn_linear_spec){.out = choice ? 1 : io->labels, .std = std});
    by_io_return(io, "logits", choice ? by_reshape(g, y, 2, (int64_t[]){-1, choices}) : y);
}

by_tensor *arch_pooler(by_graph *g, const char *name, by_tensor *h, float std)
{
    return nn_linear(g, name, nn_first(g, h),
                     &(nn_linear_spec){.out = by_dim(h, -1), .act = BY_TANH, .std = std});
}

by_tensor *arch_summarize(by_graph *g, arch_summary how, by_tensor *x)
{
    if (how == ARCH_SUMMARY_FIRST)
        return nn_first(g, x);
    if (how == ARCH_SUMMARY_MEAN)
        return by_mean(g, x, 1);
    by_tensor *last = by_slice(g, x, 1, by_dim(x, 1) - 1, 1);
    return by_reshape(g, last, 2, (int64_t[]){by_dim(x, 0), by_dim(x, -1)});
}

by_status arch_summary_read(const cJSON *json, const char *type, const char *act, arch_summary *how,
                            by_act *after)
{
    BY_TRY(base_json_string(json, "summary_type", type, &type));
    BY_TRY(base_json_string(json, "summary_activation", act, &act));
    *how = strcmp(type, "first") == 0  ? ARCH_SUMMARY_FIRST
           : strcmp(type, "mean") == 0 ? ARCH_SUMMARY_MEAN
                                       : ARCH_SUMMARY_LAST;
    if (*how == ARCH_SUMMARY_LAST && strcmp(type, "last") != 0 && strcmp(type, "cls_index") != 0)
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: unknown summary_type \"%s\"", type);
    *after = BY_ACT_NONE;
    if (act && *act && !arch_act_parse(act, after))
        return base_fail(BY_ERR_UNSUPPORTED, "config.json: unknown summary_activation \"%s\"", act);
    return BY_OK;
}

/* ---- heads by table -------------------------------------------------------------------------- */

by_tensor *arch_head_dropout(by_graph *g, by_tensor *x, const arch_top *top, const arch_head_row *row)
{
    const float *drop = row->drop ? (const float *)((const char *)top->config + row->drop) : NULL;
    return by_dropout(g, x, !drop ? 0 : *drop < 0 ? top->drop : *drop);
}

void arch_put_heads(by_graph *g, by_model_io *io, const arch_head_row *rows, const arch_top *top)
{
    for (; rows->put; rows++)
        if (rows->task == io->task)
            rows->put(g, io, top, rows);
}

ARCH_PUT(lm)
{
    by_tensor *weights = arch_head_weights(g, top->head, row->name, top->table, top->std);
    arch_lm_head(g, io, by_io_output(io, "features"), weights, NULL);
}

ARCH_PUT(mlm)
{
    (void)row;
    arch_mlm_head(g, io, by_io_output(io, "features"), top->table, top->mlm);
}

ARCH_PUT(score)
{
    if (!by_io_input(io, "pick")) {
        by_io_return(
            io, "logits",
            by_graph_fail(g, "classification requires the input \"pick\", the position of the last token"));
        return;
    }
    by_io_return(io, "logits",
                 nn_linear(g, row->name, nn_pick(g, by_io_output(io, "features"), by_io_input(io, "pick")),
                           &(nn_linear_spec){.out = io->labels, .no_bias = true, .std = top->std}));
}

ARCH_PUT(label)
{
    arch_label_head(g, io, row->name, arch_head_dropout(g, by_io_output(io, "pooled"), top, row), top->std);
}

ARCH_PUT(tag)
{
    by_io_return(io, "logits",
                 nn_linear(g, row->name, arch_head_dropout(g, by_io_output(io, "features"), top, row),
                           &(nn_linear_spec){.out = io->labels, .std = top->std}));
}

ARCH_PUT(answer)
{
    by_tensor *h = arch_head_dropout(g, by_io_output(io, "features"), top, row);
    int64_t shape[2] = {by_dim(h, 0), by_dim(h, 1)};
    by_tensor *both =
        nn_linear(g, row->name, h, &(nn_linear_spec){.out = 2, .std = top->std}); /* (B, T, 2) */
    by_io_return(io, "logits", by_reshape(g, by_slice(g, both, 2, 0, 1), 2, shape));
    by_io_return(io, "second", by_reshape(g, by_slice(g, both, 2, 1, 1), 2, shape));
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Mean squared error. */
static by_tensor *squared_error(by_graph *g, by_tensor *x, by_tensor *targets)
{
    by_tensor *flat = by_reshape(g, by_cast(g, x, by_type(targets)), 1, (int64_t[]){-1});
    by_tensor *d = by_sub(g, flat, by_reshape(g, targets, 1, (int64_t[]){-1}));
    return by_mean(g, by_mul(g, d, d), 0);
}

/* Cross-entropy of a sigmoid is that of a softmax over {0, x}. */
by_tensor *arch_each_or_not(by_graph *g, by_tensor *x, by_tensor *targets)
{
    int64_t shape[2] = {by_elements(x), 1};
    by_tensor *pair[2] = {by_fill(g, by_type(x), 2, shape, 0), by_reshape(g, x, 2, shape)};
    return by_cross_entropy(g, by_concat(g, pair, 2, 1), by_reshape(g, targets, 1, shape), NULL);
}

/* Cross-entropy against probabilities p, whose rows sum to 1: lse(x) - p.x. With a smoothing of 1, the op
 * gives lse(x) - mean(x) for any target; the sum of x (1/V - p) is added. Smoothing s replaces p by (1 - s) p
 * + s/V. */
static by_tensor *soft_cross_entropy(by_graph *g, by_tensor *logits, by_tensor *p, float smoothing)
{
    by_tensor *x = by_cast(g, logits, by_type(logits) == BY_F64 ? BY_F64 : BY_F32);
    const int64_t rows = by_dim(x, 0), classes = by_dim(x, -1);
    by_tensor *uniform =
        by_cross_entropy(g, x, by_fill(g, BY_I32, 1, &rows, 0), &(by_loss_spec){.label_smoothing = 1});
    by_tensor *even = by_fill(g, by_type(x), 0, NULL, 1.0 / (double)classes);
    by_tensor *less = by_mul(g, x, by_sub(g, even, by_cast(g, p, by_type(x))));
    less = by_sum(g, by_reshape(g, less, 1, (int64_t[]){-1}), 0);
    return by_add(g, uniform, by_scale(g, less, (1 - (double)smoothing) / (double)rows));
}

static by_tensor *hard_cross_entropy(by_graph *g, const by_model_io *io, by_tensor *logits,
                                     by_tensor *targets)
{
    by_tensor *weights = by_io_input(io, "class_weights");
    if (weights && by_type(logits) == BY_F64)
        weights = by_cast(g, weights, BY_F64);
    return by_cross_entropy(g, logits, targets,
                            &(by_loss_spec){.weights = weights, .label_smoothing = io->label_smoothing});
}

by_tensor *arch_label_loss(by_graph *g, const by_model_io *io, by_tensor *logits, by_tensor *targets)
{
    if (io->problem == BY_PROBLEM_REGRESSION)
        return squared_error(g, logits, targets);
    if (io->problem == BY_PROBLEM_MANY_LABELS)
        return arch_each_or_not(g, logits, targets);
    if (by_type(targets) != BY_I32)
        return soft_cross_entropy(g, logits, targets, io->label_smoothing);
    return hard_cross_entropy(g, io, logits, targets);
}

by_tensor *arch_task_loss(by_graph *g, const by_model_io *io, by_tensor *targets, by_tensor *second_targets)
{
    by_tensor *logits = by_io_output(io, "logits"), *second = by_io_output(io, "second");
    if (io->task == BY_TASK_FEATURES || io->task == BY_TASK_ENCODER)
        return by_graph_fail(g, "a model without a head has no loss");
    if (io->task == BY_TASK_CLASSIFY)
        return arch_label_loss(g, io, logits, targets);
    by_tensor *loss = hard_cross_entropy(g, io, logits, targets);
    if (!second_targets || !second)
        return loss;
    loss = by_add(g, loss, by_cross_entropy(g, second, second_targets, NULL));
    return io->task == BY_TASK_ANSWER ? by_scale(g, loss, 0.5) : loss;
}
