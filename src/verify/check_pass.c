/* check_pass.c - runs one forward pass and one pass with gradients, and compares them with the reference. */
#include <stdlib.h>

#include "model/model.h"
#include "verify/check.h"

/* The labels of a multi-label problem are zeros and ones, stored as floats in the reference. */
static by_status take_many_labels(verify_case *c)
{
    const int64_t n = c->batch * (int64_t)by_model_labels(c->model);
    float *values = NULL;
    BY_TRY(verify_numbers(c, "input.", "labels", n, &values));
    if (!values)
        return BY_OK;
    c->targets = base_alloc_zero((size_t)n, sizeof *c->targets);
    bool whole = c->targets != NULL;
    for (int64_t i = 0; i < n && whole; i++) {
        c->targets[i] = values[i] == 1;
        whole = values[i] == 0 || values[i] == 1;
    }
    base_free(values);
    if (!c->targets)
        return BY_ERR_MEMORY;
    return whole ? BY_OK : base_fail(BY_ERR_UNSUPPORTED, "input.labels are not all 0 or 1");
}

/* The reference ignores an answer position that is outside of the text. */
static by_status take_place(verify_case *c, const char *name, int32_t **out)
{
    BY_TRY(verify_ids(c, "input.", name, c->batch, 0, out));
    for (int b = 0; *out && b < c->batch; b++)
        (*out)[b] = (*out)[b] < c->seq ? (*out)[b] : -100;
    return BY_OK;
}

/* Reads the labels: (B, T) for token labels, (B) or (B, labels) for sequence labels. */
static by_status take_targets(verify_case *c)
{
    const by_task task = by_model_task(c->model);
    if (task == BY_TASK_ANSWER) {
        BY_TRY(take_place(c, "start_positions", &c->targets));
        return take_place(c, "end_positions", &c->second);
    }
    if (task == BY_TASK_CLASSIFY && by_model_problem(c->model) == BY_PROBLEM_REGRESSION)
        return verify_numbers(c, "input.", "labels", c->batch * (int64_t)by_model_labels(c->model),
                              &c->numbers);
    if (task == BY_TASK_CLASSIFY && by_model_problem(c->model) == BY_PROBLEM_MANY_LABELS)
        return take_many_labels(c);
    if (task == BY_TASK_CLASSIFY || task == BY_TASK_NEXT || task == BY_TASK_CHOICE)
        return verify_ids(c, "input.", "labels", c->batch / BY_MAX(c->choices, 1), 0, &c->targets);
    const by_weight *map = verify_find(c, "input.", "target_mapping");
    BY_TRY(verify_ids(c, "input.", "labels", c->batch, map && map->rank == 3 ? map->dim[1] : c->seq,
                      &c->targets));
    if (c->targets)
        verify_shift(c, c->targets);
    else if (c->model->arch->predicts_itself)
        BY_TRY(verify_ids(c, "input.", "input_ids", c->batch, c->seq, &c->targets));
    if (task == BY_TASK_PRETRAIN) {
        BY_TRY(verify_ids(c, "input.", "next_sentence_label", c->batch, 0, &c->second));
        if (!c->second)
            BY_TRY(verify_ids(c, "input.", "sentence_order_label", c->batch, 0, &c->second));
    }
    return BY_OK;
}

/* Reads the texts of an encoder-decoder without a head. Without decoder tokens, the decoder input is the
 * source, shifted. */
static by_status take_texts(verify_case *c)
{
    const by_weight *e = verify_find(c, "input.", "decoder_input_ids");
    BY_TRY(verify_ids(c, "input.", "input_ids", c->batch, c->seq, &c->source));
    c->source_seq = c->seq;
    if (e && (e->rank != 2 || e->dim[0] != c->batch || e->dim[1] < 1 || e->dim[1] > (1 << 28) / c->batch))
        return base_fail(BY_ERR_FORMAT, "%s is not (%d, T)", e->name, c->batch);
    if (e) {
        c->seq = (int)e->dim[1];
        return verify_ids(c, "input.", "decoder_input_ids", c->batch, c->seq, &c->tokens);
    }
    c->tokens = base_alloc_zero((size_t)c->batch * (size_t)c->seq, sizeof *c->tokens);
    return c->tokens ? by_model_shift(c->model, c->source, c->batch, c->seq, c->tokens) : BY_ERR_MEMORY;
}

/* Reads the texts of an encoder-decoder: the reference's inputs are the source, and the decoder input is the
 * labels shifted right by one. */
