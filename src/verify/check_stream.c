/* check_stream.c - cases of models with a memory: what was recorded as the memory before the segment, and losses by token. */
#include <math.h>
#include <stdlib.h>

#include "model/model.h"
#include "verify/check.h"

bool verify_is_memory(const verify_case *c, const char *name)
{
    return verify_has_prefix(name, "mems.") && by_model_memory(c->model) > 0;
}

/* All positions of the memory are held. */
static by_status hold_all(const by_stream *s)
{
    const by_stream_part *p = by_stream_find(s, "memory.held");
    const int32_t one = 1;
    for (size_t at = 0; p && at < by_memory_bytes(p->memory); at += sizeof one)
        BY_TRY(by_memory_write(p->memory, at, &one, sizeof one));
    return BY_OK;
}

/* XLNet's memories come in one array (layers, M, B, C); a part is (B, M, C). */
static by_status take_layer(const by_stream_part *p, const by_weight *stack)
{
    const long layer = strncmp(p->name, "mems.", 5) == 0 ? strtol(p->name + 5, NULL, 10) : -1;
    const int64_t b = p->shape[0], m = p->shape[1], w = p->shape[2];
    if (layer < 0)
        return BY_OK;
    if (stack->rank != 4 || layer >= stack->dim[0] || stack->dim[1] != m || stack->dim[2] != b ||
        stack->dim[3] != w)
        return base_fail(BY_ERR_FORMAT, "%s does not have the shape of the model's memory", stack->name);
    float *all = verify_values(stack, BY_F32);
    const size_t row = (size_t)w * by_dtype_size(p->type);
    char *one = base_alloc_zero(1, row);
    by_status s = all && one ? BY_OK : BY_ERR_MEMORY;
    for (int64_t i = 0; i < b * m && s == BY_OK; i++) { /* row (i / m, i % m) of the memory */
        base_convert(one, p->type, all + ((layer * m + i % m) * b + i / m) * w, BY_F32, (size_t)w);
        s = by_memory_write(p->memory, (size_t)i * row, one, row);
    }
    base_free(all);
    base_free(one);
    return s;
}

static by_status fill(const verify_case *c, const by_stream_part *p)
{
    const by_weight *stack = verify_find(c, "input.", "mem_stack");
    if (stack)
        return take_layer(p, stack);
    const by_weight *e = verify_find(c, "input.", p->name);
    const size_t n = by_memory_bytes(p->memory) / by_dtype_size(p->type);
    if (!e)
        return BY_OK;
    if (e->rank != p->rank || verify_elements(e) != n || !by_dtype_is_float(e->dtype))
        return base_fail(BY_ERR_FORMAT, "%s does not have the shape of the model's memory", e->name);
    void *values = verify_values(e, p->type);
    by_status s = values ? by_memory_write(p->memory, 0, values, by_memory_bytes(p->memory)) : BY_ERR_MEMORY;
    base_free(values);
    return s;
}

bool verify_streams(const verify_case *c)
{
    return by_model_carries(c->model) &&
           (by_model_memory(c->model) == 0 || verify_find(c, "input.", "mems.0") ||
            verify_find(c, "input.", "mem_stack"));
}

by_status verify_fill_stream(const verify_case *c, const by_stream *s)
{
    if (by_model_memory(c->model) > 0)
        BY_TRY(hold_all(s));
    for (int i = 0; i < by_stream_count(s); i++)
        BY_TRY(fill(c, by_stream_at(s, i)));
    return BY_OK;
}

/* -log softmax(logits)[target]. */
static double loss_of(const float *logits, int64_t count, int32_t target)
{
    double most = logits[0], sum = 0;
    for (int64_t i = 1; i < count; i++)
        most = fmax(most, logits[i]);
    for (int64_t i = 0; i < count; i++)
        sum += exp(logits[i] - most);
    return most + log(sum) - logits[target];
}

by_status verify_token_losses(verify_case *c, const by_weight *e)
{
    const by_tensor *t = by_io_output(by_pass_io(c->forward), "logits");
    const int64_t rows = (int64_t)c->batch * c->seq, vocab = t ? by_dim(t, -1) : 0;
    if (!t || !c->targets || by_elements(t) != rows * vocab) {
        verify_note(c, e, BY_VERDICT_FAILED, "there are no logits and labels by token");
        return BY_OK;
    }
    float *logits = base_alloc_zero((size_t)(rows * vocab), sizeof *logits);
    float *here = base_alloc_zero((size_t)rows, sizeof *here);
    by_status s = logits && here ? by_pass_read(c->forward, t, logits) : BY_ERR_MEMORY;
    for (int64_t r = 0; r < rows && s == BY_OK; r++)
        here[r] = c->targets[r] >= 0 && c->targets[r] < vocab
                      ? (float)loss_of(logits + r * vocab, vocab, c->targets[r])
                      : 0;
    if (s == BY_OK)
        s = verify_compare(c, e, VERIFY_SUBJECT_OUTPUT, 2, (int64_t[]){c->batch, c->seq}, here, NULL);
    base_free(logits);
    base_free(here);
    return s;
}
