/* queue.c - prompts, and tokens queued for a generator (see queue.h). */
#include "infer/queue.h"

#include <limits.h>

enum { SLICE = 256 }; /* tokens per row fed between two calls of cancelled() */

by_status gen_queue_open(gen_queue *q, by_generator *g)
{
    const size_t rows = (size_t)by_generator_batch(g);
    *q = (gen_queue){.generator = g, .rows = (int)rows};
    q->next = base_alloc_zero(rows, sizeof *q->next);
    q->left = base_alloc_zero(rows, sizeof *q->left);
    q->counts = base_alloc_zero(rows, sizeof *q->counts);
    return q->next && q->left && q->counts ? BY_OK : BY_ERR_MEMORY;
}

void gen_queue_close(gen_queue *q)
{
    base_free(q->next);
    base_free(q->left);
    base_free(q->counts);
}

by_status gen_queue_feed(gen_queue *q, const by_generate_spec *spec)
{
    for (int most = 1; most > 0;) {
        if (spec->cancelled && spec->cancelled(spec->user))
            return base_fail(BY_ERR_CANCELLED, "generation was cancelled");
        most = 0;
        for (int b = 0; b < q->rows; b++) {
            q->counts[b] = BY_MIN(q->left[b], SLICE);
            q->left[b] -= q->counts[b];
            most = BY_MAX(most, q->left[b]);
        }
        BY_TRY(by_generator_feed(q->generator, q->next, q->counts));
        for (int b = 0; b < q->rows; b++)
            if (q->counts[b])
                q->next[b] += q->counts[b];
    }
    return BY_OK;
}

by_status gen_check_prompt(const by_model *m, int row, const int32_t **tokens, int *length, int32_t *start)
{
    const int vocab = by_model_vocab(m);
    *start = by_model_eos(m);
    if (*length < 0)
        return base_fail(BY_ERR_ARGUMENT, "the prompt of row %d has %d tokens", row, *length);
    if (*length == 0 && (*start < 0 || *start >= vocab))
        return base_fail(BY_ERR_ARGUMENT, "the prompt is empty, and this model has no end-of-text token to "
                                          "start from: give at least one token");
    if (*length == 0) {
        *tokens = start;
        *length = 1;
    }
    for (int i = 0; i < *length;
         i++) /* all: tokens that slide out of the context still count for repetition */
        if ((*tokens)[i] < 0 || (*tokens)[i] >= vocab)
            return base_fail(BY_ERR_ARGUMENT, "token %d (row %d, place %d) is outside the vocabulary of %d",
                             (int)(*tokens)[i], row, i, vocab);
    return BY_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

by_status gen_push(by_generation *out, int32_t token)
{
    int fresh = out->count - out->prompt;
    if ((fresh & (fresh - 1)) == 0) { /* 0, 1, 2, 4, ...: full */
        if (out->count > INT_MAX / 2)
            return base_fail(BY_ERR_MEMORY, "a text of %d tokens cannot grow", out->count);
        int32_t *tokens =
            base_resize(out->tokens, (size_t)(out->prompt + BY_MAX(2 * fresh, 1)), sizeof *tokens);
        if (!tokens)
            return BY_ERR_MEMORY;
        out->tokens = tokens;
    }
    out->tokens[out->count++] = token;
    return BY_OK;
}

by_status gen_stops_open(gen_stops *s, const by_model *m, const int32_t *tokens, int count, bool ignore_eos)
{
    const int eos = by_model_eos(m), vocab = by_model_vocab(m);
    s->tokens = base_alloc_zero((size_t)count + 1, sizeof *s->tokens);
    if (!s->tokens)
        return BY_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return base_fail(BY_ERR_ARGUMENT, "stop token %d is outside the vocabulary of %d", (int)tokens[i],
                             vocab);
        s->tokens[s->count++] = tokens[i];
    }
    if (eos >= 0 && eos < vocab && !ignore_eos)
        s->tokens[s->count++] = eos;
    return BY_OK;
}

void gen_stops_close(gen_stops *s)
{
    base_free(s->tokens);
    *s = (gen_stops){0};
}

bool gen_is_stop(const gen_stops *s, int32_t token)
{
    for (int i = 0; i < s->count; i++)
        if (s->tokens[i] == token)
            return true;
    return false;
}