static by_status take_pair(verify_case *c)
{
    static const char *const known[] = {"input_ids", "attention_mask", "labels", NULL};
    static const char *const bare[] = {"input_ids", "attention_mask", "decoder_input_ids", NULL};
    const bool writes = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    BY_TRY(verify_known(c, "input.", writes ? known : bare));
    BY_TRY(verify_ids(c, "input.", "attention_mask", c->batch, c->seq, &c->source_mask));
    return writes ? verify_pair(c, "input.") : take_texts(c);
}

/* Without a mask, some families derive one from the padding. */
static by_status take_own_mask(verify_case *c)
{
    if (c->mask)
        return BY_OK;
    c->mask = base_alloc_zero((size_t)c->batch * (size_t)c->seq, sizeof *c->mask);
    if (!c->mask)
        return BY_ERR_MEMORY;
    if (!by_model_mask(c->model, c->tokens, c->batch, c->seq, c->mask)) {
        base_free(c->mask);
        c->mask = NULL;
    }
    return BY_OK;
}

/* For some models of the reference, a jump in the positions means several texts packed into one row. */
static by_status check_positions(const verify_case *c)
{
    for (int i = 1; c->model->arch->packs && c->positions && !c->mask && i < c->batch * c->seq; i++)
        if (i % c->seq && c->positions[i] != c->positions[i - 1] + 1)
            return base_fail(
                BY_ERR_UNSUPPORTED,
                "input.position_ids: without a mask, a jump in the positions means several texts packed into "
                "one row, which is not supported");
    return BY_OK;
}

/* Arrays that the model reads under the names of the reference. */
static void put_extra(const verify_case *c, by_batch *b)
{
    for (int i = 0; i < c->extra.count; i++) {
        const by_array *a = &c->extra.arrays[i];
        by_batch_put(b, a->name, a->type, a->rank, a->shape, a->data);
    }
}

/* Pictures stand in place of tokens. */
static by_status take_pictures(verify_case *c, const by_pictures *p)
{
    static const char *const known[] = {"labels", NULL};
    const bool captions = by_model_task(c->model) == BY_TASK_SEQ2SEQ;
    const by_weight *e = verify_find(c, "input.", "pixel_values");
    BY_TRY(verify_known(c, "input.", known));
    if (!e || e->rank != 4 || e->dim[0] < 1 || e->dim[0] > (1 << 20) || e->dim[2] > (1 << 15) ||
        e->dim[3] > (1 << 15))
        return base_fail(BY_ERR_FORMAT, "the reference has no input.pixel_values (B, C, H, W)");
    c->batch = (int)e->dim[0];
    c->seq = by_pictures_positions(p, (int)e->dim[2], (int)e->dim[3]);
    BY_TRY(verify_take_extra(c, "input.", known));
    return captions ? verify_pair(c, "input.") : take_targets(c);
}

static by_status take_inputs(verify_case *c)
{
    by_pictures pictures;
    if (by_model_pictures(c->model, &pictures) &&
        (by_model_vocab(c->model) == 0 || by_model_is_pair(c->model)))
        return take_pictures(c, &pictures);

    static const char *const known[] = {
        "input_ids",       "attention_mask", "position_ids",        "token_type_ids",
        "langs",           "labels",         "next_sentence_label", "sentence_order_label",
        "start_positions", "end_positions",  "mem_stack",           NULL};
    BY_TRY(verify_shape(c, "input."));
    if (by_model_is_pair(c->model) &&
        (by_model_task(c->model) == BY_TASK_SEQ2SEQ || by_model_task(c->model) == BY_TASK_FEATURES))
        return take_pair(c);
    BY_TRY(verify_known(c, "input.", known));
    BY_TRY(verify_take_extra(c, "input.", known));
    BY_TRY(verify_ids(c, "input.", "input_ids", c->batch, c->seq, &c->tokens));
    BY_TRY(verify_ids(c, "input.", "attention_mask", c->batch, c->seq, &c->mask));
    BY_TRY(take_own_mask(c));
    BY_TRY(verify_ids(c, "input.", "position_ids", c->batch, c->seq, &c->positions));
    BY_TRY(verify_ids(c, "input.", "token_type_ids", c->batch, c->seq, &c->segments));
    if (!c->segments)
        BY_TRY(verify_ids(c, "input.", "langs", c->batch, c->seq, &c->segments));
    BY_TRY(check_positions(c));
    if (c->segments && !by_model_segments(c->model))
        return base_fail(BY_ERR_UNSUPPORTED, "input.token_type_ids: %s does not take this input",
                         base_a(by_model_class(c->model)).text);
    return take_targets(c);
}

/* Takes the tensors of the reference that have the name of an input of the model: arrays that no rule above derives. */
static by_status take_named(verify_case *c)
{
    const by_input_info *in;
    for (int i = 0; (in = by_model_input(c->model, i)); i++) {
        const by_weight *e = by_weights_find(c->reference, in->name);
        if (!e)
            continue;
        void *values = verify_values(e, in->type);
        if (!values)
            return BY_ERR_MEMORY;
        by_batch_put(&c->extra, in->name, in->type, e->rank, e->dim, values);
    }
    return BY_OK;
}

static by_status run_pass(verify_case *c, by_pass **pass, by_stream **stream, bool gradients)
{
    by_batch b = by_batch_of(c->batch, c->seq, c->tokens);
    if (verify_streams(c) && !(b.stream = *stream = by_stream_new(c->model, c->batch)))
        return base_error_status();
    b.choices = c->choices;
    by_batch_put_source(&b, c->source_seq, c->source, c->source_mask);
    by_batch_put_tokens(&b, "segments", c->segments);
    by_batch_put_tokens(&b, "positions", c->positions);
    by_batch_put_tokens(&b, "mask", c->mask);
    put_extra(c, &b);
    const int64_t n = by_batch_targets(c->model, &b);
    by_batch_put(&b, "targets", c->numbers ? BY_F32 : BY_I32, 1, &n,
                 c->numbers ? (const void *)c->numbers : c->targets);
    by_batch_put_ids(&b, "second_targets", c->batch, c->second);
    *pass = by_pass_new(c->model, &b,
                        &(by_pass_spec){.grads = gradients ? BY_GRAD_STORE : BY_GRAD_NONE,
                                        .hidden = !gradients,
                                        .attention = !gradients});
    if (!*pass)
        return base_error_status();
    if (*stream)
        BY_TRY(verify_fill_stream(c, *stream));
    return by_pass_run(*pass, &b);
}

/* Returns the number N in "hidden_states.N" if it is below count, otherwise -1. */
static int index_after(const char *name, const char *stem, int count)
{
    char *end;
    size_t n = strlen(stem);
    if (strncmp(name, stem, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    long i = strtol(name + n, &end, 10);
    return *end == '\0' && i < count ? (int)i : -1;
}

/* Names that the reference uses for the logits of a task, besides "logits". */
static const struct {
    const char *name;
    bool second;
} logits_names[] = {
    {"logits", false},    {"prediction_logits", false}, {"seq_relationship_logits", true},
    {"sop_logits", true}, {"start_logits", false},      {"end_logits", true},
};

static by_tensor *output_named(const verify_case *c, const char *name)
{
    const by_model_io *io = by_pass_io(c->forward);
    const bool alone = by_model_task(c->model) == BY_TASK_ENCODER;
    const struct {
        const char *stem, *output;
    } lists[] = {
        {"hidden_states.", alone ? "source_hidden" : "hidden"},
        {"attentions.", alone ? "source_attention" : "attention"},
        {"decoder_hidden_states.", "hidden"},
        {"decoder_attentions.", "attention"},
        {"encoder_hidden_states.", "source_hidden"},
        {"encoder_attentions.", "source_attention"},
        {"cross_attentions.", "cross_attention"},
        {"global_attentions.", "global_attention"},
        {"mems.", "mems"},
        {"text_model_output.hidden_states.", "hidden"},
        {"vision_model_output.hidden_states.", "source_hidden"},
        {"text_model_output.attentions.", "attention"},
        {"vision_model_output.attentions.", "source_attention"},
    };
    /* The reference does not scale the vectors of a tower alone to length 1. */
    const bool tower = by_model_task(c->model) == BY_TASK_FEATURES;
    const struct {
        const char *name, *output;
    } towers[] = {
        {"text_model_output.last_hidden_state", "features"},
        {"vision_model_output.last_hidden_state", "memory"},
        {"text_model_output.pooler_output", "text_features"},
        {"vision_model_output.pooler_output", "image_features"},
        {"text_embeds", tower ? "text_features" : "text_embeds"},
        {"image_embeds", tower ? "image_features" : "image_embeds"},
    };
    for (int i = 0; i < BY_COUNT(lists); i++) {
        int k = index_after(name, lists[i].stem, by_io_output_count(io, lists[i].output));
        if (k >= 0)
            return by_io_output_at(io, lists[i].output, k);
    }
    for (int i = 0; i < BY_COUNT(towers); i++)
        if (strcmp(name, towers[i].name) == 0)
            return by_io_output(io, towers[i].output);
    by_pictures pictures;
    if (strcmp(name, "encoder_last_hidden_state") == 0 && by_model_pictures(c->model, &pictures))
        return by_io_output(io, "memory"); /* after the last norm */
    if (strcmp(name, "encoder_last_hidden_state") == 0)
        return by_io_output_at(io, "source_hidden", by_io_output_count(io, "source_hidden") - 1);
    for (int i = 0; i < BY_COUNT(logits_names); i++)
        if (strcmp(name, logits_names[i].name) == 0)
            return by_io_output(io, logits_names[i].second ? "second" : "logits");
    if (strcmp(name, "last_hidden_state") == 0)
        return by_io_output(io, "features");
    if (strcmp(name, "pooler_output") == 0)
        return by_io_output(io, "pooled");
    return strcmp(name, "loss") == 0 ? by_pass_loss(c->forward) : by_io_output(io, name);
}

by_status verify_output(verify_case *c, const by_weight *e, const char *name)
{
    if (strcmp(name, "token_losses") == 0)
        return verify_token_losses(c, e);
    const by_tensor *t = output_named(c, name);
    if (!t) {
        bool unlabelled = strcmp(name, "loss") == 0 && !verify_has_targets(c);
        verify_note(c, e, BY_VERDICT_FAILED,
                    unlabelled ? "the reference has no input.labels" : "the model has no such output");
        return BY_OK;
    }
    int64_t dim[BY_MAX_RANK];
    for (int i = 0; i < by_rank(t); i++)
        dim[i] = by_dim(t, i);
    float *here = base_alloc_zero((size_t)by_elements(t) + 1, sizeof *here);
    by_status s = here ? by_pass_read(c->forward, t, here) : BY_ERR_MEMORY;
    if (s == BY_OK)
        s = verify_compare(c, e, t == by_pass_loss(c->forward) ? VERIFY_SUBJECT_LOSS : VERIFY_SUBJECT_OUTPUT,
                           by_rank(t), dim, here, NULL);
    base_free(here);
    return s;
}

by_status verify_gradient(verify_case *c, const by_weight *e)
{
    const by_params *p;
    int i = verify_locate(c, e->name + strlen("grad."), &p);
    if (verify_missing(c, e, i, c->backward != NULL))
        return BY_OK;
    float *here = verify_parameter(p, i, BY_SLOT_GRAD);
    by_status s = here ? BY_OK : base_error_status();
    if (s == BY_OK)
        s = verify_compare(c, e, VERIFY_SUBJECT_GRADIENT, by_params_rank(p, i), by_params_shape(p, i), here,
                           NULL);
    base_free(here);
    return s;
}

/* If every target is ignored, the loss of the reference is 0 / 0. */
static by_status check_targets(const verify_case *c)
{
    by_batch b = by_batch_of(c->batch, c->seq, c->tokens);
    b.choices = c->choices;
    put_extra(c, &b);
    const int64_t n = by_batch_targets(c->model, &b);
    bool any = !c->targets;
    for (int64_t i = 0; i < n && !any; i++)
        any = c->targets[i] != -100;
    bool second = !c->second;
    for (int i = 0; i < c->batch && !second; i++)
        second = c->second[i] != -100;
    return any && second ? BY_OK
                         : base_fail(BY_ERR_UNSUPPORTED,
                                     "all labels are ignored: the loss is NaN in the reference and 0 here");
}

by_status verify_inputs(verify_case *c)
{
    BY_TRY(take_inputs(c));
    BY_TRY(take_named(c));
    return check_targets(c);
}

by_status verify_forward(verify_case *c)
{
    by_pass_free(c->forward);
    c->forward = NULL;
    return run_pass(c, &c->forward, &c->stream, false);
}

by_status verify_backward(verify_case *c)
{
    bool wanted;
    BY_TRY(verify_whole(c, &wanted));
    const bool has = verify_has_targets(c) || by_model_task(c->model) == BY_TASK_CONTRAST;
    return wanted && has ? run_pass(c, &c->backward, &c->backward_stream, true) : BY_OK;
}

by_status verify_passes(verify_case *c)
{
    BY_TRY(verify_inputs(c));
    BY_TRY(verify_forward(c));
    return verify_backward(c);
}
